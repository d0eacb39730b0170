/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to a cache that is sharded by positions, heads and batch: as unsharded attention with a
 * mask, whoever holds which keys, few queries and many, ranks that see nothing, rounded dtypes.
 * Ranks exchange results, never keys; where only heads and batch are sharded, results have the bits
 * of one rank.
 */
#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_layers.h"
#include "differ.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { BATCH = 3, ROOM = 71, GROUPS = 2, HEADS = 6, WIDTH = 20, MOST = 24 };

/* q, k, v of a dtype. */
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

/* Item 0 is at the end of the cache, item 1 at its begin, item 2 here and there; some rows are no
 * token. */
static int32_t position(int64_t b, int64_t i, int64_t queries)
{
    if (b == 0)
        return (int32_t)(ROOM - queries + i);
    if (b == 1)
        return i == 0 && queries > 1 ? -1 : (int32_t)i;
    return i % 5 == 3 ? -1 - (int32_t)i : (int32_t)((29 + 31 * i) % ROOM);
}

static sherd_tensor *positions(sherd_world *world, int64_t queries)
{
    int32_t where[BATCH * MOST];

    for (int64_t i = 0; i < BATCH * queries; i++)
        where[i] = position(i / queries, i % queries, queries);
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(BATCH, queries), 2, where));
}

/* By attention with a mask of what each query sees. */
static sherd_tensor *expected(sherd_world *world, sherd_tensor **x, int64_t queries,
                              const sherd_cached_options *how)
{
    static _Thread_local uint8_t seen[BATCH * MOST * ROOM];

    for (int64_t i = 0; i < BATCH * queries * ROOM; i++) {
        int64_t at = position(i / ROOM / queries, i / ROOM % queries, queries);
        seen[i] = i % ROOM <= at && (!how->window || i % ROOM > at - how->window);
    }
    sherd_tensor *mask =
        sherd_from_data(world, SHERD_BOOL, SIZES(BATCH, 1, queries, ROOM), 4, seen);
    return sherd_attention(x[0], x[1], x[2],
                           &(sherd_attention_options){.mask = sherd_mark_equal(mask),
                                                      .scale = how->scale,
                                                      .softcap = how->softcap});
}

/* A mesh, where queries and keys lie on it; for so many ranks. */
typedef struct lying {
    int ranks;
    const char *mesh, *q, *k;
} lying;

static const lying cases[] = {{1, "x=1", "R", "S(1)"},
                              {1, "x=1", NULL, NULL},
                              {2, "x=2", "R", "S(1)"},
                              {2, "x=2", "S(1)", "S(1)"},
                              {2, "x=2", "S(2)", "S(1)"},
                              {2, "x=2", "R", "S(1) 1:2,69"},
                              {2, "x=2", "S(0)", "S(1) 1:70,1"},
                              {3, "x=3", "R", "S(1)"},
                              {3, "x=3", "R", "S(1) 1:5,0,66"},
                              {3, "x=3", "S(2)", "S(1) 1:0,71,0"},
                              {4, "x=4", "R", "S(1)"},
                              {4, "x=4", "R", "S(1) 1:1,1,1,68"},
                              {4, "x=2,y=2", "RS(2)", "S(1)S(2)"},
                              {4, "x=2,y=2", "S(0)R", "S(0)S(1)"},
                              {4, "x=2,y=2", "RR", "S(1)S(1)"},
                              {4, "x=2,y=2", "RR", "S(1)[1]S(1)[0]"},
                              {4, "x=2,y=2", "S(2)R", "RS(1)"}};

static sherd_tensor *run(sherd_world *world, const lying *l, sherd_tensor *const *x,
                         int64_t queries, const sherd_cached_options *how)
{
    const sherd_mesh *mesh = l->q ? mesh_of(world, l->mesh) : NULL;
    sherd_tensor *y[3];

    for (int i = 0; i < 3; i++)
        y[i] = mesh ? sherd_distribute_as(x[i], mesh, i ? l->k : l->q, -1) : x[i];
    return sherd_attention_cached_with(y[0], y[1], y[2], positions(world, queries), how);
}

