/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that a wrapper started, as `sherd run -- sh -c 'program; true'` does. They end with their launcher and with
 * each other as those do that the launcher started itself. This test is the wrapper and the program too: its argument
 * says what it is, "behind:behind:deaf" for instance.
 */
#define CHECK_PURE
#include <dirent.h>
#include <sys/wait.h>

#include "check.h"
#include "program.h"
#include "world/world.h"

enum { RANKS = 2 };

static const double patience = 5; /* seconds; nothing takes long unless the machine is slow */
static const char *self;          /* this program */

/* ---- the wrapper -------------------------------------------------------------------------------- */

static void close_inherited(void)
{
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

/* Runs the rest of its text as a program, and returns 0 whatever comes of that. */
static int wrap(const char *mode, bool closing)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (closing)
            close_inherited();
        execl(self, self, mode, (char *)NULL);
        _exit(98);
    }
    waitpid(pid, NULL, 0);
    return 0;
}

/* ---- the rank ----------------------------------------------------------------------------------- */

static void say(const char *word, int rank)
{
    printf("%s %d is %d\n", word, rank, (int)getpid());
    fflush(stdout);
}

static bool meet(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t mine = 1, all[RANKS], extent = sherd_world_ranks(world);

    return sherd_mesh_create(&mesh, world, 1, &extent, NULL, NULL) == SHERD_OK &&
           sherd__share(world, mesh, "share", &mine, 1, all);
}

static int play_rank(const char *mode)
{
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world *world;

    if (sherd_world_open(&world, &(sherd_world_options){.error = error})) {
        printf("refused: %s\n", error);
        return 21;
    }
    int rank = sherd_world_rank(world);
    bool met = meet(world);
    say("rank", rank);
    if (strcmp(mode, "deaf") == 0)
        for (volatile int i = 0;; i++)
            ;
    if (strcmp(mode, "waits") == 0)
        while (met)
            met = (rank == 1 ? sleep(30) == 0 : true) && meet(world);
    if (sherd_world_close(world))
        return 1;
    say("closed", rank);
    return met ? 0 : 1;
}

static int play(const char *mode)
{
    if (strncmp(mode, "behind:", 7) == 0)
        return wrap(mode + 7, false);
    if (strncmp(mode, "closing:", 8) == 0)
        return wrap(mode + 8, true);
    if (strncmp(mode, "twice:", 6) == 0)
        return wrap(mode + 6, false) || wrap(mode + 6, false);
    return play_rank(mode);
}

/* ---- the test ----------------------------------------------------------------------------------- */

static program start(const char *mode)
{
    char line[512];

    snprintf(line, sizeof line, "%s run -n %d -- %s %s", SHERD, RANKS, self, mode);
    return program_start(line);
}

/* The process of a rank that has joined; 0 if it does not. */
static pid_t process_of(program *p, int rank)
{
    static char out[PROGRAM_TEXT];
    char said[32];
    int pid = 0;

    snprintf(said, sizeof said, "rank %d is ", rank);
    if (!CHECK(program_says(p, said, 20)))
        return 0;
    program_read(p->out, out);
    sscanf(strstr(out, said) + strlen(said), "%d", &pid);
    return pid;
}

static const char *const wrappers[] = {"behind", "behind:behind", "closing"};

static void they_end_with_their_launcher(void)
{
    for (int i = 0; i < LEN(wrappers); i++)
        for (int deaf = 0; deaf < 2; deaf++) {
            char mode[64];
            snprintf(mode, sizeof mode, "%s:%s", wrappers[i], deaf ? "deaf" : "waits");
            program p = start(mode);
            for (int r = 0; r < RANKS; r++)
                process_of(&p, r);
            kill(p.pid, SIGKILL);
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
        program p = start(mode);
        process_of(&p, 0);
        pid_t victim = process_of(&p, 1);
        double begin = program_clock();
        if (victim > 0)
            kill(victim, signal);
        const program_end *end = program_wait(&p);
        bool good = CHECK(program_clock() - begin < patience);
        good &= CHECK(end->status != 0);
        good &= CHECK_EQ(program_orphans(patience), 0); /* a wrapper's wrapper may need a moment */
        good &= CHECK(strstr(end->err, line) != NULL);
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
        program p = start(good[i]);
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
    {TEST(they_work_as_others_do)},
    {TEST(they_end_with_their_launcher)},
    {TEST(one_that_dies_ends_all)},
    {TEST(one_that_is_stopped_ends_all)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (getenv("SHERD_RANK") && argc > 1)
        return play(argv[1]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
