/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of kernels/functions.inc under every placement, plain and in its gradient: a row of that list is tested
 * by being there. Numbers at which a function bends or ends are in test_kernels_functions.c and test_ops_numbers.c.
 */
#include "ops_halves.h"
#include "ops_oracles.h"
#include "sherd/ops_elements.h"

/* In (0.6, 1.2): where every function is defined. */
static sherd_tensor *positive(sherd_tensor *a)
{
    return sherd_add_scalar(sherd_scale(a, 0.3), 0.9);
}

/* ---- functions of one operand ---------------------------------------------------------------- */

#define UNARY0(name, ...)                                             \
    static sherd_tensor *run_##name##_of_one(sherd_tensor *const *in) \
    {                                                                 \
        return sherd_##name(positive(in[0]));                         \
    }
#define UNARY1(name, ...)                                             \
    static sherd_tensor *run_##name##_of_one(sherd_tensor *const *in) \
    {                                                                 \
        return sherd_##name(positive(in[0]), 0.7);                    \
    }
#define UNARY2(name, ...)                                             \
    static sherd_tensor *run_##name##_of_one(sherd_tensor *const *in) \
    {                                                                 \
        return sherd_##name(positive(in[0]), 0.3, 0.8);               \
    }
#define BINARY(name, ...)                                             \
    static sherd_tensor *run_##name##_of_two(sherd_tensor *const *in) \
    {                                                                 \
        return sherd_##name(positive(in[0]), positive(in[1]));        \
    }
#include "kernels/functions.inc"

/* ---- choices ---------------------------------------------------------------------------------- */

static sherd_tensor *run_add_scalar(sherd_tensor *const *in)
{
    return sherd_add_scalar(in[0], 2.5);
}
static sherd_tensor *run_where(sherd_tensor *const *in)
{
    return sherd_where(sherd_ne_scalar(in[2], 0), in[0], in[1]);
}
static sherd_tensor *run_fill(sherd_tensor *const *in)
{
    return sherd_masked_fill(in[0], sherd_ne_scalar(in[1], 0), 1.5);
}
static sherd_tensor *run_fill_zero(sherd_tensor *const *in)
{
    return sherd_masked_fill(in[0], sherd_logical_not(in[1]), 0);
}

static const op_case functions[] = {
#define UNARY0(name, ...) {#name, run_##name##_of_one, 1, {2}, .shape = {{5, 3}}},
#define UNARY1(name, ...) {#name, run_##name##_of_one, 1, {2}, .shape = {{5, 3}}},
#define UNARY2(name, ...) {#name, run_##name##_of_one, 1, {2}, .shape = {{5, 3}}},
#define BINARY(name, ...)                                               \
    {#name, run_##name##_of_two, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}}, \
        {#name " stretched", run_##name##_of_two, 2, {3, 2}, .shape = {{2, 1, 3}, {5, 1}}},
#include "kernels/functions.inc"
    {"add scalar", run_add_scalar, 1, {2}, .shape = {{5, 3}}},
    {"where", run_where, 3, {2, 1, 2}, .shape = {{5, 3}, {3}, {5, 1}}, .index = 4, .limit = 2},
    {"masked fill", run_fill, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}, .index = 2, .limit = 2},
    {"masked fill 0", run_fill_zero, 2, {2, 1}, .shape = {{5, 3}, {3}}, .index = 2, .limit = 2},
};

/* The same where they are, some of them outside of where a function is defined: rounded once, nothing else. */
#define UNARY0(name, ...)                                          \
    static sherd_tensor *run_##name##_raw(sherd_tensor *const *in) \
    {                                                              \
        return sherd_##name(in[0]);                                \
    }
#define UNARY1(name, ...)                                          \
    static sherd_tensor *run_##name##_raw(sherd_tensor *const *in) \
    {                                                              \
        return sherd_##name(in[0], 0.7);                           \
    }
#define UNARY2(name, ...)                                          \
    static sherd_tensor *run_##name##_raw(sherd_tensor *const *in) \
    {                                                              \
        return sherd_##name(in[0], 0.3, 0.8);                      \
    }
#define BINARY(name, ...)                                          \
    static sherd_tensor *run_##name##_raw(sherd_tensor *const *in) \
    {                                                              \
        return sherd_##name(in[0], in[1]);                         \
    }
#include "kernels/functions.inc"

static const op_case raw[] = {
#define UNARY0(name, ...) {#name, run_##name##_raw, 1, {2}, .shape = {{5, 3}}},
#define UNARY1(name, ...) {#name, run_##name##_raw, 1, {2}, .shape = {{5, 3}}},
#define UNARY2(name, ...) {#name, run_##name##_raw, 1, {2}, .shape = {{5, 3}}},
#define BINARY(name, ...) {#name, run_##name##_raw, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
#include "kernels/functions.inc"
};

/* ---- questions, which have no gradient ------------------------------------------------------- */

/* Half of the elements are equal. */
static sherd_tensor *rounded(sherd_tensor *a)
{
    return sherd_cast(sherd_cast(sherd_scale(a, 3), SHERD_I32), SHERD_F64);
}

#define COMPARE(name, ...)                                                            \
    static sherd_tensor *run_##name(sherd_tensor *const *in)                          \
    {                                                                                 \
        sherd_tensor *scalar = sherd_##name##_scalar(rounded(in[0]), 1);              \
        sherd_tensor *pair = sherd_##name(rounded(in[0]), rounded(in[1]));            \
        return sherd_add(sherd_cast(pair, SHERD_F64), sherd_cast(scalar, SHERD_F64)); \
    }
#define LOGIC(name, ...)                                                            \
    static sherd_tensor *run_##name(sherd_tensor *const *in)                        \
    {                                                                               \
        return sherd_cast(sherd_##name(rounded(in[0]), rounded(in[1])), SHERD_F64); \
    }
#include "kernels/functions.inc"

static const op_case questions[] = {
#define COMPARE(name, ...) {#name, run_##name, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
#define LOGIC(name, ...)   {#name, run_##name, 2, {2, 1}, .shape = {{5, 3}, {3}}},
#include "kernels/functions.inc"
};

static void sharded_equals_plain(sherd_world *world)
{
    all_equal_plain(world, functions, LEN(functions), 100);
    all_equal_plain(world, questions, LEN(questions), 60);
}

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, functions, LEN(functions), 40);
}

static void halves_are_computed_in_f32(sherd_world *world)
{
    all_in_halves(world, raw, LEN(raw), 6);
}

static void a_rank_outside_of_the_mesh_takes_no_part(sherd_world *world)
{
    all_without_rank_1(world, functions, LEN(functions), 10);
}

static const check_test tests[] = {
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(halves_are_computed_in_f32), {1, 2, 4}},
    {TEST(a_rank_outside_of_the_mesh_takes_no_part), {3}},
};
CHECK_MAIN(tests)
