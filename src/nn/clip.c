/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clipping settled gradients: each rank changes what it holds, by the same factor or bounds. A
 * gradient that nothing else references is changed in place.
 */
#include <math.h>

#include "nn/optimizer.h"
#include "tensor/said.h"
#include "vector/choose.h"

enum { BLOCK = 512 }; /* elements that bounds are written out for */

typedef struct clip {
    const char *function;
    bool by_value;
    double value; /* the factor, or the bound */
} clip;

static const sherd_op said = {
    .name = "clip",
    .field = {{"the factor or bound", SHERD_FIELD_DOUBLE, offsetof(clip, value), 1}},
    .attributes = sizeof(clip)};

static bool is_ours_alone(const sherd_tensor *g)
{
    return g->refs == 1 && g->storage->refs == 1 && sherd__is_contiguous(g);
}

/*
 * dst = src clamped to [-bound, bound]: a reduction with rows of the bounds, which every dtype has.
 */
static void hold_within(const sherd__kernels *k, size_t element, int64_t n, char *dst,
                        const char *src, double bound)
{
    _Alignas(64) unsigned char low[BLOCK * sizeof(double)], high[BLOCK * sizeof(double)];

    k->fill(low, BLOCK, -bound);
    k->fill(high, BLOCK, bound);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t some = n - i < BLOCK ? n - i : BLOCK;
        const void *up[] = {src + (size_t)i * element, low};
        const void *down[] = {dst + (size_t)i * element, high};
        k->reduce(SHERD_MAX, dst + (size_t)i * element, up, 2, some, 1);
        k->reduce(SHERD_MIN, dst + (size_t)i * element, down, 2, some, 1);
    }
}

/* A factor is applied where the gradient is computed; bounds on the CPU. */
static sherd__device *device_of(const clip *c, const sherd_tensor *g)
{
    return !c->by_value && sherd__device_computes(g->dtype) ? sherd__world_device(g->world) : NULL;
}

static void apply(const clip *c, const sherd_tensor *g, void *dst, const void *src)
{
    sherd__device *device = device_of(c, g);
    const sherd__kernels *k = sherd__kernels_of(sherd__world_kernels(g->world), g->dtype);

    if (sherd__left_out(g->world, c->function, g->dtype, (double)g->count,
                        2 * sherd__local_bytes(g)))
        return;
    if (device)
        sherd__device_unary(device, g->dtype, SHERD__SCALE, g->count, dst, src, &c->value);
    else if (c->by_value)
        hold_within(k, sherd_dtype_bytes(g->dtype), g->count, dst, src, c->value);
    else
        k->unary(SHERD__SCALE, g->count, dst, src, &c->value);
}

/* Clip the gradient of one parameter; false: ended by the alarm. */
static bool clip_one(const clip *c, sherd_tensor *p)
{
    sherd_tensor *g = sherd__raw_grad(p), *out = g;
    const void *src;
    void *dst;

    if (!g)
        return true;
    g = sherd__contiguous(g);
    sherd__device *device = device_of(c, g);
    src = device ? sherd__device_data(g) : sherd__data(g);
    if (!src)
        return false;
    if (is_ours_alone(out)) {
        dst = device ? sherd__device_mutable(out) : sherd__mutable(out);
    } else {
        out = sherd__new_like_there(g, g->dtype, device != NULL);
        dst = sherd_tensor_failed(out) ? NULL
              : device                 ? sherd__device_fresh(out)
                                       : sherd__fresh(out);
    }
    if (!dst)
        return false;
    if (g->count > 0)
        apply(c, g, dst, src);
    if (device && !sherd__device_sound(g->world))
        return false;
    /*
     * Noted even if changed in place: whether it is may differ between ranks, and what they note
     * must not.
     */
    sherd__note_one(c->function, g, sherd__attribute_double(1, c->value), out);
    if (out->layout)
        sherd__say_call(out, &said, c, true);
    sherd__set_grad(p, out);
    return true;
}

static void clip_all(sherd_optimizer *o, const clip *c)
{
    bool good = true;

    sherd_scope_begin(o->world);
    for (int i = 0; good && i < o->count; i++)
        good = clip_one(c, o->item[i].p);
    if (good && o->mesh)
        sherd__note_deed(o->world, o->mesh, c->function, sherd__attribute_double(1, c->value), NULL,
                         &said, c);
    sherd_scope_end(o->world);
}

void sherd__optimizer_scale(sherd_optimizer *o, const char *function, double by)
{
    clip_all(o, &(clip){function, false, by});
}

bool sherd__optimizer_bound(sherd_world *world, const char *function, const char *what, double most)
{
    if (most >= 0)
        return true;
    sherd__raise(world, SHERD_EINVAL, "%s: the %s is %g: %s", function, what, most,
                 most < 0 ? "it is negative" : "it is no number");
    return false;
}

/* Scale gradients with this norm down to `most`; returns the norm. */
static double scale_down(sherd_optimizer *o, const char *function, double norm, double most)
{
    if (isfinite(norm) && norm > most)
        sherd__optimizer_scale(o, function, most / norm);
    return norm;
}

double sherd_optimizer_clip(sherd_optimizer *optimizer, double most)
{
    static const char function[] = "sherd_optimizer_clip";

    if (!optimizer || !sherd__optimizer_bound(optimizer->world, function, "norm", most))
        return NAN;
    return scale_down(optimizer, function, sherd_optimizer_grad_norm(optimizer), most);
}

double sherd_optimizer_clip_norm(sherd_optimizer *optimizer, double most, double p)
{
    static const char function[] = "sherd_optimizer_clip_norm";

    if (!optimizer || !sherd__optimizer_bound(optimizer->world, function, "norm", most))
        return NAN;
    return scale_down(optimizer, function, sherd__optimizer_norm(optimizer, function, p), most);
}

void sherd_optimizer_clip_value(sherd_optimizer *optimizer, double most)
{
    static const char function[] = "sherd_optimizer_clip_value";

    if (!optimizer || !sherd__optimizer_bound(optimizer->world, function, "bound", most))
        return;
    sherd_optimizer_settle(optimizer);
    if (!sherd__alarmed(optimizer->world))
        clip_all(optimizer, &(clip){function, true, most});
}
