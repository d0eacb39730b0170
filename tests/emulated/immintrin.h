/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Found before the compiler's header of this name where kernels are built with SHERD_EMULATE
 * (CMakeLists.txt): the 512-bit instructions of AVX-512, AVX512_BF16 and AMX that src/kernels uses,
 * in C and AVX2, so that these kernels run, and the sanitizers see their loads and stores, on
 * machines that lack them. The files beside this one say what each does, by Intel's manual; the
 * names are the compiler's, redefined. One that is missing here does not compile.
 *
 * Where the manual leaves freedom, or a compiler does, the least convenient is done: estimates are
 * as wrong as they may be, what a cast leaves undefined is garbage, and what needs an alignment
 * ends the program without it.
 */
#ifndef SHERD_EMULATED_H
#define SHERD_EMULATED_H

/* The compiler's header must not see what the build says of the machine. */
#undef __AVX512F__
#include_next <immintrin.h>
#define __AVX512F__ 1

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The short ones, and those that go over the lanes: a compiler is busy for minutes if all are part of
 * what calls them. */
#define EMULATED       static inline __attribute__((always_inline, unused))
#define EMULATED_LANES static __attribute__((noinline, unused))

/* What a CPU answers by a fault. */
static inline void emulated_fault(bool wrong, const char *what)
{
    if (!wrong)
        return;
    fprintf(stderr, "emulated instruction: %s\n", what);
    abort();
}

/* The same 512 bits. */
typedef union emulated_bits {
    __m512 f;
    __m512d d;
    __m512i i;
    __m512bh b;
    __m256 half[2];
    __m256d half_d[2];
    __m256i half_i[2];
    __m128 quarter[4];
    __m128i quarter_i[4];
    float f32[16];
    double f64[8];
    uint16_t u16[32];
    int32_t i32[16];
    uint32_t u32[16];
    uint64_t u64[8];
} emulated_bits;

#include "emulated_memory.h"
#include "emulated_floats.h"
#include "emulated_parts.h"
#include "emulated_integers.h"
#include "emulated_bf16.h"
#include "emulated_tiles.h"

#endif
