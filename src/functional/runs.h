/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that come in runs of one group each (sherd/ops_groups.h): what operators on them share. Ends
 * and groups are operands, equal on all ranks, and a digest of them is an attribute: so layouts may
 * follow from their values, and ranks that have others are found.
 */
#ifndef SHERD__FUNCTIONAL_RUNS_H
#define SHERD__FUNCTIONAL_RUNS_H

#include "rows.h"

typedef struct sherd__row_runs {
    /* this rank is not in the mesh, and knows of no run: layouts do not matter to it */
    bool outside;
    int64_t count, rows, groups;
    const int32_t *end, *group; /* group NULL: run r is of group r */
    bool even; /* in a dry world, where they are not known: all have as many rows */
} sherd__row_runs;

/* False: the alarm has ended the wait for their values. */
bool sherd__runs_of(sherd__row_runs *out, sherd_tensor *ends, sherd_tensor *group, int64_t rows,
                    int64_t groups);

/* What is wrong with them, as a reason of the call; NULL: nothing. */
const char *sherd__runs_fault(sherd_call *call, const sherd__row_runs *runs);

/* Why operands `ends` and `group` of a call do not fit each other, or its rows, operand 0; NULL:
 * they do. What they hold is looked at in forward. */
const char *sherd__runs_misfit(sherd_call *call, int ends, int group, int64_t groups);

/* In forward: whether it may go on, since they are right; else it has failed. */
bool sherd__runs_begin(sherd_call *call, const sherd__row_runs *runs);

/* In forward: this rank's rows of run r, of operand 0: first, and how many. */
int64_t sherd__run_here(const sherd_call *call, const sherd__row_runs *runs, int64_t r,
                        int64_t *first);

/* Where run r ends. */
static inline int64_t sherd__run_end(const sherd__row_runs *runs, int64_t r)
{
    return runs->even ? (r + 1) * runs->rows / runs->count : runs->end[r];
}

static inline int64_t sherd__run_begin(const sherd__row_runs *runs, int64_t r)
{
    return r ? sherd__run_end(runs, r - 1) : 0;
}

static inline int64_t sherd__run_group(const sherd__row_runs *runs, int64_t r)
{
    if (runs->even)
        return runs->count > runs->groups ? r * runs->groups / runs->count : r;
    return runs->group ? runs->group[r] : r;
}

/* The tensor itself, or all of it on all ranks, for operands that must be equal. Not recorded. */
sherd_tensor *sherd__known(sherd_tensor *t);
/* A digest of the values of such tensors; absent ones count for nothing. */
int64_t sherd__known_digest(sherd_tensor *const *t, int count);

/* The biases [groups, n] of the groups of rows x, for each row: [rows, n]. */
sherd_tensor *sherd__run_biases(sherd_tensor *x, sherd_tensor *bias, sherd_tensor *ends,
                                sherd_tensor *group, const char *name);

/* [n * k]: k rows for each of the first dim [n, ...] of a layout, sharded as that. */
sherd_status sherd__lay_choices(const sherd_layout **out, const sherd_layout *tokens, int64_t k);

/*
 * Set dim 0 of a sketch: how rows are sharded. By the axes of the groups (the first dim of the
 * weights), cut where the groups' shards end; then by those of `own` that shard nothing of the
 * weights, with the cuts of `own` if it is so sharded already. False: groups are not sharded, or
 * runs come in another order than their shards; the sketch must still be ended.
 */
bool sherd__lay_runs(sherd__sketch *s, const sherd__row_runs *runs,
                     const sherd__layout_spec *weight, const sherd__dim *own);

/* [rows, n], as rows are laid for these weights, where n is their dim `width`; pending on `pending`
 * axes. *known: whether rows follow from them. */
sherd_status sherd__lay_run_rows(const sherd_layout **out, bool *known, const sherd_layout *weight,
                                 const sherd__row_runs *runs, const sherd__dim *own, int width,
                                 unsigned pending);

#endif
