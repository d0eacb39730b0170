/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open calls: those that this rank has made and not finished. Each round of each wait comes here.
 * An exchange copies from each source as its record comes, in an order that starts after this rank;
 * a reduction waits for all addends and adds them in rank order; an all-reduce then writes its
 * slice to all sharers.
 */
#include "inside.h"

#include "base/num.h"

#include <string.h>

enum {
    CHUNK_BYTES = 128 << 10, /* of a slice that is written to all: read again from the cache */
    LONG = 16 << 10,         /* bytes whose copy takes longer than a record is on its way, */
    LONGEST = 64 << 10,      /* and so long that this does not matter */
    LAST_BYTES = 4 << 10     /* which take about as long */
};

/* ---- moving data ----------------------------------------------------------------------------- */

static const sherd__parcel *parcels_of(const sherd_world *world, const sherd__record *record)
{
    return (const sherd__parcel *)(const void *)(world->arena.base + sherd__peek(&record->parcels));
}

/* Where a rank's part of the i-th tensor lies, as its record says. */
static void source_there(const sherd_world *world, const sherd__call_state *call, int ndim,
                         int rank, int i, sherd__source *out)
{
    const sherd__record *record = sherd__record_of(world, rank, call->group->lane, call->number);

    if (atomic_load_explicit(&record->carried, memory_order_relaxed)) {
        out->data = record->few;
        out->stride[0] = 1;
        return;
    }
    const sherd__parcel *parcel = parcels_of(world, record) + i;
    out->data = world->arena.base + parcel->source;
    for (int d = 0; d < ndim; d++)
        out->stride[d] = parcel->stride[d];
}

/* The same; call NULL: only my own. */
static void source_of(const sherd_world *world, const sherd__call_state *call,
                      const sherd__task *task, const sherd__region *region, const sherd__pull *pull,
                      int i, sherd__source *out)
{
    if (!sherd__is_near(world, pull->rank)) {
        *out = sherd__remote_source(world, call, region, pull, i);
        return;
    }
    if (pull->rank != world->rank) {
        source_there(world, call, task->schedule->ndim, pull->rank, i, out);
        return;
    }
    out->data = task->source_data;
    for (int d = 0; d < task->schedule->ndim; d++)
        out->stride[d] = task->stride[d];
}

static void run_region(sherd_world *world, const sherd__call_state *call, const sherd__task *task,
                       int i, const sherd__region *region)
{
    const sherd__pull *pull = task->schedule->pull + region->first;
    sherd__source *sources = world->sources;
    int done = 0;

    if (region->count <= 1) {
        if (region->count)
            source_of(world, call, task, region, pull, i, sources);
        sherd__region_run(task->schedule, region, task->result_data, sources, task->element_bytes,
                          task->kernels);
        return;
    }
    /* Only where windows overlap has a region more addends than there is room for. */
    do {
        int count = (int)sherd__min(region->count - done, world->source_room);
        for (int k = 0; k < count; k++)
            source_of(world, call, task, region, &pull[done + k], i, &sources[k]);
        if (region->count <= world->source_room)
            sherd__region_run(task->schedule, region, task->result_data, sources,
                              task->element_bytes, task->kernels);
        else
            sherd__region_add(task->schedule, region, done, done + count, task->result_data,
                              sources, task->element_bytes, task->kernels);
        done += count;
    } while (done < region->count);
}

/* Whose record a region of at most one pull waits for. */
static int holder_of(const sherd_world *world, const sherd__schedule *schedule,
                     const sherd__region *region)
{
    return region->count ? schedule->pull[region->first].rank : world->rank;
}

/* Where the last region came from: those of one rank mostly follow each other. */
typedef struct lately {
    int rank; /* -1 = it may be elsewhere for the next */
    sherd__source source;
} lately;

static void copy_region(const sherd_world *world, const sherd__call_state *call,
                        const sherd__task *task, int i, const sherd__region *region, lately *last)
{
    const sherd__pull *pull = task->schedule->pull + region->first;

    if (region->count && pull->rank != last->rank) {
        source_of(world, call, task, region, pull, i, &last->source);
        last->rank = sherd__is_near(world, pull->rank) ? pull->rank : -1;
    }
    sherd__region_run(task->schedule, region, task->result_data, &last->source, task->element_bytes,
                      task->kernels);
}

