/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of an arena share: one mapping with a control part, one *post* per rank, the *lanes* (what
 * one rank shows to one group), and one region of tensor memory per rank. Protocol: docs/arena.md.
 *
 * Every word that more than one rank touches is atomic; what is plain (texts, parcels, tensor data) is
 * ordered by such a word. All zero is the state before the first call, so fresh pages need no set-up.
 * Addresses in here are offsets from the start of the mapping: each process maps it where it likes.
 */
#ifndef SHERD__ARENA_H
#define SHERD__ARENA_H

#include <sched.h>
#include <stdatomic.h>

#include "layout/space.h"
#include "sherd/world.h"

typedef _Atomic uint64_t sherd__word;

enum {
    SHERD__DEPTH = 16,   /* calls of one group that a rank may have open: the ring of records */
    SHERD__LANES = 1024, /* groups of one world: 2^axes - 1 per mesh */
    SHERD__NEEDS = 16,   /* what a sleeping rank says it waits for */
    SHERD__LABEL_WORDS = 16
};

/* Numbers of calls: epoch in the high half, sequence number in the group, from 1, in the low half. */
static inline uint64_t sherd__number(uint64_t epoch, uint64_t sequence)
{
    return epoch << 32 | sequence;
}
static inline uint64_t sherd__epoch_of(uint64_t number)
{
    return number >> 32;
}
/* How many calls `number` counts in `epoch`; those of another epoch do not count. */
static inline uint64_t sherd__calls_in(uint64_t number, uint64_t epoch)
{
    return sherd__epoch_of(number) == epoch ? number & 0xFFFFFFFFu : 0;
}

/* One tensor of a call as its peers see it. */
typedef struct sherd__parcel {
    uint64_t source; /* where the first element of the source box is */
    uint64_t result; /* where the result box begins; peers write there in an ALL_REDUCE */
    int64_t stride[SHERD_MAX_DIMS]; /* of the source, elements, in the schedule's dims */
} sherd__parcel;

/* A call of one rank in one group. `number` is stored last; peers wait for it. */
typedef struct sherd__record {
    _Alignas(64) sherd__word number;
    sherd__word fingerprint; /* of this call: content, never addresses */
    sherd__word history;     /* of all calls of the group in this epoch, this one included */
    sherd__word readers;     /* ranks that read this record: it is reused when they have left */
    sherd__word parcels;     /* offset of sherd__parcel[count] */
    _Atomic int32_t status;  /* negative: the rank failed before it could publish */
    _Atomic int32_t count;
    sherd__parcel one;                     /* where `parcels` points for one tensor */
    sherd__word label[SHERD__LABEL_WORDS]; /* text for messages */
} sherd__record;

/* What one rank shows to one group. */
typedef struct sherd__lane {
    _Alignas(64) sherd__word left; /* number of its earliest unfinished call */
    _Alignas(64) sherd__word made; /* number of the latest call that it made */
    sherd__word history;           /* of the calls made */
    _Atomic int32_t leader;        /* 1 + the lowest rank of its group; 0 = not in this group */
    sherd__record ring[SHERD__DEPTH];
} sherd__lane;

/* A rank waits until all `ranks` have made (record) or left the call with this number. */
typedef struct sherd__need {
    sherd__word key; /* lane << 1 | left */
    sherd__word number;
    sherd__word ranks;
} sherd__need;

typedef enum sherd__meeting { SHERD__CHECK = 1, SHERD__AGREE = 2, SHERD__CLOSE = 3 } sherd__meeting;

/* Where a rank is in its life; the watcher reads it. */
typedef enum sherd__presence {
    SHERD__ABSENT = 0,
    SHERD__PRESENT = 1,
    SHERD__GONE = 2
} sherd__presence;

