/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights to 8 or 4 bits with scales, and back (include/sherd/ops_quantized.h). To quantize, a rank
 * must see all columns that share a scale, so the last dim is not sharded. Back, each element is a
 * matter of its own; a piece says which column is its first.
 */
#include "quantize.h"

#include <string.h>

#include "base/num.h"
#include "sherd/ops_quantized.h"
#include "sherd/ops_shape.h"
#include "vector/bodies.h"
#include "vector/choose.h"
#include "world/doing.h"

typedef struct grouping {
    int64_t group;
    int dtype; /* of what sherd_dequantize gives */
    int bits;  /* for sherd_quantize */
} grouping;

#define GROUPING                                                                      \
    .field = {SHERD_FIELD(grouping, group, INT64), SHERD_FIELD(grouping, dtype, INT), \
              SHERD_FIELD(grouping, bits, INT)},                                      \
    .attributes = sizeof(grouping)

static const sherd__quantized_kernels *kernels_in(const sherd_call *call)
{
    return sherd__quantized_by(&sherd__world_kernels(call->world)->f32);
}

sherd_tensor *sherd__in_pairs(sherd_tensor *t, const char *function)
{
    if (!t || sherd_tensor_failed(t) || t->ndim < 1 || t->shape[t->ndim - 1] % 2)
        return t;
    if (t->ndim == SHERD_MAX_DIMS)
        return sherd__fail_tensor(t->world, t->layout, SHERD_EINVAL,
                                  "%s: %.120s: of 4 bits it must have fewer dims", function,
                                  sherd_tensor_text(t));
    bool begun = sherd__doing_begin(t->world, function);
    sherd_tensor *pairs =
        sherd_unflatten(t, t->ndim - 1, (int64_t[]){t->shape[t->ndim - 1] / 2, 2}, 2);
    sherd__doing_end(t->world, begun);
    return pairs;
}

/* ---- to 8 or 4 bits -------------------------------------------------------------------------- */

static const char *describe_quantize(sherd_call *call)
{
    const grouping *how = call->attributes;
    const sherd_tensor *w = call->in[0];
    bool four = how->bits == 4;
    int last = w->ndim - 1 - four; /* of columns, or of bytes */

    if (how->bits != 8 && !four)
        return sherd_call_reason(call, "%d bits: 8 or 4", how->bits);
    if (w->ndim < 1)
        return "it must have a dim";
    if (how->group < 0)
        return sherd_call_reason(call, "a group of %lld columns", (long long)how->group);
    if (four && how->group % 2)
        return sherd_call_reason(call, "a group of %lld columns: of 4 bits it must be even",
                                 (long long)how->group);
    if (four && (last < 0 || w->shape[last + 1] != 2))
        return "of 4 bits it must have an even number of columns";
    strcpy(call->rule, how->group ? four ? "...kt->...k,...g" : "...k->...k,...g"
                       : four     ? "...kt->...k,..."
                                  : "...k->...k,...");
    if (how->group)
        call->shape[1][last] = sherd__groups_of((four + 1) * w->shape[last], how->group);
    call->dtype[0] = four ? SHERD_U8 : SHERD_I8;
    call->dtype[1] = SHERD_F32;
    return NULL;
}

/* One row: group by group, through f32. */
static void quantize_row(const sherd_call *call, int64_t in, int64_t row, float *wide)
{
    const grouping *how = call->attributes;
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const sherd__quantized_kernels *k = kernels_in(call);
    sherd_dtype dtype = call->in[0]->dtype;
    int64_t group = how->group, scales = group ? sherd__groups_of(in, group) : 1;
    const char *from = call->from[0];
    float *scale = (float *)call->to[1] + row * scales;

    sherd__convert(set, SHERD_F32, dtype, in, wide,
                   from + (size_t)(row * in) * sherd_dtype_bytes(dtype));
    for (int64_t g = 0; g < scales; g++) {
        int64_t lo = g * group, some = group ? sherd__min(group, in - lo) : in;
        if (how->bits == 4)
            k->quantize_pairs(some, (uint8_t *)call->to[0] + (row * in + lo) / 2, scale + g,
                              wide + lo);
        else
            k->quantize(some, (int8_t *)call->to[0] + row * in + lo, scale + g, wide + lo);
    }
}

static bool quantize(sherd_call *call)
{
    const grouping *how = call->attributes;
    const sherd_tensor *w = call->in[0];
    int last = w->ndim - 1 - (how->bits == 4);
    int64_t in = sherd__local_count(w, last, w->ndim), rows = sherd__local_count(w, 0, last);
    float *wide = sherd_call_scratch(call, sherd__max(in, 1) * (int64_t)sizeof *wide);

    if (!wide)
        return false;
    for (int64_t i = 0; i < rows && !sherd__is_dry(call->world); i++)
        quantize_row(call, in, i, wide);
    return true;
}

