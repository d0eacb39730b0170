/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing with a cache on the GPU: what a token adds and what it sees is what causal attention over
 * the whole text gives, on any mesh, and the cache never comes back to the CPU. SHERD_DEVICE is set
 * for this program.
 */
#include <sherd.h>

#include "models.h"
#include "modules.h"
#include "tensor/tensor.h"

enum { BATCH = 2, TEXT = 12, HEADS = 4, GROUPS = 2, WIDTH = 8, PROMPT = 9, BLOCK = 5, BLOCKS = 8 };

static bool only_there(const sherd_tensor *t)
{
    return t->count == 0 || (t->storage->there && !t->storage->here);
}

/* On the GPU: [batch,text,heads,width]. */
static sherd_tensor *drawn_heads(sherd_world *world, const sherd_mesh *mesh, const char *placements,
                                 sherd_dtype dtype, int64_t heads, int salt)
{
    const int64_t shape[] = {BATCH, TEXT, heads, WIDTH};

    return sherd_scale(spread(wave(world, dtype, 4, shape, salt, 1, 0), mesh, placements), 0.5);
}

/* Positions first, first + 1, ... of each item. */
static sherd_tensor *positions_of(sherd_world *world, const sherd_mesh *mesh, int first, int n)
{
    int32_t at[BATCH * TEXT];

    for (int i = 0; i < BATCH * n; i++)
        at[i] = first + i % n;
    sherd_tensor *t = sherd_from_data(world, SHERD_I32, (int64_t[]){BATCH, n}, 2, at);
    return spread(sherd_mark_equal(t), mesh, "R");
}

/* Of a paged cache: the blocks of each item, in disorder. */
static sherd_tensor *blocks_of(sherd_world *world, const sherd_mesh *mesh, bool paged)
{
    static const int32_t table[BATCH][3] = {{6, 1, 4}, {3, 7, 0}};
    sherd_tensor *t = sherd_from_data(world, SHERD_I32, (int64_t[]){BATCH, 3}, 2, table);

    return paged ? spread(sherd_mark_equal(t), mesh, "R") : NULL;
}

/* The same queries as rows that say of which item they are; the last item's come first. */
static sherd_tensor *attend_by_rows(const sherd_mesh *mesh, sherd_tensor *q,
                                    sherd_tensor *const cache[2], sherd_tensor *table, int first)
{
    const int64_t n = sherd_tensor_shape(q)[1], rows = BATCH * n;
    const int64_t shape[] = {BATCH, n, HEADS, WIDTH}, flat[] = {rows, HEADS, WIDTH};
    static const int zero = 0;
    int32_t item[BATCH * TEXT], at[BATCH * TEXT];

    for (int i = 0; i < rows; i++) {
        item[i] = BATCH - 1 - i / (int)n;
        at[i] = first + i % (int)n;
    }
    sherd_tensor *of = sherd_from_data(q->world, SHERD_I32, &rows, 1, item);
    sherd_tensor *where = sherd_from_data(q->world, SHERD_I32, &rows, 1, at);
    sherd_tensor *x = sherd_view(sherd_contiguous(sherd_flip(q, &zero, 1)), flat, 3);
    sherd_tensor *y = sherd_attention_paged_rows(x, cache[0], cache[1], table,
                                                 spread(sherd_mark_equal(of), mesh, "R"),
                                                 spread(sherd_mark_equal(where), mesh, "R"), NULL);

    return sherd_flip(sherd_view(y, shape, 4), &zero, 1);
}

