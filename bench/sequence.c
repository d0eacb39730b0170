/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention of one long sequence, forward and backward, on one rank and on several: in every
 * way, with even and with balanced cuts, and in zigzag order. Ranks are processes; rounds of all
 * kinds take turns, since cores change their speed while a benchmark runs. For each kind the least
 * time, against one rank's, and which part of it the slowest rank spent in calls, waiting and
 * copying.
 *
 *     bench/sequence [RANKS [POSITIONS [HEADS [WIDTH]]]]      2 8192 8 64
 */
#include <stdio.h>
#include <string.h>

#include <sherd.h>

#include "command_line.h"
#include "processes.h"
#include "timing.h"

enum { ROUNDS = 3, MOST_RANKS = 64, KINDS = 10 };

typedef struct kind {
    const char *name;
    sherd_attention_way way;
    bool alone, balanced, zigzag;
    double best, calls; /* seconds; of them, in calls */
} kind;

typedef struct job {
    int64_t ranks, positions, heads, width;
} job;

static const sherd_layout *layout_of(const sherd_mesh *mesh, const job *j, bool balanced)
{
    const int64_t shape[] = {1, j->positions, j->heads, j->width};
    int64_t sizes[MOST_RANKS];
    const int64_t *views[4] = {NULL, sizes};
    const sherd_placement shard = sherd_shard(1);
    const sherd_layout *layout = NULL;

    if (sherd_balanced_cuts(sizes, j->positions, sherd_mesh_extent(mesh, 0), 0, balanced) ||
        sherd_layout_create(&layout, mesh, 4, shape, &shard,
                            &(sherd_layout_options){.sizes = views}))
        return NULL;
    return layout;
}

static double in_calls(sherd_world *world)
{
    double sum = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        sum += 1e-9 * (double)sherd_comm_get(world, i).nanoseconds;
    return sum;
}

static sherd_tensor *numbers(const sherd_layout *layout, uint64_t seed)
{
    sherd_generator g = sherd_generator_named("bench");

    g.calls = seed;
    return sherd_require_grad(sherd_random_on(layout, SHERD_F32, sherd_uniform(-1, 1), &g), true);
}

/* One step; the time until all ranks are done, and of this rank's in calls. */
static bool measure(sherd_world *world, const sherd_mesh *mesh, const job *j, kind *k)
{
    sherd_attention_options o = {
        .causal = true, .way = k->way, .zigzag = k->zigzag ? sherd_mesh_extent(mesh, 0) : 0};
    bool there = sherd_layout_boxes(layout_of(mesh, j, k->balanced), sherd_world_rank(world)) > 0;
    sherd_tensor *x[3];

    sherd_scope_begin(world);
    for (uint64_t i = 0; i < 3 && there; i++)
        sherd_tensor_read(x[i] = numbers(layout_of(mesh, j, k->balanced), i));
    if (sherd_world_check(world) != SHERD_OK)
        return false;
    sherd_comm_reset(world);
    double start = seconds();
    if (there) {
        sherd_tensor *y = sherd_attention(x[0], x[1], x[2], &o);
        sherd_backward_with(&y, &y, 1, NULL);
        for (int i = 0; i < 3; i++)
            sherd_tensor_read(sherd_grad(x[i]));
    }
    double calls = in_calls(world);
    bool good = sherd_world_check(world) == SHERD_OK;
    double time = seconds() - start;
    if (k->best == 0 || time < k->best) {
        k->best = time;
        k->calls = calls;
    }
    sherd_scope_end(world);
    return good;
}

/* Of all ranks. */
static double most(sherd_world *world, const sherd_mesh *mesh, double mine)
{
    const sherd_placement max = sherd_partial(SHERD_MAX);
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, NULL, 0, &mine);

    return sherd_item(sherd_from_local(t, mesh, &max, NULL));
}

static int body(sherd_world *world, void *payload)
{
    const job *j = payload;
    kind kinds[KINDS] = {{"one rank", .way = SHERD_ATTENTION_CHEAPEST, .alone = true},
                         {"ring, even", .way = SHERD_ATTENTION_RING},
                         {"ring, balanced", .way = SHERD_ATTENTION_RING, .balanced = true},
                         {"ring, zigzag", .way = SHERD_ATTENTION_RING, .zigzag = true},
                         {"gather, even", .way = SHERD_ATTENTION_GATHER},
                         {"gather, balanced", .way = SHERD_ATTENTION_GATHER, .balanced = true},
                         {"gather, zigzag", .way = SHERD_ATTENTION_GATHER, .zigzag = true},
                         {"heads", .way = SHERD_ATTENTION_HEADS},
                         {"heads, zigzag", .way = SHERD_ATTENTION_HEADS, .zigzag = true},
                         {"cheapest, zigzag", .way = SHERD_ATTENTION_CHEAPEST, .zigzag = true}};
    const sherd_mesh *mesh[2] = {NULL, NULL};
    const int64_t one = 1;
    const int first = 0;
    bool good =
        sherd_mesh_create(&mesh[1], world, 1, &(int64_t){j->ranks}, NULL, NULL) == SHERD_OK &&
        sherd_mesh_create(&mesh[0], world, 1, &one, NULL, &first) == SHERD_OK;

    for (int round = 0; round < ROUNDS && good; round++)
        for (int i = 0; i < KINDS && good; i++)
            good = measure(world, mesh[!kinds[i].alone], j, &kinds[i]);
    if (!good) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    for (int i = 0; i < KINDS; i++) {
        double calls = most(world, mesh[1], kinds[i].calls);
        if (sherd_world_rank(world) == 0)
            printf("%-20s %9.2f ms  %5.2fx  %4.1f %% in calls\n", kinds[i].name,
                   1e3 * kinds[i].best, kinds[0].best / kinds[i].best, 100 * calls / kinds[i].best);
    }
    if (sherd_world_check(world) != SHERD_OK)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    return 0;
}

int main(int argc, char **argv)
{
    job j = {2, 8192, 8, 64};
    const bench_option options[] = {{NULL, "RANKS", .number = &j.ranks, .most = MOST_RANKS},
                                    {NULL, "POSITIONS", .number = &j.positions},
                                    {NULL, "HEADS", .number = &j.heads},
                                    {NULL, "WIDTH", .number = &j.width}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    return run_processes(j.ranks, body, &j);
}
