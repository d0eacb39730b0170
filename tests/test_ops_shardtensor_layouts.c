/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ShardTensor's own tests try on pieces and moves of uneven shards, and what it refuses or
 * gets wrong there: shapes, offsets, cuts, values and gradients; outer dims are smaller than
 * theirs. docs/from_shardtensor.md says which case is where.
 */
#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "tensors.h"

enum { ROUND = 1024 }; /* bytes of the small exchange by which ranks agree, at most */

#define SHAPE(...)    \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }

/* This rank's piece of a layout, plain and without a memory of where it was. */
static sherd_tensor *piece_of(const sherd_layout *layout, sherd_dtype dtype)
{
    sherd_tensor *t = sherd_clone(sherd_to_local(indices_on(layout, dtype)));

    sherd__layout_set(&t->was, NULL);
    return t;
}

static sherd_placement *placements_of(const sherd_layout *layout, sherd_placement *out)
{
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(layout)); a++)
        out[a] = sherd_layout_placement(layout, a);
    return out;
}

/* The text of a layout without its mesh. */
static void check_layout_text(const sherd_layout *layout, const char *want)
{
    char text[256];

    snprintf(text, sizeof text, "%s", layout ? sherd_layout_text(layout) : "plain");
    char *behind = strstr(text, " on ");
    if (behind)
        *behind = '\0';
    CHECK_TEXT(text, want);
}

/* ---- 3A: pieces ------------------------------------------------------------------------------ */

static const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};

