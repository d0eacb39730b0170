/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape, as operators see it. An operator records a node with its table of functions, its operands and
 * what it needs to remember, and saves tensors into the node's slots. A node lives while a tensor or a later
 * node refers to it; what it saved goes as soon as its backward has run.
 */
#ifndef SHERD__TAPE_H
#define SHERD__TAPE_H

#include "sherd/op.h"
#include "tensor/tensor.h"

/* Attributes of an operator, as far as it says what they are: a hash, and whether two of them are the same. */
uint64_t sherd__hash_fields(const sherd_op *op, const void *attributes);
bool sherd__same_fields(const sherd_op *op, const void *a, const void *b);

/* Whether operands like these are to be recorded now. */
bool sherd__is_recorded(sherd_world *world, sherd_tensor *const *in, int ins);

/*
 * Record an operator: the outputs get the node. Of `op` the tape reads name, backward and takes_pending. `in` may hold
 * NULLs. attrs are copied. NULL if nothing is to be recorded (no operand wants a gradient, or recording is off), or for
 * lack of memory (raised).
 */
sherd_node *sherd__record_node(sherd_world *world, const sherd_op *op, sherd_tensor *const *in,
                               int ins, sherd_tensor *const *out, int outs, const void *attrs,
                               size_t attrs_bytes);

/* sherd_autocast of a world that is there, and setting it unchecked. */
sherd_dtype sherd__low(sherd_world *world);
sherd_dtype sherd__set_low(sherd_world *world, sherd_dtype dtype);

/*
 * The node of a tensor of 16 bits, if `op` has recorded it, takes gradients of this dtype too, so that nobody rounds what is not rounded
 * yet. Where `moves`, so does what the tensor is moved to.
 */
void sherd__take_wide(sherd_tensor *t, const sherd_op *op, sherd_dtype dtype, bool moves);
/* Which dtype the gradient of operand i may have: that of the operand, or the one that its maker takes. */
sherd_dtype sherd__gradient_dtype(const sherd_node *node, int i);
/* Which one that of a tensor has where it is moved. */
sherd_dtype sherd__moved_gradient_dtype(const sherd_tensor *t);

/*
 * Save a tensor into a slot of the node, from 0 to below ins + SHERD_MAX_RESULTS (a NULL node is a no-op). sherd_node_operand
 * and sherd_node_result read slots 0.. and ins.. . The result of a move that is smaller before
 * is saved as it was before and moved again in backward. Saved-tensor hooks see it. A tensor saved by
 * several nodes is kept, and restored, once.
 */
void sherd__save(sherd_node *node, int slot, sherd_tensor *t);

/* In run: what was saved, restored; NULL if nothing was. Borrowed until run returns. The failed tensor if it was written since. */
sherd_tensor *sherd__saved(sherd_node *node, int slot);

sherd_world *sherd__node_world(const sherd_node *node);
/*
 * In backward: the sum that the gradient of operand i will be added to, where the operator may add to it instead and give that back;
 * NULL: it may not, or nothing has come yet. What the operator gives then must be its own, held by nobody else: the next one may be
 * told to add to it. The same on all ranks, since no user has seen such a sum.
 */
sherd_tensor *sherd__open_sum(sherd_node *node, int i);

/*
 * In backward: the gradient of result j, if the operator may write over it: only operators of the tape's have made it, and nobody has
 * seen it, nor will. Else NULL.
 */
sherd_tensor *sherd__spare_grad(const sherd_node *node, int j);

/* Of result j; NULL = plain. */
const sherd_layout *sherd__node_result_layout(const sherd_node *node, int j);
/* Of operand i. */
sherd_dtype sherd__node_dtype(const sherd_node *node, int i);

/*
 * a + b of gradients of one tensor, not recorded: layouts may differ. `a` is used up: where nobody else holds it or its
 * storage, b is added in place and `a` returned.
 */
sherd_tensor *sherd__accumulate(sherd_tensor *a, sherd_tensor *b);

/* For the optimizer: the gradient as it came (NULL = none), and putting a settled one in its place. */
sherd_tensor *sherd__raw_grad(const sherd_tensor *leaf);
void sherd__set_grad(sherd_tensor *leaf, sherd_tensor *grad);

#endif
