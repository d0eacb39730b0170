/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tensor costs in a call of many, and a part of long data that goes in many: many [-n RANKS]
 * [--threads] [--most TENSORS] [--bytes OF-EACH]. Each row has ten times as many of the same
 * tensors; if the time for each grows with their number, some list is walked. Microseconds of the
 * slowest rank, the least of several calls; results are checked. Under mpirun the ranks are those
 * of the job: with SHERD_HOST another for each of them, or SHERD_TRANSPORT=mpi, sums go as a
 * message for each tensor and rank, and one tensor of as many bytes as all goes in parts
 * (SHERD_PART).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sherd.h>

#include "command_line.h"
#include "timing.h"

enum { MOVES = 3, ROUNDS = 5, ROWS = 16 };

static const struct {
    const char *name, *from, *to;
    bool one; /* tensor, as large as all of them */
} moves[MOVES] = {{"sums, P -> R", "P", "R", false},
                  {"boxes, S(0) -> S(1)", "S(0)", "S(1)", false},
                  {"one tensor, S(0) -> R", "S(0)", "R", true}};

typedef struct asked {
    int64_t ranks, most, bytes;
    bool threads;
} asked;

typedef struct bench {
    sherd_world *world;
    const sherd_mesh *line;
    int64_t columns;
    sherd_tensor **source, **result;
    const sherd_layout **to;
} bench;

static const sherd_layout *place(const bench *b, int64_t rows, const char *how)
{
    const int64_t shape[] = {rows, b->columns};
    const sherd_layout *layout = NULL;

    if (sherd_layout_parse_placements(&layout, b->line, 2, shape, how, NULL))
        fprintf(stderr, "%s\n", sherd_world_error(b->world));
    return layout;
}

/* The slowest rank's seconds. */
static double slowest(const bench *b, double mine)
{
    const int64_t one = 1;
    const sherd_placement pending = sherd_partial(SHERD_MAX);
    sherd_tensor *t = sherd_from_data(b->world, SHERD_F64, &one, 1, &mine);
    const double *all = sherd_tensor_read(sherd_full(sherd_from_local(t, b->line, &pending, NULL)));

    return all ? *all : 0;
}

static double time_once(const bench *b, int move, int count, int64_t rows, bool *good)
{
    const sherd_layout *from = place(b, rows, moves[move].from);
    const sherd_layout *to = place(b, rows, moves[move].to);

    sherd_scope_begin(b->world);
    for (int i = 0; i < count; i++) {
        b->source[i] = sherd_constant_on(from, SHERD_F32, 1);
        (void)sherd_tensor_write(b->source[i]); /* it is there */
        b->to[i] = to;
    }
    *good = *good && !sherd_world_check(b->world);
    double begin = seconds();
    sherd_redistribute_many(b->result, b->source, b->to, count);
    double time = seconds() - begin;
    for (int i = 0; i < count; i++) {
        const float *data = sherd_tensor_read(b->result[i]);
        *good = *good && data && data[0] == 1;
    }
    *good = *good && !sherd_world_check(b->world);
    time = slowest(b, time);
    sherd_scope_end(b->world);
    return time;
}

static bool measure(const bench *b, int move, int count)
{
    int tensors = moves[move].one ? 1 : count;
    int64_t rows = moves[move].one ? ROWS * (int64_t)count : ROWS;
    double best = 0;
    bool good = true;

    for (int round = 0; round < ROUNDS && good; round++) {
        sherd_scope_begin(b->world);
        double time = time_once(b, move, tensors, rows, &good);
        sherd_scope_end(b->world);
        best = best == 0 || time < best ? time : best;
    }
    if (sherd_world_rank(b->world) == 0)
        printf("%-22s %8d %10.3f%s\n", moves[move].name, count, 1e6 * best / count,
               good ? "" : "  WRONG");
    return good;
}

static int play(sherd_world *world, void *payload)
{
    const asked *a = payload;
    const int64_t ranks = sherd_world_ranks(world);
    bench b = {.world = world,
               .source = malloc((size_t)a->most * sizeof *b.source),
               .result = malloc((size_t)a->most * sizeof *b.result),
               .to = malloc((size_t)a->most * sizeof *b.to),
               .columns = (a->bytes / 4 + ROWS - 1) / ROWS};
    bool good =
        b.source && b.result && b.to && !sherd_mesh_create(&b.line, world, 1, &ranks, NULL, NULL);

    if (sherd_world_rank(world) == 0)
        printf("%d ranks, %s\n%-22s %8s %10s\n", (int)ranks, sherd_world_transport(world), "",
               "each of", "us");
    for (int move = 0; move < MOVES; move++)
        for (int64_t count = 10; count <= a->most && good; count *= 10)
            good = measure(&b, move, (int)count);
    free(b.source);
    free(b.result);
    free(b.to);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    asked a = {.ranks = 2, .most = 10000, .bytes = 8192};
    const bench_option table[] = {{"-n", "RANKS", &a.ranks, SHERD_MAX_RANKS, NULL, NULL},
                                  {"--most", "TENSORS", &a.most, 1000000, NULL, NULL},
                                  {"--bytes", "OF-EACH", &a.bytes, 1 << 20, NULL, NULL},
                                  {"--threads", NULL, NULL, 0, NULL, &a.threads}};
    char text[SHERD_ERROR_BYTES] = "";
    int status = 0;

    if (!read_command_line(argc, argv, table, sizeof table / sizeof *table))
        return 2;
    sherd_world_options options = {
        .ranks = (int)a.ranks, .as = a.threads ? SHERD_THREADS : SHERD_PROCESSES, .error = text};
    if (sherd_spawn(&status, &options, play, &a)) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    return status;
}
