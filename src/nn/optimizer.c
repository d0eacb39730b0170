/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all optimizers share: creating, stepping, destroying. State has the layout of its parameter,
 * so a step touches local data only: one pass of one kernel per parameter over it, its state and
 * the gradient.
 *
 * Steps are often too small for 16 bits, and averages change by a thousandth: so for a 16-bit
 * parameter the state and an exact copy are f32, and the parameter is that copy, rounded after each
 * step.
 *
 * A frozen parameter has no state, which may be many times its own size: it is made in the first
 * step in which the parameter has a gradient.
 */
#include <stdio.h>
#include <string.h>

#include "nn/optimizer.h"

static void destroy_item(sherd__heap *heap, sherd__optimized *item)
{
    sherd_tensor_release(item->p);
    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++) {
        sherd_tensor_release(item->tensor[i]);
        sherd__free(heap, item->name[i]);
    }
}

void sherd_optimizer_destroy(sherd_optimizer *optimizer)
{
    sherd_optimizer *o = optimizer;
    sherd__heap *heap;

    if (!o)
        return;
    heap = sherd__world_heap(o->world);
    for (int i = 0; o->item && i < o->count; i++)
        destroy_item(heap, &o->item[i]);
    sherd__free(heap, o->item);
    sherd__free(heap, o->which);
    sherd__free(heap, o->from);
    sherd__free(heap, o->moved);
    sherd__free(heap, o->to);
    sherd__free(heap, o->shared);
    sherd__free(heap, o);
}

/* ---- making one ----------------------------------------------------------------------------- */

static sherd_tensor *zeros_like(sherd_tensor *p)
{
    sherd_dtype dtype = sherd__statistics_dtype(p->dtype);

    if (p->layout)
        return sherd_constant_on(p->layout, dtype, 0);
    if (!sherd__is_elsewhere(p))
        return sherd_constant(p->world, dtype, p->shape, p->ndim, 0);
    sherd_tensor *t = sherd_constant_later(p->world, dtype, p->shape, p->ndim, 0);
    if (!sherd_tensor_failed(t))
        t->elsewhere = true;
    return t;
}

/* A new count of steps, 0; equal on all ranks of the parameter's mesh. */
static sherd_tensor *no_steps(sherd_tensor *p)
{
    const sherd_placement replicated[SHERD_MAX_AXES] = {{SHERD_REPLICATE, 0, SHERD_SUM}};
    const sherd_layout *layout;

    if (!p->layout)
        return sherd_constant(p->world, SHERD_I64, NULL, 0, 0);
    if (sherd_layout_create(&layout, sherd_layout_mesh(p->layout), 0, NULL, replicated, NULL))
        return sherd__fail_diag(p->world, true);
    return sherd_constant_on(layout, SHERD_I64, 0);
}

/* Where a parameter is updated; NULL: on the CPU. */
static sherd__device *device_of(const sherd_optimizer *o, const sherd_tensor *p)
{
    return o->kind->on_device && sherd__device_computes(p->dtype) ? sherd__world_device(o->world)
                                                                  : NULL;
}

/* Name tensor i of an item after its parameter. */
static sherd_status name_tensor(const sherd_optimizer *o, sherd__optimized *item, int i,
                                const char *parameter, const char *name)
{
    size_t room = strlen(parameter) + strlen(name) + 2;

    item->name[i] = sherd__alloc(sherd__world_heap(o->world), room, 1);
    if (!item->name[i])
        return sherd__no_memory(sherd__world_diag(o->world), o->kind->function);
    snprintf(item->name[i], room, "%s.%s", parameter, name);
    return SHERD_OK;
}

/* Create the tensors that an item has names for, zeros; a second call goes on after a failure. */
static sherd_status start_state(const sherd_optimizer *o, sherd__optimized *item)
{
    const sherd__diag *diag = sherd__world_diag(o->world);

    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++) {
        if (!item->name[i] || item->tensor[i])
            continue;
        sherd_tensor *t = i == SHERD__OPTIMIZER_STEPS ? no_steps(item->p) : zeros_like(item->p);
        if (sherd_tensor_failed(t))
            return diag->status ? diag->status : SHERD_ENOMEM;
        item->tensor[i] = sherd_tensor_retain(t);
    }
    return SHERD_OK;
}

