/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small operators for tests of the tape, made of kernels alone: what the real ones do, without
 * rules. They take operands of equal layouts.
 */
#ifndef SHERD_TESTS_TAPE_OPERATORS_H
#define SHERD_TESTS_TAPE_OPERATORS_H

#include "autograd/tape.h"
#include "tensors.h"
#include "vector/choose.h"

static inline const sherd__kernels *kernels_of(const sherd_tensor *t)
{
    return sherd__kernels_of(sherd__world_kernels(t->world), t->dtype);
}

static inline sherd_tensor *like(sherd_tensor *t)
{
    return t->layout ? sherd__new_on(t->layout, t->dtype)
                     : sherd__new_plain(t->world, t->dtype, t->ndim, t->shape, t->varies);
}

/* factor * t, not recorded. */
static inline sherd_tensor *scaled(sherd_tensor *t, double factor)
{
    sherd_tensor *out = sherd__stop(t->world, "test", &t, 1) ? sherd__failed(t->world) : like(t);
    const void *data = out->storage ? sherd__data(t) : NULL;

    if (!data)
        return sherd__failed(t->world);
    kernels_of(t)->unary(SHERD__SCALE, t->count, sherd__fresh(out), data, &factor);
    return out;
}

/* a * b, not recorded; b is moved to the layout of a. */
static inline sherd_tensor *multiplied(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *both[2] = {a, b}, *out;

    if (sherd__stop(a->world, "test", both, 2))
        return sherd__failed(a->world);
    if (a->layout && b->layout != a->layout)
        b = sherd__move_to(b, a->layout, false);
    out = b->storage ? like(a) : b;
    const void *x = sherd__data(a), *y = sherd__data(b);
    if (!out->storage || !x || !y)
        return sherd__failed(a->world);
    kernels_of(a)->binary(SHERD__MUL, a->ndim, a->local, sherd__fresh(out), x, a->stride, y,
                          b->stride);
    return out;
}

static void doubled_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *settled = sherd_node_layout(node, 0);

    /* It takes nothing pending: gradients come in the layout of its output. */
    if (settled && sherd__layout_settle(&settled, settled) == SHERD_OK)
        CHECK(grad_out[0]->layout == settled);
    grad_in[0] = scaled(grad_out[0], 2);
}
static const sherd_op doubled_backward = {
    .name = "doubled", .takes_pending = false, .backward = doubled_back};

/* 2 t */
static inline sherd_tensor *doubled(sherd_tensor *t)
{
    sherd_tensor *out = scaled(t, 2);
    sherd__record_node(t->world, &doubled_backward, &t, 1, &out, 1, NULL, 0);
    return out;
}

static void product_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    for (int i = 0; i < 2; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = multiplied(sherd__saved(node, 1 - i), grad_out[0]);
}
static const sherd_op product_backward = {
    .name = "product", .takes_pending = false, .backward = product_back};

/* a * b; each is saved where the other wants a gradient. */
static inline sherd_tensor *product(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *in[2] = {a, b}, *out = multiplied(a, b);
    sherd_node *node = sherd__record_node(a->world, &product_backward, in, 2, &out, 1, NULL, 0);

    for (int i = 0; i < 2 && node; i++)
        if (sherd_node_wants(node, 1 - i))
            sherd__save(node, i, in[i]);
    return out;
}

static void square_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = multiplied(sherd__saved(node, 1), grad_out[0]);
    CHECK(sherd__saved(node, 0) != NULL);
}
static const sherd_op square_backward = {
    .name = "square", .takes_pending = false, .backward = square_back};

/* t^2 / 2; saves its own result and its operand. */
static inline sherd_tensor *square(sherd_tensor *t)
{
    sherd_tensor *out = scaled(multiplied(t, t), 0.5);
    sherd_node *node = sherd__record_node(t->world, &square_backward, &t, 1, &out, 1, NULL, 0);

    sherd__save(node, 0, out);
    sherd__save(node, 1, t);
    return out;
}

static void total_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);
    const sherd_layout *layout = sherd_node_layout(node, 0);
    double value = sherd_item(grad_out[0]);
    sherd_dtype dtype = grad_out[0]->dtype;

    if (!layout)
        grad_in[0] = sherd_constant(sherd__node_world(node), dtype, shape, ndim, value);
    else if (sherd__layout_settle(&layout, layout) == SHERD_OK)
        grad_in[0] = sherd_constant_on(layout, dtype, value);
    else
        grad_in[0] = sherd__fail_diag(sherd__node_world(node), true);
}
static const sherd_op total_backward = {
    .name = "total", .takes_pending = false, .backward = total_back};

