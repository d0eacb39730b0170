/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch needs a context manager for (loss_parallel), and its tests of that: cross-entropy of
 * logits that are sharded on classes, positions or both. Losses and gradients are those of the
 * whole; forward makes at most three calls, none of which has logits in it, and backward none.
 * PyTorch has the classes in dim 1, here they are in the last one.
 */
#include <math.h>

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_layers.h"
#include "tensors.h"

enum { MOST = 2048 };

typedef struct loss_case {
    const char *name, *mesh;
    int ndim;
    int64_t shape[3]; /* of the logits */
    const char *logits, *targets;
    bool weighed;
    const char *none, *sum, *mean; /* where the losses lie */
} loss_case;

static const loss_case cases[] = {
    {"J1", "tp=4", 2, {8, 16}, "S(1)", "R", true, "R", "R", "R"},
    {"J1, classes that do not divide", "tp=4", 2, {8, 10}, "S(1)", "R", true, "R", "R", "R"},
    {"J2", "tp=4", 3, {8, 12, 16}, "S(2)", "R", true, "R", "R", "R"},
    {"J3",
     "tp=4",
     2,
     {8, 16},
     "S(0)",
     "S(0)",
     false,
     "S(0)",
     "P(sum)",
     "R"}, /* theirs is an error */
    {"J4", "dp=2,tp=2", 2, {8, 16}, "S(0)S(1)", "S(0)R", false, "S(0)R", "P(sum)R", "RR"},
    {"J4, 7 rows", "dp=2,tp=2", 2, {7, 5}, "S(0)S(1)", "S(0)R", true, "S(0)R", "P(sum)R", "RR"},
    {"J5", "dp=2,tp=2", 2, {8, 16}, "RS(1)", "RR", false, "RR", "RR", "RR"},
    {"J6", "tp=2,dp=2", 2, {8, 16}, "S(1)S(0)", "RS(0)", false, "RS(0)", "RP(sum)", "RR"},
    {"J7", "tp=2,dp=2", 3, {4, 6, 16}, "S(2)S(1)", "RS(1)", false, "RS(1)", "RP(sum)", "RR"},
};

static const char *text_of(sherd_tensor *t)
{
    return sherd_tensor_layout(t) ? sherd_layout_placements(sherd_tensor_layout(t)) : "plain";
}

static double distance(sherd_tensor *a, sherd_tensor *b)
{
    static _Thread_local double x[MOST], y[MOST];
    int64_t n = sherd_tensor_count(sherd_full(sherd_detach(b)));
    double worst = 0;

    if (!sherd_full_read(x, sizeof x, a, SHERD_F64, -1) ||
        !sherd_full_read(y, sizeof y, b, SHERD_F64, -1))
        return INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= worst))
            worst = isnan(x[i]) ? INFINITY : fabs(x[i] - y[i]);
    return worst;
}

static sherd_tensor *logits_of(sherd_world *world, const loss_case *c)
{
    static _Thread_local double data[MOST];

    for (int i = 0; i < MOST; i++)
        data[i] = 3 * sin(0.7 * (i + 1)) + (i % 5 == 0);
    return sherd_require_grad(
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, c->shape, c->ndim, data)), true);
}

static sherd_tensor *targets_of(sherd_world *world, const loss_case *c)
{
    int32_t data[MOST];

    for (int i = 0; i < MOST; i++)
        data[i] = i % 6 == 5 ? -100 : (int32_t)(i * 7 % c->shape[c->ndim - 1]);
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, c->shape, c->ndim - 1, data));
}

static sherd_tensor *weights_of(sherd_world *world, const loss_case *c)
{
    double data[32];

    for (int i = 0; i < 32; i++)
        data[i] = 0.25 + i % 3;
    return c->weighed ? sherd_mark_equal(
                            sherd_from_data(world, SHERD_F64, &c->shape[c->ndim - 1], 1, data))
                      : NULL;
}

/* The loss, weighed so that each position counts differently. */
static void train(sherd_tensor *loss, sherd_tensor *weight)
{
    sherd_backward(sherd_sum(weight ? sherd_mul(loss, weight) : loss));
}

