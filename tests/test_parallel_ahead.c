/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that are gathered ahead of a call, and change before it comes: a forward that moves
 * the parameters of one module towards those of another (a momentum encoder) and then calls it.
 * Ranks agree on what is old also where they hold nothing of it; and on what comes next also after
 * a call that has failed, which each of them left at another place.
 */
#include "models.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"

enum { N = 7 };

/* y = x w; and what it does to another module first. */
typedef struct part {
    sherd_module *other;
    sherd_tensor *instead; /* replaces the other's parameter; NULL: it is written */
    sherd_tensor *loaded;  /* is loaded into it; NULL: nothing is */
} part;

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const part *p = sherd_module_payload(self);
    sherd_world *world = sherd_module_world(self);

    if (p->loaded) {
        CHECK_OK(sherd_module_load(p->other, "w", p->loaded, -1));
    } else if (p->instead) {
        CHECK_OK(sherd_module_set_parameter(p->other, "w", p->instead));
    } else if (p->other) {
        bool before = sherd_set_recording(world, false);
        sherd_mul_by(sherd_module_parameter(p->other, "w"),
                     sherd_constant(world, SHERD_F64, NULL, 0, 3));
        sherd_set_recording(world, before);
    }
    out->value[0] = sherd_mul(in->value[0], sherd_module_parameter(self, "w"));
    out->count = 1;
}

static void both(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *y = sherd_module_call(sherd_module_child(self, 0), in->value[0]);

    out->value[0] = sherd_module_call(sherd_module_child(self, 1), y);
    out->count = 1;
}

/* A root with `count` children, y = x w each, of n elements. */
static sherd_module *make(sherd_world *world, sherd_forward root_forward, part *parts, int count,
                          int64_t n)
{
    static const char *const names[] = {"a", "b", "c"};
    sherd_module *root = container(world, root_forward, NULL);

    for (int i = 0; i < count; i++) {
        const sherd_module_options of = {.payload = &parts[i]};
        sherd_module *m = NULL;
        CHECK_OK(sherd_module_create(&m, world, forward, &of));
        CHECK_OK(
            sherd_module_add_parameter(m, "w", wave(world, SHERD_F64, 1, SHAPE(n), 2 + i, 1, 2)));
        CHECK_OK(sherd_module_add(root, names[i], m));
    }
    return root;
}

