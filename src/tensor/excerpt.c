/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Excerpts: an excerpt of a sharded dim is sharded by the same axes, so each rank copies the
 * elements that it has into a small tensor, and that is moved like any other. Costs the number of
 * elements that are picked.
 */
#include "tensor/excerpt.h"

#include <string.h>

#include "base/num.h"

sherd__excerpt sherd__excerpt_of(const sherd_tensor *t, int64_t edge)
{
    sherd__excerpt e = {.ndim = t->ndim ? t->ndim : 1, .shape = {1}};

    for (int d = 0; d < t->ndim; d++)
        e.shape[d] = t->shape[d];
    for (int d = 0; d < e.ndim; d++) {
        bool elided = edge >= 0 && e.shape[d] / 2 >= edge && e.shape[d] > 2 * edge;
        e.size[d] = elided ? 2 * edge : e.shape[d];
        e.head[d] = elided ? edge : e.shape[d];
    }
    return e;
}

/* How many indices of the excerpt are before a global index of a dim. */
static int64_t picked_before(const sherd__excerpt *e, int d, int64_t index)
{
    int64_t tail = e->shape[d] - (e->size[d] - e->head[d]);

    return sherd__min(index, e->head[d]) + sherd__max(index - tail, 0);
}

/* The excerpt's cuts of a sharded dim, in memory that the caller frees. NULL if memory runs out. */
static int64_t *cuts_of(const sherd__excerpt *e, const sherd_layout *layout, int d)
{
    int64_t shards = sherd_layout_dim_shards(layout, d);
    int64_t *cuts = sherd__alloc(layout->space->heap, (size_t)shards + 1, sizeof *cuts);

    for (int64_t i = 0; cuts && i <= shards; i++)
        cuts[i] = picked_before(e, d, sherd_layout_dim_cut(layout, d, i));
    return cuts;
}

/* The layout in which each rank has the part of the excerpt that it has of the tensor. */
static sherd_status layout_of(const sherd_layout **out, const sherd__excerpt *e,
                              const sherd_layout *layout)
{
    sherd__layout_spec spec = layout->spec;
    int64_t *cuts[SHERD_MAX_DIMS] = {NULL};
    sherd_status status = SHERD_OK;

    spec.ndim = e->ndim;
    for (int d = 0; d < e->ndim && status == SHERD_OK; d++) {
        spec.shape[d] = e->size[d];
        if (spec.dim[d].axes == 0)
            continue;
        spec.dim[d].cuts = cuts[d] = cuts_of(e, layout, d);
        if (!cuts[d])
            status = sherd__no_memory(layout->space->diag, "sherd_print");
    }
    if (status == SHERD_OK)
        status = sherd__layout_intern(out, &spec);
    for (int d = 0; d < e->ndim; d++)
        sherd__free(layout->space->heap, cuts[d]);
    return status;
}

/* Copy this rank's part of the excerpt. False: the alarm ended a wait. */
static bool pick(const sherd__excerpt *e, sherd_tensor *t, sherd_tensor *out)
{
    sherd_box from = sherd_tensor_box(t), to = sherd_tensor_box(out);
    size_t bytes = sherd_dtype_bytes(t->dtype);
    const char *data = sherd__data(t);
    int64_t at[SHERD_MAX_DIMS] = {0};
    char *dst = sherd__fresh(out);

    if (!data)
        return false;
    for (int64_t i = 0; i < out->count; i++, dst += bytes) {
        int64_t place = 0;
        for (int d = 0; d < t->ndim; d++)
            place +=
                (sherd__excerpt_index(e, d, to.offset[d] + at[d]) - from.offset[d]) * t->stride[d];
        memcpy(dst, data + (size_t)place * bytes, bytes);
        for (int d = e->ndim - 1; d >= 0 && ++at[d] == out->local[d]; d--)
            at[d] = 0;
    }
    return true;
}

sherd_tensor *sherd__excerpt_take(const sherd__excerpt *e, sherd_tensor *t, int rank)
{
    const sherd_layout *layout;
    sherd_tensor *out;

    if (!t->layout)
        out = sherd__new_plain(t->world, t->dtype, e->ndim, e->size, t->varies);
    else if (layout_of(&layout, e, t->layout) == SHERD_OK)
        out = sherd__new_on(layout, t->dtype);
    else
        return sherd__fail_diag(t->world, true);
    if (!out->storage || !pick(e, t, out))
        return sherd__failed(t->world);
    sherd__note_one("sherd_print", t, 0, out);
    return sherd__whole_at(out, rank);
}
