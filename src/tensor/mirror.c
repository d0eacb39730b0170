/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements in a GPU's memory, and tensors that are made there: the other place of a storage
 * (furnish.c).
 */
#include "tensor/state.h"

/* ---- pointers ------------------------------------------------------------------------------- */

/* Any address, if there are no elements. */
static void *first(const sherd_tensor *t)
{
    size_t at = (size_t)t->offset * sherd_dtype_bytes(t->dtype);

    return t->storage->device ? (char *)t->storage->device->data + at
                              : (void *)sherd__tensors_of(t->world);
}

const void *sherd__device_data(sherd_tensor *t)
{
    if (!t->storage || !sherd__make_now(t) || !sherd__bring_there(t->storage))
        return NULL;
    return first(t);
}

void *sherd__device_fresh(sherd_tensor *t)
{
    return first(t);
}

void *sherd__device_mutable(sherd_tensor *t)
{
    if (sherd_tensor_failed(t) || (t->layout && sherd__alarmed(t->world)) || !sherd__make_now(t) ||
        !sherd__bring_there(t->storage))
        return NULL;
    sherd__mark_written(t);
    t->storage->here = t->storage->bytes == 0;
    sherd__await_deed(t);
    return first(t);
}

void *sherd__over(sherd_tensor *t)
{
    sherd__storage *storage = t->storage;

    if (storage->device && storage->bytes > 0) {
        if (!sherd__furnish_here(storage))
            return NULL;
        storage->here = true;
        storage->there = false;
    }
    return sherd__fresh(t);
}

void *sherd__device_over(sherd_tensor *t)
{
    sherd__storage *storage = t->storage;

    if (storage->bytes > 0) {
        if (!sherd__device_furnish(storage))
            return NULL;
        storage->here = false;
        storage->there = true;
    }
    return first(t);
}

/* ---- tensors there --------------------------------------------------------------------------- */

bool sherd__make_there(sherd_world *world, bool there)
{
    sherd__tensors *s = sherd__tensors_of(world);
    bool before = s->make_there;

    s->make_there = there && sherd__world_device(world);
    return before;
}

sherd_tensor *sherd__new_plain_there(sherd_world *world, sherd_dtype dtype, int ndim,
                                     const int64_t *shape, unsigned varies, bool there)
{
    if (!sherd__world_device(world))
        return sherd__new_plain(world, dtype, ndim, shape, varies);
    bool before = sherd__make_there(world, there);
    sherd_tensor *t = sherd__new_plain(world, dtype, ndim, shape, varies);

    sherd__make_there(world, before);
    return t;
}

sherd_tensor *sherd__new_on_there(const sherd_layout *layout, sherd_dtype dtype, bool there)
{
    sherd_world *world = sherd__space_world(layout->space);
    if (!sherd__world_device(world))
        return sherd__new_on(layout, dtype);
    bool before = sherd__make_there(world, there);
    sherd_tensor *t = sherd__new_on(layout, dtype);

    sherd__make_there(world, before);
    return t;
}

sherd_tensor *sherd__new_like_there(const sherd_tensor *t, sherd_dtype dtype, bool there)
{
    return t->layout ? sherd__new_on_there(t->layout, dtype, there)
                     : sherd__new_plain_there(t->world, dtype, t->ndim, t->shape, t->varies, there);
}

bool sherd__is_there(const sherd_tensor *t)
{
    return t->storage && t->storage->device && t->storage->there;
}

bool sherd__is_only_there(const sherd_tensor *t)
{
    return sherd__is_there(t) && !t->storage->here;
}

bool sherd__device_compact(sherd_tensor *t, sherd_tensor *to)
{
    const void *data = sherd__device_data(t);

    if (!data)
        return false;
    if (t->count > 0)
        sherd__device_copy_box(sherd__world_device(t->world), sherd_dtype_bytes(t->dtype), t->ndim,
                               t->local, sherd__device_fresh(to), to->stride, data, t->stride);
    return sherd__device_sound(t->world);
}
