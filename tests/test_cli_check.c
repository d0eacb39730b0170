/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check: its data (a wrong element is found wherever it is, addends come to the value), and
 * the command with threads and processes on all dtypes.
 */
#define CHECK_PURE
#include "check.h"
#include "program.h"
#include "cli.h"

#include "cases.h"
#include "check_data.h"
#include "paper.h"

/* ---- the data -------------------------------------------------------------------------------- */

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                     SHERD_I64, SHERD_U8,  SHERD_BOOL, SHERD_I8};

/* What an element says, read by the definition of its dtype. */
static double decoded(sherd_dtype dtype, const void *at)
{
    uint16_t h;
    uint32_t bits;
    float f;

    memcpy(&h, at, 2);
    switch (dtype) {
    case SHERD_F64:
        return *(const double *)at;
    case SHERD_BF16:
        bits = (uint32_t)h << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    case SHERD_F16: {
        int exponent = h >> 10 & 31;
        double m = (h & 0x3ff) + (exponent ? 0x400 : 0);
        for (; exponent > 25; exponent--)
            m *= 2;
        for (; exponent > 0 && exponent < 25; exponent++)
            m /= 2;
        return h & 0x8000 ? -m : exponent ? m : 0;
    }
    case SHERD_I32:
        return *(const int32_t *)at;
    case SHERD_I64:
        return (double)*(const int64_t *)at;
    case SHERD_I8:
        return *(const int8_t *)at;
    case SHERD_U8:
    case SHERD_BOOL:
        return *(const uint8_t *)at;
    default:
        return (double)*(const float *)at;
    }
}

static void elements_are_what_they_stand_for(void)
{
    static const int64_t most[SHERD_DTYPES] = {
        [SHERD_F32] = 1 << 24,   [SHERD_F64] = INT64_C(1) << 52,
        [SHERD_BF16] = 256,      [SHERD_F16] = 2048,
        [SHERD_I32] = INT32_MAX, [SHERD_I64] = INT64_C(1) << 52,
        [SHERD_U8] = 255,        [SHERD_BOOL] = 1,
        [SHERD_I8] = 127};

    for (int i = 0; i < LEN(dtypes); i++) {
        int64_t end = most[dtypes[i]];
        bool has_sign = dtypes[i] != SHERD_U8 && dtypes[i] != SHERD_BOOL;
        for (int64_t v = 0; v <= end; v = v < 5000 ? v + 1 : v * 2 - 1) {
            double room = 0;
            cli_check_encode(dtypes[i], v, &room);
            CHECK_NEAR(decoded(dtypes[i], &room), (double)v, 0);
            if (!has_sign)
                continue;
            cli_check_encode(dtypes[i], -v, &room);
            CHECK_NEAR(decoded(dtypes[i], &room), -(double)v, 0);
        }
    }
}

/* All passes together carry the whole index, and no two indices look alike in all of them. */
static void passes_carry_the_whole_index(void)
{
    paper p;

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=2");
    const int64_t shapes[][2] = {{1, 1}, {16, 16}, {16, 17}, {2048, 1}, {2049, 1}, {0, 3}};
    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < LEN(dtypes); i++) {
            const sherd_layout *from = paper_placed(&p, mesh, 2, shapes[s], "S(0)S(1)");
            const sherd_layout *to = paper_placed(&p, mesh, 2, shapes[s], "RR");
            int64_t n = shapes[s][0] * shapes[s][1], at[SHERD_MAX_AXES] = {0};
            cli_check_data d;
            cli_check_fold fold;
            cli_check_data_of(&d, from, to, dtypes[i]);
            CHECK(cli_check_fold_of(&fold, &d, at));
            for (int64_t index = 0; index < n; index++) {
                int64_t sum = 0;
                for (int pass = 0; pass < d.passes; pass++)
                    sum += cli_check_value(&d, &fold, index, pass) << (pass * d.bits);
                CHECK_EQ(sum, index);
            }
            CHECK(n <= 1 || (n - 1) >> ((d.passes - 1) * d.bits) > 0);
        }
    paper_close(&p);
}

/* The addends of an element, added by another rule than the one that is tested, give the part of
 * the index. */
