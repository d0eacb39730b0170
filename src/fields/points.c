/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k nearest points, and those within a radius. Both are composed of a search that is not
 * recorded, which finds squared distances and indices, and one operator that computes distances
 * from them, through which gradients flow to both clouds.
 */
#include "points.h"
#include "vector/choose.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "kernels/points.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_points.h"
#include "sherd/ops_reductions.h"
#include "apply/solve.h"
#include "ops/pick.h"

typedef struct wanted {
    int64_t k;
    double radius;
    double period[SHERD_MAX_DIMS];
} wanted;

#define WANTED_FIELDS                                                       \
    {                                                                       \
        SHERD_FIELD(wanted, k, INT64), SHERD_FIELD(wanted, radius, DOUBLE), \
            SHERD_FIELDS(wanted, period, DOUBLE, SHERD_MAX_DIMS)            \
    }

/* The periods of a space. */
typedef struct space {
    double period[SHERD_MAX_DIMS];
} space;

#define SPACE_FIELDS                                        \
    {                                                       \
        SHERD_FIELDS(space, period, DOUBLE, SHERD_MAX_DIMS) \
    }

enum { POINTS, QUERIES };

/* ---- differences ----------------------------------------------------------------------------- */

/* Of queries [m, d] and what is near them [m, k, d], in a periodic space: those of the nearest
 * images, in f64, rounded once. */
static bool subtract_images(sherd_call *call)
{
    const space *in = call->attributes;
    const sherd_tensor *y = call->out[0];
    int64_t dims = sherd__max(y->local[2], 1), k = sherd__max(y->local[1], 1);
    double *query = sherd__widened(call, call->in[0], call->from[0]);
    double *by = sherd__widened(call, call->in[1], call->from[1]);

    if (!query || !by || sherd__is_dry(call->world))
        return query && by;
    for (int64_t i = 0; i < y->count; i++) {
        double period = in->period[i % dims], *at = &by[i];
        *at = query[i / (k * dims) * dims + i % dims] - *at;
        if (period > 0)
            *at = sherd__nearest_image(*at, period);
    }
    sherd__convert(sherd__world_kernels(call->world), y->dtype, SHERD_F64, y->count, call->to[0],
                   by);
    return true;
}

static void images_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd_node_wants(node, 0))
        grad_in[0] = sherd_sum_over(grad_out[0], (int[]){1}, 1, false);
    if (sherd_node_wants(node, 1))
        grad_in[1] = sherd_neg(grad_out[0]);
}

static const sherd_op images_op = {.name = "sherd_knn differences",
                                   .operand = {{"queries", 0}, {"near", 0}},
                                   .result = {{"y", 0}},
                                   .field = SPACE_FIELDS,
                                   .attributes = sizeof(space),
                                   .rule = "md,mkd->mkd",
                                   .whole = "d",
                                   .forward = subtract_images,
                                   .dry = subtract_images,
                                   .backward = images_back};

/* From each of near [m, k, d] to its query [m, d]. */
static sherd_tensor *difference(sherd_tensor *queries, sherd_tensor *near, const space *in)
{
    if (!sherd__periods(in->period))
        return sherd_sub(sherd_unsqueeze(queries, 1), near);
    return sherd_apply(&images_op, (sherd_tensor *[]){queries, near}, 2, in);
}

/* ---- distances ------------------------------------------------------------------------------- */

enum { SQUARES = 2, FOUND, OPERANDS };
enum { DISTANCES, INDICES, COUNTS, RESULTS };

static const char *describe_distances(sherd_call *call)
{
    const int64_t *shape = call->in[FOUND]->shape;

    sherd_call_shape(call, DISTANCES, 2, shape);
    sherd_call_shape(call, INDICES, 2, shape);
    sherd_call_shape(call, COUNTS, 1, shape);
    return NULL;
}

/*
 * The results have the layout of what was found; the clouds, of which nothing is read, keep theirs.
 */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *found = sherd__way_given(ways, FOUND), *result[RESULTS];
    sherd__layout_spec rows = found->spec;

    (void)call;
    rows.ndim = 1;
    result[DISTANCES] = result[INDICES] = found;
    sherd_status status = sherd__layout_intern(&result[COUNTS], &rows);
    return status ? status : sherd__way_as_given(ways, result);
}

