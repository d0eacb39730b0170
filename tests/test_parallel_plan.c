/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: what paths match, what is placed where, errors, ranks that disagree. */
#include "models.h"

static void echo(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    *out = *in;
}

/* layers.{0,1,2}.{net1,net2,norm}, head */
static sherd_module *tree(sherd_world *world)
{
    sherd_module *root = container(world, echo, NULL);
    sherd_module *layers = add_layer(root, "layers", container(world, echo, NULL));
    static const char *const names[] = {"0", "1", "2"};

    for (int i = 0; i < 3; i++) {
        sherd_module *m = add_layer(layers, names[i], container(world, echo, NULL));
        linear_layer(m, "net1", SHERD_F32, 4, 6, 1);
        linear_layer(m, "net2", SHERD_F32, 6, 4, 1);
        norm_layer(m, "norm", SHERD_F32, 4, 1);
    }
    linear_layer(root, "head", SHERD_F32, 4, 5, 1);
    return root;
}

static const char *placed(sherd_module *root, const char *path, const char *name)
{
    sherd_tensor *t = sherd_module_parameter(sherd_module_find(root, path), name);
    return sherd_tensor_layout(t) ? sherd_layout_placements(sherd_tensor_layout(t)) : "plain";
}

static void patterns_match_one_level(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = tree(world);
    const sherd_parallel_entry plan[] = {
        {"layers.*.net1", sherd_colwise()},
        {"layers.[0-1].net?", sherd_rowwise()}, /* would place net1 of 0 and 1 twice */
    };
    const sherd_parallel_entry good[] = {
        {"layers.[!12].net1", sherd_colwise()},
        {"layers.1.net[12]", sherd_rowwise()},
        {"hea?", sherd_colwise()},
    };

    CHECK_OK(sherd_parallelize(root, mesh, "tp", good, 3));
    CHECK_TEXT(placed(root, "layers.0.net1", "weight"), "S(0)");
    CHECK_TEXT(placed(root, "layers.0.net2", "weight"), "R");
    CHECK_TEXT(placed(root, "layers.1.net1", "weight"), "S(1)");
    CHECK_TEXT(placed(root, "layers.1.net2", "weight"), "S(1)");
    CHECK_TEXT(placed(root, "layers.1.net2", "bias"), "R");
    CHECK_TEXT(placed(root, "layers.2.net1", "weight"), "R");
    CHECK_TEXT(placed(root, "layers.2.norm", "weight"), "R");
    CHECK_TEXT(placed(root, "head", "weight"), "S(0)");
    sherd_module_destroy(root);

    root = tree(world);
    CHECK_EQ(sherd_parallelize(root, mesh, "tp", plan, 2), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "layers.0.net1") != NULL);
    CHECK(strstr(sherd_world_error(world), "placed") != NULL);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

static void a_path_that_matches_nothing_is_an_error(sherd_world *world)
{
    static const struct {
        const char *path, *text;
    } bad[] = {
        {"layers.*.net3", "\"layers.0\" has no child \"net3\"; it has net1, net2, norm"},
        {"layer.0.net1", "\"(root)\" has no child \"layer\"; it has layers, head"},
        {"layers.3.net1", "\"layers\" has no child \"3\"; it has 0, 1, 2"},
        {"layers.*.net1.weight", "\"layers.0.net1\" has no child \"weight\""},
        {"layers..net1", "\"layers\" has no child \"\""},
        {"*.net1", "has no child \"net1\""},
        {".", "\"(root)\" has no child \"\""},
    };
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = tree(world);

    for (int i = 0; i < LEN(bad); i++) {
        const sherd_parallel_entry plan[] = {{"head", sherd_colwise()},
                                             {bad[i].path, sherd_colwise()}};
        CHECK_EQ(sherd_parallelize(root, mesh, "tp", plan, 2), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), bad[i].text) != NULL))
            fprintf(stderr, "  %s\n", sherd_world_error(world));
        /* Nothing has changed: the good entry before it was not applied. */
        CHECK_TEXT(placed(root, "head", "weight"), "plain");
    }
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(root);
}

static sherd_status refuses(const sherd_style *style, sherd_module *m, const sherd_mesh *mesh,
                            int axis)
{
    (void)style, (void)m, (void)mesh, (void)axis;
    return SHERD_ENOTSUP;
}

