/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts and boxes: intervals partition each dim, boxes cover each element, changes of one axis keep
 * the rest, and nothing walks the ranks of a mesh.
 */
#define CHECK_PURE
#include "paper.h"

#include <time.h>

enum { MANY = 4096 };

static const char *const meshes[] = {"1", "3", "8", "2x2", "3x2", "2x4", "2x2x2", "2x1x3"};
static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 13, 24, 97};

static void one_chunk_rule(void)
{
    static const int64_t over4[][5] = {{0, 0, 0, 0, 0}, {1, 1, 0, 0, 0},  {3, 1, 1, 1, 0},
                                       {5, 2, 2, 1, 0}, {6, 2, 2, 2, 0},  {7, 2, 2, 2, 1},
                                       {9, 3, 3, 3, 0}, {13, 4, 4, 4, 1}, {17, 5, 5, 5, 2}};

    for (int i = 0; i < LEN(over4); i++)
        for (int j = 0; j < 4; j++) {
            int64_t lo, hi;
            sherd__chunk(over4[i][0], 4, j, &lo, &hi);
            CHECK_EQ(hi - lo, over4[i][1 + j]);
        }
}

/* 5 rows on 4 ranks: 2,2,1,0; on 2x2 nested: 2,1,1,1. */
static void five_rows_on_four_ranks(void)
{
    static const int64_t flat[][2] = {{0, 2}, {2, 2}, {4, 1}, {5, 0}},
                         nested[][2] = {{0, 2}, {2, 1}, {3, 1}, {4, 1}};
    paper p;

    paper_open(&p, 4);
    const sherd_layout *on4 = paper_layout(&p, "[5(x)] on (x=4)");
    const sherd_layout *on2x2 = paper_layout(&p, "[5(x,y)] on (x=2,y=2)");
    for (int rank = 0; rank < 4; rank++) {
        sherd_box box = sherd_layout_box(on4, rank, 0);
        CHECK_EQ(box.offset[0], flat[rank][0]);
        CHECK_EQ(box.size[0], flat[rank][1]);
        box = sherd_layout_box(on2x2, rank, 0);
        CHECK_EQ(box.offset[0], nested[rank][0]);
        CHECK_EQ(box.size[0], nested[rank][1]);
    }
    CHECK_EQ(sherd_layout_boxes(on4, 3), 1);
    CHECK_EQ(sherd_layout_boxes(on4, 4), 0);
    CHECK_EQ(sherd_layout_box(on4, 4, 0).size[0], 0);
    CHECK_EQ(sherd_layout_box(on4, 0, 1).size[0], 0);
    paper_close(&p);
}

/* Shards in shard order lie end to end from 0 to n, and the written-out cuts say the same. */
static void check_dim(const sherd_layout *layout, int d)
{
    const sherd_mesh *mesh = layout->spec.mesh;
    const sherd__dim *dim = &layout->spec.dim[d];
    int64_t n = layout->spec.shape[d], parts = sherd__dim_parts(mesh, dim), cuts[65], end = 0;

    sherd__dim_cuts(mesh, dim, n, cuts);
    CHECK_EQ(cuts[0], 0);
    CHECK_EQ(cuts[parts], n);
    for (int64_t i = 0; i < parts; i++) {
        int64_t at[SHERD_MAX_AXES] = {0}, number = i, lo, hi;
        for (int j = dim->axes - 1; j >= 0; j--) {
            at[dim->axis[j]] = number % mesh->extent[dim->axis[j]];
            number /= mesh->extent[dim->axis[j]];
        }
        sherd__dim_interval(mesh, dim, n, at, &lo, &hi);
        CHECK_EQ(lo, end);
        CHECK(hi >= lo);
        CHECK_EQ(cuts[i], lo);
        CHECK_EQ(cuts[i + 1], hi);
        end = hi;
    }
    CHECK_EQ(end, n);
}

static void intervals_partition_each_dim(void)
{
    static const sherd_layout *list[MANY];
    paper p;

    paper_open(&p, 8);
    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(sizes); s++) {
            int64_t shape[2] = {sizes[s], sizes[(s * 3 + 1) % LEN(sizes)]};
            int count = paper_layouts(paper_mesh(&p, meshes[m]), 2, shape, false, list, MANY);
            for (int i = 0; i < count; i++)
                for (int d = 0; d < 2; d++)
                    check_dim(list[i], d);
        }
    paper_close(&p);
}

