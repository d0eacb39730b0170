/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by primitives that are kept, against sums in f64 written out: f32, and bf16 with results
 * of bf16 and f32, all transpositions, sizes around the edges of tiles, with and without a bias.
 * What lies behind the operands is NaN: one that is read and multiplied by nothing would show. Then
 * what is kept: bounded, found again, and gone with the engine; and no memory.
 */
#define CHECK_PURE
#include "check.h"
#include "kernels/engine.h"
#include "kernels/half.h"
#include "kernels/ref.h"
#include "kernels/shapes.h"
#include "vector/choose.h"

enum { ROOM = 300 * 300, BEHIND = 64 };

static sherd__kernel_set set;
static float a[ROOM], b[ROOM], bias[ROOM], c[ROOM];
static uint16_t half_a[ROOM], half_b[ROOM], half_bias[ROOM], half_c[ROOM];

/* Values that bf16 holds, so that both dtypes compute the same; behind them NaN. */
static void draw(float *wide, uint16_t *half, int64_t n, unsigned stream)
{
    sherd__ref_f32.uniform(n, wide, -1, 1, sherd__philox_key(1, 1, stream), 0);
    for (int64_t i = 0; i < n + BEHIND; i++) {
        half[i] = sherd__to_bf16(i < n ? wide[i] : NAN);
        wide[i] = sherd__from_bf16(half[i]);
    }
}

static double element(const sherd__product *p, int64_t i, int64_t j)
{
    double total = p->bias ? (double)bias[j] : 0;

    for (int64_t x = 0; x < p->k; x++)
        total += (double)a[p->ta ? x * p->m + i : i * p->k + x] *
                 (double)b[p->tb ? j * p->k + x : x * p->n + j];
    return total;
}

static void compare(const sherd__product *p)
{
    bool half = p->result == SHERD_BF16;
    int64_t wrong = 0;

    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double want = element(p, i, j), is = (double)c[i * p->n + j];
            if (half)
                is = (double)sherd__from_bf16(half_c[i * p->n + j]);
            double within = 1e-6 * (2 + (double)p->k) + (half ? fabs(want) * 0x1p-8 : 0);
            wrong += !(fabs(is - want) <= within);
        }
    if (half)
        wrong += half_c[p->m * p->n] != 0x4242;
    else
        wrong += c[p->m * p->n] != 42;
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s -> %s, %c%c %d x %d x %d%s\n", sherd_dtype_name(p->dtype),
                sherd_dtype_name(p->result), p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', (int)p->m,
                (int)p->n, (int)p->k, p->bias ? " + bias" : "");
}

/* Whether it was done. */
static bool try_product(sherd__engine *engine, const sherd__product *p)
{
    bool half = p->dtype == SHERD_BF16;

    draw(a, half_a, p->m * p->k, 1);
    draw(b, half_b, p->k * p->n, 2);
    draw(bias, half_bias, p->n, 3);
    c[p->m * p->n] = 42;
    half_c[p->m * p->n] = 0x4242;
    sherd__done done = set.product(engine, p, p->result == SHERD_BF16 ? (void *)half_c : c,
                                   half ? (const void *)half_a : a, half ? (const void *)half_b : b,
                                   !p->bias ? NULL
                                   : half   ? (const void *)half_bias
                                            : bias);
    if (done == SHERD__DONE)
        compare(p);
    CHECK(done != SHERD__NO_MEMORY);
    CHECK(done == SHERD__DONE || half || p->bias); /* f32 without a bias is always done */
    return done == SHERD__DONE;
}

static int try_shape(sherd__engine *engine, int64_t m, int64_t n, int64_t k)
{
    static const sherd_dtype types[][2] = {
        {SHERD_F32, SHERD_F32}, {SHERD_BF16, SHERD_BF16}, {SHERD_BF16, SHERD_F32}};
    int done = 0;

    for (int t = 0; t < LEN(types); t++)
        for (int way = 0; way < 8; way++)
            done += try_product(engine, &(sherd__product){.dtype = types[t][0],
                                                          .result = types[t][1],
                                                          .ta = way & 1,
                                                          .tb = way >> 1 & 1,
                                                          .bias = way >> 2,
                                                          .m = m,
                                                          .n = n,
                                                          .k = k});
    return done;
}

