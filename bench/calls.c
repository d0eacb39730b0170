/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long calls take: calls [-n RANKS] [--threads] [--size BYTES] [--turns N]. Ranks run moves
 * at several sizes, interleaved with a plain copy of the same bytes, and check every result. The
 * bytes are what a rank holds in the end (all-gather), or before and after (all-reduce, by one call
 * and by a reduce-scatter and an all-gather; all-to-all), or before (reduce-scatter). Medians over
 * rounds of the slowest rank's time. Three sets of buffers take turns; sources are rewritten before
 * each sample. Virtual machines move their cores about: the flag's one-way time says where they
 * were (about 60 ns: one cache, 270 ns: two chips, 25 ns: one core's two threads), and twelve
 * additions in registers whether a stranger has the other thread of a core (then they, and small
 * calls, take nearly twice as long): compare within one run only.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "world/inside.h"
#include "command_line.h"
#include "timing.h"

enum { GATHER, REDUCE, SCATTER, TWICE, EXCHANGE, MOVES, COPY = MOVES, KINDS };
enum { SETS = 3, ROUNDS = 15 };

static const char *const kind_names[KINDS] = {"all-gather",    "all-reduce", "reduce-scatter",
                                              "both of these", "all-to-all", "copy"};
static const int64_t sizes[] = {8, 4096, 65536, 1 << 20, 16 << 20, 32 << 20, 64 << 20};
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
    int64_t size;  /* 0 = all */
    int64_t turns; /* of a sample; 0 = by size */
} asked;

typedef struct bench {
    sherd_world *world;
    meeting *meet;
    int ranks, me, crowded, turns;
    const sherd_plan *plan[MOVES];
    sherd__block *source[SETS], *part[SETS], *result[SETS];
    int64_t shape;          /* elements of the vector */
    int64_t held[KINDS][2]; /* elements of this rank before and after */
    int64_t wrong;
} bench;

/* ---- the benchmark's own synchronisation ----------------------------------------------------- */

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

/* Twelve additions that wait for none but their own register's, in ns; 0: not on this CPU. */
static double additions(void)
{
#if defined(__x86_64__)
    enum { TURNS = 100000 };
    int64_t start = sherd__now();
    for (int i = 0; i < TURNS; i++) {
        __asm__ volatile("addl $1, %%eax; addl $1, %%ecx; addl $1, %%edx; addl $1, %%esi;"
                         "addl $1, %%edi; addl $1, %%r8d; addl $2, %%eax; addl $2, %%ecx;"
                         "addl $2, %%edx; addl $2, %%esi; addl $2, %%edi; addl $2, %%r8d"
                         :
                         :
                         : "eax", "ecx", "edx", "esi", "edi", "r8", "cc");
    }
    return (double)(sherd__now() - start) / TURNS;
#else
    return 0;
#endif
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

/* ---- moves ----------------------------------------------------------------------------------- */

static void must(bool good, const bench *b)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", sherd_world_error(b->world));
    exit(1);
}

static void make_plan(bench *b, const sherd_mesh *mesh, int kind, int ndim, const int64_t *shape,
                      const char *from, const char *to)
{
    const char *texts[2] = {from, to};
    const sherd_layout *layout[2];

    for (int side = 0; side < 2; side++) {
        must(!sherd_layout_parse_placements(&layout[side], mesh, ndim, shape, texts[side], NULL),
             b);
        sherd_box box = sherd_layout_box(layout[side], b->me, 0);
        b->held[kind][side] = ndim == 1 ? box.size[0] : box.size[0] * box.size[1];
    }
    must(!sherd_plan_create(&b->plan[kind], layout[0], layout[1], SHERD_F32, NULL), b);
}

static void make_plans(bench *b, const sherd_mesh *mesh, int64_t bytes)
{
    int64_t n = b->shape = (bytes + 3) / 4, table[2] = {b->ranks, n};

    make_plan(b, mesh, GATHER, 1, &n, "S(0)", "R");
    make_plan(b, mesh, REDUCE, 1, &n, "P", "R");
    make_plan(b, mesh, SCATTER, 1, &n, "P", "S(0)");
    make_plan(b, mesh, TWICE, 1, &n, "P", "R");
    make_plan(b, mesh, EXCHANGE, 2, table, "S(0)", "S(1)");
    b->held[COPY][0] = b->held[COPY][1] = n;
}

static float value(int64_t i, int rank, int round)
{
    return (float)((i * 3 + rank * 5 + round) % 64);
}

static void rewrite(bench *b, int kind, int set, int round)
{
    float *x;

    must(sherd__block_writable(b->world, b->source[set]), b);
    x = sherd__block_data(b->source[set]);
    for (int64_t i = 0; i < b->held[kind][0]; i++)
        x[i] = value(i, b->me, round + set);
}

static float wanted(const bench *b, int kind, int64_t i, int round)
{
    int64_t piece = (b->shape + b->ranks - 1) / b->ranks, width = b->held[EXCHANGE][1] / b->ranks;
    float sum = 0;

    if (kind == GATHER)
        return value(i % piece, (int)(i / piece), round);
    if (kind == EXCHANGE)
        return value(i % width + b->me * piece, (int)(i / width), round);
    for (int q = 0; q < b->ranks; q++)
        sum += value(i + (kind == SCATTER ? b->me * piece : 0), q, round);
    return sum;
}

