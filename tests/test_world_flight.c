/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in flight: what may be read, written and reused while peers are still at work, without a
 * barrier. */
#include "world_moves.h"

/* What a begun call brings is the source of the next: that one waits until it is there. */
static void a_result_in_flight_is_passed_on(sherd_world *world)
{
    int64_t shape[2] = {64, 48};
    const sherd_mesh *mesh = NULL;
    const sherd_plan *there = NULL, *back = NULL;
    pair p = {.op = SHERD_SUM}, q;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    sherd_placement rows = sherd_shard(0), columns = sherd_shard(1);
    CHECK_OK(sherd_layout_create(&p.from, mesh, 2, shape, &rows, NULL));
    CHECK_OK(sherd_layout_create(&p.to, mesh, 2, shape, &columns, NULL));
    CHECK_OK(sherd_plan_create(&there, p.from, p.to, SHERD_F64, NULL));
    CHECK_OK(sherd_plan_create(&back, p.to, p.from, SHERD_F64, NULL));
    q = (pair){p.to, p.from, SHERD_SUM};
    tensor a = make(world, p.from), b = make(world, p.to), c = make(world, p.from);
    for (int round = 0; round < 50; round++) {
        if (CHECK(sherd__block_writable(world, a.block)))
            fill(world, &p, &a);
        if (CHECK(sherd__block_writable(world, b.block)))
            memset(sherd__block_data(b.block), 0xFF, (size_t)b.count * 8);
        sherd__move first = move_of(there, &a, &b), second = move_of(back, &b, &c);
        CHECK(sherd__call(world, "there", &first, 1, true));
        some_time();
        CHECK(sherd__call(world, "back", &second, 1, round % 2));
        CHECK_EQ(count_wrong(world, &q, &c), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The memory of the old epoch is not touched in the new one: a copy that runs while a check fails
 * is waited for. */
static void a_failed_check_waits_for_copies(sherd_world *world)
{
    enum { COUNT = 2 << 20 };
    int64_t shape[1] = {COUNT}, stride = 1, bytes = (int64_t)COUNT * 8;
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL, *to = NULL;
    const sherd_plan *plan = NULL;
    sherd_placement sum = sherd_partial(SHERD_SUM), whole = sherd_replicate();

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    CHECK_OK(sherd_layout_create(&from, mesh, 1, shape, &sum, NULL));
    CHECK_OK(sherd_layout_create(&to, mesh, 1, shape, &whole, NULL));
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL));
    for (int turn = 0; turn < 6; turn++) {
        sherd__block *source = sherd__block_take(world, bytes, true);
        sherd__block *result = sherd__block_take(world, bytes, true);
        memset(sherd__block_data(source), 0, (size_t)bytes);
        memset(sherd__block_data(result), 0, (size_t)bytes);
        CHECK_OK(sherd_world_check(world));
        sherd__move move = {.plan = plan,
                            .dtype = SHERD_F64,
                            .source = source,
                            .source_stride = &stride,
                            .result = result};
        bool good = sherd__call(world, "late", &move, 1, true); /* false: rank 0 was faster */
        if (good && sherd_world_rank(world) == 0) {
            /* The others are in the check by now, and at work on the call. */
            nanosleep(&(struct timespec){0, 500000 * (turn + 1)}, NULL);
            sherd_world_fail(world, SHERD_EINVAL, "changed my mind");
        }
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        sherd__block_give(world, result);
        CHECK((result = sherd__block_take(world, bytes, true)) != NULL);
        memset(sherd__block_data(result), 0x77, (size_t)bytes);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        const unsigned char *x = sherd__block_data(result);
        int64_t wrong = 0;
        for (int64_t i = 0; i < bytes; i++)
            wrong += x[i] != 0x77;
        CHECK_EQ(wrong, 0);
        sherd__block_give(world, source);
        sherd__block_give(world, result);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Nobody may wait for a later call: each rank in turn publishes, then overwrites, what the others
 * read. */
static void published_buffers_are_overwritten_in_turn(sherd_world *world)
{
    enum { ROUNDS = 40, BUFFERS = 5 };
    int64_t shape[1] = {257};
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    pair p = {.op = SHERD_SUM};
    tensor from[BUFFERS], to[BUFFERS];

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    sherd_placement split = sherd_shard(0), all = sherd_replicate();
    CHECK_OK(sherd_layout_create(&p.from, mesh, 1, shape, &split, NULL));
    CHECK_OK(sherd_layout_create(&p.to, mesh, 1, shape, &all, NULL));
    CHECK_OK(sherd_plan_create(&plan, p.from, p.to, SHERD_F64, NULL));
    for (int i = 0; i < BUFFERS; i++) {
        from[i] = make(world, p.from);
        to[i] = make(world, p.to);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < BUFFERS; i++) {
            if (from[i].count && CHECK(sherd__block_writable(world, from[i].block)))
                for (int64_t k = 0; k < from[i].count; k++)
                    ((double *)sherd__block_data(from[i].block))[k] =
                        (double)(from[i].box.offset[0] + k + round * 1000 + i);
            sherd__move move = move_of(plan, &from[i], &to[i]);
            CHECK(sherd__call(world, "test", &move, 1, (round + i) % 3 == 0));
            some_time();
            CHECK(sherd__block_readable(world, to[i].block));
            const double *x = sherd__block_data(to[i].block);
            int wrong = 0;
            for (int64_t k = 0; k < 257; k++)
                wrong += x[k] != (double)(k + round * 1000 + i);
            CHECK_EQ(wrong, 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_result_in_flight_is_passed_on), {2, 3, 4, 8}},
    {TEST(a_failed_check_waits_for_copies), {2, 3}},
    {TEST(published_buffers_are_overwritten_in_turn), {2, 3, 4, 8}},
};
CHECK_MAIN(tests)