static void losses_of_sharded_classes_are_those_of_the_whole(sherd_world *world)
{
    static const sherd_loss_reduction kinds[] = {SHERD_LOSS_NONE, SHERD_LOSS_SUM, SHERD_LOSS_MEAN};

    for (int i = 0; i < LEN(cases) * LEN(kinds) * 2; i++) {
        const loss_case *c = &cases[i / 2 / LEN(kinds)];
        const int kind = i / 2 % LEN(kinds);
        const sherd_mesh *mesh = mesh_of(world, c->mesh);
        sherd_tensor *x = logits_of(world, c), *t = targets_of(world, c), *plain;
        sherd_cross_entropy_options o = {.weight = weights_of(world, c),
                                         .reduction = kinds[kind],
                                         .label_smoothing = i % 2 ? 0.1 : 0};
        plain = sherd_cross_entropy_with(x, t, &o);
        sherd_tensor *w = kind ? NULL : sherd_scale(sherd_detach(plain), 0.5);
        train(plain, w);
        sherd_tensor *pieces = sherd_distribute_as(x, mesh, c->logits, -1);
        t = sherd_distribute_as(t, mesh, c->targets, -1);
        sherd_comm_reset(world);
        sherd_tensor *loss = sherd_cross_entropy_with(pieces, t, &o);
        int64_t calls = sherd_comm_calls(world, NULL), bytes = sherd_comm_bytes(world, NULL);
        int64_t positions = sherd_tensor_count(x) / c->shape[c->ndim - 1];
        CHECK(calls <= 3);
        CHECK(bytes <= (5 * sherd_world_ranks(world) * positions + 8) * 8);
        CHECK_TEXT(text_of(loss), kind == 0 ? c->none : kind == 1 ? c->sum : c->mean);
        CHECK_NEAR(distance(loss, plain), 0, 1e-11);
        if (w)
            w = sherd_distribute_as(w, mesh, text_of(loss), -1);
        sherd_comm_reset(world);
        train(loss, w);
        CHECK_EQ(sherd_comm_calls(world, NULL), 0);
        CHECK(sherd_tensor_layout(sherd_grad(pieces)) == sherd_tensor_layout(pieces));
        if (!CHECK_NEAR(distance(sherd_grad(pieces), sherd_grad(x)), 0, 1e-11))
            fprintf(stderr, "  %s, reduction %d\n", c->name, kind);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- classes that are masked ----------------------------------------------------------------- */

enum { ROWS = 3, CLASSES = 600, FEW = 7 };

/*
 * Logits of which the last ones are -inf in all rows, as where a vocabulary is padded, and in one
 * row all but the last that are not. So some rank, and some block of 16-bit numbers, has nothing
 * but -inf.
 */
static sherd_tensor *masked(sherd_world *world, int64_t classes, sherd_dtype dtype)
{
    static _Thread_local double data[ROWS * CLASSES];
    int64_t real = classes - classes / 2;

    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < classes; c++)
            data[r * classes + c] =
                c >= real || (r == 1 && c < real - 2) ? -INFINITY : sin((double)(r + 2 * c));
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, (int64_t[]){ROWS, classes}, 2, data);
    return sherd_require_grad(sherd_detach(sherd_cast(sherd_mark_equal(t), dtype)), true);
}

static sherd_tensor *loss_of(sherd_tensor *logits, sherd_tensor *targets, int kind)
{
    const sherd_cross_entropy_options sum = {.reduction = SHERD_LOSS_SUM};

    return kind == 0   ? sherd_cross_entropy(logits, targets)
           : kind == 1 ? sherd_cross_entropy_with(logits, targets, NULL)
                       : sherd_cross_entropy_with(logits, targets, &sum);
}

/* log(sum of exp) - logit of the target, added up, and its gradients, by plain loops. */
static double by_hand(const double *x, const int32_t *target, int64_t classes, double *slope)
{
    double loss = 0;

    for (int64_t r = 0; r < ROWS; r++, x += classes, slope += classes) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp(x[c]);
        for (int64_t c = 0; c < classes; c++)
            slope[c] = exp(x[c]) / sum - (c == target[r]);
        loss += log(sum) - x[target[r]];
    }
    return loss;
}

static void a_rank_may_have_only_masked_classes(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};
    static const double near[] = {1e-12, 1e-5, 0.04, 0.01};
    static const int64_t sizes[] = {CLASSES, FEW};
    static _Thread_local double x[ROWS * CLASSES], wanted[ROWS * CLASSES], slope[ROWS * CLASSES];
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < LEN(dtypes) * LEN(sizes) * 3 * 2; i++) {
        int kind = i % 3, t = i / 6 % LEN(dtypes);
        int64_t n = sizes[i / 6 / LEN(dtypes)];
        const int32_t target[ROWS] = {0, (int32_t)(n - n / 2 - 1), 1};
        double loss = 0, by = kind == 2 ? 1 : ROWS;
        sherd_scope_begin(world);
        sherd_tensor *a = masked(world, n, dtypes[t]);
        if (i / 3 % 2)
            a = sherd_require_grad(sherd_distribute_as(sherd_detach(a), mesh, "S(1)", -1), true);
        sherd_tensor *b = sherd_from_data(world, SHERD_I32, (int64_t[]){ROWS}, 1, target);
        sherd_tensor *y = loss_of(a, sherd_mark_equal(b), kind);
        sherd_backward(y);
        CHECK(sherd_full_read(x, sizeof x, sherd_detach(a), SHERD_F64, -1));
        CHECK(sherd_full_read(slope, sizeof slope, sherd_grad(a), SHERD_F64, -1));
        CHECK(sherd_full_read(&loss, sizeof loss, sherd_detach(y), SHERD_F64, -1));
        CHECK_NEAR(loss * by, by_hand(x, target, n, wanted), near[t] * 2);
        double worst = 0;
        for (int64_t k = 0; k < ROWS * n; k++)
            if (!(fabs(slope[k] * by - wanted[k]) <= worst))
                worst = fabs(slope[k] * by - wanted[k]);
        CHECK_NEAR(worst, 0, near[t]);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_rank_may_have_only_masked_classes), {1, 2, 3, 4, 8}},
    {TEST(losses_of_sharded_classes_are_those_of_the_whole), {4}},
};
CHECK_MAIN(tests)
