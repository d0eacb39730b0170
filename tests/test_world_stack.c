/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are threads have a stack for functions that are 1000 deep, whatever the C library gives
 * a thread: 2 MB where `ulimit -s` is unlimited.
 */
#define CHECK_PURE
#include "check.h"
#include "sherd/world.h"

#include <pthread.h>

enum { DEEP = 6 << 20 };

static int use_stack(sherd_world *world, void *payload)
{
    volatile char room[DEEP];

    (void)payload;
    for (int i = 0; i < DEEP; i += 1024)
        room[i] = 1;
    return room[DEEP - 1024] - 1 + (sherd_world_ranks(world) < 1);
}

static void threads_have_the_stack_that_depth_needs(void)
{
    const sherd_world_options options = {.ranks = 3, .as = SHERD_THREADS};
    pthread_attr_t before, small;
    int exit_status = -1;

    CHECK_EQ(pthread_getattr_default_np(&before), 0);
    CHECK_EQ(pthread_attr_init(&small), 0);
    CHECK_EQ(pthread_attr_setstacksize(&small, 2 << 20), 0);
    CHECK_EQ(pthread_setattr_default_np(&small), 0);
    CHECK_OK(sherd_spawn(&exit_status, &options, use_stack, NULL));
    CHECK_EQ(exit_status, 0);
    CHECK_EQ(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&before);
}

static const check_test tests[] = {{TEST(threads_have_the_stack_that_depth_needs)}};
CHECK_MAIN(tests)
