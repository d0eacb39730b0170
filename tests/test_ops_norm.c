/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over dims of degree 2, which have kernels of their own: under every placement, their
 * gradients, and of numbers whose squares f32 does not hold.
 */
#include "ops_halves.h"
#include "ops_oracles.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "tensors.h"

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define RUN(name, expression)                          \
    static sherd_tensor *name(sherd_tensor *const *in) \
    {                                                  \
        sherd_tensor *a = in[0];                       \
        return expression;                             \
    }

RUN(first, sherd_norm(a, 2, DIMS(0), true))
RUN(middle, sherd_norm(a, 2, DIMS(1), false))
RUN(last, sherd_norm(a, 2, DIMS(-1), false))
RUN(last_two, sherd_norm(a, 2, DIMS(2, 1), true))
RUN(outer, sherd_norm(a, 2, DIMS(0, 2), false))
RUN(all, sherd_norm(a, 2, NULL, 0, false))
RUN(of_pending, sherd_norm(sherd_sum_over(a, DIMS(0), false), 2, DIMS(-1), false))

#define THREE .shape = {{4, 2, 5}}
static const op_case lengths[] = {
    {"first", first, 1, {3}, THREE},
    {"middle", middle, 1, {3}, .shape = {{3, 4, 2}}},
    {"last", last, 1, {3}, THREE},
    {"last two", last_two, 1, {3}, THREE},
    {"outer", outer, 1, {3}, THREE},
    {"all", all, 1, {2}, .shape = {{5, 3}}},
    {"of a pending sum", of_pending, 1, {3}, THREE},
    {"of nothing", last, 1, {2}, .shape = {{0, 3}}},
    {"over nothing", first, 1, {2}, .shape = {{0, 3}}},
};

static void sharded_equals_plain(sherd_world *world)
{
    all_equal_plain(world, lengths, LEN(lengths), 80);
}

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, lengths, LEN(lengths), 40);
}

static void halves_are_computed_in_f32(sherd_world *world)
{
    all_in_halves(world, lengths, LEN(lengths), 6);
}

/* ---- numbers whose squares are infinite, or nothing ------------------------------------------ */

enum { ROWS = 3, COLS = 700, MOST = ROWS * COLS };

/* Numbers of that size in rows, or in columns; lengths of all, and their gradients. */
static void try_size(sherd_world *world, sherd_dtype dtype, double size, int dim)
{
    static double x[MOST], length[COLS];
    const int64_t shape[] = {ROWS, COLS};
    double near = dtype == SHERD_F32 ? 2e-6 : 2e-2;

    memset(length, 0, sizeof length);
    for (int i = 0; i < MOST; i++)
        x[i] = size * (1 + 0.25 * (i % 7)) * (i % 2 ? 1 : -1);
    sherd_tensor *a =
        sherd_cast(sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 2, x)), dtype);
    const double *given = sherd_tensor_read(sherd_cast(a, SHERD_F64));
    for (int i = 0; i < MOST && given; i++)
        length[dim ? i / COLS : i % COLS] += given[i] * given[i];
    sherd_require_grad(a, true);
    sherd_tensor *y = sherd_norm(a, 2, &dim, 1, false);
    sherd_backward(sherd_sum(y));
    const double *got = sherd_tensor_read(sherd_cast(y, SHERD_F64));
    for (int i = 0; i < (dim ? ROWS : COLS) && got; i++)
        CHECK_NEAR(got[i], sqrt(length[i]), near * sqrt(length[i]) + 0x1p-150);
    const double *slope = sherd_tensor_read(sherd_cast(sherd_grad(a), SHERD_F64));
    for (int i = 0; i < MOST && slope && given; i++)
        CHECK_NEAR(slope[i], given[i] / sqrt(length[dim ? i / COLS : i % COLS]), near);
}

static void norms_hold_what_squares_do_not(sherd_world *world)
{
    static const double sizes[] = {1, 1e30, 2e-25, 1e-37, 0x1p-140};

    for (int s = 0; s < LEN(sizes); s++)
        for (int dim = 0; dim < 2; dim++) {
            try_size(world, SHERD_F32, sizes[s], dim);
            if (sizes[s] >= 1e-37)
                try_size(world, SHERD_BF16, sizes[s], dim);
        }
    CHECK_OK(sherd_world_check(world));
}

/* As PyTorch has them: of an infinite length 0, and NaN where it comes from; of the length 0, 0. */
static void ends_have_gradients(sherd_world *world)
{
    const double x[] = {INFINITY, 1, 0, 0}, want[] = {NAN, 0, 0, 0};
    const int64_t shape[] = {2, 2};

    for (int turned = 0; turned < 2; turned++) {
        sherd_tensor *a = sherd_cast(sherd_from_data(world, SHERD_F64, shape, 2, x), SHERD_F32);
        sherd_tensor *b = turned ? sherd_contiguous(sherd_transpose(a, 0, 1)) : a;
        int dim = turned ? 0 : 1;
        sherd_require_grad(b, true);
        sherd_tensor *y = sherd_norm(b, 2, &dim, 1, false);
        sherd_backward(sherd_sum(y));
        const double *got = sherd_tensor_read(
            sherd_cast(turned ? sherd_transpose(sherd_grad(b), 0, 1) : sherd_grad(b), SHERD_F64));
        for (int i = 0; i < 4 && got; i++)
            CHECK(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(halves_are_computed_in_f32), {1, 2, 4}},
    {TEST(norms_hold_what_squares_do_not), {1}},
    {TEST(ends_have_gradients), {1}},
};
CHECK_MAIN(tests)
