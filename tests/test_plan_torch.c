/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold for PyTorch's planners whatever PyTorch says of the case: uneven shapes, explicit
 * cuts, all reductions, axes of extent 1, one to four axes, all shard orders. Every step changes
 * one axis (or a flattened set), and moves every element to its place; costs keep the triangle
 * inequality; the price is the sum of the model; no memory and no history change anything. With
 * PyTorch's own plans they are compared in test_plan_golden.c.
 */
#define CHECK_PURE
#include "moves.h"
#include "search/series.h"
#include "vector/choose.h"

#include <math.h>

typedef struct torch_case {
    const char *mesh;
    int ndim;
    int64_t shape[3];
} torch_case;

static const torch_case cases[] = {
    {"4", 2, {8, 4}},        {"5", 1, {7}},           {"2x2", 2, {5, 3}},
    {"2x2", 1, {0}},         {"3x2", 2, {13, 8}},     {"2x4", 3, {7, 1, 5}},
    {"2x1x2", 2, {5, 3}},    {"1x3", 2, {4, 4}},      {"1x1", 1, {3}},
    {"2x2x2", 3, {8, 8, 8}}, {"2x3x2", 2, {7, 13}},   {"x=2,y=2,z=2@7,6,5,4,3,2,1,0", 2, {9, 4}},
    {"2x1x3x2", 2, {11, 6}}, {"2x2x2x2", 2, {16, 5}},
};

/* Planner and weights as data. */
static const struct {
    const char *name;
    sherd_planner planner;
    sherd_weights weights;
} ways[] = {
    {"greedy", SHERD_PLANNER_GREEDY, {SHERD_WEIGHTS_TIME, 0, 0, 0, 0, 0}},
    {"graph by time", SHERD_PLANNER_GRAPH, {SHERD_WEIGHTS_TIME, 0, 0, 0, 0, 0}},
    {"graph by integers", SHERD_PLANNER_GRAPH, {SHERD_WEIGHTS_INTEGER, 0, 0, 0, 0, 0}},
    {"graph, all cost the same", SHERD_PLANNER_GRAPH, {SHERD_WEIGHTS_CUSTOM, 1, 1, 1, 1, 1}},
    {"graph, nothing costs", SHERD_PLANNER_GRAPH, {SHERD_WEIGHTS_CUSTOM, 0, 0, 0, 0, 0}},
};

static sherd_plan_options options_of(int way)
{
    return (sherd_plan_options){.planner = ways[way].planner, .weights = ways[way].weights};
}

/* ---- random layouts -------------------------------------------------------------------------- */

/*
 * A layout with reductions by `op` (sums mix with averages) on some axes, any order, cuts on some
 * dims if `cuts`. With `source` it is a target for it: only what may become pending is.
 */
static const sherd_layout *random_layout(const sherd_mesh *mesh, const torch_case *c, int op,
                                         const sherd_layout *source, bool cuts, uint64_t *dice)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES], axes = mesh->axes;
    int64_t sizes[3][24], parts[3] = {1, 1, 1};
    const int64_t *views[3] = {NULL};
    const sherd_layout *layout = NULL;

    for (int i = 0; i < axes; i++) {
        int choice = roll(dice, c->ndim + (source ? 3 : 2));
        placement[i] = choice < c->ndim ? sherd_shard(choice) : sherd_replicate();
        if (choice == c->ndim + 1 && !source)
            placement[i] =
                sherd_partial(op == SHERD_AVG && roll(dice, 2) ? SHERD_SUM : (sherd_reduce_op)op);
        if (choice == c->ndim + 1 && source && source->spec.pending[i] >= 0)
            placement[i] = sherd_partial((sherd_reduce_op)source->spec.pending[i]);
        if (placement[i].kind == SHERD_SHARD)
            parts[placement[i].dim] *= mesh->extent[i];
    }
    for (int d = 0; d < c->ndim && cuts; d++) {
        paper_sizes(dice, c->shape[d], parts[d], sizes[d]);
        if (roll(dice, 2))
            views[d] = sizes[d];
    }
    paper_permutation(roll(dice, 24), axes, rank_of);
    paper_order(placement, rank_of, axes, order);
    const sherd_layout_options options = {order, views};
    CHECK_OK(sherd_layout_create(&layout, mesh, c->ndim, c->shape, placement, &options));
    return layout;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool same_placement(const sherd_layout *a, const sherd_layout *b, int axis)
{
    sherd_placement x = sherd_layout_placement(a, axis), y = sherd_layout_placement(b, axis);

    return x.kind == y.kind && (x.kind != SHERD_SHARD || x.dim == y.dim) &&
           (x.kind != SHERD_PARTIAL || x.op == y.op);
}

