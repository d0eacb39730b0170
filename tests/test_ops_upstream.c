/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch's own tests try on tensors: every move on one axis with the calls that it makes
 * forward and backward and where its gradient lies (test_redistribute.py), and pieces, wholes and
 * parts of a mesh (test_dtensor.py). Sizes are those of the tests: even, with a short last shard,
 * with none.
 */
#include <math.h>

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "tensors.h"

#define SHAPE(...)    \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

/* How many calls of a kind; of "" there are none at all. */
static bool calls_are(sherd_world *world, const char *op, int64_t calls)
{
    sherd_comm_filter filter = {.op = op};

    if (sherd_world_ranks(world) == 1)
        calls = 0;
    bool good = CHECK_EQ(sherd_comm_calls(world, NULL), op[0] ? calls : 0);
    return good && (!op[0] || CHECK_EQ(sherd_comm_calls(world, &filter), calls));
}

static const char *placements(sherd_tensor *t)
{
    return sherd_tensor_layout(t) ? sherd_layout_placements(sherd_tensor_layout(t)) : "plain";
}

/* A leaf that holds its indices, or its addends of them. */
static sherd_tensor *leaf_on(const sherd_layout *layout)
{
    return sherd_require_grad(indices_on(layout, SHERD_F32), true);
}

/* ---- moves ---------------------------------------------------------------------------------- */

typedef struct move_case {
    const char *from, *to;
    const char *forward, *backward; /* the one call of each */
    const char *gradient;           /* where that of the source lies */
    int dims;                       /* bits: 1 = cases that shard dim 0, 2 = dim 1 */
} move_case;

static const move_case moves[] = {
    {"S(0)", "R", "all_gather", "", "S(0)", 1}, /* A1 */
    {"S(1)", "R", "all_gather", "", "S(1)", 2},
    {"R", "R", "", "", "R", 3},              /* A2 */
    {"R", "S(0)", "", "all_gather", "R", 1}, /* A4 */
    {"R", "S(1)", "", "all_gather", "R", 2},
    {"P(sum)", "R", "all_reduce", "", "R", 3},                  /* A5 */
    {"P(sum)", "S(0)", "reduce_scatter", "all_gather", "R", 1}, /* A6 */
    {"P(sum)", "S(1)", "reduce_scatter", "all_gather", "R", 2},
};

static const int64_t shapes[][2] = {{12, 3}, {13, 3}, {14, 3}, {3, 12}, {3, 13}, {3, 14}};

static void moved(sherd_world *world, const move_case *c, const int64_t *shape)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *to = layout_of(mesh, 2, shape, c->to, NULL);
    int64_t addends = c->from[0] == 'P' ? sherd_world_ranks(world) : 1;
    sherd_tensor *x = leaf_on(layout_of(mesh, 2, shape, c->from, NULL));
    sherd_tensor *g = indices_on(to, SHERD_F32);

    sherd_comm_reset(world);
    sherd_tensor *y = sherd_redistribute(x, to, NULL);
    bool good = calls_are(world, c->forward, 1);
    good &= CHECK_EQ(count_wrong(y, addends), 0);
    sherd_comm_reset(world);
    sherd_backward_with(&y, &g, 1, NULL);
    g = sherd_grad(x);
    good &= calls_are(world, c->backward, 1);
    good &= CHECK_EQ(count_wrong(g, 1), 0);
    CHECK_TEXT(placements(g), c->gradient);
    if (!good)
        fprintf(stderr, "  [%d,%d] %s to %s\n", (int)shape[0], (int)shape[1], c->from, c->to);
}

static void one_axis_moves_as_in_pytorch(sherd_world *world)
{
    for (int i = 0; i < LEN(moves); i++)
        for (int s = 0; s < LEN(shapes); s++)
            if (moves[i].dims & (s < 3 ? 1 : 2))
                moved(world, &moves[i], shapes[s]);
    CHECK_OK(sherd_world_check(world));
}

