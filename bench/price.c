/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the constants of the arena's price stand for: price [RANKS]. Times both ways to all-reduce
 * (everyone adds everything; each adds a slice and writes it to the others) and the move from rows
 * to columns, for sizes from 1 KiB to 64 MiB, and prints beside each what the price says. The way
 * that the planner takes is marked. Where it is not the faster one over a range of sizes, or prices
 * are far from times, the table in src/price/price.c is due for another look.
 *
 * Medians; three sources take turns and are written to before each call.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sherd.h"
#include "tensor/tensor.h"
#include "command_line.h"
#include "timing.h"

enum { SOURCES = 3, WARM = 20 };

typedef struct bench {
    sherd_world *world;
    int ranks;
    double *sample;
} bench;

static void must(const bench *b, bool good)
{
    if (good)
        return;
    fprintf(stderr, "price: %s\n", sherd_world_error(b->world));
    exit(1);
}

static const sherd_layout *layout(const bench *b, int64_t rows, int64_t columns, const char *form)
{
    const sherd_layout *out = NULL;
    char text[128];

    snprintf(text, sizeof text, form, (long long)rows, (long long)columns, b->ranks);
    must(b, !sherd_layout_parse(&out, b->world, text, NULL));
    return out;
}

/* The cached plan with its all-reduce done this way, and what that costs by the price. */
static double force(const bench *b, const sherd_layout *from, const sherd_layout *to, bool sliced)
{
    sherd_plan *plan = NULL;

    must(b, !sherd_plan_create((const sherd_plan **)(void *)&plan, from, to, SHERD_F32, NULL));
    must(b, plan->steps == 1);
    if (plan->step->sliced != sliced) {
        plan->step->sliced = sliced;
        sherd__schedule_destroy(plan->space, plan->mine[0]);
        must(b, !sherd__schedule_create(&plan->mine[0], plan->space, plan->step, 4,
                                        plan->space->rank));
    }
    return (double)plan->price.picoseconds * 1e-6;
}

static double median_of_moves(bench *b, const sherd_layout *from, const sherd_layout *to,
                              int64_t bytes)
{
    int rounds = bytes <= 64 << 10 ? 1001 : bytes <= 4 << 20 ? 201 : 31;
    sherd_tensor *source[SOURCES];

    sherd_scope_begin(b->world);
    for (int i = 0; i < SOURCES; i++)
        source[i] = sherd_constant_on(from, SHERD_F32, 1);
    for (int i = 0; i < WARM + rounds; i++) {
        float *data = sherd_tensor_write(source[i % SOURCES]);
        must(b, data != NULL);
        for (int64_t k = 0; k < bytes / 4 / b->ranks; k += 16)
            data[k] = (float)i;
        sherd_scope_begin(b->world);
        double start = 1e6 * seconds();
        must(b, sherd_tensor_read(sherd_redistribute(source[i % SOURCES], to, NULL)) != NULL);
        if (i >= WARM)
            b->sample[i - WARM] = 1e6 * seconds() - start;
        sherd_scope_end(b->world);
    }
    sherd_scope_end(b->world);
    sort_times(b->sample, rounds);
    return b->sample[rounds / 2];
}

static void run_size(bench *b, int64_t kib)
{
    int64_t columns = 16LL * b->ranks;
    while (columns * columns * 4 <= kib * 256)
        columns *= 2;
    const int64_t rows = kib * 256 / columns;
    const sherd_layout *pending = layout(b, rows, columns, "[%lld,%lld] P(sum:x) on (x=%d)");
    const sherd_layout *whole = layout(b, rows, columns, "[%lld,%lld] on (x=%d)");
    const sherd_layout *by_row = layout(b, rows, columns, "[%lld(x),%lld] on (x=%d)");
    const sherd_layout *by_column = layout(b, rows, columns, "[%lld,%lld(x)] on (x=%d)");
    const sherd_plan *plan;
    double time[3];

    must(b, !sherd_plan_create(&plan, pending, whole, SHERD_F32, NULL));
    bool sliced = sherd_plan_step(plan, 0)->sliced;
    double price = (double)sherd_plan_price_of(plan)->picoseconds * 1e-6;
    for (int way = 0; way < 2; way++) {
        force(b, pending, whole, way);
        time[way] = median_of_moves(b, pending, whole, kib << 10);
    }
    double moved = force(b, by_row, by_column, false);
    time[2] = median_of_moves(b, by_row, by_column, kib << 10);
    if (sherd_world_rank(b->world) == 0)
        printf("%6lld KiB  all-reduce: at once %9.2f%s  sliced %9.2f%s  price %9.2f   "
               "S(0)->S(1): %9.2f  price %9.2f us\n",
               (long long)kib, time[0], sliced ? " " : "*", time[1], sliced ? "*" : " ", price,
               time[2], moved);
}

static int body(sherd_world *world, void *unused)
{
    bench b = {world, sherd_world_ranks(world), malloc(2048 * sizeof(double))};

    (void)unused;
    if (!b.sample)
        return 1;
    for (int64_t kib = 1; kib <= 64 << 10; kib *= 2)
        run_size(&b, kib);
    free(b.sample);
    return sherd_world_check(world) != SHERD_OK;
}

int main(int argc, char **argv)
{
    int64_t ranks = 2;
    const bench_option options[] = {{NULL, "RANKS", .number = &ranks, .most = SHERD_MAX_RANKS}};
    int exit_status = 1;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    if (ranks < 2) {
        fprintf(stderr, "price: one rank moves nothing\n");
        return 2;
    }
    printf("%d ranks; * = what the planner takes\n", (int)ranks);
    fflush(stdout);
    return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = (int)ranks}, body, NULL)
               ? 1
               : exit_status;
}
