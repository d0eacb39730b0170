/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says of processes. A pid alone names no process for long: with the time at which the
 * process began, and the pid namespace, it does. A file read costs some microseconds.
 */
#include "notice.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool sherd__read_file(const char *path, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t n = 0;

    out[0] = '\0';
    if (fd < 0)
        return false;
    while (length + 1 < room && (n = read(fd, out + length, room - 1 - length)) > 0)
        length += (size_t)n;
    out[length] = '\0';
    close(fd);
    return n >= 0;
}

bool sherd__process_look(int pid, sherd__process *out)
{
    char path[64] = "/proc/self/stat", text[1024];
    const char *at;
    unsigned long long start;

    memset(out, 0, sizeof *out);
    if (pid)
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!sherd__read_file(path, text, sizeof text) || !(at = strrchr(text, ')')))
        return false; /* the name before it may hold anything */
    if (sscanf(at + 1,
               " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &out->state, &start) != 2)
        return false;
    out->pid = pid ? pid : (int)getpid();
    out->start = start;
    return true;
}

uint64_t sherd__pid_space(void)
{
    struct stat space;

    return stat("/proc/self/ns/pid", &space) ? 0 : (uint64_t)space.st_ino;
}

/* A piece at a time: the groups of the user come before that line, and may be thousands. */
bool sherd__catches(int pid, int signal)
{
    enum { LINE = 64 }; /* bytes; it has less */
    char path[64], text[1024];
    unsigned long long caught = 0;
    bool found = false;
    size_t kept = 0;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !found && (n = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
        size_t length = kept + (size_t)n;
        text[length] = '\0';
        const char *at = strstr(text, "\nSigCgt:");
        found = at && strchr(at + 1, '\n') && sscanf(at, "\nSigCgt: %llx", &caught) == 1;
        kept = length < LINE ? length : LINE;
        memmove(text, text + length - kept, kept);
    }
    if (fd >= 0)
        close(fd);
    return caught >> (signal - 1) & 1;
}
