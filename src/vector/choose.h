/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of this machine: a set for a world, and the table in it of a dtype. */
#ifndef SHERD__VECTOR_CHOOSE_H
#define SHERD__VECTOR_CHOOSE_H

#include "kernels/kernels.h"

/* Fill a set for this machine. */
void sherd__kernels_choose(sherd__kernel_set *set);

/* The table of a dtype; NULL for one that has no fractions. */
const sherd__kernels *sherd__kernels_of(const sherd__kernel_set *set, sherd_dtype dtype);

/*
 * Of any dtype. The tables of integers and bool have reduce, fill, unary (what is NUMBERS in
 * functions.inc), binary (add, sub, mul and NUMBERS), compare, fold, extreme, extreme_join; NULL of
 * none.
 */
const sherd__kernels *sherd__kernels_of_any(const sherd__kernel_set *set, sherd_dtype dtype);

/* What a move may ask for: reduce, reduce_spread, reduce_past and fill, also of integers and bool,
 * of which there is no average: NULL. */
const sherd__kernels *sherd__kernels_to_reduce(const sherd__kernel_set *set, sherd_dtype dtype,
                                               sherd_reduce_op op);

/* As sherd__cast (cast.h), by this machine's best. */
void sherd__convert(const sherd__kernel_set *set, sherd_dtype dst_dtype, sherd_dtype src_dtype,
                    int64_t n, void *dst, const void *src);

/* By what f32 products of a set are made: "onednn", or the name of the table's gemm. */
const char *sherd__gemm_name(const sherd__kernel_set *set);

#endif
