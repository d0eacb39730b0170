/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interning of layouts: equal layouts are one pointer. A spec is checked here, for all functions
 * that make layouts, and explicit cuts that equal the default are dropped before the lookup. Costs
 * one hash of the spec; a new layout also costs its texts. Whoever stores a layout counts it; other
 * layouts end with the scope in which they were made.
 */
#include "inside.h"
#include "base/hash.h"
#include "base/num.h"

#include <string.h>

/* ---- checking ------------------------------------------------------------------------------- */

static sherd_status check_shape(const char *function, const sherd__layout_spec *spec)
{
    sherd__diag *diag = spec->mesh->space->diag;
    int64_t count = 1;

    if (spec->ndim < 0 || spec->ndim > SHERD_MAX_DIMS)
        return sherd__fail(diag, SHERD_ELIMIT, "%s: %d dims, not 0 to %d", function, spec->ndim,
                           SHERD_MAX_DIMS);
    for (int d = 0; d < spec->ndim; d++) {
        if (spec->shape[d] < 0)
            return sherd__fail(diag, SHERD_EINVAL, "%s: dim %d has size %lld", function, d,
                               (long long)spec->shape[d]);
        if (spec->shape[d] >> SHERD__SIZE_LIMIT_LOG2)
            return sherd__fail(diag, SHERD_ELIMIT, "%s: dim %d has size %lld, not below 2^62",
                               function, d, (long long)spec->shape[d]);
    }
    /* A size of 0 counts as 1, so that no product of some sizes overflows either. */
    for (int d = 0; d < spec->ndim; d++)
        if (!sherd__mul(count, sherd__max(spec->shape[d], 1), &count))
            return sherd__fail(diag, SHERD_ELIMIT,
                               "%s: the sizes multiply to 2^62 or more (0 counts as 1)", function);
    return SHERD_OK;
}

static sherd_status check_axes(const char *function, const sherd__layout_spec *spec)
{
    const sherd_mesh *mesh = spec->mesh;
    unsigned used = 0;

    for (int d = 0; d < spec->ndim; d++)
        for (int i = 0; i < spec->dim[d].axes; i++) {
            int axis = spec->dim[d].axis[i];
            if (axis < 0 || axis >= mesh->axes)
                return sherd__fail(mesh->space->diag, SHERD_EINVAL,
                                   "%s: dim %d is sharded by axis %d of the mesh (%s)", function, d,
                                   axis, mesh->text);
            if (used >> axis & 1 || spec->pending[axis] >= 0)
                return sherd__fail(mesh->space->diag, SHERD_EINVAL,
                                   "%s: axis %s shards dim %d and does something else too",
                                   function, mesh->name[axis], d);
            used |= 1u << axis;
        }
    return SHERD_OK;
}

static sherd_status check_pending(const char *function, const sherd__layout_spec *spec)
{
    const sherd_mesh *mesh = spec->mesh;
    int first = -1;

    for (int i = 0; i < mesh->axes; i++) {
        int op = spec->pending[i];
        if (op < 0)
            continue;
        if (op > SHERD_PRODUCT)
            return sherd__fail(mesh->space->diag, SHERD_EINVAL, "%s: %d is not a reduce op",
                               function, op);
        if (first < 0)
            first = i;
        int other = spec->pending[first];
        if (!sherd__reduce_ops_mix((sherd_reduce_op)op, (sherd_reduce_op)other))
            return sherd__fail(mesh->space->diag, SHERD_EINVAL,
                               "%s: P(%s) on axis %s and P(%s) on axis %s: only sum and avg mix",
                               function, sherd__reduce_op_name((sherd_reduce_op)other),
                               mesh->name[first], sherd__reduce_op_name((sherd_reduce_op)op),
                               mesh->name[i]);
    }
    return SHERD_OK;
}

static sherd_status check_cuts(const char *function, const sherd__layout_spec *spec)
{
    for (int d = 0; d < spec->ndim; d++) {
        const int64_t *cuts = spec->dim[d].cuts;
        int64_t parts = sherd__dim_parts(spec->mesh, &spec->dim[d]);
        bool good = !cuts || (cuts[0] == 0 && cuts[parts] == spec->shape[d]);
        for (int64_t i = 0; cuts && good && i < parts; i++)
            good = cuts[i] <= cuts[i + 1];
        if (!good)
            return sherd__fail(spec->mesh->space->diag, SHERD_EINVAL,
                               "%s: the cuts of dim %d do not rise from 0 to its size %lld",
                               function, d, (long long)spec->shape[d]);
    }
    return SHERD_OK;
}

static sherd_status check(const char *function, const sherd__layout_spec *spec)
{
    sherd_status status = check_shape(function, spec);

    if (status == SHERD_OK)
        status = check_axes(function, spec);
    if (status == SHERD_OK)
        status = check_pending(function, spec);
    if (status == SHERD_OK)
        status = check_cuts(function, spec);
    return status;
}

/* ---- interning ------------------------------------------------------------------------------ */

static uint64_t hash_spec(const sherd__layout_spec *spec)
{
    uint64_t h = sherd__hash_word(0x6c61796f, spec->mesh->hash);

    h = sherd__hash_word(h, (uint64_t)spec->ndim);
    for (int d = 0; d < spec->ndim; d++) {
        const sherd__dim *dim = &spec->dim[d];
        h = sherd__hash_word(h, (uint64_t)spec->shape[d]);
        h = sherd__hash_word(h, (uint64_t)dim->axes);
        for (int i = 0; i < dim->axes; i++)
            h = sherd__hash_word(h, (uint64_t)dim->axis[i]);
        if (dim->cuts) {
            size_t parts = (size_t)sherd__dim_parts(spec->mesh, dim);
            h = sherd__hash_bytes(h, dim->cuts, (parts + 1) * sizeof *dim->cuts);
        }
    }
    for (int i = 0; i < spec->mesh->axes; i++)
        h = sherd__hash_word(h, (uint64_t)(spec->pending[i] + 1));
    return h;
}

