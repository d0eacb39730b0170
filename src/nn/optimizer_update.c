/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update of one parameter: one pass of a kernel over it, its state and the gradient. On GPUs
 * one launch takes many parameters.
 */
#include "nn/optimizer.h"
#include "vector/choose.h"

/* A move may share the storage. */
sherd_tensor *sherd__copied_to(sherd_tensor *t, const sherd_layout *to)
{
    sherd_tensor *moved = sherd__move_to(t, to, false);

    return moved->storage && moved->storage == t->storage ? sherd__copied(moved) : moved;
}

void sherd__optimizer_moved(const sherd_optimizer *o, bool parameters)
{
    if (!o->mesh)
        return;
    sherd__deed_writes(o->mesh, o->family + 1);
    if (parameters)
        sherd__deed_writes(o->mesh, o->family);
}

bool sherd__optimizer_slice(sherd__optimized *item)
{
    sherd_tensor *slice = sherd__copied_to(item->p, item->part);

    item->slice = sherd_tensor_failed(slice) ? NULL : slice;
    return item->slice != NULL;
}

static void *to_write(sherd_tensor *t, const sherd__device *device)
{
    return device ? sherd__device_mutable(t) : sherd__mutable(t);
}

static void convert(sherd_tensor *p, sherd__device *device, sherd_dtype to, sherd_dtype from,
                    void *dst, const void *src)
{
    int64_t each = (int64_t)(sherd_dtype_bytes(to) + sherd_dtype_bytes(from));

    if (sherd__left_out(p->world, "convert", to, 0, p->count * each))
        return;
    if (device)
        sherd__device_convert(device, to, from, p->count, dst, src);
    else
        sherd__convert(sherd__world_kernels(p->world), to, from, p->count, dst, src);
}

static bool refresh(sherd__optimized *item, sherd__device *device)
{
    sherd_tensor *p = sherd__updated(item);
    void *exact = to_write(item->tensor[SHERD__OPTIMIZER_EXACT], device);
    const void *from = device ? sherd__device_data(p) : sherd__data(p);

    if (!exact || !from)
        return false;
    convert(p, device, SHERD_F32, p->dtype, exact, from);
    if (device && !sherd__device_sound(p->world))
        return false;
    item->version = item->p->storage->version;
    return true;
}

bool sherd__optimizer_refresh(sherd__optimized *item, sherd__device *device)
{
    if (item->version == item->p->storage->version)
        return true;
    if (item->slice || !item->part)
        return refresh(item, device);
    sherd_scope_begin(item->p->world);
    bool good = sherd__optimizer_slice(item) && refresh(item, device);
    item->slice = NULL;
    sherd_scope_end(item->p->world);
    return good;
}

void *sherd__optimizer_change(sherd__optimized *item, sherd__device *device)
{
    if (!item->tensor[SHERD__OPTIMIZER_EXACT])
        return to_write(sherd__updated(item), device);
    return sherd__optimizer_refresh(item, device)
               ? to_write(item->tensor[SHERD__OPTIMIZER_EXACT], device)
               : NULL;
}

bool sherd__optimizer_round(sherd__optimized *item, sherd__device *device, const void *changed)
{
    sherd_tensor *p = sherd__updated(item);
    void *to;

    if (!item->tensor[SHERD__OPTIMIZER_EXACT])
        return true;
    if (!(to = to_write(p, device)))
        return false;
    convert(p, device, p->dtype, SHERD_F32, to, changed);
    item->version = item->p->storage->version;
    return true;
}

/* A rank outside the mesh has nothing to count with. */
bool sherd__optimizer_count(sherd__optimized *item, sherd__update *u)
{
    sherd_tensor *steps = item->tensor[SHERD__OPTIMIZER_STEPS];
    int64_t *n = steps->count ? sherd__mutable(steps) : NULL;

    item->counted = true;
    u->steps = n ? ++*n : steps->count == 0;
    return u->steps != 0;
}

/* Whether a count of steps, which was loaded maybe, can be counted on. */
static bool has_count(const sherd_optimizer *o, const sherd__optimized *item)
{
    sherd_tensor *steps = item->tensor[SHERD__OPTIMIZER_STEPS];
    const int64_t *n = steps && steps->count ? sherd__data(steps) : NULL;
    char name[SHERD__NAME_TEXT];

    if (!n || (*n >= 0 && *n < INT64_MAX))
        return true;
    sherd__raise(o->world, SHERD_EINVAL,
                 "sherd_optimizer_step: the state %s is %lld, which is no number of steps",
                 sherd__optimizer_name(o, item, SHERD__OPTIMIZER_STEPS, name), (long long)*n);
    return false;
}

