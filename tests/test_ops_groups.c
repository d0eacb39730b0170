/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows in groups: a mixture of experts on drawn meshes and layouts gives the numbers and gradients
 * of the same mixture made of plain einsums over gathered weights; where rows lie, and what moves.
 */
#include "groups.h"

#include "sherd/autocast.h"
#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_groups.h"
#include "sherd/ops_reductions.h"

typedef struct mixture {
    sherd_tensor *x, *up, *bias, *down, *scores, *choice;
} mixture;

enum { PARTS = 5 }; /* those with gradients */

static sherd_tensor **part(mixture *m, int i)
{
    sherd_tensor **all[] = {&m->x, &m->up, &m->bias, &m->down, &m->scores};

    return all[i];
}

static mixture draw_mixture(scene *s, sherd_dtype dtype)
{
    int64_t tokens = roll(&s->dice, 20), k = 1 + roll(&s->dice, 3), width = 1 + roll(&s->dice, 5);
    int64_t groups = 1 + roll(&s->dice, 9), hidden = 1 + roll(&s->dice, 6);

    return (mixture){.x = numbers(s, dtype, 2, (int64_t[]){tokens, width}, 5),
                     .up = numbers(s, dtype, 3, (int64_t[]){groups, hidden, width}, 5),
                     .bias = numbers(s, dtype, 2, (int64_t[]){groups, hidden}, 5),
                     .down = numbers(s, dtype, 3, (int64_t[]){groups, hidden, width}, 5),
                     .scores = numbers(s, dtype, 2, (int64_t[]){tokens, k}, 5),
                     .choice = numbers(s, SHERD_I32, 2, (int64_t[]){tokens, k}, (int)groups)};
}

/* down of relu of up, of the chosen groups: the formula, over weights gathered for each token. */
static sherd_tensor *formula(const mixture *m)
{
    int64_t n = sherd_tensor_count(m->choice), hidden = m->up->shape[1], width = m->up->shape[2];
    int64_t tokens = m->choice->shape[0], k = m->choice->shape[1];
    sherd_tensor *index = sherd_view(m->choice, &n, 1);
    const int64_t of_token[] = {tokens, k, hidden, width};
    sherd_tensor *up = sherd_view(sherd_index_select(m->up, 0, index), of_token, 4);
    sherd_tensor *down = sherd_view(sherd_index_select(m->down, 0, index), of_token, 4);
    sherd_tensor *bias = sherd_view(sherd_index_select(m->bias, 0, index), of_token, 3);
    sherd_tensor *h = sherd_einsum("tkhw,tw->tkh", (sherd_tensor *[]){up, m->x}, 2);

    h = sherd_relu(sherd_add(h, bias));
    return sherd_einsum("tkhw,tkh,tk->tw", (sherd_tensor *[]){down, h, m->scores}, 3);
}

static sherd_tensor *by_groups(const mixture *m)
{
    sherd_groups to;

    sherd_group_rows(&to, m->choice, m->up);
    sherd_tensor *rows = sherd_dispatch(m->x, &to);
    rows = sherd_relu(sherd_grouped_linear(rows, m->up, m->bias, to.ends, to.group));
    rows = sherd_grouped_matmul(rows, m->down, to.ends, to.group);
    return sherd_combine(rows, &to, m->scores);
}

static void take_gradients(mixture *m, sherd_tensor *y, sherd_tensor *dy)
{
    sherd_backward_with(&y, &dy, 1, NULL);
    for (int i = 0; i < PARTS; i++)
        *part(m, i) = sherd_grad(*part(m, i));
}

