/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over dims, and the softmax, under every placement: results, gradients; then what no
 * list of cases shows: that a result is pending and not gathered, ties, the index of the first of
 * equals, large means, integers.
 */
#include "ops_halves.h"
#include "ops_oracles.h"
#include "sherd/op.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "tensors.h"

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define RUN(name, expression)                          \
    static sherd_tensor *name(sherd_tensor *const *in) \
    {                                                  \
        sherd_tensor *a = in[0];                       \
        return expression;                             \
    }

RUN(sum_first, sherd_sum_over(a, DIMS(0), false))
RUN(sum_outer, sherd_sum_over(a, DIMS(0, -1), true))
RUN(sum_all, sherd_sum_over(a, NULL, 0, true))
RUN(mean_middle, sherd_mean_over(a, DIMS(1), false))
RUN(mean_outer, sherd_mean_over(a, DIMS(2, 0), true))
RUN(var_last, sherd_var(a, DIMS(-1), 1, false))
RUN(var_all, sherd_var(a, NULL, 0, 0, true))
RUN(std_outer, sherd_std(a, DIMS(0, 2), 1, false))
RUN(max_first, sherd_max(a, DIMS(0), false))
RUN(max_outer, sherd_max(a, DIMS(0, 2), true))
RUN(min_all, sherd_min(a, NULL, 0, false))
RUN(prod_last, sherd_prod(a, DIMS(2), false))
RUN(prod_outer, sherd_prod(a, DIMS(0, 2), true))
RUN(norm_2, sherd_norm(a, 2, DIMS(0), false))
RUN(norm_1, sherd_norm(a, 1, DIMS(0, 2), true))
RUN(norm_3, sherd_norm(a, 3, NULL, 0, false))
RUN(norm_count, sherd_norm(a, 0, DIMS(1, 2), true))
RUN(norm_most, sherd_norm(a, INFINITY, DIMS(1), false))
RUN(norm_least, sherd_norm(a, -INFINITY, DIMS(0, 1), true))
RUN(soft_last, sherd_softmax(a, -1))
RUN(soft_first, sherd_softmax(a, 0))
RUN(log_soft_last, sherd_log_softmax(a, 2))
RUN(log_soft_middle, sherd_log_softmax(a, 1))
RUN(logsumexp_first, sherd_logsumexp(a, 0, false))
RUN(logsumexp_last, sherd_logsumexp(a, -1, true))

#define THREE .shape = {{4, 2, 5}}
static const op_case smooth[] = {
    {"sum first", sum_first, 1, {3}, THREE},
    {"sum outer", sum_outer, 1, {3}, THREE},
    {"sum all", sum_all, 1, {2}, .shape = {{5, 3}}},
    {"mean middle", mean_middle, 1, {3}, THREE},
    {"mean outer", mean_outer, 1, {3}, THREE},
    {"var last", var_last, 1, {2}, .shape = {{5, 4}}},
    {"var all", var_all, 1, {2}, .shape = {{5, 3}}},
    {"std outer", std_outer, 1, {3}, THREE},
    {"max first", max_first, 1, {3}, THREE},
    {"max outer", max_outer, 1, {3}, THREE},
    {"min all", min_all, 1, {2}, .shape = {{5, 3}}},
    {"prod last", prod_last, 1, {3}, THREE},
    {"prod outer", prod_outer, 1, {3}, .shape = {{3, 2, 2}}},
    {"norm 2", norm_2, 1, {3}, THREE},
    {"norm 1", norm_1, 1, {3}, THREE},
    {"norm 3", norm_3, 1, {2}, .shape = {{5, 3}}},
    {"norm 0", norm_count, 1, {3}, THREE},
    {"norm inf", norm_most, 1, {3}, THREE},
    {"norm -inf", norm_least, 1, {3}, THREE},
    {"softmax last", soft_last, 1, {3}, THREE},
    {"softmax first", soft_first, 1, {2}, .shape = {{7, 3}}},
    {"log_softmax last", log_soft_last, 1, {3}, THREE},
    {"log_softmax middle", log_soft_middle, 1, {3}, .shape = {{2, 5, 3}}},
    {"logsumexp first", logsumexp_first, 1, {2}, .shape = {{5, 3}}},
    {"logsumexp last", logsumexp_last, 1, {3}, THREE},
    {"sum of nothing", sum_first, 1, {2}, .shape = {{0, 3}}},
    {"sum to nothing", sum_first, 1, {2}, .shape = {{3, 0}}},
    {"prod of nothing", prod_last, 1, {3}, .shape = {{3, 2, 0}}},
    {"softmax of nothing", soft_last, 1, {2}, .shape = {{3, 0}}},
    {"softmax no rows", soft_last, 1, {2}, .shape = {{0, 3}}},
};

