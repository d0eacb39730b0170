/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tree of modules for all stages of a pipeline: a stage is a module without children, whose
 * forward calls a part of the tree. So names of parameters and of generators do not depend on the
 * stages, one optimizer has the parameters of each rank, and one file has all: a run goes on with
 * any number of places and stages, or without a pipeline, with dropout and losses as they were.
 */
#include <sherd.h>

#include "pipelines.h"
#include "scratch.h"

enum { LAYERS = 4, WIDE = 12, COUNT = 3, STEPS = 4, MOST_PLACES = 4 };

typedef struct job job;

typedef struct part {
    job *job;
    int first, last; /* layers */
} part;

struct job {
    sherd_world *world;
    const sherd_mesh *all, *place[MOST_PLACES];
    int places, stages, here;
    sherd_module *tree, *stage[LAYERS];
    part part[LAYERS];
    sherd_pipeline *pipeline; /* NULL: there is one stage, on all ranks */
    sherd_optimizer *optimizer;
};

static void layer_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_module_call(sherd_module_find(self, "net"), in->value[0]);

    out->value[0] = sherd_tanh(sherd_module_call(sherd_module_find(self, "drop"), x));
    out->count = 1;
}

static void part_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const part *p = sherd_module_payload(self);
    sherd_tensor *x = in->value[0];

    for (int i = p->first; i < p->last; i++)
        x = sherd_module_call(sherd_module_child(p->job->tree, i), x);
    out->value[0] = x;
    out->count = 1;
}

static void add_one(sherd_module *tree, int i)
{
    char name[16], path[24];
    const sherd_layer_options options = {.name = path, .bias = true, .deviation = 0.3};
    sherd_module *m = container(sherd_module_world(tree), layer_forward, NULL), *net = NULL,
                 *drop = NULL;

    snprintf(name, sizeof name, "%d", i);
    snprintf(path, sizeof path, "%d.net", i);
    CHECK_OK(sherd_linear_create(&net, sherd_module_world(tree), WIDE, WIDE, &options));
    CHECK_OK(sherd_dropout_create(&drop, sherd_module_world(tree), 0.2));
    add_layer(m, "net", net);
    add_layer(m, "drop", drop);
    add_layer(tree, name, m);
}

static void make_places(job *j)
{
    char text[24];

    snprintf(text, sizeof text, "pp=%d,x=%d", j->places, sherd_world_ranks(j->world) / j->places);
    CHECK_OK(sherd_mesh_parse(&j->all, j->world, text));
    for (int i = 0; i < j->places; i++) {
        CHECK_OK(sherd_mesh_select(&j->place[i], j->all, "pp", i));
        if (sherd_mesh_coordinate(j->place[i], sherd_world_rank(j->world), NULL))
            j->here = i;
    }
}

static void open_job(job *j, sherd_world *world, int places, int stages)
{
    const sherd_parallel_entry plan = {"net", sherd_colwise()};
    const sherd_shard_options unit = {.unit = "", .skip_sharded = true};
    sherd_stage stage[LAYERS];

    *j = (job){.world = world, .places = places, .stages = stages};
    make_places(j);
    j->tree = container(world, NULL, NULL);
    for (int i = 0; i < LAYERS; i++)
        add_one(j->tree, i);
    for (int s = 0; s < stages; s++) {
        j->part[s] = (part){j, s * LAYERS / stages, (s + 1) * LAYERS / stages};
        j->stage[s] = container(world, part_forward, &j->part[s]);
        stage[s] = (sherd_stage){j->place[s % places], j->stage[s], "R"};
        for (int i = j->part[s].first; i < j->part[s].last; i++) {
            sherd_module *m = sherd_module_child(j->tree, i);
            CHECK_OK(sherd_parallelize(m, stage[s].mesh, "x", &plan, i % 2));
            CHECK_OK(sherd_fully_shard(m, stage[s].mesh, "x", &unit));
        }
    }
    if (stages > 1)
        CHECK_OK(
            sherd_pipeline_create(&j->pipeline, world, stage, stages, SHERD_PIPELINE_ZERO_BUBBLE));
    CHECK_OK(sherd_adamw_create(&j->optimizer, j->tree, NULL));
}

