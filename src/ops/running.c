/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs along a dim: products, extremes, logarithms of sums, and linear recurrences, which are
 * also the gradients of the others. A sharded dim is gathered first, or its shards are moved to
 * another dim, whichever is cheaper. 16-bit types compute in f32.
 */
#include "order.h"
#include "pick.h"
#include "shared.h"
#include "apply/sketch.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_running.h"

#include <math.h>
#include <string.h>

#include "device/running.h"
#include "kernels/pick.h"
#include "kernels/running.h"

typedef struct run_along {
    int dim;
    int reverse, behind; /* of recurrences: see sherd__course */
} run_along;

#define FIELDS                                                                        \
    .field = {SHERD_FIELD(run_along, dim, INT), SHERD_FIELD(run_along, reverse, INT), \
              SHERD_FIELD(run_along, behind, INT)},                                   \
    .attributes = sizeof(run_along)

/* All operands and results have one shape, and one dim that is whole. */
static const char *describe(sherd_call *call)
{
    const run_along *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim), n = 0;

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (a->shape[dim] > INT32_MAX && call->results > 1)
        return "the dim has more indices than an i32 holds";
    for (int j = 0; j < call->operands + call->results; j++) {
        if (j > 0)
            call->rule[n++] = j == call->operands ? '-' : ',';
        if (j == call->operands)
            call->rule[n++] = '>';
        for (int d = 0; d < a->ndim; d++)
            call->rule[n++] = (char)(d == dim ? 'n' : 'a' + d);
    }
    call->rule[n] = '\0';
    return NULL;
}

/* The GPU, if it computes lines of such a size; or NULL, on the CPU. False: failed. */
static bool choose_place(sherd_call *call, const int64_t size[3], sherd__device **device)
{
    bool good = sherd__device_runs(size) || sherd__leave_device(call);

    *device = sherd__device_in(call);
    return good;
}

/* Result 0 by a kernel of operand 0. */
static bool compute(sherd_call *call,
                    void (*kernel)(sherd_dtype dtype, const int64_t size[3], void *dst,
                                   const void *src),
                    void (*there)(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                  void *dst, const void *src))
{
    const run_along *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    sherd__device *device;
    int64_t size[3];
    sherd_dtype dtype;

    if (a->count == 0)
        return true;
    sherd__size_along(size, a, sherd__dim_of(at->dim, a->ndim));
    if (!choose_place(call, size, &device))
        return false;
    if (device) {
        there(device, a->dtype, size, call->to[0], call->from[0]);
        return true;
    }
    const void *from = sherd__keys_in(call, 0, &dtype);
    void *to = sherd__wide_result(call);
    if (!from || !to)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    kernel(dtype, size, to, from);
    sherd__narrow_result(call, to);
    return true;
}

/* ---- recurrences ----------------------------------------------------------------------------- */

enum { A, B };

static sherd_tensor *recur(sherd_tensor *a, sherd_tensor *b, int dim, sherd__course course)
{
    return sherd_apply(&sherd__recurrence_op, (sherd_tensor *[]){a, b}, 2,
                       &(run_along){dim, course.reverse, course.behind});
}

static bool run_recurrence(sherd_call *call)
{
    const run_along *at = call->attributes;
    const sherd__course course = {at->reverse, at->behind};
    sherd__device *device;
    int64_t size[3];
    sherd_dtype dtype;
    const void *from[2];

    if (call->out[0]->count == 0)
        return true;
    sherd__size_along(size, call->in[0], sherd__dim_of(at->dim, call->in[0]->ndim));
    if (!choose_place(call, size, &device))
        return false;
    if (device) {
        sherd__device_recurrence(device, call->in[0]->dtype, size, course, call->to[0],
                                 call->from[A], call->from[B]);
        return true;
    }
    for (int i = 0; i < 2; i++)
        from[i] = sherd__keys_in(call, i, &dtype);
    void *to = sherd__wide_result(call);
    if (!from[A] || !from[B] || !to)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__recurrence(dtype, size, course, to, from[A], from[B]);
    sherd__narrow_result(call, to);
    return true;
}

