/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol on real ranks: the programs of the exhaustive model, right ones and wrong ones, and random ones after
 * the model's recipe. Right programs must run and be exact. Wrong ones must end with EDIFFER on all ranks, soon, and
 * leave a world that works. What a call that returns true brings must be right in any case.
 */
#include "world_programs.h"

static op call(int group, int src, int dst, unsigned reads, unsigned readers, int id)
{
    return (op){CALL, group, src, dst, reads, readers, id, 0};
}
static op begin(int handle, int group, int src, int dst, unsigned reads, unsigned readers, int id)
{
    return (op){BEGIN, group, src, dst, reads, readers, id, handle};
}
static op end(int handle)
{
    return (op){END, 0, 0, 0, 0, 0, 0, handle};
}
static op wall(int group, int src, int dst, int id)
{
    return (op){WALL, group, src, dst, 0, 0, id, 0};
}
static op begin_wall(int handle, int group, int src, int dst, int id)
{
    return (op){BEGIN_WALL, group, src, dst, 0, 0, id, handle};
}
static op write_to(int storage)
{
    return (op){WRITE, 0, storage, 0, 0, 0, 0, 0};
}
static op alarm_now(void)
{
    return (op){ALARM, 0, 0, 0, 0, 0, 0, 0};
}
static op meet(void)
{
    return (op){MEET, 0, 0, 0, 0, 0, 0, 0};
}

static void add(program *p, int rank, op o)
{
    p->ops[rank][p->count[rank]++] = o;
}

#define ADD(p, rank, ...)                      \
    do {                                       \
        const op list[] = {__VA_ARGS__};       \
        for (int at = 0; at < LEN(list); at++) \
            add(p, rank, list[at]);            \
    } while (0)

static program of(int ranks, int groups, unsigned a, unsigned b, unsigned c)
{
    return (program){.ranks = ranks, .groups = groups, .members = {a, b, c, (1u << ranks) - 1}};
}

/* Groups of three ranks, and lastly that of all (for works_again). */
static program of3(void)
{
    return of(3, 4, 3, 5, 6);
}
static program of2(void)
{
    return of(2, 4, 3, 3, 3);
}

