/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on a neighbourhood of each element: convolution, padding, pooling, interpolation,
 * neighbourhood attention. A field is [batch, channels, space ...] with one to three spatial dims,
 * sharded in any dims and by any cuts. An output element is computed by the rank that holds the
 * middle of the elements that it reads. So fields are not moved; each rank fetches exactly the
 * missing neighbours, in one call per operator in forward and one in backward. "See ops.h" means
 * what the head of ops.h says of all operators.
 *
 *     const sherd_conv_options same = {.same = true};
 *     y = sherd_conv(x, w, b, &same); // x [items, in, h, w], sharded by h or w or both, too
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
    bool same;      /* pad to keep the size, the larger half at the end; only with strides of 1 */
    int64_t groups; /* groups of channels that do not mix; 0 = 1 */
    /* transposed only: elements added at the end; each less than the stride or the dilation */
    int64_t extra[3];
    /* NONE and CONSTANT pad with zeros, the others as sherd_pad_with; not for transposed ones */
    sherd_border border;
} sherd_conv_options;

/* ---- convolutions ---------------------------------------------------------------------------- */

/**
 * Convolution (strictly a cross-correlation, as in all deep learning libraries): y[n, o, e] =
 * bias[o] + sum over c, k of weight[o, c, k] x[n, c, e stride - before + k dilation].
 *
 * @collective see ops.h. If space is sharded, the missing neighbours are fetched; if the channels
 *             of x are sharded, y is a pending sum; if the out channels of the weight are, so are
 *             those of y, and nothing moves for that
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
 * @errors     see ops.h; EINVAL as sherd_conv, `same`, a result whose spatial dims would be empty
 *             or too large, `extra` out of range, a border other than zeros
 */
SHERD_API sherd_tensor *sherd_conv_transposed(sherd_tensor *x, sherd_tensor *weight,
                                              sherd_tensor *bias,
                                              const sherd_conv_options *options);

/* ---- padding --------------------------------------------------------------------------------- */

/* The widths and borders before and after each dim; a side of width 0 needs no border. */
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
 * @errors     see ops.h; EINVAL a negative width, a width for a dim that x does not have, a width
 *             without a border, a width of REFLECT that is not less than the dim's size, one of
 *             SYMMETRIC that is more, a border other than CONSTANT in a dim of size 0, a value that
 *             the dtype cannot hold; ELIMIT as sherd_halo
 */
SHERD_API sherd_tensor *sherd_pad_with(sherd_tensor *x, const sherd_pad_options *options);

/* ---- pooling --------------------------------------------------------------------------------- */

/* Per spatial dim, in order. */
typedef struct sherd_pool_options {
    int64_t kernel[3];   /* at least 1 */
    int64_t stride[3];   /* 0 = the kernel */
    int64_t padding[3];  /* on both sides; at most half of the dilated kernel's extent */
    int64_t dilation[3]; /* 0 = 1; sherd_max_pool only */
    bool ceil;           /* count a last window that is incomplete; otherwise it is left out */
    /* sherd_avg_pool only: */
    bool without_padding; /* do not count padding in the divisor (count_include_pad=False) */
    int64_t divisor;      /* divide sums by this; 0 = by the number of elements in the window */
} sherd_pool_options;

/**
 * The maximum of each window. Padding is never the maximum. Of equal elements the first one is
 * taken; if there are NaNs, the last NaN. The gradient flows to the element that was taken. A
 * dilated window may miss all elements of x: then the maximum is -infinity, and its index -1.
 *
 * @collective see ops.h. A pending reduction of x is settled first
 * @shapes     x [batch, channels, ...]; y has (n + 2 padding - dilation (kernel - 1) - 1) / stride
 *             + 1 elements in each spatial dim, rounded down, or up with `ceil`; indices: gets an
 *             i64 tensor of y's shape, the row-major index of each maximum in the spatial dims of
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
 * Averages over a given number m of parts of each spatial dim. Part o of m averages the elements [o
 * n / m, (o + 1) n / m), with the start rounded down and the end rounded up, so parts overlap if m
 * does not divide n.
 *
 * @collective see ops.h
 * @shapes     x [batch, channels, ...]; size: int64_t[spatial dims], the number of parts of each,
 *             at least 1
 * @owns       scope
 * @errors     see ops.h; EINVAL a size out of range, an empty dim
 */
SHERD_API sherd_tensor *sherd_adaptive_avg_pool(sherd_tensor *x, const int64_t *size);

/**
 * The maxima of the same parts as in sherd_adaptive_avg_pool; equal elements and NaNs as in
 * sherd_max_pool.
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
 * For each spatial dim either the size of the result or a factor, by which coordinates are divided.
 */
typedef struct sherd_interpolate_options {
    sherd_interpolation kind;
    int64_t size[3];
    double factor[3]; /* the size is then floor(n factor) */
    /* LINEAR, CUBIC: align the centres of the corner elements; otherwise align the outer edges */
    bool align_corners;
} sherd_interpolate_options;

