/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share and no other room needs. */
#ifndef SHERD__PLAN_INSIDE_H
#define SHERD__PLAN_INSIDE_H

#include "plan.h"
#include "state.h"

/*
 * How two layouts of one shape on one mesh differ. Axes of extent 1 are in nothing here: they cost
 * no step. Per dim, the outermost axes with equal merged cuts (`common`) take no part; what
 * follows in the source's and the target's list does.
 */
typedef struct sherd__change {
    const sherd_mesh *mesh;
    int ndim;
    int common[SHERD_MAX_DIMS];
    sherd__dim source[SHERD_MAX_DIMS],
        target[SHERD_MAX_DIMS]; /* whole lists, without extents of 1 */
    unsigned gathered; /* axes that cut the source otherwise than the target: pulls cross them */
    unsigned cut;      /* axes that cut the target otherwise than the source */
    unsigned reduced;  /* axes pending in the source, not in the target: pulls cross them too */
    unsigned pending;  /* axes pending in both */
    unsigned parted;   /* axes pending in the target, replicated in the source */
    int64_t addends;   /* product of the extents of the reduced axes */
    sherd_reduce_op op;
    double divisor; /* of avg; the product of the extents of its axes */
    /* between two meshes: the lists are empty, and the axes, `reduced` apart, only say whether boxes stay */
    bool across;
} sherd__change;

/* Whether every rank's box is the same before and after. */
bool sherd__boxes_stay(const sherd__change *change);

void sherd__change_find(sherd__change *change, const sherd_layout *from, const sherd_layout *to);

/* Product of the extents of some axes of a mesh. */
int64_t sherd__extent_of(const sherd_mesh *mesh, unsigned axes);

/* Next coordinate over some axes, the last one fastest; false when it is back at zero. */
bool sherd__next(const sherd_mesh *mesh, unsigned axes, int64_t *coordinate);

/*
 * What one step amounts to, in elements, exact, each target rank pulling its addends straight from
 * their holders; found by classes of coordinates. Numbers from 2^62 on are cut to it.
 */
typedef struct sherd__amounts {
    int64_t source_max, target_max,
        both_max;                       /* of one rank: source box, target box, the two together */
    int64_t receive_max, receive_total; /* from other ranks, each addend counted */
    int64_t send_max;
    int64_t target_total; /* sum over ranks */
    int64_t bound_total;  /* no plan receives less in all */
} sherd__amounts;

void sherd__amounts_find(sherd__amounts *out, const sherd__change *change, const int64_t *shape);

/* The total alone, `receive_total`: cheaper by the maxima. */
int64_t sherd__received_total(const sherd__change *change, const int64_t *shape);

/* Below 2^62 elements, 2^31 ranks and 2^31 addends: every exact number is below 2^124. */
__extension__ typedef __int128 sherd__wide;

/* What numbers are cut to. */
#define SHERD__MOST (((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) - 1)
int64_t sherd__cut(sherd__wide value);
/* a * b and a + b that stay below 2^62. */
int64_t sherd__mul_cut(int64_t a, int64_t b);
int64_t sherd__add_cut(int64_t a, int64_t b);

/* ---- steps ---------------------------------------------------------------------------------- */

/* What is to be planned. */
typedef struct sherd__problem {
    sherd__space *space;
    const sherd_layout *from, *to;
    size_t element_bytes;
    const sherd__request *request;
} sherd__problem;

/* A step with everything that its price knows, in bytes. */
typedef struct sherd__priced {
    sherd_step step;
    sherd__change change;
    sherd__amounts amounts;
    int64_t send_max_bytes;
    int rounds;
} sherd__priced;

/* The step between two layouts of the problem's shape, named and priced. */
sherd_status sherd__step_price(sherd__priced *out, const sherd__problem *problem,
                               const sherd_layout *from, const sherd_layout *to);

/* Kind and axes of a step whose change is known, and whether anything is received. */
void sherd__step_name(sherd__priced *step);

/* What the change is called; `amounts` decide only whether anything travels. */
sherd_step_kind sherd__step_kind(const sherd__change *change, const sherd__amounts *amounts);

/*
 * A price as a table: picoseconds and rounds of a step whose kind and amounts are known, and
 * whether its all-reduce is sliced. Pure, integer (torch's model: rounded), equal on all ranks.
 */
