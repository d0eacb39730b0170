/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark whose ranks are processes ends with: start them, and return what they did. */
#ifndef SHERD_BENCH_PROCESSES_H
#define SHERD_BENCH_PROCESSES_H

#include <sherd.h>

/* The exit status of the program. */
static inline int run_processes(int64_t ranks, int (*body)(sherd_world *world, void *job),
                                void *job)
{
    const sherd_world_options options = {.ranks = (int)ranks, .as = SHERD_PROCESSES};
    int exit_status = 1;

    return sherd_spawn(&exit_status, &options, body, job) == SHERD_OK ? exit_status : 1;
}

#endif
