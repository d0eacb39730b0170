/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision of modules: f32 parameters learn under it on every mesh alike, what is run again
 * computes as it did, and loss scaling finds its factor, skips on all ranks what one rank cannot
 * take, and changes nothing else.
 */
#include "modules.h"

#include "sherd/optimizer.h"
#include "sherd/autocast.h"
#include "sherd/ops_elements.h"
#include "sherd/scaler.h"
#include "sherd/values.h"

enum { ROWS = 8, WIDTH = 12 };

/* x + W2 gelu(W1 norm(x)), all f32. */
static void net_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];
    sherd_tensor *h = sherd_layer_norm(x, NULL, NULL, 1e-5);

    h = sherd_gelu(
        sherd_linear(h, sherd_module_parameter(self, "w1"), sherd_module_parameter(self, "b1")));
    out->value[0] = sherd_add(x, sherd_linear(h, sherd_module_parameter(self, "w2"), NULL));
    out->count = 1;
}

/* Spread as `how` says w1, b1 and w2 lie; NULL: plain. */
static sherd_module *net_of(sherd_world *world, const sherd_mesh *mesh, const char *const *how)
{
    static const char *const name[] = {"w1", "b1", "w2"};
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, net_forward, NULL));
    for (int i = 0; i < 3; i++) {
        sherd_tensor *t =
            wave(world, SHERD_F32, i == 1 ? 1 : 2, SHAPE(WIDTH, WIDTH), 3 + i, 0.3, 0.05);
        CHECK_OK(sherd_module_add_parameter(m, name[i], how ? spread(t, mesh, how[i]) : t));
    }
    return m;
}

