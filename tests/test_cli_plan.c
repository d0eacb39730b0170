/* SPDX-License-Identifier: Apache-2.0 */
/* sherd plan: keys and values, the table, cuts that stay, and every way to be refused. */
#define CHECK_PURE
#include "check.h"
#include "program.h"
#include "cli.h"

#define MOVE "plan --mesh x=3 --shape 7x5 --from S(0) --to S(1)"

/* ---- what it says ---------------------------------------------------------------------------- */

static void every_key_is_there_in_its_order(void)
{
    json_t *o = answer_of(MOVE);
    char keys[1024];

    keys_of(o, keys, sizeof keys);
    CHECK_TEXT(keys, "planner price from to trace steps bytes_recv_max bytes_recv_total "
                     "bytes_send_max lower_bound_max lower_bound_total bound ratio peak_bytes "
                     "staging_bytes seconds cost proven others");
    keys_of(json_array_get(json_object_get(o, "steps"), 0), keys, sizeof keys);
    CHECK_TEXT(keys, "op axes from to bytes_recv_max bytes_recv_total seconds");
    keys_of(json_array_get(json_object_get(o, "others"), 0), keys, sizeof keys);
    CHECK_TEXT(keys, "planner seconds bytes_recv_max trace");
    json_decref(o);
}

/* 7x5 over 3 ranks: rows 3,3,1 become columns 2,2,1. Rank 0 lacks 4x2 elements, rank 1 (3+1)x2,
 * rank 2 6x1. */
static void rows_become_columns(void)
{
    json_t *o = answer_of(MOVE), *step = json_array_get(json_object_get(o, "steps"), 0);

    CHECK_TEXT(text(o, "planner"), "exact");
    CHECK_TEXT(text(o, "price"), "arena");
    CHECK_TEXT(text(o, "from"), "f32[7(x),5] on (x=3)");
    CHECK_TEXT(text(o, "to"), "f32[7,5(x)] on (x=3)");
    CHECK_TEXT(text(o, "trace"), "S(0)->S(1)");
    CHECK_EQ(json_array_size(json_object_get(o, "steps")), 1);
    CHECK_TEXT(text(step, "op"), "all_to_all");
    CHECK(is_json(json_object_get(step, "axes"), "[\"x\"]"));
    CHECK_TEXT(text(step, "from"), "S(0)");
    CHECK_TEXT(text(step, "to"), "S(1)");
    CHECK_EQ(whole(step, "bytes_recv_max"), 32);
    CHECK_EQ(whole(step, "bytes_recv_total"), 88);
    CHECK_EQ(whole(o, "bytes_recv_max"), 32);
    CHECK_EQ(whole(o, "bytes_recv_total"), 88);
    CHECK_EQ(whole(o, "bytes_send_max"), 36); /* rank 0: 3x3 elements */
    CHECK_EQ(whole(o, "lower_bound_max"), 32);
    CHECK_EQ(whole(o, "lower_bound_total"), 88);
    CHECK_TEXT(text(o, "bound"), "proven");
    CHECK_NEAR(json_number_value(json_object_get(o, "ratio")), 1, 0);
    CHECK_EQ(whole(o, "peak_bytes"), 4 * (15 + 14)); /* ranks 0 and 1 */
    CHECK_EQ(whole(o, "staging_bytes"), 0);
    CHECK(json_number_value(json_object_get(o, "seconds")) > 0);
    CHECK_NEAR(json_number_value(json_object_get(o, "cost")),
               json_number_value(json_object_get(o, "seconds")), 0);
    CHECK(json_is_true(json_object_get(o, "proven")));
    CHECK_EQ(json_array_size(json_object_get(o, "others")), 2);
    json_decref(o);
}

