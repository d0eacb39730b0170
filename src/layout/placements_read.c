/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading placements and cuts: "S(0)[1]S(0)[0]R" and "0:4,6;1:2,2"; and reading the target of a
 * move. PyTorch's _S(dim,factor) is accepted if it is a shard order: then factor is the product of
 * the extents of the later mesh axes that shard the dim before this one. Any other _S spreads a
 * rank's part over several boxes and is refused.
 */
#include "inside.h"
#include "base/num.h"

#include <string.h>

/* One placement as it stands in the text. */
typedef struct noted {
    sherd_placement placement;
    int order;      /* of "[order]"; -1 = none */
    int64_t factor; /* of _S; 0 = none */
    sherd__scanner at;
} noted;

typedef struct reader {
    const char *function;
    const sherd_mesh *mesh;
    int ndim;
    sherd__scanner s;
    const char *end; /* of the placements, where cuts may follow */
    noted items[SHERD_MAX_AXES];
} reader;

static sherd_status scan_op(reader *r, sherd_reduce_op *op)
{
    sherd__diag *diag = r->mesh->space->diag;
    char name[16];

    *op = SHERD_SUM;
    if (!sherd__take(&r->s, "("))
        return SHERD_OK;
    sherd__skip_blanks(&r->s);
    sherd__scanner start = r->s;
    if (!sherd__take_name(&r->s, name, sizeof name) || !sherd__reduce_op_find(name, op))
        return sherd__expected(diag, r->function, &start, SHERD__REDUCE_OPS);
    if (!sherd__take(&r->s, ")"))
        return sherd__expected(diag, r->function, &r->s, ")");
    return SHERD_OK;
}

/* A dim of the tensor. */
static sherd_status scan_dim(reader *r, int *dim)
{
    int64_t value;

    sherd__skip_blanks(&r->s);
    sherd__scanner start = r->s;
    if (!sherd__take_integer(&r->s, &value) || value >= r->ndim)
        return sherd__expected(r->mesh->space->diag, r->function, &start,
                               "a dim of the tensor, which has %d", r->ndim);
    *dim = sherd__int(value);
    return SHERD_OK;
}

/* What follows the "S" or "_S". */
static sherd_status scan_shard(reader *r, noted *item, bool strided)
{
    sherd__diag *diag = r->mesh->space->diag;
    int64_t value;

    item->placement.kind = SHERD_SHARD;
    if (!sherd__take(&r->s, "("))
        return sherd__expected(diag, r->function, &r->s, "( and a dim");
    sherd_status status = scan_dim(r, &item->placement.dim);
    if (status != SHERD_OK)
        return status;
    if (strided && (!sherd__take(&r->s, ",") || !sherd__take_integer(&r->s, &item->factor) ||
                    item->factor < 1))
        return sherd__expected(diag, r->function, &r->s, ", and a factor >= 1");
    if (!sherd__take(&r->s, ")"))
        return sherd__expected(diag, r->function, &r->s, ")");
    if (strided || !sherd__take(&r->s, "["))
        return SHERD_OK;
    sherd__skip_blanks(&r->s);
    sherd__scanner start = r->s;
    if (!sherd__take_integer(&r->s, &value) || value >= r->mesh->axes)
        return sherd__expected(diag, r->function, &start, "a place in the shard order, 0 to %d",
                               r->mesh->axes - 1);
    item->order = sherd__int(value);
    if (!sherd__take(&r->s, "]"))
        return sherd__expected(diag, r->function, &r->s, "]");
    return SHERD_OK;
}

/* What follows the "P". */
static sherd_status scan_partial(reader *r, int axis)
{
    noted *item = &r->items[axis];
    sherd_status status = scan_op(r, &item->placement.op);

    item->placement.kind = SHERD_PARTIAL;
    for (int i = 0; status == SHERD_OK && i < axis; i++) {
        const sherd_placement *other = &r->items[i].placement;
        if (other->kind == SHERD_PARTIAL && !sherd__reduce_ops_mix(other->op, item->placement.op))
            status = sherd__expected(r->mesh->space->diag, r->function, &item->at,
                                     "P(%s) as on axis %s: of different ops only sum and avg mix",
                                     sherd__reduce_op_name(other->op), r->mesh->name[i]);
    }
    return status;
}

static sherd_status scan_item(reader *r, int axis)
{
    noted *item = &r->items[axis];

    sherd__skip_blanks(&r->s);
    memset(item, 0, sizeof *item);
    item->order = -1;
    item->at = r->s;
    if (sherd__take(&r->s, "R")) {
        item->placement = sherd_replicate();
        return SHERD_OK;
    }
    if (sherd__take(&r->s, "P"))
        return scan_partial(r, axis);
    if (sherd__take(&r->s, "_S"))
        return scan_shard(r, item, true);
    if (sherd__take(&r->s, "S"))
        return scan_shard(r, item, false);
    return sherd__expected(r->mesh->space->diag, r->function, &r->s,
                           "S(dim), R or P(op) for axis %s: the mesh (%s) has %d ax%s",
                           r->mesh->name[axis], r->mesh->text, r->mesh->axes,
                           r->mesh->axes == 1 ? "is" : "es");
}

