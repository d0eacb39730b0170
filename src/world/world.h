/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the rooms above see of a world: its memory, its calls, its alarm, and a place for their own
 * state. No room above sees a peer's address.
 */
#ifndef SHERD__WORLD_WORLD_H
#define SHERD__WORLD_WORLD_H

#include "base/hash.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "layout/mesh.h"
#include "plan/plan.h"
#include "world/marks.h"
#include "sherd/comm.h"
#include "sherd/world.h"

sherd__space *sherd__world_space(sherd_world *world);
sherd__diag *sherd__world_diag(sherd_world *world); /* NULL of NULL: nobody to tell */
const sherd__kernel_set *sherd__world_kernels(const sherd_world *world);
/* This rank's GPU; NULL: tensors are computed with on the CPU. */
sherd__device *sherd__world_device(const sherd_world *world);
/*
 * Whether a step goes from one GPU's memory to another's: the ranks that call it have GPUs that
 * reach each other, and share the arena. They all find the same. `among` as in sherd__move. A rank
 * outside the step's meshes finds nothing.
 */
bool sherd__goes_there(sherd_world *world, const sherd_step *step, const sherd_mesh *among);
/* Whether all steps on a mesh do. */
bool sherd__all_go_there(sherd_world *world, const sherd_mesh *mesh);
/* Whether it works, and has left nothing out for lack of memory; if not, the alarm is raised. True
 * without one. */
bool sherd__device_sound(sherd_world *world);
int64_t sherd__now(void); /* nanoseconds, of a clock that only goes on */
/* The world of a space. */
sherd_world *sherd__space_world(const sherd__space *space);

/*
 * Read a price file; `expected` completes the error text if the file cannot be read. EINVAL,
 * ENOMEM; then *out does not change.
 */
sherd_status sherd__price_load(sherd_price *out, sherd__heap *heap, sherd__diag *diag,
                               const char *path, const char *expected);

/* ---- the rooms' own state ------------------------------------------------------------------- */

typedef enum sherd__room {
    SHERD__ROOM_TENSOR,
    SHERD__ROOM_AUTOGRAD,
    SHERD__ROOM_OPS,
    SHERD__ROOM_PARALLEL,
    SHERD__ROOM_CHANNELS, /* of parallel/, too */
    SHERD__ROOM_IO,
    SHERD__ROOMS
} sherd__room;

/*
 * How a world begins. Every function of the rooms above asks for these, some ten times in a small
 * call, so they are read without one.
 */
typedef struct sherd__world_head {
    sherd__heap heap;
    void *state[SHERD__ROOMS];
} sherd__world_head;

static inline sherd__heap *sherd__world_heap(sherd_world *world)
{
    return &((sherd__world_head *)(void *)world)->heap;
}

static inline void *sherd__world_state(const sherd_world *world, sherd__room room)
{
    return ((const sherd__world_head *)(const void *)world)->state[room];
}
/* `destroy` runs when the world closes, highest room first. Only while there is no state yet. */
void sherd__world_set_state(sherd_world *world, sherd__room room, void *state,
                            void (*destroy)(sherd_world *world, void *state));

/* SHERD__RESERVE_BYTES of zeros, 64-byte aligned, allocated with the world: for the tensor room. */
enum { SHERD__RESERVE_BYTES = 16 << 10 };
void *sherd__world_reserve(sherd_world *world);

/* ---- the alarm ------------------------------------------------------------------------------ */

/*
 * Raise the alarm: write the text, and end all waits of all ranks with it. The first one wins.
 * Returns `status`.
 */
