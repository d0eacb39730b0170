/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact sums, bit for bit: against sums in digits of 8 bits, rounded bit by bit, of numbers of all
 * sizes, in every layout, whole, uneven, with empty shards, in the other order, replicated or
 * pending; of a million numbers; zeros, ends of the range, infinities and NaN; gradients.
 */
#include <float.h>
#include <math.h>

#include "ops_halves.h"
#include "ops_oracles.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_exact.h"
#include "sherd/ops_reductions.h"
#include "tensors.h"

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))

/* ---- a sum to compare with ------------------------------------------------------------------- */

enum { DIGITS = 300, LOWEST = -1200 };

/* Digit k counts 2^(8 k - 1200). */
typedef struct reference {
    int64_t digit[DIGITS];
} reference;

static void refer(reference *r, double x)
{
    int e;
    int64_t part = (int64_t)ldexp(frexp(x, &e), 53);
    int at = e - 53 - LOWEST;
    int64_t bits = part * ((int64_t)1 << at % 8);

    for (int k = 0; k < 8; k++) {
        int64_t low = bits % 256;
        r->digit[at / 8 + k] += low;
        bits = (bits - low) / 256;
    }
}

/* Bits and lowest bit of all of a dtype. */
static void precision(sherd_dtype dtype, int *bits, int *least)
{
    *bits = dtype == SHERD_F64 ? 53 : dtype == SHERD_F32 ? 24 : dtype == SHERD_F16 ? 11 : 8;
    *least = dtype == SHERD_F64   ? -1074
             : dtype == SHERD_F32 ? -149
             : dtype == SHERD_F16 ? -24
                                  : -133;
}

/* Carries; true if the number is below 0. */
static bool is_negative(reference *r)
{
    for (int k = 0; k < DIGITS - 1; k++) {
        int64_t low = (r->digit[k] % 256 + 256) % 256;
        r->digit[k + 1] += (r->digit[k] - low) / 256;
        r->digit[k] = low;
    }
    return r->digit[DIGITS - 1] < 0;
}

/* Rounded to a dtype: kept bits are added one by one, then one more if the others are worth it. */
static double rounded(reference *r, sherd_dtype dtype)
{
    int bits, least, top = 8 * DIGITS - 1;
    bool negative = is_negative(r), rest = false;
    double value = 0;

#define BIT(at) (r->digit[(at) / 8] >> (at) % 8 & 1)
    precision(dtype, &bits, &least);
    for (int k = 0; k < DIGITS && negative; k++)
        r->digit[k] = -r->digit[k];
    (void)is_negative(r);
    while (top > 0 && !BIT(top))
        top--;
    int end = top - bits + 1 > least - LOWEST ? top - bits + 1 : least - LOWEST;
    for (int at = top; at >= end; at--)
        value = 2 * value + (double)BIT(at);
    for (int at = 0; at < end - 1; at++)
        rest |= BIT(at);
    if (BIT(end - 1) && (rest || BIT(end)))
        value++;
#undef BIT
    value = ldexp(value, end + LOWEST);
    return negative ? -value : value;
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum { LIKE, WIDE, CANCELLED, TINY, HUGE_ONES, TIES, KINDS };

/* The largest exponent that numbers of a kind have, and the least. */
static int most_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? 1020 : dtype == SHERD_F16 ? 14 : 126;
}

/* Element i of a kind, before it is rounded to the dtype. */
static double number_of(sherd_dtype dtype, int kind, int64_t i)
{
    double x = value_at(kind, i), other = value_at(kind + 50, i);
    int most = most_of(dtype), least = dtype == SHERD_F16 ? -24 : dtype == SHERD_F64 ? -1074 : -149;

    switch (kind) {
    case WIDE:
        return ldexp(x, least + (int)((other + 1) / 2 * (most - least)));
    case CANCELLED: /* every number with its opposite, and a few small ones */
        return i % 16 >= 14 ? ldexp(x, -20)
                            : ldexp(value_at(kind, i / 2), most - 1) * (i % 2 ? 1 : -1);
    case TINY:
        return ldexp(x, least + 3);
    case HUGE_ONES:
        return ldexp(fabs(x), most) * (i % 2 ? 1 : -1);
    case TIES:
        return i == 0 ? 1 : ldexp(1, -8 - (int)(i % 4 * 15)) * (i % 3 ? 1 : -1);
    default:
        return x;
    }
}