RUN(any_first, sherd_cast(sherd_any(sherd_gt_scalar(a, 0.8), DIMS(0), false), SHERD_F64))
RUN(any_numbers, sherd_cast(sherd_any(sherd_relu(a), DIMS(0, 2), true), SHERD_F64))
RUN(all_last, sherd_cast(sherd_all(sherd_gt_scalar(a, -0.9), DIMS(-1), false), SHERD_F64))
RUN(argmax_first, sherd_cast(sherd_argmax(a, DIMS(0), false), SHERD_F64))
RUN(argmax_outer, sherd_cast(sherd_argmax(a, DIMS(0, 2), true), SHERD_F64))
RUN(argmax_all, sherd_cast(sherd_argmax(a, NULL, 0, false), SHERD_F64))
RUN(argmin_last, sherd_cast(sherd_argmin(a, DIMS(-1), false), SHERD_F64))
/* Many equals: the first one. */
RUN(argmax_signs, sherd_cast(sherd_argmax(sherd_sign(a), DIMS(0, 2), false), SHERD_F64))
RUN(argmax_equal, sherd_cast(sherd_argmax(sherd_scale(a, 0), NULL, 0, true), SHERD_F64))
RUN(norm_0, sherd_norm(sherd_relu(a), 0, DIMS(0), false))
/* Of integers. */
RUN(sum_integers,
    sherd_cast(sherd_sum_over(sherd_cast(sherd_scale(a, 9), SHERD_I32), DIMS(0, 2), false),
               SHERD_F64))
RUN(count_true, sherd_cast(sherd_sum_over(sherd_gt_scalar(a, 0), DIMS(0), false), SHERD_F64))
RUN(max_integers,
    sherd_cast(sherd_max(sherd_cast(sherd_scale(a, 9), SHERD_I64), DIMS(0), true), SHERD_F64))
RUN(prod_integers,
    sherd_cast(sherd_prod(sherd_cast(sherd_scale(a, 4), SHERD_I32), DIMS(2), true), SHERD_F64))
/* What is pending with the same reduction stays so. */
RUN(max_twice, sherd_max(sherd_max(a, DIMS(0), true), NULL, 0, false))
RUN(prod_twice, sherd_prod(sherd_prod(a, DIMS(0), false), DIMS(0), false))
RUN(all_twice,
    sherd_cast(sherd_all(sherd_all(sherd_lt_scalar(a, 0.9), DIMS(1), false), DIMS(0), true),
               SHERD_F64))
/* What is pending otherwise is settled first. */
RUN(min_of_max, sherd_min(sherd_max(a, DIMS(0), true), NULL, 0, false))

static const op_case answers[] = {
    {"any", any_first, 1, {3}, THREE},
    {"any of numbers", any_numbers, 1, {3}, THREE},
    {"all", all_last, 1, {3}, THREE},
    {"argmax first", argmax_first, 1, {3}, THREE},
    {"argmax outer", argmax_outer, 1, {3}, THREE},
    {"argmax all", argmax_all, 1, {2}, .shape = {{5, 3}}},
    {"argmin last", argmin_last, 1, {3}, THREE},
    {"argmax of signs", argmax_signs, 1, {3}, THREE},
    {"argmax of equals", argmax_equal, 1, {2}, .shape = {{5, 3}}},
    {"norm 0", norm_0, 1, {3}, THREE},
    {"sum of integers", sum_integers, 1, {3}, THREE},
    {"count", count_true, 1, {3}, THREE},
    {"max of integers", max_integers, 1, {3}, THREE},
    {"prod of integers", prod_integers, 1, {3}, THREE},
    {"max of max", max_twice, 1, {3}, THREE},
    {"prod of prod", prod_twice, 1, {3}, THREE},
    {"all of all", all_twice, 1, {3}, THREE},
    {"min of max", min_of_max, 1, {3}, THREE},
    {"any of nothing", any_numbers, 1, {3}, .shape = {{0, 3, 2}}},
};

static void sharded_equals_plain(sherd_world *world)
{
    all_equal_plain(world, smooth, LEN(smooth), 80 / check_stride(2));
    all_equal_plain(world, answers, LEN(answers), 80 / check_stride(2));
}

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, smooth, LEN(smooth), 40 / check_stride(2));
}

