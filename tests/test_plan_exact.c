/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact planner against all there is: every state of a small mesh, every step between two of
 * them priced, and the cheapest path through this graph by relaxing edges until nothing changes.
 * Nothing here knows how the planner searches. SHERD_PROOF=1: several times as
 * many layouts with cuts.
 */
#define CHECK_PURE
#include "graph.h"

/* ---- all states, all steps ------------------------------------------------------------------- */

typedef struct field {
    const char *mesh;
    int ndim;
    int64_t shape[3];
    int stride;
} field;

static const field fields[] = {
    {"4", 1, {8}, 1},
    {"4", 1, {7}, 1},
    {"4", 1, {1000003}, 1},
    {"4", 2, {9, 3}, 1},
    {"2x2", 1, {1 << 20}, 1},
    {"2x2", 2, {8, 4}, 1},
    {"2x2", 2, {7, 5}, 1},
    {"2x2", 2, {3, 1}, 1},
    {"2x2", 2, {1, 1}, 1},
    {"2x2", 2, {0, 5}, 1},
    {"3x2", 2, {6, 6}, 1},
    {"3x2", 2, {1021, 1031}, 1},
    {"3x2", 2, {5, 4}, 1},
    {"8x3", 2, {4096, 513}, 1},
    {"x=2,y=1,z=4", 2, {2048, 100}, 3},
    {"2x2x2", 1, {131071}, 3},
    {"2x2x2", 2, {16, 8}, 11},
    {"2x2x2", 2, {7, 5}, 11},
    {"2x2x2", 2, {2, 3}, 11},
    {"4x2x4", 2, {3000, 1024}, 7},
    {"16x4x2", 2, {8192, 8191}, 7},
};

/* Where few pairs are taken, of a third of the fields: to price all steps of one takes longest. */
static void nothing_is_cheaper(const sherd_price *price, int stride, int64_t longer)
{
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_AVG, SHERD_MAX};
    static graph g;
    tally t = {0, 0, 0};

    bool all = stride < 9;

    for (int i = all ? 0 : stride % 3; i < LEN(fields); i += all ? 1 : 3) {
        const field *f = &fields[i];
        const sherd_plan_options options = {.price = price};
        const sherd_layout *whole = NULL;
        paper p;
        paper_open(&p, 1024);
        const sherd_mesh *mesh = paper_mesh(&p, f->mesh);
        sherd_placement replicated[SHERD_MAX_AXES] = {sherd_replicate()};
        for (int k = 0; k < mesh->axes; k++)
            replicated[k] = sherd_replicate();
        CHECK_OK(sherd_layout_create(&whole, mesh, f->ndim, f->shape, replicated, NULL));
        graph_open(&g, &p, whole, whole, ops[i % LEN(ops)], &options);
        compare_all(&g, stride * f->stride, &t);
        move_paper_close(&p);
    }
    printf("       %lld pairs, %lld in several steps\n", (long long)t.pairs, (long long)t.longer);
    CHECK(t.longer > (all ? longer : longer / 3));
    CHECK_EQ(t.refused, 0);
}

static void nothing_is_cheaper_on_the_arena(void)
{
    nothing_is_cheaper(NULL, 1, 100);
}

static void nothing_is_cheaper_where_all_goes_straight(void)
{
    sherd_price price = slow_messages();

    price.straight = true;
    nothing_is_cheaper(&price, check_stride(23), 100);
    price.overlap = true;
    nothing_is_cheaper(&price, check_stride(61), 10);
}

static void nothing_is_cheaper_on_links(void)
{
    const sherd_price price = slow_messages();

    nothing_is_cheaper(&price, check_stride(15), 100);
}

static void nothing_is_cheaper_where_axes_are_slow_in_two_ways(void)
{
    sherd_price price = slow_in_two_ways();

    nothing_is_cheaper(&price, check_stride(23), 100);
    price.straight = true;
    nothing_is_cheaper(&price, check_stride(25), 100);
    price.overlap = true;
    nothing_is_cheaper(&price, check_stride(61), 10);
}

static void nothing_is_cheaper_on_torchs_model(void)
{
    const sherd_price price = {.kind = SHERD_PRICE_TORCH, .per_host = 4};

    nothing_is_cheaper(&price, check_stride(13), 100);
}