const sherd_op sherd__quantize_op = {.name = "sherd_quantize",
                                     .summary = "numbers of 8 or 4 bits, and their scales",
                                     .layouts = "`...k->...k,...`; k is whole",
                                     .operand = {{"weight", 0}},
                                     .result = {{"value", 0}, {"scale", 0}},
                                     GROUPING,
                                     .whole = "kgt",
                                     .describe = describe_quantize,
                                     .forward = quantize,
                                     .dry = quantize};

sherd_tensor *sherd_quantize(sherd_tensor *weight, int bits, int64_t group, sherd_tensor **scale)
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
    if (bits == 4 && group % 2 == 0)
        weight = sherd__in_pairs(weight, "sherd_quantize");
    sherd_apply_all(results, &sherd__quantize_op, &weight, 1,
                    &(grouping){.group = group, .bits = bits});
    *scale = results[1] ? results[1] : results[0];
    return results[0];
}

/* ---- and back -------------------------------------------------------------------------------- */

const char *sherd__quantized_fault(sherd_call *call, int value, int scale, int64_t group)
{
    const sherd_tensor *w = call->in[value], *s = call->in[scale];
    const char *name = call->op->operand[value].name;

    bool pairs = sherd__is_pairs(w);

    if (w->dtype != SHERD_I8 && !pairs)
        return sherd_call_reason(call, "%s must be i8, or u8 of 4 bits", name);
    if (s->dtype != SHERD_F32)
        return "scale must be f32";
    if (group < 0)
        return sherd_call_reason(call, "a group of %lld columns", (long long)group);
    if (pairs && group % 2)
        return sherd_call_reason(call, "a group of %lld columns: of 4 bits it must be even",
                                 (long long)group);
    if (w->ndim < 1)
        return sherd_call_reason(call, "%s must have a dim", name);
    if (s->ndim != w->ndim - !group)
        return sherd_call_reason(call, "scale must have %d dims", w->ndim - !group);
    int64_t in = w->shape[w->ndim - 1] * (pairs + 1);
    int64_t groups = group ? sherd__groups_of(in, group) : 0;
    if (group && s->shape[s->ndim - 1] != groups)
        return sherd_call_reason(call, "%lld columns have %lld groups of %lld", (long long)in,
                                 (long long)groups, (long long)group);
    return NULL;
}

sherd__quantized sherd__quantized_piece(const sherd_call *call, int value, int scale, int64_t group)
{
    const sherd_tensor *w = call->in[value], *s = call->in[scale];
    static const uint8_t nothing = SHERD__NO_PAIR; /* in dry worlds: they are pairs all the same */
    int last = w->ndim - 1;
    bool pairs = sherd__is_pairs(w);
    const uint8_t *bytes = call->from[value] ? call->from[value] : &nothing;

    return (sherd__quantized){.rows = sherd__local_count(w, 0, last),
                              .cols = w->local[last] * (pairs + 1),
                              .value = pairs ? NULL : call->from[value],
                              .pairs = pairs ? bytes : NULL,
                              .scale = call->from[scale],
                              .group = group,
                              .scales = group ? s->local[last] : 1,
                              .first = sherd_call_box(call, value).offset[last] * (pairs + 1)};
}

enum { VALUE, SCALE };

static const char *describe_dequantize(sherd_call *call)
{
    const grouping *how = call->attributes;

    if (!sherd__has_fractions((sherd_dtype)how->dtype))
        return "the dtype has no fractions";
    bool pairs = sherd__is_pairs(call->in[VALUE]);

    if (pairs && call->in[VALUE]->ndim == SHERD_MAX_DIMS)
        return "of 4 bits value must have fewer dims";
    strcpy(call->rule, how->group ? pairs ? "...k,...*->...kt" : "...k,...*->...k"
                       : pairs    ? "...k,...->...kt"
                                  : "...k,...->...k");
    if (pairs)
        call->shape[0][call->in[VALUE]->ndim] = 2;
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
                                       .summary = "whole numbers times their scales",
                                       .layouts = "`...k,...->...k`",
                                       .operand = {{"value", SHERD_OP_ANY}, {"scale", 0}},
                                       .result = {{"y", 0}},
                                       GROUPING,
                                       .whole = "t",
                                       .describe = describe_dequantize,
                                       .forward = dequantize};

sherd_tensor *sherd_dequantize(sherd_tensor *value, sherd_tensor *scale, int64_t group,
                               sherd_dtype dtype)
{
    sherd_tensor *y = sherd_apply(&sherd__dequantize_op, (sherd_tensor *[]){value, scale}, 2,
                                  &(grouping){.group = group, .dtype = (int)dtype});

    if (sherd_tensor_failed(y) || !sherd__is_pairs(value))
        return y;
    bool begun = sherd__doing_begin(y->world, "sherd_dequantize");
    y = sherd_flatten(y, -2, -1);
    sherd__doing_end(y->world, begun);
    return y;
}
