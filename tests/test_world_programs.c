/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol on real ranks: the programs of the exhaustive model, right ones and wrong ones.
 * Right programs must run and be exact. Wrong ones must end with EDIFFER on all ranks, soon, and
 * leave a world that works.
 */
#include "world_programs.h"

/* ---- right programs of the table ------------------------------------------------------------- */

static void begun_calls_progress_in_every_wait(sherd_world *world)
{
    program p = of3();
    p.name = "begin A; B | A; write; C | C; B";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 2, 1), call(1, 2, 3, 4, 4, 2), end(1));
    ADD(&p, 1, call(0, 0, 1, 1, 1, 1), write_to(0), call(2, 2, 3, 4, 4, 3));
    ADD(&p, 2, call(2, 0, 1, 2, 2, 3), call(1, 0, 3, 1, 1, 2));
    clean(&p);
    expect(world, &p, 50, SHERD_OK, -1);
}

static void one_storage_goes_to_different_readers(sherd_world *world)
{
    program p = of3();
    p.name = "x read by q in call 0 and by r in call 1, then written";
    ADD(&p, 0, call(3, 0, 1, 0, 2, 1), call(3, 0, 1, 0, 4, 2), write_to(0), call(3, 0, 1, 0, 6, 3));
    ADD(&p, 1, pause_now(), call(3, 0, 1, 1, 0, 1), call(3, 0, 1, 0, 0, 2), call(3, 0, 1, 1, 0, 3));
    ADD(&p, 2, call(3, 0, 1, 0, 0, 1), call(3, 0, 1, 1, 0, 2), call(3, 0, 1, 1, 0, 3));
    clean(&p);
    expect(world, &p, 50, SHERD_OK, -1);
}

static void a_rank_without_data_takes_part(sherd_world *world)
{
    program p = of3();
    p.name = "rank 2 without data for 40 calls, then all write to all";
    for (int i = 0; i < 18; i++) {
        ADD(&p, 0, call(3, 0, 1, 2, 2, i), write_to(0));
        ADD(&p, 1, call(3, 0, 1, 1, 1, i), write_to(0));
        ADD(&p, 2, call(3, 0, 1, 0, 0, i));
    }
    for (int r = 0; r < 3; r++)
        ADD(&p, r, wall(3, 0, 2, 99), write_to(2));
    clean(&p);
    expect(world, &p, 30, SHERD_OK, -1);
}

static void left_is_the_earliest_unfinished_call(sherd_world *world)
{
    program p = of2();
    p.name = "begin k, call k+1, the source of k is written";
    ADD(&p, 0, call(0, 0, 2, 0, 2, 1), call(0, 1, 2, 0, 2, 2), write_to(0), call(0, 0, 2, 0, 2, 3));
    ADD(&p, 1, begin(1, 0, 0, 1, 1, 0, 1), call(0, 0, 2, 1, 0, 2), end(1), call(0, 0, 2, 1, 0, 3));
    clean(&p);
    expect(world, &p, 50, SHERD_OK, -1);
}

static void all_write_to_all(sherd_world *world)
{
    program p = of3();
    p.name = "all-reduces, begun and not, results and sources written";
    for (int r = 0; r < 3; r++)
        ADD(&p, r, begin_wall(1, 3, 0, 3, 1), wall(3, 1, 2, 2), write_to(0), write_to(2), end(1),
            write_to(3), wall(3, 0, 2, 3), write_to(2));
    clean(&p);
    expect(world, &p, 50, SHERD_OK, -1);
}

static void the_ring_is_full_of_begun_calls(sherd_world *world)
{
    program p = of2();
    p.name = "40 begun calls in a ring of 16, results reused";
    for (int r = 0; r < 2; r++) {
        unsigned other = 1u << (1 - r);
        for (int i = 0; i < 40; i++)
            ADD(&p, r, begin(i, 0, i % 2, 2 + i % 6, other, other, i));
        ADD(&p, r, write_to(0), end(39), end(38), end(37));
    }
    clean(&p);
    expect(world, &p, 30, SHERD_OK, -1);
}

