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
 * all of them (routes.c).
 *
 * A replica becomes pending in a step of its own, the last one. Between two meshes the last step
 * goes to the other mesh, from any state of the source's mesh.
 */
#include "routes.h"

static const char function[] = "sherd_plan_create";

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
static sherd_status try_other(sherd__best *b, const sherd__problem *problem,
                              const sherd_layout *goal, planner_fn *find)
{
    sherd__problem plain = *problem;
    sherd__answer answer = {.cost = 0};
    sherd__cost cost;
    bool allowed = false;

    plain.to = goal;
    sherd__path_push(&answer.path, problem->from);
    sherd_status status = find(&answer, &plain);
    if (status != SHERD_OK)
        return status == SHERD_ENOMEM ? status : SHERD_OK;
    if (answer.path.at[answer.path.stops - 1] != goal)
        sherd__path_push(&answer.path, goal);
    status = price_path(&cost, &allowed, problem, &answer.path);
    if (status == SHERD_OK && allowed)
        sherd__best_take(b, &answer.path, cost);
    return status;
}

/*
 * Whether no plan is cheaper than what a search has found that was cut off: it takes no longer than
 * the least that a plan beside the direct step takes, receives no more than the least that any
 * receives, and has no more steps than any but the direct one, which is known.
 */
static bool is_least(const sherd__best *b, const sherd__field *field, sherd__cost least)
{
    return b->known && field->arena_only && b->cost.picoseconds <= least.picoseconds &&
           b->cost.bytes <= least.bytes && b->cost.steps <= 2;
}

static sherd_status search(sherd__best *b, bool *proven, sherd__field *field, int64_t least_bytes)
{
    int64_t beside = field->arena_only ? sherd__least_beside_direct(field) : 0;

    sherd_status status = sherd__field_fill(field);
    if (status == SHERD_OK && !field->all_states)
        status = sherd__field_choose(field);
    if (status == SHERD_OK)
        status = sherd__routes_find(b, proven, field);
    if (status == SHERD_OK && !*proven) {
        if (!field->across)
            status = try_other(b, field->problem, field->goal, sherd__greedy_find);
        if (field->all_states && !field->across && status == SHERD_OK)
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
    sherd__best b = {.known = false};
    sherd__path path = {.stops = 0};
    sherd__field field;

    sherd__path_push(&path, problem->from);
    sherd__path_push(&path, goal);
    if (sherd__step_allowed(problem, &out->direct))
        sherd__best_take(&b, &path, cost_of(&out->direct));
    sherd__field_start(&field, problem, goal);
    field.effort = effort;
    out->proven = b.known && direct_is_best(&field, &out->direct);
    int64_t least_bytes = sherd__mul_cut(out->direct.amounts.bound_total, field.bytes);
    sherd_status status = out->proven ? SHERD_OK : search(&b, &out->proven, &field, least_bytes);
    /* times that are cut off are told apart no more */
    out->proven = out->proven && b.cost.picoseconds < SHERD__MOST;
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
    sherd__path_push(&out->path, problem->to);
    out->picoseconds = sherd__add_cut(out->picoseconds, parting.step.picoseconds);
    return SHERD_OK;
}

sherd_status sherd__exact_find(sherd__answer *out, const sherd__problem *problem)
{
    return sherd__exact_find_within(out, problem, &sherd__effort_usual);
}
