/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that read around: convolutions, padding, pooling, interpolation, attention to neighbours. A field is
 * [batch, channels, space ...] with one to three dims of space, of which any may be sharded, with any cuts. What a rank makes
 * of a sharded dim belongs to the rank that holds the middle of what it reads, so fields stay where they are, and each
 * rank fetches exactly what its outputs need: for one operator one call, forward and backward. What ops.h says of every operator holds here too.
 */
#ifndef SHERD_OPS_STENCIL_H
#define SHERD_OPS_STENCIL_H

#include "halo.h"
#include "ops_shape.h"

SHERD_BEGIN

/* Of each dim of space, in order. All zero = strides, dilations and groups of 1, no padding. */
typedef struct sherd_conv_options {
    int64_t stride[3], dilation[3]; /* 0 = 1 */
    int64_t before[3], after[3];    /* padding with zeros */
    bool same;      /* pad so that the size stays; the larger half behind. Only with strides of 1 */
    int64_t groups; /* of channels, which do not mix; 0 = 1 */
    int64_t extra
        [3]; /* transposed: that the result is larger behind; less than the stride or the dilation */
    /* what the padding is; NONE and CONSTANT: zeros. Others by sherd_pad_with first; not transposed */
    sherd_border border;
} sherd_conv_options;

/* ---- convolutions ---------------------------------------------------------------------------- */

/**
 * Convolution (without turning the kernel, as everywhere in this field):
 * y[n, o, e] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, e stride - before + k dilation].
 *
 * @collective see ops.h. Space: what lies around; channels of x: a pending sum; channels of y: nothing
 * @shapes     x [batch, channels, ...]; weight [out channels, channels / groups, kernel ...]; bias [out channels] or NULL;
 *             y (n + before + after - dilation (kernel - 1) - 1) / stride + 1 in each dim; options: NULL = all zero
 * @owns       scope
 * @errors     see ops.h; EINVAL a kernel that reaches over the padded input, channels that do not fit the groups, a border
 *             as sherd_pad_with
 */
SHERD_API sherd_tensor *sherd_conv(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                   const sherd_conv_options *options);

/**
 * Transposed convolution: the adjoint of a convolution of the same options, from its result to its input.
 *
 * @collective as sherd_conv
 * @shapes     x [batch, channels, ...]; weight [channels, out channels / groups, kernel ...]; bias [out channels] or NULL;
 *             y (n - 1) stride + dilation (kernel - 1) + 1 - before - after + extra in each dim; options: NULL = all zero
 * @owns       scope
 * @errors     see ops.h; EINVAL `same`, a result without size, `extra` out of range, a border that is not zeros
 */
SHERD_API sherd_tensor *sherd_conv_transposed(sherd_tensor *x, sherd_tensor *weight,
                                              sherd_tensor *bias,
                                              const sherd_conv_options *options);

/* ---- padding --------------------------------------------------------------------------------- */

/* Of each dim how many elements before and behind, and what they are; a side of width 0 needs no border. */
typedef struct sherd_pad_options {
    sherd_halo_side before[SHERD_MAX_DIMS], after[SHERD_MAX_DIMS];
    double value; /* of SHERD_BORDER_CONSTANT, in any dim: its corners too */
} sherd_pad_options;

/**
 * Elements around a tensor of any dims, by the borders of halo.h. What lies beyond an end of a sharded dim belongs to the first or
 * last rank that has elements, as in sherd_pad, and is fetched from where it lies, in one call for all dims; the gradient goes
 * back there and is added up in rank order.
 *
 * @collective the mesh of x, if it is distributed; a pending reduction is settled first unless all borders are constant
 * @shapes     options: NULL = nothing around
 * @owns       scope
 * @errors     see ops.h; EINVAL a negative width, a width of a dim that x does not have or without a border, a mirror as wide
 *             as the dim, a border of a dim of size 0 that is not constant, a value that the dtype can not hold
 */
SHERD_API sherd_tensor *sherd_pad_with(sherd_tensor *x, const sherd_pad_options *options);

/* ---- pooling --------------------------------------------------------------------------------- */

/* Of each dim of space, in order. */
typedef struct sherd_pool_options {
    int64_t kernel[3];   /* at least 1 */
    int64_t stride[3];   /* 0 = the kernel */
    int64_t padding[3];  /* on both sides; at most half of what the kernel reaches over */
    int64_t dilation[3]; /* 0 = 1; only of sherd_max_pool */
    bool
        ceil; /* the last window may reach beyond the padding; else what does not fill one is left out */
    /* Only of sherd_avg_pool: */
    bool without_padding; /* padding does not count among what a sum is divided by */
    int64_t divisor;      /* by what sums are divided; 0 = by the elements of the window */
} sherd_pool_options;

