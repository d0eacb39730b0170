/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters frozen by a pattern stay as they are, with their optimizer's state, and the others
 * train as they do beside parameters that were frozen one by one: on any mesh, fully sharded, tied,
 * between a forward and its backward, in pipelines; and they go on when they are thawed.
 */
#include <sherd.h>

#include "pipelines.h"

enum { STEPS = 6, ROWS = 12, IN = 4, HIDDEN = 12, OUT = 4, FROZEN_FROM = 2, FROZEN_TO = 4 };

/* ---- patterns -------------------------------------------------------------------------------- */

static sherd_module *child_of(sherd_module *parent, const char *name)
{
    return add_layer(parent, name, container(sherd_module_world(parent), NULL, NULL));
}

/* layers.{0,1}.{attention.{q,k},mlp}.{weight,bias}, and head.weight, which is q's of layer 0. */
static sherd_module *tree(sherd_world *world)
{
    sherd_module *root = container(world, NULL, NULL), *layers = child_of(root, "layers");

    for (int i = 0; i < 2; i++) {
        sherd_module *layer = child_of(layers, i ? "1" : "0");
        sherd_module *attention = child_of(layer, "attention");
        linear_layer(attention, "q", SHERD_F32, 3, 3, 1);
        linear_layer(attention, "k", SHERD_F32, 3, 3, 2);
        linear_layer(layer, "mlp", SHERD_F32, 3, 3, 3);
    }
    sherd_module *q = sherd_module_find(root, "layers.0.attention.q");
    CHECK_OK(sherd_module_add_parameter(child_of(root, "head"), "weight",
                                        sherd_module_parameter(q, "weight")));
    return root;
}

/* How many require a gradient. */
static int trained(const sherd_module *m)
{
    sherd_named_parameter all[16];
    int n = sherd_module_all_parameters(m, all, 16), count = 0;

    CHECK_EQ(n, 12);
    for (int i = 0; i < n; i++)
        count += sherd_requires_grad(all[i].tensor);
    return count;
}

static void patterns_say_which(sherd_world *world)
{
    static const struct {
        const char *pattern;
        int count;
    } cases[] = {{"**", 12},
                 {"layers.*.attention.**", 8},
                 {"layers.*.attention.*.weight", 4},
                 {"layers.1.**", 6},
                 {"**.bias", 6},
                 {"**.**.bias", 6},
                 {"head.weight", 1},
                 {"head.*", 1},
                 {"layers.0.mlp.[bw]*", 2},
                 {"layers.0.mlp", 0},
                 {"layers.*", 0},
                 {"layers.2.**", 0},
                 {"", 0}};
    sherd_module *m = tree(world);

    for (int i = 0; i < LEN(cases); i++) {
        CHECK_EQ(sherd_module_require_grad(m, cases[i].pattern, false), cases[i].count);
        CHECK_EQ(trained(m), 12 - cases[i].count);
        CHECK_EQ(sherd_module_require_grad(m, "**", true), 12);
        CHECK_EQ(trained(m), 12);
    }
    /* A tied parameter, by its second name. */
    CHECK_EQ(sherd_module_require_grad(m, "head.weight", false), 1);
    sherd_module *q = sherd_module_find(m, "layers.0.attention.q");
    CHECK(!sherd_requires_grad(sherd_module_parameter(q, "weight")));
    CHECK_EQ(sherd_module_require_grad(q, "weight", true), 1);
    CHECK_EQ(trained(m), 12);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- training -------------------------------------------------------------------------------- */

typedef enum way { PLAIN, REPLICATED, STYLES, SHARDED, WAYS } way;

static sherd_module *model(sherd_world *world, const sherd_mesh *mesh, way w)
{
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    sherd_module *m = mlp(world, SHERD_F64, IN, HIDDEN, OUT);

    if (w == REPLICATED || w == STYLES)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, w == STYLES ? 2 : 0));
    if (w == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
    return m;
}

