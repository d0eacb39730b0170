/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW. Its state lies as the parameters lie, so a step touches local data only: one pass of one
 * kernel per parameter over p, m, v and the gradient.
 *
 * Steps are often too small for 16 bits to hold, and v changes by a thousandth: so of such a parameter
 * m, v and an exact copy of it are f32, and the parameter is the copy, rounded after each step.
 */
#include <math.h>

#include "nn/optimizer.h"

static void destroy_item(sherd__optimized *item)
{
    sherd_tensor_release(item->p);
    sherd_tensor_release(item->m);
    sherd_tensor_release(item->v);
    sherd_tensor_release(item->exact);
}

void sherd_optimizer_destroy(sherd_optimizer *optimizer)
{
    sherd_optimizer *o = optimizer;
    sherd__heap *heap;

    if (!o)
        return;
    heap = sherd__world_heap(o->world);
    for (int i = 0; o->item && i < o->count; i++)
        destroy_item(&o->item[i]);
    sherd__free(heap, o->item);
    sherd__free(heap, o->which);
    sherd__free(heap, o->from);
    sherd__free(heap, o->moved);
    sherd__free(heap, o->to);
    sherd__free(heap, o->shared);
    sherd__free(heap, o);
}

static sherd_status check(sherd_world *world, const sherd_adamw_options *o)
{
    bool good = o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->eps >= 0 &&
                o->weight_decay >= 0;
    if (good)
        return SHERD_OK;
    return sherd__fail(
        sherd__world_diag(world), SHERD_EINVAL,
        "sherd_adamw_create: beta1 %g, beta2 %g, eps %g, weight_decay %g: betas lie in "
        "[0, 1), the others are not negative",
        o->beta1, o->beta2, o->eps, o->weight_decay);
}

static sherd_adamw_options with_defaults(const sherd_adamw_options *options)
{
    sherd_adamw_options o = options ? *options : (sherd_adamw_options){0};

    o.beta1 = o.beta1 == 0 ? 0.9 : o.beta1;
    o.beta2 = o.beta2 == 0 ? 0.999 : o.beta2;
    o.eps = o.eps == 0 ? 1e-8 : o.eps;
    return o;
}

static sherd_tensor *zeros_like(sherd_tensor *p)
{
    sherd_dtype dtype = sherd__statistics_dtype(p->dtype);

    if (p->layout)
        return sherd_constant_on(p->layout, dtype, 0);
    return sherd_constant(p->world, dtype, p->shape, p->ndim, 0);
}

/* Also on failure the item can be destroyed. */
static sherd_status start_item(sherd_optimizer *o, sherd__optimized *item, sherd_tensor *p)
{
    sherd__diag *diag = sherd__world_diag(o->world);
    sherd_tensor *m, *v;

    if (p->layout && o->mesh && o->mesh != sherd_layout_mesh(p->layout))
        return sherd__fail(diag, SHERD_EINVAL,
                           "sherd_adamw_create: parameters lie on two meshes, %s and %s",
                           sherd_mesh_text(o->mesh), sherd_mesh_text(sherd_layout_mesh(p->layout)));
    if (p->layout)
        o->mesh = sherd_layout_mesh(p->layout);
    item->p = sherd_tensor_retain(p);
    m = zeros_like(p);
    v = zeros_like(p);
    if (sherd_tensor_failed(m) || sherd_tensor_failed(v))
        return diag->status ? diag->status : SHERD_ENOMEM;
    item->m = sherd_tensor_retain(m);
    item->v = sherd_tensor_retain(v);
    if (!sherd__is_half(p->dtype))
        return SHERD_OK;
    sherd_tensor *exact = zeros_like(p);
    if (sherd_tensor_failed(exact))
        return diag->status ? diag->status : SHERD_ENOMEM;
    item->exact = sherd_tensor_retain(exact);
    item->version = -1; /* nothing is the same yet */
    return SHERD_OK;
}

/* The arrays, all of them or ENOMEM. */
static sherd_status reserve(sherd_optimizer *o)
{
    sherd__heap *heap = sherd__world_heap(o->world);
    size_t n = (size_t)o->count;

    o->item = sherd__alloc(heap, n, sizeof *o->item);
    o->which = sherd__alloc(heap, n, sizeof *o->which);
    o->from = sherd__alloc(heap, n, sizeof *o->from);
    o->moved = sherd__alloc(heap, n, sizeof *o->moved);
    o->to = sherd__alloc(heap, n, sizeof *o->to);
    if (o->item && o->which && o->from && o->moved && o->to)
        return SHERD_OK;
    return sherd__no_memory(sherd__world_diag(o->world), "sherd_adamw_create");
}

