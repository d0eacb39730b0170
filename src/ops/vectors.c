/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors along a dim: cross products, by a kernel; unit vectors and angles, of rows that are whole
 * here by the CPU in one pass over memory (unit_rows.c), else made of other operators. Over a
 * sharded dim ranks exchange sums, all of a call at once.
 */
#include "apply/sketch.h"
#include "unit_rows.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_vectors.h"

#include <math.h>
#include <string.h>

#include "kernels/cross.h"
#include "layout/shape.h"

typedef struct along {
    double p, eps;
    int dim;
} along;

#define FIELDS                                                                \
    .field = {SHERD_FIELD(along, p, DOUBLE), SHERD_FIELD(along, eps, DOUBLE), \
              SHERD_FIELD(along, dim, INT)},                                  \
    .attributes = sizeof(along)

/* Dims of the broadcast operands. */
static int most_dims(const sherd_call *call)
{
    int most = 0;

    for (int i = 0; i < call->operands; i++)
        most = call->in[i]->ndim > most ? call->in[i]->ndim : most;
    return most;
}

/* The dim is one of the broadcast operands. */
static const char *describe(sherd_call *call)
{
    const along *at = call->attributes;

    if (sherd__dim_of(at->dim, most_dims(call)) < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (isnan(at->p) || !(at->eps >= 0))
        return sherd_call_reason(call, "p = %g, eps = %g: eps must not be negative", at->p,
                                 at->eps);
    return NULL;
}

/* That dim, counted from the last one. */
static int dim_from_end(const sherd_call *call)
{
    const along *at = call->attributes;
    int most = most_dims(call);

    return sherd__dim_of(at->dim, most) - most;
}

/* ---- cross products -------------------------------------------------------------------------- */

static const char *describe_cross(sherd_call *call)
{
    const along *at = call->attributes;
    const char *reason = describe(call);

    for (int i = 0; i < 2 && !reason; i++) {
        const sherd_tensor *t = call->in[i];
        int dim = t->ndim + dim_from_end(call);
        if (dim < 0 || t->shape[dim] != 3)
            reason = sherd_call_reason(call, "dim %d must have size 3", at->dim);
    }
    return reason;
}

static const char *describe_cross_last(sherd_call *call)
{
    for (int i = 0; i < 2; i++)
        if (call->in[i]->shape[call->in[i]->ndim - 1] != 3)
            return "the dim must have size 3";
    return NULL;
}

static bool run_cross(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, b);
    if (out->count)
        sherd__cross(out->dtype, out->ndim, out->local, call->to[0], call->from[0], a,
                     call->from[1], b);
    return true;
}

static void cross_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);

static const sherd_op cross_op = {.name = "sherd_cross of the last dim",
                                  .operand = {{"a", 0}, {"b", 0}},
                                  .result = {{"y", 0}},
                                  .rule = "...c,...c->...c",
                                  .whole = "c",
                                  .linearity = SHERD_LINEAR,
                                  .broadcasts = true,
                                  .strided = true,
                                  .describe = describe_cross_last,
                                  .forward = run_cross,
                                  .backward = cross_back,
                                  .takes_pending = true,
                                  .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)}};

static sherd_tensor *cross_last(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&cross_op, (sherd_tensor *[]){a, b}, 2, NULL);
}

/* dy . (a x b) is a . (b x dy), and b . (dy x a). */
static void cross_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd_node_wants(node, 0))
        grad_in[0] =
            sherd__sum_to_operand(node, 0, cross_last(sherd_node_operand(node, 1), grad_out[0]));
    if (sherd_node_wants(node, 1))
        grad_in[1] =
            sherd__sum_to_operand(node, 1, cross_last(grad_out[0], sherd_node_operand(node, 0)));
}

static bool cross(sherd_call *call)
{
    int dim = dim_from_end(call);

    if (dim == -1)
        call->out[0] = cross_last(call->in[0], call->in[1]);
    else
        call->out[0] = sherd_transpose(cross_last(sherd_transpose(call->in[0], dim, -1),
                                                  sherd_transpose(call->in[1], dim, -1)),
                                       dim, -1);
    return true;
}

const sherd_op sherd__cross_op = {.name = "sherd_cross",
                                  .summary = "cross product of vectors along a dim",
                                  .operand = {{"a", 0}, {"b", 0}},
                                  .result = {{"y", 0}},
                                  FIELDS,
                                  .layouts = "the dim is gathered, or its shards move to another",
                                  .describe = describe_cross,
                                  .compose = cross};

