/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards and composed operators that call each other, or themselves, many times. */
#include "modules.h"

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

static const check_test tests[] = {
    {TEST(a_forward_that_calls_itself_is_refused), {1, 2, 3}},
    {TEST(an_operator_that_is_made_of_itself_is_refused), {1, 2}},
};
CHECK_MAIN(tests)
