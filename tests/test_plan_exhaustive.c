/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact planner against a planner of its own that leaves nothing out (exhaustive.h): where the
 * library says `proven`, its plan costs what the cheapest costs; where it does not, no less. All
 * kinds of prices, tensors of 1 to 3 dims, even, uneven, shorter than the mesh and empty, with the
 * chunk rule's cuts and with others. SHERD_PROOF=1 takes ten times as
 * many pairs.
 */
#define CHECK_PURE
#include "exhaustive.h"

static universe u; /* some megabytes */

typedef struct tally {
    int64_t pairs, longer;
} tally;

/* ---- prices ---------------------------------------------------------------------------------- */

enum { PRICES = 12 };

static sherd_link link_of(const char *axis, int64_t alpha, int64_t beta, int64_t gamma,
                          int64_t upto)
{
    sherd_link link = {.alpha_picoseconds = alpha,
                       .beta_femtoseconds = beta,
                       .gamma_femtoseconds = gamma,
                       .upto_bytes = upto};

    snprintf(link.axis, sizeof link.axis, "%s", axis);
    return link;
}

/* Lines of some axes with constants of very different sizes, 0 among them, for one size or two. */
static void draw_links(sherd_price *price, uint64_t *dice)
{
    static const char *const names[] = {"a0", "a1", "*", "a2"};
    static const int64_t scale[] = {0, 1, 1000, 100000, 10000000};
    int names_used = 1 + roll(dice, 4);

    for (int i = 0; i < names_used; i++)
        for (int size = roll(dice, 2); size >= 0; size--)
            price->link[price->links++] =
                link_of(names[i], roll(dice, 9) * scale[roll(dice, 5)],
                        roll(dice, 9) * scale[roll(dice, 4)], roll(dice, 9) * scale[roll(dice, 3)],
                        size ? 64 << roll(dice, 8) : 0);
}

/* The i-th kind of price: those of links with and without `straight` and `overlap`. */
static sherd_price price_of(int i, uint64_t *dice)
{
    sherd_price price = {.kind = SHERD_PRICE_LINKS, .straight = i & 1, .overlap = i & 2};

    if (i == PRICES - 1)
        return (sherd_price){.kind = SHERD_PRICE_ARENA};
    if (i == PRICES - 2)
        return (sherd_price){.kind = SHERD_PRICE_TORCH, .per_host = 1 + roll(dice, 4)};
    if (i < 4) { /* what is slow by its messages is not what is slow by its bytes */
        price.link[0] = link_of("a0", 5000000, 10000, 20000, 0);
        price.link[1] = link_of("a1", 0, 100000, 5000, 0);
        price.link[2] = link_of("*", 400000, 40000, 1000, 0);
        price.links = 3;
        return price;
    }
    draw_links(&price, dice);
    return price;
}

/* ---- one pair -------------------------------------------------------------------------------- */

/* The library's plan from a state of the universe, which has been searched from, to another. */
static void compare(int from, int to, tally *t)
{
    const sherd_plan_options options = {.price = &u.price};
    const sherd_layout *a = u.state[from].layout, *b = u.state[to].layout;
    const sherd_plan *plan = NULL;
    const cost best = u.from[to];

    if (a == b || best.steps == never.steps)
        return;
    if (!CHECK_OK(sherd_plan_create(&plan, a, b, SHERD_F64, &options)))
        return;
    const cost found = {plan->price.picoseconds, plan->price.recv_total_bytes, plan->steps};
    bool good = CHECK(!is_cheaper(found, best)) && CHECK(plan->price.proven) &&
                CHECK(!is_cheaper(best, found));
    t->pairs++;
    t->longer += found.steps > 1;
    if (!good)
        fprintf(stderr,
                "price %d%s%s: %s (%s): %lld ps, %lld bytes, %lld steps; but %lld, %lld, %lld\n",
                (int)u.price.kind, u.price.straight ? " straight" : "",
                u.price.overlap ? " overlap" : "", plan->what, plan->trace, (long long)found.time,
                (long long)found.bytes, (long long)found.steps, (long long)best.time,
                (long long)best.bytes, (long long)best.steps);
}

/* ---- the chunk rule's cuts: one graph for all pairs ------------------------------------------ */

static const struct {
    const char *mesh;
    int ndim;
    int64_t shape[DIMS];
    int stride;
} fields[] = {
    {"2", 1, {8}, 1},         {"2", 2, {7, 1}, 1},          {"3", 1, {2}, 1},
    {"3", 2, {9, 4}, 1},      {"3", 3, {2, 0, 5}, 1},       {"2x2", 1, {1 << 16}, 1},
    {"2x2", 2, {8, 4}, 5},    {"2x2", 2, {3, 1}, 5},        {"2x2", 3, {64, 32, 17}, 5},
    {"2x3", 2, {6, 1021}, 5}, {"2x3", 2, {1, 1}, 5},        {"3x2", 2, {5, 4}, 5},
    {"3x2", 1, {31}, 5},      {"4x2", 2, {4096, 513}, 5},   {"4x2", 2, {3, 3}, 5},
    {"4x2", 1, {7}, 5},       {"2x2x2", 1, {131071}, 41},   {"2x2x2", 2, {16, 8}, 97},
    {"2x2x2", 2, {3, 5}, 97}, {"2x2x2", 3, {6, 4, 2}, 997},
};

