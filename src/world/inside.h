/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a world: what the files of this room share. */
#ifndef SHERD__WORLD_INSIDE_H
#define SHERD__WORLD_INSIDE_H

#include "arena.h"
#include "blocks.h"
#include "device_state.h"
#include "ends.h"
#include "limit.h"
#include "trace.h"
#include "transport.h"
#include "where.h"
#include "world.h"
#include "base/map.h"
#include "layout/mesh.h"

#include <stddef.h>

/* One row of the comm log. */
typedef struct sherd__tally {
    const char *op;
    char *axes; /* shared by the rows of all ops */
    int64_t calls, bytes, nanoseconds;
    int64_t usual; /* ns of the last little call that was timed, without long waits; 0 = none */
} sherd__tally;

/* When a call began. */
typedef struct sherd__timing {
    int64_t start;  /* 0 = it is not timed */
    int64_t waited; /* ns, of all long waits before */
} sherd__timing;

/* One move in the list of the last ones. */
typedef struct sherd__moved {
    const sherd_plan *plan; /* retained */
    sherd_dtype dtype;
    sherd__where where;
} sherd__moved;

/* A ring of `room`; 0 = no list is kept. */
typedef struct sherd__moves {
    sherd__moved *at;
    int room;
    int64_t count; /* of all that were put in */
} sherd__moves;

enum { SHERD__SHARE = SHERD_STEP_KINDS, SHERD__OPS }; /* step kinds, and "share" */

/* What this rank has put into a slot of its ring; kept here too, since reading the record itself
 * would wait for its line. */
typedef struct sherd__entry {
    uint64_t number, fingerprint;
    sherd__ranks readers; /* of the record: the slot is used again when they have left */
} sherd__entry;

/* The ranks that differ from this one only in some axes of a mesh. */
typedef struct sherd__group {
    const sherd_mesh *mesh; /* NULL: the world */
    unsigned axes;
    int lane;
    int leader; /* its lowest rank */
    int count;
    sherd__ranks members;
    char name[SHERD_MAX_AXES * SHERD__NAME_BYTES]; /* "dp,tp" */
    uint64_t base; /* what follows counts in the epoch of this base */
    uint64_t sequence, history;
    sherd__lane *own;
    sherd__entry entry[SHERD__DEPTH];
    sherd__block *parcels[SHERD__DEPTH]; /* of calls of more than one tensor */
    int tally;                           /* its first of SHERD__OPS rows in the log */
    sherd__opened opened;
    bool opens, opens_far; /* it has changed since it was told; since rank 0 was, which is far */
    sherd__claim *claim;   /* SHERD_VERIFY: what this rank claims at the next check */
    int64_t claims, claim_room;
    sherd__block *claimed; /* where the last ones were told */
} sherd__group;

/* The groups of one mesh, for every subset of axes; those of one rank have none. */
typedef struct sherd__member {
    const sherd_mesh *mesh;
    int lanes, first;                   /* lanes that the mesh takes */
    bool inside;                        /* this rank is in the mesh */
    sherd__group *group;                /* [lanes], if inside */
    sherd__group *widest;               /* of all axes; NULL if that is this rank alone */
    sherd__ledger *ledger;              /* where there is a widest group */
    const sherd_mesh *senders;          /* its calls go one way: oneway.h; NULL: they do not */
    int16_t index[1 << SHERD_MAX_AXES]; /* by bits of axes with extent > 1; -1 = no group */
} sherd__member;

/* One tensor of an open call. */
typedef struct sherd__task {
    const sherd_plan *plan; /* retained */
    const sherd__schedule *schedule;
    int step; /* of the plan */
    sherd_step_kind kind;
    bool sliced;  /* peers write into the result */
    bool reduces; /* some regions have several sources */
    size_t element_bytes;
    const sherd__kernels *kernels;
    sherd__block *source, *result;
    const unsigned char *source_data;
    unsigned char *result_data;
    int64_t stride[SHERD_MAX_DIMS];
} sherd__task;

/* A call that this rank has made and not finished. */
typedef struct sherd__call_state {
    struct sherd__call_state *next;
    sherd__group *group;
    sherd__record *record;
    uint64_t number, fingerprint, history;
    bool own;      /* my own part is still to be copied */
    bool finished; /* my reads and writes are done; counted in `left` */
    bool ended;    /* also what peers write is there */
    bool waited;   /* sherd__call waits for it and gives it back */
    int count, room;
    sherd__task *task;
    const sherd__sharing *numbers; /* of a share, which has no tasks; else NULL */
    struct sherd__sheet *slices; /* for what peers get of my results, where they share no memory */
    sherd__ranks awaited;        /* whose record is not seen yet */
    sherd__ranks sharers;        /* that write into my results: it ends when they have left */
} sherd__call_state;

