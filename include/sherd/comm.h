/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm log: what moved on this rank, counted by kind and axes, and by the module that ran, forward or backward. The kinds are those of a plan's steps in which something
 * travels (sherd_step_kind_name), so neither "slice" nor "partition"; and "share", where ranks tell each other a few
 * numbers (sherd_from_local, the norm of gradients).
 */
#ifndef SHERD_COMM_H
#define SHERD_COMM_H

#include "dtype.h"
#include "layout.h"

SHERD_BEGIN

typedef struct sherd_comm_entry {
    /* "exchange", "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "reduce_exchange", "share" */
    const char *op;
    const char *axes; /* "tp", "dp,tp"; "world" where a tensor goes to another mesh */
    int64_t calls;
    int64_t bytes_received;
    /* in the call, waiting included; of calls that move less than 16 KiB one in 16 is timed, and stands for those that follow */
    int64_t nanoseconds;
} sherd_comm_entry;

/** How many kinds of calls the log has. @local @errors none */
SHERD_API int sherd_comm_count(const sherd_world *world);

/** The i-th entry; all zero if there is none. @local @owns texts are borrowed from the world @errors none */
SHERD_API sherd_comm_entry sherd_comm_get(const sherd_world *world, int i);

/** Start the log again from zero. @local @errors none */
SHERD_API void sherd_comm_reset(sherd_world *world);

typedef enum sherd_comm_direction {
    SHERD_COMM_BOTH = 0,
    SHERD_COMM_FORWARD = 1,
    /* what sherd_backward calls, and what settles gradients later (sherd_grad, an optimizer); a module that is called there to
     * compute something again is in it too */
    SHERD_COMM_BACKWARD = 2
} sherd_comm_direction;

/*
 * Which calls are meant; all zero = all. A call counts for the innermost module that runs, its hooks and styles included; in
 * backward for the module whose operator's gradient is computed, or has come and is brought to where it belongs.
 */
typedef struct sherd_comm_filter {
    const char *op;   /* a name as in sherd_comm_entry; NULL = any */
    const char *axes; /* "tp", "dp,tp" in the order of the mesh, "world"; NULL = any */
    /* "blocks.*.mlp": these modules and all below them; each name is a shell pattern, as in sherd_parallelize. "" = any
     * module; NULL = also what no module did */
    const char *module;
    sherd_comm_direction direction;
} sherd_comm_filter;

/**
 * How many calls there were since the last sherd_comm_reset, for a test to compare with how many there should be.
 *
 *     sherd_comm_filter mlp = {"all_reduce", "tp", "blocks.*.mlp", SHERD_COMM_FORWARD};
 *     assert(sherd_comm_calls(world, &mlp) == blocks);
 *
 * Modules are known by their paths, also when they are gone. Of more than 4096 paths, the later ones count as no module.
 *
 * @local
 * @shapes filter: NULL = all zero
 * @errors none; -1 for a filter that can not mean anything here, so that a misspelt one is no 0: an op that there is not, axes
 *         that no mesh has in this order, a module that none which was ever called is; 0 for a NULL world
 */
SHERD_API int64_t sherd_comm_calls(const sherd_world *world, const sherd_comm_filter *filter);

/** How many bytes this rank received in these calls; otherwise as sherd_comm_calls. @local @errors none; -1 and 0 as there */
SHERD_API int64_t sherd_comm_bytes(const sherd_world *world, const sherd_comm_filter *filter);

/*
 * The list of the last redistributions, asked for or made by an operator that needs its operands elsewhere; kept on request
 * only. Of each its plan is held, so what the list takes does not depend on tensors.
 */
typedef struct sherd_move_entry {
    const char *from, *to;  /* "[8(x),4] on (x=2)"; NULL where there is no entry */
    const char *trace;      /* the states from first to last, as in sherd_plan_trace: "S(0)R->RR" */
    sherd_dtype dtype;      /* in which it moved */
    int64_t bytes_received; /* by this rank */
    int64_t bytes_total;    /* by all ranks together */
    const char *module;     /* the path of the module that ran; NULL = none */
    bool backward;          /* as in sherd_comm_direction */
} sherd_move_entry;

enum { SHERD_MAX_MOVES = 65536 }; /* in the list */

/**
 * Keep the last `count` moves from now on, beginning with none; 0 = keep no list, as at first.
 *
 * @local
 * @errors EINVAL count negative; ELIMIT count above SHERD_MAX_MOVES; ENOMEM, then the list is as it was
 */
SHERD_CALL sherd_status sherd_moves_keep(sherd_world *world, int count);

/** How many moves are in the list. @local @errors none */
SHERD_API int sherd_moves_count(const sherd_world *world);

/**
 * The i-th move in the list, 0 = the oldest; all zero if there is none. One that was begun is in it from then on.
 *
 * @local   @owns texts are borrowed until the move leaves the list   @errors none
 */
SHERD_API sherd_move_entry sherd_moves_get(const sherd_world *world, int i);

SHERD_END

#endif
