/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact planner: so far the direct move, with a partition of its own where a replica becomes
 * pending.
 */
#include "inside.h"

/* The target before its partition: parted axes still replicated. It is the target where none are. */
static sherd_status unparted(const sherd_layout **out, const sherd__problem *problem)
{
    sherd__layout_spec spec = problem->to->spec;

    for (int i = 0; i < spec.mesh->axes && problem->from->spec.mesh == spec.mesh; i++)
        if (problem->from->spec.pending[i] < 0)
            spec.pending[i] = -1;
    return sherd__layout_intern(out, &spec);
}

sherd_status sherd__exact_find(sherd__answer *out, const sherd__problem *problem)
{
    sherd__path *path = &out->path;
    const sherd_layout *whole;

    sherd_status status = unparted(&whole, problem);
    if (status != SHERD_OK)
        return status;
    if (whole != problem->from && whole != problem->to)
        path->at[path->stops++] = whole;
    path->at[path->stops++] = problem->to;
    return SHERD_OK;
}
