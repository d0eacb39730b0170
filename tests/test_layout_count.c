/* SPDX-License-Identifier: Apache-2.0 */
/* How long layouts live: by scopes, by counts, by what they refer to, and a while more, so that
 * they are found again. */
#define CHECK_PURE
#include "paper.h"

static const sherd_layout *line(const sherd_mesh *mesh, int64_t n, sherd_placement placement)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh, 1, &n, &placement, NULL));
    return layout;
}

static void the_end_of_a_scope_lets_its_layouts_go(void)
{
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=4");
    const sherd_layout *outer = line(mesh, 5, sherd_shard(0));
    p.space.most_idle = 0;
    int64_t before = p.heap.live;
    for (int turn = 0; turn < 3; turn++) {
        int mark = sherd__layouts_mark(&p.space);
        const sherd_layout *inner = line(mesh, 6, sherd_shard(0));
        CHECK(line(mesh, 6, sherd_shard(0)) == inner);
        CHECK(line(mesh, 5, sherd_shard(0)) == outer);
        int deeper = sherd__layouts_mark(&p.space);
        CHECK(line(mesh, 6, sherd_shard(0)) == inner); /* the scope around has it */
        CHECK_EQ(sherd__layouts_mark(&p.space), deeper);
        line(mesh, 7, sherd_replicate());
        sherd__layouts_cut(&p.space, deeper);
        CHECK_TEXT(sherd_layout_text(inner), "[6(x)] on (x=4)");
        CHECK(p.heap.live > before);
        sherd__layouts_cut(&p.space, mark);
        CHECK_EQ(p.heap.live, before);
    }
    CHECK(line(mesh, 5, sherd_shard(0)) == outer);
    CHECK_TEXT(sherd_layout_text(outer), "[5(x)] on (x=4)");
    paper_close(&p);
}

static void what_is_counted_outlives_its_scope(void)
{
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=4");
    line(mesh, 1, sherd_replicate());
    p.space.most_idle = 0;
    int64_t before = p.heap.live;
    int mark = sherd__layouts_mark(&p.space);
    const sherd_layout *layout = line(mesh, 6, sherd_shard(0));
    CHECK(sherd_layout_retain(layout) == layout);
    CHECK(sherd_layout_retain(layout) == layout);
    sherd__layouts_cut(&p.space, mark);
    sherd_layout_release(layout);
    CHECK_TEXT(sherd_layout_text(layout), "[6(x)] on (x=4)");
    mark = sherd__layouts_mark(&p.space);
    CHECK(line(mesh, 6, sherd_shard(0)) == layout);
    sherd_layout_release(layout); /* a scope has it again */
    CHECK_TEXT(sherd_layout_text(layout), "[6(x)] on (x=4)");
    sherd__layouts_cut(&p.space, mark);
    CHECK_EQ(p.heap.live, before);
    CHECK(sherd_layout_retain(NULL) == NULL);
    sherd_layout_release(NULL);
    paper_close(&p);
}

/* What a function gives back is the scope's, also where it is what it was given. */
static void an_unchanged_layout_is_held_too(void)
{
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=4");
    p.space.most_idle = 0;
    for (int turn = 0; turn < 4; turn++) {
        const sherd_placement placement = turn < 3 ? sherd_shard(0) : sherd_replicate();
        const sherd_layout *same = NULL;
        const sherd_layout *layout = sherd_layout_retain(line(mesh, 6, placement));
        sherd__layouts_cut(&p.space, 0);
        if (turn == 0)
            CHECK_OK(sherd_layout_with(&same, layout, mesh, 0, sherd_shard(0)));
        else if (turn == 1)
            CHECK_OK(sherd_layout_with(&same, layout, mesh, 0, sherd_shard(-1)));
        else if (turn == 2)
            CHECK_OK(sherd__layout_settle(&same, layout));
        else
            CHECK_OK(sherd_layout_with(&same, layout, mesh, 0, (sherd_placement){SHERD_UNSET}));
        CHECK(same == layout);
        sherd_layout_release(layout);
        CHECK_EQ(p.space.layouts.count, 1);
        sherd__layouts_cut(&p.space, 0);
        CHECK_EQ(p.space.layouts.count, 0);
    }
    paper_close(&p);
}

