/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of work that take turns on ranks that are processes: medians of the time until the last
 * rank is done, and three numbers of each result, a line for each kind, as bench/beside.py reads
 * them. Options: RANKS and ROUNDS.
 */
#ifndef BENCH_KINDS_H
#define BENCH_KINDS_H

#include <math.h>
#include <stdio.h>

#include <sherd.h>

#include "command_line.h"
#include "processes.h"
#include "timing.h"

enum { MOST_KINDS = 16, MOST_ROUNDS = 101 };

typedef struct bench_kinds {
    int count;
    const char *(*name)(int kind);
    /* Once, from equal contents; false: failed. */
    bool (*measure)(sherd_world *world, const sherd_mesh *mesh, int kind, double *seconds);
    /* Numbers that a peer must find too; NaN: failed. */
    void (*look)(sherd_world *world, const sherd_mesh *mesh, int kind, double number[3]);
} bench_kinds;

typedef struct kinds_job {
    const bench_kinds *of;
    int64_t ranks, rounds;
} kinds_job;

static int kinds_body(sherd_world *world, void *payload)
{
    static double time[MOST_KINDS][MOST_ROUNDS];
    const kinds_job *j = payload;
    const bench_kinds *of = j->of;
    const sherd_mesh *mesh = NULL;
    bool good = sherd_mesh_create(&mesh, world, 1, &j->ranks, NULL, NULL) == SHERD_OK;

    for (int64_t round = 0; round < j->rounds && good; round++)
        for (int i = 0; i < of->count && good; i++)
            good = of->measure(world, mesh, i, &time[i][round]);
    for (int i = 0; i < of->count && good; i++) {
        double number[3];
        of->look(world, mesh, i, number);
        if (sherd_world_rank(world) == 0)
            printf("%-14s %9.3f ms  %.12g %.12g %.12g\n", of->name(i),
                   1e3 * median(time[i], (int)j->rounds), number[0], number[1], number[2]);
    }
    if (!good || sherd_world_check(world) != SHERD_OK) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    return 0;
}

static int run_kinds(int argc, char **argv, const bench_kinds *of)
{
    kinds_job j = {.of = of, .ranks = 2, .rounds = 7};
    const bench_option options[] = {{NULL, "RANKS", .number = &j.ranks, .most = SHERD_MAX_RANKS},
                                    {NULL, "ROUNDS", .number = &j.rounds, .most = MOST_ROUNDS}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    return run_processes(j.ranks, kinds_body, &j);
}

#endif
