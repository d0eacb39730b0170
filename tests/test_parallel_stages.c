/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two stages of a model on two meshes, as a pipeline has them: what moves between them goes forward
 * and its gradient back, also where ranks are in both meshes or in none, and both weights are
 * trained as by plain loops of one process, also clipped by the norm of all gradients.
 */
#include <sherd.h>

#include "models.h"

#include <math.h>

enum { ROWS = 10, IN = 6, HIDDEN = 9, STEPS = 3, WEIGHTS = IN * HIDDEN };

static const double rate = 0.1, most = 0.3;

/* How gradients are clipped: not; at once; by the step, each rank with the stages that it is in; by
 * a loss scaler. */
typedef enum clipping { NO_CLIP, CLIP, BY_THE_STEP, SCALED, CLIPPINGS } clipping;

typedef struct weights {
    double first[WEIGHTS], second[WEIGHTS]; /* [HIDDEN, IN], [IN, HIDDEN] */
} weights;

static void begin(weights *w, double *x)
{
    for (int i = 0; i < WEIGHTS; i++) {
        w->first[i] = sin(0.7 * i);
        w->second[i] = cos(0.9 * i);
    }
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = sin(1.1 * i + 0.5);
}

/* One step of mean((W2 tanh(W1 x))^2) by hand; returns the loss. */
static double step_by_hand(weights *w, const double *x, bool clip, double *norm)
{
    weights g = {{0}, {0}};
    double loss = 0, by = 1, squares = 0;

    for (int n = 0; n < ROWS; n++) {
        double h[HIDDEN], dh[HIDDEN] = {0};
        for (int f = 0; f < HIDDEN; f++) {
            h[f] = 0;
            for (int d = 0; d < IN; d++)
                h[f] += w->first[f * IN + d] * x[n * IN + d];
            h[f] = tanh(h[f]);
        }
        for (int d = 0; d < IN; d++) {
            double y = 0;
            for (int f = 0; f < HIDDEN; f++)
                y += w->second[d * HIDDEN + f] * h[f];
            loss += y * y / (ROWS * IN);
            for (int f = 0; f < HIDDEN; f++) {
                g.second[d * HIDDEN + f] += 2 * y / (ROWS * IN) * h[f];
                dh[f] += 2 * y / (ROWS * IN) * w->second[d * HIDDEN + f];
            }
        }
        for (int f = 0; f < HIDDEN; f++)
            for (int d = 0; d < IN; d++)
                g.first[f * IN + d] += dh[f] * (1 - h[f] * h[f]) * x[n * IN + d];
    }
    for (int i = 0; i < WEIGHTS; i++)
        squares += g.first[i] * g.first[i] + g.second[i] * g.second[i];
    *norm = sqrt(squares);
    if (clip && *norm > most)
        by = most / *norm;
    for (int i = 0; i < WEIGHTS; i++) {
        w->first[i] -= rate * by * g.first[i];
        w->second[i] -= rate * by * g.second[i];
    }
    return loss;
}

typedef struct stage {
    const sherd_mesh *mesh;
    bool inside;
    sherd_module *module;
    sherd_optimizer *optimizer;
} stage;

static void make_stage(stage *s, sherd_world *world, const char *mesh, sherd_style style,
                       int64_t in, int64_t out, const double *weight)
{
    const sherd_layer_options f64 = {.dtype = SHERD_F64};
    const sherd_parallel_entry plan = {"", style};

    CHECK_OK(sherd_mesh_parse(&s->mesh, world, mesh));
    s->inside = sherd_mesh_coordinate(s->mesh, sherd_world_rank(world), NULL);
    CHECK_OK(sherd_linear_create(&s->module, world, in, out, &f64));
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, SHAPE(out, in), 2, weight);
    CHECK_OK(sherd_module_load(s->module, "weight", sherd_mark_equal(t), -1));
    CHECK_OK(sherd_parallelize(s->module, s->mesh, "x", &plan, 1));
    CHECK_OK(sherd_sgd_create(&s->optimizer, s->module, NULL));
}

