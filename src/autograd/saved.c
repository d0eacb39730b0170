/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved tensors: what is kept of them; restored.c brings it back. A tensor is kept once however
 * many operators save it. What is kept is a view without a node, so an operator may save its own
 * result. If a tensor is the result of a move that made more copies than its source, the source is
 * kept and moved again: that is how gathered parameters and activations cost no memory between
 * forward and backward.
 */
#include "autograd/node.h"

#include "world/doing.h"

#include <string.h>

/* ---- hooks ---------------------------------------------------------------------------------- */

/* Pushed in the place of hooks that are refused, so that the pop that goes with it has its own. */
static const sherd_saved_hooks no_hooks;

void sherd_saved_hooks_push(sherd_world *world, const sherd_saved_hooks *hooks)
{
    if (!world)
        return;

    sherd__tape *tape = sherd__tape_of(world);
    if (!hooks || (hooks->pack && !hooks->unpack)) {
        sherd__raise(world, SHERD_EINVAL, "sherd_saved_hooks_push: %s is NULL",
                     hooks ? "unpack" : "hooks");
        hooks = &no_hooks;
    }
    if (tape->unpushed == 0) {
        sherd_saved_hooks *list = sherd__reserve(sherd__world_heap(world), tape->hooks,
                                                 tape->hooked, &tape->hook_room, 8, sizeof *list);
        if (list)
            tape->hooks = list;
        else
            sherd__raise(world, SHERD_ENOMEM, "sherd_saved_hooks_push: out of memory");
    }
    if (tape->unpushed > 0 || tape->hooked == tape->hook_room)
        tape->unpushed++;
    else
        tape->hooks[tape->hooked++] = *hooks;
}

void sherd_saved_hooks_pop(sherd_world *world)
{
    if (!world)
        return;

    sherd__tape *tape = sherd__tape_of(world);
    if (tape->unpushed > 0)
        tape->unpushed--;
    else if (tape->hooked > 0)
        tape->hooked--;
}

int64_t sherd_saved_bytes(const sherd_world *world)
{
    const sherd__tape *tape = world ? sherd__world_state(world, SHERD__ROOM_AUTOGRAD) : NULL;
    return tape ? tape->saved_bytes : 0;
}

/* ---- keeping -------------------------------------------------------------------------------- */

static void hold(sherd__kept *k, sherd_tensor *kept)
{
    sherd__storage *storage = kept->storage;

    k->kept = kept;
    k->version = storage->version;
    /* A leaf's storage lives anyway: the tape holds nothing for it. */
    k->counted = !storage->leaf;
    if (!k->counted || storage->saved++ > 0)
        return;
    sherd__tape_of(k->world)->saved_bytes += storage->bytes;
    sherd__serve(storage, SHERD_MEMORY_SAVED);
}

static void let_go(sherd__kept *k)
{
    sherd_tensor *kept = k->kept;

    k->kept = NULL;
    if (!kept)
        return;
    if (k->counted && kept->storage && --kept->storage->saved == 0) {
        sherd__tape_of(k->world)->saved_bytes -= kept->storage->bytes;
        sherd__serve_no_more(kept->storage, SHERD_MEMORY_SAVED);
    }
    sherd_tensor_release(kept);
}

static void kept_destroy(sherd__refcounted *head)
{
    sherd__kept *k = (sherd__kept *)head;

    if (k->owner) {
        k->owner->autograd.saved = NULL;
        k->owner->autograd.forget = NULL;
    }
    let_go(k);
    sherd_tensor_release(k->restored);
    sherd__layout_set(&k->layout, NULL);
    sherd__group_leave(k);
    if (k->base)
        sherd__refcounted_release(&k->base->head);
    sherd__free(sherd__world_heap(k->world), k);
}

/* The tensor is freed, and what is kept of it lives on. */
static void forget(sherd_tensor *t)
{
    ((sherd__kept *)t->autograd.saved)->owner = NULL;
    t->autograd.saved = NULL;
    t->autograd.forget = NULL;
}

/*
 * Whether to keep the source of a move instead of its result. All ranks must decide alike, because
 * all take part in moving it again: so the bytes of all ranks together are compared, not this
 * rank's.
 */
