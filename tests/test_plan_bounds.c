/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the search takes any way from state to state to cost at least under links, against the
 * cheapest way there is: all steps between all states priced, and the shortest path through them.
 * And the floor of a single step against its price.
 */
#define CHECK_PURE
#include "scenes.h"
#include "search/search.h"

enum { NODES = 140 };

typedef struct tally {
    int64_t ways, near;
} tally;

/* The cheapest way from every node to every other. */
static void find_ways(int64_t (*time)[NODES], const sherd__field *field)
{
    int n = field->nodes;

    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            sherd__search_edge price = {.sure_time = false};
            bool allowed;
            time[a][b] = a == b ? 0 : INT64_MAX / 4;
            if (a == b || field->node[b].pending & ~field->node[a].pending)
                continue;
            CHECK_OK(sherd__edge_price(&price, &allowed, field, a, b, 0));
            time[a][b] = price.cost.picoseconds;
        }
    for (int k = 0; k < n; k++)
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++)
                if (time[a][k] + time[k][b] < time[a][b])
                    time[a][b] = time[a][k] + time[k][b];
}

static void compare(tally *t, const sherd__problem *problem)
{
    static int64_t time[NODES][NODES];
    sherd__field field;

    sherd__field_start(&field, problem, problem->to);
    CHECK_OK(sherd__field_fill(&field));
    if (field.nodes <= NODES) {
        find_ways(time, &field);
        for (int a = 0; a < field.nodes; a++)
            for (int b = 0; b < field.nodes; b++) {
                if (field.node[b].pending & ~field.node[a].pending)
                    continue;
                int64_t bound = sherd__bound_between(&field, a, b, SHERD__MOST).picoseconds;
                if (!CHECK(bound <= time[a][b]))
                    fprintf(stderr, "%s -> %s: nodes %d and %d: %lld, but %lld\n",
                            problem->from->text, problem->to->text, a, b, (long long)bound,
                            (long long)time[a][b]);
                t->ways++;
                t->near += 10 * bound >= 8 * time[a][b];
            }
    }
    sherd__field_clear(&field);
}

/* Addends cost a message each, and time to add them. */
static void reductions_are_bounded_by_messages_and_sums(void)
{
    static const char *const moves[][2] = {{"[64,48] P(sum:a0) P(sum:a1)", "[64(a1),48(a0)]"},
                                           {"[64(a1),48] P(sum:a0)", "[64(a0,a1),48]"},
                                           {"[64,48(a0)] P(sum:a1)", "[64,48(a1)]"},
                                           {"[64,48] P(sum:a0) P(sum:a1)", "[64,48]"}};
    int near = 0, reductions = 0;
    paper p;

    paper_open(&p, RANKS);
    for (int k = 0; k < 2 * LEN(moves); k++) {
        const sherd_link messages[] = {{"a0", 90000000, 100, 10, 0}, {"*", 70000000, 1000, 20, 0}};
        const sherd_link sums[] = {{"a0", 1000, 1000, 500000, 0}, {"*", 1000, 9000, 600000, 0}};
        sherd__request request = {
            .price = {.kind = SHERD_PRICE_LINKS, .links = 2, .straight = true}};
        sherd__field field;
        memcpy(request.price.link, k % 2 ? messages : sums, sizeof messages);
        char text[2][96];
        for (int i = 0; i < 2; i++)
            snprintf(text[i], sizeof text[i], "%s on (a0=8,a1=4)", moves[k / 2][i]);
        const sherd__problem problem = sherd__problem_of(&p.space, paper_layout(&p, text[0]),
                                                         paper_layout(&p, text[1]), 4, &request);
        compare(&(tally){.ways = 0}, &problem);
        sherd__field_start(&field, &problem, problem.to);
        CHECK_OK(sherd__field_fill(&field));
        static int64_t time[NODES][NODES];
        find_ways(time, &field);
        int64_t least = time[SHERD__START][SHERD__GOAL];
        reductions++;
        near +=
            2 * sherd__bound_between(&field, SHERD__START, SHERD__GOAL, SHERD__MOST).picoseconds >=
            least;
        sherd__field_clear(&field);
    }
    printf("       %d reductions, %d with at least half of the cheapest\n", reductions, near);
    CHECK(near >= 4);
    move_paper_close(&p);
}

static void no_way_takes_less_than_its_bound(void)
{
    static const char *const small[] = {"7x9", "4x4x4", "3x2x5", "x=8,y=16", "1x13x1x4", "2x2x2"};
    scene s = {.dice = 31};
    tally t = {0, 0};
    int rounds = getenv("SHERD_PROOF") ? 600 : 36;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < rounds; k++) {
        scene_draw(&s, k);
        s.mesh = paper_mesh(&s.p, small[k % LEN(small)]);
        sherd__request request = {
            .price = {SHERD_PRICE_LINKS,
                      2,
                      {{"a1", 600000, 10620, 1000, 0}, {"*", k % 2 ? 2700000 : 0, 48270, 1000, 0}},
                      0,
                      k % 5 == 4,
                      k % 3 == 1}};
        if (k % 2)
            draw_links(&s, &request.price);
        for (int i = 0; i < request.price.links && k % 4 == 1; i++)
            request.price.link[i].gamma_femtoseconds *= 500;
        const sherd_layout *from = draw_layout(&s, (unsigned)roll(&s.dice, 1 << s.mesh->axes));
        const sherd_layout *to = draw_layout(&s, 0);
        const sherd__problem problem = sherd__problem_of(&s.p.space, from, to, 4, &request);
        if (from != to)
            compare(&t, &problem);
    }
    printf("       %lld ways, %lld with at least 0.8 of the cheapest\n", (long long)t.ways,
           (long long)t.near);
    CHECK(t.near > t.ways / 5);
    move_paper_close(&s.p);
}

/* Also where adding takes longer than sending, and links share it. */
static void no_step_is_below_the_floor(void)
{
    scene s = {.dice = 12};
    int priced_steps = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 4000; k++) {
        sherd__request request = {
            .price = {.kind = SHERD_PRICE_LINKS, .overlap = k & 1, .straight = k & 2}};
        sherd__priced step;
        scene_draw(&s, roll(&s.dice, LEN(meshes)));
        draw_links(&s, &request.price);
        for (int i = 0; i < request.price.links && k & 4; i++)
            request.price.link[i].gamma_femtoseconds = 20000000;
        const sherd_layout *from = draw_layout(&s, (unsigned)roll(&s.dice, 1 << s.mesh->axes));
        const sherd_layout *to = draw_layout(&s, 0);
        if (k & 8) /* an all-reduce */
            CHECK_OK(sherd__layout_settle(&to, from));
        const sherd__problem problem = sherd__problem_of(&s.p.space, from, to, 4, &request);
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        if (step.amounts.receive_max == 0)
            continue;
        priced_steps++;
        CHECK(sherd__price_links.floor(&problem, step.amounts.target_max, step.change.addends) <=
              step.step.picoseconds);
    }
    CHECK(priced_steps > 2000);
    move_paper_close(&s.p);
}

static const check_test tests[] = {
    {TEST(no_way_takes_less_than_its_bound)},
    {TEST(reductions_are_bounded_by_messages_and_sums)},
    {TEST(no_step_is_below_the_floor)},
};
CHECK_MAIN(tests)
