/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the steps of an operator call share: the slots of operands, and the scope of intermediate
 * tensors, which is opened only when there are any.
 */
#include "door.h"
#include "autograd/node.h"

const sherd_op_slot *sherd__slot(const sherd_op *op, int i)
{
    return &op->operand[sherd__slot_number(op, i)];
}

void sherd__open(sherd__run *run)
{
    if (run->scoped)
        return;
    sherd_scope_begin(run->call.world);
    run->scoped = true;
}

void sherd__close(sherd__run *run, bool good)
{
    if (!run->scoped)
        return;
    for (int j = 0; good && j < run->visible; j++)
        sherd_scope_pass(run->call.out[j]);
    sherd_scope_end(run->call.world);
    run->scoped = false;
}
