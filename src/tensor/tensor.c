/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors and their storage: creating, counting, viewing, freeing, and getters. A tensor is one
 * small struct, its storage another, and its data a block of the rank's region, which peers can
 * read.
 */
#include "tensor/state.h"

#include <string.h>

#include "base/num.h"
#include "world/doing.h"

static void storage_release(sherd__tensors *s, sherd__storage *storage);

void sherd__drop_image(sherd__storage *storage)
{
    sherd__storage *image = storage ? storage->image : NULL;

    if (!image)
        return;
    storage->image = NULL;
    storage_release(sherd__tensors_of(image->world), image);
}

/* ---- what it is for -------------------------------------------------------------------------- */

static void serve(sherd__storage *storage, sherd_memory_use use)
{
    storage->serves = use;
    sherd__block_serves(storage->world, storage->block, use);
}

void sherd__serve(sherd__storage *storage, sherd_memory_use use)
{
    if (use > storage->serves)
        serve(storage, use);
}

void sherd__serve_no_more(sherd__storage *storage, sherd_memory_use use)
{
    if (storage->serves == use)
        serve(storage, SHERD_MEMORY_OTHER);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void storage_release(sherd__tensors *s, sherd__storage *storage)
{
    if (!storage || --storage->refs > 0)
        return;
    sherd__heap *heap = sherd__world_heap(s->world);
    if (storage->image)
        sherd__drop_image(storage);
    sherd__block_give(storage->world, storage->block);
    if (storage->device)
        sherd__device_give(sherd__world_device(storage->world), storage->device);
    sherd__free(heap, storage->later);
    sherd__stock_give(heap, &s->storages, storage);
}

void sherd__refcounted_release(sherd__refcounted *object)
{
    if (object && --object->refs == 0)
        object->destroy(object);
}

/* An empty struct with one reference, in the list of all tensors. */
static sherd_tensor *create(sherd__tensors *s)
{
    sherd_tensor *t = sherd__stock_take(sherd__world_heap(s->world), &s->structs, sizeof *t);

    if (!t)
        return NULL;
    t->refs = 1;
    t->scope = -1;
    t->world = s->world;
    t->next = s->all;
    if (s->all)
        s->all->previous = t;
    s->all = t;
    return t;
}

void sherd__tensor_strip(sherd__tensors *s, sherd_tensor *t)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    sherd__refcounted *node = t->autograd.node, *watch = t->autograd.watch;
    sherd_tensor *grad = t->autograd.grad, *compact = t->compact,
                 *moved_from = t->autograd.moved_from, *placed_as = t->placed_as;
    sherd__storage *storage = t->storage;

    if (t->autograd.saved && t->autograd.forget)
        t->autograd.forget(t);
    sherd__free(heap, t->text);
    t->text = NULL;
    t->autograd.node = t->autograd.watch = NULL;
    t->autograd.grad = t->compact = t->autograd.moved_from = t->placed_as = NULL;
    t->storage = NULL;
    sherd__layout_set(&t->layout, NULL);
    sherd__layout_set(&t->was, NULL);
    sherd__refcounted_release(node);
    sherd__refcounted_release(watch);
    if (grad)
        sherd_tensor_release(grad);
    if (compact)
        sherd_tensor_release(compact);
    if (moved_from)
        sherd_tensor_release(moved_from);
    if (placed_as)
        sherd_tensor_release(placed_as);
    storage_release(s, storage);
}

static void unlink_from_all(sherd__tensors *s, sherd_tensor *t)
{
    *(t->previous ? &t->previous->next : &s->all) = t->next;
    if (t->next)
        t->next->previous = t->previous;
}

/* A chain of moves is released in a loop, not recursively. */
void sherd_tensor_release(sherd_tensor *t)
{
    sherd__tensors *s = t ? sherd__tensors_of(t->world) : NULL;

    while (t && t != &s->failed && --t->refs == 0) {
        sherd_tensor *source = t->autograd.moved_from;
        t->autograd.moved_from = NULL;
        sherd__scope_forget(t);
        sherd__tensor_strip(s, t);
        unlink_from_all(s, t);
        sherd__stock_give(sherd__world_heap(s->world), &s->structs, t);
        t = source;
    }
}

