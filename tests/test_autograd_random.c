/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs, built twice: of distributed tensors in random layouts, moved, saved, packed and
 * settled on the way, and of plain tensors. Gradients of all leaves must agree.
 */
#include "tape_operators.h"

#include <math.h>

enum { LEAVES = 3, STEPS = 14, MOST = LEAVES + STEPS };

typedef struct graph {
    sherd_world *world;
    const sherd_mesh *mesh;
    int64_t shape[2];
    uint32_t random;
    int count, products;
    sherd_tensor *spread[MOST]; /* distributed */
    sherd_tensor *plain[MOST];  /* the same values, whole */
    int packed;
} graph;

static uint32_t draw(graph *g, uint32_t below)
{
    g->random = g->random * 1664525u + 1013904223u;
    return (g->random >> 10) % below;
}

static const sherd_layout *any_layout(graph *g)
{
    sherd_placement placements[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(g->mesh); a++) {
        uint32_t kind = draw(g, 3);
        placements[a] = kind ? sherd_shard((int)kind - 1) : sherd_replicate();
    }
    CHECK_OK(sherd_layout_create(&layout, g->mesh, 2, g->shape, placements, NULL));
    return layout;
}

static double value_of(int leaf, int64_t index)
{
    return 0.25 * (double)(index % 5 + leaf + 1);
}

static void add_leaf(graph *g, int leaf)
{
    const sherd_layout *layout = any_layout(g);
    sherd_tensor *t = sherd__new_on(layout, SHERD_F64);
    sherd_tensor *p = sherd__new_plain(g->world, SHERD_F64, 2, g->shape, 0);
    sherd_box box = sherd_tensor_box(t);

    for (int64_t i = 0; i < t->count; i++)
        set_number(sherd__fresh(t), SHERD_F64, i, value_of(leaf, global_of(&box, g->shape, i)));
    for (int64_t i = 0; i < p->count; i++)
        set_number(sherd__fresh(p), SHERD_F64, i, value_of(leaf, i));
    g->spread[g->count] = sherd_require_grad(t, true);
    g->plain[g->count++] = sherd_require_grad(p, true);
}

static void boosted_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const double *factor = sherd_node_attributes(node);
    grad_in[0] = scaled(grad_out[0], *factor);
}
static const sherd_op boosted_backward = {
    .name = "boosted", .takes_pending = false, .backward = boosted_back};

/* What a fork does to a gradient: every rank along axis 0 gives the same addend. */
static sherd_tensor *boosted(sherd_tensor *t, double factor)
{
    sherd_tensor *out = scaled(t, 1);
    sherd__record_node(t->world, &boosted_backward, &t, 1, &out, 1, &factor, sizeof factor);
    return out;
}

static void add_step(graph *g)
{
    uint32_t i = draw(g, (uint32_t)g->count), j = draw(g, (uint32_t)g->count), kind = draw(g, 6);
    sherd_tensor *a = g->spread[i], *b = g->spread[j], *x = g->plain[i], *y = g->plain[j];

    if (kind == 0 && (a->layout->shard_axes & 1))
        kind = 4;
    if (kind == 1 && g->products++ > 4)
        kind = 2;
    switch (kind) {
    case 0:
        a = fork_of(a);
        x = boosted(x, (double)sherd_mesh_extent(g->mesh, 0));
        break;
    case 1:
        a = product(a, b);
        x = product(x, y);
        break;
    case 2:
        a = joined(a, moved(b, a->layout));
        x = joined(x, y);
        break;
    case 3:
        a = turned(a, any_layout(g));
        break;
    case 4:
        a = moved(a, any_layout(g));
        break;
    default:
        a = doubled(a);
        x = doubled(x);
    }
    g->spread[g->count] = a;
    g->plain[g->count++] = x;
}

/* Keep a piece of what is whole on the last axis, as input_reshard does. */
static sherd_tensor *pack(sherd_tensor *t, void *context, const void **undo)
{
    graph *g = context;
    const sherd_mesh *mesh = g->mesh;
    const sherd_layout *to;
    int axis = sherd_mesh_axes(mesh) - 1;

    *undo = t->layout;
    if (!t->layout || (t->layout->shard_axes >> axis & 1))
        return t;
    g->packed++;
    if (sherd_layout_with(&to, t->layout, mesh, axis, sherd_shard(0)) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return sherd__move_to(t, to, false);
}

static sherd_tensor *unpack(sherd_tensor *kept, void *context, const void *undo)
{
    (void)context;
    return undo ? sherd__move_to(kept, undo, false) : kept;
}

static void compare(graph *g)
{
    sherd_placement whole[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_create(&layout, g->mesh, 2, g->shape, whole, NULL));
    for (int leaf = 0; leaf < LEAVES; leaf++) {
        sherd_tensor *grad = sherd_grad(g->spread[leaf]), *wanted = sherd_grad(g->plain[leaf]);
        CHECK((grad == NULL) == (wanted == NULL));
        if (!grad || !wanted)
            continue;
        CHECK(grad->layout == g->spread[leaf]->layout);
        const double *x = sherd_tensor_read(sherd__move_to(grad, layout, false));
        const double *y = sherd_tensor_read(wanted);
        int64_t wrong = x && y ? 0 : -1;
        for (int64_t i = 0; x && y && i < wanted->count; i++)
            wrong += !(fabs(x[i] - y[i]) <= 1e-9 * (1 + fabs(y[i])));
        CHECK_EQ(wrong, 0);
    }
}

static void build(graph *g, uint32_t seed, bool hooks)
{
    static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {2, 3}, {4, 0}};
    sherd_saved_hooks packing = {pack, unpack, g};

    g->random = seed;
    memcpy(g->shape, shapes[seed % 5], sizeof g->shape);
    for (int leaf = 0; leaf < LEAVES; leaf++)
        add_leaf(g, leaf);
    if (hooks)
        sherd_saved_hooks_push(g->world, &packing);
    for (int step = 0; step < STEPS; step++)
        add_step(g);
    sherd_tensor *sum = g->spread[g->count - 1], *plain = g->plain[g->count - 1];
    for (int i = g->count - 4; i < g->count - 1; i++) {
        sum = joined(sum, moved(g->spread[i], sum->layout));
        plain = joined(plain, g->plain[i]);
    }
    if (hooks)
        sherd_saved_hooks_pop(g->world);
    if (!sherd_requires_grad(sum))
        return;
    sherd_backward(total(sum));
    sherd_backward(total(plain));
    compare(g);
}

static void distributed_gradients_equal_plain_ones(sherd_world *world)
{
    static const char *const meshes[][2] = {{"1", "1x1"}, {"2", "1x2"}, {"3", "3x1"}, {"4", "2x2"}};
    int packed = 0;

    for (uint32_t seed = 0; seed < 160; seed++) {
        graph g = {.world = world,
                   .mesh = mesh_of(world, meshes[sherd_world_ranks(world) - 1][seed / 5 % 2])};
        int64_t bytes = sherd_world_memory(world).live_bytes;
        sherd_scope_begin(world);
        build(&g, seed, seed / 10 % 2);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
        packed += g.packed;
    }
    CHECK(packed > 20);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(distributed_gradients_equal_plain_ones), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
