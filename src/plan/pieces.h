/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lengths of the intervals of one dim before and after a move, for every class of shards and
 * coordinate.
 */
#ifndef SHERD__PIECES_H
#define SHERD__PIECES_H

#include "inside.h"

/* Shards at the common depth that are alike: `count` of length `length`. */
typedef struct sherd__class {
    int64_t number; /* shard number at the common depth, where cuts are explicit */
    int64_t lo, length;
    int64_t count;
} sherd__class;

/*
 * Lengths of one dim at one coordinate of its moving axes: source, target, kept; and asked for by
 * the group.
 */
typedef struct sherd__piece {
    int64_t source, target, kept, asked;
} sherd__piece;

typedef struct sherd__pieces {
    unsigned axes;  /* that move */
    int64_t points; /* product of their extents */
    int classes;
    sherd__class *class;
    sherd__piece *piece; /* [classes][points] */
} sherd__pieces;

/* Fill `out` for dim d of size n; ENOMEM without a text. To be cleared also after a failure. */
sherd_status sherd__pieces_find(sherd__pieces *out, sherd__heap *heap, const sherd__change *change,
                                int d, int64_t n);
void sherd__pieces_clear(sherd__pieces *pieces, sherd__heap *heap);

#endif
