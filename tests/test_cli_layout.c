/* SPDX-License-Identifier: Apache-2.0 */
/* sherd layout: boxes of all ranks as JSON and as a table, which ranks are shown, and every way to
 * be refused. */
#define CHECK_PURE
#include "check.h"
#include "program.h"
#include "cli.h"

#include "cases.h"

/* One rank of an answer. */
static void check_box(const json_t *o, int i, const char *expected)
{
    CHECK(is_json(json_array_get(json_object_get(o, "ranks"), (size_t)i), expected));
}

/* 5 rows over 2x2, nested: 2,1,1,1. */
static void nested_shards(void)
{
    json_t *o = answer_of("layout --mesh x=2,y=2 --shape 5x3 --placements S(0)S(0)");
    char keys[64];

    keys_of(o, keys, sizeof keys);
    CHECK_TEXT(keys, "layout ranks");
    CHECK_TEXT(text(o, "layout"), "[5(x,y),3] on (x=2,y=2)");
    CHECK_EQ(json_array_size(json_object_get(o, "ranks")), 4);
    check_box(o, 0, "{\"rank\":0,\"coordinate\":[0,0],\"offset\":[0,0],\"size\":[2,3]}");
    check_box(o, 1, "{\"rank\":1,\"coordinate\":[0,1],\"offset\":[2,0],\"size\":[1,3]}");
    check_box(o, 2, "{\"rank\":2,\"coordinate\":[1,0],\"offset\":[3,0],\"size\":[1,3]}");
    check_box(o, 3, "{\"rank\":3,\"coordinate\":[1,1],\"offset\":[4,0],\"size\":[1,3]}");
    json_decref(o);
}

/* 5 rows on 4 ranks: 2,2,1,0; the empty shard begins where it lies. */
static void an_empty_shard_begins_where_it_lies(void)
{
    json_t *o = answer_of("layout --mesh 4 --shape 5 --placements S(0)");

    check_box(o, 2, "{\"rank\":2,\"coordinate\":[2],\"offset\":[4],\"size\":[1]}");
    check_box(o, 3, "{\"rank\":3,\"coordinate\":[3],\"offset\":[5],\"size\":[0]}");
    json_decref(o);
    o = answer_of("layout --mesh 3 --shape 5 --placements S(0) --cuts 0:4,0,1");
    check_box(o, 1, "{\"rank\":1,\"coordinate\":[1],\"offset\":[4],\"size\":[0]}");
    json_decref(o);
}

static void pending_axes_change_no_box(void)
{
    json_t *o = answer_of("layout --mesh x=2,y=2 --shape 4 --placements P(max)S(0)");

    CHECK_TEXT(text(o, "layout"), "[4(y)] P(max:x) on (x=2,y=2)");
    check_box(o, 3, "{\"rank\":3,\"coordinate\":[1,1],\"offset\":[2],\"size\":[2]}");
    check_box(o, 1, "{\"rank\":1,\"coordinate\":[0,1],\"offset\":[2],\"size\":[2]}");
    json_decref(o);
    o = answer_of("layout --mesh 2 --shape scalar --placements P");
    check_box(o, 1, "{\"rank\":1,\"coordinate\":[1],\"offset\":[],\"size\":[]}");
    json_decref(o);
}

/* Ranks ascend whatever the mesh's order is; both ways of writing a shard order are read. */
static void ranks_ascend(void)
{
    json_t *o = answer_of("layout --mesh x=2,y=2@9,3,5,1 --shape 4 --placements S(0)[1]S(0)[0]");

    CHECK_EQ(json_array_size(json_object_get(o, "ranks")), 4);
    check_box(o, 0, "{\"rank\":1,\"coordinate\":[1,1],\"offset\":[3],\"size\":[1]}");
    check_box(o, 1, "{\"rank\":3,\"coordinate\":[0,1],\"offset\":[2],\"size\":[1]}");
    check_box(o, 2, "{\"rank\":5,\"coordinate\":[1,0],\"offset\":[1],\"size\":[1]}");
    check_box(o, 3, "{\"rank\":9,\"coordinate\":[0,0],\"offset\":[0],\"size\":[1]}");
    json_decref(o);
    o = answer_of("layout --mesh x=2,y=2@9,3,5,1 --shape 4 --placements _S(0,2)S(0) --ranks 2-5");
    CHECK_TEXT(text(o, "layout"), "[4(y,x)] on (x=2,y=2@9,3,5,1)");
    CHECK_EQ(json_array_size(json_object_get(o, "ranks")), 2);
    check_box(o, 0, "{\"rank\":3,\"coordinate\":[0,1],\"offset\":[2],\"size\":[1]}");
    json_decref(o);
}

static void many_ranks_are_shown_in_part(void)
{
    json_t *o = answer_of("layout --mesh 128x128x64 --shape 65536x4096 --placements S(0)RS(1)"
                          " --ranks 1048575-1048575");

    check_box(
        o, 0,
        "{\"rank\":1048575,\"coordinate\":[127,127,63],\"offset\":[65024,4032],\"size\":[512,64]}");
    json_decref(o);
    o = answer_of("layout --mesh 64x64 --shape 8 --placements RR --ranks 7");
    CHECK_EQ(json_array_size(json_object_get(o, "ranks")), 1);
    json_decref(o);
}

