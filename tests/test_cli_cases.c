/* SPDX-License-Identifier: Apache-2.0 */
/* Case files, by the example of sherd plan: good and bad lines, exit statuses, and too little
 * memory anywhere. */
#define CHECK_PURE
#include "check.h"
#include "program.h"
#include "cli.h"

#include "cases.h"

#define GOOD "\"from\":\"S(0)\",\"to\":\"R\""

static void good_and_bad_lines_are_answered_in_their_places(void)
{
    const program_end *end =
        cases("plan --mesh 4 --shape 8x6 --dtype f64",
              "{\"id\":1," GOOD "}\n"
              "\n  \t\n"
              "{\"id\":\"two\",\"from\":\"S(2)\",\"to\":\"R\"}\n"
              "{\"id\":[3],\"frm\":\"R\"," GOOD "}\n"
              "{\"from\":\"R\",\"to\":7}\n"
              "{\"from\":\"R\"}\n"
              "not json\n"
              "[1]\n"
              "{\"mesh\":\"4\",\"mesh\":\"4\"}\n"
              "{" GOOD ",\"from-cuts\":\"0:1,2,3,4\"}\n"
              "{" GOOD ",\"max-bytes\":\"7\"}\n"
              "{\"from\":\"S(0)\",\"to\":\"P\"}\n"
              "{" GOOD ",\"json\":\"\"}\n"
              "{\"mesh\":\"x=2,y=2\",\"to\":\"RS(1)\",\"from\":\"RR\",\"id\":{\"a\":null}}");
    char copy[PROGRAM_TEXT];
    json_t *o;

    memcpy(copy, end->out, sizeof copy);
    CHECK_EQ(end->status, 1);
    CHECK_TEXT(end->err, "");
    CHECK_EQ(program_lines(copy), 13);
    o = line_of(copy, 0);
    CHECK(is_json(json_object_get(o, "id"), "1"));
    CHECK_TEXT(text(o, "from"), "f64[8(a0),6] on (a0=4)");
    json_decref(o);
    static const struct {
        const char *key;
        int column;
        const char *part;
    } wrong[] = {
        {"from", 3, "expected a dim of the tensor"},
        {"frm", 0, "unknown key"},
        {"to", 0, "expected a text"},
        {"to", 0, "missing"},
        {NULL, 2, "JSON"},
        {NULL, 1, "expected an object"},
        {NULL, 0, "duplicate"},
        {"from-cuts", 3, "add up to 8"},
        {"max-bytes", 0, "max_bytes 7"},
        {"to", 0, "only a replicated axis can become pending"},
        {"json", 0, "unknown key"},
    };
    for (int i = 0; i < LEN(wrong); i++) {
        o = line_of(copy, 1 + i);
        int column = wrong[i].column;
        if (!wrong[i].key && i != 5) /* where jansson gave up is its own affair */
            column = (int)json_integer_value(json_object_get(o, "column"));
        check_error(o, wrong[i].key, column, wrong[i].part);
        json_decref(o);
    }
    o = line_of(copy, 1);
    CHECK(is_json(json_object_get(o, "id"), "\"two\""));
    json_decref(o);
    o = line_of(copy, 12);
    CHECK(is_json(json_object_get(o, "id"), "{\"a\":null}"));
    CHECK_TEXT(text(o, "trace"), "RR->RS(1)");
    json_decref(o);
}

static void case_files_have_three_exit_statuses(void)
{
    CHECK_EQ(cases("plan --mesh 4 --shape 8", "{" GOOD "}\n\n{" GOOD "}\n")->status, 0);
    CHECK_EQ(cases("plan --mesh 4 --shape 8", "")->status, 0);
    CHECK_EQ(cases("plan --mesh 4 --shape 8", "{" GOOD "}\n{}\n")->status, 1);
    CHECK_EQ(sherd("plan --cases /nowhere/to/be/found")->status, 2);
    CHECK_EQ(sherd("plan --cases /proc/self")->status, 2); /* a folder */
    CHECK_EQ(sherd("plan --cases - --mesh 4")->status, 0); /* nothing comes */
}

