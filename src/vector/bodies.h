/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are written once, in plain C, and compiled for each instruction set: the compiler
 * finds the vectors, and all compute the same bits. Those of layers are asked for beside a table,
 * and are as wide as that, so SHERD_KERNELS counts for them too (norms over sets of 16 bits are
 * those of fast_half_sets.inc); loops that compare, fold and convert are put into the tables.
 */
#ifndef SHERD__VECTOR_BODIES_H
#define SHERD__VECTOR_BODIES_H

#include "kernels/norms.h"
#include "kernels/quantized.h"
#include "kernels/sample.h"
#include "kernels/scaled.h"

/* As sherd__cast and sherd__cast_to_odd. */
typedef struct sherd__casts {
    void (*cast)(sherd_dtype dst_dtype, sherd_dtype src_dtype, int64_t n, void *dst,
                 const void *src);
    void (*to_odd)(sherd_dtype src_dtype, int64_t n, float *dst, const void *src);
} sherd__casts;

/* As sherd__add_scaled. */
typedef void sherd__adds_scaled(sherd_dtype dtype, double factor, int ndim, const int64_t *size,
                                void *d, const void *a, const int64_t *a_stride, const void *b,
                                const int64_t *b_stride);

typedef struct sherd__bodies {
    const sherd__norm_kernels *(*norms)(sherd_dtype dtype);
    const sherd__along_kernels *(*along)(sherd_dtype dtype);
    const sherd__norm_kernels *bf16, *f16; /* fast_half_sets.inc; NULL: by `norms` */
    const sherd__casts *casts;
    const sherd__sampler *sampler;
    sherd__adds_scaled *add_scaled;
    const sherd__quantized_kernels *quantized;
} sherd__bodies;
extern const sherd__bodies sherd__bodies_avx2, sherd__bodies_avx512;
extern const sherd__casts sherd__casts_avx2;
extern const sherd__sampler sherd__sampler_avx512;
extern const sherd__quantized_kernels sherd__quantized_avx2, sherd__quantized_avx512;

/* As sherd__norm_kernels_of and sherd__along_kernels_of, for the instructions of this table. */
const sherd__norm_kernels *sherd__norms_by(const sherd__kernels *beside, sherd_dtype dtype);
const sherd__along_kernels *sherd__along_by(const sherd__kernels *beside, sherd_dtype dtype);
const sherd__casts *sherd__casts_by(const sherd__kernels *beside);
const sherd__sampler *sherd__sampler_by(const sherd__kernels *beside);
sherd__adds_scaled *sherd__adds_scaled_by(const sherd__kernels *beside);
const sherd__quantized_kernels *sherd__quantized_by(const sherd__kernels *beside);

/* Put the loops of AVX2 into the tables, which hold the plain ones, and over them those of AVX-512.
 */
void sherd__install_bodies_avx2(sherd__kernel_set *set);
void sherd__install_bodies_avx512(sherd__kernel_set *set);

#endif
