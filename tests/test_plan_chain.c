/* SPDX-License-Identifier: Apache-2.0 */
/* What chains of steps amount to, against the schedules of all ranks. */
#define CHECK_PURE
#include "scenes.h"

enum { STEPS = 4 };

static int64_t held(const sherd_layout *layout, int rank)
{
    sherd_box box = sherd_layout_box(layout, rank, 0);

    return sherd__box_count(&box);
}

/* What plan.h says, rank by rank, from the schedules. */
static sherd__chain walk_chain(const sherd__problem *problem, const sherd__priced *steps, int count)
{
    sherd__chain w = {0, 0, 0};
    int64_t received[RANKS] = {0}, sent[RANKS] = {0};

    for (int r = 0; r < problem->from->spec.mesh->count; r++) {
        int64_t source = held(problem->from, r);
        bool fresh = false;
        at_least(&w.peak, source * (int64_t)problem->element_bytes);
        for (int i = 0; i < count; i++) {
            const sherd_step *step = &steps[i].step;
            sherd__schedule *s;
            CHECK_OK(sherd__schedule_create(&s, problem->space, step, problem->element_bytes, r));
            received[r] += s->recv_bytes;
            sherd__schedule_add_sent(s, r, problem->element_bytes, sent);
            bool shares = s->shares;
            sherd__schedule_destroy(problem->space, s);
            int64_t in = held(step->from, r), out = held(step->to, r);
            int64_t sum = source + (fresh ? in : 0) + (shares ? 0 : out);
            at_least(&w.peak, sum * (int64_t)problem->element_bytes);
            fresh |= !shares;
        }
    }
    for (int r = 0; r < problem->from->spec.mesh->count; r++) {
        at_least(&w.receive_max, received[r]);
        at_least(&w.send_max, sent[r]);
    }
    return w;
}

/* A step of a random kind; either variant of an all-reduce. */
static void draw_step(scene *s, sherd__priced *step, const sherd__problem *problem,
                      const sherd_layout *from, const sherd_layout *to)
{
    CHECK_OK(sherd__step_price(step, problem, from, to));
    if (step->step.kind == SHERD_STEP_ALL_REDUCE) {
        step->step.sliced = roll(&s->dice, 2) == 0;
        sherd__step_bytes(step, problem->element_bytes);
    }
}

static void chains_are_those_of_their_schedules(void)
{
    static const sherd__request request;
    scene s = {.dice = 5};
    int longer = 0, sliced = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 3000; k++) {
        sherd__priced steps[STEPS];
        const sherd_layout *at[STEPS + 1];
        sherd__chain found;
        int count = roll(&s.dice, STEPS + 1);
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 2) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        at[0] = draw_layout(&s, sums);
        sherd__problem problem = sherd__problem_of(&s.p.space, at[0], at[0], 4, &request);
        for (int i = 1; i <= count; i++) {
            sums &= (unsigned)roll(&s.dice, 1 << s.mesh->axes);
            at[i] = roll(&s.dice, 2) ? draw_layout(&s, sums) : draw_near(&s, at[i - 1]);
            if (roll(&s.dice, 4) == 0)
                CHECK_OK(sherd__layout_settle(&at[i], at[i - 1]));
            sums = at[i]->pending_axes;
            draw_step(&s, &steps[i - 1], &problem, at[i - 1], at[i]);
            sliced += steps[i - 1].step.sliced;
        }
        problem.to = at[count];
        CHECK_OK(sherd__chain_find(&found, &problem, steps, count));
        sherd__chain w = walk_chain(&problem, steps, count);
        int good = CHECK_EQ(found.receive_max, w.receive_max);
        good += CHECK_EQ(found.send_max, w.send_max);
        good += CHECK_EQ(found.peak, w.peak);
        for (int i = 0; i <= count && good < 3; i++)
            fprintf(stderr, "%s %s\n", at[i]->text, i && steps[i - 1].step.sliced ? "sliced" : "");
        longer += count > 1 && found.receive_max > 0;
    }
    CHECK(longer > 1000 && sliced > 100);
    move_paper_close(&s.p);
}

static void no_memory_for_a_chain_is_survived(void)
{
    static const sherd__request request;
    static const char *const texts[] = {"[64(x),8] P(sum:y) on (x=2,y=4)",
                                        "[64(x),8(y)] on (x=2,y=4)", "[64(y),8(x)] on (x=2,y=4)"};
    const sherd_layout *at[LEN(texts)];
    sherd__priced steps[LEN(texts) - 1];
    sherd_status status = SHERD_ENOMEM;
    sherd__chain found;
    int64_t n = 0;
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(texts); i++)
        at[i] = paper_layout(&p, texts[i]);
    const sherd__problem problem = sherd__problem_of(&p.space, at[0], at[2], 4, &request);
    for (int i = 0; i + 1 < LEN(texts); i++)
        CHECK_OK(sherd__step_price(&steps[i], &problem, at[i], at[i + 1]));
    int64_t live = p.heap.live;
    for (; status != SHERD_OK && n < 10; n++) {
        p.heap.allocations = 0;
        p.heap.fail_at = n + 1;
        status = sherd__chain_find(&found, &problem, steps, LEN(steps));
        CHECK(status == SHERD_OK || strstr(p.diag.text, "out of memory"));
        CHECK_EQ(p.heap.live, live);
    }
    CHECK(n > 1 && n < 10);
    CHECK(found.receive_max > 0);
    p.heap.fail_at = 0;
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(chains_are_those_of_their_schedules)},
    {TEST(no_memory_for_a_chain_is_survived)},
};
CHECK_MAIN(tests)
