/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts as text: what is written reads back as the same pointer, for generated layouts; what is
 * wrong names its column; and every failed allocation is survived.
 */
#define CHECK_PURE
#include "paper.h"

enum { MANY = 4096 };

static void comes_back(paper *p, const sherd_layout *layout)
{
    const sherd_layout *again = NULL;
    const sherd_mesh *mesh = layout->spec.mesh;
    bool plain = true;

    CHECK_OK(sherd__layout_read(&again, &p->space, sherd_layout_text(layout), NULL));
    CHECK(again == layout);
    for (int d = 0; d < layout->spec.ndim; d++)
        plain = plain && !layout->spec.dim[d].cuts;
    if (!plain)
        return;
    CHECK_OK(sherd_layout_parse_placements(&again, mesh, layout->spec.ndim, layout->spec.shape,
                                           sherd_layout_placements(layout), NULL));
    CHECK(again == layout);
}

static void all_layouts_come_back(void)
{
    static const char *const meshes[] = {"1", "x=3", "2x4", "dp=2,tp=3@5,4,3,2,1,0", "2x2x2"};
    static const int64_t shapes[][3] = {{8, 4, 2}, {7, 5, 3}, {1, 0, 13}};
    static const sherd_layout *list[MANY];
    int total = 0;
    paper p;

    paper_open(&p, 8);
    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int ndim = 0; ndim <= 3; ndim++) {
                int count =
                    paper_layouts(paper_mesh(&p, meshes[m]), ndim, shapes[s], true, list, MANY);
                for (int i = 0; i < count; i++)
                    comes_back(&p, list[i]);
                total += count;
            }
    CHECK(total > 1000);
    paper_close(&p);
}

static void random_cuts_and_ops_come_back(void)
{
    static const char *const meshes[] = {"3", "2x4", "x=2,y=1,z=3", "2x2x2"};
    uint64_t state = 7;
    paper p;

    paper_open(&p, 8);
    for (int k = 0; k < 3000; k++) {
        const sherd_mesh *mesh = paper_mesh(&p, meshes[k % LEN(meshes)]);
        sherd_placement placement[SHERD_MAX_AXES];
        int64_t sizes[3][8], parts[3] = {1, 1, 1}, shape[3];
        const int64_t *views[3] = {sizes[0], NULL, sizes[2]};
        int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES];
        sherd_reduce_op op = (sherd_reduce_op)(paper_random(&state) % 5);
        for (int i = 0; i < sherd_mesh_axes(mesh); i++) {
            uint64_t choice = paper_random(&state) % 6;
            placement[i] = choice < 3    ? sherd_shard((int)choice)
                           : choice == 3 ? sherd_replicate()
                                         : sherd_partial(op);
            if (choice < 3)
                parts[choice] *= sherd_mesh_extent(mesh, i);
        }
        for (int d = 0; d < 3; d++) {
            shape[d] = (int64_t)(paper_random(&state) % 20);
            paper_sizes(&state, shape[d], parts[d], sizes[d]);
        }
        paper_permutation((int64_t)(paper_random(&state) % 6), sherd_mesh_axes(mesh), rank_of);
        paper_order(placement, rank_of, sherd_mesh_axes(mesh), order);
        const sherd_layout_options options = {order, views};
        const sherd_layout *layout = NULL;
        CHECK_OK(sherd_layout_create(&layout, mesh, 3, shape, placement, &options));
        comes_back(&p, layout);
    }
    paper_close(&p);
}