/* One rank has the ring full of begun calls and waits elsewhere; the other needs them finished. */
static void a_full_ring_progresses_in_another_wait(sherd_world *world)
{
    program p = of2();
    p.name = "16 begun; call of another group | the same as calls, a write, then the other group";
    for (int i = 0; i < 16; i++) {
        ADD(&p, 0, begin(i, 0, 0, 2 + i % 6, 2, 2, i));
        ADD(&p, 1, call(0, 0, 2, 1, 1, i));
    }
    ADD(&p, 0, call(1, 1, 2, 2, 2, 50), end(15));
    ADD(&p, 1, write_to(0), call(1, 1, 3, 1, 1, 50));
    clean(&p);
    expect(world, &p, 50, SHERD_OK, -1);
}

static void an_in_place_write_finishes_own_begun_calls(sherd_world *world)
{
    program p = of2();
    p.name = "begin; write the source; end";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 0, 1), write_to(0), end(1));
    ADD(&p, 1, call(0, 0, 1, 0, 1, 1), write_to(0));
    clean(&p);
    expect(world, &p, 50, SHERD_OK, -1);
}

static void a_result_is_settled_before_it_is_filled(sherd_world *world)
{
    program p = of2();
    p.name = "a source, still unread by a begun call, becomes a result";
    ADD(&p, 0, call(0, 0, 1, 0, 2, 1), call(0, 2, 0, 2, 2, 2));
    ADD(&p, 1, begin(1, 0, 1, 3, 1, 0, 1), begin(2, 0, 2, 4, 1, 1, 2), pause_now(), end(1), end(2));
    clean(&p);
    expect(world, &p, 10, SHERD_OK, -1);
}

/* A sender that nobody holds back but the ring. */
static void a_sender_is_at_most_a_ring_ahead(sherd_world *world)
{
    program p = of2();
    p.name = "40 calls of a pure sender, a late reader";
    ADD(&p, 1, pause_now());
    for (int i = 0; i < 40; i++) {
        ADD(&p, 0, call(0, i % 2, 2, 0, 2, i));
        ADD(&p, 1, call(0, 0, 2, 1, 0, i));
    }
    clean(&p);
    expect(world, &p, 10, SHERD_OK, -1);
    p.few = true;
    expect(world, &p, 10, SHERD_OK, -1);
}

/* Rank 0 writes before its reader, which waits for what comes after that, has read: of what is read
 * in place, a ring of waits. */
static void what_a_record_carries_is_written_at_once(sherd_world *world)
{
    program p = of2();
    p.name = "a source that is written before it is read";
    ADD(&p, 0, call(0, 0, 2, 0, 2, 1), write_to(0), call(1, 0, 2, 0, 2, 2));
    ADD(&p, 1, call(1, 0, 2, 1, 0, 2), call(0, 0, 3, 1, 0, 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p.few = true;
    expect(world, &p, 10, SHERD_OK, -1);
}

/* Runs a program with several checks, all of which must give `wanted`. */
static void expect_checks(sherd_world *world, const program *p, int turns, const int *wanted)
{
    static _Thread_local stage st;

    set_stage(&st, world, p);
    for (int turn = 0; turn < turns; turn++) {
        renew(&st);
        for (int at = 0, i = 0; at < p->count[st.me]; i++)
            if (!CHECK_EQ(run_to_check(&st, p, &at, -1), wanted[i]))
                fprintf(stderr, "%s: check %d: %s\n", p->name, i, sherd_world_error(world));
        works_again(&st, p);
    }
    clear_stage(&st);
}

static void a_begun_call_spans_a_check(sherd_world *world)
{
    program p = of2();
    p.name = "begin; check; end | call; write; check";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 2, 1), meet(), end(1), meet());
    ADD(&p, 1, call(0, 0, 1, 1, 1, 1), write_to(0), meet(), meet());
    expect_checks(world, &p, 50, (int[]){SHERD_OK, SHERD_OK});
}

static void an_epoch_counts_from_one_again(sherd_world *world)
{
    program p = of2();
    p.name = "two calls, a failure, one call, then a write";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1), call(0, 0, 1, 2, 2, 2), alarm_now(), meet(),
        call(0, 0, 1, 0, 2, 3), write_to(0), meet());
    ADD(&p, 1, call(0, 0, 1, 1, 1, 1), call(0, 0, 1, 1, 1, 2), meet(), call(0, 0, 1, 1, 0, 3),
        meet());
    expect_checks(world, &p, 50, (int[]){SHERD_ENOTSUP, SHERD_OK});
}

