/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a plan: checking the request, running the planner, and from its path the steps with their
 * prices, the totals, the trace and this rank's schedules.
 */
#include "plan/sends.h"
#include "plan/window.h"
#include "planners.h"
#include "base/hash.h"
#include "base/num.h"
#include "base/text.h"
#include "layout/shape.h"

#include <string.h>

static const char function[] = "sherd_plan_create";

/* ---- what may be asked for ------------------------------------------------------------------- */

/* A pending reduction in the target is the same one in the source, or comes of a replica. */
static sherd_status check_pending(const sherd_layout *from, const sherd_layout *to)
{
    const sherd__layout_spec *a = &from->spec, *b = &to->spec;

    if (a->mesh != b->mesh && to->pending_axes)
        return sherd__fail(from->space->diag, SHERD_EINVAL,
                           "%s: from %s to %s: a pending reduction does not go to another mesh: "
                           "replicate or shard it there",
                           function, from->text, to->text);
    for (int i = 0; a->mesh == b->mesh && i < a->mesh->axes; i++)
        if (b->pending[i] >= 0 && b->pending[i] != a->pending[i] &&
            (a->pending[i] >= 0 || from->shard_axes >> i & 1))
            return sherd__fail(from->space->diag, SHERD_EINVAL,
                               "%s: from %s to %s: on axis %s `to` has a pending reduction that "
                               "`from` has not; only a replicated axis can become pending",
                               function, from->text, to->text, a->mesh->name[i]);
    return SHERD_OK;
}

static sherd_status check(const sherd_layout *from, const sherd_layout *to, size_t element_bytes)
{
    sherd__diag *diag = from->space->diag;

    if (element_bytes == 0)
        return sherd__fail(diag, SHERD_EINVAL, "%s: the dtype is not one of sherd_dtype", function);
    if (from->space != to->space)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %s and %s belong to two worlds", function,
                           from->text, to->text);
    if (!sherd__same_shape(from->spec.ndim, from->spec.shape, to->spec.ndim, to->spec.shape))
        return sherd__fail(diag, SHERD_EINVAL, "%s: shapes differ: from %s to %s", function,
                           from->text, to->text);
    return check_pending(from, to);
}

/* ---- from a path to a plan ------------------------------------------------------------------- */

/* "[8(x),4] -> [8,4(x)] on (x=2)": one mesh once. */
static void write_what(sherd_plan *plan)
{
    const char *from = plan->from->text;
    const char *mesh = plan->from->spec.mesh == plan->to->spec.mesh ? strstr(from, " on (") : NULL;
    sherd__writer w = {plan->what, sizeof plan->what, 0};

    sherd__write(&w, "%.*s -> %s", (int)sherd__min(mesh ? mesh - from : 90, 90), from,
                 plan->to->text);
}

/* The bound: what a direct move receives without a reduction, the proven formula with one. */
static void take_bound(sherd_plan *plan, const sherd__priced *direct)
{
    int64_t bytes = (int64_t)plan->element_bytes;
    const sherd__change *change = &direct->change;

    plan->price.bound_total_bytes = sherd__mul_cut(direct->amounts.bound_total, bytes);
    plan->price.bound_max_bytes = change->reduced | change->pending | change->parted
                                      ? -1
                                      : sherd__mul_cut(direct->amounts.receive_max, bytes);
}

/* All steps of a path by some ranks; false: they take longer together than that says. */
static bool some_say(const sherd__priced *steps, int count, int64_t picoseconds)
{
    int64_t sum = 0;

    for (int i = 0; i < count; i++)
        sum = sherd__add_cut(sum, steps[i].step.picoseconds);
    return sum == picoseconds;
}

/*
 * Price the steps of a path; a planner that priced the direct one need not do it again. Some ranks
 * say no more than all of them: if the sum is right, so is each.
 */
