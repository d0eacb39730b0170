/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that the ranks of a mesh exchange, and join in rank order, so that all get the same bits.
 */
#ifndef SHERD__NN_NUMBERS_H
#define SHERD__NN_NUMBERS_H

#include "world/world.h"

enum { SHERD__NUMBERS = 4 }; /* that a rank sends at once, at most */

/*
 * numbers[count] of each rank of a mesh into all[ranks * count], one rank after the other; of this
 * rank alone where the mesh is NULL. `all` was allocated. False: the alarm is raised.
 */
bool sherd__numbers_share(sherd_world *world, const sherd_mesh *mesh, const char *function,
                          const double *numbers, int count, double *all);

/* Whether there is a p-norm; false: the alarm is raised. */
bool sherd__norm_exists(sherd_world *world, const char *function, double p);
/* What a p-norm is made of: a sum of powers, or the largest if p is infinite; and the norm. */
double sherd__norm_join(double p, double a, double b);
double sherd__norm_of(double p, double joined);

/* The i-th of `count` numbers, of which `all` has those of all ranks, joined over them. */
double sherd__numbers_join(double p, const double *all, int64_t ranks, int count, int i);

#endif