/* Every element lies in as many boxes as there are coordinates on the axes that shard nothing. */
static void check_cover(const sherd_layout *layout)
{
    const sherd_mesh *mesh = layout->spec.mesh;
    const int64_t *shape = sherd_layout_shape(layout);
    int64_t replicas = 1;
    char held[97 * 13] = {0};

    for (int i = 0; i < sherd_mesh_axes(mesh); i++)
        if (!(layout->shard_axes >> i & 1))
            replicas *= sherd_mesh_extent(mesh, i);
    for (int rank = 0; rank < sherd_mesh_ranks(mesh); rank++) {
        sherd_box b = sherd_layout_box(layout, rank, 0);
        for (int64_t i = b.offset[0]; i < b.offset[0] + b.size[0]; i++)
            for (int64_t j = b.offset[1]; j < b.offset[1] + b.size[1]; j++)
                held[i * shape[1] + j]++;
    }
    int wrong = 0;
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        wrong += held[i] != replicas;
    CHECK_EQ(wrong, 0);
}

static void boxes_cover_each_element(void)
{
    static const sherd_layout *list[MANY];
    static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {3, 13}, {97, 1}, {0, 5}, {5, 0}};
    paper p;

    paper_open(&p, 8);
    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(shapes); s++) {
            int count = paper_layouts(paper_mesh(&p, meshes[m]), 2, shapes[s], true, list, MANY);
            for (int i = 0; i < count; i++)
                check_cover(list[i]);
        }
    paper_close(&p);
}

static const sherd_layout *with_sizes(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                      const sherd_placement *placement, uint64_t *state)
{
    int64_t cut[2][8], parts[2] = {1, 1};
    const int64_t *views[2] = {cut[0], cut[1]};
    const sherd_layout *layout = NULL;

    for (int i = 0; i < sherd_mesh_axes(mesh); i++)
        if (placement[i].kind == SHERD_SHARD)
            parts[placement[i].dim] *= sherd_mesh_extent(mesh, i);
    for (int d = 0; d < ndim; d++)
        paper_sizes(state, shape[d], parts[d], cut[d]);
    const sherd_layout_options options = {.sizes = views};
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placement, &options));
    return layout;
}

static void explicit_cuts_partition_too(void)
{
    static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {97, 13}, {1, 2}};
    uint64_t state = 1;
    paper p;

    paper_open(&p, 8);
    for (int m = 0; m < LEN(meshes); m++) {
        const sherd_mesh *mesh = paper_mesh(&p, meshes[m]);
        for (int k = 0; k < 200; k++) {
            sherd_placement placement[SHERD_MAX_AXES];
            for (int i = 0; i < sherd_mesh_axes(mesh); i++)
                placement[i] = paper_random(&state) % 4
                                   ? sherd_shard((int)(paper_random(&state) & 1))
                                   : sherd_replicate();
            const sherd_layout *layout =
                with_sizes(mesh, 2, shapes[k % LEN(shapes)], placement, &state);
            check_dim(layout, 0);
            check_dim(layout, 1);
            check_cover(layout);
        }
    }
    paper_close(&p);
}

static void cuts_that_equal_the_default_are_the_default(void)
{
    paper p;

    paper_open(&p, 8);
    CHECK(paper_layout(&p, "[5(x:2,2,1,0)] on (x=4)") == paper_layout(&p, "[5(x)] on (x=4)"));
    CHECK(paper_layout(&p, "[5(x,y:2,1,1,1)] on (x=2,y=2)") ==
          paper_layout(&p, "[5(x,y)] on (x=2,y=2)"));
    CHECK(paper_layout(&p, "[5(x,y:2,2,1,0)] on (x=2,y=2)") !=
          paper_layout(&p, "[5(x,y)] on (x=2,y=2)"));
    CHECK(paper_layout(&p, "[0(x:0,0)] on (x=2)") == paper_layout(&p, "[0(x)] on (x=2)"));
    CHECK(paper_layout(&p, "[5(x:5)] on (x=1)") == paper_layout(&p, "[5(x)] on (x=1)"));
    CHECK(paper_layout(&p, "[5(x)] on (x=1)") != paper_layout(&p, "[5] on (x=1)"));
    CHECK(paper_layout(&p, "[5(x:2,2,1,0)] on (x=4)")->spec.dim[0].cuts == NULL);
    paper_close(&p);
}