/**
 * The largest element of each window. Padding is never the largest; of equal elements the first counts, a NaN before all
 * numbers and the last NaN before others. The gradient flows to the element that was taken.
 *
 * @collective see ops.h. A pending reduction of x is settled first
 * @shapes     x [batch, channels, ...]; y (n + 2 padding - dilation (kernel - 1) - 1) / stride + 1 in each dim, rounded down or
 *             up (ceil); indices: i64 as y, where in space the element was, counted row-major over all of x's space; NULL =
 *             not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL a kernel or stride below 1, too much padding, a window larger than the padded input, an empty
 *             dim, options of averages
 */
SHERD_API sherd_tensor *sherd_max_pool(sherd_tensor *x, const sherd_pool_options *options,
                                       sherd_tensor **indices);

/**
 * The average of each window; padding counts as zeros unless `without_padding` is set.
 *
 * @collective see ops.h
 * @shapes     as sherd_max_pool
 * @owns       scope
 * @errors     as sherd_max_pool; EINVAL a negative divisor, a dilation
 */
SHERD_API sherd_tensor *sherd_avg_pool(sherd_tensor *x, const sherd_pool_options *options);

/**
 * Averages of as many parts of each dim as are wanted: part o of m is the elements [o n / m, (o + 1) n / m), its end rounded up, so
 * that parts overlap where m does not divide n.
 *
 * @collective see ops.h
 * @shapes     x [batch, channels, ...]; size: int64_t[dims of space], at least 1
 * @owns       scope
 * @errors     see ops.h; EINVAL a size out of range, an empty dim
 */
SHERD_API sherd_tensor *sherd_adaptive_avg_pool(sherd_tensor *x, const int64_t *size);

/* ---- interpolation --------------------------------------------------------------------------- */

typedef enum sherd_interpolation {
    SHERD_INTERPOLATE_NEAREST = 0,   /* element o is element floor(o n / m) */
    SHERD_INTERPOLATE_NEAREST_EXACT, /* floor((o + 1/2) n / m) */
    SHERD_INTERPOLATE_LINEAR,        /* also bilinear, trilinear */
    SHERD_INTERPOLATE_CUBIC, /* convolution with a = -3/4 in each dim; not limited to what is there */
    SHERD_INTERPOLATE_AREA   /* sherd_adaptive_avg_pool */
} sherd_interpolation;

enum { SHERD_INTERPOLATIONS = 5 };

/* Of each dim of space either the size of the result or a factor, which is also what coordinates are divided by. */
typedef struct sherd_interpolate_options {
    sherd_interpolation kind;
    int64_t size[3];
    double factor[3]; /* size: the integer part of n factor */
    /* LINEAR, CUBIC: the first and the last elements are those of the result; else the outer edges of both are the same */
    bool align_corners;
} sherd_interpolate_options;

/**
 * A field of another size. Coordinates are PyTorch's: element o lies at (o + 1/2) n / m - 1/2 (linear: at 0 if that is less), or at
 * o (n - 1) / (m - 1) if corners are aligned; they are computed in f64 for f64 and in f32 for other dtypes. With a factor
 * n / m is 1 / factor; also where that makes an equal size, but that linear interpolation copies then (of NEAREST and CUBIC PyTorch
 * has it one way or the other there, by memory format and direction).
 * An element belongs to the rank that holds the element which is nearest to it.
 *
 * @collective see ops.h
 * @shapes     x [batch, channels, ...]
 * @owns       scope
 * @errors     see ops.h; EINVAL an empty dim, a size below 1 or beyond 2^31, neither size nor factor or both, no such
 *             kind, corners aligned in another kind than linear and cubic
 */
SHERD_API sherd_tensor *sherd_interpolate(sherd_tensor *x,
                                          const sherd_interpolate_options *options);

/* ---- attention ------------------------------------------------------------------------------- */

/* Of each dim of space, in order. */
typedef struct sherd_neighbourhood_options {
    int64_t kernel[3];   /* how many positions a query sees: odd, at least 1 */
    int64_t dilation[3]; /* how far apart they lie; 0 = 1 */
    double scale;        /* 0 = 1 / sqrt(width) */
} sherd_neighbourhood_options;

/**
 * softmax(q k^T scale) v per head, where a query sees the `kernel` keys that are nearest to it in each dim of space, out of
 * those that lie a multiple of the dilation from it: those around it, and near an end the first or the last ones, so that every
 * query sees as many. The result lies as q does (a dim of q that is whole is sliced as k or v are).
 *
 * @collective see ops.h. Space: a query's rank gets the keys and values that it sees, in one call; in backward, in one
 *             call too, also the queries that see its keys, with their gradients. Width is made whole
 * @shapes     q, k, v, and the result [batch, ..., heads, width] with one to three dims of space between; kernel * dilation
 *             at most the size of the dim
 * @numerics   the scores are computed again in backward; results and gradients have the same bits in any layout
 * @owns       scope
 * @errors     see ops.h; EINVAL shapes that differ, a kernel that is even or below 1, a dilation below 0, a kernel times its
 *             dilation that is larger than the dim
 */
SHERD_API sherd_tensor *sherd_neighbourhood_attention(sherd_tensor *q, sherd_tensor *k,
                                                      sherd_tensor *v,
                                                      const sherd_neighbourhood_options *options);

SHERD_END

#endif