sherd_tensor *sherd_cross(sherd_tensor *a, sherd_tensor *b, int dim)
{
    return sherd_apply(&sherd__cross_op, (sherd_tensor *[]){a, b}, 2, &(along){.dim = dim});
}

/* ---- lengths and angles ---------------------------------------------------------------------- */

static sherd_tensor *normalize_steps(sherd_tensor *a, const along *at)
{
    sherd_tensor *wide = sherd_cast(a, sherd__statistics_dtype(a->dtype));
    sherd_tensor *length = sherd_norm(wide, at->p, &at->dim, 1, true);

    return sherd_cast(sherd_div(wide, sherd_clamp(length, at->eps, INFINITY)), a->dtype);
}

/* Whether the last dim of t is this one, counted from the end, whole here, and worth a kernel. */
static bool is_rows(const sherd_tensor *t, int dim)
{
    int last = t->ndim - 1;

    return dim == -1 && last >= 0 && t->shape[last] >= SHERD__UNIT_FEW &&
           sherd__has_fractions(t->dtype) && !sherd__world_device(t->world) &&
           !(t->layout && t->layout->spec.dim[last].axes > 0);
}

#define ROWS_FIELDS                                                                                \
    .field = {SHERD_FIELD(sherd__unit_rows, eps, DOUBLE)}, .attributes = sizeof(sherd__unit_rows), \
    .whole = "n"

static const sherd_op unit_grad_op = {.name = "sherd_normalize backward",
                                      .operand = {{"a", 0}, {"dy", 0}},
                                      .result = {{"da", 0}},
                                      .rule = "...n,...n->...n",
                                      ROWS_FIELDS,
                                      .forward = sherd__unit_grad,
                                      .dry = sherd__unit_grad};

static sherd_tensor *unit_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    const sherd__unit_rows *at = sherd_node_attributes(node);

    (void)result;
    return normalize_steps(in[0], &(along){2, at->eps, -1});
}

static void unit_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1, unit_formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[] = {sherd_node_operand(node, 0), grad_out[0]};

    grad_in[0] = sherd_apply(&unit_grad_op, in, 2, sherd_node_attributes(node));
}

static const sherd_op unit_op = {.name = "sherd_normalize",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 .rule = "...n->...n",
                                 ROWS_FIELDS,
                                 .forward = sherd__unit_forward,
                                 .dry = sherd__unit_forward,
                                 .backward = unit_back,
                                 .needs = {SHERD_NEEDS_OPERAND(0)}};

static bool normalize(sherd_call *call)
{
    const along *at = call->attributes;
    sherd_tensor *a = call->in[0];

    if (at->p == 2 && is_rows(a, dim_from_end(call)))
        call->out[0] = sherd_apply(&unit_op, &a, 1, &(sherd__unit_rows){at->eps});
    else
        call->out[0] = normalize_steps(a, at);
    return true;
}

const sherd_op sherd__normalize_op = {.name = "sherd_normalize",
                                      .autocast = SHERD_AUTOCAST_FULL,
                                      .summary = "a / max(norm over a dim, eps)",
                                      .operand = {{"a", 0}},
                                      .result = {{"y", 0}},
                                      FIELDS,
                                      .describe = describe,
                                      .compose = normalize};

sherd_tensor *sherd_normalize(sherd_tensor *a, double p, int dim, double eps)
{
    return sherd_apply(&sherd__normalize_op, &a, 1, &(along){p, eps, dim});
}

/* The square root of a sum of squares, at least eps; its gradient at 0 is 0. */
static sherd_tensor *length_of(sherd_tensor *squares, double eps)
{
    return sherd_clamp(sherd__unary(SHERD__ROOT, squares, 2), eps, INFINITY);
}

/* The size of a dim that is counted from the last one; of one that is not there, 1. */
static int64_t size_of(const sherd_tensor *t, int dim)
{
    return t->ndim + dim < 0 ? 1 : t->shape[t->ndim + dim];
}

/*
 * An operand, wide enough for sums, and with the dim; settled, since a product of addends would
 * lose other digits than the lengths that it is divided by.
 */
static sherd_tensor *vectors_in(sherd_tensor *t, int dim)
{
    sherd_tensor *wide = sherd_cast(sherd__without_pending(t), sherd__statistics_dtype(t->dtype));

    for (int d = t->ndim + dim; d < 0; d++)
        wide = sherd_unsqueeze(wide, 0);
    return wide;
}

