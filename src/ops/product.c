/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products. All of them, forward and backward, have one form: for each index of the leading
 * batch dims one GEMM, whose rows, columns and inner length are products of neighbouring dims. GEMM
 * reads transposed operands in place, so nothing is copied. A sharded inner letter gives a pending
 * sum.
 */
#include "einsum.h"
#include "autograd/node.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/product.h"

/* How operands are stored. */
typedef struct product {
    bool ta, tb;  /* a is stored [inner, rows]; b is stored [columns, inner] */
    bool batched; /* the dims behind "..." are batches; else they are rows (or inner) */
} product;

/*
 * The last dim of an operand is columns of its storage; the dims between batch and last make up the
 * rows of its storage.
 */
typedef struct matrix {
    int64_t rows, cols;
    const void *data;
    bool turned; /* the operand is a view whose matrices are stored the other way round */
} matrix;

static matrix matrix_of(const sherd_tensor *t, int batch)
{
    return (matrix){.rows = sherd__local_count(t, batch, t->ndim - 1),
                    .cols = t->local[t->ndim - 1]};
}

/* Whether a piece is matrices behind each other, each with rows and columns exchanged. */
static bool is_turned(const sherd_tensor *t, int batch)
{
    int n = t->ndim;
    int64_t local[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS], row_major[SHERD_MAX_DIMS];
    bool lies = n - batch == 2;

    memcpy(local, t->local, sizeof local);
    memcpy(stride, t->stride, sizeof stride);
    for (int d = n - 2; lies && d < n; d++) {
        local[d] = t->local[2 * n - 3 - d];
        stride[d] = t->stride[2 * n - 3 - d];
    }
    sherd__row_major(n, local, row_major);
    for (int d = 0; d < n; d++)
        lies = lies && (local[d] == 1 || stride[d] == row_major[d]);
    return lies;
}

/* An operand as GEMM reads it, copied if it must be. False: no memory. */
static bool read_matrix(matrix *out, sherd_call *call, int i, int batch)
{
    const sherd_tensor *t = call->in[i];

    *out = matrix_of(t, batch);
    out->data = call->from[i];
    if (t->count == 0 || sherd__is_contiguous(t))
        return true;
    out->turned = is_turned(t, batch);
    if (out->turned) {
        int64_t rows = out->rows;
        out->rows = out->cols;
        out->cols = rows;
        return true;
    }
    out->data = sherd__packed(call, i);
    return out->data != NULL;
}

static bool multiply(sherd_call *call, product how)
{
    int batch = how.batched ? call->in[0]->ndim - 2 : 0;
    matrix a = matrix_of(call->in[0], batch), b = matrix_of(call->in[1], batch);
    int64_t times = sherd__local_count(call->in[0], 0, batch);
    bool biased = call->operands > 2 && call->in[2] && !(call->once >> 2 & 1);
    sherd__product one = {.dtype = call->in[0]->dtype,
                          .result = call->out[0]->dtype,
                          .bias = biased,
                          .adds = sherd__adds_in(call),
                          .m = how.ta ? a.cols : a.rows,
                          .n = how.tb ? b.rows : b.cols,
                          .k = how.ta ? a.rows : a.cols};

    if (call->out[0]->count == 0)
        return true;
    if (sherd__device_in(call) && !sherd__device_multiplies(&one, times) &&
        !sherd__leave_device(call))
        return false;
    const void *bias = biased ? sherd__packed(call, 2) : NULL;
    if ((biased && !bias) || !read_matrix(&a, call, 0, batch) || !read_matrix(&b, call, 1, batch))
        return false;
    one.ta = how.ta != a.turned;
    one.tb = how.tb != b.turned;
    if (!sherd__device_in(call))
        return sherd__multiply(call, one, times, call->to[0], a.data, b.data, bias);
    sherd__device_multiply(sherd__device_in(call), &one, times, call->to[0], a.data, b.data, bias);
    return true;
}

