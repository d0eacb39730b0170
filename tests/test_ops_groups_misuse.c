/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of operators on rows in groups and on routes: see misuse.h. */
#include "misuse.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_groups.h"
#include "sherd/ops_masks.h"
#include "sherd/ops_routes.h"
#include "sherd/ops_serving.h"
#include "sherd/ops_sorted.h"
#include "sherd/random.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

typedef struct things {
    sherd_tensor *choice, *x, *weight, *bias,
        *scores;                  /* [4, 2], [4, 3], [3, 2, 3], [3, 2], as choice */
    sherd_tensor *ends, *group;   /* of 8 rows: 3 runs */
    sherd_tensor *rows;           /* [8, 3] */
    sherd_tensor *scalar, *other; /* i32; x on another mesh */
    sherd_groups to;
} things;

static sherd_tensor *on(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape,
                        const char *form)
{
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, form, sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    const char *placements = strstr(text, ",") ? "S(0)R" : ndim ? "S(0)" : "R";
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL));
    return sherd_constant_on(layout, dtype, 1);
}

static things make(sherd_world *world)
{
    static const int32_t ends[] = {3, 3, 8}, group[] = {0, 1, 2};
    static const int64_t tokens[] = {4, 3}, weight[] = {3, 2, 3}, choice[] = {4, 2},
                         rows[] = {8, 3}, runs[] = {3};
    things t = {.choice = on(world, SHERD_I32, 2, choice, "x=%d"),
                .x = on(world, SHERD_F32, 2, tokens, "x=%d"),
                .weight = on(world, SHERD_F32, 3, weight, "x=%d"),
                .bias = on(world, SHERD_F32, 2, weight, "x=%d"),
                .scores = on(world, SHERD_F32, 2, choice, "x=%d"),
                .rows = on(world, SHERD_F32, 2, rows, "x=%d"),
                .scalar = on(world, SHERD_I32, 0, NULL, "x=%d"),
                .other = on(world, SHERD_F32, 2, tokens, "x=%d,y=1"),
                .ends = sherd_mark_equal(sherd_from_data(world, SHERD_I32, runs, 1, ends)),
                .group = sherd_mark_equal(sherd_from_data(world, SHERD_I32, runs, 1, group))};

    CHECK(sherd_group_rows(&t.to, t.choice, t.weight));
    CHECK_OK(sherd_world_check(world));
    return t;
}

MISUSE(groups_need_choices_and_weights)
{
    things t = make(m->world);
    sherd_groups to;

    ANSWERS(!sherd_group_rows(NULL, NULL, NULL));
    ANSWERS(!sherd_group_rows(&to, NULL, NULL) && !to.order && !to.ends);
    FAILS(SHERD_EINVAL, sherd_group_rows(NUL(&to), t.choice, t.weight));
    FAILS(SHERD_EINVAL, sherd_group_rows(&to, NUL(t.choice), t.weight));
    CHECK(sherd_tensor_failed(to.order) && sherd_tensor_failed(to.ends));
    FAILS(SHERD_EINVAL, sherd_group_rows(&to, t.choice, NUL(t.weight)));
    FAILS(SHERD_EINVAL, sherd_group_rows(&to, BAD(t.scalar, t.choice), t.weight));
    FAILS(SHERD_EINVAL, sherd_group_rows(&to, t.choice, BAD(t.scalar, t.weight)));
    FAILS(SHERD_EINVAL, sherd_group_rows(&to, BAD(t.x, t.choice), t.weight));
    FAILS(SHERD_EINVAL, sherd_group_rows(&to, t.choice, BAD(t.other, t.weight)));
}