sherd_status sherd__raise(sherd_world *world, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Raise it with the failure that a lower room has written to the world's diag. */
void sherd__raise_diag(sherd_world *world);

/*
 * A failure of plain tensors stays on this rank until a distributed operator meets it: it is kept
 * in the diag and reported by the next check at the latest.
 */
sherd_status sherd__fail_locally(sherd_world *world, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Raise the alarm for a failure that was kept on this rank, if there is one. */
void sherd__raise_local(sherd_world *world);
/* Whether a failure was kept on this rank since the last check. */
bool sherd__has_failed_locally(const sherd_world *world);

/*
 * Whether the alarm is raised or a rank has died: then nothing may be published until the check.
 * One load.
 */
bool sherd__alarmed(const sherd_world *world);

/*
 * How many checks have failed. What a rank has learned from the order of calls is void from one to
 * the next: ranks see the alarm at different places.
 */
uint64_t sherd__failed_checks(const sherd_world *world);

/* ---- what is done on a mesh ------------------------------------------------------------------ */

enum { SHERD__DEEDS = 64, SHERD__DEED_NAMES = 64 };

/*
 * What a failed check leaves of what was done on a mesh: of all its ranks, and the same on all of
 * them.
 */
enum { SHERD__LOST_FLIGHTS = 64 };
typedef struct sherd__remains {
    uint64_t kept; /* deeds up to this one are there on all ranks */
    uint64_t most; /* how many any rank has done */
    /* Deeds whose results were in flight on some rank: these, and all from `from` on. */
    uint64_t from;
    int flights;
    uint64_t flight[SHERD__LOST_FLIGHTS];
    /* What deeds have written that not all ranks have done, each in a set of its own; and what
     * ranks have written that are further ahead than they show. */
    int sets;
    sherd__marks lost[SHERD__DEEDS];
    sherd__many_marks lost_since;
} sherd__remains;

/*
 * The ledger of a mesh: a running hash of all deeds, that is, of everything that this rank has done
 * on the mesh, local work included. All ranks of the mesh must do the same: the hash is part of the
 * history in their records, and a check compares it. A deed that failed is not in it. Every
 * operator adds a deed, so the common path is in this header.
 */
typedef struct sherd__ledger {
    uint64_t count; /* deeds; never falls */
    uint64_t hash;  /* of all since the last failed check */
    /* Where a deed notes that there has been one since the last good check: sherd__lane_set. */
    uint64_t *used, used_bit;
    bool paused;
    struct {
        uint64_t hash;
        const char *name;
        sherd__marks wrote; /* tensors that it has written in place */
    } last[SHERD__DEEDS];
    struct {
        uint64_t hash;
        const char *name;
    } known[SHERD__DEED_NAMES]; /* hashes of names, found by their addresses */
    bool writes;                /* `wrote` is not empty */
    sherd__marks wrote;         /* what has been written for the next deed */
    sherd__many_marks since;    /* and all that was since the last check */
    uint64_t good;              /* count at the last check that passed; equal on all ranks */
    uint64_t told;              /* count at the last meeting */
    bool dropped;               /* a failed check has dropped the calls that were open */
    sherd__remains remains;     /* of the last check that failed */
} sherd__ledger;

/* The hash of a name's text, cached in the ledger. */
uint64_t sherd__deed_name(sherd__ledger *ledger, const char *name);

/*
 * Add a deed on a root mesh: static `name`, and a hash of what was done and with which tensors.
 * Returns its number, from 1; *identity is the hash of it and all before. 0: this rank is not in
 * the mesh, or in a paper world. While deeds are paused: the last number, and no identity (0).
 */
static inline uint64_t sherd__deed_add(const sherd_mesh *mesh, const char *name, uint64_t what,
                                       uint64_t *identity)
{
    sherd__ledger *ledger = mesh->ledger;
    size_t place = (uintptr_t)name / 8 % SHERD__DEED_NAMES;

    *identity = 0;
    if (!ledger || ledger->paused)
        return ledger ? ledger->count : 0;
    uint64_t hash = ledger->known[place].name == name ? ledger->known[place].hash
                                                      : sherd__deed_name(ledger, name);
    *ledger->used |= ledger->used_bit;
    ledger->hash = *identity = sherd__hash_word(ledger->hash, what ^ hash);
    uint64_t number = ++ledger->count;
    ledger->last[number % SHERD__DEEDS].hash = ledger->hash;
    ledger->last[number % SHERD__DEEDS].name = name;
    ledger->last[number % SHERD__DEEDS].wrote.word[0] = 0;
    if (ledger->writes) {
        ledger->last[number % SHERD__DEEDS].wrote = ledger->wrote;
        ledger->writes = false;
        ledger->wrote.word[0] = 0;
    }
    return number;
}

/*
 * A tensor of this identity, the same on all ranks, is written in place: by the next deed, unless a
 * check passes before.
 */
static inline void sherd__deed_writes(const sherd_mesh *mesh, uint64_t identity)
{
    sherd__ledger *ledger = mesh->ledger;

    if (!ledger)
        return;
    *ledger->used |= ledger->used_bit;
    ledger->writes = true;
    sherd__mark_put(ledger->wrote.word, SHERD__MARKS, identity);
    sherd__mark_put(ledger->since.word, SHERD__MANY_MARKS, identity);
}
/* The number of the last deed; 0 if there is no ledger. */
uint64_t sherd__deed_count(const sherd_mesh *mesh);

/*
 * Stop or resume adding deeds, for work on plain tensors that are disguised as distributed ones.
 * Returns the previous setting.
 */
bool sherd__deeds_pause(const sherd_mesh *mesh, bool pause);

/* What the tensor room does at checks, and knows of a world that is to be closed. */
typedef struct sherd__watcher {
    /* SHERD_VERIFY, before a check with no alarm: claim what is said to be equal */
    void (*before_check)(sherd_world *world);
    void (*after_check)(sherd_world *world, bool good);
    /* any meeting has failed: forget what not all ranks have; see sherd__deed_loss */
    void (*after_failure)(sherd_world *world);
    /* whether a function of the user's is running, that would go on in a world that is closed */
    bool (*calls_back)(sherd_world *world);
    /*
     * a failed check found that other ranks did another deed of the name of this one: what it was,
     * as lines of "what\tits value\ta key", where equal keys mean the same value. Before
     * after_failure; takes no memory. Writes an empty text if it is not known any more.
     */
    void (*tell_deed)(sherd_world *world, const sherd_mesh *mesh, uint64_t deed, char *text,
                      size_t room);
} sherd__watcher;
void sherd__world_watch(sherd_world *world, const sherd__watcher *watcher);

/* The claim that a tensor is equal on all ranks of a group. */
typedef struct sherd__claim {
    uint64_t made, identity; /* the deed that made it; which of its tensors */
    uint64_t content;        /* hash of its elements */
    char text[40];
} sherd__claim;

/* Whether SHERD_VERIFY is set. */
bool sherd__verifies(const sherd_world *world);

/*
 * Claim that a tensor is equal on all ranks that differ only in `axes` of the mesh. Only in
 * before_check, in any order. False if memory runs out.
 */
bool sherd__claim_equal(sherd_world *world, const sherd_mesh *mesh, unsigned axes,
                        const sherd__claim *claim);
typedef enum sherd__loss {
    SHERD__KEPT,
    SHERD__NOT_ALL, /* not all ranks have done the deed */
    SHERD__DROPPED  /* they have, but its result was in flight on some */
} sherd__loss;
/* In after_failure: what became of deed number `made` on a mesh. */
sherd__loss sherd__deed_loss(const sherd_world *world, const sherd_mesh *mesh, uint64_t made);
/* In after_failure: whether a rank has written a tensor by a deed that not all have done. */
bool sherd__deed_wrote(const sherd_mesh *mesh, uint64_t identity);
/* The i-th mesh of the world, root meshes in the order in which all ranks made them; NULL: none. */
const sherd_mesh *sherd__mesh_at(const sherd_world *world, int i);

/* ---- memory that peers can read ------------------------------------------------------------- */

/*
 * A block of this rank's region, 64-byte aligned; blocks are recycled. It carries its tickets:
 * which calls have published it, and which call in flight writes it.
 */
typedef struct sherd__block sherd__block;

/*
 * A settled block of at least `bytes`, uninitialised. NULL if memory runs out (the alarm is raised
 * if `distributed`; otherwise failed on this rank).
 */
sherd__block *sherd__block_take(sherd_world *world, int64_t bytes, bool distributed);
/* Give it back; peers may still be reading it, and calls in flight writing it. NULL is a no-op. */
void sherd__block_give(sherd_world *world, sherd__block *block);
/* Say what it is for, for the figures; at first it is OTHER. NULL is a no-op. */
void sherd__block_serves(sherd_world *world, sherd__block *block, sherd_memory_use use);
/* The bytes; NULL for NULL. Settle first. */
void *sherd__block_data(const sherd__block *block);
int64_t sherd__block_bytes(const sherd__block *block);
/* Note that a call writes the result of this deed on a mesh into the block. NULL is a no-op. */
void sherd__block_is_from(sherd__block *block, const sherd_mesh *mesh, uint64_t made);

/*
 * In after_failure: if that call was dropped on any rank, the block's contents are lost, even if
 * they have arrived here.
 */
void sherd__block_lose(sherd_world *world, sherd__block *block);
/* What it holds counts again. NULL is a no-op. */
void sherd__block_heal(sherd__block *block);

/*
 * Wait until it may be read: the call in flight that fills it has finished. False: ended by the
 * alarm.
 */
bool sherd__block_readable(sherd_world *world, sherd__block *block);

/*
 * Whether that would not wait, also because the alarm is raised. Progresses open calls; never
 * blocks. NULL: true.
 */
bool sherd__block_ready(sherd_world *world, sherd__block *block);

/*
 * Wait until it may be written: besides, no peer reads it, and this rank's own open calls on it
 * have finished. False: ended by the alarm.
 */
bool sherd__block_writable(sherd_world *world, sherd__block *block);

/* ---- dry worlds (clock.c, dry.c, dry_sent.c) ------------------------------------------------- */

/* Whether tensors have no contents here: sherd_world_dry. */
bool sherd__is_dry(const sherd_world *world);
/* sherd__now; in a dry world the time that would have passed since it was opened. */
int64_t sherd__clock(const sherd_world *world);
/*
 * In a dry world: true, and what the caller then leaves out is counted: its name (static), the
 * operations that compute in a dtype, and the bytes that they read and write. In others: false.
 */
bool sherd__left_out(sherd_world *world, const char *name, sherd_dtype dtype, double operations,
                     int64_t bytes);
/*
 * What a dry rank sends in a channel, for one that is run later; and what an earlier one has sent,
 * from *at on, which goes along. False: raised.
 */
bool sherd__dry_sends(sherd_world *world, const char *channel, const void *data, int64_t bytes);
bool sherd__dry_receives(sherd_world *world, const char *channel, int64_t *at, void *out,
                         int64_t bytes);
/* A training step has ended; no effect in other worlds. */
void sherd__dry_step(sherd_world *world);

/* ---- whose calls they are -------------------------------------------------------------------- */

/*
 * What runs on this rank, for the comm log: a number that the rooms above hand down when they enter
 * something, and put back when they leave. The number of a module's path (0 = none), and whether
 * gradients are on their way.
 */
typedef unsigned sherd__where;
enum { SHERD__BACKWARD = 1 };

static inline sherd__where sherd__where_at(int place, bool backward)
{
    return (sherd__where)place << 1 | (backward ? SHERD__BACKWARD : 0);
}
static inline int sherd__place_in(sherd__where where)
{
    return (int)(where >> 1);
}
sherd__where sherd__where_now(const sherd_world *world);
/* Returns the previous value. */
sherd__where sherd__where_set(sherd_world *world, sherd__where where);

/*
 * The number of a path, the same for equal paths; look it up once per module. 0: there are too
 * many; -1: no memory.
 */
int sherd__place_find(sherd_world *world, const char *path);
/* The path of a place; NULL if it is none. */
const char *sherd__place_path(const sherd_world *world, sherd__where where);

/* ---- the trace ------------------------------------------------------------------------------- */

enum { SHERD__EVENT_WORDS = 6 };

/*
 * Something that a rank has done. It is added to the trace when it ends, with the module that runs.
 */
typedef struct sherd__event {
    const char *kind, *name; /* kind: op, call, wait */
    int64_t start;
    struct {
        const char *key, *text; /* text NULL: the number; key NULL: no more */
        int64_t number;
    } word[SHERD__EVENT_WORDS];
} sherd__event;

/* sherd__now if there is a trace; otherwise 0. */
int64_t sherd__trace_start(const sherd_world *world);
/* Add an event that ends now. */
void sherd__trace_add(sherd_world *world, const sherd__event *event);
/* ---- calls ---------------------------------------------------------------------------------- */

/*
 * One tensor in a call. The source is strided; the result is contiguous and has the schedule's
 * target box.
 */
typedef struct sherd__move {
    const sherd_plan *plan;
    int step;
    sherd_dtype dtype;
    sherd__block *source;
    int64_t source_offset; /* elements */
    /* elements, of the tensor's dims; ALL_REDUCE needs a contiguous source */
    const int64_t *source_stride;
    sherd__block *result;
    int64_t result_offset;   /* elements */
    const sherd_mesh *among; /* between two meshes: whose ranks call; NULL = the world's */
    /* all moves of a call are in the memory of GPUs, or none; then these in place of the blocks */
    bool on_device;
    sherd__device_block *device_source, *device_result; /* NULL: no elements */
} sherd__move;

/*
 * Run one step for each of `count` tensors as one call of one group. Either all moves are on one
 * mesh, in steps with the same axes (never 0: a slice is not a call, and is run by sherd__slice),
 * and ranks outside the mesh must not call. Or all go from one mesh to another; then the group is
 * all ranks of `among` (NULL: the world), and a rank in neither mesh calls without data. `begin`:
 * return once published; sources and results carry tickets. False: the alarm is raised (here or by
 * a peer).
 */
bool sherd__call(sherd_world *world, const char *name, const sherd__move *moves, int count,
                 bool begin);

/* A tensor was moved by a plan: add it to the list of moves, if one is kept. */
void sherd__moves_add(sherd_world *world, const sherd_plan *plan, sherd_dtype dtype);

/* Run a SLICE or PARTITION step: local. False: the alarm ended a wait. */
bool sherd__slice(sherd_world *world, const sherd__move *move);

/*
 * All ranks of a mesh exchange `words` numbers: all[ranks of the mesh * words], row-major by mesh
 * coordinate. False: the alarm is raised.
 */
bool sherd__share(sherd_world *world, const sherd_mesh *mesh, const char *name, const int64_t *mine,
                  int words, int64_t *all);

/*
 * All ranks of the world agree on one status: every rank passes its own (with the text in the diag
 * if it failed) and the hash of its arguments; all get the same status back. EDIFFER if hashes
 * differ. Does not lower the alarm.
 */
sherd_status sherd__agree(sherd_world *world, sherd_status mine, uint64_t arguments,
                          const char *name);

/* Whether this rank and all of `inner` are ranks of the root mesh `outer`, in a world of both. */
bool sherd__mesh_holds(const sherd_world *world, const sherd_mesh *outer, const sherd_mesh *inner);

/* Whether this rank has coordinates in the mesh. */
bool sherd__in_mesh(const sherd_world *world, const sherd_mesh *mesh);

#endif