/* What a record shows: see there. */
typedef struct sherd__shown {
    uint64_t number, history;
    sherd_status status;
    uint64_t parcels;
    size_t carried;
    const void *few; /* [carried] */
} sherd__shown;

typedef struct sherd__patience {
    int spins, most_spins; /* pauses of about 25 ns; how many now, and at most */
    int yields, most_yields, calm;
    int64_t sleep_ns;    /* the longest sleep before looking again */
    int64_t deadline_ns; /* SHERD_TIMEOUT */
} sherd__patience;

struct sherd_world {
    sherd__heap heap; /* this and the next as in sherd__world_head */
    void *state[SHERD__ROOMS];
    sherd__diag diag;
    sherd__diag local; /* a failure that was kept local; status 0 = none */
    sherd__space space;
    sherd_price price; /* of plans that name none, if it is one of links */
    const sherd__transport *transport;
    sherd__kernel_set kernels;
    int rank, ranks;
    int slot, slots; /* of this rank in the arena, and how many it has: in a dry world 0 of 1 */
    uint64_t seed;
    void (*destroy[SHERD__ROOMS])(sherd_world *world, void *state);
    unsigned char reserve[SHERD__RESERVE_BYTES + 64];

    /* Points into the arena; on paper, to the words below. */
    sherd__word *alarm, *death;
    sherd__word own_alarm, own_death;

    sherd__arena arena;
    bool owns_arena;
    int process;                    /* that opened it; one forked from it is no rank */
    const unsigned char *unforked;  /* 1; where a fork has copied the world 0: forked.c */
    bool lent;                      /* to a body of sherd_spawn, which will close it */
    struct sherd__carried *carried; /* NULL: no carrier has brought the ranks together */
    /* Leave what was there before the arena, at the close; NULL: there was nothing. */
    void (*leave)(sherd_world *world, bool well);
    sherd__pinning pinning; /* of a launched program: undone at the close */
    sherd__post *post;      /* my own */
    sherd__store store;
    struct sherd__remote *remote; /* NULL: all ranks share the arena */
    sherd__ranks near;            /* those that read this one's memory themselves */
    const sherd__arena *mirrors;  /* where the lanes of the others are; NULL: all are near */
    uint64_t base, round;         /* of this epoch's numbers; of the last meeting */
    uint64_t failed;              /* checks that have failed; equal on all ranks */
    bool arrived;                 /* at a meeting: raises nothing, makes no calls */
    bool quiet; /* has seen the alarm: is silent, and stores no `left`, until a check lowers it */
    sherd__diag closed; /* status not 0: the world stays closed with this status and text */
    sherd__patience patience;
    bool announced; /* my post's version is odd */

    sherd__group whole; /* all ranks: lane 0; steps between two meshes are its calls */
    sherd__member *mesh;
    int meshes, mesh_room, lanes;
    sherd__lane_set used;    /* by this rank, since the last good check */
    sherd__lane_set touched; /* by any rank, where this one decides a meeting */
    uint64_t *seen;          /* [seen_lanes][ranks]: `left` as it was seen last; it never falls */
    int seen_lanes;
    sherd__call_state *open, *spare; /* in the order in which they were made */
    int opens;
    sherd__source *sources; /* [source_room]: where the addends of a region lie */
    int source_room;
    struct sherd__picture *picture; /* [ranks]: ring.c */
    int64_t next_look;              /* ns: when rings are looked for again, in a large world */
    const char *called;             /* the name of the last call, which is static, and its hash */
    uint64_t called_hash;
    sherd__tally *tally;
    int tallies, tally_room;
    int64_t waited;      /* ns, in all waits that went beyond spinning */
    sherd__trace *trace; /* NULL: none is kept */
    sherd__counts counts;
    sherd__moves moves;
    sherd__watcher watcher;
    const char *doing, *within; /* doing.h; NULL: nothing that has a name */
    /* difference.c: why a function failed here since the last meeting; a hash of what that found */
    char refused[SHERD_ERROR_BYTES];
    uint64_t known_failure;
    bool verify;           /* SHERD_VERIFY */
    sherd__device *device; /* NULL: tensors are computed with on the CPU */
    sherd__device_state devices;
    struct sherd__dry *dry; /* NULL: what is asked for is done */
};

