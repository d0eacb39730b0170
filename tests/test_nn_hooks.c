/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks: order, prepending, replacing tensors, removal, failures. */
#include "modules.h"

#include <limits.h>

/* Letters in the order in which things ran. */
typedef struct record {
    char text[64];
    int destroyed;
} record;

typedef struct letter {
    record *to;
    char c;
    int remove;     /* id of a hook to remove when it runs */
    bool add_after; /* add a forward hook 'z' when it runs */
} letter;

static void put(record *r, char c)
{
    size_t n = strlen(r->text);
    if (n + 1 < sizeof r->text)
        r->text[n] = c;
}

static void destroyed(void *payload)
{
    ((letter *)payload)->to->destroyed++;
}

static void after(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    letter *l = payload;
    (void)in, (void)out;
    put(l->to, l->c);
    sherd_module_unhook(self, l->remove);
}

static void before(sherd_module *self, sherd_args *in, void *payload)
{
    static _Thread_local letter z;
    letter *l = payload;
    (void)in;
    put(l->to, l->c);
    sherd_module_unhook(self, l->remove);
    if (l->add_after) {
        z = (letter){.to = l->to, .c = 'z'};
        CHECK_OK(sherd_module_hook_after(NULL, self, after, &(sherd_hook_options){.payload = &z}));
        l->add_after = false;
    }
}

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    record *r = sherd_module_payload(self);
    if (r)
        put(r, 'F');
    out->value[0] = sherd_scale(in->value[0], 2);
    if (sherd_args_find(in, "shift"))
        out->value[0] = sherd_add(out->value[0], sherd_args_find(in, "shift"));
    out->count = 1;
}

static sherd_module *make(sherd_world *world, record *r)
{
    sherd_module *m = NULL;
    CHECK_OK(sherd_module_create(&m, world, forward, &(sherd_module_options){.payload = r}));
    return m;
}

static int hook(sherd_module *m, letter *l, bool is_after, bool prepend)
{
    sherd_hook_options options = {prepend, l, destroyed};
    int id = -1;
    CHECK_OK(is_after ? sherd_module_hook_after(&id, m, after, &options)
                      : sherd_module_hook_before(&id, m, before, &options));
    CHECK(id > 0);
    return id;
}

static sherd_tensor *number(sherd_world *world, double value)
{
    return sherd_constant(world, SHERD_F64, NULL, 0, value);
}

static void hooks_run_in_order(sherd_world *world)
{
    record r = {0};
    letter l[6];
    sherd_module *m = make(world, &r);

    for (int i = 0; i < 6; i++)
        l[i] = (letter){.to = &r, .c = (char)('a' + i)};
    int a = hook(m, &l[0], false, false);
    hook(m, &l[1], false, false);
    hook(m, &l[2], false, true);
    hook(m, &l[3], true, false);
    int e = hook(m, &l[4], true, false);
    hook(m, &l[5], true, true);
    CHECK_NEAR(sherd_item(sherd_module_call(m, number(world, 3))), 6, 0);
    CHECK_TEXT(r.text, "cabFfde");
    sherd_module_unhook(m, a);
    sherd_module_unhook(m, e);
    sherd_module_unhook(m, e);
    sherd_module_unhook(m, 12345);
    sherd_module_unhook(m, 0);
    CHECK_EQ(r.destroyed, 2);
    memset(r.text, 0, sizeof r.text);
    sherd_module_call(m, number(world, 3));
    CHECK_TEXT(r.text, "cbFfd");
    sherd_module_destroy(m);
    CHECK_EQ(r.destroyed, 6);
    CHECK_OK(sherd_world_check(world));
}

static void hooks_may_change_hooks_while_they_run(sherd_world *world)
{
    record r = {0};
    letter l[4];
    sherd_module *m = make(world, &r);

    for (int i = 0; i < 4; i++)
        l[i] = (letter){.to = &r, .c = (char)('a' + i)};
    l[0].remove = hook(m, &l[0], false, false); /* itself */
    l[0].add_after = true;
    hook(m, &l[1], false, false);
    l[3].remove = hook(m, &l[2], true, false); /* c, which comes after d */
    hook(m, &l[3], true, true);
    sherd_module_call(m, number(world, 1));
    CHECK_TEXT(r.text, "abFdz");
    CHECK_EQ(r.destroyed, 2);
    memset(r.text, 0, sizeof r.text);
    sherd_module_call(m, number(world, 1));
    CHECK_TEXT(r.text, "bFdz");
    sherd_module_destroy(m);
    CHECK_EQ(r.destroyed, 4);
}

