/* SPDX-License-Identifier: Apache-2.0 */
/* Saved tensors: kept once, counted once, packed once, restored exactly, gone when the last node
 * has run. */
#include "tape_operators.h"

#include "sherd/comm.h"

enum { N = 64, BYTES = N * 8 };

static void saved_bytes_count_each_storage_once(sherd_world *world)
{
    sherd_tensor *w = leaf_of(world, N, 2), *x = doubled(w);

    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_tensor *a = product(x, x);
    CHECK_EQ(sherd_saved_bytes(world), BYTES);
    sherd_tensor *b = product(a, x);
    CHECK_EQ(sherd_saved_bytes(world), 2 * BYTES);
    /* A leaf lives anyway. */
    sherd_tensor *c = product(b, w);
    CHECK_EQ(sherd_saved_bytes(world), 3 * BYTES);
    /* Another view of a storage that is kept already. */
    sherd_tensor *view = sherd__new_view(x);
    sherd_tensor *d = product(c, view);
    CHECK_EQ(sherd_saved_bytes(world), 3 * BYTES);
    sherd_backward(
        total(d)); /* 4w^2 2w w 2w = 16 w^5: 80 w^4, less what flows through the view: a fifth */
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_EQ(wrong_grads(w, 64 * 16), 0);
    CHECK_OK(sherd_world_check(world));
}

static void what_nobody_runs_goes_with_the_graph(sherd_world *world)
{
    sherd_tensor *w = leaf_of(world, N, 2);
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    product(doubled(w), doubled(w));
    square(doubled(w));
    CHECK(sherd_saved_bytes(world) > 0);
    sherd_scope_end(world);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    CHECK_OK(sherd_world_check(world));
}

/* An operator that saves its own result must not keep itself alive. */
static void a_saved_result_is_no_cycle(sherd_world *world)
{
    sherd_tensor *w = leaf_of(world, N, 3);
    int64_t live = sherd__world_heap(world)->live;

    for (int run = 0; run < 2; run++) {
        sherd_scope_begin(world);
        sherd_tensor *y = square(doubled(w));
        if (run)
            sherd_backward(total(y));
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK_EQ(wrong_grads(w, 12), 0);
    sherd_clear_grad(w);
    CHECK(sherd__world_heap(world)->live <= live + 1);
    CHECK_OK(sherd_world_check(world));
}

static void activations_live_only_where_they_are_saved(sherd_world *world)
{
    sherd_tensor *w = leaf_of(world, N, 2);
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    sherd_tensor *y = doubled(doubled(product(doubled(w), doubled(w))));
    sherd_scope_pass(y);
    sherd_scope_end(world);
    /* The two factors, and y. */
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes + 3 * BYTES);
    CHECK_EQ(sherd_saved_bytes(world), 2 * BYTES);
    sherd_tensor_release(y);
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    CHECK_OK(sherd_world_check(world));
}

