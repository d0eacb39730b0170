/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that several ranks have parts of, on the GPU: dtypes that it computes, statistics f32 (f64
 * of f64). Softmax as the kernels of the same names in kernels.h.
 */
#ifndef SHERD__DEVICE_SHARED_ROWS_H
#define SHERD__DEVICE_SHARED_ROWS_H

#include "device.h"

/* [outer,mid,inner], over mid. */
typedef struct sherd__soft_slab {
    int64_t outer, mid, inner;
} sherd__soft_slab;

void sherd__device_soft_stats(sherd__device *device, sherd_dtype dtype, const sherd__soft_slab *s,
                              void *most, void *total, const void *src);
/* stats[parts,2,n] of that dtype, f32 or f64. */
void sherd__device_soft_join(sherd__device *device, sherd_dtype dtype, int64_t parts, int64_t n,
                             void *most, void *total, const void *stats);
void sherd__device_soft(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                        const sherd__soft_slab *s, void *dst, const void *src, const void *most,
                        const void *total);
void sherd__device_soft_grad_sum(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                                 const sherd__soft_slab *s, void *total, const void *dy,
                                 const void *y);
void sherd__device_soft_grad(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                             const sherd__soft_slab *s, void *dx, const void *dy, const void *y,
                             const void *total);
void sherd__device_soft_spread(sherd__device *device, sherd_dtype dtype, const sherd__soft_slab *s,
                               void *dx, const void *src, const void *log_sum, const void *dy);
/* log_sum[n] = most + log(total), and y[n], of `dtype`, the same. */
void sherd__device_log_sum(sherd__device *device, sherd_dtype dtype, int64_t n, void *y,
                           void *log_sum, const void *most, const void *total);

/*
 * Norms of rows, [rows,cols] of which are here. moments[3,rows]: elements, mean, squared
 * differences; of rows that are not centred [rows], squares.
 */
void sherd__device_row_moments(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                               bool centred, void *moments, const void *x);
/* Of moments of all parts, f32 or f64; rows have `length` elements. mean NULL: not centred. */
void sherd__device_row_moments_join(sherd__device *device, sherd_dtype dtype, int64_t parts,
                                    int64_t rows, double length, double eps, void *mean, void *rstd,
                                    const void *moments);
/* y = (x - mean) rstd weight + bias; mean, weight and bias may be NULL. */
void sherd__device_row_norm(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                            void *y, const void *x, const void *mean, const void *rstd,
                            const void *weight, const void *bias);
/* sums[2,rows] of w dy and w dy (x - mean); not centred [rows], the latter. */
void sherd__device_row_sums(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                            void *sums, const void *dy, const void *x, const void *mean,
                            const void *weight);
/* sums of whole rows. */
void sherd__device_row_norm_grad(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                 int64_t cols, double length, void *dx, const void *dy,
                                 const void *x, const void *mean, const void *rstd,
                                 const void *weight, const void *sums);

/* As attention_join in kernels.h; `more` is of `dtype`, the rest are its statistics. */
void sherd__device_attention_add(sherd__device *device, sherd_dtype dtype,
                                 const sherd__attending *s, void *out, void *log_sum,
                                 const void *more, const void *more_log_sum);
/* sum[n] += x[n]; x is of `dtype`, the sum its statistics. */
void sherd__device_add_up(sherd__device *device, sherd_dtype dtype, int64_t n, void *sum,
                          const void *x);

#endif