/* As a program does that registers one in each call, for days. */
static void numbers_of_hooks_come_again(sherd_world *world)
{
    record r = {0};
    letter l[4];
    sherd_module *m = make(world, &r);

    for (int i = 0; i < 4; i++)
        l[i] = (letter){.to = &r, .c = (char)('a' + i)};
    int a = hook(m, &l[0], false, false);
    m->hooked = INT_MAX - 1;
    int b = hook(m, &l[1], false, false), c = hook(m, &l[2], true, false);
    int d = hook(m, &l[3], false, false);
    CHECK(a != b && b != c && c != d && d != a && a != c && b != d);
    sherd_module_call(m, number(world, 3));
    CHECK_TEXT(r.text, "abdFc");
    sherd_module_unhook(m, a);
    sherd_module_unhook(m, c);
    CHECK_EQ(r.destroyed, 2);
    sherd_module_call(m, number(world, 3));
    CHECK_TEXT(r.text, "abdFcbdF");
    sherd_module_destroy(m);
    CHECK_EQ(r.destroyed, 4);
    CHECK_OK(sherd_world_check(world));
}

/* Each takes itself away and registers the next. */
typedef struct chain {
    int runs, id;
    bool prepends;
} chain;

static void next_before(sherd_module *self, sherd_args *in, void *payload)
{
    chain *c = payload;

    (void)in;
    if (++c->runs > 9)
        return;
    sherd_module_unhook(self, c->id);
    CHECK_OK(sherd_module_hook_before(&c->id, self, next_before,
                                      &(sherd_hook_options){.payload = c, .prepend = c->prepends}));
}

static void next_after(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    chain *c = payload;

    (void)in, (void)out;
    if (++c->runs > 9)
        return;
    sherd_module_unhook(self, c->id);
    CHECK_OK(sherd_module_hook_after(&c->id, self, next_after,
                                     &(sherd_hook_options){.payload = c, .prepend = c->prepends}));
}

static void a_hook_that_adds_the_next_one_returns(sherd_world *world)
{
    for (int prepends = 0; prepends < 2; prepends++) {
        sherd_module *m = make(world, NULL);
        chain first = {.prepends = prepends}, last = first;

        CHECK_OK(sherd_module_hook_before(&first.id, m, next_before,
                                          &(sherd_hook_options){.payload = &first}));
        CHECK_OK(sherd_module_hook_after(&last.id, m, next_after,
                                         &(sherd_hook_options){.payload = &last}));
        for (int call = 1; call <= 3; call++) {
            CHECK_NEAR(sherd_item(sherd_module_call(m, number(world, 1))), 2, 0);
            CHECK_EQ(first.runs, call);
            CHECK_EQ(last.runs, call);
        }
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void closes_before(sherd_module *self, sherd_args *in, void *payload)
{
    (void)in, (void)payload;
    CHECK_EQ(sherd_world_close(sherd_module_world(self)), SHERD_EINVAL);
}

static void closes_in_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    closes_before(self, NULL, NULL);
    out->value[0] = in->value[0];
    out->count = 1;
}

static void a_module_does_not_close_its_world(sherd_world *unused)
{
    sherd_world *world = NULL;
    sherd_module *m = NULL;

    (void)unused;
    CHECK_OK(sherd_world_alone(&world, NULL));
    CHECK_OK(sherd_module_create(&m, world, closes_in_forward, NULL));
    CHECK_OK(sherd_module_hook_before(NULL, m, closes_before, NULL));
    CHECK_NEAR(sherd_item(sherd_module_call(m, number(world, 1))), 1, 0);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_close(world));
}

static void swap(sherd_module *self, sherd_args *in, void *payload)
{
    sherd_world *world = sherd_module_world(self);
    (void)payload;
    in->value[0] = sherd_add(in->value[0], number(world, 10));
    for (int i = 0; i < in->count; i++)
        if (in->name[i])
            in->value[i] = sherd_scale(in->value[i], 100);
}

static void see(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    double *seen = payload;
    (void)self;
    seen[0] = sherd_item(in->value[0]);
    seen[1] = sherd_item(sherd_args_find(in, "shift"));
    out->value[0] = sherd_scale(out->value[0], -1);
    out->value[1] = in->value[0];
    out->count = 2;
}