static void products_are_sums_of_products(void)
{
    static const int64_t edges[] = {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 65};
    static const int64_t large[][3] = {{97, 65, 257},   {256, 33, 256}, {5, 280, 20}, {280, 3, 64},
                                       {130, 130, 130}, {65, 33, 63},   {68, 58, 63}};
    sherd__heap heap = {0};
    int done = 0;

    sherd__kernels_choose(&set);
    sherd__engine *engine = sherd__engine_create(&heap);
    for (int i = 0; i < LEN(edges) && set.product; i++)
        for (int j = 0; j < LEN(edges); j++)
            done += try_shape(engine, edges[i], edges[j], edges[(3 * i + 5 * j) % LEN(edges)]);
    for (int i = 0; i < LEN(large) && set.product; i++)
        done += try_shape(engine, large[i][0], large[i][1], large[i][2]);
    CHECK(!set.product || done > 0);
    CHECK(sherd__engine_kept(engine) <= SHERD__PRIMITIVES);
    CHECK(!set.product || sherd__engine_kept(engine) > SHERD__PRIMITIVES / 2);
    sherd__engine_destroy(engine);
    CHECK_EQ(heap.live, 0);
}

/* What there is nothing to multiply of, and dtypes that oneDNN has no products of. */
static void what_can_not_be_done_is_said(void)
{
    sherd__heap heap = {0};
    sherd__engine *engine = sherd__engine_create(&heap);
    sherd__product none = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 3, .n = 4};
    sherd__product f16 = {.dtype = SHERD_F16, .result = SHERD_F16, .m = 3, .n = 4, .k = 5};

    sherd__kernels_choose(&set);
    if (set.product) {
        CHECK_EQ(set.product(engine, &none, c, a, b, NULL), SHERD__CANNOT);
        CHECK_EQ(set.product(engine, &f16, half_c, half_a, half_b, NULL), SHERD__CANNOT);
    }
    sherd__engine_destroy(engine);
    sherd__engine_destroy(NULL);
    CHECK_EQ(heap.live, 0);
}

static void no_memory_is_said_and_nothing_is_lost(void)
{
    const sherd__product p = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 16, .n = 16, .k = 16};
    sherd__heap heap = {0};
    sherd__done done = SHERD__NO_MEMORY;

    sherd__kernels_choose(&set);
    draw(a, half_a, 256, 1);
    draw(b, half_b, 256, 2);
    for (int n = 1; n < 20 && set.product && done != SHERD__DONE; n++) {
        sherd__engine *engine = sherd__engine_create(&heap);
        heap.allocations = 0;
        heap.fail_at = n;
        done = set.product(engine, &p, c, a, b, NULL);
        CHECK_EQ(done, n < 4 ? SHERD__NO_MEMORY : SHERD__DONE);
        heap.fail_at = 0;
        if (done == SHERD__NO_MEMORY)
            CHECK_EQ(set.product(engine, &p, c, a, b, NULL), SHERD__DONE);
        sherd__engine_destroy(engine);
        CHECK_EQ(heap.live, 0);
    }
    CHECK(!set.product || done == SHERD__DONE);
}

/* ---- what is kept --------------------------------------------------------------------------- */

static void count_down(void *thing)
{
    --*(int *)thing;
}

static void the_one_not_used_for_longest_goes(void)
{
    enum { MOST = 3, MANY = 5 };
    sherd__heap heap = {0};
    sherd__shapes shapes = {.heap = &heap, .most = MOST};
    int there[MANY] = {1, 1, 1, 1, 1};

    for (int64_t i = 0; i < MOST; i++)
        CHECK(sherd__shapes_add(&shapes, &i, sizeof i, &there[i], count_down));
    CHECK(sherd__shapes_find(&shapes, &(int64_t){0}, 8) == &there[0]);
    for (int64_t i = MOST; i < MANY; i++)
        CHECK(sherd__shapes_add(&shapes, &i, sizeof i, &there[i], count_down));
    CHECK(sherd__shapes_find(&shapes, &(int64_t){0}, 8) == &there[0]);
    CHECK(!sherd__shapes_find(&shapes, &(int64_t){1}, 8));
    CHECK(!sherd__shapes_find(&shapes, &(int32_t){0}, 4));
    CHECK_EQ(there[0] + there[3] + there[4], 3);
    CHECK_EQ(there[1] + there[2], 0);
    sherd__shapes_clear(&shapes);
    CHECK_EQ(there[0] + there[3] + there[4], 0);
    CHECK_EQ(heap.live, 0);
}

static const check_test tests[] = {
    {TEST(products_are_sums_of_products)},
    {TEST(what_can_not_be_done_is_said)},
    {TEST(no_memory_is_said_and_nothing_is_lost)},
    {TEST(the_one_not_used_for_longest_goes)},
};
CHECK_MAIN(tests)
