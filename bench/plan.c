/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What planning costs, on paper: no ranks, one core. Cold times of the exact planner over random
 * pairs of layouts (median, p90, p99 and worst), a find in the cache, meshes of a million ranks,
 * how time grows with axes, dims and ranks, and meshes of clusters under all prices; for links also
 * plans played message by message (tests/simulator.h) beside their price and beside the other
 * planners'. One figure a line: a name, a number, a unit. Nothing is asserted. `plan WORD` runs
 * only the parts whose name begins so: cold, cached, million, growth, cluster, played. With --price
 * clusters are planned, and played, by a price file alone; --pairs says how many pairs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "plan/plan.h"
#include "price/price_text.h"
#include "simulator.h"
#include "command_line.h"
#include "timing.h"
#include "search/plans.h"

enum { PAIRS = 2000, GROWTH_PAIRS = 200, SCALE_ROUNDS = 15, CLUSTER_PAIRS = 60, PLAYED = 200 };

typedef struct place {
    sherd__heap heap;
    sherd__diag diag;
    sherd__space space;
} place;

/* What the command line asks for. */
typedef struct asked {
    const sherd_price *price; /* NULL: those of clusters, and others */
    int pairs;                /* 0: as many as each part has */
} asked;

static int pairs_of(const asked *a, int usual)
{
    return a->pairs ? a->pairs : usual;
}

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
    printf("%s p99 %.2f us\n", name, times[count * 99 / 100]);
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

static void time_cached(const asked *a)
{
    (void)a;
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

static void time_million(const asked *a)
{
    (void)a;
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

static void time_growth(const asked *a)
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
        time_pairs(name, meshes[i], 3, shape, true, NULL, pairs_of(a, GROWTH_PAIRS));
    }
    for (int ndim = 1; ndim <= 4; ndim++) {
        snprintf(name, sizeof name, "growth dims %d", ndim);
        time_pairs(name, "4x2x2", ndim, shape, true, NULL, pairs_of(a, GROWTH_PAIRS));
    }
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "growth ranks %s", ranks[i]);
        time_pairs(name, ranks[i], 3, shape, false, NULL, pairs_of(a, GROWTH_PAIRS));
    }
}

/* ---- clusters ------------------------------------------------------------------------------- */

static const char *const clusters[][2] = {
    {"64", "dp=4,pp=4,tp=4"}, {"4096", "dp=64,pp=8,tp=8"}, {"1024", "dp=16,pp=4,cp=2,tp=8"}};

static const int64_t cluster_shape[] = {4096, 12288, 768};

static const sherd_price cluster_links = {
    SHERD_PRICE_LINKS,
    2,
    {{"tp", 600000, 10620, 1000, 0}, {"*", 2700000, 48270, 1000, 0}},
    0,
    false,
    false};

/* One to three dims of a model's sizes, under the price of the machine, of links, and of PyTorch's
 * model; or under the one that was asked for. */
static void time_clusters(const asked *a)
{
    const sherd_price overlap = {SHERD_PRICE_LINKS,
                                 cluster_links.links,
                                 {cluster_links.link[0], cluster_links.link[1]},
                                 0,
                                 true,
                                 false};
    const sherd_price torch = {.kind = SHERD_PRICE_TORCH, .per_host = 8};
    const sherd_price *const prices[] = {NULL, &cluster_links, &overlap, &torch, a->price};
    static const char *const names[] = {"arena", "links", "overlap", "torch", "file"};
    int first = a->price ? 4 : 0, end = a->price ? 5 : 4;
    char name[64];

    for (int i = 0; i < 3; i++)
        for (int k = first; k < end; k++)
            for (int ndim = 1; ndim <= 3; ndim++) {
                const sherd_plan_options options = {.price = prices[k]};
                snprintf(name, sizeof name, "cluster %s %s dims %d", clusters[i][0], names[k],
                         ndim);
                time_pairs(name, clusters[i][1], ndim, cluster_shape, false, &options,
                           pairs_of(a, CLUSTER_PAIRS));
            }
}

