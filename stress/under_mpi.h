/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of a round under mpirun. */
#ifndef STRESS_UNDER_MPI_H
#define STRESS_UNDER_MPI_H

#include "round.h"

/* Run the world that was drawn from `seed` under the round's launcher: what sherd_spawn would say
 * is in the job. */
void run_under_mpi(job *j, uint64_t seed);
/* What such a rank's main returns. */
int be_rank_of(const char *path);

#endif
