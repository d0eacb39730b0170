/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of every kernel of f32, or f64, at the size of the benchmark GPT (rows 2048, dim 256, MLP
 * 1024, 8 heads of 32, context 256, batch 8, vocabulary 256; and of a long sequence: 4096
 * positions, 2 heads of 64), beside the plain version and beside what the machine can do. A figure
 * is the median of several runs, the versions in turn; bytes are those that must move, in and out.
 *
 *   kernels [--dtype f64] [part of a name]     SHERD_KERNELS and SHERD_GEMM choose less
 */
#include "kernels/engine.h"
#include "kernels/ref.h"
#include "base/num.h"
#include "vector/choose.h"
#include "vector/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attending.h"
#include "command_line.h"
#include "timing.h"

enum {
    BATCH = 8,
    CONTEXT = 256,
    HEADS = 8,
    WIDTH = 32,
    ROWS = BATCH * CONTEXT,
    DIM = HEADS * WIDTH,
    MLP = 4 * DIM,
    VOCABULARY = 256,
    LONG_CONTEXT = 4096,
    LONG_HEADS = 2,
    LONG_WIDTH = 64,
    PARAMETERS = 1 << 20,
    ROOM = ROWS * MLP, /* elements of the largest operand */
    OPERANDS = 8,
    RUNS = 9
};

static const int64_t one = 1;

typedef struct bench {
    char *x[OPERANDS];
    int32_t ids[ROWS];
    sherd_dtype dtype;
    size_t element;
    const sherd__kernels *k;
    sherd__kernel_set set;
    sherd__engine *engine;
    sherd__attending attention, sequence;
} bench;

typedef struct job {
    const char *name;
    void (*run)(bench *b);
    double bytes; /* of f32, moved between kernel and memory at least */
    double flops; /* of matrix products; 0 where bytes count */
} job;

/* Operand i from an element on. */
static void *from(bench *b, int i, int64_t element)
{
    return b->x[i] + (size_t)element * b->element;
}

static void gelu(bench *b)
{
    b->k->unary(SHERD__GELU, ROWS * MLP, b->x[0], b->x[1], NULL);
}

static void gelu_grad(bench *b)
{
    const int64_t n = ROWS * MLP;
    b->k->unary_grad(SHERD__GELU, n, b->x[0], b->x[1], b->x[2], NULL);
}

static void layer_norm(bench *b)
{
    b->k->layer_norm(ROWS, DIM, b->x[0], b->x[3], b->x[4], b->x[1], b->x[5], b->x[6], 1e-5);
}

static void layer_norm_grad(bench *b)
{
    b->k->layer_norm_grad(ROWS, DIM, b->x[0], from(b, 2, DIM), b->x[2], b->x[1], b->x[7], b->x[5],
                          b->x[3], b->x[4], false);
}

static void add_norm_grad(bench *b)
{
    const sherd__added_grad p = {.dy = b->x[1],
                                 .sum = b->x[7],
                                 .dsum = b->x[6],
                                 .weight = b->x[5],
                                 .mean = b->x[3],
                                 .rstd = b->x[4],
                                 .dx = b->x[0],
                                 .dweight = from(b, 2, DIM),
                                 .dbias = b->x[2]};
    b->k->add_norm_grad(ROWS, DIM, &p);
}

static void add(bench *b)
{
    const int64_t n = ROWS * DIM;
    b->k->binary(SHERD__ADD, 1, &n, b->x[0], b->x[1], &one, b->x[2], &one);
}

static void add_bias(bench *b)
{
    const int64_t size[] = {ROWS, MLP}, along[] = {MLP, 1}, bias[] = {0, 1};
    b->k->binary(SHERD__ADD, 2, size, b->x[0], b->x[1], along, b->x[2], bias);
}

static void sum_bias(bench *b)
{
    b->k->sum(b->x[0], b->x[1], 1, ROWS, MLP, false);
}

static void sum_all(bench *b)
{
    b->k->sum(b->x[0], b->x[1], 1, ROWS * DIM, 1, false);
}

static void sum_squares(bench *b)
{
    *(double *)(void *)b->x[0] = b->k->sum_squares(b->x[1], PARAMETERS);
}

