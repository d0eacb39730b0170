/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast kernels of f32 and f64 that this CPU can run, for tests that compare them with the plain
 * ones.
 */
#ifndef SHERD_TESTS_KERNEL_VERSIONS_H
#define SHERD_TESTS_KERNEL_VERSIONS_H

#include "fast_sets.h"

/* How many there are. */
static inline int versions(sherd__kernels out[FAST_SETS])
{
    fast_set sets[FAST_SETS];
    int n = fast_sets(sets);

    for (int i = 0; i < n; i++) {
        out[i] = sherd__ref_f32;
        sets[i].f32(&out[i]);
    }
    return n;
}

static inline int versions_f64(sherd__kernels out[FAST_SETS])
{
    fast_set sets[FAST_SETS];
    int n = fast_sets(sets);

    for (int i = 0; i < n; i++) {
        out[i] = sherd__ref_f64;
        sets[i].f64(&out[i]);
    }
    return n;
}

#endif
