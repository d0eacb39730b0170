/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGD, Adam, AdamW, RMSprop, Adagrad, Lion, NAdam, RAdam, Adafactor, Muon, clipping and schedules
 * give the numbers of PyTorch (optimizer_cases.h), whatever the layout of the parameter, and however
 * its gradient comes: settled, replicated, or as a pending sum.
 */
#include "modules.h"
#include "sherd/optimizers.h"

#include "optimizer_cases.h"

enum { ROWS = 2, COLS = 3, COUNT = ROWS * COLS };

/* How the parameter lies (NULL = plain), and the operand that makes its gradient pending or not. */
static const char *const ways[][2] = {{NULL, NULL},  {"R", "R"},       {"R", "S(0)"},
                                      {"S(0)", "R"}, {"S(1)", "S(0)"}, {"S(0)", "S(0)"}};

static sherd_module *matrix(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                            const char *placements)
{
    sherd_module *m = NULL;
    sherd_tensor *p = wave(world, dtype, 2, SHAPE(ROWS, COLS), 1, 0.4, 0.5);

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "p", placements ? spread(p, mesh, placements) : p));
    return m;
}

/* loss = sum(I (x p^T)): the gradient of p is x, a wave of this step. */
static void backward(sherd_module *m, const sherd_mesh *mesh, const char *placements, int step)
{
    static const double identity[] = {1, 0, 0, 1};
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *p = sherd_module_parameter(m, "p");
    sherd_dtype dtype = sherd_tensor_dtype(p);

    sherd_scope_begin(world);
    sherd_tensor *x = wave(world, dtype, 2, SHAPE(ROWS, COLS), step + 2, 2, 0);
    sherd_tensor *c =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, SHAPE(ROWS, ROWS), 2, identity));
    x = placements ? spread(x, mesh, placements) : x;
    sherd_backward(sherd_sum(sherd_mul(sherd_linear(x, p, NULL), sherd_cast(c, dtype))));
    sherd_scope_end(world);
}

static void clip(sherd_optimizer *o, int how)
{
    if (how == 1)
        sherd_optimizer_clip(o, 1.5);
    if (how == 2)
        sherd_optimizer_clip_value(o, 0.7);
}

typedef sherd_status (*maker)(sherd_optimizer **out, sherd_module *m, const void *options);

static sherd_status make_sgd(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_sgd_create(out, m, options);
}

static sherd_status make_adam(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_adam_create(out, m, options);
}

static sherd_status make_adamw(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_adamw_create(out, m, options);
}

static sherd_status make_rmsprop(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_rmsprop_create(out, m, options);
}

static sherd_status make_adagrad(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_adagrad_create(out, m, options);
}

static sherd_status make_lion(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_lion_create(out, m, options);
}

static sherd_status make_nadam(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_nadam_create(out, m, options);
}

static sherd_status make_radam(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_radam_create(out, m, options);
}

static sherd_status make_adafactor(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_adafactor_create(out, m, options);
}

static sherd_status make_muon(sherd_optimizer **out, sherd_module *m, const void *options)
{
    return sherd_muon_create(out, m, options);
}

/* In 16 bits gradients are rounded by a 256th or 2048th; so may be what clipping makes of them. */
static double tolerance_of(sherd_dtype dtype, int how)
{
    double exact = how == 1 ? 1e-6 : 1e-13; /* PyTorch adds 1e-6 to the norm */

    switch (dtype) {
    case SHERD_F64:
        return exact;
    case SHERD_F32:
        return 3e-6;
    default:
        return dtype == SHERD_F16 ? 2e-3 : 1.6e-2;
    }
}

static void train(sherd_world *world, maker make, const void *options, int how,
                  const double *expected, int way, sherd_dtype dtype)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = matrix(world, dtype, mesh, ways[way][0]);
    sherd_optimizer *o = NULL;

    CHECK_OK(make(&o, m, options));
    for (int step = 1; step <= CASE_STEPS; step++) {
        backward(m, mesh, ways[way][1], step);
        clip(o, how);
        sherd_optimizer_step(o, case_rate, 1);
        sherd_optimizer_clear(o);
    }
    CHECK_NEAR(distance_to(sherd_module_parameter(m, "p"), expected, COUNT), 0,
               tolerance_of(dtype, how));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