static void halves_are_computed_in_f32(sherd_world *world)
{
    all_in_halves(world, smooth, LEN(smooth), 6);
}

static void a_rank_outside_of_the_mesh_takes_no_part(sherd_world *world)
{
    all_without_rank_1(world, smooth, LEN(smooth), 10);
}

/* Each is one of the library's operators, under the name of its function. */
static void all_are_found_by_name(sherd_world *world)
{
    static const char *const names[] = {
#define UNARY0(name, ...)  "sherd_" #name,
#define UNARY1(name, ...)  "sherd_" #name,
#define UNARY2(name, ...)  "sherd_" #name,
#define BINARY(name, ...)  "sherd_" #name,
#define COMPARE(name, ...) "sherd_" #name, "sherd_" #name "_scalar",
#define LOGIC(name, ...)   "sherd_" #name,
#include "kernels/functions.inc"
        "sherd_add_scalar", "sherd_logical_not",
        "sherd_where",      "sherd_masked_fill",
        "sherd_sum_over",   "sherd_mean_over",
        "sherd_var",        "sherd_std",
        "sherd_norm",       "sherd_max",
        "sherd_min",        "sherd_prod",
        "sherd_any",        "sherd_all",
        "sherd_argmax",     "sherd_argmin",
        "sherd_softmax",    "sherd_log_softmax",
        "sherd_logsumexp",  "sherd_mse_loss",
        "sherd_l1_loss",    "sherd_huber_loss",
        "sherd_nll_loss",   "sherd_smooth_l1_loss",
        "sherd_kl_div",     "sherd_bce_with_logits",
    };

    for (int i = 0; i < LEN(names); i++)
        if (!CHECK(sherd_op_find(world, names[i]) != NULL))
            fprintf(stderr, "  %s\n", names[i]);
}

/* ---- what travels ---------------------------------------------------------------------------- */

static const op_case matrix = {.name = "rows", .operands = 1, .ndim = {2}, .shape = {{6, 4}}};

/* Rows sharded by all ranks, the second dim by none. */
static sherd_tensor *rows(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    int64_t ranks = sherd_world_ranks(world);
    sherd_placement s = sherd_shard(0);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, matrix.shape[0], &s, NULL));
    return place(&matrix, 0, layout);
}

static int pending_of(sherd_tensor *t)
{
    return sherd_tensor_failed(t) ? -2 : t->layout->spec.pending[0];
}

static void results_are_pending_with_their_reduction(sherd_world *world)
{
    sherd_tensor *a = rows(world);

    CHECK_EQ(pending_of(sherd_sum_over(a, DIMS(0), false)), SHERD_SUM);
    CHECK_EQ(pending_of(sherd_mean_over(a, DIMS(0), true)), SHERD_SUM);
    CHECK_EQ(pending_of(sherd_max(a, DIMS(0), false)), SHERD_MAX);
    CHECK_EQ(pending_of(sherd_max(sherd_max(a, DIMS(0), false), NULL, 0, false)), SHERD_MAX);
    CHECK_EQ(pending_of(sherd_min(a, NULL, 0, false)), SHERD_MIN);
    CHECK_EQ(pending_of(sherd_prod(a, DIMS(0), false)), SHERD_PRODUCT);
    CHECK_EQ(pending_of(sherd_any(a, DIMS(0), false)), SHERD_MAX);
    CHECK_EQ(pending_of(sherd_all(a, DIMS(0), false)), SHERD_MIN);
    CHECK_EQ(pending_of(sherd_var(a, DIMS(0), 1, false)), SHERD_SUM);
    CHECK_EQ(pending_of(sherd_max(a, DIMS(1), false)), -1);
    CHECK_EQ(pending_of(sherd_neg(sherd_sum_over(a, DIMS(0), false))), SHERD_SUM);
    CHECK_EQ(pending_of(sherd_add_scalar(sherd_sum_over(a, DIMS(0), false), 1)), SHERD_SUM);
    CHECK_EQ(pending_of(sherd_argmax(a, DIMS(0), false)), -1);
    CHECK_OK(sherd_world_check(world));
}

/* A softmax of sharded classes keeps its layout; what travels are a few numbers a position. */
static void a_softmax_gathers_nothing(sherd_world *world)
{
    sherd_tensor *a = rows(world), *y = sherd_softmax(a, 0);

    CHECK(!sherd_tensor_failed(y) && y->layout == a->layout);
    CHECK(sherd_log_softmax(a, 0)->layout == a->layout);
    CHECK_OK(sherd_world_check(world));
}

