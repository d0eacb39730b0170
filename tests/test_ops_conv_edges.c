/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and pools at the edges of what sizes may be: spaces and channels of no elements,
 * and numbers that no product of sizes holds.
 */
#include "fields.h"

#include <math.h>

#include "sherd/ops_stencil.h"

static sherd_tensor *ones(sherd_world *world, int ndim, const int64_t *shape, const char *how)
{
    const sherd_layout *layout = layout_of(line_of_ranks(world), ndim, shape, how, NULL);

    return sherd_require_grad(sherd_constant_on(layout, SHERD_F64, 1), true);
}

/* What is made of padding alone: the bias; the weight's gradient is that of zeros. */
static void a_space_of_nothing_is_padded(sherd_world *world)
{
    static const int64_t shape[] = {2, 3, 0, 4}, kernel[] = {4, 3, 3, 1};
    const sherd_conv_options o = {.before = {3}, .after = {2}};
    static const char *const ways[] = {"R", "S(2)", "S(3)"};

    for (int i = 0; i < LEN(ways); i++) {
        sherd_tensor *x = ones(world, 4, shape, ways[i]), *w = ones(world, 4, kernel, "R");
        sherd_tensor *y = sherd_conv(x, w, ones(world, 1, kernel, "R"), &o);
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_tensor_count(y), 2 * 4 * 3 * 4);
        CHECK_EQ(sherd_item(sherd_sum(y)), 2 * 4 * 3 * 4);
        CHECK_EQ(sherd_item(sherd_sum(sherd_grad(w))), 0);
        CHECK_EQ(sherd_tensor_count(sherd_grad(x)), 0);
        CHECK_OK(sherd_world_check(world));
    }
}

/* A group of no channels has no parts, on whichever side there are none. */
static void groups_may_have_no_channels(sherd_world *world)
{
    static const struct {
        int64_t x[3], w[3];
        bool transposed;
        int64_t made;
    } cases[] = {{{2, 0, 6}, {4, 0, 3}, false, 4},
                 {{2, 4, 6}, {0, 2, 3}, false, 0},
                 {{2, 0, 6}, {0, 2, 3}, true, 4},
                 {{2, 4, 6}, {4, 0, 3}, true, 0}};
    static const char *const ways[][2] = {{"S(1)", "R"}, {"R", "S(0)"}, {"S(1)", "S(0)"}};
    const sherd_conv_options o = {.groups = 2};

    for (int i = 0; i < LEN(cases) * LEN(ways); i++) {
        int k = i / LEN(ways), way = i % LEN(ways);
        sherd_tensor *x = ones(world, 3, cases[k].x, ways[way][0]);
        sherd_tensor *w = ones(world, 3, cases[k].w, ways[way][1]);
        sherd_tensor *y = cases[k].transposed ? sherd_conv_transposed(x, w, NULL, &o)
                                              : sherd_conv(x, w, NULL, &o);
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_tensor_shape(y)[1], cases[k].made);
        CHECK_EQ(sherd_item(sherd_sum(y)), 0);
        CHECK_EQ(sherd_item(sherd_sum(sherd_grad(x))), 0);
        CHECK_EQ(sherd_item(sherd_sum(sherd_grad(w))), 0);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Refused on all ranks with this in its text. */
static void is_refused(sherd_tensor *y, sherd_world *world, const char *why)
{
    CHECK(sherd_tensor_failed(y));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), why)))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

enum { LARGE = 1 << 30 };
static const int64_t huge = (int64_t)1 << 61;

