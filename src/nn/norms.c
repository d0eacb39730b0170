/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over channels as modules. A batch or instance norm that tracks keeps running averages in
 * buffers with PyTorch's names, which sherd_parallelize replicates; training updates them,
 * evaluation normalises by them. A checkpointed module updates them once. The averages of 16-bit
 * layers are f32: bf16 cannot represent a step of a tenth of a percent, so they would not change.
 */
#include "nn/layer.h"
#include "apply/operator.h"
#include "sherd/ops_layers.h"

enum { MEAN, VARIANCE, TRACKED, BUFFERS };

static const char *const buffer_name[BUFFERS] = {"running_mean", "running_var",
                                                 "num_batches_tracked"};

typedef struct norm {
    sherd_world *world;
    int64_t groups;
    sherd_norm_options how;
} norm;

/* ---- forward -------------------------------------------------------------------------------- */

static void by_groups(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const norm *n = self->options.payload;

    sherd__layer_give(out, sherd_group_norm(sherd__layer_argument(self, in), n->groups,
                                            sherd__layer_parameter(self, 0),
                                            sherd__layer_parameter(self, 1), n->how.eps));
}

/*
 * Count one more batch. Returns its weight in the averages; a rank outside the mesh has nothing to
 * count. A lost count is an error, since a cumulative average depends on it.
 */
static double next_momentum(sherd_module *m)
{
    const norm *n = m->options.payload;
    sherd_tensor *tracked = m->buffer[TRACKED].tensor;
    double batches = 0;

    if (sherd_is_recomputing(m->world))
        return n->how.momentum;
    if (sherd__stop(m->world, "num_batches_tracked", &tracked, 1))
        return n->how.momentum;
    if (sherd__scalar_value(tracked, &batches)) {
        bool before = sherd_set_recording(m->world, false);
        sherd_fill(tracked, batches + 1);
        sherd_set_recording(m->world, before);
    }
    return n->how.cumulative ? 1 / (batches + 1) : n->how.momentum;
}

static sherd_batch_norm_options options_of(sherd_module *m)
{
    const norm *n = m->options.payload;
    sherd_batch_norm_options o = {.weight = sherd__layer_parameter(m, 0),
                                  .bias = sherd__layer_parameter(m, 1),
                                  .eps = n->how.eps};

    if (m->buffers < BUFFERS)
        return o;
    o.running_mean = m->buffer[MEAN].tensor;
    o.running_variance = m->buffer[VARIANCE].tensor;
    o.fixed = m->eval;
    o.momentum = m->eval ? 0 : next_momentum(m);
    return o;
}

static void by_batch(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd__layer_argument(self, in);
    const sherd_batch_norm_options o = options_of(self);

    sherd__layer_give(out, sherd_batch_norm(x, &o));
}

static void by_item(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd__layer_argument(self, in);
    const sherd_batch_norm_options o = options_of(self);

    sherd__layer_give(out, sherd_instance_norm(x, &o));
}

/* ---- making one ----------------------------------------------------------------------------- */

/* What is made, with defaults filled in. */
typedef struct plan {
    const char *function;
    sherd_module_kind kind;
    sherd_forward forward;
    bool affine, tracks;
} plan;

static bool has(sherd_norm_part part, bool usual)
{
    return part == SHERD_NORM_USUAL ? usual : part == SHERD_NORM_WITH;
}

static sherd_status check(sherd_world *world, const plan *p, int64_t channels, int64_t groups,
                          const sherd_norm_options *how)
{
    const char *fault = NULL;

    if (channels % groups)
        fault = "the channels are no multiple of the groups";
    else if (!(how->eps > 0))
        fault = "eps is negative or no number";
    else if (!(how->momentum >= 0))
        fault = "the momentum is negative or no number";
    else if ((unsigned)how->affine > SHERD_NORM_WITHOUT ||
             (unsigned)how->averages > SHERD_NORM_WITHOUT)
        fault = "with or without: it is neither";
    else if (p->kind == SHERD_MODULE_GROUP_NORM && how->averages == SHERD_NORM_WITH)
        fault = "a norm by groups has no averages";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s(%lld, %lld): %s", p->function,
                       (long long)channels, (long long)groups, fault);
}

