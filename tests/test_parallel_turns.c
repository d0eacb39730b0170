/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a pipeline's turns: everything once, nothing before what it needs, no place that
 * waits for ever, no more kept than a schedule says, and no longer than it must take.
 */
#include "check.h"
#include "parallel/turns.h"
#include "world/world.h"

enum { PLACES = 8, STAGES = 24, MOST = 40, KINDS = 4 };

/* How long a turn takes: a backward is two, of inputs and of weights. */
static const int64_t cost[KINDS] = {1, 2, 1, 1};

static sherd_pipeline_turn list[PLACES][3 * STAGES * MOST];
static int64_t length[PLACES];
static int64_t ended[PLACES]; /* when a place has done its turns */

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

/* When what a turn needs is there; -1: not yet. */
static int64_t ready_at(const sherd__turns *t, int64_t done[KINDS][STAGES][MOST],
                        const sherd_pipeline_turn *turn)
{
    int64_t m = turn->microbatch;
    int s = turn->stage, last = t->stages - 1;
    bool back = turn->kind != SHERD_PIPELINE_FORWARD;

    if (turn->kind == SHERD_PIPELINE_BACKWARD_WEIGHTS)
        return done[SHERD_PIPELINE_BACKWARD_INPUTS][s][m];
    if (!back && s == 0)
        return 0;
    int64_t at = back && s == last ? done[SHERD_PIPELINE_FORWARD][s][m]
                                   : done[turn->kind][back ? s + 1 : s - 1][m];
    return at > 0 ? at : -1;
}

/* When the turns end, each as early as it can; -1: never. */
static int64_t end_of(const sherd__turns *t)
{
    static int64_t done[KINDS][STAGES][MOST];
    int64_t at[PLACES] = {0}, now[PLACES] = {0}, end = 0;
    bool moved = true;

    memset(done, 0, sizeof done);
    while (moved) {
        moved = false;
        for (int p = 0; p < t->places; p++) {
            if (at[p] == length[p])
                continue;
            const sherd_pipeline_turn *turn = &list[p][at[p]];
            int64_t ready = ready_at(t, done, turn);
            if (ready < 0)
                continue;
            now[p] = (now[p] > ready ? now[p] : ready) + cost[turn->kind];
            done[turn->kind][turn->stage][turn->microbatch] = now[p];
            end = now[p] > end ? now[p] : end;
            at[p]++;
            moved = true;
        }
    }
    for (int p = 0; p < t->places; p++)
        end = at[p] == length[p] ? end : -1;
    memcpy(ended, now, sizeof ended);
    return end;
}

/* The turn that a microbatch must take next in a stage, after `seen`; -1: none. */
static int kind_after(const sherd__turns *t, int seen)
{
    static const int whole[] = {SHERD_PIPELINE_FORWARD, SHERD_PIPELINE_BACKWARD, -1, -1};
    static const int parts[] = {SHERD_PIPELINE_FORWARD, SHERD_PIPELINE_BACKWARD_INPUTS,
                                SHERD_PIPELINE_BACKWARD_WEIGHTS, -1};

    return (t->schedule >= SHERD_PIPELINE_ZERO_BUBBLE ? parts : whole)[seen];
}

/* The most microbatches of which a place keeps anything at once, from forwards to such turns. */
static int64_t most_microbatches(int place, sherd_pipeline_kind until)
{
    int of[MOST] = {0};
    int64_t kept = 0, most = 0;

    for (int64_t i = 0; i < length[place]; i++) {
        const sherd_pipeline_turn *turn = &list[place][i];
        if (turn->kind == SHERD_PIPELINE_FORWARD)
            kept += of[turn->microbatch]++ == 0;
        else if (turn->kind == until)
            kept -= --of[turn->microbatch] == 0;
        most = kept > most ? kept : most;
    }
    return most;
}

/*
 * The most microbatches times stages that a place keeps at once, from their forwards to the turns
 * of kind `until`; -1: a turn that cannot be.
 */
