/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The solver's answers keep layouts, which may list all ranks of a large world: so they are bounded
 * by bytes, as plans are. On one dry rank of many.
 */
#include "tensors.h"

#include "apply/answers.h"
#include "layout/bytes.h"
#include "sherd/dry.h"
#include "sherd/ops.h"

enum { RANKS = 4096, STEPS = 60, MOST = 20 };

/* Cut unevenly, and in another way at each step. */
static const sherd_layout *uneven(const sherd_mesh *mesh, int64_t step)
{
    static int64_t sizes[RANKS];
    const int64_t *by_dim[] = {sizes};
    const sherd_placement rows = sherd_shard(0);
    const sherd_layout *layout = NULL;
    int64_t n = 0;

    for (int64_t i = 0; i < RANKS; i++)
        n += sizes[i] = i * 7 % 5 + (i == step);
    CHECK_OK(
        sherd_layout_create(&layout, mesh, 1, &n, &rows, &(sherd_layout_options){.sizes = by_dim}));
    return layout;
}

static void answers_are_bounded_by_the_bytes_of_layouts(sherd_world *unused)
{
    sherd_world *world = NULL;

    (void)unused;
    CHECK_OK(sherd_world_dry(&world, RANKS, 5, NULL, NULL));
    sherd__world_space(world)->most_idle = 0;
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd__answers *answers = sherd__ops_of(world)->answers;
    answers->most_bytes = MOST * RANKS * sizeof(int64_t);
    for (int64_t step = 0; step < STEPS; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_constant_on(uneven(mesh, step), SHERD_F32, 1);
        sherd_tensor *y = sherd_add(x, x);
        CHECK(y->layout == x->layout && answers->bytes >= sherd__layout_bytes(x->layout));
        sherd_scope_end(world);
        CHECK(answers->bytes <= answers->most_bytes && answers->count > 0);
        CHECK(sherd__world_space(world)->layouts.count <= MOST + 1);
    }
    CHECK_EQ(answers->count, (int)answers->map.count);
    /* One that is larger than that is kept until the next. */
    answers->most_bytes = 1;
    for (int64_t step = 0; step < 2; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_constant_on(uneven(mesh, step), SHERD_F32, 1);
        CHECK(!sherd_tensor_failed(sherd_mul(sherd_add(x, x), x)));
        sherd_scope_end(world);
        CHECK_EQ(answers->count, 1);
    }
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_world_close(world));
}

static const check_test tests[] = {
    {TEST(answers_are_bounded_by_the_bytes_of_layouts), {1}},
};
CHECK_MAIN(tests)