/*
 * Whatever steps lead there: a rank that ends with more than it had has received that, at the
 * bandwidth of the links between hosts, and what is added up has passed it twice.
 */
static void no_plan_gathers_for_nothing(void)
{
    static const struct {
        const char *from, *to;
        double times; /* a whole tensor passes each rank */
    } moves[] = {
        {"S(0)S(0)S(0)", "RRR", 1}, {"RS(0)S(0)", "RRR", 1},
        {"S(1)S(0)S(1)", "RRR", 1}, {"PPP", "RRR", 2},
        {"S(0)PP", "RRR", 1},       {"PPP", "S(0)RS(0)", 1},
        {"RRS(0)", "RRS(1)", 0.1},  {"S(0)S(1)S(0)", "RRS(1)", 0.115},
    };
    static const int64_t shape[] = {8192, 28672};
    const sherd_price price = {.kind = SHERD_PRICE_TORCH};
    const sherd_plan_options options = {.price = &price};
    const double whole_ps = 8192.0 * 28672 * 2 / (0.22 * 87.7 * 1073741824.0) * 1e12;
    paper p;

    paper_open(&p, 128);
    const sherd_mesh *mesh = paper_mesh(&p, "2x8x8");
    for (int i = 0; i < LEN(moves); i++) {
        const sherd_plan *plan = NULL;
        const sherd_layout *from = paper_placed(&p, mesh, 2, shape, moves[i].from);
        const sherd_layout *to = paper_placed(&p, mesh, 2, shape, moves[i].to);
        if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_BF16, &options)))
            continue;
        CHECK(plan->price.proven);
        CHECK((double)plan->price.picoseconds >= 0.94 * moves[i].times * whole_ps);
        CHECK(plan->price.recv_total_bytes <= 2 * plan->price.bound_total_bytes);
    }
    move_paper_close(&p);
}

/* From sums over some axes of three, so that states are many enough for the search to leave some
 * out and go from both ends. */
static void nothing_is_cheaper_where_states_are_many(void)
{
    static const int64_t shapes[][3] = {{1024, 768, 12}, {8, 6, 12}, {5, 7, 3}};
    const sherd_price price = slow_messages();
    const sherd_plan_options options = {.price = &price};
    static cost left[STATES];
    static graph g;
    uint64_t state = 41;
    tally t = {0, 0, 0};

    for (int i = 0; i < LEN(shapes); i += check_stride(2)) {
        paper p;
        paper_open(&p, 24);
        const sherd_mesh *mesh = paper_mesh(&p, "4x2x3");
        const sherd_layout *to = any_layout(mesh, 3, shapes[i], false, -1, &state);
        graph_open(&g, &p, to, to, SHERD_SUM, &options);
        for (int k = 0; k < 30 / check_stride(2); k++) {
            to = any_layout(mesh, 3, shapes[i], false, -1, &state);
            relax(&g, find_state(&g, to), left);
            for (int j = 0; j < 10; j++) {
                const sherd_layout *from = any_layout(mesh, 3, shapes[i], false, SHERD_SUM, &state);
                if (from != to && from->pending_axes)
                    compare_pair(&g, from, to, left, &t);
            }
        }
        move_paper_close(&p);
    }
    printf("       %lld pairs, %lld in several steps\n", (long long)t.pairs, (long long)t.longer);
    CHECK(t.longer > 100);
}

/* ---- cuts, meshes, limits -------------------------------------------------------------------- */

/* One pair against a graph of its own. */
static void compare_one(paper *p, const sherd_layout *from, const sherd_layout *to,
                        sherd_reduce_op op, const sherd_plan_options *options, tally *t)
{
    static cost left[STATES];
    static graph g;

    if (from == to)
        return;
    graph_open(&g, p, from, to, op, options);
    relax(&g, find_state(&g, to), left);
    compare_pair(&g, from, to, left, t);
}

