/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long calls take: calls [-n RANKS] [--threads] [--size BYTES]. Ranks run three moves of one vector at several sizes, interleaved
 * with a plain copy of the same bytes, and check every result. The vector is what a rank holds in the end (all-gather),
 * or before and after (all-reduce), or before (reduce-scatter). Medians over rounds of the slowest rank's time; sources
 * are rewritten before each sample. Virtual machines move their cores about: the flag's one-way time says where they
 * were (about 60 ns: one cache, 270 ns: two chips, 25 ns: one core's two threads), so compare within one run only.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "world/inside.h"
#include "timing.h"

enum { KINDS = 4, ROUNDS = 15, MAX_SAMPLES = 64 };

static const char *const kind_names[KINDS] = {"all-gather", "all-reduce", "reduce-scatter", "copy"};
static const int64_t sizes[] = {8, 4096, 65536, 1 << 20, 16 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Shared by all ranks, beside the world: a barrier and a flag of the benchmark's own. */
typedef struct meeting {
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) _Atomic int turn;
    _Alignas(64) _Atomic int flag;
    double times[SHERD_MAX_RANKS];
} meeting;

/* What the command line asks for. */
typedef struct asked {
    meeting *meet;
    int64_t size; /* 0 = all */
} asked;

typedef struct bench {
    sherd_world *world;
    meeting *meet;
    int ranks, me, crowded;
    const sherd_plan *plan[KINDS];
    const sherd_layout *layout[KINDS][2];
    sherd__block *source, *result;
    int64_t held[KINDS][2]; /* elements of this rank before and after */
    int64_t wrong;
} bench;

/* ---- the benchmark's own synchronisation ------------------------------------------------------ */

static void relax(const bench *b)
{
    if (b->crowded)
        sched_yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void barrier(const bench *b)
{
    int turn = atomic_load(&b->meet->turn);

    if (atomic_fetch_add(&b->meet->arrived, 1) == b->ranks - 1) {
        atomic_store(&b->meet->arrived, 0);
        atomic_store(&b->meet->turn, turn + 1);
        return;
    }
    while (atomic_load(&b->meet->turn) == turn)
        relax(b);
}

/* One-way time of a flag between ranks 0 and 1, in ns. */
static double probe(const bench *b)
{
    enum { TURNS = 20000 };
    barrier(b);
    int64_t start = sherd__now();
    for (int i = 0; b->me < 2 && i < TURNS; i++) {
        while (atomic_load(&b->meet->flag) % 2 != b->me)
            relax(b);
        atomic_fetch_add(&b->meet->flag, 1);
    }
    double ns = (double)(sherd__now() - start) / (2.0 * TURNS);
    barrier(b);
    return ns;
}

/* The slowest rank's time. */
static double slowest(const bench *b, double mine)
{
    double most = 0;

    b->meet->times[b->me] = mine;
    barrier(b);
    for (int q = 0; q < b->ranks; q++)
        most = b->meet->times[q] > most ? b->meet->times[q] : most;
    barrier(b);
    return most;
}

/* ---- moves ------------------------------------------------------------------------------------- */

static void must(bool good, const bench *b)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", sherd_world_error(b->world));
    exit(1);
}

static int64_t count_of(const bench *b, const sherd_layout *layout)
{
    return sherd_layout_box(layout, b->me, 0).size[0];
}

static void make_plans(bench *b, const sherd_mesh *mesh, int64_t bytes)
{
    static const sherd_placement pairs[3][2] = {
        {{SHERD_SHARD, 0, SHERD_SUM}, {SHERD_REPLICATE, 0, SHERD_SUM}},
        {{SHERD_PARTIAL, 0, SHERD_SUM}, {SHERD_REPLICATE, 0, SHERD_SUM}},
        {{SHERD_PARTIAL, 0, SHERD_SUM}, {SHERD_SHARD, 0, SHERD_SUM}},
    };
    int64_t shape = (bytes + 3) / 4;

    for (int k = 0; k < 3; k++) {
        for (int side = 0; side < 2; side++)
            must(!sherd_layout_create(&b->layout[k][side], mesh, 1, &shape, &pairs[k][side], NULL),
                 b);
        must(!sherd_plan_create(&b->plan[k], b->layout[k][0], b->layout[k][1], SHERD_F32, NULL), b);
        for (int side = 0; side < 2; side++)
            b->held[k][side] = count_of(b, b->layout[k][side]);
    }
    b->held[3][0] = b->held[3][1] = shape;
}

static float value(int64_t i, int rank, int round)
{
    return (float)((i * 3 + rank * 5 + round) % 64);
}

static void rewrite(bench *b, int kind, int round)
{
    float *x;

    must(sherd__block_writable(b->world, b->source), b);
    x = sherd__block_data(b->source);
    for (int64_t i = 0; i < b->held[kind][0]; i++)
        x[i] = value(i, b->me, round);
}

static void check(bench *b, int kind, int round)
{
    const float *x = sherd__block_data(b->result);
    int64_t shape = sherd_layout_shape(b->layout[1][0])[0];
    int64_t piece = (shape + b->ranks - 1) / b->ranks;

    for (int64_t i = 0; kind < 3 && i < b->held[kind][1]; i++) {
        float wanted = 0;
        if (kind == 0)
            wanted = value(i % piece, (int)(i / piece), round);
        for (int q = 0; kind > 0 && q < b->ranks; q++)
            wanted += value(i + (kind == 2 ? b->me * piece : 0), q, round);
        b->wrong += x[i] != wanted;
    }
}

static void run_once(bench *b, int kind)
{
    static const int64_t stride = 1;

    if (kind == 3) {
        memcpy(sherd__block_data(b->result), sherd__block_data(b->source),
               (size_t)b->held[3][0] * 4);
        return;
    }
    sherd__move move = {.plan = b->plan[kind],
                        .dtype = SHERD_F32,
                        .source = b->source,
                        .source_stride = &stride,
                        .result = b->result};
    must(sherd__call(b->world, "bench", &move, 1, false), b);
}

/* Seconds of one sample: several in a row for the small sizes, where a timer's 20 ns would count. */
static double sample(bench *b, int kind, int64_t bytes, int round)
{
    int turns = bytes <= 65536 ? 100 : 1;

    rewrite(b, kind, round);
    run_once(b, kind);
    check(b, kind, round);
    must(sherd__block_writable(b->world, b->result), b);
    barrier(b);
    int64_t start = sherd__now();
    for (int i = 0; i < turns; i++)
        run_once(b, kind);
    return slowest(b, 1e-9 * (double)(sherd__now() - start) / turns);
}

static void report(const bench *b, int64_t bytes, double times[KINDS][MAX_SAMPLES])
{
    double copy = median(times[3], ROUNDS);

    for (int k = 0; b->me == 0 && k < KINDS; k++) {
        double t = median(times[k], ROUNDS);
        printf("%-15s %9lld B %12.2f us %8.1f GB/s %8.2f of copy\n", kind_names[k],
               (long long)bytes, 1e6 * t, 1e-9 * (double)bytes / t, t / copy);
    }
}

static int body(sherd_world *world, void *payload)
{
    double times[KINDS][MAX_SAMPLES];
    const asked *wanted = payload;
    bench b = {.world = world, .meet = wanted->meet};
    const sherd_mesh *mesh;

    b.ranks = sherd_world_ranks(world);
    b.me = sherd_world_rank(world);
    b.crowded = b.ranks > world->arena.cores;
    must(!sherd_mesh_create(&mesh, world, 1, (int64_t[]){b.ranks}, NULL, NULL), &b);
    for (int s = 0; s < SIZES; s++) {
        if (wanted->size && sizes[s] != wanted->size)
            continue;
        b.source = sherd__block_take(world, sizes[s] + 64, true);
        b.result = sherd__block_take(world, sizes[s] + 64, true);
        must(b.source && b.result, &b);
        make_plans(&b, mesh, sizes[s]);
        double flag = b.ranks > 1 ? probe(&b) : 0;
        if (b.me == 0)
            printf("flag, one way: %.0f ns\n", flag);
        for (int round = 0; round < ROUNDS; round++)
            for (int k = 0; k < KINDS; k++)
                times[k][round] = sample(&b, k, sizes[s], round);
        report(&b, sizes[s], times);
        sherd__block_give(world, b.source);
        sherd__block_give(world, b.result);
    }
    if (b.wrong)
        fprintf(stderr, "rank %d: %lld wrong elements\n", b.me, (long long)b.wrong);
    return sherd_world_check(world) || b.wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    asked wanted = {.size = 0};
    sherd_world_options options = {.ranks = 2};
    int exit_status = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
            options.ranks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc)
            wanted.size = atoll(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0)
            options.as = SHERD_THREADS;
        else
            return fprintf(stderr, "calls [-n RANKS] [--threads] [--size BYTES]\n"), 2;
    }
    wanted.meet =
        mmap(NULL, sizeof *wanted.meet, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (wanted.meet == MAP_FAILED || sherd_spawn(&exit_status, &options, body, &wanted))
        return 1;
    return exit_status;
}
