/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences in zigzag order: rows have the positions that are documented, attention over them is
 * that over rows in order, whatever the way, the cuts and the options, and its work is equal.
 */
#include "sequences.h"

#include "ops/zigzag.h"
#include "sherd/dry.h"
#include "sherd/ops_shape.h"
#include "sherd/values.h"

/* ---- the order ------------------------------------------------------------------------------- */

/* By the words of the header. */
static void write_order(int64_t *position, int64_t n, int64_t shards)
{
    int64_t size = shards > 1 ? (n + shards - 1) / shards : n, front = 0, end = n, row = 0;

    for (int64_t i = 0; i < shards; i++) {
        int64_t mine = n - row < size ? n - row : size, first = (mine + 1) / 2;
        if (shards == 1)
            first = mine;
        end -= mine - first;
        for (int64_t j = 0; j < mine; j++)
            position[row++] = j < first ? front + j : end + j - first;
        front += first;
    }
}

static void rows_have_their_positions(sherd_world *world)
{
    static const int64_t lengths[] = {16, 10, 7, 5, 1, 0, 33}, shards[] = {1, 2, 3, 4, 8};
    const sherd_mesh *mesh = line(world);
    int64_t position[33];

    for (int i = 0; i < LEN(lengths); i++)
        for (int j = 0; j < LEN(shards); j++) {
            int64_t n = lengths[i], run;
            sherd_scope_begin(world);
            const sherd_layout *layout = layout_of(mesh, 1, &n, j % 2 ? "S(0)" : "R", NULL);
            sherd_tensor *x = sherd_arange_on(layout, SHERD_I32, 0, 1);
            sherd_tensor *y = sherd_zigzag(x, -1, shards[j]), *z = sherd_full(y);
            sherd_tensor *back = sherd_full(sherd_unzigzag(y, 0, shards[j]));
            const int32_t *p = sherd_tensor_read(z), *q = sherd_tensor_read(back);
            write_order(position, n, shards[j]);
            for (int64_t r = 0; r < n && CHECK(p && q); r++) {
                CHECK_EQ(p[r], position[r]);
                CHECK_EQ(q[r], r);
                CHECK_EQ(sherd__zigzag_position(n, shards[j], r, &run), position[r]);
                CHECK(run >= 1 && r + run <= n && position[r + run - 1] == position[r] + run - 1);
            }
            CHECK_OK(sherd_world_check(world));
            sherd_scope_end(world);
        }
}

