/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies behind a block. With the address sanitizer: who touches it in this process is ended at
 * once, and what another one writes there is found when the block is given back, whatever its size;
 * all of a block, and of memory that was given back, can be touched. Without: edges take nothing,
 * blocks are as large as they were.
 */
#include "check.h"
#include "world/edge.h"
#include "world/inside.h"

#include <sys/wait.h>

static const int64_t sizes[] = {
    0, 1, 7, 8, 63, 64, 191, 192, 193, 256, 1000, 4096, (1 << 20) - 64, 1 << 20, (1 << 20) + 1};

#ifdef SHERD__EDGES

static void at_signal(int signal)
{
    _exit(signal);
}

/*
 * How a child ends that does something to a block: 0, or the signal that came, or what the
 * sanitizer ends with.
 */
static int in_a_child(sherd_world *world, void (*work)(sherd_world *, sherd__block *),
                      sherd__block *block)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        signal(SIGABRT, at_signal);
        close(2); /* what it says is no failure here */
        work(world, block);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_all(sherd_world *world, sherd__block *block)
{
    (void)world;
    memset(block->data, 1, (size_t)block->bytes);
}

static void write_behind(sherd_world *world, sherd__block *block)
{
    (void)world;
    ((volatile unsigned char *)block->data)[block->bytes] = 1;
}

static void read_behind(sherd_world *world, sherd__block *block)
{
    (void)world;
    (void)((volatile unsigned char *)block->data)[block->bytes + SHERD__EDGE - 1];
}

/* As a process does for which nothing is poisoned. */
static void write_unseen(sherd_world *world, sherd__block *block)
{
    (void)world;
    ASAN_UNPOISON_MEMORY_REGION(block->data, block->room);
    block->data[block->bytes + SHERD__EDGE - 1] ^= 1;
}

static void give(sherd_world *world, sherd__block *block)
{
    sherd__store_give(world, block);
}

static void edges_cannot_be_touched(sherd_world *world)
{
    bool stopped;

    for (int i = 0; i < LEN(sizes); i++) {
        sherd__block *block = sherd__store_take(world, sizes[i], &stopped);
        if (!CHECK(block != NULL))
            return;
        CHECK(block->room >= (size_t)sizes[i] + SHERD__EDGE);
        CHECK_EQ(in_a_child(world, write_all, block), 0);
        CHECK(in_a_child(world, write_behind, block) != 0);
        CHECK(in_a_child(world, read_behind, block) != 0);
        sherd__store_give(world, block);
        CHECK(!__asan_region_is_poisoned(block->data, block->room));
    }
}

static void what_another_process_wrote_behind_is_found(sherd_world *world)
{
    bool stopped;

    for (int i = 0; i < LEN(sizes); i++) {
        sherd__block *block = sherd__store_take(world, sizes[i], &stopped);
        if (!CHECK(block != NULL))
            return;
        CHECK_EQ(in_a_child(world, write_unseen, block), 0);
        CHECK_EQ(in_a_child(world, give, block), SIGABRT);
        CHECK_EQ(in_a_child(world, write_unseen, block), 0); /* as it was */
        sherd__store_give(world, block);
    }
}

static const check_test tests[] = {
    {TEST(edges_cannot_be_touched), {1}},
    {TEST(what_another_process_wrote_behind_is_found), {1}},
};

#else

static void edges_take_nothing(sherd_world *world)
{
    sherd__block *block[LEN(sizes)];
    bool stopped;

    for (int i = 0; i < LEN(sizes); i++) {
        size_t bytes = (size_t)sizes[i], grains = bytes ? (bytes + 255) / 256 * 256 : 256;
        block[i] = sherd__store_take(world, sizes[i], &stopped);
        if (!CHECK(block[i] != NULL))
            return;
        CHECK(bytes > 4096 || block[i]->room == grains); /* new memory */
        memset(block[i]->data, 1, block[i]->room);       /* all of it is there */
    }
    for (int i = 0; i < LEN(sizes); i++)
        sherd__store_give(world, block[i]);
}

static const check_test tests[] = {
    {TEST(edges_take_nothing), {1}},
};

#endif

CHECK_MAIN(tests)