static void freeze(sherd_module *m, way w, bool frozen)
{
    sherd_module *net1 = sherd_module_find(m, "net1");

    if (w == PLAIN) { /* one by one */
        sherd_require_grad(sherd_module_parameter(net1, "weight"), !frozen);
        sherd_require_grad(sherd_module_parameter(net1, "bias"), !frozen);
    } else {
        CHECK_EQ(sherd_module_require_grad(m, "net1.*", !frozen), 2);
    }
}

/* All of the optimizer's state of net1, and its parameters, added up. */
static double digest(sherd_module *m, sherd_optimizer *o)
{
    static _Thread_local double x[MOST];
    sherd_module *net1 = sherd_module_find(m, "net1");
    sherd_named_state all[16];
    int n = sherd_optimizer_state(o, all, 16);
    double sum = 0;

    CHECK(n <= 14);
    all[n++].tensor = sherd_module_parameter(net1, "weight");
    all[n++].tensor = sherd_module_parameter(net1, "bias");
    for (int i = 0; i < n; i++) {
        if (i < n - 2 && strcmp(all[i].path, "net1") != 0)
            continue;
        for (int64_t k = whole(all[i].tensor, x); k > 0; k--)
            sum += (double)(k + i) * x[k - 1];
    }
    return sum;
}

/* net1 is frozen between a forward and its backward, and thawed between two steps. */
static void train(sherd_world *world, const sherd_mesh *mesh, way w, double *loss)
{
    const char *rows = w == SHARDED || w == REPLICATED ? "S(0)" : "R";
    sherd_module *m = model(world, mesh, w);
    sherd_optimizer *o = NULL;
    double kept = 0;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < STEPS; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, IN), 3 + step, 1, 0);
        sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(ROWS, OUT), 5 + step, 1, 0);
        if (w != PLAIN) {
            x = spread(x, mesh, rows);
            t = spread(t, mesh, rows);
        }
        sherd_tensor *l = squared_error(sherd_module_call(m, x), t);
        if (step == FROZEN_FROM)
            freeze(m, w, true);
        if (step == FROZEN_FROM)
            kept = digest(m, o);
        sherd_backward(l);
        loss[step] = sherd_item(l);
        sherd_optimizer_step(o, 0.03, 1);
        sherd_optimizer_clear(o);
        CHECK_EQ(digest(m, o) == kept, step >= FROZEN_FROM && step < FROZEN_TO);
        sherd_scope_end(world);
        if (step == FROZEN_TO - 1)
            freeze(m, w, false);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void what_is_frozen_stays(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    double wanted[STEPS], loss[STEPS];

    train(world, mesh, PLAIN, wanted);
    for (int w = PLAIN + 1; w < WAYS; w++) {
        train(world, mesh, (way)w, loss);
        for (int i = 0; i < STEPS; i++)
            CHECK_NEAR(loss[i], wanted[i], 1e-11);
    }
}

/* As in PyTorch. */
static void a_gradient_that_is_there_is_used(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = model(world, mesh, STYLES);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    for (int clears = 0; clears < 2; clears++) {
        sherd_scope_begin(world);
        sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(ROWS, IN), 3, 1, 0), mesh, "R");
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        CHECK_EQ(sherd_module_require_grad(m, "**", false), 4);
        if (clears)
            sherd_optimizer_clear(o);
        double before = digest(m, o);
        sherd_optimizer_step(o, 0.1, 1);
        CHECK_EQ(digest(m, o) == before, clears);
        CHECK_EQ(sherd_module_require_grad(m, "**", true), 4);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void freezes_itself(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    CHECK_EQ(sherd_module_require_grad(self, "weight", false), 0);
    out->value[out->count++] = in->value[0];
}

/* Its parameters are gathered then: those that train are others. */
static void a_sharded_module_is_not_frozen_in_its_call(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = container(world, freezes_itself, NULL);
    sherd_tensor *w = wave(world, SHERD_F64, 2, SHAPE(ROWS, IN), 3, 1, 0);

    CHECK_OK(sherd_module_add_parameter(m, "weight", w));
    CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
    sherd_module_call(m, spread(wave(world, SHERD_F64, 2, SHAPE(ROWS, IN), 3, 1, 0), mesh, "S(0)"));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_requires_grad(sherd_module_parameter(m, "weight")));
    CHECK_EQ(sherd_module_require_grad(m, "weight", false), 1);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- pipelines ------------------------------------------------------------------------------- */

