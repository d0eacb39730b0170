/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tensor says of itself: its dtype, shape, layout, what this rank has of it, and how that
 * lies in memory. Nothing waits or communicates. The text is made when it is first asked for, and
 * kept.
 */
#include "tensor/state.h"

#include <string.h>

#include "base/num.h"

sherd_world *sherd_tensor_world(const sherd_tensor *t)
{
    return t ? t->world : NULL;
}

sherd_dtype sherd_tensor_dtype(const sherd_tensor *t)
{
    return t ? t->dtype : SHERD_DTYPE_NONE;
}

int sherd_tensor_ndim(const sherd_tensor *t)
{
    return t ? t->ndim : 0;
}

const int64_t *sherd_tensor_shape(const sherd_tensor *t)
{
    return t ? t->shape : NULL;
}

int64_t sherd_tensor_count(const sherd_tensor *t)
{
    int64_t count = 0;

    if (!sherd_tensor_failed(t))
        sherd__count(t->shape, t->ndim, &count);
    return count;
}

const sherd_layout *sherd_tensor_layout(const sherd_tensor *t)
{
    return t ? t->layout : NULL;
}

sherd_box sherd_tensor_box(const sherd_tensor *t)
{
    sherd_box box = {.ndim = sherd_tensor_ndim(t)};

    if (!t)
        return box;
    if (t->layout)
        return sherd_layout_box(t->layout, sherd_world_rank(t->world), 0);
    memcpy(box.size, t->shape, sizeof box.size);
    return box;
}

int64_t sherd_tensor_offset(const sherd_tensor *t, int dim)
{
    return dim >= 0 && dim < sherd_tensor_ndim(t) ? sherd_tensor_box(t).offset[dim] : 0;
}

int64_t sherd_tensor_size(const sherd_tensor *t, int dim)
{
    return dim >= 0 && dim < sherd_tensor_ndim(t) ? t->local[dim] : 0;
}

int64_t sherd_tensor_local_count(const sherd_tensor *t)
{
    return sherd_tensor_failed(t) ? 0 : t->count;
}

bool sherd_tensor_failed(const sherd_tensor *t)
{
    return !t || sherd__is_failed(t);
}

const char *sherd_tensor_text(sherd_tensor *t)
{
    enum { PLAIN_BYTES = 256 }; /* eight sizes of at most twenty digits */

    if (!t)
        return "";
    if (!t->storage)
        return "the failed tensor";
    /* Neither dtype nor shape nor layout of a tensor that somebody has ever change. */
    if (t->text)
        return t->text;
    size_t room = t->layout ? strlen(sherd_layout_text(t->layout)) + 16 : PLAIN_BYTES;
    t->text = sherd__alloc(sherd__world_heap(t->world), room, 1);
    if (!t->text)
        return sherd_dtype_name(t->dtype);
    if (t->layout)
        sherd__layout_describe(t->layout, t->dtype, t->text, room);
    else
        sherd__shape_describe(t->ndim, t->shape, t->dtype, t->text, room);
    return t->text;
}

bool sherd__coordinate(const sherd_tensor *t, int64_t *coordinate)
{
    return t->layout &&
           sherd_mesh_coordinate(t->layout->spec.mesh, sherd_world_rank(t->world), coordinate);
}

bool sherd__is_contiguous(const sherd_tensor *t)
{
    int64_t stride = 1;

    if (t->count == 0)
        return true;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->local[d] != 1 && t->stride[d] != stride)
            return false;
        stride *= t->local[d];
    }
    return true;
}

bool sherd__covers_storage(const sherd_tensor *t)
{
    return t->offset == 0 && sherd__is_contiguous(t) && sherd__local_bytes(t) == t->storage->bytes;
}
