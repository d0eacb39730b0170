/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ShardTensor's and hyper-parallel's own tests try on pending sums, reductions, views and
 * linear layers over uneven shards: the same operators on the plain tensor give the same numbers
 * and gradients, and the layouts are those expected; the right ones where theirs are wrong.
 */
#include <math.h>

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/values.h"
#include "tensors.h"

enum { MOST = 4096 };

#define SHAPE(...)                                           \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) \
    {                                                        \
        __VA_ARGS__                                          \
    }
#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static const char *text_of(sherd_tensor *t)
{
    return sherd_tensor_layout(t) ? sherd_layout_placements(sherd_tensor_layout(t)) : "plain";
}

/* The whole of a tensor; how many elements. */
static int64_t whole(sherd_tensor *t, double *out)
{
    int64_t n = t && !sherd_tensor_failed(t) ? sherd_tensor_count(sherd_full(sherd_detach(t))) : -1;

    return sherd_full_read(out, MOST * sizeof *out, t, SHERD_F64, -1) ? n : -1;
}

static bool same(sherd_tensor *a, sherd_tensor *b)
{
    static _Thread_local double x[MOST], y[MOST];
    int64_t n = whole(a, x), m = whole(b, y);
    double worst = n == m && n >= 0 ? 0 : INFINITY;

    for (int64_t i = 0; i < n && n == m; i++) {
        double error = fabs(x[i] - y[i]) / (1 + fabs(y[i]));
        worst = error > worst || isnan(error) ? error : worst;
    }
    return CHECK(worst < 1e-11);
}

/* Numbers that differ, as a plain leaf that is equal on all ranks. */
static sherd_tensor *numbers(sherd_world *world, int ndim, const int64_t *shape)
{
    static _Thread_local double data[MOST];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int64_t i = 0; i < n; i++)
        data[i] = sin(0.7 * (double)(i + 1)) + 0.01 * (double)(i % 13);
    return sherd_require_grad(
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, ndim, data)), true);
}

static sherd_tensor *spread(sherd_tensor *t, const sherd_mesh *mesh, const char *how)
{
    return sherd_distribute_as(t, mesh, how, -1);
}

/* ---- 3C: pending sums ----------------------------------------------------------------------- */

/* A piece of this rank's own: its number + 1 everywhere. */
static sherd_tensor *mine(sherd_world *world, int ndim, const int64_t *shape)
{
    double data[MOST];

    for (int i = 0; i < MOST; i++)
        data[i] = sherd_world_rank(world) + 1;
    return sherd_from_data(world, SHERD_F64, shape, ndim, data);
}

static const sherd_placement sums[] = {{SHERD_PARTIAL, 0, SHERD_SUM},
                                       {SHERD_PARTIAL, 0, SHERD_SUM}};

/* Of [8,8], pending on all axes. */
static sherd_tensor *ranks_to_add(sherd_world *world, const sherd_mesh *mesh)
{
    return sherd_from_local(sherd_require_grad(mine(world, SHAPE(8, 8)), true), mesh, sums, NULL);
}

static int64_t others(sherd_tensor *t, double value)
{
    const double *x = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    int64_t n = 1, wrong = x ? 0 : 1;

    for (int d = 0; d < box.ndim; d++)
        n *= box.size[d];
    for (int64_t i = 0; x && i < n; i++)
        wrong += x[i] != value;
    return wrong;
}

static const sherd_mesh *mesh_number(sherd_world *world, int i)
{
    char text[32];
    int ranks = sherd_world_ranks(world);

    snprintf(text, sizeof text, i ? "x=2,y=%d" : "x=%d", i ? ranks / 2 : ranks);
    return mesh_of(world, text);
}

/* 36 to 39: n (n + 1) / 2 however it is settled; gradients of addends are whole, ones, and never
 * pending. */
