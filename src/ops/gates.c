/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gates: halves of a dim times the sigmoid of the others, and slopes that are learned. On the CPU
 * each is one pass over memory, and the gradient of the halves is another; on a GPU, and where a
 * piece is no rows that are worth a call of a kernel, they are made of other operators.
 */
#include "apply/sketch.h"
#include "shared.h"
#include "autograd/node.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_vectors.h"

#include <stdio.h>

#include "base/num.h"
#include "base/saturate.h"
#include "kernels/cast.h"
#include "vector/choose.h"

/* Elements that kernels work on one after the other, which stay in the first cache; and the fewest
 * that are worth calling them. */
enum { BLOCK = 1024, FEW = 16 };

/* How many elements of the whole tensor its dims from `first` on have. */
static int64_t row_of(const sherd_tensor *t, int first)
{
    return sherd__times_all(1, t->ndim - first, t->shape + first);
}

/* ---- halves ---------------------------------------------------------------------------------- */

typedef struct halves {
    int dim;
} halves;

#define HALVES_FIELDS .field = {SHERD_FIELD(halves, dim, INT)}, .attributes = sizeof(halves)

static const char *describe_glu(sherd_call *call)
{
    const halves *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (a->shape[dim] % 2)
        return sherd_call_reason(call, "dim %d has no halves", dim);
    return NULL;
}

/* In f32 for 16 bits: products of x and dy may leave the range of f16 where gradients do not. */
static sherd_tensor *glu_steps(sherd_tensor *a, int dim)
{
    int64_t half = a->shape[dim] / 2;
    sherd_dtype wide = sherd__statistics_dtype(a->dtype);
    sherd_tensor *gate = sherd_sigmoid(sherd_cast(sherd_narrow(a, dim, half, half), wide));
    sherd_tensor *x = sherd_cast(sherd_narrow(a, dim, 0, half), wide);

    return sherd_cast(sherd_mul(x, gate), a->dtype);
}

/* "aby" or "abz": dim `dim` whole ('y'), or half of it ('z'). */
static void write_dims(char *to, int ndim, int dim, char letter)
{
    for (int d = 0; d < ndim; d++)
        to[d] = d == dim ? letter : (char)('a' + d);
    to[ndim] = '\0';
}

/* Where the halves of row o lie: in a, and in a tensor of halves. */
typedef struct half_rows {
    int64_t rows, n; /* n: elements of half a row */
    size_t bytes;    /* of one */
} half_rows;

static half_rows rows_of(const sherd_tensor *a, int dim)
{
    return (half_rows){sherd__local_count(a, 0, dim), sherd__local_count(a, dim, a->ndim) / 2,
                       sherd_dtype_bytes(a->dtype)};
}

/* The kernels that compute, for 16 bits those of f32; and how such elements come and go. */
typedef struct wide {
    const sherd__kernels *own, *k;
    bool half;
} wide;

static wide wide_of(const sherd_call *call)
{
    sherd_dtype dtype = call->in[0]->dtype;
    const sherd__kernel_set *set = sherd__world_kernels(call->world);

    return (wide){sherd__kernels_in(call), sherd__kernels_of(set, sherd__statistics_dtype(dtype)),
                  sherd__is_half(dtype)};
}

/* n elements as kernels compute: where they are, or in `room`. */
static const void *widened(const wide *w, int64_t n, const void *x, float *room)
{
    if (w->half)
        w->own->widen(n, room, x);
    return w->half ? room : x;
}

/* The dim of operand 0 that has halves, and the dims of both in rules. */
typedef struct half_dims {
    int dim;
    char whole[SHERD_MAX_DIMS + 1], half[SHERD_MAX_DIMS + 1];
} half_dims;

static half_dims dims_of(const sherd_call *call)
{
    int ndim = call->in[0]->ndim;
    half_dims d = {.dim = sherd__dim_of(((const halves *)call->attributes)->dim, ndim)};

    write_dims(d.whole, ndim, d.dim, 'y');
    write_dims(d.half, ndim, d.dim, 'z');
    return d;
}

static const char *describe_halves(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    const half_dims d = dims_of(call);

    snprintf(call->rule, sizeof call->rule, "%s->%s", d.whole, d.half);
    sherd_call_shape(call, 0, a->ndim, a->shape);
    call->shape[0][d.dim] = a->shape[d.dim] / 2;
    return NULL;
}

