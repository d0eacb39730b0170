/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of keys and values: rows are written where an index says, under all layouts as into a
 * plain tensor; attention to it is attention with a mask of what each query sees, and what lies
 * behind is never read.
 */
#include <math.h>

#include "sherd/autograd.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_stencil.h"
#include "differ.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { BATCH = 4, ROOM = 6, HEADS = 4, WIDTH = 3, COUNT = 3, SHARED = 2 };

static const int32_t where[BATCH * COUNT] = {0, 1, 2, 5, 3, -1, 4, 5, 2, -3, -1, 0};

static sherd_tensor *plain(sherd_world *world, int ndim, const int64_t *shape, double from)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F64, shape, ndim, 0);
    double *to = sherd_tensor_write(t);

    for (int64_t i = 0; i < sherd_tensor_count(t); i++)
        to[i] = sin(from + 1.3 * (double)i);
    return sherd_mark_equal(t);
}

static sherd_tensor *positions(sherd_world *world)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(BATCH, COUNT), 2, where));
}

/* What write_rows does, written out. */
static sherd_tensor *written(sherd_world *world)
{
    sherd_tensor *a = plain(world, 4, SIZES(BATCH, ROOM, HEADS, WIDTH), 0);
    sherd_tensor *rows = plain(world, 4, SIZES(BATCH, COUNT, HEADS, WIDTH), 5);
    double *to = sherd_tensor_write(a);
    const double *from = sherd_tensor_read(rows);

    for (int i = 0; i < BATCH * COUNT; i++)
        if (where[i] >= 0)
            memcpy(to + (i / COUNT * ROOM + where[i]) * HEADS * WIDTH, from + i * HEADS * WIDTH,
                   sizeof(double) * HEADS * WIDTH);
    return sherd_mark_equal(a);
}

static void rows_go_where_the_index_says(sherd_world *world)
{
    static const char *const a_way[] = {"R", "S(0)", "S(1)", "S(2)", "S(3)", NULL};
    static const char *const row_way[] = {"R", "S(0)", "S(1)", "S(2)", "S(3)", NULL};
    static const char *const index_way[] = {"R", "S(0)", "S(1)", NULL};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int number = 0; number < 6 * 6 * 4; number++) {
        const char *at = a_way[number % 6], *row = row_way[number / 6 % 6];
        const char *index = index_way[number / 36];
        if (!at && (row || index))
            continue; /* refused */
        sherd_scope_begin(world);
        sherd_tensor *a = plain(world, 4, SIZES(BATCH, ROOM, HEADS, WIDTH), 0);
        sherd_tensor *rows = plain(world, 4, SIZES(BATCH, COUNT, HEADS, WIDTH), 5);
        sherd_tensor *places = positions(world);
        a = at ? sherd_distribute_as(a, mesh, at, -1) : a;
        rows = row ? sherd_distribute_as(rows, mesh, row, -1) : rows;
        places = index ? sherd_distribute_as(places, mesh, index, -1) : places;
        CHECK(sherd_write_rows(a, places, rows) == a);
        CHECK(differ(a, written(world)) == 0);
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            return;
    }
}

/* Of a part of a tensor, and rows that are no rows of memory: views. */
static void views_are_written_too(sherd_world *world)
{
    sherd_tensor *t = plain(world, 3, SIZES(ROOM, BATCH, WIDTH), 0), *a = sherd_transpose(t, 0, 1);
    sherd_tensor *rows = sherd_transpose(plain(world, 3, SIZES(COUNT, BATCH, WIDTH), 5), 0, 1);
    double before[64], after[64], row[64];

    CHECK(sherd_full_read(before, sizeof before, a, SHERD_F64, -1) == false); /* too small */
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    a = sherd_narrow(a, 2, 1, 2);
    rows = sherd_narrow(rows, 2, 1, 2);
    CHECK(sherd_full_read(before, sizeof before, a, SHERD_F64, -1));
    CHECK(sherd_full_read(row, sizeof row, rows, SHERD_F64, -1));
    sherd_write_rows(a, positions(world), rows);
    CHECK(sherd_full_read(after, sizeof after, a, SHERD_F64, -1));
    for (int i = 0; i < BATCH * COUNT; i++)
        if (where[i] >= 0)
            memcpy(before + (i / COUNT * ROOM + where[i]) * 2, row + 2 * i, 2 * sizeof *row);
    CHECK(memcmp(before, after, sizeof(double) * BATCH * ROOM * 2) == 0);
    CHECK_OK(sherd_world_check(world));
}

/* What query (b, i) sees, as [BATCH, 1, COUNT, ROOM]. */
static sherd_tensor *mask_of(sherd_world *world)
{
    uint8_t seen[BATCH * COUNT * ROOM];

    for (int i = 0; i < BATCH * COUNT * ROOM; i++)
        seen[i] = i % ROOM <= where[i / ROOM];
    return sherd_mark_equal(
        sherd_from_data(world, SHERD_BOOL, SIZES(BATCH, 1, COUNT, ROOM), 4, seen));
}

