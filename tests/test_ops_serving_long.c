/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long rows of logits: those that are sharded draw what whole ones draw, without being gathered;
 * thresholds are those of sorted weights; and failures come to all ranks.
 */
#include <math.h>
#include <time.h>

#include "functional/draw.h"
#include "dry.h"
#include "groups.h"
#include "sherd/ops_serving.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

static sherd_tensor *data(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                          const void *from)
{
    return sherd_mark_equal(sherd_from_data(world, dtype, shape, ndim, from));
}

/* ---- long rows ------------------------------------------------------------------------------- */

enum { LONG = 8209, LONG_ROWS = 11 }; /* a prime; shards of 8 ranks are not gathered */

/* How row i of the long ones is drawn: with few and many candidates, flat, with equal logits. */
static const struct {
    float wide, temperature, top_p, min_p;
    int32_t top_k;
} long_row[LONG_ROWS] = {{4, 1, 1, 0, 0},        {4, 0, 1, 0, 0},           {9, 1, 0.9F, 0, 40},
                         {1, 1, 0.9F, 0, 0},     {0, 1, 0.95F, 0, 0},       {4, 2, 0.8F, 0.01F, 0},
                         {3, 1, 1, 0, 128},      {3, 1, 0.5F, 0, 1000},     {0, 1, 0.7F, 0, 5},
                         {2, INFINITY, 1, 0, 3}, {30, 0.7F, 1e-6F, 0.2F, 7}};

static float long_logit(int i, int64_t j)
{
    uint32_t x = (uint32_t)(i * LONG + j) * 2654435761U;

    x = (x ^ x >> 15) * 0x2C1B3C6DU;
    x = (x ^ x >> 12) * 0x297A2D39U;
    float u = (float)(x >> 8) / 16777216 - 0.5F;
    return j % 97 == 5 ? -INFINITY : long_row[i].wide * (u + u * u * u * 3);
}

static void long_rows_that_are_sharded_draw_the_same(sherd_world *world)
{
    static const char *const placements[] = {"S(1)", "S(0)", "R", "S(0)S(1)", "S(1)S(0)"};
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *line = line_of_ranks(world), *plane = NULL;
    float *x = malloc(sizeof *x * LONG_ROWS * LONG), option[3][LONG_ROWS];
    int32_t key[LONG_ROWS], top_k[LONG_ROWS];

    for (int i = 0; i < LONG_ROWS; i++) {
        for (int64_t j = 0; j < LONG; j++)
            x[i * LONG + j] = long_logit(i, j);
        option[0][i] = long_row[i].temperature;
        option[1][i] = long_row[i].top_p;
        option[2][i] = long_row[i].min_p;
        top_k[i] = long_row[i].top_k;
    }
    sherd_tensor *given = data(world, SHERD_F32, SIZES(LONG_ROWS, LONG), 2, x);
    const sherd_sample_options all = {
        .temperature = data(world, SHERD_F32, SIZES(LONG_ROWS), 1, option[0]),
        .top_k = data(world, SHERD_I32, SIZES(LONG_ROWS), 1, top_k),
        .top_p = data(world, SHERD_F32, SIZES(LONG_ROWS), 1, option[1]),
        .min_p = data(world, SHERD_F32, SIZES(LONG_ROWS), 1, option[2])};
    if (ranks % 2 == 0)
        CHECK_OK(sherd_mesh_create(&plane, world, 2, (int64_t[]){2, ranks / 2}, NULL, NULL));
    for (int turn = 0; turn < 4; turn++) {
        /* all rows on some ranks, those that are gathered, or faulty, among few */
        const char *uneven = turn == 1 ? "0:0,11" : "0:8,3";
        sherd_scope_begin(world);
        for (int i = 0; i < LONG_ROWS; i++)
            key[i] = 1000 * turn + i;
        sherd_sample_options how = all;
        how.top_k = turn % 3 == 1 ? NULL : how.top_k; /* each with other exchanges */
        how.top_p = turn % 3 == 2 ? NULL : how.top_p;
        sherd_tensor *k = data(world, SHERD_I32, SIZES(LONG_ROWS, 1), 2, key);
        sherd_tensor *y = sherd_cast(given, turn < 3 ? SHERD_F32 : SHERD_BF16);
        const int32_t *here = sherd_tensor_read(sherd_sample_rows(y, k, &how));
        for (int i = 0; i < (ranks % 2 ? 3 : LEN(placements)); i++) {
            const sherd_layout *l = layout_of(i < 3 ? line : plane, 2, y->shape, placements[i],
                                              i == 3 && turn % 2 ? uneven : NULL);
            sherd_tensor *there = sherd_sample_rows(sherd_distribute(y, l, -1), k, &how);
            CHECK_EQ(memcmp(sherd_tensor_read(sherd_full(there)), here, sizeof *here * LONG_ROWS),
                     0);
        }
        sherd_scope_end(world);
    }
    free(x);
    CHECK_OK(sherd_world_check(world));
}