static void rows_of_positions_are_those_that_have_them(sherd_world *world)
{
    static const int64_t lengths[] = {16, 10, 7, 5, 1, 0, 33}, shards[] = {0, 1, 2, 3, 4, 8};

    (void)world;
    for (int i = 0; i < LEN(lengths); i++)
        for (int64_t j = 0, n = lengths[i]; j < LEN(shards); j++)
            for (int64_t lo = 0; lo <= n; lo++)
                for (int64_t hi = lo; hi <= n; hi++) {
                    int64_t first = n, last = -1, from, end, run;
                    for (int64_t r = 0; r < n; r++) {
                        int64_t p = sherd__zigzag_position(n, shards[j], r, &run);
                        first = p >= lo && p < hi && r < first ? r : first;
                        last = p >= lo && p < hi ? r : last;
                    }
                    sherd__zigzag_rows(n, shards[j], lo, hi, &from, &end);
                    CHECK_EQ(end - from, lo < hi ? last + 1 - first : 0);
                    CHECK(lo == hi || from == first);
                }
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { PLAIN, WINDOW, SPANS, DROPS, MASKED, CAPPED, HOWS };

/* One case: so many positions, in the order for so many shards. */
typedef struct folded {
    scene s;
    int how;
    int64_t n, shards;
    bool twice; /* differentiated twice */
} folded;

static void options_for(const folded *f, sherd_attention_options *o, sherd_generator *g)
{
    const int64_t lengths[] = {f->n / 2, f->n - f->n / 2};

    *o = (sherd_attention_options){.causal = f->how != DROPS, .way = f->s.way};
    if (f->how == WINDOW)
        o->window = 3;
    if (f->how == SPANS) {
        o->spans = sherd_document_spans(f->s.world, lengths, 1, 2);
        o->causal = f->n % 2;
    }
    if (f->how == DROPS) {
        o->dropout = 0.4;
        o->generator = g;
    }
    if (f->how == CAPPED)
        o->softcap = 2;
    if (f->how == MASKED)
        o->mask = sherd_clone(numbers(&f->s, 77, 4, (int64_t[]){1, HEADS, f->n, f->n}));
}

static double difference(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *x = sherd_cast(sherd_full(a), SHERD_F64), *y = sherd_cast(b, SHERD_F64);
    const double *p = sherd_tensor_read(x), *q = sherd_tensor_read(y);
    double most = p && q && x->count == y->count ? 0 : 1e9;

    for (int64_t i = 0; most < 1e9 && i < x->count; i++) {
        double d = p[i] > q[i] ? p[i] - q[i] : q[i] - p[i];
        if (p[i] != q[i])
            most = d > most || d != d ? d : most;
    }
    return most;
}

/* Rows of a case as the sharded side has them; a leaf in the layout. */
static sherd_tensor *ordered(const folded *f, sherd_tensor *t, const char *cuts)
{
    const sherd_layout *layout = layout_of(f->s.mesh, t->ndim, t->shape, f->s.placements, cuts);

    return sherd_require_grad(sherd_distribute(sherd_zigzag(t, 1, f->shards), layout, -1), true);
}

static sherd_tensor *loss_of(sherd_tensor *y, sherd_tensor *sums, sherd_tensor *seed, bool all)
{
    sherd_tensor *loss = sherd_sum(sherd_mul(y, seed));

    return all ? sherd_add(loss, sherd_cast(sherd_sum(sherd_mul(sums, sums)), y->dtype)) : loss;
}

static void check_folded(const folded *f, const char *cuts, double near)
{
    const int64_t q[] = {BATCH, f->n, HEADS, WIDTH}, k[] = {BATCH, f->n, f->s.groups, WIDTH};
    sherd_tensor *plain[3], *spread[3], *y[2], *sums[2], *seed;
    sherd_generator g[2] = {sherd_generator_named("drops"), sherd_generator_named("drops")};
    sherd_attention_options o;
    sherd_world *world = f->s.world;
    bool all = f->how == PLAIN || f->how == WINDOW;

    sherd_scope_begin(world);
    for (int i = Q; i <= V; i++) {
        plain[i] = sherd_require_grad(sherd_clone(numbers(&f->s, (uint64_t)i, 4, i ? k : q)), true);
        spread[i] = ordered(f, sherd_detach(plain[i]), cuts);
    }
    seed = numbers(&f->s, 5, 4, q);
    options_for(f, &o, &g[0]);
    sherd_require_grad(o.mask, true);
    sherd_attention_with(&y[0], &sums[0], plain[Q], plain[K], plain[V], &o);
    sherd_tensor *mask = o.mask, *other = mask ? sherd_detach(mask) : NULL;
    if (mask)
        other = o.mask =
            sherd_require_grad(sherd_zigzag(sherd_zigzag(other, 2, f->shards), 3, f->shards), true);
    if (o.spans)
        o.spans = sherd_zigzag(o.spans, 1, f->shards);
    o.generator = o.generator ? &g[1] : NULL;
    o.zigzag = f->shards;
    sherd_attention_with(&y[1], &sums[1], spread[Q], spread[K], spread[V], &o);
    bool good = CHECK(!sherd_tensor_failed(y[1]) && !sherd_tensor_failed(sums[1])) &&
                CHECK(sherd_world_ranks(world) == 1 || y[1]->layout == spread[Q]->layout);
    if (good) {
        good = CHECK_NEAR(difference(sherd_unzigzag(y[1], 1, f->shards), y[0]), 0, near) &&
               CHECK_NEAR(difference(sherd_unzigzag(sums[1], 2, f->shards), sums[0]), 0, near);
        sherd_tensor *loss[2] = {loss_of(y[0], sums[0], seed, all),
                                 loss_of(y[1], sums[1], sherd_zigzag(seed, 1, f->shards), all)};
        for (int i = 0; i < 2; i++)
            sherd_backward(f->twice ? gradients_of(loss[i], i ? spread : plain) : loss[i]);
        for (int i = Q; i <= V; i++)
            good = CHECK_NEAR(difference(sherd_unzigzag(sherd_grad(spread[i]), 1, f->shards),
                                         sherd_grad(plain[i])),
                              0, 10 * near) &&
                   good;
        if (mask) {
            sherd_tensor *d = sherd_full(sherd_grad(other));
            d = sherd_unzigzag(sherd_unzigzag(d, 2, f->shards), 3, f->shards);
            good = CHECK_NEAR(difference(d, sherd_grad(mask)), 0, 10 * near) && good;
        }
    }
    if (!CHECK_OK(sherd_world_check(world)) || !good)
        fprintf(stderr, "way %d how %d n %d for %d: q %s: %s\n", (int)f->s.way, f->how, (int)f->n,
                (int)f->shards, sherd_tensor_text(spread[Q]), sherd_world_error(world));
    sherd_scope_end(world);
}

/* Every way and option; orders for the ranks that there are, and for others; short last shards. */
static void attention_is_that_in_order(sherd_world *world)
{
    static const int64_t lengths[] = {16, 13, 6};
    const int64_t p = sherd_world_ranks(world), shards[] = {p, 2, 5};
    folded f = {.s = {world, line(world), "S(1)", .dtype = SHERD_F64}};
    int number = (int)p;

    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
        for (f.how = 0; f.how < HOWS; f.how++)
            for (int i = 0; i < LEN(lengths); i++)
                for (int j = 0; j < LEN(shards); j++) {
                    f.s.way = (sherd_attention_way)way;
                    f.s.groups = f.how % 2 ? HEADS : 2;
                    f.n = lengths[i];
                    f.shards = shards[j];
                    if (number++ % check_stride(7) == 0)
                        check_folded(&f, NULL, 1e-13);
                }
}

static void any_cuts_and_axes_are_right(sherd_world *world)
{
    static const char *const placements[] = {"S(0)S(1)", "S(1)S(2)", "S(1)S(1)", "RS(1)"};
    folded f = {.s = {world, line(world), "S(1)", .dtype = SHERD_F64, .groups = HEADS}, .n = 16};

    f.shards = 4;
    for (f.how = 0; f.how < HOWS; f.how++)
        check_folded(&f, "1:1,9,0,6", 1e-13);
    f.s.mesh = mesh_of(world, "2x2");
    for (int i = 0; i < LEN(placements); i++)
        for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++) {
            f.s.placements = placements[i];
            f.s.way = (sherd_attention_way)way;
            f.how = (i + way) % HOWS;
            f.shards = i == 2 ? 4 : 2;
            check_folded(&f, NULL, 1e-13);
        }
}

