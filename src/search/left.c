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
    int *next,
        *open; /* on the way to the goal; states without a way yet, or with one that may get shorter */
    int opens;
} finder;

/* All steps into a state. */
static void reach_back(finder *f, int to)
{
    sherd__field *field = f->field;
    sherd__node *node = field->node;
    sherd__edge edge;

    for (int i = 0; i < f->opens; i++) {
        int from = f->open[i];
        if (node[to].pending & ~node[from].pending)
            continue;
        sherd__edge_look(&edge, field, from, to);
        sherd__cost cost = sherd__cost_add(edge.cost, node[to].left);
        if (sherd__cost_compare(cost, node[from].left) < 0) {
            node[from].left = cost;
            f->next[from] = to;
        }
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
    static const sherd__cost unknown = {INT64_MAX, INT64_MAX, INT64_MAX};
    sherd__node *node = f->field->node;
    int at = SHERD__GOAL;

    for (int i = 0; i < f->field->nodes; i++) {
        node[i].left = unknown;
        if (i != SHERD__GOAL)
            f->open[f->opens++] = i;
    }
    node[SHERD__GOAL].left = (sherd__cost){0, 0, 0};
    for (; at != SHERD__SOURCE && f->opens > 0; at = take_nearest(f))
        reach_back(f, at);
    for (int i = 0; i < f->opens; i++) /* these are no nearer */
        node[f->open[i]].left = node[SHERD__SOURCE].left;
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

sherd_status sherd__left_find(sherd__route *route, sherd__field *field)
{
    sherd__heap *heap = field->problem->space->heap;
    finder f = {.field = field};
    sherd_status status = SHERD_OK;

    f.next = sherd__alloc(heap, (size_t)field->nodes, sizeof *f.next);
    f.open = sherd__alloc(heap, (size_t)field->nodes, sizeof *f.open);
    if (f.next && f.open) {
        find(&f);
        trace(route, &f);
    } else {
        status = sherd__no_memory(field->problem->space->diag, "sherd_plan_create");
    }
    sherd__free(heap, f.next);
    sherd__free(heap, f.open);
    return status;
}
