/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kernel refuses calls that sherd could do without: signals reach ranks behind wrappers,
 * and guards see the end of their rank, close what they have inherited, and end. What a rank has
 * mapped is gone before its process ends, so that tools that read all memory then (valgrind) end.
 */
#define CHECK_PURE
#include <errno.h>
#include <poll.h>

#include "launch/carried.h"
#include "launched.h"
#include "refused.h"
#include "world/arena.h"

static const double patience = 8;

/* ---- signals --------------------------------------------------------------------------------- */

static int play_rank(const char *mode)
{
    sherd_world *world;

    (void)mode;
    if (sherd_world_open(&world, NULL))
        return 21;
    say("rank", sherd_world_rank(world));
    program_pause(30);
    return sherd_world_close(world) ? 1 : 0;
}

static void signals_reach_ranks_behind_wrappers(void)
{
    static const struct {
        int call, reason;
    } cases[] = {{SYS_pidfd_send_signal, EPERM},
                 {SYS_pidfd_send_signal, ENOSYS},
                 {SYS_pidfd_open, ENOSYS},
                 {SYS_signalfd4, ENOSYS}};

    for (int i = 0; i < LEN(cases); i++) {
        char line[1024];
        snprintf(line, sizeof line, "%s without %d %d %s run -n 2 -- %s behind:waits", self,
                 cases[i].call, cases[i].reason, SHERD, self);
        program p = program_start(line);
        for (int r = 0; r < 2; r++)
            process_of(&p, r);
        double begin = program_clock();
        send_signal(p.pid, SIGTERM);
        const program_end *end = program_wait(&p);
        bool good = CHECK(program_clock() - begin < patience);
        good &= CHECK_EQ(end->status, 128 + SIGTERM);
        good &= CHECK_EQ(program_orphans(patience), 0);
        if (!good)
            fprintf(stderr, "call %d, errno %d: %s\n", cases[i].call, cases[i].reason, end->err);
    }
}

/* ---- guards ---------------------------------------------------------------------------------- */

static _Noreturn void die_under_guard(const sherd__arena *arena)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    dup2(nowhere, 2); /* where the guard says what it has seen */
    sherd__guard_post(arena, 1, (uint64_t)getpid());
    raise(SIGKILL);
    _exit(1);
}

/* 0: the end was told, and the pipe was closed; 1, 2: it was not. */
static int guard_without(int call, int reason)
{
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int line[2], fd = -1;

    if (!refuse(&call, 1, reason))
        return REFUSED_NOT;
    if (sherd__arena_create(&arena, 2, 0, &fd, &diag) || pipe(line))
        return 3;
    pid_t pid = fork();
    if (pid == 0)
        die_under_guard(&arena);
    close(line[1]);
    waitpid(pid, NULL, 0);
    struct pollfd other = {.fd = line[0], .events = POLLIN};
    if (poll(&other, 1, 500) != 1) /* the guard stays for a second */
        return 2;
    for (double end = program_clock() + patience; program_clock() < end; program_pause(0.002))
        if (sherd__look(&arena.control->death))
            return 0;
    return 1;
}

static void guards_see_their_rank_end(void)
{
    static const struct {
        int call, reason;
    } cases[] = {
        {SYS_close_range, ENOSYS}, {SYS_close_range, EPERM}, {SYS_set_robust_list, ENOSYS}};

    for (int i = 0; i < LEN(cases); i++) {
        int status = 0;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            _exit(guard_without(cases[i].call, cases[i].reason));
        waitpid(pid, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != REFUSED_NOT)
            CHECK_EQ(status, 0);
    }
}

/* ---- the end of a process -------------------------------------------------------------------- */

static bool looks; /* this process is a rank whose end is looked at */

/* Whether much memory is mapped that processes share. */
static bool has_arena(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    bool found = false;

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char kind[8];
        found |= sscanf(line, "%lx-%lx %7s", &begin, &end, kind) == 3 && kind[3] == 's' &&
                 end - begin > 64 << 20;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* In place of the C library's, for ranks that sherd_spawn forks. */
void _exit(int status)
{
    if (looks && has_arena())
        status = 55;
    for (;;)
        syscall(SYS_exit_group, status);
}

static int look_at_end(sherd_world *world, void *unused)
{
    (void)world;
    (void)unused;
    looks = true;
    return has_arena() ? 0 : 56;
}

static void nothing_is_mapped_when_a_process_ends(void)
{
    int value = -1;

    CHECK_OK(sherd_spawn(&value, &(sherd_world_options){.ranks = 2, .as = SHERD_PROCESSES},
                         look_at_end, NULL));
    CHECK_EQ(value, 0);
}

static const check_test tests[] = {
    {TEST(signals_reach_ranks_behind_wrappers)},
    {TEST(guards_see_their_rank_end)},
    {TEST(nothing_is_mapped_when_a_process_ends)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (getenv("SHERD_RANK") && argc > 1)
        return play_launched(argv[1], play_rank);
    refused_play(argc, argv);
    return check_main_apart(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