static bool check_mixture(scene *s, const sherd_mesh *mesh, sherd_dtype dtype)
{
    mixture plain = draw_mixture(s, dtype), m = {.choice = spread(s, mesh, plain.choice)};
    bool good = true;

    for (int i = 0; i < PARTS; i++) {
        *part(&m, i) = sherd_require_grad(spread(s, mesh, *part(&plain, i)), true);
        sherd_require_grad(*part(&plain, i), true);
    }
    const mixture laid = m;
    sherd_tensor *want = formula(&plain), *y = by_groups(&m);
    good = CHECK(!sherd_tensor_failed(y)) && CHECK_EQ(different(y, want), 0);
    sherd_tensor *dy = numbers(s, dtype, 2, want->shape, 5);
    take_gradients(&plain, want, dy);
    take_gradients(&m, y, dy);
    for (int i = 0; i < PARTS; i++)
        good = CHECK_EQ(different(*part(&m, i), *part(&plain, i)), 0) && good;
    if (!good)
        fprintf(stderr, "%s by %s: x %s, weights %s\n", sherd_tensor_text(laid.choice),
                sherd_tensor_text(laid.scores), sherd_tensor_text(laid.x),
                sherd_tensor_text(laid.up));
    return good;
}

static void every_layout_is_as_the_formula(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 2000 : 30;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        sherd_scope_begin(world);
        check_mixture(&s, mesh, i % 4 ? SHERD_F64 : SHERD_F32);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- what moves ------------------------------------------------------------------------------ */

/* Bytes and calls since the last look. */
typedef struct moved {
    int64_t bytes, calls;
} moved;

static moved look(sherd_world *world)
{
    moved m = {0, sherd_comm_calls(world, NULL)};

    for (int i = 0; i < sherd_comm_count(world); i++)
        m.bytes += sherd_comm_get(world, i).bytes_received;
    sherd_comm_reset(world);
    return m;
}

/* Rows of the groups of shard `at` of `of`, whose tokens are in shard `from`. */
static int64_t rows_between(int64_t from, int64_t at, int64_t of)
{
    int64_t rows = 0;

    for (int64_t t = from * TOKENS / of; t < (from + 1) * TOKENS / of; t++)
        for (int64_t j = 0; j < K; j++)
            rows += chosen(t, j) / (GROUPS / of) == at;
    return rows;
}

/* One call brings the choices to all; then each direction of rows is one, of just these rows. */
static void what_moves_is_the_rows(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), me = sherd_world_rank(world);
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t row = WIDTH * (int64_t)sizeof(float), in = 0, out = 0;
    sherd_tensor *choice = choices_on(world, mesh, "S(0)");
    sherd_tensor *x = ones_on(mesh, 2, (int64_t[]){TOKENS, WIDTH}, "S(0)");
    sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){GROUPS, WIDTH, WIDTH}, "S(0)");
    sherd_groups to;

    for (int r = 0; r < ranks; r++) {
        in += r == me ? 0 : rows_between(r, me, ranks);
        out += r == me ? 0 : rows_between(me, r, ranks);
    }
    sherd_comm_reset(world);
    CHECK(sherd_group_rows(&to, choice, w));
    moved m = look(world);
    CHECK_EQ(m.calls, 1);
    CHECK_EQ(m.bytes, (int64_t)TOKENS * K * 4 * (ranks - 1) / ranks);
    sherd_tensor *rows = sherd_dispatch(x, &to);
    m = look(world);
    CHECK_EQ(m.calls, 1);
    CHECK_EQ(m.bytes, in * row);
    sherd_tensor *y = sherd_grouped_linear(rows, w, NULL, to.ends, to.group);
    CHECK_EQ(look(world).calls, 0);
    y = sherd_combine(y, &to, NULL);
    m = look(world);
    CHECK_EQ(m.calls, 1);
    CHECK_EQ(m.bytes, out * row);
    sherd_tensor *dy = sherd_constant_on(sherd_tensor_layout(y), SHERD_F32, 1);
    sherd_backward_with(&y, &dy, 1, NULL);
    m = look(world);
    CHECK_EQ(m.calls, 2);
    CHECK_EQ(m.bytes, (in + out) * row);
    CHECK_OK(sherd_world_check(world));
}

