/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention within documents that are packed into sequences, and within other spans of keys: as a
 * mask says it, with all gradients, whatever is sharded, and however sequences communicate.
 */
#include "differ.h"
#include "sequences.h"

#include <math.h>

#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"
#include "sherd/values.h"

enum { DOCUMENTS = 4 };

static const int64_t lengths[][BATCH][DOCUMENTS] = {
    {{5, 1, 7, 3}, {0, 9, 0, 7}}, {{16, 0, 0, 0}, {4, 4, 4, 4}}, {{1, 1, 1, 13}, {15, 1, 0, 0}}};

/* Documents; or keys of `t` that no document is: a prefix, and what goes up by steps, some empty. */
enum { FIRST_ONLY = LEN(lengths), STEPS = FIRST_ONLY + 1, KINDS };

static sherd_tensor *spans_of(sherd_world *world, int kind, int64_t t)
{
    int32_t span[POSITIONS][2];
    const int64_t shape[] = {1, POSITIONS, 2};

    if (kind < FIRST_ONLY)
        return sherd_document_spans(world, lengths[kind][0], BATCH, DOCUMENTS);
    for (int i = 0; i < POSITIONS; i++) {
        span[i][0] = kind == STEPS ? i / 3 * 2 : 0;
        span[i][1] = kind == STEPS ? i / 5 * 3 : (int32_t)(i < 6 ? 6 : i + 1 < t ? i + 1 : t);
    }
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, 3, span));
}

/* What they say, as a mask of [batch or 1,1,queries,keys]. */
static sherd_tensor *mask_of(sherd_tensor *spans, int64_t t, bool causal, int64_t window)
{
    const int32_t *span = sherd_tensor_read(spans);
    const int64_t shape[] = {spans->shape[0], 1, POSITIONS, t};
    unsigned char seen[BATCH * POSITIONS * POSITIONS];

    for (int64_t i = 0; i < shape[0] * POSITIONS * t; i++) {
        int64_t row = i / t, key = i % t, query = row % POSITIONS;
        seen[i] = key >= span[2 * row] && key < span[2 * row + 1] && (!causal || key <= query) &&
                  (!window || key > query - window);
    }
    return sherd_mark_equal(sherd_from_data(sherd_tensor_world(spans), SHERD_BOOL, shape, 4, seen));
}

/* A loss that all of the result is in, or its gradients. */
static sherd_tensor *loss_of(const scene *s, sherd_tensor *y, sherd_tensor *const *x, bool twice)
{
    sherd_tensor *loss = sherd_sum(sherd_mul(y, numbers(s, 5, 4, y->shape)));

    return twice ? gradients_of(loss, x) : loss;
}

/* spread: how spans lie; NULL = plain. */
static void check_documents(const scene *s, int kind, int64_t window, const char *spread,
                            bool twice)
{
    const int64_t q[] = {BATCH, POSITIONS, HEADS, WIDTH}, k[] = {BATCH, s->keys, s->groups, WIDTH};
    const double off = s->dtype == SHERD_F64 ? 1e-12 : s->dtype == SHERD_F32 ? 1e-5 : 2e-2;
    sherd_tensor *x[2][3], *y[2], *sums[2];
    bool good = true;

    sherd_scope_begin(s->world);
    sherd_tensor *spans = spans_of(s->world, kind, s->keys);
    sherd_attention_options how[2] = {
        {.mask = mask_of(spans, s->keys, s->causal, window)},
        {.causal = s->causal, .spans = spans, .window = window, .way = s->way}};
    if (spread)
        how[1].spans = sherd_distribute_as(spans, s->mesh, spread, -1);
    for (int side = 0; side < 2; side++) {
        for (int i = Q; i <= V; i++) {
            sherd_tensor *t = numbers(s, (uint64_t)i, 4, i ? k : q);
            t = side ? sherd_distribute_as(t, s->mesh, s->placements, -1) : t;
            x[side][i] = sherd_require_grad(sherd_clone(t), true);
        }
        CHECK(sherd_attention_with(&y[side], &sums[side], x[side][Q], x[side][K], x[side][V],
                                   &how[side]));
    }
    good = CHECK(differ(y[1], y[0]) <= off) && CHECK(differ(sums[1], sums[0]) <= off);
    for (int side = 0; side < 2 && good; side++)
        sherd_backward(loss_of(s, y[side], x[side], twice));
    for (int i = Q; i <= V && good; i++)
        good = CHECK(differ(sherd_grad(x[1][i]), sherd_grad(x[0][i])) <= (twice ? 50 : 4) * off);
    if (!good && sherd_world_rank(s->world) == 0)
        fprintf(stderr, "kind %d causal %d window %d way %d groups %d keys %d %s %s twice %d\n",
                kind, s->causal, (int)window, (int)s->way, (int)s->groups, (int)s->keys,
                sherd_dtype_name(s->dtype), s->placements, twice);
    CHECK_OK(sherd_world_check(s->world));
    sherd_scope_end(s->world);
}