/* Nor is there one where a reduction begins, or goes on. */
static void pending_sums_have_no_bound_of_a_rank(void)
{
    static const char *const moves[] = {"--from R --to P", "--from P --to P"};
    char line[128];

    for (int i = 0; i < LEN(moves); i++) {
        snprintf(line, sizeof line, "plan --mesh 4 --shape 8 %s", moves[i]);
        json_t *o = answer_of(line);
        CHECK(json_is_null(json_object_get(o, "lower_bound_max")));
        CHECK_EQ(whole(o, "lower_bound_total"), 0);
        json_decref(o);
    }
}

/* The same number to the last digit. */
static void the_cost_of_exact_is_its_seconds(void)
{
    char line[128];

    for (int n = 1; n < 2000; n += 97) {
        snprintf(line, sizeof line, "plan --mesh 3 --shape %d --from S(0) --to R", n * n);
        json_t *o = answer_of(line);
        CHECK_EQ(json_number_value(json_object_get(o, "cost")),
                 json_number_value(json_object_get(o, "seconds")));
        json_decref(o);
    }
}

/* What is no UTF-8 in a file's name is no lack of memory. */
static void a_price_file_may_have_any_name(void)
{
    char path[64], line[192], shown[64];

    snprintf(path, sizeof path, "/tmp/sherd-price-%d-\xff\xc3", (int)getpid());
    snprintf(shown, sizeof shown, "/tmp/sherd-price-%d-??", (int)getpid());
    FILE *file = fopen(path, "we");
    if (!CHECK(file != NULL))
        return;
    fputs("* 1e-6 1e-11 0\n", file);
    fclose(file);
    snprintf(line, sizeof line, "plan --mesh 2 --shape 8 --from S(0) --to R --price %s", path);
    json_t *o = answer_of(line);
    CHECK_TEXT(text(o, "price"), shown);
    json_decref(o);
    CHECK_EQ(sherd(line)->status, 0);
    unlink(path);
}

static void nothing_to_do_is_one_state(void)
{
    json_t *o = answer_of("plan --mesh 2x2 --shape 8x8 --from S(0)R --to S(0)R");

    CHECK_TEXT(text(o, "trace"), "S(0)R");
    CHECK(is_json(json_object_get(o, "steps"), "[]"));
    CHECK_NEAR(json_number_value(json_object_get(o, "ratio")), 1, 0);
    CHECK_EQ(whole(o, "bytes_recv_total"), 0);
    json_decref(o);
}

/* 8 elements, P over 4: one addend each, all to all of them: k-2+T = 4-2+4 messages of an
 * element. */
static void a_pending_sum_has_a_total_bound_only(void)
{
    json_t *o = answer_of("plan --mesh 4 --shape 8 --dtype bf16 --from P --to R");

    CHECK(json_is_null(json_object_get(o, "lower_bound_max")));
    CHECK_EQ(whole(o, "lower_bound_total"), 6 * 8 * 2);
    CHECK_NEAR(json_number_value(json_object_get(o, "ratio")),
               (double)whole(o, "bytes_recv_total") / (6 * 8 * 2), 1e-12);
    CHECK_TEXT(text(o, "from"), "bf16[8] P(sum:a0) on (a0=4)");
    json_decref(o);
}

/* Ranks (0,0) and (0,1) hold everything and keep half of it each, yet greedy gathers on the way. */
static void the_ratio_is_null_where_only_the_bound_is_nothing(void)
{
    json_t *o = answer_of("plan --mesh 2x2 --shape 8x8 --from S(0)R --to S(0)[1]S(0)[0]"
                          " --from-cuts 0:8,0 --to-cuts 0:4,0,4,0 --planner greedy");

    CHECK_EQ(whole(o, "lower_bound_total"), 0);
    CHECK(whole(o, "bytes_recv_total") > 0);
    CHECK(json_is_null(json_object_get(o, "ratio")));
    json_decref(o);
}

