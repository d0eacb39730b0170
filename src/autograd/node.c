/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node of the tape: what it says of the operator call that it was recorded for, to backwards of
 * operators and to the tape; the dtypes that gradients of its operands may have; and dropping what
 * it holds. tape.c makes nodes.
 */
#include "autograd/node.h"

/* ---- for backwards of operators, also of users ----------------------------------------------- */

int sherd_node_operands(const sherd_node *node)
{
    return node ? node->ins : 0;
}

bool sherd_node_wants(const sherd_node *node, int i)
{
    return node && i >= 0 && i < node->ins && node->in[i].wanted && !(node->idle >> i & 1);
}

const void *sherd_node_attributes(const sherd_node *node)
{
    return node ? node->attributes : NULL;
}

const sherd_layout *sherd_node_layout(const sherd_node *node, int i)
{
    return node && i >= 0 && i < node->ins ? node->in[i].layout : NULL;
}

int sherd_node_shape(const sherd_node *node, int i, const int64_t **shape)
{
    static const int64_t none[SHERD_MAX_DIMS];
    bool there = node && i >= 0 && i < node->ins;

    if (shape)
        *shape = there ? node->in[i].shape : none;
    return there ? node->in[i].ndim : 0;
}

/* ---- for the library ------------------------------------------------------------------------- */

sherd_world *sherd__node_world(const sherd_node *node)
{
    return node->world;
}

const sherd_layout *sherd__node_result_layout(const sherd_node *node, int j)
{
    return node->out[j].layout;
}

sherd_dtype sherd__node_dtype(const sherd_node *node, int i)
{
    return node->in[i].dtype;
}

void sherd__node_clear(sherd_node *node)
{
    node->filled = 0;
    for (int i = 0; i < node->slots; i++) {
        sherd__kept *kept = node->slot[i];
        node->slot[i] = NULL;
        if (kept)
            sherd__refcounted_release(&kept->head);
    }
    for (int i = 0; i < node->ins; i++) {
        sherd__edge edge = node->in[i];
        node->in[i].node = NULL;
        node->in[i].leaf = NULL;
        if (edge.node)
            sherd__refcounted_release(&edge.node->head);
        sherd_tensor_release(edge.leaf);
    }
}

/* ---- dtypes of gradients --------------------------------------------------------------------- */

/* The dtype that the gradient of a result of this dtype may have. */
static sherd_dtype taken_by(const sherd_node *node, sherd_dtype dtype)
{
    return node && node->wide != SHERD_DTYPE_NONE && sherd__is_half(dtype) ? node->wide : dtype;
}

sherd_dtype sherd__gradient_dtype(const sherd_node *node, int i)
{
    const sherd__edge *in = &node->in[i];

    return taken_by(in->node, in->dtype);
}

bool sherd__is_wide(const sherd_node *node, int i)
{
    return sherd__is_half(node->in[i].dtype) && sherd__gradient_dtype(node, i) == SHERD_F32;
}

void sherd__take_wide(sherd_tensor *t, const sherd_op *op, sherd_dtype dtype, bool moves)
{
    sherd_node *node = (sherd_node *)t->autograd.node;

    if (!node || node->op != op)
        return;
    node->wide = dtype;
    node->wide_moves = moves;
}

sherd_dtype sherd__moved_gradient_dtype(const sherd_tensor *t)
{
    const sherd_node *node = (const sherd_node *)t->autograd.node;

    return node && node->wide_moves ? taken_by(node, t->dtype) : t->dtype;
}
