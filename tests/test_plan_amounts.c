/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps and chains of steps amount to, against a walk over all ranks: random layouts on meshes of up
 * to 8 axes, in all orders, with cuts, empty dims, axes of extent 1 and pending sums. And that a
 * mesh of a million ranks costs neither their walk nor their memory.
 */
#define CHECK_PURE
#include "moves.h"
#include "plan/inside.h"
#include "plan/front.h"

enum { RANKS = 128, DIMS = 3 };

/* ---- random layouts ------------------------------------------------------------------------- */

typedef struct scene {
    paper p;
    uint64_t dice;
    const sherd_mesh *mesh;
    int ndim;
    int64_t shape[DIMS];
} scene;

static const char *const meshes[] = {"7x9",       "4x4x4",   "5x1x3x4",  "2x2x2x2x2x2",
                                     "100",       "3x2x5",   "x=8,y=16", "2x1x2x3x1x2x1x2",
                                     "2x2x2x2x3", "1x13x1x4"};

static const struct {
    int ndim;
    int64_t size[DIMS];
} shapes[] = {{1, {1000}},      {1, {97}},        {1, {5}},       {2, {100, 30}}, {2, {97, 101}},
              {2, {13, 3}},     {2, {64, 64}},    {2, {0, 7}},    {2, {1, 65}},   {3, {64, 32, 16}},
              {3, {31, 17, 7}}, {3, {100, 1, 9}}, {3, {6, 0, 5}}, {3, {2, 3, 40}}};

/* The same in all runs; `k` varies the mesh, everything else is random. */
static void scene_draw(scene *s, int k)
{
    int i = roll(&s->dice, LEN(shapes));

    s->mesh = paper_mesh(&s->p, meshes[k % LEN(meshes)]);
    s->ndim = shapes[i].ndim;
    memcpy(s->shape, shapes[i].size, sizeof s->shape);
}

/* Of 8 layouts about one has explicit cuts somewhere. `sums`: axes that are pending. */
static const sherd_layout *draw_layout(scene *s, unsigned sums)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES];
    static int64_t sizes[DIMS][2048];
    int64_t parts[DIMS] = {1, 1, 1};
    const int64_t *views[DIMS] = {NULL};
    const sherd_layout *layout = NULL;

    for (int i = 0; i < s->mesh->axes; i++) {
        int choice = roll(&s->dice, s->ndim * 2 + 1);
        placement[i] = sums >> i & 1          ? sherd_partial(SHERD_SUM)
                       : choice < 2 * s->ndim ? sherd_shard(choice / 2)
                                              : sherd_replicate();
        if (placement[i].kind == SHERD_SHARD)
            parts[placement[i].dim] *= s->mesh->extent[i];
    }
    paper_permutation(roll(&s->dice, 40320), s->mesh->axes, rank_of);
    paper_order(placement, rank_of, s->mesh->axes, order);
    for (int d = 0; d < s->ndim; d++) {
        paper_sizes(&s->dice, s->shape[d], parts[d], sizes[d]);
        views[d] = roll(&s->dice, 8 * s->ndim) == 0 ? sizes[d] : NULL;
    }
    const sherd_layout_options options = {order, views};
    CHECK_OK(sherd_layout_create(&layout, s->mesh, s->ndim, s->shape, placement, &options));
    return layout;
}

/* The same but for one axis, which is not a pending one: near layouts have deep common beginnings. */
static const sherd_layout *draw_near(scene *s, const sherd_layout *from)
{
    int axis = roll(&s->dice, s->mesh->axes), choice = roll(&s->dice, s->ndim + 1);
    const sherd_layout *to = from;

    if (from->pending_axes >> axis & 1)
        return from;
    CHECK_OK(sherd_layout_with(&to, from, s->mesh, axis,
                               choice ? sherd_shard(choice - 1) : sherd_replicate()));
    return to;
}

