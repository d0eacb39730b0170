/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms above see of a world: its memory, its calls, its alarm, and a place for their own state.
 * No room above sees a peer's address.
 */
#ifndef SHERD__WORLD_H
#define SHERD__WORLD_H

#include "kernels/kernels.h"
#include "plan/plan.h"
#include "sherd/comm.h"
#include "sherd/world.h"

sherd__heap *sherd__world_heap(sherd_world *world);
sherd__space *sherd__world_space(sherd_world *world);
sherd__diag *sherd__world_diag(sherd_world *world); /* NULL of NULL: nobody to tell */
const sherd__kernel_set *sherd__world_kernels(const sherd_world *world);
/* The world of a space. */
sherd_world *sherd__space_world(const sherd__space *space);

/* ---- the rooms' own state ------------------------------------------------------------------- */

typedef enum sherd__room {
    SHERD__ROOM_TENSOR,
    SHERD__ROOM_AUTOGRAD,
    SHERD__ROOM_OPS,
    SHERD__ROOM_NN,
    SHERD__ROOM_PARALLEL,
    SHERD__ROOMS
} sherd__room;

void *sherd__world_state(const sherd_world *world, sherd__room room);
/* `destroy` runs when the world closes, highest room first. Only while there is no state yet. */
void sherd__world_set_state(sherd_world *world, sherd__room room, void *state,
                            void (*destroy)(sherd_world *world, void *state));

/* SHERD__RESERVE_BYTES of zeroes, 64-byte aligned, that exist as long as the world: for the tensor room's failed tensor. */
enum { SHERD__RESERVE_BYTES = 1024 };
void *sherd__world_reserve(sherd_world *world);

/* ---- the alarm ------------------------------------------------------------------------------ */

/* Raise the alarm: write the text and end all waits of all ranks with it. The first one wins. Returns `status`. */
sherd_status sherd__raise(sherd_world *world, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Raise it for what is already in the world's diag (written by a lower room). */
void sherd__raise_diag(sherd_world *world);
/*
 * A failure that stays local (of plain tensors) until a distributed operator meets it: kept in the diag and
 * reported by the next check in any case.
 */
sherd_status sherd__fail_locally(sherd_world *world, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Raise the alarm for a failure that was kept local, if there is one. */
void sherd__raise_local(sherd_world *world);
/* Whether the alarm is up or a rank has died: then nothing is to be published until the check. One load. */
bool sherd__alarmed(const sherd_world *world);

/* ---- memory that peers can read ------------------------------------------------------------- */

/*
 * A piece of this rank's region, 64-byte aligned; recycled for ever. It carries its tickets: which calls
 * published it, and which call in flight writes it.
 */
typedef struct sherd__block sherd__block;

/* A block of at least `bytes`, contents undefined, settled. NULL (alarm raised, `distributed`, or failed locally) for lack of memory. */
sherd__block *sherd__block_take(sherd_world *world, int64_t bytes, bool distributed);
/* Give it back; peers may still be reading, calls in flight may still write it. NULL is a no-op. */
void sherd__block_give(sherd_world *world, sherd__block *block);
/* The bytes. NULL block: NULL. Settle first. */
void *sherd__block_data(const sherd__block *block);
int64_t sherd__block_bytes(const sherd__block *block);
/* Wait until it may be read: the call in flight that fills it is finished. False: ended by the alarm. */
bool sherd__block_readable(sherd_world *world, sherd__block *block);
/* Wait until it may be written: also no peer reads it, and this rank's own begun calls on it are done. False: ended by the alarm. */
bool sherd__block_writable(sherd_world *world, sherd__block *block);

/* ---- calls ---------------------------------------------------------------------------------- */

/* One tensor in a call. The source is strided; the result is contiguous and has the schedule's target box. */
typedef struct sherd__move {
    const sherd_plan *plan;
    int step;
    sherd_dtype dtype;
    sherd__block *source;
    int64_t source_offset; /* elements */
    /* elements, of the tensor's dims; ALL_REDUCE needs a contiguous source */
    const int64_t *source_stride;
    sherd__block *result;
    int64_t result_offset; /* elements */
} sherd__move;

/*
 * Run one step each of `count` tensors as one call of one group: all moves are on one mesh, of steps with the same axes
 * (none of them 0: a slice is no call and is run with sherd__slice), and a rank outside of the mesh must not call; or all go
 * from one mesh to another, then the world is the group, and a rank in neither mesh calls without data. `begin`:
 * return once published; sources and results carry tickets. False: the alarm is up (raised here or by a peer).
 */
bool sherd__call(sherd_world *world, const char *name, const sherd__move *moves, int count,
                 bool begin);

/* Run a SLICE or PARTITION step: local. False: the alarm ended a wait. */
bool sherd__slice(sherd_world *world, const sherd__move *move);

/*
 * All ranks of a mesh tell each other `words` numbers: all[ranks of the mesh * words], row-major by mesh
 * coordinate. False: the alarm is up.
 */
bool sherd__share(sherd_world *world, const sherd_mesh *mesh, const char *name, const int64_t *mine,
                  int words, int64_t *all);

/*
 * All ranks of the world agree on one status: every rank passes its own (text in the diag if it failed) and the hash of
 * its arguments; all get the same back. EDIFFER where hashes differ. Does not lower the alarm.
 */
sherd_status sherd__agree(sherd_world *world, sherd_status mine, uint64_t arguments,
                          const char *name);

/* Whether this rank has coordinates in the mesh. */
bool sherd__in_mesh(const sherd_world *world, const sherd_mesh *mesh);

#endif
