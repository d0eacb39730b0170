/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a cached redistribution takes: moves [-n RANKS] [--threads] [--rounds N] [--side N]
 * [--only WORD]. Small tensors are timed against a limit of 2 us; large ones against each rank
 * copying as many bytes as it holds in the end, in the same run, with stores that pass the cache by
 * where those of the move do, and a limit of 1.2 times that. What a call allocates is counted: the
 * result is two small structs, and nothing else is.
 *
 * Each sample is the slowest rank's time; cases and the copy take turns, round by round. Sources
 * and results rotate, and sources are rewritten before each sample, so that no cache holds more
 * than it would in use; rounds before the first one touch every page. Every element of the last
 * result of each sample is checked. Other programs on the same cores show as a median far above the
 * least: run it again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/stream.h"
#include "meeting.h"
#include "sherd.h"
#include "tensor/tensor.h"
#include "command_line.h"
#include "timing.h"

enum { CASES = 5, BUFFERS = 3, WARM = BUFFERS + 2, MOST_ROUNDS = 1000, SMALL_BYTES = 4 << 10 };

static const struct {
    const char *name, *from, *to;
} cases[CASES] = {
    {"S(0)->S(1)", "S(0)", "S(1)"}, {"R->S(0)", "R", "S(0)"},           {"S(0)->R", "S(0)", "R"},
    {"P(sum)->R", "P(sum)", "R"},   {"P(sum)->S(0)", "P(sum)", "S(0)"},
};

static const int64_t sides[] = {8, 32, 128, 512, 2048, 4096};

typedef struct asked {
    meeting *meet;
    int64_t rounds;
    int64_t side; /* 0 = all */
    const char *only;
} asked;

typedef struct bench {
    sherd_world *world;
    const asked *asked;
    int ranks, me;
    const sherd_mesh *mesh;
    int64_t shape[2];
    sherd_tensor *source[CASES][BUFFERS];
    sherd_tensor *kept[BUFFERS]; /* the last results: so that the next one lies elsewhere */
    const sherd_layout *to[CASES];
    char *copy_from[BUFFERS], *copy_to[BUFFERS];
    int64_t wrong, allocations[CASES];
    int turn; /* which buffer is next */
} bench;

/* ---- time ------------------------------------------------------------------------------------ */

static void barrier(const bench *b)
{
    meet(b->asked->meet, b->ranks);
}

static double slowest(const bench *b, double mine)
{
    return meet_most(b->asked->meet, b->ranks, b->me, mine);
}

/* ---- what is moved --------------------------------------------------------------------------- */

static void must(const bench *b, bool good)
{
    if (good)
        return;
    fprintf(stderr, "rank %d: %s\n", b->me, sherd_world_error(b->world));
    exit(1);
}

/* Small integers: sums of them are exact. */
static float value(int64_t row, int64_t column, int rank, int round)
{
    return (float)((row * 3 + column * 7 + rank * 5 + round) % 61);
}

static void rewrite(bench *b, sherd_tensor *t, int round)
{
    float *x = sherd_tensor_write(t);
    sherd_box box = sherd_tensor_box(t);
    bool pending = sherd_tensor_layout(t)->pending_axes != 0;

    must(b, x || t->count == 0);
    for (int64_t i = 0; i < box.size[0]; i++)
        for (int64_t j = 0; j < box.size[1]; j++)
            *x++ = value(box.offset[0] + i, box.offset[1] + j, pending ? b->me : 0, round);
}

static void check(bench *b, int k, sherd_tensor *t, int round)
{
    const float *x = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    int addends = strncmp(cases[k].from, "P", 1) == 0 ? b->ranks : 1;

    must(b, x || t->count == 0);
    for (int64_t i = 0; i < box.size[0]; i++)
        for (int64_t j = 0; j < box.size[1]; j++) {
            float wanted = 0;
            for (int q = 0; q < addends; q++)
                wanted += value(box.offset[0] + i, box.offset[1] + j, q, round);
            b->wrong += *x++ != wanted;
        }
}

static const sherd_layout *layout_of(bench *b, const char *placements)
{
    const sherd_layout *layout = NULL;

    must(b, !sherd_layout_parse_placements(&layout, b->mesh, 2, b->shape, placements, NULL));
    return layout;
}

static size_t share_of(const bench *b)
{
    return (size_t)(b->shape[0] * b->shape[1] * 4 / b->ranks);
}

