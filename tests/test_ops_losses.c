/* SPDX-License-Identifier: Apache-2.0 */
/* Losses under every placement, with their gradients, those of targets too; numbers from PyTorch
 * 2.13; and misuse's answers. */
#include "ops_halves.h"
#include "ops_oracles.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_reductions.h"

#define RUN(name, expression)                          \
    static sherd_tensor *name(sherd_tensor *const *in) \
    {                                                  \
        return expression;                             \
    }

RUN(mse, sherd_mse_loss(in[0], in[1], SHERD_LOSS_MEAN))
RUN(mse_each, sherd_mse_loss(in[0], in[1], SHERD_LOSS_NONE))
RUN(l1, sherd_l1_loss(in[0], in[1], SHERD_LOSS_SUM))
RUN(huber, sherd_huber_loss(in[0], in[1], 0.4, SHERD_LOSS_MEAN))
RUN(smooth, sherd_smooth_l1_loss(in[0], in[1], 0.6, SHERD_LOSS_SUM))
RUN(smooth_0, sherd_smooth_l1_loss(in[0], in[1], 0, SHERD_LOSS_MEAN))
RUN(bce, sherd_bce_with_logits(in[0], sherd_sigmoid(in[1]), NULL, NULL, SHERD_LOSS_MEAN))
RUN(bce_weighed, sherd_bce_with_logits(in[0], sherd_sigmoid(in[1]), sherd_square(in[2]),
                                       sherd_exp(in[2]), SHERD_LOSS_NONE))
RUN(kl, sherd_kl_div(sherd_log_softmax(in[0], -1), sherd_softmax(in[1], -1), false, SHERD_LOSS_SUM))
RUN(kl_log,
    sherd_kl_div(sherd_log_softmax(in[0], -1), sherd_log_softmax(in[1], 0), true, SHERD_LOSS_MEAN))
RUN(nll, sherd_nll_loss(in[0], in[1], SHERD_LOSS_MEAN))
RUN(nll_each, sherd_nll_loss(sherd_log_softmax(in[0], -1), in[1], SHERD_LOSS_NONE))

/* Weights 0, 1, 2 .. of indices, of the dtype of logarithms. */
static sherd_tensor *nll_with(sherd_tensor *const *in, bool weighs, sherd_nll_options options)
{
    if (weighs)
        options.weight = sherd_cast(in[2], sherd_tensor_dtype(in[0]));
    return sherd_nll_loss_with(in[0], in[1], &options);
}

#define IGNORE(class) .has_ignored = true, .ignored = class
RUN(nll_ignoring, nll_with(in, false, (sherd_nll_options){IGNORE(2)}))
RUN(nll_weighed, nll_with(in, true, (sherd_nll_options){0}))
RUN(nll_both, nll_with(in, true, (sherd_nll_options){IGNORE(1)}))
RUN(nll_sum, nll_with(in, true, (sherd_nll_options){IGNORE(1), .reduction = SHERD_LOSS_SUM}))
RUN(nll_none, nll_with(in, true, (sherd_nll_options){IGNORE(0), .reduction = SHERD_LOSS_NONE}))

#define OF_NLL .shape = {{5, 4}, {5}, {4}}, .index = 6, .limit = 4
#define TWO    .shape = {{5, 3}, {5, 3}}
static const op_case losses[] = {
    {"mse", mse, 2, {2, 2}, TWO},
    {"mse each", mse_each, 2, {2, 1}, .shape = {{5, 3}, {3}}},
    {"l1", l1, 2, {2, 2}, TWO},
    {"huber", huber, 2, {2, 2}, TWO},
    {"smooth l1", smooth, 2, {2, 2}, TWO},
    {"smooth l1 with 0", smooth_0, 2, {2, 2}, TWO},
    {"bce", bce, 2, {2, 2}, TWO},
    {"bce weighed", bce_weighed, 3, {2, 2, 1}, .shape = {{5, 3}, {5, 3}, {3}}},
    {"kl", kl, 2, {2, 2}, TWO},
    {"kl of logarithms", kl_log, 2, {2, 2}, TWO},
    {"nll", nll, 2, {3, 2}, .shape = {{3, 2, 7}, {3, 2}}, .index = 2, .limit = 7},
    {"nll each", nll_each, 2, {2, 1}, .shape = {{5, 3}, {5}}, .index = 2, .limit = 3},
    {"nll ignoring", nll_ignoring, 2, {3, 2}, .shape = {{3, 2, 7}, {3, 2}}, .index = 2, .limit = 7},
    {"nll weighed", nll_weighed, 3, {2, 1, 1}, OF_NLL},
    {"nll weighed, ignoring", nll_both, 3, {2, 1, 1}, OF_NLL},
    {"nll sum", nll_sum, 3, {2, 1, 1}, OF_NLL},
    {"nll each of some", nll_none, 3, {2, 1, 1}, OF_NLL},
    {"nll one position", nll_none, 3, {1, 0, 1}, .shape = {{4}, {0}, {4}}, .index = 6, .limit = 4},
    {"nll of nothing", nll_sum, 3, {2, 1, 1}, .shape = {{0, 4}, {0}, {4}}, .index = 6, .limit = 4},
};

