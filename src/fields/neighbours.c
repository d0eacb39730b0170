/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Neighbourhood attention, in one to three spatial dims. Each rank keeps its queries and fetches
 * the neighbouring keys and values that they see, in one call. The scores are never kept. Backward
 * is one call too: it fetches keys and values for this rank's queries, and, for its keys, the
 * queries that see them, with their gradients. So nothing is added up across borders, and all sums
 * are those of a plain tensor, in the same order; sending gradients back instead would move as
 * much, twice.
 */
#include "neighbours.h"

#include <math.h>

#include "sherd/ops_stencil.h"

enum { Q, K, V, OPERANDS };
enum { OUT, LOG_SUM };
enum { BATCH = SHERD__NEIGHBOURS_BATCH, SPACE = SHERD__NEIGHBOURS_SPACE, BEHIND = 2 };
enum { DIMS = SHERD__NEIGHBOUR_DIMS };

/* ---- pieces ---------------------------------------------------------------------------------- */

static sherd__patch patch_of(sherd_box box)
{
    int dims = box.ndim - SPACE - BEHIND;
    sherd__patch p = {.size = {box.size[BATCH], 1, 1, 1, box.size[SPACE + dims]}};

    p.first[BATCH] = box.offset[BATCH];
    p.first[SPACE + DIMS] = box.offset[SPACE + dims];
    for (int d = 0; d < dims; d++) {
        p.first[SPACE + d] = box.offset[SPACE + d];
        p.size[SPACE + d] = box.size[SPACE + d];
    }
    return p;
}

/*
 * The problem of this rank; `made` is a result with the layout of q; q, k, v are the operand `q`
 * and the next two.
 */
static sherd__neighbours problem_of(const sherd_call *call, const sherd_tensor *made, int q)
{
    const sherd__neighbours_attributes *a = call->attributes;
    sherd__neighbours n = {.scale = a->scale, .width = made->shape[made->ndim - 1]};

    for (int d = 0; d < DIMS; d++) {
        bool there = d < made->ndim - SPACE - BEHIND;
        n.whole[d] = there ? made->shape[SPACE + d] : 1;
        n.kernel[d] = there ? a->kernel[d] : 1;
        n.dilation[d] = there ? a->dilation[d] : 1;
    }
    n.q = patch_of(sherd_call_box(call, q + Q));
    n.k = patch_of(sherd_call_box(call, q + K));
    n.v = patch_of(sherd_call_box(call, q + V));
    return n;
}

/* Operand i as f32 or f64: itself, or converted; NULL: no memory. */
static const void *read(sherd_call *call, int i)
{
    int64_t count = sherd__max(call->in[i]->count, 1);

    if (!sherd__is_half(call->in[i]->dtype))
        return call->from[i];
    float *wide = sherd_call_scratch(call, count * (int64_t)sizeof *wide);
    if (wide && !sherd__is_dry(call->world))
        sherd__kernels_in(call)->widen(call->in[i]->count, wide, call->from[i]);
    return wide;
}

/* Memory for result j; and writing it back, rounded. */
static void *room(sherd_call *call, int j)
{
    return sherd__is_half(call->out[j]->dtype)
               ? sherd_call_scratch(call, call->out[j]->count * (int64_t)sizeof(float))
               : call->to[j];
}

static void settle(sherd_call *call, int j, const void *made)
{
    if (sherd__is_half(call->out[j]->dtype))
        sherd__kernels_in(call)->narrow(call->out[j]->count, call->to[j], made);
}

/* ---- what is read around --------------------------------------------------------------------- */

static bool is_space(const sherd_call *call, int d)
{
    return d >= SPACE && d < call->out[0]->ndim - BEHIND;
}

/*
 * The keys that queries read: in spatial dims their neighbours, in batch and heads the same
 * indices.
 */
static void read_keys(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                      int64_t *end)
{
    const sherd__neighbours_attributes *a = call->attributes;

    (void)i;
    *first = lo;
    *end = hi;
    if (is_space(call, d))
        sherd__neighbours_keys(call->out[0]->shape[d], a->kernel[d - SPACE], a->dilation[d - SPACE],
                               lo, hi, first, end);
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DOUT, G_Q, G_K, G_V, G_LOG_SUM, G_DELTA, G_OPERANDS };

