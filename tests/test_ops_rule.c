/* SPDX-License-Identifier: Apache-2.0 */
/* Index strings, numbers of operands, and what describe sets, as a call rarely has them. */
#include "sherd/ops.h"
#include "tensors.h"

#include <math.h>

#include "sherd/op.h"

/* y = a * s, plain C. */
static bool stretch(sherd_call *call)
{
    const double *a = call->from[0], *s = call->from[1];

    for (int64_t i = 0; i < sherd_tensor_count(call->in[0]) && !call->in[0]->layout; i++)
        ((double *)call->to[0])[i] = a[i] * *s;
    return true;
}

static const sherd_op by_scalar = {.name = "test_by_scalar",
                                   .operand = {{"a", 0}, {"s", 0}},
                                   .result = {{"y", 0}},
                                   .rule = "...,->...",
                                   .forward = stretch};

static void the_last_operand_may_be_a_scalar(sherd_world *world)
{
    sherd_tensor *a = sherd_constant(world, SHERD_F64, (int64_t[]){2, 3}, 2, 3);
    sherd_tensor *s = sherd_constant(world, SHERD_F64, NULL, 0, 5);
    const double *y;

    CHECK_OK(sherd_op_register(world, &by_scalar));
    sherd_tensor *t = sherd_apply(&by_scalar, (sherd_tensor *[]){a, s}, 2, NULL);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
    y = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);
    CHECK(y && y[0] == 15 && y[5] == 15);
    sherd_apply(&by_scalar, (sherd_tensor *[]){a, a}, 2, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "s must have 0 dims") != NULL);
}

/* The sum of any number of tensors, without those that another rank adds. */
static bool total(sherd_call *call)
{
    double *y = call->to[0];

    for (int64_t i = 0; i < call->out[0]->count; i++) {
        y[i] = 0;
        for (int k = 0; k < call->operands; k++)
            y[i] += call->once >> k & 1 ? 0 : ((const double *)call->from[k])[i];
    }
    return true;
}

static const sherd_op total_op = {.name = "test_total",
                                  .operand = {{"x", SHERD_OP_REPEATED | SHERD_OP_TERM}},
                                  .result = {{"y", 0}},
                                  .rule = "...->...",
                                  .linearity = SHERD_LINEAR,
                                  .forward = total};

