/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpointing: the same bits, nothing kept but arguments, and what cannot be run again is an
 * error. */
#include "modules.h"
#include "sherd/ops_elements.h"

enum { ROWS = 6, WIDTH = 4 };

/* Two linear layers with dropout from a generator of the user's and one of the module's. */
typedef struct net {
    sherd_generator *noise;
    sherd_tensor *outside; /* what it uses that is no argument */
    int runs, again;
    const char *misdeed;
} net;

static sherd_tensor *layer(sherd_module *m, const char *name, sherd_tensor *x)
{
    sherd_tensor *w = sherd_module_parameter(m, name);

    /* One that is sharded is gathered for as long as it is needed, and again in backward. */
    if (sherd_tensor_layout(w))
        w = sherd_redistribute_to(w, "R", NULL);
    return sherd_linear(x, w, NULL);
}

static bool is(const net *n, const char *misdeed)
{
    return n->misdeed && strcmp(n->misdeed, misdeed) == 0;
}

static void net_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    net *n = sherd_module_payload(self);
    sherd_tensor *h = layer(self, "w1", in->value[0]), *more = sherd_args_find(in, "more");
    bool again = sherd_is_recomputing(sherd_module_world(self));

    n->runs++;
    n->again += again;
    h = sherd_dropout(sherd_gelu(h), 0.3, sherd_module_generator(self));
    if (n->noise)
        h = sherd_dropout(h, 0.2, n->noise);
    if (again && is(n, "another"))
        h = sherd_relu(h);
    if (again && is(n, "more"))
        h = sherd_add(h, sherd_mul(h, h));
    if (again && is(n, "factor"))
        h = sherd_scale(h, 3);
    else if (is(n, "factor"))
        h = sherd_scale(h, 2);
    if (again && is(n, "numbers"))
        sherd_random(sherd_module_world(self), SHERD_F64, NULL, 0, sherd_normal(0, 1),
                     sherd_module_generator(self));
    if (again && is(n, "alarm"))
        sherd_world_fail(sherd_module_world(self), SHERD_EINVAL, "a bad day");
    if (n->outside)
        h = sherd_mul(h, n->outside);
    if (more)
        h = sherd_mul(h, more);
    h = sherd_mul(h, h);
    if (again && is(n, "less")) {
        out->value[0] = h;
        out->count = 1;
        return;
    }
    out->value[0] = layer(self, "w2", h);
    out->count = 1;
}

static sherd_module *net_of(sherd_world *world, net *n)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, net_forward, &(sherd_module_options){.payload = n}));
    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_module_add_parameter(
            m, i ? "w2" : "w1", wave(world, SHERD_F64, 2, SHAPE(WIDTH, WIDTH), 3 + i, 0.5, 0.1)));
    return m;
}

static sherd_tensor *input(sherd_world *world)
{
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 7, 1, 0);
    return sherd_require_grad(spread(x, line_of_ranks(world), "S(0)"), true);
}

/* Gradients of x, w1, w2 one after the other. */
typedef struct bits {
    double value[MOST];
    int64_t count;
} bits;

static void take(bits *b, sherd_module *m, sherd_tensor *x)
{
    sherd_tensor *leaf[3] = {x, NULL, NULL};

    b->count = 0;
    leaf[1] = sherd_module_parameter(m, "w1");
    leaf[2] = sherd_module_parameter(m, "w2");
    for (int i = 0; i < 3; i++) {
        double have[MOST];
        int64_t n = whole(sherd_grad(leaf[i]), have);
        memcpy(b->value + b->count, have, (size_t)n * sizeof *have);
        b->count += n;
        sherd_clear_grad(leaf[i]);
    }
}

static void check_same(const bits *a, const bits *b)
{
    CHECK(a->count > 0);
    CHECK_EQ(a->count, b->count);
    CHECK_EQ(memcmp(a->value, b->value, (size_t)a->count * sizeof *a->value), 0);
}

