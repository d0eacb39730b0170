/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check --calibrate: what times say of a link, the file that is written, and who measures:
 * ranks of its own, or those of the job that it is started in. What it measures is not asserted:
 * that is the machine's.
 */
#define CHECK_PURE
#include "mpirun.h"
#include "cli.h"

#include "calibrate.h"

/* ---- what times say -------------------------------------------------------------------------- */

/* Moves of a link on p ranks, and what it takes or gives once for large ones. */
static cli_times times_of(double alpha, double beta, double gamma, int p, double once)
{
    cli_times t = {.sizes = CLI_SIZES};

    for (int i = 0; i < CLI_MOVES; i++)
        for (int k = 0; k < CLI_SIZES; k++) {
            cli_timed *m = &t.move[i][k];
            m->messages = (p - 1) * (i == 3 ? 2 : 1);
            m->bytes = (int64_t)(i + 1) * 1000 << 2 * k;
            m->added = i < 2 ? 0 : i == 3 ? m->bytes / 2 : m->bytes;
            m->seconds = alpha * (double)m->messages + beta * (double)m->bytes +
                         gamma * (double)m->added + (k > 2 ? once : 0);
        }
    return t;
}

static void links_are_found_again_in_their_times(void)
{
    static const double cases[][4] = {{1e-6, 2e-10, 1e-10, 0},
                                      {5e-5, 1.6e-8, 0, 0},
                                      {5e-4, 1.6e-8, 3e-10, -1e-3},
                                      {1e-7, 0, 0, 0}};

    for (int i = 0; i < LEN(cases); i++)
        for (int p = 2; p < 9; p++) {
            const double *c = cases[i];
            cli_times t = times_of(c[0], c[1], c[2], p, c[3]);
            sherd_link link = {"x", 0, 0, 0};
            cli_times_fit(&link, &t);
            CHECK_NEAR((double)link.alpha_picoseconds, 1e12 * c[0], 1e9 * c[0] + 2);
            CHECK_NEAR((double)link.beta_femtoseconds, 1e15 * c[1], 1e12 * c[1] + 2);
            CHECK_NEAR((double)link.gamma_femtoseconds, 1e15 * c[2], 1e12 * c[2] + 2);
        }
}

/* One move that was disturbed, of each kind, is not what is written; nor is less than nothing. */
static void what_was_disturbed_does_not_count(void)
{
    cli_times t = times_of(1e-5, 1e-9, 1e-10, 2, 0);
    sherd_link link = {"x", 0, 0, 0};

    t.move[0][3].seconds *= 3;
    t.move[3][4].seconds *= 3;
    t.move[1][0].seconds *= 3;
    cli_times_fit(&link, &t);
    CHECK_NEAR((double)link.alpha_picoseconds, 1e7, 1e6);
    CHECK_NEAR((double)link.beta_femtoseconds, 1e6, 1e5);
    CHECK_NEAR((double)link.gamma_femtoseconds, 1e5, 1e5);
    for (int i = 0; i < CLI_MOVES; i++)
        for (int k = 0; k < CLI_SIZES; k++)
            t.move[i][k].seconds = 1e-6 * (CLI_SIZES - k);
    t.sizes = 3;
    cli_times_fit(&link, &t);
    CHECK(link.alpha_picoseconds > 0 && link.beta_femtoseconds == 0 &&
          link.gamma_femtoseconds == 0);
}

static void a_line_is_what_a_price_file_has(void)
{
    const sherd_link link = {"host", 24123456, 16012345, 0};
    char line[160];

    cli_link_write(line, sizeof line, &link);
    CHECK_TEXT(line, "host 2.412e-05 1.601e-08 0\n");
}

/* ---- the command ----------------------------------------------------------------------------- */

static char path[64];

/* The file is there, and plans are made by it, on paper and by ranks. */
static void check_file(const char *mesh, const char *ranks_by)
{
    char line[256];
    json_t *o;

    snprintf(line, sizeof line, "plan --mesh %s --shape 64x64 --from S(0)R --to RR --price %s",
             mesh, path);
    o = answer_of(line);
    CHECK(json_number_value(json_object_get(o, "seconds")) > 0);
    json_decref(o);
    FILE *from = fopen(path, "re");
    char head[160] = "", second[32] = "";
    CHECK(from && fgets(head, sizeof head, from) && fgets(second, sizeof second, from));
    if (from)
        fclose(from);
    snprintf(line, sizeof line, "# sherd check --calibrate, mesh %s, ranks by %s: ", mesh,
             ranks_by);
    CHECK(strncmp(head, line, strlen(line)) == 0);
    CHECK_TEXT(second, "straight\n");
    unlink(path);
}

static void check_end(const program_end *end)
{
    CHECK_EQ(end->status, 0);
    CHECK_EQ(times(end->out, " a message, "), 1);
    CHECK_EQ(times(end->out, "\n"), 1);
}

