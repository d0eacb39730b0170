/* SPDX-License-Identifier: Apache-2.0 */
/* An MLP in tensor parallel against numbers from PyTorch, and the calls that it makes. */
#include "models.h"
#include "data/styles_mlp.h"

typedef struct golden {
    int64_t rows;
    const double *output, *x, *grad[4];
    double loss;
} golden;

static const golden cases[] = {
    {8,
     mlp_output,
     mlp_x,
     {mlp_net1_weight, mlp_net1_bias, mlp_net2_weight, mlp_net2_bias},
     0.6208507},
    {5,
     mlp_5_rows_output,
     mlp_5_rows_x,
     {mlp_5_rows_net1_weight, mlp_5_rows_net1_bias, mlp_5_rows_net2_weight, mlp_5_rows_net2_bias},
     0.6404671},
};
static const char *const names[] = {"net1.weight", "net1.bias", "net2.weight", "net2.bias"};
static const int64_t counts[] = {60, 10, 40, 4};

typedef struct calls {
    int64_t forward, backward;
} calls;

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(m, i / 2), strchr(names[i], '.') + 1);
}

/* One forward and backward; everything must be as in the case. */
static calls run(sherd_world *world, sherd_module *m, sherd_tensor *x, const golden *g)
{
    sherd_tensor *y, *loss, *target = wave(world, SHERD_F64, 2, SHAPE(g->rows, 4), 23, 1, 0);
    calls c;

    sherd_comm_reset(world);
    y = sherd_module_call(m, x);
    c.forward = calls_logged(world);
    CHECK_NEAR(distance_to(y, g->output, g->rows * 4), 0, 2e-7);
    if (sherd_tensor_layout(y))
        target = spread(target, sherd_layout_mesh(sherd_tensor_layout(y)),
                        sherd_layout_placements(sherd_tensor_layout(y)));
    loss = squared_error(y, target);
    sherd_comm_reset(world);
    sherd_backward(loss);
    sherd_grad(x); /* a leaf's gradient is settled when it is asked for */
    c.backward = calls_logged(world);
    CHECK_NEAR(sherd_item(loss), g->loss, 2e-7);
    CHECK_NEAR(distance_to(sherd_grad(x), g->x, g->rows * 6), 0, 2e-7);
    for (int i = 0; i < 4; i++)
        if (!CHECK_NEAR(distance_to(sherd_grad(parameter(m, i)), g->grad[i], counts[i]), 0, 2e-7))
            fprintf(stderr, "  of %s\n", names[i]);
    return c;
}

static void a_plain_mlp_is_torchs(sherd_world *world)
{
    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, 6, 10, 4);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(cases[i].rows, 6), 17, 1, 0);
        calls c = run(world, m, sherd_require_grad(x, true), &cases[i]);
        CHECK_EQ(c.forward + c.backward, 0);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void check_placements(sherd_module *m)
{
    static const char *const placements[] = {"S(0)", "S(0)", "S(1)", "R"};
    for (int i = 0; i < 4; i++)
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(parameter(m, i))), placements[i]);
}

/* One all-reduce forward and one backward, whatever divides what. */
static void colwise_and_rowwise_cost_one_call_each_way(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    int once = sherd_world_ranks(world) > 1;

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, 6, 10, 4);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(cases[i].rows, 6), 17, 1, 0);
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
        check_placements(m);
        x = sherd_require_grad(spread(x, mesh, "R"), true);
        calls c = run(world, m, x, &cases[i]);
        CHECK_EQ(c.forward, once);
        CHECK_EQ(c.backward, once);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A plain input is taken for replicated, and gets a plain gradient. */
static void a_plain_input_is_adopted(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    plan[1].style.to_local = true;
    int once = sherd_world_ranks(world) > 1;

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, 6, 10, 4);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(cases[i].rows, 6), 17, 1, 0);
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
        calls c = run(world, m, sherd_require_grad(x, true), &cases[i]);
        CHECK_EQ(c.forward, once);
        CHECK_EQ(c.backward, once);
        CHECK(sherd_tensor_layout(sherd_grad(x)) == NULL);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * Rows sharded outside: a gather and a reduce-scatter each way; 5 rows on 2 ranks work too. What is
 * gathered for the forward is gathered again for the backward, unless the style keeps it, as
 * PyTorch does.
 */
static void sharded_rows_cost_a_gather_and_a_scatter(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    plan[0].style.input = sherd_shard(0);
    plan[1].style.output = sherd_shard(0);
    int once = sherd_world_ranks(world) > 1;

    for (int i = 0; i < 2 * LEN(cases); i++) {
        const golden *g = &cases[i / 2];
        sherd_module *m = mlp(world, SHERD_F64, 6, 10, 4);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(g->rows, 6), 17, 1, 0);
        plan[0].style.keep_gathered = i % 2;
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
        check_placements(m);
        x = sherd_require_grad(spread(x, mesh, "S(0)"), true);
        calls c = run(world, m, x, g);
        CHECK_EQ(c.forward, 2 * once);
        CHECK_EQ(c.backward, (i % 2 ? 2 : 3) * once);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The same from each rank's own rows, of whatever number. */
static void plain_rows_are_joined(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    plan[0].style.input = sherd_shard(0);

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, 6, 10, 4);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(cases[i].rows, 6), 17, 1, 0);
        sherd_box box;
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
        x = spread(x, mesh, "S(0)");
        box = sherd_tensor_box(x);
        x = sherd_from_data(world, SHERD_F64, box.size, 2, sherd_tensor_read(x));
        CHECK_NEAR(distance_to(sherd_module_call(m, x), cases[i].output, cases[i].rows * 4), 0,
                   2e-7);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* dp shards rows, tp features; the styles leave dp alone. */
static void another_axis_is_left_alone(sherd_world *world)
{
    const sherd_mesh *mesh =
        mesh_of(world, sherd_world_ranks(world) == 4 ? "dp=2,tp=2" : "dp=2,tp=3");
    const sherd_mesh *sub = NULL;
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};

    CHECK_OK(sherd_mesh_slice(&sub, mesh, 1, (const char *const[]){"tp"}));
    for (int i = 0; i < 2 * LEN(cases); i++) {
        const golden *g = &cases[i / 2];
        sherd_module *m = mlp(world, SHERD_F64, 6, 10, 4);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(g->rows, 6), 17, 1, 0);
        CHECK_OK(sherd_parallelize(m, i % 2 ? sub : mesh, "tp", plan, 2));
        CHECK(sherd_layout_mesh(sherd_tensor_layout(parameter(m, 0))) == mesh);
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(parameter(m, 0))), "RS(0)");
        x = sherd_require_grad(spread(x, mesh, "S(0)R"), true);
        run(world, m, x, g);
        sherd_tensor *y = sherd_module_call(m, x);
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(y)), "S(0)R");
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_plain_mlp_is_torchs), {1}},
    {TEST(colwise_and_rowwise_cost_one_call_each_way), {1, 2, 3, 4, 8}},
    {TEST(a_plain_input_is_adopted), {1, 2, 3}},
    {TEST(sharded_rows_cost_a_gather_and_a_scatter), {1, 2, 3, 4, 8}},
    {TEST(plain_rows_are_joined), {1, 2, 3}},
    {TEST(another_axis_is_left_alone), {4, 6}},
};
CHECK_MAIN(tests)
