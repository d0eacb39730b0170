/* SPDX-License-Identifier: Apache-2.0 */
/*
 * General attention: masks, spans, windows, caps, dropout and shared heads. Heads are two dims
 * here, groups and the heads of a group, which share keys and values. This view leaves sharded
 * heads on groups if cuts allow, or on the heads of the only group; then keys and values are
 * replicated there, and their gradients pending. The mask broadcasts; the dims in which it does are
 * never sharded. Spans are in its place. Backward computes scores again.
 */
#include "attend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/attention.h"

enum { Q = SHERD__Q, K, V, MASK, OPERANDS };
enum { OUT, LOG_SUM };
enum { BATCH, POSITIONS, GROUPS, REPEAT, WIDTH, QUERY_DIMS };
enum { MASK_DIMS = SHERD__MASK_DIMS };

typedef sherd__attend_attributes attend_attributes;

/* Where dims begin that are not of the batch: what stands before it is not there without any. */
static int behind_batch(const sherd_tensor *q)
{
    return q->ndim - QUERY_DIMS;
}

/* The mask, and from one item to the next in each dim of the batch. */
static void add_mask(sherd__attending *s, sherd__attend_level *dim, int batches,
                     const sherd_tensor *mask, const void *data)
{
    int64_t stride[SHERD_MAX_DIMS];

    s->mask = data;
    s->mask_dtype = mask->dtype;
    sherd__row_major(mask->ndim, mask->local, stride);
    for (int d = 0; d < mask->ndim; d++) {
        if (mask->shape[d] == 1)
            stride[d] = 0;
        if (d < batches)
            dim[d].mask = stride[d];
        else
            s->mask_stride[d - batches + 1] = stride[d];
    }
}

/* The same of spans. */
static void add_spans(sherd__attending *s, sherd__attend_level *dim, int batches,
                      const sherd_tensor *spans, const void *data)
{
    int64_t stride[SHERD_MAX_DIMS];

    s->span = data;
    sherd__row_major(spans->ndim, spans->local, stride);
    for (int d = 0; d < batches; d++)
        dim[d].span = spans->shape[d] == 1 ? 0 : stride[d];
}

sherd__attend_parts sherd__attend_problem(const sherd_call *call, int q)
{
    const attend_attributes *attributes = call->attributes;
    const sherd_tensor *queries = call->in[q], *mask = call->in[q + MASK];
    int batches = sherd__attend_batches(queries), at = behind_batch(queries);
    const int64_t *size = queries->local, *shape = queries->shape;
    const sherd_tensor *keys = call->in[q + K];
    sherd_box box = sherd_tensor_box(queries);
    sherd__attend_level dim[SHERD_MAX_DIMS] = {{0}};
    sherd__attending s = {.groups = size[at + GROUPS],
                          .repeat = size[at + REPEAT],
                          .queries = size[at + POSITIONS],
                          .keys = keys->local[at + POSITIONS],
                          .width = size[at + WIDTH],
                          .scale = attributes->scale,
                          .causal = attributes->causal,
                          .softcap = attributes->softcap,
                          .first_query = box.offset[at + POSITIONS],
                          .all_queries = shape[at + POSITIONS],
                          .all_keys = keys->shape[at + POSITIONS],
                          .p = attributes->p,
                          .key = attributes->key,
                          .first = {0, box.offset[at + GROUPS], box.offset[at + REPEAT]},
                          .all_heads = shape[at + GROUPS] * shape[at + REPEAT],
                          .all_repeat = shape[at + REPEAT]};
    int64_t items = 1;

    for (int d = batches - 1; d >= 0; items *= shape[d], d--) {
        dim[d] = (sherd__attend_level){.size = size[d], .first = items};
        s.first[0] += box.offset[d] * items;
    }
    if (attributes->window < s.all_keys)
        s.window = attributes->window;
    if (sherd__attend_are_spans(mask))
        add_spans(&s, dim, batches, mask, call->from[q + MASK]);
    else if (mask)
        add_mask(&s, dim, batches, mask, call->from[q + MASK]);
    return sherd__attend_split(&s, batches, dim);
}

static double operations_of(const sherd_call *call, int q)
{
    const sherd__attend_parts parts = sherd__attend_problem(call, q);
    const sherd__attending s = parts.s;
    int64_t lo = s.first_query, hi = lo + s.queries;

    return 4 * (double)(parts.parts * s.batch * s.groups * s.repeat) * (double)s.width *
           sherd__attend_pairs_of(lo, hi, s.all_queries, s.all_keys, call->attributes);
}

double sherd__attend_general_operations(const sherd_call *call)
{
    return operations_of(call, Q);
}

double sherd__attend_general_operations_back(const sherd_call *call)
{
    return 2.5 * operations_of(call, SHERD__G_Q);
}