static void reduce(bench *b)
{
    const void *src[] = {b->x[1], b->x[2]};
    b->k->reduce(SHERD_SUM, b->x[0], src, 2, ROWS * DIM, 1);
}

static void scale(bench *b)
{
    b->k->unary(SHERD__SCALE, ROWS * DIM, b->x[0], b->x[1], &(double){0.5});
}

static void dropout(bench *b)
{
    b->k->dropout(ROWS * DIM, b->x[0], b->x[1], 0.1, (sherd__key){{1, 2}, {3, 4}}, 0);
}

static void uniform(bench *b)
{
    b->k->uniform(ROWS * DIM, b->x[0], -1, 1, (sherd__key){{1, 2}, {3, 4}}, 0);
}

static void embedding(bench *b)
{
    b->k->embedding(ROWS, DIM, b->x[0], b->x[1], b->ids, 0, VOCABULARY);
}

static void embedding_grad(bench *b)
{
    b->k->embedding_grad(ROWS, DIM, b->x[0], b->x[1], b->ids, 0, VOCABULARY, NULL);
}

static void cross_entropy(bench *b)
{
    b->k->cross_entropy(ROWS, VOCABULARY, b->x[0], b->x[1], b->ids, 0);
}

static void cross_entropy_join(bench *b)
{
    b->k->cross_entropy(ROWS, VOCABULARY, b->x[2], b->x[1], b->ids, 0);
    b->k->cross_entropy_join(1, ROWS, (double *)(void *)b->x[0], b->x[2]);
}

static void cross_entropy_grad(bench *b)
{
    b->k->cross_entropy_grad(ROWS, VOCABULARY, b->x[0], b->x[1], b->ids, 0,
                             (const double *)(void *)b->x[2], 1.0 / ROWS);
}

static void softmax(bench *b)
{
    b->k->soft_stats(ROWS, VOCABULARY, 1, b->x[2], b->x[4], b->x[1]);
    b->k->soft(SHERD__SOFTMAX, ROWS, VOCABULARY, 1, b->x[0], b->x[1], b->x[2], b->x[4]);
}

static void log_softmax(bench *b)
{
    b->k->soft_stats(ROWS, VOCABULARY, 1, b->x[2], b->x[4], b->x[1]);
    b->k->soft(SHERD__LOG_SOFTMAX, ROWS, VOCABULARY, 1, b->x[0], b->x[1], b->x[2], b->x[4]);
}

static void softmax_grad(bench *b)
{
    sherd__soft_grad_whole(b->k, b->element, SHERD__SOFTMAX, ROWS, VOCABULARY, 1, b->x[0], b->x[7],
                           b->x[1], b->x[2]);
}

static void adamw(bench *b)
{
    const sherd__adamw_step step = {1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1, 0};
    b->k->adamw(PARAMETERS, b->x[0], b->x[1], b->x[5], b->x[3], &step);
}

static void sgd(bench *b)
{
    const sherd__sgd_step step = {1e-3, 0.1, 1, 0.9, 1, 0.9, false};
    b->k->sgd(PARAMETERS, b->x[0], b->x[1], b->x[3], &step);
}

static void attend(bench *b, const sherd__attending *s)
{
    b->k->attention(s, b->x[0], b->x[4], b->x[1], b->x[2], b->x[3], b->x[7]);
}

static void attend_back(bench *b, const sherd__attending *s)
{
    b->k->attention_grad(s, from(b, 6, PARAMETERS / 2), b->x[6], from(b, 6, PARAMETERS), NULL,
                         b->x[5], NULL, b->x[1], b->x[2], b->x[3], b->x[0], b->x[4], b->x[7]);
}

static void attention(bench *b)
{
    attend(b, &b->attention);
}

static void attention_grad(bench *b)
{
    attend_back(b, &b->attention);
}

static void sequence(bench *b)
{
    attend(b, &b->sequence);
}

static void sequence_grad(bench *b)
{
    attend_back(b, &b->sequence);
}

