/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of rows to blocks of a pool: parts of prompts, single tokens and rows that are no
 * tokens in one call. A run of rows has the bits that it has alone, as a batch of one, whatever is
 * beside it and however heads are sharded. A faulty row is refused on all ranks.
 */
#include <math.h>

#include "sherd/ops_serving.h"
#include "sherd/comm.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { SEQUENCES = 5, ENTRIES = 9, TOGETHER = 5, BLOCKS = SEQUENCES * ENTRIES };
enum { GROUPS = 4, HEADS = 8, WIDTH = 12, RUNS = 7, ROWS = 23 + 1 + 1 + 2 + 1 + 12 + 3 };

/* New tokens of a sequence: rows at the positions `first`, first + 1, ... */
static const struct {
    int64_t rows, sequence, first;
} runs[RUNS] = {{23, 2, 9}, {1, 0, 0}, {1, 4, 44}, {2, -8, -5}, {1, 3, 17}, {12, 1, 0}, {3, 4, 2}};

static sherd_tensor *numbers(sherd_world *world, int ndim, const int64_t *shape,
                             const int32_t *from)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, ndim, from));
}

static sherd_tensor *wave(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                          double start)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F64, shape, ndim, 0);
    double *to = sherd_tensor_write(t);

    for (int64_t j = 0; j < sherd_tensor_count(t); j++)
        to[j] = sin(start + 1.3 * (double)j);
    return sherd_cast(sherd_mark_equal(t), dtype);
}

/* Both whole, as numbers. */
static bool are_equal(sherd_tensor *a, sherd_tensor *b)
{
    static _Thread_local double x[ROWS * HEADS * WIDTH], y[ROWS * HEADS * WIDTH];

    return CHECK(sherd_full_read(x, sizeof x, a, SHERD_F64, -1)) &&
           CHECK(sherd_full_read(y, sizeof y, b, SHERD_F64, -1)) &&
           memcmp(x, y, (size_t)sherd_tensor_count(b) * sizeof *x) == 0;
}

/* What a call takes: q, k, v, table, sequence, positions. */
enum { Q, K, V, TABLE, SEQUENCE, WHERE, OPERANDS };

static void make(sherd_world *world, sherd_dtype dtype, sherd_tensor **x)
{
    int32_t table[BLOCKS], sequence[ROWS], where[ROWS];

    for (int i = 0; i < BLOCKS; i++)
        table[i] = i / ENTRIES == 1 ? i : (i * 7 + 3) % BLOCKS; /* those of one are neighbours */
    for (int r = 0, at = 0; r < RUNS; r++)
        for (int i = 0; i < runs[r].rows; i++, at++) {
            sequence[at] = (int32_t)runs[r].sequence;
            where[at] = (int32_t)(runs[r].first + (runs[r].first < 0 ? 0 : i));
        }
    x[Q] = wave(world, dtype, SIZES(ROWS, HEADS, WIDTH), 3, 0);
    x[K] = wave(world, dtype, SIZES(BLOCKS, TOGETHER, GROUPS, WIDTH), 4, 3);
    x[V] = wave(world, dtype, SIZES(BLOCKS, TOGETHER, GROUPS, WIDTH), 4, 5);
    x[TABLE] = numbers(world, 2, SIZES(SEQUENCES, ENTRIES), table);
    x[SEQUENCE] = numbers(world, 1, SIZES(ROWS), sequence);
    x[WHERE] = numbers(world, 1, SIZES(ROWS), where);
}

static sherd_tensor *attend(sherd_tensor *const *x, const sherd_cached_options *how)
{
    return sherd_attention_paged_rows(x[Q], x[K], x[V], x[TABLE], x[SEQUENCE], x[WHERE], how);
}

/* A run as a batch of one sequence; of rows that are no tokens, of any. */
static sherd_tensor *alone(sherd_tensor *const *x, int r, int64_t at,
                           const sherd_cached_options *how)
{
    int64_t n = runs[r].rows, sequence = runs[r].sequence < 0 ? 0 : runs[r].sequence;
    sherd_tensor *y =
        sherd_attention_paged_with(sherd_unsqueeze(sherd_narrow(x[Q], 0, at, n), 0), x[K], x[V],
                                   sherd_narrow(x[TABLE], 0, sequence, 1),
                                   sherd_unsqueeze(sherd_narrow(x[WHERE], 0, at, n), 0), how);

    return sherd_squeeze(y, 0);
}

