/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The model: a GPT as a tree of modules. Nothing here depends on ranks: the forward functions
 * compute on whole tensors, and plan.c says how these are split. Only the order of positions is
 * known here (options->zigzag), to those that look at it: attention, and the table of places. The
 * paths of modules, such as "blocks.0.attn.wq", also name the generators of the initial values, so
 * that these do not depend on the mesh.
 */
#include <math.h>

#include "model.h"

static const double deviation =
    0.05; /* of first weights; 0.02 suits wider models, and learns later here */

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

/* [batch, context, dim] -> [batch, context, heads, dim / heads] */
static sherd_tensor *split_heads(sherd_tensor *x, const gpt_options *o)
{
    return sherd_view(x, (int64_t[]){-1, o->context, o->heads, o->dim / o->heads}, 4);
}

static void attention(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const gpt_options *o = sherd_module_payload(self);
    const sherd_attention_options causal = {.causal = true, .zigzag = o->zigzag};
    sherd_tensor *x = in->value[0];
    sherd_tensor *q = split_heads(call(self, "wq", x), o);
    sherd_tensor *k = split_heads(call(self, "wk", x), o);
    sherd_tensor *v = split_heads(call(self, "wv", x), o);
    sherd_tensor *a = sherd_attention(q, k, v, &causal);

    a = sherd_view(a, (int64_t[]){-1, o->context, o->dim}, 3);
    give(out, call(self, "drop", call(self, "wo", a)));
}

static void mlp(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_gelu(call(self, "up", in->value[0]));
    give(out, call(self, "drop", call(self, "down", h)));
}

/* The same with experts; and their balance. */
static void mixture(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module_run(sherd_module_find(self, "mix"), in, out);
    out->value[0] = call(self, "drop", out->value[0]);
}

/*
 * The norm of x + delta, and the new x = x + delta, in one pass over memory. With no delta yet, the
 * norm of x.
 */
static sherd_tensor *norm_of(sherd_module *parent, const char *child, sherd_tensor **x,
                             sherd_tensor *delta)
{
    const sherd_args in = {.count = delta ? 2 : 1, .value = {*x, delta}};
    sherd_args out;

    sherd_module_run(sherd_module_find(parent, child), &in, &out);
    if (delta)
        *x = out.value[1];
    return out.value[0];
}

/*
 * (x, delta) -> (x, delta): what is to be added to the residual stream is added where the next norm
 * reads it. With experts the sum of balances goes along.
 */
static void block(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0], *delta = in->count > 1 ? in->value[1] : NULL;
    sherd_args to_mlp = {.count = 1}, y;

    delta = call(self, "attn", norm_of(self, "norm1", &x, delta));
    to_mlp.value[0] = norm_of(self, "norm2", &x, delta);
    sherd_module_run(sherd_module_find(self, "mlp"), &to_mlp, &y);
    *out = (sherd_args){.count = 1 + y.count, .value = {x, y.value[0], y.value[1]}};
    if (y.count > 1 && in->count > 2)
        out->value[2] = sherd_add(in->value[2], y.value[1]);
}

/* The tables: a vector for each byte and one for its place. */
static sherd_tensor *embed(sherd_module *self, sherd_tensor *ids)
{
    const gpt_options *o = sherd_module_payload(self);
    sherd_tensor *place = sherd_module_parameter(self, "place");

    if (o->zigzag)
        place = sherd_zigzag(place, 0, o->zigzag);
    return call(self, "drop", sherd_add(call(self, "tok", ids), place));
}

static void keep(sherd_args *args)
{
    for (int i = 0; i < args->count; i++)
        sherd_tensor_retain(args->value[i]);
}

static void let_go(sherd_args *args)
{
    for (int i = 0; i < args->count; i++)
        sherd_tensor_release(args->value[i]);
}

/*
 * Blocks make tensors by the dozen. Each step of the way has a scope of its own, out of which x and
 * delta are kept, so that what is left for backward is what the tape saved, and no more.
 */
static void gpt(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_world *world = sherd_module_world(self);
    sherd_module *blocks = sherd_module_find(self, "blocks");
    sherd_args now = {.count = 1}, next;

    sherd_scope_begin(world);
    now.value[0] = embed(self, in->value[0]);
    keep(&now);
    sherd_scope_end(world);
    for (int i = 0; i < sherd_module_children(blocks); i++) {
        sherd_scope_begin(world);
        sherd_module_run(sherd_module_child(blocks, i), &now, &next);
        keep(&next);
        sherd_scope_end(world);
        let_go(&now);
        now = next;
    }
    sherd_tensor *x = now.value[0];
    give(out, call(self, "head", norm_of(self, "norm", &x, now.value[1])));
    if (now.count > 2)
        out->value[out->count++] = sherd_scale(now.value[2], 1.0 / sherd_module_children(blocks));
    let_go(&now);
}

/* ---- making the tree ------------------------------------------------------------------------ */

/*
 * The tree grows from the root, so that every layer knows its path. The first failure stays; what
 * follows it does nothing.
 */
typedef struct builder {
    sherd_world *world;
    const gpt_options *options;
    sherd_status status;
} builder;

/* Hang a module that was just made below its parent, which destroys it with itself. */
static void hang(builder *b, sherd_module *parent, const char *name, sherd_module *child)
{
    if (!b->status)
        b->status = sherd_module_add(parent, name, child);
}

