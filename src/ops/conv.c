/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and transposed ones, in one to three dims. Ranks that hold parts of the space fetch
 * exactly the neighbouring elements that their outputs need. Backward is made of such operators
 * too: the gradient of the input reads the output's gradient around its pieces, so nothing is added
 * up across borders; the gradient of the weight is a pending sum. If both are needed, they are
 * computed from the same pieces.
 */
#include "conv.h"

#include <string.h>

#include "base/num.h"
#include "kernels/engine.h"
#include "sherd/ops_reductions.h"

enum { FIRST = 2, WEIGHT = 1, BIAS = 2, LIKE = 3, BEHIND = 1, READ = 2 };

/* Of an operator that makes small, big, or the weight. */
static const sherd__conv_roles makes_small = {0, -1, WEIGHT, BIAS, LIKE, false};
static const sherd__conv_roles makes_big = {-1, 0, WEIGHT, BIAS, LIKE, false};
static const sherd__conv_roles makes_weight = {0, BEHIND, -1, -1, -1, false};
/* Of an operator that makes the weight and small, or big, out of all three. */
static const sherd__conv_roles makes_small_too = {0, READ, WEIGHT, -1, -1, true};
static const sherd__conv_roles makes_big_too = {READ, 0, WEIGHT, -1, -1, true};

/* ---- computing ------------------------------------------------------------------------------- */

/*
 * The geometry of this rank's pieces: their offsets in the whole decide what the first output
 * reads.
 */
static sherd__conv geometry(const sherd_call *call, const sherd_box *big, const sherd_box *small)
{
    const sherd__conv_attributes *a = call->attributes;
    int dims = big->ndim - FIRST, skip = SHERD__CONV_DIMS - dims;
    sherd__conv c = {
        .batch = big->size[0], .in_channels = big->size[1], .out_channels = small->size[1]};

    c.groups = a->groups;
    for (int i = 0; i < SHERD__CONV_DIMS; i++) {
        int d = i - skip;
        c.in[i] = d < 0 ? 1 : big->size[FIRST + d];
        c.out[i] = d < 0 ? 1 : small->size[FIRST + d];
        c.kernel[i] = d < 0 ? 1 : a->kernel[d];
        c.stride[i] = d < 0 ? 1 : a->stride[d];
        c.dilation[i] = d < 0 ? 1 : a->dilation[d];
        c.before[i] =
            d < 0 ? 0
                  : a->before[d] + big->offset[FIRST + d] - small->offset[FIRST + d] * a->stride[d];
    }
    return c;
}

/* How many groups this rank has: those of its channels, all whole. */
static int64_t local_groups(int64_t groups, int64_t whole, int64_t mine)
{
    return groups > 1 && whole ? sherd__max(groups * mine / whole, 1) : 1;
}

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* How many elements of big, weight and small this rank has. */
static void count_all(const sherd__conv *c, int64_t *count)
{
    count[0] = c->batch * c->in_channels * product(c->in);
    count[1] = c->out_channels * (c->in_channels / c->groups) * product(c->kernel);
    count[2] = c->batch * c->out_channels * product(c->out);
}

static const int made_by[] = {[SHERD__CONV_FORWARD] = SHERD__CONV_Y,
                              [SHERD__CONV_BACKWARD_X] = SHERD__CONV_X,
                              [SHERD__CONV_BACKWARD_W] = SHERD__CONV_W};

/* 16 bits are computed in f32 too. */
static const sherd__kernels *f32_in(const sherd_call *call)
{
    return sherd__kernels_of(sherd__world_kernels(call->world), SHERD_F32);
}

/*
 * By oneDNN, with operands copied to memory that is kept: fresh pages for large fields would take a
 * fifth of the time.
 */
static sherd__done run_onednn(sherd_call *call, const sherd__conv_job *job)
{
    sherd__engine *engine = sherd__engine_in(call);
    int64_t bytes = 0;

    if (!engine)
        return SHERD__CANNOT;
    sherd__done done = sherd__conv_onednn_bytes(&bytes, engine, job);
    if (done != SHERD__DONE)
        return done;
    void *workspace = sherd_call_scratch(call, sherd__max(bytes, 1));
    return workspace ? sherd__conv_onednn(engine, job, workspace) : SHERD__NO_MEMORY;
}

