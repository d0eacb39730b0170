/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions whose kernel moves by its own size, as in the patches that transformers of images
 * and weather embed: each element of x is read once. That is a matrix product, once x lies as rows
 * of patches, and y as rows of channels; copies of both cost a pass over each. Kernels for windows
 * that overlap take longer where patches are large or channels few (docs/decisions/200 has times).
 */
#include "conv.h"

enum { LARGE = 16 /* elements of a patch and channel */, CHANNELS = 16 /* few are fewer */ };

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

bool sherd__conv_is_of_patches(const sherd__conv *c)
{
    int64_t taps = product(c->kernel);
    bool fits = c->groups == 1 && (taps >= LARGE || (taps > 1 && c->in_channels < CHANNELS));

    for (int d = 0; d < SHERD__CONV_DIMS; d++)
        fits &= c->stride[d] == c->kernel[d] && (c->dilation[d] == 1 || c->kernel[d] == 1) &&
                c->before[d] <= 0 && c->out[d] * c->kernel[d] - c->before[d] <= c->in[d];
    return fits;
}

/* From x to [batch, out, channels, kernel], or back. */
static void copy_patches(const sherd__conv *c, size_t bytes, void *x, void *patches, bool back)
{
    enum { OUT = 1, CHANNEL = OUT + SHERD__CONV_DIMS, KERNEL, DIMS = KERNEL + SHERD__CONV_DIMS };
    int64_t size[DIMS] = {c->batch}, in[DIMS] = {c->in_channels * product(c->in)}, whole[DIMS];
    int64_t stride = 1, first = 0;

    for (int d = SHERD__CONV_DIMS - 1; d >= 0; d--) {
        size[OUT + d] = c->out[d];
        size[KERNEL + d] = c->kernel[d];
        in[OUT + d] = stride * c->kernel[d];
        in[KERNEL + d] = stride;
        first -= c->before[d] * stride;
        stride *= c->in[d];
    }
    size[CHANNEL] = c->in_channels;
    in[CHANNEL] = stride;
    sherd__row_major(DIMS, size, whole);
    void *at = (unsigned char *)x + (size_t)first * bytes;
    if (back)
        sherd__copy_box(bytes, DIMS, size, at, in, patches, whole);
    else
        sherd__copy_box(bytes, DIMS, size, patches, whole, at, in);
}

/* From y [batch, channels, space] to [batch, space, channels], or back. */
static void turn_y(const sherd__conv *c, size_t bytes, void *y, void *turned, bool back)
{
    int64_t space = product(c->out), channels = c->out_channels;
    const int64_t size[] = {c->batch, space, channels};
    const int64_t whole[] = {space * channels, channels, 1}, in[] = {space * channels, 1, space};

    if (back)
        sherd__copy_box(bytes, 3, size, y, in, turned, whole);
    else
        sherd__copy_box(bytes, 3, size, turned, whole, y, in);
}

/* x and y as rows: of each element of y its patch, and its channels. */
typedef struct rows {
    const sherd__conv *conv;
    size_t bytes; /* of an element */
    int64_t count, terms;
    void *x, *y;
    bool has_x, has_y; /* copied from what is read */
} rows;

/* y = x w^T, dx = y w, dw = y^T x. False: failed. */
static bool run_task(sherd_call *call, rows *r, const sherd__conv_task *task)
{
    bool dry = sherd__is_dry(call->world), makes_y = task->kind == SHERD__CONV_FORWARD;
    bool makes_x = task->kind == SHERD__CONV_BACKWARD_X;
    sherd_dtype dtype = call->out[0]->dtype;
    int64_t channels = r->conv->out_channels, whole = r->conv->batch * r->conv->in_channels;
    void *x = task->array[SHERD__CONV_X], *y = task->array[SHERD__CONV_Y];
    void *w = task->array[SHERD__CONV_W];
    sherd__product p = {.dtype = dtype, .result = dtype};

    if (!makes_x && !r->has_x && !dry)
        copy_patches(r->conv, r->bytes, x, r->x, false);
    if (!makes_y && !r->has_y && !dry)
        turn_y(r->conv, r->bytes, y, r->y, false);
    r->has_x |= !makes_x;
    r->has_y |= !makes_y;
    p.ta = !makes_x && !makes_y;
    p.tb = makes_y;
    p.m = p.ta ? channels : r->count;
    p.n = makes_y ? channels : r->terms;
    p.k = makes_y ? r->terms : makes_x ? channels : r->count;
    if (!sherd__multiply(call, p, 1,
                         makes_y   ? r->y
                         : makes_x ? r->x
                                   : w,
                         makes_y ? r->x : r->y, p.ta ? r->x : w, NULL))
        return false;
    if (makes_y && !dry)
        turn_y(r->conv, r->bytes, y, r->y, true);
    if (makes_x && !dry && whole * product(r->conv->in) != r->count * r->terms)
        sherd__kernels_in(call)->fill(x, whole * product(r->conv->in), 0);
    if (makes_x && !dry)
        copy_patches(r->conv, r->bytes, x, r->x, true);
    return true;
}

bool sherd__conv_by_patches(sherd_call *call, const sherd__conv *c, const sherd__conv_task *task,
                            int tasks)
{
    rows r = {.conv = c,
              .bytes = sherd_dtype_bytes(call->out[0]->dtype),
              .count = c->batch * product(c->out),
              .terms = c->in_channels * product(c->kernel)};
    bool good = true;

    r.x = sherd_call_scratch(call, r.count * r.terms * (int64_t)r.bytes);
    r.y = r.x ? sherd_call_scratch(call, r.count * c->out_channels * (int64_t)r.bytes) : NULL;
    /* What makes x comes last: its patches lie where those that were read did. */
    for (int last = 0; last < 2; last++)
        for (int t = 0; t < tasks && r.y && good; t++)
            if ((task[t].kind == SHERD__CONV_BACKWARD_X) == last)
                good = run_task(call, &r, &task[t]);
    return r.y && good;
}
