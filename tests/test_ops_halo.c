/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Halos on real ranks: what each rank gets, what flows back, and what travels, for any cuts, widths
 * and borders.
 */
#include "halos.h"

#include <math.h>
#include <stdlib.h>

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"

/* ---- what must hold -------------------------------------------------------------------------- */

/* How often each element of the whole tensor is not in what a rank holds but in its halo. */
static int64_t missing(const scene *s, const sherd_box *own, const sherd_box *halo)
{
    const int64_t *shape = sherd_layout_shape(s->layout);
    int64_t n = 0;

    for (int64_t k = 0, count = count_of(halo); k < count; k++) {
        int64_t at = element(halo, shape, &s->o, k), inside = 1;
        for (int d = own->ndim - 1; at != NOWHERE && d >= 0; d--) {
            int64_t i = at % shape[d];
            inside = inside && i >= own->offset[d] && i < own->offset[d] + own->size[d];
            at /= shape[d];
        }
        n += at != NOWHERE && !inside;
    }
    return n;
}

static int64_t received(const sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

/* "0 1 2" of a tensor of one dim. */
static const char *as_text(char *text, size_t room, sherd_tensor *t)
{
    const double *data = t ? sherd_tensor_read(t) : NULL;
    size_t at = 0;

    text[0] = '\0';
    for (int64_t k = 0; data && k < t->count && at < room; k++)
        at += (size_t)snprintf(text + at, room - at, k ? " %g" : "%g", data[k]);
    return text;
}

static int64_t wrong_elements(const scene *s, sherd_tensor *y, const sherd_box *box)
{
    const double *data = sherd_tensor_read(y);
    int64_t wrong = 0;

    for (int64_t k = 0, count = count_of(box); k < count; k++) {
        int64_t at = element(box, sherd_layout_shape(s->layout), &s->o, k);
        wrong += data[k] != (at == NOWHERE ? s->o.value : (double)at);
    }
    return wrong;
}

static int64_t wrong_gradients(const scene *s, sherd_tensor *x)
{
    const int64_t *shape = sherd_layout_shape(s->layout);
    sherd_tensor *g = sherd_grad(x);
    sherd_box own = sherd_tensor_box(x);
    double *sum = sums_of(s);
    int64_t wrong = 0;

    const double *data = g ? sherd_tensor_read(g) : NULL;
    for (int64_t k = 0, count = count_of(&own); k < count; k++)
        wrong += !data || data[k] != sum[global_of(&own, shape, k)];
    free(sum);
    return wrong;
}

static void check_one(scene *s)
{
    sherd_box own, box;
    const sherd_plan *plan;
    int rank = sherd_world_rank(s->world);
    bool inside = sherd_layout_boxes(s->layout, rank) > 0;

    sherd_tensor *x = indices_on(s->layout, SHERD_F64);
    sherd_require_grad(x, true);
    CHECK_OK(sherd_halo_box(&box, s->layout, rank, &s->o));
    own = sherd_tensor_box(x);
    sherd_comm_reset(s->world);
    sherd_tensor *y = sherd_halo(x, &s->o);
    int64_t bytes = 8 * missing(s, &own, &box);
    if (!CHECK(!sherd_tensor_failed(y)))
        return;
    CHECK_EQ(received(s->world), bytes);
    CHECK_OK(sherd_halo_plan(&plan, s->layout, SHERD_F64, &s->o));
    CHECK(bytes <= sherd_plan_price_of(plan)->recv_max_bytes);
    CHECK_EQ(sherd_plan_price_of(plan)->bound_max_bytes, sherd_plan_price_of(plan)->recv_max_bytes);
    CHECK_EQ(sherd_tensor_count(y), inside ? count_of(&box) : 0);
    CHECK_EQ(wrong_elements(s, y, &box), 0);
    sherd_tensor *g = sherd__new_plain(s->world, SHERD_F64, y->ndim, y->shape, y->varies);
    for (int64_t k = 0; k < g->count; k++)
        ((double *)sherd__fresh(g))[k] = given(s, rank, k);
    sherd_backward_with(&y, &g, 1, NULL);
    if (inside)
        CHECK_EQ(wrong_gradients(s, x), 0);
}

/* Two rows before pieces of 4, 1 and 1: the first rank sends three, and nobody receives so many. */
static void a_plan_says_what_a_halo_costs(sherd_world *world)
{
    const int64_t rows[] = {4, 1, 1}, *const sizes[] = {rows, NULL};
    const sherd_placement placement = sherd_shard(0);
    const sherd_layout *layout = NULL;
    const sherd_plan *plan = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh_of(world, "3"), 2, (const int64_t[]){6, 5},
                                 &placement, &(sherd_layout_options){.sizes = sizes}));
    for (int width = 0; width <= 2; width += 2) {
        const sherd_halo_options o = {.before = {{.width = width}}};
        CHECK_OK(sherd_halo_plan(&plan, layout, SHERD_F64, &o));
        const sherd_plan_price *price = sherd_plan_price_of(plan);
        CHECK_EQ(price->recv_max_bytes, width ? 2 * 40 : 0);
        CHECK_EQ(price->recv_total_bytes, width ? 4 * 40 : 0);
        CHECK_EQ(price->send_max_bytes, width ? 3 * 40 : 0);
        CHECK_EQ(price->bound_total_bytes, price->recv_total_bytes);
        CHECK_EQ(price->rounds, width ? 1 : 0);
        CHECK(price->proven);
    }
    CHECK_OK(sherd_world_check(world));
}

