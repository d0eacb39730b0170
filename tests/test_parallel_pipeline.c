/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline computes what the whole model computes: losses and gradients, on any number of places
 * and stages, with any parallelism in a stage, by every schedule, and again in the next step.
 */
#include <sherd.h>

#include "pipelines.h"

typedef struct setup {
    const char *mesh[4]; /* of places; NULL: no more */
    int stages;
    const char *style;  /* C: Colwise, R: Rowwise; -: replicated, and rows of the input sharded */
    const char *arrive; /* placements */
} setup;

typedef struct job {
    sherd_world *world;
    const setup *s;
    const sherd_mesh *mesh[4];
    int places;
    sherd_stage stage[STAGES_AT_MOST];
    sherd_module *plain[STAGES_AT_MOST];
    sherd_pipeline *pipeline;
    int64_t losses; /* of the last stage that were asked for */
    int64_t saved;  /* most bytes for backward, as the first stage began a microbatch */
} job;

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    job *j = payload;
    const char *placements = strchr(j->s->style, '-') ? "S(0)" : "R";

    if (stage > 0)
        return;
    if (sherd_saved_bytes(j->world) > j->saved)
        j->saved = sherd_saved_bytes(j->world);
    sherd_tensor *x = spread(input_of(j->world, microbatch), j->mesh[0], placements);
    in->value[0] = in->value[1] = x;
    in->value[2] = spread(indices_of(j->world, microbatch), j->mesh[0], "R");
    in->count = 3;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    job *j = payload;
    double indices[ROWS_AT_LEAST + 4];

    CHECK(out->count == 3 || out->count == 4);
    CHECK_EQ(sherd_tensor_dtype(out->value[2]), SHERD_I64);
    sherd_tensor *all = sherd_cast(out->value[2], SHERD_F64);
    CHECK_EQ(whole(all, indices), rows_of(microbatch));
    for (int64_t i = 0; i < rows_of(microbatch); i++)
        CHECK_EQ(indices[i], 100 * microbatch + i);
    j->losses++;
    return loss_of(out);
}

static void open_job(job *j, sherd_world *world, const setup *s, sherd_pipeline_schedule schedule)
{
    *j = (job){.world = world, .s = s};
    for (; j->places < 4 && s->mesh[j->places]; j->places++)
        CHECK_OK(sherd_mesh_parse(&j->mesh[j->places], world, s->mesh[j->places]));
    for (int i = 0; i < s->stages; i++) {
        char style = s->style[i % (int)strlen(s->style)];
        const sherd_parallel_entry plan = {"net", style == 'C' ? sherd_colwise() : sherd_rowwise()};
        j->plain[i] = make_stage(world, i);
        const sherd_mesh *mesh = j->mesh[place_of(i, j->places, schedule)];
        j->stage[i] = (sherd_stage){mesh, make_stage(world, i), s->arrive};
        CHECK_OK(sherd_parallelize(j->stage[i].module, j->stage[i].mesh, "x", &plan, style != '-'));
    }
    CHECK_OK(sherd_pipeline_create(&j->pipeline, world, j->stage, s->stages, schedule));
}

static void close_job(job *j)
{
    sherd_pipeline_destroy(j->pipeline);
    for (int i = 0; i < j->s->stages; i++) {
        sherd_module_destroy(j->stage[i].module);
        sherd_module_destroy(j->plain[i]);
    }
}

/* Gradients of this rank's stages are those of the whole model. */
static void compare_gradients(job *j)
{
    static const char *const names[] = {"net.weight", "net.bias", "gain"};

    for (int i = 0; i < j->s->stages; i++) {
        if (!sherd_mesh_coordinate(j->stage[i].mesh, sherd_world_rank(j->world), NULL))
            continue;
        for (int n = 0; n < (i == 0 ? 3 : 2); n++) {
            static _Thread_local double wanted[MOST];
            const char *name = n == 2 ? names[n] : names[n] + 4;
            sherd_module *a = n == 2 ? j->plain[i] : sherd_module_find(j->plain[i], "net");
            sherd_module *b =
                n == 2 ? j->stage[i].module : sherd_module_find(j->stage[i].module, "net");
            int64_t count = whole(sherd_grad(sherd_module_parameter(a, name)), wanted);
            CHECK(count > 0);
            CHECK(distance_to(sherd_grad(sherd_module_parameter(b, name)), wanted, count) < 1e-12);
        }
    }
}

