/* SPDX-License-Identifier: Apache-2.0 */
/* Moves to where a text says, and pieces as a layout says: the same as with a layout that is made
 * first. */
#include "tensors.h"
#include "sherd/autograd.h"
#include "sherd/ops.h"

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 3}, {4, 0}};

/* All ranks as one axis, or as two. */
static const sherd_mesh *mesh_for(sherd_world *world, bool square)
{
    char text[32];
    int ranks = sherd_world_ranks(world), rows = square && ranks % 2 == 0 ? 2 : 1;

    snprintf(text, sizeof text, "x=%d,y=%d", rows, ranks / rows);
    return mesh_of(world, text);
}

/* The indices as one plain tensor that is equal on all ranks. */
static sherd_tensor *all_equal(sherd_world *world, const int64_t *shape)
{
    return sherd_mark_equal(indices_plain(world, SHERD_F64, 2, shape));
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void check_move(sherd_tensor *t, const char *text, const sherd_layout *to)
{
    sherd_tensor *y = sherd_redistribute_to(t, text, NULL);

    if (!CHECK(sherd_tensor_layout(y) == to))
        fprintf(stderr, "\"%s\" gave %s\n", text, sherd_tensor_text(y));
    CHECK_EQ(count_wrong(y, 1), 0);
}

static void a_text_leads_to_its_layout(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);

    for (int s = 0; s < LEN(shapes); s++)
        for (int to = 0; to < lists_of(mesh, 2); to++) {
            sherd_scope_begin(world);
            const sherd_layout *target = numbered(mesh, 2, shapes[s], to);
            sherd_tensor *t = indices_on(numbered(mesh, 2, shapes[s], (to * 7 + 1) % 2), SHERD_F64);
            if (target->pending_axes == 0) {
                check_move(t, sherd_layout_placements(target), target);
                check_move(t, sherd_layout_text(target), target);
                sherd_tensor *y = sherd_redistribute(t, target, NULL);
                check_move(t, sherd_tensor_text(y), target);
            }
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static void a_pending_sum_may_stay(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);
    const sherd_layout *from = layout_of(mesh, 2, shapes[1], "RP(sum)", NULL);
    sherd_tensor *t = indices_on(from, SHERD_F64);
    int64_t addends = sherd_mesh_extent(mesh, 1);

    CHECK_EQ(count_wrong(sherd_redistribute_to(t, "RS(1)", NULL), addends), 0);
    CHECK_TEXT(sherd_layout_placements(sherd_redistribute_to(t, "S(0)P", NULL)->layout),
               "S(0)P(sum)");
    sherd_tensor *y = sherd_redistribute_to(t, "[7(x),5] P(sum:y)", NULL);
    CHECK_EQ(count_wrong(sherd_redistribute_to(y, "RR", NULL), addends), 0);
    CHECK_OK(sherd_world_check(world));
}

static void orders_and_cuts_are_read(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");
    const int64_t shape[] = {10, 6};
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "RR", NULL), SHERD_F64);
    static const char *const texts[][2] = {
        {"S(0)[1]S(0)[0]", "[10(y,x),6] on (x=2,y=2)"},
        {" S(0)\tR 0:4,6", "[10(x:4,6),6] on (x=2,y=2)"},
        {"S(0)[1] S(0)[0] 0:1,2,3,4", "[10(y,x:1,2,3,4),6] on (x=2,y=2)"},
        {"S(1)S(0)0:0,10;1:6,0 ", "[10(y:0,10),6(x:6,0)] on (x=2,y=2)"},
        {"[10(x:4,6),6(y)]", "[10(x:4,6),6(y)] on (x=2,y=2)"},
        {"f64[10(y,x),6]on(x=2,y=2) ", "[10(y,x),6] on (x=2,y=2)"},
        {"_S(0,2)S(0)", "[10(y,x),6] on (x=2,y=2)"},
    };

    for (int i = 0; i < LEN(texts); i++) {
        sherd_tensor *y = sherd_redistribute_to(t, texts[i][0], NULL);
        CHECK_TEXT(sherd_layout_text(sherd_tensor_layout(y)), texts[i][1]);
        CHECK_EQ(count_wrong(y, 1), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* As `sherd plan` does: only where no cuts are given, and the same axes shard the dim in the same
 * order. */
static void placements_keep_the_cuts_of_what_stays(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");
    const int64_t shape[] = {10, 6};
    const sherd_layout *from = layout_of(mesh, 2, shape, "S(0)S(1)", "0:4,6;1:1,5");
    sherd_tensor *t = indices_on(from, SHERD_F64);
    static const char *const texts[][2] = {
        {"S(0)S(1)", "[10(x:4,6),6(y:1,5)] on (x=2,y=2)"},
        {"S(0)R", "[10(x:4,6),6] on (x=2,y=2)"},
        {"S(1)R", "[10,6(x)] on (x=2,y=2)"},
        {"S(0)S(1) 1:2,4", "[10(x),6(y:2,4)] on (x=2,y=2)"},
        {"[10(x),6(y:1,5)]", "[10(x),6(y:1,5)] on (x=2,y=2)"},
    };

    for (int i = 0; i < LEN(texts); i++) {
        sherd_tensor *y = sherd_redistribute_to(t, texts[i][0], NULL);
        CHECK_TEXT(sherd_layout_text(sherd_tensor_layout(y)), texts[i][1]);
        CHECK_EQ(count_wrong(y, 1), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- texts that are wrong -------------------------------------------------------------------- */

typedef struct bad_text {
    const char *text;
    int column;
    const char *expected;
} bad_text;

/* Of f64[10,6] on (x=2,y=2). */
static const bad_text bad[] = {
    {"", 1, "expected S(dim), R or P(op) for axis x"},
    {"S(0)", 5, "expected S(dim), R or P(op) for axis y"},
    {"S(0)RR", 6, "expected the end: the mesh (x=2,y=2) has 2 axes"},
    {"S(2)R", 3, "expected a dim of the tensor, which has 2"},
    {"S(0)R 0:4,7", 9, "expected sizes that add up to 10, not to 11"},
    {"S(0)R 1:4,2", 9, "expected sizes that add up to 6, not to 4"},
    {"S(0)[0]S(0)", 8, "expected a shard order like [0] on all axes of dim 0 or on none"},
    {"s(0)R", 1, "expected S(dim), R or P(op) for axis x"},
    {"[10,7]", 5, "expected 6, the size of dim 1"},
    {"[10]", 4, "expected , and dim 1: the tensor has 2"},
    {"[10,6,1]", 7, "expected no further dim: the tensor has 2"},
    {"[]", 2, "expected"},
    {"[10(z),6]", 5, "expected an axis of the mesh (x=2,y=2)"},
    {"[10(x:4,5),6]", 7, "expected sizes that add up to 10, not to 9"},
    {"f32[10(x),6]", 1, "expected f64, the dtype of the tensor"},
    {"[10(x),6] on (x=4)", 15, "expected x=2,y=2), the mesh of the tensor"},
    {"[10(x),6] here", 11, "expected P(op:axis), on (x=2,y=2) or the end"},
};

/* Said by all ranks, or by the last one alone while the others do what is right. */
static void a_wrong_text_is_one_line_on_all_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");
    const int64_t shape[] = {10, 6};
    int last = sherd_world_ranks(world) - 1;

    for (int i = 0; i < 2 * LEN(bad); i++) {
        const bad_text *b = &bad[i / 2];
        bool wrong = i % 2 == 0 || sherd_world_rank(world) == last, to = i / 2 % 2;
        char column[48];
        sherd_scope_begin(world);
        sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "RR", NULL), SHERD_F64);
        sherd_tensor *plain = all_equal(world, shape);
        const char *text = wrong ? b->text : "S(0)R";
        sherd_tensor *y =
            to ? sherd_redistribute_to(t, text, NULL) : sherd_distribute_as(plain, mesh, text, 0);
        CHECK(!wrong || sherd_tensor_failed(y));
        sherd_status status = sherd_world_check(world);
        CHECK_EQ(status, SHERD_EINVAL);
        check_same(world, status);
        snprintf(column, sizeof column,
                 "%s: column %d of \"%s\": ", to ? "sherd_redistribute_to" : "sherd_distribute_as",
                 b->column, b->text);
        if (!CHECK(strstr(sherd_world_error(world), column)) ||
            !CHECK(strstr(sherd_world_error(world), b->expected)) ||
            !CHECK(!strchr(sherd_world_error(world), '\n')))
            fprintf(stderr, "\"%s\": %s\n", b->text, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

static void other_texts_on_other_ranks_differ(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, false);
    sherd_tensor *t = indices_on(numbered(mesh, 2, shapes[0], 0), SHERD_F64);

    sherd_redistribute_to(t, sherd_world_rank(world) ? "RS(0)" : "RS(1)", NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

/* ---- plain tensors and pieces ---------------------------------------------------------------- */

static void a_plain_tensor_is_spread_by_a_text(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true), *part = NULL;
    int last = sherd_world_ranks(world) - 1;

    CHECK_OK(sherd_mesh_slice(&part, mesh, 1, (const char *[]){"y"}));
    for (int s = 0; s < LEN(shapes); s++)
        for (int root = -1; root <= last; root += last + 1) {
            sherd_tensor *t = all_equal(world, shapes[s]);
            sherd_tensor *y = sherd_distribute_as(t, mesh, "S(0)S(0)", root);
            CHECK(sherd_tensor_layout(y) == layout_of(mesh, 2, shapes[s], "S(0)S(0)", NULL));
            CHECK_EQ(count_wrong(y, 1), 0);
            y = sherd_distribute_as(t, part, "S(1)", root);
            CHECK(sherd_tensor_layout(y) == layout_of(mesh, 2, shapes[s], "RS(1)", NULL));
            CHECK_EQ(count_wrong(y, 1), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

/* The others know neither shape nor dtype, nor that it wants a gradient. */
static void what_one_rank_has_is_spread(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);

    for (int s = 0; s < LEN(shapes); s++)
        for (int root = 0; root < ranks; root++) {
            sherd_tensor *mine = rank == root ? all_equal(world, shapes[s]) : NULL;
            if (mine && s % 2)
                sherd_require_grad(mine, true);
            sherd_tensor *y = sherd_distribute_from(mine, mesh, "S(0)S(1)", root);
            CHECK(sherd_tensor_layout(y) == layout_of(mesh, 2, shapes[s], "S(0)S(1)", NULL));
            CHECK_EQ(count_wrong(y, 1), 0);
            CHECK_EQ(sherd_requires_grad(y), s % 2);
        }
    CHECK_OK(sherd_world_check(world));
    if (ranks > 1) {
        sherd_tensor *one = rank == 0 ? all_equal(world, shapes[0]) : NULL;
        sherd_distribute_from(one, mesh, rank ? "S(0)R" : "S(1)R", 0);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    }
}

static void pieces_make_the_layout_that_they_are_of(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);
    char cuts[64] = "0:7", *at = cuts + 3;

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists_of(mesh, 2); i++) {
            sherd_tensor *t = indices_on(numbered(mesh, 2, shapes[s], i), SHERD_F64);
            sherd_tensor *y = sherd_from_local_as(sherd_to_local(t), sherd_tensor_layout(t));
            CHECK(sherd_tensor_layout(y) == sherd_tensor_layout(t));
            CHECK(sherd_tensor_read(y) == sherd_tensor_read(t));
        }
    /* All rows on the first rank. */
    for (int64_t i = 1; i < sherd_mesh_ranks(mesh); i++, at += 2)
        snprintf(at, 3, ",0");
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shapes[1], "S(0)[1]S(0)[0]", cuts), SHERD_F64);
    sherd_tensor *y = sherd_from_local_as(sherd_to_local(t), sherd_tensor_layout(t));
    CHECK(sherd_tensor_layout(y) == sherd_tensor_layout(t));
    CHECK_EQ(count_wrong(y, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_piece_of_another_size_is_refused_by_all(sherd_world *world)
{
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shapes[0], "RS(0)", NULL);
    const int64_t flat[] = {4}, large[] = {9, 4};
    bool wrong = sherd_world_rank(world) == 0;

    for (int flatly = 0; flatly < 2; flatly++) {
        sherd_tensor *t = sherd_to_local(indices_on(rows, SHERD_F64));
        if (wrong)
            t = flatly ? indices_plain(world, SHERD_F64, 1, flat)
                       : indices_plain(world, SHERD_F64, 2, large);
        sherd_from_local_as(t, rows);
        sherd_status status = sherd_world_check(world);
        CHECK_EQ(status, SHERD_EINVAL);
        check_same(world, status);
    }
}

/* ---- and what belongs to every move ---------------------------------------------------------- */

static void a_rank_outside_of_the_mesh_gets_no_data(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2@1,0");
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shapes[1], "S(0)", NULL), SHERD_F64);
    bool inside = sherd_world_rank(world) < 2;

    if (inside)
        CHECK_EQ(count_wrong(sherd_redistribute_to(t, "R", NULL), 1), 0);
    sherd_tensor *y = sherd_distribute_as(all_equal(world, shapes[1]), mesh, "S(1)", -1);
    CHECK_EQ(y->count == 0, !inside);
    sherd_tensor *z = sherd_from_local_as(sherd_to_local(y), sherd_tensor_layout(y));
    CHECK(sherd_tensor_layout(z) == sherd_tensor_layout(y) && z->count == y->count);
    CHECK_OK(sherd_world_check(world));
}

static void a_gradient_goes_back_through_a_text(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shapes[1], "S(0)S(1)", NULL), SHERD_F64);

    sherd_require_grad(t, true);
    sherd_redistribute_options options = {.forward_dtype = SHERD_F32};
    sherd_tensor *y = sherd_redistribute_to(t, "RS(0)", &options);
    CHECK_EQ(sherd_tensor_dtype(y), SHERD_F32);
    sherd_tensor *z = sherd_from_local_as(sherd_to_local(y), sherd_tensor_layout(y));
    sherd_backward(sherd_sum(z));
    sherd_tensor *grad = sherd_grad(t);
    const double *data = sherd_tensor_read(grad);
    CHECK(sherd_tensor_layout(grad) == sherd_tensor_layout(t));
    for (int64_t i = 0; data && i < grad->count; i++)
        CHECK_EQ(data[i], 1);
    CHECK_OK(sherd_world_check(world));
}

static void all_three(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, shapes[0], "S(0)", "0:4,4") == SHERD_OK) {
        sherd_tensor *piece = sherd_constant(world, SHERD_F32, (int64_t[]){4, 4}, 2, 1);
        sherd_redistribute_to(sherd_from_local_as(piece, rows), "[8,4(a0:1,3)]", NULL);
        sherd_tensor *t = sherd_constant(world, SHERD_F32, shapes[1], 2, 1);
        sherd_redistribute_to(sherd_distribute_as(t, mesh, "S(0) 0:1,6", 1), "S(1)", NULL);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, all_three);
    fail_every_allocation(world, 1, all_three);
}

static const check_test tests[] = {
    {TEST(a_text_leads_to_its_layout), {1, 2, 3, 4, 8}},
    {TEST(a_pending_sum_may_stay), {1, 2, 3, 4, 8}},
    {TEST(orders_and_cuts_are_read), {4}},
    {TEST(placements_keep_the_cuts_of_what_stays), {4}},
    {TEST(a_wrong_text_is_one_line_on_all_ranks), {4}},
    {TEST(other_texts_on_other_ranks_differ), {2, 3}},
    {TEST(a_plain_tensor_is_spread_by_a_text), {1, 2, 3, 4, 8}},
    {TEST(what_one_rank_has_is_spread), {1, 2, 3, 4, 8}},
    {TEST(pieces_make_the_layout_that_they_are_of), {1, 2, 3, 4, 8}},
    {TEST(a_piece_of_another_size_is_refused_by_all), {1, 2, 3, 4}},
    {TEST(a_rank_outside_of_the_mesh_gets_no_data), {2, 3}},
    {TEST(a_gradient_goes_back_through_a_text), {1, 2, 3, 4, 8}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
