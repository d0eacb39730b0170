/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running backward. First the nodes that lead from the outputs to leaves are listed, newest first:
 * an operand's node is always older, so when a node's turn comes all its gradients have arrived.
 * The list also says which nodes are needed, and after which node the gradient of a leaf is
 * complete. All ranks recorded the same operators in the same order, so all make the same calls in
 * the same order. Each node runs in a scope of its own, and what it saved is released right after,
 * unless the graph is retained.
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

/* ---- the list ------------------------------------------------------------------------------- */

/* An array of pointers with room for one more. NULL: failed, raised. */
static void *reserve(const sherd__pass *p, void *array, int used, int *room)
{
    void *list = sherd__reserve(sherd__world_heap(p->world), array, used, room, 32, sizeof(void *));

    if (!list)
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", p->function);
    return list;
}

/* A hook has called backward through a part that another backward is running through. */
static bool refuse_nested(const sherd__pass *p, const char *name)
{
    sherd__raise(p->world, SHERD_EINVAL,
                 "%s: %s is in a backward that is under way: begin no other one through it",
                 p->function, name);
    return false;
}

/* Into the heap, by order. */
static bool add_node(sherd__pass *p, sherd_node *node)
{
    int i = p->waiting;

    if (node->pass == p)
        return true;
    if (node->pass)
        return refuse_nested(p, node->op->name);
    sherd_node **heap = reserve(p, p->heap, p->waiting, &p->heap_room);
    if (!heap)
        return false;
    p->heap = heap;
    p->waiting++;
    for (; i > 0 && p->heap[(i - 1) / 2]->order < node->order; i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = node;
    node->pass = p;
    node->needed = true;
    node->idle = 0;
    node->record.refs++;
    return true;
}

/* Move the newest node from the heap to the end of the list. NULL: failed, raised. */
static sherd_node *take_newest(sherd__pass *p)
{
    sherd_node **list = reserve(p, p->node, p->nodes, &p->node_room);
    int i = 0;

    if (!list)
        return NULL;
    p->node = list;
    sherd_node **at = p->heap, *newest = at[0], *last = at[--p->waiting];
    for (int child = 1; child < p->waiting; child = 2 * i + 1) {
        if (child + 1 < p->waiting && at[child + 1]->order > at[child]->order)
            child++;
        if (at[child]->order < last->order)
            break;
        at[i] = at[child];
        i = child;
    }
    at[i] = last;
    return p->node[p->nodes++] = newest;
}

static bool add_leaf(sherd__pass *p, sherd_tensor *leaf)
{
    sherd__watch *watch = (sherd__watch *)leaf->watch;

    if (p->replaces)
        sherd__set_grad(leaf, NULL);
    if (!watch || watch->pass == p)
        return true;
    if (watch->pass)
        return refuse_nested(p, "a leaf with a hook");
    sherd__watch **list = reserve(p, p->leaf, p->leaves, &p->leaf_room);
    if (!list)
        return false;
    p->leaf = list;
    p->leaf[p->leaves++] = watch;
    watch->pass = p;
    watch->leaf = leaf;
    watch->last = -1;
    watch->record.refs++;
    return true;
}

static bool add(sherd__pass *p, sherd_node *node, sherd_tensor *leaf)
{
    return node ? add_node(p, node) : !leaf || add_leaf(p, leaf);
}

/* The watch of the leaf that an edge leads to, if this backward knows of it. */
static sherd__watch *watched(const sherd__pass *p, const sherd__edge *in)
{
    sherd__watch *watch = in->leaf ? (sherd__watch *)in->leaf->watch : NULL;

    return watch && watch->pass == p ? watch : NULL;
}

/* Whether a gradient along this edge is needed. */
static bool leads_on(const sherd__pass *p, const sherd__edge *in)
{
    const sherd__watch *watch = in->node ? in->node->out[in->output].watch : watched(p, in);

    return (in->node && in->node->needed) || (watch && watch->captured);
}

/* From the oldest node on, so that the nodes that it depends on are known. */
static void mark_needed(sherd__pass *p)
{
    for (int k = p->nodes; k-- > 0;) {
        sherd_node *node = p->node[k];
        node->needed = false;
        for (int i = 0; i < node->ins; i++) {
            if (node->in[i].wanted && leads_on(p, &node->in[i]))
                node->needed = true;
            else
                node->idle |= 1u << i;
        }
    }
}

bool sherd__pass_collect(sherd__pass *p, sherd_tensor *const *outputs, int count)
{
    for (int i = 0; i < count; i++)
        if (!add(p, (sherd_node *)outputs[i]->node, outputs[i]))
            return false;
    while (p->waiting > 0) {
        const sherd_node *node = take_newest(p);
        if (!node)
            return false;
        for (int i = 0; i < node->ins; i++)
            if (!add(p, node->in[i].node, node->in[i].leaf))
                return false;
    }
    for (int k = 0; k < p->nodes && p->leaves > 0; k++)
        for (int i = 0; i < p->node[k]->ins; i++)
            if (watched(p, &p->node[k]->in[i]))
                watched(p, &p->node[k]->in[i])->last = k;
    for (int k = 0; k < p->nodes && (p->retains || p->only); k++)
        sherd__saved_used(p->node[k], k);
    if (p->only)
        mark_needed(p);
    return true;
}

/* ---- settling ------------------------------------------------------------------------------- */

sherd_tensor *sherd__settled_to(sherd_tensor *grad, const sherd_layout *layout)
{
    const sherd_layout *to;

    if (!layout)
        return grad;
    if (sherd__layout_settle(&to, layout) != SHERD_OK)
        return sherd__fail_diag(grad->world, true);
    return grad->layout == to ? grad : sherd__move_to(grad, to, false);
}

/*
 * Move a gradient to the layout of the output, with pending axes replicated: if the output is
 * sharded, that is a reduce-scatter. Equal layouts, the common case, cost nothing.
 */
static bool settle_output(sherd_node *node, sherd__result *out)
{
    sherd_tensor *moved;

    if (!out->grad || !out->layout)
        return true;
    sherd__where_set(node->world, sherd__where_at(out->giver, true));
    moved = sherd__settled_to(out->grad, out->layout);
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
    if (!settle_output(node, out) || !sherd__watch_run(watch, &out->grad, out->layout))
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
    settled = sherd__settled_to(watch->sum, watch->leaf->layout);
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

static bool finish_leaves(sherd__pass *p, const sherd_node *node, int k)
{
    for (int i = 0; i < node->ins && p->leaves > 0; i++) {
        sherd__watch *watch = watched(p, &node->in[i]);
        if (watch && watch->last == k && !finish_leaf(p, watch))
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

    if (!in->node)
        return NULL;
    node->fresh |= 1u << i;
    return in->node->out[in->output].ours ? in->node->out[in->output].grad : NULL;
}

sherd_tensor *sherd__spare_grad(const sherd_node *node, int j)
{
    const sherd__result *out = &node->out[j];

    return out->ours && !out->watch ? out->grad : NULL;
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

static bool run_op(sherd__pass *p, sherd_node *node)
{
    sherd_tensor *grad_out[SHERD_MAX_RESULTS] = {NULL}, *grad_in[SHERD_MAX_OPERANDS];

    for (int j = 0; j < node->outs; j++) {
        if (!node->op->takes_pending && !settle_output(node, &node->out[j]))
            return false;
        grad_out[j] = node->out[j].grad;
    }
    sherd__where_set(p->world, sherd__where_at(node->place, true));
    memset(grad_in, 0, (size_t)node->ins * sizeof *grad_in);
    node->fresh = 0;
    sherd_dtype low = sherd__set_low(p->world, SHERD_DTYPE_NONE);
    node->op->backward(node, grad_out, grad_in);
    sherd__set_low(p->world, low);
    return !sherd__alarmed(p->world) && deliver(p, node, grad_in);
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
    if (!is_runnable(p, node) || !sherd__replay_fill(node))
        return false;
    bool good = run_op(p, node);
    node->done = !p->retains;
    return good;
}

/*
 * Run the k-th node in a scope of its own; then release what it saved and the gradients that it
 * used.
 */
static bool take_turn(sherd__pass *p, int k)
{
    sherd_node *node = p->node[k];
    bool done = node->done;

    sherd_scope_begin(p->world);
    bool good = run_node(p, node) && finish_leaves(p, node, k);
    drop_grads(node);
    if (node->done && !done) {
        sherd__node_clear(node);
        sherd__replay_done(node);
    }
    sherd_scope_end(p->world);
    return good;
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
        good = p->leaf[i]->last >= 0 || finish_leaf(p, p->leaf[i]);
    sherd_scope_end(p->world);
    return good;
}

void sherd__pass_run(sherd__pass *p)
{
    bool good = !sherd__alarmed(p->world) && finish_outputs(p);

    for (int i = 0; i < p->waiting; i++) { /* listing them has failed */
        p->heap[i]->pass = NULL;
        sherd__record_release(&p->heap[i]->record);
    }
    for (int k = 0; k < p->nodes; k++) {
        sherd_node *node = p->node[k];
        good = good && !sherd__alarmed(p->world) && take_turn(p, k);
        drop_grads(node);
        if (p->retains || p->only)
            sherd__saved_forget(node, good ? k : p->nodes);
        sherd__replay_empty(node);
        node->pass = NULL;
        sherd__record_release(&node->record);
    }
    for (int i = 0; i < p->leaves; i++) {
        sherd__watch *watch = p->leaf[i];
        sherd_tensor_release(watch->sum);
        watch->sum = watch->leaf = NULL;
        watch->pass = NULL;
        sherd__record_release(&watch->record);
    }
    sherd__free(sherd__world_heap(p->world), p->heap);
    sherd__free(sherd__world_heap(p->world), p->node);
    sherd__free(sherd__world_heap(p->world), p->leaf);
}
