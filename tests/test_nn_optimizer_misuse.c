/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of optimizers, their groups, loss scalers and schedules: see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/average.h"
#include "sherd/layers.h"
#include "sherd/lbfgs.h"
#include "sherd/optimizers.h"
#include "sherd/ops.h"
#include "sherd/scaler.h"

static sherd_module *linear(sherd_world *world)
{
    static const sherd_layer_options biased = {.name = "layer", .bias = true};
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, 4, 4, &biased));
    return m;
}

static const sherd_mesh *line(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

/* A training step of a small layer, clipped. */
static void computes(sherd_world *world)
{
    const int64_t shape[] = {4, 4};
    const sherd_optimizer_group group = {.pattern = "bias", .rate = 2};
    sherd_module *layer = linear(world);
    sherd_optimizer *o = NULL;

    sherd_scope_begin(world);
    CHECK_OK(
        sherd_adamw_create(&o, layer, &(sherd_adamw_options){.groups = &group, .group_count = 1}));
    const sherd_optimizers all = {line(world), &o, 1};
    sherd_backward(
        sherd_sum(sherd_module_call(layer, sherd_constant(world, SHERD_F32, shape, 2, 1))));
    CHECK_NEAR(sherd_optimizers_clip(&all, 1), sqrt(4 * 4 * 16 + 4 * 16), 1e-4);
    sherd_optimizer_step(o, 0.1, 1);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

MISUSE(state_is_sharded_over_an_axis_that_is_there)
{
    const int64_t shape[] = {4, 4};
    sherd_module *spread = NULL, *plain = linear(m->world);
    sherd_optimizer *o = NULL, *other = NULL;
    const sherd_layout *whole = NULL;

    CHECK_OK(sherd_layout_parse_placements(&whole, line(m->world), 2, shape, "R", NULL));
    CHECK_OK(sherd_module_create(&spread, m->world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(spread, "w", sherd_constant_on(whole, SHERD_F32, 1)));
    CHECK_OK(sherd_adamw_create(&o, spread, NULL));
    CHECK_OK(sherd_adamw_create(&other, plain, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_optimizer_shard(NULL, "x"));
    REFUSES(SHERD_EINVAL, sherd_optimizer_shard(o, NULL));
    REFUSES(SHERD_EINVAL, sherd_optimizer_shard(o, "y"));
    REFUSES(SHERD_EINVAL, sherd_optimizer_shard(other, "x"));
    CHECK_OK(sherd_optimizer_shard(o, "x"));
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(other);
    sherd_module_destroy(spread);
    sherd_module_destroy(plain);
}

MISUSE(an_optimizer_needs_a_module)
{
    sherd_module *layer = linear(m->world);
    sherd_optimizer *out;
    const sherd_adamw_options one = {.beta1 = 1}, nan = {.eps = (double)NAN};
    const sherd_sgd_options bad[] = {
        {.momentum = 1},           {.momentum = -0.1},
        {.momentum = (double)NAN}, {.dampening = 1.1},
        {.dampening = -0.1},       {.weight_decay = -1},
        {.nesterov = true},        {.momentum = 0.5, .dampening = 0.5, .nesterov = true}};

    const sherd_muon_options muon[] = {{.momentum = 1},      {.momentum = (double)NAN},
                                       {.eps = -1},          {.weight_decay = -1},
                                       {.steps = 101},       {.steps = -1},
                                       {.beta1 = 1},         {.adamw_eps = -1},
                                       {.dtype = SHERD_F16}, {.dtype = (sherd_dtype)99}};

    REFUSES(SHERD_EINVAL, sherd_adamw_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_adamw_create(&out, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_adamw_create(&out, layer, &one));
    REFUSES(SHERD_EINVAL, sherd_adamw_create(&out, layer, &nan));
    REFUSES(SHERD_EINVAL, sherd_adam_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_adam_create(&out, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_adam_create(&out, layer, &one));
    REFUSES(SHERD_EINVAL, sherd_sgd_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_sgd_create(&out, NULL, NULL));
    const sherd_rmsprop_options rmsprop[] = {{.alpha = 1},
                                             {.alpha = (double)NAN},
                                             {.eps = -1},
                                             {.momentum = 1},
                                             {.momentum = -1},
                                             {.weight_decay = -1},
                                             {.groups = NULL, .group_count = 1}};
    const sherd_adagrad_options adagrad[] = {{.rate_decay = -1},
                                             {.initial = (double)NAN},
                                             {.eps = -1},
                                             {.weight_decay = -1},
                                             {.groups = NULL, .group_count = 1}};

    REFUSES(SHERD_EINVAL, sherd_rmsprop_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_rmsprop_create(&out, NULL, NULL));
    for (int i = 0; i < LEN(rmsprop); i++)
        REFUSES(SHERD_EINVAL, sherd_rmsprop_create(&out, layer, &rmsprop[i]));
    REFUSES(SHERD_EINVAL, sherd_adagrad_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_adagrad_create(&out, NULL, NULL));
    for (int i = 0; i < LEN(adagrad); i++)
        REFUSES(SHERD_EINVAL, sherd_adagrad_create(&out, layer, &adagrad[i]));
    const sherd_lion_options lion[] = {{.beta1 = 1},
                                       {.beta2 = (double)NAN},
                                       {.weight_decay = -1},
                                       {.groups = NULL, .group_count = 1}};
    REFUSES(SHERD_EINVAL, sherd_lion_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_lion_create(&out, NULL, NULL));
    for (int i = 0; i < LEN(lion); i++)
        REFUSES(SHERD_EINVAL, sherd_lion_create(&out, layer, &lion[i]));
    REFUSES(SHERD_EINVAL, sherd_muon_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_muon_create(&out, NULL, NULL));
    for (int i = 0; i < LEN(muon); i++)
        REFUSES(SHERD_EINVAL, sherd_muon_create(&out, layer, &muon[i]));
    for (int i = 0; i < LEN(bad); i++)
        REFUSES(SHERD_EINVAL, sherd_sgd_create(&out, layer, &bad[i]));
    ANSWERS(out == NULL);
    sherd_module_destroy(layer);
}

MISUSE(more_optimizers_need_a_module)
{
    sherd_module *layer = linear(m->world);
    sherd_optimizer *out;
    const sherd_nadam_options nadam[] = {{.beta1 = 1},
                                         {.beta2 = -0.1},
                                         {.eps = -1},
                                         {.momentum_decay = -1},
                                         {.weight_decay = (double)NAN}};
    REFUSES(SHERD_EINVAL, sherd_nadam_create(NULL, layer, NULL));
    REFUSES(SHERD_EINVAL, sherd_radam_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_nadam_create(&out, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_radam_create(&out, NULL, NULL));
    for (int i = 0; i < LEN(nadam); i++) {
        REFUSES(SHERD_EINVAL, sherd_nadam_create(&out, layer, &nadam[i]));
        REFUSES(SHERD_EINVAL, sherd_radam_create(&out, layer, &nadam[i]));
    }
    const sherd_adafactor_options adafactor[] = {
        {.beta2_decay = 0.1},   {.eps = -1},         {.least_scale = -1}, {.limit = -1},
        {.weight_decay = -0.1}, {.group_count = -1}, {.group_count = 1}};
    REFUSES(SHERD_EINVAL, sherd_adafactor_create(NULL, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_adafactor_create(&out, NULL, NULL));
    for (int i = 0; i < LEN(adafactor); i++)
        REFUSES(SHERD_EINVAL, sherd_adafactor_create(&out, layer, &adafactor[i]));
    sherd_module_destroy(layer);
}

MISUSE(groups_need_patterns_that_find_parameters)
{
    static const sherd_optimizer_group bad[] = {{.pattern = NULL},
                                                {.pattern = "none"},
                                                {.pattern = "*", .rate = (double)NAN},
                                                {.pattern = "*", .rate = -1},
                                                {.pattern = "*", .weight_decay = -1}};
    sherd_module *layer = linear(m->world);
    sherd_optimizer *out;
    sherd_adamw_options adam = {.groups = NULL, .group_count = 1};
    sherd_sgd_options sgd = {.groups = bad, .group_count = -1};

    REFUSES(SHERD_EINVAL, sherd_adamw_create(&out, layer, &adam));
    REFUSES(SHERD_EINVAL, sherd_adam_create(&out, layer, &adam));
    REFUSES(SHERD_EINVAL, sherd_sgd_create(&out, layer, &sgd));
    adam.group_count = sgd.group_count = 1;
    for (int i = 0; i < LEN(bad); i++) {
        adam.groups = sgd.groups = &bad[i];
        REFUSES(SHERD_EINVAL, sherd_adamw_create(&out, layer, &adam));
        REFUSES(SHERD_EINVAL, sherd_adam_create(&out, layer, &adam));
        REFUSES(SHERD_EINVAL, sherd_sgd_create(&out, layer, &sgd));
    }
    ANSWERS(out == NULL);
    sherd_module_destroy(layer);
}

MISUSE(other_groups_need_the_same)
{
    static const sherd_optimizer_group good = {.pattern = "*", .rate = 2},
                                       bad[] = {{.pattern = NULL},
                                                {.pattern = "none"},
                                                {.pattern = "*", .rate = -1},
                                                {.pattern = "weight", .adamw = true}};
    sherd_module *layer = linear(m->world);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_muon_create(&o, layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_optimizer_groups(NULL, &good, 1));
    REFUSES(SHERD_EINVAL, sherd_optimizer_groups(o, NULL, 1));
    REFUSES(SHERD_EINVAL, sherd_optimizer_groups(o, &good, -1));
    for (int i = 0; i < LEN(bad); i++)
        REFUSES(SHERD_EINVAL, sherd_optimizer_groups(o, &bad[i], 1));
    ANSWERS(sherd_optimizer_groups(o, &good, 1) == SHERD_OK);
    ONLY_SAYS(SHERD_EINVAL, sherd_optimizer_momentum(NULL, 0.5));
    ONLY_SAYS(SHERD_EINVAL, sherd_optimizer_betas(NULL, 0.5, 0.5));
    REFUSES(SHERD_EINVAL, sherd_optimizer_momentum(o, 1));
    REFUSES(SHERD_EINVAL, sherd_optimizer_momentum(o, -0.5));
    REFUSES(SHERD_EINVAL, sherd_optimizer_betas(o, 1, 0.5));
    REFUSES(SHERD_EINVAL, sherd_optimizer_betas(o, 0.5, -0.5));
    REFUSES(SHERD_EINVAL, sherd_optimizer_betas(o, (double)NAN, 0.5));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
}

MISUSE(optimizers_are_clipped_together_on_a_mesh)
{
    sherd_module *layer = linear(m->world);
    sherd_optimizer *o = NULL;
    const sherd_mesh *mesh = line(m->world);

    CHECK_OK(sherd_sgd_create(&o, layer, NULL));
    sherd_backward(sherd_sum(sherd_module_parameter(layer, "weight")));
    sherd_optimizer *once[] = {o}, *twice[] = {o, o}, *none[] = {NULL};
    sherd_scaler scaler = {0};
    const sherd_optimizers good = {mesh, once, 1}, bad[] = {{mesh, once, -1},
                                                            {mesh, NULL, 1},
                                                            {mesh, twice, 2},
                                                            {mesh, none, 1},
                                                            {NULL, once, 1}};

    ANSWERS(isnan(sherd_optimizers_grad_norm(NULL)));
    ANSWERS(isnan(sherd_optimizers_clip(NULL, 1)));
    ANSWERS(!sherd_scaler_step_all(&scaler, NULL, 1, 0, NULL));
    ANSWERS(isnan(sherd_optimizers_grad_norm(&(sherd_optimizers){NULL, none, 1})));
    for (int i = 0; i < LEN(bad); i++) {
        FAILS(SHERD_EINVAL, sherd_optimizers_grad_norm(m->wrong ? &bad[i] : &good));
        FAILS(SHERD_EINVAL, sherd_optimizers_clip(m->wrong ? &bad[i] : &good, 1));
        FAILS(SHERD_EINVAL, sherd_scaler_step_all(&scaler, m->wrong ? &bad[i] : &good, 1, 0, NULL));
    }
    FAILS(SHERD_EINVAL, sherd_optimizers_clip(&good, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizers_clip(&good, BAD((double)NAN, 1)));
    ANSWERS(isnan(sherd_optimizers_grad_norm_of(NULL, 1)));
    ANSWERS(isnan(sherd_optimizers_clip_norm(NULL, 1, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizers_grad_norm_of(m->wrong ? &bad[0] : &good, 1));
    FAILS(SHERD_EINVAL, sherd_optimizers_grad_norm_of(&good, BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizers_clip_norm(&good, 1, BAD((double)NAN, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizers_clip_norm(&good, BAD(-1, 1), 1));
    FAILS(SHERD_EINVAL, sherd_scaler_step_all(NUL(&scaler), &good, 1, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_scaler_step_all(&scaler, &good, 1, BAD(-1, 0), NULL));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
}

/* The least squares of a layer's weights. */
static sherd_tensor *squares(void *layer)
{
    sherd_tensor *weight = sherd_module_parameter(layer, "weight");
    sherd_tensor *loss = sherd_sum(sherd_mul(weight, weight));

    sherd_backward(loss);
    return loss;
}

MISUSE(a_fit_needs_a_loss_and_a_length)
{
    const sherd_lbfgs_options options = {.history = BAD(-1, 1)};
    sherd_module *layer = linear(m->world);
    sherd_lbfgs *fit = NULL, *other = NULL;

    CHECK_OK(sherd_lbfgs_create(&fit, layer, NULL));
    REFUSES(SHERD_EINVAL, sherd_lbfgs_create(NUL(&other), layer, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_lbfgs_create(&other, NUL(layer), NULL));
    REFUSES(SHERD_EINVAL, sherd_lbfgs_create(&other, layer, &options));
    ANSWERS(isnan(sherd_lbfgs_step(NULL, 1, squares, layer, NULL)));
    FAILS(SHERD_EINVAL, sherd_lbfgs_step(fit, 1, NUL(squares), layer, NULL));
    FAILS(SHERD_EINVAL, sherd_lbfgs_step(fit, BAD(-1, 1), squares, layer, NULL));
    sherd_lbfgs_forget(NULL);
    sherd_lbfgs_forget(fit);
    sherd_lbfgs_destroy(NULL);
    sherd_lbfgs_destroy(fit);
    sherd_lbfgs_destroy(other);
    sherd_module_destroy(layer);
}

MISUSE(clipping_needs_a_bound_that_is_not_negative)
{
    sherd_module *layer = linear(m->world);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, layer, NULL));
    ANSWERS(isnan(sherd_optimizer_clip(NULL, 1)));
    sherd_optimizer_clip_value(NULL, 1);
    FAILS(SHERD_EINVAL, sherd_optimizer_clip(o, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizer_clip(o, BAD((double)NAN, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizer_clip_value(o, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizer_clip_value(o, BAD((double)NAN, 1)));
    ANSWERS(isnan(sherd_optimizer_grad_norm_of(NULL, 1)));
    ANSWERS(isnan(sherd_optimizer_clip_norm(NULL, 1, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizer_grad_norm_of(o, BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_optimizer_grad_norm_of(o, BAD(-HUGE_VAL, HUGE_VAL)));
    FAILS(SHERD_EINVAL, sherd_optimizer_clip_norm(o, BAD(-1, 1), 1));
    FAILS(SHERD_EINVAL, sherd_optimizer_clip_norm(o, 1, BAD((double)NAN, 1)));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
}

static bool says(const misuse *m, const char *part)
{
    return strstr(sherd_world_error(m->world), part) != NULL;
}

/* What a step refuses has changed nothing. */
MISUSE(a_step_needs_factors_that_are_numbers)
{
    static const double bad[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    const int64_t shape[] = {4, 4};
    sherd_module *layer = linear(m->world);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adamw_create(&o, layer, NULL));
    sherd_tensor *bias = sherd_module_parameter(layer, "bias");
    sherd_backward(
        sherd_sum(sherd_module_call(layer, sherd_constant(m->world, SHERD_F32, shape, 2, 1))));
    sherd_optimizer_step(NULL, (double)NAN, 1);
    for (int i = 0; i < LEN(bad); i++) {
        FAILS(SHERD_EINVAL, sherd_optimizer_step(o, BAD(bad[i], 0.1), 1));
        CHECK(says(m, ": the learning rate is "));
        FAILS(SHERD_EINVAL, sherd_optimizer_step(o, 0.1, BAD(bad[i], 1)));
        CHECK(says(m, ": grad_scale is "));
    }
    FAILS(SHERD_EINVAL, sherd_optimizer_step(o, BAD(-0.1, 0.1), 1));
    FAILS(SHERD_EINVAL, sherd_optimizer_clip(o, BAD((double)NAN, 1)));
    CHECK(says(m, "the norm is nan: it is no number") ||
          says(m, "the norm is -nan: it is no number"));
    if (!m->alone)
        CHECK_EQ(((const float *)sherd_tensor_read(bias))[0], 0);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
}

MISUSE(a_scaler_has_a_factor_that_is_a_number)
{
    sherd_module *layer = linear(m->world);
    sherd_optimizer *o = NULL;
    sherd_scaler good = {0},
                 bad[] = {{.scale = -1},    {.scale = HUGE_VAL},    {.scale = (double)NAN},
                          {.growth = 0.5},  {.backoff = 1.5},       {.backoff = -0.5},
                          {.interval = -1}, {.growth = (double)NAN}};
    sherd_tensor *loss = sherd_constant(m->world, SHERD_F32, NULL, 0, 1);

    CHECK_OK(sherd_sgd_create(&o, layer, NULL));
    ANSWERS(!sherd_scaler_step(&good, NULL, 1, 0, NULL));
    ANSWERS(sherd_scaler_scale(&good, NULL) == NULL);
    FAILS(SHERD_EINVAL, sherd_scaler_scale(NUL(&good), loss));
    FAILS(SHERD_EINVAL, sherd_scaler_step(NUL(&good), o, 1, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_scaler_step(&good, o, 1, BAD(-1, 0), NULL));
    FAILS(SHERD_EINVAL, sherd_scaler_step(&good, o, 1, BAD((double)NAN, 0), NULL));
    FAILS(SHERD_EINVAL, sherd_scaler_step(&good, o, BAD(-1, 1), 0, NULL));
    FAILS(SHERD_EINVAL, sherd_scaler_step(&good, o, BAD((double)NAN, 1), 0, NULL));
    FAILS(SHERD_EINVAL, sherd_scaler_step(&good, o, BAD(HUGE_VAL, 1), 0, NULL));
    for (int i = 0; i < LEN(bad); i++) {
        FAILS(SHERD_EINVAL, sherd_scaler_scale(m->wrong ? &bad[i] : &good, loss));
        FAILS(SHERD_EINVAL, sherd_scaler_step(m->wrong ? &bad[i] : &good, o, 1, 0, NULL));
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
}

MISUSE(an_average_is_of_a_module_like_it)
{
    sherd_module *average = linear(m->world), *layer = linear(m->world), *other = NULL;

    CHECK_OK(sherd_linear_create(&other, m->world, 3, 4, NULL));
    sherd_module_average(NULL, NULL, 1);
    FAILS(SHERD_EINVAL, sherd_module_average(average, NUL(layer), 1));
    FAILS(SHERD_EINVAL, sherd_module_average(NUL(average), layer, 1));
    FAILS(SHERD_EINVAL, sherd_module_average(average, BAD(average, layer), 0.5));
    FAILS(SHERD_EINVAL, sherd_module_average(average, BAD(other, layer), 0.5));
    FAILS(SHERD_EINVAL, sherd_module_average(average, layer, BAD(-0.1, 0.5)));
    FAILS(SHERD_EINVAL, sherd_module_average(average, layer, BAD(1.5, 0.5)));
    FAILS(SHERD_EINVAL, sherd_module_average(average, layer, BAD((double)NAN, 0.5)));
    sherd_module_destroy(average);
    sherd_module_destroy(layer);
    sherd_module_destroy(other);
}

MISUSE(schedules_answer_whatever_is_asked)
{
    ANSWERS(sherd_schedule_constant(-1, -1, 0.5) == 1 && sherd_schedule_warmup(-1, -1) == 1);
    ANSWERS(sherd_schedule_linear(0, -1, 1, 0.5) == 0.5 && sherd_schedule_cosine(0, -1, 0) < 1e-9);
    ANSWERS(sherd_schedule_step(1, -1, 0.5) == 1 && sherd_schedule_exponential(-1, 0.5) == 1);
}

static const check_test tests[] = {
    {TEST(state_is_sharded_over_an_axis_that_is_there), {1, 2, 3}},
    {TEST(an_optimizer_needs_a_module), {1, 2}},
    {TEST(more_optimizers_need_a_module), {1, 2}},
    {TEST(groups_need_patterns_that_find_parameters), {1, 2}},
    {TEST(other_groups_need_the_same), {1, 2}},
    {TEST(optimizers_are_clipped_together_on_a_mesh), {1, 2, 3}},
    {TEST(a_fit_needs_a_loss_and_a_length), {1, 2}},
    {TEST(clipping_needs_a_bound_that_is_not_negative), {1, 2, 3}},
    {TEST(a_step_needs_factors_that_are_numbers), {1, 2, 3}},
    {TEST(a_scaler_has_a_factor_that_is_a_number), {1, 2}},
    {TEST(an_average_is_of_a_module_like_it), {1, 2, 3}},
    {TEST(schedules_answer_whatever_is_asked), {1}},
};
CHECK_MAIN(tests)
