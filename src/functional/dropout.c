/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout. Whether an element stays depends on the generator's key and the element's global index,
 * so every layout draws the same mask, and backward draws it again. A box is processed in runs of
 * elements that are neighbours in the whole tensor: one kernel call each.
 */
#include "dropout.h"

typedef struct dropout_attributes {
    sherd__key key;
    double p;
} dropout_attributes;

static bool drop(sherd_call *call)
{
    const dropout_attributes *attributes = call->attributes;
    size_t element = sherd_dtype_bytes(call->in[0]->dtype);
    sherd__walk w;

    for (sherd__walk_begin(&w, call->in[0]); sherd__walk_next(&w);) {
        size_t skip = (size_t)w.local * element;
        if (sherd__device_in(call))
            sherd__device_dropout(sherd__device_in(call), call->in[0]->dtype, w.length,
                                  (char *)call->to[0] + skip, (const char *)call->from[0] + skip,
                                  attributes->p, attributes->key, w.global);
        else
            sherd__kernels_in(call)->dropout(w.length, (char *)call->to[0] + skip,
                                             (const char *)call->from[0] + skip, attributes->p,
                                             attributes->key, w.global);
    }
    return true;
}

static const char *describe(sherd_call *call)
{
    const dropout_attributes *attributes = call->attributes;

    return attributes->p >= 0 && attributes->p < 1
               ? NULL
               : sherd_call_reason(call, "p = %g is outside of [0,1)", attributes->p);
}

/* Linear in the operand: backward drops the same elements of the gradient. */
static void dropout_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd_apply(&sherd__dropout_op, &grad_out[0], 1, sherd_node_attributes(node));
}

const sherd_op sherd__dropout_op = {.name = "sherd_dropout",
                                    .summary = "zero with probability p, scale the rest",
                                    .operand = {{"a", 0}},
                                    .result = {{"y", 0}},
                                    .field = {SHERD__KEY_FIELDS(dropout_attributes, key),
                                              SHERD_FIELD(dropout_attributes, p, DOUBLE)},
                                    .attributes = sizeof(dropout_attributes),
                                    .rule = "...->...",
                                    .linearity = SHERD_LINEAR,
                                    .describe = describe,
                                    .forward = drop,
                                    .on_device = sherd__fractions_there,
                                    .backward = dropout_back,
                                    .takes_pending = true};

sherd_tensor *sherd__dropped(sherd_tensor *t, double p, sherd__key key)
{
    return p == 0 ? t : sherd_apply(&sherd__dropout_op, &t, 1, &(dropout_attributes){key, p});
}

sherd_tensor *sherd_dropout(sherd_tensor *a, double p, sherd_generator *generator)
{
    dropout_attributes attributes = {.p = p};
    sherd_world *world = sherd_tensor_world(a);

    if (!generator && world && !sherd_tensor_failed(a))
        return sherd__fail_tensor(world, a->layout != NULL, SHERD_EINVAL,
                                  "sherd_dropout: no generator: a is %s", sherd_tensor_text(a));
    /*
     * Counted also where it fails: it may fail on one rank only, and generators must stay in step.
     */
    if (generator && world)
        attributes.key = sherd__next_key(world, generator);
    if (p == 0 && a && !sherd_tensor_failed(a) && !(a->layout && sherd__alarmed(world)))
        return a;
    return sherd_apply(&sherd__dropout_op, &a, 1, &attributes);
}
