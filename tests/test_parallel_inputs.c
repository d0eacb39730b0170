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

/* What came out of to_local goes back to where it was, though the ranks have different numbers of
 * rows. */
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

/* Not a piece, of which the sequence would be as many times longer as there are ranks: whatever a
 * style takes. */
static void a_plain_tensor_that_is_equal_is_the_whole(sherd_world *world)
{
    static _Thread_local double expected[MOST], grad[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 4; i++) { /* a norm, a Rowwise layer; once more with the shard declared */
        sherd_module *plain, *m;
        sherd_style style = i % 2 ? sherd_rowwise() : sherd_sequence_parallel();
        if (i % 2) {
            plain = linear(world, 6, 4);
            m = linear(world, 6, 4);
        } else {
            CHECK_OK(sherd_layer_norm_create(&plain, world, 6, &(sherd_layer_options){0}));
            CHECK_OK(sherd_layer_norm_create(&m, world, 6, &(sherd_layer_options){0}));
        }
        if (i >= 2)
            style.input = sherd_shard(i % 2 ? 2 : 1);
        sherd_dtype dtype = i % 2 ? SHERD_F64 : SHERD_F32;
        sherd_tensor *x = wave(world, dtype, 3, SHAPE(3, 5, 6), 1, 1, 0);
        sherd_tensor *y = sherd_module_call(plain, sherd_require_grad(x, true));
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        int64_t n = whole(y, expected), inputs = whole(sherd_grad(x), grad);
        sherd_clear_grad(x);
        CHECK_OK(apply(m, mesh, style));
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        y = sherd_module_call(m, x);
        /* Sliced, nothing travels; but the sum of the Rowwise layer does. */
        CHECK_EQ(calls_logged(world), i % 2 && sherd_world_ranks(world) > 1);
        CHECK_TEXT(placements(y), i % 2 ? "R" : "S(1)");
        CHECK_NEAR(distance_to(y, expected, n), 0, i % 2 ? 1e-12 : 1e-6);
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        CHECK(sherd_grad(x) && sherd_tensor_layout(sherd_grad(x)) == NULL);
        CHECK_NEAR(distance_to(sherd_grad(x), grad, inputs), 0, i % 2 ? 1e-12 : 1e-5);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A piece that nobody knows more of is joined to the others, as it is declared. */
static void a_plain_tensor_of_unknown_origin_is_a_piece(sherd_world *world)
{
    static _Thread_local double data[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t ranks = sherd_world_ranks(world);

    for (int i = 0; i < 2; i++) {
        sherd_module *m = i ? linear(world, 2 * ranks, 4) : NULL;
        if (!m)
            CHECK_OK(sherd_dropout_create(&m, world, 0));
        CHECK_OK(apply(m, mesh, i ? sherd_rowwise() : sherd_sequence_parallel()));
        sherd_tensor *y =
            sherd_module_call(m, sherd_from_data(world, SHERD_F64, SHAPE(3, 2), 2, data));
        CHECK_EQ(sherd_tensor_shape(y)[1], i ? 4 : 2 * ranks);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_declared_input_is_checked), {1, 2, 3}},
    {TEST(a_local_piece_remembers_its_layout), {1, 2, 3}},
    {TEST(a_plain_tensor_that_differs_is_refused), {2, 3}},
    {TEST(a_plain_tensor_beside_another_axis_is_refused), {4}},
    {TEST(another_mesh_is_refused), {2}},
    {TEST(pending_inputs_are_settled_on_the_axis_only), {4}},
    {TEST(a_plain_tensor_that_is_equal_is_the_whole), {1, 2, 3, 4}},
    {TEST(a_plain_tensor_of_unknown_origin_is_a_piece), {2, 3}},
};
CHECK_MAIN(tests)
