/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: A* from the source, where every node has an edge to every other. Steps are estimated
 * before they are priced, and what cannot be within the best known cost is pruned. All equally good
 * steps into a node are kept, so that ties can be decided at the end by the keys of the states
 * along the way, independent of the order in which they were found. The numbers of estimates and of
 * prices are bounded, not the time: the result must not depend on the machine.
 */
#include "search.h"
#include "base/num.h"

#include <string.h>

/* What else is done of a step, in the time of so many looks: to find its time, or its bytes. */
enum { TIME_LOOKS = 8, TOTAL_LOOKS = 20 };

/* A step by which a node was reached at the cost that it had then. */
typedef struct link {
    int from, to;
    sherd__cost spent; /* up to `to` */
} link;

/* A step that was looked at, and not priced yet. */
typedef struct hope {
    sherd__cost whole; /* of a plan with this step, at least */
    sherd__cost spent; /* up to `from`, when it was looked at */
    sherd__cost step;
    int from, to;
} hope;

typedef struct finder {
    sherd__field *field;
    sherd__cost best; /* what the goal may cost at most */
    bool rough;       /* see sherd__search_run */
    bool cut;         /* a limit was reached */
    int *open;        /* nodes, in no order */
    int opens;
    int links, link_room;
    link *link;
    bool lazy;              /* steps wait as hopes, and are priced when nothing looks cheaper */
    sherd__glances glances; /* if lazy: from the node that is expanded */
    int hopes, hope_room;
    hope *hope; /* a heap */
} finder;

static const sherd__cost nothing = {0, 0, 0}, unknown = {INT64_MAX, INT64_MAX, INT64_MAX};

/* ---- the frontier ---------------------------------------------------------------------------- */

static sherd__cost whole_cost(const finder *f, int node)
{
    return sherd__cost_add(f->field->node[node].spent, f->field->node[node].left);
}

/*
 * Take the open node from which the whole may be cheapest off the list; -1 if it cannot be cheap
 * enough, or the most hopeful step may be cheaper.
 */
static int next_node(finder *f)
{
    int best = -1;
    sherd__cost least = unknown;

    for (int i = 0; i < f->opens; i++) {
        sherd__cost cost = whole_cost(f, f->open[i]);
        int order = sherd__cost_compare(cost, least);
        if (best < 0 || order < 0 || (order == 0 && f->open[i] < f->open[best])) {
            best = i;
            least = cost;
        }
    }
    if (best < 0)
        return -1;
    int order = sherd__cost_compare(least, f->best);
    if (order > 0 || (order == 0 && f->rough))
        return -1;
    if (f->hopes && sherd__cost_compare(f->hope[0].whole, least) < 0)
        return -1;
    int node = f->open[best];
    f->open[best] = f->open[--f->opens];
    f->field->node[node].open = false;
    return node;
}

static bool note_link(finder *f, int from, int to, sherd__cost spent)
{
    link *list = sherd__reserve(f->field->problem->space->heap, f->link, f->links, &f->link_room,
                                64, sizeof *list);

    if (!list)
        return false;
    f->link = list;
    f->link[f->links++] = (link){from, to, spent};
    return true;
}

/* ---- hopes ----------------------------------------------------------------------------------- */

/* By cost, then by numbers, so that the order does not depend on how the heap was filled. */
static bool goes_before(const hope *a, const hope *b)
{
    int order = sherd__cost_compare(a->whole, b->whole);

    if (order != 0)
        return order < 0;
    return a->from != b->from ? a->from < b->from : a->to < b->to;
}

static bool push_hope(finder *f, const hope *step)
{
    hope *list = sherd__reserve(f->field->problem->space->heap, f->hope, f->hopes, &f->hope_room,
                                256, sizeof *list);

    if (!list)
        return false;
    f->hope = list;
    int i = f->hopes++;
    f->cut = f->cut || f->hopes > f->field->effort->hopes;
    for (; i > 0 && goes_before(step, &f->hope[(i - 1) / 2]); i = (i - 1) / 2)
        f->hope[i] = f->hope[(i - 1) / 2];
    f->hope[i] = *step;
    return true;
}