static void text_is_as_in_the_grammar(void)
{
    static const char *const texts[][3] = {
        {"[4096(x,y),4096] on (x=2,y=4)", "[4096(x,y),4096] on (x=2,y=4)", "S(0)S(0)"},
        {"[4096(y,x),4096] on (x=2,y=4)", "[4096(y,x),4096] on (x=2,y=4)", "S(0)[1]S(0)[0]"},
        {"f32 [ 10 ( x : 4 , 6 ) ] on ( x = 2 )", "[10(x:4,6)] on (x=2)", "S(0)"},
        {"[8(x),8]P(sum:y)on(x=2,y=2)", "[8(x),8] P(sum:y) on (x=2,y=2)", "S(0)P(sum)"},
        {"f64[8,8] P(avg:y) P(sum:x) on (2x2)", NULL, NULL}, /* axes are a0, a1 */
        {"[8] P(avg:y) P(sum:x) on (x=2,y=2)", "[8] P(sum:x) P(avg:y) on (x=2,y=2)",
         "P(sum)P(avg)"},
        {"[] on (2x2)", "[] on (a0=2,a1=2)", "RR"},
        {"[8(y,x),4(z)] on (x=2,y=1,z=3)", "[8(y,x),4(z)] on (x=2,y=1,z=3)", "S(0)[1]S(0)[0]S(1)"},
        {"[2(x)] on (x=2@3,1)", "[2(x)] on (x=2@3,1)", "S(0)"},
        {"[4611686018427387903] on (1)", "[4611686018427387903] on (a0=1)", "R"},
    };
    const sherd_layout *layout;
    char text[64];
    int dtype = -1;
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(texts); i++) {
        sherd_status status = sherd__layout_read(&layout, &p.space, texts[i][0], &dtype);
        CHECK_EQ(status, texts[i][1] ? SHERD_OK : SHERD_EINVAL);
        if (!layout)
            continue;
        CHECK_TEXT(sherd_layout_text(layout), texts[i][1]);
        CHECK_TEXT(sherd_layout_placements(layout), texts[i][2]);
    }
    for (int i = 0; i < SHERD_DTYPES; i++) {
        if (sherd_dtype_bytes((sherd_dtype)i) == 0)
            continue;
        snprintf(text, sizeof text, "%s[8(x)] on (x=2)", sherd_dtype_name((sherd_dtype)i));
        CHECK_OK(sherd__layout_read(&layout, &p.space, text, &dtype));
        CHECK_EQ(dtype, i);
        char described[64];
        sherd__layout_describe(layout, (sherd_dtype)i, described, sizeof described);
        CHECK_TEXT(described, text);
        sherd__layout_describe(layout, (sherd_dtype)i, described, 8);
        CHECK_EQ(strlen(described), 7);
    }
    CHECK_OK(sherd__layout_read(&layout, &p.space, "[8] on (x=2)", &dtype));
    CHECK_EQ(dtype, SHERD_F32);
    paper_close(&p);
}

typedef struct bad_text {
    const char *text, *cuts; /* a full layout, or placements and cuts of [10,6] on (x=2,y=4) */
    int column;
    const char *expected;
} bad_text;

static void check_bad(paper *p, const bad_text *bad, sherd_status status, sherd_status wanted)
{
    char column[32];

    snprintf(column, sizeof column, "column %d of \"", bad->column);
    CHECK_EQ(status, wanted);
    CHECK_EQ(p->diag.column, bad->column);
    CHECK(p->diag.source == (bad->cuts ? bad->cuts : bad->text));
    if (!CHECK(strstr(p->diag.text, column)) || !CHECK(strstr(p->diag.text, bad->expected)) ||
        !CHECK(strchr(p->diag.text, '\n') == NULL))
        fprintf(stderr, "\"%s\" \"%s\": %s\n", bad->text, bad->cuts ? bad->cuts : "", p->diag.text);
}

