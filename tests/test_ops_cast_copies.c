/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 16-bit copies that autocast keeps (apply/autocast.c): whether a rank still has one is its own
 * affair, and shows nowhere. A slice covers the storage of one rank, and not that of another.
 */
#include "tensors.h"

#include "sherd/autocast.h"
#include "sherd/op.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"

/* Six of eight rows: rank 0 of two has all of its four, rank 1 two of four. */
static sherd_tensor *most_rows(sherd_world *world, int64_t columns)
{
    const int64_t shape[] = {8, columns};
    const sherd_layout *rows = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);

    return sherd_narrow(sherd_constant_on(rows, SHERD_F32, 1), 0, 0, 6);
}

static bool multiply(sherd_call *call)
{
    call->out[0] = sherd_matmul(call->in[0], call->in[1]);
    return true;
}

static const sherd_op composed = {.name = "test_multiply",
                                  .operand = {{"a", 0}, {"b", 0}},
                                  .result = {{"y", 0}},
                                  .compose = multiply};

/* The second time one rank has a copy, the others cast: in the ledger that is the same deed. */
static void a_copy_of_one_rank_is_the_same_deed(sherd_world *world)
{
    sherd_tensor *a = most_rows(world, 4);
    sherd_tensor *b = sherd_constant(world, SHERD_F32, (int64_t[]){4, 4}, 2, 2), *in[] = {a, b};
    sherd_tensor *y = NULL;

    sherd_set_autocast(world, SHERD_BF16);
    for (int i = 0; i < 3; i++)
        y = sherd_apply(&composed, in, 2, NULL);
    for (int i = 0; i < 3; i++)
        y = sherd_add(y, sherd_matmul(a, b));
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 4 * 6 * 4 * 8, 0);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

static bool cast_by_handler(sherd_call *call, void *context)
{
    ++*(int *)context;
    return sherd_call_original(call);
}

/* What a handler does instead of the cast it does each time, on all ranks. */
static void a_handler_of_casts_is_asked_each_time(sherd_world *world)
{
    const sherd_op_level levels[] = {SHERD_ABOVE_TAPE, SHERD_BELOW_TAPE};
    sherd_tensor *b = sherd_constant(world, SHERD_BF16, (int64_t[]){4, 4}, 2, 2);

    for (int i = 0; i < LEN(levels); i++) {
        sherd_tensor *a = most_rows(world, 4);
        int asked = 0;
        const sherd_op_handler handler = {.run = cast_by_handler, .context = &asked};
        CHECK_OK(sherd_op_override(world, "sherd_cast", levels[i], &handler));
        sherd_set_autocast(world, SHERD_BF16);
        for (int k = 0; k < 3; k++)
            CHECK(!sherd_tensor_failed(sherd_matmul(a, b)));
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        CHECK_EQ(asked, 3);
        CHECK_OK(sherd_op_override(world, "sherd_cast", levels[i], NULL));
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
    }
}

static const check_test tests[] = {
    {TEST(a_copy_of_one_rank_is_the_same_deed), {1, 2, 3, 4}},
    {TEST(a_handler_of_casts_is_asked_each_time), {1, 2, 3}},
};
CHECK_MAIN(tests)
