/* SPDX-License-Identifier: Apache-2.0 */
/* Watching over a round from outside: a process that is in no world, and outlives whatever happens
 * in one. */
#ifndef STRESS_WATCH_H
#define STRESS_WATCH_H

#include "board.h"

/* What came of a round. */
typedef struct outcome {
    bool bad;
    double seconds; /* from its start to its end */
    double
        pause; /* the longest time in which no rank did anything, less what all waited for a core */
    double told; /* from a blow to the last rank that learned of it; 0 if there was none */
    char wrong[1400];
} outcome;

/* Run a round in a process of its own, strike where the plan says so, and see that nothing is
 * left. */
void watch_round(outcome *out, const round_plan *r, board *b, int output, bool print);
/* Files of worlds in /dev/shm. */
int shared_files(void);
double now_seconds(void);

#endif
