/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps from one mesh to another between the memories of GPUs. Who sends waits for nobody: it
 * copies its piece, so that the tensor may be written again, and tells where the copy lies, and a
 * mark behind which it is complete. Who receives waits for these words, as it would for a record of
 * the arena; it queues its reads and a mark of its own before it is said to have left the call. So
 * once all readers have left, the copy's memory is given back behind their marks, which all ranks
 * know since the world was opened. Costs one call of the arena, and the copy.
 */
#include "devices.h"

#include <string.h>

enum { SENT_MARKS = SHERD__DEVICE_MARKS - SHERD__MARK_SENT };

/* What one tensor of a call was copied to, until its readers have left. */
struct sherd__sent {
    sherd__sent *next;
    sherd__device_block *block; /* NULL: no elements */
    const sherd__group *group;
    uint64_t number; /* of the call */
    sherd__ranks readers;
};

/* ---- what was sent --------------------------------------------------------------------------- */

/* Whether all readers have left; the stream then waits for their marks. */
static bool is_read(sherd_world *world, sherd__sent *sent)
{
    bool old = sent->number <= world->base; /* of an epoch that is over */

    for (int q = -1; (q = sherd__ranks_next(&sent->readers, q + 1)) >= 0;) {
        if (!old && !sherd__has_left(world, sent->group->lane, q, sent->number))
            return false;
        sherd__device_await(world->device, world->devices.reads + (int64_t)q * SHERD__MARK_WORDS);
        sherd__ranks_drop(&sent->readers, q);
    }
    return true;
}

static void drop(sherd_world *world, sherd__sent *sent)
{
    sherd__device_give(world->device, sent->block);
    sherd__free(&world->heap, sent);
}

void sherd__device_sent(sherd_world *world)
{
    for (sherd__sent **at = &world->devices.sent, *sent; (sent = *at);) {
        if (!is_read(world, sent)) {
            at = &sent->next;
            continue;
        }
        *at = sent->next;
        drop(world, sent);
    }
}

void sherd__device_sent_all(sherd_world *world)
{
    for (sherd__sent *sent; (sent = world->devices.sent);) {
        world->devices.sent = sent->next;
        drop(world, sent);
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Strides of a contiguous box; returns how many elements it has. */
static int64_t lay(const sherd__schedule *schedule, int64_t *stride)
{
    int64_t n = 1;

    for (int d = schedule->ndim - 1; d >= 0; d--) {
        stride[d] = n;
        n *= schedule->source_size[d];
    }
    return n;
}

/* Copy what others read of a tensor, and tell where it is. False: lack of memory, noted. */
static bool copy(sherd_world *world, const sherd__move *move, sherd__sent *sent, int64_t *word)
{
    const sherd__device_work w = sherd__device_work_of(world, move);
    int64_t stride[SHERD_MAX_DIMS] = {0}, n = lay(w.schedule, stride);

    sherd__ranks_add_list(&sent->readers, w.schedule->reader, w.schedule->readers);
    memcpy(word + SHERD__PLACE_STRIDE, stride, sizeof stride);
    if (n == 0 || !w.source)
        return true;
    sent->block = sherd__device_take(world->device, n * (int64_t)w.element_bytes);
    if (!sent->block) {
        sherd__device_lack(world->device, "out of memory for what is sent");
        return false;
    }
    sherd__device_copy_box(world->device, w.element_bytes, w.schedule->ndim,
                           w.schedule->source_size, sent->block->data, stride, w.source, w.stride);
    sherd__device_export(world->device, word + SHERD__PLACE_SOURCE, sent->block, 0);
    return true;
}

/* The same of all tensors that others read, and the mark. False: the alarm is raised. */
static bool copy_all(sherd_world *world, const sherd__group *group, const sherd__move *moves,
                     int count, int64_t *mine)
{
    uint64_t number = sherd__number(world->base, group->sequence + 1);

    for (int i = 0; i < count; i++) {
        if (!moves[i].plan->mine[moves[i].step]->readers)
            continue;
        sherd__sent *sent = sherd__alloc(&world->heap, 1, sizeof *sent);
        if (!sent) {
            sherd__device_lack(world->device, "out of memory for what is sent");
            break;
        }
        *sent = (sherd__sent){.next = world->devices.sent, .group = group, .number = number};
        world->devices.sent = sent;
        if (!copy(world, &moves[i], sent,
                  mine + SHERD__TOLD_PLACES + (int64_t)i * SHERD__PLACE_WORDS))
            break;
    }
    sherd__device_mark(world->device, SHERD__MARK_SENT + (int)(world->devices.sends++ % SENT_MARKS),
                       mine + SHERD__TOLD_MARK);
    return sherd__device_sound(world);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A call, while its words are on their way. */
typedef struct passing {
    const sherd__move *moves;
    int count, words;
    bool reads; /* this rank has something to read */
    const int64_t *all;
    const int16_t *place;
    sherd__ranks from, to;
} passing;

/* All senders have told: queue what this rank reads. */
static void receive(sherd_world *world, void *what)
{
    const passing *p = what;

    if (!p->reads)
        return;
    for (int q = -1; (q = sherd__ranks_next(&p->from, q + 1)) >= 0;)
        sherd__device_await(world->device,
                            p->all + (int64_t)p->place[q] * p->words + SHERD__TOLD_MARK);
    for (int i = 0; i < p->count; i++) {
        sherd__device_work w = sherd__device_work_of(world, &p->moves[i]);
        w.all = p->all;
        w.place = p->place;
        w.words = p->words;
        w.index = i;
        sherd__device_work_run(&w, world->rank);
    }
    int64_t mark[SHERD__MARK_WORDS];
    sherd__device_mark(world->device, SHERD__MARK_READ, mark);
}

static void find_ranks(const sherd__move *moves, int count, passing *p)
{
    sherd__ranks_clear(&p->from);
    sherd__ranks_clear(&p->to);
    for (int i = 0; i < count; i++) {
        const sherd__schedule *schedule = moves[i].plan->mine[moves[i].step];
        sherd__ranks_add_list(&p->from, schedule->source, schedule->sources);
        sherd__ranks_add_list(&p->to, schedule->reader, schedule->readers);
        p->reads |= schedule->regions > 0;
    }
}

bool sherd__device_send(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__move *moves, int count)
{
    int words = SHERD__TOLD_PLACES + count * SHERD__PLACE_WORDS;
    int64_t *all = sherd__device_room(world, group, words, name);
    int16_t place[SHERD_MAX_RANKS];
    passing p = {.moves = moves, .count = count, .words = words, .all = all, .place = place};

    if (!all || !sherd__device_sound(world))
        return false;
    int64_t *mine = all + (int64_t)group->count * words;
    sherd__device_sent(world);
    sherd__group_refresh(world, group);
    sherd__group_places(group, place);
    find_ranks(moves, count, &p);
    memset(mine, 0, (size_t)words * sizeof *mine);
    if (p.to.words && !copy_all(world, group, moves, count, mine))
        return false;
    return world->transport->share(
               world, group, name,
               &(sherd__sharing){.mine = mine,
                                 .words = words,
                                 .all = all,
                                 .place = place,
                                 .from = &p.from,
                                 .to = &p.to,
                                 .what = sherd__moves_fingerprint(world, name, moves, count),
                                 .text = moves[0].plan->what,
                                 .then = receive,
                                 .context = &p}) &&
           sherd__device_sound(world);
}
