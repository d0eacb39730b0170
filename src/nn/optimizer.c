/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating and destroying optimizers of all kinds. optimizer_items.c has what they keep of each
 * parameter, step.c their step, optimizer_update.c what it does to one parameter.
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
        status = sherd__optimizer_start_item(o, &o->item[i], &all[i]);
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
    o->buffered = module->buffered;
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
