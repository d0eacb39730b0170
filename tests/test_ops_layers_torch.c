/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers with options against numbers of PyTorch (layers_golden.h), in f64: results and gradients.
 * And what those numbers do not show: where nothing counts, where a logit is infinite, what
 * travels.
 */
#include <math.h>

#include "layers_golden.h"
#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops_layers.h"
#include "tensors.h"

enum { MOST_NUMBERS = 400 };

/* ---- operands -------------------------------------------------------------------------------- */

static sherd_tensor *values(sherd_world *world, int k, int ndim, const int64_t *shape)
{
    double x[MOST_NUMBERS];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int64_t i = 0; i < n; i++)
        x[i] = sin(0.9 + 0.37 * (double)i + 1.7 * k);
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, ndim, x));
}

#define VALUES(k, ...) \
    values(world, k, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
#define LEAF(k, ...) sherd_require_grad(VALUES(k, __VA_ARGS__), true)

static sherd_tensor *indices(sherd_world *world, int ndim, const int64_t *shape, const int32_t *at)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, ndim, at));
}

/* The result, then the gradients of the leaves, beside what is stored under this name. */
static void compare(const char *name, sherd_tensor *y, sherd_tensor *const *leaf, int leaves)
{
    const golden *want = NULL;
    int at = 0, wrong = 0;

    for (int i = 0; i < LEN(goldens); i++)
        if (strcmp(goldens[i].name, name) == 0)
            want = &goldens[i];
    if (!CHECK(want != NULL) || !CHECK(!sherd_tensor_failed(y)))
        return;
    sherd_backward(sherd_sum(sherd_mul(
        y, values(sherd_tensor_world(y), 9, sherd_tensor_ndim(y), sherd_tensor_shape(y)))));
    for (int t = -1; t < leaves; t++) {
        sherd_tensor *part = t < 0 ? y : sherd_grad(leaf[t]);
        const double *x = part ? sherd_tensor_read(part) : NULL;
        if (!CHECK(x && at + sherd_tensor_count(part) <= want->count))
            return;
        for (int64_t i = 0; i < sherd_tensor_count(part); i++, at++)
            wrong +=
                isnan(want->value[at]) ? !isnan(x[i]) : !(fabs(x[i] - want->value[at]) <= 1e-12);
    }
    CHECK_EQ(at, want->count);
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "  in %s\n", name);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static sherd_tensor *probabilities(sherd_world *world)
{
    double p[30];

    for (int r = 0; r < 6; r++) {
        double sum = 0;
        for (int c = 0; c < 5; c++)
            sum += p[5 * r + c] = exp(sin(0.9 + 0.37 * (5 * r + c) + 1.7));
        for (int c = 0; c < 5; c++)
            p[5 * r + c] /= sum;
    }
    return sherd_require_grad(
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, (int64_t[]){6, 5}, 2, p)), true);
}

static sherd_tensor *class_weights(sherd_world *world)
{
    double w[5];

    for (int c = 0; c < 5; c++)
        w[c] = fabs(sin(0.9 + 0.37 * c + 3.4)) + 0.1;
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, (int64_t[]){5}, 1, w));
}

static void losses_are_those_of_pytorch(sherd_world *world)
{
    static const char *const names[] = {"mean", "sum", "none"};
    static const int32_t at[] = {3, 1, -100, 0, 2, 1}, of[] = {3, 1, 0, 0, 2, 1};
    static const int32_t none[] = {-100, -100, -100, -100, -100, -100};
    const int64_t six = 6;

    for (int i = 0; i < 12; i++) {
        sherd_tensor *x = LEAF(0, 6, 5), *p = probabilities(world);
        sherd_cross_entropy_options o = {.reduction = (sherd_loss_reduction)(i / 4),
                                         .weight = i & 2 ? class_weights(world) : NULL,
                                         .label_smoothing = i & 1 ? 0.3 : 0};
        char name[64], rest[16];
        snprintf(rest, sizeof rest, "%d %s", i >> 1 & 1, i & 1 ? "0.3" : "0.0");
        snprintf(name, sizeof name, "indices %s %s", names[i / 4], rest);
        compare(name, sherd_cross_entropy_with(x, indices(world, 1, &six, at), &o), &x, 1);
        x = LEAF(0, 6, 5);
        snprintf(name, sizeof name, "probabilities %s %s", names[i / 4], rest);
        compare(name, sherd_cross_entropy_with(x, p, &o), (sherd_tensor *[]){x, p}, 2);
    }
    sherd_cross_entropy_options one = {.has_ignored = true, .ignored = 1};
    sherd_tensor *x = LEAF(0, 6, 5);
    compare("ignored 1", sherd_cross_entropy_with(x, indices(world, 1, &six, of), &one), &x, 1);
    x = LEAF(0, 6, 5);
    compare("all ignored", sherd_cross_entropy_with(x, indices(world, 1, &six, none), NULL), &x, 1);
    CHECK_OK(sherd_world_check(world));
}

