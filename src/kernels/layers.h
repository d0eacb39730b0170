/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of layers with all their options, one table per dtype: what rarely runs, or costs little
 * beside what moves. They are plain C for every dtype and compute in f64; each element is rounded
 * once, when it is stored. Statistics are of sherd__statistics_dtype. As all kernels they
 * allocate nothing, keep nothing and cannot fail.
 */
#ifndef SHERD__KERNELS_LAYERS_H
#define SHERD__KERNELS_LAYERS_H

#include "kernels.h"

/*
 * Cross-entropy of rows of logits, of which columns first..first+cols are here. Class c of a row
 * has the share weight[c] (keep t + spread), where t is [c == target] or a probability; a row whose
 * target is `ignored` has none.
 */
typedef struct sherd__entropy {
    int64_t rows, cols, first;
    double keep, spread; /* 1 - smoothing, and smoothing / classes */
    int32_t ignored;
    const int32_t *target;   /* [rows]; NULL: there are probabilities */
    const void *probability; /* [rows,cols] */
    const void *weight;      /* [cols]; NULL = ones */
} sherd__entropy;

/* What a rank says of each row: maximum, sum of exp(l - maximum), sum of shares, sum of share (l -
 * maximum), weight of the target if it is here. */
enum { SHERD__ENTROPY_NUMBERS = 5 };

/* x[batch,positions,heads,width] whose first `rotated` numbers of each head are pairs that turn. */
typedef struct sherd__rotation {
    int64_t batch, positions, heads, width, rotated;
    bool interleaved; /* pairs are neighbours; else they are rotated / 2 apart */
    const double
        *turn; /* cosine and sine of [positions,rotated/2], or of [batch,positions,rotated/2] */
    int64_t turn_step; /* from one batch item to the next */
} sherd__rotation;

/* Cosines and sines of n positions: position[i], or first + i without, times frequency[j], or
 * base^(-2j/rotated) without, for each pair j. */
void sherd__turns(double *turn, int64_t n, int64_t rotated, const int32_t *position, int64_t first,
                  double base, const double *frequency, bool inverse);

typedef struct sherd__layer_kernels {
    /* The last three of stats[5,rows]; the first two are there (cross_entropy in kernels.h). */
    void (*entropy)(const sherd__entropy *e, void *stats, const void *logits);
    /* Join stats[parts,5,rows]: sums[rows,2] as cross_entropy_join does, amount[rows] = sum of
     * shares, loss[rows] = sum of share (max + log(sum) - l). Returns the sum of the targets'
     * weights. */
    double (*entropy_join)(const sherd__entropy *e, int64_t parts, double *sums, void *amount,
                           double *loss, const void *stats);
    /* dlogits = (amount exp(l - max) / sum - share) scale[row] */
    void (*entropy_grad)(const sherd__entropy *e, void *dlogits, const void *logits,
                         const double *sums, const void *amount, const double *scale);
    /* dlogits -= share scale[row]: what is left to do where fast kernels have written amount exp(l
     * - max) / sum scale[row]. */
    void (*entropy_subtract)(const sherd__entropy *e, void *dlogits, const double *scale);
    /* Of probabilities: keep weight (max + log(sum) - l) scale[row] */
    void (*entropy_target_grad)(const sherd__entropy *e, void *dtarget, const void *logits,
                                const double *sums, const double *scale);
    void (*rotate)(const sherd__rotation *r, void *dst, const void *src);
} sherd__layer_kernels;

/* NULL of a dtype that does not compute. */
const sherd__layer_kernels *sherd__layer_kernels_of(sherd_dtype dtype);

/* Whether a row counts for nothing. */
static inline bool sherd__is_ignored(const sherd__entropy *e, int64_t row)
{
    return e->target && e->target[row] == e->ignored;
}

#endif