/* Of shards of other lengths, by two axes, with rows in other dims, or none. */
static void long_rows_may_be_cut_anywhere(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), rows[] = {6, 0};
    float *x = malloc(sizeof *x * 6 * 2 * LONG);
    int32_t key[6] = {1, 2, 3, 4, 5, 6};
    float top_p[6] = {0.9F, 0.9F, 0.3F, 1, 0.99F, 0.5F};
    const sherd_layout *l;
    const sherd_mesh *mesh;
    char cuts[40];

    CHECK_OK(sherd_mesh_create(&mesh, world, 2, (int64_t[]){ranks / 2, 2}, NULL, NULL));
    for (int64_t j = 0; j < INT64_C(12) * LONG; j++)
        x[j] = long_logit(3, j);
    for (int i = 0; i < 2; i++) {
        const int64_t r = rows[i], n = 2 * LONG;
        const sherd_sample_options how = {.top_p =
                                              data(world, SHERD_F32, SIZES(r / 3, 3), 2, top_p)};
        sherd_tensor *y = data(world, SHERD_F32, SIZES(r / 3, 3, n), 3, x);
        sherd_tensor *k = data(world, SHERD_I32, SIZES(r / 3, 3, 1), 3, key);
        const int32_t *here = sherd_tensor_read(sherd_sample_rows(y, k, &how));
        snprintf(cuts, sizeof cuts, "2:%d,%d", 3, (int)n - 3);
        for (int by = 0; by < 2; by++) {
            CHECK_OK(sherd_layout_parse_placements(&l, mesh, 3, y->shape, by ? "S(2)S(2)" : "RS(2)",
                                                   by ? NULL : cuts));
            sherd_tensor *there =
                sherd_full(sherd_sample_rows(sherd_distribute(y, l, -1), k, &how));
            CHECK_EQ(memcmp(sherd_tensor_read(there), here, sizeof *here * (size_t)r), 0);
        }
    }
    free(x);
    CHECK_OK(sherd_world_check(world));
}

