/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A field at points (sherd_grid_sample). Where a rank has whole fields of f32 or f64 it is one
 * operator (sample_op below). Else, and in a backward that is recorded, it is composed of others:
 * for each of the 2^d elements around the points their indices, weights, and a gather; so gradients
 * of any order follow. That costs 2^d gathers of points x channels elements. The same bits forward.
 */
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_points.h"
#include "sherd/ops_shape.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "vector/bodies.h"

enum { X, GRID, SPACE = 3 };

typedef struct sampling {
    int nearest;
    int border;
    int align_corners;
} sampling;

static const char *describe(sherd_call *call)
{
    const sherd_tensor *x = call->in[X], *grid = call->in[GRID];
    int dims = x->ndim - 2, points = grid->ndim - 2;
    int64_t elements = 1;

    if (dims < 1 || dims > SPACE)
        return "x must be [batch, channels, ...] with one to three spatial dims";
    if (!sherd__has_fractions(grid->dtype))
        return "grid must be floating-point: cast it (sherd_cast)";
    if (grid->ndim < 2 || points + 2 > SHERD_MAX_DIMS || grid->shape[0] != x->shape[0] ||
        grid->shape[grid->ndim - 1] != dims)
        return sherd_call_reason(call, "grid must be [batch, ..., %d]", dims);
    for (int d = 0; d < dims; d++) {
        if (x->shape[2 + d] < 1)
            return "a spatial dim is empty";
        if (!sherd__mul(elements, x->shape[2 + d], &elements) || elements > INT32_MAX)
            return "a field of 2^31 elements or more: an i32 counts fewer";
    }
    return NULL;
}

/* One of two elements around points in one dim: its weight, and its part of an index into the
 * field. Outside the field the weight is 0, and the index is that of the nearest element. */
typedef struct side {
    sherd_tensor *weight, *index, *out;
} side;

/* Points at or beyond an end are there, and do not move from there: as in PyTorch. */
static sherd_tensor *held(sherd_tensor *at, double last)
{
    sherd_tensor *inside = sherd_logical_and(sherd_gt_scalar(at, 0), sherd_lt_scalar(at, last));

    return sherd_where(inside, at, sherd_clamp(sherd_detach(at), 0, last));
}

/* [-1, 1] is from the first to the last element, or their outer edges. */
static sherd_tensor *unfold(sherd_tensor *at, int64_t n, const sampling *how)
{
    double half = how->align_corners ? 0.5 * (double)(n - 1) : 0.5 * (double)n;

    at = sherd_add_scalar(sherd_scale(at, half), 0.5 * (double)(n - 1));
    return how->border ? held(at, (double)(n - 1)) : at;
}

/* The element below or at points that are at `at` and `beyond` it, or the one above that. */
static side find_side(sherd_tensor *at, sherd_tensor *beyond, sherd_tensor *low, bool above,
                      const int64_t size[2])
{
    sherd_tensor *here = above ? sherd_add_scalar(low, 1) : low;
    sherd_tensor *out = sherd_ne(here, sherd_clamp(here, 0, (double)(size[0] - 1)));
    sherd_tensor *weight = !beyond ? sherd_add_scalar(sherd_scale(at, 0), 1) /* a gradient of 0 */
                           : above ? beyond
                                   : sherd_add_scalar(sherd_scale(beyond, -1), 1);

    /* In f64: the grid's dtype may round the last index to the next. */
    here = sherd_cast(sherd_masked_fill(here, sherd_ne(here, here), 0), SHERD_F64);
    here = sherd_scale(sherd_clamp(here, 0, (double)(size[0] - 1)), (double)size[1]);
    return (side){sherd_masked_fill(weight, out, 0), sherd_cast(here, SHERD_I32), out};
}

/* Both sides in one dim; of the nearest element there is one. */
static void find_sides(side out[2], sherd_tensor *grid, const sherd_tensor *x, int d,
                       const sampling *how)
{
    int64_t size[] = {x->shape[2 + d], 1}; /* and from one to the next */

    for (int k = 3 + d; k < x->ndim; k++)
        size[1] *= x->shape[k];
    sherd_tensor *at = unfold(sherd_select(grid, 2, x->ndim - 3 - d), size[0], how);
    sherd_tensor *low =
        how->nearest ? sherd_round(sherd_detach(at)) : sherd_floor(sherd_detach(at));
    sherd_tensor *beyond = how->nearest ? NULL : sherd_sub(at, low);
    for (int above = 0; above < (how->nearest ? 1 : 2); above++)
        out[above] = find_side(at, beyond, low, above, size);
}

/* field [batch, channels, n]; weight, index and outside: [batch, points]. What is outside is 0,
 * whatever the field has at its ends. */