static unsigned axes_changed(const sherd_layout *from, const sherd_layout *to)
{
    unsigned changed = 0;

    for (int i = 0; i < from->spec.mesh->axes; i++)
        if (!same_placement(from, to, i))
            changed |= 1u << i;
    return changed;
}

/* Whether the lists agree but for `axes`, which stand behind all others; extents of 1 may stand
 * anywhere. */
static bool only_ends_change(const sherd_layout *from, const sherd_layout *to, unsigned axes)
{
    for (int d = 0; d < from->spec.ndim; d++) {
        const sherd__dim *list[2] = {&from->spec.dim[d], &to->spec.dim[d]};
        int kept[2][SHERD_MAX_AXES], count[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            bool ended = false;
            for (int i = 0; i < list[side]->axes; i++) {
                int axis = list[side]->axis[i];
                if (from->spec.mesh->extent[axis] == 1)
                    continue;
                if (axes >> axis & 1)
                    ended = true;
                else if (ended)
                    return false;
                else
                    kept[side][count[side]++] = axis;
            }
        }
        if (count[0] != count[1] || memcmp(kept[0], kept[1], (size_t)count[0] * sizeof(int)) != 0)
            return false;
    }
    return true;
}

/* The last step may change no axis: where cuts differ, or where axes of extent 1 stand in a
 * list. */
static bool may_relabel(const sherd_plan *plan)
{
    for (int d = 0; d < plan->from->spec.ndim; d++)
        if (plan->from->spec.dim[d].cuts || plan->to->spec.dim[d].cuts)
            return true;
    for (int i = 0; i < plan->from->spec.mesh->axes; i++)
        if (plan->from->spec.mesh->extent[i] == 1)
            return true;
    return false;
}

static bool is_one_of(unsigned axes, const sherd_plan_options *options)
{
    for (int i = 0; i < options->flattened_count; i++)
        if (options->flattened[i] == axes)
            return true;
    return false;
}

/* All steps of a plan, from its source to its target; how many are wrong. */
static int wrong_steps(const sherd_plan *plan, const sherd_plan_options *options)
{
    const sherd_layout *at = plan->from;
    int wrong = 0;

    for (int i = 0; i < plan->steps; i++) {
        const sherd_step *step = &plan->step[i];
        unsigned axes = axes_changed(step->from, step->to);
        bool relabel = axes == 0 && i + 1 == plan->steps && may_relabel(plan);
        bool one = axes != 0 && (axes & (axes - 1)) == 0;
        wrong += step->from != at || !(relabel || one || is_one_of(axes, options)) ||
                 !only_ends_change(step->from, step->to, axes);
        at = step->to;
    }
    return wrong + (at != plan->to);
}

/* Each step moves every element; a partition and what is not linear are others' tests. */
static int64_t wrong_elements(paper *p, const sherd_plan *plan, const sherd__kernels *kernels)
{
    int64_t wrong = 0;

    for (int i = 0; i < plan->steps; i++) {
        bool linear = true;
        for (int a = 0; a < plan->from->spec.mesh->axes; a++)
            linear = linear && plan->step[i].from->spec.pending[a] <= SHERD_AVG;
        if (linear && plan->step[i].kind != SHERD_STEP_PARTITION)
            wrong += move_simulate(p, &plan->step[i], kernels);
    }
    return wrong;
}

static int plans_of_case(const torch_case *c, int way, const sherd__kernels *kernels)
{
    static const unsigned sets[] = {3, 5, 6, 7};
    uint64_t dice = 1;
    int seen = 0;
    paper p;

    paper_open(&p, 24);
    const sherd_mesh *mesh = paper_mesh(&p, c->mesh);
    for (int i = 0; i < 60; i++) {
        sherd_plan_options options = options_of(way);
        const sherd_plan *plan = NULL;
        const sherd_layout *from = random_layout(mesh, c, i % 5, NULL, i % 3 == 2, &dice);
        const sherd_layout *to = random_layout(mesh, c, i % 5, from, i % 3 == 2, &dice);
        options.flattened = sets;
        options.flattened_count = i % 2 && mesh->axes >= 3 ? LEN(sets) : 0;
        if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options)))
            continue;
        if (!CHECK_EQ(wrong_steps(plan, &options), 0) ||
            !CHECK_EQ(wrong_elements(&p, plan, kernels), 0))
            fprintf(stderr, "%s: %s: %s\n", ways[way].name, plan->what, plan->trace);
        CHECK(plan->cost >= 0 && !plan->price.proven);
        seen += plan->steps;
    }
    move_paper_close(&p);
    return seen;
}

