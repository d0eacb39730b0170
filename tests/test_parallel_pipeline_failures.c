/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong in one stage is told to all ranks, nothing is left, and the pipeline works again:
 * no memory at any place, failures of the program's own, ranks that ask for different things.
 */
#include <sherd.h>

#include "pipelines.h"

enum { PLACES = 2, STAGES = 4, COUNT = 4 };

typedef struct job {
    sherd_world *world;
    sherd_stage stage[STAGES];
    sherd_pipeline *pipeline;
    sherd_microbatches work;
    /* 1: a feed, 2: no input, 3: a loss that is NULL, 4: of several elements, 5: one that runs it
     * again, 6: destroys it, 7: a hook on the gradient of a weight, 8: ties two,
     * 9: a loss of another world, 10: a plain one that has failed */
    int fails;
    sherd_tensor *foreign;
    int64_t hooked;     /* calls of the hook */
    int64_t microbatch; /* at this one */
} job;

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    job *j = payload;
    bool now = microbatch == j->microbatch;

    if (j->fails == 1 && now && stage == 1)
        sherd_world_fail(j->world, SHERD_EINVAL, "the feed has nothing");
    if (stage > 0 || (j->fails == 2 && now))
        return;
    in->value[0] = in->value[1] = spread(input_of(j->world, microbatch), j->stage[0].mesh, "R");
    in->value[2] = spread(indices_of(j->world, microbatch), j->stage[0].mesh, "R");
    in->count = 3;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    const job *j = payload;
    bool now = microbatch == j->microbatch;

    if (j->fails == 3 && now)
        return NULL;
    if (j->fails == 9 && now)
        return j->foreign;
    if (j->fails == 10 && now)
        return sherd_add(sherd_constant(j->world, SHERD_F64, SHAPE(2), 1, 1),
                         sherd_constant(j->world, SHERD_F64, SHAPE(3), 1, 1));
    if (j->fails == 5 && now)
        CHECK(isnan(sherd_pipeline_run(j->pipeline, &j->work)));
    if (j->fails == 6 && now)
        sherd_pipeline_destroy(j->pipeline);
    if (j->fails == 8 && now)
        CHECK_EQ(sherd_pipeline_tie(j->pipeline, 1, "net.bias", 2, "net.bias"), SHERD_EINVAL);
    return j->fails == 4 && now ? out->value[0] : loss_of(out);
}

/* Of stage 1, for each microbatch once. */
static sherd_tensor *look(sherd_tensor *grad, void *payload)
{
    job *j = payload;

    (void)grad;
    if (j->hooked++ == j->microbatch && j->fails == 7)
        sherd_world_fail(j->world, SHERD_EINVAL, "the hook has seen it");
    return NULL;
}

static void open_job(job *j, sherd_world *world, sherd_pipeline_schedule schedule)
{
    static const char *const meshes[PLACES] = {"x=1", "x=1@1"};

    *j = (job){.world = world, .work = {.count = COUNT, .feed = feed, .loss = find_loss}};
    j->work.payload = j;
    for (int i = 0; i < STAGES; i++) {
        const sherd_mesh *mesh = NULL;
        CHECK_OK(sherd_mesh_parse(&mesh, world, meshes[place_of(i, PLACES, schedule)]));
        j->stage[i] = (sherd_stage){mesh, make_stage(world, i), NULL};
        CHECK_OK(sherd_parallelize(j->stage[i].module, mesh, "x", NULL, 0));
    }
    CHECK_OK(sherd_tensor_hook(
        NULL, sherd_module_parameter(sherd_module_find(j->stage[1].module, "net"), "weight"), look,
        j, NULL));
}

static void close_job(job *j)
{
    sherd_pipeline_destroy(j->pipeline);
    for (int i = 0; i < STAGES; i++)
        sherd_module_destroy(j->stage[i].module);
}

