/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on bf16 and f16, and the cast that leads there. Every operator runs on operands that
 * were rounded first, on any layout, and its results and gradients are compared with f64: they may
 * differ by a few roundings of numbers of the size of 1, never by more.
 */
#include "ops_halves.h"
#include "sherd/ops_reductions.h"

static void operators_compute_in_f32_and_round(sherd_world *world)
{
    all_in_halves(world, cases, LEN(cases), 12);
}

/* 65536 ones: their sum is no f16, their mean is. */
static void the_mean_of_many_is_no_overflow(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *layout = NULL;
    int64_t shape[] = {1 << 16};
    const char *rows = sherd_mesh_axes(mesh) == 2 ? "S(0)S(0)" : "S(0)";

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 1, shape, rows, NULL));
    sherd_tensor *t = sherd_require_grad(sherd_constant_on(layout, SHERD_F16, 1), true);
    sherd_tensor *mean = sherd_mean(t);
    CHECK_EQ(sherd_tensor_dtype(mean), SHERD_F16);
    CHECK(sherd_item(mean) == 1);
    CHECK(isinf(sherd_item(sherd_sum(t))));
    sherd_backward(mean);
    sherd_tensor *g = sherd_grad(t);
    if (CHECK(g != NULL) && g->count)
        CHECK_EQ(((const uint16_t *)sherd_tensor_read(g))[0], 1 << 8); /* 2^-16 */
    CHECK_OK(sherd_world_check(world));
}

/* ---- the cast ---- */

static const op_case matrix = {.name = "cast", .operands = 1, .ndim = {2}, .shape = {{5, 3}}};

/* Layout and storage: nothing travels, the same dtype is the same tensor, a strided operand is
 * fine. */
static void a_cast_keeps_the_layout(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < layouts_of(mesh, &matrix, 0); i++)
        for (int d = SHERD_F32; d < SHERD_DTYPES; d++) {
            sherd_scope_begin(world);
            sherd_tensor *t = place(&matrix, 0, layout_number(mesh, &matrix, 0, i));
            CHECK(sherd_cast(t, SHERD_F64) == t);
            sherd_tensor *y = sherd_cast(t, (sherd_dtype)d);
            const sherd_layout *settled = t->layout;
            if (d > SHERD_F16)
                CHECK_OK(sherd__layout_settle(&settled, t->layout));
            CHECK(y->layout == settled && y->dtype == (sherd_dtype)d);
            sherd_tensor *turned = sherd_cast(sherd_transpose(t, 0, 1), (sherd_dtype)d);
            sherd_tensor *wide = sherd_full(sherd_cast(turned, SHERD_F64));
            sherd_tensor *back = sherd_full(sherd_cast(y, SHERD_F64));
            const double *a = sherd_tensor_read(wide), *b = sherd_tensor_read(back);
            for (int64_t e = 0; a && b && e < 15; e++)
                CHECK_NEAR(a[e % 3 * 5 + e / 3], b[e], d <= SHERD_F16 ? 0.05 : 0);
            sherd_scope_end(world);
        }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* 0.5 on each of two ranks is 1; cut off one by one it would be 0. */
static void integers_are_cut_off_after_the_sum(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *layout = NULL;
    int64_t shape[] = {3, 2};

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, shape, "P(sum)", NULL));
    sherd_tensor *t = sherd__new_on(layout, SHERD_F32);
    for (int64_t i = 0; i < t->count; i++)
        ((float *)sherd__fresh(t))[i] = 0.5f;
    sherd_tensor *y = sherd_cast(t, SHERD_I64);
    CHECK_EQ(y->layout->pending_axes, 0);
    const int64_t *x = sherd_tensor_read(y);
    for (int64_t i = 0; x && i < y->count; i++)
        CHECK_EQ(x[i], sherd_world_ranks(world) / 2);
    sherd_tensor *half = sherd_cast(t, SHERD_BF16);
    CHECK(half->layout == layout);
    CHECK_OK(sherd_world_check(world));
}

/* This rank's part of three whole numbers that are pending; rank 0 has `first`. */
static sherd_tensor *whole_numbers(sherd_world *world, sherd_dtype dtype, const char *placement,
                                   int32_t first, int32_t others)
{
    const sherd_layout *layout = NULL;
    int64_t shape[] = {3};
    double part = sherd_world_rank(world) == 0 ? first : others;

    CHECK_OK(sherd_layout_parse_placements(&layout, test_mesh(world), 1, shape, placement, NULL));
    sherd_tensor *t = sherd__new_on(layout, dtype);
    sherd__fill(t, part);
    return t;
}

/* Whole numbers keep their low bits, and bool whether it is not 0, only when they are added before
 * they become others; and addends that are rounded one by one lose more than their sum. */
