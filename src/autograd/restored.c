/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was saved, restored: unpacked by a hook, or moved again, by itself or with all that was
 * gathered in one call. Such a group counts what is moved, not those that are restored, so that all
 * ranks move the same even if one of them keeps a part of the graph alive.
 *
 * When the first tensor of a group is used, the group that this backward needs next is begun. It is
 * found in the list of nodes that are to be run, which is the same on all ranks, whatever else they
 * keep alive. So what lies ahead is one group at most.
 */
#include "autograd/group.h"
#include "layout/shape.h"
#include "world/doing.h"

#include <string.h>

static bool is_like(const sherd__kept *k, const sherd_tensor *t)
{
    return t->world == k->world && t->layout == k->layout && t->dtype == k->dtype &&
           sherd__same_shape(t->ndim, t->shape, k->ndim, k->shape);
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
        sherd__wrong_hook(k, "unpack", t);
    else if ((t = laid_again(k, t))->storage)
        put_restored(k, t);
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    return k->restored ? k->restored : sherd__failed(world);
}

/* A leaf that was written since is moved like the others, but restores nothing. */
static bool is_written(const sherd__kept *base)
{
    return base->kept && base->kept->storage->version != base->version;
}

static bool move_all(sherd__regathered *g, sherd_tensor **out, const sherd_layout **to, bool begin,
                     const char *name)
{
    sherd_tensor **from = out + g->count;

    for (int i = 0; i < g->count; i++) {
        sherd__kept *base = g->member[i].base;
        sherd_tensor *t = base->kept ? base->kept : sherd__restored(base, name);
        from[i] = sherd__converted(t, g->member[i].dtype);
        to[i] = g->member[i].layout;
    }
    sherd__move_list(out, from, to, g->count, begin);
    return !sherd_tensor_failed(out[0]);
}

static bool restore(sherd__regathered *g, bool begin, const char *name)
{
    sherd__heap *heap = sherd__world_heap(g->world);
    sherd_tensor **both = sherd__alloc(heap, 2 * (size_t)g->count, sizeof(sherd_tensor *));
    const sherd_layout **to = sherd__alloc(heap, (size_t)g->count, sizeof *to);
    bool good = both && to;

    if (!good)
        sherd__raise(g->world, SHERD_ENOMEM, "%s: out of memory", name);
    good = good && move_all(g, both, to, begin, name);
    for (int i = 0; i < g->count && good; i++) {
        sherd__kept *k = g->member[i].kept;
        if (k && !k->restored && !is_written(k->base))
            k->restored = sherd_tensor_retain(both[i]);
    }
    sherd__free(heap, both);
    sherd__free(heap, to);
    return good;
}

bool sherd__group_restore(sherd__regathered *g, const char *name)
{
    return restore(g, false, name);
}

/* What a node has saved of another group than the one of `call`. */
static const sherd__kept *of_other_group(const sherd_node *node, uint64_t call)
{
    for (int i = 0; node && i < node->slots; i++)
        for (const sherd__kept *k = node->slot[i]; k; k = k->base)
            if (k->group && k->group->call != call)
                return k;
    return NULL;
}

void sherd__group_used(sherd__pass *p, const sherd__regathered *g, const char *name)
{
    const sherd__kept *next = NULL;
    int k = p->turn;

    if (!g->ahead || p->used == g->call || p->part != SHERD__WHOLE || p->retains || p->only)
        return;
    p->used = g->call;
    for (; k < p->nodes && !next; k++)
        next = of_other_group(p->node[k], g->call);
    if (!next || next->restored || !next->group->ahead || p->node[k - 1]->replay ||
        sherd__alarmed(p->world)) /* what is run again gathers for itself */
        return;
    sherd__where where = sherd__where_set(p->world, sherd__where_at(p->node[k - 1]->place, true));
    (void)restore(next->group, true, name); /* if it fails, the alarm is raised */
    sherd__where_set(p->world, where);
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
