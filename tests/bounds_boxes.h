/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of a few dims for the subjects of bounds.h, and operands that lie in them with strides: in
 * any order, stretched, with gaps.
 */
#ifndef SHERD_TESTS_BOUNDS_BOXES_H
#define SHERD_TESTS_BOUNDS_BOXES_H

#include "bounds.h"

enum { BOX_DIMS = 4 };

typedef struct box {
    int ndim;
    int64_t n, size[BOX_DIMS];
} box;

/* Up to four dims; one of them, the last mostly, may be longer than a vector. */
static inline box draw_box(trial *t)
{
    box b = {.ndim = (int)draw(t, "ndim", BOX_DIMS + 1), .n = 1};
    int longest = roll(&t->dice, 3) ? b.ndim - 1 : roll(&t->dice, BOX_DIMS);

    for (int d = 0; d < b.ndim; d++) {
        b.size[d] = d == longest         ? length(t, "size")
                    : roll(&t->dice, 20) ? note(t, "size", 1 + roll(&t->dice, 4))
                                         : note(t, "size", 0);
        b.n *= b.size[d];
    }
    return b;
}

/*
 * Strides of some order, with gaps or without, 0 in the dims of `folded`; returns the elements up
 * to the last.
 */
static inline int64_t lay_out(trial *t, const box *b, int64_t *stride, unsigned folded, bool gaps)
{
    int order[BOX_DIMS] = {0, 1, 2, 3};
    int64_t step = 1, extent = 1;

    for (int d = b->ndim - 1; d > 0 && gaps; d--) {
        int other = roll(&t->dice, d + 1), was = order[d];
        order[d] = order[other];
        order[other] = was;
    }
    for (int i = b->ndim - 1; i >= 0; i--) {
        int d = order[i];
        stride[d] = 0;
        if (folded >> d & 1)
            continue;
        stride[d] = step;
        extent = b->size[d] && extent ? extent + (b->size[d] - 1) * step : 0;
        step = step * (b->size[d] ? b->size[d] : 1) + (gaps ? roll(&t->dice, 3) : 0);
    }
    return extent;
}

/* An operand that is read: whole, stretched, or in any order. Of nothing it may be nothing. */
static inline const void *strided_in(trial *t, const char *name, const box *b, int64_t *stride)
{
    int64_t how = draw(t, name, 3);
    unsigned folded = how == 1 ? (unsigned)roll(&t->dice, 1 << BOX_DIMS) : 0;

    return in(t, name, lay_out(t, b, stride, folded, how == 2));
}

#endif
