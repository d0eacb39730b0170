/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that need a whole dim: sorting, the largest elements, running sums; and triangles,
 * which do not. A sharded dim is gathered first, or its shards are moved to another dim, or they
 * exchange the largest elements of each (candidates.c), whichever is cheapest.
 */
#include "order.h"
#include "pick.h"

#include <string.h>

#include "base/num.h"
#include "device/compare.h"
#include "device/running.h"
#include "kernels/pick.h"
#include "vector/choose.h"

typedef struct along {
    int64_t k;
    int dim;
    int flag; /* of sort and topk: the largest first; of running sums: from the end */
} along;

#define ALONG_FIELDS(flagged)                                       \
    {                                                               \
        SHERD_FIELD(along, k, INT64), SHERD_FIELD(along, dim, INT), \
        {                                                           \
            flagged, SHERD_FIELD_INT, offsetof(along, flag), 1      \
        }                                                           \
    }

/* k for all elements of the dim. */
static const int64_t ALL = INT64_MIN;

/* Results have the operand's dims, except for the size of the one dim. */
static const char *describe(sherd_call *call)
{
    const along *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (at->k != ALL && (at->k < 0 || at->k > a->shape[dim]))
        return sherd_call_reason(call, "%lld of the %lld elements of dim %d", (long long)at->k,
                                 (long long)a->shape[dim], dim);
    if (call->results > 1 && a->shape[dim] > INT32_MAX)
        return "the dim has more indices than an i32 holds";
    for (int j = 0; j < call->results; j++) {
        sherd_call_shape(call, j, a->ndim, a->shape);
        call->shape[j][dim] = at->k == ALL ? a->shape[dim] : at->k;
    }
    return NULL;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const along *at = call->attributes;

    return sherd__whole_ways(call, ways, 1u << sherd__dim_of(at->dim, call->in[0]->ndim),
                             SHERD__PASS_SUMS);
}

const void *sherd__keys_in(sherd_call *call, int i, sherd_dtype *dtype)
{
    return sherd__keys_of(call, call->in[i]->count, call->from[i], dtype);
}

void *sherd__wide_result(sherd_call *call)
{
    const sherd_tensor *y = call->out[0];

    return sherd__is_half(y->dtype) ? sherd_call_scratch(call, y->count * (int64_t)sizeof(float))
                                    : call->to[0];
}

void sherd__narrow_result(sherd_call *call, const void *wide)
{
    const sherd_tensor *y = call->out[0];

    if (wide != call->to[0])
        sherd__convert(sherd__world_kernels(call->world), y->dtype, SHERD_F32, y->count,
                       call->to[0], wide);
}

void sherd__taken_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                       int dim)
{
    if (grad_out[0])
        grad_in[0] = sherd__gather_back(node, sherd_node_result(node, 1), grad_out[0], dim, false);
}

/* ---- order ----------------------------------------------------------------------------------- */

static sherd_status lie_order(const sherd_call *call, sherd_ways *ways)
{
    const along *at = call->attributes;
    int dim = sherd__dim_of(at->dim, call->in[0]->ndim);

    return sherd__candidates_ways(call, ways, dim, call->shape[0][dim]);
}

static bool order(sherd_call *call)
{
    const along *at = call->attributes;
    int dim = sherd__dim_of(at->dim, call->in[0]->ndim);
    int64_t k = call->out[0]->local[dim];
    sherd__candidates c;

    if (sherd_tensor_count(call->out[0]) == 0)
        return true;
    if (!sherd__candidates_in(call, dim, k, at->flag, &c))
        return false;
    if (call->out[0]->count == 0)
        return true;
    int32_t *found = sherd__candidates_found(call, &c);
    if (!found || !sherd__take_first(call, c.size, k, at->flag, call->to[0], found, c.values))
        return false;
    sherd__candidates_named(call, &c, k, found);
    return true;
}

static void order_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const along *at = sherd_node_attributes(node);

    sherd__taken_back(node, grad_out, grad_in, at->dim);
}

#define ORDER(label, text, how)                                                                 \
    {                                                                                           \
        .name = label, .summary = text, .layouts = how, .operand = {{"a", 0}},                  \
        .result = {{"values", 0}, {"indices", SHERD_OP_INDEX}},                                 \
        .field = ALONG_FIELDS("whether the largest come first"), .attributes = sizeof(along),   \
        .numbers = SHERD_EVERYTHING, .describe = describe, .ways = lie_order, .forward = order, \
        .dry = order, .on_device = sherd__copies_there, .backward = order_back, .needs = {      \
            SHERD_NEEDS_RESULT(1)                                                               \
        }                                                                                       \
    }

const sherd_op sherd__sort_op = ORDER("sherd_sort", "sort a dim, with indices",
                                      "the dim is gathered, or its shards move to another dim");
const sherd_op sherd__topk_op =
    ORDER("sherd_topk", "the k largest or smallest of a dim, with indices",
          "the dim is gathered, its shards move to another dim, or each sends its first k");

sherd_tensor *sherd_sort(sherd_tensor *a, int dim, bool descending, sherd_tensor **indices)
{
    return sherd__apply_indexed(&sherd__sort_op, &a, 1, &(along){ALL, dim, descending}, indices);
}

sherd_tensor *sherd_topk(sherd_tensor *a, int64_t k, int dim, bool largest, sherd_tensor **indices)
{
    return sherd__apply_indexed(&sherd__topk_op, &a, 1, &(along){k == ALL ? -1 : k, dim, largest},
                                indices);
}

