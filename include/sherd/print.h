/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors printed for people to read. One rank writes; only the elements that are shown are sent to
 * it.
 *
 *     sherd_print(NULL, x, NULL); // all ranks call it; rank 0 writes to standard output
 *
 *     f32[2(x),600] on (x=2)
 *     [0,0]       0     1     2  ...
 *     [0,597]   597   598   599
 *     [1,0]     600   601   602  ...
 *     [1,597]  1197  1198  1199
 *
 * The first line is the tensor's text (sherd_tensor_text). Each other line begins with the global
 * index of its first value; the values follow along the last dim. "..." stands for omitted values:
 * at the end of a line for the rest of a row, on a line of its own for whole rows. A pending
 * reduction is shown settled, and the first line says so. Of a plain tensor, the rank that writes
 * shows its own values, and the first line names that rank.
 */
#ifndef SHERD_PRINT_H
#define SHERD_PRINT_H

#include <stdio.h>

#include "tensor.h"

SHERD_BEGIN

/* All zero = the defaults. */
typedef struct sherd_print_options {
    const char *name;  /* prefix of the first line, "x: f32[...]"; NULL = none */
    int rank;          /* world rank that writes; one outside the mesh = the mesh's first rank */
    int digits;        /* significant digits of floating-point values, at most 17; 0 = 6 */
    int64_t threshold; /* tensors with more elements are abridged; 0 = 1000, negative = never */
    int64_t edge;      /* values shown at each end of an abridged dim; 0 = 3 */
} sherd_print_options;

/**
 * Write a tensor to a file.
 *
 * After a failure nothing is written. Errors of the file itself are the caller's to check (ferror).
 *
 * @collective the tensor's mesh; local for a plain tensor. Data that is moved appears in the comm
 *             log
 * @shapes     file: written and flushed on one rank, not used on the others; NULL = standard
 *             output; options: NULL = all zero
 * @errors     EINVAL options out of range; EDIFFER; ENOMEM; EPEER
 */
SHERD_API void sherd_print(FILE *file, sherd_tensor *t, const sherd_print_options *options);

/**
 * As sherd_print, into a buffer. Returns the length of the whole text without the terminating zero,
 * like snprintf, even if the buffer is too small.
 *
 * @collective the tensor's mesh; local for a plain tensor
 * @shapes     out: char[room], always zero-terminated; NULL with room 0 = only the length. On ranks
 *             that do not write, and after a failure, the text is "" and the length 0; options:
 *             NULL = all zero
 * @errors     EINVAL options out of range, `out` NULL with room > 0; EDIFFER; ENOMEM; EPEER
 */
SHERD_API size_t sherd_print_text(char *out, size_t room, sherd_tensor *t,
                                  const sherd_print_options *options);

SHERD_END

#endif
