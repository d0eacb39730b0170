/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts out of layouts, dim by dim, for operators that say themselves how they lie (ways.c): a slice of a sharded dim, a dim
 * made whole. A sketch is a layout under way; it may run out of memory on the way and says so at its end.
 */
#ifndef SHERD__SKETCH_H
#define SHERD__SKETCH_H

#include "solve.h"

/* The indices start, start + step, ... of a dim, `count` of them. */
typedef struct sherd__part {
    int64_t start, step, count;
} sherd__part;

typedef struct sherd__sketch {
    sherd__layout_spec spec;
    sherd__space *space;
    int64_t *cuts[2 * SHERD_MAX_DIMS]; /* made here */
    int made;
    bool failed; /* for lack of memory */
} sherd__sketch;

void sherd__sketch_begin(sherd__sketch *s, const sherd_layout *from);

/* Dim d becomes a part of itself: each rank keeps what it has of it. */
void sherd__sketch_part(sherd__sketch *s, int d, sherd__part part);

/* Dim d becomes a part of a dim of size n: the first and the last rank that have any of it take what lies around. */
void sherd__sketch_around(sherd__sketch *s, int d, int64_t n, sherd__part part);

/* What shards dim `from` goes to dim `to`, behind what is there. */
void sherd__sketch_move_axes(sherd__sketch *s, int from, int to);

/* Room for the cuts of dim d, which it then has. NULL for lack of memory. */
int64_t *sherd__sketch_cuts(sherd__sketch *s, int d);

/* A dim sharded by its axes but those in `bits`: as it is, if none of them is among these; else by the default cuts. */
sherd__dim sherd__dim_without(const sherd__dim *dim, unsigned bits);

/* The layout; the sketch is over. `name` is the operator's. */
sherd_status sherd__sketch_end(const sherd_layout **out, sherd__sketch *s, const char *name);

/* Whether two layouts of one shape shard all dims alike, pending or not. */
bool sherd__dims_equal(const sherd_layout *a, const sherd_layout *b);

/* Which pending reductions an operator lets through. */
typedef enum sherd__passes { SHERD__PASS_NONE, SHERD__PASS_SUMS, SHERD__PASS_ALL } sherd__passes;

/*
 * The ways of an operator on one operand in which some dims (bits) are whole and the others shard results as they do the
 * operand: dims are gathered, or what shards them goes to another dim, whichever is less. Results have call->shape.
 */
sherd_status sherd__whole_ways(const sherd_call *call, sherd_ways *ways, unsigned dims,
                               sherd__passes passes);

/*
 * `t` as a part of dim `dim` of zeroes, of which that dim has size n. Where t lies as that part of `like` does, the result
 * lies as `like`, which may be NULL.
 */
sherd_tensor *sherd__embed(sherd_tensor *t, int dim, int64_t n, sherd__part part,
                           const sherd_layout *like);

/*
 * In backward: the gradient of operand 0 of the node, of which the elements `index` along a dim were taken (index [n] if
 * `flat`), from that of the result.
 */
sherd_tensor *sherd__gather_back(sherd_node *node, sherd_tensor *index, sherd_tensor *dy, int dim,
                                 bool flat);

/* Dim `dim`, counted from the end if it is negative; -1: there is no such dim. */
int sherd__dim_of(int dim, int ndim);

/* Bits of the dims in a list (count < 0: all). False: one is none, or twice there. */
bool sherd__dims_of(unsigned *bits, const int *dims, int count, int ndim);

#endif