/* ---- running sums ---------------------------------------------------------------------------- */

static bool add_up(sherd_call *call)
{
    const along *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int64_t size[3];
    sherd_dtype dtype;

    if (a->count == 0)
        return true;
    sherd__size_along(size, a, sherd__dim_of(at->dim, a->ndim));
    if (sherd__device_in(call)) {
        sherd__device_running_sum(sherd__device_in(call), a->dtype, size, at->flag, call->to[0],
                                  call->from[0]);
        return true;
    }
    const void *from = sherd__keys_in(call, 0, &dtype);
    void *to = sherd__wide_result(call);
    if (!from || !to)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__running_sum(dtype, size, at->flag, to, from);
    sherd__narrow_result(call, to);
    return true;
}

static void add_up_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    along at = *(const along *)sherd_node_attributes(node);

    at.flag = !at.flag;
    grad_in[0] = sherd_apply(&sherd__cumsum_op, grad_out, 1, &at);
}

const sherd_op sherd__cumsum_op = {.name = "sherd_cumsum",
                                   .autocast = SHERD_AUTOCAST_FULL,
                                   .summary = "running sums of a dim",
                                   .operand = {{"a", 0}},
                                   .result = {{"y", 0}},
                                   .field = ALONG_FIELDS("whether it runs from the end"),
                                   .attributes = sizeof(along),
                                   .linearity = SHERD_LINEAR,
                                   .numbers = SHERD_NUMBERS,
                                   .describe = describe,
                                   .ways = lie,
                                   .forward = add_up,
                                   .dry = add_up,
                                   .on_device = sherd__numbers_there,
                                   .backward = add_up_back,
                                   .takes_pending = true};

sherd_tensor *sherd_cumsum(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__cumsum_op, &a, 1, &(along){ALL, dim, 0});
}

/* ---- triangles ------------------------------------------------------------------------------- */

typedef struct corner {
    int64_t diagonal;
} corner;

/*
 * In each row, keep the columns below (or from) a certain one; the box gives the global numbers of
 * rows and columns.
 */
static bool keep_corner(sherd_call *call, bool upper)
{
    const corner *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    sherd_box box = sherd_tensor_box(a);
    int r = a->ndim - 2, c = a->ndim - 1;
    int64_t rows = a->count ? a->count / a->local[c] : 0, cols = a->local[c];
    size_t element = sherd_dtype_bytes(a->dtype);
    const char *from = call->from[0];
    char *to = call->to[0];

    if (sherd__device_in(call)) {
        const sherd__corner it = {rows, cols, a->local[r],
                                  box.offset[r] + at->diagonal + (upper ? 0 : 1) - box.offset[c],
                                  upper};
        sherd__device_corner(sherd__device_in(call), element, &it, to, from);
        return true;
    }
    for (int64_t i = 0; i < rows;
         i++, from += (size_t)cols * element, to += (size_t)cols * element) {
        int64_t row = box.offset[r] + i % a->local[r];
        int64_t edge = row + at->diagonal + (upper ? 0 : 1) - box.offset[c];
        size_t before = (size_t)sherd__max(0, sherd__min(edge, cols)) * element;
        size_t behind = (size_t)cols * element - before;
        if (upper) {
            memset(to, 0, before);
            memcpy(to + before, from + before, behind);
        } else {
            memcpy(to, from, before);
            memset(to + before, 0, behind);
        }
    }
    return true;
}

static bool keep_lower(sherd_call *call)
{
    return keep_corner(call, false);
}

static bool keep_upper(sherd_call *call)
{
    return keep_corner(call, true);
}

static void lower_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd_apply(&sherd__tril_op, grad_out, 1, sherd_node_attributes(node));
}

static void upper_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd_apply(&sherd__triu_op, grad_out, 1, sherd_node_attributes(node));
}

#define CORNER(label, text, run, back)                                                            \
    {                                                                                             \
        .name = label, .summary = text, .operand = {{"a", 0}}, .result = {{"y", 0}},              \
        .field = {SHERD_FIELD(corner, diagonal, INT64)}, .attributes = sizeof(corner),            \
        .rule = "...rc->...rc", .linearity = SHERD_UNCHANGED, .numbers = SHERD_EVERYTHING,        \
        .forward = run, .on_device = sherd__copies_there, .backward = back, .takes_pending = true \
    }

const sherd_op sherd__tril_op =
    CORNER("sherd_tril", "zero above a diagonal", keep_lower, lower_back);
const sherd_op sherd__triu_op =
    CORNER("sherd_triu", "zero below a diagonal", keep_upper, upper_back);

/* Sizes are below 2^62, so a diagonal farther away makes no difference. */
static corner held(int64_t diagonal)
{
    const int64_t far = (int64_t)1 << 61;

    return (corner){sherd__max(-far, sherd__min(diagonal, far))};
}

sherd_tensor *sherd_tril(sherd_tensor *a, int64_t diagonal)
{
    corner at = held(diagonal);

    return sherd_apply(&sherd__tril_op, &a, 1, &at);
}

sherd_tensor *sherd_triu(sherd_tensor *a, int64_t diagonal)
{
    corner at = held(diagonal);

    return sherd_apply(&sherd__triu_op, &a, 1, &at);
}
