/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two shapes are the same: asked in most rooms, in a few instructions. */
#ifndef SHERD__LAYOUT_SHAPE_H
#define SHERD__LAYOUT_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

static inline bool sherd__same_shape(int ndim, const int64_t *shape, int other_ndim,
                                     const int64_t *other)
{
    bool same = ndim == other_ndim;

    for (int d = 0; same && d < ndim; d++)
        same = shape[d] == other[d];
    return same;
}

#endif
