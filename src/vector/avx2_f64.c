/* SPDX-License-Identifier: Apache-2.0 */
/* The fast f64 kernels for AVX2. The build gives this file the flags it needs; machine.c asks the
 * CPU. */
#include "fast.h"

#ifdef __AVX2__

#define SET            "avx2"
#define NORMAL_NUMBERS sherd__normal_avx2

#include "vector_avx2_f64.h"
#include "fast_body_f64.inc"

void sherd__install_avx2_f64(sherd__kernels *f64)
{
    install(f64);
}

#endif