static sherd_status start_items(sherd_optimizer *o, sherd_module *module)
{
    sherd__heap *heap = sherd__world_heap(o->world);
    sherd_named_parameter *all = sherd__alloc(heap, (size_t)o->count, sizeof *all);
    sherd_status status = SHERD_OK;

    if (!all)
        return sherd__no_memory(sherd__world_diag(o->world), "sherd_adamw_create");
    sherd_module_all_parameters(module, all, o->count);
    for (int i = 0; !status && i < o->count; i++) {
        sherd_scope_begin(o->world);
        status = start_item(o, &o->item[i], all[i].tensor);
        sherd_scope_end(o->world);
    }
    sherd__free(heap, all);
    if (status || !o->mesh)
        return status;
    o->shared = sherd__alloc(heap, (size_t)sherd_mesh_ranks(o->mesh), sizeof *o->shared);
    return o->shared ? SHERD_OK
                     : sherd__no_memory(sherd__world_diag(o->world), "sherd_adamw_create");
}

sherd_status sherd_adamw_create(sherd_optimizer **out, sherd_module *module,
                                const sherd_adamw_options *options)
{
    const sherd__argument need[] = {{"out", out}, {"module", module}, {NULL, NULL}};
    sherd_world *world = sherd_module_world(module);
    sherd_adamw_options chosen = with_defaults(options);
    sherd_optimizer *o;

    if (out)
        *out = NULL;
    if (sherd__require(sherd__world_diag(world), "sherd_adamw_create", need))
        return SHERD_EINVAL;
    sherd_status status = check(world, &chosen);
    if (status)
        return status;
    o = sherd__alloc(sherd__world_heap(world), 1, sizeof *o);
    if (!o)
        return sherd__no_memory(sherd__world_diag(world), "sherd_adamw_create");
    o->world = world;
    o->options = chosen;
    o->count = sherd_module_all_parameters(module, NULL, 0);
    status = reserve(o);
    if (!status)
        status = start_items(o, module);
    if (status) {
        sherd_optimizer_destroy(o);
        return status;
    }
    *out = o;
    return SHERD_OK;
}

/* What a step changes: the parameter, or its exact copy, read anew if somebody wrote the parameter. NULL: ended by the alarm. */
static void *to_change(sherd__optimized *item)
{
    sherd_tensor *p = item->p;

    if (!item->exact)
        return sherd__mutable(p);
    void *exact = sherd__mutable(item->exact);
    const void *from = sherd__data(p);
    if (exact && from && item->version != p->storage->version)
        sherd__convert(sherd__world_kernels(p->world), SHERD_F32, p->dtype, p->count, exact, from);
    return from ? exact : NULL;
}

/* The exact copy has changed: round it. False: ended by the alarm. */
static bool round_parameter(sherd__optimized *item, const void *exact)
{
    sherd_tensor *p = item->p;
    void *to = sherd__mutable(p);

    if (!to)
        return false;
    sherd__convert(sherd__world_kernels(p->world), p->dtype, SHERD_F32, p->count, to, exact);
    item->version = p->storage->version;
    return true;
}

/* Update one parameter; false: ended by the alarm. */
static bool update(const sherd_optimizer *o, sherd__optimized *item, double rate, double grad_scale)
{
    const sherd_adamw_options *with = &o->options;
    sherd_tensor *g = sherd__raw_grad(item->p);
    const void *grad;
    void *p, *m, *v;

    if (!g)
        return true;
    g = sherd__contiguous(g);
    grad = sherd__data(g);
    p = to_change(item);
    m = sherd__mutable(item->m);
    v = sherd__mutable(item->v);
    if (!grad || !p || !m || !v)
        return false;
    /* A plain parameter varies as far as it did, or its gradient does. */
    item->p->varies |= g->varies;
    item->steps++;
    sherd__adamw_step step = {
        .rate = rate,
        .beta1 = with->beta1,
        .beta2 = with->beta2,
        .eps = with->eps,
        .decay = item->p->ndim >= 2 ? with->weight_decay : 0,
        .correction1 = 1 - pow(with->beta1, (double)item->steps),
        .correction2 = 1 - pow(with->beta2, (double)item->steps),
        .grad_scale = grad_scale,
    };
    sherd__kernels_of(sherd__world_kernels(o->world), item->p->dtype)
        ->adamw(item->p->count, p, m, v, grad, &step);
    return !item->exact || round_parameter(item, p);
}

/* Ranks must take the same step; and parameters that some have changed and others not are lost. */
static void note(const sherd_optimizer *o, double rate, double grad_scale)
{
    uint64_t what = sherd__attribute_double(sherd__attribute_double(1, rate), grad_scale), identity;

    sherd__deed_add(o->mesh, "sherd_optimizer_step", what, &identity);
}

void sherd_optimizer_step(sherd_optimizer *optimizer, double learning_rate, double grad_scale)
{
    sherd_optimizer *o = optimizer;
    bool good = true;

    sherd_optimizer_settle(o);
    if (!o || sherd__alarmed(o->world))
        return;
    sherd_scope_begin(o->world);
    for (int i = 0; good && i < o->count; i++)
        good = update(o, &o->item[i], learning_rate, grad_scale);
    if (good && o->mesh)
        note(o, learning_rate, grad_scale);
    sherd_scope_end(o->world);
}

void sherd_optimizer_clear(sherd_optimizer *optimizer)
{
    for (int i = 0; optimizer && i < optimizer->count; i++)
        sherd_clear_grad(optimizer->item[i].p);
}
