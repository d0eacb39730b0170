/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Padding with borders on real ranks: plain against the formula, any layout against plain, forward
 * and gradients, in f64; convolutions with borders; what travels.
 */
#include "missing.h"

#include "sherd/ops_stencil.h"

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int ndim;
    int64_t x[FIELD];
    sherd_pad_options o;
} scene;

/* ---- random cases ---------------------------------------------------------------------------- */

static sherd_halo_side draw_side(scene *s, int64_t n)
{
    sherd_halo_side side = {between(&s->dice, 0, 5), (sherd_border)between(&s->dice, 1, 5)};

    if (n == 0)
        side.border = SHERD_BORDER_CONSTANT;
    if (side.border == SHERD_BORDER_REFLECT && side.width >= n)
        side.width = n - 1;
    if (side.border == SHERD_BORDER_SYMMETRIC && side.width > n)
        side.width = n;
    return roll(&s->dice, 3) ? side : (sherd_halo_side){0};
}

static void draw(scene *s)
{
    int most[] = {24, 9, 6, 4, 3};

    s->ndim = (int)between(&s->dice, 1, 5);
    memset(&s->o, 0, sizeof s->o);
    s->o.value = roll(&s->dice, 2) ? 0.5 : 0;
    for (int d = 0; d < s->ndim; d++) {
        s->x[d] = between(&s->dice, roll(&s->dice, 9) ? 1 : 0, most[s->ndim - 1]);
        s->o.before[d] = draw_side(s, s->x[d]);
        s->o.after[d] = draw_side(s, s->x[d]);
    }
}

/* Where index i of the result comes from; -1: from nowhere. */
static int64_t source(const scene *s, int d, int64_t i)
{
    int64_t n = s->x[d], at = i - s->o.before[d].width;
    sherd_border border = at < 0 ? s->o.before[d].border : s->o.after[d].border;

    if (at >= 0 && at < n)
        return at;
    switch (border) {
    case SHERD_BORDER_REPLICATE:
        return at < 0 ? 0 : n - 1;
    case SHERD_BORDER_REFLECT:
        return at < 0 ? -at : 2 * n - 2 - at;
    case SHERD_BORDER_PERIODIC:
        return ((at % n) + n) % n;
    case SHERD_BORDER_SYMMETRIC:
        return at < 0 ? -1 - at : 2 * n - 1 - at;
    default:
        return -1;
    }
}

/* The index in x of element k of the result. */
static int64_t origin(const scene *s, const int64_t *made, int64_t k)
{
    int64_t at = 0, step = 1;

    for (int d = s->ndim - 1; d >= 0; d--) {
        int64_t from = source(s, d, k % made[d]);
        if (from < 0 || at < 0)
            at = -1;
        else
            at += from * step;
        step *= s->x[d];
        k /= made[d];
    }
    return at;
}

