/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy with options on the GPU: as kernels/layers.h says, all pointers the GPU's. */
#ifndef SHERD__DEVICE_ENTROPY_H
#define SHERD__DEVICE_ENTROPY_H

#include "device.h"
#include "kernels/layers.h"

/* The numbers stats[5,rows], all of them. */
void sherd__device_entropy(sherd__device *device, sherd_dtype dtype, const sherd__entropy *e,
                           void *stats, const void *logits);
/*
 * Joins stats[parts,5,rows]. loss[rows], of the dtype; NULL = not wanted. pair:
 * the sum of losses and that of the targets' weights.
 */
void sherd__device_entropy_join(sherd__device *device, sherd_dtype dtype, const sherd__entropy *e,
                                int64_t parts, double *row_sums, void *amount, void *loss,
                                double pair[2], const void *stats);
/* *loss = pair[0]; or if there is `counted`, a statistic, pair[0] / pair[1], *counted = pair[1]. */
void sherd__device_entropy_end(sherd__device *device, sherd_dtype dtype, void *loss, void *counted,
                               const double pair[2]);

/* dy[rows] if `each`, else one, divided by *counted, a statistic; NULL = 1. */
typedef struct sherd__entropy_slope {
    const void *dy, *counted;
    bool each;
} sherd__entropy_slope;
/* amount NULL: the gradient of probabilities. */
void sherd__device_entropy_grad(sherd__device *device, sherd_dtype dtype, const sherd__entropy *e,
                                void *dst, const void *logits, const double *row_sums,
                                const void *amount, const sherd__entropy_slope *slope);

#endif