/* Totals stop below 2^62, and then say so: what they stand for is not told by a ratio. */
static void totals_without_a_number_have_no_ratio(void)
{
    static const char move[] = "plan --mesh 4 --shape 4611686018427387903 --from S(0) --to R";
    json_t *o = answer_of(move);
    const program_end *end;

    CHECK_EQ(whole(o, "bytes_recv_total"), INT64_C(4611686018427387903));
    CHECK_EQ(whole(o, "lower_bound_total"), INT64_C(4611686018427387903));
    CHECK(json_is_null(json_object_get(o, "ratio")));
    json_decref(o);
    end = sherd(move);
    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "4 EiB or more in all; how many times that the plan receives is not "
                           "known\n") != NULL);
    CHECK(strstr(end->out, "time      53 days or more under price arena\n") != NULL);
    o = answer_of("plan --mesh 4 --shape 4611686018427387903 --dtype u8 --from S(0) --to S(0)");
    CHECK_NEAR(json_number_value(json_object_get(o, "ratio")), 1, 0);
    json_decref(o);
}

/* State by state the steps lead from one end of the trace to the other. */
static void steps_are_the_trace(void)
{
    static const char *const moves[] = {
        "plan --mesh 2x4 --shape 8x8 --from S(0)R --to RS(1) --planner greedy",
        "plan --mesh 2x2x2 --shape 5x6x7 --from S(0)S(1)S(2) --to S(2)S(1)S(0) --planner graph",
        "plan --mesh 2x2 --shape 8x8 --from RS(1) --to P(sum)S(0)",
        "plan --mesh 2x2 --shape 8x8 --from S(0)P --to RR --planner greedy",
    };

    for (int i = 0; i < LEN(moves); i++) {
        json_t *o = answer_of(moves[i]), *steps = json_object_get(o, "steps");
        char trace[1024] = "", last[128] = "";
        for (size_t s = 0; s < json_array_size(steps); s++) {
            const json_t *step = json_array_get(steps, s);
            if (s > 0)
                CHECK_TEXT(text(step, "from"), last);
            snprintf(last, sizeof last, "%s", text(step, "to"));
            snprintf(trace + strlen(trace), sizeof trace - strlen(trace), "%s%s%s",
                     s ? "" : text(step, "from"), "->", last);
        }
        CHECK_TEXT(trace, text(o, "trace"));
        CHECK(json_array_size(steps) > 0);
        json_decref(o);
    }
}

static void merged_steps_are_written_with_a_long_arrow(void)
{
    json_t *o = answer_of("plan --mesh x=2,y=2 --shape 5x3 --from S(0)S(0) --to RR"
                          " --planner greedy --flattened x,y");

    CHECK_TEXT(text(o, "trace"), "S(0)[0]S(0)[1]-->RR");
    CHECK_EQ(json_array_size(json_object_get(o, "steps")), 1);
    json_decref(o);
}