/* Tokens of another axis stay on it, and nothing moves if groups are not sharded. */
static void rows_move_along_the_axes_of_groups_only(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,ep=2");
    const int64_t tokens[] = {TOKENS, WIDTH}, weights[] = {GROUPS, 4, WIDTH};
    int me = sherd_world_rank(world), part = me % 2, rows = 0;
    sherd_tensor *choice = choices_on(world, mesh, "S(0)S(0)");
    sherd_tensor *x = ones_on(mesh, 2, tokens, "S(0)S(0)");
    sherd_tensor *all = ones_on(mesh, 3, weights, "RR"), *w = ones_on(mesh, 3, weights, "RS(0)");
    sherd_groups to;

    CHECK(sherd_group_rows(&to, choice, all));
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_dispatch(x, &to);
    y = sherd_combine(sherd_grouped_linear(y, all, NULL, to.ends, to.group), &to, NULL);
    CHECK_EQ(look(world).calls, 0);
    CHECK(sherd_group_rows(&to, choice, w));
    (void)look(world);
    y = sherd_grouped_linear(sherd_dispatch(x, &to), w, NULL, to.ends, to.group);
    CHECK(strstr(sherd_tensor_text(y), "48(ep,dp") != NULL);
    for (int64_t t = (me ^ 1) * TOKENS / 4; t < (me ^ 1) * TOKENS / 4 + TOKENS / 4; t++)
        for (int64_t j = 0; j < K; j++)
            rows += chosen(t, j) / (GROUPS / 2) == part;
    CHECK_EQ(look(world).bytes, (int64_t)rows * WIDTH * 4);
    CHECK_OK(sherd_world_check(world));
}

