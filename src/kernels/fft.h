/* SPDX-License-Identifier: Apache-2.0 */
/* How a Fourier transform is computed (fft.c, fft_body.inc), which does not depend on the type. */
#ifndef SHERD__KERNELS_FFT_H
#define SHERD__KERNELS_FFT_H

#include "kernels.h"

enum {
    SHERD__FFT_RADIX = 31,  /* lengths with a larger prime factor are convolutions */
    SHERD__FFT_PASSES = 64, /* a length has fewer factors */
    SHERD__FFT_WHOLE = 2048 /* what is longer is made of two shorter ones */
};

/* The radices of the passes of a length n, which has no large prime factor. */
typedef struct sherd__fft_passes {
    int64_t n;
    int count, radix[SHERD__FFT_PASSES];
} sherd__fft_passes;

/* Where columns lie, in reals: a column's element k begins at step k, its other part is `gap` on;
 * 0 = it has none. Columns are numbered along inner first. */
typedef struct sherd__fft_side {
    int64_t inner, inner_step, outer_step, step, gap;
} sherd__fft_side;

/* Where the parts of a workspace begin, in bytes; each is aligned as it is. */
typedef struct sherd__fft_room {
    size_t roots, half_roots, chirp, spectrum, block[2], small[2], end;
} sherd__fft_room;

typedef struct sherd__fft_plan {
    int64_t core;   /* of the complex transform: n, or half of it for real numbers if n is even */
    int64_t length; /* that passes transform: the same, or that of a convolution */
    bool chirp;     /* that is so */
    bool split;     /* length = rows.n times cols.n; else rows.n */
    int lanes;      /* columns that are transformed at once: 1 if split */
    sherd__fft_passes rows, cols;
    sherd__fft_side in, out;
    int64_t in_count, out_count; /* elements of a column */
    sherd__fft_room room;
} sherd__fft_plan;

/* `lanes` numbers of `real` bytes fill a vector. */
void sherd__fft_plan_of(sherd__fft_plan *plan, const sherd__fft *t, int lanes, size_t real);

/* e^(-2 pi i k / n), for 0 <= k < n, each part rounded once or twice. */
void sherd__fft_root(double root[2], int64_t k, int64_t n);

/* The plain ones, by the compiler's own vectors of 16 bytes. */
#define SHERD__FFT_KERNELS(type)                                                              \
    void sherd__fft_##type(const sherd__fft *t, void *dst, const void *src, void *workspace); \
    int64_t sherd__fft_workspace_##type(const sherd__fft *t);                                 \
    void sherd__complex_mul_##type(bool conj, int ndim, const int64_t *size, void *dst,       \
                                   const void *a, const int64_t *a_stride, const void *b,     \
                                   const int64_t *b_stride);
SHERD__FFT_KERNELS(f32)
SHERD__FFT_KERNELS(f64)

#endif
