/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators by index and on whole dims: what elements come out, by numbers of PyTorch; ties and
 * NaN; which way is taken where the dim is sharded, and what that moves; indices that are out of
 * range.
 */
#include "ops_cases.h"
#include "tensors.h"

#include "sherd/ops_index.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

static const sherd_mesh *line(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

static sherd_tensor *ids(sherd_world *world, int ndim, const int64_t *shape, const int32_t *data)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, ndim, data));
}

#define IDS(ndim, shape, ...) ids(t->world, ndim, shape, (const int32_t[]){__VA_ARGS__})

static sherd_tensor *reals(sherd_world *world, int rows, int cols, const double *data)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, SIZES(rows, cols), 2, data));
}

/* Of the dtype of t. */
#define REALS(rows, cols, ...) \
    sherd_cast(reals(t->world, rows, cols, (const double[]){__VA_ARGS__}), t->dtype)

/* ---- numbers --------------------------------------------------------------------------------- */

#define RUN(name, expression)                  \
    static sherd_tensor *name(sherd_tensor *t) \
    {                                          \
        return expression;                     \
    }

RUN(selected, sherd_index_select(t, 1, IDS(1, SIZES(3), 2, 0, 2)))
RUN(gathered, sherd_gather(t, 0, IDS(2, SIZES(2, 2), 1, 0, 1, 1)))
RUN(put, sherd_scatter(t, 1, IDS(2, SIZES(2, 2), 2, 0, 1, 2), REALS(2, 2, 10, 20, 30, 40)))
RUN(put_twice, sherd_scatter(t, 1, IDS(2, SIZES(2, 2), 2, 2, 1, 1), REALS(2, 2, 10, 20, 30, 40)))
RUN(filled, sherd_scatter_fill(t, 1, IDS(2, SIZES(2, 1), 2, 1), 7))
RUN(added, sherd_scatter_add(t, 0, IDS(2, SIZES(2, 3), 1, 0, 1, 1, 0, 0),
                             REALS(2, 3, 10, 10, 10, 10, 10, 10)))
RUN(summed_rows, sherd_cumsum(t, 0))
RUN(summed_columns, sherd_cumsum(t, -1))
RUN(lower, sherd_tril(t, 0))
RUN(lower_more, sherd_tril(t, 1))
RUN(upper, sherd_triu(t, -1))
RUN(upper_none, sherd_triu(t, INT64_MAX))

/* Of [[0,1,2],[3,4,5]]. */
static const struct {
    sherd_tensor *(*run)(sherd_tensor *t);
    int64_t count;
    double want[6];
} numbers[] = {
    {selected, 6, {2, 0, 2, 5, 3, 5}},    {gathered, 4, {3, 1, 3, 4}},
    {put, 6, {20, 1, 10, 3, 30, 40}},     {put_twice, 6, {0, 1, 20, 3, 40, 5}},
    {filled, 6, {0, 1, 7, 3, 7, 5}},      {added, 6, {0, 21, 12, 23, 4, 15}},
    {summed_rows, 6, {0, 1, 2, 3, 5, 7}}, {summed_columns, 6, {0, 1, 3, 3, 7, 12}},
    {lower, 6, {0, 0, 0, 3, 4, 0}},       {lower_more, 6, {0, 1, 0, 3, 4, 5}},
    {upper, 6, {0, 1, 2, 3, 4, 5}},       {upper_none, 6, {0}},
};

