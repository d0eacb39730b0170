/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of the ranks of an MPI communicator, for programs that call MPI themselves. It is in a
 * library of its own for each MPI: sherd::mpi_openmpi and sherd::mpi_mpich in CMake,
 * sherd-mpi-openmpi and sherd-mpi-mpich for pkg-config. A program that only runs under mpirun or
 * srun does not need it: sherd_world_open() joins by itself.
 *
 *     MPI_Init(&argc, &argv);
 *     sherd_world *world;
 *     if (sherd_world_open_mpi(&world, MPI_COMM_WORLD, NULL))
 *         MPI_Abort(MPI_COMM_WORLD, 1);
 *     // ... compute ...
 *     sherd_status status = sherd_world_close(world); // before MPI_Finalize
 *     MPI_Finalize();
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
 * sherd sends its messages on a duplicate of the communicator, so they do not mix with the
 * caller's. Ranks are not pinned: what the launcher has bound them to stays, also for threads that
 * the caller starts later. Programs that this process starts afterwards are not ranks. In a dry run
 * (`sherd dry`) the communicator has one rank, and the world as many as the dry run is for.
 *
 * @collective the communicator
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close, before MPI_Finalize; `comm` stays the
 *             caller's and is not kept; NULL on failure
 * @errors     EINVAL MPI is not initialised, MPI_COMM_NULL or an intercommunicator, MPI_COMM_WORLD
 *             has one rank although the launcher has started several (`sherd run`, or the mpirun of
 *             another MPI), options out of range, a broken environment, a price file that cannot be
 *             read or parsed; ENOTSUP the memory of a rank of this machine cannot be opened;
 *             ETIMEDOUT a rank of the communicator did not make this call within SHERD_TIMEOUT (MPI
 *             calls cannot be undone, so end the job with MPI_Abort); EDIFFER ranks differ in their
 *             options; ENOMEM; ELIMIT more than SHERD_MAX_RANKS; EPEER
 */
SHERD_CALL sherd_status sherd_world_open_mpi(sherd_world **out, MPI_Comm comm,
                                             const sherd_world_options *options);

SHERD_END

#endif