static void gradients_are_the_same_bits(sherd_world *world)
{
    sherd_generator noise = sherd_generator_named("noise");
    net n = {.noise = &noise};
    sherd_module *m = net_of(world, &n);
    sherd_tensor *x = input(world);
    bits without, with;

    for (int step = 0; step < 3; step++) {
        sherd_generator own = *sherd_module_generator(m), other = noise;
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        take(&without, m, x);
        uint64_t calls = noise.calls;
        *sherd_module_generator(m) = own;
        noise = other;
        sherd_module_checkpoint(m, true);
        CHECK(sherd_module_is_checkpointed(m));
        n.runs = n.again = 0;
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_module_checkpoint(m, false);
        take(&with, m, x);
        check_same(&without, &with);
        CHECK_EQ(noise.calls, calls);
        CHECK_EQ(n.runs, 2);
        CHECK_EQ(n.again, 1);
        CHECK(!sherd_is_recomputing(world));
    }
    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void sharded_parameters_give_the_same_bits(sherd_world *world)
{
    net n = {0};
    sherd_module *m = net_of(world, &n);
    sherd_tensor *x = input(world);
    bits without, with;

    for (int i = 0; i < 2; i++) {
        const char *name = i ? "w2" : "w1";
        sherd_tensor *w = spread(sherd_module_parameter(m, name), line_of_ranks(world), "S(0)");
        CHECK_OK(sherd_module_set_parameter(m, name, sherd_require_grad(w, true)));
    }
    for (int kind = 0; kind < 2; kind++) {
        *sherd_module_generator(m) = sherd_generator_named("same");
        sherd_module_checkpoint(m, kind);
        sherd_tensor *y = sherd_module_call(m, x);
        CHECK(!kind || sherd_saved_bytes(world) == 0); /* x is a leaf */
        sherd_comm_reset(world);
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_saved_bytes(world), 0);
        take(kind ? &with : &without, m, x);
    }
    check_same(&without, &with);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void only_arguments_are_kept(sherd_world *world)
{
    net n = {0};
    sherd_module *m = net_of(world, &n);
    sherd_tensor *x = sherd_scale(input(world), 2), *y, *loss;
    int64_t bytes = sherd_tensor_size(x, 0) * WIDTH * (int64_t)sizeof(double);

    y = sherd_module_call(m, x);
    CHECK(bytes == 0 || sherd_saved_bytes(world) > 2 * bytes);
    sherd_backward(sherd_sum(y));
    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_module_checkpoint(m, true);
    x = sherd_scale(input(world), 2);
    y = sherd_module_call(m, x);
    CHECK_EQ(sherd_saved_bytes(world), bytes == 0 ? 0 : x->storage->bytes);
    loss = sherd_sum(y);
    sherd_backward(loss);
    CHECK_EQ(sherd_saved_bytes(world), 0); /* though y and loss are still there */
    /* Without a gradient nothing is kept at all. */
    sherd_set_recording(world, false);
    y = sherd_module_call(m, x);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_set_recording(world, true);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- inside of each other ------------------------------------------------------------------- */

static void outer_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_gelu(in->value[0]);

    for (int i = 0; i < sherd_module_children(self); i++)
        h = sherd_gelu(sherd_module_call(sherd_module_child(self, i), h));
    out->value[0] = h;
    out->count = 1;
}

static void modules_inside_are_run_again_by_themselves(sherd_world *world)
{
    enum { INSIDE = 3 };
    net n[INSIDE] = {{0}};
    sherd_module *outer = NULL, *inner[INSIDE];
    sherd_tensor *x = input(world);
    bits without[INSIDE], with;

    CHECK_OK(sherd_module_create(&outer, world, outer_forward, NULL));
    for (int i = 0; i < INSIDE; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        inner[i] = net_of(world, &n[i]);
        CHECK_OK(sherd_module_add(outer, name, inner[i]));
    }
    for (int kind = 0; kind < 4; kind++) {
        sherd_module_checkpoint(outer, kind & 1);
        for (int i = 0; i < INSIDE; i++) {
            n[i].runs = 0;
            sherd_module_checkpoint(inner[i], kind & 2);
            *sherd_module_generator(inner[i]) = sherd_generator_named("same");
        }
        sherd_tensor *loss = sherd_sum(sherd_module_call(outer, x));
        int64_t saved = sherd_saved_bytes(world);
        CHECK(!(kind & 1) || saved == 0); /* x is a leaf */
        sherd_backward_with(&loss, NULL, 1, &(sherd_backward_options){.retain = true});
        CHECK_EQ(sherd_saved_bytes(world), saved);
        sherd_clear_grad(x);
        for (int i = 0; i < INSIDE; i++) {
            sherd_clear_grad(sherd_module_parameter(inner[i], "w1"));
            sherd_clear_grad(sherd_module_parameter(inner[i], "w2"));
            n[i].runs = kind ? n[i].runs - (kind == 3 ? 2 : 1) : n[i].runs;
        }
        sherd_backward(loss);
        for (int i = 0; i < INSIDE; i++) {
            sherd_tensor *grad = sherd_tensor_retain(sherd_grad(x));
            take(kind ? &with : &without[i], inner[i], x);
            CHECK_EQ(n[i].runs, kind == 3 ? 3 : kind ? 2 : 1);
            if (kind)
                check_same(&without[i], &with);
            sherd__set_grad(x, grad);
            sherd_tensor_release(grad);
        }
        sherd_clear_grad(x);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    sherd_module_destroy(outer);
    CHECK_OK(sherd_world_check(world));
}

/* ---- with the rest of the tape -------------------------------------------------------------- */

static void a_retained_graph_runs_again(sherd_world *world)
{
    const sherd_backward_options retain = {.retain = true};
    net n = {0};
    sherd_module *m = net_of(world, &n);
    sherd_tensor *x = input(world), *loss, *grad;
    bits first, second, third;

    sherd_module_checkpoint(m, true);
    loss = sherd_sum(sherd_module_call(m, sherd_scale(x, 2)));
    int64_t saved = sherd_saved_bytes(world);
    sherd_backward_with(&loss, NULL, 1, &retain);
    CHECK_EQ(sherd_saved_bytes(world), saved);
    take(&first, m, x);
    sherd_backward_with(&loss, NULL, 1, &retain);
    take(&second, m, x);
    sherd_gradients(&grad, &x, 1, &loss, 1, &(sherd_gradients_options){.retain = true});
    CHECK(sherd_grad(x) == NULL);
    CHECK_EQ(sherd_saved_bytes(world), saved);
    sherd_backward(loss);
    take(&third, m, x);
    check_same(&first, &second);
    check_same(&first, &third);
    CHECK_EQ(n.runs, 5); /* once for each: only arguments are kept in between */
    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *halve(sherd_tensor *grad, void *payload)
{
    ++*(int *)payload;
    return sherd_scale(grad, 0.5);
}

static void hooks_and_tensors_from_outside_see_one_gradient(sherd_world *world)
{
    sherd_tensor *x = input(world), *leaf = input(world), *outside = sherd_scale(leaf, 0.5);
    net n = {.outside = outside};
    sherd_module *m = net_of(world, &n);
    double without[MOST], with[MOST];
    int hooked = 0;

    CHECK_OK(sherd_tensor_hook(NULL, sherd_module_parameter(m, "w1"), halve, &hooked, NULL));
    CHECK_OK(sherd_tensor_hook(NULL, outside, halve, &hooked, NULL));
    for (int kind = 0; kind < 2; kind++) {
        const sherd_backward_options replace = {.replace = true, .retain = true};
        sherd_module_checkpoint(m, kind);
        *sherd_module_generator(m) = sherd_generator_named("same");
        sherd_args in = {.count = 2, .value = {x, input(world)}, .name = {NULL, "more"}}, out;
        sherd_tensor *more = in.value[1];
        sherd_module_run(m, &in, &out);
        sherd_tensor *loss = sherd_sum(out.value[0]);
        sherd_backward_with(&loss, NULL, 1, &replace);
        CHECK_EQ(hooked, 2 * (kind + 1));
        int64_t count = whole(sherd_grad(sherd_module_parameter(m, "w1")), kind ? with : without);
        count += whole(sherd_grad(leaf), (kind ? with : without) + count);
        count += whole(sherd_grad(more), (kind ? with : without) + count);
        CHECK(!kind || memcmp(with, without, (size_t)count * sizeof *with) == 0);
        sherd_tensor_release(sherd_tensor_retain(more));
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static void what_does_something_else_again_is_an_error(sherd_world *world)
{
    static const struct {
        const char *misdeed, *text;
    } cases[] = {{"another", "module \"(root)\" did something else"},
                 {"more", "did something else when it was run again in backward"},
                 {"less", "its end where it was another operator"},
                 {"factor", "with other attributes where it was sherd_scale"},
                 {"numbers", "with other random numbers"},
                 {"alarm", "a bad day"}};

    for (int c = 0; c < LEN(cases); c++) {
        net n = {.misdeed = cases[c].misdeed};
        sherd_scope_begin(world);
        sherd_module *m = net_of(world, &n);
        sherd_module_checkpoint(m, true);
        sherd_tensor *x = input(world), *loss = sherd_sum(sherd_module_call(m, x));
        CHECK_OK(sherd_world_check(world));
        sherd_backward(loss);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), cases[c].text) != NULL))
            fprintf(stderr, "  %s: %s\n", cases[c].misdeed, sherd_world_error(world));
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void what_was_written_or_is_gone_is_an_error(sherd_world *world)
{
    for (int kind = 0; kind < 3; kind++) {
        static const char *const text[] = {"was written since", "saved for backward and written",
                                           "was destroyed"};
        net n = {0};
        sherd_scope_begin(world);
        sherd_module *m = net_of(world, &n);
        sherd_module_checkpoint(m, true);
        sherd_tensor *x = sherd_scale(input(world), 2), *y = sherd_module_call(m, x);
        sherd_tensor *w = sherd_module_parameter(m, "w1");
        if (kind == 0)
            (void)sherd_tensor_write(w), sherd_mark_equal(w);
        if (kind == 1)
            (void)sherd_tensor_write(x);
        if (kind == 2)
            sherd_module_destroy(m);
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), text[kind]) != NULL))
            fprintf(stderr, "  %s\n", sherd_world_error(world));
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        if (kind < 2)
            sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_differ_all_get_ediffer(sherd_world *world)
{
    for (int gathers = 0; gathers < 2; gathers++) {
        net n = {0};
        sherd_scope_begin(world);
        sherd_module *m = net_of(world, &n);
        sherd_tensor *x = input(world);
        for (int i = 0; i < 2 && gathers; i++) {
            const char *name = i ? "w2" : "w1";
            sherd_tensor *w = spread(sherd_module_parameter(m, name), line_of_ranks(world), "S(0)");
            CHECK_OK(sherd_module_set_parameter(m, name, sherd_require_grad(w, true)));
        }
        CHECK_OK(sherd_world_check(world));
        sherd_module_checkpoint(m, sherd_world_rank(world) == 0);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
}

static void no_memory_fails_and_leaks_nothing(sherd_world *world)
{
    sherd_generator noise = sherd_generator_named("noise");
    net n = {.noise = &noise};
    sherd_module *m = net_of(world, &n);
    sherd_tensor *x = input(world);
    sherd_status status = SHERD_ENOMEM;
    int rounds = 0;

    CHECK_OK(sherd_world_check(world)); /* what is made up to here stays */
    sherd_module_checkpoint(m, true);
    for (; status && rounds < 600; rounds++) {
        sherd_args in = {.count = 2, .value = {x, x}, .name = {NULL, "more"}}, out;
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? rounds + 1 : 0);
        sherd_module_run(m, &in, &out);
        sherd_backward(sherd_sum(out.value[0]));
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(!status || status == SHERD_ENOMEM);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        CHECK(m->checkpoint == NULL);
        sherd_clear_grad(x); /* it may be there on some ranks only */
        sherd_clear_grad(sherd_module_parameter(m, "w1"));
        sherd_clear_grad(sherd_module_parameter(m, "w2"));
    }
    CHECK(rounds > 20);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- a backward inside ------------------------------------------------------------------------ */

static void differentiating_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0], *y = sherd_sum(sherd_exp(x)), *g = NULL;

    (void)self;
    sherd_gradients(&g, &x, 1, &y, 1, &(sherd_gradients_options){.create_graph = true});
    out->value[0] = g;
    out->count = 1;
}

