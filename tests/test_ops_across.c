/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded moves from one mesh to another: the gradient comes back to where the operand lies. */
#include "tensors.h"

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"

static const char *const pairs[][2] = {
    {"2@0,1", "2@2,1"}, {"3", "2@2,0"}, {"2@0,2", "3@2,1,0"}, {"2@0,1", "1@2"}};

/* x times a constant there; its gradient is the constant here, settled, whatever was pending. */
static void check_gradient(const sherd_layout *from, const sherd_layout *to, bool leaf,
                           const sherd_mesh *among)
{
    const sherd_redistribute_options options = {.among = among};
    sherd_world *world = sherd__space_world(from->space);
    const sherd_layout *settled = NULL;
    int64_t nowhere[SHERD_MAX_AXES] = {0};

    sherd_scope_begin(world);
    sherd_tensor *x = indices_on(from, SHERD_F64);
    sherd_require_grad(x, true);
    sherd_tensor *h = leaf ? x : sherd_scale(x, 1);
    sherd_tensor *y = sherd_redistribute(h, to, &options);
    sherd_tensor *w = indices_on(to, SHERD_F64);
    sherd_backward(sherd_sum(sherd_mul(y, w)));
    sherd_tensor *g = sherd_grad(x);
    CHECK_OK(sherd__layout_settle(&settled, from));
    CHECK(g && g->layout == settled);
    CHECK_EQ(count_wrong(y, addends_of(from, nowhere, NULL)), 0);
    if (g)
        CHECK_EQ(count_wrong(g, 1), 0);
    sherd_scope_end(world);
}

static void a_gradient_comes_back_across(sherd_world *world)
{
    static const char *const from[] = {"R", "S(0)", "S(1)", "P(sum)"}, *const to[] = {"R", "S(0)",
                                                                                      "S(1)"};
    int64_t shape[2] = {7, 5};

    for (int p = 0; p < LEN(pairs); p++) {
        const sherd_mesh *a = mesh_of(world, pairs[p][0]), *b = mesh_of(world, pairs[p][1]);
        for (int i = 0; i < LEN(from); i++)
            for (int j = 0; j < LEN(to); j++)
                for (int leaf = 0; leaf < 2; leaf++)
                    check_gradient(layout_of(a, 2, shape, from[i], NULL),
                                   layout_of(b, 2, shape, to[j], NULL), leaf, NULL);
        CHECK_OK(sherd_world_check(world));
    }
}

static void ranks_with_one_coordinate_are_a_mesh(sherd_world *world)
{
    static const char *const of[][3] = {{"pp=2,dp=2,tp=2", "pp", "dp=2,tp=2@4,5,6,7"},
                                        {"pp=2,dp=2,tp=2", "dp", "pp=2,tp=2@2,3,6,7"},
                                        {"pp=2,dp=2,tp=2", "tp", "pp=2,dp=2@1,3,5,7"},
                                        {"pp=3,tp=2@6,1,7,4,5,2", "pp", "tp=2@7,4"},
                                        {"pp=3@2,5,1", "pp", "pp=1@5"}};

    for (int i = 0; i < LEN(of); i++) {
        const sherd_mesh *mesh = NULL, *part = NULL, *same = NULL;
        CHECK_OK(sherd_mesh_parse(&mesh, world, of[i][0]));
        CHECK_OK(sherd_mesh_select(&part, mesh, of[i][1], 1));
        CHECK_TEXT(sherd_mesh_text(part), of[i][2]);
        CHECK_OK(sherd_mesh_parse(&same, world, of[i][2]));
        CHECK(part == same);
    }
}

