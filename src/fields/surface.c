/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signed distance to a surface of triangles (sherd_signed_distance). Every rank has the whole
 * surface and searches for its own points; so only the surface moves, if it is sharded. Composed of
 * that search, which is not recorded, and an operator through which gradients flow. A nearest point
 * is the sum of three vertices by weights, and where it lies on its triangle does not change the
 * distance to first order, so backward takes the weights as they were found; one that is recorded
 * computes them from points and vertices.
 */
#include "points.h"
#include "vector/choose.h"

#include "apply/solve.h"
#include "autograd/tape.h"
#include "base/num.h"
#include "kernels/surface.h"
#include "ops/pick.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"
#include "sherd/ops_points.h"
#include "sherd/ops_reductions.h"

enum { POINTS, VERTICES, TRIANGLES };

/* ---- the search ------------------------------------------------------------------------------ */

enum { VALUE, WHICH, CORNERS, WEIGHTS, FOUND_RESULTS };

static const char *describe_search(sherd_call *call)
{
    const int64_t shape[] = {call->in[POINTS]->shape[0], 3};

    for (int j = 0; j < FOUND_RESULTS; j++)
        sherd_call_shape(call, j, j < CORNERS ? 1 : 2, shape);
    call->dtype[VALUE] = SHERD_F64;
    return NULL;
}

static void *room(sherd_call *call, int64_t count, size_t bytes)
{
    return sherd_call_scratch(call, sherd__max(count, 1) * (int64_t)bytes);
}

/* False: no memory. */
static bool take_room(sherd_call *call, sherd__surface *s)
{
    s->tree.x = room(call, 3 * s->n, sizeof *s->tree.x);
    s->tree.id = room(call, s->n, sizeof *s->tree.id);
    s->tree.box = room(call, sherd__cloud_boxes(s->n, 3), sizeof *s->tree.box);
    s->around = room(call, 3 * s->vertices, sizeof *s->around);
    s->across = room(call, 9 * s->n, sizeof *s->across);
    s->radius = room(call, s->n, sizeof *s->radius);
    s->same = room(call, s->vertices, sizeof *s->same);
    s->edge = room(call, 3 * s->n, sizeof *s->edge);
    s->table = room(call, sherd__surface_table(s->vertices, s->n), sizeof *s->table);
    return s->tree.x && s->tree.id && s->tree.box && s->around && s->across && s->radius &&
           s->same && s->edge && s->table;
}

static bool search(sherd_call *call)
{
    const sherd_tensor *points = call->in[POINTS], *vertices = call->in[VERTICES];
    int64_t m = points->count ? points->local[0] : 0;
    sherd__surface s = {.vertices = vertices->shape[0], .n = call->in[TRIANGLES]->shape[0]};

    if (!sherd__check_indices(call, TRIANGLES, s.vertices))
        return false;
    double *query = sherd__widened(call, points, call->from[POINTS]);
    s.x = sherd__widened(call, vertices, call->from[VERTICES]);
    s.corner = call->from[TRIANGLES];
    double *weight = room(call, 3 * m, sizeof *weight);
    if (!query || !s.x || !weight || !take_room(call, &s))
        return false;
    if (m == 0 || sherd__is_dry(call->world))
        return true;
    sherd__surface_arrange(&s);
    sherd__surface_find(&s, m, query, call->to[VALUE], call->to[WHICH], call->to[CORNERS], weight);
    sherd__convert(sherd__world_kernels(call->world), call->out[WEIGHTS]->dtype, SHERD_F64, 3 * m,
                   call->to[WEIGHTS], weight);
    return true;
}

/* As if every triangle was looked at: how many are depends on the points. */
static double operations(const sherd_call *call)
{
    return 100 * (double)call->in[POINTS]->local[0] * (double)call->in[TRIANGLES]->shape[0];
}

static const sherd_op search_op = {
    .name = "sherd_signed_distance search",
    .operand = {{"points", 0}, {"vertices", 0}, {"triangles", SHERD_OP_INDEX}},
    .result = {{"value", 0},
               {"which", SHERD_OP_INDEX},
               {"corners", SHERD_OP_INDEX},
               {"weights", 0}},
    .rule = "md,vd,tk->m,m,mk,mk",
    .whole = "dvtk",
    .describe = describe_search,
    .forward = search,
    .dry = search,
    .operations = operations};