static void open_buffers(bench *b)
{
    size_t bytes = share_of(b);

    for (int k = 0; k < CASES; k++) {
        b->to[k] = layout_of(b, cases[k].to);
        for (int i = 0; i < BUFFERS; i++)
            b->source[k][i] = sherd_constant_on(layout_of(b, cases[k].from), SHERD_F32, 0);
    }
    for (int i = 0; i < BUFFERS; i++) {
        b->copy_from[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        b->copy_to[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        must(b, b->copy_from[i] && b->copy_to[i]);
        memset(b->copy_from[i], i, bytes);
        memset(b->copy_to[i], 1, bytes);
    }
}

static void close_buffers(bench *b)
{
    for (int i = 0; i < BUFFERS; i++) {
        sherd_tensor_release(b->kept[i]);
        b->kept[i] = NULL;
        free(b->copy_from[i]);
        free(b->copy_to[i]);
    }
}

/* ---- samples --------------------------------------------------------------------------------- */

static bool is_small(const bench *b)
{
    return b->shape[0] * b->shape[1] * 4 <= SMALL_BYTES;
}

/* Where an exchange has a limit too. */
static bool is_largest(const bench *b)
{
    return b->shape[0] == sides[sizeof sides / sizeof sides[0] - 1];
}

static int turns(const bench *b)
{
    return is_small(b) ? 500 : b->shape[0] <= 128 ? 100 : b->shape[0] <= 512 ? 20 : 1;
}

/* Seconds of one redistribution. */
static double sample_move(bench *b, int k, int round)
{
    int count = turns(b);
    sherd_tensor *last = NULL;

    for (int i = 0; i < BUFFERS; i++)
        rewrite(b, b->source[k][i], round);
    sherd_scope_begin(b->world);
    sherd_redistribute(b->source[k][0], b->to[k], NULL);
    sherd_scope_end(b->world);
    int64_t before = sherd_world_allocations(b->world);
    barrier(b);
    double start = seconds();
    for (int i = 0; i < count; i++) {
        sherd_scope_begin(b->world);
        last = sherd_redistribute(b->source[k][b->turn++ % BUFFERS], b->to[k], NULL);
        if (i + 1 < count)
            sherd_scope_end(b->world);
    }
    double time = slowest(b, seconds() - start) / count;
    b->allocations[k] = (sherd_world_allocations(b->world) - before) / count;
    check(b, k, last, round);
    sherd_tensor_release(b->kept[round % BUFFERS]);
    b->kept[round % BUFFERS] = sherd_tensor_retain(last);
    sherd_scope_end(b->world);
    return time;
}

/* Seconds of one copy of what a rank holds; past the cache where a box of a move of this size goes
 * so. */
static double sample_copy(bench *b, int round)
{
    size_t bytes = share_of(b);
    bool stream = bytes >= 16 << 20;
    int count = turns(b);

    for (int i = 0; i < BUFFERS; i++)
        for (size_t j = 0; j < bytes; j++)
            b->copy_from[i][j] = (char)(j + (size_t)round);
    barrier(b);
    double start = seconds();
    for (int i = 0; i < count; i++) {
        char *to = b->copy_to[b->turn % BUFFERS];
        const char *from = b->copy_from[b->turn++ % BUFFERS];
        if (stream)
            sherd__stream(to, from, bytes);
        else
            memcpy(to, from, bytes);
        if (stream)
            sherd__stream_end();
    }
    double time = slowest(b, seconds() - start) / count;
    const char *last = b->copy_to[(b->turn - 1) % BUFFERS];
    for (size_t j = 0; j < bytes; j++)
        b->wrong += last[j] != (char)(j + (size_t)round);
    return time;
}

static void report(const bench *b, double (*times)[MOST_ROUNDS])
{
    int rounds = (int)b->asked->rounds;

    if (b->me != 0)
        return;
    for (int k = 0; k <= CASES; k++)
        sort_times(times[k], rounds);
    double copy = times[CASES][rounds / 2], least_copy = times[CASES][0];
    for (int k = 0; k < CASES; k++) {
        if (b->asked->only && !strstr(cases[k].name, b->asked->only))
            continue;
        double median = times[k][rounds / 2], least = times[k][0];
        printf("%-13s %4lldx%-4lld %10.2f us (least %.2f)", cases[k].name, (long long)b->shape[0],
               (long long)b->shape[1], 1e6 * median, 1e6 * least);
        if (is_small(b))
            printf("  limit 2 us, ratio %.2f", median / 2e-6);
        else
            printf("  copy %.2f us (least %.2f)%s, ratio %.2f (least %.2f)", 1e6 * copy,
                   1e6 * least_copy, k == 0 && is_largest(b) ? ", limit 1.2" : "", median / copy,
                   least / least_copy);
        printf("  allocations %lld\n", (long long)b->allocations[k]);
    }
}

static void run_side(bench *b, int64_t side)
{
    double(*times)[MOST_ROUNDS] = calloc(CASES + 1, sizeof *times);

    must(b, times != NULL);
    b->shape[0] = b->shape[1] = side;
    sherd_scope_begin(b->world);
    open_buffers(b);
    for (int round = -WARM; round < b->asked->rounds; round++) {
        int at = round < 0 ? 0 : round;
        for (int k = 0; k < CASES; k++)
            if (!b->asked->only || strstr(cases[k].name, b->asked->only))
                times[k][at] = sample_move(b, k, round + WARM);
        times[CASES][at] = sample_copy(b, round + WARM);
    }
    report(b, times);
    close_buffers(b);
    free(times);
    sherd_scope_end(b->world);
}

static int body(sherd_world *world, void *payload)
{
    bench b = {.world = world, .asked = payload};
    char text[16];

    b.ranks = sherd_world_ranks(world);
    b.me = sherd_world_rank(world);
    snprintf(text, sizeof text, "%d", b.ranks);
    must(&b, !sherd_mesh_parse(&b.mesh, world, text));
    for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++)
        if (!b.asked->side || b.asked->side == sides[s])
            run_side(&b, sides[s]);
    if (b.wrong)
        fprintf(stderr, "rank %d: %lld wrong elements\n", b.me, (long long)b.wrong);
    return sherd_world_check(world) || b.wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    asked wanted = {.rounds = 21};
    int64_t ranks = 2;
    bool threads = false;
    const bench_option table[] = {{"-n", "RANKS", .number = &ranks, .most = SHERD_MAX_RANKS},
                                  {"--threads", .flag = &threads},
                                  {"--rounds", "N", .number = &wanted.rounds, .most = MOST_ROUNDS},
                                  {"--side", "N", .number = &wanted.side},
                                  {"--only", "WORD", .text = &wanted.only}};
    int exit_status = 0;

    if (!READ_COMMAND_LINE(argc, argv, table))
        return 2;
    const sherd_world_options options = {.ranks = (int)ranks,
                                         .as = threads ? SHERD_THREADS : SHERD_PROCESSES};
    wanted.meet = open_meeting();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!wanted.meet || sherd_spawn(&exit_status, &options, body, &wanted))
        return 1;
    return exit_status;
}
