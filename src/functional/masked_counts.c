/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counts of a mask (masked.c) as operators on what it chooses take them: whether they can be
 * those of this mask, and the layout that the chosen rows have by them. Nothing is communicated.
 */
#include "masked.h"

const char *sherd__counts_fault(sherd_call *call)
{
    const sherd_tensor *mask = call->in[SHERD__MASK], *count = call->in[SHERD__MASK_COUNT];
    const sherd__choosing *how = call->attributes;

    if (mask->ndim != 1 || count->ndim != 1 || count->dtype != SHERD_I64 ||
        count->shape[0] != sherd__row_shards(mask) || how->total < 0 || how->total > mask->shape[0])
        return "these are no counts of the mask (sherd_count_masked)";
    return NULL;
}

sherd_status sherd__lay_chosen(const sherd_layout **operand, const sherd_layout **chosen,
                               const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *mask = sherd__way_given(ways, SHERD__MASK);
    sherd_tensor *count = call->in[SHERD__MASK_COUNT];
    const sherd__choosing *how = call->attributes;
    const int64_t *counts = sherd__counts_of(count);

    if (counts && !sherd__counts_add_up(counts, count->shape[0], how->total))
        return sherd__fail(sherd__world_diag(call->world), SHERD_EINVAL,
                           "%s: the counts are not of %lld elements", call->op->name,
                           (long long)how->total);
    sherd_status status = sherd__layout_settle(&operand[SHERD__MASK], mask);
    if (!status)
        status = sherd__replicated(&operand[SHERD__MASK_COUNT], mask->spec.mesh, 1, count->shape);
    return status ? status
                  : sherd__lay_counts(chosen, operand[SHERD__MASK], how->total, counts, 1,
                                      call->op->name);
}