static void what_does_not_fit_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_style negative = sherd_colwise(), none = {0}, own = {.apply = refuses, .name = "own"};
    negative.granule = -1;
    const struct {
        sherd_parallel_entry entry;
        const char *axis;
        sherd_status status;
    } bad[] = {
        {{"layers.0.norm", sherd_colwise()}, "tp", SHERD_EINVAL},
        {{"layers.0.norm", sherd_rowwise()}, "tp", SHERD_EINVAL},
        {{"layers", sherd_colwise()}, "tp", SHERD_EINVAL},
        {{"head", negative}, "tp", SHERD_EINVAL},
        {{"head", none}, "tp", SHERD_EINVAL},
        {{NULL, sherd_colwise()}, "tp", SHERD_EINVAL},
        {{"head", sherd_colwise()}, "dp", SHERD_EINVAL},
        {{"head", sherd_colwise()}, NULL, SHERD_EINVAL},
        {{"head", own}, "tp", SHERD_ENOTSUP},
    };

    for (int i = 0; i < LEN(bad); i++) {
        sherd_module *root = tree(world);
        CHECK_EQ(sherd_parallelize(root, mesh, bad[i].axis, &bad[i].entry, 1), bad[i].status);
        sherd_module_destroy(root);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_parameter_that_varies_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry plan[] = {{"head", sherd_colwise()}};
    double data[8] = {0};
    sherd_module *root = tree(world);
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, SHAPE(8), 1, data);

    CHECK_OK(sherd_module_add_parameter(root, "extra", t));
    CHECK_EQ(sherd_parallelize(root, mesh, "tp", plan, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"extra\"") != NULL);
    CHECK(strstr(sherd_world_error(world), "sherd_mark_equal") != NULL);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

