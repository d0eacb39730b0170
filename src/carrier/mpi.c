/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI as a carrier. The duplicate of the communicator keeps what is sent here apart from what the program sends; errors
 * come back instead of ending the job.
 */
#include "carrier.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct carrier {
    MPI_Comm comm;
} carrier;

/* Which MPI this is. */
static const char *own_name(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    MPI_Get_library_version(text, &length);
    return strncmp(text, "Open MPI", 8) == 0 ? "Open MPI"
           : strncmp(text, "MPICH", 5) == 0  ? "MPICH"
                                             : "MPI";
}

static bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    carrier *c = self;

    return bytes <= INT_MAX && MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                             c->comm) == MPI_SUCCESS;
}

static void close_carrier(void *self, bool well)
{
    carrier *c = self;
    int over = 1;

    MPI_Finalized(&over);
    /* To free it is collective: where ranks are lost it stays. */
    if (well && !over)
        MPI_Comm_free(&c->comm);
    free(c);
}

static bool say(char *text, size_t room, int error, const char *what)
{
    char reason[MPI_MAX_ERROR_STRING] = "?";
    int length;

    MPI_Error_string(error, reason, &length);
    snprintf(text, room, "%s: %s: %s", own_name(), what, reason);
    return false;
}

bool sherd__mpi_carrier(sherd_carrier *out, MPI_Comm comm, char *text, size_t room)
{
    carrier *c = calloc(1, sizeof *c);
    int error;

    if (!c) {
        snprintf(text, room, "%s: out of memory", own_name());
        return false;
    }
    if ((error = MPI_Comm_dup(comm, &c->comm))) {
        free(c);
        return say(text, room, error, "no duplicate of the communicator");
    }
    MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    *out = (sherd_carrier){.version = SHERD_CARRIER_VERSION,
                           .name = own_name(),
                           .self = c,
                           .gather = gather,
                           .close = close_carrier};
    MPI_Comm_rank(c->comm, &out->rank);
    MPI_Comm_size(c->comm, &out->ranks);
    return true;
}
