/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a benchmark meet: memory that they share beside the world, and a barrier that
 * is not the library's. */
#ifndef SHERD_BENCH_MEETING_H
#define SHERD_BENCH_MEETING_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

typedef struct meeting {
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) _Atomic int turn;
    double times[64];
} meeting;

/* Call it before the ranks are started. NULL: no memory. */
static inline meeting *open_meeting(void)
{
    void *memory =
        mmap(NULL, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static inline void meet(meeting *m, int ranks)
{
    int turn = atomic_load(&m->turn);

    if (atomic_fetch_add(&m->arrived, 1) == ranks - 1) {
        atomic_store(&m->arrived, 0);
        atomic_store(&m->turn, turn + 1);
        return;
    }
    while (atomic_load(&m->turn) == turn)
        if (ranks > 2)
            sched_yield();
}

/* The most of all ranks' numbers. */
static inline double meet_most(meeting *m, int ranks, int me, double mine)
{
    double most = 0;

    m->times[me] = mine;
    meet(m, ranks);
    for (int q = 0; q < ranks; q++)
        most = m->times[q] > most ? m->times[q] : most;
    meet(m, ranks);
    return most;
}

#endif
