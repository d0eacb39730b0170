/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for points: every rank searches one piece after the other, which come by windows, or
 * each rank its own piece. A rank holds its own piece of points and the one that it searches; one
 * call for each piece but its own.
 */
#include "points.h"

#include <string.h>

#include "base/num.h"
#include "kernels/points.h"
#include "plan/window.h"
#include "functional/rows.h"
#include "vector/choose.h"

enum { POINTS, QUERIES };
enum { SQUARES, INDICES };

static const char *describe(sherd_call *call)
{
    const sherd__nearest *at = call->attributes;
    const int64_t shape[] = {sherd__row_shards(call->in[POINTS]), call->in[QUERIES]->shape[0],
                             at->k};

    for (int j = 0; j < call->results; j++)
        sherd_call_shape(call, j, at->apart ? 3 : 2, at->apart ? shape : shape + 1);
    call->dtype[SQUARES] = SHERD_F64;
    return NULL;
}

/* The layouts are as given: points_lie.c has chosen them. */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd__nearest *at = call->attributes;
    const sherd_layout *given[] = {sherd__way_given(ways, POINTS), sherd__way_given(ways, QUERIES)};
    const sherd_layout *result[2];
    sherd__layout_spec spec = given[QUERIES]->spec;
    int rows = at->apart ? 1 : 0;

    spec.ndim = rows + 2;
    spec.dim[rows] = given[QUERIES]->spec.dim[0];
    if (at->apart) {
        spec.dim[0] = given[POINTS]->spec.dim[0];
        spec.dim[0].cuts = NULL;
    }
    spec.dim[rows + 1] = (sherd__dim){0};
    memcpy(spec.shape, call->shape[SQUARES], sizeof spec.shape);
    sherd_status status = sherd__layout_intern(&result[0], &spec);
    result[1] = result[0];
    return status ? status : sherd_way_add(ways, given, result);
}

/* ---- one piece ------------------------------------------------------------------------------- */

typedef struct hunt {
    sherd_call *call;
    sherd__found found;
    sherd__cloud queries;
    int64_t shards, mine; /* of points; this rank's */
} hunt;

double *sherd__widened(sherd_call *call, const sherd_tensor *t, const void *data)
{
    double *out = sherd_call_scratch(call, sherd__max(t->count, 1) * (int64_t)sizeof *out);

    if (out && !sherd__is_dry(call->world))
        sherd__convert(sherd__world_kernels(call->world), SHERD_F64, t->dtype, t->count, out, data);
    return out;
}

const double *sherd__periods(const double *period)
{
    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        if (period[d] > 0)
            return period;
    return NULL;
}

/* A piece as a cloud whose first point has this global index. False: no memory. */
static bool arrange(sherd_call *call, sherd__cloud *cloud, const sherd_tensor *piece,
                    const void *data, int64_t first)
{
    *cloud = (sherd__cloud){.n = piece->count ? piece->local[0] : 0, .d = (int)piece->local[1]};
    cloud->x = sherd__widened(call, piece, data);
    cloud->id = sherd_call_scratch(call, sherd__max(cloud->n, 1) * (int64_t)sizeof *cloud->id);
    cloud->box = sherd_call_scratch(call, sherd__cloud_boxes(cloud->n, cloud->d) *
                                              (int64_t)sizeof *cloud->box);
    if (!cloud->x || !cloud->id || !cloud->box)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    for (int64_t i = 0; i < cloud->n; i++)
        cloud->id[i] = (int32_t)(first + i);
    sherd__cloud_arrange(cloud);
    return true;
}

/* False: no memory. */
static bool search(hunt *h, const sherd_tensor *piece, const void *data, int64_t first)
{
    const sherd__nearest *at = h->call->attributes;
    sherd__cloud cloud;

    if (piece->count == 0 || h->queries.n == 0)
        return true;
    if (!arrange(h->call, &cloud, piece, data, first))
        return false;
    if (!sherd__is_dry(h->call->world))
        sherd__find(&h->found, &cloud, &h->queries, at->most, sherd__periods(at->period));
    return true;
}

/* ---- all pieces ------------------------------------------------------------------------------ */

/* The shard that each rank asks for: the one `step` places after its own. */
typedef struct turn {
    const sherd_layout *layout;
    int64_t step, shards;
} turn;

