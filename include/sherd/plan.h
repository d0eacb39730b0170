/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: how one layout is turned into another, as data. A plan is a pure function of its two layouts and
 * the element size, equal on all ranks; it needs no ranks to run, only a world (a paper world will do).
 * Plans are cached on the world; the least recently used go.
 */
#ifndef SHERD_PLAN_H
#define SHERD_PLAN_H

#include "dtype.h"
#include "layout.h"

SHERD_BEGIN

typedef enum sherd_step_kind {
    /* each rank keeps a part of what it holds; nothing travels */
    SHERD_STEP_SLICE = 0,
    /* boxes go straight to where they belong */
    SHERD_STEP_EXCHANGE = 1,
    /* the owner of a target box pulls all addends of it and adds them in rank order */
    SHERD_STEP_REDUCE_EXCHANGE = 2,
    /* ranks with equal target boxes each reduce a slice and write it to all of them */
    SHERD_STEP_ALL_REDUCE = 3
} sherd_step_kind;

typedef struct sherd_step {
    sherd_step_kind kind;
    /* bit i = axis i of the mesh takes part: ranks that differ only in these axes form the group */
    unsigned axes;
    const sherd_layout *from, *to;
    int64_t recv_max_bytes, recv_total_bytes; /* what the busiest rank, and all ranks, receive */
    int64_t picoseconds;
} sherd_step;

/* Maxima are over ranks. Received is what a rank did not hold before. */
typedef struct sherd_plan_price {
    int64_t picoseconds;
    int64_t recv_max_bytes, recv_total_bytes, send_max_bytes;
    /* no plan receives less; bound_max_bytes is -1 with a pending reduction */
    int64_t bound_max_bytes, bound_total_bytes;
    /* worst rank: input and output of the worst step, and the source, each once */
    int64_t peak_bytes;
    int rounds;
} sherd_plan_price;

typedef struct sherd_plan sherd_plan;

/**
 * The plan that turns `from` into `to`: one direct step, or none if the layouts are equal.
 *
 * @local
 * @shapes `to` has the same global shape and the same mesh as `from`
 * @owns   *out is borrowed from the cache: it is sure to live until the next call on this world; NULL on failure
 * @errors EINVAL shapes or meshes differ, or `to` has a pending reduction on an axis where `from` has not the same one; ENOMEM
 */
SHERD_CALL sherd_status sherd_plan_create(const sherd_plan **out, const sherd_layout *from,
                                          const sherd_layout *to, sherd_dtype dtype);

/** How many steps. @local @errors none */
SHERD_API int sherd_plan_steps(const sherd_plan *plan);

/** The i-th step; NULL if there is none. @local @owns borrowed from the plan @errors none */
SHERD_API const sherd_step *sherd_plan_step(const sherd_plan *plan, int i);

/** What the plan costs. @local @owns borrowed from the plan @errors none */
SHERD_API const sherd_plan_price *sherd_plan_price_of(const sherd_plan *plan);

/** "slice", "exchange", "reduce_exchange", "all_reduce". @local @owns static text @errors none */
SHERD_API const char *sherd_step_kind_name(sherd_step_kind kind);

SHERD_END

#endif
