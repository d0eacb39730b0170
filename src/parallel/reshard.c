/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_reshard: what the tape saves between forward and backward, and what is equal on all ranks
 * of an axis, is kept as a shard of one dim. Packing is a local copy of the part that stays;
 * unpacking is one gather along the axis. Nothing is guessed in unpack: what pack did is the `undo`
 * that the tape keeps.
 *
 * The context of the hooks (mesh, axis, dim) is interned and lives as long as the world, because
 * what the tape keeps may outlive the module.
 */
#include "base/hash.h"
#include "parallel/style.h"

typedef struct context {
    struct context *next;
    const sherd_mesh *mesh;
    int axis, root_axis, dim;
} context;

/* The list of a world's contexts, stored as the state of this room. */
typedef struct contexts {
    context *first;
} contexts;

/* ---- packing -------------------------------------------------------------------------------- */

/* The dim to shard; -1 if it is not worth it: no such dim, size 1, or fewer elements than ranks. */
static int dim_of(const context *c, const sherd_tensor *t)
{
    int64_t ranks = c->mesh->extent[c->axis];
    int dim = c->dim < 0 ? c->dim + t->ndim : c->dim;

    if (!sherd__has_fractions(t->dtype))
        return -1;
    if (ranks < 2 || dim < 0 || dim >= t->ndim || t->shape[dim] < 2 ||
        sherd_tensor_count(t) < ranks)
        return -1;
    return dim;
}

/* Whether all ranks of the axis hold the same. */
static bool is_equal_along(const context *c, const sherd_tensor *t)
{
    unsigned own = 1u << c->root_axis;

    if (!t->layout)
        return !(t->varies & own) && sherd__in_mesh(t->world, c->mesh);
    return sherd_layout_mesh(t->layout) == sherd_mesh_root(c->mesh) &&
           !((t->layout->shard_axes | t->layout->pending_axes) & own);
}

/*
 * A plain tensor as replicated on the root mesh. It may differ along other axes, but a move along
 * this one involves only ranks that are equal on all others.
 */
static sherd_tensor *as_replicated(const context *c, sherd_tensor *t)
{
    const sherd_layout *layout;

    if (sherd__replicated(&layout, sherd_mesh_root(c->mesh), t->ndim, t->shape))
        return sherd__fail_diag(t->world, true);
    t = sherd__contiguous(t);
    return sherd_tensor_failed(t) ? t : sherd__global_view(t, layout, "sherd_from_local");
}

/*
 * undo is what unpack restores: the layout of a distributed tensor, which the tape counts; for a
 * plain one the context. The part of a plain one is kept distributed, and remembers over which axes
 * the tensor varies, and its former layout.
 */
static sherd_tensor *pack_part(sherd_tensor *t, void *payload, const void **undo)
{
    const context *c = payload;
    int dim = sherd_tensor_failed(t) ? -1 : dim_of(c, t);
    sherd_tensor *whole, *part;
    const sherd_layout *to;

    *undo = NULL;
    if (dim < 0 || !is_equal_along(c, t))
        return t;
    whole = t->layout ? t : as_replicated(c, t);
    if (sherd_tensor_failed(whole))
        return whole;
    if (sherd_layout_with(&to, whole->layout, c->mesh, c->axis, sherd_shard(dim)))
        return sherd__fail_diag(t->world, true);
    part = sherd__move_to(whole, to, false);
    if (sherd_tensor_failed(part))
        return part;
    *undo = t->layout ? (const void *)t->layout : c;
    if (!t->layout) {
        part->varies = t->varies;
        sherd__layout_set(&part->was, t->was);
    }
    return part;
}

static sherd_tensor *unpack_part(sherd_tensor *kept, void *payload, const void *undo)
{
    const context *c = payload;
    const sherd_layout *whole;
    sherd_tensor *t;

    if (!undo || sherd_tensor_failed(kept))
        return kept;
    if (undo != c)
        return sherd__move_to(kept, undo, false);
    if (sherd_layout_with(&whole, kept->layout, c->mesh, c->axis, sherd_replicate()))
        return sherd__fail_diag(kept->world, true);
    t = sherd__move_to(kept, whole, false);
    if (!sherd_tensor_failed(t))
        t = sherd__local_view(t);
    if (!sherd_tensor_failed(t)) {
        t->varies = kept->varies;
        sherd__layout_set(&t->was, kept->was);
    }
    return t;
}

