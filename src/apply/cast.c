/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor in another dtype: one pass over the local piece, nothing is sent. A pending sum may stay
 * pending from one floating-point dtype to another: addends are rounded one by one. It is settled
 * before a cast to integers or bool, because truncating addends would change the sum; and before a
 * cast from integers or bool, whose sums and products wrap around.
 */
#include "operator.h"
#include "vector/choose.h"

typedef struct cast_attributes {
    int dtype;
} cast_attributes;

/* Whether a sum or product of integers or bool is pending. (No average of these can be settled.) */
static bool is_whole_sum(const sherd_tensor *t)
{
    bool added = false, averaged = false;

    for (int a = 0; t->layout && a < t->layout->spec.mesh->axes; a++) {
        int op = t->layout->spec.pending[a];
        added |= op == SHERD_SUM || op == SHERD_PRODUCT;
        averaged |= op == SHERD_AVG;
    }
    return added && !averaged && !sherd__has_fractions(t->dtype);
}

static const char *describe(sherd_call *call)
{
    const cast_attributes *attributes = call->attributes;
    sherd_dtype dtype = (sherd_dtype)attributes->dtype;

    if (sherd_dtype_bytes(dtype) == 0)
        return sherd_call_reason(call, "%s (%d) is no dtype to cast to", sherd_dtype_name(dtype),
                                 attributes->dtype);
    call->dtype[0] = dtype;
    if (!sherd__has_fractions(dtype) || is_whole_sum(call->in[0]))
        call->linearity = SHERD_NONLINEAR;
    return NULL;
}

/* A cast to fractions always runs on the GPU, since operators on fractions do. */
static bool goes_there(const sherd_call *call)
{
    const cast_attributes *attributes = call->attributes;

    return sherd__device_computes((sherd_dtype)attributes->dtype) ||
           sherd__is_only_there(call->in[0]);
}

static bool convert(sherd_call *call)
{
    if (sherd__device_in(call)) {
        sherd__device_convert(sherd__device_in(call), call->out[0]->dtype, call->in[0]->dtype,
                              call->in[0]->count, call->to[0], call->from[0]);
        return true;
    }
    sherd__convert(sherd__world_kernels(call->world), call->out[0]->dtype, call->in[0]->dtype,
                   call->in[0]->count, call->to[0], call->from[0]);
    return true;
}

/* The gradient has fractions, so it may stay pending. */
static void cast_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd_cast(grad_out[0], sherd__node_dtype(node, 0));
}

const sherd_op sherd__cast_op = {.name = "sherd_cast",
                                 .summary = "the same values in another dtype",
                                 .operand = {{"t", 0}},
                                 .result = {{"y", 0}},
                                 .field = {SHERD_FIELD(cast_attributes, dtype, INT)},
                                 .attributes = sizeof(cast_attributes),
                                 .rule = "...->...",
                                 .linearity = SHERD_UNCHANGED,
                                 .numbers = SHERD_EVERYTHING,
                                 .describe = describe,
                                 .forward = convert,
                                 .on_device = goes_there,
                                 .backward = cast_back,
                                 .takes_pending = true};

sherd_tensor *sherd_cast(sherd_tensor *t, sherd_dtype dtype)
{
    if (t && t->dtype == dtype && !sherd_tensor_failed(t) &&
        !(t->layout && sherd__alarmed(t->world)))
        return t;
    return sherd_apply(&sherd__cast_op, &t, 1, &(cast_attributes){(int)dtype});
}

sherd_tensor *sherd__cast_unrecorded(sherd_tensor *t, sherd_dtype dtype)
{
    bool before = sherd_set_recording(t->world, false);
    sherd_tensor *y = sherd_cast(t, dtype);

    sherd_set_recording(t->world, before);
    return y;
}
