/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of a box lie in the whole tensor: tests hold that number in them, so that a
 * wrong move shows. */
#ifndef SHERD_BOXES_H
#define SHERD_BOXES_H

#include "sherd/layout.h"

#include <stdbool.h>

static inline bool boxes_are_equal(const sherd_box *a, const sherd_box *b)
{
    bool same = a->ndim == b->ndim;

    for (int d = 0; d < a->ndim && same; d++)
        same = a->offset[d] == b->offset[d] && a->size[d] == b->size[d];
    return same;
}

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
