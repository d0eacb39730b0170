/* SPDX-License-Identifier: Apache-2.0 */
/* Making a plan: what may be asked for, the one direct step, its price and this rank's schedule. */
#include "inside.h"
#include "base/hash.h"
#include "base/num.h"
#include "base/text.h"

#include <string.h>

static sherd_status check(const sherd_layout *from, const sherd_layout *to, size_t element_bytes)
{
    static const char function[] = "sherd_plan_create";
    const sherd__layout_spec *a = &from->spec, *b = &to->spec;
    sherd__diag *diag = from->space->diag;
    bool same = a->ndim == b->ndim;

    if (element_bytes == 0)
        return sherd__fail(diag, SHERD_EINVAL, "%s: the dtype is none", function);
    if (a->mesh != b->mesh)
        return sherd__fail(diag, SHERD_EINVAL, "%s: meshes differ: from %s to %s", function,
                           from->text, to->text);
    for (int d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d];
    if (!same)
        return sherd__fail(diag, SHERD_EINVAL, "%s: shapes differ: from %s to %s", function,
                           from->text, to->text);
    for (int i = 0; i < a->mesh->axes; i++)
        if (b->pending[i] >= 0 && b->pending[i] != a->pending[i])
            return sherd__fail(diag, SHERD_EINVAL,
                               "%s: from %s to %s: a plan makes no pending reduction, and on axis "
                               "%s only `to` has this one",
                               function, from->text, to->text, a->mesh->name[i]);
    return SHERD_OK;
}

/* "[8(x),4] -> [8,4(x)] on (x=2)": the mesh once. */
static void write_what(sherd_plan *plan)
{
    const char *from = plan->from->text, *mesh = strstr(from, " on (");
    sherd__writer w = {plan->what, sizeof plan->what, 0};

    sherd__write(&w, "%.*s -> %s", (int)sherd__min(mesh ? mesh - from : 0, 90), from,
                 plan->to->text);
}

void sherd__plan_destroy(sherd_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; plan->mine && i < plan->steps; i++)
        sherd__schedule_destroy(plan->space, plan->mine[i]);
    sherd__free(plan->space->heap, plan->mine);
    sherd__free(plan->space->heap, plan->step);
    sherd__free(plan->space->heap, plan);
}

/* The step, its price and schedule; the plan is destroyed by the caller on failure. */
static sherd_status fill(sherd_plan *plan)
{
    sherd__space *space = plan->space;
    sherd__change change;
    sherd__amounts amounts;

    sherd__change_find(&change, plan->from, plan->to);
    sherd_status status = sherd__amounts_find(&amounts, space, &change, plan->from->spec.shape);
    if (status != SHERD_OK)
        return status;
    if (plan->from == plan->to) {
        plan->price.peak_bytes = sherd__mul_cut(amounts.source_max, (int64_t)plan->element_bytes);
        plan->price.bound_max_bytes = 0;
        return SHERD_OK;
    }
    plan->step = sherd__alloc(space->heap, 1, sizeof *plan->step);
    plan->mine = sherd__alloc(space->heap, 1, sizeof *plan->mine);
    if (!plan->step || !plan->mine)
        return sherd__no_memory(space->diag, "sherd_plan_create");
    plan->steps = 1;
    plan->step->from = plan->from;
    plan->step->to = plan->to;
    sherd__step_choose(plan->step, &plan->price, &change, &amounts, plan->element_bytes);
    if (space->rank < 0)
        return SHERD_OK;
    return sherd__schedule_create(&plan->mine[0], space, plan->step, plan->element_bytes,
                                  space->rank);
}

sherd_status sherd__plan_make(sherd_plan **out, const sherd_layout *from, const sherd_layout *to,
                              size_t element_bytes)
{
    sherd__space *space = from->space;

    *out = NULL;
    sherd_status status = check(from, to, element_bytes);
    if (status != SHERD_OK)
        return status;
    sherd_plan *plan = sherd__alloc(space->heap, 1, sizeof *plan);
    if (!plan)
        return sherd__no_memory(space->diag, "sherd_plan_create");
    plan->refs = 1;
    plan->space = space;
    plan->from = from;
    plan->to = to;
    plan->element_bytes = element_bytes;
    plan->fingerprint = sherd__hash_word(0x706c616e, element_bytes);
    plan->fingerprint = sherd__hash_word(plan->fingerprint, from->hash);
    plan->fingerprint = sherd__hash_word(plan->fingerprint, to->hash);
    write_what(plan);
    status = fill(plan);
    if (status != SHERD_OK) {
        sherd__plan_destroy(plan);
        return status;
    }
    *out = plan;
    return SHERD_OK;
}

int sherd_plan_steps(const sherd_plan *plan)
{
    return plan->steps;
}

const sherd_step *sherd_plan_step(const sherd_plan *plan, int i)
{
    return i >= 0 && i < plan->steps ? &plan->step[i] : NULL;
}

const sherd_plan_price *sherd_plan_price_of(const sherd_plan *plan)
{
    return &plan->price;
}

const char *sherd_step_kind_name(sherd_step_kind kind)
{
    static const char *const names[] = {"slice", "exchange", "reduce_exchange", "all_reduce"};

    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}
