/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of whole.cu. */
#include "whole.h"

#include <math.h>

#include "box.h"
#include "base/num.h"
#include "kernels/cast.h"
#include "programs/whole_args.h"

enum {
    MOST_SHARED = 8192, /* classes that are counted in a block's memory */
    COUNT_BLOCKS = 132 * 2,
    COUNT_ITEMS = 4096 /* of a block, at least: it adds its counts to those of all */
};

static void launch(sherd__device *device, const char *family, sherd_dtype dtype,
                   sherd__launch_grid grid, const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_WHOLE, family, NULL, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

static int64_t whole_of(sherd_dtype dtype, double x)
{
    int64_t element = 0, value;

    sherd__cast(dtype, SHERD_F64, 1, &element, &x);
    sherd__cast(SHERD_I64, dtype, 1, &value, &element);
    return value;
}

/* As whole_of of kernels/whole_body.inc. */
static void find_parameters(sherd_dtype dtype, sherd__unary_kind kind, int64_t *out,
                            const double *parameter)
{
    if (kind == SHERD__SHIFT) {
        out[0] = whole_of(SHERD_I64, parameter[0]);
    } else if (kind == SHERD__FLOOR_DIVIDE_SCALAR || kind == SHERD__REMAINDER_SCALAR) {
        out[0] = whole_of(dtype, parameter[0]);
    } else if (kind == SHERD__CLAMP) {
        double low = ceil(parameter[0]), high = floor(parameter[1]);
        out[0] = whole_of(dtype, low <= high ? low : high);
        out[1] = whole_of(dtype, high);
    }
}

void sherd__device_whole_unary(sherd__device *device, sherd_dtype dtype, sherd__unary_kind kind,
                               int64_t n, void *dst, const void *src, const double *parameter)
{
    int lanes = SHERD__WIDE / (int)sherd_dtype_bytes(dtype);
    whole_unary_args args = {.dst = dst,
                             .src = src,
                             .n = n,
                             .kind = (int32_t)kind,
                             .wide = sherd__is_aligned(dst, SHERD__WIDE) &&
                                     sherd__is_aligned(src, SHERD__WIDE)};

    find_parameters(dtype, kind, args.parameter, parameter);
    launch(device, "whole_unary", dtype, sherd__grid_of(args.wide ? sherd__ceil_div(n, lanes) : n),
           &args, sizeof args);
}

/* Whether groups of `lanes` elements can be taken at once. */
static bool lay(sherd__box *box, int lanes, whole_binary_args *args)
{
    int last = box->ndim - 1;
    bool wide = sherd__is_aligned(args->dst, SHERD__WIDE);

    args->n = box->n;
    for (int k = 0; k < 2; k++) {
        args->step[k] = (int32_t)(box->stride[k][last] == 1);
        wide = wide && (!args->step[k] || sherd__is_aligned(args->operand[k], SHERD__WIDE));
    }
    sherd__box whole = *box;
    if (whole.ndim == 1) /* the rest one by one */
        whole.size[0] = whole.n = whole.n / lanes * lanes;
    if (!wide || !sherd__box_is_wide(&whole, lanes))
        return false;
    *box = whole;
    sherd__box_widen(box, lanes);
    return true;
}

void sherd__device_whole_binary(sherd__device *device, sherd_dtype dtype, sherd__binary_kind kind,
                                int ndim, const int64_t *size, void *dst, const void *a,
                                const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    whole_binary_args args = {.dst = dst, .operand = {a, b}, .kind = (int32_t)kind};
    sherd__box box;

    sherd__box_of(&box, ndim, size, 2, (const int64_t *[]){a_stride, b_stride});
    if (box.n == 0)
        return;
    args.wide = lay(&box, SHERD__WIDE / (int)sherd_dtype_bytes(dtype), &args);
    args.items = box.n;
    args.ndim = box.ndim;
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    for (int d = 0; d < box.ndim; d++) {
        args.size[d] = box.size[d];
        for (int k = 0; k < 2; k++)
            args.stride[k][d] = box.stride[k][d];
    }
    launch(device, "whole_binary", dtype, sherd__grid_of(box.n + (args.wide ? 1 : 0)), &args,
           sizeof args);
}

void sherd__device_count(sherd__device *device, int64_t n, int64_t first, int64_t classes,
                         int32_t *counts, const int32_t *index)
{
    const count_args args = {counts, index, n, first, classes, classes <= MOST_SHARED};
    int64_t blocks = sherd__min(sherd__ceil_div(n, COUNT_ITEMS), COUNT_BLOCKS);

    if (classes == 0)
        return;
    sherd__device_set(device, counts, 0, classes * (int64_t)sizeof *counts);
    launch(
        device, "count", SHERD_I32,
        (sherd__launch_grid){.blocks = blocks,
                             .threads = 256,
                             .shared = args.shared ? (int)(classes * (int64_t)sizeof *counts) : 0},
        &args, sizeof args);
}
