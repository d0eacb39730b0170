/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that read around: convolutions, padding. A field is [batch, channels, space ...] with one to three dims of space, of which any may
 * be sharded, with any cuts. What a rank makes of a sharded dim belongs to the rank that holds the middle of what it reads,
 * so fields stay where they are, and each rank fetches exactly what its outputs need: for one operator one call, forward
 * and backward. What ops.h says of every operator holds here too.
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

SHERD_END

#endif
