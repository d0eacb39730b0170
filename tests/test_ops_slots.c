/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuous batching: a cache has slots, and the rows of a batch are sequences in any of them,
 * others in each step. Each sequence gets the bits that it gets alone in a cache of its own, few
 * queries and many, if heads or slots are sharded too; slots may consist of blocks in a row.
 */
#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_layers.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum {
    SLOTS = 8,
    ROOM = 24,
    HEADS = 4,
    GROUPS = 2,
    WIDTH = 4,
    BATCH = 4,
    PROMPT = 10, /* of 2 heads that share keys: many queries */
    TOKENS = 14,
    TAKEN = GROUPS * WIDTH,
    GIVEN = HEADS * WIDTH
};

static double number(int sequence, int64_t position, int64_t k, int salt)
{
    return sin(3.1 * sequence + 0.7 * (double)position + 1.3 * (double)k + salt);
}

/* Positions [first, first + n) of some sequences: [count, n, heads, width]. */
static sherd_tensor *tokens(sherd_world *world, const int *sequence, const int *first, int count,
                            int64_t n, int64_t heads, int salt)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F32, SIZES(count, n, heads, WIDTH), 4, 0);
    float *to = sherd_tensor_write(t);

    for (int b = 0; b < count; b++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < heads * WIDTH; k++)
                *to++ = (float)number(sequence[b], first[b] + i, k, salt);
    return sherd_mark_equal(t);
}

static sherd_tensor *places(sherd_world *world, const int *first, int count, int64_t n)
{
    int32_t at[BATCH * PROMPT];

    for (int64_t i = 0; i < count * n; i++)
        at[i] = first[i / n] + (int32_t)(i % n);
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(count, n), 2, at));
}

/* What a sequence gets alone: of all its positions. */
static void alone(sherd_world *world, int sequence, int64_t length, float *out)
{
    const int zero = 0;
    sherd_tensor *cache[2];

    sherd_scope_begin(world);
    for (int i = 0; i < 2; i++)
        cache[i] = tokens(world, &sequence, &zero, 1, ROOM, GROUPS, 1 + i);
    for (int at = 0; at < length; at += at ? 1 : PROMPT) {
        int64_t n = at ? 1 : PROMPT;
        sherd_tensor *q = tokens(world, &sequence, &at, 1, n, HEADS, 0);
        sherd_tensor *y =
            sherd_attention_cached(q, cache[0], cache[1], places(world, &at, 1, n), 0);
        CHECK(
            sherd_full_read(out + at * GIVEN, (size_t)(n * GIVEN) * sizeof *out, y, SHERD_F32, -1));
    }
    sherd_scope_end(world);
}

/* A pool of which a slot is so many blocks. */
typedef struct engine {
    sherd_world *world;
    const sherd_mesh *mesh;
    const char *batch, *cache;
    int blocks;
    sherd_tensor *k, *v;
} engine;

static sherd_tensor *lie(const engine *e, sherd_tensor *t, const char *placements)
{
    return e->mesh ? sherd_distribute_as(t, e->mesh, placements, -1) : t;
}

static engine start(sherd_world *world, const char *batch, const char *cache, int blocks)
{
    engine e = {world, cache ? line_of_ranks(world) : NULL, batch, cache, blocks, NULL, NULL};
    const int64_t shape[] = {SLOTS * blocks, ROOM / blocks, GROUPS, WIDTH};

    e.k = lie(&e, sherd_constant(world, SHERD_F32, shape, 4, (double)NAN), cache);
    e.v = lie(&e, sherd_constant(world, SHERD_F32, shape, 4, (double)NAN), cache);
    return e;
}

/* The next n tokens of each sequence, which is in this slot. */
static void step(const engine *e, const int *sequence, const int *slot, const int *first, int64_t n,
                 float (*wanted)[TOKENS * GIVEN])
{
    static _Thread_local float have[BATCH * PROMPT * GIVEN];
    int32_t table[BATCH * 3];

    sherd_scope_begin(e->world);
    for (int i = 0; i < BATCH * e->blocks; i++)
        table[i] = slot[i / e->blocks] * e->blocks + i % e->blocks;
    sherd_tensor *slots =
        sherd_mark_equal(sherd_from_data(e->world, SHERD_I32, SIZES(BATCH, e->blocks), 2, table));
    sherd_tensor *at = places(e->world, first, BATCH, n);
    sherd_tensor *qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] =
            lie(e, tokens(e->world, sequence, first, BATCH, n, i ? GROUPS : HEADS, i), e->batch);
    CHECK(sherd_write_paged(e->k, slots, at, qkv[1]) == e->k);
    CHECK(sherd_write_paged(e->v, slots, at, qkv[2]) == e->v);
    sherd_tensor *y = sherd_attention_paged(qkv[0], e->k, e->v, slots, at, 0);
    CHECK(sherd_full_read(have, sizeof have, y, SHERD_F32, -1));
    for (int b = 0; b < BATCH; b++)
        CHECK(memcmp(have + b * n * GIVEN, wanted[sequence[b]] + first[b] * GIVEN,
                     (size_t)(n * GIVEN) * sizeof *have) == 0);
    sherd_scope_end(e->world);
    CHECK_OK(sherd_world_check(e->world));
}

/*
 * Four sequences begin; after two tokens, two of them leave, and others take their slots, or those
 * that were free. Slots are in the half of the cache where the rows of the batch are.
 */
static void serve(engine e, float (*wanted)[TOKENS * GIVEN])
{
    static const int first[] = {0, 1, 2, 3}, slots[] = {3, 1, 6, 4};
    static const int then[] = {4, 1, 5, 3}, others[] = {0, 1, 6, 4};
    int at[BATCH] = {0};

    step(&e, first, slots, at, PROMPT, wanted);
    for (int i = 0; i < 2; i++) {
        for (int b = 0; b < BATCH; b++)
            at[b] = PROMPT + i;
        step(&e, first, slots, at, 1, wanted);
    }
    /* The new ones' prompts; the old ones have done theirs, and repeat it. */
    step(&e, then, others, (const int[BATCH]){0}, PROMPT, wanted);
    step(&e, then, others, (const int[BATCH]){PROMPT, PROMPT, PROMPT, PROMPT}, 1, wanted);
    at[0] = at[2] = PROMPT + 1;
    at[1] = at[3] = PROMPT + 2;
    step(&e, then, others, at, 1, wanted);
}

static void sequences_are_in_any_slot(sherd_world *world)
{
    static _Thread_local float wanted[6][TOKENS * GIVEN];
    int ranks = sherd_world_ranks(world);

    for (int i = 0; i < 6; i++)
        alone(world, i, PROMPT + 3, wanted[i]);
    for (int blocks = 1; blocks <= 3; blocks++) {
        serve(start(world, NULL, NULL, blocks), wanted);
        serve(start(world, "R", "R", blocks), wanted);
        serve(start(world, "S(0)", "R", blocks), wanted);
        serve(start(world, "R", "S(2)", blocks), wanted);
        serve(start(world, "S(2)", "S(2)", blocks), wanted);
        if (ranks <= 2) /* slots with the rows of the batch */
            serve(start(world, "S(0)", "S(0)", blocks), wanted);
    }
}

static const check_test tests[] = {{TEST(sequences_are_in_any_slot), {1, 2, 3, 4}}};
CHECK_MAIN(tests)
