/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over items and channels beyond what test_ops_norms_forward.c and _gradient.c compare:
 * running averages under every layout, what travels, numbers far from 0, 16 bits, sets without
 * elements.
 */
#include "ops_halves.h"
#include "ops_oracles.h"
#include "tensors.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"

/* ---- running averages ------------------------------------------------------------------------ */

static sherd_tensor *average_of(sherd_world *world, sherd_dtype dtype, int64_t channels,
                                double step)
{
    double values[16];

    for (int64_t c = 0; c < channels && c < 16; c++)
        values[c] = 0.3 + step * (double)c;
    return sherd_cast(sherd_mark_equal(sherd_from_data(world, SHERD_F64, &channels, 1, values)),
                      dtype);
}

/* What becomes of two plain averages, [2,channels]. */
static sherd_tensor *averages(sherd_tensor *const *in,
                              sherd_tensor *(*norm)(sherd_tensor *,
                                                    const sherd_batch_norm_options *))
{
    sherd_world *world = sherd_tensor_world(in[0]);
    int64_t channels = sherd_tensor_shape(in[0])[1];
    sherd_tensor *both[2] = {average_of(world, SHERD_F64, channels, 0.1),
                             average_of(world, SHERD_F64, channels, 0.3)};
    sherd_tensor *y =
        norm(in[0], &(sherd_batch_norm_options){
                        .running_mean = both[0], .running_variance = both[1], .momentum = 0.4});

    return sherd_tensor_failed(y) ? y : sherd_stack(both, 2, 0);
}

static sherd_tensor *run_batch_averages(sherd_tensor *const *in)
{
    return averages(in, sherd_batch_norm);
}
static sherd_tensor *run_instance_averages(sherd_tensor *const *in)
{
    return averages(in, sherd_instance_norm);
}

static const op_case kept[] = {
    {"batch averages", run_batch_averages, 1, {3}, .shape = {{3, 5, 4}}},
    {"batch averages of rows", run_batch_averages, 1, {2}, .shape = {{7, 3}}},
    {"batch averages of nothing", run_batch_averages, 1, {3}, .shape = {{0, 3, 4}}},
    {"instance averages", run_instance_averages, 1, {4}, .shape = {{3, 4, 2, 3}}},
    {"instance averages of nothing", run_instance_averages, 1, {3}, .shape = {{0, 3, 4}}},
};

static void running_averages_do_not_depend_on_layouts(sherd_world *world)
{
    all_equal_plain(world, kept, LEN(kept), 200 / check_stride(2));
}

