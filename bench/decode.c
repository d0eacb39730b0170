/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding's attention: each token's keys and values are written into the caches of some layers,
 * and its queries attend to them. Caches are sharded by heads, also where they lie in blocks of 16
 * positions in disorder, and by positions, where ranks exchange what they found. Ranks are
 * processes; ways take turns. Medians of the time of a token until the last rank is done, tokens a
 * second of all texts, and the rate at which all ranks together read what is in the caches; and
 * some elements of the last layer's result, in which the ways must agree, and which
 * bench/compare_decode.py compares with PyTorch's.
 *
 *     bench/decode [RANKS [LENGTH [HEADS [GROUPS [WIDTH [BATCH [LAYERS [TOKENS [ROUNDS]]]]]]]]]
 *     [--dtype bf16]
 *                  2       4096    32     8       128    1      4       16      5
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sherd.h>

#include "command_line.h"
#include "processes.h"
#include "timing.h"

enum { MOST_ROUNDS = 101, MOST_LAYERS = 64, WAYS = 3, SHOWN = 8, TOGETHER = 16, STEP = 7 };

typedef struct job {
    int64_t ranks, length, heads, groups, width, batch, layers, tokens, rounds;
    const char *dtype_name;
    sherd_dtype dtype;
} job;

typedef struct way {
    const char *name, *cache, *rows;
    bool paged;
    sherd_tensor *table;
    sherd_tensor *k[MOST_LAYERS], *v[MOST_LAYERS], *q, *key, *value;
    double time[MOST_ROUNDS];
    double shown[SHOWN];
} way;

/* Element i of a stream, in [-0.5,0.5): bench/compare_decode.py computes the same. */
static float number(uint64_t stream, uint64_t i)
{
    uint32_t x = (uint32_t)((i + stream * 1000003) * 2654435761u);

    x = (x ^ x >> 15) * 2246822519u;
    return (float)((double)x / 4294967296.0 - 0.5);
}

static sherd_tensor *numbers(sherd_world *world, const job *j, const sherd_mesh *mesh,
                             const char *placements, int64_t positions, int64_t heads, float scale,
                             uint64_t stream)
{
    const int64_t shape[] = {j->batch, positions, heads, j->width};
    sherd_tensor *t = sherd_constant(world, SHERD_F32, shape, 4, 0);
    float *to = sherd_tensor_write(t);

    for (int64_t i = 0; to && i < sherd_tensor_count(t); i++)
        to[i] = scale * number(stream, (uint64_t)i);
    return sherd_distribute_as(sherd_mark_equal(sherd_cast(t, j->dtype)), mesh, placements, -1);
}

/* Of a pool [blocks,positions,..]: block i of a text is (STEP i) % blocks. NULL: failed. */
static sherd_tensor *pool_of(sherd_tensor *rows, sherd_tensor *table, const sherd_mesh *mesh,
                             const char *placements, int64_t blocks)
{
    sherd_world *world = sherd_tensor_world(rows);
    const int64_t *n = sherd_tensor_shape(rows), shape[] = {blocks, TOGETHER, n[2], n[3]};
    const int64_t all[] = {n[0], n[1]};
    sherd_tensor *where = sherd_constant(world, SHERD_I32, all, 2, 0);
    int32_t *to = sherd_tensor_write(where);

    for (int64_t i = 0; to && i < n[0] * n[1]; i++)
        to[i] = (int32_t)(i % n[1]);
    sherd_tensor *pool = sherd_constant(world, sherd_tensor_dtype(rows), shape, 4, 0);
    pool = sherd_distribute_as(pool, mesh, placements, -1);
    return sherd_write_paged(pool, table, sherd_mark_equal(where), rows);
}

/* Which block each text has where. */
static sherd_tensor *table_of(sherd_world *world, const job *j, int64_t entries, int64_t blocks)
{
    sherd_tensor *t = sherd_constant(world, SHERD_I32, (int64_t[]){j->batch, entries}, 2, 0);
    int32_t *to = sherd_tensor_write(t);

    for (int64_t i = 0; to && i < j->batch * entries; i++)
        to[i] = (int32_t)(STEP * i % blocks);
    return sherd_mark_equal(t);
}

/* Caches hold `length` tokens, with room for those that are measured. */
static void make(sherd_world *world, const job *j, const sherd_mesh *mesh, way *w)
{
    int64_t room = j->length + j->tokens, entries = (room + TOGETHER - 1) / TOGETHER;
    int64_t blocks = j->batch * entries + (j->batch * entries % STEP == 0);

    w->table = w->paged ? table_of(world, j, entries, blocks) : NULL;
    for (int64_t i = 0; i < j->layers; i++) {
        sherd_scope_begin(world);
        for (int v = 0; v < 2; v++) {
            sherd_tensor *t = numbers(world, j, mesh, w->cache, room, j->groups, 1,
                                      10 + 2 * (uint64_t)i + (uint64_t)v);
            t = w->paged ? pool_of(t, w->table, mesh, w->cache, blocks) : t;
            (v ? w->v : w->k)[i] = sherd_tensor_retain(t);
        }
        sherd_scope_end(world);
    }
    w->q = numbers(world, j, mesh, w->rows, 1, j->heads, 16, 1);
    w->key = numbers(world, j, mesh, w->rows, 1, j->groups, 1, 2);
    w->value = numbers(world, j, mesh, w->rows, 1, j->groups, 1, 3);
}