static void addends_come_to_the_value(void)
{
    static const char *const sources[] = {
        "PR",           "P(avg)R", "P(sum)P(avg)",        "P(avg)P(avg)",
        "P(min)P(min)", "P(max)R", "P(product)P(product)"};
    paper p;
    const int64_t shape[] = {23};

    paper_open(&p, 64);
    const sherd_mesh *meshes[] = {paper_mesh(&p, "x=2,y=3"), paper_mesh(&p, "x=7,y=5"),
                                  paper_mesh(&p, "x=64,y=1")};
    for (int m = 0; m < LEN(meshes); m++)
        for (int s = 0; s < LEN(sources); s++)
            for (int i = 0; i < 4;
                 i++) { /* dtypes with fractions: for them small is what matters */
                cli_check_data d;
                cli_check_fold fold;
                int64_t zero[SHERD_MAX_AXES] = {0}, n = 1;
                bool lowest = sources[s][2] == 'm', differ = false;
                double largest = 0;
                cli_check_data_of(&d, paper_placed(&p, meshes[m], 1, shape, sources[s]),
                                  paper_placed(&p, meshes[m], 1, shape, "RR"), dtypes[i]);
                CHECK(cli_check_fold_of(&fold, &d, zero));
                for (int a = 0; a < 2; a++)
                    n *= d.from->spec.pending[a] >= 0 ? meshes[m]->extent[a] : 1;
                CHECK_EQ(fold.count, n);
                for (int64_t index = 0; index < shape[0]; index++) {
                    int64_t value = index & ((INT64_C(1) << d.bits) - 1);
                    double first = 0;
                    for (int k = 0; k < fold.count; k++) {
                        double room[23];
                        cli_check_fill(&d, fold.at[k], 0, room);
                        double x = decoded(
                            dtypes[i], (char *)room + (size_t)index * sherd_dtype_bytes(dtypes[i]));
                        first = k == 0 ? x : first;
                        differ = differ || x != first;
                        largest = x > largest ? x : -x > largest ? -x : largest;
                    }
                    CHECK_EQ(cli_check_value(&d, &fold, index, 0), value + (lowest ? 64 : 0));
                }
                CHECK(differ || n == 1);
                CHECK(dtypes[i] != SHERD_BF16 || largest <= 256);
                CHECK(dtypes[i] != SHERD_F16 || largest <= 2048);
            }
    paper_close(&p);
}

/* Fill a target as it should be, spoil one element at a time: exactly that one is wrong. */
static void one_wrong_element_is_found(void)
{
    paper p;
    const int64_t shape[] = {5, 7};

    paper_open(&p, 4);
    const sherd_mesh *mesh = paper_mesh(&p, "x=2,y=2");
    const sherd_layout *from = paper_placed(&p, mesh, 2, shape, "S(0)R");
    const sherd_layout *to = paper_placed(&p, mesh, 2, shape, "RS(1)");
    for (int i = 0; i < LEN(dtypes); i++) {
        const int64_t at[SHERD_MAX_AXES] = {1, 1};
        unsigned char target[64 * 8], wrong[64] = {0};
        cli_check_data d, back;
        cli_check_fold fold;
        size_t bytes = sherd_dtype_bytes(dtypes[i]);
        cli_check_data_of(&d, from, to, dtypes[i]);
        cli_check_data_of(&back, to, from, dtypes[i]);
        CHECK(cli_check_fold_of(&fold, &d, at));
        cli_check_fill(&back, at, 0,
                       target); /* no reduction: the target holds what a source would */
        cli_check_compare(&d, at, &fold, 0, target, wrong);
        for (int k = 0; k < 15; k++)
            CHECK_EQ(wrong[k], 0);
        for (int k = 0; k < 15; k++) {
            memset(wrong, 0, sizeof wrong);
            target[(size_t)k * bytes] ^= 1;
            cli_check_compare(&d, at, &fold, 0, target, wrong);
            for (int j = 0; j < 15; j++)
                CHECK_EQ(wrong[j], j == k);
            target[(size_t)k * bytes] ^= 1;
        }
    }
    paper_close(&p);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void keys_and_values(void)
{
    json_t *o = answer_of("check --mesh x=3 --shape 7x5 --from S(0) --to S(1)");
    char keys[256];

    keys_of(o, keys, sizeof keys);
    CHECK_TEXT(keys, "exact wrong elements seconds bytes_recv_max ratio ranks predicted");
    CHECK(json_is_true(json_object_get(o, "exact")));
    CHECK_EQ(whole(o, "wrong"), 0);
    CHECK_EQ(whole(o, "elements"), 35);
    CHECK(json_number_value(json_object_get(o, "seconds")) > 0);
    CHECK_EQ(whole(o, "bytes_recv_max"), 32);
    CHECK_NEAR(json_number_value(json_object_get(o, "ratio")), 1, 0);
    CHECK_EQ(whole(o, "ranks"), 3);
    CHECK_NEAR(json_number_value(json_object_get(o, "predicted")), 1.002e-6, 1e-7);
    json_decref(o);
}

/* Whatever a dtype can do, with ranks of both kinds. */
static void all_dtypes_are_exact(void)
{
    static const char *const moves[] = {
        "--mesh 2x2 --shape 33x17 --from S(0)S(1) --to S(1)R",
        "--mesh 3 --shape 20x31 --from P --to S(1)",
        "--mesh 2x2 --shape 33x17 --from RS(0) --to P(max)S(0)",
    };

    for (int i = 0; i < LEN(dtypes); i++)
        for (int m = 0; m < LEN(moves); m++)
            for (int as = 0; as < 2; as++) {
                char line[256];
                snprintf(line, sizeof line, "check %s --dtype %s --ranks-as %s", moves[m],
                         sherd_dtype_name(dtypes[i]), as ? "threads" : "processes");
                json_t *o = answer_of(line);
                CHECK_EQ(whole(o, "wrong"), 0);
                CHECK(whole(o, "elements") > 500);
                json_decref(o);
            }
}

static void all_planners_and_two_meshes_are_exact(void)
{
    static const char *const moves[] = {
        "--mesh 2x2 --shape 9x7 --from S(0)S(1) --to S(1)S(0) --planner greedy",
        "--mesh 2x2 --shape 9x7 --from S(0)[1]S(0)[0] --to RS(1) --planner graph",
        "--mesh 2x2 --shape 5x3 --from S(0)S(0) --to RR --planner greedy --flattened a0,a1",
        "--mesh 2 --to-mesh x=3@3,2,1 --shape 9x7 --from P --to S(1) --dtype bf16",
        "--mesh 2 --shape 10 --from S(0) --to S(0) --from-cuts 0:1,9 --to-cuts 0:9,1",
        "--mesh 2x2 --shape scalar --from PP --to RR",
        "--mesh 3 --shape 0x4 --from S(1) --to R",
    };

    for (int i = 0; i < LEN(moves); i++) {
        char line[256];
        snprintf(line, sizeof line, "check %s --ranks-as threads", moves[i]);
        json_t *o = answer_of(line);
        CHECK(json_is_true(json_object_get(o, "exact")));
        json_decref(o);
    }
}

static void the_built_in_list_is_exact(void)
{
    const program_end *end = sherd("check --all --ranks-as threads --planner exact");

    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, " moves, 0 wrong\n") != NULL);
    CHECK(strstr(end->out, "WRONG") == NULL && program_lines(end->out) > 50);
    CHECK(strncmp(end->out, "       measured  predicted\n", 26) == 0);
    end = sherd("check --all --dtype f16 --planner greedy --json");
    CHECK_EQ(end->status, 0);
    json_t *o = line_of(end->out, 0);
    CHECK_TEXT(text(json_object_get(o, "id"), "dtype"), "f16");
    CHECK(json_is_true(json_object_get(o, "exact")));
    json_decref(o);
}

