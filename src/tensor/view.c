/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views between plain and distributed tensors on the same storage: a local piece as a distributed
 * tensor and back, and a plain tensor as a replicated one.
 */
#include "tensor/state.h"

#include <string.h>

#include "base/text.h"
#include "world/doing.h"

/* Axes of extent 1 are left out: one rank cannot differ from itself. */
unsigned sherd__varying_axes(const sherd_layout *layout)
{
    unsigned axes = layout->shard_axes | layout->pending_axes;

    for (int a = 0; a < layout->spec.mesh->axes; a++)
        if (layout->spec.mesh->extent[a] == 1)
            axes &= ~(1u << a);
    return axes;
}

sherd_tensor *sherd__local_view(sherd_tensor *t)
{
    if (!t)
        return NULL;
    if (sherd__stop(t->world, "sherd_to_local", &t, 1))
        return sherd__failed(t->world);
    if (!t->layout)
        return sherd__fail_tensor(t->world, false, SHERD_EINVAL, "sherd_to_local: %s is plain",
                                  sherd_tensor_text(t));

    sherd_tensor *view = sherd__new_view(t);
    if (!view->storage)
        return view;
    sherd__layout_set(&view->layout, NULL);
    view->ledger.made = view->ledger.identity = 0;
    sherd__layout_set(&view->was, t->layout);
    view->varies = sherd__varying_axes(t->layout);
    memcpy(view->shape, t->local, sizeof view->shape);
    /*
     * A rank outside of the mesh has no element, also of a scalar: as a plain tensor that is [0].
     */
    if (view->ndim == 0 && view->count == 0) {
        view->ndim = 1;
        view->shape[0] = view->local[0] = 0;
        view->stride[0] = 1;
    }
    return view;
}

static bool is_box(const sherd_tensor *local, const sherd_box *box)
{
    bool good = local->ndim == box->ndim;

    for (int d = 0; d < box->ndim && good; d++)
        good = local->local[d] == box->size[d];
    return good;
}

sherd_tensor *sherd__global_view(sherd_tensor *local, const sherd_layout *layout,
                                 const char *function)
{
    sherd_world *world = sherd__space_world(layout->space);
    int64_t coordinate[SHERD_MAX_AXES];
    sherd_box box = {.ndim = layout->spec.ndim};
    bool inside = sherd_mesh_coordinate(layout->spec.mesh, sherd_world_rank(world), coordinate);

    if (!local->storage)
        return local;
    if (inside)
        sherd__layout_box(layout, coordinate, &box);
    if (local->layout || (inside && !is_box(local, &box)))
        return sherd__fail_tensor(world, true, SHERD_EINVAL,
                                  "%s: %s is not this rank's piece of %s", function,
                                  sherd_tensor_text(local), sherd_layout_text(layout));

    sherd_tensor *view = sherd__new_view(local);
    if (!view->storage) {
        sherd__raise_failed(world, function); /* a plain view's failure would stay local */
        return view;
    }
    sherd__layout_set(&view->layout, layout);
    sherd__layout_set(&view->was, NULL);
    view->varies = 0;
    view->ndim = layout->spec.ndim;
    memcpy(view->shape, layout->spec.shape, sizeof view->shape);
    if (!inside) {
        view->count = 0;
        memset(view->local, 0, sizeof view->local);
    }
    /*
     * With SHERD_VERIFY also of pieces that vary: a check compares only tensors that exist then,
     * and this one may have been released.
     */
    bool equal =
        (!local->varies || sherd__verifies(world)) && !layout->shard_axes && !layout->pending_axes;
    sherd__note_one(function, NULL, equal ? sherd__content(local) : 0, view);
    return view;
}

sherd_status sherd__replicated(const sherd_layout **out, const sherd_mesh *mesh, int ndim,
                               const int64_t *shape)
{
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    return sherd_layout_create(out, mesh, ndim, shape, placements, NULL);
}

static void write_axes(sherd__writer *w, const sherd_mesh *mesh, unsigned axes)
{
    if (axes == (unsigned)SHERD__VARIES) {
        sherd__write(w, "any axis (its origin is unknown)");
        return;
    }
    for (int a = 0, n = 0; a < mesh->axes; a++)
        if (axes >> a & 1)
            sherd__write(w, "%s%s", n++ ? ", " : "axis ", mesh->name[a]);
}

sherd_tensor *sherd__promote(sherd_tensor *t, const sherd_mesh *mesh, const char *function)
{
    const sherd_layout *layout;

    if (!t->storage || t->layout)
        return t;
    if (t->varies != 0) {
        char axes[SHERD_MAX_AXES * (SHERD__NAME_BYTES + 2) + 64];
        sherd__writer w = {.at = axes, .room = sizeof axes};
        const char *outer = sherd__doing_around(t->world, function);
        write_axes(&w, mesh->root, t->varies);
        return sherd__fail_tensor(
            t->world, true, SHERD_EINVAL,
            "%s%s%s: the plain tensor %s beside distributed ones may vary over "
            "%s: use sherd_distribute or sherd_from_local, or "
            "sherd_mark_equal if it is the same on all ranks",
            outer, *outer ? ": " : "", function, sherd_tensor_text(t), axes);
    }
    if (sherd__replicated(&layout, mesh, t->ndim, t->shape) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return sherd__global_view(t, layout, function);
}