static void hooks_replace_positional_and_keyword_tensors(sherd_world *world)
{
    double seen[2] = {0};
    sherd_module *m = make(world, NULL);
    sherd_args in = {.count = 2,
                     .value = {number(world, 1), number(world, 2)},
                     .name = {NULL, "shift"}},
               out;

    CHECK_OK(sherd_module_hook_before(NULL, m, swap, NULL));
    CHECK_OK(sherd_module_hook_after(NULL, m, see, &(sherd_hook_options){.payload = seen}));
    sherd_module_run(m, &in, &out);
    CHECK_NEAR(seen[0], 11, 0);
    CHECK_NEAR(seen[1], 200, 0);
    CHECK_EQ(out.count, 2);
    CHECK_NEAR(sherd_item(out.value[0]), -(2 * 11 + 200), 0);
    CHECK_NEAR(sherd_item(out.value[1]), 11, 0);
    CHECK_NEAR(sherd_item(in.value[0]), 1, 0); /* the caller's own */
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *same(sherd_tensor *t, void *context, const void **undo)
{
    ++*(int *)context;
    *undo = NULL;
    return t;
}

static sherd_tensor *back(sherd_tensor *t, void *context, const void *undo)
{
    (void)context, (void)undo;
    return t;
}

static void push(sherd_module *self, sherd_args *in, void *payload)
{
    (void)in;
    sherd_saved_hooks_push(sherd_module_world(self), &(sherd_saved_hooks){same, back, payload});
}

static void pop(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)in, (void)out, (void)payload;
    sherd_saved_hooks_pop(sherd_module_world(self));
}

static void bad(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = sherd_matmul(in->value[0], in->value[0]);
    out->count = 1;
}

static void forward_hooks_run_after_a_failure(sherd_world *world)
{
    int packed = 0;
    sherd_module *m = NULL;
    sherd_tensor *x = sherd_require_grad(wave(world, SHERD_F64, 2, SHAPE(2, 3), 1, 1, 0), true);

    CHECK_OK(sherd_module_create(&m, world, bad, NULL));
    CHECK_OK(sherd_module_hook_before(NULL, m, push, &(sherd_hook_options){.payload = &packed}));
    CHECK_OK(sherd_module_hook_after(NULL, m, pop, NULL));
    CHECK(sherd_tensor_failed(sherd_module_call(m, x)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    /* The saved-tensor hooks are gone: another graph does not see them. */
    packed = 0;
    sherd_tensor *y = sherd_scale(x, 3);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    CHECK_EQ(packed, 0);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

static void no_memory_for_a_hook_destroys_its_payload(sherd_world *world)
{
    record r = {0};
    letter l = {.to = &r, .c = 'a'};
    sherd_module *m = make(world, NULL);
    sherd_hook_options options = {false, &l, destroyed};

    sherd_world_fail_allocation(world, 1);
    CHECK_EQ(sherd_module_hook_before(NULL, m, before, &options), SHERD_ENOMEM);
    sherd_world_fail_allocation(world, 1);
    CHECK_EQ(sherd_module_hook_after(NULL, m, after, &options), SHERD_ENOMEM);
    sherd_world_fail_allocation(world, 0);
    CHECK_EQ(r.destroyed, 2);
    sherd_module_call(m, number(world, 1));
    CHECK_TEXT(r.text, "");
    sherd_module_destroy(m);
}

/* Of two hooks that go together, each removes the other when it goes. */
typedef struct twin {
    sherd_module *module;
    int other, gone;
} twin;

static void twin_goes(void *payload)
{
    twin *t = payload;

    t->gone++;
    sherd_module_unhook(t->module, t->other);
}

static void nothing(sherd_module *self, sherd_args *in, void *payload)
{
    (void)self, (void)in, (void)payload;
}

static void hooks_may_go_together(sherd_world *world)
{
    for (int kind = 0; kind < 3; kind++) {
        record r = {0};
        letter last = {.to = &r, .c = 'l'};
        sherd_module *m = make(world, &r);
        twin t[2] = {{.module = m}, {.module = m}};
        int id[2];
        for (int i = 0; i < 2; i++)
            CHECK_OK(sherd_module_hook_before(
                &id[i], m, nothing, &(sherd_hook_options){.payload = &t[i], .destroy = twin_goes}));
        hook(m, &last, false, false);
        t[0].other = id[1];
        t[1].other = id[0];
        if (kind < 2) {
            sherd_module_unhook(m, id[kind]);
            CHECK_EQ(t[0].gone, 1);
            CHECK_EQ(t[1].gone, 1);
            sherd_module_call(m, number(world, 1));
            CHECK_TEXT(r.text, "lF");
        }
        sherd_module_destroy(m);
        CHECK_EQ(t[0].gone, 1);
        CHECK_EQ(t[1].gone, 1);
        CHECK_EQ(r.destroyed, 1);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(hooks_run_in_order), {1, 2}},
    {TEST(hooks_may_change_hooks_while_they_run), {1}},
    {TEST(numbers_of_hooks_come_again), {1}},
    {TEST(a_hook_that_adds_the_next_one_returns), {1, 2}},
    {TEST(a_module_does_not_close_its_world), {1}},
    {TEST(hooks_may_go_together), {1, 2}},
    {TEST(hooks_replace_positional_and_keyword_tensors), {1}},
    {TEST(forward_hooks_run_after_a_failure), {1, 2}},
    {TEST(no_memory_for_a_hook_destroys_its_payload), {1}},
};
CHECK_MAIN(tests)
