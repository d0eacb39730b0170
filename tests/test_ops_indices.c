/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits, rows by index, indices of several dims, what is repeated, and bins: the values, by plain
 * loops, and what is refused. test_ops_table.c has their layouts, test_ops_twice.c gradients.
 */
#include "tensors.h"

#include <math.h>

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_bits.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"

static bool holds(sherd_tensor *t, const double *want, int64_t n)
{
    const double *x = sherd_tensor_read(sherd_cast(sherd_full(t), SHERD_F64));
    bool good = x && sherd_tensor_count(t) == n;

    for (int64_t i = 0; i < n && good; i++)
        if (!(good = x[i] == want[i]))
            fprintf(stderr, "  element %d is %.17g, not %.17g\n", (int)i, x[i], want[i]);
    return good;
}

static sherd_tensor *list(sherd_world *world, sherd_dtype dtype, int64_t n, const double *values)
{
    return sherd_mark_equal(sherd_cast(sherd_from_data(world, SHERD_F64, &n, 1, values), dtype));
}

/* 0, 1, .. of [rows,cols], of which the rows are sharded. */
static sherd_tensor *grid(sherd_world *world, sherd_dtype dtype, int64_t rows, int64_t cols)
{
    return indices_on(layout_of(line_of_ranks(world), 2, (int64_t[]){rows, cols}, "S(0)", NULL),
                      dtype);
}

