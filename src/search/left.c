/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left from each state to the goal at least, by looks at all steps: a shortest path to the goal in the graph
 * of what steps take at least, nearest state first, until the source is reached. Costs a look for each pair of a
 * state that is nearer than the source and any other one.
 */
#include "search.h"
#include "base/num.h"

typedef struct finder {
    sherd__field *field;
    int64_t limit;
    int *next,
        *open; /* on the way to the goal; states without a way yet, or with one that may get shorter */
    int64_t *most; /* what a way from a state may take to be of use; -1 = it has one that cannot get shorter */
    int opens;
} finder;

/* A shorter way. What any way takes at least is what a look may not know. */
static void note_way(finder *f, int from, int to, sherd__cost cost)
{
    sherd__node *node = &f->field->node[from];
    bool least = cost.picoseconds <= node->ahead;

    cost.picoseconds = sherd__max(cost.picoseconds, node->ahead);
    cost.steps = least ? 1 : cost.steps; /* others as long are not looked at */
    if (cost.picoseconds > f->most[from] || sherd__cost_compare(cost, node->left) >= 0)
        return;
    node->left = cost;
    f->next[from] = to;
    f->most[from] = least ? -1 : cost.picoseconds;
}

/* All steps into a state, by the cheapest question first. */
static void reach_back(finder *f, int to)
{
    sherd__field *field = f->field;
    const sherd__node *node = field->node;
    sherd__cost left = node[to].left;
    sherd__edge edge;

    for (int i = 0; i < f->opens; i++) {
        int from = f->open[i];
        if (left.picoseconds > f->most[from] || node[to].pending & ~node[from].pending)
            continue;
        int64_t least = sherd__bound_between(field, from, to);
        if (sherd__add_cut(left.picoseconds, least) > f->most[from])
            continue;
        sherd__edge_look(&edge, field, from, to);
        edge.cost.picoseconds = sherd__max(edge.cost.picoseconds, least);
        note_way(f, from, to, sherd__cost_add(edge.cost, left));
    }
}

static int take_nearest(finder *f)
{
    const sherd__node *node = f->field->node;
    int best = 0;

    for (int i = 1; i < f->opens; i++)
        if (sherd__cost_compare(node[f->open[i]].left, node[f->open[best]].left) < 0)
            best = i;
    int found = f->open[best];
    f->open[best] = f->open[--f->opens];
    return found;
}

static void find(finder *f)
{
    sherd__node *node = f->field->node;
    int at = SHERD__GOAL;

    for (int i = 0; i < f->field->nodes; i++) {
        node[i].left = (sherd__cost){SHERD__MOST, 0, 1};
        f->next[i] = SHERD__GOAL;
        f->most[i] = f->limit - node[i].behind;
        if (i != SHERD__GOAL)
            f->open[f->opens++] = i;
    }
    node[SHERD__GOAL].left = (sherd__cost){0, 0, 0};
    for (; at != SHERD__SOURCE && f->opens > 0; at = take_nearest(f))
        reach_back(f, at);
    for (int i = 0; i < f->opens; i++) { /* these are no nearer */
        sherd__node *far = &node[f->open[i]];
        far->left = node[SHERD__SOURCE].left;
        far->left.picoseconds = sherd__max(far->left.picoseconds, far->ahead);
    }
}

static void trace(sherd__route *route, const finder *f)
{
    int at = SHERD__SOURCE;

    route->stops = 0;
    route->cost = f->field->node[at].left;
    for (; at != SHERD__GOAL && route->stops + 1 < SHERD__STOPS; at = f->next[at])
        route->stop[route->stops++] = at;
    route->stop[route->stops++] = SHERD__GOAL;
}

sherd_status sherd__left_find(sherd__route *route, sherd__field *field, int64_t limit)
{
    sherd__heap *heap = field->problem->space->heap;
    finder f = {.field = field, .limit = limit};
    sherd_status status = SHERD_OK;

    f.next = sherd__alloc(heap, (size_t)field->nodes, sizeof *f.next);
    f.open = sherd__alloc(heap, (size_t)field->nodes, sizeof *f.open);
    f.most = sherd__alloc(heap, (size_t)field->nodes, sizeof *f.most);
    if (f.next && f.open && f.most) {
        find(&f);
        trace(route, &f);
    } else {
        status = sherd__no_memory(field->problem->space->diag, "sherd_plan_create");
    }
    sherd__free(heap, f.next);
    sherd__free(heap, f.open);
    sherd__free(heap, f.most);
    return status;
}
