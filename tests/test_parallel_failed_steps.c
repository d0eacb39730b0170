/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks go on with after steps that have failed. The generators of modules: ranks have drawn at
 * different places, and after the check all stand where they stood at the last good one, so that
 * the next step draws what the one that failed would have. Lost tensors that only some still have.
 */
#include <sherd.h>

#include "models.h"
#include "sherd/pipeline.h"

#include <time.h>

enum { ROWS = 6, WIDTH = 8, STEPS = 3, STAGES = 2, COUNT = 3 };

static void drop_all(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const sherd_attention_options how = {.dropout = 0.4, .generator = sherd_module_generator(self)};
    sherd_tensor *x = sherd_mul(in->value[0], sherd_module_parameter(self, "gain")), *q;

    x = sherd_module_call(sherd_module_find(self, "drop"), x);
    q = sherd_view(x, (int64_t[]){ROWS, 2, 1, WIDTH / 2}, 4);

    out->value[out->count++] = sherd_view(sherd_attention(q, q, q, &how), sherd_tensor_shape(x), 2);
}

static sherd_module *make_model(sherd_world *world)
{
    sherd_module *m = container(world, drop_all, NULL), *drop = NULL;

    CHECK_OK(sherd_dropout_create(&drop, world, 0.5));
    add_layer(m, "drop", drop);
    CHECK_OK(sherd_module_add_parameter(m, "gain",
                                        wave(world, SHERD_F64, 1, (int64_t[]){WIDTH}, 3, 0.5, 1)));
    return m;
}

static double one_step(sherd_module *m, const sherd_mesh *mesh)
{
    sherd_tensor *x = spread(
        wave(sherd_module_world(m), SHERD_F64, 2, (int64_t[]){ROWS, WIDTH}, 1, 1, 2), mesh, "S(0)");

    return sherd_item(sherd_sum(sherd_square(sherd_module_call(m, x))));
}

