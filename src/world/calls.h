/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c, progress.c: the calls that this rank has made and not ended. Part of inside.h. */
#ifndef SHERD__WORLD_CALLS_H
#define SHERD__WORLD_CALLS_H

#include "inside.h"

/* A call object for `count` tensors; NULL: no memory. Give it back when it is in no list. */
sherd__call_state *sherd__call_take(sherd_world *world, int count);
void sherd__call_give(sherd_world *world, sherd__call_state *call);
/* Its tensors are free of it; `spoil`: what it would have filled is spoiled. */
void sherd__call_release(sherd__call_state *call, bool spoil);
/* An open call has ended. */
void sherd__call_end(sherd_world *world, sherd__call_state *call);
/* Drop all open calls: what they would have filled is spoiled. */
void sherd__drop_calls(sherd_world *world);

/* ---- progress.c ------------------------------------------------------------------------------ */

/* Do what can be done for the calls that this rank has open. True if anything was done. */
bool sherd__progress(sherd_world *world);
/* Try to end a call that is in no list: all that it awaits may be there. True: it has, and has rung
 * whom its record wakes too. */
bool sherd__end_at_once(sherd_world *world, sherd__call_state *call);
/* Run all regions of a task that needs no other rank. */
void sherd__run_local(sherd_world *world, const sherd__task *task);

#endif
