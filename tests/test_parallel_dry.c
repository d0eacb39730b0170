/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of training, on real ranks and dry: blocks under styles, sharded by FSDP, recomputed, in
 * bf16, with every optimizer, clipped and scaled; a mixture of experts; convolutions.
 */
#include "dry.h"
#include "models.h"

#include "sherd/autocast.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_stencil.h"
#include "sherd/optimizer.h"
#include "sherd/scaler.h"

enum { HEADS = 4, HEAD = 2, WIDTH = HEADS * HEAD, HIDDEN = 12, BLOCKS = 2, STEPS = 2 };

/* How a model is trained. */
typedef struct training {
    const char *name;
    bool tensor, sequence, shard, checkpoint, clip, scale;
    sherd_dtype autocast;
    char optimizer; /* 'a' AdamW, 's' SGD, 'm' Muon */
    double dropout;
} training;

static const training trainings[] = {
    {"data", .optimizer = 's'},
    {"tensor", .tensor = true, .optimizer = 'a', .clip = true},
    {"sequence", .tensor = true, .sequence = true, .optimizer = 's', .dropout = 0.5},
    {"shard", .shard = true, .optimizer = 'a', .clip = true},
    {"shard, tensor", .shard = true, .tensor = true, .optimizer = 'a', .checkpoint = true},
    {"checkpoint", .tensor = true, .sequence = true, .checkpoint = true, .optimizer = 'm'},
    {"bf16", .tensor = true, .autocast = SHERD_BF16, .optimizer = 'a', .clip = true},
    {"bf16, shard", .shard = true, .autocast = SHERD_BF16, .optimizer = 'm', .scale = true},
    {"f16", .tensor = true, .shard = true, .autocast = SHERD_F16, .optimizer = 'a', .scale = true},
    {"muon", .shard = true, .tensor = true, .optimizer = 'm'},
};

static sherd_optimizer *optimizer_of(char kind, sherd_module *m)
{
    sherd_optimizer *o = NULL;

    if (kind == 'a')
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
    else if (kind == 'm')
        CHECK_OK(sherd_muon_create(&o, m, NULL));
    else
        CHECK_OK(sherd_sgd_create(&o, m, &(sherd_sgd_options){.momentum = 0.9}));
    return o;
}

/* As many ranks on "dp" as on "tp", or nearly. */
static const sherd_mesh *two_axes(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), dp = ranks % 4 == 0 ? 2 : 1;
    char text[32];

    snprintf(text, sizeof text, "dp=%d,tp=%d", dp, ranks / dp);
    return mesh_of(world, text);
}

static void step(const training *how, sherd_module *m, sherd_optimizer *o, sherd_scaler *scaler,
                 const sherd_mesh *mesh)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *x = spread(wave(world, SHERD_F32, 3, SHAPE(4, 6, WIDTH), 3, 1, 0), mesh, "S(0)R");
    sherd_tensor *target = wave(world, SHERD_F32, 3, SHAPE(4, 6, WIDTH), 5, 1, 0);
    sherd_dtype before = sherd_set_autocast(world, how->autocast);
    sherd_tensor *loss = squared_error(sherd_module_call(m, x), spread(target, mesh, "S(0)R"));

    sherd_set_autocast(world, before);
    sherd_backward(how->scale ? sherd_scaler_scale(scaler, loss) : loss);
    if (how->scale)
        sherd_scaler_step(scaler, o, 0.1, 1, NULL);
    if (how->clip)
        sherd_optimizer_clip(o, 1);
    if (!how->scale)
        sherd_optimizer_step(o, 0.1, 1);
    sherd_optimizer_clear(o);
    sherd_item(loss);
}

