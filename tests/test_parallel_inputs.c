/* SPDX-License-Identifier: Apache-2.0 */
/* What arrives at a style: declared or not, plain or distributed, and what it is taken for. */
#include "styles.h"

static void a_declared_input_is_checked(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = container(world, NULL, NULL);
    sherd_module *m = linear_layer(root, "fc", SHERD_F64, 4, 4, 1);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(6, 4), 1, 1, 0);
    sherd_parallel_entry entry = {"fc", sherd_colwise()};
    bool alone = sherd_world_ranks(world) == 1;

    entry.style.input = sherd_shard(-2);
    CHECK_OK(sherd_parallelize(root, mesh, "tp", &entry, 1));
    CHECK(!sherd_tensor_failed(sherd_module_call(m, spread(x, mesh, "S(0)"))));
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *y = sherd_module_call(m, spread(x, mesh, "S(1)"));
    CHECK_EQ(sherd_tensor_failed(y), !alone);
    CHECK_EQ(sherd_world_check(world), alone ? SHERD_OK : SHERD_EINVAL);
    if (!alone) {
        CHECK(strstr(sherd_world_error(world), "\"fc\" (Colwise on axis tp)") != NULL);
        CHECK(strstr(sherd_world_error(world), "f64[6,4(tp)]") != NULL);
        CHECK(strstr(sherd_world_error(world), "declares S(-2) as input") != NULL);
    }
    sherd_module_destroy(root);
}

/* What came out of to_local goes back to where it was, though the ranks have different numbers of rows. */
static void a_local_piece_remembers_its_layout(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *a = linear(world, 4, 5), *b = linear(world, 5, 3), *plain = linear(world, 4, 5);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(3, 4), 1, 1, 0), *y;
    sherd_style style = sherd_colwise();

    whole(sherd_module_call(b, sherd_module_call(plain, x)), expected);
    style.to_local = true;
    CHECK_OK(apply(a, mesh, style));
    CHECK_OK(apply(b, mesh, sherd_rowwise()));
    y = sherd_module_call(a, x);
    CHECK(sherd_tensor_layout(y) == NULL);
    CHECK_NEAR(distance_to(sherd_module_call(b, y), expected, 9), 0, 1e-13);
    /* A colwise layer would need it whole: gathered, not taken for whole. */
    sherd_module *c = linear(world, 5, 2), *whole_c = linear(world, 5, 2);
    CHECK_OK(apply(c, mesh, sherd_colwise()));
    whole(sherd_module_call(whole_c, sherd_module_call(plain, x)), expected);
    CHECK_NEAR(distance_to(sherd_module_call(c, y), expected, 6), 0, 1e-13);
    sherd_module_destroy(a);
    sherd_module_destroy(b);
    sherd_module_destroy(c);
    sherd_module_destroy(whole_c);
    sherd_module_destroy(plain);
    CHECK_OK(sherd_world_check(world));
}

static void a_plain_tensor_that_differs_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *a = linear(world, 4, 6), *b = linear(world, 3, 4);
    sherd_style style = sherd_colwise();
    sherd_tensor *y;

    style.to_local = true;
    CHECK_OK(apply(a, mesh, style));
    CHECK_OK(apply(b, mesh, sherd_colwise()));
    y = sherd_relu(sherd_module_call(a, wave(world, SHERD_F64, 2, SHAPE(2, 4), 1, 1, 0)));
    CHECK(sherd_tensor_failed(sherd_module_call(b, y)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "can't be taken for replicated") != NULL);
    sherd_module_destroy(a);
    sherd_module_destroy(b);
}

static void a_plain_tensor_beside_another_axis_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_module *m = linear(world, 4, 6);
    double data[8] = {0};
    sherd_tensor *x = sherd_from_data(world, SHERD_F64, SHAPE(2, 4), 2, data);

    CHECK_OK(apply(m, mesh, sherd_colwise()));
    CHECK(sherd_tensor_failed(sherd_module_call(m, x)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_TEXT(placements(sherd_module_call(m, sherd_mark_equal(x))), "RS(1)");
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void another_mesh_is_refused(sherd_world *world)
{
    sherd_module *m = linear(world, 4, 6);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(2, 4), 1, 1, 0);

    CHECK_OK(apply(m, mesh_of(world, "tp=2"), sherd_colwise()));
    CHECK(sherd_tensor_failed(sherd_module_call(m, spread(x, mesh_of(world, "other=2"), "R"))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "another mesh") != NULL);
    sherd_module_destroy(m);
}

static void echo(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    *out = *in;
}

/* A pending sum along the axis is settled on arrival; one along another axis stays. */
static void pending_inputs_are_settled_on_the_axis_only(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    const sherd_layout *layout = NULL;
    sherd_style style = sherd_prepare_input();
    sherd_module *m = container(world, echo, NULL);

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 1, SHAPE(5), "P(sum)P(sum)", NULL));
    CHECK_OK(apply(m, mesh, style));
    sherd_tensor *y = sherd_module_call(m, sherd_constant_on(layout, SHERD_F64, 3));
    CHECK_TEXT(placements(y), "P(sum)R");
    double three[5] = {3, 3, 3, 3, 3};
    CHECK_EQ(distance_to(y, three, 5), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_declared_input_is_checked), {1, 2, 3}},
    {TEST(a_local_piece_remembers_its_layout), {1, 2, 3}},
    {TEST(a_plain_tensor_that_differs_is_refused), {2, 3}},
    {TEST(a_plain_tensor_beside_another_axis_is_refused), {4}},
    {TEST(another_mesh_is_refused), {2}},
    {TEST(pending_inputs_are_settled_on_the_axis_only), {4}},
};
CHECK_MAIN(tests)