/* Every reduction forward and backward, each allocation of one rank failing in turn. New shapes
 * each time: nothing is cached. */
static void reduce_all(const sherd_mesh *mesh, int64_t n)
{
    const sherd_layout *layout = NULL;
    sherd_placement s = sherd_shard(0);

    if (sherd_layout_create(&layout, mesh, 2, (int64_t[]){n, 3}, &s, NULL) != SHERD_OK) {
        sherd__fail_diag(sherd__space_world(mesh->space), true);
        return;
    }
    sherd_tensor *a = sherd_require_grad(sherd_constant_on(layout, SHERD_BF16, 0.5), true);
    sherd_tensor *all = sherd_max(sherd_softmax(a, 0), DIMS(0), false);
    all = sherd_add(all, sherd_prod(sherd_log_softmax(a, 0), DIMS(0), false));
    all = sherd_add(all, sherd_std(a, DIMS(0), 1, false));
    all = sherd_where(sherd_lt(all, sherd_logsumexp(a, 0, false)), all,
                      sherd_norm(a, 3, DIMS(0), false));
    all = sherd_masked_fill(all, sherd_eq_scalar(sherd_argmax(a, DIMS(0), false), 1), 0);
    all = sherd_power(sherd_add_scalar(sherd_abs(all), 1), sherd_sum_over(a, DIMS(0), false));
    sherd_backward(sherd_sum(all));
}

static void any_allocation_may_fail(sherd_world *world)
{
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    const sherd_mesh *mesh = test_mesh(world);
    int failures = 0;

    /* Of several thousand: the first, then ever fewer. */
    for (int64_t n = 1; n < 5000; n += 1 + n / 20) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, failing ? n : 0);
        reduce_all(mesh, 5 + n % 50);
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            say_error(world);
        failures += status != SHERD_OK;
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK(failures > 20);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static sherd_tensor *leaf(sherd_world *world, sherd_dtype dtype, int64_t n, const double *x)
{
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, &n, 1, x);

    return sherd_require_grad(sherd_cast(t, dtype), true);
}

static bool is_near(sherd_tensor *t, const double *want, int64_t n)
{
    return distance(sherd_cast(t, SHERD_F64), want, n) <= 1e-12;
}

static void equals_share_the_gradient(sherd_world *world)
{
    static const double x[] = {3, 1, 3, 3, 2}, third = 1.0 / 3;
    sherd_tensor *a = leaf(world, SHERD_F64, 5, x);

    sherd_backward(sherd_max(a, NULL, 0, false));
    CHECK(is_near(sherd_grad(a), (const double[]){third, 0, third, third, 0}, 5));
    CHECK_OK(sherd_world_check(world));
}

/* None, one, and two of them are 0. */
static void a_product_with_zeroes_has_its_gradient(sherd_world *world)
{
    static const double x[][3] = {{2, 3, 4}, {2, 0, 4}, {0, 0, 4}};
    static const double want[][3] = {{12, 8, 6}, {0, 8, 0}, {0, 0, 0}};

    for (int i = 0; i < 3; i++) {
        sherd_tensor *a = leaf(world, SHERD_F64, 3, x[i]);
        sherd_backward(sherd_prod(a, NULL, 0, false));
        CHECK(is_near(sherd_grad(a), want[i], 3));
    }
    CHECK_OK(sherd_world_check(world));
}

static void gradients_at_0_are_0(sherd_world *world)
{
    static const double zeroes[3] = {0};

    for (int i = 0; i < 4; i++) {
        sherd_tensor *a = leaf(world, SHERD_F64, 3, zeroes);
        sherd_backward(i == 0   ? sherd_norm(a, 2, NULL, 0, false)
                       : i == 1 ? sherd_norm(a, 3, NULL, 0, false)
                       : i == 2 ? sherd_norm(a, 0, NULL, 0, false)
                                : sherd_std(a, NULL, 0, 1, false));
        CHECK(is_near(sherd_grad(a), zeroes, 3));
    }
    CHECK_OK(sherd_world_check(world));
}

/* In f32, beside a mean of a million. */
static void a_large_mean_hides_no_variance(sherd_world *world)
{
    static const double x[] = {1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3};
    sherd_tensor *a = leaf(world, SHERD_F32, 4, x);

    CHECK_NEAR(sherd_item(sherd_var(a, NULL, 0, 1, false)), 5.0 / 3, 1e-6);
    CHECK_NEAR(sherd_item(sherd_var(a, NULL, 0, 0, false)), 1.25, 1e-6);
    CHECK(isnan(sherd_item(sherd_var(sherd_sum(a), NULL, 0, 1, false))));
    CHECK_OK(sherd_world_check(world));
}

