/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of an arena share: one mapping with a control part, one *post* per rank, the
 * *lanes* (what one rank shows to one group), and one region of tensor memory per rank. Protocol:
 * docs/arena.md.
 *
 * Every word that more than one rank touches is atomic; what is plain (texts, parcels, tensor data)
 * is ordered by such a word. All zero is the state before the first call, so fresh pages need no
 * set-up. Addresses in here are offsets from the start of the mapping: each process maps it where
 * it likes.
 */
#ifndef SHERD__WORLD_ARENA_H
#define SHERD__WORLD_ARENA_H

#include <sched.h>
#include <stdatomic.h>

#include "opened.h"
#include "ranks.h"
#include "world.h"
#include "layout/space.h"

enum {
    SHERD__DEPTH = 16,   /* the ring of records: how far a rank may be ahead of its readers */
    SHERD__LANES = 1024, /* groups of one world: 2^axes - 1 per mesh */
    SHERD__OPEN = 4000,  /* calls that a rank may have open, in all groups */
    SHERD__NEEDS = 4 * SHERD__OPEN + 16, /* what a sleeping rank says it waits for: room for all */
    SHERD__LABEL_WORDS = 16,
    SHERD__FEW = 96, /* bytes that a record carries itself */
    SHERD__DEED_NAME = 56,
    SHERD__MEETING_NAME = 96,
    SHERD__FLIGHTS = 16,
    SHERD__DEED_TEXT = 1024, /* what a rank says of a deed that others did otherwise */
    SHERD__OPENED = 16,      /* openings that are told by name */
    SHERD__OPENED_WORDS = 32
};

/*
 * Numbers of calls never come again. Those of an epoch follow its *base*, the highest number that
 * any group had reached before, so that whatever is left over of earlier epochs (records, `left`)
 * is below. 0 = no call.
 */
static inline uint64_t sherd__number(uint64_t base, uint64_t sequence)
{
    return base + sequence;
}
/* How many calls `number` counts in the epoch of this base; those of earlier ones do not count. */
static inline uint64_t sherd__calls_in(uint64_t number, uint64_t base)
{
    return number > base ? number - base : 0;
}

/* One tensor of a call as its peers see it. */
typedef struct sherd__parcel {
    uint64_t source; /* where the first element of the source box is */
    uint64_t result; /* where the result box begins; peers write there in an ALL_REDUCE */
    int64_t stride[SHERD_MAX_DIMS]; /* of the source, elements, in the schedule's dims */
} sherd__parcel;

/*
 * A call of one rank in one group. `number` is stored last; peers wait for it. What they read of a
 * call of one tensor of up to two dims is in the first line, and of one with few bytes its data
 * too; caches fetch lines in pairs.
 */
typedef struct sherd__record {
    _Alignas(128) sherd__word number;
    sherd__word history;      /* of all calls of the group in this epoch, this one included */
    sherd__word parcels;      /* offset of sherd__parcel[count] */
    _Atomic int32_t status;   /* negative: the rank failed before it could publish */
    _Atomic uint32_t carried; /* bytes of the source that are in `few`; 0 = see the parcels */
    union {
        sherd__parcel one; /* where `parcels` points for one tensor */
        unsigned char few[SHERD__FEW];
    };
    sherd__word fingerprint;               /* of this call: content, never addresses */
    sherd__word label[SHERD__LABEL_WORDS]; /* text for messages */
} sherd__record;

/*
 * Where the record of a call lies in a ring: from call to call it moves by another distance (a Gray
 * code). A peer's CPU reads ahead where it has read at equal distances, and would take the line of
 * the next record away from the rank that is about to write it.
 */
static inline unsigned sherd__slot_of(uint64_t number)
{
    unsigned at = (unsigned)(number % SHERD__DEPTH);
    return at ^ at / 2;
}

/*
 * A set of lanes: those that a rank has used (by a call, a deed, or a claim) since the last good
 * check. In the others nothing is new to compare, whatever there is of them.
 */
typedef struct sherd__lane_set {
    uint64_t word[SHERD__LANES / 64];
} sherd__lane_set;

static inline void sherd__lane_set_add(sherd__lane_set *set, int lane)
{
    set->word[(unsigned)lane / 64] |= UINT64_C(1) << (unsigned)lane % 64;
}

