/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu.c measures: the kernels of a GPU by name, each with the operands of a call, and what it
 * must move or compute. gpu_kernels.py has the same names.
 */
#ifndef SHERD_BENCH_GPU_JOBS_H
#define SHERD_BENCH_GPU_JOBS_H

#include <math.h>

#include "base/num.h"
#include "device/device.h"
#include "device/update.h"

enum {
    OPERANDS = 10,
    LINE = 256 /* bytes between operands, as of the GPU's memory */
};

typedef struct shape {
    const char *name;
    int64_t batch, context, heads, width, vocabulary;
    const char *part; /* only jobs with this in their names; NULL = all */
} shape;

/* How large an operand is; of the benchmark's dtype, but for the last ones. */
typedef enum extent {
    NONE,
    ROWS_DIM,
    ROWS_MLP,
    DIM_DIM,
    MLP_DIM,
    LAYER, /* the matrices of a layer: four of DIM_DIM, two of MLP_DIM */
    DIM,
    MLP,
    LOGITS,
    TABLE,
    SCORES, /* of one head */
    SCALAR,
    TOKENS_DIM,  /* a row of each item */
    ROWS_GROUPS, /* of keys that heads share */
    CHOSEN,
    F32_ROWS, /* statistics, or indices */
    F32_3_ROWS,
    F64_2_ROWS,
    F32_HEADS,
    F32_ROWS_MLP,
    F32_LOGITS,
    F32_CHOSEN,
    F64_SCALAR,
    MASK /* a byte for each of ROWS_MLP */
} extent;

typedef struct bench {
    sherd__device *device;
    const shape *s;
    int64_t rows, dim, mlp;
    sherd_dtype dtype;
    bool small;
    char *x[OPERANDS];                   /* of the next call */
    int64_t offset[OPERANDS], set_bytes; /* of the operands of a call in their memory */
    const int32_t *ids, *last, *table; /* last: the positions of full caches; table: their blocks */
    sherd__device_block *noise[2];     /* from 0 to 1: of f32, of bf16 */
    double copy, product;              /* what the GPU can do: bytes and FLOP a second */
    double first;                      /* seconds of first calls */
} bench;

typedef struct job {
    const char *name;
    void (*run)(bench *b);
    extent x[OPERANDS];
    double (*flops)(const bench *b); /* of products; NULL where bytes count */
    int again;                       /* so many operands, the first ones, are read and written */
    bool gathers;                    /* the second operand is read as far as the first one needs */
    sherd_dtype only;                /* of this dtype; NONE (0) = of all */
} job;

/* ---- products -------------------------------------------------------------------------------- */

static void multiply(bench *b, bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    const sherd__product p = {
        .dtype = b->dtype, .result = b->dtype, .ta = ta, .tb = tb, .m = m, .n = n, .k = k};

    sherd__device_multiply(b->device, &p, 1, b->x[0], b->x[1], b->x[2], NULL);
}

static void nt_dim(bench *b)
{
    multiply(b, false, true, b->rows, b->dim, b->dim);
}

static void nt_mlp(bench *b)
{
    multiply(b, false, true, b->rows, b->mlp, b->dim);
}

static void nn_dim(bench *b)
{
    multiply(b, false, false, b->rows, b->dim, b->dim);
}

static void nn_mlp(bench *b)
{
    multiply(b, false, false, b->rows, b->dim, b->mlp);
}

static void tn_dim(bench *b)
{
    multiply(b, true, false, b->dim, b->dim, b->rows);
}

static void tn_mlp(bench *b)
{
    multiply(b, true, false, b->mlp, b->dim, b->rows);
}

static double flops_dim(const bench *b)
{
    return 2.0 * (double)(b->rows * b->dim * b->dim);
}

