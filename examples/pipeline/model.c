/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The model: nothing here knows of ranks but the last function. A layer's place in the whole model
 * names its first values, so these do not depend on the stages.
 */
#include "model.h"

#include <stdio.h>

enum { HEAD = 32 /* width of an attention head */ };

static const double deviation = 0.05;

/* ---- forward -------------------------------------------------------------------------------- */

static sherd_tensor *call(sherd_module *parent, const char *child, sherd_tensor *x)
{
    return sherd_module_call(sherd_module_find(parent, child), x);
}

static void mlp(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[0] = call(self, "down", sherd_gelu(call(self, "up", in->value[0])));
    out->count = 1;
}

static void block(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    x = sherd_add(x, call(self, "attn", call(self, "norm1", x)));
    out->value[0] = sherd_add(x, call(self, "mlp", call(self, "norm2", x)));
    out->count = 1;
}

/* What of it a stage has: a table of symbols, blocks, the last product. */
static void stage(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < sherd_module_children(self); i++)
        x = sherd_module_call(sherd_module_child(self, i), x);
    out->value[0] = x;
    out->count = 1;
}

/* ---- making it ------------------------------------------------------------------------------ */

/* Modules hang in a tree that grows from its root, so that each knows its path. */
typedef struct builder {
    sherd_world *world;
    sherd_status status;
} builder;

static sherd_module *hang(builder *b, sherd_module *parent, const char *name, sherd_module *child)
{
    if (!b->status)
        b->status = sherd_module_add(parent, name, child);
    return child;
}

static sherd_module *branch(builder *b, sherd_module *parent, const char *name, sherd_forward f)
{
    sherd_module *m = NULL;

    if (!b->status)
        b->status = sherd_module_create(&m, b->world, f, NULL);
    return hang(b, parent, name, m);
}

/* `path` names the generator of its first values, whatever stage it is in. */
static void linear(builder *b, sherd_module *parent, const char *name, const char *above,
                   int64_t in, int64_t out)
{
    char path[64];
    const sherd_layer_options options = {.name = path, .bias = true, .deviation = deviation};
    sherd_module *m = NULL;

    snprintf(path, sizeof path, "%s.%s", above, name);
    if (!b->status)
        b->status = sherd_linear_create(&m, b->world, in, out, &options);
    hang(b, parent, name, m);
}

static void norm(builder *b, sherd_module *parent, const char *name, int64_t dim)
{
    sherd_module *m = NULL;

    if (!b->status)
        b->status = sherd_rms_norm_create(&m, b->world, dim, 0, NULL);
    hang(b, parent, name, m);
}

static void add_block(builder *b, sherd_module *parent, int64_t number, int64_t dim)
{
    char name[32], path[64];
    const sherd_layer_options options = {.name = path, .deviation = deviation};
    const sherd_attention_options causal = {.causal = true};
    sherd_module *m, *attn = NULL, *wide;

    snprintf(name, sizeof name, "block%lld", (long long)number);
    snprintf(path, sizeof path, "%s.attn", name);
    m = branch(b, parent, name, block);
    norm(b, m, "norm1", dim);
    if (!b->status)
        b->status = sherd_attention_create(&attn, b->world, dim, dim / HEAD, &causal, &options);
    hang(b, m, "attn", attn);
    norm(b, m, "norm2", dim);
    wide = branch(b, m, "mlp", mlp);
    linear(b, wide, "up", name, dim, 4 * dim);
    linear(b, wide, "down", name, 4 * dim, dim);
}

/* Stage number i has its share of the layers; the first the table, the last the product. */
static void add_stage(builder *b, sherd_module *parent, const task *t, int64_t i)
{
    char name[32];
    sherd_module *m, *table = NULL;

    snprintf(name, sizeof name, "stage%lld", (long long)i);
    m = branch(b, parent, name, stage);
    if (i == 0 && !b->status) {
        const sherd_layer_options options = {.name = "table", .deviation = deviation};
        b->status = sherd_embedding_create(&table, b->world, SYMBOLS, t->dim, &options);
        hang(b, m, "table", table);
    }
    for (int64_t l = i * t->layers / t->stages; l < (i + 1) * t->layers / t->stages; l++)
        add_block(b, m, l, t->dim);
    if (i == t->stages - 1) {
        norm(b, m, "norm", t->dim);
        linear(b, m, "head", "head", t->dim, SYMBOLS);
    }
}

int64_t place_of_stage(const task *t, int64_t stage, int64_t places)
{
    bool back = t->schedule == SHERD_PIPELINE_ZERO_BUBBLE_V && stage >= places;

    return back ? t->stages - 1 - stage : stage % places;
}

sherd_status model_create(sherd_module **out, sherd_world *world, const task *t, int64_t place,
                          int64_t places)
{
    builder b = {world, SHERD_OK};

    *out = NULL;
    b.status = sherd_module_create(out, world, NULL, NULL);
    for (int64_t i = 0; i < t->stages; i++)
        if (place_of_stage(t, i, places) == place)
            add_stage(&b, *out, t, i);
    return b.status;
}

sherd_module *model_stage(sherd_module *model, int64_t i)
{
    char name[32];

    snprintf(name, sizeof name, "stage%lld", (long long)i);
    return sherd_module_find(model, name);
}

/* ---- over ranks ----------------------------------------------------------------------------- */

/* Megatron's scheme: one all-reduce for attention and one for the MLP, forward and backward. */
sherd_status model_split(sherd_module *model, const sherd_mesh *mesh, const task *t)
{
    sherd_style by_head = sherd_colwise(), from_heads = sherd_rowwise();
    by_head.granule = from_heads.granule = HEAD;
    const sherd_parallel_entry plan[] = {{"*.block*.attn.w[qkv]", by_head},
                                         {"*.block*.attn.wo", from_heads},
                                         {"*.block*.mlp.up", sherd_colwise()},
                                         {"*.block*.mlp.down", sherd_rowwise()},
                                         {"*.head", sherd_colwise()}};
    int entries = sizeof plan / sizeof plan[0];

    return sherd_parallelize(model, mesh, "tp", plan,
                             model_stage(model, t->stages - 1) ? entries : entries - 1);
}