static sherd_status price_steps(sherd__priced *steps, sherd_plan *plan,
                                const sherd__problem *problem, sherd__answer *answer)
{
    const sherd__path *path = &answer->path;
    sherd_status status = SHERD_OK;
    bool some = answer->picoseconds > 0;

    if (!answer->has_direct)
        status = sherd__step_price(&answer->direct, problem, plan->from, plan->to);
    if (status == SHERD_OK)
        take_bound(plan, &answer->direct);
    plan->steps = path->stops - 1;
    if (plan->steps == 1)
        steps[0] = answer->direct;
    for (int i = 0; plan->steps > 1 && i < plan->steps && status == SHERD_OK; i++)
        status = sherd__step_price_of(&steps[i], problem, path->at[i], path->at[i + 1], some);
    if (plan->steps == 1 || !some || some_say(steps, plan->steps, answer->picoseconds))
        return status;
    for (int i = 0; i < plan->steps && status == SHERD_OK; i++)
        status = sherd__step_price(&steps[i], problem, path->at[i], path->at[i + 1]);
    return status;
}

static sherd_status add_up(sherd_plan *plan, const sherd__problem *problem,
                           const sherd__priced *steps)
{
    sherd__chain chain;

    sherd_status status = sherd__chain_find(&chain, problem, steps, plan->steps);
    if (status != SHERD_OK)
        return status;
    for (int i = 0; i < plan->steps; i++) {
        plan->step[i] = steps[i].step;
        sherd_layout_retain(plan->step[i].from);
        sherd_layout_retain(plan->step[i].to);
        plan->price.picoseconds =
            sherd__add_cut(plan->price.picoseconds, steps[i].step.picoseconds);
        plan->price.recv_total_bytes =
            sherd__add_cut(plan->price.recv_total_bytes, steps[i].step.recv_total_bytes);
        plan->price.rounds += steps[i].rounds;
    }
    plan->price.recv_max_bytes = chain.receive_max;
    plan->price.send_max_bytes = chain.send_max;
    plan->price.peak_bytes = chain.peak;
    return SHERD_OK;
}

/* Steps between the stops of the path; where its end has other cuts than the target, one more. */
static sherd_status take_path(sherd_plan *plan, const sherd__problem *problem,
                              sherd__answer *answer)
{
    sherd__path *path = &answer->path;
    sherd__heap *heap = plan->space->heap;
    sherd_status status = SHERD_OK;

    sherd__assert(-1, path->stops < SHERD__STOPS);
    if (path->at[path->stops - 1] != plan->to) {
        path->merged[path->stops] = false;
        path->at[path->stops++] = plan->to;
    }
    sherd__priced *steps = sherd__alloc(heap, (size_t)path->stops, sizeof *steps);
    plan->step = sherd__alloc(heap, (size_t)path->stops, sizeof *plan->step);
    plan->mine = sherd__alloc(heap, (size_t)path->stops, sizeof(sherd__schedule *));
    plan->trace = sherd__written(heap, sherd__path_write, path);
    if (!steps || !plan->step || !plan->mine || !plan->trace)
        status = sherd__no_memory(plan->space->diag, function);
    if (status == SHERD_OK)
        status = price_steps(steps, plan, problem, answer);
    if (status == SHERD_OK)
        status = add_up(plan, problem, steps);
    for (int i = 0; i < plan->steps && status == SHERD_OK && plan->space->rank >= 0; i++)
        status = sherd__schedule_create(&plan->mine[i], plan->space, &plan->step[i],
                                        plan->element_bytes, plan->space->rank);
    sherd__free(heap, steps);
    return status;
}

/* ---- making it ------------------------------------------------------------------------------- */

static bool in_mesh_order(const sherd_layout *layout)
{
    for (int d = 0; d < layout->spec.ndim; d++)
        for (int i = 1; i < layout->spec.dim[d].axes; i++)
            if (layout->spec.dim[d].axis[i - 1] > layout->spec.dim[d].axis[i])
                return false;
    return true;
}

static sherd_planner chosen(const sherd__problem *problem)
{
    if (problem->request->planner != SHERD_PLANNER_TORCH)
        return problem->request->planner;
    return in_mesh_order(problem->from) && in_mesh_order(problem->to) ? SHERD_PLANNER_GREEDY
                                                                      : SHERD_PLANNER_GRAPH;
}

