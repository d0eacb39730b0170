/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of kinds and groups; what is refused; and the running of regions: strided sources,
 * small elements, many addends, all reduce ops.
 */
#define CHECK_PURE
#include "moves.h"

/* ---- kinds and groups ----------------------------------------------------------------------- */

static void the_step_is_of_the_smallest_kind_and_group(void)
{
    static const struct {
        const char *from, *to;
        int kind; /* -1: no step */
        unsigned axes;
        bool sliced;
    } cases[] = {
        {"[8(x),4] on (x=2,y=2)", "[8(x),4] on (x=2,y=2)", -1, 0, false},
        {"[8,4] on (x=2,y=2)", "[8(x),4(y)] on (x=2,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[8(x),4] on (x=2,y=2)", "[8(x,y),4] on (x=2,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[8(x),4] on (x=2,y=2)", "[8,4] on (x=2,y=2)", SHERD_STEP_ALL_GATHER, 1, false},
        {"[8(x,y),4] on (x=2,y=2)", "[8(x),4] on (x=2,y=2)", SHERD_STEP_ALL_GATHER, 2, false},
        {"[8(x),4(y)] on (x=2,y=2)", "[8(y),4(x)] on (x=2,y=2)", SHERD_STEP_EXCHANGE, 3, false},
        {"[8(x),4] on (x=2,y=2)", "[8,4(x)] on (x=2,y=2)", SHERD_STEP_ALL_TO_ALL, 1, false},
        {"[8(x,y),4] on (x=2,y=2)", "[8(x),4(y)] on (x=2,y=2)", SHERD_STEP_ALL_TO_ALL, 2, false},
        /* y only cuts the target: each rank reads from its own column of y */
        {"[8(x),4] on (x=2,y=2)", "[8,4(y)] on (x=2,y=2)", SHERD_STEP_EXCHANGE, 1, false},
        {"[8(x:3,5),4] on (x=2,y=2)", "[8(x),4] on (x=2,y=2)", SHERD_STEP_EXCHANGE, 1, false},
        {"[8(x),4(y)] on (x=2,y=2)", "[8(x),4] on (x=2,y=2)", SHERD_STEP_ALL_GATHER, 2, false},
        {"[8(x),4] P(sum:y) on (x=2,y=2)", "[8(x),4] on (x=2,y=2)", SHERD_STEP_ALL_REDUCE, 2,
         false},
        {"[8,4] P(sum:y) on (x=2,y=2)", "[8(y),4] on (x=2,y=2)", SHERD_STEP_REDUCE_SCATTER, 2,
         false},
        {"[8(x),4] P(sum:y) on (x=2,y=2)", "[8(y),4] on (x=2,y=2)", SHERD_STEP_REDUCE_EXCHANGE, 3,
         false},
        {"[8(x),4] P(sum:y) on (x=2,y=2)", "[8,4] P(sum:y) on (x=2,y=2)", SHERD_STEP_ALL_GATHER, 1,
         false},
        {"[8] P(sum:x) P(sum:y) on (x=2,y=2)", "[8] P(sum:y) on (x=2,y=2)", SHERD_STEP_ALL_REDUCE,
         1, false},
        /* two rounds pay where much is added: the first size is small, the others are large */
        {"[16] P(sum:x) on (x=2,y=2)", "[16] on (x=2,y=2)", SHERD_STEP_ALL_REDUCE, 1, false},
        {"[999983] P(sum:x) on (x=2,y=2)", "[999983] on (x=2,y=2)", SHERD_STEP_ALL_REDUCE, 1, true},
        {"[999983(y)] P(sum:x) on (x=2,y=2)", "[999983(y)] on (x=2,y=2)", SHERD_STEP_ALL_REDUCE, 1,
         true},
        {"[32(y)] P(sum:x) on (x=2,y=2)", "[32(y)] on (x=2,y=2)", SHERD_STEP_ALL_REDUCE, 1, false},
        {"[999983] P(sum:x) P(avg:y) on (x=2,y=2)", "[999983] on (x=2,y=2)", SHERD_STEP_ALL_REDUCE,
         3, true},
        {"[9000] P(sum:x) on (x=2,y=2)", "[9000(y)] on (x=2,y=2)", SHERD_STEP_REDUCE_EXCHANGE, 1,
         false},
        {"[9000(y)] P(sum:x) on (x=2,y=2)", "[9000] on (x=2,y=2)", SHERD_STEP_REDUCE_EXCHANGE, 3,
         false},
        /* axes of extent 1 only change names */
        {"[8(x),4] on (x=1,y=2)", "[8,4] on (x=1,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[8,4] P(sum:x) on (x=1,y=2)", "[8,4(x)] on (x=1,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[8(x,y),4] on (x=1,y=2)", "[8(y,x),4] on (x=1,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[8(x,y),4] on (x=1,y=2)", "[8(x),4] on (x=1,y=2)", SHERD_STEP_ALL_GATHER, 2, false},
        /* nothing to move */
        {"[0(x),4] on (x=2,y=2)", "[0,4] on (x=2,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[0,4] P(sum:x) on (x=2,y=2)", "[0,4] on (x=2,y=2)", SHERD_STEP_SLICE, 0, false},
        {"[8(x:8,0),4] on (x=2,y=2)", "[8(y:8,0),4] on (x=2,y=2)", SHERD_STEP_EXCHANGE, 1, false},
    };
    paper p;

    paper_open(&p, 4);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_plan *plan = plan_of(&p, cases[i].from, cases[i].to, SHERD_F32);
        bool good = CHECK_EQ(sherd_plan_steps(plan), cases[i].kind >= 0);
        if (cases[i].kind >= 0 && good) {
            good = CHECK_EQ(plan->step->kind, cases[i].kind);
            good = CHECK_EQ(plan->step->axes, cases[i].axes) && good;
            CHECK_EQ(plan->step->sliced, cases[i].sliced);
            CHECK(plan->step->from == plan->from && plan->step->to == plan->to);
        }
        if (!good)
            fprintf(stderr, "%s\n", plan->what);
        move_prove(&p, plan->from, plan->to, f64());
    }
    CHECK_TEXT(sherd_step_kind_name(SHERD_STEP_SLICE), "slice");
    CHECK_TEXT(sherd_step_kind_name(SHERD_STEP_EXCHANGE), "exchange");
    CHECK_TEXT(sherd_step_kind_name(SHERD_STEP_REDUCE_EXCHANGE), "reduce_exchange");
    CHECK_TEXT(sherd_step_kind_name(SHERD_STEP_ALL_REDUCE), "all_reduce");
    move_paper_close(&p);
}

