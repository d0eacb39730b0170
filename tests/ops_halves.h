/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on bf16 and f16 against f64: on operands that were rounded first, on any layout,
 * results and gradients may differ by a few roundings of numbers of the size of 1.
 */
#ifndef SHERD_TESTS_OPS_HALVES_H
#define SHERD_TESTS_OPS_HALVES_H

#include "ops_cases.h"

#include "kernels/cast.h"

static const sherd_dtype halves[] = {SHERD_BF16, SHERD_F16};
/* A rounding of a number of size 1, times what a sum of a dozen of them may gather. */
static const double tolerance[] = {6.0 / 256, 6.0 / 2048};

/* ---- operators ---- */

/* Value and gradients of sum(w * run(in)), all whole, in f64. */
typedef struct outcome {
    double y[MOST_ELEMENTS], grad[MOST_IN][MOST_ELEMENTS];
    int64_t count;
} outcome;

/* Leaves are f64; what the operator sees went through `dtype`, and so did its result. */
static inline void run_in(outcome *out, const op_case *c, sherd_dtype dtype,
                          sherd_tensor *const *leaf)
{
    sherd_world *world = leaf[0]->world;
    sherd_tensor *in[MOST_IN], *y;

    for (int i = 0; i < c->operands; i++)
        in[i] = c->index >> i & 1 ? leaf[i] : sherd_cast(leaf[i], dtype);
    y = c->run(in);
    CHECK_EQ(sherd_tensor_dtype(y), dtype);
    y = sherd_full(sherd_cast(y, SHERD_F64));
    out->count = sherd_tensor_count(y);
    copy_values(out->y, y);
    double w[MOST_ELEMENTS];
    for (int64_t i = 0; i < out->count && i < MOST_ELEMENTS; i++)
        w[i] = value_at(9, i);
    sherd_tensor *weights = sherd_mark_equal(
        sherd_from_data(world, SHERD_F64, sherd_tensor_shape(y), sherd_tensor_ndim(y), w));
    sherd_backward(sherd_sum(sherd_mul(y, weights)));
    for (int i = 0; i < c->operands; i++) {
        sherd_tensor *g = c->index >> i & 1 ? NULL : sherd_grad(leaf[i]);
        if (!g)
            continue;
        CHECK_EQ(sherd_tensor_dtype(g), SHERD_F64);
        g = sherd_full(g);
        copy_values(out->grad[i], g);
        sherd_clear_grad(leaf[i]);
    }
}

static inline double farthest(const double *a, const double *b, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]) / (1 + fabs(b[i]));
        if (!(d <= most) && !(isnan(a[i]) && isnan(b[i])))
            most = isnan(d) ? HUGE_VAL : d;
    }
    return most;
}

static inline void compare_outcomes(const op_case *c, const outcome *got, const outcome *exact,
                                    double tol)
{
    CHECK_EQ(got->count, exact->count);
    CHECK_NEAR(farthest(got->y, exact->y, exact->count), 0, tol);
    for (int i = 0; i < c->operands; i++)
        if (!(c->index >> i & 1))
            CHECK_NEAR(farthest(got->grad[i], exact->grad[i], count_of(c, i)), 0, tol);
}

/* Round what a leaf holds, so that the cast to the dtype changes nothing. */
static inline void round_leaf(sherd_tensor *t, sherd_dtype dtype)
{
    double *x = sherd_tensor_write(t);
    uint16_t half;

    for (int64_t i = 0; x && i < t->count; i++) {
        sherd__cast(dtype, SHERD_F64, 1, &half, &x[i]);
        sherd__cast(SHERD_F64, dtype, 1, &x[i], &half);
    }
}

/* The operands of a case, rounded to a 16-bit type. */
static inline void place_rounded(const sherd_mesh *mesh, const op_case *c, int64_t number, int half,
                                 sherd_tensor **leaf)
{
    place_all(mesh, c, number, leaf);
    for (int i = 0; i < c->operands; i++)
        if (!(c->index >> i & 1)) {
            round_leaf(leaf[i], halves[half]);
            sherd_require_grad(leaf[i], true);
        }
}

static inline void compare_halves(const op_case *c, const outcome *got, const outcome *exact,
                                  int half, sherd_tensor *const *leaf)
{
    int before = atomic_load(&check_state->failures);

    compare_outcomes(c, got, exact, tolerance[half]);
    if (atomic_load(&check_state->failures) != before)
        say_layouts(c, leaf);
}

static inline void check_case(sherd_world *world, const sherd_mesh *mesh, const op_case *c,
                              int64_t number, int half)
{
    static _Thread_local outcome got, exact;
    sherd_tensor *leaf[MOST_IN];

    sherd_scope_begin(world);
    place_rounded(mesh, c, number, half, leaf);
    memset(&got, 0, sizeof got);
    memset(&exact, 0, sizeof exact);
    run_in(&exact, c, SHERD_F64, leaf);
    run_in(&got, c, halves[half], leaf);
    compare_halves(c, &got, &exact, half, leaf);
    sherd_scope_end(world);
}

static inline void all_in_halves(sherd_world *world, const op_case *list, int count, int64_t most)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < count; i++) {
        int64_t step, all = combinations(mesh, &list[i], most, &step);
        for (int64_t number = 0; number < all; number += step)
            for (int half = 0; half < LEN(halves); half++)
                check_case(world, mesh, &list[i], number, half);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

#endif