/* The notice board of one rank. */
typedef struct sherd__post {
    _Alignas(64) _Atomic uint32_t bell; /* a futex */
    _Atomic uint32_t presence;
    _Alignas(64) sherd__word
        arrived;       /* the last meeting that it came to, from 1; stored after what it brings: */
    sherd__word taken; /* the last meeting whose verdict it has acted upon */
    uint64_t epoch;    /* where its next world begins, once it has closed one */
    uint64_t held;     /* bytes of memory that its region takes */
    sherd__meeting kind;
    sherd_status status;
    uint64_t arguments;
    char name[48];
    char text[SHERD_ERROR_BYTES];
    /* What its last close said: apart from what it brings to a meeting, which a late rank may still read. */
    sherd_status last_status;
    char last_text[SHERD_ERROR_BYTES];
    char alarm[SHERD_ERROR_BYTES];    /* its text, when it raises the alarm */
    char ending[SHERD_ERROR_BYTES];   /* its text, when it closes the world for all */
    _Alignas(64) sherd__word version; /* odd: it sleeps, and `need` is valid */
    _Atomic uint32_t waits,
        needs; /* need[0..waits): its wait; need[waits..needs): records its open calls lack */
    sherd__need need[SHERD__NEEDS];
} sherd__post;

typedef struct sherd__verdict {
    _Alignas(64) sherd__word word; /* round << 16 | flags << 8 | -status */
    char text[SHERD_ERROR_BYTES];
} sherd__verdict;

typedef struct sherd__control {
    uint64_t magic;
    int ranks;
    uint64_t region_bytes, regions;    /* size of one; offset of the first */
    uint64_t lanes;                    /* offset of lane[ranks][SHERD__LANES] */
    _Alignas(64) sherd__word alarm;    /* 0 = down; epoch << 16 | rank << 8 | -status */
    sherd__word death;                 /* 0 = all live; see end.h; never lowered */
    _Alignas(64) sherd__word sleepers; /* bits of ranks */
    _Alignas(64) sherd__word arrivals; /* at all meetings */
    _Alignas(64) sherd__word held;     /* bytes of memory that all regions take */
    sherd__word limit; /* of that: bytes & ~255 | sherd__limit_by; 0 = no rank has joined */
    sherd__verdict verdict[2];
    sherd__post post[SHERD_MAX_RANKS];
} sherd__control;

/* This process's handle on an arena; ranks that are threads share one. */
typedef struct sherd__arena {
    unsigned char *base;
    size_t bytes;
    sherd__control *control;
    bool threads;
    int cores; /* in the affinity mask, before any rank was pinned */
} sherd__arena;

/* The affinity of a thread before it was pinned. */
typedef struct sherd__pinning {
    bool pinned;
    cpu_set_t set;
} sherd__pinning;

enum { SHERD__REGION_FLOOR_LOG2 = 22 }; /* below 4 MB a region is no use */

/*
 * Reserve an arena for `ranks`, as the start of a world. `fd` receives a memfd that other programs can map
 * (for `sherd run`); NULL: shared with forked children and threads only, then nothing can be left behind.
 * If the address space is short, regions are halved down to 4 MB. ENOMEM, EINVAL.
 */
sherd_status sherd__arena_create(sherd__arena *out, int ranks, size_t region_bytes, int *fd,
                                 sherd__diag *diag);
/* Map the arena behind a memfd. EINVAL if it is none. ENOMEM. */
sherd_status sherd__arena_map(sherd__arena *out, int fd, sherd__diag *diag);
/* Unmap; all zero is a no-op. */
void sherd__arena_unmap(sherd__arena *arena);

static inline sherd__lane *sherd__arena_lane(const sherd__arena *arena, int rank, int lane)
{
    sherd__lane *all = (sherd__lane *)(void *)(arena->base + arena->control->lanes);
    return all + (size_t)rank * SHERD__LANES + (size_t)lane;
}

static inline uint64_t sherd__look(const sherd__word *word)
{
    return atomic_load_explicit(word, memory_order_seq_cst);
}
static inline uint64_t sherd__peek(const sherd__word *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}
static inline void sherd__put(sherd__word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Wake whoever of `ranks` (bits) sleeps. The caller has stored what they wait for with seq_cst order. */
void sherd__ring(sherd__arena *arena, uint64_t ranks);

#endif
