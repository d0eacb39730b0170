/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is sorted: searching in sorted sequences, the distinct values of a tensor, and the element
 * that has a given place in order. Here NaN counts as the largest number, all NaNs are equal, and
 * so are 0 and -0. "See ops.h" means what the head of ops.h says of all operators.
 *
 *     sherd_tensor *inverse, *values = sherd_unique(species, &inverse, NULL); // of any layout
 *     sherd_tensor *bin = sherd_searchsorted(edges, energy, true, SHERD_I32);
 */
#ifndef SHERD_OPS_SORTED_H
#define SHERD_OPS_SORTED_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * For each value, where it would be inserted in an ascending sequence: the number of elements that
 * are less than it, or with `right` less or equal (torch.searchsorted; torch.bucketize, where
 * `sorted` has the boundaries). The result is undefined for a sequence that is not ascending. No
 * gradient.
 *
 * @collective see ops.h. A single sequence is gathered, and values stay, sharded in any way; if
 *             each row has its own sequence, the leading dims of both are sharded alike
 * @shapes     sorted: [n], one sequence for values of any shape; or [..., n], one for each row of
 *             values [..., m] with the same leading dims; dtype: of the result, SHERD_I64 or
 *             SHERD_I32; the result: the shape of the values
 * @owns       scope
 * @errors     see ops.h; EINVAL `sorted` without dims, leading dims that differ, another dtype, a
 *             sequence too long for SHERD_I32
 */
SHERD_API sherd_tensor *sherd_searchsorted(sherd_tensor *sorted, sherd_tensor *values, bool right,
                                           sherd_dtype dtype);

/**
 * The distinct values of all of `a`, ascending: [count], replicated over the mesh; -0 is given as
 * 0. Each rank sorts its shard; then ranks exchange the number of distinct values of each shard (8
 * bytes), and these values, and nothing else. No gradient.
 *
 * Only ranks of the mesh know the count; on other ranks a result has no elements. In a dry world
 * (dry.h) all elements of `a` count as distinct.
 *
 * @collective the mesh of `a`
 * @shapes     inverse: gets an i32 tensor with the shape and layout of `a`, the index in the result
 *             of each element; counts: gets an i64 tensor [count], how often each value occurs,
 *             replicated as the result; NULL = not wanted, on all ranks or on none
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a shard with 2^31 elements or more, or as many distinct values
 */
SHERD_API sherd_tensor *sherd_unique(sherd_tensor *a, sherd_tensor **inverse,
                                     sherd_tensor **counts);

/**
 * The distinct slices along a dim (torch.unique with dim), such as the distinct rows of a matrix:
 * in the order of their first elements that differ, row-major; replicated over the mesh.
 *
 * Slices are compared by the numbers of their values among all distinct values of `a`, a few
 * columns at a time: so a sort of all values, and for every few columns of the slices one of as
 * many numbers as there are slices, until all are told apart. What travels is as in sherd_unique.
 *
 * @collective the mesh of `a`
 * @shapes     the result: as `a`, with another size of the dim; inverse: gets i32 [size of the
 *             dim], the index in the result of each slice; counts: gets i64 [slices of the result];
 *             NULL = not wanted, on all ranks or on none
 * @owns       scope, all
 * @errors     as sherd_unique; EINVAL no such dim, slices without elements; ELIMIT more than 2^53
 *             pairs of a slice and a distinct value
 */
SHERD_API sherd_tensor *sherd_unique_along(sherd_tensor *a, int dim, sherd_tensor **inverse,
                                           sherd_tensor **counts);

/**
 * The slices along a dim that differ from the one before, and the first one. For runs of equal
 * elements: sherd_flatten first. No gradient.
 *
 * Only neighbours of shards, and counts travel. The result is sharded as sherd_masked_select leaves
 * it; with `inverse` or `counts`, the dim of a bool for each slice is gathered (sherd_cumsum).
 *
 * @collective the mesh of `a`
 * @shapes     as sherd_unique_along; counts: how long each run is
 * @owns       scope, all
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_unique_consecutive(sherd_tensor *a, int dim, sherd_tensor **inverse,
                                                 sherd_tensor **counts);

/* ---- places in order: shards of the dim are gathered, or moved to another dim ---------------- */

/**
 * The k-th smallest element of a dim (1: the smallest), of any dtype, and where it is: of equal
 * elements in the order of their indices. The gradient goes to that element.
 *
 * @collective see ops.h
 * @shapes     indices: gets the i32 tensor; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim, k < 1, or fewer than k elements
 */
SHERD_API sherd_tensor *sherd_kthvalue(sherd_tensor *a, int64_t k, int dim, bool keepdim,
                                       sherd_tensor **indices);

/**
 * The median of a dim, of any dtype, and where it is: of an even number of elements the lower one;
 * NaN if there is one, the first. The gradient goes to that element, of equal ones to that which a
 * stable sort from the largest puts there. For the median of all elements: sherd_flatten first.
 *
 * @collective see ops.h
 * @shapes     indices: gets the i32 tensor; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim, or no elements
 */
SHERD_API sherd_tensor *sherd_median(sherd_tensor *a, int dim, bool keepdim,
                                     sherd_tensor **indices);

/* Where q (n - 1) is no whole number: what is between the elements below and above. */
typedef enum sherd_quantile_way {
    SHERD_QUANTILE_LINEAR = 0, /* as far between them as the number is; may be NaN at an infinity */
    SHERD_QUANTILE_LOWER,
    SHERD_QUANTILE_HIGHER,
    SHERD_QUANTILE_NEAREST, /* halfway: the even number */
    SHERD_QUANTILE_MIDPOINT /* as LINEAR, halfway between both */
} sherd_quantile_way;

/**
 * The quantile of a dim: of its n elements in order what is at q (n - 1); 0.5 is a median. NaN if
 * there is a NaN. The gradient goes to the one or two elements.
 *
 * @collective see ops.h
 * @numerics   q (n - 1) is computed in f64 (PyTorch: in the dtype of `a`)
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, no elements, q outside [0, 1], an unknown way
 */
SHERD_API sherd_tensor *sherd_quantile(sherd_tensor *a, double q, int dim, sherd_quantile_way way,
                                       bool keepdim);

SHERD_END

#endif