/* ---- one step against all pairs of ranks ---------------------------------------------------- */

typedef struct table {
    int ranks;
    int64_t at[RANKS][SHERD_MAX_AXES];
    sherd_box source[RANKS], target[RANKS];
} table;

static void fill(table *t, const sherd_layout *from, const sherd_layout *to)
{
    t->ranks = (int)from->spec.mesh->count;
    for (int r = 0; r < t->ranks; r++) {
        CHECK(sherd_mesh_coordinate(from->spec.mesh, r, t->at[r]));
        t->source[r] = sherd_layout_box(from, r, 0);
        t->target[r] = sherd_layout_box(to, r, 0);
    }
}

/* Axes on which the coordinates of two ranks differ. */
static unsigned apart(const table *t, const sherd_mesh *mesh, int a, int b)
{
    unsigned bits = 0;

    for (int i = 0; i < mesh->axes; i++)
        bits |= t->at[a][i] != t->at[b][i] ? 1u << i : 0;
    return bits;
}

static void at_least(int64_t *most, int64_t value)
{
    *most = value > *most ? value : *most;
}

/* `kept`: what ranks hold of their own targets, in all. */
static sherd__amounts walk_step(const table *t, const sherd__change *change, int64_t *kept)
{
    sherd__amounts w = {0};
    unsigned crossed = change->gathered | change->reduced;

    *kept = 0;
    for (int r = 0; r < t->ranks; r++) {
        int64_t received = 0, sent = 0, own = 0, source = sherd__box_count(&t->source[r]),
                target = sherd__box_count(&t->target[r]);
        for (int peer = 0; peer < t->ranks; peer++) {
            sherd_box part;
            if (apart(t, change->mesh, r, peer) & ~crossed)
                continue;
            int64_t in = sherd__box_meet(&t->source[peer], &t->target[r], &part)
                             ? sherd__box_count(&part)
                             : 0;
            int64_t out = sherd__box_meet(&t->source[r], &t->target[peer], &part)
                              ? sherd__box_count(&part)
                              : 0;
            own += peer == r ? in : 0;
            received += peer == r ? 0 : in;
            sent += peer == r ? 0 : out;
        }
        CHECK_EQ(received + own, target * change->addends); /* the group has all that I want */
        at_least(&w.source_max, source);
        at_least(&w.target_max, target);
        at_least(&w.both_max, source + target);
        at_least(&w.receive_max, received);
        at_least(&w.send_max, sent);
        w.receive_total += received;
        w.target_total += target;
        *kept += own;
    }
    return w;
}

static int compare_step(const sherd_layout *from, const sherd_layout *to)
{
    static table t;
    sherd__change change;
    sherd__amounts found;
    int64_t kept, total;

    sherd__change_find(&change, from, to);
    CHECK_OK(sherd__amounts_find(&found, from->space, &change, from->spec.shape));
    sherd__received_total(&total, &change, from->spec.shape);
    fill(&t, from, to);
    sherd__amounts w = walk_step(&t, &change, &kept);
    int good = CHECK_EQ(found.source_max, w.source_max);
    good += CHECK_EQ(found.target_max, w.target_max);
    good += CHECK_EQ(found.both_max, w.both_max);
    good += CHECK_EQ(found.receive_max, w.receive_max);
    good += CHECK_EQ(found.receive_total, w.receive_total);
    good += CHECK_EQ(found.send_max, w.send_max);
    good += CHECK_EQ(found.target_total, w.target_total);
    good += CHECK_EQ(total, w.receive_total);
    good += change.reduced ? CHECK(found.bound_total <= w.receive_total)
                           : CHECK_EQ(found.bound_total, w.receive_total);
    if (good < 9)
        fprintf(stderr, "%s -> %s\n", from->text, to->text);
    return w.receive_total > 0;
}

