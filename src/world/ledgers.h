/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c, difference.c, claims.c, opened.c, remains.c: what is done on meshes, as the files of
 * this room see it. Part of inside.h. */
#ifndef SHERD__WORLD_LEDGERS_H
#define SHERD__WORLD_LEDGERS_H

#include "inside.h"

/* What is wrong, as the last to come to a meeting finds it. */
typedef struct sherd__finding {
    char text[SHERD_ERROR_BYTES];
    sherd__difference difference;
} sherd__finding;

static inline uint64_t sherd__larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t sherd__smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What has been written is what all ranks have, or is lost by now. */
static inline void sherd__forget_writes(sherd__ledger *ledger)
{
    ledger->writes = false;
    ledger->wrote.word[0] = ledger->since.word[0] = 0;
}

/* What a rank has told of its deeds. */
static inline const sherd__work *sherd__work_of(const sherd_world *world, int rank, int lane)
{
    return &sherd__lane_of(world, rank, lane)->work;
}

/* The leader of a rank's group in a lane; -1: it is in none. */
static inline int sherd__leader_of(const sherd_world *world, int rank, int lane)
{
    return atomic_load(&sherd__lane_of(world, rank, lane)->leader) - 1;
}

/* The ledger that is told in a lane. NULL for lack of memory. */
sherd__ledger *sherd__ledger_create(sherd_world *world, int lane);
/* Before arriving at a meeting: show the others what this rank has done; and, for a check, what it
 * claims to be equal. */
void sherd__ledgers_tell(sherd_world *world);
bool sherd__claims_make(sherd_world *world);
/*
 * A tensor that two ranks claim to be equal, and that is not as each wrote it last; of several, the
 * one that is so by the oldest deed. NULL: there is none.
 */
const sherd__claim *sherd__claim_unequal(const sherd_world *world, int lane, int a, int b);
/* Whether two ranks claim the very same. */
bool sherd__claims_same(const sherd_world *world, int lane, int a, int b);
/*
 * Two ranks that have not done the same on some mesh, or (SHERD_VERIFY) have not what they claim;
 * `out` says what. `other`: only if one did another thing in the place of a thing, not if it merely
 * did more. Costs a look at each rank in each lane that is touched.
 */
bool sherd__ledgers_differ(const sherd_world *world, bool other, sherd__finding *out);
/* Whether all ranks show the same deeds and openings on each mesh that is touched. */
bool sherd__ledgers_alike(const sherd_world *world);
/*
 * difference.c. After a verdict that is about a difference: say in this rank's post what it did,
 * before it has taken the verdict; and when all have, add to the text what differs.
 */
void sherd__difference_tell(sherd_world *world, const sherd__difference *difference);
void sherd__difference_add(sherd_world *world, const sherd__difference *difference);
/*
 * difference.c: remember why a function of this rank alone has failed since the last meeting,
 * before another text takes its place; add such reasons, of all ranks, to a text; forget them, as
 * all have the same verdict.
 */
void sherd__refusal_keep(sherd_world *world);
void sherd__refusals_add(const sherd_world *world, char *text, size_t room);
void sherd__refusal_forget(sherd_world *world, bool passed);
/* opened.c: show what this rank has opened for writing; forget it, as a check has passed (it is to
 * be told `again`), or failed. */
void sherd__openings_tell(sherd_world *world);
void sherd__openings_passed(sherd_world *world, sherd__lane_set *again);
void sherd__openings_failed(sherd_world *world);
bool sherd__openings_same(const sherd_world *world, int lane, int a, int b);
/* Whether two ranks that show the same have also made as many calls since the last good check: then
 * neither can still open what the other cannot. */
bool sherd__openings_past_alike(const sherd_world *world, int lane, int a, int b);
/* Whether two ranks have opened other tensors, as sherd__ledgers_differ. */
bool sherd__openings_differ(const sherd_world *world, int lane, int a, int b, bool other,
                            sherd__finding *out);
/* What some have opened and others have not is lost, with what was done behind it, of the mesh that
 * is told in a lane. */
void sherd__openings_lose(const sherd_world *world, int lane, sherd__remains *out);
/* A check has passed; or failed: before any rank goes on from it. `dropped`: with the calls that
 * are open. `finished`: with what was written by pointers on all ranks. */
void sherd__ledgers_passed(sherd_world *world);
/* An agreement of all ranks has passed, at which they showed the same: what they did before it is
 * there on all, however far apart they are when a later step fails. */
void sherd__ledgers_agreed(sherd_world *world);
void sherd__ledgers_failed(sherd_world *world, bool dropped, bool finished);
/* What a failed check leaves on the mesh that is told in a lane, by what its ranks have told. */
void sherd__remains_find(const sherd_world *world, int lane, bool finished, sherd__remains *out);

#endif
