/* SPDX-License-Identifier: Apache-2.0 */
/* Elements taken and put by index, their order, and running sums. All is [outer, n, inner],
 * row-major. */
#ifndef SHERD__KERNELS_PICK_H
#define SHERD__KERNELS_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sherd/dtype.h"
#include "sherd/layout.h"

/*
 * One side is [outer, n, inner], the other [outer, entries, inner]: its entries are the indices
 * first, first + 1, ... of a dim. Indices of other entries are passed over.
 */
typedef struct sherd__pick {
    int64_t outer, n, inner, entries, first;
    const int32_t *index; /* [outer, n, inner]; or [n], if `flat` */
    bool flat;
} sherd__pick;

/* dst[o, j, i] = src[o, index[o, j, i] - first, i]; 0 where that is passed over. `bytes` of an
 * element. */
void sherd__gather(size_t bytes, const sherd__pick *p, void *dst, const void *src);

/* dst[o, index - first, i] = src[o, j, i], in order of j; src NULL: the element `value`. */
void sherd__scatter(size_t bytes, const sherd__pick *p, void *dst, const void *src,
                    const void *value);

/*
 * The same with +=, in order of j: f32, f64, i32, i64, i8, u8. Of more than 64 elements, which may
 * all go to one place, f32 adds up as sums.h says (places.h). Or with the larger or the smaller of
 * both where `how` is SHERD_MAX or SHERD_MIN; NaN stays; or with *= for SHERD_PRODUCT. Scratch:
 * sherd__scatter_scratch bytes.
 */
void sherd__scatter_reduce(sherd_dtype dtype, sherd_reduce_op how, const sherd__pick *p, void *dst,
                           const void *src, void *scratch);
int64_t sherd__scatter_scratch(sherd_dtype dtype, sherd_reduce_op how, const sherd__pick *p);

/* As gather, but 0 also where a later j has the same index. winner[entries * inner] is scratch. */
void sherd__gather_last(size_t bytes, const sherd__pick *p, void *dst, const void *src,
                        int32_t *winner);

/*
 * index[o, j, i] = where the j-th of src[o, 0..n, i] in order is, j < k; equal ones in order of
 * index, NaN is the largest. All dtypes but those of 16 bits. Scratch: sherd__order_scratch bytes.
 */
void sherd__order(sherd_dtype dtype, const int64_t size[3], int64_t k, bool descending,
                  int32_t *index, const void *src, void *scratch);
int64_t sherd__order_scratch(int64_t n);

/* index[o, j, i] = what sherd__order would have at the place place[j], j < count: found without
 * sorting where n is large. */
void sherd__order_places(sherd_dtype dtype, const int64_t size[3], int count, const int64_t *place,
                         bool descending, int32_t *index, const void *src, void *scratch);

/*
 * dst[o, j, i] = sum over m <= j of src[o, m, i]; m >= j if `reverse`. f32 adds up in f64; integers
 * keep the low bits. f32, f64, i32, i64, i8, u8.
 */
void sherd__running_sum(sherd_dtype dtype, const int64_t size[3], bool reverse, void *dst,
                        const void *src);

#endif