static void copy_rows(bench *b)
{
    const int64_t size[] = {ROWS, DIM / 2}, along[] = {DIM, 1}, to[] = {DIM / 2, 1};
    sherd__copy_box(b->element, 2, size, b->x[0], to, b->x[1], along);
}

static void copy_transposed(bench *b)
{
    const int64_t size[] = {ROWS, DIM}, along[] = {1, ROWS}, to[] = {DIM, 1};
    sherd__copy_box(b->element, 2, size, b->x[0], to, b->x[1], along);
}

/* By the set's product where the machine's best is measured. */
static void multiply(bench *b, int64_t rows)
{
    const sherd__product p = {
        .dtype = SHERD_F32, .result = SHERD_F32, .tb = true, .m = rows, .n = MLP, .k = DIM};

    if (b->k == &b->set.f32 && b->set.product &&
        b->set.product(b->engine, &p, b->x[0], b->x[1], b->x[2], NULL) == SHERD__DONE)
        return;
    b->k->gemm(false, true, rows, MLP, DIM, 1, b->x[1], DIM, b->x[2], DIM, 0, b->x[0], MLP);
}

static void gemm(bench *b)
{
    multiply(b, ROWS);
}

static void gemm_short(bench *b)
{
    multiply(b, 1);
}

static const double pairs =
    BATCH * HEADS * CONTEXT * (CONTEXT + 1) / 2.0; /* (query, key) that see each other */

static const double long_pairs = LONG_HEADS * LONG_CONTEXT * (LONG_CONTEXT + 1) / 2.0;

static const job jobs[] = {
    {"gemm", gemm, 0, 2.0 * ROWS *MLP *DIM},
    {"gemm of one row", gemm_short, 4.0 * MLP *DIM, 0},
    {"attention", attention, 0, pairs *WIDTH * 4},
    {"attention_grad", attention_grad, 0, pairs *WIDTH * 10},
    {"long attention", sequence, 0, long_pairs *LONG_WIDTH * 4},
    {"long attention_grad", sequence_grad, 0, long_pairs *LONG_WIDTH * 10},
    {"gelu", gelu, 8.0 * ROWS *MLP, 0},
    {"gelu_grad", gelu_grad, 12.0 * ROWS *MLP, 0},
    {"layer_norm", layer_norm, 8.0 * ROWS *DIM, 0},
    {"layer_norm_grad", layer_norm_grad, 12.0 * ROWS *DIM, 0},
    {"add_norm_grad", add_norm_grad, 16.0 * ROWS *DIM, 0},
    {"add", add, 12.0 * ROWS *DIM, 0},
    {"add of a bias", add_bias, 8.0 * ROWS *MLP, 0},
    {"sum to a bias", sum_bias, 4.0 * ROWS *MLP, 0},
    {"sum of all", sum_all, 4.0 * ROWS *DIM, 0},
    {"sum_squares", sum_squares, 4.0 * PARAMETERS, 0},
    {"reduce of two", reduce, 12.0 * ROWS *DIM, 0},
    {"scale", scale, 8.0 * ROWS *DIM, 0},
    {"dropout", dropout, 8.0 * ROWS *DIM, 0},
    {"uniform", uniform, 4.0 * ROWS *DIM, 0},
    {"embedding", embedding, 8.0 * ROWS *DIM, 0},
    {"embedding_grad", embedding_grad, 4.0 * ROWS *DIM + 4.0 * VOCABULARY *DIM, 0},
    {"cross_entropy", cross_entropy, 4.0 * ROWS *VOCABULARY, 0},
    {"cross_entropy + join", cross_entropy_join, 4.0 * ROWS *VOCABULARY, 0},
    {"cross_entropy_grad", cross_entropy_grad, 8.0 * ROWS *VOCABULARY, 0},
    {"softmax", softmax, 8.0 * ROWS *VOCABULARY, 0},
    {"log_softmax", log_softmax, 8.0 * ROWS *VOCABULARY, 0},
    {"softmax_grad", softmax_grad, 12.0 * ROWS *VOCABULARY, 0},
    {"adamw", adamw, 28.0 * PARAMETERS, 0},
    {"sgd with momentum", sgd, 20.0 * PARAMETERS, 0},
    {"copy of half rows", copy_rows, 4.0 * ROWS *DIM, 0},
    {"copy transposed", copy_transposed, 8.0 * ROWS *DIM, 0},
};