static void ask(const void *what, int d, int64_t shard, int64_t lo, int64_t hi, int64_t *first,
                int64_t *end)
{
    const turn *t = what;
    const sherd__layout_spec *spec = &t->layout->spec;
    int64_t other = (shard + t->step) % t->shards;

    *first = lo;
    *end = hi;
    if (d > 0)
        return;
    *first = sherd__dim_cut(spec->mesh, &spec->dim[0], spec->shape[0], other);
    *end = sherd__dim_cut(spec->mesh, &spec->dim[0], spec->shape[0], other + 1);
}

/* Fetch the piece `step` places after this rank's own, and search it. False: failed, raised. */
static bool fetch(hunt *h, int64_t step)
{
    sherd_tensor *points = h->call->in[POINTS];
    const sherd__layout_spec *spec = &points->layout->spec;
    const turn t = {points->layout, step, h->shards};
    sherd__windowed w = {.whole = points};

    if (sherd__window_create(&w.window, points->layout, &(sherd__asking){ask, &t, NULL})) {
        sherd__fail_diag(h->call->world, true);
        return false;
    }
    bool good = sherd__gather_windows_here(&w, 1, h->call->op->name);
    const void *data = good && w.piece->count ? sherd__data(w.piece) : NULL;
    good = good && (w.piece->count == 0 || data) &&
           search(h, w.piece, data,
                  sherd__dim_cut(spec->mesh, &spec->dim[0], spec->shape[0],
                                 (h->mine + step) % h->shards));
    sherd__window_release(w.window);
    return good;
}

/* Which shard of points this rank holds. */
static int64_t own_shard(const sherd_tensor *points)
{
    const sherd__layout_spec *spec = &points->layout->spec;
    int64_t coordinate[SHERD_MAX_AXES];

    return sherd__coordinate(points, coordinate)
               ? sherd__dim_shard(spec->mesh, &spec->dim[0], coordinate)
               : 0;
}

static bool find(sherd_call *call)
{
    const sherd__nearest *at = call->attributes;
    const sherd_tensor *points = call->in[POINTS], *queries = call->in[QUERIES];
    hunt h = {.call = call, .shards = sherd__row_shards(points)};
    bool good = true;

    h.found = (sherd__found){queries->local[0], at->k, call->to[SQUARES], call->to[INDICES]};
    if (call->out[SQUARES]->count == 0)
        h.found.m = 0;
    if (!sherd__is_dry(call->world))
        sherd__found_clear(&h.found);
    if (!arrange(call, &h.queries, queries, call->from[QUERIES], 0))
        return false;
    h.mine = points->layout ? own_shard(points) : 0;
    for (int64_t step = 0; step < (at->apart ? 1 : h.shards) && good; step++) {
        sherd_scope_begin(call->world);
        good = step ? fetch(&h, step)
                    : search(&h, points, call->from[POINTS], sherd_tensor_box(points).offset[0]);
        sherd_scope_end(call->world);
    }
    return good;
}

/* The distance from each query to each point: boxes that are too far away are not looked into, but
 * how many depends on the points. */
static double operations(const sherd_call *call)
{
    const sherd__nearest *at = call->attributes;
    const sherd_tensor *points = call->in[POINTS], *queries = call->in[QUERIES];
    int64_t n = at->apart ? points->local[0] : points->shape[0];

    return 3 * (double)n * (double)queries->local[0] * (double)points->shape[1];
}

const sherd_op sherd__nearest_op = {.name = "sherd_knn search",
                                    .operand = {{"points", 0}, {"queries", 0}},
                                    .result = {{"squares", 0}, {"indices", SHERD_OP_INDEX}},
                                    .field = SHERD__NEAREST_FIELDS,
                                    .attributes = sizeof(sherd__nearest),
                                    .describe = describe,
                                    .ways = lie,
                                    .forward = find,
                                    .dry = find,
                                    .operations = operations};

/* ---- what shards have found ------------------------------------------------------------------ */

static bool join(sherd_call *call)
{
    const sherd_tensor *parts = call->in[SQUARES], *out = call->out[SQUARES];
    sherd__found found = {out->count ? out->local[0] : 0, out->shape[1], call->to[SQUARES],
                          call->to[INDICES]};

    sherd__found_clear(&found);
    sherd__find_among(&found, parts->local[0], call->from[SQUARES], call->from[INDICES]);
    return true;
}

const sherd_op sherd__nearest_join_op = {
    .name = "sherd_knn join",
    .operand = {{"squares", SHERD_OP_ANY}, {"indices", SHERD_OP_INDEX}},
    .result = {{"squares", 0}, {"indices", SHERD_OP_INDEX}},
    .rule = "pmk,pmk->mk,mk",
    .whole = "pk",
    .forward = join};
