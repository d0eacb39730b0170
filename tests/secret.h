/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of what happens when a rank fails between what others have done: ranks are threads. */
#ifndef SHERD_TESTS_SECRET_H
#define SHERD_TESTS_SECRET_H

#include "tensors.h"

#include <sched.h>
#include <stdatomic.h>

/* Where ranks meet without the world's knowledge: how many have come, by the number of ranks. */
static atomic_int arrived[CHECK_RANKS + 1];

static inline void meet_in_secret(int ranks)
{
    int round = atomic_fetch_add(&arrived[ranks], 1) / ranks;

    while (atomic_load(&arrived[ranks]) < (round + 1) * ranks)
        sched_yield();
}

/*
 * All do something with t; but the last rank fails before it does, and the others do not learn of
 * that before they have done it. The check fails on all.
 */
static inline void fail_between(sherd_world *world, void (*act)(void *payload), void *payload)
{
    int ranks = sherd_world_ranks(world);
    bool late = sherd_world_rank(world) == ranks - 1;

    if (!late)
        act(payload);
    meet_in_secret(ranks);
    if (late)
        sherd_world_fail(world, SHERD_EINVAL, "it stops");
    meet_in_secret(ranks);
    if (late)
        act(payload);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

#endif
