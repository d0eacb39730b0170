/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters sharded over the axis that shards the batch, and gathered for use: each rank keeps its
 * shards, of the gradients too, and nothing of the size of the model is ever whole; while
 * replicated ones settle in one round as ever.
 */
#include "modules.h"
#include "sherd/optimizer.h"

enum { LAYERS = 4, WIDTH = 60, ROWS = 6, BYTES = WIDTH * WIDTH * 8 };

/* y = relu(x W^T), the weight gathered here (`payload`: where to) or by the operator (NULL). */
static void layer(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *w = sherd_module_parameter(self, "weight");
    const sherd_layout *whole = sherd_module_payload(self);

    if (whole)
        w = sherd_redistribute(w, whole, NULL);
    out->value[0] = sherd_relu(sherd_linear(in->value[0], w, NULL));
    out->count = 1;
}

/* Each layer's call ends a scope: what it gathered goes. */
static void stack(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < LAYERS; i++)
        x = sherd_module_call(sherd_module_child(self, i), x);
    out->value[0] = x;
    out->count = 1;
}

/* `placements` of the weights; NULL = plain. */
static sherd_module *make(sherd_world *world, const sherd_mesh *mesh, const char *placements,
                          bool gathers)
{
    static const char *const names[LAYERS] = {"0", "1", "2", "3"};
    sherd_module_options options = {.payload = NULL};
    const sherd_layout *whole = NULL;
    sherd_module *root = NULL, *m = NULL;

    CHECK_OK(sherd_layout_parse_placements(&whole, mesh, 2, SHAPE(WIDTH, WIDTH), "R", NULL));
    if (gathers)
        options.payload = (void *)(uintptr_t)whole;
    CHECK_OK(sherd_module_create(&root, world, stack, NULL));
    for (int i = 0; i < LAYERS; i++) {
        sherd_tensor *w = wave(world, SHERD_F64, 2, SHAPE(WIDTH, WIDTH), 3 + i, 0.3, 0.01);
        CHECK_OK(sherd_module_create(&m, world, layer, &options));
        w = placements ? spread(w, mesh, placements) : w;
        CHECK_OK(sherd_module_add_parameter(m, "weight", w));
        CHECK_OK(sherd_module_add(root, names[i], m));
    }
    return root;
}

static void backward(sherd_module *m, const sherd_mesh *mesh, int step)
{
    sherd_world *world = sherd_module_world(m);

    sherd_scope_begin(world);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 5 + step, 1, 0);
    x = mesh ? spread(x, mesh, "S(0)") : x;
    sherd_backward(sherd_sum(sherd_module_call(m, x)));
    sherd_scope_end(world);
}

static sherd_tensor *weight(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(m, i), "weight");
}

static void compare(sherd_module *m, sherd_module *plain, bool grads)
{
    static _Thread_local double expected[MOST];

    for (int i = 0; i < LAYERS; i++) {
        sherd_tensor *a = weight(plain, i), *b = weight(m, i);
        whole(grads ? sherd_grad(a) : a, expected);
        double most = 0;
        for (int k = 0; k < WIDTH * WIDTH; k++)
            most = fmax(most, fabs(expected[k]));
        CHECK(most > 0);
        CHECK_NEAR(distance_to(grads ? sherd_grad(b) : b, expected, WIDTH * WIDTH), 0,
                   1e-10 * most);
    }
}

static int64_t shard_bytes(sherd_module *m)
{
    int64_t bytes = 0;

    for (int i = 0; i < LAYERS; i++)
        bytes += weight(m, i)->storage->bytes;
    return bytes;
}

static void gradients_of_shards_are_shards(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int gathers = 0; gathers < 2; gathers++) {
        sherd_scope_begin(world);
        sherd_module *plain = make(world, mesh, NULL, false);
        sherd_module *m = make(world, mesh, "S(0)", gathers);
        sherd_scope_end(world);
        int64_t before = sherd_world_memory(world).live_bytes, grads = shard_bytes(m);
        sherd_world_memory_reset(world);
        backward(m, mesh, 0);
        backward(m, mesh, 1);
        int64_t after = sherd_world_memory(world).live_bytes - before;
        int64_t peak = sherd_world_memory(world).peak_bytes - before;
        CHECK_EQ(after, grads);
        /* One weight and one gradient whole, the shard that comes out of it, a few activations. */
        CHECK(peak <= grads + 2 * BYTES + BYTES / sherd_world_ranks(world) + BYTES / 2);
        /* Settled: nobody has to talk any more. */
        sherd_comm_reset(world);
        for (int i = 0; i < LAYERS; i++)
            CHECK(sherd_grad(weight(m, i))->layout == weight(m, i)->layout);
        CHECK_EQ(calls_logged(world), 0);
        backward(plain, NULL, 0);
        backward(plain, NULL, 1);
        compare(m, plain, true);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void copies_still_settle_in_one_round(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = make(world, mesh, "R", false);
    sherd_optimizer *o = NULL;
    int many = sherd_world_ranks(world) > 1;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    backward(m, mesh, 0);
    backward(m, mesh, 1);
    CHECK_EQ(calls_logged(world), 0);
    sherd_optimizer_step(o, 0.01, 1);
    CHECK_EQ(calls_logged(world), many);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void shards_are_trained_as_one_rank_trains(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *both[2] = {make(world, mesh, NULL, false), make(world, mesh, "S(0)", true)};

    for (int i = 0; i < 2; i++) {
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_adamw_create(&o, both[i], NULL));
        for (int step = 0; step < 3; step++) {
            backward(both[i], i ? mesh : NULL, step);
            sherd_optimizer_step(o, 0.01, 1);
            sherd_optimizer_clear(o);
        }
        sherd_optimizer_destroy(o);
    }
    compare(both[1], both[0], false);
    sherd_module_destroy(both[0]);
    sherd_module_destroy(both[1]);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(gradients_of_shards_are_shards), {1, 2, 3, 4, 8}},
    {TEST(copies_still_settle_in_one_round), {1, 2, 3, 8}},
    {TEST(shards_are_trained_as_one_rank_trains), {1, 2, 3, 4, 7}},
};
CHECK_MAIN(tests)
