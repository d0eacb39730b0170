/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a layout says of the axes, the order and the cuts of its dims: whoever makes a layout of
 * what the getters say gets the same one.
 */
#define CHECK_PURE
#include "boxes.h"
#include "paper.h"

enum { MANY = 4096, PARTS = 64 };

/* The layout made again from what the getters say; its default cuts are said only where `all` cuts
 * are. */
static const sherd_layout *made_again(const sherd_layout *layout, bool all)
{
    int64_t sizes[SHERD_MAX_DIMS][PARTS];
    const int64_t *views[SHERD_MAX_DIMS] = {NULL};
    sherd_placement placements[SHERD_MAX_AXES];
    int order[SHERD_MAX_AXES], ndim = sherd_layout_ndim(layout);
    const sherd_mesh *mesh = sherd_layout_mesh(layout);
    const sherd_layout_options options = {order, views};
    const sherd_layout *again = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        placements[a] = sherd_layout_placement(layout, a);
        order[a] = sherd_layout_order(layout, a);
    }
    for (int d = 0; d < ndim; d++) {
        int64_t shards = sherd_layout_dim_shards(layout, d);
        for (int64_t i = 0; i < shards; i++)
            sizes[d][i] =
                sherd_layout_dim_cut(layout, d, i + 1) - sherd_layout_dim_cut(layout, d, i);
        if (all || sherd_layout_dim_has_cuts(layout, d))
            views[d] = sizes[d];
    }
    CHECK_OK(
        sherd_layout_create(&again, mesh, ndim, sherd_layout_shape(layout), placements, &options));
    return again;
}

/* Axes and their order, said in two ways; the cuts from end to end. */
static void agrees_with_itself(const sherd_layout *layout)
{
    for (int d = 0; d < sherd_layout_ndim(layout); d++) {
        int64_t n = sherd_layout_shape(layout)[d], shards = 1;
        int axes = sherd_layout_dim_axes(layout, d);
        for (int i = 0; i < axes; i++) {
            int axis = sherd_layout_dim_axis(layout, d, i);
            CHECK_EQ(sherd_layout_order(layout, axis), i);
            CHECK_EQ(sherd_layout_placement(layout, axis).kind, SHERD_SHARD);
            CHECK_EQ(sherd_layout_placement(layout, axis).dim, d);
            shards *= sherd_mesh_extent(sherd_layout_mesh(layout), axis);
        }
        CHECK_EQ(sherd_layout_dim_axis(layout, d, axes), -1);
        CHECK_EQ(sherd_layout_dim_shards(layout, d), shards);
        CHECK_EQ(sherd_layout_dim_cut(layout, d, 0), 0);
        CHECK_EQ(sherd_layout_dim_cut(layout, d, shards), n);
        CHECK_EQ(sherd_layout_dim_cut(layout, d, shards + 1), -1);
    }
}

static void a_layout_is_what_its_getters_say(void)
{
    static const char *const meshes[] = {"1", "x=3", "2x4", "dp=2,tp=3@5,4,3,2,1,0", "2x2x2"};
    static const int64_t shapes[][3] = {{8, 4, 2}, {7, 5, 3}, {1, 0, 13}};
    static const sherd_layout *list[MANY];
    paper p;

    paper_open(&p, 8);
    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(shapes); s++) {
            int count = paper_layouts(paper_mesh(&p, meshes[m]), 3, shapes[s], true, list, MANY);
            for (int i = 0; i < count; i++) {
                agrees_with_itself(list[i]);
                CHECK(made_again(list[i], false) == list[i]);
                CHECK(made_again(list[i], true) == list[i]);
                CHECK(!sherd_layout_dim_has_cuts(list[i], 0));
            }
        }
    paper_close(&p);
}

static void cuts_of_ones_own_are_said_too(void)
{
    paper p;

    paper_open(&p, 8);
    const sherd_layout *layout = paper_layout(&p, "[10(y,x:1,2,3,0,0,4),6] on (x=2,y=3)");
    static const int64_t cuts[] = {0, 1, 3, 6, 6, 6, 10};
    for (int i = 0; i < LEN(cuts); i++)
        CHECK_EQ(sherd_layout_dim_cut(layout, 0, i), cuts[i]);
    CHECK(sherd_layout_dim_has_cuts(layout, 0) && !sherd_layout_dim_has_cuts(layout, 1));
    CHECK_EQ(sherd_layout_dim_axis(layout, 0, 0), 1);
    CHECK_EQ(sherd_layout_order(layout, 0), 1);
    CHECK_EQ(sherd_layout_dim_cut(layout, 1, 1), 6);
    agrees_with_itself(layout);
    CHECK(made_again(layout, false) == layout && made_again(layout, true) == layout);
    paper_close(&p);
}

/* In the space of each rank, also of one that is not in the mesh. */
static void check_holding(const char *text, int ranks, int rank)
{
    paper p;

    paper_open(&p, ranks);
    p.space.rank = rank;
    const sherd_layout *layout = paper_layout(&p, text);
    const sherd__holding *holding = sherd__layout_holding(layout);
    sherd_box box = sherd_layout_box(layout, rank, 0);
    int64_t count = 1;

    CHECK_EQ(holding->inside, sherd_layout_boxes(layout, rank) > 0);
    CHECK(boxes_are_equal(&holding->box, &box));
    for (int d = box.ndim - 1; d >= 0; d--) {
        if (holding->count)
            CHECK_EQ(holding->stride[d], count);
        count *= box.size[d];
    }
    CHECK_EQ(holding->count, holding->inside ? count : 0);
    CHECK(sherd__layout_holding(layout) == holding);
    paper_close(&p);
}

static void a_rank_knows_what_it_holds(void)
{
    static const char *const layouts[] = {
        "[8(x),4] on (x=4)",         "[7(x),5] on (x=4)", "[1(x),3] on (x=4)",
        "[4(y,x),3,2] on (x=2,y=2)", "[4(x),0] on (x=4)", "[9(x:4,5)] P(sum:y) on (x=2,y=2)",
        "[5,6(x)] on (x=3@5,1,2)",   "[] on (x=4)",       "[0(x),1099511627776,4] on (x=2)",
        "[] P(sum:x) on (x=3@5,1,2)"};

    for (int i = 0; i < LEN(layouts); i++)
        for (int rank = -1; rank < 6; rank++)
            check_holding(layouts[i], 6, rank);
}

static const check_test tests[] = {
    {TEST(a_rank_knows_what_it_holds)},
    {TEST(a_layout_is_what_its_getters_say)},
    {TEST(cuts_of_ones_own_are_said_too)},
};
CHECK_MAIN(tests)
