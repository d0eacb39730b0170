/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules whose forward is one operator. Initial values are plain and equal on all ranks,
 * drawn from (the world's seed, the given name), so that they do not depend on how the layer is
 * sharded later. They are deferred: if a style shards them, no rank ever has them whole.
 */
#include "nn/layer.h"
#include "nn/quantize.h"
#include "norms/norm_rows.h"
#include "sherd/autocast.h"
#include "sherd/ops_layers.h"

#include <string.h>

static const double default_deviation = 0.02;
static const double epsilon = 1e-5;

static bool is_one_of(const char *const *names, const char *name)
{
    while (names && *names && strcmp(*names, name) != 0)
        names++;
    return names && *names;
}

static const char *fault_of(const sherd_args *in, int most, const char *const *names,
                            const char **which)
{
    if (in->count < 1 || !in->value[0] || in->name[0])
        return most == 1 ? "it takes one positional tensor" : "it takes a positional tensor";
    for (int i = 1; i < in->count; i++) {
        if (!in->value[i])
            continue;
        *which = in->name[i];
        if (!in->name[i] && i >= most)
            return most == 1 ? "it takes one positional tensor, and got more"
                             : "it got more positional tensors than it takes";
        if (in->name[i] && !is_one_of(names, in->name[i]))
            return "it takes no keyword tensor";
    }
    return NULL;
}

sherd_tensor *sherd__layer_arguments(const sherd_module *m, const sherd_args *in, int most,
                                     const char *const *names)
{
    const char *which = NULL, *fault = fault_of(in, most, names, &which);

    if (!fault)
        return in->value[0];
    return sherd__fail_tensor(m->world, true, SHERD_EINVAL,
                              which ? "%s: module \"%.200s\": %s \"%.80s\""
                                    : "%s: module \"%.200s\": %s",
                              sherd__module_called(m), sherd__module_name(m), fault, which);
}

sherd_tensor *sherd__layer_argument(const sherd_module *m, const sherd_args *in)
{
    return sherd__layer_arguments(m, in, 1, NULL);
}

void sherd__layer_give(sherd_args *out, sherd_tensor *t)
{
    out->value[0] = t;
    out->count = 1;
}

/* ---- making one ----------------------------------------------------------------------------- */

sherd_layer_options sherd__layer_options_of(const sherd_layer_options *options)
{
    sherd_layer_options o = options ? *options : (sherd_layer_options){0};

    if (o.dtype == SHERD_DTYPE_NONE)
        o.dtype = SHERD_F32;
    return o;
}

/* Clears *out too. */
static sherd_status start(sherd_module **out, sherd_world *world, const char *function)
{
    const sherd__argument need[] = {{"out", out}, {"world", world}, {NULL, NULL}};

    if (out)
        *out = NULL;
    return sherd__require(sherd__world_diag(world), function, need);
}

sherd_status sherd__layer_check(sherd_module **out, sherd_world *world, const char *function,
                                int64_t a, int64_t b, const sherd_layer_options *o)
{
    const char *fault = NULL;

    if (start(out, world, function))
        return SHERD_EINVAL;
    if (a < 1 || b < 1)
        fault = "a size is less than 1";
    else if (!sherd__has_fractions(o->dtype))
        fault = "the dtype has no fractions";
    else if (!(o->deviation >= 0))
        fault = "the deviation is negative";
    else if (!(o->eps >= 0))
        fault = "eps is negative or no number";
    else if ((unsigned)o->affine > SHERD_NORM_WITHOUT)
        fault = "affine: with or without: it is neither";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s(%lld, %lld): %s", function,
                       (long long)a, (long long)b, fault);
}

sherd_tensor *sherd__layer_draw(sherd_world *world, const int64_t *shape, int ndim,
                                const sherd_layer_options *o)
{
    sherd_generator generator = sherd_generator_named(o->name ? o->name : "");
    double deviation = o->deviation > 0 ? o->deviation : default_deviation;

    if (o->zero)
        return sherd_constant_later(world, o->dtype, shape, ndim, 0);
    return sherd_random_later(world, o->dtype, shape, ndim, sherd_normal(0, deviation), &generator);
}

void sherd__layer_drop(sherd_module *m)
{
    if (m)
        m->options.destroy = NULL;
    sherd_module_destroy(m);
}

