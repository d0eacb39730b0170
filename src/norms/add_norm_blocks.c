/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of rows that a residual sum and its norm, and their gradients, are computed in: their
 * size, and dropout on them.
 */
#include "add_norm.h"

#include "base/num.h"

enum { BLOCK = 8192 /* bytes of x; three to five arrays of a block are in use at once */ };

bool sherd__block_room(sherd__blocks *w, void **room, bool wanted, int64_t elements)
{
    *room =
        wanted ? sherd_call_scratch(w->call, sherd__max(elements, 1) * (int64_t)w->element) : NULL;
    return !wanted || *room;
}

sherd__blocks sherd__blocks_begin(sherd_call *call, const sherd__row_norm *of,
                                  const sherd_tensor *x, const sherd_tensor *per_row,
                                  const sherd_tensor *dropped)
{
    sherd__blocks w = {.call = call, .how = call->attributes, .of = of};

    w.set = sherd__world_kernels(call->world);
    w.kernels = sherd__kernels_in(call);
    w.p = sherd__rows_of(call, x, per_row);
    w.element = sherd_dtype_bytes(x->dtype);
    w.step = sherd__max(BLOCK / (int64_t)w.element / sherd__max(w.p.inner, 1), 1);
    sherd__walk_begin(&w.walk, dropped);
    w.walked = w.walk.length;
    return w;
}

void sherd__block_drop(sherd__blocks *w, const sherd__kernels *kernels, size_t element, int64_t n,
                       char *to, const char *from)
{
    while (n > 0) {
        if (w->walked == w->walk.length) {
            sherd__walk_next(&w->walk);
            w->walked = 0;
        }
        int64_t m = sherd__min(n, w->walk.length - w->walked);
        kernels->dropout(m, to, from, w->how->p, w->how->key, w->walk.global + w->walked);
        w->walked += m;
        n -= m;
        to += (size_t)m * element;
        from += (size_t)m * element;
    }
}
