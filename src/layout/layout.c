/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making layouts: from placements, order and sizes, and from another layout by changing one axis.
 */
#include "inside.h"
#include "base/num.h"

#include <string.h>

void sherd__spec_settle(sherd__layout_spec *spec)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        spec->pending[i] = -1;
}

/* A spec without placements on the root of `mesh`. */
static void start(sherd__layout_spec *spec, const sherd_mesh *mesh)
{
    memset(spec, 0, sizeof *spec);
    spec->mesh = mesh->root;
    sherd__spec_settle(spec);
}

/* Put one placement on one axis of the root, innermost in its dim. */
static sherd_status place(sherd__layout_spec *spec, const char *function, int axis,
                          sherd_placement placement)
{
    int dim = placement.dim < 0 ? placement.dim + spec->ndim : placement.dim;
    sherd__diag *diag = spec->mesh->space->diag;

    switch (placement.kind) {
    case SHERD_UNSET:
    case SHERD_REPLICATE:
        return SHERD_OK;
    case SHERD_PARTIAL:
        if (!sherd__reduce_op_name(placement.op))
            return sherd__fail(diag, SHERD_EINVAL, "%s: %d is not a reduce op", function,
                               (int)placement.op);
        spec->pending[axis] = (int)placement.op;
        return SHERD_OK;
    case SHERD_SHARD:
        if (dim < 0 || dim >= spec->ndim)
            return sherd__fail(diag, SHERD_EINVAL, "%s: S(%d) on axis %s: the tensor has %d dims",
                               function, placement.dim, spec->mesh->name[axis], spec->ndim);
        spec->dim[dim].axis[spec->dim[dim].axes++] = axis;
        return SHERD_OK;
    }
    return sherd__fail(diag, SHERD_EINVAL, "%s: %d is not a kind of placement", function,
                       (int)placement.kind);
}

/*
 * Sort a dim's axes by the places that `order` (by axis of `mesh`) gives them: 0, 1, ... each once.
 */
static sherd_status put_in_order(sherd__layout_spec *spec, const char *function,
                                 const sherd_mesh *mesh, int d, const int *order)
{
    sherd__dim sorted = spec->dim[d];
    unsigned places = 0;

    for (int i = 0; i < mesh->axes; i++) {
        int axis = mesh->root_axis[i];
        bool here = false;
        for (int j = 0; j < sorted.axes; j++)
            here = here || spec->dim[d].axis[j] == axis;
        if (!here)
            continue;
        if (order[i] < 0 || order[i] >= sorted.axes || places >> order[i] & 1)
            return sherd__fail(mesh->space->diag, SHERD_EINVAL,
                               "%s: shard order %d of axis %s: the %d axes of dim %d need the "
                               "places 0 to %d, each once",
                               function, order[i], mesh->name[i], sorted.axes, d, sorted.axes - 1);
        places |= 1u << order[i];
        sorted.axis[order[i]] = axis;
    }
    spec->dim[d] = sorted;
    return SHERD_OK;
}

/* Cuts from sizes, in memory that the caller frees. */
static sherd_status cuts_from(int64_t **out, sherd__layout_spec *spec, const char *function, int d,
                              const int64_t *sizes)
{
    sherd__space *space = spec->mesh->space;
    int64_t parts = sherd__dim_parts(spec->mesh, &spec->dim[d]), sum = 0;
    int64_t *cuts = sherd__alloc(space->heap, (size_t)parts + 1, sizeof *cuts);

    *out = cuts;
    if (!cuts)
        return sherd__no_memory(space->diag, function);
    for (int64_t i = 0; i < parts; i++) {
        if (sizes[i] < 0 || !sherd__add(sum, sizes[i], &sum))
            return sherd__fail(
                space->diag, SHERD_EINVAL,
                "%s: shard %lld of dim %d has the size %lld: sizes are not negative, "
                "and add up to the dim's, %lld",
                function, (long long)i, d, (long long)sizes[i], (long long)spec->shape[d]);
        cuts[i + 1] = sum;
    }
    if (sum != spec->shape[d])
        return sherd__fail(space->diag, SHERD_EINVAL,
                           "%s: the %lld shard sizes of dim %d do not add up to its size %lld, but "
                           "to %lld",
                           function, (long long)parts, d, (long long)spec->shape[d],
                           (long long)sum);
    return SHERD_OK;
}

static sherd_status build(const sherd_layout **out, const char *function, const sherd_mesh *mesh,
                          sherd__layout_spec *spec, const sherd_layout_options *options)
{
    int64_t *cuts[SHERD_MAX_DIMS] = {NULL};
    sherd_status status = SHERD_OK;

    for (int d = 0; status == SHERD_OK && options && d < spec->ndim; d++) {
        if (options->order)
            status = put_in_order(spec, function, mesh, d, options->order);
        if (status == SHERD_OK && options->sizes && options->sizes[d])
            status = cuts_from(&cuts[d], spec, function, d, options->sizes[d]);
        spec->dim[d].cuts = cuts[d];
    }
    if (status == SHERD_OK)
        status = sherd__layout_intern_as(out, function, spec);
    for (int d = 0; d < spec->ndim; d++)
        sherd__free(mesh->space->heap, cuts[d]);
    return status;
}

