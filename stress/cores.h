/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a round want of the machine, seen from outside. */
#ifndef STRESS_CORES_H
#define STRESS_CORES_H

#include <sys/types.h>

enum { CORES_PROCESSES = 128, CORES_THREADS = 512 };

/* How long each of their threads has been ready without a core until now, in seconds. */
typedef struct cores {
    int processes, threads;
    pid_t process[CORES_PROCESSES], thread[CORES_THREADS];
    double waited[CORES_THREADS];
} cores;

/* Add a process and all that descend from it: mpirun's ranks are known to the round only once they
 * have joined. Those that are there already are left out. */
void cores_add(cores *c, pid_t pid);
/* The longest that one of their threads has waited between two looks. */
double cores_lost(const cores *before, const cores *after);

#endif
