/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathered parameters that stay from call to call: gathered once, and anew when they were written;
 * the same numbers, and no memory that grows.
 */
#include "models.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"

enum { WIDTH = 8, BLOCKS = 2, ROWS = 6, PARAMETERS = 4 * BLOCKS };

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static sherd_module *blocks(sherd_world *world)
{
    static const char *const names[] = {"0", "1"};
    sherd_module *m = container(world, stack_forward, NULL);

    for (int i = 0; i < BLOCKS; i++)
        add_layer(m, names[i], mlp(world, SHERD_F32, WIDTH, WIDTH, WIDTH));
    return m;
}

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                                  i % 2 ? "bias" : "weight");
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh, int k)
{
    sherd_tensor *x = wave(sherd_module_world(m), SHERD_F32, 2, SHAPE(ROWS, WIDTH), 3 + k, 1, 0);

    x = mesh ? spread(x, mesh, sherd_mesh_axes(mesh) == 2 ? "S(0)S(0)" : "S(0)") : x;
    return sherd_mean(sherd_square(sherd_cast(sherd_module_call(m, x), SHERD_F32)));
}

static int64_t gathers(sherd_world *world)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = "all_gather"});
}

/* Gathers of one forward and backward. */
static int64_t gathers_of_step(sherd_module *m, const sherd_mesh *mesh)
{
    sherd_world *world = sherd_module_world(m);

    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_scope_begin(world);
    sherd_backward(loss_of(m, mesh, 0));
    sherd_scope_end(world);
    return gathers(world);
}

static void parameters_are_gathered_once(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int how = 0; how < 4; how++) {
        sherd_module *m = blocks(world);
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                                   &(sherd_shard_options){.unit = "*", .no_prefetch = how & 1}));
        for (int i = 0; i < BLOCKS; i++)
            sherd_module_checkpoint(sherd_module_child(m, i), how & 2);
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        CHECK_EQ(gathers_of_step(m, mesh), 2 * BLOCKS);
        int64_t live = sherd_world_memory(world).live_bytes;
        for (int step = 0; step < 2; step++) {
            sherd_module_hold_gathered(m, true);
            CHECK_EQ(gathers_of_step(m, mesh), BLOCKS);
            int64_t held = sherd_world_memory(world).live_bytes;
            CHECK(held - live >= BLOCKS * 2 * WIDTH * WIDTH * 4);
            for (int again = 0; again < 3; again++)
                CHECK_EQ(gathers_of_step(m, mesh), 0);
            CHECK_EQ(sherd_world_memory(world).live_bytes, held);
            sherd_optimizer_step(o, 0.1, 1);
            CHECK_EQ(gathers_of_step(m, mesh), BLOCKS);
            CHECK_EQ(gathers_of_step(m, mesh), 0);
            sherd_module_hold_gathered(m, false);
            CHECK_EQ(sherd_world_memory(world).live_bytes, live);
        }
        CHECK_EQ(gathers_of_step(m, mesh), 2 * BLOCKS);
        sherd_module_hold_gathered(m, true);
        CHECK_EQ(gathers_of_step(m, mesh), BLOCKS);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Also if only a part of the model holds its own, and without a record. */
static void a_part_may_hold(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = blocks(world);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    sherd_module_hold_gathered(sherd_module_child(m, 0), true);
    sherd_set_recording(world, false);
    for (int step = 0; step < 3; step++) {
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        CHECK(!sherd_tensor_failed(loss_of(m, mesh, step)));
        CHECK_EQ(gathers(world), step == 0 ? 2 : 1);
    }
    sherd_set_recording(world, true);
    sherd_module_hold_gathered(NULL, true);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Gathers of two forwards in a row. */
static int64_t gathers_of_forwards(sherd_module *m, const sherd_mesh *mesh)
{
    sherd_world *world = sherd_module_world(m);

    for (int k = 0; k < 2; k++) {
        CHECK_OK(sherd_world_check(world));
        if (k == 1)
            sherd_comm_reset(world);
        sherd_scope_begin(world);
        CHECK(!sherd_tensor_failed(loss_of(m, mesh, k)));
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0); /* what is held is not what was recorded */
    }
    return gathers(world);
}

