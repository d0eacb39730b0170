/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of a user's that are wrong: whatever their functions do or leave undone ends in a line
 * that names the operator and what is wrong with it, on all ranks, also where it was wrong on one
 * rank only. Nobody has registered them.
 */
#include "sherd/op.h"
#include "sherd/ops.h"
#include "tensors.h"

typedef enum fault {
    FAULT_NONE,
    FAULT_LETTERS,
    FAULT_DOTS,
    FAULT_PARTS,
    FAULT_LONG,
    FAULT_SIZE,
    FAULT_NEGATIVE,
    FAULT_DTYPE,
    FAULT_LINEARITY,
    FAULT_REDUCES,
    FAULTS
} fault;

typedef struct attributes {
    int fault;
} attributes;

static const char *describes(sherd_call *call)
{
    static const char *const rules[FAULTS] = {"ab->ab", "a{->a{", "......->......", "a,b,a->a"};
    const attributes *a = call->attributes;

    strcpy(call->rule, rules[a->fault] ? rules[a->fault] : "ab->ab");
    if (a->fault == FAULT_LONG)
        memset(call->rule, 'a', sizeof call->rule);
    if (a->fault == FAULT_SIZE)
        strcpy(call->rule, "ab->ac");
    if (a->fault == FAULT_NEGATIVE)
        sherd_call_shape(call, 0, 2, (const int64_t[]){4, -4});
    if (a->fault == FAULT_DTYPE)
        call->dtype[0] = (sherd_dtype)99;
    if (a->fault == FAULT_LINEARITY)
        call->linearity = (sherd_linearity)7;
    if (a->fault == FAULT_REDUCES)
        call->reduces = (sherd_reduce_op)-1;
    return NULL;
}

static bool copies(sherd_call *call)
{
    sherd_box box = sherd_tensor_box(call->out[0]);

    if (call->to[0])
        memcpy(call->to[0], call->from[0], (size_t)(box.size[0] * box.size[1]) * sizeof(float));
    return true;
}

static const sherd_op described = {.name = "own_described",
                                   .operand = {{"x", 0}},
                                   .result = {{"y", 0}},
                                   .field = {SHERD_FIELD(attributes, fault, INT)},
                                   .attributes = sizeof(attributes),
                                   .describe = describes,
                                   .forward = copies};

static sherd_tensor *square(sherd_world *world)
{
    return sherd_constant_on(
        layout_of(line_of_ranks(world), 2, (const int64_t[]){4, 4}, "S(0)", NULL), SHERD_F32, 1);
}

/* All ranks learn of it, by this text. */
static void check_says_as(sherd_world *world, sherd_status status, const char *text)
{
    CHECK_EQ(sherd_world_check(world), status);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  \"%s\", not \"%s\"\n", sherd_world_error(world), text);
}

static void check_says(sherd_world *world, const char *text)
{
    check_says_as(world, SHERD_EINVAL, text);
}

static void what_describe_sets_is_looked_at(sherd_world *world)
{
    static const char *const says[FAULTS] = {
        [FAULT_LETTERS] = "own_described: its rule may have small letters",
        [FAULT_DOTS] = "own_described: its rule may have ... once in a part",
        [FAULT_PARTS] = "own_described: its rule must have a part for each operand",
        [FAULT_LONG] = "own_described: its rule must have one ->",
        [FAULT_SIZE] = "own_described: nothing says the size of dim 1 of y",
        [FAULT_NEGATIVE] = "own_described: describe has set a negative size",
        [FAULT_DTYPE] = "own_described: describe has set a dtype that is none",
        [FAULT_LINEARITY] = "own_described: describe has set a linearity that is none",
        [FAULT_REDUCES] = "own_described: describe has set a reduction that is none",
    };
    sherd_tensor *x = square(world), *plain = sherd_full(x);

    CHECK_OK(sherd_world_check(world));
    for (attributes a = {FAULT_NONE}; a.fault < FAULTS; a.fault++) {
        sherd_apply(&described, &x, 1, &a);
        if (a.fault == FAULT_NONE)
            CHECK_OK(sherd_world_check(world));
        else
            check_says(world, says[a.fault]);
        sherd_apply(&described, &plain, 1, &a);
        if (a.fault == FAULT_NONE)
            CHECK_OK(sherd_world_check(world));
        else
            check_says(world, says[a.fault]);
    }
}

static void an_operator_that_is_none_is_refused(sherd_world *world)
{
#define OPERATOR(...)                                                               \
    {                                                                               \
        .operand = {{"x", 0}}, .result = {{"y", 0}}, .forward = copies, __VA_ARGS__ \
    }
    static const sherd_op wrong[] = {
        OPERATOR(.name = "own", .rule = "......->......"),
        OPERATOR(.name = "own", .rule = "a_->a_"), OPERATOR(.name = "own", .rule = "ab,ab->ab"),
        OPERATOR(.name = "own", .rule = "ab->ab", .attributes = 8), OPERATOR(.rule = "ab->ab")};
    static const char *const says[] = {"own: its rule may have ... once",
                                       "own: its rule may have small letters",
                                       "own: its rule must have a part for each operand",
                                       "own: its attributes need fields", "it has no name"};
    sherd_tensor *x = square(world);

    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < LEN(wrong); i++) {
        sherd_apply(&wrong[i], &x, 1, NULL);
        check_says(world, says[i]);
        CHECK_EQ(sherd_op_register(world, &wrong[i]), SHERD_EINVAL);
    }
}

