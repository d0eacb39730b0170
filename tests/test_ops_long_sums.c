/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a million equal numbers that operators make in ways of their own: averages over large
 * windows, gradients of what is interpolated, of a norm's weights, products of 16 bits, products
 * over dims, rows that are added where indices say. One running sum in f32 is wrong in the third digit.
 * And gradients of products, which f32 holds though not all that they may be made of.
 */
#include <math.h>

#include <sherd.h>

#include "tensors.h"

enum { N = 1 << 20 };

static const double number = (double)1.1f;

static sherd_tensor *filled(sherd_world *world, int ndim, const int64_t *shape, double value)
{
    return sherd_constant(world, SHERD_F32, shape, ndim, value);
}

static sherd_tensor *leaf(sherd_world *world, int ndim, const int64_t *shape, double value)
{
    return sherd_require_grad(filled(world, ndim, shape, value), true);
}

/* All elements of t, which are alike. */
static void check_all(sherd_tensor *t, double wanted, double tolerance)
{
    sherd_tensor *wide = sherd_scale(sherd_cast(t, SHERD_F64), 1 / wanted);

    CHECK_NEAR(sherd_item(sherd_max(wide, NULL, 0, false)), 1, tolerance);
    CHECK_NEAR(sherd_item(sherd_min(wide, NULL, 0, false)), 1, tolerance);
}

/* The gradient of y, all of whose elements have this one. */
static void go_back(sherd_tensor *y, double each)
{
    sherd_tensor *dy =
        sherd_cast(filled(sherd_tensor_world(y), sherd_tensor_ndim(y), sherd_tensor_shape(y), each),
                   sherd_tensor_dtype(y));

    sherd_backward_with(&y, &dy, 1, NULL);
}

static void averages_over_large_windows(sherd_world *world)
{
    const int64_t one = 1, line[] = {1, 1, N}, plane[] = {1, 1, N / 4, 4};
    const sherd_pool_options quarter = {.kernel = {N / 4}, .stride = {N / 4}};
    const sherd_pool_options rows = {.kernel = {N / 8, 1}, .stride = {N / 8, 1}};

    check_all(sherd_adaptive_avg_pool(filled(world, 3, line, number), &one), number, 1e-6);
    check_all(sherd_avg_pool(filled(world, 3, line, number), &quarter), number, 1e-6);
    check_all(sherd_avg_pool(filled(world, 4, plane, number), &rows), number, 1e-6);
    CHECK_OK(sherd_world_check(world));
}

static void gradients_of_what_is_interpolated(sherd_world *world)
{
    static const sherd_interpolation kinds[] = {SHERD_INTERPOLATE_NEAREST, SHERD_INTERPOLATE_LINEAR,
                                                SHERD_INTERPOLATE_AREA};
    const int64_t small[] = {1, 1, 1};

    for (int i = 0; i < LEN(kinds); i++) {
        sherd_interpolate_options to = {.kind = kinds[i], .size = {N}};
        sherd_tensor *x = leaf(world, 3, small, 1);
        go_back(sherd_interpolate(x, &to), number);
        check_all(sherd_grad(x), number * N, 1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

/* As above, and from both sides of a boundary: all that is given comes back. */
static void gradients_of_few_that_give_to_many(sherd_world *world)
{
    const int64_t small[] = {1, 2, 5, 3};
    sherd_interpolate_options to = {.kind = SHERD_INTERPOLATE_LINEAR, .size = {1000, 700}};
    sherd_tensor *x = leaf(world, 4, small, 1);

    go_back(sherd_interpolate(x, &to), number);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_cast(sherd_grad(x), SHERD_F64))) / (2e3 * 700 * number),
               1, 1e-6);
    CHECK_OK(sherd_world_check(world));
}

static void gradients_of_the_weights_of_norms(sherd_world *world)
{
    const int64_t shape[] = {N / 8, 8}, of_16[] = {N / 8 + 5, 3}, width = 8, narrow = 3;

    sherd_tensor *x = filled(world, 2, shape, number), *bias = leaf(world, 1, &width, 0);
    sherd_tensor *weight = leaf(world, 1, &width, 1);
    go_back(sherd_layer_norm(x, weight, bias, 1e-5), number);
    check_all(sherd_grad(bias), number * N / 8, 1e-6);

    weight = leaf(world, 1, &width, 1);
    go_back(sherd_rms_norm(x, weight, 1e-12), number);
    check_all(sherd_grad(weight), number * N / 8, 1e-6);

    bias = leaf(world, 1, &width, 0);
    sherd_tensor *norm;
    sherd_add_layer_norm(&norm, NULL, x, x, &(sherd_add_norm_options){.bias = bias, .eps = 1e-5});
    go_back(norm, number);
    check_all(sherd_grad(bias), number * N / 8, 1e-6);

    /* the sum has an end beyond 64 rows; it is rounded to 16 bits */
    sherd_tensor *low = sherd_cast(filled(world, 2, of_16, 1), SHERD_F16);
    bias = sherd_require_grad(sherd_cast(filled(world, 1, &narrow, 0), SHERD_F16), true);
    go_back(sherd_layer_norm(low, NULL, bias, 1e-5), 0.1);
    check_all(sherd_grad(bias), 0.0999755859375 * (N / 8 + 5), 4e-4);
    CHECK_OK(sherd_world_check(world));
}

