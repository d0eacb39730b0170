/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of the families of operators that are tables (kernels/functions.inc), and of their kin:
 * see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_exact.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"

static const int64_t square[] = {4, 4};

static sherd_tensor *numbers(sherd_world *world, sherd_dtype dtype)
{
    return sherd_constant(world, dtype, square, 2, 1);
}

static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    const float *data = sherd_tensor_read(sherd_neg(numbers(world, SHERD_F32)));
    CHECK(data && data[15] == -1);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

/* The rows of the list: tools/lint_misuse.sh knows that they are all tried here. */
MISUSE(a_function_of_nothing_is_nothing)
{
#define UNARY0(name, ...)  ANSWERS(!sherd_##name(NULL));
#define UNARY1(name, ...)  ANSWERS(!sherd_##name(NULL, 1));
#define UNARY2(name, ...)  ANSWERS(!sherd_##name(NULL, 1, 2));
#define BINARY(name, ...)  ANSWERS(!sherd_##name(NULL, NULL));
#define COMPARE(name, ...) ANSWERS(!sherd_##name(NULL, NULL) && !sherd_##name##_scalar(NULL, 1));
#define LOGIC(name, ...)   ANSWERS(!sherd_##name(NULL, NULL));
#include "kernels/functions.inc"
    ANSWERS(!sherd_add_scalar(NULL, 1) && !sherd_logical_not(NULL));
    ANSWERS(!sherd_add_scaled(NULL, NULL, 1) && !sherd_add_scaled_to(NULL, NULL, 1));
    ANSWERS(!sherd_isnan(NULL) && !sherd_isinf(NULL) && !sherd_isfinite(NULL));
    ANSWERS(!sherd_nan_to_num(NULL, 0, 0, 0) && !sherd_one_hot(NULL, 3, SHERD_F32));
    ANSWERS(!sherd_bincount(NULL, 3));
    ANSWERS(!sherd_where(NULL, NULL, NULL) && !sherd_masked_fill(NULL, NULL, 0));
}

MISUSE(a_function_knows_no_bool)
{
    sherd_scope_begin(m->world);
    sherd_tensor *a = numbers(m->world, SHERD_F32), *b = numbers(m->world, SHERD_BOOL);
    FAILS(SHERD_EINVAL, sherd_add_scaled(BAD(b, a), a, 2));
    FAILS(SHERD_EINVAL, sherd_add_scaled(NUL(a), a, 2));
    FAILS(SHERD_EINVAL, sherd_add_scaled(a, NUL(a), 2));
    FAILS(SHERD_EINVAL, sherd_add_scaled_to(BAD(b, numbers(m->world, SHERD_F32)), BAD(b, a), 2));
    FAILS(SHERD_EINVAL, sherd_add_scaled_to(NUL(numbers(m->world, SHERD_F32)), a, 2));
    FAILS(SHERD_EINVAL, sherd_add_scaled_to(numbers(m->world, SHERD_F32), NUL(a), 2));
#define UNARY0(name, ...) FAILS(SHERD_EINVAL, sherd_##name(BAD(b, a)));
#define UNARY1(name, ...) FAILS(SHERD_EINVAL, sherd_##name(BAD(b, a), 1));
#define UNARY2(name, ...) FAILS(SHERD_EINVAL, sherd_##name(BAD(b, a), 1, 2));
#include "kernels/functions.inc"
    sherd_scope_end(m->world);
}

