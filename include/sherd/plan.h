/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: how one layout is turned into another, as data. A plan is a pure function of its two layouts, the
 * element size and the options, equal on all ranks; it needs no ranks to run, only a world (a paper world will
 * do). Plans are cached on the world; the least recently used go.
 *
 * Three planners make them. `exact` searches all states between the two layouts and is cheapest under a price;
 * `greedy` and `graph` are PyTorch's two, step for step, to compare with and to migrate from.
 */
#ifndef SHERD_PLAN_H
#define SHERD_PLAN_H

#include "dtype.h"
#include "layout.h"

SHERD_BEGIN

typedef enum sherd_step_kind {
    /* each rank keeps a part of what it holds; nothing travels */
    SHERD_STEP_SLICE = 0,
    /* boxes go straight to where they belong, in a way that has no name of its own */
    SHERD_STEP_EXCHANGE = 1,
    /* exchanges with a name: the innermost axes of dims' lists stop cutting; they go from the end of one dim's
     * list to the end of another's */
    SHERD_STEP_ALL_GATHER = 2,
    SHERD_STEP_ALL_TO_ALL = 3,
    /* a pending reduction becomes a shard at the end of a list: each rank adds up what it keeps */
    SHERD_STEP_REDUCE_SCATTER = 4,
    /* a pending reduction is done and every box stays; see `sliced` */
    SHERD_STEP_ALL_REDUCE = 5,
    /* the owner of a target box pulls all addends of it and adds them in rank order */
    SHERD_STEP_REDUCE_EXCHANGE = 6,
    /* what was replicated becomes a pending reduction of the same value; nothing travels */
    SHERD_STEP_PARTITION = 7
} sherd_step_kind;

enum { SHERD_STEP_KINDS = 8 };

typedef struct sherd_step {
    sherd_step_kind kind;
    /* ALL_REDUCE: each rank adds up a slice and writes it to the others (two rounds); else each adds up everything */
    bool sliced;
    /* bit i = axis i of the mesh takes part: ranks that differ only in these axes form the group; 0 where nothing
     * travels, and where the meshes of `from` and `to` differ: then the world is the group */
    unsigned axes;
    const sherd_layout *from, *to;
    int64_t recv_max_bytes, recv_total_bytes; /* what the busiest rank, and all ranks, receive */
    int64_t picoseconds;                      /* under the plan's price */
} sherd_step;

/*
 * Of a whole plan. Maxima are over ranks of sums over steps. Received is what a rank did not hold before. Between two meshes
 * of very many ranks (see across_price.c) what is sent, and maxima of several steps, are upper bounds.
 */
typedef struct sherd_plan_price {
    int64_t picoseconds;
    int64_t recv_max_bytes, recv_total_bytes, send_max_bytes;
    /* no plan receives less; bound_max_bytes is -1 with a pending reduction */
    int64_t bound_max_bytes, bound_total_bytes;
    /* worst rank: source, and input and output of the worst step, each once */
    int64_t peak_bytes;
    int rounds;
    /* exact: the search was complete, nothing is cheaper under the price. Others: false */
    bool proven;
} sherd_plan_price;

typedef enum sherd_planner {
    SHERD_PLANNER_EXACT = 0,
    /* any shard orders; PyTorch runs it on default ones only */
    SHERD_PLANNER_GREEDY = 1,
    /* up to 200,000 states: six axes of a rank-3 tensor have 85,000 at most */
    SHERD_PLANNER_GRAPH = 2,
    /* as PyTorch chooses: greedy where both shard orders are the default, else graph */
    SHERD_PLANNER_TORCH = 3
} sherd_planner;

enum { SHERD_PLANNERS = 4 };

/* What the graph planner minimises. */
typedef enum sherd_weights_kind {
    SHERD_WEIGHTS_TIME = 0, /* PyTorch 2.13's model of time */
    SHERD_WEIGHTS_INTEGER =
        1, /* 4, 1, 2, 2, 0: PyTorch of 2025, which also always tries R->P(sum) */
    SHERD_WEIGHTS_CUSTOM = 2
} sherd_weights_kind;

/* Of one collective each: all-reduce, all-to-all, all-gather, reduce-scatter, chunk; each >= 0. */
typedef struct sherd_weights {
    sherd_weights_kind kind;
    int64_t all_reduce, all_to_all, all_gather, reduce_scatter, chunk; /* of CUSTOM */
} sherd_weights;

typedef enum sherd_price_kind {
    SHERD_PRICE_ARENA = 0, /* memory traffic on one machine, and rounds */
    SHERD_PRICE_LINKS = 1, /* latency and bandwidth per mesh axis */
    SHERD_PRICE_TORCH = 2  /* PyTorch 2.13's model of time */
} sherd_price_kind;

/*
 * One axis of a price: a message costs alpha, a byte beta, a byte added gamma. A message goes over the slowest axis (largest
 * beta, then alpha, then number) on which its two ranks differ. A step that goes straight takes as long as the rank with most
 * to receive or to send takes for that, message after message; replicas that faster links join share what is sent; then
 * comes gamma of the slowest axis reduced, for what is added. All-gathers, reduce-scatters and sliced all-reduces go axis by
 * axis instead (but see `straight`), in ceil(log2 p) rounds each, gathering the slowest axis first and reducing it last.
 * Between two meshes all is one message over "*". An axis without a line, where there is no "*" either, has the slowest line.
 */
