/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact planner: the cheapest of all paths of states, where a step may lead from any state to
 * any other. Plans are compared by picoseconds, then by the bytes that all ranks receive, then by
 * the number of steps, then by the keys of their states in order.
 *
 * Most plans need no search. Under the arena's price the time of a step follows from its largest
 * target box, the addends and whether anything travels. Without a pending reduction the direct step
 * is best: take the last step of any path in which ranks receive something. Every target box lies
 * within a box that it writes, so it takes no less time than the direct step, and the other steps
 * only add to it. If ranks receive nothing in any step, they receive nothing in the direct one, and
 * some step of the path cuts boxes as large. With a reduction the direct step is best if a lower
 * bound of all other plans is above it (least.c); this decides small tensors. Otherwise the graph
 * of all states is searched.
 *
 * Under links a search prices steps over some ranks only, a lower bound; its result is priced over
 * all of them (find_sure_route).
 *
 * A replica becomes pending in a step of its own, the last one. Between two meshes the last step
 * goes to the other mesh, from any state of the source's mesh.
 */
#include "search.h"
#include "base/num.h"

#include <string.h>

static const char function[] = "sherd_plan_create";

const sherd__effort sherd__effort_usual = {
    .states = 4096,
    .chosen = 1024,
    .looks = 4000000,
    .prices = 20000,
    .prices_of_some = 1000,
    .sure = SHERD__SURE,
    .pairs = 8000000,
};

/* ---- the parts of a problem ------------------------------------------------------------------ */

/*
 * The target with those axes replicated that a partition makes pending; the target itself if there
 * are none.
 */
static sherd_status before_partition(const sherd_layout **out, const sherd__problem *problem)
{
    sherd__layout_spec spec = problem->to->spec;

    *out = problem->to;
    if (problem->to->pending_axes == 0)
        return SHERD_OK;
    for (int i = 0; i < spec.mesh->axes && problem->from->spec.mesh == spec.mesh; i++)
        if (problem->from->spec.pending[i] < 0 && spec.mesh->extent[i] > 1)
            spec.pending[i] = -1;
    return sherd__layout_intern(out, &spec);
}

static void push(sherd__path *path, const sherd_layout *stop)
{
    path->merged[path->stops] = false;
    path->at[path->stops++] = stop;
}

/* ---- what the options rule out --------------------------------------------------------------- */

static sherd_status fail_limits(const sherd__problem *problem)
{
    const sherd__request *request = problem->request;
    char kinds[160] = "";
    sherd__writer w = {kinds, sizeof kinds, 0};

    for (int i = 0; i < SHERD_STEP_KINDS; i++)
        if (request->forbidden >> i & 1)
            sherd__write(&w, "%s%s", w.length ? ", " : "",
                         sherd_step_kind_name((sherd_step_kind)i));
    return sherd__fail(problem->space->diag, SHERD_ELIMIT,
                       "%s: from %s to %s: no plan was found that keeps within max_bytes %lld (0 = "
                       "any) without the forbidden kinds of steps (%s): allow more of either",
                       function, problem->from->text, problem->to->text,
                       (long long)request->max_bytes, kinds[0] ? kinds : "none");
}

/*
 * Refuse a limit that no plan keeps. Every plan holds the source and the target at once, and the
 * target before and after a partition; the direct plan holds nothing else.
 */
static sherd_status check_bytes(const sherd__problem *problem, const sherd__priced *direct,
                                const sherd__priced *parting)
{
    sherd__priced steps[2];
    sherd__chain chain;
    int count = 0;

    if (problem->request->max_bytes == 0)
        return SHERD_OK;
    if (direct)
        steps[count++] = *direct;
    if (parting)
        steps[count++] = *parting;
    sherd_status status = sherd__chain_find(&chain, problem, steps, count);
    if (status == SHERD_OK && chain.peak > problem->request->max_bytes)
        return sherd__fail(problem->space->diag, SHERD_ELIMIT,
                           "%s: from %s to %s: no plan keeps within max_bytes %lld: the source and "
                           "the target of the fullest rank have %lld bytes",
                           function, problem->from->text, problem->to->text,
                           (long long)problem->request->max_bytes, (long long)chain.peak);
    return status;
}

/* ---- one search ------------------------------------------------------------------------------ */

typedef struct best {
    sherd__path path;
    sherd__cost cost; /* of all but the partition */
    bool known;
    bool searched;            /* found by the search: its steps are priced over some ranks only */
    int number[SHERD__STOPS]; /* if so: the numbers of its nodes */
} best;

static void take(best *b, const sherd__path *path, sherd__cost cost)
{
    if (b->known && sherd__cost_compare(cost, b->cost) >= 0)
        return;
    b->path = *path;
    b->cost = cost;
    b->known = true;
    b->searched = false;
}