static void runs_have_the_bits_that_they_have_alone(sherd_world *world)
{
    static const char *const ways[][2] = {{NULL, NULL},     {"R", "R"},    {"S(1)", "S(2)"},
                                          {"S(0)", "S(2)"}, {"R", "S(2)"}, {"S(1)", "R"}};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F64};
    static const sherd_cached_options hows[] = {{0, 0, 0}, {0.4, 7, 0.9}};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 6 * (int)LEN(ways); i++) {
        const sherd_cached_options *how = &hows[i % 2];
        const char *const *way = ways[i / 6];
        sherd_tensor *x[OPERANDS], *there[OPERANDS];
        sherd_scope_begin(world);
        make(world, dtypes[i / 2 % 3], x);
        memcpy(there, x, sizeof x);
        for (int j = 0; j <= V && way[0]; j++)
            there[j] = sherd_distribute_as(x[j], mesh, way[j > 0], -1);
        sherd_tensor *y = sherd_full(attend(there, how));
        for (int64_t r = 0, at = 0; r < RUNS; at += runs[r++].rows)
            if (!CHECK(are_equal(sherd_narrow(y, 0, at, runs[r].rows), alone(x, (int)r, at, how))))
                fprintf(stderr, "  %s, run %d\n", way[0] ? way[0] : "plain", (int)r);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* More ranks than heads of keys: those that share one have some of its heads of queries each, and
 * the key beside them. Nothing is sent, and results stay where they are. */
static void ranks_may_share_a_head_of_keys(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    sherd_tensor *x[OPERANDS], *there[OPERANDS];

    CHECK_OK(sherd_mesh_parse(&mesh, world, "kv=4,r=2"));
    make(world, SHERD_F32, x);
    memcpy(there, x, sizeof x);
    there[Q] = sherd_distribute_as(x[Q], mesh, "S(1)S(1)", -1);
    for (int i = K; i <= V; i++)
        there[i] = sherd_distribute_as(x[i], mesh, "S(2)R", -1);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_op_move(world, SHERD_MOVES_NEVER));
    sherd_tensor *rows = attend(there, NULL);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_op_move(world, SHERD_MOVES_SILENTLY));
    CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(rows)), "S(1)S(1)");
    CHECK(are_equal(sherd_full(rows), attend(x, NULL)));
    CHECK_OK(sherd_world_check(world));
}

/* Each shard has sequences of its own, in one table, and rows of them: it reads the blocks it has,
 * nothing travels. */
static void a_pool_sharded_by_blocks_has_rows_of_each_shard(sherd_world *world)
{
    enum { EACH = 5, MANY = 8 };
    static const int32_t of[EACH] = {0, 0, 0, 1, 7}, at[EACH] = {2, 3, 4, 0, -1};
    int ranks = sherd_world_ranks(world), heads = ranks % 2 ? 1 : 2, shards = ranks / heads;
    int32_t blocks[MANY * 4], sequence[MANY * EACH], where[MANY * EACH];
    const sherd_mesh *mesh = NULL;
    sherd_tensor *x[OPERANDS], *there[OPERANDS];

    CHECK_OK(sherd_mesh_create(&mesh, world, 2, (int64_t[]){shards, heads}, NULL, NULL));
    for (int i = 0; i < 4 * shards; i++) /* backwards in each shard */
        blocks[i] = (int32_t)(i / 4 * 4 + 3 - i % 4);
    for (int i = 0; i < EACH * shards; i++) {
        sequence[i] = (int32_t)(of[i % EACH] + i / EACH * 2);
        where[i] = at[i % EACH];
    }
    x[Q] = wave(world, SHERD_F32, SIZES(EACH * shards, HEADS, WIDTH), 3, 0);
    x[K] = wave(world, SHERD_F32, SIZES(4 * shards, 3, GROUPS, WIDTH), 4, 3);
    x[V] = wave(world, SHERD_F32, SIZES(4 * shards, 3, GROUPS, WIDTH), 4, 5);
    x[TABLE] = numbers(world, 2, SIZES(2 * shards, 2), blocks);
    x[SEQUENCE] = numbers(world, 1, SIZES(EACH * shards), sequence);
    x[WHERE] = numbers(world, 1, SIZES(EACH * shards), where);
    memcpy(there, x, sizeof x);
    for (int j = 0; j <= V; j++)
        there[j] = sherd_distribute_as(x[j], mesh, j ? "S(0)S(2)" : "S(0)S(1)", -1);
    sherd_comm_reset(world);
    sherd_tensor *y = attend(there, NULL);
    CHECK_EQ(sherd_comm_calls(world, NULL), 0);
    CHECK(sherd_tensor_layout(y) == sherd_tensor_layout(there[Q]));
    CHECK(are_equal(y, attend(x, NULL)));
    CHECK_OK(sherd_world_check(world));

    where[3] = where[0] + 1; /* a fault of the first shard's third row */
    sequence[3] = (int32_t)(2 * shards);
    there[SEQUENCE] = numbers(world, 1, SIZES(EACH * shards), sequence);
    there[WHERE] = numbers(world, 1, SIZES(EACH * shards), where);
    attend(there, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "row 3 is of sequence ") != NULL);
    if (shards == 1)
        return;
    sequence[3] = 3; /* of the next shard, whose blocks this one has not */
    there[SEQUENCE] = numbers(world, 1, SIZES(EACH * shards), sequence);
    attend(there, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "outside of the blocks from 0 to 3") != NULL);
}

