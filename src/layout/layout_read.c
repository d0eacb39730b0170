/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the full text of a layout: "f32[10(x:4,6),8] P(sum:y) on (x=2,y=2)". The mesh comes last,
 * so the text is read twice: first its form, noting the positions of names and sizes; then, with
 * the mesh known, their meaning. If the text is for an existing tensor, mesh and shape are known
 * beforehand, and the text must agree with them.
 */
#include "inside.h"

#include <string.h>

/* A dim, or a pending reduction, as noted by the first reading. */
typedef struct dim_note {
    int axes;
    sherd__scanner axis[SHERD_MAX_AXES]; /* where the names stand */
    sherd__scanner sizes;                /* where the sizes stand; text NULL = none */
} dim_note;

typedef struct pending_note {
    sherd_reduce_op op;
    sherd__scanner axis;
} pending_note;

typedef struct reader {
    const char *function;
    sherd__space *space;
    const sherd__target *target; /* NULL: any tensor */
    const sherd_mesh *mesh;
    sherd__scanner s;
    int dims, pendings;
    int64_t shape[SHERD_MAX_DIMS];
    dim_note dim[SHERD_MAX_DIMS];
    pending_note pending[SHERD_MAX_AXES];
    sherd_placement placement[SHERD_MAX_AXES];
    int order[SHERD_MAX_AXES];
} reader;

#define EXPECTED(r, ...) sherd__expected((r)->space->diag, (r)->function, &(r)->s, __VA_ARGS__)

/* ---- the form ------------------------------------------------------------------------------- */

/* The dtype, which need not be there. */
static sherd_status scan_dtype(reader *r, sherd_dtype *dtype)
{
    sherd__skip_blanks(&r->s);
    *dtype = SHERD_F32;
    if (*r->s.at == '[')
        return SHERD_OK;
    if (*r->s.at < 'A') /* not the letter of a dtype */
        return EXPECTED(r, "a dtype, or [ and the dims");
    const sherd__scanner start = r->s;
    sherd_status status = sherd__dtype_scan(dtype, r->space->diag, r->function, &r->s);
    if (status == SHERD_OK && r->target && *dtype != r->target->dtype)
        return sherd__expected(r->space->diag, r->function, &start, "%s, the dtype of the tensor",
                               sherd_dtype_name(r->target->dtype));
    return status;
}

/* A name that is looked up later. */
static bool skip_name(reader *r, sherd__scanner *at)
{
    char name[SHERD__NAME_BYTES];

    sherd__skip_blanks(&r->s);
    *at = r->s;
    return sherd__take_name(&r->s, name, sizeof name);
}

static bool skip_sizes(reader *r)
{
    int64_t size;

    do {
        if (!sherd__take_integer(&r->s, &size))
            return false;
    } while (sherd__take(&r->s, ","));
    return true;
}

/* The size of the next dim; if a tensor is given, it must be that of the tensor. */
static sherd_status scan_size(reader *r)
{
    const sherd__target *target = r->target;
    int d = r->dims;

    sherd__skip_blanks(&r->s);
    const sherd__scanner start = r->s;
    if (target && d >= target->ndim)
        return EXPECTED(r, "no further dim: the tensor has %d", target->ndim);
    sherd_status status = sherd__size_scan(r->shape, &r->dims, r->space->diag, r->function, &r->s);
    if (status == SHERD_OK && target && r->shape[d] != target->shape[d])
        return sherd__expected(r->space->diag, r->function, &start, "%lld, the size of dim %d",
                               (long long)target->shape[d], d);
    return status;
}