/* 1 to 3, 11: the whole is as large as its pieces, and each lies behind those before it. */
static void sizes_and_offsets_follow_from_the_pieces(sherd_world *world)
{
    static const struct {
        int ranks;
        const char *mesh, *placements, *cuts;
        int64_t shape[4], offset[8][2]; /* of dims 1 and 2 */
    } cases[] = {
        {4, "4", "S(1)", "1:4,10,16,22", {5, 52, 3, 2}, {{0}, {4}, {14}, {30}}},
        {4, "2x2", "S(1)S(2)", "1:4,10;2:8,14", {5, 14, 22, 3}, {{0, 0}, {0, 8}, {4, 0}, {4, 8}}},
        {8,
         "8",
         "S(1)",
         "1:4,10,16,22,28,34,40,46",
         {2, 200, 3, 1},
         {{0}, {4}, {14}, {30}, {52}, {80}, {114}, {154}}},
        {4, "2x2", "S(1)S(1)", NULL, {2, 12, 3, 1}, {{0}, {3}, {6}, {9}}}, /* 11: theirs is of 6 */
        {4, "2x2", "S(1)S(1)", "1:5,0,1,6", {2, 12, 3, 1}, {{0}, {5}, {5}, {6}}},
    };
    int rank = sherd_world_rank(world);
    sherd_placement p[SHERD_MAX_AXES];

    for (int i = 0; i < LEN(cases); i++) {
        if (cases[i].ranks != sherd_world_ranks(world))
            continue;
        const sherd_mesh *mesh = mesh_of(world, cases[i].mesh);
        const sherd_layout *layout =
            layout_of(mesh, 4, cases[i].shape, cases[i].placements, cases[i].cuts);
        sherd_tensor *t =
            sherd_from_local(piece_of(layout, SHERD_F32), mesh, placements_of(layout, p), &infer);
        if (!CHECK(t->layout == layout))
            continue;
        for (int d = 0; d < 4; d++)
            CHECK_EQ(sherd_tensor_shape(t)[d], cases[i].shape[d]);
        for (int d = 0; d < 2; d++)
            CHECK_EQ(sherd_tensor_offset(t, 1 + d), cases[i].offset[rank][d]);
        CHECK_EQ(count_wrong(t, 1), 0);
        CHECK_EQ(count_wrong(sherd_full(t), 1), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* 4, 12: rows that nobody else knows of; the piece stays the piece, and detached it is the same
 * one. */
static void what_ranks_have_is_part_of_the_whole(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    int64_t size[8], begin = 0, n = 0;
    uint64_t dice = 4;
    sherd_placement rows = sherd_shard(1);
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    for (int r = 0; r < ranks; r++) {
        size[r] = 42 + roll(&dice, 85);
        begin = r < sherd_world_rank(world) ? begin + size[r] : begin;
        n += size[r];
    }
    const int64_t *sizes[4] = {NULL, size}, shape[4] = {2, n, 4, 3};
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = mesh_of(world, text);
    CHECK_OK(sherd_layout_create(&layout, mesh, 4, shape, &rows,
                                 &(sherd_layout_options){.sizes = sizes}));
    sherd_tensor *piece = piece_of(layout, SHERD_F32);
    sherd_require_grad(piece, true);
    sherd_tensor *t = sherd_from_local(piece, mesh, &rows, &infer), *alone = sherd_detach(t);
    CHECK_EQ(sherd_tensor_offset(t, 1), begin);
    CHECK_EQ(sherd_tensor_size(t, 1), size[sherd_world_rank(world)]);
    CHECK_EQ(count_wrong(t, 1), 0);
    CHECK(sherd_tensor_read(sherd_to_local(t)) == sherd_tensor_read(piece));
    CHECK(alone->layout == layout && sherd_tensor_read(alone) == sherd_tensor_read(t));
    CHECK(!alone->autograd.requires_grad && t->autograd.requires_grad);
    CHECK_OK(sherd_world_check(world));
}

/* 5, 6: one rank alone knows data, shape and dtype; each gets its box; of a leaf that wants a
 * gradient a leaf that does. */
static void one_rank_knows_all(sherd_world *world)
{
    static const char *const meshes[] = {"4", "2x2"}, *const how[] = {"S(1)", "S(1)S(2)"};
    static const int64_t shape[4] = {2, 84, 42, 2};

    for (int i = 0; i < 8; i++) {
        int root = i / 2, at = i % 2;
        bool mine = sherd_world_rank(world) == root;
        sherd_tensor *data = mine ? indices_plain(world, SHERD_F32, 4, shape) : NULL;
        if (data)
            sherd_require_grad(data, i > 3);
        sherd_comm_reset(world);
        sherd_tensor *x = sherd_distribute_from(data, mesh_of(world, meshes[at]), how[at], root);
        int64_t bytes = sherd_comm_bytes(world, NULL);
        CHECK_EQ(count_wrong(x, 1), 0);
        CHECK_EQ(sherd_tensor_size(x, 1), at ? 42 : 21);
        CHECK_EQ(sherd_tensor_size(x, 2), at ? 21 : 42);
        bytes -= mine ? 0 : x->count * 4;
        CHECK(bytes >= 0 && bytes < ROUND);
        CHECK_EQ(x->autograd.requires_grad, i > 3);
        if (i < 4)
            continue;
        sherd_backward(sherd_sum(sherd_mul(x, x)));
        CHECK(sherd_grad(x)->layout == x->layout);
        CHECK_EQ(count_wrong(sherd_scale(sherd_grad(x), 0.5), 1), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* 7, 8: pieces by the one chunk rule are put together by a shape alone, and no element moves. */
static void a_shape_is_enough_for_chunks(sherd_world *world)
{
    static const struct {
        const char *mesh, *placements;
        int64_t shape[4];
        const char *text;
    } cases[] = {
        {"4", "S(1)", {2, 84, 4, 3}, "[2,84(a0),4,3]"},
        {"2x2", "S(1)S(2)", {2, 84, 4, 3}, "[2,84(a0),4(a1),3]"},
        {"4", "S(0)", {5, 2, 1, 1}, "[5(a0),2,1,1]"},
    };
    static const int64_t rows[] = {2, 2, 1, 0};

    for (int i = 0; i < LEN(cases); i++) {
        const sherd_mesh *mesh = mesh_of(world, cases[i].mesh);
        const sherd_layout *layout = layout_of(mesh, 4, cases[i].shape, cases[i].placements, NULL);
        sherd_tensor *piece = piece_of(layout, SHERD_F32);
        sherd_placement p[SHERD_MAX_AXES];
        sherd_comm_reset(world);
        sherd_tensor *t = sherd_from_local(piece, mesh, placements_of(layout, p),
                                           &(sherd_from_local_options){.shape = cases[i].shape});
        CHECK(sherd_comm_bytes(world, NULL) < ROUND); /* what the ranks tell each other */
        check_layout_text(t->layout, cases[i].text);
        CHECK_EQ(count_wrong(sherd_full(t), 1), 0);
        if (i == 2)
            CHECK_EQ(sherd_tensor_size(t, 0), rows[sherd_world_rank(world)]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- 2.2, and 9, 10, 45: what is refused ----------------------------------------------------- */

static void one_line_on_all(sherd_world *world, sherd_tensor *t, sherd_status status,
                            const char *part)
{
    CHECK(sherd_tensor_failed(t));
    sherd_status got = sherd_world_check(world);
    const char *text = sherd_world_error(world);
    CHECK_EQ(got, status);
    check_same(world, got);
    if (!CHECK(strstr(text, part) && !strchr(text, '\n')))
        fprintf(stderr, "%s\n", text);
}

static void pieces_are_refused_by_one_line(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "4");
    sherd_placement rows = sherd_shard(0), columns = sherd_shard(1), none = sherd_replicate(),
                    third = sherd_shard(2), sum = sherd_partial(SHERD_SUM);
    int rank = sherd_world_rank(world);
    const int64_t three[2] = {3, 2}, ten[2] = {10, 2}, sizes[4] = {3, 3, 3, 2};
    const int64_t negative[4] = {8, -1, 3, 0};
    const int64_t *views[2] = {sizes, NULL}, *below[2] = {negative, NULL};
    const sherd_from_local_options foo = {.mode = (sherd_from_local_mode)7},
                                   cuts = {.sizes = views}, chunk = {.shape = ten},
                                   both = {.mode = SHERD_FROM_INFER, .shape = ten},
                                   dict = {.shape = ten, .sizes = views},
                                   less = {.shape = ten, .sizes = below};
    sherd_tensor *piece = indices_plain(world, SHERD_F32, 2, three);
    sherd_tensor *tall = indices_plain(world, SHERD_F32, 2, SHAPE(3, rank == 2 ? 5 : 2));
    sherd_tensor *flat = indices_plain(world, SHERD_F32, rank == 1 ? 1 : 2, three);

#define REFUSED(what, part) one_line_on_all(world, what, SHERD_EINVAL, part)
    REFUSED(sherd_from_local(piece, mesh, &rows, NULL), "a sharded dim needs options.shape");
    REFUSED(sherd_from_local(piece, mesh, &rows, &foo), "no such mode: 7");
    REFUSED(sherd_from_local(piece, mesh, &rows, &cuts), "sizes without a shape");
    REFUSED(sherd_from_local(piece, mesh, &rows, &both), "inferring takes neither");
    REFUSED(sherd_from_local(piece, mesh, &rows, &dict),
            "do not add up to its size 10, but to 11"); /* sizes of 10 rows */
    REFUSED(
        sherd_from_local(piece, mesh, &rows, &less),
        "shard 1 of dim 0 has the size -1: sizes are not negative, and add up to the dim's, 10");
    REFUSED(sherd_from_local(piece, mesh, &third, &infer),
            "S(2) on axis a0: the tensor has 2 dims");
    REFUSED(sherd_distribute_as(sherd_mark_equal(piece), mesh, "S(0)S(1)", -1), "column");
    /* 10: three rows on each rank, of 10: on all ranks the rank that has other ones */
    REFUSED(sherd_from_local(piece, mesh, &rows, &chunk), "rank 3 has a piece of [3,2]");
    /* what ShardTensor does not look at */
    REFUSED(sherd_from_local(tall, mesh, &rows, &infer), "dim 1 of rank 2 has size 5");
    REFUSED(sherd_from_local(tall, mesh, &none, NULL), "dim 1 of rank 2 has size 5");
    one_line_on_all(world, sherd_from_local(flat, mesh, &rows, &infer), SHERD_EDIFFER,
                    "rank 1 passed a piece of");
    one_line_on_all(world, sherd_from_local(piece, mesh, rank ? &rows : &columns, &infer),
                    SHERD_EDIFFER, "passed other placements (here ");
    /* 45: nothing becomes a pending sum by a move */
    sherd_tensor *x = indices_on(layout_of(mesh, 2, ten, "S(0)", NULL), SHERD_F32);
    REFUSED(sherd_redistribute_to(x, "P(sum)", NULL), "pending");
    REFUSED(sherd_redistribute_to(sherd_redistribute_to(x, "R", NULL), "P(sum)", NULL), "pending");
#undef REFUSED
    /* but pieces may be declared to be addends */
    sherd_tensor *y = sherd_from_local(piece, mesh, &sum, NULL);
    CHECK_EQ(count_wrong(sherd_scale(sherd_full(y), 0.25), 1), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- 3B: moves ------------------------------------------------------------------------------- */

typedef struct move_case {
    int ranks;
    const char *mesh;
    int ndim;
    int64_t shape[4];
    const char *from, *cuts;
    const char *to;   /* of sherd_redistribute_to */
    const char *text; /* the layout then; cuts that are not said are those of the chunk rule */
} move_case;

/* Cuts stay where the same axes shard a dim as before; ShardTensor's go along to other axes, and
 * get lost on the way. */
static const move_case moves[] = {
    /* 13 to 16 */
    {4, "4", 3, {5, 52, 10}, "S(1)", "1:4,10,16,22", "S(1)", "[5,52(a0:4,10,16,22),10]"},
    {4, "4", 3, {5, 52, 10}, "S(1)", "1:4,10,16,22", "R", "[5,52,10]"},
    {4, "4", 3, {5, 52, 10}, "S(1)", "1:4,10,16,22", "S(2)", "[5,52,10(a0)]"},
    {4, "4", 3, {5, 52, 10}, "S(1)", "1:4,10,16,22", "S(0)", "[5(a0),52,10]"},
    /* 17 */
    {8, "8", 3, {2, 200, 10}, "S(1)", "1:4,10,16,22,28,34,40,46", "S(2)", "[2,200,10(a0)]"},
    /* 18 to 26; 22 and 24 also with their sizes, which are said here */
    {4,
     "2x2",
     4,
     {2, 14, 22, 3},
     "S(1)S(2)",
     "1:4,10;2:8,14",
     "S(1)S(2)",
     "[2,14(a0:4,10),22(a1:8,14),3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "RS(2)", "[2,14,22(a1:8,14),3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "S(1)R", "[2,14(a0:4,10),22,3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "RR", "[2,14,22,3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "RS(1)", "[2,14(a1),22,3]"},
    {4,
     "2x2",
     4,
     {2, 14, 22, 3},
     "S(1)S(2)",
     "1:4,10;2:8,14",
     "RS(1) 1:4,10",
     "[2,14(a1:4,10),22,3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "S(2)R", "[2,14,22(a0),3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "S(2)S(1)", "[2,14(a1),22(a0),3]"},
    {4,
     "2x2",
     4,
     {2, 14, 22, 3},
     "S(1)S(2)",
     "1:4,10;2:8,14",
     "S(2)S(1) 1:4,10;2:8,14",
     "[2,14(a1:4,10),22(a0:8,14),3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10;2:8,14", "S(3)R", "[2,14,22,3(a0)]"},
    {4,
     "2x2",
     4,
     {2, 14, 22, 3},
     "S(1)S(2)",
     "1:4,10;2:8,14",
     "S(3)S(2)",
     "[2,14,22(a1:8,14),3(a0)]"},
    /* 27, 28 */
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)R", "1:4,10", "S(1)S(2)", "[2,14(a0:4,10),22(a1),3]"},
    {4, "2x2", 4, {2, 14, 22, 3}, "S(1)S(2)", "1:4,10", "S(3)S(2)", "[2,14,22(a1),3(a0)]"},
    /* 29 */
    {8, "2x4", 3, {2, 14, 68}, "S(1)S(2)", "1:4,10;2:8,14,20,26", "RS(1)", "[2,14(a1),68]"},
    /* 30, 31: empty ones */
    {4, "4", 3, {16, 12, 8}, "S(1)", "1:4,4,4,0", "S(2)", "[16,12,8(a0)]"},
    {4, "4", 3, {16, 12, 8}, "S(1)", "1:4,4,4,0", "R", "[16,12,8]"},
    {4, "2x2", 4, {8, 4, 12, 4}, "S(1)S(2)", "1:4,0;2:4,8", "S(2)S(1)", "[8,4(a1),12(a0),4]"},
    {4, "2x2", 4, {8, 4, 12, 4}, "S(1)S(2)", "1:4,0;2:4,8", "RR", "[8,4,12,4]"},
    /* 32, 33: onto a dim with fewer elements than ranks; theirs crash */
    {4, "4", 3, {8, 40, 2}, "S(1)", "1:4,8,12,16", "S(2)", "[8,40,2(a0)]"},
    {4, "4", 2, {3, 2}, "R", NULL, "S(0)", "[3(a0),2]"},
    /* 34 */
    {4, "4", 3, {16, 52, 8}, "S(1)", "1:4,10,16,22", "S(2)", "[16,52,8(a0)]"},
};

/* Of a sum of squares, of all ranks' pieces or of the whole, the gradient is twice the tensor, and
 * lies as it did. */
static void check_gradient(const sherd_layout *from, const char *to, bool local)
{
    sherd_tensor *x = sherd_require_grad(indices_on(from, SHERD_F32), true);
    sherd_tensor *y = sherd_redistribute_to(x, to, NULL);

    y = local ? sherd_to_local(y) : sherd_full(y);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    CHECK(sherd_grad(x)->layout == from);
    CHECK_EQ(count_wrong(sherd_scale(sherd_grad(x), 0.5), 1), 0);
}

/* 13 to 35. */
static void uneven_shards_move(sherd_world *world)
{
    for (int i = 0; i < LEN(moves); i++) {
        const move_case *c = &moves[i];
        if (c->ranks != sherd_world_ranks(world))
            continue;
        sherd_scope_begin(world);
        const sherd_layout *from =
            layout_of(mesh_of(world, c->mesh), c->ndim, c->shape, c->from, c->cuts);
        sherd_tensor *x = indices_on(from, SHERD_F32);
        sherd_tensor *y = sherd_redistribute_to(x, c->to, NULL);
        check_layout_text(y->layout, c->text);
        CHECK_EQ(count_wrong(y, 1), 0);
        CHECK_EQ(count_wrong(sherd_full(y), 1), 0);
        CHECK((y == x) == (y->layout == from));
        sherd_tensor *back = sherd_redistribute(y, from, NULL);
        CHECK_EQ(count_wrong(back, 1), 0);
        check_gradient(from, c->to, false);
        check_gradient(from, c->to, true);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* 33: of 3 rows on 4 ranks the last has none. */
static void fewer_rows_than_ranks(sherd_world *world)
{
    const int64_t rank = sherd_world_rank(world);
    sherd_tensor *x =
        indices_on(layout_of(mesh_of(world, "4"), 2, SHAPE(3, 2), "R", NULL), SHERD_F32);

    CHECK_EQ(sherd_tensor_size(sherd_redistribute_to(x, "S(0)", NULL), 0), rank < 3);
    CHECK_OK(sherd_world_check(world));
}

/* 85: each step every rank has the piece of the one before it (or behind); after all steps its own.
 * Uneven ones too. */
static void pieces_go_around_a_ring(sherd_world *world)
{
    static const char *const turned[2][4] = {{"4@0,1,2,3", "4@1,2,3,0", "4@2,3,0,1", "4@3,0,1,2"},
                                             {"4@0,1,2,3", "4@3,0,1,2", "4@2,3,0,1", "4@1,2,3,0"}};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};
    static const int64_t rows[] = {10, 13, 16, 19};
    int rank = sherd_world_rank(world);

    for (int i = 0; i < 8; i++) {
        const int64_t shape[2] = {i & 4 ? 58 : 16, 2};
        const char *cuts = i & 4 ? "0:10,13,16,19" : NULL;
        const sherd_layout *first = layout_of(mesh_of(world, "4"), 2, shape, "S(0)", cuts);
        sherd_tensor *x = indices_on(first, dtypes[i & 1]);
        sherd_require_grad(x, true);
        sherd_tensor *y = x;
        for (int step = 1; step <= 4; step++) {
            const sherd_mesh *mesh = mesh_of(world, turned[i >> 1 & 1][step % 4]);
            int from = i & 2 ? (rank + step) % 4 : (rank + 4 - step) % 4;
            y = sherd_redistribute(y, layout_of(mesh, 2, shape, "S(0)", cuts), NULL);
            CHECK_EQ(sherd_tensor_size(y, 0), i & 4 ? rows[from] : 4);
            CHECK_EQ(sherd_tensor_offset(y, 0),
                     i & 4 ? from * 10 + 3 * (from * (from - 1) / 2) : 4 * from);
            if (!(i & 1))
                CHECK_EQ(count_wrong(y, 1), 0);
        }
        CHECK(y->layout == first);
        sherd_tensor *same = sherd_all(sherd_eq(x, y), NULL, 0, false);
        CHECK(sherd_item(same) == 1);
        sherd_backward(sherd_sum(y));
        CHECK(sherd_item(sherd_sum(sherd_grad(x))) == (double)(2 * shape[0]));
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(sizes_and_offsets_follow_from_the_pieces), {4, 8}},
    {TEST(what_ranks_have_is_part_of_the_whole), {1, 2, 3, 4, 8}},
    {TEST(one_rank_knows_all), {4}},
    {TEST(a_shape_is_enough_for_chunks), {4}},
    {TEST(pieces_are_refused_by_one_line), {4}},
    {TEST(uneven_shards_move), {4, 8}},
    {TEST(fewer_rows_than_ranks), {4}},
    {TEST(pieces_go_around_a_ring), {4}},
};
CHECK_MAIN(tests)
