/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ShardTensor's own tests try on convolutions, norms, attention and gradients of replicas, on
 * uneven shards and on meshes of one and two axes: as plain, within 1e-5 of the largest number in
 * f32. Sizes are theirs with SHERD_PROOF=1, else smaller ones. docs/from_shardtensor.md says which
 * case is where.
 */
#include "fields.h"

#include "sherd/ops_layers.h"
#include "sherd/ops_stencil.h"

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int count; /* of operands */
    sherd_tensor *leaf[3], *spread[3];
} scene;

/* Space, or the sequence, on one axis and on two; evenly and not; as texts of
 * sherd_distribute_as. */
typedef struct lie {
    const char *mesh, *placements;
    bool uneven;
} lie;

static const lie ways_to_lie[2][4] = {
    {{"2", "S(2)", false}, {"2", "S(2)", true}, {"1x2", "S(2)S(3)", false}, {"2", "S(3)", true}},
    {{"4", "S(2)", false},
     {"4", "S(2)", true},
     {"2x2", "S(2)S(3)", false},
     {"2x2", "S(2)S(3)", true}}};

/* Of n elements on p ranks: a few, none, the rest; one rank has them all. */
static void draw_cuts(char *out, size_t room, int dim, int64_t n, int64_t p)
{
    size_t at = (size_t)snprintf(out, room, "%d:", dim);

    for (int64_t i = 0; i < p; i++) {
        int64_t size = i + 1 == p ? n : i % 2 ? n / 7 : n / 3;
        at += (size_t)snprintf(out + at, room - at, i ? ",%lld" : "%lld", (long long)size);
        n -= size;
    }
}

static const sherd_layout *layout_for(const scene *s, const lie *l, int ndim, const int64_t *shape)
{
    const sherd_mesh *mesh = mesh_of(s->world, l->mesh);
    const sherd_layout *even = layout_of(mesh, ndim, shape, l->placements, NULL);
    char cuts[128] = "", one[64];

    for (int d = 0; d < ndim && l->uneven; d++) {
        int64_t parts = sherd__dim_parts(mesh, &even->spec.dim[d]);
        if (parts == 1)
            continue;
        draw_cuts(one, sizeof one, d, shape[d], parts);
        if (cuts[0])
            strcat(cuts, ";");
        strcat(cuts, one);
    }
    return cuts[0] ? layout_of(mesh, ndim, shape, l->placements, cuts) : even;
}

/* Operand i, plain and distributed. */
static void draw_operand(scene *s, int i, int ndim, const int64_t *shape,
                         const sherd_layout *layout)
{
    sherd_tensor *t = sherd_clone(sherd_cast(numbers(s->world, &s->dice, ndim, shape), SHERD_F32));

    s->count = i + 1;
    s->leaf[i] = sherd_require_grad(t, true);
    s->spread[i] = sherd_require_grad(sherd_distribute(sherd_detach(t), layout, -1), true);
}

static void replicate_operand(scene *s, int i, int ndim, const int64_t *shape)
{
    const sherd_mesh *mesh = sherd_layout_mesh(s->spread[0]->layout);

    draw_operand(s, i, ndim, shape,
                 layout_of(mesh, ndim, shape, mesh->axes == 2 ? "RR" : "R", NULL));
}

static bool proof(void)
{
    return getenv("SHERD_PROOF") != NULL;
}

/* Results and all gradients, which lie as their operands. Those of weights are sums, of up to 64^3
 * numbers that cancel. */
static void check(scene *s, const char *what, sherd_tensor *want, sherd_tensor *y)
{
    if (!CHECK(!sherd_tensor_failed(want) && !sherd_tensor_failed(y)))
        return;
    bool good = CHECK_NEAR(apart(y, want), 0, 1e-5);
    sherd_tensor *dy = sherd_cast(numbers(s->world, &s->dice, want->ndim, want->shape), SHERD_F32);
    sherd_backward_with(&want, &dy, 1, NULL);
    sherd_backward_with(&y, &dy, 1, NULL);
    for (int i = 0; i < s->count; i++) {
        sherd_tensor *g = sherd_grad(s->spread[i]);
        good = CHECK(g->layout == s->spread[i]->layout) && good;
        good = CHECK_NEAR(apart(g, sherd_grad(s->leaf[i])), 0, proof() ? 1e-4 : 1e-5) && good;
    }
    if (!good)
        fprintf(stderr, "%s of %s -> %s\n", what, sherd_tensor_text(s->spread[0]),
                sherd_tensor_text(y));
}

