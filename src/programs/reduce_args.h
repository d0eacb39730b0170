/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of reduce.cu. */
#ifndef SHERD__PROGRAMS_REDUCE_ARGS_H
#define SHERD__PROGRAMS_REDUCE_ARGS_H

/*
 * stride[0] of dst, then those of the sources. wide: an item is a group of elements, which are
 * neighbours everywhere.
 */
typedef struct reduce_args {
    void *dst;
    const void *src[16];
    int64_t items;
    int32_t count, wide;
    int32_t average; /* divide by divisor */
    double divisor;
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[17][8];
} reduce_args;

/*
 * dst[rows,parts] = sums of parts, `length` elements each but the last, of src[rows,mid]. team:
 * threads of a sum, a warp or the block. wide: groups of elements may be read at once.
 */
typedef struct sum_rows_args {
    void *dst;
    const void *src;
    int64_t rows, mid, parts, length;
    int32_t team, wide, add;
} sum_rows_args;

/*
 * dst[outer,parts,inner] = sums of parts of src[outer,mid,inner] over mid. across: threads of a
 * block along inner, a power of two, each of which takes one element, or a group if wide.
 */
typedef struct sum_columns_args {
    void *dst;
    const void *src;
    int64_t outer, mid, inner, parts, length;
    int64_t tiles; /* along inner */
    int32_t across, wide, add;
} sum_columns_args;

#endif
