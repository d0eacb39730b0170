/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels for vectors of 128 bits, which all machines of arm64 and x86-64 have: nobody has
 * to be asked. */
#include "fast.h"

#ifdef SHERD__SIMD128

#define SET            "simd128"
#define NORMAL_NUMBERS sherd__normal_simd128
#define BF16_NORMS     sherd__bf16_norms_simd128
#define F16_NORMS      sherd__f16_norms_simd128

#include "vector_simd128.h"
#if defined(__aarch64__)
#include "tile_neon.h"
#endif
#include "fast_body.inc"
#include "fast_halves.inc"

static void install_f64(sherd__kernels *f64)
{
    sherd__install_simd128_f64(f64);
    install_wide_random(f64);
}

const sherd__fast_set sherd__simd128 = {SET, install, install_f64, install_halves, spin};

#endif
