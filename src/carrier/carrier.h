/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share. They are compiled once for each MPI, and are no part of
 * libsherd.
 */
#ifndef SHERD__CARRIER_CARRIER_H
#define SHERD__CARRIER_CARRIER_H

#include <mpi.h>

#include "sherd/carrier.h"

/*
 * A carrier over a duplicate of a communicator; collective on it. The text says why it failed:
 * ETIMEDOUT (a rank has not come), ENOMEM or EINVAL. `poor`: the caller has no memory for what it
 * needs itself; this rank still meets the others, and all get ENOMEM.
 */
sherd_status sherd__mpi_carrier(sherd_carrier *out, MPI_Comm comm, bool poor, char *text,
                                size_t room);

/* Seconds of SHERD_TIMEOUT, infinite for none; what is wrong with it the world says later. */
double sherd__mpi_timeout(void);

enum { SHERD__TIMED_OUT = -1 /* no error of MPI's: those are > 0 */ };

/*
 * Wait until a request is done: MPI_SUCCESS, MPI's error, or SHERD__TIMED_OUT after SHERD_TIMEOUT.
 * MPI itself would wait for ever for a rank that does not come, and what it has begun cannot be
 * taken back: unless this has succeeded, the memory of the request must stay.
 */
int sherd__mpi_await(MPI_Request *request);

/* sherd__mpi_carrier, and it says so where MPI_Finalize has been called: ended.c. */
sherd_status sherd__mpi_ranks(sherd_carrier *out, MPI_Comm comm, char *text, size_t room);

/*
 * The entry point of a module that libsherd loads (launch/module.c): initialises MPI if nobody has,
 * and connects all its ranks. Once for each world of the process. The text says why it failed.
 */
SHERD_API sherd_status sherd_carrier_open(sherd_carrier *out, char *text, size_t room);

/*
 * hydra.c: whether MPICH's launcher has closed its connection to this rank: an earlier program of
 * the rank has ended MPI.
 */
bool sherd__hydra_has_hung_up(void);

/*
 * hydra.c: end this rank of a job of MPICH without MPI_Finalize, where that would hang; collective.
 * False: MPI_Finalize is to do it.
 */
bool sherd__hydra_end(void);

#endif