/* ---- shard order ---------------------------------------------------------------------------- */

static bool shards(const noted *item, int dim)
{
    return item->placement.kind == SHERD_SHARD && item->placement.dim == dim;
}

/* Orders as given in brackets: all axes of the dim have one, and each place is taken once. */
static sherd_status order_given(const reader *r, int dim, int axes, int *order)
{
    unsigned places = 0;

    for (int i = 0; i < r->mesh->axes; i++) {
        const noted *item = &r->items[i];
        if (!shards(item, dim))
            continue;
        if (item->order < 0)
            return sherd__expected(r->mesh->space->diag, r->function, &item->at,
                                   "a shard order like [0] on all axes of dim %d or on none", dim);
        if (item->order >= axes || places >> item->order & 1)
            return sherd__expected(r->mesh->space->diag, r->function, &item->at,
                                   "each shard order of dim %d once, from [0] to [%d]", dim,
                                   axes - 1);
        places |= 1u << item->order;
        order[i] = item->order;
    }
    return SHERD_OK;
}

/*
 * From the last mesh axis to the first, put each axis of the dim behind those whose extents
 * multiply to its factor; a plain S has factor 1 and comes first. Without _S that is mesh order.
 */
static sherd_status order_found(const reader *r, int dim, int *order)
{
    const sherd_mesh *mesh = r->mesh;
    int list[SHERD_MAX_AXES], count = 0;

    for (int i = mesh->axes - 1; i >= 0; i--) {
        const noted *item = &r->items[i];
        int64_t factor = item->factor ? item->factor : 1, product = 1;
        int at = 0;
        if (!shards(item, dim))
            continue;
        while (at < count && product < factor)
            product *= mesh->extent[list[at++]];
        if (product != factor)
            return sherd__fail_at(
                mesh->space->diag, SHERD_ENOTSUP, r->function, &item->at,
                "_S(%d,%lld) on axis %s is not a shard order (no later axes of the "
                "dim multiply to %lld), so a rank would hold more than one box",
                dim, (long long)factor, mesh->name[i], (long long)factor);
        memmove(list + at + 1, list + at, (size_t)(count - at) * sizeof list[0]);
        list[at] = i;
        count++;
    }
    for (int i = 0; i < count; i++)
        order[list[i]] = i;
    return SHERD_OK;
}

static sherd_status find_order(const reader *r, int dim, int *order)
{
    int axes = 0;
    const noted *ordered = NULL;
    bool strided = false;

    for (int i = 0; i < r->mesh->axes; i++) {
        const noted *item = &r->items[i];
        if (!shards(item, dim))
            continue;
        axes++;
        strided = strided || item->factor > 0;
        if (item->order >= 0)
            ordered = item;
    }
    if (ordered && strided)
        return sherd__expected(r->mesh->space->diag, r->function, &ordered->at,
                               "no shard order beside _S on dim %d", dim);
    return ordered ? order_given(r, dim, axes, order) : order_found(r, dim, order);
}

/* ---- cuts ----------------------------------------------------------------------------------- */

/* Number of shards of a dim of the tensor. */
static int64_t parts_of(const reader *r, int dim)
{
    int64_t parts = 1;

    for (int i = 0; i < r->mesh->axes; i++)
        if (shards(&r->items[i], dim))
            parts *= r->mesh->extent[i];
    return parts;
}

