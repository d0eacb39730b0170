/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators element by element: one kernel call on the local pieces. Shapes broadcast as in NumPy: a stretched
 * dim has label '1' and stride 0, and its gradient is summed.
 */
#include <string.h>

#include "base/num.h"
#include "operator.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The shape that a and b broadcast to, aligned at the last dim; its ndim, or -1. */
static int broadcast(const sherd_tensor *a, const sherd_tensor *b, int64_t *shape)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;

    for (int d = 0; d < ndim; d++) {
        int i = d - (ndim - a->ndim), j = d - (ndim - b->ndim);
        int64_t m = i < 0 ? 1 : a->shape[i], n = j < 0 ? 1 : b->shape[j];
        if (m != n && m != 1 && n != 1)
            return -1;
        shape[d] = m == 1 ? n : m;
    }
    return ndim;
}

static void write_label(char *label, const sherd_tensor *t, const int64_t *shape, int ndim)
{
    int skipped = ndim - t->ndim;

    for (int d = 0; d < t->ndim; d++)
        label[d] = t->shape[d] == shape[skipped + d] ? (char)('a' + skipped + d) : '1';
}

/* "ab,b->ab": the labels of operands and result. */
static void write_rule(sherd__rule *rule, sherd_tensor *const *in, int count, const int64_t *shape,
                       int ndim)
{
    rule->operands = count;
    rule->results = 1;
    for (int i = 0; i < count; i++)
        write_label(rule->operand[i], in[i], shape, ndim);
    for (int d = 0; d < ndim; d++)
        rule->result[0][d] = (char)('a' + d);
}

/* Strides of a local piece against the result's dims: 0 where it is stretched. */
static void strides_of(const sherd_tensor *t, const char *label, int ndim, int64_t *stride)
{
    int skipped = ndim - t->ndim;

    for (int d = 0; d < ndim; d++)
        stride[d] = d < skipped || label[d - skipped] == '1' ? 0 : t->stride[d - skipped];
}

/* ---- of two operands ------------------------------------------------------------------------- */

/* dst = factor * (a term broadcast to the result's local box): what is left where the other term is left out. */
static void copy_term(sherd__prepared *p, const sherd__rule *rule, int i, double factor)
{
    sherd_tensor *out = p->out[0];
    int64_t stride[SHERD_MAX_DIMS];

    if (out->count == 0)
        return;
    strides_of(p->in[i], rule->operand[i], out->ndim, stride);
    sherd__copy_box(sherd_dtype_bytes(out->dtype), out->ndim, out->local, p->to[0], out->stride,
                    p->from[i], stride);
    if (factor != 1)
        p->kernels->unary(SHERD__SCALE, out->count, p->to[0], p->to[0], factor);
}

static void compute(sherd__prepared *p, const sherd__rule *rule, sherd__binary_kind kind)
{
    sherd_tensor *out = p->out[0];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    if (out->count == 0)
        return;
    if (p->once == 3) {
        p->kernels->fill(p->to[0], out->count, 0);
    } else if (p->once) {
        int left = p->once == 1 ? 1 : 0;
        copy_term(p, rule, left, left == 1 && kind == SHERD__SUB ? -1 : 1);
    } else {
        strides_of(p->in[0], rule->operand[0], out->ndim, a);
        strides_of(p->in[1], rule->operand[1], out->ndim, b);
        p->kernels->binary(kind, out->ndim, out->local, p->to[0], p->from[0], a, p->from[1], b);
    }
}

typedef struct binary_attrs {
    double factor; /* of b in the sum */
} binary_attrs;

/* A sum passes its gradient on, pending or not. */
static void sum_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const binary_attrs *attrs = sherd__attrs(node);

    for (int i = 0; i < 2; i++) {
        const int64_t *shape;
        int ndim = sherd__input_shape(node, i, &shape);
        if (!sherd__wants(node, i))
            continue;
        sherd_tensor *g = sherd__sum_to(grad_out[0], ndim, shape);
        grad_in[i] = i == 1 && attrs->factor != 1 ? sherd_scale(g, attrs->factor) : g;
    }
}

static void mul_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    for (int i = 0; i < 2; i++) {
        const int64_t *shape;
        int ndim = sherd__input_shape(node, i, &shape);
        if (sherd__wants(node, i))
            grad_in[i] =
                sherd__sum_to(sherd_mul(grad_out[0], sherd__saved(node, 1 - i)), ndim, shape);
    }
}

static const sherd__backward add_table = {"sherd_add", true, sum_back};
static const sherd__backward sub_table = {"sherd_sub", true, sum_back};
static const sherd__backward mul_table = {"sherd_mul", false, mul_back};

