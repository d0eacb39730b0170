/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watcher forks a process for each round, which is the parent of its ranks. It strikes ranks
 * (or that parent) where the round is about that, and ends a round in which nothing goes on for ten
 * seconds. Time in which the round's threads were ready to run but got no core does not count: the
 * machine may be busy with other things. As a subreaper the watcher inherits whatever a round
 * leaves behind.
 */
#include "watch.h"

#include "cores.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANG_SECONDS = 10, TOLD_SECONDS = 2, LAUNCHER_SECONDS = 4, LEFT_SECONDS = 10, TICK_MS = 50 };

typedef struct watch {
    const round_plan *r;
    board *b;
    outcome *out;
    pid_t pid;
    int fd;
    double start, moved; /* when something last went on */
    unsigned steps;
    bool looked;
    cores then; /* what the round's threads had waited for a core by then, if looked */
    cores now;
    double lost;   /* the most that one of them has waited since: who ends takes it along */
    cores before;  /* the same at the blow */
    double robbed; /* since the blow */
    bool struck;
} watch;

double now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void complain(watch *w, const char *format, ...)
{
    va_list arguments;

    if (w->out->bad)
        return;
    w->out->bad = true;
    va_start(arguments, format);
    vsnprintf(w->out->wrong, sizeof w->out->wrong, format, arguments);
    va_end(arguments);
}

/* ---- time that is not the round's own -------------------------------------------------------- */

/* All processes of the round together: each may have waited for another's turn. */
static void look(cores *all, const watch *w)
{
    all->processes = all->threads = 0;
    cores_add(all, w->pid);
    for (int r = 0; r < w->r->ranks && !w->r->threads; r++) {
        int pid = atomic_load(&w->b->rank[r].pid); /* also where who has started it is gone */
        if (pid)
            cores_add(all, pid);
    }
}

static unsigned steps_of(const watch *w)
{
    unsigned steps = 0;

    for (int r = 0; r < w->r->ranks; r++)
        steps += atomic_load(&w->b->rank[r].steps);
    return steps;
}

/* Where everybody is, for who has to find out why. */
static void complain_of_hang(watch *w, double pause)
{
    char text[600];
    size_t at = 0;

    text[0] = '\0';
    for (int r = 0; r < w->r->ranks && at < sizeof text; r++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %d:%d", r,
                               atomic_load(&w->b->rank[r].at));
    complain(w, "a hang: nothing has gone on for %.1f s; rank:operation%s", pause, text);
    if (w->r->mpi[0] &&
        system("ps -eo pid,ppid,stat,wchan:24,etimes,args | grep -a -e rank-of -e mpirun >&2"))
        fprintf(stderr, "ps is not here\n");
}

/* Whether the round stands still for too long. */
static bool hangs(watch *w)
{
    double now = now_seconds(), pause;
    unsigned steps = steps_of(w);

    if (steps != w->steps) {
        w->steps = steps;
        w->moved = now;
        w->looked = false;
        w->lost = 0;
        return false;
    }
    if (now - w->moved < 0.5)
        return false;
    look(&w->now, w);
    if (!w->looked || w->now.processes != w->then.processes) {
        w->moved = w->looked ? now : w->moved; /* who starts or ends has gone on, too */
        w->looked = true;
        w->then = w->now;
        w->lost = 0;
    }
    w->lost = fmax(w->lost, cores_lost(&w->then, &w->now));
    pause = now - w->moved - w->lost;
    w->out->pause = pause > w->out->pause ? pause : w->out->pause;
    if (pause < HANG_SECONDS)
        return false;
    complain_of_hang(w, pause);
    return true;
}

/* ---- blows ----------------------------------------------------------------------------------- */

static bool all_are_there(const watch *w)
{
    for (int r = 0; r < w->r->ranks; r++)
        if (!atomic_load(&w->b->rank[r].pid))
            return false;
    return true;
}

static void strike(watch *w)
{
    const round_plan *r = w->r;

    usleep((useconds_t)r->delay_us);
    look(&w->before, w);
    atomic_store(&w->b->struck_at, (int64_t)(1e9 * now_seconds()));
    w->struck = true;
    if (r->kind == ROUND_ORPHANED) {
        kill(w->pid, r->signal);
    } else if (r->kind == ROUND_PAUSED) {
        kill(-w->pid, SIGSTOP);
        usleep((useconds_t)r->pause_us);
        kill(-w->pid, SIGCONT);
        usleep((useconds_t)r->delay_us);
        atomic_store(&w->b->stop, 1);
    } else {
        kill(atomic_load(&w->b->rank[r->victim].pid), r->signal);
    }
}

