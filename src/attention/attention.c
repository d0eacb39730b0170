/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention. Dims of batch and heads may be sharded, and each rank computes its own; sequences and
 * width are gathered here (attend_pieces.c is for sequences that stay sharded). The scores are
 * never kept: backward computes them again from q, k and the logarithms of their sums.
 */
#include "attend.h"

#include <math.h>
#include <string.h>

#include "sherd/ops_layers.h"

enum { Q, K, V, OPERANDS };
enum { POSITIONS, HEADS, WIDTH, LAST_DIMS }; /* of q, k and v, behind those of the batch */
enum { OUT, LOG_SUM };

typedef struct attention_attributes {
    double scale;
    bool causal;
} attention_attributes;

/* The problem of contiguous local pieces, in which each head is a group of its own. */
static sherd__attending problem_of(const sherd_call *call, int q, int k)
{
    const attention_attributes *attributes = call->attributes;
    int batches = call->in[q]->ndim - LAST_DIMS;
    const int64_t *size = call->in[q]->local + batches;
    int64_t keys = call->in[k]->local[batches + POSITIONS], items = 1;

    for (int d = 1; d <= batches; d++)
        items *= size[-d];
    return (sherd__attending){.batch = items,
                              .groups = size[HEADS],
                              .repeat = 1,
                              .queries = size[POSITIONS],
                              .keys = keys,
                              .width = size[WIDTH],
                              .scale = attributes->scale,
                              .causal = attributes->causal,
                              .all_queries = size[POSITIONS],
                              .all_keys = keys,
                              .all_heads = size[HEADS],
                              .all_repeat = 1};
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DOUT, G_Q, G_K, G_V, G_OUT, G_LOG_SUM, G_OPERANDS };

static bool attend_back(sherd_call *call)
{
    static const sherd__attend_there arrays_of = {G_DOUT, -1, G_Q, G_OUT, G_LOG_SUM};
    const sherd__attending all = problem_of(call, G_Q, G_K);
    const sherd__attend_parts problem = sherd__attend_whole(&all);

    if (sherd__attend_grad_there(call, &problem, &arrays_of, NULL))
        return true;
    return sherd__leave_device(call) &&
           sherd__attend_run_back(call, &problem,
                                  &(sherd__attend_arrays){.out = call->to,
                                                          .q = call->from + G_Q,
                                                          .dout = call->from[G_DOUT],
                                                          .result = call->from[G_OUT],
                                                          .log_sum = call->from[G_LOG_SUM]});
}

static double operations_back(const sherd_call *call)
{
    const sherd__attending problem = problem_of(call, G_Q, G_K);

    return 2.5 * sherd__attend_operations(&problem);
}

static const char *describe_back(sherd_call *call)
{
    sherd__attend_rule(call, call->in[G_Q]->ndim - LAST_DIMS,
                       "*shw,*shw,*thw,*thw,*shw,*hs->*shw,*thw,*thw");
    return NULL;
}

static const sherd_op attention_grad_op = {
    .name = "sherd_attention backward",
    .operand = {{"dout", 0}, {"q", 0}, {"k", 0}, {"v", 0}, {"out", 0}, {"log_sum", SHERD_OP_ANY}},
    .result = {{"dq", 0}, {"dk", 0}, {"dv", 0}},
    .field = {SHERD_FIELD(attention_attributes, scale, DOUBLE),
              SHERD_FIELD(attention_attributes, causal, BOOL)},
    .attributes = sizeof(attention_attributes),
    .whole = "stw",
    .describe = describe_back,
    .forward = attend_back,
    .dry = attend_back,
    .operations = operations_back,
    .on_device = sherd__fractions_there};

/* For a backward that is recorded. */
static sherd_tensor *formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    const attention_attributes *attributes = sherd_node_attributes(node);

    return sherd__attend_heads_formula(in, attributes->scale, attributes->causal, result);
}

static void attention_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1u << Q | 1u << K | 1u << V, formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[G_OPERANDS] = {grad_out[0],
                                    sherd_node_operand(node, Q),
                                    sherd_node_operand(node, K),
                                    sherd_node_operand(node, V),
                                    sherd_node_result(node, OUT),
                                    sherd_node_result(node, LOG_SUM)};
    sherd_tensor *grad[OPERANDS];

    sherd_apply_all(grad, &attention_grad_op, in, G_OPERANDS, sherd_node_attributes(node));
    for (int i = Q; i <= V; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const attention_attributes *attributes = call->attributes;
    const char *fault = sherd__attend_describe_dims(call, 4);
    int batches = call->in[Q]->ndim - LAST_DIMS;

    if (fault)
        return fault;
    if (!isfinite(attributes->scale))
        return sherd_call_reason(call, "scale is %g: it must be finite", attributes->scale);
    if (attributes->causal &&
        call->in[Q]->shape[batches + POSITIONS] != call->in[K]->shape[batches + POSITIONS])
        return "causal attention needs as many queries as keys";
    sherd__attend_rule(call, batches, "*shw,*thw,*thw->*shw,*hs");
    return NULL;
}

