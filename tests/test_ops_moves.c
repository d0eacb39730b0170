/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the recorded moves: redistribute, from_local, to_local, full; and what a plain
 * tensor remembers. */
#include "ops_cases.h"

static const op_case matrix = {.name = "moves", .operands = 1, .ndim = {2}, .shape = {{5, 3}}};

static double weight_at(int64_t i)
{
    return value_at(41, i);
}

/* Elements of a distributed tensor of the matrix's shape that differ from `factor` times their
 * weights. */
static int64_t count_wrong(sherd_tensor *t, double factor)
{
    sherd_tensor *whole = sherd_full(t);
    const double *x = sherd_tensor_failed(whole) ? NULL : sherd_tensor_read(whole);
    int64_t wrong = x ? 0 : 1;

    for (int64_t i = 0; x && i < 15; i++)
        wrong += fabs(x[i] - factor * weight_at(i)) > 1e-12;
    return wrong;
}

static sherd_tensor *weights(sherd_world *world)
{
    double w[15];

    for (int i = 0; i < 15; i++)
        w[i] = weight_at(i);
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, matrix.shape[0], 2, w));
}

/* Whether a tensor may be moved so: what is pending in `to` is pending in `from`. */
static bool movable(const sherd_layout *from, const sherd_layout *to)
{
    return (to->pending_axes & ~from->pending_axes) == 0;
}

