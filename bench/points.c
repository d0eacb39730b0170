/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long searches of points and what is taken by index take: points [-n RANKS] [--points N]
 * [--queries M] [--rounds R]. On 1 rank and on RANKS, clouds sharded by rows, in f32, 3 coordinates
 * of a uniform cloud: the 16 nearest, those within a radius that holds about as many, backward of
 * the first, and index_select of rows of 16 numbers by the neighbours found. Printed: the median of
 * the slowest rank's times. Other programs on the same cores show.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sherd.h"
#include "command_line.h"
#include "timing.h"

enum { MOST_ROUNDS = 101, JOBS = 4, NEAREST = 16, WIDTH = 16 };

typedef struct asked {
    int64_t ranks, rounds, points, queries;
} asked;

typedef struct bench {
    sherd_world *world;
    const asked *asked;
    const sherd_mesh *mesh;
    sherd_tensor *points, *queries, *index, *table;
} bench;

static const char *const jobs[JOBS] = {"knn", "radius_search", "knn and backward", "index_select"};

static sherd_tensor *cloud(const bench *b, int64_t n, int64_t width, const char *name)
{
    sherd_generator generator = sherd_generator_named(name);
    const sherd_layout *layout = NULL;
    const int64_t shape[] = {n, width};
    const sherd_placement rows = sherd_shard(0);

    if (sherd_layout_create(&layout, b->mesh, 2, shape, &rows, NULL) != SHERD_OK)
        exit(1);
    return sherd_random_on(layout, SHERD_F32, sherd_uniform(0, 1), &generator);
}

static void run(bench *b, int job)
{
    sherd_tensor *index, *counts;
    double volume = NEAREST / (double)b->asked->points;

    if (job == 0)
        sherd_knn(sherd_detach(b->points), sherd_detach(b->queries), NEAREST, &index);
    else if (job == 1)
        sherd_radius_search(sherd_detach(b->points), sherd_detach(b->queries),
                            cbrt(0.2387 * volume), NEAREST, &index, &counts);
    else if (job == 2)
        sherd_backward(sherd_sum(sherd_knn(b->points, b->queries, NEAREST, &index)));
    else
        sherd_index_select(b->table, 0, b->index);
}

/* The slowest rank's time of one round. */
static double sample(bench *b, int job)
{
    sherd_scope_begin(b->world);
    if (sherd_world_check(b->world) != SHERD_OK)
        exit(1);
    double start = seconds();
    run(b, job);
    if (sherd_world_check(b->world) != SHERD_OK)
        exit(1);
    double time = seconds() - start;
    sherd_scope_end(b->world);
    return time;
}

static int body(sherd_world *world, void *payload)
{
    bench b = {.world = world, .asked = payload};
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    if (sherd_mesh_parse(&b.mesh, world, text) != SHERD_OK)
        return 1;
    b.points = sherd_require_grad(cloud(&b, b.asked->points, 3, "points"), true);
    b.queries = sherd_require_grad(cloud(&b, b.asked->queries, 3, "queries"), true);
    b.table = cloud(&b, b.asked->points, WIDTH, "table");
    sherd_knn(sherd_detach(b.points), sherd_detach(b.queries), NEAREST, &b.index);
    b.index = sherd_flatten(b.index, 0, 1);
    for (int job = 0; job < JOBS; job++) {
        double time[MOST_ROUNDS];
        for (int i = -1; i < b.asked->rounds; i++)
            time[i < 0 ? 0 : i] = sample(&b, job);
        if (sherd_world_rank(world) == 0)
            printf("%-18s %2d ranks  %9.2f ms\n", jobs[job], sherd_world_ranks(world),
                   1e3 * median(time, (int)b.asked->rounds));
    }
    return 0;
}

int main(int argc, char **argv)
{
    asked a = {.ranks = 2, .rounds = 5, .points = 100000, .queries = 100000};
    const bench_option options[] = {{"-n", "RANKS", .number = &a.ranks, .most = SHERD_MAX_RANKS},
                                    {"--points", "N", .number = &a.points},
                                    {"--queries", "M", .number = &a.queries},
                                    {"--rounds", "R", .number = &a.rounds, .most = MOST_ROUNDS}};
    int exit_status = 0;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    if (a.points < NEAREST) {
        fprintf(stderr, "points: each query has %d neighbours: have as many points\n", NEAREST);
        return 2;
    }
    for (int64_t ranks = 1; ranks <= a.ranks; ranks += a.ranks > 1 ? a.ranks - 1 : 1) {
        if (sherd_spawn(&exit_status, &(sherd_world_options){.ranks = (int)ranks}, body, &a) !=
                SHERD_OK ||
            exit_status)
            return 1;
        fflush(stdout);
    }
    return 0;
}