static void close_job(job *j)
{
    sherd_optimizer_destroy(j->optimizer);
    sherd_pipeline_destroy(j->pipeline);
    for (int s = 0; s < j->stages; s++)
        sherd_module_destroy(j->stage[s]);
    sherd_module_destroy(j->tree);
}

static sherd_tensor *batch(job *j, int64_t microbatch)
{
    sherd_tensor *x = wave(j->world, SHERD_F32, 2, (int64_t[]){rows_of(microbatch), WIDE},
                           (int)microbatch + 1, 1, 0);

    return spread(x, j->place[j->here], "R");
}

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    if (stage == 0)
        in->value[in->count++] = batch(payload, microbatch);
}

static sherd_tensor *mean_of(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload, (void)microbatch;
    return sherd_mean(sherd_square(out->value[0]));
}

static double run_all(job *j)
{
    const sherd_microbatches work = {.count = COUNT, .feed = feed, .loss = mean_of, .payload = j};
    double sum = 0;

    if (j->pipeline)
        return sherd_pipeline_run(j->pipeline, &work);
    for (int64_t m = 0; m < COUNT; m++) {
        sherd_scope_begin(j->world);
        const sherd_args out = {.count = 1, .value = {sherd_module_call(j->stage[0], batch(j, m))}};
        sherd_tensor *loss = mean_of(j, m, &out);
        sherd_backward(loss);
        sum += sherd_item(loss);
        sherd_scope_end(j->world);
    }
    return sum;
}

/* The loss and the norm of a step's gradients. */
static void train(job *j, double out[2])
{
    out[0] = run_all(j);
    out[1] = sherd_optimizers_grad_norm(&(sherd_optimizers){j->all, &j->optimizer, 1});
    sherd_optimizer_step(j->optimizer, 0.01, 1);
    sherd_optimizer_clear(j->optimizer);
    CHECK_OK(sherd_world_check(j->world));
}

/* As `first`, then from a file as `second`: {places, stages}. */
static void goes_on(sherd_world *world, const int first[2], const int second[2])
{
    double wanted[STEPS][2], got[2];
    char room[256];
    const char *path = scratch(room, "tree");
    job j;

    sherd_scope_begin(world);
    open_job(&j, world, first[0], first[1]);
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS / 2)
            CHECK_OK(sherd_module_write(j.tree, j.optimizer, path));
        train(&j, wanted[i]);
    }
    close_job(&j);
    open_job(&j, world, second[0], second[1]);
    CHECK_OK(sherd_module_read(j.tree, j.optimizer, path, NULL));
    remove_file(world, path);
    for (int i = STEPS / 2; i < STEPS; i++) {
        train(&j, got);
        CHECK_NEAR(got[0], wanted[i][0], 1e-5 * wanted[i][0]);
        CHECK_NEAR(got[1], wanted[i][1], 1e-5 * wanted[i][1]);
    }
    close_job(&j);
    sherd_scope_end(world);
}

static void a_run_goes_on_with_other_places_and_stages(sherd_world *world)
{
    static const int ways[][2] = {{1, 1}, {2, 2}, {2, 4}, {4, 4}};
    int possible = sherd_world_ranks(world) < 4 ? 3 : LEN(ways);

    for (int i = 0; i < possible; i++)
        goes_on(world, ways[i], ways[(i + 1) % possible]);
    goes_on(world, ways[0], ways[possible - 1]);
}

static const check_test tests[] = {
    {TEST(a_run_goes_on_with_other_places_and_stages), {2, 4, 8}},
};
CHECK_MAIN(tests)