static void a_pending_sum_is_its_sum(sherd_world *world)
{
    int n = sherd_world_ranks(world);
    double sum = n * (n + 1) / 2;

    for (int i = 0; i < 2; i++) {
        const sherd_mesh *mesh = mesh_number(world, i);
        for (int way = 0; way < 5; way++) {
            static const char *const to[2][2] = {{"R", "S(0)"}, {"RR", "S(0)R"}};
            sherd_tensor *p = ranks_to_add(world, mesh), *q = sherd_scale(p, 1), *out, *y;
            if (way < 3) {
                y = sherd_redistribute_to(q, to[i][way == 1], NULL);
                CHECK_EQ(others(y, sum), 0);
                CHECK_EQ(sherd_tensor_size(y, 0), way != 1 ? 8 : 8 / sherd_mesh_extent(mesh, 0));
                y = way == 2 ? sherd_sum(sherd_to_local(y)) : sherd_sum(y);
            } else {
                y = way == 3 ? sherd_sum(sherd_to_local(q)) : sherd_sum(q);
            }
            sherd_gradients(&out, &q, 1, &y, 1, NULL);
            CHECK_TEXT(text_of(out), i ? "RR" : "R");
            CHECK_EQ(others(out, 1), 0);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

/* 40: each rank multiplies what all have by its own number: the gradients that come back are a
 * pending sum. */
static void gradients_of_what_ranks_do_alone_add_up(sherd_world *world)
{
    int n = sherd_world_ranks(world);

    for (int i = 0; i < 2; i++) {
        sherd_tensor *x = sherd_require_grad(
            spread(numbers(world, SHAPE(8, 4)), mesh_number(world, i), i ? "RR" : "R"), true);
        sherd_tensor *y = sherd_to_local_with(x, sums);
        sherd_backward(sherd_sum(sherd_mul(y, mine(world, 0, NULL))));
        CHECK_EQ(others(sherd_to_local(sherd_grad(x)), n * (n + 1) / 2), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* 41, 42: a weight that all have gets the gradient of all rows: pending until asked for, or plain
 * and complete. */
static void weights_get_the_gradient_of_all_rows(sherd_world *world)
{
    for (int i = 0; i < 4; i++) {
        const sherd_mesh *mesh = mesh_number(world, i % 2);
        sherd_tensor *x = numbers(world, SHAPE(2, 6, 8, 3)), *w = numbers(world, SHAPE(3));
        sherd_tensor *pieces = spread(x, mesh, i % 2 ? "S(1)S(2)" : "S(1)");
        sherd_tensor *own =
            i < 2 ? spread(w, mesh, i % 2 ? "RR" : "R")
                  : sherd_require_grad(sherd_mark_equal(sherd_clone(sherd_detach(w))), true);
        sherd_backward(sherd_sum(sherd_mul(x, w)));
        sherd_comm_reset(world);
        sherd_backward(sherd_sum(sherd_full(sherd_mul(pieces, own))));
        CHECK((sherd_tensor_layout(sherd_grad(own)) == NULL) == (i >= 2));
        same(sherd_grad(own), sherd_grad(w));
        same(sherd_grad(pieces), sherd_grad(x));
    }
    CHECK_OK(sherd_world_check(world));
}

/* 43, 44: sums over sharded dims are pending, and a pending gradient of them is settled. */
static void sums_over_shards_are_pending(sherd_world *world)
{
    int n = sherd_world_ranks(world);

    for (int i = 0; i < 2; i++) {
        const sherd_mesh *mesh = mesh_number(world, i);
        sherd_tensor *x = numbers(world, SHAPE(2, 16, 8, 3)), *g;
        sherd_tensor *pieces = spread(x, mesh, i ? "S(1)S(2)" : "S(1)");
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_sum_over(pieces, i ? (int[]){1, 2} : (int[]){1}, 1 + i, false);
        CHECK_EQ(sherd_comm_calls(world, NULL), 0);
        CHECK_TEXT(text_of(y), i ? "P(sum)P(sum)" : "P(sum)");
        same(y, sherd_sum_over(x, i ? (int[]){1, 2} : (int[]){1}, 1 + i, false));
        g = sherd_from_local(mine(world, sherd_tensor_ndim(y), sherd_tensor_shape(y)), mesh, sums,
                             NULL);
        sherd_backward_with(&y, &g, 1, NULL);
        CHECK(sherd_tensor_layout(sherd_grad(pieces)) == sherd_tensor_layout(pieces));
        CHECK_EQ(others(sherd_grad(pieces), n * (n + 1) / 2), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* 46: 5 rows on 4 ranks are 2, 2, 1 and none, also out of a sum. */
static void a_sum_is_scattered_by_the_one_chunk_rule(sherd_world *world)
{
    static const int64_t rows[] = {2, 2, 1, 0};
    const sherd_layout *sum = layout_of(mesh_of(world, "x=4"), SHAPE(5, 3), "P(sum)", NULL);
    sherd_tensor *y = sherd_redistribute_to(indices_on(sum, SHERD_F64), "S(0)", NULL);

    CHECK_EQ(sherd_tensor_size(y, 0), rows[sherd_world_rank(world)]);
    CHECK_EQ(count_wrong(y, 4), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- 3D: reductions ------------------------------------------------------------------------- */

/* 47, 48, 53: each element counts once, whatever the sizes; also where a rank has none. */
static void a_mean_weighs_by_counts(sherd_world *world)
{
    static const struct {
        int64_t n;
        const char *how;
        double mean;
    } cases[] = {
        {52, "S(0) 0:4,10,16,22", 25.5}, {5, "S(0) 0:3,0,2,0", 2}, {1, "S(0) 0:0,0,0,1", 0}};
    const sherd_mesh *mesh = mesh_of(world, "x=4");

    for (int i = 0; i < LEN(cases); i++) {
        sherd_tensor *x = sherd_arange(world, SHERD_F64, 0, (double)cases[i].n, 1);
        x = sherd_require_grad(spread(x, mesh, cases[i].how), true);
        sherd_tensor *y = sherd_mean(x);
        CHECK_NEAR(sherd_item(y), cases[i].mean, 1e-13);
        sherd_backward(y);
        CHECK(sherd_tensor_layout(sherd_grad(x)) == sherd_tensor_layout(x));
        CHECK_EQ(others(sherd_grad(x), 1.0 / (double)cases[i].n), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A reduction of a leaf, and its gradient, sharded as plain. */
static bool reduces_alike(sherd_tensor *x, sherd_tensor *y, sherd_tensor *pieces, sherd_tensor *z)
{
    bool good = same(z, y);

    sherd_backward(sherd_sum(sherd_mul(y, y)));
    sherd_backward(sherd_sum(sherd_mul(z, z)));
    good &= same(sherd_grad(pieces), sherd_grad(x));
    good &= CHECK(sherd_tensor_layout(sherd_grad(pieces)) == sherd_tensor_layout(pieces));
    sherd_clear_grad(x);
    sherd_clear_grad(pieces);
    return good;
}

/* 49, 52: sums and means over some dims or all, with and without keeping them; a shard that stays
 * keeps its dim. */
static void sums_and_means_are_those_of_the_whole(sherd_world *world)
{
    static const struct {
        int dims[2], count;
        const char *kept, *left;
    } cases[] = {{{0}, 0, "P(sum)", "P(sum)"},
                 {{0}, 1, "S(1)", "S(0)"},
                 {{0, 1}, 2, "P(sum)", "P(sum)"},
                 {{2, 0}, 2, "S(1)", "S(0)"},
                 {{-1}, 1, "S(1)", "S(1)"}};
    static const char *const how[] = {"S(1)", "S(1) 1:1,0,6,1"};
    const sherd_mesh *mesh = mesh_of(world, "x=4");

    for (int i = 0; i < LEN(cases); i++)
        for (int keep = 0; keep < 2; keep++)
            for (int h = 0; h < LEN(how); h++) {
                sherd_tensor *x = numbers(world, SHAPE(2, 8, 6)), *p = spread(x, mesh, how[h]);
                const int *dims = cases[i].dims, n = cases[i].count;
                sherd_tensor *sum = sherd_sum_over(p, dims, n, keep);
                CHECK_TEXT(text_of(sum), keep ? cases[i].kept : cases[i].left);
                reduces_alike(x, sherd_sum_over(x, dims, n, keep), p, sum);
                reduces_alike(x, sherd_mean_over(x, dims, n, keep), p,
                              sherd_mean_over(p, dims, n, keep));
            }
    CHECK_OK(sherd_world_check(world));
}

/* 50: the mean, over some, of weighed squares. */
static sherd_tensor *masked_error(sherd_tensor *o, sherd_tensor *t)
{
    sherd_tensor *mask = sherd_cast(sherd_gt_scalar(t, 0), SHERD_F64), *d = sherd_sub(o, t);
    sherd_tensor *sum = sherd_sum_over(sherd_mul(mask, sherd_mul(d, d)), DIMS(1), false);

    return sherd_mean(sherd_div(sum, sherd_sum(mask)));
}

static void a_masked_mean_is_that_of_the_whole(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=4");
    sherd_tensor *o = numbers(world, SHAPE(2, 40, 5)), *pieces = spread(o, mesh, "S(1) 1:9,0,30,1");
    sherd_tensor *t = sherd_scale(sherd_detach(numbers(world, SHAPE(2, 5, 40))), -0.7), *target;

    t = sherd_contiguous(sherd_transpose(t, 1, 2));
    target = spread(t, mesh, "S(1) 1:9,0,30,1");
    sherd_tensor *plain = masked_error(o, t), *loss = masked_error(pieces, target);
    CHECK_NEAR(sherd_item(loss), sherd_item(plain), 1e-13);
    sherd_backward(plain);
    sherd_backward(loss);
    same(sherd_grad(pieces), sherd_grad(o));
    CHECK_OK(sherd_world_check(world));
}

/* 51, 55: extremes and products, of sharded dims too, and their places. */
static void extremes_are_those_of_the_whole(sherd_world *world)
{
    static const char *const how[] = {"S(1)R", "S(0)S(1)", "S(0)R", "S(1)S(0)", "S(0)S(0)"};
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");

    for (int h = 0; h < LEN(how); h++)
        for (int dim = 0; dim < 3; dim++) {
            int count = dim < 2; /* else all of them */
            sherd_tensor *x = numbers(world, SHAPE(8, 7)), *p = spread(x, mesh, how[h]);
            reduces_alike(x, sherd_max(x, &dim, count, false), p, sherd_max(p, &dim, count, false));
            reduces_alike(x, sherd_min(x, &dim, count, true), p, sherd_min(p, &dim, count, true));
            reduces_alike(x, sherd_prod(x, &dim, count, false), p,
                          sherd_prod(p, &dim, count, false));
            same(sherd_argmax(p, &dim, count, false), sherd_argmax(x, &dim, count, false));
        }
    CHECK_OK(sherd_world_check(world));
}

/* 54: which axes stay, and which become pending, on three axes. */
static void axes_of_dims_that_go_become_pending(sherd_world *world)
{
    static const struct {
        const char *from;
        int dims[2], count;
        bool keep;
        const char *to;
    } cases[] = {{"S(0)S(1)S(2)", {1}, 1, false, "S(0)P(sum)S(1)"},
                 {"S(0)S(1)S(2)", {0, 2}, 2, true, "P(sum)S(1)P(sum)"},
                 {"S(0)S(1)S(2)", {0}, 0, false, "P(sum)P(sum)P(sum)"},
                 {"S(1)S(1)S(2)", {0, 2}, 2, false, "S(0)S(0)P(sum)"},
                 {"S(1)S(1)S(2)", {0, 1}, 2, false, "P(sum)P(sum)S(0)"}};
    const sherd_mesh *mesh = mesh_of(world, "dp=2,cp=2,mp=2");

    for (int i = 0; i < LEN(cases); i++) {
        sherd_tensor *x = numbers(world, SHAPE(3, 5, 4)), *p = spread(x, mesh, cases[i].from);
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_sum_over(p, cases[i].dims, cases[i].count, cases[i].keep);
        CHECK_EQ(sherd_comm_calls(world, NULL), 0);
        CHECK_TEXT(text_of(y), cases[i].to);
        reduces_alike(x, sherd_sum_over(x, cases[i].dims, cases[i].count, cases[i].keep), p, y);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- 3F: views, parts, linear --------------------------------------------------------------- */

/* 73 to 76: an order of elements that is never changed; shards stay where they can, and else
 * move. */
static void views_keep_the_order_of_elements(sherd_world *world)
{
    static const struct {
        const char *how;
        int ndim;
        int64_t shape[4];
        int to_ndim;
        int64_t to[4];
        const char *text;
        bool moves;
    } cases[] = {
        {"S(1)", 4, {4, 16, 8, 4}, 3, {4, 16, 32}, "S(1)", false},
        {"S(1)", 3, {4, 16, 32}, 4, {4, 16, 8, 4}, "S(1)", false},
        {"S(0)", 3, {4, 16, 8}, 2, {4, -1}, "S(0)", false},
        {"S(1)", 3, {4, 16, 8}, 2, {4, -1}, "S(1)", false},
        {"S(1)", 4, {4, 16, 8, 4}, 3, {4, -1, 32}, "S(1)", false},
        {"S(0)", 1, {48}, 3, {8, 6, 1}, "S(0)", false},
        {"S(1) 1:9,0,3,4", 3, {4, 16, 8}, 2, {4, 128}, "S(1)", false},
        {"S(1)", 2, {4, 4}, 1, {16}, "S(0)", true},          /* 75: theirs are in another order */
        {"S(0) 0:5,1,0,0", 1, {6}, 2, {3, 2}, "S(0)", true}, /* 76: theirs hang */
        {"S(0)", 2, {2, 0}, 2, {1, 0}, NULL, false},
        {"S(0)", 3, {2, 0, 3}, 3, {1, 0, 3}, NULL, false},
    };
    const sherd_mesh *mesh = mesh_of(world, "x=4");

    for (int i = 0; i < LEN(cases); i++) {
        sherd_tensor *x = numbers(world, cases[i].ndim, cases[i].shape);
        sherd_tensor *p = spread(x, mesh, cases[i].how);
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_view(p, cases[i].to, cases[i].to_ndim);
        CHECK_EQ(sherd_comm_calls(world, NULL) > 0, cases[i].moves);
        if (cases[i].text)
            CHECK_TEXT(text_of(y), cases[i].text);
        sherd_tensor *z = sherd_view(x, cases[i].to, cases[i].to_ndim);
        if (!reduces_alike(x, sherd_cumsum(z, -1), p, sherd_cumsum(y, -1)))
            fprintf(stderr, "  view %d\n", i);
    }
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *p = spread(numbers(world, SHAPE(2, 3)), mesh, "S(0)");
    CHECK(sherd_tensor_failed(sherd_view(p, (int64_t[]){5}, 1)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the new shape has 5 elements, not 6") != NULL);
    p = spread(numbers(world, SHAPE(2, 0)), mesh, "S(0)");
    CHECK(sherd_tensor_failed(sherd_view(p, (int64_t[]){1, 10}, 2)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the new shape has 10 elements, not 0") != NULL);
}

/* 78: dims more, one index of a dim (a sharded one too), and indices in any order. */
static void parts_are_those_of_the_whole(sherd_world *world)
{
    const int32_t at[] = {7, 0, 3, 3, 11, 1};
    static const char *const how[] = {"S(0)", "S(1)", "S(2)", "S(0) 0:1,0,10,1"};
    const sherd_mesh *mesh = mesh_of(world, "x=4");
    sherd_tensor *index =
        sherd_mark_equal(sherd_from_data(world, SHERD_I32, (int64_t[]){6}, 1, at));

    for (int h = 0; h < LEN(how); h++) {
        sherd_tensor *x = numbers(world, SHAPE(12, 12, 12)), *p = spread(x, mesh, how[h]);
        for (int dim = -4; dim < 4; dim++)
            reduces_alike(x, sherd_unsqueeze(x, dim), p, sherd_unsqueeze(p, dim));
        for (int dim = -3; dim < 3; dim++) {
            reduces_alike(x, sherd_select(x, dim, 2), p, sherd_select(p, dim, 2));
            reduces_alike(x, sherd_select(x, dim, -1), p, sherd_select(p, dim, -1));
            reduces_alike(x, sherd_index_select(x, dim, index), p,
                          sherd_index_select(p, dim, index));
        }
    }
    CHECK_OK(sherd_world_check(world));
}

/* 79: rows of any number stay where they are; the weight's gradient is that of all. */
static void linear_layers_keep_the_sizes_of_shards(sherd_world *world)
{
    static const struct {
        int ndim;
        int64_t shape[4];
        const char *how;
    } cases[] = {{3, {1, 48, 8}, "S(1)"},
                 {3, {1, 45, 8}, "S(1)"},
                 {3, {1, 45, 8}, "S(1) 1:4,0,30,11"},
                 {4, {1, 11, 4, 8}, "S(1)"}};
    const sherd_mesh *mesh = mesh_of(world, "x=4");

    for (int i = 0; i < 2 * LEN(cases); i++) {
        int ndim = cases[i / 2].ndim;
        sherd_tensor *x = numbers(world, ndim, cases[i / 2].shape);
        sherd_tensor *p = spread(x, mesh, cases[i / 2].how);
        sherd_tensor *w = numbers(world, SHAPE(32, 8)), *v = spread(w, mesh, "R");
        sherd_tensor *b = i % 2 ? numbers(world, SHAPE(32)) : NULL,
                     *c = b ? spread(b, mesh, "R") : NULL;
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_linear(p, v, c);
        CHECK_EQ(sherd_comm_calls(world, NULL), 0);
        CHECK_TEXT(text_of(y), "S(1)");
        CHECK_EQ(sherd_tensor_size(y, 1), sherd_tensor_size(p, 1));
        reduces_alike(x, sherd_linear(x, w, b), p, y);
        same(sherd_grad(v), sherd_grad(w));
        if (b)
            same(sherd_grad(c), sherd_grad(b));
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_pending_sum_is_its_sum), {2, 4, 8}},
    {TEST(gradients_of_what_ranks_do_alone_add_up), {2, 4, 8}},
    {TEST(weights_get_the_gradient_of_all_rows), {2, 4}},
    {TEST(sums_over_shards_are_pending), {2, 4, 8}},
    {TEST(a_sum_is_scattered_by_the_one_chunk_rule), {4}},
    {TEST(a_mean_weighs_by_counts), {4}},
    {TEST(sums_and_means_are_those_of_the_whole), {4}},
    {TEST(a_masked_mean_is_that_of_the_whole), {4}},
    {TEST(extremes_are_those_of_the_whole), {4}},
    {TEST(axes_of_dims_that_go_become_pending), {8}},
    {TEST(views_keep_the_order_of_elements), {4}},
    {TEST(parts_are_those_of_the_whole), {4}},
    {TEST(linear_layers_keep_the_sizes_of_shards), {4}},
};
CHECK_MAIN(tests)
