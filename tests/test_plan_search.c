/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold for the exact planner's search beside being right: it says what limits rule out,
 * parts last, has no history, survives every failed allocation, and ends on meshes of many axes.
 */
#define CHECK_PURE
#include "graph.h"

static void what_limits_rule_out_is_said(void)
{
    sherd_plan_options options = {.max_bytes = 100};
    const sherd_plan *plan;
    paper p;

    paper_open(&p, 4);
    const sherd_layout *from = paper_layout(&p, "[16(x)] on (x=4)");
    const sherd_layout *to = paper_layout(&p, "[16] on (x=4)");
    CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_F64, &options), SHERD_ELIMIT);
    CHECK(strstr(p.diag.text, "max_bytes 100") && strstr(p.diag.text, "160 bytes"));
    options.max_bytes = 160;
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options));
    CHECK_EQ(plan->price.peak_bytes, 160);
    options.max_bytes = 31; /* also of a plan without steps */
    CHECK_EQ(sherd_plan_create(&plan, from, from, SHERD_F64, &options), SHERD_ELIMIT);
    CHECK(strstr(p.diag.text, "max_bytes 31") && strstr(p.diag.text, "32 bytes"));
    options.max_bytes = 32;
    CHECK_OK(sherd_plan_create(&plan, from, from, SHERD_F64, &options));
    CHECK(plan && plan->steps == 0 && plan->price.proven && plan->price.peak_bytes == 32);
    options = (sherd_plan_options){.forbidden = 1u << SHERD_STEP_ALL_GATHER};
    CHECK_EQ(sherd_plan_create(&plan, from, to, SHERD_F64, &options), SHERD_ELIMIT);
    CHECK(strstr(p.diag.text, "(all_gather)"));
    options = (sherd_plan_options){.forbidden = 1u << SHERD_STEP_PARTITION};
    const sherd_layout *parted = paper_layout(&p, "[16] P(sum:x) on (x=4)");
    CHECK_EQ(sherd_plan_create(&plan, to, parted, SHERD_F64, &options), SHERD_ELIMIT);
    CHECK(strstr(p.diag.text, "(partition)"));
    move_paper_close(&p);
}

/*
 * What a plan holds is enough for it, in the step to another mesh, too; and no plan holds more than
 * it may.
 */
static void limits_hold_between_meshes(void)
{
    static const char *const meshes[][2] = {{"4", "2x2"},          {"2x4", "8"}, {"2x4", "4x2"},
                                            {"4x3", "2@12,13"},    {"2x3", "4"}, {"4", "4@4,5,6,7"},
                                            {"6@5,4,3,2,1,0", "6"}};
    uint64_t state = 3;
    int longer = 0, less = 0;

    for (int i = 0; i < 700; i++) {
        const int64_t shape[] = {1 + (int64_t)(paper_random(&state) % 4000), 1 + i % 16};
        const sherd_plan *plan, *again;
        sherd_plan_options options = {.max_bytes = 0};
        paper p;
        paper_open(&p, 16);
        const sherd_mesh *mesh = paper_mesh(&p, meshes[i % LEN(meshes)][0]);
        const sherd_mesh *other = paper_mesh(&p, meshes[i % LEN(meshes)][1]);
        const sherd_layout *from = any_layout(mesh, 2, shape, i & 1, SHERD_SUM, &state);
        const sherd_layout *to = any_layout(other, 2, shape, i & 2, -1, &state);
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL));
        const sherd_plan_price price = plan->price;
        longer += plan->steps > 1;
        options.max_bytes = price.peak_bytes;
        int good = CHECK_OK(sherd_plan_create(&again, from, to, SHERD_F64, &options));
        good = good && CHECK_EQ(again->price.picoseconds, price.picoseconds);
        options.max_bytes = price.peak_bytes * 7 / 8;
        if (sherd_plan_create(&again, from, to, SHERD_F64, &options) == SHERD_OK) {
            good = CHECK(again->price.peak_bytes <= options.max_bytes) && good;
            less++;
        }
        if (!good)
            fprintf(stderr, "%s -> %s\n", from->text, to->text);
        move_paper_close(&p);
    }
    CHECK(longer > 50 && less > 10);
}

/* What a replica becomes is made last, in a step of its own, behind the best plan to the
 * replica. */
static void a_partition_comes_last(void)
{
    static const int64_t shape[] = {1000, 301};
    uint64_t state = 3;
    int seen = 0;
    paper p;

    paper_open(&p, 16);
    const sherd_mesh *mesh = paper_mesh(&p, "4x2x2");
    for (int i = 0; i < 300; i++) {
        const sherd_layout *from = any_layout(mesh, 2, shape, false, -1, &state);
        const sherd_layout *to = any_layout(mesh, 2, shape, false, SHERD_SUM, &state), *whole;
        const sherd_plan *plan, *rest;
        if (!to->pending_axes || to->pending_axes & from->shard_axes)
            continue;
        CHECK_OK(sherd__layout_settle(&whole, to));
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL));
        CHECK_OK(sherd_plan_create(&rest, from, whole, SHERD_F64, NULL));
        CHECK_EQ(plan->steps, rest->steps + 1);
        CHECK_EQ(plan->step[rest->steps].kind, SHERD_STEP_PARTITION);
        CHECK(plan->step[rest->steps].from == whole && plan->step[rest->steps].to == to);
        CHECK_EQ(plan->price.picoseconds, rest->price.picoseconds);
        CHECK(plan->price.proven);
        seen++;
    }
    CHECK(seen > 20);
    move_paper_close(&p);
}

