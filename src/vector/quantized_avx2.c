/* SPDX-License-Identifier: Apache-2.0 */
/* Values of 8 bits by AVX2: see fast_few_i8.inc. The build gives this file the flags that it needs;
 * machine.c asks the CPU. */
#include "bodies.h"
#include "base/num.h"

#ifdef __AVX2__

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "vector_avx2.h"

INLINE vf v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

#include "fast_few_i8.inc"

const sherd__quantized_kernels sherd__quantized_avx2 = {few, expand, quantize};

#endif
