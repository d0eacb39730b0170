/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of sharded tensors: where the cuts go, what moves (only rows on the wrong side of a cut, or
 * an axis that is in the way), what is refused, what shares storage.
 */
#include "ops_cases.h"
#include "tensors.h"
#include "boxes.h"

static const sherd_mesh *line(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

/* Each element holds its global index. */
static sherd_tensor *indices(const sherd_layout *l)
{
    sherd_tensor *t = sherd__new_on(l, SHERD_F64);
    sherd_box box = sherd_tensor_box(t);

    for (int64_t i = 0; i < t->count; i++)
        ((double *)sherd__fresh(t))[i] = (double)global_of(&box, t->shape, i);
    return t;
}

static int64_t wrong_indices(sherd_tensor *t)
{
    sherd_tensor *whole = sherd_full(t);
    const double *x = sherd_tensor_failed(whole) ? NULL : sherd_tensor_read(whole);
    int64_t wrong = x ? 0 : 1;

    for (int64_t i = 0; x && i < sherd_tensor_count(whole); i++)
        wrong += x[i] != (double)i;
    return wrong;
}

static int64_t bytes_received(const sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).bytes_received;
    return n;
}

/* A view on three ranks: from what, to which shape, to what. Bytes that each rank receives on the
 * way. */
typedef struct view_case {
    int ndim;
    int64_t shape[4];
    const char *placements, *cuts;
    int to_ndim;
    int64_t to_shape[4];
    const char *text;
    int64_t bytes[3];
} view_case;

static const view_case view_cases[] = {
    /* heads: 192 columns in granules of 48 */
    {2, {2, 192}, "S(1)", "1:96,96,0", 3, {2, 4, 48}, "[2,4(x),48] on (x=3)", {0}},
    {3, {2, 4, 48}, "S(1)", "1:2,2,0", 2, {2, 192}, "[2,192(x:96,96,0)] on (x=3)", {0}},
    /* default cuts 64, 128 go to 48, 144: 16 columns from each neighbour to the middle */
    {2, {2, 192}, "S(1)", NULL, 3, {2, 4, 48}, "[2,4(x:1,2,1),48] on (x=3)", {0, 512, 0}},
    {1, {6}, "S(0)", NULL, 2, {3, 2}, "[3(x),2] on (x=3)", {0}},
    {1, {6}, "S(0)", "0:1,4,1", 2, {3, 2}, "[3(x:1,2,0),2] on (x=3)", {8, 8, 0}},
    {2, {6, 4}, "S(0)", "0:0,5,1", 1, {24}, "[24(x:0,20,4)] on (x=3)", {0}},
    {2, {6, 4}, "S(0)", NULL, 3, {3, 2, 4}, "[3(x),2,4] on (x=3)", {0}},
    {2, {6, 4}, "S(0)", NULL, 2, {3, 8}, "[3(x),8] on (x=3)", {0}},
    {2, {6, 4}, "S(0)", NULL, 2, {2, 12}, "[2(x:1,0,1),12] on (x=3)", {32, 0, 32}},
    {2, {4, 6}, "S(0)", NULL, 2, {8, 3}, "[8(x:4,4,0),3] on (x=3)", {0}},
    {2, {4, 6}, "S(0)", NULL, 1, {24}, "[24(x:12,12,0)] on (x=3)", {0}},
    /* a dim that is not the outermost of those merged: its axis goes to the outermost, 2 rows of 3
     * columns from others */
    {2, {6, 4}, "S(1)", NULL, 1, {24}, "[24(x)] on (x=3)", {32, 32, 64}},
    {3, {3, 2, 4}, "S(1)", NULL, 2, {6, 4}, "[6,4(x)] on (x=3)", {48, 48, 0}},
    {2, {4, 6}, "S(1)", NULL, 1, {24}, "[24(x:12,12,0)] on (x=3)", {64, 64, 0}},
    /* where that would leave ranks without anything, to a dim that has enough for all, if it is
     * less for the busiest */
    {3, {6, 2, 6}, "S(2)", NULL, 2, {6, 12}, "[6(x),12] on (x=3)", {128, 128, 128}},
    {3, {1, 2, 6}, "S(2)", NULL, 2, {1, 12}, "[1,12(x:6,6,0)] on (x=3)", {32, 32, 0}},
    {3, {3, 2, 4}, "S(1)", NULL, 2, {3, 8}, "[3,8(x:4,4,0)] on (x=3)", {0}},
    {3, {3, 2, 4}, "S(2)", NULL, 2, {6, 4}, "[6,4(x)] on (x=3)", {0}},
    /* dims of size 1 come and go; one that is sharded itself stays so */
    {2, {6, 4}, "S(0)", NULL, 4, {1, 6, 1, 4}, "[1,6(x),1,4] on (x=3)", {0}},
    {4, {1, 6, 1, 4}, "S(1)", NULL, 2, {6, 4}, "[6(x),4] on (x=3)", {0}},
    {2, {1, 4}, "S(0)", "0:0,1,0", 3, {1, 2, 2}, "[1(x:0,1,0),2,2] on (x=3)", {0}},
    {2, {1, 4}, "S(0)", "0:0,1,0", 1, {4}, "[4(x:0,4,0)] on (x=3)", {0}},
    {1, {1}, "S(0)", NULL, 0, {0}, "[] on (x=3)", {0, 8, 8}},
    {1, {1}, "R", NULL, 0, {0}, "[] on (x=3)", {0}},
    {0, {0}, "P(sum)", NULL, 2, {1, 1}, "[1,1] P(sum:x) on (x=3)", {0}},
    {2, {6, 4}, "P(sum)", NULL, 1, {24}, "[24] P(sum:x) on (x=3)", {0}},
    /* no elements */
    {2, {6, 0}, "S(0)", NULL, 2, {0, 5}, "[0,5] on (x=3)", {0}},
    {3, {6, 0, 3}, "S(0)", NULL, 2, {6, 0}, "[6(x),0] on (x=3)", {0}},
    {2, {0, 4}, "S(0)", NULL, 1, {0}, "[0(x)] on (x=3)", {0}},
};