static void attention_sees_up_to_its_position(sherd_world *world)
{
    static const char *const ways[] = {"R", "S(0)", "S(1)", "S(2)", NULL};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int number = 0; number < 25 * 4; number++) {
        const sherd_dtype dtype = number / 25 == 0   ? SHERD_F64
                                  : number / 25 == 1 ? SHERD_F32
                                  : number / 25 == 2 ? SHERD_BF16
                                                     : SHERD_F16;
        const char *left = ways[number % 5], *right = ways[number / 5 % 5];
        sherd_scope_begin(world);
        sherd_tensor *q = plain(world, 4, SIZES(BATCH, COUNT, HEADS, WIDTH), 1);
        sherd_tensor *k = plain(world, 4, SIZES(BATCH, ROOM, SHARED, WIDTH), 2);
        sherd_tensor *v = plain(world, 4, SIZES(BATCH, ROOM, SHARED, WIDTH), 3);
        q = sherd_cast(q, dtype);
        k = sherd_cast(k, dtype);
        v = sherd_cast(v, dtype);
        sherd_tensor *want = sherd_attention(
            q, k, v, &(sherd_attention_options){.mask = mask_of(world), .scale = 0.8});
        q = left ? sherd_distribute_as(q, mesh, left, -1) : q;
        k = right ? sherd_distribute_as(k, mesh, right, -1) : k;
        v = right ? sherd_distribute_as(v, mesh, right, -1) : v;
        CHECK(differ(sherd_attention_cached(q, k, v, positions(world), 0.8), want) <=
              (dtype == SHERD_F64   ? 1e-14
               : dtype == SHERD_F32 ? 1e-6
                                    : 0.01));
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            return;
    }
}

/* The rest of the cache may hold anything. */
static void what_lies_behind_is_not_read(sherd_world *world)
{
    static const int32_t at[] = {1, 2, 0, 3};
    const int64_t shape[] = {BATCH, ROOM, SHARED, WIDTH};

    for (sherd_dtype dtype = SHERD_F32; dtype <= SHERD_F16; dtype++) {
        sherd_tensor *k = sherd_constant(world, dtype, shape, 4, (double)NAN);
        sherd_tensor *q = sherd_constant(world, dtype, SIZES(BATCH, 1, HEADS, WIDTH), 4, 1);
        for (int64_t b = 0; b < BATCH; b++)
            sherd_fill(sherd_narrow(sherd_narrow(k, 0, b, 1), 1, 0, at[b] + 1), 0.5);
        sherd_tensor *y = sherd_attention_cached(
            q, k, k, sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(BATCH, 1), 2, at)),
            0);
        CHECK(differ(y, sherd_constant(world, dtype, SIZES(BATCH, 1, HEADS, WIDTH), 4, 0.5)) <=
              1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

static void no_gradient_is_lost(sherd_world *world)
{
    sherd_tensor *a = sherd_constant(world, SHERD_F32, SIZES(BATCH, ROOM), 2, 1);
    sherd_tensor *rows = sherd_constant(world, SHERD_F32, SIZES(BATCH, COUNT), 2, 1);

    sherd_write_rows(a, positions(world), sherd_scale(sherd_require_grad(rows, true), 2));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_write_rows: a gradient would be lost") != NULL);
    bool recording = sherd_set_recording(world, false);
    CHECK(sherd_write_rows(a, positions(world), sherd_scale(rows, 2)) == a);
    sherd_set_recording(world, recording);
    CHECK_OK(sherd_world_check(world));
}

static void positions_are_in_the_cache(sherd_world *world)
{
    static const int32_t far[] = {0, 1, 2, ROOM};
    sherd_tensor *k = sherd_constant(world, SHERD_F32, SIZES(BATCH, ROOM, SHARED, WIDTH), 4, 1);
    sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(BATCH, 1, HEADS, WIDTH), 4, 1);
    sherd_tensor *at = sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(BATCH, 1), 2, far));

    CHECK(sherd_tensor_failed(sherd_attention_cached(q, k, k, at, 0)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "position 6 is outside of a cache of 6") != NULL);
    CHECK(sherd_tensor_failed(sherd_write_rows(
        k, at, sherd_constant(world, SHERD_F32, SIZES(BATCH, 1, SHARED, WIDTH), 4, 1))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "sherd_write_rows: index[3,0] is 6, outside of the 6 rows of a") != NULL);
}

/* `t` failed, with this in its one line. */
static void says(sherd_world *world, sherd_tensor *t, const char *text)
{
    CHECK(sherd_tensor_failed(t));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  the error is \"%s\"\n", sherd_world_error(world));
}

