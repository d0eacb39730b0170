/* SPDX-License-Identifier: Apache-2.0 */
/* The fast f64 kernels for AVX-512. The build gives this file the flags it needs; machine.c asks
 * the CPU. */
#include "fast.h"

#ifdef __AVX512F__

#define SET            "avx512"
#define NORMAL_NUMBERS sherd__normal_avx512

#include "vector_avx512_f64.h"
#include "fast_body_f64.inc"

void sherd__install_avx512_f64(sherd__kernels *f64)
{
    install(f64);
}

#endif
