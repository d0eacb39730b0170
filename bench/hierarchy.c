/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for the links that are there beside those for one machine: hierarchy [MESH [MiB]]
 * [--steps]. For moves over both axes of a mesh such as host=2,local=2, the plan that the world's
 * price chooses and the direct step, taking turns in one run: what each was to take by that price,
 * what it takes, and whether the result is right; with --steps also each step of the plan alone.
 * Wants SHERD_PRICE; bench/hierarchy.sh measures one before, and starts all of it on hosts that it
 * makes.
 *
 * Medians of the slowest rank, from a meeting of all; sources are written to before each move.
 */
#include <stdio.h>
#include <stdlib.h>

#include "search/planners.h"
#include "sherd.h"
#include "command_line.h"
#include "timing.h"
#include "world/world.h"

enum { ROUNDS = 7, WAYS = 2 };

static const char *const moves[][2] = {{"P(sum)P(sum)", "RR"},
                                       {"S(0)S(0)", "RR"},
                                       {"S(0)S(1)", "RR"},
                                       {"P(sum)P(sum)", "S(0)S(0)"},
                                       {"S(0)S(0)", "S(1)S(1)"}};

typedef struct bench {
    sherd_world *world;
    const sherd_mesh *mesh, *all; /* ranks in a line */
    const sherd_layout *from, *to;
    sherd_plan_options options[WAYS]; /* chosen, direct */
    int64_t time[WAYS][ROUNDS];       /* ns */
} bench;

static void must(const bench *b, bool good)
{
    if (good)
        return;
    fprintf(stderr, "hierarchy: %s\n", sherd_world_error(b->world));
    exit(1);
}

/* Ones on each rank: what is pending and is added up makes as many as there are ranks on its axes.
 */
static bool is_right(const bench *b, const float *data)
{
    sherd_box box = sherd_layout_box(b->to, sherd_world_rank(b->world), 0);
    float one = 1;
    bool right = true;

    for (int i = 0; i < sherd_mesh_axes(b->mesh); i++)
        if (sherd_layout_placement(b->from, i).kind == SHERD_PARTIAL &&
            sherd_layout_placement(b->to, i).kind != SHERD_PARTIAL)
            one *= (float)sherd_mesh_extent(b->mesh, i);

    for (int64_t i = 0; i < box.size[0] * box.size[1]; i++)
        right = right && data[i] == one;
    return right;
}

/* Every stride-th element. */
static void write_ones(const bench *b, sherd_tensor *source, int64_t stride)
{
    sherd_box box = sherd_layout_box(b->from, sherd_world_rank(b->world), 0);
    float *own = sherd_tensor_write(source);

    must(b, own != NULL);
    for (int64_t i = 0; i < box.size[0] * box.size[1]; i += stride)
        own[i] = 1;
}

static void move_once(bench *b, sherd_tensor *source, int way, int64_t *time)
{
    const sherd_redistribute_options how = {.plan = &b->options[way]};

    sherd_scope_begin(b->world);
    write_ones(b, source, 16);
    must(b, !sherd_world_check(b->world));
    int64_t begin = sherd__now();
    const float *data = sherd_tensor_read(sherd_redistribute(source, b->to, &how));
    *time = sherd__now() - begin;
    must(b, data != NULL);
    if (!is_right(b, data)) {
        fprintf(stderr, "hierarchy: rank %d has wrong elements\n", sherd_world_rank(b->world));
        exit(1);
    }
    sherd_scope_end(b->world);
}

/* Seconds, of the slowest rank each time. */
static double median_of(const bench *b, int way)
{
    int64_t all[SHERD_MAX_RANKS][ROUNDS];
    double longest[ROUNDS] = {0};

    must(b, sherd__share(b->world, b->all, "hierarchy", b->time[way], ROUNDS, all[0]));
    for (int r = 0; r < sherd_world_ranks(b->world); r++)
        for (int i = 0; i < ROUNDS; i++)
            longest[i] =
                1e-9 * (double)all[r][i] > longest[i] ? 1e-9 * (double)all[r][i] : longest[i];
    return median(longest, ROUNDS);
}

/* What the direct step is to take by the world's price. */
static double direct_price(const bench *b)
{
    sherd__space *space = sherd__world_space(b->world);
    const sherd__request request = {.per_host = 1, .price = *space->price};
    const sherd__problem problem =
        sherd__problem_of(space, b->from, b->to, sizeof(float), &request);
    sherd__priced step;

    must(b, !sherd__step_price(&step, &problem, b->from, b->to));
    return 1e-12 * (double)step.step.picoseconds;
}

