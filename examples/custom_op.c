/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A user-defined operator, and a handler that replaces one of the library's. Swish with a slope, x
 * / (1 + exp(-slope x)): its rule says that it is elementwise, so it works under every layout, and
 * so does its gradient.
 */
#include <math.h>
#include <stdio.h>

#include <sherd.h>

typedef struct swish_attributes {
    double slope;
} swish_attributes;

/* How many elements this rank's piece of a tensor has. */
static int64_t count(const sherd_tensor *t)
{
    sherd_box box = sherd_tensor_box(t);
    int64_t n = 1;

    for (int d = 0; d < box.ndim; d++)
        n *= box.size[d];
    return n;
}

/* Forward: compute this rank's piece, which is contiguous; f32 in this example. */
static bool swish(sherd_call *call)
{
    const swish_attributes *a = call->attributes;
    const float *x = call->from[0];
    float *y = call->to[0];

    for (int64_t i = 0; i < count(call->out[0]); i++)
        y[i] = x[i] / (1 + expf(-(float)a->slope * x[i]));
    return true;
}

/* The gradient dx from x and dy: an operator too, used only by the backward below. */
static bool swish_grad(sherd_call *call)
{
    const swish_attributes *a = call->attributes;
    const float *x = call->from[0], *dy = call->from[1];
    float *dx = call->to[0];

    for (int64_t i = 0; i < count(call->out[0]); i++) {
        float s = 1 / (1 + expf(-(float)a->slope * x[i]));
        dx[i] = dy[i] * (s + x[i] * (float)a->slope * s * (1 - s));
    }
    return true;
}

static const sherd_op swish_grad_op = {.name = "my_swish backward",
                                       .operand = {{"x", 0}, {"dy", 0}},
                                       .result = {{"dx", 0}},
                                       .field = {SHERD_FIELD(swish_attributes, slope, DOUBLE)},
                                       .attributes = sizeof(swish_attributes),
                                       .rule = "...,...->...",
                                       .forward = swish_grad};

static void swish_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *in[] = {sherd_node_operand(node, 0), grad_out[0]};

    grad_in[0] = sherd_apply(&swish_grad_op, in, 2, sherd_node_attributes(node));
}

static const sherd_op swish_op = {.name = "my_swish",
                                  .operand = {{"x", 0}},
                                  .result = {{"y", 0}},
                                  .field = {SHERD_FIELD(swish_attributes, slope, DOUBLE)},
                                  .attributes = sizeof(swish_attributes),
                                  .rule = "...->...",
                                  .forward = swish,
                                  .backward = swish_back,
                                  .needs = {SHERD_NEEDS_OPERAND(0)}};

/* Replaces sherd_relu: compute swish, and count the calls. */
static bool swish_for_relu(sherd_call *call, void *context)
{
    ++*(int *)context;
    call->out[0] = sherd_apply(&swish_op, call->in, 1, &(swish_attributes){1});
    return true;
}

static int run(sherd_world *world, void *unused)
{
    const sherd_layout *rows;
    int calls = 0;

    (void)unused;
    if (sherd_layout_parse(&rows, world, "[5(x),4] on (x=2)", NULL) ||
        sherd_op_register(world, &swish_op) ||
        sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE,
                          &(sherd_op_handler){.run = swish_for_relu, .context = &calls})) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(rows, SHERD_F32, 2), true);
    sherd_tensor *loss = sherd_sum(sherd_relu(x));
    sherd_backward(loss);
    double value = sherd_item(loss);
    sherd_tensor *gradient = sherd_grad(x);
    if (sherd_world_check(world)) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    if (sherd_world_rank(world) == 0)
        printf("%d call, loss %.4f, gradient %s of %.4f\n", calls, value,
               sherd_tensor_text(gradient),
               (double)((const float *)sherd_tensor_read(gradient))[0]);
    return sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE, NULL) ? 1 : 0;
}

int main(void)
{
    int exit_status;

    return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = 2}, run, NULL) ? 1
                                                                                    : exit_status;
}
