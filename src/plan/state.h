/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States: what a search walks over. A state says which axes shard each dim, in which order, and
 * what is pending; its cuts follow from the source and the target of the problem. And paths: the
 * layouts that a plan goes through.
 */
#ifndef SHERD__PLAN_STATE_H
#define SHERD__PLAN_STATE_H

#include "base/text.h"
#include "layout/layout.h"

typedef struct sherd__state {
    int8_t axes[SHERD_MAX_DIMS];                 /* how many shard the dim */
    int8_t axis[SHERD_MAX_DIMS][SHERD_MAX_AXES]; /* outermost first; what lies behind `axes` is 0 */
    int8_t pending[SHERD_MAX_AXES];              /* -1 = none, else a sherd_reduce_op */
} sherd__state;

void sherd__state_of(sherd__state *out, const sherd_layout *layout);

/* An axis leaves the list that it is in, or what is pending: it is replicated. */
void sherd__state_drop(sherd__state *state, int axis);

/*
 * A number that no other state of the same mesh and shape has: one byte an axis, the first axis
 * highest. Replicated comes before sharded (by dim, then by place in its list), pending last. Ties
 * of plans are broken by it.
 */
uint64_t sherd__state_key(const sherd__state *state, int axes, int ndim);

/*
 * The layout of a state on the way from `from` to `to`, all on one mesh. Each dim has the source's
 * cuts if its list begins the source's, else the target's likewise, else the longest beginning
 * shared with the source keeps its cuts and each further axis cuts by the chunk rule. The states of
 * `from` and `to` themselves need not give these layouts back.
 */
sherd_status sherd__state_layout(const sherd_layout **out, const sherd__state *state,
                                 const sherd_layout *from, const sherd_layout *to);

/* A dim without its axes of extent 1; its cuts stay, since parts do. */
void sherd__dim_strip(const sherd_mesh *mesh, sherd__dim *dim);

/*
 * The cuts that a state's dim d has by this rule, in memory that the caller frees; NULL where they
 * are the default. Axes of extent 1 change nothing.
 */
sherd_status sherd__state_cuts(int64_t **out, const sherd__dim *dim, const sherd_layout *from,
                               const sherd_layout *to, int d);

/* As PyTorch writes it: "S(0)[1]S(0)[0]P(sum)R"; places only where several axes shard a dim. */
void sherd__state_write(sherd__writer *w, const sherd__state *state, int axes, int ndim);

/* ---- paths ---------------------------------------------------------------------------------- */

enum { SHERD__STOPS = 64 };

/* The layouts that a plan goes through, first = the source. */
typedef struct sherd__path {
    int stops;
    const sherd_layout *at[SHERD__STOPS];
    bool merged[SHERD__STOPS]; /* the step to this stop stands for several */
} sherd__path;

/* "S(0)[0]S(0)[1]->S(0)R->RR" */
void sherd__path_write(sherd__writer *w, const void *path);

#endif
