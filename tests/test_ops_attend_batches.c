/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over several dims of batch, as windows of a field: with masks that are stretched in any
 * of them it gives what two products and a softmax give, with gradients, under layouts that shard
 * each dim by axes of its own; and then nothing moves.
 */
#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_masks.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include <string.h>
#include "differ.h"
#include "tensors.h"

enum { Q, K, V, MASK, OPERANDS };
enum { ITEMS = 2, WINDOWS = 6, ROWS = 5, KEYS = 4, HEADS = 2, WIDTH = 3 };

/* Smooth numbers that are equal on all ranks. */
static sherd_tensor *wave(sherd_world *world, int ndim, const int64_t *shape, double from)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F64, shape, ndim, 0);
    double *to = sherd_tensor_write(t);

    for (int64_t i = 0; to && i < sherd_tensor_count(t); i++)
        to[i] = sin(from + 1.3 * (double)i);
    return sherd_mark_equal(t);
}

/* Shapes of q, of k and v, and of a mask, from the end of [.., queries, heads, keys, width]. */
typedef struct scene {
    int batches, shared; /* heads of k for one of q */
    int64_t batch[4];
    int mask_dims;
    int64_t mask[7];
    bool seen;                    /* the mask is of bools */
    const char *layout[OPERANDS]; /* of the mesh's axes */
} scene;

static int shape_of(int64_t *out, const scene *s, int operand)
{
    for (int d = 0; d < s->batches; d++)
        out[d] = s->batch[d];
    out[s->batches] = operand == Q ? ROWS : KEYS;
    out[s->batches + 1] = operand == Q ? HEADS : HEADS / s->shared;
    out[s->batches + 2] = WIDTH;
    return s->batches + 3;
}

static void make(sherd_tensor *in[OPERANDS], sherd_world *world, const scene *s)
{
    int64_t shape[SHERD_MAX_DIMS];

    for (int i = Q; i <= V; i++)
        in[i] = wave(world, shape_of(shape, s, i), shape, 1 + i);
    in[MASK] = NULL;
    if (s->mask_dims)
        in[MASK] = wave(world, s->mask_dims, s->mask, 9);
    if (s->seen)
        in[MASK] = sherd_gt_scalar(in[MASK], -0.5);
    for (int i = Q; i < OPERANDS; i++)
        if (in[i] && (i < MASK || !s->seen))
            in[i] = sherd_require_grad(in[i], true);
}

/* Heads of k and v once for each head of q that shares them. */
static sherd_tensor *repeated(sherd_tensor *t, const scene *s)
{
    int64_t shape[SHERD_MAX_DIMS], one[SHERD_MAX_DIMS];
    int n = shape_of(shape, s, K);

    if (s->shared == 1)
        return t;
    memcpy(one, shape, sizeof one);
    one[n - 1] = s->shared;
    one[n] = WIDTH;
    t = sherd_expand(sherd_unsqueeze(t, n - 1), one, n + 1);
    shape[n - 2] = HEADS;
    return sherd_reshape(t, shape, n);
}

static sherd_tensor *by_hand(sherd_tensor *const in[OPERANDS], const scene *s)
{
    sherd_tensor *k = repeated(in[K], s), *v = repeated(in[V], s);
    sherd_tensor *scores =
        sherd_scale(sherd_einsum("...shw,...thw->...hst", (sherd_tensor *[]){in[Q], k}, 2), 0.7);

    if (s->seen)
        scores = sherd_masked_fill(scores, sherd_logical_not(in[MASK]), -50);
    else if (in[MASK])
        scores = sherd_add(scores, in[MASK]);
    return sherd_einsum("...hst,...thw->...shw", (sherd_tensor *[]){sherd_softmax(scores, -1), v},
                        2);
}

static sherd_tensor *attended(sherd_tensor *const in[OPERANDS], bool summed)
{
    const sherd_attention_options o = {.scale = 0.7, .mask = in[MASK]};
    sherd_tensor *y, *sums;

    if (!summed)
        return sherd_attention(in[Q], in[K], in[V], &o);
    sherd_attention_with(&y, &sums, in[Q], in[K], in[V], &o);
    return sherd_tensor_failed(sums) ? sums : y;
}

/* A sum whose addends all count differently. */
static sherd_tensor *loss_of(sherd_tensor *y)
{
    sherd_tensor *weight =
        wave(sherd_tensor_world(y), sherd_tensor_ndim(y), sherd_tensor_shape(y), 4);

    return sherd_sum(sherd_mul(y, weight));
}

