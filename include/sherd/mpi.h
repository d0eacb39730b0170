/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of the ranks of an MPI communicator, for programs that use MPI themselves. It is in a
 * separate library, one for each MPI: sherd::mpi in CMake. A program that merely runs under mpirun
 * or srun does not need it: sherd_world_open() joins by itself.
 */
#ifndef SHERD_MPI_H
#define SHERD_MPI_H

#include <mpi.h>

#include "world.h"

SHERD_BEGIN

/**
 * Open a world of the ranks of a communicator, which may be a part of MPI_COMM_WORLD.
 *
 * The world's ranks are the communicator's, in its order. The caller has initialised MPI;
 * MPI_THREAD_FUNNELED is enough, since all MPI calls are made by the thread that uses the world.
 * sherd sends its messages on a duplicate of the communicator, so they never meet the caller's.
 * Programs that this process starts afterwards are not ranks. In a dry run (`sherd dry`) the world
 * is the one that was asked for: it has more ranks than the communicator, which has one.
 *
 * @collective the communicator
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close, before MPI_Finalize; `comm` stays the
 *             caller's and is not kept; NULL on failure
 * @errors     EINVAL MPI is not running, MPI_COMM_NULL or an intercommunicator, MPI_COMM_WORLD has
 *             one rank where the launcher has started several (`sherd run`, or the mpirun of
 *             another MPI), options out of range, a broken environment, a price file that cannot
 *             be read or parsed; ENOTSUP the memory of a rank of
 *             this machine cannot be opened; ETIMEDOUT a rank of the communicator did not call it
 *             within SHERD_TIMEOUT: MPI can not take that back, so end the job with MPI_Abort;
 *             EDIFFER ranks differ in their options; ENOMEM; ELIMIT more than SHERD_MAX_RANKS;
 *             EPEER
 */
SHERD_CALL sherd_status sherd_world_open_mpi(sherd_world **out, MPI_Comm comm,
                                             const sherd_world_options *options);

SHERD_END

#endif
