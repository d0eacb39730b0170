/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For backwards that are recorded (create_graph): gradients of linear operators, whose own gradient
 * is the operator again, and gradients by a formula: what a fused operator computes, made of
 * operators that can be differentiated again and again. That takes more passes over memory than the
 * operator's own backward, and is used only there.
 */
#include <string.h>

#include "shared.h"
#include "autograd/node.h"
#include "base/dtype.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

sherd_tensor *sherd__zeros_like_operand(sherd_node *node, int i)
{
    const sherd_layout *layout = sherd_node_layout(node, i);
    sherd_dtype dtype = sherd__node_dtype(node, i);
    sherd_world *world = sherd__node_world(node);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, i, &shape);

    if (!layout)
        return sherd_constant(world, dtype, shape, ndim, 0);
    if (sherd__layout_settle(&layout, layout) != SHERD_OK)
        return sherd__fail_diag(world, true);
    return sherd_constant_on(layout, dtype, 0);
}

/* ---- linear operators ------------------------------------------------------------------------ */

typedef struct adjoint_attributes {
    const sherd_op *op;
    char of_op[SHERD_ATTRIBUTE_BYTES];
} adjoint_attributes;

static void adjoint_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const adjoint_attributes *a = sherd_node_attributes(node);

    grad_in[0] = sherd_apply(a->op, grad_out, 1, a->of_op);
}

static const sherd_op adjoint_table = {.name = "gradient of a gradient", .backward = adjoint_back};

void sherd__record_adjoint(const sherd_node *node, const void *attributes, sherd_tensor *dy,
                           sherd_tensor *dx)
{
    adjoint_attributes a = {.op = node->op};

    if (sherd_tensor_failed(dx) || !sherd__makes_graph(dx->world))
        return;
    memcpy(a.of_op, attributes, node->op->attributes);
    sherd__record_node(dx->world, &adjoint_table, &dy, 1, &dx, 1, &a, sizeof a);
}

sherd_tensor *sherd__adjoint_like(sherd_node *node, const sherd_op *back, const void *attributes,
                                  const void *again, sherd_tensor *dy)
{
    const sherd_layout *like[] = {NULL, sherd_node_layout(node, 0)};
    sherd_tensor *in[] = {dy, NULL}, *dx = NULL;
    bool recording = sherd_set_recording(dy->world, false);

    sherd__apply_like(&dx, back, in, 2, attributes, like[1] ? like : NULL);
    sherd_set_recording(dy->world, recording);
    sherd__record_adjoint(node, again, dy, dx);
    return dx;
}

/* ---- formulas -------------------------------------------------------------------------------- */

void sherd__gradients_of(sherd_tensor **out, sherd_tensor *const *in, int n, sherd_tensor **y,
                         sherd_tensor *const *dy, int count)
{
    sherd_tensor *given[SHERD_MAX_RESULTS];

    for (int j = 0; j < count; j++)
        given[j] = sherd_tensor_failed(y[j]) ? y[j] : sherd_cast(dy[j], y[j]->dtype);
    sherd_gradients(
        out, in, n, y, count,
        &(sherd_gradients_options){.gradients = given, .unused = true, .create_graph = true});
}

/* The operands, each as a tensor of its own; and those that want gradients. Returns how many. */
static int alias_operands(sherd_tensor **in, sherd_tensor **asked, int *at, sherd_node *node,
                          unsigned operands)
{
    int n = 0;

    for (int i = 0; i < sherd_node_operands(node); i++) {
        sherd_tensor *t = operands >> i & 1 ? sherd_node_operand(node, i) : NULL;
        in[i] = t ? sherd__alias(t) : NULL;
        if (in[i] && sherd_node_wants(node, i)) {
            at[n] = i;
            asked[n++] = in[i];
        }
    }
    return n;
}

void sherd__differentiate(sherd_node *node, unsigned operands, sherd__formula formula,
                          sherd_tensor *const *dy, sherd_tensor **grad_in)
{
    sherd_tensor *in[SHERD_MAX_OPERANDS] = {NULL}, *asked[SHERD_MAX_OPERANDS];
    sherd_tensor *found[SHERD_MAX_OPERANDS], *y[SHERD_MAX_RESULTS],
        *given[SHERD_MAX_RESULTS] = {NULL};
    int at[SHERD_MAX_OPERANDS], n = alias_operands(in, asked, at, node, operands), count = 0;

    for (int j = 0; j < node->outs && n > 0; j++) {
        sherd_tensor *made = dy[j] ? formula(node, in, j) : NULL;
        /* A result may depend on none of the operands that want gradients. */
        if (made && (sherd_requires_grad(made) || sherd_tensor_failed(made))) {
            given[count] = dy[j];
            y[count++] = made;
        }
    }
    sherd__gradients_of(found, asked, n, y, given, count);
    for (int k = 0; k < n; k++)
        grad_in[at[k]] = found[k] ? found[k] : sherd__zeros_like_operand(node, at[k]);
}

sherd_tensor *sherd__normalised(sherd_tensor *x, const int *dims, int count, double eps,
                                bool centred)
{
    x = sherd_cast(x, sherd__statistics_dtype(x->dtype));
    if (centred)
        x = sherd_sub(x, sherd_mean_over(x, dims, count, true));
    sherd_tensor *variance = sherd_mean_over(sherd_square(x), dims, count, true);
    return sherd_mul(x, sherd_rsqrt(sherd_add_scalar(variance, eps)));
}
