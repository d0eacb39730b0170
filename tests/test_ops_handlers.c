/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers that do what they may not, or half of it: results that they replace below the tape,
 * operands that they replace, ranks that have none, failures without a word. Each ends in one line
 * on all ranks. And those that replace themselves.
 */
#include "sherd/autograd.h"
#include "sherd/op.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_stencil.h"
#include "tensors.h"

static const int64_t square[] = {8, 4};

static sherd_tensor *spread(sherd_world *world, const char *placements)
{
    return sherd_constant_on(layout_of(line_of_ranks(world), 2, square, placements, NULL),
                             SHERD_F32, 1);
}

static void check_says(sherd_world *world, sherd_status status, const char *text)
{
    if (!CHECK_EQ(sherd_world_check(world), status) ||
        !CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  \"%s\", not \"%s\"\n", sherd_world_error(world), text);
}

static void replace(sherd_world *world, const char *name, sherd_op_level level,
                    bool (*run)(sherd_call *call, void *context), void *context)
{
    CHECK_OK(sherd_op_override(world, name, level, &(sherd_op_handler){run, context, false}));
}

static void put_back(sherd_world *world, const char *name)
{
    CHECK_OK(sherd_op_override(world, name, SHERD_ABOVE_TAPE, NULL));
    CHECK_OK(sherd_op_override(world, name, SHERD_BELOW_TAPE, NULL));
}

static bool sets_out(sherd_call *call, void *context)
{
    (void)context;
    call->out[0] = sherd_neg(call->in[0]);
    return true;
}

static void below_the_tape_results_are_written(sherd_world *world)
{
    for (int i = 0; i < 4; i++) {
        sherd_tensor *x =
            i & 1 ? sherd_constant(world, SHERD_F32, square, 2, 1) : spread(world, "S(0)");
        sherd_require_grad(x, i & 2);
        CHECK_OK(sherd_world_check(world));
        replace(world, "sherd_relu", SHERD_BELOW_TAPE, sets_out, NULL);
        CHECK(sherd_tensor_failed(sherd_relu(x)));
        check_says(world, SHERD_EINVAL, "sherd_relu: it has replaced a tensor of call->out");
        put_back(world, "sherd_relu");
        CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 32, 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Instead of the operand: another tensor, or nothing. */
static bool takes_another(sherd_call *call, void *context)
{
    call->in[0] = context;
    return sherd_call_original(call);
}

static void operands_are_replaced_above_the_tape(sherd_world *world)
{
    sherd_tensor *x = spread(world, "S(0)"), *other = sherd_scale(x, 3);

    replace(world, "sherd_relu", SHERD_ABOVE_TAPE, takes_another, other);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 96, 0);
    CHECK_OK(sherd_world_check(world));
    put_back(world, "sherd_relu");
    for (int i = 0; i < 2; i++) {
        replace(world, "sherd_relu", SHERD_BELOW_TAPE, takes_another, i ? NULL : other);
        CHECK(sherd_tensor_failed(sherd_relu(x)));
        check_says(world, SHERD_EINVAL, "sherd_relu: sherd_call_original: below the tape");
    }
    put_back(world, "sherd_relu");
}

static bool runs_it(sherd_call *call, void *context)
{
    (void)context;
    return sherd_call_original(call);
}

static void a_handler_on_one_rank_is_found(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    sherd_tensor *x = spread(world, "S(0)");

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == ranks - 1)
        replace(world, "sherd_relu", SHERD_BELOW_TAPE, runs_it, NULL);
    sherd_relu(x);
    if (ranks > 1)
        check_says(world, SHERD_EDIFFER, "sherd_relu");
    if (sherd_world_rank(world) != ranks - 1)
        replace(world, "sherd_relu", SHERD_BELOW_TAPE, runs_it, NULL);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 32, 0);
    CHECK_OK(sherd_world_check(world));
    put_back(world, "sherd_relu");
}

typedef struct turns {
    sherd_world *world;
    int runs;
    bool removes;
} turns;

/* Replaces itself by itself, and applies the operator. */
static bool comes_again(sherd_call *call, void *context)
{
    turns *t = context;

    if (++t->runs > 3)
        return false;
    if (t->removes)
        CHECK_OK(sherd_op_override(t->world, "sherd_relu", SHERD_ABOVE_TAPE, NULL));
    replace(t->world, "sherd_relu", SHERD_ABOVE_TAPE, comes_again, t);
    call->out[0] = sherd_relu(call->in[0]);
    return true;
}

