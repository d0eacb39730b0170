/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline is written to files and read again, on other ranks too, and goes on as if it had not
 * been interrupted. What lies on other ranks takes no memory here, on no way.
 */
#include <sherd.h>

#include "pipelines.h"
#include "scratch.h"

enum { PLACES = 2, STAGES = 4, WIDE = 24, COUNT = 3, STEPS = 4 };

typedef struct job {
    sherd_world *world;
    const sherd_mesh *mesh[PLACES], *all;
    sherd_module *model[PLACES]; /* stages 0 and 2; 1 and 3 */
    sherd_optimizer *optimizer[PLACES];
    sherd_pipeline *pipeline;
    int here; /* -1: nowhere */
} job;

static void wide_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[0] = sherd_tanh(sherd_module_call(sherd_module_child(self, 0), in->value[0]));
    out->count = 1;
}

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    job *j = payload;

    if (stage > 0)
        return;
    in->value[0] = spread(wave(j->world, SHERD_F32, 2, (int64_t[]){rows_of(microbatch), WIDE},
                               (int)microbatch + 1, 1, 0),
                          j->mesh[0], "R");
    in->count = 1;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload, (void)microbatch;
    return sherd_mean(sherd_square(sherd_sub(
        out->value[0], sherd_constant_on(sherd_tensor_layout(out->value[0]), SHERD_F32, 0.3))));
}

/* Stage i, whose first values are drawn where it is placed. */
static void add_stage(sherd_module *model, int i)
{
    char name[16];
    const sherd_layer_options options = {.name = name, .bias = true, .deviation = 0.2};
    sherd_world *world = sherd_module_world(model);
    sherd_module *layer = NULL, *stage = container(world, wide_forward, NULL);

    snprintf(name, sizeof name, "stage%d", i);
    CHECK_OK(sherd_linear_create(&layer, world, WIDE, WIDE, &options));
    add_layer(stage, "net", layer);
    add_layer(model, name, stage);
}

static void open_job(job *j, sherd_world *world, const char *const *meshes)
{
    sherd_stage stages[STAGES];
    const sherd_parallel_entry plan = {"*.net", sherd_colwise()};

    *j = (job){.world = world, .here = -1};
    CHECK_OK(
        sherd_mesh_create(&j->all, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    for (int p = 0; p < PLACES; p++) {
        CHECK_OK(sherd_mesh_parse(&j->mesh[p], world, meshes[p]));
        if (sherd_mesh_coordinate(j->mesh[p], sherd_world_rank(world), NULL))
            j->here = p;
        j->model[p] = container(world, NULL, NULL);
        for (int i = p; i < STAGES; i += PLACES)
            add_stage(j->model[p], i);
        CHECK_OK(sherd_parallelize(j->model[p], j->mesh[p], "x", &plan, 1));
        CHECK_OK(sherd_adamw_create(&j->optimizer[p], j->model[p], NULL));
    }
    for (int i = 0; i < STAGES; i++)
        stages[i] = (sherd_stage){j->mesh[i % PLACES],
                                  sherd_module_child(j->model[i % PLACES], i / PLACES), NULL};
    CHECK_OK(sherd_pipeline_create(&j->pipeline, world, stages, STAGES, SHERD_PIPELINE_1F1B));
}

static void close_job(job *j)
{
    sherd_pipeline_destroy(j->pipeline);
    for (int p = 0; p < PLACES; p++) {
        sherd_optimizer_destroy(j->optimizer[p]);
        sherd_module_destroy(j->model[p]);
    }
}

static double train(job *j)
{
    const sherd_microbatches work = {.count = COUNT, .feed = feed, .loss = find_loss, .payload = j};
    double loss = sherd_pipeline_run(j->pipeline, &work);

    if (j->here >= 0) {
        sherd_optimizer_step(j->optimizer[j->here], 0.01, 1);
        sherd_optimizer_clear(j->optimizer[j->here]);
    }
    CHECK_OK(sherd_world_check(j->world));
    return loss;
}

/* A rank's parameters and their state: m, v, the number of steps; blocks are rounded up. */
static int64_t most_bytes(const job *j)
{
    enum { STAGE = 4 * (WIDE * WIDE + WIDE), ROUNDING = 4096 };

    return j->here < 0 ? ROUNDING : STAGES / PLACES * 3 * STAGE + ROUNDING;
}

static void check_memory(const job *j)
{
    CHECK(sherd_world_memory(j->world).live_bytes <= most_bytes(j));
}

static void goes_on(sherd_world *world, const char *const *before, const char *const *after)
{
    double wanted[STEPS];
    char path[PLACES][256];
    job j;

    sherd_scope_begin(world);
    open_job(&j, world, before);
    check_memory(&j);
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS / 2) {
            for (int p = 0; p < PLACES; p++) {
                scratch(path[p], p ? "second" : "first");
                CHECK_OK(sherd_module_write(j.model[p], j.optimizer[p], path[p]));
            }
            check_memory(&j);
        }
        wanted[i] = train(&j);
        CHECK(i == 0 || wanted[i] < wanted[i - 1]);
    }
    close_job(&j);
    sherd_scope_end(world);
    sherd_scope_begin(world);
    open_job(&j, world, after);
    for (int p = 0; p < PLACES; p++)
        CHECK_OK(sherd_module_read(j.model[p], j.optimizer[p], path[p], NULL));
    for (int p = 0; p < PLACES; p++)
        remove_file(world, path[p]);
    check_memory(&j);
    for (int i = STEPS / 2; i < STEPS; i++)
        CHECK_NEAR(train(&j), wanted[i], 1e-6 * wanted[i]);
    close_job(&j);
    sherd_scope_end(world);
}

static void a_pipeline_goes_on_from_files(sherd_world *world)
{
    static const char *const two[] = {"x=1", "x=1@1"}, *const other[] = {"x=1@1", "x=1"},
                             *const three[] = {"x=1@2", "x=2@1,0"},
                             *const four[] = {"x=2@3,1", "x=2@0,2"};
    int ranks = sherd_world_ranks(world);

    goes_on(world, two, two);
    goes_on(world, two, other);
    if (ranks >= 3)
        goes_on(world, other, three);
    if (ranks >= 4)
        goes_on(world, three, four);
}

static const check_test tests[] = {{TEST(a_pipeline_goes_on_from_files), {2, 3, 4}}};
CHECK_MAIN(tests)
