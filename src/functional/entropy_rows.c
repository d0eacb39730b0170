/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a cross-entropy that are on this rank, as kernels get them, and what ranks add of
 * them.
 */
#include "entropy.h"

#include "base/num.h"

enum { LOGITS = SHERD__LOGITS, TARGETS, WEIGHT };

/* A rank outside the mesh has no rows, even for a scalar. */
static int64_t rows_of(const sherd_tensor *logits)
{
    int64_t coordinate[SHERD_MAX_AXES];

    return logits->layout && !sherd__coordinate(logits, coordinate)
               ? 0
               : sherd__local_count(logits, 0, logits->ndim - 1);
}

sherd__entropy sherd__entropy_of(const sherd_call *call, int logits)
{
    const sherd__entropy_attributes *attributes = call->attributes;
    const sherd_tensor *l = call->in[logits], *targets = call->in[logits + TARGETS];
    int last = l->ndim - 1;
    double classes = (double)sherd__max(l->shape[last], 1);
    sherd__entropy e = {.rows = rows_of(l),
                        .cols = l->local[last],
                        .first = sherd_tensor_box(l).offset[last],
                        .keep = 1 - attributes->smoothing,
                        .spread = attributes->smoothing / classes,
                        .ignored = attributes->ignored,
                        .weight = call->from[logits + WEIGHT]};

    if (targets && sherd__are_classes(targets))
        e.target = call->from[logits + TARGETS];
    else
        e.probability = call->from[logits + TARGETS];
    return e;
}

sherd_tensor *sherd__entropy_pair(sherd_call *call, const sherd_layout **whole, bool there)
{
    const sherd_layout *logits = call->in[LOGITS]->layout, *partial;
    sherd__layout_spec spec = {.mesh = logits->spec.mesh, .ndim = 1, .shape = {2}};

    sherd__spec_settle(&spec);
    for (int d = 0; d < logits->spec.ndim - 1; d++)
        for (int i = 0; i < logits->spec.dim[d].axes; i++)
            spec.pending[logits->spec.dim[d].axis[i]] = SHERD_SUM;
    if (sherd__layout_intern(&partial, &spec) || sherd__layout_settle(whole, partial))
        return sherd__fail_diag(call->world, true);
    return sherd__new_on_there(partial, SHERD_F64, there);
}
