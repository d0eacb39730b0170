/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank whose peers are far has left of its messages when a program is over: the only part of
 * this program that looks inside of a world. Each sheet that was made lies somewhere: idle, on its
 * way, as a claim, or as data of a call that this rank has not finished. What lies there for a call
 * that is over was sent to a rank that never reads it, and stays for as long as the world does. And
 * where the same programs are run again and again, memory stays what it is. Microseconds a program.
 */
#include "run.h"

#include "world/remote.h"

#include <malloc.h>

enum {
    LEAST_TIMES = 8,      /* fewer are no matter of memory */
    SLACK = 64,           /* and a quarter of all sheets: how many are on their way is chance */
    SLACK_BYTES = 1 << 20 /* what MPI and the C library may have for a while */
};

static int64_t count_list(const sherd__sheet *sheet)
{
    int64_t count = 0;

    for (; sheet; sheet = sheet->next)
        count += 1 + count_list(sheet->more);
    return count;
}

static const sherd__call_state *open_call(const sherd_world *world, const sherd__sheet *sheet)
{
    const sherd__call_state *call = world->open;

    while (call && (call->group->lane != sheet->lane || call->number != sheet->number))
        call = call->next;
    return call;
}

/* The last call that this rank has made in a lane; 0: none, or it has no part in it. */
static uint64_t last_made(const sherd_world *world, int lane)
{
    if (lane == world->whole.lane)
        return sherd__peek(&world->whole.own->made);
    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
            if (world->mesh[i].group[g].lane == lane)
                return sherd__peek(&world->mesh[i].group[g].own->made);
    return 0;
}

/* It is for a call that this rank has open, or has still to make. */
static bool is_awaited(const sherd_world *world, const sherd__sheet *sheet)
{
    return sheet->number > world->base &&
           (open_call(world, sheet) || sheet->number > last_made(world, sheet->lane));
}

static void find_strays(runner *u, const sherd__remote *remote)
{
    const sherd__sheet *stray = NULL;
    int count = 0, from = 0;

    for (int q = 0; q < u->s->ranks; q++)
        for (const sherd__sheet *sheet = remote->inbox[q]; sheet; sheet = sheet->next)
            if (!is_awaited(u->world, sheet)) {
                stray = sheet;
                from = q;
                count++;
            }
    if (count)
        say_wrong(u,
                  "%d messages lie there for calls that are over: one of rank %d, kind %d, lane "
                  "%d, number %lld (base %lld, made %lld)",
                  count, from, stray->kind, stray->lane, (long long)stray->number,
                  (long long)u->world->base, (long long)last_made(u->world, stray->lane));
}

static void count_sheets(runner *u, const sherd__remote *remote)
{
    int64_t found =
        count_list(remote->ready) + count_list(remote->parts) + count_list(remote->claims);

    for (int c = 0; c < SHERD__SHEET_CLASSES; c++)
        found += count_list(remote->idle[c]);
    for (int q = 0; q < u->s->ranks; q++)
        found += count_list(remote->inbox[q]) + count_list(remote->flight[q].first);
    for (const sherd__call_state *call = u->world->open; call; call = call->next)
        found += count_list(call->slices);
    /* A body that is on its way here may have found no memory. */
    if (found > remote->heap.live || found + remote->bodies < remote->heap.live)
        say_wrong(u, "%lld sheets were made, %lld are there, and %d are being received",
                  (long long)remote->heap.live, (long long)found, remote->bodies);
}

void look_inside(runner *u)
{
    const sherd__remote *remote = u->world->remote;

    if (!remote)
        return;
    find_strays(u, remote);
    count_sheets(u, remote);
}

/* In the middle of all times, and at the end: between them peaks come and go. */
void watch_memory(runner *u, int time, int times)
{
    const sherd__remote *remote = u->world->remote;
    const memory_use *before = &u->before;

    if (times < LEAST_TIMES)
        return;
    /* The thread sanitizer has a heap of its own: the C library's must not be asked then. */
    memory_use now = {u->world->heap.live, remote ? remote->heap.live : 0,
                      (int64_t)mallinfo2().uordblks};
    u->grown += now.allocations > u->allocations;
    u->allocations = now.allocations;
    if (time == times / 2) {
        u->before = now;
        u->grown = 0;
    }
    /* What is lost is lost again; how far a rank comes before it hears of a failure is chance, and
     * when it comes further than before, layouts and plans are kept that it had not made yet. */
    if (time == times - 1 && ((u->grown > 1 && now.allocations > before->allocations + SLACK) ||
                              now.sheets > before->sheets + before->sheets / 4 + SLACK ||
                              now.bytes > before->bytes + SLACK_BYTES))
        say_wrong(u,
                  "memory grows: in %d rounds %lld allocations became %lld, %lld sheets %lld, "
                  "%lld bytes %lld",
                  time - times / 2, (long long)before->allocations, (long long)now.allocations,
                  (long long)before->sheets, (long long)now.sheets, (long long)before->bytes,
                  (long long)now.bytes);
}