static void run_case(sherd_world *world, const setup *s, sherd_pipeline_schedule schedule,
                     int64_t count)
{
    sherd_microbatches work = {.count = count, .feed = feed, .loss = find_loss};
    job j;

    open_job(&j, world, s, schedule);
    work.payload = &j;
    double wanted = run_whole(j.plain, s->stages, count), first = 0;
    int64_t saved = sherd_saved_bytes(world);
    for (int step = 0; step < 2; step++) {
        double loss = sherd_pipeline_run(j.pipeline, &work);
        CHECK_OK(sherd_world_check(world));
        CHECK_NEAR(loss, wanted, 1e-12 * fabs(wanted));
        CHECK_EQ(sherd_saved_bytes(world), saved);
        CHECK(step == 0 || loss == first);
        first = loss;
        if (step == 0)
            compare_gradients(&j);
    }
    bool last = sherd_mesh_coordinate(j.stage[s->stages - 1].mesh, sherd_world_rank(world), NULL);
    CHECK_EQ(j.losses, last ? 2 * count : 0);
    run_whole(j.plain, s->stages, count);
    compare_gradients(&j); /* the second step added to the first */
    work.forward_only = true;
    CHECK_EQ(sherd_pipeline_run(j.pipeline, &work), first);
    work.loss = NULL;
    CHECK_EQ(sherd_pipeline_run(j.pipeline, &work), 0);
    CHECK_EQ(sherd_saved_bytes(world), saved);
    CHECK_OK(sherd_world_check(world));
    close_job(&j);
}

/* There and back there are two stages at each place. */
static bool takes(const setup *s, int schedule)
{
    int places = 0;

    while (places < 4 && s->mesh[places])
        places++;
    return schedule != SHERD_PIPELINE_ZERO_BUBBLE_V || s->stages == 2 * places;
}

static void run_cases(sherd_world *world, const setup *list, int cases)
{
    static const int64_t counts[] = {1, 3, 4, 9};

    for (int c = 0; c < cases; c++)
        for (int schedule = 0; schedule < 4; schedule++)
            for (int n = 0; n < LEN(counts) && takes(&list[c], schedule); n++) {
                sherd_scope_begin(world);
                run_case(world, &list[c], (sherd_pipeline_schedule)schedule, counts[n]);
                sherd_scope_end(world);
            }
}

static void one_place_computes_what_the_model_does(sherd_world *world)
{
    static const setup list[] = {
        {{"x=1"}, 1, "C", NULL}, {{"x=1"}, 3, "CR", NULL}, {{"x=1"}, 2, "C", NULL}};
    static const setup two[] = {{{"x=2"}, 3, "CR", NULL}};

    run_cases(world, list, LEN(list));
    if (sherd_world_ranks(world) > 1)
        run_cases(world, two, LEN(two));
}

static void two_places_do(sherd_world *world)
{
    static const setup list[] = {{{"x=1", "x=1@1"}, 2, "C", NULL},
                                 {{"x=1@1", "x=1@0"}, 4, "R", "R"},
                                 {{"x=1", "x=1@1"}, 5, "CR", "S(0)"}};
    run_cases(world, list, LEN(list));
}

static void some_ranks_may_have_no_stage(sherd_world *world)
{
    static const setup list[] = {{{"x=1@2", "x=1@1"}, 3, "C", NULL},
                                 {{"x=1@2", "x=1@0", "x=1@1"}, 3, "R", NULL}};
    run_cases(world, list, LEN(list));
}

static void stages_are_parallel_inside(sherd_world *world)
{
    static const setup list[] = {{{"x=2", "x=2@2,3"}, 2, "C", NULL},
                                 {{"x=2", "x=2@3,2"}, 4, "CR", "R"},
                                 {{"x=2@2,0", "x=2@1,3"}, 2, "R", "S(0)"},
                                 {{"x=3", "x=1@3"}, 4, "CR", NULL},
                                 {{"x=2", "x=2@2,3"}, 2, "-", NULL}};
    run_cases(world, list, LEN(list));
}

static void eight_ranks_have_many_stages(sherd_world *world)
{
    static const setup list[] = {{{"x=2", "x=2@2,3", "x=2@4,5", "x=2@6,7"}, 4, "C", NULL},
                                 {{"x=3", "x=2@3,4", "x=3@7,6,5"}, 7, "RC", NULL}};
    run_cases(world, list, LEN(list));
}

/* What the first place keeps does not grow with the number of microbatches, but for GPipe's. */
static void activations_of_few_microbatches_are_kept(sherd_world *world)
{
    static const setup s = {{"x=1", "x=1@1"}, 2, "C", NULL};
    static const int64_t counts[] = {4, 32};
    int64_t saved[3][LEN(counts)];

    for (int schedule = 0; schedule < 3; schedule++)
        for (int n = 0; n < LEN(counts); n++) {
            job j;
            open_job(&j, world, &s, (sherd_pipeline_schedule)schedule);
            const sherd_microbatches work = {counts[n], false, feed, find_loss, &j};
            sherd_scope_begin(world);
            sherd_pipeline_run(j.pipeline, &work);
            sherd_scope_end(world);
            CHECK_OK(sherd_world_check(world));
            saved[schedule][n] = j.saved;
            close_job(&j);
        }
    if (sherd_world_rank(world) > 0)
        return;
    CHECK(saved[SHERD_PIPELINE_1F1B][0] > 0);
    CHECK_EQ(saved[SHERD_PIPELINE_1F1B][1], saved[SHERD_PIPELINE_1F1B][0]);
    CHECK_EQ(saved[SHERD_PIPELINE_ZERO_BUBBLE][1], saved[SHERD_PIPELINE_ZERO_BUBBLE][0]);
    CHECK(saved[SHERD_PIPELINE_ZERO_BUBBLE][0] <= saved[SHERD_PIPELINE_1F1B][0]);
    CHECK(saved[SHERD_PIPELINE_GPIPE][1] > 8 * saved[SHERD_PIPELINE_GPIPE][0]);
}

