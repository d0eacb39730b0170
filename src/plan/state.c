/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States as keys, layouts and text. All of it is arithmetic on a few bytes, except for the layout
 * of a state, which is interned: a microsecond, and a list of cuts if cuts are explicit.
 */
#include "state.h"

#include <string.h>

void sherd__state_of(sherd__state *out, const sherd_layout *layout)
{
    const sherd__layout_spec *spec = &layout->spec;

    memset(out, 0, sizeof *out);
    memset(out->pending, -1, sizeof out->pending);
    for (int d = 0; d < spec->ndim; d++) {
        out->axes[d] = (int8_t)spec->dim[d].axes;
        for (int i = 0; i < spec->dim[d].axes; i++)
            out->axis[d][i] = (int8_t)spec->dim[d].axis[i];
    }
    for (int i = 0; i < spec->mesh->axes; i++)
        out->pending[i] = (int8_t)spec->pending[i];
}

void sherd__state_drop(sherd__state *state, int axis)
{
    state->pending[axis] = -1;
    for (int d = 0; d < SHERD_MAX_DIMS; d++) {
        int left = 0;
        for (int i = 0; i < state->axes[d]; i++)
            if (state->axis[d][i] != axis)
                state->axis[d][left++] = state->axis[d][i];
        for (int i = left; i < state->axes[d]; i++)
            state->axis[d][i] = 0;
        state->axes[d] = (int8_t)left;
    }
}

_Static_assert(SHERD_MAX_AXES <= 8 && SHERD_MAX_DIMS <= 8, "a byte for each axis, places below 8");

/* Per axis: 0 = replicated, 1 + 8 * dim + place = sharded, 65 + op = pending. */
uint64_t sherd__state_key(const sherd__state *state, int axes, int ndim)
{
    uint64_t key = 0;

    for (int i = 0; i < axes; i++)
        if (state->pending[i] >= 0)
            key |= (uint64_t)(65 + state->pending[i]) << 8 * (SHERD_MAX_AXES - 1 - i);
    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < state->axes[d]; i++)
            key |= (uint64_t)(1 + 8 * d + i) << 8 * (SHERD_MAX_AXES - 1 - state->axis[d][i]);
    return key;
}

/* ---- layouts -------------------------------------------------------------------------------- */

void sherd__dim_strip(const sherd_mesh *mesh, sherd__dim *dim)
{
    int left = 0;

    for (int i = 0; i < dim->axes; i++)
        if (mesh->extent[dim->axis[i]] > 1)
            dim->axis[left++] = dim->axis[i];
    dim->axes = left;
}

/* Cuts that are the default: as explicit ones they would be priced otherwise. */
static void drop_default(int64_t **cuts, const sherd_layout *from, const sherd__dim *dim, int d)
{
    sherd__dim plain = *dim, listed = *dim;

    plain.cuts = NULL;
    listed.cuts = *cuts;
    if (!sherd__dim_equal(from->spec.mesh, &listed, &plain, from->spec.shape[d]))
        return;
    sherd__free(from->space->heap, *cuts);
    *cuts = NULL;
}

sherd_status sherd__state_cuts(int64_t **out, const sherd__dim *dim, const sherd_layout *from,
                               const sherd_layout *to, int d)
{
    const sherd_mesh *mesh = from->spec.mesh;
    sherd__dim own = *dim, model = from->spec.dim[d], other = to->spec.dim[d];

    *out = NULL;
    if (!model.cuts && !other.cuts)
        return SHERD_OK;
    sherd__dim_strip(mesh, &own);
    sherd__dim_strip(mesh, &model);
    sherd__dim_strip(mesh, &other);
    int keep = sherd__dim_shared(&own, &model);
    if (keep < own.axes && sherd__dim_shared(&own, &other) == own.axes) {
        model = other;
        keep = own.axes;
    }
    if (!model.cuts || keep == 0)
        return SHERD_OK;
    *out = sherd__alloc(from->space->heap, (size_t)sherd__dim_parts(mesh, &own) + 1, sizeof **out);
    if (!*out)
        return sherd__no_memory(from->space->diag, "sherd_plan_create");
    sherd__dim_refine(mesh, &model, keep, &own, from->spec.shape[d], *out);
    drop_default(out, from, &own, d);
    return SHERD_OK;
}

sherd_status sherd__state_layout(const sherd_layout **out, const sherd__state *state,
                                 const sherd_layout *from, const sherd_layout *to)
{
    sherd__layout_spec spec;
    int64_t *cuts[SHERD_MAX_DIMS] = {NULL};
    sherd_status status = SHERD_OK;

    *out = NULL;
    memset(&spec, 0, sizeof spec);
    spec.mesh = from->spec.mesh;
    spec.ndim = from->spec.ndim;
    memcpy(spec.shape, from->spec.shape, sizeof spec.shape);
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        spec.pending[i] = state->pending[i];
    for (int d = 0; d < spec.ndim && status == SHERD_OK; d++) {
        spec.dim[d].axes = state->axes[d];
        for (int i = 0; i < state->axes[d]; i++)
            spec.dim[d].axis[i] = state->axis[d][i];
        status = sherd__state_cuts(&cuts[d], &spec.dim[d], from, to, d);
        spec.dim[d].cuts = cuts[d];
    }
    if (status == SHERD_OK)
        status = sherd__layout_intern(out, &spec);
    for (int d = 0; d < spec.ndim; d++)
        sherd__free(from->space->heap, cuts[d]);
    return status;
}

/* ---- text ----------------------------------------------------------------------------------- */

void sherd__state_write(sherd__writer *w, const sherd__state *state, int axes, int ndim)
{
    for (int a = 0; a < axes; a++) {
        bool sharded = false;
        for (int d = 0; d < ndim; d++)
            for (int i = 0; i < state->axes[d]; i++) {
                if (state->axis[d][i] != a)
                    continue;
                sharded = true;
                sherd__write(w, "S(%d)", d);
                if (state->axes[d] > 1)
                    sherd__write(w, "[%d]", i);
            }
        if (state->pending[a] >= 0)
            sherd__write(w, "P(%s)", sherd__reduce_op_name((sherd_reduce_op)state->pending[a]));
        else if (!sharded)
            sherd__write(w, "R");
    }
}

static bool on_two_meshes(const sherd__path *path)
{
    return path->at[0]->spec.mesh != path->at[path->stops - 1]->spec.mesh;
}

void sherd__path_write(sherd__writer *w, const void *path)
{
    const sherd__path *p = path;

    for (int i = 0; i < p->stops; i++) {
        const sherd__layout_spec *spec = &p->at[i]->spec;
        sherd__state state;
        if (i > 0)
            sherd__write(w, p->merged[i] ? "-->" : "->");
        sherd__state_of(&state, p->at[i]);
        if (on_two_meshes(p))
            sherd__write(w, "%s", p->at[i]->text);
        else
            sherd__state_write(w, &state, spec->mesh->axes, spec->ndim);
    }
}