/* The cache at [first, first + n) is written, and read by the queries there. */
static void check_token(sherd_world *world, const sherd_mesh *mesh, sherd_tensor *const qkv[3],
                        sherd_tensor *const cache[2], bool paged, int first, int n, bool there,
                        const double *expected)
{
    static _Thread_local double have[MOST];
    double worst = 0;

    sherd_scope_begin(world);
    sherd_tensor *where = positions_of(world, mesh, first, n);
    sherd_tensor *table = blocks_of(world, mesh, paged), *q = sherd_narrow(qkv[0], 1, first, n);
    for (int i = 0; i < 2; i++) {
        sherd_tensor *rows = sherd_narrow(qkv[1 + i], 1, first, n);
        if (paged)
            sherd_write_paged(cache[i], table, where, rows);
        else
            sherd_write_rows(cache[i], where, rows);
        CHECK(only_there(cache[i]));
    }
    for (int rows = 0; rows <= paged; rows++) {
        sherd_tensor *y = rows    ? attend_by_rows(mesh, q, cache, table, first)
                          : paged ? sherd_attention_paged(q, cache[0], cache[1], table, where, 0)
                                  : sherd_attention_cached(q, cache[0], cache[1], where, 0);
        CHECK(!there || (only_there(y) && only_there(cache[0]) && only_there(cache[1])));
        CHECK_EQ(whole(y, have), BATCH * n * HEADS * WIDTH);
        for (int b = 0; b < BATCH; b++)
            for (int i = 0; i < n * HEADS * WIDTH; i++)
                worst = fmax(worst, fabs(have[b * n * HEADS * WIDTH + i] -
                                         expected[(b * TEXT + first) * HEADS * WIDTH + i]));
    }
    CHECK(worst < 1e-5);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* A prompt at once, of more queries than few, then a token after the other. */
static void write_text(sherd_world *world, const sherd_mesh *mesh, const char *placements,
                       sherd_dtype dtype, bool paged, bool there, bool prompt_there)
{
    static _Thread_local double expected[MOST];
    const sherd_attention_options causal = {.causal = true};
    const int64_t room[] = {paged ? BLOCKS : BATCH, paged ? BLOCK : TEXT, GROUPS, WIDTH};
    sherd_tensor *qkv[3], *cache[2];

    sherd_scope_begin(world);
    for (int i = 0; i < 3; i++)
        qkv[i] = drawn_heads(world, mesh, placements, dtype, i ? GROUPS : HEADS, 3 + i);
    for (int i = 0; i < 2; i++)
        cache[i] = sherd_scale(spread(wave(world, dtype, 4, room, 9, 1, 0), mesh, placements), 9);
    whole(sherd_attention(qkv[0], qkv[1], qkv[2], &causal), expected);
    check_token(world, mesh, qkv, cache, paged, 0, PROMPT, prompt_there, expected);
    for (int at = PROMPT; at < TEXT; at++)
        check_token(world, mesh, qkv, cache, paged, at, 1, there, expected);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void a_text_with_a_cache_is_the_text(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    write_text(world, mesh, "R", SHERD_F32, false, true, true);
    write_text(world, mesh, "S(0)", SHERD_F64, false, true, true);
    write_text(world, mesh, "S(2)", SHERD_F32, false, ranks <= GROUPS, ranks <= GROUPS);
    write_text(world, mesh, "S(1)", SHERD_F32, false, true, ranks == 1);
}

static void so_is_one_with_a_cache_in_blocks(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    write_text(world, mesh, "R", SHERD_F32, true, true, true);
    write_text(world, mesh, "R", SHERD_F64, true, true, true);
    write_text(world, mesh, "S(2)", SHERD_F32, true, ranks <= GROUPS, ranks <= GROUPS);
}

static void bad_positions_are_refused(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    for (int which = 0; which < 4; which++) {
        sherd_scope_begin(world);
        sherd_tensor *table = blocks_of(world, mesh, true), *pool = table;
        sherd_tensor *q = drawn_heads(world, mesh, "R", SHERD_F32, GROUPS, 3);
        sherd_tensor *far = positions_of(world, mesh, 1, TEXT); /* the last one is outside */
        if (which > 1)
            pool = sherd_narrow(q, 1, 0, BLOCK); /* of fewer blocks than the table says */
        if (which == 0)
            sherd_attention_cached(q, q, q, far, 0);
        else if (which == 1)
            sherd_write_rows(sherd_clone(q), far, q);
        else if (which == 2)
            sherd_attention_paged(q, pool, pool, table, far, 0);
        else
            sherd_write_paged(sherd_clone(pool), table, far, q);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "outside of "));
        sherd_scope_end(world);
    }
}

