/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over sharded sequences, before anything moves: the most that a visit of a ring brings,
 * and its price, found without windows, are those of the windows; with thousands of ranks too it
 * takes a moment.
 */
#include "tensors.h"

#include "attention/attend.h"
#include "search/plans.h"
#include "sherd/dry.h"
#include "sherd/scope.h"

static void set_price(sherd_world *world, const char *text)
{
    static sherd_price price;

    CHECK_OK(sherd_price_parse(&price, world, text));
    sherd__plans_price(mesh_of(world, "1")->space, &price);
}

static void check_visits(const sherd__round *round)
{
    sherd__heap *heap = round->k->space->heap;
    sherd__visits *ring;

    CHECK_OK(sherd__visits_create(&ring, round));
    for (int v = 0; v < round->visits; v++) {
        int64_t most = 0, first, end;
        for (int64_t i = 0; i < round->shards; i++) {
            sherd__round_keys(round, v, i, &first, &end);
            most = end - first > most ? end - first : most;
        }
        CHECK_EQ(sherd__visits_most(ring, v), most);
        sherd_status status;
        sherd__window *window = sherd__round_window(&status, round, v);
        CHECK_OK(status);
        CHECK_EQ(window != NULL, most > 0);
        if (!window)
            continue;
        const sherd_plan *plan;
        CHECK_OK(sherd__window_plan(&plan, window, SHERD__GATHER, 2));
        CHECK_EQ(sherd__window_time(round->k, 1, most, 2), plan->price.picoseconds);
        sherd__window_release(window);
    }
    sherd__visits_destroy(ring, heap);
}

/* All rounds of a layout of queries and one of keys. */
static void check_rounds(const sherd_layout *q, const sherd_layout *k)
{
    static const int64_t windows[] = {0, 1, 7, 40}, zigzags[] = {0, 4, 7, 8};

    for (int w = 0; w < LEN(windows); w++)
        for (int z = 0; z < LEN(zigzags); z++)
            for (int causal = windows[w] > 0; causal < 2; causal++) {
                const sherd__attend_attributes a = {
                    .window = windows[w], .zigzag = zigzags[z], .causal = causal, .ring = true};
                const sherd__round round = sherd__round_of(q, k, &a);
                check_visits(&round);
            }
}

static void a_visit_costs_what_its_window_does(sherd_world *world)
{
    static const char *const how[][2] = {{"RS(1)", NULL},
                                         {"S(0)S(1)", NULL},
                                         {"S(2)S(1)", NULL},
                                         {"RS(1)", "1:9,5,0,9,1,2,20,18"},
                                         {"RS(1)", "1:0,0,0,0,30,30,4,0"}};
    static const char *const prices[] = {NULL, "x 1e-5 2e-10 1e-11\n* 2e-6 3e-11 4e-12\n"};
    const int64_t q_shape[] = {3, 64, 4, 2, 5}, k_shape[] = {3, 64, 4, 5};

    for (int p = 0; p < LEN(prices); p++) {
        sherd_world *paper;
        CHECK_OK(sherd_world_paper(&paper, 16));
        if (prices[p])
            set_price(paper, prices[p]);
        const sherd_mesh *mesh = mesh_of(paper, "x=2,y=8");
        for (int i = 0; i < LEN(how); i++)
            for (int j = 0; j < LEN(how); j++)
                if (strcmp(how[i][0], how[j][0]) == 0)
                    check_rounds(layout_of(mesh, 5, q_shape, how[i][0], how[i][1]),
                                 layout_of(mesh, 4, k_shape, how[j][0], how[j][1]));
        CHECK_OK(sherd_world_close(paper));
    }
    (void)world;
}

/* One way is chosen, and what it takes of memory and time is known, of 20,000 visits in a ring. */
static void thousands_of_shards_take_a_moment(sherd_world *world)
{
    static const sherd_rates rates = {.f32 = 1e12, .f64 = 1e12, .half = 1e12, .memory = 1e12};
    enum { RANKS = 10000 };
    const int64_t shape[] = {1, 16 * RANKS, 2, 4};

    for (int how = 0; how < 4; how++) {
        const sherd_attention_options o = {
            .causal = how > 0, .window = how == 2 ? 1000 * 16 : 0, .zigzag = how == 3 ? RANKS : 0};
        sherd_world *dry;
        CHECK_OK(sherd_world_dry(&dry, RANKS, 5, &rates, NULL));
        const sherd_layout *layout = layout_of(line_of_ranks(dry), 4, shape, "S(1)", NULL);
        sherd_tensor *x = sherd_constant_on(layout, SHERD_F32, 1);
        CHECK(!sherd_tensor_failed(sherd_attention(x, x, x, &o)));
        CHECK_OK(sherd_world_close(dry));
    }
    (void)world;
}

static const check_test tests[] = {{TEST(a_visit_costs_what_its_window_does), {1}},
                                   {TEST(thousands_of_shards_take_a_moment), {1}}};
CHECK_MAIN(tests)