static void refused(sherd_world *world, const char *text)
{
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { PAIRS = 8 };

static const int64_t left[PAIRS] = {0, 1, -1, 77, -128, 200, -7, 123},
                     right[PAIRS] = {5, 3, 7, -4, 2, 31, 40, 64};

static int64_t of_width(int64_t x, sherd_dtype dtype)
{
    return dtype == SHERD_I64   ? x
           : dtype == SHERD_I32 ? (int32_t)x
           : dtype == SHERD_I8  ? (int8_t)x
                                : (uint8_t)x;
}

/* By division, in the width of the dtype. */
static int64_t by_hand(int kind, int64_t a, int64_t b, sherd_dtype dtype)
{
    int64_t width = 8 * (int64_t)sherd_dtype_bytes(dtype);
    bool beyond = b < 0 || b >= width;

    switch (kind) {
    case 0:
        return a & b;
    case 1:
        return a | b;
    case 2:
        return a ^ b;
    case 3:
        return beyond ? 0 : of_width((int64_t)((uint64_t)a << b), dtype);
    default:
        return beyond ? (a < 0 ? -1 : 0) : (int64_t)floor(ldexp((double)a, -(int)b));
    }
}

static void bits_are_those_of_c(sherd_world *world)
{
    static sherd_tensor *(*const of_two[])(sherd_tensor *, sherd_tensor *) = {
        sherd_bitwise_and, sherd_bitwise_or, sherd_bitwise_xor, sherd_bitwise_left_shift,
        sherd_bitwise_right_shift};
    static sherd_tensor *(*const with[])(sherd_tensor *, int64_t) = {
        sherd_bitwise_and_scalar, sherd_bitwise_or_scalar, sherd_bitwise_xor_scalar,
        sherd_bitwise_left_shift_scalar, sherd_bitwise_right_shift_scalar};
    static const sherd_dtype dtypes[] = {SHERD_I32, SHERD_I64, SHERD_U8, SHERD_I8};

    for (int d = 0; d < LEN(dtypes); d++)
        for (int kind = 0; kind < LEN(of_two); kind++) {
            double a[PAIRS], b[PAIRS], want[PAIRS];
            for (int i = 0; i < PAIRS; i++) {
                int64_t x = of_width(left[i], dtypes[d]), y = of_width(right[i], dtypes[d]);
                a[i] = (double)x;
                b[i] = (double)y;
                want[i] = (double)by_hand(kind, x, y, dtypes[d]);
            }
            sherd_tensor *x = list(world, dtypes[d], PAIRS, a);
            CHECK(holds(of_two[kind](x, list(world, dtypes[d], PAIRS, b)), want, PAIRS));
            for (int j = 0; j < PAIRS; j++) {
                int64_t y = kind < 3 ? of_width(right[j], dtypes[d]) : right[j];
                for (int i = 0; i < PAIRS; i++)
                    want[i] = (double)by_hand(kind, (int64_t)a[i], y, dtypes[d]);
                CHECK(holds(with[kind](x, right[j]), want, PAIRS));
            }
        }
    CHECK(holds(sherd_bitwise_not(list(world, SHERD_U8, 2, (double[]){0, 200})),
                (double[]){255, 55}, 2));
    CHECK(holds(sherd_bitwise_not(list(world, SHERD_I64, 2, (double[]){0, -200})),
                (double[]){-1, 199}, 2));
    CHECK(holds(sherd_bitwise_not(list(world, SHERD_BOOL, 2, (double[]){0, 1})), (double[]){1, 0},
                2));
    CHECK(holds(sherd_bitwise_and_scalar(list(world, SHERD_BOOL, 2, (double[]){0, 1}), 4),
                (double[]){0, 1}, 2));
    CHECK_OK(sherd_world_check(world));
}

/* ---- repeated -------------------------------------------------------------------------------- */

static void what_is_repeated_stands_side_by_side(sherd_world *world)
{
    sherd_tensor *a = grid(world, SHERD_F32, 3, 2);
    const double rows[] = {0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5},
                 cols[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    const double some[] = {0, 1, 0, 1, 0, 1, 4, 5};

    CHECK(holds(sherd_repeat_interleave(a, 0, 2), rows, 12));
    CHECK(holds(sherd_repeat_interleave(a, -1, 2), cols, 12));
    CHECK_EQ(sherd_tensor_count(sherd_repeat_interleave(a, 0, 0)), 0);
    sherd_tensor *counts = list(world, SHERD_I32, 3, (double[]){3, 0, 1});
    CHECK(holds(sherd_repeat_interleave_by(a, 0, counts, 4), some, 8));
    CHECK_OK(sherd_world_check(world));
    sherd_repeat_interleave_by(a, 0, counts, 5);
    refused(world, "sherd_repeat_interleave_by: the counts add up to 4, and total is 5: a is f32[");
    sherd_repeat_interleave_by(a, 0, list(world, SHERD_I32, 3, (double[]){3, -1, 1}), 3);
    refused(world, "sherd_repeat_interleave_by: counts[1] is -1: a is f32[");
}

/* ---- by index -------------------------------------------------------------------------------- */

static void rows_go_where_the_index_says(sherd_world *world)
{
    sherd_tensor *a = grid(world, SHERD_F32, 4, 2), *rows = grid(world, SHERD_F32, 3, 2);
    sherd_tensor *index = list(world, SHERD_I32, 3, (double[]){3, 0, 3});
    const double added[] = {2, 4, 2, 3, 4, 5, 10, 13}, copied[] = {2, 3, 2, 3, 4, 5, 4, 5},
                 filled[] = {7, 7, 2, 3, 4, 5, 7, 7};

    CHECK(holds(sherd_index_add(a, 0, index, rows), added, 8));
    CHECK(holds(sherd_index_copy(a, 0, index, rows), copied, 8));
    CHECK(holds(sherd_index_fill(a, -2, index, 7), filled, 8));
    CHECK_OK(sherd_world_check(world));
    sherd_index_add(a, 0, index, a);
    refused(world, "sherd_index_add: source must be as a, with 3 along dim 0: a is f32[4");
    sherd_index_fill(a, 1, index, 7);
    refused(world, "= 3 is outside of [0,2)");
}

static void several_indices_meet(sherd_world *world)
{
    sherd_tensor *a = indices_on(
        layout_of(line_of_ranks(world), 3, (int64_t[]){3, 4, 2}, "S(1)", NULL), SHERD_F32);
    sherd_tensor *i = list(world, SHERD_I32, 3, (double[]){2, 0, 2});
    sherd_tensor *j = list(world, SHERD_I32, 3, (double[]){1, 3, 1});
    sherd_tensor *const both[] = {i, j};
    sherd_tensor *const crossed[] = {sherd_unsqueeze(i, -1), j};
    const double met[] = {18, 19, 6, 7, 18, 19};
    double put[24], added[24];

    CHECK(holds(sherd_index_at(a, both, 2), met, 6));
    CHECK(holds(sherd_select(sherd_index_at(a, crossed, 2), 2, 0),
                (double[]){18, 22, 18, 2, 6, 2, 18, 22, 18}, 9));
    CHECK(holds(sherd_index_at(a, &i, 1),
                (double[]){16, 17, 18, 19, 20, 21, 22, 23, 0,  1,  2,  3,
                           4,  5,  6,  7,  16, 17, 18, 19, 20, 21, 22, 23},
                24));
    for (int k = 0; k < 24; k++) {
        put[k] = k == 18 || k == 19 || k == 6 || k == 7 ? 100 : k;
        added[k] = k + (k == 18 || k == 19 ? 200 : k == 6 || k == 7 ? 100 : 0);
    }
    sherd_tensor *hundred = sherd_constant(world, SHERD_F32, NULL, 0, 100);
    CHECK(holds(sherd_index_put(a, both, 2, hundred, false), put, 24));
    CHECK(holds(sherd_index_put(a, both, 2, hundred, true), added, 24));
    CHECK_OK(sherd_world_check(world));
    sherd_index_at(a, (sherd_tensor *[]){j, i}, 2);
    refused(world, "= 3 is outside of [0,3)");
    sherd_index_at(a, (sherd_tensor *[]){i, NULL}, 2);
    refused(world, "sherd_index_at: index 1 is NULL: a is f32[3,4");
    sherd_index_put(a, both, 5, hundred, true);
    refused(world, "sherd_index_put: 5 indices: must be 1 to 4: a is");
    sherd_index_put(a, both, 2, a, true);
    refused(world, "sherd_index_put: sherd_expand: ");
}

/* Each element's gradient is how often it was taken. */
static void their_gradients_add_up(sherd_world *world)
{
    sherd_tensor *a = sherd_require_grad(grid(world, SHERD_F64, 3, 2), true);
    sherd_tensor *i = list(world, SHERD_I32, 3, (double[]){2, 0, 2});
    sherd_tensor *j = list(world, SHERD_I32, 3, (double[]){1, 0, 1});

    sherd_backward(sherd_sum(sherd_index_at(a, (sherd_tensor *[]){i, j}, 2)));
    CHECK(holds(sherd_grad(a), (double[]){1, 0, 0, 0, 0, 2}, 6));
    sherd_clear_grad(a);
    sherd_backward(sherd_sum(
        sherd_repeat_interleave_by(a, 0, list(world, SHERD_I32, 3, (double[]){3, 0, 1}), 4)));
    CHECK(holds(sherd_grad(a), (double[]){3, 3, 0, 0, 1, 1}, 6));
    CHECK_OK(sherd_world_check(world));
}

/* ---- bins ------------------------------------------------------------------------------------ */

static void bins_have_their_lower_ends(sherd_world *world)
{
    const double values[] = {0, 0.24, 0.25, 1, 0.999, -0.01, 1.01, (double)NAN, INFINITY, 0.5};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16};

    for (int d = 0; d < LEN(dtypes); d++) {
        sherd_tensor *a = list(world, dtypes[d], LEN(values), values);
        CHECK(holds(sherd_histc(a, 4, 0, 1), (double[]){2, 1, 1, 2}, 4));
    }
    sherd_tensor *many = grid(world, SHERD_F32, 10, 10);
    CHECK(holds(sherd_histc(many, 5, 0, 99), (double[]){20, 20, 20, 20, 20}, 5));
    CHECK_OK(sherd_world_check(world));
    sherd_histc(many, 5, 1, 1);
    refused(world, "sherd_histc: min 1 must be below max 1, both finite: a is f32[10");
    sherd_histc(many, 4, -1e38, 2e38);
    refused(world,
            "sherd_histc: 4 bins from -1e+38 to 2e+38: their number times max - min is more");
}

static const check_test tests[] = {
    {TEST(bits_are_those_of_c), {1}},
    {TEST(what_is_repeated_stands_side_by_side), {1, 2, 3, 4}},
    {TEST(rows_go_where_the_index_says), {1, 2, 3, 4}},
    {TEST(several_indices_meet), {1, 2, 3, 4}},
    {TEST(their_gradients_add_up), {1, 2, 3}},
    {TEST(bins_have_their_lower_ends), {1, 2, 3}},
};
CHECK_MAIN(tests)
