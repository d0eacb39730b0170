/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation over the last dim, which is made whole; rows may be sharded. Mean and 1/deviation of each
 * row are kept for backward. The gradients of weight and bias are sums over the local rows: pending where rows
 * are sharded.
 */
#include <string.h>

#include "operator.h"

enum { X, WEIGHT, BIAS };
enum { SAVED_X, SAVED_WEIGHT, SAVED_MEAN, SAVED_RSTD };

static const void *data_of(sherd_tensor *t)
{
    return t && t->count ? sherd__data(t) : NULL;
}

/* dx, and into dparam[0] and [1] the gradients of weight and bias, or NULLs there if not wanted. The tape has put dy where x lies. */
static sherd_tensor *gradient(sherd__node *node, sherd_tensor *dy, sherd_tensor **dparam,
                              bool wants_params)
{
    sherd_tensor *x = sherd__saved(node, SAVED_X), *weight = sherd__saved(node, SAVED_WEIGHT);
    sherd_tensor *mean = sherd__saved(node, SAVED_MEAN), *rstd = sherd__saved(node, SAVED_RSTD);
    sherd_tensor *all[] = {x, mean, rstd, weight}, *in[SHERD__OPERANDS];
    sherd__rule rule = {.name = "sherd_layer_norm backward", .whole = "d"};
    int64_t shape[SHERD__RESULTS][SHERD_MAX_DIMS];
    sherd__prepared p;

    dparam[0] = dparam[1] = NULL;
    if (sherd__stop(dy->world, all, 4))
        return sherd__failed(dy->world);
    in[0] = dy;
    in[1] = x;
    memcpy(shape[0], x->shape, sizeof shape[0]);
    shape[1][0] = x->shape[x->ndim - 1];
    sherd__rule_compile(&rule, "...d,...d->...d,d", (const int[]){x->ndim, x->ndim});
    if (!sherd__prepare(&p, &rule, in, dy->dtype, (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return p.out[0];
    if (wants_params) {
        dparam[0] = p.out[1];
        dparam[1] = sherd__new_like(p.out[1]);
        if (sherd_tensor_failed(dparam[1]))
            return sherd__abandon(&p);
    }
    weight = weight ? sherd__contiguous(weight) : NULL;
    p.kernels->layer_norm_grad(mean->count, x->shape[x->ndim - 1], p.to[0],
                               wants_params ? p.to[1] : NULL,
                               wants_params ? sherd__fresh(dparam[1]) : NULL, p.from[0], p.from[1],
                               data_of(weight), data_of(mean), data_of(rstd));
    if (p.scoped && dparam[1])
        sherd_scope_pass(dparam[1]);
    return sherd__finish(&p, 2);
}

static void layer_norm_back(sherd__node *node, sherd_tensor *const *grad_out,
                            sherd_tensor **grad_in)
{
    bool wants_params = sherd__wants(node, WEIGHT) || sherd__wants(node, BIAS);
    sherd_tensor *dparam[2], *dx = gradient(node, grad_out[0], dparam, wants_params);

    for (int i = 0; i < 3; i++)
        if (sherd__wants(node, i))
            grad_in[i] = i == X || sherd_tensor_failed(dx) ? dx : dparam[i - 1];
}

static const sherd__backward layer_norm_table = {"sherd_layer_norm", false, layer_norm_back};

static const char *misfit_of(const sherd_tensor *x, const sherd_tensor *weight,
                             const sherd_tensor *bias)
{
    if (x->ndim < 1)
        return "x must have a dim";
    if (weight && (weight->ndim != 1 || weight->shape[0] != x->shape[x->ndim - 1]))
        return "weight must have one dim, equal to x's last";
    if (bias && (bias->ndim != 1 || bias->shape[0] != x->shape[x->ndim - 1]))
        return "bias must have one dim, equal to x's last";
    return NULL;
}

static void record(sherd__prepared *p, sherd_tensor *rstd)
{
    sherd__node *node =
        sherd__record_node(p->world, &layer_norm_table, p->arg, 3, p->out, 1, NULL, 0);

    if (!node)
        return;
    sherd__save(node, SAVED_X, p->arg[X]);
    if (p->arg[WEIGHT])
        sherd__save(node, SAVED_WEIGHT, p->arg[WEIGHT]);
    sherd__save(node, SAVED_MEAN, p->out[1]);
    sherd__save(node, SAVED_RSTD, rstd);
}

sherd_tensor *sherd_layer_norm(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                               double eps)
{
    static const char *const names[] = {"x", "weight", "bias"};
    sherd_tensor *in[SHERD__OPERANDS] = {x, weight, bias}, *failed;
    sherd__operands o = {"sherd_layer_norm", names, in, 3, 1u << WEIGHT | 1u << BIAS};
    sherd__rule rule = {.name = o.function, .whole = "d", .statistics = 2, .scratch = true};
    int64_t shape[SHERD__RESULTS][SHERD_MAX_DIMS];
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    const char *misfit = misfit_of(x, weight, bias);
    if (misfit)
        return sherd__refuse(&o, SHERD_EINVAL, "%s", misfit);
    memcpy(shape[0], x->shape, sizeof shape[0]);
    memcpy(shape[1], x->shape, sizeof shape[1]);
    sherd__rule_compile(&rule, "...d,d,d->...d,...",
                        (const int[]){x->ndim, weight ? 1 : -1, bias ? 1 : -1});
    if (!sherd__prepare(&p, &rule, in, x->dtype, (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return p.out[0];

    sherd_tensor *rstd = sherd__new_like(p.out[1]);
    if (sherd_tensor_failed(rstd))
        return sherd__abandon(&p);
    p.attributes = sherd__attribute_double(1, eps);
    p.kernels->layer_norm(rstd->count, x->shape[x->ndim - 1], p.to[0], p.to[1], sherd__fresh(rstd),
                          p.from[X], p.from[WEIGHT], p.from[BIAS], eps);
    record(&p, rstd);
    return sherd__finish(&p, 1);
}