/* A pending layout keeps the one that it is settled to; that one keeps nobody. */
static void settled_layouts_are_no_circle(void)
{
    paper p;
    const sherd_layout *settled = NULL;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=4");
    line(mesh, 1, sherd_replicate());
    for (p.space.most_idle = 0; p.space.most_idle < 3; p.space.most_idle++) {
        int mark = sherd__layouts_mark(&p.space);
        const sherd_layout *pending = sherd_layout_retain(line(mesh, 6, sherd_partial(SHERD_SUM)));
        CHECK_OK(sherd__layout_settle(&settled, pending));
        sherd__layouts_cut(&p.space, mark);
        CHECK_TEXT(sherd_layout_text(settled), "[6] on (x=4)");
        CHECK_OK(sherd__layout_settle(&settled, settled));
        sherd__layouts_cut(&p.space, mark);
        sherd_layout_release(pending);
        CHECK_EQ(p.space.layouts.count, p.space.most_idle ? 3 : 1);
    }
    paper_close(&p);
}

static void what_nobody_needs_is_found_again_for_a_while(void)
{
    enum { MOST = 10 };
    paper p;
    const sherd_layout *layout[MOST + 1];

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=4");
    p.space.most_idle = MOST;
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < MOST; i++) {
            int mark = sherd__layouts_mark(&p.space);
            const sherd_layout *again = line(mesh, i, sherd_shard(0));
            CHECK(turn == 0 || again == layout[i]);
            layout[i] = again;
            sherd__layouts_cut(&p.space, mark);
        }
        CHECK_EQ(p.space.idle, MOST);
    }
    /* The one that was not asked for the longest goes. */
    int mark = sherd__layouts_mark(&p.space);
    CHECK(line(mesh, 0, sherd_shard(0)) == layout[0]);
    sherd__layouts_cut(&p.space, mark);
    line(mesh, 100, sherd_shard(0));
    sherd__layouts_cut(&p.space, mark);
    CHECK_EQ(p.space.layouts.count, MOST);
    CHECK(line(mesh, 0, sherd_shard(0)) == layout[0]);
    CHECK(line(mesh, 2, sherd_shard(0)) == layout[2]);
    CHECK_EQ(p.space.layouts.count, MOST);
    line(mesh, 1, sherd_shard(0));
    CHECK_EQ(p.space.layouts.count, MOST + 1);
    paper_close(&p);
}

/* The idle layouts from the newest to the oldest, and back, are these. */
static void check_idle(const sherd__space *space, const sherd_layout *const *list, int count)
{
    const sherd_layout *older = space->newest, *newer = space->oldest;

    CHECK_EQ(space->idle, count);
    for (int i = 0; i < count; i++) {
        CHECK(older == list[i]);
        CHECK(newer == list[count - 1 - i]);
        CHECK(list[i]->idle);
        older = older ? older->older : NULL;
        newer = newer ? newer->newer : NULL;
    }
    CHECK(!older && !newer);
}

/* Wherever in the list of idle layouts one is asked for: the others stay as they are, and it comes
 * back as the newest. */
static void who_is_asked_for_leaves_the_others_in_order(void)
{
    enum { MANY = 5 };
    paper p;
    const sherd_layout *list[MANY];

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=4");
    sherd__layouts_cut(&p.space, 0);
    p.space.most_idle = MANY;
    for (int i = 0; i < MANY; i++) {
        list[MANY - 1 - i] = line(mesh, i, sherd_shard(0));
        sherd__layouts_cut(&p.space, 0);
    }
    check_idle(&p.space, list, MANY);
    for (int turn = 0; turn < 4 * MANY; turn++) {
        int at = turn * 3 % MANY;
        const sherd_layout *one = list[at];
        CHECK(line(mesh, one->spec.shape[0], sherd_shard(0)) == one && !one->idle);
        memmove(&list[at], &list[at + 1], (size_t)(MANY - 1 - at) * sizeof *list);
        check_idle(&p.space, list, MANY - 1);
        memmove(&list[1], list, (MANY - 1) * sizeof *list);
        list[0] = one;
        sherd__layouts_cut(&p.space, 0);
        check_idle(&p.space, list, MANY);
    }
    paper_close(&p);
}