sherd_status sherd__layer_create(sherd_module **out, sherd_world *world,
                                 const sherd_module_options *options, sherd_forward forward,
                                 sherd_tensor *weight, sherd_tensor *bias)
{
    sherd__diag *diag = sherd__world_diag(world);
    sherd_module *m = NULL;
    sherd_status status;

    if ((weight && sherd_tensor_failed(weight)) || (bias && sherd_tensor_failed(bias)))
        return diag->status ? diag->status : SHERD_ENOMEM;
    status = sherd_module_create(&m, world, forward, options);
    if (!status && weight)
        status = sherd_module_add_parameter(m, "weight", weight);
    if (!status && bias)
        status = sherd_module_add_parameter(m, "bias", bias);
    if (status) {
        sherd__layer_drop(m);
        return status;
    }
    m->is_layer = options->payload != NULL;
    *out = m;
    return SHERD_OK;
}

static sherd_status assemble(sherd_module **out, sherd_world *world, sherd_module_kind kind,
                             sherd_forward forward, sherd_tensor *weight, sherd_tensor *bias)
{
    const sherd_module_options options = {.kind = kind};

    return sherd__layer_create(out, world, &options, forward, weight, bias);
}

/* ---- the layers ----------------------------------------------------------------------------- */

void sherd__linear_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *bias = self->parameters > 1 ? self->parameter[1].tensor : NULL;
    sherd__layer_give(
        out, sherd_linear(sherd__layer_argument(self, in), self->parameter[0].tensor, bias));
}

sherd_status sherd_linear_create(sherd_module **out, sherd_world *world, int64_t in,
                                 int64_t features, const sherd_layer_options *options)
{
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_tensor *weight, *bias = NULL;
    sherd_status status = sherd__layer_check(out, world, "sherd_linear_create", in, features, &o);

    if (status)
        return status;
    sherd_scope_begin(world);
    weight = sherd__layer_draw(world, (int64_t[]){features, in}, 2, &o);
    if (o.bias)
        bias = sherd_constant_later(world, o.dtype, &features, 1, 0);
    status = assemble(out, world, SHERD_MODULE_LINEAR, sherd__linear_forward, weight, bias);
    sherd_scope_end(world);
    return status;
}

static void embedding(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd__layer_give(out,
                      sherd_embedding(self->parameter[0].tensor, sherd__layer_argument(self, in)));
}

sherd_status sherd_embedding_create(sherd_module **out, sherd_world *world, int64_t entries,
                                    int64_t width, const sherd_layer_options *options)
{
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_status status =
        sherd__layer_check(out, world, "sherd_embedding_create", entries, width, &o);

    if (status)
        return status;
    sherd_scope_begin(world);
    status = assemble(out, world, SHERD_MODULE_EMBEDDING, embedding,
                      sherd__layer_draw(world, (int64_t[]){entries, width}, 2, &o), NULL);
    sherd_scope_end(world);
    return status;
}

typedef struct dropout {
    sherd_world *world;
    double p;
} dropout;

static void drop(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const dropout *d = self->options.payload;
    sherd_tensor *x = sherd__layer_argument(self, in);
    sherd__layer_give(out, self->eval ? x : sherd_dropout(x, d->p, sherd_module_generator(self)));
}

static void free_dropout(void *payload)
{
    dropout *d = payload;
    sherd__free(sherd__world_heap(d->world), d);
}

sherd_status sherd_dropout_create(sherd_module **out, sherd_world *world, double p)
{
    sherd_module_options options = {SHERD_MODULE_DROPOUT, NULL, free_dropout};
    static const char function[] = "sherd_dropout_create";
    sherd_status status = start(out, world, function);
    dropout *d;

    if (status)
        return status;
    sherd__diag *diag = sherd__world_diag(world);
    if (!(p >= 0 && p < 1))
        return sherd__fail(diag, SHERD_EINVAL, "%s: p is %g, not in [0, 1)", function, p);
    d = sherd__alloc(sherd__world_heap(world), 1, sizeof *d);
    if (!d)
        return sherd__no_memory(diag, function);
    *d = (dropout){world, p};
    options.payload = d;
    status = sherd_module_create(out, world, drop, &options);
    if (status)
        free_dropout(d);
    else
        (*out)->is_layer = true;
    return status;
}

/* ---- norms ---------------------------------------------------------------------------------- */

