/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels this rank computes with, and how fast they are. */
#ifndef SHERD_INFO_H
#define SHERD_INFO_H

#include "world.h"

SHERD_BEGIN

/* A plain value; the texts are static. Rates are of one core, in FLOP/s. */
typedef struct sherd_info {
    const char *kernels; /* the instruction set of the f32 kernels: "reference", "avx2", "avx512" */
    const char *gemm;    /* what multiplies f32 matrices: "onednn", "tiles", "reference" */
    double peak;      /* multiply-adds of f32 in registers: the most that the core can do by them */
    double gemm_rate; /* a product of f32 matrices of 1024 x 1024, with AMX above the peak of
                            multiply-adds; 0 if memory ran out */
    double bf16_peak; /* the same as peak, of products of bf16, which are computed in f32 where
                            that is faster; 0 with AMX, where it is not measured */
} sherd_info;

/**
 * Which kernels this rank uses, and their speed, measured in the call. Takes some hundredths of a
 * second.
 *
 * @local   @errors none
 */
SHERD_API sherd_info sherd_world_info(const sherd_world *world);

SHERD_END

#endif
