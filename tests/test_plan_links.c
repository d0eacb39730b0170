/* SPDX-License-Identifier: Apache-2.0 */
/* The price of links, against a count of messages and bytes in the schedules and boxes of all
 * ranks. */
#define CHECK_PURE
#include "links_by_hand.h"

static bool has_cuts(const sherd_layout *layout)
{
    for (int d = 0; d < layout->spec.ndim; d++)
        if (layout->spec.dim[d].cuts)
            return true;
    return false;
}

/* Femtoseconds; 0 = it is not priced so. */
typedef struct by_hand {
    int64_t straight, staged;
} by_hand;

static int64_t picoseconds(int64_t femto)
{
    return (femto + 999) / 1000;
}

/* Straight steps take what the busiest rank takes; by stages explicit cuts count as long as the
 * longest. `exact`: without cuts. */
static bool check_price(const sherd__priced *p, const by_hand *hand, bool exact,
                        const sherd_price *by)
{
    int64_t price = p->step.picoseconds, straight = picoseconds(hand->straight);
    int64_t staged = picoseconds(hand->staged);

    if (hand->staged == 0)
        return CHECK_EQ(price, straight);
    if (p->step.kind == SHERD_STEP_ALL_REDUCE)
        return CHECK(price <= straight && price <= staged) &&
               CHECK_EQ(p->step.sliced ? price : 0, p->step.sliced ? staged : 0);
    if (by->overlap || !exact)
        return CHECK(price <= straight);
    return CHECK(price <= staged) && CHECK(price <= straight);
}

typedef struct tally {
    int priced, straight, staged, same_staged, sliced;
} tally;

static bool check_step(const sherd__priced *p, const sherd_link *link, const sherd_price *by,
                       tally *n)
{
    static table t;
    by_hand hand = {0, 0};

    fill(&t, p->step.from, p->step.to);
    if (p->step.axes)
        hand.straight = straight_by_hand(&t, p, link, by);
    if (p->step.kind == SHERD_STEP_ALL_REDUCE && by->straight)
        hand.staged = sliced_by_hand(&t, p, link, by->overlap);
    else if ((p->step.kind == SHERD_STEP_ALL_GATHER || p->step.kind == SHERD_STEP_REDUCE_SCATTER ||
              p->step.kind == SHERD_STEP_ALL_REDUCE) &&
             !by->straight)
        hand.staged = staged_by_hand(&t, p, link);
    bool good = CHECK_EQ(p->rounds, p->step.axes ? p->step.sliced ? 2 : 1 : 0);
    bool exact = !has_cuts(p->step.from) && !has_cuts(p->step.to);
    n->priced += p->step.picoseconds > 0;
    n->sliced += p->step.sliced;
    n->straight += hand.staged == 0 && hand.straight > 0;
    if (hand.staged > 0 && !by->overlap && exact) {
        n->staged++;
        n->same_staged += p->step.picoseconds == picoseconds(hand.staged) ||
                          p->step.picoseconds == picoseconds(hand.straight);
    }
    return check_price(p, &hand, exact, by) && good;
}

static void links_are_priced_by_their_definition(void)
{
    scene s = {.dice = 3};
    tally n = {0, 0, 0, 0, 0};

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 3000; k++) {
        sherd_link link[SHERD_MAX_AXES];
        sherd__priced step;
        int64_t bytes = 4;
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 2) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        sherd__request request = {.price = draw_price(&s)};
        const sherd_layout *from = draw_layout(&s, sums), *to = draw_layout(&s, 0);
        request.price.overlap = k % 4 == 3;
        request.price.straight = k % 3 == 1;
        if (k % 5 == 0)
            from = draw_near(&s, to);
        else if (sums && roll(&s.dice, 2))
            CHECK_OK(sherd__layout_settle(&to, from));
        const sherd__problem problem = sherd__problem_of(&s.p.space, from, to, 4, &request);
        for (int d = 0; d < s.ndim; d++)
            bytes *= s.shape[d];
        for (int i = 0; i < s.mesh->axes; i++)
            link[i] = line_of(&request.price, s.mesh->name[i], bytes);
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        bool good = check_step(&step, link, &request.price, &n);
        if (step.step.axes)
            good = CHECK(sherd__price_links.floor(&problem, step.amounts.target_max,
                                                  step.change.addends) <= step.step.picoseconds) &&
                   good;
        if (!good)
            fprintf(stderr, "%d: %s -> %s\n", k, from->text, to->text);
    }
    printf("       %d priced; %d straight; by stages, %d of %d are as by hand; %d sliced\n",
           n.priced, n.straight, n.same_staged, n.staged, n.sliced);
    CHECK(n.priced > 1500 && n.sliced > 100 && n.staged > 100 && n.straight > 1000);
    CHECK(n.same_staged >= n.staged * 98 / 100);
    move_paper_close(&s.p);
}

