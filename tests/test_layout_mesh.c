/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: text both ways, interning, sub-meshes, coordinates, and what is refused. */
#define CHECK_PURE
#include "paper.h"

static void text_comes_back(void)
{
    static const char *const texts[][2] = {
        {"4", "a0=4"},
        {"2x4", "a0=2,a1=4"},
        {" 2 x 4 ", "a0=2,a1=4"},
        {"a0=2,a1=4", "a0=2,a1=4"},
        {"dp=2,tp=2", "dp=2,tp=2"},
        {"x=2@0,1", "x=2"},
        {"x=2@2,3", "x=2@2,3"},
        {"x=2,y=2@3,1,0,2", "x=2,y=2@3,1,0,2"},
        {"1x1x1x1x1x1x1x8", "a0=1,a1=1,a2=1,a3=1,a4=1,a5=1,a6=1,a7=8"},
    };
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(texts); i++) {
        const sherd_mesh *mesh = paper_mesh(&p, texts[i][0]);
        CHECK_TEXT(sherd_mesh_text(mesh), texts[i][1]);
        CHECK(paper_mesh(&p, sherd_mesh_text(mesh)) == mesh);
    }
    CHECK(paper_mesh(&p, "2x4") != paper_mesh(&p, "4x2"));
    CHECK(paper_mesh(&p, "x=2") != paper_mesh(&p, "y=2"));
    CHECK(paper_mesh(&p, "x=2@2,3") != paper_mesh(&p, "x=2@3,2"));
    paper_close(&p);
}

/* Text, column of the error, a part of what was expected. */
static void bad_text_names_the_column(void)
{
    static const struct {
        const char *text;
        int column;
        const char *expected;
    } cases[] = {
        {"", 1, "a mesh"},
        {"x", 2, "= and an extent"},
        {"x=", 3, "extent >= 1"},
        {"x=0", 3, "extent >= 1"},
        {"2x", 3, "extent >= 1"},
        {"2x0", 3, "extent >= 1"},
        {"2*2", 2, "end"},
        {"x=2,", 5, "axis name"},
        {"x=2,x=2", 5, "new axis"},
        {"x=2 y=2", 5, "end"},
        {"-2", 1, "a mesh"},
        {"x=2@", 5, "rank"},
        {"x=2@0", 6, "2 ranks"},
        {"x=2@0,", 7, "rank"},
        {"x=2@0,9", 7, "0 to 7"},
        {"x=2@0,1,2", 8, "end"},
        {"x=2@0,1,", 8, "end"},
        {"x=99@0", 3, "world has (8)"},
        {"2x2x3", 5, "world has (8)"},
        {"2x4611686018427387903", 3, "world has (8)"},
        {"x=3@1,0, 1", 10, "1 is there already"},
        {"x=2@1", 6, "2 ranks"},
        {"1x1x1x1x1x1x1x1x1", 17, "at most 8"},
        {"x=5000000000000000000", 3, "extent"},
        {"abcdefghijklmnopqrstuvwxyzabcdefg=2", 1, "31 letters"},
    };
    paper p;

    paper_open(&p, 8);
    for (int i = 0; i < LEN(cases); i++) {
        const sherd_mesh *mesh = (const sherd_mesh *)(uintptr_t)1;
        char column[32];
        snprintf(column, sizeof column, "column %d of \"", cases[i].column);
        CHECK_EQ(sherd__mesh_read(&mesh, &p.space, cases[i].text), SHERD_EINVAL);
        CHECK(mesh == NULL);
        CHECK_EQ(p.diag.column, cases[i].column);
        CHECK(p.diag.source == cases[i].text);
        if (!CHECK(strstr(p.diag.text, column)) || !CHECK(strstr(p.diag.text, cases[i].expected)) ||
            !CHECK(strstr(p.diag.text, "sherd_mesh_parse: ") == p.diag.text))
            fprintf(stderr, "\"%s\": %s\n", cases[i].text, p.diag.text);
    }
    paper_close(&p);
}

/* A mesh of many ranks with a short list takes no memory for the ranks that are not there. */
static void a_list_that_is_short_costs_little(void)
{
    const sherd_mesh *mesh;
    paper p;

    paper_open(&p, 2147483647);
    CHECK_EQ(sherd__mesh_read(&mesh, &p.space, "x=2147483647@5,4,3"), SHERD_EINVAL);
    CHECK_EQ(p.diag.column, 19);
    CHECK_EQ(sherd__mesh_read(&mesh, &p.space, "x=2147483647,y=2"), SHERD_EINVAL);
    CHECK_EQ(p.diag.column, 16);
    CHECK_OK(sherd__mesh_read(&mesh, &p.space, "x=2147483647"));
    paper_close(&p);
}

static void bad_arguments_are_refused(void)
{
    static const int64_t two[] = {2, 2}, zero[] = {2, 0}, wide[] = {3, 3},
                         huge[] = {(int64_t)1 << 40, (int64_t)1 << 40}, nine[9] = {1};
    static const char *const twice[] = {"x", "x"}, *const empty[] = {"x", ""},
                             *const odd[] = {"x", "1y"}, *const blank[] = {" x", "y"},
                             *const none[] = {"x", NULL};
    static const int same[] = {0, 1, 1, 2}, outside[] = {0, 1, 2, 8}, negative[] = {0, -1, 2, 3};
    const sherd_mesh *mesh;
    paper p;

    paper_open(&p, 8);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 0, two, NULL, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 9, nine, NULL, NULL), SHERD_ELIMIT);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, zero, NULL, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, wide, NULL, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, huge, NULL, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, twice, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, empty, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, odd, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, blank, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, none, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, NULL, same), SHERD_EINVAL);
    CHECK(strstr(p.diag.text, "rank 1 is used twice"));
    CHECK_EQ(p.diag.column, 0);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, NULL, outside), SHERD_EINVAL);
    CHECK_EQ(sherd__mesh_make(&mesh, &p.space, 2, two, NULL, negative), SHERD_EINVAL);
    CHECK(mesh == NULL);
    CHECK_EQ(p.space.meshes.count, 0);
    paper_close(&p);
}