static void sharded_equals_plain(sherd_world *world)
{
    all_equal_plain(world, losses, LEN(losses), 60);
}

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, losses, LEN(losses), 30);
}

static void a_rank_outside_of_the_mesh_takes_no_part(sherd_world *world)
{
    all_without_rank_1(world, losses, LEN(losses), 10);
}

/* Of classes; of differences those near 0 have another sign when they are rounded. */
static void sixteen_bits_lose_as_much(sherd_world *world)
{
    for (int i = 0; i < LEN(losses); i++)
        if (strncmp(losses[i].name, "nll", 3) == 0)
            all_in_halves(world, &losses[i], 1, 5);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static sherd_tensor *row(sherd_world *world, int64_t n, const double *x)
{
    return sherd_require_grad(sherd_from_data(world, SHERD_F64, &n, 1, x), true);
}

/* A logit of 1000 is no overflow, and one that is right loses what is left of it. */
static void large_logits_are_exact(sherd_world *world)
{
    static const double x[] = {1000, -1000, 50, 0}, t[] = {0, 1, 1, 1};
    sherd_tensor *logits = row(world, 4, x);
    sherd_tensor *each =
        sherd_bce_with_logits(logits, row(world, 4, t), NULL, NULL, SHERD_LOSS_NONE);
    const double *y = sherd_tensor_read(each);

    CHECK(y && y[0] == 1000 && y[1] == 1000 && fabs(y[2] / 1.9287498479639178e-22 - 1) < 1e-12);
    CHECK_NEAR(y ? y[3] : 0, 0.69314718055994531, 1e-15);
    sherd_backward(sherd_sum(each));
    const double *g = sherd_tensor_read(sherd_grad(logits));
    CHECK(g && g[0] == 1 && g[1] == -1 && g[3] == -0.5);
    CHECK_OK(sherd_world_check(world));
}

/* The gradient of a logit far below 0 is less the target, in 16 bits too. */
static void small_targets_keep_their_bits(sherd_world *world)
{
    for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_F16; dtype++) {
        sherd_tensor *x = sherd_require_grad(sherd_constant(world, dtype, NULL, 0, -60000), true);
        sherd_tensor *t = sherd_constant(world, dtype, NULL, 0, 0.0121);
        sherd_backward(sherd_bce_with_logits(x, t, NULL, NULL, SHERD_LOSS_SUM));
        CHECK_EQ(sherd_item(sherd_grad(x)), -sherd_item(t));
    }
    CHECK_OK(sherd_world_check(world));
}

/* A target of 0 loses nothing and gets no gradient. */
static void a_target_of_0_is_no_nan(sherd_world *world)
{
    static const double x[] = {-1, -2}, t[] = {0, 1};
    sherd_tensor *target = row(world, 2, t);
    sherd_tensor *loss = sherd_kl_div(row(world, 2, x), target, false, SHERD_LOSS_SUM);

    CHECK_NEAR(sherd_item(loss), 2, 1e-15);
    sherd_backward(loss);
    const double *g = sherd_tensor_read(sherd_grad(target));
    CHECK(g && !isnan(g[0]) && g[1] == 3);
    CHECK_OK(sherd_world_check(world));
}

