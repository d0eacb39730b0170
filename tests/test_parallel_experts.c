/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts on the ranks that share the batch: their weights are sharded over dp by expert, all other
 * parameters are fully sharded over dp, and training is as on one rank.
 */
#include "models.h"
#include "sherd/optimizer.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

enum { EXPERTS = 5, WIDTH = 6, ROWS = 7, STEPS = 4 };

/* Each row is given to all experts, and what they make of it is weighed. */
static void mixture(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_module_call(sherd_module_child(self, 0), in->value[0]);
    sherd_tensor *share = sherd_softmax(sherd_module_call(sherd_module_child(self, 1), x), -1);
    sherd_tensor *h = sherd_einsum(
        "rw,ewv->rev", (sherd_tensor *[]){x, sherd_module_parameter(self, "experts")}, 2);

    h = sherd_einsum("re,rev->rv", (sherd_tensor *[]){share, sherd_tanh(h)}, 2);
    out->value[0] = sherd_add(x, h);
    out->count = 1;
}

static sherd_module *model_of(sherd_world *world)
{
    sherd_module *m = container(world, mixture, NULL);

    linear_layer(m, "in", SHERD_F64, WIDTH, WIDTH, 1);
    linear_layer(m, "router", SHERD_F64, WIDTH, EXPERTS, 2);
    CHECK_OK(sherd_module_add_parameter(
        m, "experts", wave(world, SHERD_F64, 3, SHAPE(EXPERTS, WIDTH, WIDTH), 3, 0.4, 0)));
    return m;
}

static void train(sherd_module *m, const sherd_mesh *mesh, double *loss)
{
    sherd_world *world = sherd_module_world(m);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < STEPS; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3 + step, 1, 0);
        sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 5 + step, 1, 0);
        if (mesh) {
            x = spread(x, mesh, "S(0)");
            t = spread(t, mesh, "S(0)");
        }
        sherd_tensor *l = squared_error(sherd_module_call(m, x), t);
        sherd_backward(l);
        loss[step] = sherd_item(l);
        sherd_optimizer_step(o, 0.02, 1 / fmax(1, sherd_optimizer_grad_norm(o)));
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    CHECK_OK(sherd_world_check(world));
}

static void experts_stay_where_they_are(sherd_world *world)
{
    char text[16];
    double alone[STEPS], loss[STEPS];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_module *plain = model_of(world), *m = model_of(world);
    train(plain, NULL, alone);
    sherd_module_destroy(plain);
    sherd_tensor *experts = spread(sherd_module_parameter(m, "experts"), mesh, "S(0)");
    CHECK_OK(sherd_module_set_parameter(m, "experts", experts));
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "(options.skip_sharded leaves it)") != NULL);
    sherd_module_destroy(m);
    m = model_of(world);
    experts = spread(sherd_module_parameter(m, "experts"), mesh, "S(0)");
    CHECK_OK(sherd_module_set_parameter(m, "experts", experts));
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.skip_sharded = true}));
    CHECK(sherd_module_parameter(m, "experts") == experts);
    CHECK_TEXT(sherd_layout_placements(
                   sherd_tensor_layout(sherd_module_parameter(sherd_module_child(m, 0), "weight"))),
               "S(0)");
    train(m, mesh, loss);
    for (int i = 0; i < STEPS; i++)
        CHECK_NEAR(loss[i], alone[i], 1e-10 * alone[i]);
    CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(sherd_module_parameter(m, "experts"))),
               "S(0)");
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(experts_stay_where_they_are), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
