/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights to 8 bits with scales, and back (include/sherd/ops_quantized.h). To quantize, a rank must
 * see all columns that share a scale, so the last dim is not sharded. Back, each element is a
 * matter of its own; a piece says which column is its first.
 */
#include "quantize.h"

#include <string.h>

#include "base/num.h"
#include "sherd/ops_quantized.h"
#include "vector/bodies.h"
#include "vector/choose.h"

typedef struct grouping {
    int64_t group;
    int dtype; /* of what sherd_dequantize gives */
} grouping;

#define GROUPING                                                                       \
    .field = {SHERD_FIELD(grouping, group, INT64), SHERD_FIELD(grouping, dtype, INT)}, \
    .attributes = sizeof(grouping)

static const sherd__quantized_kernels *kernels_in(const sherd_call *call)
{
    return sherd__quantized_by(&sherd__world_kernels(call->world)->f32);
}

/* ---- to 8 bits ------------------------------------------------------------------------------- */

static const char *describe_quantize(sherd_call *call)
{
    const grouping *how = call->attributes;
    const sherd_tensor *w = call->in[0];

    if (w->ndim < 1)
        return "it must have a dim";
    if (how->group < 0)
        return sherd_call_reason(call, "a group of %lld columns", (long long)how->group);
    strcpy(call->rule, how->group ? "...k->...k,...g" : "...k->...k,...");
    if (how->group)
        call->shape[1][w->ndim - 1] = sherd__groups_of(w->shape[w->ndim - 1], how->group);
    call->dtype[0] = SHERD_I8;
    call->dtype[1] = SHERD_F32;
    return NULL;
}

/* One row: group by group, through f32. */
static void quantize_row(const sherd_call *call, int64_t in, int64_t group, int64_t row,
                         float *wide)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const sherd__quantized_kernels *k = kernels_in(call);
    sherd_dtype dtype = call->in[0]->dtype;
    int64_t scales = group ? sherd__groups_of(in, group) : 1;
    const char *from = call->from[0];
    float *scale = (float *)call->to[1] + row * scales;
    int8_t *value = (int8_t *)call->to[0] + row * in;

    sherd__convert(set, SHERD_F32, dtype, in, wide,
                   from + (size_t)(row * in) * sherd_dtype_bytes(dtype));
    for (int64_t g = 0; g < scales; g++) {
        int64_t lo = g * group, some = group ? sherd__min(group, in - lo) : in;
        k->quantize(some, value + lo, scale + g, wide + lo);
    }
}

static bool quantize(sherd_call *call)
{
    const grouping *how = call->attributes;
    const sherd_tensor *w = call->in[0];
    int64_t in = w->local[w->ndim - 1], rows = sherd__local_count(w, 0, w->ndim - 1);
    float *wide = sherd_call_scratch(call, sherd__max(in, 1) * (int64_t)sizeof *wide);

    if (!wide)
        return false;
    for (int64_t i = 0; i < rows && !sherd__is_dry(call->world); i++)
        quantize_row(call, in, how->group, i, wide);
    return true;
}

const sherd_op sherd__quantize_op = {.name = "sherd_quantize",
                                     .summary = "numbers of 8 bits, and their scales",
                                     .layouts = "`...k->...k,...`; k is whole",
                                     .operand = {{"weight", 0}},
                                     .result = {{"value", 0}, {"scale", 0}},
                                     GROUPING,
                                     .whole = "kg",
                                     .describe = describe_quantize,
                                     .forward = quantize,
                                     .dry = quantize};

sherd_tensor *sherd_quantize(sherd_tensor *weight, int64_t group, sherd_tensor **scale)
{
    sherd_tensor *results[2] = {NULL, NULL};
    const sherd__argument need[] = {{"weight", weight}, {"scale", scale}, {NULL, NULL}};
    sherd_tensor *failed;

    if (scale)
        *scale = NULL;
    if (!sherd__given(sherd_tensor_world(weight), "sherd_quantize", need, &failed)) {
        if (scale)
            *scale = failed;
        return failed;
    }
    sherd_apply_all(results, &sherd__quantize_op, &weight, 1, &(grouping){.group = group});
    *scale = results[1] ? results[1] : results[0];
    return results[0];
}

/* ---- and back -------------------------------------------------------------------------------- */

const char *sherd__quantized_fault(sherd_call *call, int value, int scale, int64_t group)
{
    const sherd_tensor *w = call->in[value], *s = call->in[scale];
    const char *name = call->op->operand[value].name;

    if (w->dtype != SHERD_I8)
        return sherd_call_reason(call, "%s must be i8", name);
    if (s->dtype != SHERD_F32)
        return "scale must be f32";
    if (group < 0)
        return sherd_call_reason(call, "a group of %lld columns", (long long)group);
    if (w->ndim < 1)
        return sherd_call_reason(call, "%s must have a dim", name);
    if (s->ndim != w->ndim - !group)
        return sherd_call_reason(call, "scale must have %d dims", w->ndim - !group);
    int64_t in = w->shape[w->ndim - 1];
    int64_t groups = group ? sherd__groups_of(in, group) : 0;
    if (group && s->shape[s->ndim - 1] != groups)
        return sherd_call_reason(call, "%lld columns have %lld groups of %lld", (long long)in,
                                 (long long)groups, (long long)group);
    return NULL;
}

sherd__quantized sherd__quantized_piece(const sherd_call *call, int value, int scale, int64_t group)
{
    const sherd_tensor *w = call->in[value], *s = call->in[scale];
    int last = w->ndim - 1;

    return (sherd__quantized){.rows = sherd__local_count(w, 0, last),
                              .cols = w->local[last],
                              .value = call->from[value],
                              .scale = call->from[scale],
                              .group = group,
                              .scales = group ? s->local[last] : 1,
                              .first = sherd_call_box(call, value).offset[last]};
}

enum { VALUE, SCALE };

static const char *describe_dequantize(sherd_call *call)
{
    const grouping *how = call->attributes;

    if (!sherd__has_fractions((sherd_dtype)how->dtype))
        return "the dtype has no fractions";
    strcpy(call->rule, how->group ? "...k,...*->...k" : "...k,...->...k");
    call->dtype[0] = (sherd_dtype)how->dtype;
    return sherd__quantized_fault(call, VALUE, SCALE, how->group);
}

static bool dequantize(sherd_call *call)
{
    const grouping *how = call->attributes;
    const sherd__quantized q = sherd__quantized_piece(call, VALUE, SCALE, how->group);

    if (call->out[0]->count)
        kernels_in(call)->expand(&q, 0, q.rows, true, (sherd_dtype)how->dtype, call->to[0]);
    return true;
}

const sherd_op sherd__dequantize_op = {.name = "sherd_dequantize",
                                       .summary = "numbers of 8 bits times their scales",
                                       .layouts = "`...k,...->...k`",
                                       .operand = {{"value", SHERD_OP_ANY}, {"scale", 0}},
                                       .result = {{"y", 0}},
                                       GROUPING,
                                       .describe = describe_dequantize,
                                       .forward = dequantize};

sherd_tensor *sherd_dequantize(sherd_tensor *value, sherd_tensor *scale, int64_t group,
                               sherd_dtype dtype)
{
    return sherd_apply(&sherd__dequantize_op, (sherd_tensor *[]){value, scale}, 2,
                       &(grouping){group, (int)dtype});
}
