/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives beside MPI's, in one program, in turns: mpirun -n RANKS collectives_mpi [--size
 * BYTES] [--rounds N]. All-reduce (also as a reduce-scatter and an all-gather), all-gather,
 * reduce-scatter and all-to-all of vectors of f32: by sherd's public calls, in the arena or, with
 * SHERD_TRANSPORT=mpi, by messages; by MPI; and a copy of the same bytes by every rank. Bytes are
 * what a rank holds in the end (all-gather), before and after (all-reduce, all-to-all), or before
 * (reduce-scatter). Three sets of buffers take turns; sources are rewritten before each sample,
 * every result is checked. Prints for each rank 0's view of the slowest rank: medians in
 * microseconds. bench/collectives.py runs it with each MPI and some ranks.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_line.h"
#include "timing.h"
#include <sherd.h>
#include <sherd/mpi.h>

enum { REDUCE, GATHER, SCATTER, EXCHANGE, KINDS };
enum { SHERD, MPI, COPY, WAYS };
enum { SETS = 3, MOST_ROUNDS = 99 };

static const char *const kind_names[KINDS] = {"all-reduce", "all-gather", "reduce-scatter",
                                              "all-to-all"};
static const char *const placements[KINDS][2] = {
    {"P", "R"}, {"S(0)", "R"}, {"P", "S(0)"}, {"S(0)", "S(1)"}};
static const int64_t sizes[] = {8, 4096, 65536, 1 << 20, 16 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

typedef struct bench {
    sherd_world *world;
    const sherd_mesh *mesh;
    int ranks, me, rounds;
    int n, piece; /* elements of the vector, and of a rank's part of it */
    const sherd_layout *from, *to;
    sherd_tensor *local[SETS], *whole[SETS]; /* one storage, as this rank's and as all ranks' */
    float *source[SETS], *result[SETS];      /* MPI's */
    int64_t wrong;
} bench;

static float value(int64_t i, int rank, int round)
{
    return (float)((i * 3 + rank * 5 + round) % 64);
}

static int held_before(const bench *b, int kind)
{
    return kind == GATHER ? b->piece : b->n;
}

static int held_after(const bench *b, int kind)
{
    return kind == SCATTER ? b->piece : b->n;
}

static float wanted(const bench *b, int kind, int i, int round)
{
    float sum = 0;

    if (kind == GATHER)
        return value(i % b->piece, i / b->piece, round);
    if (kind == EXCHANGE)
        return value(i % b->piece + (int64_t)b->me * b->piece, i / b->piece, round);
    for (int q = 0; q < b->ranks; q++)
        sum += value(i + (kind == SCATTER ? (int64_t)b->me * b->piece : 0), q, round);
    return sum;
}

static void must(const bench *b, bool good)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", sherd_world_error(b->world));
    exit(1);
}

/* ---- one turn -------------------------------------------------------------------------------- */

static void run_sherd(bench *b, int kind, int set, int check_round)
{
    sherd_scope_begin(b->world);
    sherd_tensor *moved = sherd_redistribute(b->whole[set], b->to, NULL);
    must(b, moved != NULL);
    if (check_round >= 0) {
        const float *x = sherd_tensor_read(moved);
        must(b, x != NULL);
        for (int i = 0; i < held_after(b, kind); i++)
            b->wrong += x[i] != wanted(b, kind, i, check_round + set);
    }
    sherd_scope_end(b->world);
}

static void run_mpi(bench *b, int kind, int set, int check_round)
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
    for (int i = 0; check_round >= 0 && i < held_after(b, kind); i++)
        b->wrong += to[i] != wanted(b, kind, i, check_round + set);
}

static void run_once(bench *b, int kind, int way, int set, int check_round)
{
    if (way == SHERD)
        run_sherd(b, kind, set, check_round);
    else if (way == MPI)
        run_mpi(b, kind, set, check_round);
    else
        memcpy(b->result[set], b->source[set], (size_t)b->n * sizeof(float));
}

/* Sources are rewritten, results checked; the turns that are timed are not. Seconds of one turn of
 * the slowest rank. */
