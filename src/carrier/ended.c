/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A carrier that outlives MPI: a program may call MPI_Finalize, and close its world afterwards, as
 * in a destructor of static data. MPI then ends the job at the first call, with a text of its own.
 * So each call of the world asks first, and what it gets is the text here. A few nanoseconds.
 */
#include "carrier.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct ended {
    sherd_carrier mpi;
    bool over;
} ended;

static const char late[] =
    "MPI_Finalize was called while the world was open: close the world first";

/* Whether MPI still takes calls. */
static bool is_running(ended *e)
{
    int over = 0;

    if (!e->over) {
        MPI_Finalized(&over);
        e->over = over;
    }
    return !e->over;
}

static bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    ended *e = self;
    return is_running(e) && e->mpi.gather(e->mpi.self, mine, bytes, all);
}

static bool send(void *self, int to, const sherd_message *message, sherd_sending *sending)
{
    ended *e = self;
    return is_running(e) && e->mpi.send(e->mpi.self, to, message, sending);
}

/* Without MPI nothing is pending any more, so all counts as sent. */
static bool sent(void *self, sherd_sending *sending)
{
    ended *e = self;
    return !is_running(e) || e->mpi.sent(e->mpi.self, sending);
}

static bool receive(void *self, int *from, sherd_message *out, const sherd_room *room)
{
    ended *e = self;
    return is_running(e) && e->mpi.receive(e->mpi.self, from, out, room);
}

static void near(void *self, const bool *here)
{
    ended *e = self;
    e->mpi.near(e->mpi.self, here);
}

static bool has_failed(void *self, char *text, size_t room)
{
    ended *e = self;

    if (is_running(e))
        return e->mpi.has_failed(e->mpi.self, text, room);
    snprintf(text, room, "%s: %s", e->mpi.name, late);
    return true;
}

/* Nobody can ask a closed world for its error; MPI_Finalize is of all ranks, so one says it. */
static void close_both(void *self, bool well)
{
    ended *e = self;

    if (e->over && e->mpi.rank == 0)
        fprintf(stderr, "sherd: rank 0: %s\n", late);
    e->mpi.close(e->mpi.self, well);
    free(e);
}

sherd_status sherd__mpi_ranks(sherd_carrier *out, MPI_Comm comm, char *text, size_t room)
{
    ended *e = calloc(1, sizeof *e);
    sherd_status status = sherd__mpi_carrier(out, comm, !e, text, room);

    if (!e || status) { /* without memory here it fails on all ranks */
        free(e);
        return status;
    }
    e->mpi = *out;
    out->self = e;
    out->gather = gather;
    out->send = send;
    out->sent = sent;
    out->receive = receive;
    out->near = near;
    out->has_failed = has_failed;
    out->close = close_both;
    return SHERD_OK;
}
