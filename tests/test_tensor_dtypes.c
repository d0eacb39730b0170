/* SPDX-License-Identifier: Apache-2.0 */
/* Every dtype can be made, spread, moved, reduced and read, on any layout: numbers that all of them
 * hold come out exact. */
#include "tensors.h"

#include <math.h>

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {2, 3}, {4, 0}};
static const char *const settled[] = {"R", "S(0)", "S(1)"};

/* What a number becomes in a dtype. Integers keep their low bits. */
static double held(sherd_dtype dtype, int64_t x)
{
    unsigned char data[8];
    double value;

    sherd__cast(dtype, SHERD_I64, 1, data, &x);
    sherd__cast(SHERD_F64, dtype, 1, &value, data);
    return value;
}

static int64_t count_other_than(sherd_tensor *t, int64_t (*expected)(int64_t index, int64_t ranks))
{
    const void *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    int64_t wrong = 0;

    if (!data)
        return -1;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t index = global_of(&box, t->shape, i);
        int64_t x = expected(index, sherd_world_ranks(t->world));
        wrong += number_at(data, t->dtype, i) != held(t->dtype, x);
    }
    return wrong;
}

static int64_t same(int64_t index, int64_t ranks)
{
    (void)ranks;
    return index;
}

static void every_dtype_moves(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int pair = 0; pair < 9; pair++) {
                sherd_scope_begin(world);
                sherd_tensor *t = indices_on(layout_of(mesh, 2, shapes[s], settled[pair % 3], NULL),
                                             (sherd_dtype)d);
                sherd_tensor *moved = sherd__move_to(
                    t, layout_of(mesh, 2, shapes[s], settled[pair / 3], NULL), false);
                CHECK_EQ(moved->dtype, d);
                CHECK_EQ(count_other_than(moved, same), 0);
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* ---- pending reductions ---- */

/* Small enough that the sum of eight ranks, and each step to it, is exact in bf16. */
static int64_t number_of(int64_t index)
{
    return index % 16;
}

/* After so many indices addends begin anew. */
enum { PERIOD = 48 };

/* What rank q holds of an element, and what all of them make. */
static int64_t addend(sherd_reduce_op op, int64_t index, int64_t q)
{
    bool varies = op == SHERD_MIN || op == SHERD_MAX;

    if (op == SHERD_PRODUCT)
        return q == 0 ? number_of(index) : 1 + (index % 2);
    return number_of(index) + (varies ? (q + index) % 3 : 0);
}

static double reduced(sherd_dtype dtype, sherd_reduce_op op, int64_t index, int64_t ranks)
{
    int64_t total = addend(op, index, 0);

    for (int64_t q = 1; q < ranks; q++) {
        int64_t x = addend(op, index, q);
        switch (op) {
        case SHERD_SUM:
        case SHERD_AVG:
            total += x;
            break;
        case SHERD_MIN:
            total = x < total ? x : total;
            break;
        case SHERD_MAX:
            total = x > total ? x : total;
            break;
        case SHERD_PRODUCT:
            total *= x;
            break;
        }
    }
    return held(dtype, op == SHERD_AVG ? total / ranks : total);
}

static int64_t wrong_reductions(sherd_tensor *t, sherd_reduce_op op)
{
    const void *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    double want[PERIOD];
    int64_t wrong = 0;

    for (int64_t i = 0; i < PERIOD; i++)
        want[i] = reduced(t->dtype, op, i, sherd_world_ranks(t->world));
    for (int64_t i = 0; data && i < t->count; i++)
        wrong += number_at(data, t->dtype, i) != want[global_of(&box, t->shape, i) % PERIOD];
    return data ? wrong : -1;
}

static sherd_tensor *pending_on(const sherd_layout *layout, sherd_dtype dtype, sherd_reduce_op op)
{
    sherd_tensor *t = sherd__new_on(layout, dtype);
    size_t bytes = sherd_dtype_bytes(dtype);
    sherd_box box = sherd_tensor_box(t);
    unsigned char numbers[PERIOD * sizeof(double)], *to = sherd__fresh(t);

    for (int64_t i = 0; i < PERIOD; i++) {
        int64_t x = addend(op, i, sherd_world_rank(t->world));
        sherd__cast(dtype, SHERD_I64, 1, numbers + (size_t)i * bytes, &x);
    }
    for (int64_t i = 0; i < t->count; i++) {
        size_t index = (size_t)(global_of(&box, t->shape, i) % PERIOD);
        memcpy(to + (size_t)i * bytes, numbers + index * bytes, bytes);
    }
    return t;
}

static void every_dtype_is_reduced(sherd_world *world)
{
    static const char *const pending[] = {"P(sum)", "P(avg)", "P(min)", "P(max)", "P(product)"};
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_AVG, SHERD_MIN, SHERD_MAX,
                                          SHERD_PRODUCT};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int op = 0; op < LEN(ops); op++)
                for (int to = 0; to < LEN(settled); to++) {
                    if (d >= SHERD_I32 && ops[op] == SHERD_AVG)
                        continue;
                    sherd_scope_begin(world);
                    sherd_tensor *t = pending_on(layout_of(mesh, 2, shapes[s], pending[op], NULL),
                                                 (sherd_dtype)d, ops[op]);
                    t = sherd__move_to(t, layout_of(mesh, 2, shapes[s], settled[to], NULL), false);
                    if (!CHECK_EQ(wrong_reductions(t, ops[op]), 0))
                        fprintf(stderr, "  %s %s to %s\n", sherd_dtype_name((sherd_dtype)d),
                                pending[op], settled[to]);
                    sherd_scope_end(world);
                }
    CHECK_OK(sherd_world_check(world));
}