/* t moved along a dim by one index, `later` or to the front; the first place gets `value`. */
static sherd_tensor *moved(sherd_tensor *t, int dim, bool later, double value)
{
    int64_t before[SHERD_MAX_DIMS] = {0}, after[SHERD_MAX_DIMS] = {0};

    dim = sherd__dim_of(dim, sherd_tensor_failed(t) ? dim + 1 : t->ndim);
    if (sherd_tensor_failed(t) || t->shape[dim] == 0)
        return t;
    before[dim] = later ? 1 : -1;
    after[dim] = -before[dim];
    return sherd_pad(t, before, after, value);
}

/*
 * The gradient of b is a recurrence in the other direction; that of a is a product of it with the
 * result, one of them moved by one place.
 */
static void recurrence_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const run_along *at = sherd_node_attributes(node);
    sherd_tensor *a = sherd_node_operand(node, A);
    sherd_tensor *g = recur(a, grad_out[0], at->dim, (sherd__course){!at->reverse, !at->behind});

    if (sherd_node_wants(node, A)) {
        sherd_tensor *h = sherd_node_result(node, 0);
        grad_in[A] = at->behind ? sherd_mul(h, moved(g, at->dim, at->reverse, 0))
                                : sherd_mul(g, moved(h, at->dim, !at->reverse, 0));
    }
    if (sherd_node_wants(node, B))
        grad_in[B] = g;
}

const sherd_op sherd__recurrence_op = {
    .name = "sherd_recurrence",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "y[j] = a[j] y[j-1] + b[j] along a dim",
    .operand = {{"a", 0}, {"b", 0}},
    .result = {{"y", 0}},
    FIELDS,
    .whole = "n",
    .describe = describe,
    .forward = run_recurrence,
    .dry = run_recurrence,
    .on_device = sherd__fractions_there,
    .backward = recurrence_back,
    .needs = {SHERD_NEEDS_OPERAND(A) | SHERD_NEEDS_RESULT(0), SHERD_NEEDS_OPERAND(A)}};

sherd_tensor *sherd_recurrence(sherd_tensor *a, sherd_tensor *b, int dim, bool reverse)
{
    return recur(a, b, dim, (sherd__course){.reverse = reverse});
}

/* ---- products -------------------------------------------------------------------------------- */

static bool multiply(sherd_call *call)
{
    return compute(call, sherd__running_product, sherd__device_running_product);
}

/*
 * Of element i: the product of those before it, times the sum of dy[k] times the product of those
 * between i and k. Nothing is divided, so that a 0 is a number like others.
 */
static void multiply_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const run_along *at = sherd_node_attributes(node);
    sherd_tensor *behind = recur(sherd_node_operand(node, 0), grad_out[0], at->dim,
                                 (sherd__course){.reverse = true, .behind = true});

    grad_in[0] = sherd_mul(moved(sherd_node_result(node, 0), at->dim, true, 1), behind);
}

const sherd_op sherd__cumprod_op = {.name = "sherd_cumprod",
                                    .autocast = SHERD_AUTOCAST_FULL,
                                    .summary = "running products of a dim",
                                    .operand = {{"a", 0}},
                                    .result = {{"y", 0}},
                                    FIELDS,
                                    .numbers = SHERD_NUMBERS,
                                    .whole = "n",
                                    .describe = describe,
                                    .forward = multiply,
                                    .dry = multiply,
                                    .on_device = sherd__numbers_there,
                                    .backward = multiply_back,
                                    .needs = {SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_RESULT(0)}};

sherd_tensor *sherd_cumprod(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__cumprod_op, &a, 1, &(run_along){.dim = dim});
}

/* ---- extremes -------------------------------------------------------------------------------- */

static bool find_most(sherd_call *call)
{
    const run_along *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    bool least = call->op == &sherd__cummin_op;
    sherd__device *device;
    int64_t size[3];
    sherd_dtype dtype;

    if (a->count == 0)
        return true;
    sherd__size_along(size, a, sherd__dim_of(at->dim, a->ndim));
    if (!choose_place(call, size, &device))
        return false;
    if (device) {
        sherd__device_running_most(device, a->dtype, size, least, call->to[0], call->to[1],
                                   call->from[0]);
        return true;
    }
    const void *keys = sherd__keys_in(call, 0, &dtype);
    if (!keys || sherd__is_dry(call->world))
        return keys != NULL;
    sherd__running_most(dtype, size, least, call->to[1], keys);
    const sherd__pick p = {size[0], size[1], size[2], size[1], 0, call->to[1], false};
    sherd__gather(sherd_dtype_bytes(a->dtype), &p, call->to[0], call->from[0]);
    return true;
}