MISUSE(rows_go_by_groups_that_fit)
{
    things t = make(m->world);

    ONLY_SAYS(NULL, sherd_dispatch(NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_dispatch(NUL(t.x), &t.to));
    FAILS(SHERD_EINVAL, sherd_dispatch(t.x, NUL(&t.to)));
    FAILS(SHERD_EINVAL, sherd_dispatch(BAD(t.rows, t.x), &t.to));
    FAILS(SHERD_EINVAL, sherd_dispatch(BAD(t.scalar, t.x), &t.to));
    FAILS(SHERD_EINVAL, sherd_dispatch(BAD(t.other, t.x), &t.to));
    ONLY_SAYS(NULL, sherd_combine(NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_combine(NUL(t.rows), &t.to, t.scores));
    FAILS(SHERD_EINVAL, sherd_combine(t.rows, NUL(&t.to), t.scores));
    FAILS(SHERD_EINVAL, sherd_combine(BAD(t.x, t.rows), &t.to, t.scores));
    FAILS(SHERD_EINVAL, sherd_combine(t.rows, &t.to, BAD(t.x, t.scores)));
    FAILS(SHERD_EINVAL, sherd_combine(t.rows, &t.to, BAD(t.choice, t.scores)));
}

/* Where all is empty, sizes may be any: what they multiply to must not come round to what fits. */
static void sizes_that_come_round_are_refused(sherd_world *world)
{
    const int64_t huge = (int64_t)1 << 61, n = sherd_world_ranks(world);
    sherd_groups to;

    sherd_tensor *few = sherd_constant(world, SHERD_F32, (int64_t[]){3, 0}, 2, 0);
    sherd_tensor *eight = sherd_constant(world, SHERD_I32, (int64_t[]){4, 8}, 2, 1);
    CHECK(sherd_group_rows(&to, eight, few));
    sherd_dispatch(sherd_constant(world, SHERD_F32, (int64_t[]){huge + 4, 0}, 2, 0), &to);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "32 choices are not 8 of each row") != NULL);

    sherd_tensor *many = sherd_constant(world, SHERD_F32, (int64_t[]){huge, 0}, 2, 0);
    CHECK(!sherd_group_rows(&to, on(world, SHERD_I32, 1, &n, "x=%d"), sherd_mark_equal(many)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "an i32 holds fewer") != NULL);
}

MISUSE(weights_need_rows_and_ends)
{
    things t = make(m->world);

    ONLY_SAYS(NULL, sherd_grouped_linear(NULL, NULL, NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(NUL(t.rows), t.weight, t.bias, t.ends, t.group));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(t.rows, NUL(t.weight), t.bias, t.ends, t.group));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(t.rows, t.weight, t.bias, NUL(t.ends), t.group));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(BAD(t.weight, t.rows), t.weight, NULL, t.ends, NULL));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(t.rows, BAD(t.x, t.weight), NULL, t.ends, NULL));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(t.rows, t.weight, BAD(t.x, t.bias), t.ends, NULL));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(t.rows, t.weight, NULL, BAD(t.x, t.ends), NULL));
    FAILS(SHERD_EINVAL, sherd_grouped_linear(t.rows, t.weight, NULL, t.ends, BAD(t.x, t.group)));
    FAILS(SHERD_EINVAL,
          sherd_grouped_linear(t.rows, t.weight, NULL, BAD(t.scalar, t.ends), t.group));
    ONLY_SAYS(NULL, sherd_grouped_matmul(NULL, NULL, NULL, NULL));
    sherd_tensor *turned = sherd_transpose(t.weight, 1, 2);
    FAILS(SHERD_EINVAL, sherd_grouped_matmul(t.rows, BAD(t.weight, turned), t.ends, NULL));
    FAILS(SHERD_EINVAL, sherd_grouped_matmul(t.rows, turned, NUL(t.ends), NULL));
}

