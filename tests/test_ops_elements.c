/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of kernels/functions.inc under every placement, plain and in its gradient: a row
 * of that list is tested by being there. Numbers at which a function bends or ends are in
 * test_kernels_functions.c.
 */
#include "ops_halves.h"
#include "ops_oracles.h"
#include "sherd/ops_elements.h"

/* In (0.6, 1.2): where nearly every function is defined. */
static sherd_tensor *positive(sherd_tensor *a)
{
    return sherd_add_scalar(sherd_scale(a, 0.3), 0.9);
}

/* Above 1, or below, for those that are not. */
static sherd_tensor *within(const char *name, sherd_tensor *a)
{
    if (strcmp(name, "acosh") == 0)
        return sherd_add_scalar(positive(a), 1);
    if (strcmp(name, "asin") == 0 || strcmp(name, "acos") == 0 || strcmp(name, "atanh") == 0)
        return sherd_scale(positive(a), 0.5);
    return positive(a);
}

/* ---- functions of one operand ---------------------------------------------------------------- */

#define UNARY0(name, ...)                                             \
    static sherd_tensor *run_##name##_of_one(sherd_tensor *const *in) \
    {                                                                 \
        return sherd_##name(within(#name, in[0]));                    \
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

/* ---- choices --------------------------------------------------------------------------------- */

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

/* The same where they are, some of them outside of where a function is defined: rounded once,
 * nothing else. Not where a slope is steep. */
static sherd_tensor *inside(const char *name, sherd_tensor *a)
{
    return strcmp(name, "asin") == 0 || strcmp(name, "acos") == 0 || strcmp(name, "atanh") == 0
               ? sherd_scale(a, 0.5)
               : a;
}

#define UNARY0(name, ...)                                          \
    static sherd_tensor *run_##name##_raw(sherd_tensor *const *in) \
    {                                                              \
        return sherd_##name(inside(#name, in[0]));                 \
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
    all_equal_plain(world, functions, LEN(functions), 100 / check_stride(2));
    all_equal_plain(world, questions, LEN(questions), 60 / check_stride(2));
}

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, functions, LEN(functions), 40 / check_stride(2));
}

static void halves_are_computed_in_f32(sherd_world *world)
{
    all_in_halves(world, raw, LEN(raw), 6);
}

