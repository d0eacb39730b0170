/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring links, see calibrate.h. Each move is one step along the axis, whatever a planner would
 * make of it. Source tensors take turns and are written before each run, and results are read, as
 * in a program; what counts is the median of the slowest rank.
 *
 * All moves and sizes of an axis are timed in several passes. The runs of a small move are over in
 * a few milliseconds: in one go, whatever happens to the machine then would be taken for the link.
 */
#include "calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "layout/layout.h"
#include "tensor/tensor.h"
#include "world/world.h"

enum { PASSES = 3, SOURCES = 3, RUNS = 25, FEWER_RUNS = 3, LEAST_SIZES = 3, COPIES = 2, LINE = 64 };

/*
 * The sizes that are measured: bytes of the whole tensor; how many moves are timed as one (small
 * moves follow one another without a meeting; a larger one begins with all ranks waiting, as a step
 * of a plan does, and with an idle link); how many sources take turns; and how many runs a pass
 * has.
 */
static const struct {
    int64_t bytes;
    int moves, sources, runs;
} sizes[CLI_SIZES] = {{1 << 10, 32, SOURCES, RUNS},       {16 << 10, 32, SOURCES, RUNS},
                      {64 << 10, 1, SOURCES, RUNS},       {256 << 10, 1, SOURCES, RUNS},
                      {1 << 20, 1, SOURCES, RUNS},        {4 << 20, 1, SOURCES, FEWER_RUNS},
                      {16 << 20, 1, SOURCES, FEWER_RUNS}, {64 << 20, 1, 1, FEWER_RUNS}};

static const struct {
    const char *from, *to; /* on the axis; replicated on the others */
} moves[CLI_MOVES] = {{"S(0)", "R"}, {"S(0)", "S(1)"}, {"P", "S(0)"}};

/* ---- one move -------------------------------------------------------------------------------- */

typedef struct work {
    sherd_world *world;
    const sherd_mesh *mesh, *all; /* ranks in a line */
    int axis, sources;
    const sherd_layout *from, *to;
    sherd_plan_options options; /* one step along the axis, whatever file there is */
    sherd_tensor *source[SOURCES];
} work;

static bool place(const sherd_layout **out, const work *w, const int64_t *shape, const char *here)
{
    char text[SHERD_MAX_AXES * 8] = "";

    for (int i = 0; i < sherd_mesh_axes(w->mesh); i++)
        strcat(text, i == w->axis ? here : "R");
    return sherd_layout_parse_placements(out, w->mesh, 2, shape, text, NULL) == SHERD_OK;
}

/* About as many rows as columns, which the axis divides, of about so many bytes. */
static bool place_both(work *w, int move, int64_t bytes)
{
    int64_t p = sherd_mesh_extent(w->mesh, w->axis), columns = 16 * p;

    while (columns * columns < bytes / 4)
        columns *= 2;
    const int64_t shape[2] = {(bytes / 4 / columns + p) / p * p, columns};

    return place(&w->from, w, shape, moves[move].from) && place(&w->to, w, shape, moves[move].to);
}

/* Write the sources that `count` moves, from move `first` on, will read. */
static bool write_sources(const work *w, int first, int count)
{
    sherd_box box = sherd_layout_box(w->from, sherd_world_rank(w->world), 0);
    int64_t elements = sherd__box_count(&box);

    for (int i = first; i < first + count && i < first + w->sources; i++) {
        float *data = sherd_tensor_write(w->source[i % w->sources]);
        if (!data)
            return false;
        for (int64_t k = 0; k < elements; k += LINE / 4)
            data[k] = 1;
    }
    return true;
}

/*
 * Reads a result as a program would, a number of each cache line. False: there is none, or it is
 * wrong.
 */
static bool read_result(const work *w, const float *data)
{
    sherd_box box = sherd_layout_box(w->to, sherd_world_rank(w->world), 0);
    int64_t elements = data ? sherd__box_count(&box) : 0;
    bool good = data != NULL;

    for (int64_t k = 0; k < elements; k += LINE / 4)
        good = good && data[k] >= 0;
    return good;
}