static bool add_products(sherd_call *call)
{
    const sherd_tensor *dout = call->in[0];
    int64_t width = dout->shape[dout->ndim - 1];

    if (dout->count == 0)
        return true;
    const void *a = read(call, 0), *b = read(call, 1);
    if (!a || !b || sherd__is_dry(call->world))
        return a && b;
    sherd__neighbours_kernels_of(dout->dtype)
        ->products(call->out[0]->count, width, call->to[0], a, b);
    return true;
}

static const sherd_op products_op = {.name = "sherd_neighbourhood_attention backward of sums",
                                     .operand = {{"dout", 0}, {"out", 0}},
                                     .result = {{"delta", SHERD_OP_STATISTIC}},
                                     .rule = "...w,...w->...",
                                     .whole = "w",
                                     .forward = add_products,
                                     .dry = add_products};

static void read_back(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                      int64_t *end)
{
    const sherd__neighbours_attributes *a = call->attributes;

    if (i == G_K || i == G_V)
        read_keys(call, i, d, lo, hi, first, end);
    else if (is_space(call, d))
        sherd__neighbours_queries(call->out[0]->shape[d], a->kernel[d - SPACE],
                                  a->dilation[d - SPACE], lo, hi, first, end);
}

static const char *describe_back(sherd_call *call)
{
    for (int j = Q; j <= V; j++)
        sherd_call_shape(call, j, call->in[G_Q]->ndim, call->in[G_Q]->shape);
    return NULL;
}

static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    sherd__neighbours_lying l;
    sherd_status status = sherd__neighbours_lie(&l, ways, G_Q);
    const sherd_layout *operand[G_OPERANDS] = {l.q, l.q, l.k, l.v, l.sum, l.sum};
    const sherd_layout *result[] = {l.q, l.q, l.q};

    (void)call;
    return status ? status : sherd_way_add(ways, operand, result);
}

static bool attend_back(sherd_call *call)
{
    sherd__neighbours n = problem_of(call, call->out[Q], G_Q);
    const void *from[G_OPERANDS];
    void *to[OPERANDS];

    n.mine = patch_of(sherd_tensor_box(call->out[Q]));
    if (call->out[Q]->count == 0)
        return true;
    void *workspace = sherd_call_scratch(call, sherd__neighbours_workspace(&n));
    bool good = workspace != NULL;
    for (int i = 0; i < G_OPERANDS && good; i++)
        good = (from[i] = read(call, i)) != NULL;
    for (int j = Q; j <= V && good; j++)
        good = (to[j] = room(call, j)) != NULL;
    if (!good || sherd__is_dry(call->world))
        return good;
    sherd__neighbours_kernels_of(call->out[Q]->dtype)
        ->backward(&n, to[Q], to[K], to[V], from[G_DOUT], from[G_Q], from[G_K], from[G_V],
                   from[G_LOG_SUM], from[G_DELTA], workspace);
    for (int j = Q; j <= V; j++)
        settle(call, j, to[j]);
    return true;
}

/* Scores and their products with values of each query: twice the kernel times the width. */
static double products_of(const sherd_call *call, const sherd_tensor *q)
{
    const sherd__neighbours_attributes *a = call->attributes;
    double each = 4;

    for (int d = SPACE; d < q->ndim - BEHIND; d++)
        each *= (double)a->kernel[d - SPACE];
    return each * (double)q->count;
}

static double operations_back(const sherd_call *call)
{
    return 2.5 * products_of(call, call->out[Q]);
}

static double operations(const sherd_call *call)
{
    return products_of(call, call->in[Q]);
}

#define ATTRIBUTES                                                               \
    .field = {SHERD_FIELDS(sherd__neighbours_attributes, kernel, INT64, DIMS),   \
              SHERD_FIELDS(sherd__neighbours_attributes, dilation, INT64, DIMS), \
              SHERD_FIELD(sherd__neighbours_attributes, scale, DOUBLE)},         \
    .attributes = sizeof(sherd__neighbours_attributes)

enum { AROUND = SHERD_OP_AROUND, NUMBERS = SHERD_OP_AROUND | SHERD_OP_ANY };