static void run_all(scene *s, int count)
{
    int ranks = sherd_world_ranks(s->world), number = ranks;

    for (int kind = 0; kind < KINDS; kind++)
        for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
            for (int cuts = 0; cuts < 3; cuts++)
                for (int causal = 0; causal < 2; causal++, number++) {
                    if (number % check_stride(count))
                        continue;
                    s->way = (sherd_attention_way)way;
                    s->placements = cuts_of[ranks < 5 ? ranks : 1][ranks < 5 ? cuts : 0];
                    s->groups = number % 2 ? HEADS : HEADS / 2;
                    s->causal = causal;
                    s->keys = POSITIONS;
                    check_documents(s, kind, causal && kind % 2 ? 3 : 0, number % 3 ? NULL : "S(1)",
                                    false);
                }
}

static void documents_are_masks(sherd_world *world)
{
    run_all(&(scene){world, line(world), .dtype = SHERD_F64}, 5);
}

static void documents_of_f32_are_too(sherd_world *world)
{
    run_all(&(scene){world, line(world), .dtype = SHERD_F32}, 7);
}

static void documents_of_16_bits_are_too(sherd_world *world)
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
                       .groups = HEADS,
                       .keys = POSITIONS,
                       .causal = way % 2};
            check_documents(&s, (i + way) % KINDS, 0, i % 2 ? "RS(0)" : NULL, false);
        }
}

/* Keys that are as many as they like: spans of what another sequence has. */
static void keys_may_be_others(sherd_world *world)
{
    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++) {
        scene s = {world,
                   line(world),
                   "S(1)",
                   .dtype = SHERD_F64,
                   .way = (sherd_attention_way)way,
                   .groups = HEADS,
                   .keys = MEMORY};
        check_documents(&s, STEPS, 0, NULL, false);
        check_documents(&s, FIRST_ONLY, 0, NULL, false);
    }
}

static void gradients_have_gradients(sherd_world *world)
{
    for (int kind = 0; kind < STEPS; kind++) {
        scene s = {world,
                   line(world),
                   "S(1)",
                   .dtype = SHERD_F64,
                   .way = (sherd_attention_way)kind,
                   .groups = HEADS,
                   .keys = POSITIONS,
                   .causal = kind % 2};
        check_documents(&s, kind, 0, kind == 1 ? "S(1)" : NULL, true);
    }
}