/* Ranks that are not among those who call do something else, and are not waited for. */
static void others_need_not_call_if_it_is_said_who_does(sherd_world *world)
{
    static const char *const of[][3] = {{"2@0,1", "2@3,1", "4@3,0,1,5"},
                                        {"2@0,1", "1@3", "3@0,1,3"},
                                        {"1@4", "1@4", "1@4"},
                                        {"2@5,4", "3@1,2,3", "5@1,2,3,4,5"}};
    static const char *const layouts[][2] = {
        {"R", "S(0)"}, {"S(1)", "R"}, {"P(sum)", "S(1)"}, {"S(0)", "S(0)"}};
    int64_t shape[2] = {7, 5};

    for (int c = 0; c < LEN(of); c++) {
        const sherd_mesh *mesh[3];
        for (int i = 0; i < 3; i++)
            mesh[i] = mesh_of(world, of[c][i]);
        bool mine = sherd_mesh_coordinate(mesh[2], sherd_world_rank(world), NULL);
        int64_t calls = sherd_comm_calls(world, NULL);
        for (int i = 0; i < LEN(layouts) && mine; i++)
            for (int leaf = 0; leaf < 2; leaf++)
                check_gradient(layout_of(mesh[0], 2, shape, layouts[i][0], NULL),
                               layout_of(mesh[1], 2, shape, layouts[i][1], NULL), leaf, mesh[2]);
        CHECK(mine || sherd_comm_calls(world, NULL) == calls);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Second derivatives of x^3 that has been there and back. */
static void gradients_among_some_are_differentiated_again(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@1,3"),
                     *among = mesh_of(world, "3@3,1,0");
    const sherd_redistribute_options options = {.among = among};
    const sherd_gradients_options graph = {.create_graph = true};
    int64_t shape[2] = {7, 5};

    if (sherd_mesh_coordinate(among, sherd_world_rank(world), NULL)) {
        const sherd_layout *here = layout_of(a, 2, shape, "S(0)", NULL),
                           *there = layout_of(b, 2, shape, "S(1)", NULL);
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(here, SHERD_F64, 2), true), *g, *h;
        sherd_tensor *y =
            sherd_redistribute(sherd_redistribute(x, there, &options), here, &options);
        sherd_tensor *sum = sherd_sum(sherd_mul(y, sherd_mul(y, y)));
        sherd_gradients(&g, &x, 1, &sum, 1, &graph);
        sum = sherd_sum(g);
        sherd_gradients(&h, &x, 1, &sum, 1, NULL);
        const double *values = sherd_tensor_read(h);
        for (int64_t i = 0; values && i < h->count; i++)
            CHECK_EQ(values[i], 12);
        CHECK(values || !sherd__in_mesh(world, a));
    }
    CHECK_OK(sherd_world_check(world));
}

static void whoever_is_left_out_of_a_move_is_named(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@2,3"), *sub = NULL,
                     *grid = mesh_of(world, "2x2");
    const sherd_mesh *bad[] = {mesh_of(world, "3@0,1,2"), mesh_of(world, "3@1,2,3"),
                               mesh_of(world, "2@0,1"), NULL};
    int64_t shape[2] = {7, 5};
    sherd_tensor *t = indices_on(layout_of(a, 2, shape, "S(0)", NULL), SHERD_F32);

    CHECK_OK(sherd_mesh_slice(&sub, grid, 1, (const char *[]){"a0"}));
    bad[3] = sub;
    for (int i = 0; i < LEN(bad); i++) {
        CHECK(sherd_tensor_failed(
            sherd_redistribute(t, layout_of(b, 2, shape, "S(1)", NULL),
                               &(sherd_redistribute_options){.among = bad[i]})));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "options.among is ") != NULL);
    }
}

/* Used on both meshes: the two gradients meet where the tensor is. */
static void gradients_of_two_meshes_add_up(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "3@2,0,1");
    int64_t shape[2] = {7, 5};
    const sherd_layout *here = layout_of(a, 2, shape, "S(0)", NULL);
    const sherd_layout *there = layout_of(b, 2, shape, "S(1)", NULL);
    sherd_tensor *x = indices_on(here, SHERD_F64);

    sherd_require_grad(x, true);
    sherd_tensor *y = sherd_redistribute(x, there, NULL);
    sherd_tensor *z =
        sherd_add(sherd_scale(x, 3), sherd_redistribute(sherd_scale(y, 4), here, NULL));
    sherd_backward(sherd_sum(z));
    const double *g = sherd_tensor_read(sherd_grad(x));
    int64_t wrong = g ? 0 : -1;
    for (int64_t i = 0; g && i < x->count; i++)
        wrong += g[i] != 7;
    CHECK_EQ(wrong, 0);
    CHECK_OK(sherd_world_check(world));
}

/* Between local and global on a mesh that this rank may not be in. */
static void a_rank_outside_has_nothing_and_goes_on(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1");
    int64_t shape[2] = {6, 4}, rows[2] = {3, 4}, none[2] = {0, 4};
    bool inside = sherd_world_rank(world) < 2;
    sherd_tensor *t = indices_on(layout_of(a, 2, shape, "S(0)", NULL), SHERD_F32);
    sherd_tensor *local = sherd_to_local(t), *full = sherd_full(t);
    const sherd_placement placement = sherd_shard(0);
    const sherd_from_local_options options = {.shape = shape};

    CHECK_EQ(sherd_tensor_count(local), inside ? 12 : 0);
    CHECK_EQ(full->count, inside ? 24 : 0);
    CHECK_EQ(count_wrong(full, 1), 0);
    sherd_tensor *piece = sherd_constant(world, SHERD_F32, inside ? rows : none, 2, 1);
    sherd_tensor *d = sherd_from_local(piece, a, &placement, &options);
    CHECK(!sherd_tensor_failed(d));
    CHECK_EQ(d->count, inside ? 12 : 0);
    CHECK_EQ(sherd_tensor_count(d), 24);
    CHECK_OK(sherd_world_check(world));
}

