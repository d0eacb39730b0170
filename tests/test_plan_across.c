/* SPDX-License-Identifier: Apache-2.0 */
/* Steps between two meshes: exact for all pairs of layouts, priced as counted, shared out fairly,
 * refused where they must be. */
#define CHECK_PURE
#include "across.h"
#include "search/plans.h"

#include <sys/resource.h>

enum { LAYOUTS = 128 };

static const struct {
    const char *from, *to;
} meshes[] = {
    {"2x2", "4"},           {"8", "3x2"},
    {"3x2", "8"},           {"2@0,1", "2@2,3"},
    {"2@2,3", "2@0,1"},     {"3@0,1,2", "3@2,1,3"},
    {"2x2@3,1,0,2", "2x2"}, {"2x2@0,1,2,3", "2x2@6,2,7,3"},
    {"1x2", "3@4,1,0"},
};

static const struct {
    int ndim;
    int64_t size[3];
} shapes[] = {
    {2, {8, 4}},           /* even */
    {2, {7, 5}},           /* short last shard */
    {2, {1, 3}},           /* most shards empty */
    {2, {4, 0}},           /* nothing to move */
    {1, {11}},   {0, {0}}, /* a scalar */
};

static void close_paper(paper *p)
{
    sherd__plans_clear(&p->space);
    paper_close(p);
}

static void every_pair_of_layouts_on_two_meshes_is_exact(void)
{
    const sherd_layout *from[LAYOUTS], *to[LAYOUTS];
    int pairs = 0;

    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(shapes); s++) {
            paper p;
            bool good = true;
            paper_open(&p, RANKS);
            int n = paper_layouts(paper_mesh(&p, meshes[m].from), shapes[s].ndim, shapes[s].size,
                                  true, from, LAYOUTS);
            int k = paper_layouts(paper_mesh(&p, meshes[m].to), shapes[s].ndim, shapes[s].size,
                                  false, to, LAYOUTS);
            for (int i = 0; i < n && good; i++)
                for (int j = 0; j < k && good; j++, pairs++)
                    good = prove(&p, from[i], to[j]);
            close_paper(&p);
        }
    printf("       %d pairs of layouts\n", pairs);
}

/* Random placements, reductions and cuts of one shape on a mesh. */
static const sherd_layout *random_layout(uint64_t *dice, const sherd_mesh *mesh, int ndim,
                                         const int64_t *shape, bool source)
{
    static const sherd_reduce_op single[] = {SHERD_MIN, SHERD_MAX, SHERD_PRODUCT};
    sherd_placement placement[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL, *plain = NULL;
    int64_t sizes[SHERD_MAX_DIMS][64];
    const int64_t *lists_of[SHERD_MAX_DIMS] = {NULL};
    bool mixed = roll(dice, 2) == 0;
    sherd_reduce_op op = single[roll(dice, 3)];

    for (int i = 0; i < mesh->axes; i++) {
        int kind = roll(dice, source ? 4 : 3);
        placement[i] = kind == 3
                           ? sherd_partial(mixed ? (roll(dice, 2) ? SHERD_SUM : SHERD_AVG) : op)
                       : kind == 2 ? sherd_replicate()
                                   : sherd_shard(roll(dice, ndim));
    }
    CHECK_OK(sherd_layout_create(&plain, mesh, ndim, shape, placement, NULL));
    for (int d = 0; d < ndim && plain; d++) {
        if (plain->spec.dim[d].axes == 0 || roll(dice, 3) == 0)
            continue;
        paper_sizes(dice, shape[d], sherd__dim_parts(mesh, &plain->spec.dim[d]), sizes[d]);
        lists_of[d] = sizes[d];
    }
    const sherd_layout_options options = {.sizes = lists_of};
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placement, &options));
    return layout;
}

static void cuts_and_all_reductions_are_exact(void)
{
    static const int64_t sizes[][2] = {{10, 6}, {7, 5}, {3, 2}, {13, 1}};
    uint64_t dice = 1;

    for (int m = 0; m < LEN(meshes); m++) {
        paper p;
        bool good = true;
        paper_open(&p, RANKS);
        const sherd_mesh *a = paper_mesh(&p, meshes[m].from), *b = paper_mesh(&p, meshes[m].to);
        for (int i = 0; i < 600 && good; i++) {
            const int64_t *shape = sizes[i % LEN(sizes)];
            const sherd_layout *from = random_layout(&dice, a, 2, shape, true);
            const sherd_layout *to = random_layout(&dice, b, 2, shape, false);
            good = prove(&p, from, to);
        }
        close_paper(&p);
    }
}