static bool rows_by_matrix(sherd_call *call)
{
    return multiply(call, (product){.ta = false});
}

static bool rows_by_transposed(sherd_call *call)
{
    return multiply(call, (product){.tb = true});
}

static bool rows_by_rows(sherd_call *call)
{
    return multiply(call, (product){.ta = true});
}

/* Operations: two for each element of y and each term; the terms are a's last dim. */
static double along_last(const sherd_call *call)
{
    const sherd_tensor *a = call->in[0];

    return 2.0 * (double)call->out[0]->count * (double)a->local[a->ndim - 1];
}

/* The same if the terms are the rows of a, or (below) the rows of a batch. */
static double along_rows(const sherd_call *call)
{
    return 2.0 * (double)call->out[0]->count * (double)matrix_of(call->in[0], 0).rows;
}

static double along_rows_of_batches(const sherd_call *call)
{
    const sherd_tensor *a = call->in[0];

    return 2.0 * (double)call->out[0]->count * (double)a->local[a->ndim - 2];
}

/* Products that only a backward needs. */
#define GRADIENT(label, text, back, terms, run, ...)                                        \
    {                                                                                       \
        .name = label, .operand = {{"a", 0}, {"b", 0}}, .result = {{"y", 0}}, .rule = text, \
        .linearity = SHERD_LINEAR, .strided = true, .backward = back, .operations = terms,  \
        .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)},                          \
        .on_device = sherd__fractions_there, .forward = run, .dry = run, __VA_ARGS__        \
    }

static sherd_tensor *of_two(const sherd_op *op, sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(op, (sherd_tensor *[]){a, b}, 2, NULL);
}

/* The gradient of operand i, added to the sum so far if only the tape holds that. */
static sherd_tensor *multiplied_onto(sherd_node *node, int i, const sherd_op *op, sherd_tensor *a,
                                     sherd_tensor *b)
{
    sherd_tensor *result = NULL;

    sherd__apply_into(&result, op, (sherd_tensor *[]){a, b}, 2, NULL,
                      (sherd__into){sherd__open_sum(node, i), SHERD__ADDED_TO});
    return result;
}

/* ---- linear ---------------------------------------------------------------------------------- */

enum { X, WEIGHT, BIAS };

/*
 * The gradient of an autocast operand need not be rounded to 16 bits: the product accumulates in
 * f32 anyway.
 */
static const char *into_f32(sherd_call *call)
{
    call->dtype[0] = SHERD_F32;
    return NULL;
}

static void linear_dx_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
static void linear_dw_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);

#define LINEAR_DX(...)                                                                             \
    GRADIENT("sherd_linear backward", "...n,nk->...k", linear_dx_back, along_last, rows_by_matrix, \
             __VA_ARGS__)
#define LINEAR_DW(...)                                                                           \
    GRADIENT("sherd_linear backward", "...n,...k->nk", linear_dw_back, along_rows, rows_by_rows, \
             __VA_ARGS__)

static const sherd_op linear_dx = LINEAR_DX(.describe = NULL);
static const sherd_op linear_dx_wide = LINEAR_DX(.describe = into_f32);
static const sherd_op linear_dw = LINEAR_DW(.describe = NULL);
static const sherd_op linear_dw_wide = LINEAR_DW(.describe = into_f32);

/* y[...k] of a[...n] and b[nk]. */
static void linear_dx_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = sherd_cast(grad_out[0], sherd__node_dtype(node, 0));

    if (sherd_node_wants(node, 0))
        grad_in[0] = sherd_linear(dy, sherd_node_operand(node, 1), NULL);
    if (sherd_node_wants(node, 1))
        grad_in[1] = of_two(&linear_dw, sherd_node_operand(node, 0), dy);
}

