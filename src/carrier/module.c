/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module that libsherd loads under a launcher of this MPI. MPI can be started once in a process
 * and must be ended by whoever started it, but a process may open several worlds one after the
 * other: so where the module has started it, MPI ends with the process, and only if all worlds were
 * closed well. A rank that leaves a world open does not end MPI, which would wait for the others:
 * the launcher sees that, and ends the job.
 */
#include "carrier.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* MPI is one of a process, and so is this: the only data of sherd that is. */
static struct {
    int process; /* that has started MPI; 0 = none: its end is not ours */
    int open;    /* worlds */
    bool lost;   /* one was not closed well */
    void (*close)(void *self, bool well);
} mpi;

static void end_mpi(void)
{
    int over = 1;

    if (mpi.process != (int)getpid() || mpi.open || mpi.lost)
        return;
    MPI_Finalized(&over);
    if (!over && !sherd__hydra_end())
        MPI_Finalize();
}

static void close_counted(void *self, bool well)
{
    mpi.open--;
    mpi.lost |= !well;
    mpi.close(self, well);
}

static bool start(char *text, size_t room)
{
    int started = 0, over = 0, given;

    MPI_Finalized(&over);
    MPI_Initialized(&started);
    if (over) {
        snprintf(text, room, "MPI has been ended (MPI_Finalize) before the world was opened");
        return false;
    }
    if (started)
        return true;
    if (sherd__hydra_has_hung_up()) {
        snprintf(text, room,
                 "an earlier program of this rank has ended MPI, and MPICH's launcher takes one "
                 "program for each rank: start this one with an mpirun of its own");
        return false;
    }
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given)) {
        snprintf(text, room, "MPI does not start (MPI_Init_thread)");
        return false;
    }
    mpi.process = (int)getpid();
    atexit(end_mpi);
    return true;
}

sherd_status sherd_carrier_open(sherd_carrier *out, char *text, size_t room)
{
    if (!start(text, room))
        return SHERD_EINVAL;
    sherd_status status = sherd__mpi_ranks(out, MPI_COMM_WORLD, text, room);
    mpi.lost |= status == SHERD_ETIMEDOUT; /* MPI would wait for that rank */
    if (status)
        return status;
    mpi.close = out->close;
    out->close = close_counted;
    mpi.open++;
    return SHERD_OK;
}