/* PyTorch has NaN in the second. */
static void an_infinite_logit_is_no_share(sherd_world *world)
{
    const double logits[] = {0, 0, -INFINITY}, p[] = {0.5, 0.5, 0};
    sherd_tensor *x = sherd_from_data(world, SHERD_F64, (int64_t[]){1, 3}, 2, logits);
    sherd_tensor *soft = sherd_from_data(world, SHERD_F64, (int64_t[]){1, 3}, 2, p);
    sherd_tensor *hard = sherd_from_data(world, SHERD_I32, (int64_t[]){1}, 1, &(int32_t){2});

    CHECK(sherd_item(sherd_cross_entropy_with(x, hard, NULL)) == INFINITY);
    CHECK_NEAR(sherd_item(sherd_cross_entropy_with(x, soft, NULL)), log(2), 1e-15);
    CHECK_OK(sherd_world_check(world));
}

/* ---- attention, norms, positions ------------------------------------------------------------- */

static void attention_is_that_of_pytorch(sherd_world *world)
{
    sherd_tensor *t[4], *sums;
    unsigned char seen[18];

    for (int groups = 1; groups <= 4; groups *= 2) {
        t[0] = LEAF(0, 2, 3, 4, 2);
        t[1] = LEAF(1, 2, 3, groups, 2);
        t[2] = LEAF(2, 2, 3, groups, 2);
        t[3] = LEAF(3, 4, 1, 3);
        sherd_attention_options causal = {.causal = true}, scaled = {.scale = 0.3};
        sherd_attention_options masked = {.mask = t[3]};
        compare(groups == 1   ? "one head of keys"
                : groups == 2 ? "grouped causal"
                              : "added mask",
                sherd_attention(t[0], t[1], t[2],
                                groups == 1   ? &scaled
                                : groups == 2 ? &causal
                                              : &masked),
                t, groups == 4 ? 4 : 3);
    }
    for (int i = 0; i < 18; i++)
        seen[i] = sin(0.9 + 0.37 * i + 1.7 * 3) > 0.5;
    sherd_attention_options bools = {.mask = sherd_mark_equal(sherd_from_data(
                                         world, SHERD_BOOL, (int64_t[]){2, 1, 3, 3}, 4, seen))};
    t[0] = LEAF(0, 2, 3, 4, 2);
    t[1] = LEAF(1, 2, 3, 2, 2);
    t[2] = LEAF(2, 2, 3, 2, 2);
    compare("bool mask", sherd_attention(t[0], t[1], t[2], &bools), t, 3);
    t[0] = LEAF(0, 2, 3, 4, 2);
    t[1] = LEAF(1, 2, 3, 4, 2);
    sherd_attention_with(NULL, &sums, t[0], t[1], t[1], NULL);
    compare("logarithms", sums, t, 2);
    CHECK_OK(sherd_world_check(world));
}

static void norms_and_positions_are_those_of_pytorch(sherd_world *world)
{
    sherd_tensor *x = LEAF(0, 3, 5), *w = LEAF(1, 5);
    sherd_rotary_options pairs = {.base = 100, .offset = 7, .rotated = 4, .interleaved = true};

    compare("rms_norm", sherd_rms_norm(x, w, 1e-3), (sherd_tensor *[]){x, w}, 2);
    x = LEAF(0, 3, 5);
    compare("rms_norm bare", sherd_rms_norm(x, NULL, 2.220446049250313e-16), &x, 1);
    x = LEAF(0, 2, 3, 2, 4);
    compare("rotary", sherd_rotary(x, NULL, NULL), &x, 1);
    x = LEAF(0, 2, 3, 2, 6);
    compare("rotary pairs", sherd_rotary(x, NULL, &pairs), &x, 1);
    x = LEAF(0, 2, 3, 2, 4);
    sherd_tensor *at = indices(world, 2, (int64_t[]){2, 3}, (const int32_t[]){5, 0, 9, 1, 2, 3});
    compare("rotary at", sherd_rotary(x, at, NULL), &x, 1);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels ---------------------------------------------------------------------------- */

static const char *placements(sherd_tensor *t)
{
    return sherd_tensor_layout(t) ? sherd_layout_placements(sherd_tensor_layout(t)) : "plain";
}

static int64_t calls_logged(sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).calls;
    return n;
}

