/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention through a window, and with a cap on scores: as it is written out by other operators,
 * with all their gradients, whatever is sharded, and however sequences communicate. What no query
 * of a rank sees is neither sent there nor read.
 */
#include "differ.h"
#include "sequences.h"

#include <math.h>

#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"

/* The scores' places that are seen. */
static sherd_tensor *seen_in(sherd_world *world, int64_t window)
{
    unsigned char seen[POSITIONS * POSITIONS];

    for (int i = 0; i < POSITIONS * POSITIONS; i++) {
        int query = i / POSITIONS, key = i % POSITIONS;
        seen[i] = key <= query && (window == 0 || key > query - window);
    }
    const int64_t shape[] = {POSITIONS, POSITIONS};
    return sherd_mark_equal(sherd_from_data(world, SHERD_BOOL, shape, 2, seen));
}

/* Written out, for as many heads of keys as of queries; in f64 on all ranks. */
static sherd_tensor *expected(sherd_tensor *const *x, sherd_tensor **sums, int64_t window,
                              double cap)
{
    sherd_tensor *hidden = sherd_logical_not(seen_in(sherd_tensor_world(x[Q]), window));
    sherd_tensor *scores = sherd_einsum("bshw,bthw->bhst", (sherd_tensor *[]){x[Q], x[K]}, 2);

    scores = sherd_scale(scores, 0.6);
    if (cap != 0)
        scores = sherd_scale(sherd_tanh(sherd_scale(scores, 1 / cap)), cap);
    scores = sherd_masked_fill(scores, hidden, -(double)INFINITY);
    *sums = sherd_logsumexp(scores, 3, false);
    return sherd_einsum("bhst,bthw->bshw", (sherd_tensor *[]){sherd_softmax(scores, 3), x[V]}, 2);
}

/* A loss that all of both results is in, or its gradients. */
static sherd_tensor *loss_of(const scene *s, sherd_tensor *y, sherd_tensor *sums,
                             sherd_tensor *const *x, bool twice)
{
    scene as = *s;

    as.dtype = y->dtype;
    sherd_tensor *a = sherd_sum(sherd_mul(y, numbers(&as, 5, 4, y->shape)));
    as.dtype = sums->dtype;
    sherd_tensor *b = sherd_sum(sherd_mul(sums, numbers(&as, 6, 3, sums->shape)));
    sherd_tensor *loss = sherd_add(sherd_cast(a, SHERD_F64), sherd_cast(b, SHERD_F64));
    return twice ? gradients_of(loss, x) : loss;
}

/* Heads of keys as often as they are shared. */
static sherd_tensor *as_heads(sherd_tensor *t, int64_t groups)
{
    const int64_t wide[] = {BATCH, POSITIONS, groups, HEADS / groups, WIDTH},
                  joined[] = {BATCH, POSITIONS, HEADS, WIDTH};

    return sherd_view(sherd_expand(sherd_unsqueeze(t, 3), wide, 5), joined, 4);
}

