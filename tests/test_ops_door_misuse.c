/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of operators as values: see misuse.h. */
#include "misuse.h"
#include "sherd/autocast.h"
#include "sherd/comm.h"
#include "sherd/op.h"
#include "sherd/ops.h"

static const int64_t square[] = {4, 4};

static sherd_tensor *spread(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_placement s = sherd_shard(0);
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    CHECK_OK(sherd_layout_create(&rows, mesh, 2, square, &s, NULL));
    return sherd_constant_on(rows, SHERD_F32, 1);
}

static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_relu(spread(world)))), 16, 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

static bool original(sherd_call *call, void *context)
{
    (void)context;
    return sherd_call_original(call);
}

/* No operator. */
static const sherd_op nothing = {
    .name = "sherd_nothing", .operand = {{"x", 0}}, .result = {{"y", 0}}, .rule = "...->..."};

MISUSE(a_null_is_no_operator)
{
    const sherd_op *relu = sherd_op_find(NULL, "sherd_relu");
    const sherd_op_handler handler = {.run = original}, none = {0};
    sherd_tensor *x = spread(m->world);

    FAILS(SHERD_EINVAL, sherd_apply(NULL, &x, 1, NULL));
    ANSWERS(sherd_apply(NULL, &(sherd_tensor *){NULL}, 1, NULL) == NULL);
    ANSWERS(sherd_apply(relu, NULL, 1, NULL) == NULL);
    FAILS(SHERD_EINVAL, sherd_apply_all(NULL, NULL, &x, 1, NULL));
    ANSWERS(sherd_apply_all(NULL, relu, &x, 1, NULL));
    ANSWERS(sherd_op_find(NULL, NULL) == NULL && sherd_op_find(m->world, "nobody") == NULL);
    ANSWERS(sherd_op_at(-1) == NULL && sherd_op_at(1000000) == NULL);
    ANSWERS(sherd_op_time_at(NULL, 0).name == NULL);
    sherd_op_times(NULL, true);
    REFUSES(SHERD_EINVAL, sherd_op_register(m->world, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_op_register(NULL, relu));
    REFUSES(SHERD_EINVAL, sherd_op_register(m->world, &nothing));
    ONLY_SAYS(SHERD_EINVAL, sherd_op_promote(NULL, SHERD_PROMOTE_NEVER));
    REFUSES(SHERD_EINVAL, sherd_op_promote(m->world, (sherd_promotion)9));
    ONLY_SAYS(SHERD_EINVAL, sherd_op_move(NULL, SHERD_MOVES_NEVER));
    REFUSES(SHERD_EINVAL, sherd_op_move(m->world, (sherd_moving)9));
    ONLY_SAYS(SHERD_EINVAL, sherd_op_override(NULL, "sherd_relu", SHERD_ABOVE_TAPE, &handler));
    REFUSES(SHERD_EINVAL, sherd_op_override(m->world, NULL, SHERD_ABOVE_TAPE, &handler));
    REFUSES(SHERD_EINVAL, sherd_op_override(m->world, "nobody", SHERD_ABOVE_TAPE, &handler));
    REFUSES(SHERD_EINVAL, sherd_op_override(m->world, "sherd_relu", (sherd_op_level)7, &handler));
    REFUSES(SHERD_EINVAL, sherd_op_override(m->world, "sherd_relu", SHERD_ABOVE_TAPE, &none));
}

MISUSE(autocast_is_to_16_bits)
{
    ANSWERS(sherd_set_autocast(NULL, SHERD_BF16) == SHERD_DTYPE_NONE);
    ANSWERS(sherd_autocast(NULL) == SHERD_DTYPE_NONE);
    for (int dtype = -1; dtype < 100; dtype++) {
        if (dtype == SHERD_DTYPE_NONE || dtype == SHERD_BF16 || dtype == SHERD_F16)
            continue;
        FAILS(SHERD_EINVAL,
              sherd_set_autocast(m->world, BAD((sherd_dtype)dtype, SHERD_DTYPE_NONE)));
        ANSWERS(sherd_autocast(m->world) == SHERD_DTYPE_NONE);
    }
}

MISUSE(a_wrong_number_of_operands_is_refused)
{
    const sherd_op *add = sherd_op_find(NULL, "sherd_add"),
                   *relu = sherd_op_find(NULL, "sherd_relu");
    sherd_tensor *in[] = {spread(m->world), spread(m->world), spread(m->world)};

    FAILS(SHERD_EINVAL, sherd_apply(add, in, BAD(1, 2), NULL));
    FAILS(SHERD_EINVAL, sherd_apply(add, in, BAD(3, 2), NULL));
    FAILS(SHERD_EINVAL, sherd_apply(relu, in, BAD(1000000, 1), NULL));
    FAILS(SHERD_EINVAL, sherd_apply(m->wrong ? &nothing : relu, in, 1, NULL));
    ANSWERS(sherd_apply(relu, in, 0, NULL) == NULL);
    ANSWERS(sherd_apply(relu, in, -1, NULL) == NULL);
}

MISUSE(no_call_and_no_node_have_answers)
{
    const int64_t *shape, one = 1;
    const sherd_layout *layout = NULL;

    ANSWERS(!sherd_call_original(NULL) && !sherd_call_fail(NULL, SHERD_EINVAL, "why"));
    ANSWERS(sherd_call_stream(NULL) == NULL);
    ANSWERS(sherd_call_reason(NULL, "why") != NULL && sherd_call_scratch(NULL, 8) == NULL);
    sherd_call_view(NULL, 0, &one, 0);
    sherd_call_shape(NULL, 0, 1, &one);
    ONLY_SAYS(SHERD_EINVAL, sherd_way_add(NULL, &layout, &layout));
    ANSWERS(!sherd_node_wants(NULL, 0) && sherd_node_operand(NULL, 0) == NULL);
    ANSWERS(sherd_node_result(NULL, 0) == NULL && sherd_node_attributes(NULL) == NULL);
    ANSWERS(sherd_node_shape(NULL, 0, NULL) == 0);
    ANSWERS(sherd_node_shape(NULL, 0, &shape) == 0 && sherd_node_layout(NULL, 0) == NULL);
    ANSWERS(sherd_node_operands(NULL) == 0);
}

/* What an operator's own functions may ask for that is not there. */
static bool asks(sherd_call *call)
{
    sherd_call_view(call, 5, NULL, 0);
    return sherd_call_fail(call, (sherd_status)77, NULL);
}

static bool copies(sherd_call *call)
{
    sherd_box box = sherd_tensor_box(call->out[0]);

    if (call->to[0])
        memcpy(call->to[0], call->from[0], (size_t)(box.size[0] * box.size[1]) * sizeof(float));
    return true;
}

static void asks_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *shape;

    CHECK(!sherd_node_wants(node, -1) && !sherd_node_wants(node, 1));
    CHECK(sherd_node_operand(node, 1) == NULL && sherd_node_operand(node, -1) == NULL);
    CHECK(sherd_node_operand(node, 0) == NULL); /* it has not been saved */
    CHECK(sherd_node_result(node, 99) == NULL && sherd_node_result(node, -1) == NULL);
    CHECK(sherd_node_shape(node, 0, NULL) == sherd_node_shape(node, 0, &shape));
    CHECK(sherd_node_shape(node, 3, &shape) == 0 && sherd_node_layout(node, 3) == NULL);
    CHECK(sherd_node_attributes(node) == NULL);
    grad_in[0] = grad_out[0];
}

