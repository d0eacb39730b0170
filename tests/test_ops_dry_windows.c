/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves, halos, and what is made, read and printed, on real ranks and dry: the same calls, bytes,
 * and memory.
 */
#include "dry.h"
#include "operator_leaves.h"
#include "tensors.h"

#include "sherd/halo.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"
#include "sherd/print.h"
#include "sherd/random.h"

enum { MOVES = 60 };

/* A tensor, and where it goes: the same in two worlds. */
typedef struct scene {
    need w;
    uint64_t layouts;
} scene;

static const sherd_mesh *mesh_for(sherd_world *world, bool line)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, line ? 1 : 2, (int64_t[]){line ? ranks : ranks / 2, 2},
                               NULL, NULL));
    return mesh;
}

/* `settled`: not pending. */
static const sherd_layout *draw_layout(const sherd_mesh *mesh, const need *w, bool settled,
                                       uint64_t *dice)
{
    sherd_placement placements[SHERD_MAX_AXES];
    int axes = sherd_mesh_axes(mesh);

    do
        for (int a = 0; a < axes; a++)
            while (!placement_number(&placements[a], w, roll(dice, w->ndim + (settled ? 1 : 3))))
                ;
    while (!go_together(placements, axes));
    return layout_cut(mesh, w, placements, (cutting)roll(dice, CUTTINGS), dice);
}

static const sherd_mesh *draw_mesh(sherd_world *world, uint64_t *dice)
{
    return mesh_for(world, sherd_world_ranks(world) % 4 != 0 || roll(dice, 2));
}

/* There and back, one by one, several at once, and begun. */
static void move(sherd_world *world, void *context)
{
    const scene *s = context;
    uint64_t dice = s->layouts;
    const sherd_mesh *mesh = draw_mesh(world, &dice);
    sherd_tensor *t = leaf_on(world, &s->w, draw_layout(mesh, &s->w, false, &dice)), *both[2];
    const sherd_layout *to = draw_layout(mesh, &s->w, true, &dice);
    const sherd_layout *back[] = {draw_layout(mesh, &s->w, true, &dice), to};
    const sherd_redistribute_options begin = {.begin = true};

    both[0] = sherd_redistribute(t, to, NULL);
    both[1] = sherd_redistribute(t, back[0], &begin);
    sherd_redistribute_many(both, both, back, 2);
    sherd_full(both[0]);
    sherd_from_local_as(sherd_clone(sherd_to_local(both[1])), sherd_tensor_layout(both[1]));
}

/* Elements around this rank's piece, and their gradients. */
static void surround(sherd_world *world, void *context)
{
    const scene *s = context;
    uint64_t dice = s->layouts;
    const sherd_mesh *mesh = draw_mesh(world, &dice);
    const sherd_layout *layout = draw_layout(mesh, &s->w, true, &dice);
    sherd_tensor *t = leaf_on(world, &s->w, layout);
    sherd_halo_options sides = {.value = 0};
    sherd_ghosts *ghosts[2] = {NULL, NULL};

    for (int d = 0; d < s->w.ndim; d++) {
        sides.before[d] = (sherd_halo_side){roll(&dice, 2), SHERD_BORDER_NONE};
        sides.after[d] = (sherd_halo_side){roll(&dice, 3), SHERD_BORDER_PERIODIC};
    }
    sherd_require_grad(t, is_fraction(s->w.dtype));
    sherd_tensor *around = sherd_halo(t, &sides);
    if (is_fraction(s->w.dtype))
        sherd_backward(sherd_sum(around));
    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_ghosts_create(&ghosts[i], layout, s->w.dtype, &sides));
    sherd_ghosts_fill(ghosts, 2);
    sherd_ghosts_begin_fill(ghosts, 2);
    sherd_full(sherd_ghosts_tensor(ghosts[0]));
    for (int i = 0; i < 2; i++)
        sherd_ghosts_destroy(ghosts[i]);
}