MISUSE(routes_need_numbers_of_shards)
{
    const things t = make(m->world);
    sherd_tensor *shard = on(m->world, SHERD_I32, 1, (int64_t[]){4}, "x=%d");
    sherd_route route, none;

    sherd_fill(shard, 0);
    CHECK(sherd_route_rows(&route, shard));
    CHECK_OK(sherd_world_check(m->world));
    ANSWERS(!sherd_route_rows(NULL, NULL));
    ANSWERS(!sherd_route_rows(&none, NULL) && !none.shard && !none.count);
    FAILS(SHERD_EINVAL, sherd_route_rows(NUL(&none), shard));
    FAILS(SHERD_EINVAL, sherd_route_rows(&none, BAD(t.scalar, shard)));
    CHECK(sherd_tensor_failed(none.shard) == sherd_tensor_failed(none.count));
    FAILS(SHERD_EINVAL, sherd_route_rows(&none, BAD(t.choice, shard)));
    FAILS(SHERD_EINVAL, sherd_route_rows(&none, BAD(t.x, shard)));
    ONLY_SAYS(NULL, sherd_send_rows(NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_send_rows(NUL(t.x), &route));
    FAILS(SHERD_EINVAL, sherd_send_rows(t.x, NUL(&route)));
    FAILS(SHERD_EINVAL, sherd_send_rows(BAD(t.rows, t.x), &route));
    FAILS(SHERD_EINVAL, sherd_send_rows(BAD(t.scalar, t.x), &route));
    FAILS(SHERD_EINVAL, sherd_send_rows(BAD(t.other, t.x), &route));
    ONLY_SAYS(NULL, sherd_return_rows(NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_return_rows(NUL(t.x), &route));
    FAILS(SHERD_EINVAL, sherd_return_rows(t.x, NUL(&route)));
    FAILS(SHERD_EINVAL, sherd_return_rows(BAD(t.rows, t.x), &route));
}

MISUSE(masks_need_the_first_sizes)
{
    const things t = make(m->world);
    sherd_tensor *mask = sherd_ge_scalar(t.x, 1);
    sherd_tensor *some = sherd_masked_select(t.x, mask);

    CHECK_OK(sherd_world_check(m->world));
    ONLY_SAYS(NULL, sherd_nonzero(NULL));
    FAILS(SHERD_EINVAL, sherd_nonzero(BAD(t.scalar, t.x)));
    ONLY_SAYS(NULL, sherd_masked_select(NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_masked_select(NUL(t.x), mask));
    FAILS(SHERD_EINVAL, sherd_masked_select(t.x, NUL(mask)));
    FAILS(SHERD_EINVAL, sherd_masked_select(t.x, BAD(t.x, mask)));
    FAILS(SHERD_EINVAL, sherd_masked_select(BAD(t.rows, t.x), mask));
    ONLY_SAYS(NULL, sherd_masked_scatter(NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_masked_scatter(NUL(t.x), mask, some));
    FAILS(SHERD_EINVAL, sherd_masked_scatter(t.x, NUL(mask), some));
    FAILS(SHERD_EINVAL, sherd_masked_scatter(t.x, mask, NUL(some)));
    FAILS(SHERD_EINVAL, sherd_masked_scatter(t.x, BAD(t.choice, mask), some));
    FAILS(SHERD_EINVAL, sherd_masked_scatter(t.x, mask, BAD(t.x, some)));
}

MISUSE(places_need_sequences)
{
    const things t = make(m->world);
    sherd_tensor *inverse, *counts;

    ONLY_SAYS(NULL, sherd_unique(NULL, NULL, NULL));
    ONLY_SAYS(NULL, sherd_unique(NULL, &inverse, &counts));
    FAILS(SHERD_OK, sherd_unique(t.x, NULL, &counts));
    ONLY_SAYS(NULL, sherd_unique_along(NULL, 0, &inverse, &counts));
    FAILS(SHERD_EINVAL, sherd_unique_along(t.x, BAD(2, 0), NULL, &counts));
    ONLY_SAYS(NULL, sherd_unique_consecutive(NULL, 0, &inverse, &counts));
    FAILS(SHERD_EINVAL, sherd_unique_consecutive(t.x, BAD(-3, 0), &inverse, NULL));
    ONLY_SAYS(NULL, sherd_searchsorted(NULL, NULL, false, SHERD_I64));
    FAILS(SHERD_EINVAL, sherd_searchsorted(NUL(t.x), t.x, false, SHERD_I64));
    FAILS(SHERD_EINVAL, sherd_searchsorted(t.x, NUL(t.x), false, SHERD_I64));
    FAILS(SHERD_EINVAL, sherd_searchsorted(t.x, BAD(t.rows, t.x), false, SHERD_I64));
    FAILS(SHERD_EINVAL, sherd_searchsorted(t.x, BAD(t.choice, t.x), false, SHERD_I64));
    FAILS(SHERD_EINVAL, sherd_searchsorted(t.x, BAD(t.other, t.x), false, SHERD_I64));
    FAILS(SHERD_EINVAL, sherd_searchsorted(t.x, t.x, false, BAD(SHERD_F32, SHERD_I64)));
    FAILS(SHERD_EINVAL,
          sherd_searchsorted(t.x, t.x, BAD(true, false), BAD((sherd_dtype)99, SHERD_I64)));
}

MISUSE(draws_need_weights)
{
    const things t = make(m->world);
    sherd_generator dice = sherd_generator_named("");

    ONLY_SAYS(NULL, sherd_multinomial(NULL, 1, false, NULL));
    FAILS(SHERD_EINVAL, sherd_multinomial(t.x, 1, false, NUL(&dice)));
    FAILS(SHERD_EINVAL, sherd_multinomial(BAD(t.scalar, t.x), 1, false, &dice));
    FAILS(SHERD_EINVAL, sherd_multinomial(BAD(t.choice, t.x), 1, false, &dice));
}

MISUSE(sampling_needs_keys_and_options_of_rows)
{
    const things t = make(m->world);
    const int64_t rows = 4;
    sherd_tensor *one = on(m->world, SHERD_F32, 1, &rows, "x=%d");
    sherd_tensor *most = on(m->world, SHERD_I32, 1, &rows, "x=%d");
    const sherd_sample_options none = {.top_k = NULL}, heat = {.temperature = BAD(t.x, one)},
                               whole = {.temperature = BAD(most, one)},
                               k = {.top_k = BAD(one, most)}, p = {.top_p = BAD(most, one)},
                               least = {.min_p = BAD(most, one)},
                               cold = {.temperature = BAD(sherd_scale(one, -1), one)};

    ONLY_SAYS(NULL, sherd_sample_rows(NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(NUL(t.x), t.choice, NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, NUL(t.choice), &none));
    FAILS(SHERD_EINVAL, sherd_sample_rows(BAD(t.choice, t.x), t.choice, NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(BAD(t.scalar, t.x), t.choice, NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, BAD(t.scalar, t.choice), NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, BAD(t.scores, t.choice), NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, BAD(t.group, t.choice), NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(BAD(t.other, t.x), t.choice, NULL));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, t.choice, &heat));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, t.choice, &whole));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, t.choice, &k));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, t.choice, &p));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, t.choice, &least));
    FAILS(SHERD_EINVAL, sherd_sample_rows(t.x, t.choice, &cold));
}

static const check_test tests[] = {
    {TEST(sampling_needs_keys_and_options_of_rows), {1, 2, 3}},
    {TEST(routes_need_numbers_of_shards), {1, 2, 3}},
    {TEST(masks_need_the_first_sizes), {1, 2, 3}},
    {TEST(places_need_sequences), {1, 2, 3}},
    {TEST(draws_need_weights), {1, 2, 3}},
    {TEST(groups_need_choices_and_weights), {1, 2, 3}},
    {TEST(rows_go_by_groups_that_fit), {1, 2, 3}},
    {TEST(weights_need_rows_and_ends), {1, 2, 3}},
    {TEST(sizes_that_come_round_are_refused), {1, 8}},
};
CHECK_MAIN(tests)