/* Gradients and results are those without a gather ahead, step by step. */
static void what_was_gathered_ahead_is_what_is_there(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    double y[2][N], dx[2][N];

    for (int replaces = 0; replaces < 2; replaces++) {
        sherd_module *m[2];
        part parts[2][2] = {{{NULL, NULL, NULL}}};
        for (int k = 0; k < 2; k++) {
            m[k] = make(world, both, parts[k], 2, N);
            CHECK_OK(sherd_fully_shard(m[k], mesh, "tp", &(sherd_shard_options){.no_prefetch = k}));
        }
        for (int step = 0; step < 4; step++) {
            sherd_scope_begin(world);
            for (int k = 0; k < 2; k++) {
                sherd_tensor *x = spread(wave(world, SHERD_F64, 1, SHAPE(N), 5, 1, 0), mesh, "R");
                sherd_require_grad(x, true);
                parts[k][0].other = step % 2 ? sherd_module_child(m[k], 1) : NULL;
                parts[k][0].instead =
                    step % 2 && replaces
                        ? spread(wave(world, SHERD_F64, 1, SHAPE(N), 3, step, 4), mesh, "S(0)")
                        : NULL;
                if (parts[k][0].instead)
                    sherd_require_grad(parts[k][0].instead, true);
                sherd_tensor *out = sherd_module_call(m[k], x);
                CHECK_EQ(whole(sherd_detach(out), y[k]), N);
                sherd_backward(sherd_sum(sherd_square(out)));
                CHECK_EQ(whole(sherd_grad(x), dx[k]), N);
            }
            sherd_scope_end(world);
            CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
            CHECK(memcmp(dx[0], dx[1], sizeof dx[0]) == 0);
        }
        for (int k = 0; k < 2; k++)
            sherd_module_destroy(m[k]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Two elements: from three ranks on, some hold nothing of what is loaded. */
static void what_is_loaded_is_new_on_all_ranks(sherd_world *world)
{
    enum { FEW = 2 };
    part parts[2] = {{NULL, NULL, NULL}};
    sherd_module *m = make(world, both, parts, 2, FEW);
    double y[FEW];

    CHECK_OK(sherd_fully_shard(m, line_of_ranks(world), "tp", NULL));
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        parts[0].other = step ? sherd_module_child(m, 1) : NULL;
        parts[0].loaded = step ? wave(world, SHERD_F64, 1, SHAPE(FEW), 4, step, 3) : NULL;
        sherd_tensor *out = sherd_module_call(m, sherd_constant(world, SHERD_F64, NULL, 0, 1));
        CHECK_EQ(whole(sherd_detach(out), y), FEW);
        for (int i = 0; i < FEW && step; i++) {
            double a = 2 + sin(0.1 * (i + 1) * 2), b = 3 + step * sin(0.1 * (i + 1) * 4);
            CHECK_NEAR(y[i], a * b, 1e-12);
        }
        sherd_backward(sherd_sum(out));
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_module_destroy(m);
}

/* Backward moves a source again on all ranks, or on none: it was written since. */
static void what_was_moved_before_a_load_is_kept(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    part parts[1] = {{NULL, NULL, NULL}};
    sherd_module *m = make(world, both, parts, 1, 2);
    double dx[2];

    CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
    sherd_scope_begin(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 1, SHAPE(2), 5, 1, 0), mesh, "R");
    sherd_tensor *w = sherd_detach(sherd_module_parameter(sherd_module_child(m, 0), "w"));
    sherd_tensor *before = sherd_redistribute(w, sherd_tensor_layout(x), NULL);
    CHECK_OK(sherd_module_load(m, "a.w", wave(world, SHERD_F64, 1, SHAPE(2), 3, 1, 4), -1));
    sherd_backward(sherd_sum(sherd_mul(sherd_require_grad(x, true), before)));
    CHECK_EQ(whole(sherd_grad(x), dx), 2);
    for (int i = 0; i < 2; i++)
        CHECK_NEAR(dx[i], 2 + sin(0.1 * (i + 1) * 2), 1e-12);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* A child that is called unless its argument has failed, and one that always is. */
static void unless_failed(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_module_call(sherd_module_child(self, 0), in->value[0]);

    if (in->count > 1 && in->value[1])
        x = sherd_view(in->value[1], SHAPE(N + 1), 1);
    if (!sherd_tensor_failed(x))
        x = sherd_module_call(sherd_module_child(self, 1), x);
    out->value[0] = sherd_module_call(sherd_module_child(self, 2), x);
    out->count = 1;
}

static void the_order_of_a_call_that_failed_is_forgotten(sherd_world *world)
{
    part parts[3] = {{NULL, NULL, NULL}};
    sherd_module *m = make(world, unless_failed, parts, 3, N);
    bool first = sherd_world_rank(world) == 0;

    CHECK_OK(sherd_fully_shard(m, line_of_ranks(world), "tp", NULL));
    for (int step = 0; step < 4; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_F64, 1, SHAPE(N), 5, 1, 0);
        sherd_args in = {.count = 2, .value = {x, step % 2 == 0 && first ? x : NULL}}, out;
        sherd_module_run(m, &in, &out);
        CHECK_EQ(sherd_world_check(world), step % 2 ? SHERD_OK : SHERD_EINVAL);
        if (step % 2)
            sherd_backward(sherd_sum(out.value[0]));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* As a hook on a gradient: ends the backward of one rank, before it has run anything again. */
static sherd_tensor *fails_first(sherd_tensor *grad, void *payload)
{
    if (payload && sherd_world_rank(sherd_tensor_world(grad)) == 0)
        sherd_world_fail(sherd_tensor_world(grad), SHERD_EINVAL, "rank 0 has had enough");
    return NULL;
}

/* The others have run a part of it again, and begun to gather what comes next. */
static void the_order_of_a_backward_that_failed_is_forgotten(sherd_world *world)
{
    part parts[3] = {{NULL, NULL, NULL}};
    sherd_module *m = make(world, stack_forward, parts, 3, N);

    for (int i = 0; i < 3; i++)
        sherd_module_checkpoint(sherd_module_child(m, i), true);
    CHECK_OK(sherd_fully_shard(m, line_of_ranks(world), "tp", NULL));
    for (int step = 0; step < 5; step++) {
        bool fails = step == 2;
        sherd_scope_begin(world);
        sherd_tensor *y = sherd_module_call(m, wave(world, SHERD_F64, 1, SHAPE(N), 5, 1, 0));
        /* A rank that is late may have seen the failure already. */
        CHECK(!sherd_tensor_hook(NULL, y, fails_first, fails ? m : NULL, NULL) || fails);
        sherd_backward(sherd_sum(y));
        CHECK_EQ(sherd_world_check(world), fails ? SHERD_EINVAL : SHERD_OK);
        for (int i = 0; i < 3; i++)
            sherd_clear_grad(sherd_module_parameter(sherd_module_child(m, i), "w"));
        sherd_scope_end(world);
    }
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(what_was_gathered_ahead_is_what_is_there), {1, 2, 3, 4}},
    {TEST(what_is_loaded_is_new_on_all_ranks), {1, 2, 3, 4, 8}},
    {TEST(what_was_moved_before_a_load_is_kept), {2, 3, 4, 8}},
    {TEST(the_order_of_a_call_that_failed_is_forgotten), {1, 2, 3, 4}},
    {TEST(the_order_of_a_backward_that_failed_is_forgotten), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