/* What it needs is not saved while the module runs. */
static void no_backward_runs_inside(sherd_world *world)
{
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        sherd_scope_begin(world);
        sherd_module *m = NULL;
        CHECK_OK(sherd_module_create(&m, world, differentiating_forward, NULL));
        sherd_module_checkpoint(m, checkpointed);
        sherd_tensor *x = sherd_require_grad(wave(world, SHERD_F64, 1, SHAPE(5), 3, 1, 0), true);
        sherd_backward(sherd_sum(sherd_module_call(m, sherd_sin(x))));
        CHECK_EQ(sherd_world_check(world), checkpointed ? SHERD_EINVAL : SHERD_OK);
        CHECK(!checkpointed || strstr(sherd_world_error(world), "do not checkpoint it"));
        sherd_module_destroy(m);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
}

static const check_test tests[] = {
    {TEST(no_backward_runs_inside), {1, 2, 3}},
    {TEST(gradients_are_the_same_bits), {1, 2, 3, 4, 8}},
    {TEST(sharded_parameters_give_the_same_bits), {1, 2, 3, 4, 8}},
    {TEST(only_arguments_are_kept), {1, 2, 3, 8}},
    {TEST(modules_inside_are_run_again_by_themselves), {1, 2, 3, 4}},
    {TEST(a_retained_graph_runs_again), {1, 2, 3, 4}},
    {TEST(hooks_and_tensors_from_outside_see_one_gradient), {1, 2, 3, 4}},
    {TEST(what_does_something_else_again_is_an_error), {1, 2, 3}},
    {TEST(what_was_written_or_is_gone_is_an_error), {1, 2, 3}},
    {TEST(ranks_that_differ_all_get_ediffer), {2, 3, 4}},
    {TEST(no_memory_fails_and_leaks_nothing), {1, 2, 4}},
};
CHECK_MAIN(tests)