/* What was written by rows of the table for each token is what the rows see. */
static void rows_are_written_by_rows_of_the_table(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const int32_t tables[] = {3, 1, 0, 2}, sequence[] = {0, 0, 0, 1}, where[] = {1, 2, 3, 0};
    sherd_tensor *k =
        sherd_distribute_as(wave(world, SHERD_F32, SIZES(4, 4, 2), 3, 1), mesh, "S(1)", -1);
    sherd_tensor *pool = sherd_distribute_as(
        sherd_mark_equal(sherd_constant(world, SHERD_F32, SIZES(4, 2, 4, 2), 4, 0)), mesh, "S(2)",
        -1);
    sherd_tensor *table = numbers(world, 2, SIZES(2, 2), tables);
    sherd_tensor *of = numbers(world, 1, SIZES(4), sequence),
                 *at = numbers(world, 1, SIZES(4), where);
    sherd_tensor *rows = sherd_index_select(table, 0, of);

    sherd_write_paged(pool, rows, sherd_unsqueeze(at, 1), sherd_unsqueeze(k, 1));
    /* Blocks 3 and 1 have the first sequence, block 0 the first token of the second. */
    for (int i = 0; i < 4; i++) {
        int64_t block = i == 3 ? 0 : i == 0 ? 3 : 1, in = i == 0 || i == 2;
        sherd_tensor *there = sherd_select(sherd_select(sherd_full(pool), 0, block), 0, in);
        CHECK(are_equal(there, sherd_select(sherd_full(k), 0, i)));
    }
    CHECK_OK(sherd_world_check(world));
}

static void nothing_is_attended_to_by_nothing(sherd_world *world)
{
    sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(0, 4, 2), 3, 1);
    sherd_tensor *pool = sherd_constant(world, SHERD_F32, SIZES(0, 3, 2, 2), 4, 1);
    sherd_tensor *table = numbers(world, 2, SIZES(0, 0), (int32_t[]){0});
    sherd_tensor *none = numbers(world, 1, SIZES(0), (int32_t[]){0});
    sherd_tensor *two = numbers(world, 1, SIZES(2), (int32_t[]){-1, -2});
    sherd_tensor *y = sherd_attention_paged_rows(q, pool, pool, table, none, none, NULL);

    CHECK_EQ(sherd_tensor_count(y), 0);
    q = sherd_constant(world, SHERD_F32, SIZES(2, 4, 2), 3, 1);
    y = sherd_attention_paged_rows(q, pool, pool, table, two, two, NULL);
    CHECK(are_equal(y, sherd_scale(q, 0)));
    CHECK_OK(sherd_world_check(world));
}

