/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shortest paths in a graph whose edges cost a lower bound of the step: so what a path costs is a
 * lower bound of any plan along it. The bound of an edge is a glance, then that of any path between
 * its ends (bound.c), then a look, each only if the one before leaves it open whether the edge is
 * of use.
 *
 * The cost that remains from each state to the goal is computed nearest state first (Dijkstra),
 * until the source is reached. If there are many states, those that are of use are found first:
 * from both ends at once, nearest first, until the two distances together are more than a plan may
 * cost. A state that neither end has reached by then is on no such plan. Either end may have many
 * states near it whose bounds are all equal, so the end that has seen fewer states goes on.
 *
 * Costs a glance for each pair of a state that is taken and one that is not, a bound for some of
 * them, and a look for few.
 */
#include "left.h"
#include "base/num.h"

typedef sherd__left_side side;

static const sherd__cost unknown = {SHERD__MOST, SHERD__MOST, 1};

/* ---- one end --------------------------------------------------------------------------------- */

static sherd__cost dearer(sherd__cost a, sherd__cost b)
{
    return sherd__cost_compare(a, b) < 0 ? b : a;
}

/* Of the shortest path so far between the side's end and a node; `unknown`: there is none yet. */
static sherd__cost *path_cost(const side *s, int node)
{
    return s->ahead ? &s->field->node[node].spent : &s->field->node[node].left;
}

/* The bound of any path between the side's end and a node. */
static sherd__cost least_of(const side *s, int node)
{
    return s->ahead ? s->field->node[node].behind : s->field->node[node].ahead;
}

/*
 * The bound of the rest, between the node and the other end. The other side knows the cost of nodes
 * that it has taken, and that all others are no nearer than its radius.
 */
static sherd__cost rest_of(const side *s, int node)
{
    const sherd__node *n = &s->field->node[node];

    if (!s->other)
        return s->ahead ? n->ahead : n->behind;
    if (s->other->done[node])
        return *path_cost(s->other, node);
    return dearer(s->ahead ? n->ahead : n->behind, s->other->radius);
}

static bool is_of_use(const side *s, int node, sherd__cost path)
{
    return path.picoseconds <= s->most[node] &&
           sherd__cost_compare(sherd__cost_add(rest_of(s, node), path), s->limit) <= 0;
}

/* How many picoseconds a path to a node may take to be of use, or a little more. */
static int64_t most_of_use(const side *s, int node)
{
    const sherd__node *n = &s->field->node[node];
    int64_t rest = s->ahead ? n->ahead.picoseconds : n->behind.picoseconds;

    if (s->other && s->other->done[node])
        rest = s->ahead ? n->left.picoseconds : n->spent.picoseconds;
    else if (s->other)
        rest = sherd__max(rest, s->other->radius.picoseconds);
    return sherd__min(s->most[node], s->limit.picoseconds - rest);
}

/*
 * Note a path to a node if it is shorter than the one known. The bound of any path may be more than
 * the looks of this one add up to; then it counts.
 */
static void note_path(side *s, int node, int next, sherd__cost path)
{
    bool least = sherd__cost_compare(path, least_of(s, node)) <= 0;

    path = dearer(path, least_of(s, node));
    if (sherd__cost_compare(path, *path_cost(s, node)) >= 0 || !is_of_use(s, node, path))
        return;
    s->seen += sherd__cost_compare(*path_cost(s, node), unknown) >= 0;
    *path_cost(s, node) = path;
    s->next[node] = next;
    s->most[node] = least ? -1 : path.picoseconds;
}

