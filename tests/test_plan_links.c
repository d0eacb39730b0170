/* SPDX-License-Identifier: Apache-2.0 */
/* The price of links, against a count of messages and bytes in the schedules of all ranks. */
#define CHECK_PURE
#include "scenes.h"

/* Some axes have a line of their own, in any order; "*" stands somewhere, or not at all. */
static sherd_price draw_price(scene *s)
{
    sherd_price price = {.kind = SHERD_PRICE_LINKS};
    int star = roll(&s->dice, 2 * s->mesh->axes);

    for (int i = s->mesh->axes - 1; i >= -1; i--) {
        sherd_link *link = &price.link[price.links];
        if (i >= 0 && i != star && roll(&s->dice, 4) == 0)
            continue;
        strcpy(link->axis, i < 0 || i == star ? "*" : s->mesh->name[i]);
        if ((i < 0 && star < s->mesh->axes) || (i < 0 && roll(&s->dice, 3) == 0))
            continue;
        link->alpha_picoseconds = roll(&s->dice, 4) * 1000;
        link->beta_femtoseconds = roll(&s->dice, 4) * 333;
        link->gamma_femtoseconds = roll(&s->dice, 4) * 77;
        price.links++;
    }
    return price;
}

static bool is_slower(const sherd_link *a, const sherd_link *b)
{
    return a->beta_femtoseconds > b->beta_femtoseconds ||
           (a->beta_femtoseconds == b->beta_femtoseconds &&
            a->alpha_picoseconds > b->alpha_picoseconds);
}

/* The link of each axis: its own line, else "*", else the slowest line. */
static sherd_link line_of(const sherd_price *price, const char *axis)
{
    const sherd_link none = {"", 0, 0, 0}, *star = NULL, *slowest = NULL;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        if (strcmp(link->axis, axis) == 0)
            return *link;
        if (strcmp(link->axis, "*") == 0)
            star = link;
        if (!slowest || is_slower(link, slowest))
            slowest = link;
    }
    return star ? *star : slowest ? *slowest : none;
}

/* The slowest of some axes; -1 = none. */
static int slowest_of(const sherd_mesh *mesh, const sherd_link *link, unsigned axes)
{
    int found = -1;

    for (int i = 0; i < mesh->axes; i++)
        if (axes >> i & 1 && (found < 0 || !is_slower(&link[found], &link[i])))
            found = i;
    return found;
}

typedef struct traffic {
    int64_t messages[SHERD_MAX_AXES], elements[SHERD_MAX_AXES]; /* by the slowest axis crossed */
} traffic;

/* What comes to each rank, by its schedule and those of the ranks that write to it. */
static void count_traffic(traffic *of, const table *t, const sherd_step *step,
                          const sherd_link *link)
{
    const sherd_mesh *mesh = step->from->spec.mesh;

    memset(of, 0, (size_t)t->ranks * sizeof *of);
    for (int r = 0; r < t->ranks; r++) {
        sherd__schedule *s;
        CHECK_OK(sherd__schedule_create(&s, step->from->space, step, 4, r));
        for (int i = 0; i < s->regions; i++) {
            int64_t count = 1;
            for (int d = 0; d < s->ndim; d++)
                count *= s->region[i].size[d];
            for (int j = 0; j < s->region[i].count; j++) {
                int peer = s->pull[s->region[i].first + j].rank;
                int axis = slowest_of(mesh, link, apart(t, mesh, r, peer));
                if (peer != r) {
                    of[r].messages[axis]++;
                    of[r].elements[axis] += count;
                }
            }
            for (int j = 0; j < s->sharers; j++) {
                int axis = slowest_of(mesh, link, apart(t, mesh, r, s->sharer[j]));
                of[s->sharer[j]].messages[axis]++;
                of[s->sharer[j]].elements[axis] += count;
            }
        }
        sherd__schedule_destroy(step->from->space, s);
    }
}

