/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in groups: what is wrong, also if only some ranks are, is said by all. */
#include "groups.h"

static sherd_tensor *numbers_of(sherd_world *world, int64_t n, const int32_t *data)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, data));
}

static const struct {
    int64_t count;
    int32_t ends[3], group[3]; /* a group below 0: none are given */
    const char *text;
} wrong[] = {
    {3, {3, 2, 6}, {-1}, "sherd_grouped_linear: ends[1] is 2: must be in [3, 6]: x is"},
    {3, {1, 2, 5}, {-1}, "sherd_grouped_linear: the last run ends at 5 of 6 rows"},
    {3, {1, 2, 7}, {-1}, "sherd_grouped_linear: ends[2] is 7: must be in [2, 6]"},
    {3, {1, 2, 6}, {0, 3, 1}, "sherd_grouped_linear: group[1] is 3: must be in [0, 3)"},
    {2, {1, 6}, {-1}, "sherd_grouped_linear: 2 ends of 3 groups"},
};

static void ends_that_do_not_fit_are_said_by_all(sherd_world *world)
{
    static const int32_t right[] = {1, 2, 6}, far[] = {0, 3, 1};
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t rows[] = {6, 2}, weights[] = {3, 4, 2};

    for (size_t i = 0; i < LEN(wrong); i++) {
        sherd_tensor *x = ones_on(mesh, 2, rows, "S(0)"), *w = ones_on(mesh, 3, weights, "S(0)");
        sherd_tensor *group =
            wrong[i].group[0] < 0 ? NULL : numbers_of(world, wrong[i].count, wrong[i].group);
        sherd_grouped_linear(x, w, NULL, numbers_of(world, wrong[i].count, wrong[i].ends), group);
        refused(world, wrong[i].text);
    }
    sherd_groups to;
    sherd_group_rows(&to, numbers_of(world, 3, far), ones_on(mesh, 3, weights, "S(0)"));
    refused(world, "sherd_group_rows: choice[1] = 3 is outside of [0,3)");
    sherd_group_rows(&to, numbers_of(world, 3, right),
                     ones_on(mesh, 3, (int64_t[]){7, 1, 1}, "S(0)"));
    sherd_dispatch(ones_on(mesh, 2, rows, "S(0)"), &to);
    refused(world, "sherd_dispatch: 3 choices are not 1 of each row");
}

/* Ranks with other ends are told, wherever they lie. */
static void other_ends_are_found(sherd_world *world)
{
    const int32_t ends[] = {1, sherd_world_rank(world) ? 2 : 3, 6};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = ones_on(mesh, 2, (int64_t[]){6, 2}, "R");
    sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){3, 4, 2}, "R");

    sherd_grouped_linear(x, w, NULL, numbers_of(world, 3, ends), NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

/* So are ranks with other choices, which lie if they say that they are equal. */
static void other_choices_are_found(sherd_world *world)
{
    const int32_t choice[] = {0, sherd_world_rank(world) ? 2 : 1, 1, 2, 0, 1};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){3, 4, 2}, "S(0)");
    sherd_groups to;

    sherd_group_rows(&to, numbers_of(world, 6, choice), w);
    sherd_tensor *rows = sherd_dispatch(ones_on(mesh, 2, (int64_t[]){6, 2}, "S(0)"), &to);
    sherd_combine(sherd_grouped_linear(rows, w, NULL, to.ends, to.group), &to, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

static void mix(sherd_world *world)
{
    static const int64_t tokens[] = {TOKENS, 300}, choices[] = {TOKENS, 1},
                         weights[] = {GROUPS, 5, 300};
    const sherd_layout *x = NULL, *choice = NULL, *w = NULL;
    const sherd_mesh *mesh = NULL;
    sherd_groups to;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&x, mesh, 2, tokens, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&choice, mesh, 2, choices, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&w, mesh, 3, weights, "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *weight = sherd_require_grad(sherd_constant_on(w, SHERD_F32, 1), true);
        sherd_group_rows(&to, sherd_constant_on(choice, SHERD_I32, 5), weight);
        sherd_tensor *y = sherd_dispatch(sherd_constant_on(x, SHERD_F32, 1), &to);
        y = sherd_combine(sherd_grouped_linear(y, weight, NULL, to.ends, to.group), &to, NULL);
        sherd_backward(sherd_sum(y));
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    }
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, mix);
}

static const check_test tests[] = {
    {TEST(ends_that_do_not_fit_are_said_by_all), {1, 2, 3}},
    {TEST(other_ends_are_found), {2, 3}},
    {TEST(other_choices_are_found), {2, 3}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