/* One task in f32 or f64. False: failed. */
static bool run_one(sherd_call *call, const sherd__conv *c, const sherd__conv_task *task,
                    sherd_dtype dtype)
{
    const sherd__conv_job alone = {c, task, 1, NULL, f32_in(call)};
    sherd__done done = dtype == SHERD_F32 ? run_onednn(call, &alone) : SHERD__CANNOT;

    if (done == SHERD__NO_MEMORY)
        return sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a convolution");
    if (done == SHERD__CANNOT)
        sherd__conv_plain(c, dtype, task);
    return true;
}

/* 16 bits compute in f32 and are rounded once. False: failed. */
static bool run_half(sherd_call *call, const sherd__conv *c, const int64_t *count,
                     const sherd__conv_task *task)
{
    const sherd__kernels *kernels = sherd__kernels_in(call);
    sherd__conv_task wide = {.kind = task->kind};
    int made = made_by[task->kind];

    for (int i = 0; i < SHERD__CONV_ARRAYS; i++) {
        wide.array[i] = sherd_call_scratch(call, sherd__max(count[i], 1) * 4);
        if (!wide.array[i])
            return false;
        if (i != made)
            kernels->widen(count[i], wide.array[i], task->array[i]);
    }
    if (!run_one(call, c, &wide, SHERD_F32))
        return false;
    kernels->narrow(count[made], task->array[made], wide.array[made]);
    return true;
}

/* Each task by itself, if they cannot be done together. */
static bool run_apart(sherd_call *call, const sherd__conv_job *job, const int64_t *count)
{
    sherd_dtype dtype = call->out[0]->dtype;

    for (int t = 0; t < job->tasks; t++)
        if (!(sherd__is_half(dtype) ? run_half(call, job->conv, count, &job->task[t])
                                    : run_one(call, job->conv, &job->task[t], dtype)))
            return false;
    return true;
}

/* *biased: the bias is in the result already. False: failed. */
static bool run(sherd_call *call, const sherd__conv_job *job, const int64_t *count, bool *biased)
{
    bool together = call->out[0]->dtype == SHERD_F32 && (job->bias || job->tasks > 1);
    sherd__done done = together ? run_onednn(call, job) : SHERD__CANNOT;

    *biased = job->bias && done == SHERD__DONE;
    if (done == SHERD__NO_MEMORY)
        return sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a convolution");
    return done == SHERD__DONE || run_apart(call, job, count);
}

/*
 * Tasks on pieces of `big` and `small`. `bias`: of a forward one; set to NULL once it is in the
 * result.
 */
static bool compute(sherd_call *call, const sherd_box *big, const sherd_box *small,
                    int64_t channels, const sherd__conv_task *task, int tasks, const void **bias)
{
    sherd__conv c = geometry(call, big, small);
    int64_t count[SHERD__CONV_ARRAYS];
    bool biased = false;

    c.groups = local_groups(c.groups, channels, big->size[1]);
    count_all(&c, count);
    if (count[0] && count[1] && count[2]) {
        const sherd__conv_job job = {&c, task, tasks, bias ? *bias : NULL, f32_in(call)};
        bool good = run(call, &job, count, &biased);
        if (biased)
            *bias = NULL;
        return good;
    }
    for (int t = 0; t < tasks; t++) {
        int made = made_by[task[t].kind];
        sherd__kernels_in(call)->fill(task[t].array[made], count[made], 0);
    }
    return true;
}

/* The bias that this rank adds; NULL: none. */
static const void *bias_of(const sherd_call *call)
{
    bool has = call->operands > BIAS && call->in[BIAS] && !(call->once >> BIAS & 1);

    return has && call->out[0]->count ? call->from[BIAS] : NULL;
}

/* Adds the bias of each channel to its plane. NULL is a no-op. */
static void add_bias(const sherd_call *call, const void *bias)
{
    const sherd_tensor *y = call->out[0];
    int64_t space = sherd__local_count(y, FIRST, y->ndim);
    int64_t size[] = {y->local[0], y->local[1], space}, whole[] = {y->local[1] * space, space, 1};
    int64_t stretched[] = {0, 1, 0};

    if (bias)
        sherd__kernels_in(call)->binary(SHERD__ADD, 3, size, call->to[0], call->to[0], whole, bias,
                                        stretched);
}

static void *data_of(const void *from)
{
    return (void *)(uintptr_t)from;
}