/* Follow the edges between a node and all open ones, and note the paths that are of use. */
static void reach_out(side *s, int at)
{
    const sherd__node *node = s->field->node;
    sherd__cost path = *path_cost(s, at);
    sherd__glances glances;
    sherd__search_edge edge;

    sherd__glances_start(&glances, s->field, at, s->ahead);

    for (int i = 0; i < s->opens; i++) {
        int other = s->open[i], from = s->ahead ? at : other, to = s->ahead ? other : at;
        int64_t enough = most_of_use(s, other) - path.picoseconds;
        if (enough < 0 || node[to].pending & ~node[from].pending)
            continue;
        if (sherd__glance(&glances, other, enough) > enough)
            continue;
        sherd__cost least = sherd__bound_between(s->field, from, to, enough);
        if (least.picoseconds > enough || !is_of_use(s, other, sherd__cost_add(least, path)))
            continue;
        sherd__edge_look(&edge, s->field, from, to, enough);
        least.picoseconds = sherd__max(least.picoseconds, edge.cost.picoseconds);
        if (least.picoseconds <= enough)
            note_path(s, other, at, sherd__cost_add(least, path));
    }
}

/* Take the nearest open node: no other one is nearer than `radius`. -1: none has a path. */
static int take_nearest(side *s)
{
    int best = 0;

    for (int i = 1; i < s->opens; i++)
        if (sherd__cost_compare(*path_cost(s, s->open[i]), *path_cost(s, s->open[best])) < 0)
            best = i;
    s->radius = s->opens ? *path_cost(s, s->open[best]) : unknown;
    if (sherd__cost_compare(s->radius, unknown) >= 0)
        return -1;
    int found = s->open[best];
    s->open[best] = s->open[--s->opens];
    s->done[found] = true;
    s->taken++;
    s->seen--;
    return found;
}

/* Begin at an end, which is the node to be taken next; ENOMEM. */
static sherd_status side_start(side *s, sherd__field *field, sherd__cost limit, bool ahead)
{
    sherd__heap *heap = field->problem->space->heap;
    int end = ahead ? SHERD__START : SHERD__GOAL;

    *s = (side){.field = field, .limit = limit, .ahead = ahead};
    s->next = sherd__alloc(heap, (size_t)field->nodes, sizeof *s->next);
    s->open = sherd__alloc(heap, (size_t)field->nodes, sizeof *s->open);
    s->most = sherd__alloc(heap, (size_t)field->nodes, sizeof *s->most);
    s->done = sherd__alloc(heap, (size_t)field->nodes, sizeof *s->done);
    if (!s->next || !s->open || !s->most || !s->done)
        return sherd__no_memory(field->problem->space->diag, "sherd_plan_create");
    for (int i = 0; i < field->nodes; i++) {
        *path_cost(s, i) = unknown;
        s->next[i] = end;
        s->most[i] = limit.picoseconds - rest_of(s, i).picoseconds;
        s->open[s->opens++] = i;
    }
    *path_cost(s, end) = (sherd__cost){0, 0, 0};
    s->seen = 1;
    return SHERD_OK;
}

