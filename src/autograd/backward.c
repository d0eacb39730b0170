/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk. Nodes that got a gradient wait in a heap, the newest first: an operand's node is always older, so when
 * a node's turn comes all its gradients have arrived. All ranks recorded the same operators in the same order, so
 * all make the same calls in the same order. Each node runs in a scope of its own, and what it saved goes right
 * after.
 */
#include "autograd/node.h"

#include <string.h>

typedef struct queue {
    sherd_world *world;
    sherd_node **at; /* a binary heap by order; counted */
    int count, room;
} queue;

static bool push(queue *q, sherd_node *node)
{
    int i = q->count;

    if (node->queued)
        return true;
    if (q->count == q->room) {
        int room = q->room ? 2 * q->room : 32;
        sherd_node **grown = sherd__grow(sherd__world_heap(q->world), q->at, (size_t)q->room,
                                         (size_t)room, sizeof *grown);
        if (!grown) {
            sherd__raise(q->world, SHERD_ENOMEM, "sherd_backward: out of memory");
            return false;
        }
        q->at = grown;
        q->room = room;
    }
    node->queued = true;
    node->record.refs++;
    q->count++;
    for (; i > 0 && q->at[(i - 1) / 2]->order < node->order; i = (i - 1) / 2)
        q->at[i] = q->at[(i - 1) / 2];
    q->at[i] = node;
    return true;
}

/* The newest; its count goes to the caller. */
static sherd_node *pop(queue *q)
{
    sherd_node *newest = q->at[0], *last = q->at[--q->count];
    int i = 0;

    for (int child = 1; child < q->count; child = 2 * i + 1) {
        if (child + 1 < q->count && q->at[child + 1]->order > q->at[child]->order)
            child++;
        if (q->at[child]->order < last->order)
            break;
        q->at[i] = q->at[child];
        i = child;
    }
    q->at[i] = last;
    newest->queued = false;
    return newest;
}

static void drop_grads(sherd_node *node)
{
    for (int j = 0; j < node->outs; j++) {
        sherd_tensor *grad = node->out[j].grad;
        node->out[j].grad = NULL;
        sherd_tensor_release(grad);
    }
}

/* ---- settling ------------------------------------------------------------------------------- */

/*
 * A gradient goes to the layout of the output, pending axes replicated: where the output is sharded that is a
 * reduce-scatter. Equal layouts, the common case, cost nothing.
 */
static bool settle_output(sherd_node *node, sherd__result *out)
{
    const sherd_layout *to;
    sherd_tensor *moved;

    if (!out->grad || !out->layout)
        return true;
    if (sherd__layout_settle(&to, out->layout) != SHERD_OK) {
        sherd__fail_diag(node->world, true);
        return false;
    }
    if (out->grad->layout == to)
        return true;
    sherd__where_set(node->world, sherd__where_at(out->giver, true));
    moved = sherd__move_to(out->grad, to, false);
    if (!moved->storage)
        return false;
    sherd_tensor_release(out->grad);
    out->grad = sherd_tensor_retain(moved);
    return true;
}

/* ---- one node ------------------------------------------------------------------------------- */

/* A gradient of another shape than its operand is a broken operator of the user's: an error, not an abort. */
static bool fits(const sherd_node *node, int i, sherd_tensor *grad)
{
    const sherd__edge *in = &node->in[i];

    if (sherd__is_failed(grad)) {
        sherd__raise_failed(node->world);
        return false;
    }
    if (grad->ndim == in->ndim && grad->dtype == in->dtype &&
        (grad->layout != NULL) == (in->layout != NULL) &&
        memcmp(grad->shape, in->shape, (size_t)in->ndim * sizeof *in->shape) == 0)
        return true;
    sherd__raise(node->world, SHERD_EINVAL,
                 "backward of %s: the gradient %s of operand %d is not like the operand, which is "
                 "%s of %d dims",
                 node->op->name, sherd_tensor_text(grad), i, in->layout ? "distributed" : "plain",
                 in->ndim);
    return false;
}