static void tied_parameters_stay_tied(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_parallel_entry plan[] = {{"table", sherd_rowwise()}, {"out", sherd_colwise()}};

    for (int fits = 0; fits < 2; fits++) {
        sherd_module *root = container(world, echo, NULL), *table = NULL;
        sherd_module *out = linear_layer(root, "out", SHERD_F32, 4, 9, 1);
        CHECK_OK(sherd_embedding_create(&table, world, 9, 4, NULL));
        add_layer(root, "table", table);
        CHECK_OK(
            sherd_module_set_parameter(table, "weight", sherd_module_parameter(out, "weight")));
        plan[1].style = fits ? sherd_colwise() : sherd_rowwise();
        sherd_status status = sherd_parallelize(root, mesh, "tp", plan, 2);
        CHECK_EQ(status, fits ? SHERD_OK : SHERD_EINVAL);
        if (fits)
            CHECK(sherd_module_parameter(out, "weight") == sherd_module_parameter(table, "weight"));
        CHECK_EQ(sherd_module_all_parameters(root, NULL, 0), 2);
        sherd_module_destroy(root);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A whole block in one call, then the rest: what is placed is left alone, and frozen stays
 * frozen. */
static void a_tree_may_be_parallelised_in_parts(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry first[] = {{"net1", sherd_colwise()}},
                               rest[] = {{"head", sherd_colwise()}};
    sherd_module *root = tree(world), *block = sherd_module_find(root, "layers.1");

    sherd_require_grad(sherd_module_parameter(sherd_module_find(root, "head"), "weight"), false);
    CHECK_OK(sherd_parallelize(block, mesh, "tp", first, 1));
    CHECK_TEXT(placed(root, "layers.1.net2", "weight"), "R");
    CHECK_TEXT(placed(root, "layers.0.net2", "weight"), "plain");
    CHECK_OK(sherd_parallelize(root, mesh, "tp", rest, 1));
    CHECK_TEXT(placed(root, "layers.1.net1", "weight"), "S(0)");
    CHECK_TEXT(placed(root, "layers.0.net2", "weight"), "R");
    CHECK(!sherd_requires_grad(sherd_module_parameter(sherd_module_find(root, "head"), "weight")));
    CHECK(sherd_requires_grad(sherd_module_parameter(sherd_module_find(root, "head"), "bias")));
    CHECK_EQ(sherd_parallelize(root, mesh, "tp", rest, 1), SHERD_EINVAL); /* twice */
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

static void styles_are_not_changed(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_parallel_entry plan[] = {{"layers.*.net1", sherd_colwise()},
                                   {"layers.*.net2", sherd_rowwise()},
                                   {"layers.*.norm", sherd_sequence_parallel()},
                                   {"", sherd_prepare_input()}};
    sherd_parallel_entry copy[LEN(plan)];
    sherd_module *root = tree(world);

    memcpy(copy, plan, sizeof plan);
    CHECK_OK(sherd_parallelize(root, mesh, "tp", plan, LEN(plan)));
    CHECK(memcmp(copy, plan, sizeof plan) == 0);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

/* A style of one's own, on public functions: it counts what it was applied to. */
static sherd_status count(const sherd_style *style, sherd_module *m, const sherd_mesh *mesh,
                          int axis)
{
    CHECK(sherd_module_children(m) == 0 && sherd_mesh_extent(mesh, axis) > 0);
    ++*(int *)(uintptr_t)style->payload;
    return SHERD_OK;
}

static void a_style_of_ones_own_is_applied(sherd_world *world)
{
    int applied = 0;
    sherd_module *root = tree(world);
    const sherd_parallel_entry plan[] = {
        {"layers.*.n*", {.apply = count, .name = "count", .payload = &applied}}};

    CHECK_OK(sherd_parallelize(root, line_of_ranks(world), "tp", plan, 1));
    CHECK_EQ(applied, 9);
    sherd_module_destroy(root);
}

static void ranks_that_disagree_all_get_ediffer(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = tree(world);
    sherd_parallel_entry plan[] = {{"head", sherd_colwise()}};

    plan[0].style.granule = sherd_world_rank(world) == 0 ? 2 : 1;
    CHECK_EQ(sherd_parallelize(root, mesh, "tp", plan, 1), SHERD_EDIFFER);
    (void)sherd_world_check(world);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(root);
    /* One rank alone misspells a path: all are told. */
    root = tree(world);
    plan[0] =
        (sherd_parallel_entry){sherd_world_rank(world) == 0 ? "heat" : "head", sherd_colwise()};
    sherd_status status = sherd_parallelize(root, mesh, "tp", plan, 1);
    CHECK(status == SHERD_EINVAL || status == SHERD_EDIFFER);
    (void)sherd_world_check(world);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(root);
}

/* Rank 2 of 3 has no part in the mesh: it agrees, and its parameters stay plain. */
static void ranks_outside_of_the_mesh_only_agree(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "tp=2");
    const sherd_parallel_entry plan[] = {{"head", sherd_colwise()}},
                               bad[] = {{"x", sherd_colwise()}};
    sherd_module *root = tree(world);
    bool inside = sherd_world_rank(world) < 2;

    CHECK_EQ(sherd_parallelize(root, mesh, "tp", bad, 1), SHERD_EINVAL);
    CHECK_OK(sherd_parallelize(root, mesh, "tp", plan, 1));
    CHECK_OK(sherd_input_reshard(root, mesh, "tp", 0));
    CHECK_TEXT(placed(root, "head", "weight"), inside ? "S(0)" : "plain");
    if (inside) {
        sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(3, 4), 1, 1, 0);
        CHECK(!sherd_tensor_failed(sherd_module_call(sherd_module_find(root, "head"), x)));
    }
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(root);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_style col = sherd_colwise();
    sherd_status status = SHERD_ENOMEM;
    int failures = 0;

    col.granule = 2;
    const sherd_parallel_entry plan[] = {{"layers.1.net1", col},
                                         {"layers.1.net2", sherd_rowwise()},
                                         {"layers.*.norm", sherd_sequence_parallel()}};
    for (int k = 1; status && k < 400; k++) {
        sherd_module *root = tree(world);
        if (sherd_world_rank(world) == 0)
            sherd_world_fail_allocation(world, k);
        status = sherd_parallelize(root, mesh, "tp", plan, LEN(plan));
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        failures += status != SHERD_OK;
        sherd_module_destroy(root);
        (void)sherd_world_check(world);
        CHECK_OK(sherd_world_check(world));
    }
    CHECK_OK(status);
    CHECK(failures > 10);
}

static const check_test tests[] = {
    {TEST(patterns_match_one_level), {1, 2, 3}},
    {TEST(a_path_that_matches_nothing_is_an_error), {1, 2}},
    {TEST(what_does_not_fit_is_refused), {1, 2}},
    {TEST(a_parameter_that_varies_is_refused), {1, 2}},
    {TEST(tied_parameters_stay_tied), {1, 2, 3}},
    {TEST(a_tree_may_be_parallelised_in_parts), {1, 2}},
    {TEST(styles_are_not_changed), {1, 2}},
    {TEST(a_style_of_ones_own_is_applied), {1}},
    {TEST(ranks_that_disagree_all_get_ediffer), {2, 3}},
    {TEST(ranks_outside_of_the_mesh_only_agree), {3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
