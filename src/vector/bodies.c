/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the bodies that are compiled several times goes with a table: by the table's name. */
#include "bodies.h"

#include <string.h>

#include "fast.h"
#include "half_sets.h"
#include "kernels/cast.h"

static const sherd__casts casts = {sherd__cast, sherd__cast_to_odd};
static const sherd__bodies plain = {.norms = sherd__norm_kernels_of,
                                    .along = sherd__along_kernels_of,
                                    .casts = &casts,
                                    .sampler = &sherd__sampler_plain,
                                    .add_scaled = sherd__add_scaled,
                                    .quantized = &sherd__quantized_plain};
#ifdef SHERD__SIMD128
static const sherd__bodies simd128 = {sherd__norm_kernels_of,
                                      sherd__along_kernels_of,
                                      &sherd__bf16_norms_simd128,
                                      &sherd__f16_norms_simd128,
                                      &casts,
                                      &sherd__sampler_plain,
                                      sherd__add_scaled,
                                      &sherd__quantized_plain};
#endif

static const sherd__bodies *bodies_of(const sherd__kernels *beside)
{
#if defined(__x86_64__)
    if (strcmp(beside->name, "avx512") == 0)
        return &sherd__bodies_avx512;
    if (strcmp(beside->name, "avx2") == 0)
        return &sherd__bodies_avx2;
#endif
#ifdef SHERD__SIMD128
    if (strcmp(beside->name, "simd128") == 0)
        return &simd128;
#endif
    (void)beside;
    return &plain;
}

const sherd__norm_kernels *sherd__norms_by(const sherd__kernels *beside, sherd_dtype dtype)
{
    const sherd__bodies *of = bodies_of(beside);

    if (dtype == SHERD_BF16 && of->bf16)
        return of->bf16;
    return dtype == SHERD_F16 && of->f16 ? of->f16 : of->norms(dtype);
}

const sherd__along_kernels *sherd__along_by(const sherd__kernels *beside, sherd_dtype dtype)
{
    return bodies_of(beside)->along(dtype);
}

const sherd__casts *sherd__casts_by(const sherd__kernels *beside)
{
    return bodies_of(beside)->casts;
}

const sherd__sampler *sherd__sampler_by(const sherd__kernels *beside)
{
    return bodies_of(beside)->sampler;
}

sherd__adds_scaled *sherd__adds_scaled_by(const sherd__kernels *beside)
{
    return bodies_of(beside)->add_scaled;
}

const sherd__quantized_kernels *sherd__quantized_by(const sherd__kernels *beside)
{
    return bodies_of(beside)->quantized;
}