static sherd_status add_buffers(sherd_module *m, int64_t channels, sherd_dtype dtype)
{
    sherd_dtype wide = sherd__statistics_dtype(dtype);
    sherd_tensor *t[BUFFERS] = {sherd_constant_later(m->world, wide, &channels, 1, 0),
                                sherd_constant_later(m->world, wide, &channels, 1, 1),
                                sherd_constant(m->world, SHERD_I64, NULL, 0, 0)};
    sherd_status status = SHERD_OK;

    for (int i = 0; i < BUFFERS && !status; i++)
        status = sherd_tensor_failed(t[i]) ? SHERD_ENOMEM
                                           : sherd_module_add_buffer(m, buffer_name[i], t[i]);
    return status;
}

static void free_norm(void *payload)
{
    norm *n = payload;
    sherd__free(sherd__world_heap(n->world), n);
}

static sherd_status assemble(sherd_module **out, const plan *p, norm *n, int64_t channels,
                             sherd_dtype dtype)
{
    const sherd_module_options of = {p->kind, n, free_norm};
    bool affine = has(n->how.affine, p->affine);
    sherd_tensor *weight = NULL, *bias = NULL;
    sherd_status status;

    sherd_scope_begin(n->world);
    if (affine) {
        weight = sherd_constant_later(n->world, dtype, &channels, 1, 1);
        bias = sherd_constant_later(n->world, dtype, &channels, 1, 0);
    }
    status = sherd__layer_create(out, n->world, &of, p->forward, weight, bias);
    if (!status && has(n->how.averages, p->tracks))
        status = add_buffers(*out, channels, dtype);
    sherd_scope_end(n->world);
    if (status) {
        sherd__layer_drop(*out);
        *out = NULL;
    }
    return status;
}

static sherd_status make(sherd_module **out, sherd_world *world, const plan *p, int64_t channels,
                         int64_t groups, const sherd_norm_options *how,
                         const sherd_layer_options *options)
{
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_norm_options h = how ? *how : (sherd_norm_options){0};
    sherd_status status = sherd__layer_check(out, world, p->function, channels, groups, &o);
    norm *n;

    h.eps = h.eps == 0 ? 1e-5 : h.eps;
    if (!status)
        status = check(world, p, channels, groups, &h);
    if (status)
        return status;
    n = sherd__alloc(sherd__world_heap(world), 1, sizeof *n);
    if (!n)
        return sherd__no_memory(sherd__world_diag(world), p->function);
    *n = (norm){world, groups, h};
    status = assemble(out, p, n, channels, o.dtype);
    if (status)
        free_norm(n);
    return status;
}

sherd_status sherd_group_norm_create(sherd_module **out, sherd_world *world, int64_t channels,
                                     int64_t groups, const sherd_norm_options *how,
                                     const sherd_layer_options *options)
{
    static const plan p = {"sherd_group_norm_create", SHERD_MODULE_GROUP_NORM, by_groups, true,
                           false};

    return make(out, world, &p, channels, groups, how, options);
}

sherd_status sherd_batch_norm_create(sherd_module **out, sherd_world *world, int64_t channels,
                                     const sherd_norm_options *how,
                                     const sherd_layer_options *options)
{
    static const plan p = {"sherd_batch_norm_create", SHERD_MODULE_BATCH_NORM, by_batch, true,
                           true};

    return make(out, world, &p, channels, 1, how, options);
}

sherd_status sherd_instance_norm_create(sherd_module **out, sherd_world *world, int64_t channels,
                                        const sherd_norm_options *how,
                                        const sherd_layer_options *options)
{
    static const plan p = {"sherd_instance_norm_create", SHERD_MODULE_INSTANCE_NORM, by_item, false,
                           false};

    return make(out, world, &p, channels, 1, how, options);
}