static void a_rank_outside_of_the_mesh_takes_no_part(sherd_world *world)
{
    all_without_rank_1(world, functions, LEN(functions), 10);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static sherd_tensor *integers(sherd_world *world, sherd_dtype dtype, int64_t n, const void *x)
{
    return sherd_mark_equal(sherd_from_data(world, dtype, &n, 1, x));
}

/* The answers as bits, the first one lowest. */
static int answers_of(sherd_tensor *t)
{
    const uint8_t *y = sherd_tensor_read(t);
    int bits = 0;

    for (int64_t i = 0; y && i < sherd_tensor_count(t); i++)
        bits |= y[i] << i;
    return CHECK(y && sherd_tensor_dtype(t) == SHERD_BOOL) ? bits : -1;
}

/* Numbers between integers, beyond all of them, and those that no double has. */
static void integers_compare_with_any_number(sherd_world *world)
{
    static const int64_t x[] = {INT64_MIN, -3, 2, 3, INT64_MAX};
    static const struct {
        double value;
        int eq, lt, le, gt, ge; /* bits */
    } rows[] = {
        {2, 4, 3, 7, 24, 28},
        {2.5, 0, 7, 7, 24, 24},
        {-3, 2, 1, 3, 28, 30},
        {-2.5, 0, 3, 3, 28, 28},
        {9223372036854775808.0, 0, 31, 31, 0, 0},
        {-9223372036854775808.0, 1, 0, 1, 30, 31},
        {INFINITY, 0, 31, 31, 0, 0},
        {-1e30, 0, 0, 0, 31, 31},
        {NAN, 0, 0, 0, 0, 0},
    };
    sherd_tensor *a = integers(world, SHERD_I64, 5, x);

    for (int i = 0; i < LEN(rows); i++) {
        double v = rows[i].value;
        CHECK_EQ(answers_of(sherd_eq_scalar(a, v)), rows[i].eq);
        CHECK_EQ(answers_of(sherd_ne_scalar(a, v)), 31 - rows[i].eq);
        CHECK_EQ(answers_of(sherd_lt_scalar(a, v)), rows[i].lt);
        CHECK_EQ(answers_of(sherd_le_scalar(a, v)), rows[i].le);
        CHECK_EQ(answers_of(sherd_gt_scalar(a, v)), rows[i].gt);
        CHECK_EQ(answers_of(sherd_ge_scalar(a, v)), rows[i].ge);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Also with numbers that are none of theirs. */
static void narrow_integers_compare_with_any_number(sherd_world *world)
{
    static const uint8_t x[] = {0, 1, 44, 255}, given[] = {0, 1, 1};
    static const int32_t y[] = {-1, 0, 1};
    sherd_tensor *a = integers(world, SHERD_U8, 4, x), *b = integers(world, SHERD_BOOL, 3, given),
                 *c = integers(world, SHERD_I32, 3, y);

    CHECK_EQ(answers_of(sherd_eq_scalar(a, 44)), 4);
    CHECK_EQ(answers_of(sherd_eq_scalar(a, 300)), 0);
    CHECK_EQ(answers_of(sherd_lt_scalar(a, 300)), 15);
    CHECK_EQ(answers_of(sherd_gt_scalar(a, -1)), 15);
    CHECK_EQ(answers_of(sherd_gt_scalar(b, 0)), 6);
    CHECK_EQ(answers_of(sherd_lt_scalar(b, 2)), 7);
    CHECK_EQ(answers_of(sherd_logical_not(b)), 1);
    CHECK_EQ(answers_of(sherd_logical_not(c)), 2);
    CHECK_EQ(answers_of(sherd_lt_scalar(c, 4294967296.0)), 7);
    CHECK_OK(sherd_world_check(world));
}

/* A number is rounded to the dtype first: 0.1 is an f32. */
static void fractions_compare_in_their_dtype(sherd_world *world)
{
    static const float x[] = {0.1f, NAN, -0.0f};
    sherd_tensor *a = integers(world, SHERD_F32, 3, x);

    CHECK_EQ(answers_of(sherd_eq_scalar(a, 0.1)), 1);
    CHECK_EQ(answers_of(sherd_ne_scalar(a, 0)), 3);
    CHECK_EQ(answers_of(sherd_logical_not(a)), 4);
    CHECK_EQ(answers_of(sherd_eq(a, a)), 5);
    CHECK_EQ(answers_of(sherd_logical_or(a, a)), 3);
    CHECK_OK(sherd_world_check(world));
}

/* Sums of integers wrap around; one that is replicated is added once to a pending sum. */
static void integers_add_up(sherd_world *world)
{
    static const int32_t x[] = {7, INT32_MAX, -5}, want[] = {10, INT32_MIN + 2, -2};
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *pending = NULL;
    const char *text = sherd_mesh_axes(mesh) == 2 ? "P(sum)P(sum)" : "P(sum)";
    int64_t shape[] = {3}, parts;

    CHECK_OK(sherd_layout_parse_placements(&pending, mesh, 1, shape, text, NULL));
    sherd_tensor *p = sherd__new_on(pending, SHERD_I32);
    bool first = pending_part(p, &parts) == 0;
    for (int i = 0; i < 3; i++)
        ((int32_t *)sherd__fresh(p))[i] = first ? x[i] : 0;
    sherd_tensor *a = integers(world, SHERD_I32, 3, (const int32_t[]){1, 1, 1});
    sherd_tensor *sum = sherd_add_scalar(sherd_sub(sherd_add(p, a), sherd_neg(a)), 1);
    CHECK_EQ((int)sum->layout->pending_axes, (int)pending->pending_axes);
    const int32_t *y = sherd_tensor_read(sherd_full(sum));
    CHECK(y && memcmp(y, want, sizeof want) == 0);
    y = sherd_tensor_read(sherd_full(sherd_maximum(p, sherd_mul(a, a))));
    CHECK(y && y[0] == 7 && y[1] == INT32_MAX && y[2] == 1);
    CHECK_OK(sherd_world_check(world));
}

/* The gradient of one element of each operand. */
static double slope_at(sherd_world *world, sherd_tensor *(*run)(sherd_tensor *const *in), int which,
                       sherd_dtype dtype, double a, double b)
{
    const int64_t shape[] = {9}; /* a vector and a rest */
    sherd_tensor *in[] = {sherd_require_grad(sherd_constant(world, dtype, shape, 1, a), true),
                          sherd_require_grad(sherd_constant(world, dtype, shape, 1, b), true)};

    sherd_backward(sherd_sum(run(in)));
    double first = sherd_item(sherd_select(sherd_grad(in[which]), 0, 0));
    CHECK_EQ(sherd_item(sherd_select(sherd_grad(in[which]), 0, 8)), first);
    return first;
}

static sherd_tensor *elu_of_one(sherd_tensor *const *in)
{
    return sherd_elu(in[0], 1.5);
}

static sherd_tensor *selu_of_one(sherd_tensor *const *in)
{
    return sherd_selu(in[0]);
}

static sherd_tensor *atan2_of_two(sherd_tensor *const *in)
{
    return sherd_atan2(in[0], in[1]);
}

static void slopes_at_the_edges(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};

    for (int d = 0; d < LEN(dtypes); d++) {
        CHECK_EQ(slope_at(world, elu_of_one, 0, dtypes[d], NAN, 0), NAN);
        CHECK_EQ(slope_at(world, selu_of_one, 0, dtypes[d], NAN, 0), NAN);
        CHECK_EQ(slope_at(world, elu_of_one, 0, dtypes[d], 0, 0), 1.5);
        CHECK_EQ(slope_at(world, atan2_of_two, 0, dtypes[d], 0, 0), 0);
        CHECK_NEAR(slope_at(world, atan2_of_two, 0, dtypes[d], 3, 4), 0.16, 1e-3);
    }
    for (int d = 0; d < 3; d++) { /* their squares are 0 */
        double tiny = dtypes[d] == SHERD_F64 ? 0x1p-600 : 0x1p-80;
        CHECK_EQ(slope_at(world, atan2_of_two, 0, dtypes[d], tiny, 0), 0);
        CHECK_EQ(slope_at(world, atan2_of_two, 1, dtypes[d], tiny, 0), -1 / tiny);
        CHECK_EQ(slope_at(world, atan2_of_two, 0, dtypes[d], 0, tiny), 1 / tiny);
    }
    CHECK_OK(sherd_world_check(world));
}

/* x / 6 + 1 / 2 would have the last bits of 1 / 2. */
static void a_hardsigmoid_begins_at_0(sherd_world *world)
{
    const int64_t n = 3;
    const float x[] = {-2.99944973F, -2.9999F, 2.9999F};
    const float *y =
        sherd_tensor_read(sherd_hardsigmoid(sherd_from_data(world, SHERD_F32, &n, 1, x)));

    for (int i = 0; i < n && y; i++)
        CHECK_NEAR((double)y[i] / (((double)x[i] + 3) / 6), 1, 2e-7);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(slopes_at_the_edges), {1}},
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(halves_are_computed_in_f32), {1, 2, 4}},
    {TEST(a_rank_outside_of_the_mesh_takes_no_part), {3}},
    {TEST(integers_compare_with_any_number), {1, 2}},
    {TEST(narrow_integers_compare_with_any_number), {1, 2}},
    {TEST(fractions_compare_in_their_dtype), {1}},
    {TEST(integers_add_up), {1, 2, 3, 4}},
    {TEST(a_hardsigmoid_begins_at_0), {1}},
};
CHECK_MAIN(tests)