static void clear(job *j)
{
    sherd_named_parameter list[16];

    for (int i = 0; i < STAGES; i++) {
        int count = sherd_module_all_parameters(j->stage[i].module, list, LEN(list));
        for (int n = 0; n < count; n++)
            sherd_clear_grad(list[n].tensor);
    }
}

static double run_well(job *j)
{
    double loss = sherd_pipeline_run(j->pipeline, &j->work);

    CHECK_OK(sherd_world_check(j->world));
    clear(j);
    return loss;
}

static void run_without_memory(sherd_world *world, int where, sherd_pipeline_schedule schedule)
{
    sherd_status status = SHERD_ENOMEM;
    int failures = 0;
    job j;

    open_job(&j, world, schedule);
    CHECK_OK(sherd_pipeline_create(&j.pipeline, world, j.stage, STAGES, schedule));
    if (schedule != SHERD_PIPELINE_1F1B) {
        CHECK_OK(sherd_pipeline_tie(j.pipeline, 0, "net.weight", 3, "net.weight"));
        CHECK_OK(sherd_pipeline_tie(j.pipeline, 1, "net.bias", 3, "net.bias"));
    }
    double wanted = run_well(&j);
    int64_t held = sherd_world_memory(world).live_bytes;
    /* every allocation of a rank's, then some */
    for (int i = 1; status && i < 4000; i += i < 60 ? 1 : 7) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == where ? i : 0);
        double loss = sherd_pipeline_run(j.pipeline, &j.work);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(loss == wanted || (status && isnan(loss)));
        failures += status == SHERD_ENOMEM;
        clear(&j);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        CHECK_EQ(sherd_world_memory(world).live_bytes, held);
        if (failures % 16 == 1)
            CHECK_EQ(run_well(&j), wanted);
    }
    CHECK_OK(status);
    CHECK(where == PLACES || failures > 100);
    close_job(&j);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    for (int rank = 0; rank < sherd_world_ranks(world); rank++) {
        run_without_memory(world, rank, SHERD_PIPELINE_1F1B);
        run_without_memory(world, rank,
                           rank ? SHERD_PIPELINE_ZERO_BUBBLE : SHERD_PIPELINE_ZERO_BUBBLE_V);
    }
}

static void no_memory_for_making_one(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;
    int failures = 0, last = sherd_world_ranks(world) - 1;
    job j;

    open_job(&j, world, SHERD_PIPELINE_1F1B);
    for (int i = 1; status && i < 500; i++) {
        sherd_world_fail_allocation(world, sherd_world_rank(world) == last ? i : 0);
        status = sherd_pipeline_create(&j.pipeline, world, j.stage, STAGES, SHERD_PIPELINE_GPIPE);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && !j.pipeline));
        failures += status != SHERD_OK;
        CHECK_OK(sherd_world_check(world));
    }
    CHECK(failures >= 5);
    run_well(&j);
    close_job(&j);
}

static void no_memory_for_a_tie(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;
    int failures = 0, last = sherd_world_ranks(world) - 1;
    job j;

    open_job(&j, world, SHERD_PIPELINE_1F1B);
    CHECK_OK(sherd_pipeline_create(&j.pipeline, world, j.stage, STAGES, SHERD_PIPELINE_1F1B));
    for (int i = 1; status && i < 500; i++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == last ? i : 0);
        status = sherd_pipeline_tie(j.pipeline, 0, "net.weight", 3, "net.weight");
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        failures += status != SHERD_OK;
        sherd_status later = sherd_world_check(world);
        CHECK(later == SHERD_OK || later == status);
        sherd_scope_end(world);
    }
    CHECK_OK(status);
    CHECK(failures >= 5);
    run_well(&j);
    close_job(&j);
}

