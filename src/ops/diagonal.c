/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagonals of two dims: cut to a square, with the two dims last, so that one operator does the
 * rest. Each rank copies the part of the diagonal that its box has. Rows keep their shards; if
 * columns are sharded too, what a box lacks is 0 there, and the results add up to the diagonal.
 */
#include "shared.h"
#include "apply/sketch.h"
#include "sherd/ops_diagonal.h"
#include "sherd/ops_reductions.h"

#include <string.h>

#include "base/num.h"

/* ---- the main diagonal of squares, the last two dims ----------------------------------------- */

typedef struct square {
    int64_t n;
} square;

/*
 * Copy between a square's box and the diagonal's, where both have elements. Strides of the square
 * are those of its tensor, whose piece begins at `in`.
 */
static void copy_diagonal(const sherd_call *call, const sherd_tensor *matrix,
                          const sherd_tensor *line, void *to, const void *from, bool taken)
{
    sherd_box box = sherd_tensor_box(matrix);
    int r = matrix->ndim - 2, c = r + 1;
    int64_t first = sherd__max(box.offset[r], box.offset[c]);
    int64_t end = sherd__min(box.offset[r] + matrix->local[r], box.offset[c] + matrix->local[c]);
    int64_t size[SHERD_MAX_DIMS], along[SHERD_MAX_DIMS];
    size_t element = sherd_dtype_bytes(matrix->dtype);

    if (end <= first || matrix->count == 0)
        return;
    memcpy(size, line->local, sizeof size);
    memcpy(along, matrix->stride, sizeof along);
    size[r] = end - first;
    along[r] = matrix->stride[r] + matrix->stride[c];
    int64_t in_matrix =
        (first - box.offset[r]) * matrix->stride[r] + (first - box.offset[c]) * matrix->stride[c];
    int64_t in_line = (first - box.offset[r]) * line->stride[r];
    const int64_t bytes = (int64_t)element;
    if (taken)
        sherd__copy_in(call, element, line->ndim, size, (char *)to + in_line * bytes, line->stride,
                       (const char *)from + in_matrix * bytes, along);
    else
        sherd__copy_in(call, element, line->ndim, size, (char *)to + in_matrix * bytes, along,
                       (const char *)from + in_line * bytes, line->stride);
}

static bool take(sherd_call *call)
{
    sherd__fill_in(call, 0, 0);
    copy_diagonal(call, call->in[0], call->out[0], call->to[0], call->from[0], true);
    return true;
}

static bool put(sherd_call *call)
{
    sherd__fill_in(call, 0, 0);
    copy_diagonal(call, call->out[0], call->in[0], call->to[0], call->from[0], false);
    return true;
}

static const char *describe_put(sherd_call *call)
{
    const square *s = call->attributes;

    call->shape[0][call->in[0]->ndim] = s->n;
    return NULL;
}

static void take_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
static void put_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);

static const sherd_op take_op = {.name = "sherd_diagonal of squares",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 .rule = "...rc->...r",
                                 .linearity = SHERD_LINEAR,
                                 .numbers = SHERD_EVERYTHING,
                                 .strided = true,
                                 .forward = take,
                                 .on_device = sherd__copies_there,
                                 .backward = take_back,
                                 .takes_pending = true};

/* The second operand is its layout alone. */
static const sherd_op put_op = {.name = "sherd_diag_embed to squares",
                                .operand = {{"a", 0}, {"like", SHERD_OP_OPTIONAL}},
                                .result = {{"y", 0}},
                                .field = {SHERD_FIELD(square, n, INT64)},
                                .attributes = sizeof(square),
                                .rule = "...r,...rc->...rc",
                                .linearity = SHERD_LINEAR,
                                .numbers = SHERD_EVERYTHING,
                                .strided = true,
                                .describe = describe_put,
                                .forward = put,
                                .on_device = sherd__copies_there,
                                .backward = put_back,
                                .takes_pending = true};