/* Relabelled axes and equal layouts cost nothing; the box of the source is all that is held. */
static void a_relabel_is_free(void)
{
    paper p;

    paper_open(&p, 2);
    const sherd_plan *plan = plan_of(&p, "[8(x),4] on (x=1,y=2)", "[8,4] on (x=1,y=2)", SHERD_F32);
    CHECK_EQ(plan->price.picoseconds, 0);
    CHECK_EQ(plan->price.peak_bytes, 128);
    plan = plan_of(&p, "[8(y),4] on (x=1,y=2)", "[8(y),4] on (x=1,y=2)", SHERD_F32);
    CHECK_EQ(plan->price.picoseconds, 0);
    CHECK_EQ(plan->price.peak_bytes, 64);
    plan = plan_of(&p, "[8,4] on (x=1,y=2)", "[8(y),4] on (x=1,y=2)", SHERD_F32);
    CHECK(plan->price.picoseconds > 0);
    CHECK_EQ(plan->price.peak_bytes, 128 + 64);
    move_paper_close(&p);
}

/* Only if all ranks keep theirs, on the same mesh: then a limit may be as low. */
static void boxes_that_stay_are_held_once(void)
{
    static const struct {
        const char *from, *to;
        int64_t peak;
    } cases[] = {
        {"[1,4] on (x=2,y=2)", "[1(x),4] on (x=2,y=2)", 16 + 16},
        {"[1(x),4] on (x=2,y=2)", "[1(x,y),4] on (x=2,y=2)", 16 + 16},
        {"[1,4] on (x=2,y=2)", "[1(x),4(y)] on (x=2,y=2)", 16 + 8},
        {"[4] on (x=2,y=2)", "[4(x:0,4)] on (x=2,y=2)", 16 + 16},
        {"[4] on (x=2,y=2)", "[4(x:1,3)] on (x=2,y=2)", 16 + 12},
        {"[1,4] on (x=2,y=2)", "[1(u),4] on (u=2@1,3)", 16 + 16},
        {"[1,4] on (x=2,y=2)", "[1,4] on (u=2@1,3)", 16 + 16},
        {"[8(x),4] on (x=2,y=2)", "[8(u),4] on (u=2@0,2)", 64 + 64},
        {"[8,4] on (x=2,y=2)", "[8,4] P(max:x) on (x=2,y=2)", 128},
        {"[8,4] on (x=2,y=2)", "[8,4] P(sum:x) on (x=2,y=2)", 256},
    };
    paper p;

    paper_open(&p, 4);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_layout *from = paper_layout(&p, cases[i].from);
        const sherd_layout *to = paper_layout(&p, cases[i].to);
        sherd_plan_options options = {.max_bytes = cases[i].peak};
        const sherd_plan *plan;
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
        CHECK(plan && plan->price.peak_bytes == cases[i].peak);
        options.max_bytes--;
        CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_F32, &options), SHERD_ELIMIT);
    }
    move_paper_close(&p);
}