/* Add the gradients to where they belong. */
static bool deliver(queue *q, sherd_node *node, sherd_tensor *const *grad_in)
{
    for (int i = 0; i < node->ins; i++) {
        sherd__edge *in = &node->in[i];
        if (!in->wanted || !grad_in[i])
            continue;
        if (!fits(node, i, grad_in[i]))
            return false;
        if (in->node && !push(q, in->node))
            return false;
        if (in->node)
            in->node->out[in->output].giver = node->place;
        if (in->node ? !sherd__add_grad(&in->node->out[in->output].grad, grad_in[i])
                     : !sherd__add_leaf_grad(in->leaf, grad_in[i]))
            return false;
    }
    return true;
}

static bool run_node(queue *q, sherd_node *node)
{
    sherd_tensor *grad_out[SHERD_MAX_RESULTS] = {NULL}, *grad_in[SHERD_MAX_OPERANDS];

    for (int j = 0; j < node->outs; j++) {
        if (!node->op->takes_pending && !settle_output(node, &node->out[j]))
            return false;
        grad_out[j] = node->out[j].grad;
    }
    sherd__where_set(q->world, sherd__where_at(node->place, true));
    memset(grad_in, 0, (size_t)node->ins * sizeof *grad_in);
    node->op->backward(node, grad_out, grad_in);
    return !sherd__alarmed(q->world) && deliver(q, node, grad_in);
}

static bool is_runnable(const sherd_node *node)
{
    if (!node->done && !node->broken)
        return true;
    sherd__raise(node->world, SHERD_EINVAL,
                 node->done ? "sherd_backward: %s has run backward already and released what it "
                              "saved: compute its result again"
                            : "sherd_backward: what %s saves was lost by an earlier failure: "
                              "compute its result again",
                 node->op->name);
    return false;
}

static void walk(queue *q)
{
    bool good = true;

    while (q->count > 0) {
        sherd_node *node = pop(q);
        good = good && !sherd__alarmed(q->world) && is_runnable(node);
        if (good) {
            sherd_scope_begin(q->world);
            good = run_node(q, node);
            drop_grads(node);
            sherd__node_clear(node);
            node->done = true;
            sherd_scope_end(q->world);
        }
        drop_grads(node);
        sherd__record_release(&node->record);
    }
}

/* ---- the loss ------------------------------------------------------------------------------- */

static bool is_loss(sherd_tensor *loss)
{
    if (sherd__is_failed(loss)) {
        sherd__raise_failed(loss->world);
        return false;
    }
    if (sherd__alarmed(loss->world))
        return false;
    if (sherd_tensor_count(loss) != 1) {
        sherd__raise(loss->world, SHERD_EINVAL, "sherd_backward: %s has not one element",
                     sherd_tensor_text(loss));
        return false;
    }
    if (!loss->requires_grad) {
        sherd__raise(loss->world, SHERD_EINVAL,
                     "sherd_backward: %s depends on no leaf that wants a gradient",
                     sherd_tensor_text(loss));
        return false;
    }
    return true;
}

/* The gradient of the loss to itself: one, also to each addend of a pending sum. */
static sherd_tensor *seed(const sherd_tensor *loss)
{
    const sherd_layout *layout;

    if (!loss->layout)
        return sherd_constant(loss->world, loss->dtype, loss->shape, loss->ndim, 1);
    if (sherd__layout_settle(&layout, loss->layout) != SHERD_OK)
        return sherd__fail_diag(loss->world, true);
    return sherd_constant_on(layout, loss->dtype, 1);
}

void sherd_backward(sherd_tensor *loss)
{
    sherd_world *world = sherd_tensor_world(loss);
    queue q = {.world = world};

    if (!loss || !is_loss(loss))
        return;
    bool recording = sherd_set_recording(world, false);
    sherd__where before = sherd__where_set(world, sherd__where_at(0, true));
    sherd_scope_begin(world);
    sherd_tensor *one = seed(loss);
    sherd_node *node = (sherd_node *)loss->node;
    if (!one->storage)
        sherd__raise_failed(world);
    else if (!node)
        sherd__add_leaf_grad(loss, one);
    else if (push(&q, node))
        sherd__add_grad(&node->out[loss->output].grad, one);
    sherd_scope_end(world);
    walk(&q);
    sherd__free(sherd__world_heap(world), q.at);
    sherd__where_set(world, before);
    sherd_set_recording(world, recording);
}