#define TRAIN(name)                                                                              \
    for (int i = (way + dtype) % check_stride(2); i < LEN(name##_cases); i += check_stride(2))   \
    train(world, make_##name, &name##_cases[i].options, name##_cases[i].clip, name##_cases[i].p, \
          way, d)

static void they_train_as_pytorch_does(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++)
        for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++) {
            sherd_dtype d = (sherd_dtype)dtype;
            TRAIN(sgd);
            TRAIN(adam);
            TRAIN(adamw);
            TRAIN(rmsprop);
            TRAIN(adagrad);
            TRAIN(lion);
            TRAIN(nadam);
            TRAIN(radam);
            TRAIN(adafactor);
            TRAIN(muon);
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- the formulas, by plain loops ------------------------------------------------------------ */

enum { SKIPPED = 3 }; /* a step without a gradient: nothing happens, and it does not count */

static const sherd_sgd_options heavy_ball = {
    .momentum = 0.8, .dampening = 0.25, .weight_decay = 0.2};
static const sherd_sgd_options nesterov = {.momentum = 0.7, .nesterov = true, .weight_decay = 0.1};
static const sherd_adamw_options decayed = {
    .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-4, .weight_decay = 0.3};

static void sgd_by_hand(const sherd_sgd_options *o, double *p, double *m, double x, int t)
{
    double g = x + o->weight_decay * *p;

    *m = t == 1 ? g : o->momentum * *m + (1 - o->dampening) * g;
    *p -= case_rate * (o->nesterov ? g + o->momentum * *m : *m);
}

static void adam_by_hand(const sherd_adamw_options *o, double *p, double *m, double *v, double x,
                         int t)
{
    double g = x + o->weight_decay * *p;

    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    *p -= case_rate * *m / (1 - pow(o->beta1, t)) / (sqrt(*v / (1 - pow(o->beta2, t))) + o->eps);
}

static void by_hand(int kind, double *p, double *m, double *v, int step, int t)
{
    for (int i = 0; i < COUNT; i++) {
        double x = 0.5 * 2 * sin(0.1 * (i + 1) * (step + 2)); /* scaled by a half */
        if (kind == 2)
            adam_by_hand(&decayed, &p[i], &m[i], &v[i], x, t);
        else
            sgd_by_hand(kind ? &nesterov : &heavy_ball, &p[i], &m[i], x, t);
    }
}

static void they_are_their_formulas(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int way = 0; way < LEN(ways); way++)
        for (int kind = 0; kind < 3; kind++) {
            sherd_module *m = matrix(world, SHERD_F64, mesh, ways[way][0]);
            sherd_optimizer *o = NULL;
            double p[COUNT], mean[COUNT] = {0}, square[COUNT] = {0};
            whole(sherd_module_parameter(m, "p"), p);
            CHECK_OK(kind == 2 ? sherd_adam_create(&o, m, &decayed)
                               : sherd_sgd_create(&o, m, kind ? &nesterov : &heavy_ball));
            for (int step = 1, t = 0; step <= CASE_STEPS; step++) {
                if (step != SKIPPED) {
                    backward(m, mesh, ways[way][1], step);
                    by_hand(kind, p, mean, square, step, ++t);
                }
                sherd_optimizer_step(o, case_rate, 0.5);
                sherd_optimizer_clear(o);
                CHECK_NEAR(distance_to(sherd_module_parameter(m, "p"), p, COUNT), 0, 1e-13);
            }
            sherd_optimizer_destroy(o);
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

/* SGD without momentum has no state; with it one tensor, Adam two; all as large as the shard. And
 * the number of steps. */
static void state_is_as_large_as_the_shard(sherd_world *world)
{
    const sherd_sgd_options heavy = {.momentum = 0.9};
    const struct {
        maker make;
        const void *options;
        int tensors;
    } kinds[] = {{make_sgd, NULL, 0}, {make_sgd, &heavy, 1}, {make_adam, NULL, 2}};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < LEN(kinds); i++) {
        sherd_module *m = matrix(world, SHERD_F64, mesh, "S(0)");
        sherd_optimizer *o = NULL;
        int64_t bytes = 8 * sherd_tensor_box(sherd_module_parameter(m, "p")).size[0] * COLS;
        int64_t before = sherd_world_memory(world).live_bytes;
        CHECK_OK(kinds[i].make(&o, m, kinds[i].options));
        CHECK_EQ(sherd_world_memory(world).live_bytes - before, kinds[i].tensors * bytes + 8);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
}

/* A bias decays only where all is to decay. */
static void vectors_decay_where_it_is_said(sherd_world *world)
{
    for (int all = 0; all < 2; all++)
        for (int kind = 0; kind < 3; kind++) {
            const sherd_sgd_options sgd = {.weight_decay = 0.5, .decay_all = all};
            const sherd_adamw_options adam = {.weight_decay = 0.5, .decay_all = all};
            sherd_module *m = NULL;
            sherd_optimizer *o = NULL;
            CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
            sherd_tensor *p = sherd_constant(world, SHERD_F64, SHAPE(4), 1, 1);
            CHECK_OK(sherd_module_add_parameter(m, "p", p));
            CHECK_OK(kind == 0   ? sherd_sgd_create(&o, m, &sgd)
                     : kind == 1 ? sherd_adam_create(&o, m, &adam)
                                 : sherd_adamw_create(&o, m, &adam));
            sherd_backward(sherd_sum(sherd_scale(p, 0)));
            sherd_optimizer_step(o, 0.5, 1);
            double expected = !all ? 1 : kind == 1 ? 0.5 : 0.75;
            const double values[] = {expected, expected, expected, expected};
            CHECK_NEAR(distance_to(p, values, 4), 0, 1e-7);
            sherd_optimizer_destroy(o);
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- clipping ------------------------------------------------------------------------------- */

/* Everything is settled in the one round, and the second norm is the bound. */
static void the_norm_is_clipped_in_one_round(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int way = 0; way < LEN(ways); way++) {
        sherd_module *m = matrix(world, SHERD_F64, mesh, ways[way][0]);
        sherd_tensor *p = sherd_module_parameter(m, "p");
        sherd_optimizer *o = NULL;
        double before[COUNT], squares = 0, norm;
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        backward(m, mesh, ways[way][1], 1);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        norm = sherd_optimizer_clip(o, 1000); /* nothing to do */
        CHECK(calls_logged(world) <= 2);      /* settling, and one number of each rank */
        whole(sherd_grad(p), before);
        for (int i = 0; i < COUNT; i++)
            squares += before[i] * before[i];
        CHECK_NEAR(norm, sqrt(squares), 1e-12);
        CHECK_NEAR(sherd_optimizer_clip(o, 0.5), norm, 1e-12);
        CHECK_NEAR(sherd_optimizer_grad_norm(o), 0.5, 1e-12);
        for (int i = 0; i < COUNT; i++)
            before[i] *= 0.5 / norm;
        CHECK_NEAR(distance_to(sherd_grad(p), before, COUNT), 0, 1e-12);
        CHECK_NEAR(sherd_optimizer_clip(o, 0), 0.5, 1e-12);
        CHECK_EQ(sherd_optimizer_grad_norm(o), 0);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Somebody else has the gradient: that stays. */
static void a_gradient_that_is_held_is_not_changed(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int how = 1; how <= 2; how++) {
        sherd_module *m = matrix(world, SHERD_F64, mesh, "S(0)");
        sherd_tensor *p = sherd_module_parameter(m, "p");
        sherd_optimizer *o = NULL;
        double before[COUNT];
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        backward(m, mesh, "S(0)", 1);
        sherd_tensor *held = sherd_tensor_retain(sherd_grad(p));
        whole(held, before);
        clip(o, how);
        CHECK(distance_to(sherd_grad(p), before, COUNT) > 0);
        CHECK_EQ(distance_to(held, before, COUNT), 0);
        sherd_tensor_release(held);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * The gradient of what was transposed is a view: where a rank has one column of it, or none, that
 * is contiguous and changed in place, elsewhere it is copied. What ranks note must not differ.
 */
static void a_gradient_that_is_a_view_is_clipped(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int how = 1; how <= 2; how++) {
        sherd_module *m = matrix(world, SHERD_F64, mesh, "S(1)");
        sherd_tensor *p = sherd_module_parameter(m, "p");
        sherd_optimizer *o = NULL;
        double after[COUNT], norm;
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        sherd_scope_begin(world);
        sherd_tensor *c = wave(world, SHERD_F64, 2, SHAPE(COLS, ROWS), 3, 2, 0);
        c = spread(c, mesh, "S(0)");
        sherd_backward(sherd_sum(sherd_mul(sherd_transpose(p, 0, 1), c)));
        norm = sherd_optimizer_grad_norm(o);
        whole(sherd_transpose(c, 0, 1), after);
        sherd_scope_end(world);
        clip(o, how);
        CHECK_OK(sherd_world_check(world));
        for (int i = 0; i < COUNT; i++)
            after[i] = how == 1 ? after[i] * fmin(1.5 / norm, 1) : fmax(fmin(after[i], 0.7), -0.7);
        CHECK_NEAR(distance_to(sherd_grad(p), after, COUNT), 0, 1e-12);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_norm_that_is_no_number_changes_nothing(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = matrix(world, SHERD_F64, mesh, "R");
    sherd_tensor *p = sherd_module_parameter(m, "p");
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    sherd_backward(sherd_scale(sherd_sum(sherd_mul(p, p)), (double)INFINITY));
    CHECK(isinf(sherd_optimizer_clip(o, 1)));
    double have[COUNT];
    whole(sherd_grad(p), have);
    for (int i = 0; i < COUNT; i++)
        CHECK(isinf(have[i]));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_clip_otherwise_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int how = 1; how <= 2; how++) {
        sherd_module *m = matrix(world, SHERD_F64, mesh, "R");
        sherd_optimizer *o = NULL;
        double most = sherd_world_rank(world) ? 0.5 : 0.25;
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        backward(m, mesh, "R", 1);
        if (how == 1)
            sherd_optimizer_clip(o, most);
        else
            sherd_optimizer_clip_value(o, most);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        CHECK(strstr(sherd_world_error(world), "is sherd_optimizer_clip") != NULL);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int how = 1; how <= 2; how++) {
        sherd_status status = SHERD_ENOMEM;
        for (int n = 1; status && n < 100; n++) {
            sherd_module *m = matrix(world, SHERD_F64, mesh, "S(0)");
            sherd_optimizer *o = NULL;
            CHECK_OK(sherd_sgd_create(&o, m, &(sherd_sgd_options){.momentum = 0.5}));
            backward(m, mesh, "S(0)", 1);
            CHECK_OK(sherd_world_check(world));
            sherd_tensor *held = sherd_tensor_retain(sherd_grad(sherd_module_parameter(m, "p")));
            sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
            clip(o, how);
            sherd_optimizer_step(o, 0.1, 1);
            sherd_world_fail_allocation(world, 0);
            status = sherd_world_check(world);
            CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            sherd_tensor_release(held);
            sherd_optimizer_destroy(o);
            sherd_module_destroy(m);
        }
        CHECK_OK(status);
    }
}

/* ---- schedules ------------------------------------------------------------------------------ */

static void schedules_are_those_of_pytorch(sherd_world *world)
{
    (void)world;
    for (int t = 0; t < LEN(constant_rates); t++) {
        CHECK_NEAR(sherd_schedule_constant(t, 4, 0.25), constant_rates[t], 1e-14);
        CHECK_NEAR(sherd_schedule_linear(t, 5, 0.2, 0.8), linear_rates[t], 1e-14);
        CHECK_NEAR(sherd_schedule_step(t, 3, 0.5), step_rates[t], 1e-14);
        CHECK_NEAR(sherd_schedule_exponential(t, 0.9), exponential_rates[t], 1e-14);
        CHECK_NEAR(sherd_schedule_cosine(t, 11, 0.1), cosine_rates[t], 1e-14);
        CHECK_NEAR(sherd_schedule_warmup(t, 4), t < 4 ? 0.25 * (t + 1) : 1, 1e-14);
    }
}

/* Before the beginning is the beginning, after the end the end; no steps at all are done at
 * once. */
static void schedules_have_ends(sherd_world *world)
{
    const int64_t far = INT64_MAX, before = INT64_MIN;

    (void)world;
    CHECK_EQ(sherd_schedule_warmup(far, 10), 1);
    CHECK_EQ(sherd_schedule_warmup(before, 10), 0);
    CHECK_EQ(sherd_schedule_warmup(0, 0), 1);
    CHECK_EQ(sherd_schedule_warmup(0, -1), 1);
    CHECK_NEAR(sherd_schedule_cosine(far, 10, 0.1), 0.1, 1e-15);
    CHECK_EQ(sherd_schedule_cosine(before, 10, 0.1), 1);
    CHECK_NEAR(sherd_schedule_cosine(0, 0, 0.1), 0.1, 1e-15);
    CHECK_EQ(sherd_schedule_linear(far, 10, 1, 0.5), 0.5);
    CHECK_EQ(sherd_schedule_linear(before, 10, 1, 0.5), 1);
    CHECK_EQ(sherd_schedule_step(before, 3, 0.5), 1);
    CHECK_EQ(sherd_schedule_step(5, 0, 0.5), 1);
    CHECK_EQ(sherd_schedule_exponential(before, 0.5), 1);
    CHECK_EQ(sherd_schedule_exponential(far, 0.5), 0);
    CHECK_EQ(sherd_schedule_constant(before, 3, 0.5), 0.5);
    CHECK_EQ(sherd_schedule_constant(far, 3, 0.5), 1);
}

static const check_test tests[] = {
    {TEST(they_train_as_pytorch_does), {1, 2, 3, 4}},
    {TEST(they_are_their_formulas), {1, 2, 3, 4, 8}},
    {TEST(state_is_as_large_as_the_shard), {1, 2, 3, 8}},
    {TEST(vectors_decay_where_it_is_said), {1, 2}},
    {TEST(the_norm_is_clipped_in_one_round), {1, 2, 3, 4, 8}},
    {TEST(a_gradient_that_is_held_is_not_changed), {1, 2, 3}},
    {TEST(a_gradient_that_is_a_view_is_clipped), {1, 2, 3, 4, 8}},
    {TEST(a_norm_that_is_no_number_changes_nothing), {1, 2, 3}},
    {TEST(ranks_that_clip_otherwise_differ), {2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
    {TEST(schedules_are_those_of_pytorch), {1}},
    {TEST(schedules_have_ends), {1}},
};
CHECK_MAIN(tests)