/* A13, A12: from one dim to another each element travels once; PyTorch gathers on a CPU. */
static void shards_go_from_dim_to_dim_in_one_exchange(sherd_world *world)
{
    static const struct {
        int ndim;
        int64_t shape[3];
    } cases[] = {{2, {8, 8}}, {3, {8, 8, 8}}, {2, {8, 5}}, {2, {5, 8}}, {2, {5, 5}}};
    const sherd_mesh *mesh = line(world);

    for (int i = 0; i < 2 * LEN(cases); i++) {
        int ndim = cases[i / 2].ndim;
        const int64_t *shape = cases[i / 2].shape;
        const sherd_layout *rows = layout_of(mesh, ndim, shape, "S(0)", NULL);
        const sherd_layout *columns = layout_of(mesh, ndim, shape, "S(1)", NULL);
        const sherd_layout *to = NULL;
        sherd_tensor *x = leaf_on(i % 2 ? columns : rows), *y;
        sherd_comm_reset(world);
        sherd_placement p = sherd_shard((i % 2 ? 0 : 1) - ndim); /* -1 is the last dim */
        CHECK_OK(sherd_layout_create(&to, mesh, ndim, shape, &p, NULL));
        CHECK(to == (i % 2 ? rows : columns));
        y = sherd_redistribute(x, to, NULL);
        calls_are(world, "all_to_all", 1);
        CHECK_EQ(count_wrong(y, 1), 0);
        sherd_comm_reset(world);
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        CHECK(sherd_tensor_layout(sherd_grad(x)) == sherd_tensor_layout(x));
        calls_are(world, "all_to_all", 1);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A3: nothing happens to a sum that stays pending, nor to its gradient. */
static void a_sum_that_stays_pending_stays_as_it_is(sherd_world *world)
{
    const sherd_layout *sum = layout_of(line(world), 2, SHAPE(12, 3), "P(sum)", NULL);
    sherd_tensor *x = leaf_on(sum), *g = indices_on(sum, SHERD_F32);
    sherd_tensor *y = sherd_redistribute(x, sum, NULL);

    sherd_comm_reset(world);
    CHECK(y == x);
    y = sherd_scale(x, 2);
    CHECK_TEXT(placements(y), "P(sum)");
    sherd_backward_with(&y, &g, 1, NULL);
    CHECK_EQ(sherd_comm_calls(world, NULL), 0);
    CHECK_TEXT(placements(sherd_grad(x)), "R");
    CHECK_OK(sherd_world_check(world));
}

/* A7: what the ranks make of a replica is added up where that is said; once, when it is asked
 * for. */
static void gradients_of_pieces_may_be_sums(sherd_world *world)
{
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    const sherd_layout *whole = layout_of(line(world), 2, SHAPE(12, 3), "R", NULL);
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(whole, SHERD_F32, 1), true);
    sherd_tensor *y = sherd_to_local_with(sherd_redistribute(x, whole, NULL), &sum);

    sherd_comm_reset(world);
    sherd_backward(sherd_sum(y));
    CHECK_EQ(sherd_comm_calls(world, NULL), 0);
    const float *g = sherd_tensor_read(sherd_grad(x));
    for (int i = 0; g && i < 36; i++)
        CHECK_EQ(g[i], sherd_world_ranks(world));
    calls_are(world, "all_reduce", 1);
    CHECK_OK(sherd_world_check(world));
}

/* H7, H8: gathered forward, and the gradients of all ranks scattered backward: each element W
 * times. */
static void a_whole_that_all_use_gets_the_sum_of_its_gradients(sherd_world *world)
{
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    const sherd_layout *rows = layout_of(line(world), 2, SHAPE(8, 3), "S(0)", NULL);

    for (int way = 0; way < 2; way++) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(rows, SHERD_F32, 1), true), *y;
        sherd_comm_reset(world);
        y = way ? sherd_full_with(x, &sum)
                : sherd_to_local_with(sherd_redistribute_to(x, "R", NULL), &sum);
        calls_are(world, "all_gather", 1);
        sherd_comm_reset(world);
        sherd_backward(sherd_sum(y));
        sherd_tensor *g = sherd_grad(x);
        calls_are(world, "reduce_scatter", 1);
        CHECK(sherd_tensor_layout(g) == rows);
        CHECK_EQ(sherd_item(sherd_sum(g)), 24 * sherd_world_ranks(world));
    }
    CHECK_OK(sherd_world_check(world));
}