static void check_window(const scene *s, int64_t window, double cap, bool twice)
{
    const int64_t shape[] = {BATCH, POSITIONS, HEADS, WIDTH},
                  key[] = {BATCH, POSITIONS, s->groups, WIDTH};
    const sherd_attention_options how = {
        .causal = true, .scale = 0.6, .way = s->way, .window = window, .softcap = cap};
    const double off = s->dtype == SHERD_F64 ? 1e-12 : s->dtype == SHERD_F32 ? 1e-5 : 3e-2;
    sherd_tensor *plain[3], *wide[3], *spread[3], *y[2], *sums[2];
    bool good = true;

    sherd_scope_begin(s->world);
    for (int i = Q; i <= V; i++) {
        sherd_tensor *t = numbers(s, (uint64_t)i, 4, i ? key : shape);
        spread[i] = sherd_distribute_as(t, s->mesh, s->placements, -1);
        plain[i] = sherd_cast(t, SHERD_F64);
        sherd_require_grad(spread[i] = sherd_clone(spread[i]), true);
        sherd_require_grad(plain[i] = sherd_clone(plain[i]), true);
        wide[i] = i ? as_heads(plain[i], s->groups) : plain[i];
    }
    y[0] = expected(wide, &sums[0], window, cap);
    CHECK(sherd_attention_with(&y[1], &sums[1], spread[Q], spread[K], spread[V], &how));
    good = CHECK(differ(y[1], y[0]) <= off) && CHECK(differ(sums[1], sums[0]) <= off);
    for (int side = 0; side < 2 && good; side++)
        sherd_backward(loss_of(s, y[side], sums[side], side ? spread : plain, twice));
    for (int i = Q; i <= V && good; i++)
        good =
            CHECK(differ(sherd_grad(spread[i]), sherd_grad(plain[i])) <= (twice ? 100 : 4) * off);
    if (!good && sherd_world_rank(s->world) == 0)
        fprintf(stderr, "window %d cap %g way %d groups %d of %s %s twice %d\n", (int)window, cap,
                (int)s->way, (int)s->groups, sherd_dtype_name(s->dtype), s->placements, twice);
    CHECK_OK(sherd_world_check(s->world));
    sherd_scope_end(s->world);
}

static const int64_t windows[] = {1, 2, 3, 5, 9, POSITIONS - 1, POSITIONS, 100, 0};

static void run_all(scene *s, int count)
{
    int number = sherd_world_ranks(s->world), ranks = number;

    for (int w = 0; w < LEN(windows); w++)
        for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
            for (int cuts = 0; cuts < 3; cuts++)
                for (s->groups = HEADS / 2; s->groups <= HEADS; s->groups *= 2) {
                    double cap = number % 3 == 0 ? 0.7 : 0;
                    s->way = (sherd_attention_way)way;
                    s->placements = cuts_of[ranks < 5 ? ranks : 1][ranks < 5 ? cuts : 0];
                    if (number++ % check_stride(count) == 0 && (windows[w] || cap != 0))
                        check_window(s, windows[w], cap, false);
                }
}

static void windows_are_as_written_out(sherd_world *world)
{
    run_all(&(scene){world, line(world), .dtype = SHERD_F64}, 5);
}

static void windows_of_f32_are_too(sherd_world *world)
{
    run_all(&(scene){world, line(world), .dtype = SHERD_F32}, 7);
}

static void windows_of_16_bits_are_too(sherd_world *world)
{
    run_all(&(scene){world, line(world), .dtype = SHERD_BF16}, 11);
}

static void heads_and_items_may_be_sharded(sherd_world *world)
{
    static const char *const placements[] = {"S(0)S(1)", "S(1)S(2)", "S(1)S(1)", "S(2)S(0)"};

    for (int i = 0; i < LEN(placements); i++)
        for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++) {
            scene s = {world,
                       mesh_of(world, "2x2"),
                       placements[i],
                       .dtype = SHERD_F64,
                       .way = (sherd_attention_way)way,
                       .groups = HEADS};
            check_window(&s, 3 + way, way % 2 ? 0.7 : 0, false);
        }
}

static void gradients_have_gradients(sherd_world *world)
{
    scene s = {world, line(world), .dtype = SHERD_F64, .placements = "S(1)"};

    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
        for (s.groups = HEADS / 2; s.groups <= HEADS; s.groups *= 2) {
            s.way = (sherd_attention_way)way;
            check_window(&s, 1 + 3 * way, s.groups == HEADS ? 0.7 : 0, true);
        }
}

