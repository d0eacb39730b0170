/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matrix times one vector, in all ways to write it, stored as it is or turned: an element is
 * the true sum but for rounding, and in f64 the same bits whatever rows of the matrix its rank has;
 * also with leading dims, a bias, gradients.
 */
#include <math.h>

#include "fields.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

typedef enum way { MATMUL, COLUMN, LINEAR, BIASED, TURNED, FROM_LEFT, WAYS } way;

/* Numbers that have all digits of f64: sums of products of others are exact in any order. */
static sherd_tensor *digits(sherd_world *world, uint64_t *dice, int ndim, const int64_t *shape)
{
    return sherd_sin(sherd_scale(numbers(world, dice, ndim, shape), 3));
}

/* The matrix [m,k], which TURNED and FROM_LEFT store as [k,m], times v. */
static sherd_tensor *multiply(way how, sherd_tensor *matrix, sherd_tensor *v, sherd_tensor *bias)
{
    const int64_t k = sherd_tensor_shape(v)[0], column[] = {k, 1}, row[] = {1, k};

    switch (how) {
    case MATMUL:
        return sherd_matmul(matrix, v);
    case COLUMN:
        return sherd_squeeze(sherd_matmul(matrix, sherd_view(v, column, 2)), 1);
    case LINEAR:
        return sherd_squeeze(sherd_linear(sherd_view(v, row, 2), matrix, NULL), 0);
    case BIASED:
        return sherd_squeeze(sherd_linear(sherd_view(v, row, 2), matrix, bias), 0);
    case TURNED:
        return sherd_matmul(sherd_transpose(matrix, 0, 1), v);
    default:
        return sherd_matmul(v, matrix);
    }
}

/* Shards of the rows of the product, some of them empty. */
static const sherd_layout *draw_rows(uint64_t *dice, const sherd_mesh *mesh, int dim, int ndim,
                                     const int64_t *shape)
{
    int64_t sizes[SHERD_MAX_RANKS], left = shape[dim], ranks = sherd_mesh_ranks(mesh);
    const int64_t *all[2] = {NULL, NULL};
    const sherd_placement how = sherd_shard(dim);
    const sherd_layout *layout = NULL;

    for (int64_t r = 0; r < ranks; r++) {
        sizes[r] = r + 1 == ranks ? left : roll(dice, (int)left + 1);
        left -= sizes[r];
    }
    all[dim] = sizes;
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, &how,
                                 &(sherd_layout_options){.sizes = all}));
    return layout;
}

static double true_element(way how, const double *matrix, const double *v, int64_t m, int64_t k,
                           int64_t i, double *size)
{
    double sum = *size = 0;

    for (int64_t t = 0; t < k; t++) {
        double term = matrix[how >= TURNED ? t * m + i : i * k + t] * v[t];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void try_way(sherd_world *world, uint64_t *dice, way how, sherd_dtype dtype)
{
    const int64_t m = between(dice, 1, 40), k = between(dice, 1, roll(dice, 4) ? 60 : 300);
    const int64_t shape[] = {how >= TURNED ? k : m, how >= TURNED ? m : k};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *matrix = sherd_cast(digits(world, dice, 2, shape), dtype);
    sherd_tensor *v = sherd_cast(digits(world, dice, 1, &k), dtype);
    sherd_tensor *bias = sherd_cast(digits(world, dice, 1, &m), dtype);
    const sherd_layout *rows = draw_rows(dice, mesh, how >= TURNED, 2, shape);
    sherd_tensor *shards = sherd_distribute(matrix, rows, -1);
    sherd_tensor *y = multiply(how, matrix, v, bias);
    sherd_tensor *whole = sherd_full(multiply(how, shards, v, bias));
    const double *got = sherd_tensor_read(sherd_cast(y, SHERD_F64));
    const double *apart_ = sherd_tensor_read(sherd_cast(whole, SHERD_F64));
    const double *a = sherd_tensor_read(sherd_cast(matrix, SHERD_F64));
    const double *b = sherd_tensor_read(sherd_cast(v, SHERD_F64));
    const double *c = sherd_tensor_read(sherd_cast(bias, SHERD_F64));
    bool same = dtype == SHERD_F64 && k > 16 && how < TURNED; /* fewer terms are added otherwise */
    double size, limit = dtype == SHERD_F64 ? 1e-15 : 1e-6;

    for (int64_t i = 0; i < m && got && apart_ && a && b && c; i++) {
        double sum = true_element(how, a, b, m, k, i, &size) + (how == BIASED ? c[i] : 0);
        CHECK(fabs(got[i] - sum) <= limit * (size + 1));
        CHECK(same ? got[i] == apart_[i] : fabs(got[i] - apart_[i]) <= limit * (size + 1));
    }
    CHECK(got && apart_ && a && b && c);
}

static void an_element_is_the_sum_of_its_row(sherd_world *world)
{
    for (uint64_t seed = 0; seed < 180; seed++) {
        uint64_t dice = seed;
        sherd_scope_begin(world);
        try_way(world, &dice, (way)(seed % WAYS), seed / WAYS % 4 ? SHERD_F64 : SHERD_F32);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Matrices, each by a vector of its own; the gradient of a matrix stored turned. */
static void batches_and_gradients_agree(sherd_world *world)
{
    const int64_t shape[] = {3, 18, 25}, each[] = {3, 25, 1}, turned[] = {25, 18}, row[] = {25};
    uint64_t dice = 5;
    sherd_tensor *a = digits(world, &dice, 3, shape), *b = digits(world, &dice, 3, each);
    sherd_tensor *y = sherd_matmul(a, b);

    for (int64_t i = 0; i < 3; i++) {
        sherd_tensor *one = sherd_matmul(sherd_select(a, 0, i), sherd_select(b, 0, i));
        CHECK(largest_difference(sherd_select(y, 0, i), one) == 0);
    }
    sherd_tensor *w = sherd_require_grad(digits(world, &dice, 2, turned), true);
    sherd_tensor *v = sherd_require_grad(digits(world, &dice, 1, row), true);
    sherd_backward(sherd_sum(sherd_square(sherd_matmul(v, w))));
    sherd_tensor *dy = sherd_scale(sherd_detach(sherd_matmul(v, w)), 2);
    sherd_tensor *dv = sherd_sum_over(sherd_mul(w, dy), (int[]){1}, 1, false);
    CHECK(largest_difference(sherd_grad(v), sherd_detach(dv)) < 1e-11);
    sherd_tensor *dw = sherd_einsum("k,n->kn", (sherd_tensor *[]){v, dy}, 2);
    CHECK(largest_difference(sherd_grad(w), sherd_detach(dw)) < 1e-11);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(an_element_is_the_sum_of_its_row), {1, 2, 3, 4, 8}},
    {TEST(batches_and_gradients_agree), {1}},
};

CHECK_MAIN(tests)