static void whole_numbers_are_settled_before_they_widen(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        const char *placement;
        int32_t first, others;
    } parts[] = {
        {SHERD_BOOL, "P(sum)", 1, 1},
        {SHERD_U8, "P(sum)", 200, 100},
        {SHERD_U8, "P(product)", 50, 50},
        {SHERD_I32, "P(sum)", INT32_MAX, 2},
        {SHERD_I32, "P(sum)", 16777217, -16777216},
        {SHERD_I32, "P(product)", 1 << 20, 1 << 20},
        {SHERD_I64, "P(sum)", 16777217, -16777216},
        {SHERD_I8, "P(sum)", 100, -100},
        {SHERD_I8, "P(product)", -50, 50},
        {SHERD_U8, "P(max)", 200, 100},
    };

    for (int i = 0; i < LEN(parts); i++) {
        sherd_tensor *t = whole_numbers(world, parts[i].dtype, parts[i].placement, parts[i].first,
                                        parts[i].others);
        sherd_tensor *whole = sherd_full(t);
        CHECK_EQ(sherd_item(sherd_sum(t)), sherd_item(sherd_sum(whole)));
        t = sherd_cast(t, SHERD_F32);
        CHECK_EQ(sherd_item(sherd_max(t, NULL, 0, false)),
                 sherd_item(sherd_max(sherd_cast(whole, SHERD_F32), NULL, 0, false)));
        CHECK_EQ(t->layout->pending_axes != 0, i == LEN(parts) - 1);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Where the result has no gradient the tape ends; where it has, the gradient is cast back. Pending
 * gradients stay pending. */
static void gradients_are_cast_back(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    sherd_tensor *t =
        sherd_require_grad(place(&matrix, 0, layout_number(mesh, &matrix, 0, 0)), true);

    CHECK(!sherd_requires_grad(sherd_cast(t, SHERD_I32)));
    CHECK(!sherd_requires_grad(sherd_cast(t, SHERD_BOOL)));
    sherd_tensor *y = sherd_cast(sherd_cast(t, SHERD_F32), SHERD_BF16);
    sherd_backward(sherd_sum(sherd_scale(y, 3)));
    sherd_tensor *g = sherd_grad(t);
    if (CHECK(g && g->dtype == SHERD_F64)) {
        const double *x = sherd_tensor_read(g);
        for (int64_t i = 0; x && i < g->count; i++)
            CHECK(x[i] == 3);
    }
    CHECK_OK(sherd_world_check(world));
}

static void no_such_dtype_is_refused(sherd_world *world)
{
    int64_t shape[] = {3};
    sherd_tensor *t = sherd_constant(world, SHERD_F32, shape, 1, 1);

    CHECK(sherd_tensor_failed(sherd_cast(t, SHERD_DTYPE_NONE)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_cast: none (0) is no dtype") != NULL);
    CHECK(sherd_tensor_failed(sherd_cast(t, (sherd_dtype)99)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_add(t, sherd_cast(t, SHERD_BF16))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "dtypes differ") != NULL);
    CHECK(sherd_tensor_failed(sherd_gelu(sherd_cast(t, SHERD_U8))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

/* On one rank, which others learn of where the operand is distributed. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *pending = layout_number(mesh, &matrix, 0, 3);
    sherd_tensor *leaf = sherd_require_grad(place(&matrix, 0, pending), true);
    sherd_redistribute_options options = {.forward_dtype = SHERD_BF16, .backward_dtype = SHERD_F16};
    const sherd_layout *whole = layout_number(mesh, &matrix, 0, 0);
    sherd_status status = SHERD_ENOMEM;
    int64_t n = 1;

    CHECK(pending->pending_axes != 0);
    for (; status != SHERD_OK && n < 2000; n++) {
        int64_t bytes = sherd_world_memory(world).live_bytes;
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_tensor *y = sherd_redistribute(sherd_cast(leaf, SHERD_F32), whole, &options);
        sherd_tensor *loss = sherd_mean(y);
        if (!sherd_tensor_failed(loss))
            sherd_backward(loss);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        sherd_scope_end(world);
        sherd_clear_grad(leaf);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK_OK(sherd__agree(world, SHERD_OK, (uint64_t)(int64_t)status + 1, "test"));
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    }
    CHECK_OK(status);
    CHECK(n > 5);
}

/* An addend that integers do not hold, but whose negative they do: the low bits count. */
static void the_negative_of_the_least_integer_is_added(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double addend, sum; /* of 5 */
    } cases_of[] = {{SHERD_I8, 128, -123},
                    {SHERD_I8, -128, -123},
                    {SHERD_U8, -128, 133},
                    {SHERD_I32, 0x1p31, -0x1p31 + 5}};
    const int64_t one = 1;

    for (int i = 0; i < LEN(cases_of); i++) {
        sherd_tensor *five = sherd_constant(world, cases_of[i].dtype, &one, 1, 5);
        CHECK(sherd_item(sherd_add_scalar(five, cases_of[i].addend)) == cases_of[i].sum);
    }
    for (int i = 0; i < 2; i++) { /* 0 + 2^63 and 0 - 2^63 are the same i64 */
        sherd_tensor *zero = sherd_constant(world, SHERD_I64, &one, 1, 0);
        CHECK(sherd_item(sherd_add_scalar(zero, i ? 0x1p63 : -0x1p63)) == -0x1p63);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(operators_compute_in_f32_and_round), {1, 3, 4}},
    {TEST(the_mean_of_many_is_no_overflow), {1, 2, 3, 4}},
    {TEST(a_cast_keeps_the_layout), {1, 2, 3, 4}},
    {TEST(integers_are_cut_off_after_the_sum), {1, 2, 3}},
    {TEST(whole_numbers_are_settled_before_they_widen), {1, 2, 3}},
    {TEST(gradients_are_cast_back), {1, 2, 3, 4}},
    {TEST(no_such_dtype_is_refused), {1, 2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2, 3}},
    {TEST(the_negative_of_the_least_integer_is_added), {1, 2}},
};
CHECK_MAIN(tests)