static const scene scenes[] = {
    {2, 1, {ITEMS, WINDOWS}, 5, {1, WINDOWS, 1, ROWS, KEYS}, false, {"S(0)", "S(0)", "S(0)", "R"}},
    {2, 1, {ITEMS, WINDOWS}, 4, {WINDOWS, 1, ROWS, KEYS}, true, {"S(1)", "S(1)", "S(1)", "S(0)"}},
    {2, 1, {ITEMS, WINDOWS}, 3, {HEADS, ROWS, KEYS}, false, {"S(1)", "S(1)", "S(1)", "R"}},
    {2, 2, {ITEMS, 1}, 5, {ITEMS, 1, HEADS, 1, KEYS}, false, {"S(0)", "S(0)", "S(0)", "S(0)"}},
    {3, 1, {ITEMS, 3, 2}, 6, {ITEMS, 1, 2, 1, ROWS, KEYS}, false, {"S(1)", "S(1)", "R", "R"}},
    {4, 1, {2, 3, 1, 2}, 7, {1, 3, 1, 1, 1, ROWS, KEYS}, false, {"S(3)", "S(1)", "S(0)", "S(1)"}},
    {3, 2, {0, 3, 2}, 2, {ROWS, KEYS}, false, {"S(0)", "S(1)", "R", "R"}},
    {0, 1, {0}, 3, {HEADS, 1, KEYS}, false, {"S(1)", "S(1)", "R", "S(0)"}},
    {2, 1, {ITEMS, WINDOWS}, 0, {0}, false, {"S(1)", "S(1)", "S(0)", "R"}},
    {2, 1, {ITEMS, WINDOWS}, 4, {WINDOWS, 1, ROWS, KEYS}, false, {"S(2)", "S(2)", "S(2)", "R"}},
    {3, 1, {ITEMS, 1, WINDOWS}, 4, {1, HEADS, ROWS, KEYS}, true, {"S(3)", "S(3)", "S(3)", "R"}},
};

static void windows_attend_as_by_hand(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 2 * LEN(scenes); i++) {
        const scene *s = &scenes[i / 2];
        sherd_tensor *in[OPERANDS], *there[OPERANDS], *want[OPERANDS];
        sherd_scope_begin(world);
        make(in, world, s);
        sherd_tensor *y = by_hand(in, s);
        sherd_backward(loss_of(y));
        for (int j = Q; j < OPERANDS; j++) {
            want[j] = in[j] && (j < MASK || !s->seen) ? sherd_grad(in[j]) : NULL;
            there[j] =
                in[j] ? sherd_distribute_as(sherd_detach(in[j]), mesh, s->layout[j], -1) : NULL;
            if (want[j])
                there[j] = sherd_require_grad(there[j], true);
        }
        sherd_tensor *z = attended(there, i % 2);
        if (!CHECK(differ(z, y) < 1e-12))
            fprintf(stderr, "scene %d\n", i / 2);
        sherd_backward(loss_of(z));
        for (int j = Q; j < OPERANDS; j++)
            if (want[j] && !CHECK(differ(sherd_grad(there[j]), want[j]) < 1e-11))
                fprintf(stderr, "gradient %d of scene %d\n", j, i / 2);
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            return;
    }
}

/* ---- what moves ------------------------------------------------------------------------------ */

static int64_t calls_logged(sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).calls;
    return n;
}

/* A layout of the last dims of a tensor as of q [items,windows,..]. */
static sherd_tensor *spread(sherd_world *world, const sherd_mesh *mesh, const char *placements,
                            int ndim, const int64_t *shape, double from)
{
    sherd_tensor *t = sherd_distribute_as(wave(world, ndim, shape, from), mesh, placements, -1);

    return sherd_require_grad(t, true);
}

/* Items and windows by axes of their own, windows unevenly; a bias that is whole, one of windows. */
static void nothing_moves_where_batches_are_sharded_alike(sherd_world *world)
{
    static const int64_t q_shape[] = {ITEMS, WINDOWS, ROWS, HEADS, WIDTH};
    static const int64_t bias_shape[] = {HEADS, ROWS, ROWS}, mask_shape[] = {WINDOWS, 1, 1, ROWS};
    const char *text = sherd_world_ranks(world) % 2 ? "a=1,b=3" : "a=2,b=4";
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 4 ? "a=2,b=2" : text);

    for (int way = 0; way < 2; way++) {
        sherd_scope_begin(world);
        sherd_tensor *q = spread(world, mesh, "S(0)S(1)", 5, q_shape, 1);
        sherd_tensor *k = spread(world, mesh, "S(0)S(1)", 5, q_shape, 2);
        sherd_tensor *mask = way ? spread(world, mesh, "RS(0)", 4, mask_shape, 3)
                                 : spread(world, mesh, "RR", 3, bias_shape, 3);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_attention(q, k, k, &(sherd_attention_options){.mask = mask});
        CHECK(sherd_tensor_layout(y) == sherd_tensor_layout(q));
        sherd_backward_with(&y, &y, 1, NULL); /* leaves the mask's gradient pending */
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(calls_logged(world), 0);
        sherd_scope_end(world);
    }
}

