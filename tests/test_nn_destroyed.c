/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that hooks and destroy functions try to destroy while they are used: refused where the
 * library still needs them, done where it does not.
 */
#include "modules.h"
#include "sherd/optimizer.h"

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = sherd_scale(in->value[0], 2);
    out->count = 1;
}

static void nothing(sherd_module *self, sherd_args *in, void *payload)
{
    (void)self, (void)in, (void)payload;
}

static sherd_tensor *number(sherd_world *world, double value)
{
    return sherd_constant(world, SHERD_F64, NULL, 0, value);
}

typedef struct destroyer {
    sherd_module *module;
    sherd_optimizer *optimizer;
    int runs;
} destroyer;

static sherd_tensor *destroys(sherd_tensor *grad, void *payload)
{
    destroyer *d = payload;

    (void)grad;
    d->runs++;
    sherd_module_destroy(d->module);
    sherd_optimizer_destroy(d->optimizer);
    return NULL;
}

static void destroys_before(sherd_module *self, sherd_args *in, void *payload)
{
    (void)self;
    destroys(in->value[0], payload);
}

static sherd_tensor *wanting(sherd_world *world, int64_t rows)
{
    return sherd_require_grad(wave(world, SHERD_F32, 2, SHAPE(rows, 3), 1, 1, 0), true);
}

/* Hooks on a parameter and on what is between; also where the module must be run again. */
static void a_gradient_hook_does_not_destroy_its_module(sherd_world *world)
{
    for (int kind = 0; kind < 4; kind++) {
        sherd_module *m = NULL;
        destroyer d = {0};

        sherd_scope_begin(world);
        CHECK_OK(sherd_linear_create(&m, world, 3, 2, NULL));
        sherd_module_checkpoint(m, kind >= 2);
        sherd_tensor *y = sherd_module_call(m, wanting(world, 4));
        sherd_tensor *at = kind & 1 ? y : sherd_module_parameter(m, "weight");
        CHECK_OK(sherd_tensor_hook(NULL, at, destroys, &d, NULL));
        d.module = m;
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        CHECK(d.runs <= 1); /* none where another rank's alarm came first */
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_module_destroy: module \"(root)\" is in a "
                                               "backward that is under way") != NULL);
        CHECK_TEXT(sherd_module_path(m), "");
        sherd_scope_end(world);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What is no part of the backward may go, and so may the leaf at which it begins. */
static void a_gradient_hook_may_destroy_another_module(sherd_world *world)
{
    sherd_module *other = NULL, *holder = NULL;
    sherd_tensor *leaf = sherd_tensor_retain(sherd_require_grad(number(world, 3), true));
    destroyer d = {0};

    CHECK_OK(sherd_linear_create(&other, world, 3, 2, NULL));
    CHECK_OK(sherd_module_create(&holder, world, forward, NULL));
    CHECK_OK(sherd_module_add_parameter(holder, "leaf", leaf));
    CHECK_OK(sherd_tensor_hook(NULL, leaf, destroys, &d, NULL));
    d.module = other;
    sherd_backward(leaf);
    CHECK_EQ(d.runs, 1);
    CHECK_OK(sherd_world_check(world));
    sherd_tensor_release(leaf);
    sherd_module_destroy(holder);
}

static void releases(void *leaf)
{
    sherd_tensor_release(*(sherd_tensor **)leaf);
}

static sherd_tensor *releases_its_leaf(sherd_tensor *grad, void *payload)
{
    (void)grad;
    releases(payload);
    return NULL;
}

static void a_hook_may_release_the_leaf_where_backward_begins(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_tensor *leaf = sherd_tensor_retain(sherd_require_grad(number(world, 3), true));
    sherd_scope_end(world);
    CHECK_OK(sherd_tensor_hook(NULL, leaf, releases_its_leaf, &leaf, NULL));
    sherd_backward(leaf);
    CHECK_OK(sherd_world_check(world));
}

