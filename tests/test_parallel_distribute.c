/* SPDX-License-Identifier: Apache-2.0 */
/* Modules spread by functions of one's own, styles of one's own, and the table of what became of
 * them. */
#include "styles.h"

static int number_of(sherd_module *root, const char *path)
{
    static const char *const names[] = {"weight", "bias"};
    int replicated = 0;

    for (int i = 0; i < 2; i++)
        replicated +=
            strcmp(placements(sherd_module_parameter(sherd_module_find(root, path), names[i])),
                   "R") == 0;
    return replicated;
}

/* What each of the functions is told. */
typedef struct told {
    int modules, inputs, outputs;
    const char *only; /* path of the module to place; NULL = all Linear ones */
    const sherd_mesh *mesh;
} told;

static sherd_status partition(sherd_module *m, const sherd_mesh *mesh, void *payload)
{
    told *t = payload;

    t->modules++;
    CHECK(mesh == t->mesh);
    if (sherd_module_kind_of(m) != SHERD_MODULE_LINEAR ||
        (t->only && strcmp(t->only, sherd_module_path(m)) != 0))
        return SHERD_OK;
    return sherd_style_place_parameter(m, "weight", mesh, 0, sherd_shard(0), 0);
}

static void input(sherd_module *self, sherd_args *in, void *payload)
{
    told *t = payload;
    const sherd_layout *rows = NULL;

    (void)self;
    t->inputs++;
    CHECK_OK(sherd_layout_parse_placements(&rows, t->mesh, 2, sherd_tensor_shape(in->value[0]),
                                           "S(0)", NULL));
    in->value[0] = sherd_distribute(in->value[0], rows, -1);
}

static void output(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    told *t = payload;

    (void)self, (void)in;
    t->outputs++;
    out->value[0] = sherd_full(out->value[0]);
}

