/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Context parallelism as a program has it: a model over sequences that are sharded, in order and in
 * zigzag order, with replicated or fully sharded parameters, alone and beside tensor parallelism.
 * Loss and gradients are those of whole sequences.
 */
#include "models.h"

#include "sherd/ops_layers.h"
#include "sherd/parallel.h"

static const char *const names[] = {"tok", "norm", "attn.wq", "attn.wv", "head"};

enum { ITEMS = 2, TOKENS = 11, WORDS = 7, WIDTH = 8, HEADS = 2 };

static void model_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_module_call(sherd_module_find(self, "tok"), in->value[0]);

    x = sherd_add(x, sherd_module_call(sherd_module_find(self, "attn"),
                                       sherd_module_call(sherd_module_find(self, "norm"), x)));
    out->count = 1;
    out->value[0] = sherd_module_call(sherd_module_find(self, "head"), x);
}

/* `shards`: of the sequence, in zigzag order; 0 = in order. */
static sherd_module *make(sherd_world *world, int64_t shards)
{
    const sherd_rotary_options turn = {0};
    const sherd_attention_options how = {.causal = true, .zigzag = shards};
    sherd_layer_options o = {.dtype = SHERD_F64};
    sherd_module *m = container(world, model_forward, NULL), *child = NULL;

    o.name = "tok";
    CHECK_OK(sherd_embedding_create(&child, world, WORDS, WIDTH, &o));
    CHECK_OK(sherd_module_add(m, "tok", child));
    o.name = "norm";
    CHECK_OK(sherd_rms_norm_create(&child, world, WIDTH, 0, &o));
    CHECK_OK(sherd_module_add(m, "norm", child));
    o.name = "attn";
    o.rotary = &turn;
    CHECK_OK(sherd_attention_create(&child, world, WIDTH, HEADS, &how, &o));
    CHECK_OK(sherd_module_add(m, "attn", child));
    o.name = "head";
    CHECK_OK(sherd_linear_create(&child, world, WIDTH, WORDS, &o));
    CHECK_OK(sherd_module_add(m, "head", child));
    return m;
}

/* Numbers of tokens, the same on all ranks. */
static sherd_tensor *tokens(sherd_world *world, int step)
{
    const int64_t shape[] = {ITEMS, TOKENS};
    int32_t data[ITEMS * TOKENS];

    for (int i = 0; i < ITEMS * TOKENS; i++)
        data[i] = (i * i + step * i + step) % WORDS;
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, 2, data));
}

static sherd_tensor *loss_of(sherd_module *m, sherd_tensor *x, sherd_tensor *y)
{
    sherd_tensor *loss = sherd_cross_entropy(sherd_module_call(m, x), y);

    sherd_backward(loss);
    return loss;
}

static sherd_tensor *weight_of(sherd_module *m, const char *path)
{
    return sherd_module_parameter(sherd_module_find(m, path), "weight");
}

static double difference(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *x = sherd_full(a), *y = sherd_full(b);
    const double *p = sherd_tensor_read(x), *q = sherd_tensor_read(y);
    double most = p && q ? 0 : 1e9;

    for (int64_t i = 0; p && q && i < sherd_tensor_count(x); i++)
        most = fmax(most, fabs(p[i] - q[i]));
    return most;
}

static void a_sequence_in_parts_trains_as_a_whole(sherd_world *world)
{
    int64_t n = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &n, (const char *const[]){"cp"}, NULL));
    for (int way = 0; way < 4; way++) { /* in order, in zigzag order; and fully sharded */
        int64_t shards = way % 2 ? n : 0;
        sherd_scope_begin(world);
        sherd_module *whole = make(world, 0), *parts = make(world, shards);
        sherd_tensor *x = tokens(world, 1), *y = tokens(world, 2);
        double want = sherd_item(loss_of(whole, x, y));
        CHECK_OK(way < 2 ? sherd_parallelize(parts, mesh, "cp", NULL, 0)
                         : sherd_fully_shard(parts, mesh, "cp", NULL));
        if (shards) {
            x = sherd_zigzag(x, 1, shards);
            y = sherd_zigzag(y, 1, shards);
        }
        x = sherd_distribute_as(x, mesh, "S(1)", -1);
        y = sherd_distribute_as(y, mesh, "S(1)", -1);
        CHECK_NEAR(sherd_item(loss_of(parts, x, y)), want, 1e-13);
        for (int i = 0; i < LEN(names); i++)
            CHECK_NEAR(difference(sherd_grad(weight_of(parts, names[i])),
                                  sherd_grad(weight_of(whole, names[i]))),
                       0, 1e-13);
        sherd_module_destroy(whole);
        sherd_module_destroy(parts);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "way %d: %s\n", way, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* Beside tensor parallelism, between whose products the sequence is cut further, and data
 * parallelism with sharded parameters. */
static void other_axes_go_with_it(sherd_world *world)
{
    const int64_t extent[] = {sherd_world_ranks(world) / 4, 2, 2};
    sherd_style heads = sherd_colwise(), out = sherd_rowwise(), tok = sherd_rowwise();
    sherd_style head = sherd_colwise();
    const sherd_mesh *mesh = NULL;

    CHECK_OK(
        sherd_mesh_create(&mesh, world, 3, extent, (const char *const[]){"dp", "cp", "tp"}, NULL));
    heads.granule = out.granule = WIDTH / HEADS;
    tok.output = out.output = heads.input = head.input = sherd_shard(1);
    const sherd_parallel_entry plan[] = {{"tok", tok},
                                         {"norm", sherd_sequence_parallel()},
                                         {"attn.w[qkv]", heads},
                                         {"attn.wo", out},
                                         {"head", head}};
    sherd_module *whole = make(world, 0), *parts = make(world, 2);
    sherd_tensor *x = tokens(world, 1), *y = tokens(world, 2);
    double want = sherd_item(loss_of(whole, x, y));
    CHECK_OK(sherd_parallelize(parts, mesh, "tp", plan, LEN(plan)));
    CHECK_OK(sherd_fully_shard(parts, mesh, "dp", NULL));
    CHECK_OK(sherd_fully_shard(parts, mesh, "cp", NULL));
    x = sherd_distribute_as(sherd_zigzag(x, 1, 2), mesh, "S(0)S(1)R", -1);
    y = sherd_distribute_as(sherd_zigzag(y, 1, 2), mesh, "S(0)S(1)R", -1);
    CHECK_NEAR(sherd_item(loss_of(parts, x, y)), want, 1e-13);
    for (int i = 0; i < LEN(names); i++)
        CHECK_NEAR(difference(sherd_grad(weight_of(parts, names[i])),
                              sherd_grad(weight_of(whole, names[i]))),
                   0, 1e-13);
    sherd_module_destroy(whole);
    sherd_module_destroy(parts);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

static const check_test tests[] = {
    {TEST(other_axes_go_with_it), {4, 8}},
    {TEST(a_sequence_in_parts_trains_as_a_whole), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