static bool make_distances(sherd_call *call)
{
    const sherd_tensor *y = call->out[DISTANCES];
    const double *square = call->from[SQUARES];
    const int32_t *found = call->from[FOUND];
    int32_t *index = call->to[INDICES], *counts = call->to[COUNTS];
    double *root = sherd_call_scratch(call, sherd__max(y->count, 1) * (int64_t)sizeof *root);
    int64_t rows = y->count ? y->local[0] : 0, k = y->local[1];

    if (!root || sherd__is_dry(call->world))
        return root != NULL;
    for (int64_t i = 0; i < rows; i++) {
        int32_t count = 0;
        for (int64_t e = i * k; e < (i + 1) * k; e++) {
            bool is_there = found[e] != SHERD__NOBODY;
            root[e] = is_there ? sqrt(square[e]) : 0;
            index[e] = is_there ? found[e] : -1;
            count += is_there;
        }
        counts[i] = count;
    }
    sherd__convert(sherd__world_kernels(call->world), y->dtype, SHERD_F64, y->count,
                   call->to[DISTANCES], root);
    return true;
}

/* [m, k] as [m k]. */
static sherd_tensor *in_a_row(sherd_tensor *t)
{
    return sherd_flatten(t, 0, 1);
}

/*
 * For y = |q - p| the gradient of q is (q - p) / y, that of p the opposite; in a periodic space
 * those of the image that is nearest. The points that were found are fetched to the queries, and
 * their gradients sent back, by their owners. They are settled before they are subtracted: addends
 * of a pending sum would be multiplied each by itself, and the difference of two large products
 * that cancel is noise. Where y is 0 nothing pulls: it is not divided by 0 there, since the
 * gradient of that, which a recorded backward asks for, is NaN.
 */
static void distances_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *y = sherd_node_result(node, DISTANCES), *g = grad_out[DISTANCES];
    sherd_tensor *queries = sherd_node_operand(node, QUERIES);
    const int64_t *cloud;

    sherd_node_shape(node, POINTS, &cloud);
    if (!g)
        return;
    if (cloud[0] == 0) { /* of no points none was found */
        for (int i = POINTS; i <= QUERIES; i++)
            if (sherd_node_wants(node, i))
                grad_in[i] = sherd__zeros_like_operand(node, i);
        return;
    }
    sherd_tensor *found = sherd_node_result(node, INDICES);
    sherd_tensor *index = in_a_row(sherd_masked_fill(found, sherd_lt_scalar(found, 0), 0));
    sherd_tensor *near = sherd_index_select(sherd_node_operand(node, POINTS), 0, index);
    near = sherd_unflatten(sherd__without_pending(near), 0, y->shape, 2);
    sherd_tensor *together = sherd_eq_scalar(y, 0);
    sherd_tensor *share = sherd_div(g, sherd_masked_fill(y, together, 1));
    share = sherd_masked_fill(share, together, 0);
    sherd_tensor *pull = sherd_mul(difference(queries, near, sherd_node_attributes(node)),
                                   sherd_unsqueeze(share, 2));
    if (sherd_node_wants(node, QUERIES))
        grad_in[QUERIES] = sherd_sum_over(pull, (int[]){1}, 1, false);
    if (sherd_node_wants(node, POINTS))
        grad_in[POINTS] = sherd__gather_back(node, index, in_a_row(sherd_scale(pull, -1)), 0, true);
}

#define CLOUDS_AND_RESULTS                                                                       \
    SHERD_NEEDS_OPERAND(POINTS) | SHERD_NEEDS_OPERAND(QUERIES) | SHERD_NEEDS_RESULT(DISTANCES) | \
        SHERD_NEEDS_RESULT(INDICES)

static const sherd_op distances_op = {
    .name = "sherd_knn distances",
    .operand = {{"points", 0},
                {"queries", 0},
                {"squares", SHERD_OP_ANY},
                {"found", SHERD_OP_INDEX}},
    .result = {{"distances", 0}, {"indices", SHERD_OP_INDEX}, {"counts", SHERD_OP_INDEX}},
    .field = SPACE_FIELDS,
    .attributes = sizeof(space),
    .describe = describe_distances,
    .ways = lie,
    .forward = make_distances,
    .dry = make_distances,
    .backward = distances_back,
    .needs = {CLOUDS_AND_RESULTS, CLOUDS_AND_RESULTS}};