/* Numbers that their dtype does not have. */
MISUSE(integers_take_numbers_of_theirs)
{
    sherd_scope_begin(m->world);
    sherd_tensor *i = numbers(m->world, SHERD_I32), *u = numbers(m->world, SHERD_U8);
    sherd_tensor *mask = numbers(m->world, SHERD_BOOL);
    FAILS(SHERD_EINVAL, sherd_clamp(i, BAD((double)NAN, 0), 2));
    FAILS(SHERD_EINVAL, sherd_clamp(u, 0, BAD((double)NAN, 2)));
    FAILS(SHERD_EINVAL, sherd_masked_fill(i, mask, BAD(3e9, 3)));
    FAILS(SHERD_EINVAL,
          sherd_masked_fill(numbers(m->world, SHERD_I64), mask, BAD(0x1p63, -0x1p63)));
    FAILS(SHERD_EINVAL, sherd_masked_fill(u, mask, BAD((double)NAN, 0)));
    FAILS(SHERD_EINVAL, sherd_masked_fill(u, mask, BAD(-1.0, 1)));
    FAILS(SHERD_EINVAL, sherd_scatter_fill(i, 0, i, BAD((double)INFINITY, 3)));
    FAILS(SHERD_EINVAL, sherd_add_scalar(i, BAD((double)INFINITY, 3)));
    FAILS(SHERD_EINVAL, sherd_add_scalar(u, BAD(300, -2)));
    FAILS(SHERD_EINVAL, sherd_floor_divide_scalar(i, BAD(0, 3)));
    FAILS(SHERD_EINVAL, sherd_remainder_scalar(i, BAD(0.5, 3)));
    FAILS(SHERD_EINVAL, sherd_remainder_scalar(u, BAD(-1.0, 3)));
    FAILS(SHERD_EINVAL, sherd_floor_divide_scalar(i, BAD((double)NAN, 3)));
    FAILS(SHERD_EINVAL, sherd_one_hot(i, BAD(-1, 3), SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_one_hot(i, 3, BAD((sherd_dtype)77, SHERD_F32)));
    FAILS(SHERD_EINVAL, sherd_one_hot(BAD(u, i), 3, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_bincount(i, BAD(-1, 3)));
    FAILS(SHERD_EINVAL, sherd_bincount(BAD(u, i), 3));
    FAILS(SHERD_EINVAL, sherd_nan_to_num(BAD(i, numbers(m->world, SHERD_F32)), 0, 0, 0));
    sherd_scope_end(m->world);
}

/* Every function of two operands: one that is missing, one of another dtype. */
MISUSE(two_operands_are_there_and_alike)
{
    typedef sherd_tensor *(*of_two)(sherd_tensor * a, sherd_tensor * b);
    static const of_two all[] = {
#define BINARY(name, ...)  sherd_##name,
#define COMPARE(name, ...) sherd_##name,
#define LOGIC(name, ...)   sherd_##name,
#include "kernels/functions.inc"
    };

    sherd_scope_begin(m->world);
    for (int i = 0; i < LEN(all); i++) {
        sherd_tensor *a = numbers(m->world, SHERD_F32), *b = numbers(m->world, SHERD_F64);
        FAILS(SHERD_EINVAL, all[i](a, NUL(a)));
        FAILS(SHERD_EINVAL, all[i](NUL(a), a));
        FAILS(SHERD_EINVAL, all[i](a, BAD(b, a)));
    }
    sherd_scope_end(m->world);
}

/* Those of fractions know no integers; nor does a fraction belong to them. */
MISUSE(integers_stay_among_themselves)
{
    sherd_scope_begin(m->world);
    sherd_tensor *a = numbers(m->world, SHERD_F32), *i = numbers(m->world, SHERD_I32);
    sherd_tensor *mask = numbers(m->world, SHERD_BOOL);
    FAILS(SHERD_EINVAL, sherd_exp(BAD(i, a)));
    FAILS(SHERD_EINVAL, sherd_pow(BAD(i, a), 2));
    FAILS(SHERD_EINVAL, sherd_div(BAD(i, a), BAD(i, a)));
    FAILS(SHERD_EINVAL, sherd_add_scalar(i, BAD(0.5, 1.0)));
    FAILS(SHERD_EINVAL, sherd_where(BAD(i, mask), a, a));
    FAILS(SHERD_EINVAL, sherd_where(mask, NUL(a), a));
    FAILS(SHERD_EINVAL, sherd_masked_fill(a, BAD(i, mask), 0));
    FAILS(SHERD_EINVAL, sherd_masked_fill(a, NUL(mask), 0));
    sherd_scope_end(m->world);
}

/* ---- reductions ------------------------------------------------------------------------------ */

typedef sherd_tensor *(*reduction)(sherd_tensor *a, const int *dims, int count, bool keepdim);

static sherd_tensor *var(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return sherd_var(a, dims, count, 1, keepdim);
}

static sherd_tensor *std(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return sherd_std(a, dims, count, 1, keepdim);
}

static sherd_tensor *norm(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return sherd_norm(a, 2, dims, count, keepdim);
}

MISUSE(dims_are_those_of_the_tensor)
{
    static const reduction all[] = {sherd_sum_over,
                                    sherd_mean_over,
                                    sherd_max,
                                    sherd_min,
                                    sherd_prod,
                                    sherd_any,
                                    sherd_sum_exact_over,
                                    sherd_all,
                                    sherd_argmax,
                                    sherd_argmin,
                                    var,
                                    std,
                                    norm};
    static const int good[] = {0, 1, 1}, far[] = {0, 2}, twice[] = {0, -2};

    sherd_scope_begin(m->world);
    sherd_tensor *a = numbers(m->world, SHERD_F32);
    for (int i = 0; i < LEN(all); i++) {
        ANSWERS(!all[i](NULL, good, 1, false));
        FAILS(SHERD_EINVAL, all[i](a, NUL(good), 1, false));
        FAILS(SHERD_EINVAL, all[i](a, BAD(far, good), 2, false));
        FAILS(SHERD_EINVAL, all[i](a, BAD(twice, good), 2, true));
        FAILS(SHERD_EINVAL, all[i](a, good, BAD(3, 2), true));
        FAILS(SHERD_EINVAL, all[i](a, good, BAD(-1, 2), true));
        FAILS(SHERD_EINVAL, all[i](a, good, BAD(99, 2), true));
    }
    sherd_scope_end(m->world);
}

MISUSE(reductions_take_what_they_can)
{
    static const int64_t none[] = {0, 4};

    sherd_scope_begin(m->world);
    sherd_tensor *a = numbers(m->world, SHERD_F32), *i = numbers(m->world, SHERD_I32);
    sherd_tensor *nothing = sherd_constant(m->world, SHERD_F32, none, 2, 0);
    ANSWERS(!sherd_sum_over(NULL, NULL, 0, false) && !sherd_mean_over(NULL, NULL, 0, false));
    ANSWERS(!sherd_sum_exact(NULL) && !sherd_sum_exact_over(NULL, NULL, 0, false));
    ANSWERS(!sherd_max(NULL, NULL, 0, false) && !sherd_min(NULL, NULL, 0, false));
    ANSWERS(!sherd_any(NULL, NULL, 0, false) && !sherd_all(NULL, NULL, 0, false));
    ANSWERS(!sherd_argmax(NULL, NULL, 0, false) && !sherd_argmin(NULL, NULL, 0, false));
    ANSWERS(!sherd_prod(NULL, NULL, 0, false));
    ANSWERS(!sherd_var(NULL, NULL, 0, 1, false) && !sherd_std(NULL, NULL, 0, 1, false));
    ANSWERS(!sherd_norm(NULL, 2, NULL, 0, false) && !sherd_softmax(NULL, 0));
    ANSWERS(!sherd_log_softmax(NULL, 0) && !sherd_logsumexp(NULL, 0, true));
    FAILS(SHERD_EINVAL, sherd_mean_over(BAD(i, a), NULL, 0, false));
    FAILS(SHERD_EINVAL, sherd_sum_exact(BAD(i, a)));
    FAILS(SHERD_EINVAL, sherd_sum_exact_over(BAD(i, a), NULL, 0, false));
    FAILS(SHERD_EINVAL, sherd_norm(a, BAD((double)NAN, 2.0), NULL, 0, false));
    FAILS(SHERD_EINVAL, sherd_max(BAD(nothing, a), NULL, 0, false));
    FAILS(SHERD_EINVAL, sherd_argmin(BAD(nothing, a), NULL, 0, false));
    FAILS(SHERD_EINVAL, sherd_softmax(a, BAD(2, 1)));
    FAILS(SHERD_EINVAL, sherd_softmax(BAD(i, a), 1));
    FAILS(SHERD_EINVAL, sherd_log_softmax(a, BAD(-3, 1)));
    FAILS(SHERD_EINVAL, sherd_logsumexp(a, BAD(7, 1), false));
    sherd_scope_end(m->world);
}

/* ---- losses ---------------------------------------------------------------------------------- */

MISUSE(losses_have_targets)
{
    const sherd_loss_reduction none = (sherd_loss_reduction)9, mean = SHERD_LOSS_MEAN;

    sherd_scope_begin(m->world);
    sherd_tensor *a = numbers(m->world, SHERD_F32);
    sherd_tensor *ids = sherd_constant(m->world, SHERD_I32, square, 1, 1);
    sherd_tensor *far = sherd_constant(m->world, SHERD_I32, square, 1, 4);
    ANSWERS(!sherd_mse_loss(NULL, NULL, mean) && !sherd_kl_div(NULL, NULL, false, mean));
    FAILS(SHERD_EINVAL, sherd_mse_loss(a, NUL(a), mean));
    FAILS(SHERD_EINVAL, sherd_mse_loss(a, a, BAD(none, mean)));
    FAILS(SHERD_EINVAL, sherd_l1_loss(NUL(a), a, mean));
    FAILS(SHERD_EINVAL, sherd_huber_loss(a, a, BAD(0.0, 1.0), mean));
    FAILS(SHERD_EINVAL, sherd_huber_loss(a, a, BAD((double)NAN, 1.0), mean));
    FAILS(SHERD_EINVAL, sherd_smooth_l1_loss(a, a, BAD(-1.0, 1.0), mean));
    FAILS(SHERD_EINVAL, sherd_bce_with_logits(a, NUL(a), NULL, NULL, mean));
    FAILS(SHERD_EINVAL, sherd_bce_with_logits(a, a, BAD(ids, a), NULL, mean));
    FAILS(SHERD_EINVAL, sherd_kl_div(a, a, true, BAD(none, mean)));
    FAILS(SHERD_EINVAL, sherd_nll_loss(a, BAD(a, ids), mean));
    FAILS(SHERD_EINVAL, sherd_nll_loss(a, BAD(far, ids), mean));
    FAILS(SHERD_EINVAL, sherd_nll_loss(a, NUL(ids), mean));
    FAILS(SHERD_EINVAL, sherd_nll_loss_with(a, BAD(far, ids), NULL));
    FAILS(SHERD_EINVAL, sherd_nll_loss_with(NUL(a), ids, NULL));
    FAILS(SHERD_EINVAL, sherd_nll_loss_with(a, ids, &(sherd_nll_options){.weight = BAD(a, NULL)}));
    FAILS(SHERD_EINVAL,
          sherd_nll_loss_with(
              a, ids, &(sherd_nll_options){.reduction = BAD((sherd_loss_reduction)9, mean)}));
    sherd_scope_end(m->world);
}

static const check_test tests[] = {
    {TEST(a_function_of_nothing_is_nothing), {1, 2}},
    {TEST(a_function_knows_no_bool), {1, 2, 3}},
    {TEST(integers_take_numbers_of_theirs), {1, 2, 3}},
    {TEST(two_operands_are_there_and_alike), {1, 2, 3}},
    {TEST(integers_stay_among_themselves), {1, 2, 3}},
    {TEST(dims_are_those_of_the_tensor), {1, 2, 3}},
    {TEST(reductions_take_what_they_can), {1, 2, 3}},
    {TEST(losses_have_targets), {1, 2, 3}},
};
CHECK_MAIN(tests)
