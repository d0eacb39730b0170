/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching once or several times, until the cheapest route is known. Other prices than links take
 * one search, with a limit from a look ahead. Under links states are searched among in growing
 * numbers, and what was found is priced over all ranks: if that is more than the search has said,
 * it is repeated.
 */
#include "routes.h"
#include "left.h"

/* ---- one search ------------------------------------------------------------------------------ */

static sherd_status path_of(sherd__path *path, const sherd__field *field, const sherd__route *route)
{
    sherd_status status = SHERD_OK;

    path->stops = 0;
    sherd__path_push(path, field->problem->from);
    for (int i = 1; i + 1 < route->stops && status == SHERD_OK; i++) {
        const sherd_layout *layout;
        sherd__state state;
        sherd__field_state(&state, field, route->stop[i]);
        status = sherd__state_layout(&layout, &state, field->problem->from, field->other);
        if (status == SHERD_OK)
            sherd__path_push(path, layout);
    }
    sherd__path_push(path, field->goal);
    return status;
}

/* What the steps of a route cost; *allowed is false if the options rule one out. */
static sherd_status price_route(sherd__cost *cost, bool *allowed, const sherd__field *field,
                                const sherd__route *route)
{
    sherd_status status = SHERD_OK;
    bool good = true;
    sherd__search_edge edge;

    *cost = (sherd__cost){0, 0, 0};
    *allowed = route->stops > 0;
    for (int i = 1; i < route->stops && status == SHERD_OK; i++) {
        sherd__edge_look(&edge, field, route->stop[i - 1], route->stop[i], SHERD__MOST);
        if (!edge.sure_time || !field->arena_only)
            status = sherd__edge_price(&edge, &good, field, route->stop[i - 1], route->stop[i], 0);
        else if (!edge.sure_bytes)
            sherd__edge_total(&edge, field, route->stop[i - 1], route->stop[i]);
        *cost = sherd__cost_add(*cost, edge.cost);
        *allowed = *allowed && good;
    }
    return status;
}

static void take_limit(sherd__cost *limit, sherd__cost cost, bool allowed)
{
    if (allowed && sherd__cost_compare(cost, *limit) < 0)
        *limit = cost;
}

/*
 * Under links: keep only the nodes through which a plan of at most `limit` may go. The first route
 * that is found may lower the limit.
 */
static sherd_status keep_between(sherd__left_meeting *meeting, sherd__cost *limit,
                                 sherd__field *field)
{
    sherd__route route = {.stops = 0};
    sherd__cost cost;
    bool allowed;

    sherd_status status = sherd__meeting_start(meeting, field, *limit);
    if (status == SHERD_OK) {
        sherd__meeting_go(meeting, *limit, &route);
        status = price_route(&cost, &allowed, field, &route);
    }
    if (status == SHERD_OK) {
        take_limit(limit, cost, allowed);
        sherd__meeting_go(meeting, *limit, NULL);
        sherd__meeting_keep(meeting);
    }
    return status;
}

/*
 * From the goal to all nodes; if they are many, only to those that are of use. It makes no
 * difference how many are many, from 16 to 500; if none are, planning takes half as long again
 * where classes overlap, or messages are all that counts (bench/plan cluster --price FILE).
 */
static sherd_status find_left(sherd__route *route, sherd__cost *limit, sherd__field *field)
{
    enum { MANY = 112 };
    sherd__left_meeting meeting;

    if (field->nodes <= MANY || limit->picoseconds == INT64_MAX)
        return sherd__left_find(route, field, *limit);
    sherd_status status = keep_between(&meeting, limit, field);
    if (status == SHERD_OK)
        sherd__meeting_left(route, &meeting, *limit);
    sherd__meeting_clear(&meeting);
    return status;
}

/*
 * Find what each node has left to the goal, at least. Under the arena and under links also find the
 * route that looks cheapest: its price becomes the limit of the search that decides, which then has
 * little to price. That search can still find this route, or a better one.
 */
static sherd_status look_ahead(sherd__cost *limit, sherd__field *field, bool links)
{
    sherd__route route = {.stops = 0};
    sherd_status status = SHERD_OK;
    bool complete, allowed;
    sherd__cost cost;

    if (links)
        status = find_left(&route, limit, field);
    else
        sherd__least_find(field);
    if (status == SHERD_OK && field->price == &sherd__price_arena && field->arena_only)
        status = sherd__search_run(&route, &complete, field, *limit, true);
    if (status == SHERD_OK)
        status = price_route(&cost, &allowed, field, &route);
    if (status == SHERD_OK)
        take_limit(limit, cost, allowed);
    if (links)
        sherd__bound_drop(field, *limit);
    return status;
}