static void bad_layout_text_names_the_column(void)
{
    static const bad_text cases[] = {
        {"", NULL, 1, "dtype"},
        {"f31[8] on (x=2)", NULL, 1, "dtype"},
        {"f32 8] on (x=2)", NULL, 5, "[ and the dims"},
        {"[8", NULL, 3, ", or ]"},
        {"[8,] on (x=2)", NULL, 4, "size of a dim"},
        {"[-8] on (x=2)", NULL, 2, "size of a dim"},
        {"[4611686018427387904] on (x=2)", NULL, 2, "below 2^62"},
        {"[8(] on (x=2)", NULL, 4, "name of an axis"},
        {"[8(x] on (x=2)", NULL, 5, ")"},
        {"[8(x:] on (x=2)", NULL, 6, "size of a shard"},
        {"[8(x:4,4] on (x=2)", NULL, 9, ")"},
        {"[8(z)] on (x=2)", NULL, 4, "axis of the mesh (x=2)"},
        {"[8(x),4(x)] on (x=2)", NULL, 9, "does nothing yet"},
        {"[8(x)] P(sum:x) on (x=2)", NULL, 14, "does nothing yet"},
        {"[8] P(sum:z) on (x=2)", NULL, 11, "axis of the mesh"},
        {"[8] P(mean:x) on (x=2)", NULL, 7, "sum, avg"},
        {"[8] P(sum,x) on (x=2)", NULL, 10, ": and an axis"},
        {"[8] P sum", NULL, 7, "( and a reduce op"},
        {"[8] P(sum:x on (x=2)", NULL, 13, ")"},
        {"[8] (x=2)", NULL, 5, "on (mesh)"},
        {"[8] on x=2", NULL, 8, "on (mesh)"},
        {"[8] on (x=)", NULL, 11, "extent"},
        {"[8] on (x=2", NULL, 12, ") after the mesh"},
        {"[8] on (x=2) R", NULL, 14, "end"},
        {"[8(x:4,5)] on (x=2)", NULL, 6, "add up to 8, not to 9"},
        {"[8(x:8)] on (x=2)", NULL, 7, "size 2 of 2"},
        {"[8(x:4,4,0)] on (x=2)", NULL, 9, "after 2 sizes"},
        {"[1,1,1,1,1,1,1,1,1] on (x=2)", NULL, 18, "at most 8 dims"},
        {"(8) on (x=2)", NULL, 1, "or ["},
        {"[8]P(sum:x)P(sum:x)P(sum:x)P(sum:x)P(sum:x)P(sum:x)P(sum:x)P(sum:x)P on (x=2)", NULL, 69,
         "at most 8 pending"},
        {"none[8] on (x=2)", NULL, 1, "dtype"},
        {"[8(x:4611686018427387903,1)] on (x=2)", NULL, 6, "2^62 or more"},
        {"[8] P(max:x) P(min:y) on (x=2,y=2)", NULL, 16, "only sum and avg mix"},
        {"[8] on (x=9)", NULL, 11, "world has (8)"},
        {"[8] on (x=2@3,3)", NULL, 15, "3 is there already"},
        {"[8] on (x=2,x=2)", NULL, 13, "new axis name"},
        {"[ -8] on (x=2)", NULL, 3, "size of a dim"},
        {"[8( ] on (x=2)", NULL, 5, "name of an axis"},
        {"[8(x: ] on (x=2)", NULL, 7, "size of a shard"},
        {"[8( z)] on (x=2)", NULL, 5, "axis of the mesh"},
        {"[8] on (x=2, 3)", NULL, 14, "axis name"},
        {"[8] on (x=2@3, 9)", NULL, 16, "a rank of the world, 0 to 7"},
    };
    const sherd_layout *layout;
    int dtype = 77;
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(cases); i++) {
        check_bad(&p, &cases[i], sherd__layout_read(&layout, &p.space, cases[i].text, &dtype),
                  SHERD_EINVAL);
        CHECK(layout == NULL);
    }
    const bad_text much = {"[1,2147483648,0,2147483648] on (x=2)", NULL, 17, "multiply to 2^62"};
    check_bad(&p, &much, sherd__layout_read(&layout, &p.space, much.text, &dtype), SHERD_ELIMIT);
    CHECK_EQ(dtype, 77);
    char longest[2000];
    memset(longest, ' ', sizeof longest);
    memcpy(longest + sizeof longest - 2, "!", 2);
    CHECK_EQ(sherd__layout_read(&layout, &p.space, longest, NULL), SHERD_EINVAL);
    CHECK(strstr(p.diag.text, "column 1999 of") && strstr(p.diag.text, "expected a dtype"));
    paper_close(&p);
}

