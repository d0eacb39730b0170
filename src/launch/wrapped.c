/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that a wrapper started: `sherd run -- sh -c 'program; true'` has the shell as its child,
 * and the program as its rank. A rank that joins leaves its process in its post; from then on the
 * launcher watches both. It is no child, so that its exit status stays unknown; that it ended or
 * was stopped is read from /proc, when its pidfd says so or a tenth of a second has passed.
 */
#include "watch.h"
#include "world/inside.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_running(const sherd__wrapped *inner, sherd__process *now)
{
    if (!sherd__process_look(inner->pid, now))
        return kill(inner->pid, 0) == 0 || errno == EPERM; /* there, but hidden */
    return now->start == inner->start && now->state != 'Z' && now->state != 'X';
}

/*
 * Read what a post says of its process. The pid is written last, so it is read both before and
 * after the rest. False while it is being written.
 */
static bool read_post(const sherd__post *post, int *pid, uint64_t *start, uint64_t *space)
{
    uint64_t before = sherd__look(&post->pid);

    *start = sherd__look(&post->pid_start);
    *space = sherd__look(&post->pid_space);
    *pid = (int)before;
    return before && before <= INT32_MAX && sherd__look(&post->pid) == before;
}

static void forget(sherd__wrapped *inner)
{
    if (inner->fd >= 0)
        close(inner->fd);
    *inner = (sherd__wrapped){.fd = -1};
}

bool sherd__wrapped_find(sherd__child *child, const sherd__post *post, uint64_t space)
{
    sherd__wrapped *inner = &child->inner;
    sherd__process now;
    uint64_t start, its_space;
    int pid;

    if (!read_post(post, &pid, &start, &its_space) || pid == child->pid || its_space != space)
        return false; /* a pid of another namespace means nothing here */
    if (pid == inner->pid && start == inner->start)
        return false;
    forget(inner);
    /* First a hold on whatever has this pid now, then the question whether it is the right one. */
    inner->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    inner->pid = pid;
    inner->start = start;
    inner->lives = is_running(inner, &now);
    return inner->lives;
}

void sherd__wrapped_look(sherd__child *child)
{
    sherd__wrapped *inner = &child->inner;
    sherd__process now;

    if (!inner->lives)
        return;
    inner->lives = is_running(inner, &now);
    if (!inner->lives || now.state != 'T')
        inner->stopped_since = 0;
    else if (!inner->stopped_since)
        inner->stopped_since = sherd__now();
}

void sherd__wrapped_kill(const sherd__child *child, int signal)
{
    const sherd__wrapped *inner = &child->inner;
    sherd__process now;

    if (!inner->lives)
        return;
    /* A kernel that has pidfds may still refuse to send by them. */
    bool sent = inner->fd >= 0 && syscall(SYS_pidfd_send_signal, inner->fd, signal, NULL, 0) == 0;
    if (!sent && is_running(inner, &now))
        kill(inner->pid, signal);
}

void sherd__wrapped_drop(sherd__child *child)
{
    forget(&child->inner);
}
