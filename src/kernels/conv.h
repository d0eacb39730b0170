/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of one rank's pieces: y[n, o, e] = sum over c, k of w[o, c, k] x[n, g(o) c, e stride
 * - before + k dilation], where what lies outside of x is 0. All arrays are row-major: x[batch,
 * in_channels, in], y[batch, out_channels, out], w[out_channels, in_channels / groups, kernel].
 * Dims beyond those that there are have size 1. `before` may be of any sign, so that x and y may be
 * any pieces of larger ones. Plain versions in conv.c; those of oneDNN in engine.h.
 */
#ifndef SHERD__KERNELS_CONV_H
#define SHERD__KERNELS_CONV_H

#include "kernels.h"

enum { SHERD__CONV_DIMS = 3 };

typedef struct sherd__conv {
    int64_t batch, groups, in_channels, out_channels;
    int64_t in[SHERD__CONV_DIMS], out[SHERD__CONV_DIMS], kernel[SHERD__CONV_DIMS];
    int64_t stride[SHERD__CONV_DIMS], dilation[SHERD__CONV_DIMS], before[SHERD__CONV_DIMS];
} sherd__conv;

typedef struct sherd__conv_kernels {
    void (*forward)(const sherd__conv *c, void *y, const void *x, const void *w);
    void (*backward_x)(const sherd__conv *c, void *dx, const void *dy, const void *w);
    void (*backward_w)(const sherd__conv *c, void *dw, const void *x, const void *dy);
} sherd__conv_kernels;

extern const sherd__conv_kernels sherd__conv_f32, sherd__conv_f64;

typedef enum sherd__conv_kind {
    SHERD__CONV_FORWARD,
    SHERD__CONV_BACKWARD_X,
    SHERD__CONV_BACKWARD_W
} sherd__conv_kind;

enum { SHERD__CONV_X, SHERD__CONV_W, SHERD__CONV_Y, SHERD__CONV_ARRAYS };

/* Something to be made of pieces: of the arrays the one that `kind` makes is written, the others
 * are read. */
typedef struct sherd__conv_task {
    sherd__conv_kind kind;
    void *array[SHERD__CONV_ARRAYS];
} sherd__conv_task;

/* The plain kernels, of f32 or f64. */
void sherd__conv_plain(const sherd__conv *c, sherd_dtype dtype, const sherd__conv_task *task);

#endif
