/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in blocks of a pool: written by a table and attended to through it, they give the
 * bits of attention to caches that are not in blocks, wherever the blocks lie, few queries and many;
 * heads, sequences, and blocks with their sequences may be sharded. What no query sees is not
 * looked at. A faulty table or position is refused on all ranks, and a pool stays as it was.
 */
#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_layers.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

/* Any number of ranks here divides PARTS. */
enum { BATCH = 8, ROOM = 71, GROUPS = 2, HEADS = 6, WIDTH = 20, MOST = 24, PARTS = 24 };
enum { MOST_ENTRIES = BATCH * ROOM, MOST_RESULTS = BATCH * MOST * HEADS * WIDTH };

/* q, and rows of k and v, of a dtype. */
static void make(sherd_world *world, sherd_dtype dtype, int64_t queries, sherd_tensor **x)
{
    for (int i = 0; i < 3; i++) {
        const int64_t *shape =
            i ? SIZES(BATCH, ROOM, GROUPS, WIDTH) : SIZES(BATCH, queries, HEADS, WIDTH);
        sherd_tensor *t = sherd_constant(world, SHERD_F64, shape, 4, 0);
        double *to = sherd_tensor_write(t);
        for (int64_t j = 0; j < sherd_tensor_count(t); j++)
            to[j] = sin((double)(3 * i) + 1.3 * (double)j);
        x[i] = sherd_cast(sherd_mark_equal(t), dtype);
    }
}

/* How many keys a sequence has; the last ones are those of its queries. */
static int64_t length_of(int64_t b, int64_t queries)
{
    return b == 0 ? ROOM : b == 3 ? queries : queries + (29 * b) % (ROOM - queries);
}

/* Of new tokens: some rows are none, and one sequence has them here and there. */
static int32_t position(int64_t b, int64_t i, int64_t queries)
{
    int64_t length = length_of(b, queries);

    if (b == 5)
        return i % 5 == 3 ? -1 - (int32_t)i : (int32_t)((29 + 31 * i) % length);
    return b == 2 && i + 2 == queries ? -7 : (int32_t)(length - queries + i);
}

static sherd_tensor *numbers(sherd_world *world, int64_t rows, int64_t n, const int32_t *from)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(rows, n), 2, from));
}

static sherd_tensor *positions(sherd_world *world, int64_t queries)
{
    int32_t where[BATCH * MOST];

    for (int64_t i = 0; i < BATCH * queries; i++)
        where[i] = position(i / queries, i % queries, queries);
    return numbers(world, BATCH, queries, where);
}

/* All rows of the cache that a sequence has. */
static sherd_tensor *places(sherd_world *world, int64_t queries)
{
    static _Thread_local int32_t where[BATCH * ROOM];

    for (int64_t i = 0; i < BATCH * ROOM; i++)
        where[i] = i % ROOM < length_of(i / ROOM, queries) ? (int32_t)(i % ROOM) : -1;
    return numbers(world, BATCH, ROOM, where);
}

static int64_t entries(int64_t together)
{
    return (ROOM + together - 1) / together;
}

/*
 * Blocks in disorder, each sequence's in the part of the pool that its shard of `shards` has; what
 * is behind a sequence's length is no block.
 */
static sherd_tensor *table_of(sherd_world *world, int64_t together, int64_t queries, int64_t shards)
{
    static _Thread_local int32_t table[MOST_ENTRIES];
    int64_t m = entries(together), part = PARTS * m / shards, each = (BATCH + shards - 1) / shards;

    for (int64_t i = 0; i < BATCH * m; i++) {
        int64_t b = i / m, shard = b / each;
        int64_t at = i % m * each + b % each;
        table[i] = i % m * together < length_of(b, queries)
                       ? (int32_t)(shard * part + (7 * at + 3) % part)
                       : (i % 2 ? -1 : INT32_MAX);
    }
    return numbers(world, BATCH, m, table);
}

