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

/* [outer, n, inner] of this rank's piece. */
void sherd__size_along(int64_t size[3], const sherd_tensor *t, int dim);

#endif