/* On the last rank alone, and without a word. */
static bool is_last(const sherd_call *call)
{
    return sherd_world_rank(call->world) == sherd_world_ranks(call->world) - 1;
}

static bool fails_mutely(sherd_call *call)
{
    return !is_last(call) && copies(call);
}

static bool hands_out(sherd_call *call)
{
    call->out[0] = sherd_scale(call->in[0], 2);
    return !is_last(call);
}

static bool handles_mutely(sherd_call *call, void *context)
{
    (void)context;
    return hands_out(call);
}

static sherd_status gives_no_way(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *layout = sherd_tensor_layout(call->in[0]);

    return is_last(call) ? SHERD_ENOMEM : sherd_way_add(ways, &layout, &layout);
}

static const char *describes_square(sherd_call *call)
{
    sherd_call_shape(call, 0, 2, sherd_tensor_shape(call->in[0]));
    return NULL;
}

static void what_fails_without_a_word_is_named(sherd_world *world)
{
    static const sherd_op own[] = {
        {.name = "own_mute",
         .operand = {{"x", 0}},
         .result = {{"y", 0}},
         .rule = "ab->ab",
         .forward = fails_mutely},
        {.name = "own_made", .operand = {{"x", 0}}, .result = {{"y", 0}}, .compose = hands_out},
        OPERATOR(.name = "own_ways", .describe = describes_square, .ways = gives_no_way)};
    static const char *const says[] = {"own_mute: it failed and did not say why",
                                       "own_made: it failed and did not say why",
                                       "own_ways: its ways returned -4"};
    const sherd_op_handler handler = {.run = handles_mutely};
    sherd_tensor *x = square(world), *plain = sherd_full(x);

    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < LEN(own); i++) {
        sherd_redistribute_to(sherd_apply(&own[i], &x, 1, NULL), "R", NULL);
        if (own[i].ways)
            check_says_as(world, SHERD_ENOMEM, says[i]);
        else
            check_says(world, says[i]);
    }
    sherd_apply(&own[0], &plain, 1, NULL);
    check_says(world, says[0]);
    CHECK_OK(sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE, &handler));
    sherd_redistribute_to(sherd_relu(x), "R", NULL);
    check_says(world, "sherd_relu: it failed and did not say why");
}

static bool adds(sherd_call *call)
{
    sherd_box box = sherd_tensor_box(call->out[0]);
    const float *a = call->from[0], *b = call->from[1];

    for (int64_t i = 0; i < box.size[0] * box.size[1]; i++)
        ((float *)call->to[0])[i] = a[i] + (b ? b[i] : 0);
    return true;
}

/* Which operand or result backward asks for without saying so, -1: none. */
static _Thread_local int asks_operand, asks_result;

static void asks(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    CHECK(sherd_node_operand(node, 1) == NULL || sherd_node_wants(node, 1));
    CHECK(sherd_node_operand(node, 17) == NULL && sherd_node_result(node, 1) == NULL);
    grad_in[0] = grad_out[0];
    if (asks_operand >= 0)
        grad_in[0] = sherd_mul(grad_out[0], sherd_node_operand(node, asks_operand));
    if (asks_result >= 0)
        grad_in[0] = sherd_mul(grad_out[0], sherd_node_result(node, asks_result));
    if (sherd_node_wants(node, 1))
        grad_in[1] = sherd_mul(grad_out[0], sherd_node_operand(node, 1));
}

/* What `needs` names nowhere is not there; what is absent, or saved for a gradient that nobody wants,
 * is NULL. */
static void a_backward_that_asks_for_too_much_is_named(sherd_world *world)
{
    static const sherd_op own = {.name = "own_asks",
                                 .operand = {{"a", 0}, {"b", SHERD_OP_OPTIONAL}},
                                 .result = {{"y", 0}},
                                 .rule = "ab,ab->ab",
                                 .forward = adds,
                                 .backward = asks,
                                 .needs = {[1] = SHERD_NEEDS_OPERAND(1)}};
    static const int wrong[][2] = {{-1, -1}, {0, -1}, {-1, 0}};
    static const char *const says[] = {NULL, "own_asks: operand 0 is not in `needs`",
                                       "own_asks: result 0 is not in `needs`"};

    for (int i = 0; i < LEN(says); i++)
        for (int b = 0; b < 3; b++) { /* absent, there, and wanted */
            sherd_tensor *x = sherd_require_grad(square(world), true);
            sherd_tensor *in[] = {x, b ? sherd_require_grad(square(world), b == 2) : NULL};
            asks_operand = wrong[i][0];
            asks_result = wrong[i][1];
            sherd_backward(sherd_sum(sherd_apply(&own, in, 2, NULL)));
            if (says[i])
                check_says(world, says[i]);
            CHECK_OK(sherd_world_check(world));
        }
}

static const check_test tests[] = {
    {TEST(a_backward_that_asks_for_too_much_is_named), {1, 2, 3}},
    {TEST(what_describe_sets_is_looked_at), {1, 2, 3}},
    {TEST(an_operator_that_is_none_is_refused), {1, 2, 3}},
    {TEST(what_fails_without_a_word_is_named), {1, 2, 3}},
};
CHECK_MAIN(tests)