_Static_assert(offsetof(struct sherd_world, heap) == offsetof(sherd__world_head, heap) &&
                   offsetof(struct sherd_world, state) == offsetof(sherd__world_head, state),
               "a world begins with its head");

/* What this rank shows to the groups of a lane. */
static inline sherd__lane *sherd__own_lane(const sherd_world *world, int lane)
{
    return sherd__arena_lane(&world->arena, world->slot, lane);
}

/* ---- who is where ---------------------------------------------------------------------------- */

/* Whether a rank reads this one's memory itself, and this one its. */
static inline bool sherd__is_near(const sherd_world *world, int rank)
{
    return !world->mirrors || sherd__ranks_has(&world->near, rank);
}

static inline sherd__lane *sherd__lane_of(const sherd_world *world, int rank, int lane)
{
    return sherd__arena_lane(sherd__is_near(world, rank) ? &world->arena : world->mirrors, rank,
                             lane);
}

/* Where the record of a rank's call lies. */
static inline sherd__record *sherd__record_of(const sherd_world *world, int rank, int lane,
                                              uint64_t number)
{
    return &sherd__lane_of(world, rank, lane)->ring[sherd__slot_of(number)];
}

/*
 * Whether a rank has left a call. That it has left a later one was mostly seen before, so its line,
 * which it writes in each call, is read only where that does not say.
 */
static inline bool sherd__has_left(const sherd_world *world, int lane, int rank, uint64_t number)
{
    uint64_t *seen = &world->seen[(size_t)lane * (size_t)world->slots + (size_t)rank];

    if (*seen <= number)
        *seen = sherd__look(&sherd__lane_of(world, rank, lane)->left);
    return *seen > number;
}

/* Wake those of `ranks` that sleep, behind all that this rank has stored so far. */
static inline void sherd__wake(sherd_world *world, const sherd__ranks *ranks)
{
    sherd__fence();
    sherd__ring(&world->arena, ranks);
}

/* ---- alarm.c: the alarm and the end ---------------------------------------------------------- */

/* "rank 2 was killed by signal 9 (SIGKILL)" into out[room]. */
void sherd__end_text(const sherd__control *control, uint64_t word, char *out, size_t room);
const char *sherd__signal_name(int signal);
/* Close the world for all, unless it is closed; wakes everybody. */
void sherd__end_world(sherd__arena *arena, uint64_t word);
/* The same for a reason that this rank tells; the text goes to its post. */
void sherd__end_told(sherd_world *world, sherd_status status, const char *text);
void sherd__arena_raise(sherd_world *world, sherd_status status, const char *text);
/* The same by the rank that decides a meeting in which the alarm is not lowered: all have come, so
 * nobody else does anything until the verdict. */
void sherd__alarm_at_meeting(sherd_world *world, sherd_status status, const char *text);
/* The alarm's status and text; 0 if it is down. */
sherd_status sherd__alarm_read(const sherd_world *world, char *text, size_t room);

/* ---- store.c: blocks ------------------------------------------------------------------------- */

/* A region of `room` bytes at `base`; false for lack of memory. */
bool sherd__store_open(sherd_world *world, unsigned char *base, size_t room);
/* `done`: no other rank reads the region any more, so that its pages go back at once. */
void sherd__store_close(sherd_world *world, bool done);
/* A settled block of at least `bytes`. NULL: no memory, or (`*stopped`) the alarm ended a wait;
 * then nothing has changed. */
sherd__block *sherd__store_take(sherd_world *world, int64_t bytes, bool *stopped);
void sherd__store_give(sherd_world *world, sherd__block *block);
/* While memory is scarce, the pages of all that is free go back to the kernel, and so do those of
 * what is given back. */
void sherd__store_scarce(sherd_world *world, bool scarce);

/* ---- held.c: pages --------------------------------------------------------------------------- */

/* Begin with a region that takes no memory, whatever a former world left there; false for lack of
 * memory. */
bool sherd__chunks_open(sherd_world *world);
/* Give the kernel the pages of the whole region. */
void sherd__give_region(sherd_world *world);
/* The bytes from `at` on are about to be written: hold the chunks that they are in. False: that
 * would go beyond the limit. */
bool sherd__hold(sherd_world *world, const unsigned char *at, size_t bytes);
/* Give the kernel the pages of chunks that lie wholly in a free stretch, the last first, until it
 * has `most` bytes. Returns how many. */
size_t sherd__give_pages(sherd_world *world, const unsigned char *at, size_t bytes, size_t most);

/* ---- limit.c --------------------------------------------------------------------------------- */