static void a_write_to_a_saved_tensor_is_an_error(sherd_world *world)
{
    for (int leaf = 0; leaf < 2; leaf++) {
        sherd_tensor *w = leaf_of(world, N, 2), *x = leaf ? w : doubled(w);
        sherd_tensor *loss = total(product(x, doubled(w)));
        ((double *)sherd_tensor_write(x))[0] = 7;
        sherd_backward(loss);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "product: its f64[") != NULL &&
              strstr(sherd_world_error(world), "was saved for backward and written since") != NULL);
        CHECK_EQ(sherd_saved_bytes(world), leaf ? 0 : 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Saved before and after a write: the second one holds what was there then. */
static void a_record_from_before_a_write_is_not_shared(sherd_world *world)
{
    sherd_tensor *w = leaf_of(world, N, 2), *x = leaf_of(world, N, 3);

    sherd_scope_begin(world);
    product(w, x);
    sherd_scope_end(world);
    sherd_tensor *early = product(w, x);
    for (int i = 0; i < N; i++)
        ((double *)sherd_tensor_write(x))[i] = 5;
    sherd_backward(total(product(w, x)));
    CHECK_EQ(wrong_grads(w, 5), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_backward(total(early));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

/* ---- hooks ---------------------------------------------------------------------------------- */

typedef struct counter {
    int packed, unpacked;
    bool itself; /* keep the tensor as it is */
    int wrong; /* 1: pack gives NULL, 2: unpack gives NULL, 3: unpack gives another shape, 4: pack fails, 5: both keep another dtype */
} counter;

static const int mark = 17;

static sherd_tensor *pack(sherd_tensor *t, void *context, const void **undo)
{
    counter *c = context;
    int64_t bad = -1;

    c->packed++;
    *undo = &mark;
    CHECK(!sherd__is_recorded(t->world, &t, 1));
    if (c->wrong == 1)
        return NULL;
    if (c->wrong == 4)
        return sherd_constant(t->world, SHERD_F64, &bad, 1, 0);
    if (c->wrong == 5)
        return sherd_constant(t->world, SHERD_F32, t->shape, t->ndim, 0);
    scaled(t, 3);
    return c->itself ? t : scaled(t, 4);
}

static sherd_tensor *unpack(sherd_tensor *kept, void *context, const void *undo)
{
    counter *c = context;
    int64_t n = 3;

    c->unpacked++;
    CHECK(undo == &mark);
    if (c->wrong == 2)
        return NULL;
    if (c->wrong == 3)
        return sherd_constant(kept->world, SHERD_F64, &n, 1, 0);
    return c->itself || c->wrong == 5 ? kept : scaled(kept, 0.25);
}

static void hooks_pack_and_unpack_a_tensor_once(sherd_world *world)
{
    for (int itself = 0; itself < 2; itself++) {
        counter c = {.itself = itself}, outer = {0};
        sherd_saved_hooks hooks = {pack, unpack, &c}, outside = {pack, unpack, &outer};
        sherd_tensor *w = leaf_of(world, N, 2), *x = doubled(w);

        sherd_saved_hooks_push(world, &outside);
        sherd_saved_hooks_push(world, &hooks);
        sherd_tensor *a = product(x, w); /* x; the leaf is not packed */
        CHECK_EQ(c.packed, 1);
        sherd_tensor *b = product(x, a); /* a; x is packed already */
        CHECK_EQ(c.packed, 2);
        sherd_saved_hooks_pop(world);
        sherd_saved_hooks_pop(world);
        sherd_saved_hooks_pop(world);
        sherd_tensor *d = product(b, x); /* b as it is */
        CHECK_EQ(c.packed, 2);
        CHECK_EQ(outer.packed, 0);
        CHECK_EQ(sherd_saved_bytes(world), 3 * BYTES);
        sherd_backward(total(d)); /* 8 w^4 */
        CHECK_EQ(c.unpacked, 2);
        CHECK_EQ(wrong_grads(w, 32 * 8), 0);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The record from before a write goes without taking the newer one along. */
static void a_newer_record_outlives_an_older_one(sherd_world *world)
{
    counter c = {0};
    sherd_saved_hooks hooks = {pack, unpack, &c};
    sherd_tensor *w = leaf_of(world, N, 2), *x = scaled(w, 3);

    sherd_saved_hooks_push(world, &hooks);
    sherd_tensor *older = product(w, x);
    sherd_tensor_write(x);
    sherd_tensor *newer = product(w, x);
    CHECK_EQ(c.packed, 2);
    sherd_tensor_release(older);
    sherd_tensor *third = product(w, x);
    CHECK_EQ(c.packed, 2);
    sherd_saved_hooks_pop(world);
    sherd_tensor_release(x);
    sherd_backward(total(joined(newer, third)));
    CHECK_EQ(c.unpacked, 1);
    CHECK_EQ(wrong_grads(w, 12), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_packed_original_is_freed_with_its_scope(sherd_world *world)
{
    counter c = {0};
    sherd_saved_hooks hooks = {pack, unpack, &c};
    sherd_tensor *w = leaf_of(world, N, 2);
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_saved_hooks_push(world, &hooks);
    sherd_scope_begin(world);
    sherd_tensor *y = sherd_scope_pass(product(doubled(w), w));
    sherd_scope_end(world);
    sherd_saved_hooks_pop(world);
    /* What was packed, and y; neither the original nor pack's temporary. */
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes + 2 * BYTES);
    sherd_backward(total(y));
    CHECK_EQ(wrong_grads(w, 8), 0);
    CHECK_OK(sherd_world_check(world));
}

static void wrong_hooks_are_named_errors(sherd_world *world)
{
    for (int wrong = 1; wrong <= 5; wrong++) {
        counter c = {.wrong = wrong};
        sherd_saved_hooks hooks = {pack, unpack, &c};
        sherd_tensor *w = leaf_of(world, N, 2);

        sherd_saved_hooks_push(world, &hooks);
        sherd_tensor *loss = total(product(doubled(w), w));
        sherd_saved_hooks_pop(world);
        if (wrong == 1 || wrong == 4)
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        sherd_backward(loss);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world),
                     wrong % 3 == 1 ? "lost by an earlier failure" : "hook") != NULL);
        if (wrong == 5)
            CHECK(strstr(sherd_world_error(world), "returned f32[64] for f64[64]") != NULL);
        CHECK(sherd_grad(w) == NULL);
        sherd_backward(total(product(doubled(w), w)));
        CHECK_EQ(wrong_grads(w, 8), 0);
        CHECK_OK(sherd_world_check(world));
    }
}

static void hooks_without_pack_suspend_outer_ones(sherd_world *world)
{
    counter c = {0};
    sherd_saved_hooks hooks = {pack, unpack, &c}, nothing = {NULL, NULL, NULL};
    sherd_tensor *w = leaf_of(world, N, 2);

    for (int i = 0; i < 20; i++)
        sherd_saved_hooks_push(world, i ? &nothing : &hooks);
    product(doubled(w), w);
    CHECK_EQ(c.packed, 0);
    for (int i = 0; i < 19; i++)
        sherd_saved_hooks_pop(world);
    product(doubled(w), w);
    CHECK_EQ(c.packed, 1);
    sherd_saved_hooks_pop(world);
    CHECK_OK(sherd_world_check(world));
}

/* ---- moves ---------------------------------------------------------------------------------- */

static int64_t calls(sherd_world *world)
{
    int64_t count = 0;
    for (int i = 0; i < sherd_comm_count(world); i++)
        count += sherd_comm_get(world, i).calls;
    return count;
}

/* Three operators save what was gathered: the shard is kept, and gathered again once. */
static void a_gathered_tensor_is_saved_as_its_shard(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {N};
    const sherd_layout *rows = layout_of(mesh, 1, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *w = leaf_on(rows, 2), *v = leaf_on(whole, 3), *x = moved(doubled(w), whole);

    sherd_tensor *y = product(product(product(v, x), x), x);
    /* The shard of x, and of each product its whole value; v is a leaf. */
    CHECK_EQ(sherd_saved_bytes(world), BYTES / 2 + 2 * BYTES);
    sherd_comm_reset(world);
    sherd_backward(total(y));
    CHECK_EQ(calls(world), 1); /* the gradient of x is whole and only cut */
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_EQ(wrong_grads(v, 64), 0);
    CHECK_EQ(wrong_grads(w, 3 * 3 * 16 * 2), 0);
    CHECK_OK(sherd_world_check(world));
}

/* All ranks decide alike, also where one rank's shard is as large as the whole. */
static void uneven_shards_decide_alike_on_all_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {1};
    const sherd_layout *rows = layout_of(mesh, 1, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *w = leaf_on(rows, 2), *v = leaf_on(whole, 3);

    sherd_backward(total(product(v, moved(w, whole))));
    CHECK_EQ(wrong_grads(v, 2), 0);
    CHECK_EQ(wrong_grads(w, 3), 0);
    CHECK_OK(sherd_world_check(world));
}

/* A piece that is a leaf on one rank and a result on another is none of a leaf: hooks of both see
 * it. */
static void pieces_of_two_kinds_are_packed_alike(sherd_world *world)
{
    counter c = {0};
    sherd_saved_hooks hooks = {pack, unpack, &c};
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_placement rows[] = {sherd_shard(0)};
    const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    int ranks = sherd_world_ranks(world);

    for (int leaves = 0; leaves <= ranks; leaves++) {
        sherd_tensor *w = leaf_of(world, N, 2);
        if (sherd_world_rank(world) >= leaves)
            w = doubled(w);
        sherd_tensor *x = sherd__from_local(w, mesh, rows, &infer);
        x->autograd.requires_grad = true;
        c.packed = 0;
        sherd_saved_hooks_push(world, &hooks);
        product(x, x);
        sherd_saved_hooks_pop(world);
        CHECK_EQ(c.packed, leaves < ranks);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A gathered leaf costs nothing; written since the move it would be another tensor, so then the
 * result is kept. */
static void a_source_that_was_written_is_not_moved_again(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {N};
    const sherd_layout *rows = layout_of(mesh, 1, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *w = leaf_on(rows, 2), *v = leaf_on(whole, 3);

    /* A source with a history of writes is still good for moves after them. */
    ((double *)sherd_tensor_write(w))[0] = 2;
    sherd_tensor *y = product(v, moved(w, whole));
    CHECK_EQ(sherd_saved_bytes(world), 0);
    sherd_backward(total(y));
    CHECK_EQ(wrong_grads(v, 2), 0);
    sherd_clear_grad(v);
    sherd_tensor *x = moved(w, whole);
    for (int i = 0; i < N / 2; i++)
        ((double *)sherd_tensor_write(w))[i] = 9;
    y = product(v, x);
    CHECK_EQ(sherd_saved_bytes(world), BYTES);
    sherd_backward(total(y));
    CHECK_EQ(wrong_grads(v, 2), 0);
    CHECK_OK(sherd_world_check(world));
}

/* The hooks see the source, not what was gathered from it. */
static void hooks_see_the_source_of_a_move(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {N};
    const sherd_layout *rows = layout_of(mesh, 1, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *w = leaf_on(rows, 2), *v = leaf_on(whole, 3), *source = doubled(w);
    sherd_tensor *x = moved(source, whole);
    counter c = {0};
    sherd_saved_hooks hooks = {pack, unpack, &c};

    sherd_saved_hooks_push(world, &hooks);
    sherd_tensor *a = product(v, x), *b = product(source, doubled(w));
    sherd_saved_hooks_pop(world);
    CHECK_EQ(c.packed, 2);
    sherd_backward(total(a));
    CHECK_EQ(c.unpacked, 1);
    CHECK_EQ(wrong_grads(v, 4), 0);
    (void)b;
    CHECK_OK(sherd_world_check(world));
}

static void a_settled_sum_is_saved_as_it_is(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {N};
    const sherd_layout *sum = layout_of(mesh, 1, shape, "P(sum)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    const sherd_layout *rows = layout_of(mesh, 1, shape, "S(0)", NULL);
    sherd_tensor *w = leaf_on(sum, 2), *v = leaf_on(whole, 3);

    product(v, moved(doubled(w), whole));
    CHECK_EQ(sherd_saved_bytes(world), BYTES);
    /* A slice is smaller than what it was cut from. */
    product(leaf_on(rows, 1), moved(doubled(v), rows));
    CHECK_EQ(sherd_saved_bytes(world), BYTES + BYTES / 2);
    CHECK_OK(sherd_world_check(world));
}

/* Though its source is smaller: moving it again would add it up again. */
static void a_settled_sum_of_shards_is_saved_as_it_is(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t shape[1] = {N};
    const sherd_layout *sum = layout_of(mesh, 1, shape, "P(sum)S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "RR", NULL);

    product(leaf_on(whole, 3), moved(doubled(leaf_on(sum, 2)), whole));
    CHECK_EQ(sherd_saved_bytes(world), BYTES);
    CHECK_OK(sherd_world_check(world));
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL, *whole = NULL;
    int64_t shape[1] = {6};
    counter c = {0};
    sherd_saved_hooks hooks = {pack, unpack, &c};

    sherd_scope_begin(world);
    sherd_saved_hooks_push(world, &hooks);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 1, shape, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&whole, mesh, 1, shape, "R", NULL) == SHERD_OK) {
        sherd_tensor *w = leaf_on(rows, 1), *v = leaf_on(whole, 1), *x = moved(doubled(w), whole);
        sherd_backward(total(product(product(v, x), square(x))));
        sherd_grad(w);
    } else {
        sherd__raise_diag(world);
    }
    sherd_saved_hooks_pop(world);
    sherd_scope_end(world);
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, scene);
    fail_every_allocation(world, 1, scene);
}

/* With a graph, its saved tensors and gradients still alive. */
static void closing_the_world_frees_the_graph(sherd_world *world)
{
    sherd_world *own = NULL;

    CHECK_OK(sherd_world_alone(&own, NULL));
    sherd_tensor *w = leaf_of(own, N, 2), *x = sherd_tensor_retain(product(doubled(w), w));
    square(x);
    sherd_backward(total(doubled(w)));
    sherd_tensor_retain(w);
    CHECK_OK(sherd_world_close(own));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(saved_bytes_count_each_storage_once), {1, 2}},
    {TEST(what_nobody_runs_goes_with_the_graph), {1}},
    {TEST(a_saved_result_is_no_cycle), {1}},
    {TEST(activations_live_only_where_they_are_saved), {1}},
    {TEST(a_write_to_a_saved_tensor_is_an_error), {1}},
    {TEST(a_record_from_before_a_write_is_not_shared), {1}},
    {TEST(hooks_pack_and_unpack_a_tensor_once), {1, 2}},
    {TEST(a_newer_record_outlives_an_older_one), {1}},
    {TEST(a_packed_original_is_freed_with_its_scope), {1}},
    {TEST(wrong_hooks_are_named_errors), {1}},
    {TEST(hooks_without_pack_suspend_outer_ones), {1}},
    {TEST(a_gathered_tensor_is_saved_as_its_shard), {2}},
    {TEST(uneven_shards_decide_alike_on_all_ranks), {2}},
    {TEST(a_source_that_was_written_is_not_moved_again), {2}},
    {TEST(pieces_of_two_kinds_are_packed_alike), {1, 2, 3}},
    {TEST(hooks_see_the_source_of_a_move), {2}},
    {TEST(a_settled_sum_is_saved_as_it_is), {2}},
    {TEST(a_settled_sum_of_shards_is_saved_as_it_is), {4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
    {TEST(closing_the_world_frees_the_graph), {1}},
};
CHECK_MAIN(tests)