bool sherd__optimizer_has_state(const sherd_optimizer *o, sherd__optimized *item)
{
    char name[SHERD__NAME_TEXT];

    if (sherd__optimizer_start_state(o, item))
        return false;
    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++)
        if (item->tensor[i] && sherd__is_failed(item->tensor[i])) {
            sherd__raise(o->world, SHERD_EINVAL,
                         "sherd_optimizer_step: the state %s was lost in a step that failed: load "
                         "it (sherd_optimizer_load), or make a new optimizer",
                         sherd__optimizer_name(o, item, i, name));
            return false;
        }
    return has_count(o, item);
}

bool sherd__optimizer_begin(const sherd_optimizer *o, sherd__optimized *item, sherd__update *u)
{
    sherd_tensor *p = item->p, *g = sherd__contiguous(sherd__raw_grad(p));

    *u = (sherd__update){.device = sherd__optimizer_device(o, p),
                         .dtype = p->dtype,
                         .count = sherd__updated(item)->count,
                         .decay = item->decay};
    if (!sherd__optimizer_has_state(o, item))
        return false;
    u->grad = u->device ? sherd__device_data(g) : sherd__data(g);
    if (!u->grad)
        return false;
    for (int i = 0; i < sherd__optimizer_states(o, item); i++)
        if (item->tensor[i] && !(u->state[i] = to_write(item->tensor[i], u->device)))
            return false;
    /* A plain parameter varies as far as it did, or its gradient does. */
    sherd__set_varies(p, p->varies | g->varies);
    u->kernels = sherd__kernels_of(sherd__world_kernels(o->world), p->dtype);
    return true;
}

bool sherd__optimizer_takes(const sherd__optimized *item)
{
    return sherd__raw_grad(item->p) && !item->whole;
}

/* Updates of one dtype on the GPU, which are queued together. */
typedef struct list {
    int count;
    sherd__update update[SHERD__TOGETHER];
    sherd__optimized *item[SHERD__TOGETHER];
} list;

/*
 * Take the step for all items on the list; they have counted it already. False: ended by the alarm.
 */
static bool update_list(const sherd_optimizer *o, list *l)
{
    bool good = true;

    if (l->count == 0)
        return true;
    o->kind->update_there(o, l->update, l->count);
    for (int i = 0; i < l->count; i++)
        good &= sherd__optimizer_round(l->item[i], l->update[i].device, l->update[i].p);
    l->count = 0;
    return good && sherd__device_sound(o->world);
}

/*
 * In a dry world: each element is read and written once, and so is the state. Some operations an
 * element hide behind that.
 */
static bool is_left_out(const sherd_optimizer *o, const sherd__update *u)
{
    sherd_dtype exact = sherd__statistics_dtype(u->dtype);
    int64_t grad = (int64_t)sherd_dtype_bytes(u->dtype), each = (int64_t)sherd_dtype_bytes(exact);

    return sherd__left_out(o->world, "sherd_optimizer_step", exact, (double)u->count,
                           u->count * (grad + 2 * (1 + o->states) * each));
}

/* Update one parameter, or put it on the list; false: ended by the alarm. */
static bool update(const sherd_optimizer *o, list *l, sherd__optimized *item, double rate,
                   double grad_scale)
{
    sherd__update u;

    if (!sherd__optimizer_takes(item))
        return true;
    if (!sherd__optimizer_begin(o, item, &u) || !sherd__optimizer_count(item, &u) ||
        !(u.p = sherd__optimizer_change(item, u.device)))
        return false;
    u.rate = rate * item->rate;
    u.grad_scale = grad_scale;
    if (!u.device) {
        if (!is_left_out(o, &u))
            o->kind->update(o, &u);
        return sherd__optimizer_round(item, NULL, u.p);
    }
    if ((l->count == SHERD__TOGETHER || (l->count && l->update[0].dtype != u.dtype)) &&
        !update_list(o, l))
        return false;
    l->item[l->count] = item;
    l->update[l->count++] = u;
    return true;
}

bool sherd__optimizer_update(const sherd_optimizer *o, sherd__optimized *item, double rate,
                             double grad_scale)
{
    list l = {.count = 0};

    return update(o, &l, item, rate, grad_scale) && update_list(o, &l);
}

bool sherd__optimizer_update_all(const sherd_optimizer *o, double rate, double grad_scale)
{
    list l = {.count = 0};
    bool good = true;

    for (int i = 0; good && i < o->count; i++)
        good = o->item[i].part || update(o, &l, &o->item[i], rate, grad_scale);
    return update_list(o, &l) && good;
}
