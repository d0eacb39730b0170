/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench/calls.c times, by MPI: mpirun -n 2 calls_mpi [--size BYTES]. The same vectors of f32, the same sets of buffers in turns, and
 * as many turns in a sample; medians over rounds of the slowest rank's time, and every result is checked. Vectors of fewer elements
 * than ranks are left out where MPI wants pieces of one size.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { GATHER, REDUCE, SCATTER, EXCHANGE, KINDS };
enum { SETS = 3, ROUNDS = 15 };

static const char *const kind_names[KINDS] = {"all-gather", "all-reduce", "reduce-scatter",
                                              "all-to-all"};
static const int64_t sizes[] = {8, 4096, 65536, 1 << 20, 16 << 20, 32 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

typedef struct bench {
    int ranks, me;
    int n, piece; /* elements of the vector, and of a rank's part of it */
    float *source[SETS], *result[SETS];
    int64_t wrong;
} bench;

static float value(int64_t i, int rank, int round)
{
    return (float)((i * 3 + rank * 5 + round) % 64);
}

static void run_once(const bench *b, int kind, int set)
{
    const float *from = b->source[set];
    float *to = b->result[set];

    if (kind == GATHER)
        MPI_Allgather(from, b->piece, MPI_FLOAT, to, b->piece, MPI_FLOAT, MPI_COMM_WORLD);
    else if (kind == REDUCE)
        MPI_Allreduce(from, to, b->n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (kind == SCATTER)
        MPI_Reduce_scatter_block(from, to, b->piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Alltoall(from, b->piece, MPI_FLOAT, to, b->piece, MPI_FLOAT, MPI_COMM_WORLD);
}

static float wanted(const bench *b, int kind, int i, int round)
{
    int from = b->piece ? i / b->piece : 0, at = b->piece ? i % b->piece : 0;
    float sum = 0;

    if (kind == GATHER)
        return value(at, from, round);
    if (kind == EXCHANGE)
        return value(at + (int64_t)b->me * b->piece, from, round);
    for (int q = 0; q < b->ranks; q++)
        sum += value(i + (kind == SCATTER ? (int64_t)b->me * b->piece : 0), q, round);
    return sum;
}

static void check(bench *b, int kind, int set, int round)
{
    int count = kind == SCATTER ? b->piece : kind == REDUCE ? b->n : b->piece * b->ranks;

    for (int i = 0; i < count; i++)
        b->wrong += b->result[set][i] != wanted(b, kind, i, round + set);
}

/* Seconds of one turn. */
static double sample(bench *b, int kind, int64_t bytes, int round)
{
    int turns = bytes <= 65536 ? 34 * SETS : bytes <= 1 << 20 ? 4 * SETS : SETS;
    double mine, most;

    for (int set = 0; set < SETS; set++) {
        for (int i = 0; i < b->n; i++)
            b->source[set][i] = value(i, b->me, round + set);
        run_once(b, kind, set);
        check(b, kind, set, round);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds();
    for (int i = 0; i < turns; i++)
        run_once(b, kind, i % SETS);
    mine = (seconds() - start) / turns;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void run_size(bench *b, int64_t bytes)
{
    double times[KINDS][ROUNDS];

    b->n = (int)(bytes / 4);
    b->piece = b->n / b->ranks;
    for (int set = 0; set < SETS; set++) {
        b->source[set] = calloc((size_t)b->n, sizeof(float));
        b->result[set] = calloc((size_t)b->n, sizeof(float));
        if (!b->source[set] || !b->result[set])
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < KINDS; k++)
            if (k == REDUCE || b->piece)
                times[k][round] = sample(b, k, bytes, round);
    for (int k = 0; k < KINDS && b->me == 0; k++)
        if (k == REDUCE || b->piece)
            printf("%-15s %9lld B %12.2f us\n", kind_names[k], (long long)bytes,
                   1e6 * median(times[k], ROUNDS));
    fflush(stdout);
    for (int set = 0; set < SETS; set++) {
        free(b->source[set]);
        free(b->result[set]);
    }
}

int main(int argc, char **argv)
{
    bench b = {.wrong = 0};
    bool sized = argc == 3 && strcmp(argv[1], "--size") == 0;

    if (argc > 1 && !sized)
        return fprintf(stderr, "calls_mpi [--size BYTES]\n"), 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.me);
    for (int s = 0; s < SIZES; s++)
        if (!sized || sizes[s] == atoll(argv[2]))
            run_size(&b, sizes[s]);
    if (b.wrong)
        fprintf(stderr, "rank %d: %lld wrong elements\n", b.me, (long long)b.wrong);
    MPI_Finalize();
    return b.wrong != 0;
}
