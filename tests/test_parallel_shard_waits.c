/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of sharded leaves that wait for those of other microbatches: one reduce-scatter for all
 * of them, and the right numbers whoever asks for them first.
 */
#include "models.h"
#include "sherd/autocast.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"
#include "sherd/pipeline.h"

enum { WIDTH = 6, HIDDEN = 13, ROWS = 7, BATCHES = 5, NONE = -1 };

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh, int k)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3 + k, 1, 0);

    x = mesh ? spread(x, mesh, "S(0)") : x;
    return sherd_mean(sherd_square(sherd_module_call(m, x)));
}

static void backwards(sherd_module *m, const sherd_mesh *mesh, int from, int to)
{
    for (int k = from; k < to; k++) {
        sherd_scope_begin(sherd_module_world(m));
        sherd_backward(loss_of(m, mesh, k));
        sherd_scope_end(sherd_module_world(m));
    }
}

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(m, i / 2), i % 2 ? "bias" : "weight");
}

static void find_expected(sherd_module *m, double expected[4][MOST], int64_t n[4])
{
    sherd_module *plain = mlp(sherd_module_world(m), SHERD_F64, WIDTH, HIDDEN, WIDTH);

    backwards(plain, NULL, 0, BATCHES);
    for (int i = 0; i < 4; i++)
        n[i] = whole(sherd_grad(parameter(plain, i)), expected[i]);
    sherd_module_destroy(plain);
}

static sherd_module *sharded_mlp(sherd_world *world, const sherd_mesh *mesh)
{
    sherd_module *m = mlp(world, SHERD_F64, WIDTH, HIDDEN, WIDTH);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    return m;
}

static int64_t scatters(sherd_world *world)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = "reduce_scatter"});
}

static sherd_tensor *as_it_is(sherd_tensor *grad, void *payload)
{
    (void)grad;
    ++*(int *)payload;
    return NULL;
}

/*
 * Off until microbatch `on` (NONE: never on again), a sum read in the middle or not, a hook on a
 * weight or not.
 */