/* ---- dropout, spans, zigzag, gradients of gradients ------------------------------------------ */

/* Weights are dropped by their index in the whole, however dims of batch are sharded or merged. */
static void the_same_weights_are_dropped(sherd_world *world)
{
    static const char *const ways[] = {"R", "S(0)", "S(1)", "S(2)", "S(3)", "S(4)"};
    static const int64_t shape[] = {ITEMS, 3, 2, ROWS, HEADS, WIDTH};
    static const int64_t mask[] = {3, 1, 1, ROWS, ROWS};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 2 * LEN(ways); i++) {
        sherd_generator g = sherd_generator_named("g"), h = sherd_generator_named("g");
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, 6, shape, 1), *m = i % 2 ? wave(world, 5, mask, 2) : NULL;
        sherd_tensor *one = sherd_reshape(x, (int64_t[]){ITEMS * 6, ROWS, HEADS, WIDTH}, 4);
        sherd_tensor *full = m ? sherd_expand(m, (int64_t[]){ITEMS, 3, 2, 1, ROWS, ROWS}, 6) : NULL;
        if (m)
            full = sherd_reshape(full, (int64_t[]){ITEMS * 6, 1, ROWS, ROWS}, 4);
        sherd_tensor *want = sherd_attention(
            one, one, one,
            &(sherd_attention_options){.dropout = 0.4, .generator = &g, .mask = full});
        sherd_tensor *q = sherd_distribute_as(x, mesh, ways[i / 2], -1);
        sherd_tensor *y = sherd_attention(
            q, q, q, &(sherd_attention_options){.dropout = 0.4, .generator = &h, .mask = m});
        CHECK(differ(sherd_reshape(sherd_full(y), want->shape, 4), want) < 1e-12);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Spans of one dim of batch, and rows in zigzag order, as of each window alone. */
static void spans_and_order_are_those_of_windows(sherd_world *world)
{
    static const char *const ways[] = {"R", "S(0)", "S(1)", "S(2)", "S(3)"};
    static const int64_t shape[] = {ITEMS, 3, 8, HEADS, WIDTH};
    int32_t spans[3 * 8 * 2];
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 3 * 8; i++) {
        spans[2 * i] = i % 8 < 3 + i / 8 ? 0 : 3 + i / 8;
        spans[2 * i + 1] = i % 8 < 3 + i / 8 ? 3 + i / 8 : 8;
    }
    for (int i = 0; i < 2 * LEN(ways); i++) {
        bool zigzag = i % 2;
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, 5, shape, 1);
        sherd_tensor *s =
            sherd_mark_equal(sherd_from_data(world, SHERD_I32, (int64_t[]){1, 3, 8, 2}, 4, spans));
        sherd_tensor *q = sherd_distribute_as(x, mesh, ways[i / 2], -1), *sums;
        sherd_attention_options o = {
            .causal = true, .spans = zigzag ? NULL : s, .zigzag = zigzag ? 2 : 0};
        sherd_attention_with(&q, &sums, q, q, q, &o);
        for (int w = 0; w < 3; w++) {
            sherd_attention_options own = o;
            own.spans = zigzag ? NULL : sherd_select(s, 1, w);
            sherd_tensor *one = sherd_reshape(sherd_select(x, 1, w), (int64_t[]){2, 8, 2, 3}, 4);
            sherd_tensor *y, *sum;
            sherd_attention_with(&y, &sum, one, one, one, &own);
            CHECK(differ(sherd_select(sherd_full(q), 1, w), y) < 1e-12);
            CHECK(differ(sherd_select(sherd_full(sums), 1, w), sum) < 1e-12);
        }
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Of every sequence in any dims of batch, and of none, the rows are compared; of no two of them:
 * here one ends where the next one begins. */