/* The first of the set from `lane` on that is below `end`; -1: there is none. */
static inline int sherd__lane_set_next(const sherd__lane_set *set, int lane, int end)
{
    for (; lane < end; lane = (lane / 64 + 1) * 64) {
        uint64_t rest = set->word[lane / 64] >> lane % 64;
        if (rest)
            return lane + __builtin_ctzll(rest) < end ? lane + __builtin_ctzll(rest) : -1;
    }
    return -1;
}

/* A thing that a rank did on a mesh. */
typedef struct sherd__deed {
    uint64_t hash; /* of this and all before */
    char name[SHERD__DEED_NAME];
    sherd__marks wrote; /* in place */
} sherd__deed;

/* What one rank has done on one mesh, as it tells at meetings; in the lane of all of the mesh's
 * axes. */
typedef struct sherd__work {
    uint64_t count; /* how many things; never falls */
    uint64_t good;  /* count at the last check that passed */
    uint64_t alike; /* count at the last meeting that passed and where all showed the same */
    uint64_t hash;  /* of all since the last failed check */
    sherd__deed last[SHERD__DEEDS];
    sherd__marks wrote;      /* in place, after the last deed */
    sherd__many_marks since; /* in place, since that meeting or the last check */
    /* Deeds whose results are in flight; more than there is room for: all from the first one on. */
    int flights;
    uint64_t flight[SHERD__FLIGHTS];
} sherd__work;

/* A tensor that a rank has opened for writing by a pointer: opened.c. */
typedef struct sherd__opening {
    uint64_t key; /* of the tensor and the deeds before: equal on all ranks that do the same */
    uint64_t identity, storage; /* of the tensor, and of the first one of its storage */
    uint64_t deeds, calls;      /* before it: on the mesh; with ranks that hold the same tensor */
    char text[SHERD__OPENED_TEXT];
} sherd__opening;

/* What one rank has opened since the last good check, of what a group holds alike. */
typedef struct sherd__opened {
    uint64_t count;                      /* 0: nothing, and no bit counts */
    uint64_t bits[SHERD__OPENED_WORDS];  /* some for each key */
    sherd__opening first[SHERD__OPENED]; /* [count], or all */
} sherd__opened;

/*
 * What one rank shows to one group. What peers look at in each call lies apart from what the rank
 * alone writes in each call: caches fetch lines in pairs, and the next one with them.
 */
typedef struct sherd__lane {
    _Alignas(256) sherd__word left; /* number of its earliest unfinished call */
    _Alignas(256) sherd__word made; /* number of the latest call that it made */
    sherd__word history;            /* of the calls made */
    _Atomic int32_t leader;         /* 1 + the lowest rank of its group; 0 = not in this group */
    _Alignas(256) sherd__record ring[SHERD__DEPTH];
    /* Plain: written before a meeting, read in it. */
    sherd__work work;
    sherd__opened opened;
    uint64_t claims; /* offset of sherd__claim[claimed] in the mapping; SHERD_VERIFY */
    int64_t claimed;
    /* Of the mirror of a rank that shares no memory (remote.h): what that rank has been told of
     * this one's lane. */
    uint64_t told, told_left, told_work;
    bool owed;         /* it waits for `left` */
    const void *claim; /* rank 0's: sherd__claim[claimed], in the place of `claims` */
} sherd__lane;

/* What a rank lacks of a call of a lane. */
typedef enum sherd__lack {
    SHERD__RECORD = 0, /* that `ranks` make it */
    SHERD__LEFT = 1,   /* that they leave it */
    SHERD__MISFIT = 2  /* they have made another one in its place, or failed: it can never end */
} sherd__lack;

typedef struct sherd__need {
    sherd__word key; /* lane << 2 | lack */
    sherd__word number;
    sherd__shared_ranks ranks;
} sherd__need;

typedef enum sherd__meeting { SHERD__CHECK = 1, SHERD__AGREE = 2, SHERD__CLOSE = 3 } sherd__meeting;

/* Where a rank is in its life; the watcher reads it. */
typedef enum sherd__presence {
    SHERD__ABSENT = 0,
    SHERD__PRESENT = 1,
    SHERD__GONE = 2
} sherd__presence;

/* For the flight record (flight.h): a call that a rank has made. */
typedef struct sherd__mark {
    sherd__word lane, number;
} sherd__mark;

enum {
    SHERD__TRAIL = 8,                    /* marks that a rank leaves */
    SHERD__AT_MEETING = SHERD__LANES * 4 /* the key of a need: no call is awaited, but a meeting */
};

