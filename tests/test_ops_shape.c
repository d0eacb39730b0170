/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts, padding and joining of sharded tensors: which cuts the result has, what moves (nothing,
 * wherever it need not), what shares storage, and what elements come out, by numbers.
 */
#include "ops_cases.h"
#include "tensors.h"
#include "boxes.h"

#define RUN(name, expression)                  \
    static sherd_tensor *name(sherd_tensor *t) \
    {                                          \
        return expression;                     \
    }
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
#define LIST(...)  ((sherd_tensor *[]){__VA_ARGS__})

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

static int64_t bytes_received(const sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).bytes_received;
    return n;
}

/* ---- how results lie ------------------------------------------------------------------------- */

RUN(front, sherd_slice(t, 0, 0, 3, 1))
RUN(middle, sherd_slice(t, 0, 3, 8, 1))
RUN(thirds, sherd_slice(t, 0, 1, INT64_MAX, 3))
RUN(nothing, sherd_slice(t, 0, 5, 5, 1))
RUN(column, sherd_narrow(t, 1, 1, 2))
RUN(one, sherd_select(t, 0, 7))
RUN(one_column, sherd_select(t, 1, 0))
RUN(padded, sherd_pad(t, SIZES(2, 0), SIZES(1, 0), 7))
RUN(padded_columns, sherd_pad(t, SIZES(0, 1), SIZES(0, 1), 7))
RUN(back_together,
    sherd_cat(LIST(sherd_narrow(t, 0, 0, 4), sherd_narrow(t, 0, 4, t->shape[0] - 4)), 2, 0))
RUN(twice_columns, sherd_cat(LIST(t, t), 2, 1))
RUN(twice_rows, sherd_cat(LIST(t, t), 2, 0))
RUN(rolled, sherd_roll(t, 1, 0))
RUN(flipped_columns, sherd_flip(t, (const int[]){1}, 1))
RUN(flipped_rows, sherd_flip(t, (const int[]){0}, 1))
RUN(stacked, sherd_stack(LIST(t, t), 2, 0))
RUN(stretched, sherd_expand(t, SIZES(2, -1, -1), 3))
RUN(turned, sherd_permute(sherd_unsqueeze(t, 0), (const int[]){2, 0, 1}, 3))

/* An operator on three ranks: on what, how the result lies, bytes that each rank receives on the
 * way. */
typedef struct lying {
    sherd_tensor *(*run)(sherd_tensor *t);
    int64_t shape[2];
    const char *placements, *cuts, *text;
    int64_t bytes[3];
} lying;