static void any_rank_may_hold_any_keys(sherd_world *world)
{
    static const int64_t counts[] = {1, 3, MOST}; /* 9 rows are few, 72 are many */
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};
    static const double tolerance[] = {1e-14, 2e-6, 0.01, 0.002};
    static const int64_t windows[] = {0, 1, 7, 40, ROOM + 5};

    for (int c = 0; c < LEN(cases); c++)
        for (int n = 0; n < LEN(counts) && cases[c].ranks == sherd_world_ranks(world); n++)
            for (int d = 0; d < 2 * LEN(dtypes); d++) {
                sherd_dtype dtype = dtypes[d / 2];
                if (d % 2 && (c + n + d / 2) % check_stride(2)) /* windows and caps of some */
                    continue;
                const sherd_cached_options how = {
                    0.4, d % 2 ? windows[(c + 2 * n + d / 2) % LEN(windows)] : 0,
                    d % 2 && (c + n) % 2 ? 0.9 : 0};
                sherd_tensor *x[3];
                sherd_scope_begin(world);
                make(world, dtype, counts[n], x);
                sherd_tensor *y = run(world, &cases[c], x, counts[n], &how);
                if (!CHECK(differ(y, expected(world, x, counts[n], &how)) <= tolerance[d / 2]))
                    fprintf(stderr, "%s %s %s, %s, %d queries, window %d, cap %g\n", cases[c].mesh,
                            cases[c].q, cases[c].k, sherd_dtype_name(dtype), (int)counts[n],
                            (int)how.window, how.softcap);
                sherd_scope_end(world);
                if (!CHECK_OK(sherd_world_check(world)))
                    return;
            }
}

/* The rest of the cache, and what other shards hold, may be anything. */
static void nothing_behind_is_read(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int64_t queries = 1; queries <= MOST; queries += MOST - 1)
        for (sherd_dtype dtype = SHERD_F32; dtype <= SHERD_F16; dtype++) {
            int32_t at[MOST];
            sherd_scope_begin(world);
            for (int i = 0; i < MOST; i++)
                at[i] = 20 + i;
            sherd_tensor *k = sherd_constant(world, dtype, SIZES(1, ROOM, 1, WIDTH), 4, NAN);
            sherd_fill(sherd_narrow(k, 1, 0, 20 + queries), 0.5);
            k = sherd_distribute_as(sherd_mark_equal(k), mesh, "S(1)", -1);
            sherd_tensor *q = sherd_constant(world, dtype, SIZES(1, queries, 2, WIDTH), 4, 1);
            sherd_tensor *where = sherd_from_data(world, SHERD_I32, SIZES(1, queries), 2, at);
            sherd_tensor *y = sherd_attention_cached(q, k, k, sherd_mark_equal(where), 0);
            sherd_tensor *half = sherd_constant(world, dtype, SIZES(1, queries, 2, WIDTH), 4, 0.5);
            CHECK(differ(y, half) <= 1e-6);
            /* nor before windows */
            sherd_tensor *late = sherd_constant(world, dtype, SIZES(1, ROOM, 1, WIDTH), 4, NAN);
            sherd_fill(sherd_narrow(late, 1, 17, 3 + queries), 0.5);
            late = sherd_distribute_as(sherd_mark_equal(late), mesh, "S(1)", -1);
            y = sherd_attention_cached_with(q, late, late, where,
                                            &(sherd_cached_options){.window = 4});
            CHECK(differ(y, half) <= 1e-6);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* No rank gets keys: width + 1 numbers of each other rank for each query and head. */
static void only_results_travel(sherd_world *world)
{
    const int64_t others = sherd_world_ranks(world) - 1;
    sherd_tensor *x[3];

    make(world, SHERD_F32, 2, x);
    for (int i = 0; i < 3; i++)
        x[i] = sherd_distribute_as(x[i], line_of_ranks(world), i ? "S(1)" : "R", -1);
    sherd_tensor *where = sherd_distribute_as(positions(world, 2), line_of_ranks(world), "R", -1);
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_attention_cached(x[0], x[1], x[2], where, 0);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_comm_calls(world, NULL), others > 0);
    CHECK_EQ(sherd_comm_bytes(world, NULL), others * BATCH * 2 * HEADS * (WIDTH + 1) * 4);
}

