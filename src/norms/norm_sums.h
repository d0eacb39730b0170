/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of a norm's weight and bias, which are sums over rows. In f32 some rows at a time are
 * added up, and these sums are added in f64 (kernels/sums.h). Kernels of 16 bits do that
 * themselves.
 */
#ifndef SHERD__NORMS_NORM_SUMS_H
#define SHERD__NORMS_NORM_SUMS_H

#include "norm_rows.h"

typedef struct sherd__norm_sums {
    int64_t inner, rows; /* rows added since the last ones went to `total` */
    int64_t most;        /* rows that are added to the same sums */
    void *to[2];         /* results: of weight and, or NULL, bias */
    float *part;         /* [2,inner]: sums of the rows since */
    double *total;       /* [2,inner]: of all rows before; NULL: kernels add to the results */
} sherd__norm_sums;

/* `results` of them, 1 or 2, from result `first` on. Asks for scratch. False: failed. */
bool sherd__norm_sums_begin(sherd__norm_sums *s, sherd_call *call, const sherd__normed_rows *p,
                            int first, int results);

/* Where a kernel adds the next rows, at most s->most - s->rows; if s->rows, to what is there. */
void *sherd__norm_sums_at(const sherd__norm_sums *s, int i);

/* So many rows were added. */
void sherd__norm_sums_count(sherd__norm_sums *s, int64_t rows);

void sherd__norm_sums_end(sherd__norm_sums *s);

/*
 * The gradient of a norm, with x at operand `x`, whether its rows are whole here or divided among
 * ranks, and wherever the call runs. dx is result 0; g->dweight and g->dbias are results 1 and on,
 * `results` of them, as above. False: failed.
 */
bool sherd__norm_grad(sherd_call *call, const sherd__row_norm *of, int x,
                      const sherd__added_grad *g, int results);

/*
 * The gradient of a layer norm (centred) or an RMS norm of 16 bits, for tables without a kernel for
 * all of it.
 */
void sherd__half_norm_grad(const sherd__kernels *k, int64_t rows, int64_t cols,
                           const sherd__added_grad *g, bool centred);

#endif
