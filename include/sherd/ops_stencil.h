/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on a neighbourhood of each element: convolution, padding, pooling, interpolation,
 * neighbourhood attention. A field is [batch, channels, space ...] with one to three spatial dims;
 * any dim may be sharded, with any cuts. An output belongs to the rank that holds the middle of
 * what it reads. So fields are not moved, and each rank fetches exactly the elements that its
 * outputs need: one call per operator in forward, and one in backward. What ops.h says of all
 * operators holds here too.
 */
#ifndef SHERD_OPS_STENCIL_H
#define SHERD_OPS_STENCIL_H

#include "halo.h"
#include "ops_shape.h"

SHERD_BEGIN

/* Per spatial dim, in order. All zero = strides, dilations and groups of 1, no padding. */
typedef struct sherd_conv_options {
    int64_t stride[3], dilation[3]; /* 0 = 1 */
    int64_t before[3], after[3];    /* padding with zeros */
    bool same;      /* pad to keep the size, the larger half after. Only with strides of 1 */
    int64_t groups; /* groups of channels that do not mix; 0 = 1 */
    /* transposed only: elements added at the end; less than the stride or the dilation */
    int64_t extra[3];
    /* NONE and CONSTANT pad with zeros, others as sherd_pad_with; not transposed */
    sherd_border border;
} sherd_conv_options;

/* ---- convolutions ---------------------------------------------------------------------------- */

/**
 * Convolution (a cross-correlation, as in all deep learning libraries): y[n, o, e] = bias[o] + sum
 * over c, k of weight[o, c, k] x[n, c, e stride - before + k dilation].
 *
 * @collective see ops.h. If space is sharded, the missing neighbours are fetched; if channels of x
 *             are sharded, y is a pending sum; channels of y may be sharded at no cost
 * @shapes     x [batch, channels, ...]; weight [out channels, channels / groups, kernel ...]; bias
 *             [out channels] or NULL; y has (n + before + after - dilation (kernel - 1) - 1) /
 *             stride + 1 elements in each spatial dim; options: NULL = all zero
 * @owns       scope
 * @errors     see ops.h; EINVAL a stride, dilation, padding or size of the kernel that is negative
 *             or 2^31 or more, a kernel of size 0 or larger than the padded input, channels that do
 *             not fit the groups, `same` with strides or padding, a border as in sherd_pad_with
 */
SHERD_API sherd_tensor *sherd_conv(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                   const sherd_conv_options *options);

/**
 * Transposed convolution: the adjoint of the convolution with the same options, from its result to
 * its input.
 *
 * @collective as sherd_conv
 * @shapes     x [batch, channels, ...]; weight [channels, out channels / groups, kernel ...]; bias
 *             [out channels] or NULL; y has (n - 1) stride + dilation (kernel - 1) + 1 - before -
 *             after + extra elements in each spatial dim; options: NULL = all zero
 * @owns       scope
 * @errors     see ops.h; EINVAL as sherd_conv, `same`, a result with a spatial dim of no size or
 *             too large a one, `extra` out of range, a border other than zeros
 */
SHERD_API sherd_tensor *sherd_conv_transposed(sherd_tensor *x, sherd_tensor *weight,
                                              sherd_tensor *bias,
                                              const sherd_conv_options *options);

/* ---- padding --------------------------------------------------------------------------------- */

/* Widths and borders before and after each dim; a side of width 0 needs no border. */
typedef struct sherd_pad_options {
    sherd_halo_side before[SHERD_MAX_DIMS], after[SHERD_MAX_DIMS];
    double value; /* for SHERD_BORDER_CONSTANT in all dims, corners included */
} sherd_pad_options;

/**
 * Pad a tensor of any number of dims with the borders of halo.h. As in sherd_pad, elements beyond
 * an end of a sharded dim belong to the first or last rank that has elements. Their values are
 * fetched from the ranks that hold them, in one call for all dims; the gradient goes back to these
 * ranks and is added up in the order of shards.
 *
 * @collective the mesh of x, if it is distributed; a pending reduction is settled first unless all
 *             borders are constant
 * @shapes     options: NULL = no padding
 * @owns       scope
 * @errors     see ops.h; EINVAL a negative width, a width for a dim that x does not have, or
 *             without a border, REFLECT as wide as the dim, a border other than CONSTANT in a dim
 *             of size 0, a value that the dtype cannot hold; ELIMIT as sherd_halo
 */
SHERD_API sherd_tensor *sherd_pad_with(sherd_tensor *x, const sherd_pad_options *options);

/* ---- pooling --------------------------------------------------------------------------------- */

/* Per spatial dim, in order. */
typedef struct sherd_pool_options {
    int64_t kernel[3];   /* at least 1 */
    int64_t stride[3];   /* 0 = the kernel */
    int64_t padding[3];  /* on both sides; at most half of the dilated kernel's extent */
    int64_t dilation[3]; /* 0 = 1; sherd_max_pool only */
    bool ceil;           /* the last window may be incomplete; otherwise it is left out */
    /* sherd_avg_pool only: */
    bool without_padding; /* do not count padding in the divisor (count_include_pad=False) */
    int64_t divisor;      /* divide sums by this; 0 = by the number of elements of the window */
} sherd_pool_options;