static void every_step_is_one_axis_and_moves_every_element(void)
{
    sherd__kernel_set kernels;
    int seen = 0;

    sherd__kernels_choose(&kernels);
    for (int c = 0; c < LEN(cases); c++)
        for (int way = 0; way < LEN(ways); way++)
            seen += plans_of_case(&cases[c], way, &kernels.f64);
    CHECK(seen > 5000);
}

/* ---- named ----------------------------------------------------------------------------------- */

/* Upstream would have a maximum and a sum pending at once, which say nothing together. */
static void a_replica_becomes_pending_when_nothing_else_is_in_the_way(void)
{
    static const char *const pairs[][2] = {
        {"P(max)RS(0)", "RP(sum)R"}, {"RP(max)R", "P(sum)RR"}, {"P(min)RR", "S(0)P(avg)R"}};
    static const int64_t shape[] = {8, 8};
    paper p;

    paper_open(&p, 8);
    const sherd_mesh *mesh = paper_mesh(&p, "2x2x2");
    for (int i = 0; i < LEN(ways) * LEN(pairs); i++) {
        const sherd_plan_options options = options_of(i / LEN(pairs));
        const sherd_plan *plan = NULL;
        const sherd_layout *from = paper_placed(&p, mesh, 2, shape, pairs[i % LEN(pairs)][0]);
        const sherd_layout *to = paper_placed(&p, mesh, 2, shape, pairs[i % LEN(pairs)][1]);
        if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options)))
            continue;
        CHECK_EQ(wrong_steps(plan, &options), 0);
        for (int k = 0; k < plan->steps; k++)
            CHECK(plan->step[k].kind != SHERD_STEP_PARTITION ||
                  plan->step[k].from->pending_axes == 0);
    }
    move_paper_close(&p);
}

/* Upstream's own trace of this ends in S(0)[1]S(0)[0]: an axis of extent 1 came first. */
static void an_axis_of_extent_1_takes_its_place_in_the_order(void)
{
    static const int64_t shape[] = {5};
    const sherd_plan_options options = options_of(0);
    const sherd_plan *plan = NULL;
    paper p;

    paper_open(&p, 2);
    const sherd_mesh *mesh = paper_mesh(&p, "2x1");
    const sherd_layout *from = paper_placed(&p, mesh, 1, shape, "RS(0)");
    CHECK_OK(sherd_plan_create(&plan, from, paper_placed(&p, mesh, 1, shape, "S(0)S(0)"), SHERD_F32,
                               &options));
    CHECK_TEXT(plan->trace, "RS(0)->S(0)[0]S(0)[1]");
    CHECK_EQ(plan->steps, 1);
    move_paper_close(&p);
}

static void greedy_plans_default_orders_and_graph_all_others(void)
{
    static const struct {
        const char *from, *to;
        sherd_planner planner;
    } choices[] = {
        {"S(0)S(0)", "S(1)S(1)", SHERD_PLANNER_GREEDY},
        {"P(sum)S(1)", "RR", SHERD_PLANNER_GREEDY},
        {"S(0)[1]S(0)[0]", "RR", SHERD_PLANNER_GRAPH},
        {"RR", "S(1)[1]S(1)[0]", SHERD_PLANNER_GRAPH},
    };
    static const int64_t shape[] = {8, 8};
    const sherd_plan_options options = {.planner = SHERD_PLANNER_TORCH};
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "2x2");
    for (int i = 0; i < LEN(choices); i++) {
        const sherd_plan *plan = NULL, *same = NULL;
        const sherd_layout *from = paper_placed(&p, mesh, 2, shape, choices[i].from);
        const sherd_layout *to = paper_placed(&p, mesh, 2, shape, choices[i].to);
        const sherd_plan_options chosen = {.planner = choices[i].planner};
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
        CHECK_EQ(sherd_plan_planner(plan), choices[i].planner);
        CHECK_OK(sherd_plan_create(&same, from, to, SHERD_F32, &chosen));
        CHECK_TEXT(sherd_plan_trace(same), sherd_plan_trace(plan));
        CHECK(sherd_plan_cost(same) == sherd_plan_cost(plan));
    }
    move_paper_close(&p);
}