/* Whether it is worth while to ask for records while a region is copied. */
static bool is_long(const sherd__task *task, const sherd__region *region)
{
    int64_t bytes = region->dense * (int64_t)task->element_bytes;

    return region->count == 1 && bytes >= LONG && bytes <= LONGEST;
}

static void ask_for_records(const sherd_world *world, const sherd__call_state *call)
{
    for (int q = -1; (q = sherd__ranks_next(&call->awaited, q + 1)) >= 0;)
        if (sherd__is_near(world, q))
            __builtin_prefetch(sherd__record_of(world, q, call->group->lane, call->number));
}

/* The indices from `lo` to `hi` of a region's dim d, whose source is the whole region's. */
static void copy_some(const sherd__task *task, const sherd__region *region, int d, int64_t lo,
                      int64_t hi, const sherd__source *whole)
{
    sherd__region part = *region;
    sherd__source source = *whole;

    part.offset[d] += lo;
    part.size[d] = hi - lo;
    sherd__region_lay(task->schedule, &part);
    source.data = (const char *)whole->data + lo * whole->stride[d] * (int64_t)task->element_bytes;
    sherd__region_run(task->schedule, &part, task->result_data, &source, task->element_bytes,
                      task->kernels);
}

/* As copy_and_ask, of a region that has gaps in its source: its last rows. */
static void copy_rows_and_ask(const sherd_world *world, const sherd__call_state *call,
                              const sherd__task *task, const sherd__region *region,
                              const sherd__source *source)
{
    int d = 0;

    while (region->size[d] == 1)
        d++;
    int64_t rows = region->size[d], row = region->dense / rows * (int64_t)task->element_bytes;
    int64_t last = (LAST_BYTES + row - 1) / row; /* fewer than there are: the region is longer */
    copy_some(task, region, d, 0, rows - last, source);
    ask_for_records(world, call);
    copy_some(task, region, d, rows - last, rows, source);
}

/* A long region of this rank's own; before its last bytes, ask for the records that are awaited. */
static void copy_and_ask(const sherd_world *world, const sherd__call_state *call,
                         const sherd__task *task, const sherd__region *region,
                         const sherd__source *source)
{
    int64_t first = region->dense * (int64_t)task->element_bytes - LAST_BYTES;
    void *to;
    const void *from = sherd__region_piece(task->schedule, region, task->result_data, source,
                                           task->element_bytes, &to);

    if (!from) {
        copy_rows_and_ask(world, call, task, region, source);
        return;
    }
    sherd__piece_copy(to, from, first, task->kernels);
    ask_for_records(world, call);
    sherd__piece_copy((char *)to + first, (const char *)from + first, LAST_BYTES, task->kernels);
}

/* Copy the regions whose source is in `fresh`, and in [lo, hi). */
static void copy_those(sherd_world *world, const sherd__call_state *call, int i,
                       const sherd__ranks *fresh, int lo, int hi)
{
    const sherd__task *task = &call->task[i];
    const sherd__schedule *schedule = task->schedule;
    const sherd__region *region = schedule->region, *end = region + schedule->regions;
    lately last;

    last.rank = -1;
    for (; region < end; region++) {
        int q = holder_of(world, schedule, region);
        if (lo <= q && q < hi && sherd__ranks_has(fresh, q) &&
            !(world->remote && sherd__remote_in_parts(world, call, q)))
            copy_region(world, call, task, i, region, &last);
    }
}

/* Copy from ranks after this one first, so that not all pull from rank 0. */
static void copy_fresh(sherd_world *world, const sherd__call_state *call, int i,
                       const sherd__ranks *fresh, int first)
{
    if (first >= world->rank || sherd__ranks_next(fresh, world->rank) >= 0)
        copy_those(world, call, i, fresh, world->rank, world->ranks);
    if (first < world->rank)
        copy_those(world, call, i, fresh, 0, world->rank);
}

/* Where my result and those of sharers that share my memory lie; the others are sent what mine
 * holds in the end. */
static int results_of(const sherd_world *world, const sherd__call_state *call,
                      const sherd__task *task, int i, void **out)
{
    int count = 0;

    out[count++] = task->result_data;
    for (int k = 0; k < task->schedule->sharers; k++) {
        int q = task->schedule->sharer[k];
        if (!sherd__is_near(world, q))
            continue;
        const sherd__record *record = sherd__record_of(world, q, call->group->lane, call->number);
        out[count++] = world->arena.base + parcels_of(world, record)[i].result;
    }
    return count;
}