uint64_t sherd__machine_memory(void); /* bytes */
/* Bring what this rank may have, or SHERD_ARENA_BYTES, into the limit of all. EINVAL a malformed
 * text. */
sherd_status sherd__limit_join(sherd_world *world);
/* What is the limit once all have joined; 0 bytes on paper. */
sherd__limit sherd__limit_of(const sherd_world *world);

/* ---- memory.c -------------------------------------------------------------------------------- */

sherd__block *sherd__arena_take(sherd_world *world, int64_t bytes, bool *stopped);
void sherd__arena_give(sherd_world *world, sherd__block *block);
/* As take and give, for the library's own use: not in the memory figures. NULL: no memory. */
sherd__block *sherd__take_quietly(sherd_world *world, int64_t bytes);
void sherd__give_quietly(sherd_world *world, sherd__block *block);

/* ---- ticket.c: when a block may be read, written, reused ------------------------------------- */

/* Note that `ranks` read (or write) the block in a call. */
void sherd__ticket_add(sherd_world *world, sherd__block *block, const sherd__group *group,
                       uint64_t number, const sherd__ranks *ranks);
/* Make sure that one more group's ticket fits on it, by waiting for all that there are. NULL is a
 * no-op. False: ended by the alarm. */
bool sherd__ticket_make_room(sherd_world *world, sherd__block *block, const sherd__group *group);
/* Whether nothing is open on it: no own call, and all readers have left. Never waits. */
bool sherd__settled(sherd_world *world, sherd__block *block);
bool sherd__arena_readable(sherd_world *world, sherd__block *block);
bool sherd__arena_writable(sherd_world *world, sherd__block *block);
bool sherd__arena_ready(sherd_world *world, sherd__block *block);
/* Wait until nothing is open on it, for recycling. False: ended by the alarm. */
bool sherd__settle(sherd_world *world, sherd__block *block);

/* ---- wait.c, post.c, stuck.c, ring.c: waiting ------------------------------------------------ */

/* What a wait is for, as others see it; told afresh in each slow round. */
typedef struct sherd__needs sherd__needs;

/* Ranks of `ranks` that lack (a record or `left`, not MISFIT) in a call; nothing if none do. */
void sherd__need_add(sherd_world *world, sherd__needs *needs, int lane, sherd__lack lack,
                     uint64_t number, const sherd__ranks *ranks);
/* The needs of one open call. */
void sherd__need_call(sherd_world *world, sherd__needs *needs, const sherd__call_state *call);

typedef struct sherd__wait {
    bool (*done)(sherd_world *world, void *what);
    void (*needs)(sherd_world *world, void *what, sherd__needs *needs); /* NULL: none */
    void *what;
} sherd__wait;

void sherd__patience_init(sherd__patience *patience, bool crowded, int64_t deadline_ns);
/* Wait for something; false if the alarm ended it (in a meeting: if the world was closed). */
bool sherd__wait_for(sherd_world *world, const sherd__wait *wait);

/* Say on the post what this rank lacks; nothing is written if nothing has changed. */
void sherd__post_announce(sherd_world *world, const sherd__wait *wait);
/* It waits no longer. */
void sherd__post_be_silent(sherd_world *world);
/* A need as a post says it. What is read holds if the version is the same afterwards. */
typedef struct sherd__said {
    int lane;
    sherd__lack lack;
    uint64_t number;
    sherd__ranks ranks;
} sherd__said;
/* How many needs a rank says, and the version of its post; none if it says nothing. */
uint64_t sherd__post_counts(const sherd_world *world, int rank, uint32_t *waits, uint32_t *needs);
sherd__said sherd__post_read(const sherd_world *world, int rank, uint32_t i);

/* Raise the alarm if what this rank has announced that it waits for can not come. */
void sherd__look_for_the_impossible(sherd_world *world);
/* Whether there is a ring of ranks that wait for each other; then the text says which. */
bool sherd__find_ring(const sherd_world *world, char *text, size_t room);
/* What that needs. False for lack of memory. */
bool sherd__picture_open(sherd_world *world);

/* ---- record.c: what ranks show each other ---------------------------------------------------- */

void sherd__record_label(sherd__record *record, const char *name, const char *what);
/* The label of the call with this number into out[room]; false if it is no longer there. */
bool sherd__label_text(const sherd__record *record, uint64_t number, char *out, size_t room);
/* The label of a rank's call into out[room]; "a call" if it is no longer there. */
void sherd__record_text(const sherd_world *world, int rank, int lane, uint64_t number, char *out,
                        size_t room);
