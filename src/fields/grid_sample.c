/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A field at points (sherd_grid_sample), composed of other operators: for each of the 2^d elements
 * around the points their indices, weights, and a gather; so gradients of any order follow. Costs
 * 2^d gathers of points x channels elements.
 */
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_points.h"
#include "sherd/ops_shape.h"

#include <string.h>

#include "base/num.h"

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
 * field. Outside the field both are 0. */
typedef struct side {
    sherd_tensor *weight, *index;
} side;

/* [-1, 1] is from the first to the last element, or their outer edges. */
static sherd_tensor *unfold(sherd_tensor *at, int64_t n, const sampling *how)
{
    double half = how->align_corners ? 0.5 * (double)(n - 1) : 0.5 * (double)n;

    at = sherd_add_scalar(sherd_scale(at, half), 0.5 * (double)(n - 1));
    return how->border ? sherd_clamp(at, 0, (double)(n - 1)) : at;
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

    here = sherd_cast(sherd_masked_fill(here, out, 0), SHERD_F64);
    return (side){sherd_masked_fill(weight, out, 0),
                  sherd_cast(sherd_scale(here, (double)size[1]), SHERD_I32)};
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

/* field [batch, channels, n], weight and index [batch, points] */
static sherd_tensor *take_corner(sherd_tensor *field, sherd_tensor *weight, sherd_tensor *index)
{
    if (sherd_tensor_failed(index) || sherd_tensor_failed(field))
        return sherd_tensor_failed(index) ? index : field;
    const int64_t shape[] = {field->shape[0], field->shape[1], index->shape[1]};
    sherd_tensor *all = sherd_expand(sherd_unsqueeze(index, 1), shape, 3);

    return sherd_mul(sherd_gather(field, 2, all), sherd_unsqueeze(weight, 1));
}

static sherd_tensor *sample(sherd_tensor *x, sherd_tensor *grid, const sampling *how)
{
    int dims = x->ndim - 2, corners = how->nearest ? 1 : 1 << dims;
    sherd_tensor *field = sherd_flatten(x, 2, -1), *sum = NULL;
    side sides[SPACE][2];

    for (int d = 0; d < dims; d++)
        find_sides(sides[d], grid, x, d, how);
    for (int c = 0; c < corners; c++) {
        sherd_tensor *weight = NULL, *index = NULL;
        for (int d = 0; d < dims; d++) {
            const side *a = &sides[d][c >> d & 1];
            weight = weight ? sherd_mul(weight, a->weight) : a->weight;
            index = index ? sherd_add(index, a->index) : a->index;
        }
        sherd_tensor *part = take_corner(field, sherd_cast(weight, x->dtype), index);
        sum = sum ? sherd_add(sum, part) : part;
    }
    return sum;
}

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
    sherd_tensor *y = sample(x, flat, how);
    call->out[0] = points == 1 ? y : sherd_view(y, shape, 2 + points);
    return true;
}

const sherd_op sherd__grid_sample_op = {.name = "sherd_grid_sample",
                                        .summary = "a field at points",
                                        .layouts = "as sherd_gather along the merged spatial dims",
                                        .operand = {{"x", 0}, {"grid", SHERD_OP_ANY}},
                                        .result = {{"y", 0}},
                                        .field = {SHERD_FIELD(sampling, nearest, INT),
                                                  SHERD_FIELD(sampling, border, INT),
                                                  SHERD_FIELD(sampling, align_corners, INT)},
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
