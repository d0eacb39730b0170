/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of running.cu. */
#ifndef SHERD__RUNNING_ARGS_H
#define SHERD__RUNNING_ARGS_H

/* Of [outer,n,inner] over n. parts: a row is cut into so many of `length`, a whole number of what a
 * block takes at once; totals[outer,parts]: what each part begins with, or NULL. */
typedef struct running_rows_args {
    void *dst;
    const void *src;
    void *totals;
    int64_t outer, n, parts, length;
    int32_t reverse;
} running_rows_args;
typedef running_rows_args running_totals_args;
typedef running_rows_args running_starts_args;

typedef struct running_columns_args {
    void *dst;
    const void *src;
    int64_t outer, n, inner;
    int32_t reverse;
} running_columns_args;

#endif