static double step_stages(stage *a, stage *b, sherd_scaler *scaler, clipping how)
{
    sherd_world *world = sherd_module_world(a->module);
    sherd_optimizer *list[2] = {a->optimizer, b->optimizer};
    double norm = NAN, by = 1;
    sherd_optimizers all = {NULL, list, 2};

    CHECK_OK(sherd_mesh_create(&all.mesh, world, 1, SHAPE(sherd_world_ranks(world)), NULL, NULL));
    if (how == SCALED)
        CHECK(sherd_scaler_step_all(scaler, &all, rate, most, &norm));
    if (how != CLIP) {
        all.count = 0;
        for (int i = 0; i < 2; i++)
            if ((i ? b : a)->inside)
                list[all.count++] = (i ? b : a)->optimizer;
    }
    if (how == CLIP)
        norm = sherd_optimizers_clip(&all, most);
    if (how == BY_THE_STEP)
        norm = sherd_optimizers_grad_norm(&all);
    if (how == BY_THE_STEP && norm > most)
        by = most / norm;
    for (int i = 0; i < all.count; i++) {
        if (how != SCALED)
            sherd_optimizer_step(list[i], rate, by);
        sherd_optimizer_clear(list[i]);
    }
    return norm;
}

/* Returns the loss on ranks of the second stage, otherwise NaN. */
static double train_once(stage *a, stage *b, const sherd_layout *from, const sherd_layout *to,
                         sherd_tensor *x, sherd_scaler *scaler, clipping how, double *norm)
{
    double loss = NAN;
    sherd_tensor *h, *grad;

    if (a->inside)
        h = sherd_redistribute(sherd_tanh(sherd_module_call(a->module, x)), from, NULL);
    else
        h = sherd_require_grad(sherd_constant_on(from, SHERD_F64, 0), true);
    h = sherd_redistribute(h, to, NULL);
    if (b->inside) {
        sherd_tensor *leaf = sherd_require_grad(sherd_detach(h), true);
        sherd_tensor *y = sherd_mean(sherd_square(sherd_module_call(b->module, leaf)));
        sherd_backward(how == SCALED ? sherd_scaler_scale(scaler, y) : y);
        loss = sherd_item(y);
        grad = sherd_grad(leaf);
    } else {
        grad = sherd_constant_on(to, SHERD_F64, 0);
    }
    sherd_backward_with(&h, &grad, 1, NULL);
    *norm = step_stages(a, b, scaler, how);
    return loss;
}

static void compare_stage(const stage *s, const double *wanted)
{
    double seen[WEIGHTS];

    if (s->inside) {
        CHECK(sherd_full_read(seen, sizeof seen, sherd_module_parameter(s->module, "weight"),
                              SHERD_F64, -1));
        for (int i = 0; i < WEIGHTS; i++)
            CHECK_NEAR(seen[i], wanted[i], 1e-12);
    }
}

