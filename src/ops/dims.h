/* SPDX-License-Identifier: Apache-2.0 */
/* What reductions over some dims share: their attributes, and the rule that follows from them. */
#ifndef SHERD__OPS_DIMS_H
#define SHERD__OPS_DIMS_H

#include "kernels/squares.h"
#include "shared.h"

typedef struct sherd__dims {
    int count; /* 0 = all; what is below is refused */
    int dim[SHERD_MAX_DIMS];
    bool keepdim;
} sherd__dims;

#define SHERD__DIMS_FIELDS                                         \
    .field = {SHERD_FIELD(sherd__dims, count, INT),                \
              SHERD_FIELDS(sherd__dims, dim, INT, SHERD_MAX_DIMS), \
              SHERD_FIELD(sherd__dims, keepdim, BOOL)},            \
    .attributes = sizeof(sherd__dims)

/* Attributes of a list that a user gave. What is wrong with it is said by sherd__dims_rule. */
sherd__dims sherd__dims_given(const sherd_tensor *a, const int *dims, int count, bool keepdim);

/* What is wrong with them as dims of a tensor with `ndim`; NULL: nothing. */
const char *sherd__dims_fault(sherd_call *call, const sherd__dims *dims, int ndim);

/* Bits of the dims of a tensor with `ndim`. */
unsigned sherd__dims_bits(const sherd__dims *dims, int ndim);

/*
 * Write the rule: dims that stay are a, b, ..; reduced ones p, q, .. (SHERD__REDUCED). NULL, or the
 * reason why not.
 */
const char *sherd__dims_rule(sherd_call *call, const sherd__dims *dims);

/*
 * Write the rule of some operands that have 1 in reduced dims, and a last one that is whole. The
 * result is whole, or reduced.
 */
void sherd__dims_rule_beside(sherd_call *call, const sherd__dims *dims, bool reduces);

/*
 * Describes of operators whose attributes begin with dims: sums in f64; and what is spread again
 * over the last operand, by numbers beside it that have 1 in reduced dims.
 */
const char *sherd__describe_sums(sherd_call *call);
const char *sherd__describe_beside(sherd_call *call);

#define SHERD__REDUCED "pqrstuvw"

/* Whether the reduced dims of a tensor with `ndim` follow one another. */
bool sherd__dims_are_neighbours(const sherd__dims *dims, int ndim);
/* Then: the local tensor as [outer,mid,inner], with them in mid. */
sherd__squares sherd__squares_of(const sherd_tensor *t, const sherd__dims *dims);

/* How many elements are reduced to one, globally. */
int64_t sherd__dims_count(const sherd__dims *dims, const sherd_tensor *t);

/*
 * Strides of the result of a reduction against the dims of the local operand: 0 in dims that are
 * reduced.
 */
void sherd__dims_strides(const sherd_tensor *in, unsigned reduced, int64_t *stride);

/* A local operand as [outer,mid,inner], with the reduced dims in mid. */
typedef struct sherd__dims_box {
    const void *data;
    int64_t outer, mid, inner;
} sherd__dims_box;
/*
 * On the GPU: operand 0, which is not empty, as such a box; copied to memory of the call if its
 * reduced dims are not together. False: failed.
 */
bool sherd__dims_slab(sherd_call *call, unsigned reduced, sherd__dims_box *slab);

/*
 * In backward: t, which has the shape of the result, with dims of size 1 where operand 0 was
 * reduced.
 */
sherd_tensor *sherd__dims_kept(sherd_node *node, sherd_tensor *t);

/*
 * In backward: the gradient of operand 0, all of whose reduced elements have that of the result; in
 * its layout.
 */
sherd_tensor *sherd__dims_spread(sherd_node *node, sherd_tensor *grad);

/* sherd_sum_over by attributes. */
sherd_tensor *sherd__sum_over(sherd_tensor *a, const sherd__dims *dims);
/* The same for the largest, or the least. */
sherd_tensor *sherd__extreme_over(sherd_tensor *a, bool least, const sherd__dims *dims);

#endif
