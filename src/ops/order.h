/* SPDX-License-Identifier: Apache-2.0 */
/* What operators that need a whole dim share. */
#ifndef SHERD__OPS_ORDER_H
#define SHERD__OPS_ORDER_H

#include "apply/sketch.h"

/*
 * In forward: n elements of operand 0's dtype as what can be sorted (kernels/pick.h), in f32 if
 * they have 16 bits. NULL: no memory. The second: those of operand i here.
 */
const void *sherd__keys_of(sherd_call *call, int64_t n, const void *from, sherd_dtype *dtype);
const void *sherd__keys_in(sherd_call *call, int i, sherd_dtype *dtype);

/*
 * In forward: memory for result 0 in the dtype that is computed in, its own or f32 (NULL: out of
 * memory); and what is in it, put into the result, where that has 16 bits.
 */
void *sherd__wide_result(sherd_call *call);
void sherd__narrow_result(sherd_call *call, const void *wide);

/* Backward of elements taken along a dim, whose indices are result 1: each gradient goes to its
 * element. */
void sherd__taken_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                       int dim);

/* [outer, n, inner] of this rank's piece. */
void sherd__size_along(int64_t size[3], const sherd_tensor *t, int dim);

/* ---- the first k of a dim in order: candidates.c --------------------------------------------- */

/*
 * The ways of an operator whose results are among the first k of a dim: those of sherd__whole_ways,
 * and a sharded dim as it is, if what its shards exchange in forward is less.
 */
sherd_status sherd__candidates_ways(const sherd_call *call, sherd_ways *ways, int dim, int64_t k);

/* In forward: [outer, n, inner] elements among which the first k of the dim are, where the call
 * runs. */
typedef struct sherd__candidates {
    int64_t size[3];
    const void *values;
    const int32_t *index; /* of each in the dim; NULL: its place */
} sherd__candidates;

/*
 * All of a dim that is whole; of a sharded one the first k of each shard, which are exchanged: all
 * ranks must come. False: failed.
 */
bool sherd__candidates_in(sherd_call *call, int dim, int64_t k, bool descending,
                          sherd__candidates *c);

/*
 * Where to write which candidates result 1 has (NULL: no memory); and with k along the dim, their
 * indices into result 1.
 */
int32_t *sherd__candidates_found(sherd_call *call, const sherd__candidates *c);
void sherd__candidates_named(sherd_call *call, const sherd__candidates *c, int64_t k,
                             const int32_t *found);

/*
 * In forward: the first k of src [outer, n, inner], of operand 0's dtype, and where they were, as
 * sherd__order. False: no memory.
 */
bool sherd__take_first(sherd_call *call, const int64_t size[3], int64_t k, bool descending,
                       void *values, int32_t *index, const void *src);

#endif
