/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributing a plain tensor over a mesh: from one rank, which sends each other rank only its box,
 * or from all ranks, each of which cuts its box out of its own copy. From one rank it is an
 * ordinary exchange, from a layout in which that rank holds everything and the others nothing.
 */
#include "tensor/state.h"

#include <string.h>

#include "world/doing.h"
#include "layout/shape.h"

static sherd_tensor *refuse(sherd_tensor *t, const sherd_layout *layout, const char *why)
{
    return sherd__fail_tensor(t->world, true, SHERD_EINVAL, "sherd_distribute: %s to %s: %s",
                              sherd_tensor_text(t), sherd_layout_text(layout), why);
}

/* A copy, never a view: the result must not change when the plain tensor is written again. */
static sherd_tensor *cut_own_box(sherd_tensor *t, const sherd_layout *layout)
{
    sherd_tensor *out = sherd__new_on(layout, t->dtype);
    sherd_box box = sherd_tensor_box(out);
    size_t element = sherd_dtype_bytes(t->dtype);
    int64_t at = 0;

    if (!out->storage || out->count == 0)
        return out;
    if (t->storage->later && sherd__covers_storage(t)) {
        sherd__draw(out, t->storage->later);
        return out;
    }
    const char *data = sherd__data(t);
    if (!data) {
        sherd_tensor_release(out);
        return sherd__failed(t->world);
    }
    for (int d = 0; d < box.ndim; d++)
        at += box.offset[d] * t->stride[d];
    if (!sherd__left_out(t->world, "copy", t->dtype, 0, 2 * sherd__local_bytes(out)))
        sherd__copy_box(element, box.ndim, box.size, sherd__fresh(out), out->stride,
                        data + (size_t)at * element, t->stride);
    return out;
}

/* All axes shard dim 0, and its cuts give all of it to that rank. */
sherd_status sherd__all_at(const sherd_layout **out, const sherd_mesh *mesh, int ndim,
                           const int64_t *shape, const int64_t *coordinate)
{
    sherd__heap *heap = mesh->space->heap;
    sherd_placement placements[SHERD_MAX_AXES];
    const int64_t *sizes[SHERD_MAX_DIMS] = {NULL};
    sherd_layout_options options = {.sizes = sizes};
    int64_t *first = sherd__alloc(heap, (size_t)mesh->count, sizeof *first);
    sherd_status status;

    if (!first)
        return sherd__no_memory(mesh->space->diag, "layout");
    for (int a = 0; a < mesh->axes; a++)
        placements[a] = sherd_shard(0);
    first[sherd__mesh_place(mesh, coordinate)] = shape[0];
    sizes[0] = first;
    status = sherd_layout_create(out, mesh, ndim, shape, placements, &options);
    sherd__free(heap, first);
    return status;
}

/* What was sent, as a view with the target's layout, if that differs: a scalar is sent as [1]. */
static sherd_tensor *relabel(sherd_tensor *t, const sherd_layout *layout)
{
    sherd_tensor *view;

    if (!t->storage || t->layout == layout)
        return t;
    view = sherd__new_view(t);
    if (view->storage) {
        sherd__layout_set(&view->layout, layout);
        view->ndim = layout->spec.ndim;
    }
    sherd_tensor_release(t);
    return view;
}

/* The root's own data as the source; the other ranks hold nothing of it. */
static sherd_tensor *source_at(sherd_tensor *t, const sherd_layout *layout, bool is_root)
{
    if (!is_root)
        return sherd__new_on(layout, t->dtype);
    sherd_tensor *view = sherd__new_view(t);
    if (!view->storage) {
        sherd__raise_failed(t->world, "sherd_distribute"); /* peers wait: it is not local */
        return view;
    }
    sherd__layout_set(&view->layout, layout);
    sherd__layout_set(&view->was, NULL);
    view->varies = 0;
    view->autograd.of_leaf = false;
    if (t->ndim == 0) { /* `layout` is that of [1] */
        view->ndim = 1;
        view->shape[0] = view->local[0] = view->stride[0] = 1;
    }
    return view;
}

