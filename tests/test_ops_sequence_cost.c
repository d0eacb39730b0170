/* SPDX-License-Identifier: Apache-2.0 */
/* What attention over sharded sequences costs: calls, bytes, and room for keys and values. */
#include "sequences.h"

static int64_t calls(sherd_world *world, sherd_comm_direction direction)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.direction = direction});
}

static int64_t received(sherd_world *world, sherd_comm_direction direction)
{
    return sherd_comm_bytes(world, &(sherd_comm_filter){.direction = direction});
}

/* A ring meets 2(p-1) halves, a gather one window; each is fetched again in backward, and gives
 * back as much. */
static void a_rank_gets_what_it_lacks_and_may_see(sherd_world *world)
{
    enum { LENGTH = 24 };
    const int64_t shape[] = {1, LENGTH, 2, 3}, p = sherd_world_ranks(world),
                  r = sherd_world_rank(world);
    scene s = {world, line(world), .dtype = SHERD_F64};

    for (int causal = 0; causal < 2; causal++)
        for (int way = SHERD_ATTENTION_RING; way <= SHERD_ATTENTION_GATHER; way++) {
            int64_t seen = causal ? r : p - 1, sees = causal ? p - 1 - r : p - 1;
            int64_t piece = LENGTH / p * 6 * 8,
                    visits = way == SHERD_ATTENTION_RING ? 2 * (p - 1) : 1;
            sherd_tensor *x = sherd_distribute(numbers(&s, 1, 4, shape),
                                               layout_of(s.mesh, 4, shape, "S(1)", NULL), -1);
            sherd_require_grad(x, true);
            CHECK_OK(sherd_world_check(world));
            sherd_comm_reset(world);
            sherd_tensor *y = sherd_attention(
                x, x, x,
                &(sherd_attention_options){.causal = causal, .way = (sherd_attention_way)way});
            sherd_tensor_read(y);
            CHECK_EQ(calls(world, SHERD_COMM_FORWARD), visits);
            CHECK_EQ(received(world, SHERD_COMM_FORWARD), 2 * seen * piece);
            sherd_backward_with(&y, &(sherd_tensor *){sherd_detach(y)}, 1, NULL);
            sherd_tensor_read(sherd_grad(x));
            CHECK_EQ(calls(world, SHERD_COMM_BACKWARD), 2 * visits);
            CHECK_EQ(received(world, SHERD_COMM_BACKWARD), 2 * (seen + sees) * piece);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Cuts so that the last rank has everything: nobody lacks anything. */
static void nobody_calls_for_nothing(sherd_world *world)
{
    const int64_t shape[] = {1, 8, 2, 3}, p = sherd_world_ranks(world);
    int64_t size[PARTS] = {0};
    const int64_t *views[4] = {NULL, size};
    const sherd_layout *layout = NULL;
    scene s = {world, line(world), .dtype = SHERD_F64};

    size[p - 1] = 8;
    sherd_placement shard = sherd_shard(1);
    CHECK_OK(sherd_layout_create(&layout, s.mesh, 4, shape, &shard,
                                 &(sherd_layout_options){.sizes = views}));
    sherd_tensor *x = sherd_distribute(numbers(&s, 1, 4, shape), layout, -1);
    sherd_comm_reset(world);
    sherd_tensor_read(sherd_attention(
        x, x, x, &(sherd_attention_options){.causal = true, .way = SHERD_ATTENTION_RING}));
    CHECK_EQ(calls(world, SHERD_COMM_BOTH), 0);
    CHECK_OK(sherd_world_check(world));
}

/* By their prices: one call for little; heads where all have as many and there are ranks enough;
 * else a ring for much. */
static void the_cheapest_way_is_taken(sherd_world *world)
{
    static const struct {
        int64_t each, heads, width;
        int64_t calls[5]; /* on so many ranks */
    } row[] = {
        {4, 3, 2, {0, 0, 1, 1, 1}}, {64, 12, 16, {0, 0, 1, 4, 4}}, {512, 65, 16, {0, 0, 2, 4, 6}}};
    const int64_t p = sherd_world_ranks(world);
    scene s = {world, line(world), .dtype = SHERD_F32};

    for (int i = 0; i < LEN(row); i++) {
        const int64_t q[] = {1, i == 2 ? p : row[i].each * p, row[i].heads, row[i].width};
        const int64_t k[] = {1, row[i].each * p, row[i].heads, row[i].width};
        sherd_tensor *x = constant(&s, 4, q, "S(1)"), *y = constant(&s, 4, k, "S(1)");
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *z = sherd_attention(x, y, y, NULL);
        CHECK_EQ(calls(world, SHERD_COMM_BOTH), row[i].calls[p]);
        CHECK(z->layout == x->layout);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * Keys and values are two pieces at most, the own one and of visitors no more than the largest
 * there is; the rest is the work on one head. With gradients four: its own, halves that it has
 * found for others, and what comes back for its own.
 */
static void check_pieces(const scene *s, const int64_t *sizes, int64_t most)
{
    const int64_t p = sherd_world_ranks(s->world), k[] = {1, 512 * p, 64, 16}, q[] = {1, p, 64, 16};
    const int64_t *views[4] = {NULL, sizes}, piece = 2 * most * 64 * 16 * 4;
    const sherd_placement shard = sherd_shard(1);
    const sherd_layout *layout = NULL;
    sherd_tensor *t[3];

    for (int i = 0; i < 3; i++) {
        CHECK_OK(sherd_layout_create(&layout, s->mesh, 4, i ? k : q, &shard,
                                     &(sherd_layout_options){.sizes = i ? views : NULL}));
        t[i] = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 1), true);
        sherd_tensor_read(t[i]);
    }
    CHECK_OK(sherd_world_check(s->world));
    int64_t before = sherd_world_memory(s->world).live_bytes;
    sherd_world_memory_reset(s->world);
    sherd_tensor *y =
        sherd_attention(t[Q], t[K], t[V], &(sherd_attention_options){.way = SHERD_ATTENTION_RING});
    sherd_tensor_read(y);
    int64_t peak = sherd_world_memory(s->world).peak_bytes - before;
    CHECK(peak < (p > 1 ? piece : 0) + piece / 8);
    CHECK_OK(sherd_world_check(s->world));
    sherd_world_memory_reset(s->world);
    sherd_backward(sherd_sum(y));
    peak = sherd_world_memory(s->world).peak_bytes - before;
    CHECK(peak < (p > 1 ? 4 : 1) * piece + piece / 8);
    CHECK_OK(sherd_world_check(s->world));
}

static void a_ring_has_two_pieces_at_most(sherd_world *world)
{
    static const int64_t uneven[][PARTS] = {{512}, {256, 768}, {256, 768, 512}, {0, 768, 768, 512}};
    const int64_t p = sherd_world_ranks(world);
    scene s = {world, line(world), .dtype = SHERD_F32};

    for (int i = 0; i < 2; i++) {
        sherd_scope_begin(world);
        check_pieces(&s, i ? uneven[p - 1] : NULL, i && p > 1 ? 768 : 512);
        sherd_scope_end(world);
    }
}

static const check_test tests[] = {
    {TEST(a_rank_gets_what_it_lacks_and_may_see), {2, 3, 4}},
    {TEST(the_cheapest_way_is_taken), {2, 3, 4}},
    {TEST(nobody_calls_for_nothing), {2, 3, 4}},
    {TEST(a_ring_has_two_pieces_at_most), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
