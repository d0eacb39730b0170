/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording. A node costs one allocation; it points to the nodes of its operands, never to the operands, so
 * activations live only where an operator saved them. Nodes that go are freed from a list, not by recursion:
 * a chain of any length goes with a flat stack.
 */
#include "autograd/node.h"

#include <string.h>

/* The tensors still hold nodes, and nodes need this state to go: so the tensors are emptied first. */
static void destroy(sherd_world *world, void *memory)
{
    sherd__tape *tape = memory;

    sherd__tensors_empty(world);
    sherd__free(sherd__world_heap(world), tape->hooks);
}

sherd__tape *sherd__tape_of(sherd_world *world)
{
    sherd__tape *tape = sherd__world_state(world, SHERD__ROOM_AUTOGRAD);

    if (tape)
        return tape;
    tape = sherd__spare(world);
    tape->world = world;
    sherd__world_set_state(world, SHERD__ROOM_AUTOGRAD, tape, destroy);
    return tape;
}

bool sherd_set_recording(sherd_world *world, bool on)
{
    if (!world)
        return false;

    sherd__tape *tape = sherd__tape_of(world);
    bool before = !tape->paused;

    tape->paused = !on;
    return before;
}

/* It stays the tensor that it is, made when it was. */
static void note_wanted(sherd_tensor *t)
{
    uint64_t what = sherd__attribute(t->identity, t->requires_grad);

    if (t->layout)
        sherd__deed_add(t->layout->spec.mesh, "sherd_require_grad", what, &t->identity);
}

sherd_tensor *sherd_require_grad(sherd_tensor *t, bool wanted)
{
    if (sherd_tensor_failed(t))
        return t;
    if (t->node)
        return sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                                  "sherd_require_grad: %s is the result of %s: only a leaf can say "
                                  "whether it wants a gradient",
                                  sherd_tensor_text(t), ((sherd__node *)t->node)->backward->name);
    if (wanted && !sherd__has_fractions(t->dtype))
        return sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                                  "sherd_require_grad: %s has no gradient: its dtype has no "
                                  "fractions",
                                  sherd_tensor_text(t));
    t->requires_grad = wanted;
    note_wanted(t);
    if (wanted)
        t->storage->leaf = true;
    return t;
}

bool sherd_requires_grad(const sherd_tensor *t)
{
    return t && t->requires_grad;
}

bool sherd__is_recorded(sherd_world *world, sherd_tensor *const *in, int ins)
{
    if (sherd__tape_of(world)->paused)
        return false;
    for (int i = 0; i < ins; i++)
        if (in[i] && in[i]->requires_grad)
            return true;
    return false;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

void sherd__node_clear(sherd__node *node)
{
    for (int i = 0; i < SHERD__NODE_SLOTS; i++) {
        sherd__kept *kept = node->slot[i];
        node->slot[i] = NULL;
        if (kept)
            sherd__record_release(&kept->record);
    }
    for (int i = 0; i < node->ins; i++) {
        sherd__edge edge = node->in[i];
        node->in[i].node = NULL;
        node->in[i].leaf = NULL;
        if (edge.node)
            sherd__record_release(&edge.node->record);
        sherd_tensor_release(edge.leaf);
    }
}

/* The last count is gone. Clearing a node may bring the next ones here: they are listed, and freed by the first. */
static void node_destroy(sherd__record *record)
{
    sherd__node *node = (sherd__node *)record;
    sherd__tape *tape = sherd__tape_of(node->world);

    node->dying = tape->dying;
    tape->dying = node;
    if (tape->freeing)
        return;
    tape->freeing = true;
    while (tape->dying) {
        node = tape->dying;
        tape->dying = node->dying;
        sherd__node_clear(node);
        for (int i = 0; i < node->ins; i++)
            sherd__layout_set(&node->in[i].layout, NULL);
        for (int j = 0; j < node->outs; j++) {
            sherd_tensor_release(node->out[j].grad);
            sherd__layout_set(&node->out[j].layout, NULL);
        }
        sherd__free(sherd__world_heap(tape->world), node);
    }
    tape->freeing = false;
}

static void link_input(sherd__edge *edge, sherd_tensor *t)
{
    sherd__layout_set(&edge->layout, t->layout);
    edge->dtype = t->dtype;
    edge->ndim = t->ndim;
    memcpy(edge->shape, t->shape, sizeof edge->shape);
    edge->wanted = t->requires_grad;
    if (!edge->wanted)
        return;
    edge->node = (sherd__node *)t->node;
    edge->output = t->output;
    if (edge->node)
        edge->node->record.refs++;
    else
        edge->leaf = sherd_tensor_retain(t);
}

static void link_output(sherd__node *node, int j, sherd_tensor *t)
{
    sherd__result *out = &node->out[j];

    sherd__layout_set(&out->layout, t->layout);
    out->dtype = t->dtype;
    out->ndim = t->ndim;
    if (!sherd__has_fractions(t->dtype))
        return;
    t->node = &node->record;
    t->output = j;
    t->requires_grad = true;
    node->record.refs++;
}

sherd__node *sherd__record_node(sherd_world *world, const sherd__backward *backward,
                                sherd_tensor *const *in, int ins, sherd_tensor *const *out,
                                int outs, const void *attrs, size_t attrs_bytes)
{
    int rank = sherd_world_rank(world);
    sherd__node *node;

    if (!sherd__is_recorded(world, in, ins))
        return NULL;
    sherd__assert(rank, ins <= SHERD__NODE_INPUTS && outs <= SHERD__NODE_OUTPUTS);
    sherd__assert(rank, attrs_bytes <= SHERD__ATTRS_BYTES);
    for (int j = 0; j < outs; j++) {
        if (out[j] && !out[j]->storage)
            return NULL;
        sherd__assert(rank, !out[j] || !out[j]->node);
    }
    node = sherd__alloc(sherd__world_heap(world), 1, sizeof *node);
    if (!node) {
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory for the tape", backward->name);
        return NULL;
    }
    node->record.refs = 1;
    node->record.destroy = node_destroy;
    node->world = world;
    node->backward = backward;
    node->place = sherd__place_in(sherd__where_now(world));
    node->order = ++sherd__tape_of(world)->order;
    node->ins = ins;
    node->outs = outs;
    if (attrs_bytes > 0)
        memcpy(node->attrs, attrs, attrs_bytes);
    for (int i = 0; i < ins; i++)
        if (in[i])
            link_input(&node->in[i], in[i]);
    for (int j = 0; j < outs; j++)
        if (out[j])
            link_output(node, j, out[j]);
    /* The outputs hold it now; without one there is nobody to run it for. */
    if (--node->record.refs == 0) {
        node_destroy(&node->record);
        return NULL;
    }
    return node;
}

bool sherd__wants(const sherd__node *node, int input)
{
    return input < node->ins && node->in[input].wanted;
}

const void *sherd__attrs(const sherd__node *node)
{
    return node->attrs;
}

sherd_world *sherd__node_world(const sherd__node *node)
{
    return node->world;
}

const sherd_layout *sherd__input_layout(const sherd__node *node, int input)
{
    return node->in[input].layout;
}

int sherd__input_shape(const sherd__node *node, int input, const int64_t **shape)
{
    *shape = node->in[input].shape;
    return node->in[input].ndim;
}
