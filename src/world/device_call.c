/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of moves between the memories of GPUs (docs/decisions/106). Two calls of the arena frame
 * them: in the first, ranks tell each other where their pieces lie, and a mark in their streams
 * behind which these are complete; in the second, a mark behind which they have read what they
 * lack, so that nothing that follows overtakes a reader. The CPUs meet, but wait for no GPU.
 * Costs two shared words' calls and a kernel for each region.
 */
#include "devices.h"

#include <string.h>

int64_t *sherd__device_room(sherd_world *world, const sherd__group *group, int words,
                            const char *name)
{
    int64_t need = (int64_t)(group->count + 1) * words;

    if (world->devices.words < need) {
        sherd__free(&world->heap, world->devices.word);
        world->devices.word = sherd__alloc(&world->heap, (size_t)need, sizeof(int64_t));
        world->devices.words = world->devices.word ? need : 0;
    }
    if (!world->devices.word)
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory", name);
    return world->devices.word;
}

static void tell(sherd_world *world, int64_t *mine, const sherd__move *moves, int count)
{
    sherd__device_mark(world->device, SHERD__MARK_MADE, mine + SHERD__TOLD_MARK);
    for (int i = 0; i < count; i++) {
        int64_t *word = mine + SHERD__TOLD_PLACES + (int64_t)i * SHERD__PLACE_WORDS;
        const sherd__device_work w = sherd__device_work_of(world, &moves[i]);
        int64_t bytes = (int64_t)w.element_bytes;
        sherd__device_export(world->device, word + SHERD__PLACE_SOURCE, moves[i].device_source,
                             moves[i].source_offset * bytes);
        sherd__device_export(world->device, word + SHERD__PLACE_RESULT, moves[i].device_result,
                             moves[i].result_offset * bytes);
        memcpy(word + SHERD__PLACE_STRIDE, w.stride, sizeof w.stride);
    }
}

/* Let the stream wait for the marks of all others. */
static void await_all(sherd_world *world, const sherd__group *group, const int64_t *all,
                      const int16_t *place, int words, int mark)
{
    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        if (q != world->rank)
            sherd__device_await(world->device, all + (int64_t)place[q] * words + mark);
}

/* Whether all members make the same call. */
static bool agree(sherd_world *world, const sherd__group *group, const int64_t *all,
                  const int16_t *place, int words, const char *name)
{
    int64_t mine = all[(int64_t)place[world->rank] * words + SHERD__TOLD_FINGERPRINT];

    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        if (all[(int64_t)place[q] * words + SHERD__TOLD_FINGERPRINT] != mine) {
            sherd__raise(world, SHERD_EDIFFER, "%s: rank %d moves other tensors than rank %d on %s",
                         name, q, world->rank, group->name);
            return false;
        }
    return true;
}

bool sherd__device_call(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__move *moves, int count)
{
    int words = SHERD__TOLD_PLACES + count * SHERD__PLACE_WORDS;
    int64_t *all = sherd__device_room(world, group, words, name);
    int16_t place[SHERD_MAX_RANKS];

    if (!all || !sherd__device_sound(world))
        return false;
    int64_t *mine = all + (int64_t)group->count * words;
    sherd__group_places(group, place);
    memset(mine, 0, (size_t)words * sizeof *mine);
    mine[SHERD__TOLD_FINGERPRINT] = (int64_t)sherd__moves_fingerprint(world, name, moves, count);
    tell(world, mine, moves, count);
    if (!world->transport->share(
            world, group, name,
            &(sherd__sharing){.mine = mine, .words = words, .all = all, .place = place}) ||
        !agree(world, group, all, place, words, name))
        return false;
    await_all(world, group, all, place, words, SHERD__TOLD_MARK);
    for (int i = 0; i < count; i++) {
        sherd__device_work w = sherd__device_work_of(world, &moves[i]);
        w.all = all;
        w.place = place;
        w.words = words;
        w.index = i;
        sherd__device_work_run(&w, world->rank);
    }
    int64_t mark[SHERD__MARK_WORDS];
    sherd__device_mark(world->device, SHERD__MARK_DONE, mark);
    if (!world->transport->share(
            world, group, name,
            &(sherd__sharing){
                .mine = mark, .words = SHERD__MARK_WORDS, .all = all, .place = place}))
        return false;
    await_all(world, group, all, place, SHERD__MARK_WORDS, 0);
    return sherd__device_sound(world);
}