/* "b1rst": the letters of the mask's dims, '1' for one that broadcasts; "bsu" of spans. */
static void label_mask(const sherd_tensor *mask, int batches, char label[SHERD_MAX_DIMS + 1])
{
    bool spans = sherd__attend_are_spans(mask);
    char batch[SHERD__ATTEND_BATCHES + 1];

    sherd__attend_letters(batch, batches);
    snprintf(label, SHERD_MAX_DIMS + 1, "%s%s", batch, spans ? "su" : "grst");
    for (int d = 0; mask && d < mask->ndim; d++)
        if (mask->shape[d] == 1 && (d < batches || !spans))
            label[d] = '1';
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DOUT = SHERD__G_DOUT, G_DLOG_SUM, G_Q, G_K, G_V, G_MASK, G_OUT, G_LOG_SUM, G_OPERANDS };

void sherd__attend_give_mask(sherd_call *call, const double *sum)
{
    sherd_tensor *dmask = call->out[MASK];

    if (sherd__is_dry(call->world))
        return;
    sherd__convert(sherd__world_kernels(call->world), dmask->dtype, SHERD_F64, dmask->count,
                   call->to[MASK], sum);
}

/* By the GPU, which has kernels for it. False: failed. */
static bool attend_grad_there(sherd_call *call, const sherd__attend_parts *s)
{
    const attend_attributes *attributes = call->attributes;
    static const sherd__attend_there at = {G_DOUT, G_DLOG_SUM, G_Q, G_OUT, G_LOG_SUM};
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *dmask = call->out[MASK];
    int64_t bytes = dmask->count * (int64_t)sizeof(double);
    double *sum = NULL;

    if (attributes->wants_mask && bytes) {
        if (!(sum = sherd__device_scratch(call, bytes)))
            return false;
        sherd__device_set(device, sum, 0, bytes);
    }
    sherd__attend_grad_there(call, s, &at, sum);
    if (sum)
        sherd__device_convert(device, dmask->dtype, SHERD_F64, dmask->count, call->to[MASK], sum);
    else
        sherd__fill_in(call, MASK, 0);
    return true;
}

static bool attend_grad(sherd_call *call)
{
    const attend_attributes *attributes = call->attributes;
    int64_t bytes = sherd__max(call->out[MASK]->count, 1) * (int64_t)sizeof(double);
    sherd__attend_parts s = sherd__attend_problem(call, G_Q);
    sherd__device *device = sherd__device_in(call);
    sherd__attending_pass pass =
        attributes->wants_mask && s.s.mask ? SHERD__ATTENDING_TO_MASK : SHERD__ATTENDING_BACK;

    if (device && sherd__device_attends(device, call->out[Q]->dtype, &s.s, pass))
        return attend_grad_there(call, &s);
    if (!sherd__leave_device(call))
        return false;
    double *dmask = sherd_call_scratch(call, bytes);
    if (!dmask)
        return false;
    s = sherd__attend_problem(call, G_Q); /* the mask may lie elsewhere now */
    if (!sherd__is_dry(call->world))
        memset(dmask, 0, (size_t)bytes);
    bool done = sherd__attend_run_back(
        call, &s,
        &(sherd__attend_arrays){.out = call->to,
                                .dmask = attributes->wants_mask ? dmask : NULL,
                                .q = call->from + G_Q,
                                .dout = call->from[G_DOUT],
                                .dlog_sum = call->from[G_DLOG_SUM],
                                .result = call->from[G_OUT],
                                .log_sum = call->from[G_LOG_SUM]});
    sherd__attend_give_mask(call, dmask);
    return done;
}

const char *sherd__attend_describe_grad(sherd_call *call)
{
    const attend_attributes *attributes = call->attributes;
    int batches = sherd__attend_batches(call->in[G_Q]);
    char label[SHERD_MAX_DIMS + 1], rule[SHERD_RULE_BYTES];

    label_mask(call->in[G_MASK], batches, label);
    snprintf(rule, sizeof rule, "*sgrw,*grs,*sgrw,*tgw,*tgw,%s,*sgrw,*grs->*sgrw,*tgw,*tgw,%s",
             label, attributes->wants_mask ? label : "1");
    sherd__attend_rule(call, batches, rule);
    return NULL;
}

static const sherd_op attend_grad_op = {.name = "sherd_attention_general backward",
                                        SHERD__ATTEND_BACKWARD,
                                        .whole = "stwu",
                                        .forward = attend_grad,
                                        .dry = attend_grad,
                                        .on_device = sherd__fractions_there};

