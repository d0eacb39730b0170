/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that start programs: what a program printed, how it ended, how long it took, and whether
 * anything of it is left. The test becomes the parent of whatever a program leaves behind, so that
 * no process can hide.
 */
#ifndef SHERD_PROGRAM_H
#define SHERD_PROGRAM_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define GPT   SHERD_BUILD_DIR "/examples/gpt"
#define HEAT  SHERD_BUILD_DIR "/examples/heat"
#define SHERD SHERD_BUILD_DIR "/sherd"

enum { PROGRAM_ARGS = 64, PROGRAM_TEXT = 1 << 16 };

typedef struct program {
    pid_t pid;
    int out, err; /* memory files */
    double begin;
} program;

typedef struct program_end {
    int status; /* exit status, or 128 + signal */
    double seconds;
    int left; /* processes that outlived it */
    char out[PROGRAM_TEXT], err[PROGRAM_TEXT];
} program_end;

static inline double program_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void program_pause(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

/* Where several processes write at once: each write goes to the end, or they would overwrite each
 * other. */
static inline int program_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

/* `line`: program and arguments, separated by single blanks; `in`, `out`: its standard input and
 * output. pid -1 if it can't be started. */
static inline program program_start_with(const char *line, const char *in, int out)
{
    program p = {.pid = -1, .out = out, .err = program_file("err")};
    char *copy = strdup(line), *rest = copy, *argv[PROGRAM_ARGS + 1] = {NULL};
    posix_spawn_file_actions_t actions;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < PROGRAM_ARGS && rest; i++)
        argv[i] = strsep(&rest, " ");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, in, O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, p.out, 1);
    posix_spawn_file_actions_adddup2(&actions, p.err, 2);
    p.begin = program_clock();
    if (posix_spawn(&p.pid, argv[0], &actions, NULL, argv, environ) != 0)
        p.pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    free(copy);
    return p;
}

static inline program program_start_to(const char *line, int out)
{
    return program_start_with(line, "/dev/null", out);
}

static inline program program_start(const char *line)
{
    return program_start_to(line, program_file("out"));
}

/* Send a signal to a program, unless it could not be started: kill(-1) would reach every process. */
static inline void program_kill(const program *p, int signal)
{
    if (p->pid > 0)
        kill(p->pid, signal);
}

/* What is in a memory file so far. */
static inline void program_read(int fd, char *text)
{
    ssize_t n = pread(fd, text, PROGRAM_TEXT - 1, 0);
    text[n < 0 ? 0 : n] = 0;
}

/* Whether a text is printed on standard output within some seconds. */
static inline bool program_says(const program *p, const char *text, double seconds)
{
    static char seen[PROGRAM_TEXT];
    double end = program_clock() + seconds;

    do {
        program_read(p->out, seen);
        if (strstr(seen, text))
            return true;
        program_pause(0.005);
    } while (program_clock() < end);
    return false;
}

/* What a file of /proc says of a process, on one line. */
static inline void program_proc(int process, const char *name, char *out, size_t room)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(out, 1, room - 1, file) : 0;
    if (file)
        fclose(file);
    for (out[n] = 0; n > 0; n--)
        if (out[n - 1] == '\0' || out[n - 1] == '\n')
            out[n - 1] = ' ';
}

/* Print all processes below this one: what they are, what they wait in, whose they are. */
static inline void program_print_below(int parent)
{
    char stat[512], what[512], waits[64], call[128], state;
    DIR *all = opendir("/proc");
    int its, group, session;

    for (struct dirent *one; all && (one = readdir(all));) {
        int process = atoi(one->d_name);
        if (process <= 0)
            continue;
        program_proc(process, "stat", stat, sizeof stat);
        char *at = strrchr(stat, ')'); /* behind its name */
        if (!at || sscanf(at + 1, " %c %d %d %d", &state, &its, &group, &session) != 4 ||
            its != parent)
            continue;
        at[1] = 0;
        program_proc(process, "cmdline", what, sizeof what);
        program_proc(process, "wchan", waits, sizeof waits);
        program_proc(process, "syscall", call, sizeof call);
        fprintf(stderr, "left: process %s (parent %d, group %d, session %d): %s; %c in %s, %s\n",
                stat, parent, group, session, what, state, waits, call);
        program_print_below(process);
    }
    if (all)
        closedir(all);
}

/* Processes that are children of this one: what a program left, once it has been waited for. Gives
 * them `seconds` to end; those that take longer are printed. */
static inline int program_orphans(double seconds)
{
    double end = program_clock() + seconds;
    bool late;
    pid_t pid;

    do {
        late = program_clock() >= end; /* before it looks: this process may have to wait, too */
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0 && !late)
            program_pause(0.005);
    } while (pid > 0 ? seconds > 0 : pid == 0 && !late);
    if (pid >= 0 && seconds > 0)
        program_print_below((int)getpid());
    return pid < 0 ? 0 : 1;
}

/* Wait for its end, while others go on: what it leaves behind is not counted. */
static inline void program_join(program *p, program_end *end)
{
    int status = 0;

    end->status = -1;
    end->left = 0;
    if (p->pid > 0 && waitpid(p->pid, &status, 0) == p->pid)
        end->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    end->seconds = program_clock() - p->begin;
    program_read(p->out, end->out);
    program_read(p->err, end->err);
    close(p->out);
    close(p->err);
}

/*
 * The leak sanitizer looks at a process from another one, which outlives by a moment a rank that is
 * killed meanwhile.
 */
#if defined(__SANITIZE_ADDRESS__)
enum { PROGRAM_MOMENT = 2 };
#else
enum { PROGRAM_MOMENT = 0 };
#endif

/* Wait for its end. The result is valid until the next call. */
static inline const program_end *program_wait(program *p)
{
    static program_end end;

    program_join(p, &end);
    end.left = program_orphans(PROGRAM_MOMENT);
    return &end;
}

static inline const program_end *program_run(const char *line)
{
    program p = program_start(line);
    return program_wait(&p);
}

static inline int program_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* How often a text stands in another. */
static inline int times(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

#endif
