/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: a tree of modules with the names of Hugging Face's files, and how it is split. The
 * forward functions compute on whole tensors; the styles say which rank has what: heads and hidden
 * units by Colwise and Rowwise, the vocabulary by entries, experts by number. A granule keeps the
 * heads that share keys on one rank, so caches lie as the heads do, and any number of ranks works;
 * one that gets no head has nothing to do there.
 */
#include <stdlib.h>
#include <string.h>

#include "llama.h"

/* ---- forward -------------------------------------------------------------------------------- */

static sherd_tensor *call(sherd_module *parent, const char *child, sherd_tensor *x)
{
    return sherd_module_call(sherd_module_find(parent, child), x);
}

static void give(sherd_args *out, sherd_tensor *y)
{
    out->value[0] = y;
    out->count = 1;
}

/* The projection of x, [batch, s, heads, width]. */
static sherd_tensor *heads_of(sherd_module *self, const char *child, sherd_tensor *x, int64_t width)
{
    return sherd_unflatten(call(self, child, x), -1, (int64_t[]){-1, width}, 2);
}

/* Prefill: the cache is the prompts' keys or values with room behind them. */
static void begin_cache(sherd_tensor **to, sherd_tensor *x, int64_t capacity)
{
    const int64_t none[4] = {0}, room[4] = {0, capacity - sherd_tensor_shape(x)[1], 0, 0};

    sherd_tensor_release(*to);
    *to = sherd_tensor_retain(sherd_pad(x, none, room, 0));
}

static void attention(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    cache *here = sherd_module_payload(self);
    const llama *m = here->model;
    const sherd_attention_options causal = {.causal = true, .window = m->c.window};
    const sherd_cached_options cached = {.window = m->c.window};
    const sherd_rotary_options turn = {.base = m->c.rope_base};
    sherd_tensor *x = in->value[0], *y;
    sherd_tensor *q = sherd_rotary(heads_of(self, "q_proj", x, m->c.width), m->positions, &turn);
    sherd_tensor *k = sherd_rotary(heads_of(self, "k_proj", x, m->c.width), m->positions, &turn);
    sherd_tensor *v = heads_of(self, "v_proj", x, m->c.width);

    if (m->positions) {
        sherd_write_rows(here->k, m->positions, k);
        sherd_write_rows(here->v, m->positions, v);
        y = sherd_attention_cached_with(q, here->k, here->v, m->positions, &cached);
    } else {
        if (m->capacity) {
            begin_cache(&here->k, k, m->capacity);
            begin_cache(&here->v, v, m->capacity);
        }
        y = sherd_attention(q, k, v, &causal);
    }
    give(out, call(self, "o_proj", sherd_flatten(y, 2, 3)));
}

static void mlp(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *gate = sherd_silu(call(self, "gate_proj", in->value[0]));

    give(out, call(self, "down_proj", sherd_mul(gate, call(self, "up_proj", in->value[0]))));
}

/* The norm of x + delta, and x = x + delta. */
static sherd_tensor *norm(sherd_module *self, const char *child, sherd_tensor **x,
                          sherd_tensor *delta)
{
    const sherd_args in = {.count = delta ? 2 : 1, .value = {*x, delta}};
    sherd_args out;

    sherd_module_run(sherd_module_find(self, child), &in, &out);
    *x = delta ? out.value[1] : *x;
    return out.value[0];
}

static void layer(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0], *delta = in->count > 1 ? in->value[1] : NULL;

    delta = call(self, "self_attn", norm(self, "input_layernorm", &x, delta));
    delta = call(self, "mlp", norm(self, "post_attention_layernorm", &x, delta));
    *out = (sherd_args){.count = 2, .value = {x, delta}};
}

/* ids [batch, s] -> what the head reads [batch, s, dim]. */
static void decoder(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module *layers = sherd_module_find(self, "layers");
    sherd_args now = {.count = 1}, next;

    now.value[0] = call(self, "embed_tokens", in->value[0]);
    for (int i = 0; i < sherd_module_children(layers); i++, now = next)
        sherd_module_run(sherd_module_child(layers, i), &now, &next);
    give(out, norm(self, "norm", &now.value[0], now.value[1]));
}

/* ---- making the tree ------------------------------------------------------------------------ */

/* The first failure stays; what follows it does nothing. */
typedef struct builder {
    llama *m;
    sherd_layer_options options;
    sherd_status status;
} builder;

static sherd_module *branch(builder *b, sherd_module *parent, const char *name,
                            sherd_forward forward, void *payload)
{
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_module_create(&made, b->m->world, forward,
                                        &(sherd_module_options){.payload = payload});
    if (parent && !b->status)
        b->status = sherd_module_add(parent, name, made);
    return b->status ? NULL : made;
}

/* A Linear of [features, in]; its path names the generator of random weights. */
static void linear(builder *b, sherd_module *parent, const char *name, int64_t in, int64_t features)
{
    char path[64];
    sherd_module *made = NULL;

    snprintf(path, sizeof path, "%s.%s", sherd_module_path(parent), name);
    b->options.name = path;
    if (!b->status)
        b->status = sherd_linear_create(&made, b->m->world, in, features, &b->options);
    b->options.name = NULL;
    if (!b->status)
        b->status = sherd_module_add(parent, name, made);
}

static void rms_norm(builder *b, sherd_module *parent, const char *name)
{
    sherd_module *made = NULL;

    if (!b->status)
        b->status =
            sherd_rms_norm_create(&made, b->m->world, b->m->c.dim, b->m->c.eps, &b->options);
    if (!b->status)
        b->status = sherd_module_add(parent, name, made);
}

