/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the protocol calls where ranks are far: on machines that share no memory with this one
 * (remote.h). All of it is called only where world->remote is not NULL, or for ranks that are not
 * in world->near.
 */
#ifndef SHERD__WORLD_FAR_H
#define SHERD__WORLD_FAR_H

#include "inside.h"

/* The world has begun. */
void sherd__remote_begin(sherd_world *world);
/* It is about to go. */
void sherd__remote_leave(sherd_world *world);
/* A mesh has been made: whose lanes are whose. */
void sherd__remote_mesh(sherd_world *world, const sherd__member *member);
/* Receive and send what there is. True if anything has come. */
bool sherd__remote_poll(sherd_world *world);
/* Tell the others what they may be waiting for; before this rank sleeps, or meets. */
void sherd__remote_flush(sherd_world *world);
/* Sleep a little: nobody rings. Who has slept for a while says what it waits for. */
void sherd__remote_nap(sherd_world *world);

/*
 * A call has ended here, but what others read of it may still be on its way, and nothing brings it
 * on while this rank computes: go on for as long as it moves. Who is not there to receive is not
 * waited for.
 */
void sherd__remote_linger(sherd_world *world);
/* It waits no longer. */
void sherd__remote_wakes(sherd_world *world);

/* Pack what the others pull in a call that is about to be published; false: no memory. */
bool sherd__remote_pack(sherd_world *world, sherd__call_state *call);
/* It is published: send it. */
void sherd__remote_publish(sherd_world *world, const sherd__call_state *call);
/* This rank has read and written all: send slices, let go of what came. */
void sherd__remote_finish(sherd_world *world, sherd__call_state *call);
/* The call is dropped. */
void sherd__remote_drop(sherd_world *world, sherd__call_state *call);
/* Whether what a rank has sent for a call is of the size that it must have. */
bool sherd__remote_fits(sherd_world *world, const sherd__call_state *call, int rank);
/* Whether a rank has sent the data of a call in parts: what it has sent is in the result
 * already. */
bool sherd__remote_in_parts(const sherd_world *world, const sherd__call_state *call, int rank);
/* Where the i-th tensor's part for a pull lies; the words that a rank shares. */
sherd__source sherd__remote_source(const sherd_world *world, const sherd__call_state *call,
                                   const sherd__region *region, const sherd__pull *pull, int i);
const void *sherd__remote_words(const sherd_world *world, const sherd__call_state *call, int rank);
/* Whether a sharer's slices have come; then they are in the results. */
bool sherd__remote_slices(sherd_world *world, const sherd__call_state *call, int rank);

/* Tell all of this rank's alarm; of the end of the world. */
void sherd__remote_alarm(sherd_world *world, sherd_status status, const char *text);
void sherd__remote_end(sherd__arena *arena, uint64_t word);
/* SHERD_VERIFY, before a check: tell rank 0, which is far, what is claimed in a group. False: no
 * memory. */
bool sherd__remote_claims(sherd_world *world, const sherd__group *group);
/* Tell of this rank's arrival. True on the rank that decides, when all have come. */
bool sherd__remote_arrive(sherd_world *world, uint64_t round);
/* On the rank that decides: what it could not raise, as it was at this meeting. OK: nothing. */
sherd_status sherd__remote_lacks(sherd_world *world, char *text, size_t room);
/* Hand out the verdict of a round (`finished`: see sherd__ledgers_failed); say that it has been
 * acted upon. */
void sherd__remote_verdict(sherd_world *world, uint64_t round, bool failed, bool lower,
                           bool finished);
void sherd__remote_taken(sherd_world *world, uint64_t round, bool new_epoch);

#endif
