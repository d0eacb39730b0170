/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backward that is recorded (create_graph) computes gradients by formulas. They are those of a
 * backward that is not recorded, also where operands are extreme: hidden keys, classes of
 * probability 0, rows of nothing but -inf, 16 bits. And what second derivatives are there.
 */
#include <math.h>

#include "modules.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"

enum { MOST_INPUTS = 3, LENGTH = 4, WIDTH = 2, ROWS = 3, CLASSES = 5 };

static const sherd_gradients_options recorded = {.create_graph = true};

/* Gradients of y with the inputs, recorded and not. They differ by `tolerance` at most. */
static void same_gradients(sherd_tensor *y, sherd_tensor *const *in, int n, double tolerance)
{
    sherd_tensor *plain[MOST_INPUTS] = {NULL}, *graph[MOST_INPUTS] = {NULL};
    sherd_world *world = sherd_tensor_world(y);
    double want[MOST];

    sherd_gradients(plain, in, n, &y, 1,
                    &(sherd_gradients_options){.retain = true, .unused = true});
    sherd_gradients(graph, in, n, &y, 1,
                    &(sherd_gradients_options){.create_graph = true, .unused = true});
    for (int i = 0; i < n && CHECK(!plain[i] == !graph[i]); i++)
        if (plain[i] && !sherd_tensor_failed(plain[i])) {
            int64_t count = whole(plain[i], want);
            CHECK_NEAR(distance_to(graph[i], want, count), 0, tolerance);
        }
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

static sherd_tensor *leaf(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape,
                          int k, const char *placements)
{
    sherd_tensor *x = wave(world, dtype, ndim, shape, k, 1, 0);

    return sherd_require_grad(spread(x, line_of_ranks(world), placements), true);
}

/* Rows of numbers, spread. */
static sherd_tensor *rows_of(sherd_world *world, sherd_dtype dtype, const double *x,
                             const char *placements)
{
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, SHAPE(ROWS, CLASSES), 2, x);

    return spread(sherd_cast(sherd_mark_equal(t), dtype), line_of_ranks(world), placements);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The first key is masked by the smallest f32, later ones by the causal mask: the query that sees
 * only the first one attends to it. */
static void keys_may_be_masked_by_the_smallest_number(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    const float least = -3.4028234663852886e38F, mask[LENGTH] = {least, 0, 0, 0};

    for (int p = 0; p < LEN(placements); p++) {
        sherd_scope_begin(world);
        sherd_tensor *in[MOST_INPUTS],
            *hide = sherd_from_data(world, SHERD_F32, SHAPE(1, LENGTH), 2, mask);
        for (int i = 0; i < 3; i++)
            in[i] = leaf(world, SHERD_F32, 4, SHAPE(2, LENGTH, 1, WIDTH), 3 + i, placements[p]);
        sherd_tensor *y = sherd_attention(
            in[0], in[1], in[2],
            &(sherd_attention_options){.causal = true, .mask = sherd_mark_equal(hide)});
        same_gradients(sherd_sum(sherd_mul(y, y)), in, 3, 1e-5);
        sherd_scope_end(world);
    }
}

/* The log of the sums of weights does not depend on values. */
static void a_result_may_depend_on_no_leaf(sherd_world *world)
{
    sherd_tensor *in[3], *y, *log_sum;

    for (int i = 0; i < 3; i++)
        in[i] = leaf(world, SHERD_F64, 4, SHAPE(2, LENGTH, 1, WIDTH), 3 + i, "S(0)");
    sherd_require_grad(in[0], false);
    sherd_require_grad(in[1], false);
    CHECK(sherd_attention_with(&y, &log_sum, in[0], in[1], in[2], NULL));
    same_gradients(sherd_sum(sherd_square(log_sum)), &in[2], 1, 0);
    same_gradients(sherd_add(sherd_sum(sherd_square(log_sum)), sherd_sum(sherd_square(y))), &in[2],
                   1, 1e-12);
}

/* ---- classes --------------------------------------------------------------------------------- */

static void classes_of_probability_0_have_a_gradient(sherd_world *world)
{
    static const double share[ROWS * CLASSES] = {0, 1, 0, 0, 0, 0.5, 0, 0.5, 0, 0, 0, 0, 0, 0, 1};
    static const char *const placements[] = {"R", "S(0)", "S(1)"};

    for (int p = 0; p < LEN(placements); p++) {
        sherd_scope_begin(world);
        sherd_tensor *in[] = {leaf(world, SHERD_F64, 2, SHAPE(ROWS, CLASSES), 3, placements[p]),
                              rows_of(world, SHERD_F64, share, placements[p])};
        sherd_require_grad(in[1], true);
        same_gradients(sherd_cross_entropy_with(in[0], in[1], NULL), in, 2, 1e-12);
        sherd_scope_end(world);
    }
}

static void sums_of_nothing_have_no_gradient(sherd_world *world)
{
    const double no = -(double)INFINITY;
    const double x[ROWS * CLASSES] = {no, no, no, no, no, no, 1, no, 2, no, 1, 2, 3, 4, 5};
    static const char *const placements[] = {"R", "S(0)", "S(1)"};

    for (int p = 0; p < LEN(placements); p++) {
        sherd_scope_begin(world);
        sherd_tensor *in = sherd_require_grad(rows_of(world, SHERD_F64, x, placements[p]), true);
        sherd_tensor *y = sherd_masked_fill(sherd_logsumexp(in, -1, false),
                                            sherd_eq_scalar(sherd_logsumexp(in, -1, false), no), 0);
        same_gradients(sherd_sum(sherd_square(y)), &in, 1, 1e-12);
        sherd_tensor *one = sherd_constant(world, SHERD_F64, SHAPE(ROWS), 1, 1), *g = NULL;
        y = sherd_logsumexp(in, -1, false);
        sherd_gradients(&g, &in, 1, &y, 1,
                        &(sherd_gradients_options){.gradients = &one, .create_graph = true});
        CHECK_NEAR(sherd_item(sherd_sum(g)), ROWS - 1, 1e-12);
        sherd_scope_end(world);
    }
}

/* One class has almost all: the differences are as good as rounded f32 numbers. */
static void formulas_of_16_bits_compute_in_f32(sherd_world *world)
{
    static const double x[ROWS * CLASSES] = {8,  -3, 0, 1,    20,  0.1, 0.2, 0.3,
                                             -1, 2,  9, -0.5, 0.5, 9.2, 0};
    static const int32_t of[ROWS] = {2, 0, 3};
    sherd_tensor *in = sherd_require_grad(rows_of(world, SHERD_BF16, x, "S(0)"), true);
    sherd_tensor *w = spread(wave(world, SHERD_BF16, 2, SHAPE(ROWS, CLASSES), 7, 1, 0),
                             line_of_ranks(world), "S(0)");
    sherd_tensor *target = sherd_mark_equal(sherd_from_data(world, SHERD_I32, SHAPE(ROWS), 1, of));

    same_gradients(sherd_sum(sherd_mul(sherd_softmax(in, -1), w)), &in, 1, 2e-6);
    same_gradients(sherd_sum(sherd_mul(sherd_log_softmax(in, -1), w)), &in, 1, 2e-6);
    same_gradients(sherd_sum(sherd_square(sherd_logsumexp(in, -1, false))), &in, 1, 2e-6);
    same_gradients(sherd_cross_entropy(in, spread(target, line_of_ranks(world), "S(0)")), &in, 1,
                   2e-6);
}

/* ---- second derivatives ---------------------------------------------------------------------- */

/* The sum of squares of the gradient of a product over both dims. */
static sherd_tensor *of_a_product(sherd_tensor *const *in, int count, void *payload)
{
    sherd_tensor *x = in[0], *y = sherd_prod(x, (int[]){0, 1}, *(int *)payload, false), *g = NULL;

    (void)count;
    y = sherd_sum(y);
    sherd_gradients(&g, &x, 1, &y, 1, &recorded);
    return sherd_add(sherd_sum(sherd_square(g)), sherd_sum(sherd_scale(g, 0.3)));
}

static void products_with_zeroes_bend(sherd_world *world)
{
    static const double x[ROWS * CLASSES] = {0,    2, 1.5, 1,  3,    1, 2,   0,
                                             -0.5, 0, 1,   -1, 0.25, 2, 1e-9};
    static const char *const placements[] = {"R", "S(0)", "S(1)"};

    for (int p = 0; p < LEN(placements); p++)
        for (int dims = 1; dims <= 2; dims++) {
            sherd_scope_begin(world);
            sherd_tensor *in =
                sherd_require_grad(rows_of(world, SHERD_F64, x, placements[p]), true);
            if (!CHECK_OK(sherd_check_gradients(of_a_product, &in, 1,
                                                &(sherd_check_options){.payload = &dims})))
                fprintf(stderr, "  %s\n", sherd_world_error(world));
            sherd_scope_end(world);
        }
}

typedef sherd_tensor *function(sherd_tensor *x);

static sherd_tensor *softplus(sherd_tensor *x)
{
    return sherd_softplus(x, 1, 30);
}

/* Far out, where the functions are nearly straight, a difference of f32 numbers would be rounding. */
static void curvature_is_exact_far_out(sherd_world *world)
{
    static function *const functions[] = {sherd_gelu, sherd_silu, softplus};
    static const float at[] = {-5, -2, 0.5F, 3, 5, 8, 12, 17};
    sherd_tensor *x[2], *y, *g = NULL;

    x[0] = sherd_mark_equal(sherd_from_data(world, SHERD_F32, SHAPE(LEN(at)), 1, at));
    x[1] = sherd_require_grad(sherd_cast(x[0], SHERD_F64), true);
    sherd_require_grad(x[0], true);
    for (int f = 0; f < LEN(functions); f++) {
        double bend[2][LEN(at)];
        for (int i = 0; i < 2; i++) {
            y = sherd_sum(functions[f](x[i]));
            sherd_gradients(&g, &x[i], 1, &y, 1, &recorded);
            y = sherd_sum(g);
            sherd_gradients(&g, &x[i], 1, &y, 1, NULL);
            whole(g, bend[i]);
        }
        for (int k = 0; k < LEN(at); k++)
            CHECK_NEAR(bend[0][k], bend[1][k], 1e-5 * fabs(bend[1][k]) + 1e-37);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(keys_may_be_masked_by_the_smallest_number), {1, 2, 3}},
    {TEST(a_result_may_depend_on_no_leaf), {1, 2}},
    {TEST(classes_of_probability_0_have_a_gradient), {1, 2, 3}},
    {TEST(sums_of_nothing_have_no_gradient), {1, 2, 3}},
    {TEST(formulas_of_16_bits_compute_in_f32), {1, 2}},
    {TEST(products_with_zeroes_bend), {1, 2, 3, 4}},
    {TEST(curvature_is_exact_far_out), {1}},
};
CHECK_MAIN(tests)