static double element(sherd_dtype dtype, int kind, int64_t i)
{
    uint64_t room;

    set_number(&room, dtype, 0, number_of(dtype, kind, i));
    return number_at(&room, dtype, 0);
}

/* A tensor of this layout; of the p-th addends, where it is pending, elements from p * n on. */
static sherd_tensor *numbers_on(const sherd_layout *layout, sherd_dtype dtype, int kind)
{
    sherd_tensor *t = sherd__new_on(layout, dtype);
    sherd_box box = sherd_tensor_box(t);
    int64_t parts, part = pending_part(t, &parts), n = sherd_tensor_count(t);

    for (int64_t i = 0; i < t->count; i++)
        set_number(sherd__fresh(t), dtype, i,
                   element(dtype, kind, part * n + global_of(&box, t->shape, i)));
    return t;
}

/* Whether the sum of these elements, and those of other addends n apart, is y. */
static bool is_sum(double y, sherd_dtype dtype, int kind, int64_t first, int64_t count,
                   int64_t stride, int64_t n, int64_t parts)
{
    reference r = {{0}};

    for (int64_t p = 0; p < parts; p++)
        for (int64_t i = 0; i < count; i++)
            refer(&r, element(dtype, kind, p * n + first + i * stride));
    double want = rounded(&r, dtype);
    uint64_t room;
    set_number(&room, dtype, 0, want); /* too large: infinite */
    want = number_at(&room, dtype, 0);
    if (y == want && signbit(y) == signbit(want))
        return true;
    fprintf(stderr, "%s kind %d: %a, not %a\n", sherd_dtype_name(dtype), kind, y, want);
    return false;
}

static double first_of(sherd_tensor *t, int64_t i)
{
    const void *data = sherd_tensor_read(t);
    return data ? number_at(data, t->dtype, i) : -1;
}

/* ---- every layout ---------------------------------------------------------------------------- */

enum { ROWS = 7, COLUMNS = 5 };
static const op_case matrix = {.name = "matrix", .ndim = {2}, .shape = {{ROWS, COLUMNS}}};
static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};

/* Number of addends of each element. */
static int64_t parts_of(const sherd_layout *layout)
{
    int64_t parts = 1;

    for (int a = 0; a < layout->spec.mesh->axes; a++)
        parts *= layout->pending_axes >> a & 1 ? layout->spec.mesh->extent[a] : 1;
    return parts;
}

static bool all_sums_are_right(const sherd_layout *layout, sherd_dtype dtype, int kind)
{
    sherd_tensor *a = numbers_on(layout, dtype, kind);
    int64_t n = ROWS * COLUMNS, parts = parts_of(layout);
    sherd_tensor *all = sherd_sum_exact(a);
    sherd_tensor *down = sherd_full(sherd_sum_exact_over(a, DIMS(0), false));
    sherd_tensor *across = sherd_full(sherd_sum_exact_over(a, DIMS(-1), true));
    bool good = CHECK_EQ(all->ndim, 0) && CHECK_EQ(down->ndim, 1) && CHECK_EQ(across->ndim, 2);

    good = good && CHECK_EQ(all->dtype, dtype) && CHECK_EQ(all->layout->pending_axes, 0) &&
           is_sum(first_of(all, 0), dtype, kind, 0, n, 1, n, parts);
    for (int c = 0; c < COLUMNS && good; c++)
        good = is_sum(first_of(down, c), dtype, kind, c, ROWS, COLUMNS, n, parts);
    for (int r = 0; r < ROWS && good; r++)
        good = is_sum(first_of(across, r), dtype, kind, r * COLUMNS, COLUMNS, 1, n, parts);
    return good;
}

