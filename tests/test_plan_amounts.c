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
 * extremes.
 */
static void a_hundred_different_extremes_are_compared(void)
{
    enum { P = 100, LOW = 10000 };
    static const sherd_placement before[] = {{SHERD_SHARD, 1, SHERD_SUM}},
                                 after[] = {{SHERD_SHARD, 0, SHERD_SUM}};
    int64_t wants[P], holds[P], shape[2] = {0, 0};
    const sherd_layout *from, *to;
    paper p;

    paper_open(&p, P);
    for (int i = 0; i < P; i++) {
        shape[0] += wants[i] = LOW + i;
        shape[1] += holds[i] = i;
    }
    const int64_t *old_cuts[] = {NULL, holds}, *new_cuts[] = {wants, NULL};
    const sherd_layout_options old = {NULL, old_cuts}, new = {NULL, new_cuts};
    const sherd_mesh *mesh = paper_mesh(&p, "100");
    CHECK_OK(sherd_layout_create(&from, mesh, 2, shape, before, &old));
    CHECK_OK(sherd_layout_create(&to, mesh, 2, shape, after, &new));
    CHECK(compare_step(from, to));
    CHECK(compare_step(to, from));
    move_paper_close(&p);
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

static const check_test tests[] = {
    {TEST(amounts_are_those_of_a_walk)},
    {TEST(a_hundred_different_extremes_are_compared)},
    {TEST(chains_are_those_of_their_schedules)},
};
CHECK_MAIN(tests)