static void bad_placements_name_the_column(void)
{
    static const bad_text cases[] = {
        {"", NULL, 1, "axis x"},
        {"S(0)", NULL, 5, "axis y"},
        {"S(0)Q", NULL, 5, "S(dim), R or P(op)"},
        {"RRR", NULL, 3, "2 axes"},
        {"S0R", NULL, 2, "( and a dim"},
        {"S(2)R", NULL, 3, "has 2"},
        {"S(-1)R", NULL, 3, "dim of the tensor"},
        {"S(0R", NULL, 4, ")"},
        {"P(mean)R", NULL, 3, "sum, avg"},
        {"P(sumR", NULL, 3, "sum, avg"},
        {"P(sum R", NULL, 7, ")"},
        {"S(0)[R", NULL, 6, "place in the shard order"},
        {"S(0)[0R", NULL, 7, "]"},
        {"S(0)[0]S(0)", NULL, 8, "on all axes of dim 0"},
        {"S(0)[1]S(1)", NULL, 1, "each shard order"},
        {"S(0)[0]S(0)[0]", NULL, 8, "each shard order"},
        {"_S(0)S(0)", NULL, 5, "factor"},
        {"_S(0,0)S(0)", NULL, 7, "factor"},
        {"_S(0,4)S(0)[0]", NULL, 8, "no shard order beside _S"},
        {"S(0)R", "x", 1, "dim of the tensor"},
        {"S(0)R", "2:4", 1, "dim of the tensor"},
        {"S(0)R", "0=4,6", 2, ": and the shard sizes"},
        {"S(0)R", "0:4,7", 3, "add up to 10, not to 11"},
        {"S(0)R", "0:10", 5, "size 2 of 2"},
        {"S(0)R", "0:4,6,0", 6, "2 shards of dim 0"},
        {"S(0)R", "0:4,6;0:4,6", 7, "once"},
        {"S(0)R", "0:4,6;", 7, "dim of the tensor"},
        {"S(0)R", "0:4,-6", 5, "size 2"},
        {"P(max)P(min)", NULL, 7, "P(max) as on axis x"},
        {"P R R", NULL, 5, "the end"},
        {"S(0)S(0)", "0:10", 5, "size 2 of 8"},
        {"S(0)R", "0:4611686018427387903,1", 3, "2^62 or more"},
        {"S(0)R", "0:4,6; 0:10", 8, "once"},
        {"RR", "1:7", 3, "add up to 6, not to 7"},
    };
    static const int64_t shape[] = {10, 6};
    const sherd_layout *layout;
    paper p;

    paper_open(&p, 8);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=4");
    for (int i = 0; i < LEN(cases); i++) {
        check_bad(
            &p, &cases[i],
            sherd_layout_parse_placements(&layout, mesh, 2, shape, cases[i].text, cases[i].cuts),
            SHERD_EINVAL);
        CHECK(layout == NULL);
    }
    CHECK_EQ(sherd_layout_parse_placements(&layout, mesh, 9, shape, "RR", NULL), SHERD_ELIMIT);
    CHECK_EQ(p.diag.column, 0);
    CHECK(p.diag.source == NULL);
    const bad_text strided = {"S(0)_S(0,3)", NULL, 5, "is not a shard order"};
    check_bad(&p, &strided,
              sherd_layout_parse_placements(&layout, mesh, 2, shape, strided.text, NULL),
              SHERD_ENOTSUP);
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, shape, " S( 0 ) [1] S(0)[0] ",
                                           " 0:1,2,3,4,0,0,0,0 ; 1:6 "));
    CHECK_TEXT(sherd_layout_text(layout), "[10(y,x:1,2,3,4,0,0,0,0),6] on (x=2,y=4)");
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, shape, "PS(1)", ""));
    CHECK_TEXT(sherd_layout_text(layout), "[10,6(y)] P(sum:x) on (x=2,y=4)");
    mesh = paper_mesh(&p, "x=2");
    CHECK_EQ(sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(0)R", NULL), SHERD_EINVAL);
    CHECK(strstr(p.diag.text, "expected the end: the mesh (x=2) has 1 axis") != NULL);
    paper_close(&p);
}

static void shapes_and_dtypes_are_read(void)
{
    static const struct {
        const char *text;
        int ndim;
        int64_t shape[3];
    } good[] = {
        {"8x16", 2, {8, 16}},
        {"scalar", 0, {0}},
        {" 0 x 7 x 4611686018427387903", 3, {0, 7, 4611686018427387903}}, /* empty dims count 1 */
        {"5", 1, {5}},
    };
    int64_t shape[SHERD_MAX_DIMS];
    int ndim;
    paper p;

    paper_open(&p, 1);
    for (int i = 0; i < LEN(good); i++) {
        sherd_status status = sherd__shape_read(shape, &ndim, &p.diag, "test", good[i].text);
        bool fits = i != 2; /* 7 times 2^62 - 1 do not */
        CHECK_EQ(status, fits ? SHERD_OK : SHERD_ELIMIT);
        CHECK_EQ(ndim, good[i].ndim);
        for (int d = 0; d < ndim; d++)
            CHECK_EQ(shape[d], good[i].shape[d]);
    }
    CHECK_EQ(p.diag.column, 10);
    for (int i = 0; i < SHERD_DTYPES; i++) {
        sherd_dtype dtype = (sherd_dtype)i, read = (sherd_dtype)77;
        bool is = sherd_dtype_bytes(dtype) > 0;
        CHECK_EQ(sherd__dtype_read(&read, &p.diag, "test", sherd_dtype_name(dtype)),
                 is ? SHERD_OK : SHERD_EINVAL);
        CHECK_EQ(read, is ? i : 77);
    }
    paper_close(&p);
}

