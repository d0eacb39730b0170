/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that know the links between hosts, beside direct steps: hierarchy [MESH [MiB]] [--steps].
 * For moves over both axes of a mesh such as host=2,local=2, the plan that the world's price
 * chooses and the direct step, taking turns in one run: what each was to take by that price, what
 * it takes, and whether the result is right; with --steps also each step of the plan alone. Wants
 * SHERD_PRICE; bench/hierarchy.sh measures one before, and starts all of it on hosts that it makes.
 *
 * Medians of the slowest rank, from a meeting of all; sources are written to before each move. All
 * moves of a size are timed in several passes, so that what disturbs a moment does not decide one
 * of them; how far the passes' own medians are apart (the greatest over the least) is said beside
 * each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "search/planners.h"
#include "sherd.h"
#include "command_line.h"
#include "timing.h"
#include "world/world.h"

enum { ROUNDS = 7, PASSES = 5, RUNS = ROUNDS * PASSES, WAYS = 2 };

static const char *const moves[][2] = {{"P(sum)P(sum)", "RR"},
                                       {"S(0)S(0)", "RR"},
                                       {"S(0)S(1)", "RR"},
                                       {"P(sum)P(sum)", "S(0)S(0)"},
                                       {"S(0)S(0)", "S(1)S(1)"}};

enum { MOVES = sizeof moves / sizeof moves[0] };

typedef struct bench {
    sherd_world *world;
    const sherd_mesh *mesh, *all;     /* ranks in a line */
    sherd_plan_options options[WAYS]; /* chosen, direct */
} bench;

/* A move, and what it took. */
typedef struct course {
    const sherd_layout *from, *to;
    int64_t time[WAYS][RUNS]; /* ns */
} course;

/* Of all runs, in seconds, and how far the passes are apart. */
typedef struct taken {
    double median, apart;
} taken;

static void must(const bench *b, bool good)
{
    if (good)
        return;
    fprintf(stderr, "hierarchy: %s\n", sherd_world_error(b->world));
    exit(1);
}

/* Ones on each rank: what is pending and is added up makes as many as there are ranks on its axes.
 */
static bool is_right(const bench *b, const course *c, const float *data)
{
    sherd_box box = sherd_layout_box(c->to, sherd_world_rank(b->world), 0);
    float one = 1;
    bool right = true;

    for (int i = 0; i < sherd_mesh_axes(b->mesh); i++)
        if (sherd_layout_placement(c->from, i).kind == SHERD_PARTIAL &&
            sherd_layout_placement(c->to, i).kind != SHERD_PARTIAL)
            one *= (float)sherd_mesh_extent(b->mesh, i);

    for (int64_t i = 0; i < box.size[0] * box.size[1]; i++)
        right = right && data[i] == one;
    return right;
}

/* Every stride-th element. */
static void write_ones(const bench *b, const course *c, sherd_tensor *source, int64_t stride)
{
    sherd_box box = sherd_layout_box(c->from, sherd_world_rank(b->world), 0);
    float *own = sherd_tensor_write(source);

    must(b, own != NULL);
    for (int64_t i = 0; i < box.size[0] * box.size[1]; i += stride)
        own[i] = 1;
}

static void move_once(const bench *b, const course *c, sherd_tensor *source, int way, int64_t *time)
{
    const sherd_redistribute_options how = {.plan = &b->options[way]};

    sherd_scope_begin(b->world);
    write_ones(b, c, source, 16);
    must(b, !sherd_world_check(b->world));
    int64_t begin = sherd__now();
    const float *data = sherd_tensor_read(sherd_redistribute(source, c->to, &how));
    *time = sherd__now() - begin;
    must(b, data != NULL);
    if (!is_right(b, c, data)) {
        fprintf(stderr, "hierarchy: rank %d has wrong elements\n", sherd_world_rank(b->world));
        exit(1);
    }
    sherd_scope_end(b->world);
}

/* Of the slowest rank each time. */
static taken taken_of(const bench *b, const course *c, int way)
{
    int64_t all[SHERD_MAX_RANKS][RUNS];
    double longest[RUNS] = {0}, least = HUGE_VAL, most = 0;

    must(b, sherd__share(b->world, b->all, "hierarchy", c->time[way], RUNS, all[0]));
    for (int r = 0; r < sherd_world_ranks(b->world); r++)
        for (int i = 0; i < RUNS; i++)
            longest[i] = fmax(longest[i], 1e-9 * (double)all[r][i]);
    for (int i = 0; i < PASSES; i++) {
        double here = median(longest + (ptrdiff_t)i * ROUNDS, ROUNDS);
        least = fmin(least, here);
        most = fmax(most, here);
    }
    return (taken){median(longest, RUNS), most / least};
}

