/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals to the launcher: what ends it reaches the ranks, which have time to save; what was
 * ignored stays so; SIGUSR1 and SIGUSR2 go on to the ranks and harm nobody.
 */
#define CHECK_PURE
#include "launched.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <grp.h>
#include <sys/resource.h>

static const double patience = 10;

enum { SAVING_MS = 1800 }; /* longer than what there was before */

/* ---- the ranks ------------------------------------------------------------------------------- */

static volatile sig_atomic_t told, first, second;

static void note(int signal)
{
    if (signal == SIGTERM)
        told = 1;
    else if (signal == SIGUSR1)
        first = 1;
    else
        second = 1;
}

static void pause_for(int milliseconds)
{
    double end = program_clock() + 1e-3 * milliseconds;

    while (program_clock() < end)
        program_pause(0.005);
}

/* Until SIGTERM; says what else came. */
static void listen_to_signals(int rank)
{
    while (!told) {
        program_pause(0.002);
        if (first)
            say("usr1", rank);
        if (second)
            say("usr2", rank);
        first = second = 0;
    }
}

/* As a user of many groups; without the right to be one it is as any. */
static void join_groups(void)
{
    gid_t group[1000];

    for (int i = 0; i < LEN(group); i++)
        group[i] = 1000000u + (gid_t)i;
    if (setgroups(LEN(group), group))
        puts("without groups");
}

static int play_rank(const char *mode)
{
    bool survives = strcmp(mode, "survives") == 0;
    sherd_world *world;

    if (strncmp(mode, "grouped:", 8) == 0) {
        join_groups();
        mode += 8;
    }
    signal(SIGTERM, note);
    signal(SIGUSR2, note);
    if (sherd_world_open(&world, NULL))
        return 21;
    const sherd_mesh *mesh = line_of_ranks(world);
    int rank = sherd_world_rank(world);
    if (rank == 0)
        signal(SIGUSR1, note); /* the other one would die of it */
    say("rank", rank);
    if (strcmp(mode, "listens") == 0 || strcmp(mode, "saves") == 0 || strcmp(mode, "fails") == 0)
        listen_to_signals(rank);
    if (survives && rank == 1)
        pause_for(60000);
    if (survives && meet(world, mesh))
        return 22;
    if (strcmp(mode, "listens") != 0) {
        pause_for(SAVING_MS);
        say("saved", rank);
    }
    return sherd_world_close(world) ? 1 : strcmp(mode, "fails") == 0 && rank == 1 ? 3 : 0;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static program start_two(const char *mode)
{
    program p = launch("-n 2", mode);

    process_of(&p, 0);
    process_of(&p, 1);
    return p;
}

static void check_terminated(program *p, bool saved)
{
    const program_end *end = program_wait(p);
    bool good = CHECK_EQ(end->status, 128 + SIGTERM);

    good &= CHECK_TEXT(last_line(end->err), "sherd: ended by signal 15 (SIGTERM)\n");
    good &= CHECK_EQ(strstr(end->out, "saved 0") && strstr(end->out, "saved 1"), saved);
    good &= CHECK_EQ(program_orphans(patience), 0);
    if (!good)
        fprintf(stderr, "%s%s\n", end->err, end->out);
}

static void ranks_have_time_to_save(void)
{
    static const char *const modes[] = {"saves", "behind:behind:saves"};

    for (int i = 0; i < LEN(modes); i++) {
        program p = start_two(modes[i]);
        send_signal(p.pid, SIGTERM);
        check_terminated(&p, true);
    }
}

/* --drain: what all ranks have ended well after is no failure; anything else is as without. */
static void a_server_that_has_drained_has_not_failed(void)
{
    static const char *const modes[] = {"saves", "fails"};

    for (int i = 0; i < LEN(modes); i++) {
        program p = launch("--drain -n 2", modes[i]);
        process_of(&p, 0);
        process_of(&p, 1);
        send_signal(p.pid, SIGTERM);
        if (i == 1) {
            check_terminated(&p, true);
            continue;
        }
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 0);
        CHECK_TEXT(end->err, "");
        CHECK(strstr(end->out, "saved 0") && strstr(end->out, "saved 1"));
        CHECK_EQ(program_orphans(patience), 0);
    }
}

static void they_have_not_for_ever(void)
{
    setenv("SHERD_GRACE", "0", 1);
    program p = start_two("saves");
    send_signal(p.pid, SIGTERM);
    check_terminated(&p, false);
    setenv("SHERD_GRACE", "soon", 1);
    p = launch("-n 2", "saves");
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "SHERD_GRACE=soon") != NULL);
    unsetenv("SHERD_GRACE");
}

