/* SPDX-License-Identifier: Apache-2.0 */
/* How gradients lie where tensors move, and go between local and global; with what is known of
 * PyTorch and ShardTensor. */
#include "autograd/tape.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "tensors.h"

enum { ROWS = 7, COLUMNS = 5 };

static const int64_t shape[] = {ROWS, COLUMNS};
static const char *const kinds[] = {"R", "S(0)", "S(1)", "P(sum)"};
enum { PENDING = 3 };

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static const sherd_layout *laid(sherd_world *world, const char *placements)
{
    return layout_of(line(world), 2, shape, placements, NULL);
}

static sherd_tensor *filled(const sherd_layout *layout, double value)
{
    return sherd_require_grad(sherd_constant_on(layout, SHERD_F64, value), true);
}

/* Elements of this rank's piece that are not `value`; -1 if it failed. */
static int64_t others(sherd_tensor *t, double value)
{
    const double *data = t ? sherd_tensor_read(t) : NULL;
    int64_t wrong = data ? 0 : -1;

    for (int64_t i = 0; data && i < t->count; i++)
        wrong += data[i] < value - 1e-12 || data[i] > value + 1e-12;
    return wrong;
}

/* A plain tensor times what this rank alone has; the same everywhere if all have 1. */
static sherd_tensor *times(sherd_tensor *y, double factor)
{
    double data[ROWS * COLUMNS];

    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = factor;
    return sherd_mul(y, sherd_from_data(y->world, SHERD_F64, y->shape, 2, data));
}

static int64_t calls_of(sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).calls;
    return n;
}

/* As in DTensor: all combinations of source, result and gradient of a move. */
static void a_move_gives_back_where_it_came_from(sherd_world *world)
{
    for (int from = 0; from < LEN(kinds); from++)
        for (int to = 0; to < LEN(kinds); to++)
            for (int g = 0; g < LEN(kinds) && (to != PENDING || from == PENDING); g++) {
                sherd_tensor *x = filled(laid(world, kinds[from]), 1), *out;
                sherd_tensor *y =
                    sherd_redistribute(sherd_scale(x, 1), laid(world, kinds[to]), NULL);
                sherd_tensor *grad = indices_on(laid(world, kinds[g]), SHERD_F64);
                int64_t addends = g == PENDING ? sherd_world_ranks(world) : 1;
                sherd_gradients(&out, &x, 1, &y, 1, &(sherd_gradients_options){.gradients = &grad});
                CHECK_EQ(count_wrong(out, addends), 0);
                CHECK(sherd_tensor_layout(out) == laid(world, from == PENDING ? "R" : kinds[from]));
            }
    CHECK_OK(sherd_world_check(world));
}

/* P, P stays P: settled when it is asked for, not on the way. */
static void a_gradient_stays_pending_where_nothing_moved(sherd_world *world)
{
    sherd_tensor *x = filled(laid(world, "S(0)"), 3);
    sherd_tensor *b = sherd_require_grad(
        sherd_constant_on(layout_of(line(world), 1, (const int64_t[]){COLUMNS}, "R", NULL),
                          SHERD_F64, 0),
        true);
    sherd_tensor *eye =
        filled(layout_of(line(world), 2, (const int64_t[]){COLUMNS, COLUMNS}, "R", NULL), 1);

    sherd_comm_reset(world);
    sherd_backward(sherd_sum(sherd_linear(x, eye, b)));
    /* Replicated weights used by a sharded input: a pending sum, which nobody has settled. */
    CHECK_EQ(calls_of(world), 0);
    CHECK(sherd__raw_grad(b)->layout->pending_axes && sherd__raw_grad(eye)->layout->pending_axes);
    CHECK_EQ(others(sherd_grad(b), ROWS), 0);
    CHECK_EQ(others(sherd_grad(eye), 3 * ROWS), 0);
    CHECK_EQ(others(sherd_full(sherd_grad(b)), ROWS), 0);
    CHECK(sherd_tensor_layout(sherd_grad(b)) == sherd_tensor_layout(b));
    CHECK_OK(sherd_world_check(world));
}

