/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L-BFGS over blocks that are tensor-parallel, fully sharded, or both, takes the same way as over
 * plain ones: losses of all steps agree. On a function that bends both ways it goes PyTorch's way.
 */
#include "models.h"
#include "sherd/lbfgs.h"
#include "sherd/ops_elements.h"

enum { HEADS = 2, HEAD = 3, WIDTH = HEADS * HEAD, HIDDEN = 10, STEPS = 4, BATCH = 6, LENGTH = 3 };

typedef struct fit {
    sherd_module *m;
    const sherd_mesh *mesh; /* NULL: plain */
} fit;

static sherd_tensor *data(const fit *f, int k)
{
    sherd_tensor *x =
        wave(sherd_module_world(f->m), SHERD_F64, 3, SHAPE(BATCH, LENGTH, WIDTH), k, 1, 0);

    return f->mesh ? spread(x, f->mesh, sherd_mesh_axes(f->mesh) == 2 ? "S(0)R" : "S(0)") : x;
}

static sherd_tensor *loss_of(void *payload)
{
    const fit *f = payload;
    sherd_tensor *loss = squared_error(sherd_module_call(f->m, data(f, 3)), data(f, 5));

    sherd_backward(loss);
    return loss;
}

static void minimise(sherd_module *m, const sherd_mesh *mesh, double *loss)
{
    fit f = {m, mesh};
    sherd_lbfgs *lbfgs = NULL;

    CHECK_OK(sherd_lbfgs_create(&lbfgs, m, &(sherd_lbfgs_options){.iterations = 3, .history = 4}));
    for (int i = 0; i < STEPS; i++)
        loss[i] = sherd_lbfgs_step(lbfgs, 1, loss_of, &f, NULL);
    sherd_lbfgs_destroy(lbfgs);
    CHECK_OK(sherd_world_check(sherd_module_world(m)));
}

static void every_way_to_lie_takes_the_same_way(sherd_world *world)
{
    static const struct {
        int ranks;
        const char *mesh;
    } meshes[] = {{2, "dp=2"}, {3, "dp=3"}, {4, "dp=2,tp=2"}, {4, "dp=4,tp=1"}};
    block_size size = {HEADS, HEAD, 0};
    double alone[STEPS], loss[STEPS];
    sherd_module *m = stack_of(world, SHERD_F64, &size, HIDDEN, 2);

    minimise(m, NULL, alone);
    CHECK(alone[STEPS - 1] < 0.8 * alone[0]);
    sherd_module_destroy(m);
    for (int i = 0; i < 2 * LEN(meshes); i++) {
        const sherd_mesh *mesh;
        if (meshes[i / 2].ranks != sherd_world_ranks(world))
            continue;
        mesh = mesh_of(world, meshes[i / 2].mesh);
        m = stack_of(world, SHERD_F64, &size, HIDDEN, 2);
        CHECK_OK(sherd_mesh_axes(mesh) == 2 ? parallelize_block(m, mesh, "*.", &size, false)
                                            : sherd_parallelize(m, mesh, "dp", NULL, 0));
        if (i % 2)
            CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
        minimise(m, mesh, loss);
        for (int k = 0; k < STEPS; k++)
            CHECK_NEAR(loss[k], alone[k], 1e-9);
        sherd_module_destroy(m);
    }
}

/* ---- a function that bends both ways --------------------------------------------------------- */

typedef struct valley {
    sherd_module *m;
    double asked[16]; /* an element of the parameter in each call */
    int calls;
    bool closes; /* `careless` tries to close the world */
} valley;

/* The sum of - cos(a): between its minima the slope falls. */
static sherd_tensor *valleys(void *payload)
{
    valley *v = payload;
    sherd_tensor *a = sherd_module_parameter(v->m, "a");
    sherd_tensor *loss = sherd_neg(sherd_sum(sherd_cos(a)));
    double x[MOST];

    whole(a, x);
    if (v->calls < LEN(v->asked))
        v->asked[v->calls] = x[0];
    v->calls++;
    sherd_backward(loss);
    return loss;
}