static void amounts_are_those_of_a_walk(void)
{
    scene s = {.dice = 11};
    int moves = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 6000; k++) {
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 3) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        unsigned kept = sums & (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        const sherd_layout *from = draw_layout(&s, sums);
        const sherd_layout *to = k % 3 ? draw_layout(&s, kept) : draw_near(&s, from);
        moves += compare_step(from, to);
    }
    CHECK(moves > 3000);
    move_paper_close(&s.p);
}

/*
 * Two dims whose shards along one axis are such that each rank is extreme in its own way: none has more
 * than another of both what it wants and what it lacks. A hundred such ranks do not fit into the list of
 * extremes, whichever come first.
 */
static void a_hundred_different_extremes_are_compared(void)
{
    enum { P = 100, MANY = 10000 };
    static const sherd_placement before[] = {{SHERD_SHARD, 1, SHERD_SUM}};
    static const sherd_placement after[] = {{SHERD_SHARD, 0, SHERD_SUM}};
    int64_t wants[P], holds[P];
    paper p;

    paper_open(&p, P);
    const sherd_mesh *mesh = paper_mesh(&p, "100");
    for (int falling = 0; falling < 2; falling++) {
        int64_t shape[2] = {0, 0};
        const sherd_layout *from, *to;
        for (int i = 0; i < P; i++) {
            int j = falling ? P - i : i;
            shape[0] += wants[i] = MANY + j;
            shape[1] += holds[i] = j;
        }
        const int64_t *old_cuts[] = {NULL, holds}, *new_cuts[] = {wants, NULL};
        const sherd_layout_options old = {NULL, old_cuts}, new = {NULL, new_cuts};
        CHECK_OK(sherd_layout_create(&from, mesh, 2, shape, before, &old));
        CHECK_OK(sherd_layout_create(&to, mesh, 2, shape, after, &new));
        CHECK(compare_step(from, to));
        CHECK(compare_step(to, from));
    }
    move_paper_close(&p);
}

/* ---- what an interval finds ----------------------------------------------------------------- */

/* Shards at all coordinates of the crossed axes, one after the other. */
static void find_one_by_one(int64_t *met, int64_t *shards, const sherd_mesh *mesh,
                            const sherd__dim *dim, int64_t n, const int64_t *interval,
                            unsigned crossed, const int64_t *mine)
{
    int64_t at[SHERD_MAX_AXES];

    *met = *shards = 0;
    for (int i = 0; i < mesh->axes; i++)
        at[i] = crossed >> i & 1 ? 0 : mine[i];
    do {
        int64_t lo, hi;
        sherd__dim_interval(mesh, dim, n, at, &lo, &hi);
        lo = lo > interval[0] ? lo : interval[0];
        hi = hi < interval[1] ? hi : interval[1];
        *met += hi > lo ? hi - lo : 0;
        *shards += hi > lo;
    } while (sherd__next(mesh, crossed, at));
}

static void an_interval_finds_what_is_there(void)
{
    scene s = {.dice = 8};
    int found = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 6000; k++) {
        int64_t mine[SHERD_MAX_AXES], met, shards;
        sherd__list list;
        scene_draw(&s, k);
        const sherd_layout *layout = draw_layout(&s, 0);
        const sherd__dim *dim = &layout->spec.dim[0];
        int64_t n = s.shape[0], a = roll(&s.dice, (int)n + 1), b = roll(&s.dice, (int)n + 1);
        const int64_t interval[] = {a < b ? a : b, a < b ? b : a};
        unsigned listed = 0, crossed = (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        for (int i = 0; i < dim->axes; i++)
            listed |= 1u << dim->axis[i];
        for (int i = 0; i < s.mesh->axes; i++)
            mine[i] = roll(&s.dice, (int)s.mesh->extent[i]);
        crossed &= listed;
        find_one_by_one(&met, &shards, s.mesh, dim, n, interval, crossed, mine);
        sherd__list_make(&list, s.mesh, dim, 0, n);
        const sherd__place whole = {0, 0, n, 0};
        CHECK_EQ(met,
                 sherd__place_gather(&list, whole, interval[0], interval[1], crossed, mine, false));
        CHECK_EQ(shards,
                 sherd__place_gather(&list, whole, interval[0], interval[1], crossed, mine, true));
        found += shards > 1;
    }
    CHECK(found > 500);
    move_paper_close(&s.p);
}