/* Without the blocks that no query of a sequence sees through a window. */
static sherd_tensor *freed(sherd_world *world, sherd_tensor *table, int64_t together,
                           int64_t queries, int64_t window)
{
    static _Thread_local int32_t left[MOST_ENTRIES];
    int64_t m = entries(together);

    memcpy(left, sherd_tensor_read(table), (size_t)(BATCH * m) * sizeof *left);
    for (int64_t b = 0; b < BATCH; b++) {
        int64_t first = ROOM;
        for (int64_t i = 0; i < queries; i++) {
            int64_t at = position(b, i, queries), begin = at + 1 > window ? at + 1 - window : 0;
            first = at >= 0 && begin < first ? begin : first;
        }
        for (int64_t j = 0; j < first / together && j < m; j++)
            left[b * m + j] = j % 2 ? -1 : INT32_MAX;
    }
    return numbers(world, BATCH, m, left);
}

/* Both whole, as numbers. */
static bool are_equal(sherd_tensor *a, sherd_tensor *b)
{
    static _Thread_local double x[MOST_RESULTS], y[MOST_RESULTS];

    return CHECK(sherd_full_read(x, sizeof x, a, SHERD_F64, -1)) &&
           CHECK(sherd_full_read(y, sizeof y, b, SHERD_F64, -1)) &&
           memcmp(x, y, (size_t)sherd_tensor_count(b) * sizeof *x) == 0;
}

/* For so many ranks: a mesh; where queries and pools lie, and how many shards of blocks. */
typedef struct lying {
    int ranks;
    const char *mesh, *q, *pool;
    int shards;
} lying;

static const lying cases[] = {{1, NULL, NULL, NULL, 1},
                              {1, "x=1", "S(0)", "S(0)", 1},
                              {2, NULL, NULL, NULL, 1},
                              {2, "x=2", "R", "R", 1},
                              {2, "x=2", "S(2)", "S(2)", 1},
                              {2, "x=2", "R", "S(2)", 1},
                              {2, "x=2", "S(0)", "R", 1},
                              {2, "x=2", "S(1)", "R", 1},
                              {2, "x=2", "S(0)", "S(0)", 2},
                              {3, "x=3", "S(0)", "S(0)", 3},
                              {3, "x=3", "S(2)", "S(2)", 1},
                              {4, "x=4", "S(0)", "S(0)", 4},
                              {4, "x=2,y=2", "S(0)S(2)", "S(0)S(2)", 2},
                              {4, "x=2,y=2", "S(0)R", "S(0)S(2)", 2},
                              {4, "x=2,y=2", "S(0)S(0)", "S(0)S(0)", 4},
                              {4, "x=2,y=2", "RS(0)", "S(2)S(0)", 2},
                              {8, "x=8", "S(0)", "S(0)", 8},
                              {8, "x=4,y=2", "S(0)S(2)", "S(0)S(2)", 4}};

static sherd_tensor *laid(sherd_tensor *t, const sherd_mesh *mesh, const char *placements)
{
    return mesh ? sherd_distribute_as(t, mesh, placements, -1) : t;
}

/* The pool of keys or values, all that its sequences have written by the table; else NaN. */
static sherd_tensor *pool_of(const lying *l, const sherd_mesh *mesh, sherd_tensor *rows,
                             int64_t together, sherd_tensor *table, sherd_tensor *at)
{
    const int64_t shape[] = {PARTS * entries(together), together, GROUPS, WIDTH};
    sherd_tensor *pool = sherd_mark_equal(
        sherd_constant(sherd_tensor_world(rows), sherd_tensor_dtype(rows), shape, 4, NAN));

    pool = laid(pool, mesh, l->pool);
    CHECK(sherd_write_paged(pool, table, at, laid(rows, mesh, l->q)) == pool);
    return pool;
}

static bool same_bits(sherd_world *world, const lying *l, sherd_dtype dtype, int64_t queries,
                      int64_t together, const sherd_cached_options *how)
{
    const sherd_mesh *mesh = l->mesh ? mesh_of(world, l->mesh) : NULL;
    sherd_tensor *x[3], *pool[3];

    make(world, dtype, queries, x);
    sherd_tensor *table = table_of(world, together, queries, l->shards);
    for (int i = 1; i < 3; i++)
        pool[i] = pool_of(l, mesh, x[i], together, table, places(world, queries));
    sherd_tensor *where = positions(world, queries);
    if (how->window)
        table = freed(world, table, together, queries, how->window);
    sherd_tensor *y =
        sherd_attention_paged_with(laid(x[0], mesh, l->q), pool[1], pool[2], table, where, how);
    return are_equal(y, sherd_attention_cached_with(x[0], x[1], x[2], where, how));
}

