/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a convolution with their defaults; borders other than zeros are padded first. */
#include "conv.h"

#include <string.h>

#include "sherd/ops_stencil.h"
#include "world/doing.h"

enum { FIRST = 2 };

/*
 * Padding that keeps the size. False: there is none, or some was given too. A kernel and a dilation
 * that are no sizes are left to the operator, which refuses them.
 */
static bool pad_same(sherd__conv_attributes *a, int d)
{
    bool good = a->stride[d] == 1 && !a->before[d] && !a->after[d];

    if ((a->kernel[d] | a->dilation[d]) >> 31)
        return good;
    int64_t rest = a->dilation[d] * (a->kernel[d] - 1);
    a->before[d] = rest / 2;
    a->after[d] = rest - rest / 2;
    return good;
}

/* Options with their defaults. False: `same` beside strides or padding. */
static bool read_options(sherd__conv_attributes *a, const sherd_tensor *weight,
                         const sherd_conv_options *o)
{
    bool good = true;

    memset(a, 0, sizeof *a);
    a->groups = o->groups ? o->groups : 1;
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        a->kernel[d] = weight && FIRST + d < weight->ndim ? weight->shape[FIRST + d] : 1;
        a->stride[d] = o->stride[d] ? o->stride[d] : 1;
        a->dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
        a->before[d] = o->before[d];
        a->after[d] = o->after[d];
        a->extra[d] = o->extra[d];
        if (o->same)
            good = pad_same(a, d) && good;
    }
    return good;
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
                              sherd_tensor *bias, const sherd__conv_attributes *a,
                              const char *fault)
{
    sherd_tensor *in[] = {x, weight, bias};

    if (fault && !sherd_tensor_failed(x) && !sherd_tensor_failed(weight))
        return sherd__fail_tensor(x->world, x->layout || weight->layout, SHERD_EINVAL,
                                  "%s: %s: x is %s", op->name, fault, sherd_tensor_text(x));
    return sherd_apply(op, in, bias ? 3 : 2, a);
}

static const sherd_conv_options none;

sherd_tensor *sherd_conv(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                         const sherd_conv_options *options)
{
    const sherd_conv_options *o = options ? options : &none;
    const char *fault = NULL;
    sherd__conv_attributes a;

    if (!read_options(&a, weight, o))
        fault = "\"same\" takes neither strides nor padding";
    else if ((unsigned)o->border >= SHERD_BORDERS)
        fault = "there is no such border";
    memset(a.extra, 0, sizeof a.extra);
    if (fault || o->border <= SHERD_BORDER_CONSTANT || sherd_tensor_failed(x) ||
        sherd_tensor_failed(weight)) /* then the kernel has no size to pad for */
        return convolve(&sherd__conv_op, x, weight, bias, &a, fault);
    sherd_world *world = x->world;
    sherd_scope_begin(world);
    bool begun = sherd__doing_begin(world, "sherd_conv");
    sherd_tensor *y =
        convolve(&sherd__conv_op, with_border(x, &a, o->border), weight, bias, &a, NULL);
    sherd__doing_end(world, begun);
    sherd_scope_pass(y);
    sherd_scope_end(world);
    return y;
}

sherd_tensor *sherd_conv_transposed(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                    const sherd_conv_options *options)
{
    const sherd_conv_options *o = options ? options : &none;
    const char *fault = NULL;
    sherd__conv_attributes a;

    read_options(&a, weight, o);
    if (o->same)
        fault = "\"same\" is for sherd_conv only";
    else if ((unsigned)o->border > SHERD_BORDER_CONSTANT)
        fault = "a border other than zeros";
    a.transposed = true;
    return convolve(&sherd__conv_transposed_op, x, weight, bias, &a, fault);
}
