/* SPDX-License-Identifier: Apache-2.0 */
/* The models that tests of styles make parallel: an MLP, and a transformer block. */
#ifndef SHERD_TESTS_MODELS_H
#define SHERD_TESTS_MODELS_H

#include "modules.h"
#include "sherd/parallel.h"

static inline sherd_module *add_layer(sherd_module *parent, const char *name, sherd_module *child)
{
    CHECK_OK(sherd_module_add(parent, name, child));
    return child;
}

static inline sherd_module *container(sherd_world *world, sherd_forward forward, void *payload)
{
    sherd_module *m = NULL;
    CHECK_OK(sherd_module_create(&m, world, forward, &(sherd_module_options){.payload = payload}));
    return m;
}

/* Put waves in the places of a layer's parameters: weight k, bias k + 1. */
static inline void fill_layer(sherd_module *m, sherd_dtype dtype, int k, double weight_offset)
{
    static const char *const names[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        sherd_tensor *old = sherd_module_parameter(m, names[i]);
        if (!old)
            continue;
        sherd_tensor *t =
            wave(sherd_module_world(m), dtype, sherd_tensor_ndim(old), sherd_tensor_shape(old),
                 k + i, i ? 0.1 : 0.4, i ? 0 : weight_offset);
        sherd_require_grad(t, true);
        CHECK_OK(sherd_module_set_parameter(m, names[i], t));
    }
}

static inline sherd_module *linear_layer(sherd_module *parent, const char *name, sherd_dtype dtype,
                                         int64_t in, int64_t out, int k)
{
    sherd_layer_options o = {.name = name, .dtype = dtype, .bias = true};
    sherd_module *m = NULL;
    CHECK_OK(sherd_linear_create(&m, sherd_module_world(parent), in, out, &o));
    fill_layer(m, dtype, k, 0);
    return add_layer(parent, name, m);
}

static inline sherd_module *norm_layer(sherd_module *parent, const char *name, sherd_dtype dtype,
                                       int64_t width, int k)
{
    sherd_layer_options o = {.name = name, .dtype = dtype};
    sherd_module *m = NULL;
    CHECK_OK(sherd_layer_norm_create(&m, sherd_module_world(parent), width, &o));
    fill_layer(m, dtype, k, 1);
    return add_layer(parent, name, m);
}

/* ---- Linear, ReLU, Linear ------------------------------------------------------------------- */

static inline void mlp_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "net1"), in->value[0]);
    out->value[0] = sherd_module_call(sherd_module_find(self, "net2"), sherd_relu(h));
    out->count = 1;
}

static inline sherd_module *mlp(sherd_world *world, sherd_dtype dtype, int64_t in, int64_t hidden,
                                int64_t out)
{
    sherd_module *m = container(world, mlp_forward, NULL);
    linear_layer(m, "net1", dtype, in, hidden, 1);
    linear_layer(m, "net2", dtype, hidden, out, 3);
    return m;
}

/* mean((y - target)^2) */
static inline sherd_tensor *squared_error(sherd_tensor *y, sherd_tensor *target)
{
    sherd_tensor *d = sherd_sub(y, target);
    return sherd_mean(sherd_mul(d, d));
}

/* ---- a pre-norm block: x + attn(ln1(x)), then + mlp(ln2(x)) --------------------------------- */

typedef struct block_size {
    int64_t heads, width; /* width of a head */
    double dropout;
} block_size;

static inline void attention_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const block_size *s = sherd_module_payload(self);
    static const char *const names[] = {"wq", "wk", "wv"};
    sherd_tensor *x = in->value[0], *t[3];
    int64_t batch = sherd_tensor_shape(x)[0], length = sherd_tensor_shape(x)[1];

    for (int i = 0; i < 3; i++)
        t[i] = sherd_view(sherd_module_call(sherd_module_find(self, names[i]), x),
                          SHAPE(batch, length, s->heads, s->width), 4);
    x = sherd_attention(t[0], t[1], t[2], &(sherd_attention_options){.causal = true});
    x = sherd_view(x, SHAPE(batch, length, s->heads * s->width), 3);
    out->value[0] = sherd_module_call(sherd_module_find(self, "wo"), x);
    out->count = 1;
}

static inline void gelu_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "w1"), in->value[0]);
    out->value[0] = sherd_module_call(sherd_module_find(self, "w2"), sherd_gelu(h));
    out->count = 1;
}

static inline void block_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    static const char *const steps[][3] = {{"ln1", "attn", "drop1"}, {"ln2", "mlp", "drop2"}};
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < 2; i++) {
        sherd_tensor *h = x;
        for (int j = 0; j < 3; j++)
            h = sherd_module_call(sherd_module_find(self, steps[i][j]), h);
        x = sherd_add(x, h);
    }
    out->value[0] = x;
    out->count = 1;
}

/* `activate` is the forward of the MLP, w1 and w2. `size` must live as long as the module. */
static inline sherd_module *block_with(sherd_world *world, sherd_dtype dtype, block_size *size,
                                       int64_t hidden, sherd_forward activate)
{
    int64_t width = size->heads * size->width;
    sherd_module *m = container(world, block_forward, NULL), *attn, *mlp, *drop;
    static const char *const names[] = {"wq", "wk", "wv", "wo"};

    norm_layer(m, "ln1", dtype, width, 1);
    attn = add_layer(m, "attn", container(world, attention_forward, size));
    for (int i = 0; i < 4; i++)
        linear_layer(attn, names[i], dtype, width, width, 3 + 2 * i);
    norm_layer(m, "ln2", dtype, width, 11);
    mlp = add_layer(m, "mlp", container(world, activate, NULL));
    linear_layer(mlp, "w1", dtype, width, hidden, 13);
    linear_layer(mlp, "w2", dtype, hidden, width, 15);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(sherd_dropout_create(&drop, world, size->dropout));
        add_layer(m, i ? "drop2" : "drop1", drop);
    }
    return m;
}

