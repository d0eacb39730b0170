/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that is sharded further than its parameters. A step moves gradients to the layout of the
 * state instead of the parameter's (settle.c): if they are pending, that is a reduce-scatter. Each
 * rank then updates its slice of each parameter, in a copy, and one call for many parameters
 * gathers the slices. Rounds are bounded in bytes, because what is gathered is in memory beside the
 * parameters until it is copied into them.
 */
#include <string.h>

#include "nn/optimizer.h"

enum { ROUND = 32 << 20 }; /* bytes that are gathered in one call, and one parameter more */

/* ---- a step ---------------------------------------------------------------------------------- */

/* What was gathered into the parameter, which stays the same tensor. */
static bool overwrite(sherd_tensor *p, sherd_tensor *from)
{
    const void *data = sherd_tensor_failed(from) ? NULL : sherd__data(sherd__contiguous(from));
    void *to = data ? sherd__mutable(p) : NULL;

    if (to && p->count &&
        !sherd__left_out(p->world, "copy", p->dtype, 0, 2 * sherd__local_bytes(p)))
        memcpy(to, data, (size_t)p->count * sherd_dtype_bytes(p->dtype));
    return to != NULL;
}

/* Whether this step has changed parameters whose state is not sharded further: they come first. */
static bool has_changed_others(const sherd_optimizer *o)
{
    bool found = false;

    for (int i = 0; i < o->count && !found; i++)
        found = !o->item[i].part && sherd__raw_grad(o->item[i].p);
    return found;
}

/* The first n of o->which. `changed`: the step has changed parameters already. */
static bool update_round(const sherd_optimizer *o, int n, double rate, double grad_scale,
                         bool changed)
{
    bool good = true;
    int tried = 0;

    sherd_scope_begin(o->world);
    for (int k = 0; k < n && good; k++, tried++) {
        sherd__optimized *item = &o->item[o->which[k]];
        good = sherd__optimizer_slice(item) && sherd__optimizer_update(o, item, rate, grad_scale);
        o->from[k] = item->slice;
        o->to[k] = item->p->layout;
        item->slice = NULL;
    }
    if (good)
        sherd__move_list(o->moved, o->from, o->to, n, false);
    if (good || changed || tried > 1) /* each slice was a move, too */
        sherd__optimizer_moved(o, changed);
    for (int k = 0; k < n && good; k++) {
        sherd__optimized *item = &o->item[o->which[k]];
        good = overwrite(item->p, o->moved[k]);
        item->version = item->p->storage->version;
    }
    sherd_scope_end(o->world);
    return good;
}

bool sherd__optimizer_update_slices(const sherd_optimizer *o, double rate, double grad_scale)
{
    int64_t bytes = 0;
    bool good = true, changed = has_changed_others(o);
    int n = 0;

    for (int i = 0; i < o->count && good; i++) {
        const sherd_tensor *p = o->item[i].p;
        if (!o->item[i].part || !sherd__raw_grad(p))
            continue;
        o->which[n++] = i;
        bytes += sherd_tensor_count(p) * (int64_t)sherd_dtype_bytes(p->dtype); /* of all ranks */
        if (bytes < ROUND)
            continue;
        good = update_round(o, n, rate, grad_scale, changed);
        changed = true;
        bytes = n = 0;
    }
    return good && (n == 0 || update_round(o, n, rate, grad_scale, changed));
}

/* ---- which and where ------------------------------------------------------------------------- */

/* The dim to shard over `ranks`. */
static int dim_of(const sherd_tensor *p, int64_t ranks)
{
    int largest = 0;

    for (int d = 1; d < p->ndim; d++)
        largest = p->shape[d] > p->shape[largest] ? d : largest;
    return p->shape[0] >= ranks ? 0 : largest;
}

static bool is_parted(const sherd__optimized *item, int axis)
{
    const sherd_tensor *p = item->p;
    const sherd_layout *now = item->part ? item->part : p->layout;

    return now && p->ndim > 0 && !item->whole &&
           sherd_mesh_extent(sherd_layout_mesh(now), axis) > 1 &&
           sherd_layout_placement(now, axis).kind == SHERD_REPLICATE;
}

/* State that there is, in the new layout: a slice of it, without communication. */
static bool move_state(const sherd_optimizer *o, sherd__optimized *item, const sherd_layout *part)
{
    sherd_tensor *moved[SHERD__OPTIMIZER_STEPS] = {NULL};

    if (item->tensor[SHERD__OPTIMIZER_EXACT] && !sherd__optimizer_refresh(item, NULL))
        return false;
    for (int i = 0; i < SHERD__OPTIMIZER_STEPS; i++)
        if (item->tensor[i] &&
            sherd_tensor_failed(moved[i] = sherd__copied_to(item->tensor[i], part)))
            return false;
    for (int i = 0; i < SHERD__OPTIMIZER_STEPS; i++) {
        if (!moved[i])
            continue;
        sherd_tensor_release(item->tensor[i]);
        item->tensor[i] = sherd_tensor_retain(moved[i]);
        moved[i]->storage->family = o->family ? o->family + 1 : 0;
        sherd__serve(moved[i]->storage, SHERD_MEMORY_OPTIMIZERS);
    }
    sherd__layout_set(&item->part, part);
    return true;
}

static sherd_status part(const sherd_optimizer *o, sherd__optimized *item, int axis)
{
    const sherd_mesh *mesh = o->mesh;
    const sherd__diag *diag = sherd__world_diag(o->world);
    const sherd_layout *now = item->part ? item->part : item->p->layout, *to;
    int dim = dim_of(item->p, sherd_mesh_extent(mesh, axis));
    sherd_status status;

    sherd_scope_begin(o->world);
    status = sherd_layout_with(&to, now, mesh, axis, sherd_shard(dim));
    if (!status && !move_state(o, item, to))
        status = diag->status ? diag->status : SHERD_ENOMEM;
    sherd_scope_end(o->world);
    return status;
}

sherd_status sherd_optimizer_shard(sherd_optimizer *optimizer, const char *axis)
{
    static const char function[] = "sherd_optimizer_shard";
    const sherd__argument need[] = {{"optimizer", optimizer}, {"axis", axis}, {NULL, NULL}};
    sherd_optimizer *o = optimizer;
    sherd__diag *diag = sherd__world_diag(o ? o->world : NULL);
    sherd_status status = sherd__require(diag, function, need);
    uint64_t identity;

    if (status)
        return status;
    if (!o->mesh && sherd__load_kind_of(o->module) == SHERD__LOAD_TOGETHER)
        return SHERD_OK; /* this rank is outside of the mesh on which they are distributed */
    if (!o->mesh)
        return sherd__fail(diag, SHERD_EINVAL, "%s: no parameter is distributed", function);
    int number = sherd_mesh_find_axis(o->mesh, axis);
    if (number < 0)
        return sherd__fail(diag, SHERD_EINVAL, "%s: the mesh (%s) has no axis \"%.60s\"", function,
                           sherd_mesh_text(o->mesh), axis);
    if (sherd__world_device(o->world))
        return sherd__fail(diag, SHERD_ENOTSUP, "%s: on GPUs state has the layout of its parameter",
                           function);
    for (int i = 0; i < o->count && !status; i++)
        if (is_parted(&o->item[i], number))
            status = part(o, &o->item[i], number);
    if (!status)
        sherd__deed_add(o->mesh, function, (uint64_t)number, &identity);
    return status;
}