/* The sum of the squares of a vector, whose one element stands for n if it is stretched. */
static sherd_tensor *squares_of(sherd_tensor *t, int64_t stretched, int dim)
{
    sherd_tensor *sum = sherd_sum_over(sherd_square(t), &dim, 1, true);

    return stretched == 1 ? sum : sherd_scale(sum, (double)stretched);
}

static const char *describe_cosine(sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *b = call->in[1];

    for (int d = -1; d >= -most_dims(call); d--)
        if (size_of(a, d) != size_of(b, d) && size_of(a, d) != 1 && size_of(b, d) != 1)
            return "shapes do not broadcast";
    return describe(call);
}

static sherd_tensor *cosine_steps(sherd_tensor *const *in, int dim, double eps)
{
    int64_t of_a = size_of(in[0], dim), of_b = size_of(in[1], dim);
    sherd_tensor *a = vectors_in(in[0], dim), *b = vectors_in(in[1], dim);
    sherd_tensor *sum[] = {sherd_sum_over(sherd_mul(a, b), &dim, 1, true),
                           squares_of(a, of_a == 1 ? of_b : 1, dim),
                           squares_of(b, of_b == 1 ? of_a : 1, dim)};

    /* Sums that are pending are settled in one call. */
    if (sherd__same_shape(a->ndim, a->shape, b->ndim, b->shape) && a->ndim < SHERD_MAX_DIMS) {
        sherd_tensor *all = sherd__without_pending(sherd_stack(sum, 3, 0));
        for (int i = 0; i < 3; i++)
            sum[i] = sherd_select(all, 0, i);
    }
    sherd_tensor *y = sherd_div(sum[0], sherd_mul(length_of(sum[1], eps), length_of(sum[2], eps)));
    return sherd_cast(sherd_squeeze(y, dim), in[0]->dtype);
}

static const sherd_op angles_grad_op = {.name = "sherd_cosine_similarity backward",
                                        .operand = {{"a", 0}, {"b", 0}, {"dy", 0}},
                                        .result = {{"da", 0}, {"db", 0}},
                                        .rule = "...n,...n,...->...n,...n",
                                        ROWS_FIELDS,
                                        .forward = sherd__cosine_grad,
                                        .dry = sherd__cosine_grad};

static sherd_tensor *angles_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    const sherd__unit_rows *at = sherd_node_attributes(node);

    (void)result;
    return cosine_steps(in, -1, at->eps);
}

static void angles_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 3, angles_formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[] = {sherd_node_operand(node, 0), sherd_node_operand(node, 1), grad_out[0]};

    sherd_apply_all(grad_in, &angles_grad_op, in, 3, sherd_node_attributes(node));
}

static const sherd_op angles_op = {.name = "sherd_cosine_similarity",
                                   .operand = {{"a", 0}, {"b", 0}},
                                   .result = {{"y", 0}},
                                   .rule = "...n,...n->...",
                                   ROWS_FIELDS,
                                   .forward = sherd__cosine_forward,
                                   .dry = sherd__cosine_forward,
                                   .backward = angles_back,
                                   .needs = {SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_OPERAND(1),
                                             SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_OPERAND(1)}};

static bool cosine(sherd_call *call)
{
    const along *at = call->attributes;
    const sherd_tensor *a = call->in[0], *b = call->in[1];
    int dim = dim_from_end(call);
    bool rows = sherd__same_shape(a->ndim, a->shape, b->ndim, b->shape) && is_rows(a, dim) &&
                is_rows(b, dim);

    call->out[0] = rows ? sherd_apply(&angles_op, call->in, 2, &(sherd__unit_rows){at->eps})
                        : cosine_steps(call->in, dim, at->eps);
    return true;
}

const sherd_op sherd__cosine_similarity_op = {.name = "sherd_cosine_similarity",
                                              .autocast = SHERD_AUTOCAST_FULL,
                                              .summary = "cosine of the angle of vectors",
                                              .operand = {{"a", 0}, {"b", 0}},
                                              .result = {{"y", 0}},
                                              FIELDS,
                                              .describe = describe_cosine,
                                              .compose = cosine};

sherd_tensor *sherd_cosine_similarity(sherd_tensor *a, sherd_tensor *b, int dim, double eps)
{
    return sherd_apply(&sherd__cosine_similarity_op, (sherd_tensor *[]){a, b}, 2,
                       &(along){.eps = eps, .dim = dim});
}
