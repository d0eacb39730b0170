/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved tensors: what is kept, and how it is restored. A tensor is kept once however many operators
 * save it. What is kept is a view without a node, so an operator may save its own result. If a
 * tensor is the result of a move that made more copies than its source, the source is kept and
 * moved again: that is how gathered parameters and activations cost no memory between forward and
 * backward.
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

static void wrong_hook(const sherd__kept *k, const char *which, sherd_tensor *other)
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
        wrong_hook(k, "pack", packed);
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

void sherd__save(sherd_node *node, int slot, sherd_tensor *t)
{
    if (!node || !t)
        return;
    sherd__assert(sherd_world_rank(node->world), slot >= 0 && slot < node->slots);
    if (sherd__replay_save(node, slot, t))
        return;
    sherd__kept *before = node->slot[slot];
    node->slot[slot] = t->storage ? sherd__keep(t) : NULL;
    if (!node->slot[slot])
        node->broken = true;
    if (before)
        sherd__refcounted_release(&before->head);
}

/* ---- restoring ------------------------------------------------------------------------------ */

static bool is_like(const sherd__kept *k, const sherd_tensor *t)
{
    return t->world == k->world && t->layout == k->layout && t->dtype == k->dtype &&
           t->ndim == k->ndim &&
           memcmp(t->shape, k->shape, (size_t)k->ndim * sizeof *k->shape) == 0;
}

/* If a hook has run a backward that has restored the tensor too, that copy is released. */
static void put_restored(sherd__kept *k, sherd_tensor *t)
{
    sherd_tensor *before = k->restored;

    k->restored = sherd_tensor_retain(t);
    sherd_tensor_release(before);
}

/* Whether strides give the elements of a piece the places [0, count). */
static bool are_dense(const sherd_tensor *t, const int64_t *stride)
{
    int64_t run = 1;

    while (run < t->count) {
        int d = 0;
        while (d < t->ndim && (t->local[d] == 1 || stride[d] != run))
            d++;
        if (d == t->ndim)
            return false;
        run *= t->local[d];
    }
    return run == t->count;
}

/*
 * What a hook made of a view, in the order in which the view lay: read in another order, gradients
 * would have other last bits than without hooks. On GPUs it stays as it is.
 */
static sherd_tensor *laid_again(const sherd__kept *k, sherd_tensor *t)
{
    bool turned = memcmp(t->stride, k->stride, (size_t)t->ndim * sizeof *t->stride) != 0;
    bool moves = turned && are_dense(t, k->stride) && !sherd__is_there(t);
    sherd_tensor *out;

    if (!k->strided || t->strided)
        return t;
    out = moves ? sherd__copied(t) : sherd__new_view(t);
    if (!out->storage)
        return out;
    out->strided = true; /* on all ranks */
    if (!moves)
        return out;
    const void *data = sherd__data(t);
    if (!data)
        return sherd__failed(k->world);
    if (!sherd__is_dry(k->world))
        sherd__copy_box(sherd_dtype_bytes(t->dtype), t->ndim, t->local, sherd__fresh(out),
                        k->stride, data, t->stride);
    memcpy(out->stride, k->stride, sizeof out->stride);
    return out;
}

static sherd_tensor *unpack(sherd__kept *k)
{
    sherd_world *world = k->world;
    bool recording = sherd_set_recording(world, false);
    sherd_tensor *t;

    int floor = sherd__scope_enter(world);
    t = k->hooks.unpack(k->kept, k->hooks.context, k->undo);
    sherd__scope_leave(world, floor);
    if (t && t->world == world && !t->storage)
        sherd__raise_failed(world, "a hook on saved tensors");
    else if (!t || !is_like(k, t))
        wrong_hook(k, "unpack", t);
    else if ((t = laid_again(k, t))->storage)
        put_restored(k, t);
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    return k->restored ? k->restored : sherd__failed(world);
}