/* ---- the search ------------------------------------------------------------------------------ */

/* What is wrong with the periods; NULL: nothing. A radius of no more than half a period reaches one
 * image of each point at most. */
static const char *period_fault(sherd_call *call, const wanted *at, int64_t dims, bool is_knn)
{
    for (int d = 0; d < SHERD_MAX_DIMS; d++) {
        double period = at->period[d];
        if (!(period >= 0 && period <= DBL_MAX))
            return sherd_call_reason(call, "the period of coordinate %d is %g", d, period);
        if (period > 0 && d >= dims)
            return sherd_call_reason(call, "a period of coordinate %d, and there are %lld", d,
                                     (long long)dims);
        if (period > 0 && dims > SHERD_MAX_DIMS)
            return sherd_call_reason(call, "%lld coordinates: a periodic space has at most %d",
                                     (long long)dims, SHERD_MAX_DIMS);
        if (!is_knn && period > 0 && at->radius > period / 2)
            return sherd_call_reason(call,
                                     "the radius %g is more than half of the period %g of "
                                     "coordinate %d: it would reach several images of a point",
                                     at->radius, period, d);
    }
    return NULL;
}

static const char *describe(sherd_call *call)
{
    const wanted *at = call->attributes;
    const sherd_tensor *points = call->in[POINTS], *queries = call->in[QUERIES];
    bool is_knn = call->op == &sherd__knn_op;

    if (points->ndim != 2 || queries->ndim != 2)
        return "points must be [n, d] and queries [m, d]";
    if (points->shape[1] != queries->shape[1] || points->shape[1] < 1 ||
        points->shape[1] > INT32_MAX)
        return "points and queries must have the same coordinates, one at least";
    if (points->shape[0] >= INT32_MAX || queries->shape[0] >= INT32_MAX)
        return "there are more points or queries than an i32 counts";
    if (at->k < 1 || (is_knn && at->k > points->shape[0]))
        return sherd_call_reason(call, "%lld of %lld points", (long long)at->k,
                                 (long long)points->shape[0]);
    if (!is_knn && !(at->radius >= 0 && at->radius <= DBL_MAX))
        return sherd_call_reason(call, "the radius is %g", at->radius);
    return period_fault(call, at, points->shape[1], is_knn);
}

/* Both clouds on one mesh, or both plain. False: failed. */
static bool bring_together(sherd_call *call)
{
    const sherd_mesh *mesh = NULL;

    for (int i = POINTS; i <= QUERIES; i++) {
        const sherd_layout *layout = call->in[i]->layout;
        if (layout && mesh && layout->spec.mesh != mesh)
            return sherd_call_fail(call, SHERD_EINVAL, "operands lie on two meshes");
        mesh = layout ? layout->spec.mesh : mesh;
    }
    for (int i = POINTS; i <= QUERIES && mesh; i++)
        call->in[i] = sherd__promote_recorded(call->in[i], mesh, call->op->name);
    return !sherd_tensor_failed(call->in[POINTS]) && !sherd_tensor_failed(call->in[QUERIES]);
}

/* Move the results to their final layout. */
static void move_both(sherd_tensor **found, const sherd_layout *to)
{
    sherd_tensor *from[] = {found[0], found[1]};
    const sherd_layout *both[] = {to, to};

    if (!sherd_tensor_failed(from[0]) && !sherd_tensor_failed(from[1]))
        sherd__move_list(found, from, both, 2, false);
}