/* Pieces that are there: with sizes that are known, and equal ones that are not. */
static void join(sherd_world *world, void *context)
{
    const scene *s = context;
    const sherd_mesh *mesh = mesh_for(world, true);
    const sherd_placement rows[] = {sherd_shard(0)};
    const sherd_from_local_options known = {.shape = s->w.shape};
    const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh, s->w.ndim, s->w.shape, rows, NULL));
    sherd_tensor *piece = sherd_clone(sherd_to_local(leaf_on(world, &s->w, layout)));
    sherd_full(sherd_from_local(piece, mesh, rows, &known));
    sherd_full(sherd_from_local(plain_leaf(world, &s->w), mesh, rows, &infer));
}

/* What is drawn, distributed from a rank, read and printed. */
static void make_and_look(sherd_world *world, void *context)
{
    const scene *s = context;
    uint64_t dice = s->layouts;
    const sherd_mesh *mesh = draw_mesh(world, &dice);
    const sherd_layout *layout = draw_layout(mesh, &s->w, true, &dice);
    sherd_generator generator = sherd_generator_named("dry");
    const sherd_distribution normal = {.kind = SHERD_DRAW_NORMAL, .b = 1};
    int last = sherd_world_ranks(world) - 1;
    double all[MOST_ELEMENTS];
    char text[4096];

    sherd_tensor *drawn = sherd_random_on(layout, SHERD_F32, normal, &generator);
    sherd_tensor *spread = sherd_distribute(plain_leaf(world, &s->w), layout, last);
    sherd_full_read(all, sizeof all, spread, SHERD_F64, last);
    sherd_print_text(text, sizeof text, spread, NULL);
    sherd_item(sherd_sum(drawn));
    sherd_mul_by(drawn, sherd_constant(world, SHERD_F32, NULL, 0, 2));
    sherd_copy_from(drawn,
                    sherd_random(world, SHERD_F32, s->w.shape, s->w.ndim, normal, &generator));
}

static void moves_are_the_same_dry(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_I32, SHERD_BOOL};
    sherd_world *dry = dry_as(world);
    uint64_t dice = (uint64_t)sherd_world_ranks(world);

    for (int i = 0; i < MOVES; i++) {
        scene s = {.w = {.kind = 'x', .ndim = 1 + roll(&dice, 3), .dtype = dtypes[i % 4]}};
        for (int d = 0; d < s.w.ndim; d++)
            s.w.shape[d] = 1 + roll(&dice, 6);
        s.layouts = (uint64_t)roll(&dice, 1 << 30);
        if (!same_in(world, dry, move, &s) || !same_in(world, dry, surround, &s) ||
            !same_in(world, dry, join, &s) || !same_in(world, dry, make_and_look, &s))
            fprintf(stderr, "  scene %d\n", i);
    }
    CHECK_OK(sherd_world_close(dry));
}

static void give_from_first(sherd_world *world, void *context)
{
    const scene *s = context;
    sherd_tensor *t = sherd_world_rank(world) ? NULL : plain_leaf(world, &s->w);

    sherd_distribute_from(t, line_of_ranks(world), "S(0)", 0);
}

/* What only another rank has is not known. */
static void the_root_alone_knows(sherd_world *world)
{
    scene s = {.w = {.kind = 'x', .ndim = 1, .shape = {7}, .dtype = SHERD_F32}};
    sherd_world *dry = dry_as(world);

    sherd_scope_begin(dry);
    give_from_first(dry, &s);
    sherd_scope_end(dry);
    CHECK_EQ(sherd_world_check(dry), sherd_world_rank(world) ? SHERD_ENOTSUP : SHERD_OK);
    CHECK(!sherd_world_rank(world) ||
          strstr(sherd_world_error(dry), "only rank 0 knows the shape") != NULL);
    CHECK(same_in(world, dry, move, &s));
    CHECK_OK(sherd_world_close(dry));
}

static const check_test tests[] = {
    {TEST(the_root_alone_knows), {1, 2, 3}},
    {TEST(moves_are_the_same_dry), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
