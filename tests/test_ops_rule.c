/* SPDX-License-Identifier: Apache-2.0 */
/* Index strings that a call rarely has. */
#include "ops_cases.h"

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
        say_error(world);
    y = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);
    CHECK(y && y[0] == 15 && y[5] == 15);
    sherd_apply(&by_scalar, (sherd_tensor *[]){a, a}, 2, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "s must have 0 dims") != NULL);
}

static const check_test tests[] = {
    {TEST(the_last_operand_may_be_a_scalar), {1, 2}},
};
CHECK_MAIN(tests)
