/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry: a program as one rank, from its start to what its worlds have reported, which they
 * append to a file without a name; and what it said last, if it ended badly.
 */
#include "dry.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diag.h"
#include "world/inside.h"
#include "world/shared_file.h"

/* The rank, of how many if that was said, and where its report goes. */
static bool set_rank(long rank, long of, int report)
{
    char text[64], path[64];

    snprintf(text, sizeof text, of ? "%ld/%ld" : "%ld", rank, of);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), report);
    return setenv("SHERD_DRY", text, 1) == 0 && setenv("SHERD_DRY_REPORT", path, 1) == 0;
}

/* In the child: where what it prints goes; `errors`: the file that standard error goes to. */
static bool redirect(cli_dry_output output, int errors)
{
    int nowhere;

    if (output == CLI_DRY_AS_IT_IS)
        return true;
    if (output == CLI_DRY_TO_ERRORS)
        return dup2(2, 1) == 1;
    nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return nowhere >= 0 && dup2(nowhere, 1) == 1 && dup2(errors, 2) == 2;
}

/* Pass on a signal that has come, if any. */
static void pass_signal(pid_t child, int file, cli_dry_signals *signals)
{
    struct signalfd_siginfo info;

    if (!sherd__signals_next(&signals->taken, file, &info))
        return;
    if (info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2)
        signals->last = (int)info.ssi_signo;
    /* A terminal has sent it to both. */
    if (info.ssi_code != SI_KERNEL || getpgid(child) != getpgrp())
        kill(child, (int)info.ssi_signo);
}

/* Wait for the end of a child, passing on signals; returns its status, as of waitpid. */
static int wait_for(pid_t child, cli_dry_signals *signals)
{
    struct pollfd fds[] = {
        {.fd = signalfd(-1, &signals->taken.taken, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN},
        {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN},
    };
    int status = 0;

    bool blind = fds[0].fd < 0 || fds[1].fd < 0; /* the kernel refuses one of them */

    while (waitpid(child, &status, WNOHANG) == 0) {
        poll(fds, 2, blind ? 10 : -1);
        pass_signal(child, fds[0].fd, signals);
    }
    for (int i = 0; i < 2; i++)
        if (fds[i].fd >= 0)
            close(fds[i].fd);
    return status;
}

/* Its status, as of waitpid; -1 and errno if it can not be started. */
static int run(char **argv, cli_dry_output output, int errors, cli_dry_signals *signals)
{
    int status = 0, error = 0, line[2];

    if (pipe2(line, O_CLOEXEC))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        sherd__signals_give_back(&signals->taken);
        if (redirect(output, errors))
            execvp(argv[0], argv);
        error = errno;
        ssize_t told = write(line[1], &error, sizeof error);
        (void)told; /* then it has an exit status */
        _exit(127);
    }
    error = child < 0 ? errno : 0;
    close(line[1]);
    if (child > 0 && read(line[0], &status, sizeof status) == sizeof status)
        error = status;
    close(line[0]);
    if (child > 0)
        status = wait_for(child, signals);
    errno = error;
    return error ? -1 : status;
}

/* All that was reported, ended by a zero; NULL: no memory. The caller frees it. */
static char *read_report(int report)
{
    off_t bytes = lseek(report, 0, SEEK_END);
    char *text = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    ssize_t have = 0, n = 1;

    while (text && have < bytes && n > 0) {
        n = pread(report, text + have, (size_t)(bytes - have), have);
        have += n > 0 ? n : 0;
    }
    if (text)
        text[have] = '\0';
    return text;
}

/* ---- its end --------------------------------------------------------------------------------- */

/* The last line of a file that says something, in out[room]. */
static void read_last_line(char *out, size_t room, int file)
{
    char text[4096];
    off_t bytes = lseek(file, 0, SEEK_END);
    off_t from = bytes < (off_t)sizeof text ? 0 : bytes - (off_t)sizeof text + 1;
    ssize_t n = pread(file, text, sizeof text - 1, from);

    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        n--;
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, '\n');
    snprintf(out, room, "%.*s", (int)room - 1, end ? end + 1 : text);
    sherd__one_line(out);
}

/* The failure of the last world that reports one, in out[room]. */
static void find_failure(char *out, size_t room, const char *report)
{
    for (const char *line = report; line && *line; line += strcspn(line, "\n") + 1) {
        json_t *world = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const char *text = json_string_value(json_object_get(world, "failure"));
        if (text)
            snprintf(out, room, "%s", text);
        json_decref(world);
    }
}

void cli_dry_end_text(char *out, size_t room, long rank, const cli_dry_end *end)
{
    int n, status = end->status;

    if (WIFSIGNALED(status))
        n = snprintf(out, room, "rank %ld was killed by signal %d (%s)", rank, WTERMSIG(status),
                     sherd__signal_name(WTERMSIG(status)));
    else
        n = snprintf(out, room, "rank %ld exited with status %d", rank, WEXITSTATUS(status));
    if (*end->said && (size_t)n < room)
        snprintf(out + n, room - (size_t)n, ": %s", end->said);
}

void cli_dry_program(cli_dry_end *out, const cli_dry_asked *ranks, int i, char **argv,
                     cli_dry_output output)
{
    const char *where;
    int file = sherd__shared_file(0, &where), errors = sherd__shared_file(0, &where);
    bool ready = file >= 0 && errors >= 0 && set_rank(ranks->which[i], ranks->of, file);

    *out = (cli_dry_end){.status = ready ? run(argv, output, errors, ranks->signals) : -1};
    int error = errno;
    out->report = out->status < 0 ? NULL : read_report(file);
    if (out->status > 0)
        read_last_line(out->said, sizeof out->said, errors);
    if (out->status > 0 && !*out->said && WIFEXITED(out->status))
        find_failure(out->said, sizeof out->said, out->report);
    if (file >= 0)
        close(file);
    if (errors >= 0)
        close(errors);
    errno = error;
}