/* Mean and variance by hand: old (1 - m) + new m, the variance with n - 1. */
static void running_averages_are_those_of_the_whole_batch(sherd_world *world)
{
    enum { ITEMS = 5, CHANNELS = 3, INNER = 4, EACH = ITEMS * INNER };
    static const op_case c = {"x", NULL, 1, {3}, .shape = {{ITEMS, CHANNELS, INNER}}};
    sherd_tensor *x = plain_operand(world, &c, 0, NULL);
    sherd_tensor *mean = average_of(world, SHERD_F64, CHANNELS, 0.1);
    sherd_tensor *variance = average_of(world, SHERD_F32, CHANNELS, 0.5);

    CHECK(!sherd_tensor_failed(sherd_batch_norm(
        x, &(sherd_batch_norm_options){.running_mean = mean, .running_variance = variance})));
    const double *m = sherd_tensor_read(mean);
    const float *v = sherd_tensor_read(variance);
    for (int k = 0; k < CHANNELS && CHECK(m && v); k++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < EACH; i++)
            sum += value_at(0, i / INNER * CHANNELS * INNER + k * INNER + i % INNER) / EACH;
        for (int i = 0; i < EACH; i++) {
            double d = value_at(0, i / INNER * CHANNELS * INNER + k * INNER + i % INNER) - sum;
            squares += d * d / (EACH - 1);
        }
        CHECK_NEAR(m[k], 0.9 * (0.3 + 0.1 * k) + 0.1 * sum, 1e-14);
        CHECK_NEAR((double)v[k], 0.9 * (0.3 + 0.5 * k) + 0.1 * squares, 1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Averages that are sharded stay so; evaluation leaves them alone. */
static void averages_may_be_sharded_too(sherd_world *world)
{
    static const op_case c = {"x", run_batch_averages, 1, {3}, .shape = {{3, 5, 4}}};
    const sherd_mesh *mesh = test_mesh(world);
    sherd_tensor *x = plain_operand(world, &c, 0, NULL);
    const sherd_layout *layout = NULL;
    double want[MOST_ELEMENTS];

    copy_values(want, run_batch_averages(&x));
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 1, (int64_t[]){5}, "S(0)", NULL));
    sherd_batch_norm_options o = {
        .running_mean = sherd_distribute(average_of(world, SHERD_F64, 5, 0.1), layout, -1),
        .running_variance = sherd_distribute(average_of(world, SHERD_F64, 5, 0.3), layout, -1),
        .momentum = 0.4};
    sherd_batch_norm(place(&c, 0, layout_number(mesh, &c, 0, 1)), &o);
    o.fixed = true;
    sherd_batch_norm(place(&c, 0, layout_number(mesh, &c, 0, 2)), &o);
    CHECK(sherd_tensor_layout(o.running_mean) == layout);
    CHECK(distance(sherd_full(o.running_mean), want, 5) <= 1e-14);
    CHECK(distance(sherd_full(o.running_variance), want + 5, 5) <= 1e-14);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels ---------------------------------------------------------------------------- */

static sherd_tensor *by_groups(sherd_tensor *x)
{
    return sherd_group_norm(x, 3, NULL, NULL, 1e-5);
}
static sherd_tensor *by_batch(sherd_tensor *x)
{
    return sherd_batch_norm(x, NULL);
}
static sherd_tensor *by_item(sherd_tensor *x)
{
    return sherd_instance_norm(x, NULL);
}

/* x [4,6,4096]: a call each way of a few numbers for each set, or none where sets lie on one
 * rank. */
static void only_moments_travel(sherd_world *world)
{
    enum { ITEMS = 4, CHANNELS = 6, INNER = 4096 };
    static const int64_t shape[] = {ITEMS, CHANNELS, INNER};
    static const struct {
        sherd_tensor *(*run)(sherd_tensor *x);
        const char *placements;
        int calls; /* forward, and as many backward; on 2 ranks: a group of 2 channels is cut by 4 only */
    } norms[] = {{by_batch, "S(0)", 1},  {by_batch, "S(1)", 0},  {by_batch, "S(2)", 1},
                 {by_groups, "S(0)", 0}, {by_groups, "S(1)", 1}, {by_groups, "S(2)", 1},
                 {by_item, "S(0)", 0},   {by_item, "S(1)", 0},   {by_item, "S(2)", 1}};
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(norms); i++) {
        const sherd_layout *layout = NULL;
        sherd_generator g = sherd_generator_named("x");
        CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 3, shape, norms[i].placements, NULL));
        sherd_tensor *x = sherd_random_on(layout, SHERD_F32, sherd_normal(0, 1), &g);
        sherd_tensor *dy = sherd_random_on(layout, SHERD_F32, sherd_normal(0, 1), &g);
        sherd_require_grad(x, true);
        sherd_comm_reset(world);
        sherd_tensor *y = norms[i].run(x);
        bool whole_groups = norms[i].run == by_groups && norms[i].calls && ranks == 3 &&
                            strcmp(norms[i].placements, "S(1)") == 0;
        int calls = whole_groups ? 0 : norms[i].calls;
        CHECK_EQ(sherd_comm_calls(world, NULL), calls);
        CHECK(sherd_tensor_layout(y) == layout);
        sherd_backward_with(&y, &dy, 1, NULL);
        CHECK_EQ(sherd_comm_calls(world, NULL), 2 * calls);
        CHECK(sherd_comm_bytes(world, NULL) <= ITEMS * CHANNELS * 5 * 8 * ranks);
        CHECK(sherd_tensor_layout(sherd_grad(x)) == layout);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* x = 4096 + k / 4, exact in f32; its squares are not. E[x^2] - mean^2 would be off by half. */
static void a_large_mean_costs_no_digits(sherd_world *world)
{
    enum { N = 64 };
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *layout = NULL;
    float values[N];

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 3, (int64_t[]){1, 1, N}, "S(2)", NULL));
    for (int i = 0; i < N; i++)
        values[i] = (float)(4096 + (i % 5) * 0.25);
    sherd_tensor *x =
        sherd_mark_equal(sherd_from_data(world, SHERD_F32, (int64_t[]){1, 1, N}, 3, values));
    double mean = 0, variance = 0;
    for (int i = 0; i < N; i++)
        mean += (double)values[i] / N;
    for (int i = 0; i < N; i++)
        variance += ((double)values[i] - mean) * ((double)values[i] - mean) / N;
    sherd_tensor *y = sherd_full(sherd_batch_norm(sherd_distribute(x, layout, -1), NULL));
    const float *got = sherd_tensor_read(y);
    for (int i = 0; i < N && CHECK(got != NULL); i++)
        CHECK_NEAR((double)got[i], ((double)values[i] - mean) / sqrt(variance + 1e-5), 2e-6);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *run_batch(sherd_tensor *const *in)
{
    return sherd_batch_norm(
        in[0], &(sherd_batch_norm_options){.weight = in[1], .bias = in[2], .eps = 1e-1});
}
static sherd_tensor *run_group(sherd_tensor *const *in)
{
    return sherd_group_norm(in[0], 2, in[1], in[2], 1e-1);
}

