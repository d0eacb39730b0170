/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The plan room's own interface: plans, and the schedule of one rank for one step. Pure: one
 * process can make the schedules of all ranks and run them on plain memory, which is how every plan
 * is proven exact.
 */
#ifndef SHERD__PLAN_PLAN_H
#define SHERD__PLAN_PLAN_H

#include "kernels/kernels.h"
#include "layout/layout.h"
#include "sherd/plan.h"

/* One source of a region: its place in what `rank` holds. */
typedef struct sherd__pull {
    int rank;                       /* world rank; may be this rank itself */
    int64_t offset[SHERD_MAX_DIMS]; /* in that rank's source box, elements per dim */
} sherd__pull;

/*
 * A box of this rank's result. It is filled from one source (a copy), from several (a reduction, in
 * rank order), or from none, with a value: the neutral element in a partition, or a window's
 * border.
 */
typedef struct sherd__region {
    int64_t offset[SHERD_MAX_DIMS]; /* in my target box */
    int64_t size[SHERD_MAX_DIMS];
    int first, count; /* its pulls */
    int64_t at;       /* the element of the target with which it begins, */
    int64_t dense;    /* and how many elements it has if they are contiguous there; else 0 */
} sherd__region;

/*
 * What one rank does in one step. Regions are disjoint and cover the target box (if sliced: this
 * rank's slice of it).
 *
 * A sliced ALL_REDUCE works on flattened, contiguous boxes (ndim is 1; source and target box of all
 * sharers are equal): after reducing its region, each sharer writes it to the same place in every
 * other sharer's result.
 */
typedef struct sherd__schedule {
    int ndim;
    /* local boxes, in this schedule's ndim */
    int64_t source_size[SHERD_MAX_DIMS], target_size[SHERD_MAX_DIMS];
    int64_t target_stride[SHERD_MAX_DIMS], target_count; /* elements */
    sherd_reduce_op op;
    double divisor; /* of avg */
    double fill;    /* of regions without a source */
    bool copies;    /* all regions have one source: no arithmetic */
    bool shares;    /* a local step that changes nothing on any rank: see sherd__step_shares */
    int regions, pulls, sources, readers, sharers;
    sherd__region *region;
    sherd__pull *pull;
    int *source; /* other ranks that I pull from, ascending */
    int *reader; /* other ranks that pull from me, ascending */
    int *sharer; /* sliced: the other ranks that I write to and that write to me, ascending */
    int64_t recv_bytes; /* bytes that come from other ranks, written by sharers included */
} sherd__schedule;

enum { SHERD__FLATTENED = 16 };

/* The options of a plan as a value of its own: defaults filled in, no pointers to elsewhere. */
typedef struct sherd__request {
    sherd_planner planner;
    sherd_weights weights;
    int64_t per_host, max_bytes;
    unsigned forbidden;
    int flattened_count;
    unsigned flattened[SHERD__FLATTENED];
    sherd_price price;
} sherd__request;

struct sherd_plan {
    int refs; /* the cache holds one */
    sherd__space *space;
    const sherd_layout *from, *to; /* their meshes may differ; counted, as are those of the steps */
    size_t element_bytes;
    sherd__request request;
    uint64_t request_hash;        /* of content; 0 = made without options, by the arena's price */
    struct sherd__window *window; /* counted; NULL for a plan between layouts */
    int direction;                /* of a window: sherd__direction */
    sherd_planner planner;        /* which planner made it */
    double cost;                  /* what that planner minimised */
    int steps;
    sherd_step *step; /* [steps] */
    /* [steps] of the space's own rank; NULL in a paper world or outside the step's meshes */
    sherd__schedule **mine;
    struct sherd__sends **sends; /* [steps], made when first asked for; see sends.h */
    sherd_plan_price price;
    uint64_t fingerprint; /* of content: both layouts, the element size and the request */
    char what[96];        /* for messages: "[8(x),4] -> [8,4(x)] on (x=2)", cut at the end */
    char *trace;
};

/* Whether a step has regions with several sources. */
bool sherd__step_reduces(const sherd_step *step);

/* The schedule of one rank of the world; *out is NULL for a rank outside the step's meshes. */
sherd_status sherd__schedule_create(sherd__schedule **out, sherd__space *space,
                                    const sherd_step *step, size_t element_bytes, int rank);
void sherd__schedule_destroy(sherd__space *space, sherd__schedule *schedule);

/*
 * Set a region's place in the target from its offset and size; set what follows from the sizes of a
 * schedule that was made by hand.
 */
void sherd__region_lay(const sherd__schedule *schedule, sherd__region *region);
void sherd__schedule_lay(sherd__schedule *schedule);

/*
 * The data of one rank's source: the first element of its box, and strides in elements (of the
 * schedule's ndim).
 */
typedef struct sherd__source {
    const void *data;
    int64_t stride[SHERD_MAX_DIMS];
} sherd__source;

/*
 * Fill one region of `result` (contiguous, the schedule's target box). sources[i] belongs to the
 * region's i-th pull. `kernels` may be NULL for a region with one pull.
 */
void sherd__region_run(const sherd__schedule *schedule, const sherd__region *region, void *result,
                       const sherd__source *sources, size_t element_bytes,
                       const sherd__kernels *kernels);

/*
 * Where a region of one pull begins in its source and (*to) in the result, if it lies in one piece
 * in both; else NULL. Such a piece is copied by sherd__piece_copy; `kernels` may be NULL.
 */
const void *sherd__region_piece(const sherd__schedule *schedule, const sherd__region *region,
                                void *result, const sherd__source *source, size_t element_bytes,
                                void **to);
void sherd__piece_copy(void *to, const void *from, int64_t bytes, const sherd__kernels *kernels);

/*
 * A part of a reduction: add the pulls [first, end) to what earlier parts have left; sources[i]
 * belongs to pull first + i.
 */
void sherd__region_add(const sherd__schedule *schedule, const sherd__region *region, int first,
                       int end, void *result, const sherd__source *sources, size_t element_bytes,
                       const sherd__kernels *kernels);

/*
 * As sherd__region_run into each of results[count] of a sliced schedule; a large region is stored
 * past the cache. False: nothing was done, because no kernel writes to several results at once.
 */
bool sherd__region_spread(const sherd__schedule *schedule, const sherd__region *region,
                          void *const *results, int count, const sherd__source *sources,
                          size_t element_bytes, const sherd__kernels *kernels);

#endif