/* ---- costs and prices ------------------------------------------------------------------------ */

static double cost_of(const sherd_layout *from, const sherd_layout *to, int way)
{
    const sherd_plan_options options = options_of(way);
    const sherd_plan *plan = NULL;

    return CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options)) ? plan->cost : NAN;
}

/* And greedy is never below graph. */
static void a_detour_is_never_cheaper(void)
{
    static const torch_case tensors[] = {{"2x2x2", 2, {16, 8}}, {"2x3x2", 3, {13, 2, 13}}};
    uint64_t dice = 7;

    for (int c = 0; c < LEN(tensors); c++) {
        paper p;
        paper_open(&p, 12);
        const sherd_mesh *mesh = paper_mesh(&p, tensors[c].mesh);
        for (int i = 0; i < 150; i++) {
            const sherd_layout *a = random_layout(mesh, &tensors[c], 0, NULL, false, &dice);
            const sherd_layout *b = random_layout(mesh, &tensors[c], 0, a, false, &dice);
            const sherd_layout *d = random_layout(mesh, &tensors[c], 0, b, false, &dice);
            for (int way = 1; way < LEN(ways); way++) {
                double detour = cost_of(a, b, way) + cost_of(b, d, way);
                CHECK(cost_of(a, d, way) <= detour * (1 + 1e-12));
            }
            CHECK(cost_of(a, b, 1) <= cost_of(a, b, 0) * (1 + 1e-12));
        }
        move_paper_close(&p);
    }
}

/* Where shards are even, steps of one axis cost what the planner counted, to half a picosecond
 * each. */
static void the_price_of_a_series_is_what_it_cost(void)
{
    static const torch_case even[] = {{"2x2x2", 3, {8, 8, 8}}, {"2x4", 2, {64, 4096}}};
    sherd_price price = {.kind = SHERD_PRICE_TORCH};
    uint64_t dice = 3;
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < 300; i++) {
        const torch_case *c = &even[i % LEN(even)];
        const sherd_mesh *mesh = paper_mesh(&p, c->mesh);
        const sherd_layout *from = random_layout(mesh, c, 0, NULL, false, &dice);
        const sherd_layout *to = random_layout(mesh, c, 0, from, false, &dice);
        const sherd_plan *plan = NULL;
        price.per_host = 1 + roll(&dice, 8);
        sherd_plan_options options = options_of(roll(&dice, 2));
        options.price = &price;
        options.per_host = price.per_host;
        if (CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options)))
            CHECK_NEAR((double)plan->price.picoseconds, plan->cost * 1e6, 0.5 * plan->steps + 1e-3);
    }
    move_paper_close(&p);
}

/* One step between any two layouts, of one axis or several, costs at least the floor. */
static void no_step_is_below_the_floor(void)
{
    static const int64_t shape[] = {7, 5};
    static const sherd_layout *list[512];
    int priced_steps = 0;
    paper p;

    paper_open(&p, 12);
    const sherd_mesh *mesh = paper_mesh(&p, "2x3x2");
    int count = paper_layouts(mesh, 2, shape, true, list, LEN(list));
    for (int64_t per_host = 1; per_host <= 8; per_host *= 2)
        for (int i = 0; i < count * count; i++) {
            sherd__request request = {.price = {.kind = SHERD_PRICE_TORCH, .per_host = per_host}};
            const sherd_layout *from = list[i / count], *to = list[i % count];
            const sherd__problem problem = sherd__problem_of(&p.space, from, to, 4, &request);
            sherd__priced step;
            if (to->pending_axes & ~from->pending_axes)
                continue;
            CHECK_OK(sherd__step_price(&step, &problem, from, to));
            if (step.amounts.receive_max == 0) {
                CHECK_EQ(step.step.picoseconds, 0);
                continue;
            }
            priced_steps++;
            CHECK(sherd__price_torch.floor(&problem, step.amounts.target_max,
                                           step.change.addends) <= step.step.picoseconds);
        }
    CHECK(priced_steps > 10000);
    move_paper_close(&p);
}

/* ---- limits, memory, history ----------------------------------------------------------------- */