/* Whatever the other distribution says of it: never, for example. */
static void a_target_of_0_is_none_of_an_infinite_logarithm(sherd_world *world)
{
    const double x[] = {-INFINITY, -2}, t[] = {0, 1}, log_t[] = {-INFINITY, 0};

    for (int logarithms = 0; logarithms < 2; logarithms++) {
        sherd_tensor *log_x = sherd_require_grad(row(world, 2, x), true);
        sherd_tensor *target = sherd_require_grad(row(world, 2, logarithms ? log_t : t), true);
        sherd_tensor *loss = sherd_kl_div(log_x, target, logarithms, SHERD_LOSS_SUM);
        CHECK_EQ(sherd_item(loss), 2);
        sherd_backward(loss);
        const double *g = sherd_tensor_read(sherd_grad(log_x));
        CHECK(g && g[0] == 0 && g[1] == -1);
        g = sherd_tensor_read(sherd_grad(target));
        CHECK(g && !isnan(g[0]) && g[1] == 3);
        CHECK_OK(sherd_world_check(world));
    }
    const double never[] = {-INFINITY, -INFINITY};
    CHECK(sherd_item(sherd_kl_div(row(world, 2, never), row(world, 2, t), false, SHERD_LOSS_SUM)) ==
          (double)INFINITY);
    CHECK_OK(sherd_world_check(world));
}

