/* SPDX-License-Identifier: Apache-2.0 */
/* A model that fits into no rank: it starts, and trains, where its shards fit. */
#define CHECK_PURE
#include "sherd/optimizer.h"

#include "models.h"

enum { REGION = 2 << 20, WIDTH = 512, HIDDEN = 640, MODEL = 2 * WIDTH * HIDDEN * 4 };

static sherd_module *model(sherd_world *world)
{
    static const char *const names[] = {"net1", "net2"};
    sherd_module *root = container(world, mlp_forward, NULL), *m = NULL;

    for (int i = 0; i < 2; i++) {
        sherd_layer_options o = {.name = names[i], .deviation = 0.05};
        CHECK_OK(sherd_linear_create(&m, world, i ? HIDDEN : WIDTH, i ? WIDTH : HIDDEN, &o));
        add_layer(root, names[i], m);
    }
    return root;
}

/* Forward, backward, a step of AdamW: a shard, its gradient, and two moments. */
static double step(sherd_module *m, sherd_optimizer *o, const sherd_mesh *mesh)
{
    sherd_world *world = sherd_module_world(m);

    sherd_scope_begin(world);
    sherd_tensor *x = spread(wave(world, SHERD_F32, 2, SHAPE(4, WIDTH), 3, 1, 0), mesh, "R");
    sherd_tensor *loss = squared_error(sherd_module_call(m, x), x);
    sherd_backward(loss);
    double value = sherd_item(loss);
    sherd_optimizer_step(o, 0.001, 1);
    sherd_optimizer_clear(o);
    sherd_scope_end(world);
    return value;
}

static int body(sherd_world *world, void *unused)
{
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    const sherd_mesh *mesh = line_of_ranks(world);
    double loss[3];

    (void)unused;
    check_rank = sherd_world_rank(world);
    sherd_scope_begin(world);
    sherd_module *m = model(world);
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_memory(world).peak_bytes, 0);
    /* All of it in one rank is too much. */
    sherd_status status = sherd_parallelize(m, mesh, "tp", plan, 2);
    CHECK_EQ(status, sherd_world_ranks(world) == 1 ? SHERD_ENOMEM : SHERD_OK);
    CHECK_EQ(sherd_world_check(world), status);
    if (!status) {
        sherd_optimizer *o = NULL;
        CHECK_EQ(sherd_world_memory(world).peak_bytes, MODEL / sherd_world_ranks(world));
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
        for (int i = 0; i < 3; i++)
            loss[i] = step(m, o, mesh);
        CHECK(loss[2] < loss[1] && loss[1] < loss[0]);
        CHECK(sherd_world_memory(world).peak_bytes < REGION);
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_destroy(o);
    }
    sherd_module_destroy(m);
    return 0;
}

/* ---- the same without tensor parallelism: parameters in pieces over the batch's axis --------- */

enum { LAYERS = 8, WIDE = 256, LAYER = WIDE * WIDE * 4 };

static double sharded_step(sherd_module *m, sherd_optimizer *o, const sherd_mesh *mesh)
{
    sherd_world *world = sherd_module_world(m);

    sherd_scope_begin(world);
    sherd_tensor *x = spread(wave(world, SHERD_F32, 2, SHAPE(8, WIDE), 3, 1, 0), mesh, "S(0)");
    sherd_tensor *loss = squared_error(sherd_module_call(m, x), x);
    sherd_backward(loss);
    double value = sherd_item(loss);
    sherd_optimizer_step(o, 0.001, 1);
    sherd_optimizer_clear(o);
    sherd_scope_end(world);
    return value;
}

static int sharded_body(sherd_world *world, void *unused)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    char name[LAYERS][4];
    double loss[3];

    (void)unused;
    check_rank = sherd_world_rank(world);
    sherd_scope_begin(world);
    sherd_module *root = container(world, stack_forward, NULL), *m = NULL;
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        sherd_layer_options o = {.name = name[i], .deviation = 0.08};
        CHECK_OK(sherd_linear_create(&m, world, WIDE, WIDE, &o));
        add_layer(root, name[i], m);
    }
    sherd_scope_end(world);
    sherd_status status = sherd_fully_shard(root, mesh, "tp", NULL);
    CHECK_EQ(status, sherd_world_ranks(world) == 1 ? SHERD_ENOMEM : SHERD_OK);
    CHECK_EQ(sherd_world_check(world), status);
    if (!status) {
        sherd_optimizer *o = NULL;
        CHECK_EQ(sherd_world_memory(world).peak_bytes, LAYERS * LAYER / sherd_world_ranks(world));
        CHECK_OK(sherd_adamw_create(&o, root, NULL));
        for (int i = 0; i < 3; i++)
            loss[i] = sharded_step(root, o, mesh);
        CHECK(loss[2] < loss[1] && loss[1] < loss[0]);
        CHECK(sherd_world_memory(world).peak_bytes < REGION);
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_destroy(o);
    }
    sherd_module_destroy(root);
    return 0;
}

static void train_in_small_ranks(int (*train)(sherd_world *world, void *unused))
{
    static const int ranks[] = {1, 8};

    for (int i = 0; i < LEN(ranks); i++)
        for (int as = 0; as < 2; as++) {
            int exit_status = -1;
            sherd_world_options options = {.ranks = ranks[i],
                                           .as = (sherd_ranks_as)as,
                                           .region_bytes = REGION,
                                           .no_pin = true};
            CHECK_OK(sherd_spawn(&exit_status, &options, train, NULL));
            CHECK_EQ(exit_status, 0);
        }
    check_rank = 0;
}

static void a_model_larger_than_a_rank_is_trained(void)
{
    train_in_small_ranks(body);
}

static void and_with_sharded_parameters(void)
{
    train_in_small_ranks(sharded_body);
}

static const check_test tests[] = {
    {TEST(a_model_larger_than_a_rank_is_trained)},
    {TEST(and_with_sharded_parameters)},
};
CHECK_MAIN(tests)