/* Seconds of one run: the median over RUNS, each of enough calls to take 2 ms. */
static double median_time(bench *b, const job *j, const sherd__kernels *k)
{
    double time[RUNS];
    int calls = 1;

    b->k = k;
    double begin = seconds();
    j->run(b);
    double once = seconds() - begin;
    if (once < 2e-3)
        calls = sherd__int((int64_t)(2e-3 / (once + 1e-7)) + 1);
    for (int i = 0; i < RUNS; i++) {
        begin = seconds();
        for (int c = 0; c < calls; c++)
            j->run(b);
        time[i] = (seconds() - begin) / calls;
        if (once > 0.2)
            return time[0];
    }
    sort_times(time, RUNS);
    return time[RUNS / 2];
}

static bool open_bench(bench *b, sherd__heap *heap, sherd_dtype dtype)
{
    memset(b, 0, sizeof *b);
    b->dtype = dtype;
    b->element = dtype == SHERD_F64 ? sizeof(double) : sizeof(float);
    sherd__kernels_choose(&b->set);
    b->engine = sherd__engine_create(heap);
    if (!b->engine)
        return false;
    b->attention = self_attention(BATCH, HEADS, CONTEXT, WIDTH, true);
    b->sequence = self_attention(1, LONG_HEADS, LONG_CONTEXT, LONG_WIDTH, true);
    for (int i = 0; i < OPERANDS; i++) {
        b->x[i] = aligned_alloc(64, b->element * ROOM);
        if (!b->x[i])
            return false;
        sherd__kernels_of(&b->set, b->dtype)
            ->uniform(ROOM, b->x[i], i == 5 ? 0.1 : -1, 1, (sherd__key){{(uint32_t)i, 0}, {0, 0}},
                      0);
    }
    for (int i = 0; i < ROWS; i++)
        b->ids[i] = (i * 97 + i / 7) % VOCABULARY;
    return true;
}

static void close_bench(bench *b)
{
    for (int i = 0; i < OPERANDS; i++)
        free(b->x[i]);
    sherd__engine_destroy(b->engine);
}

static void print_job(bench *b, const job *j)
{
    bool wide = b->dtype == SHERD_F64;
    double fast = median_time(b, j, sherd__kernels_of(&b->set, b->dtype)),
           plain = median_time(b, j, wide ? &sherd__ref_f64 : &sherd__ref_f32);

    printf("%-22s %10.1f %10.1f %7.1f ", j->name, plain * 1e6, fast * 1e6, plain / fast);
    if (j->flops > 0) {
        double peak = sherd__measure_rates(&b->set).peak / (wide ? 2 : 1);
        printf("%10.1f %7.0f%%\n", j->flops / fast * 1e-9, 100e-9 * j->flops / fast / peak);
    } else {
        printf("%10.1f GB/s\n", j->bytes * (wide ? 2 : 1) / fast * 1e-9);
    }
}

int main(int argc, char **argv)
{
    sherd__heap heap = {0};
    const char *part = "", *dtype = "f32";
    const bench_option options[] = {{"--dtype", "f32|f64", .text = &dtype},
                                    {NULL, "PART", .text = &part}};
    bench b;
    int status = 1;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    if (open_bench(&b, &heap, strcmp(dtype, "f64") == 0 ? SHERD_F64 : SHERD_F32)) {
        sherd__rates rates = sherd__measure_rates(&b.set);
        printf("%s, gemm by %s: peak %.0f GFLOP/s, gemm at 1024^3 %.0f GFLOP/s (f32)\n",
               b.set.f32.name, sherd__gemm_name(&b.set), rates.peak, rates.gemm);
        printf("%-22s %10s %10s %7s %10s %8s\n", "", "plain us", "us", "times", "GFLOP/s",
               "of peak");
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
            if (strstr(jobs[i].name, part))
                print_job(&b, &jobs[i]);
        status = 0;
    }
    close_bench(&b);
    return status;
}