/* ---- chains against the schedules of all ranks ---------------------------------------------- */

enum { STEPS = 4 };

static int64_t held(const sherd_layout *layout, int rank)
{
    sherd_box box = sherd_layout_box(layout, rank, 0);

    return sherd__box_count(&box);
}

/* What plan.h says, rank by rank, from the schedules. */
static sherd__chain walk_chain(const sherd__problem *problem, const sherd__priced *steps, int count)
{
    sherd__chain w = {0, 0, 0};
    int64_t received[RANKS] = {0}, sent[RANKS] = {0};

    for (int r = 0; r < problem->from->spec.mesh->count; r++) {
        int64_t source = held(problem->from, r);
        at_least(&w.peak, source * (int64_t)problem->element_bytes);
        for (int i = 0; i < count; i++) {
            const sherd_step *step = &steps[i].step;
            sherd__schedule *s;
            CHECK_OK(sherd__schedule_create(&s, problem->space, step, problem->element_bytes, r));
            received[r] += s->recv_bytes;
            sherd__schedule_add_sent(s, r, problem->element_bytes, sent);
            sherd__schedule_destroy(problem->space, s);
            bool shares = step->kind == SHERD_STEP_SLICE && sherd__boxes_stay(&steps[i].change);
            int64_t in = i == 0 ? 0 : held(step->from, r), out = shares ? 0 : held(step->to, r);
            at_least(&w.peak, (source + in + out) * (int64_t)problem->element_bytes);
        }
    }
    for (int r = 0; r < problem->from->spec.mesh->count; r++) {
        at_least(&w.receive_max, received[r]);
        at_least(&w.send_max, sent[r]);
    }
    return w;
}

/* A step of a random kind; either variant of an all-reduce. */
static void draw_step(scene *s, sherd__priced *step, const sherd__problem *problem,
                      const sherd_layout *from, const sherd_layout *to)
{
    CHECK_OK(sherd__step_price(step, problem, from, to));
    if (step->step.kind == SHERD_STEP_ALL_REDUCE) {
        step->step.sliced = roll(&s->dice, 2) == 0;
        sherd__step_bytes(step, problem->element_bytes);
    }
}

static void chains_are_those_of_their_schedules(void)
{
    static const sherd__request request;
    scene s = {.dice = 5};
    int longer = 0, sliced = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 3000; k++) {
        sherd__priced steps[STEPS];
        const sherd_layout *at[STEPS + 1];
        sherd__chain found;
        int count = roll(&s.dice, STEPS + 1);
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 2) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        at[0] = draw_layout(&s, sums);
        sherd__problem problem = {&s.p.space, at[0], at[0], 4, &request};
        for (int i = 1; i <= count; i++) {
            sums &= (unsigned)roll(&s.dice, 1 << s.mesh->axes);
            at[i] = roll(&s.dice, 2) ? draw_layout(&s, sums) : draw_near(&s, at[i - 1]);
            if (roll(&s.dice, 4) == 0)
                CHECK_OK(sherd__layout_settle(&at[i], at[i - 1]));
            sums = at[i]->pending_axes;
            draw_step(&s, &steps[i - 1], &problem, at[i - 1], at[i]);
            sliced += steps[i - 1].step.sliced;
        }
        problem.to = at[count];
        CHECK_OK(sherd__chain_find(&found, &problem, steps, count));
        sherd__chain w = walk_chain(&problem, steps, count);
        int good = CHECK_EQ(found.receive_max, w.receive_max);
        good += CHECK_EQ(found.send_max, w.send_max);
        good += CHECK_EQ(found.peak, w.peak);
        for (int i = 0; i <= count && good < 3; i++)
            fprintf(stderr, "%s %s\n", at[i]->text, i && steps[i - 1].step.sliced ? "sliced" : "");
        longer += count > 1 && found.receive_max > 0;
    }
    CHECK(longer > 1000 && sliced > 100);
    move_paper_close(&s.p);
}

