/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which MPI has started this process: its launchers leave their marks in the environment. A
 * program that a rank starts inherits these marks, but is no rank: so the process that joins leaves
 * a mark of its own, with its pid and start time in it. Costs some getenv.
 */
#include "carried.h"
#include "watch.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

/* The most specific first: the last may be of either MPI. */
static const sherd__mpi_mark marks[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"openmpi", NULL}},
    {"PMI_RANK", "PMI_SIZE", {"mpich", NULL}},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", {"openmpi", "mpich"}},
};

const sherd__mpi_mark *sherd__mark_find(void)
{
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (getenv(marks[i].rank))
            return &marks[i];
    return NULL;
}

int sherd__mark_ranks(const sherd__mpi_mark *mark)
{
    const char *text = getenv(mark->ranks);
    return text ? atoi(text) : 0;
}

bool sherd__is_in_job(void)
{
    const sherd__mpi_mark *mark = sherd__mark_find();

    return mark && sherd__mark_ranks(mark) != 1;
}

uint64_t sherd__carrier_marks(void)
{
    static const char *const jobs[] = {"PMIX_NAMESPACE", "PMI_FD", "PMI_PORT", "SLURM_STEP_ID"};
    uint64_t hash = 0;

    if (!sherd__mark_find())
        return 0;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] + sizeof jobs / sizeof jobs[0]; i++) {
        size_t job = i - sizeof marks / sizeof marks[0];
        const char *text = getenv(i < sizeof marks / sizeof marks[0] ? marks[i].rank : jobs[job]);
        hash = sherd__hash_text(hash, text ? text : "");
    }
    return hash ? hash : 1;
}

/* ---- the mark of who has joined -------------------------------------------------------------- */

static const char mark_name[] = "SHERD_CARRIED";

static bool read_mark(int *pid, unsigned long long *start, int *open)
{
    const char *text = getenv(mark_name);
    return text && sscanf(text, "%d %llu %d", pid, start, open) == 3;
}

/* Whether the mark is this process's own; *other: it is that of another. */
static bool is_mine(bool *other, bool *open)
{
    unsigned long long start;
    sherd__process self;
    int pid, said = 0;

    bool there = read_mark(&pid, &start, &said);
    bool mine = there && sherd__process_look(0, &self) && self.pid == pid && self.start == start;
    *other = there && !mine;
    *open = mine && said;
    return mine;
}

bool sherd__is_carried(void)
{
    bool other, open;

    (void)is_mine(&other, &open);
    return sherd__is_in_job() && !other;
}

bool sherd__has_joined(void)
{
    bool other, open;

    return is_mine(&other, &open) && open;
}

bool sherd__say_joined(bool open)
{
    sherd__process self;
    char text[64];

    if (!sherd__process_look(0, &self))
        return true; /* without /proc nobody could read it either */
    snprintf(text, sizeof text, "%d %llu %d", self.pid, (unsigned long long)self.start, open);
    return setenv(mark_name, text, 1) == 0;
}

bool sherd__leave_job(void)
{
    bool other, open;

    return !sherd__mark_find() || is_mine(&other, &open) || other || sherd__say_joined(false);
}
