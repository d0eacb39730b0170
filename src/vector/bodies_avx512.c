/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of bodies.h by AVX-512. The build gives this file the flags that it needs. */
#include "bodies.h"
#include "half_sets.h"

#if defined(__x86_64__)

#include <string.h>
#include <tgmath.h>

#include "base/dtype.h"
#include "base/num.h"
#include "kernels/half.h"
#include "kernels/rows.h"

#define NORMS norms
#define ALONG along
#include "kernels/norms_tables.inc"

#define CAST        sherd__cast_avx512
#define CAST_TO_ODD sherd__cast_to_odd_avx512
#include "kernels/cast_body.inc"

static const sherd__casts casts = {sherd__cast_avx512, sherd__cast_to_odd_avx512};
static sherd__adds_scaled add_scaled;
#define ADD_SCALED add_scaled
#include "kernels/scaled_tables.inc"

const sherd__bodies sherd__bodies_avx512 = {norms,
                                            along,
                                            &sherd__bf16_norms_avx512,
                                            &sherd__f16_norms_avx512,
                                            &casts,
                                            &sherd__sampler_avx512,
                                            add_scaled,
                                            &sherd__quantized_avx512};

#define SAMPLER sherd__sampler_avx512
#include "kernels/sample_tables.inc"

#define TYPED(x, type) x##_##type##_avx512
#include "kernels/order_fractions.inc"

/* Where extremes are found is left to AVX2: it is a loop of branches, which wider vectors slow. */
#define INSTALL(type)                                   \
    set->type.compare = sherd__compare_##type##_avx512; \
    set->type.fold = sherd__fold_##type##_avx512

void sherd__install_bodies_avx512(sherd__kernel_set *set)
{
    INSTALL(f32);
    INSTALL(f64);
    INSTALL(bf16);
    INSTALL(f16);
}

#endif
