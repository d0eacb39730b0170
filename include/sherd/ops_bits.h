/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of integers (i32, i64, i8, u8) and bool: flags, hashes, packed numbers. "See ops.h" means
 * what the head of ops.h says of all operators; shapes broadcast as in NumPy. They have no
 * gradient.
 */
#ifndef SHERD_OPS_BITS_H
#define SHERD_OPS_BITS_H

#include "tensor.h"

SHERD_BEGIN

/** a and b, bit by bit. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_and(sherd_tensor *a, sherd_tensor *b);
/** a or b, bit by bit. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_or(sherd_tensor *a, sherd_tensor *b);
/** The bits in which a and b differ. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_xor(sherd_tensor *a, sherd_tensor *b);

/**
 * The bits of a moved up by b places; zeros come in, and what leaves is lost. A b below 0, or not
 * below the number of bits, leaves 0. Not of bool.
 *
 * @collective see ops.h   @owns scope   @errors see ops.h
 */
SHERD_API sherd_tensor *sherd_bitwise_left_shift(sherd_tensor *a, sherd_tensor *b);

/**
 * The bits of a moved down by b places; copies of the sign come in: floor(a / 2^b). A b below 0, or
 * not below the number of bits, leaves 0, or -1 of a negative a. Not of bool.
 *
 * @collective see ops.h   @owns scope   @errors see ops.h
 */
SHERD_API sherd_tensor *sherd_bitwise_right_shift(sherd_tensor *a, sherd_tensor *b);

/** All bits changed; of bool: not a. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_not(sherd_tensor *a);

/*
 * The same with a number: its low bits count, as many as the dtype of `a` has; of bool, whether it
 * is 0. A number of places counts as it is.
 */

/** a and `bits`. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_and_scalar(sherd_tensor *a, int64_t bits);
/** a or `bits`. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_or_scalar(sherd_tensor *a, int64_t bits);
/** The bits in which a differs from `bits`. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_xor_scalar(sherd_tensor *a, int64_t bits);
/** As sherd_bitwise_left_shift. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_left_shift_scalar(sherd_tensor *a, int64_t places);
/** As sherd_bitwise_right_shift. @collective see ops.h @owns scope @errors see ops.h */
SHERD_API sherd_tensor *sherd_bitwise_right_shift_scalar(sherd_tensor *a, int64_t places);

SHERD_END

#endif
