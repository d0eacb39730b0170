/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts in use: tensors, the tape and caches keep those that they need, and nothing else is left
 * of a step. */
#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "tensors.h"

static int64_t layouts(sherd_world *world)
{
    return (int64_t)sherd__world_space(world)->layouts.count;
}

static int64_t allocations(sherd_world *world)
{
    return sherd__world_heap(world)->live;
}

/* Let a layout go as soon as nobody needs it, so that who uses it then is found out. */
static void keep_none(sherd_world *world)
{
    sherd__world_space(world)->most_idle = 0;
}

static const sherd_layout *line(const sherd_mesh *mesh, int64_t n, sherd_placement placement)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh, 1, &n, &placement, NULL));
    return layout;
}

/* A step on n elements: moves, operators, views and gradients, all of layouts of their own. */
static void one_step(sherd_world *world, const sherd_mesh *mesh, int64_t n)
{
    sherd_scope_begin(world);
    sherd_tensor *x = sherd_constant_on(line(mesh, 2 * n, sherd_shard(0)), SHERD_F32, 1);
    sherd_require_grad(x, true);
    sherd_tensor *y = sherd_view(sherd_add(x, x), (int64_t[]){n, 2}, 2);
    sherd_tensor *z = sherd_redistribute(x, line(mesh, 2 * n, sherd_replicate()), NULL);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_mul(y, y))), (double)(8 * n), 1e-3);
    sherd_backward(sherd_sum(sherd_mul(z, z)));
    CHECK(!sherd_tensor_failed(sherd_grad(x)));
    sherd_scope_end(world);
}

/* Caches are full after some thousands of steps; then every step leaves as much as it found. */
static void steps_of_ever_new_sizes_leave_nothing(sherd_world *world)
{
    enum { STEPS = 6000, FULL = 4500 };
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t alive = 0, kept = 0;

    for (int64_t n = 1; n <= STEPS; n++) {
        one_step(world, mesh, n);
        if (n == FULL) {
            alive = allocations(world);
            kept = layouts(world);
        }
    }
    CHECK(allocations(world) <= alive + alive / 100);
    CHECK(layouts(world) <= kept + kept / 100);
    CHECK_OK(sherd_world_check(world));
}

/* The layout was made in a scope that has ended; the tensor, its gradient and what is made of it go
 * on. */
static void a_tensor_keeps_its_layout(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t n = 12, before;

    keep_none(world);
    before = layouts(world);
    sherd_scope_begin(world);
    sherd_scope_begin(world);
    sherd_tensor *t =
        sherd_scope_pass(sherd_constant_on(line(mesh, n, sherd_shard(0)), SHERD_F32, 3));
    sherd_tensor *local = sherd_scope_pass(sherd_to_local(t));
    sherd_scope_end(world);
    CHECK_EQ(layouts(world), before + 1);
    CHECK_EQ(sherd_layout_shape(sherd_tensor_layout(t))[0], n);
    sherd_placement rows = sherd_shard(0);
    sherd_from_local_options options = {.shape = &n};
    sherd_tensor *again = sherd_from_local(local, mesh, &rows, &options);
    CHECK(sherd_tensor_layout(again) == sherd_tensor_layout(t));
    again = sherd_from_local(local, mesh, &rows, NULL); /* as it was */
    CHECK(sherd_tensor_layout(again) == sherd_tensor_layout(t));
    sherd_scope_end(world);
    CHECK_EQ(layouts(world), before);
    CHECK_OK(sherd_world_check(world));
}