static void compare_sums(sherd_world *world, int on, bool read, bool hook)
{
    static _Thread_local double expected[4][MOST];
    const sherd_mesh *mesh = line(world);
    sherd_module *m = sharded_mlp(world, mesh);
    int64_t n[4];
    int hooked = 0;

    find_expected(m, expected, n);
    if (hook)
        CHECK_OK(sherd_tensor_hook(NULL, parameter(m, 0), as_it_is, &hooked, NULL));
    for (int k = 0; k < BATCHES; k++) {
        CHECK_EQ(sherd_set_gradient_sync(world, k == on), k == 0 || k - 1 == on);
        backwards(m, mesh, k, k + 1);
        if (read && k == 1)
            CHECK(sherd_tensor_layout(sherd_grad(parameter(m, 2))) ==
                  sherd_tensor_layout(parameter(m, 2)));
    }
    sherd_set_gradient_sync(world, true);
    CHECK_EQ(hooked, hook ? BATCHES : 0);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(distance_to(sherd_grad(parameter(m, i)), expected[i], n[i]), 0, 1e-12);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void sums_are_right_whoever_settles_them(sherd_world *world)
{
    for (int on = NONE; on < BATCHES; on++)
        compare_sums(world, on, on % 2, false);
    compare_sums(world, BATCHES - 1, false, true);
    compare_sums(world, NONE, true, true);
}

static void one_round_settles_all_microbatches(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = sharded_mlp(world, mesh);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    for (int last = 0; last < 2; last++) { /* on again for the last microbatch, or not */
        sherd_set_gradient_sync(world, false);
        sherd_comm_reset(world);
        backwards(m, mesh, 0, BATCHES - 1);
        CHECK_EQ(scatters(world), 0);
        sherd_set_gradient_sync(world, last);
        backwards(m, mesh, BATCHES - 1, BATCHES);
        CHECK_EQ(scatters(world), last ? 2 : 0);
        int64_t before = scatters(world);
        CHECK(sherd_optimizer_clip(o, 0.1) > 0);
        sherd_optimizer_step(o, 0.1, 1);
        CHECK_EQ(scatters(world) - before, last ? 0 : 1);
        sherd_optimizer_clear(o);
        sherd_set_gradient_sync(world, true);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* What waits is as large as what is gathered, and no more of it with more microbatches. */
static void bytes_are_those_of_the_gathered_leaf(sherd_world *world)
{
    const int64_t all = (WIDTH * HIDDEN * 2 + WIDTH + HIDDEN) * 8;
    const sherd_mesh *mesh = line(world);
    sherd_module *m = sharded_mlp(world, mesh);
    int64_t before = sherd_world_memory(world).live_bytes, first = 0;

    sherd_set_gradient_sync(world, false);
    for (int k = 0; k < 3; k++) {
        backwards(m, mesh, k, k + 1);
        int64_t bytes = sherd_world_memory(world).live_bytes - before;
        CHECK_EQ(bytes, k ? first : bytes);
        first = bytes;
    }
    CHECK(first >= all && first <= all + 4 * 64);
    sherd_set_gradient_sync(world, true);
    for (int i = 0; i < 4; i++)
        CHECK(!sherd_tensor_failed(sherd_grad(parameter(m, i))));
    CHECK(sherd_world_memory(world).live_bytes - before < first);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A module that is run again in backward, and a weight of two places. */
static void recomputed_and_tied_ones_wait_as_well(sherd_world *world)
{
    static _Thread_local double expected[2][MOST];
    const sherd_mesh *mesh = line(world);
    int64_t n[2] = {0};

    for (int sharded = 0; sharded < 2; sharded++) {
        sherd_module *m = mlp(world, SHERD_F64, WIDTH, WIDTH, WIDTH);
        CHECK_OK(sherd_module_set_parameter(sherd_module_child(m, 1), "weight", parameter(m, 0)));
        sherd_require_grad(parameter(m, 1), false);
        if (sharded)
            CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
        sherd_module_checkpoint(sherd_module_child(m, 0), true);
        sherd_comm_reset(world);
        sherd_set_gradient_sync(world, false);
        backwards(m, sharded ? mesh : NULL, 0, 3);
        CHECK_EQ(scatters(world), 0);
        sherd_set_gradient_sync(world, true);
        backwards(m, sharded ? mesh : NULL, 3, 4);
        CHECK(!sherd_grad(parameter(m, 1)));
        for (int i = 0; i < 2; i++) {
            sherd_tensor *g = sherd_grad(parameter(m, i ? 3 : 0));
            if (sharded)
                CHECK_NEAR(distance_to(g, expected[i], n[i]), 0, 1e-12);
            else
                n[i] = whole(g, expected[i]);
        }
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Products in bf16, gradients in f32. */
static void under_autocast_too(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    double sum[2] = {0};

    for (int waits = 0; waits < 2; waits++) {
        sherd_module *m = mlp(world, SHERD_F32, 8, 16, 8);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
        for (int k = 0; k < 3; k++) {
            sherd_scope_begin(world);
            sherd_tensor *x =
                spread(wave(world, SHERD_F32, 2, SHAPE(8, 8), 3 + k, 1, 0), mesh, "S(0)");
            sherd_set_gradient_sync(world, !waits);
            sherd_set_autocast(world, SHERD_BF16);
            sherd_tensor *l = sherd_mean(sherd_square(sherd_module_call(m, x)));
            sherd_set_autocast(world, SHERD_DTYPE_NONE);
            sherd_backward(l);
            sherd_scope_end(world);
        }
        sherd_set_gradient_sync(world, true);
        CHECK_EQ(sherd_tensor_dtype(sherd_grad(parameter(m, 0))), SHERD_F32);
        sum[waits] = sherd_item(sherd_sum(sherd_square(sherd_grad(parameter(m, 0)))));
        sherd_module_destroy(m);
    }
    CHECK(sum[0] > 0);
    CHECK_NEAR(sum[1], sum[0], 1e-5 * sum[0]);
    CHECK_OK(sherd_world_check(world));
}

/* A leaf that the program gathers itself. */
static void leaves_without_modules_wait(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line(world);
    int64_t n = 0;

    for (int waits = 0; waits < 2; waits++) {
        sherd_tensor *w = spread(wave(world, SHERD_F64, 2, SHAPE(6, 6), 2, 1, 0), mesh, "S(0)");
        sherd_require_grad(w, true);
        sherd_set_gradient_sync(world, !waits);
        for (int k = 0; k < 3; k++) {
            sherd_tensor *x =
                spread(wave(world, SHERD_F64, 2, SHAPE(5, 6), 3 + k, 1, 0), mesh, "S(0)");
            sherd_backward(sherd_sum(sherd_square(sherd_matmul(x, w))));
        }
        sherd_set_gradient_sync(world, true);
        if (waits)
            CHECK_NEAR(distance_to(sherd_grad(w), expected, n), 0, 1e-10);
        else
            n = whole(sherd_grad(w), expected);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The stages are on parts of the world; each rank's weights are settled once, whatever the number
 * of microbatches. */
static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    sherd_module *const *m = payload;

    if (stage > 0)
        return;
    const sherd_mesh *mesh = sherd_layout_mesh(sherd_tensor_layout(parameter(m[0], 0)));
    in->value[in->count++] = spread(
        wave(sherd_module_world(m[0]), SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3 + (int)microbatch, 1, 0),
        mesh, "S(0)");
}

static sherd_tensor *mean_square(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload, (void)microbatch;
    return sherd_mean(sherd_square(out->value[0]));
}

static void microbatches_of_a_pipeline_wait(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    int64_t n = 0, calls[2];

    for (int waits = 0; waits < 2; waits++) {
        sherd_stage stage[2];
        sherd_module *m[2];
        sherd_pipeline *p = NULL;
        const sherd_microbatches work = {
            .count = 4, .feed = feed, .loss = mean_square, .payload = m};
        for (int s = 0; s < 2; s++) {
            const sherd_mesh *mesh = mesh_of(world, s ? "dp=2@2,3" : "dp=2@0,1");
            m[s] = sharded_mlp(world, mesh);
            stage[s] = (sherd_stage){.module = m[s], .mesh = mesh};
        }
        CHECK_OK(sherd_pipeline_create(&p, world, stage, 2, SHERD_PIPELINE_1F1B));
        sherd_comm_reset(world);
        sherd_set_gradient_sync(world, !waits);
        CHECK(sherd_pipeline_run(p, &work) > 0);
        sherd_set_gradient_sync(world, true);
        calls[waits] = scatters(world);
        sherd_tensor *g = sherd_grad(parameter(m[sherd_world_rank(world) / 2], 0));
        if (waits)
            CHECK_NEAR(distance_to(g, expected, n), 0, 1e-12);
        else
            n = whole(g, expected);
        sherd_pipeline_destroy(p);
        for (int s = 0; s < 2; s++)
            sherd_module_destroy(m[s]);
    }
    CHECK(calls[0] > 0);
    CHECK_EQ(calls[1], 0);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_of_which_one_waits_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = sharded_mlp(world, mesh);

    sherd_set_gradient_sync(world, sherd_world_rank(world) > 0);
    backwards(m, mesh, 0, 2);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    sherd_set_gradient_sync(world, true);
    sherd_module_destroy(m);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = sharded_mlp(world, mesh);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(5, WIDTH), 1, 1, 0), mesh, "S(0)");
    CHECK_OK(sherd_world_check(world));
    sherd_status status = SHERD_ENOMEM;
    int64_t live = sherd_world_memory(world).live_bytes;

    for (int n = 1; status && n < 900; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 1 ? n : 0);
        for (int k = 0; k < 2; k++) {
            sherd_set_gradient_sync(world, k);
            sherd_backward(sherd_sum(sherd_module_call(m, x)));
        }
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        for (int i = 0; i < 4; i++)
            sherd_clear_grad(parameter(m, i));
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(sums_are_right_whoever_settles_them), {1, 2, 3, 4}},
    {TEST(one_round_settles_all_microbatches), {2, 3, 4}},
    {TEST(bytes_are_those_of_the_gathered_leaf), {2, 3}},
    {TEST(recomputed_and_tied_ones_wait_as_well), {1, 2, 3}},
    {TEST(under_autocast_too), {2, 4}},
    {TEST(leaves_without_modules_wait), {1, 2, 3}},
    {TEST(microbatches_of_a_pipeline_wait), {4}},
    {TEST(ranks_of_which_one_waits_differ), {2, 3}},
    {TEST(no_memory_fails_on_all), {2}},
};
CHECK_MAIN(tests)
