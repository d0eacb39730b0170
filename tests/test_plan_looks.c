/* SPDX-License-Identifier: Apache-2.0 */
/* What the search takes a step of links to cost at least, against its price: never more, and mostly
 * as much. */
#define CHECK_PURE
#include "scenes.h"
#include "search/search.h"

typedef struct tally {
    int64_t steps, near, glances, glances_near;
} tally;

/* A look, or a bound, that may end early is the same up to there, and not above what it says in
 * full. */
static void ends_early(int64_t early, int64_t full, int64_t enough)
{
    if (full <= enough)
        CHECK_EQ(early, full);
    else
        CHECK(early > enough && early <= full);
}

/* A glance, from either end, that ends early or not, is never above a price. */
static void glance_both(const sherd__field *field, int a, int b, int64_t price, uint64_t *dice,
                        tally *t)
{
    for (int from = 0; from < 2; from++) {
        sherd__glances g;
        sherd__glances_start(&g, field, from ? a : b, from);
        int64_t full = sherd__glance(&g, from ? b : a, SHERD__MOST);
        int64_t enough = full / 2 * roll(dice, 4);
        if (!CHECK(full <= price))
            fprintf(stderr, "nodes %d and %d: %lld, but %lld\n", a, b, (long long)full,
                    (long long)price);
        ends_early(sherd__glance(&g, from ? b : a, enough), full, enough);
        t->glances += !g.none;
        t->glances_near += !g.none && 10 * full >= 7 * price;
    }
}

static void look_early(const sherd__field *field, int a, int b, uint64_t *dice)
{
    sherd__search_edge full, early;

    sherd__edge_look(&full, field, a, b, SHERD__MOST);
    sherd__cost bound = sherd__bound_between(field, a, b, SHERD__MOST);
    int64_t enough = full.cost.picoseconds / 2 * roll(dice, 4);
    sherd__edge_look(&early, field, a, b, enough);
    ends_early(early.cost.picoseconds, full.cost.picoseconds, enough);
    enough = bound.picoseconds / 2 * roll(dice, 4);
    sherd__cost short_of = sherd__bound_between(field, a, b, enough);
    ends_early(short_of.picoseconds, bound.picoseconds, enough);
    if (bound.picoseconds <= enough)
        CHECK_EQ(short_of.bytes, bound.bytes);
}

/* What is known of a step that was priced before is what it costs, however far it was priced
 * then. */
static void price_again(const sherd__field *field, int a, int b, sherd__cost cost)
{
    const int64_t enough[] = {1, cost.picoseconds / 2 + 1, cost.picoseconds, 0, 1};

    for (int i = 0; i < LEN(enough); i++) {
        sherd__search_edge edge;
        bool allowed;
        sherd__edge_look(&edge, field, a, b, SHERD__MOST);
        CHECK_OK(sherd__edge_price(&edge, &allowed, field, a, b, enough[i]));
        ends_early(edge.cost.picoseconds, cost.picoseconds, enough[i] ? enough[i] : SHERD__MOST);
        if (!enough[i] || edge.cost.picoseconds <= enough[i])
            CHECK_EQ(edge.cost.bytes, cost.bytes);
        CHECK(allowed);
    }
}

/* Some steps between the states of a problem. */
static void compare(tally *t, const sherd__problem *problem, uint64_t *dice)
{
    static sherd__known known[SHERD__KNOWN];
    sherd__field field;

    memset(known, 0, sizeof known);
    sherd__field_start(&field, problem, problem->to);
    CHECK_OK(sherd__field_fill(&field));
    sherd__bound_fill(&field);
    sherd__links_pairs(&field);
    sherd__free(problem->space->heap, field.priced.table);
    field.priced.table = NULL;
    for (int i = 0; i < 300; i++) {
        int a = roll(dice, field.nodes), b = 1 + roll(dice, field.nodes - 1);
        sherd__search_edge look, price = {.sure_time = false};
        bool allowed;
        if (a == b || field.node[b].pending & ~field.node[a].pending)
            continue;
        sherd__edge_look(&look, &field, a, b, SHERD__MOST);
        CHECK_OK(sherd__edge_price(&price, &allowed, &field, a, b, 0));
        if (!CHECK(sherd__cost_compare(look.cost, price.cost) <= 0))
            fprintf(stderr, "%s -> %s: nodes %d and %d: %lld, but %lld\n", problem->from->text,
                    problem->to->text, a, b, (long long)look.cost.picoseconds,
                    (long long)price.cost.picoseconds);
        look_early(&field, a, b, dice);
        glance_both(&field, a, b, price.cost.picoseconds, dice, t);
        field.priced.table = i % 8 ? NULL : known;
        if (field.priced.table)
            price_again(&field, a, b, price.cost);
        field.priced.table = NULL;
        t->steps++;
        t->near += 10 * look.cost.picoseconds >= 9 * price.cost.picoseconds;
    }
    sherd__field_clear(&field);
}