static const sherd_op back_op = {.name = "sherd_neighbourhood_attention backward",
                                 .operand = {{"dout", AROUND},
                                             {"q", AROUND},
                                             {"k", AROUND},
                                             {"v", AROUND},
                                             {"log_sum", NUMBERS},
                                             {"delta", NUMBERS}},
                                 .result = {{"dq", 0}, {"dk", 0}, {"dv", 0}},
                                 ATTRIBUTES,
                                 .describe = describe_back,
                                 .ways = lie_back,
                                 .reads = read_back,
                                 .forward = attend_back,
                                 .dry = attend_back,
                                 .operations = operations_back};

static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *sums[] = {grad_out[OUT], sherd_node_result(node, OUT)};
    sherd_tensor *in[G_OPERANDS] = {grad_out[OUT],
                                    sherd_node_operand(node, Q),
                                    sherd_node_operand(node, K),
                                    sherd_node_operand(node, V),
                                    sherd_node_result(node, LOG_SUM),
                                    sherd_apply(&products_op, sums, 2, NULL)};
    sherd_tensor *grad[OPERANDS];

    sherd_apply_all(grad, &back_op, in, G_OPERANDS, sherd_node_attributes(node));
    for (int i = Q; i <= V; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

static const char *describe_window(sherd_call *call, int d)
{
    const sherd__neighbours_attributes *a = call->attributes;
    int64_t k = a->kernel[d], dilation = a->dilation[d], n = call->in[Q]->shape[SPACE + d];

    if (k < 1 || k % 2 == 0)
        return sherd_call_reason(call, "a kernel of %lld in dim %d: it must be odd", (long long)k,
                                 SPACE + d);
    if (dilation < 1)
        return sherd_call_reason(call, "a dilation of %lld in dim %d", (long long)dilation,
                                 SPACE + d);
    return k <= n / dilation
               ? NULL
               : sherd_call_reason(
                     call, "a kernel of %lld with dilation %lld does not fit dim %d of size %lld",
                     (long long)k, (long long)dilation, SPACE + d, (long long)n);
}

/* `call->attributes` begin with those of a window. */
static const char *describe_space(sherd_call *call)
{
    const sherd__neighbours_attributes *a = call->attributes;
    const sherd_tensor *q = call->in[Q];
    int dims = q->ndim - SPACE - BEHIND;
    const char *fault = NULL;

    if (dims < 1 || dims > DIMS)
        return "q must be [batch, ..., heads, width] with one to three dims between";
    for (int i = K; i <= V; i++) {
        bool same = call->in[i]->ndim == q->ndim;
        for (int d = 0; d < q->ndim && same; d++)
            same = call->in[i]->shape[d] == q->shape[d];
        if (!same)
            return "q, k and v must have the same shape";
    }
    if (!isfinite(a->scale))
        return sherd_call_reason(call, "scale is %g: it must be finite", a->scale);
    for (int d = 0; d < dims && !fault; d++)
        fault = describe_window(call, d);
    return fault;
}

static const char *describe(sherd_call *call)
{
    const sherd_tensor *q = call->in[Q];
    const char *fault = describe_space(call);

    sherd_call_shape(call, OUT, q->ndim, q->shape);
    sherd_call_shape(call, LOG_SUM, q->ndim - 1, q->shape);
    return fault;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    sherd__neighbours_lying l;
    sherd_status status = sherd__neighbours_lie(&l, ways, Q);
    const sherd_layout *operand[OPERANDS] = {l.q, l.k, l.v}, *result[] = {l.q, l.sum};

    (void)call;
    return status ? status : sherd_way_add(ways, operand, result);
}

static bool attend(sherd_call *call)
{
    sherd__neighbours n = problem_of(call, call->out[OUT], Q);

    if (call->out[OUT]->count == 0)
        return true;
    void *workspace = sherd_call_scratch(call, sherd__neighbours_workspace(&n));
    const void *q = read(call, Q), *k = read(call, K), *v = read(call, V);
    void *out = room(call, OUT);
    if (!workspace || !q || !k || !v || !out)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__neighbours_kernels_of(call->out[OUT]->dtype)
        ->forward(&n, out, call->to[LOG_SUM], q, k, v, workspace);
    settle(call, OUT, out);
    return true;
}

#define NEEDS                                                                   \
    (SHERD_NEEDS_OPERAND(Q) | SHERD_NEEDS_OPERAND(K) | SHERD_NEEDS_OPERAND(V) | \
     SHERD_NEEDS_RESULT(OUT) | SHERD_NEEDS_RESULT(LOG_SUM))

const sherd_op sherd__neighbourhood_attention_op = {
    .name = "sherd_neighbourhood_attention",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "softmax(q k^T scale) v over the nearest positions in 1 to 3 dims",
    .layouts =
        "batch, space and heads as q; for sharded space, neighbouring keys and values are fetched",
    .operand = {{"q", 0}, {"k", AROUND}, {"v", AROUND}},
    .result = {{"out", 0}, {"log_sum", SHERD_OP_STATISTIC | SHERD_OP_HIDDEN}},
    ATTRIBUTES,
    .describe = describe,
    .ways = lie,
    .reads = read_keys,
    .forward = attend,
    .dry = attend,
    .operations = operations,
    .backward = differentiate,
    .needs = {NEEDS, NEEDS, NEEDS}};

/* ---- periodic dims --------------------------------------------------------------------------- */

/*
 * Space that goes around: keys and values are repeated beyond the ends, as far as a window reaches,
 * and queries that nobody asked for are put there, whose results are cut off again. So every real
 * query is in the interior.
 */
typedef struct around {
    sherd__neighbours_attributes window;
    int64_t periodic[DIMS];
} around;

static int64_t reach(const around *a, int d)
{
    return a->periodic[d] ? a->window.kernel[d] / 2 * a->window.dilation[d] : 0;
}

static bool attend_around(sherd_call *call)
{
    const around *a = call->attributes;
    int dims = call->in[Q]->ndim - SPACE - BEHIND;
    sherd_pad_options zeros = {.value = 0}, rings = zeros;
    sherd_tensor *in[OPERANDS], *out;

    for (int d = 0; d < dims; d++) {
        zeros.before[SPACE + d] = (sherd_halo_side){reach(a, d), SHERD_BORDER_CONSTANT};
        zeros.after[SPACE + d] = zeros.before[SPACE + d];
        rings.before[SPACE + d] = (sherd_halo_side){reach(a, d), SHERD_BORDER_PERIODIC};
        rings.after[SPACE + d] = rings.before[SPACE + d];
    }
    for (int i = Q; i <= V; i++)
        in[i] = sherd_pad_with(call->in[i], i == Q ? &zeros : &rings);
    out = sherd_apply(&sherd__neighbourhood_attention_op, in, OPERANDS, &a->window);
    for (int d = 0; d < dims; d++)
        if (reach(a, d))
            out = sherd_narrow(out, SPACE + d, reach(a, d), call->in[Q]->shape[SPACE + d]);
    call->out[OUT] = out;
    return true;
}

static const char *describe_around(sherd_call *call)
{
    const char *fault = describe_space(call);

    sherd_call_shape(call, OUT, call->in[Q]->ndim, call->in[Q]->shape);
    return fault;
}

static const sherd_op around_op = {.name = "sherd_neighbourhood_attention periodic",
                                   .operand = {{"q", 0}, {"k", 0}, {"v", 0}},
                                   .result = {{"out", 0}},
                                   .field = {SHERD_FIELDS(around, window.kernel, INT64, DIMS),
                                             SHERD_FIELDS(around, window.dilation, INT64, DIMS),
                                             SHERD_FIELD(around, window.scale, DOUBLE),
                                             SHERD_FIELDS(around, periodic, INT64, DIMS)},
                                   .attributes = sizeof(around),
                                   .describe = describe_around,
                                   .compose = attend_around};

sherd_tensor *sherd_neighbourhood_attention(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                            const sherd_neighbourhood_options *options)
{
    static const sherd_neighbourhood_options none;
    const sherd_neighbourhood_options *o = options ? options : &none;
    int64_t width = q && q->ndim > 0 ? q->shape[q->ndim - 1] : 1;
    around a = {.window.scale = o->scale};
    bool is_around = false;

    if (o->scale == 0)
        a.window.scale = 1 / sqrt((double)sherd__max(width, 1));
    for (int d = 0; d < DIMS; d++) {
        a.window.kernel[d] = o->kernel[d];
        a.window.dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
        a.periodic[d] = o->periodic[d];
        is_around |= o->periodic[d];
    }
    if (is_around)
        return sherd_apply(&around_op, (sherd_tensor *[]){q, k, v}, OPERANDS, &a);
    return sherd_apply(&sherd__neighbourhood_attention_op, (sherd_tensor *[]){q, k, v}, OPERANDS,
                       &a.window);
}