/*
 * A plain tensor may differ along the other axes of the mesh, so its moves are not noted as deeds
 * of the mesh.
 */
static sherd_tensor *pack(sherd_tensor *t, void *payload, const void **undo)
{
    const sherd_mesh *root = sherd_mesh_root(((const context *)payload)->mesh);
    bool before = sherd__deeds_pause(root, !t->layout);
    sherd_tensor *part = pack_part(t, payload, undo);

    sherd__deeds_pause(root, before);
    return part;
}

static sherd_tensor *unpack(sherd_tensor *kept, void *payload, const void *undo)
{
    const sherd_mesh *root = sherd_mesh_root(((const context *)payload)->mesh);
    bool before = sherd__deeds_pause(root, undo == payload);
    sherd_tensor *t = unpack_part(kept, payload, undo);

    sherd__deeds_pause(root, before);
    return t;
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static void push(sherd_module *self, sherd_args *in, void *payload)
{
    const sherd_saved_hooks hooks = {pack, unpack, payload};

    (void)in;
    sherd_saved_hooks_push(self->world, &hooks);
}

static void pop(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)in;
    (void)out;
    (void)payload;
    sherd_saved_hooks_pop(self->world);
}

static void free_contexts(sherd_world *world, void *state)
{
    sherd__heap *heap = sherd__world_heap(world);
    contexts *all = state;

    while (all->first) {
        context *c = all->first;
        all->first = c->next;
        sherd__free(heap, c);
    }
    sherd__free(heap, all);
}

/* Find or make; NULL for lack of memory. */
static context *intern(sherd_world *world, const context *wanted)
{
    sherd__heap *heap = sherd__world_heap(world);
    contexts *all = sherd__world_state(world, SHERD__ROOM_PARALLEL);
    context *c;

    if (!all) {
        all = sherd__alloc(heap, 1, sizeof *all);
        if (!all)
            return NULL;
        sherd__world_set_state(world, SHERD__ROOM_PARALLEL, all, free_contexts);
    }
    for (c = all->first; c; c = c->next)
        if (c->mesh == wanted->mesh && c->axis == wanted->axis && c->dim == wanted->dim)
            return c;
    c = sherd__alloc(heap, 1, sizeof *c);
    if (!c)
        return NULL;
    *c = *wanted;
    c->next = all->first;
    all->first = c;
    return c;
}

/* id: gets the numbers of both hooks, 0 = none. */
static sherd_status hook(int id[2], sherd_module *module, const context *wanted)
{
    sherd_hook_options options = {.payload = intern(module->world, wanted)};

    if (!options.payload)
        return sherd__no_memory(sherd__world_diag(module->world), "sherd_input_reshard");
    sherd_status status = sherd_module_hook_before(&id[0], module, push, &options);
    return status ? status : sherd_module_hook_after(&id[1], module, pop, &options);
}

sherd_status sherd_input_reshard(sherd_module *module, const sherd_mesh *mesh, const char *axis,
                                 int dim)
{
    static const char function[] = "sherd_input_reshard";
    context wanted = {.mesh = mesh, .dim = dim};
    sherd_world *world;
    sherd_status status = sherd__style_axis(&wanted.axis, &world, module, mesh, axis, function);
    uint64_t hash = sherd__hash_text(1, sherd_module_path(module));
    int id[2] = {0, 0};

    if (!world)
        return status;
    if (!status) {
        wanted.root_axis = mesh->root_axis[wanted.axis];
        hash = sherd__hash_word(hash ^ mesh->hash, (uint64_t)wanted.axis);
        hash = sherd__hash_word(hash, (uint64_t)dim);
        status = hook(id, module, &wanted);
    }
    status = sherd__agree(world, status, hash, function);
    for (int i = 0; status && i < 2; i++) /* all ranks have the hooks, or none */
        sherd_module_unhook(module, id[i]);
    return status;
}