static void check(bench *b, int kind, int set, int round)
{
    const float *x = sherd__block_data(b->result[set]);

    for (int64_t i = 0; kind != COPY && i < b->held[kind][1]; i++)
        b->wrong += x[i] != wanted(b, kind, i, round + set);
}

static void move(bench *b, int kind, sherd__block *from, sherd__block *to)
{
    const int64_t stride[2] = {kind == EXCHANGE ? b->shape : 1, 1};
    sherd__move one = {.plan = b->plan[kind],
                       .dtype = SHERD_F32,
                       .source = from,
                       .source_stride = stride,
                       .result = to};

    must(sherd__call(b->world, "bench", &one, 1, false), b);
}

static void run_once(bench *b, int kind, int set)
{
    if (kind == COPY) {
        memcpy(sherd__block_data(b->result[set]), sherd__block_data(b->source[set]),
               (size_t)b->held[COPY][0] * 4);
    } else if (kind == TWICE) {
        move(b, SCATTER, b->source[set], b->part[set]);
        move(b, GATHER, b->part[set], b->result[set]);
    } else {
        move(b, kind, b->source[set], b->result[set]);
    }
}

/* Seconds of one turn of a sample: small ones have many, since a timer takes 20 ns and the
 * barrier's last rank is late. The first turns also bring what was just written into the caches. */
static double sample(bench *b, int kind, int64_t bytes, int round)
{
    int by_size = bytes <= 65536 ? 34 * SETS : bytes <= 1 << 20 ? 4 * SETS : SETS;
    int turns = b->turns ? b->turns : by_size;

    for (int set = 0; set < SETS; set++) {
        rewrite(b, kind, set, round);
        run_once(b, kind, set);
        check(b, kind, set, round);
        must(sherd__block_writable(b->world, b->result[set]), b);
    }
    barrier(b);
    int64_t start = sherd__now();
    for (int i = 0; i < turns; i++)
        run_once(b, kind, i % SETS);
    return slowest(b, 1e-9 * (double)(sherd__now() - start) / turns);
}

static void report(const bench *b, int64_t bytes, double times[KINDS][ROUNDS])
{
    double copy = median(times[COPY], ROUNDS);

    for (int k = 0; b->me == 0 && k < KINDS; k++) {
        double t = median(times[k], ROUNDS);
        printf("%-15s %9lld B %12.3f us %8.1f GB/s %8.3f of copy\n", kind_names[k],
               (long long)bytes, 1e6 * t, 1e-9 * (double)bytes / t, t / copy);
    }
}

static void run_size(bench *b, const sherd_mesh *mesh, int64_t bytes)
{
    sherd__block **const all[] = {b->source, b->part, b->result};
    double times[KINDS][ROUNDS];

    for (int i = 0; i < 3 * SETS; i++) {
        sherd__block *block = sherd__block_take(b->world, bytes + 64 * b->ranks, true);
        must(block != NULL, b);
        all[i / SETS][i % SETS] = block;
    }
    make_plans(b, mesh, bytes);
    double flag = b->ranks > 1 ? probe(b) : 0, twelve = slowest(b, additions());
    if (b->me == 0)
        printf("flag, one way: %.0f ns; twelve additions: %.2f ns\n", flag, twelve);
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < KINDS; k++)
            times[k][round] = sample(b, k, bytes, round);
    report(b, bytes, times);
    for (int i = 0; i < 3 * SETS; i++)
        sherd__block_give(b->world, all[i / SETS][i % SETS]);
}

static int body(sherd_world *world, void *payload)
{
    const asked *wanted_sizes = payload;
    bench b = {.world = world, .meet = wanted_sizes->meet, .turns = (int)wanted_sizes->turns};
    const sherd_mesh *mesh;

    b.ranks = sherd_world_ranks(world);
    b.me = sherd_world_rank(world);
    b.crowded = b.ranks > world->arena.cores;
    must(!sherd_mesh_create(&mesh, world, 1, (int64_t[]){b.ranks}, NULL, NULL), &b);
    for (int s = 0; s < SIZES; s++)
        if (!wanted_sizes->size || sizes[s] == wanted_sizes->size)
            run_size(&b, mesh, sizes[s]);
    if (b.wrong)
        fprintf(stderr, "rank %d: %lld wrong elements\n", b.me, (long long)b.wrong);
    return sherd_world_check(world) || b.wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    asked wanted = {.size = 0};
    int64_t ranks = 2;
    bool threads = false;
    const bench_option table[] = {{"-n", "RANKS", .number = &ranks, .most = SHERD_MAX_RANKS},
                                  {"--threads", .flag = &threads},
                                  {"--size", "BYTES", .number = &wanted.size},
                                  {"--turns", "N", .number = &wanted.turns, .most = 1000000}};
    int exit_status = 0;

    if (!READ_COMMAND_LINE(argc, argv, table))
        return 2;
    const sherd_world_options options = {.ranks = (int)ranks,
                                         .as = threads ? SHERD_THREADS : SHERD_PROCESSES};
    wanted.meet =
        mmap(NULL, sizeof *wanted.meet, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (wanted.meet == MAP_FAILED || sherd_spawn(&exit_status, &options, body, &wanted))
        return 1;
    return exit_status;
}