/* A command that finds something wrong, in place of ranks that do. */
static sherd_status find_wrong(json_t *out, cli_problem *p)
{
    bool good = true;

    cli_put(&good, out, "exact", json_false());
    cli_put(&good, out, "wrong", json_integer(3));
    return cli_put_status(good, p);
}

static void print_nothing(FILE *to, const json_t *answer)
{
    (void)to;
    (void)answer;
}

static void wrong_elements_are_a_failure(void)
{
    static const cli_command command = {"check", CLI_OF_CHECK, find_wrong, print_nothing};
    static const char line[] = "{\"mesh\":\"2\",\"shape\":\"4\",\"from\":\"R\",\"to\":\"R\"}";
    const cli_case c = {.command = &command};
    const cli_values values = {
        .of = {[CLI_MESH] = "2", [CLI_SHAPE] = "4", [CLI_FROM] = "R", [CLI_TO] = "R"}};
    cli_verdict verdict = CLI_GOOD;
    char *answer = cli_case_answer(&c, line, strlen(line), &verdict);

    CHECK_EQ(verdict, CLI_WRONG);
    CHECK(answer && strcmp(answer, "{\"exact\":false,\"wrong\":3}") == 0);
    CHECK_EQ(cli_command_answer(&command, &values), 1);
    free(answer);
}

static void for_people(void)
{
    const program_end *end = sherd("check --mesh 2 --shape 8 --from S(0) --to R");

    CHECK_EQ(end->status, 0);
    CHECK(strncmp(end->out, "exact: 16 elements on 2 ranks\ntime ", 35) == 0);
    CHECK_EQ(end->left, 0);
}

