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

static const check_test tests[] = {
    {TEST(what_describe_sets_is_looked_at), {1, 2, 3}},
    {TEST(an_operator_that_is_none_is_refused), {1, 2, 3}},
    {TEST(what_fails_without_a_word_is_named), {1, 2, 3}},
};
CHECK_MAIN(tests)