/* Everybody who is left has to know soon. */
static void judge_told(watch *w)
{
    int64_t struck = atomic_load(&w->b->struck_at);

    for (int r = 0; r < w->r->ranks; r++) {
        int64_t told = atomic_load(&w->b->rank[r].closed_at);
        double after = told && struck ? 1e-9 * (double)(told - struck) : 0;
        w->out->told = after > w->out->told ? after : w->out->told;
    }
    if (w->out->told > TOLD_SECONDS + w->robbed)
        complain(w, "the last rank was told after %.2f s", w->out->told);
}

/* ---- the process ----------------------------------------------------------------------------- */

static _Noreturn void be_round(const round_plan *r, board *b, int output, bool print)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGTERM, SIGINT, SIGHUP};
    const struct rlimit none = {0, 0};

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (r->kind == ROUND_KILLED || r->kind == ROUND_ORPHANED)
            signal(signals[i], SIG_DFL); /* also where a sanitizer listens */
    if (!print) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    close(output);
    round_run(r, b, print);
    exit(b->wrong[0] != '\0');
}

/* Wait until the round's process ends; kill all of it if it hangs. */
static void wait_for_end(watch *w)
{
    bool strikes = round_loops(w->r);

    for (;;) {
        struct pollfd fd = {.fd = w->fd, .events = POLLIN};
        int ready = poll(&fd, 1, strikes && !w->struck ? 1 : TICK_MS);
        if (ready > 0)
            return;
        if (strikes && !w->struck && all_are_there(w))
            strike(w);
        else if (w->struck) {
            look(&w->now, w);
            w->robbed = fmax(w->robbed, cores_lost(&w->before, &w->now));
        }
        if (hangs(w)) {
            kill(-w->pid, SIGKILL);
            return;
        }
    }
}

static void judge_exit(watch *w, int status)
{
    const round_plan *r = w->r;

    if (w->b->wrong[0])
        complain(w, "%s", w->b->wrong);
    if (r->kind == ROUND_ORPHANED && w->struck)
        return; /* it was killed, or has told its ranks and then itself */
    if (WIFSIGNALED(status))
        complain(w, "the round's process was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        complain(w, "the round's process exited with status %d", WEXITSTATUS(status));
}

/* Whatever the round has left comes to this process. Ranks without a launcher may take two seconds
 * to end. */
static void judge_leftovers(watch *w)
{
    /* mpirun's processes go one by one */
    double patience = w->r->mpi[0]                   ? LAUNCHER_SECONDS
                      : w->r->kind == ROUND_ORPHANED ? TOLD_SECONDS
                                                     : 0;
    double start = now_seconds();
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        bool early = w->out->bad || now_seconds() - start < patience;
        if (pid > 0 && !early && patience == 0)
            complain(w, "left behind: process %d, which nobody had asked how it ended", (int)pid);
        if (pid > 0)
            continue;
        if (!early)
            complain(w, "left behind: a process that goes on");
        if (w->out->bad)
            kill(-w->pid, SIGKILL);
        if (now_seconds() - start > LEFT_SECONDS)
            return; /* in a session of its own */
        usleep(500);
    }
}

void watch_round(outcome *out, const round_plan *r, board *b, int output, bool print)
{
    watch w = {.r = r, .b = b, .out = out};
    int status = 0;

    memset(out, 0, sizeof *out);
    fflush(NULL);
    w.start = w.moved = now_seconds();
    w.pid = fork();
    if (w.pid == 0)
        be_round(r, b, output, print);
    if (w.pid < 0) {
        complain(&w, "no process: %s", strerror(errno));
        return;
    }
    w.fd = (int)syscall(SYS_pidfd_open, w.pid, 0);
    wait_for_end(&w);
    close(w.fd);
    waitpid(w.pid, &status, 0);
    if (!out->bad)
        judge_exit(&w, status);
    judge_told(&w);
    judge_leftovers(&w);
    out->seconds = now_seconds() - w.start;
}

int shared_files(void)
{
    DIR *dir = opendir("/dev/shm");
    int count = 0;

    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        count += strstr(e->d_name, "sherd") != NULL;
    if (dir)
        closedir(dir);
    return count;
}