/* Compares specs in which default cuts are NULL. */
static bool equals_spec(const void *item, const void *key)
{
    const sherd__layout_spec *a = &((const sherd_layout *)item)->spec, *b = key;

    if (a->mesh != b->mesh || a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++) {
        const sherd__dim *x = &a->dim[d], *y = &b->dim[d];
        if (a->shape[d] != b->shape[d] || !x->cuts != !y->cuts ||
            !sherd__dim_equal(a->mesh, x, y, a->shape[d]))
            return false;
    }
    return memcmp(a->pending, b->pending, (size_t)a->mesh->axes * sizeof a->pending[0]) == 0;
}

static bool is_default(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n)
{
    sherd__dim plain = *dim;

    plain.cuts = NULL;
    return sherd__dim_equal(mesh, dim, &plain, n);
}

/*
 * Replace the spec's cuts by copies; false for lack of memory, then none is left that is not its
 * own.
 */
static bool own_cuts(sherd__heap *heap, sherd__layout_spec *spec)
{
    bool good = true;

    for (int d = 0; d < spec->ndim; d++) {
        const int64_t *cuts = spec->dim[d].cuts;
        if (!cuts)
            continue;
        size_t count = (size_t)sherd__dim_parts(spec->mesh, &spec->dim[d]) + 1;
        int64_t *copy = good ? sherd__alloc(heap, count, sizeof *copy) : NULL;
        if (copy)
            memcpy(copy, cuts, count * sizeof *copy);
        good = copy != NULL;
        spec->dim[d].cuts = copy;
    }
    return good;
}

static sherd_layout *create(sherd__space *space, const sherd__layout_spec *spec, uint64_t hash)
{
    sherd_layout *layout = sherd__alloc(space->heap, 1, sizeof *layout);

    if (!layout)
        return NULL;
    layout->spec = *spec;
    layout->space = space;
    layout->hash = hash;
    for (int i = 0; i < spec->mesh->axes; i++)
        if (spec->pending[i] >= 0)
            layout->pending_axes |= 1u << i;
    layout->shards = 1;
    for (int d = 0; d < spec->ndim; d++)
        for (int i = 0; i < spec->dim[d].axes; i++) {
            layout->shard_axes |= 1u << spec->dim[d].axis[i];
            layout->shards *= spec->mesh->extent[spec->dim[d].axis[i]];
        }
    if (own_cuts(space->heap, &layout->spec)) {
        layout->text = sherd__written(space->heap, sherd__layout_write, layout);
        layout->placements = sherd__written(space->heap, sherd__placements_write, layout);
    }
    if (layout->text && layout->placements && sherd__layouts_reserve(space) &&
        sherd__map_add(&space->layouts, hash, layout))
        return layout;
    sherd__layout_free(space, layout);
    return NULL;
}

sherd_status sherd__layout_intern_as(const sherd_layout **out, const char *function,
                                     const sherd__layout_spec *given)
{
    sherd__space *space = given->mesh->space;
    sherd__layout_spec spec = *given;

    *out = NULL;
    sherd_status status = check(function, &spec);
    if (status != SHERD_OK)
        return status;
    for (int d = 0; d < spec.ndim; d++)
        if (spec.dim[d].cuts && is_default(spec.mesh, &spec.dim[d], spec.shape[d]))
            spec.dim[d].cuts = NULL;
    uint64_t hash = hash_spec(&spec);
    const sherd_layout *layout = sherd__map_find(&space->layouts, hash, equals_spec, &spec);
    if (!layout)
        layout = create(space, &spec, hash);
    if (!layout || !sherd__layout_hold(layout))
        return sherd__no_memory(space->diag, function);
    *out = layout;
    return SHERD_OK;
}

sherd_status sherd__layout_intern(const sherd_layout **out, const sherd__layout_spec *spec)
{
    return sherd__layout_intern_as(out, "layout", spec);
}

sherd_status sherd__layout_settle(const sherd_layout **out, const sherd_layout *layout)
{
    /* Not const: `settled` is a cache, it says nothing of what the layout is. */
    sherd_layout *noted = (sherd_layout *)(uintptr_t)layout;

    *out = NULL;
    if (!layout->settled && !layout->pending_axes) {
        noted->settled = layout;
    } else if (!layout->settled) {
        sherd__layout_spec spec = layout->spec;
        const sherd_layout *settled;
        for (int i = 0; i < spec.mesh->axes; i++)
            spec.pending[i] = -1;
        sherd_status status = sherd__layout_intern(&settled, &spec);
        if (status != SHERD_OK)
            return status;
        sherd__layout_set(&noted->settled, settled);
    }
    if (!sherd__layout_hold(layout->settled))
        return sherd__no_memory(layout->space->diag, "layout");
    *out = layout->settled;
    return SHERD_OK;
}

const sherd_layout *sherd_layout_retain(const sherd_layout *layout)
{
    const sherd_layout *counted = NULL;

    sherd__layout_set(&counted, layout);
    return counted;
}

void sherd_layout_release(const sherd_layout *layout)
{
    sherd__layout_set(&layout, NULL);
}
