/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running backward, node by node as collect.c has listed them, so all ranks make the same calls in
 * the same order. Each node runs in a scope of its own, and what it saved is released right after,
 * unless the graph is retained.
 *
 * The gradient of a weight is put off: only the optimizer waits for it. It is computed after the
 * next move has begun, so that ranks do not stand still until the last of them has come, or until
 * the data has crossed the network. That keeps what two nodes have saved a little longer.
 */
#include "autograd/node.h"

#include <string.h>

static void drop_grads(sherd_node *node)
{
    for (int j = 0; j < node->outs; j++) {
        sherd_tensor *grad = node->out[j].grad;
        node->out[j].grad = NULL;
        node->out[j].ours = false;
        sherd_tensor_release(grad);
    }
}

/* ---- settling ------------------------------------------------------------------------------- */

sherd_tensor *sherd__settled_to(sherd_tensor *grad, const sherd_layout *layout, bool begin)
{
    const sherd_layout *to;

    if (!layout)
        return grad;
    if (sherd__layout_settle(&to, layout) != SHERD_OK)
        return sherd__fail_diag(grad->world, true);
    return grad->layout == to ? grad : sherd__gradient_to(grad, to, begin);
}

/*
 * Move a gradient to the layout of the output, with pending axes replicated: if the output is
 * sharded, that is a reduce-scatter. Equal layouts, the common case, cost nothing.
 */
static bool settle_output(sherd_node *node, sherd__result *out, bool begin)
{
    sherd_tensor *moved;

    if (!out->grad || !out->layout)
        return true;
    sherd__where_set(node->world, sherd__where_at(out->giver, true));
    moved = sherd__settled_to(out->grad, out->layout, begin);
    if (!moved->storage)
        return false;
    if (moved != out->grad) {
        sherd_tensor_release(out->grad);
        out->grad = sherd_tensor_retain(moved);
    }
    return true;
}

/* ---- gradients that are complete ------------------------------------------------------------ */

/* Replace a counted tensor. */
static void put(sherd_tensor **at, sherd_tensor *t)
{
    sherd_tensor *before = *at;

    *at = sherd_tensor_retain(t);
    sherd_tensor_release(before);
}

/* Run the hooks on a gradient, and store it for those that asked for it. */
static bool look_at(sherd__pass *p, sherd_node *node, sherd__result *out)
{
    sherd__watch *watch = out->watch;

    if (!out->grad || !watch)
        return true;
    if (!settle_output(node, out, false) || !sherd__watch_run(watch, &out->grad, out->layout))
        return false;
    if (watch->captured)
        put(watch->captured, out->grad);
    if (p->only || !watch->retains)
        return true;
    if (p->replaces) {
        sherd_tensor_release(watch->retained);
        watch->retained = NULL;
    }
    return sherd__add_grad(&watch->retained, out->grad);
}

/* The gradient of this leaf is complete. */
static bool finish_leaf(sherd__pass *p, sherd__watch *watch)
{
    sherd_tensor *settled;

    if (!watch->sum)
        return true;
    settled = sherd__settled_to(watch->sum, watch->leaf->layout, false);
    if (!settled->storage)
        return false;
    put(&watch->sum, settled);
    if (!sherd__watch_run(watch, &watch->sum, watch->leaf->layout))
        return false;
    if (watch->captured)
        put(watch->captured, watch->sum);
    if (!p->only && !sherd__add_leaf_grad(watch->leaf, watch->sum))
        return false;
    sherd_tensor_release(watch->sum);
    watch->sum = NULL;
    return true;
}

static bool finish_leaves(sherd__pass *p, const sherd_node *node)
{
    for (int i = 0; i < node->ins && p->leaves > 0; i++) {
        sherd__watch *watch = sherd__watched(p, &node->in[i]);
        if (watch && --watch->awaited == 0 && !finish_leaf(p, watch))
            return false;
    }
    return true;
}

/* ---- one node ------------------------------------------------------------------------------- */

/*
 * A gradient of another shape than its operand is an error of a user's operator, not a broken
 * invariant.
 */
