/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check --calibrate: what times say of a link, the file that is written, and who measures:
 * ranks of its own, or those of the job that it is started in. What it measures is not asserted:
 * that is the machine's.
 */
#define CHECK_PURE
#include "mpirun.h"
#include "cli.h"

#include <sys/stat.h>

#include "calibrate.h"

/* ---- what times say -------------------------------------------------------------------------- */

/*
 * Moves of a link on p ranks. Bytes beyond a knee take `slower` times as long: as a cache or a
 * burst make it.
 */
static cli_times times_of(double alpha, double beta, double gamma, int p, double slower)
{
    const int64_t knee = 100000;
    cli_times t = {.sizes = CLI_SIZES};

    for (int k = 0; k < CLI_SIZES; k++)
        t.bytes[k] = (int64_t)4000 << 2 * k;
    for (int i = 0; i < CLI_MOVES; i++)
        for (int k = 0; k < CLI_SIZES; k++) {
            cli_timed *m = &t.move[i][k];
            m->messages = p - 1;
            m->bytes = (int64_t)(i + 1) * 1000 << 2 * k;
            m->added = i < 2 ? 0 : m->bytes;
            double beyond = m->bytes > knee ? (double)(m->bytes - knee) : 0;
            m->seconds = alpha * (double)m->messages + gamma * (double)m->added +
                         beta * ((double)m->bytes + (slower - 1) * beyond);
        }
    return t;
}

static double time_by(const sherd_link *link, const cli_timed *m)
{
    return 1e-12 * (double)link->alpha_picoseconds * (double)m->messages +
           1e-15 * (double)link->beta_femtoseconds * (double)m->bytes +
           1e-15 * (double)link->gamma_femtoseconds * (double)m->added;
}

/* Lines are for sizes that grow, and the last one for all beyond. */
static void check_limits(const sherd_link *line, int lines, const cli_times *t)
{
    for (int k = 0; k + 1 < lines; k++)
        CHECK(line[k].upto_bytes > t->bytes[t->sizes - lines + k] &&
              line[k].upto_bytes < t->bytes[t->sizes - lines + k + 1]);
    CHECK_EQ(line[lines - 1].upto_bytes, 0);
}

static void links_are_found_again_in_their_times(void)
{
    static const double cases[][3] = {
        {1e-6, 2e-10, 1e-10}, {5e-5, 1.6e-8, 0}, {5e-4, 1.6e-8, 3e-10}, {1e-7, 0, 0}};

    for (int i = 0; i < LEN(cases); i++)
        for (int p = 2; p < 9; p++) {
            const double *c = cases[i];
            cli_times t = times_of(c[0], c[1], c[2], p, 1);
            sherd_link line[CLI_SIZES];
            int lines = cli_times_fit(line, CLI_SIZES, &t);
            CHECK_EQ(lines, CLI_SIZES);
            check_limits(line, lines, &t);
            for (int k = 0; k < lines; k++)
                for (int m = 0; m < CLI_MOVES; m++)
                    CHECK_NEAR(time_by(&line[k], &t.move[m][k]) / t.move[m][k].seconds, 1, 1e-3);
            CHECK_NEAR((double)line[0].alpha_picoseconds, 1e12 * c[0], 1e9 * c[0] + 2);
            CHECK_NEAR((double)line[lines - 1].beta_femtoseconds, 1e15 * c[1], 1e12 * c[1] + 2);
        }
}

/* No alpha and beta say this for all sizes; the lines do, each for its own. */
static void a_link_that_changes_with_the_size_is_found_at_each(void)
{
    for (int p = 2; p < 6; p++) {
        cli_times t = times_of(2e-5, 1e-9, 1e-10, p, 2.5);
        sherd_link line[CLI_SIZES];
        int lines = cli_times_fit(line, CLI_SIZES, &t);
        for (int k = 0; k < lines; k++)
            for (int m = 0; m < CLI_MOVES; m++) {
                double part = time_by(&line[k], &t.move[m][k]) / t.move[m][k].seconds;
                CHECK(part > 0.8 && part < 1.25);
            }
    }
}

/* With little room the smallest sizes share the first line. */
static void lines_are_at_most_as_many_as_there_is_room(void)
{
    cli_times t = times_of(2e-5, 1e-9, 1e-10, 2, 5);
    sherd_link line[CLI_SIZES], few[CLI_SIZES];
    int lines = cli_times_fit(line, CLI_SIZES, &t);

    CHECK_EQ(cli_times_fit(few, 3, &t), 3);
    check_limits(few, 3, &t);
    CHECK_EQ(few[0].beta_femtoseconds, line[lines - 3].beta_femtoseconds);
}

