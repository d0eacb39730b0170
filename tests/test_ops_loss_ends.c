/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy of logits beside which the logarithm of their number is nothing: gradients are
 * those of a formula in long double, whoever has the classes and whatever options there are.
 */
#include <float.h>
#include <math.h>

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_layers.h"
#include "tensors.h"

enum { ROWS = 6, CLASSES = 5, ALL = ROWS * CLASSES };

static const double f32_end = (double)FLT_MAX;

/* What one call is about. */
typedef struct subject {
    sherd_dtype dtype;
    bool mean, weighted, probable; /* mean: sherd_cross_entropy, without options */
    double smoothing;
    int32_t target[ROWS];
    double logit[ALL], weight[CLASSES], share[ALL], dlogits[ALL], dshare[ALL];
} subject;

static double most_of(const double *x)
{
    double most = x[0];

    for (int c = 1; c < CLASSES; c++)
        most = x[c] > most ? x[c] : most;
    return most;
}

/* The gradients of row r, whose loss is multiplied by r + 1, or of the mean. */
static void differentiate(subject *s, int r)
{
    const double *l = s->logit + r * CLASSES;
    long double most = most_of(l), sum = 0, amount = 0, q[CLASSES];
    long double by = s->mean ? 1 / (long double)ROWS : r + 1;

    for (int c = 0; c < CLASSES; c++) {
        long double t = s->probable ? s->share[r * CLASSES + c] : c == s->target[r];
        sum += expl(l[c] - most);
        q[c] = (s->weighted ? s->weight[c] : 1) *
               ((1 - s->smoothing) * t + s->smoothing / (long double)CLASSES);
        amount += q[c];
    }
    if (s->target[r] == -100)
        by = 0;
    for (int c = 0; c < CLASSES; c++) {
        int at = r * CLASSES + c;
        s->dlogits[at] = (double)((amount * expl(l[c] - most) / sum - q[c]) * by);
        s->dshare[at] = (double)((1 - s->smoothing) * (s->weighted ? s->weight[c] : 1) *
                                 (most - l[c] + logl(sum)) * by);
    }
}

/* Numbers as the dtype has them. */
static void round_all(sherd_dtype dtype, double *x, int n)
{
    char low[ALL * sizeof(double)];

    sherd__cast(dtype, SHERD_F64, n, low, x);
    sherd__cast(SHERD_F64, dtype, n, x, low);
}

static void fill(subject *s)
{
    double end = s->dtype == SHERD_F64 ? DBL_MAX : s->dtype == SHERD_F16 ? 65504 : f32_end;
    const double first[ROWS] = {-end, end, s->dtype == SHERD_F64 ? 1e14 : end / 4, 0, -end, 3};

    if (s->dtype == SHERD_BF16)
        end *= 1 - 1.0 / 256; /* it holds no more */
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < CLASSES; c++) {
            int at = r * CLASSES + c;
            s->logit[at] = r == 4   ? (c < 2 ? end : -end)
                           : r == 3 ? -1e4 - c
                           : r == 2 ? first[r] + c
                                    : (fabs(first[r]) > end ? copysign(end, first[r]) : first[r]);
            s->share[at] = (1 + (r + c) % CLASSES) / 15.0;
        }
    for (int c = 0; c < CLASSES; c++)
        s->weight[c] = 0.5 + 0.25 * c;
    for (int r = 0; r < ROWS; r++)
        s->target[r] = r == 5 && !s->mean && !s->probable ? -100 : r % 2 ? 0 : r % CLASSES;
    round_all(s->dtype, s->logit, ALL);
    round_all(s->dtype, s->share, ALL);
    round_all(s->dtype, s->weight, CLASSES);
    for (int r = 0; r < ROWS; r++)
        differentiate(s, r);
}

static sherd_tensor *tensor_of(sherd_world *world, sherd_dtype dtype, const double *x, int ndim,
                               const int64_t *shape, const char *placements)
{
    char low[ALL * sizeof(double)];
    int64_t n = ndim == 2 ? ALL : shape[0];

    sherd__cast(dtype, SHERD_F64, n, low, x);
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(world, dtype, shape, ndim, low));
    return sherd_distribute(t, layout_of(line_of_ranks(world), ndim, shape, placements, NULL), -1);
}

static void compare(const char *what, const subject *s, sherd_tensor *is, const double *want)
{
    double x[ALL], unit = s->dtype == SHERD_F64    ? 1e-15
                          : s->dtype == SHERD_F32  ? 2e-7
                          : s->dtype == SHERD_BF16 ? 1.0 / 256
                                                   : 1.0 / 2048;

    if (!CHECK(is && sherd_full_read(x, sizeof x, is, SHERD_F64, -1)))
        return;
    for (int i = 0; i < ALL; i++) {
        double rounded = want[i];
        round_all(s->dtype, &rounded, 1);
        double off = x[i] == rounded ? 0 : fabs(x[i] - want[i]) / (1 + fabs(want[i]));
        if (!CHECK(off <= 2 * unit))
            fprintf(stderr, "  %s of %s, smoothed %g, mean %d: row %d, class %d: %g, not %g\n",
                    what, sherd_dtype_name(s->dtype), s->smoothing, (int)s->mean, i / CLASSES,
                    i % CLASSES, x[i], want[i]);
    }
}

static void try(sherd_world *world, subject *s, const char *placements)
{
    static const int64_t shape[] = {ROWS, CLASSES};
    double factor[ROWS];

    fill(s);
    sherd_scope_begin(world);
    sherd_tensor *x =
        sherd_require_grad(tensor_of(world, s->dtype, s->logit, 2, shape, placements), true);
    sherd_tensor *share =
        sherd_require_grad(tensor_of(world, s->dtype, s->share, 2, shape, placements), true);
    sherd_tensor *targets =
        sherd_distribute(sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, 1, s->target)),
                         layout_of(line_of_ranks(world), 1, shape, "R", NULL), -1);
    const sherd_cross_entropy_options options = {
        .weight = s->weighted ? tensor_of(world, s->dtype, s->weight, 1, shape + 1, "R") : NULL,
        .reduction = SHERD_LOSS_NONE,
        .label_smoothing = s->smoothing};
    for (int r = 0; r < ROWS; r++)
        factor[r] = r + 1;
    if (s->mean)
        sherd_backward(sherd_cross_entropy(x, targets));
    else
        sherd_backward(sherd_sum(
            sherd_mul(sherd_cross_entropy_with(x, s->probable ? share : targets, &options),
                      tensor_of(world, s->dtype, factor, 1, shape, "R"))));
    compare("dlogits", s, sherd_grad(x), s->dlogits);
    if (s->probable)
        compare("dtargets", s, sherd_grad(share), s->dshare);
    CHECK_OK(sherd_world_check(world));
    sherd_scope_end(world);
}

static void gradients_are_those_of_the_formula(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    static const char *const placements[] = {"R", "S(0)", "S(1)"};

    for (int d = 0; d < LEN(dtypes); d++)
        for (int l = 0; l < LEN(placements); l++)
            for (int i = 0; i < 9; i++) {
                subject s = {.dtype = dtypes[d],
                             .mean = i == 0,
                             .weighted = i > 0 && i % 2,
                             .probable = i > 4,
                             .smoothing = i > 0 && (i - 1) / 2 % 2 ? 0.25 : 0};
                try(world, &s, placements[l]);
            }
}

static const check_test tests[] = {
    {TEST(gradients_are_those_of_the_formula), {1, 2, 3}},
};
CHECK_MAIN(tests)
