/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves to a layout given as text, and tensors from pieces of a given layout: these functions only
 * compute the arguments of sherd_redistribute, sherd_distribute and sherd_from_local. A wrong text
 * raises the alarm, so all ranks get its error.
 */
#include "tensor/tensor.h"

/* The layout that a text describes. NULL: the text is wrong, and the alarm raised. */
static const sherd_layout *read(const sherd__target *target, const char *text)
{
    const sherd_layout *layout;

    if (sherd__target_read(&layout, target, text) == SHERD_OK)
        return layout;
    sherd__raise_diag(sherd__space_world(target->mesh->space));
    return NULL;
}

static sherd_tensor *refuse(sherd_tensor *t, const char *function, const char *why)
{
    return sherd__fail_tensor(t->world, true, SHERD_EINVAL, "%s: %s %s", function,
                              sherd_tensor_text(t), why);
}

sherd_tensor *sherd_redistribute_to(sherd_tensor *t, const char *text,
                                    const sherd_redistribute_options *options)
{
    static const char function[] = "sherd_redistribute_to";
    const sherd__argument need[] = {{"t", t}, {"text", text}, {NULL, NULL}};
    sherd_tensor *failed;

    if (!sherd__given(sherd_tensor_world(t), function, need, &failed))
        return failed;
    if (sherd__stop(t->world, function, &t, 1))
        return sherd__failed(t->world);
    if (!t->layout)
        return refuse(t, function, "is plain: use sherd_distribute_as");
    const sherd__target target = {function, t->layout->spec.mesh, t->dtype, t->ndim, t->shape,
                                  t->layout};
    const sherd_layout *to = read(&target, text);

    return to ? sherd_redistribute(t, to, options) : sherd__failed(t->world);
}

sherd_tensor *sherd_distribute_as(sherd_tensor *t, const sherd_mesh *mesh, const char *text,
                                  int root)
{
    static const char function[] = "sherd_distribute_as";
    const sherd__argument need[] = {{"t", t}, {"mesh", mesh}, {"text", text}, {NULL, NULL}};
    sherd_world *world = t ? t->world : mesh ? sherd__space_world(mesh->space) : NULL;
    sherd_tensor *failed;

    if (!sherd__given(world, function, need, &failed))
        return failed;
    /* The peers wait for this rank's part: a failure of it is theirs too. */
    if (sherd__is_failed(t))
        sherd__raise_failed(world, function);
    if (sherd__is_failed(t) || sherd__alarmed(world))
        return sherd__failed(world);
    if (sherd__space_world(mesh->space) != world)
        return refuse(t, function, "is of another world than the mesh");
    const sherd__target target = {function, mesh, t->dtype, t->ndim, t->shape, NULL};
    const sherd_layout *layout = read(&target, text);

    return layout ? sherd_distribute(t, layout, root) : sherd__failed(world);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/*
 * The sizes of the shards of all dims that have cuts of their own, in one piece of memory. NULL for
 * lack of it.
 */
static int64_t *sizes_of(const sherd_layout *layout, const int64_t **by_dim)
{
    int64_t count = 0;

    for (int d = 0; d < layout->spec.ndim; d++)
        count += sherd_layout_dim_shards(layout, d);
    int64_t *sizes = sherd__alloc(layout->space->heap, (size_t)count, sizeof *sizes), *at = sizes;
    for (int d = 0; sizes && d < layout->spec.ndim; d++) {
        const int64_t *cuts = layout->spec.dim[d].cuts;
        int64_t shards = sherd_layout_dim_shards(layout, d);
        by_dim[d] = cuts ? at : NULL;
        for (int64_t i = 0; cuts && i < shards; i++)
            *at++ = cuts[i + 1] - cuts[i];
    }
    return sizes;
}

/* All arguments of sherd_from_local out of a layout. */
static sherd_tensor *from_local(sherd_tensor *local, const sherd_layout *layout)
{
    const sherd_mesh *mesh = layout->spec.mesh;
    sherd_placement placements[SHERD_MAX_AXES];
    const int64_t *by_dim[SHERD_MAX_DIMS];
    int order[SHERD_MAX_AXES];
    int64_t *sizes = sizes_of(layout, by_dim);

    if (!sizes)
        return sherd__fail_tensor(local->world, true, SHERD_ENOMEM,
                                  "sherd_from_local_as: out of memory");
    for (int a = 0; a < mesh->axes; a++) {
        placements[a] = sherd_layout_placement(layout, a);
        order[a] = sherd_layout_order(layout, a);
    }
    const sherd_from_local_options options = {
        .shape = layout->spec.shape, .sizes = by_dim, .order = order};
    sherd_tensor *t = sherd_from_local(local, mesh, placements, &options);
    sherd__free(layout->space->heap, sizes);
    return t;
}

sherd_tensor *sherd_from_local_as(sherd_tensor *local, const sherd_layout *layout)
{
    static const char function[] = "sherd_from_local_as";
    const sherd__argument need[] = {{"local", local}, {"layout", layout}, {NULL, NULL}};
    sherd_world *world = local ? local->world : layout ? sherd__space_world(layout->space) : NULL;
    sherd_tensor *failed;

    if (!sherd__given(world, function, need, &failed))
        return failed;
    if (sherd__is_failed(local))
        sherd__raise_failed(world, function);
    if (sherd__is_failed(local) || sherd__alarmed(world))
        return sherd__failed(world);
    if (local->ndim != layout->spec.ndim)
        return sherd__fail_tensor(world, true, SHERD_EINVAL,
                                  "%s: %s is no piece of %s: the numbers of dims differ", function,
                                  sherd_tensor_text(local), layout->text);
    return from_local(local, layout);
}