/*
 * Reduce my slice and write it to all sharers: at once where a kernel can, which reads and writes
 * each line once; else a chunk at a time, so that it is read again from the cache.
 */
static void reduce_and_write(sherd_world *world, const sherd__call_state *call,
                             const sherd__task *task, int i, const sherd__region *region)
{
    const sherd__schedule *schedule = task->schedule;
    size_t size = task->element_bytes;
    int64_t chunk = (int64_t)((size_t)CHUNK_BYTES / size), at = region->offset[0];
    int64_t end = at + region->size[0];
    sherd__source *sources = world->sources;
    sherd__region part = *region;
    void *results[SHERD_MAX_RANKS];
    int count = results_of(world, call, task, i, results);

    for (int k = 0; k < region->count; k++)
        source_of(world, call, task, region, &schedule->pull[region->first + k], i, &sources[k]);
    if (sherd__region_spread(schedule, region, results, count, sources, size, task->kernels))
        return;
    for (; at < end; at += chunk) {
        size_t begin = (size_t)at * size;
        part.offset[0] = at;
        part.size[0] = sherd__min(chunk, end - at);
        sherd__region_lay(schedule, &part);
        sherd__region_run(schedule, &part, task->result_data, sources, size, task->kernels);
        for (int k = 1; k < count; k++)
            memcpy((char *)results[k] + begin, task->result_data + begin,
                   (size_t)part.size[0] * size);
        for (int k = 0; k < region->count; k++)
            sources[k].data = (const unsigned char *)sources[k].data +
                              (size_t)(chunk * sources[k].stride[0]) * size;
    }
}

static void run_reduction(sherd_world *world, const sherd__call_state *call,
                          const sherd__task *task, int i)
{
    const sherd__schedule *schedule = task->schedule;

    for (int k = 0; k < schedule->regions; k++) {
        if (task->sliced)
            reduce_and_write(world, call, task, i, &schedule->region[k]);
        else
            run_region(world, call, task, i, &schedule->region[k]);
    }
}

void sherd__run_local(sherd_world *world, const sherd__task *task)
{
    for (int k = 0; k < task->schedule->regions; k++)
        run_region(world, NULL, task, 0, &task->schedule->region[k]);
}

static void copy_words_of(sherd_world *world, const sherd__call_state *call, int q)
{
    const sherd__sharing *numbers = call->numbers;
    sherd__source words = {.data = numbers->mine};

    if (!sherd__is_near(world, q))
        words.data = sherd__remote_words(world, call, q);
    else if (q != world->rank)
        source_there(world, call, 0, q, 0, &words);
    memcpy(numbers->all + (size_t)numbers->place[q] * (size_t)numbers->words, words.data,
           (size_t)numbers->words * sizeof *numbers->all);
}

/* ---- one call, all calls --------------------------------------------------------------------- */

/*
 * Store `left` of a group: the number of this rank's earliest unfinished call, or of the next one.
 * The caller wakes those who wait for it.
 */
static void store_left(sherd_world *world, sherd__group *group)
{
    uint64_t left = sherd__number(world->base, group->sequence + 1);

    for (const sherd__call_state *call = world->open; call; call = call->next)
        if (call->group == group && !call->finished && call->number < left)
            left = call->number;
    atomic_store_explicit(&group->own->left, left, memory_order_release);
}

static void finish(sherd_world *world, sherd__call_state *call)
{
    call->finished = true;
    for (int i = 0; i < call->count; i++)
        if (call->task[i].source)
            call->task[i].source->reading--;
    store_left(world, call->group);
    if (world->remote)
        sherd__remote_finish(world, call);
}

/* Move awaited ranks whose records have come to `fresh`. True: none is awaited any more. */
static bool take_records(sherd_world *world, sherd__call_state *call, sherd__ranks *fresh)
{
    bool all = true;

    for (int q = -1; (q = sherd__ranks_next(&call->awaited, q + 1)) >= 0;) {
        if (sherd__record_there(world, call, q)) {
            sherd__ranks_add(fresh, q);
            sherd__ranks_drop(&call->awaited, q);
        } else {
            all = false;
        }
    }
    return all;
}

/*
 * The regions whose source one rank holds; its record, if it has one, is read once. `ask`: this
 * rank's own, after its record is out. Those of its peers are out by the end of a long copy, and to
 * ask for them shortly before it brings them meanwhile; to ask earlier might take their lines away
 * from who is about to write them.
 */