/* Each document as if it were alone, to the last bit; and what others are does not matter. */
static void a_document_is_alone(sherd_world *world)
{
    enum { LONG = 700, FIRST = 320, EACH = 290 };
    static const int64_t parts[] = {FIRST, EACH, LONG - FIRST - EACH};
    const int64_t shape[] = {1, LONG, 2, 5};

    for (int d = 0; d < 3; d++) {
        sherd_dtype dtype = (sherd_dtype[]){SHERD_F32, SHERD_F64, SHERD_BF16}[d];
        scene s = {world, line(world), .dtype = dtype};
        sherd_attention_options how = {.causal = true};
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_clone(numbers(&s, 1, 4, shape));
        sherd_tensor *one = sherd_clone(sherd_narrow(x, 1, FIRST, EACH));
        sherd_tensor *alone = sherd_attention(one, one, one, &how);
        sherd_fill(sherd_narrow(x, 1, 0, FIRST - 40), NAN);
        how.spans = sherd_document_spans(world, parts, 1, LEN(parts));
        sherd_tensor *y = sherd_narrow(sherd_attention(x, x, x, &how), 1, FIRST + 60, EACH - 60);
        double a[(EACH - 60) * 10], b[(EACH - 60) * 10];
        CHECK(sherd_full_read(a, sizeof a, y, SHERD_F64, -1));
        CHECK(sherd_full_read(b, sizeof b, sherd_narrow(alone, 1, 60, EACH - 60), SHERD_F64, -1));
        double most = 0;
        for (int i = 0; i < LEN(a); i++)
            most = fmax(most, isnan(a[i] - b[i]) ? INFINITY : fabs(a[i] - b[i]));
        CHECK(most <= (dtype == SHERD_F64 ? 1e-14 : dtype == SHERD_F32 ? 2e-6 : 8e-3));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void says(sherd_world *world, const char *text)
{
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

static void spans_that_fall_are_refused_on_all_ranks(sherd_world *world)
{
    const int64_t q[] = {1, POSITIONS, 2, 3}, shape[] = {1, POSITIONS, 2};

    for (int way = 0; way <= SHERD_ATTENTION_HEADS; way++)
        for (int side = 0; side < 2; side++) {
            scene s = {world, line(world), .dtype = SHERD_F32};
            int32_t span[POSITIONS][2];
            sherd_scope_begin(world);
            for (int i = 0; i < POSITIONS; i++)
                span[i][0] = span[i][1] = i;
            span[3][side] = 1;
            sherd_tensor *x = constant(&s, 4, q, "S(1)");
            sherd_attention(x, x, x,
                            &(sherd_attention_options){.way = (sherd_attention_way)way,
                                                       .spans = sherd_mark_equal(sherd_from_data(
                                                           world, SHERD_I32, shape, 3, span))});
            says(world, side ? "the span [3,1) comes after [2,2): spans must not fall"
                             : "the span [1,3) comes after [2,2): spans must not fall");
            sherd_scope_end(world);
        }
}

static _Thread_local sherd_tensor *operand[4];

static void packed_scene(sherd_world *world)
{
    sherd_tensor *x[3];

    sherd_scope_begin(world);
    for (int i = 0; i < 3; i++)
        x[i] = sherd_require_grad(sherd_clone(operand[i]), true);
    for (int way = SHERD_ATTENTION_RING; way <= SHERD_ATTENTION_HEADS; way++) {
        sherd_attention_options how = {.spans = operand[3], .way = (sherd_attention_way)way};
        sherd_backward(sherd_sum(sherd_attention(x[0], x[1], x[2], &how)));
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const int64_t shape[] = {BATCH, POSITIONS, 2, 3};
    scene s = {world, line(world), .dtype = SHERD_BF16};

    for (int i = 0; i < 3; i++)
        operand[i] = constant(&s, 4, shape, "S(1)");
    operand[3] = spans_of(world, 0, POSITIONS);
    for (int i = 0; i < 4; i++) /* an error's text has theirs, which they keep */
        (void)sherd_tensor_text(operand[i]);
    CHECK_OK(sherd_world_check(world));
    fail_every_allocation(world, sherd_world_ranks(world) - 1, packed_scene);
}

static const check_test tests[] = {
    {TEST(documents_are_masks), {1, 2, 3, 4, 8}},
    {TEST(documents_of_f32_are_too), {1, 3, 4}},
    {TEST(documents_of_16_bits_are_too), {1, 3}},
    {TEST(heads_and_items_may_be_sharded), {4}},
    {TEST(keys_may_be_others), {1, 2, 3, 4}},
    {TEST(gradients_have_gradients), {1, 2, 3}},
    {TEST(a_document_is_alone), {1}},
    {TEST(spans_that_fall_are_refused_on_all_ranks), {1, 2, 3, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2}},
};
CHECK_MAIN(tests)
