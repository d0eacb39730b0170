/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying boxes: the heart of every move of data.
 */
#include "kernels.h"

#include <string.h>

void sherd__row_major(int ndim, const int64_t *size, int64_t *stride)
{
    int64_t step = 1;

    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= size[d];
    }
}

void sherd__copy_box(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                     const int64_t *dst_stride, const void *src, const int64_t *src_stride)
{
    if (ndim == 0) {
        memcpy(dst, src, element_bytes);
        return;
    }
    if (ndim == 1 && dst_stride[0] == 1 && src_stride[0] == 1) {
        if (size[0])
            memcpy(dst, src, (size_t)size[0] * element_bytes);
        return;
    }
    for (int64_t i = 0; i < size[0]; i++)
        sherd__copy_box(element_bytes, ndim - 1, size + 1,
                        (char *)dst + i * dst_stride[0] * (int64_t)element_bytes, dst_stride + 1,
                        (const char *)src + i * src_stride[0] * (int64_t)element_bytes,
                        src_stride + 1);
}