/* Shards of heads and of the batch have the bits of one rank; so has an item alone. */
static void heads_and_items_keep_their_bits(sherd_world *world)
{
    static const char *const ways[] = {"S(0)", "S(2)"};

    for (int n = 0; n < 8; n++) {
        sherd_dtype dtype = (sherd_dtype[]){SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16}[n / 2];
        sherd_tensor *x[3], *one[3];
        sherd_scope_begin(world);
        make(world, dtype, 3, x);
        const sherd_cached_options how = {.scale = 0.4};
        sherd_tensor *y = run(world, &(lying){.q = NULL}, x, 3, &how);
        const lying l = {0, NULL, ways[n % 2], ways[n % 2]};
        for (int i = 0; i < 3; i++)
            one[i] = sherd_distribute_as(x[i], line_of_ranks(world), l.q, -1);
        CHECK(differ(sherd_attention_cached(one[0], one[1], one[2], positions(world, 3), 0.4), y) ==
              0);
        for (int64_t b = 0; b < BATCH; b++) {
            for (int i = 0; i < 3; i++)
                one[i] = sherd_narrow(x[i], 0, b, 1);
            sherd_tensor *at = sherd_narrow(positions(world, 3), 0, b, 1);
            CHECK(differ(sherd_attention_cached(one[0], one[1], one[2], at, 0.4),
                         sherd_narrow(y, 0, b, 1)) == 0);
        }
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Nothing of one dim: batch, queries, keys, width. */
static void empty_ones_are_empty(sherd_world *world)
{
    for (int d = 0; d < 4; d++) {
        int64_t n[] = {2, 3, 4, 5};
        n[d] = 0;
        int32_t at[6] = {-1, -1, -1, -1, -1, -1};
        sherd_scope_begin(world);
        sherd_tensor *where = sherd_from_data(world, SHERD_I32, n, 2, at);
        sherd_tensor *q = sherd_constant(world, SHERD_F32, SIZES(n[0], n[1], 2, n[3]), 4, 1);
        sherd_tensor *k = sherd_constant(world, SHERD_F32, SIZES(n[0], n[2], 2, n[3]), 4, 1);
        for (int sharded = 0; sharded < 2; sharded++) {
            sherd_tensor *cache =
                sharded ? sherd_distribute_as(k, line_of_ranks(world), "S(1)", -1) : k;
            sherd_tensor *x = sharded ? sherd_distribute_as(q, line_of_ranks(world), "R", -1) : q;
            sherd_tensor *y = sherd_attention_cached(x, cache, cache, sherd_mark_equal(where), 0);
            CHECK(differ(y, sherd_mul(q, sherd_constant(world, SHERD_F32, NULL, 0, 0))) == 0);
        }
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

static void far_positions_are_refused_on_all_ranks(sherd_world *world)
{
    static const int32_t at[] = {ROOM, 0, 0};
    sherd_tensor *x[3];

    make(world, SHERD_F32, 1, x);
    for (int i = 1; i < 3; i++)
        x[i] = sherd_distribute_as(x[i], line_of_ranks(world), "S(1)", -1);
    sherd_tensor *where = sherd_from_data(world, SHERD_I32, SIZES(BATCH, 1), 2, at);
    sherd_attention_cached(x[0], x[1], x[2], sherd_mark_equal(where), 0);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "position 71 is outside of a cache of 71") != NULL);
}

static _Thread_local sherd_tensor *operand[4];

static void scene(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_attention_cached(operand[0], operand[1], operand[2], operand[3], 0.4);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    for (int64_t queries = 2; queries <= MOST; queries += MOST - 2) {
        make(world, SHERD_BF16, queries, operand);
        for (int i = 0; i < 3; i++)
            operand[i] =
                sherd_distribute_as(operand[i], line_of_ranks(world), i ? "S(1)" : "R", -1);
        operand[3] = positions(world, queries);
        CHECK_OK(sherd_world_check(world));
        fail_every_allocation(world, 0, scene);
        fail_every_allocation(world, sherd_world_ranks(world) - 1, scene);
    }
}

static const check_test tests[] = {
    {TEST(any_rank_may_hold_any_keys), {1, 2, 3, 4}},
    {TEST(nothing_behind_is_read), {1, 2, 3}},
    {TEST(only_results_travel), {1, 2, 3, 4}},
    {TEST(heads_and_items_keep_their_bits), {1, 2, 3}},
    {TEST(empty_ones_are_empty), {1, 2, 3}},
    {TEST(far_positions_are_refused_on_all_ranks), {1, 2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
