/* SPDX-License-Identifier: Apache-2.0 */
/* One of two elements each, as a mask says; any dtype, by its size. Bound by memory. */
#include "kernels.h"
#include "rows.h"

#define PICK(type)                                                         \
    for (int64_t j = 0; j < r.n; j++)                                      \
        ((type *)d)[j] = mask[r.at[0] + j * r.step[0]]                     \
                             ? ((const type *)a)[r.at[1] + j * r.step[1]]  \
                             : ((const type *)b)[r.at[2] + j * r.step[2]]; \
    break;

void sherd__pick_box(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                     const uint8_t *mask, const int64_t *mask_stride, const void *a,
                     const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    sherd__rows r =
        sherd__rows_of(ndim, size, 3, (const int64_t *[]){mask_stride, a_stride, b_stride});
    char *d = dst;

    for (int64_t i = 0; i < r.rows; i++, sherd__rows_next(&r)) {
        switch (element_bytes) {
        case 1:
            PICK(uint8_t)
        case 2:
            PICK(uint16_t)
        case 4:
            PICK(uint32_t)
        default:
            PICK(uint64_t)
        }
        d += (size_t)r.n * element_bytes;
    }
}