/* Times these ways, from `first` on, of the move that b->from and b->to say. */
static void time_ways(bench *b, int first)
{
    int64_t warm;

    sherd_scope_begin(b->world);
    sherd_tensor *source[2] = {sherd_constant_on(b->from, SHERD_F32, 1),
                               sherd_constant_on(b->from, SHERD_F32, 1)};
    write_ones(b, source[0], 1);
    write_ones(b, source[1], 1);
    for (int i = -1; i < ROUNDS; i++)
        for (int way = first; way < WAYS; way++)
            move_once(b, source[(i + 1) % 2], way, i < 0 ? &warm : &b->time[way][i]);
    sherd_scope_end(b->world);
}

/* Each step of a plan alone, from a meeting on. */
static void run_steps(bench *b, const sherd_plan *plan)
{
    for (int i = 0; i < sherd_plan_steps(plan); i++) {
        const sherd_step *step = sherd_plan_step(plan, i);
        b->from = step->from;
        b->to = step->to;
        time_ways(b, 1);
        double seconds = median_of(b, 1);
        if (sherd_world_rank(b->world) == 0)
            printf("           step %d %8.2f ms, predicted x%.2f  %s\n", i + 1, 1e3 * seconds,
                   1e-12 * (double)step->picoseconds / seconds, sherd_step_kind_name(step->kind));
        fflush(stdout);
    }
}

static void run_move(bench *b, int64_t kib, const char *const *move, bool steps_too)
{
    const int64_t shape[2] = {kib >> 2, 1024};
    const sherd_plan *chosen, *direct;
    double seconds[WAYS];

    must(b, !sherd_layout_parse_placements(&b->from, b->mesh, 2, shape, move[0], NULL));
    must(b, !sherd_layout_parse_placements(&b->to, b->mesh, 2, shape, move[1], NULL));
    time_ways(b, 0);
    for (int way = 0; way < WAYS; way++)
        seconds[way] = median_of(b, way);
    must(b, !sherd_plan_create(&direct, b->from, b->to, SHERD_F32, &b->options[1]));
    int steps = sherd_plan_steps(direct);
    must(b, !sherd_plan_create(&chosen, b->from, b->to, SHERD_F32, &b->options[0]));
    double guess[WAYS] = {1e-12 * (double)sherd_plan_price_of(chosen)->picoseconds,
                          direct_price(b)};
    if (sherd_world_rank(b->world) == 0)
        printf("%5lld KiB  chosen %8.2f ms, predicted x%.2f;  direct%s %8.2f ms, predicted x%.2f;  "
               "%.2f times as fast  %s\n",
               (long long)kib, 1e3 * seconds[0], guess[0] / seconds[0], steps > 1 ? " (not)" : "",
               1e3 * seconds[1], guess[1] / seconds[1], seconds[1] / seconds[0],
               sherd_plan_trace(chosen));
    fflush(stdout);
    if (steps_too)
        run_steps(b, chosen);
}

int main(int argc, char **argv)
{
    const char *mesh = "host=2,local=2";
    int64_t most = 64;
    bool steps = false;
    const bench_option options[] = {{NULL, "MESH", .text = &mesh},
                                    {NULL, "MIB", .number = &most},
                                    {"--steps", NULL, .flag = &steps}};
    char text[SHERD_ERROR_BYTES] = "";
    static const sherd_price arena;
    bench b = {.options = {{.price = NULL}, {.price = &arena}}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    if (sherd_world_open(&b.world, &(sherd_world_options){.error = text})) {
        fprintf(stderr, "hierarchy: %s\n", text);
        return 1;
    }
    const int64_t ranks = sherd_world_ranks(b.world);
    if (!sherd__world_space(b.world)->price) {
        printf("skipped: there is no SHERD_PRICE; bench/hierarchy.sh measures one\n");
        return sherd_world_close(b.world) != SHERD_OK;
    }
    must(&b, !sherd_mesh_create(&b.all, b.world, 1, &ranks, NULL, NULL));
    must(&b, !sherd_mesh_parse(&b.mesh, b.world, mesh));
    if (sherd_mesh_axes(b.mesh) != 2 || sherd_mesh_ranks(b.mesh) != ranks) {
        fprintf(stderr, "hierarchy: expected a mesh of two axes, of all %lld ranks\n",
                (long long)ranks);
        return 2;
    }
    for (int64_t kib = 256; kib <= most << 10; kib *= 4)
        for (int i = 0; i < (int)(sizeof moves / sizeof moves[0]); i++)
            run_move(&b, kib, moves[i], steps);
    return sherd_world_close(b.world) != SHERD_OK;
}