static int64_t most_sent(paper *p, const char *from, const char *to)
{
    const sherd_plan *plan = NULL;

    CHECK(prove(p, paper_layout(p, from), paper_layout(p, to)));
    CHECK_OK(sherd_plan_create(&plan, paper_layout(p, from), paper_layout(p, to), SHERD_F64, NULL));
    return plan ? sherd_plan_price_of(plan)->send_max_bytes / (int64_t)sizeof(double) : -1;
}

static void replicas_share_the_sending(void)
{
    paper p;

    paper_open(&p, RANKS);
    CHECK_EQ(most_sent(&p, "[12] on (x=2@0,1)", "[12] on (x=2@2,3)"), 12);
    CHECK_EQ(most_sent(&p, "[12] on (x=3@0,1,2)", "[12] on (x=6@3,4,5,6,7,8)"), 24);
    /* Whoever holds it keeps it; the others are shared out. */
    CHECK_EQ(most_sent(&p, "[12] on (x=2)", "[12] on (x=4@0,2,1,3)"), 12);
    CHECK_EQ(most_sent(&p, "[12] on (x=4)", "[12(x)] on (x=4@4,5,6,7)"), 3);
    /* Large and small ones by turns: 8, 1, 2, 1 among two make 8 and 4, not 10 and 2. */
    CHECK_EQ(most_sent(&p, "[12] on (x=2)", "[12(x:8,1,2,1)] on (x=4@4,5,6,7)"), 8);
    close_paper(&p);
}

static void nothing_travels_where_all_is_there(void)
{
    static const char *const pairs[][2] = {
        {"[8(x),4] on (x=2)", "[8(x),4] on (x=2,y=1)"},
        {"[8] on (x=4)", "[8(x,y)] on (x=2,y=2)"},
        {"[8(x:0,8)] on (x=2)", "[8] on (x=1@1)"},
        {"[6] on (x=3)", "[6(x)] on (x=2@2,0)"},
    };
    paper p;

    paper_open(&p, RANKS);
    for (int i = 0; i < LEN(pairs); i++) {
        const sherd_plan *plan = NULL;
        const sherd_layout *from = paper_layout(&p, pairs[i][0]);
        const sherd_layout *to = paper_layout(&p, pairs[i][1]);
        CHECK(prove(&p, from, to));
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, NULL));
        CHECK_EQ(sherd_plan_step(plan, 0)->kind, SHERD_STEP_SLICE);
        CHECK_EQ(sherd_plan_price_of(plan)->rounds, 0);
    }
    close_paper(&p);
}