static void looks_are_at_most_the_price(void)
{
    static const char *const small[] = {"7x9", "4x4x4", "3x2x5", "x=8,y=16", "1x13x1x4", "2x2x4x2"};
    scene s = {.dice = 21};
    tally t = {.steps = 0};

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 240; k++) {
        scene_draw(&s, k);
        s.mesh = paper_mesh(&s.p, small[k % LEN(small)]);
        sherd__request request = {
            .price = {SHERD_PRICE_LINKS,
                      2,
                      {{"a1", 600000, 10620, 1000, 0}, {"*", 2700000, 48270, 1000, 0}},
                      0,
                      k % 5 == 4,
                      k % 3 == 1}};
        if (k % 2)
            draw_links(&s, &request.price);
        const sherd_layout *from = draw_layout(&s, (unsigned)roll(&s.dice, 1 << s.mesh->axes));
        const sherd_layout *to = draw_layout(&s, 0);
        const sherd__problem problem = sherd__problem_of(&s.p.space, from, to, 4, &request);
        if (from != to)
            compare(&t, &problem, &s.dice);
    }
    printf("       %lld steps, %lld with at least 0.9 of the price\n", (long long)t.steps,
           (long long)t.near);
    CHECK(t.near > t.steps / 3);
    CHECK(t.glances > 10000 && t.glances_near > t.glances / 3);
    move_paper_close(&s.p);
}

/* A message over an axis that is fast by its bytes may still be the dearest. */
static void looks_are_near_where_messages_of_fast_axes_are_slow(void)
{
    static const char *const moves[][2] = {
        {"[4096(tp),12288] P(sum:dp)", "[4096(dp),12288(cp,tp)]"},
        {"[4096,12288(pp,dp,cp)] P(sum:tp)", "[4096(cp,dp),12288(tp,pp)]"},
        {"[4096(pp,tp),12288(dp)]", "[4096(dp),12288(cp,pp)]"},
        {"[4096(dp),12288(pp,cp)]", "[4096(tp,dp),12288(pp,cp)]"}};
    sherd__request request = {.price = {SHERD_PRICE_LINKS,
                                        4,
                                        {{"dp", 1234000000, 2596, 139, 0},
                                         {"pp", 1234000000, 2596, 139, 0},
                                         {"cp", 1578000000, 312, 0, 0},
                                         {"tp", 1578000000, 312, 0, 0}},
                                        0,
                                        false,
                                        true}};
    uint64_t dice = 23;
    tally t = {.steps = 0};
    paper p;

    paper_open(&p, 1024);
    for (int k = 0; k < LEN(moves); k++) {
        char text[2][128];
        for (int i = 0; i < 2; i++)
            snprintf(text[i], sizeof text[i], "%s on (dp=16,pp=4,cp=2,tp=8)", moves[k][i]);
        const sherd_layout *from = paper_layout(&p, text[0]), *to = paper_layout(&p, text[1]);
        const sherd__problem problem = sherd__problem_of(&p.space, from, to, 4, &request);
        compare(&t, &problem, &dice);
    }
    printf("       %lld steps, %lld with at least 0.9 of the price; %lld glances, %lld of 0.7\n",
           (long long)t.steps, (long long)t.near, (long long)t.glances, (long long)t.glances_near);
    CHECK(t.near > t.steps * 7 / 10);
    CHECK(t.glances_near > t.glances * 6 / 10);
    move_paper_close(&p);
}

/* Where a class may be idle a look still says what each has to do. */
static void looks_are_near_where_classes_overlap(void)
{
    static const char *const on = "[4096(tp),12288,768] P(sum:dp) on (dp=16,pp=4,cp=2,tp=8)";
    sherd__request request = {
        .price = {SHERD_PRICE_LINKS,
                  2,
                  {{"tp", 600000, 10620, 1000, 0}, {"*", 2700000, 48270, 1000, 0}},
                  0,
                  true,
                  false}};
    uint64_t dice = 22;
    tally t = {.steps = 0};
    paper p;

    paper_open(&p, 1024);
    const sherd_layout *from = paper_layout(&p, on);
    const sherd_layout *to =
        paper_layout(&p, "[4096(dp),12288,768(cp,tp)] on (dp=16,pp=4,cp=2,tp=8)");
    const sherd__problem problem = sherd__problem_of(&p.space, from, to, 4, &request);
    for (int k = 0; k < 4; k++)
        compare(&t, &problem, &dice);
    printf("       %lld steps, %lld with at least 0.9 of the price\n", (long long)t.steps,
           (long long)t.near);
    CHECK(t.near > t.steps * 7 / 10);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(looks_are_at_most_the_price)},
    {TEST(looks_are_near_where_messages_of_fast_axes_are_slow)},
    {TEST(looks_are_near_where_classes_overlap)},
};
CHECK_MAIN(tests)
