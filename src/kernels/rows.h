/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box as rows, with where each begins in up to three operands that have strides: dims of one
 * element are dropped and neighbours that lie alike are one, so that rows are as long as they can
 * be.
 */
#ifndef SHERD__KERNELS_ROWS_H
#define SHERD__KERNELS_ROWS_H

#include "sherd/layout.h"

enum { SHERD__ROWS_OF = 3 };

typedef struct sherd__rows {
    int operands, ndim; /* dims besides the row */
    int64_t rows, n;
    int64_t step[SHERD__ROWS_OF]; /* within a row */
    int64_t at[SHERD__ROWS_OF];   /* where this row begins */
    int64_t size[SHERD_MAX_DIMS + 1], index[SHERD_MAX_DIMS + 1];
    int64_t stride[SHERD_MAX_DIMS + 1][SHERD__ROWS_OF];
} sherd__rows;

static inline bool sherd__rows_join(const sherd__rows *r, int last, int64_t size, int d,
                                    const int64_t *const *stride)
{
    for (int j = 0; j < r->operands; j++)
        if (r->stride[last][j] != stride[j][d] * size)
            return false;
    return true;
}

static inline sherd__rows sherd__rows_of(int ndim, const int64_t *size, int operands,
                                         const int64_t *const *stride)
{
    sherd__rows r = {.operands = operands, .rows = 1};

    for (int d = 0; d < ndim; d++) {
        int last = r.ndim - 1;
        if (size[d] == 1)
            continue;
        if (last >= 0 && sherd__rows_join(&r, last, size[d], d, stride))
            r.size[last] *= size[d];
        else
            r.size[last = r.ndim++] = size[d];
        for (int j = 0; j < operands; j++)
            r.stride[last][j] = stride[j][d];
    }
    if (r.ndim == 0)
        r.size[r.ndim++] = 1;
    r.ndim--;
    r.n = r.size[r.ndim];
    for (int j = 0; j < operands; j++)
        r.step[j] = r.stride[r.ndim][j];
    for (int d = 0; d < r.ndim; d++)
        r.rows *= r.size[d];
    return r;
}

/* The next row; the index counts up like an odometer, the last dim fastest. */
static inline void sherd__rows_next(sherd__rows *r)
{
    for (int d = r->ndim - 1; d >= 0; d--) {
        bool wraps = ++r->index[d] == r->size[d];
        for (int j = 0; j < r->operands; j++)
            r->at[j] += wraps ? r->stride[d][j] * (1 - r->size[d]) : r->stride[d][j];
        if (!wraps)
            return;
        r->index[d] = 0;
    }
}

#endif