static void coordinates_are_row_major(void)
{
    paper p;
    int64_t at[SHERD_MAX_AXES];

    paper_open(&p, 24);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=3,z=4");
    CHECK_EQ(sherd_mesh_ranks(mesh), 24);
    for (int rank = 0; rank < 24; rank++) {
        CHECK(sherd_mesh_coordinate(mesh, rank, at));
        CHECK_EQ(at[0] * 12 + at[1] * 4 + at[2], rank);
        CHECK_EQ(sherd__mesh_rank_at(mesh, at), rank);
    }
    CHECK(!sherd_mesh_coordinate(mesh, 24, at));
    CHECK(!sherd_mesh_coordinate(mesh, -1, at));
    const sherd_mesh *listed = paper_mesh(&p, "x=2,y=2@7,5,0,23");
    CHECK(sherd_mesh_coordinate(listed, 23, at));
    CHECK_EQ(at[0], 1);
    CHECK_EQ(at[1], 1);
    CHECK(sherd_mesh_coordinate(listed, 5, at));
    CHECK_EQ(at[0] * 2 + at[1], 1);
    CHECK_EQ(sherd__mesh_rank_at(listed, at), 5);
    CHECK(!sherd_mesh_coordinate(listed, 1, at));
    CHECK_EQ(sherd_mesh_extent(mesh, 1), 3);
    CHECK_EQ(sherd_mesh_extent(mesh, 3), 0);
    CHECK_TEXT(sherd_mesh_axis_name(mesh, 2), "z");
    CHECK_TEXT(sherd_mesh_axis_name(mesh, -1), "");
    CHECK_EQ(sherd_mesh_find_axis(mesh, "y"), 1);
    CHECK_EQ(sherd_mesh_find_axis(mesh, "w"), -1);
    paper_close(&p);
}

static void a_sub_mesh_lies_on_its_root(void)
{
    static const char *const zx[] = {"z", "x"}, *const x[] = {"x"}, *const all[] = {"x", "y", "z"},
                             *const none[] = {"w"}, *const twice[] = {"x", "x"};
    const sherd_mesh *sub, *again, *one;
    int64_t at[SHERD_MAX_AXES];
    paper p;

    paper_open(&p, 24);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=3,z=4");
    CHECK_OK(sherd_mesh_slice(&sub, mesh, 2, zx));
    CHECK_OK(sherd_mesh_slice(&again, mesh, 2, zx));
    CHECK(sub == again);
    CHECK(sub != mesh && sherd_mesh_root(sub) == mesh && sherd_mesh_root(mesh) == mesh);
    CHECK_EQ(sherd_mesh_axes(sub), 2);
    CHECK_EQ(sherd_mesh_ranks(sub), 8);
    CHECK_EQ(sherd__mesh_axis_bits(sub), 5);
    CHECK_TEXT(sherd_mesh_text(sub), "z=4,x=2");
    CHECK(sherd_mesh_coordinate(sub, 23, at));
    CHECK_EQ(at[0], 3);
    CHECK_EQ(at[1], 1);
    CHECK_OK(sherd_mesh_slice(&one, sub, 1, x)); /* a part of a part */
    CHECK_OK(sherd_mesh_slice(&again, mesh, 1, x));
    CHECK(one == again);
    CHECK(paper_mesh(&p, "x=2") != one); /* a root of two ranks is another mesh */
    CHECK_OK(sherd_mesh_slice(&again, mesh, 3, all));
    CHECK(again == mesh);
    CHECK_EQ(sherd_mesh_slice(&again, mesh, 1, none), SHERD_EINVAL);
    CHECK(again == NULL);
    CHECK_EQ(sherd_mesh_slice(&again, mesh, 2, twice), SHERD_EINVAL);
    CHECK_EQ(sherd_mesh_slice(&again, mesh, 0, x), SHERD_EINVAL);
    CHECK_EQ(sherd_mesh_slice(&again, sub, 3, all), SHERD_EINVAL);
    paper_close(&p);
}

static void hashes_are_of_content(void)
{
    paper p, q;

    paper_open(&p, 8);
    paper_open(&q, 8);
    CHECK_EQ(paper_mesh(&p, "2x4")->hash, paper_mesh(&q, "a0=2,a1=4")->hash);
    CHECK(paper_mesh(&p, "2x4")->hash != paper_mesh(&q, "4x2")->hash);
    CHECK(paper_mesh(&p, "x=2@2,3")->hash != paper_mesh(&q, "x=2")->hash);
    paper_close(&p);
    paper_close(&q);
}

static const check_test tests[] = {
    {TEST(text_comes_back)},
    {TEST(bad_text_names_the_column)},
    {TEST(a_list_that_is_short_costs_little)},
    {TEST(bad_arguments_are_refused)},
    {TEST(coordinates_are_row_major)},
    {TEST(a_sub_mesh_lies_on_its_root)},
    {TEST(hashes_are_of_content)},
};
CHECK_MAIN(tests)