static bool fits(const sherd_node *node, int i, sherd_tensor *grad)
{
    const sherd__edge *in = &node->in[i];

    if (sherd__is_failed(grad)) {
        sherd__raise_failed(node->world, node->op->name);
        return false;
    }
    if (grad->ndim == in->ndim &&
        (grad->dtype == in->dtype || grad->dtype == sherd__gradient_dtype(node, i)) &&
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

static bool give_leaf(sherd__pass *p, sherd_tensor *leaf, sherd_tensor *grad)
{
    sherd__watch *watch = (sherd__watch *)leaf->watch;

    if (watch && watch->pass == p)
        return sherd__add_grad(&watch->sum, grad);
    return p->only || sherd__add_leaf_grad(leaf, grad);
}

sherd_tensor *sherd__open_sum(sherd_node *node, int i)
{
    const sherd__edge *in = &node->in[i];

    if (!in->node || node->pass->graph)
        return NULL;
    node->fresh |= 1u << i;
    return in->node->out[in->output].ours ? in->node->out[in->output].grad : NULL;
}

sherd_tensor *sherd__spare_grad(const sherd_node *node, int j)
{
    const sherd__result *out = &node->out[j];

    return out->ours && !out->watch && !node->pass->graph ? out->grad : NULL;
}

/*
 * Add to the gradient of a result of an earlier node, unless the operator has added to the sum in
 * place.
 */
static bool give_result(const sherd_node *node, int i, sherd_tensor *grad)
{
    sherd__result *out = &node->in[i].node->out[node->in[i].output];
    bool fresh = node->fresh >> i & 1;

    out->giver = node->place;
    if (fresh && out->grad == grad)
        return true;
    out->ours = fresh && (out->ours || !out->grad);
    return sherd__add_grad(&out->grad, grad);
}

/* Add the gradients to those of the operands. */
static bool deliver(sherd__pass *p, sherd_node *node, sherd_tensor *const *grad_in)
{
    for (int i = 0; i < node->ins; i++) {
        sherd__edge *in = &node->in[i];
        if (!sherd_node_wants(node, i) || !grad_in[i])
            continue;
        if (!fits(node, i, grad_in[i]))
            return false;
        if (in->node ? !give_result(node, i, grad_in[i]) : !give_leaf(p, in->leaf, grad_in[i]))
            return false;
    }
    return true;
}

static bool is_runnable(const sherd__pass *p, const sherd_node *node)
{
    if (!node->done && !node->broken)
        return true;
    sherd__raise(node->world, SHERD_EINVAL,
                 node->done ? "%s: %s has run backward already and released what it "
                              "saved: retain the graph the first time, or compute its result again"
                            : "%s: what %s saves was lost by an earlier failure: "
                              "compute its result again",
                 p->function, node->op->name);
    return false;
}

/* Part of a backward that was recorded, and not made of operators with a gradient. */
static bool refuse_second(const sherd_node *node)
{
    sherd__raise(node->world, SHERD_EINVAL,
                 "%s: it was recorded in a backward (create_graph), and has no gradient itself",
                 node->op->name);
    return false;
}

/* Run the backward of an operator whose gradients have arrived, except for operands in
 * `without`. */
static bool run_op(sherd__pass *p, sherd_node *node, unsigned without)
{
    sherd_tensor *grad_out[SHERD_MAX_RESULTS] = {NULL}, *grad_in[SHERD_MAX_OPERANDS];
    unsigned idle = node->idle;

    if (!node->op->backward)
        return refuse_second(node);
    for (int j = 0; j < node->outs; j++)
        grad_out[j] = node->out[j].grad;
    sherd__where_set(p->world, sherd__where_at(node->place, true));
    memset(grad_in, 0, (size_t)node->ins * sizeof *grad_in);
    node->fresh = 0;
    node->idle = idle | without;
    node->op->backward(node, grad_out, grad_in);
    bool good = !sherd__alarmed(p->world) && deliver(p, node, grad_in);
    node->idle = idle;
    return good;
}

/* All of a node's gradients are computed, or will not be: release what it saved and what it
 * used. */
static void leave(sherd__pass *p, int k, bool good, bool done)
{
    sherd_node *node = p->node[k];

    drop_grads(node);
    if (done) {
        sherd__node_clear(node);
        sherd__replay_done(node);
    }
    if (p->retains || p->only)
        sherd__saved_forget(node, good ? k : p->nodes);
    sherd__replay_empty(node);
    node->later = 0;
    node->pass = NULL;
    sherd__refcounted_release(&node->head);
}

/* ---- gradients that are put off ------------------------------------------------------------- */

/*
 * Bits of the operands whose gradients nothing in this backward waits for: leaves, if the operator
 * computes other gradients without them. A graph that is retained runs node by node.
 */
static unsigned can_wait(const sherd__pass *p, const sherd_node *node)
{
    unsigned leaves = 0, others = 0;

    if (!node->op->in_parts || p->retains || p->only)
        return 0;
    for (int i = 0; i < node->ins; i++)
        if (sherd_node_wants(node, i))
            *(node->in[i].node ? &others : &leaves) |= 1u << i;
    return others ? leaves : 0;
}

/* The oldest of the gradients that were put off; after a failure they are only dropped. */
static bool run_late(sherd__pass *p, bool good)
{
    int k = p->late[0];

    memmove(p->late, p->late + 1, (size_t)--p->lates * sizeof p->late[0]);
    sherd_scope_begin(p->world);
    good = good && run_op(p, p->node[k], ~p->node[k]->later) && finish_leaves(p, p->node[k]);
    sherd_scope_end(p->world);
    leave(p, k, good, true);
    return good;
}

/* If a move has begun, there is time to compute while it is under way. */
static bool use_time(sherd__pass *p)
{
    bool moves = p->moving;

    p->moving = false;
    return !moves || run_late(p, true);
}

static bool may_begin(const sherd__pass *p)
{
    return p->lates > 0 && !p->moving;
}

bool sherd__begins(sherd_node *node)
{
    bool begins = may_begin(node->pass);

    node->pass->moving |= begins;
    return begins;
}

/* ---- one turn ------------------------------------------------------------------------------- */

/* Move the gradients of the results to where the operator takes them. */
static bool settle(sherd__pass *p, sherd_node *node)
{
    for (int j = 0; j < node->outs && !node->op->takes_pending; j++) {
        const sherd_tensor *before = node->out[j].grad;
        bool begin = may_begin(p);
        if (!settle_output(node, &node->out[j], begin))
            return false;
        p->moving |= begin && node->out[j].grad != before;
    }
    return use_time(p);
}

static bool run_node(sherd__pass *p, sherd_node *node)
{
    bool reached = false;

    for (int j = 0; j < node->outs; j++) {
        reached |= node->out[j].grad != NULL;
        if (!look_at(p, node, &node->out[j]))
            return false;
    }
    if (!reached || !node->needed)
        return true;
    if (!is_runnable(p, node) || !sherd__replay_fill(node) || !settle(p, node))
        return false;
    node->later = can_wait(p, node);
    bool good = run_op(p, node, node->later);
    node->done = !p->retains;
    return good && use_time(p);
}

static bool take_turn(sherd__pass *p, int k)
{
    sherd_node *node = p->node[k];
    bool done = node->done;

    sherd_scope_begin(p->world);
    bool good = run_node(p, node) && (node->later || finish_leaves(p, node));
    sherd_scope_end(p->world);
    if (good && node->later)
        p->late[p->lates++] = k;
    else
        leave(p, k, good, node->done && !done);
    return good && (p->lates <= SHERD__LATE || run_late(p, true));
}

/* ---- the whole ------------------------------------------------------------------------------ */

bool sherd__pass_seed(sherd__pass *p, sherd_tensor *output, sherd_tensor *grad)
{
    sherd_node *node = (sherd_node *)output->node;

    return node ? sherd__add_grad(&node->out[output->output].grad, grad)
                : give_leaf(p, output, grad);
}

/* Leaves that are outputs, and operands of no node. */
static bool finish_outputs(sherd__pass *p)
{
    bool good = true;

    sherd_scope_begin(p->world);
    for (int i = 0; i < p->leaves && good; i++)
        good = p->leaf[i]->awaited > 0 || finish_leaf(p, p->leaf[i]);
    sherd_scope_end(p->world);
    return good;
}

void sherd__pass_run(sherd__pass *p)
{
    bool good = !sherd__alarmed(p->world) && finish_outputs(p);

    for (int i = 0; i < p->waiting; i++) { /* listing them has failed */
        p->heap[i]->pass = NULL;
        sherd__refcounted_release(&p->heap[i]->head);
    }
    for (int k = 0; k < p->nodes; k++) {
        good = good && !sherd__alarmed(p->world);
        if (good)
            good = take_turn(p, k);
        else
            leave(p, k, false, false);
    }
    while (p->lates > 0)
        good = run_late(p, good);
    for (int i = 0; i < p->leaves; i++) {
        sherd__watch *watch = p->leaf[i];
        sherd_tensor_release(watch->sum);
        watch->sum = watch->leaf = NULL;
        watch->pass = NULL;
        sherd__refcounted_release(&watch->head);
    }
    sherd__free(sherd__world_heap(p->world), p->heap);
    sherd__free(sherd__world_heap(p->world), p->node);
    sherd__free(sherd__world_heap(p->world), p->leaf);
}
