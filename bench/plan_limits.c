/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the limits of the exact planner's searches (sherd__effort, src/search/search.h) cost and
 * bring: random pairs of layouts, on meshes of three to eight axes, even sizes and uneven ones,
 * under all prices, planned with each limit as it is, lowered, and raised. A line says of how many
 * plans it was proven that they are the cheapest, how many take longer than with the usual limits,
 * and less, and what planning took (median, worst). On paper: no ranks, one core. `plan_limits
 * --pairs N`: of each mesh and price.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "search/search.h"
#include "command_line.h"
#include "timing.h"

enum { PAIRS = 12, MOST = 4096, LIMITS = 7, FACTORS = 5 };

typedef struct question {
    const sherd_layout *from, *to;
    sherd__request request;
    int64_t usual; /* picoseconds of its plan with the usual limits */
} question;

typedef struct set {
    sherd__heap heap;
    sherd__diag diag;
    sherd__space space;
    question *list;
    int count;
} set;

static void fail(const set *s)
{
    fprintf(stderr, "plan_limits: %s\n", s->diag.text);
    exit(1);
}

static int draw(uint64_t *state, int sides)
{
    uint64_t x = (*state += 0x9E3779B97F4A7C15u);

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (int)((x ^ (x >> 31)) % (uint64_t)sides);
}

/* Any placements; each axis innermost in its dim, or outermost. */
static const sherd_layout *draw_layout(set *s, const sherd_mesh *mesh, const int64_t *shape,
                                       bool sums, uint64_t *state)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int order[SHERD_MAX_AXES] = {0}, count[3] = {0};
    const sherd_layout_options options = {order, NULL};
    const sherd_layout *layout;

    for (int i = 0; i < sherd_mesh_axes(mesh); i++) {
        int choice = draw(state, 4 + sums);
        placement[i] = choice < 3    ? sherd_shard(choice)
                       : choice == 3 ? sherd_replicate()
                                     : sherd_partial(SHERD_SUM);
        if (choice >= 3)
            continue;
        bool outermost = draw(state, 2);
        for (int j = 0; outermost && j < i; j++)
            order[j] += placement[j].kind == SHERD_SHARD && placement[j].dim == choice;
        order[i] = outermost ? 0 : count[choice];
        count[choice]++;
    }
    if (sherd_layout_create(&layout, mesh, 3, shape, placement, &options) != SHERD_OK)
        fail(s);
    return layout;
}

static void ask(set *s, const char *mesh_text, const int64_t *shape, const sherd_price *price,
                int pairs)
{
    const sherd_plan_options options = {.price = price};
    const sherd_mesh *mesh;
    uint64_t state = 7;

    if (sherd__mesh_read(&mesh, &s->space, mesh_text) != SHERD_OK)
        fail(s);
    for (int i = 0; i < pairs && s->count < MOST;) {
        question *q = &s->list[s->count];
        q->from = draw_layout(s, mesh, shape, true, &state);
        q->to = draw_layout(s, mesh, shape, false, &state);
        if (q->from == q->to)
            continue;
        if (sherd__request_make(&q->request, q->from, q->to, &options) != SHERD_OK)
            fail(s);
        s->count++;
        i++;
    }
}

static void ask_all(set *s, int pairs)
{
    static const char *const meshes[] = {"dp=4,pp=4,tp=4",       "dp=64,pp=8,tp=8",
                                         "dp=16,pp=4,cp=2,tp=8", "2x2x2x2x2",
                                         "2x2x2x2x2x2",          "2x2x2x2x2x2x2x2"};
    static const int64_t shapes[][3] = {{4096, 12288, 768}, {67, 31, 13}};
    sherd_price prices[4] = {
        {.kind = SHERD_PRICE_ARENA},
        {.kind = SHERD_PRICE_LINKS,
         .links = 2,
         .link = {{"tp", 600000, 10620, 1000, 0}, {"*", 2700000, 48270, 1000, 0}},
         .straight = true},
        {.kind = SHERD_PRICE_LINKS},
        {.kind = SHERD_PRICE_TORCH, .per_host = 8}};

    prices[2] = prices[1];
    prices[2].overlap = true;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int k = 0; k < 8; k++)
            ask(s, meshes[m], shapes[k % 2], &prices[k / 2], pairs);
}