/* The depth is compared with the definition: cuts written out, merged and compared one by one. */
static int common_by_hand(const sherd_layout *a, const sherd_layout *b, int d)
{
    const sherd_mesh *mesh = a->spec.mesh;
    const sherd__dim *x = &a->spec.dim[d], *y = &b->spec.dim[d];
    int64_t n = a->spec.shape[d], cx[65], cy[65], px = sherd__dim_parts(mesh, x);
    int64_t py = sherd__dim_parts(mesh, y), parts = 1;
    int depth = 0;

    sherd__dim_cuts(mesh, x, n, cx);
    sherd__dim_cuts(mesh, y, n, cy);
    for (int k = 0; k < x->axes && k < y->axes && x->axis[k] == y->axis[k]; k++) {
        bool equal = true;
        parts *= mesh->extent[x->axis[k]];
        for (int64_t i = 0; i <= parts; i++)
            equal = equal && cx[i * (px / parts)] == cy[i * (py / parts)];
        if (!equal)
            break;
        depth = k + 1;
    }
    return depth;
}

static void common_depth_is_the_longest_equal_beginning(void)
{
    static const char *const texts[] = {
        "[13] on (x=2,y=2,z=2)",
        "[13(x)] on (x=2,y=2,z=2)",
        "[13(x,y)] on (x=2,y=2,z=2)",
        "[13(y,x)] on (x=2,y=2,z=2)",
        "[13(x,y,z)] on (x=2,y=2,z=2)",
        "[13(x,z,y)] on (x=2,y=2,z=2)",
        "[13(x:7,6)] on (x=2,y=2,z=2)",
        "[13(x:6,7)] on (x=2,y=2,z=2)",
        "[13(x,y:4,3,3,3)] on (x=2,y=2,z=2)",
        "[13(x,y:3,4,3,3)] on (x=2,y=2,z=2)",
        "[13(x,y:3,3,4,3)] on (x=2,y=2,z=2)",
        "[13(x,y,z:2,2,2,1,2,2,1,1)] on (x=2,y=2,z=2)",
        "[13(x,y,z:2,2,2,1,0,0,3,3)] on (x=2,y=2,z=2)",
        "[13(x,y,z:4,3,0,0,3,3,0,0)] on (x=2,y=2,z=2)",
    };
    paper p;
    int found[4] = {0};

    paper_open(&p, 8);
    for (int i = 0; i < LEN(texts); i++)
        for (int j = 0; j < LEN(texts); j++) {
            const sherd_layout *a = paper_layout(&p, texts[i]), *b = paper_layout(&p, texts[j]);
            int depth = sherd__dim_common(a->spec.mesh, &a->spec.dim[0], &b->spec.dim[0], 13);
            CHECK_EQ(depth, common_by_hand(a, b, 0));
            CHECK_EQ(sherd__dim_equal(a->spec.mesh, &a->spec.dim[0], &b->spec.dim[0], 13), a == b);
            found[depth]++;
        }
    for (int k = 0; k < 4; k++)
        CHECK(found[k] > 0);
    paper_close(&p);
}

