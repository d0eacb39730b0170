/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm log: how often this rank has communicated and how many bytes it has received, by kind of
 * call, mesh axes, running module, and direction (forward or backward). The kinds are the plan
 * steps that send something (sherd_step_kind_name), and "share", an exchange of a few numbers (by
 * sherd_from_local, norms of gradients, sherd_world_most and others).
 *
 *     sherd_comm_reset(world);
 *     y = sherd_module_call(model, x);
 *     for (int i = 0; i < sherd_comm_count(world); i++) {
 *         sherd_comm_entry e = sherd_comm_get(world, i);
 *         printf("%s over %s: %lld calls\n", e.op, e.axes, (long long)e.calls);
 *     }
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
    const char *axes; /* "tp", "dp,tp"; "world" for a call of all ranks, or between meshes */
    int64_t calls;
    int64_t bytes_received;
    /* time in these calls, waiting included; of calls below 128 KiB one in 16 is measured */
    int64_t nanoseconds;
} sherd_comm_entry;

/**
 * How many entries the log has, one for each kind of call on each set of axes.
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
     * Calls that sherd_backward makes, also while it recomputes checkpointed modules, and calls
     * that settle gradients later (by sherd_grad or an optimizer).
     */
    SHERD_COMM_BACKWARD = 2
} sherd_comm_direction;

/*
 * Which calls to count; all zero = all. A call belongs to the innermost running module (its hooks
 * and styles included); in backward, to the module that ran the operator whose gradient is computed
 * or moved.
 */
typedef struct sherd_comm_filter {
    const char *op;   /* a name as in sherd_comm_entry; NULL = any */
    const char *axes; /* "tp", "dp,tp" in the order of the mesh, "world"; NULL = any */
    /*
     * "blocks.*.mlp": calls in these modules and all modules below them; each name is a shell
     * pattern, as in sherd_parallelize. "" = calls in any module; NULL = calls outside of modules
     * too.
     */
    const char *module;
    sherd_comm_direction direction;
} sherd_comm_filter;

/**
 * How many calls matched the filter since the last sherd_comm_reset. A test can compare it with the
 * number that it expects:
 *
 *     sherd_comm_filter mlp = {"all_reduce", "tp", "blocks.*.mlp", SHERD_COMM_FORWARD};
 *     assert(sherd_comm_calls(world, &mlp) == blocks);
 *
 * Modules are identified by their paths, even after they are destroyed. If there are more than 4096
 * paths, calls in further ones count as calls outside of modules.
 *
 * @local
 * @shapes filter: NULL = all zero
 * @errors none; -1 for a filter that cannot match, so that a misspelt one does not count as 0
 *         calls: an unknown `op`, `axes` that no mesh has in this order, a `module` that matches no
 *         module that was ever called; 0 for a NULL world
 */
SHERD_API int64_t sherd_comm_calls(const sherd_world *world, const sherd_comm_filter *filter);

/**
 * How many bytes this rank received in the calls that match; otherwise as sherd_comm_calls.
 *
 * @local   @errors none; -1 and 0 as sherd_comm_calls
 */
SHERD_API int64_t sherd_comm_bytes(const sherd_world *world, const sherd_comm_filter *filter);

/*
 * One entry of the list of recent moves: redistributions by the program, or by an operator for its
 * operands. The list is kept only if sherd_moves_keep asks for it. It holds no tensors, so its size
 * does not depend on theirs.
 */
typedef struct sherd_move_entry {
    const char *from, *to;  /* the layouts, "[8(x),4] on (x=2)"; NULL = there is no entry */
    const char *trace;      /* the layouts from first to last, as sherd_plan_trace writes them */
    sherd_dtype dtype;      /* of the data that moved */
    int64_t bytes_received; /* by this rank */
    int64_t bytes_total;    /* by all ranks together */
    const char *module;     /* the path of the innermost running module; NULL = none */
    bool backward;          /* the direction, as in sherd_comm_direction */
} sherd_move_entry;

enum { SHERD_MAX_MOVES = 65536 }; /* that the list may have */

/**
 * From now on keep a list of the last `count` moves, at first empty; 0 = keep no list (the
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
 * The i-th move in the list, i = 0 for the oldest; all zero if there is none. A move is listed when
 * it begins.
 *
 * @local   @owns texts are borrowed until the move leaves the list   @errors none
 */
SHERD_API sherd_move_entry sherd_moves_get(const sherd_world *world, int i);

/*
 * What happens to operands that an operator's rule wants in another layout (docs/operators.md).
 * Those that get there without a rank receiving anything, as from replicated to sharded, do so in
 * any case.
 */
typedef enum sherd_moving {
    SHERD_MOVES_SILENTLY = 0, /* they are redistributed */
    SHERD_MOVES_WARNING,      /* the same, and rank 0 warns on stderr, once for each operator */
    SHERD_MOVES_NEVER         /* they are refused (EINVAL), with both layouts and the bytes */
} sherd_moving;

/**
 * Set what happens to them, on this world, from now on (PyTorch: ExplicitRedistributionContext);
 * in backward, too, if it is set then. Not concerned is what an operator does by its nature, as the
 * neighbours of a convolution, the ring of attention, two numbers for each row of a softmax; nor
 * the gradient of a redistribution. All ranks must set the same.
 *
 *     sherd_op_move(world, SHERD_MOVES_NEVER);
 *     y = sherd_module_call(model, x);          // fails where a layout was not thought of
 *     sherd_op_move(world, SHERD_MOVES_SILENTLY);
 *     sherd_backward(y);
 *
 * @local   @errors EINVAL an unknown value; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_move(sherd_world *world, sherd_moving how);

SHERD_END

#endif