static void the_table_has_a_line_a_rank(void)
{
    CHECK_TEXT(sherd("layout --mesh x=2,y=2 --shape 5x3 --placements S(0)R")->out,
               "[5(x),3] on (x=2,y=2)\n\n"
               "rank  coordinate  elements  box\n"
               "   0  0,0                9  [0,3) x [0,3)\n"
               "   1  0,1                9  [0,3) x [0,3)\n"
               "   2  1,0                6  [3,5) x [0,3)\n"
               "   3  1,1                6  [3,5) x [0,3)\n");
}

static void lines_of_a_case_file(void)
{
    const program_end *end =
        cases("layout --mesh 2", "{\"id\":1,\"shape\":\"4\",\"placements\":\"S(0)\"}\n"
                                 "{\"id\":2,\"shape\":\"4\",\"placements\":\"S(0)\","
                                 "\"cuts\":\"0:4\"}\n"
                                 "{\"shape\":\"4\",\"placements\":\"R\",\"dtype\":\"f32\"}\n"
                                 "{\"shape\":\"4\",\"placements\":\"R\",\"ranks\":\"1-x\"}\n"
                                 "{\"shape\":\"12\",\"placements\":\"_S(0,3)\"}\n");
    static const struct {
        const char *key;
        int column;
        const char *part;
    } wrong[] = {
        {"cuts", 4, "expected"},
        {"dtype", 0, "unknown key"},
        {"ranks", 3, "a number"},
        {"placements", 1, "order"},
    };
    char copy[PROGRAM_TEXT];

    memcpy(copy, end->out, sizeof copy);
    CHECK_EQ(end->status, 1);
    CHECK_EQ(program_lines(copy), 5);
    json_t *o = line_of(copy, 0);
    CHECK_EQ(whole(o, "id"), 1);
    json_decref(o);
    for (int i = 0; i < LEN(wrong); i++) {
        o = line_of(copy, i + 1);
        check_error(o, wrong[i].key, wrong[i].column, wrong[i].part);
        json_decref(o);
    }
}

static void refusals(void)
{
    static const refusal list[] = {
        {"layout", 2, "--mesh: mesh is missing"},
        {"layout --mesh 2 --shape 4", 2, "--placements: placements is missing"},
        {"layout --mesh 2 --shape 4 --placements S(0)S(0)", 2, "--placements: column 5"},
        {"layout --mesh 2 --shape 4 --placements S(0) --cuts 0:1,2", 2, "--cuts: column"},
        {"layout --mesh 2 --shape 4 --placements S(0) --ranks 2-1", 2, "--ranks: column 3"},
        {"layout --mesh 2 --shape 4 --placements S(0) --ranks 0-1x", 2, "--ranks: column 4"},
        {"layout --mesh 2 --shape 4 --placements S(0) --ranks 2-9", 1, "none of these ranks"},
        {"layout --mesh 2 --shape 4 --placements S(0) --ranks 1-7", 1,
         "the mesh (a0=2) has no rank 7: its last one is 1"},
        {"layout --mesh x=2@3,1 --shape 4 --placements S(0) --ranks 1-4", 1,
         "has no rank 4: its last one is 3"},
        {"layout --mesh 64x65 --shape 4 --placements RR", 1, "--ranks: the mesh has 4160 ranks"},
        {"layout --mesh 2048x1024 --shape 4 --placements RR --ranks 0-2000000", 1,
         "at most 1048576"},
        {"layout --from R", 2, "there is no option \"--from\""},
    };

    for (int i = 0; i < LEN(list); i++)
        check_refusal(&list[i]);
}

static void memory_may_be_short_anywhere(void)
{
    static const char line[] =
        "{\"mesh\":\"2x2@3,2,1,0\",\"shape\":\"9x7\",\"placements\":\"S(0)P\","
        "\"cuts\":\"0:4,5\"}";
    cli_case c = {.command = &cli_layout_command};
    cli_verdict verdict = CLI_REFUSED;
    int n = 0;

    while (verdict != CLI_GOOD && ++n < 1000) {
        c.fail_allocation = n;
        char *answer = cli_case_answer(&c, line, strlen(line), &verdict);
        CHECK(answer && (verdict == CLI_GOOD || strstr(answer, "out of memory")));
        free(answer);
    }
    CHECK(verdict == CLI_GOOD && n > 5);
}

static const check_test tests[] = {
    {TEST(nested_shards)},
    {TEST(an_empty_shard_begins_where_it_lies)},
    {TEST(pending_axes_change_no_box)},
    {TEST(ranks_ascend)},
    {TEST(many_ranks_are_shown_in_part)},
    {TEST(the_table_has_a_line_a_rank)},
    {TEST(lines_of_a_case_file)},
    {TEST(refusals)},
    {TEST(memory_may_be_short_anywhere)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
