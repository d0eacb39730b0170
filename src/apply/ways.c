/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that list the possible layouts of operands and results themselves, where no index
 * string can express them: a reshape, a slice of a sharded dim. Each way is priced by what the
 * busiest rank receives, then by what the fullest one holds; the first one wins a tie. Runs once
 * for each new set of layouts and attributes.
 */
#include "solve.h"

#include <string.h>

#include "base/saturate.h"
#include "layout/shape.h"

enum { MOST_WAYS = 64 };

struct sherd_ways {
    const sherd__run *run;
    const sherd_layout *const *operands;
    const sherd_mesh *mesh; /* of them all */
    sherd__placing *best;
    int count;
    int64_t bytes, elements; /* of the best */
};

static sherd_status refuse(const sherd_ways *w, const sherd_layout *layout, const char *what, int i)
{
    const sherd_call *call = &w->run->call;

    return sherd__fail(sherd__world_diag(call->world), SHERD_EINVAL,
                       "%s: sherd_way_add: the layout of %s %d is %s", call->op->name, what, i,
                       layout ? "of another mesh or shape" : "missing");
}

static bool is_operand(const sherd_ways *w, const sherd_layout *layout, int i)
{
    const sherd_layout *given = w->operands[i];

    if (!layout || !given)
        return layout == given;
    return layout->spec.mesh == given->spec.mesh &&
           sherd__same_shape(layout->spec.ndim, layout->spec.shape, given->spec.ndim,
                             given->spec.shape);
}

/* Its shape is what describe has set, or by the rule. */
static bool is_result(const sherd_ways *w, const sherd_layout *layout, int j)
{
    const sherd_call *call = &w->run->call;
    int ndim = call->ndim[j] >= 0 ? call->ndim[j] : (int)strlen(w->run->rule.result[j]);

    return layout && layout->spec.mesh == w->mesh &&
           sherd__same_shape(layout->spec.ndim, layout->spec.shape, ndim, call->shape[j]);
}

static int64_t elements_of(int count, const sherd_layout *const *layouts)
{
    int64_t n = 0;

    for (int i = 0; i < count; i++)
        n = sherd__plus(n, layouts[i] ? sherd__layout_largest(layouts[i]) : 0);
    return n;
}

sherd_status sherd_way_add(sherd_ways *ways, const sherd_layout *const *operands,
                           const sherd_layout *const *results)
{
    return !ways || !operands || !results ? SHERD_EINVAL
                                          : sherd__way_add(ways, operands, results, 0);
}

sherd_status sherd__way_as_given(sherd_ways *ways, const sherd_layout *const *results)
{
    return sherd__way_add(ways, ways->operands, results, 0);
}

sherd_status sherd__way_add(sherd_ways *ways, const sherd_layout *const *operands,
                            const sherd_layout *const *results, int64_t more)
{
    sherd_status status = SHERD_OK;
    int64_t bytes = 0, elements;
    const sherd_call *call = &ways->run->call;
    if (ways->count == MOST_WAYS)
        return sherd__fail(sherd__world_diag(call->world), SHERD_ELIMIT,
                           "%s: sherd_way_add: more than %d ways", call->op->name, MOST_WAYS);
    for (int i = 0; i < call->operands && !status; i++)
        if (!is_operand(ways, operands[i], i))
            status = refuse(ways, operands[i], "operand", i);
    for (int j = 0; j < call->results && !status; j++)
        if (!is_result(ways, results[j], j))
            status = refuse(ways, results[j], "result", j);
    if (!status)
        status = sherd__price_moves(&bytes, call->operands, ways->operands, operands);
    if (status)
        return status;
    bytes = sherd__plus(bytes, more);
    elements =
        sherd__plus(elements_of(call->operands, operands), elements_of(call->results, results));
    if (ways->count++ &&
        (bytes > ways->bytes || (bytes == ways->bytes && elements >= ways->elements)))
        return SHERD_OK;
    ways->bytes = bytes;
    ways->elements = elements;
    memcpy(ways->best->operand, operands, (size_t)call->operands * sizeof *operands);
    memcpy(ways->best->result, results, (size_t)call->results * sizeof *results);
    return SHERD_OK;
}

const sherd_layout *sherd__way_given(const sherd_ways *ways, int i)
{
    return ways->operands[i];
}

sherd_status sherd__choose_way(sherd__placing *placing, const sherd__run *run,
                               const sherd_layout *const *operands, bool *chosen)
{
    sherd_ways ways = {.run = run, .operands = operands, .best = placing};
    sherd__run asked = *run;
    const sherd_op *op = run->call.op;
    sherd_world *world = run->call.world;

    for (int i = 0; i < run->call.operands && !ways.mesh; i++)
        ways.mesh = operands[i] ? operands[i]->spec.mesh : NULL;
    /* Operands as the solver sees them: plain ones are replicated. */
    memcpy(asked.call.in, run->arg, (size_t)run->call.operands * sizeof *run->arg);
    sherd__diag *diag = sherd__world_diag(world);
    diag->status = SHERD_OK;
    int floor = sherd__scope_fence(world);
    sherd_status status = op->ways(&asked.call, &ways);
    sherd__scope_leave(world, floor);
    *chosen = ways.count > 0;
    if (status && diag->status != status)
        status = sherd__fail(diag, status < 0 && status >= SHERD_ELIMIT ? status : SHERD_EINVAL,
                             "%s: its ways returned %d (%s)", op->name, (int)status,
                             sherd_status_name(status));
    if (!status && !*chosen && !run->compiled)
        status = sherd__fail(diag, SHERD_EINVAL, "%s: there is no way for these operands to lie",
                             op->name);
    return status;
}