/* What the direct step is to take by the world's price. */
static double direct_price(const bench *b, const course *c)
{
    sherd__space *space = sherd__world_space(b->world);
    const sherd__request request = {.per_host = 1, .price = *space->price};
    const sherd__problem problem =
        sherd__problem_of(space, c->from, c->to, sizeof(float), &request);
    sherd__priced step;

    must(b, !sherd__step_price(&step, &problem, c->from, c->to));
    return 1e-12 * (double)step.step.picoseconds;
}

/* One pass of a move by these ways, from `first` on. */
static void time_ways(const bench *b, course *c, int first, int pass)
{
    int64_t warm;

    sherd_scope_begin(b->world);
    sherd_tensor *source[2] = {sherd_constant_on(c->from, SHERD_F32, 1),
                               sherd_constant_on(c->from, SHERD_F32, 1)};
    write_ones(b, c, source[0], 1);
    write_ones(b, c, source[1], 1);
    for (int i = -1; i < ROUNDS; i++)
        for (int way = first; way < WAYS; way++)
            move_once(b, c, source[(i + 1) % 2], way,
                      i < 0 ? &warm : &c->time[way][pass * ROUNDS + i]);
    sherd_scope_end(b->world);
}

/* Each step of a plan alone, from a meeting on. */
static void run_steps(const bench *b, const sherd_plan *plan)
{
    for (int i = 0; i < sherd_plan_steps(plan); i++) {
        const sherd_step *step = sherd_plan_step(plan, i);
        course c = {.from = step->from, .to = step->to};
        for (int pass = 0; pass < PASSES; pass++)
            time_ways(b, &c, 1, pass);
        taken t = taken_of(b, &c, 1);
        if (sherd_world_rank(b->world) == 0)
            printf("           step %d %8.2f ms, predicted x%.2f, passes x%.2f  %s\n", i + 1,
                   1e3 * t.median, 1e-12 * (double)step->picoseconds / t.median, t.apart,
                   sherd_step_kind_name(step->kind));
        fflush(stdout);
    }
}

static void say_course(const bench *b, int64_t kib, const course *c, bool steps_too)
{
    const sherd_plan *chosen, *direct;
    taken t[WAYS];

    for (int way = 0; way < WAYS; way++)
        t[way] = taken_of(b, c, way);
    must(b, !sherd_plan_create(&direct, c->from, c->to, SHERD_F32, &b->options[1]));
    int steps = sherd_plan_steps(direct);
    must(b, !sherd_plan_create(&chosen, c->from, c->to, SHERD_F32, &b->options[0]));
    double guess[WAYS] = {1e-12 * (double)sherd_plan_price_of(chosen)->picoseconds,
                          direct_price(b, c)};
    if (sherd_world_rank(b->world) == 0)
        printf("%5lld KiB  chosen %8.2f ms, predicted x%.2f, passes x%.2f;  direct%s %8.2f ms, "
               "predicted x%.2f, passes x%.2f;  %.2f times as fast  %s\n",
               (long long)kib, 1e3 * t[0].median, guess[0] / t[0].median, t[0].apart,
               steps > 1 ? " (not)" : "", 1e3 * t[1].median, guess[1] / t[1].median, t[1].apart,
               t[1].median / t[0].median, sherd_plan_trace(chosen));
    fflush(stdout);
    if (steps_too)
        run_steps(b, chosen);
}

static void run_size(const bench *b, int64_t kib, bool steps_too)
{
    const int64_t shape[2] = {kib >> 2, 1024};
    course c[MOVES];

    for (int i = 0; i < MOVES; i++) {
        const char *const *move = moves[i];
        must(b, !sherd_layout_parse_placements(&c[i].from, b->mesh, 2, shape, move[0], NULL));
        must(b, !sherd_layout_parse_placements(&c[i].to, b->mesh, 2, shape, move[1], NULL));
    }
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < MOVES; i++)
            time_ways(b, &c[i], 0, pass);
    for (int i = 0; i < MOVES; i++)
        say_course(b, kib, &c[i], steps_too);
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
        run_size(&b, kib, steps);
    return sherd_world_close(b.world) != SHERD_OK;
}