/* ---- the price of links, from its definition ------------------------------------------------ */

/* Some axes have a line of their own, in any order; "*" stands somewhere, or not at all. */
static sherd_price draw_price(scene *s)
{
    sherd_price price = {.kind = SHERD_PRICE_LINKS};
    int star = roll(&s->dice, 2 * s->mesh->axes);

    for (int i = s->mesh->axes - 1; i >= -1; i--) {
        sherd_link *link = &price.link[price.links];
        if (i >= 0 && i != star && roll(&s->dice, 4) == 0)
            continue;
        strcpy(link->axis, i < 0 || i == star ? "*" : s->mesh->name[i]);
        if ((i < 0 && star < s->mesh->axes) || (i < 0 && roll(&s->dice, 3) == 0))
            continue;
        link->alpha_picoseconds = roll(&s->dice, 4) * 1000;
        link->beta_femtoseconds = roll(&s->dice, 4) * 333;
        link->gamma_femtoseconds = roll(&s->dice, 4) * 77;
        price.links++;
    }
    return price;
}

static bool is_slower(const sherd_link *a, const sherd_link *b)
{
    return a->beta_femtoseconds > b->beta_femtoseconds ||
           (a->beta_femtoseconds == b->beta_femtoseconds &&
            a->alpha_picoseconds > b->alpha_picoseconds);
}

/* The link of each axis: its own line, else "*", else the slowest line. */
static sherd_link line_of(const sherd_price *price, const char *axis)
{
    const sherd_link none = {"", 0, 0, 0}, *star = NULL, *slowest = NULL;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        if (strcmp(link->axis, axis) == 0)
            return *link;
        if (strcmp(link->axis, "*") == 0)
            star = link;
        if (!slowest || is_slower(link, slowest))
            slowest = link;
    }
    return star ? *star : slowest ? *slowest : none;
}

/* The slowest of some axes; -1 = none. */
static int slowest_of(const sherd_mesh *mesh, const sherd_link *link, unsigned axes)
{
    int found = -1;

    for (int i = 0; i < mesh->axes; i++)
        if (axes >> i & 1 && (found < 0 || !is_slower(&link[found], &link[i])))
            found = i;
    return found;
}

typedef struct traffic {
    int64_t messages[SHERD_MAX_AXES], elements[SHERD_MAX_AXES]; /* by the slowest axis crossed */
} traffic;

/* What comes to each rank, by its schedule and those of the ranks that write to it. */
static void count_traffic(traffic *of, const table *t, const sherd_step *step,
                          const sherd_link *link)
{
    const sherd_mesh *mesh = step->from->spec.mesh;

    memset(of, 0, (size_t)t->ranks * sizeof *of);
    for (int r = 0; r < t->ranks; r++) {
        sherd__schedule *s;
        CHECK_OK(sherd__schedule_create(&s, step->from->space, step, 4, r));
        for (int i = 0; i < s->regions; i++) {
            int64_t count = 1;
            for (int d = 0; d < s->ndim; d++)
                count *= s->region[i].size[d];
            for (int j = 0; j < s->region[i].count; j++) {
                int peer = s->pull[s->region[i].first + j].rank;
                int axis = slowest_of(mesh, link, apart(t, mesh, r, peer));
                if (peer != r) {
                    of[r].messages[axis]++;
                    of[r].elements[axis] += count;
                }
            }
            for (int j = 0; j < s->sharers; j++) {
                int axis = slowest_of(mesh, link, apart(t, mesh, r, s->sharer[j]));
                of[s->sharer[j]].messages[axis]++;
                of[s->sharer[j]].elements[axis] += count;
            }
        }
        sherd__schedule_destroy(step->from->space, s);
    }
}

