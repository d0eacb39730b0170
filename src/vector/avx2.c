/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels for AVX2. The build gives this file the flags it needs; machine.c asks the
 * CPU. */
#include "fast.h"

#ifdef __AVX2__

#define SET            "avx2"
#define NORMAL_NUMBERS sherd__normal_avx2
#define BF16_NORMS     sherd__bf16_norms_avx2
#define F16_NORMS      sherd__f16_norms_avx2

#include "vector_avx2.h"
#include "tile_avx2.h"
#include "fast_body.inc"
#include "fast_halves.inc"

static void install_f64(sherd__kernels *f64)
{
    sherd__install_avx2_f64(f64);
    install_wide_random(f64);
}

const sherd__fast_set sherd__avx2 = {SET, install, install_f64, install_halves, spin};

#endif
