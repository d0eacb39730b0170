/* SPDX-License-Identifier: Apache-2.0 */
/* The plain versions, as tables to start from, and small helpers that all versions share. */
#ifndef SHERD__REF_H
#define SHERD__REF_H

#include "cast.h"
#include "kernels.h"

#include <math.h>

extern const sherd__kernels sherd__ref_f32;
extern const sherd__kernels sherd__ref_f64;
/* Only reduce and fill. */
extern const sherd__kernels sherd__whole_i32, sherd__whole_i64, sherd__whole_u8, sherd__whole_bool;

void sherd__install_half_ref(sherd__kernels *bf16, sherd__kernels *f16);

/* A uniform number is the upper 24 bits of its word over 2^24: exact in f32, so both types draw the
 * same. */
enum { SHERD__UNIFORM_BITS = 24 };

/* keep(j) of dropout in integers: word >> 8 >= threshold is uniform >= p, exactly. */
static inline uint32_t sherd__keep_threshold(double p)
{
    return (uint32_t)ceil(p * (double)(1 << SHERD__UNIFORM_BITS));
}

/* Two normal numbers from two words (Box-Muller), in f64. One function for all versions, so that
 * their bits are equal. */
void sherd__normal_pair(double out[2], const uint32_t word[2], double mean, double deviation);

/* Keys that query i sees. */
static inline int64_t sherd__visible(const sherd__attention_shape *s, int64_t i)
{
    return s->causal && i + 1 < s->keys ? i + 1 : s->keys;
}

/* Where head h of batch item b begins in a tensor of so many positions; 0 if it has none, so that
 * it may be NULL. */
static inline int64_t sherd__head(const sherd__attention_shape *s, int64_t positions, int64_t b,
                                  int64_t h)
{
    return positions ? b * positions * s->stride + h * s->width : 0;
}

#endif
