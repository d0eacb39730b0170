/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: how one layout is turned into another, as data. A plan is a pure function of its two
 * layouts, the element size and the options, and is equal on all ranks. Making one needs no ranks,
 * only a world; a paper world will do. Plans are cached on the world; the least recently used are
 * dropped.
 *
 * There are three planners. `exact` searches the states between the two layouts for the cheapest
 * plan under a price; `greedy` and `graph` reproduce PyTorch's two planners step by step, for
 * comparison and migration.
 */
#ifndef SHERD_PLAN_H
#define SHERD_PLAN_H

#include "dtype.h"
#include "layout.h"

SHERD_BEGIN

typedef enum sherd_step_kind {
    /* each rank keeps a part of what it holds; nothing is sent */
    SHERD_STEP_SLICE = 0,
    /* each box goes directly to its target rank; any such step that no name below fits */
    SHERD_STEP_EXCHANGE = 1,
    /* an exchange in which the innermost axes of dims stop sharding them */
    SHERD_STEP_ALL_GATHER = 2,
    /* an exchange in which innermost axes of one dim become innermost axes of another */
    SHERD_STEP_ALL_TO_ALL = 3,
    /* a pending reduction becomes a shard by an innermost axis: each rank reduces what it keeps */
    SHERD_STEP_REDUCE_SCATTER = 4,
    /* a pending reduction is settled, and all boxes stay; see `sliced` */
    SHERD_STEP_ALL_REDUCE = 5,
    /* the owner of a target box pulls all its addends and adds them in rank order */
    SHERD_STEP_REDUCE_EXCHANGE = 6,
    /* a replicated tensor becomes a pending reduction of the same value; nothing is sent */
    SHERD_STEP_PARTITION = 7
} sherd_step_kind;

enum { SHERD_STEP_KINDS = 8 };

typedef struct sherd_step {
    sherd_step_kind kind;
    /*
     * ALL_REDUCE: true = each rank reduces a slice and writes it to the others (two rounds); false
     * = each rank reduces everything.
     */
    bool sliced;
    /*
     * Bit i: axis i of the mesh takes part; ranks that differ only in these axes form the group. 0
     * if nothing is sent, and if `from` and `to` are on different meshes: then the group is the
     * world.
     */
    unsigned axes;
    const sherd_layout *from, *to;
    int64_t recv_max_bytes, recv_total_bytes; /* what the busiest rank, and all ranks, receive */
    int64_t picoseconds;                      /* under the plan's price */
} sherd_step;

/*
 * The price of a whole plan. Maxima are over ranks, of each rank's sum over the steps. "Received"
 * means data that the rank did not hold before. Between two meshes of very many ranks, the bytes
 * sent and the maxima of plans of several steps are upper bounds, not exact. Figures stop at
 * 2^62 - 1, which stands for that and more.
 */
typedef struct sherd_plan_price {
    int64_t picoseconds;
    int64_t recv_max_bytes, recv_total_bytes, send_max_bytes;
    /* lower bounds of what any plan receives; bound_max_bytes is -1 with a pending reduction */
    int64_t bound_max_bytes, bound_total_bytes;
    /* of the rank that needs most: source, input and output of the worst step, each counted once */
    int64_t peak_bytes;
    int rounds;
    /* exact: the search was complete, no plan is cheaper under the price; other planners: false */
    bool proven;
} sherd_plan_price;

typedef enum sherd_planner {
    SHERD_PLANNER_EXACT = 0,
    /* for any shard orders; PyTorch uses it for default ones only */
    SHERD_PLANNER_GREEDY = 1,
    /* up to 200,000 states; six axes and a tensor of three dims have 85,000 at most */
    SHERD_PLANNER_GRAPH = 2,
    /* as PyTorch chooses: greedy where both shard orders are the default, else graph */
    SHERD_PLANNER_TORCH = 3
} sherd_planner;

enum { SHERD_PLANNERS = 4 };

/* What the graph planner minimises. */
typedef enum sherd_weights_kind {
    /* PyTorch 2.13's time model */
    SHERD_WEIGHTS_TIME = 0,
    /* 4, 1, 2, 2, 0: PyTorch of 2025, which also always tries R->P(sum) */
    SHERD_WEIGHTS_INTEGER = 1,
    /* the members of sherd_weights */
    SHERD_WEIGHTS_CUSTOM = 2
} sherd_weights_kind;

/* Integer costs of one collective each, all >= 0; chunk is the local slicing step. */
typedef struct sherd_weights {
    sherd_weights_kind kind;
    int64_t all_reduce, all_to_all, all_gather, reduce_scatter, chunk; /* for CUSTOM */
} sherd_weights;

typedef enum sherd_price_kind {
    SHERD_PRICE_ARENA = 0, /* memory traffic on one machine, and rounds */
    SHERD_PRICE_LINKS = 1, /* latency and bandwidth per mesh axis */
    SHERD_PRICE_TORCH = 2  /* PyTorch 2.13's time model */
} sherd_price_kind;

/*
 * The link cost of one mesh axis: a message costs alpha, each byte of it beta, each byte that is
 * added gamma.
 *
 * A message uses the slowest axis on which its two ranks differ: that on which one message with all
 * bytes of the tensor takes longest; then that of the larger beta, then of the larger number. A
 * direct step takes as long as the rank with the most to receive or to send, one message after the
 * other; replicas connected by faster links share what must be sent. If a step adds what it brings,
 * each of these bytes costs gamma of its axis, too. All-gathers, reduce-scatters and sliced
 * all-reduces proceed axis by axis instead (but see `straight`), in ceil(log2 p) rounds each;
 * gathering begins with the slowest axis, reducing ends with it. Between two meshes everything is
 * one message over "*". An axis that has no entry, if there is no "*" either, costs what the
 * slowest entry does.
 */
