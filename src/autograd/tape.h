/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape, as operators see it. An operator records a node with its table of functions, its operands and
 * what it needs to remember, and saves tensors into the node's slots. A node lives while a tensor or a later
 * node refers to it; what it saved goes as soon as its backward has run.
 */
#ifndef SHERD__TAPE_H
#define SHERD__TAPE_H

#include "sherd/autograd.h"
#include "tensor/tensor.h"

enum {
    SHERD__NODE_INPUTS = 4,
    SHERD__NODE_OUTPUTS = 2,
    SHERD__NODE_SLOTS = 6,
    SHERD__ATTRS_BYTES = 128
};

typedef struct sherd__node sherd__node;

/* How an operator runs backward. One constant table per operator. */
typedef struct sherd__backward {
    const char *name;
    /* Whether gradients are welcome as they come: in any layout, sums pending. Else each is settled before run: moved
     * to the output's layout, pending axes replicated. */
    bool takes_pending;
    /*
     * grad_in[i] = gradient of input i, for each i that sherd__wants(node, i); others are left NULL. grad_out[j] is
     * NULL if nothing flowed into output j. Runs inside a scope of its own, without recording; made of operators.
     */
    void (*run)(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
} sherd__backward;

/* Whether operands like these are to be recorded now. */
bool sherd__is_recorded(sherd_world *world, sherd_tensor *const *in, int ins);

/*
 * Record an operator: the outputs get the node. `in` may hold NULLs. attrs (at most SHERD__ATTRS_BYTES) are
 * copied. NULL if nothing is to be recorded (no operand wants a gradient, or recording is off), or for lack of
 * memory (raised).
 */
sherd__node *sherd__record_node(sherd_world *world, const sherd__backward *backward,
                                sherd_tensor *const *in, int ins, sherd_tensor *const *out,
                                int outs, const void *attrs, size_t attrs_bytes);

/*
 * Save a tensor into a slot of the node (a NULL node is a no-op). The result of a move that is smaller before
 * is saved as it was before and moved again in backward. Saved-tensor hooks see it. A tensor saved by
 * several nodes is kept, and restored, once.
 */
void sherd__save(sherd__node *node, int slot, sherd_tensor *t);

/* In run: what was saved, restored; NULL if nothing was. Borrowed until run returns. The failed tensor if it was written since. */
sherd_tensor *sherd__saved(sherd__node *node, int slot);

bool sherd__wants(const sherd__node *node, int input);
const void *sherd__attrs(const sherd__node *node);
sherd_world *sherd__node_world(const sherd__node *node);
/* Layout of an input as it was recorded; NULL = plain. Its global shape. */
const sherd_layout *sherd__input_layout(const sherd__node *node, int input);
int sherd__input_shape(const sherd__node *node, int input, const int64_t **shape);

/*
 * a + b of gradients of one tensor, not recorded: layouts may differ. `a` is used up: where nobody else holds it or its
 * storage, b is added in place and `a` returned.
 */
sherd_tensor *sherd__accumulate(sherd_tensor *a, sherd_tensor *b);

/* For the optimizer: the gradient as it came (NULL = none), and putting a settled one in its place. */
sherd_tensor *sherd__raw_grad(const sherd_tensor *leaf);
void sherd__set_grad(sherd_tensor *leaf, sherd_tensor *grad);

#endif