sherd_tensor *sherd_tensor_retain(sherd_tensor *t)
{
    if (t && t->storage)
        t->refs++;
    return t;
}

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
    sherd_tensor *t = create(s);

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
    sherd_tensor *t = create(s);

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

    if (!t->storage || !(view = create(sherd__tensors_of(t->world))))
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

bool sherd__covers_storage(const sherd_tensor *t)
{
    return t->offset == 0 && sherd__is_contiguous(t) && sherd__local_bytes(t) == t->storage->bytes;
}

sherd_tensor *sherd__image_of(sherd_tensor *t, sherd_dtype dtype)
{
    sherd__storage *image = t->storage->image;
    sherd_tensor *view;

    if (!image || t->storage->image_dtype != dtype || !sherd__covers_storage(t))
        return NULL;
    view = sherd__new_view(t);
    if (!view->storage)
        return view;
    storage_release(sherd__tensors_of(t->world), view->storage);
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

/* ---- what a tensor says of itself ----------------------------------------------------------- */

sherd_world *sherd_tensor_world(const sherd_tensor *t)
{
    return t ? t->world : NULL;
}

sherd_dtype sherd_tensor_dtype(const sherd_tensor *t)
{
    return t ? t->dtype : SHERD_DTYPE_NONE;
}

int sherd_tensor_ndim(const sherd_tensor *t)
{
    return t ? t->ndim : 0;
}

const int64_t *sherd_tensor_shape(const sherd_tensor *t)
{
    return t ? t->shape : NULL;
}

int64_t sherd_tensor_count(const sherd_tensor *t)
{
    int64_t count = 0;

    if (!sherd_tensor_failed(t))
        sherd__count(t->shape, t->ndim, &count);
    return count;
}

const sherd_layout *sherd_tensor_layout(const sherd_tensor *t)
{
    return t ? t->layout : NULL;
}

sherd_box sherd_tensor_box(const sherd_tensor *t)
{
    sherd_box box = {.ndim = sherd_tensor_ndim(t)};

    if (!t)
        return box;
    if (t->layout)
        return sherd_layout_box(t->layout, sherd_world_rank(t->world), 0);
    memcpy(box.size, t->shape, sizeof box.size);
    return box;
}

int64_t sherd_tensor_offset(const sherd_tensor *t, int dim)
{
    return dim >= 0 && dim < sherd_tensor_ndim(t) ? sherd_tensor_box(t).offset[dim] : 0;
}

int64_t sherd_tensor_size(const sherd_tensor *t, int dim)
{
    return dim >= 0 && dim < sherd_tensor_ndim(t) ? t->local[dim] : 0;
}

int64_t sherd_tensor_local_count(const sherd_tensor *t)
{
    return sherd_tensor_failed(t) ? 0 : t->count;
}

bool sherd_tensor_failed(const sherd_tensor *t)
{
    return !t || sherd__is_failed(t);
}

const char *sherd_tensor_text(sherd_tensor *t)
{
    enum { PLAIN_BYTES = 256 }; /* eight sizes of at most twenty digits */

    if (!t)
        return "";
    if (!t->storage)
        return "the failed tensor";
    /* Neither dtype nor shape nor layout of a tensor that somebody has ever change. */
    if (t->text)
        return t->text;
    size_t room = t->layout ? strlen(sherd_layout_text(t->layout)) + 16 : PLAIN_BYTES;
    t->text = sherd__alloc(sherd__world_heap(t->world), room, 1);
    if (!t->text)
        return sherd_dtype_name(t->dtype);
    if (t->layout)
        sherd__layout_describe(t->layout, t->dtype, t->text, room);
    else
        sherd__shape_describe(t->ndim, t->shape, t->dtype, t->text, room);
    return t->text;
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

bool sherd__coordinate(const sherd_tensor *t, int64_t *coordinate)
{
    return t->layout &&
           sherd_mesh_coordinate(t->layout->spec.mesh, sherd_world_rank(t->world), coordinate);
}

bool sherd__is_contiguous(const sherd_tensor *t)
{
    int64_t stride = 1;

    if (t->count == 0)
        return true;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->local[d] != 1 && t->stride[d] != stride)
            return false;
        stride *= t->local[d];
    }
    return true;
}
