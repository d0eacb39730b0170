/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers and norms that the CPU computes, in a world with GPUs: parameters and gradients are
 * fetched, and the GPU computes with what a step has changed. SHERD_DEVICE is set for this program.
 */
#include "modules.h"
#include "sherd/ops_reductions.h"
#include "sherd/optimizer.h"

enum { ROWS = 6, COLS = 4, COUNT = ROWS * COLS };

typedef enum kind { AMSGRAD, RMSPROP, ADAGRAD, LION, KINDS } kind;

static sherd_status optimizer(sherd_optimizer **out, kind k, sherd_module *m)
{
    return k == AMSGRAD   ? sherd_adamw_create(out, m, &(sherd_adamw_options){.amsgrad = true})
           : k == RMSPROP ? sherd_rmsprop_create(out, m, &(sherd_rmsprop_options){.alpha = 0.75})
           : k == LION    ? sherd_lion_create(out, m, NULL)
                          : sherd_adagrad_create(out, m, NULL);
}

/* Two steps with gradients of 2 everywhere. */
static void train(sherd_world *world, kind k, sherd_dtype dtype)
{
    static const double after[KINDS][2] = {
        {0.75, 0.5},
        {1 - 0.25 * 2, 1 - 0.25 * 2 - 0.25 / 0.66143782776614764},
        {0.75, 0.75 - 0.25 * 0.70710678118654752},
        {0.75, 0.5}};
    double tolerance = dtype == SHERD_F32 ? 1e-6 : 4e-3;
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    sherd_tensor *p = sherd_constant(world, dtype, SHAPE(ROWS, COLS), 2, 0.5);
    p = sherd_scale(spread(p, line_of_ranks(world), "S(0)"), 2);
    CHECK_OK(sherd_module_add_parameter(m, "p", sherd_detach(p)));
    p = sherd_module_parameter(m, "p");
    CHECK_OK(optimizer(&o, k, m));
    for (int step = 0; step < 2; step++) {
        sherd_scope_begin(world);
        sherd_backward(sherd_sum(sherd_scale(p, 2)));
        CHECK_NEAR(sherd_optimizer_grad_norm_of(o, 1), 2 * COUNT, 1e-9);
        CHECK_NEAR(sherd_optimizer_grad_norm_of(o, INFINITY), 2, 1e-12);
        sherd_optimizer_step(o, 0.25, 1);
        sherd_optimizer_clear(o);
        CHECK_NEAR(sherd_item(sherd_max(p, NULL, 0, false)), after[k][step], tolerance);
        CHECK_NEAR(sherd_item(sherd_min(p, NULL, 0, false)), after[k][step], tolerance);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static void what_the_cpu_computes_is_seen_there(sherd_world *world)
{
    for (int k = 0; k < KINDS; k++) {
        train(world, (kind)k, SHERD_F32);
        train(world, (kind)k, SHERD_BF16);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_the_cpu_computes_is_seen_there), {1, 2, 3}},
};
CHECK_MAIN(tests)