static void of_other_dtypes_too(sherd_world *world)
{
    const int64_t p = sherd_world_ranks(world);
    folded f = {.s = {world, line(world), "S(1)", .groups = HEADS}, .n = 24, .shards = p};

    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++) {
        f.s.way = (sherd_attention_way)way;
        f.s.dtype = SHERD_F32;
        check_folded(&f, NULL, 1e-5);
        f.s.dtype = SHERD_BF16;
        check_folded(&f, NULL, 3e-2);
    }
}

static void it_can_be_differentiated_twice(sherd_world *world)
{
    const int64_t p = sherd_world_ranks(world);
    folded f = {.s = {world, line(world), "S(1)", SHERD_F64, .groups = 2}, .n = 10, .shards = p};

    f.twice = true;
    f.s.way = SHERD_ATTENTION_RING;
    for (f.how = 0; f.how < HOWS; f.how++)
        if (f.how != DROPS && f.how != MASKED)
            check_folded(&f, NULL, 1e-11);
}

/* ---- the work -------------------------------------------------------------------------------- */

typedef struct work {
    double operations;
    int64_t bytes; /* that the rank gets */
} work;

/* Forward and backward of causal attention on one rank of p. */
static work work_of(int p, int rank, sherd_attention_way way, bool zigzag)
{
    const int64_t shape[] = {1, 64 * p, 2, 4};
    sherd_world *world = NULL;
    work w = {0, 0};
    sherd_dry_work at;

    CHECK_OK(sherd_world_dry(&world, p, rank, NULL, NULL));
    const sherd_layout *layout = layout_of(line(world), 4, shape, "S(1)", NULL);
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 1), true);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_attention(
        x, x, x, &(sherd_attention_options){.causal = true, .way = way, .zigzag = zigzag ? p : 0});
    sherd_backward_with(&y, &(sherd_tensor *){sherd_detach(y)}, 1, NULL);
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; (at = sherd_dry_work_at(world, i)).name; i++)
        if (strstr(at.name, "attention"))
            w.operations += at.operations;
    w.bytes = sherd_comm_bytes(world, NULL);
    CHECK_OK(sherd_world_close(world));
    return w;
}

static void all_ranks_have_the_same_work(sherd_world *world)
{
    static const int ranks[] = {2, 3, 4, 8};

    (void)world;
    for (int i = 0; i < LEN(ranks); i++)
        for (int way = SHERD_ATTENTION_RING; way <= SHERD_ATTENTION_GATHER; way++) {
            int p = ranks[i];
            work first = work_of(p, 0, (sherd_attention_way)way, true), most = {0, 0};
            double sum = 0;
            for (int r = 0; r < p; r++) {
                work in_order = work_of(p, r, (sherd_attention_way)way, false);
                work w = work_of(p, r, (sherd_attention_way)way, true);
                CHECK(w.operations == first.operations);
                sum += in_order.operations;
                most.operations =
                    in_order.operations > most.operations ? in_order.operations : most.operations;
                most.bytes = in_order.bytes > most.bytes ? in_order.bytes : most.bytes;
            }
            CHECK_NEAR(p * first.operations / sum, 1, 1e-12);          /* no more in all, .. */
            CHECK(most.operations > first.operations * (2 - 1.1 / p)); /* .. for the last, less */
        }
}