static void cuts_go_where_they_belong(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int i = 0; i < LEN(view_cases); i++) {
        const view_case *c = &view_cases[i];
        const sherd_layout *from = NULL;
        sherd_scope_begin(world);
        CHECK_OK(
            sherd_layout_parse_placements(&from, mesh, c->ndim, c->shape, c->placements, c->cuts));
        sherd_tensor *t = indices(from);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_view(t, c->to_shape, c->to_ndim);
        int64_t received = bytes_received(world);
        CHECK_OK(sherd_world_check(world));
        if (CHECK(!sherd_tensor_failed(y))) {
            CHECK_TEXT(sherd_layout_text(y->layout), c->text);
            if (!CHECK_EQ(received, c->bytes[sherd_world_rank(world)]))
                fprintf(stderr, "  view case %d\n", i);
            if (!(from->pending_axes))
                CHECK_EQ(wrong_indices(y), 0);
            if (c->bytes[0] + c->bytes[1] + c->bytes[2] == 0)
                CHECK(y->storage == t->storage);
        }
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void axes_of_extent_one_are_in_nobodys_way(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *from = NULL;

    CHECK_OK(sherd_layout_parse_placements(&from, mesh, 3, (int64_t[]){3, 2, 4}, "S(1)", NULL));
    sherd_tensor *y = sherd_view(indices(from), (int64_t[]){6, 4}, 2);
    CHECK(!sherd_tensor_failed(y));
    CHECK_EQ(wrong_indices(y), 0);
    CHECK_OK(sherd_world_check(world));
}

static void plain_views_share_and_transposed_ones_copy(sherd_world *world)
{
    double x[24];

    for (int i = 0; i < 24; i++)
        x[i] = i;
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, (int64_t[]){4, 6}, 2, x);
    sherd_tensor *y = sherd_view(t, (int64_t[]){2, -1, 3}, 3);
    CHECK_EQ(y->shape[1], 4);
    CHECK(y->storage == t->storage);
    CHECK(sherd_view(t, (int64_t[]){4, 6}, 2) == t);
    sherd_tensor *turned = sherd_transpose(t, 0, 1);
    CHECK(turned->storage == t->storage);
    CHECK_EQ(((const double *)sherd_tensor_read(turned))[1], 6);
    sherd_tensor *flat = sherd_view(turned, (int64_t[]){24}, 1);
    CHECK(flat->storage != t->storage);
    CHECK_EQ(((const double *)sherd_tensor_read(flat))[1], 6);
    CHECK_EQ(((const double *)sherd_tensor_read(
                 sherd_view(sherd_transpose(turned, 0, -1), (int64_t[]){24}, 1)))[1],
             1);
    CHECK_OK(sherd_world_check(world));
}