/* Shapes are told as the caller has them. */
static void what_does_not_fit_is_told(sherd_world *world)
{
#define T(...) sherd_constant(world, SHERD_F32, SIZES(__VA_ARGS__), 4, 1)
#define AT(n)  sherd_constant(world, SHERD_I32, SIZES(2, n), 2, 1)
    sherd_tensor *q = T(2, 1, 6, 4), *k = T(2, 8, 2, 4);

    says(world, sherd_attention_cached(T(2, 1, 5, 4), k, k, AT(1), 0),
         "the heads of k must divide those of q: q by groups is f32[2,1,5,4], k is f32[2,8,2,4]");
    says(world, sherd_attention_cached(q, k, T(2, 3, 2, 4), AT(1), 0),
         "k and v must have the same shape: q by groups is f32[2,1,6,4]");
    says(world, sherd_attention_cached(T(2, 1, 6, 3), k, k, AT(1), 0),
         "q and k must have the same batch and width: q by groups is f32[2,1,6,3]");
    says(world, sherd_attention_cached(q, k, k, AT(2), 0),
         "positions must have two dims, the [batch,positions] of q: q by groups is f32[2,1,6,4]");
    says(world, sherd_attention_cached(sherd_view(q, SIZES(2, 6, 4), 3), k, k, AT(1), 0),
         "q, k and v must have four dims");
#undef T
#undef AT
}

static void a_scale_is_finite(sherd_world *world)
{
    static const double bad[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    sherd_tensor *x = sherd_constant(world, SHERD_F32, SIZES(2, 3, 2, 4), 4, 1);
    sherd_tensor *heads = sherd_constant(world, SHERD_F32, SIZES(2, 3, 4, 4), 4, 1);
    sherd_tensor *at = sherd_constant(world, SHERD_I32, SIZES(2, 3), 2, 1), *sums;

    for (int i = 0; i < 3; i++) {
        const sherd_attention_options o = {.scale = bad[i]};
        const sherd_neighbourhood_options n = {.kernel = {1}, .scale = bad[i]};
        says(world, sherd_attention(x, x, x, &o), "sherd_attention: scale is ");
        says(world, sherd_attention(heads, x, x, &o), ": scale is ");
        says(world, sherd_attention_cached(heads, x, x, at, bad[i]), ": scale is ");
        says(world, sherd_neighbourhood_attention(x, x, x, &n), ": scale is ");
        CHECK(!sherd_attention_with(&sums, NULL, x, x, x, &o));
        says(world, sums, "sherd_attention_with: scale is ");
    }
}

/* In an expanded view one element stands for several. */
static void nothing_is_written_through_an_expanded_view(sherd_world *world)
{
    sherd_tensor *at = sherd_constant(world, SHERD_I32, SIZES(2, 1), 2, 1);
    sherd_tensor *rows = sherd_constant(world, SHERD_F32, SIZES(2, 1, 2), 3, 5);
    sherd_tensor *a = sherd_constant(world, SHERD_F32, SIZES(1, 4, 2), 3, 1);

    says(world, sherd_write_rows(sherd_expand(a, SIZES(2, 4, 2), 3), at, rows),
         "sherd_write_rows: a is an expanded view: write into a copy of it (sherd_clone)");
    for (int i = 0; i < 8; i++)
        CHECK_EQ(((const float *)sherd_tensor_read(a))[i], 1);
}

/* Numbers that lie in what is written are those from before: else the second row would go where the
 * first one says. */
static void numbers_may_lie_in_what_is_written(sherd_world *world)
{
    static const int32_t one[] = {1, 3, 0, 0}, of_rows[] = {2, -1};
    sherd_tensor *rows = sherd_from_data(world, SHERD_I32, SIZES(1, 2, 1), 3, of_rows);
    sherd_tensor *a = sherd_from_data(world, SHERD_I32, SIZES(1, 4, 1), 3, one);
    sherd_tensor *pool = sherd_from_data(world, SHERD_I32, SIZES(4, 1, 1), 3, one);
    sherd_tensor *at = sherd_narrow(sherd_view(a, SIZES(1, 4), 2), 1, 0, 2);
    sherd_tensor *table = sherd_view(pool, SIZES(1, 4), 2);
    sherd_tensor *twice = sherd_constant(world, SHERD_I32, SIZES(1, 2), 2, 2);

    sherd_write_rows(a, at, rows);
    sherd_write_paged(pool, table, twice, rows);
    const int32_t *written = sherd_tensor_read(a), *paged = sherd_tensor_read(pool);
    CHECK(written[0] == 1 && written[1] == 2 && written[2] == 0 && written[3] == -1);
    CHECK(paged[0] == -1 && paged[1] == 3 && paged[2] == 0 && paged[3] == 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(rows_go_where_the_index_says), {1, 2, 3, 4, 5}},
    {TEST(views_are_written_too), {1}},
    {TEST(attention_sees_up_to_its_position), {1, 2, 3, 4}},
    {TEST(what_lies_behind_is_not_read), {1}},
    {TEST(no_gradient_is_lost), {1, 2}},
    {TEST(what_does_not_fit_is_told), {1, 2}},
    {TEST(a_scale_is_finite), {1, 2}},
    {TEST(nothing_is_written_through_an_expanded_view), {1, 2}},
    {TEST(positions_are_in_the_cache), {1, 2}},
    {TEST(numbers_may_lie_in_what_is_written), {1, 2}},
};
CHECK_MAIN(tests)
