/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows on routes. Whatever the layout, the rows of the whole tensor are sorted by shard, those of
 * one shard in their order, and each rank has its own; the way back and gradients undo it.
 */
#include "groups.h"

#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_routes.h"

enum { MOST = 64 };

typedef struct trip {
    sherd_tensor *shard, *x; /* distributed */
    sherd_tensor *plain;     /* x */
    int64_t n, shards;
    int32_t to[MOST];
    int64_t place[MOST]; /* of each row after it was sent */
} trip;

static const sherd__dim *rows_of(const sherd_tensor *t)
{
    return &t->layout->spec.dim[0];
}

/* Where a stable sort by shard puts each row. */
static void find_places(trip *t)
{
    int64_t next = 0;

    for (int64_t s = 0; s < t->shards; s++)
        for (int64_t i = 0; i < t->n; i++)
            if (t->to[i] == s)
                t->place[i] = next++;
}

/* Numbers of shards, sharded in some way. */
static void draw_route(scene *s, const sherd_mesh *mesh, trip *t)
{
    int32_t none[MOST] = {0};

    t->n = roll(&s->dice, 4) ? roll(&s->dice, MOST) : roll(&s->dice, 5);
    const sherd_tensor *like =
        spread(s, mesh, sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, &t->n, 1, none)));
    t->shards = sherd__dim_parts(mesh, rows_of(like));
    int64_t some = 1 + roll(&s->dice, (int)t->shards);
    for (int64_t i = 0; i < t->n; i++)
        t->to[i] = roll(&s->dice, (int)some);
    t->shard = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, &t->n, 1, t->to));
    t->shard = sherd_distribute(t->shard, sherd_tensor_layout(like), -1);
    find_places(t);
}

static void draw_trip(scene *s, const sherd_mesh *mesh, trip *t)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_I64, SHERD_BF16};

    draw_route(s, mesh, t);
    const int64_t shape[] = {t->n, roll(&s->dice, 4)};
    t->plain = numbers(s, dtypes[roll(&s->dice, 4)], 1 + roll(&s->dice, 2), shape, 200);
    t->x = spread(s, mesh, t->plain);
}

static bool moved_rows(const trip *t, sherd_tensor *got, sherd_tensor *plain, bool back)
{
    sherd_tensor *whole = sherd_full(got);
    const void *a = sherd_tensor_read(whole), *b = sherd_tensor_read(plain);
    int64_t width = t->n ? plain->count / t->n : 0;
    bool good = CHECK(!sherd_tensor_failed(got)) && CHECK_EQ(whole->count, plain->count) &&
                CHECK_EQ(got->dtype, plain->dtype);

    for (int64_t i = 0; good && i < t->n * width; i++) {
        int64_t home = i / width, away = t->place[home];
        double x = number_at(a, plain->dtype, (back ? home : away) * width + i % width);
        double y = number_at(b, plain->dtype, (back ? away : home) * width + i % width);
        good = CHECK_NEAR(x, y, 0);
    }
    return good;
}

/* Each rank has the rows of its shard. */
static bool rows_lie(const trip *t, sherd_tensor *got)
{
    int64_t coordinate[SHERD_MAX_AXES], mine = 0;

    if (!sherd__coordinate(got, coordinate))
        return true;
    int64_t shard = sherd__dim_shard(got->layout->spec.mesh, rows_of(t->shard), coordinate);
    for (int64_t i = 0; i < t->n; i++)
        mine += t->to[i] == shard;
    return CHECK_EQ(sherd_tensor_box(got).size[0], mine);
}

