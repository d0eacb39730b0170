/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof of the three planners: every pair of layouts, planned by exact, greedy and graph, run
 * on all ranks in one process. Data is exact; what a plan says it receives, sends and holds is what
 * is counted; without a pending sum exact receives its bound on every rank; with one no plan
 * receives less in all than the bound; and a proven exact plan is never behind the others. Prints
 * what each planner receives in all over the bound: median and worst. SHERD_PROOF=1 takes all
 * meshes and shapes, otherwise a few of them.
 */
#define CHECK_PURE
#include "moves.h"
#include "vector/choose.h"

enum { MANY = 4096, PLANNERS = 3 };

static const sherd_planner planners[PLANNERS] = {SHERD_PLANNER_GREEDY, SHERD_PLANNER_GRAPH,
                                                 SHERD_PLANNER_EXACT};

typedef struct shape {
    int ndim;
    int64_t size[3];
} shape;

/* Even on all meshes, prime, shorter than the mesh; the first of each rank also in the short
 * form. */
static const shape shapes[] = {
    {1, {24}},   {1, {13}},      {1, {2}},       {2, {12, 24}},  {2, {13, 7}},
    {2, {2, 5}}, {3, {4, 6, 4}}, {3, {7, 5, 3}}, {3, {1, 2, 3}},
};

static const char *const meshes[] = {"3x2", "8", "2x4", "4x2", "2x2x2", "2x3x2"};

static bool whole(void)
{
    const char *asked = getenv("SHERD_PROOF");

    return asked && strcmp(asked, "1") == 0;
}

/* Received over bound of many plans. */
typedef struct ratios {
    double *at;
    int count, room;
    int free; /* plans that receive something where the bound is nothing */
} ratios;

typedef struct tally {
    int64_t pairs, plans, wrong, behind, unproven, steps[PLANNERS];
    ratios of[PLANNERS][2]; /* without and with a pending sum */
} tally;

static void note(ratios *r, const sherd_plan_price *price)
{
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 1024;
        r->at = realloc(r->at, (size_t)r->room * sizeof *r->at);
    }
    if (price->bound_total_bytes > 0)
        r->at[r->count++] = (double)price->recv_total_bytes / (double)price->bound_total_bytes;
    else
        r->free += price->recv_total_bytes > 0;
}

static bool is_behind(const sherd_plan_price *a, const sherd_plan_price *b)
{
    if (a->picoseconds != b->picoseconds)
        return a->picoseconds > b->picoseconds;
    return a->recv_total_bytes > b->recv_total_bytes;
}

/* One pair by all planners, exact last: its plan is compared with the others' prices. Run if there
 * are kernels. */
static void prove_pair(tally *t, paper *p, const sherd_layout *from, const sherd_layout *to,
                       const sherd_price *price_by, const sherd__kernels *kernels)
{
    sherd_plan_price price[PLANNERS];

    for (int i = 0; i < PLANNERS; i++) {
        const sherd_plan_options options = {.planner = planners[i], .price = price_by};
        const sherd_plan *plan = NULL;
        if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options)))
            return;
        t->wrong += kernels ? move_prove_plan(p, plan, kernels) : 0;
        price[i] = *sherd_plan_price_of(plan);
        note(&t->of[i][from->pending_axes != 0], &price[i]);
        t->steps[i] += sherd_plan_steps(plan);
        t->plans++;
    }
    t->pairs++;
    t->unproven += !price[PLANNERS - 1].proven;
    for (int i = 0; i < PLANNERS - 1; i++)
        if (price[PLANNERS - 1].proven && is_behind(&price[PLANNERS - 1], &price[i])) {
            t->behind++;
            fprintf(stderr, "exact is behind %s: %s -> %s\n", sherd_planner_name(planners[i]),
                    from->text, to->text);
        }
}