static sherd_tensor *take_corner(sherd_tensor *field, sherd_tensor *weight, sherd_tensor *index,
                                 sherd_tensor *outside)
{
    if (sherd_tensor_failed(index) || sherd_tensor_failed(field))
        return sherd_tensor_failed(index) ? index : field;
    const int64_t shape[] = {field->shape[0], field->shape[1], index->shape[1]};
    sherd_tensor *all = sherd_expand(sherd_unsqueeze(index, 1), shape, 3);

    sherd_tensor *taken =
        sherd_masked_fill(sherd_gather(field, 2, all), sherd_unsqueeze(outside, 1), 0);
    return sherd_mul(taken, sherd_unsqueeze(weight, 1));
}

static sherd_tensor *sample(sherd_tensor *x, sherd_tensor *grid, const sampling *how)
{
    int dims = x->ndim - 2, corners = how->nearest ? 1 : 1 << dims;
    sherd_tensor *field = sherd_flatten(x, 2, -1), *sum = NULL, *outside = NULL;
    side sides[SPACE][2];

    for (int d = 0; d < dims; d++) {
        find_sides(sides[d], grid, x, d, how);
        sherd_tensor *out = sides[d][0].out;
        out = how->nearest ? out : sherd_logical_and(out, sides[d][1].out);
        outside = outside ? sherd_logical_or(outside, out) : out;
    }
    for (int c = 0; c < corners; c++) {
        sherd_tensor *weight = NULL, *index = NULL;
        for (int d = 0; d < dims; d++) {
            const side *a = &sides[d][c >> d & 1];
            weight = weight ? sherd_mul(weight, a->weight) : a->weight;
            index = index ? sherd_add(index, a->index) : a->index;
        }
        sherd_tensor *part = take_corner(field, sherd_cast(weight, x->dtype), index, outside);
        sum = sum ? sherd_add(sum, part) : part;
    }
    return sum;
}

/* ---- whole fields ---------------------------------------------------------------------------- */

/* How, and the shape of fields where they are a result. */
typedef struct whole_fields {
    sampling how;
    int64_t size[SPACE];
} whole_fields;

#define WHOLE_FIELDS                                             \
    .field = {SHERD_FIELD(whole_fields, how.nearest, INT),       \
              SHERD_FIELD(whole_fields, how.border, INT),        \
              SHERD_FIELD(whole_fields, how.align_corners, INT), \
              SHERD_FIELDS(whole_fields, size, INT64, SPACE)},   \
    .attributes = sizeof(whole_fields)

static const sherd__sampler *sampler(const sherd_call *call)
{
    return sherd__sampler_by(sherd__kernels_in(call));
}

/* Of tensors x, grid and y, or gradients of their shapes. */
static sherd__sampling sampling_of(const sherd_call *call, const sherd_tensor *x,
                                   const sherd_tensor *grid)
{
    const sampling *how = &((const whole_fields *)call->attributes)->how;
    sherd__sampling s = {.batch = x->local[0],
                         .channels = x->local[1],
                         .points = grid->local[1],
                         .dims = x->ndim - 2,
                         .nearest = how->nearest,
                         .border = how->border,
                         .align_corners = how->align_corners};

    memcpy(s.size, x->shape + 2, (size_t)s.dims * sizeof *s.size);
    return s;
}

static const char space[] = "***";

/* Gradients of fields are pending where points are sharded, those of points where channels are. */
enum { G_DY, G_GRID, G_X };

static const char *describe_dx(sherd_call *call)
{
    const whole_fields *w = call->attributes;
    const sherd_tensor *dy = call->in[G_DY];
    int dims = (int)call->in[G_GRID]->shape[2];
    int64_t shape[SHERD_MAX_DIMS] = {dy->shape[0], dy->shape[1]};

    memcpy(shape + 2, w->size, (size_t)dims * sizeof *shape);
    snprintf(call->rule, sizeof call->rule, "abp,ap*->ab%.*s", dims, space);
    memcpy(call->shape[0], shape, sizeof shape);
    return NULL;
}

static bool forward_dx(sherd_call *call)
{
    const sherd_tensor *dx = call->out[0], *grid = call->in[G_GRID];
    const sherd__sampling s = sampling_of(call, dx, grid);
    double *sums = sherd_call_scratch(call, sherd__max(1, s.batch ? dx->count / s.batch : 0) *
                                                (int64_t)sizeof *sums);

    if (sums && !sherd__is_dry(call->world))
        sampler(call)->grad(dx->dtype, &s, call->to[0], call->from[G_DY], call->from[G_GRID], sums);
    return sums != NULL;
}

static const sherd_op dx_op = {.name = "sherd_grid_sample backward, the field",
                               .operand = {{"dy", 0}, {"grid", 0}},
                               .result = {{"dx", 0}},
                               WHOLE_FIELDS,
                               .describe = describe_dx,
                               .forward = forward_dx,
                               .dry = forward_dx};

static const char *describe_dgrid(sherd_call *call)
{
    memcpy(call->shape[0], call->in[G_GRID]->shape, 3 * sizeof *call->shape[0]);
    snprintf(call->rule, sizeof call->rule, "abp,ap*,ab%.*s->ap*", call->in[G_X]->ndim - 2, space);
    return NULL;
}