static void copy_of(sherd_world *world, const sherd__call_state *call, int i, int q, bool ask)
{
    const sherd__task *task = &call->task[i];
    const sherd__schedule *schedule = task->schedule;
    const sherd__region *region = schedule->region, *end = region + schedule->regions;
    bool near = sherd__is_near(world, q), known = false;
    sherd__source source;

    if (world->remote && sherd__remote_in_parts(world, call, q))
        return;
    for (; region < end; region++) {
        if (holder_of(world, schedule, region) != q)
            continue;
        if (region->count && !known)
            source_of(world, call, task, region, schedule->pull + region->first, i, &source);
        known = near && region->count;
        if (ask && is_long(task, region)) {
            copy_and_ask(world, call, task, region, &source);
            ask = false;
        } else {
            sherd__region_run(schedule, region, task->result_data, &source, task->element_bytes,
                              task->kernels);
        }
    }
}

/* Copy all that is copied, not reduced, from one rank. */
static void copy_one(sherd_world *world, const sherd__call_state *call, int q, bool ask)
{
    if (call->numbers)
        copy_words_of(world, call, q);
    for (int i = 0; i < call->count; i++)
        if (!call->task[i].reduces)
            copy_of(world, call, i, q, ask && i == call->count - 1);
}

/* The same from these ranks. */
static void copy_from(sherd_world *world, const sherd__call_state *call, const sherd__ranks *fresh)
{
    int first = sherd__ranks_next(fresh, 0);

    if (first < 0)
        return;
    if (sherd__ranks_next(fresh, first + 1) < 0) {
        copy_one(world, call, first, false);
        return;
    }
    for (int q = first; call->numbers && q >= 0; q = sherd__ranks_next(fresh, q + 1))
        copy_words_of(world, call, q);
    for (int i = 0; i < call->count; i++)
        if (!call->task[i].reduces)
            copy_fresh(world, call, i, fresh, first);
}

/*
 * Do what can be done for a call; true if anything was. This rank's own part comes first: looking
 * for a record just before its owner stores it takes the cache line away from the owner, and costs
 * both a round trip.
 */
static bool advance(sherd_world *world, sherd__call_state *call)
{
    sherd__ranks fresh;
    bool own = call->own;

    sherd__ranks_clear(&fresh);
    if (own)
        copy_one(world, call, world->rank, true);
    call->own = false;
    bool all = take_records(world, call, &fresh);
    if (!all && fresh.words == 0)
        return own;
    copy_from(world, call, &fresh);
    for (int i = 0; i < call->count && all; i++)
        if (call->task[i].reduces)
            run_reduction(world, call, &call->task[i], i);
    if (all && call->numbers && call->numbers->then)
        call->numbers->then(world, call->numbers->context);
    if (all)
        finish(world, call);
    return true;
}

static bool sharers_have_left(sherd_world *world, sherd__call_state *call)
{
    bool all = true;

    for (int q = -1; (q = sherd__ranks_next(&call->sharers, q + 1)) >= 0;) {
        if (sherd__is_near(world, q) ? sherd__has_left(world, call->group->lane, q, call->number)
                                     : sherd__remote_slices(world, call, q))
            sherd__ranks_drop(&call->sharers, q);
        else
            all = false;
    }
    return all;
}

/*
 * After this rank has left a call: wake all, and say whether its sharers have left it too. They are
 * asked before the fence in the waking, since both wait for cache lines and can do so at once.
 */
static bool left_by_all(sherd_world *world, sherd__call_state *call)
{
    bool all = sharers_have_left(world, call);

    sherd__wake(world, &call->group->members);
    return all;
}

bool sherd__end_at_once(sherd_world *world, sherd__call_state *call)
{
    if (world->quiet || !advance(world, call) || !call->finished || !left_by_all(world, call))
        return false;
    sherd__call_release(call, false);
    call->ended = true;
    return true;
}

bool sherd__progress(sherd_world *world)
{
    bool moved = false;

    for (sherd__call_state *call = world->open, *next; call; call = next) {
        next = call->next;
        if (world->quiet)
            break; /* the call before has found a difference, and raised the alarm */
        bool before = call->finished;
        if (!before)
            moved |= advance(world, call);
        if (call->finished &&
            (before ? sharers_have_left(world, call) : left_by_all(world, call))) {
            sherd__call_end(world, call);
            moved = true;
        }
    }
    return moved;
}