/* No line knows of another: in any order the same. */
static void lines_know_nothing_of_each_other(void)
{
    static const char *const lines[] = {
        "{\"from\":\"S(0)S(1)\",\"to\":\"S(1)S(0)\"}\n",
        "{\"from\":\"S(0)[1]S(0)[0]\",\"to\":\"RS(1)\",\"planner\":\"graph\"}\n",
        "{\"from\":\"bad\",\"to\":\"RR\"}\n",
        "{\"from\":\"PP\",\"to\":\"S(0)R\",\"planner\":\"greedy\"}\n",
    };
    char one[PROGRAM_TEXT], together[1024] = "", all[PROGRAM_TEXT] = "";

    for (int i = LEN(lines) - 1; i >= 0; i--) {
        strcat(together, lines[i]);
        const program_end *end = cases("plan --mesh 2x2 --shape 5x7", lines[i]);
        memcpy(one, end->out, sizeof one);
        CHECK(strlen(all) + strlen(one) < sizeof all);
        strcat(all, one);
    }
    CHECK_TEXT(cases("plan --mesh 2x2 --shape 5x7", together)->out, all);
}

static void standard_input_is_a_case_file(void)
{
    char line[PROGRAM_TEXT] = "";
    FILE *from = popen("echo '{\"id\":9,\"from\":\"S(0)\",\"to\":\"R\"}' | " SHERD
                       " plan --mesh 2 --shape 4 --cases -",
                       "r");

    if (!CHECK(from != NULL))
        return;
    CHECK(fgets(line, sizeof line, from) != NULL);
    CHECK_EQ(pclose(from), 0);
    json_t *o = parsed(line);
    CHECK_EQ(whole(o, "id"), 9);
    CHECK_EQ(whole(o, "bytes_recv_max"), 8);
    json_decref(o);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static const char hungry[] =
    "{\"mesh\":\"2x2@3,2,1,0\",\"shape\":\"9x7\",\"from\":\"S(0)P\","
    "\"to\":\"RS(1)\",\"from-cuts\":\"0:4,5\",\"price\":\"" SHERD_SOURCE_DIR
    "/docs/prices/8-gpus-a-node.txt\",\"flattened\":\"a0,a1\"}";

/* The n-th allocation of the world fails, for every n: an error that says so, until it goes
 * through. */
static void memory_may_be_short_anywhere_in_the_world(void)
{
    cli_case c = {.command = &cli_plan_command};
    cli_verdict verdict = CLI_REFUSED;
    int n = 0, plain = 0;

    while (verdict != CLI_GOOD && ++n < 5000) {
        c.fail_allocation = n;
        char *line = cli_case_answer(&c, hungry, strlen(hungry), &verdict);
        plain += line && verdict != CLI_GOOD && strstr(line, "out of memory");
        CHECK(line != NULL && (verdict == CLI_GOOD || strstr(line, "\"error\"")));
        free(line);
    }
    CHECK_EQ(verdict, CLI_GOOD);
    CHECK(n > 10 && plain == n - 1);
}

/* jansson's allocations fail, from the n-th on. */
static int64_t rations;

static void *rationed(size_t bytes)
{
    return --rations < 0 ? NULL : malloc(bytes);
}

static void memory_may_be_short_anywhere_in_json(void)
{
    const cli_case c = {.command = &cli_plan_command};
    cli_verdict verdict = CLI_REFUSED;
    int n = 0;

    json_set_alloc_funcs(rationed, free);
    for (; verdict != CLI_GOOD && n < 5000; n++) {
        rations = n;
        char *line = cli_case_answer(&c, hungry, strlen(hungry), &verdict);
        CHECK((verdict == CLI_GOOD) <= (line != NULL));
        free(line);
    }
    json_set_alloc_funcs(malloc, free);
    CHECK_EQ(verdict, CLI_GOOD);
    CHECK(n > 50);
}

static const check_test tests[] = {
    {TEST(good_and_bad_lines_are_answered_in_their_places)},
    {TEST(case_files_have_three_exit_statuses)},
    {TEST(lines_know_nothing_of_each_other)},
    {TEST(standard_input_is_a_case_file)},
    {TEST(memory_may_be_short_anywhere_in_the_world)},
    {TEST(memory_may_be_short_anywhere_in_json)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
