/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over sequences that are sharded: whatever the way, the cuts, the mask and the heads,
 * results, logarithms of sums and gradients are those of plain tensors. What it costs is in
 * test_ops_sequence_cost.c.
 */
#include "sequences.h"

/* Of 16 and of 9 positions; the keys' are the other way round. */
static const int64_t sizes[CUTS][2][PARTS + 1][PARTS] = {
    [UNEVEN] = {{{0}, {16}, {5, 11}, {9, 1, 6}, {3, 5, 1, 7}},
                {{0}, {9}, {2, 7}, {1, 6, 2}, {4, 1, 1, 3}}},
    [EMPTY] = {{{0}, {16}, {0, 16}, {7, 0, 9}, {0, 9, 0, 7}},
               {{0}, {9}, {9, 0}, {0, 0, 9}, {0, 5, 4, 0}}}};

static sherd_tensor *mask_of(const scene *s)
{
    const int64_t shape[] = {BATCH, s->mask == ADDED ? HEADS : 1, s->mask == KEYS ? 1 : POSITIONS,
                             s->keys};
    unsigned char mine[BATCH * POSITIONS * POSITIONS];

    if (s->mask == NO_MASK)
        return NULL;
    if (s->mask == ADDED)
        return numbers(s, 77, 4, shape);
    for (int64_t i = 0; i < shape[0] * shape[2] * shape[3]; i++)
        mine[i] = i * 7 % 11 > 3 && i % s->keys != 2;
    return sherd_mark_equal(sherd_from_data(s->world, SHERD_BOOL, shape, 4, mine));
}

/* Axes that shard the sequence have the case's cuts; of keys in the other order. */
static const sherd_layout *layout_in(const scene *s, const int64_t *shape, const char *placements,
                                     bool of_keys)
{
    const sherd_layout *layout = NULL, *even = layout_of(s->mesh, 4, shape, placements, NULL);
    const int64_t *views[4] = {NULL};
    int64_t reversed[PARTS] = {0};
    int parts = (int)sherd__dim_parts(s->mesh, &even->spec.dim[1]);

    if (s->cuts == EVEN || parts == 1)
        return even;
    const int64_t *of = sizes[s->cuts][shape[1] == MEMORY][parts];
    for (int i = 0; i < parts; i++)
        reversed[i] = of[parts - 1 - i];
    views[1] = of_keys ? reversed : of;
    sherd_placement placement[SHERD_MAX_AXES];
    for (int a = 0; a < sherd_mesh_axes(s->mesh); a++)
        placement[a] = sherd_layout_placement(even, a);
    CHECK_OK(sherd_layout_create(&layout, s->mesh, 4, shape, placement,
                                 &(sherd_layout_options){.sizes = views}));
    return layout;
}

static double difference(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *x = sherd_cast(sherd_full(a), SHERD_F64), *y = sherd_cast(b, SHERD_F64);
    const double *p = sherd_tensor_read(x), *q = sherd_tensor_read(y);
    double most = p && q && x->count == y->count ? 0 : 1e9;

    for (int64_t i = 0; most < 1e9 && i < x->count; i++) {
        double d = p[i] > q[i] ? p[i] - q[i] : q[i] - p[i];
        if (p[i] != q[i]) /* both may be -inf */
            most = d > most || d != d ? d : most;
    }
    return most;
}

/* A loss that all of both results is in; a sum of nothing is left out. */
static void back(const scene *s, sherd_tensor *y, sherd_tensor *sums)
{
    sherd_tensor *seed[2] = {numbers(s, 5, 4, y->shape), NULL};
    sherd_tensor *out[2] = {y, sums};
    scene as = *s;

    as.dtype = sums->dtype;
    seed[1] = numbers(&as, 6, 3, sums->shape);
    /* logarithms of who sees nothing have no gradient worth the name: only where there is no
     * mask */
    sherd_backward_with(out, seed, s->mask == NO_MASK && s->groups == 2 ? 2 : 1, NULL);
}

