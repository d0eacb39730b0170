/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the search takes to be left at least, under all prices and on meshes of up to 256 ranks,
 * against what is: all steps between all states of a problem priced, and relaxed until no state
 * gets nearer to the goal.
 */
#define CHECK_PURE
#include "scenes.h"
#include "search/search.h"

enum { NODES = 150 };

static const sherd__cost never = {INT64_MAX / 4, INT64_MAX / 4, 1000};

typedef struct ways {
    sherd__cost step[NODES][NODES], left[NODES];
} ways;

typedef struct tally {
    int64_t nodes, near, beside;
} tally;

static bool leads(const sherd__field *field, int a, int b)
{
    return a != b && a != SHERD__GOAL && !(field->node[b].pending & ~field->node[a].pending);
}

static void complain(const sherd__field *field, const char *what, int a, int b, sherd__cost least,
                     sherd__cost found)
{
    fprintf(stderr, "%s, %s: %s -> %s: nodes %d and %d: %lld ps, %lld bytes, but %lld, %lld\n",
            what, field->price->name, field->problem->from->text, field->problem->to->text, a, b,
            (long long)least.picoseconds, (long long)least.bytes, (long long)found.picoseconds,
            (long long)found.bytes);
}

/* A look is at most the price, and the same where it is sure. */
static void price_step(ways *w, const sherd__field *field, int a, int b)
{
    sherd__search_edge look, price;
    bool allowed;

    sherd__edge_look(&look, field, a, b, SHERD__MOST);
    price = look;
    CHECK_OK(sherd__edge_price(&price, &allowed, field, a, b, 0));
    w->step[a][b] = price.cost;
    if (!CHECK(sherd__cost_compare(look.cost, price.cost) <= 0) ||
        !CHECK(!look.sure_time || look.cost.picoseconds == price.cost.picoseconds) ||
        !CHECK(!look.sure_bytes || look.cost.bytes == price.cost.bytes))
        complain(field, "look", a, b, look.cost, price.cost);
}

/* Under links there are glances besides, and bounds of any way. */
static void bound_step(const ways *w, const sherd__field *field, int a, int b)
{
    sherd__cost bound = sherd__bound_between(field, a, b, SHERD__MOST), price = w->step[a][b];

    if (!CHECK(bound.picoseconds <= price.picoseconds))
        complain(field, "bound", a, b, bound, price);
    for (int from = 0; from < 2; from++) {
        sherd__glances g;
        sherd__glances_start(&g, field, from ? a : b, from);
        bound.picoseconds = sherd__glance(&g, from ? b : a, SHERD__MOST);
        if (!CHECK(bound.picoseconds <= price.picoseconds))
            complain(field, "glance", a, b, bound, price);
    }
}

static bool has_links(const sherd__field *field)
{
    return field->price == &sherd__price_links && !field->across;
}

static void find_ways(ways *w, const sherd__field *field)
{
    int n = field->nodes;
    bool changed = true;

    for (int a = 0; a < n; a++) {
        w->left[a] = a == SHERD__GOAL ? (sherd__cost){0, 0, 0} : never;
        for (int b = 0; b < n; b++) {
            w->step[a][b] = never;
            if (leads(field, a, b))
                price_step(w, field, a, b);
            if (leads(field, a, b) && has_links(field))
                bound_step(w, field, a, b);
        }
    }
    while (changed) {
        changed = false;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) {
                sherd__cost way = sherd__cost_add(w->step[a][b], w->left[b]);
                if (sherd__cost_compare(way, w->left[a]) >= 0)
                    continue;
                w->left[a] = way;
                changed = true;
            }
    }
}

static void compare_left(tally *t, const ways *w, const sherd__field *field)
{
    for (int a = 0; a < field->nodes; a++) {
        sherd__cost left = field->node[a].left;
        if (a == SHERD__GOAL)
            continue;
        if (!CHECK(sherd__cost_compare(left, w->left[a]) <= 0))
            complain(field, "left", a, SHERD__GOAL, left, w->left[a]);
        if (has_links(field) && !CHECK(sherd__cost_compare(field->node[a].ahead, w->left[a]) <= 0))
            complain(field, "ahead", a, SHERD__GOAL, field->node[a].ahead, w->left[a]);
        t->nodes++;
        t->near += 10 * left.picoseconds >= 8 * w->left[a].picoseconds;
    }
}

/* The cheapest that begins with another step than the direct one, which may be no better. */
static void compare_beside(tally *t, const ways *w, const sherd__field *field)
{
    sherd__cost best = never;

    for (int b = 0; b < field->nodes; b++) {
        sherd__cost way = sherd__cost_add(w->step[SHERD__START][b], w->left[b]);
        if (b != SHERD__GOAL && sherd__cost_compare(way, best) < 0)
            best = way;
    }
    const sherd__cost least = {sherd__least_beside_direct(field), 0, 1};
    if (!CHECK(sherd__cost_compare(least, best) <= 0 ||
               sherd__cost_compare(w->step[SHERD__START][SHERD__GOAL], best) <= 0))
        complain(field, "beside", SHERD__START, SHERD__GOAL, least, best);
    t->beside++;
}

