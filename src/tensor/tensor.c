/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors and their storage: creating and viewing. A tensor is one small struct, its storage
 * another, and its data a block of the rank's region, which peers can read. refs.c counts and frees
 * them.
 */
#include "tensor/state.h"

#include <string.h>

#include "base/num.h"
#include "world/doing.h"

/* Allocate memory, or store the description of a deferred tensor. False: failed and reported. */
static bool fill_storage(sherd__storage *storage, bool distributed, const sherd__values *later)
{
    storage->here = true;
    if (!later && sherd__tensors_of(storage->world)->make_there) {
        storage->here = false;
        storage->there = true;
        return sherd__device_furnish(storage);
    }
    if (!later) {
        storage->block = sherd__block_take(storage->world, storage->bytes, distributed);
        return storage->block != NULL;
    }
    storage->later = sherd__alloc(sherd__world_heap(storage->world), 1, sizeof *later);
    if (storage->later)
        *storage->later = *later;
    else
        sherd__fail_doing(storage->world, distributed, SHERD_ENOMEM, "out of memory for a tensor");
    return storage->later != NULL;
}

/*
 * Give a described tensor its storage; `later`: the description if it is deferred, otherwise NULL.
 * On failure the tensor is released and the failure reported.
 */
static sherd_tensor *furnish(sherd__tensors *s, sherd_tensor *t, const sherd__values *later)
{
    sherd_world *world = s->world;
    bool distributed = t->layout != NULL;
    int64_t bytes;

    if (!sherd__mul(t->count, (int64_t)sherd_dtype_bytes(t->dtype), &bytes)) {
        sherd_tensor_release(t);
        sherd__fail_doing(world, distributed, SHERD_ELIMIT, "a tensor of 2^62 bytes or more");
        return NULL;
    }
    t->storage = sherd__stock_take(sherd__world_heap(world), &s->storages, sizeof *t->storage);
    if (!t->storage) {
        sherd_tensor_release(t);
        sherd__fail_doing(world, distributed, SHERD_ENOMEM, "out of memory for a tensor");
        return NULL;
    }
    t->storage->refs = 1;
    t->storage->world = world;
    t->storage->bytes = bytes;
    t->storage->number = ++s->storages_made;
    t->storage->run = s->run;
    if (bytes > 0 && !fill_storage(t->storage, distributed, later)) {
        sherd_tensor_release(t);
        return NULL;
    }
    return t;
}

/* A plain tensor without storage. NULL: failed and reported. */
static sherd_tensor *describe_plain(sherd__tensors *s, sherd_dtype dtype, int ndim,
                                    const int64_t *shape, unsigned varies)
{
    sherd_tensor *t = sherd__tensor_create(s);

    if (!t) {
        sherd__fail_doing(s->world, false, SHERD_ENOMEM, "out of memory for a tensor");
        return NULL;
    }
    t->dtype = dtype;
    t->ndim = ndim;
    t->varies = varies;
    for (int d = 0; d < ndim; d++)
        t->shape[d] = t->local[d] = shape[d];
    if (!sherd__count(shape, ndim, &t->count)) {
        sherd_tensor_release(t);
        sherd__fail_doing(s->world, false, SHERD_ELIMIT, "a tensor of 2^62 elements or more");
        return NULL;
    }
    if (t->count > 0) /* see sherd__layout_holding */
        sherd__row_major(ndim, t->local, t->stride);
    return t;
}

sherd_tensor *sherd__loose_plain(sherd_world *world, sherd_dtype dtype, int ndim,
                                 const int64_t *shape, unsigned varies)
{
    sherd__tensors *s = sherd__tensors_of(world);
    sherd_tensor *t = describe_plain(s, dtype, ndim, shape, varies);
    return t ? furnish(s, t, NULL) : NULL;
}

/* What this rank holds: nothing outside the mesh, also of a scalar. */
static void set_local(sherd_tensor *t, const sherd_layout *layout)
{
    const sherd__holding *holding = sherd__layout_holding(layout);

    sherd__layout_set(&t->layout, layout);
    t->count = holding->count;
    memcpy(t->local, holding->box.size, sizeof t->local);
    memcpy(t->stride, holding->stride, sizeof t->stride);
    t->ledger.made = sherd__deed_count(layout->spec.mesh); /* until it is noted */
}

sherd_tensor *sherd__loose_on(const sherd_layout *layout, sherd_dtype dtype)
{
    const sherd__layout_spec *spec = &layout->spec;
    sherd__tensors *s = sherd__tensors_of(sherd__space_world(layout->space));
    sherd_tensor *t = sherd__tensor_create(s);

    if (!t) {
        sherd__fail_doing(s->world, true, SHERD_ENOMEM, "out of memory for a tensor");
        return NULL;
    }
    t->dtype = dtype;
    t->ndim = spec->ndim;
    memcpy(t->shape, spec->shape, sizeof t->shape);
    set_local(t, layout);
    return furnish(s, t, NULL);
}

