/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A redistribution beside what one writes by hand with MPI, in one run, in turns: MPI_Alltoallw on
 * the boxes as subarrays, and boxes packed by hand for MPI_Alltoallv. mpirun -n 2 or 4 exchange_mpi
 * [most bytes]; SHERD_TRANSPORT=mpi lets sherd send messages, too. Each way's result is checked,
 * when the time is over on all ranks. Prints medians in microseconds, the slowest rank's, the ratio
 * to the best, and the Gbit/s of the rank that sends the most to others by sherd. Before each time
 * ranks leave a barrier one after the other, by context switches where they share cores, and what
 * the next barrier costs is in the time of who waits for the core; --row lets them make so many
 * moves for each time, with nothing in between.
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

enum { MOST_RANKS = 8, TURNS = 41, WAYS = 3 };
static const char *const ways[WAYS] = {"sherd", "Alltoallw", "packed Alltoallv"};

/* What one rank sends and gets: the meeting of each of its boxes with each of the others'. */
typedef struct exchange {
    int ranks;
    const sherd_layout *from, *to;
    sherd_box mine, wanted;
    int out[MOST_RANKS], in[MOST_RANKS], out_at[MOST_RANKS], in_at[MOST_RANKS]; /* elements */
    sherd_box sent[MOST_RANKS], got[MOST_RANKS];                                /* in the tensor */
    MPI_Datatype out_type[MOST_RANKS], in_type[MOST_RANKS];
    float *source, *result, *out_buffer, *in_buffer;
    int64_t row; /* moves for each time */
    MPI_Comm comm;
} exchange;

static int64_t count_of(const sherd_box *box)
{
    return box->size[0] * box->size[1];
}

static sherd_box meet(const sherd_box *a, const sherd_box *b)
{
    sherd_box box = {.ndim = 2};

    for (int d = 0; d < 2; d++) {
        int64_t lo = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
        int64_t end_a = a->offset[d] + a->size[d], end_b = b->offset[d] + b->size[d];
        int64_t hi = end_a < end_b ? end_a : end_b;
        box.offset[d] = lo;
        box.size[d] = hi > lo ? hi - lo : 0;
    }
    return box;
}

/* A box as a part of the array of `whole`. */
static MPI_Datatype type_of(const sherd_box *whole, const sherd_box *box)
{
    int sizes[2], subsizes[2], starts[2];
    MPI_Datatype type;

    for (int d = 0; d < 2; d++) {
        sizes[d] = (int)whole->size[d];
        subsizes[d] = (int)box->size[d];
        starts[d] = (int)(box->offset[d] - whole->offset[d]);
    }
    if (count_of(box) == 0)
        return MPI_FLOAT;
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

static void prepare(exchange *x, int rank)
{
    int out = 0, in = 0;

    x->mine = sherd_layout_box(x->from, rank, 0);
    x->wanted = sherd_layout_box(x->to, rank, 0);
    for (int q = 0; q < x->ranks; q++) {
        sherd_box theirs = sherd_layout_box(x->to, q, 0), from = sherd_layout_box(x->from, q, 0);
        x->sent[q] = meet(&x->mine, &theirs);
        x->got[q] = meet(&from, &x->wanted);
        x->out[q] = (int)count_of(&x->sent[q]);
        x->in[q] = (int)count_of(&x->got[q]);
        x->out_at[q] = out;
        x->in_at[q] = in;
        out += x->out[q];
        in += x->in[q];
        x->out_type[q] = type_of(&x->mine, &x->sent[q]);
        x->in_type[q] = type_of(&x->wanted, &x->got[q]);
    }
    x->source = calloc((size_t)out + 1, sizeof(float));
    x->result = calloc((size_t)in + 1, sizeof(float));
    x->out_buffer = calloc((size_t)out + 1, sizeof(float));
    x->in_buffer = calloc((size_t)in + 1, sizeof(float));
}

static void clear(exchange *x)
{
    for (int q = 0; q < x->ranks; q++) {
        if (x->out[q])
            MPI_Type_free(&x->out_type[q]);
        if (x->in[q])
            MPI_Type_free(&x->in_type[q]);
    }
    free(x->source);
    free(x->result);
    free(x->out_buffer);
    free(x->in_buffer);
}

/* Bits that the rank sends to others that sends the most. */
static double bits_sent(const exchange *x, int rank)
{
    double mine = 0, most;

    for (int q = 0; q < x->ranks; q++)
        mine += q == rank ? 0 : 8.0 * sizeof(float) * x->out[q];
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, x->comm);
    return most;
}