/* The lines of `few` for tensors of up to so many bytes, those of `many` for others. */
static sherd_price join_prices(const sherd_price *few, const sherd_price *many, int64_t bytes)
{
    sherd_price both = *many;

    for (int i = 0; i < few->links; i++) {
        both.link[both.links] = few->link[i];
        both.link[both.links++].upto_bytes = bytes;
    }
    return both;
}

/* A tensor has the price of the lines for its size: as if there were no others. */
static void the_lines_for_the_tensors_size_count(void)
{
    scene s = {.dice = 23};
    int counts[2] = {0, 0};

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 2000; k++) {
        sherd__priced step, alone;
        scene_draw(&s, k);
        sherd__request few = {.price = draw_price(&s)}, many = few, both = few;
        const sherd_layout *from = draw_layout(&s, (unsigned)k % 2), *to = draw_layout(&s, 0);
        int64_t bytes = 4;
        for (int d = 0; d < s.ndim; d++)
            bytes *= s.shape[d];
        int64_t limit = bytes + roll(&s.dice, 3) - 1;
        if (limit < 1)
            continue;
        for (int i = 0; i < many.price.links; i++)
            many.price.link[i].beta_femtoseconds = roll(&s.dice, 5000);
        both.price = k % 4 < 2 ? join_prices(&few.price, &many.price, limit)
                               : join_prices(&many.price, &many.price, limit + 5);
        if (k % 4 >= 2) /* without a line for all sizes the highest limit counts beyond it */
            for (int i = 0; i < few.price.links; i++) {
                both.price.link[i] = few.price.link[i];
                both.price.link[i].upto_bytes = limit;
            }
        const sherd__problem problem = sherd__problem_of(&s.p.space, from, to, 4, &both);
        const sherd__problem by_few = sherd__problem_of(&s.p.space, from, to, 4, &few);
        const sherd__problem by_many = sherd__problem_of(&s.p.space, from, to, 4, &many);
        const sherd__problem *by = bytes <= limit ? &by_few : &by_many;
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        CHECK_OK(sherd__step_price(&alone, by, from, to));
        CHECK_EQ(step.step.picoseconds, alone.step.picoseconds);
        CHECK_EQ(step.step.sliced, alone.step.sliced);
        CHECK_EQ(sherd__price_links.floor(&problem, 9, 2), sherd__price_links.floor(by, 9, 2));
        counts[bytes <= limit] += alone.step.picoseconds > 0;
    }
    CHECK(counts[0] > 100 && counts[1] > 100);
    move_paper_close(&s.p);
}