/* ---- outputs as they come -------------------------------------------------------------------- */

static void multiply(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[out->count++] = sherd_matmul(in->value[0], sherd_module_parameter(self, "w"));
}

static void feed_ones(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    (void)microbatch;
    if (stage == 0)
        in->value[in->count++] = sherd_constant_on(payload, SHERD_F64, 1);
}

static sherd_tensor *sum_of_squares(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload, (void)microbatch;
    return sherd_sum(sherd_square(out->value[0]));
}

/* The sum over a sharded dim is pending; a stage at the same place takes it, and its gradient comes
 * back. */
static void a_pending_output_goes_on(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *layout = NULL;
    double grad[16];

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, SHAPE(3, 4), "R", NULL));
    for (int schedule = 0; schedule < 4; schedule++) {
        sherd_stage stage[2];
        sherd_pipeline *p = NULL;
        const sherd_microbatches work = {2, false, feed_ones, sum_of_squares, (void *)layout};
        for (int i = 0; i < 2; i++) {
            stage[i] = (sherd_stage){mesh, container(world, multiply, NULL), NULL};
            sherd_tensor *w =
                spread(sherd_constant(world, SHERD_F64, SHAPE(4, 4), 2, 0.5), mesh, "S(0)");
            CHECK_OK(sherd_module_add_parameter(stage[i].module, "w", sherd_require_grad(w, true)));
        }
        CHECK_OK(sherd_pipeline_create(&p, world, stage, 2, (sherd_pipeline_schedule)schedule));
        CHECK_EQ(sherd_pipeline_run(p, &work), 2 * 12 * 16);
        for (int i = 0; i < 2; i++) {
            whole(sherd_grad(sherd_module_parameter(stage[i].module, "w")), grad);
            for (int k = 0; k < 16; k++)
                CHECK_EQ(grad[k], 96);
        }
        CHECK_OK(sherd_world_check(world));
        sherd_pipeline_destroy(p);
        for (int i = 0; i < 2; i++)
            sherd_module_destroy(stage[i].module);
    }
}

/* ---- plain tensors ---------------------------------------------------------------------------- */

static sherd_tensor *plain_ones(sherd_world *world)
{
    return sherd_constant(world, SHERD_F64, SHAPE(3, 4), 2, 1);
}

static void feed_plain(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    (void)microbatch;
    if (stage == 0)
        in->value[in->count++] = plain_ones(payload);
}

/* A second tensor that the next stage does not use, if it is asked for. */
static void multiply_plain(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const bool *more = sherd_module_payload(self);
    sherd_tensor *w = sherd_module_parameter(self, "w");

    out->value[out->count++] = sherd_matmul(in->value[0], w);
    if (*more)
        out->value[out->count++] = sherd_scale(w, 2);
}

/* What is plain and equal on all ranks goes on as it is, and its gradient comes back. */
static void a_plain_output_gets_its_gradient(sherd_world *world)
{
    static bool more[] = {false, true};
    double grad[16];

    for (int k = 0; k < 6; k++) {
        sherd_stage stage[3];
        sherd_pipeline *p = NULL;
        const sherd_microbatches work = {2, false, feed_plain, sum_of_squares, world};
        for (int i = 0; i < 3; i++) {
            stage[i] = (sherd_stage){line_of_ranks(world),
                                     container(world, multiply_plain, &more[k % 2]), NULL};
            sherd_tensor *w = sherd_constant(world, SHERD_F64, SHAPE(4, 4), 2, 0.5);
            CHECK_OK(sherd_module_add_parameter(stage[i].module, "w", w));
        }
        CHECK_OK(sherd_pipeline_create(&p, world, stage, 3, (sherd_pipeline_schedule)(k / 2)));
        CHECK_EQ(sherd_pipeline_run(p, &work), 2 * 12 * 64);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(whole(sherd_grad(sherd_module_parameter(stage[i].module, "w")), grad), 16);
            for (int j = 0; j < 16; j++)
                CHECK_EQ(grad[j], 384);
        }
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "  %d: %s\n", k, sherd_world_error(world));
        sherd_pipeline_destroy(p);
        for (int i = 0; i < 3; i++)
            sherd_module_destroy(stage[i].module);
    }
}

static const check_test tests[] = {{TEST(one_place_computes_what_the_model_does), {1, 2}},
                                   {TEST(two_places_do), {2}},
                                   {TEST(activations_of_few_microbatches_are_kept), {2}},
                                   {TEST(some_ranks_may_have_no_stage), {3}},
                                   {TEST(stages_are_parallel_inside), {4}},
                                   {TEST(eight_ranks_have_many_stages), {8}},
                                   {TEST(a_pending_output_goes_on), {1, 2, 3, 4}},
                                   {TEST(a_plain_output_gets_its_gradient), {1, 2, 3, 4}}};
CHECK_MAIN(tests)
