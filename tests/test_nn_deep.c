/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the program that call each other, or themselves, many times. */
#include "modules.h"

#include "sherd/autograd.h"
#include "sherd/op.h"

/* How many more calls it makes within itself; negative: it never ends. */
static void call_itself(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    int *more = sherd_module_payload(self);

    *out = *in;
    if (*more && ++*more != 0)
        out->value[0] = sherd_module_call(self, in->value[0]);
}

static sherd_tensor *one(sherd_world *world)
{
    return wave(world, SHERD_F64, 1, SHAPE(3), 1, 1, 0);
}

static void a_forward_that_calls_itself_is_refused(sherd_world *world)
{
    static const struct {
        int calls;
        sherd_status status;
    } cases[] = {{-900, SHERD_OK}, {-10000, SHERD_ELIMIT}, {1, SHERD_ELIMIT}, {-2, SHERD_OK}};
    sherd_module *m = NULL;
    int more;

    CHECK_OK(
        sherd_module_create(&m, world, call_itself, &(sherd_module_options){.payload = &more}));
    for (int i = 0; i < LEN(cases); i++) {
        sherd_scope_begin(world);
        more = cases[i].calls;
        sherd_tensor *y = sherd_module_call(m, one(world));
        CHECK_EQ(sherd_tensor_failed(y), cases[i].status != SHERD_OK);
        CHECK_EQ(sherd_world_check(world), cases[i].status);
        if (cases[i].status)
            CHECK(strstr(sherd_world_error(world),
                         ": sherd_module_call: module \"(root)\": 1000 func"));
        sherd_scope_end(world);
        CHECK_EQ(sherd_scope_depth(world), 0);
    }
    sherd_module_destroy(m);
}

static bool compose_itself(sherd_call *call);

static const sherd_op endless = {
    .name = "test_endless", .operand = {{"x", 0}}, .result = {{"y", 0}}, .compose = compose_itself};

static bool compose_itself(sherd_call *call)
{
    call->out[0] = sherd_apply(&endless, call->in, 1, NULL);
    return true;
}

static void an_operator_that_is_made_of_itself_is_refused(sherd_world *world)
{
    CHECK(sherd_tensor_failed(sherd_apply(&endless, (sherd_tensor *[]){one(world)}, 1, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(strstr(sherd_world_error(world), ": test_endless: 1000 functions are running"));
    CHECK_EQ(sherd_scope_depth(world), 0);
}

/* ---- functions of the program that are no compose -------------------------------------------- */

static bool compute_itself(sherd_call *call);

static const sherd_op inner = {.name = "test_inner",
                               .operand = {{"x", 0}},
                               .result = {{"y", 0}},
                               .rule = "...->...",
                               .forward = compute_itself};

static bool compute_itself(sherd_call *call)
{
    return !sherd_tensor_failed(sherd_apply(&inner, call->in, 1, NULL));
}

static bool compute_nothing(sherd_call *call)
{
    return call != NULL;
}

static const char *describe_itself(sherd_call *call);

static const sherd_op described = {.name = "test_described",
                                   .operand = {{"x", 0}},
                                   .result = {{"y", 0}},
                                   .rule = "...->...",
                                   .describe = describe_itself,
                                   .forward = compute_nothing};

static const char *describe_itself(sherd_call *call)
{
    return sherd_tensor_failed(sherd_apply(&described, call->in, 1, NULL)) ? "it failed" : NULL;
}

static void a_forward_or_describe_that_calls_its_operator_is_refused(sherd_world *world)
{
    const sherd_op *const ops[] = {&inner, &described};

    for (int i = 0; i < LEN(ops); i++) {
        CHECK(sherd_tensor_failed(sherd_apply(ops[i], (sherd_tensor *[]){one(world)}, 1, NULL)));
        CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
        CHECK(strstr(sherd_world_error(world), ": 1000 functions are running") != NULL);
        CHECK_EQ(sherd_scope_depth(world), 0);
    }
    CHECK(!sherd_tensor_failed(sherd_scale(one(world), 2)));
    CHECK_OK(sherd_world_check(world));
}

/* A backward in a hook runs a hook that does the same. */
static sherd_tensor *hook_again(sherd_tensor *grad, void *payload)
{
    sherd_world *world = sherd_tensor_world(grad);

    sherd_set_recording(world, true);
    sherd_tensor *x = sherd_require_grad(one(world), true);
    CHECK_OK(sherd_tensor_hook(NULL, x, hook_again, payload, NULL));
    sherd_backward(sherd_sum(x));
    return NULL;
}

static void a_hook_that_runs_itself_is_refused(sherd_world *world)
{
    sherd_tensor *x = sherd_require_grad(one(world), true);

    CHECK_OK(sherd_tensor_hook(NULL, x, hook_again, NULL, NULL));
    sherd_backward(sherd_sum(x));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(strstr(sherd_world_error(world), "sherd_tensor_hook: 1000 functions are running"));
    CHECK_EQ(sherd_scope_depth(world), 0);
    x = sherd_require_grad(one(world), true);
    sherd_backward(sherd_sum(x));
    CHECK(!sherd_tensor_failed(sherd_grad(x)));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_forward_that_calls_itself_is_refused), {1, 2, 3}},
    {TEST(an_operator_that_is_made_of_itself_is_refused), {1, 2}},
    {TEST(a_forward_or_describe_that_calls_its_operator_is_refused), {1, 2}},
    {TEST(a_hook_that_runs_itself_is_refused), {1, 2}},
};
CHECK_MAIN(tests)
