/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that a failed step was writing in place: the same ones are lost on all ranks, however far
 * each had come, and become valid again on all ranks by the same calls.
 */
#include "secret.h"

#include <stdlib.h>

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_shape.h"

enum { N = 6 };

static sherd_tensor *new_field(sherd_world *world, double value)
{
    return sherd_constant_on(layout_of(line_of_ranks(world), 1, (int64_t[]){N}, "R", NULL),
                             SHERD_F64, value);
}

static double first(sherd_tensor *t)
{
    const double *data = sherd_tensor_read(t);

    return data ? data[0] : -1;
}

static sherd_tensor *like(sherd_tensor *t, double value)
{
    return sherd_constant_on(sherd_tensor_layout(t), SHERD_F64, value);
}

/* ---- ways to write --------------------------------------------------------------------------- */

static sherd_tensor *fill(sherd_tensor *t)
{
    return sherd_fill(t, 7);
}

static sherd_tensor *add(sherd_tensor *t)
{
    return sherd_add_to(t, like(t, 6));
}

static sherd_tensor *copy(sherd_tensor *t)
{
    return sherd_copy_from(t, like(t, 7));
}

static sherd_tensor *by_view(sherd_tensor *t)
{
    return sherd_fill(sherd_narrow(t, 0, 0, 2), 7);
}

static sherd_tensor *by_pointer(sherd_tensor *t)
{
    double *data = sherd_tensor_write(t);

    for (int i = 0; data && i < N; i++)
        data[i] = 7;
    return t;
}

static sherd_tensor *(*const ways[])(sherd_tensor *) = {fill, add, copy, by_view, by_pointer};

/* Replicas may differ in what is taken as it is, and SHERD_VERIFY says so until it is written. */
static bool is_verified(void)
{
    const char *text = getenv("SHERD_VERIFY");

    return text && *text && strcmp(text, "0") != 0;
}

/* ---- who had come how far -------------------------------------------------------------------- */

/* A tensor, and the way to write it. */
typedef struct writing {
    sherd_tensor *t;
    int way;
} writing;

static void act(void *payload)
{
    const writing *w = payload;

    ways[w->way](w->t);
}

static void fail_between_writes(sherd_world *world, sherd_tensor *t, int way)
{
    fail_between(world, act, &(writing){t, way});
}

static void what_some_have_written_is_lost_on_all(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = new_field(world, 1), *other = new_field(world, 2);
        sherd_tensor *view = sherd_narrow(t, 0, 3, 2);
        CHECK_OK(sherd_world_check(world));
        fail_between_writes(world, t, way);
        CHECK(sherd_tensor_failed(t) && sherd_tensor_failed(view));
        CHECK_EQ(first(other), 2);
        CHECK_OK(sherd_world_check(world));

        sherd_scale(view, 2);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_tensor_revive") != NULL);
        CHECK(sherd_tensor_read(t) == NULL);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_tensor_read: f64[6]") != NULL);
        CHECK(sherd_tensor_write(t) == NULL);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);

        sherd_fill(t, 3);
        CHECK_EQ(first(sherd_scale(view, 2)), 6);
        CHECK_OK(sherd_world_check(world));
    }
}