/* Nanoseconds of `count` moves, from a meeting of all ranks on; -1 if the world has failed. */
static int64_t time_once(const work *w, int first, int count)
{
    const sherd_redistribute_options how = {.plan = &w->options};
    const float *data = NULL;

    if (!write_sources(w, first, count) || sherd_world_check(w->world) != SHERD_OK)
        return -1;
    int64_t begin = sherd__now();
    for (int i = first; i < first + count; i++) {
        sherd_scope_begin(w->world);
        data = sherd_tensor_read(sherd_redistribute(w->source[i % w->sources], w->to, &how));
        if (i + 1 < first + count)
            sherd_scope_end(w->world);
    }
    int64_t time = sherd__now() - begin;
    bool good = read_result(w, data);
    sherd_scope_end(w->world);
    return good ? time : -1;
}

/* Seconds of the runs of a move so far, each as long as its slowest rank. */
typedef struct runs {
    int count;
    double seconds[PASSES * RUNS];
} runs;

/* Adds one pass. */
static bool time_moves(runs *out, const work *w, int count, int more)
{
    int64_t mine[RUNS] = {0}, all[SHERD_MAX_RANKS][RUNS];
    double longest[RUNS] = {0};

    if (time_once(w, 0, count) < 0)
        return false;
    for (int i = 0; i < more; i++)
        if ((mine[i] = time_once(w, i + 1, count)) < 0)
            return false;
    if (!sherd__share(w->world, w->all, "sherd check", mine, RUNS, all[0]))
        return false;
    for (int r = 0; r < sherd_world_ranks(w->world); r++)
        for (int i = 0; i < more; i++) {
            double seconds = 1e-9 * (double)all[r][i] / count;
            longest[i] = seconds > longest[i] ? seconds : longest[i];
        }
    for (int i = 0; i < more; i++)
        out->seconds[out->count++] = longest[i];
    return true;
}

/*
 * What the busiest rank receives and adds in the step, as the price of links counts a straight
 * step.
 */
static bool count_work(cli_timed *out, const work *w, int move)
{
    const sherd_plan *plan;

    if (sherd_plan_create(&plan, w->from, w->to, SHERD_F32, &w->options))
        return false;
    if (sherd_plan_steps(plan) != 1)
        return false;
    const sherd_step *step = sherd_plan_step(plan, 0);
    out->messages = sherd_mesh_extent(w->mesh, w->axis) - 1;
    out->bytes = step->recv_max_bytes;
    out->added = move < COPIES ? 0 : step->recv_max_bytes;
    return true;
}