/* A15: an axis of one rank costs nothing, whatever it does on both sides. */
static void an_axis_of_one_rank_is_only_named_anew(sherd_world *world)
{
    static const char *const from[] = {"S(1)", "R", "P(sum)"}, *const to[] = {"S(0)", "S(1)", "R"};
    char text[32];

    snprintf(text, sizeof text, "x=%d,y=1", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    for (int i = 0; i < LEN(from) * LEN(to); i++) {
        snprintf(text, sizeof text, "S(0)%s", from[i / LEN(to)]);
        sherd_tensor *x = leaf_on(layout_of(mesh, 2, SHAPE(16, 8), text, NULL));
        snprintf(text, sizeof text, "S(0)%s", to[i % LEN(to)]);
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_redistribute_to(x, text, NULL);
        CHECK_EQ(count_wrong(y, 1), 0);
        CHECK_EQ(sherd_comm_calls(world, NULL), 0);
        CHECK(sherd_tensor_layout(y) == layout_of(mesh, 2, SHAPE(16, 8), text, NULL));
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* H1, H2, H3, H6: the shape of the whole is what the pieces add up to, on any mesh. */
static void pieces_add_up_on_any_mesh(sherd_world *world)
{
    static const struct {
        const char *mesh;
        int ndim;
        sherd_placement p[3];
        int64_t whole[3]; /* of pieces of 3 in each dim */
    } cases[] = {
        {"x=8", 2, {{SHERD_SHARD, 0, 0}}, {24, 3}},
        {"x=8", 2, {{SHERD_SHARD, -1, 0}}, {3, 24}},
        {"x=8", 2, {{SHERD_REPLICATE, 0, 0}}, {3, 3}},
        {"x=8", 2, {{SHERD_PARTIAL, 0, SHERD_SUM}}, {3, 3}},
        {"x=2,y=4", 2, {{SHERD_SHARD, 0, 0}, {SHERD_SHARD, 1, 0}}, {6, 12}},
        {"x=2,y=4", 2, {{SHERD_SHARD, 0, 0}, {SHERD_SHARD, 0, 0}}, {24, 3}},
        {"x=2,y=2,z=2",
         3,
         {{SHERD_SHARD, 0, 0}, {SHERD_SHARD, 1, 0}, {SHERD_SHARD, 2, 0}},
         {6, 6, 6}},
        {"x=2,y=2,z=2",
         3,
         {{SHERD_SHARD, 0, 0}, {SHERD_SHARD, 0, 0}, {SHERD_SHARD, 2, 0}},
         {12, 3, 6}},
    };

    for (int i = 0; i < LEN(cases); i++) {
        const sherd_mesh *mesh = mesh_of(world, cases[i].mesh);
        sherd_tensor *piece = sherd_constant(world, SHERD_F32, SHAPE(3, 3, 3), cases[i].ndim, 1);
        sherd_tensor *t = sherd_from_local(piece, mesh, cases[i].p,
                                           &(sherd_from_local_options){.mode = SHERD_FROM_INFER});
        for (int d = 0; d < cases[i].ndim; d++)
            CHECK_EQ(sherd_tensor_shape(t)[d], cases[i].whole[d]);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * H4, H5: strides are this rank's own affair, and rows may be of any number: W + 1 of them are as
 * many as the chunk rule says; where PyTorch infers, ranks disagree.
 */
static void pieces_of_any_stride_and_number_of_rows(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_placement rows = sherd_shard(0);
    int64_t ranks = sherd_world_ranks(world), shape[2] = {ranks + 1, 8};
    const sherd_layout *layout = layout_of(mesh, 2, shape, "S(0)", NULL);
    sherd_tensor *mine = sherd_to_local(indices_on(layout, SHERD_F32));
    sherd_tensor *turned = sherd_contiguous(sherd_transpose(mine, 0, 1));

    turned = sherd_transpose(turned, 0, 1); /* columns lie together */
    for (int way = 0; way < 2; way++) {
        sherd_from_local_options o = {.mode = way ? SHERD_FROM_INFER : SHERD_FROM_CHUNK,
                                      .shape = way ? NULL : shape};
        sherd_tensor *t = sherd_from_local(turned, mesh, &rows, &o);
        CHECK(sherd_tensor_layout(t) == layout);
        CHECK_EQ(count_wrong(t, 1), 0);
        CHECK_EQ(count_wrong(sherd_redistribute_to(t, "S(1)", NULL), 1), 0);
        const int64_t n = sherd_tensor_count(sherd_full(t));
        CHECK_EQ(n, 8 * (ranks + 1));
    }
    CHECK_OK(sherd_world_check(world));
}

/* H10: a result in flight is passed on by a view; arithmetic waits for it by itself. */
static void what_is_in_flight_is_waited_for_by_who_needs_it(sherd_world *world)
{
    const sherd_layout *rows = layout_of(line(world), 2, SHAPE(13, 3), "S(0)", NULL);
    const sherd_redistribute_options begin = {.begin = true};
    sherd_tensor *y = sherd_redistribute_to(indices_on(rows, SHERD_F32), "R", &begin);
    sherd_tensor *flat = sherd_view(y, SHAPE(39), 1);

    CHECK_EQ(count_wrong(sherd_scale(flat, 1), 1), 0);
    CHECK(sherd_is_ready(y));
    y = sherd_redistribute_to(indices_on(rows, SHERD_F32), "R", &begin);
    CHECK(sherd_wait(y) == y && sherd_is_ready(y));
    CHECK_EQ(count_wrong(y, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

/* H11: on ranks 0 and 2 of 4; the others call, and have nothing. */
static void a_mesh_of_some_ranks_leaves_the_others_out(sherd_world *world)
{
    const int64_t two = 2;
    const int members[] = {0, 2};
    const char *const names[] = {"x"};
    const sherd_mesh *mesh = NULL;
    const sherd_placement rows = sherd_shard(0);
    bool member = sherd_world_rank(world) % 2 == 0;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &two, names, members));
    sherd_tensor *t = sherd_from_local(sherd_constant(world, SHERD_F32, SHAPE(3, 4), 2, 1), mesh,
                                       &rows, &(sherd_from_local_options){.shape = SHAPE(6, 4)});
    CHECK_EQ(sherd_tensor_shape(t)[0], 6);
    CHECK_EQ(sherd_tensor_size(t, 0), member ? 3 : 0);
    t = sherd_add_scalar(t, 2);
    sherd_tensor *whole = sherd_redistribute_to(t, "R", NULL);
    CHECK_EQ(sherd_tensor_size(whole, 0), member ? 6 : 0);
    const float *data = sherd_tensor_read(whole);
    for (int i = 0; member && data && i < 24; i++)
        CHECK_EQ(data[i], 3);
    sherd_tensor *sum = sherd_sum(t), *same = sherd_all(sherd_eq(t, t), NULL, 0, false);
    double total = sherd_item(sum), equal = sherd_item(same);
    CHECK(member ? total == 72 && equal == 1 : isnan(total) && isnan(equal));
    CHECK_OK(sherd_world_check(world));
}

/* H12: a layout is what was said when it was made, and equal ones are one, whatever data lies in
 * them. */
static void placements_that_change_later_change_nothing(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_placement p[1] = {sherd_shard(0)};
    int64_t shape[2] = {3 * sherd_world_ranks(world), 3};
    sherd_from_local_options o = {.shape = shape};
    sherd_tensor *a =
        sherd_from_local(sherd_constant(world, SHERD_F32, SHAPE(3, 3), 2, 1), mesh, p, &o);
    sherd_tensor *b =
        sherd_from_local(sherd_constant(world, SHERD_F64, SHAPE(3, 3), 2, 7), mesh, p, &o);

    p[0] = sherd_replicate();
    shape[0] = 1;
    CHECK_TEXT(placements(a), "S(0)");
    CHECK(sherd_tensor_layout(a) == sherd_tensor_layout(b));
    CHECK_EQ(sherd_tensor_shape(a)[0], 3 * sherd_world_ranks(world));
    CHECK_OK(sherd_world_check(world));
}

/* H13: what is equal on all ranks stands beside shards without a word: constants, scalars, and what
 * is marked. */
static void what_is_equal_everywhere_is_replicated_by_itself(sherd_world *world)
{
    const sherd_layout *rows = layout_of(line(world), 2, SHAPE(13, 3), "S(0)", NULL);
    const float data[3] = {1, 2, 3};
    sherd_tensor *t = indices_on(rows, SHERD_F32);
    sherd_tensor *plain[] = {
        sherd_constant(world, SHERD_F32, SHAPE(3), 1, 0),
        sherd_constant(world, SHERD_F32, NULL, 0, 0),
        sherd_scale(sherd_mark_equal(sherd_from_data(world, SHERD_F32, SHAPE(3), 1, data)), 0)};

    sherd_comm_reset(world);
    for (int i = 0; i < LEN(plain); i++) {
        sherd_tensor *y = sherd_add(t, plain[i]);
        CHECK(sherd_tensor_layout(y) == rows);
        CHECK_EQ(count_wrong(y, 1), 0);
    }
    CHECK_EQ(sherd_comm_calls(world, NULL), 0);
    CHECK_OK(sherd_world_check(world));
}

/* H15: boxes are those of the chunk rule, data is that of the rank that is named, and one round
 * brings it. */
static void one_rank_spreads_what_it_has(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);

    for (int s = 0; s < 2 * LEN(shapes); s++)
        for (int root = -1; root<ranks; root += ranks> 2 ? 2 : 1) {
            const int64_t *shape = shapes[s / 2];
            sherd_tensor *t = rank == root || root < 0
                                  ? indices_plain(world, SHERD_F32, 2, shape)
                                  : sherd_constant(world, SHERD_F32, shape, 2, -1);
            if (root < 0)
                sherd_mark_equal(t);
            sherd_comm_reset(world);
            sherd_tensor *y = sherd_distribute_as(t, mesh, s % 2 ? "S(1)" : "S(0)", root);
            CHECK(sherd_comm_calls(world, NULL) == (root >= 0 && ranks > 1));
            CHECK_EQ(count_wrong(y, 1), 0);
            int64_t n = shape[s % 2], chunk = (n + ranks - 1) / ranks, left = n - chunk * rank;
            CHECK_EQ(sherd_tensor_size(y, s % 2), left < 0 ? 0 : left < chunk ? left : chunk);
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(one_axis_moves_as_in_pytorch), {1, 2, 3, 4, 8}},
    {TEST(shards_go_from_dim_to_dim_in_one_exchange), {1, 2, 3, 4}},
    {TEST(a_sum_that_stays_pending_stays_as_it_is), {2, 4}},
    {TEST(gradients_of_pieces_may_be_sums), {1, 2, 3, 4}},
    {TEST(a_whole_that_all_use_gets_the_sum_of_its_gradients), {1, 2, 3, 4}},
    {TEST(an_axis_of_one_rank_is_only_named_anew), {1, 2, 3, 4}},
    {TEST(pieces_add_up_on_any_mesh), {8}},
    {TEST(pieces_of_any_stride_and_number_of_rows), {1, 2, 3, 4, 8}},
    {TEST(what_is_in_flight_is_waited_for_by_who_needs_it), {1, 2, 3, 4}},
    {TEST(a_mesh_of_some_ranks_leaves_the_others_out), {4}},
    {TEST(placements_that_change_later_change_nothing), {1, 2, 3}},
    {TEST(what_is_equal_everywhere_is_replicated_by_itself), {1, 2, 3, 4}},
    {TEST(one_rank_spreads_what_it_has), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