/* ---- the distance ---------------------------------------------------------------------------- */

/* Operands: the two clouds, and what the search has found. */
enum { OF_VALUE = 2, OF_WHICH, OF_CORNERS, OF_WEIGHTS, OPERANDS };
enum { DISTANCE, TRIANGLE, RESULTS };

static const char *describe_distance(sherd_call *call)
{
    for (int j = 0; j < RESULTS; j++)
        sherd_call_shape(call, j, 1, call->in[OF_WHICH]->shape);
    return NULL;
}

/* The results have the layout of what was found; clouds, of which nothing is read, keep theirs. */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *result[RESULTS];

    (void)call;
    result[DISTANCE] = result[TRIANGLE] = sherd__way_given(ways, OF_WHICH);
    return sherd__way_as_given(ways, result);
}

static bool make_distance(sherd_call *call)
{
    const sherd_tensor *y = call->out[DISTANCE];
    const int32_t *which = call->from[OF_WHICH];
    int32_t *triangle = call->to[TRIANGLE];

    if (sherd__is_dry(call->world))
        return true;
    for (int64_t i = 0; i < y->count; i++)
        triangle[i] = which[i];
    sherd__convert(sherd__world_kernels(call->world), y->dtype, SHERD_F64, y->count,
                   call->to[DISTANCE], call->from[OF_VALUE]);
    return true;
}

/* The products of the rows of a and b, [m, 3], as [m, 1]. */
static sherd_tensor *dots(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_sum_over(sherd_mul(a, b), (int[]){1}, 1, true);
}

/* a where `counts` is 1, and `otherwise` where it is 0. */
static sherd_tensor *if_counts(sherd_tensor *a, sherd_tensor *counts, double otherwise)
{
    return sherd_masked_fill(a, sherd_logical_not(counts), otherwise);
}

/*
 * The weights of the nearest point p of the plane, line or place of those corners whose weights
 * are not 0: (p - a) e1 = (q - a) e1, and the same with e2, where e1 and e2 are the edges from the
 * first corner a. An edge that does not count leaves its equation as 1 s = 0.
 */
static sherd_tensor *weigh(sherd_tensor *points, sherd_tensor *corners, sherd_tensor *found)
{
    sherd_tensor *a = sherd_select(corners, 1, 0), *to = sherd_sub(points, a);
    sherd_tensor *e1 = sherd_sub(sherd_select(corners, 1, 1), a);
    sherd_tensor *e2 = sherd_sub(sherd_select(corners, 1, 2), a);
    sherd_tensor *first = sherd_gt_scalar(sherd_narrow(found, 1, 1, 1), 0);
    sherd_tensor *second = sherd_gt_scalar(sherd_narrow(found, 1, 2, 1), 0);
    sherd_tensor *g11 = if_counts(dots(e1, e1), first, 1),
                 *g22 = if_counts(dots(e2, e2), second, 1);
    sherd_tensor *g12 = if_counts(dots(e1, e2), second, 0);
    sherd_tensor *d1 = if_counts(dots(e1, to), first, 0), *d2 = if_counts(dots(e2, to), second, 0);
    sherd_tensor *by = sherd_sub(sherd_mul(g11, g22), sherd_square(g12));
    sherd_tensor *s = sherd_div(sherd_sub(sherd_mul(g22, d1), sherd_mul(g12, d2)), by);
    sherd_tensor *t = sherd_div(sherd_sub(sherd_mul(g11, d2), sherd_mul(g12, d1)), by);
    sherd_tensor *rest = sherd_add_scalar(sherd_neg(sherd_add(s, t)), 1);

    return sherd_cat((sherd_tensor *[]){rest, s, t}, 3, 1);
}

/*
 * For y = +-|q - p| the gradient of q is (q - p) / y, that of a vertex the opposite times its
 * weight in p. Clouds are settled before, as in points.c; where y is 0 nothing pulls.
 */
