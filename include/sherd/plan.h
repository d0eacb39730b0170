/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: how a tensor gets from one layout to another, as data that a program can look at.
 * sherd_redistribute makes the plans that it needs by itself. A plan depends on nothing but its two
 * layouts, the element size and the options, so it is equal on all ranks. Making one sends nothing
 * and needs no other ranks; a paper world will do. Plans are cached in the world; the least
 * recently used are dropped.
 *
 * There are three planners. `exact` searches the states between the two layouts for the cheapest
 * plan under a price; `greedy` and `graph` reproduce PyTorch's two planners step by step, for
 * comparison and migration.
 *
 *     const sherd_plan *plan;
 *     if (sherd_plan_create(&plan, from, to, SHERD_F32, NULL))
 *         return 1;
 *     printf("%s: %lld bytes in all\n", sherd_plan_trace(plan),
 *            (long long)sherd_plan_price_of(plan)->recv_total_bytes);
 */
#ifndef SHERD_PLAN_H
#define SHERD_PLAN_H

#include "dtype.h"
#include "layout.h"

SHERD_BEGIN

typedef enum sherd_step_kind {
    /* each rank keeps a part of what it holds; nothing is sent */
    SHERD_STEP_SLICE = 0,
    /* each box goes directly to the rank that needs it; any such step without a name below */
    SHERD_STEP_EXCHANGE = 1,
    /* an exchange in which the innermost axes of dims stop sharding them */
    SHERD_STEP_ALL_GATHER = 2,
    /* an exchange in which innermost axes of one dim become innermost axes of another */
    SHERD_STEP_ALL_TO_ALL = 3,
    /* a pending reduction becomes a shard by an innermost axis: each rank reduces its own shard */
    SHERD_STEP_REDUCE_SCATTER = 4,
    /* a pending reduction becomes replicated; boxes do not change; see sherd_step.sliced */
    SHERD_STEP_ALL_REDUCE = 5,
    /* a reduction is settled while boxes move: each rank gets all addends of its new box */
    SHERD_STEP_REDUCE_EXCHANGE = 6,
    /* a replicated tensor becomes a pending reduction of the same value; nothing is sent */
    SHERD_STEP_PARTITION = 7
} sherd_step_kind;

enum { SHERD_STEP_KINDS = 8 };

typedef struct sherd_step {
    sherd_step_kind kind;
    /*
     * SHERD_STEP_ALL_REDUCE: true = each rank reduces a slice and writes it to all others (two
     * rounds); false = each rank reads everything and reduces it (one round).
     */
    bool sliced;
    /*
     * The axes that take part, as bits 1 << axis; ranks that differ only in these axes form a
     * group, which communicates. 0 if nothing is sent; also if `from` and `to` are on different
     * meshes: then the group is the world.
     */
    unsigned axes;
    const sherd_layout *from, *to;            /* before and after the step; live with the plan */
    int64_t recv_max_bytes, recv_total_bytes; /* what the busiest rank, and all ranks, receive */
    int64_t picoseconds;                      /* under the plan's price */
} sherd_step;

/*
 * What a whole plan costs. *_max_bytes is the maximum over ranks of what one rank receives or sends
 * in all steps together, *_total_bytes the sum over all ranks. Only data that a rank did not hold
 * before counts as received. Between two meshes of very many ranks, the bytes sent and the maxima
 * of plans of several steps are upper bounds, not exact. A figure of 2^62 - 1 stands for that or
 * more.
 */
typedef struct sherd_plan_price {
    int64_t picoseconds;
    int64_t recv_max_bytes, recv_total_bytes, send_max_bytes;
    /* no plan receives less than this; bound_max_bytes is -1 if a reduction is pending */
    int64_t bound_max_bytes, bound_total_bytes;
    /*
     * Memory of the rank and step that need most: the source of the plan, and the input and output
     * of the step, each counted once.
     */
    int64_t peak_bytes;
    int rounds; /* of communication: 1 or 2 for each step that sends something */
    /* EXACT: the search was complete, so no plan is cheaper under the price. Otherwise false */
    bool proven;
} sherd_plan_price;

typedef enum sherd_planner {
    SHERD_PLANNER_EXACT = 0,
    /* PyTorch's greedy planner; here it takes any shard order, in PyTorch only the default one */
    SHERD_PLANNER_GREEDY = 1,
    /* PyTorch's graph search; at most 200,000 states (six axes, three dims: up to 85,000) */
    SHERD_PLANNER_GRAPH = 2,
    /* the one that PyTorch would choose: greedy if both shard orders are the default, else graph */
    SHERD_PLANNER_TORCH = 3
} sherd_planner;

enum { SHERD_PLANNERS = 4 };

/* What the graph planner minimises. */
typedef enum sherd_weights_kind {
    /* PyTorch 2.13's time model */
    SHERD_WEIGHTS_TIME = 0,
    /* PyTorch's of 2025: 4, 1, 2, 2, 0 for the members of sherd_weights; also tries R->P(sum) */
    SHERD_WEIGHTS_INTEGER = 1,
    /* the members of sherd_weights */
    SHERD_WEIGHTS_CUSTOM = 2
} sherd_weights_kind;