static inline sherd_module *block(sherd_world *world, sherd_dtype dtype, block_size *size,
                                  int64_t hidden)
{
    return block_with(world, dtype, size, hidden, gelu_forward);
}

static inline void stack_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < sherd_module_children(self); i++)
        x = sherd_module_call(sherd_module_child(self, i), x);
    out->value[0] = x;
    out->count = 1;
}

/* Up to four blocks "0", "1", .. one after the other. */
static inline sherd_module *stack_of(sherd_world *world, sherd_dtype dtype, block_size *size,
                                     int64_t hidden, int blocks)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    sherd_module *root = container(world, stack_forward, NULL);

    for (int i = 0; i < blocks; i++)
        add_layer(root, names[i], block(world, dtype, size, hidden));
    return root;
}

/* Make a block (at `prefix`, "" or "blocks.*.") parallel; heads stay whole. */
static inline sherd_status parallelize_block(sherd_module *m, const sherd_mesh *mesh,
                                             const char *prefix, const block_size *size,
                                             bool sequence)
{
    static const char *const names[] = {"attn.w[qkv]", "attn.wo", "mlp.w1", "mlp.w2",
                                        "ln?",         "drop?",   "attn",   "mlp"};
    char path[LEN(names)][64];
    sherd_parallel_entry plan[LEN(names)];

    for (int i = 0; i < LEN(names); i++) {
        snprintf(path[i], sizeof path[i], "%s%s", prefix, names[i]);
        plan[i].path = path[i];
    }
    plan[0].style = sherd_colwise();
    plan[0].style.granule = size->width;
    plan[1].style = sherd_rowwise();
    plan[1].style.granule = size->width;
    plan[2].style = sherd_colwise();
    plan[3].style = sherd_rowwise();
    plan[4].style = plan[5].style = sherd_sequence_parallel();
    plan[6].style = plan[7].style = sherd_prepare_input();
    if (sequence)
        plan[1].style.output = plan[3].style.output = sherd_shard(1);
    return sherd_parallelize(m, mesh, "tp", plan, sequence ? 8 : 4);
}

/* ---- comparing with the plain model --------------------------------------------------------- */

enum { MOST_PARAMETERS = 32 };

/* Loss, output and gradients of a plain model, to compare others with. */
typedef struct baseline {
    double loss, *output, *grad_x;
    int64_t outputs, inputs;
    double *grad[MOST_PARAMETERS];
    int64_t count[MOST_PARAMETERS];
    int parameters;
} baseline;

static inline double *keep(sherd_tensor *t, int64_t *count)
{
    static _Thread_local double have[MOST];
    *count = whole(t, have);
    double *copy = malloc(((size_t)*count + 1) * sizeof *copy);
    if (copy)
        memcpy(copy, have, (size_t)*count * sizeof *copy);
    return copy;
}

static inline void forget_baseline(baseline *e)
{
    free(e->output);
    free(e->grad_x);
    for (int i = 0; i < e->parameters; i++)
        free(e->grad[i]);
}

static inline void expect(baseline *e, sherd_module *m, sherd_tensor *x, sherd_tensor *target)
{
    sherd_named_parameter all[MOST_PARAMETERS];
    sherd_tensor *y = sherd_module_call(m, x), *loss = squared_error(y, target);

    sherd_backward(loss);
    e->loss = sherd_item(loss);
    e->output = keep(y, &e->outputs);
    e->grad_x = keep(sherd_grad(x), &e->inputs);
    e->parameters = sherd_module_all_parameters(m, all, MOST_PARAMETERS);
    for (int i = 0; i < e->parameters; i++)
        e->grad[i] = keep(sherd_grad(all[i].tensor), &e->count[i]);
}

static inline double largest(const double *a, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(a[i]) > most ? fabs(a[i]) : most;
    return most;
}

/* Run a parallel model and compare; tolerance relative to the largest entry of each tensor (plus a
 * little). */
static inline void compare(const baseline *e, sherd_module *m, sherd_tensor *x,
                           sherd_tensor *target, double tolerance)
{
    sherd_named_parameter all[MOST_PARAMETERS];
    sherd_tensor *y = sherd_module_call(m, x), *loss = squared_error(y, target);

    sherd_backward(loss);
    CHECK_NEAR(sherd_item(loss), e->loss, tolerance);
    CHECK_NEAR(distance_to(y, e->output, e->outputs), 0,
               tolerance * (largest(e->output, e->outputs) + 0.1));
    CHECK_NEAR(distance_to(sherd_grad(x), e->grad_x, e->inputs), 0,
               tolerance * (largest(e->grad_x, e->inputs) + 0.1));
    CHECK_EQ(sherd_module_all_parameters(m, all, MOST_PARAMETERS), e->parameters);
    for (int i = 0; i < e->parameters; i++)
        if (!CHECK_NEAR(distance_to(sherd_grad(all[i].tensor), e->grad[i], e->count[i]), 0,
                        tolerance * (largest(e->grad[i], e->count[i]) + 0.1)))
            fprintf(stderr, "  gradient of %s.%s, %s\n", all[i].path, all[i].name,
                    sherd_tensor_text(all[i].tensor));
}

#endif