/* As in DTensor and ShardTensor: each rank multiplies what it has by its number + 1. */
static void to_local_takes_gradients_as_it_is_told(sherd_world *world)
{
    const sherd_placement pending = sherd_partial(SHERD_SUM), row = sherd_shard(0),
                          whole = sherd_replicate(), unset = {SHERD_UNSET, 0, SHERD_SUM};
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    double all = ranks * (ranks + 1) / 2.0;
    const struct {
        const char *lies;
        const sherd_placement *gradient;
        double wanted;
    } cases[] = {{"S(0)", NULL, rank + 1},  {"S(0)", &row, rank + 1}, {"R", NULL, 1},
                 {"R", &whole, 1},          {"R", &pending, all},     {"P(sum)", NULL, 1},
                 {"P(sum)", &pending, all}, {"P(sum)", &whole, 1},    {"R", &unset, 1},
                 {"S(0)", &unset, rank + 1}};

    for (int c = 0; c < LEN(cases); c++) {
        sherd_tensor *x = filled(laid(world, cases[c].lies), 1);
        /* Without a pending sum the ranks must do the same with what is the same. */
        bool alike = strcmp(cases[c].lies, "S(0)") != 0 && cases[c].wanted == 1 && all != 1;
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_to_local_with(x, cases[c].gradient);
        sherd_backward(sherd_sum(times(y, alike ? 1 : rank + 1)));
        CHECK_EQ(calls_of(world), 0); /* it says how they lie, and moves nothing */
        CHECK_EQ(others(sherd_grad(x), cases[c].wanted), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* 2.9, third row, with the values of H9: 2, 2, 2W, 2W, 2; and what is left out there. */
static void from_local_gives_the_piece_of_the_forward(sherd_world *world)
{
    const double w = sherd_world_ranks(world);
    const struct {
        int from, g;
        bool stays; /* options.gradient is a pending sum */
        double wanted;
    } cases[] = {{1, 1, 0, 2},
                 {0, 0, 0, 2},
                 {0, PENDING, 0, 2 * w},
                 {PENDING, 0, 0, 2},
                 {PENDING, PENDING, 0, 2 * w},
                 {1, 0, 0, 2},
                 {1, PENDING, 0, 2 * w},
                 {1, 2, 0, 2},
                 {0, 1, 0, 2},
                 {PENDING, 1, 0, 2},
                 {0, PENDING, 1, 2},
                 {PENDING, PENDING, 1, 2}};

    for (int c = 0; c < LEN(cases); c++) {
        const sherd_layout *from = laid(world, kinds[cases[c].from]);
        const sherd_placement placement = sherd_layout_placement(from, 0),
                              pending = sherd_partial(SHERD_SUM);
        sherd_box box = sherd_tensor_box(sherd_constant_on(from, SHERD_F64, 1));
        double zeros[ROWS * COLUMNS] = {0};
        sherd_tensor *local = sherd_from_data(world, SHERD_F64, box.size, 2, zeros), *y;
        sherd_tensor *g = sherd__new_on(laid(world, kinds[cases[c].g]), SHERD_F64);
        for (int64_t i = 0; i < g->count; i++)
            ((double *)sherd__fresh(g))[i] = 2; /* on each rank, also of a pending sum */
        sherd_require_grad(local, true);
        y = sherd_from_local(local, line(world), &placement,
                             &(sherd_from_local_options){
                                 .shape = shape, .gradient = cases[c].stays ? &pending : NULL});
        sherd_comm_reset(world);
        sherd_backward_with(&y, &g, 1, NULL);
        CHECK(!cases[c].stays || calls_of(world) == 0);
        CHECK_EQ(others(sherd_grad(local), cases[c].wanted), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A gradient that is whole and is to be a pending sum counts once. */
static void a_whole_gradient_that_becomes_pending_counts_once(sherd_world *world)
{
    const sherd_placement whole = sherd_replicate(), pending = sherd_partial(SHERD_SUM);
    sherd_tensor *local = sherd_constant(world, SHERD_F64, shape, 2, 1), *y, *g, *total;

    sherd_require_grad(local, true);
    y = sherd_from_local(local, line(world), &whole,
                         &(sherd_from_local_options){.shape = shape, .gradient = &pending});
    g = sherd_constant_on(laid(world, "R"), SHERD_F64, 3);
    sherd_backward_with(&y, &g, 1, NULL);
    total = sherd_full(sherd_from_local(sherd_grad(local), line(world), &pending,
                                        &(sherd_from_local_options){.shape = shape}));
    CHECK_EQ(others(total, 3), 0);
    CHECK_OK(sherd_world_check(world));
}

/* 2.9, fourth row: what all ranks make of the whole is the same; or is added up. */
static void full_takes_gradients_as_it_is_told(sherd_world *world)
{
    const sherd_placement pending = sherd_partial(SHERD_SUM), whole = sherd_replicate();
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);

    for (int k = 0; k < LEN(kinds); k++)
        for (int told = 0; told < 3; told++) {
            const sherd_placement *gradient = told == 0 ? NULL : told == 1 ? &whole : &pending;
            sherd_tensor *x = filled(laid(world, kinds[k]), 1);
            sherd_tensor *y = sherd_full_with(x, gradient);
            sherd_backward(sherd_sum(times(y, told == 2 ? rank + 1 : 4)));
            CHECK_EQ(others(sherd_grad(x), told == 2 ? ranks * (ranks + 1) / 2.0 : 4), 0);
            CHECK(sherd_tensor_layout(sherd_grad(x)) == laid(world, k == PENDING ? "R" : kinds[k]));
        }
    CHECK_OK(sherd_world_check(world));
}

/* As in ShardTensor: a plain weight beside a sharded input gets the whole gradient, plain. */
static void a_promoted_weight_gets_the_whole_gradient(sherd_world *world)
{
    sherd_tensor *x = filled(laid(world, "S(0)"), 3), *w, *norm;

    w = sherd_require_grad(sherd_constant(world, SHERD_F64, shape, 2, 1), true);
    sherd_backward(sherd_sum(sherd_mul(x, sherd_mul(w, w))));
    CHECK(!sherd_tensor_layout(sherd_grad(w)));
    CHECK_EQ(others(sherd_grad(w), 6), 0);
    norm = sherd_require_grad(sherd_constant(world, SHERD_F64, (const int64_t[]){COLUMNS}, 1, 1),
                              true);
    sherd_backward(sherd_sum(sherd_layer_norm(x, norm, norm, 1e-5)));
    CHECK_EQ(others(sherd_grad(norm), ROWS), 0);
    CHECK_OK(sherd_world_check(world));
}

static void what_cannot_be_is_a_named_error(sherd_world *world)
{
    const sherd_placement pending = sherd_partial(SHERD_SUM), most = sherd_partial(SHERD_MAX),
                          row = sherd_shard(0);
    sherd_tensor *x = filled(laid(world, "S(0)"), 1), *r = filled(laid(world, "R"), 1);

    CHECK_OK(sherd_world_check(world));
    CHECK(sherd_tensor_failed(sherd_to_local_with(x, &pending)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "must shard it too") != NULL);
    CHECK(sherd_tensor_failed(sherd_to_local_with(r, &most)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "only a sum can be pending") != NULL);
    CHECK(sherd_tensor_failed(sherd_full_with(x, &row)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sharded as the tensor is") != NULL);
}

static const check_test tests[] = {
    {TEST(a_move_gives_back_where_it_came_from), {1, 2, 3, 4}},
    {TEST(a_gradient_stays_pending_where_nothing_moved), {2, 3, 4}},
    {TEST(to_local_takes_gradients_as_it_is_told), {1, 2, 3, 4, 8}},
    {TEST(from_local_gives_the_piece_of_the_forward), {1, 2, 3, 4, 8}},
    {TEST(a_whole_gradient_that_becomes_pending_counts_once), {1, 2, 3, 4}},
    {TEST(full_takes_gradients_as_it_is_told), {1, 2, 3, 4, 8}},
    {TEST(a_promoted_weight_gets_the_whole_gradient), {1, 2, 3, 4}},
    {TEST(what_cannot_be_is_a_named_error), {1, 2, 3}},
};
CHECK_MAIN(tests)
