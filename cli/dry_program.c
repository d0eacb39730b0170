/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry: a program as one rank, from its start to what its worlds have reported, which they
 * append to a file without a name.
 */
#include "dry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The rank, of how many if that was said, and where its report goes. */
static bool set_rank(long rank, long of, int report)
{
    char text[64], path[64];

    snprintf(text, sizeof text, of ? "%ld/%ld" : "%ld", rank, of);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), report);
    return setenv("SHERD_DRY", text, 1) == 0 && setenv("SHERD_DRY_REPORT", path, 1) == 0;
}

/* In the child: where what it prints goes. */
static bool redirect(cli_dry_output output)
{
    int nowhere;

    if (output == CLI_DRY_AS_IT_IS)
        return true;
    if (output == CLI_DRY_TO_ERRORS)
        return dup2(2, 1) == 1;
    nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return nowhere >= 0 && dup2(nowhere, 1) == 1 && dup2(nowhere, 2) == 2;
}

/* Its status, as of waitpid; -1 and errno if it can not be started. */
static int run(char **argv, cli_dry_output output)
{
    int status = 0, error = 0, line[2];

    if (pipe2(line, O_CLOEXEC))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (redirect(output))
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
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
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

void cli_dry_end_text(char *out, size_t room, long rank, int status)
{
    if (WIFSIGNALED(status))
        snprintf(out, room, "rank %ld was killed by signal %d (%s)", rank, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(out, room, "rank %ld exited with status %d", rank, WEXITSTATUS(status));
}

int cli_dry_program(char **argv, long rank, long of, cli_dry_output output, char **report)
{
    int file = memfd_create("sherd dry", MFD_CLOEXEC);
    int status = file >= 0 && set_rank(rank, of, file) ? run(argv, output) : -1, error = errno;

    *report = status < 0 ? NULL : read_report(file);
    if (file >= 0)
        close(file);
    errno = error;
    return status;
}