/* The sum of all elements, as a pending sum over the axes that shard. */
static inline sherd_tensor *total(sherd_tensor *t)
{
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    const sherd_layout *layout = NULL;
    sherd_tensor *out = sherd__stop(t->world, "test", &t, 1) ? sherd__failed(t->world) : NULL;

    if (!out && t->layout) {
        for (int a = 0; a < sherd_mesh_axes(t->layout->spec.mesh); a++)
            if ((t->layout->shard_axes | t->layout->pending_axes) >> a & 1)
                placements[a] = sherd_partial(SHERD_SUM);
        if (sherd_layout_create(&layout, t->layout->spec.mesh, 0, NULL, placements, NULL) !=
            SHERD_OK)
            return sherd__fail_diag(t->world, true);
        out = sherd__new_on(layout, t->dtype);
    } else if (!out) {
        out = sherd__new_plain(t->world, t->dtype, 0, NULL, t->varies);
    }
    const void *data = out->storage ? sherd__data(t) : NULL;
    if (!data)
        return sherd__failed(t->world);
    if (out->count)
        kernels_of(t)->sum(sherd__fresh(out), data, 1, t->count, 1, false);
    sherd__record_node(t->world, &total_backward, &t, 1, &out, 1, NULL, 0);
    return out;
}

static void moved_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *to;

    if (sherd__layout_settle(&to, sherd_node_layout(node, 0)) != SHERD_OK)
        grad_in[0] = sherd__fail_diag(sherd__node_world(node), true);
    else
        grad_in[0] = sherd__move_to(grad_out[0], to, false);
}
static const sherd_op moved_backward = {
    .name = "moved", .takes_pending = true, .backward = moved_back};

/* A recorded move; the result remembers its source. */
static inline sherd_tensor *moved(sherd_tensor *t, const sherd_layout *to)
{
    sherd_tensor *out = sherd__move_to(t, to, false);

    if (out == t || !out->storage)
        return out;
    out->autograd.moved_from = sherd_tensor_retain(t);
    sherd__record_node(t->world, &moved_backward, &t, 1, &out, 1, NULL, 0);
    return out;
}

static void fork_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *input = sherd_node_layout(node, 0), *to;

    if (sherd_layout_with(&to, input, input->spec.mesh, 0, sherd_partial(SHERD_SUM)) != SHERD_OK) {
        grad_in[0] = sherd__fail_diag(sherd__node_world(node), true);
        return;
    }
    grad_in[0] = sherd__new_view(grad_out[0]);
    if (grad_in[0]->storage)
        sherd__layout_set(&grad_in[0]->layout, to);
}
static const sherd_op fork_backward = {
    .name = "fork", .takes_pending = false, .backward = fork_back};

/* t, of which every rank along axis 0 makes another use: gradients are a pending sum over it, as of
 * a column-parallel layer. */
static inline sherd_tensor *fork_of(sherd_tensor *t)
{
    sherd_tensor *out = scaled(t, 1);
    sherd__record_node(t->world, &fork_backward, &t, 1, &out, 1, NULL, 0);
    return out;
}

static void turned_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *const *to = sherd_node_attributes(node);
    grad_in[0] = sherd__move_to(grad_out[0], *to, false);
}
static const sherd_op turned_backward = {
    .name = "turned", .takes_pending = true, .backward = turned_back};

/* t, whose gradient comes back in a layout of its own. */
static inline sherd_tensor *turned(sherd_tensor *t, const sherd_layout *gradient)
{
    sherd_tensor *out = scaled(t, 1);
    sherd__record_node(t->world, &turned_backward, &t, 1, &out, 1, &gradient, sizeof(void *));
    return out;
}

static void joined_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = grad_in[1] = grad_out[0];
}
static const sherd_op joined_backward = {
    .name = "joined", .takes_pending = true, .backward = joined_back};

/* a + b; both get the very same gradient tensor. */
static inline sherd_tensor *joined(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *in[2] = {a, b}, *out;

    if (sherd__stop(a->world, "test", in, 2))
        return sherd__failed(a->world);
    out = like(a);
    const void *x = sherd__data(a), *y = sherd__data(b);
    if (!out->storage || !x || !y)
        return sherd__failed(a->world);
    kernels_of(a)->binary(SHERD__ADD, a->ndim, a->local, sherd__fresh(out), x, a->stride, y,
                          b->stride);
    sherd__record_node(a->world, &joined_backward, in, 2, &out, 1, NULL, 0);
    return out;
}

/* A leaf that wants a gradient. */
static inline sherd_tensor *leaf_of(sherd_world *world, int64_t n, double value)
{
    return sherd_require_grad(sherd_constant(world, SHERD_F64, &n, 1, value), true);
}

static inline sherd_tensor *leaf_on(const sherd_layout *layout, double value)
{
    return sherd_require_grad(sherd_constant_on(layout, SHERD_F64, value), true);
}

/* Elements of a gradient that are not `value`; -1 if there is none. */
static inline int64_t wrong_grads(sherd_tensor *leaf, double value)
{
    sherd_tensor *grad = sherd_grad(leaf);
    const double *data = grad ? sherd_tensor_read(grad) : NULL;
    int64_t wrong = data ? 0 : -1;

    for (int64_t i = 0; data && i < grad->count; i++)
        wrong += data[i] != value;
    return wrong;
}

#endif