static void blocks_give_the_bits_of_a_cache(sherd_world *world)
{
    static const int64_t counts[] = {1, 3, MOST}; /* 9 rows are few, 72 are many */
    static const int64_t sizes[] = {16, 1, 5, 32, 48};
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};
    static const int64_t windows[] = {1, 7, 30};

    for (int c = 0; c < LEN(cases); c++)
        for (int n = 0; n < LEN(counts) && cases[c].ranks == sherd_world_ranks(world); n++)
            for (int d = 0; d < 2 * LEN(dtypes); d++) {
                int64_t together = sizes[(c + n + d) % LEN(sizes)];
                if ((c + n + d / 2) % check_stride(d % 2 ? 3 : 2)) /* windows of fewer */
                    continue;
                const sherd_cached_options how = {
                    0.4, d % 2 ? windows[(c + 2 * n + d / 2) % LEN(windows)] : 0,
                    d % 4 == 3 ? 0.9 : 0};
                sherd_scope_begin(world);
                if (!CHECK(same_bits(world, &cases[c], dtypes[d / 2], counts[n], together, &how)))
                    fprintf(stderr, "%s %s %s, %s, %d queries, blocks of %d, window %d\n",
                            cases[c].mesh ? cases[c].mesh : "plain", cases[c].q, cases[c].pool,
                            sherd_dtype_name(dtypes[d / 2]), (int)counts[n], (int)together,
                            (int)how.window);
                sherd_scope_end(world);
                if (!CHECK_OK(sherd_world_check(world)))
                    return;
            }
}

/* Of heads, and of sequences that lie with their blocks, nothing travels. */
static void nothing_travels(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = line_of_ranks(world);
    const lying ways[] = {{ranks, NULL, "S(2)", "S(2)", 1}, {ranks, NULL, "S(0)", "S(0)", ranks}};

    for (int i = 0; i < LEN(ways); i++) {
        const lying *l = &ways[i];
        const char *lines = i ? "S(0)" : "R";
        sherd_tensor *x[3];
        if (!i && GROUPS % ranks)
            continue;
        sherd_scope_begin(world);
        make(world, SHERD_F32, 1, x);
        sherd_tensor *table = laid(table_of(world, 16, 1, l->shards), mesh, lines);
        sherd_tensor *where = laid(positions(world, 1), mesh, lines);
        sherd_tensor *pool = pool_of(l, mesh, x[1], 16, table, places(world, 1));
        sherd_tensor *q = laid(x[0], mesh, l->q);
        sherd_tensor *row = laid(sherd_narrow(x[1], 1, 0, 1), mesh, l->q);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_write_paged(pool, table, where, row);
        sherd_attention_paged(q, pool, pool, table, where, 0);
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(sherd_comm_calls(world, NULL), 0);
        sherd_scope_end(world);
    }
}