static int64_t most_kept(const sherd__turns *t, int place, sherd_pipeline_kind until)
{
    static int seen[STAGES][MOST];
    int64_t kept = 0, most = 0;

    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < length[place]; i++) {
        const sherd_pipeline_turn *turn = &list[place][i];
        if (sherd__turns_place(t, turn->stage) != place || turn->stage >= t->stages ||
            (int)turn->kind != kind_after(t, seen[turn->stage][turn->microbatch]++))
            return -1;
        kept += turn->kind == SHERD_PIPELINE_FORWARD ? 1 : turn->kind == until ? -1 : 0;
        most = kept > most ? kept : most;
    }
    return kept == 0 || t->forward_only ? most : -1;
}

/* Microbatches of a stage in order, in turns of each kind. */
static bool in_order(int place)
{
    int64_t last[KINDS][STAGES];
    bool good = true;

    memset(last, -1, sizeof last);
    for (int64_t i = 0; i < length[place] && good; i++) {
        const sherd_pipeline_turn *turn = &list[place][i];
        good = turn->microbatch == last[turn->kind][turn->stage] + 1;
        last[turn->kind][turn->stage] = turn->microbatch;
    }
    return good;
}

/* The turns of two kinds come in one order, also those of different stages. */
static bool in_one_order(int place, sherd_pipeline_kind a, sherd_pipeline_kind b)
{
    int64_t j = 0, equal = 0, count = 0;

    for (int64_t i = 0; i < length[place]; i++) {
        const sherd_pipeline_turn *turn = &list[place][i];
        if (turn->kind != a)
            continue;
        while (j < length[place] && list[place][j].kind != b)
            j++;
        if (j == length[place])
            return false;
        equal +=
            turn->stage == list[place][j].stage && turn->microbatch == list[place][j].microbatch;
        count++;
        j++;
    }
    return count > 0 && equal == count;
}

static int64_t less(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What a place keeps, by the schedule, if it has one stage. */
static void check_kept(const sherd__turns *t, int place, int64_t rounds)
{
    bool parts = t->schedule == SHERD_PIPELINE_ZERO_BUBBLE;
    int64_t kept =
        most_kept(t, place, parts ? SHERD_PIPELINE_BACKWARD_INPUTS : SHERD_PIPELINE_BACKWARD);

    CHECK(kept > 0 && in_order(place));
    if (t->schedule == SHERD_PIPELINE_GPIPE)
        CHECK_EQ(kept, length[place] / 2);
    else if (rounds == 1)
        CHECK_EQ(kept, less(t->count, t->places - place));
    if (!parts)
        return;
    CHECK(in_one_order(place, SHERD_PIPELINE_BACKWARD_INPUTS, SHERD_PIPELINE_BACKWARD_WEIGHTS));
    kept = most_kept(t, place, SHERD_PIPELINE_BACKWARD_WEIGHTS);
    if (rounds == 1)
        CHECK_EQ(kept, less(t->count, t->places));
    else
        CHECK(kept <= 2 * (t->places - 1) + (rounds - 1) * t->places + 1 + t->extra);
}

static void check_case(sherd__heap *heap, int places, int stages, int64_t count,
                       sherd_pipeline_schedule schedule)
{
    sherd__turns t = make(heap, places, stages, count, schedule, false);
    int64_t rounds = (stages + places - 1) / places, end = end_of(&t);
    bool even = stages % places == 0 && (rounds == 1 || count % places == 0);

    CHECK(end > 0);
    for (int p = 0; p < places; p++)
        check_kept(&t, p, rounds);
    if (!even || schedule == SHERD_PIPELINE_GPIPE)
        return;
    CHECK_EQ(t.extra, 0);
    /* all work of a place, and once the way of one stage's forward and backward to all others */
    int64_t whole = 3 * (count * rounds + places - 1);
    if (schedule == SHERD_PIPELINE_1F1B)
        CHECK_EQ(end, whole);
    else
        CHECK(places == 1 ? end == whole : end < whole);
}

/* What the header says of several stages at each place; some place reaches it. */
static void check_bound(sherd__heap *heap, int places, int rounds, int64_t count,
                        sherd_pipeline_schedule schedule)
{
    sherd_pipeline_kind until = schedule == SHERD_PIPELINE_ZERO_BUBBLE
                                    ? SHERD_PIPELINE_BACKWARD_WEIGHTS
                                    : SHERD_PIPELINE_BACKWARD;
    sherd__turns t = make(heap, places, places * rounds, count, schedule, false);
    int64_t kept = 0, microbatches = 0;

    for (int p = 0; p < places; p++) {
        int64_t here = most_kept(&t, p, until), of = most_microbatches(p, until);
        kept = here > kept ? here : kept;
        microbatches = of > microbatches ? of : microbatches;
    }
    CHECK_EQ(kept, less(count * rounds, (rounds + 1) * places - 1));
    CHECK_EQ(microbatches, less(count, 2 * places));
}

static void several_stages_keep_what_the_header_says(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);

    for (int places = 1; places <= PLACES; places++)
        for (int rounds = 2; rounds <= 3; rounds++)
            for (int64_t count = places; count <= MOST; count += places) {
                check_bound(heap, places, rounds, count, SHERD_PIPELINE_1F1B);
                check_bound(heap, places, rounds, count, SHERD_PIPELINE_ZERO_BUBBLE);
            }
}

