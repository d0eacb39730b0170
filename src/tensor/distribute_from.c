/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributing a tensor that only one rank has: that rank sends shape and dtype, and then it is an
 * ordinary distribution, for which the other ranks use a tensor that takes no memory. Costs one
 * small exchange more.
 */
#include "tensor/state.h"

#include <string.h>

#include "base/hash.h"
#include "world/doing.h"

static const char name[] = "sherd_distribute_from";

/* What each rank shares: a hash of its arguments, and, on the root, dtype and shape. */
enum { ARGUMENTS, DTYPE, NDIM, WANTS, SHAPE, WORDS = SHAPE + SHERD_MAX_DIMS };

static void describe(int64_t *mine, const sherd_tensor *t, const char *text, int root)
{
    memset(mine, 0, WORDS * sizeof *mine);
    mine[ARGUMENTS] = (int64_t)(sherd__hash_word(sherd__hash_text(1, text), (uint64_t)root) >> 1);
    if (!t)
        return;
    mine[DTYPE] = (int64_t)t->dtype;
    mine[NDIM] = t->ndim;
    mine[WANTS] = t->autograd.requires_grad;
    memcpy(&mine[SHAPE], t->shape, sizeof t->shape);
}

/* The root's numbers, if all ranks passed the same arguments; NULL: failed, raised. */
static const int64_t *ask(const sherd_mesh *mesh, int root, const int64_t *mine, int64_t *all)
{
    sherd_world *world = sherd__space_world(mesh->space);
    int64_t at[SHERD_MAX_AXES];

    if (!sherd__share(world, mesh, name, mine, WORDS, all))
        return NULL;
    for (int64_t i = 1; i < mesh->count; i++)
        if (all[i * WORDS + ARGUMENTS] != all[ARGUMENTS]) {
            sherd__raise(world, SHERD_EDIFFER, "%s: ranks passed different texts or roots", name);
            return NULL;
        }
    (void)sherd_mesh_coordinate(mesh, root, at);
    return &all[sherd__mesh_place(mesh, at) * WORDS];
}

/* Why this rank cannot take part; NULL: it can. `t`: the root's tensor, on other ranks NULL. */
static const char *fault_of(const sherd_tensor *t, const sherd_mesh *mesh, int root)
{
    if (!sherd_mesh_coordinate(sherd_mesh_root(mesh), root, NULL))
        return "it is no rank of the mesh";
    if (t && t->layout)
        return "t is distributed already: use sherd_redistribute";
    return t && t->world != sherd__space_world(mesh->space) ? "t is of another world than the mesh"
                                                            : NULL;
}

/*
 * Distribute the tensor that the root's `words` describe; `text` is its layout. The other ranks
 * pass a deferred tensor of its shape and dtype, which takes no memory.
 */
static sherd_tensor *spread(sherd_tensor *t, const sherd_mesh *mesh, const char *text, int root,
                            const int64_t *words)
{
    sherd_world *world = sherd__space_world(mesh->space);
    const sherd__target target = {name,          mesh, (sherd_dtype)words[DTYPE], (int)words[NDIM],
                                  &words[SHAPE], NULL};
    const sherd_layout *layout;

    if (sherd__target_read(&layout, &target, text))
        return sherd__fail_diag(world, true);
    if (sherd_world_rank(world) == root)
        return sherd_distribute(t, layout, root);
    sherd_tensor *stand_in =
        sherd_constant_later(world, target.dtype, target.shape, target.ndim, 0);
    if (!sherd_tensor_failed(stand_in))
        stand_in->autograd.requires_grad = words[WANTS] != 0;
    return sherd_distribute(stand_in, layout, root);
}

sherd_tensor *sherd_distribute_from(sherd_tensor *t, const sherd_mesh *mesh, const char *text,
                                    int root)
{
    const sherd__argument need[] = {{"mesh", mesh}, {"text", text}, {NULL, NULL}};
    sherd_world *world = mesh ? sherd__space_world(mesh->space) : t ? t->world : NULL;
    int64_t mine[WORDS];
    sherd_tensor *result;

    if (!sherd__given(world, name, need, &result))
        return result;
    bool is_root = sherd_world_rank(world) == root;
    const sherd__argument source[] = {{"t of the root", is_root ? t : (const void *)mesh},
                                      {NULL, NULL}};
    if (!sherd__given(world, name, source, &result))
        return result;
    t = is_root ? t : NULL;
    if (t && sherd__is_failed(t))
        sherd__raise_failed(world, name);
    if (sherd__alarmed(world))
        return sherd__failed(world);
    const char *why = fault_of(t, mesh, root);
    if (why)
        return sherd__fail_tensor(world, true, SHERD_EINVAL, "%s: root %d: %s", name, root, why);
    if (!is_root && sherd__is_dry(world))
        return sherd__fail_tensor(world, true, SHERD_ENOTSUP,
                                  "%s: only rank %d knows the shape, and a dry world has no other "
                                  "rank: pass a tensor of it on all ranks (sherd_distribute)",
                                  name, root);
    int64_t *all = sherd__alloc(sherd__world_heap(world),
                                (size_t)sherd_mesh_root(mesh)->count * WORDS, sizeof *all);
    if (!all)
        return sherd__fail_tensor(world, true, SHERD_ENOMEM, "%s: out of memory", name);
    describe(mine, t, text, root);
    const int64_t *words = ask(sherd_mesh_root(mesh), root, mine, all);
    bool begun = sherd__doing_begin(world, name);
    result = words ? spread(t, mesh, text, root, words) : sherd__failed(world);
    sherd__doing_end(world, begun);
    sherd__free(sherd__world_heap(world), all);
    return result;
}