static bool check_trip(scene *s, const sherd_mesh *mesh)
{
    sherd_route route;
    trip t;

    draw_trip(s, mesh, &t);
    bool real = t.plain->dtype != SHERD_I64;
    sherd_require_grad(t.x, real);
    bool good = CHECK(sherd_route_rows(&route, t.shard));
    sherd_tensor *y = sherd_send_rows(t.x, &route);
    good = good && moved_rows(&t, y, t.plain, false) && rows_lie(&t, y);
    sherd_tensor *other = numbers(s, t.plain->dtype, t.plain->ndim, t.plain->shape, 200);
    sherd_tensor *z = sherd_require_grad(spread(s, mesh, other), real);
    sherd_tensor *back = sherd_return_rows(z, &route);
    good = good && moved_rows(&t, back, other, true);
    good = good && CHECK_EQ(different(sherd_return_rows(y, &route), t.plain), 0);
    if (!real)
        return good;
    sherd_tensor *dy = spread(s, mesh, other), *dz = spread(s, mesh, t.plain);
    sherd_backward_with((sherd_tensor *[]){y, back}, (sherd_tensor *[]){dy, dz}, 2, NULL);
    return good && moved_rows(&t, sherd_grad(t.x), other, true) &&
           moved_rows(&t, sherd_grad(z), t.plain, false);
}

static void every_layout_is_sorted_by_shard(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 500 : 40;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        sherd_scope_begin(world);
        bool good = check_trip(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)) || !good)
            fprintf(stderr, "round %d: %s\n", i, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

static void a_rank_outside_the_mesh_goes_along(sherd_world *world)
{
    scene s = {.world = world, .dice = 5};
    const sherd_mesh *mesh = mesh_of(world, "2");
    sherd_route route;
    trip t;

    for (int i = 0; i < 20; i++) {
        sherd_scope_begin(world);
        draw_trip(&s, mesh, &t);
        sherd_route_rows(&route, t.shard);
        sherd_tensor *y = sherd_send_rows(t.x, &route);
        if (sherd_world_rank(world) < 2)
            moved_rows(&t, y, t.plain, false);
        else
            sherd_full(y);
        sherd_tensor *again = sherd_full(sherd_return_rows(y, &route));
        if (sherd_world_rank(world) < 2)
            CHECK_EQ(different(again, t.plain), 0);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- what moves ------------------------------------------------------------------------------ */

enum { EACH = 50, WIDTH_SENT = 3 };

/* Rank r has EACH rows, of which `leaving` go to the next. */
static sherd_tensor *neighbours(sherd_world *world, int64_t leaving)
{
    const int64_t ranks = sherd_world_ranks(world), n = EACH * ranks;
    int32_t to[EACH * 8];

    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)((i / EACH + (i % EACH < leaving)) % ranks);
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, to));
    return sherd_distribute(t, layout_of(line_of_ranks(world), 1, &n, "S(0)", NULL), -1);
}

/* One call brings exactly the rows that leave; where none leaves, there is no call. */
static void only_rows_that_leave_move(sherd_world *world)
{
    const int64_t shape[] = {(int64_t)EACH * sherd_world_ranks(world), WIDTH_SENT};
    const sherd_layout *rows = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);
    sherd_route route;

    for (int64_t leaving = 0; leaving < EACH; leaving += 7) {
        sherd_scope_begin(world);
        CHECK(sherd_route_rows(&route, neighbours(world, leaving)));
        sherd_tensor *x = indices_on(rows, SHERD_F64);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor_read(sherd_send_rows(x, &route));
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(sherd_comm_calls(world, NULL), leaving > 0);
        CHECK_EQ(bytes_received(world), leaving * WIDTH_SENT * 8);
        sherd_scope_end(world);
    }
}

