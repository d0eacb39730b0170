/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sherd run`: ranks as programs. They find the arena through a memfd whose number is in the
 * environment (join.c). This process starts them, watches them (watch.c), and says in its last line
 * what came of them (ending.c). A few milliseconds for eight ranks.
 */
#include "carried.h"
#include "flight.h"
#include "launch.h"
#include "world/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* All that a launch holds, until all ranks have ended. */
typedef struct launch {
    const sherd__launch_options *options;
    sherd__heap heap;
    sherd__arena arena;
    int fd;              /* of the arena: ranks that have lost theirs find it here */
    int line[2];         /* the life-line: nobody else can write to line[1] */
    struct rlimit files; /* as ranks have it; all 0: as it is */
    sherd__core_locks cores;
    sherd__output output;
    sherd__signals signals;
    sherd__child child[SHERD_MAX_RANKS];
    struct pollfd fds[2 * SHERD_MAX_RANKS + 1 + SHERD__OUTPUT_FDS];
    sherd__rank_watch watch;
} launch;

/* ---- a program ------------------------------------------------------------------------------- */

static bool set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    return setenv(name, text, 1) == 0;
}

/* The environment and the files of a launched program; join.c reads them. */
static bool set_environment(const launch *l, int rank)
{
    const sherd__control *control = l->arena.control;
    char launcher[96];

    snprintf(launcher, sizeof launcher, "%d %llu %llu", control->launcher,
             (unsigned long long)control->launcher_start,
             (unsigned long long)sherd__carrier_marks());
    return set_number("SHERD_ARENA_FD", l->fd) && set_number("SHERD_RANK", rank) &&
           set_number("SHERD_RANKS", l->options->ranks) &&
           setenv("SHERD_LAUNCHER", launcher, 1) == 0 && fcntl(l->fd, F_SETFD, 0) == 0 &&
           fcntl(l->line[0], F_SETFD, 0) == 0;
}

static _Noreturn void run_program(const launch *l, int rank, int report)
{
    char *const *argv = l->options->argv;

    if (sherd__output_enter(&l->output, rank) && set_environment(l, rank) &&
        (!l->files.rlim_max || setrlimit(RLIMIT_NOFILE, &l->files) == 0))
        execvp(argv[0], argv);
    int reason = errno;
    if (write(report, &reason, sizeof reason) < 0)
        _exit(126);
    _exit(127);
}

/* Forks all; how many it could. */
static int fork_programs(launch *l, int report)
{
    pid_t parent = getpid();

    for (int r = 0; r < l->options->ranks; r++) {
        l->child[r].pid = fork();
        if (l->child[r].pid == 0) {
            sherd__be_child(parent, &l->signals);
            run_program(l, r, report);
        }
        if (l->child[r].pid < 0)
            return r;
    }
    return l->options->ranks;
}

/*
 * Starts all, and waits until they have become the program, which closes their ends of the pipe; if
 * one can not, none is left.
 */
static sherd_status start_programs(launch *l, sherd__diag *diag)
{
    int report[2], reason = 0, ranks = l->options->ranks;

    if (pipe2(report, O_CLOEXEC))
        return sherd__fail(diag, SHERD_ENOMEM, "no pipe: %s", strerror(errno));
    int started = fork_programs(l, report[1]);
    int cause = errno;
    close(report[1]);
    if (started < ranks) {
        sherd__fail(diag, SHERD_ENOMEM, "process %d of %d does not start: %s", started, ranks,
                    strerror(cause));
    } else if (read(report[0], &reason, sizeof reason) == (ssize_t)sizeof reason) {
        sherd__fail(diag, SHERD_EINVAL, "can not run %s: %s", l->options->argv[0],
                    strerror(reason));
    }
    close(report[0]);
    if (diag->status)
        sherd__end_children(l->child, started);
    return diag->status;
}

/* ---- the launch ------------------------------------------------------------------------------ */

/*
 * Fill closed descriptors 0 to 2 with /dev/null, so that no descriptor of the launch gets such a
 * number: ranks get new standard files. All ranks but 0 read from /dev/null too.
 */
static sherd_status keep_standard_files(sherd__diag *diag)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (fd >= 0 && fd <= 2);
    if (fd < 0)
        return sherd__fail(diag, SHERD_ENOTSUP,
                           "ranks read from /dev/null, which does not open: %s", strerror(errno));
    close(fd);
    return SHERD_OK;
}

/*
 * Raise the limit of open files: the pipes and pidfds of many ranks are more than shells usually
 * allow.
 */
static void allow_files(launch *l)
{
    struct rlimit most;

    if (getrlimit(RLIMIT_NOFILE, &l->files))
        return;
    most = l->files;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

static sherd_status open_arena(launch *l, sherd__diag *diag)
{
    sherd__process self;

    if (sherd__arena_create(&l->arena, l->options->ranks, 0, &l->fd, diag))
        return diag->status;
    (void)sherd__process_look(0, &self);
    l->arena.control->launcher = (int)getpid();
    l->arena.control->launcher_start = self.start;
    l->arena.control->launcher_space = sherd__pid_space();
    return sherd__lifeline_create(l->arena.control, l->line, diag);
}

static sherd_status prepare(launch *l, sherd__diag *diag)
{
    const sherd__launch_options *o = l->options;

    if (o->ranks < 1)
        return sherd__fail(diag, SHERD_EINVAL, "%d ranks: at least 1", o->ranks);
    if (o->ranks > SHERD_MAX_RANKS)
        return sherd__fail(diag, SHERD_ELIMIT, "%d ranks are more than the %d that sherd supports",
                           o->ranks, SHERD_MAX_RANKS);
    if (keep_standard_files(diag))
        return diag->status;
    allow_files(l);
    if (!(l->watch.flight = sherd__alloc(&l->heap, 1, sizeof(sherd__flight))))
        return sherd__no_memory(diag, "sherd run");
    if (sherd__grace_read(&l->watch.grace_ns, diag) || open_arena(l, diag) ||
        sherd__output_open(&l->output, o->ranks, o->prefix, o->logs, diag) ||
        sherd__trace_begin(diag) || (o->cores && sherd__cores_confine(o->cores, diag)))
        return diag->status;
    sherd__cores_take(&l->cores, l->arena.control);
    return SHERD_OK;
}

static void close_launch(launch *l)
{
    const int fds[] = {l->fd, l->line[0], l->line[1]};

    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    sherd__cores_give(&l->cores);
    sherd__output_close(&l->output);
    sherd__free(&l->heap, l->watch.flight);
    sherd__arena_unmap(&l->arena);
}

/*
 * Print why the exit status is not 0, as the last line, after the flight record. A slow reader is
 * waited for, unless a signal has asked for the end.
 */
static int say_cause(launch *l, int code)
{
    const int64_t patience = INT64_C(10000000000);
    char text[2 * SHERD_ERROR_BYTES];
    const sherd__rank_watch *w = &l->watch;
    int lost = l->output.failed;

    bool drained = l->options->drain && !code;

    if (w->signal && !w->lost_first && !drained) {
        snprintf(text, sizeof text, "ended by signal %d (%s)", w->signal,
                 sherd__signal_name(w->signal));
    } else if (code) {
        sherd__recorder_tell(w);
        sherd__output_finish(&l->output, w->signal ? 0 : patience);
        sherd__cause_text(&l->arena, l->child, text, sizeof text);
        if (lost && lost != EPIPE) /* with EPIPE the reader is gone, and nobody needs to be told */
            fprintf(stderr, "sherd: output of the ranks is lost: %s\n", strerror(lost));
    } else if (lost) {
        snprintf(text, sizeof text, "output of the ranks is lost: %s", strerror(lost));
        code = 1;
    } else {
        return 0;
    }
    fprintf(stderr, "sherd: %s\n", text);
    return code;
}

/* The exit status, or a failure to start. */
static int run(launch *l, sherd__diag *diag)
{
    l->watch.arena = &l->arena;
    l->watch.child = l->child;
    l->watch.fds = l->fds;
    l->watch.ranks = l->options->ranks;
    l->watch.signals = &l->signals;
    l->watch.launcher = true;
    l->watch.output = &l->output;
    l->watch.recorded = l->options->recorded;
    l->watch.payload = l->options->payload;
    if (start_programs(l, diag))
        return diag->status;
    sherd__output_begin(&l->output);
    sherd__watch_all(&l->watch);
    return say_cause(l, sherd__exit_status(&l->arena, l->child, l->watch.ranks));
}

int sherd__launch(const sherd__launch_options *options, sherd__diag *diag)
{
    sherd__heap heap = {0};
    launch *l = sherd__alloc(&heap, 1, sizeof *l); /* too large for a small stack */

    if (!l)
        return sherd__no_memory(diag, "sherd run");
    *l = (launch){.options = options, .fd = -1, .line = {-1, -1}};
    int code = prepare(l, diag);
    if (!code) {
        sherd__signals_take(&l->signals, true);
        code = run(l, diag);
        sherd__signals_give_back(&l->signals);
    }
    close_launch(l);
    /* 0: all ranks have ended well, and nothing that they wrote is lost. */
    int signal = options->drain && !code ? 0 : l->watch.signal;
    sherd__free(&heap, l);
    if (signal)
        raise(signal);
    return signal ? 128 + signal : code;
}
