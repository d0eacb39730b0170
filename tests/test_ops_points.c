/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points on real ranks: plain searches against the naive one, bit for bit, and any layout against
 * the plain ones, also their gradients; and what travels.
 */
#include "points.h"

#include <float.h>

#include "sherd/comm.h"
#include "sherd/ops_elements.h"

/* ---- plain ----------------------------------------------------------------------------------- */

static void plain_is_the_naive_search(sherd_world *world)
{
    scene s = {.world = world, .dice = 7};

    for (int i = 0; i < 400; i++) {
        sherd_scope_begin(world);
        draw_scene(&s);
        bool coarse = roll(&s.dice, 2);
        sherd_tensor *points = draw_cloud(&s, s.n, coarse), *queries = draw_cloud(&s, s.m, coarse);
        answer a = search(&s, points, queries);
        if (!CHECK(!sherd_tensor_failed(a.distances)))
            break;
        if (!CHECK_EQ(count_wrong_rows(&s, &a, points, queries), 0))
            fprintf(stderr, "n %d m %d d %d k %d radius %g\n", (int)s.n, (int)s.m, (int)s.d,
                    (int)s.k, s.radius);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Those that are no number come last, and those that are infinitely far before them. */
static void what_is_no_number_is_behind(sherd_world *world)
{
    static const int64_t shape[] = {5, 2}, one[] = {1, 2};
    const double x[] = {NAN, 0, INFINITY, 0, 1e200, 0, 3, 4, 0, -INFINITY}, zero[] = {0, 0};
    static const int32_t want[] = {3, 1, 2, 4, 0};
    sherd_tensor *index;
    sherd_tensor *y = sherd_knn(sherd_from_data(world, SHERD_F64, shape, 2, x),
                                sherd_from_data(world, SHERD_F64, one, 2, zero), 5, &index);
    const double *distance = sherd_tensor_read(y);
    const int32_t *at = sherd_tensor_read(index);

    for (int i = 0; i < 5; i++)
        CHECK_EQ(at[i], want[i]);
    CHECK(distance[0] == 5 && isinf(distance[1]) && isinf(distance[3]) && isnan(distance[4]));
    CHECK_OK(sherd_world_check(world));
}

/*
 * A lattice that fills its box: each point has 2 d nearest, one step away, also over the ends, and
 * pulls on them cancel. Moved by many boxes, points have the same neighbours.
 */
static void lattices_have_no_ends(sherd_world *world)
{
    enum { SIDE = 5, POINTS = SIDE * SIDE * SIDE };
    static const int64_t shape[] = {POINTS, 3};
    const sherd_search_options box = {.period = {SIDE, SIDE, SIDE}};
    const sherd_layout *rows = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);
    double x[3 * POINTS], far[3 * POINTS];
    sherd_tensor *index, *counts;

    for (int i = 0; i < 3 * POINTS; i++) {
        x[i] = i / 3 / (i % 3 == 0 ? 1 : i % 3 == 1 ? SIDE : SIDE * SIDE) % SIDE;
        far[i] = x[i] + SIDE * 1000.0 * (i % 7 - 3);
    }
    sherd_tensor *p = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 2, x));
    sherd_tensor *q = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 2, far));
    p = sherd_require_grad(sherd_distribute(p, rows, -1), true);
    q = sherd_require_grad(sherd_distribute(q, rows, -1), true);
    sherd_tensor *y = sherd_radius_search_with(p, q, 1, 10, &box, &index, &counts);
    const int32_t *count = sherd_tensor_read(counts);
    for (int64_t i = 0; i < counts->count; i++)
        CHECK_EQ(count[i], 7);
    CHECK_EQ(sherd_item(sherd_sum(y)), 6 * POINTS);
    sherd_backward(sherd_sum(y));
    CHECK_EQ(sherd_item(sherd_sum(sherd_abs(sherd_grad(p)))), 0);
    CHECK_EQ(sherd_item(sherd_sum(sherd_abs(sherd_grad(q)))), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Narrow types are searched as the f64 numbers that they are. */
static void other_dtypes_are_rounded_f64(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F16};
    scene s = {.world = world, .dice = 5};

    for (int i = 0; i < 60; i++) {
        sherd_scope_begin(world);
        draw_scene(&s);
        sherd_dtype dtype = dtypes[i % 3];
        sherd_tensor *p = sherd_cast(draw_cloud(&s, s.n, false), dtype);
        sherd_tensor *q = sherd_cast(draw_cloud(&s, s.m, false), dtype);
        answer narrow = search(&s, p, q),
               wide = search(&s, sherd_cast(p, SHERD_F64), sherd_cast(q, SHERD_F64));
        sherd_tensor *rounded = sherd_cast(wide.distances, dtype);
        size_t bytes = sherd_dtype_bytes(dtype) * (size_t)rounded->count;
        if (rounded->count) {
            CHECK(memcmp(sherd_tensor_read(narrow.distances), sherd_tensor_read(rounded), bytes) ==
                  0);
            CHECK(memcmp(sherd_tensor_read(narrow.indices), sherd_tensor_read(wide.indices),
                         sizeof(int32_t) * (size_t)rounded->count) == 0);
        }
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static sherd_tensor *total(scene *s, sherd_tensor *points, sherd_tensor *queries,
                           sherd_tensor *weight)
{
    return sherd_sum(sherd_mul(search(s, points, queries).distances, weight));
}

/* The same with one coordinate of a cloud a little elsewhere. */
static double shifted(scene *s, sherd_tensor **cloud, int which, int64_t at, double by,
                      sherd_tensor *weight)
{
    sherd_tensor *moved[2] = {cloud[0], cloud[1]};

    moved[which] = sherd_clone(sherd_detach(cloud[which]));
    ((double *)sherd_tensor_write(moved[which]))[at] += by;
    return sherd_item(total(s, moved[0], moved[1], weight));
}

/* No two distances are nearly alike here, so small shifts find the same points. */
static void gradients_are_differences(sherd_world *world)
{
    const double h = 1e-6;
    scene s = {.world = world, .dice = 9};

    for (int i = 0; i < 24; i++) {
        sherd_scope_begin(world);
        s = (scene){world, s.dice, 12, 5, 1 + i % 3, 4, i % 2 ? -1 : 0.8, {{0}}};
        if (i >= 12)
            s.space = (sherd_search_options){.period = {1.7}};
        sherd_tensor *cloud[2] = {sherd_require_grad(draw_cloud(&s, s.n, false), true),
                                  sherd_require_grad(draw_cloud(&s, s.m, false), true)};
        scene w = s;
        w.d = s.k;
        sherd_tensor *weight = draw_cloud(&w, s.m, false);
        s.dice = w.dice;
        sherd_backward(total(&s, cloud[0], cloud[1], weight));
        for (int c = 0; c < 2; c++) {
            const double *grad = sherd_tensor_read(sherd_grad(cloud[c]));
            for (int64_t at = 0; grad && at < cloud[c]->count; at++)
                CHECK_NEAR(
                    grad[at],
                    (shifted(&s, cloud, c, at, h, weight) - shifted(&s, cloud, c, at, -h, weight)) /
                        (2 * h),
                    1e-5);
        }
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- any layout ------------------------------------------------------------------------------ */

static bool same_rows(const sherd_layout *a, const sherd_layout *b)
{
    return sherd__dim_equal(a->spec.mesh, &a->spec.dim[0], &b->spec.dim[0], a->spec.shape[0]) &&
           a->spec.dim[1].axes == 0 && !a->pending_axes;
}

static bool check_gradients(scene *s, sherd_tensor **leaf, sherd_tensor **spread,
                            sherd_tensor *want, sherd_tensor *y)
{
    scene w = *s;
    bool good = true;

    w.d = s->k;
    sherd_tensor *dy = draw_cloud(&w, s->m, false);
    s->dice = w.dice;
    sherd_backward_with(&want, &dy, 1, NULL);
    sherd_backward_with(&y, &dy, 1, NULL);
    for (int i = 0; i < 2; i++) {
        good = CHECK(sherd_grad(spread[i])->layout == spread[i]->layout) && good;
        good =
            CHECK_NEAR(largest_difference(sherd_grad(spread[i]), sherd_grad(leaf[i])), 0, 1e-12) &&
            good;
    }
    return good;
}

static void check_layout(scene *s, const sherd_mesh *mesh)
{
    const int64_t shape[2][2] = {{s->n, s->d}, {s->m, s->d}};
    bool coarse = roll(&s->dice, 2), graded = roll(&s->dice, 2);
    sherd_tensor *leaf[2] = {draw_cloud(s, s->n, coarse), draw_cloud(s, s->m, coarse)}, *spread[2];

    for (int i = 0; i < 2; i++) {
        spread[i] = sherd_distribute(leaf[i], draw_layout(s, mesh, shape[i]), -1);
        sherd_require_grad(leaf[i], true);
        sherd_require_grad(spread[i], true);
    }
    answer want = search(s, leaf[0], leaf[1]), got = search(s, spread[0], spread[1]);
    if (!CHECK(!sherd_tensor_failed(got.distances) && !sherd_tensor_failed(want.distances)))
        return;
    bool good = CHECK_EQ(count_different(got.distances, want.distances), 0);
    good = CHECK_EQ(count_different(got.indices, want.indices), 0) && good;
    good = CHECK(!got.counts || count_different(got.counts, want.counts) == 0) && good;
    good = CHECK(same_rows(got.distances->layout, spread[1]->layout)) && good;
    good = CHECK(got.indices->layout == got.distances->layout) && good;
    if (graded)
        good = check_gradients(s, leaf, spread, want.distances, got.distances) && good;
    if (!good)
        fprintf(stderr, "points %s queries %s k %d radius %g -> %s\n", sherd_tensor_text(spread[0]),
                sherd_tensor_text(spread[1]), (int)s->k, s->radius,
                sherd_tensor_text(got.distances));
}

static void every_layout_is_bit_equal(sherd_world *world)
{
    static const char *const meshes[][3] = {
        {"1", "1x1", "1"},   {"2", "1x2", "2"},   {"3", "2", "3"},   {"4", "2x2", "2x2"},
        {"5", "2x2", "1x3"}, {"6", "2x3", "3x2"}, {"7", "2x3", "2"}, {"8", "2x2x2", "2x4"}};
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 40;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = mesh_of(world, meshes[sherd_world_ranks(world) - 1][i % 3]);
        sherd_scope_begin(world);
        draw_scene(&s);
        check_layout(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- cases that have a name ------------------------------------------------------------------ */

static void check_combinations(scene *s, const sherd_mesh *mesh)
{
    const int64_t shape[2][2] = {{s->n, s->d}, {s->m, s->d}};
    sherd_tensor *cloud[2] = {draw_cloud(s, s->n, false), draw_cloud(s, s->m, false)};
    answer want = search(s, cloud[0], cloud[1]);
    int lists = lists_of(mesh, 2);

    for (int i = 0; i < lists * lists; i++) {
        sherd_scope_begin(s->world);
        const sherd_layout *layout[2] = {numbered(mesh, 2, shape[0], i % lists),
                                         numbered(mesh, 2, shape[1], i / lists)};
        if (!layout[0]->pending_axes && !layout[1]->pending_axes) {
            answer got = search(s, sherd_distribute(cloud[0], layout[0], -1),
                                sherd_distribute(cloud[1], layout[1], -1));
            CHECK_EQ(count_different(got.distances, want.distances), 0);
            CHECK_EQ(count_different(got.indices, want.indices), 0);
            CHECK(!got.counts || count_different(got.counts, want.counts) == 0);
        }
        sherd_scope_end(s->world);
    }
}

/*
 * 1025 points and 2048 queries, 4 nearest; 136 points, and those within a radius of the points of a
 * grid (row 84 of ShardTensor's cases; the short form has a quarter): all combinations of shards.
 */
static void all_combinations_of_shards(sherd_world *world)
{
    int64_t less = check_stride(4);
    scene nearest = {world, 84, 1024 / less + 1, 2048 / less, 3, 4, -1, {{0}}},
          within = {world, 84, 136, 2304 / less, 3, 10, 0.4, {{2, 2}}};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 4 ? "2x2" : "2");

    check_combinations(&nearest, mesh);
    check_combinations(&within, mesh);
    CHECK_OK(sherd_world_check(world));
}

/* All points and queries are one: the first k are the nearest, and nothing flows. */
static void equal_points_come_in_order(sherd_world *world)
{
    char text[16];
    static const int64_t shape[] = {37, 2}, few[] = {9, 2};

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_tensor *p = sherd_require_grad(
        sherd_constant_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F64, 2), true);
    sherd_tensor *q = sherd_constant_on(layout_of(mesh, 2, few, "S(0)", NULL), SHERD_F64, 2);
    sherd_tensor *index, *y = sherd_knn(p, q, 20, &index);
    const int32_t *at = sherd_tensor_read(index);

    for (int64_t i = 0; at && i < index->count; i++)
        CHECK_EQ(at[i], i % 20);
    sherd_backward(sherd_sum(y));
    CHECK(sherd_item(sherd_sum(sherd_abs(sherd_grad(p)))) == 0);
    CHECK_OK(sherd_world_check(world));
}

/* A point a hair's breadth beside each of a few queries: the pull is that of the difference, not of
 * large products that cancel. */
static void near_points_pull_as_they_lie(sherd_world *world)
{
    enum { POINTS = 64, QUERIES = 4 };
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t shape[2][2] = {{POINTS, 2}, {QUERIES, 2}};
    float x[2][2 * POINTS];
    sherd_tensor *leaf[2], *spread[2];

    for (int i = 0; i < 2 * POINTS; i++)
        x[0][i] = 3 + (float)i;
    for (int i = 0; i < 2 * QUERIES; i++)
        x[1][i] = x[0][32 * (i / 2) + i % 2] + (i % 2 ? 7e-4F : 4e-4F);
    for (int i = 0; i < 2; i++) {
        leaf[i] = sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape[i], 2, x[i]));
        spread[i] =
            sherd_distribute(leaf[i], layout_of(mesh, 2, shape[i], i ? "R" : "S(0)", NULL), -1);
        sherd_require_grad(leaf[i], true);
        sherd_require_grad(spread[i], true);
    }
    sherd_backward(sherd_sum(sherd_knn(leaf[0], leaf[1], 1, NULL)));
    sherd_backward(sherd_sum(sherd_knn(spread[0], spread[1], 1, NULL)));
    for (int i = 0; i < 2; i++) {
        const float *got = sherd_tensor_read(sherd_full(sherd_grad(spread[i])));
        const float *want = sherd_tensor_read(sherd_grad(leaf[i]));
        for (int at = 0; CHECK(got && want) && at < shape[i][0] * 2; at++)
            CHECK_NEAR(got[at], want[at], 1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Of no points none is within a radius, and nothing flows. */
static void nothing_is_near_no_points(sherd_world *world)
{
    static const int64_t shape[2][2] = {{0, 3}, {7, 3}};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "2" : "1");
    sherd_tensor *index, *counts, *cloud[2];

    for (int i = 0; i < 2; i++)
        cloud[i] = sherd_require_grad(
            sherd_constant_on(layout_of(mesh, 2, shape[i], "S(0)", NULL), SHERD_F64, 1), true);
    sherd_tensor *y = sherd_radius_search(cloud[0], cloud[1], 1, 4, &index, &counts);
    CHECK_EQ(sherd_item(sherd_sum(sherd_cast(counts, SHERD_F64))), 0);
    CHECK_EQ(sherd_item(sherd_sum(sherd_cast(index, SHERD_F64))), -7 * 4);
    sherd_backward(sherd_sum(y));
    for (int i = 0; i < 2; i++) {
        CHECK(sherd_grad(cloud[i]) && sherd_grad(cloud[i])->layout == cloud[i]->layout);
        CHECK_EQ(sherd_item(sherd_sum(sherd_abs(sherd_grad(cloud[i])))), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The squares of the forces of exp(-k d^2), where each point is the nearest to itself (in[0]: k). */
static sherd_tensor *forces(sherd_tensor *const *in, int count, void *payload)
{
    sherd_tensor *d = search(payload, in[1], in[1]).distances, *force = NULL, *x = in[1];
    sherd_tensor *energy = sherd_sum(sherd_exp(sherd_neg(sherd_mul(in[0], sherd_mul(d, d)))));

    (void)count;
    sherd_gradients(&force, &x, 1, &energy, 1, &(sherd_gradients_options){.create_graph = true});
    return sherd_sum(sherd_mul(force, force));
}

static void forces_between_points_have_gradients(sherd_world *world)
{
    static const int64_t shape[] = {6, 2};
    const sherd_layout *rows = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);

    for (int i = 0; i < 8; i++) {
        scene s = {
            world, 11, shape[0], shape[0], shape[1], 4, i / 2 % 2 ? 0.7 : -1, {{i < 4 ? 0 : 1.6}}};
        double k = 0.7;
        sherd_scope_begin(world);
        sherd_tensor *x = draw_cloud(&s, s.n, false);
        sherd_tensor *in[] = {sherd_mark_equal(sherd_from_data(world, SHERD_F64, NULL, 0, &k)),
                              i % 2 ? sherd_distribute(x, rows, -1) : x};
        for (int j = 0; j < 2; j++)
            in[j] = sherd_require_grad(in[j], true);
        if (!CHECK_OK(sherd_check_gradients(forces, in, 2, &(sherd_check_options){.payload = &s})))
            fprintf(stderr, "  way %d: %s\n", i, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- what travels ---------------------------------------------------------------------------- */

/* As many queries as points: pieces go around, each rank receives every point that it lacks once,
 * in p - 1 calls. */
static void pieces_go_around(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    scene s = {world, 3, 240, 240, 3, 8, -1, {{0}}};
    const int64_t shape[] = {240, 3};
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_layout *layout = layout_of(mesh_of(world, text), 2, shape, "S(0)", NULL);
    sherd_tensor *p = sherd_distribute(draw_cloud(&s, s.n, false), layout, -1);
    sherd_tensor *q = sherd_distribute(draw_cloud(&s, s.m, false), layout, -1);
    sherd_comm_reset(world);
    search(&s, p, q);
    CHECK_EQ(sherd_comm_calls(world, NULL), ranks - 1);
    int64_t received = 0;
    for (int i = 0; i < sherd_comm_count(world); i++)
        received += sherd_comm_get(world, i).bytes_received;
    CHECK_EQ(received, (240 - 240 / ranks) * 3 * 8);
    CHECK_OK(sherd_world_check(world));
}

/* Few queries of many points: they go to the points, in three calls, and no point moves. */
static void few_queries_go_to_the_points(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    scene s = {world, 3, 2400, 24, 3, 2, -1, {{0}}};
    const int64_t shape[2][2] = {{2400, 3}, {24, 3}};
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_tensor *cloud[2] = {draw_cloud(&s, s.n, false), draw_cloud(&s, s.m, false)};
    sherd_tensor *p = sherd_distribute(cloud[0], layout_of(mesh, 2, shape[0], "S(0)", NULL), -1);
    sherd_tensor *q = sherd_distribute(cloud[1], layout_of(mesh, 2, shape[1], "S(0)", NULL), -1);
    answer want = search(&s, cloud[0], cloud[1]);
    sherd_comm_reset(world);
    answer got = search(&s, p, q);
    int64_t received = 0, rows = 24 - 24 / ranks;
    for (int i = 0; i < sherd_comm_count(world); i++)
        received += sherd_comm_get(world, i).bytes_received;
    CHECK_EQ(received, rows * 3 * 8 + (ranks - 1) * (24 / ranks) * 2 * (8 + 4));
    CHECK_EQ(count_different(got.distances, want.distances), 0);
    CHECK_OK(sherd_world_check(world));
}

/* What a search takes beside its own piece and the results: another piece, and in f64 with its tree
 * what it looks at. */
static void no_more_than_two_pieces_are_there(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    scene s = {world, 3, 24000, 24000, 3, 1, -1, {{0}}};
    const int64_t shape[] = {24000, 3}, piece = 24000 / ranks * 3 * (int64_t)sizeof(double);
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_layout *layout = layout_of(mesh_of(world, text), 2, shape, "S(0)", NULL);
    sherd_tensor *p = sherd_distribute(draw_cloud(&s, s.n, false), layout, -1);
    sherd_tensor *q = sherd_distribute(draw_cloud(&s, s.m, false), layout, -1);
    int64_t before = sherd_world_memory(world).live_bytes;
    sherd_world_memory_reset(world);
    search(&s, p, q);
    /* queries in f64, a piece, a piece in f64, its indices, boxes, squares and distances and
     * indices */
    CHECK(sherd_world_memory(world).peak_bytes - before < 6 * piece);
    CHECK_OK(sherd_world_check(world));
}

/* ---- lack of memory -------------------------------------------------------------------------- */

static void both_searches(sherd_world *world)
{
    static const int64_t shape[3][2] = {{60, 3}, {16, 3}, {30, 3}};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout[3] = {NULL, NULL, NULL};
    sherd_status status = sherd_mesh_parse(&mesh, world, "2");
    sherd_tensor *cloud[3], *index, *counts;

    sherd_scope_begin(world);
    for (int i = 0; i < 3 && !status; i++)
        status = sherd_layout_parse_placements(&layout[i], mesh, 2, shape[i], "S(0)", NULL);
    if (status) {
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    } else {
        for (int i = 0; i < 3; i++)
            cloud[i] = sherd_require_grad(sherd_constant_on(layout[i], SHERD_F64, i), true);
        sherd_backward(sherd_sum(sherd_knn(cloud[0], cloud[1], 2, &index)));
        sherd_radius_search(cloud[2], cloud[0], 2.5, 3, &index, &counts);
    }
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, both_searches);
}

static const check_test tests[] = {
    {TEST(plain_is_the_naive_search), {1}},
    {TEST(what_is_no_number_is_behind), {1}},
    {TEST(lattices_have_no_ends), {1, 2, 3, 4, 8}},
    {TEST(other_dtypes_are_rounded_f64), {1}},
    {TEST(gradients_are_differences), {1}},
    {TEST(every_layout_is_bit_equal), {1, 2, 3, 4, 8}},
    {TEST(all_combinations_of_shards), {2, 4}},
    {TEST(equal_points_come_in_order), {1, 3, 4}},
    {TEST(near_points_pull_as_they_lie), {1, 2, 4}},
    {TEST(nothing_is_near_no_points), {1, 2}},
    {TEST(forces_between_points_have_gradients), {1, 2, 3}},
    {TEST(pieces_go_around), {2, 3, 4}},
    {TEST(few_queries_go_to_the_points), {2, 3, 4}},
    {TEST(no_more_than_two_pieces_are_there), {1, 2, 4}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
