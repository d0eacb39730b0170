/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets of fast kernels that this CPU can run, for tests that compare them with the
 * plain ones. */
#ifndef SHERD_TESTS_FAST_SETS_H
#define SHERD_TESTS_FAST_SETS_H

#include "kernels/fast.h"

enum { FAST_SETS = 3 };

/* Whether f32 products of all shapes are theirs: on arm64 oneDNN's are plain C. */
#if defined(__aarch64__)
enum { TAKES_ALL = true };
#else
enum { TAKES_ALL = false };
#endif

/* How its tables are filled; those of f32 and f64 hold the reference before. */
typedef struct fast_set {
    const char *name; /* in SHERD_KERNELS, too */
    void (*f32)(sherd__kernels *), (*f64)(sherd__kernels *);
    void (*half)(sherd__kernels *bf16, sherd__kernels *f16);
} fast_set;

/* How many there are. */
static inline int fast_sets(fast_set out[FAST_SETS])
{
    int n = 0;

#ifdef SHERD__SIMD128
    out[n++] = (fast_set){"simd128", sherd__install_simd128, sherd__install_wide_simd128,
                          sherd__install_half_simd128};
#endif
#if defined(__x86_64__)
    if (sherd__has_avx2())
        out[n++] = (fast_set){"avx2", sherd__install_avx2, sherd__install_wide_avx2,
                              sherd__install_half_avx2};
    if (sherd__has_avx512())
        out[n++] = (fast_set){"avx512", sherd__install_avx512, sherd__install_wide_avx512,
                              sherd__install_half_avx512};
#endif
    return n;
}

#endif
