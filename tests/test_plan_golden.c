/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's planners against PyTorch: tests/data/plans_*.txt hold what PyTorch 2.13.0 planned
 * (tools/golden_plans.py makes such lines). Each case is planned afresh and written as a line
 * again; the lines have to be equal, and the costs to the last bit.
 */
#define CHECK_PURE
#include "moves.h"
#include "search/plans.h"
#include "search/series.h"
#include "vector/choose.h"

#include <math.h>

typedef struct golden {
    paper *p;
    char line[1024]; /* cut into words */
    char *word[40];
    int words, number;
    const sherd_layout *from, *to;
    sherd_plan_options options;
    unsigned flattened[SHERD__FLATTENED];
    size_t bytes;
    sherd__series series;
} golden;

static bool read_line(golden *g, FILE *file)
{
    do {
        g->number++;
        if (!fgets(g->line, sizeof g->line, file))
            return false;
    } while (g->line[0] == '#');
    g->line[strcspn(g->line, "\n")] = '\0';
    g->words = 0;
    for (char *at = strtok(g->line, " "); at && g->words < LEN(g->word); at = strtok(NULL, " "))
        g->word[g->words++] = at;
    return true;
}

/* Planner, mesh and shape are the first words; source and target the ends of the trace. */
static bool read_problem(golden *g, const char *trace)
{
    char from[128];
    int64_t shape[SHERD_MAX_DIMS];
    int ndim;

    snprintf(from, sizeof from, "%.*s", (int)strcspn(trace, "-"), trace);
    const char *to = strrchr(trace, '>') ? strrchr(trace, '>') + 1 : from;
    g->options.planner =
        strcmp(g->word[0], "greedy") == 0 ? SHERD_PLANNER_GREEDY : SHERD_PLANNER_GRAPH;
    const sherd_mesh *mesh = paper_mesh(g->p, g->word[1]);
    if (!CHECK_OK(sherd__shape_read(shape, &ndim, &g->p->diag, "test", g->word[2])))
        return false;
    g->from = paper_placed(g->p, mesh, ndim, shape, from);
    g->to = paper_placed(g->p, mesh, ndim, shape, to);
    return g->from && g->to;
}

static bool refused(const golden *g)
{
    for (int i = 0; i < g->from->spec.mesh->axes; i++)
        if (g->to->spec.pending[i] >= 0 && g->from->shard_axes >> i & 1)
            return true;
    return false;
}

/* Plan the series, and through the front door too, except where that refuses shard -> partial. */
static bool plan(golden *g, const char *trace, double cost)
{
    sherd__request request;
    const sherd_plan *made = NULL;
    char text[1024];
    sherd__writer w = {text, sizeof text, 0};
    sherd__answer answer = {.cost = 0};

    CHECK_OK(sherd__request_make(&request, g->from, g->to, &g->options));
    const sherd__problem problem =
        sherd__problem_of(&g->p->space, g->from, g->to, g->bytes, &request);
    if (g->options.planner == SHERD_PLANNER_GREEDY)
        sherd__greedy_series(&g->series, &problem);
    else
        CHECK_OK(sherd__graph_series(&g->series, &problem));
    CHECK_OK(sherd__series_answer(&answer, &problem, &g->series));
    sherd__path_write(&w, &answer.path);
    bool good = CHECK_TEXT(text, trace);
    good &= isnan(cost) || CHECK(answer.cost == cost);
    if (!refused(g)) {
        sherd_dtype dtype = g->bytes == 1   ? SHERD_U8
                            : g->bytes == 2 ? SHERD_BF16
                            : g->bytes == 4 ? SHERD_F32
                                            : SHERD_F64;
        good &= CHECK_OK(sherd_plan_create(&made, g->from, g->to, dtype, &g->options));
        good = good && CHECK_TEXT(sherd_plan_trace(made), trace) &&
               CHECK(sherd_plan_cost(made) == answer.cost);
    }
    return good;
}

static void write_shape(sherd__writer *w, const golden *g, const sherd__hop *hop)
{
    for (int d = 0; d < g->series.ndim; d++)
        sherd__write(w, "%s%lld", d ? "x" : "", (long long)hop->shape[d]);
}

static void write_axes(sherd__writer *w, unsigned axes)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        if (axes >> i & 1)
            sherd__write(w, "%d", i);
}

static void write_placement(sherd__writer *w, sherd_placement p)
{
    static const char *const op[] = {"sum", "avg", "min", "max", "product"};

    if (p.kind == SHERD_SHARD)
        sherd__write(w, "S(%d)", p.dim);
    else if (p.kind == SHERD_PARTIAL)
        sherd__write(w, "P(%s)", op[p.op]);
    else
        sherd__write(w, "R");
}

static void write_step(sherd__writer *w, const golden *g, const sherd__hop *hop)
{
    write_axes(w, hop->axes);
    sherd__write(w, ":");
    write_placement(w, hop->from);
    sherd__write(w, ">");
    write_placement(w, hop->to);
    sherd__write(w, ":");
    write_shape(w, g, hop);
    if (hop->divisor > 1)
        sherd__write(w, "/%lld", (long long)hop->divisor);
}

static void write_miss(sherd__writer *w, const sherd__miss *miss)
{
    static const char *const what[] = {"all_reduce", "all_to_all", "all_gather", "reduce_scatter"};
    static const char *const why[] = {"no_flattened_mesh", "non_ascending_mesh_dims",
                                      "uneven_tensor_shape"};

    sherd__write(w, "!");
    write_axes(w, miss->axes);
    sherd__write(w, ":%s:%s", what[miss->what], why[miss->why]);
}

