/* SPDX-License-Identifier: Apache-2.0 */
/* The trace inside of this room; rooms above see sherd__trace_start and sherd__trace_add in
 * world.h. */
#ifndef SHERD__WORLD_TRACE_H
#define SHERD__WORLD_TRACE_H

#include "ranks.h"
#include "world.h"
#include "base/diag.h"

typedef struct sherd__trace sherd__trace;
struct sherd__wait;

bool sherd__trace_is_asked(void);

/*
 * Where SHERD_TRACE asks for a trace: empty its file, unless this job has done so. For whoever
 * starts ranks, before there are any. EINVAL if it can not be written.
 */
sherd_status sherd__trace_begin(sherd__diag *diag);
/* This rank's part of it, if one is asked for; EINVAL, ENOMEM. */
sherd_status sherd__trace_open(sherd_world *world);
/* Write what there is; no-ops without a trace. */
void sherd__trace_flush(sherd_world *world);
void sherd__trace_close(sherd_world *world);

/*
 * A wait that takes longer than spinning does: what it is for, noted when it becomes slow, and put
 * into the trace at its end. Whom it is for is looked at in each slow round, and the ranks that it
 * was for longest are told.
 */
typedef struct sherd__waiting {
    int64_t start, since, longest;
    sherd__ranks now, whom; /* since `since`; for `longest` */
    char name[200];
} sherd__waiting;
void sherd__trace_waiting(sherd_world *world, const struct sherd__wait *wait, sherd__waiting *w,
                          bool begins);
void sherd__trace_waited(sherd_world *world, sherd__waiting *w);

#endif
