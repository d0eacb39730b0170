/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that a wrapper started, as `sherd run -- sh -c 'program; true'` does. They end with their
 * launcher and with each other as those do that the launcher started itself.
 */
#define CHECK_PURE
#include <poll.h>

#include "launched.h"

static const double patience = 8; /* seconds; less than the grace period, which is 10 */

/* ---- two processes of one rank --------------------------------------------------------------- */

enum { HEAR = 60, SAY = 61 }; /* the ends of a pipe that they share */

/* Starts the rest of its text twice, at once. */
static int play_beside(const char *mode)
{
    int ends[2];
    pid_t pid[2];

    if (pipe(ends) || dup2(ends[0], HEAR) < 0 || dup2(ends[1], SAY) < 0)
        return 97;
    for (int i = 0; i < 2; i++)
        if ((pid[i] = fork()) == 0) {
            execl(self, self, mode, (char *)NULL);
            _exit(98);
        }
    for (int i = 0; i < 2; i++)
        waitpid(pid[i], NULL, 0);
    return 0;
}

/* The one that is the rank stays until the other has been refused. */
static int play_one_of_two(void)
{
    char error[SHERD_ERROR_BYTES] = "";
    struct pollfd other = {.fd = HEAR, .events = POLLIN};
    sherd_world *world;

    if (sherd_world_open(&world, &(sherd_world_options){.error = error})) {
        printf("refused: %s\n", error);
        return write(SAY, "", 1) == 1 ? 0 : 97;
    }
    bool heard = poll(&other, 1, 20000) == 1;
    if (!meet(world, line_of_ranks(world)) || sherd_world_close(world))
        return 1;
    puts(heard ? "alone" : "not alone");
    return 0;
}

static void two_at_once_are_one_rank(void)
{
    for (int i = 0; i < 4; i++) {
        program p = launch("-n 2", "beside:one");
        const program_end *end = program_wait(&p);
        bool good = CHECK_EQ(end->status, 0);
        good &= CHECK_EQ(times(end->out, "alone\n"), 2);
        good &= CHECK_EQ(times(end->out, "another process has joined as rank "), 2);
        if (!good)
            fprintf(stderr, "%s%s", end->out, end->err);
    }
}

/* ---- a child that is no rank ----------------------------------------------------------------- */

/* Until a process is gone, and not only dead. */
static int outlive(int process)
{
    double end = program_clock() + 2;

    while (kill(process, 0) == 0 && program_clock() < end)
        program_pause(0.005);
    return kill(process, 0) == 0 ? 96 : 0;
}

/* As the orphans of a container of which the launcher is the first process. */
static void children_that_a_launcher_did_not_start_are_waited_for(void)
{
    char line[1024];

    snprintf(line, sizeof line, "/bin/sh -c sleep\t0.01&exec\t%s\trun\t-n\t1\t--\t%s\toutlives:$!",
             SHERD, self);
    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
}

/* ---- one behind a wrapper -------------------------------------------------------------------- */

static int play_rank(const char *mode)
{
    if (strncmp(mode, "outlives:", 9) == 0)
        return outlive(atoi(mode + 9));
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world *world;

    if (strncmp(mode, "beside:", 7) == 0)
        return play_beside(mode + 7);
    if (strcmp(mode, "one") == 0)
        return play_one_of_two();
    if (sherd_world_open(&world, &(sherd_world_options){.error = error})) {
        printf("refused: %s\n", error);
        return 21;
    }
    const sherd_mesh *mesh = line_of_ranks(world);
    int rank = sherd_world_rank(world);
    bool met = meet(world, mesh);
    say("rank", rank);
    if (strcmp(mode, "deaf") == 0)
        for (volatile int i = 0;; i++)
            ;
    if (strcmp(mode, "waits") == 0)
        while (met)
            met = (rank == 1 ? sleep(30) == 0 : true) && meet(world, mesh);
    if (sherd_world_close(world))
        return 1;
    say("closed", rank);
    return met ? 0 : 1;
}

static const char *const wrappers[] = {"behind", "behind:behind", "closing"};

static void they_end_with_their_launcher(void)
{
    for (int i = 0; i < LEN(wrappers); i++)
        for (int deaf = 0; deaf < 2; deaf++) {
            char mode[64];
            snprintf(mode, sizeof mode, "%s:%s", wrappers[i], deaf ? "deaf" : "waits");
            program p = launch("-n 2", mode);
            for (int r = 0; r < 2; r++)
                process_of(&p, r);
            send_signal(p.pid, SIGKILL);
            waitpid(p.pid, NULL, 0);
            if (!CHECK_EQ(program_orphans(patience), 0))
                fprintf(stderr, "%s\n", mode);
            p.pid = -1;
            program_wait(&p);
        }
}

static void the_death_of_one_ends_all(int signal, const char *line)
{
    for (int i = 0; i < LEN(wrappers); i++) {
        char mode[64];
        snprintf(mode, sizeof mode, "%s:waits", wrappers[i]);
        program p = launch("-n 2", mode);
        process_of(&p, 0);
        pid_t victim = process_of(&p, 1);
        double begin = program_clock();
        send_signal(victim, signal);
        const program_end *end = program_wait(&p);
        bool good = CHECK(program_clock() - begin < patience);
        good &= CHECK(end->status != 0);
        good &= CHECK_EQ(program_orphans(patience), 0); /* a wrapper's wrapper may need a moment */
        good &= CHECK(strncmp(last_line(end->err), line, strlen(line)) == 0);
        if (!good)
            fprintf(stderr, "%s: %d: %s\n", mode, end->status, end->err);
    }
}

static void one_that_dies_ends_all(void)
{
    the_death_of_one_ends_all(SIGKILL, "sherd: rank 1 ended before closing its world");
}

static void one_that_is_stopped_ends_all(void)
{
    the_death_of_one_ends_all(SIGSTOP, "sherd: rank 1 was stopped by signal 19 (SIGSTOP)\n");
}

static void they_work_as_others_do(void)
{
    static const char *const good[] = {"well", "behind:well", "closing:well",
                                       "closing:closing:well", "twice:well"};

    for (int i = 0; i < LEN(good); i++) {
        program p = launch("-n 2", good[i]);
        const program_end *end = program_wait(&p);
        bool all = CHECK_EQ(end->status, 0);
        all &= CHECK_TEXT(end->err, "");
        all &= CHECK_EQ(end->left, 0);
        all &= CHECK(strstr(end->out, "closed 0") && strstr(end->out, "closed 1"));
        if (!all)
            fprintf(stderr, "%s: %s", good[i], end->out);
    }
}

static const check_test tests[] = {
    {TEST(they_work_as_others_do)},   {TEST(they_end_with_their_launcher)},
    {TEST(one_that_dies_ends_all)},   {TEST(one_that_is_stopped_ends_all)},
    {TEST(two_at_once_are_one_rank)}, {TEST(children_that_a_launcher_did_not_start_are_waited_for)},
};
LAUNCHED_MAIN(tests, play_rank)
