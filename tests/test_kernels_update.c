/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of update.h: of any length, and in f32, f64 and 16 bits, as a loop in double has them;
 * and nothing behind the last element is touched.
 */
#define CHECK_PURE
#include "check.h"
#include "kernels/cast.h"
#include "kernels/update.h"

#include <math.h>

enum { MOST = 2501, STATES = 3, STEPS = 4, GUARD = 77 };

typedef enum kind {
    AMSGRAD,
    RMSPROP,
    HEAVY,
    CENTERED,
    CENTERED_HEAVY,
    ADAGRAD,
    LION,
    MEAN,
    KINDS
} kind;

static const sherd__adamw_step amsgrad = {.rate = 0.1,
                                          .beta1 = 0.8,
                                          .beta2 = 0.9,
                                          .eps = 1e-2,
                                          .decay = 0.3,
                                          .correction1 = 0.7,
                                          .correction2 = 0.4,
                                          .grad_scale = 0.5,
                                          .l2 = 0.2};
static const sherd__adagrad_step adagrad = {0.1, 0.2, 0.5, 0.25, 1e-3};

static const sherd__lion_step lion = {0.1, 0.2, 0.5, 0.7, 0.8};

static const sherd__mean_step mean = {.grad_scale = 0.5,
                                      .l2 = 0.2,
                                      .keep = 0.9,
                                      .beta1 = 0.8,
                                      .beta2 = 0.9,
                                      .eps = 1e-2,
                                      .root = 1.5,
                                      .by_grad = 0.1,
                                      .by_mean = 0.2};

static sherd__rmsprop_step rmsprop(kind k)
{
    bool heavy = k == HEAVY || k == CENTERED_HEAVY;

    return (sherd__rmsprop_step){
        0.1, 0.2, 0.5, 0.7, 1e-2, heavy ? 0.6 : 0, k == CENTERED || k == CENTERED_HEAVY};
}

static void run(kind k, const sherd__update_pass *a)
{
    const sherd__rmsprop_step step = rmsprop(k);

    if (k == AMSGRAD)
        sherd__update_amsgrad(a, &amsgrad);
    else if (k == ADAGRAD)
        sherd__update_adagrad(a, &adagrad);
    else if (k == LION)
        sherd__update_lion(a, &lion);
    else if (k == MEAN)
        sherd__update_mean(a, &mean);
    else
        sherd__update_rmsprop(a, &step);
}

static int states_of(kind k)
{
    static const int states[] = {3, 1, 2, 2, 3, 1, 1, 2};

    return states[k];
}

static void by_hand(kind k, double *p, double *const state[STATES], double grad)
{
    const sherd__adamw_step *a = &amsgrad;
    const sherd__rmsprop_step r = rmsprop(k);
    double g = 0.5 * grad + 0.2 * *p, *v = state[k == AMSGRAD], d;

    if (k == AMSGRAD) {
        *state[0] = a->beta1 * *state[0] + (1 - a->beta1) * g;
        *v = a->beta2 * *v + (1 - a->beta2) * g * g;
        *state[2] = fmax(*state[2], *v);
        d = *state[0] / a->correction1 / (sqrt(*state[2] / a->correction2) + a->eps) + 0.3 * *p;
    } else if (k == LION) {
        g = 0.5 * grad;
        double c = lion.beta1 * *v + (1 - lion.beta1) * g;
        d = (c > 0) - (c < 0) + 0.2 * *p;
        *v = lion.beta2 * *v + (1 - lion.beta2) * g;
    } else if (k == MEAN) {
        v = state[1];
        *state[0] = mean.beta1 * *state[0] + (1 - mean.beta1) * g;
        *v = mean.beta2 * *v + (1 - mean.beta2) * g * g;
        d = (mean.by_grad * g + mean.by_mean * *state[0]) / (sqrt(*v) * mean.root + mean.eps);
        d = 10 * (d + (1 - mean.keep) * *p);
    } else if (k == ADAGRAD) {
        *v += 0.25 + g * g;
        d = g / (sqrt(*v) + adagrad.eps);
    } else {
        *v = r.alpha * *v + (1 - r.alpha) * g * g;
        double spread = *v;
        if (r.centered) {
            *state[1] = r.alpha * *state[1] + (1 - r.alpha) * g;
            spread -= *state[1] * *state[1];
        }
        d = g / (sqrt(spread) + r.eps);
        if (r.momentum != 0) {
            double *m = state[r.centered ? 2 : 1];
            d = *m = r.momentum * *m + d;
        }
    }
    *p -= 0.1 * d;
}