MISUSE(functions_of_an_operator_may_ask_for_what_is_not_there)
{
    static const sherd_op right = {.name = "sherd_asking",
                                   .operand = {{"x", 0}},
                                   .result = {{"y", 0}},
                                   .rule = "...->...",
                                   .forward = copies,
                                   .backward = asks_back};
    static const sherd_op wrong = {.name = "sherd_asking",
                                   .operand = {{"x", 0}},
                                   .result = {{"y", 0}},
                                   .rule = "...->...",
                                   .forward = asks};
    /* It says nothing of its result. */
    static const sherd_op silent = {
        .name = "sherd_silent", .operand = {{"x", 0}}, .result = {{"y", 0}}, .forward = copies};
    sherd_tensor *x = sherd_require_grad(spread(m->world), true);

    sherd_backward(sherd_sum(sherd_apply(&right, &x, 1, NULL)));
    CHECK_NEAR(sherd_item(sherd_sum(sherd_grad(x))), 16, 0);
    CHECK_OK(sherd_world_check(m->world));
    FAILS(SHERD_EINVAL, sherd_apply(m->wrong ? &wrong : &right, &x, 1, NULL));
    FAILS(SHERD_EINVAL, sherd_apply(m->wrong ? &silent : &right, &x, 1, NULL));
}

/* A tensor of the second world, or what the operator makes. */
static bool gives(sherd_call *call, void *context)
{
    call->out[0] = context;
    return context || sherd_call_original(call);
}

MISUSE(a_handler_gives_what_is_of_its_world)
{
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    sherd_tensor *foreign = sherd_constant(second, SHERD_F32, (int64_t[]){4, 4}, 2, 1);
    sherd_tensor *x = spread(m->world);
    const sherd_op_handler handler = {.run = gives, .context = m->wrong ? foreign : NULL};

    CHECK_OK(sherd_op_override(m->world, "sherd_add", SHERD_ABOVE_TAPE, &handler));
    FAILS(SHERD_EINVAL, sherd_add(x, x));
    CHECK_OK(sherd_op_override(m->world, "sherd_add", SHERD_ABOVE_TAPE, NULL));
    CHECK_OK(sherd_world_close(second));
}

static const check_test tests[] = {
    {TEST(a_handler_gives_what_is_of_its_world), {1, 2, 3}},
    {TEST(a_null_is_no_operator), {1, 2, 3}},
    {TEST(autocast_is_to_16_bits), {1, 2}},
    {TEST(a_wrong_number_of_operands_is_refused), {1, 2, 3}},
    {TEST(no_call_and_no_node_have_answers), {1, 2}},
    {TEST(functions_of_an_operator_may_ask_for_what_is_not_there), {1, 2, 3}},
};
CHECK_MAIN(tests)
