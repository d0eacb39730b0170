/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators whose results a checkpointed module keeps: they are computed once, gradients have the
 * same bits, what was written in place is computed again, and nothing stays after backward.
 */
#include "modules.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"

enum { ROWS = 6, WIDTH = 4, HIDDEN = 8 };

typedef struct net {
    bool writes;         /* the result of the first product, in place */
    sherd_module *inner; /* called in between; not its child */
} net;

static sherd_tensor *weight(sherd_module *m, const char *name)
{
    return sherd_module_parameter(m, name);
}

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const net *n = sherd_module_payload(self);
    sherd_tensor *h = sherd_linear(in->value[0], weight(self, "w1"), NULL);

    if (n->writes) {
        bool recording = sherd_set_recording(sherd_module_world(self), false);
        sherd_scale_by(h, 2);
        sherd_set_recording(sherd_module_world(self), recording);
    }
    h = sherd_dropout(sherd_gelu(h), 0.3, sherd_module_generator(self));
    h = sherd_softmax(h, 1);
    if (n->inner)
        h = sherd_module_call(n->inner, h);
    out->value[0] = sherd_linear(h, weight(self, "w2"), NULL);
    out->count = 1;
}

static void inner_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[0] = sherd_gelu(sherd_linear(in->value[0], weight(self, "w1"), NULL));
    out->value[0] = sherd_mul(out->value[0], in->value[0]);
    out->count = 1;
}

static void add(sherd_module *m, const char *name, const char *placements, int rows, int columns)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *w = wave(world, SHERD_F64, 2, SHAPE(rows, columns), 3 + rows, 0.5, 0.1);

    CHECK_OK(sherd_module_add_parameter(m, name, spread(w, line_of_ranks(world), placements)));
}

/* The first product is sharded by columns, the second sums over them: its result is pending. */
static sherd_module *net_of(sherd_world *world, net *n)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, forward, &(sherd_module_options){.payload = n}));
    add(m, "w1", "S(0)", HIDDEN, WIDTH);
    add(m, "w2", "S(1)", WIDTH, HIDDEN);
    return m;
}

typedef struct bits {
    double value[MOST];
    int64_t count, linears, softmaxes, bytes;
} bits;

static void add_bits(bits *b, sherd_tensor *leaf)
{
    double have[MOST];
    int64_t n = whole(sherd_grad(leaf), have);

    memcpy(b->value + b->count, have, (size_t)n * sizeof *have);
    b->count += n;
    sherd_clear_grad(leaf);
}

static int64_t calls_of(const sherd_world *world, const char *name)
{
    sherd_op_time t;

    for (int i = 0; (t = sherd_op_time_at(world, i)).name; i++)
        if (strcmp(t.name, name) == 0)
            return t.calls;
    return 0;
}

/* A step: the gradients, how many products were computed, and what lay between the two runs. */
static void step(bits *b, sherd_module *m)
{
    sherd_world *world = sherd_module_world(m);
    sherd_generator before = *sherd_module_generator(m);

    memset(b, 0, sizeof *b);
    sherd_scope_begin(world);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 7, 1, 0);
    x = sherd_require_grad(spread(x, line_of_ranks(world), "R"), true);
    sherd_op_times(world, true);
    sherd_tensor *y = sherd_sum(sherd_module_call(m, x));
    b->bytes = sherd_saved_bytes(world);
    sherd_backward(y);
    sherd_op_times(world, false);
    b->linears = calls_of(world, "sherd_linear");
    b->softmaxes = calls_of(world, "sherd_softmax");
    CHECK_EQ(sherd_saved_bytes(world), 0);
    add_bits(b, x);
    add_bits(b, weight(m, "w1"));
    add_bits(b, weight(m, "w2"));
    sherd_scope_end(world);
    *sherd_module_generator(m) = before;
}

static void check_same(const bits *a, const bits *b)
{
    CHECK(a->count > 0 && a->count == b->count);
    CHECK_EQ(memcmp(a->value, b->value, (size_t)a->count * sizeof *a->value), 0);
}

static const char *const linear[] = {"sherd_linear"}, *const two[] = {"sherd_linear",
                                                                      "sherd_softmax"};

