/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of the program's own that the ranks of a mesh reduce, as MPI_Allreduce does: partial
 * inner products of an iterative solver, the longest step that is stable, a count. What is summed
 * is not a tensor, and nothing is recorded for backward.
 *
 *     double sums[2] = {norm * norm, 1}; // of this rank
 *     if (sherd_reduce_numbers(sums, 2, mesh, SHERD_SUM))
 *         printf("%g %g\n", sums[0], sums[1]);
 *     if (sherd_world_check(world)) // all ranks branch alike
 *         return 1;
 */
#ifndef SHERD_NUMBERS_H
#define SHERD_NUMBERS_H

#include "layout.h"

SHERD_BEGIN

enum { SHERD_MAX_NUMBERS = 4096 };

/**
 * Replace each of some numbers by its sum, average, minimum, maximum or product over the ranks of a
 * mesh; of a sub-mesh, over those along its axes. Returns whether they are reduced. Otherwise the
 * alarm is raised, and the numbers are as they were; another rank may have got them, so branch on
 * the status of sherd_world_check.
 *
 * Each rank gets the numbers of all others in one call, so this is for a few. For many, make a
 * pending tensor of them (sherd_from_local). For sums that do not depend on how many ranks there
 * are, sum a tensor: sherd_sum_exact.
 *
 * @collective the mesh; in a dry world (dry.h) the other ranks count as passing the same numbers
 * @shapes     numbers: [count], at most SHERD_MAX_NUMBERS; count 0 or less: nothing to do
 * @numerics   in the order of the ranks in the mesh, so all ranks get the same bits. NaN is the
 *             largest and the smallest number
 * @owns       `numbers` is the caller's
 * @errors     by the alarm: EINVAL NULL, an unknown reduction, this rank is not in the mesh; ELIMIT
 *             more numbers; ENOTSUP a paper world; EDIFFER ranks pass different counts or
 *             reductions; ENOMEM; EPEER; ETIMEDOUT
 */
SHERD_API bool sherd_reduce_numbers(double *numbers, int count, const sherd_mesh *mesh,
                                    sherd_reduce_op op);

SHERD_END

#endif