/* Plan all of it, and print; with `usual` the times are noted, otherwise compared. */
static void plan_all(set *s, const char *name, const sherd__effort *effort, bool usual)
{
    double *times = malloc((size_t)s->count * sizeof *times);
    int proven = 0, longer = 0, shorter = 0, few = 0, few_proven = 0;

    for (int i = 0; i < s->count; i++) {
        question *q = &s->list[i];
        sherd__answer answer = {.path = {.stops = 1, .at = {q->from}}};
        const sherd__problem problem =
            sherd__problem_of(&s->space, q->from, q->to, sizeof(float), &q->request);
        int mark = sherd__layouts_mark(&s->space);
        double start = 1e3 * seconds();
        if (sherd__exact_find_within(&answer, &problem, effort) != SHERD_OK)
            fail(s);
        times[i] = 1e3 * seconds() - start;
        sherd__layouts_cut(&s->space, mark);
        q->usual = usual ? answer.picoseconds : q->usual;
        bool is_few = sherd_mesh_axes(sherd_layout_mesh(q->from)) <= 4;
        few += is_few;
        few_proven += is_few && answer.proven;
        proven += answer.proven;
        longer += answer.picoseconds > q->usual;
        shorter += answer.picoseconds < q->usual;
    }
    sort_times(times, s->count);
    printf("%-23s proven %d of %d, on up to four axes %d of %d; %d longer, %d shorter; median %.2f "
           "ms, worst %.0f ms\n",
           name, proven, s->count, few_proven, few, longer, shorter, times[s->count / 2],
           times[s->count - 1]);
    fflush(stdout);
    free(times);
}

static int64_t scaled(int64_t limit, double factor)
{
    return (int64_t)((double)limit * factor);
}

/* The usual effort but for one limit, which is so many times as large. */
static sherd__effort changed(int limit, double factor)
{
    sherd__effort e = sherd__effort_usual;

    e.states = limit == 0 ? (int)scaled(e.states, factor) : e.states;
    e.chosen = limit == 1 ? (int)scaled(e.chosen, factor) : e.chosen;
    e.looks = limit == 2 ? scaled(e.looks, factor) : e.looks;
    e.prices = limit == 3 ? (int)scaled(e.prices, factor) : e.prices;
    e.prices_of_some = limit == 4 ? (int)scaled(e.prices_of_some, factor) : e.prices_of_some;
    e.hopes = limit == 6 ? (int)scaled(e.hopes, factor) : e.hopes;
    e.pairs = limit == 5 ? scaled(e.pairs, factor) : e.pairs;
    return e;
}

int main(int argc, char **argv)
{
    static const char *const names[LIMITS] = {"states",         "chosen", "looks", "prices",
                                              "prices_of_some", "pairs",  "hopes"};
    static const double factors[FACTORS] = {4, 0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256};
    static set s = {.diag = {.rank = -1}};
    int64_t pairs = PAIRS;
    const bench_option options[] = {{"--pairs", "N", .number = &pairs, .most = 80}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    sherd__space_init(&s.space, &s.heap, &s.diag, 1 << 20, -1);
    s.list = calloc(MOST, sizeof *s.list);
    ask_all(&s, (int)pairs);
    plan_all(&s, "usual", &sherd__effort_usual, true);
    for (int i = 0; i < LIMITS; i++)
        for (int k = 0; k < FACTORS; k++) {
            const sherd__effort effort = changed(i, factors[k]);
            char name[64];
            snprintf(name, sizeof name, "%s x %.4g", names[i], factors[k]);
            plan_all(&s, name, &effort, false);
        }
    free(s.list);
    sherd__space_clear(&s.space);
    return 0;
}
