/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual sum and its norm, and their gradients, on the GPU: the kernels of the single operators
 * one after the other over all rows. What has 16 bits beside rows of f32 is widened first.
 */
#include "add_norm.h"

static int64_t bytes_of(int64_t count, sherd_dtype dtype)
{
    return count * (int64_t)sherd_dtype_bytes(dtype);
}

/* Dropout of all elements of the tensor that the walk goes through, of `dtype`. */
static void drop_all(sherd__blocks *w, sherd_dtype dtype, char *to, const char *from)
{
    size_t element = sherd_dtype_bytes(dtype);

    while (sherd__walk_next(&w->walk)) {
        size_t skip = (size_t)w->walk.local * element;
        sherd__device_dropout(sherd__device_in(w->call), dtype, w->walk.length, to + skip,
                              from + skip, w->how->p, w->how->key, w->walk.global);
    }
}

/* `count` elements as x has them: themselves, or a copy. NULL: no memory. */
static const void *as_x(sherd_call *call, sherd_dtype x, sherd_dtype dtype, int64_t count,
                        const void *from)
{
    void *wide;

    if (dtype == x || count == 0)
        return from;
    wide = sherd__device_scratch(call, bytes_of(count, x));
    if (wide)
        sherd__device_convert(sherd__device_in(call), x, dtype, count, wide, from);
    return wide;
}

/* What is added to x, after dropout, as x has it. NULL: no memory. */
static const void *addend(sherd__blocks *w)
{
    sherd_call *call = w->call;
    const sherd_tensor *delta = call->in[DELTA];
    const void *from = call->from[DELTA];

    if (w->how->p > 0) {
        char *dropped = sherd__device_scratch(call, bytes_of(delta->count, delta->dtype));
        if (!dropped)
            return NULL;
        drop_all(w, delta->dtype, dropped, from);
        from = dropped;
    }
    return as_x(call, call->in[X]->dtype, delta->dtype, delta->count, from);
}

bool sherd__add_norm_there(sherd__blocks *w)
{
    sherd_call *call = w->call;
    sherd__device *device = sherd__device_in(call);
    const sherd__row_norm *of = w->of;
    const sherd_tensor *x = call->in[X], *norm = call->out[NORM];
    const void *delta = x->count ? addend(w) : NULL;
    const int64_t one = 1;
    bool same = norm->dtype == x->dtype;

    if (x->count == 0)
        return true;
    void *y = same ? call->to[NORM] : sherd__device_scratch(call, bytes_of(x->count, x->dtype));
    if (!delta || !y)
        return false;
    sherd__device_binary(device, x->dtype, SHERD__ADD, 1, &x->count, call->to[SUM], call->from[X],
                         &one, delta, &one);
    if (of->mean >= 0)
        sherd__device_layer_norm(device, x->dtype, w->p.rows, w->p.inner, y, call->to[of->mean],
                                 call->to[of->scale], call->to[SUM], call->from[WEIGHT],
                                 call->from[BIAS], w->how->norm.eps);
    else
        sherd__device_rms_norm(device, x->dtype, w->p.rows, w->p.inner, y, call->to[of->scale],
                               call->to[SUM], call->from[WEIGHT], w->how->norm.eps);
    if (!same)
        sherd__device_convert(device, norm->dtype, x->dtype, x->count, call->to[NORM], y);
    return true;
}

bool sherd__add_norm_grad_there(sherd__blocks *w, const sherd__add_norm_grad *g)
{
    sherd_call *call = w->call;
    sherd__device *device = sherd__device_in(call);
    const sherd__row_norm *of = w->of;
    const sherd_tensor *sum = call->in[g->sum], *dy = call->in[g->dy];
    const void *dsum = call->from[of->weight + 1];
    void *dx = call->to[g->dx];
    const int64_t one = 1;

    const void *wide = as_x(call, sum->dtype, dy->dtype, dy->count, call->from[g->dy]);
    if (dy->count && !wide)
        return false;
    sherd__device_norm_grad(device, sum->dtype, w->p.rows, w->p.inner, dx, call->to[g->dweight],
                            of->mean >= 0 ? call->to[g->dbias] : NULL, wide, call->from[g->sum],
                            call->from[of->weight], of->mean >= 0 ? call->from[of->mean] : NULL,
                            call->from[of->scale], false);
    if (sum->count == 0)
        return true;
    if (dsum)
        sherd__device_binary(device, sum->dtype, SHERD__ADD, 1, &sum->count, dx, dx, &one, dsum,
                             &one);
    if (call->results <= g->ddelta)
        return true;
    sherd_dtype dtype = call->out[g->ddelta]->dtype;
    void *ddelta = call->to[g->ddelta];
    if (dtype != sum->dtype)
        sherd__device_convert(device, dtype, sum->dtype, sum->count, ddelta, dx);
    if (w->how->p > 0)
        drop_all(w, dtype, ddelta, dtype != sum->dtype ? ddelta : dx);
    return true;
}