static void most_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const run_along *at = sherd_node_attributes(node);

    sherd__taken_back(node, grad_out, grad_in, at->dim);
}

#define MOST(label, text)                                                                      \
    {                                                                                          \
        .name = label, .summary = text, .operand = {{"a", 0}},                                 \
        .result = {{"values", 0}, {"indices", SHERD_OP_INDEX}}, FIELDS,                        \
        .numbers = SHERD_EVERYTHING, .whole = "n", .describe = describe, .forward = find_most, \
        .dry = find_most, .on_device = sherd__numbers_there, .backward = most_back, .needs = { \
            SHERD_NEEDS_RESULT(1)                                                              \
        }                                                                                      \
    }

const sherd_op sherd__cummax_op = MOST("sherd_cummax", "running maxima of a dim, with indices");
const sherd_op sherd__cummin_op = MOST("sherd_cummin", "running minima of a dim, with indices");

sherd_tensor *sherd_cummax(sherd_tensor *a, int dim, sherd_tensor **indices)
{
    return sherd__apply_indexed(&sherd__cummax_op, &a, 1, &(run_along){.dim = dim}, indices);
}

sherd_tensor *sherd_cummin(sherd_tensor *a, int dim, sherd_tensor **indices)
{
    return sherd__apply_indexed(&sherd__cummin_op, &a, 1, &(run_along){.dim = dim}, indices);
}

/* ---- logarithms of sums ---------------------------------------------------------------------- */

static bool add_exponentials(sherd_call *call)
{
    return compute(call, sherd__running_log_sum, sherd__device_running_log_sum);
}

/*
 * The sum of dy[k] e^(x[i] - y[k]) over k >= i. y only grows, so that as a recurrence from the end,
 * whose factors are e^(y[i] - y[i + 1]), nothing overflows. What is -inf has no part in it, and
 * what comes before an infinite element, none of what comes after.
 */
static void exponentials_back(sherd_node *node, sherd_tensor *const *grad_out,
                              sherd_tensor **grad_in)
{
    const run_along *at = sherd_node_attributes(node);
    sherd_tensor *x = sherd_node_operand(node, 0), *y = sherd_node_result(node, 0);
    int64_t none[SHERD_MAX_DIMS] = {0}, one[SHERD_MAX_DIMS] = {0};
    const int64_t *shape;
    int dim = sherd__dim_of(at->dim, sherd_node_shape(node, 0, &shape));

    grad_in[0] = grad_out[0];
    if (shape[dim] == 0)
        return;
    one[dim] = 1;
    sherd_tensor *low = sherd_narrow(y, dim, 0, shape[dim] - 1);
    sherd_tensor *rise = sherd_sub(low, sherd_narrow(y, dim, 1, shape[dim] - 1));
    rise = sherd_masked_fill(rise, sherd_eq_scalar(sherd_abs(low), INFINITY), 0);
    sherd_tensor *sum = recur(sherd_pad(sherd_exp(rise), none, one, 0), grad_out[0], dim,
                              (sherd__course){.reverse = true});
    sherd_tensor *part =
        sherd_masked_fill(sherd_sub(x, y), sherd_eq_scalar(x, -INFINITY), -INFINITY);
    grad_in[0] = sherd_mul(sum, sherd_exp(part));
}

const sherd_op sherd__logcumsumexp_op = {.name = "sherd_logcumsumexp",
                                         .autocast = SHERD_AUTOCAST_FULL,
                                         .summary = "running logarithms of sums of e^a of a dim",
                                         .operand = {{"a", 0}},
                                         .result = {{"y", 0}},
                                         FIELDS,
                                         .whole = "n",
                                         .describe = describe,
                                         .forward = add_exponentials,
                                         .dry = add_exponentials,
                                         .on_device = sherd__fractions_there,
                                         .backward = exponentials_back,
                                         .needs = {SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_RESULT(0)}};

sherd_tensor *sherd_logcumsumexp(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__logcumsumexp_op, &a, 1, &(run_along){.dim = dim});
}
