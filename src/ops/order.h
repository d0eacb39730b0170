/* SPDX-License-Identifier: Apache-2.0 */
/* Of sorting: what other operators that sort use. */
#ifndef SHERD__ORDER_H
#define SHERD__ORDER_H

#include "sherd/op.h"

/*
 * In forward: the elements of operand 0 here as what can be sorted (kernels/pick.h), in f32 if they
 * have 16 bits. NULL: no memory.
 */
const void *sherd__keys_in(sherd_call *call, sherd_dtype *dtype);

#endif