void sherd__attend_gradients(sherd_node *node, const sherd_op *op, sherd_tensor *const *grad_out,
                             sherd_tensor **grad_in)
{
    attend_attributes attributes = *(const attend_attributes *)sherd_node_attributes(node);

    if (sherd__makes_graph(sherd__node_world(node)) && attributes.p == 0) {
        sherd__differentiate(node, (1u << OPERANDS) - 1, sherd__attend_formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[G_OPERANDS] = {grad_out[OUT],
                                    grad_out[LOG_SUM],
                                    sherd_node_operand(node, Q),
                                    sherd_node_operand(node, K),
                                    sherd_node_operand(node, V),
                                    sherd_node_operand(node, MASK),
                                    sherd_node_result(node, OUT),
                                    sherd_node_result(node, LOG_SUM)};
    sherd_tensor *grad[OPERANDS];

    attributes.wants_mask = sherd_node_wants(node, MASK);
    sherd_apply_all(grad, op, in, G_OPERANDS, &attributes);
    for (int i = 0; i < OPERANDS; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

static void general_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__attend_gradients(node, &attend_grad_op, grad_out, grad_in);
}

/* Heads as groups of one, of q or of logarithms of sums: one dim more, before the last. */
static sherd_tensor *in_groups(sherd_tensor *t)
{
    int64_t shape[SHERD_MAX_DIMS];

    if (!t || sherd_tensor_failed(t))
        return t;
    memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
    shape[t->ndim] = shape[t->ndim - 1];
    shape[t->ndim - 1] = 1;
    return sherd_view(t, shape, t->ndim + 1);
}

void sherd__attend_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                        double scale, bool causal)
{
    const attend_attributes attributes = {.scale = scale, .causal = causal};
    sherd_tensor *in[G_OPERANDS] = {in_groups(grad_out[OUT]),
                                    in_groups(grad_out[LOG_SUM]),
                                    in_groups(sherd_node_operand(node, Q)),
                                    sherd_node_operand(node, K),
                                    sherd_node_operand(node, V),
                                    NULL,
                                    in_groups(sherd_node_result(node, OUT)),
                                    in_groups(sherd_node_result(node, LOG_SUM))};
    sherd_tensor *grad[OPERANDS];
    const int64_t *shape;

    sherd_apply_all(grad, &attend_grad_op, in, G_OPERANDS, &attributes);
    int ndim = sherd_node_shape(node, Q, &shape);
    if (sherd_node_wants(node, Q))
        grad_in[Q] = sherd_view(grad[Q], shape, ndim);
    for (int i = K; i <= V; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

const char *sherd__attend_describe_dims(const sherd_call *call, int q_dims)
{
    int extra = call->in[Q]->ndim - q_dims;

    if (extra < -1 || extra >= SHERD__ATTEND_BATCHES || call->in[K]->ndim != 4 + extra ||
        call->in[V]->ndim != 4 + extra)
        return SHERD__ATTEND_DIMS;
    return NULL;
}

/* Of a mask or spans, which may have been put into groups of heads. */
static const char *describe_mask(const sherd_tensor *q, const sherd_tensor *mask)
{
    int batches = sherd__attend_batches(q);

    if (sherd__attend_are_spans(mask))
        return mask->ndim != batches + 2 || mask->shape[batches + 1] != 2
                   ? "spans must be [...,queries,2]"
                   : NULL;
    if (mask->dtype != SHERD_BOOL && mask->dtype != q->dtype)
        return "the mask must be bool or of the dtype of q";
    return mask->ndim != q->ndim - QUERY_DIMS + MASK_DIMS
               ? "the mask must broadcast to [...,heads,queries,keys]"
               : NULL;
}

const char *sherd__attend_describe(sherd_call *call)
{
    const attend_attributes *attributes = call->attributes;
    const sherd_tensor *q = call->in[Q], *k = call->in[K], *mask = call->in[MASK];
    char label[SHERD_MAX_DIMS + 1], rule[SHERD_RULE_BYTES];
    const char *fault = sherd__attend_describe_dims(call, QUERY_DIMS);
    int at = behind_batch(q);

    if (fault)
        return fault;
    if (!isfinite(attributes->scale))
        return sherd_call_reason(call, "scale is %g: it must be finite", attributes->scale);
    if (attributes->causal && q->shape[at + POSITIONS] != k->shape[at + POSITIONS])
        return "causal attention needs as many queries as keys";
    if (!(attributes->p >= 0 && attributes->p < 1))
        return sherd_call_reason(call, "a dropout of %g is outside of [0,1)", attributes->p);
    fault = sherd__attend_fault(call, attributes->causal, attributes->window, attributes->softcap);
    if (!fault && mask)
        fault = describe_mask(q, mask);
    if (fault)
        return fault;
    label_mask(mask, sherd__attend_batches(q), label);
    snprintf(rule, sizeof rule, "*sgrw,*tgw,*tgw,%s->*sgrw,*grs", label);
    sherd__attend_rule(call, sherd__attend_batches(q), rule);
    return NULL;
}

static bool attend(sherd_call *call)
{
    sherd__attend_parts s = sherd__attend_problem(call, Q);

    if (!sherd__attend_check_spans(call))
        return false;
    if (sherd__attend_there_run(call, &s))
        return true;
    if (!sherd__leave_device(call))
        return false;
    s = sherd__attend_problem(call, Q); /* the mask may lie elsewhere now */
    return sherd__attend_run(call, &s, call->to, call->from + Q);
}

const sherd_op sherd__attention_general_op = {
    .name = "sherd_attention_general",
    .summary = "sherd_attention with a mask, spans, a window, a cap, dropout, shared heads",
    SHERD__ATTEND_FORWARD,
    .whole = "stwu",
    .forward = attend,
    .dry = attend,
    .on_device = sherd__fractions_there,
    .backward = general_back};
