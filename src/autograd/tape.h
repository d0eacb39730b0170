/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tape, as operators see it. An operator records a node with its table of functions, its
 * operands and its attributes, and saves tensors in the node's slots. A node lives as long as a
 * tensor or a later node refers to it; saved tensors are released as soon as its backward has run.
 */
#ifndef SHERD__AUTOGRAD_TAPE_H
#define SHERD__AUTOGRAD_TAPE_H

#include "sherd/op.h"
#include "tensor/tensor.h"

/* The attributes of an operator, by their declared fields: a hash, and whether two are equal. */
uint64_t sherd__hash_fields(const sherd_op *op, const void *attributes);
bool sherd__same_fields(const sherd_op *op, const void *a, const void *b);

/* Whether operands like these are to be recorded now. */
bool sherd__is_recorded(sherd_world *world, sherd_tensor *const *in, int ins);

/*
 * Record an operator: the outputs get the node. The tape reads name, backward and takes_pending of
 * `op`. `in` may contain NULLs. attrs are copied. NULL if nothing is to be recorded (no operand
 * requires a gradient, or recording is off), or if memory runs out (raised).
 */
sherd_node *sherd__record_node(sherd_world *world, const sherd_op *op, sherd_tensor *const *in,
                               int ins, sherd_tensor *const *out, int outs, const void *attrs,
                               size_t attrs_bytes);

/* sherd_autocast for a world that is not NULL, and setting it without checks. */
sherd_dtype sherd__low(sherd_world *world);
sherd_dtype sherd__set_low(sherd_world *world, sherd_dtype dtype);

/*
 * If `op` has recorded the 16-bit tensor t, let its node also accept gradients of this dtype, so
 * that they are not rounded early. With `moves`, so does what t is moved to.
 */
void sherd__take_wide(sherd_tensor *t, const sherd_op *op, sherd_dtype dtype, bool moves);

/*
 * The dtype that the gradient of operand i may have: the operand's, or the wider one that its node
 * accepts.
 */
sherd_dtype sherd__gradient_dtype(const sherd_node *node, int i);
/* Whether that is f32 although the operand has 16 bits. */
bool sherd__is_wide(const sherd_node *node, int i);
/* The dtype that the gradient of a tensor may have after a move. */
sherd_dtype sherd__moved_gradient_dtype(const sherd_tensor *t);

/*
 * Save a tensor in a slot of the node, from 0 to below ins + SHERD_MAX_RESULTS (a NULL node is a
 * no-op). sherd_node_operand and sherd_node_result read slots 0.. and ins.. . If the tensor is the
 * result of a move from something smaller, the source is saved instead, and moved again in
 * backward. Saved-tensor hooks apply. A tensor saved by several nodes is kept, and restored, once.
 */
void sherd__save(sherd_node *node, int slot, sherd_tensor *t);

/*
 * In backward: the restored tensor of a slot; NULL if nothing was saved. Borrowed until backward
 * returns. The failed tensor if it was written since.
 */
sherd_tensor *sherd__saved(sherd_node *node, int slot);

/* The same of a result that depends on no operand's value: without its place in the graph. */
sherd_tensor *sherd__saved_constant(sherd_node *node, int result);

/*
 * A backward in two parts, of a loss (gradients: NULL) or of outputs with theirs. The first
 * computes the gradients of `leaves`, and what is needed for them; the second those of all other
 * leaves. If several are under way, their second parts come in the order of the first ones; all
 * together give the bits of one sherd_backward after the other. What the second part needs of the
 * saved tensors is kept until it has run. NULL: failed, raised.
 */
struct sherd__pass *sherd__backward_first(sherd_tensor *const *outputs,
                                          sherd_tensor *const *gradients, int count,
                                          sherd_tensor *const *leaves, int n);
/* The second part, or only drop it (`good`: false); NULL is a no-op. */
void sherd__backward_second(struct sherd__pass *first, bool good);

sherd_world *sherd__node_world(const sherd_node *node);

/*
 * In backward: the sum that the gradient of operand i will be added to, if the operator may add to
 * it in place and return it; NULL: it may not, or there is no sum yet. Then the operator must
 * return a tensor that only it holds, because the next operator may add to that one. The result is
 * the same on all ranks, since no user code has seen such a sum.
 */
sherd_tensor *sherd__open_sum(sherd_node *node, int i);

/*
 * In backward: the gradient of result j, if the operator may overwrite it: only operators of the
 * tape have made it, and nothing else has seen it or will. Otherwise NULL.
 */
sherd_tensor *sherd__spare_grad(const sherd_node *node, int j);

/*
 * In backward, of a move: whether it may only begin, because there are gradients to compute while
 * it is under way.
 */
bool sherd__begins(sherd_node *node);

/*
 * Whether the backward that runs is recorded (create_graph). Then operators are, and what an
 * operator without a backward computes from what requires a gradient is an error once a gradient
 * reaches it.
 */
bool sherd__makes_graph(sherd_world *world);
/* In backward: a gradient moved to another layout; `begin`: it may be under way on return. */
sherd_tensor *sherd__gradient_to(sherd_tensor *g, const sherd_layout *to, bool begin);
/* The same tensor as a result of its own, recorded if t requires a gradient. */
sherd_tensor *sherd__alias(sherd_tensor *t);

/* The layout of result j; NULL = plain. */
const sherd_layout *sherd__node_result_layout(const sherd_node *node, int j);
/* The dtype of operand i. */
sherd_dtype sherd__node_dtype(const sherd_node *node, int i);

/*
 * a + b for gradients of one tensor, not recorded; their layouts may differ. `a` is consumed: if
 * nothing else holds it or its storage, b is added in place and `a` is returned.
 */
sherd_tensor *sherd__accumulate(sherd_tensor *a, sherd_tensor *b);

/*
 * For the optimizer: the gradient as it arrived (NULL = none), and replacing it by a settled one.
 */
sherd_tensor *sherd__raw_grad(const sherd_tensor *leaf);
/* As sherd_grad, for reading only: it may share its memory. */
sherd_tensor *sherd__settled_grad(sherd_tensor *t);
void sherd__set_grad(sherd_tensor *leaf, sherd_tensor *grad);

#endif