static void elements_are_those_of_pytorch(sherd_world *world)
{
    static const double data[] = {0, 1, 2, 3, 4, 5};

    for (int i = 0; i < LEN(numbers); i++)
        for (int d = SHERD_F32; d < SHERD_BOOL; d++) {
            sherd_scope_begin(world);
            sherd_tensor *t = sherd_cast(reals(world, 2, 3, data), (sherd_dtype)d);
            sherd_tensor *y = numbers[i].run(t);
            CHECK_EQ(sherd_tensor_dtype(y), d);
            if (!CHECK(distance(sherd_cast(y, SHERD_F64), numbers[i].want, numbers[i].count) == 0))
                fprintf(stderr, "  case %d in %s\n", i, sherd_dtype_name((sherd_dtype)d));
            sherd_scope_end(world);
        }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* Equal ones keep their order, NaN is the largest; k = 0: all of them, sorted. */
static const struct {
    int64_t k;
    int dim;
    bool descending;
    int32_t at[8];
} orders[] = {
    {0, 1, false, {1, 0, 2, 3, 1, 3, 0, 2}}, {0, 1, true, {3, 0, 2, 1, 2, 0, 1, 3}},
    {0, 0, false, {1, 1, 0, 1, 0, 0, 1, 0}}, {2, 1, true, {3, 0, 2, 0}},
    {3, 1, false, {1, 0, 2, 1, 3, 0}},
};

static void ties_keep_their_order_and_nan_is_largest(sherd_world *world)
{
    static const double data[] = {3, 1, 3, (double)NAN, 0, -2, 5, -2};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};

    for (int i = 0; i < LEN(orders); i++)
        for (int d = 0; d < LEN(dtypes); d++) {
            sherd_tensor *t = sherd_cast(reals(world, 2, 4, data), dtypes[d]), *at = NULL;
            sherd_tensor *y =
                orders[i].k ? sherd_topk(t, orders[i].k, orders[i].dim, orders[i].descending, &at)
                            : sherd_sort(t, orders[i].dim, orders[i].descending, &at);
            sherd_tensor *again = sherd_gather(t, orders[i].dim, at);
            const int32_t *found = sherd_tensor_read(at);
            CHECK_EQ(sherd_tensor_count(y), orders[i].k ? 2 * orders[i].k : 8);
            for (int64_t k = 0; found && k < sherd_tensor_count(y); k++)
                CHECK_EQ(found[k], orders[i].at[k]);
            CHECK(memcmp(sherd_tensor_read(y), sherd_tensor_read(again),
                         (size_t)y->count * sherd_dtype_bytes(dtypes[d])) == 0);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Long enough for every way of finding them, and for runs that do not come out even. */
static void the_first_of_many_are_those_of_the_sorted(sherd_world *world)
{
    enum { N = 1003 };
    static const int64_t few[] = {1, 5, 64, 65, 300, N};
    sherd_generator g = sherd_generator_named("order");
    sherd_tensor *t = sherd_random(world, SHERD_BF16, SIZES(2, N, 3), 3, sherd_normal(0, 1), &g);

    for (int way = 0; way < 2; way++) {
        sherd_tensor *order, *sorted = sherd_sort(t, 1, way, &order);
        for (int i = 0; i < LEN(few); i++) {
            sherd_tensor *at, *y = sherd_topk(t, few[i], 1, way, &at);
            sherd_tensor *first = sherd_contiguous(sherd_narrow(sorted, 1, 0, few[i]));
            sherd_tensor *where = sherd_contiguous(sherd_narrow(order, 1, 0, few[i]));
            size_t n = (size_t)sherd_tensor_count(y);
            CHECK(memcmp(sherd_tensor_read(y), sherd_tensor_read(first), n * 2) == 0);
            CHECK(memcmp(sherd_tensor_read(at), sherd_tensor_read(where), n * 4) == 0);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

static void of_several_at_one_place_the_last_has_the_gradient(sherd_world *world)
{
    static const double data[] = {10, 20, 30, 40}, want[] = {0, 1, 0, 1},
                        left[] = {1, 1, 0, 1, 0, 1};
    sherd_tensor *t = sherd_require_grad(reals(world, 2, 3, (const double[6]){0}), true);
    sherd_tensor *s = sherd_require_grad(reals(world, 2, 2, data), true);
    const int32_t at[] = {2, 2, 1, 1};

    sherd_backward(sherd_sum(sherd_scatter(t, 1, ids(world, 2, SIZES(2, 2), at), s)));
    CHECK(distance(sherd_grad(s), want, 4) == 0);
    CHECK(distance(sherd_grad(t), left, 6) == 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- how it lies ----------------------------------------------------------------------------- */

RUN(few_rows, sherd_index_select(t, 0, IDS(1, SIZES(2), 0, 7)))
RUN(many_rows, sherd_index_select(t, 0, IDS(1, SIZES(6), 0, 7, 1, 1, 1, 1)))
RUN(columns, sherd_index_select(t, 1, IDS(1, SIZES(2), 1, 0)))
RUN(sorted_rows, sherd_sort(t, 0, false, NULL))
RUN(sorted_columns, sherd_sort(t, 1, false, NULL))
RUN(triangle, sherd_tril(t, 2))
RUN(running, sherd_cumsum(t, 1))

static const struct {
    sherd_tensor *(*run)(sherd_tensor *t);
    const char *placements, *cuts, *text;
    int64_t bytes[3];
} lyings[] = {
    {few_rows, "S(0)", NULL, "[2,3] P(sum:x) on (x=3)", {0}},
    {many_rows, "S(0)", NULL, "[6,3] on (x=3)", {144, 144, 144}},
    {columns, "S(0)", "0:0,8,1", "[9(x:0,8,1),2] on (x=3)", {0}},
    {columns, "P(sum)", NULL, "[9,2] P(sum:x) on (x=3)", {0}},
    /* what shards rows goes to the columns: two thirds of a rank's own part, not all rows */
    {sorted_rows, "S(0)", NULL, "[9,3(x)] on (x=3)", {48, 48, 48}},
    {sorted_columns, "S(0)", "0:0,8,1", "[9(x:0,8,1),3] on (x=3)", {0}},
    {triangle, "S(0)", "0:0,8,1", "[9(x:0,8,1),3] on (x=3)", {0}},
    {triangle, "S(1)", NULL, "[9,3(x)] on (x=3)", {0}},
    {triangle, "P(max)", NULL, "[9,3] P(max:x) on (x=3)", {0}},
    {running, "P(sum)", NULL, "[9,3] P(sum:x) on (x=3)", {0}},
};

static void the_cheaper_way_is_taken(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int i = 0; i < LEN(lyings); i++) {
        const sherd_layout *from = NULL;
        int64_t received = 0;
        sherd_scope_begin(world);
        CHECK_OK(sherd_layout_parse_placements(&from, mesh, 2, SIZES(9, 3), lyings[i].placements,
                                               lyings[i].cuts));
        sherd_tensor *t = sherd__new_on(from, SHERD_F64);
        sherd__fill(t, 0);
        sherd_comm_reset(world);
        sherd_tensor *y = lyings[i].run(t);
        for (int k = 0; k < sherd_comm_count(world); k++)
            received += sherd_comm_get(world, k).bytes_received;
        bool good = CHECK_EQ(received, lyings[i].bytes[sherd_world_rank(world)]);
        if (CHECK(!sherd_tensor_failed(y)))
            good &= CHECK_TEXT(sherd_layout_text(y->layout), lyings[i].text);
        if (!good)
            fprintf(stderr, "  case %d\n", i);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* ---- indices out of range -------------------------------------------------------------------- */

/* One rank sees it, in its part of the indices; all are told. */
static void an_index_out_of_range_is_one_clear_error(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *rows = NULL, *spread = NULL;
    const int32_t wrong[] = {0, 8, 9}, below[] = {-1, 0, 0};

    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, 2, SIZES(9, 3), "S(0)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&spread, mesh, 1, SIZES(3), "S(0)", NULL));
    sherd_tensor *t = sherd_constant_on(rows, SHERD_F32, 1);
    sherd_tensor *index = sherd_distribute(ids(world, 1, SIZES(3), wrong), spread, -1);
    CHECK_OK(sherd_world_check(world));
    sherd_index_select(t, 0, index);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "sherd_index_select: index[2] = 9 is outside of [0,9): a is f32[9") != NULL);
    sherd_index_select(sherd_constant_on(rows, SHERD_F32, 1), 1, ids(world, 1, SIZES(3), below));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "index[0] = -1 is outside of [0,3)") != NULL);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Slices by index take memory for the result alone, not for an index of each element. */
static void an_index_of_slices_is_not_spread(sherd_world *world)
{
    enum { ROWS = 50, MANY = 1000, WIDTH = 64, ROOM = ROWS * WIDTH * 4 + 8192 };
    int32_t at[MANY];

    for (int j = 0; j < MANY; j++)
        at[j] = j * 7 % ROWS;
    sherd_tensor *index = ids(world, 1, SIZES(MANY), at);
    sherd_tensor *a = sherd_constant(world, SHERD_F32, SIZES(ROWS, WIDTH), 2, 1);
    sherd_tensor *source = sherd_constant(world, SHERD_F32, SIZES(MANY, WIDTH), 2, 1);
    for (int kind = 0; kind < 3; kind++) {
        sherd_scope_begin(world);
        sherd_world_memory_reset(world);
        int64_t live = sherd_world_memory(world).live_bytes;
        sherd_tensor *y = kind == 0   ? sherd_index_add(a, 0, index, source)
                          : kind == 1 ? sherd_index_copy(a, 0, index, source)
                                      : sherd_index_fill(a, 0, index, 2);
        CHECK(!sherd_tensor_failed(y));
        CHECK(sherd_world_memory(world).peak_bytes - live <= ROOM);
        sherd_scope_end(world);
    }
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL;
    const int32_t at[] = {4, 0, 3, 3};

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "x=3") == SHERD_OK &&
        sherd_layout_parse_placements(&from, mesh, 2, SIZES(6, 5), "S(0)", "0:1,2,3") == SHERD_OK) {
        sherd_tensor *t = sherd_require_grad(sherd_constant_on(from, SHERD_BF16, 1), true);
        sherd_tensor *index = ids(world, 1, SIZES(4), at);
        sherd_tensor *y = sherd_cumsum(sherd_index_select(t, 1, index), 0);
        y = sherd_topk(sherd_tril(y, 1), 3, 0, true, NULL);
        sherd_backward(sherd_sum(sherd_mul(y, y)));
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 1, scene);
}

static const check_test tests[] = {
    {TEST(elements_are_those_of_pytorch), {1}},
    {TEST(ties_keep_their_order_and_nan_is_largest), {1}},
    {TEST(the_first_of_many_are_those_of_the_sorted), {1}},
    {TEST(of_several_at_one_place_the_last_has_the_gradient), {1}},
    {TEST(the_cheaper_way_is_taken), {3}},
    {TEST(an_index_out_of_range_is_one_clear_error), {3}},
    {TEST(an_index_of_slices_is_not_spread), {1}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3}},
};
CHECK_MAIN(tests)
