/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels for AVX-512. The build gives this file the flags it needs; machine.c asks the
 * CPU. */
#include "fast.h"
#include "kernels/conv.h"

#ifdef __AVX512F__

#define SET            "avx512"
#define NORMAL_NUMBERS sherd__normal_avx512
#define BF16_NORMS     sherd__bf16_norms_avx512
#define F16_NORMS      sherd__f16_norms_avx512

#include "vector_avx512.h"
#include "fast_body.inc"
#include "fast_halves.inc"
#include "fast_conv.inc"

/*
 * Each line is asked for before what goes there is read: stores to the second cache wait one after
 * the other for their lines. A twentieth faster than memcpy; with shorter vectors it is not.
 */
static void copy(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
    size_t at = (SHERD__LINE - (uintptr_t)to % SHERD__LINE) % SHERD__LINE;

    at = at < bytes ? at : bytes;
    if (at)
        memcpy(to, from, at);
    for (; at + SHERD__LINE <= bytes; at += SHERD__LINE) {
        sherd__own_soon(to + at);
        v_store((float *)(void *)(to + at), v_load((const float *)(const void *)(from + at)));
    }
    if (at < bytes)
        memcpy(to + at, from + at, bytes - at);
}

static void install_more(sherd__kernels *table)
{
    install(table);
    table->copy = copy;
    table->conv_weight = conv_weight;
    table->conv_block = W;
}

static void install_f64(sherd__kernels *f64)
{
    sherd__install_avx512_f64(f64);
    install_wide_random(f64);
}

const sherd__fast_set sherd__avx512 = {SET, install_more, install_f64, install_halves, spin};

const sherd__bf16_by sherd__bf16_by_f32 = {bf16_product, product_workspace, bf16_fast_unary,
                                           bf16_fast_unary_grad};

const sherd__f32_by sherd__f32_by_fma = {f32_product, f32_workspace, f32_product_fits, gemm};

#endif
