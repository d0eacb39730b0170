/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share. They are compiled once for each MPI, and are no part of
 * libsherd.
 */
#ifndef SHERD__CARRIER_H
#define SHERD__CARRIER_H

#include <mpi.h>

#include "sherd/carrier.h"

/*
 * A carrier over a duplicate of a communicator; collective on it. The text says why it failed:
 * ETIMEDOUT (a rank has not come), ENOMEM or EINVAL.
 */
sherd_status sherd__mpi_carrier(sherd_carrier *out, MPI_Comm comm, char *text, size_t room);

/* The same, and it says so where MPI_Finalize has been called: ended.c. */
sherd_status sherd__mpi_ranks(sherd_carrier *out, MPI_Comm comm, char *text, size_t room);

/*
 * The door of a module that libsherd loads (launch/module.c): MPI is started if nobody has, and all
 * its ranks are brought together. Once for each world of the process. The text says why it failed.
 */
SHERD_API sherd_status sherd_carrier_open(sherd_carrier *out, char *text, size_t room);

/*
 * hydra.c: end this rank of a job of MPICH without MPI_Finalize, where that would hang; collective.
 * False: MPI_Finalize is to do it.
 */
bool sherd__hydra_end(void);

#endif