static sherd_tensor *move_again(sherd__kept *k, const char *name)
{
    sherd_tensor *source = sherd__restored(k->base, name), *t = source;

    if (source->storage && k->group)
        return sherd__group_restore(k->group, name) ? k->restored : sherd__failed(k->world);
    if (source->storage)
        source = sherd__converted(source, k->dtype);
    t = sherd__move_to(source, k->layout, false);
    if (t->storage)
        put_restored(k, t);
    return t;
}

sherd_tensor *sherd__restored(sherd__kept *k, const char *name)
{
    if (k->restored)
        return k->restored;
    if (k->base)
        return move_again(k, name);
    if (k->kept->storage->version != k->version)
        return sherd__fail_tensor(k->world, true, SHERD_EINVAL,
                                  "%s: its %s was saved for backward and written since: copy it "
                                  "first, or write it after backward",
                                  name, sherd_tensor_text(k->kept));
    return k->packed ? unpack(k) : k->kept;
}

static sherd_tensor *restored_of(sherd_node *node, int slot)
{
    sherd__kept *k = node->slot[slot];
    sherd_tensor *t = k ? sherd__restored(k, node->op->name) : NULL;

    if (k && k->group && node->pass)
        sherd__group_used(node->pass, k->group, node->op->name);
    return t;
}

sherd_tensor *sherd__saved_constant(sherd_node *node, int result)
{
    return restored_of(node, node->ins + result);
}

sherd_tensor *sherd__saved(sherd_node *node, int slot)
{
    sherd_tensor *t = restored_of(node, slot);

    return t && sherd__makes_graph(node->world) ? sherd__linked(node, slot, t) : t;
}

void sherd__saved_used(const sherd_node *node, int k)
{
    for (int i = 0; i < node->slots; i++)
        for (sherd__kept *kept = node->slot[i]; kept; kept = kept->base)
            kept->last = k;
}

void sherd__saved_forget(const sherd_node *node, int k)
{
    for (int i = 0; i < node->slots; i++)
        for (sherd__kept *kept = node->slot[i]; kept; kept = kept->base)
            if (kept->last <= k) {
                sherd_tensor_release(kept->restored);
                kept->restored = NULL;
            }
}

void sherd__saved_again(sherd__kept *k, sherd_tensor *t)
{
    if (!k->base || k->restored || !is_like(k, t))
        return;
    k->restored = sherd__detached(t);
    if (!k->restored)
        sherd__fail_doing(k->world, true, SHERD_ENOMEM, "out of memory for a saved tensor");
}

/* ---- for operators --------------------------------------------------------------------------- */

static bool is_needed(const sherd_op *op, uint64_t bit)
{
    uint64_t all = 0;

    for (int k = 0; k < SHERD_OP_SLOTS; k++)
        all |= op->needs[k];
    return (all & bit) != 0;
}

/*
 * What a backward asks for: a user's operator that `needs` it nowhere would lose a gradient. NULL
 * is right if it is absent, or saved only for gradients that nobody wants.
 */
static sherd_tensor *asked(sherd_node *node, int slot, bool is_there, uint64_t bit)
{
    bool operand = slot < node->ins;

    if (node->slot[slot] || !is_there || sherd__is_own(node->op) || is_needed(node->op, bit))
        return sherd__saved(node, slot);
    return sherd__fail_tensor(node->world, true, SHERD_EINVAL, "%s: %s %d is not in `needs`",
                              node->op->name, operand ? "operand" : "result",
                              operand ? slot : slot - node->ins);
}

sherd_tensor *sherd_node_operand(sherd_node *node, int i)
{
    if (!node || i < 0 || i >= node->ins)
        return NULL;
    return asked(node, i, node->in[i].dtype != SHERD_DTYPE_NONE,
                 SHERD_NEEDS_OPERAND(sherd__slot_number(node->op, i)));
}

sherd_tensor *sherd_node_result(sherd_node *node, int j)
{
    if (!node || j < 0 || j >= SHERD_MAX_RESULTS)
        return NULL;
    return asked(node, node->ins + j, node->op->result[j].name != NULL, SHERD_NEEDS_RESULT(j));
}
