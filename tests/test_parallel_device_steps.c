/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole steps of training on several ranks stay in the memory of GPUs: tensor and sequence
 * parallel blocks, sequences that stay sharded, pipelines, classes that are sharded. The emulation
 * counts the bytes that are copied between the two memories. SHERD_DEVICE is set for this program.
 */
#include <sherd.h>

#include "device.h"
#include "models.h"

enum { STEPS = 2, HEADS = 4, HEAD = 4, WIDTH = HEADS * HEAD, LENGTH = 8 };

/* Bytes so far, of all ranks, which are threads here; of a real GPU, or of processes, nobody knows. */
static long long copied(sherd_world *world)
{
    CHECK_OK(sherd_world_check(world)); /* all have come as far */
    const char *as = getenv("SHERD_TEST_AS");
    long long bytes = 0;
    if (is_emulated() && !as)
        bytes = ((long long (*)(void))emulated_function("emulated_cuda_copied"))();
    CHECK_OK(sherd_world_check(world));
    return bytes;
}

/* One step; its loss, which is not read. */
typedef sherd_tensor *(*step_of)(sherd_module *m, void *data);

/* After the first step, which brings parameters and inputs there, nothing goes either way but the
 * gradient that backward begins with, one number; and the loss falls. */
static void stays_there(sherd_world *world, sherd_module *m, step_of step, void *data)
{
    sherd_optimizer *adam = NULL;
    double before = INFINITY;

    CHECK_OK(sherd_adamw_create(&adam, m, NULL));
    for (int i = 0; i < STEPS; i++) {
        sherd_scope_begin(world);
        long long bytes = copied(world);
        sherd_tensor *loss = step(m, data);
        sherd_backward(loss);
        sherd_optimizer_step(adam, 0.01, 1);
        sherd_optimizer_clear(adam);
        bytes = copied(world) - bytes;
        if (i > 0)
            CHECK(bytes <= 4 * (long long)sherd_world_ranks(world));
        double now = sherd_item(loss);
        CHECK(now < before);
        before = now;
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(adam);
}

typedef struct pair {
    sherd_tensor *x, *target;
} pair;

static sherd_tensor *error_of(sherd_module *m, void *data)
{
    const pair *p = data;

    return squared_error(sherd_module_call(m, p->x), p->target);
}

static pair inputs(sherd_world *world, const sherd_mesh *mesh, const char *placements)
{
    const int64_t shape[] = {1, LENGTH, WIDTH};

    return (pair){spread(wave(world, SHERD_F32, 3, shape, 1, 1, 0), mesh, placements),
                  spread(wave(world, SHERD_F32, 3, shape, 5, 1, 0), mesh, placements)};
}

static void blocks_stay_there(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    block_size size = {HEADS, HEAD, 0.1};

    for (int sequence = 0; sequence < 2; sequence++) {
        sherd_scope_begin(world);
        sherd_module *m = block(world, SHERD_F32, &size, 2 * WIDTH);
        pair p = inputs(world, mesh, sequence ? "S(1)" : "R");
        CHECK_OK(parallelize_block(m, mesh, "", &size, sequence));
        stays_there(world, m, error_of, &p);
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
}

/* Keys come round; all else is computed where the sequence is. */
static void sharded_sequences_stay_there(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_attention_options how = {.causal = true, .way = SHERD_ATTENTION_RING};
    const sherd_layer_options options = {.name = "a", .dtype = SHERD_F32, .bias = true};
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    sherd_module *m = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_attention_create(&m, world, WIDTH, HEADS, &how, &options));
    for (int i = 0; i < LEN(names); i++)
        fill_layer(sherd_module_find(m, names[i]), SHERD_F32, 1 + 2 * i, 0);
    CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
    pair p = inputs(world, mesh, "S(1)");
    stays_there(world, m, error_of, &p);
    sherd_module_destroy(m);
    sherd_scope_end(world);
}

/* ---- classes --------------------------------------------------------------------------------- */

static sherd_tensor *entropy_of(sherd_module *m, void *data)
{
    const pair *p = data;

    return sherd_cross_entropy(sherd_module_call(m, p->x), p->target);
}

static void sharded_classes_stay_there(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t rows = 6, shape[] = {rows, WIDTH};
    int32_t class[6] = {0, 7, 15, 3, 8, 7};
    const sherd_parallel_entry plan = {"out", sherd_colwise()};

    sherd_scope_begin(world);
    sherd_module *m = container(world, stack_forward, NULL);
    linear_layer(m, "out", SHERD_F32, WIDTH, WIDTH, 1);
    CHECK_OK(sherd_parallelize(m, mesh, "tp", &plan, 1));
    pair p = {
        spread(wave(world, SHERD_F32, 2, shape, 1, 1, 0), mesh, "R"),
        spread(sherd_mark_equal(sherd_from_data(world, SHERD_I32, &rows, 1, class)), mesh, "R")};
    stays_there(world, m, entropy_of, &p);
    sherd_module_destroy(m);
    sherd_scope_end(world);
}

/* ---- a pipeline ------------------------------------------------------------------------------ */

typedef struct flow {
    sherd_tensor *x, *target; /* of the first and the last stage */
} flow;

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    const flow *f = payload;

    (void)microbatch;
    if (stage > 0)
        return;
    in->value[0] = f->x;
    in->count = 1;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    const flow *f = payload;

    (void)microbatch;
    return squared_error(out->value[0], f->target);
}

