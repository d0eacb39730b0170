/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank computes with, and how fast that is. */
#ifndef SHERD_INFO_H
#define SHERD_INFO_H

#include "world.h"

SHERD_BEGIN

/* A plain value; the texts are static. Rates are of one core, in FLOP/s. */
typedef struct sherd_info {
    const char *kernels; /* the instruction set of the f32 kernels: "reference", "avx2", "avx512" */
    const char *gemm;    /* who multiplies most f32 matrices: "onednn", "reference" */
    double peak;         /* multiply-adds in registers: what the core can do at most */
    double gemm_rate;    /* a product of 1024 x 1024 matrices; 0 if there is no memory for it */
} sherd_info;

/**
 * Find out what this rank computes with, and measure it; takes some hundredths of a second.
 *
 * @local   @errors none
 */
SHERD_API sherd_info sherd_world_info(const sherd_world *world);

SHERD_END

#endif