/* y[nk] of a[...n] and b[...k]. */
static void linear_dw_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = sherd_cast(grad_out[0], sherd__node_dtype(node, 0));

    if (sherd_node_wants(node, 0))
        grad_in[0] = sherd_linear(sherd_node_operand(node, 1), dy, NULL);
    if (sherd_node_wants(node, 1))
        grad_in[1] = of_two(&linear_dx, sherd_node_operand(node, 0), dy);
}

static void linear_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = grad_out[0];

    if (sherd_node_wants(node, X))
        grad_in[X] =
            multiplied_onto(node, X, sherd__is_wide(node, X) ? &linear_dx_wide : &linear_dx, dy,
                            sherd_node_operand(node, WEIGHT));
    if (sherd_node_wants(node, WEIGHT))
        grad_in[WEIGHT] = multiplied_onto(
            node, WEIGHT, sherd__is_wide(node, WEIGHT) ? &linear_dw_wide : &linear_dw, dy,
            sherd_node_operand(node, X));
    if (sherd_node_wants(node, BIAS))
        grad_in[BIAS] = sherd__sum_to_operand(node, BIAS, dy);
}

const sherd_op sherd__linear_op = {
    .name = "sherd_linear",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "x W^T + b",
    .operand = {{"x", 0}, {"weight", 0}, {"bias", SHERD_OP_OPTIONAL | SHERD_OP_TERM}},
    .result = {{"y", 0}},
    .rule = "...k,nk,n->...n",
    .linearity = SHERD_LINEAR,
    .strided = true,
    .forward = rows_by_transposed,
    .operations = along_last,
    .dry = rows_by_transposed,
    .on_device = sherd__fractions_there,
    .backward = linear_back,
    .in_parts = true,
    .needs = {[X] = SHERD_NEEDS_OPERAND(WEIGHT), [WEIGHT] = SHERD_NEEDS_OPERAND(X)}};

sherd_tensor *sherd_linear(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias)
{
    return sherd_apply(&sherd__linear_op, (sherd_tensor *[]){x, weight, bias}, 3, NULL);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

/* If b has no leading dims, those of a are rows. */
static bool is_batched(int b_ndim)
{
    return b_ndim > 2;
}

/*
 * One GEMM for each batch, unless there are vectors or leading dims that broadcast, which need the
 * general sum of products.
 */
static bool is_plain_product(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b)
{
    if (b_ndim == 2)
        return a_ndim >= 2;
    return b_ndim > 2 && a_ndim == b_ndim &&
           memcmp(a, b, sherd__bytes(a_ndim - 2) * sizeof *a) == 0;
}

/* The rule of two operands, as numpy.matmul. */
static const char *rule_of(int a_ndim, int b_ndim)
{
    if (a_ndim == 1)
        return b_ndim == 1 ? "k,k->" : "k,...kn->...n";
    return b_ndim == 1 ? "...mk,k->...m" : "...mk,...kn->...mn";
}

static bool matmul(sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *b = call->in[1];

    if (!is_plain_product(a->ndim, a->shape, b->ndim, b->shape))
        return sherd__contract_pieces(call);
    return multiply(call, (product){.batched = is_batched(b->ndim)});
}

static bool batched_by_transposed(sherd_call *call)
{
    return multiply(call, (product){.tb = true, .batched = true});
}

static bool batched_transposed(sherd_call *call)
{
    return multiply(call, (product){.ta = true, .batched = true});
}

static void matmul_da_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
static void matmul_db_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);

/* Indexed by whether b has leading dims. */
static const sherd_op matmul_da[] = {
    GRADIENT("sherd_matmul backward", "...n,kn->...k", matmul_da_back, along_last,
             rows_by_transposed, .describe = NULL),
    GRADIENT("sherd_matmul backward", "...mn,...kn->...mk", matmul_da_back, along_last,
             batched_by_transposed, .describe = NULL),
};
static const sherd_op matmul_db[] = {
    GRADIENT("sherd_matmul backward", "...k,...n->kn", matmul_db_back, along_rows, rows_by_rows,
             .describe = NULL),
    GRADIENT("sherd_matmul backward", "...mk,...mn->...kn", matmul_db_back, along_rows_of_batches,
             batched_transposed, .describe = NULL),
};