static void costs_are_in_the_planner_s_own_measure(void)
{
    json_t *o = answer_of("plan --mesh 2x4 --shape 8x8 --from S(0)R --to RR --planner graph"
                          " --weights int");
    json_t *p = answer_of("plan --mesh 2x4 --shape 8x8 --from S(0)R --to RR --planner graph"
                          " --weights 40,10,23,20,0");

    json_t *large = answer_of("plan --mesh 2x2 --shape 8x8 --from S(0)S(1) --to S(1)S(0) --planner "
                              "graph --weights 4611686018427387903,4611686018427387903,"
                              "4611686018427387903,4611686018427387903,4611686018427387903");

    CHECK_EQ(whole(o, "cost"), 2); /* one all-gather */
    CHECK_EQ(whole(p, "cost"), 23);
    CHECK_EQ(json_array_size(json_object_get(large, "steps")), 3);
    CHECK_NEAR(json_number_value(json_object_get(large, "cost")), 3 * 0x1p62, 0);
    CHECK(json_is_false(json_object_get(o, "proven")));
    json_decref(o);
    json_decref(p);
    json_decref(large);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void a_target_by_placements_keeps_cuts(void)
{
    static const char *const moves[][2] = {
        {"--from S(0)R --to S(0)S(1) --from-cuts 0:1,9", "f32[10(x:1,9),6(y)] on (x=2,y=2)"},
        {"--from S(0)R --to RS(0) --from-cuts 0:1,9", "f32[10(y),6] on (x=2,y=2)"},
        {"--from S(0)R --to S(0)R --from-cuts 0:1,9 --to-cuts 0:9,1", "f32[10(x:9,1),6] on "
                                                                      "(x=2,y=2)"},
        {"--from S(0)R --to S(0)R --from-cuts 0:1,9 --to-cuts 0:5,5", "f32[10(x),6] on (x=2,y=2)"},
        {"--from S(0)S(0) --to S(0)R --from-cuts 0:1,2,3,4", "f32[10(x),6] on (x=2,y=2)"},
        {"--from S(0)R --to S(0)R --from-cuts 0:1,9 --to-mesh x=2,y=2", "f32[10(x:1,9),6] on "
                                                                        "(x=2,y=2)"},
    };

    for (int i = 0; i < LEN(moves); i++) {
        char line[512];
        snprintf(line, sizeof line, "plan --mesh x=2,y=2 --shape 10x6 %s", moves[i][0]);
        json_t *o = answer_of(line);
        CHECK_TEXT(text(o, "to"), moves[i][1]);
        json_decref(o);
    }
}

/* Ranks 0 and 1 hold rows 4 and 3 of 7x5; ranks 2 and 3 get columns 3 and 2. All 35 elements
 * travel. */
static void two_meshes(void)
{
    json_t *o = answer_of("plan --mesh 2 --to-mesh x=2@2,3 --shape 7x5 --from S(0) --to S(1)");
    json_t *step = json_array_get(json_object_get(o, "steps"), 0);

    CHECK_EQ(whole(o, "bytes_recv_total"), 35 * 4);
    CHECK_EQ(whole(o, "bytes_recv_max"), 21 * 4);
    CHECK_EQ(whole(o, "bytes_send_max"), 20 * 4);
    CHECK_TEXT(text(o, "trace"), "[7(a0),5] on (a0=2)->[7,5(x)] on (x=2@2,3)");
    CHECK(is_json(json_object_get(step, "axes"), "[]"));
    CHECK_TEXT(text(step, "to"), "[7,5(x)] on (x=2@2,3)");
    CHECK(is_json(json_object_get(o, "others"), "[]"));
    json_decref(o);
}

static void a_million_ranks_are_planned(void)
{
    json_t *o = answer_of("plan --mesh 128x128x64 --shape 65536x65536x4096 --from S(0)S(1)S(2)"
                          " --to S(2)S(1)S(0)");

    CHECK_EQ(whole(o, "bytes_recv_max"), INT64_C(64) << 20);
    CHECK_EQ(whole(o, "bytes_recv_total"), whole(o, "lower_bound_total"));
    json_decref(o);
}

static void prices_change_seconds_and_are_named(void)
{
    json_t *a = answer_of(MOVE " --price torch");
    json_t *b = answer_of(MOVE " --price " SHERD_SOURCE_DIR "/docs/prices/8-gpus-a-node.txt");

    CHECK_TEXT(text(a, "price"), "torch");
    CHECK_TEXT(text(b, "price"), SHERD_SOURCE_DIR "/docs/prices/8-gpus-a-node.txt");
    CHECK(json_number_value(json_object_get(a, "seconds")) !=
          json_number_value(json_object_get(b, "seconds")));
    json_decref(a);
    json_decref(b);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void the_table_says_the_same(void)
{
    const program_end *end = sherd(MOVE);
    static const char *const parts[] = {
        "from      f32[7(x),5] on (x=3)\n",
        "all_to_all  x     S(0)  S(1)    32 B    88 B",
        "trace     S(0)->S(1)\n",
        "received  32 B a rank, 88 B in all\n",
        "bound     32 B a rank, 88 B in all; the plan receives 1 times that\n",
        "peak      116 B a rank\n",
        "proven the cheapest",
        "\ngreedy    ",
        "\ngraph     ",
    };

    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    for (int i = 0; i < LEN(parts); i++)
        if (!CHECK(strstr(end->out, parts[i]) != NULL))
            fprintf(stderr, "no %s in\n%s", parts[i], end->out);
    end = sherd("plan --mesh 2 --shape 4 --from R --to R");
    CHECK(strstr(end->out, "nothing to do") != NULL);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void every_option_says_where_it_is_wrong(void)
{
    static const refusal refusals[] = {
        {"plot", 2, "there is no command \"plot\""},
        {"help plot", 2, "there is no command"},
        {"plan", 2, "--mesh: mesh is missing"},
        {"plan --mesh", 2, "--mesh: expected MESH behind it"},
        {"plan --mesh --shape", 2, "--mesh: expected MESH behind it"},
        {"plan --mesh 2 --mesh 2", 2, "--mesh is given twice"},
        {"plan --json=1", 2, "--json takes no value"},
        {"plan --placements R", 2, "there is no option \"--placements\""},
        {"plan extra", 2, "there is no option \"extra\""},
        {MOVE " --mesh=2", 2, "twice"},
        {"plan --mesh 2y --shape 8 --from R --to R", 2, "--mesh: column 2 of \"2y\""},
        {"plan --mesh 2 --shape 8x --from R --to R", 2, "--shape: column 3"},
        {"plan --mesh 2 --shape 8 --from R", 2, "--to: to is missing"},
        {"plan --mesh 2 --shape 8 --from X --to R", 2, "--from: column 1"},
        {"plan --mesh 2 --shape 8 --from R --to RR", 2, "--to: column 2"},
        {"plan --mesh 2 --shape 8 --from S(0) --to R --from-cuts 0:4,5", 2, "--from-cuts: column"},
        {"plan --mesh 2 --shape 8 --from R --to S(0) --to-cuts 1:4", 2, "--to-cuts: column 1"},
        {MOVE " --dtype f99", 2, "--dtype: column 1 of \"f99\": expected a dtype"},
        {MOVE " --to-mesh q", 2, "--to-mesh: column 2"},
        {MOVE " --planner best", 2, "--planner: column 1 of \"best\": expected a planner"},
        {MOVE " --weights 1,2", 2, "--weights: column 4"},
        {MOVE " --weights 1,2,3,4,5,6", 2, "--weights: column 10"},
        {MOVE " --weights soon", 2, "--weights: column 1"},
        {MOVE " --per-host 0", 2, "--per-host: column 1"},
        {MOVE " --per-host 4x", 2, "--per-host: column 2"},
        {MOVE " --max-bytes -1", 2, "--max-bytes: column 1"},
        {MOVE " --flattened x,z", 2, "--flattened: column 3"},
        {MOVE " --flattened x,x", 2, "--flattened: column 3"},
        {MOVE " --flattened x;", 2, "--flattened: column 3"},
        {"plan --mesh 3 --shape 7 --dtype i64 --from P(avg) --to R", 1,
         "--dtype: [7] P(avg:a0) -> [7] on (a0=3): i64 has no average: cast it to a dtype with "
         "fractions first"},
        {"plan --mesh 3 --shape 7 --dtype bool --from R --to P(avg)", 1, "bool has no average"},
        {MOVE " --price /no/such/file", 2, "--price: \"/no/such/file\" can not be read"},
        {MOVE " --price /proc/self/exe", 2, "--price: \"/proc/self/exe\" is not a price file"},
        {MOVE " --price " SHERD_SOURCE_DIR "/LICENSE", 2, "--price: "},
        {MOVE " --max-bytes 100", 1, "--max-bytes: "},
        {"plan --mesh 2 --shape 8 --from R --to R --max-bytes 31", 1, "--max-bytes: "},
        {"plan --mesh 2 --shape 8 --from S(0) --to P", 1, "--to: "},
        {"plan --mesh 2 --to-mesh 4 --shape 8 --from R --to R --planner graph", 1, "--planner: "},
        {"plan --mesh 3000000000 --shape 8 --from R --to R", 2, "--mesh: column 1"},
    };

    for (int i = 0; i < LEN(refusals); i++)
        check_refusal(&refusals[i]);
}

/* What is cut short is cut between two letters, or shows that it was not. */
static void a_refusal_is_one_line_that_any_program_can_read(void)
{
    const program_end *end = sherd("plot\nted --mesh 2");
    char long_name[128];

    CHECK_EQ(program_lines(end->err), 1);
    CHECK(strstr(end->err, "there is no command \"plot ted\"") != NULL);
    memset(long_name, 'a', 99);
    snprintf(long_name + 99, sizeof long_name - 99, "\xC3\xA4\xC3\xA4");
    end = sherd(long_name);
    CHECK_EQ(end->status, 2);
    CHECK(strstr(end->err, "aaa?\"") != NULL && strchr(end->err, '\xC3') == NULL);
}

static void an_object_says_so_too(void)
{
    const program_end *end = sherd("plan --mesh 2 --shape 8 --from X --to R --json");
    json_t *o = parsed(end->out);

    CHECK_EQ(end->status, 2);
    check_error(o, "from", 1, "expected");
    json_decref(o);
}

static void help_describes_every_option(void)
{
    static const char *const options[] = {"--mesh",      "--to-mesh",   "--shape", "--dtype",
                                          "--from",      "--from-cuts", "--to",    "--to-cuts",
                                          "--planner",   "--weights",   "--price", "--per-host",
                                          "--flattened", "--max-bytes", "--json",  "--cases"};
    const program_end *end = sherd("help plan");

    CHECK_EQ(end->status, 0);
    for (int i = 0; i < LEN(options); i++)
        CHECK(strstr(end->out, options[i]) != NULL);
    CHECK(strstr(end->out, "--svg") == NULL);
    CHECK_EQ(sherd("plan --help")->status, 0);
    CHECK_EQ(sherd("help")->status, 0);
}

static void output_that_is_lost_is_a_failure(void)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    program p = program_start_to(SHERD " " MOVE, full);
    const program_end *end = program_wait(&p);

    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "standard output") != NULL);
    check_full(MOVE " --json", "plan");
    char line[128];
    int fd = memfd_create("cases", 0);
    CHECK_EQ(write(fd, "{}\n{}\n", 6), 6);
    snprintf(line, sizeof line, MOVE " --cases /proc/self/fd/%d", fd);
    check_full(line, "plan");
    close(fd);
}

