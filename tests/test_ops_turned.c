/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions and reductions of operands that lie turned, or with holes, in memory: these are reduced
 * along memory, and all are the same bits as of a copy that lies in order. Products may be rounded
 * otherwise.
 */
#include "fields.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

typedef struct turn {
    int ndim, order[4];
    int64_t shape[4];
} turn;

/* Of all orders; long rows; one element, and none. */
static const turn turns[] = {
    {2, {1, 0}, {300, 170}},           {3, {2, 0, 1}, {37, 90, 41}}, {3, {1, 0, 2}, {70, 50, 16}},
    {3, {2, 1, 0}, {5, 3, 7000}},      {2, {1, 0}, {2, 40000}},      {1, {0}, {50000}},
    {4, {0, 2, 1, 3}, {3, 40, 30, 4}}, {2, {1, 0}, {1, 1}},          {3, {1, 2, 0}, {4, 0, 3}},
};

/* A view: with holes, every second element of the last dim. */
static sherd_tensor *turned(sherd_world *world, uint64_t *dice, const turn *t, sherd_dtype dtype,
                            bool holes)
{
    int64_t shape[4];

    memcpy(shape, t->shape, sizeof shape);
    shape[t->ndim - 1] *= holes ? 2 : 1;
    sherd_tensor *x = sherd_cast(sherd_scale(numbers(world, dice, t->ndim, shape), 3), dtype);
    if (holes)
        x = sherd_slice(x, t->ndim - 1, 0, INT64_MAX, 2);
    return sherd_permute(x, t->order, t->ndim);
}

static void functions_of_turned_operands_are_those_of_copies(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16};

    for (uint64_t i = 0; i < LEN(turns) * 2 * LEN(dtypes); i++) {
        uint64_t dice = i;
        sherd_scope_begin(world);
        const turn *t = &turns[i / 2 % LEN(turns)];
        sherd_tensor *x = turned(world, &dice, t, dtypes[i / 2 / LEN(turns)], i % 2);
        sherd_tensor *copy = sherd_contiguous(x);
        CHECK(apart(sherd_exp(x), sherd_exp(copy)) == 0);
        CHECK(apart(sherd_scale(x, 1.5), sherd_scale(copy, 1.5)) == 0);
        CHECK(apart(sherd_add_scalar(x, 2), sherd_add_scalar(copy, 2)) == 0);
        CHECK(apart(sherd_add_scaled(x, copy, 2), sherd_add_scaled(copy, x, 2)) == 0);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

static void reductions_of_turned_operands_are_those_of_copies(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_I32, SHERD_BOOL};

    for (uint64_t i = 0; i < LEN(turns) * 2 * LEN(dtypes); i++) {
        uint64_t dice = i;
        sherd_scope_begin(world);
        const turn *t = &turns[i / 2 % LEN(turns)];
        sherd_tensor *x = turned(world, &dice, t, dtypes[i / 2 / LEN(turns)], i % 2);
        sherd_tensor *copy = sherd_contiguous(x);
        for (int dim = 0; dim < t->ndim && sherd_tensor_count(x); dim++) {
            int dims[] = {dim, (dim + 1) % t->ndim}, count = 1 + (i % 3 == 0 && t->ndim > 2);
            sherd_tensor *all[][2] = {
                {sherd_max(x, dims, count, false), sherd_max(copy, dims, count, false)},
                {sherd_min(x, dims, count, true), sherd_min(copy, dims, count, true)},
                {sherd_any(x, dims, count, false), sherd_any(copy, dims, count, false)},
                {sherd_all(x, dims, count, false), sherd_all(copy, dims, count, false)}};
            for (int j = 0; j < LEN(all); j++)
                CHECK(apart(all[j][0], all[j][1]) == 0);
            if (sherd_tensor_dtype(x) == SHERD_I32 || sherd_tensor_dtype(x) == SHERD_BOOL)
                CHECK(apart(sherd_sum_over(x, dims, count, false),
                            sherd_sum_over(copy, dims, count, false)) == 0);
        }
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Of few numbers near 1, in f64. */
static void products_of_turned_operands_are_those_of_copies(sherd_world *world)
{
    const int64_t shape[] = {6, 5, 7};

    for (int dim = 0; dim < 3; dim++) {
        uint64_t dice = 3;
        sherd_tensor *x = sherd_permute(numbers(world, &dice, 3, shape), (int[]){2, 0, 1}, 3);
        x = sherd_exp(x);
        sherd_tensor *view = sherd_permute(sherd_contiguous(sherd_permute(x, (int[]){1, 2, 0}, 3)),
                                           (int[]){2, 0, 1}, 3);
        CHECK(apart(sherd_prod(view, &dim, 1, false), sherd_prod(x, &dim, 1, false)) < 1e-12);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(functions_of_turned_operands_are_those_of_copies), {1}},
    {TEST(reductions_of_turned_operands_are_those_of_copies), {1}},
    {TEST(products_of_turned_operands_are_those_of_copies), {1, 2}},
};

CHECK_MAIN(tests)