static sherd_status hold_parameter(sherd_optimizer *o, sherd__optimized *item, sherd_tensor *p)
{
    sherd__diag *diag = sherd__world_diag(o->world);

    if (p->layout && o->mesh && o->mesh != sherd_layout_mesh(p->layout))
        return sherd__fail(diag, SHERD_EINVAL, "%s: parameters lie on two meshes, %s and %s",
                           o->kind->function, sherd_mesh_text(o->mesh),
                           sherd_mesh_text(sherd_layout_mesh(p->layout)));
    if (p->layout)
        o->mesh = sherd_layout_mesh(p->layout);
    item->p = sherd_tensor_retain(p);
    item->version = -1; /* nothing is the same yet */
    return SHERD_OK;
}

/* Its states: a whole matrix has the first one only. */
static int states_of(const sherd_optimizer *o, const sherd__optimized *item)
{
    return item->whole ? 1 : o->states;
}

/* After a failure the item can be destroyed too. */
static sherd_status start_item(const sherd_optimizer *o, sherd__optimized *item,
                               const sherd_named_parameter *parameter)
{
    sherd_tensor *p = parameter->tensor;
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < states_of(o, item); i++)
        status = name_tensor(o, item, i, parameter->name, o->kind->state[i]);
    if (!status && sherd__is_half(p->dtype))
        status = name_tensor(o, item, SHERD__OPTIMIZER_EXACT, parameter->name, "exact");
    if (!status)
        status = name_tensor(o, item, SHERD__OPTIMIZER_STEPS, parameter->name, "steps");
    if (status || !sherd_requires_grad(p))
        return status;
    item->ready = !device_of(o, p);
    return start_state(o, item);
}

/* Allocate the arrays; all of them, or ENOMEM. */
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
    return sherd__no_memory(sherd__world_diag(o->world), o->kind->function);
}

static sherd_status start_items(sherd_optimizer *o, sherd_module *module,
                                const sherd__grouping *grouping)
{
    sherd__heap *heap = sherd__world_heap(o->world);
    sherd_named_parameter *all = sherd__alloc(heap, (size_t)o->count, sizeof *all);
    sherd_status status = SHERD_OK;

    if (!all)
        return sherd__no_memory(sherd__world_diag(o->world), o->kind->function);
    sherd_module_all_parameters(module, all, o->count);
    for (int i = 0; !status && i < o->count; i++)
        status = hold_parameter(o, &o->item[i], all[i].tensor);
    if (!status)
        status = sherd__optimizer_group(o, grouping, all);
    for (int i = 0; !status && i < o->count; i++) {
        sherd_scope_begin(o->world);
        status = start_item(o, &o->item[i], &all[i]);
        sherd_scope_end(o->world);
    }
    sherd__free(heap, all);
    if (status || !o->mesh)
        return status;
    o->shared = sherd__alloc(heap, (size_t)sherd_mesh_ranks(o->mesh), sizeof *o->shared);
    return o->shared ? SHERD_OK : sherd__no_memory(sherd__world_diag(o->world), o->kind->function);
}

sherd_status sherd__optimizer_start(sherd_optimizer **out, sherd_module *module,
                                    const char *function)
{
    const sherd__argument need[] = {{"out", out}, {"module", module}, {NULL, NULL}};

    if (out)
        *out = NULL;
    return sherd__require(sherd__world_diag(sherd_module_world(module)), function, need);
}

sherd_status sherd__optimizer_create(sherd_optimizer **out, sherd_module *module,
                                     const sherd_optimizer *like, const sherd__grouping *grouping)
{
    sherd_world *world = sherd_module_world(module);
    sherd_optimizer *o = sherd__alloc(sherd__world_heap(world), 1, sizeof *o);
    sherd_status status;

    if (!o)
        return sherd__no_memory(sherd__world_diag(world), like->kind->function);
    *o = *like;
    o->world = world;
    o->module = module;
    o->checks = sherd__failed_checks(world);
    o->count = sherd_module_all_parameters(module, NULL, 0);
    status = reserve(o);
    if (!status)
        status = start_items(o, module, grouping);
    if (status) {
        sherd_optimizer_destroy(o);
        return status;
    }
    *out = o;
    return SHERD_OK;
}

/* ---- a step --------------------------------------------------------------------------------- */

static void *to_write(sherd_tensor *t, const sherd__device *device)
{
    return device ? sherd__device_mutable(t) : sherd__mutable(t);
}