static void slices_are_cache_lines_and_cover(void)
{
    static const int64_t sizes[] = {1, 15, 16, 17, 31, 33, 100, 4097, 5000};
    paper p;

    paper_open(&p, 8);
    for (int s = 0; s < LEN(sizes); s++)
        for (int k = 2; k <= 8; k++) {
            char from[64], to[64];
            snprintf(from, sizeof from, "[%d] P(sum:x) on (x=%d)", (int)sizes[s], k);
            snprintf(to, sizeof to, "[%d] on (x=%d)", (int)sizes[s], k);
            sherd_step step = *plan_of(&p, from, to, SHERD_F64)->step;
            step.kind = SHERD_STEP_ALL_REDUCE;
            step.sliced = true;
            CHECK_EQ(move_simulate(&p, &step, f64()), 0);
            for (int r = 0; r < k; r++) {
                sherd__schedule *schedule;
                CHECK_OK(sherd__schedule_create(&schedule, &p.space, &step, 4, r));
                CHECK_EQ(schedule->ndim, 1);
                CHECK_EQ(schedule->sharers, k - 1);
                if (schedule->regions)
                    CHECK_EQ(schedule->region->offset[0] % 16, 0);
                else
                    CHECK_EQ(schedule->sources, 0);
                sherd__schedule_destroy(&p.space, schedule);
            }
        }
    move_paper_close(&p);
}