/**
 * A field resampled to another size, with PyTorch's coordinates: element o of m is at (o + 1/2) n /
 * m - 1/2 of n (for LINEAR at least 0), or, with align_corners, at o (n - 1) / (m - 1). If a factor
 * is given, 1 / factor is used for n / m. Coordinates are computed in f64 for f64 and in f32 for
 * other dtypes. If the size does not change, LINEAR copies, and the others are computed as always
 * (PyTorch's NEAREST and CUBIC then depend on memory format and direction). An output element
 * belongs to the rank that holds the element nearest to it.
 *
 * @collective see ops.h
 * @shapes     x [batch, channels, ...]
 * @owns       scope
 * @errors     see ops.h; EINVAL an empty dim, a size below 1 or beyond 2^31, neither a size nor a
 *             factor, or both, for a dim, an unknown kind, align_corners with other kinds than
 *             LINEAR and CUBIC
 */
SHERD_API sherd_tensor *sherd_interpolate(sherd_tensor *x,
                                          const sherd_interpolate_options *options);

/* ---- attention ------------------------------------------------------------------------------- */

/* Per spatial dim, in order. */
typedef struct sherd_neighbourhood_options {
    int64_t kernel[3];   /* how many positions a query sees: odd, at least 1 */
    int64_t dilation[3]; /* how far apart they lie; 0 = 1 */
    double scale;        /* 0 = 1 / sqrt(width) */
    bool periodic[3];    /* the dim goes around, as longitudes do: its ends are neighbours */
} sherd_neighbourhood_options;

/**
 * Neighbourhood attention (NATTEN): softmax(q k^T scale) v for each head, where a query sees, in
 * each spatial dim, the `kernel` keys nearest to it among those at multiples of the dilation from
 * it. In the interior they are around the query; near an end of the dim they are the first or the
 * last ones, so that every query sees equally many. In a periodic dim every query sees those around
 * it. The result has the layout of q (a dim of q that is not sharded is sliced as in k or v).
 *
 * @collective see ops.h. In forward a rank fetches the keys and values that its queries see, in one
 *             call; in backward, also in one call, the queries that see its keys, and their
 *             gradients. A sharded width is gathered. With periodic dims, three calls in forward,
 *             where ends of keys and of values travel before
 * @shapes     q, k, v and the result [batch, ..., heads, width], with one to three spatial dims;
 *             kernel * dilation at most the size of the dim
 * @numerics   backward computes the scores again; results and gradients are the same bits in any
 *             layout, but gradients of keys and values near the ends of a periodic dim are added in
 *             the order of shards
 * @owns       scope
 * @errors     see ops.h; EINVAL shapes that differ, a kernel that is even or below 1, a dilation
 *             below 0, kernel * dilation larger than the dim, a scale that is not finite
 */
SHERD_API sherd_tensor *sherd_neighbourhood_attention(sherd_tensor *q, sherd_tensor *k,
                                                      sherd_tensor *v,
                                                      const sherd_neighbourhood_options *options);

/* ---- windows as a dim ------------------------------------------------------------------------ */

/**
 * Windows of `size` elements along a dim, one at every `step`: x [.., n, ..] becomes y [.., (n -
 * size) / step + 1, .., size], y[.., w, .., j] = x[.., w step + j, ..] (PyTorch: Tensor.unfold; a
 * copy). If the dim is sharded, a rank has the windows that begin in its piece, and fetches what
 * they read beyond it, in one call; gradients are added up where windows overlap.
 *
 * @collective see ops.h, only if the dim is sharded, or a pending reduction other than a sum is
 *             settled
 * @numerics   gradients add up in f64, in the order of windows
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, size or step below 1, a size above n, as many dims as
 *             a tensor may have
 */
SHERD_API sherd_tensor *sherd_unfold(sherd_tensor *x, int dim, int64_t size, int64_t step);

/* ---- channels and pixels --------------------------------------------------------------------- */

/**
 * Channels as finer rows and columns: x [.., c r^2, h, w] becomes y [.., c, h r, w r], where r is
 * the factor; channel (k, i, j) is what lies at row i and column j of each r x r square. Rows and
 * columns keep their shards, so nothing moves unless channels are sharded within a c.
 *
 * @collective see ops.h, only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL fewer than 3 dims, or one or none less than a tensor may have; a
 *             factor below 1, above 2^15, or that does not divide
 */
SHERD_API sherd_tensor *sherd_pixel_shuffle(sherd_tensor *x, int64_t factor);

/**
 * The reverse: x [.., c, h r, w r] becomes y [.., c r^2, h, w]. Shards of rows and columns that are
 * cut within a square are moved first.
 *
 * @collective as sherd_pixel_shuffle   @owns scope   @errors as there
 */
SHERD_API sherd_tensor *sherd_pixel_unshuffle(sherd_tensor *x, int64_t factor);

SHERD_END

#endif