/* "0:4,6;1:2,2" into sizes[ndim], memory that the caller frees also after a failure. */
static sherd_status scan_cuts(reader *r, const int64_t *shape, int64_t **sizes)
{
    sherd__space *space = r->mesh->space;
    int dim;

    if (sherd__at_end(&r->s))
        return SHERD_OK;
    do {
        sherd__skip_blanks(&r->s);
        const sherd__scanner start = r->s;
        sherd_status status = scan_dim(r, &dim);
        if (status != SHERD_OK)
            return status;
        if (sizes[dim])
            return sherd__expected(space->diag, r->function, &start, "the cuts of dim %d once",
                                   dim);
        if (!sherd__take(&r->s, ":"))
            return sherd__expected(space->diag, r->function, &r->s, ": and the shard sizes");
        status =
            sherd__sizes_scan(&sizes[dim], space, r->function, &r->s, parts_of(r, dim), shape[dim]);
        if (status != SHERD_OK)
            return status;
    } while (sherd__take(&r->s, ";"));
    if (!sherd__at_end(&r->s))
        return sherd__expected(space->diag, r->function, &r->s,
                               "; and another dim, or the end: the mesh makes %lld shards of dim "
                               "%d",
                               (long long)parts_of(r, dim), dim);
    return SHERD_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Whether cuts follow: they begin with the number of a dim. */
static bool at_cuts(reader *r)
{
    int64_t dim;
    sherd__scanner s = r->s;

    return sherd__take_integer(&s, &dim);
}

static sherd_status scan_placements(reader *r, const char *placements, bool cuts_behind, int *order)
{
    sherd_status status = SHERD_OK;

    r->s = (sherd__scanner){placements, placements};
    for (int i = 0; i < r->mesh->axes && status == SHERD_OK; i++)
        status = scan_item(r, i);
    if (status == SHERD_OK && !sherd__at_end(&r->s) && !(cuts_behind && at_cuts(r)))
        status = sherd__expected(r->mesh->space->diag, r->function, &r->s,
                                 "the end: the mesh (%s) has %d ax%s", r->mesh->text, r->mesh->axes,
                                 r->mesh->axes == 1 ? "is" : "es");
    sherd__skip_blanks(&r->s);
    r->end = r->s.at;
    for (int d = 0; d < r->ndim && status == SHERD_OK; d++)
        status = find_order(r, d, order);
    return status;
}

/* `cuts`: a text of their own; NULL = they may follow the placements in the same text. */
static sherd_status read(const sherd_layout **out, reader *r, const int64_t *shape,
                         const char *placements, const char *cuts)
{
    const sherd_mesh *mesh = r->mesh;
    int64_t *sizes[SHERD_MAX_DIMS] = {NULL};
    const int64_t *views[SHERD_MAX_DIMS];
    sherd_placement placement[SHERD_MAX_AXES];
    int order[SHERD_MAX_AXES] = {0};
    sherd_layout_options options = {order, views};

    sherd_status status = scan_placements(r, placements, !cuts, order);
    if (cuts)
        r->s = (sherd__scanner){cuts, cuts};
    if (status == SHERD_OK)
        status = scan_cuts(r, shape, sizes);
    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        views[d] = sizes[d];
    for (int i = 0; i < mesh->axes; i++)
        placement[i] = r->items[i].placement;
    if (status == SHERD_OK)
        status = sherd__layout_build(out, r->function, mesh, r->ndim, shape, placement, &options);
    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        sherd__free(mesh->space->heap, sizes[d]);
    return status;
}

sherd_status sherd_layout_parse_placements(const sherd_layout **out, const sherd_mesh *mesh,
                                           int ndim, const int64_t *shape, const char *placements,
                                           const char *cuts)
{
    const sherd__argument need[] = {{"out", out},
                                    {"mesh", mesh},
                                    {"shape", ndim > 0 ? (const void *)shape : ""},
                                    {"placements", placements},
                                    {NULL, NULL}};
    reader r = {.function = "sherd_layout_parse_placements", .mesh = mesh, .ndim = ndim};

    if (out)
        *out = NULL;
    if (sherd__require(mesh ? mesh->space->diag : NULL, r.function, need))
        return SHERD_EINVAL;
    if (ndim < 0 || ndim > SHERD_MAX_DIMS)
        return sherd__fail(mesh->space->diag, ndim < 0 ? SHERD_EINVAL : SHERD_ELIMIT,
                           "%s: %d dims, not 0 to %d", r.function, ndim, SHERD_MAX_DIMS);
    return read(out, &r, shape, placements, cuts ? cuts : "");
}

/* ---- where a tensor is to lie ---------------------------------------------------------------- */

sherd_status sherd__layout_keep_cuts(const sherd_layout **out, const sherd_layout *layout,
                                     const sherd_layout *from)
{
    sherd__layout_spec spec = layout->spec;

    for (int d = 0; d < spec.ndim; d++) {
        const sherd__dim *own = &from->spec.dim[d];
        if (sherd__dim_alike(own, &spec.dim[d]))
            spec.dim[d].cuts = own->cuts;
    }
    return sherd__layout_intern(out, &spec);
}

/* Whether a text shows dims, "[8(x),4]", not placements. */
static bool shows_dims(const char *text)
{
    return text[strcspn(text, "([")] == '[';
}

sherd_status sherd__target_read(const sherd_layout **out, const sherd__target *target,
                                const char *text)
{
    reader r = {.function = target->function, .mesh = target->mesh, .ndim = target->ndim};

    *out = NULL;
    if (shows_dims(text))
        return sherd__dims_read(out, target, text);
    sherd_status status = read(out, &r, target->shape, text, NULL);
    if (status == SHERD_OK && target->from && r.s.at == r.end)
        status = sherd__layout_keep_cuts(out, *out, target->from);
    return status;
}
