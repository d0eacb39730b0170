/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that `sherd run` started becomes a rank. It finds the arena through a memfd whose
 * number is in the environment, or, where a wrapper has closed what it inherited, in the launcher's
 * own list of files. Costs a mapping.
 *
 * What says that a process is a rank leaves the environment once it has joined, so that programs
 * which it starts are none, and it may start worlds of its own. One variable stays, for the next
 * world of the same launch; it begins with the process that it is for, and no other takes it.
 */
#include "carried.h"
#include "watch.h"
#include "world/dry.h"
#include "world/inside.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char joined_name[] = "SHERD_JOINED";
static const char *const invited_names[] = {"SHERD_ARENA_FD", "SHERD_RANK", "SHERD_RANKS",
                                            "SHERD_LAUNCHER"};

/* What a process knows of the launch that it is part of. */
typedef struct invitation {
    int fd; /* of the arena, here and in the launcher */
    int rank, ranks;
    int line;   /* the life-line that this process holds, or -1 */
    bool again; /* it has joined before */
    int launcher;
    unsigned long long launcher_start; /* 0: not known */
} invitation;

/* ---- the environment ------------------------------------------------------------------------- */

/* This process; without /proc only its pid is known. */
static sherd__process myself(void)
{
    sherd__process self;

    if (!sherd__process_look(0, &self))
        self.pid = (int)getpid();
    return self;
}

static bool read_joined(invitation *out)
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

static bool write_joined(const invitation *in)
{
    sherd__process self = myself();
    char text[128];

    snprintf(text, sizeof text, "%d %llu %d %d %d %d %d %llu", self.pid,
             (unsigned long long)self.start, in->fd, in->rank, in->ranks, in->line, in->launcher,
             in->launcher_start);
    return setenv(joined_name, text, 1) == 0;
}

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

static bool read_invited(invitation *out)
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

static bool is_invited(void)
{
    return getenv("SHERD_ARENA_FD") && !is_of_inner_job();
}

bool sherd__is_launched(void)
{
    invitation in;

    return is_invited() || read_joined(&in);
}

/* ---- the arena ------------------------------------------------------------------------------- */

/* Whether an arena is that of the launch; another program may have that descriptor's number for one
 * of its own. */
static bool is_of(const sherd__arena *arena, const invitation *in)
{
    return !in->launcher || (arena->control->launcher == in->launcher &&
                             arena->control->launcher_start == in->launcher_start);
}

static bool map_of(sherd__arena *arena, int fd, const invitation *in, sherd__diag *diag)
{
    if (sherd__arena_map(arena, fd, "sherd_world_open", diag))
        return false;
    if (is_of(arena, in))
        return true;
    sherd__arena_unmap(arena);
    sherd__fail(diag, SHERD_EINVAL, "file descriptor %d is the arena of another launch", fd);
    return false;
}

/* The launcher keeps the arena open: find it there. */
static bool map_through_launcher(sherd__arena *arena, const invitation *in)
{
    sherd__diag unused = {.rank = -1};
    sherd__process launcher;
    char path[64];

    if (!in->launcher || !sherd__process_look(in->launcher, &launcher) ||
        launcher.start != in->launcher_start)
        return false;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", in->launcher, in->fd);
    int fd = sherd__open_file(path, O_RDWR);
    bool good = fd >= 0 && map_of(arena, fd, in, &unused);
    if (fd >= 0)
        close(fd);
    return good;
}

static sherd_status find_invitation(invitation *in, sherd__diag *diag)
{
    if (is_invited() ? read_invited(in) : read_joined(in))
        return SHERD_OK;
    return sherd__fail(diag, SHERD_EINVAL,
                       "SHERD_ARENA_FD, SHERD_RANK and SHERD_RANKS are set, but not as `sherd run` "
                       "sets them: start the program with it, or unset them");
}

