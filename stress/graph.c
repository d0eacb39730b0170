/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small graphs with backward, in a scope of their own: some leaves, a few operators and moves, a
 * sum. The gradients are found by the same walk on the reference; all are whole numbers, and each
 * is compared exactly.
 */
#include "writer.h"

#include <string.h>

enum { NODES = 10, LEAVES = 3 };

typedef struct node {
    op_kind kind; /* OP_FROM_LOCAL: a leaf */
    int a, b;     /* nodes */
    double factor;
    int slot, value;
    int gradient; /* a value; -1: none yet */
    bool wants;
} node;

typedef struct graph {
    writer *w;
    int mesh, count;
    int64_t shape[2];
    sherd_dtype dtype;
    node at[NODES];
} graph;

/* ---- forward --------------------------------------------------------------------------------- */

static slot_plan slot_of(const graph *g, int value, int layout)
{
    return (slot_plan){.value = value,
                       .layout = layout,
                       .mesh = g->w->s->mesh[g->mesh].whole,
                       .dtype = g->dtype,
                       .storage = g->w->storages++};
}

static node *add_node(graph *g, op *o, int value, int layout)
{
    node *n = &g->at[g->count++];

    o->mesh = g->w->s->mesh[g->mesh].whole;
    *n = (node){.kind = o->kind, .a = -1, .b = -1, .value = value, .gradient = -1};
    o->shows = layout < 0 || o->kind == OP_FROM_LOCAL;
    o->stays = !o->shows;
    n->slot = take_slot(g->w);
    fill_slot(g->w, o, n->slot, slot_of(g, value, layout));
    return n;
}

static bool add_leaf(graph *g)
{
    writer *w = g->w;
    int layout = any_layout(w, g->mesh, 2, g->shape, NOTHING_PENDING);

    if (layout < 0)
        return false;
    addends a = addends_of(w->p->layout[layout].paper, g->dtype);
    uint64_t key = dice_next(&w->d);
    a.most = 3;
    int value = value_reduced(w->p, 2, g->shape, &a, key);
    if (value < 0)
        return false;
    op *o = emit(w, OP_FROM_LOCAL);
    o->key = key;
    o->number = a.most;
    o->layout[0] = layout;
    node *n = add_node(g, o, value, layout);
    n->wants = !one_in(&w->d, 4);
    if (n->wants) {
        o = emit(w, OP_REQUIRE);
        o->mesh = w->s->mesh[g->mesh].whole;
        o->src[0] = n->slot;
        o->flag = o->shows = true;
    }
    return true;
}

static int value_of_kind(graph *g, op_kind kind, int a, int b, double factor)
{
    program *p = g->w->p;
    int v = g->at[a].value, u = g->at[b].value;

    switch (kind) {
    case OP_ADD:
    case OP_SUB:
        return value_sum_of(p, v, u, kind == OP_ADD ? 1 : -1, g->dtype);
    case OP_MUL:
        return value_product_of(p, v, u, g->dtype);
    case OP_SCALE:
        return value_scaled(p, v, factor, g->dtype);
    case OP_RELU:
        return value_relu(p, v);
    case OP_MATMUL:
        return value_matmul(p, v, u, g->dtype);
    case OP_TRANSPOSE:
        return value_transposed(p, v, 0, 1);
    default:
        return v;
    }
}

static void add_operator(graph *g)
{
    static const op_kind kinds[] = {OP_ADD,  OP_SUB,  OP_MUL,  OP_MUL,    OP_SCALE,
                                    OP_RELU, OP_MOVE, OP_MOVE, OP_MATMUL, OP_TRANSPOSE};
    writer *w = g->w;
    bool square = g->shape[0] == g->shape[1];
    op_kind kind = kinds[roll(&w->d, square ? 10 : 8)];
    bool binary = kind == OP_ADD || kind == OP_SUB || kind == OP_MUL || kind == OP_MATMUL;
    int a = roll(&w->d, g->count), b = roll(&w->d, g->count), layout = -1;
    double factor = 2 + roll(&w->d, 2);

    if (one_in(&w->d, 2))
        a = g->count - 1;
    if (kind == OP_MOVE && (layout = any_layout(w, g->mesh, 2, g->shape, NOTHING_PENDING)) < 0)
        return;
    int value = value_of_kind(g, kind, a, b, factor);
    if (value < 0)
        return;
    op *o = emit(w, kind);
    o->src[0] = g->at[a].slot;
    o->src[1] = binary ? g->at[b].slot : -1;
    o->layout[0] = layout;
    o->number = kind == OP_SCALE ? factor : 0;
    o->begin = kind == OP_MOVE && one_in(&w->d, 4);
    node *n = add_node(g, o, value, kind == OP_MOVE ? layout : LAYOUT_UNKNOWN);
    n->a = a;
    n->b = b;
    n->factor = factor;
    n->wants = g->at[a].wants || (binary && g->at[b].wants);
}

