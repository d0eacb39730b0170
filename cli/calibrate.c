/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring links, see calibrate.h. Three source tensors take turns and are written before each
 * run; the result is the median of the slowest rank.
 */
#include "calibrate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "layout/layout.h"
#include "tensor/tensor.h"
#include "world/world.h"

enum { SOURCES = 3, RUNS = 5, COPIES = 2, LINE = 64 };

/*
 * Of the whole tensor, in bytes; and how many moves are timed as one: between small ones no rank
 * waits for a meeting.
 */
static const struct {
    int64_t bytes;
    int moves;
} sizes[CLI_SIZES] = {{1 << 10, 32}, {16 << 10, 32}, {256 << 10, 8},
                      {1 << 20, 2},  {4 << 20, 1},   {16 << 20, 1}};

static const struct {
    const char *from, *to; /* on the axis; replicated on the others */
} moves[CLI_MOVES] = {{"S(0)", "R"}, {"S(0)", "S(1)"}, {"P", "S(0)"}, {"P", "R"}};

/* ---- one move -------------------------------------------------------------------------------- */

typedef struct work {
    sherd_world *world;
    const sherd_mesh *mesh, *all; /* ranks in a line */
    int axis;
    const sherd_layout *from, *to;
    sherd_plan_options options; /* as the arena plans, whatever file there is */
    sherd_tensor *source[SOURCES];
} work;

static bool place(const sherd_layout **out, const work *w, const int64_t *shape, const char *here)
{
    char text[SHERD_MAX_AXES * 8] = "";

    for (int i = 0; i < sherd_mesh_axes(w->mesh); i++)
        strcat(text, i == w->axis ? here : "R");
    return sherd_layout_parse_placements(out, w->mesh, 2, shape, text, NULL) == SHERD_OK;
}

/* Rows and columns that the axis divides, of about so many bytes. */
static bool place_both(work *w, int move, int64_t bytes)
{
    int64_t p = sherd_mesh_extent(w->mesh, w->axis), columns = 16 * p;
    const int64_t shape[2] = {(bytes / 4 / columns + p) / p * p, columns};

    return place(&w->from, w, shape, moves[move].from) && place(&w->to, w, shape, moves[move].to);
}

/* Those that `count` moves from the first-th on take. */
static bool write_sources(const work *w, int first, int count)
{
    sherd_box box = sherd_layout_box(w->from, sherd_world_rank(w->world), 0);
    int64_t elements = sherd__box_count(&box);

    for (int i = first; i < first + count && i < first + SOURCES; i++) {
        float *data = sherd_tensor_write(w->source[i % SOURCES]);
        if (!data)
            return false;
        for (int64_t k = 0; k < elements; k += LINE / 4)
            data[k] = 1;
    }
    return true;
}

/* Nanoseconds of `count` moves, from a meeting of all ranks on; -1 if the world has failed. */
static int64_t time_once(const work *w, int first, int count)
{
    const sherd_redistribute_options how = {.plan = &w->options};

    if (!write_sources(w, first, count) || sherd_world_check(w->world) != SHERD_OK)
        return -1;
    int64_t begin = sherd__now();
    for (int i = first; i < first + count; i++) {
        sherd_scope_begin(w->world);
        const void *data =
            sherd_tensor_read(sherd_redistribute(w->source[i % SOURCES], w->to, &how));
        sherd_scope_end(w->world);
        if (!data)
            return -1;
    }
    return sherd__now() - begin;
}

/* Of the runs, each as long as its slowest rank. */
static bool time_moves(double *out, const work *w, int count)
{
    int64_t mine[RUNS], all[SHERD_MAX_RANKS][RUNS];
    double longest[RUNS] = {0};

    if (time_once(w, 0, count) < 0)
        return false;
    for (int i = 0; i < RUNS; i++)
        if ((mine[i] = time_once(w, i + 1, count)) < 0)
            return false;
    if (!sherd__share(w->world, w->all, "sherd check", mine, RUNS, all[0]))
        return false;
    for (int r = 0; r < sherd_world_ranks(w->world); r++)
        for (int i = 0; i < RUNS; i++) {
            double seconds = 1e-9 * (double)all[r][i] / count;
            longest[i] = seconds > longest[i] ? seconds : longest[i];
        }
    *out = cli_median(longest, RUNS);
    return true;
}