static const op_case narrow[] = {
    {"batch_norm", run_batch, 3, {3, 1, 1}, .shape = {{5, 3, 4}, {3}, {3}}},
    {"group_norm", run_group, 3, {3, 1, 1}, .shape = {{3, 4, 5}, {4}, {4}}},
};

static void sixteen_bits_are_computed_wider(sherd_world *world)
{
    all_in_halves(world, narrow, LEN(narrow), 12);
}

/* The gradient of a norm of x, as f64. */
static sherd_tensor *gradient_in(sherd_dtype dtype, sherd_tensor *x, sherd_tensor *dy, bool groups)
{
    x = sherd_require_grad(sherd_cast(x, dtype), true);
    dy = sherd_cast(dy, dtype);
    sherd_tensor *y =
        groups ? sherd_group_norm(x, 2, NULL, NULL, 1e-5) : sherd_layer_norm(x, NULL, NULL, 1e-5);
    sherd_backward_with(&y, &dy, 1, NULL);
    return sherd_cast(sherd_grad(x), SHERD_F64);
}

/* Backward has the mean in f32, m times the deviation: m 2^-25 of the gradient, as headers say. */
static void gradients_beside_a_large_mean_have_the_digits_that_are_said(sherd_world *world)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_parse_placements(&layout, test_mesh(world), 2, (int64_t[]){6, 64}, "S(0)",
                                           NULL));
    for (int groups = 0; groups < 2; groups++)
        for (double mean = 1e2; mean < 1e6; mean *= 10) {
            sherd_generator g = sherd_generator_named("large");
            sherd_tensor *x = sherd_random_on(layout, SHERD_F32, sherd_normal(mean, 1), &g);
            sherd_tensor *dy = sherd_random_on(layout, SHERD_F32, sherd_normal(0, 1), &g);
            sherd_tensor *exact = gradient_in(SHERD_F64, x, dy, groups);
            sherd_tensor *apart = sherd_sub(gradient_in(SHERD_F32, x, dy, groups), exact);
            double error = sherd_item(sherd_sum(sherd_square(apart))),
                   size = sherd_item(sherd_sum(sherd_square(exact)));
            CHECK(sqrt(error / size) < mean * 0x1p-25 + 1e-6);
        }
    CHECK_OK(sherd_world_check(world));
}

/* As PyTorch: refused where nothing would be left, but not in evaluation, and not by groups of
 * several items. */
