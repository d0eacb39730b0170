/* SPDX-License-Identifier: Apache-2.0 */
/* One of two elements each, as a mask says; any dtype, by its size. Bound by memory. */
#include "kernels.h"
#include "rows.h"

/* Without a branch: a mask is as good as random. Operands that lie as the result does, or are one
 * value, have loops of their own. */
#define CHOOSE(type, step_m, step_a, step_b)                              \
    for (int64_t j = 0; j < r.n; j++) {                                   \
        type x = ((const type *)a)[r.at[1] + j * (step_a)];               \
        type y = ((const type *)b)[r.at[2] + j * (step_b)];               \
        type all = (type)(0 - (type)(mask[r.at[0] + j * (step_m)] != 0)); \
        ((type *)d)[j] = (type)(y ^ ((x ^ y) & all));                     \
    }
#define PICK(type)                                               \
    if (r.step[0] == 1 && r.step[1] == 1 && r.step[2] == 1)      \
        CHOOSE(type, 1, 1, 1)                                    \
    else if (r.step[0] == 1 && r.step[1] == 0 && r.step[2] == 1) \
        CHOOSE(type, 1, 0, 1)                                    \
    else                                                         \
        CHOOSE(type, r.step[0], r.step[1], r.step[2])            \
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
