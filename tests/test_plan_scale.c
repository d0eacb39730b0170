/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on a mesh of a million ranks: right where the numbers can be told otherwise, and without a
 * walk over the ranks, in time (printed) or in memory.
 */
#define CHECK_PURE
#include "moves.h"
#include "search/planners.h"
#include "search/plans.h"

#include <sys/resource.h>

enum { RANKS = 1 << 20, DIMS = 3, CASES = 9 };

static const char *const cases[CASES][2] = {
    {"S(0)S(1)S(2)", "S(2)S(1)S(0)"},
    {"S(0)S(0)S(0)", "S(1)S(1)S(1)"},
    {"P(sum)S(0)R", "RS(1)S(0)"},
    {"S(0)S(0)S(1)", "S(1)S(1)S(0)"},
    {"S(0)S(1)S(0)", "S(1)S(0)S(1)"},
    {"P(sum)P(sum)P(sum)", "S(0)RS(0)"},
    {"S(0)S(0)S(0)", "S(0)[2]S(0)[1]S(0)[0]"},
    {"S(0)S(0)S(0)", "S(1)[2]S(1)[1]S(1)[0]"},
    {"P(sum)RS(2)", "RRR"},
};

static const int64_t shapes[][DIMS] = {
    {65536, 65536, 4096}, {65537, 65536, 4096}, {65537, 65539, 4099}};

/* ---- right ---------------------------------------------------------------------------------- */

/*
 * Where everything divides, an exchange of two dims between axes of 128 and 64 ranks keeps what
 * lies in both: each of the 128 shards of the finer side lies in one of the other.
 */
static void even_shards_of_a_million_ranks_add_up(void)
{
    static const int64_t shape[DIMS] = {65536, 65536, 4096}, ranks = RANKS;
    const int64_t box = shape[0] / 128 * (shape[1] / 128) * (shape[2] / 64), n = box * ranks;
    const struct {
        const char *from, *to;
        int64_t total; /* elements */
    } known[] = {
        /* x and z keep something where z = x / 2: the overlaps are 512 and 32 long */
        {"S(0)S(1)S(2)", "S(2)S(1)S(0)", n - 128 * 128 * ((int64_t)512 * 512 * 32)},
        /* one row of 65536 / 128 / 128 = 4 is left to each of the first 4 along z, and a column */
        {"S(0)S(0)S(0)", "S(1)S(1)S(1)", n - 128 * 128 * 4 * (int64_t)4096},
        {"S(0)S(0)S(0)", "S(0)RR", n * (128 * 64 - 1)},
        {"P(sum)S(0)S(1)", "S(2)S(0)S(1)", n * 127},
        {"P(sum)S(0)R", "RS(0)R", n * 64 * 2 * 127}, /* sliced; each box on 64 x 128 ranks */
        {"RRR", "S(0)S(1)S(2)", 0},
    };
    static const sherd__request request;
    paper p;

    paper_open(&p, RANKS);
    const sherd_mesh *mesh = paper_mesh(&p, "128x128x64");
    for (int i = 0; i < LEN(known); i++) {
        sherd__priced step;
        const sherd_layout *from = paper_placed(&p, mesh, DIMS, shape, known[i].from);
        const sherd_layout *to = paper_placed(&p, mesh, DIMS, shape, known[i].to);
        const sherd__problem problem = sherd__problem_of(&p.space, from, to, 1, &request);
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        if (!CHECK_EQ(step.step.recv_total_bytes, known[i].total))
            fprintf(stderr, "%s -> %s\n", known[i].from, known[i].to);
    }
    move_paper_close(&p);
}

/* ---- without a walk ------------------------------------------------------------------------- */

static int64_t resident_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The direct step and, by way of all axes but one, two of them; both prices. Returns how many
 * allocations. */