static void what_no_product_holds_is_refused(sherd_world *world)
{
    static const int64_t shape[] = {2, 1, 6}, none[] = {0, 1, (int64_t)1 << 40};
    static const int64_t three[] = {1, 1, 3};
    sherd_tensor *x = ones(world, 3, shape, "S(2)"), *nothing = ones(world, 3, none, "S(2)");
    sherd_tensor *w = ones(world, 3, three, "R");

    is_refused(sherd_conv(x, nothing, NULL, &(sherd_conv_options){.dilation = {LARGE}}), world,
               "kernel 1099511627776, stride 1, dilation 1073741824,");
    is_refused(sherd_conv(x, w, NULL, &(sherd_conv_options){.same = true, .dilation = {huge}}),
               world, "dilation 2305843009213693952");
    is_refused(sherd_conv(x, w, NULL, &(sherd_conv_options){.before = {-1}}), world,
               "padding -1 and 0");
    is_refused(sherd_conv(x, w, NULL, &(sherd_conv_options){.groups = -2}), world, "-2 groups");
    is_refused(sherd_conv_transposed(nothing, w, NULL, &(sherd_conv_options){.stride = {LARGE}}),
               world, "dim 2 of the result would be too large");
    is_refused(sherd_conv_transposed(x, w, NULL, &(sherd_conv_options){.extra = {1}}), world,
               "extra 1 in dim 2");
    is_refused(sherd_max_pool(x, &(sherd_pool_options){.kernel = {huge}, .dilation = {8}}, NULL),
               world, "kernel 2305843009213693952");
}

/* Of one element both taps lie beside it. */
static void a_window_may_read_nothing(sherd_world *world)
{
    static const int64_t shape[] = {1, 2, 1};
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16};
    const sherd_pool_options o = {.kernel = {2}, .dilation = {3}, .padding = {2}};

    for (int i = 0; i < LEN(dtypes); i++) {
        sherd_tensor *x = ones(world, 3, shape, "S(2)"), *at = NULL;
        sherd_tensor *y = sherd_max_pool(sherd_cast(x, dtypes[i]), &o, &at);
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_item(sherd_sum(y)), -INFINITY);
        CHECK_EQ(sherd_item(sherd_sum(at)), -2);
        CHECK_EQ(sherd_item(sherd_sum(sherd_grad(x))), 0);
        CHECK_OK(sherd_world_check(world));
    }
}

/* The gradient is linear in the given one: what such a window gets goes nowhere. */
static void a_window_of_padding_has_no_gradient_of_a_gradient(sherd_world *world)
{
    static const int64_t shape[] = {1, 2, 3};
    const sherd_pool_options o = {.kernel = {2}, .stride = {1}, .dilation = {4}, .padding = {2}};
    sherd_tensor *x = ones(world, 3, shape, "S(2)"), *dy = ones(world, 3, shape, "S(2)");
    sherd_tensor *y = sherd_max_pool(x, &o, NULL), *dx = NULL, *of_dy = NULL, *sum;

    sherd_gradients(&dx, &x, 1, &y, 1,
                    &(sherd_gradients_options){.gradients = &dy, .create_graph = true});
    sum = sherd_sum(dx);
    sherd_gradients(&of_dy, &dy, 1, &sum, 1, NULL);
    /* The windows read -2 and 2, -1 and 3, 0 and 4. */
    const double *data = sherd_tensor_read(sherd_full(of_dy));
    for (int i = 0; CHECK(data != NULL) && i < 6; i++)
        CHECK_EQ(data[i], i % 3 != 1);
    CHECK_OK(sherd_world_check(world));
}

/* The text names the option, not a number that was not given. */
static void options_of_the_other_pool_are_refused(sherd_world *world)
{
    static const int64_t shape[] = {2, 1, 6};
    sherd_tensor *x = ones(world, 3, shape, "S(2)");

    is_refused(
        sherd_max_pool(x, &(sherd_pool_options){.kernel = {3}, .without_padding = true}, NULL),
        world, "options of sherd_avg_pool");
    is_refused(sherd_avg_pool(x, &(sherd_pool_options){.kernel = {3}, .dilation = {2}}), world,
               "option of sherd_max_pool");
}

static const check_test tests[] = {
    {TEST(a_space_of_nothing_is_padded), {1, 2, 3, 4, 8}},
    {TEST(groups_may_have_no_channels), {1, 2, 3, 4, 8}},
    {TEST(a_window_may_read_nothing), {1, 2, 3}},
    {TEST(a_window_of_padding_has_no_gradient_of_a_gradient), {1, 2, 3}},
    {TEST(what_no_product_holds_is_refused), {1, 2, 3}},
    {TEST(options_of_the_other_pool_are_refused), {1, 2, 3}},
};
CHECK_MAIN(tests)