/* Blocks that change places, and copies of one. */
static void copy_blocks(sherd_world *world, const sherd_mesh *mesh, const char *placements,
                        sherd_dtype dtype)
{
    enum { BLOCK_ELEMENTS = BLOCK * GROUPS * WIDTH };
    static const int32_t from[] = {2, 5, 0, 0, -1, 7}, to[] = {5, 2, 1, 6, 3, -1};
    static _Thread_local double before[MOST], expected[MOST];
    const int64_t shape[] = {BLOCKS, BLOCK, GROUPS, WIDTH}, n = LEN(from);

    sherd_scope_begin(world);
    sherd_tensor *pool =
        sherd_scale(spread(wave(world, dtype, 4, shape, 9, 1, 0), mesh, placements), 9);
    sherd_tensor *sources = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, from));
    sherd_tensor *targets = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, to));
    int64_t count = whole(sherd_clone(pool), before);
    memcpy(expected, before, sizeof expected);
    for (int i = 0; i < n; i++)
        if (from[i] >= 0 && to[i] >= 0)
            memcpy(expected + to[i] * BLOCK_ELEMENTS, before + from[i] * BLOCK_ELEMENTS,
                   BLOCK_ELEMENTS * sizeof *before);
    CHECK(only_there(pool));
    CHECK(sherd_copy_rows(pool, sources, targets) == pool);
    CHECK(only_there(pool));
    CHECK_EQ(distance_to(pool, expected, count), 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void blocks_are_copied_there(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)", "S(2)"};
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    for (int i = 0; i < LEN(placements); i++) {
        copy_blocks(world, mesh, placements[i], SHERD_F32);
        copy_blocks(world, mesh, placements[i], SHERD_BF16);
    }
}

/* Bytes of the GPU that so many prompts take at once, beside their result; each of another sequence,
 * whose blocks are the same ones, not in order. */
static int64_t taken_by_prompts(sherd_world *world, const sherd_mesh *mesh, int prompts)
{
    enum { MOST_PROMPTS = 6, ENTRIES = 16, KEYS = ENTRIES * BLOCK };
    int32_t table[MOST_PROMPTS * ENTRIES], item[MOST_PROMPTS * PROMPT], at[MOST_PROMPTS * PROMPT];
    const int64_t rows = (int64_t)prompts * PROMPT, pool[] = {ENTRIES, BLOCK, GROUPS, WIDTH};

    for (int i = 0; i < prompts * ENTRIES; i++)
        table[i] = ENTRIES - 1 - i % ENTRIES;
    for (int i = 0; i < rows; i++) {
        item[i] = i / PROMPT;
        at[i] = KEYS - PROMPT + i % PROMPT;
    }
    sherd_scope_begin(world);
    sherd_tensor *t = sherd_from_data(world, SHERD_I32, (int64_t[]){prompts, ENTRIES}, 2, table);
    sherd_tensor *of = sherd_from_data(world, SHERD_I32, &rows, 1, item);
    sherd_tensor *where = sherd_from_data(world, SHERD_I32, &rows, 1, at);
    sherd_tensor *k = sherd_scale(spread(wave(world, SHERD_F32, 4, pool, 9, 1, 0), mesh, "R"), 9);
    sherd_tensor *q = wave(world, SHERD_F32, 3, (int64_t[]){rows, HEADS, WIDTH}, 4, 1, 0);
    q = sherd_scale(spread(q, mesh, "R"), 1);
    t = spread(sherd_mark_equal(t), mesh, "R");
    of = spread(sherd_mark_equal(of), mesh, "R");
    where = spread(sherd_mark_equal(where), mesh, "R");
    CHECK_OK(sherd_world_check(world));
    int64_t before = sherd_world_memory(world).device_live_bytes;
    sherd_world_memory_reset(world);
    sherd_tensor *y = sherd_attention_paged_rows(q, k, k, t, of, where, NULL);
    CHECK(only_there(y));
    CHECK_OK(sherd_world_check(world));
    int64_t after = sherd_world_memory(world).device_peak_bytes;
    sherd_scope_end(world);
    return after - before - rows * HEADS * WIDTH * (int64_t)sizeof(float);
}

static void prompts_take_memory_for_one(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    int64_t one = taken_by_prompts(world, mesh, 1), six = taken_by_prompts(world, mesh, 6);
    CHECK(one > 0);
    CHECK(six < 2 * one);
}

static const check_test tests[] = {
    {"blocks_are_copied_there", blocks_are_copied_there, {1, 2, 3, 4}},
    {"a_text_with_a_cache_is_the_text", a_text_with_a_cache_is_the_text, {1, 2, 3, 8}},
    {"so_is_one_with_a_cache_in_blocks", so_is_one_with_a_cache_in_blocks, {1, 2, 4}},
    {"prompts_take_memory_for_one", prompts_take_memory_for_one, {1, 2}},
    {"bad_positions_are_refused", bad_positions_are_refused, {1, 3}},
};

CHECK_MAIN(tests)
