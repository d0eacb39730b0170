/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinning. Where every rank can have a core (cores.c) it is pinned to it: otherwise two ranks may
 * share one for seconds while another is idle, and each flag between them then costs microseconds
 * instead of a tenth of one.
 */
#include "pin.h"

int sherd__cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return CPU_COUNT(&set);
}

sherd__pinning sherd__pin(const sherd__post *post)
{
    sherd__pinning before = {.pinned = false};
    uint64_t core = sherd__look(&post->core);
    cpu_set_t one;

    if (core == 0 || core > CPU_SETSIZE || sched_getaffinity(0, sizeof before.set, &before.set))
        return before;
    CPU_ZERO(&one);
    CPU_SET((size_t)core - 1, &one);
    before.pinned = sched_setaffinity(0, sizeof one, &one) == 0;
    return before;
}

void sherd__unpin(const sherd__pinning *before)
{
    if (before->pinned)
        sched_setaffinity(0, sizeof before->set, &before->set);
}