/* text, axis, placement, result */
static void one_axis_changes_and_the_rest_stays(void)
{
    static const struct {
        const char *from;
        int axis;
        const char *placement, *to;
    } cases[] = {
        {"[8,4] on (x=2,y=2)", 0, "S0", "[8(x),4] on (x=2,y=2)"},
        {"[8(x),4] on (x=2,y=2)", 0, "R", "[8,4] on (x=2,y=2)"},
        {"[8(x),4] on (x=2,y=2)", 0, "S1", "[8,4(x)] on (x=2,y=2)"},
        {"[8(x),4] on (x=2,y=2)", 0, "S0", "[8(x),4] on (x=2,y=2)"},
        {"[8(x),4] on (x=2,y=2)", 1, "P", "[8(x),4] P(sum:y) on (x=2,y=2)"},
        {"[8(x),4] P(sum:y) on (x=2,y=2)", 1, "R", "[8(x),4] on (x=2,y=2)"},
        {"[8(y),4] on (x=2,y=2)", 0, "S0", "[8(y,x),4] on (x=2,y=2)"},
        {"[8(y,x),4] on (x=2,y=2)", 1, "R", "[8(x),4] on (x=2,y=2)"},
        {"[8(y,x),4] on (x=2,y=2)", 0, "S1", "[8(y),4(x)] on (x=2,y=2)"},
        /* kept cuts of a dim whose axes stay; chunks within present shards; merged shards */
        {"[10(x:3,7),4] on (x=2,y=2)", 1, "S1", "[10(x:3,7),4(y)] on (x=2,y=2)"},
        {"[10(x:3,7),4] on (x=2,y=2)", 1, "S0", "[10(x,y:2,1,4,3),4] on (x=2,y=2)"},
        {"[10(x,y:2,1,4,3),4] on (x=2,y=2)", 1, "R", "[10(x:3,7),4] on (x=2,y=2)"},
        {"[10(x,y:0,1,0,9),4] on (x=2,y=2)", 1, "S1", "[10(x:1,9),4(y)] on (x=2,y=2)"},
        /* the outer axis goes: nothing of the cuts is left, the inner one cuts by the chunk rule */
        {"[10(x,y:2,1,4,3),4] on (x=2,y=2)", 0, "R", "[10(y),4] on (x=2,y=2)"},
    };
    static const char *const y[] = {"y"}, *const x[] = {"x"};
    const sherd_layout *to;
    const sherd_mesh *sub, *other;
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_layout *from = paper_layout(&p, cases[i].from);
        const char *c = cases[i].placement;
        sherd_placement placement = *c == 'S'   ? sherd_shard(c[1] - '0')
                                    : *c == 'P' ? sherd_partial(SHERD_SUM)
                                                : sherd_replicate();
        CHECK_OK(sherd_layout_with(&to, from, from->spec.mesh, cases[i].axis, placement));
        CHECK_TEXT(sherd_layout_text(to), cases[i].to);
        CHECK(to == paper_layout(&p, cases[i].to));
    }
    const sherd_layout *from = paper_layout(&p, "[8,4] on (x=2,y=2)");
    CHECK_OK(sherd_mesh_slice(&sub, from->spec.mesh, 1, y));
    CHECK_OK(sherd_layout_with(&to, from, sub, 0, sherd_shard(-1)));
    CHECK_TEXT(sherd_layout_text(to), "[8,4(y)] on (x=2,y=2)");
    CHECK_EQ(sherd_layout_with(&to, from, sub, 1, sherd_shard(0)), SHERD_EINVAL);
    CHECK(to == NULL);
    CHECK_EQ(sherd_layout_with(&to, from, sub, 0, sherd_shard(2)), SHERD_EINVAL);
    CHECK_OK(sherd_mesh_slice(&other, paper_mesh(&p, "x=2,z=2"), 1, x));
    CHECK_EQ(sherd_layout_with(&to, from, other, 0, sherd_shard(0)), SHERD_EINVAL);
    CHECK_OK(sherd_layout_with(&to, from, sub, 0, sherd_partial(SHERD_MAX)));
    CHECK_EQ(sherd_layout_with(&to, to, from->spec.mesh, 0, sherd_partial(SHERD_MIN)),
             SHERD_EINVAL);
    paper_close(&p);
}

static void a_layout_on_a_sub_mesh_lies_on_the_root(void)
{
    static const char *const yx[] = {"y", "x"}, *const x[] = {"x"};
    static const int64_t shape[] = {8, 4};
    const sherd_placement both[] = {sherd_shard(0), sherd_shard(0)}, one[] = {sherd_shard(-1)};
    const sherd_layout *layout;
    const sherd_mesh *sub;
    paper p;

    paper_open(&p, 8);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=2,z=2");
    CHECK_OK(sherd_mesh_slice(&sub, mesh, 1, x));
    CHECK_OK(sherd_layout_create(&layout, sub, 2, shape, one, NULL));
    CHECK_TEXT(sherd_layout_text(layout), "[8,4(x)] on (x=2,y=2,z=2)");
    CHECK(sherd_layout_mesh(layout) == mesh);
    CHECK_OK(sherd_mesh_slice(&sub, mesh, 2, yx)); /* mesh order is the order of the given mesh */
    CHECK_OK(sherd_layout_create(&layout, sub, 2, shape, both, NULL));
    CHECK_TEXT(sherd_layout_text(layout), "[8(y,x),4] on (x=2,y=2,z=2)");
    CHECK_OK(sherd_layout_parse_placements(&layout, sub, 2, shape, "S(0)P", NULL));
    CHECK_TEXT(sherd_layout_text(layout), "[8(y),4] P(sum:x) on (x=2,y=2,z=2)");
    CHECK_TEXT(sherd_layout_placements(layout), "P(sum)S(0)R");
    paper_close(&p);
}