/* The notice board of one rank. */
typedef struct sherd__post {
    _Alignas(64) _Atomic uint32_t bell; /* a futex */
    _Atomic uint32_t presence;
    _Atomic uint32_t claimed; /* by a process, from before it joins until it has left */
    _Alignas(64) sherd__word
        arrived;       /* the last meeting that it came to, from 1; stored after what it brings: */
    sherd__word taken; /* the last meeting whose verdict it has acted upon */
    uint64_t base;     /* where its next world begins, once it has closed one */
    uint64_t held;     /* bytes of memory that its region takes */
    int lanes;         /* that its last world had, once it has closed one */
    sherd__meeting kind;
    sherd_status status;
    uint64_t arguments;
    sherd__lane_set used;
    char name[SHERD__MEETING_NAME];
    char text[SHERD_ERROR_BYTES];
    char deed[SHERD__DEED_TEXT]; /* between a verdict and `taken`: see difference.c */
    /* What its last close said: apart from what it brings to a meeting, which a late rank may still
     * read. */
    sherd_status last_status;
    char last_text[SHERD_ERROR_BYTES];
    char alarm[SHERD_ERROR_BYTES];  /* its text, when it raises the alarm */
    char ending[SHERD_ERROR_BYTES]; /* its text, when it closes the world for all */
    /* Odd: it sleeps, and its needs are valid: [0..waits) of its wait, [waits..needs) of its open
     * calls. */
    _Alignas(64) sherd__word version;
    _Atomic uint32_t waits, needs;
    /* For whoever watches (launch.h); no part of the protocol. */
    _Alignas(64) sherd__word value; /* 1 + the exit status of its body; 0 = not known */
    sherd__word core;               /* 1 + the core that is its own; 0 = it has none */
    /* The process that is this rank: 0 = none yet, stored last; when it began, and in which pid
     * namespace. */
    sherd__word pid, pid_start, pid_space;
    sherd__word told; /* -status of the failure that it learned of since the last good check */
    char told_text[SHERD_ERROR_BYTES];
    _Alignas(64) sherd__word calls; /* made, in all groups; the latest are: */
    sherd__mark trail[SHERD__TRAIL];
    sherd__word since;                   /* ns: when its wait began, if it sleeps */
    sherd__word numbers, numbers_before; /* base of its epoch's numbers, and of the epoch before */
    /* What it waited for when the alarm or the end of the world cut that short; a meeting has its
     * round as number. */
    sherd__need cut;
    sherd__word cut_since, cut_until;
} sherd__post;

/* A thing that two ranks did on a mesh, by the name the same, and yet differently. */
typedef struct sherd__difference {
    uint64_t deed; /* its number; 0: none is known */
    int32_t lane;  /* of all of the mesh's axes */
    int32_t rank[2];
} sherd__difference;

typedef struct sherd__verdict {
    _Alignas(64) sherd__word word; /* round << 16 | flags << 8 | -status */
    uint64_t base;                 /* of the epoch that it starts, if it does */
    sherd__difference difference;  /* that it is about */
    char text[SHERD_ERROR_BYTES];
} sherd__verdict;

typedef struct sherd__control {
    uint64_t magic;
    int ranks;
    uint64_t region_bytes, regions; /* size of one; offset of the first */
    uint64_t region_step;           /* from one to the next */
    uint64_t lanes;                 /* offset of lane[ranks][SHERD__LANES] */
    uint64_t needs;                 /* offset of need[ranks][SHERD__NEEDS] */
    _Alignas(64) sherd__word alarm; /* 0 = down; see sherd__alarm_word */
    sherd__word death;              /* 0 = all live; see sherd__end_word; never lowered */
    _Alignas(64) sherd__shared_ranks sleepers;
    _Alignas(64) sherd__word arrivals; /* at all meetings */
    _Alignas(64) sherd__word held;     /* bytes of memory that all regions take */
    sherd__word limit; /* of that: bytes & ~255 | sherd__limit_by; 0 = no rank has joined */
    sherd_price price; /* of the world that opens: from before its first meeting to its last */
    sherd__verdict verdict[2];
    sherd__post post[SHERD_MAX_RANKS];
    /* Of `sherd run`, set before there are ranks; all 0 where there is none. */
    int launcher; /* its pid */
    uint64_t launcher_start, launcher_space;
    int line; /* descriptor of the life-line's reading end, there and as ranks inherit it */
    uint64_t line_node;
} sherd__control;

