/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of each position of a field to those that are nearest to it, its neighbours. Of each of
 * three dims (missing ones have size 1 and a kernel of 1) a position has `kernel` neighbours (odd)
 * that lie `dilation` apart, itself among them: the middle one, but near an end, where all windows
 * lie inside. Arrays are row-major pieces [batch, space, space, space, heads, width] of fields; f32
 * or f64. Nothing is kept but the logarithms of sums, one per query and head.
 */
#ifndef SHERD__KERNELS_NEIGHBOURS_H
#define SHERD__KERNELS_NEIGHBOURS_H

#include "base/num.h"
#include "sherd/dtype.h"

enum { SHERD__NEIGHBOUR_DIMS = 3, SHERD__PATCH_DIMS = 5 };

/* A piece of a field, without its width: what of the whole is there. */
typedef struct sherd__patch {
    int64_t first[SHERD__PATCH_DIMS], size[SHERD__PATCH_DIMS];
} sherd__patch;

typedef struct sherd__neighbours {
    int64_t whole[SHERD__NEIGHBOUR_DIMS]; /* sizes of the field; kernel * dilation at most */
    int64_t kernel[SHERD__NEIGHBOUR_DIMS], dilation[SHERD__NEIGHBOUR_DIMS];
    int64_t width;
    double scale;
    sherd__patch q, k, v; /* batch and heads of q are among those of k and v */
    sherd__patch mine;    /* of backward: whose gradients are wanted, of q, k and v */
} sherd__neighbours;

/* The first neighbour of position i in a dim of size n; the others are behind it. */
static inline int64_t sherd__first_neighbour(int64_t n, int64_t kernel, int64_t dilation, int64_t i)
{
    int64_t rest = i % dilation, alike = (n - rest + dilation - 1) / dilation;
    int64_t first = sherd__min(i / dilation - kernel / 2, alike - kernel);

    return sherd__max(first, 0) * dilation + rest;
}

/* Bytes of workspace that a kernel needs. */
static inline int64_t sherd__neighbours_workspace(const sherd__neighbours *n)
{
    return n->kernel[0] * n->kernel[1] * n->kernel[2] * 5 * 8;
}

typedef struct sherd__neighbours_kernels {
    /* out as q: all neighbours of q are in k and v. log_sum: as q, without width. */
    void (*forward)(const sherd__neighbours *n, void *out, void *log_sum, const void *q,
                    const void *k, const void *v, void *workspace);
    /*
     * dq, dk and dv of `mine`. dout, log_sum and delta (the sum of out times dout) are as q, where
     * all queries are that have a neighbour in `mine`; k and v have all neighbours of the queries
     * in `mine`. Sums are in the order of positions in the whole field, whatever the pieces are.
     */
    void (*backward)(const sherd__neighbours *n, void *dq, void *dk, void *dv, const void *dout,
                     const void *q, const void *k, const void *v, const void *log_sum,
                     const void *delta, void *workspace);
    /* delta[n] = sum over width of a b */
    void (*products)(int64_t n, int64_t width, void *delta, const void *a, const void *b);
} sherd__neighbours_kernels;

/* Of f64, or of f32. */
const sherd__neighbours_kernels *sherd__neighbours_kernels_of(sherd_dtype dtype);

#endif