static void any_layout_has_the_true_sums(sherd_world *world)
{
    const sherd_mesh *mesh =
        sherd_world_ranks(world) == 8 ? mesh_of(world, "a=2,b=4") : test_mesh(world);
    int layouts = layouts_of(mesh, &matrix, 0), most = getenv("SHERD_PROOF") ? layouts : 24;
    int step = layouts > most ? layouts / most : 1;

    for (int number = 0; number < layouts; number += step)
        for (int kind = 0; kind < KINDS; kind++) {
            const sherd_layout *layout = layout_number(mesh, &matrix, 0, number);
            sherd_dtype dtype = dtypes[(number / step + kind) % LEN(dtypes)];
            sherd_scope_begin(world);
            CHECK(all_sums_are_right(layout, dtype, kind));
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Sums over dims that do not follow one another, or are a part of what is local. */
static sherd_tensor *of_integers(sherd_tensor *sum)
{
    return sherd_cast(sum, SHERD_F64);
}

static void any_dims_may_be_reduced(sherd_world *world)
{
    static const struct {
        int dim[3], count;
    } sets[] = {{{0}, 1},       {{1}, 1},       {{2}, 1},       {{3}, 1},
                {{0, 2}, 2},    {{1, 3}, 2},    {{0, 3}, 2},    {{0, 1}, 2},
                {{1, 2, 3}, 3}, {{2, 0, 3}, 3}, {{0, 1, 2}, 3}, {{0}, 0}};
    static const int64_t shape[] = {3, 4, 2, 5};
    const sherd_mesh *line = line_of_ranks(world);

    for (int s = 0; s < 4; s++) {
        char placement[16];
        snprintf(placement, sizeof placement, "S(%d)", s);
        sherd_tensor *a = indices_on(layout_of(line, 4, shape, placement, NULL), SHERD_F32);
        for (int i = 0; i < LEN(sets); i++)
            for (int keep = 0; keep < 2; keep++) {
                sherd_tensor *y = sherd_sum_exact_over(a, sets[i].dim, sets[i].count, keep);
                sherd_tensor *want = sherd_sum_over(a, sets[i].dim, sets[i].count, keep);
                CHECK_EQ(y->ndim, want->ndim);
                CHECK_NEAR(
                    sherd_item(sherd_sum(sherd_abs(sherd_sub(of_integers(y), of_integers(want))))),
                    0, 0);
            }
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- many ------------------------------------------------------------------------------------ */

/* Blocks that are added fast, and those that are not. */
static void a_million_numbers_have_the_true_sum(sherd_world *world)
{
    static const int64_t many = 1000003;
    static const int kinds[] = {LIKE, WIDE, CANCELLED};
    int64_t shape[] = {many};

    for (int i = sherd_world_ranks(world) > 1; i < LEN(kinds); i += sherd_world_ranks(world)) {
        sherd_dtype dtype = i == 2 ? SHERD_F32 : SHERD_F64;
        sherd_scope_begin(world);
        sherd_tensor *a =
            numbers_on(layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL), dtype, kinds[i]);
        double y = sherd_item(sherd_sum_exact(a));
        if (sherd_world_rank(world) == 0)
            CHECK(is_sum(y, dtype, kinds[i], 0, many, 1, many, 1));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- ends ------------------------------------------------------------------------------------ */

enum { FEW = 6 };

typedef struct end {
    sherd_dtype dtype;
    double x[FEW]; /* the others are 0 */
    double sum;
} end;

static void ends_are_those_of_true_sums(sherd_world *world)
{
    const double inf = (double)INFINITY, nan = (double)NAN, most = DBL_MAX, last = 0x1p970;
    const end ends[] = {
        {SHERD_F64, {1e308, 1, -1e308}, 1},
        {SHERD_F64, {1e308, 1e308, -1e308}, 1e308},
        {SHERD_F64, {most, most, 5, -most, -most, -4}, 1},
        {SHERD_F64, {most, last / 2}, most},
        {SHERD_F64, {most, last}, inf}, /* halfway: 2^1024 is even */
        {SHERD_F64, {most, last, -0x1p-1074}, most},
        {SHERD_F64, {-most, -most}, -inf},
        {SHERD_F64, {0x1p-1074, 0x1p-1074, 0x1p-1074}, 0x3p-1074},
        {SHERD_F64, {0x1p-1022, -0x1p-1074}, 0x0.fffffffffffffp-1022},
        {SHERD_F64, {1, 0x1p-53}, 1},
        {SHERD_F64, {1, 0x1p-53, 0x1p-1074}, 1 + DBL_EPSILON},
        {SHERD_F64, {1 + DBL_EPSILON, 0x1p-53}, 1 + 2 * DBL_EPSILON},
        {SHERD_F64, {-1, -0x1p-53, -0x1p-1074}, -1 - DBL_EPSILON},
        {SHERD_F64, {1, -0x1p-54}, 1},
        {SHERD_F64, {inf, 1, -1e308}, inf},
        {SHERD_F64, {-inf, most, most}, -inf},
        {SHERD_F64, {inf, -inf, 1}, nan},
        {SHERD_F64, {nan, 1, inf}, nan},
        {SHERD_F32, {FLT_MAX, FLT_MAX, -FLT_MAX}, FLT_MAX},
        {SHERD_F32, {FLT_MAX, 0x1p103}, inf},
        {SHERD_F32, {FLT_MAX, 0x1p103, -0x1p-149}, FLT_MAX},
        {SHERD_F32, {0x1p-149, 0x1p-149}, 0x1p-148},
        {SHERD_F32, {1, 0x1p-24, 0x1p-149}, 1 + FLT_EPSILON},
        {SHERD_F32, {-inf, inf}, nan},
        {SHERD_BF16, {256, 1}, 256},
        {SHERD_BF16, {256, 1, 0x1p-133}, 258},
        {SHERD_BF16, {0x1p-133, 0x1p-133}, 0x1p-132},
        {SHERD_F16, {65504, 8}, 65504},
        {SHERD_F16, {65504, 16}, inf},
        {SHERD_F16, {65504, 65504, -65504}, 65504},
        {SHERD_F16, {0x1p-24, 0x1p-24, 0x1p-24}, 0x3p-24},
        {SHERD_F64, {0}, 0},
        {SHERD_F64, {-0.0, -0.0, -0.0, -0.0, -0.0, -0.0}, 0},
        {SHERD_F32, {1, -1}, 0},
    };
    const int64_t shape[] = {FEW};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);

    for (int i = 0; i < LEN(ends); i++) {
        sherd_tensor *a = sherd__new_on(layout, ends[i].dtype);
        sherd_box box = sherd_tensor_box(a);
        for (int64_t k = 0; k < a->count; k++)
            set_number(sherd__fresh(a), a->dtype, k, ends[i].x[box.offset[0] + k]);
        double y = sherd_item(sherd_sum_exact(a)), want = ends[i].sum;
        if (!CHECK(isnan(want) ? isnan(y) : y == want && signbit(y) == signbit(want)))
            fprintf(stderr, "end %d: %a, not %a\n", i, y, want);
    }
    CHECK_OK(sherd_world_check(world));
}

static void nothing_sums_to_0(sherd_world *world)
{
    const int64_t none[] = {0, 3}, also[] = {3, 0};
    const sherd_mesh *line = line_of_ranks(world);

    for (int i = 0; i < LEN(dtypes); i++) {
        sherd_tensor *a = sherd_constant_on(layout_of(line, 2, none, "S(0)", NULL), dtypes[i], 1);
        double y = sherd_item(sherd_sum_exact(a));
        CHECK(y == 0 && !signbit(y));
        sherd_tensor *rows = sherd_full(sherd_sum_exact_over(a, DIMS(0), false));
        CHECK_EQ(sherd_tensor_count(rows), 3);
        CHECK(first_of(rows, 2) == 0);
        CHECK_EQ(sherd_tensor_count(sherd_sum_exact_over(a, DIMS(1), false)), 0);
        sherd_tensor *b = sherd_constant_on(layout_of(line, 2, also, "S(0)", NULL), dtypes[i], 1);
        CHECK_NEAR(sherd_item(sherd_sum_exact(sherd_sum_exact_over(b, DIMS(1), true))), 0, 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* 1 + 1e100 - 1e100, each pending, is lost in the sum of ranks but not here. */
static void addends_are_not_added_before(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    sherd_tensor *a =
        sherd__new_on(layout_of(line_of_ranks(world), 0, NULL, "P(sum)", NULL), SHERD_F64);

    *(double *)sherd__fresh(a) = rank == 0 ? 1e100 : rank == ranks - 1 ? -1e100 : 1;
    CHECK_NEAR(sherd_item(sherd_sum_exact(a)), ranks - 2, 0);
    CHECK_OK(sherd_world_check(world));
}

/* A pending maximum is settled: its addends are not summed. */
static void other_pending_reductions_are_settled(sherd_world *world)
{
    sherd_tensor *a =
        indices_on(layout_of(line_of_ranks(world), 2, (int64_t[]){4, 3}, "S(0)", NULL), SHERD_F64);

    CHECK_NEAR(sherd_item(sherd_sum_exact(sherd_max(a, DIMS(0), false))), 9 + 10 + 11, 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- as an operator -------------------------------------------------------------------------- */

#define RUN(name, expression)                          \
    static sherd_tensor *name(sherd_tensor *const *in) \
    {                                                  \
        sherd_tensor *a = in[0];                       \
        return expression;                             \
    }
RUN(sum_all, sherd_sum_exact(a))
RUN(sum_first, sherd_sum_exact_over(a, DIMS(0), false))
RUN(sum_outer, sherd_sum_exact_over(a, DIMS(0, 2), true))

static const op_case sums[] = {
    {"all", sum_all, 1, {2}, .shape = {{5, 3}}},
    {"first", sum_first, 1, {3}, .shape = {{4, 2, 5}}},
    {"outer", sum_outer, 1, {3}, .shape = {{4, 2, 5}}},
    {"of nothing", sum_first, 1, {2}, .shape = {{0, 3}}},
    {"to nothing", sum_first, 1, {2}, .shape = {{3, 0}}},
};

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, sums, LEN(sums), 24);
}

static void halves_have_gradients(sherd_world *world)
{
    all_in_halves(world, sums, LEN(sums), 4);
}

/* Forward and backward; new shapes each time, so nothing is cached. */
static void sum_both(const sherd_mesh *mesh, int64_t n)
{
    const sherd_layout *layout = NULL;
    sherd_placement s = sherd_shard(0);

    if (sherd_layout_create(&layout, mesh, 2, (int64_t[]){n, 3}, &s, NULL) != SHERD_OK) {
        sherd__fail_diag(sherd__space_world(mesh->space), true);
        return;
    }
    sherd_tensor *a = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 0.5), true);
    sherd_backward(sherd_sum_exact(sherd_mul(a, sherd_sum_exact_over(a, DIMS(0), true))));
}

static void any_allocation_may_fail(sherd_world *world)
{
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    const sherd_mesh *mesh = line_of_ranks(world);
    int failures = 0;

    for (int64_t n = 1; n < 1000; n += 1 + n / 15) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, failing ? n : 0);
        sum_both(mesh, 5 + n % 50);
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        failures += status != SHERD_OK;
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK(failures > 10);
}

static void integers_are_refused(sherd_world *world)
{
    sherd_sum_exact(sherd_constant(world, SHERD_I32, (int64_t[]){3}, 1, 1));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_tensor *a = sherd_constant(world, SHERD_F32, (int64_t[]){3}, 1, 1);
    sherd_sum_exact_over(a, DIMS(1), false);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_sum_exact_over") != NULL);
}

static const check_test tests[] = {
    {TEST(any_layout_has_the_true_sums), {1, 2, 3, 4, 8}},
    {TEST(any_dims_may_be_reduced), {1, 2, 3}},
    {TEST(a_million_numbers_have_the_true_sum), {1, 3}},
    {TEST(ends_are_those_of_true_sums), {1, 2, 3, 4, 8}},
    {TEST(nothing_sums_to_0), {1, 2, 3}},
    {TEST(addends_are_not_added_before), {2, 3, 4, 8}},
    {TEST(other_pending_reductions_are_settled), {2, 3}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(halves_have_gradients), {1, 2}},
    {TEST(any_allocation_may_fail), {1, 2, 3}},
    {TEST(integers_are_refused), {1, 2}},
};
CHECK_MAIN(tests)
