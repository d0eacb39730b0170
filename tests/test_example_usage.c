/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bad input to the GPT example and the `sherd` command: one clear line, an exit status that says
 * so, and nothing left: no process, no file. The same under `sherd run`, where every rank meets the
 * same error.
 */
#define CHECK_PURE
#include <dirent.h>
#include <sys/stat.h>

#include "check.h"
#include "program.h"

#define TINY                                                                        \
    GPT " --layers 1 --dim 8 --heads 2 --context 8 --batch 2 --steps 2 --sample 4 " \
        "--text " SHERD_SOURCE_DIR "/README.md"

typedef struct bad {
    const char *line;
    int status;
    const char *says; /* part of the message */
} bad;

static const bad calls[] = {
    {GPT " --frobnicate", 2, "\"--frobnicate\""},
    {GPT " stray", 2, "\"stray\""},
    {GPT " --dtype", 2, "--dtype"},
    {GPT " --dtype f64", 2, "\"f64\""},
    {GPT " --steps", 2, "--steps"},
    {GPT " --steps many", 2, "\"many\""},
    {GPT " --steps 10x", 2, "\"10x\""},
    {GPT " --steps=", 2, "--steps"},
    {GPT " --steps 99999999999999999999", 2, "99999999999999999999"},
    {GPT " --dropout 1", 2, "--dropout"},
    {GPT " --dropout nan", 2, "--dropout"},
    {GPT " --lr -1", 2, "--lr"},
    {GPT " --threads=yes", 2, "--threads"},
    {GPT " -n 0", 2, "\"0\""},
    {GPT " -n -2", 2, "\"-2\""},
    {GPT " -n 1025", 2, "1024"},
    {GPT " --mesh dp=2,tp=2 -n 3", 2, "there are 3"},
    {GPT " --mesh 2x2", 2, "\"2x2\""},
    {GPT " --mesh dp=2,dp=2", 2, "\"dp=2,dp=2\""},
    {GPT " --mesh dp=2,", 2, "--mesh"},
    {GPT " --mesh tp=0", 2, "\"tp=0\""},
    {GPT " --mesh pp=2", 2, "\"pp=2\""},
    {GPT " --dim 100 --heads 3", 2, "multiple"},
    {GPT " --text /nowhere/at/all", 2, "/nowhere/at/all"},
    {GPT " --text /tmp", 2, "/tmp"},
    {GPT " --text /dev/null", 2, "empty"},
    {GPT " --text " SHERD_SOURCE_DIR "/.gitignore", 2, "too short"},
    {TINY " --json /nowhere/at/all.json", 1, "/nowhere/at/all.json"},
    {TINY " --json /tmp", 1, "/tmp"},
    {TINY " --json /dev/full", 1, "/dev/full"},
    {TINY " --steps 200 --lr 999", 1, "smaller --lr"},
};

/* One line that begins and reads as it should; a launcher adds one of its own. */
static void complains(const char *line, const bad *b)
{
    const program_end *end = program_run(line);
    bool good = CHECK_EQ(end->status, b->status), launched = strncmp(line, GPT, strlen(GPT)) != 0;

    good &= CHECK_EQ(program_lines(end->err), launched ? 2 : 1);
    good &= CHECK_EQ(strstr(end->err, "\nsherd: rank 0 exited with status ") != NULL, launched);
    good &= CHECK(strstr(end->err, b->says) != NULL);
    good &= CHECK(strncmp(end->err, "gpt: ", 5) == 0);
    good &= CHECK_EQ(end->left, 0);
    if (!good)
        fprintf(stderr, "%s\n%s", line, end->err);
}

static void bad_input_ends_in_one_line(void)
{
    for (int i = 0; i < LEN(calls); i++)
        complains(calls[i].line, &calls[i]);
    /* which only who starts ranks himself can say */
    complains(GPT " --mesh dp=205,tp=5",
              &(bad){GPT " --mesh dp=205,tp=5", 1, "1025 ranks are more than the 1024"});
}

static void under_a_launcher_one_rank_speaks(void)
{
    char line[1024];

    for (int i = 0; i < LEN(calls); i += check_stride(3)) {
        if (strstr(calls[i].line, "there are") || strstr(calls[i].line, TINY))
            continue;
        snprintf(line, sizeof line, SHERD " run -n 3 -- %s", calls[i].line);
        complains(line, &calls[i]);
    }
    complains(SHERD " run -n 3 -- " GPT " --mesh tp=2", &(bad){"", 2, "there are 3"});
    complains(SHERD " run -n 3 -- " GPT " -n 2", &(bad){"", 2, "3 were started"});
    complains(SHERD " run -n 3 -- " TINY " --json /dev/full", &(bad){"", 1, "/dev/full"});
}

static int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* A file that is a folder's name by the time it is to be written; a file system that is full from
 * the start. */
