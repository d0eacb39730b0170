/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that `sherd run` started becomes a rank: it finds the arena through a memfd whose number is in the
 * environment. Costs a mapping.
 */
#include "inside.h"
#include "launch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding the arena ------------------------------------------------------------------------ */

bool sherd__is_launched(void)
{
    return getenv("SHERD_ARENA_FD") != NULL;
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

/* Map the arena that this process was started with, and find its rank. */
static sherd_status find_arena(sherd__arena *arena, int *rank, sherd__diag *diag)
{
    int fd, ranks;

    if (!read_number("SHERD_RANKS", 1, SHERD_MAX_RANKS, &ranks) ||
        !read_number("SHERD_RANK", 0, ranks - 1, rank) ||
        !read_number("SHERD_ARENA_FD", 0, 1 << 30, &fd))
        return sherd__fail(
            diag, SHERD_EINVAL,
            "SHERD_ARENA_FD, SHERD_RANK and SHERD_RANKS are set, but not as `sherd run` "
            "sets them: start the program with it, or unset them");
    if (sherd__arena_map(arena, fd, diag))
        return diag->status;
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* what this program starts is no rank */
    arena->cores = sherd__cores();
    if (arena->control->ranks == ranks)
        return SHERD_OK;
    sherd__fail(diag, SHERD_EINVAL, "SHERD_RANKS is %d, but the arena is of %d ranks", ranks,
                arena->control->ranks);
    sherd__arena_unmap(arena);
    return SHERD_EINVAL;
}

/* ---- joining ---------------------------------------------------------------------------------- */

static sherd_status join_launched(sherd_world **out, const sherd__arena *arena, bool owns, int rank,
                                  const sherd_world_options *options, sherd__diag *diag)
{
    sherd__pinning before = {.pinned = false};

    if (atomic_load(&arena->control->post[rank].presence) == SHERD__PRESENT)
        return sherd__fail(diag, SHERD_EINVAL, "this process has joined its world already");
    if (!options->no_pin && arena->control->ranks > 1 && arena->control->ranks <= arena->cores)
        before = sherd__pin(rank);
    sherd_status status = sherd__world_join(out, arena, owns, rank, options, diag);
    if (status)
        sherd__unpin(&before);
    else
        (*out)->pinning = before;
    return status;
}

sherd_status sherd_world_open(sherd_world **out, const sherd_world_options *options)
{
    static const sherd_world_options none;
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int rank;

    *out = NULL;
    if (!sherd__is_launched())
        return sherd_world_alone(out, options);
    sherd_status status = find_arena(&arena, &rank, &diag);
    if (!status) {
        status = join_launched(out, &arena, true, rank, options ? options : &none, &diag);
        if (status)
            sherd__arena_unmap(&arena);
    }
    if (status && options && options->error)
        snprintf(options->error, SHERD_ERROR_BYTES, "%s", diag.text);
    return status;
}

sherd_status sherd__spawn_here(int *exit_status, const sherd__launch_plan *plan, sherd__diag *diag)
{
    sherd__arena arena;
    sherd_world *world;
    int rank;

    sherd_status status = find_arena(&arena, &rank, diag);
    if (status)
        return status;
    status = join_launched(&world, &arena, false, rank, plan->options, diag);
    if (!status) {
        *exit_status = plan->body(world, plan->payload);
        status = sherd_world_close(world);
        diag->status = status;
        memcpy(diag->text, arena.control->post[rank].last_text, sizeof diag->text);
    }
    sherd__arena_unmap(&arena);
    return status;
}
