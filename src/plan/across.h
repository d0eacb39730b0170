/* SPDX-License-Identifier: Apache-2.0 */
/* Redistribution between two meshes: what its files share. */
#ifndef SHERD__PLAN_ACROSS_H
#define SHERD__PLAN_ACROSS_H

#include "inside.h"

/* One layout with its cuts written out, from which boxes can be read directly. */
typedef struct sherd__side {
    const sherd_layout *layout;
    const sherd_mesh *mesh;
    int64_t *cuts[SHERD_MAX_DIMS]; /* [parts + 1]; ours */
    int64_t parts[SHERD_MAX_DIMS];
    /* the places in the mesh + 1, found by hashes of their ranks; NULL = a rank's is its number */
    int *place;
    uint64_t last;   /* of a power of two of such slots, more than half of which are 0 */
    unsigned copied; /* axes along which boxes repeat: replicas */
    int64_t copies;
} sherd__side;

/* Where a rank stands on one side: its coordinates, its shards and its box. */
typedef struct sherd__stand {
    int64_t at[SHERD_MAX_AXES];
    int64_t shard[SHERD_MAX_DIMS]; /* number of its shard on each dim */
    sherd_box box;
} sherd__stand;

typedef struct sherd__across {
    sherd__space *space;
    int ndim;
    sherd__side from, to;
    sherd__change change; /* of the reduction alone */
} sherd__across;

sherd_status sherd__across_open(sherd__across *a, sherd__space *space, const sherd_layout *from,
                                const sherd_layout *to);
/* Also for half-opened ones. */
void sherd__across_close(sherd__across *a);

/* False if the rank is not in the mesh; then the box is empty. */
bool sherd__stand_of(sherd__stand *out, const sherd__side *side, int rank);

/* The number that coordinates have on some axes of a mesh, row-major. */
int64_t sherd__number_on(const sherd_mesh *mesh, unsigned axes, const int64_t *at);

typedef struct sherd__load {
    sherd__wide elements;
    int64_t copy;
} sherd__load;

/*
 * One shard of the source, dealt out: which replica of it each target rank reads. All ranks that
 * need the shard are visited, ordered by their shards' numbers, replicas fastest. Each one reads
 * from the replica that has the least to send so far (the first of equal ones). A rank that holds
 * the shard itself takes part only if it needs other addends of it.
 */
typedef struct sherd__deal {
    const sherd__across *across;
    const int64_t *shard; /* of each dim of the source */
    int64_t first[SHERD_MAX_DIMS], end[SHERD_MAX_DIMS], next[SHERD_MAX_DIMS];
    int64_t next_copy;
    sherd__load *load; /* [copies of the source] a heap, the least first */
    /* The target rank just dealt to: */
    int rank;
    sherd__stand held; /* what it stands for on the source's side, */
    bool holds;        /* and whether that is this shard */
    int64_t elements;  /* how much of the shard it wants */
    int64_t copy;      /* whose replica it takes; -1: needs none */
} sherd__deal;

/* `load` has room for the copies of the source. */
void sherd__deal_begin(sherd__deal *deal, const sherd__across *a, const int64_t *shard,
                       sherd__load *load);
bool sherd__deal_next(sherd__deal *deal);

/* The shards of a side that meet [lo, hi) of a dim: [*first, *end); some of them may be empty. */
void sherd__shards_of(const sherd__side *side, int d, int64_t lo, int64_t hi, int64_t *first,
                      int64_t *end);

/*
 * Next choice out of [first, end) per dim, the last one fastest; false when it is back at the
 * start.
 */
bool sherd__next_shard(int ndim, const int64_t *first, const int64_t *end, int64_t *shard);

#endif