/* What plans take message by message, over their price, and exact over the other planners. */
static void play_clusters(int which, int pairs, const sherd_price *price)
{
    double *ratio = calloc((size_t)pairs, sizeof *ratio), behind = 0;
    uint64_t state = 11;
    int near = 0, slower = 0;
    simulator s;
    place p;

    place_open(&p);
    const sherd_mesh *mesh = mesh_of(&p, clusters[which][1]);
    for (int i = 0; i < pairs;) {
        int ndim = 1 + i % 3;
        const sherd_layout *from = draw_layout(&p, mesh, ndim, cluster_shape, true, &state);
        const sherd_layout *to = draw_layout(&p, mesh, ndim, cluster_shape, false, &state);
        double time[3] = {0};
        if (from == to)
            continue;
        sim_open(&s, mesh, price, sim_bytes(from, sizeof(float)));
        for (int k = 0; k < 3; k++) {
            const sherd_plan_options options = {.planner = (sherd_planner)k, .price = price};
            const sherd_plan *plan;
            if (sherd_plan_create(&plan, from, to, SHERD_F32, &options) != SHERD_OK)
                fail(&p);
            time[k] = (double)sim_plan(&s, plan);
            if (k == 0)
                ratio[i] = time[k] > 0 ? 1000 * (double)plan->price.picoseconds / time[k] : 1;
        }
        sim_close(&s);
        near += ratio[i] > 0.9 && ratio[i] < 1.1;
        double other = time[1] < time[2] ? time[1] : time[2];
        slower += time[0] > 1.02 * other;
        behind = other > 0 && time[0] / other > behind ? time[0] / other : behind;
        i++;
    }
    sort_times(ratio, pairs);
    printf("played %s price_over_time median %.3f\n", clusters[which][0], ratio[pairs / 2]);
    printf("played %s price_over_time least %.3f\n", clusters[which][0], ratio[0]);
    printf("played %s price_over_time most %.3f\n", clusters[which][0], ratio[pairs - 1]);
    printf("played %s within_a_tenth %d of %d\n", clusters[which][0], near, pairs);
    printf("played %s slower_than_others %d of %d\n", clusters[which][0], slower, pairs);
    printf("played %s worst_over_others %.3f\n", clusters[which][0], behind);
    place_close(&p);
    free(ratio);
}

/* ---- all ------------------------------------------------------------------------------------ */

static void time_cold(const asked *a)
{
    static const int64_t large[] = {1024, 768, 512}, small[] = {16, 12, 8}, prime[] = {67, 31, 13};
    const sherd_price links = {
        SHERD_PRICE_LINKS, 1, {{"*", 2000000, 50000, 10000, 0}}, 0, false, false};
    const sherd_price torch = {.kind = SHERD_PRICE_TORCH};
    const sherd_plan_options by_links = {.price = &links}, by_torch = {.price = &torch};

    time_pairs("cold 2x2x2", "2x2x2", 3, large, false, NULL, pairs_of(a, PAIRS));
    time_pairs("cold 2x2x2 pending", "2x2x2", 3, large, true, NULL, pairs_of(a, PAIRS));
    time_pairs("cold 2x2x2 small", "2x2x2", 3, small, false, NULL, pairs_of(a, PAIRS));
    time_pairs("cold 2x3x2", "2x3x2", 3, large, false, NULL, pairs_of(a, PAIRS));
    time_pairs("cold 2x3x2 prime", "2x3x2", 3, prime, false, NULL, pairs_of(a, PAIRS));
    time_pairs("cold 8x4x8 pending", "8x4x8", 3, large, true, NULL, pairs_of(a, PAIRS));
    time_pairs("cold links 2x2x2", "2x2x2", 3, large, false, &by_links, pairs_of(a, GROWTH_PAIRS));
    time_pairs("cold torch 2x2x2", "2x2x2", 3, large, false, &by_torch, pairs_of(a, GROWTH_PAIRS));
}

static void play_all(const asked *a)
{
    const sherd_price *price = a->price ? a->price : &cluster_links;
    int pairs = pairs_of(a, PLAYED);

    play_clusters(0, pairs, price);
    play_clusters(2, pairs / 4, price);
}

/* Exits where the file is none. */
static void read_price(sherd_price *out, const char *path)
{
    char text[1 << 16] = "";
    sherd__diag diag = {.rank = -1};
    FILE *file = fopen(path, "re");
    size_t read = file ? fread(text, 1, sizeof text - 1, file) : 0;

    if (read == 0 || sherd__price_read(out, &diag, text) != SHERD_OK) {
        fprintf(stderr, "plan: %s: %s\n", path, read ? diag.text : "can not be read");
        exit(2);
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const asked *);
    } parts[] = {{"cold", time_cold},     {"cached", time_cached},    {"million", time_million},
                 {"growth", time_growth}, {"cluster", time_clusters}, {"played", play_all}};

    const char *part = "", *path = NULL;
    int64_t pairs = 0;
    const bench_option options[] = {{NULL, "PART", .text = &part},
                                    {"--price", "FILE", .text = &path},
                                    {"--pairs", "N", .number = &pairs, .most = 1 << 20}};
    sherd_price price;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    if (path)
        read_price(&price, path);
    const asked a = {path ? &price : NULL, (int)pairs};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(parts[i].name, part, strlen(part)) == 0)
            parts[i].run(&a);
    return 0;
}
