/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over sets of 16 bits (fast_half_sets.inc), of each instruction set. */
#ifndef SHERD__VECTOR_HALF_SETS_H
#define SHERD__VECTOR_HALF_SETS_H

#include "kernels/norms.h"

extern const sherd__norm_kernels sherd__bf16_norms_simd128, sherd__bf16_norms_avx2,
    sherd__bf16_norms_avx512;
extern const sherd__norm_kernels sherd__f16_norms_simd128, sherd__f16_norms_avx2,
    sherd__f16_norms_avx512;

#endif