/* y[mk] of a[mn] and b[kn]. */
static void matmul_da_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_op *db = &matmul_db[node->op - matmul_da];

    if (sherd_node_wants(node, 0))
        grad_in[0] = sherd_matmul(grad_out[0], sherd_node_operand(node, 1));
    if (sherd_node_wants(node, 1))
        grad_in[1] = of_two(db, grad_out[0], sherd_node_operand(node, 0));
}

/* y[kn] of a[mk] and b[mn]. */
static void matmul_db_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_op *da = &matmul_da[node->op - matmul_db];

    if (sherd_node_wants(node, 0))
        grad_in[0] = of_two(da, sherd_node_operand(node, 1), grad_out[0]);
    if (sherd_node_wants(node, 1))
        grad_in[1] = sherd_matmul(sherd_node_operand(node, 0), grad_out[0]);
}

static void contract_back(sherd_node *node, int a_ndim, int b_ndim, sherd_tensor *dy,
                          sherd_tensor **grad_in)
{
    const char *rule = rule_of(a_ndim, b_ndim), *comma = strchr(rule, ','),
               *arrow = strchr(rule, '-');
    int a = (int)(comma - rule), b = (int)(arrow - comma) - 1;
    char text[SHERD__TEXT_BYTES];

    if (sherd_node_wants(node, 0)) {
        snprintf(text, sizeof text, "%s,%.*s->%.*s", arrow + 2, b, comma + 1, a, rule);
        grad_in[0] =
            sherd__sum_to_operand(node, 0, sherd__contract(text, dy, sherd_node_operand(node, 1)));
    }
    if (sherd_node_wants(node, 1)) {
        snprintf(text, sizeof text, "%.*s,%s->%.*s", a, rule, arrow + 2, b, comma + 1);
        grad_in[1] =
            sherd__sum_to_operand(node, 1, sherd__contract(text, sherd_node_operand(node, 0), dy));
    }
}

static void matmul_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *a, *b;
    int a_ndim = sherd_node_shape(node, 0, &a), b_ndim = sherd_node_shape(node, 1, &b);
    int batched = is_batched(b_ndim);

    if (!is_plain_product(a_ndim, a, b_ndim, b)) {
        contract_back(node, a_ndim, b_ndim, grad_out[0], grad_in);
        return;
    }
    if (sherd_node_wants(node, 0))
        grad_in[0] =
            multiplied_onto(node, 0, &matmul_da[batched], grad_out[0], sherd_node_operand(node, 1));
    if (sherd_node_wants(node, 1))
        grad_in[1] =
            multiplied_onto(node, 1, &matmul_db[batched], sherd_node_operand(node, 0), grad_out[0]);
}

static const char *describe_matmul(sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *b = call->in[1];

    if (a->ndim < 1 || b->ndim < 1)
        return "both must have a dim";
    strcpy(call->rule, a->ndim > 1 && b->ndim == 2 ? "...k,kn->...n" : rule_of(a->ndim, b->ndim));
    return NULL;
}

const sherd_op sherd__matmul_op = {
    .name = "sherd_matmul",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "a b",
    .layouts = "`...mk,...kn->...mn`; sums k; leading dims broadcast, vectors lack m or n",
    .operand = {{"a", 0}, {"b", 0}},
    .result = {{"y", 0}},
    .linearity = SHERD_LINEAR,
    .broadcasts = true,
    .strided = true,
    .describe = describe_matmul,
    .forward = matmul,
    .operations = along_last,
    .dry = matmul,
    .on_device = sherd__fractions_there,
    .backward = matmul_back,
    .in_parts = true,
    .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)}};

sherd_tensor *sherd_matmul(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__matmul_op, (sherd_tensor *[]){a, b}, 2, NULL);
}