/* Of a leaf and of a tensor that is none. */
static void redistributed_gradients_come_back(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    int n = layouts_of(mesh, &matrix, 0);

    for (int pair = 0; pair < n * n; pair++) {
        const sherd_layout *from = layout_number(mesh, &matrix, 0, pair % n), *settled;
        const sherd_layout *to = layout_number(mesh, &matrix, 0, pair / n);
        if (!movable(from, to))
            continue;
        sherd_scope_begin(world);
        sherd_tensor *leaf = sherd_require_grad(place(&matrix, 0, from), true);
        sherd_redistribute_options options = {.begin = pair % 2};
        sherd_tensor *a = sherd_redistribute(leaf, to, &options);
        sherd_tensor *b = sherd_redistribute(sherd_scale(leaf, 2), to, NULL);
        sherd_backward(sherd_sum(sherd_mul(sherd_add(a, b), weights(world))));
        sherd_tensor *g = sherd_grad(leaf);
        CHECK_OK(sherd__layout_settle(&settled, from));
        if (CHECK(g != NULL)) {
            CHECK(g->layout == settled);
            if (!CHECK_EQ(count_wrong(g, 3), 0))
                fprintf(stderr, "  %s to %s\n", sherd_layout_text(from), sherd_layout_text(to));
        }
        sherd_scope_end(world);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* Place of each axis in the list of its dim, as sherd_from_local takes it. */
static void order_of(const sherd_layout *l, int *order)
{
    for (int a = 0; a < SHERD_MAX_AXES; a++)
        order[a] = 0;
    for (int d = 0; d < l->spec.ndim; d++)
        for (int i = 0; i < l->spec.dim[d].axes; i++)
            order[l->spec.dim[d].axis[i]] = i;
}

/* Every rank's piece gets its piece of the gradient, an addend of a pending sum the whole of it. */
static void local_pieces_get_their_gradients(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < layouts_of(mesh, &matrix, 0); i++) {
        const sherd_layout *l = layout_number(mesh, &matrix, 0, i), *settled;
        sherd_placement placements[SHERD_MAX_AXES];
        int order[SHERD_MAX_AXES];
        order_of(l, order);
        for (int a = 0; a < sherd_mesh_axes(mesh); a++)
            placements[a] = sherd_layout_placement(l, a);
        sherd_scope_begin(world);
        /* Out with to_local, which remembers the cuts, and in again without them. */
        sherd_tensor *local = sherd_to_local(place(&matrix, 0, l));
        CHECK(local->was == l);
        sherd_require_grad(local, true);
        sherd_tensor *t =
            sherd_from_local(local, mesh, placements, &(sherd_from_local_options){.order = order});
        if (CHECK(t->layout == l)) {
            sherd_backward(sherd_sum(sherd_mul(t, weights(world))));
            sherd_tensor *g = sherd_grad(local);
            CHECK_OK(sherd__layout_settle(&settled, l));
            if (CHECK(g && !g->layout))
                CHECK_EQ(count_wrong(sherd__global_view(g, settled, "test"), 1), 0);
        }
        sherd_scope_end(world);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* The gradient of a local piece is taken for the piece of the layout that the tensor had; of the
 * whole for the whole. */
static void gradients_of_local_and_full_are_pieces(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < layouts_of(mesh, &matrix, 0); i++) {
        const sherd_layout *l = layout_number(mesh, &matrix, 0, i), *settled;
        sherd_scope_begin(world);
        sherd_tensor *leaf = sherd_require_grad(place(&matrix, 0, l), true);
        CHECK_OK(sherd__layout_settle(&settled, l));
        sherd_tensor *w = sherd_to_local(sherd_distribute(weights(world), settled, -1));
        sherd_backward(sherd_sum(sherd_mul(sherd_to_local(leaf), w)));
        sherd_tensor *g = sherd_grad(leaf);
        if (CHECK(g != NULL))
            CHECK_EQ(count_wrong(g, 1), 0);
        sherd_clear_grad(leaf);

        sherd_tensor *whole = sherd_full(leaf);
        CHECK(!whole->layout && whole->varies == 0);
        sherd_backward(sherd_sum(sherd_mul(whole, weights(world))));
        g = sherd_grad(leaf);
        if (CHECK(g != NULL)) {
            CHECK(g->layout == settled);
            CHECK_EQ(count_wrong(g, 1), 0);
        }
        sherd_scope_end(world);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* A plain parameter beside distributed data counts as replicated, and gets a plain gradient, whole
 * on every rank. */
static void promoted_leaves_get_plain_gradients(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    int n = layouts_of(mesh, &matrix, 0);

    for (int i = 0; i < n; i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = place(&matrix, 0, layout_number(mesh, &matrix, 0, i));
        sherd_tensor *w = sherd_require_grad(weights(world), true);
        sherd_backward(sherd_sum(sherd_mul(x, w)));
        sherd_tensor *g = sherd_grad(w);
        if (CHECK(g && !g->layout && g->varies == 0)) {
            const double *got = sherd_tensor_read(g);
            for (int64_t e = 0; got && e < 15; e++)
                CHECK_NEAR(got[e], value_at(0, e), 1e-12);
        }
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A leaf gets the gradient as it came, and whoever asks for it settles it; but none that is larger
 * than the leaf. */
static void a_leaf_keeps_what_is_no_larger(sherd_world *world)
{
    static const char *const lies[][2] = {{"R", "P(sum)"}, {"S(0)", "S(0)"}};
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *whole = NULL, *x_layout = NULL;

    CHECK_OK(sherd_layout_parse_placements(&whole, mesh, 2, matrix.shape[0], "R", NULL));
    CHECK_OK(sherd_layout_parse_placements(&x_layout, mesh, 2, (int64_t[]){6, 5}, "S(0)", NULL));
    for (int i = 0; i < LEN(lies); i++) {
        const sherd_layout *layout = NULL;
        CHECK_OK(
            sherd_layout_parse_placements(&layout, mesh, 2, matrix.shape[0], lies[i][0], NULL));
        sherd_tensor *leaf = sherd_require_grad(place(&matrix, 0, layout), true);
        sherd_tensor *x = sherd_constant_on(x_layout, SHERD_F64, 1);
        sherd_backward(sherd_sum(sherd_matmul(x, sherd_redistribute(leaf, whole, NULL))));
        sherd_tensor *raw = sherd__raw_grad(leaf);
        if (CHECK(raw != NULL))
            CHECK_TEXT(sherd_layout_placements(raw->layout), lies[i][1]);
        sherd_tensor *g = sherd_grad(leaf);
        if (CHECK(g != NULL))
            CHECK(g->layout == layout);
        const double *data = g ? sherd_tensor_read(g) : NULL;
        for (int64_t e = 0; data && e < g->count; e++)
            CHECK_NEAR(data[e], 6, 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The mesh has ranks 1 and 2. The others go along, and their plain leaves have gradients of the
 * same shapes. */
static void a_rank_outside_of_the_mesh_gets_zeroes(sherd_world *world)
{
    const int64_t two = 2, rows[] = {4, 3}, piece[] = {2, 3};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    bool inside = sherd_world_rank(world) == 1 || sherd_world_rank(world) == 2;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &two, NULL, (const int[]){1, 2}));
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, rows, "S(0)", NULL));
    sherd_tensor *bias = sherd_require_grad(sherd_constant(world, SHERD_F64, &rows[1], 1, 1), true);
    sherd_tensor *mine = sherd_require_grad(sherd_constant(world, SHERD_F64, piece, 2, 1), true);
    sherd_placement s = sherd_shard(0);
    sherd_tensor *x = sherd_from_local(mine, mesh, &s, &(sherd_from_local_options){.shape = rows});
    sherd_tensor *y = sherd_add(sherd_add(x, bias), sherd_constant_on(layout, SHERD_F64, 1));
    sherd_backward(sherd_sum(y));
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *of_bias = sherd_grad(bias), *of_mine = sherd_grad(mine);
    if (CHECK(of_bias && of_mine)) {
        CHECK_TEXT(sherd_tensor_text(of_bias), "f64[3]");
        CHECK_TEXT(sherd_tensor_text(of_mine), "f64[2,3]");
        CHECK_NEAR(((const double *)sherd_tensor_read(of_bias))[0], inside ? 4 : 0, 0);
        CHECK_NEAR(((const double *)sherd_tensor_read(of_mine))[5], inside ? 1 : 0, 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(redistributed_gradients_come_back), {1, 3, 4}},
    {TEST(local_pieces_get_their_gradients), {1, 3, 4}},
    {TEST(gradients_of_local_and_full_are_pieces), {1, 3, 4}},
    {TEST(promoted_leaves_get_plain_gradients), {1, 3, 4}},
    {TEST(a_leaf_keeps_what_is_no_larger), {2, 3}},
    {TEST(a_rank_outside_of_the_mesh_gets_zeroes), {3, 4}},
};
CHECK_MAIN(tests)
