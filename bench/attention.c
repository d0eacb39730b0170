/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of attention of bf16 on one core by shape, forward and backward: by the kernel that the
 * machine's own products of bf16 make (pairs or tiles), and by the one that goes by way of f32, in
 * turns; the medians of several runs. Work is counted as two products forward and five backward, of
 * the keys that queries see.
 *
 *   attention [--width W] [--positions N] [--heads H] [--window N] [--runs N] [--full]
 */
#include "base/num.h"
#include "vector/choose.h"
#include "vector/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attending.h"
#include "command_line.h"
#include "timing.h"

enum { MOST_RUNS = 99, Q = 0, K, V, DOUT, OUT, DQ, DK, DV, TENSORS, MOST_HEADS = 64 };

typedef struct bench {
    sherd__kernel_set set;
    sherd__attending s;
    uint16_t *x[TENSORS];
    float *log_sum;
    void *workspace;
    double peak; /* of bf16, 1e9 FLOP/s; 0: not measured */
    int64_t runs, window;
} bench;

static void run(bench *b, bool backward, bool by_f32)
{
    const sherd__attending *s = &b->s;
    uint16_t *const *x = b->x;

    if (by_f32 && backward)
        b->set.bf16.attention_grad(s, x[DQ], x[DK], x[DV], NULL, x[DOUT], NULL, x[Q], x[K], x[V],
                                   x[OUT], b->log_sum, b->workspace);
    else if (by_f32)
        b->set.bf16.attention(s, x[OUT], b->log_sum, x[Q], x[K], x[V], b->workspace);
    else if (backward)
        b->set.tiles->attention_grad(s, x[DQ], x[DK], x[DV], x[DOUT], x[Q], x[K], x[V], x[OUT],
                                     b->log_sum, b->workspace);
    else
        b->set.tiles->attention(s, x[OUT], b->log_sum, x[Q], x[K], x[V], b->workspace);
}

/* One direction: a line. */
static void measure(bench *b, bool backward)
{
    const sherd__attending *s = &b->s;
    double time[2][MOST_RUNS], best[2] = {0, 0};
    double n = (double)s->keys, most = s->window ? (double)s->window : n;
    double seen = s->causal ? most * (most + 1) / 2 + (n - most) * most : n * n;
    double work =
        (double)(s->batch * s->groups * s->width) * seen * 2 * (backward ? 5 : 2); /* FLOP */

    for (int64_t r = 0; r < b->runs; r++)
        for (int way = b->set.tiles ? 0 : 1; way < 2; way++) {
            double begin = seconds();
            run(b, backward, way);
            time[way][r] = seconds() - begin;
        }
    for (int way = b->set.tiles ? 0 : 1; way < 2; way++)
        best[way] = median(time[way], sherd__int(b->runs));
    printf("%5d %9d %6s %-8s %12.1f", (int)s->width, (int)s->keys, s->causal ? "causal" : "full",
           backward ? "backward" : "forward", best[1] * 1e6);
    if (b->set.tiles)
        printf(" %10.1f %6.2f %8.1f", best[0] * 1e6, best[0] / best[1], work / best[0] * 1e-9);
    if (b->set.tiles && b->peak > 0)
        printf(" %6.0f %%", 100e-9 * work / best[0] / b->peak);
    putchar('\n');
}

/* So many bytes, which begin with a cache line, as tensors do. */
static void *lines(int64_t bytes)
{
    return aligned_alloc(SHERD__LINE, (size_t)(sherd__ceil_div(bytes, SHERD__LINE) * SHERD__LINE));
}

static bool make_tensors(bench *b)
{
    const sherd__attending *s = &b->s;
    int64_t n = s->batch * s->groups * s->keys * s->width;
    int64_t bytes = 2 * b->set.bf16.attention_workspace(s);
    float *wide = lines(4 * n);
    bool good = wide != NULL;

    if (b->set.tiles)
        bytes = sherd__max(bytes, b->set.tiles->bytes(s));
    for (int i = 0; i < TENSORS && good; i++) {
        b->x[i] = lines(2 * n);
        good = b->x[i] != NULL;
        if (!good)
            break;
        b->set.f32.uniform(n, wide, -1, 1, sherd__philox_key(1, 1, (uint64_t)i), 0);
        b->set.bf16.narrow(n, b->x[i], wide);
    }
    free(wide);
    b->log_sum = lines(4 * s->batch * s->groups * s->queries);
    b->workspace = lines(bytes);
    return good && b->log_sum && b->workspace;
}

static void drop_tensors(bench *b)
{
    for (int i = 0; i < TENSORS; i++) {
        free(b->x[i]);
        b->x[i] = NULL;
    }
    free(b->log_sum);
    free(b->workspace);
    b->log_sum = b->workspace = NULL;
}

static bool try_shape(bench *b, int64_t width, int64_t positions, int64_t heads)
{
    int64_t batch = sherd__max(1, 2048 / positions); /* as many rows as a step of the GPT example */

    b->s = self_attention(batch, heads, positions, width, b->s.causal);
    b->s.window = b->s.causal && b->window < positions ? b->window : 0;
    bool good = make_tensors(b);
    if (good) {
        run(b, false, true);
        measure(b, false);
        measure(b, true);
    }
    drop_tensors(b);
    return good;
}

int main(int argc, char **argv)
{
    static const int64_t widths[] = {32, 64, 128}, lengths[] = {256, 1024, 4096};
    int64_t width = 0, positions = 0, heads = 0, runs = 15;
    bool full = false, good = true;
    static bench b;
    const bench_option options[] = {{"--width", "W", .number = &width, .most = 1024},
                                    {"--positions", "N", .number = &positions, .most = 1 << 16},
                                    {"--heads", "H", .number = &heads, .most = MOST_HEADS},
                                    {"--window", "N", .number = &b.window, .most = 1 << 16},
                                    {"--runs", "N", .number = &runs, .most = MOST_RUNS},
                                    {"--full", NULL, .flag = &full}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    sherd__kernels_choose(&b.set);
    b.peak = sherd__measure_rates(&b.set).bf16;
    b.runs = runs;
    b.s.causal = !full;
    printf("bf16, one core, peak %.0f GFLOP/s\n", b.peak);
    printf("width positions        direction  by f32, us         us  ratio  GFLOP/s  of peak\n");
    for (int w = 0; w < (width ? 1 : 3) && good; w++)
        for (int n = 0; n < (positions ? 1 : 3) && good; n++) {
            int64_t wide = width ? width : widths[w];
            good = try_shape(&b, wide, positions ? positions : lengths[n],
                             heads ? heads : sherd__max(1, 256 / wide));
        }
    return !good;
}