static void a_step_that_one_rank_skips_draws_nothing(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *quiet = make_model(world), *m = make_model(world);
    bool skips = sherd_world_rank(world) == sherd_world_ranks(world) - 1;

    for (int i = 0; i < STEPS; i++) {
        sherd_scope_begin(world);
        double wanted = one_step(quiet, mesh);
        CHECK_OK(sherd_world_check(world));
        if (skips)
            sherd_world_fail(world, SHERD_EINVAL, "no batch here");
        else
            one_step(m, mesh);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(one_step(m, mesh), wanted);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
    CHECK_EQ(sherd_module_generator(m)->calls, STEPS);
    sherd_module_destroy(m);
    sherd_module_destroy(quiet);
}

/* What the program puts there itself stays. */
static void a_generator_that_is_set_stays(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = make_model(world);
    sherd_generator *g = sherd_module_generator(m), other = sherd_generator_named("other");

    CHECK_OK(sherd_world_check(world));
    other.calls = 7;
    *g = other;
    sherd_world_fail(world, SHERD_EINVAL, "for another reason");
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(g->name == other.name && g->calls == 7);
    CHECK_OK(sherd_world_check(world));
    g->calls = 4; /* on all ranks; then only some draw */
    if (sherd_world_rank(world) == 0)
        sherd_world_fail(world, SHERD_EINVAL, "no batch here");
    else
        one_step(m, mesh);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(g->calls, 7);
    /* a function that fails alike on all ranks is no check */
    one_step(m, mesh);
    CHECK_EQ(g->calls, 8);
    CHECK_EQ(sherd_parallelize(m, mesh, "no such axis", NULL, 0), SHERD_EINVAL);
    CHECK_EQ(g->calls, 8);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- pipelines, which skip their turns after a failure ---------------------------------------- */

typedef struct job {
    sherd_world *world;
    sherd_stage stage[STAGES];
    sherd_pipeline *pipeline;
    sherd_microbatches work;
} job;

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    const job *j = payload;

    if (stage == 0)
        in->value[in->count++] = sherd_distribute_as(
            wave(j->world, SHERD_F64, 2, (int64_t[]){ROWS, WIDTH}, (int)microbatch, 1, 2),
            j->stage[0].mesh, "S(0)", -1);
}

static sherd_tensor *loss_of(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload;
    (void)microbatch;
    return sherd_sum(sherd_square(out->value[0]));
}

static void open_job(job *j, sherd_world *world)
{
    *j = (job){.world = world, .work = {COUNT, false, feed, loss_of, NULL}};
    j->work.payload = j;
    for (int i = 0; i < STAGES; i++) {
        sherd_module *m = make_model(world);
        j->stage[i] = (sherd_stage){mesh_of(world, i ? "x=2@2,3" : "x=2"), m, "S(0)"};
        CHECK_OK(sherd_parallelize(m, j->stage[i].mesh, "x", NULL, 0));
    }
    CHECK_OK(sherd_pipeline_create(&j->pipeline, world, j->stage, STAGES, SHERD_PIPELINE_1F1B));
}

static void close_job(job *j)
{
    sherd_pipeline_destroy(j->pipeline);
    for (int i = 0; i < STAGES; i++)
        sherd_module_destroy(j->stage[i].module);
}

static double run(job *j, sherd_status *status)
{
    double loss = sherd_pipeline_run(j->pipeline, &j->work);

    sherd_world_fail_allocation(j->world, 0);
    *status = sherd_world_check(j->world);
    for (int i = 0; i < STAGES; i++)
        sherd_clear_grad(sherd_module_parameter(j->stage[i].module, "gain"));
    return loss;
}

static void a_pipeline_that_fails_draws_nothing(sherd_world *world)
{
    job quiet, j;
    sherd_status status;
    int failures = 0;

    open_job(&quiet, world);
    open_job(&j, world);
    for (int i = 1; i < 400; i += 13) {
        sherd_scope_begin(world);
        double wanted = run(&quiet, &status), loss;
        CHECK_OK(status);
        if (sherd_world_rank(world) == i % sherd_world_ranks(world))
            sherd_world_fail_allocation(world, i);
        loss = run(&j, &status);
        if (status) {
            failures++;
            loss = run(&j, &status);
            CHECK_OK(status);
        }
        CHECK_EQ(loss, wanted);
        sherd_scope_end(world);
    }
    CHECK(failures > 10);
    close_job(&j);
    close_job(&quiet);
}

/* ---- what is revived -------------------------------------------------------------------------- */

static sherd_tensor *wave_on(sherd_world *world, int k)
{
    return sherd_tensor_retain(
        spread(wave(world, SHERD_F64, 1, (int64_t[]){WIDTH}, k, 1, 0), line_of_ranks(world), "R"));
}

/* A rank that was through with its step has cleared gradients that others still have. */
static void what_some_have_released_is_revived(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    sherd_scope_begin(world);
    sherd_tensor *kept = wave_on(world, 1), *sum = wave_on(world, 2);
    sherd_scope_end(world);

    CHECK_OK(sherd_world_check(world));
    sherd_fill(kept, 1);
    sherd_fill(sum, 2);
    if (rank == ranks - 1) {
        nanosleep(&(struct timespec){0, 5000000}, NULL); /* the others are through with theirs */
        sherd_world_fail(world, SHERD_EINVAL, "not through with it");
    } else {
        sherd_fill(sum, 3);
        sherd_fill(kept, 4);
        sherd_tensor_release(sum);
    }
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(sherd_tensor_revive_all(world), ranks == 1 ? 0 : rank == ranks - 1 ? 2 : 1);
    CHECK(!sherd_tensor_failed(kept));
    sherd_fill(kept, 5); /* what is revived may differ, which SHERD_VERIFY would tell */
    CHECK_OK(sherd_world_check(world));
    if (rank == ranks - 1)
        sherd_tensor_release(sum);
    sherd_tensor_release(kept);
}

static const check_test tests[] = {
    {TEST(a_step_that_one_rank_skips_draws_nothing), {1, 2, 3, 4, 8}},
    {TEST(a_generator_that_is_set_stays), {1, 2}},
    {TEST(what_some_have_released_is_revived), {1, 2, 3, 8}},
    {TEST(a_pipeline_that_fails_draws_nothing), {4}},
};
CHECK_MAIN(tests)