static const lying lyings[] = {
    {front, {9, 2}, "S(0)", NULL, "[3(x:3,0,0),2] on (x=3)", {0}},
    {middle, {9, 2}, "S(0)", NULL, "[5(x:0,3,2),2] on (x=3)", {0}},
    {middle, {10, 2}, "S(0)", "0:0,7,3", "[5(x:0,4,1),2] on (x=3)", {0}},
    {thirds, {10, 2}, "S(0)", NULL, "[3(x:1,2,0),2] on (x=3)", {0}},
    {thirds, {10, 2}, "S(0)", "0:2,2,6", "[3(x:1,0,2),2] on (x=3)", {0}},
    {nothing, {9, 2}, "S(0)", NULL, "[0(x),2] on (x=3)", {0}},
    {middle, {9, 4}, "S(1)", "1:1,0,3", "[5,4(x:1,0,3)] on (x=3)", {0}},
    {middle, {9, 2}, "P(max)", NULL, "[5,2] P(max:x) on (x=3)", {0}},
    {column, {9, 4}, "S(0)", "0:0,5,4", "[9(x:0,5,4),2] on (x=3)", {0}},
    {column, {3, 4}, "S(1)", NULL, "[3,2(x)] on (x=3)", {0}},
    {one, {9, 4}, "S(0)", NULL, "[4] on (x=3)", {32, 32, 0}},
    {one_column, {9, 4}, "S(0)", "0:1,1,7", "[9(x:1,1,7)] on (x=3)", {0}},
    {padded, {9, 2}, "S(0)", NULL, "[12(x:5,3,4),2] on (x=3)", {0}},
    {padded, {9, 2}, "S(0)", "0:0,9,0", "[12(x:0,12,0),2] on (x=3)", {0}},
    {padded, {0, 2}, "S(0)", NULL, "[3(x),2] on (x=3)", {0}},
    {padded_columns, {9, 2}, "S(0)", "0:1,1,7", "[9(x:1,1,7),4] on (x=3)", {0}},
    {padded, {9, 2}, "P(sum)", NULL, "[12,2] P(sum:x) on (x=3)", {0}},
    {back_together, {9, 2}, "S(0)", "0:1,2,6", "[9(x:1,2,6),2] on (x=3)", {0}},
    {back_together, {9, 2}, "P(min)", NULL, "[9,2] P(min:x) on (x=3)", {0}},
    {twice_columns, {9, 2}, "S(0)", "0:1,2,6", "[9(x:1,2,6),4] on (x=3)", {0}},
    /* each row twice on its rank would be another order: the cuts of the whole, and rows go
     * there */
    {twice_rows, {6, 2}, "S(0)", NULL, "[12(x),2] on (x=3)", {32, 64, 32}},
    {twice_rows, {6, 2}, "R", NULL, "[12,2] on (x=3)", {0}},
    /* one row goes to the next rank, the last one to the first */
    {rolled, {9, 2}, "S(0)", NULL, "[9(x),2] on (x=3)", {16, 16, 16}},
    {rolled, {9, 2}, "S(1)", NULL, "[9,2(x)] on (x=3)", {0}},
    {flipped_columns, {9, 2}, "S(0)", "0:1,2,6", "[9(x:1,2,6),2] on (x=3)", {0}},
    /* rows become columns, which is less than all rows */
    {flipped_rows, {9, 3}, "S(0)", NULL, "[9,3(x)] on (x=3)", {48, 48, 48}},
    {stacked, {9, 2}, "S(0)", "0:1,2,6", "[2,9(x:1,2,6),2] on (x=3)", {0}},
    {stretched, {9, 2}, "S(0)", "0:1,2,6", "[2,9(x:1,2,6),2] on (x=3)", {0}},
    {turned, {9, 2}, "S(0)", "0:1,2,6", "[2,1,9(x:1,2,6)] on (x=3)", {0}},
};

static void cuts_follow_and_nothing_moves(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int i = 0; i < LEN(lyings); i++) {
        const lying *c = &lyings[i];
        const sherd_layout *from = NULL;
        sherd_scope_begin(world);
        CHECK_OK(sherd_layout_parse_placements(&from, mesh, 2, c->shape, c->placements, c->cuts));
        sherd_tensor *t = indices(from);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = c->run(t);
        bool good = CHECK_EQ(bytes_received(world), c->bytes[sherd_world_rank(world)]);
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
        if (CHECK(!sherd_tensor_failed(y)))
            good &= CHECK_TEXT(sherd_layout_text(y->layout), c->text);
        if (!good)
            fprintf(stderr, "  case %d\n", i);
        sherd_scope_end(world);
    }
}

/* The gradient of a part lies where the part came from, with its cuts. */
static void the_gradient_of_a_part_lies_as_the_whole(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *from = NULL;

    CHECK_OK(sherd_layout_parse_placements(&from, mesh, 2, SIZES(9, 2), "S(0)", "0:0,2,7"));
    sherd_tensor *t = sherd_require_grad(indices(from), true);
    sherd_tensor *y = sherd_slice(sherd_slice(t, 0, 4, INT64_MAX, 2), 0, 1, 2, 1);
    CHECK(y->storage == t->storage);
    sherd_tensor *loss = sherd_sum(sherd_mul(y, y));
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_backward(sherd_full(loss));
    sherd_tensor *raw = sherd__raw_grad(t);
    CHECK_OK(sherd_world_check(world));
    CHECK(raw && raw->layout == from);
    sherd_tensor *g = sherd_full(sherd_grad(t));
    const double *x = sherd_tensor_read(g);
    for (int i = 0; x && i < 18; i++)
        CHECK(x[i] == (i / 2 == 6 ? 2.0 * i : 0.0));
    CHECK_OK(sherd_world_check(world));
}

