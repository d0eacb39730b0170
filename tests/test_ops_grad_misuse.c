/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of the tape and of hooks on saved tensors: see misuse.h. */
#include "misuse.h"
#include "sherd/autograd.h"
#include "sherd/ops.h"

static const int64_t square[] = {4, 4};

/* Ones; rows over all ranks. */
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

/* The gradient of a sum of squares. */
static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_tensor *x = sherd_require_grad(spread(world), true);
    sherd_backward(sherd_sum(sherd_mul(x, x)));
    CHECK_NEAR(sherd_item(sherd_sum(sherd_grad(x))), 32, 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

static sherd_tensor *keep(sherd_tensor *t, void *context, const void **undo)
{
    (void)context, (void)undo;
    return t;
}

MISUSE(hooks_that_are_none_are_popped_like_others)
{
    const sherd_saved_hooks half = {.pack = keep}, none = {0};
    sherd_tensor *x = sherd_require_grad(spread(m->world), true);

    FAILS(SHERD_EINVAL, sherd_saved_hooks_push(m->world, NUL(&none)));
    sherd_saved_hooks_pop(m->world);
    FAILS(SHERD_EINVAL, sherd_saved_hooks_push(m->world, BAD(&half, &none)));
    sherd_backward(sherd_sum(sherd_mul(x, x)));
    sherd_saved_hooks_pop(m->world);
    sherd_saved_hooks_pop(m->world);
    CHECK(sherd_grad(x) && !sherd_tensor_failed(sherd_grad(x)));
    CHECK_OK(sherd_world_check(m->world));
}

/* A hook that is to do something wrong finds what in its context; NULL = it does nothing. */
typedef struct mischief {
    sherd_tensor *other; /* is returned */
    int ends;            /* of scopes that it has not begun */
} mischief;

static sherd_tensor *do_mischief(sherd_tensor *t, const mischief *what)
{
    for (int i = 0; i < what->ends; i++)
        sherd_scope_end(sherd_tensor_world(t));
    return what->other ? what->other : t;
}

static sherd_tensor *pack_badly(sherd_tensor *t, void *context, const void **undo)
{
    (void)undo;
    return do_mischief(t, context);
}

static sherd_tensor *unpack_badly(sherd_tensor *t, void *context, const void *undo)
{
    (void)undo;
    return do_mischief(t, context);
}

static sherd_tensor *unpack(sherd_tensor *t, void *context, const void *undo)
{
    (void)context, (void)undo;
    return t;
}

static void square_with(const sherd_saved_hooks *hooks, sherd_tensor *x)
{
    sherd_world *world = sherd_tensor_world(x);

    sherd_saved_hooks_push(world, hooks);
    sherd_tensor *y = sherd_scale(x, 2);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    sherd_saved_hooks_pop(world);
}

MISUSE(a_saved_tensor_stays_in_its_world_and_scope)
{
    sherd_tensor *x = sherd_require_grad(spread(m->world), true);
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_check(m->world)); /* what is made up to here stays */
    CHECK_OK(sherd_world_alone(&second, NULL));
    mischief other = {.other = BAD(sherd_constant(second, SHERD_F32, square, 2, 1), NULL)};
    mischief ends = {.ends = BAD(9, 0)};
    FAILS(SHERD_EINVAL, square_with(&(sherd_saved_hooks){pack_badly, unpack, &other}, x));
    sherd_clear_grad(x); /* not all ranks have one */
    FAILS(SHERD_EINVAL, square_with(&(sherd_saved_hooks){keep, unpack_badly, &other}, x));
    sherd_clear_grad(x);
    FAILS(SHERD_OK, square_with(&(sherd_saved_hooks){pack_badly, unpack_badly, &ends}, x));
    CHECK(sherd_grad(x) && !sherd_tensor_failed(sherd_grad(x)));
    CHECK_OK(sherd_world_check(m->world));
    CHECK_OK(sherd_world_close(second));
}

MISUSE(a_gradient_is_of_a_leaf_with_fractions)
{
    sherd_tensor *x = sherd_require_grad(spread(m->world), true), *y = sherd_mul(x, x);
    sherd_tensor *plain = sherd_constant(m->world, SHERD_F32, square, 2, 1);
    sherd_tensor *ids = sherd_constant(m->world, SHERD_I32, square, 2, 0);

    CHECK_OK(sherd_world_check(m->world)); /* what is made up to here stays */
    FAILS(SHERD_EINVAL, sherd_require_grad(BAD(ids, plain), true));
    FAILS(SHERD_EINVAL, sherd_require_grad(BAD(y, x), true));
    FAILS(SHERD_EINVAL, sherd_backward(BAD(y, sherd_sum(y))));
    sherd_clear_grad(x);
    FAILS(SHERD_EINVAL, sherd_backward(BAD(sherd_sum(plain), sherd_sum(sherd_mul(x, x)))));
    ANSWERS(sherd_grad(ids) == NULL);
    sherd_clear_grad(ids);
}

static sherd_tensor *same(sherd_tensor *grad, void *payload)
{
    (void)payload;
    return grad;
}