static bool make_small(sherd_call *call)
{
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->out[0]);
    const sherd__conv_attributes *a = call->attributes;
    int64_t channels = a->groups * call->in[WEIGHT]->shape[1];
    const void *bias = bias_of(call);
    const sherd__conv_task forward = {
        SHERD__CONV_FORWARD, {data_of(call->from[0]), data_of(call->from[WEIGHT]), call->to[0]}};
    bool good = compute(call, &big, &small, channels, &forward, 1, &bias);

    add_bias(call, bias);
    return good;
}

static bool make_big(sherd_call *call)
{
    sherd_box small = sherd_call_box(call, 0), big = sherd_tensor_box(call->out[0]);
    const sherd__conv_task backward = {
        SHERD__CONV_BACKWARD_X, {call->to[0], data_of(call->from[WEIGHT]), data_of(call->from[0])}};
    bool good = compute(call, &big, &small, call->out[0]->shape[1], &backward, 1, NULL);

    add_bias(call, bias_of(call));
    return good;
}

static bool make_weight(sherd_call *call)
{
    const sherd__conv_attributes *a = call->attributes;
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->in[BEHIND]);
    const sherd__conv_task of_weight = {
        SHERD__CONV_BACKWARD_W, {data_of(call->from[0]), call->to[0], data_of(call->from[BEHIND])}};

    return compute(call, &big, &small, a->groups * call->out[0]->shape[1], &of_weight, 1, NULL);
}

/* The gradients of the input, from the neighbourhood of dy, and of the weight. */
static bool make_big_too(sherd_call *call)
{
    sherd_box small = sherd_call_box(call, 0), big = sherd_tensor_box(call->out[0]);
    void *dy = data_of(call->from[0]), *w = data_of(call->from[WEIGHT]);
    const sherd__conv_task both[] = {
        {SHERD__CONV_BACKWARD_X, {call->to[0], w, dy}},
        {SHERD__CONV_BACKWARD_W, {data_of(call->from[READ]), call->to[1], dy}}};

    return compute(call, &big, &small, call->out[0]->shape[1], both, 2, NULL);
}

static bool make_small_too(sherd_call *call)
{
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->out[0]);
    const sherd__conv_attributes *a = call->attributes;
    int64_t channels = a->groups * call->in[WEIGHT]->shape[1];
    void *dy = data_of(call->from[0]), *w = data_of(call->from[WEIGHT]);
    const sherd__conv_task both[] = {
        {SHERD__CONV_FORWARD, {dy, w, call->to[0]}},
        {SHERD__CONV_BACKWARD_W, {dy, call->to[1], data_of(call->from[READ])}}};

    return compute(call, &big, &small, channels, both, 2, NULL);
}

/* ---- the operators --------------------------------------------------------------------------- */

static sherd_status lie_small(const sherd_call *call, sherd_ways *ways)
{
    return sherd__conv_ways(call, ways, &makes_small);
}

static sherd_status lie_big(const sherd_call *call, sherd_ways *ways)
{
    return sherd__conv_ways(call, ways, &makes_big);
}

static sherd_status lie_weight(const sherd_call *call, sherd_ways *ways)
{
    return sherd__conv_ways(call, ways, &makes_weight);
}

static sherd_status lie_small_too(const sherd_call *call, sherd_ways *ways)
{
    return sherd__conv_ways(call, ways, &makes_small_too);
}

static sherd_status lie_big_too(const sherd_call *call, sherd_ways *ways)
{
    return sherd__conv_ways(call, ways, &makes_big_too);
}

#define GEOMETRY                                                                     \
    .field =                                                                         \
        {                                                                            \
            SHERD_FIELD(sherd__conv_attributes, groups, INT64),                      \
            SHERD_FIELD(sherd__conv_attributes, transposed, BOOL),                   \
            SHERD_FIELD(sherd__conv_attributes, sized, BOOL),                        \
            SHERD_FIELDS(sherd__conv_attributes, stride, INT64, SHERD__CONV_DIMS),   \
            SHERD_FIELDS(sherd__conv_attributes, dilation, INT64, SHERD__CONV_DIMS), \
            SHERD_FIELDS(sherd__conv_attributes, before, INT64, SHERD__CONV_DIMS),   \
            SHERD_FIELDS(sherd__conv_attributes, after, INT64, SHERD__CONV_DIMS),    \
            SHERD_FIELDS(sherd__conv_attributes, extra, INT64, SHERD__CONV_DIMS),    \
            SHERD_FIELDS(sherd__conv_attributes, size, INT64, SHERD__CONV_DIMS),     \
            SHERD_FIELDS(sherd__conv_attributes, kernel, INT64, SHERD__CONV_DIMS),   \
    },                                                                               \
    .attributes = sizeof(sherd__conv_attributes), .linearity = SHERD_LINEAR