static const check_test tests[] = {
    {TEST(every_key_is_there_in_its_order)},
    {TEST(rows_become_columns)},
    {TEST(nothing_to_do_is_one_state)},
    {TEST(pending_sums_have_no_bound_of_a_rank)},
    {TEST(the_cost_of_exact_is_its_seconds)},
    {TEST(a_price_file_may_have_any_name)},
    {TEST(a_pending_sum_has_a_total_bound_only)},
    {TEST(the_ratio_is_null_where_only_the_bound_is_nothing)},
    {TEST(totals_without_a_number_have_no_ratio)},
    {TEST(steps_are_the_trace)},
    {TEST(merged_steps_are_written_with_a_long_arrow)},
    {TEST(costs_are_in_the_planner_s_own_measure)},
    {TEST(a_target_by_placements_keeps_cuts)},
    {TEST(two_meshes)},
    {TEST(a_million_ranks_are_planned)},
    {TEST(prices_change_seconds_and_are_named)},
    {TEST(the_table_says_the_same)},
    {TEST(every_option_says_where_it_is_wrong)},
    {TEST(a_refusal_is_one_line_that_any_program_can_read)},
    {TEST(an_object_says_so_too)},
    {TEST(help_describes_every_option)},
    {TEST(output_that_is_lost_is_a_failure)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
