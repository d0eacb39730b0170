/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kind of a step. It follows from which axes stop and start to shard, and where in the lists,
 * and names the corresponding collective of other libraries. The executor asks only whether a step
 * is local (a slice, a partition) and whether it reduces: all others run alike.
 */
#include "inside.h"

/* Axes leave the ends of some lists and join the ends of others; no list does both. */
static bool is_all_to_all(const sherd__change *change)
{
    if (change->gathered != change->cut)
        return false;
    for (int d = 0; d < change->ndim; d++)
        if (change->source[d].axes > change->common[d] &&
            change->target[d].axes > change->common[d])
            return false;
    return true;
}

sherd_step_kind sherd__step_kind(const sherd__change *change, const sherd__amounts *amounts)
{
    if (change->parted)
        return SHERD_STEP_PARTITION;
    if (amounts->receive_max == 0)
        return SHERD_STEP_SLICE;
    if (change->across)
        return change->reduced ? SHERD_STEP_REDUCE_EXCHANGE : SHERD_STEP_EXCHANGE;
    if (change->reduced) {
        if (change->gathered == 0 && change->cut == 0)
            return SHERD_STEP_ALL_REDUCE;
        return change->gathered == 0 && change->cut == change->reduced ? SHERD_STEP_REDUCE_SCATTER
                                                                       : SHERD_STEP_REDUCE_EXCHANGE;
    }
    if (change->cut == 0)
        return SHERD_STEP_ALL_GATHER;
    return is_all_to_all(change) ? SHERD_STEP_ALL_TO_ALL : SHERD_STEP_EXCHANGE;
}

bool sherd__step_shares(const sherd_step *step, const sherd__change *change)
{
    bool local = step->kind == SHERD_STEP_SLICE || step->kind == SHERD_STEP_PARTITION;

    return local && sherd__boxes_stay(change) && sherd__neutral_axes(change, step->to) == 0;
}

bool sherd__step_reduces(const sherd_step *step)
{
    return step->kind == SHERD_STEP_REDUCE_SCATTER || step->kind == SHERD_STEP_ALL_REDUCE ||
           step->kind == SHERD_STEP_REDUCE_EXCHANGE;
}

const char *sherd_step_kind_name(sherd_step_kind kind)
{
    static const char *const names[SHERD_STEP_KINDS] = {
        "slice",          "exchange",   "all_gather",      "all_to_all",
        "reduce_scatter", "all_reduce", "reduce_exchange", "partition"};

    return (unsigned)kind < SHERD_STEP_KINDS ? names[kind] : "unknown";
}

const char *sherd_planner_name(sherd_planner planner)
{
    static const char *const names[SHERD_PLANNERS] = {"exact", "greedy", "graph", "torch"};

    return (unsigned)planner < SHERD_PLANNERS ? names[planner] : "unknown";
}