/* What one collective of each kind costs, >= 0; `chunk` is the local slicing step. */
typedef struct sherd_weights {
    sherd_weights_kind kind;
    int64_t all_reduce, all_to_all, all_gather, reduce_scatter, chunk; /* read if CUSTOM */
} sherd_weights;

typedef enum sherd_price_kind {
    SHERD_PRICE_ARENA = 0, /* memory traffic on one machine, and rounds */
    SHERD_PRICE_LINKS = 1, /* latency and bandwidth per mesh axis */
    SHERD_PRICE_TORCH = 2  /* PyTorch 2.13's time model */
} sherd_price_kind;

/*
 * What communication along one mesh axis costs: alpha for each message, beta for each byte of it,
 * and gamma for each byte that is added to a reduction.
 *
 * A message pays for the slowest axis on which its two ranks differ. The slowest axis is that on
 * which one message with all bytes of the tensor takes longest; of equal ones that with the larger
 * beta, then that with the larger number. An axis without an entry pays the entry "*"; without
 * that, the slowest entry.
 *
 * All-gathers, reduce-scatters and sliced all-reduces are priced axis by axis (but see `straight`),
 * with ceil(log2 p) rounds on an axis of p ranks; gathering begins with the slowest axis, reducing
 * ends with it. All other steps are direct: they take as long as the rank with the most to receive
 * or send, one message after the other, where replicas that faster links connect share what must be
 * sent. Each byte that a direct step adds costs gamma of its axis too. Between two meshes
 * everything counts as one message over "*".
 */
typedef struct sherd_link {
    char axis[32]; /* its name; "*" = all axes without an entry of their own */
    int64_t alpha_picoseconds;
    int64_t beta_femtoseconds, gamma_femtoseconds; /* per byte */
    /*
     * The entry is for tensors of up to so many bytes, over all ranks; 0 = of any size. An axis may
     * have several entries, to describe a cache or the burst rate of a link: the one with the
     * lowest limit that the tensor does not exceed counts; if it exceeds all of them, the one with
     * the highest. A halo counts as a tensor of what its busiest rank sends or receives.
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
     * LINKS: in a direct step, messages over different axes travel at the same time, so only the
     * axis that takes longest counts. False: they follow one another.
     */
    bool overlap;
    /*
     * LINKS: price steps as sherd's own ranks run them: collectives are direct steps too; a sliced
     * all-reduce has two phases (addends go to the rank that reduces a slice, then slices go to
     * all); replicas do not share what is sent.
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
     * GREEDY, GRAPH: sets of axes, as bits 1 << axis, whose steps are merged into one, as PyTorch
     * does if a flattened mesh exists; unsigned[flattened_count], at most 16; copied.
     */
    const unsigned *flattened;
    int flattened_count;
    int64_t max_bytes;  /* EXACT: use only plans with at most this peak_bytes; 0 = no limit */
    unsigned forbidden; /* EXACT: kinds of steps not to use, as bits 1 << sherd_step_kind */
} sherd_plan_options;

typedef struct sherd_plan sherd_plan;

/**
 * Get the plan that takes a tensor from one layout to another; it has no steps if the layouts are
 * equal.
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
 *         in one step this rank reads from more than 2^24 others, or more than 2^24 read from it;
 *         ENOMEM
 */
SHERD_CALL sherd_status sherd_plan_create(const sherd_plan **out, const sherd_layout *from,
                                          const sherd_layout *to, sherd_dtype dtype,
                                          const sherd_plan_options *options);

/** How many steps a plan has. @local @errors none */
SHERD_API int sherd_plan_steps(const sherd_plan *plan);

/** The i-th step; NULL if there is none. @local @owns borrowed from the plan @errors none */
SHERD_API const sherd_step *sherd_plan_step(const sherd_plan *plan, int i);

/** What the plan costs. @local @owns borrowed from the plan @errors none */
SHERD_API const sherd_plan_price *sherd_plan_price_of(const sherd_plan *plan);

/** Which planner made the plan; for TORCH, the one that was chosen. @local @errors none */
SHERD_API sherd_planner sherd_plan_planner(const sherd_plan *plan);

/**
 * The cost of the plan as its planner counts it. EXACT: seconds under its price; GREEDY:
 * microseconds of PyTorch's time model; GRAPH: the same, or the sum of the weights, depending on
 * sherd_plan_options.weights.
 *
 * @local   @errors none
 */
SHERD_API double sherd_plan_cost(const sherd_plan *plan);

/**
 * The layouts from first to last, as PyTorch writes them: "S(0)[0]S(0)[1]->S(0)R->RR", where "-->"
 * marks steps that were merged. Only one if the plan has no steps. Between two meshes, the full
 * texts of the layouts.
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

/** Its name: "slice", "all_gather", ..; or "unknown". @local @owns static text @errors none */
SHERD_API const char *sherd_step_kind_name(sherd_step_kind kind);

/** Its name: "exact", "greedy", ..; or "unknown". @local @owns static text @errors none */
SHERD_API const char *sherd_planner_name(sherd_planner planner);

SHERD_END

#endif
