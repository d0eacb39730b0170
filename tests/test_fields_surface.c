/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed distances to surfaces of triangles: to a box what geometry says, also at its edges and
 * corners; to a torus those to its parts, which are too small for a tree; the same bits under any
 * layout; gradients and theirs as differences have them.
 */
#include "tensors.h"

#include <math.h>

#include "sherd/autograd.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_points.h"
#include "sherd/ops_reductions.h"

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

enum { POINTS = 60, AROUND = 12, ACROSS = 9, TORUS = AROUND * ACROSS };

/* Corners of a box, and its sides from outside, counterclockwise. */
static const double box_corner[8][3] = {{-1, -2, -3}, {1, -2, -3}, {-1, 2, -3}, {1, 2, -3},
                                        {-1, -2, 3},  {1, -2, 3},  {-1, 2, 3},  {1, 2, 3}};
static const int32_t box_side[12][3] = {{0, 2, 1}, {1, 2, 3}, {4, 5, 6}, {5, 7, 6},
                                        {0, 1, 4}, {1, 5, 4}, {2, 6, 3}, {3, 6, 7},
                                        {0, 4, 2}, {2, 4, 6}, {1, 3, 5}, {3, 7, 5}};

static sherd_tensor *places(sherd_world *world, const double *x, int64_t rows)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, SHAPE(rows, 3), 2, x));
}

static sherd_tensor *indices(sherd_world *world, const int32_t *x, int64_t rows)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SHAPE(rows, 3), 2, x));
}

/* Points in and around both surfaces, none of which is as near to two places. */
static sherd_tensor *some_points(sherd_world *world, int64_t m)
{
    double x[3 * POINTS];

    for (int64_t i = 0; i < 3 * m; i++)
        x[i] = 4 * sin(1.7 * (double)i + 0.3 * (double)(i * i));
    return places(world, x, m);
}

static double to_box(const double *p)
{
    double outside = 0, inside = -INFINITY;

    for (int d = 0; d < 3; d++) {
        double off = fabs(p[d]) - (d + 1);
        inside = fmax(inside, off);
        outside += off > 0 ? off * off : 0;
    }
    return outside > 0 ? sqrt(outside) : inside;
}

static void a_box_is_as_far_as_geometry_says(sherd_world *world)
{
    sherd_tensor *p = some_points(world, POINTS), *nearest = NULL;
    sherd_tensor *vertices = places(world, box_corner[0], 8);
    sherd_tensor *d = sherd_signed_distance(p, vertices, indices(world, box_side[0], 12), &nearest);
    const double *x = sherd_tensor_read(p), *got = sherd_tensor_read(d);
    const int32_t *which = sherd_tensor_read(nearest);
    double apart[36][3];
    int32_t own[36];

    for (int i = 0; i < POINTS && CHECK(got != NULL && which != NULL); i++) {
        CHECK_NEAR(got[i], to_box(x + 3 * i), 1e-14);
        CHECK(which[i] >= 0 && which[i] < 12);
    }
    for (int i = 0; i < 36; i++) { /* vertices of their own, as files of triangles have them */
        memcpy(apart[i], box_corner[box_side[i / 3][i % 3]], sizeof apart[i]);
        own[i] = i;
    }
    sherd_tensor *same =
        sherd_signed_distance(p, places(world, apart[0], 36), indices(world, own, 12), NULL);
    const double *again = sherd_tensor_read(same);
    CHECK(got && again && memcmp(got, again, POINTS * sizeof *got) == 0);
    CHECK_OK(sherd_world_check(world));
}

/* A torus of radii 2 and 1, whose triangles look outwards. */
static void make_torus(double *x, int32_t *corner)
{
    for (int i = 0; i < TORUS; i++) {
        double u = 2 * M_PI * (i / ACROSS) / AROUND, v = 2 * M_PI * (i % ACROSS) / ACROSS;
        x[3 * i] = (2 + cos(v)) * cos(u);
        x[3 * i + 1] = (2 + cos(v)) * sin(u);
        x[3 * i + 2] = sin(v);
        int row = i / ACROSS * ACROSS, next = (row + ACROSS) % TORUS;
        int k = i % ACROSS, l = (k + 1) % ACROSS;
        const int32_t two[6] = {row + k, next + k, next + l, row + k, next + l, row + l};
        memcpy(corner + 6 * i, two, sizeof two);
    }
}

