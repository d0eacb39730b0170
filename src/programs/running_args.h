/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of running.cu. */
#ifndef SHERD__PROGRAMS_RUNNING_ARGS_H
#define SHERD__PROGRAMS_RUNNING_ARGS_H

/*
 * Of [outer,n,inner] over n, in parts of `length`, of rows a whole number of what a block takes at
 * once. totals[outer,parts,inner]: what each part begins with, or NULL. wide: groups of elements of
 * a row may be read and written at once.
 */
typedef struct running_args {
    void *dst;
    const void *src;
    void *totals;
    int64_t outer, n, inner, parts, length;
    int32_t reverse, wide;
} running_args;
typedef running_args running_rows_args;
typedef running_args running_columns_args;
typedef running_args row_totals_args;
typedef running_args column_totals_args;
typedef running_args running_starts_args;

enum { LINE_THREADS = 64 /* of a block with rows */ };

/* Of [outer,n,inner] along n, of src and, for recurrences, more; where: places, of extremes. */
typedef struct line_args {
    void *dst;
    int32_t *where;
    const void *src, *more;
    int64_t outer, n, inner;
    int32_t reverse, behind; /* the factor of a step is that of the place it comes from */
} line_args;
typedef line_args line_rows_args;
typedef line_args line_columns_args;

#endif