MISUSE(gradients_are_of_what_wants_them)
{
    sherd_tensor *x = sherd_require_grad(spread(m->world), true), *plain = NULL, *out[1];
    sherd_tensor *c = spread(m->world), *y[1], *g[1], *loss, *inputs[] = {x}, *none[] = {NULL},
                 *also[] = {x};
    const sherd_backward_options again = {.retain = true, .replace = true};
    const sherd_gradients_options once = {.retain = true};

    plain = sherd_require_grad(sherd_constant(m->world, SHERD_F32, square, 2, 1), true);
    y[0] = sherd_mul(x, x);
    loss = sherd_sum(y[0]);
    g[0] = spread(m->world);
    CHECK_OK(sherd_world_check(m->world)); /* what is made up to here stays */
    sherd_backward_with(y, g, 0, NULL);
    sherd_backward_with(NULL, g, -1, NULL);
    FAILS(SHERD_EINVAL, sherd_backward_with(NUL(y), g, 1, &again));
    FAILS(SHERD_EINVAL, sherd_backward_with(BAD(&c, y), g, 1, &again));
    FAILS(SHERD_EINVAL, sherd_backward_with(y, BAD(&loss, g), 1, &again));
    FAILS(SHERD_EINVAL, sherd_backward_with(BAD(&plain, y), g, 1, &again));
    FAILS(SHERD_EINVAL, sherd_backward_with(BAD(y, &loss), NULL, 1, &again));
    FAILS(SHERD_EINVAL, sherd_backward_with(BAD(none, y), g, 1, &again));
    sherd_gradients(NULL, NULL, 0, y, 0, NULL);
    sherd_gradients(out, NULL, -1, y, 1, NULL);
    FAILS(SHERD_EINVAL, sherd_gradients(NUL(out), inputs, 1, &loss, 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, NUL(inputs), 1, &loss, 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, inputs, 1, NUL(&loss), 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(BAD(also, out), also, 1, &loss, 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, BAD(&c, inputs), 1, &loss, 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, BAD(none, inputs), 1, &loss, 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, BAD(&plain, inputs), 1, &loss, 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, inputs, 1, BAD(y, &loss), 1, &once));
    FAILS(SHERD_EINVAL, sherd_gradients(out, inputs, 1, BAD(&c, &loss), 1, &once));
    FAILS(SHERD_EINVAL, sherd_retain_grad(BAD(c, y[0])));
    ANSWERS(sherd_retain_grad(NULL) == NULL);
    sherd_clear_grad(x);
}

static sherd_tensor *squared(sherd_tensor *const *inputs, int count, void *payload)
{
    (void)count, (void)payload;
    return sherd_mul(inputs[0], inputs[0]);
}

MISUSE(a_check_of_gradients_has_something_to_check)
{
    sherd_tensor *x = sherd_constant(m->world, SHERD_F64, square, 2, 1), *none[1] = {NULL};
    sherd_tensor *both[2] = {sherd_require_grad(x, true), NULL}, *many[40];

    for (int i = 0; i < 40; i++)
        many[i] = x;
    ONLY_SAYS(SHERD_EINVAL, sherd_check_gradients(squared, NULL, 1, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_check_gradients(squared, none, 1, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_check_gradients(squared, both, 0, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_check_gradients(NUL(squared), both, 1, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_check_gradients(squared, both, BAD(2, 1), NULL));
    ALL_REFUSE(SHERD_ELIMIT, sherd_check_gradients(squared, BAD(many, both), BAD(40, 1), NULL));
    CHECK_OK(sherd_check_gradients(squared, both, 1, NULL));
}

MISUSE(a_hook_hangs_on_a_gradient)
{
    sherd_tensor *x = sherd_require_grad(spread(m->world), true), *c = spread(m->world);
    int id = 7;

    REFUSES(SHERD_EINVAL, sherd_tensor_hook(&id, c, same, NULL, NULL));
    ANSWERS(id == 0);
    REFUSES(SHERD_EINVAL, sherd_tensor_hook(&id, x, NULL, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_tensor_hook(&id, NULL, same, NULL, NULL));
    CHECK_OK(sherd_tensor_hook(&id, x, same, NULL, NULL));
    sherd_tensor_unhook(NULL, id);
    sherd_tensor_unhook(c, id);
    sherd_tensor_unhook(x, -1);
    sherd_tensor_unhook(x, id + 1);
    sherd_backward(sherd_sum(sherd_mul(x, x)));
    sherd_tensor_unhook(x, id);
    CHECK_OK(sherd_world_check(m->world));
}

static const check_test tests[] = {
    {TEST(gradients_are_of_what_wants_them), {1, 2}},
    {TEST(a_check_of_gradients_has_something_to_check), {1, 2}},
    {TEST(a_hook_hangs_on_a_gradient), {1, 2}},
    {TEST(hooks_that_are_none_are_popped_like_others), {1, 2}},
    {TEST(a_saved_tensor_stays_in_its_world_and_scope), {1, 2}},
    {TEST(a_gradient_is_of_a_leaf_with_fractions), {1, 2}},
};
CHECK_MAIN(tests)