/* By the definition in plan.h: with the messages and bytes of the busiest rank of each class. */
static int64_t time_by_hand(const sherd__priced *p, const sherd_link *link, bool sliced)
{
    static table t;
    static traffic of[RANKS];
    const sherd_mesh *mesh = p->change.mesh;
    sherd_step step = p->step;
    int64_t femto = 0, lo, slice, n = p->amounts.target_max, k = p->change.addends;

    step.sliced = sliced;
    fill(&t, step.from, step.to);
    count_traffic(of, &t, &step, link);
    for (int i = 0; i < mesh->axes; i++) {
        int64_t messages = 0, elements = 0;
        for (int r = 0; r < t.ranks; r++) {
            if (sliced && sherd__box_count(&t.target[r]) < n)
                continue; /* the group with the largest boxes */
            at_least(&messages, of[r].messages[i]);
            at_least(&elements, of[r].elements[i]);
        }
        femto +=
            messages * link[i].alpha_picoseconds * 1000 + 4 * elements * link[i].beta_femtoseconds;
    }
    sherd__slice_of(n, k, 0, &lo, &slice);
    if (k > 1)
        femto += 4 * (k - 1) * (sliced ? slice : n) *
                 link[slowest_of(mesh, link, p->change.reduced)].gamma_femtoseconds;
    return (femto + 999) / 1000;
}

static void links_are_priced_by_their_definition(void)
{
    scene s = {.dice = 3};
    int priced = 0, sliced = 0, straight = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 3000; k++) {
        sherd_link link[SHERD_MAX_AXES];
        sherd__priced step;
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 2) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        const sherd__request request = {.price = draw_price(&s)};
        const sherd_layout *from = draw_layout(&s, sums), *to = draw_layout(&s, 0);
        if (sums && roll(&s.dice, 2))
            CHECK_OK(sherd__layout_settle(&to, from));
        const sherd__problem problem = {&s.p.space, from, to, 4, &request};
        for (int i = 0; i < s.mesh->axes; i++)
            link[i] = line_of(&request.price, s.mesh->name[i]);
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        bool local = step.step.axes == 0, both = step.step.kind == SHERD_STEP_ALL_REDUCE;
        int64_t one = local ? 0 : time_by_hand(&step, link, false);
        int64_t two = both ? time_by_hand(&step, link, true) : one;
        bool good = CHECK_EQ(step.step.picoseconds, one < two ? one : two);
        good = CHECK_EQ(step.step.sliced, two < one) && good;
        good = CHECK_EQ(step.rounds, local ? 0 : two < one ? 2 : 1) && good;
        if (!local)
            good = CHECK(sherd__price_links.floor(&problem, step.amounts.target_max,
                                                  step.change.addends) <= step.step.picoseconds) &&
                   good;
        if (!good)
            fprintf(stderr, "%s -> %s\n", from->text, to->text);
        priced += step.step.picoseconds > 0;
        sliced += both && two < one;
        straight += both && two > one;
    }
    CHECK(priced > 1500 && sliced > 100 && straight > 50);
    move_paper_close(&s.p);
}

/* Searches compare floors of larger boxes and more addends. */
static void floors_do_not_fall(void)
{
    static const sherd__request request = {
        .price = {SHERD_PRICE_LINKS, 2, {{"a0", 1000, 333, 77}, {"*", 500, 400, 0}}, 0}};
    paper p;

    paper_open(&p, 12);
    const sherd_layout *layout = paper_layout(&p, "[8] on (a0=3,a1=4)");
    const sherd__problem problem = {&p.space, layout, layout, 4, &request};
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
        .price = {SHERD_PRICE_LINKS, 1, {{"*", INT64_MAX, INT64_MAX, INT64_MAX}}, 0}};
    static const sherd__request flat = {.price = {SHERD_PRICE_LINKS, 1, {{"*", 1, 1, 1}}, 0}};
    const int64_t limit = ((int64_t)1 << 62) - 1;
    paper p;

    paper_open(&p, 1 << 20);
    for (int i = 0; i < LEN(texts) * 2; i++) {
        const sherd_layout *from = paper_layout(&p, texts[i / 2][0]);
        const sherd_layout *to = paper_layout(&p, texts[i / 2][1]);
        const sherd__problem problem = {&p.space, from, to, 8, i % 2 ? &steep : &flat};
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
    {TEST(floors_do_not_fall)},
    {TEST(times_at_the_limit_do_not_overflow)},
};
CHECK_MAIN(tests)
