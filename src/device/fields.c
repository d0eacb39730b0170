/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of fields.cu, and the tables of taps that they read: a few dozen bytes for a row. */
#include "fields.h"
#include "box.h"

#include "base/num.h"
#include "programs/fields_args.h"

#include <string.h>

static void launch(sherd__device *device, const char *family, sherd_dtype a, sherd_dtype b,
                   int64_t items, const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_FIELDS, family, NULL, a, b};

    sherd__device_launch(device, &kernel, sherd__grid_of(items), args, bytes);
}

/* ---- maxima ---------------------------------------------------------------------------------- */

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static pool_of shape_of(const sherd__pool *p)
{
    pool_of to = {.outer = p->outer};

    memcpy(to.in, p->in, sizeof to.in);
    memcpy(to.out, p->out, sizeof to.out);
    memcpy(to.kernel, p->kernel, sizeof to.kernel);
    memcpy(to.stride, p->stride, sizeof to.stride);
    memcpy(to.dilation, p->dilation, sizeof to.dilation);
    memcpy(to.before, p->before, sizeof to.before);
    memcpy(to.offset, p->offset, sizeof to.offset);
    memcpy(to.whole, p->whole, sizeof to.whole);
    return to;
}

void sherd__device_max_pool(sherd__device *device, sherd_dtype dtype, const sherd__pool *p, void *y,
                            int64_t *at, const void *x)
{
    const max_pool_args args = {shape_of(p), p->outer * product(p->out), y, at, x};

    launch(device, "max_pool", dtype, SHERD_DTYPE_NONE, args.items, &args, sizeof args);
}

void sherd__device_max_pool_grad(sherd__device *device, sherd_dtype dtype, const sherd__pool *p,
                                 void *dx, const void *dy, const int64_t *at)
{
    const max_pool_grad_args args = {shape_of(p), p->outer * product(p->in), dx, dy, at};

    launch(device, "max_pool_grad", dtype, SHERD_DTYPE_NONE, args.items, &args, sizeof args);
}

/* ---- weighted sums --------------------------------------------------------------------------- */

_Static_assert(sizeof(tap_of) == sizeof(sherd__tap), "the kernel reads the CPU's taps");

/* The taps and, behind them, of `in` > 0 elements the rows that read each. NULL: noted. */
static sherd__device_block *send_taps(sherd__device *device, const sherd__taps_pass *p, int64_t in)
{
    int64_t taps = p->rows * (int64_t)sizeof(tap_of);
    int64_t readers = in * 2 * (int64_t)sizeof(int64_t);
    sherd__device_block *there = sherd__device_take(device, sherd__max(taps + readers, 1));

    if (!there) {
        sherd__device_lack(device, "out of GPU memory for a resampling");
        return NULL;
    }
    sherd__device_upload(device, there->data, p->tap, taps);
    return there;
}

/*
 * Upload for each element the rows that read it, behind the taps, in pieces made on the stack. Both
 * ends of those ranges never decrease, so one walk finds them.
 */
static void send_readers(sherd__device *device, const sherd__taps_pass *p, char *to)
{
    enum { PIECE = 512 };
    int64_t piece[2 * PIECE], lo = 0, hi = 0;

    for (int64_t i = 0; i < p->in; i += PIECE) {
        int64_t n = sherd__min(PIECE, p->in - i);
        for (int64_t k = 0; k < n; k++) {
            while (lo < p->rows && p->tap[lo].first + p->tap[lo].count <= i + k)
                lo++;
            while (hi < p->rows && p->tap[hi].first <= i + k)
                hi++;
            piece[2 * k] = lo;
            piece[2 * k + 1] = hi;
        }
        sherd__device_upload(device, to + 2 * i * (int64_t)sizeof *piece, piece,
                             2 * n * (int64_t)sizeof *piece);
    }
}

void sherd__device_taps(sherd__device *device, sherd_dtype to, sherd_dtype from,
                        const sherd__taps_pass *p, void *y, const void *x)
{
    int64_t items = p->outer * p->rows * p->inner;
    sherd__device_block *there = items ? send_taps(device, p, 0) : NULL;

    if (!there)
        return;
    const taps_args args = {items, p->in, p->rows, p->inner, y, x, there->data};
    launch(device, "taps", from, to, items, &args, sizeof args);
    sherd__device_give(device, there);
}

void sherd__device_taps_grad(sherd__device *device, sherd_dtype to, sherd_dtype from,
                             const sherd__taps_pass *p, void *dx, const void *dy)
{
    int64_t items = p->outer * p->in * p->inner;
    sherd__device_block *there = items ? send_taps(device, p, p->in) : NULL;

    if (!there)
        return;
    char *reader = (char *)there->data + p->rows * (int64_t)sizeof(tap_of);
    send_readers(device, p, reader);
    const taps_grad_args args = {items, p->in, p->rows,     p->inner,
                                 dx,    dy,    there->data, (const int64_t *)(const void *)reader};
    launch(device, "taps_grad", from, to, items, &args, sizeof args);
    sherd__device_give(device, there);
}

/* ---- complex numbers ------------------------------------------------------------------------- */

void sherd__device_complex_mul(sherd__device *device, sherd_dtype dtype, bool conj, int ndim,
                               const int64_t *size, void *dst, const void *a,
                               const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    complex_mul_args args = {.conj = conj, .dst = dst, .a = a, .b = b};
    size_t element = sherd_dtype_bytes(dtype);
    int64_t pairs[2][SHERD_MAX_DIMS];
    sherd__box box;

    for (int d = 0; d < ndim; d++) {
        pairs[0][d] = a_stride[d] / 2;
        pairs[1][d] = b_stride[d] / 2;
    }
    sherd__box_of(&box, ndim, size, 2, (const int64_t *[]){pairs[0], pairs[1]});
    args.aligned = sherd__is_aligned(a, 2 * element) && sherd__is_aligned(b, 2 * element);
    args.items = box.n;
    args.ndim = box.ndim;
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    memcpy(args.size, box.size, sizeof args.size);
    memcpy(args.stride, box.stride, sizeof args.stride);
    launch(device, "complex_mul", dtype, SHERD_DTYPE_NONE, box.n, &args, sizeof args);
}