static void side_clear(side *s)
{
    sherd__heap *heap = s->field->problem->space->heap;

    sherd__free(heap, s->next);
    sherd__free(heap, s->open);
    sherd__free(heap, s->most);
    sherd__free(heap, s->done);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static void find(side *s)
{
    sherd__node *node = s->field->node;

    while (!s->done[SHERD__START]) {
        int at = take_nearest(s);
        if (at < 0)
            break;
        if (at != SHERD__START)
            reach_out(s, at);
    }
    for (int i = 0; i < s->opens; i++) { /* the source was nearer than these */
        sherd__node *far = &node[s->open[i]];
        far->left = dearer(node[SHERD__START].left, far->ahead);
    }
}

static void trace(sherd__route *route, const side *s)
{
    int at = SHERD__START;

    route->stops = 0;
    route->cost = s->field->node[at].left;
    for (; at != SHERD__GOAL && route->stops + 1 < SHERD__STOPS; at = s->next[at])
        route->stop[route->stops++] = at;
    route->stop[route->stops++] = SHERD__GOAL;
}

sherd_status sherd__left_find(sherd__route *route, sherd__field *field, sherd__cost limit)
{
    side s;

    sherd_status status = side_start(&s, field, limit, false);
    if (status == SHERD_OK) {
        find(&s);
        trace(route, &s);
    }
    side_clear(&s);
    return status;
}

/* ---- from both ends -------------------------------------------------------------------------- */

sherd_status sherd__meeting_start(sherd__left_meeting *m, sherd__field *field, sherd__cost limit)
{
    *m = (sherd__left_meeting){.field = field, .shortest = unknown, .middle = -1};
    sherd_status goal = side_start(&m->side[0], field, limit, false);
    sherd_status source = side_start(&m->side[1], field, limit, true);
    m->side[0].other = &m->side[1];
    m->side[1].other = &m->side[0];
    return goal != SHERD_OK ? goal : source;
}

void sherd__meeting_clear(sherd__left_meeting *m)
{
    side_clear(&m->side[0]);
    side_clear(&m->side[1]);
}

/* A node that one side takes may lie on the shortest path that is known between both ends. */
static void note_middle(sherd__left_meeting *m, int at)
{
    const sherd__node *node = &m->field->node[at];
    sherd__cost whole = sherd__cost_add(node->spent, node->left);

    if (sherd__cost_compare(whole, m->shortest) >= 0)
        return;
    m->shortest = whole;
    m->middle = at;
}

/* From the source to the middle, which is found backwards, and on to the goal. */
static void trace_both(sherd__route *route, const sherd__left_meeting *m)
{
    int back[SHERD__STOPS], count = 0;

    route->stops = 0;
    for (int at = m->middle; at != SHERD__START; at = m->side[1].next[at])
        if (count < SHERD__STOPS)
            back[count++] = at;
    route->stop[route->stops++] = SHERD__START;
    while (count > 0 && route->stops < SHERD__STOPS)
        route->stop[route->stops++] = back[--count];
    for (int at = m->middle; at != SHERD__GOAL && route->stops < SHERD__STOPS;) {
        at = m->side[0].next[at];
        route->stop[route->stops++] = at;
    }
    if (route->stop[route->stops - 1] != SHERD__GOAL)
        route->stops = 0;
}

static bool has_met(const sherd__left_meeting *m, sherd__cost limit)
{
    sherd__cost both = sherd__cost_add(m->side[0].radius, m->side[1].radius);

    return sherd__cost_compare(both, limit) > 0;
}

/* Both sides begin; then the one that has seen fewer nodes goes on. */
static side *next_side(sherd__left_meeting *m)
{
    side *goal = &m->side[0], *source = &m->side[1];

    if (goal->taken == 0 || source->taken == 0)
        return goal->taken == 0 ? goal : source;
    return source->seen < goal->seen ? source : goal;
}

void sherd__meeting_go(sherd__left_meeting *m, sherd__cost limit, sherd__route *route)
{
    bool first = route != NULL;

    m->side[0].limit = m->side[1].limit = limit;
    while (!has_met(m, limit) && !(first && has_met(m, m->shortest))) {
        side *next = next_side(m);
        int at = take_nearest(next);
        if (at < 0)
            break;
        note_middle(m, at);
        reach_out(next, at);
    }
    if (first && m->middle >= 0)
        trace_both(route, m);
}

/*
 * Move the nodes that a side has taken to the front, and keep only these. The goal's side goes on
 * with them; the other one has ended, and its list of open nodes has room for their new numbers.
 */
void sherd__meeting_keep(sherd__left_meeting *m)
{
    sherd__field *field = m->field;
    side *goal = &m->side[0];
    int *place = m->side[1].open, kept = 0;

    for (int i = 0; i < field->nodes; i++) {
        if (!goal->done[i] && !m->side[1].done[i] && i > SHERD__GOAL)
            continue;
        sherd__node node = field->node[i];
        field->node[i] = field->node[kept];
        field->node[kept] = node;
        goal->next[kept] = goal->next[i];
        goal->most[kept] = goal->most[i];
        goal->done[kept] = goal->done[i];
        place[i] = kept++;
    }
    field->nodes = kept;
    goal->other = NULL;
    goal->opens = 0;
    for (int i = 0; i < kept; i++) {
        goal->next[i] = place[goal->next[i]];
        if (!goal->done[i])
            goal->open[goal->opens++] = i;
    }
}

void sherd__meeting_left(sherd__route *route, sherd__left_meeting *m, sherd__cost limit)
{
    m->side[0].limit = limit;
    find(&m->side[0]);
    trace(route, &m->side[0]);
}