static sherd_status search(sherd__answer *answer, sherd_planner planner,
                           const sherd__problem *problem)
{
    answer->path.stops = 1;
    answer->path.at[0] = problem->from;
    if (problem->from == problem->to && planner != SHERD_PLANNER_EXACT)
        return SHERD_OK;
    switch (planner) {
    case SHERD_PLANNER_GREEDY:
        return sherd__greedy_find(answer, problem);
    case SHERD_PLANNER_GRAPH:
        return sherd__graph_find(answer, problem);
    default:
        return sherd__exact_find(answer, problem);
    }
}

static sherd_status fill(sherd_plan *plan)
{
    const sherd__problem problem =
        sherd__problem_of(plan->space, plan->from, plan->to, plan->element_bytes, &plan->request);
    sherd__answer answer = {.cost = 0};

    plan->planner = chosen(&problem);
    sherd_status status = search(&answer, plan->planner, &problem);
    if (status == SHERD_OK)
        status = take_path(plan, &problem, &answer);
    plan->price.proven = answer.proven;
    plan->cost =
        plan->planner == SHERD_PLANNER_EXACT ? (double)plan->price.picoseconds / 1e12 : answer.cost;
    return status;
}

static uint64_t fingerprint_of(const sherd_plan *plan)
{
    uint64_t hash = sherd__hash_word(0x706c616e, plan->element_bytes);

    hash = sherd__hash_word(hash, plan->from->hash);
    hash = sherd__hash_word(hash, plan->to->hash);
    return sherd__hash_word(hash, plan->request_hash);
}

sherd_status sherd__plan_make(sherd_plan **out, const sherd_layout *from, const sherd_layout *to,
                              size_t element_bytes, const sherd__request *request)
{
    sherd__space *space = from->space;

    *out = NULL;
    sherd_status status = check(from, to, element_bytes);
    if (status != SHERD_OK)
        return status;
    sherd_plan *plan = sherd__alloc(space->heap, 1, sizeof *plan);
    if (!plan)
        return sherd__no_memory(space->diag, function);
    plan->refs = 1;
    plan->space = space;
    plan->from = sherd_layout_retain(from);
    plan->to = sherd_layout_retain(to);
    plan->element_bytes = element_bytes;
    plan->request = *request;
    plan->request_hash = sherd__request_hash(request);
    plan->fingerprint = fingerprint_of(plan);
    write_what(plan);
    int mark = sherd__layouts_mark(space);
    status = fill(plan);
    sherd__layouts_cut(space, mark); /* what was only looked at; the plan counts its own */
    if (status != SHERD_OK) {
        sherd__plan_destroy(plan);
        return status;
    }
    *out = plan;
    return SHERD_OK;
}

void sherd__plan_destroy(sherd_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; plan->mine && i < plan->steps; i++)
        sherd__schedule_destroy(plan->space, plan->mine[i]);
    for (int i = 0; plan->sends && i < plan->steps; i++)
        sherd__sends_destroy(plan->space, plan->sends[i]);
    for (int i = 0; plan->step && i < plan->steps; i++) {
        sherd_layout_release(plan->step[i].from);
        sherd_layout_release(plan->step[i].to);
    }
    sherd__window_release(plan->window);
    sherd_layout_release(plan->from);
    sherd_layout_release(plan->to);
    sherd__free(plan->space->heap, plan->mine);
    sherd__free(plan->space->heap, plan->sends);
    sherd__free(plan->space->heap, plan->step);
    sherd__free(plan->space->heap, plan->trace);
    sherd__free(plan->space->heap, plan);
}

int sherd_plan_steps(const sherd_plan *plan)
{
    return plan ? plan->steps : 0;
}

const sherd_step *sherd_plan_step(const sherd_plan *plan, int i)
{
    return i >= 0 && i < sherd_plan_steps(plan) ? &plan->step[i] : NULL;
}

const sherd_plan_price *sherd_plan_price_of(const sherd_plan *plan)
{
    return plan ? &plan->price : NULL;
}

sherd_planner sherd_plan_planner(const sherd_plan *plan)
{
    return plan ? plan->planner : SHERD_PLANNER_EXACT;
}

double sherd_plan_cost(const sherd_plan *plan)
{
    return plan ? plan->cost : 0;
}

const char *sherd_plan_trace(const sherd_plan *plan)
{
    return plan ? plan->trace : "";
}