/* Large enough that each rank reduces a slice and writes it to the others; odd sizes, so that
 * slices begin anywhere. */
static void large_sums_are_exact(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {301, 353};

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        for (int to = 0; to < LEN(settled); to++) {
            sherd_scope_begin(world);
            sherd_tensor *t =
                pending_on(layout_of(mesh, 2, shape, "P(sum)", NULL), (sherd_dtype)d, SHERD_SUM);
            t = sherd__move_to(t, layout_of(mesh, 2, shape, settled[to], NULL), false);
            CHECK_EQ(wrong_reductions(t, SHERD_SUM), 0);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* The average of integers has no right answer: all ranks are told. */
static void integers_have_no_average(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {4, 4};

    for (int d = SHERD_I32; d < SHERD_DTYPES; d++) {
        sherd_tensor *t =
            pending_on(layout_of(mesh, 2, shape, "P(avg)", NULL), (sherd_dtype)d, SHERD_AVG);
        t = sherd__move_to(t, layout_of(mesh, 2, shape, "R", NULL), false);
        CHECK(sherd_tensor_failed(t));
        CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
        CHECK(strstr(sherd_world_error(world), " has no average: cast it") != NULL);
        CHECK(strstr(sherd_world_error(world), "[4,4] P(avg:x) -> [4,4] on (x=") != NULL);
        t = indices_on(layout_of(mesh, 2, shape, "R", NULL), (sherd_dtype)d);
        t = sherd__move_planned(t, layout_of(mesh, 2, shape, "P(avg)", NULL), NULL, NULL, false);
        CHECK(sherd_tensor_failed(t));
        CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
        CHECK(strstr(sherd_world_error(world), "has no average") != NULL);
    }
}

/* What was replicated is the reduction of what it is partitioned into. */
static void every_dtype_is_partitioned(sherd_world *world)
{
    static const char *const pending[] = {"P(sum)", "P(min)", "P(max)", "P(product)", "P(avg)"};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int op = 0; op < LEN(pending) - (d >= SHERD_I32); op++) {
                const sherd_layout *whole = layout_of(mesh, 2, shapes[s], "R", NULL);
                sherd_scope_begin(world);
                sherd_tensor *t = indices_on(whole, (sherd_dtype)d);
                t = sherd__move_planned(t, layout_of(mesh, 2, shapes[s], pending[op], NULL), NULL,
                                        NULL, false);
                CHECK_EQ(count_other_than(sherd__move_to(t, whole, false), same), 0);
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* ---- making ---- */

static void fills_hold_their_value_everywhere(sherd_world *world)
{
    static const double values[SHERD_DTYPES] = {0, 0.1, 0.1, 0.1, 0.1, -7, -1e15, 200, 1, -128};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int p = 0; p < LEN(settled); p++) {
                sherd_tensor *t = sherd_constant_on(layout_of(mesh, 2, shapes[s], settled[p], NULL),
                                                    (sherd_dtype)d, values[d]);
                const void *data = sherd_tensor_read(t);
                double stored[1];
                set_number(stored, (sherd_dtype)d, 0, values[d]);
                for (int64_t i = 0; i < t->count; i++)
                    CHECK(number_at(data, t->dtype, i) == number_at(stored, t->dtype, 0));
                if (sherd_tensor_count(t) == 1)
                    CHECK(sherd_item(t) == number_at(stored, t->dtype, 0));
            }
    CHECK_OK(sherd_world_check(world));
}

static void values_that_do_not_fit_are_refused(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double value;
        const char *said;
    } cases[] = {
        {SHERD_I32, 2147483648.0, "is no i32"},
        {SHERD_I64, 0x1p63, "is no i64"},
        {SHERD_I64, (double)NAN, "is no i64"},
        {SHERD_U8, -1, "is no u8"},
        {SHERD_U8, 256, "is no u8"},
        {SHERD_I32, 1.5, "1.5 is no i32"},
        {SHERD_I64, 0.25, "is no i64"},
        {SHERD_U8, 2.5, "is no u8"},
        {SHERD_I8, -129, "is no i8"},
        {SHERD_I8, 128, "is no i8"},
        {SHERD_I8, 0.5, "is no i8"},
        {SHERD_BOOL, 7, "7 is no bool"},
        {SHERD_DTYPE_NONE, 0, "0 is no dtype"},
        {(sherd_dtype)SHERD_DTYPES, 0, "10 is no dtype"},
    };
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {2, 2};

    for (int i = 0; i < LEN(cases); i++) {
        CHECK(sherd_tensor_failed(sherd_constant(world, cases[i].dtype, shape, 2, cases[i].value)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), cases[i].said) != NULL);
        CHECK(sherd_tensor_failed(sherd_constant_on(layout_of(mesh, 2, shape, "R", NULL),
                                                    cases[i].dtype, cases[i].value)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    }
    sherd_generator g = sherd_generator_named("g");
    for (int d = SHERD_I32; d < SHERD_DTYPES; d++) {
        sherd_random(world, (sherd_dtype)d, shape, 2, sherd_uniform(0, 1), &g);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    }
}

/* The f32 numbers, rounded; the same under every layout. */
static void random_numbers_are_those_of_f32_rounded(sherd_world *world)
{
    static const sherd_dtype halves[] = {SHERD_BF16, SHERD_F16};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int h = 0; h < LEN(halves); h++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int p = 0; p < LEN(settled); p++)
                for (int normal = 0; normal < 2; normal++) {
                    sherd_distribution what = normal ? sherd_normal(0.5, 2) : sherd_uniform(-3, 1);
                    sherd_generator a = sherd_generator_named("d"), b = a;
                    const sherd_layout *layout = layout_of(mesh, 2, shapes[s], settled[p], NULL);
                    sherd_tensor *t = sherd_random_on(layout, halves[h], what, &a);
                    sherd_tensor *wide = sherd_random_on(layout, SHERD_F32, what, &b);
                    uint16_t rounded[64];
                    CHECK(t->count <= LEN(rounded));
                    sherd__cast(halves[h], SHERD_F32, wide->count, rounded,
                                sherd_tensor_read(wide));
                    CHECK_EQ(memcmp(rounded, sherd_tensor_read(t), (size_t)t->count * 2), 0);
                }
    CHECK_OK(sherd_world_check(world));
}

/* From one rank, and from all. */
static void every_dtype_is_distributed(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int p = 0; p < LEN(settled); p++) {
                const sherd_layout *layout = layout_of(mesh, 2, shapes[s], settled[p], NULL);
                sherd_scope_begin(world);
                sherd_tensor *t = indices_plain(world, (sherd_dtype)d, 2, shapes[s]);
                int last = sherd_world_ranks(world) - 1;
                CHECK_EQ(count_other_than(sherd_distribute(t, layout, last), same), 0);
                sherd_mark_equal(t);
                CHECK_EQ(count_other_than(sherd_distribute(t, layout, -1), same), 0);
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* All dtypes in one call, half of them to be added up. */
static void dtypes_move_together(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {7, 5};
    sherd_tensor *from[SHERD_DTYPES], *to[SHERD_DTYPES];
    const sherd_layout *target[SHERD_DTYPES];
    int n = 0;

    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++, n++) {
        bool adds = d % 2;
        const sherd_layout *layout = layout_of(mesh, 2, shape, adds ? "P(sum)" : "S(0)", NULL);
        from[n] = adds ? pending_on(layout, (sherd_dtype)d, SHERD_SUM)
                       : indices_on(layout, (sherd_dtype)d);
        target[n] = layout_of(mesh, 2, shape, adds ? "R" : "S(1)", NULL);
    }
    sherd_redistribute_many(to, from, target, n);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(to[i]->dtype, from[i]->dtype);
        if (from[i]->dtype % 2)
            CHECK_EQ(wrong_reductions(to[i], SHERD_SUM), 0);
        else
            CHECK_EQ(count_other_than(to[i], same), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(every_dtype_moves), {1, 2, 3, 4, 8}},
    {TEST(every_dtype_is_reduced), {1, 2, 3, 4, 8}},
    {TEST(large_sums_are_exact), {2, 3, 8}},
    {TEST(integers_have_no_average), {2, 3}},
    {TEST(every_dtype_is_partitioned), {1, 2, 3, 4, 8}},
    {TEST(fills_hold_their_value_everywhere), {1, 2, 3, 4, 8}},
    {TEST(values_that_do_not_fit_are_refused), {1, 2}},
    {TEST(random_numbers_are_those_of_f32_rounded), {1, 2, 3, 4, 8}},
    {TEST(every_dtype_is_distributed), {1, 2, 3, 4, 8}},
    {TEST(dtypes_move_together), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