static bool keeps_source(const sherd_tensor *t)
{
    const sherd_tensor *source = t->autograd.moved_from;

    return source && source->storage && source->layout && t->layout &&
           source->layout->pending_axes == 0 && source->layout->shards > t->layout->shards &&
           source->storage->version == t->autograd.moved_version &&
           t->storage->version == t->autograd.moved_as;
}

/* Decided alike on all ranks, as above, since all must recompute the same. */
bool sherd__keeps_free(const sherd_tensor *t)
{
    return t->autograd.of_leaf || (keeps_source(t) && sherd__keeps_free(t->autograd.moved_from));
}

/* The text of what was saved, for messages: the tensor may be gone, and pack may keep another. */
static void describe_saved(const sherd__kept *k, char *out, size_t room)
{
    if (k->layout)
        sherd__layout_describe(k->layout, k->dtype, out, room);
    else
        sherd__shape_describe(k->ndim, k->shape, k->dtype, out, room);
}

void sherd__wrong_hook(const sherd__kept *k, const char *which, sherd_tensor *other)
{
    char saved[SHERD_ERROR_BYTES];

    describe_saved(k, saved, sizeof saved);
    sherd__raise(k->world, SHERD_EINVAL, "a saved-tensor hook: %s returned %.160s%s for %.160s",
                 which, other ? sherd_tensor_text(other) : "NULL",
                 other && other->world != k->world ? " of another world" : "", saved);
}

/* Apply the hooks. Their temporaries are released at once, and nothing that they do is recorded. */
static bool pack(sherd__kept *k, sherd_tensor *t, const sherd_saved_hooks *hooks)
{
    sherd_world *world = k->world;
    bool recording = sherd_set_recording(world, false), good = false;
    sherd_tensor *packed, *kept = NULL;

    int floor = sherd__scope_enter(world);
    k->packed = true;
    k->hooks = *hooks;
    packed = hooks->pack(t, hooks->context, &k->undo);
    sherd__scope_leave(world, floor);
    if (!packed || packed->world != world)
        sherd__wrong_hook(k, "pack", packed);
    else if (!packed->storage)
        sherd__raise_failed(world, "a hook on saved tensors");
    else if (!(kept = sherd__detached(packed)))
        sherd__fail_doing(world, true, SHERD_ENOMEM, "out of memory for a saved tensor");
    if (kept) {
        hold(k, kept);
        good = true;
    }
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    return good;
}

static bool fill(sherd__kept *k, sherd_tensor *t)
{
    const sherd__tape *tape = sherd__tape_of(k->world);
    const sherd_saved_hooks *hooks = tape->hooked ? &tape->hooks[tape->hooked - 1] : NULL;
    sherd_tensor *kept;

    if (keeps_source(t)) {
        k->base = sherd__keep(t->autograd.moved_from);
        return k->base != NULL;
    }
    if (hooks && hooks->pack && !t->autograd.of_leaf) {
        sherd_saved_hooks copy = *hooks;
        return pack(k, t, &copy);
    }
    kept = sherd__detached(t);
    if (!kept) {
        sherd__fail_doing(k->world, true, SHERD_ENOMEM, "out of memory for a saved tensor");
        return false;
    }
    hold(k, kept);
    return true;
}

sherd__kept *sherd__keep(sherd_tensor *t)
{
    sherd__kept *k = (sherd__kept *)t->autograd.saved;

    if (k && k->owner_version == t->storage->version) {
        k->head.refs++;
        return k;
    }
    k = sherd__alloc(sherd__world_heap(t->world), 1, sizeof *k);
    if (!k) {
        sherd__fail_doing(t->world, true, SHERD_ENOMEM, "out of memory for a saved tensor");
        return NULL;
    }
    k->head.refs = 1;
    k->head.destroy = kept_destroy;
    k->world = t->world;
    k->owner_version = t->storage->version;
    sherd__layout_set(&k->layout, t->layout);
    k->dtype = t->dtype;
    k->ndim = t->ndim;
    memcpy(k->shape, t->shape, sizeof k->shape);
    memcpy(k->stride, t->stride, sizeof k->stride);
    k->strided = t->strided;
    if (!fill(k, t)) {
        sherd__refcounted_release(&k->head);
        return NULL;
    }
    /* Written since: nodes that saved it before keep what they have; it is kept anew. */
    if (t->autograd.saved)
        forget(t);
    t->autograd.saved = &k->head;
    t->autograd.forget = forget;
    k->owner = t;
    return k;
}