static bool forward_dgrid(sherd_call *call)
{
    const sherd__sampling s = sampling_of(call, call->in[G_X], call->in[G_GRID]);

    sampler(call)->slopes(call->out[0]->dtype, &s, call->to[0], call->from[G_DY], call->from[G_X],
                          call->from[G_GRID]);
    return true;
}

static const sherd_op dgrid_op = {.name = "sherd_grid_sample backward, the points",
                                  .operand = {{"dy", 0}, {"grid", 0}, {"x", 0}},
                                  .result = {{"dgrid", 0}},
                                  WHOLE_FIELDS,
                                  .describe = describe_dgrid,
                                  .forward = forward_dgrid};

static sherd_tensor *formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    return sample(in[X], in[GRID], &((const whole_fields *)sherd_node_attributes(node))->how);
}

static void back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1u << X | 1u << GRID, formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[] = {grad_out[0], sherd_node_operand(node, GRID), sherd_node_operand(node, X)};
    const void *attributes = sherd_node_attributes(node);

    if (sherd_node_wants(node, X))
        grad_in[X] = sherd_apply(&dx_op, in, 2, attributes);
    if (sherd_node_wants(node, GRID))
        grad_in[GRID] = sherd_apply(&dgrid_op, in, 3, attributes);
}

static const char *describe_sample(sherd_call *call)
{
    snprintf(call->rule, sizeof call->rule, "ab%.*s,ap*->abp", call->in[X]->ndim - 2, space);
    return NULL;
}

static bool forward_sample(sherd_call *call)
{
    const sherd__sampling s = sampling_of(call, call->in[X], call->in[GRID]);

    sampler(call)->sample(call->out[0]->dtype, &s, call->to[0], call->from[X], call->from[GRID]);
    return true;
}

#define BOTH (SHERD_NEEDS_OPERAND(X) | SHERD_NEEDS_OPERAND(GRID))
static const sherd_op sample_op = {.name = "sherd_grid_sample",
                                   .operand = {{"x", 0}, {"grid", 0}},
                                   .result = {{"y", 0}},
                                   WHOLE_FIELDS,
                                   .describe = describe_sample,
                                   .forward = forward_sample,
                                   .backward = back,
                                   .needs = {BOTH, BOTH}};

/* A GPU has kernels for the steps. A sharded field is not gathered, and pending sums stay so. */
static bool is_whole(const sherd_tensor *x, const sherd_tensor *grid)
{
    bool whole = !sherd__world_device(x->world) && x->dtype == grid->dtype &&
                 (x->dtype == SHERD_F32 || x->dtype == SHERD_F64) &&
                 !(x->layout && x->layout->pending_axes) &&
                 !(grid->layout && grid->layout->pending_axes);

    for (int d = 2; d < x->ndim && x->layout; d++)
        whole = whole && !x->layout->spec.dim[d].axes;
    return whole;
}

static sherd_tensor *sample_whole(sherd_tensor *x, sherd_tensor *grid, const sampling *how)
{
    whole_fields w = {.how = *how};

    memcpy(w.size, x->shape + 2, (size_t)(x->ndim - 2) * sizeof *w.size);
    return sherd_apply(&sample_op, (sherd_tensor *[]){x, grid}, 2, &w);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static bool compose(sherd_call *call)
{
    sherd_tensor *x = call->in[X], *grid = call->in[GRID];
    int64_t shape[SHERD_MAX_DIMS] = {x->shape[0], x->shape[1]};
    const sampling *how = call->attributes;
    int points = grid->ndim - 2;

    for (int d = 0; d < points; d++)
        shape[2 + d] = grid->shape[1 + d];
    sherd_tensor *flat = points == 0  ? sherd_unsqueeze(grid, 1)
                         : points > 1 ? sherd_flatten(grid, 1, -2)
                                      : grid;
    sherd_tensor *y = !sherd_tensor_failed(flat) && is_whole(x, flat) ? sample_whole(x, flat, how)
                                                                      : sample(x, flat, how);
    call->out[0] = points == 1 ? y : sherd_view(y, shape, 2 + points);
    return true;
}

const sherd_op sherd__grid_sample_op = {
    .name = "sherd_grid_sample",
    .summary = "a field at points",
    .layouts = "as sherd_gather along the merged spatial dims",
    .operand = {{"x", 0}, {"grid", SHERD_OP_ANY}},
    .result = {{"y", 0}},
    .field = {SHERD__CHOICE(sampling, nearest, "false|true"),
              SHERD__CHOICE(sampling, border, "false|true"),
              SHERD__CHOICE(sampling, align_corners, "false|true")},
    .attributes = sizeof(sampling),
    .describe = describe,
    .compose = compose};

sherd_tensor *sherd_grid_sample(sherd_tensor *x, sherd_tensor *grid,
                                const sherd_grid_sample_options *options)
{
    static const sherd_grid_sample_options none;
    const sherd_grid_sample_options *o = options ? options : &none;

    return sherd_apply(&sherd__grid_sample_op, (sherd_tensor *[]){x, grid}, 2,
                       &(sampling){o->nearest, o->border, o->align_corners});
}