/**
 * The maximum of each window. Padding is never the maximum; of equal elements the first one is
 * taken; if there are NaNs, the last of them. The gradient flows to the element that was taken. A
 * dilated window may lie around x without reading any of it: its maximum is -infinity, at -1.
 *
 * @collective see ops.h. A pending reduction of x is settled first
 * @shapes     x [batch, channels, ...]; y has (n + 2 padding - dilation (kernel - 1) - 1) / stride
 *             + 1 elements in each spatial dim, rounded down, or up with `ceil`; indices: gets the
 *             i64 tensor of y's shape, the row-major position of the element in all spatial dims of
 *             x; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL a kernel or stride below 1, too much padding, a window larger than
 *             the padded input, an empty dim, an option of sherd_avg_pool
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
 * Averages over a given number of parts of each spatial dim. Part o of m averages the elements [o n
 * / m, (o + 1) n / m), the start rounded down and the end rounded up, so parts overlap if m does
 * not divide n.
 *
 * @collective see ops.h
 * @shapes     x [batch, channels, ...]; size: int64_t[spatial dims], at least 1
 * @owns       scope
 * @errors     see ops.h; EINVAL a size out of range, an empty dim
 */
SHERD_API sherd_tensor *sherd_adaptive_avg_pool(sherd_tensor *x, const int64_t *size);

/**
 * Maxima of the parts of sherd_adaptive_avg_pool. Of equal elements, and NaNs, as sherd_max_pool.
 *
 * @collective as sherd_max_pool
 * @shapes     x, size: as sherd_adaptive_avg_pool; indices: as sherd_max_pool
 * @owns       scope, both
 * @errors     as sherd_adaptive_avg_pool
 */
SHERD_API sherd_tensor *sherd_adaptive_max_pool(sherd_tensor *x, const int64_t *size,
                                                sherd_tensor **indices);

/* ---- interpolation --------------------------------------------------------------------------- */

typedef enum sherd_interpolation {
    SHERD_INTERPOLATE_NEAREST = 0,   /* element o of m is element floor(o n / m) of n */
    SHERD_INTERPOLATE_NEAREST_EXACT, /* floor((o + 1/2) n / m) */
    SHERD_INTERPOLATE_LINEAR,        /* also bilinear, trilinear */
    SHERD_INTERPOLATE_CUBIC, /* cubic convolution with a = -3/4 in each dim; may overshoot */
    SHERD_INTERPOLATE_AREA   /* sherd_adaptive_avg_pool */
} sherd_interpolation;

enum { SHERD_INTERPOLATIONS = 5 };

/*
 * For each spatial dim either the size of the result or a factor. Coordinates are divided by a
 * given factor.
 */
typedef struct sherd_interpolate_options {
    sherd_interpolation kind;
    int64_t size[3];
    double factor[3]; /* the size is then floor(n factor) */
    /* LINEAR, CUBIC: align the centres of the corner elements; otherwise align the outer edges */
    bool align_corners;
} sherd_interpolate_options;

/**
 * A field resampled to another size. Coordinates are PyTorch's: element o of m lies at (o + 1/2) n
 * / m - 1/2 (for LINEAR at least 0), or, with aligned corners, at o (n - 1) / (m - 1). They are
 * computed in f64 for f64 and in f32 for other dtypes. With a factor, n / m is 1 / factor. This
 * holds even if the size does not change, except that LINEAR then copies (PyTorch's NEAREST and
 * CUBIC depend on the memory format and direction there). An output belongs to the rank that holds
 * the element nearest to it.
 *
 * @collective see ops.h
 * @shapes     x [batch, channels, ...]
 * @owns       scope
 * @errors     see ops.h; EINVAL an empty dim, a size below 1 or beyond 2^31, neither size nor
 *             factor or both, an unknown kind, align_corners with other kinds than LINEAR and CUBIC
 */
SHERD_API sherd_tensor *sherd_interpolate(sherd_tensor *x,
                                          const sherd_interpolate_options *options);

/* ---- attention ------------------------------------------------------------------------------- */

/* Per spatial dim, in order. */
typedef struct sherd_neighbourhood_options {
    int64_t kernel[3];   /* how many positions a query sees: odd, at least 1 */
    int64_t dilation[3]; /* how far apart they lie; 0 = 1 */
    double scale;        /* 0 = 1 / sqrt(width) */
} sherd_neighbourhood_options;

/**
 * softmax(q k^T scale) v per head, where a query sees, in each spatial dim, the `kernel` keys
 * nearest to it among those at multiples of the dilation from it: those around it, and near an end
 * the first or the last ones, so that every query sees equally many (NATTEN). The result has the
 * layout of q (a dim of q that is not sharded is sliced as in k or v).
 *
 * @collective see ops.h. A query's rank fetches the keys and values that it sees in one call;
 *             backward, in one call too, fetches the queries that see its keys, and their
 *             gradients. A sharded width is gathered
 * @shapes     q, k, v and the result [batch, ..., heads, width], with one to three spatial dims;
 *             kernel * dilation at most the size of the dim
 * @numerics   backward computes the scores again; results and gradients are the same bits in any
 *             layout
 * @owns       scope
 * @errors     see ops.h; EINVAL shapes that differ, a kernel that is even or below 1, a dilation
 *             below 0, kernel * dilation larger than the dim, a scale that is not finite
 */
SHERD_API sherd_tensor *sherd_neighbourhood_attention(sherd_tensor *q, sherd_tensor *k,
                                                      sherd_tensor *v,
                                                      const sherd_neighbourhood_options *options);

SHERD_END

#endif
