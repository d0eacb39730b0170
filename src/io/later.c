/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are written while the rank goes on. A write that has begun has copies of this rank's
 * rows, in the arena like tensors, so that they count under its limit and their memory is used
 * again. A thread writes them to PATH.part and syncs it; it calls nothing of the world, so it needs
 * no locks. The rank itself joins it, and ranks agree, when the write ends. Without a thread the
 * rank writes at once. A world that closes stops its threads, and removes what they have written.
 */
#include "io/rows.h"
#include "io/writing.h"

#include "base/file_limit.h"
#include "base/num.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 4 << 20 }; /* bytes, between two looks at `stop` */

/* The writes of this rank that have begun. */
typedef struct writings {
    sherd_writing *first;
} writings;

/* ---- the thread ------------------------------------------------------------------------------ */

static bool write_copy(sherd_writing *w, const sherd__copy *c)
{
    const char *data = sherd__block_data(c->block);

    for (int64_t at = 0; at < c->bytes; at += AT_ONCE)
        if (atomic_load(&w->stop) ||
            !sherd__write_at(w->fd, data + at, sherd__min(c->bytes - at, AT_ONCE), c->at + at))
            return false;
    return true;
}

static void write_copies(sherd_writing *w)
{
    bool good = true;

    for (int i = 0; good && i < w->copies; i++)
        good = write_copy(w, &w->copy[i]);
    if (!good || !sherd__sync_file(w->fd))
        w->error = errno;
    atomic_store(&w->done, true);
}

static void *run(void *payload)
{
    write_copies(payload);
    return NULL;
}

/* The program's signals are for its own threads: this one takes none. */
static bool start_thread(sherd_writing *w)
{
    sigset_t all, before;

    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before))
        return false;
    w->started = pthread_create(&w->thread, NULL, run, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->started;
}

void sherd__later_start(sherd_writing *w)
{
    sherd__file_signal limit;

    w->begun = true;
    if (sherd__is_dry(w->world) || start_thread(w))
        return;
    sherd__file_signal_hold(&limit);
    write_copies(w);
    sherd__file_signal_drop(&limit);
}

static void join(sherd_writing *w)
{
    if (w->started)
        (void)pthread_join(w->thread, NULL);
    w->started = false;
}

/* ---- making one ------------------------------------------------------------------------------ */

static void free_all(sherd_world *world, void *state)
{
    writings *all = state;

    while (all->first) {
        sherd_writing *w = all->first;
        atomic_store(&w->stop, true);
        join(w);
        sherd__later_destroy(w);
    }
    sherd__free(sherd__world_heap(world), all);
}

sherd_writing *sherd__later_create(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);
    writings *all = sherd__world_state(world, SHERD__ROOM_IO);
    sherd_writing *w;

    if (!all) {
        if (!(all = sherd__alloc(heap, 1, sizeof *all)))
            return NULL;
        sherd__world_set_state(world, SHERD__ROOM_IO, all, free_all);
    }
    if (!(w = sherd__alloc(heap, 1, sizeof *w)))
        return NULL;
    w->world = world;
    w->process = getpid();
    w->fd = -1;
    w->next = all->first;
    all->first = w;
    return w;
}

bool sherd__later_has(const sherd_world *world, const char *path)
{
    const writings *all = sherd__world_state(world, SHERD__ROOM_IO);
    bool found = false;

    for (const sherd_writing *w = all ? all->first : NULL; w && !found; w = w->next)
        found = w->begun && strcmp(w->path, path) == 0;
    return found;
}

void sherd__later_keep(sherd_writing *w, const void *data, int64_t bytes, int64_t at)
{
    sherd__copy *list =
        sherd__reserve(w->header.heap, w->copy, w->copies, &w->room, 16, sizeof *list);
    sherd__block *block = list ? sherd__block_take(w->world, bytes, false) : NULL;

    w->copy = list ? list : w->copy;
    if (!block) {
        w->status = sherd__world_diag(w->world)->status;
        if (!list || !w->status)
            w->status = sherd__no_memory(sherd__world_diag(w->world), w->function);
        return;
    }
    w->copy[w->copies++] = (sherd__copy){block, bytes, at};
    if (!sherd__left_out(w->world, "copy", SHERD_U8, 0, 2 * bytes))
        memcpy(sherd__block_data(block), data, (size_t)bytes);
}

void sherd__later_destroy(sherd_writing *w)
{
    writings *all = sherd__world_state(w->world, SHERD__ROOM_IO);
    sherd_writing **at = &all->first;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    for (int i = 0; i < w->copies; i++)
        sherd__block_give(w->world, w->copy[i].block);
    sherd__free(sherd__world_heap(w->world), w->copy);
    sherd__part_drop(w);
    sherd__free(sherd__world_heap(w->world), w);
}

/* ---- its end --------------------------------------------------------------------------------- */

sherd_status sherd_writing_ready(bool *ready, sherd_writing *writing)
{
    static const char function[] = "sherd_writing_ready";
    sherd_world *world = writing ? writing->world : NULL;
    const sherd__argument need[] = {{"writing", writing}, {"ready", ready}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), function, need);
    int64_t waits = world && !sherd__is_dry(world) && !atomic_load(&writing->done);

    if (ready)
        *ready = false;
    if (!world)
        return status;
    status = sherd__agree(world, status, sherd__hash_text(0, writing->path), function);
    if (!status)
        status = sherd_world_most(&waits, world, waits);
    if (!status)
        *ready = waits == 0;
    return status;
}

sherd_status sherd_writing_end(sherd_writing *writing)
{
    static const char function[] = "sherd_writing_end";
    sherd_world *world = writing ? writing->world : NULL;
    sherd_status status;

    if (!world)
        return SHERD_EINVAL;
    if (writing->process != getpid()) /* a fork has no threads; it is refused there */
        return sherd__agree(world, SHERD_OK, 0, function);
    join(writing);
    writing->function = function;
    errno = writing->error;
    if (writing->error)
        sherd__part_fail(writing);
    status = sherd__file_name(writing);
    sherd__later_destroy(writing);
    return status;
}
