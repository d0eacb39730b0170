/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that can never end, behind a rank that may not say so itself: it is at the check, or it
 * stands between two others with more open calls than anybody would think of. Ranks sleep for
 * longer than the watchdog waits, so that only what wakes them counts. And numbers of calls that
 * are larger than 32 bits.
 */
#include "world_programs.h"
#include "world/inside.h"

static void sleep_at_once(sherd_world *world)
{
    world->patience.spins = world->patience.most_spins = 0;
    world->patience.yields = world->patience.most_yields = 0;
    world->patience.sleep_ns = (int64_t)1000 * 1000000000;
}

/* A wrong program, with ranks that spin and with ranks that sleep. */
static void expect_differ(sherd_world *world, program *p)
{
    sherd__patience patience = world->patience;

    clean(p);
    expect(world, p, 10, SHERD_EDIFFER, -1);
    sleep_at_once(world);
    expect(world, p, 10, SHERD_EDIFFER, -1);
    world->patience = patience;
}

/* Rank 1 sees that rank 0 made another call, but it is at the check; rank 0 waits for it to
 * leave. */
static void a_writer_learns_of_another_call_behind_a_check(sherd_world *world)
{
    program p = of2();
    p.name = "call A; write | begin B; check";
    ADD(&p, 0, call(0, 0, 1, 0, 2, 1), must_fail(write_to(0)));
    ADD(&p, 1, pause_now(), begin(1, 0, 0, 1, 1, 0, 2));
    expect_differ(world, &p);
    p = of2();
    p.name = "call A; write | pause; begin B; begin C; check";
    ADD(&p, 0, call(0, 0, 1, 0, 2, 1), must_fail(write_to(0)));
    ADD(&p, 1, begin(1, 0, 0, 1, 1, 0, 2), begin(2, 1, 0, 2, 1, 0, 3));
    expect_differ(world, &p);
}

/* Rank 1 can not finish its call without rank 2, which is at the check too. */
static void a_writer_learns_of_a_missing_rank_behind_a_check(sherd_world *world)
{
    program p = of3();
    p.name = "call; write | begin call; check | check";
    ADD(&p, 0, call(3, 0, 1, 0, 2, 1), must_fail(write_to(0)));
    ADD(&p, 1, begin(1, 3, 0, 1, 5, 0, 1));
    expect_differ(world, &p);
    p = of3();
    p.name = "call; write | begin call; check | pause; check";
    ADD(&p, 0, call(3, 0, 1, 0, 2, 1), must_fail(write_to(0)));
    ADD(&p, 1, begin(1, 3, 0, 1, 5, 0, 1));
    ADD(&p, 2, pause_now(), pause_now());
    expect_differ(world, &p);
    p = of3();
    p.name = "an all-reduce ends when all have left it; one has only begun, one never comes";
    ADD(&p, 0, call(3, 0, 1, 0, 2, 1), must_fail(call(0, 0, 0, 0, 2, 2)));
    ADD(&p, 1, begin(1, 3, 0, 1, 5, 0, 1), call(0, 0, 2, 1, 0, 2));
    expect_differ(world, &p);
}

/* What rank 1 lacks of the call that closes the ring is the last of many things. */
static void a_ring_behind_many_open_calls_is_reported(sherd_world *world)
{
    for (int many = 15; many <= 45; many += 30) {
        program p = of3();
        p.name = "call; write | 15 begun, begin call, call | call";
        ADD(&p, 0, call(3, 0, 1, 0, 2, 1), must_fail(write_to(0)));
        for (int i = 0; i < many; i++)
            ADD(&p, 1, begin(i + 1, 2, 0, 1 + i % 2, 4, 0, i + 1));
        ADD(&p, 1, begin(50, 3, 0, 3, 5, 0, 1), must_fail(call(2, 0, 4, 4, 0, 99)));
        ADD(&p, 2, must_fail(call(1, 0, 1, 1, 1, 7)));
        expect_differ(world, &p);
    }
}

static void too_many_open_calls_are_refused(sherd_world *world)
{
    static const int64_t stride = 1;
    static _Thread_local stage st;
    program p = of2();
    op o = begin(1, 0, 0, 1, 1, 0, 1); /* rank 1 reads from rank 0, which makes no call */
    hand_made *h = &st.made[0];
    int made = 0;

    set_stage(&st, world, &p);
    make_plan(&st, h, &p, &o);
    CHECK_OK(sherd_world_check(world));
    sherd__move move = {.plan = &h->plan, .dtype = SHERD_F64, .source_stride = &stride};
    move.source = st.block[0];
    while (st.me == 1 && made <= SHERD__OPEN) {
        move.result = sherd__block_take(world, WHOLE * 8, true);
        if (!move.result || !sherd__call(world, "program", &move, 1, true))
            break;
        made++;
    }
    if (st.me == 1)
        atomic_store(&check_state->mark, made);
    while (atomic_load(&check_state->mark) == 0)
        usleep(100);
    CHECK_EQ(atomic_load(&check_state->mark), SHERD__OPEN);
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    works_again(&st, &p);
    clear_stage(&st);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static const uint64_t bases[] = {(UINT64_C(1) << 32) - 20, UINT64_C(1) << 63};

/* All ranks go on counting from here. */
static void count_from(sherd_world *world, uint64_t base)
{
    CHECK_OK(sherd_world_check(world));
    world->base = base;
    CHECK_OK(sherd_world_check(world));
}

static void numbers_go_past_32_bits(sherd_world *world)
{
    for (int b = 0; b < LEN(bases); b++) {
        program p = of2();
        count_from(world, bases[b]);
        for (int i = 0; i < 20; i++)
            for (int r = 0; r < 2; r++)
                ADD(&p, r, call(0, 0, 1, 1u << (1 - r), 1u << (1 - r), i), write_to(0),
                    wall(0, 0, 2, 100 + i));
        clean(&p);
        expect(world, &p, 30, SHERD_OK, -1);
        CHECK(world->base == bases[b]); /* no failure, no new epoch */
        CHECK(world->whole.base <= bases[b]);
    }
}

/* What is left over of an epoch is below the next one's numbers. */
static void an_epoch_begins_after_the_last_number(sherd_world *world)
{
    for (int b = 0; b < LEN(bases); b++) {
        program p = of2();
        count_from(world, bases[b]);
        for (int r = 0; r < 2; r++)
            ADD(&p, r, call(0, 0, 1, 1u << (1 - r), 1u << (1 - r), 1), write_to(0));
        ADD(&p, 0, alarm_now());
        clean(&p);
        uint64_t before = world->base;
        expect(world, &p, 30, SHERD_ENOTSUP, -1);
        CHECK(world->base >= before + 30 && world->base <= before + 30 * 8);
    }
}

static const check_test tests[] = {
    {TEST(a_writer_learns_of_another_call_behind_a_check), {2}},
    {TEST(a_writer_learns_of_a_missing_rank_behind_a_check), {3}},
    {TEST(a_ring_behind_many_open_calls_is_reported), {3}},
    {TEST(too_many_open_calls_are_refused), {2}},
    {TEST(numbers_go_past_32_bits), {2}},
    {TEST(an_epoch_begins_after_the_last_number), {2}},
};
CHECK_MAIN(tests)