/*
 * What the step asks of the busiest rank, as the price of links counts it where all goes straight.
 */
static bool count_work(cli_timed *out, const work *w, int move)
{
    const sherd_plan *plan;

    if (sherd_plan_create(&plan, w->from, w->to, SHERD_F32, &w->options))
        return false;
    const sherd_step *step = sherd_plan_step(plan, 0);
    out->messages = (sherd_mesh_extent(w->mesh, w->axis) - 1) * (step->sliced ? 2 : 1);
    out->bytes = step->recv_max_bytes;
    out->added = move < COPIES ? 0 : step->sliced ? step->recv_max_bytes / 2 : step->recv_max_bytes;
    return true;
}

static bool measure_move(cli_timed *out, work *w, int move, int size)
{
    bool good;

    sherd_scope_begin(w->world);
    good = place_both(w, move, sizes[size].bytes) && count_work(out, w, move);
    for (int i = 0; i < SOURCES && good; i++)
        w->source[i] = sherd_constant_on(w->from, SHERD_F32, 1);
    good = good && time_moves(&out->seconds, w, sizes[size].moves);
    sherd_scope_end(w->world);
    return good;
}

/* ---- all of them ----------------------------------------------------------------------------- */

bool cli_times_measure(cli_times *out, sherd_world *world, const sherd_mesh *mesh, int axis)
{
    static const sherd_price arena;
    work w = {.world = world, .mesh = mesh, .axis = axis, .options = {.price = &arena}};
    const int64_t ranks = sherd_world_ranks(world);
    const double long_time = 0.5;
    double longest = 0;

    out->sizes = 0;
    if (sherd_mesh_create(&w.all, world, 1, &ranks, NULL, NULL))
        return false;
    while (out->sizes < CLI_SIZES && (longest < long_time || out->sizes < 3)) {
        for (int i = 0; i < CLI_MOVES; i++) {
            cli_timed *timed = &out->move[i][out->sizes];
            if (!measure_move(timed, &w, i, out->sizes))
                return false;
            longest = timed->seconds > longest ? timed->seconds : longest;
        }
        out->sizes++;
    }
    return true;
}

/* ---- what they say --------------------------------------------------------------------------- */

/* Seconds a byte received between two sizes. */
static double slope(const cli_timed *small, const cli_timed *large)
{
    return (large->seconds - small->seconds) / (double)(large->bytes - small->bytes);
}

void cli_times_fit(sherd_link *out, const cli_times *times)
{
    double copy[2 * COPIES], sum[2 * (CLI_MOVES - COPIES)], first[CLI_MOVES];
    int last = times->sizes - 1;

    for (int i = 0; i < 2 * COPIES; i++)
        copy[i] = slope(&times->move[i / 2][last - 1 - i % 2], &times->move[i / 2][last]);
    double beta = fmax(cli_median(copy, 2 * COPIES), 0);
    for (int i = 0; i < 2 * (CLI_MOVES - COPIES); i++) {
        const cli_timed *large = &times->move[COPIES + i / 2][last];
        sum[i] =
            (slope(large - 1 - i % 2, large) - beta) * (double)large->bytes / (double)large->added;
    }
    double gamma = fmax(cli_median(sum, 2 * (CLI_MOVES - COPIES)), 0);
    for (int i = 0; i < CLI_MOVES; i++) {
        const cli_timed *small = &times->move[i][0];
        double rest = small->seconds - beta * (double)small->bytes - gamma * (double)small->added;
        first[i] = fmax(rest, 0.5 * small->seconds) / (double)small->messages;
    }
    out->alpha_picoseconds = (int64_t)(1e12 * cli_median(first, CLI_MOVES));
    out->beta_femtoseconds = (int64_t)(1e15 * beta);
    out->gamma_femtoseconds = (int64_t)(1e15 * gamma);
}

void cli_link_write(char *out, size_t room, const sherd_link *link)
{
    snprintf(out, room, "%s %.4g %.4g %.4g\n", link->axis, 1e-12 * (double)link->alpha_picoseconds,
             1e-15 * (double)link->beta_femtoseconds, 1e-15 * (double)link->gamma_femtoseconds);
}
