/* SPDX-License-Identifier: Apache-2.0 */
/* Room on the GPU that an operator lacks on one rank: all ranks are told. SHERD_DEVICE is set for
 * this program. */
#include "sherd/ops_layers.h"

#include "tensors.h"

static _Thread_local sherd_tensor *cache, *where;

static void scene(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_attention_cached(cache, cache, cache, where, 0);
    sherd_scope_end(world);
}

/* Of a cache that ranks share: they exchange results, and join them in such room. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const int64_t shape[] = {1, 3, 1, 4}, rows[] = {1, 3};
    const int32_t at[] = {0, 1, 2};

    cache = sherd_constant(world, SHERD_BF16, shape, 4, 1);
    cache = sherd_distribute_as(cache, line_of_ranks(world), "S(1)", -1);
    where = sherd_mark_equal(sherd_from_data(world, SHERD_I32, rows, 2, at));
    CHECK_OK(sherd_world_check(world));
    fail_every_allocation(world, 1, scene);
}

static const check_test tests[] = {
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