/* Rows of a box between the array of `whole` and a buffer. */
static void copy_rows(const sherd_box *whole, const sherd_box *box, float *array, float *buffer,
                      bool pack)
{
    size_t bytes = (size_t)box->size[1] * sizeof *array;

    for (int64_t i = 0; i < box->size[0]; i++) {
        float *row = array + (box->offset[0] + i - whole->offset[0]) * whole->size[1] +
                     box->offset[1] - whole->offset[1];
        float *line = buffer + i * box->size[1];
        memcpy(pack ? line : row, pack ? row : line, bytes);
    }
}

static void run_alltoallw(exchange *x)
{
    int out[MOST_RANKS], in[MOST_RANKS], none[MOST_RANKS] = {0};

    for (int q = 0; q < x->ranks; q++) {
        out[q] = x->out[q] > 0;
        in[q] = x->in[q] > 0;
    }
    MPI_Alltoallw(x->source, out, none, x->out_type, x->result, in, none, x->in_type, x->comm);
}

static void run_packed(exchange *x)
{
    for (int q = 0; q < x->ranks; q++)
        copy_rows(&x->mine, &x->sent[q], x->source, x->out_buffer + x->out_at[q], true);
    MPI_Alltoallv(x->out_buffer, x->out, x->out_at, MPI_FLOAT, x->in_buffer, x->in, x->in_at,
                  MPI_FLOAT, x->comm);
    for (int q = 0; q < x->ranks; q++)
        copy_rows(&x->wanted, &x->got[q], x->result, x->in_buffer + x->in_at[q], false);
}

/* Elements of the result that are not their global index. */
static int64_t wrong_in(const exchange *x, const float *result, int64_t columns)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < x->wanted.size[0]; i++)
        for (int64_t j = 0; j < x->wanted.size[1]; j++)
            wrong += result[i * x->wanted.size[1] + j] !=
                     (float)((x->wanted.offset[0] + i) * columns + x->wanted.offset[1] + j);
    return wrong;
}

/* One move; where the result lies. */
static const float *move(exchange *x, sherd_tensor *source, int way)
{
    if (way == 0)
        return sherd_tensor_read(sherd_redistribute(source, x->to, NULL));
    if (way == 1)
        run_alltoallw(x);
    else
        run_packed(x);
    return x->result;
}

/* Seconds of a move. */
static double run_way(exchange *x, sherd_tensor *source, int way, int64_t *wrong, int64_t columns)
{
    sherd_world *world = sherd_tensor_world(source);
    const float *result;

    memset(x->result, 0, (size_t)count_of(&x->wanted) * sizeof *x->result);
    sherd_scope_begin(world);
    MPI_Barrier(x->comm);
    double start = MPI_Wtime();
    result = move(x, source, way);
    for (int64_t i = 1; i < x->row; i++) {
        sherd_scope_end(world);
        sherd_scope_begin(world);
        result = move(x, source, way);
    }
    double took = (MPI_Wtime() - start) / (double)x->row;
    /* Nobody checks before all are done: a rank that checks brings on no messages of others. */
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, x->comm);
    *wrong += result ? wrong_in(x, result, columns) : 1;
    sherd_scope_end(world);
    return took;
}