static void clean(program *p)
{
    for (int r = 0; r < p->ranks; r++)
        add(p, r, meet());
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Runs a program with one check; it must end with `wanted` (1: OK or EDIFFER) and in time. */
static void expect(sherd_world *world, const program *p, int turns, int wanted, int fail_at)
{
    static _Thread_local stage st;

    set_stage(&st, world, p);
    for (int turn = 0; turn < turns; turn++) {
        int at = 0;
        renew(&st);
        double start = seconds();
        sherd_status status = run_to_check(&st, p, &at, fail_at);
        double took = seconds() - start;
        if (wanted == 1)
            CHECK(status == SHERD_OK || status == SHERD_EDIFFER);
        else if (!CHECK_EQ(status, wanted))
            fprintf(stderr, "%s: %s\n", p->name ? p->name : "random", sherd_world_error(world));
        if (!CHECK(took < 1.0))
            fprintf(stderr, "%s took %.2f s\n", p->name ? p->name : "random", took);
        /* All ranks have the same verdict. */
        int64_t mine = status, all[MAX_RANKS];
        CHECK(sherd__share(world, st.mesh[p->groups - 1], "verdict", &mine, 1, all));
        for (int q = 0; q < p->ranks; q++)
            CHECK_EQ(all[q], status);
        works_again(&st, p);
    }
    clear_stage(&st);
}

/* ---- right programs of the table ---------------------------------------------------------------- */

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
    ADD(&p, 1, call(3, 0, 1, 1, 0, 1), call(3, 0, 1, 0, 0, 2), call(3, 0, 1, 1, 0, 3));
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

/* ---- wrong programs ------------------------------------------------------------------------------ */

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

/* The begun call is dropped by the failed check, and the tensor that it was to fill is no tensor. */
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

/* ---- random programs ----------------------------------------------------------------------------- */

static program random_program(uint64_t *dice, int ranks, int calls)
{
    static const unsigned pairs[3] = {3, 5, 6};
    program p = ranks == 2 ? of2() : of(3, 4, 7, pairs[roll(dice, 3)], pairs[roll(dice, 3)]);
    int open[MAX_RANKS][MAX_OPS], opened[MAX_RANKS] = {0}, next[MAX_RANKS] = {0};

    for (int c = 0; c < calls; c++) {
        int g = roll(dice, 3);
        bool walls = roll(dice, 5) == 0;
        unsigned reads[MAX_RANKS] = {0}, readers[MAX_RANKS] = {0};
        for (int r = 0; r < ranks; r++)
            for (int q = 0; q < ranks; q++)
                if (r != q && (p.members[g] >> r & 1) && (p.members[g] >> q & 1) && roll(dice, 3)) {
                    reads[r] |= 1u << q;
                    readers[q] |= 1u << r;
                }
        for (int r = 0; r < ranks; r++) {
            if (!(p.members[g] >> r & 1))
                continue;
            int src = roll(dice, 2), handle = next[r];
            if (roll(dice, 4) == 0 && opened[r] < 4) {
                int dst = 4 + handle % 4;
                open[r][opened[r]++] = handle;
                next[r]++;
                add(&p, r,
                    walls ? begin_wall(handle, g, src, dst, c)
                          : begin(handle, g, src, dst, reads[r], readers[r], c));
            } else {
                add(&p, r, walls ? wall(g, src, 2, c) : call(g, src, 2, reads[r], readers[r], c));
            }
            if (roll(dice, 3) == 0)
                add(&p, r, write_to(roll(dice, 3)));
            if (opened[r] && roll(dice, 2))
                add(&p, r, end(open[r][--opened[r]]));
        }
    }
    for (int r = 0; r < ranks; r++)
        while (opened[r])
            add(&p, r, end(open[r][--opened[r]]));
    clean(&p);
    return p;
}

/* A begun result of which the storage was begun again before its end would hold the later data: leave those out. */
static bool ends_are_clear(const program *p)
{
    for (int r = 0; r < p->ranks; r++) {
        int holder[STORAGES];
        for (int i = 0; i < STORAGES; i++)
            holder[i] = -1;
        for (int i = 0; i < p->count[r]; i++) {
            const op *o = &p->ops[r][i];
            if (o->kind == BEGIN || o->kind == BEGIN_WALL) {
                if (holder[o->dst] >= 0)
                    return false;
                holder[o->dst] = o->handle;
            }
            for (int s = 0; o->kind == END && s < STORAGES; s++)
                holder[s] = holder[s] == o->handle ? -1 : holder[s];
        }
    }
    return true;
}

static program next_program(uint64_t *dice, int ranks, int calls)
{
    program p = random_program(dice, ranks, calls);

    while (!ends_are_clear(&p))
        p = random_program(dice, ranks, calls);
    return p;
}

static void random_right_programs_run(sherd_world *world)
{
    uint64_t dice = 11;

    for (int i = 0; i < 150; i++) {
        program p = next_program(&dice, sherd_world_ranks(world), 3 + i % 12);
        expect(world, &p, 2, SHERD_OK, -1);
    }
}

/* One rank fails at each of its ops in turn. */
static void a_failure_anywhere_reaches_all(sherd_world *world)
{
    uint64_t dice = 12;
    int ranks = sherd_world_ranks(world);

    for (int i = 0; i < 60; i++) {
        program p = next_program(&dice, ranks, 8);
        int who = roll(&dice, ranks), at = roll(&dice, p.count[who] - 1);
        expect(world, &p, 1, p.ops[who][at].kind == MEET ? SHERD_OK : SHERD_ENOTSUP,
               sherd_world_rank(world) == who ? at : -1);
    }
}

/* Drop a call, change one, or swap two. Returns what must come of it: EDIFFER, or 1 = that or nothing. */
static int break_program(uint64_t *dice, program *p)
{
    int r = roll(dice, p->ranks), calls[MAX_OPS], count = 0;

    for (int i = 0; i < p->count[r]; i++)
        if (p->ops[r][i].kind == CALL || p->ops[r][i].kind == WALL)
            calls[count++] = i;
    if (count < 2)
        return 0;
    int a = calls[roll(dice, count)], b = calls[roll(dice, count)];
    op *ops = p->ops[r];
    switch (roll(dice, 3)) {
    case 0:
        memmove(&ops[a], &ops[a + 1], (size_t)(p->count[r] - a - 1) * sizeof *ops);
        p->count[r]--;
        return SHERD_EDIFFER;
    case 1:
        ops[a].id += 500;
        return SHERD_EDIFFER;
    default:
        if (a == b)
            return 0;
        op keep = ops[a];
        ops[a] = ops[b];
        ops[b] = keep;
        return ops[a].group == ops[b].group ? SHERD_EDIFFER : 1;
    }
}

static void random_wrong_programs_are_reported(sherd_world *world)
{
    uint64_t dice = 13;
    int broken = 0;

    for (int i = 0; i < 250; i++) {
        program p = next_program(&dice, sherd_world_ranks(world), 3 + i % 6);
        int wanted = break_program(&dice, &p);
        if (!wanted)
            continue;
        broken++;
        expect(world, &p, 1, wanted, -1);
    }
    CHECK(broken > 150);
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
    {TEST(a_begun_call_spans_a_check), {2}},
    {TEST(an_epoch_counts_from_one_again), {2}},
    {TEST(a_failed_check_is_left_together), {2}},
    {TEST(a_skipped_call_is_reported), {2}},
    {TEST(different_calls_are_reported), {2}},
    {TEST(groups_in_opposite_order_are_reported), {2}},
    {TEST(a_ring_over_three_groups_is_reported), {3}},
    {TEST(what_no_partner_reads_is_reported), {3}},
    {TEST(a_begun_call_that_nobody_makes_is_dropped), {2}},
    {TEST(random_right_programs_run), {2, 3}},
    {TEST(a_failure_anywhere_reaches_all), {2, 3}},
    {TEST(random_wrong_programs_are_reported), {2, 3}},
};
CHECK_MAIN(tests)
