/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that list the possible layouts of operands and results themselves, where no index
 * string can express them: a reshape, a slice of a sharded dim. Each way is priced by what the
 * busiest rank receives, then by what the fullest one holds; the first one wins a tie. Runs once
 * for each new set of layouts and attributes.
 */
#include "solve.h"

#include <string.h>

enum { MOST_WAYS = 64 };

struct sherd_ways {
    const sherd__run *run;
    const sherd_layout *const *operands;
    sherd__placing *best;
    int count;
    int64_t bytes, elements; /* of the best */
};

static sherd_status check(const sherd_ways *w, const sherd_layout *layout, bool there, int i,
                          const char *what)
{
    const sherd_call *call = &w->run->call;
    const sherd_layout *given = what ? NULL : w->operands[i];

    if ((layout != NULL) == there &&
        (!given || !layout ||
         (layout->spec.mesh == given->spec.mesh && layout->spec.ndim == given->spec.ndim &&
          memcmp(layout->spec.shape, given->spec.shape,
                 (size_t)given->spec.ndim * sizeof *given->spec.shape) == 0)))
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(call->world), SHERD_EINVAL,
                       "%s: sherd_way_add: the layout of %s %d is %s", call->op->name,
                       what ? what : "operand", i, layout ? "of another mesh or shape" : "missing");
}

static int64_t elements_of(int count, const sherd_layout *const *layouts)
{
    int64_t n = 0;

    for (int i = 0; i < count; i++)
        n += layouts[i] ? sherd__layout_largest(layouts[i]) : 0;
    return n;
}

sherd_status sherd_way_add(sherd_ways *ways, const sherd_layout *const *operands,
                           const sherd_layout *const *results)
{
    sherd_status status = SHERD_OK;
    int64_t bytes = 0, elements;

    if (!ways || !operands || !results)
        return SHERD_EINVAL;
    const sherd_call *call = &ways->run->call;
    if (ways->count == MOST_WAYS)
        return sherd__fail(sherd__world_diag(call->world), SHERD_ELIMIT,
                           "%s: sherd_way_add: more than %d ways", call->op->name, MOST_WAYS);
    for (int i = 0; i < call->operands && !status; i++)
        status = check(ways, operands[i], ways->operands[i] != NULL, i, NULL);
    for (int j = 0; j < call->results && !status; j++)
        status = check(ways, results[j], true, j, "result");
    if (!status)
        status = sherd__price_moves(&bytes, call->operands, ways->operands, operands);
    if (status)
        return status;
    elements = elements_of(call->operands, operands) + elements_of(call->results, results);
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
    sherd_call call = run->call;
    const sherd_op *op = run->call.op;

    /* Operands as the solver sees them: plain ones are replicated. */
    memcpy(call.in, run->arg, (size_t)call.operands * sizeof *call.in);
    sherd__diag *diag = sherd__world_diag(call.world);
    diag->status = SHERD_OK;
    sherd_status status = op->ways(&call, &ways);
    *chosen = ways.count > 0;
    if (status && diag->status != status)
        status = sherd__fail(diag, SHERD_EINVAL, "%s: its ways returned %d (%s)", op->name,
                             (int)status, sherd_status_name(status));
    if (!status && !*chosen && !run->compiled)
        status = sherd__fail(diag, SHERD_EINVAL, "%s: there is no way for these operands to lie",
                             op->name);
    return status;
}