typedef struct sherd_link {
    char axis[32]; /* name; "*" = all axes without an entry of their own */
    int64_t alpha_picoseconds;
    int64_t beta_femtoseconds, gamma_femtoseconds; /* per byte */
    /*
     * For tensors of up to so many bytes, over all ranks; 0 = of any size. Of the entries of an
     * axis that with the lowest limit counts that the tensor keeps, else that with the highest:
     * what a cache or the burst of a link changes is told by a few sizes. A halo counts as a tensor
     * of what its busiest rank sends or receives.
     */
    int64_t upto_bytes;
} sherd_link;

enum { SHERD_MAX_LINKS = 4 * (SHERD_MAX_AXES + 1) };

/* How plans are priced. A plain value; all zero = the arena. */
typedef struct sherd_price {
    sherd_price_kind kind;
    int links; /* LINKS: how many entries `link` has */
    sherd_link link[SHERD_MAX_LINKS];
    int64_t per_host; /* TORCH: devices per host; 0 = 1 */
    /*
     * LINKS: in a direct step, messages over different axes are under way at the same time, so the
     * axis that takes longest counts. Otherwise they follow one another.
     */
    bool overlap;
    /*
     * LINKS: price the steps as sherd's own ranks run them. Collectives are direct too, a sliced
     * all-reduce in two phases (addends to the rank that reduces a slice, then slices to all), and
     * replicas do not share what is sent.
     */
    bool straight;
} sherd_price;

/* All zero = the exact planner, the world's price, no limits. */
typedef struct sherd_plan_options {
    sherd_planner planner;
    const sherd_price *price; /* copied; NULL = the world's: its price file, or the arena */
    sherd_weights weights;    /* GRAPH: what it minimises */
    int64_t per_host;         /* GREEDY, GRAPH: devices per host in the time model; 0 = 1 */
    /*
     * unsigned[flattened_count]: sets of axes for which GREEDY and GRAPH merge steps into one, as
     * PyTorch does if a flattened mesh exists; copied; at most 16.
     */
    const unsigned *flattened;
    int flattened_count;
    int64_t max_bytes;  /* EXACT: upper limit of peak_bytes; 0 = none */
    unsigned forbidden; /* EXACT: bits 1 << sherd_step_kind of kinds of steps not to use */
} sherd_plan_options;

typedef struct sherd_plan sherd_plan;

/**
 * The plan that turns `from` into `to`; it has no steps if the layouts are equal.
 *
 * If `to` has a pending reduction on an axis on which `from` is replicated, the plan has a
 * partition step; sherd_redistribute refuses such targets.
 *
 * @local
 * @shapes `to` has the same global shape as `from`; its mesh may be another one of the same world
 *         (EXACT only); options: NULL = all zero
 * @owns   *out is borrowed from the cache, and valid until the next call on this world; NULL on
 *         failure
 * @errors EINVAL shapes or worlds differ, a shard or another reduction would become a pending one,
 *         options out of range; ENOTSUP GREEDY or GRAPH between two meshes, an average of integers;
 *         ELIMIT no plan keeps within max_bytes and forbidden, GRAPH has visited 200,000 states, or
 *         in one step this rank reads, or is read by, more than 2^24 others; ENOMEM
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

/** Which planner made the plan; for TORCH, the one that was chosen. @local @errors none */
SHERD_API sherd_planner sherd_plan_planner(const sherd_plan *plan);

/**
 * What the planner minimised: GRAPH: microseconds of PyTorch's time model, or the sum of the
 * weights; GREEDY: microseconds of that model; EXACT: seconds under its price.
 *
 * @local   @errors none
 */
SHERD_API double sherd_plan_cost(const sherd_plan *plan);

/**
 * The states from first to last in PyTorch's notation: "S(0)[0]S(0)[1]->S(0)R->RR"; "-->" marks
 * steps that were merged. A single state if there is nothing to do; for two meshes the full texts
 * of the layouts.
 *
 * @local   @owns borrowed from the plan   @errors none
 */
SHERD_API const char *sherd_plan_trace(const sherd_plan *plan);

/**
 * Read a price from the text of a price file, as `sherd check --calibrate` writes it. Each line is
 * one axis, `NAME alpha_seconds beta_seconds_per_byte gamma_seconds_per_byte`, with the name `*`
 * for all other axes, and may end with `upto BYTES`, its limit; the lines `overlap` and `straight`
 * set these options; `#` begins a comment.
 *
 * @local
 * @errors EINVAL with line, column and what was expected: a malformed line, the same axis and limit
 *         twice, a number that is negative or too large, more than SHERD_MAX_LINKS lines of axes
 */
SHERD_CALL sherd_status sherd_price_parse(sherd_price *out, sherd_world *world, const char *text);

/** "slice", "exchange", ..; "unknown" for none. @local @owns static text @errors none */
SHERD_API const char *sherd_step_kind_name(sherd_step_kind kind);

/** "exact", "greedy", ..; "unknown" for none. @local @owns static text @errors none */
SHERD_API const char *sherd_planner_name(sherd_planner planner);

SHERD_END

#endif