static void without_a_partition_all_is_replicated(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = mlp(world, SHERD_F64, 6, 8, 4);

    CHECK_OK(sherd_module_add_buffer(m, "seen", sherd_constant(world, SHERD_I64, NULL, 0, 1)));
    CHECK_OK(sherd_distribute_module(m, mesh, NULL, NULL, NULL, NULL));
    CHECK_EQ(number_of(m, "net1") + number_of(m, "net2"), 4);
    CHECK_TEXT(placements(sherd_module_buffer(m, "seen")), "R");
    CHECK_EQ(sherd_distribute_module(m, mesh, NULL, NULL, NULL, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "has been distributed before") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void a_partition_places_what_it_likes(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 2; i++) {
        sherd_module *m = mlp(world, SHERD_F64, 6, 8, 4);
        told t = {.mesh = mesh, .only = i ? "net1" : NULL};
        CHECK_OK(sherd_distribute_module(m, mesh, partition, NULL, NULL, &t));
        CHECK_EQ(t.modules, 3);
        CHECK_TEXT(placements(sherd_module_parameter(sherd_module_find(m, "net1"), "weight")),
                   "S(0)");
        CHECK_TEXT(placements(sherd_module_parameter(sherd_module_find(m, "net2"), "weight")),
                   i ? "R" : "S(0)");
        CHECK_EQ(number_of(m, "net1") + number_of(m, "net2"), i ? 3 : 2);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void inputs_and_outputs_go_through_the_functions(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = mlp(world, SHERD_F64, 6, 8, 4), *m = mlp(world, SHERD_F64, 6, 8, 4);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(7, 6), 1, 1, 0);
    told t = {.mesh = mesh};
    int64_t n = whole(sherd_module_call(plain, x), expected);

    CHECK_OK(sherd_distribute_module(m, mesh, partition, input, output, &t));
    sherd_tensor *y = sherd_module_call(m, x);
    CHECK(sherd_tensor_layout(y) == NULL);
    CHECK_NEAR(distance_to(y, expected, n), 0, 1e-12);
    CHECK_EQ(t.inputs, 1);
    CHECK_EQ(t.outputs, 1);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static sherd_status fails(sherd_module *m, const sherd_mesh *mesh, void *payload)
{
    (void)mesh;
    return sherd_module_path(m)[0] ? (sherd_status) * (int *)payload : SHERD_OK;
}

static void what_a_partition_returns_is_told_to_all(sherd_world *world)
{
    const struct {
        int returned, status;
    } cases[] = {{SHERD_ENOTSUP, SHERD_ENOTSUP}, {77, SHERD_EINVAL}, {-5000, SHERD_EINVAL}};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, 6, 8, 4);
        int mine = sherd_world_rank(world) == 0 ? cases[i].returned : 0;
        CHECK_EQ(sherd_distribute_module(m, mesh, fails, NULL, NULL, &mine), cases[i].status);
        CHECK(strstr(sherd_world_error(world), "partition of module \"net1\" returned") != NULL);
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
}

/* It is local, so nobody is told at once; but what ranks have done is not the same. */
static sherd_status places_otherwise(sherd_module *m, const sherd_mesh *mesh, void *payload)
{
    if (sherd_module_kind_of(m) != SHERD_MODULE_LINEAR)
        return SHERD_OK;
    return sherd_style_place_parameter(m, "weight", mesh, 0, sherd_shard(*(int *)payload), 0);
}

static void ranks_that_place_otherwise_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = mlp(world, SHERD_F64, 6, 8, 4);
    int dim = sherd_world_rank(world) == 1;

    sherd_status status = sherd_distribute_module(m, mesh, places_otherwise, NULL, NULL, &dim);
    CHECK(status == SHERD_OK || status == SHERD_EDIFFER);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_distribute on ranks") != NULL);
    sherd_module_destroy(m);
    /* And one that does not get the same functions. */
    m = mlp(world, SHERD_F64, 6, 8, 4);
    CHECK_EQ(sherd_distribute_module(m, mesh, dim ? NULL : places_otherwise, NULL, NULL, &dim),
             SHERD_EDIFFER);
    sherd_status after = sherd_world_check(world);
    CHECK(after == SHERD_OK || after == SHERD_EDIFFER);
    sherd_module_destroy(m);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_status status = SHERD_ENOMEM;

    for (int n = 1; status && n < 200; n++) {
        sherd_scope_begin(world);
        sherd_module *m = mlp(world, SHERD_F64, 6, 8, 4);
        told t = {.mesh = mesh};
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        status = sherd_distribute_module(m, mesh, partition, input, output, &t);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_status after = sherd_world_check(world);
        CHECK(after == SHERD_OK || (status && after == SHERD_ENOMEM));
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
    CHECK_OK(status);
}

/* ---- a style of one's own ------------------------------------------------------------------- */

/* A two-dim weight by columns of its first dim's halves; inputs whole, outputs by their last
 * dim. */
static sherd_status apply_own(const sherd_style *style, sherd_module *m, const sherd_mesh *mesh,
                              int axis)
{
    static const sherd_slot whole_in[] = {{NULL, {SHERD_UNSET, 0, 0}, {SHERD_REPLICATE, 0, 0}}};
    sherd_style prepare = sherd_prepare_input();
    sherd_status status =
        sherd_style_place_parameter(m, "weight", mesh, axis, sherd_shard(-2), style->granule);

    if (!status)
        status = sherd_style_place_parameter(m, "bias", mesh, axis, sherd_shard(0), style->granule);
    prepare.inputs = whole_in;
    prepare.input_count = 1;
    return status ? status : prepare.apply(&prepare, m, mesh, axis);
}

static void a_style_of_ones_own_does_what_the_built_in_ones_do(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *a = linear(world, 4, 10), *b = linear(world, 4, 10);
    sherd_style colwise = sherd_colwise(), own = {.apply = apply_own, .name = "Own"};
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(3, 4), 1, 1, 0);

    colwise.granule = own.granule = 3;
    CHECK_OK(apply(a, mesh, colwise));
    CHECK_OK(apply(b, mesh, own));
    CHECK(sherd_tensor_layout(sherd_module_parameter(a, "weight")) ==
          sherd_tensor_layout(sherd_module_parameter(b, "weight")));
    CHECK(sherd_tensor_layout(sherd_module_parameter(a, "bias")) ==
          sherd_tensor_layout(sherd_module_parameter(b, "bias")));
    int64_t n = whole(sherd_module_call(a, x), expected);
    CHECK_NEAR(distance_to(sherd_module_call(b, x), expected, n), 0, 1e-13);
    sherd_module_destroy(a);
    sherd_module_destroy(b);
    CHECK_OK(sherd_world_check(world));
}

static sherd_status place_twice(const sherd_style *style, sherd_module *m, const sherd_mesh *mesh,
                                int axis)
{
    sherd_status status =
        sherd_style_place_parameter(m, "weight", mesh, axis, sherd_shard(0), style->granule);
    return status ? status
                  : sherd_style_place_parameter(m, "weight", mesh, axis, sherd_shard(1), 0);
}

static void a_parameter_is_placed_once(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = linear(world, 4, 10);

    CHECK_EQ(apply(m, mesh, (sherd_style){.apply = place_twice}), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "has been placed by a style before") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- the table ------------------------------------------------------------------------------ */

static void the_table_shows_paths_styles_and_layouts(sherd_world *world)
{
    static const char expected[] =
        "path    style                          parameters on (tp=2)\n"
        "(root)  -                              buffer seen i64[]\n"
        "net1    Colwise(tp), PrepareInput(tp)  weight f64[8(tp),6]  bias f64[8(tp)]\n"
        "net2    Rowwise(tp)                    weight f64[4,8(tp)]  bias f64[4]\n";
    const sherd_parallel_entry plan[] = {
        {"net1", sherd_colwise()}, {"net1", sherd_prepare_input()}, {"net2", sherd_rowwise()}};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = mlp(world, SHERD_F64, 6, 8, 4);
    char text[1024], little[8];

    sherd_parallel_text(m, text, sizeof text);
    CHECK(strstr(text, "\nnet1  -      weight f64[8,6]  bias f64[8]\n") != NULL);
    CHECK_OK(sherd_module_add_buffer(m, "seen", sherd_constant(world, SHERD_I64, NULL, 0, 1)));
    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 3));
    size_t length = sherd_parallel_text(m, text, sizeof text);
    CHECK_EQ(length, strlen(text));
    CHECK_TEXT(text, expected);
    CHECK_EQ(sherd_parallel_text(m, little, sizeof little), strlen(text));
    CHECK_TEXT(little, "path   ");
    CHECK_EQ(sherd_parallel_text(m, NULL, 0), strlen(text));

    /* One rank prints, the others are silent. */
    FILE *file = tmpfile();
    char back[1024] = "";
    CHECK_OK(sherd_parallel_print(m, file, 1));
    rewind(file);
    back[fread(back, 1, sizeof back - 1, file)] = 0;
    CHECK_TEXT(back, sherd_world_rank(world) == 1 ? text : "");
    fclose(file);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(without_a_partition_all_is_replicated), {1, 2, 3}},
    {TEST(a_partition_places_what_it_likes), {1, 2, 3}},
    {TEST(inputs_and_outputs_go_through_the_functions), {1, 2, 3, 4, 8}},
    {TEST(what_a_partition_returns_is_told_to_all), {1, 2, 3}},
    {TEST(ranks_that_place_otherwise_differ), {2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
    {TEST(a_style_of_ones_own_does_what_the_built_in_ones_do), {1, 2, 3, 4}},
    {TEST(a_parameter_is_placed_once), {1, 2}},
    {TEST(the_table_shows_paths_styles_and_layouts), {2}},
};
CHECK_MAIN(tests)
