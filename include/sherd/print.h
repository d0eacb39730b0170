/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors for people to look at. One rank writes; what is not shown does not travel.
 *
 *     f32[1000(x),6] on (x=4)
 *     [0,0]       0     1     2     3     4     5
 *     [1,0]       6     7     8     9    10    11
 *     ...
 *     [999,0]  5994  5995  5996  5997  5998  5999
 *
 * The first line is what the tensor says of itself. Each other line begins with the global index of its first value, the
 * next ones follow along the last dim. "..." stands for values that are left out: at the end of a line of this row, on a
 * line of its own of whole rows. Where a reduction is pending the values are those after it, and the first line says
 * "settled"; a plain tensor is that of the rank which writes, and the first line says of which.
 */
#ifndef SHERD_PRINT_H
#define SHERD_PRINT_H

#include <stdio.h>

#include "tensor.h"

SHERD_BEGIN

/* All zero = the defaults. */
typedef struct sherd_print_options {
    const char *name; /* stands before the first line: "x: f32[...]"; NULL = nothing */
    int rank; /* the world rank that writes; where it is not in the tensor's mesh, the first one of that */
    int digits;        /* significant ones of fractions, at most 17; 0 = 6 */
    int64_t threshold; /* tensors of more elements are elided; 0 = 1000, negative = none is */
    int64_t edge;      /* then so many values are shown at each end of a dim; 0 = 3 */
} sherd_print_options;

/**
 * Write a tensor to a file.
 *
 * Nothing is written after a failure. Whether the file took it is for its owner to ask (ferror).
 *
 * @collective the tensor's mesh; local for a plain tensor. Moves are in the comm log, like any others
 * @shapes     file: of the rank that writes, flushed; NULL = the standard output. options: NULL = all zero
 * @errors     EINVAL options out of range; EDIFFER; ENOMEM; EPEER
 */
SHERD_API void sherd_print(FILE *file, sherd_tensor *t, const sherd_print_options *options);

/**
 * The same into a text; returns its length without the ending zero, as snprintf, also where the room is too small for it.
 *
 * @collective the tensor's mesh; local for a plain tensor
 * @shapes     out: char[room], always with an ending zero; NULL with room 0 = only the length. On ranks that do not write,
 *             and after a failure, it is "" and the length 0. options: NULL = all zero
 * @errors     EINVAL options out of range, out NULL with room; EDIFFER; ENOMEM; EPEER
 */
SHERD_API size_t sherd_print_text(char *out, size_t room, sherd_tensor *t,
                                  const sherd_print_options *options);

SHERD_END

#endif
