/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of moves between the memories of GPUs (docs/decisions/106). Two calls of the arena frame
 * them: in the first, ranks tell each other where their pieces lie, and a mark in their streams
 * behind which these are complete; in the second, a mark behind which they have read what they
 * lack, so that nothing that follows overtakes a reader. The CPUs meet, but wait for no GPU.
 * Costs two shared words' calls and a kernel for each region.
 */
#include "devices.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum {
    FINGERPRINT, /* of the call: words of all ranks must agree on it */
    MARK,
    PLACES = MARK + SHERD__MARK_WORDS,
    SOURCE = 0, /* of a place: */
    RESULT = SHERD__DEVICE_WORDS,
    STRIDE = 2 * SHERD__DEVICE_WORDS,
    PLACE_WORDS = STRIDE + SHERD_MAX_DIMS
};

sherd__device *sherd__world_device(const sherd_world *world)
{
    return world->device;
}

bool sherd__moves_there(const sherd_world *world)
{
    return world->device && !world->remote;
}

/* ---- opening --------------------------------------------------------------------------------- */

sherd_status sherd__world_device_open(sherd_world *world, const sherd_world_options *options)
{
    const char *name = options && options->device ? options->device : getenv("SHERD_DEVICE");

    if (!name || !*name || strcmp(name, "cpu") == 0)
        return SHERD_OK;
    return sherd__device_open(&world->device, &world->heap, &world->diag, name, world->rank);
}

bool sherd__device_sound(sherd_world *world)
{
    sherd__device *device = world->device;
    const char *lacked = device ? sherd__device_lacked(device) : NULL;
    const char *fault = device ? sherd__device_fault(device) : NULL;

    if (lacked)
        sherd__raise(world, SHERD_ENOMEM, "%s: %s", sherd__device_name(device), lacked);
    else if (fault)
        sherd__raise(world, SHERD_ENOTSUP, "%s", fault);
    return !lacked && !fault;
}

/* ---- one region ------------------------------------------------------------------------------ */

/* One tensor of a call, as this rank runs it. */
typedef struct work {
    sherd__device *device;
    const sherd__move *move;
    const sherd__schedule *schedule;
    const sherd__kernels *kernels;
    size_t element_bytes;
    const void *source; /* this rank's */
    void *result;
    int64_t stride[SHERD_MAX_DIMS];
    /* what all ranks told, and where a rank's words are in it; NULL of a local step */
    const int64_t *all;
    const int16_t *place;
    int words, index;
} work;

static const int64_t *told_by(const work *w, int rank)
{
    return w->all + (int64_t)w->place[rank] * w->words + PLACES + (int64_t)w->index * PLACE_WORDS;
}

/* Where a pull begins, and the strides there. NULL: noted. */
static const void *find(const work *w, const sherd__pull *pull, bool own, int64_t *stride)
{
    const void *data = w->source;
    int64_t at = 0;

    memcpy(stride, w->stride, sizeof w->stride);
    if (!own) {
        const int64_t *word = told_by(w, pull->rank);
        data = sherd__device_import(w->device, word + SOURCE);
        memcpy(stride, word + STRIDE, sizeof w->stride);
    }
    for (int d = 0; d < w->schedule->ndim; d++)
        at += pull->offset[d] * stride[d];
    return data ? (const char *)data + at * (int64_t)w->element_bytes : NULL;
}

static void fill_region(const work *w, const sherd__region *region, void *dst)
{
    int64_t value; /* room for an element of any dtype */

    w->kernels->fill(&value, 1, w->schedule->fill);
    sherd__device_fill_box(w->device, w->element_bytes, w->schedule->ndim, region->size, dst,
                           w->schedule->target_stride, &value);
}

/* More addends than a kernel takes are added onto the result, in the same order. */
static void add_region(const work *w, const sherd__region *region, int rank, void *dst)
{
    const sherd__schedule *schedule = w->schedule;
    const sherd__pull *pull = schedule->pull + region->first;
    int64_t stride[SHERD__DEVICE_ADDENDS][SHERD_MAX_DIMS];
    const void *src[SHERD__DEVICE_ADDENDS];

    for (int done = 0; done < region->count;) {
        int held = done ? 1 : 0, count = held;
        if (held) {
            src[0] = dst;
            memcpy(stride[0], schedule->target_stride, sizeof stride[0]);
        }
        for (; count < SHERD__DEVICE_ADDENDS && done < region->count; count++, done++)
            if (!(src[count] = find(w, &pull[done], pull[done].rank == rank, stride[count])))
                return;
        sherd__device_reduce(w->device, w->move->dtype, schedule->op, schedule->ndim, region->size,
                             dst, schedule->target_stride, count, src,
                             (const int64_t(*)[SHERD_MAX_DIMS])stride,
                             done == region->count ? schedule->divisor : 1);
    }
}

static void run_region(const work *w, const sherd__region *region, int rank)
{
    const sherd__schedule *schedule = w->schedule;
    void *dst = (char *)w->result + region->at * (int64_t)w->element_bytes;
    int64_t stride[SHERD_MAX_DIMS];

    if (region->count == 0) {
        fill_region(w, region, dst);
    } else if (region->count > 1) {
        add_region(w, region, rank, dst);
    } else {
        const sherd__pull *pull = schedule->pull + region->first;
        const void *src = find(w, pull, pull->rank == rank, stride);
        if (src)
            sherd__device_copy_box(w->device, w->element_bytes, schedule->ndim, region->size, dst,
                                   schedule->target_stride, src, stride);
    }
}