static int falling_integers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* What lists and bins find is what sorting finds. */
static void thresholds_are_those_of_sorted_weights(sherd_world *world)
{
    enum { MANY = 4001 };
    static _Thread_local int64_t room[MANY * 4], sorted[MANY];
    double list[SHERD__LIKELY], scratch[2 * SHERD__LIKELY];
    int64_t next, target, taken[MANY];
    sherd__bins bins;

    for (int i = 0; i < LONG_ROWS; i++) {
        sherd__row d = {.f64 = &sherd__world_kernels(world)->f64,
                        .length = MANY,
                        .temperature = 1,
                        .top_p = 0.1 + 0.08 * i,
                        .top_k = 2 + 12 * i};
        sherd__draw_room(&d, room, MANY);
        for (int64_t j = 0; j < MANY; j++)
            d.x[j] = (double)long_logit(i, j);
        sherd__draw_first(&d, d.top_k, list);
        d.most = list[0];
        CHECK(sherd__draw_top(&d, 1, d.top_k, list, &next));
        int64_t more = 0, least = 0;
        for (int64_t j = 0; j < MANY; j++) {
            more += d.x[j] > d.least;
            least += d.x[j] >= d.least;
        }
        CHECK(more < d.top_k && d.top_k <= least);
        for (int all = 0; all < 2; all++) {
            int64_t n = 0, sum = 0, part = 0, k = 0;
            d.least = all ? -INFINITY : d.least;
            int64_t total = sherd__draw_weigh(&d);
            for (n = 0; n < (all ? MANY : d.kept); n++)
                sorted[n] = d.weight[n];
            for (int64_t a = 0; a < n; a++)
                sum += sorted[a];
            CHECK_EQ(sum, total);
            qsort(sorted, (size_t)n, sizeof *sorted, falling_integers);
            while (k < n && part < (int64_t)ceil(d.top_p * (double)total))
                part += sorted[k++];
            sherd__draw_spread(&d, &bins);
            int bin = sherd__draw_bin(&d, total, &bins, &target);
            int64_t count = sherd__draw_take(&d, bin, taken);
            CHECK_EQ(count, bins.count[bin]);
            CHECK_EQ(sherd__draw_threshold(taken, count, target), sorted[k - 1]);
            int64_t likely =
                all ? 0 : sherd__draw_likely(&d, total, 1, d.top_k, list, &next, scratch);
            CHECK(likely == sorted[k - 1] || all || n > d.top_k);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

/* Selection takes steps in proportion to the row: it was n n / 2, 20 seconds, with a poor pivot. */
static void no_order_of_weights_is_slow(sherd_world *world)
{
    enum { MANY = 1 << 17 };
    int64_t *c = malloc(sizeof *c * MANY);

    for (int order = 0; order < 4; order++) {
        for (int64_t i = 0; i < MANY; i++)
            c[i] = order == 0 ? i + 1 : order == 1 ? MANY - i : order == 2 ? i / 2 + 1 : i % 7 + 1;
        const int64_t most = order < 2 ? MANY : order == 2 ? MANY / 2 : 7;
        clock_t begin = clock();
        CHECK_EQ(sherd__draw_threshold(c, MANY, most), most);
        CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < 3);
    }
    free(c);
    CHECK_OK(sherd_world_check(world));
}

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* Of rows that rise, of which each element would get into the list, too; with few finite ones. */
static void lists_are_the_largest_in_any_order(sherd_world *world)
{
    enum { MANY = 30011 };
    static _Thread_local int64_t room[MANY * 4];
    static _Thread_local double sorted[MANY];
    double list[SHERD__LIKELY];
    sherd__row d = {.f64 = &sherd__world_kernels(world)->f64};

    sherd__draw_room(&d, room, MANY);
    for (int i = 0; i < 12; i++) {
        const int64_t count = i % 3 ? SHERD__LIKELY : 5 * i + 1;
        for (int64_t j = 0; j < MANY; j++) {
            const double x = i < 3 ? (double)j : i < 6 ? (double)(j / 70) : (double)(MANY - j);
            d.x[j] = sorted[j] = i < 9 || j > MANY - 60 ? x : -INFINITY;
        }
        qsort(sorted, MANY, sizeof *sorted, falling);
        sherd__draw_first(&d, count, list);
        CHECK_EQ(memcmp(list, sorted, sizeof *list * (size_t)count), 0);
        d.x[i % 2 ? MANY - 1 : MANY - 20] = NAN;
        sherd__draw_first(&d, count, list);
        CHECK(isnan(list[0]));
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels, and what fails ------------------------------------------------------------ */

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    sherd_comm_reset(world);
    return bytes;
}

/* Of each other shard the largest, or those that top_k may keep, a sum and an index. */
static void a_few_numbers_travel(sherd_world *world)
{
    const int64_t others = sherd_world_ranks(world) - 1;
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(3, LONG), "S(1)", NULL);
    sherd_tensor *key = data(world, SHERD_I32, SIZES(3, 1), 2, (int32_t[]){5, 6, 7});
    sherd_tensor *x = sherd_constant_on(l, SHERD_F32, 1);
    const sherd_sample_options most = {.top_k =
                                           data(world, SHERD_I32, SIZES(3), 1, (int32_t[3]){9})};

    received(world);
    sherd_sample_rows(x, key, NULL);
    CHECK_EQ(received(world), others * 3 * (8 + 8 + 4));
    sherd_sample_rows(x, key, &most);
    CHECK_EQ(received(world), others * 3 * (8 * SHERD__LIKELY + 8 + 4));
    CHECK_OK(sherd_world_check(world));
}

/* Of rows that are sharded, too, the same of each other shard of the rows here. */
static void a_few_numbers_of_rows_here_travel(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), others = ranks / 2 - 1;
    const sherd_mesh *plane = NULL;
    int64_t row[2];

    CHECK_OK(sherd_mesh_create(&plane, world, 2, (int64_t[]){2, ranks / 2}, NULL, NULL));
    const sherd_layout *l = layout_of(plane, 2, SIZES(3, LONG), "S(0)S(1)", NULL);
    sherd_tensor *key = data(world, SHERD_I32, SIZES(3, 1), 2, (int32_t[]){5, 6, 7});
    sherd_tensor *x = sherd_constant_on(l, SHERD_F32, 1);

    CHECK_OK(sherd_mesh_coordinate(plane, sherd_world_rank(world), row) ? SHERD_OK : SHERD_EINVAL);
    received(world);
    sherd_tensor *y = sherd_sample_rows(x, key, NULL);
    /* and of each other rank how many rows it gathers */
    CHECK_EQ(received(world), others * (2 - row[0]) * (8 + 8 + 4) + 8 * (ranks - 1));
    CHECK(sherd_tensor_size(y, 0) == 2 - row[0]);
    CHECK_OK(sherd_world_check(world));
}

/* Beside rows that are gathered, or drawn by shards. */
static void faulty_long_rows_may_be_marked(sherd_world *world)
{
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(5, LONG), "S(1)", NULL);
    sherd_tensor *key = data(world, SHERD_I32, SIZES(5, 1), 2, (int32_t[]){5, 6, 7, 8, 9});
    sherd_tensor *x = sherd_constant(world, SHERD_F32, SIZES(5, LONG), 2, 0);
    sherd_sample_options how = {
        .top_k = data(world, SHERD_I32, SIZES(5), 1, (int32_t[]){200, 200, 9, 9, 0}),
        .top_p = data(world, SHERD_F32, SIZES(5), 1, (float[]){0.5F, 0.5F, 0.5F, 0.5F, 0.5F})};
    const int32_t *good = sherd_tensor_read(sherd_sample_rows(sherd_mark_equal(x), key, &how));

    float *at = sherd_tensor_write(x);
    at[LONG + 77] = NAN;
    at[4 * LONG - 3] = INFINITY;
    how.marks = true;
    const int32_t *y = sherd_tensor_read(
        sherd_full(sherd_sample_rows(sherd_distribute(sherd_mark_equal(x), l, -1), key, &how)));
    for (int i = 0; y && good && i < 5; i++)
        CHECK_EQ(y[i], i % 2 ? -1 : good[i]);
    CHECK_OK(sherd_world_check(world));
}