/* Take what the search found, also if another plan costs the same: the search breaks ties. */
static sherd_status take_route(sherd__best *b, const sherd__field *field, const sherd__route *route)
{
    sherd__path path;

    sherd_status status = path_of(&path, field, route);
    if (status != SHERD_OK)
        return status;
    b->known = b->known && sherd__cost_compare(route->cost, b->cost) > 0;
    sherd__best_take(b, &path, route->cost);
    b->searched = true;
    for (int i = 0; i < route->stops; i++)
        b->number[i] = field->node[route->stop[i]].number;
    return SHERD_OK;
}

/* The cheapest route through the first field->nodes nodes. */
static sherd_status find_route(sherd__best *b, bool *complete, sherd__field *field, bool links)
{
    sherd__cost limit = b->known ? b->cost : (sherd__cost){INT64_MAX, INT64_MAX, INT64_MAX};
    sherd__route route = {.stops = 0};
    int kept = field->nodes;

    sherd_status status = look_ahead(&limit, field, links);
    if (status == SHERD_OK)
        status = sherd__search_run(&route, complete, field, limit, false);
    if (status == SHERD_OK && route.stops)
        status = take_route(b, field, &route);
    field->nodes = kept;
    return status;
}

/*
 * Under links few states are of use, and once a good plan is known, bounds say which. So search
 * among the few with the lowest bounds first, and then among more, until all are searched whose
 * bounds allow a plan as good. What is few matters little, from 8 to 32; if it is all, planning
 * takes six times as long (bench/plan cluster --price FILE).
 */
static sherd_status find_route_of_links(sherd__best *b, bool *complete, sherd__field *field)
{
    enum { FEW = 32, MORE = 8 };
    sherd_status status = SHERD_OK;
    int useful = FEW;

    field->nodes = 0;
    while (status == SHERD_OK && useful > field->nodes) {
        int more = field->nodes ? MORE * field->nodes : FEW;
        sherd__bound_keep(field, useful < 2 * more ? useful : more);
        status = find_route(b, complete, field, true);
        useful = b->known ? sherd__bound_count(field, b->cost) : field->all;
    }
    return status;
}

static int node_of(const sherd__field *field, int number)
{
    int node = 0;

    while (field->node[node].number != number)
        node++;
    return node;
}

/* Price what was found over all ranks. *kept: the next search knows these prices. */
static sherd_status price_all(sherd__best *b, bool *kept, sherd__field *field)
{
    sherd_status status = SHERD_OK;
    sherd__search_edge edge;
    bool each;

    *kept = true;
    b->cost = (sherd__cost){0, 0, 0};
    for (int i = 1; i < b->path.stops && status == SHERD_OK; i++) {
        status = sherd__edge_price_all(&edge, &each, field, node_of(field, b->number[i - 1]),
                                       node_of(field, b->number[i]));
        b->cost = sherd__cost_add(b->cost, edge.cost);
        *kept = *kept && each;
    }
    return status;
}

/*
 * The search prices steps over some ranks, so its costs are lower bounds. Its result is priced over
 * all ranks. If that is more, the search is repeated with these prices noted. A result that costs
 * what the search said is the best, since all others cost at least what it said of them. A search
 * that was cut off is not repeated, and the work of all repeats is bounded.
 */
static sherd_status find_sure_route(sherd__best *b, bool *complete, sherd__field *field)
{
    sherd_status status = SHERD_OK;
    bool sure = false, kept = true;
    int64_t pairs = 0;

    sherd__links_pairs(field);
    if (!field->across)
        sherd__bound_fill(field);
    if (b->known) /* the direct step */
        sherd__edge_note(field, SHERD__START, SHERD__GOAL, true, b->cost);
    while (status == SHERD_OK && !sure && kept) {
        sherd__best found = *b;
        status = field->across ? find_route(&found, complete, field, false)
                               : find_route_of_links(&found, complete, field);
        sherd__cost cost = found.cost;
        if (status == SHERD_OK && found.searched)
            status = price_all(&found, &kept, field);
        sure = !found.searched || sherd__cost_compare(found.cost, cost) <= 0;
        if (status == SHERD_OK && found.known && sure)
            *b = found;
        else if (status == SHERD_OK && found.known)
            sherd__best_take(b, &found.path, found.cost);
        pairs += (int64_t)field->nodes * field->nodes;
        kept = kept && *complete && pairs < field->effort->pairs;
        *complete = *complete && (sure || kept);
    }
    b->searched = false;
    return status;
}

sherd_status sherd__routes_find(sherd__best *b, bool *complete, sherd__field *field)
{
    return field->price == &sherd__price_links ? find_sure_route(b, complete, field)
                                               : find_route(b, complete, field, false);
}