/*
 * A reduction on an axis of extent 1 is none: it may not be pending beside another one, so on the
 * way it is not there yet.
 */
static void a_single_rank_waits_for_the_reductions_of_others(void)
{
    static const char *const moves[][2] = {
        {"[4096,4096] P(sum:x) P(sum:y) on (x=2,y=8,one=1)",
         "[4096,4096] P(max:one) on (x=2,y=8,one=1)"},
        {"[4096(z),64] P(min:x) P(min:y) on (one=1,x=2,y=8,z=4)",
         "[4096,64(z)] P(avg:one) on (one=1,x=2,y=8,z=4)"},
        {"[4096,4096] P(sum:x) P(avg:y) on (x=2,y=8,one=1)",
         "[4096,4096] P(avg:one) on (x=2,y=8,one=1)"},
    };
    const sherd_price price = {
        .kind = SHERD_PRICE_LINKS,
        .links = 2,
        .link = {{"x", 5000000, 1000000, 20000, 0}, {"*", 4000, 1000, 200, 0}},
        .straight = true};
    const sherd_plan_options options = {.price = &price};

    for (int i = 0; i < LEN(moves); i++) {
        const sherd_plan *plan = NULL;
        paper p;
        paper_open(&p, 64);
        const sherd_layout *from = paper_layout(&p, moves[i][0]);
        const sherd_layout *to = paper_layout(&p, moves[i][1]);
        if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options)))
            fprintf(stderr, "%s\n", p.diag.text);
        CHECK(sherd_plan_steps(plan) > 2); /* x and y one after the other */
        CHECK(!plan || plan->price.proven);
        move_paper_close(&p);
    }
}

/* ---- no history, no memory, many axes -------------------------------------------------------- */

enum { ASKED = 60 };

/* Ask the same questions in another order, after other questions: same answers. */
static void plans_have_no_history(void)
{
    static const int64_t shape[] = {4096, 513};
    const sherd_price links = slow_messages();
    static char trace[ASKED][256];
    static int64_t bytes[ASKED];

    for (int round = 0; round < 3; round++) {
        paper p;
        paper_open(&p, 64);
        const sherd_mesh *mesh = paper_mesh(&p, "8x2x3");
        for (int k = 0; k < ASKED; k++) {
            int i = round == 1 ? ASKED - 1 - k : k;
            uint64_t state = (uint64_t)i;
            const sherd_plan_options options = {.price = i & 1 ? &links : NULL};
            const sherd_layout *from = any_layout(mesh, 2, shape, false, SHERD_SUM, &state);
            const sherd_layout *to = any_layout(mesh, 2, shape, false, -1, &state);
            const sherd_plan *plan;
            CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
            if (round == 0) {
                snprintf(trace[i], sizeof trace[i], "%s", plan->trace);
                bytes[i] = plan->price.recv_total_bytes;
            }
            CHECK_TEXT(plan->trace, trace[i]);
            CHECK_EQ(plan->price.recv_total_bytes, bytes[i]);
            if (round == 2) /* other questions between */
                CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options));
        }
        move_paper_close(&p);
    }
}

static void every_failed_allocation_is_survived(void)
{
    static const char *const moves[][2] = {
        {"[4096,513(y)] P(sum:x) on (x=8,y=2)", "[4096(y),513] on (x=8,y=2)"},
        {"[4096,513(y:500,13)] P(sum:x) on (x=8,y=2)", "[4096(y:4000,96),513] on (x=8,y=2)"},
        {"[4096,513(y)] P(sum:x) on (x=8,y=2)", "[4096(b),513] on (a=2,b=4)"},
        {"[4096(b),512(a)] P(sum:c) P(sum:d) on (a=2,b=2,c=2,d=2,e=2,f=2)",
         "[4096(a,c),512(f,b)] on (a=2,b=2,c=2,d=2,e=2,f=2)"},
        {"[4096] on (x=8)", "[4096] P(sum:x) on (x=8)"},
    };
    const sherd_price links = slow_messages();

    for (int i = 0; i < LEN(moves) * 3; i++) {
        const sherd_plan_options options = {.price = i % 3 == 1 ? &links : NULL,
                                            .forbidden =
                                                i % 3 == 2 ? 1u << SHERD_STEP_ALL_GATHER : 0};
        sherd_status status = SHERD_ENOMEM;
        int64_t n = 0;
        for (; status != SHERD_OK && n < 2000; n++) {
            const sherd_plan *plan;
            paper p;
            paper_open(&p, 64);
            const sherd_layout *from = paper_layout(&p, moves[i / 3][0]);
            const sherd_layout *to = paper_layout(&p, moves[i / 3][1]);
            p.heap.allocations = 0;
            p.heap.fail_at = n + 1;
            status = sherd_plan_create(&plan, from, to, SHERD_F32, &options);
            CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && !plan));
            CHECK(status == SHERD_OK || strstr(p.diag.text, "out of memory"));
            p.heap.fail_at = 0;
            CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
            move_paper_close(&p);
        }
        CHECK(n > 4 && n < 2000);
    }
}