static void bad_shapes_and_dtypes_name_the_column(void)
{
    static const bad_text shapes[] = {
        {"", NULL, 1, "8x16 or scalar"},
        {"x", NULL, 1, "8x16 or scalar"},
        {"8x", NULL, 3, "size of a dim"},
        {"8x-1", NULL, 3, "size of a dim"},
        {"8 16", NULL, 3, "x and a dim"},
        {"8*16", NULL, 2, "x and a dim"},
        {"scalarx8", NULL, 7, "the end"},
        {"scala", NULL, 1, "8x16 or scalar"},
        {"8xscalar", NULL, 3, "size of"},
        {"4611686018427387904", NULL, 1, "below 2^62"},
        {"1x1x1x1x1x1x1x1x1", NULL, 17, "at most 8 dims"},
    };
    static const bad_text dtypes[] = {
        {"", NULL, 1, "a dtype"},        {"f31", NULL, 1, "a dtype"},
        {"f32 f32", NULL, 5, "the end"}, {"f32x", NULL, 1, "a dtype"},
        {" float", NULL, 2, "a dtype"},  {"none", NULL, 1, "a dtype"},
    };
    int64_t shape[SHERD_MAX_DIMS];
    sherd_dtype dtype = SHERD_F64;
    int ndim;
    paper p;

    paper_open(&p, 1);
    for (int i = 0; i < LEN(shapes); i++)
        check_bad(&p, &shapes[i], sherd__shape_read(shape, &ndim, &p.diag, "test", shapes[i].text),
                  SHERD_EINVAL);
    for (int i = 0; i < LEN(dtypes); i++)
        check_bad(&p, &dtypes[i], sherd__dtype_read(&dtype, &p.diag, "test", dtypes[i].text),
                  SHERD_EINVAL);
    CHECK_EQ(dtype, SHERD_F64);
    paper_close(&p);
}

static void hashes_are_of_layout_content(void)
{
    paper p, q;

    paper_open(&p, 8);
    paper_open(&q, 8);
    const char *texts[] = {"[8(x),4] on (x=2,y=2)",          "[8(y),4] on (x=2,y=2)",
                           "[8,4(x)] on (x=2,y=2)",          "[8(x),4] P(sum:y) on (x=2,y=2)",
                           "[8(x),4] P(avg:y) on (x=2,y=2)", "[8(x:3,5),4] on (x=2,y=2)",
                           "[8(x,y),4] on (x=2,y=2)",        "[8(y,x),4] on (x=2,y=2)",
                           "[8(x),4] on (x=4,y=2)",          "[8(x),5] on (x=2,y=2)"};
    for (int i = 0; i < LEN(texts); i++)
        for (int j = 0; j < LEN(texts); j++) {
            bool equal = paper_layout(&p, texts[i])->hash == paper_layout(&q, texts[j])->hash;
            CHECK_EQ(equal, i == j);
        }
    paper_close(&p);
    paper_close(&q);
}

/* Everything that allocates, once. */
static sherd_status work(paper *p)
{
    static const char *const y[] = {"y"};
    static const int64_t shape[] = {10, 6};
    const sherd_layout *a, *b;
    const sherd_mesh *mesh, *sub;

    sherd_status status = sherd__mesh_read(&mesh, &p->space, "x=2,y=2@3,2,1,0");
    if (status == SHERD_OK)
        status = sherd_mesh_slice(&sub, mesh, 1, y);
    if (status == SHERD_OK)
        status = sherd__layout_read(&a, &p->space, "[10(x,y:1,2,3,4),6] P(sum:z) on (x=2,y=2,z=2)",
                                    NULL);
    if (status == SHERD_OK)
        status = sherd__layout_settle(&b, a);
    if (status == SHERD_OK)
        status = sherd_layout_with(&b, a, a->spec.mesh, 1, sherd_shard(1));
    if (status == SHERD_OK)
        status = sherd_layout_parse_placements(&b, sub, 2, shape, "S(0)", "0:3,7;1:6");
    return status;
}

static void every_failed_allocation_is_survived(void)
{
    int64_t n = 0;
    sherd_status status = SHERD_ENOMEM;
    paper p;

    for (; status != SHERD_OK && n < 1000; n++) {
        paper_open(&p, 8);
        p.heap.fail_at = n + 1;
        status = work(&p);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(status == SHERD_OK || strstr(p.diag.text, "out of memory"));
        p.heap.fail_at = 0;
        CHECK_OK(work(&p)); /* and what was interned halfway does no harm */
        paper_close(&p);
    }
    CHECK(n > 20 && n < 1000);
}

static const check_test tests[] = {
    {TEST(all_layouts_come_back)},
    {TEST(random_cuts_and_ops_come_back)},
    {TEST(text_is_as_in_the_grammar)},
    {TEST(bad_layout_text_names_the_column)},
    {TEST(bad_placements_name_the_column)},
    {TEST(shapes_and_dtypes_are_read)},
    {TEST(bad_shapes_and_dtypes_name_the_column)},
    {TEST(hashes_are_of_layout_content)},
    {TEST(every_failed_allocation_is_survived)},
};
CHECK_MAIN(tests)
