/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paddings, convolutions, pools and interpolation whose results are known, or that other libraries
 * test or refuse; and what travels.
 */
#include "fields.h"

#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_stencil.h"

/* What other libraries test, and what they refuse: sizes of shards that windows do not divide. */
static sherd_tensor *known(int i, sherd_tensor *x, sherd_tensor *w)
{
    static const sherd_border borders[] = {SHERD_BORDER_CONSTANT, SHERD_BORDER_REFLECT,
                                           SHERD_BORDER_REPLICATE, SHERD_BORDER_PERIODIC};
    sherd_halo_side two = {2, borders[i % 4]}, one = {1, borders[i % 4]},
                    three = {3, borders[i % 4]}, four = {4, borders[i % 4]};
    sherd_pad_options square = {.before = {[2] = two, two}, .after = {[2] = two, two}};
    sherd_pad_options uneven = {
        .before = {[2] = three, one}, .after = {[2] = four, two}, .value = 1.234};
    int64_t k = i % 2 ? 4 : 2;
    sherd_pool_options pool = {.kernel = {k, k}};
    double factor = i % 2 ? 3 : 2;

    switch (i / 4) {
    case 0:
        return sherd_conv(sherd_pad_with(x, &square), w, NULL, NULL);
    case 1:
        return sherd_pad_with(x, &uneven);
    case 2:
        return i % 4 < 2 ? sherd_avg_pool(x, &pool) : sherd_max_pool(x, &pool, NULL);
    default:
        return sherd_interpolate(x, &(sherd_interpolate_options){.factor = {factor, factor}});
    }
}

static void large_fields_are_as_plain(sherd_world *world)
{
    static const int64_t shape[4] = {1, 2, 128, 16}, kernel[4] = {3, 2, 3, 3};
    const sherd_mesh *mesh = draw_mesh(world, 0);
    static const char *const how[] = {"2:64,64", "2:41,87", "2:32,32,32,32", "2:1,62,60,5"};
    uint64_t dice = 9;

    for (int i = 0; i < 4 * 4 * 2; i++) {
        sherd_scope_begin(world);
        const char *cuts = how[sherd_world_ranks(world) / 4 * 2 + i % 2];
        sherd_tensor *leaf = numbers(world, &dice, 4, shape), *w = numbers(world, &dice, 4, kernel);
        sherd_tensor *x = sherd_distribute(leaf, layout_of(mesh, 4, shape, "S(2)", cuts), -1);
        sherd_require_grad(leaf, true);
        sherd_require_grad(x, true);
        sherd_tensor *want = known(i / 2, leaf, w), *y = known(i / 2, x, w);
        CHECK_NEAR(difference(y, want), 0, 1e-12);
        sherd_tensor *dy = numbers(world, &dice, 4, want->shape);
        sherd_backward_with(&want, &dy, 1, NULL);
        sherd_backward_with(&y, &dy, 1, NULL);
        CHECK_NEAR(difference(sherd_grad(x), sherd_grad(leaf)), 0, 1e-12);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- cases that have a name ------------------------------------------------------------------ */

static void check_pieces(sherd_tensor *y, const char *want)
{
    const double *data = sherd_tensor_read(y);
    char text[160] = "";
    size_t at = 0;

    for (int64_t k = 0; data && k < y->count; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, k ? " %g" : "%g", data[k]);
    CHECK_TEXT(text, want);
}

/* 0 to 9 on three ranks: shards need not be whole windows. */
static void pools_of_ten(sherd_world *world)
{
    static const int64_t shape[3] = {1, 1, 10}, three[1] = {3};
    const sherd_mesh *mesh = mesh_of(world, "3");
    sherd_tensor *x = indices_on(layout_of(mesh, 3, shape, "S(2)", "2:4,3,3"), SHERD_F64);
    sherd_tensor *gap = indices_on(layout_of(mesh, 3, shape, "S(2)", "2:7,0,3"), SHERD_F64);
    int rank = sherd_world_rank(world);
    const sherd_pool_options two = {.kernel = {2}},
                             wide = {.kernel = {3}, .stride = {2}, .padding = {1}};
    const sherd_pool_options ceil = {.kernel = {4}, .ceil = true};
    sherd_interpolate_options double_size = {.factor = {2}}, half = {.factor = {0.5}};

    check_pieces(sherd_avg_pool(x, &two), (const char *[]){"0.5 2.5", "4.5 6.5", "8.5"}[rank]);
    check_pieces(sherd_max_pool(x, &two, NULL), (const char *[]){"1 3", "5 7", "9"}[rank]);
    check_pieces(sherd_max_pool(gap, &wide, NULL), (const char *[]){"1 3 5 7", "", "9"}[rank]);
    check_pieces(sherd_avg_pool(x, &ceil), (const char *[]){"1.5", "5.5", "8.5"}[rank]);
    check_pieces(sherd_adaptive_avg_pool(x, three), (const char *[]){"1.5", "4.5", "7.5"}[rank]);
    check_pieces(sherd_interpolate(x, &double_size),
                 (const char *[]){"0 0 1 1 2 2 3 3", "4 4 5 5 6 6", "7 7 8 8 9 9"}[rank]);
    double_size.factor[0] = 3;
    check_pieces(sherd_interpolate(gap, &double_size),
                 (const char *[]){"0 0 0 1 1 1 2 2 2 3 3 3 4 4 4 5 5 5 6 6 6", "",
                                  "7 7 7 8 8 8 9 9 9"}[rank]);
    half.kind = SHERD_INTERPOLATE_LINEAR;
    check_pieces(sherd_interpolate(x, &half), (const char *[]){"0.5 2.5", "4.5 6.5", "8.5"}[rank]);
    CHECK_OK(sherd_world_check(world));
}

/* A NaN is the largest, the last of several; of equal elements the first; -infinity has a place
 * too. */
static void maxima_of_strange_numbers(sherd_world *world)
{
    static const int64_t shape[3] = {1, 1, 8};
    const double data[] = {1, NAN, 3, NAN, 3, 3, 2, -INFINITY};
    const sherd_pool_options three = {.kernel = {3}, .stride = {1}, .padding = {1}};
    const sherd_mesh *mesh = mesh_of(world, "2");
    sherd_tensor *x = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 3, data)), *at;

    x = sherd_distribute(x, layout_of(mesh, 3, shape, "S(2)", NULL), -1);
    sherd_tensor *y = sherd_max_pool(x, &three, &at);
    bool first = sherd_world_rank(world) == 0;
    check_pieces(y, first ? "nan nan nan nan" : "nan 3 3 2");
    check_pieces(sherd_cast(at, SHERD_F64), first ? "1 1 3 3" : "3 4 5 6");
    CHECK_EQ(at->dtype, SHERD_I64);
    CHECK_OK(sherd_world_check(world));
}