/* By the definition in plan.h: with the messages and bytes of the busiest rank of each class. */
static int64_t time_by_hand(const sherd__priced *p, const sherd_link *link, bool sliced)
{
    static table t;
    static traffic of[RANKS];
    const sherd_mesh *mesh = p->change.mesh;
    sherd_step step = p->step;
    int64_t femto = 0, lo, slice, n = p->amounts.target_max, k = p->change.addends;

    step.sliced = sliced;
    fill(&t, step.from, step.to);
    count_traffic(of, &t, &step, link);
    for (int i = 0; i < mesh->axes; i++) {
        int64_t messages = 0, elements = 0;
        for (int r = 0; r < t.ranks; r++) {
            if (sliced && sherd__box_count(&t.target[r]) < n)
                continue; /* the group with the largest boxes */
            at_least(&messages, of[r].messages[i]);
            at_least(&elements, of[r].elements[i]);
        }
        femto +=
            messages * link[i].alpha_picoseconds * 1000 + 4 * elements * link[i].beta_femtoseconds;
    }
    sherd__slice_of(n, k, 0, &lo, &slice);
    if (k > 1)
        femto += 4 * (k - 1) * (sliced ? slice : n) *
                 link[slowest_of(mesh, link, p->change.reduced)].gamma_femtoseconds;
    return (femto + 999) / 1000;
}

static void links_are_priced_by_their_definition(void)
{
    scene s = {.dice = 3};
    int priced = 0, sliced = 0, straight = 0;

    paper_open(&s.p, RANKS);
    for (int k = 0; k < 3000; k++) {
        sherd_link link[SHERD_MAX_AXES];
        sherd__priced step;
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 2) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        const sherd__request request = {.price = draw_price(&s)};
        const sherd_layout *from = draw_layout(&s, sums), *to = draw_layout(&s, 0);
        if (sums && roll(&s.dice, 2))
            CHECK_OK(sherd__layout_settle(&to, from));
        const sherd__problem problem = {&s.p.space, from, to, 4, &request};
        for (int i = 0; i < s.mesh->axes; i++)
            link[i] = line_of(&request.price, s.mesh->name[i]);
        CHECK_OK(sherd__step_price(&step, &problem, from, to));
        bool local = step.step.axes == 0, both = step.step.kind == SHERD_STEP_ALL_REDUCE;
        int64_t one = local ? 0 : time_by_hand(&step, link, false);
        int64_t two = both ? time_by_hand(&step, link, true) : one;
        bool good = CHECK_EQ(step.step.picoseconds, one < two ? one : two);
        good = CHECK_EQ(step.step.sliced, two < one) && good;
        good = CHECK_EQ(step.rounds, local ? 0 : two < one ? 2 : 1) && good;
        if (!local)
            good = CHECK(sherd__price_links.floor(&problem, step.amounts.target_max,
                                                  step.change.addends) <= step.step.picoseconds) &&
                   good;
        if (!good)
            fprintf(stderr, "%s -> %s\n", from->text, to->text);
        priced += step.step.picoseconds > 0;
        sliced += both && two < one;
        straight += both && two > one;
    }
    CHECK(priced > 1500 && sliced > 100 && straight > 50);
    move_paper_close(&s.p);
}

static const check_test tests[] = {
    {TEST(amounts_are_those_of_a_walk)},          {TEST(a_hundred_different_extremes_are_compared)},
    {TEST(an_interval_finds_what_is_there)},      {TEST(chains_are_those_of_their_schedules)},
    {TEST(links_are_priced_by_their_definition)},
};
CHECK_MAIN(tests)
