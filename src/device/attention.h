/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on the GPU with all that sherd__attending says: masks, dropout, pieces of sequences.
 * The contracts are those of attention, attention_grad and attention_join in kernels.h;
 * sherd__device_attention is in device.h.
 */
#ifndef SHERD__DEVICE_ATTENTION_H
#define SHERD__DEVICE_ATTENTION_H

#include "device.h"

typedef enum sherd__attending_pass {
    SHERD__ATTENDING_FORWARD,
    SHERD__ATTENDING_BACK,
    SHERD__ATTENDING_TO_MASK /* with the mask's gradient */
} sherd__attending_pass;

/* Whether there are kernels for a problem: heads up to 256 wide; a mask that is bool, of the dtype,
 * or of 16 bits, and not together with a softcap; and whether a block of this GPU has the memory
 * that they take: 99 KB are too few for backward of heads wider than 64. */
bool sherd__device_attends(const sherd__device *device, sherd_dtype dtype,
                           const sherd__attending *s, sherd__attending_pass pass);

/* dout, dlog_sum: NULL = zeroes. dmask, f64, as the mask lies, is added to; NULL = not wanted. */
typedef struct sherd__attending_back {
    void *dq, *dk, *dv;
    double *dmask;
    const void *dout, *dlog_sum, *q, *k, *v, *out, *log_sum;
} sherd__attending_back;

/* False: there are no kernels for it. */
bool sherd__device_attention_back(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, const sherd__attending_back *to);

/* f32 and f64 */
void sherd__device_attention_join(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, void *out, void *log_sum,
                                  const void *more, const void *more_log_sum);

#endif