static void products_over_dims(sherd_world *world)
{
    const int64_t n = N, columns[] = {N / 4, 4};
    double each = (double)(1 + 1e-6f);

    check_all(sherd_prod(filled(world, 1, &n, each), NULL, 0, false), pow(each, N), 1e-6);
    check_all(sherd_prod(filled(world, 2, columns, each), (int[]){0}, 1, false), pow(each, N / 4),
              1e-6);
    CHECK_OK(sherd_world_check(world));
}

/* Where terms lie along rows of one operand or both, with few results and some more. */
static void products_along_rows(sherd_world *world)
{
    enum { TERMS = N / 8 };
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16, SHERD_F32};
    static const struct {
        const char *rule;
        int64_t a[2], b[2];
    } cases[] = {{"ij,i->j", {TERMS, 2}, {TERMS}},       {"ji,i->j", {2, TERMS}, {TERMS}},
                 {"ji,ki->jk", {3, TERMS}, {5, TERMS}},  {"ji,ik->jk", {9, TERMS}, {TERMS, 9}},
                 {"ji,ki->jk", {9, TERMS}, {11, TERMS}}, {"ij,ki->jk", {TERMS, 9}, {8, TERMS}},
                 {"ij,i->j", {1 << 15, 2}, {1 << 15}}};

    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(cases); i++) {
            double tolerance = dtypes[d] == SHERD_BF16  ? 4e-3
                               : dtypes[d] == SHERD_F16 ? 5e-4
                                                        : 1e-5;
            double x = 0.0623779296875; /* of 16 bits */
            double held = dtypes[d] == SHERD_BF16 ? 0.0625 : x;
            int64_t terms = cases[i].a[0] > cases[i].a[1] ? cases[i].a[0] : cases[i].a[1];
            sherd_tensor *in[] = {
                sherd_cast(filled(world, 2, cases[i].a, held), dtypes[d]),
                sherd_cast(filled(world, cases[i].b[1] ? 2 : 1, cases[i].b, held), dtypes[d])};
            check_all(sherd_einsum(cases[i].rule, in, 2), held * held * (double)terms, tolerance);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Of 16 bits; of f32 also where there are too many sums for those of a few. */
static void products_of_matrices(sherd_world *world)
{
    const int64_t two[] = {N, 2}, nine[] = {N, 9}, one = N;
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16, SHERD_F32};

    for (int d = 0; d < LEN(dtypes); d++) {
        double x = dtypes[d] == SHERD_F16 ? 0.06 : number;
        double held = sherd_item(sherd_cast(
            sherd_cast(sherd_constant(world, SHERD_F64, NULL, 0, x), dtypes[d]), SHERD_F64));
        double tolerance = dtypes[d] == SHERD_BF16 ? 4e-3 : dtypes[d] == SHERD_F16 ? 6e-4 : 3e-5;
        sherd_tensor *a = sherd_cast(filled(world, 2, two, x), dtypes[d]);
        sherd_tensor *b = sherd_cast(filled(world, 1, &one, x), dtypes[d]);
        sherd_tensor *wide = sherd_cast(filled(world, 2, nine, x), dtypes[d]);
        check_all(sherd_einsum("ij,i->j", (sherd_tensor *[]){a, b}, 2), held * held * N, tolerance);
        check_all(sherd_einsum("ij,ik->jk", (sherd_tensor *[]){wide, wide}, 2), held * held * N,
                  tolerance);
    }
    CHECK_OK(sherd_world_check(world));
}

/* n indices, all of row 1; width 0: without a second dim. */
static sherd_tensor *index_of(sherd_world *world, int64_t n, int64_t width)
{
    const int64_t shape[] = {n, width};

    return sherd_constant(world, SHERD_I32, shape, width ? 2 : 1, 1);
}

/* Row 1 of t. */
static void check_row(sherd_tensor *t, double wanted, double tolerance)
{
    check_all(sherd_narrow(t, 0, 1, 1), wanted, tolerance);
}

