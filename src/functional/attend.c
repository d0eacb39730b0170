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
#include "sherd/ops_layers.h"

enum { Q = SHERD__Q, K, V, MASK, OPERANDS };
enum { OUT, LOG_SUM };
enum { BATCH, POSITIONS, GROUPS, REPEAT, WIDTH, QUERY_DIMS };
enum { MASK_DIMS = SHERD__MASK_DIMS };

typedef sherd__attend_attributes attend_attributes;

static void add_mask(sherd__attending *s, const sherd_tensor *mask, const void *data)
{
    s->mask = data;
    s->mask_dtype = mask->dtype;
    sherd__row_major(MASK_DIMS, mask->local, s->mask_stride);
    for (int d = 0; d < MASK_DIMS; d++)
        if (mask->shape[d] == 1)
            s->mask_stride[d] = 0;
}

sherd__attending sherd__attend_problem(const sherd_call *call, int q)
{
    const attend_attributes *attributes = call->attributes;
    const sherd_tensor *queries = call->in[q], *mask = call->in[q + MASK];
    const int64_t *size = queries->local;
    sherd_box box = sherd_tensor_box(queries);
    sherd__attending s = {.batch = size[BATCH],
                          .groups = size[GROUPS],
                          .repeat = size[REPEAT],
                          .queries = size[POSITIONS],
                          .keys = call->in[q + K]->local[POSITIONS],
                          .width = size[WIDTH],
                          .scale = attributes->scale,
                          .causal = attributes->causal,
                          .softcap = attributes->softcap,
                          .first_query = box.offset[POSITIONS],
                          .all_queries = queries->shape[POSITIONS],
                          .all_keys = call->in[q + K]->shape[POSITIONS],
                          .p = attributes->p,
                          .key = attributes->key,
                          .first = {box.offset[BATCH], box.offset[GROUPS], box.offset[REPEAT]},
                          .all_heads = queries->shape[GROUPS] * queries->shape[REPEAT],
                          .all_repeat = queries->shape[REPEAT]};

    if (attributes->window < s.all_keys)
        s.window = attributes->window;
    if (sherd__attend_are_spans(mask)) {
        s.span = call->from[q + MASK];
        s.span_batch = mask->shape[BATCH] == 1 ? 0 : 2 * s.queries;
    } else if (mask) {
        add_mask(&s, mask, call->from[q + MASK]);
    }
    return s;
}

