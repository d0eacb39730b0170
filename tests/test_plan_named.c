/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that others get wrong, each under the name by which it is known. */
#define CHECK_PURE
#include "moves.h"

static int64_t received_by(paper *p, const sherd_plan *plan, int rank)
{
    sherd__schedule *s;
    int64_t bytes = -1;

    CHECK_OK(sherd__schedule_create(&s, &p->space, plan->step, plan->element_bytes, rank));
    if (s)
        bytes = s->recv_bytes;
    sherd__schedule_destroy(&p->space, s);
    return bytes;
}

static void a_7x5_from_rows_to_columns_on_3_receives_8_at_most(void)
{
    static const int64_t bytes[] = {32, 32, 24};
    paper p;

    paper_open(&p, 4);
    const sherd_plan *plan = plan_of(&p, "[7(x),5] on (x=3)", "[7,5(x)] on (x=3)", SHERD_F32);
    CHECK_EQ(sherd_plan_steps(plan), 1);
    CHECK_EQ(sherd_plan_step(plan, 0)->kind, SHERD_STEP_ALL_TO_ALL);
    CHECK_EQ(sherd_plan_step(plan, 0)->axes, 1);
    CHECK(sherd_plan_step(plan, 1) == NULL);
    for (int rank = 0; rank < 3; rank++)
        CHECK_EQ(received_by(&p, plan, rank), bytes[rank]);
    CHECK_EQ(received_by(&p, plan, 3), -1); /* not in the mesh: no schedule */
    CHECK_EQ(sherd_plan_price_of(plan)->recv_max_bytes, 32);
    CHECK_EQ(sherd_plan_price_of(plan)->recv_total_bytes, 88);
    CHECK_EQ(sherd_plan_price_of(plan)->bound_total_bytes, 88);
    CHECK_TEXT(plan->what, "[7(x),5] -> [7,5(x)] on (x=3)");
    move_paper_close(&p);
}

static void pytorch_194457_a_5x3_over_2x2_keeps_every_row(void)
{
    paper p;
    move m;

    paper_open(&p, 4);
    const sherd_plan *plan =
        plan_of(&p, "[5(x,y),3] on (x=2,y=2)", "[5,3] on (x=2,y=2)", SHERD_F64);
    move_open(&m, &p, plan->step, f64(), NULL);
    for (int r = 0; r < m.ranks; r++)
        move_run_rank(&m, r);
    for (int r = 0; r < m.ranks; r++)
        for (int row = 0; row < 5; row++) /* first column 0, 3, 6, 9, 12; the simulation adds 1 */
            CHECK_EQ(m.result[r][3 * row] - 1, 3 * row);
    move_close(&m);
    move_paper_close(&p);
}

static void rs1_to_s0s0_on_2x4_and_all_its_pairs_are_exact(void)
{
    static const int64_t shapes[][3] = {{16, 8, 8}, {7, 5, 3}};
    static const sherd_layout *list[512];
    int pairs = 0;
    paper p;

    paper_open(&p, 8);
    const sherd_mesh *mesh = paper_mesh(&p, "2x4");
    for (int s = 0; s < LEN(shapes); s++) {
        CHECK_EQ(move_prove(&p, paper_placed(&p, mesh, 2, shapes[s], "RS(1)"),
                            paper_placed(&p, mesh, 2, shapes[s], "S(0)S(0)"), f64()),
                 0);
        for (int ndim = 2; ndim <= 3; ndim++) {
            int count = paper_layouts(mesh, ndim, shapes[s], false, list, LEN(list));
            for (int i = 0; i < count * count; i++, pairs++)
                CHECK_EQ(move_prove(&p, list[i / count], list[i % count], f64()), 0);
        }
    }
    CHECK(pairs > 2 * (81 + 256));
    move_paper_close(&p);
}

/* N elements on (x=4, y=2): [a(y),b,c(x)] -> [a,b(x,y),c] receives 7/64 N per rank, not 7/8 N. */
static void xla_15207_receives_seven_64ths(void)
{
    paper p;

    paper_open(&p, 8);
    const sherd_plan *plan =
        plan_of(&p, "[8(y),16,16(x)] on (x=4,y=2)", "[8,16(x,y),16] on (x=4,y=2)", SHERD_F32);
    CHECK_EQ(plan->price.recv_max_bytes, 8 * 16 * 16 * 4 * 7 / 64);
    CHECK_EQ(plan->price.recv_max_bytes, plan->price.bound_max_bytes);
    CHECK_EQ(plan->step->axes, 3);
    CHECK_EQ(move_prove(&p, plan->from, plan->to, f64()), 0);
    move_paper_close(&p);
}

