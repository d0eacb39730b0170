/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What planning costs, on paper: no ranks, one core. Cold times of the exact planner over random pairs of
 * layouts (median, p90 and worst), a find in the cache, meshes of a million ranks, and how time grows with axes,
 * dims and ranks. One figure a line: a name, a number, a unit. Nothing is asserted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "plan/plan.h"
#include "timing.h"

enum { PAIRS = 2000, GROWTH_PAIRS = 200, SCALE_ROUNDS = 15 };

typedef struct place {
    sherd__heap heap;
    sherd__diag diag;
    sherd__space space;
} place;

static uint64_t draw(uint64_t *state)
{
    uint64_t x = (*state += 0x9E3779B97F4A7C15u);

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void fail(const place *p)
{
    fprintf(stderr, "plan: %s\n", p->diag.text);
    exit(1);
}

static void place_open(place *p)
{
    memset(p, 0, sizeof *p);
    p->diag.rank = -1;
    sherd__space_init(&p->space, &p->heap, &p->diag, 1 << 20, -1);
}

static void place_close(place *p)
{
    sherd__plans_clear(&p->space);
    sherd__space_clear(&p->space);
}

static const sherd_mesh *mesh_of(place *p, const char *text)
{
    const sherd_mesh *mesh;

    if (sherd__mesh_read(&mesh, &p->space, text) != SHERD_OK)
        fail(p);
    return mesh;
}

static const sherd_layout *layout_of(place *p, const sherd_mesh *mesh, int ndim,
                                     const int64_t *shape, const char *placements)
{
    const sherd_layout *layout;

    if (sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL) != SHERD_OK)
        fail(p);
    return layout;
}

/* Any placements and any order; pending sums only if `partial`. */
static const sherd_layout *draw_layout(place *p, const sherd_mesh *mesh, int ndim,
                                       const int64_t *shape, bool partial, uint64_t *state)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int order[SHERD_MAX_AXES] = {0}, count[SHERD_MAX_DIMS] = {0}, axes = sherd_mesh_axes(mesh);
    const sherd_layout *layout;

    for (int i = 0; i < axes; i++) {
        int choice = (int)(draw(state) % (uint64_t)(ndim + 1 + partial));
        placement[i] = choice < ndim    ? sherd_shard(choice)
                       : choice == ndim ? sherd_replicate()
                                        : sherd_partial(SHERD_SUM);
        if (choice >= ndim)
            continue;
        int place_in = (int)(draw(state) % (uint64_t)(count[choice] + 1));
        for (int j = 0; j < i; j++)
            if (placement[j].kind == SHERD_SHARD && placement[j].dim == choice)
                order[j] += order[j] >= place_in;
        order[i] = place_in;
        count[choice]++;
    }
    const sherd_layout_options options = {order, NULL};
    if (sherd_layout_create(&layout, mesh, ndim, shape, placement, &options) != SHERD_OK)
        fail(p);
    return layout;
}

static void print_times(const char *name, double *times, int count)
{
    sort_times(times, count);
    printf("%s median %.2f us\n", name, times[count / 2]);
    printf("%s p90 %.2f us\n", name, times[count * 9 / 10]);
    printf("%s worst %.2f us\n", name, times[count - 1]);
}

/* Time one cold plan, in a cache that has nothing of it; the smaller of two. */
static double plan_cold(place *p, const sherd_layout *from, const sherd_layout *to,
                        const sherd_plan_options *options, const sherd_plan **plan)
{
    double best = 0;

    for (int i = 0; i < 2; i++) {
        sherd__plans_clear(&p->space);
        double start = 1e6 * seconds();
        sherd_status status = sherd_plan_create(plan, from, to, SHERD_F32, options);
        double each = 1e6 * seconds() - start;
        if (status != SHERD_OK)
            fail(p);
        best = i == 0 || each < best ? each : best;
    }
    return best;
}

/* Cold plans of random pairs; `several`: only those with a pending reduction. */
static void time_pairs(const char *name, const char *mesh_text, int ndim, const int64_t *shape,
                       bool pending, const sherd_plan_options *options, int pairs)
{
    double *times = malloc((size_t)pairs * sizeof *times);
    uint64_t state = 7;
    int steps = 0, proven = 0;
    place p;

    place_open(&p);
    const sherd_mesh *mesh = mesh_of(&p, mesh_text);
    for (int i = 0; i < pairs;) {
        const sherd_layout *from = draw_layout(&p, mesh, ndim, shape, true, &state);
        const sherd_layout *to = draw_layout(&p, mesh, ndim, shape, false, &state);
        const sherd_plan *plan;
        if (from == to || (pending && !from->pending_axes))
            continue;
        times[i++] = plan_cold(&p, from, to, options, &plan);
        steps += plan->steps > 1;
        proven += plan->price.proven;
    }
    print_times(name, times, pairs);
    printf("%s several_steps %d of %d\n", name, steps, pairs);
    printf("%s proven %d of %d\n", name, proven, pairs);
    place_close(&p);
    free(times);
}