static void turns_are_complete_and_end(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);
    static const int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 40};

    for (int places = 1; places <= PLACES; places++)
        for (int stages = places; stages <= 3 * places; stages++)
            for (int c = 0; c < LEN(counts); c++)
                for (int schedule = 0; schedule < 3; schedule++)
                    check_case(heap, places, stages, counts[c], (sherd_pipeline_schedule)schedule);
}

static void forwards_alone_are_half_of_it(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd__turns t = make(heap, 3, 6, 7, SHERD_PIPELINE_1F1B, true);

    for (int p = 0; p < 3; p++) {
        CHECK_EQ(length[p], 14);
        CHECK_EQ(most_kept(&t, p, SHERD_PIPELINE_BACKWARD), 14);
        CHECK(in_order(p));
    }
}

/*
 * The time is that of the paper's ZB-H1, where forwards, backwards of inputs and of weights take 1
 * each: all work of a place, and bubbles of (places - 1) (1 + 1 - 1). With fewer microbatches than
 * places the first one's way there and back is longer.
 */
static void zero_bubble_takes_the_time_of_the_paper(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);

    for (int places = 1; places <= PLACES; places++)
        for (int64_t count = 1; count <= MOST; count++) {
            sherd__turns t = make(heap, places, places, count, SHERD_PIPELINE_ZERO_BUBBLE, false);
            int64_t end = 3 * count + places - 1, there_and_back = 2 * (count + places) - 1;
            CHECK_EQ(t.extra, 0);
            CHECK_EQ(end_of(&t), count >= places ? end : there_and_back);
        }
}

/* The picture in the header. */
static void zero_bubble_turns_are_those_of_the_picture(sherd_world *world)
{
    static const char *const wanted[] = {"0 1 [0] (0) 2 [1] (1) 3 [2] (2) [3] (3) ",
                                         "0 [0] 1 [1] (0) 2 [2] (1) 3 [3] (2) (3) "};
    static const char *const before[KINDS] = {"", "", "[", "("}, *const after[] = {"", "", "]",
                                                                                   ")"};
    sherd__heap *heap = sherd__world_heap(world);

    make(heap, 2, 2, 4, SHERD_PIPELINE_ZERO_BUBBLE, false);
    for (int p = 0; p < 2; p++) {
        char text[256];
        size_t at = 0;
        for (int64_t i = 0; i < length[p]; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d%s ", before[list[p][i].kind],
                                   (int)list[p][i].microbatch, after[list[p][i].kind]);
        CHECK_TEXT(text, wanted[p]);
    }
}

/*
 * There and back: with 2 p - 1 microbatches or more place i, which cannot begin before time i,
 * never waits from then on. It keeps no more than p microbatches of both its stages, as 1F1B does
 * of whole ones. The interleaved schedules of as many stages take longer, or keep more.
 */