static void a_handler_that_replaces_itself_runs_once(sherd_world *world)
{
    sherd_tensor *x = spread(world, "S(0)");

    for (int i = 0; i < 2; i++) {
        turns t = {.world = world, .removes = i == 1};
        replace(world, "sherd_relu", SHERD_ABOVE_TAPE, comes_again, &t);
        CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 32, 0);
        CHECK_EQ(t.runs, 1);
        CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 32, 0);
        CHECK_EQ(t.runs, 2);
        put_back(world, "sherd_relu");
        CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 32, 0);
        CHECK_EQ(t.runs, 2);
    }
    CHECK_OK(sherd_world_check(world));
}

static bool fails(sherd_call *call, void *context)
{
    (void)call, (void)context;
    return false;
}

/* The operands are named as they were passed, also where they were moved or fetched since. */
static void good_operands_are_not_said_to_have_failed(sherd_world *world)
{
    const int64_t image[] = {1, 2, 6, 4}, kernel[] = {2, 2, 3, 3};
    const sherd_layout *rows = layout_of(line_of_ranks(world), 4, image, "S(2)", NULL);
    sherd_tensor *x = sherd_constant_on(rows, SHERD_F64, 1), *columns = spread(world, "S(1)");
    sherd_tensor *weight = sherd_constant(world, SHERD_F64, kernel, 4, 1);
    char text[240], placed[80];

    CHECK_OK(sherd_world_check(world));
    replace(world, "sherd_conv", SHERD_BELOW_TAPE, fails, NULL);
    replace(world, "sherd_matmul", SHERD_BELOW_TAPE, fails, NULL);
    snprintf(placed, sizeof placed, "%s", sherd_tensor_text(x));
    snprintf(text, sizeof text,
             "sherd_conv: it failed and did not say why (sherd_call_fail): x is %s, weight is "
             "f64[2,2,3,3]",
             placed);
    sherd_conv(x, weight, NULL, NULL);
    check_says(world, SHERD_EINVAL, text);
    snprintf(placed, sizeof placed, "%s", sherd_tensor_text(columns));
    snprintf(text, sizeof text, "did not say why (sherd_call_fail): a is %s, b is f32[4,8]",
             placed);
    sherd_matmul(columns, sherd_constant(world, SHERD_F32, (const int64_t[]){4, 8}, 2, 1));
    check_says(world, SHERD_EINVAL, text);
    put_back(world, "sherd_conv");
    put_back(world, "sherd_matmul");
}

/* Scopes and worlds are not a handler's to end. */
static bool ends_all(sherd_call *call, void *context)
{
    (void)context;
    for (int i = 0; i < 5; i++)
        sherd_scope_end(call->world);
    CHECK_EQ(sherd_world_close(call->world), SHERD_EINVAL);
    return sherd_call_original(call);
}

static void scopes_and_worlds_stay(sherd_world *unused)
{
    sherd_world *world = NULL;

    (void)unused;
    CHECK_OK(sherd_world_alone(&world, NULL));
    for (int level = SHERD_ABOVE_TAPE; level <= SHERD_BELOW_TAPE; level++) {
        replace(world, "sherd_relu", (sherd_op_level)level, ends_all, NULL);
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_constant(world, SHERD_F32, square, 2, 1);
        CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(x))), 32, 0);
        CHECK_NEAR(sherd_item(sherd_sum(x)), 32, 0);
        sherd_scope_end(world);
        put_back(world, "sherd_relu");
    }
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_world_close(world));
}

static const check_test tests[] = {
    {TEST(below_the_tape_results_are_written), {1, 2, 3}},
    {TEST(operands_are_replaced_above_the_tape), {1, 2, 3}},
    {TEST(a_handler_on_one_rank_is_found), {1, 2, 3, 4}},
    {TEST(a_handler_that_replaces_itself_runs_once), {1, 2, 3}},
    {TEST(good_operands_are_not_said_to_have_failed), {1, 2, 3}},
    {TEST(scopes_and_worlds_stay), {1}},
};
CHECK_MAIN(tests)