static void train_stages(sherd_world *world, const char *const meshes[2],
                         const char *const moves[2], clipping how)
{
    const sherd_layout *from = NULL, *to = NULL;
    sherd_scaler scaler = {.scale = 1024, .interval = 2};
    weights w;
    double x[ROWS * IN], norm, wanted_norm;
    stage a = {0}, b = {0};

    begin(&w, x);
    make_stage(&a, world, meshes[0], sherd_colwise(), IN, HIDDEN, w.first);
    make_stage(&b, world, meshes[1], sherd_rowwise(), HIDDEN, IN, w.second);
    CHECK_OK(sherd_layout_parse_placements(&from, a.mesh, 2, SHAPE(ROWS, HIDDEN), moves[0], NULL));
    CHECK_OK(sherd_layout_parse_placements(&to, b.mesh, 2, SHAPE(ROWS, HIDDEN), moves[1], NULL));
    sherd_tensor *input = spread(
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, SHAPE(ROWS, IN), 2, x)), a.mesh, "S(0)");
    for (int i = 0; i < STEPS; i++) {
        double wanted = step_by_hand(&w, x, how != NO_CLIP, &wanted_norm);
        double loss = train_once(&a, &b, from, to, input, &scaler, how, &norm);
        CHECK_OK(sherd_world_check(world));
        if (b.inside)
            CHECK_NEAR(loss, wanted, 1e-12);
        CHECK(how == NO_CLIP || wanted_norm > most);
        if (how != NO_CLIP)
            CHECK_NEAR(norm, wanted_norm, 1e-12);
    }
    CHECK_EQ(scaler.scale, how == SCALED ? 2048 : 1024);
    compare_stage(&a, w.first);
    compare_stage(&b, w.second);
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < 2; i++) {
        sherd_optimizer_destroy(i ? b.optimizer : a.optimizer);
        sherd_module_destroy(i ? b.module : a.module);
    }
}

static void stages_on_two_meshes_are_trained_as_one(sherd_world *world)
{
    /* Two halves; meshes that share ranks; with a rank that is in none; one rank each. */
    static const char *const meshes[][2] = {
        {"x=2", "x=2@2,3"}, {"x=3", "x=3@1,2,3"}, {"x=2@1,0", "x=2@0,2"}, {"x=1@3", "x=1"}};
    static const char *const moves[][2] = {
        {"R", "S(1)"}, {"S(1)", "S(0)"}, {"S(0)", "R"}, {"S(1)", "S(1)"}};

    for (int c = 0; c < LEN(meshes) * CLIPPINGS; c++)
        train_stages(world, meshes[c / CLIPPINGS], moves[c / CLIPPINGS], (clipping)(c % CLIPPINGS));
}

/* ---- by the words at sherd_parallelize ------------------------------------------------------- */

static sherd_module *layer(sherd_world *world, sherd_dtype dtype, int64_t in, int64_t out)
{
    const sherd_layer_options options = {.dtype = dtype};
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, in, out, &options));
    fill_layer(m, dtype, (int)in, 0);
    return m;
}

static sherd_tensor *loss_of(sherd_module *second, sherd_tensor *x)
{
    return sherd_sum(sherd_square(sherd_module_call(second, x)));
}

/* The gradients of the first layer's weight, as one process has them. */
static void differentiate_whole(sherd_world *world, sherd_dtype dtype, double *grad)
{
    sherd_module *a = layer(world, dtype, 4, 5), *b = layer(world, dtype, 5, 6);
    sherd_tensor *x = wave(world, dtype, 2, SHAPE(3, 4), 2, 1, 0);

    sherd_backward(loss_of(b, sherd_module_call(a, x)));
    CHECK_EQ(whole(sherd_grad(sherd_module_parameter(a, "weight")), grad), 20);
    sherd_module_destroy(a);
    sherd_module_destroy(b);
}

static void differentiate_stages(sherd_world *world, const char *const meshes[2], sherd_dtype dtype)
{
    const sherd_parallel_entry plan = {"", sherd_colwise()};
    const sherd_mesh *mesh[2] = {NULL, NULL};
    const sherd_layout *layout[2] = {NULL, NULL};
    sherd_module *m[2] = {layer(world, dtype, 4, 5), layer(world, dtype, 5, 6)};
    double grad[20];
    bool in[2];

    for (int i = 0; i < 2; i++) {
        CHECK_OK(sherd_mesh_parse(&mesh[i], world, meshes[i]));
        in[i] = sherd_mesh_coordinate(mesh[i], sherd_world_rank(world), NULL);
        CHECK_OK(sherd_layout_parse_placements(&layout[i], mesh[i], 2, SHAPE(3, 5), "R", NULL));
        CHECK_OK(sherd_parallelize(m[i], mesh[i], "x", &plan, i));
    }
    sherd_tensor *y = in[0] ? sherd_module_call(m[0], wave(world, dtype, 2, SHAPE(3, 4), 2, 1, 0))
                            : sherd_require_grad(sherd_constant_on(layout[0], dtype, 0), true);
    sherd_tensor *z = sherd_redistribute(y, layout[1], NULL);
    sherd_tensor *zero = sherd_constant_on(layout[1], dtype, 0);
    if (in[1])
        sherd_backward(loss_of(m[1], z));
    else
        sherd_backward_with(&z, &zero, 1, NULL);
    CHECK_OK(sherd_world_check(world));
    differentiate_whole(world, dtype, grad);
    if (in[0])
        CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m[0], "weight")), grad, 20), 0,
                   dtype == SHERD_F64 ? 1e-12 : 0.05 * largest(grad, 20));
    for (int i = 0; i < 2; i++)
        sherd_module_destroy(m[i]);
}

