/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Layouts made from layouts, dim by dim, for operators that list their own ways (ways.c): a slice
 * of a sharded dim, a gathered dim. A sketch is a layout under construction; if it runs out of
 * memory, it reports that at its end.
 */
#ifndef SHERD__APPLY_SKETCH_H
#define SHERD__APPLY_SKETCH_H

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
/* The same, with a sum pending on these axes and nothing on others. */
void sherd__sketch_begin_sums(sherd__sketch *s, const sherd_layout *from, unsigned pending);

/* Nothing is pending but a sum on these axes (bits). */
void sherd__spec_sums(sherd__layout_spec *spec, unsigned axes);
/* The axes on which a layout has a sum pending. */
unsigned sherd__sums_of(const sherd_layout *layout);

/* Dim d becomes a part of itself: each rank keeps what it has of the part. */
void sherd__sketch_part(sherd__sketch *s, int d, sherd__part part);

/*
 * Dim d becomes a part of a dim of size n: the first and the last rank that have any of it get the
 * elements around it.
 */
void sherd__sketch_around(sherd__sketch *s, int d, int64_t n, sherd__part part);

/* The axes that shard dim `from` are appended to those of dim `to`. */
void sherd__sketch_move_axes(sherd__sketch *s, int from, int to);

/* Room for explicit cuts of dim d; the caller fills and sets them. NULL if memory runs out. */
int64_t *sherd__sketch_cuts(sherd__sketch *s, int d);

/*
 * A dim sharded by its axes without those in `bits`: unchanged if it has none of these; otherwise
 * with default cuts.
 */
sherd__dim sherd__dim_without(const sherd__dim *dim, unsigned bits);

/* The finished layout. `name` is the operator's. */
sherd_status sherd__sketch_end(const sherd_layout **out, sherd__sketch *s, const char *name);

/* The product of the longest shards of all dims but one. */
int64_t sherd__elements_beside(const sherd__layout_spec *spec, int dim);

/* Whether two layouts of one shape shard all dims equally, pending or not. */
bool sherd__dims_equal(const sherd_layout *a, const sherd_layout *b);

/* Which pending reductions an operator lets through. */
typedef enum sherd__passes { SHERD__PASS_NONE, SHERD__PASS_SUMS, SHERD__PASS_ALL } sherd__passes;

/*
 * The ways of an operator on one operand for which some dims (bits) must not be sharded, while the
 * others shard results as they do the operand: shards of these dims are gathered, or moved to
 * another dim, whichever is cheaper. Results have call->shape; more or less dims than the operand
 * at the end.
 */
sherd_status sherd__whole_ways(const sherd_call *call, sherd_ways *ways, unsigned dims,
                               sherd__passes passes);

/* The same, where only these dims are moved to; of equal prices the first wins. */
sherd_status sherd__homes_ways(const sherd_call *call, sherd_ways *ways, unsigned dims,
                               const int *home, int homes, sherd__passes passes);

/* Resolve a dim that may be negative; -1: there is no such dim. */
int sherd__dim_of(int dim, int ndim);

/* Bits of the dims in a list (count < 0: all). False: one does not exist, or is there twice. */
bool sherd__dims_of(unsigned *bits, const int *dims, int count, int ndim);

#endif