/* Of keys and values, in a ring: the tails of later shards, and the heads of all. */
static void a_rank_gets_what_its_queries_see(sherd_world *world)
{
    const int64_t p = sherd_world_ranks(world), r = sherd_world_rank(world);
    const int64_t shape[] = {1, 8 * p, 2, 3}, half = 4 * 6 * 8;
    const sherd_comm_filter forward = {.direction = SHERD_COMM_FORWARD};
    const sherd_attention_options o = {
        .causal = true, .way = SHERD_ATTENTION_RING, .zigzag = sherd_world_ranks(world)};
    scene s = {world, line(world), .dtype = SHERD_F64};
    sherd_tensor *x =
        sherd_distribute(numbers(&s, 1, 4, shape), layout_of(s.mesh, 4, shape, "S(1)", NULL), -1);

    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_tensor_read(sherd_attention(x, x, x, &o));
    CHECK_EQ(sherd_comm_bytes(world, &forward), 2 * (p - 1 + p - 1 - r) * half);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what else is told ----------------------------------------------------------------------- */

/* Of more shards than rows each row is one. */
static void there_may_be_any_number_of_shards(sherd_world *world)
{
    const int64_t shards[] = {5, 6, INT64_MAX}, shape[] = {BATCH, 5, 2, 4};
    scene s = {world, line(world), .dtype = SHERD_F64};
    sherd_tensor *x = numbers(&s, 1, 4, shape), *order[3], *turned[3];

    for (int i = 0; i < 3; i++) {
        order[i] = sherd_zigzag(x, 1, shards[i]);
        turned[i] = sherd_rotary(x, NULL, &(sherd_rotary_options){.zigzag = shards[i]});
        CHECK_EQ(difference(sherd_unzigzag(order[i], 1, shards[i]), x), 0);
        CHECK_EQ(difference(order[i], order[0]), 0);
        CHECK_EQ(difference(turned[i], turned[0]), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void positions_turn_as_in_order(sherd_world *world)
{
    const int64_t p = sherd_world_ranks(world), shape[] = {BATCH, 13, 2, 4};
    scene s = {world, line(world), .dtype = SHERD_F64};
    folded f = {.s = s, .shards = p};

    f.s.placements = "S(1)";
    sherd_tensor *x = numbers(&s, 1, 4, shape);
    sherd_tensor *want = sherd_rotary(x, NULL, &(sherd_rotary_options){.offset = 5});
    sherd_tensor *y =
        sherd_rotary(ordered(&f, x, NULL), NULL, &(sherd_rotary_options){.offset = 5, .zigzag = p});
    CHECK_NEAR(difference(sherd_unzigzag(y, 1, p), want), 0, 1e-13);
    CHECK_OK(sherd_world_check(world));
}

static void what_does_not_fit_is_refused(sherd_world *world)
{
    const int64_t shape[] = {1, 6, 2, 4}, longer[] = {1, 8, 2, 4};
    scene s = {world, line(world), .dtype = SHERD_F32};
    sherd_tensor *x = constant(&s, 4, shape, "S(1)"), *y = constant(&s, 4, longer, "S(1)");

    sherd_attention(x, y, y, &(sherd_attention_options){.zigzag = 2});
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "zigzag needs as many queries as keys") != NULL);
    sherd_attention(x, x, x, &(sherd_attention_options){.zigzag = -1});
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "zigzag is negative") != NULL);
    sherd_rotary(x, NULL, &(sherd_rotary_options){.zigzag = -1});
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_rotary: zigzag is negative") != NULL);
    sherd_zigzag(x, 4, 2);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_zigzag: no dim 4") != NULL);
    sherd_unzigzag(x, 1, 0);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_unzigzag: 0 shards: at least one") != NULL);
}

static const check_test tests[] = {
    {TEST(rows_have_their_positions), {1, 2, 3, 4, 8}},
    {TEST(rows_of_positions_are_those_that_have_them), {1}},
    {TEST(there_may_be_any_number_of_shards), {1, 2, 3}},
    {TEST(attention_is_that_in_order), {1, 2, 3, 4, 8}},
    {TEST(any_cuts_and_axes_are_right), {4}},
    {TEST(of_other_dtypes_too), {2, 3}},
    {TEST(it_can_be_differentiated_twice), {1, 2, 3}},
    {TEST(all_ranks_have_the_same_work), {1}},
    {TEST(a_rank_gets_what_its_queries_see), {1, 2, 3, 4, 8}},
    {TEST(positions_turn_as_in_order), {1, 2, 3, 4, 8}},
    {TEST(what_does_not_fit_is_refused), {1, 2, 3}},
};
CHECK_MAIN(tests)
