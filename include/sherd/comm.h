/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm log: what moved on this rank, counted by kind and axes. The kinds are those of a plan's steps in which something
 * travels (sherd_step_kind_name), so neither "slice" nor "partition"; and "share", where ranks tell each other a few
 * numbers (sherd_from_local, the norm of gradients).
 */
#ifndef SHERD_COMM_H
#define SHERD_COMM_H

#include "layout.h"

SHERD_BEGIN

typedef struct sherd_comm_entry {
    /* "exchange", "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "reduce_exchange", "share" */
    const char *op;
    const char *axes; /* "tp", "dp,tp"; "world" where a tensor goes to another mesh */
    int64_t calls;
    int64_t bytes_received;
    int64_t nanoseconds; /* in the call, waiting included */
} sherd_comm_entry;

/** How many kinds of calls the log has. @local @errors none */
SHERD_API int sherd_comm_count(const sherd_world *world);

/** The i-th entry; all zero if there is none. @local @owns texts are borrowed from the world @errors none */
SHERD_API sherd_comm_entry sherd_comm_get(const sherd_world *world, int i);

/** Start the log again from zero. @local @errors none */
SHERD_API void sherd_comm_reset(sherd_world *world);

SHERD_END

#endif