static void s0s1_to_s1s0_on_2x4_receives_the_bound(void)
{
    paper p;

    paper_open(&p, 8);
    const sherd_plan *plan =
        plan_of(&p, "[16(x),16(y)] on (x=2,y=4)", "[16(y),16(x)] on (x=2,y=4)", SHERD_F32);
    CHECK_EQ(plan->price.recv_total_bytes, plan->price.bound_total_bytes);
    CHECK_EQ(plan->price.recv_max_bytes, plan->price.bound_max_bytes);
    CHECK_EQ(plan->price.recv_max_bytes, 16 * 16 * 4 / 8);
    CHECK_EQ(plan->price.rounds, 1);
    CHECK_EQ(move_prove(&p, plan->from, plan->to, f64()), 0);
    move_paper_close(&p);
}

static void pytorch_157585_s0s0_to_rs0_is_not_s0s0_to_s0r(void)
{
    paper p;

    paper_open(&p, 8);
    const sherd_plan *outer =
        plan_of(&p, "[64(x,y)] on (x=2,y=4)", "[64(y)] on (x=2,y=4)", SHERD_F32);
    CHECK_EQ(outer->price.recv_max_bytes, 64 * 4 / 4); /* 0.25 N */
    CHECK_EQ(outer->step->axes, 3);
    const sherd_plan *inner =
        plan_of(&p, "[64(x,y)] on (x=2,y=4)", "[64(x)] on (x=2,y=4)", SHERD_F32);
    CHECK_EQ(inner->price.recv_max_bytes, 64 * 4 * 3 / 8); /* 0.375 N */
    CHECK_EQ(inner->step->axes, 2);
    move_paper_close(&p);
}

/* One chunk rule: ceil(n / p) each, what is left over at the end. */
static void five_rows_on_4_ranks_are_2_2_1_0(void)
{
    static const int64_t rows[] = {2, 2, 1, 0}, nested[] = {2, 1, 1, 1};
    paper p;

    paper_open(&p, 4);
    const sherd_layout *line = paper_layout(&p, "[5(x),3] on (x=4)");
    const sherd_layout *grid = paper_layout(&p, "[5(x,y),3] on (x=2,y=2)");
    for (int rank = 0; rank < 4; rank++) {
        CHECK_EQ(sherd_layout_box(line, rank, 0).size[0], rows[rank]);
        CHECK_EQ(sherd_layout_box(grid, rank, 0).size[0], nested[rank]);
    }
    CHECK_EQ(move_prove(&p, line, paper_layout(&p, "[5,3(x)] on (x=4)"), f64()), 0);
    CHECK_EQ(move_prove(&p, line, paper_layout(&p, "[5,3] on (x=4)"), f64()), 0);
    move_paper_close(&p);
}

/* Scattered over all ranks while it is reduced, then exchanged: one step would add everything on
 * few ranks. */
static void a_large_sum_is_scattered_before_it_is_exchanged(void)
{
    paper p;

    paper_open(&p, 16);
    const sherd_plan *plan =
        plan_of(&p, "[4096,512(y)] P(sum:x) on (x=8,y=2)", "[4096(y),512] on (x=8,y=2)", SHERD_F64);
    CHECK_EQ(plan->steps, 2);
    CHECK(sherd__step_reduces(&plan->step[0]) && !sherd__step_reduces(&plan->step[1]));
    CHECK(plan->price.proven);
    const sherd_plan *less =
        plan_of(&p, "[512,256(y)] P(sum:x) on (x=8,y=2)", "[512(y),256] on (x=8,y=2)", SHERD_F64);
    CHECK_EQ(less->steps, 2);
    CHECK_EQ(move_prove(&p, less->from, less->to, f64()), 0);
    move_paper_close(&p);
}

static const check_test tests[] = {
    {TEST(a_7x5_from_rows_to_columns_on_3_receives_8_at_most)},
    {TEST(pytorch_194457_a_5x3_over_2x2_keeps_every_row)},
    {TEST(rs1_to_s0s0_on_2x4_and_all_its_pairs_are_exact)},
    {TEST(xla_15207_receives_seven_64ths)},
    {TEST(s0s1_to_s1s0_on_2x4_receives_the_bound)},
    {TEST(pytorch_157585_s0s0_to_rs0_is_not_s0s0_to_s0r)},
    {TEST(five_rows_on_4_ranks_are_2_2_1_0)},
    {TEST(a_large_sum_is_scattered_before_it_is_exchanged)},
};
CHECK_MAIN(tests)
