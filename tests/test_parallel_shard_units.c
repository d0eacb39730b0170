/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units: all parameters of a block are gathered in one call and their gradients scattered in one,
 * by a pattern or by calls for each block; with the numbers of the whole model.
 */
#include "shard_units.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"
#include "world/blocks.h"

enum { BLOCKS = 2, HEADS = 2, HEAD = 4, WIDTH = HEADS * HEAD, HIDDEN = 13, ROWS = 6, LENGTH = 3 };

/* Ways to make units: by a pattern, by a call for each block, the whole model, each module. */
typedef enum way { PATTERN, CALLS, WHOLE, MODULES, WAYS } way;

static void shard(sherd_module *m, const sherd_mesh *mesh, way how, bool keep)
{
    const sherd_shard_options whole = {.unit = "", .keep_gathered = keep};
    const sherd_shard_options blocks = {.unit = "*", .keep_gathered = keep};
    const sherd_shard_options modules = {.keep_gathered = keep};

    for (int i = 0; how == CALLS && i < sherd_module_children(m); i++)
        CHECK_OK(sherd_fully_shard(sherd_module_child(m, i), mesh, "dp", &whole));
    CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                               how == PATTERN   ? &blocks
                               : how == MODULES ? &modules
                                                : &whole));
}

static sherd_tensor *input(sherd_world *world, const sherd_mesh *mesh, int k)
{
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(ROWS, LENGTH, WIDTH), 3 + k, 1, 0);

    return mesh ? spread(x, mesh, sherd_mesh_axes(mesh) == 2 ? "S(0)R" : "S(0)") : x;
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh, int k)
{
    return sherd_mean(sherd_square(sherd_module_call(m, input(sherd_module_world(m), mesh, k))));
}

/* Losses of some steps; the second half of each batch waits for the first. */
static void train(sherd_module *m, const sherd_mesh *mesh, double loss[3], bool waits)
{
    sherd_world *world = sherd_module_world(m);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        loss[step] = 0;
        for (int k = 0; k < 2; k++) {
            sherd_set_gradient_sync(world, !waits || k == 1);
            sherd_tensor *l = loss_of(m, mesh, 2 * step + k);
            sherd_backward(l);
            loss[step] += sherd_item(l);
        }
        sherd_optimizer_step(o, 0.05, 1 / fmax(1, sherd_optimizer_grad_norm(o)));
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    CHECK_OK(sherd_world_check(world));
}

static void checkpoint(sherd_module *m, int which)
{
    for (int i = 0; i < BLOCKS; i++) {
        sherd_module *b = sherd_module_child(m, i);
        if (which == 1)
            sherd_module_checkpoint(b, true);
        if (which == 2)
            sherd_module_checkpoint(sherd_module_find(b, "mlp"), true);
    }
}

