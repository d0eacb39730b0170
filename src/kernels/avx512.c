/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels for AVX-512. The build gives this file the flags it needs; choose.c asks the
 * machine. */
#include "conv.h"
#include "fast.h"

#ifdef __AVX512F__

#include "vector_avx512.h"
#include "fast_body.inc"
#include "fast_halves.inc"
#include "fast_f32_product.inc"
#include "fast_conv.inc"

void sherd__install_avx512(sherd__kernels *table)
{
    install(table, "avx512");
    install_f32_product(table);
    table->conv_weight = conv_weight;
    table->conv_block = W;
}

void sherd__install_half_avx512(sherd__kernels *bf16, sherd__kernels *f16)
{
    install_halves(bf16, f16, "avx512");
}

double sherd__spin_avx512(int64_t rounds)
{
    return spin(rounds);
}

#endif
