/* SPDX-License-Identifier: Apache-2.0 */
/* How often modules of a model in tensor parallel communicate, as a test of a user's would assert
 * it. */
#include "models.h"
#include "sherd/optimizer.h"

enum { BLOCKS = 2, HEADS = 4, HEAD = 4, WIDTH = HEADS * HEAD, HIDDEN = 24, BATCH = 2, LENGTH = 8 };

static void blocks_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < BLOCKS; i++)
        x = sherd_module_call(sherd_module_child(sherd_module_find(self, "blocks"), i), x);
    out->value[0] = x;
    out->count = 1;
}

/* blocks.0, blocks.1, ... */
static sherd_module *model(sherd_world *world, block_size *size)
{
    sherd_module *m = container(world, blocks_forward, NULL);
    sherd_module *blocks = add_layer(m, "blocks", container(world, NULL, NULL));
    char name[8];

    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "%d", i);
        add_layer(blocks, name, block(world, SHERD_F32, size, HIDDEN));
    }
    return m;
}

static int64_t calls(sherd_world *world, const char *op, const char *module,
                     sherd_comm_direction direction)
{
    const sherd_comm_filter filter = {op, NULL, module, direction};
    return sherd_comm_calls(world, &filter);
}

static void run(sherd_world *world, sherd_module *m, const sherd_mesh *mesh, const char *lies)
{
    sherd_tensor *x = wave(world, SHERD_F32, 3, SHAPE(BATCH, LENGTH, WIDTH), 17, 1, 0);
    sherd_tensor *target = wave(world, SHERD_F32, 3, SHAPE(BATCH, LENGTH, WIDTH), 23, 1, 0);

    x = sherd_require_grad(spread(x, mesh, lies), true);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_module_call(m, x);
    CHECK_EQ(calls(world, NULL, NULL, SHERD_COMM_BACKWARD), 0);
    sherd_backward(squared_error(y, spread(target, mesh, lies)));
    sherd_grad(x);
}

static void an_mlp_needs_one_all_reduce_each_way(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    block_size size = {HEADS, HEAD, 0};
    sherd_module *m = model(world, &size);
    int once = sherd_world_ranks(world) > 1;

    CHECK_OK(parallelize_block(m, mesh, "blocks.*.", &size, false));
    run(world, m, mesh, "R");
    static const char *const parts[] = {"blocks.0.mlp", "blocks.1.mlp", "blocks.0.attn",
                                        "blocks.1.attn"};
    for (int i = 0; i < LEN(parts); i++)
        for (int back = 0; back < 2; back++) {
            sherd_comm_direction way = back ? SHERD_COMM_BACKWARD : SHERD_COMM_FORWARD;
            CHECK_EQ(calls(world, "all_reduce", parts[i], way), once);
            CHECK_EQ(calls(world, NULL, parts[i], way), once);
        }
    CHECK_EQ(calls(world, NULL, "blocks.*.mlp", SHERD_COMM_BOTH), 2 * BLOCKS * once);
    CHECK_EQ(calls(world, NULL, "blocks.1", SHERD_COMM_FORWARD), 2 * once);
    CHECK_EQ(calls(world, NULL, "*.*.mlp.w2", SHERD_COMM_FORWARD), BLOCKS * once);
    CHECK_EQ(calls(world, NULL, "blocks.*.ln?", SHERD_COMM_FORWARD), 0);
    CHECK_EQ(calls(world, NULL, "", SHERD_COMM_FORWARD), 2 * BLOCKS * once);
    CHECK_EQ(sherd_comm_calls(world, NULL), calls_logged(world));
    sherd_module_destroy(m);
    CHECK_EQ(calls(world, NULL, "blocks.0.mlp", SHERD_COMM_FORWARD), once);
    CHECK_OK(sherd_world_check(world));
}

/* A gather before and a scatter behind; in backward the same, and what was gathered is gathered
 * again. */
static void split_sequences_are_gathered_and_scattered(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    block_size size = {HEADS, HEAD, 0};
    sherd_module *m = model(world, &size);
    int once = sherd_world_ranks(world) > 1;

    CHECK_OK(parallelize_block(m, mesh, "blocks.*.", &size, true));
    run(world, m, mesh, "S(1)");
    CHECK_EQ(calls(world, "all_gather", "blocks.*.mlp", SHERD_COMM_FORWARD), BLOCKS * once);
    CHECK_EQ(calls(world, "reduce_scatter", "blocks.*.mlp", SHERD_COMM_FORWARD), BLOCKS * once);
    CHECK_EQ(calls(world, NULL, "blocks.*.mlp", SHERD_COMM_FORWARD), 2 * BLOCKS * once);
    CHECK_EQ(calls(world, "reduce_scatter", "blocks.*.mlp", SHERD_COMM_BACKWARD), BLOCKS * once);
    CHECK_EQ(calls(world, "all_gather", "blocks.*.mlp", SHERD_COMM_BACKWARD), 2 * BLOCKS * once);
    CHECK_EQ(calls(world, "all_reduce", "", SHERD_COMM_BOTH), 0);
    CHECK_EQ(sherd_comm_calls(world, NULL), calls_logged(world));
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* What an optimizer settles belongs to no module, and to backward. */
static void data_parallel_gradients_are_settled_in_one_call(sherd_world *world)
{
    char text[32];
    int ranks = sherd_world_ranks(world);
    snprintf(text, sizeof text, "dp=2,tp=%d", ranks / 2);
    const sherd_mesh *mesh = mesh_of(world, text);
    block_size size = {HEADS, HEAD, 0};
    sherd_module *m = model(world, &size);
    sherd_optimizer *o = NULL;

    CHECK_OK(parallelize_block(m, mesh, "blocks.*.", &size, false));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    run(world, m, mesh, "S(0)R");
    int64_t in_backward =
        sherd_comm_calls(world, &(sherd_comm_filter){NULL, "dp", NULL, SHERD_COMM_BACKWARD});
    sherd_optimizer_settle(o);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){NULL, "dp", NULL, SHERD_COMM_BACKWARD}),
             in_backward + 1);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){NULL, "dp", "", SHERD_COMM_FORWARD}), 0);
    CHECK_EQ(sherd_comm_calls(world,
                              &(sherd_comm_filter){NULL, "tp", "blocks.*.mlp", SHERD_COMM_FORWARD}),
             ranks > 2 ? BLOCKS : 0);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(an_mlp_needs_one_all_reduce_each_way), {1, 2, 3, 4, 8}},
    {TEST(split_sequences_are_gathered_and_scattered), {1, 2, 3, 4, 8}},
    {TEST(data_parallel_gradients_are_settled_in_one_call), {2, 4, 8}},
};
CHECK_MAIN(tests)
