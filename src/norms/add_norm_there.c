/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual sum and its norm, and their gradients, on the GPU: by one kernel where there is one
 * for these rows, else by the kernels of the single operators one after the other over all rows.
 * Then what has 16 bits beside rows of f32 is widened first.
 */
#include "add_norm.h"

#include "device/residual.h"

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

/* What is added to x, after dropout. NULL: no memory. */
static const void *addend(sherd__blocks *w)
{
    sherd_call *call = w->call;
    const sherd_tensor *delta = call->in[DELTA];
    char *dropped;

    if (!(w->how->p > 0))
        return call->from[DELTA];
    dropped = sherd__device_scratch(call, bytes_of(delta->count, delta->dtype));
    if (dropped)
        drop_all(w, delta->dtype, dropped, call->from[DELTA]);
    return dropped;
}

/* By one kernel, if there is one. */
static bool add_and_norm(const sherd__blocks *w, const void *delta)
{
    const sherd_call *call = w->call;
    const sherd__row_norm *of = w->of;
    const sherd__norm_there p = {.dtype = call->in[X]->dtype,
                                 .beside = call->in[DELTA]->dtype,
                                 .rows = w->p.rows,
                                 .cols = w->p.inner,
                                 .x = call->from[X],
                                 .delta = delta,
                                 .weight = call->from[WEIGHT],
                                 .bias = of->bias >= 0 ? call->from[of->bias] : NULL,
                                 .sum = call->to[SUM],
                                 .norm = call->to[NORM],
                                 .mean = of->mean >= 0 ? call->to[of->mean] : NULL,
                                 .rstd = call->to[of->scale],
                                 .eps = w->how->norm.eps};

    return call->out[NORM]->dtype == p.beside && sherd__device_add_norm(sherd__device_in(call), &p);
}

/* The norm of what stands in the sum. False: failed. */
static bool norm_of_sum(const sherd__blocks *w, void *y)
{
    sherd_call *call = w->call;
    sherd__device *device = sherd__device_in(call);
    const sherd__row_norm *of = w->of;
    sherd_dtype dtype = call->in[X]->dtype;

    if (w->p.apart) {
        const void *x = call->from[X];
        void *norm = call->to[NORM];
        call->from[X] = call->to[SUM];
        call->to[NORM] = y;
        bool good = sherd__row_norm_apart(call, of);
        call->from[X] = x;
        call->to[NORM] = norm;
        return good;
    }
    if (of->mean >= 0)
        sherd__device_layer_norm(device, dtype, w->p.rows, w->p.inner, y, call->to[of->mean],
                                 call->to[of->scale], call->to[SUM], call->from[WEIGHT],
                                 call->from[BIAS], w->how->norm.eps);
    else
        sherd__device_rms_norm(device, dtype, w->p.rows, w->p.inner, y, call->to[of->scale],
                               call->to[SUM], call->from[WEIGHT], w->how->norm.eps);
    return true;
}

bool sherd__add_norm_there(sherd__blocks *w)
{
    sherd_call *call = w->call;
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *x = call->in[X], *norm = call->out[NORM];
    const void *delta = x->count ? addend(w) : NULL;
    const int64_t one = 1;
    bool same = norm->dtype == x->dtype;

    if (x->count == 0)
        return !w->p.apart || norm_of_sum(w, call->to[NORM]);
    if (delta && !w->p.apart && add_and_norm(w, delta))
        return true;
    if (delta)
        delta = as_x(call, x->dtype, call->in[DELTA]->dtype, x->count, delta);
    void *y = same ? call->to[NORM] : sherd__device_scratch(call, bytes_of(x->count, x->dtype));
    if (!delta || !y)
        return false;
    sherd__device_binary(device, x->dtype, SHERD__ADD, 1, &x->count, call->to[SUM], call->from[X],
                         &one, delta, &one);
    if (!norm_of_sum(w, y))
        return false;
    if (!same)
        sherd__device_convert(device, norm->dtype, x->dtype, x->count, call->to[NORM], y);
    return true;
}

/* dx, and ddelta as far as it is dx in 16 bits, by one kernel, if there is one. */
static bool differentiate(const sherd__blocks *w, const sherd__add_norm_grad *g)
{
    const sherd_call *call = w->call;
    const sherd__row_norm *of = w->of;
    sherd_dtype x = call->in[g->sum]->dtype;
    bool lower = call->results > g->ddelta && call->out[g->ddelta]->dtype != x;
    const sherd__norm_back_there p = {.dtype = x,
                                      .dy = call->in[g->dy]->dtype,
                                      .ddelta = lower ? call->out[g->ddelta]->dtype : x,
                                      .rows = w->p.rows,
                                      .cols = w->p.inner,
                                      .of = {.dy = call->from[g->dy],
                                             .sum = call->from[g->sum],
                                             .dsum = call->from[of->weight + 1],
                                             .weight = call->from[of->weight],
                                             .mean = of->mean >= 0 ? call->from[of->mean] : NULL,
                                             .rstd = call->from[of->scale],
                                             .dx = call->to[g->dx],
                                             .ddelta = lower ? call->to[g->ddelta] : NULL,
                                             .dweight = call->to[g->dweight],
                                             .dbias = of->mean >= 0 ? call->to[g->dbias] : NULL}};

    return sherd__device_norm_back(sherd__device_in(call), &p);
}

/* The same by the kernels of the norm, of a sum and of a cast. False: failed. */
static bool differentiate_apart(sherd__blocks *w, const sherd__add_norm_grad *g)
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
    if (w->p.apart) {
        call->from[g->dy] = wide;
        if (!sherd__row_norm_apart_grad(call, of))
            return false;
    } else {
        sherd__device_norm_grad(device, sum->dtype, w->p.rows, w->p.inner, dx, call->to[g->dweight],
                                of->mean >= 0 ? call->to[g->dbias] : NULL, wide, call->from[g->sum],
                                call->from[of->weight], of->mean >= 0 ? call->from[of->mean] : NULL,
                                call->from[of->scale]);
    }
    if (dsum && sum->count)
        sherd__device_binary(device, sum->dtype, SHERD__ADD, 1, &sum->count, dx, dx, &one, dsum,
                             &one);
    if (call->results > g->ddelta && call->out[g->ddelta]->dtype != sum->dtype)
        sherd__device_convert(device, call->out[g->ddelta]->dtype, sum->dtype, sum->count,
                              call->to[g->ddelta], dx);
    return true;
}

bool sherd__add_norm_grad_there(sherd__blocks *w, const sherd__add_norm_grad *g)
{
    sherd_call *call = w->call;
    sherd_dtype dtype = call->in[g->sum]->dtype;

    if ((w->p.apart || !differentiate(w, g)) && !differentiate_apart(w, g))
        return false;
    if (call->results > g->ddelta && w->how->p > 0) {
        sherd_dtype own = call->out[g->ddelta]->dtype;
        void *ddelta = call->to[g->ddelta];
        drop_all(w, own, ddelta, own != dtype ? ddelta : call->to[g->dx]);
    }
    return true;
}
