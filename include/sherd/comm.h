/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm log: what was communicated on this rank, counted by kind of call, mesh axes, running
 * module, and direction (forward or backward). The kinds are the plan steps that send something
 * (sherd_step_kind_name, without "slice" and "partition"), and "share", by which ranks exchange a
 * few numbers (sherd_from_local, the norm of gradients, sherd_world_most).
 */
#ifndef SHERD_COMM_H
#define SHERD_COMM_H

#include "dtype.h"
#include "layout.h"

SHERD_BEGIN

typedef struct sherd_comm_entry {
    /*
     * "exchange", "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "reduce_exchange",
     * "share"
     */
    const char *op;
    const char *axes; /* "tp", "dp,tp"; "world" between meshes, and of all ranks */
    int64_t calls;
    int64_t bytes_received;
    /* spent in the calls, waiting included; calls under 128 KiB are sampled, one in 16 */
    int64_t nanoseconds;
} sherd_comm_entry;

/**
 * How many entries the log has: one for each kind of call on each set of axes.
 *
 * @local   @errors none
 */
SHERD_API int sherd_comm_count(const sherd_world *world);

/**
 * The i-th entry; all zero if there is none.
 *
 * @local   @owns texts are borrowed from the world   @errors none
 */
SHERD_API sherd_comm_entry sherd_comm_get(const sherd_world *world, int i);

/** Clear the log. @local @errors none */
SHERD_API void sherd_comm_reset(sherd_world *world);

typedef enum sherd_comm_direction {
    SHERD_COMM_BOTH = 0,
    SHERD_COMM_FORWARD = 1,
    /*
     * Calls made by sherd_backward, also in modules that it runs again, and calls that settle
     * gradients later (sherd_grad, an optimizer).
     */
    SHERD_COMM_BACKWARD = 2
} sherd_comm_direction;

/*
 * Which calls to count; all zero = all. A call belongs to the innermost module that runs, its hooks
 * and styles included; in backward, to the module whose operator's gradient is computed or moved.
 */
typedef struct sherd_comm_filter {
    const char *op;   /* a name as in sherd_comm_entry; NULL = any */
    const char *axes; /* "tp", "dp,tp" in the order of the mesh, "world"; NULL = any */
    /*
     * "blocks.*.mlp": these modules and all below them; each name is a shell pattern, as in
     * sherd_parallelize. "" = any module; NULL = calls outside modules too.
     */
    const char *module;
    sherd_comm_direction direction;
} sherd_comm_filter;

/**
 * How many calls there were since the last sherd_comm_reset; for a test to compare with the
 * expected number.
 *
 *     sherd_comm_filter mlp = {"all_reduce", "tp", "blocks.*.mlp", SHERD_COMM_FORWARD};
 *     assert(sherd_comm_calls(world, &mlp) == blocks);
 *
 * Modules are identified by their paths, even after they are destroyed. Of more than 4096 paths,
 * the later ones count as no module.
 *
 * @local
 * @shapes filter: NULL = all zero
 * @errors none; -1 for a filter that cannot match, so that a misspelt one is not 0: an unknown op,
 *         axes that no mesh has in this order, a module pattern that fits no module that was ever
 *         called; 0 for a NULL world
 */
SHERD_API int64_t sherd_comm_calls(const sherd_world *world, const sherd_comm_filter *filter);

/**
 * How many bytes this rank received in these calls; otherwise as sherd_comm_calls.
 *
 * @local   @errors none; -1 and 0 as there
 */
SHERD_API int64_t sherd_comm_bytes(const sherd_world *world, const sherd_comm_filter *filter);

/*
 * One entry of the list of recent redistributions, whether made by the program or by an operator
 * for its operands. The list is kept on request only. It holds plans, no tensors, so its size does
 * not depend on them.
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
 * Keep a list of the last `count` moves from now on, initially empty; 0 = keep no list (the
 * default).
 *
 * @local
 * @errors EINVAL count negative; ELIMIT count above SHERD_MAX_MOVES; ENOMEM, and then the list does
 *         not change
 */
SHERD_CALL sherd_status sherd_moves_keep(sherd_world *world, int count);

/** How many moves are in the list. @local @errors none */
SHERD_API int sherd_moves_count(const sherd_world *world);

/**
 * The i-th move in the list, 0 = the oldest; all zero if there is none. A move that was begun is
 * listed from then on.
 *
 * @local   @owns texts are borrowed until the move leaves the list   @errors none
 */
SHERD_API sherd_move_entry sherd_moves_get(const sherd_world *world, int i);

SHERD_END

#endif