static void any_halo_is_exact(sherd_world *world)
{
    static const char *const meshes[][3] = {
        {"1", "1x1", "1"},   {"2", "1x2", "2"},   {"3", "2", "3"},   {"4", "2x2", "4@3,1,0,2"},
        {"5", "2x2", "1x3"}, {"6", "2x3", "3x2"}, {"7", "2x3", "2"}, {"8", "2x2x2", "2x4"}};
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 20000 : 180;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = mesh_of(world, meshes[sherd_world_ranks(world) - 1][i % 3]);
        sherd_scope_begin(world);
        draw(&s, mesh);
        check_one(&s);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Several tensors with the same widths and borders, also begun: as one by one. */
static void many_halos_are_one_call(sherd_world *world)
{
    char text[16];
    scene s = {.world = world, .dice = 77};

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    for (int i = 0; i < 60; i++) {
        const sherd_mesh *mesh = mesh_of(world, text);
        sherd_tensor *t[3], *y[3];
        sherd_box box;
        sherd_scope_begin(world);
        draw(&s, mesh);
        CHECK_OK(sherd_halo_box(&box, s.layout, sherd_world_rank(world), &s.o));
        for (int k = 0; k < 3; k++)
            t[k] = indices_on(s.layout, SHERD_F64);
        s.o.begin = i % 2;
        sherd_comm_reset(world);
        sherd_halo_many(y, t, 3, &s.o);
        CHECK(sherd_comm_calls(world, NULL) <= 1);
        for (int k = 0; k < 3; k++)
            if (CHECK(!sherd_tensor_failed(y[k])))
                CHECK_EQ(wrong_elements(&s, y[k], &box), 0);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/*
 * Windows that were asked for are kept, up to some: two that differ in one thing only must be told
 * apart, and one that is asked for again must be made again if it is not kept. Asked for at once
 * again, it allocates nothing but results: a tensor, its storage and its memory each; and, while
 * the ring goes round for the first time, what peers read of the call.
 */
static void halos_asked_for_again_are_the_same(sherd_world *world)
{
    static const sherd_halo_options asked[] = {
        {.before[0] = {1, SHERD_BORDER_PERIODIC}},
        {.before[0] = {1, SHERD_BORDER_REPLICATE}},
        {.before[0] = {2, SHERD_BORDER_PERIODIC}},
        {.after[0] = {1, SHERD_BORDER_PERIODIC}},
        {.before[1] = {1, SHERD_BORDER_PERIODIC}},
        {.before[0] = {1, SHERD_BORDER_CONSTANT}},
        {.before[0] = {1, SHERD_BORDER_CONSTANT}, .value = 3},
        {.before[0] = {1, SHERD_BORDER_PERIODIC}, .begin = true},
        {.before[0] = {1, SHERD_BORDER_NONE}},
        {.before[0] = {1, SHERD_BORDER_PERIODIC}, .after[1] = {2, SHERD_BORDER_REFLECT}}};
    static const int64_t shapes[][2] = {{6, 5}, {5, 6}};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 6 * LEN(asked); i++) {
        const sherd_layout *layout = layout_of(mesh, 2, shapes[i % 3 == 0], "S(0)", NULL);
        scene s = {.world = world, .layout = layout, .o = asked[i * 7 % LEN(asked)]};
        sherd_tensor *t[4], *y[4];
        sherd_box box;
        sherd_scope_begin(world);
        for (int k = 0; k < 4; k++)
            t[k] = indices_on(layout, SHERD_F64);
        CHECK_OK(sherd_halo_box(&box, layout, sherd_world_rank(world), &s.o));
        for (int turn = 0; turn < 2; turn++) {
            sherd_world_fail_allocation(world, 0);
            sherd_halo_many(y, t, 4, &s.o);
            for (int k = 0; k < 4; k++)
                CHECK_EQ(wrong_elements(&s, y[k], &box), 0);
        }
        CHECK(sherd_world_allocations(world) <= 4 * 3 + 1);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Beyond the ends there may be NaN: it is one value, and the plan is made once. */
static void a_border_may_be_no_number(sherd_world *world)
{
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, (int64_t[]){15}, "S(0)", NULL);
    sherd_halo_options o = {.before[0] = {2, SHERD_BORDER_CONSTANT}, .value = (double)NAN};

    for (int turn = 0; turn < 4; turn++) {
        sherd_scope_begin(world);
        sherd_tensor *t = indices_on(layout, SHERD_F64);
        sherd_world_fail_allocation(world, 0);
        const double *x = sherd_tensor_read(sherd_halo(t, &o));
        CHECK(turn == 0 || sherd_world_allocations(world) <= 4);
        int64_t first = sherd_tensor_offset(t, 0);
        for (int i = 0; x && i < sherd_tensor_size(t, 0) + 2; i++)
            CHECK(first + i < 2 ? isnan(x[i]) != 0 : x[i] == (double)(first + i - 2));
        sherd_scope_end(world);
        o.value = -o.value;
    }
    CHECK_OK(sherd_world_check(world));
}

/* Not for ever: a schedule has a region for each stretch that is repeated. */
static void a_border_that_repeats_too_often_is_refused(sherd_world *world)
{
    static const sherd_halo_options wide[] = {
        {.before[0] = {INT64_C(1) << 40, SHERD_BORDER_REPLICATE}},
        {.after[0] = {INT64_C(1) << 40, SHERD_BORDER_PERIODIC}},
        {.before = {{1 << 12, SHERD_BORDER_REPLICATE}, {1 << 12, SHERD_BORDER_REPLICATE}}},
    };
    const sherd_layout *layout =
        layout_of(line_of_ranks(world), 2, (int64_t[]){6, 5}, "S(0)", NULL);

    for (int i = 0; i < LEN(wide); i++) {
        CHECK(sherd_tensor_failed(sherd_halo(indices_on(layout, SHERD_F32), &wide[i])));
        CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    }
}

/* ---- cases that have a name ------------------------------------------------------------------ */

/* 0 to 9 in shards of these sizes, and on each rank what its halo reads; backward gives how often
 * each element was read. */
static void halos_of_ten(sherd_world *world)
{
    static const struct {
        const char *cuts;
        int64_t width;
        sherd_border border;
        const char *want[3];
        const char *times[3];
    } cases[] = {
        {"0:4,3,3",
         1,
         SHERD_BORDER_NONE,
         {"0 1 2 3 4", "3 4 5 6 7", "6 7 8 9"},
         {"1 1 1 2", "2 1 2", "2 1 1"}},
        {"0:4,3,3",
         1,
         SHERD_BORDER_CONSTANT,
         {"0 0 1 2 3 4", "3 4 5 6 7", "6 7 8 9 0"},
         {"1 1 1 2", "2 1 2", "2 1 1"}},
        {"0:4,3,3",
         2,
         SHERD_BORDER_CONSTANT,
         {"0 0 0 1 2 3 4 5", "2 3 4 5 6 7 8", "5 6 7 8 9 0 0"},
         {"1 1 2 2", "2 3 2", "2 2 1"}},
        {"0:4,3,3",
         2,
         SHERD_BORDER_NONE,
         {"0 1 2 3 4 5", "2 3 4 5 6 7 8", "5 6 7 8 9"},
         {"1 1 2 2", "2 3 2", "2 2 1"}},
        /* thinner than the halo, and empty */
        {"0:9,1,0",
         3,
         SHERD_BORDER_PERIODIC,
         {"7 8 9 0 1 2 3 4 5 6 7 8 9 0 1", "6 7 8 9 0 1 2", ""},
         {"3 3 2 1 1 1 2 3 3", "3", ""}},
        {"0:1,1,8",
         2,
         SHERD_BORDER_REFLECT,
         {"2 1 0 1 2", "1 0 1 2 3", "0 1 2 3 4 5 6 7 8 9 8 7"},
         {"3", "5", "4 2 1 1 1 2 2 1"}},
        {"0:1,1,8",
         2,
         SHERD_BORDER_SYMMETRIC,
         {"1 0 0 1 2", "0 0 1 2 3", "0 1 2 3 4 5 6 7 8 9 9 8"},
         {"5", "4", "3 2 1 1 1 1 2 2"}},
        {"0:5,5,0",
         2,
         SHERD_BORDER_REPLICATE,
         {"0 0 0 1 2 3 4 5 6", "3 4 5 6 7 8 9 9 9", ""},
         {"3 1 1 2 2", "2 2 1 1 3", ""}},
    };
    const sherd_mesh *mesh = mesh_of(world, "3");
    int64_t ten = 10;
    int rank = sherd_world_rank(world);

    for (int i = 0; i < LEN(cases); i++) {
        sherd_halo_options o = {.before[0] = {cases[i].width, cases[i].border},
                                .after[0] = {cases[i].width, cases[i].border}};
        sherd_tensor *x = indices_on(layout_of(mesh, 1, &ten, "S(0)", cases[i].cuts), SHERD_F64);
        sherd_require_grad(x, true);
        sherd_tensor *y = sherd_halo(x, &o);
        sherd_tensor *ones = sherd_constant(world, SHERD_F64, y->shape, 1, 1);
        char text[128];
        CHECK_TEXT(as_text(text, sizeof text, y), cases[i].want[rank]);
        sherd_backward_with(&y, &ones, 1, NULL);
        CHECK_TEXT(as_text(text, sizeof text, sherd_grad(x)), cases[i].times[rank]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A tensor that nobody shares has a halo too: what lies beyond its ends. */
static void a_plain_tensor_is_its_own_neighbour(sherd_world *world)
{
    sherd_halo_options o = {.before[0] = {2, SHERD_BORDER_PERIODIC},
                            .after[0] = {1, SHERD_BORDER_REFLECT}};
    int64_t four = 4;
    char text[64];

    sherd_tensor *x = indices_plain(world, SHERD_F64, 1, &four);
    sherd_require_grad(x, true);
    sherd_tensor *y = sherd_halo(x, &o);
    CHECK_TEXT(as_text(text, sizeof text, y), "2 3 0 1 2 3 2");
    sherd_tensor *ones = sherd_constant(world, SHERD_F64, y->shape, 1, 1);
    sherd_backward_with(&y, &ones, 1, NULL);
    CHECK_TEXT(as_text(text, sizeof text, sherd_grad(x)), "1 1 3 2");
    CHECK_OK(sherd_world_check(world));
}

/* A pending sum has no elements to read until it is added up. */
static void what_is_pending_is_settled_first(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    sherd_halo_options o = {.before[0] = {1, SHERD_BORDER_NONE}};
    int64_t shape[2] = {4, 2};

    sherd_tensor *y =
        sherd_halo(indices_on(layout_of(mesh, 2, shape, "S(0)P(sum)", NULL), SHERD_F64), &o);
    const double *data = sherd_tensor_read(y);
    int64_t first = sherd_world_rank(world) < 2 ? 0 : 2;
    for (int64_t k = 0; CHECK(data != NULL) && k < y->count; k++)
        CHECK(data[k] == whole_value(first + k, 2));
    CHECK_OK(sherd_world_check(world));
}

/*
 * Corners that many elements of several ranks repeat are added up in rank order: in each dim the
 * end elements have as many readers as there are halos over them.
 */
static void a_wide_border_flows_back(sherd_world *world)
{
    enum { WIDE = 200 };
    static const int64_t shape[2] = {4, 4};
    const sherd_halo_side side = {WIDE, SHERD_BORDER_REPLICATE};
    const sherd_halo_options o = {.before = {side, side}, .after = {side, side}};
    const sherd_layout *layout = layout_of(mesh_of(world, "2x2"), 2, shape, "S(1)S(0)", NULL);
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_F64, 1), true);

    sherd_backward(sherd_sum(sherd_halo(x, &o)));
    const double *dx = sherd_tensor_read(sherd_full(sherd_grad(x)));
    for (int i = 0; dx && i < 16; i++) {
        /* the two shards of a dim read [-WIDE, 2 + WIDE) and [2 - WIDE, 4 + WIDE) */
        double rows = i / 4 % 3 ? 2 : 2 * WIDE, columns = i % 4 % 3 ? 2 : 2 * WIDE;
        CHECK_EQ(dx[i], rows * columns);
    }
    CHECK(dx);
    CHECK_OK(sherd_world_check(world));
}

static void halo_scene(sherd_world *world)
{
    static const int64_t shape[2] = {6, 5};
    static const sherd_halo_options o = {.before[0] = {2, SHERD_BORDER_REFLECT},
                                         .after[1] = {1, SHERD_BORDER_CONSTANT}};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    sherd_ghosts *g = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, text) == SHERD_OK &&
        sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 1), true);
        sherd_backward(sherd_sum(
            sherd_from_local(sherd_halo(x, &o), mesh, &(sherd_placement){.kind = SHERD_SHARD},
                             &(sherd_from_local_options){.mode = SHERD_FROM_INFER})));
        if (sherd_ghosts_create(&g, layout, SHERD_F32, &o) == SHERD_OK) {
            sherd_ghosts_fill(&g, 1);
            sherd_full(sherd_ghosts_tensor(g));
        }
        sherd_ghosts_destroy(g);
        sherd_halo(sherd_constant_on(layout, SHERD_F32, 1), &o); /* nobody meets its failure */
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no mesh");
    }
    sherd_scope_end(world);
}

static void memory_may_run_out_anywhere(sherd_world *world)
{
    fail_every_allocation(world, sherd_world_ranks(world) - 1, halo_scene);
}

static const check_test tests[] = {
    {TEST(a_plan_says_what_a_halo_costs), {3}},
    {TEST(any_halo_is_exact), {1, 2, 3, 4, 8}},
    {TEST(many_halos_are_one_call), {1, 2, 3, 4, 8}},
    {TEST(halos_asked_for_again_are_the_same), {1, 2, 3}},
    {TEST(a_border_may_be_no_number), {1, 2, 5}},
    {TEST(a_border_that_repeats_too_often_is_refused), {1, 3}},
    {TEST(halos_of_ten), {3}},
    {TEST(a_plain_tensor_is_its_own_neighbour), {1, 2}},
    {TEST(what_is_pending_is_settled_first), {4}},
    {TEST(a_wide_border_flows_back), {4}},
    {TEST(memory_may_run_out_anywhere), {1, 2}},
};
CHECK_MAIN(tests)