static void rows_that_come_to_one_place(sherd_world *world)
{
    enum { ADDENDS = 1000000 };
    const int64_t table[] = {3, 4}, narrow[] = {3, 1}, column[] = {ADDENDS, 1};
    sherd_tensor *ids = index_of(world, ADDENDS, 0), *each = index_of(world, ADDENDS, 1);
    double tenth = (double)0.1f;

    sherd_tensor *weight = leaf(world, 2, table, 1);
    go_back(sherd_embedding(weight, ids), tenth);
    check_row(sherd_grad(weight), tenth * ADDENDS, 1e-6);

    weight = sherd_require_grad(sherd_cast(filled(world, 2, table, 1), SHERD_BF16), true);
    go_back(sherd_embedding(weight, ids), tenth);
    check_row(sherd_grad(weight), 0.10009765625 * ADDENDS, 4e-3);

    sherd_tensor *a = leaf(world, 2, table, 1);
    go_back(sherd_index_select(a, 0, ids), tenth);
    check_row(sherd_grad(a), tenth * ADDENDS, 1e-6);

    a = leaf(world, 2, narrow, 1);
    go_back(sherd_gather(a, 0, each), tenth);
    check_row(sherd_grad(a), tenth * ADDENDS, 1e-6);

    sherd_tensor *source = filled(world, 2, column, tenth), *from = filled(world, 2, narrow, 50000);
    check_row(sherd_scatter_add(from, 0, each, source), 50000 + tenth * ADDENDS, 1e-6);
    check_row(sherd_scatter_reduce(from, 0, each, source, SHERD_AVG, false), tenth, 1e-6);
    CHECK_OK(sherd_world_check(world));
}

enum { PLACES = 7, GIVEN = 900 };

/* Some places have nearly all, others a few or none; along the middle dim. */
static sherd_tensor *drawn_index(sherd_world *world, bool flat)
{
    int32_t to[2 * GIVEN * 3];
    const int64_t shape[] = {flat ? GIVEN : 2, GIVEN, 3};

    for (int i = 0; i < LEN(to); i++)
        to[i] = i % 5 ? 4 : i % 41 ? i % 3 : i / 41 % 2 ? 5 : 4;
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, flat ? 1 : 3, to));
}

/* f32 as f64 has it, where the dim of the index is whole, shared by ranks, or both are. */
static void places_with_few_and_many(sherd_world *world)
{
    static const char *const lies[] = {"R", "S(0)", "S(1)", "S(2)"};
    const int64_t shape[] = {2, PLACES, 3}, addends[] = {2, GIVEN, 3};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int l = 0; l < LEN(lies); l++)
        for (int flat = 0; flat < 2; flat++) {
            const sherd_layout *of_a = layout_of(mesh, 3, shape, lies[l], NULL);
            const sherd_layout *of_x = layout_of(mesh, 3, addends, lies[l], NULL);
            sherd_tensor *index = drawn_index(world, flat), *sum[2];
            sherd_tensor *x = sherd_sin(indices_on(of_x, SHERD_F32));
            x = sherd_add_scalar(x, 2);
            for (int wide = 0; wide < 2; wide++) {
                sherd_dtype dtype = wide ? SHERD_F64 : SHERD_F32;
                sherd_tensor *a = sherd_require_grad(sherd_constant_on(of_a, dtype, 3), true);
                sherd_tensor *y =
                    flat ? sherd_index_select(a, 1, index) : sherd_gather(a, 1, index);
                sherd_tensor *dy = sherd_cast(x, dtype);
                sherd_backward_with(&y, &dy, 1, NULL);
                sum[wide] = sherd_cast(sherd_grad(a), SHERD_F64);
            }
            sherd_tensor *apart = sherd_abs(sherd_sub(sum[0], sum[1]));
            sherd_tensor *most = sherd_add_scalar(sherd_scale(sum[1], 1e-6), 1e-9);
            CHECK(sherd_item(sherd_max(sherd_div(apart, most), NULL, 0, false)) < 1);
        }
    CHECK_OK(sherd_world_check(world));
}

/* f32 holds these gradients, but not the product times that of the result. */
static void gradients_of_large_and_small_products(sherd_world *world)
{
    static const double x[] = {1e15, 1e-15}, dy[] = {1e10, 1e-15};
    const int64_t two = 2;

    for (int i = 0; i < LEN(x); i++) {
        sherd_tensor *a = leaf(world, 1, &two, x[i]);
        go_back(sherd_prod(a, NULL, 0, false), dy[i]);
        check_all(sherd_grad(a), x[i] * dy[i], 1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(averages_over_large_windows), {1, 2}},
    {TEST(gradients_of_what_is_interpolated), {1}},
    {TEST(gradients_of_few_that_give_to_many), {1, 3}},
    {TEST(gradients_of_the_weights_of_norms), {1}},
    {TEST(products_over_dims), {1}},
    {TEST(gradients_of_large_and_small_products), {1}},
    {TEST(products_along_rows), {1}},
    {TEST(products_of_matrices), {1}},
    {TEST(rows_that_come_to_one_place), {1}},
    {TEST(places_with_few_and_many), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
