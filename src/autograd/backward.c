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

#include "base/text.h"
#include "layout/shape.h"

static void drop_grads(sherd_node *node)
{
    for (int j = 0; j < node->outs; j++) {
        sherd_tensor *grad = node->out[j].grad;
        node->out[j].grad = NULL;
        node->out[j].ours = false;
        sherd_tensor_release(grad);
    }
}

/* ---- one node ------------------------------------------------------------------------------- */

/* Whether a gradient is like its operand; if not, a user's operator is wrong, which is raised. */
static bool fits(const sherd_node *node, int i, sherd_tensor *grad)
{
    const sherd__edge *in = &node->in[i];

    if (sherd__is_failed(grad)) {
        sherd__raise_failed(node->world, node->op->name);
        return false;
    }
    if ((grad->dtype == in->dtype || grad->dtype == sherd__gradient_dtype(node, i)) &&
        (grad->layout != NULL) == (in->layout != NULL) &&
        sherd__same_shape(grad->ndim, grad->shape, in->ndim, in->shape))
        return true;
    char shape[SHERD_MAX_DIMS * 24] = "";
    sherd__writer w = {shape, sizeof shape, 0};

    for (int d = 0; d < in->ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)in->shape[d]);
    sherd__raise(node->world, SHERD_EINVAL,
                 "backward of %s: the gradient %s of operand %d is not like the operand, which is "
                 "a %s %s[%s]",
                 node->op->name, sherd_tensor_text(grad), i, in->layout ? "distributed" : "plain",
                 sherd_dtype_name(in->dtype), shape);
    return false;
}

static bool give_leaf(sherd__pass *p, sherd_tensor *leaf, sherd_tensor *grad)
{
    sherd__watch *watch = (sherd__watch *)leaf->autograd.watch;

    if (!sherd__is_soon(p, leaf))
        return sherd__park(p, NULL, 0, leaf, grad);
    if (watch && watch->pass == p)
        return sherd__add_grad(&watch->sum, grad);
    return p->only || sherd__add_leaf_grad(p, leaf, grad);
}

/* Whether this gradient, if it is computed now, is kept for the second part. */
static bool is_parked(const sherd_node *node, int i)
{
    return node->pass->part == SHERD__FIRST && node->rest >> i & 1;
}

sherd_tensor *sherd__open_sum(sherd_node *node, int i)
{
    const sherd__edge *in = &node->in[i];

    if (!in->node || node->pass->graph || is_parked(node, i))
        return NULL;
    node->fresh |= 1u << i;
    return in->node->out[in->output].ours ? in->node->out[in->output].grad : NULL;
}

sherd_tensor *sherd__spare_grad(const sherd_node *node, int j)
{
    const sherd__result *out = &node->out[j];

    return out->ours && !out->watch && !node->pass->graph ? out->grad : NULL;
}

/* Add to the gradient of an earlier node's result, unless the operator has added to the sum. */
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

static bool give(sherd__pass *p, const sherd_node *node, int i, sherd_tensor *grad)
{
    return node->in[i].node ? give_result(node, i, grad) : give_leaf(p, node->in[i].leaf, grad);
}

/* The operator has left a gradient out; note that, since all ranks of the mesh must. */
static void note_absent(const sherd_node *node, int i)
{
    const sherd_layout *layout = node->in[i].layout;
    uint64_t identity;

    if (layout)
        sherd__deed_add(layout->spec.mesh, "no gradient", (uint64_t)i, &identity);
}

/* Add the gradients to those of the operands. */
static bool deliver(sherd__pass *p, sherd_node *node, sherd_tensor *const *grad_in)
{
    bool good = true;

    for (int i = 0; i < node->ins && good; i++) {
        if (!sherd_node_wants(node, i))
            continue;
        if (!grad_in[i]) {
            note_absent(node, i);
            continue;
        }
        good = fits(node, i, grad_in[i]) &&
               (is_parked(node, i) ? sherd__park(p, node, i, NULL, grad_in[i])
                                   : give(p, node, i, grad_in[i]));
    }
    return good;
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

/* Refuse to differentiate an operator of a recorded backward that has no gradient itself. */
static bool refuse_second(const sherd_node *node)
{
    sherd__raise(node->world, SHERD_EINVAL,
                 "%s: it was recorded in a backward (create_graph), and has no gradient itself: "
                 "detach the result of its operator where gradients are differentiated again",
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
    int floor = sherd__scope_fence(p->world);
    node->op->backward(node, grad_out, grad_in);
    sherd__scope_leave(p->world, floor);
    bool good = !sherd__alarmed(p->world) && deliver(p, node, grad_in);
    node->idle = idle;
    return good;
}

/*
 * No more gradients come from this node: release what it used in this pass; and, if `done`, what it
 * saved.
 */
static void leave(sherd__pass *p, int k, bool good, bool done)
{
    sherd_node *node = p->node[k];

    drop_grads(node);
    if (p->retains || p->only || p->part == SHERD__FIRST)
        sherd__saved_forget(node, good ? k : p->nodes);
    if (done) {
        sherd__node_clear(node);
        sherd__replay_done(node);
    }
    sherd__replay_empty(node);
    p->node[k] = NULL;
    node->later = node->rest = 0;
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

    if (!node->op->in_parts || p->retains || p->only || p->part == SHERD__FIRST)
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
    good = good && run_op(p, p->node[k], ~p->node[k]->later) && sherd__finish_leaves(p, p->node[k]);
    sherd_scope_end(p->world);
    leave(p, k, good, true);
    return good;
}

/* Whether a leaf that this node gives a gradient has another one coming from a late node. */
static bool shares_leaf(const sherd_node *node, const sherd_node *late)
{
    for (int i = 0; i < node->ins; i++)
        for (int j = 0; j < late->ins && node->in[i].leaf && !(node->later >> i & 1); j++)
            if (late->later >> j & 1 && late->in[j].leaf == node->in[i].leaf)
                return true;
    return false;
}

/* Gradients of one leaf are added in the order of the nodes, whatever was put off. */
static bool catch_up(sherd__pass *p, const sherd_node *node)
{
    int lates = 0;
    bool good = true;

    for (int l = 0; l < p->lates; l++)
        if (shares_leaf(node, p->node[p->late[l]]))
            lates = l + 1;
    for (; lates > 0 && good; lates--)
        good = run_late(p, true);
    return good;
}

/* If a move was begun, compute a gradient that was put off while it is under way. */
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
        if (!sherd__settle_output(node, &node->out[j], begin))
            return false;
        p->moving |= begin && node->out[j].grad != before;
    }
    return use_time(p);
}