static void says(sherd_world *world, sherd_tensor *y, const char *text)
{
    (void)y;
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

static void faulty_rows_are_refused_on_all_ranks(sherd_world *world)
{
    static const struct {
        int32_t sequence[3], where[3];
        const char *way, *text;
    } bad[] = {
        {{0, 0, 2}, {0, 1, 0}, "R", "row 2 is of sequence 2, the table has 2"},
        {{0, -1, 1}, {0, 1, 0}, "S(2)", "row 1 is of sequence -1, the table has 2"},
        {{0, 0, 1}, {0, 1, 8}, "S(2)", "position 8 of sequence 1 is beyond its table"},
        {{0, 0, 1}, {0, 1, 7}, "R", "table[1,1] is 9, outside of a pool of 6 blocks"},
        {{0, 0, 1}, {0, 1, 0}, "S(0)", "the pool is sharded by blocks: the rows of q must be"},
        {{0, 0, 1}, {0, 1, 0}, "S(1)", "a pool may be sharded by blocks and heads only"}};
    static const int32_t blocks[] = {0, 1, 2, 9};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < (int)LEN(bad); i++) {
        sherd_scope_begin(world);
        sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(3, 8, 2), 3, 1);
        sherd_tensor *pool = sherd_distribute_as(
            sherd_mark_equal(sherd_constant(world, SHERD_F32, SIZES(6, 4, 8, 2), 4, 1)), mesh,
            bad[i].way, -1);
        sherd_tensor *table = numbers(world, 2, SIZES(2, 2), blocks);
        sherd_tensor *sequence = numbers(world, 1, SIZES(3), bad[i].sequence);
        sherd_tensor *where = numbers(world, 1, SIZES(3), bad[i].where);
        CHECK_OK(sherd_world_check(world));
        says(world,
             sherd_attention_paged_rows(sherd_mark_equal(q), pool, pool, table, sequence, where,
                                        NULL),
             bad[i].text);
        sherd_scope_end(world);
    }
}

/* Bytes that a call takes: rows that follow one another, all of sequence 0, or each of its own. */
static int64_t bytes_for(sherd_world *world, sherd_tensor *pool, sherd_tensor *table, int64_t rows,
                         bool together)
{
    int32_t sequence[64], where[64];

    for (int32_t i = 0; i < rows; i++) {
        sequence[i] = together ? 0 : i;
        where[i] = 7 + (together ? i : 0);
    }
    sherd_scope_begin(world);
    sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(rows, 8, 16), 3, 1);
    sherd_tensor *of = numbers(world, 1, SIZES(rows), sequence);
    sherd_tensor *at = numbers(world, 1, SIZES(rows), where);
    sherd_world_memory_reset(world);
    int64_t live = sherd_world_memory(world).live_bytes;
    CHECK(!sherd_tensor_failed(sherd_attention_paged_rows(q, pool, pool, table, of, at, NULL)));
    int64_t most = sherd_world_memory(world).peak_bytes - live;
    sherd_world_memory_reset(world);
    sherd_attention_paged(sherd_unsqueeze(q, together ? 0 : 1), pool, pool,
                          sherd_narrow(table, 0, 0, together ? 1 : rows),
                          sherd_unsqueeze(at, together ? 0 : 1), 0);
    int64_t batch = sherd_world_memory(world).peak_bytes - live;
    sherd_scope_end(world);
    return batch > most ? batch : most;
}

/* A table has room for 64 Ki positions, whose keys would take 16 MB; a few blocks are seen. */
static void memory_goes_by_what_rows_see(sherd_world *world)
{
    enum { ENTRIES_EACH = 4096, MANY = 32 };
    static _Thread_local int32_t blocks[MANY * ENTRIES_EACH];
    sherd_tensor *pool = sherd_constant(world, SHERD_F32, SIZES(64, 16, 4, 16), 4, 1);

    for (int i = 0; i < LEN(blocks); i++)
        blocks[i] = (i * 7 + 1) % 64;
    sherd_tensor *table = numbers(world, 2, SIZES(MANY, ENTRIES_EACH), blocks);
    CHECK(bytes_for(world, pool, table, MANY, false) < 1 << 20);
    CHECK(bytes_for(world, pool, table, MANY, true) < 1 << 20);
    CHECK_OK(sherd_world_check(world));
}

static _Thread_local sherd_tensor *operand[OPERANDS];

static void scene(sherd_world *world)
{
    sherd_scope_begin(world);
    attend(operand, NULL);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    make(world, SHERD_BF16, operand);
    for (int i = Q; i <= V; i++)
        operand[i] = sherd_distribute_as(operand[i], line_of_ranks(world), i ? "S(2)" : "S(1)", -1);
    CHECK_OK(sherd_world_check(world));
    fail_every_allocation(world, sherd_world_ranks(world) - 1, scene);
}

static const check_test tests[] = {
    {TEST(a_pool_sharded_by_blocks_has_rows_of_each_shard), {1, 2, 3, 4, 8}},
    {TEST(runs_have_the_bits_that_they_have_alone), {1, 2, 3, 4, 8}},
    {TEST(ranks_may_share_a_head_of_keys), {8}},
    {TEST(rows_are_written_by_rows_of_the_table), {1, 2, 3, 4}},
    {TEST(nothing_is_attended_to_by_nothing), {1, 2}},
    {TEST(faulty_rows_are_refused_on_all_ranks), {2, 3}},
    {TEST(memory_goes_by_what_rows_see), {1, 2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
