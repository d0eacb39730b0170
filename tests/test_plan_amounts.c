/* SPDX-License-Identifier: Apache-2.0 */
/* What a step amounts to, against a walk over all pairs of ranks. */
#define CHECK_PURE
#include "scenes.h"
#include "plan/pieces.h"

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
    int64_t kept;

    sherd__change_find(&change, from, to);
    sherd__amounts_find(&found, &change, from->spec.shape);
    fill(&t, from, to);
    sherd__amounts w = walk_step(&t, &change, &kept);
    int good = CHECK_EQ(found.source_max, w.source_max);
    good += CHECK_EQ(found.target_max, w.target_max);
    good += CHECK_EQ(found.both_max, w.both_max);
    good += CHECK_EQ(found.receive_max, w.receive_max);
    good += CHECK_EQ(found.receive_total, w.receive_total);
    good += CHECK_EQ(found.send_max, w.send_max);
    good += CHECK_EQ(found.target_total, w.target_total);
    good += CHECK_EQ(sherd__received_total(&change, from->spec.shape), w.receive_total);
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
    for (int k = 0; k < 12000 / check_stride(2); k++) {
        scene_draw(&s, k);
        unsigned sums = roll(&s.dice, 3) ? 0 : (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        unsigned kept = sums & (unsigned)roll(&s.dice, 1 << s.mesh->axes);
        const sherd_layout *from = draw_layout(&s, sums);
        const sherd_layout *to = k % 3 ? draw_layout(&s, kept) : draw_near(&s, from);
        moves += compare_step(from, to);
    }
    CHECK(moves > 6000 / check_stride(2));
    move_paper_close(&s.p);
}

/* Targets in stripes: what a sender finds does not follow from lengths, and is not the most at the
 * longest shards. */
static void stripes_are_found_where_they_lie(void)
{
    static const char *const texts[][2] = {
        {"[13(a0),3(a4,a2)] on (a0=2,a1=2,a2=2,a3=2,a4=3)",
         "[13(a1,a4,a0,a3),3(a2)] on (a0=2,a1=2,a2=2,a3=2,a4=3)"},
        {"[64(a1,a2,a3),64] on (a0=2,a1=2,a2=2,a3=2,a4=3)",
         "[64(a3),64(a2,a0,a1)] on (a0=2,a1=2,a2=2,a3=2,a4=3)"},
        {"[1000(a2:0,297,23,636,44)] on (a0=3,a1=2,a2=5)", "[1000(a2,a1,a0)] on (a0=3,a1=2,a2=5)"},
        {"[97(y)] on (x=5,y=4,z=3)", "[97(x,y,z)] on (x=5,y=4,z=3)"},
        {"[97(y)] on (x=5,y=4,z=3)", "[97(z,y,x)] on (x=5,y=4,z=3)"},
        {"[97(y)] P(sum:x) on (x=5,y=4,z=3)", "[97(x,z)] on (x=5,y=4,z=3)"},
    };
    paper p;

    paper_open(&p, RANKS);
    for (int i = 0; i < LEN(texts); i++)
        CHECK(compare_step(paper_layout(&p, texts[i][0]), paper_layout(&p, texts[i][1])));
    move_paper_close(&p);
}

/*
 * Two dims whose shards along one axis are such that each rank is extreme in its own way: none has
 * more than another of both what it wants and what it lacks. A hundred such ranks do not fit into
 * the list of extremes, whichever come first.
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
        const sherd__look much = {crossed, mine, false}, many = {crossed, mine, true};
        CHECK_EQ(met, sherd__place_gather(&list, whole, interval[0], interval[1], &much));
        CHECK_EQ(shards, sherd__place_gather(&list, whole, interval[0], interval[1], &many));
        found += shards > 1;
    }
    CHECK(found > 500);
    move_paper_close(&s.p);
}

static const check_test tests[] = {
    {TEST(amounts_are_those_of_a_walk)},
    {TEST(stripes_are_found_where_they_lie)},
    {TEST(a_hundred_different_extremes_are_compared)},
    {TEST(an_interval_finds_what_is_there)},
};
CHECK_MAIN(tests)
