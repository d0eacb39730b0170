/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of bodies.h by AVX-512. The build gives this file the flags that it needs. */
#include "bodies.h"
#include "half_sets.h"
#include "kernels/half.h"

#if defined(__x86_64__)

#define NORMS norms
#define ALONG along
#include "kernels/norms_tables.inc"

const sherd__bodies sherd__bodies_avx512 = {norms, along, &sherd__bf16_norms_avx512,
                                            &sherd__f16_norms_avx512, &sherd__casts_avx2};

#endif
