/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of sets.cu. Sets are summed up in parts, as many as keep the GPU busy: a function of the
 * shape alone, as is the order of additions. Costs one pass over x, and one that writes y; the
 * same with dy for backward.
 */
#include "sets.h"
#include "box.h"

#include "base/num.h"
#include "programs/sets_args.h"

#include <string.h>

enum {
    WARP = 32,
    PART_PIECES = 8 * WARP, /* of a part, at least */
    SOME_WARPS = 132 * 32,
    SOME_BLOCKS = SOME_WARPS / SETS_WARPS,
    MOST_PARTS = 64
};

/* kind: NULL of a kernel that knows no pieces. */
static void launch(sherd__device *device, const char *family, const char *kind, sherd_dtype dtype,
                   int64_t blocks, const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_SETS, family, kind, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel,
                         (sherd__launch_grid){sherd__min(blocks, SOME_BLOCKS), SETS_THREADS, 0},
                         args, bytes);
}

static int64_t by_warps(int64_t warps)
{
    return sherd__ceil_div(warps, SETS_WARPS);
}

static int64_t by_threads(int64_t threads)
{
    return sherd__ceil_div(threads, SETS_THREADS);
}

static sets_of shape_of(const sherd__device_sets *s)
{
    return (sets_of){.batch = s->n.batch,
                     .channels = s->n.channels,
                     .inner = s->n.inner,
                     .first = s->first,
                     .group = s->group,
                     .slots = s->slots,
                     .rows = s->rows,
                     .sets = s->sets,
                     .whole = s->n.whole};
}

static int64_t count_of(const sherd__device_sets *s)
{
    return s->n.batch * s->n.channels * s->n.inner;
}

static bool is_wide(const sherd__device_sets *s, sherd_dtype dtype, uintptr_t together)
{
    return sherd__rows_are_wide(dtype, s->n.inner, together);
}

static int64_t lanes_of(sherd_dtype dtype, bool wide)
{
    return wide ? SHERD__WIDE / (int64_t)sherd_dtype_bytes(dtype) : 1;
}

/* In how many parts each of `many` is summed up. */
static int64_t parts_of(const sherd__device_sets *s, int64_t many, int64_t lanes)
{
    int64_t pieces = many ? count_of(s) / lanes / many : 0;
    int64_t parts = sherd__min(pieces / PART_PIECES, many ? SOME_WARPS / many : 0);

    return sherd__max(1, sherd__min(parts, MOST_PARTS));
}

static sherd__device_block *take(sherd__device *device, int64_t numbers)
{
    sherd__device_block *room =
        sherd__device_take(device, sherd__max(numbers, 1) * (int64_t)sizeof(double));

    if (!room)
        sherd__device_lack(device, "out of GPU memory for a norm");
    return room;
}

/* ---- forward --------------------------------------------------------------------------------- */

void sherd__device_set_moments(sherd__device *device, sherd_dtype dtype,
                               const sherd__device_sets *s, double *numbers, const void *x)
{
    bool wide = is_wide(s, dtype, (uintptr_t)x);
    int64_t parts = parts_of(s, s->sets, lanes_of(dtype, wide));
    sherd__device_block *sums = take(device, 2 * s->sets * parts);

    if (!sums)
        return;
    const set_sums_args one = {shape_of(s), parts, x, sums->data};
    const set_moments_args two = {one.s, parts, x, sums->data, numbers};
    launch(device, "set_sums", wide ? "wide" : "each", dtype, by_warps(s->sets * parts), &one,
           sizeof one);
    launch(device, "set_moments", NULL, dtype, by_warps(s->sets), &two, sizeof two);
    sherd__device_give(device, sums);
}

/* Pieces of x, and the row of each. */
static void lay_out(sherd__box *box, const sherd__device_sets *s, int64_t lanes)
{
    const int64_t size[] = {s->n.batch, s->n.channels, s->n.inner / lanes};
    const int64_t row[] = {s->n.whole ? 0 : s->n.channels, 1, 0};

    sherd__box_of(box, 3, size, 1, (const int64_t *[]){row});
    if (box->n == 1)
        box->stride[0][0] = 0;
}