/* Small differences, of 16 bits too, and a beta whose inverse is infinite. */
static void a_small_beta_leaves_digits(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F16, SHERD_F32, SHERD_F64, SHERD_F16};
    static const double betas[] = {1e-4, 1e-40, 1e-320, 0.01}, off[] = {1e-3, 1e-6, 1e-15, 2e-3};
    const double x[] = {0, 5e-4, 1e-3, 0.01, 2};

    for (int i = 0; i < LEN(dtypes); i++) {
        sherd_tensor *d = sherd_cast(sherd_detach(row(world, LEN(x), x)), dtypes[i]);
        sherd_tensor *zero = sherd_scale(d, 0);
        sherd_tensor *y = sherd_smooth_l1_loss(d, zero, betas[i], SHERD_LOSS_NONE);
        sherd_tensor *is = sherd_cast(y, SHERD_F64), *rounded = sherd_cast(d, SHERD_F64);
        const double *a = sherd_tensor_read(is), *of = sherd_tensor_read(rounded);
        for (int k = 0; k < LEN(x) && CHECK(a && of); k++) {
            double beta = betas[i];
            double want = of[k] < beta ? of[k] * of[k] / (2 * beta) : of[k] - beta / 2;
            CHECK_NEAR(a[k], want, off[i] * want);
        }
        CHECK_EQ(sherd_tensor_dtype(y), dtypes[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_mean_of_no_losses_is_nan(sherd_world *world)
{
    sherd_tensor *none = row(world, 0, (double[]){0});

    CHECK(isnan(sherd_item(sherd_mse_loss(none, none, SHERD_LOSS_MEAN))));
    CHECK(sherd_item(sherd_mse_loss(none, none, SHERD_LOSS_SUM)) == 0);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *classes_of(sherd_world *world, int64_t n, const int32_t *at)
{
    return sherd_from_data(world, SHERD_I32, &n, 1, at);
}

/* No weights and no targets: what is left is 0 / 0, or a choice that is not made. */
static void what_does_not_count_has_no_loss_and_no_gradient(sherd_world *world)
{
    static const double x[] = {-(double)INFINITY, -2, -3, -4}, w[] = {0, 2};
    static const int32_t some[] = {0, 1}, none[] = {-100, -100};
    sherd_tensor *log_x =
        sherd_require_grad(sherd_from_data(world, SHERD_F64, (int64_t[]){2, 2}, 2, x), true);
    sherd_tensor *weight = sherd_from_data(world, SHERD_F64, (int64_t[]){2}, 1, w);
    const sherd_nll_options weighed = {.weight = weight};
    sherd_tensor *loss = sherd_nll_loss_with(log_x, classes_of(world, 2, some), &weighed);

    CHECK(sherd_item(loss) == 4);
    sherd_backward(loss);
    const double *g = sherd_tensor_read(sherd_grad(log_x));
    CHECK(g && g[0] == 0 && g[1] == 0 && g[2] == 0 && g[3] == -1);
    CHECK(isnan(sherd_item(sherd_nll_loss_with(log_x, classes_of(world, 2, none), NULL))));
    CHECK(sherd_item(sherd_nll_loss_with(log_x, classes_of(world, 2, none),
                                         &(sherd_nll_options){.reduction = SHERD_LOSS_SUM})) == 0);
    CHECK_OK(sherd_world_check(world));
}

static double largest_of(sherd_tensor *x)
{
    return sherd_item(sherd_max(sherd_abs(x), NULL, 0, false));
}

/* More rows than are taken at once: a logarithm is what x is less than the logarithm of the sum,
 * and softmax its exponential. */
static void many_rows_are_softmaxes_of_their_own(sherd_world *world)
{
    static const int64_t shapes[][3] = {{101, 301, 1}, {37, 53, 21}, {5, 9001, 1}, {400, 3, 40}};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16};

    for (int i = 0; i < LEN(shapes) * LEN(dtypes); i++) {
        const sherd_dtype dtype = dtypes[i % LEN(dtypes)];
        sherd_generator g = sherd_generator_named("rows");
        sherd_scope_begin(world);
        sherd_tensor *x =
            sherd_random(world, dtype, shapes[i / LEN(dtypes)], 3, sherd_normal(0, 2), &g);
        sherd_tensor *exact = sherd_cast(x, SHERD_F64);
        sherd_tensor *want = sherd_sub(exact, sherd_logsumexp(exact, 1, true));
        sherd_tensor *y = sherd_cast(sherd_log_softmax(x, 1), SHERD_F64);
        sherd_tensor *e = sherd_cast(sherd_softmax(x, 1), SHERD_F64);
        double near_log = dtype == SHERD_BF16 ? 0.07 : dtype == SHERD_F32 ? 1e-5 : 1e-13;
        double near = dtype == SHERD_BF16 ? 0.004 : dtype == SHERD_F32 ? 1e-5 : 1e-13;
        CHECK(largest_of(sherd_sub(y, want)) <= near_log);
        CHECK(largest_of(sherd_add_scalar(sherd_div(e, sherd_exp(want)), -1)) <= near);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A target is as good as the probabilities that it stands for; infinities are their own. */
static void smoothed_targets_are_probabilities(sherd_world *world)
{
    enum { ROWS = 5, CLASSES = 37 };
    static const int32_t target[ROWS] = {0, 36, 8, 17, 31};
    static const double smoothing[] = {0.1, 1};
    const int64_t shape[] = {ROWS, CLASSES}, rows = ROWS;
    double logit[ROWS * CLASSES];

    for (int i = 0; i < ROWS * CLASSES; i++)
        logit[i] = i % 29 / 3.0 - 4;
    logit[2 * CLASSES + 8] = -(double)INFINITY; /* of a target */
    logit[3 * CLASSES + 36] = -(double)INFINITY;
    for (int i = 0; i < 2 * LEN(smoothing); i++) {
        sherd_tensor *t = sherd_from_data(world, SHERD_I32, &rows, 1, target), *grad[2], *loss[2];
        sherd_cross_entropy_options options = {.reduction = SHERD_LOSS_NONE,
                                               .label_smoothing = smoothing[i / 2]};
        sherd_dtype dtype = i % 2 ? SHERD_F32 : SHERD_F64;
        for (int k = 0; k < 2; k++) {
            sherd_tensor *x = sherd_cast(sherd_from_data(world, SHERD_F64, shape, 2, logit), dtype);
            sherd_require_grad(x, true);
            sherd_tensor *given = k ? sherd_one_hot(t, CLASSES, dtype) : t;
            sherd_tensor *y = sherd_cross_entropy_with(x, given, &options);
            sherd_backward(sherd_sum(sherd_mul(y, sherd_constant(world, dtype, &rows, 1, 1.5))));
            loss[k] = sherd_cast(y, SHERD_F64);
            grad[k] = sherd_cast(sherd_grad(x), SHERD_F64);
        }
        const double *a = sherd_tensor_read(loss[0]), *b = sherd_tensor_read(loss[1]);
        const double *g = sherd_tensor_read(grad[0]), *h = sherd_tensor_read(grad[1]);
        for (int r = 0; r < ROWS; r++)
            CHECK(a[r] == b[r] || fabs(a[r] - b[r]) < 1e-5);
        for (int c = 0; c < ROWS * CLASSES; c++)
            CHECK(fabs(g[c] - h[c]) < 1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(smoothed_targets_are_probabilities), {1}},
    {TEST(many_rows_are_softmaxes_of_their_own), {1}},
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(a_rank_outside_of_the_mesh_takes_no_part), {3}},
    {TEST(sixteen_bits_lose_as_much), {1, 2, 4}},
    {TEST(large_logits_are_exact), {1}},
    {TEST(small_targets_keep_their_bits), {1}},
    {TEST(a_target_of_0_is_none_of_an_infinite_logarithm), {1, 2}},
    {TEST(a_target_of_0_is_no_nan), {1}},
    {TEST(a_mean_of_no_losses_is_nan), {1}},
    {TEST(a_small_beta_leaves_digits), {1}},
    {TEST(what_does_not_count_has_no_loss_and_no_gradient), {1}},
};
CHECK_MAIN(tests)