static void getters_say_what_a_layout_is(void)
{
    paper p;
    const sherd_layout *settled;

    paper_open(&p, 8);
    const sherd_layout *layout = paper_layout(&p, "[8(z),4(x)] P(avg:y) on (x=2,y=2,z=2)");
    CHECK_EQ(sherd_layout_ndim(layout), 2);
    CHECK_EQ(sherd_layout_shape(layout)[1], 4);
    CHECK_EQ(sherd_layout_placement(layout, 0).kind, SHERD_SHARD);
    CHECK_EQ(sherd_layout_placement(layout, 0).dim, 1);
    CHECK_EQ(sherd_layout_placement(layout, 1).kind, SHERD_PARTIAL);
    CHECK_EQ(sherd_layout_placement(layout, 1).op, SHERD_AVG);
    CHECK_EQ(sherd_layout_placement(layout, 2).dim, 0);
    CHECK_EQ(sherd_layout_placement(layout, 3).kind, SHERD_REPLICATE);
    CHECK_EQ(sherd_layout_placement(layout, -1).kind, SHERD_REPLICATE);
    CHECK_EQ(layout->pending_axes, 2);
    CHECK_EQ(layout->shard_axes, 5);
    CHECK_OK(sherd__layout_settle(&settled, layout));
    CHECK(settled == paper_layout(&p, "[8(z),4(x)] on (x=2,y=2,z=2)"));
    CHECK_OK(sherd__layout_settle(&settled, settled));
    CHECK(settled == paper_layout(&p, "[8(z),4(x)] on (x=2,y=2,z=2)"));
    paper_close(&p);
}

static void the_largest_box_is_that_of_the_longest_shards(void)
{
    static const struct {
        const char *layout;
        int64_t largest;
    } cases[] = {{"[10(x:4,6)] on (x=2)", 6},     {"[10(x:6,4)] on (x=2)", 6},
                 {"[10(x:0,10,0)] on (x=3)", 10}, {"[10(x:2,5,3),4(y:1,3)] on (x=3,y=2)", 15},
                 {"[10(x)] on (x=3)", 4},         {"[10(x,y)] on (x=2,y=2)", 3},
                 {"[10,4] on (x=2)", 40},         {"[] on (x=2)", 1}};
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(cases); i++)
        CHECK_EQ(sherd__layout_largest(paper_layout(&p, cases[i].layout)), cases[i].largest);
    paper_close(&p);
}