void sherd__device_set_spread(sherd__device *device, sherd_dtype dtype, const sherd__device_sets *s,
                              const sherd__device_set_scales *by, void *y, const void *x)
{
    bool wide = is_wide(s, dtype, (uintptr_t)x | (uintptr_t)y);
    sherd__device_block *of_rows = take(device, 3 * s->rows);
    sherd__box box;

    if (!of_rows)
        return;
    const set_scales_args scales = {shape_of(s), by->parts, by->numbers,   by->weight, by->bias,
                                    by->mean,    by->var,   of_rows->data, by->eps};
    launch(device, "set_scales", NULL, dtype, by_threads(s->rows), &scales, sizeof scales);
    lay_out(&box, s, lanes_of(dtype, wide));
    set_spread_args args = {.items = box.n,
                            .ndim = box.ndim,
                            .rows = s->rows,
                            .y = y,
                            .x = x,
                            .of_rows = of_rows->data};
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    memcpy(args.size, box.size, sizeof args.size);
    memcpy(args.stride, box.stride, sizeof args.stride);
    launch(device, "set_spread", wide ? "wide" : "each", dtype, by_threads(box.n), &args,
           sizeof args);
    sherd__device_give(device, of_rows);
}

/* ---- backward -------------------------------------------------------------------------------- */

void sherd__device_set_products(sherd__device *device, sherd_dtype dtype,
                                const sherd__device_sets *s, const sherd__device_set_back *of,
                                double *numbers, void *dweight, void *dbias)
{
    bool wide = is_wide(s, dtype, (uintptr_t)of->x | (uintptr_t)of->dy);
    int64_t parts = parts_of(s, s->rows, lanes_of(dtype, wide));
    sherd__device_block *sums = take(device, 2 * s->rows * parts);

    if (!sums)
        return;
    const row_products_args one = {shape_of(s), parts, of->dy, of->x, of->mean, sums->data};
    launch(device, "row_products", wide ? "wide" : "each", dtype, by_warps(s->rows * parts), &one,
           sizeof one);
    if (dweight || dbias) {
        const set_parameters_args two = {one.s,   parts, sums->data, of->var,
                                         dweight, dbias, of->eps};
        launch(device, "set_parameters", NULL, dtype, by_warps(s->n.channels), &two, sizeof two);
    }
    if (numbers) {
        const set_products_args three = {one.s, parts, sums->data, of->weight, numbers};
        launch(device, "set_products", NULL, dtype, by_warps(s->sets), &three, sizeof three);
    }
    sherd__device_give(device, sums);
}

void sherd__device_set_gradient(sherd__device *device, sherd_dtype dtype,
                                const sherd__device_sets *s, const sherd__device_set_back *of,
                                const double *numbers, int64_t parts, void *dx)
{
    bool wide = is_wide(s, dtype, (uintptr_t)of->x | (uintptr_t)of->dy | (uintptr_t)dx);
    sherd__device_block *of_rows = take(device, 4 * s->rows);
    sherd__box box;

    if (!of_rows)
        return;
    const set_slopes_args slopes = {shape_of(s), parts,         numbers, of->mean,    of->var,
                                    of->weight,  of_rows->data, of->eps, of->together};
    launch(device, "set_slopes", NULL, dtype, by_threads(s->rows), &slopes, sizeof slopes);
    lay_out(&box, s, lanes_of(dtype, wide));
    set_gradient_args args = {.items = box.n,
                              .ndim = box.ndim,
                              .rows = s->rows,
                              .dx = dx,
                              .dy = of->dy,
                              .x = numbers ? of->x : NULL,
                              .of_rows = of_rows->data};
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    memcpy(args.size, box.size, sizeof args.size);
    memcpy(args.stride, box.stride, sizeof args.stride);
    launch(device, "set_gradient", wide ? "wide" : "each", dtype, by_threads(box.n), &args,
           sizeof args);
    sherd__device_give(device, of_rows);
}