static void a_graph_that_is_too_large_says_so(void)
{
    static const int64_t shape[] = {8, 8, 8, 8};
    const sherd_plan_options graph = options_of(1), greedy = options_of(0);
    const sherd_plan *plan = NULL;
    paper p;

    paper_open(&p, 256);
    const sherd_mesh *mesh = paper_mesh(&p, "2x2x2x2x2x2x2x2");
    const sherd_layout *from = paper_placed(&p, mesh, 4, shape, "S(0)S(1)S(2)S(3)S(0)S(1)S(2)S(3)");
    const sherd_layout *to = paper_placed(&p, mesh, 4, shape, "S(3)S(2)S(1)S(0)S(3)S(2)S(1)S(0)");
    CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_F32, &graph), SHERD_ELIMIT);
    CHECK(plan == NULL);
    CHECK(strstr(p.diag.text, "200000 states") && strstr(p.diag.text, "use exact or greedy"));
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &greedy));
    CHECK_EQ(wrong_steps(plan, &greedy), 0);
    move_paper_close(&p);
}

static sherd_status plan_with_one_failure(int way, int n)
{
    static const unsigned sets[] = {3, 6, 15};
    static const int64_t shape[] = {7, 5, 6};
    sherd_plan_options options = options_of(way);
    const sherd_plan *plan = NULL;
    paper p;

    options.flattened = sets, options.flattened_count = LEN(sets);
    paper_open(&p, 24);
    const sherd_mesh *mesh = paper_mesh(&p, "2x3x2x2");
    const sherd_layout *from = NULL, *to = NULL;
    CHECK_OK(sherd_layout_parse_placements(&from, mesh, 3, shape, "S(0)[1]P(sum)S(0)[0]S(2)",
                                           "0:1,2,2,2"));
    CHECK_OK(sherd_layout_parse_placements(&to, mesh, 3, shape, "RS(1)[1]S(1)[0]S(1)[2]", NULL));
    p.heap.allocations = 0;
    p.heap.fail_at = n;
    sherd_status status = sherd_plan_create(&plan, from, to, SHERD_F32, &options);
    CHECK((status == SHERD_OK) == (plan != NULL));
    CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && strstr(p.diag.text, "out of memory")));
    p.heap.fail_at = 0;
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options)); /* and it goes on */
    move_paper_close(&p);
    return status;
}

static void every_failed_allocation_is_survived(void)
{
    for (int way = 0; way < LEN(ways); way++) {
        int n = 1;
        while (n < 1000 && plan_with_one_failure(way, n) != SHERD_OK)
            n++;
        CHECK(n > 10 && n < 1000);
    }
}

/* What is asked before changes nothing, in the same world or in another. */
static void plans_do_not_depend_on_history(void)
{
    enum { PAIRS = 100 };
    static char trace[2][PAIRS * LEN(ways)][512];
    const torch_case *c = &cases[9];

    for (int run = 0; run < 2; run++) {
        const sherd_layout *from[PAIRS], *to[PAIRS];
        uint64_t dice = 5;
        paper p;
        paper_open(&p, 8);
        const sherd_mesh *mesh = paper_mesh(&p, c->mesh);
        for (int i = 0; i < PAIRS; i++) {
            from[i] = random_layout(mesh, c, i % 5, NULL, false, &dice);
            to[i] = random_layout(mesh, c, i % 5, from[i], false, &dice);
        }
        for (int i = 0; i < PAIRS * LEN(ways); i++) {
            int k = run ? PAIRS * LEN(ways) - 1 - i : i;
            const sherd_plan_options options = options_of(k % LEN(ways));
            const sherd_plan *plan = NULL;
            int pair = k / LEN(ways);
            CHECK_OK(sherd_plan_create(&plan, from[pair], to[pair], SHERD_F32, &options));
            snprintf(trace[run][k], sizeof trace[run][k], "%.17g %s", plan ? plan->cost : -1,
                     plan ? plan->trace : "");
        }
        move_paper_close(&p);
    }
    for (int k = 0; k < PAIRS * LEN(ways); k++)
        CHECK_TEXT(trace[0][k], trace[1][k]);
}

static const check_test tests[] = {
    {TEST(every_step_is_one_axis_and_moves_every_element)},
    {TEST(a_replica_becomes_pending_when_nothing_else_is_in_the_way)},
    {TEST(an_axis_of_extent_1_takes_its_place_in_the_order)},
    {TEST(greedy_plans_default_orders_and_graph_all_others)},
    {TEST(a_detour_is_never_cheaper)},
    {TEST(the_price_of_a_series_is_what_it_cost)},
    {TEST(no_step_is_below_the_floor)},
    {TEST(a_graph_that_is_too_large_says_so)},
    {TEST(every_failed_allocation_is_survived)},
    {TEST(plans_do_not_depend_on_history)},
};
CHECK_MAIN(tests)