/* A dropped call of the old epoch must not reach into the new one. */
static void a_failed_check_is_left_together(sherd_world *world)
{
    program p = of2();
    p.name = "begin; check | call; fail; check; write at once";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 0, 1), meet(), meet());
    ADD(&p, 1, call(0, 0, 1, 0, 1, 1), alarm_now(), meet(), write_to(0), write_to(0), meet());
    expect_checks(world, &p, 100, (int[]){SHERD_ENOTSUP, SHERD_OK});
    p = of2();
    p.name = "begun all-reduces; fail; check; results used at once";
    for (int r = 0; r < 2; r++)
        ADD(&p, r, begin_wall(1, 0, 0, 1, 1));
    ADD(&p, 1, alarm_now());
    for (int r = 0; r < 2; r++)
        ADD(&p, r, meet(), write_to(0), write_to(2), call(0, 0, 2, 1u << (1 - r), 1u << (1 - r), 2),
            write_to(0), meet());
    expect_checks(world, &p, 100, (int[]){SHERD_ENOTSUP, SHERD_OK});
}

/* ---- wrong programs -------------------------------------------------------------------------- */

static void a_skipped_call_is_reported(sherd_world *world)
{
    program p = of2();
    p.name = "call; check | check";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of2();
    p.name = "a pure sender; its reader skips";
    ADD(&p, 0, call(0, 0, 1, 0, 2, 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of2();
    p.name = "a pure sender writes; its reader skips";
    ADD(&p, 0, call(0, 0, 1, 0, 2, 1), write_to(0));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
}

static void different_calls_are_reported(sherd_world *world)
{
    program p = of2();
    p.name = "two calls in one group";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1));
    ADD(&p, 1, call(0, 0, 1, 1, 1, 2));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of2();
    p.name = "rank 1 believes that it has no data";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1));
    ADD(&p, 1, call(0, 0, 1, 0, 0, 2));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
}

static void an_earlier_difference_fails_the_next_call(sherd_world *world)
{
    program p = of2();
    p.name = "different calls without data, then the same with data";
    ADD(&p, 0, call(0, 0, 1, 0, 0, 1), must_fail(call(0, 0, 1, 2, 2, 3)));
    ADD(&p, 1, call(0, 0, 1, 0, 0, 2), must_fail(call(0, 0, 1, 1, 1, 3)));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of2();
    p.name = "one waits for a call that the other's ring no longer holds";
    ADD(&p, 0, pause_now(), must_fail(call(0, 0, 1, 2, 2, 0)));
    for (int i = 0; i < 20; i++)
        ADD(&p, 1, call(0, 0, 1, 0, 0, i + 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of2();
    p.name = "a difference that is seen from within a check";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 0, 1));
    ADD(&p, 1, pause_now(), call(0, 0, 1, 0, 1, 2));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
}

/* What the alarm ended is not settled: no write, and the memory is not given out again before the
 * check. */
static void a_wait_that_the_alarm_ends_settles_nothing(sherd_world *world)
{
    program p = of2();
    p.name = "a write waits for a reader, who fails";
    ADD(&p, 0, call(0, 0, 1, 0, 2, 1), must_fail(write_to(0)));
    ADD(&p, 1, pause_now(), alarm_now());
    clean(&p);
    expect(world, &p, 10, SHERD_ENOTSUP, -1);
    p = of2();
    p.name = "a begun result, whose sender fails";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 0, 1), must_fail(write_to(1)));
    ADD(&p, 1, pause_now(), alarm_now());
    clean(&p);
    expect(world, &p, 10, SHERD_ENOTSUP, -1);
}