static void many_layouts_leave_nothing(void)
{
    int count = getenv("SHERD_PROOF") ? 1000000 : 50000;
    int64_t most = 0;
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=2");
    for (int i = 0; i < count; i++) {
        int64_t shape[2] = {i, 3}, sizes[2] = {i / 3, i - i / 3};
        const int64_t *by_dim[2] = {sizes, NULL};
        sherd_layout_options options = {.sizes = by_dim};
        sherd_placement placements[2] = {sherd_shard(0), sherd_partial(SHERD_SUM)};
        const sherd_layout *layout = NULL, *other = NULL;
        int mark = sherd__layouts_mark(&p.space);
        CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, placements, &options));
        CHECK_OK(sherd__layout_settle(&other, layout));
        CHECK_OK(sherd_layout_with(&other, layout, mesh, 1, sherd_shard(1)));
        sherd__layouts_cut(&p.space, mark);
        if (i == 5000)
            most = p.heap.live;
    }
    CHECK(p.heap.live <= most);
    CHECK_EQ(p.space.idle, p.space.most_idle);
    CHECK(p.space.layouts.room <= 4096);
    paper_close(&p);
}

/* The n-th allocation fails, for every n: nothing is left over, and nothing that was there is
 * lost. */
static void a_failed_allocation_changes_nothing(void)
{
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=2");
    p.space.most_idle = 0;
    for (int k = 0; k < 200; k++) { /* lists grow at any of these */
        int64_t n = 5 + k, shape[2] = {n, 4}, sizes[2] = {1, n - 1};
        const int64_t *by_dim[2] = {sizes, NULL};
        sherd_layout_options options = {.sizes = by_dim};
        sherd_placement placements[2] = {sherd_shard(0), sherd_partial(SHERD_SUM)};
        const sherd_layout *layout = NULL, *settled = NULL;
        bool done = false;
        for (int fail = 1; !done; fail++) {
            size_t count = p.space.layouts.count;
            int64_t live = p.heap.live;
            int held = p.space.held_count, room = p.space.held_room;
            p.heap.allocations = 0;
            p.heap.fail_at = fail;
            done = sherd_layout_create(&layout, mesh, 2, shape, placements, &options) == SHERD_OK;
            if (done)
                break;
            CHECK(layout == NULL);
            CHECK_EQ(p.space.layouts.count, count);
            CHECK_EQ(p.space.held_count, held);
            CHECK(p.heap.live <= live + (room != p.space.held_room) + 1);
        }
        for (int fail = 1; !settled; fail++) {
            p.heap.allocations = 0;
            p.heap.fail_at = fail;
            if (sherd__layout_settle(&settled, layout) != SHERD_OK)
                CHECK(settled == NULL && !layout->settled);
        }
        p.heap.fail_at = 0;
    }
    sherd__layouts_cut(&p.space, 0);
    CHECK_EQ(p.space.layouts.count, 0);
    paper_close(&p);
}

static const check_test tests[] = {
    {TEST(the_end_of_a_scope_lets_its_layouts_go)},
    {TEST(what_is_counted_outlives_its_scope)},
    {TEST(an_unchanged_layout_is_held_too)},
    {TEST(settled_layouts_are_no_circle)},
    {TEST(what_nobody_needs_is_found_again_for_a_while)},
    {TEST(who_is_asked_for_leaves_the_others_in_order)},
    {TEST(many_layouts_leave_nothing)},
    {TEST(a_failed_allocation_changes_nothing)},
};
CHECK_MAIN(tests)