/* Rows that are not where their groups are go there, and a wrong order of runs is computed too. */
static void rows_elsewhere_are_moved(sherd_world *world)
{
    static const int32_t ends[] = {1, 4, 4, 6}, turned[] = {3, 2, 1, 0};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *end =
        sherd_mark_equal(sherd_from_data(world, SHERD_I32, (int64_t[]){4}, 1, ends));
    sherd_tensor *group =
        sherd_mark_equal(sherd_from_data(world, SHERD_I32, (int64_t[]){4}, 1, turned));
    const int64_t rows[] = {6, 3}, weights[] = {4, 3, 2};
    sherd_tensor *x = indices_on(layout_of(mesh, 2, rows, "S(0)", NULL), SHERD_F64);
    sherd_tensor *w = indices_on(layout_of(mesh, 3, weights, "S(0)", NULL), SHERD_F64);
    sherd_tensor *plain_x = indices_plain(world, SHERD_F64, 2, rows);
    sherd_tensor *plain_w = indices_plain(world, SHERD_F64, 3, weights);

    for (int i = 0; i < 2; i++) {
        sherd_tensor *g = i ? group : NULL;
        sherd_tensor *y = sherd_grouped_matmul(x, w, end, g);
        CHECK_EQ(different(y, sherd_grouped_matmul(plain_x, plain_w, end, g)), 0);
        if (!g)
            CHECK_EQ(sherd_tensor_layout(y)->pending_axes, 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Features that another axis shards unevenly, and not at all on one rank: rows have other lengths there. */
static void rows_may_be_of_uneven_length(sherd_world *world)
{
    static const int64_t tokens = 20000, x_shape[] = {20000, 3}, w_shape[] = {4, 5, 3};
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=4");
    int32_t choice[20000];
    sherd_groups to;

    for (int32_t i = 0; i < tokens; i++)
        choice[i] = i % 50 ? (i >= tokens / 2) * 2 : i % 4; /* few go elsewhere */
    sherd_tensor *c = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &tokens, 1, choice));
    c = sherd_distribute(c, layout_of(mesh, 1, &tokens, "S(0)R", NULL), -1);
    CHECK(sherd_group_rows(&to, c, ones_on(mesh, 3, w_shape, "S(0)R")));
    sherd_tensor *x = indices_on(layout_of(mesh, 2, x_shape, "S(0)S(1)", NULL), SHERD_F64);
    CHECK_EQ(different(sherd_combine(sherd_dispatch(x, &to), &to, NULL), sherd_full(x)), 0);
    CHECK_OK(sherd_world_check(world));
}

/* A rank that is not in the mesh makes the same calls, and has nothing. */
static void a_rank_outside_the_mesh_goes_along(sherd_world *world)
{
    scene s = {.world = world, .dice = 3};
    const sherd_mesh *mesh = mesh_of(world, "2");
    bool inside = sherd_world_rank(world) < 2;

    for (int i = 0; i < 20; i++) {
        sherd_scope_begin(world);
        mixture plain = draw_mixture(&s, SHERD_F64), m = {.choice = spread(&s, mesh, plain.choice)};
        for (int j = 0; j < PARTS; j++)
            *part(&m, j) = sherd_require_grad(spread(&s, mesh, *part(&plain, j)), true);
        sherd_tensor *want = formula(&plain), *y = sherd_full(by_groups(&m));
        if (inside)
            CHECK_EQ(different(y, want), 0);
        sherd_backward(sherd_sum(y));
        for (int j = 0; j < PARTS; j++)
            CHECK(sherd_grad(*part(&m, j)) != NULL);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

static void halves_are_close(sherd_world *world)
{
    scene s = {.world = world, .dice = 7};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 6; i++) {
        sherd_dtype half = i % 2 ? SHERD_F16 : SHERD_BF16;
        sherd_scope_begin(world);
        mixture plain = draw_mixture(&s, SHERD_F64), m = {.choice = spread(&s, mesh, plain.choice)};
        for (int j = 0; j < PARTS; j++)
            *part(&m, j) =
                sherd_require_grad(spread(&s, mesh, sherd_cast(*part(&plain, j), half)), true);
        sherd_tensor *want = formula(&plain), *y = by_groups(&m),
                     *dy = sherd_constant_on(sherd_tensor_layout(y), half, 1);
        const double *right = sherd_tensor_read(want);
        const float *got = sherd_tensor_read(sherd_full(sherd_cast(y, SHERD_F32)));
        for (int64_t e = 0; e < want->count; e++)
            CHECK(fabs(got[e] - right[e]) <= 0.02 * fabs(right[e]) + 2);
        sherd_backward_with(&y, &dy, 1, NULL);
        for (int j = 0; j < PARTS; j++)
            CHECK_EQ(sherd_tensor_dtype(sherd_grad(*part(&m, j))), half);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Under autocast the gradients of f32 weights are not rounded to 16 bits. */
static void autocast_keeps_gradients_wide(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *choice = choices_on(world, mesh, "S(0)");
    sherd_tensor *x = ones_on(mesh, 2, (int64_t[]){TOKENS, 3}, "S(0)");
    sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){GROUPS, 5, 3}, "S(0)");
    sherd_groups to;

    sherd_set_autocast(world, SHERD_BF16);
    sherd_group_rows(&to, choice, w);
    sherd_tensor *y = sherd_grouped_linear(sherd_dispatch(x, &to), w, NULL, to.ends, to.group);
    CHECK_EQ(sherd_tensor_dtype(y), SHERD_BF16);
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    sherd_tensor *dy =
        sherd_cast(sherd_constant_on(sherd_tensor_layout(y), SHERD_F32, 1 + 1.0 / 128), SHERD_BF16);
    sherd_backward_with(&y, &dy, 1, NULL);
    const float *dw = sherd_tensor_read(sherd_full(sherd_grad(w)));
    /* Six rows of each group: 6 * (1 + 1/128) has nine bits. */
    for (int i = 0; dw && i < GROUPS * 15; i++)
        CHECK_NEAR(dw[i], 6 + 6.0 / 128, 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(every_layout_is_as_the_formula), {1, 2, 3, 4, 8}},
    {TEST(what_moves_is_the_rows), {2, 4, 8}},
    {TEST(rows_move_along_the_axes_of_groups_only), {4}},
    {TEST(rows_elsewhere_are_moved), {1, 2, 3, 4}},
    {TEST(rows_may_be_of_uneven_length), {8}},
    {TEST(a_rank_outside_the_mesh_goes_along), {3, 4}},
    {TEST(halves_are_close), {1, 2, 3}},
    {TEST(autocast_keeps_gradients_wide), {1, 2}},
};
CHECK_MAIN(tests)