static sherd_status scan_dim(reader *r)
{
    sherd_status status = scan_size(r);

    if (status != SHERD_OK)
        return status;
    dim_note *dim = &r->dim[r->dims - 1];
    if (!sherd__take(&r->s, "("))
        return SHERD_OK;
    do {
        if (dim->axes == SHERD_MAX_AXES)
            return EXPECTED(r, "at most %d axes", SHERD_MAX_AXES);
        if (!skip_name(r, &dim->axis[dim->axes++]))
            return EXPECTED(r, "the name of an axis");
    } while (sherd__take(&r->s, ","));
    if (sherd__take(&r->s, ":")) {
        sherd__skip_blanks(&r->s);
        dim->sizes = r->s;
        if (!skip_sizes(r))
            return EXPECTED(r, "the size of a shard");
    }
    if (!sherd__take(&r->s, ")"))
        return EXPECTED(r, ")");
    return SHERD_OK;
}

static sherd_status scan_dims(reader *r)
{
    sherd_status status = SHERD_OK;

    if (!sherd__take(&r->s, "["))
        return EXPECTED(r, "[ and the dims");
    if (!(r->target && r->target->ndim > 0) && sherd__take(&r->s, "]"))
        return SHERD_OK;
    do
        status = scan_dim(r);
    while (status == SHERD_OK && sherd__take(&r->s, ","));
    if (status == SHERD_OK && r->target && r->dims < r->target->ndim)
        return EXPECTED(r, ", and dim %d: the tensor has %d", r->dims, r->target->ndim);
    if (status == SHERD_OK && !sherd__take(&r->s, "]"))
        status = EXPECTED(r, ", or ]");
    return status;
}

static sherd_status scan_pending(reader *r)
{
    char name[16];

    if (r->pendings == SHERD_MAX_AXES)
        return EXPECTED(r, "at most %d pending reductions", SHERD_MAX_AXES);
    pending_note *note = &r->pending[r->pendings++];
    if (!sherd__take(&r->s, "("))
        return EXPECTED(r, "( and a reduce op");
    sherd__skip_blanks(&r->s);
    const sherd__scanner start = r->s;
    if (!sherd__take_name(&r->s, name, sizeof name) || !sherd__reduce_op_find(name, &note->op))
        return sherd__expected(r->space->diag, r->function, &start, SHERD__REDUCE_OPS);
    if (!sherd__reduce_ops_mix(r->pending[0].op, note->op))
        return sherd__expected(r->space->diag, r->function, &start,
                               "%s as before: of different ops only sum and avg mix",
                               sherd__reduce_op_name(r->pending[0].op));
    if (!sherd__take(&r->s, ":"))
        return EXPECTED(r, ": and an axis");
    if (!skip_name(r, &note->axis))
        return EXPECTED(r, "the name of an axis");
    if (!sherd__take(&r->s, ")"))
        return EXPECTED(r, ")");
    return SHERD_OK;
}

/* The mesh is that of the tensor: the text may leave it out, or give it letter by letter. */
static sherd_status scan_known_mesh(reader *r)
{
    const char *text = sherd_mesh_root(r->target->mesh)->text;

    r->mesh = r->target->mesh;
    if (sherd__at_end(&r->s))
        return SHERD_OK;
    if (!sherd__take(&r->s, "on") || !sherd__take(&r->s, "("))
        return EXPECTED(r, "P(op:axis), on (%s) or the end", text);
    if (!sherd__take(&r->s, text) || !sherd__take(&r->s, ")"))
        return EXPECTED(r, "%s), the mesh of the tensor", text);
    return sherd__at_end(&r->s) ? SHERD_OK : EXPECTED(r, "the end");
}

/* " on (mesh)" and the end. */
static sherd_status scan_mesh(reader *r)
{
    if (!sherd__take(&r->s, "on") || !sherd__take(&r->s, "("))
        return EXPECTED(r, "P(op:axis) or on (mesh)");
    sherd_status status = sherd__mesh_scan(&r->mesh, r->space, r->function, &r->s);
    if (status != SHERD_OK)
        return status;
    if (!sherd__take(&r->s, ")"))
        return EXPECTED(r, ") after the mesh");
    if (!sherd__at_end(&r->s))
        return EXPECTED(r, "the end of the layout");
    return SHERD_OK;
}