/* ---- 67, 68: convolutions -------------------------------------------------------------------- */

static void draw_conv(scene *s, const lie *l, int dims, int64_t n, int64_t k, bool transposed)
{
    int64_t x[FIELD] = {1, 16}, w[FIELD] = {transposed ? 16 : 8, transposed ? 8 : 16}, b = 8;

    for (int d = 0; d < dims; d++) {
        x[2 + d] = n;
        w[2 + d] = k;
    }
    draw_operand(s, 0, 2 + dims, x, layout_for(s, l, 2 + dims, x));
    replicate_operand(s, 1, 2 + dims, w);
    replicate_operand(s, 2, 1, &b);
}

/* Kernels 2 and 3, padding 0 and 1, strides 1 and 2: theirs are wrong or refused in most that are
 * not both odd and 1. */
static void convolutions_are_as_plain(sherd_world *world)
{
    static const int64_t size[2][3] = {{32, 20, 9}, {256, 128, 64}};
    scene s = {.world = world, .dice = 67};

    for (int i = 0; i < 3 * 4 * 8; i++) {
        int dims = 1 + i / 32, k = 2 + i % 2, p = i / 2 % 2, stride = 1 + i / 4 % 2;
        const lie *l = &ways_to_lie[sherd_world_ranks(world) / 4][i / 8 % 4];
        sherd_conv_options o = {
            .stride = {stride, stride, stride}, .before = {p, p, p}, .after = {p, p, p}};
        if (dims == 1 && strstr(l->placements, "S(3)"))
            continue;
        sherd_scope_begin(world);
        draw_conv(&s, l, dims, size[proof()][dims - 1], k, false);
        check(&s, "conv", sherd_conv(s.leaf[0], s.leaf[1], s.leaf[2], &o),
              sherd_conv(s.spread[0], s.spread[1], s.spread[2], &o));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Kernel and stride of 2, and a kernel of 3, which they refuse. */
static void transposed_convolutions_are_as_plain(sherd_world *world)
{
    static const int64_t size[2][3] = {{16, 9, 5}, {128, 64, 16}};
    scene s = {.world = world, .dice = 68};

    for (int i = 0; i < 3 * 4 * 2; i++) {
        int dims = 1 + i / 8, k = 2 + i % 2;
        const lie *l = &ways_to_lie[sherd_world_ranks(world) / 4][i / 2 % 4];
        sherd_conv_options o = {.stride = {2, 2, 2}};
        if (dims == 1 && strstr(l->placements, "S(3)"))
            continue;
        sherd_scope_begin(world);
        draw_conv(&s, l, dims, size[proof()][dims - 1], k, true);
        check(&s, "transposed conv", sherd_conv_transposed(s.leaf[0], s.leaf[1], s.leaf[2], &o),
              sherd_conv_transposed(s.spread[0], s.spread[1], s.spread[2], &o));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* 66: of a mesh with one rank the halo is what the border says, and nothing where there is none. */
static void an_axis_of_one_rank_has_borders(sherd_world *world)
{
    const int64_t ten = 10;
    const sherd_layout *layout = layout_of(mesh_of(world, "1"), 1, &ten, "S(0)", NULL);

    for (int e = 0; e < 2; e++) {
        sherd_border border = e ? SHERD_BORDER_CONSTANT : SHERD_BORDER_NONE;
        sherd_halo_options o = {.before = {{1, border}}, .after = {{1, border}}};
        sherd_box box;
        sherd_tensor *y = sherd_halo(indices_on(layout, SHERD_F64), &o);
        const double *data = sherd_tensor_read(y);
        CHECK_EQ(y->count, e ? 12 : 10);
        for (int i = 0; data && i < 10; i++)
            CHECK(data[e + i] == i);
        CHECK(!e || (data[0] == 0 && data[11] == 0));
        CHECK_OK(sherd_halo_box(&box, layout, 0, &o)); /* what is said is what comes */
        CHECK_EQ(box.size[0], y->count);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- 80: group norms ------------------------------------------------------------------------- */

static void group_norms_are_as_plain(sherd_world *world)
{
    const int64_t c = proof() ? 256 : 16, n = proof() ? 257 : 33, x[4] = {2, c, n, n};
    scene s = {.world = world, .dice = 80};

    for (int i = 0; i < 8; i++) {
        const lie *l = &ways_to_lie[sherd_world_ranks(world) / 4][i / 2];
        int64_t groups = i % 2 ? 4 : 1;
        sherd_scope_begin(world);
        draw_operand(&s, 0, 4, x, layout_for(&s, l, 4, x));
        replicate_operand(&s, 1, 1, &c);
        replicate_operand(&s, 2, 1, &c);
        check(&s, "group norm", sherd_group_norm(s.leaf[0], groups, s.leaf[1], s.leaf[2], 1e-5),
              sherd_group_norm(s.spread[0], groups, s.spread[1], s.spread[2], 1e-5));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- 81, 82: attention ----------------------------------------------------------------------- */

/* Operand i, its positions sharded or not. */
static void draw_sequence(scene *s, const lie *l, int i, const int64_t *shape, bool sharded)
{
    lie in_rows = {l->mesh, "S(1)", l->uneven};

    if (sharded || i == 0) {
        const sherd_mesh *mesh = mesh_of(s->world, l->mesh);
        draw_operand(s, i, 4, shape,
                     sharded ? layout_for(s, &in_rows, 4, shape)
                             : layout_of(mesh, 4, shape, "R", NULL));
    } else {
        replicate_operand(s, i, 4, shape);
    }
}

/* Batches of 1 and 4, 256 and 512 positions, 8 heads of 32 and 64; queries or keys alone sharded,
 * of which 64 there are. */
static void attention_is_as_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = 81};
    int64_t less = proof() ? 1 : 8;

    for (int i = 0; i < 3 * 8 * 2; i++) {
        const lie *l = &ways_to_lie[sherd_world_ranks(world) / 4][i % 2];
        int which = i / 16; /* all sharded; keys and values; queries */
        int64_t b = i & 2 ? 4 : 1, n = (i & 4 ? 512 : 256) / less, w = (i & 8 ? 64 : 32) / less;
        const int64_t q[4] = {b, which == 1 ? 64 / less : n, 8, w},
                      k[4] = {b, which == 2 ? 64 / less : n, 8, w};
        sherd_scope_begin(world);
        for (int t = 0; t < 3; t++)
            draw_sequence(&s, l, t, t ? k : q, which == 0 || (which == 1) == (t > 0));
        sherd_tensor *y = sherd_attention(s.spread[0], s.spread[1], s.spread[2], NULL);
        CHECK_TEXT(sherd_layout_placements(y->layout), "S(1)");
        check(&s, "attention", sherd_attention(s.leaf[0], s.leaf[1], s.leaf[2], NULL), y);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- 86: gradients of replicas --------------------------------------------------------------- */

/* Of ones that all ranks use alone the gradient is their number; of what is one and the same, 1.
 * Nothing is under way then. */
static void gradients_of_replicas_add_up_where_it_is_said(sherd_world *world)
{
    const int64_t eight = 8;
    const sherd_placement how[2] = {sherd_partial(SHERD_SUM), sherd_replicate()};
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_layout *layout = layout_of(mesh_of(world, text), 1, &eight, "R", NULL);
    for (int i = 0; i < 2; i++) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 1), true);
        sherd_backward(sherd_sum(sherd_to_local_with(x, &how[i])));
        sherd_tensor *g = sherd_grad(x);
        const float *data = sherd_tensor_read(g);
        CHECK(sherd_is_ready(g));
        for (int k = 0; data && k < 8; k++)
            CHECK_EQ(data[k], i ? 1 : sherd_world_ranks(world));
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(convolutions_are_as_plain), {2, 4}},
    {TEST(transposed_convolutions_are_as_plain), {2, 4}},
    {TEST(an_axis_of_one_rank_has_borders), {1}},
    {TEST(group_norms_are_as_plain), {2, 4}},
    {TEST(attention_is_as_plain), {2, 4}},
    {TEST(gradients_of_replicas_add_up_where_it_is_said), {1, 2, 4, 8}},
};
CHECK_MAIN(tests)
