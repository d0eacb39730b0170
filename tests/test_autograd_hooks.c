/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks on gradients: once, when it is complete, and what they return takes its place. */
#include "autograd/node.h"
#include "tape_operators.h"

#include <limits.h>

enum { N = 6 };

static const int64_t shape[] = {N};

static const sherd_layout *laid(sherd_world *world, const char *placements)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return layout_of(mesh_of(world, text), 1, shape, placements, NULL);
}

/* What a hook has seen, and what it does. */
typedef struct spy {
    int runs, destroyed;
    double value;  /* of the first element, the last time */
    double factor; /* what it multiplies the gradient with; 0 = nothing */
    const sherd_layout *layout;
    sherd_tensor *leaf, *out; /* what it begins another backward with */
    int removes;              /* this hook of `leaf` */
    const char *misdeed;
} spy;

static sherd_tensor *look(sherd_tensor *grad, void *payload)
{
    spy *s = payload;
    const double *data = sherd_tensor_read(grad);

    s->runs++;
    s->value = data && grad->count ? data[0] : s->value;
    s->layout = grad->layout;
    if (s->removes)
        sherd_tensor_unhook(s->leaf, s->removes);
    if (s->out)
        sherd_backward(s->out);
    return s->factor != 0 ? scaled(grad, s->factor) : NULL;
}

static void gone(void *payload)
{
    ((spy *)payload)->destroyed++;
}

static void a_hook_sees_the_complete_gradient_once(sherd_world *world)
{
    sherd_scope_begin(world); /* hooks go before what they write to */
    const sherd_backward_options retain = {.retain = true};
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x), *loss;
    spy leaf = {.value = 64}, inner = {.value = 16}, late = {.value = 48};
    int id = 0;

    CHECK_OK(sherd_tensor_hook(&id, x, look, &leaf, gone));
    CHECK(id > 0);
    CHECK_OK(sherd_tensor_hook(NULL, y, look, &inner, gone));
    /* y is used three times, x twice: (2x)^2 + 2 x 2x: 4 y at y, 32 at x. */
    loss = total(joined(product(y, y), product(doubled(x), y)));
    for (int run = 1; run <= 2; run++) {
        sherd_backward_with(&loss, NULL, 1, &retain);
        CHECK_EQ(leaf.runs, run);
        CHECK_EQ(inner.runs, run);
        CHECK(leaf.layout == x->layout && inner.layout == y->layout);
        CHECK_EQ(wrong_grads(x, 32 * run), 0); /* the hook saw that of this backward alone */
    }
    CHECK_NEAR(leaf.value, x->count ? 32 : 64, 0);
    CHECK_NEAR(inner.value, x->count ? 12 : 16, 0);
    sherd_tensor_unhook(x, id);
    CHECK_EQ(leaf.destroyed, 1);
    sherd_tensor_unhook(x, id);
    CHECK_OK(sherd_tensor_hook(NULL, x, look, &late, gone));
    sherd_backward(loss);
    CHECK_EQ(leaf.runs, 2);
    CHECK_EQ(inner.runs, 3);
    CHECK_EQ(late.runs, 1);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* As where one is registered for each backward, for days. */
static void numbers_of_hooks_come_again(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *loss = total(doubled(x));
    spy first = {0}, last = {0}, next = {0};
    int id[3];

    CHECK_OK(sherd_tensor_hook(&id[0], x, look, &first, gone));
    sherd__watch_of(x)->hooked = INT_MAX - 1;
    CHECK_OK(sherd_tensor_hook(&id[1], x, look, &last, gone));
    CHECK_OK(sherd_tensor_hook(&id[2], x, look, &next, gone));
    CHECK(id[0] > 0 && id[1] > 0 && id[2] > 0);
    CHECK(id[0] != id[1] && id[1] != id[2] && id[2] != id[0]);
    sherd_backward_with(&loss, NULL, 1, &(sherd_backward_options){.retain = true});
    sherd_tensor_unhook(x, id[0]);
    sherd_backward(loss);
    CHECK(first.destroyed == 1 && last.destroyed == 0 && next.destroyed == 0);
    CHECK(first.runs == 1 && last.runs == 2 && next.runs == 2);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void hooks_go_with_what_they_hang_on(sherd_world *world)
{
    spy leaf = {0}, inner = {0};

    sherd_scope_begin(world);
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x);
    CHECK_OK(sherd_tensor_hook(NULL, x, look, &leaf, gone));
    CHECK_OK(sherd_tensor_hook(NULL, y, look, &inner, gone));
    sherd_scope_end(world);
    CHECK_EQ(leaf.destroyed, 1);
    CHECK_EQ(inner.destroyed, 1);
    CHECK_OK(sherd_world_check(world));
}

typedef struct chain {
    sherd_tensor *on;
    int runs, id;
} chain;

