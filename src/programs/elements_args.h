/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of elements.cu. */
#ifndef SHERD__PROGRAMS_ELEMENTS_ARGS_H
#define SHERD__PROGRAMS_ELEMENTS_ARGS_H

/* Of n elements. wide: all pointers may be read and written 16 bytes at once. */
typedef struct unary_args {
    void *dst;
    const void *src; /* what the slope reads; NULL if nothing */
    const void *dy;  /* of unary_grad */
    int64_t n;
    int32_t wide;
    double parameter[2];
} unary_args;
typedef unary_args unary_grad_args;

/*
 * Of groups of elements, `items` of them, in a box (box.h); dst and dy are contiguous. step: from
 * one element of a group to the next, 0 or 1. What is left of the n elements of a box of one dim is
 * done one by one.
 */
typedef struct binary_args {
    void *dst;
    const void *operand[2];
    const void *dy; /* of the gradients */
    int64_t n, items;
    int32_t wide, step[2];
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[2][8];
} binary_args;
typedef binary_args binary_grad_a_args;
typedef binary_args binary_grad_b_args;

typedef struct fill_args {
    void *dst;
    int64_t n;
    int32_t wide;
    double value;
} fill_args;

typedef struct convert_args {
    void *dst;
    const void *src;
    int64_t n;
    int32_t wide;
} convert_args;

typedef struct dropout_args {
    void *dst;
    const void *src;
    int64_t n, first;
    int32_t wide; /* first is a multiple of 4, and four elements may be read and written at once */
    uint32_t threshold;        /* of 24 bits: below it nothing is kept */
    uint32_t word[2], high[2]; /* the key */
    double factor;
} dropout_args;

#endif