static void large_reductions_are_exact(void)
{
    static const char *const cases[][2] = {
        {"[64,50] P(sum:x) on (x=4)", "[64,50] on (x=4)"},
        {"[67(y),101] P(sum:x) on (x=2,y=2)", "[67(y),101] on (x=2,y=2)"},
        {"[67,101(y:100,1)] P(sum:x) on (x=2,y=2)", "[67,101(y:100,1)] on (x=2,y=2)"},
        {"[67,101] P(sum:x) P(sum:y) on (x=2,y=3)", "[67,101] on (x=2,y=3)"},
        {"[67,101] P(sum:x) P(sum:y) on (x=2,y=3)", "[67,101] P(sum:y) on (x=2,y=3)"},
        {"[67,101] P(sum:x) P(sum:y) on (x=2,y=3)", "[67(y),101] on (x=2,y=3)"},
        {"[3001] P(sum:x) on (x=2,y=3@5,0,4,1,3,2)", "[3001] on (x=2,y=3@5,0,4,1,3,2)"},
        {"[1(y),3001] P(sum:x) on (x=2,y=3)", "[1(y),3001] on (x=2,y=3)"},
    };
    int shared = 0;
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_plan *plan = plan_of(&p, cases[i][0], cases[i][1], SHERD_F64);
        shared += plan->step->kind == SHERD_STEP_ALL_REDUCE; /* proven in both its ways */
        CHECK_EQ(move_prove(&p, plan->from, plan->to, f64()), 0);
    }
    CHECK_EQ(shared, 7);
    for (int rank = 0; rank < 6;
         rank++) { /* ranks whose box is empty take no part in the sharing */
        sherd__schedule *s;
        sherd_step step = *plan_of(&p, cases[7][0], cases[7][1], SHERD_F64)->step;
        step.sliced = true;
        CHECK_OK(sherd__schedule_create(&s, &p.space, &step, 8, rank));
        CHECK_EQ(s->sharers, rank % 3 == 0);
        CHECK_EQ(s->sources, rank % 3 == 0);
        CHECK_EQ(s->readers, rank % 3 == 0);
        sherd__schedule_destroy(&p.space, s);
    }
    move_paper_close(&p);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void what_no_plan_can_do_is_refused(void)
{
    static const char *const cases[][3] = {
        {"[8(x)] on (x=2)", "[8] P(sum:x) on (x=2)", "only a replicated axis can become pending"},
        {"[8(x)] on (x=1)", "[8] P(sum:x) on (x=1)", "only a replicated axis can become pending"},
        {"[8] P(sum:x) on (x=2)", "[8] P(max:x) on (x=2)", "only a replicated axis can become"},
        {"[8] on (x=2)", "[9] on (x=2)", "shapes differ"},
        {"[8] on (x=2)", "[8,1] on (x=2)", "shapes differ"},
        {"[8] P(sum:x) on (x=2)", "[8] P(sum:y) on (y=2)", "does not go to another mesh"},
        {"[8] on (x=2)", "[8] P(sum:x) on (x=2@1,0)", "does not go to another mesh"},
    };
    const sherd_plan *plan;
    paper p;

    paper_open(&p, 4);
    for (int i = 0; i < LEN(cases); i++) {
        CHECK_EQ(sherd_plan_create(&plan, paper_layout(&p, cases[i][0]),
                                   paper_layout(&p, cases[i][1]), SHERD_F32, NULL),
                 SHERD_EINVAL);
        CHECK(plan == NULL);
        if (!CHECK(strstr(p.diag.text, cases[i][2])))
            fprintf(stderr, "%s\n", p.diag.text);
    }
    const sherd_layout *layout = paper_layout(&p, "[8] on (x=2)");
    CHECK_EQ(sherd_plan_create(&plan, layout, layout, (sherd_dtype)77, NULL), SHERD_EINVAL);
    CHECK_TEXT(sherd_planner_name((sherd_planner)77), "unknown");
    move_paper_close(&p);
}