/* ---- numbers --------------------------------------------------------------------------------- */

RUN(permuted, sherd_permute(t, (const int[]){1, 0}, 2))
RUN(expanded, sherd_expand(sherd_narrow(t, 0, 1, 1), SIZES(2, -1), 2))
RUN(steps, sherd_slice(t, 1, -3, -1, 2))
RUN(far, sherd_slice(t, 0, -100, 100, 1))
RUN(selected, sherd_select(t, 1, -1))
RUN(pads, sherd_pad(t, SIZES(1, -1), SIZES(0, 1), -1))
RUN(joined, sherd_cat(LIST(t, sherd_narrow(t, 1, 0, 1)), 2, -1))
RUN(stacks, sherd_stack(LIST(t, t), 2, -1))
RUN(flipped, sherd_flip(t, (const int[]){-1, 0}, 2))
RUN(rolls, sherd_roll(t, -4, 1))
RUN(repeated, sherd_repeat(t, SIZES(2, 1, 2), 3))
RUN(tiled, sherd_tile(sherd_narrow(t, 1, 0, 1), SIZES(3), 1))

/* Of [[0,1,2],[3,4,5]]; the numbers are PyTorch's. */
static const struct {
    sherd_tensor *(*run)(sherd_tensor *t);
    int ndim;
    int64_t shape[3];
    double want[24];
} numbers[] = {
    {permuted, 2, {3, 2}, {0, 3, 1, 4, 2, 5}},
    {expanded, 2, {2, 3}, {3, 4, 5, 3, 4, 5}},
    {steps, 2, {2, 1}, {0, 3}},
    {far, 2, {2, 3}, {0, 1, 2, 3, 4, 5}},
    {selected, 1, {2}, {2, 5}},
    {pads, 2, {3, 3}, {-1, -1, -1, 1, 2, -1, 4, 5, -1}},
    {joined, 2, {2, 4}, {0, 1, 2, 0, 3, 4, 5, 3}},
    {stacks, 3, {2, 3, 2}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}},
    {flipped, 2, {2, 3}, {5, 4, 3, 2, 1, 0}},
    {rolls, 2, {2, 3}, {1, 2, 0, 4, 5, 3}},
    {repeated, 3, {2, 2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5,
                              0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}},
    {tiled, 2, {2, 3}, {0, 0, 0, 3, 3, 3}},
};

/* As they come out in every dtype. */
static void elements_go_where_pytorch_puts_them(sherd_world *world)
{
    static const double data[] = {0, 1, 2, 3, 4, 5};

    for (int i = 0; i < LEN(numbers); i++)
        for (int d = SHERD_F32; d < SHERD_BOOL; d++) {
            if (d == SHERD_U8 && numbers[i].run == pads)
                continue;
            sherd_scope_begin(world);
            sherd_tensor *t = sherd_from_data(world, SHERD_F64, SIZES(2, 3), 2, data);
            sherd_tensor *y = numbers[i].run(sherd_cast(t, (sherd_dtype)d));
            CHECK_EQ(sherd_tensor_dtype(y), d);
            CHECK_EQ(sherd_tensor_ndim(y), numbers[i].ndim);
            for (int k = 0; k < numbers[i].ndim; k++)
                CHECK_EQ(sherd_tensor_shape(y)[k], numbers[i].shape[k]);
            if (!CHECK(distance(sherd_cast(y, SHERD_F64), numbers[i].want, sherd_tensor_count(y)) ==
                       0))
                fprintf(stderr, "  case %d in %s\n", i, sherd_dtype_name((sherd_dtype)d));
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static void views_share_and_copies_do_not(sherd_world *world)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F32, SIZES(4, 6), 2, 1), *part[4];

    CHECK(sherd_permute(t, (const int[]){1, 0}, 2)->storage == t->storage);
    CHECK(sherd_unsqueeze(t, 1)->storage == t->storage);
    CHECK(sherd_expand(t, SIZES(3, 4, 6), 3)->storage == t->storage);
    CHECK(sherd_slice(t, 1, 1, 5, 2)->storage == t->storage);
    CHECK(sherd_select(t, 1, 2)->storage == t->storage);
    CHECK(sherd_detach(t)->storage == t->storage);
    CHECK(sherd_contiguous(t)->storage == t->storage);
    CHECK(sherd_contiguous(sherd_transpose(t, 0, 1))->storage != t->storage);
    CHECK(sherd_clone(t)->storage != t->storage);
    CHECK_EQ(sherd_chunk(part, t, 0, 3), 2);
    CHECK_EQ(part[1]->shape[0], 2);
    CHECK(sherd_tensor_failed(part[2]));
    CHECK_EQ(sherd_chunk(part, sherd_narrow(t, 0, 0, 0), 0, 3), 3);
    CHECK(sherd_split(part, t, 1, SIZES(1, 0, 5), 3) && part[2]->shape[1] == 5);
    CHECK(part[0]->storage == t->storage);
    CHECK_OK(sherd_world_check(world));
}

