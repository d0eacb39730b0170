/* SPDX-License-Identifier: Apache-2.0 */
/* The fast f32 kernels that this CPU can run, for tests that compare them with the plain ones. */
#ifndef SHERD_TESTS_KERNEL_VERSIONS_H
#define SHERD_TESTS_KERNEL_VERSIONS_H

#include "kernels/fast.h"

/* How many there are. */
static inline int versions(sherd__kernels out[2])
{
    int n = 0;
#if defined(__x86_64__)
    if (sherd__has_avx2()) {
        out[n] = sherd__ref_f32;
        sherd__install_avx2(&out[n++]);
    }
    if (sherd__has_avx512()) {
        out[n] = sherd__ref_f32;
        sherd__install_avx512(&out[n++]);
    }
#else
    (void)out;
#endif
    return n;
}

#endif