/* ---- backward, on the reference -------------------------------------------------------------- */

static bool deliver(graph *g, int to, int value, double factor)
{
    program *p = g->w->p;
    node *n = &g->at[to];

    if (value < 0)
        return false;
    if (n->gradient < 0)
        n->gradient = value_scaled(p, value, factor, g->dtype);
    else
        n->gradient = value_sum_of(p, n->gradient, value, factor, g->dtype);
    return n->gradient >= 0;
}

static bool walk_matmul(graph *g, const node *n)
{
    program *p = g->w->p;
    int a = value_transposed(p, g->at[n->a].value, 0, 1);
    int b = value_transposed(p, g->at[n->b].value, 0, 1);

    return a >= 0 && b >= 0 && deliver(g, n->a, value_matmul(p, n->gradient, b, g->dtype), 1) &&
           deliver(g, n->b, value_matmul(p, a, n->gradient, g->dtype), 1);
}

static bool walk_node(graph *g, const node *n)
{
    program *p = g->w->p;
    int v = n->gradient, step;

    switch (n->kind) {
    case OP_ADD:
    case OP_SUB:
        return deliver(g, n->a, v, 1) && deliver(g, n->b, v, n->kind == OP_ADD ? 1 : -1);
    case OP_MUL:
        return deliver(g, n->a, value_product_of(p, v, g->at[n->b].value, g->dtype), 1) &&
               deliver(g, n->b, value_product_of(p, v, g->at[n->a].value, g->dtype), 1);
    case OP_SCALE:
        return deliver(g, n->a, v, n->factor);
    case OP_RELU:
        step = value_step(p, g->at[n->a].value);
        return step >= 0 && deliver(g, n->a, value_product_of(p, v, step, g->dtype), 1);
    case OP_MATMUL:
        return walk_matmul(g, n);
    case OP_TRANSPOSE:
        return deliver(g, n->a, value_transposed(p, v, 0, 1), 1);
    case OP_MOVE:
        return deliver(g, n->a, v, 1);
    default:
        return true;
    }
}

static bool walk(graph *g)
{
    node *last = &g->at[g->count - 1];
    int sum = value_sum(g->w->p, last->value, g->dtype);

    last->gradient = value_constant(g->w->p, 2, g->shape, 1);
    if (!last->wants || sum < 0 || last->gradient < 0)
        return false;
    for (int i = g->count - 1; i >= 0; i--)
        if (g->at[i].gradient >= 0 && !walk_node(g, &g->at[i]))
            return false;
    return true;
}

static void add_backward(graph *g)
{
    writer *w = g->w;
    int whole = w->s->mesh[g->mesh].whole, loss = take_slot(w);
    op *o = emit(w, OP_SUM);

    o->mesh = whole;
    o->shows = true;
    o->src[0] = g->at[g->count - 1].slot;
    fill_slot(w, o, loss, slot_of(g, -1, LAYOUT_UNKNOWN));
    o = emit(w, OP_BACKWARD);
    o->mesh = whole;
    o->src[0] = loss;
    o->shows = true;
    for (int i = 0; i < g->count && g->at[i].kind == OP_FROM_LOCAL; i++) {
        bool there = g->at[i].wants && g->at[i].gradient >= 0;
        o = emit(w, OP_GRAD);
        o->mesh = whole;
        o->src[0] = g->at[i].slot;
        o->dtype = g->dtype;
        o->value[0] = there ? g->at[i].gradient : -1;
        o->flag = there;
        if (there && one_in(&w->d, 3))
            emit(w, OP_CLEAR)->src[0] = g->at[i].slot;
    }
}

bool write_graph(writer *w)
{
    graph g = {.w = w, .dtype = one_in(&w->d, 3) ? SHERD_F32 : SHERD_F64};
    int leaves = 2 + roll(&w->d, LEAVES - 1), operators = 2 + roll(&w->d, 5);

    if (!has_room(w, 40))
        return false;
    g.mesh = any_mesh(w);
    g.shape[0] = 1 + roll(&w->d, 6);
    g.shape[1] = one_in(&w->d, 2) ? g.shape[0] : 1 + roll(&w->d, 6);
    make_room(w, NODES + 1);
    open_scope(w);
    for (int i = 0; i < leaves && add_leaf(&g); i++)
        ;
    for (int i = 0; i < operators && g.count > 0 && g.count < NODES; i++)
        add_operator(&g);
    if (g.count > 0 && walk(&g))
        add_backward(&g);
    close_scope(w);
    return true;
}
