/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of the GPT example dies during training, or the process that started the ranks does:
 * everything ends within two seconds, one line names the rank and the signal, and nothing is left.
 */
#define CHECK_PURE
#include <signal.h>
#include <sys/resource.h>

#include "check.h"
#include "program.h"

static const double patience = 2; /* seconds */

#define LONG_RUN                                                                \
    GPT " --layers 2 --dim 48 --heads 4 --context 32 --batch 8 --steps 100000 " \
        "--text " SHERD_SOURCE_DIR "/README.md"

/* Children of a process, in the order in which they were started. */
static int children_of(pid_t pid, pid_t *out, int room)
{
    char path[64];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    file = fopen(path, "r");
    while (file && count < room && fscanf(file, "%d", &out[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

/* Kill rank `victim` of a program that trains; see how it ends. */
static void ends_after_the_death_of(const char *line, int ranks, int victim, int signal)
{
    program p = program_start(line);
    pid_t rank[CHECK_RANKS] = {0};
    char named[32];
    double begin;

    CHECK(program_says(&p, "step ", 20));
    CHECK_EQ(children_of(p.pid, rank, CHECK_RANKS), ranks);
    snprintf(named, sizeof named, "rank %d ", victim);
    begin = program_clock();
    if (rank[victim] > 0)
        kill(rank[victim], signal);
    const program_end *end = program_wait(&p);

    bool good = CHECK(program_clock() - begin < patience);
    good &= CHECK_EQ(end->status, 128 + signal);
    good &= CHECK_EQ(end->left, 0);
    /* A launcher puts the flight record before the line that names the rank. */
    bool launched = strncmp(line, SHERD, strlen(SHERD)) == 0;
    good &= CHECK_EQ(strncmp(end->err, "flight record: ", 15) == 0, launched);
    good &= CHECK(launched || program_lines(end->err) == 1);
    good &= CHECK(strstr(last_line(end->err), named) != NULL);
    good &= CHECK(strstr(last_line(end->err), signal == SIGKILL ? "SIGKILL" : "SIGABRT") != NULL);
    if (!good)
        fprintf(stderr, "%s\n%s", line, end->err);
}

static void a_killed_rank_ends_the_program(void)
{
    for (int victim = 0; victim < 3; victim++)
        ends_after_the_death_of(LONG_RUN " -n 3", 3, victim, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    ends_after_the_death_of(LONG_RUN " --mesh dp=2", 2, 1, SIGABRT);
}

static void a_killed_rank_ends_a_launched_program(void)
{
    for (int victim = 0; victim < 2; victim++)
        ends_after_the_death_of(SHERD " run -n 2 -- " LONG_RUN, 2, victim, SIGKILL);
}

static void ranks_do_not_outlive_their_parent(void)
{
    static const char *const lines[] = {LONG_RUN " -n 3", SHERD " run -n 2 -- " LONG_RUN};

    for (int i = 0; i < LEN(lines); i++) {
        program p = program_start(lines[i]);
        CHECK(program_says(&p, "step ", 20));
        program_kill(&p, SIGKILL);
        waitpid(p.pid, NULL, 0);
        CHECK_EQ(program_orphans(patience), 0);
        p.pid = -1;
        program_wait(&p);
    }
}

static void an_interrupt_ends_all(void)
{
    program p = program_start(LONG_RUN " -n 2");

    CHECK(program_says(&p, "step ", 20));
    double begin = program_clock();
    program_kill(&p, SIGTERM);
    const program_end *end = program_wait(&p);
    CHECK(program_clock() - begin < patience);
    CHECK(end->status != 0);
    CHECK_EQ(program_orphans(patience), 0);
}

static const check_test tests[] = {
    {TEST(a_killed_rank_ends_the_program)},
    {TEST(a_killed_rank_ends_a_launched_program)},
    {TEST(ranks_do_not_outlive_their_parent)},
    {TEST(an_interrupt_ends_all)},
};
CHECK_MAIN(tests)
