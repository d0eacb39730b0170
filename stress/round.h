/* SPDX-License-Identifier: Apache-2.0 */
/* One world of a round: its programs, how it is started, and what must have come of it. */
#ifndef STRESS_ROUND_H
#define STRESS_ROUND_H

#include "run.h"

enum { TURNS = 4 };

typedef struct job {
    const round_plan *r;
    board *b;
    scene s;
    program p[TURNS];
    turn turn[TURNS];
    int turns;
    int rank_with_value, value; /* a rank whose body does not return 0 */
    /* what sherd_spawn said */
    sherd_status status;
    int exit_status;
    char error[SHERD_ERROR_BYTES];
    char said[1 << 16]; /* under mpirun: the first of what it and its ranks wrote */
} job;

/* Draw the programs of a world; false for lack of memory. */
bool draw_job(job *j, uint64_t seed);
void clear_job(job *j);
/* What a rank does. */
int run_rank(sherd_world *world, void *job);

/* judge.c: puts the first thing that is wrong on the board, and counts what was done. */
void judge(job *j);
void blame(board *b, const char *format, ...);

#endif