/* All that the forward made is gone but the loss: the tape has what backward needs. */
static void the_tape_keeps_its_layouts(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    keep_none(world);
    for (int64_t n = 8; n < 200; n = 2 * n + 1) {
        sherd_scope_begin(world);
        sherd_scope_begin(world);
        sherd_tensor *x =
            sherd_scope_pass(sherd_constant_on(line(mesh, n, sherd_shard(0)), SHERD_F32, 2));
        sherd_require_grad(x, true);
        sherd_scope_begin(world);
        sherd_tensor *whole = sherd_redistribute(x, line(mesh, n, sherd_replicate()), NULL);
        sherd_tensor *square = sherd_mul(whole, whole);
        sherd_tensor *loss = sherd_scope_pass(sherd_sum(square));
        sherd_scope_end(world);
        sherd_backward(loss);
        sherd_scope_end(world);
        const float *g = sherd_tensor_read(sherd_grad(x));
        int wrong = g == NULL;
        for (int64_t i = 0; g && i < sherd_tensor_box(x).size[0]; i++)
            wrong += g[i] != 4;
        CHECK_EQ(wrong, 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_retained_layout_outlives_its_scope(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t before;

    keep_none(world);
    before = layouts(world);
    sherd_scope_begin(world);
    const sherd_layout *kept = sherd_layout_retain(line(mesh, 10, sherd_shard(0)));
    const sherd_layout *gone = line(mesh, 11, sherd_shard(0));
    CHECK(gone != kept);
    sherd_scope_end(world);
    CHECK_EQ(layouts(world), before + 1);
    sherd_scope_begin(world);
    CHECK_EQ(sherd_layout_shape(kept)[0], 10);
    CHECK(!sherd_tensor_failed(sherd_constant_on(kept, SHERD_F32, 1)));
    sherd_scope_end(world);
    sherd_layout_release(kept);
    CHECK_EQ(layouts(world), before);
    CHECK_OK(sherd_world_check(world));
}

/* The scope that could not be opened takes nothing with it when it ends. */
static void a_scope_that_was_not_opened_lets_nothing_go(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    keep_none(world);
    sherd_world_fail_allocation(world, 1);
    sherd_scope_begin(world);
    sherd_world_fail_allocation(world, 0);
    const sherd_layout *layout = line(mesh, 10, sherd_shard(0));
    sherd_scope_end(world);
    CHECK_EQ(sherd_layout_shape(layout)[0], 10);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
}

static void a_paper_world_has_scopes_too(sherd_world *beside)
{
    sherd_world *world = NULL;
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from, *to;
    const sherd_plan *plan = NULL;

    (void)beside;
    CHECK_OK(sherd_world_paper(&world, 1000));
    CHECK_OK(sherd_mesh_parse(&mesh, world, "x=1000"));
    for (int64_t n = 1; n < 20000; n++) {
        sherd_scope_begin(world);
        from = line(mesh, n, sherd_shard(0));
        to = line(mesh, n, sherd_replicate());
        if (n % 10 == 0)
            CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, NULL));
        sherd_scope_end(world);
    }
    CHECK(layouts(world) <= 2 * 2000 + 1024);
    CHECK_OK(sherd_world_close(world));
}

/* What the solver looks at is gone when it has its answer, also where no scope is open. */
static void solving_leaves_no_layouts_behind(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    sherd__space *space = sherd__world_space(world);
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t n = 4 * ranks, shape[2] = {n, n};
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *columns = layout_of(mesh, 2, shape, "S(1)", NULL);
    sherd_tensor *a = sherd_constant_on(rows, SHERD_F32, 1);
    sherd_tensor *b = sherd_constant_on(columns, SHERD_F32, 2);
    int held = sherd__layouts_mark(space);

    CHECK(!sherd_tensor_failed(sherd_add(a, b)));
    CHECK(!sherd_tensor_failed(sherd_matmul(a, b)));
    CHECK(!sherd_tensor_failed(sherd_matmul(b, a)));
    CHECK_EQ(sherd__layouts_mark(space), held);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(solving_leaves_no_layouts_behind), {1, 2, 4}},
    {TEST(steps_of_ever_new_sizes_leave_nothing), {1, 2}},
    {TEST(a_tensor_keeps_its_layout), {1, 2, 3, 8}},
    {TEST(the_tape_keeps_its_layouts), {1, 2, 3, 8}},
    {TEST(a_retained_layout_outlives_its_scope), {1, 2}},
    {TEST(a_scope_that_was_not_opened_lets_nothing_go), {1}},
    {TEST(a_paper_world_has_scopes_too), {1}},
};
CHECK_MAIN(tests)
