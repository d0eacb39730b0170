/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution with zeros around it, of an image whose rows are sharded: forward, and forward with
 * all gradients, on one rank and on several. Ranks are processes; kinds take turns, since cores
 * change their speed while a benchmark runs. Operands are written anew before each sample. Medians
 * of the time until the last rank is done; of several ranks also the largest difference from one
 * rank's result and gradients, relative to the largest number there. "Shares apart" is what the
 * cores can do together: each rank convolves an image of its share's size, and nothing is
 * exchanged. bench/compare_conv.py puts PyTorch beside it.
 *
 *     bench/conv [RANKS [SIDE [CHANNELS [KERNEL [ROUNDS]]]]]      2 512 64 3 7
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sherd.h>

#include "command_line.h"
#include "processes.h"
#include "timing.h"

enum { MOST_ROUNDS = 101, KINDS = 6, OPERANDS = 3 };

/* Who convolves: rank 0 all of the image; all ranks together; or each rank, at once, as much as its
 * share, by itself. */
typedef enum way { ALONE, TOGETHER, APART, WAYS } way;

/* A weight's gradient is a sum over all positions, in f32, in another order. */
static const double most_apart = 1e-4;

typedef struct job {
    int64_t ranks, rounds, side, channels, kernel;
} job;

typedef struct kind {
    const char *name;
    way way;
    bool backward;
    double time[MOST_ROUNDS];
} kind;

/* mesh NULL: a plain tensor. */
static sherd_tensor *numbers(sherd_world *world, const sherd_mesh *mesh, int ndim,
                             const int64_t *shape, bool sharded, int64_t seed)
{
    const sherd_placement how = sharded ? sherd_shard(2) : sherd_replicate();
    const sherd_layout *layout = NULL;
    sherd_generator g = sherd_generator_named("bench");

    g.calls = (uint64_t)seed;
    if (!mesh)
        return sherd_require_grad(
            sherd_random(world, SHERD_F32, shape, ndim, sherd_uniform(-1, 1), &g), true);
    if (sherd_layout_create(&layout, mesh, ndim, shape, &how, NULL))
        return NULL;
    return sherd_require_grad(sherd_random_on(layout, SHERD_F32, sherd_uniform(-1, 1), &g), true);
}

/* x, weight and bias, written. */
static void make(sherd_world *world, const sherd_mesh *mesh, const job *j, int seed,
                 sherd_tensor **x)
{
    const int64_t image[] = {1, j->channels, mesh ? j->side : j->side / j->ranks, j->side};
    const int64_t weight[] = {j->channels, j->channels, j->kernel, j->kernel};

    x[0] = numbers(world, mesh, 4, image, true, 3 * seed);
    x[1] = numbers(world, mesh, 4, weight, false, 3 * seed + 1);
    x[2] = numbers(world, mesh, 1, &j->channels, false, 3 * seed + 2);
    for (int i = 0; i < OPERANDS; i++)
        sherd_tensor_read(x[i]);
}

static sherd_tensor *run(sherd_tensor **x, bool backward)
{
    sherd_tensor *y = sherd_conv(x[0], x[1], x[2], &(sherd_conv_options){.same = true});

    if (!backward) {
        sherd_tensor_read(y);
        return y;
    }
    sherd_backward_with(&y, &y, 1, NULL);
    for (int i = 0; i < OPERANDS; i++)
        sherd_tensor_read(sherd_grad(x[i]));
    return y;
}

/* One sample of this kind; ranks that have no part of it wait at the end. */
static bool measure(sherd_world *world, const sherd_mesh *mesh, const job *j, kind *k, int round)
{
    bool there = k->way != ALONE || sherd_world_rank(world) == 0;
    sherd_tensor *x[OPERANDS];

    sherd_scope_begin(world);
    if (there)
        make(world, mesh, j, round, x);
    if (sherd_world_check(world) != SHERD_OK)
        return false;
    double start = seconds();
    if (there)
        run(x, k->backward);
    bool good = sherd_world_check(world) == SHERD_OK;
    k->time[round] = seconds() - start;
    sherd_scope_end(world);
    return good;
}