typedef struct norm {
    sherd_world *world;
    double eps; /* 0: of an RMS norm, that of the dtype */
    bool low;   /* of 16 bits where products are */
} norm;

/*
 * What replaces sherd_add_layer_norm's norm for a single argument; its gradients may be f32 as
 * well.
 */
static sherd_tensor *lowered(sherd_tensor *y, sherd_dtype dtype)
{
    if (dtype == SHERD_DTYPE_NONE || sherd_tensor_dtype(y) != SHERD_F32)
        return y;
    y = sherd_cast(y, dtype);
    if (!sherd_tensor_failed(y))
        sherd__take_wide(y, &sherd__cast_op, SHERD_F32, true);
    return y;
}

/* The norm of x; with a second tensor, delta, the norm of x + delta, and x + delta. */
static void run_norm(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const norm *n = self->options.payload;
    bool rms = self->options.kind == SHERD_MODULE_RMS_NORM;
    sherd_tensor *x = sherd__layer_arguments(self, in, 2, NULL);
    sherd_tensor *weight = self->parameters > 0 ? self->parameter[0].tensor : NULL;
    sherd_dtype low = n->low ? sherd_autocast(self->world) : SHERD_DTYPE_NONE;
    sherd_add_norm_options o = {.weight = weight, .eps = n->eps};

    if (o.eps == 0)
        o.eps = sherd__rms_epsilon(sherd_tensor_dtype(x));
    if (self->parameters > 1)
        o.bias = self->parameter[1].tensor;
    if (in->count < 2 || in->name[1] || !in->value[1]) {
        sherd_tensor *y =
            rms ? sherd_rms_norm(x, weight, o.eps) : sherd_layer_norm(x, weight, o.bias, o.eps);
        sherd__layer_give(out, lowered(y, low));
        return;
    }
    o.dtype = sherd_tensor_dtype(x) == SHERD_F64 ? SHERD_DTYPE_NONE : low;
    (rms ? sherd_add_rms_norm : sherd_add_layer_norm)(&out->value[0], &out->value[1], x,
                                                      in->value[1], &o);
    out->count = 2;
}

static void free_norm(void *payload)
{
    norm *n = payload;
    sherd__free(sherd__world_heap(n->world), n);
}

/* With valid sizes and options. */
static sherd_status make_norm(sherd_module **out, sherd_world *world, sherd_module_kind kind,
                              const char *function, int64_t width, double eps,
                              const sherd_layer_options *o)
{
    const sherd_module_options of = {kind, sherd__alloc(sherd__world_heap(world), 1, sizeof(norm)),
                                     free_norm};

    if (!of.payload)
        return sherd__no_memory(sherd__world_diag(world), function);
    *(norm *)of.payload = (norm){world, eps, o->low};
    sherd_scope_begin(world);
    bool affine = o->affine != SHERD_NORM_WITHOUT;
    sherd_tensor *weight = NULL, *bias = NULL;
    if (affine)
        weight = sherd_constant_later(world, o->dtype, &width, 1, 1);
    if (affine && kind == SHERD_MODULE_LAYER_NORM && !o->no_bias)
        bias = sherd_constant_later(world, o->dtype, &width, 1, 0);
    sherd_status status = sherd__layer_create(out, world, &of, run_norm, weight, bias);
    sherd_scope_end(world);
    if (status)
        free_norm(of.payload);
    return status;
}

sherd_status sherd_layer_norm_create(sherd_module **out, sherd_world *world, int64_t width,
                                     const sherd_layer_options *options)
{
    static const char function[] = "sherd_layer_norm_create";
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_status status = sherd__layer_check(out, world, function, width, 1, &o);

    return status ? status
                  : make_norm(out, world, SHERD_MODULE_LAYER_NORM, function, width,
                              o.eps > 0 ? o.eps : epsilon, &o);
}

sherd_status sherd_rms_norm_create(sherd_module **out, sherd_world *world, int64_t width,
                                   double eps, const sherd_layer_options *options)
{
    static const char function[] = "sherd_rms_norm_create";
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_status status = sherd__layer_check(out, world, function, width, 1, &o);

    if (status)
        return status;
    if (!(eps >= 0))
        return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                           "%s: eps is %g, and must not be negative", function, eps);
    return make_norm(out, world, SHERD_MODULE_RMS_NORM, function, width, eps, &o);
}