/* What ranks ask of the planner is part of the call. */
static void ranks_with_other_planners_all_get_ediffer(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[2] = {6, 5};
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F32);
    const sherd_layout *to = layout_of(mesh, 2, shape, "S(1)", NULL);
    const sherd_price torch = {.kind = SHERD_PRICE_TORCH},
                      links = {.kind = SHERD_PRICE_LINKS,
                               .links = 1,
                               .link = {{.axis = "*", .alpha_picoseconds = 1000}}};
    const sherd_plan_options plans[] = {
        {.planner = SHERD_PLANNER_GREEDY},
        {.planner = SHERD_PLANNER_GRAPH},
        {.price = &torch},
        {.price = &links},
        {.max_bytes = 1 << 20},
    };

    for (int i = 0; i < LEN(plans); i++)
        for (int odd = 0; odd < 2; odd++) {
            bool me = sherd_world_rank(world) == odd;
            const sherd_redistribute_options options = {.plan = me ? &plans[i] : NULL};
            const sherd_redistribute_options same = {.plan = &plans[i]};
            sherd_redistribute(t, to, &options);
            sherd_status status = sherd_world_check(world);
            CHECK_EQ(status, SHERD_EDIFFER);
            check_same(world, status);
            CHECK_EQ(count_wrong(sherd_redistribute(t, to, &same), 1), 0);
            CHECK_OK(sherd_world_check(world));
        }
}

static void a_bad_plan_is_an_error_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2"), *other = mesh_of(world, "2@1,0");
    int64_t shape[2] = {6, 5};
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F32);
    const sherd_plan_options greedy = {.planner = SHERD_PLANNER_GREEDY},
                             none = {.planner = (sherd_planner)7};
    const sherd_redistribute_options options[] = {{.plan = &greedy}, {.plan = &none}};

    CHECK(sherd_tensor_failed(
        sherd_redistribute(t, layout_of(other, 2, shape, "S(1)", NULL), &options[0])));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(sherd_tensor_failed(
        sherd_redistribute(t, layout_of(mesh, 2, shape, "S(1)", NULL), &options[1])));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(
        sherd_redistribute(t, layout_of(mesh, 2, shape, "P(sum)", NULL), NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "makes no pending") != NULL);
}

/*
 * A step fails when rank 0 has written what has moved to another mesh of the same ranks, and the
 * others have not: that is lost, and its source is there, and equal on all ranks.
 */
static void what_is_written_there_is_not_lost_here(sherd_world *world)
{
    const sherd_mesh *line = line_of_ranks(world), *other = NULL;
    const int64_t shape[] = {6}, ranks = sherd_world_ranks(world);
    const char *const name = "other";

    CHECK_OK(sherd_mesh_create(&other, world, 1, &ranks, &name, NULL));
    sherd_tensor *t = sherd_constant_on(layout_of(line, 1, shape, "R", NULL), SHERD_F64, 1);
    sherd_tensor *y = sherd_redistribute(t, layout_of(other, 1, shape, "R", NULL), NULL);
    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0) {
        CHECK(!sherd_tensor_failed(sherd_fill(y, 7)));
        atomic_store(&check_state->mark, 1);
    } else {
        while (!atomic_load(&check_state->mark))
            usleep(100);
        sherd_world_fail(world, SHERD_EINVAL, "not this one");
    }
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(y) && !sherd_tensor_failed(t));
    CHECK_NEAR(sherd_item(sherd_sum(t)), 6, 0);
    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0)
        atomic_store(&check_state->mark, 0);
}

static const check_test tests[] = {
    {TEST(a_gradient_comes_back_across), {3, 4}},
    {TEST(ranks_with_one_coordinate_are_a_mesh), {8}},
    {TEST(others_need_not_call_if_it_is_said_who_does), {6, 8}},
    {TEST(gradients_among_some_are_differentiated_again), {4, 5}},
    {TEST(whoever_is_left_out_of_a_move_is_named), {4, 5}},
    {TEST(gradients_of_two_meshes_add_up), {3}},
    {TEST(a_rank_outside_has_nothing_and_goes_on), {3}},
    {TEST(what_is_written_there_is_not_lost_here), {2, 3}},
    {TEST(ranks_with_other_planners_all_get_ediffer), {2}},
    {TEST(a_bad_plan_is_an_error_on_all), {2}},
};
CHECK_MAIN(tests)