/* A parameter that is cast after it was tied is another one, which nothing ties. */
static void a_tied_parameter_is_not_cast(sherd_world *world)
{
    job j;

    open_job(&j, world, SHERD_PIPELINE_1F1B);
    CHECK_OK(sherd_pipeline_create(&j.pipeline, world, j.stage, STAGES, SHERD_PIPELINE_1F1B));
    CHECK_OK(sherd_pipeline_tie(j.pipeline, 0, "net.weight", 3, "net.weight"));
    for (int i = 0; i < STAGES; i++)
        if (j.stage[i].module)
            CHECK_OK(sherd_module_cast(j.stage[i].module, SHERD_F32));
    sherd_pipeline_run(j.pipeline, &j.work);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "got another layout or dtype after") != NULL);
    close_job(&j);
}

/* There and back, ranks that have told the loss may not have seen the last place's failure yet. */
static void make_mistakes(sherd_world *world, sherd_pipeline_schedule schedule)
{
    static const char *const wanted[] = {NULL,
                                         "the feed has nothing",
                                         NULL,
                                         "is NULL",
                                         "the loss of microbatch ",
                                         "cannot run it again",
                                         "it is running",
                                         "the hook has seen it",
                                         "the pipeline is running",
                                         " is of another world",
                                         "sherd_add: "};
    sherd_world *other = NULL;
    job j;

    CHECK_OK(sherd_world_alone(&other, &(sherd_world_options){.no_pin = true}));
    open_job(&j, world, schedule);
    j.foreign = sherd_constant(other, SHERD_F64, NULL, 0, 1);
    CHECK_OK(sherd_pipeline_create(&j.pipeline, world, j.stage, STAGES, schedule));
    double good = run_well(&j);
    for (j.fails = 1; j.fails < LEN(wanted); j.fails++)
        for (j.microbatch = 0; j.microbatch < COUNT; j.microbatch++) {
            j.hooked = 0;
            double loss = sherd_pipeline_run(j.pipeline, &j.work);
            CHECK(isnan(loss) || (schedule == SHERD_PIPELINE_ZERO_BUBBLE_V && loss == good));
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            if (wanted[j.fails])
                CHECK(strstr(sherd_world_error(world), wanted[j.fails]) != NULL);
            int fails = j.fails;
            j.fails = 0;
            CHECK_EQ(sherd_saved_bytes(world), 0);
            clear(&j);
            CHECK_EQ(run_well(&j), good);
            j.fails = fails;
        }
    close_job(&j);
    CHECK_OK(sherd_world_close(other));
}

static void mistakes_of_one_stage_are_told_to_all(sherd_world *world)
{
    make_mistakes(world, SHERD_PIPELINE_1F1B);
    make_mistakes(world, SHERD_PIPELINE_ZERO_BUBBLE);
    make_mistakes(world, SHERD_PIPELINE_ZERO_BUBBLE_V);
}

/* Other numbers of microbatches, other kinds of runs. */
static void ranks_that_differ_are_told(sherd_world *world)
{
    job j;

    open_job(&j, world, SHERD_PIPELINE_1F1B);
    CHECK_OK(sherd_pipeline_create(&j.pipeline, world, j.stage, STAGES, SHERD_PIPELINE_1F1B));
    double good = run_well(&j);
    for (int what = 0; what < 2; what++)
        for (int rank = 0; rank < PLACES; rank++) {
            bool me = sherd_world_rank(world) == rank;
            if (me && what == 0)
                j.work.count = COUNT - 1;
            if (me && what == 1)
                j.work.forward_only = true;
            sherd_pipeline_run(j.pipeline, &j.work);
            CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
            j.work.count = COUNT;
            j.work.forward_only = false;
            clear(&j);
            CHECK_EQ(run_well(&j), good);
        }
    close_job(&j);
}

static const check_test tests[] = {
    {TEST(no_memory_fails_on_all), {2, 3}},
    {TEST(no_memory_for_making_one), {2}},
    {TEST(a_tied_parameter_is_not_cast), {2, 3}},
    {TEST(no_memory_for_a_tie), {2, 3}},
    {TEST(mistakes_of_one_stage_are_told_to_all), {2, 3}},
    {TEST(ranks_that_differ_are_told), {2, 3}},
};
CHECK_MAIN(tests)