/* Nothing of one dim: sequences, queries, blocks, entries of the table, width. */
static void empty_ones_are_empty(sherd_world *world)
{
    for (int d = 0; d < 5; d++) {
        int64_t n[] = {2, 3, 4, 5, 6};
        int32_t at[6] = {-1, -1, -1, -1, -1, -1}, table[10] = {0};
        n[d] = 0;
        sherd_scope_begin(world);
        const sherd_mesh *mesh = line_of_ranks(world);
        sherd_tensor *lines = numbers(world, n[0], n[3], table);
        sherd_tensor *where = numbers(world, n[0], n[1], at);
        sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(n[0], n[1], 2, n[4]), 4, 1);
        sherd_tensor *pool = sherd_constant(world, SHERD_F32, SIZES(n[2], 2, 2, n[4]), 4, 1);
        for (int sharded = 0; sharded < 2; sharded++) {
            const char *way = sharded ? "S(0)" : "R";
            sherd_tensor *there = sherd_distribute_as(sherd_mark_equal(pool), mesh, way, -1);
            sherd_tensor *x = sherd_distribute_as(sherd_mark_equal(q), mesh, way, -1);
            CHECK(sherd_write_paged(there, lines, where, x) == there);
            CHECK(are_equal(sherd_attention_paged(x, there, there, lines, where, 0),
                            sherd_scale(x, 0)));
            CHECK_OK(sherd_world_check(world));
        }
        sherd_scope_end(world);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

/* After a failed step, with these words on all ranks. */
static void says(sherd_world *world, sherd_tensor *y, const char *text)
{
    (void)y;
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

/* Three sequences of up to two blocks of 4, in a pool of 6; of the last one another. */
typedef struct fault {
    int32_t table[3][2], where[3];
    const char *text;
} fault;

static const fault faults[] = {
    {{{0, 1}, {2, 3}, {4, 5}},
     {7, 7, 8},
     "position 8 of sequence 2 is beyond its table: 2 blocks "},
    {{{0, 1}, {2, 3}, {4, 6}}, {7, 0, 4}, "table[2,1] is 6, outside of a pool of 6 blocks"},
    {{{0, 1}, {-1, 3}, {4, 6}}, {7, 0, 0}, "table[1,0] is -1, outside of a pool of 6 blocks"},
    {{{0, 1}, {2, 3}, {INT32_MIN, 5}}, {0, -1, 3}, "table[2,0] is -2147483648, outside"},
};

static void faulty_tables_are_refused_on_all_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 2 * LEN(faults); i++) {
        const fault *f = &faults[i / 2];
        const char *way = i % 2 ? "S(2)" : "R";
        sherd_scope_begin(world);
        sherd_tensor *row = sherd_constant(world, SHERD_F32, SIZES(3, 1, 8, 2), 4, 1);
        sherd_tensor *zero = sherd_constant(world, SHERD_F32, SIZES(6, 4, 8, 2), 4, 0);
        sherd_tensor *pool = sherd_distribute_as(sherd_mark_equal(zero), mesh, way, -1);
        row = sherd_distribute_as(sherd_mark_equal(row), mesh, way, -1);
        sherd_tensor *table = numbers(world, 3, 2, f->table[0]);
        sherd_tensor *where = numbers(world, 3, 1, f->where);
        CHECK_OK(sherd_world_check(world));
        says(world, sherd_attention_paged(row, pool, pool, table, where, 0), f->text);
        table = numbers(world, 3, 2, f->table[0]);
        where = numbers(world, 3, 1, f->where);
        CHECK_OK(sherd_world_check(world));
        says(world, sherd_write_paged(pool, table, where, row), f->text);
        sherd_tensor_revive(pool);
        CHECK(are_equal(pool, zero));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Where each shard has its blocks, sequence 1 has one of the last shard's. */
static void blocks_of_other_shards_are_refused(sherd_world *world)
{
    int32_t ranks = sherd_world_ranks(world), table[9] = {0}, where[9] = {0};
    const sherd_mesh *mesh = line_of_ranks(world);
    static const char text[] =
        "table[0,0] is 3, outside of the blocks from 0 to 1, which the shard ";

    for (int32_t b = 0; b < ranks; b++)
        table[b] = b ? 2 * b : 3;
    for (int i = 0; i < 2; i++) {
        sherd_scope_begin(world);
        sherd_tensor *row = sherd_constant(world, SHERD_F32, SIZES(ranks, 1, 2, 2), 4, 1);
        sherd_tensor *pool = sherd_constant(world, SHERD_F32, SIZES(2 * ranks, 4, 2, 2), 4, 0);
        pool = sherd_distribute_as(sherd_mark_equal(pool), mesh, "S(0)", -1);
        row = sherd_distribute_as(sherd_mark_equal(row), mesh, "S(0)", -1);
        sherd_tensor *lines = numbers(world, ranks, 1, table),
                     *at = numbers(world, ranks, 1, where);
        if (i)
            says(world, sherd_write_paged(pool, lines, at, row), text);
        else
            says(world, sherd_attention_paged(row, pool, pool, lines, at, 0), text);
        sherd_scope_end(world);
    }
}

static void pools_are_never_moved(sherd_world *world)
{
    static const char *const ways[][4] = {
        {"R", "S(0)", "S(0)", "the pool is sharded by blocks: the sequences of "},
        {"S(2)", "S(0)", "S(0)", "the pool is sharded by blocks: the sequences of "},
        {"R", "S(1)", "S(1)", "a pool may be sharded by blocks and heads only"},
        {"R", "S(3)", "S(3)", "a pool may be sharded by blocks and heads only"},
        {"R", "S(2)", "R", "k and v must have the same layout"}};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < LEN(ways); i++) {
        int32_t zero[2] = {0};
        sherd_tensor *x[3];
        sherd_scope_begin(world);
        for (int j = 0; j < 3; j++) {
            sherd_tensor *t = sherd_constant(world, SHERD_F32, SIZES(2, 2, 2, 2), 4, 1);
            x[j] = sherd_distribute_as(sherd_mark_equal(t), mesh, ways[i][j], -1);
        }
        sherd_tensor *table = numbers(world, 2, 1, zero), *where = numbers(world, 2, 1, zero);
        says(world, sherd_attention_paged(sherd_narrow(x[0], 1, 0, 1), x[1], x[2], table, where, 0),
             ways[i][3]);
        sherd_scope_end(world);
    }
    int32_t zero[2] = {0};
    const sherd_layout *sums = layout_of(mesh, 4, SIZES(2, 2, 2, 2), "P", NULL);
    sherd_tensor *pool = sherd_constant_on(sums, SHERD_F32, 1);
    sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(2, 1, 2, 2), 4, 1);
    sherd_tensor *table = numbers(world, 2, 1, zero), *where = numbers(world, 2, 1, zero);
    CHECK_OK(sherd_world_check(world));
    says(world, sherd_attention_paged(q, pool, pool, table, where, 0),
         "a pool must not be pending");
    CHECK(sherd_tensor_failed(sherd_write_paged(pool, table, where, q)));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
}

