/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a convolution with their defaults; borders other than zeros are padded first. */
#include "conv.h"

#include <string.h>

#include "sherd/ops_stencil.h"

enum { FIRST = 2 };

/* Options with their defaults; false: they are invalid. */
static bool read_options(sherd__conv_attributes *a, const sherd_tensor *weight,
                         const sherd_conv_options *o)
{
    static const sherd_conv_options none;
    bool good = true;

    o = o ? o : &none;
    memset(a, 0, sizeof *a);
    a->groups = o->groups ? o->groups : 1;
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        a->kernel[d] = weight && FIRST + d < weight->ndim ? weight->shape[FIRST + d] : 1;
        a->stride[d] = o->stride[d] ? o->stride[d] : 1;
        a->dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
        a->before[d] = o->before[d];
        a->after[d] = o->after[d];
        if (o->same) {
            good = good && a->stride[d] == 1 && !o->before[d] && !o->after[d];
            a->before[d] = a->dilation[d] * (a->kernel[d] - 1) / 2;
            a->after[d] = a->dilation[d] * (a->kernel[d] - 1) - a->before[d];
        }
        good = good && a->stride[d] > 0 && a->dilation[d] > 0 && a->before[d] >= 0 &&
               a->after[d] >= 0 && a->kernel[d] > 0 && !(a->stride[d] >> 31) &&
               !(a->dilation[d] >> 31) && !(a->before[d] >> 31) && !(a->after[d] >> 31);
    }
    return good && a->groups > 0 && (unsigned)o->border < SHERD_BORDERS;
}

/* x padded with its border; the convolution itself then pads no more. */
static sherd_tensor *with_border(sherd_tensor *x, sherd__conv_attributes *a, sherd_border border)
{
    sherd_pad_options o = {.value = 0};

    for (int d = 0; d < SHERD__CONV_DIMS && FIRST + d < x->ndim; d++) {
        o.before[FIRST + d] = (sherd_halo_side){a->before[d], border};
        o.after[FIRST + d] = (sherd_halo_side){a->after[d], border};
        a->before[d] = a->after[d] = 0;
    }
    return sherd_pad_with(x, &o);
}

static sherd_tensor *convolve(const sherd_op *op, sherd_tensor *x, sherd_tensor *weight,
                              sherd_tensor *bias, sherd__conv_attributes *a, bool good)
{
    sherd_tensor *in[] = {x, weight, bias};
    sherd_world *world = x ? x->world : weight ? weight->world : NULL;

    if (world && !good && !sherd_tensor_failed(x) && !sherd_tensor_failed(weight))
        return sherd__fail_tensor(
            world, (x && x->layout) || (weight && weight->layout), SHERD_EINVAL,
            "%s: strides, dilations and groups are at least 1, padding is not "
            "negative, \"same\" takes neither strides nor padding, and a border is one of those "
            "that there are, of a transposed one zeros",
            op->name);
    return sherd_apply(op, in, bias ? 3 : 2, a);
}

sherd_tensor *sherd_conv(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                         const sherd_conv_options *options)
{
    sherd__conv_attributes a;
    bool good = read_options(&a, weight, options);

    if (!good || !options || options->border <= SHERD_BORDER_CONSTANT || sherd_tensor_failed(x) ||
        sherd_tensor_failed(weight)) /* then the kernel has no size to pad for */
        return convolve(&sherd__conv_op, x, weight, bias, &a, good);
    sherd_world *world = x->world;
    sherd_scope_begin(world);
    sherd_tensor *y =
        convolve(&sherd__conv_op, with_border(x, &a, options->border), weight, bias, &a, true);
    sherd_scope_pass(y);
    sherd_scope_end(world);
    return y;
}

sherd_tensor *sherd_conv_transposed(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                    const sherd_conv_options *options)
{
    sherd__conv_attributes a;
    bool good = read_options(&a, weight, options) && !(options && options->same) &&
                !(options && options->border > SHERD_BORDER_CONSTANT);

    a.transposed = true;
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        a.extra[d] = options ? options->extra[d] : 0;
        good = good && a.extra[d] >= 0 &&
               (a.extra[d] < a.stride[d] || a.extra[d] < a.dilation[d] || a.extra[d] == 0);
    }
    return convolve(&sherd__conv_transposed_op, x, weight, bias, &a, good);
}