static sherd_tensor *send_boxes(sherd_tensor *t, const sherd_layout *layout, int root,
                                const int64_t *coordinate)
{
    static const int64_t one[1] = {1};
    const sherd_mesh *mesh = layout->spec.mesh;
    const sherd_layout *from, *to = layout;
    int ndim = t->ndim ? t->ndim : 1;
    const int64_t *shape = t->ndim ? t->shape : one;

    if ((t->ndim == 0 && sherd__replicated(&to, mesh, 1, one) != SHERD_OK) ||
        sherd__all_at(&from, mesh, ndim, shape, coordinate) != SHERD_OK)
        return sherd__fail_diag(t->world, true);

    sherd_tensor *source = source_at(t, from, sherd_world_rank(t->world) == root);
    sherd_tensor *out = sherd__move_to(source, to, false);
    /*
     * Sharing the plain tensor's storage would let a later write of it show in the result. Ranks
     * that hold nothing do the same as the root: the result must be born of one deed on all.
     */
    if (out->storage && out->storage == source->storage) {
        sherd_tensor *view = out;
        out = cut_own_box(t, layout);
        if (view != source)
            sherd_tensor_release(view);
        sherd_tensor_release(source);
    } else if (out != source) {
        sherd_tensor_release(source);
    }
    return relabel(out, layout);
}

/*
 * If `t` is a leaf that requires a gradient, the result is a new leaf that does; the two gradients
 * are independent.
 */
static sherd_tensor *noted(sherd_tensor *t, sherd_tensor *out, int root, uint64_t content)
{
    uint64_t attributes = sherd__attribute((uint64_t)root, content);

    if (!out->storage)
        return out;
    out->autograd.requires_grad = t->autograd.requires_grad;
    out->autograd.of_leaf = out->storage->leaf = t->autograd.requires_grad;
    if (t->autograd.requires_grad)
        attributes = sherd__attribute(attributes, 1);
    sherd__note_one("sherd_distribute", NULL, attributes, out);
    sherd__origin_pass(&t, 1, &out, 1);
    return out;
}

static sherd_tensor *distribute(sherd_tensor *t, const sherd_layout *layout, int root)
{
    int64_t coordinate[SHERD_MAX_AXES];

    /* The peers wait for this rank's part: a failure of it is theirs too. */
    if (sherd__is_failed(t))
        sherd__raise_failed(t->world, "sherd_distribute");
    if (sherd__is_failed(t) || sherd__alarmed(t->world))
        return sherd__failed(t->world);
    if (sherd__space_world(layout->space) != t->world)
        return refuse(t, layout, "they are of two worlds");
    if (t->layout)
        return refuse(t, layout, "it is distributed already: use sherd_redistribute");
    if (!sherd__same_shape(t->ndim, t->shape, layout->spec.ndim, layout->spec.shape))
        return refuse(t, layout, "the shapes differ");
    if (layout->pending_axes != 0)
        return refuse(t, layout, "a pending reduction cannot be the target");
    if (t->autograd.node)
        return refuse(t, layout,
                      "it is computed from leaves that want gradients, which would get none: use "
                      "sherd_from_local, or sherd_detach first");
    if (root >= 0) {
        if (!sherd_mesh_coordinate(layout->spec.mesh, root, coordinate))
            return sherd__fail_tensor(t->world, true, SHERD_EINVAL,
                                      "sherd_distribute: root %d is no rank of the mesh of %s",
                                      root, sherd_layout_text(layout));
        return noted(t, send_boxes(t, layout, root, coordinate), root, 0);
    }
    if (root < -1)
        return refuse(t, layout, "the root is a rank, or -1");
    if (t->varies != 0)
        return refuse(t, layout,
                      "it may vary between ranks: pass a root, or use sherd_mark_equal if it is "
                      "the same on all");
    return noted(t, cut_own_box(t, layout), root, sherd__content(t));
}

sherd_tensor *sherd_distribute(sherd_tensor *t, const sherd_layout *layout, int root)
{
    const sherd__argument need[] = {{"t", t}, {"layout", layout}, {NULL, NULL}};
    sherd_world *world = t ? t->world : layout ? sherd__space_world(layout->space) : NULL;
    sherd_tensor *out;

    if (!sherd__given(world, "sherd_distribute", need, &out))
        return out;
    bool begun = sherd__doing_begin(world, "sherd_distribute");
    out = distribute(t, layout, root);
    sherd__doing_end(world, begun);
    return out;
}