static void bad_layouts_are_refused(void)
{
    static const int64_t shape[] = {8, 4}, negative[] = {8, -1}, wide[] = {(int64_t)1 << 62, 1},
                         much[] = {(int64_t)1 << 40, (int64_t)1 << 40}, short_[] = {4, 3},
                         hollow[] = {(int64_t)1 << 40, 0, (int64_t)1 << 40}, minus[] = {9, -1},
                         good[] = {5, 3};
    static const int twice[] = {0, 0}, far[] = {0, 2};
    const int64_t *less[] = {short_, NULL}, *below[] = {minus, NULL}, *right[] = {good, NULL};
    const sherd_layout_options bad[] = {{.order = twice}, {.order = far}};
    const sherd_layout_options cut[] = {{.sizes = less}, {.sizes = below}, {.sizes = right}};
    const sherd_placement rows[] = {sherd_shard(0), sherd_shard(0)};
    const sherd_placement one[] = {sherd_shard(0), sherd_replicate()};
    const sherd_placement none[] = {sherd_replicate(), sherd_replicate()};
    const sherd_placement mixed[] = {sherd_partial(SHERD_SUM), sherd_partial(SHERD_MAX)};
    const sherd_placement may_mix[] = {sherd_partial(SHERD_SUM), sherd_partial(SHERD_AVG)};
    const sherd_placement off[] = {sherd_shard(2), sherd_replicate()};
    const sherd_placement low[] = {sherd_shard(-3), sherd_replicate()};
    const sherd_placement odd[] = {{.kind = SHERD_PARTIAL, .op = (sherd_reduce_op)7}};
    const sherd_placement kind[] = {{.kind = (sherd_placement_kind)9}};
    const sherd_layout *layout;
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "2x2"), *line = paper_mesh(&p, "x=2");
    CHECK_EQ(sherd_layout_create(&layout, mesh, 9, shape, one, NULL), SHERD_ELIMIT);
    CHECK_EQ(sherd_layout_create(&layout, mesh, -1, shape, one, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 1, NULL, one, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_parse_placements(&layout, mesh, 1, NULL, "RR", NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, negative, one, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, wide, one, NULL), SHERD_ELIMIT);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, much, one, NULL), SHERD_ELIMIT);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 3, hollow, one, NULL), SHERD_ELIMIT);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, shape, off, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, shape, low, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, shape, mixed, NULL), SHERD_EINVAL);
    CHECK(strstr(p.diag.text, "only sum and avg mix"));
    CHECK_EQ(sherd_layout_create(&layout, line, 2, shape, odd, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, line, 2, shape, kind, NULL), SHERD_EINVAL);
    for (int i = 0; i < LEN(bad); i++)
        CHECK_EQ(sherd_layout_create(&layout, mesh, 2, shape, rows, &bad[i]), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, shape, one, &cut[0]), SHERD_EINVAL);
    CHECK_EQ(sherd_layout_create(&layout, mesh, 2, shape, one, &cut[1]), SHERD_EINVAL);
    CHECK(layout == NULL);
    CHECK_OK(sherd_layout_create(&layout, mesh, 0, NULL, none, NULL));
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 0, NULL, "RR", NULL));
    CHECK_TEXT(sherd_layout_text(layout), "[] on (a0=2,a1=2)");
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, one, &cut[2]));
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, may_mix, NULL));
    CHECK_TEXT(sherd_layout_placements(layout), "P(sum)P(avg)");
    sherd__layout_spec spec = layout->spec;
    spec.dim[0].axes = 1; /* axis 0 is pending already */
    CHECK_EQ(sherd__layout_intern(&layout, &spec), SHERD_EINVAL);
    paper_close(&p);
}

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A million ranks cost as much as two: a walk over them, even once, would take longer than this. */
static void a_million_ranks_cost_nothing(void)
{
    static const int64_t shape[] = {1000003, 4097};
    const sherd_placement swap[] = {sherd_shard(1), sherd_shard(0)};
    const sherd_layout *layout = NULL, *other = NULL;
    int rounds = 2000;
    paper p;

    paper_open(&p, 1 << 20);
    double start = seconds_now();
    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = paper_mesh(&p, "1024x1024");
        CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(0)S(0)", NULL));
        CHECK_OK(sherd_layout_create(&other, mesh, 2, shape, swap, NULL));
        sherd_box box = sherd_layout_box(layout, (1 << 20) - 1, 0);
        CHECK_EQ(box.offset[0], 1000003);
        box = sherd_layout_box(other, 1024, 0);
        CHECK_EQ(box.offset[1], 5); /* 4097 columns in pieces of 5 */
        CHECK_EQ(sherd__dim_common(mesh, &layout->spec.dim[0], &other->spec.dim[0], shape[0]), 0);
        CHECK_EQ(sherd__dim_common(mesh, &layout->spec.dim[0], &layout->spec.dim[0], shape[0]), 2);
        CHECK_OK(sherd_layout_with(&other, layout, mesh, 1, sherd_shard(1)));
    }
    CHECK(seconds_now() - start < rounds * 100e-6);
    CHECK(p.heap.allocations < 100);
    paper_close(&p);
}

static const check_test tests[] = {
    {TEST(one_chunk_rule)},
    {TEST(five_rows_on_four_ranks)},
    {TEST(intervals_partition_each_dim)},
    {TEST(boxes_cover_each_element)},
    {TEST(explicit_cuts_partition_too)},
    {TEST(cuts_that_equal_the_default_are_the_default)},
    {TEST(common_depth_is_the_longest_equal_beginning)},
    {TEST(one_axis_changes_and_the_rest_stays)},
    {TEST(a_layout_on_a_sub_mesh_lies_on_the_root)},
    {TEST(getters_say_what_a_layout_is)},
    {TEST(the_largest_box_is_that_of_the_longest_shards)},
    {TEST(bad_layouts_are_refused)},
    {TEST(a_million_ranks_cost_nothing)},
};
CHECK_MAIN(tests)
