/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that `sherd run` started becomes a rank. It finds the arena through a memfd whose
 * number the environment has (invitation.c), or, where a wrapper has closed what it inherited, in
 * the launcher's own list of files. Costs a mapping.
 */
#include "carried.h"
#include "invitation.h"
#include "watch.h"
#include "world/dry.h"
#include "world/inside.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the arena ------------------------------------------------------------------------------- */

/* Whether an arena is that of the launch; another program may have that descriptor's number for one
 * of its own. */
static bool is_of(const sherd__arena *arena, const sherd__invitation *in)
{
    return !in->launcher || (arena->control->launcher == in->launcher &&
                             arena->control->launcher_start == in->launcher_start);
}

static bool map_of(sherd__arena *arena, int fd, const sherd__invitation *in, sherd__diag *diag)
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
static bool map_through_launcher(sherd__arena *arena, const sherd__invitation *in)
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

static sherd_status find_invitation(sherd__invitation *in, sherd__diag *diag)
{
    if (sherd__invitation_read(in))
        return SHERD_OK;
    return sherd__fail(diag, SHERD_EINVAL,
                       "SHERD_ARENA_FD, SHERD_RANK and SHERD_RANKS are set, but not as `sherd run` "
                       "sets them: start the program with it, or unset them");
}

/* Map the arena that this process was started with. */
static sherd_status find_arena(sherd__arena *arena, sherd__invitation *in, sherd__diag *diag)
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

static bool is_present(const sherd__arena *arena, const sherd__invitation *in)
{
    return atomic_load(&arena->control->post[in->rank].presence) == SHERD__PRESENT;
}

/* Claim the rank for this process. False: another process has it, or had it before. */
static bool claim(const sherd__arena *arena, const sherd__invitation *in)
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
static sherd_status be_rank(const sherd__arena *arena, sherd__invitation *in, sherd__diag *diag)
{
    const sherd__control *control = arena->control;

    in->line = sherd__lifeline_hold(control, in->line);
    if (in->line < 0 && control->launcher_space && control->launcher_space == sherd__pid_space() &&
        look_for_launcher(control, diag))
        return diag->status;
    if (!sherd__invitation_keep(in) || (sherd__is_in_job() && !sherd__say_joined(false)))
        return sherd__no_memory(diag, "sherd_world_open");
    sherd__post_process(&arena->control->post[in->rank]);
    return SHERD_OK;
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
 * Why the rank cannot be claimed: this process has joined already, the world has ended, or another
 * process is the rank.
 */
static sherd_status refuse(const sherd__arena *arena, const sherd__invitation *in,
                           sherd__diag *diag)
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

static sherd_status join(sherd_world **out, const sherd__arena *arena, bool owns,
                         sherd__invitation *in, const sherd_world_options *options,
                         sherd__diag *diag)
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
        sherd__invitation_leave();
        (*out)->pinning = before;
    }
    return status;
}

static sherd_status open_launched(sherd_world **out, const sherd_world_options *options,
                                  sherd__diag *diag)
{
    static const sherd_world_options none;
    sherd__arena arena;
    sherd__invitation in;

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
    sherd__invitation in;

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