/* Its input's gradient is a pending sum, which ranks outside its mesh do not know. */
static void a_stage_may_begin_with_a_colwise_layer(sherd_world *world)
{
    static const char *const meshes[][2] = {
        {"x=2", "x=2@2,3"}, {"x=1@3", "x=3"}, {"x=3", "x=2@2,3"}, {"x=2@1,0", "x=4"}};

    for (int i = 0; i < LEN(meshes); i++) {
        differentiate_stages(world, meshes[i], SHERD_F64);
        differentiate_stages(world, meshes[i], SHERD_BF16);
    }
}

/* ---- weights from one rank ------------------------------------------------------------------- */

/* Of a stage, its optimizer and a plain layer beside it; the root may be in the mesh or not. */
static void weights_come_from_any_rank(sherd_world *world)
{
    const sherd_parallel_entry plan = {"", sherd_colwise()};
    const sherd_mesh *mesh = NULL;
    sherd_module *m = layer(world, SHERD_F64, 4, 5), *plain = layer(world, SHERD_F64, 4, 5);
    sherd_optimizer *o = NULL;
    int ranks = sherd_world_ranks(world);
    double wanted[20];

    CHECK_OK(sherd_mesh_parse(&mesh, world, "x=2@1,2"));
    CHECK_OK(sherd_parallelize(m, mesh, "x", &plan, 1));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    sherd_tensor *weight = sherd_module_parameter(m, "weight");
    for (int root = 0; root < ranks; root++) {
        bool is_root = sherd_world_rank(world) == root;
        sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(5, 4), root + 3, 1, 0);
        sherd_named_state state[4];
        whole(t, wanted);
        CHECK_OK(sherd_module_load(m, "weight", is_root ? t : NULL, root));
        CHECK_OK(sherd_optimizer_load(o, "weight.m", is_root ? t : NULL, root));
        sherd_tensor *steps = sherd_constant(world, SHERD_I64, NULL, 0, 7 + root);
        CHECK_OK(sherd_optimizer_load(o, "weight.steps", is_root ? steps : NULL, root));
        CHECK_EQ(sherd_optimizer_state(o, state, 4), 3);
        if (sherd_tensor_layout(weight)) {
            CHECK_EQ(distance_to(weight, wanted, 20), 0);
            CHECK_EQ(distance_to(state[0].tensor, wanted, 20), 0);
            CHECK_EQ(sherd_item(state[2].tensor), 7 + root);
        }
        CHECK_EQ(sherd_module_load(plain, "weight", NULL, root), SHERD_EINVAL);
    }
    CHECK_EQ(sherd_module_load(m, "weight", NULL, ranks), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "is no rank of the world") != NULL);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    sherd_module_destroy(plain);
}

static const check_test tests[] = {{TEST(stages_on_two_meshes_are_trained_as_one), {4, 5}},
                                   {TEST(a_stage_may_begin_with_a_colwise_layer), {4, 5}},
                                   {TEST(weights_come_from_any_rank), {3, 4}}};
CHECK_MAIN(tests)