/* Plans by prices that differ in a size are not the same ones. */
static void a_size_is_part_of_a_price(void)
{
    sherd__request a = {
        .price = {.kind = SHERD_PRICE_LINKS, .links = 1, .link = {{.upto_bytes = 4096}}}};
    sherd__request b = a;
    const sherd_plan *plan;
    paper p;

    CHECK(sherd__request_equal(&a, &b) && sherd__request_hash(&a) == sherd__request_hash(&b));
    b.price.link[0].upto_bytes++;
    CHECK(!sherd__request_equal(&a, &b) && sherd__request_hash(&a) != sherd__request_hash(&b));
    b.price.link[0].upto_bytes = -1;
    paper_open(&p, 2);
    const sherd_layout *from = paper_layout(&p, "[8(x)] on (x=2)");
    const sherd_layout *to = paper_layout(&p, "[8] on (x=2)");
    const sherd_plan_options options = {.price = &b.price};
    CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_F32, &options), SHERD_EINVAL);
    CHECK(strstr(p.diag.text, "this is not a price"));
    move_paper_close(&p);
}

/* One made in C is held to what a price file is, and the text says which value is wrong. */
static void what_is_no_price_is_named(void)
{
    static const struct {
        sherd_price price;
        const char *says;
    } wrong[] = {
        {{.kind = 7}, "there is no kind 7"},
        {{.kind = SHERD_PRICE_LINKS}, "0 links, not 1 to 36"},
        {{.kind = SHERD_PRICE_LINKS, .links = 37}, "37 links, not 1 to 36"},
        {{.kind = SHERD_PRICE_TORCH, .per_host = -3}, "-3 devices per host"},
        {{SHERD_PRICE_LINKS, 2, {{"*", 1, 1, 1, 9}, {"*", 2, 2, 2, 9}}, 0, false, false},
         "links 0 and 1 are both of axis * with upto_bytes 9"},
        {{SHERD_PRICE_LINKS, 1, {{"", 1, 1, 1, 0}}, 0, false, false}, "link 0: \"\" is no axis"},
        {{SHERD_PRICE_LINKS, 1, {{"x y", 1, 1, 1, 0}}, 0, false, false}, "\"x y\" is no axis"},
        {{SHERD_PRICE_LINKS, 2, {{"x", 1, 1, 1, 0}, {"y", 1, -2, 1, 0}}, 0, false, false},
         "link 1 (y): alpha 1, beta -2, gamma 1, upto_bytes 0: one is negative"},
    };
    paper p;

    paper_open(&p, 2);
    const sherd_layout *from = paper_layout(&p, "[8(x)] on (x=2)");
    const sherd_layout *to = paper_layout(&p, "[8] on (x=2)");
    for (int i = 0; i < LEN(wrong); i++) {
        const sherd_plan_options options = {.price = &wrong[i].price};
        const sherd_plan *plan;
        CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_F32, &options), SHERD_EINVAL);
        CHECK(strstr(p.diag.text, "this is not a price: "));
        if (!CHECK(strstr(p.diag.text, wrong[i].says)))
            fprintf(stderr, "%s: %s\n", wrong[i].says, p.diag.text);
    }
    move_paper_close(&p);
}

/* The figure that all of this is for: a sum of one number on 1,024 ranks. */
static void small_reductions_take_few_rounds(void)
{
    static const sherd__request request = {
        .price = {SHERD_PRICE_LINKS, 1, {{"*", 2700000, 48270, 1000, 0}}, 0, false, false}};
    paper p;

    paper_open(&p, 1024);
    const sherd_layout *from = paper_layout(&p, "[1] P(sum:dp) on (dp=1024)");
    const sherd_layout *to = paper_layout(&p, "[1] on (dp=1024)");
    const sherd__problem problem = sherd__problem_of(&p.space, from, to, 8, &request);
    sherd__priced step;
    CHECK_OK(sherd__step_price(&step, &problem, from, to));
    CHECK(step.step.sliced);
    CHECK_EQ(step.step.picoseconds, 20 * 2700000 + (20 * 8 * 48270 + 10 * 8 * 1000) / 1000 + 1);
    move_paper_close(&p);
}

