/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Autocast: operands are cast to the precision that suits an operator, before anything else is done
 * with them. A 16-bit copy is kept with the storage that it was made from (sherd__image_of), until
 * that is written or freed. Each use of it records a cast of its own, so that gradients of uses
 * have the operand's precision and add up there. Whether there is a copy is each rank's own affair
 * (a slice may cover the storage of one rank only): with and without it the same is noted.
 */
#include "operator.h"

#include "door.h"

typedef struct cast_attributes {
    int dtype;
} cast_attributes;

/* Whether a dtype is cast at all: f64, integers and bool are not. */
static bool is_eligible(sherd_dtype dtype)
{
    return dtype == SHERD_F32 || sherd__is_half(dtype);
}

/*
 * Operand i if autocast applies to it: not an index, a condition, or an operand of any dtype.
 * Otherwise NULL.
 */
static sherd_tensor *counted(const sherd_call *call, int i)
{
    enum { APART = SHERD_OP_INDEX | SHERD_OP_BOOL | SHERD_OP_ANY };

    return sherd__slot(call->op, i)->flags & APART ? NULL : call->in[i];
}

/* Another use of the copy: note and record what sherd_cast would, which other ranks may call. */
static void record_use(sherd_tensor *t, sherd_tensor *copy)
{
    const cast_attributes attributes = {(int)copy->dtype};
    sherd_call call; /* large, and mostly unused */

    call.op = &sherd__cast_op;
    call.attributes = &attributes;
    call.world = t->world;
    call.results = 1;
    call.out[0] = copy;
    sherd__note_call(&call, &t, 1, t->layout ? sherd__hash_fields(call.op, call.attributes) : 0);
    sherd__origin_pass(&t, 1, &copy, 1); /* it may have been made before the run */
    copy->autograd.requires_grad = false;
    sherd__record_node(t->world, &sherd__cast_op, &t, 1, &copy, 1, &attributes, sizeof attributes);
}

/* A leaf's copy lives until the leaf is written, so saving it costs nothing. */
static void share_life(const sherd_tensor *t, sherd_tensor *copy)
{
    copy->autograd.of_leaf = t->autograd.requires_grad && !t->autograd.node;
    copy->storage->leaf |= copy->autograd.of_leaf;
}

/* Whether handlers may do something else instead of a cast. */
static bool is_handled(sherd_world *world)
{
    sherd__ops *ops = sherd__ops_of(world);

    return ops->overrides && (sherd__override_of(ops, &sherd__cast_op, SHERD_ABOVE_TAPE) ||
                              sherd__override_of(ops, &sherd__cast_op, SHERD_BELOW_TAPE));
}

static sherd_tensor *to_low(sherd_tensor *t, sherd_dtype dtype)
{
    bool keeps = !is_handled(t->world);
    sherd_tensor *copy = keeps ? sherd__image_of(t, dtype) : NULL;

    if (copy && sherd_tensor_failed(copy))
        return copy;
    if (copy) {
        record_use(t, copy);
    } else {
        copy = sherd_cast(t, dtype);
        if (sherd_tensor_failed(copy))
            return copy;
        if (keeps)
            sherd__keep_image(t, copy);
    }
    if (keeps)
        share_life(t, copy);
    sherd__take_wide(copy, &sherd__cast_op, t->dtype, false);
    return copy;
}

/* The dtype that operands are cast to; SHERD_DTYPE_NONE: none. */
static sherd_dtype goal(const sherd__run *run, sherd_dtype low)
{
    const sherd_call *call = &run->call;
    sherd_dtype first = SHERD_DTYPE_NONE;
    bool differ = false;

    for (int i = 0; i < call->operands; i++) {
        const sherd_tensor *t = counted(call, i);
        if (t && t->dtype == SHERD_F64)
            return SHERD_DTYPE_NONE;
        if (!t || !is_eligible(t->dtype))
            continue;
        differ |= first != SHERD_DTYPE_NONE && t->dtype != first;
        first = t->dtype;
    }
    if (call->op->autocast == SHERD_AUTOCAST_LOW)
        return low;
    return differ || call->op->autocast == SHERD_AUTOCAST_FULL ? SHERD_F32 : SHERD_DTYPE_NONE;
}

bool sherd__autocast(sherd__run *run, sherd_dtype low)
{
    sherd_call *call = &run->call;
    sherd_dtype dtype = goal(run, low);

    if (dtype == SHERD_DTYPE_NONE)
        return true;
    for (int i = 0; i < call->operands; i++) {
        sherd_tensor *t = counted(call, i);
        if (!t || t->dtype == dtype || !is_eligible(t->dtype))
            continue;
        sherd__open(run);
        call->in[i] = dtype == low ? to_low(t, dtype) : sherd_cast(t, dtype);
        if (sherd_tensor_failed(call->in[i])) {
            sherd__close(run, false);
            return false;
        }
    }
    return true;
}