static void train(sherd_world *world, void *context)
{
    const training *how = context;
    const sherd_mesh *mesh = two_axes(world);
    block_size size = {HEADS, HEAD, how->dropout};
    sherd_module *m = stack_of(world, SHERD_F32, &size, HIDDEN, BLOCKS);
    sherd_scaler scaler = {.scale = 8}; /* with which nothing overflows: a dry step is taken */

    if (how->tensor)
        CHECK_OK(parallelize_block(m, mesh, "*.", &size, how->sequence));
    if (how->shard)
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    else
        CHECK_OK(sherd_parallelize(m, mesh, "dp", NULL, 0));
    for (int i = 0; how->checkpoint && i < BLOCKS; i++)
        sherd_module_checkpoint(sherd_module_child(m, i), true);
    sherd_optimizer *o = optimizer_of(how->optimizer, m);
    for (int i = 0; i < STEPS; i++) {
        sherd_scope_begin(world);
        step(how, m, o, &scaler, mesh);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static void blocks_are_trained_the_same_dry(sherd_world *world)
{
    for (int i = 0; i < LEN(trainings); i++) {
        training how = trainings[i];
        if (!same_dry(world, train, &how))
            fprintf(stderr, "  %s\n", how.name);
    }
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static void picture_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_module_call(sherd_module_find(self, "conv"), in->value[0]);

    x = sherd_relu(sherd_module_call(sherd_module_find(self, "norm"), x));
    x = sherd_max_pool(x, &(sherd_pool_options){.kernel = {2, 2}, .stride = {2, 2}}, NULL);
    out->value[0] = sherd_module_call(sherd_module_find(self, "head"), sherd_flatten(x, 1, -1));
    out->count = 1;
}

static sherd_module *new_picture(sherd_world *world)
{
    sherd_module *m = container(world, picture_forward, NULL), *conv = NULL, *norm = NULL;
    const sherd_conv_options how = {.before = {1, 1}, .after = {1, 1}};
    const sherd_layer_options options = {.name = "conv"};

    CHECK_OK(sherd_conv_create(&conv, world, 2, 4, 2, SHAPE(3, 3), &how, &options));
    CHECK_OK(sherd_batch_norm_create(&norm, world, 4, NULL, NULL));
    add_layer(m, "conv", conv);
    add_layer(m, "norm", norm);
    linear_layer(m, "head", SHERD_F32, 4 * 8 * 2, 3, 1);
    return m;
}

/* `context`: how pictures [4,2,16,4] lie on the mesh's "dp" and "tp". */
static void look(sherd_world *world, void *context)
{
    const sherd_mesh *mesh = two_axes(world);
    sherd_module *m = new_picture(world);

    CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
    sherd_optimizer *o = optimizer_of('a', m);
    for (int i = 0; i < STEPS; i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_F32, 4, SHAPE(4, 2, 16, 4), 3, 1, 0);
        sherd_backward(sherd_sum(sherd_module_call(m, spread(x, mesh, context))));
        sherd_optimizer_step(o, 0.1, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static void convolutions_are_the_same_dry(sherd_world *world)
{
    static const char *const ways[] = {"RR", "S(0)R", "S(0)S(2)", "RS(2)", "S(2)S(3)"};

    for (int i = 0; i < LEN(ways); i++)
        if (!same_dry(world, look, (void *)(uintptr_t)ways[i]))
            fprintf(stderr, "  %s\n", ways[i]);
}

/* ---- experts --------------------------------------------------------------------------------- */

static void mix(sherd_world *world, void *context)
{
    const sherd_experts_options how = {.experts = 8, .k = 2, .hidden = 6, .balance = true};
    const sherd_mesh *mesh = two_axes(world);
    const sherd_parallel_entry plan = {.path = "mix", .style = sherd_expert_parallel()};
    sherd_module *m = container(world, stack_forward, NULL), *experts = NULL;

    (void)context;
    CHECK_OK(sherd_experts_create(&experts, world, WIDTH, &how,
                                  &(sherd_layer_options){.name = "mix", .deviation = 0.5}));
    add_layer(m, "mix", experts);
    CHECK_OK(sherd_parallelize(m, mesh, "tp", &plan, 1));
    sherd_optimizer *o = optimizer_of('a', m);
    for (int i = 0; i < STEPS; i++) {
        sherd_tensor *x = wave(world, SHERD_F32, 3, SHAPE(4, 8, WIDTH), 3, 1, 0);
        sherd_scope_begin(world);
        sherd_backward(sherd_sum(sherd_module_call(m, spread(x, mesh, "S(0)S(1)"))));
        sherd_optimizer_step(o, 0.1, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* Which rows go where depends on the tokens, and so do bytes and memory; what is called does not.
 * tests/test_ops_dry.c has choices that are even. */
static void experts_call_the_same_dry(sherd_world *world)
{
    sherd_world *dry = dry_as(world);
    account *both = calloc(2, sizeof *both);

    if (CHECK(both && dry)) {
        run_into(&both[0], world, mix, NULL);
        run_into(&both[1], dry, mix, NULL);
        CHECK_OK(both[0].status);
        CHECK_OK(both[1].status);
        same_names(&both[0], &both[1]);
        CHECK_EQ(both[1].memory.live_bytes, 0);
    }
    free(both);
    CHECK_OK(sherd_world_close(dry));
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* `context`: how the cache [2,12,2,4] lies. */
static void decode(sherd_world *world, void *context)
{
    static const int32_t where[] = {0, 1, 2, 3, 4, 5};
    const sherd_mesh *mesh = two_axes(world);
    sherd_tensor *cache[2];
    bool before = sherd_set_recording(world, false);

    for (int i = 0; i < 2; i++)
        cache[i] = sherd_contiguous(
            spread(wave(world, SHERD_F32, 4, SHAPE(2, 12, 2, 4), 1, 0, 0), mesh, context));
    for (int at = 0, n = 4; at < 6; at += n, n = 1) {
        sherd_tensor *rows = wave(world, SHERD_F32, 4, SHAPE(2, n, 2, 4), 3, 1, 0);
        sherd_tensor *q = wave(world, SHERD_F32, 4, SHAPE(2, n, 4, 4), 5, 1, 0);
        const int64_t shape[] = {1, n};
        sherd_tensor *position =
            sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, 2, where + at));
        position = sherd_contiguous(sherd_expand(position, SHAPE(2, n), 2));
        for (int i = 0; i < 2; i++)
            sherd_write_rows(cache[i], position, rows);
        sherd_full(sherd_attention_cached(q, cache[0], cache[1], position, 0));
    }
    sherd_set_recording(world, before);
}

static void decoding_is_the_same_dry(sherd_world *world)
{
    static const char *const ways[] = {"RR", "S(0)R", "S(0)S(2)", "RS(1)", "S(2)S(1)"};

    for (int i = 0; i < LEN(ways); i++)
        if (!same_dry(world, decode, (void *)(uintptr_t)ways[i]))
            fprintf(stderr, "  %s\n", ways[i]);
}

static const check_test tests[] = {
    {TEST(convolutions_are_the_same_dry), {1, 2, 3, 4, 8}},
    {TEST(experts_call_the_same_dry), {1, 2, 3, 4, 8}},
    {TEST(decoding_is_the_same_dry), {1, 2, 3, 4, 8}},
    {TEST(blocks_are_trained_the_same_dry), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
