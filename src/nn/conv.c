/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as modules. Initial values are deferred, like those of all layers. */
#include <math.h>

#include "nn/layer.h"

enum { CHANNELS = 2, MOST = CHANNELS + 3 };

typedef struct conv {
    sherd_world *world;
    sherd_conv_options how;
} conv;

/* What is to be made. */
typedef struct plan {
    const char *function;
    sherd_module_kind kind;
    sherd_forward forward;
    int64_t in, features;
    int dims;
    const int64_t *kernel;
    int64_t groups;
} plan;

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const conv *c = self->options.payload;

    sherd__layer_give(out,
                      sherd_conv(sherd__layer_argument(self, in), sherd__layer_parameter(self, 0),
                                 sherd__layer_parameter(self, 1), &c->how));
}

static void transposed(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const conv *c = self->options.payload;

    sherd__layer_give(out, sherd_conv_transposed(sherd__layer_argument(self, in),
                                                 sherd__layer_parameter(self, 0),
                                                 sherd__layer_parameter(self, 1), &c->how));
}

static sherd_status check(sherd_world *world, const plan *p)
{
    const char *fault = NULL;

    if (p->dims < 1 || p->dims > 3)
        fault = "there are 1 to 3 dims of space";
    else if (!p->kernel)
        fault = "kernel is NULL";
    else if (p->groups < 1 || p->in % p->groups || p->features % p->groups)
        fault = "the channels are no multiple of the groups";
    for (int d = 0; !fault && d < p->dims; d++)
        if (p->kernel[d] < 1)
            fault = "a size of the kernel is less than 1";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s(%lld, %lld): %s", p->function,
                       (long long)p->in, (long long)p->features, fault);
}

/* [features, in / groups, kernel], or [in, features / groups, kernel] of a transposed one. */
static sherd_tensor *draw(sherd_world *world, const plan *p, const sherd_layer_options *o)
{
    sherd_generator generator = sherd_generator_named(o->name ? o->name : "");
    bool turned = p->kind == SHERD_MODULE_CONV_TRANSPOSED;
    int64_t shape[MOST] = {turned ? p->in : p->features,
                           (turned ? p->features : p->in) / p->groups};
    double read = (double)shape[1];

    for (int d = 0; d < p->dims; d++) {
        shape[CHANNELS + d] = p->kernel[d];
        read *= (double)p->kernel[d];
    }
    if (o->zero)
        return sherd_constant_later(world, o->dtype, shape, CHANNELS + p->dims, 0);
    return sherd_random_later(world, o->dtype, shape, CHANNELS + p->dims,
                              o->deviation > 0 ? sherd_normal(0, o->deviation)
                                               : sherd_uniform(-1 / sqrt(read), 1 / sqrt(read)),
                              &generator);
}

static void free_conv(void *payload)
{
    conv *c = payload;
    sherd__free(sherd__world_heap(c->world), c);
}

static sherd_status make(sherd_module **out, sherd_world *world, plan *p,
                         const sherd_conv_options *how, const sherd_layer_options *options)
{
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_status status = sherd__layer_check(out, world, p->function, p->in, p->features, &o);

    p->groups = how && how->groups ? how->groups : 1;
    if (!status)
        status = check(world, p);
    if (status)
        return status;
    conv *c = sherd__alloc(sherd__world_heap(world), 1, sizeof *c);
    if (!c)
        return sherd__no_memory(sherd__world_diag(world), p->function);
    *c = (conv){world, how ? *how : (sherd_conv_options){.groups = 0}};
    const sherd_module_options of = {p->kind, c, free_conv};
    sherd_scope_begin(world);
    sherd_tensor *bias = o.bias ? sherd_constant_later(world, o.dtype, &p->features, 1, 0) : NULL;
    status = sherd__layer_create(out, world, &of, p->forward, draw(world, p, &o), bias);
    sherd_scope_end(world);
    if (status)
        free_conv(c);
    return status;
}

sherd_status sherd_conv_create(sherd_module **out, sherd_world *world, int64_t in, int64_t features,
                               int dims, const int64_t *kernel, const sherd_conv_options *how,
                               const sherd_layer_options *options)
{
    plan p = {"sherd_conv_create", SHERD_MODULE_CONV, forward, in, features, dims, kernel, 1};

    return make(out, world, &p, how, options);
}

sherd_status sherd_conv_transposed_create(sherd_module **out, sherd_world *world, int64_t in,
                                          int64_t features, int dims, const int64_t *kernel,
                                          const sherd_conv_options *how,
                                          const sherd_layer_options *options)
{
    plan p = {"sherd_conv_transposed_create",
              SHERD_MODULE_CONV_TRANSPOSED,
              transposed,
              in,
              features,
              dims,
              kernel,
              1};

    return make(out, world, &p, how, options);
}
