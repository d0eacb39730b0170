/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of vectors of f64 that are alike for every instruction set, in vectors of the compiler:
 * vf numbers, vi their bits. vector_*_f64.h have the others and include this one. They are the
 * words of the vectors of f32, which vector_avx512.h explains, so that the same fast_*.inc compute
 * with both.
 */
#ifndef SHERD__VECTOR_VECTOR_F64_H
#define SHERD__VECTOR_VECTOR_F64_H

#include <string.h>

#include "vector_plain.h"

INLINE vf v_load(const double *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void v_store(double *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

#endif