/* An average, where it is taken or made; one that stays is none. */
static void integers_have_no_average(void)
{
    static const struct {
        const char *from, *to;
        bool none;
    } cases[] = {
        {"[8] P(avg:x) on (x=2)", "[8] on (x=2)", true},
        {"[8] P(avg:x) on (x=2)", "[8(x)] on (x=2)", true},
        {"[8] on (x=2)", "[8] P(avg:x) on (x=2)", true},
        {"[8(y)] P(avg:x) on (x=2,y=2)", "[8] P(avg:x) on (x=2,y=2)", false},
        {"[8] P(avg:x) on (x=1)", "[8] on (x=1)", false},
        {"[8] P(sum:x) on (x=2)", "[8] on (x=2)", false},
        {"[8] P(avg:x) P(sum:y) on (x=2,y=2)", "[8] P(avg:x) on (x=2,y=2)", false},
    };
    const sherd_plan *plan;
    paper p;

    paper_open(&p, 4);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_layout *from = paper_layout(&p, cases[i].from);
        const sherd_layout *to = paper_layout(&p, cases[i].to);
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, NULL));
        if (!CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_I32, NULL),
                      cases[i].none ? SHERD_ENOTSUP : SHERD_OK))
            fprintf(stderr, "%s -> %s\n", cases[i].from, cases[i].to);
    }
    move_paper_close(&p);
}

/* The bound of a reduction counts each part of what stays pending. */
static void what_stays_pending_is_bounded_once_a_part(void)
{
    paper p;

    paper_open(&p, 4);
    const sherd_plan *both = plan_of(&p, "[8,6] P(sum:x) P(sum:y) on (x=2,y=2)",
                                     "[8,6] P(sum:x) on (x=2,y=2)", SHERD_F32);
    const sherd_plan *one = plan_of(&p, "[8,6] P(sum:y) on (y=2)", "[8,6] on (y=2)", SHERD_F32);
    CHECK(sherd_plan_price_of(one)->bound_total_bytes > 0);
    CHECK_EQ(sherd_plan_price_of(both)->bound_total_bytes,
             2 * sherd_plan_price_of(one)->bound_total_bytes);
    move_paper_close(&p);
}

/* ---- running regions ------------------------------------------------------------------------ */

/*
 * A transposed source, elements of 1, 4 and 8 bytes: the columns of [6,5] arrive as rows of a part.
 */
static void strided_sources_are_copied(void)
{
    paper p;

    paper_open(&p, 2);
    const sherd_plan *plan = plan_of(&p, "[6,5] on (x=2)", "[6(x),5] on (x=2)", SHERD_F32);
    for (size_t bytes = 1; bytes <= 8; bytes *= bytes == 1 ? 4 : 2) {
        unsigned char source[30 * 8], result[15 * 8];
        sherd__schedule *s;
        CHECK_OK(sherd__schedule_create(&s, &p.space, plan->step, bytes, 1));
        for (int row = 0; row < 6; row++) /* stored by columns */
            for (int column = 0; column < 5; column++)
                memset(source + (size_t)(column * 6 + row) * bytes, row * 5 + column, bytes);
        const sherd__source from = {source, {1, 6}};
        sherd__region_run(s, s->region, result, &from, bytes, NULL);
        int wrong = 0;
        for (size_t i = 0; i < 15 * bytes; i++)
            wrong += result[i] != 15 + i / bytes;
        CHECK_EQ(wrong, 0);
        sherd__schedule_destroy(&p.space, s);
    }
    move_paper_close(&p);
}

/* Reductions of strided sources: rows of one stride, gaps in the rows, and rows that join. */
static void strided_sources_are_added(void)
{
    static const int64_t strides[][2] = {{5, 1}, {9, 1}, {1, 6}, {20, 3}};
    double source[2][200], result[30];
    sherd__schedule *s;
    paper p;

    paper_open(&p, 2);
    const sherd_plan *plan = plan_of(&p, "[6,5] P(sum:x) on (x=2)", "[6(x),5] on (x=2)", SHERD_F64);
    for (int a = 0; a < LEN(strides); a++)
        for (int b = 0; b < LEN(strides); b++) {
            const sherd__source sources[] = {{source[0], {strides[a][0], strides[a][1]}},
                                             {source[1], {strides[b][0], strides[b][1]}}};
            for (int i = 0; i < 30; i++) {
                source[0][i / 5 * strides[a][0] + i % 5 * strides[a][1]] = i;
                source[1][i / 5 * strides[b][0] + i % 5 * strides[b][1]] = 100 * i;
            }
            CHECK_OK(sherd__schedule_create(&s, &p.space, plan->step, 8, 1));
            sherd__region_run(s, s->region, result, sources, 8, f64());
            int wrong = 0;
            for (int i = 0; i < 15; i++)
                wrong += result[i] != 101 * (15 + i);
            CHECK_EQ(wrong, 0);
            sherd__schedule_destroy(&p.space, s);
        }
    move_paper_close(&p);
}