/* A pending sum on an axis that shards no rows stays one. */
static void pending_sums_pass(sherd_world *world)
{
    static const int64_t shape[] = {6, 2};
    static const int32_t to[] = {1, 0, 1, 1, 0, 0};
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");
    sherd_tensor *x = indices_on(layout_of(mesh, 2, shape, "S(0)P(sum)", NULL), SHERD_F64);
    sherd_tensor *shard = sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, 1, to));
    sherd_route route;

    shard = sherd_distribute(shard, layout_of(mesh, 1, shape, "S(0)R", NULL), -1);
    CHECK(sherd_route_rows(&route, shard));
    sherd_tensor *y = sherd_send_rows(x, &route);
    CHECK_TEXT(sherd_layout_text(sherd_tensor_layout(y)), "[6(x),2] P(sum:y) on (x=2,y=2)");
    const double *got = sherd_tensor_read(sherd_full(y));
    static const int64_t from[] = {1, 4, 5, 0, 2, 3};
    for (int64_t i = 0; got && i < 12; i++)
        CHECK_NEAR(got[i], whole_value(from[i / 2] * 2 + i % 2, 2), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A route on which one row of each rank goes to the next, and rows for it. */
static sherd_tensor *start(sherd_world *world, sherd_route *route)
{
    const int64_t rows = (int64_t)EACH * sherd_world_ranks(world);

    CHECK(sherd_route_rows(route, neighbours(world, 1)));
    return ones_on(line_of_ranks(world), 1, &rows, "S(0)");
}

static void other_rows_are_refused(sherd_world *world)
{
    sherd_route route;

    start(world, &route);
    sherd_send_rows(ones_on(line_of_ranks(world), 1, (int64_t[]){1}, "S(0)"), &route);
    refused(world, "sherd_send_rows: the route is of ");
    sherd_tensor *x = start(world, &route);
    sherd_send_rows(x, &(sherd_route){.shard = route.shard, .count = route.shard});
    refused(world, "sherd_send_rows: this is no route (sherd_route_rows)");
    x = start(world, &route);
    sherd_fill(route.count, -1);
    sherd_send_rows(x, &route);
    refused(world, "sherd_send_rows: the route's counts are not of ");
}

/* One rank's fault is said by all. */
static void numbers_that_were_written_are_found(sherd_world *world)
{
    sherd_route route;
    sherd_tensor *x = start(world, &route);
    int32_t *number = sherd_tensor_write(route.shard);

    if (number && sherd_world_rank(world) == 0)
        number[3] = 1 - number[3]; /* there is a shard with this number */
    sherd_return_rows(x, &route);
    refused(world, "sherd_return_rows: shard numbers were written after their route was made");
    x = start(world, &route);
    number = sherd_tensor_write(route.shard);
    if (number && sherd_world_rank(world) == 0) { /* as many go to each shard as before */
        number[5] = number[0];
        number[0] = 1 - number[0];
    }
    sherd_send_rows(x, &route);
    refused(world, "sherd_send_rows: shard numbers were written after their route was made");
    sherd_tensor *shard = neighbours(world, 1);
    number = sherd_tensor_write(shard);
    if (number && sherd_world_rank(world) == 1)
        number[0] = -1;
    CHECK(!sherd_route_rows(&route, shard) || sherd_world_rank(world) != 1);
    refused(world, "sherd_route_rows: shard[50] = -1 is outside of [0,");
}

static void go(sherd_world *world)
{
    static const int64_t shape[] = {2 * EACH, 300};
    const sherd_layout *rows = NULL, *numbers = NULL;
    const sherd_mesh *mesh = NULL;
    sherd_route route;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, shape, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&numbers, mesh, 1, shape, "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(rows, SHERD_F32, 1), true);
        sherd_route_rows(&route, sherd_constant_on(numbers, SHERD_I32, 1));
        sherd_backward(sherd_sum(sherd_send_rows(x, &route)));
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    }
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, go);
}

static const check_test tests[] = {
    {TEST(every_layout_is_sorted_by_shard), {1, 2, 3, 4, 8}},
    {TEST(a_rank_outside_the_mesh_goes_along), {3, 4}},
    {TEST(only_rows_that_leave_move), {2, 4, 8}},
    {TEST(pending_sums_pass), {4}},
    {TEST(other_rows_are_refused), {2, 3}},
    {TEST(numbers_that_were_written_are_found), {2, 3}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