enum { STAGES = 4, MICROBATCHES = 5 };

typedef struct job {
    sherd_world *world;
    const sherd_mesh *mesh[STAGES];
    int places;
} job;

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    job *j = payload;

    if (stage > 0)
        return;
    in->value[0] = in->value[1] = spread(input_of(j->world, microbatch), j->mesh[0], "R");
    in->value[2] = spread(indices_of(j->world, microbatch), j->mesh[0], "R");
    in->count = 3;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload, (void)microbatch;
    return loss_of(out);
}

static void check_gradients(sherd_module *a, sherd_module *b, bool here)
{
    static _Thread_local double wanted[MOST];
    sherd_named_parameter want[4], have[4];
    int n = sherd_module_all_parameters(a, want, 4);

    CHECK_EQ(sherd_module_all_parameters(b, have, 4), n);
    for (int i = 0; i < n && here; i++) {
        int64_t count = whole(sherd_grad(want[i].tensor), wanted);
        CHECK_EQ(count > 0, sherd_requires_grad(have[i].tensor));
        CHECK(distance_to(sherd_grad(have[i].tensor), wanted, count) < 1e-12);
    }
}

static void run_pipeline(sherd_world *world, const char *pattern, unsigned stages,
                         sherd_pipeline_schedule schedule)
{
    int ranks = sherd_world_ranks(world);
    job j = {.world = world, .places = ranks < STAGES ? ranks : STAGES};
    sherd_microbatches work = {
        .count = MICROBATCHES, .feed = feed, .loss = find_loss, .payload = &j};
    sherd_pipeline *pipeline = NULL;
    sherd_module *plain[STAGES];
    sherd_stage stage[STAGES];

    for (int i = 0; i < j.places; i++)
        CHECK_OK(sherd_mesh_create(&j.mesh[i], world, 1, SHAPE(1), (const char *[]){"x"}, &i));
    for (int i = 0; i < STAGES; i++) {
        plain[i] = make_stage(world, i);
        stage[i] = (sherd_stage){j.mesh[i % j.places], make_stage(world, i), "R"};
        CHECK_OK(sherd_parallelize(stage[i].module, stage[i].mesh, "x", NULL, 0));
        if (stages >> i & 1)
            CHECK_EQ(sherd_module_require_grad(plain[i], pattern, false),
                     sherd_module_require_grad(stage[i].module, pattern, false));
    }
    CHECK_OK(sherd_pipeline_create(&pipeline, world, stage, STAGES, schedule));
    double wanted = run_whole(plain, STAGES, MICROBATCHES);
    CHECK_NEAR(sherd_pipeline_run(pipeline, &work), wanted, 1e-12 * fabs(wanted));
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < STAGES; i++) {
        bool here = sherd_mesh_coordinate(stage[i].mesh, sherd_world_rank(world), NULL);
        check_gradients(plain[i], stage[i].module, here);
    }
    sherd_pipeline_destroy(pipeline);
    for (int i = 0; i < STAGES; i++) {
        sherd_module_destroy(stage[i].module);
        sherd_module_destroy(plain[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

static void stages_may_be_frozen(sherd_world *world)
{
    static const unsigned frozen[] = {1, 2, 7, 14}; /* bits of stages */

    for (int i = 0; i < LEN(frozen); i++) {
        run_pipeline(world, "**", frozen[i], SHERD_PIPELINE_1F1B);
        run_pipeline(world, "net.*", frozen[i], SHERD_PIPELINE_ZERO_BUBBLE);
    }
}

static const check_test tests[] = {{TEST(patterns_say_which), {1, 2}},
                                   {TEST(what_is_frozen_stays), {1, 2, 3, 4}},
                                   {TEST(a_gradient_that_is_there_is_used), {1, 2, 4}},
                                   {TEST(a_sharded_module_is_not_frozen_in_its_call), {2, 3}},
                                   {TEST(stages_may_be_frozen), {1, 2, 3, 4}}};
CHECK_MAIN(tests)