static sherd__cost cost_of(const sherd__priced *step)
{
    return (sherd__cost){step->step.picoseconds, step->step.recv_total_bytes, 1};
}

/* Price a path step by step; *allowed is false if the options rule a step out. */
static sherd_status price_path(sherd__cost *out, bool *allowed, const sherd__problem *problem,
                               const sherd__path *path)
{
    sherd__priced step;

    *out = (sherd__cost){0, 0, 0};
    *allowed = true;
    for (int i = 1; i < path->stops; i++) {
        sherd_status status = sherd__step_price(&step, problem, path->at[i - 1], path->at[i]);
        if (status != SHERD_OK)
            return status;
        *allowed = *allowed && sherd__step_allowed(problem, &step);
        *out = sherd__cost_add(*out, cost_of(&step));
    }
    return SHERD_OK;
}

typedef sherd_status planner_fn(sherd__answer *answer, const sherd__problem *problem);

/* The search was cut off: take the plan of another planner if that is better. */
static sherd_status try_other(best *b, const sherd__problem *problem, const sherd_layout *goal,
                              planner_fn *find)
{
    sherd__problem plain = *problem;
    sherd__answer answer = {.cost = 0};
    sherd__cost cost;
    bool allowed = false;

    plain.to = goal;
    push(&answer.path, problem->from);
    sherd_status status = find(&answer, &plain);
    if (status != SHERD_OK)
        return status == SHERD_ENOMEM ? status : SHERD_OK;
    if (answer.path.at[answer.path.stops - 1] != goal)
        push(&answer.path, goal);
    status = price_path(&cost, &allowed, problem, &answer.path);
    if (status == SHERD_OK && allowed)
        take(b, &answer.path, cost);
    return status;
}

static sherd_status path_of(sherd__path *path, const sherd__field *field, const sherd__route *route)
{
    sherd_status status = SHERD_OK;

    path->stops = 0;
    push(path, field->problem->from);
    for (int i = 1; i + 1 < route->stops && status == SHERD_OK; i++) {
        const sherd_layout *layout;
        sherd__state state;
        sherd__field_state(&state, field, route->stop[i]);
        status = sherd__state_layout(&layout, &state, field->problem->from, field->other);
        if (status == SHERD_OK)
            push(path, layout);
    }
    push(path, field->goal);
    return status;
}