static void a_report_leaves_nothing_but_itself(void)
{
    char folder[] = "/tmp/sherd-usage-XXXXXX", line[1024];
    int empty;

    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    empty = entries(folder);
    snprintf(line, sizeof line, TINY " --json %s/missing/report", folder);
    CHECK_EQ(program_run(line)->status, 1);
    CHECK_EQ(entries(folder), empty);
    snprintf(line, sizeof line, TINY " --json %s/report", folder);
    CHECK_EQ(program_run(line)->status, 0);
    CHECK_EQ(entries(folder), empty + 1);
    CHECK_EQ(program_run(line)->status, 0); /* over the old one */
    CHECK_EQ(entries(folder), empty + 1);
    snprintf(line, sizeof line, "%s/report", folder);
    CHECK_EQ(unlink(line), 0);
    CHECK_EQ(rmdir(folder), 0);
}

/* A device is written to as it is. */
static void a_report_may_go_to_standard_output(void)
{
    const program_end *end = program_run(TINY " --json /dev/stdout");

    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "\"grad_norms\"") != NULL);
}

static void output_that_is_lost_is_a_failure(void)
{
    program p = program_start_to(TINY, open("/dev/full", O_WRONLY | O_CLOEXEC));
    const program_end *end = program_wait(&p);

    CHECK_EQ(end->status, 1);
    CHECK_EQ(program_lines(end->err), 1);
    CHECK_EQ(end->left, 0);
}

static void help_fits_a_screen(void)
{
    const program_end *end = program_run(GPT " --help");

    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    CHECK(program_lines(end->out) <= 40);
    CHECK(strstr(end->out, "--sequence-parallel") != NULL);
    end = program_run(SHERD " run -n 3 " GPT " --help");
    CHECK(program_lines(end->out) <= 40);
}

static void only_one_rank_prints(void)
{
    const program_end *end = program_run(TINY " -n 3");
    const char *first = strstr(end->out, "what it writes");

    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    CHECK(first && !strstr(first + 1, "what it writes"));
}

static void the_mesh_sets_the_ranks(void)
{
    CHECK(strstr(program_run(TINY " --mesh dp=2,tp=2")->out, "ranks    4 processes") != NULL);
    CHECK(strstr(program_run(TINY)->out, "ranks    2 processes, mesh dp=1,tp=2") != NULL);
    CHECK(strstr(program_run(TINY " -n 3 --threads")->out, "ranks    3 threads") != NULL);
    CHECK(strstr(program_run(SHERD " run -n 3 " TINY)->out, "mesh dp=1,tp=3") != NULL);
}

static void the_command_refuses_what_it_does_not_know(void)
{
    static const struct {
        const char *line;
        int status;
    } lines[] = {
        {SHERD, 2},
        {SHERD " frobnicate", 2},
        {SHERD " run", 2},
        {SHERD " run -n", 2},
        {SHERD " run -n 0 /bin/true", 2},
        {SHERD " run -n 1025 /bin/true", 2},
        {SHERD " run -n x /bin/true", 2},
        {SHERD " run -n 2", 2},
        {SHERD " run -n 2 --", 2},
        {SHERD " run --foo -n 2 /bin/true", 2},
        {SHERD " run -n 2 /nowhere/at/all", 1},
        {SHERD " info more", 2},
    };

    for (int i = 0; i < LEN(lines); i++) {
        const program_end *end = program_run(lines[i].line);
        bool good = CHECK_EQ(end->status, lines[i].status);
        good &= CHECK_EQ(program_lines(end->err), 1);
        good &= CHECK_EQ(end->left, 0);
        if (!good)
            fprintf(stderr, "%s\n%s", lines[i].line, end->err);
    }
}

static void the_command_tells_what_it_is(void)
{
    CHECK(strncmp(program_run(SHERD " --version")->out, "sherd 0.", 8) == 0);
    CHECK(strstr(program_run(SHERD " help")->out, "sherd run") != NULL);
    const program_end *end = program_run(SHERD " info");
    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "GEMM rate") != NULL);
    CHECK(strstr(end->out, "transports  arena") != NULL);
}

static const check_test tests[] = {
    {TEST(bad_input_ends_in_one_line)},
    {TEST(under_a_launcher_one_rank_speaks)},
    {TEST(a_report_leaves_nothing_but_itself)},
    {TEST(a_report_may_go_to_standard_output)},
    {TEST(output_that_is_lost_is_a_failure)},
    {TEST(help_fits_a_screen)},
    {TEST(only_one_rank_prints)},
    {TEST(the_mesh_sets_the_ranks)},
    {TEST(the_command_refuses_what_it_does_not_know)},
    {TEST(the_command_tells_what_it_is)},
};
CHECK_MAIN(tests)
