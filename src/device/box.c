/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes in their simplest form: see box.h. Some tens of ns for a box of few dims. */
#include "box.h"

#include "base/num.h"

enum {
    THREADS = 256,
    BLOCKS = 132 * 16 /* twice as many as a large GPU runs at a time */
};

static bool goes_on(const sherd__box *box, int d, const int64_t *const *stride, int last,
                    int64_t size)
{
    for (int k = 0; k < box->operands; k++)
        if (stride[k] && box->stride[k][last] != stride[k][d] * size)
            return false;
    return true;
}

void sherd__box_of(sherd__box *box, int ndim, const int64_t *size, int operands,
                   const int64_t *const *stride)
{
    int64_t step = 1;

    box->ndim = 0;
    box->operands = operands;
    box->n = 1;
    for (int d = 0; d < ndim; d++) {
        int last = box->ndim - 1;
        box->n *= size[d];
        if (size[d] == 1)
            continue;
        if (last >= 0 && goes_on(box, d, stride, last, size[d]))
            box->size[last] *= size[d];
        else
            box->size[last = box->ndim++] = size[d];
        for (int k = 0; k < operands; k++)
            box->stride[k][last] = stride[k] ? stride[k][d] : 0;
    }
    if (box->ndim == 0) {
        box->size[box->ndim++] = 1;
        for (int k = 0; k < operands; k++)
            box->stride[k][0] = 1;
    }
    for (int d = box->ndim - 1; d >= 0; step *= box->size[d--])
        for (int k = 0; k < operands; k++)
            if (!stride[k])
                box->stride[k][d] = step;
}

bool sherd__box_is_wide(const sherd__box *box, int lanes)
{
    int last = box->ndim - 1;

    if (box->size[last] % lanes)
        return false;
    for (int k = 0; k < box->operands; k++) {
        int64_t step = box->stride[k][last];
        if (step != 0 && step != 1)
            return false;
        for (int d = 0; d < last && step == 1; d++)
            if (box->stride[k][d] % lanes)
                return false;
    }
    return true;
}

void sherd__box_widen(sherd__box *box, int lanes)
{
    int last = box->ndim - 1;

    box->n /= lanes;
    box->size[last] /= lanes;
    for (int k = 0; k < box->operands; k++)
        box->stride[k][last] *= lanes;
}

/* Granlund and Montgomery: i / d = (high half of i m, + i) >> s, with s the bits of d - 1. */
bool sherd__box_divisors(const sherd__box *box, uint32_t *multiplier, uint32_t *shift)
{
    if (box->n >= (int64_t)1 << 31)
        return false;
    for (int d = 0; d < box->ndim; d++) {
        uint64_t size = (uint64_t)sherd__max(box->size[d], 1);
        shift[d] = 0;
        while ((uint64_t)1 << shift[d] < size)
            shift[d]++;
        multiplier[d] = (uint32_t)(((((uint64_t)1 << shift[d]) - size) << 32) / size + 1);
    }
    return true;
}

sherd__launch_grid sherd__grid_of(int64_t items)
{
    return (sherd__launch_grid){.blocks = sherd__min(sherd__ceil_div(items, THREADS), BLOCKS),
                                .threads = THREADS};
}