typedef struct sherd__price_model {
    const char *name;
    void (*price)(sherd__priced *step, const sherd__problem *problem);
    /*
     * A lower bound, in picoseconds, of any one step that brings something from another rank into
     * boxes of which the largest has target_max elements, and adds `addends` addends there (1 =
     * none). It does not fall when either grows. Searches leave out what cannot get below it.
     */
    int64_t (*floor)(const sherd__problem *problem, int64_t target_max, int64_t addends);
    /*
     * A link so that steps which together bring one rank some bytes take its alpha and its beta for
     * these bytes at least. NULL: no such is known.
     */
    sherd_link (*least_link)(const sherd__problem *problem);
    /* Of the amounts `price` asks only for target_max and whether anything is received. */
    bool of_kinds;
} sherd__price_model;

const sherd__price_model *sherd__price_model_of(sherd_price_kind kind);
extern const sherd__price_model sherd__price_arena;
extern const sherd__price_model sherd__price_links;
extern const sherd__price_model sherd__price_torch;

/*
 * The arena's price of a step from nothing but its kind, whether the boxes stay, the largest target
 * box and how many addends it has (1 = none); an all-reduce is the cheaper of the two, and *sliced
 * says which.
 */
int64_t sherd__arena_time(bool *sliced, sherd_step_kind kind, bool boxes_stay, int64_t target_max,
                          int64_t addends, int64_t element_bytes);

/* Bytes that a step receives on the worst rank and in all, once `sliced` is known. */
void sherd__step_bytes(sherd__priced *step, size_t element_bytes);

/*
 * Of a chain of steps: maxima over ranks of sums over steps, and what a rank holds at most: the
 * source, and input and output of a step, each once. Bytes.
 */
typedef struct sherd__chain {
    int64_t receive_max, send_max, peak;
} sherd__chain;

/* Add the bytes that a rank's schedule takes from others, and writes to others, to what each has sent. NULL adds nothing. */
void sherd__schedule_add_sent(const sherd__schedule *schedule, int rank, size_t element_bytes,
                              int64_t *sent);

sherd_status sherd__chain_find(sherd__chain *out, const sherd__problem *problem,
                               const sherd__priced *steps, int count);

/*
 * Makes a schedule: `find` adds regions, each followed by its pulls, and readers; it is called twice, to count and to
 * write, and must do the same both times.
 */
sherd_status sherd__schedule_make(sherd__schedule **out, sherd__space *space,
                                  void (*find)(sherd__schedule *s, const void *what),
                                  const void *what, int rank, size_t element_bytes);
void sherd__schedule_region(sherd__schedule *s, const int64_t *offset, const int64_t *size);
void sherd__schedule_pull(sherd__schedule *s, int me, int rank, const int64_t *offset);
void sherd__schedule_reader(sherd__schedule *s, int rank);
void sherd__schedule_sharer(sherd__schedule *s, int rank);

/* ---- two meshes ----------------------------------------------------------------------------- */

/* What the step between layouts on two meshes changes and amounts to. Costs the ranks of both. */
sherd_status sherd__across_find(sherd__change *change, sherd__amounts *amounts, sherd__space *space,
                                const sherd_layout *from, const sherd_layout *to);

/* As sherd__schedule_create; an empty one for a rank in neither mesh. */
sherd_status sherd__across_schedule(sherd__schedule **out, sherd__space *space,
                                    const sherd_step *step, size_t element_bytes, int rank);

/* As sherd__chain_find for a chain of several steps whose last one goes to another mesh. */
sherd_status sherd__across_chain(sherd__chain *out, const sherd__problem *problem,
                                 const sherd__priced *steps, int count);

/* ---- planners ------------------------------------------------------------------------------- */

typedef struct sherd__answer {
    sherd__path path; /* its last stop may differ from the target in cuts alone */
    double cost;
    bool proven;
    bool has_direct; /* whether the planner priced the step from source to target on its way */
    sherd__priced direct;
} sherd__answer;

/* One file each. The path begins at the problem's source. Layouts differ; EXACT also takes two meshes. */
sherd_status sherd__exact_find(sherd__answer *out, const sherd__problem *problem);
sherd_status sherd__greedy_find(sherd__answer *out, const sherd__problem *problem);
sherd_status sherd__graph_find(sherd__answer *out, const sherd__problem *problem);

/* `options` as a value; EINVAL for what is out of range. `from` names the axes. */
sherd_status sherd__request_make(sherd__request *out, const sherd_layout *from,
                                 const sherd_layout *to, const sherd_plan_options *options);
/* 0 only for options that are all default. */
uint64_t sherd__request_hash(const sherd__request *request);
bool sherd__request_equal(const sherd__request *a, const sherd__request *b);

/* Elements of slice `i` of `n` that `p` ranks share: whole cache lines, the tail may be empty. */
void sherd__slice_of(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi);

sherd_status sherd__plan_make(sherd_plan **out, const sherd_layout *from, const sherd_layout *to,
                              size_t element_bytes, const sherd__request *request);
void sherd__plan_destroy(sherd_plan *plan);

#endif
