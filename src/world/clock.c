/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What time it is: of this machine, and in a dry world the time that would have passed. Below all
 * that waits, logs and traces, so that each can ask. Costs a call of the C library, which asks no
 * kernel.
 */
#include "dry.h"
#include "inside.h"

#include <time.h>

int64_t sherd__now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool sherd__is_dry(const sherd_world *world)
{
    return world->dry != NULL;
}

int64_t sherd__clock(const sherd_world *world)
{
    return world->dry ? world->dry->now.picoseconds / 1000 : sherd__now();
}