static void spans_fall_between_sequences_only(sherd_world *world)
{
    static const char *const ways[] = {"R", "S(0)", "S(1)", "S(2)"};
    enum { LONG = 8 };
    const sherd_mesh *mesh = line_of_ranks(world);
    uint8_t seen[LONG * LONG];
    int32_t spans[12 * LONG * 2];

    for (int i = 0; i < LONG * LONG; i++)
        seen[i] = i % LONG >= i / LONG / 2 && i % LONG <= i / LONG;
    for (int i = 0; i < 3 * 4 * LEN(ways); i++) {
        const int batches = i / LEN(ways) % 4, turn = i / LEN(ways) / 4, way = i % LEN(ways);
        int64_t shape[] = {2, 3, 2, LONG, 1, 2}, *of = shape + 3 - batches, rows = LONG;
        if (turn && way == batches + 1) /* pieces of sequences are looked at, each alone */
            continue;
        for (int d = 0; d < batches; d++)
            rows *= of[d];
        for (int j = 0; j < rows; j++) {
            spans[2 * j] = j % LONG / 2;
            spans[2 * j + 1] = j % LONG + 1;
        }
        if (turn) /* the last row's, or the second one's */
            spans[turn == 1 ? 2 * rows - 2 : 3] = 0;
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, batches + 3, of, 1);
        sherd_tensor *q = sherd_distribute_as(x, mesh, ways[way], -1);
        of[batches + 1] = 2;
        const sherd_attention_options in = {
            .spans = sherd_mark_equal(sherd_from_data(world, SHERD_I32, of, batches + 2, spans))};
        sherd_tensor *y = sherd_attention(q, q, q, &in);
        if (turn) {
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            CHECK(strstr(sherd_world_error(world), "spans must not fall") != NULL);
        } else {
            const sherd_attention_options by_mask = {
                .mask = sherd_mark_equal(
                    sherd_from_data(world, SHERD_BOOL, (int64_t[]){LONG, LONG}, 2, seen))};
            CHECK(differ(y, sherd_attention(x, x, x, &by_mask)) < 1e-12);
        }
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Whether sequences are sharded, so that dims of batch are merged, or not. */
static void spans_of_other_dims_are_refused(sherd_world *world)
{
    static const struct {
        int ndim;
        int64_t shape[4];
    } bad[] = {{4, {3, ITEMS, 8, 2}}, {3, {6, 8, 2}},        {3, {3, 8, 2}},    {3, {1, 8, 2}},
               {2, {8, 2}},           {4, {ITEMS, 3, 7, 2}}, {4, {1, 2, 8, 2}}, {4, {1, 3, 8, 1}}};
    static const char *const ways[] = {"R", "S(1)", "S(2)"};
    static const int64_t shape[] = {ITEMS, 3, 8, HEADS, WIDTH};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < LEN(bad) * LEN(ways); i++) {
        sherd_scope_begin(world);
        sherd_tensor *q = sherd_distribute_as(wave(world, 5, shape, 1), mesh, ways[i % 3], -1);
        sherd_tensor *s = sherd_constant(world, SHERD_I32, bad[i / 3].shape, bad[i / 3].ndim, 0);
        sherd_attention_options o = {.spans = sherd_mark_equal(s)};
        sherd_attention(q, q, q, &o);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), "sherd_attention: spans must be [...,queries")))
            fprintf(stderr, "%d by %s: %s\n", i / 3, ways[i % 3], sherd_world_error(world));
        sherd_scope_end(world);
    }
}

static void gradients_have_gradients(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const scene *s = &scenes[0];

    for (int way = 0; way < 2; way++) {
        sherd_tensor *in[OPERANDS], *grad[2];
        sherd_scope_begin(world);
        for (int i = 0; i < 2; i++) {
            make(in, world, s);
            if (!way)
                in[MASK] = NULL;
            if (i)
                in[Q] = sherd_require_grad(
                    sherd_distribute_as(sherd_detach(in[Q]), mesh, "S(1)", -1), true);
            sherd_tensor *y = i ? attended(in, false) : by_hand(in, s), *first;
            sherd_tensor *loss = loss_of(y);
            sherd_gradients(&first, &in[Q], 1, &loss, 1,
                            &(sherd_gradients_options){.create_graph = true});
            sherd_backward(sherd_sum(sherd_mul(first, first)));
            grad[i] = sherd_grad(in[K]);
        }
        CHECK(differ(grad[1], grad[0]) < 1e-11);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(windows_attend_as_by_hand), {1, 2, 3, 4, 8}},
    {TEST(nothing_moves_where_batches_are_sharded_alike), {3, 4, 8}},
    {TEST(the_same_weights_are_dropped), {1, 2, 3, 4, 8}},
    {TEST(spans_and_order_are_those_of_windows), {1, 2, 3, 4, 8}},
    {TEST(spans_fall_between_sequences_only), {1, 2, 3}},
    {TEST(spans_of_other_dims_are_refused), {1, 2, 3}},
    {TEST(gradients_have_gradients), {1, 2, 3}},
};
CHECK_MAIN(tests)