static sherd_tensor *put_like(sherd_tensor *a, int64_t n, const sherd_layout *layout)
{
    const sherd_layout *like[] = {NULL, NULL};
    sherd_tensor *in[] = {a, NULL}, *out = NULL;

    if (layout && sherd__layout_settle(&like[1], layout) != SHERD_OK)
        return sherd__fail_diag(a->world, true);
    sherd__apply_like(&out, &put_op, in, 2, &(square){n}, layout ? like : NULL);
    return out;
}

static void take_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    grad_in[0] = put_like(grad_out[0], shape[ndim - 1], sherd_node_layout(node, 0));
}

static void put_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = sherd_apply(&take_op, grad_out, 1, NULL);
}

/* ---- of any two dims ------------------------------------------------------------------------- */

typedef struct diagonal {
    int64_t offset;
    int p, q;
} diagonal;

#define DIAGONAL_FIELDS                                                            \
    .field = {SHERD_FIELD(diagonal, offset, INT64), SHERD_FIELD(diagonal, p, INT), \
              SHERD_FIELD(diagonal, q, INT)},                                      \
    .attributes = sizeof(diagonal), .numbers = SHERD_EVERYTHING

/* Dims that exist, of `ndim`. */
static const char *resolve(sherd_call *call, int ndim, int *p, int *q)
{
    const diagonal *at = call->attributes;

    *p = sherd__dim_of(at->p, ndim);
    *q = sherd__dim_of(at->q, ndim);
    if (*p < 0 || *q < 0 || *p == *q)
        return sherd_call_reason(call, "%d and %d are not two of %d dims", at->p, at->q, ndim);
    return NULL;
}

/* Sizes are below 2^62, so a diagonal farther away makes no difference. */
static int64_t held(int64_t offset)
{
    const int64_t far = (int64_t)1 << 61;

    return sherd__max(-far, sherd__min(offset, far));
}

static const char *describe_diagonal(sherd_call *call)
{
    int p, q;

    return resolve(call, call->in[0]->ndim, &p, &q);
}

/* A part of a dim of a size; of all of it no view, whose gradient would be a copy. */
static sherd_tensor *part_of(sherd_tensor *t, int dim, int64_t size, int64_t start, int64_t length)
{
    return length == size ? t : sherd_narrow(t, dim, sherd__min(start, size), length);
}

static sherd_tensor *diagonal_of(sherd_call *call)
{
    const diagonal *at = call->attributes;
    sherd_tensor *a = call->in[0];
    int p, q, dims[SHERD_MAX_DIMS], n = 0;

    resolve(call, a->ndim, &p, &q);
    int64_t down = sherd__max(-at->offset, 0), right = sherd__max(at->offset, 0);
    int64_t length = sherd__max(sherd__min(a->shape[p] - down, a->shape[q] - right), 0);
    for (int d = 0; d < a->ndim; d++)
        if (d != p && d != q)
            dims[n++] = d;
    /* Rows keep their shards: they are that dim of the two which has any. */
    bool turned = a->layout && a->layout->spec.dim[q].axes && !a->layout->spec.dim[p].axes;
    dims[n++] = turned ? q : p;
    dims[n++] = turned ? p : q;
    sherd_tensor *rows = part_of(a, p, a->shape[p], down, length);
    sherd_tensor *square_of = part_of(rows, q, a->shape[q], right, length);
    sherd_tensor *last = sherd_permute(square_of, dims, n);
    return sherd_apply(&take_op, &last, 1, NULL);
}

static bool compose_diagonal(sherd_call *call)
{
    call->out[0] = diagonal_of(call);
    return true;
}

static bool compose_trace(sherd_call *call)
{
    call->out[0] = sherd_sum_over(diagonal_of(call), (const int[]){-1}, 1, false);
    return true;
}

#define LAYOUTS "sharded as p, or as q where p is not; sums q where both are"