/* What a call for one axis holds is gathered from what the call for the other holds. */
static void parameters_are_gathered_once_over_each_axis(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    for (int how = 0; how < 4; how++) {
        const sherd_shard_options o = {.unit = how & 1 ? "*" : NULL};
        sherd_module *m = blocks(world);
        sherd_optimizer *step = NULL;
        int calls = 2 * (how & 1 ? BLOCKS : 2 * BLOCKS);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", &o));
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", &o));
        for (int i = 0; i < BLOCKS; i++)
            sherd_module_checkpoint(sherd_module_child(m, i), how & 2);
        CHECK_OK(sherd_sgd_create(&step, m, NULL));
        CHECK_EQ(gathers_of_forwards(m, mesh), calls); /* none ahead that is not used */
        int64_t live = sherd_world_memory(world).live_bytes;
        sherd_module_hold_gathered(m, true);
        CHECK_EQ(gathers_of_step(m, mesh), calls);
        for (int again = 0; again < 2; again++)
            CHECK_EQ(gathers_of_step(m, mesh), 0);
        CHECK_EQ(gathers_of_forwards(m, mesh), 0);
        sherd_optimizer_step(step, 0.1, 1);
        CHECK_EQ(gathers_of_step(m, mesh), calls);
        CHECK_EQ(gathers_of_step(m, mesh), 0);
        sherd_module_hold_gathered(m, false);
        sherd_optimizer_clear(step);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
        sherd_optimizer_destroy(step);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Two steps of three microbatches. */
static void train(sherd_module *m, const sherd_mesh *mesh, bool waits)
{
    sherd_world *world = sherd_module_world(m);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    for (int k = 0; k < 6; k++) {
        sherd_scope_begin(world);
        sherd_set_gradient_sync(world, !waits || k % 3 == 2);
        sherd_backward(loss_of(m, mesh, k));
        if (k % 3 == 2) {
            sherd_optimizer_step(o, 0.2, 1);
            sherd_optimizer_clear(o);
        }
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
}

static void compare_steps(sherd_world *world, const sherd_mesh *mesh)
{
    static _Thread_local double expected[PARAMETERS][MOST];
    int64_t n[PARAMETERS];

    for (int how = -1; how < 24; how++) {
        static const char *const units[] = {NULL, "*", ""};
        const sherd_shard_options o = {.unit = units[(how + 3) % 3],
                                       .param_dtype = how % 2 ? SHERD_DTYPE_NONE : SHERD_BF16};
        sherd_scope_begin(world);
        sherd_module *m = blocks(world);
        for (int a = 0; a < sherd_mesh_axes(mesh) && how >= 0; a++)
            CHECK_OK(sherd_fully_shard(m, mesh, sherd_mesh_axis_name(mesh, a), &o));
        for (int i = 0; i < BLOCKS; i++)
            sherd_module_checkpoint(sherd_module_child(m, i), how & 4);
        sherd_module_hold_gathered(how % 5 == 1 ? sherd_module_child(m, 1) : m, how >= 0);
        train(m, how < 0 ? NULL : mesh, how & 8);
        for (int i = 0; i < PARAMETERS; i++)
            if (how < 0)
                n[i] = whole(parameter(m, i), expected[i]);
            else
                CHECK_NEAR(distance_to(parameter(m, i), expected[i], n[i]), 0,
                           how % 2 ? 1e-6 : 1e-2);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
}

static void steps_are_those_of_the_whole_model(sherd_world *world)
{
    compare_steps(world, line(world));
}

static void over_two_axes_too(sherd_world *world)
{
    compare_steps(world, mesh_of(world, "dp=2,tp=2"));
}

/* ---- bad days ------------------------------------------------------------------------------- */

static void ranks_of_which_one_holds_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = blocks(world);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    sherd_module_hold_gathered(m, sherd_world_rank(world) == 1);
    CHECK_EQ(gathers_of_step(m, mesh) > 0, true);
    sherd_backward(loss_of(m, mesh, 1));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    sherd_module_hold_gathered(m, true);
    for (int i = 0; i < PARAMETERS; i++)
        sherd_clear_grad(parameter(m, i));
    CHECK(gathers_of_step(m, mesh) > 0);
    CHECK_EQ(gathers_of_step(m, mesh), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_status status = SHERD_ENOMEM;
    sherd_module *m = blocks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F32, 2, SHAPE(ROWS, WIDTH), 3, 1, 0), mesh, "S(0)");

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    CHECK_OK(sherd_world_check(world));
    int64_t live = sherd_world_memory(world).live_bytes;
    for (int n = 1; status && n < 900; n++) {
        sherd_module_hold_gathered(m, true);
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 1 ? n : 0);
        for (int k = 0; k < 2; k++)
            (void)sherd_module_call(m, x);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        (void)sherd_module_call(m, x); /* some ranks hold what others do not */
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
        sherd_module_hold_gathered(m, false);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(parameters_are_gathered_once), {2, 3}},
    {TEST(a_part_may_hold), {2}},
    {TEST(parameters_are_gathered_once_over_each_axis), {4}},
    {TEST(steps_are_those_of_the_whole_model), {1, 2, 3}},
    {TEST(over_two_axes_too), {4}},
    {TEST(ranks_of_which_one_holds_differ), {2, 3}},
    {TEST(no_memory_fails_on_all), {2}},
};
CHECK_MAIN(tests)