static void distance_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *y = sherd_node_result(node, DISTANCE), *g = grad_out[DISTANCE];
    sherd_tensor *points = sherd__without_pending(sherd_node_operand(node, POINTS));
    sherd_tensor *corners = sherd_node_operand(node, OF_CORNERS);
    sherd_tensor *weights = sherd_node_operand(node, OF_WEIGHTS);

    if (!g)
        return;
    sherd_tensor *index = sherd_flatten(corners, 0, 1);
    sherd_tensor *at =
        sherd__without_pending(sherd_index_select(sherd_node_operand(node, VERTICES), 0, index));
    at = sherd_unflatten(at, 0, sherd_tensor_shape(corners), 2);
    if (sherd__makes_graph(sherd_tensor_world(y)))
        weights = weigh(points, at, weights);
    sherd_tensor *each = sherd_unsqueeze(weights, 2);
    sherd_tensor *nearest = sherd_sum_over(sherd_mul(at, each), (int[]){1}, 1, false);
    sherd_tensor *there = sherd_eq_scalar(y, 0);
    sherd_tensor *share = sherd_div(g, sherd_masked_fill(y, there, 1));
    share = sherd_unsqueeze(sherd_masked_fill(share, there, 0), 1);
    sherd_tensor *pull = sherd_mul(sherd_sub(points, nearest), share);
    if (sherd_node_wants(node, POINTS))
        grad_in[POINTS] = pull;
    if (sherd_node_wants(node, VERTICES)) {
        sherd_tensor *parts = sherd_mul(sherd_unsqueeze(sherd_neg(pull), 1), each);
        sherd_tensor *back = sherd_index_add(sherd__zeros_like_operand(node, VERTICES), 0, index,
                                             sherd_flatten(parts, 0, 1));
        grad_in[VERTICES] = back;
    }
}

#define CLOUDS_AND_FOUND                                                    \
    SHERD_NEEDS_OPERAND(POINTS) | SHERD_NEEDS_OPERAND(VERTICES) |           \
        SHERD_NEEDS_OPERAND(OF_CORNERS) | SHERD_NEEDS_OPERAND(OF_WEIGHTS) | \
        SHERD_NEEDS_RESULT(DISTANCE)

static const sherd_op distance_op = {.name = "sherd_signed_distance value",
                                     .operand = {{"points", 0},
                                                 {"vertices", 0},
                                                 {"value", SHERD_OP_ANY},
                                                 {"which", SHERD_OP_INDEX},
                                                 {"corners", SHERD_OP_INDEX},
                                                 {"weights", 0}},
                                     .result = {{"distance", 0}, {"triangle", SHERD_OP_INDEX}},
                                     .describe = describe_distance,
                                     .ways = lie,
                                     .forward = make_distance,
                                     .dry = make_distance,
                                     .backward = distance_back,
                                     .needs = {CLOUDS_AND_FOUND, CLOUDS_AND_FOUND}};

/* ---- the operator ---------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    for (int i = POINTS; i <= TRIANGLES; i++)
        if (call->in[i]->ndim != 2 || call->in[i]->shape[1] != 3)
            return "points, vertices and triangles must be [.., 3]";
    if (call->in[POINTS]->shape[0] > INT32_MAX / 3)
        return "more points than a third of what an i32 counts";
    if (call->in[VERTICES]->shape[0] > INT32_MAX || call->in[TRIANGLES]->shape[0] > INT32_MAX / 3)
        return "more vertices than an i32 counts, or triangles than a third";
    return call->in[TRIANGLES]->shape[0] > 0 ? NULL : "there is no triangle";
}

static bool compose(sherd_call *call)
{
    sherd_tensor *found[FOUND_RESULTS], **in = call->in;

    return sherd_apply_all(found, &search_op, in, 3, NULL) &&
           sherd_apply_all(call->out, &distance_op,
                           (sherd_tensor *[]){in[POINTS], in[VERTICES], found[VALUE], found[WHICH],
                                              found[CORNERS], found[WEIGHTS]},
                           OPERANDS, NULL);
}

const sherd_op sherd__signed_distance_op = {
    .name = "sherd_signed_distance",
    .summary = "distances to a surface of triangles, less than 0 inside",
    .layouts = "any; the surface is gathered",
    .operand = {{"points", 0}, {"vertices", 0}, {"triangles", SHERD_OP_INDEX}},
    .result = {{"distances", 0}, {"nearest", SHERD_OP_INDEX}},
    .describe = describe,
    .compose = compose};

sherd_tensor *sherd_signed_distance(sherd_tensor *points, sherd_tensor *vertices,
                                    sherd_tensor *triangles, sherd_tensor **nearest)
{
    return sherd__apply_indexed(&sherd__signed_distance_op,
                                (sherd_tensor *[]){points, vertices, triangles}, 3, NULL, nearest);
}