/* One move that was disturbed, of each kind, is not what is written; nor is less than nothing. */
static void what_was_disturbed_does_not_count(void)
{
    cli_times t = times_of(1e-5, 1e-9, 1e-10, 2, 1);
    sherd_link line[CLI_SIZES];

    t.move[0][3].seconds *= 3;
    t.move[2][4].seconds *= 3;
    t.move[1][0].seconds *= 3;
    int lines = cli_times_fit(line, CLI_SIZES, &t);
    for (int k = 0; k < lines; k++) {
        CHECK_NEAR((double)line[k].alpha_picoseconds, 1e7, 1e6);
        CHECK_NEAR((double)line[k].beta_femtoseconds, 1e6, 1e5);
        CHECK_NEAR((double)line[k].gamma_femtoseconds, 1e5, 1e5);
    }
    for (int i = 0; i < CLI_MOVES; i++)
        for (int k = 0; k < CLI_SIZES; k++)
            t.move[i][k].seconds = 1e-6 * (CLI_SIZES - k);
    t.sizes = 3;
    lines = cli_times_fit(line, CLI_SIZES, &t);
    CHECK_EQ(lines, 3);
    for (int k = 0; k < lines; k++)
        CHECK(line[k].alpha_picoseconds > 0 && line[k].beta_femtoseconds == 0 &&
              line[k].gamma_femtoseconds == 0);
}

static void a_line_is_what_a_price_file_has(void)
{
    sherd_link line = {"host", 24123456, 16012345, 0, 0};
    char text[160];

    cli_line_write(text, sizeof text, &line);
    CHECK_TEXT(text, "host 2.412e-05 1.601e-08 0\n");
    line.upto_bytes = 524288;
    cli_line_write(text, sizeof text, &line);
    CHECK_TEXT(text, "host 2.412e-05 1.601e-08 0 upto 524288\n");
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

/* Only so many sizes; all, the largest of which takes seconds, where there is time. */
static void leave_out_large(const char *sizes)
{
    if (getenv("SHERD_PROOF"))
        unsetenv("SHERD_CALIBRATE_SIZES");
    else
        setenv("SHERD_CALIBRATE_SIZES", sizes, 1);
}

static void ranks_of_its_own_measure(void)
{
    char line[256];

    leave_out_large("7");
    snprintf(line, sizeof line, "check --calibrate %s --mesh x=2,one=1", path);
    check_end(sherd(line));
    check_file("x=2,one=1", "arena");
}

/* Each move stays on its axis: a planner for one machine would split large sums over both. */
static void axes_are_measured_one_by_one(void)
{
    char line[256];

    leave_out_large("4");
    snprintf(line, sizeof line, "check --calibrate %s --mesh x=2,y=2 --ranks-as threads", path);
    const program_end *end = sherd(line);
    CHECK_EQ(end->status, 0);
    CHECK_EQ(times(end->out, " a message, "), 2);
    check_file("x=2,y=2", "threads");
}

static void ranks_of_the_job_measure(void)
{
    char line[256];

    leave_out_large("4");
    snprintf(line, sizeof line, "run -n 2 -- %s check --calibrate %s --mesh x=2,y=1", SHERD, path);
    check_end(sherd(line));
    check_file("x=2,y=1", "arena");
}

static void ranks_under_mpirun_measure(void)
{
    char line[256];

    leave_out_large("4");
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
        {"check --calibrate= --mesh 2", 1, "\"\": No such file or directory"},
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

/* Nothing stays of a file that was not finished, and what stands beside it is somebody else's. */
static void a_signal_leaves_no_half_of_a_file(void)
{
    char folder[] = "/tmp/sherd-calibrate-XXXXXX", line[256], beside[64];

    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    snprintf(beside, sizeof beside, "%s/f.new", folder);
    FILE *file = fopen(beside, "w");
    CHECK(file && fputs("mine", file) >= 0 && fclose(file) == 0);
    unsetenv("SHERD_CALIBRATE_SIZES");
    snprintf(line, sizeof line, "%s check --calibrate %s/f --mesh x=2", SHERD, folder);
    program p = program_start(line);
    program_pause(0.2);
    program_kill(&p, SIGTERM);
    CHECK_EQ(program_wait(&p)->status, 128 + SIGTERM);
    struct stat there;
    CHECK(stat(beside, &there) == 0 && there.st_size == 4);
    CHECK_EQ(unlink(beside), 0);
    CHECK_EQ(rmdir(folder), 0);
}

static const check_test tests[] = {
    {TEST(links_are_found_again_in_their_times)},
    {TEST(a_link_that_changes_with_the_size_is_found_at_each)},
    {TEST(lines_are_at_most_as_many_as_there_is_room)},
    {TEST(what_was_disturbed_does_not_count)},
    {TEST(a_line_is_what_a_price_file_has)},
    {TEST(ranks_of_its_own_measure)},
    {TEST(axes_are_measured_one_by_one)},
    {TEST(ranks_of_the_job_measure)},
    {TEST(ranks_under_mpirun_measure)},
    {TEST(a_signal_leaves_no_half_of_a_file)},
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
