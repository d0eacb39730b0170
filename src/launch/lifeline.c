/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life-line: ranks end with their launcher, also those that it did not start itself but a
 * program between (a shell, a wrapper). The launcher alone can write to a pipe and never does; when
 * it is gone, however it went, the pipe hangs up, and the kernel sends SIGKILL to each process that
 * asked for that on its reading end. No thread, no waiting: a rank that computes and never calls
 * sherd ends too.
 *
 * The direct children of a launcher have the kernel's word for it (PR_SET_PDEATHSIG) before they
 * join.
 */
#include "watch.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sherd_status sherd__lifeline_create(sherd__control *control, int line[2], sherd__diag *diag)
{
    struct stat pipe;

    if (pipe2(line, O_CLOEXEC) || fstat(line[0], &pipe))
        return sherd__fail(diag, SHERD_ENOMEM, "no pipe: %s", strerror(errno));
    control->line = line[0];
    control->line_node = (uint64_t)pipe.st_ino;
    return SHERD_OK;
}

/*
 * The reading end, opened anew: what is set on it must not be set for others that inherited the
 * same one. -1: it is not there, or some other pipe has its number now.
 */
static int open_end(const sherd__control *control, const char *path)
{
    struct stat pipe;
    int fd;

    if (stat(path, &pipe) || !S_ISFIFO(pipe.st_mode) || (uint64_t)pipe.st_ino != control->line_node)
        return -1;
    fd = sherd__open_file(path, O_RDONLY | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &pipe) || (uint64_t)pipe.st_ino != control->line_node)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether a life-line is held by this process already. */
static bool is_held(const sherd__control *control, int fd)
{
    struct stat pipe;
    struct f_owner_ex owner;

    return fd >= 0 && fstat(fd, &pipe) == 0 && (uint64_t)pipe.st_ino == control->line_node &&
           fcntl(fd, F_GETSIG) == SIGKILL && fcntl(fd, F_GETOWN_EX, &owner) == 0 &&
           owner.pid == getpid();
}

int sherd__lifeline_hold(const sherd__control *control, int held)
{
    struct f_owner_ex owner = {F_OWNER_PID, getpid()};
    struct pollfd hangs = {.events = POLLIN};
    char path[64];
    int fd;

    if (!control->line_node || is_held(control, held))
        return control->line_node ? held : -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", control->line);
    fd = open_end(control, path);
    if (fd >= 0) {
        fcntl(control->line, F_SETFD, FD_CLOEXEC); /* what this program starts is no rank */
    } else {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", control->launcher, control->line);
        fd = open_end(control, path);
    }
    if (fd < 0)
        return -1;
    if (fcntl(fd, F_SETOWN_EX, &owner) || fcntl(fd, F_SETSIG, SIGKILL) ||
        fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC)) {
        close(fd);
        return -1;
    }
    hangs.fd = fd;
    if (poll(&hangs, 1, 0) > 0)
        kill(getpid(), SIGKILL); /* it was gone before the kernel knew that this rank minds */
    return fd;
}
