/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of searches of points: see misuse.h. */
#include "misuse.h"

#include <math.h>

#include "sherd/ops_elements.h"
#include "sherd/ops_points.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

typedef struct things {
    sherd_tensor *points, *queries;     /* [9, 3], [4, 3] */
    sherd_tensor *flat, *plane, *empty; /* [9], [4, 2], [4, 0] */
    sherd_tensor *other;                /* [4, 3] on another mesh */
    sherd_tensor *narrow;               /* [4, 3] of f32 */
} things;

static sherd_tensor *ones(sherd_world *world, int ndim, const int64_t *shape, sherd_dtype dtype,
                          const char *form)
{
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, form, sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    const char *placements = strstr(text, ",") ? "S(0)R" : "S(0)";
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL));
    return sherd_constant_on(layout, dtype, 1);
}

static things make(sherd_world *world)
{
    static const int64_t points[] = {9, 3}, queries[] = {4, 3}, plane[] = {4, 2}, empty[] = {4, 0};
    things t = {.points = ones(world, 2, points, SHERD_F64, "x=%d")};

    t.queries = ones(world, 2, queries, SHERD_F64, "x=%d");
    t.flat = ones(world, 1, points, SHERD_F64, "x=%d");
    t.plane = ones(world, 2, plane, SHERD_F64, "x=%d");
    t.empty = ones(world, 2, empty, SHERD_F64, "x=%d");
    t.other = ones(world, 2, queries, SHERD_F64, "x=%d,y=1");
    t.narrow = ones(world, 2, queries, SHERD_F32, "x=%d");
    CHECK_OK(sherd_world_check(world));
    return t;
}

MISUSE(fields_are_sampled_at_points_that_fit)
{
    static const int64_t shape[] = {2, 1, 4}, at[] = {2, 3, 1}, none[] = {2, 1, 0};
    sherd_tensor *x = ones(m->world, 3, shape, SHERD_F64, "x=%d");
    sherd_tensor *grid = ones(m->world, 3, at, SHERD_F64, "x=%d");
    sherd_tensor *empty = ones(m->world, 3, none, SHERD_F64, "x=%d");

    CHECK_OK(sherd_world_check(m->world));
    ONLY_SAYS(NULL, sherd_grid_sample(NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_grid_sample(NUL(x), grid, NULL));
    FAILS(SHERD_EINVAL, sherd_grid_sample(x, NUL(grid), NULL));
    FAILS(SHERD_EINVAL, sherd_grid_sample(x, BAD(x, grid), NULL));
    FAILS(SHERD_EINVAL, sherd_grid_sample(BAD(empty, x), grid, NULL));
    FAILS(SHERD_EINVAL, sherd_grid_sample(x, BAD(sherd_cast(grid, SHERD_I32), grid), NULL));
}

MISUSE(nearest_points_need_clouds_that_fit)
{
    things t = make(m->world);
    sherd_tensor *index;

    ONLY_SAYS(NULL, sherd_knn(NULL, NULL, 1, NULL));
    FAILS(SHERD_EINVAL, sherd_knn(NUL(t.points), t.queries, 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, NUL(t.queries), 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(BAD(t.flat, t.points), t.queries, 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, BAD(t.plane, t.queries), 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(BAD(t.empty, t.points), BAD(t.empty, t.queries), 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, BAD(t.other, t.queries), 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, BAD(t.narrow, t.queries), 2, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, t.queries, BAD(0, 2), &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, t.queries, BAD(10, 2), &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn(t.points, t.queries, BAD(INT64_MIN, 2), &index));
    t = make(m->world);
    FAILS(SHERD_OK, sherd_knn(t.points, t.queries, 2, NUL(&index)));
}

MISUSE(a_surface_has_triangles)
{
    things t = make(m->world);
    sherd_tensor *nearest, *sides = sherd_cast(t.points, SHERD_I32);

    ONLY_SAYS(NULL, sherd_signed_distance(NULL, NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_signed_distance(NUL(t.points), t.queries, sides, &nearest));
    t = make(m->world);
    sides = sherd_cast(t.points, SHERD_I32);
    FAILS(SHERD_EINVAL, sherd_signed_distance(t.points, NUL(t.queries), sides, &nearest));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_signed_distance(t.points, t.queries, NUL(t.points), &nearest));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_signed_distance(BAD(t.flat, t.points), t.queries,
                                              sherd_cast(t.points, SHERD_I32), &nearest));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_signed_distance(t.points, BAD(t.plane, t.queries),
                                              sherd_cast(t.points, SHERD_I32), &nearest));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_signed_distance(t.points, BAD(t.narrow, t.queries),
                                              sherd_cast(t.points, SHERD_I32), &nearest));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_signed_distance(t.points, t.queries, BAD(t.points, sherd_cast(t.points, SHERD_I32)),
                                &nearest));
    t = make(m->world);
    FAILS(SHERD_OK, sherd_signed_distance(t.points, t.queries, sherd_cast(t.points, SHERD_I32),
                                          NUL(&nearest)));
}

