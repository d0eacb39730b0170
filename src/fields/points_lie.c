/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where points are searched. Either pieces of points pass by the queries: a rank receives all
 * points but its own. Or queries go to each shard of points, and what was found there, k for each
 * query and shard, comes back to be combined. The bytes that the busiest rank receives decide.
 * Either way queries are divided among all ranks that hold different points.
 */
#include "points.h"

#include "base/saturate.h"
#include "apply/sketch.h"

static const char name[] = "a search of points";

enum { FOUND_BYTES = 8 + 4 };

/*
 * Rows sharded as they are, with further axes appended; coordinates not sharded; nothing pending.
 */
static sherd_status divide(const sherd_layout **out, const sherd_layout *from,
                           const sherd__dim *more)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, from);
    sherd__spec_settle(&s.spec);
    s.spec.dim[1] = *more;
    s.spec.dim[1].cuts = NULL;
    sherd__sketch_move_axes(&s, 1, 0);
    return sherd__sketch_end(out, &s, name);
}

/*
 * [rows, width], or [shards, rows, width] if `shards` is given; `whole`: of all shards on all
 * ranks.
 */
static sherd_status lay(const sherd_layout **out, const sherd_layout *like,
                        const sherd__dim *shards, bool whole, const sherd__dim *rows, int64_t width)
{
    sherd__layout_spec spec = {.mesh = like->spec.mesh};

    sherd__spec_settle(&spec);
    if (shards) {
        spec.shape[spec.ndim] = sherd__dim_parts(spec.mesh, shards);
        if (!whole)
            spec.dim[spec.ndim] = *shards;
        spec.dim[spec.ndim++].cuts = NULL; /* one each */
    }
    spec.shape[spec.ndim] = like->spec.shape[0];
    spec.dim[spec.ndim++] = *rows;
    spec.shape[spec.ndim++] = width;
    return sherd__layout_intern(out, &spec);
}

/* What the busiest rank receives when it moves. */
static sherd_status price(int64_t *sum, const sherd_layout *from, const sherd_layout *to,
                          size_t bytes)
{
    int64_t more = 0;
    sherd_status status = sherd__price_moves(&more, 1, &from, &to);

    *sum = sherd__plus(*sum, sherd__times(more / SHERD__PRICED_BYTES, (int64_t)bytes));
    return status;
}

static int64_t shortest(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n)
{
    int64_t least = n;

    for (int64_t i = 0; i < sherd__dim_parts(mesh, dim); i++)
        least = sherd__min(least,
                           sherd__dim_cut(mesh, dim, n, i + 1) - sherd__dim_cut(mesh, dim, n, i));
    return least;
}

/* Queries stay, and pieces of points pass by. */
static sherd_status pass_by(sherd__search_plan *p, const sherd_layout *queries, int64_t k,
                            size_t bytes, int64_t *cost)
{
    const sherd__layout_spec *spec = &p->points->spec;
    const sherd_layout *made;
    sherd__dim more = sherd__dim_without(&spec->dim[0], sherd__dim_bits(&queries->spec.dim[0]));
    sherd__dim rest = sherd__dim_without(&queries->spec.dim[1], sherd__dim_bits(&more));

    for (int i = 0; i < rest.axes; i++)
        more.axis[more.axes++] = rest.axis[i];
    sherd_status status = divide(&p->queries, queries, &more);
    if (!status)
        status = lay(&made, queries, NULL, false, &p->queries->spec.dim[0], k);
    if (!status)
        status = lay(&p->result, queries, NULL, false, &queries->spec.dim[0], k);
    if (!status)
        status = price(cost, queries, p->queries, bytes);
    if (!status)
        status = price(cost, made, p->result, FOUND_BYTES);
    int64_t passing = spec->shape[0] - shortest(spec->mesh, &spec->dim[0], spec->shape[0]);
    *cost = sherd__plus(*cost, sherd__times(sherd__times(passing, spec->shape[1]), (int64_t)bytes));
    return status;
}

/* Queries go to the points, and the results are combined where `by` has the queries. */
static sherd_status go_there(sherd__search_plan *p, const sherd__search_plan *by,
                             const sherd_layout *queries, int64_t k, size_t bytes, int64_t *cost)
{
    const sherd__dim *shards = &p->points->spec.dim[0];
    sherd__dim rows = sherd__dim_without(&queries->spec.dim[0], sherd__dim_bits(shards));
    const sherd_layout *found, *made;
    sherd_status status = lay(&p->queries, queries, NULL, false, &rows, queries->spec.shape[1]);

    p->apart = true;
    p->result = by->result;
    if (!status)
        status = lay(&found, queries, shards, false, &rows, k);
    if (!status)
        status = lay(&p->joined, queries, shards, true, &by->queries->spec.dim[0], k);
    if (!status)
        status = lay(&made, queries, NULL, false, &by->queries->spec.dim[0], k);
    if (!status)
        status = price(cost, queries, p->queries, bytes);
    if (!status)
        status = price(cost, found, p->joined, FOUND_BYTES);
    return status ? status : price(cost, made, p->result, FOUND_BYTES);
}

sherd_status sherd__plan_search(sherd__search_plan *out, const sherd_layout *points,
                                const sherd_layout *queries, int64_t k, size_t bytes)
{
    sherd__search_plan there = {.apart = true};
    int64_t around = 0, away = 0;

    *out = (sherd__search_plan){.apart = false};
    sherd_status status = divide(&out->points, points, &points->spec.dim[1]);
    there.points = out->points;
    if (!status)
        status = pass_by(out, queries, k, bytes, &around);
    if (status || sherd__dim_parts(points->spec.mesh, &out->points->spec.dim[0]) == 1)
        return status;
    status = go_there(&there, out, queries, k, bytes, &away);
    if (!status && away < around)
        *out = there;
    return status;
}