/* A message along each axis that they reach over; all bytes over the slowest. */
static void windows_take_a_message_an_axis(void)
{
    const sherd_price price = {
        SHERD_PRICE_LINKS, 2, {{"x", 5000, 20000, 9, 0}, {"*", 700, 30000, 9, 0}}, 0, false, true};
    paper p;

    paper_open(&p, 12);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=3,z=2");
    CHECK_EQ(sherd__links_time_window(&price, mesh, 0, 0), 0);
    CHECK_EQ(sherd__links_time_window(&price, mesh, 1, 100), 5000 + 2000);
    CHECK_EQ(sherd__links_time_window(&price, mesh, 2, 100), 700 + 3000);
    CHECK_EQ(sherd__links_time_window(&price, mesh, 7, 100), 5000 + 700 + 700 + 3000);
    CHECK_EQ(sherd__links_time_window(&price, mesh, 1, INT64_MAX), ((int64_t)1 << 62) - 1);
    move_paper_close(&p);
}

/* Searches compare floors of larger boxes and more addends. */
static void floors_do_not_fall(void)
{
    static const sherd__request request = {
        .price = {SHERD_PRICE_LINKS,
                  2,
                  {{"a0", 1000, 333, 77, 0}, {"*", 500, 400, 0, 0}},
                  0,
                  false,
                  false}};
    paper p;

    paper_open(&p, 12);
    const sherd_layout *layout = paper_layout(&p, "[8] on (a0=3,a1=4)");
    const sherd__problem problem = sherd__problem_of(&p.space, layout, layout, 4, &request);
    for (int64_t n = 1; n < 200; n++)
        for (int64_t k = 1; k < 12; k++) {
            int64_t least = sherd__price_links.floor(&problem, n, k);
            CHECK(least > 0);
            CHECK(sherd__price_links.floor(&problem, n + 1, k) >= least);
            CHECK(sherd__price_links.floor(&problem, n, k + 1) >= least);
        }
    move_paper_close(&p);
}

/* Sizes near 2^62, and constants as large as a price may have, stop there. */
static void times_at_the_limit_do_not_overflow(void)
{
    static const char *const texts[][2] = {
        {"[4611686018427387903] P(sum:x) P(sum:y) on (x=1024,y=1024)",
         "[4611686018427387903] on (x=1024,y=1024)"},
        {"[4611686018427387903] P(sum:x) P(sum:y) on (x=1024,y=1024)",
         "[4611686018427387903(y)] on (x=1024,y=1024)"},
        {"[2147483648(x),2147483647(y)] on (x=1024,y=1024)",
         "[2147483648(y),2147483647(x)] on (x=1024,y=1024)"},
    };
    static const sherd__request steep = {
        .price = {
            SHERD_PRICE_LINKS, 1, {{"*", INT64_MAX, INT64_MAX, INT64_MAX, 0}}, 0, false, false}};
    static const sherd__request flat = {
        .price = {SHERD_PRICE_LINKS, 1, {{"*", 1, 1, 1, 0}}, 0, false, false}};
    const int64_t limit = ((int64_t)1 << 62) - 1;
    paper p;

    paper_open(&p, 1 << 20);
    for (int i = 0; i < LEN(texts) * 2; i++) {
        const sherd_layout *from = paper_layout(&p, texts[i / 2][0]);
        const sherd_layout *to = paper_layout(&p, texts[i / 2][1]);
        const sherd__problem problem =
            sherd__problem_of(&p.space, from, to, 8, i % 2 ? &steep : &flat);
        sherd__priced step;
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        CHECK(step.step.picoseconds > 0 && step.step.picoseconds <= limit);
        CHECK(sherd__price_links.floor(&problem, step.amounts.target_max, step.change.addends) <=
              step.step.picoseconds);
        if (i % 2)
            CHECK_EQ(step.step.picoseconds, limit);
    }
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(links_are_priced_by_their_definition)},
    {TEST(the_lines_for_the_tensors_size_count)},
    {TEST(a_size_is_part_of_a_price)},
    {TEST(what_is_no_price_is_named)},
    {TEST(small_reductions_take_few_rounds)},
    {TEST(windows_take_a_message_an_axis)},
    {TEST(floors_do_not_fall)},
    {TEST(times_at_the_limit_do_not_overflow)},
};
CHECK_MAIN(tests)
