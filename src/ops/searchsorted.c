/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where values go in sorted sequences. Each rank has its values and all of their sequences: nothing
 * else is needed, so values keep their layout.
 */
#include "apply/operator.h"
#include "kernels/sorted.h"
#include "sherd/ops_sorted.h"
#include "vector/choose.h"
#include "layout/shape.h"

#include <stdio.h>

typedef struct seeking {
    int dtype, right;
} seeking;

enum { SORTED, VALUES };

static bool same_leading_dims(const sherd_tensor *a, const sherd_tensor *b)
{
    return sherd__same_shape(a->ndim - 1, a->shape, b->ndim - 1, b->shape);
}

static const char *describe(sherd_call *call)
{
    const seeking *at = call->attributes;
    const sherd_tensor *sorted = call->in[SORTED];

    if (at->dtype != SHERD_I64 && at->dtype != SHERD_I32)
        return "the result is to be i64 or i32";
    if (sorted->ndim < 1 || (sorted->ndim > 1 && !same_leading_dims(sorted, call->in[VALUES])))
        return "sorted must be [n], or [..., n] of the same leading dims as values [..., m]";
    int64_t n = sorted->shape[sorted->ndim - 1];
    if (at->dtype == SHERD_I32 && n > INT32_MAX)
        return sherd_call_reason(call, "%lld elements are more than an i32 counts", (long long)n);
    snprintf(call->rule, sizeof call->rule, sorted->ndim > 1 ? "...n,...m->...m" : "n,...->...");
    call->dtype[0] = (sherd_dtype)at->dtype;
    return NULL;
}

static bool seek(sherd_call *call)
{
    const seeking *at = call->attributes;
    const sherd_tensor *sorted = call->in[SORTED], *out = call->out[0];
    sherd__seek s = {.rows = 1, .n = sorted->local[sorted->ndim - 1], .m = out->count};
    int64_t *place = at->dtype == SHERD_I64
                         ? call->to[0]
                         : sherd_call_scratch(call, out->count * (int64_t)sizeof *place);

    if (out->count == 0)
        return true;
    if (!place || sherd__is_dry(call->world))
        return place != NULL;
    s.right = at->right;
    if (sorted->ndim > 1) {
        s.m = out->local[out->ndim - 1];
        s.rows = out->count / s.m;
    }
    sherd__seek_all(sorted->dtype, &s, place, call->from[SORTED], call->from[VALUES]);
    if (at->dtype == SHERD_I32)
        sherd__convert(sherd__world_kernels(call->world), SHERD_I32, SHERD_I64, out->count,
                       call->to[0], place);
    return true;
}

const sherd_op sherd__searchsorted_op = {
    .name = "sherd_searchsorted",
    .summary = "where values go in sorted sequences",
    .operand = {{"sorted", 0}, {"values", 0}},
    .result = {{"places", 0}},
    .field = {SHERD_FIELD(seeking, dtype, INT), SHERD_FIELD(seeking, right, INT)},
    .attributes = sizeof(seeking),
    .numbers = SHERD_EVERYTHING,
    .whole = "n",
    .describe = describe,
    .forward = seek,
    .dry = seek};

sherd_tensor *sherd_searchsorted(sherd_tensor *sorted, sherd_tensor *values, bool right,
                                 sherd_dtype dtype)
{
    return sherd_apply(&sherd__searchsorted_op, (sherd_tensor *[]){sorted, values}, 2,
                       &(seeking){(int)dtype, right});
}