static void plain_is_the_formula(sherd_world *world)
{
    scene s = {.world = world, .dice = 5};

    for (int i = 0; i < 300; i++) {
        sherd_scope_begin(world);
        draw(&s);
        sherd_tensor *x = sherd_require_grad(numbers(world, &s.dice, s.ndim, s.x), true);
        sherd_tensor *y = sherd_pad_with(x, &s.o);
        if (!CHECK(!sherd_tensor_failed(y)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_tensor *dy = numbers(world, &s.dice, s.ndim, y->shape);
        const double *data = sherd_tensor_read(y), *from = sherd_tensor_read(x),
                     *above = sherd_tensor_read(dy);
        double *want = calloc((size_t)x->count + 1, sizeof *want);
        for (int64_t k = 0; k < y->count; k++) {
            int64_t at = origin(&s, y->shape, k);
            CHECK_EQ(data[k], at < 0 ? s.o.value : from[at]);
            if (at >= 0)
                want[at] += above[k];
        }
        sherd_backward_with(&y, &dy, 1, NULL);
        const double *got = sherd_tensor_read(sherd_grad(x));
        for (int64_t k = 0; k < x->count; k++)
            CHECK_NEAR(got[k], want[k], 1e-12);
        free(want);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- any layout ------------------------------------------------------------------------------ */

/* Places of a box of the result that are filled with elements that this box of x has. */
static int64_t filled(const scene *s, const sherd_box *made, const sherd_box *held, bool inside)
{
    int64_t count = 1, places = 0;

    for (int d = 0; d < made->ndim; d++)
        count *= made->size[d];
    for (int64_t k = 0; k < count; k++) {
        int64_t left = k;
        bool there = true, mine = true;
        for (int d = s->ndim - 1; d >= 0; d--) {
            int64_t from = source(s, d, made->offset[d] + left % made->size[d]);
            there = there && from >= 0;
            mine = mine && from >= held->offset[d] && from < held->offset[d] + held->size[d];
            left /= made->size[d];
        }
        places += there && mine == inside;
    }
    return places;
}

/* Whether two ranks differ only on axes that shard a layout: then one's gradients are for the
 * other. */
static bool is_peer(const sherd_layout *layout, int a, int b)
{
    const sherd_mesh *mesh = sherd_layout_mesh(layout);
    int64_t x[SHERD_MAX_AXES], y[SHERD_MAX_AXES];
    bool peer = a != b && sherd_mesh_coordinate(mesh, a, x) && sherd_mesh_coordinate(mesh, b, y);

    for (int i = 0; peer && i < sherd_mesh_axes(mesh); i++)
        peer = x[i] == y[i] || sherd_layout_placement(layout, i).kind == SHERD_SHARD;
    return peer;
}

/* Bytes that come for a result: what is placed there of others. And for a gradient: what others
 * have placed of this rank's. */
static int64_t fetched(const scene *s, sherd_tensor *x, sherd_tensor *y, bool back)
{
    sherd_box held = sherd_tensor_box(x), made = sherd_tensor_box(y);
    int64_t places = back ? 0 : filled(s, &made, &held, false);

    for (int r = 0; back && r < sherd_world_ranks(s->world); r++)
        if (is_peer(x->layout, r, sherd_world_rank(s->world))) {
            made = sherd_layout_box(y->layout, r, 0);
            places += filled(s, &made, &held, true);
        }
    return 8 * places;
}

static void check_layout(scene *s, const sherd_mesh *mesh)
{
    sherd_tensor *leaf = numbers(s->world, &s->dice, s->ndim, s->x);
    sherd_tensor *spread = sherd_distribute(leaf, draw_layout(&s->dice, mesh, s->ndim, s->x), -1);

    sherd_require_grad(leaf, true);
    sherd_require_grad(spread, true);
    sherd_tensor *want = sherd_pad_with(leaf, &s->o);
    sherd_comm_reset(s->world);
    sherd_tensor *y = sherd_pad_with(spread, &s->o);
    if (!CHECK(!sherd_tensor_failed(y)))
        return;
    bool good = brought(s->world, fetched(s, spread, y, false));
    good = CHECK_NEAR(difference(y, want), 0, 0) && good;
    sherd_tensor *dy = numbers(s->world, &s->dice, s->ndim, want->shape);
    sherd_backward_with(&want, &dy, 1, NULL);
    dy = sherd_distribute(dy, y->layout, -1);
    sherd_comm_reset(s->world);
    sherd_backward_with(&y, &dy, 1, NULL);
    good = brought(s->world, fetched(s, spread, y, true)) && good;
    good = CHECK(sherd_grad(spread)->layout == spread->layout) && good;
    good = CHECK_NEAR(difference(sherd_grad(spread), sherd_grad(leaf)), 0, 1e-12) && good;
    if (!good)
        fprintf(stderr, "%s -> %s\n", sherd_tensor_text(spread), sherd_tensor_text(y));
}

static void every_layout_is_as_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 60;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = draw_mesh(world, i);
        sherd_scope_begin(world);
        draw(&s);
        check_layout(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* A convolution that pads by a border is one of what is padded before, also with "same". */
static void convolutions_have_borders(sherd_world *world)
{
    scene s = {.world = world, .dice = 21};
    int rounds = getenv("SHERD_PROOF") ? 500 : 15;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = draw_mesh(world, i);
        int64_t x[4] = {2, 2, between(&s.dice, 4, 12), between(&s.dice, 4, 6)};
        int64_t w[4] = {3, 2, between(&s.dice, 1, 4), 3};
        bool same = roll(&s.dice, 2);
        sherd_conv_options o = {.border = (sherd_border)between(&s.dice, 0, 4), .same = same};
        sherd_scope_begin(world);
        s.o = (sherd_pad_options){.value = 0};
        for (int d = 0; d < 2; d++) {
            sherd_border border = o.border ? o.border : SHERD_BORDER_CONSTANT;
            o.before[d] = same ? 0 : between(&s.dice, 0, 3);
            o.after[d] = same ? 0 : between(&s.dice, 0, 3);
            o.stride[d] = same ? 1 : between(&s.dice, 1, 3);
            s.o.before[2 + d] = (sherd_halo_side){same ? (w[2 + d] - 1) / 2 : o.before[d], border};
            s.o.after[2 + d] = (sherd_halo_side){same ? w[2 + d] / 2 : o.after[d], border};
        }
        sherd_conv_options bare = {.stride = {o.stride[0], o.stride[1]}};
        sherd_tensor *leaf = sherd_require_grad(numbers(world, &s.dice, 4, x), true);
        sherd_tensor *weight = sherd_require_grad(numbers(world, &s.dice, 4, w), true);
        sherd_tensor *spread =
            sherd_distribute(sherd_detach(leaf), draw_layout(&s.dice, mesh, 4, x), -1);
        sherd_require_grad(spread, true);
        sherd_tensor *want = sherd_conv(sherd_pad_with(leaf, &s.o), weight, NULL, &bare);
        sherd_tensor *y = sherd_conv(spread, weight, NULL, &o);
        if (CHECK(!sherd_tensor_failed(y) && !sherd_tensor_failed(want))) {
            CHECK_NEAR(difference(y, want), 0, 1e-12);
            sherd_tensor *dy = numbers(world, &s.dice, 4, want->shape);
            sherd_backward_with(&want, &dy, 1, NULL);
            sherd_backward_with(&y, &dy, 1, NULL);
            CHECK_NEAR(difference(sherd_grad(spread), sherd_grad(leaf)), 0, 1e-10);
        }
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- cases that have a name ------------------------------------------------------------------ */

static void check_piece(sherd_tensor *y, const char *want)
{
    sherd_tensor *wide = sherd_cast(y, SHERD_F64);
    const double *data = sherd_tensor_read(wide);
    char text[128] = "";
    size_t at = 0;

    for (int64_t k = 0; data && k < wide->count; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, k ? " %g" : "%g", data[k]);
    CHECK_TEXT(text, want);
}

/* 0 to 9: the first and the last rank that have elements hold what lies beyond the ends, of every
 * dtype. */
static void paddings_of_ten(sherd_world *world)
{
    static const struct {
        const char *cuts;
        int64_t before, after;
        sherd_border border;
        const char *want[3];
    } cases[] = {
        {"0:4,3,3", 2, 2, SHERD_BORDER_CONSTANT, {"7 7 0 1 2 3", "4 5 6", "7 8 9 7 7"}},
        {"0:4,3,3", 2, 2, SHERD_BORDER_REFLECT, {"2 1 0 1 2 3", "4 5 6", "7 8 9 8 7"}},
        {"0:4,3,3", 2, 1, SHERD_BORDER_REPLICATE, {"0 0 0 1 2 3", "4 5 6", "7 8 9 9"}},
        {"0:4,3,3", 1, 2, SHERD_BORDER_PERIODIC, {"9 0 1 2 3", "4 5 6", "7 8 9 0 1"}},
        {"0:1,8,1", 3, 3, SHERD_BORDER_REFLECT, {"3 2 1 0", "1 2 3 4 5 6 7 8", "9 8 7 6"}},
        {"0:0,9,1", 2, 3, SHERD_BORDER_PERIODIC, {"", "8 9 0 1 2 3 4 5 6 7 8", "9 0 1 2"}},
        {"0:1,8,1", 3, 2, SHERD_BORDER_SYMMETRIC, {"2 1 0 0", "1 2 3 4 5 6 7 8", "9 9 8"}},
        {"0:10,0,0", 1, 1, SHERD_BORDER_REFLECT, {"1 0 1 2 3 4 5 6 7 8 9 8", "", ""}},
    };
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16,
                                         SHERD_I32, SHERD_U8,  SHERD_I8};
    static const int64_t shape[1] = {10};
    const sherd_mesh *mesh = mesh_of(world, "3");

    for (int i = 0; i < LEN(cases) * LEN(dtypes); i++) {
        int c = i / LEN(dtypes);
        sherd_pad_options o = {.before = {{cases[c].before, cases[c].border}},
                               .after = {{cases[c].after, cases[c].border}},
                               .value = 7};
        sherd_tensor *x =
            indices_on(layout_of(mesh, 1, shape, "S(0)", cases[c].cuts), dtypes[i % LEN(dtypes)]);
        check_piece(sherd_pad_with(x, &o), cases[c].want[sherd_world_rank(world)]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A constant border is sherd_pad: a pending sum stays so, nothing travels. Others settle it. */
static void pending_sums_are_padded(sherd_world *world)
{
    static const int64_t shape[1] = {6};
    const sherd_mesh *mesh = mesh_of(world, "2");
    sherd_tensor *x = indices_on(layout_of(mesh, 1, shape, "P(sum)", NULL), SHERD_F64);
    sherd_pad_options o = {.before = {{2, SHERD_BORDER_CONSTANT}}, .value = 3};

    CHECK(sherd_pad_with(x, &o)->layout->pending_axes == 1);
    o.before[0].border = SHERD_BORDER_REFLECT;
    sherd_tensor *y = sherd_pad_with(x, &o);
    CHECK(y->layout->pending_axes == 0);
    check_piece(y, "1004 1002 1000 1002 1004 1006 1008 1010");
    CHECK_OK(sherd_world_check(world));
}

/* What lies beyond an end comes to the rank there in one call, and goes back in one. */
static void one_call_a_direction(sherd_world *world)
{
    static const int64_t shape[2] = {12, 5};
    sherd_pad_options o = {.before = {{2, SHERD_BORDER_PERIODIC}},
                           .after = {{1, SHERD_BORDER_PERIODIC}, {1, SHERD_BORDER_REPLICATE}}};
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_layout *layout = layout_of(mesh_of(world, text), 2, shape, "S(0)", NULL);
    sherd_tensor *x = sherd_require_grad(indices_on(layout, SHERD_F64), true);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_pad_with(x, &o);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_get(world, 0).bytes_received,
             ((rank == 0) * 2 + (rank == ranks - 1)) * 6 * 8);
    sherd_tensor *dy = sherd_constant_on(y->layout, SHERD_F64, 1);
    sherd_comm_reset(world);
    sherd_backward_with(&y, &dy, 1, NULL);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_OK(sherd_world_check(world));
}

/*
 * Each element of a mirror is a region of its own: planning for them must not take each with each.
 * Index i of the result is |i - n| of x; all but the first have two readers.
 */
static void a_mirror_may_be_long(sherd_world *world)
{
    const int64_t n = 1 << 17, length = n + 1;
    const sherd_pad_options o = {.before = {{n, SHERD_BORDER_REFLECT}}};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, &length, "S(0)", NULL);
    sherd_tensor *x = sherd_require_grad(indices_on(layout, SHERD_F64), true);
    sherd_tensor *y = sherd_pad_with(x, &o);
    const double *all = sherd_tensor_read(sherd_full(y));
    int64_t wrong = 0;

    for (int64_t i = 0; all && i < 2 * n + 1; i++)
        wrong += all[i] != (double)(i < n ? n - i : i - n);
    CHECK(all && wrong == 0);
    sherd_backward(sherd_sum(y));
    const double *dx = sherd_tensor_read(sherd_full(sherd_grad(x)));
    for (int64_t i = 0; dx && i < length; i++)
        wrong += dx[i] != (i == 0 ? 1 : 2);
    CHECK(dx && wrong == 0);
    CHECK_OK(sherd_world_check(world));
}

/* As many regions as elements are beyond the ends: 8193^2. */
static void a_border_that_repeats_too_often_is_refused(sherd_world *world)
{
    static const int64_t shape[2] = {2, 2};
    const sherd_halo_side wide = {4096, SHERD_BORDER_REPLICATE};
    const sherd_pad_options o = {.before = {wide, wide}, .after = {wide, wide}};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);

    CHECK(sherd_tensor_failed(sherd_pad_with(sherd_constant_on(layout, SHERD_F32, 1), &o)));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(strstr(sherd_world_error(world), "67125249 times, at most"));
}

static void scene_of_memory(sherd_world *world)
{
    static const int64_t shape[4] = {1, 1, 6, 5}, kernel[4] = {1, 1, 3, 3};
    const sherd_conv_options o = {.same = true, .border = SHERD_BORDER_REFLECT};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, text) == SHERD_OK &&
        sherd_layout_parse_placements(&layout, mesh, 4, shape, "S(2)", NULL) == SHERD_OK) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 1), true);
        sherd_tensor *w = sherd_constant(world, SHERD_F32, kernel, 4, 1);
        sherd_backward(sherd_sum(sherd_conv(x, w, NULL, &o)));
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no mesh");
    }
    sherd_scope_end(world);
}

