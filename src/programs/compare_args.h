/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of compare.cu. */
#ifndef SHERD__PROGRAMS_COMPARE_ARGS_H
#define SHERD__PROGRAMS_COMPARE_ARGS_H

/*
 * A box (box.h) of n elements that is gone over in `items` groups of elements, or if not wide one
 * by one; what is written is contiguous. step: from one element of a group to the next, 0 or 1.
 * What is left of a box of one dim is done one by one.
 */
typedef struct strided_box {
    int64_t n, items;
    int32_t wide, step[3];
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[3][8];
} strided_box;

/*
 * Whether a pair is one of those that `truth` has a bit for: 1 less, 2 equal, 4 greater, 8 not
 * ordered; if `logic` 1 << (2 (a is not 0) + (b is not 0)). operand[1] NULL: a number, `whole` for
 * integers.
 */
typedef struct compare_args {
    strided_box box;
    uint8_t *dst;
    const void *operand[2];
    uint32_t truth;
    int32_t logic;
    double number;
    int64_t whole;
} compare_args;

/* dst = mask ? a : b. operand NULL: `value`, an element's bytes. */
typedef struct pick_args {
    strided_box box;
    void *dst;
    const uint8_t *mask;
    const void *operand[2];
    uint64_t value;
} pick_args;

/*
 * Row r of src[rows,cols], the (r % height)th of its matrix, without what is before column edge + r
 * % height (upper), or from there on. across: threads of a block that share a row, a power of two.
 */
typedef struct corner_args {
    void *dst;
    const void *src;
    int64_t rows, cols, height, edge;
    int32_t across, upper;
} corner_args;

/*
 * Of row r of [rows,cols] the column target[r] - first, if it is one of them and not `ignored`;
 * dst[rows] = that element of src, or 0; or dst[rows,cols] = src[rows] there, 0 elsewhere; times
 * weight[cols] (NULL: 1), where that is not 0. across as above.
 */
typedef struct class_args {
    void *dst;
    const void *src, *weight;
    const int32_t *target;
    int64_t rows, cols, first;
    int32_t ignores, ignored, across;
} class_args;
typedef class_args take_class_args;
typedef class_args put_class_args;

#endif