static void wrong_shapes_are_refused(sherd_world *world)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F64, (int64_t[]){4, 6}, 2, 0);
    static const int64_t shapes[][2] = {{5, 5}, {-1, -1}, {-2, 12}, {-1, 7}, {0, -1}, {1, 1}};

    for (int i = 0; i < LEN(shapes); i++) {
        CHECK(sherd_tensor_failed(sherd_view(t, shapes[i], 2)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_view: ") != NULL);
        CHECK(strstr(sherd_world_error(world), "a is f64[4,6]") != NULL);
    }
    CHECK(sherd_tensor_failed(sherd_view(t, NULL, 2)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_view(t, shapes[0], SHERD_MAX_DIMS + 1)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_transpose(t, 0, 2)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_transpose(t, -3, 0)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

/* Every axis that is in the way moves, also past explicit cuts, and each keeps its place behind
 * those that were there. */
static void axes_in_the_way_move_together(sherd_world *world)
{
    static const struct {
        int64_t shape[3];
        const char *placements, *cuts;
        int to_ndim;
        int64_t to_shape[2];
        const char *text;
    } c[] = {
        {{4, 6, 5}, "S(0)S(1)", NULL, 2, {24, 5}, "[24(a0,a1),5] on (a0=2,a1=2)"},
        {{4, 6, 5}, "S(1)S(1)", NULL, 2, {24, 5}, "[24(a0,a1),5] on (a0=2,a1=2)"},
        {{4, 6, 5}, "S(1)S(2)", NULL, 1, {120}, "[120(a0,a1)] on (a0=2,a1=2)"},
        {{4, 6, 1}, "S(0)S(1)", "0:1,3", 1, {24}, "[24(a0,a1:6,0,12,6)] on (a0=2,a1=2)"},
        {{4, 6, 5}, "P(sum)S(1)", NULL, 2, {24, 5}, "[24(a1),5] P(sum:a0) on (a0=2,a1=2)"},
        {{1, 1, 5}, "S(0)S(1)", NULL, 1, {5}, "[5(a0,a1:5,0,0,0)] on (a0=2,a1=2)"},
    };
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(c); i++) {
        const sherd_layout *from = NULL;
        CHECK_OK(
            sherd_layout_parse_placements(&from, mesh, 3, c[i].shape, c[i].placements, c[i].cuts));
        sherd_tensor *y = sherd_view(indices(from), c[i].to_shape, c[i].to_ndim);
        if (CHECK(!sherd_tensor_failed(y)))
            CHECK_TEXT(sherd_layout_text(y->layout), c[i].text);
        if (!from->pending_axes)
            CHECK_EQ(wrong_indices(y), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Where each shard of an outer dim is one index or none, an inner dim is sharded by the axes behind:
 * heads of queries lie on ranks that share a head of keys, and nothing is sent. */
static void nested_shards_stay_where_they_are(sherd_world *world)
{
    static const struct {
        int ndim;
        int64_t shape[3];
        const char *placements, *cuts;
        int to_ndim;
        int64_t to_shape[4];
        const char *text;
    } c[] = {
        {1, {8}, "S(0)S(0)", NULL, 2, {2, 4}, "[2(a0),4(a1)] on (a0=2,a1=2)"},
        {2, {2, 4}, "S(0)S(1)", NULL, 1, {8}, "[8(a0,a1)] on (a0=2,a1=2)"},
        {2, {3, 64}, "S(1)S(1)", NULL, 3, {3, 4, 16}, "[3,4(a0,a1),16] on (a0=2,a1=2)"},
        {3, {3, 8, 2}, "S(1)S(1)", NULL, 4, {3, 2, 4, 2}, "[3,2(a0),4(a1),2] on (a0=2,a1=2)"},
        {3, {5, 2, 4}, "S(1)S(2)", NULL, 2, {5, 8}, "[5,8(a0,a1)] on (a0=2,a1=2)"},
        /* uneven, but alike for both */
        {1, {8}, "S(0)S(0)", "0:1,3,1,3", 2, {2, 4}, "[2(a0),4(a1:1,3)] on (a0=2,a1=2)"},
        {2, {2, 4}, "S(0)S(1)", "1:1,3", 1, {8}, "[8(a0,a1:1,3,1,3)] on (a0=2,a1=2)"},
        {1, {8}, "S(0)S(0)", "0:3,5,0,0", 2, {1, 8}, "[1(a0),8(a1:3,5)] on (a0=2,a1=2)"},
        {2, {1, 8}, "S(0)S(1)", NULL, 1, {8}, "[8(a0,a1:4,4,0,0)] on (a0=2,a1=2)"},
        /* the only head is one rank's, not its elements */
        {2, {3, 16}, "S(1)R", "1:16,0", 3, {3, 1, 16}, "[3,1(a0),16] on (a0=2,a1=2)"},
    };
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(c); i++) {
        const sherd_layout *from = NULL;
        CHECK_OK(sherd_layout_parse_placements(&from, mesh, c[i].ndim, c[i].shape, c[i].placements,
                                               c[i].cuts));
        sherd_tensor *t = indices(from);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_view(t, c[i].to_shape, c[i].to_ndim);
        CHECK_EQ(bytes_received(world), 0);
        if (CHECK(!sherd_tensor_failed(y))) {
            CHECK_TEXT(sherd_layout_text(y->layout), c[i].text);
            CHECK(y->storage == t->storage);
        }
        CHECK_EQ(wrong_indices(y), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Axes in the way move to where they nest, or stay with the outer dim: so that the busiest rank
 * receives less. */
static void what_moves_nests_if_that_is_cheaper(sherd_world *world)
{
    static const struct {
        int64_t shape[2];
        const char *placements;
        int to_ndim;
        int64_t to_shape[3];
        const char *text;
        int64_t bytes[4];
    } c[] = {
        {{4, 2}, "S(1)S(1)", 2, {2, 4}, "[2(a0),4(a1)] on (a0=2,a1=2)", {8, 16, 8, 16}},
        {{64, 1}, "S(1)S(0)", 3, {1, 2, 32}, "[1,2(a1,a0),32] on (a0=2,a1=2)", {0}},
    };
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(c); i++) {
        const sherd_layout *from = NULL;
        CHECK_OK(sherd_layout_parse_placements(&from, mesh, 2, c[i].shape, c[i].placements, NULL));
        sherd_tensor *t = indices(from);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_view(t, c[i].to_shape, c[i].to_ndim);
        CHECK_EQ(bytes_received(world), c[i].bytes[sherd_world_rank(world)]);
        if (CHECK(!sherd_tensor_failed(y)))
            CHECK_TEXT(sherd_layout_text(y->layout), c[i].text);
        CHECK_EQ(wrong_indices(y), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A shape, and another one of as many elements. */
typedef struct pair {
    int ndim;
    int64_t shape[4];
    int to_ndim;
    int64_t to_shape[4];
} pair;

static const pair pairs[] = {
    {2, {4, 6}, 1, {24}},         {1, {24}, 2, {4, 6}},
    {1, {8}, 2, {2, 4}},          {2, {2, 4}, 1, {8}},
    {1, {12}, 3, {2, 2, 3}},      {2, {4, 6}, 2, {6, 4}},
    {3, {2, 3, 4}, 2, {6, 4}},    {3, {2, 3, 4}, 2, {2, 12}},
    {3, {2, 3, 4}, 1, {24}},      {3, {2, 3, 4}, 2, {4, 6}},
    {3, {2, 3, 4}, 2, {3, 8}},    {3, {2, 3, 4}, 4, {3, 2, 2, 2}},
    {2, {5, 3}, 1, {15}},         {1, {15}, 2, {3, 5}},
    {2, {5, 3}, 2, {3, 5}},       {2, {1, 6}, 1, {6}},
    {2, {6, 1}, 1, {6}},          {3, {2, 1, 3}, 1, {6}},
    {3, {2, 1, 3}, 2, {3, 2}},    {4, {2, 3, 1, 2}, 2, {6, 2}},
    {4, {2, 3, 1, 2}, 1, {12}},   {4, {2, 3, 2, 2}, 3, {2, 3, 4}},
    {4, {3, 2, 2, 3}, 2, {6, 6}}, {2, {7, 2}, 2, {2, 7}},
    {2, {1, 1}, 1, {1}},          {1, {1}, 0, {0}},
    {2, {1, 1}, 0, {0}},          {0, {0}, 2, {1, 1}},
    {2, {0, 4}, 1, {0}},          {2, {3, 0}, 2, {0, 5}},
    {2, {0, 3}, 2, {0, 5}},       {3, {0, 2, 3}, 3, {0, 2, 0}},
    {3, {2, 3, 0}, 1, {0}},
};

/* Views keep the order of elements: so the i-th is the i-th, of the gradient too. */
static bool is_in_order(sherd_tensor *t, int operand, int64_t n)
{
    double want[MOST_ELEMENTS];

    for (int64_t i = 0; i < n; i++)
        want[i] = value_at(operand, i);
    return CHECK(distance(sherd_full(t), want, n) <= 1e-12);
}

static bool view_is_right(sherd_world *world, const pair *p, sherd_tensor *t)
{
    double weight[MOST_ELEMENTS];
    int64_t n = sherd_tensor_count(t);
    sherd_tensor *y = sherd_view(sherd_require_grad(t, true), p->to_shape, p->to_ndim), *g;

    for (int64_t i = 0; i < n; i++)
        weight[i] = value_at(40, i);
    sherd_tensor *weights =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, p->to_shape, p->to_ndim, weight));
    sherd_backward(sherd_sum(sherd_mul(y, weights)));
    g = sherd_grad(t);
    return is_in_order(y, 0, n) && CHECK(g != NULL) && is_in_order(g, 40, n);
}

static void every_view_of_every_layout_is_in_order(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(pairs); i++) {
        op_case c = {.operands = 1, .ndim = {pairs[i].ndim}};
        memcpy(c.shape[0], pairs[i].shape, sizeof c.shape[0]);
        for (int k = 0; k < layouts_of(mesh, &c, 0); k++) {
            const sherd_layout *layout = layout_number(mesh, &c, 0, k);
            sherd_scope_begin(world);
            if (!view_is_right(world, &pairs[i], place(&c, 0, layout)))
                fprintf(stderr, "  %s to pair %d\n", sherd_layout_text(layout), i);
            sherd_scope_end(world);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "x=3") == SHERD_OK &&
        sherd_layout_parse_placements(&from, mesh, 3, (int64_t[]){6, 2, 6}, "S(2)", "2:1,2,3") ==
            SHERD_OK) {
        sherd_tensor *t = sherd_require_grad(sherd_constant_on(from, SHERD_F64, 1), true);
        sherd_tensor *y = sherd_view(t, (int64_t[]){6, 12}, 2);
        sherd_backward(sherd_sum(sherd_mul(y, y)));
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 1, scene);
}

/* The gradient of a merge may arrive sharded along the merged dim's inside: it is moved to where it
 * can be split. */
static void gradients_of_views_may_lie_otherwise(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *from = NULL, *other = NULL;

    CHECK_OK(sherd_layout_parse_placements(&from, mesh, 2, (int64_t[]){2, 12}, "S(1)", "1:4,4,4"));
    CHECK_OK(sherd_layout_parse_placements(&other, mesh, 3, (int64_t[]){2, 3, 4}, "S(2)", NULL));
    sherd_tensor *t = sherd_require_grad(indices(from), true);
    sherd_tensor *y = sherd_view(t, (int64_t[]){2, 3, 4}, 3);
    sherd_tensor *z = sherd_mul(sherd_redistribute(y, other, NULL), indices(other));
    sherd_backward(sherd_sum(z));
    sherd_tensor *g = sherd_grad(t);
    if (CHECK(g && !sherd_tensor_failed(g))) {
        CHECK(g->layout == from);
        CHECK_EQ(wrong_indices(g), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what shares storage --------------------------------------------------------------------- */

typedef sherd_tensor *(*unary)(sherd_tensor *);

static sherd_tensor *first_columns(sherd_tensor *a)
{
    return sherd_slice(a, 1, 0, 3, 1);
}

static sherd_tensor *every_second_row(sherd_tensor *a)
{
    return sherd_slice(a, 0, 0, 6, 2);
}

static sherd_tensor *turned(sherd_tensor *a)
{
    return sherd_transpose(a, 0, 1);
}

static sherd_tensor *last_rows(sherd_tensor *a)
{
    return sherd_narrow(a, 0, 1, 5);
}

static sherd_tensor *framed(sherd_tensor *a)
{
    sherd_tensor *t = sherd_unsqueeze(sherd_unsqueeze(a, 1), 0);

    return sherd_squeeze(sherd_transpose(t, 0, 2), 2);
}

static sherd_tensor *in_one_dim(sherd_tensor *a)
{
    return sherd_flatten(a, 0, -1);
}

static sherd_tensor *parted(sherd_tensor *a)
{
    return sherd_unsqueeze(sherd_contiguous(a), 0);
}

/*
 * What is written to the operand afterwards shows in the result on all ranks, or on none: also if
 * some ranks have a single row, whose piece is row-major where those of others are strided.
 */
static void storage_is_shared_on_all_ranks_or_none(sherd_world *world)
{
    static const struct {
        unary first;
        bool shares;
    } kinds[] = {{first_columns, false},
                 {every_second_row, false},
                 {turned, false},
                 {last_rows, true},
                 {framed, true}};
    static const unary seconds[] = {sherd_contiguous, in_one_dim, parted};
    static const char *const cuts[] = {"0:1,5", "0:6,0", "0:0,6", "0:3,3"};
    const sherd_mesh *mesh = line(world);
    const int64_t shape[2] = {6, 4};

    for (int c = 0; c < LEN(cuts); c++)
        for (int k = 0; k < LEN(kinds); k++)
            for (int s = 0; s < LEN(seconds); s++) {
                sherd_scope_begin(world);
                sherd_tensor *a =
                    sherd_constant_on(layout_of(mesh, 2, shape, "S(0)", cuts[c]), SHERD_F64, 1);
                /* cuts that a view needs elsewhere would move rows first, and make copies of all */
                sherd_tensor *y = seconds[s](kinds[k].first(a));
                sherd_fill(a, 5);
                sherd_tensor *whole = sherd_full(y);
                const double *x = sherd_tensor_failed(whole) ? NULL : sherd_tensor_read(whole);
                double wanted = kinds[k].shares ? 5 : 1;
                if (kinds[k].first == framed && seconds[s] == in_one_dim)
                    wanted = x ? x[0] : 0;
                for (int64_t i = 0; x && i < sherd_tensor_count(whole); i++)
                    CHECK_EQ(x[i], wanted);
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* What is not row-major is copied once. */
static void a_strided_operand_is_copied_once(sherd_world *world)
{
    static const unary kinds[] = {sherd_contiguous, parted};
    const int64_t shape[2] = {96, 64};
    sherd_tensor *plain = sherd_constant(world, SHERD_F32, shape, 2, 1);
    sherd_tensor *given[] = {
        plain, sherd_distribute(plain, layout_of(line(world), 2, shape, "S(0)", NULL), 0)};

    for (int g = 0; g < LEN(given); g++)
        for (int k = 0; k < LEN(kinds); k++) {
            sherd_scope_begin(world);
            sherd_world_memory_reset(world);
            sherd_tensor *y = kinds[k](turned(given[g]));
            CHECK(!sherd_tensor_failed(y));
            CHECK_EQ(sherd_world_memory(world).peak_bytes, sherd_world_memory(world).live_bytes);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(cuts_go_where_they_belong), {3}},
    {TEST(axes_in_the_way_move_together), {4}},
    {TEST(nested_shards_stay_where_they_are), {4}},
    {TEST(what_moves_nests_if_that_is_cheaper), {4}},
    {TEST(every_view_of_every_layout_is_in_order), {1, 2, 3, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3}},
    {TEST(axes_of_extent_one_are_in_nobodys_way), {1}},
    {TEST(plain_views_share_and_transposed_ones_copy), {1}},
    {TEST(storage_is_shared_on_all_ranks_or_none), {2}},
    {TEST(a_strided_operand_is_copied_once), {1, 2}},
    {TEST(wrong_shapes_are_refused), {1, 2}},
    {TEST(gradients_of_views_may_lie_otherwise), {3}},
};
CHECK_MAIN(tests)
