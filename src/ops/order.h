/* SPDX-License-Identifier: Apache-2.0 */
/* What operators that need a whole dim share. */
#ifndef SHERD__ORDER_H
#define SHERD__ORDER_H

#include "sherd/op.h"

/*
 * In forward: the elements of operand i here as what can be sorted (kernels/pick.h), in f32 if they
 * have 16 bits. NULL: no memory.
 */
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

#endif