/* op over `k` addends 2, 3, 4, ... on one scalar. */
static double reduced(paper *p, const char *from, const char *to, int k)
{
    double values[200], result = -1;
    sherd__source sources[200] = {{0}};
    sherd__schedule *s;

    const sherd_plan *plan = plan_of(p, from, to, SHERD_F64);
    CHECK_OK(sherd__schedule_create(&s, &p->space, plan->step, 8, 0));
    CHECK_EQ(s->regions, 1);
    CHECK_EQ(s->region->count, k);
    for (int i = 0; i < k; i++) {
        CHECK_EQ(s->pull[i].rank, i); /* rank order */
        values[i] = i + 2;
        sources[i].data = &values[i];
    }
    sherd__region_run(s, s->region, &result, sources, 8, f64());
    sherd__schedule_destroy(&p->space, s);
    return result;
}

static void every_reduce_op_gives_its_result(void)
{
    paper p;

    paper_open(&p, 200);
    CHECK_EQ(reduced(&p, "[] P(sum:x) on (x=4)", "[] on (x=4)", 4), 14);
    CHECK_NEAR(reduced(&p, "[] P(avg:x) on (x=4)", "[] on (x=4)", 4), 3.5, 0);
    CHECK_EQ(reduced(&p, "[] P(min:x) on (x=4)", "[] on (x=4)", 4), 2);
    CHECK_EQ(reduced(&p, "[] P(max:x) on (x=4)", "[] on (x=4)", 4), 5);
    CHECK_EQ(reduced(&p, "[] P(product:x) on (x=4)", "[] on (x=4)", 4), 120);
    /* sum with avg: the sum divided by the extents of the avg axes, whichever comes first */
    CHECK_NEAR(reduced(&p, "[] P(sum:x) P(avg:y) on (x=2,y=4)", "[] on (x=2,y=4)", 8), 11, 0);
    CHECK_NEAR(reduced(&p, "[] P(avg:x) P(sum:y) on (x=2,y=4)", "[] on (x=2,y=4)", 8), 22, 0);
    /* more addends than are added at once */
    CHECK_EQ(reduced(&p, "[] P(sum:x) on (x=64)", "[] on (x=64)", 64), 64 * 67 / 2);
    CHECK_EQ(reduced(&p, "[] P(sum:x) on (x=65)", "[] on (x=65)", 65), 65 * 68 / 2);
    CHECK_EQ(reduced(&p, "[] P(sum:x) on (x=200)", "[] on (x=200)", 200), 200 * 203 / 2);
    CHECK_NEAR(reduced(&p, "[] P(avg:x) on (x=200)", "[] on (x=200)", 200), 203. / 2, 0);
    CHECK_EQ(reduced(&p, "[] P(max:x) on (x=200)", "[] on (x=200)", 200), 201);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(the_step_is_of_the_smallest_kind_and_group)},
    {TEST(a_relabel_is_free)},
    {TEST(boxes_that_stay_are_held_once)},
    {TEST(slices_are_cache_lines_and_cover)},
    {TEST(large_reductions_are_exact)},
    {TEST(what_no_plan_can_do_is_refused)},
    {TEST(integers_have_no_average)},
    {TEST(what_stays_pending_is_bounded_once_a_part)},
    {TEST(strided_sources_are_copied)},
    {TEST(strided_sources_are_added)},
    {TEST(every_reduce_op_gives_its_result)},
};
CHECK_MAIN(tests)