static bool halves_forward(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    const wide w = wide_of(call);
    const half_rows r = rows_of(a, sherd__dim_of(((const halves *)call->attributes)->dim, a->ndim));
    const int64_t one = 1;
    float room[2][BLOCK];

    if (call->out[0]->count == 0)
        return true;
    for (int64_t o = 0; o < r.rows; o++)
        for (int64_t i = 0; i < r.n; i += BLOCK) {
            int64_t m = sherd__min(BLOCK, r.n - i);
            const char *a_at = (const char *)call->from[0] + (size_t)(2 * o * r.n + i) * r.bytes;
            char *y_at = (char *)call->to[0] + (size_t)(o * r.n + i) * r.bytes;
            const void *x = widened(&w, m, a_at, room[0]);
            const void *gate = widened(&w, m, a_at + (size_t)r.n * r.bytes, room[1]);
            void *y = w.half ? (void *)room[1] : y_at;
            w.k->unary(SHERD__SIGMOID, m, y, gate, NULL);
            w.k->binary(SHERD__MUL, 1, &m, y, x, &one, y, &one);
            if (w.half)
                w.own->narrow(m, y_at, y);
        }
    return true;
}

enum { G_A, G_DY };

static const char *describe_halves_grad(sherd_call *call)
{
    const half_dims d = dims_of(call);

    snprintf(call->rule, sizeof call->rule, "%s,%s->%s", d.whole, d.half, d.whole);
    return NULL;
}

/* With s the sigmoid: dy s, and dy x (1 - s) s. */
static bool halves_grad(sherd_call *call)
{
    const sherd_tensor *a = call->in[G_A];
    const wide w = wide_of(call);
    const half_rows r = rows_of(a, sherd__dim_of(((const halves *)call->attributes)->dim, a->ndim));
    const int64_t one = 1;
    float room[3][BLOCK];

    if (call->out[0]->count == 0)
        return true;
    for (int64_t o = 0; o < r.rows; o++)
        for (int64_t i = 0; i < r.n; i += BLOCK) {
            int64_t m = sherd__min(BLOCK, r.n - i);
            size_t at = (size_t)(2 * o * r.n + i) * r.bytes, apart = (size_t)r.n * r.bytes;
            const char *a_at = (const char *)call->from[G_A] + at;
            const char *dy_at = (const char *)call->from[G_DY] + (size_t)(o * r.n + i) * r.bytes;
            char *da = (char *)call->to[0] + at;
            const void *dy = widened(&w, m, dy_at, room[0]), *x = widened(&w, m, a_at, room[1]);
            const void *gate = widened(&w, m, a_at + apart, room[2]);
            void *dx = w.half ? (void *)room[2] : da,
                 *dgate = w.half ? (void *)room[1] : da + apart;
            w.k->unary(SHERD__SIGMOID, m, dx, gate, NULL);
            w.k->binary(SHERD__MUL, 1, &m, dgate, dy, &one, x, &one);
            w.k->unary_grad(SHERD__SIGMOID, m, dgate, dx, dgate, NULL);
            w.k->binary(SHERD__MUL, 1, &m, dx, dy, &one, dx, &one);
            if (!w.half)
                continue;
            w.own->narrow(m, da, dx);
            w.own->narrow(m, da + apart, dgate);
        }
    return true;
}

static const sherd_op halves_grad_op = {.name = "sherd_glu backward",
                                        .operand = {{"a", 0}, {"dy", 0}},
                                        .result = {{"da", 0}},
                                        HALVES_FIELDS,
                                        .whole = "yz",
                                        .describe = describe_halves_grad,
                                        .forward = halves_grad};

static sherd_tensor *halves_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    const halves *at = sherd_node_attributes(node);

    (void)result;
    return glu_steps(in[0], sherd__dim_of(at->dim, in[0]->ndim));
}

static void halves_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1, halves_formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[] = {sherd_node_operand(node, 0), grad_out[0]};

    grad_in[0] = sherd_apply(&halves_grad_op, in, 2, sherd_node_attributes(node));
}

static const sherd_op halves_op = {.name = "sherd_glu",
                                   .operand = {{"a", 0}},
                                   .result = {{"y", 0}},
                                   HALVES_FIELDS,
                                   .whole = "yz",
                                   .describe = describe_halves,
                                   .forward = halves_forward,
                                   .backward = halves_back,
                                   .needs = {SHERD_NEEDS_OPERAND(0)}};

/* Of a sharded dim views move half as much as the whole of it. */
static bool glu(sherd_call *call)
{
    sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(((const halves *)call->attributes)->dim, a->ndim);
    bool sharded = a->layout && a->layout->spec.dim[dim].axes > 0;

    if (sharded || sherd__world_device(call->world) || row_of(a, dim) < 2 * FEW)
        call->out[0] = glu_steps(a, dim);
    else
        call->out[0] = sherd_apply(&halves_op, &a, 1, call->attributes);
    return true;
}