static int64_t bytes_logged(sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).bytes_received;
    return n;
}

static sherd_tensor *lying(const sherd_mesh *mesh, sherd_tensor *t, const char *placements)
{
    const sherd_layout *layout =
        layout_of(mesh, sherd_tensor_ndim(t), sherd_tensor_shape(t), placements, NULL);
    return sherd_distribute(t, layout, -1);
}

/* Five numbers a position for the classes, two in all for positions; nothing in backward. */
static void logits_never_travel(sherd_world *world)
{
    static const char *const lies[] = {"RR", "S(0)R", "RS(1)", "S(0)S(1)", "S(1)S(1)", "S(0)S(0)"};
    static const int calls[] = {0, 1, 1, 2, 1, 1};
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    const int64_t rows = 12, classes = 32;
    int32_t at[12];

    for (int r = 0; r < rows; r++)
        at[r] = r * 7 % 32;
    for (int i = 0; i < LEN(lies); i++) {
        sherd_tensor *x = sherd_require_grad(lying(mesh, VALUES(0, rows, classes), lies[i]), true);
        sherd_tensor *targets = lying(mesh, indices(world, 1, &rows, at),
                                      i == 5  ? "S(0)S(0)"
                                      : i & 1 ? "S(0)R"
                                              : "RR");
        sherd_comm_reset(world);
        sherd_tensor *loss = sherd_cross_entropy_with(
            x, targets, &(sherd_cross_entropy_options){.label_smoothing = 0.1});
        CHECK_EQ(calls_logged(world), calls[i]);
        CHECK(bytes_logged(world) <= 3 * 5 * 8 * rows + 64);
        CHECK_TEXT(placements(loss), "RR");
        sherd_comm_reset(world);
        sherd_backward(loss);
        CHECK_EQ(calls_logged(world), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void what_is_local_stays_so(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *q = sherd_require_grad(lying(mesh, VALUES(0, 2, 3, 4, 2), "S(0)S(2)"), true);
    sherd_tensor *k = sherd_require_grad(lying(mesh, VALUES(1, 2, 3, 2, 2), "S(0)S(2)"), true);
    sherd_tensor *one = sherd_require_grad(lying(mesh, VALUES(1, 2, 3, 1, 2), "S(0)R"), true);
    sherd_tensor *mask = lying(mesh, VALUES(3, 2, 4, 3, 3), "S(0)S(1)");
    sherd_tensor *x = sherd_require_grad(lying(mesh, VALUES(0, 2, 3, 4, 2), "S(1)S(2)"), true);

    sherd_comm_reset(world);
    sherd_tensor *y = sherd_attention(q, k, k, &(sherd_attention_options){.mask = mask});
    CHECK_TEXT(placements(y), "S(0)S(2)");
    sherd_backward(sherd_sum(y));
    y = sherd_attention(q, one, one, NULL);
    CHECK_TEXT(placements(y), "S(0)S(2)");
    sherd_backward(sherd_sum(y));
    y = sherd_rotary(x, NULL, NULL);
    CHECK_TEXT(placements(y), "S(1)S(2)");
    sherd_backward(sherd_sum(y));
    CHECK_EQ(calls_logged(world), 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(losses_are_those_of_pytorch), {1}},
    {TEST(an_infinite_logit_is_no_share), {1}},
    {TEST(attention_is_that_of_pytorch), {1}},
    {TEST(norms_and_positions_are_those_of_pytorch), {1}},
    {TEST(logits_never_travel), {4}},
    {TEST(what_is_local_stays_so), {4}},
};
CHECK_MAIN(tests)