static void one_element_is_no_batch(sherd_world *world)
{
    sherd_tensor *x = sherd_constant(world, SHERD_F32, (int64_t[]){1, 3}, 2, 2);
    sherd_tensor *two = sherd_constant(world, SHERD_F32, (int64_t[]){2, 3}, 2, 2);
    sherd_tensor *ones = sherd_constant(world, SHERD_F32, (int64_t[]){3}, 1, 1);

    CHECK(sherd_tensor_failed(sherd_batch_norm(x, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "one element in each channel") != NULL);
    CHECK(sherd_tensor_failed(sherd_instance_norm(two, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_group_norm(x, 3, NULL, NULL, 1e-5)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_item(sherd_sum(sherd_group_norm(two, 3, NULL, NULL, 1e-5))) == 0);
    CHECK_NEAR(sherd_item(sherd_sum(
                   sherd_batch_norm(x, &(sherd_batch_norm_options){.running_mean = ones,
                                                                   .running_variance = ones,
                                                                   .fixed = true}))),
               3 / sqrt(1 + 1e-5), 1e-6);
    CHECK_OK(sherd_world_check(world));
}

/* A rank without elements has a gradient too, of statistics that are given. */
static void an_empty_piece_has_a_gradient(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16, SHERD_F32};
    const int64_t shape[4] = {1, 4, 1, 8}, none[4] = {1, 4, 0, 8}, channels[1] = {4};
    sherd_batch_norm_options o = {.fixed = true};
    const sherd_layout *cut = NULL;
    const sherd_mesh *mesh = NULL;
    char text[16];

    o.running_mean = sherd_constant(world, SHERD_F32, channels, 1, 0);
    o.running_variance = sherd_constant(world, SHERD_F32, channels, 1, 1);
    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    for (int i = 0; i < LEN(dtypes); i++) {
        CHECK_OK(sherd_layout_parse_placements(&cut, mesh, 4, i % 2 ? none : shape, "S(2)", NULL));
        sherd_tensor *x = sherd_constant_on(cut, dtypes[i], 1);
        sherd_require_grad(x, true);
        sherd_backward(sherd_sum(sherd_batch_norm(x, &o)));
        CHECK(sherd_grad(x) != NULL);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Of averages of another dtype and layout, on each rank. */
static void without_memory_both_averages_are_written_or_none(sherd_world *world)
{
    const int64_t channels[] = {3}, items[] = {4, 3};
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *rows = layout_of(mesh, 2, items, "S(0)", NULL);
    int last = sherd_world_ranks(world) - 1;

    for (int how = 0; how < 2; how++) {
        const sherd_layout *l = layout_of(mesh, 1, channels, how ? "S(0)" : "R", NULL);
        sherd_status status = SHERD_ENOMEM;
        for (int n = 1; status && n < 500; n++) {
            sherd_scope_begin(world);
            sherd_tensor *mean = sherd_constant_on(l, SHERD_F64, 1);
            sherd_tensor *var = sherd_constant_on(l, SHERD_F64, 2);
            sherd_tensor *x = sherd_constant_on(rows, SHERD_F32, 3);
            CHECK_OK(sherd_world_check(world));
            sherd_world_fail_allocation(world, sherd_world_rank(world) == last ? n : 0);
            sherd_batch_norm(
                x, &(sherd_batch_norm_options){.running_mean = mean, .running_variance = var});
            sherd_world_fail_allocation(world, 0);
            status = sherd_world_check(world);
            CHECK(!status || status == SHERD_ENOMEM);
            const double *m = sherd_tensor_failed(mean) ? NULL : sherd__data(mean);
            const double *v = sherd_tensor_failed(var) ? NULL : sherd__data(var);
            for (int64_t c = 0; m && v && c < mean->count; c++)
                CHECK_EQ(m[c] != 1, v[c] != 2);
            sherd_scope_end(world);
        }
        CHECK_OK(status);
    }
}

/* Neither is half a new average written beside an old one. */
static void averages_are_written_together_or_not(sherd_world *world)
{
    const int64_t channels[] = {3};
    sherd_tensor *x = sherd_constant(world, SHERD_F32, (int64_t[]){4, 3}, 2, 2);

    for (int which = 0; which < 2; which++) {
        sherd_tensor *sound = sherd_constant(world, SHERD_F32, channels, 1, 1);
        sherd_tensor *one = sherd_constant(world, SHERD_F32, (int64_t[]){1}, 1, 1);
        sherd_tensor *stretched = sherd_expand(one, channels, 1);
        sherd_batch_norm(
            x, &(sherd_batch_norm_options){.running_mean = which ? stretched : sound,
                                           .running_variance = which ? sound : stretched});
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), ": sherd_batch_norm: ") != NULL);
        CHECK(strstr(sherd_world_error(world), "a is a stretched view") != NULL);
        CHECK_EQ(sherd_item(sherd_sum(sound)), 3);
        CHECK_EQ(sherd_item(sherd_sum(stretched)), 3);
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(without_memory_both_averages_are_written_or_none), {1, 2}},
    {TEST(running_averages_do_not_depend_on_layouts), {1, 2, 3, 4}},
    {TEST(running_averages_are_those_of_the_whole_batch), {1}},
    {TEST(averages_may_be_sharded_too), {1, 2, 3}},
    {TEST(only_moments_travel), {2, 3}},
    {TEST(a_large_mean_costs_no_digits), {1, 2, 3}},
    {TEST(gradients_beside_a_large_mean_have_the_digits_that_are_said), {1, 2}},
    {TEST(sixteen_bits_are_computed_wider), {1, 2, 4}},
    {TEST(one_element_is_no_batch), {1}},
    {TEST(an_empty_piece_has_a_gradient), {1, 2, 3}},
    {TEST(averages_are_written_together_or_not), {1, 2}},
};
CHECK_MAIN(tests)