const sherd_op sherd__glu_op = {.name = "sherd_glu",
                                .summary = "half of a dim, times the sigmoid of the other half",
                                .operand = {{"a", 0}},
                                .result = {{"y", 0}},
                                HALVES_FIELDS,
                                .describe = describe_glu,
                                .compose = glu};

sherd_tensor *sherd_glu(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__glu_op, &a, 1, &(halves){.dim = dim});
}

/* ---- slopes ---------------------------------------------------------------------------------- */

/* One slope for all, or one for each channel. */
static const char *describe_prelu(sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *slope = call->in[1];
    int64_t channels = a->ndim > 1 ? a->shape[1] : 1;

    if (slope->ndim != 1 || (slope->shape[0] != 1 && slope->shape[0] != channels))
        return sherd_call_reason(call, "slope must be [1] or [%lld]", (long long)channels);
    return NULL;
}

/* slope * a, element by element. */
static sherd_tensor *times_slope(sherd_tensor *a, int ndim, sherd_tensor *slope)
{
    for (int d = 2; d < ndim && slope->shape[0] != 1; d++)
        slope = sherd_unsqueeze(slope, -1);
    return sherd_mul(a, slope);
}

/* "abcd,1->abcd", or "abcd,b->abcd". */
static const char *describe_slopes(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    char all[SHERD_MAX_DIMS + 1];

    write_dims(all, a->ndim, -1, '\0');
    snprintf(call->rule, sizeof call->rule, "%s,%c->%s", all,
             call->in[1]->shape[0] == 1 ? '1' : 'b', all);
    return NULL;
}

static bool slopes_forward(sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *slope = call->in[1];
    size_t bytes = sherd_dtype_bytes(a->dtype);
    int rows = slope->shape[0] == 1 ? 0 : 2; /* dims behind which a row of one slope begins */
    int64_t n = sherd__local_count(a, rows, a->ndim), channels = rows ? a->local[1] : 1;

    for (int64_t i = 0; i < a->count; i += n) {
        double factor;
        sherd__cast(SHERD_F64, a->dtype, 1, &factor,
                    (const char *)call->from[1] + (size_t)(i / n % channels) * bytes);
        sherd__kernels_in(call)->unary(SHERD__LEAKY_RELU, n,
                                       (char *)call->to[0] + (size_t)i * bytes,
                                       (const char *)call->from[0] + (size_t)i * bytes, &factor);
    }
    return true;
}

static void slopes_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *a = sherd_node_operand(node, 0), *slope = sherd_node_operand(node, 1);
    sherd_tensor *dy = grad_out[0], *up = sherd_gt_scalar(a, 0);

    if (sherd_node_wants(node, 0))
        grad_in[0] = sherd_where(up, dy, times_slope(dy, a->ndim, slope));
    if (!sherd_node_wants(node, 1))
        return;
    sherd_tensor *down = sherd_masked_fill(sherd_mul(dy, a), up, 0);
    grad_in[1] =
        slope->shape[0] == 1 ? sherd__sum_to(down, 1, slope->shape) : sherd__sum_to_channels(down);
}

static const sherd_op slopes_op = {.name = "sherd_prelu",
                                   .operand = {{"a", 0}, {"slope", 0}},
                                   .result = {{"y", 0}},
                                   .describe = describe_slopes,
                                   .forward = slopes_forward,
                                   .backward = slopes_back,
                                   .needs = {SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_OPERAND(1),
                                             SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_OPERAND(1)}};

static bool prelu(sherd_call *call)
{
    sherd_tensor *a = sherd__without_pending(call->in[0]), *slope = call->in[1];
    int64_t n = row_of(a, slope->shape[0] == 1 ? 0 : 2);

    if (n < FEW || sherd__world_device(call->world))
        call->out[0] = sherd_where(sherd_gt_scalar(a, 0), a, times_slope(a, a->ndim, slope));
    else
        call->out[0] = sherd_apply(&slopes_op, (sherd_tensor *[]){a, slope}, 2, NULL);
    return true;
}

const sherd_op sherd__prelu_op = {.name = "sherd_prelu",
                                  .summary = "a > 0 ? a : slope a",
                                  .operand = {{"a", 0}, {"slope", 0}},
                                  .result = {{"y", 0}},
                                  .describe = describe_prelu,
                                  .compose = prelu};

sherd_tensor *sherd_prelu(sherd_tensor *a, sherd_tensor *slope)
{
    return sherd_apply(&sherd__prelu_op, (sherd_tensor *[]){a, slope}, 2, NULL);
}