/* Compute, or deliver, what the first part has left of a node. */
static bool run_rest(sherd__pass *p, sherd_node *node)
{
    const sherd__parked *parked;
    bool good = !node->done || catch_up(p, node);

    if (node->done && node->op->in_parts)
        return good && run_op(p, node, ~node->rest);
    while (good && (parked = sherd__next_parked(p, node)))
        good = give(p, node, parked->i, parked->grad);
    return good;
}

static bool run_node(sherd__pass *p, sherd_node *node)
{
    bool reached = false;

    for (int j = 0; j < node->outs; j++) {
        reached |= node->out[j].grad != NULL;
        if (!sherd__finish_gradient(p, node, &node->out[j]))
            return false;
    }
    if (!reached || !node->needed)
        return true;
    if (!is_runnable(p, node) || !sherd__replay_fill(node) || !settle(p, node))
        return false;
    node->later = can_wait(p, node);
    unsigned without = p->part == SHERD__FIRST && node->op->in_parts ? node->rest : node->later;
    bool good = catch_up(p, node) && run_op(p, node, without);
    node->done = !p->retains;
    return good && use_time(p);
}

/* After the first part: release what the second does not need of a node. */
static void keep_rest(sherd_node *node, int k)
{
    sherd__saved_forget(node, k);
    if (!node->done)
        return;
    sherd__part_keep(node);
    if (!node->op->in_parts)
        drop_grads(node);
}

static bool take_turn(sherd__pass *p, int k)
{
    sherd_node *node = p->node[k];
    bool first = p->part == SHERD__FIRST, rests = p->part == SHERD__SECOND && node->rest;
    bool was_done = node->done && !rests; /* by an earlier backward */

    p->turn = k;
    if (first && !node->needed)
        return true;
    sherd_scope_begin(p->world);
    bool good = (node->op != &sherd__together_op || sherd__settle_together(p, k)) &&
                (rests ? run_rest(p, node) : run_node(p, node)) &&
                (node->later || sherd__finish_leaves(p, node));
    sherd_scope_end(p->world);
    if (first && node->rest)
        keep_rest(node, good ? k : p->nodes);
    else if (good && node->later)
        p->late[p->lates++] = k;
    else
        leave(p, k, good, node->done && !was_done);
    return good && (p->lates <= SHERD__MAX_LATE || run_late(p, true));
}

/* ---- the whole ------------------------------------------------------------------------------ */

bool sherd__pass_seed(sherd__pass *p, sherd_tensor *output, sherd_tensor *grad)
{
    sherd_node *node = (sherd_node *)output->autograd.node;

    return node ? sherd__add_grad(&node->out[output->autograd.output].grad, grad)
                : give_leaf(p, output, grad);
}

/* Finish leaves that are outputs and operands of no node. */
static bool finish_outputs(sherd__pass *p)
{
    bool good = true;

    sherd_scope_begin(p->world);
    for (int i = 0; i < p->leaves && good; i++)
        good = p->leaf[i]->awaited > 0 || sherd__finish_leaf(p, p->leaf[i]);
    sherd_scope_end(p->world);
    return good;
}

static bool finish_parked_outputs(sherd__pass *p)
{
    const sherd__parked *parked;
    bool good = true;

    while (good && p->part == SHERD__SECOND && (parked = sherd__next_parked(p, NULL)))
        good = give_leaf(p, parked->leaf, parked->grad);
    return good;
}

static void forget_leaves(sherd__pass *p)
{
    for (int i = 0; i < p->leaves; i++) {
        sherd__watch *watch = p->leaf[i];
        sherd_tensor *leaf = watch->leaf;
        sherd_tensor_release(watch->sum);
        watch->sum = watch->leaf = NULL;
        watch->pass = NULL;
        sherd_tensor_release(leaf);
        sherd__refcounted_release(&watch->head);
    }
    p->leaves = 0;
}

bool sherd__pass_run(sherd__pass *p, bool good)
{
    good = good && !sherd__alarmed(p->world) && finish_parked_outputs(p) && finish_outputs(p);
    for (int i = 0; i < p->waiting; i++) { /* those that are left if collecting nodes has failed */
        p->heap[i]->pass = NULL;
        sherd__refcounted_release(&p->heap[i]->head);
    }
    p->waiting = 0;
    for (int k = 0; k < p->nodes; k++) {
        good = good && !sherd__alarmed(p->world);
        if (p->node[k] && good)
            good = take_turn(p, k);
        else if (p->node[k])
            leave(p, k, false, p->node[k]->rest && p->node[k]->done);
    }
    while (p->lates > 0)
        good = run_late(p, good);
    sherd__settled_wait(p);
    forget_leaves(p);
    return good;
}
