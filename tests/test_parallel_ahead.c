/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that are gathered ahead of a call, and change before it comes: a forward that moves
 * the parameters of one module towards those of another (a momentum encoder) and then calls it.
 */
#include "models.h"
#include "sherd/ops_elements.h"

enum { N = 7 };

/* y = x w; and what it does to another module first. */
typedef struct part {
    sherd_module *other;
    sherd_tensor *instead; /* replaces the other's parameter; NULL: it is written */
} part;

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const part *p = sherd_module_payload(self);
    sherd_world *world = sherd_module_world(self);

    if (p->instead) {
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

static sherd_module *make(sherd_world *world, part *parts)
{
    static const char *const names[] = {"a", "b"};
    sherd_module *root = container(world, both, NULL);

    for (int i = 0; i < 2; i++) {
        const sherd_module_options of = {.payload = &parts[i]};
        sherd_module *m = NULL;
        CHECK_OK(sherd_module_create(&m, world, forward, &of));
        CHECK_OK(
            sherd_module_add_parameter(m, "w", wave(world, SHERD_F64, 1, SHAPE(N), 2 + i, 1, 2)));
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
        part parts[2][2] = {{{NULL, NULL}}};
        for (int k = 0; k < 2; k++) {
            m[k] = make(world, parts[k]);
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

static const check_test tests[] = {
    {TEST(what_was_gathered_ahead_is_what_is_there), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
