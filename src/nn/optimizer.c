/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all optimizers share: creating, state, destroying; step.c has their step. State has the
 * layout of its parameter, so a step touches local data only.
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
#include "autograd/tape.h"
#include "tensor/state.h"

static void destroy_item(sherd__heap *heap, sherd__optimized *item)
{
    sherd_tensor_release(item->p);
    sherd__layout_set(&item->part, NULL);
    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++) {
        sherd_tensor_release(item->tensor[i]);
        sherd__free(heap, item->name[i]);
    }
}

static void destroy(sherd_optimizer *o)
{
    sherd__heap *heap = sherd__world_heap(o->world);

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

void sherd_optimizer_destroy(sherd_optimizer *optimizer)
{
    /* Handlers run in its own step. */
    if (optimizer && sherd__calls_back(optimizer->world) && !optimizer->of_callback)
        sherd__raise(optimizer->world, SHERD_EINVAL,
                     "sherd_optimizer_destroy: an operator, a module, a handler or a hook is "
                     "running that has not made it: destroy it when that has returned");
    else if (optimizer)
        destroy(optimizer);
}

/* ---- making one ----------------------------------------------------------------------------- */

/* The layout of a parameter's state, or of its dims without one (SHERD__LACKS_NONE: with all). */
static sherd_status lay_without(const sherd_layout **out, const sherd__optimized *item, int without)
{
    const sherd_layout *layout = item->part ? item->part : item->p->layout;
    sherd__layout_spec spec = layout->spec;

    *out = layout;
    if (without < 0)
        return SHERD_OK;
    spec.ndim--;
    for (int d = without; d < spec.ndim; d++) {
        spec.shape[d] = spec.shape[d + 1];
        spec.dim[d] = spec.dim[d + 1];
    }
    spec.shape[spec.ndim] = 0;
    spec.dim[spec.ndim] = (sherd__dim){0};
    return sherd__layout_intern(out, &spec);
}

static sherd_tensor *zeros_without(const sherd__optimized *item, int without)
{
    sherd_tensor *p = item->p;
    sherd_dtype dtype = sherd__statistics_dtype(p->dtype);
    int64_t shape[SHERD_MAX_DIMS];
    const sherd_layout *layout;
    int ndim = 0;

    if (p->layout)
        return lay_without(&layout, item, without) ? sherd__fail_diag(p->world, true)
                                                   : sherd_constant_on(layout, dtype, 0);
    for (int d = 0; d < p->ndim; d++)
        if (d != without)
            shape[ndim++] = p->shape[d];
    if (!sherd__is_elsewhere(p))
        return sherd_constant(p->world, dtype, shape, ndim, 0);
    sherd_tensor *t = sherd_constant_later(p->world, dtype, shape, ndim, 0);
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
sherd__device *sherd__optimizer_device(const sherd_optimizer *o, const sherd_tensor *p)
{
    return o->kind->update_there && sherd__device_computes(p->dtype) ? sherd__world_device(o->world)
                                                                     : NULL;
}

/* The dim that tensor i of a parameter lacks, if there is one. */
static int lacking(const sherd_optimizer *o, const sherd_tensor *p, int i)
{
    return o->kind->lacks && i < SHERD__OPTIMIZER_STATES ? o->kind->lacks(p, i) : SHERD__LACKS_NONE;
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
sherd_status sherd__optimizer_start_state(const sherd_optimizer *o, sherd__optimized *item)
{
    const sherd__diag *diag = sherd__world_diag(o->world);

    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++) {
        if (!item->name[i] || item->tensor[i])
            continue;
        sherd_tensor *t = i == SHERD__OPTIMIZER_STEPS ? no_steps(item->p)
                                                      : zeros_without(item, lacking(o, item->p, i));
        if (sherd_tensor_failed(t))
            return diag->status ? diag->status : SHERD_ENOMEM;
        item->tensor[i] = sherd_tensor_retain(t);
        t->storage->family = o->family ? o->family + 1 : 0;
        sherd__serve(t->storage, SHERD_MEMORY_OPTIMIZERS);
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
    if (p->layout) {
        o->mesh = sherd_layout_mesh(p->layout);
        o->family = o->family ? o->family : sherd__attribute(p->ledger.born, (uint64_t)'o');
        p->storage->family = o->family;
    }
    item->p = sherd_tensor_retain(p);
    item->version = -1; /* nothing is the same yet */
    return SHERD_OK;
}

sherd__update_pass sherd__optimizer_pass(const sherd__update *u)
{
    sherd__update_pass a = {.dtype = u->dtype, .n = u->count, .p = u->p, .grad = u->grad};

    memcpy(a.state, u->state, sizeof a.state);
    return a;
}

/* Its states: a whole matrix of Muon has the first one only. */
int sherd__optimizer_states(const sherd_optimizer *o, const sherd__optimized *item)
{
    return item->whole && !o->kind->lacks ? 1 : o->states;
}

/* After a failure the item can be destroyed too. */
static sherd_status start_item(const sherd_optimizer *o, sherd__optimized *item,
                               const sherd_named_parameter *parameter)
{
    sherd_tensor *p = parameter->tensor;
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < sherd__optimizer_states(o, item); i++)
        if (lacking(o, p, i) != SHERD__NO_STATE)
            status = name_tensor(o, item, i, parameter->name, o->kind->state[i]);
    if (!status && sherd__is_half(p->dtype))
        status = name_tensor(o, item, SHERD__OPTIMIZER_EXACT, parameter->name, "exact");
    if (!status)
        status = name_tensor(o, item, SHERD__OPTIMIZER_STEPS, parameter->name, "steps");
    if (status || !sherd_requires_grad(p))
        return status;
    item->ready = !sherd__optimizer_device(o, p);
    return sherd__optimizer_start_state(o, item);
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
    if (!status && o->mesh && o->kind->options)
        sherd__note_deed(o->world, o->mesh, o->kind->function,
                         sherd__hash_fields(o->kind->options, &o->options), NULL, o->kind->options,
                         &o->options);
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
    o->of_callback = sherd__calls_back(world);
    o->count = sherd_module_all_parameters(module, NULL, 0);
    status = reserve(o);
    if (!status)
        status = start_items(o, module, grouping);
    if (status) {
        destroy(o);
        return status;
    }
    *out = o;
    return SHERD_OK;
}
