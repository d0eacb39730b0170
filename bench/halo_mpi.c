/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job of bench/halo.c as one writes it by hand with MPI: mpirun -n RANKS halo_mpi [--rounds N]
 * [--side N --fields N] [--dim D]. Three ways take turns: persistent sends of each face of each
 * field; persistent sends of one message to each neighbour, with the faces of all fields in one
 * datatype; and MPI_Neighbor_alltoallw with the same datatypes. Built where MPI is found. Where
 * ranks outnumber cores, tell MPI to yield: mpirun --oversubscribe --mca mpi_yield_when_idle 1
 * (Open MPI).
 */
#include <mpi.h>

#include "halo.h"

enum { SINGLE, JOINED, NEIGHBOUR, WAYS };

static const char *const way_names[WAYS] = {"MPI persistent, a face a message",
                                            "MPI persistent, all fields joined",
                                            "MPI_Neighbor_alltoallw"};

enum { GHOST_BEFORE, FACE_BEFORE, FACE_BEHIND, GHOST_BEHIND, PARTS }; /* layers of an array */

typedef struct bench {
    job job;
    double *cells[SETS][MOST_FIELDS];
    MPI_Datatype part[PARTS];         /* of one array */
    MPI_Datatype joined[SETS][PARTS]; /* of all arrays of a set, at their addresses */
    MPI_Request single[SETS][PARTS * MOST_FIELDS], all[SETS][PARTS];
    MPI_Comm ring;
    int64_t wrong;
    int turn;
} bench;

/* ---- the exchange ---------------------------------------------------------------------------- */

/* A layer of an array. */
static void make_part(bench *b, int part)
{
    const job *j = &b->job;
    int n = (int)j->size[j->dim], start[3] = {0, 0, 0}, size[3], cells[3];
    const int along[PARTS] = {0, 1, n, n + 1};

    for (int d = 0; d < 3; d++) {
        cells[d] = (int)j->cells[d];
        size[d] = d == j->dim ? 1 : cells[d];
    }
    start[j->dim] = along[part];
    MPI_Type_create_subarray(3, cells, size, start, MPI_ORDER_C, MPI_DOUBLE, &b->part[part]);
    MPI_Type_commit(&b->part[part]);
}

/* That layer of all arrays of a set. */
static void join_part(bench *b, int set, int part)
{
    int one[MOST_FIELDS];
    MPI_Aint address[MOST_FIELDS];
    MPI_Datatype type[MOST_FIELDS];

    for (int i = 0; i < b->job.fields; i++) {
        one[i] = 1;
        type[i] = b->part[part];
        MPI_Get_address(b->cells[set][i], &address[i]);
    }
    MPI_Type_create_struct(b->job.fields, one, address, type, &b->joined[set][part]);
    MPI_Type_commit(&b->joined[set][part]);
}

/* What goes to the neighbour before has an even tag, what goes to the one behind an odd one. */
static void init_requests(const bench *b, void *at, const MPI_Datatype *part, int tag,
                          MPI_Request *out)
{
    int before = (b->job.me + b->job.ranks - 1) % b->job.ranks;
    int behind = (b->job.me + 1) % b->job.ranks;

    MPI_Recv_init(at, 1, part[GHOST_BEFORE], before, tag + 1, MPI_COMM_WORLD, &out[0]);
    MPI_Recv_init(at, 1, part[GHOST_BEHIND], behind, tag, MPI_COMM_WORLD, &out[1]);
    MPI_Send_init(at, 1, part[FACE_BEFORE], before, tag, MPI_COMM_WORLD, &out[2]);
    MPI_Send_init(at, 1, part[FACE_BEHIND], behind, tag + 1, MPI_COMM_WORLD, &out[3]);
}

static void open_exchange(bench *b)
{
    for (int part = 0; part < PARTS; part++)
        make_part(b, part);
    for (int set = 0; set < SETS; set++) {
        for (int part = 0; part < PARTS; part++)
            join_part(b, set, part);
        init_requests(b, MPI_BOTTOM, b->joined[set], 0, b->all[set]);
    }
}

static void exchange(MPI_Request *request, int count)
{
    MPI_Startall(count, request);
    MPI_Waitall(count, request, MPI_STATUSES_IGNORE);
}

static void close_exchange(bench *b)
{
    for (int set = 0; set < SETS; set++)
        for (int part = 0; part < PARTS; part++) {
            MPI_Request_free(&b->all[set][part]);
            MPI_Type_free(&b->joined[set][part]);
        }
    for (int part = 0; part < PARTS; part++)
        MPI_Type_free(&b->part[part]);
}

/* ---- the other ways -------------------------------------------------------------------------- */