static void there_and_back_no_place_waits(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);

    for (int places = 1; places <= PLACES; places++)
        for (int64_t count = 1; count <= MOST; count++) {
            sherd__turns t =
                make(heap, places, 2 * places, count, SHERD_PIPELINE_ZERO_BUBBLE_V, false);
            int64_t end = end_of(&t);
            CHECK_EQ(t.extra, 0);
            CHECK(end > 0);
            for (int p = 0; p < places; p++) {
                int64_t kept = most_kept(&t, p, SHERD_PIPELINE_BACKWARD_WEIGHTS);
                CHECK(in_order(p) && kept > 0 && kept <= 2 * places);
                if (count >= 2 * places - 1)
                    CHECK_EQ(ended[p], 6 * count + p);
            }
            if (places == 1 || count % places || count < 2 * places - 1)
                continue;
            t = make(heap, places, 2 * places, count, SHERD_PIPELINE_1F1B, false);
            CHECK_EQ(end_of(&t), end + 2 * (places - 1));
            t = make(heap, places, 2 * places, count, SHERD_PIPELINE_ZERO_BUBBLE, false);
            CHECK_EQ(end_of(&t), end);
            CHECK_EQ(most_kept(&t, 0, SHERD_PIPELINE_BACKWARD_WEIGHTS), 3 * places - 1);
        }
}

/* PyTorch 2.13's ScheduleZBVZeroBubble for 2 places and 4 microbatches, and forwards alone. */
static void there_and_back_turns_are_those_of_pytorch(sherd_world *world)
{
    static const char *const wanted[] = {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 "
                                         "3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3 ",
                                         "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 "
                                         "1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3 "};
    sherd__heap *heap = sherd__world_heap(world);

    make(heap, 2, 4, 4, SHERD_PIPELINE_ZERO_BUBBLE_V, false);
    for (int p = 0; p < 2; p++) {
        char text[512];
        size_t at = 0;
        for (int64_t i = 0; i < length[p]; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%d%c%d ", list[p][i].stage,
                                   "FBIW"[list[p][i].kind], (int)list[p][i].microbatch);
        CHECK_TEXT(text, wanted[p]);
    }
    for (int places = 1; places <= PLACES; places++)
        for (int64_t count = 1; count <= MOST; count++) {
            sherd__turns t =
                make(heap, places, 2 * places, count, SHERD_PIPELINE_ZERO_BUBBLE_V, true);
            CHECK_EQ(t.extra, 0);
            for (int p = 0; p < places; p++)
                CHECK(length[p] == 2 * count && in_order(p) &&
                      most_kept(&t, p, SHERD_PIPELINE_BACKWARD) == 2 * count);
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
                                   list[p][i].kind ? "-" : "", list[p][i].stage,
                                   (int)list[p][i].microbatch);
        CHECK_TEXT(text, wanted[p]);
    }
}

/* With other numbers of stages at the places a place begins with thousands of forwards more. */
static void an_order_of_many_microbatches_is_soon_found(sherd_world *world)
{
    sherd__turns t = {.places = 3, .stages = 4, .count = 8001};
    double begin = seconds();

    CHECK(sherd__turns_fit(&t, sherd__world_heap(world)));
    CHECK(t.extra > t.count);
    CHECK(seconds() - begin < 4);
}

static const check_test tests[] = {{TEST(turns_are_complete_and_end), {1}},
                                   {TEST(several_stages_keep_what_the_header_says), {1}},
                                   {TEST(zero_bubble_takes_the_time_of_the_paper), {1}},
                                   {TEST(zero_bubble_turns_are_those_of_the_picture), {1}},
                                   {TEST(there_and_back_no_place_waits), {1}},
                                   {TEST(there_and_back_turns_are_those_of_pytorch), {1}},
                                   {TEST(forwards_alone_are_half_of_it), {1}},
                                   {TEST(an_order_of_many_microbatches_is_soon_found), {1}},
                                   {TEST(interleaved_turns_are_those_of_the_paper), {1}}};
CHECK_MAIN(tests)