/* The nearest element is copied: a -0 too, and one of 16 bits. */
static void nearest_elements_are_copied(sherd_world *world)
{
    static const int64_t shape[4] = {1, 1, 2, 2};
    static const float data[4] = {-0.0F, 3, -0.0F, -2};
    const sherd_interpolate_options twice = {.kind = SHERD_INTERPOLATE_NEAREST, .factor = {2, 2}};
    const sherd_mesh *mesh = mesh_of(world, "2");
    sherd_tensor *x = sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape, 4, data));

    x = sherd_distribute(x, layout_of(mesh, 4, shape, "S(2)", NULL), -1);
    for (int i = 0; i < 2; i++) {
        sherd_tensor *from = i ? sherd_cast(x, SHERD_BF16) : x;
        sherd_tensor *y = sherd_cast(sherd_interpolate(from, &twice), SHERD_F32);
        const float *at = sherd_tensor_read(y);
        for (int k = 0; k < 8; k++)
            CHECK(k % 4 < 2 ? at[k] == 0 && signbit(at[k])
                            : at[k] == data[2 * sherd_world_rank(world) + 1]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The mean of all of two dims is that of one long line, whoever has it: here 3 of 9 each. */
static void averages_of_all_are_one_sum(sherd_world *world)
{
    static const int64_t shape[4] = {1, 1, 3, 3}, one[2] = {1, 1};
    static const float data[9] = {1e8F, 1, 1, 1, 1, 1, 1, 1, -1e8F};
    const sherd_mesh *mesh = mesh_of(world, "3");
    sherd_tensor *plain = sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape, 4, data));
    sherd_tensor *x = sherd_distribute(plain, layout_of(mesh, 4, shape, "S(2)", NULL), -1);
    sherd_tensor *y = sherd_adaptive_avg_pool(x, one), *want = sherd_adaptive_avg_pool(plain, one);

    CHECK_NEAR(sherd_item(sherd_full(y)), sherd_item(want), 0);
    sherd_require_grad(x, true);
    sherd_backward(sherd_sum(sherd_adaptive_avg_pool(x, one)));
    const float *dx = sherd_tensor_read(sherd_grad(x));
    for (int k = 0; k < 3; k++)
        CHECK(dx[k] == 1.0F / 9);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels ---------------------------------------------------------------------------- */

/* Windows that shards hold whole bring nothing; others just the rows that are missing, in one call
 * a direction. */
static void only_what_is_missing_travels(sherd_world *world)
{
    static const int64_t shape[4] = {2, 3, 24, 7};
    const sherd_pool_options aligned = {.kernel = {2, 3}},
                             around = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
    const sherd_interpolate_options larger = {.kind = SHERD_INTERPOLATE_LINEAR, .factor = {2, 2}};
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    int64_t sides = (rank > 0) + (rank + 1 < ranks), row = 2 * 3 * 7 * 8;
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_tensor *x =
        sherd_require_grad(indices_on(layout_of(mesh, 4, shape, "S(2)", NULL), SHERD_F64), true);
    for (int i = 0; i < 3; i++) {
        sherd_comm_reset(world);
        sherd_tensor *y = i == 0   ? sherd_max_pool(x, &aligned, NULL)
                          : i == 1 ? sherd_avg_pool(x, &around)
                                   : sherd_interpolate(x, &larger);
        CHECK_EQ(sherd_comm_calls(world, NULL), i > 0);
        CHECK_EQ(i ? sherd_comm_get(world, 0).bytes_received : 0, i ? sides * row : 0);
        sherd_tensor *dy = sherd_constant_on(y->layout, SHERD_F64, 1);
        sherd_comm_reset(world);
        sherd_backward_with(&y, &dy, 1, NULL);
        CHECK_EQ(sherd_comm_calls(world, NULL), i > 0);
        CHECK_EQ(i ? sherd_comm_get(world, 0).bytes_received : 0,
                 i == 0 ? 0 : sides * (i == 1 ? row : 2 * row));
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(large_fields_are_as_plain), {2, 4}}, {TEST(pools_of_ten), {3}},
    {TEST(maxima_of_strange_numbers), {2}},    {TEST(nearest_elements_are_copied), {2}},
    {TEST(averages_of_all_are_one_sum), {3}},  {TEST(only_what_is_missing_travels), {2, 3, 4}},
};
CHECK_MAIN(tests)
