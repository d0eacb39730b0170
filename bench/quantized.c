/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows times a weight of 4096 x 4096: in f32 and bf16, and in 8 and 4 bits with scales of rows or
 * of groups of columns, side by side, rows in f32 for the first and in bf16 for the others, and
 * f32 rows in 8 and 4 bits; medians, in milliseconds. Three weights take turns, so that none is in
 * a cache. Then how long copies of the 8 and 4 bits take, the limit of few rows; and a token
 * through two of eight experts of 1024 x 4096, two others each time. A minute of time, 1 GB;
 * with the argument "experts" only these.
 */
#include <sherd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIDE = 4096, WEIGHTS = 3, TIMES = 21, WAYS = 9 };

static const struct {
    const char *name;
    sherd_dtype dtype; /* of rows */
    int bits;          /* 0: the weight has their dtype */
    int64_t group;
} ways[WAYS] = {
    {"f32", SHERD_F32, 0, 0},     {"i8 (f32)", SHERD_F32, 8, 0}, {"i4/32 (f32)", SHERD_F32, 4, 32},
    {"bf16", SHERD_BF16, 0, 0},   {"i8", SHERD_BF16, 8, 0},      {"i8/32", SHERD_BF16, 8, 32},
    {"i4/32", SHERD_BF16, 4, 32}, {"i4/64", SHERD_BF16, 4, 64},  {"i4/128", SHERD_BF16, 4, 128}};

/* The weight of each way, and its scales. */
typedef struct weights {
    sherd_tensor *of[WAYS][WEIGHTS], *scale[WAYS][WEIGHTS];
} weights;

static double milliseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *t)
{
    qsort(t, TIMES, sizeof *t, by_size);
    return t[TIMES / 2];
}

static weights make(sherd_world *world)
{
    static const int64_t shape[] = {SIDE, SIDE};
    sherd_generator dice = sherd_generator_named("weights");
    weights w;

    for (int k = 0; k < WEIGHTS; k++) {
        sherd_tensor *t = sherd_random(world, SHERD_F32, shape, 2, sherd_normal(0, 0.02), &dice);
        for (int i = 0; i < WAYS; i++)
            w.of[i][k] = ways[i].bits
                             ? sherd_quantize(t, ways[i].bits, ways[i].group, &w.scale[i][k])
                             : sherd_cast(t, ways[i].dtype);
    }
    return w;
}

static double once(sherd_world *world, const weights *w, sherd_tensor *x, int way, int k)
{
    sherd_scope_begin(world);
    double begin = milliseconds();
    if (ways[way].bits)
        sherd_linear_quantized(x, w->of[way][k], w->scale[way][k], ways[way].group, NULL);
    else
        sherd_linear(x, w->of[way][k], NULL);
    double took = milliseconds() - begin;
    sherd_scope_end(world);
    return took;
}

static void try_rows(sherd_world *world, const weights *w, int64_t rows)
{
    const int64_t shape[] = {rows, SIDE};
    sherd_generator dice = sherd_generator_named("rows");
    sherd_tensor *wide = sherd_random(world, SHERD_F32, shape, 2, sherd_normal(0, 1), &dice);
    sherd_tensor *x = sherd_cast(wide, SHERD_BF16);
    double took[WAYS][TIMES];

    for (int i = 0; i < TIMES; i++)
        for (int way = 0; way < WAYS; way++)
            took[way][i] =
                once(world, w, ways[way].dtype == SHERD_F32 ? wide : x, way, i % WEIGHTS);
    printf("%4d rows:", (int)rows);
    for (int way = 0; way < WAYS; way++)
        printf("  %s %.2f", ways[way].name, median(took[way]));
    printf("\n");
}

static void try_copy(size_t bytes)
{
    char *from = malloc(WEIGHTS * bytes), *to = malloc(bytes);
    double took[TIMES];

    if (from && to) {
        memset(from, 1, WEIGHTS * bytes);
        memset(to, 1, bytes);
        for (int i = 0; i < TIMES; i++) {
            double begin = milliseconds();
            memcpy(to, from + (size_t)(i % WEIGHTS) * bytes, bytes);
            took[i] = milliseconds() - begin;
        }
        printf("a copy of %.1f MB: %.2f\n", 1e-6 * (double)bytes, median(took));
    }
    free(from);
    free(to);
}

/* ---- experts --------------------------------------------------------------------------------- */

enum { EXPERTS = 8, CHOSEN = 2, HIDDEN = 1024 };

static double token_once(sherd_world *world, int way, sherd_tensor *w, sherd_tensor *scale, int i)
{
    static const int32_t ends[CHOSEN] = {1, 2};
    const int64_t runs = CHOSEN, shape[] = {CHOSEN, SIDE};
    const int32_t chosen[CHOSEN] = {i * CHOSEN % EXPERTS, (i * CHOSEN + 1) % EXPERTS};

    sherd_scope_begin(world);
    sherd_tensor *x = sherd_constant(world, ways[way].dtype, shape, 2, 0.5);
    sherd_tensor *end = sherd_from_data(world, SHERD_I32, &runs, 1, ends);
    sherd_tensor *group = sherd_from_data(world, SHERD_I32, &runs, 1, chosen);
    double begin = milliseconds();
    if (ways[way].bits)
        sherd_grouped_linear_quantized(x, w, scale, ways[way].group, NULL, end, group);
    else
        sherd_grouped_linear(x, w, NULL, end, group);
    double took = milliseconds() - begin;
    sherd_scope_end(world);
    return took;
}

static void try_experts(sherd_world *world)
{
    static const int64_t shape[] = {EXPERTS, HIDDEN, SIDE};
    sherd_generator dice = sherd_generator_named("experts");
    sherd_tensor *t = sherd_random(world, SHERD_F32, shape, 3, sherd_normal(0, 0.02), &dice);
    sherd_tensor *w[WAYS], *scale[WAYS] = {NULL};
    double took[WAYS][TIMES];

    for (int way = 0; way < WAYS; way++)
        w[way] = ways[way].bits ? sherd_quantize(t, ways[way].bits, ways[way].group, &scale[way])
                                : sherd_cast(t, ways[way].dtype);
    for (int i = 0; i < TIMES; i++)
        for (int way = 0; way < WAYS; way++)
            took[way][i] = token_once(world, way, w[way], scale[way], i);
    printf("a token, 2 of 8 experts:");
    for (int way = 0; way < WAYS; way++)
        printf("  %s %.2f", ways[way].name, median(took[way]));
    printf("\n");
}

int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 4, 16, 64, 128, 256, 512};
    sherd_world *world = NULL;

    if (sherd_world_open(&world, NULL))
        return 1;
    if (argc < 2 || strcmp(argv[1], "experts") != 0) {
        const weights w = make(world);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            try_rows(world, &w, rows[i]);
        try_copy((size_t)SIDE * SIDE);
        try_copy((size_t)SIDE * SIDE / 2);
    }
    try_experts(world);
    sherd_status status = sherd_world_check(world);
    if (status)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    sherd_status closed = sherd_world_close(world);
    return status || closed;
}