static double flops_mlp(const bench *b)
{
    return 2.0 * (double)(b->rows * b->dim * b->mlp);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void layer_norm(bench *b)
{
    sherd__device_layer_norm(b->device, b->dtype, b->rows, b->dim, b->x[0], b->x[1], b->x[2],
                             b->x[3], b->x[4], b->x[5], 1e-5);
}

static void norm_grad(bench *b)
{
    sherd__device_norm_grad(b->device, b->dtype, b->rows, b->dim, b->x[0], b->x[1], b->x[2],
                            b->x[3], b->x[4], b->x[5], b->x[6], b->x[7]);
}

static void softmax(bench *b)
{
    sherd__device_softmax(b->device, b->dtype, SHERD__SOFTMAX, b->rows, b->s->vocabulary, b->x[0],
                          b->x[1]);
}

static void softmax_grad(bench *b)
{
    sherd__device_softmax_grad(b->device, b->dtype, SHERD__SOFTMAX, b->rows, b->s->vocabulary,
                               b->x[0], b->x[1], b->x[2]);
}

static void cross_entropy(bench *b)
{
    sherd__device_cross_entropy(b->device, b->dtype, b->rows, b->s->vocabulary, b->x[0], b->x[1],
                                b->ids, 0);
    sherd__device_cross_entropy_join(b->device, b->dtype, 1, b->rows, b->x[2],
                                     (double *)(void *)b->x[3], b->x[0], 1.0 / (double)b->rows);
}

static void cross_entropy_grad(bench *b)
{
    sherd__device_cross_entropy_grad(b->device, b->dtype, b->rows, b->s->vocabulary, b->x[0],
                                     b->x[1], b->ids, 0, (const double *)(void *)b->x[2], b->x[3],
                                     1.0 / (double)b->rows);
}

static void embedding(bench *b)
{
    sherd__device_embedding(b->device, b->dtype, b->rows, b->dim, b->x[0], b->x[1], b->ids, 0,
                            b->s->vocabulary);
}

static void embedding_grad(bench *b)
{
    sherd__device_embedding_grad(b->device, b->dtype, b->rows, b->dim, b->x[0], b->x[1], b->ids, 0,
                                 b->s->vocabulary);
}

/* ---- elements -------------------------------------------------------------------------------- */

static void gelu(bench *b)
{
    sherd__device_unary(b->device, b->dtype, SHERD__GELU, b->rows * b->mlp, b->x[0], b->x[1], NULL);
}

static void gelu_grad(bench *b)
{
    sherd__device_unary_grad(b->device, b->dtype, SHERD__GELU, b->rows * b->mlp, b->x[0], b->x[1],
                             b->x[2], NULL);
}

static void add(bench *b)
{
    const int64_t n = b->rows * b->dim, one = 1;

    sherd__device_binary(b->device, b->dtype, SHERD__ADD, 1, &n, b->x[0], b->x[1], &one, b->x[2],
                         &one);
}

static void add_bias(bench *b)
{
    const int64_t size[] = {b->rows, b->mlp}, along[] = {b->mlp, 1}, bias[] = {0, 1};

    sherd__device_binary(b->device, b->dtype, SHERD__ADD, 2, size, b->x[0], b->x[1], along, b->x[2],
                         bias);
}

static void sum_to_bias(bench *b)
{
    sherd__device_sum(b->device, b->dtype, b->x[0], b->x[1], 1, b->rows, b->mlp, false);
}

static void sum_inner(bench *b)
{
    sherd__device_sum(b->device, b->dtype, b->x[0], b->x[1], b->rows, b->mlp, 1, false);
}

static void sum_squares(bench *b)
{
    const void *src = b->x[1];
    const int64_t n = b->mlp * b->dim;

    sherd__device_add_squares(b->device, b->dtype, (double *)(void *)b->x[0], 1, &src, &n);
}

static void to_bf16(bench *b)
{
    sherd__device_convert(b->device, SHERD_BF16, SHERD_F32, b->rows * b->mlp, b->x[0], b->x[1]);
}

static void from_bf16(bench *b)
{
    sherd__device_convert(b->device, SHERD_F32, SHERD_BF16, b->rows * b->mlp, b->x[0], b->x[1]);
}

static void copy_transposed(bench *b)
{
    const int64_t size[] = {b->dim, b->rows}, to[] = {b->rows, 1}, along[] = {1, b->dim};

    sherd__device_copy_box(b->device, sherd_dtype_bytes(b->dtype), 2, size, b->x[0], to, b->x[1],
                           along);
}

static void reduce(bench *b, int count)
{
    const int64_t n = b->rows * b->dim, one = 1;
    const void *src[OPERANDS - 1];
    int64_t stride[OPERANDS - 1][SHERD_MAX_DIMS];

    for (int i = 0; i < count; i++) {
        src[i] = b->x[1 + i];
        stride[i][0] = 1;
    }
    sherd__device_reduce(b->device, b->dtype, SHERD_SUM, 1, &n, b->x[0], &one, count, src,
                         (const int64_t(*)[SHERD_MAX_DIMS])stride, 1);
}

static void reduce_2(bench *b)
{
    reduce(b, 2);
}

static void reduce_8(bench *b)
{
    reduce(b, 8);
}

/* Elements of the operands from one on. */
static void update(bench *b, int64_t from, int64_t n)
{
    const sherd__adamw_step step = {1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1, 0};
    size_t at = (size_t)from * sherd_dtype_bytes(b->dtype);

    const sherd__adamw_there one = {b->x[0] + at, b->x[1] + at, b->x[2] + at, b->x[3] + at, n,
                                    step};

    sherd__device_adamw(b->device, b->dtype, 1, &one);
}

static void adamw_dim(bench *b)
{
    update(b, 0, b->dim * b->dim);
}

static void adamw_mlp(bench *b)
{
    update(b, 0, b->mlp * b->dim);
}

static void adamw_layer(bench *b)
{
    int64_t square = b->dim * b->dim, from = 0;

    for (int i = 0; i < 6; i++) {
        int64_t n = i < 4 ? square : b->mlp * b->dim;
        update(b, from, n);
        from += n;
    }
}

#include "gpu_attention.h"
#include "gpu_tokens.h"
#include "gpu_numbers.h"
#include "gpu_shared.h"

static const job jobs[] = {
    {"nt_dim", nt_dim, .x = {ROWS_DIM, ROWS_DIM, DIM_DIM}, .flops = flops_dim},
    {"nt_mlp", nt_mlp, .x = {ROWS_MLP, ROWS_DIM, MLP_DIM}, .flops = flops_mlp},
    {"nn_dim", nn_dim, .x = {ROWS_DIM, ROWS_DIM, DIM_DIM}, .flops = flops_dim},
    {"nn_mlp", nn_mlp, .x = {ROWS_DIM, ROWS_MLP, MLP_DIM}, .flops = flops_mlp},
    {"tn_dim", tn_dim, .x = {DIM_DIM, ROWS_DIM, ROWS_DIM}, .flops = flops_dim},
    {"tn_mlp", tn_mlp, .x = {MLP_DIM, ROWS_MLP, ROWS_DIM}, .flops = flops_mlp},
    {"attention", attention, .x = {ROWS_DIM, F32_HEADS, ROWS_DIM, ROWS_DIM, ROWS_DIM},
     .flops = flops_attention},
    {"attention_grad", attention_grad,
     .x = {ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM,
           F32_HEADS},
     .flops = flops_attention_grad},
    {"attention_masked", attention_masked,
     .x = {ROWS_DIM, F32_HEADS, ROWS_DIM, ROWS_DIM, ROWS_DIM, SCORES}, .flops = flops_attention},
    {"attention_masked_grad", attention_masked_grad,
     .x = {ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM,
           F32_HEADS, SCORES},
     .flops = flops_attention_grad},
    {"attention_dropped", attention_dropped,
     .x = {ROWS_DIM, F32_HEADS, ROWS_DIM, ROWS_DIM, ROWS_DIM}, .flops = flops_attention},
    {"layer_norm", layer_norm, .x = {ROWS_DIM, F32_ROWS, F32_ROWS, ROWS_DIM, DIM, DIM}},
    {"norm_grad", norm_grad,
     .x = {ROWS_DIM, DIM, DIM, ROWS_DIM, ROWS_DIM, DIM, F32_ROWS, F32_ROWS}},
    {"attention_cached", attention_cached, .x = {TOKENS_DIM, ROWS_DIM, ROWS_DIM, TOKENS_DIM}},
    {"attention_paged", attention_paged, .x = {TOKENS_DIM, ROWS_DIM, ROWS_DIM, TOKENS_DIM}},
    {"attention_grouped", attention_grouped,
     .x = {TOKENS_DIM, ROWS_GROUPS, ROWS_GROUPS, TOKENS_DIM}},
    {"topk", topk, .x = {CHOSEN, F32_CHOSEN, LOGITS}},
    {"sort", sort, .x = {LOGITS, F32_LOGITS, LOGITS}},
    {"index_select", index_select, .x = {ROWS_DIM, TABLE}, .gathers = true},
    {"scatter_add", scatter_add, .x = {TABLE, ROWS_DIM}, .again = 1},
    {"gelu", gelu, .x = {ROWS_MLP, ROWS_MLP}},
    {"gelu_grad", gelu_grad, .x = {ROWS_MLP, ROWS_MLP, ROWS_MLP}},
    {"add", add, .x = {ROWS_DIM, ROWS_DIM, ROWS_DIM}},
    {"add_bias", add_bias, .x = {ROWS_MLP, ROWS_MLP, MLP}},
    {"sum_to_bias", sum_to_bias, .x = {MLP, ROWS_MLP}},
    {"sum_inner", sum_inner, .x = {F32_ROWS, ROWS_MLP}},
    {"softmax", softmax, .x = {LOGITS, LOGITS}},
    {"soft_parts", soft_parts, .x = {LOGITS, LOGITS, F32_3_ROWS, F32_ROWS, F32_ROWS}},
    {"norm_parts", norm_parts, .x = {ROWS_DIM, ROWS_DIM, F32_3_ROWS, F32_ROWS, F32_ROWS, DIM, DIM}},
    {"softmax_grad", softmax_grad, .x = {LOGITS, LOGITS, LOGITS}},
    {"cross_entropy", cross_entropy, .x = {F32_3_ROWS, LOGITS, SCALAR, F64_2_ROWS}},
    {"cross_entropy_grad", cross_entropy_grad, .x = {LOGITS, LOGITS, F64_2_ROWS, SCALAR}},
    {"embedding", embedding, .x = {ROWS_DIM, TABLE}, .gathers = true},
    {"embedding_grad", embedding_grad, .x = {TABLE, ROWS_DIM}},
    {"adamw_dim", adamw_dim, .x = {DIM_DIM, DIM_DIM, DIM_DIM, DIM_DIM}, .again = 3,
     .only = SHERD_F32},
    {"adamw_mlp", adamw_mlp, .x = {MLP_DIM, MLP_DIM, MLP_DIM, MLP_DIM}, .again = 3,
     .only = SHERD_F32},
    {"adamw_layer", adamw_layer, .x = {LAYER, LAYER, LAYER, LAYER}, .again = 3, .only = SHERD_F32},
    {"sum_squares", sum_squares, .x = {F64_SCALAR, MLP_DIM}},
    {"to_bf16", to_bf16, .x = {ROWS_MLP, F32_ROWS_MLP}, .only = SHERD_BF16},
    {"from_bf16", from_bf16, .x = {F32_ROWS_MLP, ROWS_MLP}, .only = SHERD_BF16},
    {"copy_transposed", copy_transposed, .x = {ROWS_DIM, ROWS_DIM}},
    {"less", less, .x = {MASK, ROWS_MLP, ROWS_MLP}},
    {"where", where, .x = {ROWS_MLP, MASK, ROWS_MLP, ROWS_MLP}},
    {"max_inner", max_inner, .x = {F32_ROWS, ROWS_MLP}},
    {"max_outer", max_outer, .x = {MLP, ROWS_MLP}},
    {"argmax", argmax, .x = {F32_ROWS, LOGITS}},
    {"argmax_all", argmax_all, .x = {SCALAR, ROWS_MLP}},
    {"logsumexp", logsumexp, .x = {F32_ROWS, LOGITS}},
    {"cumsum_inner", cumsum_inner, .x = {ROWS_MLP, ROWS_MLP}},
    {"cumsum_outer", cumsum_outer, .x = {ROWS_MLP, ROWS_MLP}},
    {"cumprod_inner", cumprod_inner, .x = {ROWS_MLP, ROWS_MLP}},
    {"cumprod_outer", cumprod_outer, .x = {ROWS_MLP, ROWS_MLP}},
    {"cummax_inner", cummax_inner, .x = {ROWS_MLP, ROWS_MLP, F32_ROWS_MLP}},
    {"reduce_2", reduce_2, .x = {ROWS_DIM, ROWS_DIM, ROWS_DIM}},
    {"reduce_8", reduce_8,
     .x = {ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM, ROWS_DIM,
           ROWS_DIM}},
};

/* ---- operands -------------------------------------------------------------------------------- */

static int64_t elements_of(const bench *b, extent x)
{
    const int64_t square = b->dim * b->dim;
    const int64_t elements[] = {[NONE] = 0,
                                [ROWS_DIM] = b->rows * b->dim,
                                [ROWS_MLP] = b->rows * b->mlp,
                                [DIM_DIM] = square,
                                [MLP_DIM] = b->mlp * b->dim,
                                [LAYER] = 4 * square + 2 * b->mlp * b->dim,
                                [DIM] = b->dim,
                                [MLP] = b->mlp,
                                [LOGITS] = b->rows * b->s->vocabulary,
                                [TABLE] = b->s->vocabulary * b->dim,
                                [SCORES] = b->s->context * b->s->context,
                                [SCALAR] = 1,
                                [TOKENS_DIM] = b->s->batch * b->dim,
                                [ROWS_GROUPS] = b->rows * groups(b->s) * b->s->width,
                                [CHOSEN] = b->rows * MOST_CHOSEN,
                                [F32_ROWS] = b->rows,
                                [F32_3_ROWS] = 3 * b->rows,
                                [F64_2_ROWS] = 4 * b->rows,
                                [F32_HEADS] = b->rows * b->s->heads,
                                [F32_ROWS_MLP] = b->rows * b->mlp,
                                [F32_LOGITS] = b->rows * b->s->vocabulary,
                                [F32_CHOSEN] = b->rows * MOST_CHOSEN,
                                [F64_SCALAR] = 2,
                                [MASK] = b->rows * b->mlp};

    return elements[x];
}

static sherd_dtype dtype_of(const bench *b, extent x)
{
    return x < F32_ROWS ? b->dtype : x == MASK ? SHERD_U8 : SHERD_F32;
}

static int64_t bytes_of(const bench *b, extent x)
{
    return elements_of(b, x) * (int64_t)sherd_dtype_bytes(dtype_of(b, x));
}

/* In the memory of a call's operands. */
static int64_t room_of(const bench *b, extent x)
{
    return (int64_t)sherd__round_up((size_t)bytes_of(b, x), LINE);
}

static double moved_bytes(const bench *b, const job *j)
{
    double bytes = 0;

    for (int i = 0; i < OPERANDS; i++) {
        double each = (double)bytes_of(b, j->x[i]);
        if (j->gathers && i == 1)
            each = fmin(each, (double)bytes_of(b, j->x[0]));
        bytes += i < j->again ? 2 * each : each;
    }
    return bytes;
}

#endif