const sherd_op sherd__diagonal_op = {.name = "sherd_diagonal",
                                     .summary = "a diagonal of two dims, as the last dim",
                                     .layouts = LAYOUTS,
                                     .operand = {{"a", 0}},
                                     .result = {{"y", 0}},
                                     DIAGONAL_FIELDS,
                                     .describe = describe_diagonal,
                                     .compose = compose_diagonal};

const sherd_op sherd__trace_op = {.name = "sherd_trace",
                                  .summary = "the sum of a diagonal",
                                  .layouts = "sums p and q; nothing moves",
                                  .operand = {{"a", 0}},
                                  .result = {{"y", 0}},
                                  DIAGONAL_FIELDS,
                                  .describe = describe_diagonal,
                                  .compose = compose_trace};

sherd_tensor *sherd_diagonal(sherd_tensor *a, int64_t offset, int p, int q)
{
    return sherd_apply(&sherd__diagonal_op, &a, 1, &(diagonal){held(offset), p, q});
}

sherd_tensor *sherd_trace(sherd_tensor *a, int64_t offset, int p, int q)
{
    return sherd_apply(&sherd__trace_op, &a, 1, &(diagonal){held(offset), p, q});
}

/* ---- from a diagonal ------------------------------------------------------------------------- */

static const char *describe_embed(sherd_call *call)
{
    const diagonal *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int p, q;
    int64_t size, count = 1;

    if (a->ndim == 0 || a->ndim == SHERD_MAX_DIMS)
        return sherd_call_reason(call, "a must have 1 to %d dims", SHERD_MAX_DIMS - 1);
    /* -2^63 has no positive; a sum with it is too large, as with its neighbour */
    int64_t away = at->offset < 0 ? -(at->offset + (at->offset == INT64_MIN)) : at->offset;
    bool fits = sherd__add(a->shape[a->ndim - 1], away, &size);
    for (int d = 0; d < a->ndim && fits; d++)
        fits = sherd__mul(count, sherd__max(d + 1 < a->ndim ? a->shape[d] : size, 1), &count);
    if (!fits || !sherd__mul(count, sherd__max(size, 1), &count))
        return sherd_call_reason(call,
                                 "with offset %lld the result would have 2^62 elements or more (0 "
                                 "counts as 1)",
                                 (long long)at->offset);
    return resolve(call, a->ndim + 1, &p, &q);
}

static bool compose_embed(sherd_call *call)
{
    const diagonal *at = call->attributes;
    sherd_tensor *a = call->in[0], *y = put_like(a, a->shape[a->ndim - 1], NULL);
    int64_t before[SHERD_MAX_DIMS] = {0}, after[SHERD_MAX_DIMS] = {0};
    int p, q, dims[SHERD_MAX_DIMS], n = 0, r = a->ndim - 1, c = a->ndim;

    resolve(call, a->ndim + 1, &p, &q);
    before[c] = after[r] = sherd__max(at->offset, 0);
    before[r] = after[c] = sherd__max(-at->offset, 0);
    if (at->offset != 0)
        y = sherd_pad(y, before, after, 0);
    for (int d = 0; d <= a->ndim; d++)
        dims[d] = d == p ? r : d == q ? c : n++;
    call->out[0] = sherd_permute(y, dims, a->ndim + 1);
    return true;
}

const sherd_op sherd__diag_embed_op = {.name = "sherd_diag_embed",
                                       .summary = "the last dim on a diagonal of two new dims",
                                       .layouts = "the last dim shards p",
                                       .operand = {{"a", 0}},
                                       .result = {{"y", 0}},
                                       DIAGONAL_FIELDS,
                                       .describe = describe_embed,
                                       .compose = compose_embed};

sherd_tensor *sherd_diag_embed(sherd_tensor *a, int64_t offset, int p, int q)
{
    return sherd_apply(&sherd__diag_embed_op, &a, 1, &(diagonal){offset, p, q});
}
