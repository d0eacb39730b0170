/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels for AVX2. The build gives this file the flags it needs; choose.c asks the
 * machine. */
#include "fast.h"

#ifdef __AVX2__

#include "vector_avx2.h"
#include "tile_avx2.h"
#include "fast_body.inc"
#include "fast_halves.inc"
#include "fast_gemm_f64.inc"

void sherd__install_avx2(sherd__kernels *table)
{
    install(table, "avx2");
}

void sherd__install_wide_avx2(sherd__kernels *table)
{
    install_wide(table);
}

void sherd__install_half_avx2(sherd__kernels *bf16, sherd__kernels *f16)
{
    install_halves(bf16, f16, "avx2");
}

double sherd__spin_avx2(int64_t rounds)
{
    return spin(rounds);
}

#endif
