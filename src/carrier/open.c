/* SPDX-License-Identifier: Apache-2.0 */
/* A world of a communicator, for programs that use MPI themselves. */
#include "carrier.h"
#include "sherd/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sherd_status fail(const sherd_world_options *options, sherd_status status, const char *text)
{
    if (options && options->error)
        snprintf(options->error, SHERD_ERROR_BYTES, "sherd_world_open_mpi: %s", text);
    else
        fprintf(stderr, "sherd: sherd_world_open_mpi: %s\n", text);
    return status;
}

static sherd_status refuse(const sherd_world_options *options, const char *text)
{
    return fail(options, SHERD_EINVAL, text);
}

/*
 * Whether this process is one of several for whoever has started it, but alone for MPI: each of
 * them would have a world of its own, and do all the work.
 */
static bool is_cut_off(char *text, size_t room)
{
    static const char *const names[] = {"SHERD_RANKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    int known = 0, n = sizeof names / sizeof *names;

    MPI_Comm_size(MPI_COMM_WORLD, &known);
    for (int i = 0; known == 1 && i < n; i++) {
        const char *said = getenv(names[i]);
        if (!said || atoi(said) <= 1)
            continue;
        snprintf(text, room,
                 "%s is %.20s, but MPI_COMM_WORLD has one rank: start the program with the mpirun "
                 "of its MPI",
                 names[i], said);
        return true;
    }
    return false;
}

/* A text that comes from below names the function that was called there. */
static void name_this(char *text)
{
    static const char other[] = "sherd_world_open_with: ", this[] = "sherd_world_open_mpi: ";
    char *at = strstr(text, other);

    if (!at)
        return;
    memcpy(at, this, sizeof this - 1);
    memmove(at + sizeof this - 1, at + sizeof other - 1, strlen(at + sizeof other - 1) + 1);
}

sherd_status sherd_world_open_mpi(sherd_world **out, MPI_Comm comm,
                                  const sherd_world_options *options)
{
    sherd_world_options unpinned = options ? *options : (sherd_world_options){.no_pin = true};
    int started = 0, over = 0, two = 0;
    char text[SHERD_ERROR_BYTES - 32];
    sherd_carrier carrier;

    if (out) /* else all learn it below: the others are on their way */
        *out = NULL;
    MPI_Initialized(&started);
    MPI_Finalized(&over);
    if (!started || over)
        return refuse(options, "MPI is not running: call it between MPI_Init and MPI_Finalize");
    if (comm == MPI_COMM_NULL)
        return refuse(options, "the communicator is MPI_COMM_NULL: only its ranks open the world");
    if (MPI_Comm_test_inter(comm, &two) || two)
        return refuse(options, "the communicator is one of two groups: merge them first");
    if (is_cut_off(text, sizeof text))
        return refuse(options, text);
    sherd_status status = sherd__mpi_ranks(&carrier, comm, text, sizeof text);
    if (status)
        return fail(options, status, text);
    unpinned.no_pin = true; /* what the caller's threads are bound to is the caller's matter */
    status = sherd_world_open_with(out, &carrier, &unpinned);
    if (status && options && options->error)
        name_this(options->error);
    return status;
}