static void convert(sherd_tensor *p, sherd__device *device, sherd_dtype to, sherd_dtype from,
                    void *dst, const void *src)
{
    if (device)
        sherd__device_convert(device, to, from, p->count, dst, src);
    else
        sherd__convert(sherd__world_kernels(p->world), to, from, p->count, dst, src);
}

bool sherd__optimizer_refresh(sherd__optimized *item, sherd__device *device)
{
    sherd_tensor *p = item->p;
    void *exact = to_write(item->tensor[SHERD__OPTIMIZER_EXACT], device);
    const void *from = device ? sherd__device_data(p) : sherd__data(p);

    if (!exact || !from)
        return false;
    if (item->version != p->storage->version) {
        convert(p, device, SHERD_F32, p->dtype, exact, from);
        if (device && !sherd__device_sound(p->world))
            return false;
        item->version = p->storage->version;
    }
    return true;
}

void *sherd__optimizer_change(sherd__optimized *item, sherd__device *device)
{
    if (!item->tensor[SHERD__OPTIMIZER_EXACT])
        return to_write(item->p, device);
    return sherd__optimizer_refresh(item, device)
               ? to_write(item->tensor[SHERD__OPTIMIZER_EXACT], device)
               : NULL;
}

bool sherd__optimizer_round(sherd__optimized *item, sherd__device *device, const void *changed)
{
    sherd_tensor *p = item->p;
    void *to;

    if (!item->tensor[SHERD__OPTIMIZER_EXACT])
        return true;
    if (!(to = to_write(p, device)))
        return false;
    convert(p, device, p->dtype, SHERD_F32, to, changed);
    item->version = p->storage->version;
    return true;
}

/*
 * The number of this step, or 0: ended by the alarm. A rank outside the mesh has nothing to count
 * with.
 */
static int64_t count_step(sherd_tensor *steps)
{
    int64_t *n = steps->count ? sherd__mutable(steps) : NULL;

    return n ? ++*n : steps->count == 0;
}

/* State that only some ranks changed is gone; without it a step would be another one. */
static bool has_state(const sherd_optimizer *o, const sherd__optimized *item)
{
    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++)
        if (item->tensor[i] && sherd__is_failed(item->tensor[i])) {
            sherd__raise(o->world, SHERD_EINVAL,
                         "sherd_optimizer_step: the state %s was lost in a step that failed: load "
                         "it (sherd_optimizer_load), or make a new optimizer",
                         item->name[i]);
            return false;
        }
    return true;
}

/* ---- before a step --------------------------------------------------------------------------- */

/*
 * Memory for all that a step changes or makes of an item: then only the alarm ends it. False: it is
 * raised, and nothing has changed.
 */
static bool prepare(const sherd_optimizer *o, sherd__optimized *item)
{
    sherd_tensor *g = sherd__contiguous(sherd__raw_grad(item->p));

    /* It was frozen when the optimizer was made, maybe. */
    if (sherd_tensor_failed(g) || start_state(o, item) || !has_state(o, item))
        return false;
    if (!device_of(o, item->p))
        return true;
    sherd__set_grad(item->p, g);
    for (int i = 0; i < SHERD__OPTIMIZER_STEPS; i++)
        if (item->tensor[i] && !sherd__device_data(item->tensor[i]))
            return false;
    return sherd__device_data(item->p) && sherd__device_data(g);
}

/* Load the kernels of a dtype, which takes memory, by a step of what nobody needs. */
static bool try_kernels(const sherd_optimizer *o, sherd__device *device, sherd_dtype dtype)
{
    enum { EACH = 256, ALL = 2 + SHERD__OPTIMIZER_STATES };
    sherd__device_block *room = sherd__device_take(device, (int64_t)EACH * ALL);
    sherd__update u = {.device = device, .dtype = dtype, .count = 1, .steps = 1};

    if (room) {
        char *at = room->data;
        sherd__device_set(device, at, 0, (int64_t)EACH * ALL);
        u.grad = at;
        u.p = at + EACH;
        for (int i = 0; i < o->states; i++)
            u.state[i] = at + (2 + i) * EACH;
        if (sherd__is_half(dtype)) {
            sherd__device_convert(device, SHERD_F32, dtype, 1, u.p, u.grad);
            sherd__device_convert(device, dtype, SHERD_F32, 1, at, u.p);
        }
        o->kind->update(o, &u);
        sherd__device_give(device, room);
    } else {
        sherd__device_lack(device, "out of memory for a step");
    }
    return sherd__device_sound(o->world);
}