/* The largest difference of b from a, relative to the largest number of a, of which rank 0 has
 * all. */
static double difference(sherd_world *world, sherd_tensor *a, sherd_tensor *b)
{
    double most = 0, apart = 0;

    sherd_tensor *whole = sherd_full(b);
    const float *p = sherd_world_rank(world) == 0 ? sherd_tensor_read(a) : NULL;
    const float *q = sherd_tensor_read(whole);
    for (int64_t i = 0; p && q && i < sherd_tensor_count(whole); i++) {
        most = fmax(most, fabs((double)p[i]));
        apart = fmax(apart, fabs((double)p[i] - (double)q[i]));
    }
    return most > 0 ? apart / most : 0;
}

/* Of the result and all gradients; on rank 0. */
static double worst_difference(sherd_world *world, const sherd_mesh *const *mesh, const job *j)
{
    sherd_tensor *one[OPERANDS], *many[OPERANDS], *y = NULL;
    double worst = 0;

    sherd_scope_begin(world);
    if (sherd_world_rank(world) == 0) {
        make(world, mesh[0], j, 0, one);
        y = run(one, true);
    }
    make(world, mesh[1], j, 0, many);
    worst = difference(world, y, run(many, true));
    for (int i = 0; i < OPERANDS; i++)
        worst = fmax(worst, difference(world, y ? sherd_grad(one[i]) : NULL, sherd_grad(many[i])));
    sherd_scope_end(world);
    return worst;
}

static int body(sherd_world *world, void *payload)
{
    const job *j = payload;
    kind kinds[KINDS] = {{"one rank, forward", ALONE, false, {0}},
                         {"ranks, forward", TOGETHER, false, {0}},
                         {"shares apart, forward", APART, false, {0}},
                         {"one rank, with gradients", ALONE, true, {0}},
                         {"ranks, with gradients", TOGETHER, true, {0}},
                         {"shares apart, with gradients", APART, true, {0}}};
    const sherd_mesh *mesh[WAYS] = {NULL};
    const int first = 0;
    bool good = sherd_mesh_create(&mesh[0], world, 1, &(int64_t){1}, NULL, &first) == SHERD_OK &&
                sherd_mesh_create(&mesh[1], world, 1, &(int64_t){j->ranks}, NULL, NULL) == SHERD_OK;

    for (int round = 0; round < j->rounds && good; round++)
        for (int i = 0; i < KINDS && good; i++)
            good = measure(world, mesh[kinds[i].way], j, &kinds[i], round);
    double apart = good ? worst_difference(world, mesh, j) : 0;
    if (sherd_world_check(world) != SHERD_OK) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    for (int i = 0; i < KINDS && sherd_world_rank(world) == 0; i++) {
        double t = median(kinds[i].time, (int)j->rounds),
               one = median(kinds[i / WAYS * WAYS].time, (int)j->rounds);
        printf("%-28s %9.2f ms  %5.2fx\n", kinds[i].name, 1e3 * t, one / t);
    }
    if (sherd_world_rank(world) == 0)
        printf("largest difference %.1e\n", apart);
    return apart < most_apart ? 0 : 1;
}

int main(int argc, char **argv)
{
    job j = {.ranks = 2, .side = 512, .channels = 64, .kernel = 3, .rounds = 7};
    const bench_option options[] = {{NULL, "RANKS", .number = &j.ranks, .most = SHERD_MAX_RANKS},
                                    {NULL, "SIDE", .number = &j.side},
                                    {NULL, "CHANNELS", .number = &j.channels},
                                    {NULL, "KERNEL", .number = &j.kernel},
                                    {NULL, "ROUNDS", .number = &j.rounds, .most = MOST_ROUNDS}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    return run_processes(j.ranks, body, &j);
}