static void what_cannot_be_written_is_refused(sherd_world *world)
{
    static const char *const ways[][3] = {
        {"R", "S(0)", "the pool is sharded by blocks: the sequences of rows must be, by the same"},
        {"R", "S(1)",
         "sherd_write_paged: the positions of a block must not be sharded: pool is f"}};
    const sherd_mesh *mesh = line_of_ranks(world);
    int32_t zero[2] = {0};

    for (int i = 0; i < LEN(ways); i++) {
        sherd_scope_begin(world);
        sherd_tensor *t = sherd_mark_equal(sherd_constant(world, SHERD_F32, SIZES(2, 2, 3), 3, 1));
        sherd_tensor *rows = sherd_distribute_as(t, mesh, ways[i][0], -1);
        sherd_tensor *pool = sherd_distribute_as(t, mesh, ways[i][1], -1);
        sherd_tensor *table = numbers(world, 2, 1, zero), *where = numbers(world, 2, 1, zero);
        says(world, sherd_write_paged(pool, table, where, sherd_narrow(rows, 1, 0, 1)), ways[i][2]);
        sherd_scope_end(world);
    }
}

static _Thread_local sherd_tensor *operand[6];

static void scene(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_fill(operand[1], 0.5); /* what failed before has lost it */
    sherd_write_paged(operand[1], operand[3], operand[4], operand[5]);
    sherd_attention_paged(operand[0], operand[1], operand[2], operand[3], operand[4], 0.4);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    const lying l = {ranks, NULL, "S(0)", "S(0)", ranks};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int64_t queries = 2; queries <= MOST; queries += MOST - 2) {
        make(world, SHERD_BF16, queries, operand);
        operand[5] = sherd_narrow(operand[1], 1, 0, queries);
        operand[3] = table_of(world, 16, queries, ranks);
        operand[4] = positions(world, queries);
        for (int i = 1; i < 3; i++)
            operand[i] = pool_of(&l, mesh, operand[i], 16, operand[3], places(world, queries));
        operand[0] = laid(operand[0], mesh, "S(0)");
        operand[5] = laid(operand[5], mesh, "S(0)");
        CHECK_OK(sherd_world_check(world));
        fail_every_allocation(world, 0, scene);
        fail_every_allocation(world, ranks - 1, scene);
    }
}

static const check_test tests[] = {
    {TEST(blocks_give_the_bits_of_a_cache), {1, 2, 3, 4, 8}},
    {TEST(nothing_travels), {1, 2, 4}},
    {TEST(empty_ones_are_empty), {1, 2, 3}},
    {TEST(faulty_tables_are_refused_on_all_ranks), {1, 2, 3, 8}},
    {TEST(blocks_of_other_shards_are_refused), {2, 3, 4}},
    {TEST(pools_are_never_moved), {2, 3}},
    {TEST(what_cannot_be_written_is_refused), {2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