/* Sums over the steps of one rank, counted from its schedules; all moves have two steps. */
static void check_chain(paper *p, const char *from, const char *middle, const char *to)
{
    const sherd_layout *at[3] = {paper_layout(p, from), paper_layout(p, middle),
                                 paper_layout(p, to)};
    const sherd__request request = {.per_host = 1};
    const sherd__problem problem =
        sherd__problem_of(&p->space, at[0], at[2], sizeof(double), &request);
    int64_t received[RANKS] = {0}, sent[RANKS] = {0}, most[3] = {0};
    sherd__priced steps[2];
    sherd__chain chain;

    for (int i = 0; i < 2; i++) {
        CHECK_OK(sherd__step_price(&steps[i], &problem, at[i], at[i + 1]));
        for (int r = 0; r < RANKS; r++) {
            sherd__schedule *s;
            CHECK_OK(sherd__schedule_create(&s, &p->space, &steps[i].step, sizeof(double), r));
            received[r] += s ? s->recv_bytes : 0;
            sherd__schedule_add_sent(s, r, sizeof(double), sent);
            sherd__schedule_destroy(&p->space, s);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        sherd_box box[3];
        int64_t held[3];
        for (int i = 0; i < 3; i++) {
            box[i] = box_of(at[i], r);
            held[i] = sherd__box_count(&box[i]) * (int64_t)sizeof(double);
        }
        most[0] = sherd__max(most[0], received[r]);
        most[1] = sherd__max(most[1], sent[r]);
        most[2] = sherd__max(most[2], held[0] + held[1]);
        most[2] = sherd__max(most[2], held[0] + held[1] + held[2]);
    }
    CHECK_OK(sherd__chain_find(&chain, &problem, steps, 2));
    CHECK_EQ(chain.receive_max, most[0]);
    CHECK_EQ(chain.send_max, most[1]);
    CHECK_EQ(chain.peak, most[2]);
}

static void a_chain_that_ends_on_another_mesh_is_added_up_by_rank(void)
{
    paper p;

    paper_open(&p, RANKS);
    check_chain(&p, "[8(x),4] P(sum:y) on (x=2,y=2)", "[8(x,y),4] on (x=2,y=2)",
                "[8,4(x)] on (x=3@2,5,0)");
    check_chain(&p, "[7,5] P(avg:x) on (x=3)", "[7(x),5] on (x=3)", "[7,5] on (x=2@3,1)");
    check_chain(&p, "[7(x),5] on (x=3)", "[7,5(x)] on (x=3)", "[7(x:1,6),5] on (x=2@8,9)");
    close_paper(&p);
}

static void what_cannot_be_is_refused(void)
{
    static const struct {
        const char *from, *to, *text;
        sherd_status status;
        sherd_planner planner;
    } cases[] = {
        {"[8] on (x=2)", "[8] P(sum:y) on (y=2@1,0)", "does not go to another mesh", SHERD_EINVAL,
         SHERD_PLANNER_EXACT},
        {"[8] P(sum:x) on (x=2)", "[8] P(sum:y) on (y=2@1,0)", "does not go to another mesh",
         SHERD_EINVAL, SHERD_PLANNER_EXACT},
        {"[8] on (x=2)", "[9] on (y=2)", "shapes differ", SHERD_EINVAL, SHERD_PLANNER_EXACT},
        {"[8] on (x=2)", "[8(y)] on (y=2)", "use exact", SHERD_ENOTSUP, SHERD_PLANNER_GREEDY},
        {"[8] on (x=2)", "[8(y)] on (y=2)", "use exact", SHERD_ENOTSUP, SHERD_PLANNER_GRAPH},
    };
    paper p;

    paper_open(&p, RANKS);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_plan *plan = NULL;
        const sherd_plan_options options = {.planner = cases[i].planner};
        CHECK_EQ(sherd_plan_create(&plan, paper_layout(&p, cases[i].from),
                                   paper_layout(&p, cases[i].to), SHERD_F32, &options),
                 cases[i].status);
        CHECK(plan == NULL && strstr(p.diag.text, cases[i].text) != NULL);
    }
    close_paper(&p);
}

static void every_failed_allocation_is_survived(void)
{
    int64_t n = 1;
    sherd_status status = SHERD_ENOMEM;

    for (; status == SHERD_ENOMEM && n < 1000; n++) {
        const sherd_plan *plan = NULL;
        sherd__schedule *s = NULL;
        paper p;
        paper_open(&p, RANKS);
        const sherd_layout *from = paper_layout(&p, "[8(x),4] P(sum:y) on (x=2,y=2,z=2)");
        const sherd_layout *to = paper_layout(&p, "[8,4(x)] on (x=3@8,1,0)");
        p.heap.allocations = 0;
        p.heap.fail_at = n;
        status = sherd_plan_create(&plan, from, to, SHERD_F32, NULL);
        if (status == SHERD_OK)
            status = sherd__schedule_create(&s, &p.space, &plan->step[plan->steps - 1], 4, 1);
        p.heap.fail_at = 0;
        CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && s == NULL));
        sherd__schedule_destroy(&p.space, s);
        close_paper(&p);
    }
    CHECK_OK(status);
    CHECK(n > 10);
}

/* On paper there may be very many; what is sent is then bounded from above. */
static void ten_thousand_ranks_are_counted(void)
{
    const sherd_plan *plan = NULL;
    paper p;

    paper_open(&p, 20000);
    const sherd_layout *from = paper_layout(&p, "[40000(x),4000] on (x=100,y=100)");
    const sherd_layout *to = paper_layout(&p, "[40000,4000(u)] on (u=4000)");
    double start = seconds();
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, NULL));
    printf("       %.0f ms for 10,000 ranks to 4,000\n", 1e3 * (seconds() - start));
    if (plan) { /* each target rank lacks its column but what its row of the source holds */
        const sherd_plan_price *price = sherd_plan_price_of(plan);
        CHECK_EQ(price->recv_max_bytes, (40000 - 400) * 4);
        CHECK_EQ(price->recv_total_bytes, (40000LL - 400) * 4 * 4000);
        CHECK_EQ(price->bound_total_bytes, price->recv_total_bytes);
        CHECK(price->send_max_bytes >= price->recv_total_bytes / 10000);
    }
    close_paper(&p);
}