/* A module with a forward of ours; NULL after a failure. `parent` NULL: the root. */
static sherd_module *branch(builder *b, sherd_module *parent, const char *name,
                            sherd_forward forward)
{
    const sherd_module_options options = {.payload = (void *)(uintptr_t)b->options};
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_module_create(&made, b->world, forward, &options);
    if (parent)
        hang(b, parent, name, made);
    return b->status ? NULL : made;
}

typedef char path_text[64];

static void path_of(path_text path, const sherd_module *parent, const char *name)
{
    const char *above = sherd_module_path(parent);
    snprintf(path, sizeof(path_text), "%s%s%s", above, above[0] ? "." : "", name);
}

static void linear(builder *b, sherd_module *parent, const char *name, int64_t in, int64_t features,
                   double spread)
{
    sherd_layer_options options = {.deviation = spread, .bias = true};
    sherd_module *made = NULL;
    path_text path;

    if (b->status)
        return;
    path_of(path, parent, name);
    options.name = path;
    b->status = sherd_linear_create(&made, b->world, in, features, &options);
    hang(b, parent, name, made);
}

static void norm(builder *b, sherd_module *parent, const char *name)
{
    const sherd_layer_options options = {.low = true}; /* products read it, and nothing else */
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_layer_norm_create(&made, b->world, b->options->dim, &options);
    hang(b, parent, name, made);
}

static void drop(builder *b, sherd_module *parent)
{
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_dropout_create(&made, b->world, b->options->dropout);
    hang(b, parent, "drop", made);
}

/* What goes into the residual stream starts smaller: all blocks add up there. */
static double residual_deviation(const gpt_options *o)
{
    return deviation / sqrt(2 * (double)o->layers);
}

static void add_attention(builder *b, sherd_module *parent)
{
    sherd_module *attn = branch(b, parent, "attn", attention);
    int64_t dim = b->options->dim;

    linear(b, attn, "wq", dim, dim, deviation);
    linear(b, attn, "wk", dim, dim, deviation);
    linear(b, attn, "wv", dim, dim, deviation);
    linear(b, attn, "wo", dim, dim, residual_deviation(b->options));
    drop(b, attn);
}

static void add_mlp(builder *b, sherd_module *parent)
{
    sherd_module *m = branch(b, parent, "mlp", mlp);
    int64_t dim = b->options->dim;

    linear(b, m, "up", dim, 4 * dim, deviation);
    linear(b, m, "down", 4 * dim, dim, residual_deviation(b->options));
    drop(b, m);
}

/* As many products as the MLP has: three of two experts, of two thirds of a third of its width. */
static void add_mixture(builder *b, sherd_module *parent)
{
    sherd_module *m = branch(b, parent, "mlp", mixture), *made = NULL;
    const sherd_experts_options how = {.experts = b->options->experts,
                                       .k = 2,
                                       .hidden = (4 * b->options->dim + 2) / 3,
                                       .balance = true};
    sherd_layer_options options = {.deviation = deviation};
    path_text path;

    if (b->status)
        return;
    path_of(path, m, "mix");
    options.name = path;
    b->status = sherd_experts_create(&made, b->world, b->options->dim, &how, &options);
    hang(b, m, "mix", made);
    drop(b, m);
}

static void add_blocks(builder *b, sherd_module *root)
{
    sherd_module *blocks = branch(b, root, "blocks", NULL);

    for (int64_t i = 0; i < b->options->layers && !b->status; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        sherd_module *one = branch(b, blocks, name, block);
        norm(b, one, "norm1");
        add_attention(b, one);
        norm(b, one, "norm2");
        (b->options->experts ? add_mixture : add_mlp)(b, one);
    }
}

/* The two tables: of bytes, and of places in the sequence, which is a parameter of the root. */
static void add_tables(builder *b, sherd_module *root)
{
    const gpt_options *o = b->options;
    sherd_layer_options options = {.name = "tok", .deviation = deviation};
    sherd_generator generator = sherd_generator_named("place");
    sherd_module *tok = NULL;
    sherd_tensor *place;

    if (b->status)
        return;
    b->status = sherd_embedding_create(&tok, b->world, VOCABULARY, o->dim, &options);
    hang(b, root, "tok", tok);
    if (b->status)
        return;
    place = sherd_random_later(b->world, SHERD_F32, (int64_t[]){o->context, o->dim}, 2,
                               sherd_normal(0, deviation), &generator);
    b->status = sherd_tensor_failed(place) ? SHERD_ENOMEM
                                           : sherd_module_add_parameter(root, "place", place);
}

sherd_status model_create(sherd_module **out, sherd_world *world, const gpt_options *options)
{
    builder b = {world, options, SHERD_OK};
    sherd_module *root = branch(&b, NULL, NULL, gpt);

    sherd_scope_begin(world);
    add_tables(&b, root);
    drop(&b, root);
    add_blocks(&b, root);
    norm(&b, root, "norm");
    linear(&b, root, "head", options->dim, VOCABULARY, deviation);
    sherd_scope_end(world);
    if (b.status) {
        sherd_module_destroy(root);
        root = NULL;
    }
    *out = root;
    return b.status;
}
