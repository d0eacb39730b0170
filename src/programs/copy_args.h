/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of copy.cu; strides in units of what is moved at once. */
#ifndef SHERD__PROGRAMS_COPY_ARGS_H
#define SHERD__PROGRAMS_COPY_ARGS_H

/* stride[0] of dst, stride[1] of src. */
typedef struct copy_box_args {
    void *dst;
    const void *src;
    int64_t items; /* of the box */
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[2][8];
} copy_box_args;

/*
 * Planes rows x cols, where dst is dense along cols and src along rows; the dims of the box count
 * the planes.
 */
typedef struct copy_tiles_args {
    void *dst;
    const void *src;
    int64_t tiles; /* in all */
    int64_t rows, cols, row_tiles, col_tiles;
    int64_t dst_row, src_col;
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[2][8];
} copy_tiles_args;

typedef struct fill_box_args {
    void *dst;
    int64_t items;
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[1][8];
    uint32_t value[4]; /* 16 bytes: the element repeated */
} fill_box_args;

#endif
