/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cores a job has. Two jobs that pin their ranks to the same ones take twice as long while
 * other cores are idle, so a core is taken with a lock: a name that the kernel gives to one socket
 * at a time, and takes back when its holder ends, however it ends. No file, nothing to clean up;
 * jobs in different network namespaces do not see each other. All ranks of a job get a core of
 * their own, or none: half a job pinned is worst. Some microseconds a core.
 */
#include "launch.h"
#include "world/inside.h"

#include "base/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 200, TURN_NS = 500 * 1000 }; /* how long to wait for another job that is choosing */

/* Take a name: a descriptor that holds it, or -1 if somebody has it. */
static int take_name(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* path[0] = 0: in no file system */
    size_t length = strlen(name);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    memcpy(address.sun_path + 1, name, length);
    if (bind(fd, (const struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0)
        return fd;
    close(fd);
    return -1;
}

/*
 * Jobs choose one after the other, or two jobs might each get half of the cores. -1 if it takes too
 * long; then the job chooses all the same.
 */
static int take_turn(void)
{
    const struct timespec pause = {0, TURN_NS};
    int fd = -1;

    for (int i = 0; i < TURNS && (fd = take_name("sherd-cores")) < 0; i++)
        nanosleep(&pause, NULL);
    return fd;
}

static void take_cores(sherd__core_locks *out, const cpu_set_t *among, int ranks)
{
    char name[32];

    for (int core = 0; core < CPU_SETSIZE && out->count < ranks; core++) {
        if (!CPU_ISSET((size_t)core, among))
            continue;
        snprintf(name, sizeof name, "sherd-core-%d", core);
        int fd = take_name(name);
        if (fd < 0)
            continue;
        out->fd[out->count] = fd;
        out->core[out->count++] = core;
    }
}

void sherd__cores_take(sherd__core_locks *out, sherd__control *control)
{
    cpu_set_t among;
    int ranks = control->ranks;

    out->count = 0;
    if (ranks < 2 || sched_getaffinity(0, sizeof among, &among) || CPU_COUNT(&among) < ranks)
        return;
    int turn = take_turn();
    take_cores(out, &among, ranks);
    if (out->count < ranks)
        sherd__cores_give(out);
    if (turn >= 0)
        close(turn);
    for (int r = 0; r < out->count; r++)
        atomic_store(&control->post[r].core, 1 + (uint64_t)out->core[r]);
}

void sherd__cores_give(sherd__core_locks *cores)
{
    while (cores->count > 0)
        close(cores->fd[--cores->count]);
}

/* ---- --cores --------------------------------------------------------------------------------- */

static sherd_status read_range(sherd__scanner *s, const cpu_set_t *usable, cpu_set_t *out,
                               sherd__diag *diag)
{
    sherd__scanner begin;
    int64_t low, high;

    sherd__skip_blanks(s);
    begin = *s;
    if (!sherd__take_integer(s, &low))
        return sherd__expected(diag, "cores", s, "a core's number");
    high = low;
    if (sherd__take(s, "-") && !sherd__take_integer(s, &high))
        return sherd__expected(diag, "cores", s, "a core's number");
    if (high < low)
        return sherd__fail_at(diag, SHERD_EINVAL, "cores", &begin,
                              "a range must go upwards, as 2-5");
    for (int64_t core = low; core <= high; core++) {
        if (core >= CPU_SETSIZE || !CPU_ISSET((size_t)core, usable))
            return sherd__fail_at(diag, SHERD_EINVAL, "cores", &begin,
                                  "core %lld is not there, or this process may not use it",
                                  (long long)core);
        CPU_SET((size_t)core, out);
    }
    return SHERD_OK;
}

sherd_status sherd__cores_confine(const char *list, sherd__diag *diag)
{
    sherd__scanner s = {list, list};
    cpu_set_t usable, chosen;

    CPU_ZERO(&chosen);
    if (sched_getaffinity(0, sizeof usable, &usable))
        return sherd__fail(diag, SHERD_ENOTSUP, "cores: %s", strerror(errno));
    do {
        if (read_range(&s, &usable, &chosen, diag))
            return diag->status;
    } while (sherd__take(&s, ","));
    if (!sherd__at_end(&s))
        return sherd__expected(diag, "cores", &s, "\",\" or the end");
    if (sched_setaffinity(0, sizeof chosen, &chosen))
        return sherd__fail(diag, SHERD_EINVAL, "cores: %s", strerror(errno));
    return SHERD_OK;
}