static void prove_mesh(tally *t, const char *text, const shape *s, int every,
                       const sherd_price *price_by, const sherd__kernels *kernels)
{
    static const sherd_layout *list[MANY];
    paper p;

    paper_open(&p, 256);
    int count = paper_layouts(paper_mesh(&p, text), s->ndim, s->size, true, list, MANY);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (list[i] != list[j] && (list[j]->pending_axes & ~list[i]->pending_axes) == 0 &&
                (i * 31 + j) % every == 0)
                prove_pair(t, &p, list[i], list[j], price_by, kernels);
    move_paper_close(&p);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_ratios(const char *name, ratios *r)
{
    if (r->count) {
        qsort(r->at, (size_t)r->count, sizeof *r->at, by_size);
        printf("       %-7s median %5.3f  p90 %5.3f  worst %7.3f of %7d;  %5d receive where the "
               "bound is 0\n",
               name, r->at[r->count / 2], r->at[r->count / 10 * 9], r->at[r->count - 1], r->count,
               r->free);
    }
    free(r->at);
}

static void print(tally *t)
{
    static const char *const kinds[] = {"without a pending sum", "with one"};

    printf("       %lld pairs, %lld plans; steps a plan: greedy %.2f, graph %.2f, exact %.2f; "
           "exact not proven: %lld\n",
           (long long)t->pairs, (long long)t->plans, (double)t->steps[0] / (double)t->pairs,
           (double)t->steps[1] / (double)t->pairs, (double)t->steps[2] / (double)t->pairs,
           (long long)t->unproven);
    for (int k = 0; k < 2; k++) {
        printf("       received over bound, %s:\n", kinds[k]);
        for (int i = 0; i < PLANNERS; i++)
            print_ratios(sherd_planner_name(planners[i]), &t->of[i][k]);
    }
}

static void all_planners_move_every_element(void)
{
    tally t = {.pairs = 0};
    sherd__kernel_set kernels;

    sherd__kernels_choose(&kernels);
    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(shapes); s++)
            prove_mesh(&t, meshes[m], &shapes[s], whole() ? 1 : m < 4 ? 7 : 53, NULL, &kernels.f64);
    CHECK_EQ(t.wrong, 0);
    CHECK_EQ(t.behind, 0);
    CHECK(t.pairs > (whole() ? 5000 : 3000));
    print(&t);
}

/* Where bytes count more than rounds several steps win; only planned, not run. */
static void exact_is_never_behind_where_bytes_count(void)
{
    static const shape large[] = {{1, {1 << 24}}, {2, {4096, 4099}}, {3, {256, 255, 257}}};
    tally t = {.pairs = 0};

    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(large); s++)
            prove_mesh(&t, meshes[m], &large[s], whole() ? 5 : 97, NULL, NULL);
    CHECK_EQ(t.behind, 0);
    CHECK(t.steps[PLANNERS - 1] > t.pairs); /* some plans have more than one step */
    print(&t);
}

/* Messages that cost, and PyTorch's model; only planned. */
static void exact_is_never_behind_under_other_prices(void)
{
    static const sherd_price prices[] = {
        {.kind = SHERD_PRICE_LINKS,
         .links = 2,
         .link = {{"a0", 2700000, 48270, 1000, 0}, {"*", 600000, 10620, 1000, 0}}},
        {.kind = SHERD_PRICE_LINKS, .links = 1, .link = {{"*", 50000000, 10, 0, 0}}},
        {.kind = SHERD_PRICE_TORCH, .per_host = 2},
    };
    static const shape sizes[] = {{2, {13, 7}}, {2, {4096, 4099}}, {3, {64, 65, 66}}};

    for (int k = 0; k < LEN(prices); k++) {
        tally t = {.pairs = 0};
        for (int m = 0; m < LEN(meshes); m++)
            for (int s = 0; s < LEN(sizes); s++)
                prove_mesh(&t, meshes[m], &sizes[s], whole() ? 31 : 397, &prices[k], NULL);
        CHECK_EQ(t.behind, 0);
        CHECK_EQ(t.unproven, 0);
        CHECK(t.steps[PLANNERS - 1] > t.pairs);
        print(&t);
    }
}

/* Sums over many ranks, of tensors whose parts are worth a step of their own; only planned. */
static void exact_is_never_behind_on_large_meshes(void)
{
    static const char *const large[] = {"3x3", "4x4",   "5x5",   "2x8",
                                        "8x2", "16x16", "4x4x4", "2x8x4"};
    static const shape sizes[] = {{2, {75, 64}}, {2, {8, 500}}, {2, {128, 64}}};
    static const sherd_price prices[] = {
        {.kind = SHERD_PRICE_ARENA},
        {.kind = SHERD_PRICE_TORCH, .per_host = 4},
        {.kind = SHERD_PRICE_LINKS,
         .links = 2,
         .link = {{"a0", 2700000, 48270, 1000, 0}, {"*", 600000, 10620, 1000, 0}},
         .straight = true},
    };

    for (int k = 0; k < LEN(prices); k++) {
        tally t = {.pairs = 0};
        int every = whole() ? 1 : k == 0 ? 3 : k == 1 ? 11 : 61;
        for (int m = 0; m < LEN(large); m++)
            for (int s = 0; s < LEN(sizes); s++)
                prove_mesh(&t, large[m], &sizes[s], m < 6 ? every : 37 * every, &prices[k], NULL);
        CHECK_EQ(t.behind, 0);
        CHECK_EQ(t.unproven, 0);
        print(&t);
    }
}

static const check_test tests[] = {
    {TEST(all_planners_move_every_element)},
    {TEST(exact_is_never_behind_where_bytes_count)},
    {TEST(exact_is_never_behind_under_other_prices)},
    {TEST(exact_is_never_behind_on_large_meshes)},
};
CHECK_MAIN(tests)