MISUSE(a_radius_is_a_finite_number)
{
    things t = make(m->world);
    sherd_tensor *index, *counts;

    ONLY_SAYS(NULL, sherd_radius_search(NULL, NULL, 1, 1, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_radius_search(NUL(t.points), t.queries, 1, 2, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_radius_search(t.points, NUL(t.queries), 1, 2, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_radius_search(t.points, t.queries, BAD(-1, 1), 2, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_radius_search(t.points, t.queries, BAD((double)NAN, 1), 2, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_radius_search(t.points, t.queries, BAD((double)INFINITY, 1), 2, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_radius_search(t.points, t.queries, 1, BAD(0, 2), &index, &counts));
    t = make(m->world);
    FAILS(SHERD_OK, sherd_radius_search(t.points, t.queries, 1, 100, NUL(&index), NUL(&counts)));
}

/* Periods that are none. */
static const sherd_search_options good = {.period = {0, 2}}, negative = {.period = {-1}},
                                  endless = {.period = {0, 0, INFINITY}},
                                  unknown = {.period = {NAN}}, fourth = {.period = {0, 0, 0, 1}};

MISUSE(a_period_is_of_a_coordinate)
{
    things t = make(m->world);
    sherd_tensor *index;

    ONLY_SAYS(NULL, sherd_knn_with(NULL, NULL, 1, NULL, NULL));
    FAILS(SHERD_OK, sherd_knn_with(t.points, t.queries, 2,
                                   NUL(&(sherd_search_options){.period = {0}}), NUL(&index)));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(NUL(t.points), t.queries, 2, &good, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(t.points, NUL(t.queries), 2, &good, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(t.points, t.queries, BAD(0, 2), &good, &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(t.points, t.queries, 2, BAD(&negative, &good), &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(t.points, t.queries, 2, BAD(&endless, &good), &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(t.points, t.queries, 2, BAD(&unknown, &good), &index));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_knn_with(t.points, t.queries, 2, BAD(&fourth, &good), &index));
}

MISUSE(a_radius_is_half_a_period_at_most)
{
    things t = make(m->world);
    sherd_tensor *index, *counts;

    ONLY_SAYS(NULL, sherd_radius_search_with(NULL, NULL, 1, 1, NULL, NULL, NULL));
    FAILS(SHERD_OK,
          sherd_radius_search_with(t.points, t.queries, 1, 2, &good, NUL(&index), NUL(&counts)));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_radius_search_with(NUL(t.points), t.queries, 1, 2, &good, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_radius_search_with(t.points, NUL(t.queries), 1, 2, &good, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_radius_search_with(t.points, t.queries, BAD(1.01, 1), 2, &good, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL,
          sherd_radius_search_with(t.points, t.queries, 1, BAD(0, 2), &good, &index, &counts));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_radius_search_with(t.points, t.queries, 1, 2, BAD(&negative, &good),
                                                 &index, &counts));
}

/* The error names what is wrong, with values. */
static void errors_say_why(sherd_world *world)
{
    static const int64_t wide[] = {4, 9};
    things t = make(world);

    sherd_radius_search_with(t.points, t.queries, 1.5, 2, &good, NULL, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "the radius 1.5 is more than half of the period 2 of coordinate 1"));
    t = make(world);
    t.other = ones(world, 2, wide, SHERD_F64, "x=%d");
    sherd_knn_with(t.other, t.other, 1, &good, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "9 coordinates: a periodic space has at most 8"));
}

static const check_test tests[] = {
    {TEST(fields_are_sampled_at_points_that_fit), {1, 2, 3}},
    {TEST(nearest_points_need_clouds_that_fit), {1, 2, 3}},
    {TEST(a_surface_has_triangles), {2}},
    {TEST(a_radius_is_a_finite_number), {1, 2, 3}},
    {TEST(a_period_is_of_a_coordinate), {1, 2, 3}},
    {TEST(a_radius_is_half_a_period_at_most), {1, 2, 3}},
    {TEST(errors_say_why), {1, 2}},
};
CHECK_MAIN(tests)
