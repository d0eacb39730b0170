/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a backward has to run: the nodes that lead from the outputs to leaves, newest first. An
 * operand's node is always older, so when a node's turn comes all its gradients have arrived. A
 * heap by order gives the newest: n log n of n nodes, no recursion. All ranks recorded the same
 * operators in the same order, so all list the same. What is older than all inputs of
 * sherd_gradients is not looked at: so a backward may be asked for inside another one, between
 * tensors that it has made itself.
 */
#include "autograd/node.h"

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

    if (node->pass == p || node->order < p->first)
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
    node->head.refs++;
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

bool sherd__pass_watch(sherd__pass *p, sherd_tensor *leaf)
{
    sherd__watch *watch = (sherd__watch *)leaf->autograd.watch;

    if (!sherd__is_watching(watch) || watch->pass == p)
        return true;
    if (watch->pass)
        return refuse_nested(p, "a leaf with a hook");
    sherd__watch **list = reserve(p, p->leaf, p->leaves, &p->leaf_room);
    if (!list)
        return false;
    p->leaf = list;
    p->leaf[p->leaves++] = watch;
    watch->pass = p;
    watch->leaf = sherd_tensor_retain(leaf); /* a hook may release it */
    watch->awaited = 0;
    watch->head.refs++;
    return true;
}

static bool add_leaf(sherd__pass *p, sherd_tensor *leaf)
{
    if (p->replaces)
        sherd__set_grad(leaf, NULL);
    return p->first || !sherd__is_soon(p, leaf) || sherd__pass_watch(p, leaf);
}

static bool add(sherd__pass *p, sherd_node *node, sherd_tensor *leaf)
{
    return node ? add_node(p, node) : !leaf || add_leaf(p, leaf);
}

sherd__watch *sherd__watched(const sherd__pass *p, const sherd__edge *in)
{
    sherd__watch *watch = in->leaf ? (sherd__watch *)in->leaf->autograd.watch : NULL;

    return watch && watch->pass == p ? watch : NULL;
}

bool sherd__is_soon(const sherd__pass *p, const sherd_tensor *leaf)
{
    bool soon = p->part != SHERD__FIRST;

    for (int i = 0; i < p->soons && !soon; i++)
        soon = p->soon[i] == leaf;
    return soon;
}

/* From the oldest node on, so that it is known of operands whether they lead to an input. */
void sherd__part_first(sherd__pass *p)
{
    for (int k = p->nodes; k-- > 0;) {
        sherd_node *node = p->node[k];
        node->needed = false;
        for (int i = 0; i < node->ins && !node->done; i++) {
            const sherd__edge *in = &node->in[i];
            if (!in->wanted)
                continue;
            if (in->node ? in->node->needed : sherd__is_soon(p, in->leaf))
                node->needed = true;
            else
                node->rest |= 1u << i;
        }
    }
}

/* Whether a gradient along this edge is needed. */
static bool leads_on(const sherd__pass *p, const sherd__edge *in)
{
    const sherd__watch *watch = in->node ? in->node->out[in->output].watch : sherd__watched(p, in);
    bool ours = in->node ? in->node->pass == p : watch != NULL;

    return ours && ((in->node && in->node->needed) || (watch && watch->captured));
}

/* From the oldest node on, since whether a node is needed follows from older ones. */
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
        if (!add(p, (sherd_node *)outputs[i]->autograd.node, outputs[i]))
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
            if (sherd__watched(p, &p->node[k]->in[i]))
                sherd__watched(p, &p->node[k]->in[i])->awaited++;
    if (p->part == SHERD__FIRST)
        sherd__part_first(p);
    for (int k = 0; k < p->nodes && (p->retains || p->only || p->part == SHERD__FIRST); k++)
        if (p->node[k]->needed)
            sherd__saved_used(p->node[k], k);
    if (p->only)
        mark_needed(p);
    return true;
}

void sherd__pass_clear(sherd__pass *p)
{
    sherd__heap *heap = sherd__world_heap(p->world);

    for (int i = 0; i < p->parks; i++) {
        sherd_tensor_release(p->parked[i].leaf);
        sherd_tensor_release(p->parked[i].grad);
    }
    sherd__free(heap, p->settled);
    sherd__free(heap, p->parked);
    sherd__free(heap, p->heap);
    sherd__free(heap, p->node);
    sherd__free(heap, p->leaf);
}