/* With a top_k, so that what is exchanged does not depend on the logits. */
static void draw_once(sherd_world *world, void *context)
{
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(3, LONG), "S(1)", NULL);
    const sherd_sample_options how = {
        .top_k = data(world, SHERD_I32, SIZES(3), 1, (int32_t[]){5, 1, 9}),
        .top_p = data(world, SHERD_F32, SIZES(3), 1, (float[]){0.5F, 0.5F, 1})};
    sherd_tensor *key = data(world, SHERD_I32, SIZES(3, 1), 2, (int32_t[]){5, 6, 7});
    sherd_generator numbers = sherd_generator_named("logits");

    (void)context;
    sherd_sample_rows(sherd_random_on(l, SHERD_F32, sherd_uniform(0, 4), &numbers), key, &how);
}

static void dry_ranks_exchange_as_much(sherd_world *world)
{
    sherd_world *dry = dry_as(world);

    CHECK(same_in(world, dry, draw_once, NULL));
    CHECK_OK(sherd_world_close(dry));
}

static void a_fault_in_one_shard_fails_on_all(sherd_world *world)
{
    sherd_tensor *x = sherd_constant(world, SHERD_F32, SIZES(1, LONG), 2, 0);
    float *at = sherd_tensor_write(x);
    at[LONG - 2] = NAN;
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(1, LONG), "S(1)", NULL);
    sherd_sample_rows(sherd_distribute(sherd_mark_equal(x), l, -1),
                      data(world, SHERD_I32, SIZES(1, 1), 2, (int32_t[]){5}), NULL);
    refused(world, "row 0: a logit is NaN");
}

