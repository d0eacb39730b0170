/* SPDX-License-Identifier: Apache-2.0 */
/* The fast f64 kernels for vectors of 128 bits. */
#include "fast.h"

#ifdef SHERD__SIMD128

#define SET            "simd128"
#define NORMAL_NUMBERS sherd__normal_simd128

#include "vector_simd128_f64.h"
#include "fast_body_f64.inc"

void sherd__install_simd128_f64(sherd__kernels *f64)
{
    install(f64);
}

#endif