/* From sums over all axes to replicas, and so all that lies between. */
static void open_field(int i, const sherd_price *price, sherd_reduce_op op)
{
    state ends[2] = {{.pending = {-1, -1, -1}}, {.pending = {-1, -1, -1}}};

    universe_open(&u, fields[i].mesh, fields[i].ndim, fields[i].shape, price);
    for (int k = 0; k < u.axes; k++)
        ends[0].pending[k] = (int)op;
    u.state[0] = ends[0];
    u.state[1] = ends[1];
    add_state(&u, &ends[0]);
    add_state(&u, &ends[1]);
    universe_fill(&u);
}

static void compare_all(int stride, tally *t)
{
    int turn = 0;

    for (int from = 0; from < u.states; from++) {
        universe_search(&u, from);
        for (int to = 0; to < u.states; to++)
            if (turn++ % stride == 0)
                compare(from, to, t);
    }
}

static void proven_plans_cost_what_the_cheapest_costs(void)
{
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_AVG, SHERD_MAX};
    uint64_t dice = 7;
    tally t = {0, 0};

    for (int k = 0; k < PRICES; k++)
        for (int i = k % check_stride(5); i < LEN(fields); i += check_stride(5)) {
            const sherd_price price = price_of(k, &dice);
            open_field(i, &price, ops[(i + k) % LEN(ops)]);
            compare_all(check_stride(10) > 1 ? fields[i].stride : (fields[i].stride + 9) / 10, &t);
            move_paper_close(&u.p);
        }
    printf("       %lld pairs, %lld in several steps\n", (long long)t.pairs, (long long)t.longer);
    CHECK(t.longer > t.pairs / 10);
}

/* ---- other cuts: a graph for each pair ------------------------------------------------------- */

/* An end with any lists; half of its dims have sizes of their own, a third of these 0. */
static void draw_end(state *s, uint64_t *dice, bool sums)
{
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_AVG};
    int order[AXES] = {0};

    memset(s, 0, sizeof *s);
    paper_permutation(roll(dice, 6), u.axes, order);
    for (int k = 0; k < u.axes; k++) {
        int axis = 0, choice = roll(dice, u.ndim + 1 + sums);
        while (order[axis] != k)
            axis++;
        s->pending[axis] = choice > u.ndim ? (int)ops[roll(dice, 2)] : -1;
        if (choice < u.ndim)
            s->dim[choice].axis[s->dim[choice].axes++] = axis;
    }
    for (int d = 0; d < u.ndim; d++) {
        int64_t parts = 1, size[RANKS];
        for (int i = 0; i < s->dim[d].axes; i++)
            parts *= u.extent[s->dim[d].axis[i]];
        s->dim[d].listed = parts > 1 && roll(dice, 2);
        paper_sizes(dice, u.shape[d], parts, size);
        for (int64_t i = 0; i < parts; i++)
            s->dim[d].at[i + 1] = s->dim[d].at[i] + size[i];
    }
}

/* In the target a sum may stay that the source has. */
static void draw_ends(state *ends, uint64_t *dice)
{
    draw_end(&ends[0], dice, true);
    draw_end(&ends[1], dice, false);
    for (int i = 0; i < u.axes; i++)
        if (ends[0].pending[i] >= 0 && !is_cut_by(&u, &ends[1], i) && roll(dice, 3) == 0)
            ends[1].pending[i] = ends[0].pending[i];
}

/* The boxes of an end by its own cuts. */
static void add_end(const state *end)
{
    u.state[u.states] = *end;
    place(&u, &u.state[u.states], end, end);
    u.state[u.states].layout = layout_of(&u, &u.state[u.states]);
    u.states++;
}

static void cuts_of_any_sizes_are_proven_too(void)
{
    static const char *const meshes[] = {"2", "3", "2x2", "2x3", "3x2", "4x2", "2x2x2"};
    static const int64_t sizes[] = {8, 7, 1, 0, 1000, 3, 64, 4099};
    uint64_t dice = 19;
    tally t = {0, 0};

    for (int k = 0; k < (getenv("SHERD_PROOF") ? 1500 : 100); k++) {
        const sherd_price price = price_of(k % PRICES, &dice);
        int ndim = 1 + roll(&dice, k % LEN(meshes) == 6 ? 2 : 3);
        int64_t shape[DIMS];
        state ends[2];
        for (int d = 0; d < ndim; d++)
            shape[d] = sizes[roll(&dice, LEN(sizes))];
        universe_open(&u, meshes[k % LEN(meshes)], ndim, shape, &price);
        draw_ends(ends, &dice);
        add_end(&ends[0]);
        add_end(&ends[1]);
        universe_fill(&u);
        universe_search(&u, 0);
        compare(0, 1, &t);
        move_paper_close(&u.p);
    }
    printf("       %lld pairs, %lld in several steps\n", (long long)t.pairs, (long long)t.longer);
    CHECK(t.longer > t.pairs / 20);
}

static const check_test tests[] = {
    {TEST(proven_plans_cost_what_the_cheapest_costs)},
    {TEST(cuts_of_any_sizes_are_proven_too)},
};
CHECK_MAIN(tests)
