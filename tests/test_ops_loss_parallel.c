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

static const check_test tests[] = {
    {TEST(losses_of_sharded_classes_are_those_of_the_whole), {4}},
};
CHECK_MAIN(tests)