/* A mask that is added has its gradient; dropout has the pattern of all keys. */
static void masks_and_dropout_go_with_windows(sherd_world *world)
{
    const int64_t shape[] = {BATCH, POSITIONS, HEADS, WIDTH}, square[] = {POSITIONS, POSITIONS};
    sherd_generator g[2] = {sherd_generator_named("drops"), sherd_generator_named("drops")};
    scene s = {world, line(world), .dtype = SHERD_F64};
    const int64_t window = 4;
    sherd_tensor *y[2], *mask[2];

    sherd_tensor *bias = numbers(&s, 9, 2, square);
    for (int i = 0; i < 2; i++) {
        sherd_tensor *x = numbers(&s, 1, 4, shape);
        sherd_attention_options how = {
            .causal = true, .dropout = 0.3, .generator = &g[i], .softcap = 0.7};
        if (i)
            x = sherd_distribute_as(x, s.mesh, "S(1)", -1);
        how.mask = mask[i] = sherd_require_grad(sherd_clone(bias), true);
        if (i)
            how.window = window;
        else
            how.mask = sherd_masked_fill(mask[i], sherd_logical_not(seen_in(world, window)),
                                         -(double)INFINITY);
        y[i] = sherd_attention(x, x, x, &how);
        sherd_backward(sherd_sum(sherd_mul(y[i], y[i])));
    }
    CHECK(differ(y[1], y[0]) <= 1e-12);
    CHECK(differ(sherd_grad(mask[1]), sherd_grad(mask[0])) <= 1e-11);
    CHECK_OK(sherd_world_check(world));
}

/* Of 8 positions each, a rank needs window - 1 keys of the one before it. */
static void what_nobody_sees_is_not_sent(sherd_world *world)
{
    enum { EACH = 8, WINDOW = 4 };
    const int64_t ranks = sherd_world_ranks(world), shape[] = {1, EACH * ranks, 2, 3};
    scene s = {world, line(world), .dtype = SHERD_F32};
    sherd_attention_options how = {.causal = true, .window = WINDOW};
    int64_t bytes = sherd_world_rank(world) ? 2 * (WINDOW - 1) * 2 * 3 * 4 : 0;
    sherd_tensor *x = sherd_distribute_as(numbers(&s, 1, 4, shape), s.mesh, "S(1)", -1);

    for (how.way = SHERD_ATTENTION_RING; how.way <= SHERD_ATTENTION_GATHER; how.way++) {
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_attention(x, x, x, &how);
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(sherd_comm_bytes(world, NULL), bytes);
        CHECK_EQ(sherd_comm_calls(world, NULL), ranks > 1);
    }
}

/* A query that is near the end is not touched by what keys and values far before it are. */
static void what_is_before_a_window_is_not_read(sherd_world *world)
{
    enum { LONG = 900, WINDOW = 100, BEGIN = 500 };
    const int64_t shape[] = {1, LONG, 1, 5};

    for (int d = 0; d < 3; d++) {
        sherd_dtype dtype = (sherd_dtype[]){SHERD_F32, SHERD_F64, SHERD_BF16}[d];
        scene s = {world, line(world), .dtype = dtype};
        const sherd_attention_options how = {.causal = true, .window = WINDOW};
        sherd_tensor *x[2], *y[2];
        sherd_scope_begin(world);
        for (int i = 0; i < 2; i++) {
            x[i] = sherd_clone(numbers(&s, 1, 4, shape));
            if (i)
                sherd_fill(sherd_narrow(x[i], 1, 0, BEGIN), NAN);
            x[i] = sherd_require_grad(x[i], true);
            y[i] = sherd_narrow(sherd_attention(x[i], x[i], x[i], &how), 1, LONG - 70, 70);
        }
        CHECK(differ(y[1], y[0]) == 0);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

static const check_test tests[] = {
    {TEST(windows_are_as_written_out), {1, 2, 3, 4, 8}},
    {TEST(windows_of_f32_are_too), {1, 3, 4}},
    {TEST(windows_of_16_bits_are_too), {1, 3}},
    {TEST(heads_and_items_may_be_sharded), {4}},
    {TEST(gradients_have_gradients), {1, 2, 3}},
    {TEST(masks_and_dropout_go_with_windows), {1, 2, 3, 4}},
    {TEST(what_nobody_sees_is_not_sent), {1, 2, 3, 4}},
    {TEST(what_is_before_a_window_is_not_read), {1}},
};
CHECK_MAIN(tests)