static void nothing_is_cheaper_with_cuts(void)
{
    static const char *const meshes[] = {"4", "2x2", "3x2", "x=2,y=1,z=3", "8x3"};
    static const int64_t shapes[][2] = {{4099, 3001}, {12, 7}, {2000, 300}, {1, 5}};
    const sherd_price links = slow_messages(), torch = {.kind = SHERD_PRICE_TORCH, .per_host = 2};
    const sherd_price *const prices[] = {NULL, &links, &torch, NULL};
    uint64_t state = 11;
    tally t = {0, 0, 0};
    int turns = getenv("SHERD_PROOF") ? 600 : 80;

    for (int i = 0; i < turns; i++) {
        const int64_t *shape = shapes[i % LEN(shapes)];
        const sherd_plan_options options = {.price = prices[i / 4 % LEN(prices)]};
        paper p;
        paper_open(&p, 64);
        const sherd_mesh *mesh = paper_mesh(&p, meshes[i % LEN(meshes)]);
        const sherd_layout *from = any_layout(mesh, 2, shape, true, SHERD_SUM, &state);
        const sherd_layout *to = any_layout(mesh, 2, shape, true, -1, &state);
        compare_one(&p, from, to, SHERD_SUM, &options, &t);
        move_paper_close(&p);
    }
    CHECK(t.longer > 20);
}

static void nothing_is_cheaper_across_meshes(void)
{
    static const char *const meshes[][2] = {
        {"4", "2x2"}, {"2x3", "4"}, {"2x4", "8"}, {"6@5,4,3,2,1,0", "2x2"}, {"4x3", "2@12,13"}};
    static const int64_t shapes[][2] = {{4096, 513}, {7, 5}, {3000, 1024}, {2, 2}};
    const sherd_price links = slow_messages(), torch = {.kind = SHERD_PRICE_TORCH, .per_host = 2};
    const sherd_price *const prices[] = {NULL, &links, &torch, NULL};
    uint64_t state = 5;
    tally t = {0, 0, 0};

    for (int i = 0; i < (getenv("SHERD_PROOF") ? 300 : 120); i++) {
        const int64_t *shape = shapes[i % LEN(shapes)];
        const sherd_plan_options options = {.price = prices[i / 4 % LEN(prices)]};
        paper p;
        paper_open(&p, 16);
        const sherd_mesh *mesh = paper_mesh(&p, meshes[i % LEN(meshes)][0]);
        const sherd_mesh *other = paper_mesh(&p, meshes[i % LEN(meshes)][1]);
        const sherd_layout *from = any_layout(mesh, 2, shape, i & 1, SHERD_SUM, &state);
        const sherd_layout *to = any_layout(other, 2, shape, i & 1, -1, &state);
        compare_one(&p, from, to, SHERD_SUM, &options, &t);
        move_paper_close(&p);
    }
    CHECK(t.longer > 5);
}

/* A pair under a price in which messages are slow on one axis, and bytes on another. */
typedef struct asked {
    const char *from, *to;
    bool straight, overlap;
} asked;

static void nothing_is_cheaper_of(const asked *list, int count)
{
    tally t = {0, 0, 0};

    for (int i = 0; i < count; i++) {
        sherd_price price = slow_in_two_ways();
        const sherd_plan_options options = {.price = &price};
        price.straight = list[i].straight;
        price.overlap = list[i].overlap;
        paper p;
        paper_open(&p, 18);
        const sherd_layout *from = paper_layout(&p, list[i].from);
        compare_one(&p, from, paper_layout(&p, list[i].to), SHERD_SUM, &options, &t);
        move_paper_close(&p);
    }
    CHECK_EQ(t.longer, count);
}

/* A dim that shares no axis with the source's has the default cuts, and costs what these do. */
static void nothing_is_cheaper_where_cuts_come_out_as_the_default(void)
{
    static const asked list[] = {
        {"[1713(a1:53,1135,525,0,0),16] on (a0=2,a1=5)", "[1713,16] on (a0=2,a1=5)", false, false},
        {"[2098(a1:1938,0,160),13(a0)] on (a0=2,a1=3)", "[2098,13] on (a0=2,a1=3)", false, true},
    };

    nothing_is_cheaper_of(list, LEN(list));
}