/* How many cases of a file were read, each with a check of its own; a failure names its line. */
static int for_each_case(const char *name, bool (*one)(golden *g))
{
    char path[512];
    paper p;
    int cases = 0;

    snprintf(path, sizeof path, SHERD_SOURCE_DIR "/tests/data/%s", name);
    FILE *file = fopen(path, "r");
    if (!CHECK(file != NULL))
        return 0;
    paper_open(&p, 12);
    golden g = {.p = &p, .bytes = 4};
    while (read_line(&g, file)) {
        cases++;
        if (!one(&g))
            fprintf(stderr, "%s:%d\n", name, g.number);
    }
    fclose(file);
    sherd__plans_clear(&p.space);
    paper_close(&p);
    return cases;
}

/* ---- the three files ------------------------------------------------------------------------ */

static bool time_case(golden *g)
{
    char text[64];
    bool good = CHECK(g->words >= 7) && read_problem(g, g->word[5]);

    if (!good)
        return false;
    g->bytes = (size_t)atoi(g->word[3]);
    g->options.per_host = atoi(g->word[4]);
    good = plan(g, g->word[5], strtod(g->word[6], NULL)) && CHECK_EQ(g->series.hops, g->words - 7);
    for (int i = 0; good && i < g->series.hops; i++) {
        sherd__writer w = {text, sizeof text, 0};
        write_shape(&w, g, &g->series.hop[i]);
        good = CHECK_TEXT(text, g->word[7 + i]);
    }
    return good;
}

static void traces_costs_and_shapes_are_those_of_pytorch(void)
{
    CHECK_EQ(for_each_case("plans_time.txt", time_case), 2500);
}

static bool integer_case(golden *g)
{
    if (!CHECK_EQ(g->words, 5) || !read_problem(g, g->word[3]))
        return false;
    g->options.weights.kind = SHERD_WEIGHTS_INTEGER;
    return plan(g, g->word[3], strtod(g->word[4], NULL));
}

static void integer_weights_plan_as_pytorch_of_2025(void)
{
    CHECK_EQ(for_each_case("plans_integer.txt", integer_case), 1882);
}

static bool merged_case(golden *g)
{
    char text[64];
    int sets = 0;

    if (!CHECK(g->words >= 5) || !read_problem(g, g->word[4]))
        return false;
    for (const char *at = g->word[3]; *at; at++) {
        if (at == g->word[3] || *at == ',')
            g->flattened[sets++] = 0;
        if (*at >= '0' && *at <= '9')
            g->flattened[sets - 1] |= 1u << (*at - '0');
    }
    g->options.flattened = g->flattened;
    g->options.flattened_count = sets;
    bool good =
        plan(g, g->word[4], NAN) && CHECK_EQ(g->series.hops + g->series.misses, g->words - 5);
    for (int i = 5; good && i < g->words; i++) {
        sherd__writer w = {text, sizeof text, 0};
        if (i - 5 < g->series.hops)
            write_step(&w, g, &g->series.hop[i - 5]);
        else
            write_miss(&w, &g->series.miss[i - 5 - g->series.hops]);
        good = CHECK_TEXT(text, g->word[i]);
    }
    return good;
}

static void steps_are_merged_as_pytorch_does(void)
{
    CHECK_EQ(for_each_case("plans_merged.txt", merged_case), 1140);
}

/* ---- and where PyTorch is wrong -------------------------------------------------------------- */

/* PyTorch #194457: its merged gather of 5 rows returns 0,3,6,0,9 in the first column. */
static void an_uneven_merged_gather_returns_every_row(void)
{
    static const unsigned both[] = {3};
    static const int64_t shape[] = {5, 3};
    const sherd_plan_options options = {
        .planner = SHERD_PLANNER_GREEDY, .flattened = both, .flattened_count = 1};
    const sherd_plan *plan = NULL;
    sherd__kernel_set kernels;
    paper p;
    move m;

    sherd__kernels_choose(&kernels);
    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "2x2");
    const sherd_layout *from = paper_placed(&p, mesh, 2, shape, "S(0)[0]S(0)[1]");
    CHECK_OK(sherd_plan_create(&plan, from, paper_placed(&p, mesh, 2, shape, "RR"), SHERD_F64,
                               &options));
    CHECK_TEXT(plan->trace, "S(0)[0]S(0)[1]-->RR");
    CHECK_EQ(plan->steps, 1);
    CHECK_EQ(plan->step[0].kind, SHERD_STEP_ALL_GATHER);
    CHECK_EQ(plan->step[0].axes, 3);
    move_open(&m, &p, &plan->step[0], &kernels.f64, NULL);
    for (int r = 0; r < 4; r++)
        move_run_rank(&m, r);
    for (int r = 0; r < 4; r++)
        for (int row = 0; row < 5; row++) /* the simulation counts elements from 1 */
            CHECK_EQ(m.result[r][3 * row] - 1, 3 * row);
    move_close(&m);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(traces_costs_and_shapes_are_those_of_pytorch)},
    {TEST(integer_weights_plan_as_pytorch_of_2025)},
    {TEST(steps_are_merged_as_pytorch_does)},
    {TEST(an_uneven_merged_gather_returns_every_row)},
};
CHECK_MAIN(tests)
