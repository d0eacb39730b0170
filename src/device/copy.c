/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of boxes on the GPU. A box is first brought to its simplest form: dims as they lie in dst,
 * neighbours that lie alike joined; then it is one copy of the driver's, or units as large as
 * places allow, or tiles of a transposition.
 */
#include "box.h"
#include "programs/copy_args.h"

#include "base/num.h"

#include <string.h>

enum {
    TILE = 32,      /* as in copy.cu */
    LEAST_TILE = 8, /* of a smaller dim most of a tile would be empty */
    TILE_BLOCKS = 132 * 8
};

/* The name of a unit of so many bytes. */
static const char *const unit_name[SHERD__WIDE + 1] = {
    [1] = "unit_1", [2] = "unit_2", [4] = "unit_4", [8] = "unit_8", [16] = "unit_16"};

/* The box with its dims sorted by their strides in dst, the least last. */
static void box_along_dst(sherd__box *box, int ndim, const int64_t *size, int operands,
                          const int64_t *const *stride)
{
    int64_t sizes[SHERD_MAX_DIMS], dst[SHERD_MAX_DIMS], src[SHERD_MAX_DIMS];

    for (int d = 0; d < ndim; d++) {
        int at = d;
        for (; at > 0 && dst[at - 1] < stride[0][d]; at--) {
            sizes[at] = sizes[at - 1];
            dst[at] = dst[at - 1];
            src[at] = src[at - 1];
        }
        sizes[at] = size[d];
        dst[at] = stride[0][d];
        src[at] = operands > 1 ? stride[1][d] : 0;
    }
    sherd__box_of(box, ndim, sizes, operands, (const int64_t *[]){dst, src});
}

static bool is_dense(const sherd__box *box)
{
    for (int k = 0; k < box->operands; k++)
        if (box->stride[k][box->ndim - 1] != 1)
            return false;
    return true;
}

/* Make it a box of units as large as places allow; their bytes. */
static size_t take_units(sherd__box *box, size_t element_bytes, const void *const *data)
{
    size_t bytes = is_dense(box) ? SHERD__WIDE : element_bytes;
    int last = box->ndim - 1;

    for (; bytes > element_bytes; bytes /= 2) {
        bool fits = sherd__box_is_wide(box, (int)(bytes / element_bytes));
        for (int k = 0; k < box->operands; k++)
            fits = fits && sherd__is_aligned(data[k], bytes);
        if (fits)
            break;
    }
    int64_t lanes = (int64_t)(bytes / element_bytes);
    box->n /= lanes;
    box->size[last] /= lanes;
    for (int k = 0; k < box->operands; k++)
        for (int d = 0; d < last; d++)
            box->stride[k][d] /= lanes;
    return bytes;
}

static void launch(sherd__device *device, const char *family, size_t unit, sherd__launch_grid grid,
                   const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_COPY, family, unit_name[unit], SHERD_DTYPE_NONE,
                                  SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

/* The dim along which src is dense while dst is along the last one; -1: none, or too small. */
static int turned_dim(const sherd__box *box)
{
    int last = box->ndim - 1;

    if (box->stride[0][last] != 1 || box->stride[1][last] <= 1 || box->size[last] < LEAST_TILE)
        return -1;
    for (int d = 0; d < last; d++)
        if (box->stride[1][d] == 1 && box->size[d] >= LEAST_TILE)
            return d;
    return -1;
}

static void copy_tiles(sherd__device *device, size_t element_bytes, const sherd__box *box, int row,
                       void *dst, const void *src)
{
    int last = box->ndim - 1;
    copy_tiles_args args = {.dst = dst,
                            .src = src,
                            .rows = box->size[row],
                            .cols = box->size[last],
                            .row_tiles = sherd__ceil_div(box->size[row], TILE),
                            .col_tiles = sherd__ceil_div(box->size[last], TILE),
                            .dst_row = box->stride[0][row],
                            .src_col = box->stride[1][last]};
    sherd__box planes = {.operands = 2, .n = 1};

    for (int d = 0; d < last; d++) {
        if (d == row)
            continue;
        planes.n *= box->size[d];
        planes.size[planes.ndim] = box->size[d];
        for (int k = 0; k < 2; k++)
            planes.stride[k][planes.ndim] = box->stride[k][d];
        planes.ndim++;
    }
    if (planes.ndim == 0)
        planes.size[planes.ndim++] = 1;
    args.ndim = planes.ndim;
    args.small = sherd__box_divisors(&planes, args.multiplier, args.shift);
    memcpy(args.size, planes.size, sizeof args.size);
    memcpy(args.stride, planes.stride, sizeof args.stride);
    args.tiles = planes.n * args.row_tiles * args.col_tiles;
    launch(device, "copy_tiles", element_bytes,
           (sherd__launch_grid){.blocks = sherd__min(args.tiles, TILE_BLOCKS), .threads = 256},
           &args, sizeof args);
}

void sherd__device_copy_box(sherd__device *device, size_t element_bytes, int ndim,
                            const int64_t *size, void *dst, const int64_t *dst_stride,
                            const void *src, const int64_t *src_stride)
{
    copy_box_args args = {.dst = dst, .src = src};
    sherd__box box;

    box_along_dst(&box, ndim, size, 2, (const int64_t *[]){dst_stride, src_stride});
    if (box.n == 0)
        return;
    if (box.ndim == 1 && is_dense(&box)) {
        sherd__device_move(device, dst, src, box.n * (int64_t)element_bytes);
        return;
    }
    int row = turned_dim(&box);
    if (row >= 0) {
        copy_tiles(device, element_bytes, &box, row, dst, src);
        return;
    }
    size_t unit = take_units(&box, element_bytes, (const void *[]){dst, src});
    args.items = box.n;
    args.ndim = box.ndim;
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    memcpy(args.size, box.size, sizeof args.size);
    memcpy(args.stride, box.stride, sizeof args.stride);
    launch(device, "copy_box", unit, sherd__grid_of(box.n), &args, sizeof args);
}

void sherd__device_fill_box(sherd__device *device, size_t element_bytes, int ndim,
                            const int64_t *size, void *dst, const int64_t *dst_stride,
                            const void *value)
{
    fill_box_args args = {.dst = dst};
    sherd__box box;

    box_along_dst(&box, ndim, size, 1, (const int64_t *[]){dst_stride});
    if (box.n == 0)
        return;
    size_t unit = take_units(&box, element_bytes, (const void *[]){dst});
    for (size_t at = 0; at < sizeof args.value; at += element_bytes)
        memcpy((char *)args.value + at, value, element_bytes);
    args.items = box.n;
    args.ndim = box.ndim;
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    memcpy(args.size, box.size, sizeof args.size);
    memcpy(args.stride, box.stride, sizeof args.stride);
    launch(device, "fill_box", unit, sherd__grid_of(box.n), &args, sizeof args);
}
