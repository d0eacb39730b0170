/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that are sharded over two axes, in the same units or in others, run again in backward
 * or not: gradients are those of the whole model, and nothing is gathered that is whole already.
 */
#include "models.h"
#include "sherd/ops_elements.h"

enum { WIDTH = 6, LAYERS = 2, ROWS = 8, PARAMETERS = 2 * LAYERS };

/* What units are, and which modules are checkpointed (MODEL: the block as well). */
static const char *const units[] = {NULL, "block", "block.*", ""};
typedef enum part { NOTHING, BLOCK, LAYER, MODEL, PARTS } part;

static sherd_module *model_of(sherd_world *world, part again)
{
    static const char *const names[] = {"0", "1"};
    sherd_module *m = container(world, stack_forward, NULL);
    sherd_module *block = add_layer(m, "block", container(world, stack_forward, NULL));

    for (int i = 0; i < LAYERS; i++)
        linear_layer(block, names[i], SHERD_F64, WIDTH, WIDTH, 2 * i + 1);
    sherd_module_checkpoint(m, again == MODEL);
    sherd_module_checkpoint(block, again == BLOCK || again == MODEL);
    sherd_module_checkpoint(sherd_module_child(block, 1), again == LAYER);
    return m;
}

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(sherd_module_child(m, 0), i / 2),
                                  i % 2 ? "bias" : "weight");
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh, int k)
{
    sherd_tensor *x = wave(sherd_module_world(m), SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3 + k, 1, 0);

    x = mesh ? spread(x, mesh, "S(0)S(0)") : x;
    return sherd_mean(sherd_square(sherd_module_call(m, x)));
}

/* Two steps, as the second one gathers ahead. */
static void backward_twice(sherd_module *m, const sherd_mesh *mesh)
{
    for (int step = 0; step < 2; step++) {
        sherd_scope_begin(sherd_module_world(m));
        sherd_backward(loss_of(m, mesh, step));
        sherd_scope_end(sherd_module_world(m));
    }
}

static void shard_both(sherd_module *m, const sherd_mesh *mesh, int dp, int tp, bool keep)
{
    CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                               &(sherd_shard_options){.unit = units[dp], .keep_gathered = keep}));
    CHECK_OK(sherd_fully_shard(m, mesh, "tp",
                               &(sherd_shard_options){.unit = units[tp], .keep_gathered = keep}));
}

static const sherd_mesh *grid(sherd_world *world, bool flat)
{
    char text[24];
    int ranks = sherd_world_ranks(world), tp = ranks > 2 && !flat ? 2 : 1;

    snprintf(text, sizeof text, "dp=%d,tp=%d", ranks / tp, tp);
    return mesh_of(world, text);
}

static void gradients_are_those_of_the_whole_model(sherd_world *world)
{
    static _Thread_local double expected[PARAMETERS][MOST];
    int64_t n[PARAMETERS], live = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    sherd_module *m = model_of(world, NOTHING);
    backward_twice(m, NULL);
    for (int i = 0; i < PARAMETERS; i++)
        n[i] = whole(sherd_grad(parameter(m, i)), expected[i]);
    sherd_module_destroy(m);
    sherd_scope_end(world);
    for (int how = 0; how < LEN(units) * LEN(units) * PARTS; how++) {
        sherd_scope_begin(world);
        m = model_of(world, (part)(how % PARTS));
        shard_both(m, grid(world, how % 7 == 0), how / PARTS % LEN(units), how / PARTS / LEN(units),
                   how % 3 == 0);
        backward_twice(m, grid(world, how % 7 == 0));
        for (int i = 0; i < PARAMETERS; i++)
            CHECK_NEAR(distance_to(sherd_grad(parameter(m, i)), expected[i], n[i]), 0, 1e-12);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* A unit gathers over both axes what another one would gather over its own: that does nothing. */
static void what_is_whole_is_not_moved(sherd_world *world)
{
    const sherd_mesh *mesh = grid(world, false);

    for (int tp = 0; tp < LEN(units); tp++) {
        sherd_module *m = model_of(world, NOTHING);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = ""}));
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", &(sherd_shard_options){.unit = units[tp]}));
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *l = loss_of(m, mesh, 0);
        CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = "block"}), 0);
        CHECK(sherd_comm_calls(world, NULL) <= 2);
        CHECK(!sherd_tensor_failed(l));
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static int64_t gathers(sherd_world *world, const char *axes, sherd_comm_direction direction)
{
    return sherd_comm_calls(
        world, &(sherd_comm_filter){.op = "all_gather", .axes = axes, .direction = direction});
}

/*
 * What is gathered over `far` is kept, over `near` it is gathered again: between forward and
 * backward a parameter lies on the ranks of `near` alone (PyTorch: reshard_after_forward=2).
 */
static void backward_may_gather_on_fewer_ranks(sherd_world *world)
{
    const int64_t half = WIDTH * WIDTH * 8 / 2; /* of the one weight that backward needs */
    const sherd_mesh *mesh = mesh_of(world, "far=2,near=2");
    int64_t live[2];

    for (int keep = 0; keep < 2; keep++) {
        sherd_module *m = model_of(world, NOTHING);
        CHECK_OK(sherd_fully_shard(m, mesh, "near", &(sherd_shard_options){.unit = "block"}));
        CHECK_OK(sherd_fully_shard(m, mesh, "far",
                                   &(sherd_shard_options){.unit = "block", .keep_gathered = keep}));
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        int64_t before = sherd_world_memory(world).live_bytes;
        sherd_tensor *l = loss_of(m, mesh, 0);
        live[keep] = sherd_world_memory(world).live_bytes - before;
        CHECK_EQ(gathers(world, "far", SHERD_COMM_FORWARD), 1);
        CHECK_EQ(gathers(world, "near", SHERD_COMM_FORWARD), 1);
        sherd_backward(l);
        CHECK_EQ(gathers(world, "far", SHERD_COMM_BACKWARD), !keep);
        CHECK_EQ(gathers(world, "near", SHERD_COMM_BACKWARD), 1);
        sherd_module_destroy(m);
    }
    CHECK(live[1] - live[0] >= half && live[1] - live[0] <= half + 64);
    CHECK_OK(sherd_world_check(world));
}

/* Replicated over one axis, sharded over the other (PyTorch: HSDP). */
static void replicas_of_shards_have_settled_gradients(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "far=2,near=2");
    sherd_module *m = model_of(world, NOTHING);

    CHECK_OK(sherd_fully_shard(m, mesh, "near", &(sherd_shard_options){.unit = "block"}));
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_backward(loss_of(m, mesh, 0));
    CHECK_EQ(gathers(world, "near", 0), 2);
    CHECK_EQ(gathers(world, "far", 0), 0);
    int64_t made = calls_logged(world);
    for (int i = 0; i < PARAMETERS; i++)
        CHECK(sherd_tensor_layout(sherd_grad(parameter(m, i))) ==
              sherd_tensor_layout(parameter(m, i)));
    CHECK_EQ(calls_logged(world), made);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(backward_may_gather_on_fewer_ranks), {4}},
    {TEST(replicas_of_shards_have_settled_gradients), {4}},
    {TEST(gradients_are_those_of_the_whole_model), {1, 2, 4}},
    {TEST(what_is_whole_is_not_moved), {4}},
};
CHECK_MAIN(tests)
