/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a step, the price models as tables, and totals over a chain of steps. */
#ifndef SHERD__PRICE_PRICE_H
#define SHERD__PRICE_PRICE_H

#include "plan/inside.h"

/* Some axes of a mesh and their links, fastest first. Each is a class of messages. */
typedef struct sherd__lanes {
    int axes;
    int axis[SHERD_MAX_AXES];
    sherd_link link[SHERD_MAX_AXES];
} sherd__lanes;

/* What a planner is asked; sherd__problem_of makes one. */
typedef struct sherd__problem {
    sherd__space *space;
    const sherd_layout *from, *to;
    size_t element_bytes;
    const sherd__request *request;
    /*
     * Under the price of links, with the lines for a tensor of this size: the axes of the mesh of
     * `from`; and the link of a step to another mesh.
     */
    sherd__lanes lanes;
    sherd_link across;
} sherd__problem;

/* Costs a look at all lines of a price for each axis of the mesh. */
sherd__problem sherd__problem_of(sherd__space *space, const sherd_layout *from,
                                 const sherd_layout *to, size_t element_bytes,
                                 const sherd__request *request);

/* A step with everything that its price depends on, in bytes. */
typedef struct sherd__priced {
    sherd_step step;
    sherd__change change;
    sherd__amounts amounts;
    int64_t send_max_bytes;
    int rounds;
    /*
     * Picoseconds, 0 = none: pricing may stop once it exceeds this; the exact price is not needed
     */
    int64_t enough;
    /* The price is over some ranks only: a lower bound, and mostly exact. */
    bool some;
} sherd__priced;

/* The step between two layouts of the problem's shape, named and priced. */
sherd_status sherd__step_price(sherd__priced *out, const sherd__problem *problem,
                               const sherd_layout *from, const sherd_layout *to);
/* The same; with `some`, priced over some ranks only. */
sherd_status sherd__step_price_of(sherd__priced *out, const sherd__problem *problem,
                                  const sherd_layout *from, const sherd_layout *to, bool some);

/* Set kind and axes of a step whose change is known, and whether it receives anything. */
void sherd__step_name(sherd__priced *step);

/*
 * A price as a table: picoseconds and rounds of a step whose kind and amounts are known, and
 * whether its all-reduce is sliced. Pure, in integers (torch's model: rounded), equal on all ranks.
 */
typedef struct sherd__price_model {
    const char *name;
    void (*price)(sherd__priced *step, const sherd__problem *problem);
    /*
     * A lower bound, in picoseconds, of any one step that receives something into boxes of which
     * the largest has target_max elements, and adds `addends` addends there (1 = no reduction). It
     * does not fall when either grows. Searches prune with it.
     */
    int64_t (*floor)(const sherd__problem *problem, int64_t target_max, int64_t addends);
    /*
     * A link such that steps which together bring one rank some bytes take at least its alpha, and
     * its beta for these bytes. NULL: no such link is known.
     */
    sherd_link (*least_link)(const sherd__problem *problem);
    /* `price` uses of the amounts only target_max and whether anything is received */
    bool of_kinds;
} sherd__price_model;

const sherd__price_model *sherd__price_model_of(sherd_price_kind kind);
extern const sherd__price_model sherd__price_arena;
extern const sherd__price_model sherd__price_links;
extern const sherd__price_model sherd__price_torch;

/*
 * The arena's price of a step, computed from its kind, whether the boxes stay, the largest target
 * box and its number of addends (1 = no reduction). For an all-reduce it is the cheaper of the two
 * variants, and *sliced says which.
 */
int64_t sherd__arena_time(bool *sliced, sherd_step_kind kind, bool boxes_stay, int64_t target_max,
                          int64_t addends, int64_t element_bytes);

/*
 * The price of a window under links, in picoseconds: a message along each axis that it reaches
 * over, and all bytes of the busiest rank over the slowest of these axes. Lines count as for a
 * tensor of these bytes.
 */
int64_t sherd__links_time_window(const sherd_price *price, const sherd_mesh *mesh, unsigned axes,
                                 int64_t bytes);

/* The arena's price, in picoseconds, of a call that moves almost nothing. */
int64_t sherd__call_time(void);

/* Bytes that a step receives on the worst rank and in all, once `sliced` is known. */
void sherd__step_bytes(sherd__priced *step, size_t element_bytes);

/*
 * Totals over a chain of steps: maxima over ranks of sums over steps, and the most that a rank
 * holds: the source, and input and output of a step, each counted once. Bytes.
 */
typedef struct sherd__chain {
    int64_t receive_max, send_max, peak;
} sherd__chain;

sherd_status sherd__chain_find(sherd__chain *out, const sherd__problem *problem,
                               const sherd__priced *steps, int count);

/*
 * The change and the amounts of a step between layouts on two meshes. The cost grows with the ranks
 * of both.
 */
sherd_status sherd__across_find(sherd__change *change, sherd__amounts *amounts, sherd__space *space,
                                const sherd_layout *from, const sherd_layout *to);

/*
 * What the fullest rank holds during a step to another mesh, in bytes; it still has the problem's
 * source. In a world of more than 4,096 ranks an upper bound.
 */
int64_t sherd__across_peak(const sherd__problem *problem, const sherd__priced *step);

/* As sherd__chain_find for a chain of several steps whose last one goes to another mesh. */
sherd_status sherd__across_chain(sherd__chain *out, const sherd__problem *problem,
                                 const sherd__priced *steps, int count);

#endif
