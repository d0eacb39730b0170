/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain version of every kernel, for f32 and f64: what tests compare with, and what runs where
 * nothing faster does. Scalar, in the order in which one would write it on paper. Sums inside a row
 * are kept in f64; sums over rows (but for sums.h) and over addends run in the element type, in
 * order, as the fast versions do.
 */
#include "ref.h"

#include <string.h>

#include "base/num.h"
#include "fft.h"
#include "half.h"
#include "places.h"
#include "sums.h"

enum { COLUMNS = 256 }; /* that are summed side by side */

/* Word i of the stream of a key. */
static uint32_t random_word(sherd__key key, int64_t i)
{
    uint32_t block[4];

    sherd__philox(block, key, (uint64_t)i / 4);
    return block[i % 4];
}

static double uniform(sherd__key key, int64_t i)
{
    return (double)(random_word(key, i) >> (32 - SHERD__UNIFORM_BITS)) /
           (double)(1 << SHERD__UNIFORM_BITS);
}

void sherd__normal_pair(double out[2], const uint32_t word[2], double mean, double deviation)
{
    const double scale = 1.0 / 4294967296.0;
    double radius = sqrt(-2 * log(((double)word[0] + 1) * scale)); /* the word is moved off 0 */
    double angle = 6.283185307179586 * ((double)word[1] * scale);

    out[0] = mean + deviation * (radius * cos(angle));
    out[1] = mean + deviation * (radius * sin(angle));
}

static double normal(sherd__key key, int64_t i, double mean, double deviation)
{
    uint32_t block[4];
    double pair[2];

    sherd__philox(block, key, (uint64_t)i / 4);
    sherd__normal_pair(pair, block + (i % 4 / 2) * 2, mean, deviation);
    return pair[i % 2];
}

/* What is added to a score. */
static double mask_at(const sherd__attending *s, int64_t i)
{
    switch (s->mask_dtype) {
    case SHERD_BOOL:
        return ((const unsigned char *)s->mask)[i] ? 0 : -INFINITY;
    case SHERD_F64:
        return ((const double *)s->mask)[i];
    case SHERD_BF16:
        return (double)sherd__from_bf16(((const uint16_t *)s->mask)[i]);
    case SHERD_F16:
        return (double)sherd__from_f16(((const uint16_t *)s->mask)[i]);
    default:
        return (double)((const float *)s->mask)[i];
    }
}

/* factor[n] of one row of probabilities: 1 / (1 - p) or 0, as dropout in kernels.h. */
static void keep_some(const sherd__attending *s, int64_t n, double *factor, int64_t first)
{
    uint32_t threshold = sherd__keep_threshold(s->p), block[4];

    for (int64_t j = 0; j < n; j++) {
        if (j == 0 || (first + j) % 4 == 0)
            sherd__philox(block, s->key, (uint64_t)(first + j) / 4);
        factor[j] = block[(first + j) % 4] >> 8 >= threshold ? 1 / (1 - s->p) : 0;
    }
}

/* A score with its cap, and its slope if that is wanted. */
static double capped(double cap, double score, double *slope)
{
    double t = cap != 0 ? tanh(score / cap) : 0;

    if (slope)
        *slope = 1 - t * t;
    return cap != 0 ? cap * t : score;
}

/* Scores become probabilities; returns the logarithm of their sum. */
static double softmax(int64_t n, double *score)
{
    double most = -INFINITY, total = 0;

    for (int64_t j = 0; j < n; j++)
        most = score[j] > most || isnan(score[j]) ? score[j] : most; /* a NaN stays */
    if (most == -INFINITY) {
        memset(score, 0, (size_t)n * sizeof *score);
        return most;
    }
    for (int64_t j = 0; j < n; j++)
        total += score[j] = exp(score[j] - most);
    for (int64_t j = 0; j < n; j++)
        score[j] /= total;
    return most + log(total);
}

#include "ref_cached_space.inc"

#define REAL    float
#define NAME(x) x##_f32
#define TABLE   sherd__ref_f32
#include "ref_body.inc"
#include "ref_matrix.inc"
#include "ref_attention.inc"
#define ELEMENT REAL
#define GET(x)  (x)
#include "ref_cached.inc"
#undef ELEMENT
#undef GET
#include "ref_table.inc"

#define REAL    double
#define NAME(x) x##_f64
#define TABLE   sherd__ref_f64
#include "ref_body.inc"
#include "ref_matrix.inc"
#include "ref_attention.inc"
#define ELEMENT REAL
#define GET(x)  (x)
#include "ref_cached.inc"
#undef ELEMENT
#undef GET
#include "ref_table.inc"
