/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport: how ranks reach each other's data. One file, one table. Everything above this room
 * goes through the functions of world.h, which look here; a member that is NULL is answered there
 * (ENOTSUP). Failures raise the alarm; `false` and NULL mean that it is up.
 */
#ifndef SHERD__WORLD_TRANSPORT_H
#define SHERD__WORLD_TRANSPORT_H

#include "ranks.h"
#include "world.h"

struct sherd__group;

/*
 * Numbers that the members of a group tell each other: rank r's go to all[place[r] * words]. With
 * `from`, only these ranks are waited for, and only those of `to` read this one's.
 */
typedef struct sherd__sharing {
    const int64_t *mine; /* [words] */
    int words;
    int64_t *all;
    const int16_t *place;          /* [SHERD_MAX_RANKS] */
    const sherd__ranks *from, *to; /* other ranks; NULL: all others */
    uint64_t what;                 /* what all must agree on besides, */
    const char *text;              /* and in words, for messages; or NULL */
    /* Done as soon as all numbers are there, before this rank is said to have left; or NULL. It
     * makes no call and raises nothing. */
    void (*then)(sherd_world *world, void *context);
    void *context;
} sherd__sharing;

typedef struct sherd__transport {
    const char *name;
    bool reads_in_place; /* peers read a tensor where it lies; else it is packed */

    /* Raise the alarm. Local, never blocks, allocates nothing. */
    void (*raise)(sherd_world *world, sherd_status status, const char *text);

    /* Memory that peers can read; the contracts are those of sherd__block_take and so on in
     * world.h. May block only where memory is short. NULL and !*stopped: no memory (nothing is
     * raised). */
    sherd__block *(*take)(sherd_world *world, int64_t bytes, bool *stopped);
    /* Local, never blocks. */
    void (*give)(sherd_world *world, sherd__block *block);
    /* Local; block until calls in flight allow it. */
    bool (*readable)(sherd_world *world, sherd__block *block);
    bool (*writable)(sherd_world *world, sherd__block *block);
    /* Local, never blocks: goes on with calls in flight, then says whether `readable` would return
     * at once. */
    bool (*ready)(sherd_world *world, sherd__block *block);

    /* One step each of `count` tensors on one group of more than one rank; collective on the
     * group. */
    bool (*call)(sherd_world *world, struct sherd__group *group, const char *name,
                 const sherd__move *moves, int count, bool begin);
    /* Tell all members some numbers, and learn theirs. Collective on the group. */
    bool (*share)(sherd_world *world, struct sherd__group *group, const char *name,
                  const sherd__sharing *numbers);
    /* Meet all ranks of the world and get one status for all; kinds: sherd__meeting. */
    sherd_status (*meet)(sherd_world *world, int kind, sherd_status mine, uint64_t arguments,
                         const char *name);
} sherd__transport;

extern const sherd__transport sherd__arena_transport; /* ranks are processes or threads */
extern const sherd__transport sherd__mpi_transport;   /* some are far: remote.h */
extern const sherd__transport sherd__paper_transport; /* no memory, no peers */

#endif