static void time_cached(void)
{
    enum { FINDS = 100000 };
    static const int64_t shape[] = {1024, 768, 512};
    const sherd_plan *plan;
    place p;

    place_open(&p);
    const sherd_mesh *mesh = mesh_of(&p, "2x2x2");
    const sherd_layout *from = layout_of(&p, mesh, 3, shape, "P(sum)S(0)R");
    const sherd_layout *to = layout_of(&p, mesh, 3, shape, "RS(1)S(0)");
    double start = 1e6 * seconds();
    for (int i = 0; i < FINDS; i++)
        if (sherd_plan_create(&plan, from, to, SHERD_F32, NULL) != SHERD_OK)
            fail(&p);
    printf("cached find %.4f us\n", (1e6 * seconds() - start) / FINDS);
    place_close(&p);
}

static void time_million(void)
{
    static const int64_t shapes[][3] = {{65536, 65536, 4096}, {65537, 65537, 4099}};
    static const char *const moves[][2] = {{"S(0)S(1)S(2)", "S(2)S(1)S(0)"},
                                           {"S(0)S(0)S(0)", "S(1)S(1)S(1)"},
                                           {"P(sum)S(0)R", "RS(1)S(0)"},
                                           {"P(sum)P(sum)P(sum)", "RRR"}};
    for (int i = 0; i < 8; i++) {
        double times[SCALE_ROUNDS];
        char name[96];
        const sherd_plan *plan = NULL;
        place p;
        place_open(&p);
        const sherd_mesh *mesh = mesh_of(&p, "128x128x64");
        const sherd_layout *from = layout_of(&p, mesh, 3, shapes[i / 4], moves[i % 4][0]);
        const sherd_layout *to = layout_of(&p, mesh, 3, shapes[i / 4], moves[i % 4][1]);
        for (int k = 0; k < SCALE_ROUNDS; k++)
            times[k] = plan_cold(&p, from, to, NULL, &plan);
        snprintf(name, sizeof name, "million %s %s->%s", i / 4 ? "prime" : "even", moves[i % 4][0],
                 moves[i % 4][1]);
        print_times(name, times, SCALE_ROUNDS);
        printf("%s trace %s\n", name, plan->trace);
        place_close(&p);
    }
}

static void time_growth(void)
{
    static const int64_t shape[] = {2048, 3000, 1031, 64};
    static const char *const meshes[] = {
        "8",         "2x4",         "2x2x2",         "2x2x2x2",
        "2x2x2x2x2", "2x2x2x2x2x2", "2x2x2x2x2x2x2", "2x2x2x2x2x2x2x2"};
    static const char *const ranks[] = {"2x2x2",    "4x4x4",    "8x8x8",
                                        "16x16x16", "32x32x32", "128x128x64"};
    char name[64];

    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "growth axes %d", i + 1);
        time_pairs(name, meshes[i], 3, shape, true, NULL, GROWTH_PAIRS);
    }
    for (int ndim = 1; ndim <= 4; ndim++) {
        snprintf(name, sizeof name, "growth dims %d", ndim);
        time_pairs(name, "4x2x2", ndim, shape, true, NULL, GROWTH_PAIRS);
    }
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "growth ranks %s", ranks[i]);
        time_pairs(name, ranks[i], 3, shape, false, NULL, GROWTH_PAIRS);
    }
}

int main(void)
{
    static const int64_t large[] = {1024, 768, 512}, small[] = {16, 12, 8}, prime[] = {67, 31, 13};
    const sherd_price links = {SHERD_PRICE_LINKS, 1, {{"*", 2000000, 50000, 10000}}, 0};
    const sherd_price torch = {.kind = SHERD_PRICE_TORCH};
    const sherd_plan_options by_links = {.price = &links}, by_torch = {.price = &torch};

    time_pairs("cold 2x2x2", "2x2x2", 3, large, false, NULL, PAIRS);
    time_pairs("cold 2x2x2 pending", "2x2x2", 3, large, true, NULL, PAIRS);
    time_pairs("cold 2x2x2 small", "2x2x2", 3, small, false, NULL, PAIRS);
    time_pairs("cold 2x3x2", "2x3x2", 3, large, false, NULL, PAIRS);
    time_pairs("cold 2x3x2 prime", "2x3x2", 3, prime, false, NULL, PAIRS);
    time_pairs("cold 8x4x8 pending", "8x4x8", 3, large, true, NULL, PAIRS);
    time_cached();
    time_million();
    time_growth();
    time_pairs("links 2x2x2", "2x2x2", 3, large, false, &by_links, GROWTH_PAIRS);
    time_pairs("torch 2x2x2", "2x2x2", 3, large, false, &by_torch, GROWTH_PAIRS);
    return 0;
}