static void what_all_have_written_is_there(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = new_field(world, 1);
        CHECK_OK(sherd_world_check(world));
        ways[way](t);
        sherd_scale(t, 2); /* what is written by pointer belongs to this */
        meet_in_secret(sherd_world_ranks(world));
        if (sherd_world_rank(world) == 0)
            sherd_world_fail(world, SHERD_EINVAL, "afterwards");
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(first(t), 7);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Who has come to a function has left the code where it wrote; a failed step after that counts. */
static void a_function_that_fails_on_all_loses_nothing(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = new_field(world, 1);
        CHECK_OK(sherd_world_check(world));
        ways[way](t);
        CHECK_EQ(sherd_world_most(NULL, world, 1), SHERD_EINVAL);
        CHECK_EQ(first(t), 7);
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(first(sherd_scale(t, 1)), 7);
        CHECK_OK(sherd_world_check(world));
        ways[way](t);
        CHECK_EQ(sherd_world_most(NULL, world, 1), SHERD_EINVAL);
        if (sherd_world_rank(world) == 0)
            sherd_world_fail(world, SHERD_EINVAL, "in the middle");
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(sherd_tensor_failed(t), ways[way] == by_pointer && sherd_world_ranks(world) > 1);
        ways[LEN(ways) - 1 == way ? 0 : way](t);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Who comes to it by an alarm may have left in the middle. */
static void a_function_that_an_alarm_ends_loses_what_is_open(sherd_world *world)
{
    sherd_tensor *t = new_field(world, 1);
    int64_t most;

    CHECK_OK(sherd_world_check(world));
    by_pointer(t);
    if (sherd_world_rank(world) == 0)
        sherd_world_fail(world, SHERD_EINVAL, "in the middle");
    CHECK_EQ(sherd_world_most(&most, world, 1), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(t));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(first(fill(t)), 7);
    CHECK_OK(sherd_world_check(world));
}

static void what_nobody_has_written_is_there(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = new_field(world, 1);
        CHECK_OK(sherd_world_check(world));
        if (sherd_world_rank(world) == 0)
            sherd_world_fail(world, SHERD_EINVAL, "before");
        meet_in_secret(sherd_world_ranks(world));
        if (way != LEN(ways) - 1)
            ways[way](t);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(first(t), 1);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Caches are written a slot at a time, by views that are new each time; weights are only read. */
static void what_is_only_read_is_there(sherd_world *world)
{
    enum { WEIGHTS = 40, CACHES = 24, REQUESTS = 40 };
    sherd_tensor *weight[WEIGHTS], *cache[CACHES];

    for (int i = 0; i < WEIGHTS; i++)
        weight[i] = new_field(world, i);
    for (int i = 0; i < CACHES; i++)
        cache[i] = new_field(world, i);
    CHECK_OK(sherd_world_check(world));
    for (int request = 0; request < REQUESTS; request++) {
        sherd_scope_begin(world);
        for (int i = 0; i < CACHES; i++) {
            if (sherd_world_rank(world) == 0 && i == request % CACHES)
                sherd_world_fail(world, SHERD_EINVAL, "a bad request");
            sherd_fill(sherd_narrow(cache[i], 0, request % N, 1), request);
            sherd_fill(sherd_narrow(cache[(i + 1) % CACHES], 0, request % N, 1), request);
        }
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        for (int i = 0; i < WEIGHTS; i++)
            CHECK(!sherd_tensor_failed(weight[i]));
        if (request % 2)
            CHECK(sherd_tensor_revive_all(world) <= CACHES);
        for (int i = 0; i < CACHES; i++)
            CHECK(request % 2 ? !sherd_tensor_failed(cache[i])
                              : sherd_tensor_revive(cache[i]) == cache[i]);
        CHECK_EQ(sherd_tensor_revive_all(world), 0);
        for (int i = 0; i < CACHES && is_verified(); i++)
            sherd_fill(cache[i], request);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Another rank may have failed in its next step by now: a piece that was taken before is read. */
static void a_piece_is_read_under_an_alarm(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    sherd_tensor *t = new_field(world, 1), *mine = sherd_to_local(sherd_scale(t, 2));

    CHECK_OK(sherd_world_check(world));
    meet_in_secret(ranks);
    if (sherd_world_rank(world) == ranks - 1)
        sherd_world_fail(world, SHERD_EINVAL, "the next step");
    meet_in_secret(ranks);
    CHECK(first(mine) == 2 && sherd_tensor_read(t) == NULL && sherd_tensor_write(t) == NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(first(t) == 1);
    CHECK_OK(sherd_world_check(world));
}

/* A move that cuts away all but one rank's box: what is lost is the source alone, also there. */
static void a_moved_piece_is_another_tensor(sherd_world *world)
{
    const int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t sizes[SHERD_MAX_RANKS] = {0};
    const sherd_layout *last;

    sizes[ranks - 1] = N;
    const int64_t *by_dim[] = {sizes};
    const sherd_placement rows = sherd_shard(0);
    CHECK_OK(sherd_layout_create(&last, mesh, 1, (int64_t[]){N}, &rows,
                                 &(sherd_layout_options){.sizes = by_dim}));
    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = new_field(world, 1), *piece = sherd_redistribute(t, last, NULL);
        CHECK_OK(sherd_world_check(world));
        fail_between_writes(world, t, way);
        CHECK(sherd_tensor_failed(t) && !sherd_tensor_failed(piece));
        if (rank == ranks - 1)
            CHECK_EQ(first(piece), 1);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Also if its root keeps all of it, as one box of other axes. */
static void what_was_distributed_is_lost_on_all(sherd_world *world)
{
    const int64_t shape[1] = {N}, ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = mesh_of(world, ranks == 2 ? "2x1" : "3x1");
    const sherd_layout *all = layout_of(mesh, 1, shape, "S(0)R", ranks == 2 ? "0:6,0" : "0:6,0,0");

    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = sherd_distribute(sherd_constant(world, SHERD_F64, shape, 1, 1), all, 0);
        CHECK_OK(sherd_world_check(world));
        fail_between_writes(world, t, way);
        CHECK(sherd_tensor_failed(t));
    }
}

/* ---- and then -------------------------------------------------------------------------------- */

static void it_is_taken_as_it_is(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++) {
        sherd_tensor *t = new_field(world, 1), *view = sherd_narrow(t, 0, 3, 2);
        CHECK_OK(sherd_world_check(world));
        fail_between_writes(world, t, way);
        CHECK(sherd_tensor_revive(view) == view);
        CHECK_EQ(sherd_world_check(world), is_verified() ? SHERD_EDIFFER : SHERD_OK);
        CHECK(first(t) == 1 || first(t) == 7);
        CHECK(first(view) == 1 || first(view) == 7);
        sherd_fill(t, 2);
        CHECK_EQ(first(sherd_add(t, t)), 4);
        CHECK_OK(sherd_world_check(world));
    }
}

enum { LIST = 40 }; /* more than a rank tells one by one */

/* What a list of moves was to be filled with is lost, and not what it reads. */
static void a_long_list_loses_what_it_fills(sherd_world *world)
{
    const sherd_layout *to = layout_of(line_of_ranks(world), 1, (int64_t[]){N}, "R", NULL);
    const sherd_layout *list[LIST];
    sherd_tensor *t[LIST], *moved[LIST];

    for (int i = 0; i < LIST; i++) {
        list[i] = to;
        t[i] = sherd_constant_on(layout_of(line_of_ranks(world), 1, (int64_t[]){N}, "S(0)", NULL),
                                 SHERD_F64, i);
    }
    CHECK_OK(sherd_world_check(world));
    meet_in_secret(sherd_world_ranks(world));
    if (sherd_world_rank(world) == 1) {
        usleep(20000); /* until the others wait in the call */
        sherd_world_fail(world, SHERD_EINVAL, "instead of the move");
    } else {
        sherd_redistribute_many(moved, t, list, LIST);
    }
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    for (int i = 0; i < LIST; i++)
        CHECK(!sherd_tensor_failed(t[i]));
    sherd_redistribute_many(moved, t, list, LIST);
    CHECK_EQ(first(moved[LIST - 1]), LIST - 1);
    CHECK_OK(sherd_world_check(world));
}

static void revive(void *t)
{
    sherd_tensor_revive(t);
}

/* Whoever has revived it when another rank fails has it no more than the others. */
static void what_some_have_revived_is_lost_on_all(sherd_world *world)
{
    sherd_tensor *t = new_field(world, 1), *view = sherd_narrow(t, 0, 3, 2);

    CHECK_OK(sherd_world_check(world));
    for (int turn = 0; turn < 3; turn++) {
        fail_between_writes(world, t, turn);
        CHECK(sherd_tensor_failed(t));
        fail_between(world, revive, turn ? t : view);
        CHECK(sherd_tensor_failed(t) && sherd_tensor_failed(view));
        sherd_fill(t, 3);
        CHECK_EQ(first(sherd_scale(view, 2)), 6);
        CHECK_OK(sherd_world_check(world));
    }
}

static void a_view_is_written_anew_alone(sherd_world *world)
{
    sherd_tensor *t = new_field(world, 1), *view = sherd_narrow(t, 0, 3, 2);

    CHECK_OK(sherd_world_check(world));
    fail_between_writes(world, t, 0);
    CHECK(sherd_copy_from(view, new_field(world, 5)) != view);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL); /* it does not fit, and is lost as before */
    CHECK(sherd_tensor_failed(view) && sherd_tensor_failed(t));
    CHECK(sherd_fill(view, 5) == view);
    CHECK_EQ(first(view), 5);
    CHECK(sherd_tensor_failed(t) && !sherd_tensor_failed(view));
    CHECK_OK(sherd_world_check(world));
}

static void what_not_all_have_made_does_not_come_back(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    sherd_tensor *t = new_field(world, 1), *made;

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0) {
        meet_in_secret(ranks);
        sherd_world_fail(world, SHERD_EINVAL, "stop");
        meet_in_secret(ranks);
        made = sherd_scale(t, 2);
    } else {
        made = sherd_scale(t, 2);
        meet_in_secret(ranks);
        meet_in_secret(ranks);
    }
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(made));
    CHECK(sherd_tensor_failed(sherd_tensor_revive(made)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(first(sherd_scale(t, 2)), 2);
    CHECK_OK(sherd_world_check(world));
}

static void those_that_are_there_can_be_revived_too(sherd_world *world)
{
    sherd_tensor *t = new_field(world, 1), *plain = sherd_full(t);

    CHECK(sherd_tensor_revive(t) == t && sherd_tensor_revive(plain) == plain);
    CHECK(sherd_tensor_revive(NULL) == NULL);
    CHECK_EQ(first(sherd_add(t, t)), 2);
    CHECK_OK(sherd_world_check(world));
}

/* Whoever wants a gradient in a step that fails is the same tensor afterwards. */
static void wanting_a_gradient_is_no_new_tensor(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    sherd_tensor *t = new_field(world, 1);

    for (int step = 0; step < 3; step++) {
        bool last = sherd_world_rank(world) == ranks - 1;
        sherd_scale(t, 2);
        meet_in_secret(ranks);
        if (last && step == 0)
            sherd_world_fail(world, SHERD_EINVAL, "stop");
        if (step > 0 || last)
            meet_in_secret(ranks);
        sherd_scale(t, 3); /* some ranks do, some do not */
        if (step == 0 && !last)
            meet_in_secret(ranks);
        sherd_require_grad(t, step % 2 == 0);
        CHECK_EQ(sherd_world_check(world), step == 0 ? SHERD_EINVAL : SHERD_OK);
    }
}

/* ---- at random ------------------------------------------------------------------------------- */

enum { FIELDS = 5, STEPS = 30 };

static uint64_t next(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u, *state >> 33;
}

/* All find the same fields lost, and whatever is done about it, all agree on what is there. */
static void ranks_agree_on_what_is_lost(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    sherd_tensor *field[FIELDS];
    uint64_t all = 77;

    for (int i = 0; i < FIELDS; i++)
        field[i] = new_field(world, 1);
    CHECK_OK(sherd_world_check(world));
    for (int round = 0; round < (getenv("SHERD_PROOF") ? 2000 : 40); round++) {
        int who = (int)(next(&all) % (uint64_t)ranks), when = (int)(next(&all) % STEPS);
        sherd_scope_begin(world);
        for (int step = 0; step < STEPS; step++) {
            uint64_t what = next(&all);
            sherd_tensor *t = field[what % FIELDS];
            if (rank == who && step == when)
                sherd_world_fail(world, SHERD_EINVAL, "at a step");
            if (what / FIELDS % 8 < LEN(ways))
                ways[what / FIELDS % 8](t);
            else
                sherd_scale(t, 0.5);
        }
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        int64_t lost = 0, most, least;
        for (int i = 0; i < FIELDS; i++)
            lost = 2 * lost + sherd_tensor_failed(field[i]);
        CHECK_OK(sherd_world_most(&most, world, lost));
        CHECK_OK(sherd_world_most(&least, world, -lost));
        CHECK(most == lost && least == -lost);
        for (int i = 0; i < FIELDS; i++)
            if (next(&all) % 2 && !is_verified())
                sherd_tensor_revive(field[i]);
            else
                sherd_fill(field[i], 1);
        sherd_scope_end(world);
        if (sherd_world_check(world)) {
            CHECK_TEXT(sherd_world_error(world), "");
            return;
        }
    }
}

static const check_test tests[] = {
    {TEST(what_some_have_written_is_lost_on_all), {2, 3, 4}},
    {TEST(what_all_have_written_is_there), {1, 2, 3, 4}},
    {TEST(a_function_that_fails_on_all_loses_nothing), {1, 2, 3, 4}},
    {TEST(a_function_that_an_alarm_ends_loses_what_is_open), {2, 3}},
    {TEST(what_nobody_has_written_is_there), {2, 3}},
    {TEST(what_is_only_read_is_there), {2, 3, 8}},
    {TEST(a_piece_is_read_under_an_alarm), {1, 2, 3}},
    {TEST(a_moved_piece_is_another_tensor), {2, 3, 8}},
    {TEST(what_was_distributed_is_lost_on_all), {2, 3}},
    {TEST(it_is_taken_as_it_is), {2, 3, 8}},
    {TEST(what_some_have_revived_is_lost_on_all), {2, 3, 4}},
    {TEST(a_long_list_loses_what_it_fills), {2, 3}},
    {TEST(a_view_is_written_anew_alone), {2, 3}},
    {TEST(what_not_all_have_made_does_not_come_back), {2, 3}},
    {TEST(those_that_are_there_can_be_revived_too), {1, 2}},
    {TEST(wanting_a_gradient_is_no_new_tensor), {2, 3}},
    {TEST(ranks_agree_on_what_is_lost), {2, 3, 4, 8}},
};
CHECK_MAIN(tests)