static void ends_are_as_they_should(sherd_world *world)
{
    static const double x[] = {1, NAN, 3}, low[] = {-INFINITY, -INFINITY}, high[] = {INFINITY, 0};

    sherd_tensor *a = leaf(world, SHERD_F32, 3, x);
    CHECK(isnan(sherd_item(sherd_max(a, NULL, 0, false))));
    CHECK(isnan(sherd_item(sherd_min(a, NULL, 0, false))));
    CHECK_EQ((int)sherd_item(sherd_argmax(a, NULL, 0, false)), 1);
    CHECK_EQ((int)sherd_item(sherd_argmin(a, NULL, 0, false)), 1);
    CHECK(sherd_item(sherd_logsumexp(leaf(world, SHERD_F32, 2, low), 0, false)) == -INFINITY);
    CHECK(sherd_item(sherd_logsumexp(leaf(world, SHERD_F32, 2, high), 0, false)) == INFINITY);
    CHECK(isnan(sherd_item(sherd_sum(sherd_softmax(leaf(world, SHERD_F32, 2, high), 0)))));
    CHECK(isnan(sherd_item(sherd_mean_over(leaf(world, SHERD_F32, 0, x), NULL, 0, false))));
    CHECK_OK(sherd_world_check(world));
}

/* Sums, products and what is between them have f32 where elements have 16 bits. */
static void halves_sum_in_f32(sherd_world *world)
{
    int64_t shape[] = {64, 2, 64};
    sherd_tensor *ones = sherd_constant(world, SHERD_BF16, shape, 3, 1);
    sherd_tensor *sum = sherd_cast(sherd_sum_over(ones, DIMS(0, 2), false), SHERD_F32);
    const float *data = sherd_tensor_read(sum);

    CHECK(data && data[0] == 4096 && data[1] == 4096);
    sherd_tensor *near = sherd_constant(world, SHERD_BF16, shape, 1, 1.0078125);
    CHECK_NEAR(sherd_item(sherd_cast(sherd_prod(near, NULL, 0, false), SHERD_F32)), 1.6455, 0.008);
    CHECK_NEAR(sherd_item(sherd_norm(ones, 2, NULL, 0, false)), 90.5, 0.5);
    CHECK_OK(sherd_world_check(world));
}

/* A count of 1 to 3 in every element, in a dtype of one or four bytes; sums over any dims, beside
 * plain loops. */
static void try_counts(sherd_world *world, sherd_dtype dtype, const int64_t *shape)
{
    int64_t strides[3], sums[6000];
    sherd_generator g = sherd_generator_named("counts");
    sherd_tensor *a =
        sherd_random(world, dtype, shape, 3,
                     dtype == SHERD_BOOL ? sherd_bernoulli(0.5) : sherd_integers(1, 4), &g);
    const int32_t *x = sherd_tensor_read(sherd_cast(a, SHERD_I32));

    for (int bits = 1; bits < 8 && x; bits++) {
        int dims[3], count = 0;
        int64_t stride = 1;
        for (int d = 2; d >= 0; d--) {
            strides[d] = bits >> d & 1 ? 0 : stride;
            stride *= bits >> d & 1 ? 1 : shape[d];
        }
        for (int d = 0; d < 3; d++)
            if (bits >> d & 1)
                dims[count++] = d;
        memset(sums, 0, sizeof sums);
        for (int64_t i = 0; i < shape[0]; i++)
            for (int64_t j = 0; j < shape[1]; j++)
                for (int64_t k = 0; k < shape[2]; k++)
                    sums[i * strides[0] + j * strides[1] + k * strides[2]] +=
                        x[(i * shape[1] + j) * shape[2] + k];
        const int64_t *y = sherd_tensor_read(sherd_sum_over(a, dims, count, false));
        CHECK(y && memcmp(y, sums, (size_t)stride * sizeof *y) == 0);
    }
}