/* Term i is 2^i; one of them is pending, so that the others are added on one rank alone. */
static void terms_are_added_once_however_many(sherd_world *world)
{
    const int64_t shape[] = {2};
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *sum = layout_of(mesh, 1, shape, "P(sum)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *in[SHERD_MAX_OPERANDS];

    for (int count = 7; count <= SHERD_MAX_OPERANDS; count++)
        for (int pending = 0; pending < count; pending += 3) {
            for (int k = 0; k < count; k++)
                in[k] = sherd_constant_on(k == pending ? sum : whole, SHERD_F64, ldexp(1, k));
            CHECK_NEAR(sherd_item(sherd_sum(sherd_apply(&total_op, in, count, NULL))),
                       2 * (ldexp(1, count) - 1), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static bool multiply(sherd_call *call)
{
    double *y = call->to[0];

    for (int64_t i = 0; i < call->out[0]->count; i++) {
        y[i] = 1;
        for (int k = 0; k < call->operands; k++)
            y[i] *= ((const double *)call->from[k])[i];
    }
    return true;
}

static const sherd_op product_op = {.name = "test_product",
                                    .operand = {{"x", SHERD_OP_REPEATED}},
                                    .result = {{"y", 0}},
                                    .rule = "...->...",
                                    .linearity = SHERD_LINEAR,
                                    .forward = multiply};

/* On each axis any one factor may stay pending: more ways than can be tried, or counted. */
static void factors_are_pending_on_all_axes(sherd_world *world)
{
    char text[64];

    snprintf(text, sizeof text, "a=%d,b=1,c=1,d=1,e=1,f=1,g=1,h=1", sherd_world_ranks(world));
    const sherd_layout *sums = layout_of(mesh_of(world, text), 1, (int64_t[]){2},
                                         "P(sum)P(sum)P(sum)P(sum)P(sum)P(sum)P(sum)P(sum)", NULL);
    sherd_tensor *in[SHERD_MAX_OPERANDS];

    for (int k = 0; k < SHERD_MAX_OPERANDS; k++)
        in[k] = sherd_constant_on(sums, SHERD_F64, 2);
    sherd_tensor *y = sherd_apply(&product_op, in, SHERD_MAX_OPERANDS, NULL);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 2 * ldexp(1, SHERD_MAX_OPERANDS), 0);
    CHECK_OK(sherd_world_check(world));
}

static const char *wide(sherd_call *call)
{
    call->ndim[0] = 200;
    return NULL;
}

static void dims_are_not_too_many(sherd_world *world)
{
    static const sherd_op wide_op = {.name = "test_wide",
                                     .operand = {{"x", 0}},
                                     .result = {{"y", 0}},
                                     .rule = "...->...",
                                     .describe = wide,
                                     .forward = total};
    sherd_tensor *x = sherd_constant(world, SHERD_F64, (int64_t[]){2}, 1, 1);

    CHECK(sherd_tensor_failed(sherd_apply(&wide_op, &x, 1, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "describe has set too many dims") != NULL);
}

/* A product of ones of these shapes: it must be `wanted` everywhere, or (0) be refused. */
static void multiply_ones(sherd_world *world, const sherd_mesh *mesh, int adim, int64_t m,
                          int64_t k, int bdim, int64_t l, int64_t n, double wanted)
{
    const int64_t a_shape[] = {m, k}, b_shape[] = {l, n};
    const sherd_layout *a = NULL, *b = NULL;

    if (mesh) {
        a = layout_of(mesh, adim, a_shape + 2 - adim, "R", NULL);
        b = layout_of(mesh, bdim, b_shape, "R", NULL);
    }
    sherd_tensor *x = a ? sherd_constant_on(a, SHERD_F32, 1)
                        : sherd_constant(world, SHERD_F32, a_shape + 2 - adim, adim, 1);
    sherd_tensor *y =
        b ? sherd_constant_on(b, SHERD_F32, 1) : sherd_constant(world, SHERD_F32, b_shape, bdim, 1);
    sherd_tensor *xy = sherd_matmul(x, y);
    if (wanted == 0) {
        CHECK(sherd_tensor_failed(xy));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "they must be equal") != NULL);
        return;
    }
    int64_t count = (adim == 2 ? m : 1) * (bdim == 2 ? n : 1);
    CHECK_EQ(sherd_tensor_ndim(xy), adim + bdim - 2);
    CHECK_EQ(sherd_tensor_count(xy), count);
    CHECK_NEAR(sherd_item(sherd_sum(xy)), wanted * (double)count, 0);
    CHECK_OK(sherd_world_check(world)); /* before another rank is refused the next */
}

/* What was kept of one call is not taken for that of another one, of other shapes or dims, nor
 * after one that was refused. */
static void a_rule_is_that_of_the_shapes_at_hand(sherd_world *world)
{
    const sherd_mesh *meshes[] = {NULL, line_of_ranks(world)};

    for (int i = 0; i < 4; i++) {
        const sherd_mesh *mesh = meshes[i % 2];
        multiply_ones(world, mesh, 2, 2, 3, 2, 3, 4, 3);
        multiply_ones(world, mesh, 2, 2, 3, 2, 3, 5, 3);
        multiply_ones(world, mesh, 2, 2, 3, 2, 4, 5, 0);
        multiply_ones(world, mesh, 2, 2, 3, 2, 3, 5, 3);
        multiply_ones(world, mesh, 1, 2, 3, 2, 3, 5, 3);
        multiply_ones(world, mesh, 2, 2, 3, 1, 3, 5, 3);
        multiply_ones(world, mesh, 1, 2, 3, 1, 3, 5, 3);
        multiply_ones(world, mesh, 2, 4, 3, 1, 3, 5, 3);
        multiply_ones(world, mesh, 2, 4, 3, 1, 2, 5, 0);
    }
}

static const check_test tests[] = {
    {TEST(a_rule_is_that_of_the_shapes_at_hand), {1, 2}},
    {TEST(the_last_operand_may_be_a_scalar), {1, 2}},
    {TEST(terms_are_added_once_however_many), {1, 2, 3}},
    {TEST(factors_are_pending_on_all_axes), {1, 2}},
    {TEST(dims_are_not_too_many), {1, 2}},
};
CHECK_MAIN(tests)