static void run_case(sherd_world *world, exchange *x, const char *name, int64_t rows,
                     int64_t columns, const char *from, const char *to)
{
    double times[WAYS][TURNS], best = 1e300, middle[WAYS];
    int rank = sherd_world_rank(world), turns = rows * columns > 1 << 20 ? 11 : TURNS;
    int64_t wrong = 0;
    char text[128];

    /* The texts may name rows and columns more than once: %1$lld, %2$lld. */
    snprintf(text, sizeof text, from, (long long)rows, (long long)columns);
    if (sherd_layout_parse(&x->from, world, text, NULL))
        exit(1);
    snprintf(text, sizeof text, to, (long long)rows, (long long)columns);
    if (sherd_layout_parse(&x->to, world, text, NULL))
        exit(1);
    prepare(x, rank);
    sherd_scope_begin(world);
    for (int64_t i = 0; i < x->mine.size[0]; i++)
        for (int64_t j = 0; j < x->mine.size[1]; j++)
            x->source[i * x->mine.size[1] + j] =
                (float)((x->mine.offset[0] + i) * columns + x->mine.offset[1] + j);
    sherd_tensor *local = sherd_from_data(world, SHERD_F32, x->mine.size, 2, x->source);
    sherd_tensor *source = sherd_from_local_as(local, x->from);
    for (int turn = -3; turn < turns; turn++)
        for (int way = 0; way < WAYS; way++) {
            double took = run_way(x, source, way, &wrong, columns);
            if (turn >= 0)
                times[way][turn] = took;
        }
    for (int way = 0; way < WAYS; way++) {
        middle[way] = median(times[way], turns);
        if (way && middle[way] < best)
            best = middle[way];
    }
    sherd_scope_end(world);
    double bits = bits_sent(x, rank);
    if (rank == 0)
        printf("%-22s %10lld B  %10.1f %10.1f %10.1f us  %.2f  %6.2f Gbit/s%s\n", name,
               (long long)(rows * columns * 4), 1e6 * middle[0], 1e6 * middle[1], 1e6 * middle[2],
               middle[0] / best, 1e-9 * bits / middle[0], wrong ? "  WRONG" : "");
    clear(x);
}

int main(int argc, char **argv)
{
    int64_t most = 64 << 20, first = 4;
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world *world;
    exchange x = {.row = 1};
    const bench_option options[] = {{NULL, "BYTES", .number = &most},
                                    {"--first", "ROWS", .number = &first, .most = 1 << 14},
                                    {"--row", "MOVES", .number = &x.row, .most = 100000}};
    int rank, given;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
    MPI_Comm_dup(MPI_COMM_WORLD, &x.comm);
    MPI_Comm_rank(x.comm, &rank);
    MPI_Comm_size(x.comm, &x.ranks);
    if (sherd_world_open_mpi(&world, x.comm, &(sherd_world_options){.error = error})) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    if (rank == 0)
        printf("%d ranks, transport %s; %s, %s, %s, ratio to the better of the last two\n", x.ranks,
               sherd_world_transport(world), ways[0], ways[1], ways[2]);
    for (int64_t n = first; n * n * 4 <= most; n *= 4) {
        if (x.ranks == 4) {
            run_case(world, &x, "S(0) -> S(1)", n, n, "[%lld(a),%lld] on (a=4)",
                     "[%lld,%lld(a)] on (a=4)");
            run_case(world, &x, "S(0)S(1) -> S(1)S(0)", n, n, "[%lld(a),%lld(b)] on (a=2,b=2)",
                     "[%lld(b),%lld(a)] on (a=2,b=2)");
            run_case(world, &x, "uneven", n + 3, n + 1, "[%lld(a),%lld] on (a=4)",
                     "[%lld,%lld(a)] on (a=4)");
        } else {
            run_case(world, &x, "S(0) -> S(1)", n, n, "[%lld(a),%lld] on (a=2)",
                     "[%lld,%lld(a)] on (a=2)");
            run_case(world, &x, "uneven", n + 3, n + 1, "[%lld(a),%lld] on (a=2)",
                     "[%lld,%lld(a)] on (a=2)");
            run_case(world, &x, "one way", n, n, "[%1$lld(a:%1$lld,0),%2$lld] on (a=2)",
                     "[%1$lld(a:0,%1$lld),%2$lld] on (a=2)");
        }
    }
    int bad = sherd_world_close(world) != SHERD_OK;
    MPI_Comm_free(&x.comm);
    MPI_Finalize();
    return bad;
}
