/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of the ranks of an MPI communicator, for programs that use MPI themselves. It is in a library of its own, one
 * for each MPI: sherd::mpi in CMake. A program that merely runs under mpirun or srun needs none of this: sherd_world_open()
 * joins by itself.
 */
#ifndef SHERD_MPI_H
#define SHERD_MPI_H

#include <mpi.h>

#include "world.h"

SHERD_BEGIN

/**
 * Open a world of the ranks of a communicator, which may be a part of MPI_COMM_WORLD.
 *
 * Its ranks are the communicator's, in its order. MPI must have been started, with MPI_THREAD_FUNNELED at most asked of it:
 * all calls come from the thread that uses the world. sherd's messages go over a duplicate, and never meet the caller's.
 *
 * @collective the communicator
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close, before MPI_Finalize; `comm` stays the caller's and is not
 *             kept; NULL on failure
 * @errors     EINVAL MPI is not running, a NULL communicator or one of two groups, options out of range, a price file that
 *             can not be read or is none; ENOTSUP memory of a rank of this machine can not be opened; ENOMEM; ELIMIT more than SHERD_MAX_RANKS; EPEER
 */
SHERD_CALL sherd_status sherd_world_open_mpi(sherd_world **out, MPI_Comm comm,
                                             const sherd_world_options *options);

SHERD_END

#endif
