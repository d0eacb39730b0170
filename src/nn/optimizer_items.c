/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an optimizer keeps of one parameter: an item. Its tensors of state, their names and layouts,
 * and where it is updated. State has the layout of its parameter, so a step touches local data
 * only.
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

/* Whether a failed step has taken tensor i with it while it was zeros: nothing is lost by that. */
static bool is_lost_unwritten(const sherd__optimized *item, int i)
{
    const sherd_tensor *t = item->tensor[i];

    return t && t->lost == SHERD__NOT_MADE && !item->counted && t->storage &&
           t->storage->version == item->zeros[i];
}

sherd_status sherd__optimizer_start_state(const sherd_optimizer *o, sherd__optimized *item)
{
    const sherd__diag *diag = sherd__world_diag(o->world);

    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++) {
        if (is_lost_unwritten(item, i)) {
            sherd_tensor_release(item->tensor[i]);
            item->tensor[i] = NULL;
            item->version = -1;
        }
        if (!item->name[i] || item->tensor[i])
            continue;
        sherd_tensor *t = i == SHERD__OPTIMIZER_STEPS ? no_steps(item->p)
                                                      : zeros_without(item, lacking(o, item->p, i));
        if (sherd_tensor_failed(t))
            return diag->status ? diag->status : SHERD_ENOMEM;
        item->tensor[i] = sherd_tensor_retain(t);
        item->zeros[i] = t->storage->version;
        t->storage->family = o->family ? o->family + 1 : 0;
        sherd__serve(t->storage, SHERD_MEMORY_OPTIMIZERS);
    }
    return SHERD_OK;
}

/* Its states: a whole matrix of Muon has the first one only. */
int sherd__optimizer_states(const sherd_optimizer *o, const sherd__optimized *item)
{
    return item->whole && !o->kind->lacks ? 1 : o->states;
}

/* After a failure the item can be destroyed too. */
sherd_status sherd__optimizer_start_item(const sherd_optimizer *o, sherd__optimized *item,
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

sherd__optimized *sherd__optimizer_item(sherd_optimizer *o, const sherd_tensor *p)
{
    for (int i = 0; i < o->count; i++) {
        int at = (o->found + i) % o->count;
        if (o->item[at].p == p) {
            o->found = at;
            return &o->item[at];
        }
    }
    return NULL;
}

const char *sherd__optimizer_name(const sherd_optimizer *o, const sherd__optimized *item, int i,
                                  char out[SHERD__NAME_TEXT])
{
    const sherd_tensor *p = item->p;
    uint64_t walk = sherd__mark_holders(o->module);

    while (p->placed_as)
        p = p->placed_as;
    const sherd_named_state entry = {
        p->visit.walk == walk ? sherd__path_below(o->module, p->visit.holder) : "", item->name[i],
        item->tensor[i], true};
    sherd_state_name(&entry, out, SHERD__NAME_TEXT);
    return out;
}