/* What each factor's gradient needs is the other one. */
static void record(sherd__prepared *p, const sherd__backward *table, sherd__binary_kind kind)
{
    binary_attrs attrs = {kind == SHERD__SUB ? -1 : 1};
    sherd__node *node =
        sherd__record_node(p->world, table, p->arg, 2, p->out, 1, &attrs, sizeof attrs);

    if (kind != SHERD__MUL || !node)
        return;
    for (int i = 0; i < 2; i++)
        if (sherd__wants(node, 1 - i))
            sherd__save(node, i, p->arg[i]);
}

static sherd_tensor *binary(const sherd__backward *table, sherd__binary_kind kind, sherd_tensor *a,
                            sherd_tensor *b)
{
    static const char *const names[] = {"a", "b"};
    sherd_tensor *in[] = {a, b}, *failed;
    sherd__operands o = {table->name, names, in, 2, 0};
    sherd__rule rule = {.name = table->name, .linearity = SHERD__LINEAR, .keep_strides = true};
    int64_t shape[1][SHERD_MAX_DIMS];
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    int ndim = broadcast(a, b, shape[0]);
    if (ndim < 0)
        return sherd__refuse(&o, SHERD_EINVAL, "shapes do not broadcast");
    write_rule(&rule, in, 2, shape[0], ndim);
    rule.term = kind == SHERD__MUL ? 0 : 3;
    if (!sherd__prepare(&p, &rule, in, a->dtype, (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return p.out[0];
    compute(&p, &rule, kind);
    record(&p, table, kind);
    return sherd__finish(&p, 1);
}

sherd_tensor *sherd_add(sherd_tensor *a, sherd_tensor *b)
{
    return binary(&add_table, SHERD__ADD, a, b);
}

sherd_tensor *sherd_sub(sherd_tensor *a, sherd_tensor *b)
{
    return binary(&sub_table, SHERD__SUB, a, b);
}

sherd_tensor *sherd_mul(sherd_tensor *a, sherd_tensor *b)
{
    return binary(&mul_table, SHERD__MUL, a, b);
}

/* ---- of one operand -------------------------------------------------------------------------- */

/* dx of y = f(x): one kernel of x and dy. Not recorded. */
static sherd_tensor *unary_gradient(const char *name, sherd__binary_kind kind, sherd_tensor *x,
                                    sherd_tensor *dy)
{
    sherd_tensor *in[] = {x, dy};
    sherd__rule rule = {.name = name, .keep_strides = true};
    sherd__prepared p;

    write_rule(&rule, in, 2, dy->shape, dy->ndim);
    if (!sherd__prepare(&p, &rule, in, dy->dtype, (const int64_t(*)[SHERD_MAX_DIMS])dy->shape))
        return p.out[0];
    compute(&p, &rule, kind);
    return sherd__finish(&p, 1);
}

static void scale_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const double *factor = sherd__attrs(node);

    grad_in[0] = sherd_scale(grad_out[0], *factor);
}

static void relu_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = unary_gradient("sherd_relu", SHERD__RELU_GRAD, sherd__saved(node, 0), grad_out[0]);
}

static void gelu_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = unary_gradient("sherd_gelu", SHERD__GELU_GRAD, sherd__saved(node, 0), grad_out[0]);
}

static const sherd__backward scale_table = {"sherd_scale", true, scale_back};
static const sherd__backward relu_table = {"sherd_relu", false, relu_back};
static const sherd__backward gelu_table = {"sherd_gelu", false, gelu_back};

static sherd_tensor *unary(const sherd__backward *table, sherd__unary_kind kind, sherd_tensor *a,
                           double factor)
{
    static const char *const names[] = {"a"};
    sherd_tensor *failed;
    sherd__operands o = {table->name, names, &a, 1, 0};
    sherd__rule rule = {.name = table->name};
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    rule.linearity = kind == SHERD__SCALE ? SHERD__LINEAR : SHERD__NONLINEAR;
    write_rule(&rule, &a, 1, a->shape, a->ndim);
    if (!sherd__prepare(&p, &rule, &a, a->dtype, (const int64_t(*)[SHERD_MAX_DIMS])a->shape))
        return p.out[0];
    p.attributes = sherd__attribute_double(1, factor);
    p.kernels->unary(kind, p.out[0]->count, p.to[0], p.from[0], factor);
    sherd__node *node =
        sherd__record_node(p.world, table, p.arg, 1, p.out, 1, &factor, sizeof factor);
    if (kind != SHERD__SCALE)
        sherd__save(node, 0, p.arg[0]);
    return sherd__finish(&p, 1);
}

sherd_tensor *sherd_scale(sherd_tensor *a, double factor)
{
    return unary(&scale_table, SHERD__SCALE, a, factor);
}

sherd_tensor *sherd_relu(sherd_tensor *a)
{
    return unary(&relu_table, SHERD__RELU, a, 1);
}

sherd_tensor *sherd_gelu(sherd_tensor *a)
{
    return unary(&gelu_table, SHERD__GELU, a, 1);
}