static void survivors_have_time_to_save(void)
{
    program p = launch("-n 2", "survives");

    process_of(&p, 0);
    send_signal(process_of(&p, 1), SIGKILL);
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 128 + SIGKILL);
    CHECK(strstr(end->out, "saved 0") != NULL);
    CHECK_TEXT(last_line(end->err), "sherd: rank 1 was killed by signal 9 (SIGKILL)\n");
    CHECK_EQ(end->left, 0);
}

/* As `nohup` and shells that start something in the background leave it. */
static void what_is_ignored_stays_ignored(void)
{
    static const int ignored[] = {SIGHUP, SIGINT};

    for (int i = 0; i < LEN(ignored); i++) {
        signal(ignored[i], SIG_IGN);
        program p = start_two("listens");
        signal(ignored[i], SIG_DFL);
        for (int r = 0; r < 2; r++)
            send_signal(process_of(&p, r), ignored[i]);
        send_signal(p.pid, ignored[i]);
        send_signal(p.pid, SIGUSR2); /* shows that it goes on */
        CHECK(program_says(&p, "usr2 0", patience) && program_says(&p, "usr2 1", patience));
        send_signal(p.pid, SIGTERM);
        check_terminated(&p, false);
    }
}

static void other_signals_are_passed_on(void)
{
    static const char *const modes[] = {"listens", "behind:listens", "grouped:listens"};

    for (int i = 0; i < LEN(modes); i++) {
        program p = start_two(modes[i]);
        send_signal(p.pid, SIGUSR1);
        CHECK(program_says(&p, "usr1 0", patience));
        send_signal(p.pid, SIGUSR2);
        CHECK(program_says(&p, "usr2 0", patience) && program_says(&p, "usr2 1", patience));
        send_signal(p.pid, SIGTERM);
        check_terminated(&p, false);
    }
}

/* A job that is suspended: the launcher may be stopped after a rank, and go on before it. */
static void time_in_which_the_launcher_is_stopped_does_not_count(void)
{
    /* The launcher has seen it, would take it for dead, and looks again: see watch.c. */
    enum { SEEN_MS = 120, STOPPED_MS = 500, AGAIN_MS = 50 };
    program p = start_two("listens");
    pid_t rank = process_of(&p, 1);

    send_signal(rank, SIGSTOP);
    pause_for(SEEN_MS);
    send_signal(p.pid, SIGSTOP);
    pause_for(STOPPED_MS);
    send_signal(p.pid, SIGCONT);
    pause_for(AGAIN_MS);
    send_signal(rank, SIGCONT);
    send_signal(p.pid, SIGUSR2); /* shows that it goes on */
    CHECK(program_says(&p, "usr2 0", patience) && program_says(&p, "usr2 1", patience));
    send_signal(p.pid, SIGTERM);
    check_terminated(&p, false);
}

/* ---- without a descriptor -------------------------------------------------------------------- */

static atomic_int *survivors; /* ranks that the signal has not reached */

static int end_parent(sherd_world *world, void *payload)
{
    (void)payload;
    if (sherd_world_rank(world) == 0)
        kill(getppid(), SIGTERM);
    pause_for(1000);
    atomic_fetch_add(survivors, 1);
    return 0;
}

/* Of so many files, the standard ones among them, and with so many ranks. */
static int spawn_with_files(rlim_t files, int ranks)
{
    sherd_world_options options = {.ranks = ranks, .as = SHERD_PROCESSES};
    struct rlimit limit = {files, files};
    int exit_status;

    for (int fd = 3; fd < 64; fd++)
        close(fd);
    return setrlimit(RLIMIT_NOFILE, &limit) ||
           sherd_spawn(&exit_status, &options, end_parent, NULL);
}

/*
 * A signal that can not be read from a descriptor ends the ranks all the same; and so does one that
 * can, where there are more ranks than files, and so none for each rank.
 */
static void signals_need_few_descriptors(void)
{
    static const struct {
        rlim_t files;
        int ranks;
    } cases[] = {{3, 2}, {4, 8}};
    int status = 0;

    survivors =
        mmap(NULL, sizeof *survivors, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(survivors != MAP_FAILED))
        return;
    for (int i = 0; i < LEN(cases); i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(spawn_with_files(cases[i].files, cases[i].ranks));
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        CHECK_EQ(atomic_load(survivors), 0);
    }
    munmap(survivors, sizeof *survivors);
}

static const check_test tests[] = {
    {TEST(ranks_have_time_to_save)},
    {TEST(a_server_that_has_drained_has_not_failed)},
    {TEST(they_have_not_for_ever)},
    {TEST(survivors_have_time_to_save)},
    {TEST(what_is_ignored_stays_ignored)},
    {TEST(other_signals_are_passed_on)},
    {TEST(time_in_which_the_launcher_is_stopped_does_not_count)},
    {TEST(signals_need_few_descriptors)},
};
LAUNCHED_MAIN(tests, play_rank)