static hope pop_hope(finder *f)
{
    hope first = f->hope[0], last = f->hope[--f->hopes];
    int i = 0;

    for (int child = 1; child < f->hopes; child = 2 * i + 1) {
        if (child + 1 < f->hopes && goes_before(&f->hope[child + 1], &f->hope[child]))
            child++;
        if (!goes_before(&f->hope[child], &last))
            break;
        f->hope[i] = f->hope[child];
        i = child;
    }
    f->hope[i] = last;
    return first;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Whether a node may be reached at this cost and still lead to one of the best plans. */
static bool hopeful(const finder *f, int node, sherd__cost spent)
{
    const sherd__node *n = &f->field->node[node];

    return sherd__cost_compare(spent, n->spent) <= 0 &&
           sherd__cost_compare(sherd__cost_add(spent, n->left), f->best) <= 0;
}

/* How many picoseconds a step may take to be hopeful. */
static int64_t enough_of(const finder *f, int from, int to)
{
    const sherd__node *node = f->field->node, *n = &node[to];
    int64_t most = sherd__min(n->spent.picoseconds, f->best.picoseconds - n->left.picoseconds);

    return sherd__max(most - node[from].spent.picoseconds, 1);
}

/*
 * Make the cost of a step that was looked at exact: find its time or bytes alone where that is
 * enough, else price it. *allowed is false if the options rule it out, or if it is not hopeful any
 * more.
 */
static sherd_status make_sure(finder *f, sherd__search_edge *edge, bool *allowed, int from, int to)
{
    const sherd__field *field = f->field;
    bool limited = !field->arena_only &&
                   (field->problem->request->forbidden || field->problem->request->max_bytes);

    *allowed = true;
    if (!limited && edge->sure_time && (edge->sure_bytes || f->rough))
        return SHERD_OK;
    if (!limited && !edge->sure_time && edge->sure_kind && field->price->of_kinds) {
        sherd__edge_time(edge, field, from, to);
        *allowed = hopeful(f, to, sherd__cost_add(field->node[from].spent, edge->cost));
        f->field->priced.looks += TIME_LOOKS;
    }
    if (*allowed && edge->open_bytes && !edge->sure_bytes &&
        !(f->lazy && edge->cost.picoseconds > 0)) {
        sherd__edge_total(edge, field, from, to);
        *allowed = hopeful(f, to, sherd__cost_add(field->node[from].spent, edge->cost));
        f->field->priced.looks += TOTAL_LOOKS;
    }
    if (!*allowed || (!limited && edge->sure_time && edge->sure_bytes))
        return SHERD_OK;
    if (++f->field->priced.prices >
        (field->all_states ? field->effort->prices : field->effort->prices_of_some))
        f->cut = true;
    return sherd__edge_price(edge, allowed, field, from, to, enough_of(f, from, to));
}

/* Make a step that was looked at sure; if it is still hopeful, note it, and what `to` costs now. */
static sherd_status take_step(finder *f, sherd__search_edge *edge, int from, int to)
{
    sherd__cost before = f->field->node[from].spent;
    sherd__node *node = &f->field->node[to];
    bool allowed;

    sherd_status status = make_sure(f, edge, &allowed, from, to);
    sherd__cost spent = sherd__cost_add(before, edge->cost);
    if (status != SHERD_OK || !allowed || !hopeful(f, to, spent))
        return status;
    if (!note_link(f, from, to, spent))
        return sherd__no_memory(f->field->problem->space->diag, "sherd_plan_create");
    if (sherd__cost_compare(spent, node->spent) == 0)
        return SHERD_OK;
    node->spent = spent;
    if (to == SHERD__GOAL) {
        f->best = spent;
    } else if (!node->open) {
        node->open = true;
        f->open[f->opens++] = to;
    }
    return SHERD_OK;
}

/*
 * Estimate a step; false: it is not hopeful. Under links a glance, and the bound of any path, come
 * before the look, which costs more.
 */
static bool look_at(const finder *f, sherd__search_edge *edge, int from, int to)
{
    sherd__cost spent = f->field->node[from].spent, least = nothing;

    if (!hopeful(f, to, spent))
        return false;
    int64_t enough = enough_of(f, from, to);
    if (f->lazy && sherd__glance(&f->glances, to, enough) > enough)
        return false;
    if (f->lazy && !f->field->across)
        least = sherd__bound_between(f->field, from, to, enough);
    if (!hopeful(f, to, sherd__cost_add(spent, least)))
        return false;
    sherd__edge_look(edge, f->field, from, to, enough);
    edge->cost.picoseconds = sherd__max(edge->cost.picoseconds, least.picoseconds);
    edge->cost.bytes = sherd__max(edge->cost.bytes, least.bytes);
    return hopeful(f, to, sherd__cost_add(spent, edge->cost));
}

static sherd_status try_step(finder *f, int from, int to)
{
    sherd__cost spent = f->field->node[from].spent;
    sherd__search_edge edge;

    if (!look_at(f, &edge, from, to))
        return SHERD_OK;
    if (!f->lazy || (edge.sure_time && edge.sure_bytes))
        return take_step(f, &edge, from, to);
    sherd__cost then = sherd__cost_add(spent, edge.cost);
    const hope step = {sherd__cost_add(then, f->field->node[to].left), spent, edge.cost, from, to};
    if (!push_hope(f, &step))
        return sherd__no_memory(f->field->problem->space->diag, "sherd_plan_create");
    return SHERD_OK;
}

/* Price the most hopeful step, unless a cheaper way to its first node was found since. */
static sherd_status try_hope(finder *f)
{
    const hope step = pop_hope(f);
    sherd__search_edge edge;

    if (sherd__cost_compare(step.spent, f->field->node[step.from].spent) != 0 ||
        !hopeful(f, step.to, sherd__cost_add(step.spent, step.step)))
        return SHERD_OK;
    sherd__edge_look(&edge, f->field, step.from, step.to, 0); /* only whether it takes any time */
    return take_step(f, &edge, step.from, step.to);
}

/*
 * Try all steps from a node: to the goal first, then to others. No step makes a reduction pending,
 * and under the arena's price the direct step is best once nothing is.
 */
static sherd_status expand(finder *f, int from)
{
    const sherd__field *field = f->field;
    unsigned pending = field->node[from].pending;
    sherd_status status = SHERD_OK;

    if (f->lazy)
        sherd__glances_start(&f->glances, field, from, true);
    status = try_step(f, from, SHERD__GOAL);
    if (field->arena_only && pending == 0)
        return status;
    for (int to = SHERD__GOAL + 1; to < field->nodes && status == SHERD_OK && !f->cut; to++)
        if (to != from && !(field->node[to].pending & ~pending))
            status = try_step(f, from, to);
    f->field->priced.looks += field->nodes;
    f->cut = f->cut || f->field->priced.looks > field->effort->looks;
    return status;
}

/* ---- the route ------------------------------------------------------------------------------- */

static bool is_best(const finder *f, const link *l)
{
    return sherd__cost_compare(l->spent, f->field->node[l->to].spent) == 0;
}

/* Mark the nodes on best routes, back from the goal; each round goes back at least one step. */
static void mark_back(const finder *f, bool *on_route)
{
    bool grown = true;

    on_route[SHERD__GOAL] = true;
    while (grown) {
        grown = false;
        for (int i = f->links - 1; i >= 0; i--) {
            const link *l = &f->link[i];
            if (on_route[l->to] && !on_route[l->from] && is_best(f, l))
                grown = on_route[l->from] = true;
        }
    }
}

static uint64_t key_of(const sherd__field *field, int node)
{
    sherd__state state;

    sherd__field_state(&state, field, node);
    return sherd__state_key(&state, field->mesh->axes, field->ndim);
}

/*
 * The next stop: of those that stay on best routes the one with the smallest key. A link may count
 * as best although its first node was reached at a lower cost since.
 */
static int next_stop(const finder *f, const bool *on_route, int from)
{
    int best = SHERD__GOAL;
    uint64_t least = 0;
    bool any = false;

    for (int i = 0; i < f->links; i++) {
        const link *l = &f->link[i];
        if (l->from != from || !on_route[l->to] || !is_best(f, l))
            continue;
        uint64_t key = l->to == SHERD__GOAL && f->field->across ? 0 : key_of(f->field, l->to);
        if (!any || key < least) {
            best = l->to;
            least = key;
            any = true;
        }
    }
    return best;
}

static void trace_route(sherd__route *out, const finder *f, bool *on_route)
{
    int at = SHERD__START;

    mark_back(f, on_route);
    out->cost = f->field->node[SHERD__GOAL].spent;
    out->stop[out->stops++] = at;
    while (at != SHERD__GOAL && out->stops < SHERD__STOPS) {
        at = next_stop(f, on_route, at);
        out->stop[out->stops++] = at;
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static sherd_status run(finder *f)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < f->field->nodes; i++) {
        f->field->node[i].spent = unknown;
        f->field->node[i].open = false;
    }
    f->field->node[SHERD__START].spent = nothing;
    f->open[f->opens++] = SHERD__START;
    while (status == SHERD_OK && !f->cut) {
        int node = next_node(f);
        if (node < 0 && f->hopes == 0)
            break;
        status = node < 0 ? try_hope(f) : expand(f, node);
    }
    return status;
}

sherd_status sherd__search_run(sherd__route *out, bool *complete, sherd__field *field,
                               sherd__cost limit, bool rough)
{
    sherd__heap *heap = field->problem->space->heap;
    finder f = {.field = field,
                .best = limit,
                .rough = rough,
                .lazy = field->price == &sherd__price_links && !rough};
    sherd_status status = SHERD_OK;

    out->stops = 0;
    f.open = sherd__alloc(heap, (size_t)field->nodes, sizeof *f.open);
    bool *on_route = sherd__alloc(heap, (size_t)field->nodes, sizeof *on_route);
    if (!f.open || !on_route)
        status = sherd__no_memory(field->problem->space->diag, "sherd_plan_create");
    else
        status = run(&f);
    if (status == SHERD_OK && field->node[SHERD__GOAL].spent.steps != unknown.steps)
        trace_route(out, &f, on_route);
    *complete = !f.cut && field->all_states;
    sherd__free(heap, f.open);
    sherd__free(heap, f.link);
    sherd__free(heap, f.hope);
    sherd__free(heap, on_route);
    return status;
}
