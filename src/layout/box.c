/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements a rank holds (boxes, and their intersections), and the getters of layouts. */
#include "inside.h"

#include <string.h>

#include "base/num.h"

void sherd__layout_box(const sherd_layout *layout, const int64_t *coordinate, sherd_box *box)
{
    const sherd__layout_spec *spec = &layout->spec;

    memset(box, 0, sizeof *box);
    box->ndim = spec->ndim;
    for (int d = 0; d < spec->ndim; d++) {
        int64_t lo, hi;
        sherd__dim_interval(spec->mesh, &spec->dim[d], spec->shape[d], coordinate, &lo, &hi);
        box->offset[d] = lo;
        box->size[d] = hi - lo;
    }
}

void sherd__holding_find(sherd__holding *holding, const sherd_layout *layout)
{
    int64_t coordinate[SHERD_MAX_AXES], step = 1;

    holding->known = true;
    holding->inside = sherd_mesh_coordinate(layout->spec.mesh, layout->space->rank, coordinate);
    holding->box.ndim = layout->spec.ndim;
    if (!holding->inside)
        return;
    sherd__layout_box(layout, coordinate, &holding->box);
    holding->count = sherd__box_count(&holding->box);
    /* Of an empty box they stay unset. */
    for (int d = layout->spec.ndim - 1; d >= 0 && holding->count > 0; d--) {
        holding->stride[d] = step;
        step *= holding->box.size[d];
    }
}

bool sherd__box_meet(const sherd_box *a, const sherd_box *b, sherd_box *out)
{
    bool some = true;

    memset(out, 0, sizeof *out);
    out->ndim = a->ndim;
    for (int d = 0; d < a->ndim; d++) {
        int64_t lo = sherd__max(a->offset[d], b->offset[d]);
        int64_t hi = sherd__min(a->offset[d] + a->size[d], b->offset[d] + b->size[d]);
        out->offset[d] = lo;
        out->size[d] = sherd__max(hi - lo, 0);
        some = some && hi > lo;
    }
    return some;
}

int64_t sherd__box_count(const sherd_box *box)
{
    int64_t count = 1;

    for (int d = 0; d < box->ndim; d++)
        count *= box->size[d];
    return count;
}

int64_t sherd__layout_largest(const sherd_layout *layout)
{
    const sherd__layout_spec *spec = &layout->spec;
    int64_t n = 1;

    for (int d = 0; d < spec->ndim; d++)
        n *= sherd__dim_longest(spec->mesh, &spec->dim[d], spec->shape[d]);
    return n;
}

int sherd_layout_boxes(const sherd_layout *layout, int rank)
{
    return layout && sherd_mesh_coordinate(layout->spec.mesh, rank, NULL) ? 1 : 0;
}

sherd_box sherd_layout_box(const sherd_layout *layout, int rank, int i)
{
    int64_t coordinate[SHERD_MAX_AXES];
    sherd_box box;

    memset(&box, 0, sizeof box);
    box.ndim = sherd_layout_ndim(layout);
    if (layout && i == 0 && sherd_mesh_coordinate(layout->spec.mesh, rank, coordinate))
        sherd__layout_box(layout, coordinate, &box);
    return box;
}

const sherd_mesh *sherd_layout_mesh(const sherd_layout *layout)
{
    return layout ? layout->spec.mesh : NULL;
}

int sherd_layout_ndim(const sherd_layout *layout)
{
    return layout ? layout->spec.ndim : 0;
}

const int64_t *sherd_layout_shape(const sherd_layout *layout)
{
    return layout ? layout->spec.shape : NULL;
}

sherd_placement sherd_layout_placement(const sherd_layout *layout, int axis)
{
    if (axis < 0 || axis >= sherd_mesh_axes(sherd_layout_mesh(layout)))
        return sherd_replicate();
    const sherd__layout_spec *spec = &layout->spec;
    if (spec->pending[axis] >= 0)
        return sherd_partial((sherd_reduce_op)spec->pending[axis]);
    for (int d = 0; d < spec->ndim; d++)
        for (int i = 0; i < spec->dim[d].axes; i++)
            if (spec->dim[d].axis[i] == axis)
                return sherd_shard(d);
    return sherd_replicate();
}

/* ---- how a dim is sharded -------------------------------------------------------------------- */

static const sherd__dim *dim_of(const sherd_layout *layout, int dim)
{
    return layout && dim >= 0 && dim < layout->spec.ndim ? &layout->spec.dim[dim] : NULL;
}

int sherd_layout_dim_axes(const sherd_layout *layout, int dim)
{
    const sherd__dim *d = dim_of(layout, dim);

    return d ? d->axes : 0;
}

int sherd_layout_dim_axis(const sherd_layout *layout, int dim, int i)
{
    const sherd__dim *d = dim_of(layout, dim);

    return d && i >= 0 && i < d->axes ? d->axis[i] : -1;
}

int sherd_layout_order(const sherd_layout *layout, int axis)
{
    for (int d = 0; d < sherd_layout_ndim(layout); d++)
        for (int i = 0; i < layout->spec.dim[d].axes; i++)
            if (layout->spec.dim[d].axis[i] == axis)
                return i;
    return -1;
}

int64_t sherd_layout_dim_shards(const sherd_layout *layout, int dim)
{
    const sherd__dim *d = dim_of(layout, dim);

    return d ? sherd__dim_parts(layout->spec.mesh, d) : 0;
}

int64_t sherd_layout_dim_cut(const sherd_layout *layout, int dim, int64_t i)
{
    if (i < 0 || !dim_of(layout, dim) || i > sherd_layout_dim_shards(layout, dim))
        return -1;
    return sherd__dim_cut(layout->spec.mesh, &layout->spec.dim[dim], layout->spec.shape[dim], i);
}

bool sherd_layout_dim_has_cuts(const sherd_layout *layout, int dim)
{
    const sherd__dim *d = dim_of(layout, dim);

    return d && d->cuts;
}
