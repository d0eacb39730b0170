/* SPDX-License-Identifier: Apache-2.0 */
/* Momentum and betas that change between steps: each step goes by what they are then. */
#include <math.h>

#include "modules.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"

enum { ROWS = 5, STEPS = 6 };

typedef enum kind { SGD, NESTEROV, RMSPROP, ADAM, ADAMW, AMSGRAD, LION, MUON, ADAGRAD, KINDS } kind;

static const double rate = 0.1;

static double momentum_at(int step)
{
    return step == 3 ? 0 : 0.5 + 0.05 * step;
}

static double beta1_at(int step)
{
    return step == 3 ? 0 : 0.9 - 0.1 * step;
}

static double beta2_at(int step)
{
    return 0.9 + 0.01 * step;
}

static double gradient_at(int step, int i)
{
    return sin(1.3 * step + i) + 0.2;
}

static sherd_status make(sherd_optimizer **o, sherd_module *m, kind k)
{
    const sherd_sgd_options sgd = {.momentum = 0.5, .nesterov = k == NESTEROV};
    const sherd_adamw_options adam = {.amsgrad = k == AMSGRAD};

    switch (k) {
    case SGD:
    case NESTEROV:
        return sherd_sgd_create(o, m, &sgd);
    case RMSPROP:
        return sherd_rmsprop_create(o, m, &(sherd_rmsprop_options){.momentum = 0.5});
    case LION:
        return sherd_lion_create(o, m, NULL);
    case MUON:
        return sherd_muon_create(o, m, NULL);
    case ADAGRAD:
        return sherd_adagrad_create(o, m, NULL);
    default:
        return (k == ADAMW ? sherd_adamw_create : sherd_adam_create)(o, m, &adam);
    }
}

static bool has_betas(kind k)
{
    return k >= ADAM && k <= MUON;
}

/* One step of one element; a, b and top are its state. */
static double by_hand(kind k, int step, double g, double *a, double *b, double *top)
{
    double mu = momentum_at(step), b1 = beta1_at(step), b2 = beta2_at(step);

    if (k == SGD || k == NESTEROV) {
        *a = step == 0 ? g : mu * *a + g;
        return rate * (k == NESTEROV ? g + mu * *a : *a);
    }
    if (k == RMSPROP) {
        *b = 0.99 * *b + 0.01 * g * g;
        double d = g / (sqrt(*b) + 1e-8);
        *a = mu == 0 ? *a : mu * *a + d;
        return rate * (mu == 0 ? d : *a);
    }
    if (k == LION) {
        double c = b1 * *a + (1 - b1) * g;
        *a = b2 * *a + (1 - b2) * g;
        return rate * (c > 0 ? 1 : c < 0 ? -1 : 0);
    }
    *a = b1 * *a + (1 - b1) * g;
    *b = b2 * *b + (1 - b2) * g * g;
    *top = fmax(*top, *b);
    double v = k == AMSGRAD ? *top : *b;
    return rate * (*a / (1 - pow(b1, step + 1))) / (sqrt(v / (1 - pow(b2, step + 1))) + 1e-8);
}

static void set(sherd_optimizer *o, kind k, int step)
{
    if (has_betas(k))
        CHECK_OK(sherd_optimizer_betas(o, beta1_at(step), beta2_at(step)));
    if (!has_betas(k) || k == MUON)
        CHECK_OK(sherd_optimizer_momentum(o, momentum_at(step)));
}

static void take_step(sherd_module *m, sherd_optimizer *o, int step)
{
    sherd_tensor *p = sherd_module_parameter(m, "p");
    double data[ROWS];

    sherd_scope_begin(m->world);
    for (int i = 0; i < ROWS; i++)
        data[i] = gradient_at(step, i);
    sherd_tensor *g = sherd_mark_equal(sherd_from_data(m->world, SHERD_F64, SHAPE(ROWS), 1, data));
    sherd_backward(sherd_sum(sherd_mul(p, g)));
    sherd_optimizer_step(o, rate, 1);
    sherd_optimizer_clear(o);
    sherd_scope_end(m->world);
}

static sherd_module *vector(sherd_world *world, const char *placements)
{
    sherd_tensor *p = sherd_constant(world, SHERD_F64, SHAPE(ROWS), 1, 1);
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "p", spread(p, line_of_ranks(world), placements)));
    return m;
}

/* Of Muon a vector is updated by its AdamW. */
static void each_step_goes_by_what_they_are(sherd_world *world)
{
    for (int k = 0; k < ADAGRAD; k++)
        for (int way = 0; way < 2; way++) {
            double wanted[ROWS], a[ROWS] = {0}, b[ROWS] = {0}, top[ROWS] = {0};
            sherd_module *m = vector(world, way ? "S(0)" : "R");
            sherd_optimizer *o = NULL;
            CHECK_OK(make(&o, m, (kind)k));
            for (int i = 0; i < ROWS; i++)
                wanted[i] = 1;
            for (int step = 0; step < STEPS; step++) {
                set(o, (kind)k, step);
                take_step(m, o, step);
                for (int i = 0; i < ROWS; i++)
                    wanted[i] -=
                        by_hand((kind)k, step, gradient_at(step, i), &a[i], &b[i], &top[i]);
            }
            if (!CHECK_NEAR(distance_to(sherd_module_parameter(m, "p"), wanted, ROWS), 0, 1e-12))
                fprintf(stderr, "  %d, %d\n", k, way);
            CHECK_OK(sherd_world_check(world));
            sherd_optimizer_destroy(o);
            sherd_module_destroy(m);
        }
}

static void what_an_optimizer_has_not_is_refused(sherd_world *world)
{
    for (int k = 0; k < KINDS; k++) {
        sherd_module *m = vector(world, "R");
        sherd_optimizer *o = NULL;
        CHECK_OK(make(&o, m, (kind)k));
        CHECK_EQ(sherd_optimizer_betas(o, 0.5, 0.5), has_betas((kind)k) ? SHERD_OK : SHERD_EINVAL);
        CHECK_EQ(sherd_optimizer_momentum(o, 0.5),
                 k <= RMSPROP || k == MUON ? SHERD_OK : SHERD_EINVAL);
        take_step(m, o, 0);
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    for (int k = 0; k < 2; k++) {
        sherd_module *m = vector(world, "R");
        sherd_optimizer *o = NULL;
        CHECK_OK((k ? sherd_rmsprop_create(&o, m, NULL) : sherd_sgd_create(&o, m, NULL)));
        CHECK_EQ(sherd_optimizer_momentum(o, 0.5), SHERD_EINVAL);
        CHECK_OK(sherd_optimizer_momentum(o, 0));
        take_step(m, o, 0);
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
}

static void ranks_that_set_others_differ(sherd_world *world)
{
    sherd_module *m = vector(world, "R");
    sherd_optimizer *o = NULL;

    CHECK_OK(make(&o, m, SGD));
    CHECK_OK(sherd_optimizer_momentum(o, sherd_world_rank(world) ? 0.5 : 0.25));
    take_step(m, o, 0);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(each_step_goes_by_what_they_are), {1, 2, 3, 4, 8}},
    {TEST(what_an_optimizer_has_not_is_refused), {1, 2}},
    {TEST(ranks_that_set_others_differ), {2, 3}},
};
CHECK_MAIN(tests)
