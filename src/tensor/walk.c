/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking over a local piece by global indices: random numbers belong to elements of the whole
 * tensor, so drawing them needs the global index of each local element. Runs are as long as the box
 * allows.
 */
#include "tensor/tensor.h"

void sherd__walk_begin(sherd__walk *w, const sherd_tensor *t)
{
    int d = t->count ? t->ndim : 0; /* sizes beside a 0 may have no product */

    *w = (sherd__walk){.t = t, .box = sherd_tensor_box(t), .length = t->count ? 1 : 0};
    while (d > 0) {
        d--;
        w->length *= t->local[d];
        if (t->local[d] != t->shape[d])
            break;
    }
    w->outer = d;
    w->local = -w->length;
}

bool sherd__walk_next(sherd__walk *w)
{
    const sherd_tensor *t = w->t;

    /* Not before the first run. */
    for (int d = w->outer - 1; w->local >= 0 && d >= 0 && ++w->index[d] == t->local[d]; d--)
        w->index[d] = 0;
    w->local += w->length;
    if (w->local >= t->count)
        return false;
    w->global = 0;
    for (int d = 0; d < t->ndim; d++)
        w->global = w->global * t->shape[d] + w->box.offset[d] + w->index[d];
    return true;
}