/* Fill what peers read of a record, its number last, and count it; nobody is woken yet. */
void sherd__record_publish(sherd_world *world, sherd__group *group, sherd__record *record,
                           const sherd__shown *shown);
/* Whether the record of a rank that `call` waits for is there, and of the same call. Raises if not
 * the same. */
bool sherd__record_there(sherd_world *world, const sherd__call_state *call, int rank);
/* Whether a rank has made another call in its place, or failed: its record of this one never
 * comes. */
bool sherd__record_misfits(const sherd_world *world, const sherd__call_state *call, int rank);

/* How the calls of two ranks in a lane differ, into out[room]. */
void sherd__record_difference(const sherd_world *world, int lane, int a, int b, char *out,
                              size_t room);

/* ---- call.c ---------------------------------------------------------------------------------- */

/* The task of a move. */
void sherd__task_fill(sherd_world *world, sherd__task *task, const sherd__move *move);

bool sherd__arena_call(sherd_world *world, sherd__group *group, const char *name,
                       const sherd__move *moves, int count, bool begin);
bool sherd__arena_share(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__sharing *numbers);
/* Bring this rank's counters up to the current epoch. */
void sherd__group_refresh(sherd_world *world, sherd__group *group);

/* ---- meet.c, check.c: meetings --------------------------------------------------------------- */

sherd_status sherd__arena_meet(sherd_world *world, int kind, sherd_status mine, uint64_t arguments,
                               const char *name);
/* A check, or the close as the last one. */
sherd_status sherd__check(sherd_world *world, sherd__meeting kind, const char *name);

/* ---- notice.c: for the flight record --------------------------------------------------------- */

/* A call has been made; a wait became long; a wait was cut short. */
static inline void sherd__post_call(sherd_world *world, int lane, uint64_t number)
{
    sherd__post *post = world->post;
    uint64_t calls = sherd__peek(&post->calls);

    sherd__put(&post->trail[calls % SHERD__TRAIL].lane, (uint64_t)lane);
    sherd__put(&post->trail[calls % SHERD__TRAIL].number, number);
    sherd__put(&post->calls, calls + 1);
}
/* The ranks that have not come to a meeting. */
void sherd__not_arrived(const sherd__control *control, uint64_t meeting, sherd__ranks *out);
void sherd__post_since(sherd_world *world);
void sherd__post_cut(sherd_world *world);
/* Leave what a meeting came to for whoever watches; gives the status back. */
sherd_status sherd__post_told(sherd_world *world, sherd__meeting kind, sherd_status status);
/* ---- group.c --------------------------------------------------------------------------------- */

/* Make the groups of a root mesh if it has none. Collective unless on paper; `mine` is this rank's
 * status so far. */
sherd_status sherd__groups_make(sherd_world *world, const sherd_mesh *mesh, sherd_status mine,
                                const char *name);
/* Room in `seen` for so many lanes; false for lack of memory. */
bool sherd__seen_reserve(sherd_world *world, int lanes);
void sherd__groups_clear(sherd_world *world);

/* ---- log.c ----------------------------------------------------------------------------------- */

void sherd__log_clear(sherd_world *world);
/* Rows for all ops of a group; false for lack of memory. */
bool sherd__log_add(sherd_world *world, sherd__group *group);
/* The name of an op, one of SHERD__OPS. */
const char *sherd__log_op(int op);
/* Before and after a call of an op of a group. */
sherd__timing sherd__log_begin(const sherd_world *world, const sherd__group *group, int op,
                               int64_t bytes);
void sherd__log_end(sherd_world *world, const sherd__group *group, int op, int64_t bytes,
                    sherd__timing timing);
/* The row of an op (a sherd_step_kind, or SHERD__SHARE). */
sherd__tally *sherd__log_row(sherd_world *world, const sherd__group *group, int op);

/* ---- moves.c --------------------------------------------------------------------------------- */

void sherd__moves_clear(sherd_world *world);

/* ---- world.c --------------------------------------------------------------------------------- */

/* This rank's part of an arena. The world takes the mapping over if `owns`. */
sherd_status sherd__world_join(sherd_world **out, const sherd__arena *arena, bool owns, int rank,
                               const sherd_world_options *options, sherd__diag *diag);
/* As sherd_world_close, also of a world that is lent; text[SHERD_ERROR_BYTES] or NULL: why it is
 * not well. */
sherd_status sherd__world_close(sherd_world *world, char *text);

#include "members.h"
#include "calls.h"
#include "forked.h"
#include "ledgers.h"
/* What is called of remote*.c. */
#include "far.h"

#endif