static void lines_of_a_case_file(void)
{
    const program_end *end = cases("check --mesh 2 --shape 8",
                                   "{\"id\":1,\"from\":\"S(0)\",\"to\":\"R\"}\n"
                                   "{\"from\":\"S(0)\",\"to\":\"R\",\"all\":\"\"}\n"
                                   "{\"from\":\"S(0)\",\"to\":\"R\",\"price\":\"arena\"}\n"
                                   "{\"from\":\"S(0)\",\"to\":\"R\",\"ranks-as\":\"fish\"}\n"
                                   "{\"from\":\"R\",\"to\":\"S(0)\",\"ranks-as\":\"threads\"}\n");
    char copy[PROGRAM_TEXT];

    memcpy(copy, end->out, sizeof copy);
    CHECK_EQ(end->status, 1);
    CHECK_EQ(program_lines(copy), 5);
    for (int i = 0; i < 5; i++) {
        static const char *const keys[] = {NULL, "all", "price", "ranks-as", NULL};
        json_t *o = line_of(copy, i);
        if (keys[i])
            check_error(o, keys[i], i == 3, i == 3 ? "processes or threads" : "unknown key");
        else
            CHECK(json_is_true(json_object_get(o, "exact")));
        json_decref(o);
    }
}

/* Before a rank touches its part: both numbers are said, and who sets the limit. */
static void what_does_not_fit_is_refused_at_once(void)
{
    static const struct {
        const char *what, *needs;
    } list[] = {
        {"--shape 2097152 --from S(0) --to R", "need 50331648 bytes on all ranks"},
        {"--shape 4194304 --from S(0) --to S(0)", "need 20971520 bytes on all ranks"},
        {"--shape 1099511627776x1048576 --from S(0) --to S(1)",
         "need 4611686018427387903 bytes on all ranks"},
        {"--shape 524288 --from S(0) --to R", NULL},
        {"--shape 2097152 --from S(0) --to S(0)", NULL}, /* the target is the source */
    };

    setenv("SHERD_ARENA_BYTES", "16M", 1);
    for (int i = 0; i < LEN(list); i++) {
        char line[128];
        snprintf(line, sizeof line, "check --mesh 4 %s", list[i].what);
        const program_end *end = sherd(line);
        CHECK_EQ(end->status, list[i].needs ? 1 : 0);
        CHECK(!list[i].needs || strstr(end->err, list[i].needs));
        CHECK(!list[i].needs || strstr(end->err, "there are 16777216 (SHERD_ARENA_BYTES)"));
        CHECK_EQ(program_lines(end->err), list[i].needs ? 1 : 0);
    }
    unsetenv("SHERD_ARENA_BYTES");
}

static void refusals(void)
{
    static const refusal list[] = {
        {"check", 2, "--mesh: mesh is missing"},
        {"check --mesh 2 --shape 8 --from R", 2, "--to: to is missing"},
        {"check --mesh 2 --shape 8 --from R --to R --price arena", 2, "there is no option"},
        {"check --mesh 1025 --shape 8 --from R --to R", 1,
         "--mesh: the mesh (a0=1025) needs 1025 ranks"},
        {"check --mesh 2 --to-mesh x=2@0,1024 --shape 8 --from R --to R", 1, "--to-mesh: the mesh"},
        {"check --mesh 2 --shape 8 --from S(0) --to P", 1, "--to: "},
        {"check --mesh 2 --shape 8 --from P(avg) --to R --dtype i32", 1,
         "--dtype: [8] P(avg:a0) -> [8] on (a0=2): i32 has no average: cast it to a dtype with"},
        {"check --all --mesh 2", 2, "--all has moves of its own: expected no --mesh with it"},
        {"check --all --dtype f99", 1, ""},
    };

    for (int i = 0; i < LEN(list) - 1; i++)
        check_refusal(&list[i]);
    CHECK_EQ(sherd(list[LEN(list) - 1].arguments)->status, 1);
}

/* SHERD_DRY that was left in the environment: nothing is called exact that did not move. */
static void a_dry_world_is_refused(void)
{
    static const refusal list[] = {
        {"check --mesh 2 --shape 8 --from S(0) --to R", 2, "SHERD_DRY is set"},
        {"check --all --ranks-as threads", 2, "SHERD_DRY is set"},
        {"check --calibrate /dev/null --mesh 2", 2, "SHERD_DRY is set"},
    };

    setenv("SHERD_DRY", "1/4", 1);
    for (int i = 0; i < LEN(list); i++)
        check_refusal(&list[i]);
    unsetenv("SHERD_DRY");
}

static const check_test tests[] = {
    {TEST(elements_are_what_they_stand_for)},
    {TEST(passes_carry_the_whole_index)},
    {TEST(addends_come_to_the_value)},
    {TEST(one_wrong_element_is_found)},
    {TEST(keys_and_values)},
    {TEST(all_dtypes_are_exact)},
    {TEST(all_planners_and_two_meshes_are_exact)},
    {TEST(the_built_in_list_is_exact)},
    {TEST(wrong_elements_are_a_failure)},
    {TEST(for_people)},
    {TEST(lines_of_a_case_file)},
    {TEST(a_dry_world_is_refused)},
    {TEST(what_does_not_fit_is_refused_at_once)},
    {TEST(refusals)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
