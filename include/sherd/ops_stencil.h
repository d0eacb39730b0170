/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that read around: convolutions. A field is [batch, channels, space ...] with one to three dims of space, of which any may
 * be sharded, with any cuts. What a rank makes of a sharded dim belongs to the rank that holds the middle of what it reads,
 * so fields stay where they are, and each rank fetches exactly what its outputs need: for one operator one call, forward
 * and backward. What ops.h says of every operator holds here too.
 */
#ifndef SHERD_OPS_STENCIL_H
#define SHERD_OPS_STENCIL_H

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
} sherd_conv_options;

/**
 * Convolution (without turning the kernel, as everywhere in this field):
 * y[n, o, e] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, e stride - before + k dilation].
 *
 * @collective see ops.h. Space: what lies around; channels of x: a pending sum; channels of y: nothing
 * @shapes     x [batch, channels, ...]; weight [out channels, channels / groups, kernel ...]; bias [out channels] or NULL;
 *             y (n + before + after - dilation (kernel - 1) - 1) / stride + 1 in each dim; options: NULL = all zero
 * @owns       scope
 * @errors     see ops.h; EINVAL a kernel that reaches over the padded input, channels that do not fit the groups
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
 * @errors     see ops.h; EINVAL `same`, a result without size, `extra` out of range
 */
SHERD_API sherd_tensor *sherd_conv_transposed(sherd_tensor *x, sherd_tensor *weight,
                                              sherd_tensor *bias,
                                              const sherd_conv_options *options);

SHERD_END

#endif