static void the_nearest_is_that_of_the_nearest_part(sherd_world *world)
{
    enum { PART = 24 }; /* triangles: a leaf has more */
    double x[3 * TORUS], least[POINTS];
    int32_t corner[6 * TORUS];
    sherd_tensor *p = some_points(world, POINTS);

    make_torus(x, corner);
    sherd_tensor *vertices = places(world, x, TORUS);
    sherd_tensor *d = sherd_signed_distance(p, vertices, indices(world, corner, 2 * TORUS), NULL);
    const double *got = sherd_tensor_read(d), *at = sherd_tensor_read(p);
    for (int i = 0; i < POINTS; i++)
        least[i] = INFINITY;
    for (int part = 0; part < 2 * TORUS; part += PART) {
        const double *of = sherd_tensor_read(
            sherd_signed_distance(p, vertices, indices(world, corner + 3 * part, PART), NULL));
        for (int i = 0; i < POINTS && CHECK(of != NULL); i++)
            least[i] = fmin(least[i], fabs(of[i]));
    }
    for (int i = 0; i < POINTS && CHECK(got != NULL && at != NULL); i++) {
        double ring = hypot(at[3 * i], at[3 * i + 1]) - 2, off = hypot(ring, at[3 * i + 2]) - 1;
        CHECK_EQ(fabs(got[i]), least[i]);
        if (fabs(off) > 0.3) /* from what the triangles are pieces of */
            CHECK_EQ(got[i] > 0, off > 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *on(const sherd_mesh *mesh, sherd_tensor *t, const char *way)
{
    return sherd_distribute_as(t, mesh, way, -1);
}

static void layouts_do_not_matter(sherd_world *world)
{
    static const char *const ways[][3] = {{"S(0)", "R", "R"},       {"S(0)", "S(0)", "S(0)"},
                                          {"R", "S(1)", "R"},       {"S(1)", "R", "S(1)"},
                                          {"S(0)", "S(0)", "S(1)"}, {"R", "R", "S(0)"}};
    const sherd_mesh *mesh = line_of_ranks(world);
    double x[3 * TORUS];
    int32_t corner[6 * TORUS];

    make_torus(x, corner);
    sherd_tensor *vertices = places(world, x, TORUS);
    sherd_tensor *triangles = indices(world, corner, 2 * TORUS);
    for (int m = 0; m <= POINTS; m = m ? 10 * m : 1) /* 0, 1 and 10 points */
        for (int i = 0; i < LEN(ways); i++) {
            sherd_tensor *p = some_points(world, m), *which, *where;
            sherd_tensor *want = sherd_signed_distance(p, vertices, triangles, &which);
            sherd_tensor *got =
                sherd_signed_distance(on(mesh, p, ways[i][0]), on(mesh, vertices, ways[i][1]),
                                      on(mesh, triangles, ways[i][2]), &where);
            got = sherd_full(got);
            where = sherd_full(where);
            for (int k = 0; k < m; k++) {
                CHECK_EQ(((const double *)sherd_tensor_read(got))[k],
                         ((const double *)sherd_tensor_read(want))[k]);
                CHECK_EQ(((const int32_t *)sherd_tensor_read(where))[k],
                         ((const int32_t *)sherd_tensor_read(which))[k]);
            }
            CHECK_OK(sherd_world_check(world));
        }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static sherd_tensor *distance(sherd_tensor *const *in, int count, void *triangles)
{
    (void)count;
    return sherd_signed_distance(in[0], in[1], triangles, NULL);
}

/* Squares of gradients by points and vertices. */
static sherd_tensor *steepness(sherd_tensor *const *in, int count, void *triangles)
{
    const sherd_gradients_options recorded = {.create_graph = true};
    sherd_tensor *d = sherd_signed_distance(in[0], in[1], triangles, NULL), *out[2];
    sherd_tensor *sum = sherd_sum(sherd_mul(d, sherd_square(d)));

    sherd_gradients(out, in, count, &sum, 1, &recorded);
    return sherd_add(sherd_sum(sherd_square(out[0])), sherd_sum(sherd_square(out[1])));
}

static void gradients_are_as_differences_say(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    /* beside a face, beyond an edge, beyond a corner, and inside */
    static const double at[5][3] = {
        {1.6, 0.3, 0.2}, {1.5, 2.7, 0.4}, {-1.2, -2.9, 3.8}, {0.7, 0.4, 0.5}, {-0.2, 1.7, 0.9}};
    static const char *const ways[][2] = {{"S(0)", "R"}, {"R", "S(0)"}, {"S(1)", "S(1)"}};

    for (int i = 0; i < LEN(ways); i++) {
        sherd_tensor *in[] = {on(mesh, places(world, at[0], 5), ways[i][0]),
                              on(mesh, places(world, box_corner[0], 8), ways[i][1])};
        sherd_tensor *sides = on(mesh, indices(world, box_side[0], 12), "R");
        const sherd_check_options first = {.payload = sides},
                                  second = {.step = 1e-5, .payload = sides};
        sherd_require_grad(in[0], true);
        sherd_require_grad(in[1], true);
        if (!CHECK_OK(sherd_check_gradients(distance, in, 2, &first)) ||
            !CHECK_OK(sherd_check_gradients(steepness, in, 2, &second)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void what_is_no_surface_is_refused(sherd_world *world)
{
    static const int32_t beyond[3] = {0, 1, 8};
    static const double nowhere[6] = {NAN, 0, 0, 0, 0, 0.5};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *vertices = places(world, box_corner[0], 8), *nearest = NULL;
    sherd_tensor *points = on(mesh, some_points(world, 4), "S(0)");

    sherd_signed_distance(points, vertices, on(mesh, indices(world, beyond, 1), "R"), NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "triangles[0,2] = 8 is outside of [0,8)") != NULL);
    sherd_signed_distance(on(mesh, some_points(world, 4), "S(0)"), vertices,
                          indices(world, beyond, 0), NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_signed_distance: there is no triangle") != NULL);
    sherd_tensor *d = sherd_signed_distance(places(world, nowhere, 2), vertices,
                                            indices(world, box_side[0], 12), &nearest);
    const double *got = sherd_tensor_read(d);
    CHECK(got && isnan(got[0]) && got[1] == -1);
    CHECK_EQ(*(const int32_t *)sherd_tensor_read(nearest), -1);
    CHECK_OK(sherd_world_check(world));
}

/* A triangle that is a line, or a point; vertices that are used by none. */
static void degenerate_triangles_are_lines_and_points(sherd_world *world)
{
    static const double x[5][3] = {{0, 0, 0}, {2, 0, 0}, {1, 0, 0}, {5, 5, 5}, {1, 3, 0}};
    static const int32_t line[3] = {0, 1, 2}, point[3] = {4, 4, 4};
    static const double at[2][3] = {{1.5, 2, 0}, {-3, 4, 0}};
    sherd_tensor *p = places(world, at[0], 2), *vertices = places(world, x[0], 5);
    const double *a =
        sherd_tensor_read(sherd_signed_distance(p, vertices, indices(world, line, 1), NULL));
    const double *b =
        sherd_tensor_read(sherd_signed_distance(p, vertices, indices(world, point, 1), NULL));

    CHECK(a && a[0] == 2 && a[1] == 5);
    CHECK(b && fabs(b[0] - sqrt(1.25)) < 1e-15 && fabs(b[1] - sqrt(17)) < 1e-15);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_box_is_as_far_as_geometry_says), {1}},
    {TEST(the_nearest_is_that_of_the_nearest_part), {1}},
    {TEST(layouts_do_not_matter), {1, 2, 3, 4, 8}},
    {TEST(gradients_are_as_differences_say), {1, 2, 3}},
    {TEST(what_is_no_surface_is_refused), {1, 2, 3}},
    {TEST(degenerate_triangles_are_lines_and_points), {1}},
};
CHECK_MAIN(tests)
