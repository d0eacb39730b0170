/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of a box lie in the whole tensor: tests hold that number in them, so that a
 * wrong move shows. */
#ifndef SHERD_BOXES_H
#define SHERD_BOXES_H

#include "sherd/layout.h"

/* Global row-major index of the i-th element of a box, in its own row-major order. */
static inline int64_t global_of(const sherd_box *box, const int64_t *shape, int64_t i)
{
    int64_t index = 0, factor = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        index += (box->offset[d] + i % box->size[d]) * factor;
        i /= box->size[d];
        factor *= shape[d];
    }
    return index;
}

#endif