static void ranks_of_its_own_measure(void)
{
    char line[256];

    snprintf(line, sizeof line, "check --calibrate %s --mesh x=2,one=1", path);
    check_end(sherd(line));
    check_file("x=2,one=1", "arena");
}

static void ranks_of_the_job_measure(void)
{
    char line[256];

    snprintf(line, sizeof line, "run -n 2 -- %s check --calibrate %s --mesh x=2,y=1", SHERD, path);
    check_end(sherd(line));
    check_file("x=2,y=1", "arena");
}

static void ranks_under_mpirun_measure(void)
{
    char line[256];

    snprintf(line, sizeof line, "%s check --calibrate %s --mesh x=2,y=1", SHERD, path);
    FOR_EACH_MPI(kind)
    {
        program p = mpi_start(kind, 2, line);
        check_end(program_wait(&p));
        check_file("x=2,y=1", "arena");
    }
}

static void refusals(void)
{
    static const refusal list[] = {
        {"check --calibrate", 2, "--calibrate: expected FILE behind it, for example prices.txt"},
        {"check --calibrate f", 2, "--calibrate: expected --mesh with it"},
        {"check --calibrate f --mesh 2 --shape 8", 2, "expected no --shape with it"},
        {"check --calibrate f --mesh 2 --all", 2, "expected no --all with it"},
        {"check --calibrate f --mesh x=fish", 2, "--mesh: column 3 of"},
        {"check --calibrate f --mesh 1025", 2, "--mesh: the mesh (1025) needs 1025 ranks"},
        {"check --calibrate f --mesh 2 --ranks-as fish", 2, "--ranks-as: expected processes"},
        {"check --calibrate f --mesh x=1", 1, "the mesh (x=1) has 1 ranks, but the job 1"},
        {"check --calibrate /nowhere/f --mesh 2", 1, "\"/nowhere/f\": No such file or directory"},
    };

    for (int i = 0; i < LEN(list); i++)
        check_refusal(&list[i]);
    const program_end *end = sherd("run -n 3 -- " SHERD " check --calibrate f --mesh 2");
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "the mesh (a0=2) has 2 ranks, but the job 3"));
    CHECK_EQ(access("f", F_OK) + access("f.new", F_OK), -2);
}

/* ---- check in a job, and by a price ---------------------------------------------------------- */

static void check_joins_the_job_that_it_is_in(void)
{
    static const char line[] = SHERD " check --mesh 2x2 --shape 9x7 --from S(0)P --to RR --json";
    const program_end *end =
        sherd("run -n 4 -- " SHERD " check --mesh 3 --shape 9 --from P --to R");

    CHECK_EQ(end->status, 0);
    CHECK(strncmp(end->out, "exact: 27 elements on 4 ranks\n", 30) == 0);
    FOR_EACH_MPI(kind)
    {
        program p = mpi_start(kind, 4, line);
        end = program_wait(&p);
        CHECK_EQ(end->status, 0);
        json_t *o = line_of(end->out, 0);
        CHECK(json_is_true(json_object_get(o, "exact")));
        CHECK_EQ(whole(o, "elements"), 4 * 63);
        json_decref(o);
        CHECK_EQ(times(end->out, "\n"), 1);
    }
    end = sherd("run -n 2 -- " SHERD " check --mesh 3 --shape 9 --from P --to R");
    CHECK_EQ(end->status, 1);
    CHECK_EQ(times(end->err, "sherd check: "), 1);
    end = sherd("run -n 2 -- " SHERD " check --all --planner exact --dtype i32");
    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, " moves need more ranks than the 2 of this job\n"));
}

/* The plan that is checked is the world's, and so is what it was to take. */
static void what_is_predicted_is_the_worlds_price(void)
{
    FILE *to = fopen(path, "we");

    CHECK(to && fputs("a0 0.25 0 0\nstraight\n", to) >= 0 && fclose(to) == 0);
    setenv("SHERD_PRICE", path, 1);
    json_t *o = answer_of("check --mesh 3 --shape 9 --from S(0) --to R");
    CHECK_NEAR(json_number_value(json_object_get(o, "predicted")), 0.5, 1e-12);
    json_decref(o);
    unlink(path);
    const program_end *end = sherd("check --mesh 3 --shape 9 --from S(0) --to R");
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "SHERD_PRICE: ") && strstr(end->err, "expected a file of prices"));
    unsetenv("SHERD_PRICE");
}

static const check_test tests[] = {
    {TEST(links_are_found_again_in_their_times)},
    {TEST(what_was_disturbed_does_not_count)},
    {TEST(a_line_is_what_a_price_file_has)},
    {TEST(ranks_of_its_own_measure)},
    {TEST(ranks_of_the_job_measure)},
    {TEST(ranks_under_mpirun_measure)},
    {TEST(refusals)},
    {TEST(check_joins_the_job_that_it_is_in)},
    {TEST(what_is_predicted_is_the_worlds_price)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    snprintf(path, sizeof path, "/tmp/sherd-calibrate-%d", (int)getpid());
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