/* Costs go by the ranks of the two meshes, whatever their numbers are. */
static void large_numbers_of_ranks_cost_no_more(void)
{
    static const char *const moves[][2] = {
        {"[64(x)] on (x=2)", "[64] on (x=2@%d,%d)"},
        {"[64,8(x)] P(sum:y) on (x=2,y=2)", "[64(x),8] on (x=2@%d,%d)"},
        {"[64(x),8] on (x=3)", "[64,8(y)] on (y=2@%d,%d)"},
    };
    struct rusage before, after;
    paper p;

    paper_open(&p, INT32_MAX);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < LEN(moves); i++) {
        const sherd_plan *plan[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++) {
            char text[96];
            /* the second one is of both meshes */
            snprintf(text, sizeof text, moves[i][1], k ? 50000000 : 7, 1);
            const sherd_layout *from = paper_layout(&p, moves[i][0]), *to = paper_layout(&p, text);
            CHECK_OK(sherd_plan_create(&plan[k], from, to, SHERD_F32, NULL));
        }
        if (!CHECK(plan[0] && plan[1]))
            continue;
        CHECK_EQ(plan[0]->price.picoseconds, plan[1]->price.picoseconds);
        CHECK_EQ(plan[0]->price.send_max_bytes, plan[1]->price.send_max_bytes);
        CHECK_EQ(plan[0]->price.recv_total_bytes, plan[1]->price.recv_total_bytes);
    }
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 50000); /* KiB */
    close_paper(&p);
}

/* Elements have a number, their bytes and addends have none: figures stop below 2^62, and none
 * wraps around. */
static void figures_stop_below_the_limit(void)
{
    const int64_t most = ((int64_t)1 << 62) - 1;
    /* A reduction first, so that there is a chain of steps to add up. */
    const sherd_plan_options chain = {.forbidden = 1u << SHERD_STEP_REDUCE_EXCHANGE};
    const sherd_plan *plan = NULL;
    paper p;

    paper_open(&p, 8);
    const sherd_layout *from = paper_layout(&p, "[4611686018427387903] P(sum:x) on (x=4)");
    const sherd_layout *to = paper_layout(&p, "[4611686018427387903] on (u=4@4,5,6,7)");
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &chain));
    if (plan) {
        const sherd_plan_price *price = sherd_plan_price_of(plan);
        CHECK_EQ(sherd_plan_steps(plan), 2);
        CHECK_EQ(price->recv_max_bytes, most);
        CHECK_EQ(price->recv_total_bytes, most);
        CHECK_EQ(price->send_max_bytes, most);
        CHECK_EQ(price->peak_bytes, most);
    }
    close_paper(&p);
}

/* What a sender is spared is taken off all that it would send, not off where figures stop. */
static void what_is_spared_is_taken_off_the_whole(void)
{
    static const sherd__request arena;
    sherd__priced step;
    paper p;

    paper_open(&p, 8);
    const sherd_layout *from = paper_layout(&p, "[2305843009213693952] P(sum:x) on (x=2,y=2)");
    const sherd_layout *to = paper_layout(&p, "[2305843009213693952] on (u=4)");
    const sherd__problem problem = sherd__problem_of(&p.space, from, to, 1, &arena);
    CHECK_OK(sherd__step_price(&step, &problem, from, to));
    /* two ranks take a replica, and one of them has that addend itself */
    CHECK_EQ(step.send_max_bytes, (int64_t)1 << 61);
    close_paper(&p);
}

static const check_test tests[] = {
    {TEST(every_pair_of_layouts_on_two_meshes_is_exact)},
    {TEST(cuts_and_all_reductions_are_exact)},
    {TEST(replicas_share_the_sending)},
    {TEST(nothing_travels_where_all_is_there)},
    {TEST(a_chain_that_ends_on_another_mesh_is_added_up_by_rank)},
    {TEST(what_cannot_be_is_refused)},
    {TEST(every_failed_allocation_is_survived)},
    {TEST(ten_thousand_ranks_are_counted)},
    {TEST(large_numbers_of_ranks_cost_no_more)},
    {TEST(figures_stop_below_the_limit)},
    {TEST(what_is_spared_is_taken_off_the_whole)},
};
CHECK_MAIN(tests)
