/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of MPICH between machines. Before 4.2 MPI_Finalize closes each connection with a flush
 * that the other rank must answer, and then waits at its launcher's barrier, where it answers
 * nobody any more: over TCP programs of twenty lines hang there, every third time (pmodels/mpich,
 * pull request 6596). So what MPI_Finalize would tell the launcher is told here: hydra has a line
 * protocol on the descriptor PMI_FD, in which a rank meets the others and says that it has ended
 * well. While this rank waits at that barrier it asks MPI, so that what others still send arrives.
 */
#include "carrier.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256, ASK_MS = 1 };

/* The descriptor to the launcher; -1: there is none. */
static int launcher(void)
{
    const char *text = getenv("PMI_FD");
    char *end = NULL;
    long fd = text ? strtol(text, &end, 10) : -1;

    return fd < 0 || end == text || *end ? -1 : (int)fd;
}

/* A rank has one program: MPI_Init of a second would die of SIGPIPE, without a word. */
bool sherd__hydra_has_hung_up(void)
{
    struct pollfd file = {.fd = launcher(), .events = POLLIN};

    return file.fd >= 0 && poll(&file, 1, 0) == 1 && file.revents & (POLLHUP | POLLERR);
}

/* Whether MPI_Finalize may hang. */
static bool is_old_mpich(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length, major, minor;

    MPI_Get_library_version(text, &length);
    return sscanf(text, "MPICH Version: %d.%d", &major, &minor) == 2 &&
           (major < 4 || (major == 4 && minor < 2));
}

/* Collective. */
static bool is_one_machine(void)
{
    int here = 0, all = 0;
    MPI_Comm comm;

    MPI_Comm_size(MPI_COMM_WORLD, &all);
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm))
        return true;
    MPI_Comm_size(comm, &here);
    MPI_Comm_free(&comm);
    return here == all;
}

/* What the launcher says next; MPI goes on until then. False: it has gone. */
static bool hear(int fd, const char *expected)
{
    char line[LINE];
    size_t length = 0;
    int any;

    while (length + 1 < sizeof line) {
        struct pollfd file = {.fd = fd, .events = POLLIN};
        if (poll(&file, 1, ASK_MS) <= 0) {
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &any, MPI_STATUS_IGNORE);
            continue;
        }
        ssize_t n = read(fd, line + length, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != 1)
            return false;
        if (line[length++] == '\n')
            break;
    }
    return length >= strlen(expected) && memcmp(line, expected, strlen(expected)) == 0;
}

static bool say(int fd, const char *line)
{
    ssize_t n;

    do {
        n = write(fd, line, strlen(line));
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)strlen(line);
}

bool sherd__hydra_end(void)
{
    int fd = launcher();

    if (fd < 0 || !is_old_mpich() || is_one_machine())
        return false;
    return say(fd, "cmd=barrier_in\n") && hear(fd, "cmd=barrier_out") &&
           say(fd, "cmd=finalize\n") && hear(fd, "cmd=finalize_ack");
}