static void memory_may_run_out_anywhere(sherd_world *world)
{
    fail_every_allocation(world, sherd_world_ranks(world) - 1, scene_of_memory);
}

/* The ranks of one column have the shards in another order than those of the other. */
static void replicas_get_the_same_bits(sherd_world *world)
{
    static const double x[4] = {1, 2, 3, 4},
                        slope[12] = {.1, .2, .3, .7, 1e-3, 3.3, .77, .123, 10.1, 20.3, 1.7, .9};
    static const sherd_pad_options o = {.before = {{4, SHERD_BORDER_PERIODIC}},
                                        .after = {{4, SHERD_BORDER_PERIODIC}}};
    const sherd_mesh *mesh = mesh_of(world, "a=2,b=2@3,1,0,2");
    const sherd_layout *pieces = NULL;
    sherd_tensor *t = sherd_require_grad(
        sherd_distribute_as(
            sherd_mark_equal(sherd_from_data(world, SHERD_F64, (int64_t[]){4}, 1, x)), mesh,
            "S(0)R", -1),
        true);
    sherd_tensor *y = sherd_pad_with(t, &o);
    sherd_tensor *g =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, (int64_t[]){12}, 1, slope));

    sherd_backward_with(&y, &g, 1, NULL);
    CHECK_OK(sherd_layout_parse_placements(&pieces, mesh, 1, (int64_t[]){8}, "S(0)S(0)", NULL));
    sherd_tensor *all = sherd_full(
        sherd_from_local_as(sherd_clone(sherd_detach(sherd_to_local(sherd_grad(t)))), pieces));
    CHECK_OK(sherd_world_check(world));
    const double *of = sherd_tensor_read(all);
    for (int i = 0; i < 8; i++)
        CHECK(of[i] == of[i ^ 2]);
}

static const check_test tests[] = {
    {TEST(replicas_get_the_same_bits), {4}},
    {TEST(plain_is_the_formula), {1}},
    {TEST(every_layout_is_as_plain), {1, 2, 3, 4, 5, 6, 7, 8}},
    {TEST(convolutions_have_borders), {1, 2, 4}},
    {TEST(paddings_of_ten), {3}},
    {TEST(pending_sums_are_padded), {2}},
    {TEST(one_call_a_direction), {2, 3, 4}},
    {TEST(a_mirror_may_be_long), {1, 2, 3}},
    {TEST(a_border_that_repeats_too_often_is_refused), {1, 2, 3}},
    {TEST(memory_may_run_out_anywhere), {1, 2}},
};
CHECK_MAIN(tests)