/* Room for p and states, in f32 or f64; the gradient; and what they should be. */
static _Alignas(64) double got[1 + STATES][MOST + 1], given[MOST + 1];
static double wanted[1 + STATES][MOST + 1], grad[MOST + 1];

static void compare(const char *what, sherd_dtype kept, int64_t n, const void *data,
                    const double *expected)
{
    double tolerance = kept == SHERD_F64 ? 1e-13 : 1e-5, x[1];

    for (int64_t i = 0; i <= n; i++) {
        sherd__cast(SHERD_F64, kept, 1, x,
                    (const char *)data + i * (int64_t)sherd_dtype_bytes(kept));
        if (!(fabs(x[0] - (i < n ? expected[i] : GUARD)) <= tolerance)) {
            CHECK_NEAR(x[0], i < n ? expected[i] : GUARD, tolerance);
            fprintf(stderr, "  %s, %d of %d\n", what, (int)i, (int)n);
            return;
        }
    }
}

static void try_one(kind k, sherd_dtype dtype, int64_t n)
{
    sherd_dtype kept = dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32;
    sherd__update_pass a = {dtype, n, got[0], {0}, given};

    for (int s = 0; s <= STATES; s++) {
        for (int64_t i = 0; i <= n; i++)
            wanted[s][i] = i == n ? GUARD : s ? 0 : sin(0.3 * (double)i);
        sherd__cast(kept, SHERD_F64, n + 1, got[s], wanted[s]);
    }
    for (int s = 0; s < states_of(k); s++)
        a.state[s] = got[1 + s];
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < n; i++)
            grad[i] = 2 * cos(0.7 * (double)i + step);
        sherd__cast(dtype, SHERD_F64, n, given, grad);
        sherd__cast(SHERD_F64, dtype, n, grad, given);
        run(k, &a);
        for (int64_t i = 0; i < n; i++)
            by_hand(k, &wanted[0][i], (double *[]){&wanted[1][i], &wanted[2][i], &wanted[3][i]},
                    grad[i]);
    }
    for (int s = 0; s <= states_of(k); s++)
        compare(s ? "state" : "p", kept, n, got[s], wanted[s]);
}

static void steps_are_their_formulas(void)
{
    static const int64_t lengths[] = {0, 1, 7, 64, 1023, 1024, 1025, MOST};

    for (int k = 0; k < KINDS; k++)
        for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++)
            for (int i = 0; i < LEN(lengths); i++)
                try_one((kind)k, (sherd_dtype)dtype, lengths[i]);
}

/* A NaN reaches p, also where it is compared. */
static void what_is_no_number_is_seen(void)
{
    for (int k = 0; k < KINDS; k++) {
        double p = 1, state[STATES] = {0}, g = (double)NAN;
        sherd__update_pass a = {SHERD_F64, 1, &p, {0}, &g};
        for (int s = 0; s < states_of((kind)k); s++)
            a.state[s] = &state[s];
        run((kind)k, &a);
        CHECK(isnan(p));
        for (int s = 0; s < states_of((kind)k); s++)
            CHECK(isnan(state[s]));
    }
}

static const check_test tests[] = {
    {TEST(steps_are_their_formulas)},
    {TEST(what_is_no_number_is_seen)},
};
CHECK_MAIN(tests)