/* Two places with half of the ranks each. The loss is read, which is a few numbers. */
static void pipelines_stay_there(sherd_world *world)
{
    enum { STAGES = 2, MICROBATCHES = 4, FEW = 1024 };
    const int64_t shape[] = {64, 32};
    int ranks = sherd_world_ranks(world);
    sherd_stage stage[STAGES];
    sherd_pipeline *pipeline = NULL;
    flow f;

    sherd_scope_begin(world);
    for (int i = 0; i < STAGES; i++) {
        const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
        char text[32];
        snprintf(text, sizeof text, ranks == 2 ? "x=1@%d" : "x=2@%d,%d", i * ranks / 2,
                 i * ranks / 2 + 1);
        stage[i] = (sherd_stage){mesh_of(world, text), mlp(world, SHERD_F32, 32, 64, 32), NULL};
        CHECK_OK(sherd_parallelize(stage[i].module, stage[i].mesh, "x", plan, 2));
    }
    CHECK_OK(sherd_pipeline_create(&pipeline, world, stage, STAGES, SHERD_PIPELINE_1F1B));
    f.x = spread(wave(world, SHERD_F32, 2, shape, 1, 1, 0), stage[0].mesh, "R");
    f.target = spread(wave(world, SHERD_F32, 2, shape, 3, 1, 0), stage[1].mesh, "R");
    const sherd_microbatches work = {
        .count = MICROBATCHES, .feed = feed, .loss = find_loss, .payload = &f};
    for (int step = 0; step < STEPS; step++) {
        sherd_scope_begin(world);
        long long bytes = copied(world);
        CHECK(sherd_pipeline_run(pipeline, &work) > 0);
        bytes = copied(world) - bytes;
        if (step > 0)
            CHECK(bytes < FEW);
        sherd_scope_end(world);
    }
    sherd_pipeline_destroy(pipeline);
    for (int i = 0; i < STAGES; i++)
        sherd_module_destroy(stage[i].module);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {"blocks_stay_there", blocks_stay_there, {2, 4}},
    {"sharded_sequences_stay_there", sharded_sequences_stay_there, {2, 4}},
    {"sharded_classes_stay_there", sharded_classes_stay_there, {2, 4}},
    {"pipelines_stay_there", pipelines_stay_there, {2, 4}},
};

int main(int argc, char **argv)
{
    unsetenv("SHERD_VERIFY"); /* contents that are compared are copied */
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
