/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of an exact plan when its search comes to a limit: `proven` is false, or the plan is
 * the cheapest all the same; it costs what it says, no more than the direct step, than greedy's
 * plan and, if all states are listed, than graph's. The limits are lowered one by
 * one, since what they are usually is seldom come to.
 */
#define CHECK_PURE
#include "graph.h"
#include "search/search.h"

static const sherd__effort efforts[] = {
    {4, 8, 4000000, 262144, 20000, 1000, SHERD__SURE, 8000000}, /* some states */
    {4, 0, 4000000, 262144, 20000, 1000, SHERD__SURE, 8000000}, /* only source and target */
    {4, 1024, 4000000, 262144, 20000, 2, SHERD__SURE, 8000000}, /* some states, two prices */
    {4096, 1024, 1, 262144, 20000, 1000, SHERD__SURE, 8000000}, /* one state is gone on from */
    {4096, 1024, 200, 262144, 20000, 1000, SHERD__SURE, 8000000},
    {4096, 1024, 4000000, 1, 20000, 1000, SHERD__SURE, 8000000}, /* one step waits */
    {4096, 1024, 4000000, 262144, 0, 0, SHERD__SURE, 8000000},   /* one price */
    {4096, 1024, 4000000, 262144, 3, 3, SHERD__SURE, 8000000},
    {4096, 1024, 4000000, 262144, 20000, 1000, 0, 8000000}, /* nothing is known over all ranks */
    {4096, 1024, 4000000, 262144, 20000, 1000, SHERD__SURE, 1}, /* no search is repeated */
    {0, 0, 0, 0, 0, 0, 0, 0},
};

typedef struct tally_of {
    int found, proven, dearer;
} tally_of;

static sherd_price price_of(int k)
{
    sherd_price price = k % 2 ? slow_in_two_ways() : slow_messages();

    price.straight = k & 2;
    price.overlap = k % 5 == 0;
    if (k % 7 == 0)
        price = (sherd_price){.kind = SHERD_PRICE_ARENA};
    if (k % 7 == 1)
        price = (sherd_price){.kind = SHERD_PRICE_TORCH, .per_host = 4};
    return price;
}

static cost add_step(cost sum, const sherd__problem *problem, const sherd_layout *from,
                     const sherd_layout *to)
{
    sherd__priced step;

    CHECK_OK(sherd__step_price(&step, problem, from, to));
    return (cost){sum.time + step.step.picoseconds, sum.bytes + step.step.recv_total_bytes,
                  sum.steps + 1};
}

static cost cost_of(const sherd__problem *problem, const sherd__path *path)
{
    cost sum = {0, 0, 0};

    for (int i = 1; i < path->stops; i++)
        sum = add_step(sum, problem, path->at[i - 1], path->at[i]);
    return sum;
}

static cost planned(const sherd_layout *from, const sherd_layout *to, const sherd_price *price,
                    sherd_planner planner)
{
    const sherd_plan_options options = {.planner = planner, .price = price};
    const sherd_plan *plan = NULL;

    if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options)))
        return none;
    CHECK(planner != SHERD_PLANNER_EXACT || plan->price.proven);
    return (cost){plan->price.picoseconds, plan->price.recv_total_bytes, plan->steps};
}

/* Times and bytes of two plans; steps only break ties. */
static bool is_dearer(cost a, cost b)
{
    return a.time != b.time ? a.time > b.time : a.bytes > b.bytes;
}

static void try_effort(tally_of *t, const sherd__problem *problem, const sherd__effort *effort,
                       cost best, cost other)
{
    sherd__answer answer = {.path = {.stops = 1, .at = {problem->from}}};
    bool good = CHECK_OK(sherd__exact_find_within(&answer, problem, effort));
    cost found = cost_of(problem, &answer.path);

    good = good && CHECK_EQ(answer.picoseconds, found.time) && CHECK(compare(found, best) >= 0) &&
           CHECK(!answer.proven || compare(found, best) == 0) && CHECK(!is_dearer(found, other));
    t->found++;
    t->proven += answer.proven;
    t->dearer += is_dearer(found, best);
    if (!good)
        fprintf(stderr,
                "effort %d: %s -> %s: %lld ps, %lld bytes, %lld steps; best %lld, %lld, %lld\n",
                (int)(effort - efforts), problem->from->text, problem->to->text,
                (long long)found.time, (long long)found.bytes, (long long)found.steps,
                (long long)best.time, (long long)best.bytes, (long long)best.steps);
}

static cost least_of(cost a, cost b)
{
    return is_dearer(a, b) ? b : a;
}

