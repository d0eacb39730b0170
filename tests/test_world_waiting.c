/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting: no wake-up is lost where ranks sleep at once and for long, and ranks that have to share
 * cores call often.
 */
#include "check.h"
#include "world/inside.h"

static void some_time(uint64_t *dice)
{
    int turns = roll(dice, 4) ? roll(dice, 60) : roll(dice, 4000);

    for (volatile int i = 0; i < turns; i++)
        ;
}

/* Sleep at the first chance, and for longer than the watchdog waits: a wake-up that is lost ends
 * the test. */
static void sleep_at_once(sherd_world *world)
{
    world->patience.spins = world->patience.most_spins = 0;
    world->patience.yields = world->patience.most_yields = 0;
    world->patience.sleep_ns = (int64_t)1000 * 1000000000;
}

typedef struct setting {
    const sherd_mesh *mesh;
    const sherd_plan *plan;
    sherd__block *source, *result;
    int64_t count;
} setting;

static setting set_up(sherd_world *world, int64_t count)
{
    setting s = {.count = count};
    const sherd_layout *from = NULL, *to = NULL;
    sherd_placement sum = sherd_partial(SHERD_SUM), whole = sherd_replicate();

    CHECK_OK(
        sherd_mesh_create(&s.mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    CHECK_OK(sherd_layout_create(&from, s.mesh, 1, &count, &sum, NULL));
    CHECK_OK(sherd_layout_create(&to, s.mesh, 1, &count, &whole, NULL));
    CHECK_OK(sherd_plan_create(&s.plan, from, to, SHERD_F32, NULL));
    CHECK((s.source = sherd__block_take(world, count * 4, true)) != NULL);
    CHECK((s.result = sherd__block_take(world, count * 4, true)) != NULL);
    return s;
}

static void all_reduce(sherd_world *world, const setting *s, int turn, bool begin)
{
    static const int64_t stride = 1;
    int ranks = sherd_world_ranks(world), me = sherd_world_rank(world), wrong = 0;
    sherd__move move = {.plan = s->plan,
                        .dtype = SHERD_F32,
                        .source = s->source,
                        .source_stride = &stride,
                        .result = s->result};

    if (!CHECK(sherd__block_writable(world, s->source)))
        return;
    float *x = sherd__block_data(s->source);
    for (int64_t i = 0; i < s->count; i++)
        x[i] = (float)(turn % 1000 + me);
    CHECK(sherd__call(world, "all_reduce", &move, 1, begin));
    CHECK(sherd__block_readable(world, s->result));
    x = sherd__block_data(s->result);
    for (int64_t i = 0; i < s->count; i++)
        wrong += x[i] != (float)(turn % 1000 * ranks + ranks * (ranks - 1) / 2);
    CHECK_EQ(wrong, 0);
}

static void say(int mark)
{
    atomic_store(&check_state->mark, mark);
}

/* Every kind of wait, and every kind of store that must ring: records, `left`, arrivals, verdicts,
 * the alarm. On a machine so full that each wake-up takes long there are fewer. */
static void no_wake_up_is_lost(sherd_world *world)
{
    enum { TURNS = 3000, SECONDS = 10, LATE = -1 };
    double begin = seconds();
    setting small = set_up(world, 1), large = set_up(world, 20000);
    uint64_t dice = (uint64_t)sherd_world_rank(world) * 991 + 5;

    say(0);
    CHECK_OK(sherd_world_check(world));
    sleep_at_once(world);
    for (int turn = 0; turn < TURNS; turn++) {
        some_time(&dice);
        if (turn % 63 == 0 && sherd_world_rank(world) == 0 && seconds() - begin > SECONDS)
            say(LATE); /* all see it behind the check of this turn, or none */
        all_reduce(world, turn % 50 ? &small : &large, turn, turn % 3 == 0);
        some_time(&dice);
        if (turn % 7 == 0)
            CHECK_OK(sherd_world_check(world));
        if (turn % 63 == 0) {
            if (sherd_world_rank(world) == turn / 63 % sherd_world_ranks(world))
                sherd_world_fail(world, SHERD_EINVAL, "now and then");
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            if (atomic_load(&check_state->mark) == LATE)
                break;
        }
    }
}

/* Long enough for the other rank to fall asleep; nothing is wrong if it does not. */
static void linger(void)
{
    usleep(50000);
}

/* Does nothing at all for the library until the other rank has said so. */
static void until(int mark)
{
    while (atomic_load(&check_state->mark) != mark)
        usleep(100);
}

/* One store alone must wake who waits for it: the other rank does nothing more until it sees that
 * it has. */
static void each_store_wakes_by_itself(sherd_world *world)
{
    setting s = set_up(world, 1000);
    const sherd_layout *first = NULL, *whole = NULL;
    const sherd_plan *plan = NULL;
    int64_t one[2] = {1000, 0}, stride = 1, mine = 1, all[2];
    const int64_t *sizes[1] = {one};
    sherd_layout_options cut = {.sizes = sizes};
    sherd_placement rows = sherd_shard(0), replica = sherd_replicate();
    int me = sherd_world_rank(world);

    /* Rank 0 holds all and waits for nothing; rank 1 reads. */
    CHECK_OK(sherd_layout_create(&first, s.mesh, 1, &s.count, &rows, &cut));
    CHECK_OK(sherd_layout_create(&whole, s.mesh, 1, &s.count, &replica, NULL));
    CHECK_OK(sherd_plan_create(&plan, first, whole, SHERD_F32, NULL));
    CHECK_OK(sherd_world_check(world));
    sleep_at_once(world);
    sherd__move move = {.plan = plan,
                        .dtype = SHERD_F32,
                        .source = me == 0 ? s.source : NULL,
                        .source_stride = &stride,
                        .result = s.result};

    /* A record. */
    if (me == 0)
        linger();
    CHECK(sherd__call(world, "record", &move, 1, me == 0));
    if (me == 1)
        say(1);
    else
        until(1);
    /* `left`: rank 0 waits until it may write. */
    CHECK_OK(sherd_world_check(world));
    if (me == 1)
        linger();
    CHECK(sherd__call(world, "left", &move, 1, false));
    if (me == 0) {
        CHECK(sherd__block_writable(world, s.source));
        say(2);
    } else {
        until(2);
    }
    /* The alarm. */
    CHECK_OK(sherd_world_check(world));
    if (me == 1) {
        linger();
        sherd_world_fail(world, SHERD_ELIMIT, "look up");
        until(3);
    } else {
        CHECK(!sherd__share(world, s.mesh, "alarm", &mine, 1, all));
        say(3);
    }
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
}

static void sleepers_learn_of_ranks_that_never_come(sherd_world *world)
{
    setting s = set_up(world, 1);
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    for (int turn = 0; turn < 20; turn++) {
        sleep_at_once(world);
        if (sherd_world_rank(world) != turn % sherd_world_ranks(world))
            CHECK(!sherd__share(world, s.mesh, "never", &mine, 1, all));
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    }
}

/* 5 to 20 us a call for 8 ranks on 2 cores, printed; ranks that spin would take milliseconds. */
static void ranks_that_share_cores_call_often(sherd_world *world)
{
    enum { TURNS = 1000 };
    setting s = set_up(world, 8);
    double start = seconds();

    for (int turn = 0; turn < TURNS; turn++)
        all_reduce(world, &s, turn, false);
    if (sherd_world_rank(world) == 0)
        printf("%d all-reduces of %d ranks: %.0f ms\n", TURNS, sherd_world_ranks(world),
               1000 * (seconds() - start));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(no_wake_up_is_lost), {2, 3, 4, 8}},
    {TEST(each_store_wakes_by_itself), {2}},
    {TEST(sleepers_learn_of_ranks_that_never_come), {2, 3, 8}},
    {TEST(ranks_that_share_cores_call_often), {2, 4, 8}},
};
CHECK_MAIN(tests)