static int64_t price_all(paper *p, const sherd_mesh *mesh, const int64_t *shape)
{
    static const sherd__request arena;
    const sherd__request links = {
        .price = {.kind = SHERD_PRICE_LINKS,
                  .links = 2,
                  .link = {{"a2", 1000, 10, 1, 0}, {"*", 2000, 20, 2, 0}}}};
    int64_t allocations = 0;

    for (int i = 0; i < CASES; i++) {
        const sherd_layout *at[3] = {paper_placed(p, mesh, DIMS, shape, cases[i][0]), NULL,
                                     paper_placed(p, mesh, DIMS, shape, cases[i][1])};
        CHECK_OK(sherd_layout_with(&at[1], at[0], mesh, 2, sherd_replicate()));
        for (int k = 0; k < 2; k++) {
            const sherd__problem problem =
                sherd__problem_of(&p->space, at[0], at[2], 4, k ? &links : &arena);
            sherd__priced steps[2];
            sherd__chain chain;
            int64_t before = p->heap.allocations;
            for (int j = 0; j < 2; j++)
                CHECK_OK(sherd__step_price(&steps[j], &problem, at[j], at[j + 1]));
            CHECK_OK(sherd__chain_find(&chain, &problem, steps, 2));
            int64_t most = steps[0].step.recv_max_bytes + steps[1].step.recv_max_bytes;
            CHECK(chain.receive_max <= most);
            CHECK(chain.receive_max >= steps[0].step.recv_max_bytes &&
                  chain.receive_max >= steps[1].step.recv_max_bytes);
            CHECK_OK(sherd__step_price(&steps[0], &problem, at[0], at[2]));
            allocations += p->heap.allocations - before;
        }
    }
    return allocations;
}

/* As many allocations as for eight ranks, and no memory to speak of. */
static void memory_does_not_grow_with_the_ranks(void)
{
    enum { KIB = 2048 };
    paper p;

    paper_open(&p, RANKS);
    const sherd_mesh *few = paper_mesh(&p, "2x2x2"), *many = paper_mesh(&p, "128x128x64");
    for (int i = 0; i < LEN(shapes); i++) {
        int64_t allocations = price_all(&p, few, shapes[i]), before = resident_kib();
        CHECK_EQ(price_all(&p, many, shapes[i]), allocations);
        CHECK(resident_kib() - before < KIB);
    }
    move_paper_close(&p);
}

/* ---- schedules ------------------------------------------------------------------------------ */

/*
 * One rank of as many as there may be: its schedule costs what it has to do, and not the ranks that
 * it has nothing to do with. The last rank has no rows; a thousand have a column.
 */
static void a_schedule_costs_what_its_rank_has_to_do(void)
{
    static const int64_t shape[] = {(int64_t)1 << 40, 1000};
    static const struct {
        const char *mesh, *from, *to;
        int rank, regions, readers;
    } known[] = {
        {"2147483647", "S(0)", "S(1)", INT32_MAX - 1, 0, 0},
        {"2147483647", "S(0)", "S(1)", 1 << 30, 0, 1000},
        {"2147483647", "S(1)", "S(0)", 1 << 30, 1000, 0},
        {"32768x32768", "S(0)S(0)", "S(0)S(1)", 1 << 29, 32768, 999},
        {"32768x32768", "S(0)[1]S(0)[0]", "S(1)S(0)", 5, 32768, 999},
    };
    paper p;

    paper_open(&p, INT32_MAX);
    for (int i = 0; i < LEN(known); i++) {
        const sherd_mesh *mesh = paper_mesh(&p, known[i].mesh);
        const sherd_layout *from = paper_placed(&p, mesh, 2, shape, known[i].from);
        const sherd_layout *to = paper_placed(&p, mesh, 2, shape, known[i].to);
        static const sherd__request arena;
        const sherd__problem problem = sherd__problem_of(&p.space, from, to, 4, &arena);
        sherd__schedule *schedule = NULL;
        sherd__priced step;
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        CHECK_OK(sherd__schedule_create(&schedule, &p.space, &step.step, 4, known[i].rank));
        if (CHECK(schedule != NULL)) {
            CHECK_EQ(schedule->regions, known[i].regions);
            CHECK_EQ(schedule->readers, known[i].readers);
        }
        sherd__schedule_destroy(&p.space, schedule);
    }
    move_paper_close(&p);
}

/* Lists that are too long for any use are refused, and soon. */
static void a_schedule_of_too_many_parts_is_refused(void)
{
    static const char *const moves[][2] = {{"P", "R"}, {"P", "S(0)"}};
    static const int64_t shape[] = {(int64_t)1 << 40};
    static const sherd__request arena;
    paper p;

    paper_open(&p, INT32_MAX);
    const sherd_mesh *mesh = paper_mesh(&p, "2147483647");
    for (int i = 0; i < LEN(moves); i++) {
        const sherd_layout *from = paper_placed(&p, mesh, 1, shape, moves[i][0]);
        const sherd_layout *to = paper_placed(&p, mesh, 1, shape, moves[i][1]);
        const sherd__problem problem = sherd__problem_of(&p.space, from, to, 4, &arena);
        sherd__schedule *schedule = NULL;
        sherd__priced step;
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        CHECK_EQ(sherd__schedule_create(&schedule, &p.space, &step.step, 4, 3), SHERD_ELIMIT);
        CHECK(schedule == NULL && strstr(p.diag.text, "more than 16777216 parts"));
    }
    move_paper_close(&p);
}