static sherd_tensor *token(sherd_world *world, const job *j, const way *w, int64_t position)
{
    sherd_tensor *y = NULL;
    sherd_tensor *at =
        sherd_constant(world, SHERD_I32, (int64_t[]){j->batch, 1}, 2, (double)position);

    for (int64_t i = 0; i < j->layers; i++) {
        if (w->paged) {
            sherd_write_paged(w->k[i], w->table, at, w->key);
            sherd_write_paged(w->v[i], w->table, at, w->value);
            y = sherd_attention_paged(w->q, w->k[i], w->v[i], w->table, at, 0);
            continue;
        }
        sherd_write_rows(w->k[i], at, w->key);
        sherd_write_rows(w->v[i], at, w->value);
        y = sherd_attention_cached(w->q, w->k[i], w->v[i], at, 0);
    }
    return y;
}

static bool measure(sherd_world *world, const job *j, way *w, int64_t round)
{
    bool good = sherd_world_check(world) == SHERD_OK;
    double start = seconds();

    for (int64_t i = 0; i < j->tokens && good; i++) {
        sherd_scope_begin(world);
        sherd_tensor *y = token(world, j, w, j->length + i);
        if (i + 1 < j->tokens)
            sherd_tensor_read(y);
        good = sherd_world_check(world) == SHERD_OK;
        if (i + 1 == j->tokens) {
            double all = seconds();
            w->time[round] = (all - start) / (double)j->tokens;
            sherd_tensor *some = sherd_flatten(sherd_full(y), 0, 3);
            good = sherd_full_read(w->shown, sizeof w->shown, sherd_narrow(some, 0, 0, SHOWN),
                                   SHERD_F64, -1);
        }
        sherd_scope_end(world);
    }
    return good && sherd_world_check(world) == SHERD_OK;
}

static void report(const job *j, way *w)
{
    double time = median(w->time, (int)j->rounds);
    double bytes = (double)(2 * j->batch * (j->length + j->tokens / 2) * j->groups * j->width *
                            j->layers * (int64_t)sherd_dtype_bytes(j->dtype));

    printf("%-24s %9.3f ms  %8.1f tokens/s  %6.1f GB/s  result", w->name, 1e3 * time,
           (double)j->batch / time, 1e-9 * bytes / time);
    for (int i = 0; i < SHOWN; i++)
        printf(" %.6f", w->shown[i]);
    printf("\n");
}

static int body(sherd_world *world, void *payload)
{
    const job *j = payload;
    way ways[WAYS] = {
        {.name = "sharded by heads", .cache = "S(2)", .rows = "S(2)"},
        {.name = "by heads, in blocks", .cache = "S(2)", .rows = "S(2)", .paged = true},
        {.name = "sharded by positions", .cache = "S(1)", .rows = "R"}};
    const sherd_mesh *mesh = NULL;
    bool good = sherd_mesh_create(&mesh, world, 1, &j->ranks, NULL, NULL) == SHERD_OK;

    sherd_set_recording(world, false);
    for (int i = 0; i < WAYS && good; i++)
        make(world, j, mesh, &ways[i]);
    for (int64_t round = 0; round < j->rounds && good; round++)
        for (int i = 0; i < WAYS && good; i++)
            good = measure(world, j, &ways[i], round);
    double apart = 0;
    for (int i = 0; i < SHOWN; i++)
        for (int w = 1; w < WAYS; w++)
            apart = fmax(apart, fabs(ways[0].shown[i] - ways[w].shown[i]));
    for (int i = 0; i < WAYS && good && sherd_world_rank(world) == 0; i++)
        report(j, &ways[i]);
    for (int64_t i = 0; i < WAYS * j->layers; i++) {
        sherd_tensor_release(ways[i % WAYS].k[i / WAYS]);
        sherd_tensor_release(ways[i % WAYS].v[i / WAYS]);
    }
    bool same = apart <= (j->dtype == SHERD_F32 ? 1e-5 : 0.01);
    if (!good || !same)
        fprintf(stderr, "%s\n", good ? "the ways differ" : sherd_world_error(world));
    return good && same ? 0 : 1;
}

int main(int argc, char **argv)
{
    job j = {.ranks = 2,
             .length = 4096,
             .heads = 32,
             .groups = 8,
             .width = 128,
             .batch = 1,
             .layers = 4,
             .tokens = 16,
             .rounds = 5,
             .dtype_name = "bf16"};
    const bench_option options[] = {{NULL, "RANKS", .number = &j.ranks, .most = SHERD_MAX_RANKS},
                                    {NULL, "LENGTH", .number = &j.length},
                                    {NULL, "HEADS", .number = &j.heads},
                                    {NULL, "GROUPS", .number = &j.groups},
                                    {NULL, "WIDTH", .number = &j.width},
                                    {NULL, "BATCH", .number = &j.batch},
                                    {NULL, "LAYERS", .number = &j.layers, .most = MOST_LAYERS},
                                    {NULL, "TOKENS", .number = &j.tokens},
                                    {NULL, "ROUNDS", .number = &j.rounds, .most = MOST_ROUNDS},
                                    {"--dtype", "DTYPE", .text = &j.dtype_name}};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F16};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    for (int i = 0; i < 3; i++)
        if (strcmp(j.dtype_name, sherd_dtype_name(dtypes[i])) == 0)
            j.dtype = dtypes[i];
    if (j.dtype == SHERD_DTYPE_NONE || j.heads % j.groups || j.heads * j.width < SHOWN) {
        fprintf(stderr, "decode: no such dtype, or heads that groups do not divide\n");
        return 2;
    }
    return run_processes(j.ranks, body, &j);
}
