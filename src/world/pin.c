/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores. Where every rank can have one it is pinned to it: otherwise two ranks may share a core for seconds
 * while another is idle, and each flag between them then costs microseconds instead of a tenth of one.
 */
#include "launch.h"

int sherd__cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return CPU_COUNT(&set);
}

sherd__pinning sherd__pin(int rank)
{
    sherd__pinning before = {.pinned = false};
    cpu_set_t one;
    int seen = 0;

    if (sched_getaffinity(0, sizeof before.set, &before.set))
        return before;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before.set) && seen++ == rank) {
            CPU_SET(cpu, &one);
            before.pinned = sched_setaffinity(0, sizeof one, &one) == 0;
            return before;
        }
    return before;
}

void sherd__unpin(const sherd__pinning *before)
{
    if (before->pinned)
        sched_setaffinity(0, sizeof before->set, &before->set);
}