/* Map the arena that this process was started with. */
static sherd_status find_arena(sherd__arena *arena, invitation *in, sherd__diag *diag)
{
    const char *transport;

    if (find_invitation(in, diag) || sherd__transport_asked(&transport, diag))
        return diag->status;
    diag->rank = in->rank;
    if (map_of(arena, in->fd, in, diag))
        fcntl(in->fd, F_SETFD, FD_CLOEXEC); /* what this program starts is no rank */
    else if (!map_through_launcher(arena, in))
        return diag->status;
    arena->cores = sherd__cores();
    if (arena->control->ranks == in->ranks)
        return SHERD_OK;
    sherd__fail(diag, SHERD_EINVAL, "SHERD_RANKS is %d, but the arena is of %d ranks", in->ranks,
                arena->control->ranks);
    sherd__arena_unmap(arena);
    return SHERD_EINVAL;
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool is_present(const sherd__arena *arena, const invitation *in)
{
    return atomic_load(&arena->control->post[in->rank].presence) == SHERD__PRESENT;
}

/* Claim the rank for this process. False: another process has it, or had it before. */
static bool claim(const sherd__arena *arena, const invitation *in)
{
    sherd__post *post = &arena->control->post[in->rank];

    if (atomic_exchange(&post->claimed, 1))
        return false;
    if (!is_present(arena, in))
        return true;
    atomic_store(&post->claimed, 0); /* the other one has died, or failed to open its world */
    return false;
}

/* Whether the launcher is there, as far as can be seen; EPEER, ENOMEM. */
static sherd_status look_for_launcher(const sherd__control *control, sherd__diag *diag)
{
    sherd__process launcher;

    errno = 0;
    bool seen = sherd__process_look(control->launcher, &launcher);
    if (!seen && (errno == EMFILE || errno == ENFILE))
        return sherd__fail(diag, SHERD_ENOMEM,
                           "nothing can be opened that shows the launcher of this rank, process "
                           "%d: %s: raise `ulimit -n`",
                           control->launcher, strerror(errno));
    if (!seen || launcher.start != control->launcher_start)
        return sherd__fail(diag, SHERD_EPEER, "the launcher of this rank, process %d, is gone",
                           control->launcher);
    return SHERD_OK;
}

/*
 * Become the rank: this process now ends with its launcher, which watches it even if a wrapper has
 * started it.
 */
static sherd_status be_rank(const sherd__arena *arena, invitation *in, sherd__diag *diag)
{
    const sherd__control *control = arena->control;

    in->line = sherd__lifeline_hold(control, in->line);
    if (in->line < 0 && control->launcher_space && control->launcher_space == sherd__pid_space() &&
        look_for_launcher(control, diag))
        return diag->status;
    if (!write_joined(in) || (sherd__is_in_job() && !sherd__say_joined(false)))
        return sherd__no_memory(diag, "sherd_world_open");
    sherd__post_process(&arena->control->post[in->rank]);
    return SHERD_OK;
}

static void leave_environment(void)
{
    for (size_t i = 0; i < sizeof invited_names / sizeof invited_names[0]; i++)
        unsetenv(invited_names[i]);
}

/* The world of this launch has ended: report why. */
static sherd_status say_why_closed(const sherd__arena *arena, sherd__diag *diag)
{
    uint64_t word = sherd__look(&arena->control->death);

    diag->status = sherd__status_in(word);
    diag->told = true;
    sherd__end_text(arena->control, word, diag->text, sizeof diag->text);
    return diag->status;
}

/*
 * Write the mark of a process that may join for this process, though it has not joined yet; its
 * children find no invitation.
 */
bool sherd__leave_launch(void)
{
    invitation in;

    if (!is_invited() || !read_invited(&in))
        return true;
    if (!write_joined(&in))
        return false;
    leave_environment();
    return true;
}

/*
 * Why the rank cannot be claimed: this process has joined already, the world has ended, or another
 * process is the rank.
 */
static sherd_status refuse(const sherd__arena *arena, const invitation *in, sherd__diag *diag)
{
    if (in->again)
        return sherd__fail(diag, SHERD_EINVAL, "this process has joined its world already");
    if (sherd__look(&arena->control->death))
        return say_why_closed(arena, diag);
    return sherd__fail(diag, SHERD_EINVAL,
                       "another process has joined as rank %d already: one program a rank opens "
                       "the world",
                       in->rank);
}

static sherd_status join(sherd_world **out, const sherd__arena *arena, bool owns, invitation *in,
                         const sherd_world_options *options, sherd__diag *diag)
{
    sherd__pinning before = {.pinned = false};

    if (!claim(arena, in))
        return refuse(arena, in, diag);
    if (be_rank(arena, in, diag)) {
        atomic_store(&arena->control->post[in->rank].claimed, 0);
        return diag->status;
    }
    if (!options->no_pin)
        before = sherd__pin(&arena->control->post[in->rank]);
    sherd_status status = sherd__world_join(out, arena, owns, in->rank, options, diag);
    if (status) {
        diag->told = true; /* by the launcher */
        sherd__unpin(&before);
        atomic_store(&arena->control->post[in->rank].claimed, 0);
    } else {
        leave_environment();
        (*out)->pinning = before;
    }
    return status;
}

static sherd_status open_launched(sherd_world **out, const sherd_world_options *options,
                                  sherd__diag *diag)
{
    static const sherd_world_options none;
    sherd__arena arena;
    invitation in;

    if (find_arena(&arena, &in, diag))
        return diag->status;
    sherd_status status = join(out, &arena, true, &in, options ? options : &none, diag);
    if (status)
        sherd__arena_unmap(&arena);
    return status;
}

/* Where there are other ranks, they learn also that one has no room for its world. */
sherd_status sherd_world_open(sherd_world **out, const sherd_world_options *options)
{
    const sherd__argument need[] = {{"out", out}, {NULL, NULL}};
    sherd__diag diag = {.rank = -1};
    const char *transport;
    sherd_status status;

    if (out)
        *out = NULL;
    bool dry = sherd__dry_is_asked();
    if (!dry && sherd__is_launched()) {
        status = open_launched(out, options, &diag);
    } else if (!dry && sherd__is_carried()) {
        status = sherd__carried_open(out, options, &diag);
    } else {
        status = sherd__require(&diag, "sherd_world_open", need);
        if (!status && !dry)
            status = sherd__transport_asked(&transport, &diag);
        if (!status && !dry)
            return sherd_world_alone(out, options);
        if (!status)
            status = sherd__dry_open(out, 0, options, &diag);
    }
    if (status)
        sherd__tell_why(options ? options->error : NULL, &diag);
    return status;
}

sherd_status sherd__spawn_here(bool *here, int *exit_status, const sherd__launch_plan *plan,
                               sherd__diag *diag)
{
    sherd__arena arena;
    sherd_world *world;
    invitation in;

    *here = true;
    sherd_status status = find_arena(&arena, &in, diag);
    if (status)
        return status;
    *here = !(in.again && is_present(&arena, &in));
    if (*here)
        status = join(&world, &arena, false, &in, plan->options, diag);
    if (*here && !status) {
        world->lent = true;
        *exit_status = plan->body(world, plan->payload);
        status = sherd__world_close(world, diag->text);
        diag->status = status;
        diag->told = in.rank > 0 || sherd__is_lost(status);
    }
    sherd__arena_unmap(&arena);
    return status;
}
