/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements that indices put together: the largest, the smallest and products, which are no sums
 * (extremes.c), and the reductions that are made of them (reducing.c).
 */
#ifndef SHERD__OPS_REDUCING_H
#define SHERD__OPS_REDUCING_H

#include "pick.h"
#include "sherd/ops_index.h"

typedef struct sherd__reducing {
    int dim;
    bool flat; /* the index has one dim, and is of slices; else as many as the source */
    sherd_tensor *index;
    sherd_reduce_op reduce;
} sherd__reducing;

/* A copy of `a` with the source added; what is at the indices in `a`. */
sherd_tensor *sherd__add_at(sherd_tensor *a, const sherd__reducing *g, sherd_tensor *source);
sherd_tensor *sherd__take_at(sherd_tensor *a, const sherd__reducing *g);

/*
 * The largest or smallest of `a` and of the sources, or the product of the sources alone, which
 * only takes shape and layout of `a`. With its gradient.
 */
sherd_tensor *sherd__most_at(sherd_tensor *a, const sherd__reducing *g, sherd_tensor *source);

/* The same without a gradient, as it was found: maybe pending. */
sherd_tensor *sherd__find_at(sherd_tensor *a, const sherd__reducing *g, sherd_tensor *source);

/*
 * The layout of a tensor with nothing pending, to be changed; of a plain one its shape alone,
 * without a mesh. And the constant of such a layout, or shape.
 */
sherd__layout_spec sherd__settled_spec(const sherd_tensor *t);
sherd_tensor *sherd__constant_of(sherd_world *world, const sherd__layout_spec *spec,
                                 sherd_dtype dtype, double value);

/* The neutral element of a reduction; of SHERD_MIN in i64, which no f64 is, 2^63. */
double sherd__neutral(sherd_reduce_op reduce, sherd_dtype dtype);

#endif
