/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording. A node costs one allocation. It points to the nodes of its operands, never to the
 * operands, so activations live only if an operator saved them. Nodes are freed from a list, not
 * recursively: a chain of any length is freed with a flat stack.
 */
#include "autograd/node.h"

#include <string.h>

#include "sherd/autocast.h"
#include "tensor/said.h"

/* Note that a tensor requires a gradient; its identity and deed stay. */
static void note_wanted(sherd_tensor *t)
{
    typedef struct wish {
        bool wanted;
    } wish;
    static const sherd_op said = {
        .name = "wish", .field = {SHERD_FIELD(wish, wanted, BOOL)}, .attributes = sizeof(wish)};
    wish w = {t->autograd.requires_grad};

    if (t->layout)
        sherd__note_deed(t->world, t->layout->spec.mesh, "sherd_require_grad",
                         sherd__attribute(t->ledger.identity, w.wanted), t, &said, &w);
}

sherd_tensor *sherd_require_grad(sherd_tensor *t, bool wanted)
{
    if (sherd_tensor_failed(t))
        return t;
    if (t->autograd.node)
        return sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                                  "sherd_require_grad: %s is the result of %s: only a leaf can say "
                                  "whether it wants a gradient",
                                  sherd_tensor_text(t), ((sherd_node *)t->autograd.node)->op->name);
    if (wanted && !sherd__has_fractions(t->dtype))
        return sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                                  "sherd_require_grad: %s has no gradient: its dtype has no "
                                  "fractions",
                                  sherd_tensor_text(t));
    t->autograd.requires_grad = wanted;
    note_wanted(t);
    if (wanted) {
        t->autograd.of_leaf = t->storage->leaf = true;
        sherd__serve(t->storage, SHERD_MEMORY_PARAMETERS);
    }
    return t;
}

bool sherd_requires_grad(const sherd_tensor *t)
{
    return t && t->autograd.requires_grad;
}

static bool any_wants(sherd_tensor *const *in, int ins)
{
    for (int i = 0; i < ins; i++)
        if (in[i] && in[i]->autograd.requires_grad)
            return true;
    return false;
}

bool sherd__is_recorded(sherd_world *world, sherd_tensor *const *in, int ins)
{
    return any_wants(in, ins) && !sherd__tape_of(world)->paused;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

/*
 * The last reference is gone. Clearing a node may bring further nodes here: they are listed, and
 * freed by the outermost call.
 */
static void node_destroy(sherd__refcounted *head)
{
    sherd_node *node = (sherd_node *)head;
    sherd__tape *tape = sherd__tape_of(node->world);

    node->dying = tape->dying;
    tape->dying = node;
    if (tape->freeing)
        return;
    tape->freeing = true;
    while (tape->dying) {
        node = tape->dying;
        tape->dying = node->dying;
        sherd__replay_part(node);
        sherd__node_clear(node);
        for (int i = 0; i < node->ins; i++)
            sherd__layout_set(&node->in[i].layout, NULL);
        for (int j = 0; j < node->outs; j++) {
            sherd_tensor_release(node->out[j].grad);
            sherd__refcounted_release((sherd__refcounted *)node->out[j].watch);
            sherd__layout_set(&node->out[j].layout, NULL);
        }
        sherd__free(sherd__world_heap(tape->world), node);
    }
    tape->freeing = false;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

sherd_node *sherd__node_create(sherd_world *world, int ins, int outs, size_t attributes)
{
    int slots = ins + SHERD_MAX_RESULTS;
    size_t in = aligned(sizeof(sherd_node)), out = in + aligned((size_t)ins * sizeof(sherd__edge));
    size_t slot = out + aligned((size_t)outs * sizeof(sherd__result));
    size_t attrs = slot + aligned((size_t)slots * sizeof(sherd__kept *));
    char *memory = sherd__alloc(sherd__world_heap(world), 1, attrs + attributes);
    sherd_node *node = (sherd_node *)(void *)memory;

    if (!node)
        return NULL;
    node->head.refs = 1;
    node->head.destroy = node_destroy;
    node->world = world;
    node->order = ++sherd__tape_of(world)->order;
    node->ins = ins;
    node->outs = outs;
    node->slots = slots;
    node->in = (sherd__edge *)(void *)(memory + in);
    node->out = (sherd__result *)(void *)(memory + out);
    node->slot = (sherd__kept **)(void *)(memory + slot);
    node->attributes = attributes ? memory + attrs : NULL;
    return node;
}

static void link_input(sherd__edge *edge, sherd_tensor *t, bool replayed)
{
    sherd__layout_set(&edge->layout, t->layout);
    edge->dtype = t->dtype;
    edge->ndim = t->ndim;
    memcpy(edge->shape, t->shape, sizeof edge->shape);
    edge->wanted = t->autograd.requires_grad;
    if (replayed)
        edge->origin = sherd__origin_of(t);
    if (!edge->wanted)
        return;
    edge->node = (sherd_node *)t->autograd.node;
    edge->output = t->autograd.output;
    if (edge->node)
        edge->node->head.refs++;
    else
        edge->leaf = sherd_tensor_retain(t);
}

static void link_output(sherd_node *node, int j, sherd_tensor *t)
{
    sherd__result *out = &node->out[j];

    sherd__layout_set(&out->layout, t->layout);
    out->dtype = t->dtype;
    out->ndim = t->ndim;
    if (!sherd__has_fractions(t->dtype))
        return;
    t->autograd.node = &node->head;
    t->autograd.output = j;
    t->autograd.requires_grad = true;
    node->head.refs++;
}

sherd_node *sherd__record_node(sherd_world *world, const sherd_op *op, sherd_tensor *const *in,
                               int ins, sherd_tensor *const *out, int outs, const void *attrs,
                               size_t attrs_bytes)
{
    const sherd__tape *tape = any_wants(in, ins) ? sherd__tape_of(world) : NULL;
    sherd_node *node;

    if (!tape || tape->paused)
        return NULL;
    for (int j = 0; j < outs; j++) {
        if (out[j] && !out[j]->storage)
            return NULL;
        sherd__assert(sherd_world_rank(world), !out[j] || !out[j]->autograd.node);
    }
    node = sherd__node_create(world, ins, outs, attrs_bytes);
    if (!node) {
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory for the tape", op->name);
        return NULL;
    }
    node->op = op;
    node->place = sherd__place_in(sherd__where_now(world));
    if (attrs_bytes > 0)
        memcpy(node->attributes, attrs, attrs_bytes);
    for (int i = 0; i < ins; i++)
        if (in[i])
            link_input(&node->in[i], in[i], tape->replay != NULL);
    for (int j = 0; j < outs; j++)
        if (out[j])
            link_output(node, j, out[j]);
    sherd__replay_join(node);
    /* The outputs hold it now; without outputs nothing can reach it. */
    if (--node->head.refs == 0) {
        node_destroy(&node->head);
        return NULL;
    }
    return node;
}