typedef void backward(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
static backward of_small_back, of_big_back, of_weight_back;

/*
 * The same that backward uses: of the field that was read, whose layout stands in the place of
 * operand LIKE, and of the weight.
 */
#define OF_WHAT_WAS_READ                     \
    .operand = {{"dy", SHERD_OP_AROUND},     \
                {"weight", 0},               \
                {"bias", SHERD_OP_OPTIONAL}, \
                {"x", SHERD_OP_OPTIONAL}},   \
    .result = {{"dx", 0}}, GEOMETRY,         \
    .needs = {[0] = SHERD_NEEDS_OPERAND(WEIGHT), [WEIGHT] = SHERD_NEEDS_OPERAND(0)}

static const sherd_op small_like = {.name = "sherd_conv_transposed backward",
                                    OF_WHAT_WAS_READ,
                                    .describe = sherd__conv_describe_small,
                                    .ways = lie_small,
                                    .reads = sherd__conv_reads_big,
                                    .forward = make_small,
                                    .backward = of_small_back};
static const sherd_op big_like = {.name = "sherd_conv backward",
                                  OF_WHAT_WAS_READ,
                                  .describe = sherd__conv_describe_big,
                                  .ways = lie_big,
                                  .reads = sherd__conv_reads_small,
                                  .forward = make_big,
                                  .backward = of_big_back};
static const sherd_op weight_op = {.name = "sherd_conv backward of weight",
                                   .operand = {{"big", SHERD_OP_AROUND}, {"small", 0}},
                                   .result = {{"dw", 0}},
                                   GEOMETRY,
                                   .describe = sherd__conv_describe_weight,
                                   .ways = lie_weight,
                                   .reads = sherd__conv_reads_big,
                                   .beside = BEHIND + 1,
                                   .forward = make_weight,
                                   .backward = of_weight_back,
                                   .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)}};

/*
 * What was read and the weight have their gradients of one and the same window of dy: one call
 * brings it.
 */
#define BOTH                                                       \
    .operand = {{"dy", SHERD_OP_AROUND}, {"weight", 0}, {"x", 0}}, \
    .result = {{"dx", 0}, {"dw", 0}}, GEOMETRY, .describe = sherd__conv_describe_both

static const sherd_op small_too = {.name = "sherd_conv_transposed backward of both",
                                   BOTH,
                                   .ways = lie_small_too,
                                   .reads = sherd__conv_reads_big,
                                   .forward = make_small_too};
static const sherd_op big_too = {.name = "sherd_conv backward of both",
                                 BOTH,
                                 .ways = lie_big_too,
                                 .reads = sherd__conv_reads_small,
                                 .forward = make_big_too};

/* The gradient of a field, the node's operand i, in its layout and shape. */
static sherd_tensor *field_gradient(sherd_node *node, int i, const sherd_op *op, sherd_tensor *dy,
                                    sherd_tensor *weight)
{
    sherd__conv_attributes a = *(const sherd__conv_attributes *)sherd_node_attributes(node);
    const sherd_layout *like[] = {NULL, NULL, NULL, sherd_node_layout(node, i)};
    sherd_tensor *in[] = {dy, weight, NULL, NULL}, *out = NULL;
    const int64_t *shape;
    int ndim = sherd_node_shape(node, i, &shape);

    a.sized = true;
    memset(a.size, 0, sizeof a.size);
    memcpy(a.size, shape + FIRST, (size_t)(ndim - FIRST) * sizeof *a.size);
    sherd__apply_like(&out, op, in, 4, &a, like[LIKE] ? like : NULL);
    return out;
}

static sherd_tensor *weight_gradient(sherd_node *node, sherd_tensor *big, sherd_tensor *small)
{
    return sherd_apply(&weight_op, (sherd_tensor *[]){big, small}, 2, sherd_node_attributes(node));
}