/* The numbers are those of torch.optim.LBFGS(lr=1.25, max_iter=8, history_size=1). */
static void a_step_without_curvature_leaves_a_full_history_as_it_is(sherd_world *world)
{
    static const double there[] = {
        2,          1.89583333333, 0.7112846968, -2.5672085446, -0.70571481, 1.5164173096,
        -0.1674874, 0.1336513573,  -0.0335708917};
    static const char *const ways[] = {NULL, "R", "S(0)"};
    const sherd_lbfgs_options options = {.fixed = true, .history = 1, .iterations = 8};

    for (int w = 0; w < LEN(ways); w++) {
        valley v = {.m = container(world, NULL, NULL)};
        sherd_lbfgs *lbfgs = NULL;
        sherd_scope_begin(world);
        sherd_tensor *a = wave(world, SHERD_F64, 1, SHAPE(12), 1, 0, 2);
        a = ways[w] ? spread(a, line_of_ranks(world), ways[w]) : a;
        CHECK_OK(sherd_module_add_parameter(v.m, "a", a));
        CHECK_OK(sherd_lbfgs_create(&lbfgs, v.m, &options));
        sherd_lbfgs_step(lbfgs, 1.25, valleys, &v, NULL);
        CHECK_EQ(v.calls, LEN(there));
        for (int i = 0; i < LEN(there); i++)
            CHECK_NEAR(v.asked[i], there[i], 1e-7);
        sherd_lbfgs_destroy(lbfgs);
        sherd_module_destroy(v.m);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Ends scopes that are not its own, and leaves some of its own open. */
static sherd_tensor *careless(void *payload)
{
    valley *v = payload;
    sherd_world *world = sherd_module_world(v->m);

    for (int i = 0; i < 4; i++)
        sherd_scope_end(world);
    for (int i = 0; i < 3; i++)
        sherd_scope_begin(world);
    if (v->closes)
        CHECK_EQ(sherd_world_close(world), SHERD_EINVAL);
    return valleys(v);
}

static void fit_carelessly(sherd_world *world, bool closes)
{
    valley v = {.m = container(world, NULL, NULL), .closes = closes};
    int depth = sherd_scope_depth(world);
    sherd_lbfgs *lbfgs = NULL;
    double x[MOST];

    sherd_scope_begin(world);
    sherd_tensor *kept = wave(world, SHERD_F64, 1, SHAPE(3), 1, 0, 7);
    CHECK_OK(sherd_module_add_parameter(v.m, "a", wave(world, SHERD_F64, 1, SHAPE(4), 1, 0, 1)));
    CHECK_OK(sherd_lbfgs_create(&lbfgs, v.m, NULL));
    CHECK_NEAR(sherd_lbfgs_step(lbfgs, 1, careless, &v, NULL), -4, 1e-9);
    CHECK_EQ(sherd_scope_depth(world), depth + 1);
    CHECK_EQ(whole(kept, x), 3);
    CHECK_EQ(x[2], 7);
    sherd_lbfgs_destroy(lbfgs);
    sherd_module_destroy(v.m);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void what_a_loss_does_to_scopes_stays_in_it(sherd_world *world)
{
    sherd_world *alone = NULL;

    fit_carelessly(world, false);
    CHECK_OK(sherd_world_alone(&alone, &(sherd_world_options){.no_pin = true}));
    fit_carelessly(alone, true);
    CHECK_OK(sherd_world_close(alone));
}

/* It would search along parameters that the loss does not depend on. */
static void parameters_that_were_replaced_are_refused(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 1 ? "dp=1" : "dp=2");
    block_size size = {HEADS, HEAD, 0};

    for (int way = 0; way < 4; way++) {
        sherd_lbfgs *lbfgs = NULL;
        fit f = {stack_of(world, way < 2 ? SHERD_F64 : SHERD_F32, &size, HIDDEN, 1),
                 way < 2 ? mesh : NULL};
        CHECK_OK(sherd_lbfgs_create(&lbfgs, f.m, NULL));
        CHECK_OK(way == 0   ? sherd_parallelize(f.m, mesh, "dp", NULL, 0)
                 : way == 1 ? sherd_fully_shard(f.m, mesh, "dp", NULL)
                 : way == 2 ? sherd_module_cast(f.m, SHERD_F64)
                            : sherd_module_quantize(f.m, 8, 0));
        CHECK(isnan(sherd_lbfgs_step(lbfgs, 1, loss_of, &f, NULL)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "afterwards") != NULL);
        sherd_lbfgs_destroy(lbfgs);
        sherd_module_destroy(f.m);
    }
}

static const check_test tests[] = {
    {TEST(every_way_to_lie_takes_the_same_way), {2, 3, 4}},
    {TEST(parameters_that_were_replaced_are_refused), {1, 2}},
    {TEST(what_a_loss_does_to_scopes_stays_in_it), {1, 2}},
    {TEST(a_step_without_curvature_leaves_a_full_history_as_it_is), {1, 2, 3}},
};
CHECK_MAIN(tests)