static void try_all(tally_of *t, paper *p, const sherd_layout *from, const sherd_layout *to,
                    const sherd_price *price)
{
    const sherd_plan_options options = {.price = price};
    bool across = from->spec.mesh != to->spec.mesh;
    sherd__request request;

    CHECK_OK(sherd__request_make(&request, from, to, &options));
    const sherd__problem problem = sherd__problem_of(&p->space, from, to, 8, &request);
    const cost best = planned(from, to, price, SHERD_PLANNER_EXACT);
    cost other = add_step((cost){0, 0, 0}, &problem, from, to);
    if (!across)
        other = least_of(other, planned(from, to, price, SHERD_PLANNER_GREEDY));
    for (int i = 0; i < LEN(efforts); i++) {
        cost most = other;
        if (!across && efforts[i].states > 4)
            most = least_of(most, planned(from, to, price, SHERD_PLANNER_GRAPH));
        try_effort(&t[i], &problem, &efforts[i], best, most);
    }
}

/* Steps of which some rank that no search looks at is the busiest: searches are repeated. */
static void try_repeated(tally_of *t)
{
    static const char *const pairs[][2] = {
        {"[11,3(a1:0,0,0,1,1,0,1,0,0)] P(sum:a0) on (a0=2,a1=9)", "[11,3] on (a0=9)"},
        {"[10(a1:8,1,0,0,0,1,0,0,0),4(a0)] on (a0=2,a1=9)", "[10,4] on (a0=9)"},
        {"[27(a1:19,0,5,3,0,0,0,0,0),2] on (a0=2,a1=9)", "[27,2(a0)] on (a0=9)"},
    };
    sherd_price price = slow_in_two_ways();

    price.straight = true;
    for (int i = 0; i < LEN(pairs); i++) {
        paper p;
        paper_open(&p, 64);
        const sherd_layout *from = paper_layout(&p, pairs[i][0]);
        try_all(t, &p, from, paper_layout(&p, pairs[i][1]), &price);
        move_paper_close(&p);
    }
}

static void a_search_that_is_cut_off_says_so(void)
{
    static const char *const meshes[] = {"2x3", "4x2", "2x2x2", "4x2x3", "8x3", "5x5", "2x2x2x2"};
    static const int64_t shapes[][2] = {{4099, 3001}, {12, 7}, {2000, 300}, {64, 48}, {3, 2}};
    static tally_of t[LEN(efforts)];
    uint64_t dice = 3;

    for (int k = 0; k < (getenv("SHERD_PROOF") ? 2400 : 80); k++) {
        const int64_t *shape = shapes[k % LEN(shapes)];
        const sherd_price price = price_of(k);
        paper p;
        paper_open(&p, 64);
        const sherd_mesh *mesh = paper_mesh(&p, meshes[k % LEN(meshes)]);
        const sherd_mesh *other = k % 6 == 5 ? paper_mesh(&p, "3x2") : mesh;
        const sherd_layout *from = any_layout(mesh, 2, shape, k % 4 == 0, SHERD_SUM, &dice);
        const sherd_layout *to = any_layout(other, 2, shape, k % 4 == 0, -1, &dice);
        if (from != to)
            try_all(t, &p, from, to, &price);
        move_paper_close(&p);
    }
    try_repeated(t);
    for (int i = 0; i < LEN(efforts); i++) {
        printf("       effort %d: %d plans, %d proven, %d dearer than the cheapest\n", i,
               t[i].found, t[i].proven, t[i].dearer);
        CHECK(t[i].proven < t[i].found);
    }
    CHECK(t[LEN(efforts) - 1].dearer > 10);
}

/*
 * A search whose prices are lower bounds is repeated with what it has learnt. All runs together
 * keep within the limits: this one took 30 seconds when each had limits of its own.
 */
static void repeated_searches_end(void)
{
    const sherd_price price = {.kind = SHERD_PRICE_LINKS,
                               .links = 4,
                               .link = {{"a3", 263400407, INT64_MAX, 1, 1099511627776},
                                        {"a1", 1, 1422, 564, 0},
                                        {"a1", 31843, 100000000, 2, 3987949},
                                        {"zz", 5, 165834, 133488, 291}}};
    const sherd_plan_options options = {.price = &price};
    const sherd_plan *plan = NULL;
    paper p;

    if (!getenv("SHERD_PROOF")) /* a second */
        return;
    paper_open(&p, 64);
    const sherd_layout *from = paper_layout(&p, "[12(a3:1,11,0),24] on (a0=2,a1=2,a2=3,a3=3)");
    const sherd_layout *to = paper_layout(&p, "[12(b),24] on (b=2,c=3)");
    clock_t start = clock();
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
    CHECK((clock() - start) / CLOCKS_PER_SEC < 10);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(repeated_searches_end)},
    {TEST(a_search_that_is_cut_off_says_so)},
};
CHECK_MAIN(tests)
