/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observers of gradients: hooks, and retained gradients of tensors that are not leaves. They hang
 * on the leaf, or on the node that made the tensor: so they are there in backward, however long the
 * tensor itself lives, and tensors without observers pay nothing. A removed hook is freed at once,
 * or, while hooks run, after them.
 */
#include "autograd/node.h"
#include "tensor/state.h"

#include <limits.h>

/*
 * A destroy function may remove other hooks: so all are taken out before the first is called. It
 * may free the watch too.
 */
void sherd__watch_sweep(sherd__watch *watch, bool all)
{
    sherd_world *world = watch->world;
    sherd__heap *heap = sherd__world_heap(world);
    sherd__grad_hook **list = &watch->hook, *gone = NULL, **end = &gone;

    while (*list) {
        sherd__grad_hook *hook = *list;
        if (hook->id && !all) {
            list = &hook->next;
            continue;
        }
        *list = hook->next;
        hook->next = NULL;
        *end = hook;
        end = &hook->next;
    }
    while (gone) {
        sherd__grad_hook *hook = gone;
        gone = hook->next;
        sherd__give_back(world, hook->payload, hook->destroy);
        sherd__free(heap, hook);
    }
}

static void watch_destroy(sherd__refcounted *head)
{
    sherd__watch *watch = (sherd__watch *)head;

    sherd__watch_sweep(watch, true);
    sherd_tensor_release(watch->retained);
    sherd_tensor_release(watch->sum);
    sherd__free(sherd__world_heap(watch->world), watch);
}

/* Where the watch of a tensor is stored. */
static sherd__refcounted **place_of(sherd_tensor *t)
{
    sherd_node *node = (sherd_node *)t->autograd.node;

    return node ? (sherd__refcounted **)(void *)&node->out[t->autograd.output].watch
                : &t->autograd.watch;
}

sherd__watch *sherd__watch_of(const sherd_tensor *t)
{
    const sherd_node *node = (const sherd_node *)t->autograd.node;

    return node ? node->out[t->autograd.output].watch : (sherd__watch *)t->autograd.watch;
}

sherd__watch *sherd__watch_make(sherd_tensor *t, const char *function)
{
    sherd__watch *watch = sherd__watch_of(t);

    if (watch)
        return watch;
    watch = sherd__alloc(sherd__world_heap(t->world), 1, sizeof *watch);
    if (!watch) {
        sherd__raise(t->world, SHERD_ENOMEM, "%s: out of memory", function);
        return NULL;
    }
    watch->head.refs = 1;
    watch->head.destroy = watch_destroy;
    watch->world = t->world;
    *place_of(t) = &watch->head;
    return watch;
}

/* ---- hooks ---------------------------------------------------------------------------------- */

/* Why a tensor has no gradient to observe; NULL = it has. The caller raises a failed tensor. */
static const char *fault_of(const sherd_tensor *t)
{
    return t->autograd.requires_grad ? NULL : "no gradient flows into it";
}

/* What `destroy` does to scopes is fenced, where there is a world. */
static void give_back(sherd_world *world, void *payload, void (*destroy)(void *payload))
{
    if (world)
        sherd__give_back(world, payload, destroy);
    else if (destroy)
        destroy(payload);
}

/* One that no hook of it has: only after 2^31 - 1 others does it come again. */
static int next_id(const sherd__watch *watch)
{
    int id = (int)(watch->hooked % INT_MAX) + 1;

    for (const sherd__grad_hook *hook = watch->hook; hook;) {
        bool taken = hook->id == id;
        id = taken ? id % INT_MAX + 1 : id;
        hook = taken ? watch->hook : hook->next;
    }
    return id;
}

sherd_status sherd_tensor_hook(int *id, sherd_tensor *t, sherd_grad_hook run, void *payload,
                               void (*destroy)(void *payload))
{
    const sherd__argument need[] = {{"t", t}, {"hook", (const void *)(uintptr_t)run}, {NULL, NULL}};
    sherd_world *world = sherd_tensor_world(t);
    sherd__grad_hook *hook, **end;
    sherd__watch *watch;

    if (id)
        *id = 0;
    if (sherd__require(world ? sherd__world_diag(world) : NULL, "sherd_tensor_hook", need)) {
        give_back(world, payload, destroy);
        return SHERD_EINVAL;
    }
    if (sherd_tensor_failed(t) || fault_of(t)) {
        give_back(world, payload, destroy);
        return sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "sherd_tensor_hook: %s: %s",
                           sherd_tensor_text(t),
                           sherd_tensor_failed(t) ? "it has failed" : fault_of(t));
    }
    hook = sherd__alloc(sherd__world_heap(world), 1, sizeof *hook);
    watch = hook ? sherd__watch_make(t, "sherd_tensor_hook") : NULL;
    if (!watch) {
        sherd__free(sherd__world_heap(world), hook);
        give_back(world, payload, destroy);
        return sherd__no_memory(sherd__world_diag(world), "sherd_tensor_hook");
    }
    *hook = (sherd__grad_hook){NULL, next_id(watch), watch->hooked++, run, payload, destroy};
    for (end = &watch->hook; *end;)
        end = &(*end)->next;
    *end = hook;
    if (id)
        *id = hook->id;
    return SHERD_OK;
}

void sherd_tensor_unhook(sherd_tensor *t, int id)
{
    sherd__watch *watch = t && t->storage ? sherd__watch_of(t) : NULL;

    if (!watch || id <= 0)
        return;
    for (sherd__grad_hook *hook = watch->hook; hook; hook = hook->next)
        if (hook->id == id)
            hook->id = 0;
    if (!watch->running)
        sherd__watch_sweep(watch, false);
}

/* ---- what is no leaf ------------------------------------------------------------------------ */

sherd_tensor *sherd_retain_grad(sherd_tensor *t)
{
    sherd__watch *watch;

    if (sherd_tensor_failed(t))
        return t;
    if (fault_of(t))
        return sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                                  "sherd_retain_grad: %s: %s", sherd_tensor_text(t), fault_of(t));
    if (!t->autograd.node)
        return t;
    watch = sherd__watch_make(t, "sherd_retain_grad");
    if (!watch)
        return sherd__failed(t->world);
    watch->retains = true;
    return t;
}