/* ---- the meaning ---------------------------------------------------------------------------- */

/* Give a noted axis its placement; *axis gets its number. */
static sherd_status place(reader *r, const sherd__scanner *noted, sherd_placement placement,
                          int *axis)
{
    sherd__scanner s = *noted;
    char name[SHERD__NAME_BYTES] = "";

    if (sherd__take_name(&s, name, sizeof name))
        *axis = sherd_mesh_find_axis(r->mesh, name);
    else
        *axis = -1;
    if (*axis < 0)
        return sherd__expected(r->space->diag, r->function, noted, "an axis of the mesh (%s)",
                               r->mesh->text);
    if (r->placement[*axis].kind != SHERD_UNSET)
        return sherd__expected(r->space->diag, r->function, noted,
                               "an axis that does nothing yet, not %s again", name);
    r->placement[*axis] = placement;
    return SHERD_OK;
}

static sherd_status place_dim(reader *r, int d, int64_t **sizes)
{
    const dim_note *note = &r->dim[d];
    int64_t parts = 1;
    int axis = 0;

    for (int i = 0; i < note->axes; i++) {
        sherd_status status = place(r, &note->axis[i], sherd_shard(d), &axis);
        if (status != SHERD_OK)
            return status;
        r->order[axis] = i;
        parts *= r->mesh->extent[axis];
    }
    if (!note->sizes.text)
        return SHERD_OK;
    sherd__scanner s = note->sizes;
    sherd_status status = sherd__sizes_scan(sizes, r->space, r->function, &s, parts, r->shape[d]);
    if (status == SHERD_OK && !sherd__take(&s, ")"))
        status = sherd__expected(r->space->diag, r->function, &s,
                                 ") after %lld sizes, one per shard", (long long)parts);
    return status;
}

static sherd_status make(reader *r, const sherd_layout **out)
{
    int64_t *sizes[SHERD_MAX_DIMS] = {NULL};
    const int64_t *views[SHERD_MAX_DIMS];
    sherd_layout_options options = {r->order, views};
    sherd_status status = SHERD_OK;
    int axis;

    for (int d = 0; status == SHERD_OK && d < r->dims; d++) {
        status = place_dim(r, d, &sizes[d]);
        views[d] = sizes[d];
    }
    for (int i = 0; status == SHERD_OK && i < r->pendings; i++)
        status = place(r, &r->pending[i].axis, sherd_partial(r->pending[i].op), &axis);
    if (status == SHERD_OK)
        status = sherd__layout_build(out, r->function, r->mesh, r->dims, r->shape, r->placement,
                                     &options);
    for (int d = 0; d < r->dims; d++)
        sherd__free(r->space->heap, sizes[d]);
    return status;
}

static sherd_status read(const sherd_layout **out, reader *r, sherd_dtype *dtype)
{
    *out = NULL;
    sherd_status status = scan_dtype(r, dtype);
    if (status == SHERD_OK)
        status = scan_dims(r);
    while (status == SHERD_OK && sherd__take(&r->s, "P"))
        status = scan_pending(r);
    if (status == SHERD_OK)
        status = r->target ? scan_known_mesh(r) : scan_mesh(r);
    return status == SHERD_OK ? make(r, out) : status;
}

sherd_status sherd__layout_read(const sherd_layout **out, sherd__space *space, const char *text,
                                int *dtype)
{
    reader r = {.function = "sherd_layout_parse", .space = space, .s = {text, text}};
    sherd_dtype type;

    sherd_status status = read(out, &r, &type);
    if (status == SHERD_OK && dtype)
        *dtype = (int)type;
    return status;
}

sherd_status sherd__dims_read(const sherd_layout **out, const sherd__target *target,
                              const char *text)
{
    reader r = {.function = target->function,
                .space = target->mesh->space,
                .target = target,
                .s = {text, text}};
    sherd_dtype type;

    return read(out, &r, &type);
}