/* Some rank that no search looks at is the busiest of a step before the one between the meshes. */
static void nothing_is_cheaper_across_meshes_over_all_ranks(void)
{
    static const asked list[] = {
        {"[11,3(a1:0,0,0,1,1,0,1,0,0)] P(sum:a0) on (a0=2,a1=9)", "[11,3] on (a0=9)", true, false},
        {"[10(a1:8,1,0,0,0,1,0,0,0),4(a0)] on (a0=2,a1=9)", "[10,4] on (a0=9)", true, false},
        {"[27(a1:19,0,5,3,0,0,0,0,0),2] on (a0=2,a1=9)", "[27,2(a0)] on (a0=9)", true, false},
        {"[17(a1:16,0,1),2] on (a0=5,a1=3)", "[17(a0),2] on (a0=4)", false, true},
    };

    bool all = getenv("SHERD_PROOF") != NULL;

    nothing_is_cheaper_of(all ? list : list + 2, all ? LEN(list) : 1);
}

/* Bytes between half and twice what the direct step holds; kinds at random. */
static void nothing_is_cheaper_within_limits(void)
{
    static const char *const meshes[] = {"4", "2x2", "3x2"};
    static const int64_t shapes[][2] = {{2000, 300}, {4099, 3001}, {12, 7}};
    uint64_t state = 23;
    tally t = {0, 0, 0};

    for (int i = 0; i < (getenv("SHERD_PROOF") ? 900 : 500); i++) {
        const int64_t *shape = shapes[i % LEN(shapes)];
        sherd_plan_options options = {.max_bytes = 0};
        paper p;
        paper_open(&p, 64);
        const sherd_mesh *mesh = paper_mesh(&p, meshes[i / 3 % LEN(meshes)]);
        const sherd_layout *from = any_layout(mesh, 2, shape, i % 4 == 0, SHERD_MAX, &state);
        const sherd_layout *to = any_layout(mesh, 2, shape, i % 4 == 0, -1, &state);
        const sherd_plan *plan;
        if (i & 1) {
            CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL));
            options.max_bytes =
                1 + plan->price.peak_bytes * (int64_t)(2 + paper_random(&state) % 4) / 4;
        }
        if (i % 3)
            options.forbidden = (unsigned)(paper_random(&state) & paper_random(&state) & 0xff);
        compare_one(&p, from, to, SHERD_MAX, &options, &t);
        move_paper_close(&p);
    }
    printf("       %lld pairs, %lld in several steps, %lld refused\n", (long long)t.pairs,
           (long long)t.longer, (long long)t.refused);
    CHECK(t.longer > 50);
    CHECK(t.refused > 50);
}

/* Most ranks hold nothing, and of those that are looked at none lacks anything in one step. */
static void steps_of_a_few_ranks_cost_what_they_bring(void)
{
    static const char *const text[] = {"[64,48(tp,pp)] on (dp=64,pp=8,tp=8)",
                                       "[64(pp),48(tp,dp)] on (dp=64,pp=8,tp=8)"};
    const sherd_price price = {.kind = SHERD_PRICE_LINKS,
                               .links = 3,
                               .link = {{"dp", 1000000, 2000000, 100000, 0},
                                        {"pp", 50000000, 100000, 300000, 0},
                                        {"tp", 30000000, 300000, 200000, 0}},
                               .straight = true};
    const sherd_plan_options options = {.price = &price};
    const sherd_plan *plan;
    paper p;

    paper_open(&p, 4096);
    const sherd_layout *from = paper_layout(&p, text[0]), *to = paper_layout(&p, text[1]);
    if (CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options)))
        CHECK(plan->price.picoseconds <= 170588000);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(nothing_is_cheaper_on_the_arena)},
    {TEST(nothing_is_cheaper_where_all_goes_straight)},
    {TEST(steps_of_a_few_ranks_cost_what_they_bring)},
    {TEST(nothing_is_cheaper_on_links)},
    {TEST(nothing_is_cheaper_where_axes_are_slow_in_two_ways)},
    {TEST(nothing_is_cheaper_on_torchs_model)},
    {TEST(no_plan_gathers_for_nothing)},
    {TEST(nothing_is_cheaper_with_cuts)},
    {TEST(nothing_is_cheaper_across_meshes)},
    {TEST(nothing_is_cheaper_where_cuts_come_out_as_the_default)},
    {TEST(nothing_is_cheaper_across_meshes_over_all_ranks)},
    {TEST(nothing_is_cheaper_within_limits)},
    {TEST(nothing_is_cheaper_where_states_are_many)},
};
CHECK_MAIN(tests)
