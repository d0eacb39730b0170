/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of tensors and of their storage: both are counted, and freed with the last reference. A
 * tensor counts its storage, the node that made it, its gradient, and what it was moved from. Freed
 * structs are kept for the next ones, so that a tensor seldom costs a call of the allocator.
 */
#include "tensor/state.h"

/* ---- tensors --------------------------------------------------------------------------------- */

sherd_tensor *sherd__tensor_create(sherd__tensors *s)
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

sherd_tensor *sherd_tensor_retain(sherd_tensor *t)
{
    if (t && t->storage)
        t->refs++;
    return t;
}

void sherd__refcounted_release(sherd__refcounted *object)
{
    if (object && --object->refs == 0)
        object->destroy(object);
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
    if (t->text)
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
    sherd__storage_release(s, storage);
}

static void unlink_from_all(sherd__tensors *s, sherd_tensor *t)
{
    *(t->previous ? &t->previous->next : &s->all) = t->next;
    if (t->next)
        t->next->previous = t->previous;
}

int sherd__scope_start(const sherd__tensors *s)
{
    return s->scopes ? s->start[s->scopes - 1].tensors : 0;
}

void sherd__scope_forget(sherd_tensor *t)
{
    if (t->scope < 0)
        return;
    sherd__tensors *s = sherd__tensors_of(t->world);
    s->list[t->scope] = NULL;
    t->scope = -1;
    while (s->listed > sherd__scope_start(s) && !s->list[s->listed - 1])
        s->listed--;
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

/* ---- storage --------------------------------------------------------------------------------- */

void sherd__storage_release(sherd__tensors *s, sherd__storage *storage)
{
    if (!storage || --storage->refs > 0)
        return;
    sherd__heap *heap = sherd__world_heap(s->world);
    if (storage->image)
        sherd__drop_image(storage);
    sherd__block_give(storage->world, storage->block);
    if (storage->device)
        sherd__device_give(sherd__world_device(storage->world), storage->device);
    if (storage->later)
        sherd__free(heap, storage->later);
    sherd__stock_give(heap, &s->storages, storage);
}

void sherd__drop_image(sherd__storage *storage)
{
    sherd__storage *image = storage ? storage->image : NULL;

    if (!image)
        return;
    storage->image = NULL;
    sherd__storage_release(sherd__tensors_of(image->world), image);
}

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