sherd_tensor *sherd__new_plain(sherd_world *world, sherd_dtype dtype, int ndim,
                               const int64_t *shape, unsigned varies)
{
    sherd_tensor *t = sherd__loose_plain(world, dtype, ndim, shape, varies);
    return t && sherd__scope_add(t) ? t : sherd__failed(world);
}

sherd_tensor *sherd__new_later(sherd_world *world, int ndim, const int64_t *shape,
                               const sherd__values *values)
{
    sherd__tensors *s = sherd__tensors_of(world);
    sherd_tensor *t = describe_plain(s, values->dtype, ndim, shape, 0);

    t = t ? furnish(s, t, values) : NULL;
    return t && sherd__scope_add(t) ? t : sherd__failed(world);
}

sherd_tensor *sherd__new_on(const sherd_layout *layout, sherd_dtype dtype)
{
    sherd_tensor *t = sherd__loose_on(layout, dtype);
    return t && sherd__scope_add(t) ? t : sherd__failed(sherd__space_world(layout->space));
}

sherd_tensor *sherd__new_like(const sherd_tensor *t, sherd_dtype dtype)
{
    return t->layout ? sherd__new_on(t->layout, dtype)
                     : sherd__new_plain(t->world, dtype, t->ndim, t->shape, t->varies);
}

sherd_tensor *sherd__detached(sherd_tensor *t)
{
    sherd_tensor *view;

    if (!t->storage || !(view = sherd__tensor_create(sherd__tensors_of(t->world))))
        return NULL;
    view->storage = t->storage;
    view->storage->refs++;
    sherd__layout_set(&view->layout, t->layout);
    sherd__layout_set(&view->was, t->was);
    view->dtype = t->dtype;
    view->ndim = t->ndim;
    memcpy(view->shape, t->shape, sizeof view->shape);
    memcpy(view->local, t->local, sizeof view->local);
    memcpy(view->stride, t->stride, sizeof view->stride);
    view->offset = t->offset;
    view->count = t->count;
    view->strided = t->strided;
    view->autograd.of_leaf = t->autograd.of_leaf;
    view->varies = t->varies;
    view->ledger.made = t->ledger.made;
    view->ledger.identity = t->ledger.identity;
    view->lost = t->lost;
    /* ledger.born stays 0: sherd__note sets it when the view is noted. */
    return view;
}

sherd_tensor *sherd__new_view(sherd_tensor *t)
{
    sherd_tensor *view;

    if (!t->storage)
        return t;
    view = sherd__detached(t);
    if (!view) {
        sherd__fail_doing(t->world, t->layout != NULL, SHERD_ENOMEM, "out of memory for a tensor");
        return sherd__failed(t->world);
    }
    return sherd__scope_add(view) ? view : sherd__failed(t->world);
}

/* ---- images --------------------------------------------------------------------------------- */

sherd_tensor *sherd__image_of(sherd_tensor *t, sherd_dtype dtype)
{
    sherd__storage *image = t->storage->image;
    sherd_tensor *view;

    if (!image || t->storage->image_dtype != dtype || !sherd__covers_storage(t))
        return NULL;
    view = sherd__new_view(t);
    if (!view->storage)
        return view;
    sherd__storage_release(sherd__tensors_of(t->world), view->storage);
    view->storage = image;
    image->refs++;
    view->dtype = dtype;
    view->ledger.made = view->ledger.identity = 0;
    view->autograd.of_leaf = false;
    sherd__layout_set(&view->was, NULL);
    if (view->count > 0)
        sherd__row_major(view->ndim, view->local, view->stride);
    view->strided = false;
    return view;
}

void sherd__keep_image(sherd_tensor *t, sherd_tensor *copy)
{
    sherd__storage *of = t->storage;

    if (!sherd__covers_storage(t) || !sherd__covers_storage(copy) || of->image == copy->storage)
        return;
    sherd__drop_image(of);
    of->image = copy->storage;
    of->image->refs++;
    of->image_dtype = copy->dtype;
}

sherd_tensor *sherd_mark_equal(sherd_tensor *t)
{
    if (sherd_tensor_failed(t))
        return t;
    if (t->layout)
        return sherd__fail_tensor(t->world, true, SHERD_EINVAL,
                                  "sherd_mark_equal: %s is distributed: only a plain tensor can be "
                                  "said to be equal everywhere",
                                  sherd_tensor_text(t));
    t->varies = 0;
    return t;
}