/* What this rank has added up of a sliced reduction, to the same place in every sharer's result. */
static void spread(const work *w, const sherd__region *region)
{
    int64_t at = region->at * (int64_t)w->element_bytes;
    int64_t bytes = region->size[0] * (int64_t)w->element_bytes;

    for (int k = 0; k < w->schedule->sharers && bytes > 0; k++) {
        const void *there =
            sherd__device_import(w->device, told_by(w, w->schedule->sharer[k]) + RESULT);
        if (there)
            sherd__device_move(w->device, (char *)(uintptr_t)there + at,
                               (const char *)w->result + at, bytes);
    }
}

static void run_work(const work *w, int rank)
{
    bool sliced = w->move->plan->step[w->move->step].sliced;

    for (int k = 0; k < w->schedule->regions; k++) {
        const sherd__region *region = &w->schedule->region[k];
        run_region(w, region, rank);
        if (sliced)
            spread(w, region);
    }
}

static void *start_of(const sherd__device_block *block, int64_t offset, size_t element_bytes)
{
    return block ? (char *)block->data + (size_t)offset * element_bytes : NULL;
}

static work work_of(const sherd_world *world, const sherd__move *move)
{
    const sherd_step *step = &move->plan->step[move->step];
    size_t bytes = move->plan->element_bytes;
    work w = {.device = world->device,
              .move = move,
              .schedule = move->plan->mine[move->step],
              .kernels = sherd__kernels_of_any(&world->kernels, move->dtype),
              .element_bytes = bytes,
              .source = start_of(move->device_source, move->source_offset, bytes),
              .result = start_of(move->device_result, move->result_offset, bytes)};

    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        w.stride[d] = step->sliced ? 1 : move->source_stride ? move->source_stride[d] : 0;
    return w;
}

bool sherd__device_slice(sherd_world *world, const sherd__move *move)
{
    const work w = work_of(world, move);

    run_work(&w, world->rank);
    return sherd__device_sound(world);
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* Room for the words of all members of a group, and this rank's behind them. NULL: raised. */
static int64_t *room_for(sherd_world *world, const sherd__group *group, int words, const char *name)
{
    int64_t need = (int64_t)(group->count + 1) * words;

    if (world->device_words < need) {
        sherd__free(&world->heap, world->device_word);
        world->device_word = sherd__alloc(&world->heap, (size_t)need, sizeof(int64_t));
        world->device_words = world->device_word ? need : 0;
    }
    if (!world->device_word)
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory", name);
    return world->device_word;
}

static void tell(sherd_world *world, int64_t *mine, const sherd__move *moves, int count)
{
    sherd__device_mark(world->device, 0, mine + MARK);
    for (int i = 0; i < count; i++) {
        int64_t *word = mine + PLACES + (int64_t)i * PLACE_WORDS;
        const work w = work_of(world, &moves[i]);
        int64_t bytes = (int64_t)w.element_bytes;
        sherd__device_export(world->device, word + SOURCE, moves[i].device_source,
                             moves[i].source_offset * bytes);
        sherd__device_export(world->device, word + RESULT, moves[i].device_result,
                             moves[i].result_offset * bytes);
        memcpy(word + STRIDE, w.stride, sizeof w.stride);
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
    int64_t mine = all[(int64_t)place[world->rank] * words + FINGERPRINT];

    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        if (all[(int64_t)place[q] * words + FINGERPRINT] != mine) {
            sherd__raise(world, SHERD_EDIFFER, "%s: rank %d moves other tensors than rank %d on %s",
                         name, q, world->rank, group->name);
            return false;
        }
    return true;
}

bool sherd__device_call(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__move *moves, int count)
{
    int words = PLACES + count * PLACE_WORDS;
    int64_t *all = room_for(world, group, words, name);
    int16_t place[SHERD_MAX_RANKS];

    if (!all || !sherd__device_sound(world))
        return false;
    int64_t *mine = all + (int64_t)group->count * words;
    int n = 0;
    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        place[q] = (int16_t)n++;
    memset(mine, 0, (size_t)words * sizeof *mine);
    mine[FINGERPRINT] = (int64_t)sherd__moves_fingerprint(world, name, moves, count);
    tell(world, mine, moves, count);
    if (!world->transport->share(world, group, name, &(sherd__sharing){mine, words, all, place}) ||
        !agree(world, group, all, place, words, name))
        return false;
    await_all(world, group, all, place, words, MARK);
    for (int i = 0; i < count; i++) {
        work w = work_of(world, &moves[i]);
        w.all = all;
        w.place = place;
        w.words = words;
        w.index = i;
        run_work(&w, world->rank);
    }
    int64_t mark[SHERD__MARK_WORDS];
    sherd__device_mark(world->device, 1, mark);
    if (!world->transport->share(world, group, name,
                                 &(sherd__sharing){mark, SHERD__MARK_WORDS, all, place}))
        return false;
    await_all(world, group, all, place, SHERD__MARK_WORDS, 0);
    return sherd__device_sound(world);
}