/* Losses of some steps. */
static void learn(sherd_world *world, const sherd_mesh *mesh, const char *const *how,
                  const char *batch, sherd_dtype low, double *loss, int steps)
{
    sherd_module *m = net_of(world, mesh, how);
    sherd_optimizer *o = NULL;
    sherd_scaler scaler = {.scale = 1024};

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int i = 0; i < steps; i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(ROWS, WIDTH), 7, 1, 0);
        sherd_tensor *target = wave(world, SHERD_F32, 2, SHAPE(ROWS, WIDTH), 5, 1, 0.2);
        if (mesh) {
            x = spread(x, mesh, batch);
            target = spread(target, mesh, batch);
        }
        sherd_dtype before = sherd_set_autocast(world, low);
        sherd_tensor *y = sherd_module_call(m, x), *off = sherd_sub(y, target);
        sherd_tensor *mean = sherd_mean(sherd_mul(off, off));
        sherd_set_autocast(world, before);
        CHECK_EQ(sherd_tensor_dtype(mean), SHERD_F32);
        loss[i] = sherd_item(mean);
        sherd_backward(low == SHERD_F16 ? sherd_scaler_scale(&scaler, mean) : mean);
        sherd_tensor *g = sherd_grad(sherd_module_parameter(m, "w1"));
        CHECK(g && sherd_tensor_dtype(g) == SHERD_F32);
        if (low == SHERD_F16)
            CHECK(sherd_scaler_step(&scaler, o, 0.01, 0, NULL));
        else
            sherd_optimizer_step(o, 0.01, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    CHECK_EQ(sherd_tensor_dtype(sherd_module_parameter(m, "w2")), SHERD_F32);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* As f32, to what products of 16 bits round; and on every mesh the same, however parameters and
 * rows are split. */
static void every_mesh_learns_as_f32_does(sherd_world *world)
{
    enum { STEPS = 12 };
    static const char *const megatron[] = {"RS(0)", "RS(0)", "RS(1)"};
    static const char *const sharded[] = {"S(0)R", "S(0)R", "S(1)R"};
    static const sherd_dtype low[] = {SHERD_BF16, SHERD_F16};
    static const double within[] = {0.01, 0.002};
    double exact[STEPS], alone[STEPS], loss[STEPS];
    int ranks = sherd_world_ranks(world);
    char text[32];

    snprintf(text, sizeof text, "dp=%d,tp=%d", ranks == 4 ? 2 : 1, ranks == 4 ? 2 : ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    learn(world, NULL, NULL, NULL, SHERD_DTYPE_NONE, exact, STEPS);
    CHECK(exact[STEPS - 1] < 0.8 * exact[0]);
    for (int d = 0; d < LEN(low); d++) {
        learn(world, NULL, NULL, NULL, low[d], alone, STEPS);
        for (int i = 0; i < STEPS; i++)
            CHECK_NEAR(alone[i], exact[i], within[d] * exact[0]);
        learn(world, mesh, megatron, "S(0)R", low[d], loss, STEPS);
        for (int i = 0; i < STEPS; i++)
            CHECK_NEAR(loss[i], alone[i], within[d] * exact[0]);
        learn(world, mesh, sharded, "S(0)R", low[d], loss, STEPS);
        for (int i = 0; i < STEPS; i++)
            CHECK_NEAR(loss[i], alone[i], within[d] * exact[0]);
    }
}

/* ---- run again ------------------------------------------------------------------------------ */

static int64_t gradients(sherd_module *m, sherd_tensor *x, double *out)
{
    sherd_world *world = sherd_tensor_world(x);
    int64_t n = 0;

    sherd_dtype before = sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
    sherd_set_autocast(world, before);
    sherd_backward(loss);
    n += whole(sherd_grad(sherd_module_parameter(m, "w1")), out);
    n += whole(sherd_grad(x), out + n);
    sherd_clear_grad(sherd_module_parameter(m, "w1"));
    sherd_clear_grad(sherd_module_parameter(m, "w2"));
    sherd_clear_grad(x);
    return n;
}

/* Backward runs outside of the scope; what it runs again is in it. */
static void what_is_run_again_computes_as_it_did(sherd_world *world)
{
    static double without[MOST], with[MOST];
    sherd_module *m = net_of(world, NULL, NULL);
    sherd_tensor *x =
        sherd_require_grad(wave(world, SHERD_F32, 2, SHAPE(ROWS, WIDTH), 7, 1, 0), true);

    int64_t n = gradients(m, x, without);
    sherd_module_checkpoint(m, true);
    CHECK_EQ(gradients(m, x, with), n);
    CHECK_EQ(n, WIDTH * (WIDTH + ROWS));
    CHECK_EQ(memcmp(with, without, (size_t)n * sizeof *with), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* ---- loss scaling --------------------------------------------------------------------------- */

typedef struct scene {
    sherd_module *m;
    sherd_optimizer *o;
    sherd_tensor *w;
} scene;

/* One parameter of ones, split by rows. */
static scene scene_of(sherd_world *world)
{
    scene s = {NULL, NULL, NULL};

    CHECK_OK(sherd_module_create(&s.m, world, NULL, NULL));
    s.w = spread(wave(world, SHERD_F32, 2, SHAPE(WIDTH, WIDTH), 1, 0, 1), line_of_ranks(world),
                 "S(0)");
    CHECK_OK(sherd_module_add_parameter(s.m, "w", s.w));
    s.w = sherd_module_parameter(s.m, "w");
    CHECK_OK(sherd_sgd_create(&s.o, s.m, NULL));
    return s;
}

static void scene_end(scene *s)
{
    sherd_optimizer_destroy(s->o);
    sherd_module_destroy(s->m);
}

/* The gradient of each element is `slope` times the factor; of row 0 alone `first` times. */
static void scaled_backward(scene *s, sherd_scaler *scaler, double slope, double first)
{
    sherd_world *world = sherd_tensor_world(s->w);
    static _Thread_local float slopes[WIDTH * WIDTH];

    sherd_scope_begin(world);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        slopes[i] = (float)(i < WIDTH ? first : slope);
    sherd_tensor *t =
        sherd_mark_equal(sherd_from_data(world, SHERD_F32, SHAPE(WIDTH, WIDTH), 2, slopes));
    sherd_backward(sherd_scaler_scale(scaler, sherd_sum(sherd_mul(s->w, t))));
    sherd_scope_end(world);
}

/* Powers of two: dividing is exact, so the step is bit for bit the one without scaling. */
static void a_step_is_as_without_scaling(sherd_world *world)
{
    scene s = scene_of(world);
    sherd_scaler scaler = {0};
    double norm;

    scaled_backward(&s, &scaler, 0.25, 0.25);
    CHECK_EQ((int)scaler.scale, 65536);
    CHECK(sherd_scaler_step(&scaler, s.o, 0.5, 0, &norm));
    CHECK_NEAR(norm, 0.25 * WIDTH, 1e-6);
    double have[MOST];
    int64_t n = whole(s.w, have);
    for (int64_t i = 0; i < n; i++)
        CHECK(have[i] == 1 - 0.5 * 0.25);
    CHECK_EQ(scaler.good, 1);
    sherd_optimizer_clear(s.o);
    scaled_backward(&s, &scaler, 1, 1); /* of norm WIDTH, clipped to 1 */
    CHECK(sherd_scaler_step(&scaler, s.o, 1, 1, &norm));
    CHECK_NEAR(norm, WIDTH, 1e-5);
    n = whole(s.w, have);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(have[i], 0.875 - 1.0 / WIDTH, 1e-6);
    CHECK_OK(sherd_world_check(world));
    scene_end(&s);
}

/* Row 0 lies on rank 0: the others' gradients are finite, and they skip too. */
static void an_overflow_on_one_rank_skips_the_step_on_all(sherd_world *world)
{
    static const double broken[] = {HUGE_VAL, -HUGE_VAL, NAN, 1e38};
    scene s = scene_of(world);
    sherd_scaler scaler = {.scale = 64};
    double norm, have[MOST];

    for (int i = 0; i < LEN(broken); i++) {
        scaled_backward(&s, &scaler, 1, broken[i]);
        double scale = scaler.scale;
        CHECK(!sherd_scaler_step(&scaler, s.o, 0.5, 1, &norm));
        CHECK(!isfinite(norm));
        CHECK(scaler.scale == 0.5 * scale);
        CHECK_EQ(scaler.skipped, i + 1);
        CHECK_EQ(scaler.good, 0);
        sherd_optimizer_clear(s.o);
        int64_t n = whole(s.w, have);
        for (int64_t e = 0; e < n; e++)
            CHECK(have[e] == 1);
    }
    scaled_backward(&s, &scaler, 1, 1);
    CHECK(sherd_scaler_step(&scaler, s.o, 0.5, 0, &norm));
    CHECK_OK(sherd_world_check(world));
    scene_end(&s);
}

/* torch.amp.GradScaler(init_scale=8, growth_interval=2): the factor after each step, where 0 is one
 * with an infinite gradient. */
static void the_factor_is_as_torchs(sherd_world *world)
{
    static const int good[] = {1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1};
    static const double factor[] = {8, 16, 16, 8, 8, 16, 16, 32, 16, 8, 8};
    scene s = scene_of(world);
    sherd_scaler scaler = {.scale = 8, .interval = 2};

    for (int i = 0; i < LEN(good); i++) {
        scaled_backward(&s, &scaler, 1e-3, good[i] ? 1e-3 : HUGE_VAL);
        CHECK_EQ(sherd_scaler_step(&scaler, s.o, 0.1, 0, NULL), good[i]);
        CHECK(scaler.scale == factor[i]);
        sherd_optimizer_clear(s.o);
    }
    CHECK_EQ(scaler.skipped, 3);
    scaler = (sherd_scaler){.scale = 0x1p1023, .interval = 1};
    sherd_scaler_step(&scaler, s.o, 0.1, 0, NULL); /* no gradients: nothing is infinite */
    CHECK(scaler.scale == 0x1p1023);               /* and the factor stays a number */
    CHECK_OK(sherd_world_check(world));
    scene_end(&s);
}

/* Many skipped steps in a row: the factor stays a number that gradients can be divided by. */
static void the_factor_has_an_end(sherd_world *world)
{
    scene s = scene_of(world);
    sherd_scaler scaler = {.backoff = 0x1p-150};

    for (int i = 0; i < 9; i++) {
        scaled_backward(&s, &scaler, 1, NAN);
        CHECK(!sherd_scaler_step(&scaler, s.o, 0.5, 0, NULL));
        CHECK_EQ(scaler.scale, 0x1p-24);
        sherd_optimizer_clear(s.o);
    }
    scaled_backward(&s, &scaler, 1, 1);
    CHECK(sherd_scaler_step(&scaler, s.o, 0.5, 0, NULL));
    scaler.scale = 0x1p-30; /* the program's own, below that */
    sherd_optimizer_clear(s.o);
    scaled_backward(&s, &scaler, 1, NAN);
    CHECK(!sherd_scaler_step(&scaler, s.o, 0.5, 0, NULL));
    CHECK_EQ(scaler.scale, 0x1p-30);
    CHECK_OK(sherd_world_check(world));
    scene_end(&s);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

/* A product, which autocast would compute in 16 bits. */
static sherd_tensor *turned(sherd_tensor *grad, void *payload)
{
    sherd_world *world = sherd_tensor_world(grad);

    sherd_tensor *same = sherd_matmul(grad, sherd_eye(world, SHERD_F32, WIDTH, WIDTH));

    CHECK_EQ(sherd_autocast(world), SHERD_DTYPE_NONE);
    if (payload)
        sherd_set_autocast(world, SHERD_F16); /* what a hook sets ends with it */
    return same;
}

static void autocast_is_off_in_backward(sherd_world *world)
{
    int misdeed = 1;

    for (int i = 0; i < 2; i++) {
        sherd_scope_begin(world);
        sherd_tensor *w = wave(world, SHERD_F32, 2, SHAPE(WIDTH, WIDTH), 1, 1, 0), *y;
        sherd_require_grad(w, true);
        CHECK_OK(sherd_tensor_hook(NULL, w, turned, NULL, NULL));
        sherd_set_autocast(world, SHERD_BF16);
        y = sherd_square(w);
        CHECK_OK(sherd_tensor_hook(NULL, y, turned, i ? &misdeed : NULL, NULL));
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_autocast(world), SHERD_BF16);
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        double wide[MOST], grad[MOST];
        int64_t n = whole(sherd_detach(w), wide);
        CHECK_EQ(whole(sherd_grad(w), grad), n);
        for (int64_t k = 0; k < n; k++)
            CHECK_EQ(grad[k], 2 * wide[k]);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(autocast_is_off_in_backward), {1, 2}},
    {TEST(every_mesh_learns_as_f32_does), {1, 2, 3, 4}},
    {TEST(what_is_run_again_computes_as_it_did), {1}},
    {TEST(a_step_is_as_without_scaling), {1, 2, 3}},
    {TEST(an_overflow_on_one_rank_skips_the_step_on_all), {1, 2, 3, 4}},
    {TEST(the_factor_has_an_end), {1, 2, 3}},
    {TEST(the_factor_is_as_torchs), {1, 2}},
};
CHECK_MAIN(tests)