/* Gradients of gradients: each of big field, small field and weight is made of the other two. */
static void of_small_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *w = sherd_node_operand(node, WEIGHT);

    if (sherd_node_wants(node, 0))
        grad_in[0] = field_gradient(node, 0, &big_like, grad_out[0], w);
    if (sherd_node_wants(node, WEIGHT))
        grad_in[WEIGHT] = weight_gradient(node, sherd_node_operand(node, 0), grad_out[0]);
}

static void of_big_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *w = sherd_node_operand(node, WEIGHT);

    if (sherd_node_wants(node, 0))
        grad_in[0] = field_gradient(node, 0, &small_like, grad_out[0], w);
    if (sherd_node_wants(node, WEIGHT))
        grad_in[WEIGHT] = weight_gradient(node, grad_out[0], sherd_node_operand(node, 0));
}

static void of_weight_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *big = sherd_node_operand(node, 0), *small = sherd_node_operand(node, BEHIND);

    if (sherd_node_wants(node, 0))
        grad_in[0] = field_gradient(node, 0, &big_like, small, grad_out[0]);
    if (sherd_node_wants(node, BEHIND))
        grad_in[BEHIND] = field_gradient(node, BEHIND, &small_like, big, grad_out[0]);
}

/* The gradients of the input and of the weight. */
static void both_gradients(sherd_node *node, const sherd_op *op, sherd_tensor *dy,
                           sherd_tensor **grad_in)
{
    sherd_tensor *in[] = {dy, sherd_node_operand(node, WEIGHT), sherd_node_operand(node, 0)};
    sherd_tensor *out[2];

    sherd_apply_all(out, op, in, 3, sherd_node_attributes(node));
    grad_in[0] = out[0];
    grad_in[WEIGHT] = out[1];
}

static void differentiate(sherd_node *node, sherd_tensor *dy, sherd_tensor **grad_in,
                          const sherd_op *op, const sherd_op *both)
{
    const sherd__conv_attributes *a = sherd_node_attributes(node);
    bool wants_read = sherd_node_wants(node, 0), wants_weight = sherd_node_wants(node, WEIGHT);
    bool at_once = wants_read && wants_weight && !sherd__makes_graph(sherd__node_world(node));

    if (at_once)
        both_gradients(node, both, dy, grad_in);
    if (wants_read && !at_once)
        grad_in[0] = field_gradient(node, 0, op, dy, sherd_node_operand(node, WEIGHT));
    if (wants_weight && !at_once) {
        sherd_tensor *x = sherd_node_operand(node, 0);
        grad_in[WEIGHT] =
            a->transposed ? weight_gradient(node, dy, x) : weight_gradient(node, x, dy);
    }
    if (sherd_node_operands(node) > BIAS && sherd_node_wants(node, BIAS))
        grad_in[BIAS] = sherd__sum_to_channels(dy);
}

static void small_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    differentiate(node, grad_out[0], grad_in, &big_like, &big_too);
}

static void big_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    differentiate(node, grad_out[0], grad_in, &small_like, &small_too);
}

#define CONVOLUTION                                                                  \
    .operand = {{"x", SHERD_OP_AROUND},                                              \
                {"weight", 0},                                                       \
                {"bias", SHERD_OP_OPTIONAL | SHERD_OP_TERM}},                        \
    .result = {{"y", 0}}, GEOMETRY,                                                  \
    .needs = {[0] = SHERD_NEEDS_OPERAND(WEIGHT), [WEIGHT] = SHERD_NEEDS_OPERAND(0)}, \
    .layouts =                                                                       \
        "batch, space and channels may be sharded; for sharded space, neighbours are fetched"

const sherd_op sherd__conv_op = {.name = "sherd_conv",
                                 .autocast = SHERD_AUTOCAST_LOW,
                                 .summary = "convolution in 1 to 3 dims",
                                 CONVOLUTION,
                                 .describe = sherd__conv_describe_small,
                                 .ways = lie_small,
                                 .reads = sherd__conv_reads_big,
                                 .forward = make_small,
                                 .backward = small_back};

const sherd_op sherd__conv_transposed_op = {.name = "sherd_conv_transposed",
                                            .autocast = SHERD_AUTOCAST_LOW,
                                            .summary = "transposed convolution in 1 to 3 dims",
                                            CONVOLUTION,
                                            .describe = sherd__conv_describe_big,
                                            .ways = lie_big,
                                            .reads = sherd__conv_reads_small,
                                            .forward = make_big,
                                            .backward = big_back};
