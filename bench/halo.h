/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job that bench/halo.c and bench/halo_mpi.c both do: f64 fields of side^3, split along a dim,
 * each rank's piece in an array with one layer of ghost cells before and one behind in that dim,
 * periodic. What is in a cell says where it is and when it was written, so each side can see
 * whether a ghost cell is right.
 */
#ifndef SHERD_BENCH_HALO_H
#define SHERD_BENCH_HALO_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { MOST_FIELDS = 16, SETS = 3, WARM = SETS + 2, MOST_ROUNDS = 1000 };

/* What the command line asks for; 0 = the usual cases. */
typedef struct asked {
    int rounds, fields, dim;
    int64_t side;
} asked;

/* The usual cases: one dim, since all of them are cubes. */
static const struct {
    int fields;
    int64_t side;
} usual[] = {{4, 128}, {4, 8}, {1, 8}};

enum { USUAL = sizeof usual / sizeof usual[0] };

typedef struct job {
    int fields, dim, me, ranks;
    int64_t side;
    int64_t lo;      /* of this rank's piece along the dim */
    int64_t size[3]; /* of the piece */
    int64_t
        before; /* layers of ghosts before it, and behind it: 1, or 0 of an array that has none */
    int64_t cells[3]; /* with ghosts */
} job;

static inline int64_t job_cut(const job *j, int rank)
{
    int64_t chunk = (j->side + j->ranks - 1) / j->ranks, at = chunk * rank;

    return at < j->side ? at : j->side;
}

/* False: there is a rank without a layer. */
static inline bool job_set(job *j, int fields, int64_t side, int dim, int me, int ranks)
{
    *j = (job){.fields = fields, .dim = dim, .me = me, .ranks = ranks, .side = side, .before = 1};
    j->lo = job_cut(j, me);
    for (int d = 0; d < 3; d++)
        j->size[d] = j->cells[d] = d == dim ? job_cut(j, me + 1) - j->lo : side;
    j->cells[dim] += 2;
    return job_cut(j, ranks - 1) < side;
}

/* The same for arrays without ghosts. */
static inline job job_bare(const job *j)
{
    job bare = *j;

    bare.before = 0;
    bare.cells[j->dim] -= 2;
    return bare;
}

static inline int64_t job_count(const job *j)
{
    return j->cells[0] * j->cells[1] * j->cells[2];
}

/* Where a cell of the array is; `along` is 0 in the ghosts before, whether there are any or not. */
static inline int64_t job_place(const job *j, int64_t along, int64_t a, int64_t b)
{
    int64_t at[3] = {a, b, b};

    at[j->dim] = along - 1 + j->before;
    if (j->dim == 0)
        at[1] = a;
    return (at[0] * j->cells[1] + at[1]) * j->cells[2] + at[2];
}

/* Many turns of what is short; else each set of arrays once. */
static inline int job_turns(const job *j)
{
    return j->side * j->side * j->fields * 8 <= 8 << 10 ? 500 : SETS;
}

/* ---- what is in the cells -------------------------------------------------------------------- */

/* Exact in a double. `along`: from 0 to side - 1, in the whole field. */
static inline double job_value(int field, int64_t along, int64_t a, int64_t b, int round)
{
    return (double)((((int64_t)field * 1024 + along) * 1024 + a) * 1024 + b + round);
}

/* Write a whole piece. */
static inline void job_dirty(const job *j, double *cells, int field, int round)
{
    for (int64_t i = 0; i < j->size[j->dim]; i++)
        for (int64_t a = 0; a < j->side; a++)
            for (int64_t b = 0; b < j->side; b++)
                cells[job_place(j, i + 1, a, b)] = job_value(field, j->lo + i, a, b, round);
}

/* In each turn a corner of each face is written anew, so that no turn can be left out. */
static inline double job_stamp(int field, int turn)
{
    return -1 - (double)turn * MOST_FIELDS - field;
}

static inline void job_mark(const job *j, double *cells, int field, int turn)
{
    cells[job_place(j, 1, 0, 0)] = job_stamp(field, turn);
    cells[job_place(j, j->size[j->dim], 0, 0)] = job_stamp(field, turn);
}

static inline int job_unmarked(const job *j, const double *cells, int field, int turn)
{
    double wanted = job_stamp(field, turn);

    return (cells[job_place(j, 0, 0, 0)] != wanted) +
           (cells[job_place(j, j->size[j->dim] + 1, 0, 0)] != wanted);
}

/* How many ghost cells are wrong, but for the corners that have marks. */
static inline int64_t job_wrong(const job *j, const double *cells, int field, int round)
{
    int64_t n = j->size[j->dim], wrong = 0;

    for (int end = 0; end < 2; end++) {
        int64_t along = (j->lo + (end ? n : j->side - 1)) % j->side;
        for (int64_t at = 1; at < j->side * j->side; at++) {
            int64_t a = at / j->side, b = at % j->side;
            wrong +=
                cells[job_place(j, end ? n + 1 : 0, a, b)] != job_value(field, along, a, b, round);
        }
    }
    return wrong;
}

/* ---- what is printed ------------------------------------------------------------------------- */

static inline void job_print(const job *j, const char *name, double *times, int rounds)
{
    sort_times(times, rounds);
    printf("%d x %lld^3 by dim %d, %d ranks  %-34s %10.2f us (least %.2f)", j->fields,
           (long long)j->side, j->dim, j->ranks, name, 1e6 * times[rounds / 2], 1e6 * times[0]);
}

/* True: it was one of these, and *i is at its value. */
static inline bool job_option(asked *out, int argc, char **argv, int *i)
{
    const char *name = argv[*i];

    if (*i + 1 >= argc)
        return false;
    if (strcmp(name, "--rounds") == 0)
        out->rounds = atoi(argv[++*i]);
    else if (strcmp(name, "--fields") == 0)
        out->fields = atoi(argv[++*i]);
    else if (strcmp(name, "--side") == 0)
        out->side = atoll(argv[++*i]);
    else if (strcmp(name, "--dim") == 0)
        out->dim = atoi(argv[++*i]);
    else
        return false;
    return true;
}

static inline bool job_good(const asked *a)
{
    return a->rounds >= 1 && a->rounds <= MOST_ROUNDS && a->fields >= 0 &&
           a->fields <= MOST_FIELDS && a->side >= 0 && a->side <= 1024 && a->dim >= 0 && a->dim < 3;
}

#endif
