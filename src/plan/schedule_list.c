/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of a schedule: counted first, then written, so that they are allocated once. And slices
 * of a box that ranks share. Costs the length of the lists, and sorting the ranks.
 */
#include "inside.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE_GRAIN = 16 }; /* elements: a slice begins on a cache line, for 4-byte elements */

void sherd__slice_of(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t grains = sherd__ceil_div(n, SLICE_GRAIN);
    int64_t slice = sherd__ceil_div(grains, p) * SLICE_GRAIN;

    *lo = sherd__min(sherd__mul_cut(slice, i), n);
    *hi = sherd__min(*lo + slice, n);
}

/* ---- lists: counted first, then written ------------------------------------------------------ */

void sherd__schedule_region(sherd__schedule *s, const int64_t *offset, const int64_t *size)
{
    if (s->region) {
        sherd__region *region = &s->region[s->regions];
        memcpy(region->offset, offset, sizeof region->offset);
        memcpy(region->size, size, sizeof region->size);
        region->first = s->pulls;
    }
    s->regions++;
}

void sherd__schedule_pull(sherd__schedule *s, int me, int rank, const int64_t *offset)
{
    if (s->pull) {
        s->pull[s->pulls].rank = rank;
        memcpy(s->pull[s->pulls].offset, offset, sizeof s->pull[0].offset);
        s->region[s->regions - 1].count++;
    }
    s->pulls++;
    if (rank == me)
        return;
    if (s->source)
        s->source[s->sources] = rank;
    s->sources++;
}

void sherd__schedule_reader(sherd__schedule *s, int rank)
{
    if (s->reader)
        s->reader[s->readers] = rank;
    s->readers++;
}

void sherd__schedule_sharer(sherd__schedule *s, int rank)
{
    if (s->sharer)
        s->sharer[s->sharers] = rank;
    s->sharers++;
}

/* ---- where regions lie ----------------------------------------------------------------------- */

void sherd__region_lay(const sherd__schedule *schedule, sherd__region *region)
{
    int64_t n = 1;

    region->at = 0;
    region->dense = 1;
    for (int d = schedule->ndim - 1; d >= 0; d--) {
        region->at += region->offset[d] * schedule->target_stride[d];
        if (region->size[d] != 1 && schedule->target_stride[d] != n)
            region->dense = 0;
        n *= region->size[d];
    }
    region->dense *= n;
}

void sherd__schedule_lay(sherd__schedule *schedule)
{
    schedule->copies = true;
    if (schedule->regions == 0)
        return; /* what has no elements may have sizes whose product has no number */
    sherd__row_major(schedule->ndim, schedule->target_size, schedule->target_stride);
    schedule->target_count = 1;
    for (int d = 0; d < schedule->ndim; d++)
        schedule->target_count *= schedule->target_size[d];
    for (int i = 0; i < schedule->regions; i++) {
        sherd__region_lay(schedule, &schedule->region[i]);
        schedule->copies &= schedule->region[i].count == 1;
    }
}

/* ---- making one ------------------------------------------------------------------------------ */

static int by_rank(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static void sort(int *list, int count)
{
    if (count > 1)
        qsort(list, (size_t)count, sizeof *list, by_rank);
}

static bool allocate(sherd__schedule *s, sherd__heap *heap)
{
    s->region = sherd__alloc(heap, (size_t)s->regions, sizeof *s->region);
    s->pull = sherd__alloc(heap, (size_t)s->pulls, sizeof *s->pull);
    s->source = sherd__alloc(heap, (size_t)s->sources, sizeof *s->source);
    s->reader = sherd__alloc(heap, (size_t)s->readers, sizeof *s->reader);
    s->sharer = sherd__alloc(heap, (size_t)s->sharers, sizeof *s->sharer);
    return s->region && s->pull && s->source && s->reader && s->sharer;
}

/* Parts that others hold, and, of an all-reduce, the slices that others write. */
static int64_t received(const sherd__schedule *s, int rank)
{
    int64_t elements = 0, written = 0;

    for (int i = 0; i < s->regions; i++) {
        int64_t count = 1;
        for (int d = 0; d < s->ndim; d++)
            count *= s->region[i].size[d];
        written += count;
        for (int j = s->region[i].first; j < s->region[i].first + s->region[i].count; j++)
            elements = sherd__add_cut(elements, s->pull[j].rank == rank ? 0 : count);
    }
    return s->sharers ? elements + s->target_size[0] - written : elements;
}

sherd_status sherd__schedule_make(sherd__schedule **out, sherd__space *space,
                                  void (*find_all)(sherd__schedule *s, const void *what),
                                  const void *what, int rank, size_t element_bytes)
{
    sherd__schedule *s = sherd__alloc(space->heap, 1, sizeof *s);

    *out = NULL;
    if (s)
        find_all(s, what);
    if (s && sherd__schedule_full(s)) {
        sherd__schedule_destroy(space, s);
        return sherd__fail(
            space->diag, SHERD_ELIMIT,
            "sherd_plan_create: in one step rank %d would have more than %d parts to "
            "read, or ranks to send to: let fewer ranks take part",
            rank, SHERD__PARTS);
    }
    if (!s || !allocate(s, space->heap)) {
        sherd__schedule_destroy(space, s);
        return sherd__no_memory(space->diag, "sherd_plan_create");
    }
    s->regions = s->pulls = s->sources = s->readers = s->sharers = 0;
    find_all(s, what);
    sort(s->source, s->sources);
    sort(s->reader, s->readers);
    sort(s->sharer, s->sharers);
    sherd__schedule_lay(s);
    s->recv_bytes = sherd__mul_cut(received(s, rank), (int64_t)element_bytes);
    *out = s;
    return SHERD_OK;
}

static void add(int64_t *sum, int64_t bytes)
{
    *sum = sherd__add_cut(*sum, bytes);
}

void sherd__schedule_add_sent(const sherd__schedule *schedule, int rank, size_t element_bytes,
                              int64_t *sent)
{
    for (int i = 0; schedule && i < schedule->regions; i++) {
        const sherd__region *region = &schedule->region[i];
        int64_t count = 1, bytes;
        for (int d = 0; d < schedule->ndim; d++)
            count *= region->size[d];
        bytes = sherd__mul_cut(count, (int64_t)element_bytes);
        for (int j = region->first; j < region->first + region->count; j++)
            if (schedule->pull[j].rank != rank)
                add(&sent[schedule->pull[j].rank], bytes);
        add(&sent[rank], sherd__mul_cut(bytes, schedule->sharers));
    }
}

void sherd__schedule_destroy(sherd__space *space, sherd__schedule *schedule)
{
    if (!schedule)
        return;
    sherd__free(space->heap, schedule->region);
    sherd__free(space->heap, schedule->pull);
    sherd__free(space->heap, schedule->source);
    sherd__free(space->heap, schedule->reader);
    sherd__free(space->heap, schedule->sharer);
    sherd__free(space->heap, schedule);
}
