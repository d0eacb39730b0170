/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact sums. One operator makes the words of a long fixed-point sum (kernels/exact.h) of the local
 * elements, [words, kept dims], i64. It is linear, so words are a pending sum where the elements
 * are, and over what is sharded of the reduced dims: adding ranks is the all-reduce, or
 * reduce-scatter, of integers that any pending sum takes, exact in any order. Another operator
 * rounds the words, once they are settled. Where all addends of each sum are on one rank, one
 * operator does both, and words take no memory.
 */
#include "dims.h"
#include "sherd/ops_exact.h"

#include <string.h>

#include "base/num.h"
#include "kernels/cast.h"
#include "kernels/exact.h"
#include "vector/choose.h"

/* ---- local sums ------------------------------------------------------------------------------ */

/* How the local elements of one result, or the first ones of all results, lie. */
typedef struct path {
    int ndim;
    int64_t size[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS], count;
} path;

/* The dims in `dims` (bits) of a contiguous operand; those that follow one another as one. */
static path path_of(const sherd_tensor *in, unsigned dims)
{
    path p = {.count = 1};
    int64_t step = 1;

    for (int d = in->ndim - 1; d >= 0; step *= in->local[d--]) {
        if (!(dims >> d & 1) || in->local[d] == 1)
            continue;
        p.count *= in->local[d];
        if (p.ndim && p.size[p.ndim - 1] * p.stride[p.ndim - 1] == step) {
            p.size[p.ndim - 1] *= in->local[d];
            continue;
        }
        p.size[p.ndim] = in->local[d];
        p.stride[p.ndim++] = step;
    }
    return p;
}

/* Where element i of a path lies; its last dim is the one that moves first. */
static int64_t place_on(const path *p, int64_t i)
{
    int64_t at = 0;

    for (int d = 0; d < p->ndim; i /= p->size[d++])
        at += i % p->size[d] * p->stride[d];
    return at;
}

/* Add n elements, `stride` apart; at most a block. */
static void add_some(const sherd_call *call, sherd__exact *sum, const void *from, int64_t n,
                     int64_t stride)
{
    sherd_dtype dtype = call->in[0]->dtype;
    double near[SHERD__EXACT_BLOCK], x[SHERD__EXACT_BLOCK];
    const int64_t one = 1;

    if (stride != 1) {
        sherd__copy_box(sherd_dtype_bytes(dtype), 1, &n, near, &one, from, &stride);
        from = near;
    }
    if (dtype != SHERD_F64) {
        sherd__convert(sherd__world_kernels(call->world), SHERD_F64, dtype, n, x, from);
        from = x;
    }
    sherd__exact_add(sum, n, from);
}

/* Add the local elements of one result, the first of which is at `from`. */
static void add_all(const sherd_call *call, sherd__exact *sum, const path *reduced,
                    const char *from)
{
    size_t element = sherd_dtype_bytes(call->in[0]->dtype);
    int64_t row = reduced->ndim ? reduced->size[0] : 1;
    int64_t stride = reduced->ndim ? reduced->stride[0] : 1, block = SHERD__EXACT_BLOCK;

    for (int64_t i = 0; i < reduced->count; i += row) {
        const char *begin = from + (size_t)place_on(reduced, i) * element;
        for (int64_t k = 0; k < row; k += block)
            add_some(call, sum, begin + (size_t)(k * stride) * element, sherd__min(block, row - k),
                     stride);
    }
}

/* Each local sum, in the order of the kept dims, to `put`. */
static void add_up(sherd_call *call, void (*put)(sherd_call *, sherd__exact *, int64_t, int64_t))
{
    const sherd_tensor *in = call->in[0];
    unsigned bits = sherd__dims_bits(call->attributes, in->ndim);
    path reduced = path_of(in, bits), kept = path_of(in, ~bits);
    sherd__exact sum;

    for (int64_t m = 0; m < kept.count; m++) {
        const char *first = in->count
                                ? (const char *)call->from[0] +
                                      (size_t)place_on(&kept, m) * sherd_dtype_bytes(in->dtype)
                                : NULL;
        sherd__exact_begin(&sum, in->dtype);
        if (first)
            add_all(call, &sum, &reduced, first);
        put(call, &sum, m, kept.count);
    }
}

/* Numbers for tables of costs: conversions, two passes of adding. */
static double operations(const sherd_call *call)
{
    return 10 * (double)call->in[0]->count;
}

/* ---- where all addends of a sum are on one rank ---------------------------------------------- */

static void put_value(sherd_call *call, sherd__exact *sum, int64_t m, int64_t count)
{
    sherd_dtype dtype = call->out[0]->dtype;
    double value = sherd__exact_value(sum, dtype);

    (void)count;
    sherd__cast(dtype, SHERD_F64, 1, (char *)call->to[0] + (size_t)m * sherd_dtype_bytes(dtype),
                &value);
}

static const char *describe_here(sherd_call *call)
{
    return sherd__dims_rule(call, call->attributes);
}

static bool sum_here(sherd_call *call)
{
    add_up(call, put_value);
    return true;
}

static const sherd_op here_op = {.name = "exact sums of a rank",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 SHERD__DIMS_FIELDS,
                                 .whole = SHERD__REDUCED,
                                 .describe = describe_here,
                                 .operations = operations,
                                 .forward = sum_here};

/* ---- where they are on several --------------------------------------------------------------- */

static void put_words(sherd_call *call, sherd__exact *sum, int64_t m, int64_t count)
{
    sherd__exact_write(sum, (int64_t *)call->to[0] + m, count);
}