/* Where both neighbours are one rank, what it sends first must be what is received first. */
static void make_ring(bench *b)
{
    int before = (b->job.me + b->job.ranks - 1) % b->job.ranks;
    int behind = (b->job.me + 1) % b->job.ranks;
    const int from[2] = {before, behind}, to[2] = {behind, before}, weight[2] = {1, 1};

    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, weight, 2, to, weight, MPI_INFO_NULL, 0,
                                   &b->ring);
}

static void open_others(bench *b)
{
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            init_requests(b, b->cells[set][i], b->part, 2 + 2 * i, &b->single[set][PARTS * i]);
    make_ring(b);
}

static void exchange_by_neighbours(const bench *b, int set)
{
    static const int one[2] = {1, 1};
    static const MPI_Aint start[2] = {0, 0};
    const MPI_Datatype *part = b->joined[set];
    const MPI_Datatype send[2] = {part[FACE_BEHIND], part[FACE_BEFORE]};
    const MPI_Datatype receive[2] = {part[GHOST_BEFORE], part[GHOST_BEHIND]};

    MPI_Neighbor_alltoallw(MPI_BOTTOM, one, start, send, MPI_BOTTOM, one, start, receive, b->ring);
}

static void close_others(bench *b)
{
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < PARTS * b->job.fields; i++)
            MPI_Request_free(&b->single[set][i]);
    MPI_Comm_free(&b->ring);
}

/* ---- samples --------------------------------------------------------------------------------- */

static void take_turn(bench *b, int way, int set)
{
    b->turn++;
    for (int i = 0; i < b->job.fields; i++)
        job_mark(&b->job, b->cells[set][i], i, b->turn);
    if (way == SINGLE)
        exchange(b->single[set], PARTS * b->job.fields);
    else if (way == JOINED)
        exchange(b->all[set], PARTS);
    else
        exchange_by_neighbours(b, set);
    for (int i = 0; i < b->job.fields; i++)
        b->wrong += job_unmarked(&b->job, b->cells[set][i], i, b->turn);
}

/* Seconds of one exchange. */
static double sample(bench *b, int way, int round)
{
    int turns = job_turns(&b->job);
    double mine, most;

    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            job_dirty(&b->job, b->cells[set][i], i, round);
    MPI_Barrier(MPI_COMM_WORLD);
    mine = seconds();
    for (int i = 0; i < turns; i++)
        take_turn(b, way, i % SETS);
    mine = seconds() - mine;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            b->wrong += job_wrong(&b->job, b->cells[set][i], i, round);
    MPI_Barrier(MPI_COMM_WORLD);
    return most / turns;
}

static void open_arrays(bench *b)
{
    size_t bytes = (size_t)job_count(&b->job) * sizeof(double);

    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++) {
            b->cells[set][i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
            if (!b->cells[set][i])
                MPI_Abort(MPI_COMM_WORLD, 1);
            memset(b->cells[set][i], 0, bytes);
        }
}

static void run_case(bench *b, const asked *a, int fields, int64_t side)
{
    static double times[WAYS][MOST_ROUNDS];
    int me, ranks;

    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!job_set(&b->job, fields, side, a->dim, me, ranks)) {
        if (me == 0)
            printf("%lld^3 on %d ranks leaves one without a layer\n", (long long)side, ranks);
        return;
    }
    open_arrays(b);
    open_exchange(b);
    open_others(b);
    for (int round = -WARM; round < a->rounds; round++)
        for (int k = 0; k < WAYS; k++)
            times[k][round < 0 ? 0 : round] = sample(b, k, round + WARM);
    for (int k = 0; k < WAYS && me == 0; k++) {
        job_print(&b->job, way_names[k], times[k], a->rounds);
        putchar('\n');
    }
    close_others(b);
    close_exchange(b);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < fields; i++)
            free(b->cells[set][i]);
}

/* ---- the program ----------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    asked a = {.rounds = 21};
    bench b = {.wrong = 0};
    bool good = true;
    int64_t wrong = 0;

    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc && good; i++)
        good = job_option(&a, argc, argv, &i);
    if (!good || !job_good(&a)) {
        fprintf(stderr,
                "halo_mpi [--rounds N, up to %d] [--side N, up to 1024] [--fields N, up to "
                "%d] [--dim 0..2]\n",
                MOST_ROUNDS, MOST_FIELDS);
        MPI_Finalize();
        return 2;
    }
    if (a.side)
        run_case(&b, &a, a.fields ? a.fields : 4, a.side);
    for (int i = 0; i < USUAL && !a.side; i++)
        run_case(&b, &a, a.fields ? a.fields : usual[i].fields, usual[i].side);
    MPI_Allreduce(&b.wrong, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (wrong && b.job.me == 0)
        fprintf(stderr, "halo_mpi: %lld wrong elements\n", (long long)wrong);
    MPI_Finalize();
    return wrong ? 1 : 0;
}
