/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a pipeline's turns: everything once, nothing before what it needs, no place that
 * waits for ever, no more kept than a schedule says, and no longer than it must take.
 */
#include "check.h"
#include "parallel/turns.h"
#include "world/world.h"

enum { PLACES = 8, STAGES = 24, MOST = 40, FORWARD = 1, BACKWARD = 2 };

static sherd_pipeline_turn list[PLACES][2 * STAGES * MOST];
static int64_t length[PLACES];

static sherd__turns make(sherd__heap *heap, int places, int stages, int64_t count,
                         sherd_pipeline_schedule schedule, bool forward_only)
{
    sherd__turns t = {places, stages, count, schedule, forward_only, 0};

    CHECK(sherd__turns_fit(&t, heap));
    for (int p = 0; p < places; p++) {
        length[p] = sherd__turns_of(&t, p, NULL);
        CHECK_EQ(sherd__turns_of(&t, p, list[p]), length[p]);
    }
    return t;
}

/* When the turns end if forwards take 1 and backwards 2, each as early as it can; -1: never. */
static int64_t end_of(const sherd__turns *t)
{
    static int64_t done[2][STAGES][MOST];
    int64_t at[PLACES] = {0}, now[PLACES] = {0}, end = 0;
    bool moved = true;

    memset(done, 0, sizeof done);
    while (moved) {
        moved = false;
        for (int p = 0; p < t->places; p++) {
            if (at[p] == length[p])
                continue;
            const sherd_pipeline_turn *turn = &list[p][at[p]];
            int s = turn->stage, before = turn->backward ? s + 1 : s - 1;
            bool starts = before < 0 || before == t->stages;
            int64_t ready = starts ? turn->backward ? done[0][s][turn->microbatch] : 0
                                   : done[turn->backward][before][turn->microbatch];
            if (!starts && ready == 0)
                continue;
            now[p] = (now[p] > ready ? now[p] : ready) + (turn->backward ? BACKWARD : FORWARD);
            done[turn->backward][s][turn->microbatch] = now[p];
            end = now[p] > end ? now[p] : end;
            at[p]++;
            moved = true;
        }
    }
    for (int p = 0; p < t->places; p++)
        end = at[p] == length[p] ? end : -1;
    return end;
}

/* The most microbatches times stages that a place keeps at once; -1: a turn that cannot be. */
static int64_t most_kept(const sherd__turns *t, int place)
{
    static int seen[STAGES][MOST];
    int64_t kept = 0, most = 0;

    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < length[place]; i++) {
        const sherd_pipeline_turn *turn = &list[place][i];
        if (turn->stage % t->places != place || turn->stage >= t->stages ||
            seen[turn->stage][turn->microbatch]++ != turn->backward)
            return -1;
        kept += turn->backward ? -1 : 1;
        most = kept > most ? kept : most;
    }
    return kept == 0 || t->forward_only ? most : -1;
}

/* Microbatches of a stage in order, forward and backward. */
static bool in_order(int place)
{
    int64_t last[2][STAGES];
    bool good = true;

    memset(last, -1, sizeof last);
    for (int64_t i = 0; i < length[place] && good; i++) {
        const sherd_pipeline_turn *turn = &list[place][i];
        good = turn->microbatch == last[turn->backward][turn->stage] + 1;
        last[turn->backward][turn->stage] = turn->microbatch;
    }
    return good;
}

static void check_case(sherd__heap *heap, int places, int stages, int64_t count,
                       sherd_pipeline_schedule schedule)
{
    sherd__turns t = make(heap, places, stages, count, schedule, false);
    int64_t rounds = (stages + places - 1) / places;
    bool even = stages % places == 0 && (rounds == 1 || count % places == 0);

    CHECK(end_of(&t) > 0);
    for (int p = 0; p < places; p++) {
        int64_t kept = most_kept(&t, p);
        CHECK(kept > 0 && in_order(p));
        if (schedule == SHERD_PIPELINE_GPIPE)
            CHECK_EQ(kept, length[p] / 2);
        else if (rounds == 1)
            CHECK_EQ(kept, count < places - p ? count : places - p);
    }
    if (!even || schedule == SHERD_PIPELINE_GPIPE)
        return;
    CHECK_EQ(t.extra, 0);
    /* all work of a place, and once the way of one stage's forward and backward to all others */
    CHECK_EQ(end_of(&t), (FORWARD + BACKWARD) * (count * rounds + places - 1));
}

static void turns_are_complete_and_end(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);
    static const int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 40};

    for (int places = 1; places <= PLACES; places++)
        for (int stages = places; stages <= 3 * places; stages++)
            for (int c = 0; c < LEN(counts); c++)
                for (int schedule = 0; schedule < 2; schedule++)
                    check_case(heap, places, stages, counts[c], (sherd_pipeline_schedule)schedule);
}

static void forwards_alone_are_half_of_it(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd__turns t = make(heap, 3, 6, 7, SHERD_PIPELINE_1F1B, true);

    for (int p = 0; p < 3; p++) {
        CHECK_EQ(length[p], 14);
        CHECK_EQ(most_kept(&t, p), 14);
        CHECK(in_order(p));
    }
}

/* As Megatron-LM's table for 2 places with 2 stages each and 4 microbatches. */
static void interleaved_turns_are_those_of_the_paper(sherd_world *world)
{
    static const char *const wanted[] = {"0 0,0 1,2 0,2 1,0 2,-2 0,0 3,-2 1,2 2,-0 0,2 3,-0 1,"
                                         "-2 2,-2 3,-0 2,-0 3,",
                                         "1 0,1 1,3 0,-3 0,3 1,-3 1,1 2,-1 0,1 3,-1 1,3 2,-3 2,"
                                         "3 3,-3 3,-1 2,-1 3,"};
    sherd__heap *heap = sherd__world_heap(world);

    make(heap, 2, 4, 4, SHERD_PIPELINE_1F1B, false);
    for (int p = 0; p < 2; p++) {
        char text[256];
        size_t at = 0;
        for (int64_t i = 0; i < length[p]; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d %d,",
                                   list[p][i].backward ? "-" : "", list[p][i].stage,
                                   (int)list[p][i].microbatch);
        CHECK_TEXT(text, wanted[p]);
    }
}

static const check_test tests[] = {{TEST(turns_are_complete_and_end), {1}},
                                   {TEST(forwards_alone_are_half_of_it), {1}},
                                   {TEST(interleaved_turns_are_those_of_the_paper), {1}}};
CHECK_MAIN(tests)