/* The words of a sum come first; they stay together. */
static const char *describe_words(sherd_call *call)
{
    const sherd_tensor *in = call->in[0];
    unsigned bits = sherd__dims_bits(call->attributes, in->ndim);
    int n = in->ndim;
    const char *reason = sherd__dims_rule(call, call->attributes);

    if (reason)
        return reason;
    n += (int)strlen("->");
    call->rule[n++] = 'z';
    for (int d = 0; d < in->ndim; d++)
        if (!(bits >> d & 1))
            call->rule[n++] = (char)('a' + d);
    call->rule[n] = '\0';
    call->dtype[0] = SHERD_I64;
    call->shape[0][0] = sherd__exact_words(in->dtype);
    return NULL;
}

static bool find_words(sherd_call *call)
{
    add_up(call, put_words);
    return true;
}

static const sherd_op words_op = {.name = "words of exact sums",
                                  .operand = {{"a", 0}},
                                  .result = {{"words", 0}},
                                  SHERD__DIMS_FIELDS,
                                  .whole = "z",
                                  .linearity = SHERD_LINEAR,
                                  .describe = describe_words,
                                  .operations = operations,
                                  .forward = find_words};

typedef struct rounding {
    int dtype;
    int ndim;   /* of the result */
    int narrow; /* bits of its dims that were reduced, and stay with size 1 */
} rounding;

static const char *describe_rounding(sherd_call *call)
{
    const rounding *r = call->attributes;
    int n = 0;

    call->rule[n++] = 'z';
    for (int d = 0; d < r->ndim; d++)
        if (!(r->narrow >> d & 1))
            call->rule[n++] = (char)('a' + d);
    call->rule[n++] = '-';
    call->rule[n++] = '>';
    for (int d = 0; d < r->ndim; d++)
        call->rule[n++] = r->narrow >> d & 1 ? '1' : (char)('a' + d);
    call->rule[n] = '\0';
    call->dtype[0] = (sherd_dtype)r->dtype;
    return NULL;
}

static bool round_words(sherd_call *call)
{
    int64_t count = call->out[0]->count;
    sherd__exact sum;

    for (int64_t m = 0; m < count; m++) {
        sherd__exact_begin(&sum, call->out[0]->dtype);
        sherd__exact_read(&sum, (const int64_t *)call->from[0] + m, count);
        put_value(call, &sum, m, count);
    }
    return true;
}

static const sherd_op round_op = {.name = "rounded exact sums",
                                  .operand = {{"words", 0}},
                                  .result = {{"y", 0}},
                                  .field = {SHERD_FIELD(rounding, dtype, INT),
                                            SHERD_FIELD(rounding, ndim, INT),
                                            SHERD_FIELD(rounding, narrow, INT)},
                                  .attributes = sizeof(rounding),
                                  .whole = "z",
                                  .numbers = SHERD_NUMBERS,
                                  .describe = describe_rounding,
                                  .forward = round_words};

/* ---- sums ------------------------------------------------------------------------------------ */

/* Whether some rank has only a part of what a sum adds. */
static bool is_shared(const sherd_tensor *a, unsigned reduced)
{
    if (!a->layout)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (reduced >> d & 1 && a->layout->spec.dim[d].axes)
            return true;
    return a->layout->pending_axes != 0;
}

static sherd_tensor *sum_of(sherd_tensor *a, const sherd__dims *dims)
{
    unsigned reduced = sherd__dims_bits(dims, a->ndim);
    rounding r = {.dtype = (int)a->dtype};

    if (!is_shared(a, reduced))
        return sherd_apply(&here_op, &a, 1, dims);
    for (int d = 0; d < a->ndim; d++)
        if (dims->keepdim || !(reduced >> d & 1))
            r.narrow |= (int)(reduced >> d & 1) << r.ndim++;
    sherd_tensor *words = sherd_apply(&words_op, &a, 1, dims);
    return sherd_apply(&round_op, &words, 1, &r);
}

static void sum_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd__dims_spread(node, grad_out[0]);
}

static const sherd_op recorded = {.name = "sherd_sum_exact", .backward = sum_back};

static bool sum(sherd_call *call)
{
    const sherd__dims *dims = call->attributes;
    sherd_tensor *a = call->in[0];
    const char *reason = sherd__dims_fault(call, dims, a->ndim);

    if (reason)
        return sherd_call_fail(call, SHERD_EINVAL, "%s", reason);
    bool before = sherd_set_recording(call->world, false);
    sherd_tensor *y = sum_of(a, dims);
    sherd_set_recording(call->world, before);
    call->out[0] = y;
    if (!sherd_tensor_failed(y))
        (void)sherd__record_node(call->world, &recorded, &a, 1, &y, 1, dims, sizeof *dims);
    return true;
}

#define SUM(name_, text)                                                             \
    {                                                                                \
        .name = name_, .summary = text, .operand = {{"a", 0}}, .result = {{"y", 0}}, \
        SHERD__DIMS_FIELDS, .autocast = SHERD_AUTOCAST_FULL, .compose = sum          \
    }

const sherd_op sherd__sum_exact_op =
    SUM("sherd_sum_exact", "sum of all elements, the same bits in every layout");
const sherd_op sherd__sum_exact_over_op =
    SUM("sherd_sum_exact_over", "sum over dims, the same bits in every layout");

sherd_tensor *sherd_sum_exact(sherd_tensor *a)
{
    return sherd_apply(&sherd__sum_exact_op, &a, 1, &(sherd__dims){0});
}

sherd_tensor *sherd_sum_exact_over(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    const sherd__dims d = sherd__dims_given(a, dims, count, keepdim);

    return sherd_apply(&sherd__sum_exact_over_op, &a, 1, &d);
}
