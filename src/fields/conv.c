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

enum { FIRST = 2, WEIGHT = 1, BIAS = 2, LIKE = 3, BEHIND = 1, READ = 2 };

/* The operands of operators that make small, big, or the weight. */
static const sherd__conv_roles makes_small = {0, -1, WEIGHT, BIAS, LIKE, false};
static const sherd__conv_roles makes_big = {-1, 0, WEIGHT, BIAS, LIKE, false};
static const sherd__conv_roles makes_weight = {0, BEHIND, -1, -1, -1, false};
/* The operands of operators that make two gradients: of the weight, and of small or big. */
static const sherd__conv_roles makes_small_too = {0, READ, WEIGHT, -1, -1, true};
static const sherd__conv_roles makes_big_too = {READ, 0, WEIGHT, -1, -1, true};

/* ---- computing ------------------------------------------------------------------------------- */

static bool make_small(sherd_call *call)
{
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->out[0]);
    const sherd__conv_attributes *a = call->attributes;
    const sherd__conv_made forward = {SHERD__CONV_FORWARD, {0, WEIGHT, ~0}};
    const sherd__conv_pieces all = {&big, &small, a->groups * call->in[WEIGHT]->shape[1]};

    return sherd__conv_make(call, &all, &forward, 1, BIAS);
}

static bool make_big(sherd_call *call)
{
    sherd_box small = sherd_call_box(call, 0), big = sherd_tensor_box(call->out[0]);
    const sherd__conv_made backward = {SHERD__CONV_BACKWARD_X, {~0, WEIGHT, 0}};
    const sherd__conv_pieces all = {&big, &small, call->out[0]->shape[1]};

    return sherd__conv_make(call, &all, &backward, 1, BIAS);
}

static bool make_weight(sherd_call *call)
{
    const sherd__conv_attributes *a = call->attributes;
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->in[BEHIND]);
    const sherd__conv_made of_weight = {SHERD__CONV_BACKWARD_W, {0, ~0, BEHIND}};
    const sherd__conv_pieces all = {&big, &small, a->groups * call->out[0]->shape[1]};

    return sherd__conv_make(call, &all, &of_weight, 1, -1);
}

/* The gradients of the input, from the neighbourhood of dy, and of the weight. */
static bool make_big_too(sherd_call *call)
{
    sherd_box small = sherd_call_box(call, 0), big = sherd_tensor_box(call->out[0]);
    const sherd__conv_made both[] = {{SHERD__CONV_BACKWARD_X, {~0, WEIGHT, 0}},
                                     {SHERD__CONV_BACKWARD_W, {READ, ~1, 0}}};
    const sherd__conv_pieces all = {&big, &small, call->out[0]->shape[1]};

    return sherd__conv_make(call, &all, both, 2, -1);
}

static bool make_small_too(sherd_call *call)
{
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->out[0]);
    const sherd__conv_attributes *a = call->attributes;
    const sherd__conv_made both[] = {{SHERD__CONV_FORWARD, {0, WEIGHT, ~0}},
                                     {SHERD__CONV_BACKWARD_W, {0, ~1, READ}}};
    const sherd__conv_pieces all = {&big, &small, a->groups * call->in[WEIGHT]->shape[1]};

    return sherd__conv_make(call, &all, both, 2, -1);
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
    .attributes = sizeof(sherd__conv_attributes), .linearity = SHERD_LINEAR,         \
    .on_device = sherd__fractions_there

/* A multiplication and an addition for each element of the small field and what it meets of a
 * weight [channels of small, ...]. */
static double meetings(const sherd_tensor *small, const sherd_tensor *weight)
{
    double each = weight->local[0] ? (double)weight->count / (double)weight->local[0] : 0;

    return 2.0 * (double)small->count * each;
}

static double for_small(const sherd_call *call)
{
    return meetings(call->out[0], call->in[WEIGHT]);
}

static double for_big(const sherd_call *call)
{
    return meetings(call->in[0], call->in[WEIGHT]);
}

static double for_weight(const sherd_call *call)
{
    return meetings(call->in[1], call->out[0]);
}

static double for_small_too(const sherd_call *call)
{
    return 2 * meetings(call->out[0], call->in[WEIGHT]);
}

static double for_big_too(const sherd_call *call)
{
    return 2 * meetings(call->in[0], call->in[WEIGHT]);
}

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
                                    .operations = for_small,
                                    .dry = make_small,
                                    .backward = of_small_back};
static const sherd_op big_like = {.name = "sherd_conv backward",
                                  OF_WHAT_WAS_READ,
                                  .describe = sherd__conv_describe_big,
                                  .ways = lie_big,
                                  .reads = sherd__conv_reads_small,
                                  .forward = make_big,
                                  .operations = for_big,
                                  .dry = make_big,
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
                                   .operations = for_weight,
                                   .dry = make_weight,
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
                                   .forward = make_small_too,
                                   .operations = for_small_too,
                                   .dry = make_small_too};
static const sherd_op big_too = {.name = "sherd_conv backward of both",
                                 BOTH,
                                 .ways = lie_big_too,
                                 .reads = sherd__conv_reads_small,
                                 .forward = make_big_too,
                                 .operations = for_big_too,
                                 .dry = make_big_too};

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
                                 .operations = for_small,
                                 .dry = make_small,
                                 .backward = small_back};

const sherd_op sherd__conv_transposed_op = {.name = "sherd_conv_transposed",
                                            .autocast = SHERD_AUTOCAST_LOW,
                                            .summary = "transposed convolution in 1 to 3 dims",
                                            CONVOLUTION,
                                            .describe = sherd__conv_describe_big,
                                            .ways = lie_big,
                                            .reads = sherd__conv_reads_small,
                                            .forward = make_big,
                                            .operations = for_big,
                                            .dry = make_big,
                                            .backward = big_back};