/* ---- time, printed -------------------------------------------------------------------------- */

static void time_plan(const sherd_layout *from, const sherd_layout *to)
{
    const sherd_plan *plan;
    double best = 100;

    for (int round = 0; round < 3; round++) {
        sherd__plans_clear(from->space);
        double start = seconds();
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, NULL));
        double each = seconds() - start;
        best = each < best ? each : best;
    }
    CHECK(plan->price.recv_total_bytes >= plan->price.bound_total_bytes);
    printf("       %7.0f us, %d steps%s: %s\n", best * 1e6, plan->steps,
           plan->price.proven ? "" : " (not proven)", plan->what);
}

static void a_million_ranks_are_planned_without_a_walk(void)
{
    static const char *const others[][3] = {
        {"1024x1024", "S(0)R", "RR"},
        {"1024x1024", "S(0)S(0)", "S(0)R"},
        {"1024x1024", "S(0)S(1)", "RS(1)"},
        {"1024x1024", "P(sum)S(0)", "RS(0)"},
        {"1024x1024", "S(0)P(sum)", "S(0)S(1)"},
        {"1024x1024", "S(0)S(1)", "S(1)S(0)"},
        {"1024x1024", "S(0)S(0)", "S(0)[1]S(0)[0]"},
        {"64x128x128", "S(0)S(1)R", "S(0)RS(1)"},
        {"64x128x128", "S(0)RS(1)", "S(0)S(0)R"},
        {"16x16x16x16x16", "S(0)S(1)S(0)RR", "S(0)S(0)S(1)RR"},
    };
    static const int64_t flat[] = {1000003, 65537};
    paper p;

    paper_open(&p, RANKS);
    const sherd_mesh *mesh = paper_mesh(&p, "128x128x64");
    for (int i = 0; i < CASES; i++)
        for (int j = 0; j < LEN(shapes); j++)
            time_plan(paper_placed(&p, mesh, DIMS, shapes[j], cases[i][0]),
                      paper_placed(&p, mesh, DIMS, shapes[j], cases[i][1]));
    for (int i = 0; i < LEN(others); i++) {
        const sherd_mesh *other = paper_mesh(&p, others[i][0]);
        time_plan(paper_placed(&p, other, 2, flat, others[i][1]),
                  paper_placed(&p, other, 2, flat, others[i][2]));
    }
    move_paper_close(&p);
}

/* ---- work ------------------------------------------------------------------------------------ */

/*
 * A move whose cheapest ways look better over some ranks than they are over all, again and again:
 * the search is made anew a few times, and not until no such way is left. Each time it allocates
 * its lists.
 */
static void what_divides_badly_is_not_searched_for_ever(void)
{
    enum { MOST = 1000 };
    static const sherd_price price = {.kind = SHERD_PRICE_LINKS,
                                      .links = 3,
                                      .link = {{"a0", 10000000, 1000000, 10000, 0},
                                               {"a1", 1000000, 200000, 10000, 0},
                                               {"*", 2000000, 50000, 10000, 0}}};
    static const int64_t shape[] = {2, 67, 12345, 3};
    const sherd_plan_options options = {.price = &price};
    const sherd_plan *plan = NULL;
    paper p;

    paper_open(&p, 1024);
    const sherd_mesh *mesh = paper_mesh(&p, "32x2x2x2");
    const sherd_layout *from = paper_placed(&p, mesh, 4, shape, "S(2)S(3)S(1)S(1)");
    const sherd_layout *to = paper_placed(&p, mesh, 4, shape, "S(1)S(3)S(3)S(3)");
    int64_t before = p.heap.allocations;
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
    int64_t made = p.heap.allocations - before;
    printf("       %lld allocations, %lld ps\n", (long long)made,
           (long long)plan->price.picoseconds);
    CHECK(made < MOST);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(what_divides_badly_is_not_searched_for_ever)},
    {TEST(even_shards_of_a_million_ranks_add_up)},
    {TEST(memory_does_not_grow_with_the_ranks)},
    {TEST(a_schedule_costs_what_its_rank_has_to_do)},
    {TEST(a_schedule_of_too_many_parts_is_refused)},
    {TEST(a_million_ranks_are_planned_without_a_walk)},
};
CHECK_MAIN(tests)