/* What is converted goes in blocks of 1024 elements, which these shapes cut in every dim. */
static void integers_of_any_shape_are_counted(sherd_world *world)
{
    static const int64_t shapes[][3] = {{3, 7, 11},   {5, 3, 1100}, {3, 1100, 1}, {1100, 3, 2},
                                        {1, 1, 3000}, {2, 1, 1024}, {2, 0, 3}};

    for (int s = 0; s < LEN(shapes); s++) {
        try_counts(world, SHERD_BOOL, shapes[s]);
        try_counts(world, SHERD_U8, shapes[s]);
        try_counts(world, SHERD_I8, shapes[s]);
        try_counts(world, SHERD_I32, shapes[s]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A mask is counted in integers of eight bytes, but not turned into as many of them. */
static void the_count_of_a_mask_takes_no_room(sherd_world *world)
{
    int64_t n = 1 << 20, ranks = sherd_world_ranks(world);
    sherd_tensor *mask =
        sherd_constant_on(layout_of(line_of_ranks(world), 1, &n, "S(0)", NULL), SHERD_BOOL, 1);

    sherd_world_memory_reset(world);
    int64_t before = sherd_world_memory(world).peak_bytes;
    CHECK_EQ((int64_t)sherd_item(sherd_sum_over(mask, NULL, 0, false)), n);
    CHECK_EQ((int64_t)sherd_item(sherd_sum(mask)), n);
    CHECK_EQ(sherd_tensor_dtype(sherd_sum(mask)), SHERD_I64);
    CHECK(sherd_world_memory(world).peak_bytes - before < n / ranks / 2);
    CHECK_OK(sherd_world_check(world));
}

/* Sizes beside a 0 multiply to what no number holds. A softmax of nothing is nothing; the sum of no
 * exponentials is -inf, at too many positions where the dim of size 0 is summed over. */
static void nothing_may_be_wide(sherd_world *world)
{
    static const int64_t wide = INT64_C(1) << 61, far = INT64_C(1) << 40;
    const int64_t shapes[][4] = {
        {0, wide, 1, 1}, {wide, 0, 1, 1}, {far, far, 0, 3}, {0, 3, far, far}};

    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 4; d++) {
            sherd_tensor *a =
                i < 2
                    ? sherd_constant_on(layout_of(line_of_ranks(world), 4, shapes[i], "S(2)", NULL),
                                        SHERD_F32, 1)
                    : sherd_constant(world, SHERD_F32, shapes[i], 4, 1);
            sherd_require_grad(a, true);
            sherd_tensor *y = sherd_add(sherd_softmax(a, d), sherd_log_softmax(a, d));
            CHECK_EQ(sherd_tensor_count(y), 0);
            sherd_backward(sherd_sum(y));
            CHECK_EQ(sherd_tensor_count(sherd_grad(a)), 0);
            CHECK_OK(sherd_world_check(world));
            sherd_tensor *sum = sherd_logsumexp(a, d, false);
            if (shapes[i][d] != 0) {
                CHECK_EQ(sherd_tensor_count(sum), 0);
                sherd_backward(sherd_sum(sum));
                CHECK_OK(sherd_world_check(world));
            } else {
                CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
            }
        }
    const int64_t apart[] = {0, 3, wide};
    sherd_tensor *sum =
        sherd_sum_over(sherd_constant(world, SHERD_F32, apart, 3, 1), DIMS(0, 2), false);
    CHECK(is_near(sum, (const double[]){0, 0, 0}, 3));
    sherd_tensor *none = sherd_constant(world, SHERD_F32, shapes[2], 4, 1);
    sherd_max(sherd_sum_over(none, DIMS(3), false), DIMS(0, 1), false);
    sherd_argmax(none, DIMS(3), false);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(integers_of_any_shape_are_counted), {1}},
    {TEST(the_count_of_a_mask_takes_no_room), {1, 3}},
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(halves_are_computed_in_f32), {1, 2, 4}},
    {TEST(a_rank_outside_of_the_mesh_takes_no_part), {3}},
    {TEST(all_are_found_by_name), {1}},
    {TEST(results_are_pending_with_their_reduction), {2, 3}},
    {TEST(a_softmax_gathers_nothing), {2, 3}},
    {TEST(any_allocation_may_fail), {1, 2, 3}},
    {TEST(equals_share_the_gradient), {1}},
    {TEST(a_product_with_zeroes_has_its_gradient), {1}},
    {TEST(gradients_at_0_are_0), {1}},
    {TEST(a_large_mean_hides_no_variance), {1}},
    {TEST(ends_are_as_they_should), {1}},
    {TEST(halves_sum_in_f32), {1}},
    {TEST(nothing_may_be_wide), {1, 2, 3}},
};
CHECK_MAIN(tests)