static _Thread_local sherd_tensor *drawn[4];

static void draw_long_again(sherd_world *world)
{
    const sherd_sample_options both = {.top_k = drawn[2], .top_p = drawn[3]};

    sherd_scope_begin(world);
    sherd_sample_rows(drawn[0], drawn[1], &both);
    sherd_scope_end(world);
}

static void no_memory_for_a_long_row_fails_on_all(sherd_world *world)
{
    const bool apart = sherd_world_ranks(world) == 4;
    const sherd_mesh *mesh = apart ? mesh_of(world, "x=2,y=2") : line_of_ranks(world);
    const sherd_layout *l = layout_of(mesh, 2, SIZES(3, LONG), apart ? "S(0)S(1)" : "S(1)", NULL);

    drawn[0] = sherd_constant_on(l, SHERD_F32, 1); /* all equal: gathered, and by bins */
    drawn[1] = data(world, SHERD_I32, SIZES(3, 1), 2, (int32_t[]){5, 6, 7});
    drawn[2] = data(world, SHERD_I32, SIZES(3), 1, (int32_t[]){200, 0, 9});
    drawn[3] = data(world, SHERD_F32, SIZES(3), 1, (float[]){0.5F, 0.5F, 1});
    CHECK_OK(sherd_world_check(world));
    fail_every_allocation(world, sherd_world_ranks(world) - 1, draw_long_again);
}

/* A bin ends where the next one begins: no weight is in two, or in none. */
static void bins_have_exact_ends(sherd_world *world)
{
    sherd__bins bins;
    int64_t room[16], taken[3];

    for (int bits = 0; bits < 62; bits++)
        for (int64_t head = 4; head < 8; head++) {
            int64_t at = bits < 2 ? head >> (2 - bits) : head << (bits - 2), seen = 0;
            sherd__row d = {.length = 3, .kept = -1};
            sherd__draw_room(&d, room, 3);
            for (int i = 0; i < 3; i++)
                d.weight[i] = at - 1 + i;
            sherd__draw_spread(&d, &bins);
            for (int j = 0; j < SHERD__BINS; j++) {
                int64_t count = sherd__draw_take(&d, j, taken);
                CHECK_EQ(count, bins.count[j]);
                seen += count;
            }
            CHECK_EQ(seen, at > 1 ? 3 : 2);
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(long_rows_that_are_sharded_draw_the_same), {1, 2, 3, 4, 8}},
    {TEST(long_rows_may_be_cut_anywhere), {2, 4, 8}},
    {TEST(thresholds_are_those_of_sorted_weights), {1}},
    {TEST(no_order_of_weights_is_slow), {1}},
    {TEST(lists_are_the_largest_in_any_order), {1}},
    {TEST(bins_have_exact_ends), {1}},
    {TEST(a_few_numbers_travel), {2, 3, 8}},
    {TEST(a_few_numbers_of_rows_here_travel), {4, 8}},
    {TEST(dry_ranks_exchange_as_much), {2, 3}},
    {TEST(a_fault_in_one_shard_fails_on_all), {1, 2, 3, 8}},
    {TEST(faulty_long_rows_may_be_marked), {1, 2, 3, 8}},
    {TEST(no_memory_for_a_long_row_fails_on_all), {2, 4}},
};
CHECK_MAIN(tests)
