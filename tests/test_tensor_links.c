/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves by a price of links, as `sherd check --calibrate` writes it for hosts with a slow link
 * between them: the plans go inside, between, and inside again, by themselves, and what comes out
 * is exact. Nothing here is timed.
 */
#include "tensors.h"

static const char price_text[] = "# a link of 1 Gbit/s that two ranks share; memory\n"
                                 "straight\nhost 5e-5 1.6e-8 1e-10\nlocal 5e-6 4e-10 2e-10\n";

typedef struct move {
    const char *from, *to, *trace;
    bool pending; /* there is an addend on each rank */
} move;

static const move moves[] = {
    {"P(sum)P(sum)", "RR", "P(sum)P(sum)->P(sum)S(0)->RS(0)->RR", true},
    {"S(0)S(1)", "RR", "S(0)S(1)->RS(1)->RR", false},
    {"S(0)R", "RR", "S(0)R->RS(1)->RR", false},
    {"S(0)S(0)", "RR", "S(0)[0]S(0)[1]->S(0)S(1)->RS(1)->RR", false},
    {"P(sum)P(sum)", "S(0)R", "P(sum)P(sum)->P(sum)S(1)->S(0)S(1)->S(0)R", true},
    /* of small tensors it is the messages between hosts that cost: there is one */
    {"S(0)S(0)", "S(1)S(1)", "S(0)[0]S(0)[1]->S(0)R->S(1)[0]S(1)[1]", false},
};

static void run_move(sherd_world *world, const sherd_mesh *mesh, const int64_t *shape,
                     const sherd_price *price, const move *m)
{
    const sherd_plan_options options = {.price = price};
    const sherd_layout *from = layout_of(mesh, 2, shape, m->from, NULL);
    const sherd_layout *to = layout_of(mesh, 2, shape, m->to, NULL);
    int64_t addends = m->pending ? sherd_mesh_ranks(mesh) : 1;
    const sherd_plan *plan = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, &options));
    CHECK_TEXT(sherd_plan_trace(plan), m->trace);
    CHECK(sherd_plan_price_of(plan)->proven);
    sherd_tensor *t = indices_on(from, SHERD_F64);
    CHECK_EQ(count_wrong(sherd__move_planned(t, to, &options, NULL, false), addends), 0);
    CHECK_EQ(count_wrong(sherd__move_planned(t, to, NULL, NULL, false), addends), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_scope_end(world);
}

static void what_crosses_a_slow_link_is_little_and_right(sherd_world *world)
{
    static const int64_t shapes[][2] = {{512, 64}, {509, 67}};
    sherd_price price;
    char text[32];

    snprintf(text, sizeof text, "host=2,local=%d", sherd_world_ranks(world) / 2);
    const sherd_mesh *mesh = mesh_of(world, text);
    CHECK_OK(sherd_price_parse(&price, world, price_text));
    for (int i = 0; i < LEN(shapes); i++)
        for (int k = 0; k < LEN(moves); k++)
            run_move(world, mesh, shapes[i], &price, &moves[k]);
}

/* They would make different calls; the plan's hash, which has the price in it, says so in the first
 * one. */
static void ranks_with_different_prices_are_told(sherd_world *world)
{
    const int64_t shape[] = {16, 4};
    sherd_price price = {SHERD_PRICE_LINKS, 1, {{"*", 1000, 20, 3, 0}}, 0, false, true};
    const sherd_plan_options options = {.price = &price};
    char text[32];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    const sherd_layout *from = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *to = layout_of(mesh, 2, shape, "R", NULL);
    for (int turn = 0; turn < 3; turn++) {
        bool same = turn == 1;
        sherd_scope_begin(world);
        price.link[0].alpha_picoseconds = 1000 + (turn == 0 ? sherd_world_rank(world) : 0);
        price.straight = turn == 2 ? sherd_world_rank(world) == 0 : true;
        sherd_tensor *t =
            sherd__move_planned(indices_on(from, SHERD_F64), to, &options, NULL, false);
        if (same)
            CHECK_EQ(count_wrong(t, 1), 0);
        sherd_status status = sherd_world_check(world);
        CHECK_EQ(status, same ? SHERD_OK : SHERD_EDIFFER);
        check_same(world, status);
        sherd_scope_end(world);
    }
}

static const check_test tests[] = {
    {TEST(what_crosses_a_slow_link_is_little_and_right), {4, 8}},
    {TEST(ranks_with_different_prices_are_told), {2, 3, 4}},
};
CHECK_MAIN(tests)
