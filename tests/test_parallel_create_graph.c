/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gradient penalty (the loss has the gradient of the model's input in it) trains transformer
 * blocks as on one rank: with styles, sharded sequences, fully sharded parameters, saved shards, and
 * what is computed again.
 */
#include "models.h"
#include "sherd/optimizer.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

enum { BLOCKS = 2, HEADS = 4, HEAD = 3, WIDTH = HEADS * HEAD, HIDDEN = 10, STEPS = 3 };
enum { BATCH = 4, LENGTH = 4 };

typedef enum kind { PLAIN, CHECKPOINTED, FULLY_SHARDED, SAVED_AS_SHARDS, KINDS } kind;

static sherd_module *stack_of_blocks(sherd_world *world, sherd_dtype dtype, block_size *size)
{
    return stack_of(world, dtype, size, HIDDEN, BLOCKS);
}

static sherd_tensor *input(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh, int k)
{
    sherd_tensor *x = wave(world, dtype, 3, SHAPE(BATCH, LENGTH, WIDTH), k, 1, 0);
    return mesh ? spread(x, mesh, "S(0)R") : x;
}

/* Losses of some steps. */
static void train(sherd_module *m, sherd_dtype dtype, const sherd_mesh *mesh, double *loss)
{
    sherd_world *world = sherd_module_world(m);
    const sherd_gradients_options recorded = {.create_graph = true};
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < STEPS; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_require_grad(input(world, dtype, mesh, 3 + step), true), *g = NULL;
        sherd_tensor *y = sherd_module_call(m, x);
        sherd_tensor *l = squared_error(y, input(world, dtype, mesh, 5 + step));
        sherd_gradients(&g, &x, 1, &l, 1, &recorded);
        l = sherd_add(l, sherd_scale(sherd_sum(sherd_mul(g, g)), 30));
        sherd_backward(l);
        loss[step] = sherd_item(l);
        sherd_optimizer_step(o, 0.02, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    sherd_optimizer_destroy(o);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

static sherd_status prepare(sherd_module *m, const sherd_mesh *mesh, const block_size *size,
                            bool sequence, kind how)
{
    sherd_status status = parallelize_block(m, mesh, "*.", size, sequence);

    for (int i = 0; i < BLOCKS && how == CHECKPOINTED; i++)
        sherd_module_checkpoint(sherd_module_child(m, i), true);
    if (!status && how == FULLY_SHARDED)
        status = sherd_fully_shard(m, mesh, "dp", NULL);
    if (!status && how == SAVED_AS_SHARDS)
        status = sherd_input_reshard(m, mesh, "tp", 1);
    return status;
}

static void compare_losses(sherd_world *world, const char *text, sherd_dtype dtype)
{
    const double tolerance = dtype == SHERD_F64 ? 1e-9 : dtype == SHERD_F32 ? 1e-4 : 0.1;
    const sherd_mesh *mesh = mesh_of(world, text);
    block_size size = {HEADS, HEAD, 0};
    double alone[STEPS], loss[STEPS];

    sherd_module *plain = stack_of_blocks(world, dtype, &size);
    train(plain, dtype, NULL, alone);
    sherd_module_destroy(plain);
    CHECK(alone[STEPS - 1] < 0.9 * alone[0] || alone[0] != alone[1]);
    /* what one rank has of a sequence is all of it */
    int step = strstr(text, "tp=1") ? check_stride(2) : 1;

    for (int way = 0; way < 2 * KINDS; way += step) {
        sherd_module *m = stack_of_blocks(world, dtype, &size);
        CHECK_OK(prepare(m, mesh, &size, way % 2, (kind)(way / 2)));
        train(m, dtype, mesh, loss);
        for (int i = 0; i < STEPS; i++)
            if (!CHECK_NEAR(loss[i], alone[i], tolerance * alone[i]))
                fprintf(stderr, "  step %d of kind %d, sequence %d\n", i, way / 2, way % 2);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_gradient_penalty_trains_alike(sherd_world *world)
{
    char text[32];

    snprintf(text, sizeof text, "dp=1,tp=%d", sherd_world_ranks(world));
    compare_losses(world, text, SHERD_F64);
    snprintf(text, sizeof text, "dp=%d,tp=1", sherd_world_ranks(world));
    if (sherd_world_ranks(world) > 1)
        compare_losses(world, text, SHERD_F64);
    if (sherd_world_ranks(world) == 4) {
        compare_losses(world, "dp=2,tp=2", SHERD_F64);
        compare_losses(world, "dp=2,tp=2", SHERD_F32);
        compare_losses(world, "dp=2,tp=2", SHERD_BF16);
    }
}

static const check_test tests[] = {
    {TEST(a_gradient_penalty_trains_alike), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