static void groups_in_opposite_order_are_reported(sherd_world *world)
{
    program p = of2();
    p.name = "two groups in opposite order";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1), call(1, 0, 2, 2, 2, 2));
    ADD(&p, 1, call(1, 0, 1, 1, 1, 2), call(0, 0, 2, 1, 1, 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
}

static void a_ring_over_three_groups_is_reported(sherd_world *world)
{
    program p = of3();
    p.name = "a ring of orders over three groups";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1), call(1, 0, 2, 4, 4, 2));
    ADD(&p, 1, call(2, 0, 1, 4, 4, 3), call(0, 0, 2, 1, 1, 1));
    ADD(&p, 2, call(1, 0, 1, 1, 1, 2), call(2, 0, 2, 2, 2, 3));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of3();
    p.name = "a writer in the ring";
    ADD(&p, 0, call(3, 0, 1, 0, 2, 1), write_to(0), call(1, 0, 2, 4, 4, 2));
    ADD(&p, 1, call(3, 0, 1, 5, 0, 1));
    ADD(&p, 2, call(1, 0, 1, 1, 1, 2), call(3, 0, 2, 0, 2, 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of3();
    p.name = "a writer in the ring, the reader's call only begun";
    ADD(&p, 0, begin(1, 3, 0, 1, 0, 2, 1), write_to(0), end(1), call(1, 0, 2, 4, 4, 2));
    ADD(&p, 1, begin(1, 3, 0, 1, 5, 0, 1), end(1));
    ADD(&p, 2, call(1, 0, 1, 1, 1, 2), call(3, 0, 2, 0, 2, 1));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
}

static void what_no_partner_reads_is_reported(sherd_world *world)
{
    program p = of3();
    p.name = "a non-partner makes another call";
    ADD(&p, 0, call(3, 0, 1, 2, 2, 1));
    ADD(&p, 1, call(3, 0, 1, 1, 1, 1));
    ADD(&p, 2, call(3, 0, 1, 0, 0, 2));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of3();
    p.name = "rank 2 makes one call without data too few";
    for (int r = 0; r < 2; r++)
        ADD(&p, r, call(3, 0, 1, 1u << (1 - r), 1u << (1 - r), 1),
            call(3, 0, 1, 1u << (1 - r), 1u << (1 - r), 2), wall(3, 0, 2, 3));
    ADD(&p, 2, call(3, 0, 1, 0, 0, 1), wall(3, 0, 2, 3));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
    p = of3();
    p.name = "one call too many";
    ADD(&p, 0, call(0, 0, 1, 2, 2, 1));
    ADD(&p, 1, call(0, 0, 1, 1, 1, 1), call(0, 0, 2, 0, 0, 2));
    clean(&p);
    expect(world, &p, 10, SHERD_EDIFFER, -1);
}

/* The begun call is dropped by the failed check, and the tensor that it was to fill is no
 * tensor. */
static void a_begun_call_that_nobody_makes_is_dropped(sherd_world *world)
{
    program p = of2();
    p.name = "begin; check; call | check; call";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 2, 1), meet(), call(0, 0, 2, 2, 2, 2), meet());
    ADD(&p, 1, meet(), call(0, 0, 2, 1, 1, 2), meet());
    expect_checks(world, &p, 20, (int[]){SHERD_EDIFFER, SHERD_OK});
    p = of2();
    p.name = "begin; check; end | check";
    ADD(&p, 0, begin(1, 0, 0, 1, 2, 2, 1), meet(), end(1), meet());
    ADD(&p, 1, meet(), meet());
    expect_checks(world, &p, 20, (int[]){SHERD_EDIFFER, SHERD_EINVAL});
}

static const check_test tests[] = {
    {TEST(begun_calls_progress_in_every_wait), {3}},
    {TEST(one_storage_goes_to_different_readers), {3}},
    {TEST(a_rank_without_data_takes_part), {3}},
    {TEST(left_is_the_earliest_unfinished_call), {2}},
    {TEST(all_write_to_all), {3}},
    {TEST(the_ring_is_full_of_begun_calls), {2}},
    {TEST(a_full_ring_progresses_in_another_wait), {2}},
    {TEST(an_in_place_write_finishes_own_begun_calls), {2}},
    {TEST(a_result_is_settled_before_it_is_filled), {2}},
    {TEST(a_sender_is_at_most_a_ring_ahead), {2}},
    {TEST(what_a_record_carries_is_written_at_once), {2}},
    {TEST(a_begun_call_spans_a_check), {2}},
    {TEST(an_epoch_counts_from_one_again), {2}},
    {TEST(a_failed_check_is_left_together), {2}},
    {TEST(a_skipped_call_is_reported), {2}},
    {TEST(different_calls_are_reported), {2}},
    {TEST(an_earlier_difference_fails_the_next_call), {2}},
    {TEST(a_wait_that_the_alarm_ends_settles_nothing), {2}},
    {TEST(groups_in_opposite_order_are_reported), {2}},
    {TEST(a_ring_over_three_groups_is_reported), {3}},
    {TEST(what_no_partner_reads_is_reported), {3}},
    {TEST(a_begun_call_that_nobody_makes_is_dropped), {2}},
};
CHECK_MAIN(tests)