/* Within a mesh links have a search of their own for what is left. */
static void find_left(sherd__field *field)
{
    const sherd__cost most = {INT64_MAX, INT64_MAX, INT64_MAX};
    sherd__route route;

    if (has_links(field))
        CHECK_OK(sherd__left_find(&route, field, most));
    else
        sherd__least_find(field);
}

static void compare(tally *t, const sherd__problem *problem)
{
    static ways w;
    sherd__field field;

    sherd__field_start(&field, problem, problem->to);
    CHECK_OK(sherd__field_fill(&field));
    if (has_links(&field)) {
        sherd__links_pairs(&field);
        sherd__bound_fill(&field);
    }
    if (field.all_states && field.nodes <= NODES) {
        find_ways(&w, &field);
        find_left(&field);
        compare_left(t, &w, &field);
        if (field.price == &sherd__price_arena && field.reduced)
            compare_beside(t, &w, &field);
    }
    sherd__field_clear(&field);
}

/* ---- problems -------------------------------------------------------------------------------- */

static const char *const all_meshes[] = {"4x4", "5x5",   "2x8", "16x16", "8x2",
                                         "3x5", "16x16", "12",  "2x3x4", "4x4"};

/* Tensors whose parts take about as long as a round, or not near that. */
static void draw_shape(scene *s)
{
    static const int64_t sizes[] = {8, 64, 75, 128, 512, 1000, 7, 2048, 1, 31};

    s->ndim = 1 + roll(&s->dice, 2);
    for (int d = 0; d < s->ndim; d++)
        s->shape[d] = sizes[roll(&s->dice, LEN(sizes))] * (s->ndim == 1 ? 64 : 1);
}

static void draw_price(scene *s, sherd_price *price, int kind)
{
    *price = (sherd_price){.kind = (sherd_price_kind)kind};
    if (kind == SHERD_PRICE_TORCH)
        price->per_host = 1 << roll(&s->dice, 5);
    if (kind != SHERD_PRICE_LINKS)
        return;
    price->overlap = roll(&s->dice, 4) == 0;
    price->straight = roll(&s->dice, 2);
    draw_links(s, price);
}

/* Most axes are pending. */
static unsigned draw_sums(scene *s)
{
    unsigned all = (1u << s->mesh->axes) - 1;

    return roll(&s->dice, 3) ? all : (unsigned)roll(&s->dice, (int)all + 1);
}

static void compare_some(int kind, bool across, int rounds)
{
    scene s = {.dice = 51 + (uint64_t)kind};
    tally t = {.nodes = 0};

    paper_open(&s.p, 256);
    for (int k = 0; k < (getenv("SHERD_PROOF") ? 10 * rounds : rounds); k++) {
        sherd__request request = {.max_bytes = 0};
        draw_shape(&s);
        draw_price(&s, &request.price, kind);
        s.mesh = paper_mesh(&s.p, all_meshes[k % LEN(all_meshes)]);
        const sherd_layout *from = draw_layout(&s, draw_sums(&s));
        if (across)
            s.mesh = paper_mesh(&s.p, all_meshes[(k + 1 + k / 10) % LEN(all_meshes)]);
        const sherd_layout *to = draw_layout(&s, 0);
        const sherd__problem problem =
            sherd__problem_of(&s.p.space, from, to, k % 2 ? 4 : 8, &request);
        if (from != to)
            compare(&t, &problem);
    }
    printf("       %lld states, %lld with at least 0.8 of what is left\n", (long long)t.nodes,
           (long long)t.near);
    CHECK(t.nodes > 4 * rounds);
    CHECK(t.near > t.nodes / 20);
    CHECK(kind != SHERD_PRICE_ARENA || across || t.beside > rounds / 2);
    move_paper_close(&s.p);
}

static void no_less_is_left_on_the_arena(void)
{
    compare_some(SHERD_PRICE_ARENA, false, 120);
}

static void no_less_is_left_on_links(void)
{
    compare_some(SHERD_PRICE_LINKS, false, 40);
}

static void no_less_is_left_on_torchs_model(void)
{
    compare_some(SHERD_PRICE_TORCH, false, 60);
}

static void no_less_is_left_across_meshes(void)
{
    compare_some(SHERD_PRICE_ARENA, true, 15);
    compare_some(SHERD_PRICE_LINKS, true, 5);
    compare_some(SHERD_PRICE_TORCH, true, 5);
}

static const check_test tests[] = {
    {TEST(no_less_is_left_on_the_arena)},
    {TEST(no_less_is_left_on_links)},
    {TEST(no_less_is_left_on_torchs_model)},
    {TEST(no_less_is_left_across_meshes)},
};
CHECK_MAIN(tests)
