/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels for vectors of 128 bits, which all machines of arm64 and x86-64 have: nobody has
 * to be asked. */
#include "fast.h"

#ifdef SHERD__SIMD128

#include "vector_simd128.h"
#if defined(__aarch64__)
#include "tile_neon.h"
#endif
#include "fast_body.inc"
#include "fast_halves.inc"
#include "fast_gemm_f64.inc"

void sherd__install_simd128(sherd__kernels *table)
{
    install(table, "simd128");
}

void sherd__install_wide_simd128(sherd__kernels *table)
{
    install_wide(table);
}

void sherd__install_half_simd128(sherd__kernels *bf16, sherd__kernels *f16)
{
    install_halves(bf16, f16, "simd128");
}

double sherd__spin_simd128(int64_t rounds)
{
    return spin(rounds);
}

#endif
