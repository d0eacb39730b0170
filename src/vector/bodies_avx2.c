/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of bodies.h by AVX2. The build gives this file the flags that it needs; machine.c asks
 * the CPU. */
#include "bodies.h"
#include "half_sets.h"

#if defined(__x86_64__)

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/num.h"
#include "kernels/half.h"
#include "kernels/rows.h"

#define NORMS norms
#define ALONG along
#include "kernels/norms_tables.inc"

static sherd__adds_scaled add_scaled;
#define ADD_SCALED add_scaled
#include "kernels/scaled_tables.inc"

const sherd__bodies sherd__bodies_avx2 = {norms,
                                          along,
                                          &sherd__bf16_norms_avx2,
                                          &sherd__f16_norms_avx2,
                                          &sherd__casts_avx2,
                                          &sherd__sampler_plain,
                                          add_scaled,
                                          &sherd__quantized_avx2};

/* ---- conversions ----------------------------------------------------------------------------- */

#define CAST        sherd__cast_avx2
#define CAST_TO_ODD sherd__cast_to_odd_avx2
#include "kernels/cast_body.inc"

const sherd__casts sherd__casts_avx2 = {sherd__cast_avx2, sherd__cast_to_odd_avx2};

/* ---- loops of the tables --------------------------------------------------------------------- */

#define TYPED(x, type) x##_##type##_avx2
#include "kernels/order_fractions.inc"

static void widen_f64(int64_t n, float *dst, const void *src)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)((const double *)src)[i];
}

static void narrow_f64(int64_t n, void *dst, const float *src)
{
    for (int64_t i = 0; i < n; i++)
        ((double *)dst)[i] = (double)src[i];
}

#define INSTALL(type)                                 \
    set->type.compare = sherd__compare_##type##_avx2; \
    set->type.fold = sherd__fold_##type##_avx2;       \
    set->type.extreme = sherd__extreme_##type##_avx2

void sherd__install_bodies_avx2(sherd__kernel_set *set)
{
    INSTALL(f32);
    INSTALL(f64);
    INSTALL(bf16);
    INSTALL(f16);
    set->f64.widen = widen_f64;
    set->f64.narrow = narrow_f64;
}

#endif
