/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of what happens when a rank fails between what others have done. */
#ifndef SHERD_TESTS_SECRET_H
#define SHERD_TESTS_SECRET_H

#include "tensors.h"

#include <sched.h>
#include <stdatomic.h>

enum { SECRET_ROUND = 1 << 12 }; /* more than there are ranks */

/*
 * Ranks, threads or processes, meet without the world's knowledge, in the word that all see: how
 * many have come, and above it the round, so that the next world begins where this one ended.
 */
static inline void meet_in_secret(int ranks)
{
    atomic_int *word = &check_state->mark;
    int before = atomic_fetch_add(word, 1), round = before / SECRET_ROUND;

    if (before % SECRET_ROUND == ranks - 1)
        atomic_fetch_add(word, SECRET_ROUND - ranks);
    while (atomic_load(word) / SECRET_ROUND == round)
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
