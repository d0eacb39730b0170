/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of whole.cu. */
#ifndef SHERD__PROGRAMS_WHOLE_ARGS_H
#define SHERD__PROGRAMS_WHOLE_ARGS_H

/* Of n elements. kind: sherd__unary_kind; wide: both may be read and written 16 bytes at once. */
typedef struct whole_unary_args {
    void *dst;
    const void *src;
    int64_t n;
    int32_t kind, wide;
    int64_t parameter[2];
} whole_unary_args;

/* kind: sherd__binary_kind; the rest as in compare_args.h. */
typedef struct whole_binary_args {
    void *dst;
    const void *operand[2];
    int64_t n, items;
    int32_t kind, wide, step[2];
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[2][8];
} whole_binary_args;

/* counts[i] += how often first + i is among index[n]. shared: there is room for them in a block. */
typedef struct count_args {
    int32_t *counts;
    const int32_t *index;
    int64_t n, first, classes;
    int32_t shared;
} count_args;

#endif