static bool attend(sherd_call *call)
{
    const sherd__attending all = problem_of(call, Q, K);
    const sherd__attend_parts problem = sherd__attend_whole(&all);

    if (sherd__attend_there_run(call, &problem))
        return true;
    return sherd__leave_device(call) && sherd__attend_run(call, &problem, call->to, call->from + Q);
}

static double operations(const sherd_call *call)
{
    const sherd__attending problem = problem_of(call, Q, K);

    return sherd__attend_operations(&problem);
}

#define ATTENTION_NEEDS                                                         \
    (SHERD_NEEDS_OPERAND(Q) | SHERD_NEEDS_OPERAND(K) | SHERD_NEEDS_OPERAND(V) | \
     SHERD_NEEDS_RESULT(OUT) | SHERD_NEEDS_RESULT(LOG_SUM))

const sherd_op sherd__attention_op = {
    .name = "sherd_attention",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "softmax(q k^T scale) v for each head",
    .operand = {{"q", 0}, {"k", 0}, {"v", 0}},
    .result = {{"out", 0}, {"log_sum", SHERD_OP_STATISTIC | SHERD_OP_HIDDEN}},
    .field = {SHERD_FIELD(attention_attributes, scale, DOUBLE),
              SHERD_FIELD(attention_attributes, causal, BOOL)},
    .attributes = sizeof(attention_attributes),
    .rule = "...shw,...thw,...thw->...shw,...hs", /* for tables: describe writes what "..." is */
    .whole = "stw",
    .describe = describe,
    .forward = attend,
    .dry = attend,
    .operations = operations,
    .on_device = sherd__fractions_there,
    .backward = attention_back,
    .needs = {ATTENTION_NEEDS, ATTENTION_NEEDS, ATTENTION_NEEDS}};

/* The gradient of the logarithms is the general operator's. */
static void sums_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const attention_attributes *attributes = sherd_node_attributes(node);
    bool graph = sherd__makes_graph(sherd__node_world(node));

    if (grad_out[LOG_SUM] && !graph)
        sherd__attend_back(node, grad_out, grad_in, attributes->scale, attributes->causal);
    else
        attention_back(node, grad_out, grad_in);
}

const sherd_op sherd__attention_with_op = {
    .name = "sherd_attention_with",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sherd_attention, and the logarithms of its sums",
    .operand = {{"q", 0}, {"k", 0}, {"v", 0}},
    .result = {{"out", 0}, {"log_sum", SHERD_OP_STATISTIC}},
    .field = {SHERD_FIELD(attention_attributes, scale, DOUBLE),
              SHERD_FIELD(attention_attributes, causal, BOOL)},
    .attributes = sizeof(attention_attributes),
    .rule = "...shw,...thw,...thw->...shw,...hs", /* for tables: describe writes what "..." is */
    .whole = "stw",
    .describe = describe,
    .forward = attend,
    .dry = attend,
    .operations = operations,
    .on_device = sherd__fractions_there,
    .backward = sums_back,
    .needs = {ATTENTION_NEEDS, ATTENTION_NEEDS, ATTENTION_NEEDS}};

bool sherd__attend_heads(sherd_tensor *out[2], sherd_tensor *const *in, double scale, bool causal,
                         bool summed)
{
    attention_attributes attributes = {scale, causal};

    if (summed)
        return sherd_apply_all(out, &sherd__attention_with_op, in, OPERANDS, &attributes);
    out[OUT] = sherd_apply(&sherd__attention_op, in, OPERANDS, &attributes);
    return !sherd_tensor_failed(out[OUT]);
}

bool sherd__attend_fast(sherd_tensor *out[2], sherd_tensor *const *in, double scale, bool causal)
{
    attention_attributes attributes = {scale, causal};
    const int64_t *n = in[Q]->shape;
    int ndim = in[Q]->ndim, batches = sherd__attend_batches(in[Q]);
    int64_t shape[SHERD_MAX_DIMS];

    if (sherd_tensor_failed(in[Q]))
        return sherd_apply_all(out, &sherd__attention_with_op, in, OPERANDS, &attributes);
    memcpy(shape, n, (size_t)(ndim - 2) * sizeof *shape);
    shape[ndim - 2] = n[ndim - 1];
    sherd_tensor *q = sherd_view(in[Q], shape, ndim - 1);
    bool good = sherd_apply_all(out, &sherd__attention_with_op, (sherd_tensor *[]){q, in[K], in[V]},
                                OPERANDS, &attributes);
    if (good) {
        out[OUT] = sherd_view(out[OUT], n, ndim);
        shape[batches] = n[batches + 1];
        shape[batches + 1] = 1;
        shape[batches + 2] = n[batches];
        out[LOG_SUM] = sherd_view(out[LOG_SUM], shape, batches + 3);
    }
    return good;
}