/* What the steps of a route cost; *allowed is false if the options rule one out. */
static sherd_status price_route(sherd__cost *cost, bool *allowed, const sherd__field *field,
                                const sherd__route *route)
{
    sherd_status status = SHERD_OK;
    bool good = true;
    sherd__edge edge;

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
static sherd_status keep_between(sherd__meeting *meeting, sherd__cost *limit, sherd__field *field)
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

/* From the goal to all nodes; if they are many, only to those that are of use. */
static sherd_status find_left(sherd__route *route, sherd__cost *limit, sherd__field *field)
{
    enum { MANY = 112 };
    sherd__meeting meeting;

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
static sherd_status take_route(best *b, const sherd__field *field, const sherd__route *route)
{
    sherd__path path;

    sherd_status status = path_of(&path, field, route);
    if (status != SHERD_OK)
        return status;
    b->known = b->known && sherd__cost_compare(route->cost, b->cost) > 0;
    take(b, &path, route->cost);
    b->searched = true;
    for (int i = 0; i < route->stops; i++)
        b->number[i] = field->node[route->stop[i]].number;
    return SHERD_OK;
}

/* The cheapest route through the first field->nodes nodes. */
static sherd_status find_route(best *b, bool *complete, sherd__field *field, bool links)
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
 * bounds allow a plan as good.
 */
static sherd_status find_route_of_links(best *b, bool *complete, sherd__field *field)
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
static sherd_status price_all(best *b, bool *kept, sherd__field *field)
{
    sherd_status status = SHERD_OK;
    sherd__edge edge;
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
static sherd_status find_sure_route(best *b, bool *complete, sherd__field *field)
{
    sherd_status status = SHERD_OK;
    bool sure = false, kept = true;
    int64_t pairs = 0;

    sherd__links_pairs(field);
    if (!field->across)
        sherd__bound_fill(field);
    if (b->known) /* the direct step */
        sherd__edge_note(field, SHERD__SOURCE, SHERD__GOAL, true, b->cost);
    while (status == SHERD_OK && !sure && kept) {
        best found = *b;
        status = field->across ? find_route(&found, complete, field, false)
                               : find_route_of_links(&found, complete, field);
        sherd__cost cost = found.cost;
        if (status == SHERD_OK && found.searched)
            status = price_all(&found, &kept, field);
        sure = !found.searched || sherd__cost_compare(found.cost, cost) <= 0;
        if (status == SHERD_OK && found.known && sure)
            *b = found;
        else if (status == SHERD_OK && found.known)
            take(b, &found.path, found.cost);
        pairs += (int64_t)field->nodes * field->nodes;
        kept = kept && *complete && pairs < field->effort->pairs;
        *complete = *complete && (sure || kept);
    }
    b->searched = false;
    return status;
}

/*
 * Whether no plan is cheaper than what a search has found that was cut off: others take longer than
 * the least that a plan beside the direct step takes, receive more than the least that any receives,
 * or have more than one step, as all but the direct one, which is known.
 */
static bool is_least(const best *b, const sherd__field *field, sherd__cost least)
{
    return b->known && field->arena_only && b->cost.picoseconds <= least.picoseconds &&
           b->cost.bytes <= least.bytes && b->cost.steps <= 2;
}

static sherd_status search(best *b, bool *proven, sherd__field *field, int64_t least_bytes)
{
    bool links = field->price == &sherd__price_links;
    int64_t beside = field->arena_only ? sherd__least_beside_direct(field) : 0;

    sherd_status status = sherd__field_fill(field);
    if (status == SHERD_OK && !field->all_states)
        status = sherd__field_choose(field);
    if (status == SHERD_OK)
        status = links ? find_sure_route(b, proven, field) : find_route(b, proven, field, false);
    if (status == SHERD_OK && !*proven) {
        if (!field->across)
            status = try_other(b, field->problem, field->goal, sherd__greedy_find);
        if (links && field->all_states && !field->across && status == SHERD_OK)
            status = try_other(b, field->problem, field->goal, sherd__graph_find);
        *proven = is_least(b, field, (sherd__cost){beside, least_bytes, 2});
    }
    sherd__field_clear(field);
    return status;
}

/* ---- the planner ----------------------------------------------------------------------------- */

/* Whether nothing can be better than the direct step, by what is known without a search. */
static bool direct_is_best(const sherd__field *field, const sherd__priced *direct)
{
    int64_t time = direct->step.picoseconds;

    if (field->problem->request->forbidden)
        return false;
    if (field->elements == 0)
        return true;
    if (field->reduced == 0) {
        if (field->price == &sherd__price_arena)
            return true;
        return time == 0 ||
               (direct->amounts.receive_total > 0 &&
                time <= field->price->floor(field->problem, direct->amounts.target_max, 1));
    }
    return field->price == &sherd__price_arena && time < sherd__least_beside_direct(field);
}

static sherd_status find_path(sherd__answer *out, const sherd__problem *problem,
                              const sherd_layout *goal, const sherd__effort *effort)
{
    best b = {.known = false};
    sherd__path path = {.stops = 0};
    sherd__field field;

    push(&path, problem->from);
    push(&path, goal);
    if (sherd__step_allowed(problem, &out->direct))
        take(&b, &path, cost_of(&out->direct));
    sherd__field_start(&field, problem, goal);
    field.effort = effort;
    out->proven = b.known && direct_is_best(&field, &out->direct);
    int64_t least_bytes = sherd__mul_cut(out->direct.amounts.bound_total, field.bytes);
    sherd_status status = out->proven ? SHERD_OK : search(&b, &out->proven, &field, least_bytes);
    if (status == SHERD_OK && !b.known)
        status = fail_limits(problem);
    out->path = b.path;
    out->picoseconds = b.cost.picoseconds;
    return status;
}

sherd_status sherd__exact_find_within(sherd__answer *out, const sherd__problem *problem,
                                      const sherd__effort *effort)
{
    sherd__priced parting;
    const sherd_layout *goal;
    bool moves, parts;

    sherd_status status = before_partition(&goal, problem);
    if (status != SHERD_OK)
        return status;
    moves = goal != problem->from;
    parts = goal != problem->to;
    out->proven = !moves;
    out->has_direct = moves && !parts;
    if (moves)
        status = sherd__step_price(&out->direct, problem, problem->from, goal);
    if (status == SHERD_OK && parts)
        status = sherd__step_price(&parting, problem, goal, problem->to);
    if (status == SHERD_OK)
        status = check_bytes(problem, moves ? &out->direct : NULL, parts ? &parting : NULL);
    if (status == SHERD_OK && moves)
        status = find_path(out, problem, goal, effort);
    if (status != SHERD_OK || !parts)
        return status;
    if (!sherd__step_allowed(problem, &parting))
        return fail_limits(problem);
    push(&out->path, problem->to);
    out->picoseconds = sherd__add_cut(out->picoseconds, parting.step.picoseconds);
    return SHERD_OK;
}

sherd_status sherd__exact_find(sherd__answer *out, const sherd__problem *problem)
{
    return sherd__exact_find_within(out, problem, &sherd__effort_usual);
}