/* One pass; `out` has the median of all so far. */
static bool measure_move(cli_timed *out, runs *times, work *w, int move, int size)
{
    bool good;

    w->sources = sizes[size].sources;
    sherd_scope_begin(w->world);
    good = place_both(w, move, sizes[size].bytes) && count_work(out, w, move);
    for (int i = 0; i < w->sources && good; i++)
        w->source[i] = sherd_constant_on(w->from, SHERD_F32, 1);
    good = good && time_moves(times, w, sizes[size].moves, sizes[size].runs);
    sherd_scope_end(w->world);
    if (good)
        out->seconds = cli_median(times->seconds, times->count);
    return good;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* One pass of a size; *longest: of its moves and those before. */
static bool measure_size(cli_times *out, runs *times, work *w, int size, double *longest)
{
    out->bytes[size] = sizes[size].bytes;
    for (int i = 0; i < CLI_MOVES; i++) {
        cli_timed *timed = &out->move[i][size];
        if (!measure_move(timed, &times[i], w, i, size))
            return false;
        *longest = fmax(*longest, timed->seconds);
    }
    return true;
}

/* A test may ask for the smallest only. */
static int sizes_wanted(void)
{
    const char *text = getenv("SHERD_CALIBRATE_SIZES");
    int wanted = text ? atoi(text) : 0;

    return wanted >= LEAST_SIZES && wanted < CLI_SIZES ? wanted : CLI_SIZES;
}

bool cli_times_measure(cli_times *out, sherd_world *world, const sherd_mesh *mesh, int axis)
{
    static const sherd_price arena;
    runs times[CLI_SIZES][CLI_MOVES] = {{{.count = 0}}};
    work w = {.world = world, .mesh = mesh, .axis = axis};
    const int64_t ranks = sherd_world_ranks(world);
    const double long_time = 0.1;
    const int most = sizes_wanted();
    double longest = 0;

    w.options = (sherd_plan_options){.planner = SHERD_PLANNER_GREEDY, .price = &arena};
    out->sizes = 0;
    if (sherd_mesh_create(&w.all, world, 1, &ranks, NULL, NULL))
        return false;
    for (; out->sizes < most && (longest < long_time || out->sizes < LEAST_SIZES); out->sizes++)
        if (!measure_size(out, times[out->sizes], &w, out->sizes, &longest))
            return false;
    for (int pass = 1; pass < PASSES; pass++)
        for (int size = 0; size < out->sizes; size++)
            if (!measure_size(out, times[size], &w, size, &longest))
                return false;
    return true;
}

/* ---- what they say --------------------------------------------------------------------------- */

enum { NEAR = 3, MOST_SEEN = NEAR * CLI_MOVES };

/* Alpha and beta in seconds, and how far copies are from them. */
typedef struct fit {
    double alpha, beta, off;
} fit;

/* Some moves at a size and the ones beside it; at either end itself once more. */
static int look_near(const cli_timed **out, const cli_times *times, int size, int first, int end)
{
    int count = 0;

    for (int i = first; i < end; i++)
        for (int k = size - 1; k <= size + 1; k++) {
            int near = k < 0 ? 0 : k < times->sizes ? k : times->sizes - 1;
            out[count++] = &times->move[i][near];
        }
    return count;
}

/* Takes alpha and beta if neither is negative and they are closer than the best so far. */
static void try_fit(fit *best, double alpha, double beta, const cli_timed *const *seen, int count)
{
    double off = 0;

    if (!(alpha >= 0 && beta >= 0))
        return;
    for (int i = 0; i < count; i++)
        off += fabs((alpha * (double)seen[i]->messages + beta * (double)seen[i]->bytes) /
                        seen[i]->seconds -
                    1);
    if (off < best->off)
        *best = (fit){alpha, beta, off};
}

/*
 * The alpha and beta of copies whose relative errors have the least sum. They meet two of the times
 * exactly, or one where either is nothing, so these are tried.
 */
static fit fit_copies(const cli_times *times, int size)
{
    const cli_timed *seen[MOST_SEEN];
    int count = look_near(seen, times, size, 0, COPIES);
    fit best = {.off = HUGE_VAL};

    for (int i = 0; i < count; i++) {
        double m = (double)seen[i]->messages, n = (double)seen[i]->bytes, t = seen[i]->seconds;
        try_fit(&best, t / m, 0, seen, count);
        try_fit(&best, 0, t / n, seen, count);
        for (int k = 0; k < i; k++) {
            double other = (double)seen[k]->messages, bytes = (double)seen[k]->bytes;
            double area = m * bytes - other * n;
            try_fit(&best, (t * bytes - seen[k]->seconds * n) / area,
                    (m * seen[k]->seconds - other * t) / area, seen, count);
        }
    }
    return best;
}

/* The median of what sums take beyond copies, for each byte added. */
static double fit_sums(const cli_times *times, int size, const fit *copies)
{
    const cli_timed *seen[MOST_SEEN];
    double rest[MOST_SEEN];
    int count = look_near(seen, times, size, COPIES, CLI_MOVES);

    for (int i = 0; i < count; i++)
        rest[i] = (seen[i]->seconds - copies->alpha * (double)seen[i]->messages -
                   copies->beta * (double)seen[i]->bytes) /
                  (double)seen[i]->added;
    return fmax(cli_median(rest, count), 0);
}

int cli_times_fit(sherd_link *out, int most, const cli_times *times)
{
    int lines = 0;

    for (int k = times->sizes > most ? times->sizes - most : 0; k < times->sizes; k++) {
        bool last = k + 1 == times->sizes;
        fit copies = fit_copies(times, k);
        double gamma = fit_sums(times, k, &copies);
        out[lines++] = (sherd_link){
            .alpha_picoseconds = (int64_t)(1e12 * copies.alpha),
            .beta_femtoseconds = (int64_t)(1e15 * copies.beta),
            .gamma_femtoseconds = (int64_t)(1e15 * gamma),
            .upto_bytes =
                last ? 0 : (int64_t)sqrt((double)times->bytes[k] * (double)times->bytes[k + 1])};
    }
    return lines;
}

void cli_line_write(char *out, size_t room, const sherd_link *line)
{
    char limit[32] = "";

    if (line->upto_bytes)
        snprintf(limit, sizeof limit, " upto %lld", (long long)line->upto_bytes);
    snprintf(out, room, "%s %.4g %.4g %.4g%s\n", line->axis,
             1e-12 * (double)line->alpha_picoseconds, 1e-15 * (double)line->beta_femtoseconds,
             1e-15 * (double)line->gamma_femtoseconds, limit);
}