sherd_status sherd__layout_build(const sherd_layout **out, const char *function,
                                 const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                 const sherd_placement *placements,
                                 const sherd_layout_options *options)
{
    sherd__layout_spec spec;

    *out = NULL;
    if (ndim < 0 || ndim > SHERD_MAX_DIMS)
        return sherd__fail(mesh->space->diag, ndim < 0 ? SHERD_EINVAL : SHERD_ELIMIT,
                           "%s: %d dims, not 0 to %d", function, ndim, SHERD_MAX_DIMS);
    if (ndim > 0 && !shape)
        return sherd__fail(mesh->space->diag, SHERD_EINVAL, "%s: shape is NULL", function);
    start(&spec, mesh);
    spec.ndim = ndim;
    for (int d = 0; d < ndim; d++)
        spec.shape[d] = shape[d];
    for (int i = 0; i < mesh->axes; i++) {
        sherd_status status = place(&spec, function, mesh->root_axis[i], placements[i]);
        if (status != SHERD_OK)
            return status;
    }
    return build(out, function, mesh, &spec, options);
}

sherd_status sherd_layout_create(const sherd_layout **out, const sherd_mesh *mesh, int ndim,
                                 const int64_t *shape, const sherd_placement *placements,
                                 const sherd_layout_options *options)
{
    static const char function[] = "sherd_layout_create";
    const sherd__argument need[] = {
        {"out", out}, {"mesh", mesh}, {"placements", placements}, {NULL, NULL}};

    if (out)
        *out = NULL;
    if (sherd__require(mesh ? mesh->space->diag : NULL, function, need))
        return SHERD_EINVAL;
    return sherd__layout_build(out, function, mesh, ndim, shape, placements, options);
}

/* ---- changing one axis ---------------------------------------------------------------------- */

/*
 * The cuts of a dim whose list of axes changed from `old` to `dim`: what the two lists share from
 * the outside keeps its cuts, each further axis cuts by the chunk rule. *out is memory that the
 * caller frees; NULL where the default stays.
 */
static sherd_status carry_cuts(int64_t **out, const sherd_mesh *mesh, const char *function,
                               const sherd__dim *old, sherd__dim *dim, int64_t n)
{
    int keep = sherd__dim_shared(old, dim);

    dim->cuts = NULL;
    if (!old->cuts)
        return SHERD_OK;
    *out = sherd__alloc(mesh->space->heap, (size_t)sherd__dim_parts(mesh, dim) + 1, sizeof **out);
    if (!*out)
        return sherd__no_memory(mesh->space->diag, function);
    sherd__dim_refine(mesh, old, keep, dim, n, *out);
    dim->cuts = *out;
    return SHERD_OK;
}

/* Take an axis out of the lists and pending reductions of a spec. */
static void lift(sherd__layout_spec *spec, int axis)
{
    spec->pending[axis] = -1;
    for (int d = 0; d < spec->ndim; d++) {
        sherd__dim *dim = &spec->dim[d];
        int left = 0;
        for (int i = 0; i < dim->axes; i++)
            if (dim->axis[i] != axis)
                dim->axis[left++] = dim->axis[i];
        dim->axes = left;
    }
}

bool sherd__placement_equal(sherd_placement a, sherd_placement b)
{
    if (a.kind != b.kind)
        return false;
    return a.kind == SHERD_SHARD ? a.dim == b.dim : a.kind != SHERD_PARTIAL || a.op == b.op;
}

/* Whether two placements are equal; `a` is a user's, with any dim. */
static bool same_placement(sherd_placement a, sherd_placement b, int ndim)
{
    if (a.kind == SHERD_UNSET)
        a.kind = SHERD_REPLICATE;
    if (a.kind == SHERD_SHARD && a.dim < 0)
        a.dim += ndim;
    return sherd__placement_equal(a, b);
}

sherd_status sherd_layout_with(const sherd_layout **out, const sherd_layout *layout,
                               const sherd_mesh *mesh, int axis, sherd_placement placement)
{
    static const char function[] = "sherd_layout_with";
    const sherd__argument need[] = {{"out", out}, {"layout", layout}, {"mesh", mesh}, {NULL, NULL}};
    sherd__space *space = layout ? layout->space : mesh ? mesh->space : NULL;
    int64_t *cuts[SHERD_MAX_DIMS] = {NULL};

    if (out)
        *out = NULL;
    if (sherd__require(space ? space->diag : NULL, function, need))
        return SHERD_EINVAL;
    sherd__layout_spec spec = layout->spec;
    if (mesh->root != spec.mesh)
        return sherd__fail(mesh->space->diag, SHERD_EINVAL,
                           "%s: the mesh (%s) is not a part of that of %s", function, mesh->text,
                           layout->text);
    if (axis < 0 || axis >= mesh->axes)
        return sherd__fail(mesh->space->diag, SHERD_EINVAL,
                           "%s: no axis %d in the mesh (%s) of %d axes", function, axis, mesh->text,
                           mesh->axes);
    axis = mesh->root_axis[axis];
    if (same_placement(placement, sherd_layout_placement(layout, axis), spec.ndim)) {
        if (!sherd__layout_hold(layout))
            return sherd__no_memory(mesh->space->diag, function);
        *out = layout;
        return SHERD_OK;
    }
    lift(&spec, axis);
    sherd_status status = place(&spec, function, axis, placement);
    for (int d = 0; status == SHERD_OK && d < spec.ndim; d++)
        if (spec.dim[d].axes != layout->spec.dim[d].axes)
            status = carry_cuts(&cuts[d], spec.mesh, function, &layout->spec.dim[d], &spec.dim[d],
                                spec.shape[d]);
    if (status == SHERD_OK)
        status = sherd__layout_intern_as(out, function, &spec);
    for (int d = 0; d < spec.ndim; d++)
        sherd__free(mesh->space->heap, cuts[d]);
    return status;
}