static void what_is_named_is_computed_once(sherd_world *world)
{
    net n = {.writes = false};
    sherd_module *m = net_of(world, &n);
    int64_t p = sherd_world_ranks(world), hidden = (HIDDEN + p - 1) / p;
    bits plain, all, kept, both, none;

    step(&plain, m);
    sherd_module_checkpoint(m, true);
    step(&all, m);
    CHECK_OK(sherd_module_checkpoint_keep(m, linear, 1));
    step(&kept, m);
    CHECK_OK(sherd_module_checkpoint_keep(m, two, 2));
    step(&both, m);
    CHECK_OK(sherd_module_checkpoint_keep(m, NULL, 0));
    step(&none, m);
    check_same(&plain, &all);
    check_same(&plain, &kept);
    check_same(&plain, &both);
    check_same(&plain, &none);
    CHECK_EQ(plain.linears, 2);
    CHECK_EQ(all.linears, 4);
    CHECK_EQ(kept.linears, 2);
    CHECK(kept.softmaxes == 2 && both.softmaxes == 1);
    CHECK_EQ(both.linears, 2);
    CHECK_EQ(none.linears, 4);
    CHECK_EQ(none.bytes, all.bytes);
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(kept.bytes - all.bytes, (ROWS * hidden + ROWS * WIDTH) * 8);
    CHECK(kept.bytes <= plain.bytes || p > 1);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void what_was_written_is_computed_again(sherd_world *world)
{
    net n = {.writes = true};
    sherd_module *m = net_of(world, &n);
    bits plain, kept;

    step(&plain, m);
    sherd_module_checkpoint(m, true);
    CHECK_OK(sherd_module_checkpoint_keep(m, two, 2));
    step(&kept, m);
    check_same(&plain, &kept);
    CHECK_EQ(kept.linears, 3);
    CHECK_EQ(kept.softmaxes, 1);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Each keeps what was named for it: the inner one's product is computed when the outer one runs
 * again, and its own third run has it. */
static void modules_inside_keep_what_is_theirs(sherd_world *world)
{
    net n = {.writes = false};
    sherd_module *m = net_of(world, &n);
    bits plain, outer, both;

    CHECK_OK(sherd_module_create(&n.inner, world, inner_forward, NULL));
    add(n.inner, "w1", "R", HIDDEN, HIDDEN);
    step(&plain, m);
    sherd_module_checkpoint(m, true);
    sherd_module_checkpoint(n.inner, true);
    CHECK_OK(sherd_module_checkpoint_keep(m, linear, 1));
    step(&outer, m);
    CHECK_OK(sherd_module_checkpoint_keep(n.inner, linear, 1));
    step(&both, m);
    check_same(&plain, &outer);
    check_same(&plain, &both);
    CHECK_EQ(plain.linears, 3);
    CHECK_EQ(outer.linears, 2 + 3);
    CHECK_EQ(both.linears, 2 + 2);
    sherd_clear_grad(weight(n.inner, "w1"));
    sherd_module_destroy(n.inner);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A backward that may come again keeps it, and one that is recorded. */
static void it_is_there_for_a_second_backward(sherd_world *world)
{
    net n = {.writes = false};
    sherd_module *m = net_of(world, &n);
    double once[MOST], twice[MOST];

    sherd_module_checkpoint(m, true);
    CHECK_OK(sherd_module_checkpoint_keep(m, two, 2));
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 7, 1, 0);
    x = sherd_require_grad(spread(x, line_of_ranks(world), "R"), true);
    sherd_op_times(world, true);
    sherd_tensor *y = sherd_sum(sherd_module_call(m, x));
    sherd_backward_with(&y, NULL, 1, &(sherd_backward_options){.retain = true});
    int64_t count = whole(sherd_grad(x), once);
    sherd_clear_grad(x);
    sherd_backward(y);
    CHECK_EQ(whole(sherd_grad(x), twice), count);
    CHECK_EQ(memcmp(once, twice, (size_t)count * sizeof *once), 0);
    CHECK_EQ(calls_of(world, "sherd_linear"), 2);
    sherd_op_times(world, false);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_is_named_is_computed_once), {1, 2, 3, 4, 8}},
    {TEST(what_was_written_is_computed_again), {1, 2, 3}},
    {TEST(modules_inside_keep_what_is_theirs), {1, 2, 3}},
    {TEST(it_is_there_for_a_second_backward), {1, 2, 4}},
};
CHECK_MAIN(tests)