/* A mesh without rank 1: also a scalar that is a view has no element there. */
static void a_view_holds_nothing_off_the_mesh(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *whole = NULL;
    bool inside = sherd_world_rank(world) != 1;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, SIZES(2), NULL, (int[]){2, 0}));
    CHECK_OK(sherd__replicated(&whole, mesh, 2, SIZES(1, 1)));
    sherd_tensor *t = sherd_constant_on(whole, SHERD_F64, 3);
    CHECK_EQ(sherd_view(t, NULL, 0)->count, inside);
    CHECK_EQ(sherd_squeeze_all(t)->count, inside);
    CHECK_OK(sherd_world_check(world));
}

/* The step to what is not there may be any number. */
static void steps_may_go_beyond_the_dim(sherd_world *world)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F64, SIZES(4, 3), 2, 2);
    sherd_tensor *y = sherd_slice(t, 0, 1, 4, INT64_MAX),
                 *none = sherd_slice(t, 0, 4, 9, INT64_MAX);

    CHECK(sherd_tensor_count(y) == 3 && sherd_tensor_count(none) == 0);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 6, 0);
    CHECK_OK(sherd_world_check(world));
}

static void no_gradient_flows_through_detach(sherd_world *world)
{
    sherd_tensor *t = sherd_require_grad(sherd_constant(world, SHERD_F64, SIZES(3), 1, 2), true);
    sherd_tensor *d = sherd_detach(t);

    CHECK(!sherd_requires_grad(d) && sherd_requires_grad(t));
    sherd_backward(sherd_sum(sherd_mul(t, d)));
    CHECK_EQ(((const double *)sherd_tensor_read(sherd_grad(t)))[1], 2);
    CHECK_OK(sherd_world_check(world));
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "x=3") == SHERD_OK &&
        sherd_layout_parse_placements(&from, mesh, 2, SIZES(6, 5), "S(0)", "0:1,2,3") == SHERD_OK) {
        sherd_tensor *t = sherd_require_grad(sherd_constant_on(from, SHERD_F64, 1), true), *part[2];
        sherd_split(part, t, 0, SIZES(2, 4), 2);
        sherd_tensor *y =
            sherd_cat(LIST(part[1], sherd_pad(part[0], SIZES(1, 0), SIZES(1, 0), 3)), 2, 0);
        y = sherd_roll(sherd_repeat(sherd_flip(y, NULL, -1), SIZES(2, 1), 2), 1, 1);
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

static const check_test tests[] = {
    {TEST(cuts_follow_and_nothing_moves), {3}},
    {TEST(the_gradient_of_a_part_lies_as_the_whole), {3}},
    {TEST(elements_go_where_pytorch_puts_them), {1}},
    {TEST(views_share_and_copies_do_not), {1}},
    {TEST(a_view_holds_nothing_off_the_mesh), {3}},
    {TEST(steps_may_go_beyond_the_dim), {1}},
    {TEST(no_gradient_flows_through_detach), {1}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3}},
};
CHECK_MAIN(tests)