/* A mixture of experts in the place of the MLP. */
static void experts(builder *b, sherd_module *parent, const char *name)
{
    const config *c = &b->m->c;
    const sherd_experts_options how = {c->experts, c->chosen, c->hidden, false, false};
    char path[64];
    sherd_module *made = NULL;

    snprintf(path, sizeof path, "%s.%s", sherd_module_path(parent), name);
    b->options.name = path;
    if (!b->status)
        b->status = sherd_experts_create(&made, b->m->world, c->dim, &how, &b->options);
    b->options.name = NULL;
    if (!b->status)
        b->status = sherd_module_add(parent, name, made);
}

static void one_mlp(builder *b, sherd_module *parent, const char *name)
{
    const config *c = &b->m->c;
    sherd_module *hidden = branch(b, parent, name, mlp, NULL);

    linear(b, hidden, "gate_proj", c->dim, c->hidden);
    linear(b, hidden, "up_proj", c->dim, c->hidden);
    linear(b, hidden, "down_proj", c->hidden, c->dim);
}

static void add_layer(builder *b, sherd_module *layers, int64_t i)
{
    const config *c = &b->m->c;
    char name[24];

    snprintf(name, sizeof name, "%lld", (long long)i);
    b->m->cache[i].model = b->m;
    sherd_module *one = branch(b, layers, name, layer, NULL);
    sherd_module *attn = branch(b, one, "self_attn", attention, &b->m->cache[i]);
    linear(b, attn, "q_proj", c->dim, c->heads * c->width);
    linear(b, attn, "k_proj", c->dim, c->kv_heads * c->width);
    linear(b, attn, "v_proj", c->dim, c->kv_heads * c->width);
    linear(b, attn, "o_proj", c->heads * c->width, c->dim);
    (c->experts ? experts : one_mlp)(b, one, "mlp");
    rms_norm(b, one, "input_layernorm");
    rms_norm(b, one, "post_attention_layernorm");
}

static sherd_status build(llama *m, bool random)
{
    builder b = {m, {.dtype = m->c.dtype, .zero = !random}, SHERD_OK};
    sherd_module *tokens = NULL, *root = m->root = branch(&b, NULL, NULL, NULL, NULL);
    sherd_module *model = branch(&b, root, "model", decoder, NULL);

    if (!b.status)
        b.status = sherd_embedding_create(&tokens, m->world, m->c.vocabulary, m->c.dim, &b.options);
    if (!b.status)
        b.status = sherd_module_add(model, "embed_tokens", tokens);
    sherd_module *layers = branch(&b, model, "layers", NULL, NULL);
    for (int64_t i = 0; i < m->c.layers; i++)
        add_layer(&b, layers, i);
    rms_norm(&b, model, "norm");
    linear(&b, root, "lm_head", m->c.dim, m->c.vocabulary);
    if (!b.status && m->c.tied)
        b.status = sherd_module_set_parameter(sherd_module_find(root, "lm_head"), "weight",
                                              sherd_module_parameter(tokens, "weight"));
    return b.status;
}

static sherd_style by(sherd_style style, int64_t granule)
{
    style.granule = granule;
    return style;
}

static sherd_status split(llama *m)
{
    int64_t shared = m->c.width * (m->c.heads / m->c.kv_heads);
    const sherd_parallel_entry by_expert = {"model.layers.*.mlp", sherd_expert_parallel()};
    sherd_parallel_entry plan[] = {
        {"model.embed_tokens", sherd_rowwise()},
        {"model.layers.*.self_attn.q_proj", by(sherd_colwise(), shared)},
        {"model.layers.*.self_attn.[kv]_proj", by(sherd_colwise(), m->c.width)},
        {"model.layers.*.self_attn.o_proj", by(sherd_rowwise(), shared)},
        {"lm_head", sherd_colwise()},
        {"model.layers.*.mlp.gate_proj", sherd_colwise()},
        {"model.layers.*.mlp.up_proj", sherd_colwise()},
        {"model.layers.*.mlp.down_proj", sherd_rowwise()}};
    enum { BEFORE_MLP = 5, ENTRIES = sizeof plan / sizeof *plan };
    enum { PAIR = 2 }; /* of 4 bits two columns are a byte */

    if (m->c.experts)
        plan[BEFORE_MLP] =
            (sherd_parallel_entry){"model.layers.*.mlp", by(sherd_expert_tensor_parallel(), PAIR)};
    sherd_status status =
        sherd_parallelize(m->root, m->mesh, "tp", plan, m->c.experts ? BEFORE_MLP + 1 : ENTRIES);
    if (!status && m->c.experts && sherd_mesh_find_axis(m->mesh, "ep") >= 0)
        status = sherd_parallelize(m->root, m->mesh, "ep", &by_expert, 1);
    return status;
}

sherd_status llama_create(llama *out, sherd_world *world, const config *c, const sherd_mesh *mesh,
                          bool random)
{
    *out = (llama){.world = world, .c = *c, .mesh = mesh};
    out->cache = calloc((size_t)c->layers, sizeof *out->cache);
    sherd_status status = out->cache ? SHERD_OK : SHERD_ENOMEM;

    sherd_scope_begin(world);
    if (!status)
        status = build(out, random);
    if (status) /* the other ranks learn of it */
        sherd_world_fail(world, status, "out of memory for the model");
    status = sherd_world_check(world);
    if (!status)
        status = split(out);
    sherd_scope_end(world);
    return status;
}

void llama_destroy(llama *m)
{
    for (int64_t i = 0; m->cache && i < m->c.layers; i++) {
        sherd_tensor_release(m->cache[i].k);
        sherd_tensor_release(m->cache[i].v);
    }
    sherd_module_destroy(m->root);
    free(m->cache);
}