/*
 * This process's handle on an arena; ranks that are threads share one. `control` is where `base`
 * is, but where some ranks share memory and others are far: then each process has a mapping of its
 * own besides the shared one, of the same form, and uses these parts of the two:
 *
 *     base:    [ -       | lanes of near ranks | -     | regions ]   shared, `bytes`
 *     control: [ control | lanes of far ranks  | needs | -       ]   its own, `own_bytes`
 *
 * sherd__arena_lane gives the lanes behind `base`, at the offset that the control part says, which
 * is the same in both; those of far ranks are the mirrors of remote.h.
 */
typedef struct sherd__arena {
    unsigned char *base;
    size_t bytes;
    sherd__control *control;
    const char *opened_by; /* the public function; NULL: sherd_world_open */
    bool threads;
    int cores;                    /* in the affinity mask, before any rank was pinned */
    struct sherd__remote *remote; /* of ranks that share no memory; else NULL */
    const sherd_price *price;     /* that a carrier has brought from rank 0; else NULL */
    int64_t clock_ahead;          /* of rank 0's: other machine, and there is a trace */
    const struct sherd__dry_rank
        *dry;         /* not NULL: one rank is alone, and computes nothing (dry.h) */
    size_t own_bytes; /* not 0: `control` lies in a mapping of its own */
} sherd__arena;

/* The affinity of a thread before it was pinned. */
typedef struct sherd__pinning {
    bool pinned;
    cpu_set_t set;
} sherd__pinning;

enum { SHERD__REGION_FLOOR_LOG2 = 22 }; /* below 4 MB a region is no use */

/*
 * Reserve an arena for `ranks`, as the start of a world. `fd` receives a memfd that other programs
 * can map (for `sherd run`); NULL: shared with forked children and threads only, then nothing can
 * be left behind. If the address space is short, regions are halved down to 4 MB. ENOMEM, EINVAL.
 */
sherd_status sherd__arena_create(sherd__arena *out, int ranks, size_t region_bytes, int *fd,
                                 sherd__diag *diag);
/* Map the arena behind a memfd, for a public function. EINVAL if it is none. ENOMEM. */
sherd_status sherd__arena_map(sherd__arena *out, int fd, const char *function, sherd__diag *diag);
/* Unmap; all zero is a no-op. */
void sherd__arena_unmap(sherd__arena *arena);

static inline sherd__lane *sherd__arena_lane(const sherd__arena *arena, int rank, int lane)
{
    sherd__lane *all = (sherd__lane *)(void *)(arena->base + arena->control->lanes);
    return all + (size_t)rank * SHERD__LANES + (size_t)lane;
}

/* What the post of a rank says it lacks. Reserved for the worst; touched only as far as it is
 * used. */
static inline sherd__need *sherd__arena_needs(const sherd__arena *arena, int rank)
{
    sherd__need *all =
        (sherd__need *)(void *)((unsigned char *)arena->control + arena->control->needs);
    return all + (size_t)rank * SHERD__NEEDS;
}

static inline uint64_t sherd__look(const sherd__word *word)
{
    return atomic_load_explicit(word, memory_order_seq_cst);
}
static inline uint64_t sherd__peek(const sherd__word *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}
static inline uint32_t sherd__peek_count(const _Atomic uint32_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}
static inline void sherd__put(sherd__word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/*
 * What was stored before is there for all before anything is looked at afterwards. No line of
 * another's is touched, as by storing a word again; and gcc has no fence under the thread
 * sanitizer.
 */
static inline void sherd__fence(void)
{
#if defined(__x86_64__)
    __asm__ volatile("lock; orq $0, (%%rsp)" : : : "memory", "cc");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Ring these, of 64 ranks from `first` on. */
void sherd__ring_ranks(sherd__control *control, int first, uint64_t ranks);
/* Wake whoever of `ranks` sleeps. The caller has stored what they wait for with seq_cst order, or a
 * fence behind it. */
static inline void sherd__ring(sherd__arena *arena, const sherd__ranks *ranks)
{
    for (int w = 0; w < ranks->words; w++) {
        uint64_t asleep = sherd__look(&arena->control->sleepers.word[w]) & ranks->word[w];
        if (asleep)
            sherd__ring_ranks(arena->control, w * 64, asleep);
    }
}
void sherd__ring_all(sherd__arena *arena);
/* Whether any of them sleeps, as far as that is seen without a fence. */
bool sherd__seems_asleep(const sherd__arena *arena, const sherd__ranks *ranks);

#endif