static double sample(bench *b, int kind, int way, int round)
{
    int64_t bytes = b->n * (int64_t)sizeof(float);
    int turns = bytes <= 65536 ? 34 * SETS : bytes <= 1 << 20 ? 4 * SETS : SETS;
    double mine, most;

    for (int set = 0; set < SETS; set++) {
        float *x = way == SHERD ? sherd_tensor_write(b->local[set]) : b->source[set];
        must(b, x != NULL);
        for (int i = 0; i < held_before(b, kind); i++)
            x[i] = value(i, b->me, round + set);
        run_once(b, kind, way, set, round);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds();
    for (int i = 0; i < turns; i++)
        run_once(b, kind, way, i % SETS, -1);
    mine = (seconds() - start) / turns;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* ---- operations and sizes -------------------------------------------------------------------- */

static void make_tensors(bench *b, int kind)
{
    const int64_t line[1] = {b->n}, table[2] = {b->ranks, b->n};
    int ndim = kind == EXCHANGE ? 2 : 1;
    const int64_t *shape = kind == EXCHANGE ? table : line;

    must(b,
         !sherd_layout_parse_placements(&b->from, b->mesh, ndim, shape, placements[kind][0], NULL));
    must(b,
         !sherd_layout_parse_placements(&b->to, b->mesh, ndim, shape, placements[kind][1], NULL));
    sherd_box box = sherd_layout_box(b->from, b->me, 0);
    for (int set = 0; set < SETS; set++) {
        b->local[set] = sherd_from_data(b->world, SHERD_F32, box.size, ndim, b->result[set]);
        must(b, b->local[set] != NULL);
        b->whole[set] = sherd_from_local_as(b->local[set], b->from);
        must(b, b->whole[set] != NULL);
    }
}

static void run_kind(bench *b, int kind)
{
    double times[WAYS][MOST_ROUNDS];

    sherd_scope_begin(b->world);
    make_tensors(b, kind);
    for (int round = 0; round < b->rounds; round++)
        for (int way = 0; way < WAYS; way++)
            times[way][round] = sample(b, kind, way, round);
    sherd_scope_end(b->world);
    if (b->me)
        return;
    printf("%-15s %9lld B", kind_names[kind], 4 * (long long)b->n);
    for (int way = 0; way < WAYS; way++)
        printf(" %12.2f", 1e6 * median(times[way], b->rounds));
    printf("\n");
    fflush(stdout);
}

static void run_size(bench *b, int64_t bytes)
{
    b->n = (int)(bytes / 4);
    b->piece = b->n / b->ranks;
    for (int set = 0; set < SETS; set++) {
        b->source[set] = calloc((size_t)b->n, sizeof(float));
        b->result[set] = calloc((size_t)b->n, sizeof(float));
        if (!b->source[set] || !b->result[set])
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int k = 0; k < KINDS; k++)
        if (k == REDUCE || b->piece) /* MPI wants pieces of one size */
            run_kind(b, k);
    for (int set = 0; set < SETS; set++) {
        free(b->source[set]);
        free(b->result[set]);
    }
}

int main(int argc, char **argv)
{
    char error[SHERD_ERROR_BYTES] = "";
    bench b = {.wrong = 0};
    int64_t rounds = 11, size = 0;
    const bench_option options[] = {{"--rounds", "N", .number = &rounds, .most = MOST_ROUNDS},
                                    {"--size", "BYTES", .number = &size}};
    int given;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
    if (sherd_world_open_mpi(&b.world, MPI_COMM_WORLD, &(sherd_world_options){.error = error})) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    b.ranks = sherd_world_ranks(b.world);
    b.me = sherd_world_rank(b.world);
    b.rounds = (int)rounds;
    must(&b, !sherd_mesh_create(&b.mesh, b.world, 1, (int64_t[]){b.ranks}, NULL, NULL));
    if (b.me == 0)
        printf("%d ranks, transport %s; microseconds of sherd, MPI, copy\n", b.ranks,
               sherd_world_transport(b.world));
    for (int s = 0; s < SIZES; s++)
        if (!size || sizes[s] == size)
            run_size(&b, sizes[s]);
    if (b.wrong)
        fprintf(stderr, "rank %d: %lld wrong elements\n", b.me, (long long)b.wrong);
    int bad = sherd_world_close(b.world) != SHERD_OK || b.wrong;
    MPI_Finalize();
    return bad;
}