static bool takes_part(const sherd__optimized *item)
{
    return sherd__raw_grad(item->p) && !item->whole;
}

/*
 * Before anything changes. Where memory is taken that later steps have (the first step, on GPUs),
 * ranks wait for each other: parameters that only some ranks have changed would be lost. Also after
 * a failed check, since one may have been ready when another was not.
 */
static bool prepare_all(sherd_optimizer *o)
{
    bool same = !sherd__world_device(o->world) || o->checks == sherd__failed_checks(o->world);
    bool ready = true;
    unsigned tried = 0;

    for (int i = 0; i < o->count; i++) {
        sherd__optimized *item = &o->item[i];
        if (!takes_part(item))
            continue;
        if (!prepare(o, item))
            return false;
        sherd__device *device = item->ready ? NULL : device_of(o, item->p);
        if (device && !(tried >> item->p->dtype & 1) && !try_kernels(o, device, item->p->dtype))
            return false;
        if (device)
            tried |= 1u << item->p->dtype;
        ready &= (item->ready && same) || !item->p->layout;
    }
    int64_t word = 0;
    if (!ready && o->mesh && sherd__in_mesh(o->world, o->mesh) &&
        !sherd__share(o->world, o->mesh, "sherd_optimizer_step", &word, 1, o->shared))
        return false;
    for (int i = 0; i < o->count; i++)
        o->item[i].ready |= takes_part(&o->item[i]);
    o->checks = sherd__failed_checks(o->world);
    return true;
}

/* ---- a step of all -------------------------------------------------------------------------- */

bool sherd__optimizer_begin(const sherd_optimizer *o, sherd__optimized *item, sherd__update *u)
{
    sherd_tensor *p = item->p, *g = sherd__contiguous(sherd__raw_grad(p));

    *u = (sherd__update){
        .device = device_of(o, p), .dtype = p->dtype, .count = p->count, .decay = item->decay};
    if (start_state(o, item) || !has_state(o, item))
        return false;
    u->grad = u->device ? sherd__device_data(g) : sherd__data(g);
    if (!u->grad)
        return false;
    for (int i = 0; i < states_of(o, item); i++)
        if (!(u->state[i] = to_write(item->tensor[i], u->device)))
            return false;
    u->steps = count_step(item->tensor[SHERD__OPTIMIZER_STEPS]);
    /* A plain parameter varies as far as it did, or its gradient does. */
    if (u->steps)
        sherd__set_varies(p, p->varies | g->varies);
    u->kernels = sherd__kernels_of(sherd__world_kernels(o->world), p->dtype);
    return u->steps != 0;
}

/* Update one parameter; false: ended by the alarm. */
static bool update(const sherd_optimizer *o, sherd__optimized *item, double rate, double grad_scale)
{
    sherd__update u;

    if (!takes_part(item))
        return true;
    if (!sherd__optimizer_begin(o, item, &u) || !(u.p = sherd__optimizer_change(item, u.device)))
        return false;
    u.rate = rate * item->rate;
    u.grad_scale = grad_scale;
    o->kind->update(o, &u);
    return sherd__optimizer_round(item, u.device, u.p) &&
           (!u.device || sherd__device_sound(o->world));
}

/* Ranks must take the same step; parameters that only some ranks have changed are lost. */
static void note(const sherd_optimizer *o, double rate, double grad_scale)
{
    uint64_t what = sherd__attribute_double(sherd__attribute_double(1, rate), grad_scale), identity;

    what = sherd__hash_word(what, o->settings);
    sherd__deed_add(o->mesh, "sherd_optimizer_step", what, &identity);
}

void sherd_optimizer_step(sherd_optimizer *optimizer, double learning_rate, double grad_scale)
{
    sherd_optimizer *o = optimizer;

    sherd_optimizer_settle(o);
    if (!o || sherd__alarmed(o->world))
        return;
    sherd_scope_begin(o->world);
    bool good = prepare_all(o);
    if (good && o->kind->update_whole)
        good = o->kind->update_whole(o, learning_rate, grad_scale);
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
