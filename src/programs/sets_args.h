/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels of sets.cu are told; part of the program's text too, so no headers here. Numbers of
 * rows are f64, so many apart as there are rows; statistics are those of the dtype.
 */
#ifndef SHERD__PROGRAMS_SETS_ARGS_H
#define SHERD__PROGRAMS_SETS_ARGS_H

enum {
    SETS_THREADS = 256, /* of a block */
    SETS_WARPS = SETS_THREADS / 32
};

/* x[batch,channels,inner]: its rows and sets (kernels/norms.h, norms/sets.h). */
typedef struct sets_of {
    int64_t batch, channels, inner;
    int64_t first, group, slots, rows, sets; /* `slots` sets for each item */
    int32_t whole;                           /* a row, and a set, is a channel of all items */
} sets_of;

/* sums[2,sets,parts]: of x - the set's first element, and its squares. */
typedef struct set_sums_args {
    sets_of s;
    int64_t parts;
    const void *x;
    double *sums;
} set_sums_args;

/* numbers[3,rows]: how many elements the set of each row has here, their mean, and the sum of
 * squared differences. */
typedef struct set_moments_args {
    sets_of s;
    int64_t parts;
    const void *x;
    const double *sums;
    double *numbers;
} set_moments_args;

/* Of numbers[parts,3,rows]: mean and variance, statistics, NULL = not wanted; of_rows[3,rows]:
 * mean, scale, shift. */
typedef struct set_scales_args {
    sets_of s;
    int64_t parts;
    const double *numbers;
    const void *weight, *bias; /* of channels; NULL: ones, zeros */
    void *mean, *var;
    double *of_rows;
    double eps;
} set_scales_args;

/* Pieces of a tensor; at[0] is a piece's row. */
typedef struct set_spread_args {
    int64_t items;
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[1][8];
    int64_t rows;
    void *y;
    const void *x;
    const double *of_rows;
} set_spread_args;

/* sums[2,rows,parts]: of dy, and dy (x - mean). */
typedef struct row_products_args {
    sets_of s;
    int64_t parts;
    const void *dy, *x, *mean;
    double *sums;
} row_products_args;

/* Gradients of weight and bias, NULL = not wanted. */
typedef struct set_parameters_args {
    sets_of s;
    int64_t parts;
    const double *sums;
    const void *var;
    void *dweight, *dbias;
    double eps;
} set_parameters_args;

/* numbers[2,rows]: the sums of the set of each row, rows weighted. */
typedef struct set_products_args {
    sets_of s;
    int64_t parts;
    const double *sums;
    const void *weight;
    double *numbers;
} set_products_args;

/* Of numbers[parts,2,rows], NULL: the moments are fixed; of_rows[4,rows]: mean, scale, shift,
 * slope. */
typedef struct set_slopes_args {
    sets_of s;
    int64_t parts;
    const double *numbers;
    const void *mean, *var, *weight;
    double *of_rows;
    double eps, together; /* elements of a set, on all ranks */
} set_slopes_args;

typedef struct set_gradient_args {
    int64_t items;
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[1][8];
    int64_t rows;
    void *dx;
    const void *dy, *x; /* x NULL: shift and slope are zeros */
    const double *of_rows;
} set_gradient_args;

#endif
