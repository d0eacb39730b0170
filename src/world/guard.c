/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a process that watches over ranks which a launcher of MPI has started. That one ends the job when a rank dies,
 * but not every one says which rank it was, and none tells the others, who could save what they have. The guard is nobody's
 * child (a rank must not find one that it did not start) and in a session of its own (a launcher that ends the job's
 * processes would end it before it has said a word). It sleeps in poll() and costs nothing.
 */
#include "inside.h"
#include "carried.h"
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank's process, which is waiting to join; -1: the kernel can not watch over it. */
static int open_process(const sherd__post *post)
{
    int pid = (int)sherd__look(&post->pid);

    return pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* Close the world for the others; the one line says who, and where. */
static void tell(sherd__arena *arena, int rank)
{
    char host[64] = "?", text[SHERD_ERROR_BYTES], line[SHERD_ERROR_BYTES + 128];

    sherd__end_world(arena, sherd__end_word(SHERD__END_VANISHED, rank, 0, SHERD_EPEER));
    sherd__end_text(arena->control, sherd__look(&arena->control->death), text, sizeof text);
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(line, sizeof line, "sherd: host %s: %s\n", host, text);
    if (n > 0 && write(2, line, (size_t)n) < 0)
        return;
}

/* The process of a rank is over. */
static void look_at(sherd__arena *arena, int rank)
{
    if (atomic_load(&arena->control->post[rank].presence) != SHERD__GONE &&
        !sherd__look(&arena->control->death))
        tell(arena, rank);
}

/* Until all have ended, or rank 0 has closed the world, which all do together; it holds the other end of `line`. */
static _Noreturn void watch(sherd__arena *arena, int line)
{
    struct pollfd file[SHERD_MAX_RANKS + 1];
    int ranks = arena->control->ranks, left = 0;

    for (int r = 0; r < ranks; r++) {
        file[r] = (struct pollfd){.fd = open_process(&arena->control->post[r]), .events = POLLIN};
        left += file[r].fd >= 0;
    }
    file[ranks] = (struct pollfd){.fd = line, .events = POLLIN};
    bool told = write(line, "", 1) == 1;
    while (left && told && poll(file, (nfds_t)ranks + 1, -1) > 0) {
        for (int r = 0; r < ranks; r++) {
            if (file[r].fd < 0 || !file[r].revents)
                continue;
            look_at(arena, r);
            close(file[r].fd);
            file[r].fd = -1;
            left--;
        }
        if (!file[ranks].revents)
            continue;
        if (atomic_load(&arena->control->post[0].presence) == SHERD__GONE)
            break;
        file[ranks].fd = -1; /* rank 0 has ended; its process says so, too */
    }
    _exit(0);
}

/* All but the line and the standard error output: a file that others wait to be closed must not stay open. */
static void keep_only(int line)
{
    syscall(SYS_close_range, 0u, 1u, 0u);
    if (line > 3)
        syscall(SYS_close_range, 3u, (unsigned)line - 1, 0u);
    syscall(SYS_close_range, (unsigned)line + 1, ~0u, 0u);
}

int sherd__guard(const sherd__arena *arena)
{
    sherd__arena mine = *arena;
    int line[2];
    char ready;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (setsid() < 0 || fork() != 0)
            _exit(0);
        signal(SIGPIPE, SIG_IGN);
        keep_only(line[1]);
        watch(&mine, line[1]);
    }
    close(line[1]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    while (read(line[0], &ready, 1) < 0 && errno == EINTR)
        ;
    return line[0];
}