typedef struct sherd_link {
    char axis[32]; /* name; "*" = the axes that have no line of their own */
    int64_t alpha_picoseconds;
    int64_t beta_femtoseconds, gamma_femtoseconds; /* per byte */
} sherd_link;

/* What a plan is priced by; a plain value, all zero = the arena. */
typedef struct sherd_price {
    sherd_price_kind kind;
    int links; /* of SHERD_PRICE_LINKS */
    sherd_link link[SHERD_MAX_AXES + 1];
    int64_t per_host; /* of SHERD_PRICE_TORCH: devices per host; 0 = 1 */
    /* of SHERD_PRICE_LINKS: what a rank sends or receives over different axes in a step that goes straight is under way at
     * the same time: the axis that takes longest counts */
    bool overlap;
    /* of SHERD_PRICE_LINKS: as sherd's own ranks move. Collectives go straight too, a sliced all-reduce twice (addends to
     * whoever adds a slice, then slices to all), and replicas do not share what is sent */
    bool straight;
} sherd_price;

/* All zero = exact, the world's price, no limits. */
typedef struct sherd_plan_options {
    sherd_planner planner;
    const sherd_price *price; /* copied; NULL = the world's: its price file, or the arena */
    sherd_weights weights;    /* of GRAPH */
    int64_t per_host;         /* devices per host in the model of time of GREEDY and GRAPH; 0 = 1 */
    /* unsigned[flattened_count]: axis sets for which GREEDY and GRAPH merge steps into one, as PyTorch does where a
     * flattened mesh exists; copied; at most 16 */
    const unsigned *flattened;
    int flattened_count;
    int64_t max_bytes;  /* EXACT: bound on peak_bytes; 0 = none */
    unsigned forbidden; /* EXACT: bits 1 << sherd_step_kind that no step may have */
} sherd_plan_options;

typedef struct sherd_plan sherd_plan;

/**
 * The plan that turns `from` into `to`; no steps if the layouts are equal.
 *
 * Where a pending reduction appears in `to` on an axis on which `from` is replicated, the plan has a partition step;
 * sherd_redistribute refuses such targets.
 *
 * @local
 * @shapes `to` has the same global shape as `from`; its mesh may be another one of the same world (EXACT only).
 *         options: NULL = all zero
 * @owns   *out is borrowed from the cache: it is sure to live until the next call on this world; NULL on failure
 * @errors EINVAL shapes or worlds differ, a shard or another reduction would become a pending one, options out of range;
 *         ENOTSUP GREEDY or GRAPH between two meshes; ELIMIT no plan keeps within max_bytes and forbidden, or GRAPH
 *         has seen 200,000 states; ENOMEM
 */
SHERD_CALL sherd_status sherd_plan_create(const sherd_plan **out, const sherd_layout *from,
                                          const sherd_layout *to, sherd_dtype dtype,
                                          const sherd_plan_options *options);

/** How many steps. @local @errors none */
SHERD_API int sherd_plan_steps(const sherd_plan *plan);

/** The i-th step; NULL if there is none. @local @owns borrowed from the plan @errors none */
SHERD_API const sherd_step *sherd_plan_step(const sherd_plan *plan, int i);

/** What the plan costs. @local @owns borrowed from the plan @errors none */
SHERD_API const sherd_plan_price *sherd_plan_price_of(const sherd_plan *plan);

/** Who made the plan; TORCH is answered as the one that was chosen. @local @errors none */
SHERD_API sherd_planner sherd_plan_planner(const sherd_plan *plan);

/**
 * What the planner minimised: GRAPH microseconds of PyTorch's model or the sum of its weights; GREEDY the
 * microseconds of that model; EXACT the seconds of its price.
 *
 * @local   @errors none
 */
SHERD_API double sherd_plan_cost(const sherd_plan *plan);

/**
 * The states from first to last as PyTorch writes them: "S(0)[0]S(0)[1]->S(0)R->RR"; "-->" stands for steps that
 * were merged. One state alone when there is nothing to do; with two meshes the full texts of the layouts.
 *
 * @local   @owns borrowed from the plan   @errors none
 */
SHERD_API const char *sherd_plan_trace(const sherd_plan *plan);

/**
 * Read a price from the text of a price file: one line an axis, `NAME alpha_seconds beta_seconds_per_byte
 * gamma_seconds_per_byte`, `*` for the other axes; lines `overlap` and `straight` set these; `#` begins a comment.
 * `sherd check --calibrate` writes such a file.
 *
 * @local
 * @errors EINVAL with line, column and what was expected; the same axis twice; a number that is negative or too large
 */
SHERD_CALL sherd_status sherd_price_parse(sherd_price *out, sherd_world *world, const char *text);

/** "slice", "exchange", "all_gather", "all_to_all", ... @local @owns static text @errors none */
SHERD_API const char *sherd_step_kind_name(sherd_step_kind kind);

/** "exact", "greedy", "graph", "torch". @local @owns static text @errors none */
SHERD_API const char *sherd_planner_name(sherd_planner planner);

SHERD_END

#endif