/* Eight axes have millions of states: the plan comes all the same, and greedy's is never better. */
static void many_axes_end(void)
{
    static const int64_t shape[] = {2048, 3000, 1031};
    const sherd_price links = slow_messages();
    uint64_t state = 17;
    int proven = 0, longer = 0;

    for (int i = 0; i < 40; i++) {
        sherd_plan_options options = {.price = i % 4 == 3 ? &links : NULL};
        const sherd_plan *plan, *greedy;
        paper p;
        paper_open(&p, 256);
        const sherd_mesh *mesh = paper_mesh(&p, "2x2x2x2x2x2x2x2");
        const sherd_layout *from = any_layout(mesh, 3, shape, false, SHERD_SUM, &state);
        const sherd_layout *to = any_layout(mesh, 3, shape, false, -1, &state);
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, &options));
        for (int k = 0; k < plan->steps; k++)
            CHECK(plan->step[k].from == (k ? plan->step[k - 1].to : from));
        CHECK(plan->step[plan->steps - 1].to == to);
        proven += plan->price.proven;
        longer += plan->steps > 1;
        options.planner = SHERD_PLANNER_GREEDY;
        CHECK_OK(sherd_plan_create(&greedy, from, to, SHERD_F32, &options));
        CHECK(plan->price.picoseconds <= greedy->price.picoseconds);
        move_paper_close(&p);
    }
    CHECK(proven > 5 && proven < 40);
    CHECK(longer > 5);
}

/* Times that have no number are told apart no more, but there is a plan. */
static void what_takes_for_ever_is_planned(void)
{
    const sherd_price price = {.kind = SHERD_PRICE_LINKS,
                               .links = 1,
                               .link = {{"*", 1, INT64_MAX, INT64_MAX, 0}},
                               .overlap = true};
    const sherd_plan_options options = {.price = &price};
    static const char *const moves[][2] = {
        {"[576460752303423488(a)] P(sum:b) on (a=2,b=2)", "[576460752303423488(b)] on (a=2,b=2)"},
        {"[576460752303423488(a,c)] P(sum:b) on (a=2,b=2,c=2,d=2)",
         "[576460752303423488(b,d)] on (a=2,b=2,c=2,d=2)"},
    };

    for (int i = 0; i < LEN(moves); i++) {
        const sherd_plan *plan = NULL;
        paper p;
        paper_open(&p, 16);
        const sherd_layout *from = paper_layout(&p, moves[i][0]);
        const sherd_layout *to = paper_layout(&p, moves[i][1]);
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options));
        CHECK(plan && plan->price.picoseconds == ((int64_t)1 << 62) - 1);
        move_paper_close(&p);
    }
}

/* Another plan that takes as long, as far as that can be told, receives less. */
static void nothing_is_proven_of_what_takes_for_ever(void)
{
    const sherd_price price = {.kind = SHERD_PRICE_LINKS,
                               .links = 3,
                               .link = {{"a1", 15, 0, 1, 921521},
                                        {"a5", 1, 7429, 78232270, 1099511627776},
                                        {"a1", INT64_MAX, 1, 100000000, 5666423}},
                               .straight = true};
    const sherd_plan_options options = {.price = &price};
    const sherd_plan *plan = NULL;
    paper p;

    paper_open(&p, 24);
    const sherd_layout *from = paper_layout(&p, "[2(a1,a2,a0),1099511627777(a3),4] P(product:a4) "
                                                "P(product:a5) on (a0=2,a1=1,a2=1,a3=3,a4=2,a5=2)");
    const sherd_layout *to = paper_layout(&p, "[2(a5,a4,a1),1099511627777(a2),4(a0)] on "
                                              "(a0=2,a1=1,a2=1,a3=3,a4=2,a5=2)");
    if (CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_BF16, &options)))
        CHECK(plan->price.picoseconds == ((int64_t)1 << 62) - 1 && !plan->price.proven);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(nothing_is_proven_of_what_takes_for_ever)},
    {TEST(what_limits_rule_out_is_said)},
    {TEST(limits_hold_between_meshes)},
    {TEST(a_partition_comes_last)},
    {TEST(a_single_rank_waits_for_the_reductions_of_others)},
    {TEST(plans_have_no_history)},
    {TEST(every_failed_allocation_is_survived)},
    {TEST(many_axes_end)},
    {TEST(what_takes_for_ever_is_planned)},
};
CHECK_MAIN(tests)
