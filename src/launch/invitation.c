/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a process that `sherd run` started learns that it is a rank: from variables of the
 * environment. They leave it once the process has joined, so that programs which it starts are
 * none, and it may start worlds of its own. One variable stays, for the next world of the same
 * launch; it begins with the process that it is for, and no other takes it.
 */
#include "invitation.h"
#include "carried.h"
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the invitation of a launcher ------------------------------------------------------------ */

static const char *const invited_names[] = {"SHERD_ARENA_FD", "SHERD_RANK", "SHERD_RANKS",
                                            "SHERD_LAUNCHER"};

static bool read_number(const char *name, int low, int high, int *out)
{
    const char *text = getenv(name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : 0;

    if (!text || end == text || *end || value < low || value > high)
        return false;
    *out = (int)value;
    return true;
}

static bool read_invited(sherd__invitation *out)
{
    const char *launcher = getenv("SHERD_LAUNCHER");

    memset(out, 0, sizeof *out);
    out->line = -1;
    if (launcher && sscanf(launcher, "%d %llu", &out->launcher, &out->launcher_start) != 2)
        return false;
    return read_number("SHERD_RANKS", 1, SHERD_MAX_RANKS, &out->ranks) &&
           read_number("SHERD_RANK", 0, out->ranks - 1, &out->rank) &&
           read_number("SHERD_ARENA_FD", 0, 1 << 30, &out->fd);
}

/* Whether mpirun has started this process, or one that it is of, and `sherd run` mpirun. */
static bool is_of_inner_job(void)
{
    const char *launcher = getenv("SHERD_LAUNCHER");
    unsigned long long marks;

    return sherd__is_in_job() && launcher && sscanf(launcher, "%*d %*u %llu", &marks) == 1 &&
           marks != sherd__carrier_marks();
}

bool sherd__is_invited(void)
{
    return getenv("SHERD_ARENA_FD") && !is_of_inner_job();
}

void sherd__invitation_leave(void)
{
    for (size_t i = 0; i < sizeof invited_names / sizeof invited_names[0]; i++)
        unsetenv(invited_names[i]);
}

/* ---- the mark of who has joined -------------------------------------------------------------- */

static const char joined_name[] = "SHERD_JOINED";

/* This process; without /proc only its pid is known. */
static sherd__process myself(void)
{
    sherd__process self;

    if (!sherd__process_look(0, &self))
        self.pid = (int)getpid();
    return self;
}

static bool read_joined(sherd__invitation *out)
{
    const char *text = getenv(joined_name);
    unsigned long long start;
    int pid;

    memset(out, 0, sizeof *out);
    out->again = true;
    if (!text || sscanf(text, "%d %llu %d %d %d %d %d %llu", &pid, &start, &out->fd, &out->rank,
                        &out->ranks, &out->line, &out->launcher, &out->launcher_start) != 8)
        return false;
    sherd__process self = myself();
    return pid == self.pid && start == self.start;
}

bool sherd__invitation_keep(const sherd__invitation *in)
{
    sherd__process self = myself();
    char text[128];

    snprintf(text, sizeof text, "%d %llu %d %d %d %d %d %llu", self.pid,
             (unsigned long long)self.start, in->fd, in->rank, in->ranks, in->line, in->launcher,
             in->launcher_start);
    return setenv(joined_name, text, 1) == 0;
}

/* ---- either ---------------------------------------------------------------------------------- */

bool sherd__is_launched(void)
{
    sherd__invitation in;

    return sherd__is_invited() || read_joined(&in);
}

bool sherd__invitation_read(sherd__invitation *out)
{
    return sherd__is_invited() ? read_invited(out) : read_joined(out);
}

/*
 * Write the mark of a process that may join for this process, though it has not joined yet; its
 * children find no invitation.
 */
bool sherd__leave_launch(void)
{
    sherd__invitation in;

    if (!sherd__is_invited() || !read_invited(&in))
        return true;
    if (!sherd__invitation_keep(&in))
        return false;
    sherd__invitation_leave();
    return true;
}