/* Takes itself away and registers the next. */
static sherd_tensor *next(sherd_tensor *grad, void *payload)
{
    chain *c = payload;

    (void)grad;
    if (++c->runs > 9)
        return NULL;
    sherd_tensor_unhook(c->on, c->id);
    CHECK_OK(sherd_tensor_hook(&c->id, c->on, next, c, NULL));
    return NULL;
}

static void a_hook_that_adds_the_next_one_returns(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x), *loss = total(y);
    chain leaf = {.on = x}, inner = {.on = y};

    CHECK_OK(sherd_tensor_hook(&leaf.id, x, next, &leaf, NULL));
    CHECK_OK(sherd_tensor_hook(&inner.id, y, next, &inner, NULL));
    for (int run = 1; run <= 3; run++) {
        sherd_backward_with(&loss, NULL, 1, &(sherd_backward_options){.retain = true});
        CHECK_EQ(leaf.runs, run);
        CHECK_EQ(inner.runs, run);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_hook_may_replace_the_gradient(sherd_world *world)
{
    sherd_scope_begin(world); /* hooks go before what they write to */
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x), *grad;
    sherd_tensor *loss = total(product(y, y));
    spy twice = {.factor = 2}, thrice = {.factor = 3}, after = {0}, leaf = {.factor = 10};

    CHECK_OK(sherd_tensor_hook(NULL, y, look, &twice, gone));
    CHECK_OK(sherd_tensor_hook(NULL, y, look, &thrice, gone));
    CHECK_OK(sherd_tensor_hook(NULL, y, look, &after, gone));
    CHECK_OK(sherd_tensor_hook(NULL, x, look, &leaf, gone));
    sherd_retain_grad(y);
    sherd_backward_with(&loss, NULL, 1, &(sherd_backward_options){.retain = true});
    CHECK_EQ(wrong_grads(y, 8 * 6), 0);
    CHECK_EQ(wrong_grads(x, 8 * 6 * 2 * 10), 0);
    CHECK(!x->count || after.value == 48);
    sherd_gradients(&grad, &x, 1, &loss, 1, NULL);
    const double *data = sherd_tensor_read(grad);
    CHECK(!data || !grad->count || data[0] == 960);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* Each rank's use of y is an addend of its gradient. The hook sees the sum. */
static void a_hook_sees_nothing_pending(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "R"), 2), *y = doubled(x), *z = fork_of(y);
    spy inner = {.factor = 0.5}, leaf = {0};
    int ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_tensor_hook(NULL, y, look, &inner, NULL));
    CHECK_OK(sherd_tensor_hook(NULL, x, look, &leaf, NULL));
    sherd_backward(total(product(z, z)));
    CHECK_NEAR(inner.value, 8 * ranks, 0);
    CHECK_NEAR(leaf.value, 8 * ranks, 0);
    CHECK(inner.layout == y->layout && leaf.layout == x->layout);
    CHECK_EQ(wrong_grads(x, 8 * ranks), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_leaf_that_is_an_output_is_hooked_too(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 1, 2), *both[2] = {x, doubled(x)};
    spy leaf = {.factor = 2};

    CHECK_OK(sherd_tensor_hook(NULL, x, look, &leaf, NULL));
    sherd_backward(x);
    CHECK_EQ(wrong_grads(x, 2), 0);
    sherd_backward_with(both, NULL, 2, NULL);
    CHECK_EQ(leaf.runs, 2);
    CHECK_EQ(wrong_grads(x, 2 + 6), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_hook_may_remove_itself_and_others(sherd_world *world)
{
    sherd_scope_begin(world); /* hooks go before what they write to */
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2);
    spy first = {.leaf = x}, second = {.leaf = x};

    CHECK_OK(sherd_tensor_hook(&first.removes, x, look, &first, gone));
    CHECK_OK(sherd_tensor_hook(&first.removes, x, look, &second, gone));
    second.removes = first.removes - 1; /* the second is removed by the first, before its turn */
    sherd_backward(total(doubled(x)));
    CHECK_EQ(first.runs, 1);
    CHECK_EQ(second.runs, 0);
    CHECK_EQ(second.destroyed, 1);
    first.removes--;
    sherd_backward(total(doubled(x)));
    CHECK_EQ(first.runs, 2);
    CHECK_EQ(first.destroyed, 1);
    sherd_backward(total(doubled(x)));
    CHECK_EQ(first.runs, 2);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* Of two hooks that go together, each removes the other when it goes. */
static void twin_goes(void *payload)
{
    spy *s = payload;

    s->destroyed++;
    sherd_tensor_unhook(s->leaf, s->runs);
}

static void hooks_may_go_together(sherd_world *world)
{
    for (int kind = 0; kind < 2; kind++) {
        sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2);
        spy s[2] = {{.leaf = x}, {.leaf = x}}, last = {.factor = 2};
        int id[2];
        for (int i = 0; i < 2; i++)
            CHECK_OK(sherd_tensor_hook(&id[i], x, look, &s[i], twin_goes));
        CHECK_OK(sherd_tensor_hook(NULL, x, look, &last, NULL));
        for (int i = 0; i < 2; i++)
            s[i].runs = id[1 - i];
        sherd_tensor_unhook(x, id[kind]);
        CHECK_EQ(s[0].destroyed, 1);
        CHECK_EQ(s[1].destroyed, 1);
        sherd_backward(total(doubled(x)));
        CHECK_EQ(last.runs, 1);
        CHECK_EQ(wrong_grads(x, 4), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_hook_may_run_another_backward_but_not_this_one(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *w = leaf_on(laid(world, "S(0)"), 3);
    sherd_tensor *y = doubled(x);
    spy other = {.out = total(doubled(w))}, same = {.out = total(product(y, y))};

    CHECK_OK(sherd_tensor_hook(NULL, x, look, &other, NULL));
    sherd_backward(total(doubled(x)));
    CHECK_EQ(wrong_grads(x, 2), 0);
    CHECK_EQ(wrong_grads(w, 2), 0);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_tensor_hook(NULL, y, look, &same, NULL));
    sherd_backward(total(doubled(y)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "in a backward that is under way") != NULL);
    sherd_clear_grad(x);
}

static sherd_tensor *misbehave(sherd_tensor *grad, void *payload)
{
    const spy *s = payload;
    int64_t n = 3;

    if (strcmp(s->misdeed, "shape") == 0)
        return sherd_constant(grad->world, SHERD_F64, &n, 1, 1);
    if (strcmp(s->misdeed, "fails") == 0)
        return sherd__failed(grad->world);
    if (strcmp(s->misdeed, "scopes") == 0)
        for (int i = 0; i < 9; i++)
            sherd_scope_end(grad->world);
    if (strcmp(s->misdeed, "begins") == 0)
        sherd_scope_begin(grad->world);
    if (strcmp(s->misdeed, "records") == 0)
        sherd_set_recording(grad->world, true);
    if (strcmp(s->misdeed, "alarm") == 0)
        sherd_world_fail(grad->world, SHERD_EINVAL, "a bad day");
    return scaled(grad, 1);
}

static void what_a_hook_does_wrong_stays_in_it(sherd_world *world)
{
    static const struct {
        const char *misdeed;
        sherd_status wanted;
        const char *text;
    } cases[] = {{"shape", SHERD_EINVAL, "a hook returned f64[3] in the place of the gradient"},
                 {"fails", SHERD_EINVAL, ""},
                 {"alarm", SHERD_EINVAL, "a bad day"},
                 {"scopes", SHERD_OK, ""},
                 {"begins", SHERD_OK, ""},
                 {"records", SHERD_OK, ""}};

    for (int c = 0; c < LEN(cases); c++)
        for (int of_leaf = 0; of_leaf < 2; of_leaf++) {
            sherd_scope_begin(world);
            sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x);
            spy s = {.misdeed = cases[c].misdeed};
            CHECK_OK(sherd_tensor_hook(NULL, of_leaf ? x : y, misbehave, &s, NULL));
            CHECK_OK(sherd_world_check(world)); /* nobody is late */
            sherd_backward(total(product(y, y)));
            sherd_status status = sherd_world_check(world);
            CHECK_EQ(status, cases[c].wanted);
            CHECK(strstr(sherd_world_error(world), cases[c].text) != NULL);
            CHECK(status || wrong_grads(x, 16) == 0);
            CHECK(sherd_set_recording(world, true));
            sherd_scope_end(world);
            CHECK_EQ(sherd_saved_bytes(world), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static void ends_scopes(void *payload)
{
    sherd_world *world = payload;

    for (int i = 0; i < 9; i++)
        sherd_scope_end(world);
}

static void what_has_no_gradient_takes_no_hook(sherd_world *world)
{
    sherd_tensor *c = sherd_constant_on(laid(world, "S(0)"), SHERD_F64, 1);
    spy s = {0};
    int id = 7;

    CHECK_EQ(sherd_tensor_hook(&id, c, look, &s, gone), SHERD_EINVAL);
    CHECK_EQ(id, 0);
    CHECK_EQ(s.destroyed, 1);
    CHECK(strstr(sherd_world_error(world), "no gradient flows into it") != NULL);
    CHECK_EQ(sherd_tensor_hook(&id, c, look, world, ends_scopes), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
    CHECK(sherd_tensor_failed(sherd_retain_grad(c)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

/* A local function that fails says so to its caller only, who says it to the others. */
static void told(sherd_world *world, sherd_status status)
{
    if (status)
        sherd_world_fail(world, status, "no hook");
}

static void no_memory_fails_and_leaks_nothing(sherd_world *world)
{
    const sherd_layout *rows = laid(world, "S(0)");
    sherd_status status = SHERD_ENOMEM;

    for (int n = 1; status && n < 400; n++) {
        spy leaf = {.factor = 2}, inner = {.factor = 2};
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_tensor *x = leaf_on(rows, 2), *y = doubled(x);
        if (!sherd_tensor_failed(x))
            told(world, sherd_tensor_hook(NULL, x, look, &leaf, gone));
        if (!sherd_tensor_failed(y))
            told(world, sherd_tensor_hook(NULL, y, look, &inner, gone));
        sherd_backward(total(product(y, y)));
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(!status || (status == SHERD_ENOMEM && n < 399));
        CHECK(status || wrong_grads(x, 64) == 0);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- on saved tensors ------------------------------------------------------------------------ */

typedef struct runner {
    sherd_tensor *out;
    int unpacked;
} runner;

static sherd_tensor *pack_as_it_is(sherd_tensor *t, void *context, const void **undo)
{
    (void)context, (void)undo;
    return t;
}

static sherd_tensor *unpack_and_run(sherd_tensor *t, void *context, const void *undo)
{
    runner *r = context;
    sherd_tensor *out = r->out;

    (void)undo;
    r->unpacked++;
    r->out = NULL;
    if (out)
        sherd_backward(out);
    return sherd__copied(t);
}

/* Both backwards restore one tensor; nothing of it is left. */
static void an_unpack_may_run_a_backward(sherd_world *world)
{
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    runner r = {0};
    const sherd_saved_hooks hooks = {
        .pack = pack_as_it_is, .unpack = unpack_and_run, .context = &r};
    sherd_tensor *a = leaf_of(world, N, 2), *b = leaf_of(world, N, 3);
    sherd_tensor *both = sherd__copied(a);
    sherd_saved_hooks_push(world, &hooks);
    sherd_tensor *y = total(product(a, both));
    r.out = total(product(b, both));
    sherd_saved_hooks_pop(world);
    sherd_backward(y);
    CHECK_EQ(r.unpacked, 2);
    CHECK_EQ(wrong_grads(a, 2) + wrong_grads(b, 2), 0);
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *let_go(sherd_tensor *grad, void *payload)
{
    sherd_tensor **held = payload;

    (void)grad;
    sherd_tensor_release(*held);
    *held = NULL;
    return NULL;
}

/* Then nothing of the call stays with what a backward may run again. */
static void a_hook_may_release_what_gradients_are_asked_for(sherd_world *world)
{
    for (int leaf = 0; leaf < 2; leaf++) {
        sherd_tensor *held, *gradient, *loss;
        sherd_scope_begin(world);
        sherd_scope_begin(world);
        sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = leaf ? x : doubled(x);
        held = sherd_tensor_retain(y);
        loss = sherd_tensor_retain(total(product(y, y)));
        sherd_scope_end(world);
        CHECK_OK(sherd_tensor_hook(NULL, y, let_go, &held, NULL));
        sherd_gradients(&gradient, &y, 1, &loss, 1, &(sherd_gradients_options){.retain = true});
        CHECK(held == NULL);
        const double *data = sherd_tensor_read(gradient);
        CHECK(data && data[0] == (leaf ? 4 : 8));
        gradient = NULL;
        sherd_backward(loss);
        CHECK(gradient == NULL);
        sherd_tensor_release(loss);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(an_unpack_may_run_a_backward), {1}},
    {TEST(a_hook_sees_the_complete_gradient_once), {1, 2, 3, 4, 8}},
    {TEST(numbers_of_hooks_come_again), {1, 2}},
    {TEST(hooks_go_with_what_they_hang_on), {1, 2, 3}},
    {TEST(a_hook_that_adds_the_next_one_returns), {1, 2, 3}},
    {TEST(a_hook_may_replace_the_gradient), {1, 2, 3, 4}},
    {TEST(a_hook_sees_nothing_pending), {1, 2, 3, 4}},
    {TEST(a_leaf_that_is_an_output_is_hooked_too), {1, 2}},
    {TEST(a_hook_may_remove_itself_and_others), {1, 2}},
    {TEST(hooks_may_go_together), {1, 2}},
    {TEST(a_hook_may_release_what_gradients_are_asked_for), {1, 2, 3}},
    {TEST(a_hook_may_run_another_backward_but_not_this_one), {1, 2, 3}},
    {TEST(what_a_hook_does_wrong_stays_in_it), {1, 2, 3}},
    {TEST(what_has_no_gradient_takes_no_hook), {1, 2}},
    {TEST(no_memory_fails_and_leaks_nothing), {1, 2, 4}},
};
CHECK_MAIN(tests)
