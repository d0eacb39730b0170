/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets of fast kernels that this CPU can run, for tests that compare them with the
 * plain ones. */
#ifndef SHERD_TESTS_FAST_SETS_H
#define SHERD_TESTS_FAST_SETS_H

#include "vector/fast.h"

enum { FAST_SETS = 3 };

/* Whether f32 products of all shapes are theirs: on arm64 oneDNN's are plain C. */
#if defined(__aarch64__)
enum { TAKES_ALL = true };
#else
enum { TAKES_ALL = false };
#endif

typedef sherd__fast_set fast_set;

/* How many there are. */
static inline int fast_sets(fast_set out[FAST_SETS])
{
    int n = 0;

#ifdef SHERD__SIMD128
    out[n++] = sherd__simd128;
#endif
#if defined(__x86_64__)
    if (sherd__has_avx2())
        out[n++] = sherd__avx2;
    if (sherd__has_avx512())
        out[n++] = sherd__avx512;
#endif
    return n;
}

#endif