static double operations_of(const sherd_call *call, int q)
{
    const sherd__attending s = sherd__attend_problem(call, q);
    int64_t lo = s.first_query, hi = lo + s.queries;

    return 4 * (double)(s.batch * s.groups * s.repeat) * (double)s.width *
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
static void label_mask(const sherd_tensor *mask, char label[MASK_DIMS + 1])
{
    strcpy(label, sherd__attend_are_spans(mask) ? "bsu" : "bgrst");
    for (int d = 0; mask && d < mask->ndim; d++)
        if (mask->shape[d] == 1 && (d == 0 || !sherd__attend_are_spans(mask)))
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
static bool attend_grad_there(sherd_call *call, const sherd__attending *s)
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
    sherd__attending s = sherd__attend_problem(call, G_Q);
    sherd__device *device = sherd__device_in(call);
    sherd__attending_pass pass =
        attributes->wants_mask && s.mask ? SHERD__ATTENDING_TO_MASK : SHERD__ATTENDING_BACK;

    if (device && sherd__device_attends(device, call->out[Q]->dtype, &s, pass))
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
    char label[MASK_DIMS + 1];

    label_mask(call->in[G_MASK], label);
    snprintf(call->rule, sizeof call->rule,
             "bsgrw,bgrs,bsgrw,btgw,btgw,%s,bsgrw,bgrs->bsgrw,btgw,btgw,%s", label,
             attributes->wants_mask ? label : "1");
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

/* Heads as groups of one. */
static sherd_tensor *in_groups(sherd_tensor *t)
{
    const int64_t *n = t ? t->shape : NULL;

    if (!t || sherd_tensor_failed(t))
        return t;
    return t->ndim == 4 ? sherd_view(t, (int64_t[]){n[0], n[1], n[2], 1, n[3]}, 5)
                        : sherd_view(t, (int64_t[]){n[0], n[1], 1, n[2]}, 4);
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
    sherd_node_shape(node, Q, &shape);
    if (sherd_node_wants(node, Q))
        grad_in[Q] = sherd_view(grad[Q], shape, 4);
    for (int i = K; i <= V; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

const char *sherd__attend_describe(sherd_call *call)
{
    const attend_attributes *attributes = call->attributes;
    const sherd_tensor *q = call->in[Q], *k = call->in[K], *mask = call->in[MASK];
    char label[MASK_DIMS + 1];

    if (q->ndim != QUERY_DIMS || k->ndim != 4)
        return "q, k and v must have four dims [batch,positions,heads,width]";
    if (!isfinite(attributes->scale))
        return sherd_call_reason(call, "scale is %g: it must be finite", attributes->scale);
    if (attributes->causal && q->shape[POSITIONS] != k->shape[POSITIONS])
        return "causal attention needs as many queries as keys";
    if (!(attributes->p >= 0 && attributes->p < 1))
        return sherd_call_reason(call, "a dropout of %g is outside of [0,1)", attributes->p);
    const char *fault =
        sherd__attend_fault(call, attributes->causal, attributes->window, attributes->softcap);
    if (fault)
        return fault;
    if (sherd__attend_are_spans(mask) && (mask->ndim != 3 || mask->shape[2] != 2))
        return "spans must be [batch,queries,2]";
    if (mask && !sherd__attend_are_spans(mask) && mask->dtype != SHERD_BOOL &&
        mask->dtype != q->dtype)
        return "the mask must be bool or of the dtype of q";
    if (mask && !sherd__attend_are_spans(mask) && mask->ndim != MASK_DIMS)
        return "the mask must broadcast to [batch,heads,queries,keys]";
    label_mask(mask, label);
    snprintf(call->rule, sizeof call->rule, "bsgrw,btgw,btgw,%s->bsgrw,bgrs", label);
    return NULL;
}

static bool attend(sherd_call *call)
{
    sherd__attending s = sherd__attend_problem(call, Q);

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

/* ---- from the public options ----------------------------------------------------------------- */

static bool are_grouped(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v)
{
    return q && k && v && q->ndim == 4 && k->ndim == 4 && v->ndim == 4 &&
           k->shape[2] == v->shape[2] && k->shape[2] > 0 && k->shape[2] < q->shape[2] &&
           q->shape[2] % k->shape[2] == 0;
}

bool sherd__attend_is_general(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v,
                              const sherd_attention_options *options)
{
    return (options && (options->mask || options->dropout != 0 || options->window != 0 ||
                        options->softcap != 0 || options->spans ||
                        (unsigned)options->way > SHERD_ATTENTION_HEADS)) ||
           are_grouped(q, k, v);
}

/*
 * A mask of up to four dims as [batch,groups,repeat,queries,keys]; one that does not fit is left as
 * it is, and refused later.
 */
static sherd_tensor *spread_mask(sherd_tensor *mask, int64_t groups, int64_t repeat)
{
    int64_t shape[MASK_DIMS] = {1, 1, 1, 1, 1};

    if (!mask || sherd_tensor_failed(mask) || mask->ndim > 4)
        return mask;
    for (int d = 0; d < mask->ndim; d++) {
        int at = d + 4 - mask->ndim; /* of [batch,heads,queries,keys] */
        if (at == 1 && mask->shape[d] != 1) {
            shape[1] = groups;
            shape[2] = repeat;
            if (mask->shape[d] != groups * repeat)
                return mask;
        } else {
            shape[at == 0 ? 0 : at + 1] = mask->shape[d];
        }
    }
    return sherd_view(mask, shape, MASK_DIMS);
}

/* The results with heads as one dim. */
static void join_heads(sherd_tensor *out[2], const sherd_tensor *q, bool summed)
{
    out[OUT] = sherd_view(out[OUT], q->shape, 4);
    if (summed)
        out[LOG_SUM] =
            sherd_view(out[LOG_SUM], (int64_t[]){q->shape[0], q->shape[2], q->shape[1]}, 3);
}

static const char *fault_of(const sherd_attention_options *o, const sherd_tensor *q,
                            const sherd_tensor *k)
{
    if (o->zigzag < 0)
        return "zigzag is negative";
    if (o->zigzag > 1 && q->shape[POSITIONS] != k->shape[POSITIONS])
        return "zigzag needs as many queries as keys";
    if (o->dropout != 0 && !o->generator)
        return "dropout without a generator";
    if (o->mask && o->spans)
        return "spans together with a mask";
    if (o->spans && o->spans->dtype != SHERD_I32)
        return "spans must be i32";
    if (o->mask && o->mask->ndim > 4)
        return "the mask has more than four dims";
    return o->way < SHERD_ATTENTION_CHEAPEST || o->way > SHERD_ATTENTION_HEADS
               ? "there is no such way"
               : NULL;
}

void sherd__attend_in_order(sherd_tensor **out, sherd_tensor *const *in, int64_t zigzag)
{
    const sherd_tensor *mask = in[MASK];

    for (int i = Q; i <= V; i++)
        out[i] = sherd_unzigzag(in[i], POSITIONS, zigzag);
    out[MASK] = in[MASK];
    if (sherd__attend_are_spans(mask) && mask->ndim == 3)
        out[MASK] = sherd_unzigzag(in[MASK], 1, zigzag);
    for (int d = 3; mask && mask->ndim == MASK_DIMS && d < MASK_DIMS; d++)
        if (mask->shape[d] != 1)
            out[MASK] = sherd_unzigzag(out[MASK], d, zigzag);
}

/* Sequences are not sharded, or will be gathered. */
static bool apply(sherd_tensor *out[2], sherd_tensor *const *in,
                  const attend_attributes *attributes, bool general, bool summed)
{
    attend_attributes plain = *attributes;
    sherd_tensor *ordered[OPERANDS];

    plain.zigzag = 0;
    if (attributes->zigzag > 1)
        sherd__attend_in_order(ordered, in, attributes->zigzag);
    sherd_tensor *const *x = attributes->zigzag > 1 ? ordered : in;
    bool good = general ? sherd_apply_all(out, &sherd__attention_general_op, x, OPERANDS, &plain)
                        : sherd__attend_fast(out, x, attributes->scale, attributes->causal);
    if (good && attributes->zigzag > 1) {
        out[OUT] = sherd_zigzag(out[OUT], POSITIONS, attributes->zigzag);
        if (summed)
            out[LOG_SUM] = sherd_zigzag(out[LOG_SUM], -1, attributes->zigzag);
    }
    return good;
}

/* Move the shards from the sequence to heads, and the results back. */
static bool apply_in_heads(sherd_tensor *out[2], sherd_tensor *const *in,
                           const attend_attributes *attributes, const sherd__choice *choice,
                           bool general)
{
    const sherd_redistribute_options begin = {.begin = true};
    sherd_tensor *there[OPERANDS] = {in[Q], in[K], in[V], in[MASK]};

    for (int i = Q; i <= V; i++)
        if (there[i]->layout)
            there[i] = sherd_redistribute(there[i], choice->to[i], &begin);
    if (!apply(out, there, attributes, general, choice->back_sum != NULL))
        return false;
    out[OUT] = sherd_redistribute(out[OUT], choice->back, NULL);
    if (choice->back_sum)
        out[LOG_SUM] = sherd_redistribute(out[LOG_SUM], choice->back_sum, NULL);
    return true;
}

static bool apply_sharded(sherd_tensor *out[2], sherd_tensor *const *in,
                          const attend_attributes *attributes, sherd_attention_way asked,
                          bool general, bool summed)
{
    attend_attributes mine = *attributes;
    sherd__choice choice;

    if (sherd_tensor_failed(in[Q]))
        return apply(out, in, attributes, general, summed);
    if (sherd__attend_choose(&choice, in, &mine, asked)) {
        out[OUT] = out[LOG_SUM] = sherd__fail_diag(in[Q]->world, true);
        return false;
    }
    if (choice.way == SHERD_ATTENTION_CHEAPEST)
        return apply(out, in, attributes, general, summed);
    if (!summed)
        choice.back_sum = NULL;
    if (choice.way == SHERD_ATTENTION_HEADS)
        return apply_in_heads(out, in, attributes, &choice, general);
    mine.ring = choice.way == SHERD_ATTENTION_RING;
    return sherd_apply_all(out, &sherd__attention_pieces_op, in, OPERANDS, &mine);
}

bool sherd__attend(sherd_tensor *out[2], sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                   const sherd_attention_options *options, bool summed)
{
    const sherd_attention_options o = options ? *options : (sherd_attention_options){0};
    attend_attributes attributes = {.scale = sherd__attend_scale(q, options),
                                    .causal = o.causal,
                                    .p = o.dropout,
                                    .window = o.window,
                                    .zigzag = o.zigzag,
                                    .softcap = o.softcap};
    sherd_tensor *in[OPERANDS] = {q, k, v, o.spans ? o.spans : o.mask};
    sherd_world *world = NULL;

    for (int i = 0; i < OPERANDS && !world; i++)
        world = sherd_tensor_world(in[i]);
    if (o.dropout != 0 && o.generator && world)
        attributes.key = sherd__next_key(world, o.generator);
    bool good = q && k && q->ndim == 4 && k->ndim == 4 && !sherd_tensor_failed(q);
    const char *fault = good ? fault_of(&o, q, k) : NULL;
    if (fault) {
        out[OUT] = out[LOG_SUM] =
            sherd__fail_tensor(world, q->layout != NULL, SHERD_EINVAL,
                               "sherd_attention: %s: q is %s", fault, sherd_tensor_text(q));
        return false;
    }
    if (good) {
        int64_t groups = are_grouped(q, k, v) ? k->shape[2] : q->shape[2];
        int64_t repeat = groups ? q->shape[2] / groups : 1;
        in[Q] =
            sherd_view(q, (int64_t[]){q->shape[0], q->shape[1], groups, repeat, q->shape[3]}, 5);
        in[MASK] = o.spans ? o.spans : spread_mask(o.mask, groups, repeat);
    }
    bool general = sherd__attend_is_general(q, k, v, options);
    if (!(sherd__attend_is_sharded(q, k, v)
              ? apply_sharded(out, in, &attributes, o.way, general, summed)
              : apply(out, in, &attributes, general, summed)))
        return false;
    join_heads(out, q, summed);
    return !sherd_tensor_failed(out[OUT]) && !sherd_tensor_failed(out[LOG_SUM]);
}
