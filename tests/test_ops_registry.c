/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of operators: found by name, refused where they are not sound. */
#include "ops_cases.h"

#include "sherd/op.h"

static bool nothing(sherd_call *call)
{
    (void)call;
    return true;
}

static bool twice(sherd_call *call)
{
    call->out[0] = sherd_add(call->in[0], call->in[0]);
    return true;
}

static const sherd_op twice_op = {
    .name = "test_twice", .operand = {{"x", 0}}, .result = {{"y", 0}}, .compose = twice};

static bool refuses(sherd_call *call, void *context)
{
    (void)context;
    return sherd_call_fail(call, SHERD_ENOTSUP, "not today");
}

static void operators_are_found_by_name(sherd_world *world)
{
    sherd_op other = twice_op;
    int count = 0;

    for (; sherd_op_at(count); count++) {
        const sherd_op *op = sherd_op_at(count);
        CHECK(sherd_op_find(NULL, op->name) == op);
        CHECK(strncmp(op->name, "sherd_", 6) == 0 && op->summary != NULL);
        CHECK_OK(
            sherd_op_register(world, op)); /* the library's keep to what is asked of a user's */
    }
    CHECK(count >= 18);
    CHECK(sherd_op_find(world, "test_twice") == NULL);
    CHECK_OK(sherd_op_register(world, &twice_op));
    CHECK_OK(sherd_op_register(world, &twice_op));
    CHECK(sherd_op_find(world, "test_twice") == &twice_op);
    CHECK_EQ(sherd_op_register(world, &other), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "there is another operator test_twice") != NULL);
    CHECK_OK(sherd_op_override(world, "test_twice", SHERD_ABOVE_TAPE,
                               &(sherd_op_handler){.run = refuses}));
    CHECK_EQ(sherd_op_override(world, "test_twice", SHERD_BELOW_TAPE,
                               &(sherd_op_handler){.run = refuses}),
             SHERD_EINVAL); /* it has nothing below */
}

static void reads(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                  int64_t *end)
{
    (void)call, (void)i, (void)d, (void)lo, (void)hi, (void)first, (void)end;
}

typedef struct wrong_op {
    sherd_op op;
    const char *reason;
} wrong_op;

#define WRONG(why, ...)               \
    {                                 \
        .op = {.name = "test_wrong",  \
               .operand = {{"x", 0}}, \
               .result = {{"y", 0}},  \
               .rule = "...->...",    \
               .forward = nothing,    \
               __VA_ARGS__},          \
        .reason = why                 \
    }

static void what_is_wrong_with_an_operator_is_said_at_once(sherd_world *world)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
    static const wrong_op wrong[] = {
        WRONG("it has no name", .name = ""),
        WRONG("it needs an operand and a result", .operand = {{NULL, 0}}),
        WRONG("only its last operand may be repeated",
              .operand = {{"x", SHERD_OP_REPEATED}, {"z", 0}}, .rule = "...,...->..."),
        WRONG("an operator that adds an attribute has no operand that may be repeated",
              .operand = {{"x", SHERD_OP_REPEATED}}, .adds = true),
        WRONG("what it views is an operand that may be absent",
              .operand = {{"x", SHERD_OP_OPTIONAL}}, .views = true),
        WRONG("beside is an operand that may be absent",
              .operand = {{"x", SHERD_OP_AROUND}, {"z", SHERD_OP_OPTIONAL}}, .rule = "...,...->...",
              .reads = reads, .beside = 2),
        WRONG("its first result may not be hidden", .result = {{"y", SHERD_OP_HIDDEN}}),
        WRONG("hidden results come last", .result = {{"y", 0}, {"h", SHERD_OP_HIDDEN}, {"z", 0}},
              .rule = "...->...,...,..."),
        WRONG("it needs forward, or compose, and not both", .forward = NULL),
        WRONG("it needs forward, or compose, and not both", .compose = twice),
        WRONG("its attributes are too large", .attributes = 100000),
        WRONG("its attributes need fields, by which ranks compare them", .attributes = 8),
        WRONG("it needs a rule, or describe, or ways", .rule = NULL),
        WRONG("its rule must have one ->", .rule = "..."),
        WRONG("its rule may have small letters, 1, *, commas and ... only", .rule = "A->A"),
        WRONG("its rule must have a part for each operand", .rule = "a,b->a"),
        WRONG("its rule must have a part for each result", .rule = "a->a,a"),
    };
#pragma GCC diagnostic pop
    for (int i = 0; i < LEN(wrong); i++) {
        CHECK_EQ(sherd_op_register(world, &wrong[i].op), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), wrong[i].reason) != NULL))
            fprintf(stderr, "  %s\n", sherd_world_error(world));
    }
}

static const check_test tests[] = {
    {TEST(operators_are_found_by_name), {1}},
    {TEST(what_is_wrong_with_an_operator_is_said_at_once), {1}},
};
CHECK_MAIN(tests)