static void say(const scene *s, sherd_tensor *const *t, const char *what, int i)
{
    fprintf(stderr, "%s %d: way %d causal %d mask %d dropout %g: q %s k %s\n", what, i, (int)s->way,
            s->causal, s->mask, s->dropout, sherd_tensor_text(t[Q]), sherd_tensor_text(t[K]));
}

static void check_scene(const scene *s, double forward, double backward)
{
    const int64_t q[] = {BATCH, POSITIONS, HEADS, WIDTH}, k[] = {BATCH, s->keys, s->groups, WIDTH};
    sherd_tensor *plain[OPERANDS], *spread[OPERANDS], *y[2], *sums[2];
    sherd_generator g[2] = {sherd_generator_named("drops"), sherd_generator_named("drops")};

    sherd_scope_begin(s->world);
    for (int i = Q; i <= V; i++) {
        plain[i] = numbers(s, (uint64_t)i, 4, i ? k : q);
        spread[i] = sherd_distribute(plain[i], layout_in(s, i ? k : q, s->placements, i != Q), -1);
    }
    plain[MASK] = mask_of(s);
    spread[MASK] =
        plain[MASK] && s->mask == ADDED
            ? sherd_distribute(plain[MASK],
                               layout_of(s->mesh, 4, plain[MASK]->shape,
                                         sherd_mesh_axes(s->mesh) > 1 ? "RR" : "R", NULL),
                               -1)
            : plain[MASK];
    int wanted = s->mask == ADDED ? OPERANDS : MASK;
    for (int i = Q; i < wanted; i++) {
        sherd_require_grad(plain[i] = sherd_clone(plain[i]), true);
        sherd_require_grad(spread[i], true);
    }
    for (int i = 0; i < 2; i++) {
        sherd_tensor **t = i ? spread : plain;
        sherd_attention_options o = {.causal = s->causal,
                                     .mask = t[MASK],
                                     .dropout = s->dropout,
                                     .generator = &g[i],
                                     .way = s->way};
        sherd_attention_with(&y[i], &sums[i], t[Q], t[K], t[V], &o);
    }
    bool good = CHECK(!sherd_tensor_failed(y[0]) && !sherd_tensor_failed(y[1]));
    if (good) {
        good = CHECK_NEAR(difference(y[1], y[0]), 0, forward);
        good = CHECK_NEAR(difference(sums[1], sums[0]), 0, forward) && good;
        for (int i = 0; i < 2; i++)
            back(s, y[i], sums[i]);
        for (int i = Q; i < wanted; i++) {
            good = CHECK(sherd_grad(spread[i])->layout == spread[i]->layout) && good;
            good =
                CHECK_NEAR(difference(sherd_grad(spread[i]), sherd_grad(plain[i])), 0, backward) &&
                good;
        }
    }
    if (!good && sherd_world_rank(s->world) == 0)
        say(s, spread, "case", 0);
    CHECK_OK(sherd_world_check(s->world));
    sherd_scope_end(s->world);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/*
 * Causal or not, ways, cuts, masks, as many keys as queries or fewer (not causal), heads that share
 * keys or not. On two axes each mask has one length, and of causal ones each cut one mask. In the
 * short form a fifth of them, which other numbers of ranks begin elsewhere.
 */
static void run_all(scene *s, double forward, double backward)
{
    static const int64_t lengths[] = {POSITIONS, MEMORY};
    int number = sherd_world_ranks(s->world);

    for (int causal = 0; causal < 2; causal++)
        for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
            for (s->cuts = 0; s->cuts < CUTS; s->cuts++)
                for (s->mask = 0; s->mask < MASKS; s->mask++)
                    for (int i = 0; i < 2 - causal; i++) {
                        if (s->mesh->axes > 1 &&
                            (!causal ? i == s->mask % 2 : s->mask != s->cuts % MASKS))
                            continue;
                        s->causal = causal;
                        s->way = (sherd_attention_way)way;
                        s->keys = lengths[i];
                        for (s->groups = 1; s->groups <= HEADS; s->groups *= 2)
                            if (number++ % check_stride(5) == 0)
                                check_scene(s, forward, backward);
                    }
}

static void all_is_as_plain(sherd_world *world)
{
    run_all(&(scene){world, line(world), "S(1)", .dtype = SHERD_F64}, 1e-13, 1e-12);
}

static void all_is_as_plain_in_f32(sherd_world *world)
{
    run_all(&(scene){world, line(world), "S(1)", .dtype = SHERD_F32}, 1e-5, 1e-5);
}

/* Sequence by one axis; batch, heads, or the sequence too by the other. */
static void two_axes_are_as_plain(sherd_world *world)
{
    static const char *const placements[] = {"S(0)S(1)", "S(1)S(2)", "S(1)S(1)", "S(1)R",
                                             "S(3)S(1)"};

    for (int i = 0; i < LEN(placements); i++)
        run_all(&(scene){world, mesh_of(world, "2x2"), placements[i], .dtype = SHERD_F64}, 1e-13,
                1e-12);
}

static void what_is_dropped_depends_on_global_indices(sherd_world *world)
{
    scene s = {world, line(world), "S(1)", .dtype = SHERD_F64, .keys = POSITIONS, .dropout = 0.4};

    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
        for (s.cuts = 0; s.cuts < CUTS; s.cuts++)
            for (s.groups = 2; s.groups <= HEADS; s.groups *= 2) {
                s.way = (sherd_attention_way)way;
                s.causal = way % 2;
                check_scene(&s, 1e-13, 1e-12);
            }
}

/* Sums are f32 until the end: what differs is one rounding. */
static void of_16_bits_sums_stay_f32(sherd_world *world)
{
    scene s = {world, line(world), "S(1)", .keys = POSITIONS, .groups = HEADS};

    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
        for (s.cuts = 0; s.cuts < CUTS; s.cuts++)
            for (s.mask = 0; s.mask < MASKS; s.mask++)
                for (int half = 0; half < 2; half++) {
                    s.way = (sherd_attention_way)way;
                    s.causal = s.cuts % 2;
                    s.dtype = half ? SHERD_F16 : SHERD_BF16;
                    check_scene(&s, half ? 1e-3 : 8e-3, half ? 4e-3 : 3e-2);
                }
}

/* ---- one side alone is sharded --------------------------------------------------------------- */

static void one_side_may_be_sharded_alone(sherd_world *world)
{
    const int64_t q[] = {1, 8, 2, 3}, k[] = {1, 12, 2, 3};
    scene s = {world, line(world), .dtype = SHERD_F64};
    bool one = sherd_world_ranks(world) == 1;

    for (int which = 0; which < 3;
         which++) { /* queries; keys and values; keys, beside plain ones */
        sherd_tensor *t[3], *leaf[3];
        for (int i = 0; i < 3; i++) {
            bool sharded = which == 0 ? i == Q : i == K || (i == V && which == 1);
            t[i] = numbers(&s, (uint64_t)i, 4, i ? k : q);
            leaf[i] = sherd_require_grad(sherd_clone(t[i]), true);
            if (sharded || which < 2)
                t[i] = sherd_distribute(
                    t[i], layout_of(s.mesh, 4, i ? k : q, sharded ? "S(1)" : "R", NULL), -1);
            sherd_require_grad(t[i], true);
        }
        sherd_tensor *want = sherd_attention(leaf[Q], leaf[K], leaf[V], NULL);
        sherd_tensor *y = sherd_attention(t[Q], t[K], t[V], NULL);
        CHECK_NEAR(difference(y, want), 0, 1e-13);
        CHECK(one || !strcmp(sherd_layout_placements(y->layout), "S(1)"));
        sherd_backward(sherd_sum(sherd_mul(want, want)));
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(difference(sherd_grad(t[i]), sherd_grad(leaf[i])), 0, 1e-12);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- bad days -------------------------------------------------------------------------------- */

/* The n-th allocation of the last rank fails, until it goes through: the same verdict on all,
 * nothing is left behind. */
static void any_allocation_may_fail(sherd_world *world)
{
    const int64_t shape[] = {1, 6, 2, 3}, key[] = {6};
    scene s = {world, line(world), .dtype = SHERD_BF16};
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1, over = false;
    int failures = 0;

    for (int64_t n = 1; !over; n++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_require_grad(constant(&s, 4, shape, "S(1)"), true);
        sherd_tensor *mask = sherd_require_grad(constant(&s, 1, key, "R"), true);
        sherd_tensor_read(x);
        sherd_tensor_read(mask);
        sherd_world_fail_allocation(world, failing ? n : 0);
        for (int way = SHERD_ATTENTION_CHEAPEST; way <= SHERD_ATTENTION_HEADS; way++) {
            sherd_attention_options o = {.causal = true,
                                         .mask = way % 2 ? mask : NULL,
                                         .way = (sherd_attention_way)way,
                                         .zigzag = way ? 2 : 0};
            sherd_backward(sherd_sum(sherd_attention(x, x, x, &o)));
        }
        sherd_grad(x);
        bool mine = failing && sherd_world_allocations(world) < n;
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        failures += status != SHERD_OK;
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_scope_begin(world);
        sherd_tensor *t =
            sherd_constant_on(layout_of(s.mesh, 0, NULL, "P(sum)", NULL), SHERD_F64, 0);
        *(double *)sherd_tensor_write(t) = mine;
        over = sherd_item(t) > 0;
        sherd_scope_end(world);
    }
    CHECK(failures > 100);
    CHECK_EQ(sherd_world_memory(world).live_bytes, 0);
    CHECK_OK(sherd_world_check(world));
}

static void no_other_way_is_known(sherd_world *world)
{
    const int64_t shape[] = {1, 6, 2, 3};
    scene s = {world, line(world), .dtype = SHERD_F32};
    sherd_tensor *x = constant(&s, 4, shape, "S(1)");

    sherd_attention(x, x, x, &(sherd_attention_options){.way = (sherd_attention_way)4});
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_attention: there is no such way") != NULL);
}

/* What an operator on whole sequences refuses is refused by its name of sharded ones too. */
static void what_does_not_fit_is_refused(sherd_world *world)
{
    const int64_t shape[] = {1, 6, 2, 3}, longer[] = {1, 8, 2, 3}, wider[] = {1, 6, 2, 4};
    const sherd_attention_options causal = {.causal = true};
    scene s = {world, line(world), .dtype = SHERD_F32};
    sherd_tensor *x = constant(&s, 4, shape, "S(1)"), *y = constant(&s, 4, longer, "S(1)");
    sherd_tensor *z = constant(&s, 4, wider, "S(1)");

    sherd_attention(x, y, y, &causal);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "as many queries as keys") != NULL);
    sherd_attention(x, z, z, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "dim 3 of q is 3, dim 3 of k is 4") != NULL);
    sherd_attention(x, x, y, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "dim 1 of k is 6, dim 1 of v is 8") != NULL);
}

static const check_test tests[] = {
    {TEST(all_is_as_plain), {1, 2, 3, 4}},
    {TEST(all_is_as_plain_in_f32), {2, 3}},
    {TEST(two_axes_are_as_plain), {4}},
    {TEST(what_is_dropped_depends_on_global_indices), {1, 2, 3, 4}},
    {TEST(of_16_bits_sums_stay_f32), {1, 2, 3, 4}},
    {TEST(one_side_may_be_sharded_alone), {1, 2, 3, 4}},
    {TEST(any_allocation_may_fail), {2, 3}},
    {TEST(no_other_way_is_known), {1, 2, 3}},
    {TEST(what_does_not_fit_is_refused), {1, 2, 3}},
};
CHECK_MAIN(tests)
