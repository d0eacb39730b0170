/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that read an operand as it lies in memory, of views that are turned, have holes, or
 * repeat elements: what they give of a row-major copy.
 */
#include "ops_cases.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/values.h"

enum { DIMS = 3, ORDERS = 6, VIEWS = ORDERS + 3 };

static const int orders[ORDERS][DIMS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
static const int64_t shape[DIMS] = {4, 6, 10};

static sherd_tensor *view_of(sherd_tensor *x, int i)
{
    static const int64_t wide[] = {4, 6, 10};

    if (i < ORDERS)
        return sherd_permute(x, orders[i], DIMS);
    if (i == ORDERS)
        return sherd_slice(sherd_transpose(x, 1, 2), 1, 1, 10, 3);
    if (i == ORDERS + 1)
        return sherd_expand(sherd_narrow(x, 1, 2, 1), wide, DIMS);
    return sherd_transpose(sherd_narrow(x, 1, 2, 1), 0, 2);
}

/* The largest difference, relative to the largest element. */
static double apart(sherd_tensor *x, sherd_tensor *y)
{
    sherd_tensor *a = sherd_full(sherd_cast(x, SHERD_F64)),
                 *b = sherd_full(sherd_cast(y, SHERD_F64));
    sherd_tensor *gap = sherd_max(sherd_abs(sherd_sub(a, b)), NULL, 0, false);
    sherd_tensor *most = sherd_max(sherd_abs(b), NULL, 0, false);
    const double *g = sherd_tensor_read(gap), *m = sherd_tensor_read(most);

    return g && m && *m > 0 ? *g / *m : (double)INFINITY;
}

static void try_view(sherd_tensor *view, sherd_dtype dtype)
{
    sherd_tensor *copy = sherd_clone(view);
    double most = dtype == SHERD_F64   ? 1e-14
                  : dtype == SHERD_F32 ? 1e-6
                                       : 2e-2; /* sums of integers are exact */

    for (unsigned bits = 1; bits < 1u << DIMS; bits++) {
        int dims[DIMS], n = 0;
        for (int d = 0; d < DIMS; d++)
            if (bits >> d & 1)
                dims[n++] = d;
        CHECK(apart(sherd_sum_over(view, dims, n, bits & 1),
                    sherd_sum_over(copy, dims, n, bits & 1)) <= (dtype == SHERD_I32 ? 0 : most));
    }
    CHECK(apart(sherd_sum(view), sherd_sum(copy)) <= most);
    CHECK(apart(sherd_neg(view), sherd_neg(copy)) == 0);
    CHECK(apart(sherd_add_scalar(view, 3), sherd_add_scalar(copy, 3)) == 0);
    if (dtype == SHERD_I32)
        return;
    CHECK(apart(sherd_exp(view), sherd_exp(copy)) == 0);
    CHECK(apart(sherd_clamp(view, -0.5, 0.5), sherd_clamp(copy, -0.5, 0.5)) == 0);
    CHECK(apart(sherd_scale(view, 1.5), sherd_scale(copy, 1.5)) == 0);
}

static void views_are_as_their_copies(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16, SHERD_I32};
    const sherd_placement ways[] = {sherd_replicate(), sherd_shard(0), sherd_shard(2)};
    sherd_generator generator = sherd_generator_named("strided");
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    for (int w = 0; w < LEN(ways); w++)
        for (int t = 0; t < LEN(dtypes); t++)
            for (int v = 0; v < VIEWS; v++) {
                const sherd_layout *layout = NULL;
                sherd_scope_begin(world);
                CHECK_OK(sherd_layout_create(&layout, mesh, DIMS, shape, &ways[w], NULL));
                sherd_tensor *x =
                    sherd_random_on(layout, SHERD_F64, sherd_uniform(0.5, 9), &generator);
                try_view(view_of(sherd_cast(x, dtypes[t]), v), dtypes[t]);
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* What ops_reductions.h promises, of the worst order: one large number before many small ones. */
static void sums_are_as_exact_as_promised(sherd_world *world)
{
    enum { ROWS = 448, COLUMNS = 3 };
    const int first = 0, last = 1, apart_from[] = {0, 2};
    static _Thread_local float x[ROWS * COLUMNS];
    double sum = 0;

    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j++)
            x[i * COLUMNS + j] = i % 64 ? 0x1.fcp-25F : 1;
        sum += (double)x[i * COLUMNS];
    }
    sherd_tensor *t = sherd_from_data(world, SHERD_F32, (int64_t[]){ROWS, COLUMNS}, 2, x);
    sherd_tensor *turned = sherd_transpose(t, 0, 1);
    CHECK(fabs(sherd_item(sherd_select(sherd_sum_over(t, &first, 1, false), 0, 1)) / sum - 1) <
          4e-6);
    CHECK(fabs(sherd_item(sherd_select(sherd_sum_over(turned, &last, 1, false), 0, 1)) / sum - 1) <
          4e-6);
    double c = 0x1.f07d4p+0; /* of which many sums in a row are rounded the same way */
    t = sherd_constant(world, SHERD_F32, (int64_t[]){64, 3, 64, 3}, 4, c);
    CHECK(fabs(sherd_item(sherd_sum(sherd_sum_over(t, apart_from, 2, false))) / (9 * 4096 * c) -
               1) < 8e-6);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(views_are_as_their_copies), {1, 2, 3}},
    {TEST(sums_are_as_exact_as_promised), {1}},
};
CHECK_MAIN(tests)
