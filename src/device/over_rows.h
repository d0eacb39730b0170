/* SPDX-License-Identifier: Apache-2.0 */
/* What other launchers need of over_rows.c. */
#ifndef SHERD__DEVICE_OVER_ROWS_H
#define SHERD__DEVICE_OVER_ROWS_H

#include "device.h"

/* Launch a kernel of this program, `kind` NULL: of one that knows no pieces. */
void sherd__launch_over_rows(sherd__device *device, const char *family, const char *kind,
                             sherd_dtype dtype, int64_t blocks, const void *args, size_t bytes);

/* Gradients of a norm's weight and bias, NULL = not wanted; mean NULL: of an RMS norm. */
void sherd__device_norm_columns(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                int64_t cols, void *dweight, void *dbias, const void *dy,
                                const void *x, const void *mean, const void *rstd);

#endif