static void a_hook_does_not_destroy_an_optimizer(sherd_world *world)
{
    for (int kind = 0; kind < 2; kind++) {
        sherd_module *m = NULL;
        sherd_optimizer *o = NULL;
        destroyer d = {0};

        sherd_scope_begin(world);
        CHECK_OK(sherd_linear_create(&m, world, 3, 2, NULL));
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        if (kind)
            CHECK_OK(
                sherd_tensor_hook(NULL, sherd_module_parameter(m, "weight"), destroys, &d, NULL));
        else
            CHECK_OK(sherd_module_hook_before(NULL, m, destroys_before,
                                              &(sherd_hook_options){.payload = &d}));
        d.optimizer = o;
        sherd_tensor *y = sherd_module_call(m, wanting(world, 4));
        if (kind)
            sherd_backward(sherd_sum(y));
        CHECK(d.runs <= 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_optimizer_destroy: ") != NULL);
        sherd_scope_end(world);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A payload that ends its own module, or its world. */
typedef struct ender {
    sherd_world *world;
    sherd_module *module;
    int runs;
} ender;

static void ends_all(void *payload)
{
    ender *e = payload;

    e->runs++;
    sherd_module_destroy(e->module);
    CHECK_EQ(sherd_world_close(e->world), SHERD_EINVAL);
}

static void a_destroy_function_ends_nothing_around_it(sherd_world *unused)
{
    (void)unused;
    for (int kind = 0; kind < 3; kind++) {
        sherd_world *world = NULL;
        ender e = {0};

        CHECK_OK(sherd_world_alone(&world, NULL));
        e.world = world;
        sherd_module_options with = {.payload = &e, .destroy = kind == 0 ? ends_all : NULL};
        CHECK_OK(sherd_module_create(&e.module, world, forward, &with));
        sherd_hook_options options = {.payload = &e, .destroy = ends_all};
        if (kind == 1)
            CHECK_OK(sherd_module_hook_before(NULL, e.module, nothing, &options));
        sherd_scope_begin(world);
        sherd_tensor *leaf = sherd_require_grad(number(world, 3), true);
        if (kind == 2)
            CHECK_OK(sherd_tensor_hook(NULL, leaf, destroys, &e, ends_all));
        else
            sherd_module_destroy(e.module);
        sherd_scope_end(world);
        CHECK_EQ(e.runs, 1);
        CHECK_EQ(sherd_world_check(world), kind < 2 ? SHERD_EINVAL : SHERD_OK);
        CHECK_OK(sherd_world_close(world));
    }
}

static void ends_module(void *payload)
{
    destroyer *d = payload;

    d->runs++;
    sherd_module_destroy(d->module);
}

static void removes_itself(sherd_module *self, sherd_args *in, void *payload)
{
    (void)in, (void)payload;
    sherd_module_unhook(self, 1);
}

/* Neither where a hook is removed, nor where the run ends that has removed it. */
static void a_hook_that_goes_does_not_end_its_module(sherd_world *world)
{
    for (int kind = 0; kind < 2; kind++) {
        destroyer d = {0};
        sherd_hook_options options = {.payload = &d, .destroy = ends_module};

        sherd_scope_begin(world);
        CHECK_OK(sherd_module_create(&d.module, world, forward, NULL));
        CHECK_OK(sherd_module_hook_before(NULL, d.module, removes_itself, &options));
        if (kind)
            sherd_module_call(d.module, number(world, 3));
        else
            sherd_module_unhook(d.module, 1);
        CHECK_EQ(d.runs, 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "being called, or destroyed") != NULL);
        sherd_scope_end(world);
        sherd_module_destroy(d.module);
        CHECK_EQ(d.runs, 1);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What a destroy function finds of a module that goes. */
typedef struct finder {
    sherd_module *module;
    int runs, children, parameters;
    bool named;
    sherd_status added;
} finder;

static void looks(void *payload)
{
    finder *f = payload;

    f->runs++;
    f->children = sherd_module_children(f->module);
    f->parameters = sherd_module_state(f->module, NULL, 0);
    f->named = sherd_module_find(f->module, "a") || sherd_module_parameter(f->module, "leaf");
    f->added = sherd_module_hook_before(NULL, f->module, nothing, NULL);
}

static void a_destroy_function_finds_nothing_that_is_gone(sherd_world *world)
{
    finder last = {.children = -1}, hook = last;
    sherd_module_options with = {.payload = &last, .destroy = looks};
    sherd_hook_options options = {.payload = &hook, .destroy = looks};
    sherd_module *m = NULL, *a = NULL, *b = NULL;

    CHECK_OK(sherd_module_create(&m, world, forward, &with));
    CHECK_OK(sherd_module_create(&a, world, forward, NULL));
    CHECK_OK(sherd_module_create(&b, world, forward, NULL));
    CHECK_OK(sherd_module_add(m, "a", a));
    CHECK_OK(sherd_module_add(m, "b", b));
    CHECK_OK(sherd_module_hook_before(NULL, m, nothing, &options));
    CHECK_OK(sherd_module_add_parameter(m, "leaf", number(world, 3)));
    last.module = hook.module = m;
    sherd_module_destroy(m);
    CHECK_EQ(last.runs + hook.runs, 2);
    CHECK_EQ(last.children, 0);
    CHECK_EQ(hook.children, 0);
    CHECK_EQ(last.parameters, 0);
    CHECK_EQ(hook.parameters, 1);
    CHECK(hook.named && !last.named);
    CHECK_EQ(last.added, SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_gradient_hook_does_not_destroy_its_module), {1, 2, 3}},
    {TEST(a_gradient_hook_may_destroy_another_module), {1, 2}},
    {TEST(a_hook_may_release_the_leaf_where_backward_begins), {1, 2}},
    {TEST(a_hook_does_not_destroy_an_optimizer), {1, 2}},
    {TEST(a_destroy_function_ends_nothing_around_it), {1}},
    {TEST(a_hook_that_goes_does_not_end_its_module), {1, 2}},
    {TEST(a_destroy_function_finds_nothing_that_is_gone), {1, 2}},
};
CHECK_MAIN(tests)
