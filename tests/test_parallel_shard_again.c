/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpointed modules with sharded parameters: what is gathered when they are run again serves
 * their backward too, and gradients are those of the whole model.
 */
#include "models.h"
#include "sherd/ops_elements.h"

enum { WIDTH = 8, DEEP = 3, ROWS = 6 };

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static sherd_module *stack(sherd_world *world)
{
    static const char *const names[] = {"0", "1", "2"};
    sherd_module *root = container(world, stack_forward, NULL);

    for (int i = 0; i < DEEP; i++) {
        sherd_module *b = add_layer(root, names[i], container(world, stack_forward, NULL));
        linear_layer(b, "up", SHERD_F64, WIDTH, WIDTH, i);
        linear_layer(b, "down", SHERD_F64, WIDTH, WIDTH, i + 2);
    }
    return root;
}

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                                  i % 2 ? "bias" : "weight");
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh)
{
    sherd_tensor *x = wave(sherd_module_world(m), SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3, 1, 0);

    return sherd_mean(sherd_square(sherd_module_call(m, mesh ? spread(x, mesh, "S(0)") : x)));
}

static int64_t gathers(sherd_world *world, sherd_comm_direction direction)
{
    return sherd_comm_calls(world,
                            &(sherd_comm_filter){.op = "all_gather", .direction = direction});
}

static void backward_retained(sherd_tensor *t)
{
    sherd_backward_with(&t, NULL, 1, &(sherd_backward_options){.retain = true});
}

/* Of blocks that are units; of one unit around them all; of layers that are run again alone. */
static void a_checkpointed_unit_is_gathered_twice(sherd_world *world)
{
    static const struct {
        const char *unit;
        bool layers;
        int forward, backward;
    } cases[] = {{"*", false, DEEP, DEEP},
                 {"", false, 1, 2 * DEEP},
                 {"*", true, DEEP, 2 * DEEP},
                 {NULL, true, 2 * DEEP, 2 * DEEP}};
    const sherd_mesh *mesh = line(world);

    for (int c = 0; c < LEN(cases); c++) {
        sherd_module *m = stack(world);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = cases[c].unit}));
        for (int i = 0; i < DEEP * 2; i++) {
            sherd_module *b = sherd_module_child(m, i / 2);
            sherd_module_checkpoint(cases[c].layers ? sherd_module_child(b, i % 2) : b, true);
        }
        for (int step = 0; step < 2; step++) {
            sherd_scope_begin(world);
            CHECK_OK(sherd_world_check(world));
            sherd_comm_reset(world);
            sherd_tensor *l = loss_of(m, mesh);
            CHECK_EQ(gathers(world, SHERD_COMM_FORWARD), cases[c].forward);
            sherd_backward(l);
            CHECK_EQ(gathers(world, SHERD_COMM_BACKWARD), cases[c].backward);
            sherd_scope_end(world);
        }
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What was kept goes as it is used: at most a block, and the gradients, are there at once. */
static void and_kept_no_longer_than_needed(sherd_world *world)
{
    const int64_t block = 2 * WIDTH * (WIDTH + 1) * 8, some = DEEP * 12 * ROWS * WIDTH * 8;
    const sherd_mesh *mesh = line(world);
    sherd_module *m = stack(world);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    for (int i = 0; i < DEEP; i++)
        sherd_module_checkpoint(sherd_module_child(m, i), true);
    int64_t before = sherd_world_memory(world).live_bytes;
    sherd_scope_begin(world);
    sherd_tensor *l = loss_of(m, mesh);
    sherd_world_memory_reset(world);
    backward_retained(l);
    CHECK(sherd_world_memory(world).peak_bytes - before <= 2 * block + 2 * DEEP * block + some);
    int64_t live = sherd_world_memory(world).live_bytes;
    sherd_backward(l);
    CHECK(sherd_world_memory(world).live_bytes <= live);
    sherd_scope_end(world);
    for (int i = 0; i < 4 * DEEP; i++)
        sherd_clear_grad(parameter(m, i));
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- parts of it ---------------------------------------------------------------------------- */

/* A sum with a gain of its own, and a product, as two outputs. */
static void two_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[0] = sherd_add(in->value[0], sherd_module_parameter(self, "gain"));
    out->value[1] = sherd_module_call(sherd_module_child(self, 0), in->value[0]);
    out->count = 2;
}

static sherd_module *two_outputs(sherd_world *world)
{
    sherd_module *m = container(world, two_forward, NULL);
    sherd_tensor *gain = wave(world, SHERD_F64, 1, SHAPE(WIDTH), 2, 1, 0);

    CHECK_OK(sherd_module_add_parameter(m, "gain", sherd_require_grad(gain, true)));
    linear_layer(m, "net", SHERD_F64, WIDTH, WIDTH, 1);
    sherd_module_checkpoint(m, true);
    return m;
}

/*
 * One output's backward has run, and needed nothing again, when the other's runs all again; or what
 * the module itself has is frozen.
 */
static void outputs_may_come_one_by_one(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line(world);
    int64_t n = 0;

    for (int how = 0; how < 5; how++) {
        sherd_scope_begin(world);
        sherd_module *m = two_outputs(world);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3, 1, 0);
        if (how > 0) {
            CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                                       &(sherd_shard_options){.unit = how % 2 ? "" : NULL}));
            x = spread(x, mesh, "S(0)");
        }
        sherd_require_grad(sherd_module_parameter(m, "gain"), how < 3);
        sherd_args in = {.count = 1, .value = {sherd_require_grad(x, true)}}, out;
        sherd_module_run(m, &in, &out);
        backward_retained(sherd_sum(out.value[0]));
        sherd_backward(sherd_sum(sherd_square(out.value[1])));
        sherd_tensor *g = sherd_grad(sherd_module_parameter(sherd_module_child(m, 0), "weight"));
        if (how > 0)
            CHECK_NEAR(distance_to(g, expected, n), 0, 1e-10);
        else
            n = whole(g, expected);
        CHECK_EQ(sherd_grad(sherd_module_parameter(m, "gain")) != NULL, how < 3);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
}

static const check_test tests[] = {
    {TEST(a_checkpointed_unit_is_gathered_twice), {2, 3}},
    {TEST(and_kept_no_longer_than_needed), {1, 2, 3}},
    {TEST(outputs_may_come_one_by_one), {1, 2, 3}},
};
CHECK_MAIN(tests)