/* Squared distances and indices [m, k]; moves the clouds to the layouts for the search. */
static bool search(sherd_call *call, sherd__nearest *at, sherd_tensor **found)
{
    sherd_tensor **in = call->in;
    sherd__search_plan plan = {.apart = false};

    if (!in[POINTS]->layout)
        return sherd_apply_all(found, &sherd__nearest_op, in, 2, at);
    if (sherd__plan_search(&plan, in[POINTS]->layout, in[QUERIES]->layout, at->k,
                           sherd_dtype_bytes(in[POINTS]->dtype))) {
        sherd__fail_diag(call->world, true);
        return false;
    }
    at->apart = plan.apart;
    in[POINTS] = sherd_redistribute(in[POINTS], plan.points, NULL);
    sherd_tensor *queries = sherd_redistribute(in[QUERIES], plan.queries, NULL);
    if (!sherd_apply_all(found, &sherd__nearest_op, (sherd_tensor *[]){in[POINTS], queries}, 2, at))
        return false;
    if (plan.apart) {
        move_both(found, plan.joined);
        sherd_apply_all(found, &sherd__nearest_join_op, found, 2, NULL);
    }
    move_both(found, plan.result);
    return !sherd_tensor_failed(found[0]) && !sherd_tensor_failed(found[1]);
}

static bool compose(sherd_call *call)
{
    const wanted *at = call->attributes;
    bool is_knn = call->op == &sherd__knn_op;
    sherd__nearest nearest = {.k = at->k, .most = INFINITY};
    sherd_tensor *found[2], *out[RESULTS];
    space in;

    memcpy(nearest.period, at->period, sizeof nearest.period);
    memcpy(in.period, at->period, sizeof in.period);
    if (!is_knn)
        nearest.most = fmin(at->radius * at->radius, DBL_MAX);
    if (!bring_together(call) || !search(call, &nearest, found) ||
        !sherd_apply_all(
            out, &distances_op,
            (sherd_tensor *[]){call->in[POINTS], call->in[QUERIES], found[0], found[1]}, OPERANDS,
            &in))
        return false;
    for (int j = 0; j < call->results; j++)
        call->out[j] = out[j];
    return true;
}

const sherd_op sherd__knn_op = {
    .name = "sherd_knn",
    .summary = "the nearest points, exactly",
    .layouts = "any; pieces of points go round a ring, or queries to the points",
    .operand = {{"points", 0}, {"queries", 0}},
    .result = {{"distances", 0}, {"indices", SHERD_OP_INDEX}},
    .field = WANTED_FIELDS,
    .attributes = sizeof(wanted),
    .describe = describe,
    .compose = compose};

const sherd_op sherd__radius_search_op = {
    .name = "sherd_radius_search",
    .summary = "the points within a radius",
    .layouts = "any; pieces of points go round a ring, or queries to the points",
    .operand = {{"points", 0}, {"queries", 0}},
    .result = {{"distances", 0}, {"indices", SHERD_OP_INDEX}, {"counts", SHERD_OP_INDEX}},
    .field = WANTED_FIELDS,
    .attributes = sizeof(wanted),
    .describe = describe,
    .compose = compose};

static void set_periods(wanted *at, const sherd_search_options *options)
{
    if (options)
        memcpy(at->period, options->period, sizeof at->period);
}

sherd_tensor *sherd_knn_with(sherd_tensor *points, sherd_tensor *queries, int64_t k,
                             const sherd_search_options *options, sherd_tensor **indices)
{
    wanted at = {.k = k};

    set_periods(&at, options);
    return sherd__apply_indexed(&sherd__knn_op, (sherd_tensor *[]){points, queries}, 2, &at,
                                indices);
}

sherd_tensor *sherd_knn(sherd_tensor *points, sherd_tensor *queries, int64_t k,
                        sherd_tensor **indices)
{
    return sherd_knn_with(points, queries, k, NULL, indices);
}

sherd_tensor *sherd_radius_search_with(sherd_tensor *points, sherd_tensor *queries, double radius,
                                       int64_t max_points, const sherd_search_options *options,
                                       sherd_tensor **indices, sherd_tensor **counts)
{
    sherd_tensor *out[RESULTS] = {NULL, NULL, NULL};
    wanted at = {.k = max_points, .radius = radius};

    set_periods(&at, options);
    sherd_apply_all(out, &sherd__radius_search_op, (sherd_tensor *[]){points, queries}, 2, &at);
    if (indices)
        *indices = out[INDICES];
    if (counts)
        *counts = out[COUNTS];
    return out[DISTANCES];
}

sherd_tensor *sherd_radius_search(sherd_tensor *points, sherd_tensor *queries, double radius,
                                  int64_t max_points, sherd_tensor **indices, sherd_tensor **counts)
{
    return sherd_radius_search_with(points, queries, radius, max_points, NULL, indices, counts);
}
