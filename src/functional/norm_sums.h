/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of a norm's weight and bias, sums over rows: of f32 those of some rows at a time, which
 * are added up in f64 (kernels/sums.h). Kernels of 16 bits do so themselves.
 */
#ifndef SHERD__NORM_SUMS_H
#define SHERD__NORM_SUMS_H

#include "norm_rows.h"

typedef struct sherd__norm_sums {
    int64_t inner, rows; /* rows added since the last ones went to `total` */
    int64_t most;        /* rows that are added to the same sums */
    void *to[2];         /* results: of weight and, or NULL, bias */
    float *part;         /* [2,inner], and */
    double *total;       /* all so far; NULL: the results are summed in themselves */
} sherd__norm_sums;

/* `results` of them, 1 or 2, from result `first` on. Asks for scratch. False: failed. */
bool sherd__norm_sums_begin(sherd__norm_sums *s, sherd_call *call, const sherd__rows *p, int first,
                            int results);

/* Where a kernel adds the next rows, at most s->most - s->rows; if s->rows, to what is there. */
void *sherd__norm_sums_at(const sherd__norm_sums *s, int i);

/* So many rows were added. */
void sherd__norm_sums_count(sherd__norm_sums *s, int64_t rows);

void sherd__norm_sums_end(sherd__norm_sums *s);

/* The gradient of rows that are whole here; g->dweight and g->dbias are results 1 and on. `results`
 * as above. False: failed. */
bool sherd__row_norm_grad(sherd_call *call, const sherd__rows *p, const sherd__added_grad *g,
                          int results);

/* Of 16 bits, where no kernel has it all: a layer norm's, or an RMS norm's. */
void sherd__half_norm_grad(const sherd__kernels *k, int64_t rows, int64_t cols,
                           const sherd__added_grad *g, bool centred);

#endif