static void compare_losses(sherd_world *world, const sherd_mesh *mesh)
{
    block_size size = {HEADS, HEAD, 0};
    double alone[3], loss[3];
    sherd_module *m = stack_of(world, SHERD_F64, &size, HIDDEN, BLOCKS);

    train(m, NULL, alone, false);
    sherd_module_destroy(m);
    CHECK(alone[2] != alone[0]);
    for (int how = 0; how < WAYS * 3; how++) {
        m = stack_of(world, SHERD_F64, &size, HIDDEN, BLOCKS);
        if (sherd_mesh_axes(mesh) == 2)
            CHECK_OK(parallelize_block(m, mesh, "*.", &size, false));
        checkpoint(m, how / WAYS);
        shard(m, mesh, (way)(how % WAYS), how % 5 == 0);
        train(m, mesh, loss, (how + how / WAYS) % 2);
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(loss[i], alone[i], 1e-10 * alone[i]);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void losses_are_those_of_the_whole_model(sherd_world *world)
{
    compare_losses(world, line(world));
}

static void and_beside_tensor_parallelism(sherd_world *world)
{
    compare_losses(world, mesh_of(world, "dp=2,tp=2"));
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void a_block_makes_one_call_each_way(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    block_size size = {HEADS, HEAD, 0};

    for (int how = 0; how < MODULES; how++)
        for (int keep = 0; keep < 2; keep++) {
            sherd_module *m = stack_of(world, SHERD_F64, &size, HIDDEN, BLOCKS);
            const int units = how == WHOLE ? 1 : BLOCKS;
            shard(m, mesh, (way)how, keep);
            for (int step = 0; step < 3; step++) {
                sherd_scope_begin(world);
                CHECK_OK(sherd_world_check(world));
                sherd_comm_reset(world);
                sherd_tensor *l = loss_of(m, mesh, step);
                CHECK_EQ(calls(world, "all_gather", SHERD_COMM_FORWARD), units);
                sherd_set_gradient_sync(world, step == 2);
                sherd_backward(l);
                CHECK_EQ(calls(world, "all_gather", SHERD_COMM_BACKWARD), keep ? 0 : units);
                CHECK_EQ(calls(world, "reduce_scatter", 0), step == 2 ? units : 0);
                sherd_scope_end(world);
            }
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Two units at most in forward, none after it; in backward one, its gradients, and the parts. */
static void two_units_are_in_memory_at_once(sherd_world *world)
{
    const int64_t unit = 2 * WIDE * (WIDE + 1) * 8, some = 8 * WIDE * 8 * 8 * DEEP;
    const sherd_mesh *mesh = line(world);
    sherd_module *m = deep_stack(world);
    sherd_tensor *x = few_rows(world, mesh);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    int64_t before = sherd_world_memory(world).live_bytes;
    for (int step = 0; step < 2; step++) {
        sherd_scope_begin(world);
        sherd_world_memory_reset(world);
        sherd_tensor *l = sherd_sum(sherd_module_call(m, x));
        CHECK(sherd_world_memory(world).peak_bytes - before <= 2 * unit + some);
        CHECK(sherd_world_memory(world).live_bytes - before <= some);
        sherd_world_memory_reset(world);
        sherd_backward(l);
        int64_t parts = DEEP * unit / sherd_world_ranks(world) + unit;
        CHECK(sherd_world_memory(world).peak_bytes - before <= parts + 2 * unit + some);
        sherd_scope_end(world);
        for (int i = 0; i < DEEP * 4; i++)
            sherd_clear_grad(
                sherd_module_parameter(sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                                       i % 2 ? "bias" : "weight"));
        CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void look(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)in, (void)out;
    *(int64_t *)payload = sherd_world_memory(sherd_module_world(self)).live_bytes;
}

/* Also if each unit has had a call of its own. */
static void the_next_unit_is_gathered_ahead(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = few_rows(world, mesh);

    for (int how = PATTERN; how <= CALLS; how++) {
        sherd_module *m = deep_stack(world);
        int64_t live = 0, seen[2];
        shard(m, mesh, (way)how, false);
        CHECK_OK(sherd_module_hook_after(NULL, sherd_module_child(m, 0), look,
                                         &(sherd_hook_options){.payload = &live}));
        for (int pass = 0; pass < 2; pass++) {
            sherd_scope_begin(world);
            int64_t before = sherd_world_memory(world).live_bytes;
            sherd_set_recording(world, false);
            sherd_module_call(m, x);
            sherd_set_recording(world, true);
            seen[pass] = live - before;
            sherd_scope_end(world);
        }
        CHECK_EQ(seen[1] - seen[0], 2 * WIDE * (WIDE + 1) * 8);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What has been begun, or is under way, when a gradient has come to the end of block 1 of 4. */
typedef struct glance {
    sherd_module *model;
    int64_t gathers;
    bool reduces; /* gradients of block 2 are not complete here */
} glance;

static sherd_tensor *glance_at(sherd_tensor *grad, void *payload)
{
    glance *g = payload;

    (void)grad;
    sherd_module *up = sherd_module_child(sherd_module_child(g->model, 2), 0);
    const sherd_tensor *sum = sherd_module_parameter(up, "weight")->autograd.grad;
    g->gathers = calls(sherd_module_world(g->model), "all_gather", SHERD_COMM_BACKWARD);
    g->reduces = sum && sum->storage->block && sum->storage->block->filling > 0;
    return NULL;
}

static void hook_output(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)self, (void)in;
    CHECK_OK(sherd_tensor_hook(NULL, out->value[0], glance_at, payload, NULL));
}

static double on_ranks(sherd_world *world, const sherd_mesh *mesh, bool is)
{
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    const double mine = is;

    return sherd_item(
        sherd_from_local(sherd_from_data(world, SHERD_F64, NULL, 0, &mine), mesh, &sum, NULL));
}

/*
 * Backward of blocks 3 and 2 is done then, and block 1, which comes next, is being gathered. The
 * rank that was there first does not wait for gradients of the others.
 */
static void backward_gathers_ahead(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = few_rows(world, mesh);

    for (int how = 0; how < 4; how++) { /* prefetching, of blocks that are run again, or not */
        bool prefetches = how & 1, again = how & 2;
        sherd_module *m = deep_stack(world);
        glance g = {m, 0, false};
        CHECK_OK(sherd_fully_shard(
            m, mesh, "dp", &(sherd_shard_options){.unit = "*", .no_prefetch = !prefetches}));
        CHECK_OK(sherd_module_hook_after(NULL, sherd_module_child(m, 1), hook_output,
                                         &(sherd_hook_options){.payload = &g}));
        for (int i = 0; i < DEEP; i++)
            sherd_module_checkpoint(sherd_module_child(m, i), again);
        for (int step = 0; step < 3; step++) { /* what is run again is learned in the first */
            bool ahead = prefetches && (!again || step > 0);
            sherd_scope_begin(world);
            CHECK_OK(sherd_world_check(world));
            sherd_comm_reset(world);
            sherd_backward(sherd_sum(sherd_module_call(m, x)));
            CHECK_EQ(g.gathers, 2 + ahead);
            CHECK_EQ(on_ranks(world, mesh, g.reduces) > 0, prefetches);
            CHECK_EQ(calls(world, "all_gather", SHERD_COMM_BACKWARD), DEEP);
            CHECK_EQ(calls(world, "reduce_scatter", SHERD_COMM_BACKWARD), DEEP);
            for (int i = 0; i < DEEP * 4; i++) /* else the sums are needed at once, to add them */
                sherd_clear_grad(sherd_module_parameter(
                    sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                    i % 2 ? "bias" : "weight"));
            sherd_scope_end(world);
        }
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What is gathered ahead follows from the backward that runs, not from what a rank keeps. */
static void a_rank_may_keep_another_graph(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = few_rows(world, mesh), *kept = NULL;
    sherd_module *m = deep_stack(world);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        sherd_tensor *y = sherd_module_call(sherd_module_child(m, 3), x);
        if (step == 0 && sherd_world_rank(world) == 0)
            kept = sherd_tensor_retain(y);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_tensor_release(kept);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(losses_are_those_of_the_whole_model), {1, 2, 3, 4}},
    {TEST(and_beside_tensor_parallelism), {4}},
    {TEST(a_block_makes_one_call_each_way), {2, 3, 4}},
    {TEST(two_units_are_in_memory_at_once), {1, 2, 3, 4}},
    {TEST(backward_gathers_ahead), {2, 3, 4, 8}},
    {TEST(a_rank_may_keep_another_graph), {2, 3}},
    {TEST(the_next_unit_is_gathered_ahead), {2, 3}},
};
CHECK_MAIN(tests)
