/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transformer block in tensor parallel, with and without sequence parallelism and data
 * parallelism, against the same block on one rank: output, loss and every gradient; and the calls
 * of a step.
 */
#include "models.h"
#include "sherd/optimizer.h"

enum { BATCH = 3, LENGTH = 5, HEADS = 4, HEAD = 6, WIDTH = HEADS * HEAD, HIDDEN = 20 };

static void check_block(sherd_world *world, const char *mesh_text, const char *x_placements,
                        bool sequence, double dropout)
{
    const sherd_mesh *mesh = mesh_of(world, mesh_text);
    block_size size = {HEADS, HEAD, dropout};
    sherd_module *plain = block(world, SHERD_F64, &size, HIDDEN);
    sherd_module *split = block(world, SHERD_F64, &size, HIDDEN);
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(BATCH, LENGTH, WIDTH), 17, 1, 0);
    sherd_tensor *target = wave(world, SHERD_F64, 3, SHAPE(BATCH, LENGTH, WIDTH), 23, 1, 0);
    baseline e = {0};

    sherd_scope_begin(world);
    expect(&e, plain, sherd_require_grad(x, true), target);
    CHECK_OK(parallelize_block(split, mesh, "", &size, sequence));
    sherd_tensor *spread_x = sherd_require_grad(spread(x, mesh, x_placements), true);
    compare(&e, split, spread_x, target, 1e-11);
    sherd_scope_end(world);
    forget_baseline(&e);
    sherd_module_destroy(plain);
    sherd_module_destroy(split);
    CHECK_OK(sherd_world_check(world));
}

static void a_block_is_the_same_in_tensor_parallel(sherd_world *world)
{
    char mesh[16];
    snprintf(mesh, sizeof mesh, "tp=%d", sherd_world_ranks(world));
    check_block(world, mesh, "R", false, 0);
}

static void a_block_is_the_same_with_sequences_split(sherd_world *world)
{
    char mesh[16];
    snprintf(mesh, sizeof mesh, "tp=%d", sherd_world_ranks(world));
    check_block(world, mesh, "R", true, 0);
    check_block(world, mesh, "S(1)", true, 0);
}

static void a_block_is_the_same_on_a_grid(sherd_world *world)
{
    const char *mesh = sherd_world_ranks(world) == 4 ? "dp=2,tp=2" : "dp=2,tp=3";
    check_block(world, mesh, "S(0)R", false, 0);
    check_block(world, mesh, "S(0)R", true, 0);
    check_block(world, mesh, "S(0)S(1)", true, 0);
}

static void dropout_is_the_same_however_it_is_split(sherd_world *world)
{
    char mesh[16];
    snprintf(mesh, sizeof mesh, "tp=%d", sherd_world_ranks(world));
    check_block(world, mesh, "R", false, 0.3);
    check_block(world, mesh, "R", true, 0.3);
}

/* Heads that divide and heads that do not: the same calls, so nothing moves where heads are
 * split. */
static void uneven_heads_cost_no_calls(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    block_size size = {HEADS, HEAD, 0};

    for (int sequence = 0; sequence < 2; sequence++) {
        sherd_module *m = block(world, SHERD_F32, &size, HIDDEN);
        sherd_tensor *x = wave(world, SHERD_F32, 3, SHAPE(BATCH, LENGTH, WIDTH), 17, 1, 0);
        sherd_tensor *target, *y, *loss;
        CHECK_OK(parallelize_block(m, mesh, "", &size, sequence));
        x = sherd_require_grad(spread(x, mesh, sequence ? "S(1)" : "R"), true);
        target = spread(wave(world, SHERD_F32, 3, SHAPE(BATCH, LENGTH, WIDTH), 23, 1, 0), mesh,
                        sequence ? "S(1)" : "R");
        sherd_comm_reset(world);
        y = sherd_module_call(m, x);
        /* An all-reduce each, or a gather and a scatter each, of attention and MLP. */
        CHECK_EQ(calls_logged(world), sequence ? 4 : 2);
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(y)), sequence ? "S(1)" : "R");
        loss = squared_error(y, target);
        sherd_comm_reset(world);
        sherd_backward(loss);
        /* With sequences split, what was gathered is gathered again: two more. */
        CHECK_EQ(calls_logged(world), sequence ? 6 : 2);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static sherd_status try_step(sherd_world *world, const sherd_mesh *mesh, bool sequence, int64_t n)
{
    block_size size = {HEADS, 2, 0.1};
    sherd_module *m = block(world, SHERD_F32, &size, 8);
    sherd_optimizer *o = NULL;
    sherd_status status, checked;

    sherd_scope_begin(world);
    sherd_tensor *x = spread(wave(world, SHERD_F32, 3, SHAPE(2, 3, 8), 1, 1, 0), mesh, "R");
    sherd_tensor *target = wave(world, SHERD_F32, 3, SHAPE(2, 3, 8), 2, 1, 0);
    if (sherd_world_rank(world) == 0)
        sherd_world_fail_allocation(world, n);
    status = parallelize_block(m, mesh, "", &size, sequence);
    if (!status)
        status = sherd_input_reshard(m, mesh, "tp", 1);
    if (!status) {
        sherd_status local = sherd_adamw_create(&o, m, NULL);
        if (local)
            sherd_world_fail(world, local, "no optimizer");
        sherd_backward(squared_error(sherd_module_call(m, x), target));
        if (o) {
            sherd_optimizer_grad_norm(o);
            sherd_optimizer_step(o, 0.01, 1);
        }
    }
    sherd_world_fail_allocation(world, 0);
    sherd_scope_end(world);
    checked = sherd_world_check(world);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
    CHECK(checked == SHERD_OK || checked == SHERD_ENOMEM);
    return status ? status : checked;
}

/* Many places of one training step, in turn: the same status on all ranks, and the next step
 * works. */
static void no_memory_in_a_step_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t mine, all[64];

    for (int sequence = 0; sequence < 2; sequence++) {
        sherd_status status = SHERD_ENOMEM;
        int failures = 0;
        for (int64_t n = 1; status && n < 4000; n += 1 + n / 40) {
            status = try_step(world, mesh, sequence, n);
            failures += status != SHERD_OK;
            mine = status;
            if (CHECK(sherd__share(world, mesh, "test", &mine, 1, all)))
                for (int r = 0; r < sherd_world_ranks(world); r++)
                    CHECK_EQ(all[r], mine);
            CHECK_OK(sherd_world_check(world)); /* before a rank raises the next alarm */
        }
        CHECK_OK(status);
        CHECK(failures > 20);
        CHECK_OK(try_step(world, mesh, sequence, 0));
    }
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static const check_test tests[] = {
    {TEST(a_block_is_the_same_in_tensor_parallel), {1, 2, 3, 4, 5, 8}},
    {TEST(a_block_is_the_same_with_sequences_split), {1, 2, 3, 4, 8}},
    {TEST(a_block_is_the_same_on_a_grid), {4, 6}},
    {TEST(dropout_is_the_same_however_it_is_split), {2, 3}},
    {TEST(uneven_heads_cost_no_calls), {2, 3, 5}},
    {TEST(no_memory_in_a_step_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
