/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long data goes in parts, each a message of its own behind that of the record: the next part is
 * packed while those before it are on their way, and what comes is unpacked while it is in the
 * cache. Reductions, which need all addends at once, and calls of several tensors go as a whole.
 */
#include "remote.h"
#include "base/num.h"
#include "plan/sends.h"

#include <string.h>

bool sherd__can_part(const sherd__call_state *call)
{
    return call->count == 1 && !call->numbers && !call->task[0].reduces;
}

/* ---- what goes out --------------------------------------------------------------------------- */

static size_t bytes_of_part(const sherd__remote *remote, const sherd__task *task)
{
    size_t elements = remote->part_bytes / task->element_bytes;

    return (elements ? elements : 1) * task->element_bytes;
}

/* One part for a rank, to be packed when its turn comes; `from`: it goes from where it lies. */
static sherd__sheet *make_part(sherd__remote *remote, int to, size_t at, size_t bytes,
                               const void *from)
{
    sherd__sheet *sheet = sherd__sheet_take(remote, SHERD__RECORD_BYTES + (from ? 0 : bytes));

    if (!sheet)
        return NULL;
    sherd__sheet_fill(sheet, to, bytes);
    sheet->at = at;
    sheet->data = from ? (const unsigned char *)from + at : NULL;
    if (from)
        sheet->message = (sherd_message){sheet->memory, SHERD__RECORD_BYTES,
                                         (void *)(uintptr_t)sheet->data, bytes};
    return sheet;
}

bool sherd__parts_prepare(sherd__remote *remote, const sherd__call_state *call,
                          sherd__ranks *readers)
{
    sherd__sheet **last = &remote->parts;
    bool none = sherd__ranks_none(readers);
    size_t length = none ? 0 : bytes_of_part(remote, &call->task[0]);

    for (size_t at = 0; !sherd__ranks_none(readers); at += length) {
        for (int q = -1; (q = sherd__ranks_next(readers, q + 1)) >= 0;) {
            size_t bytes = sherd__bytes_for(call, q);
            if (at + length >= bytes)
                sherd__ranks_drop(readers, q); /* its last one */
            *last =
                make_part(remote, q, at, (size_t)sherd__min((int64_t)length, (int64_t)(bytes - at)),
                          sherd__direct(call, q, bytes));
            if (!*last)
                return false;
            last = &(*last)->next;
        }
    }
    return true;
}

static void pack_part(const sherd__call_state *call, sherd__sheet *sheet)
{
    const sherd__task *task = &call->task[0];
    const sherd__sends *sends = sherd__sends_of(task->plan, task->step);
    int64_t from = (int64_t)(sheet->at / task->element_bytes);
    sherd__source source = sherd__own_source(task);
    const sherd__packing what = {sends, sherd__sends_out(sends, sheet->to), task->schedule->ndim,
                                 task->element_bytes, &source};

    sherd__sends_pack(&what, from, from + (int64_t)(sheet->bytes / task->element_bytes),
                      sheet->memory + SHERD__RECORD_BYTES);
}

void sherd__parts_send(sherd__remote *remote, const sherd__call_state *call)
{
    while (remote->parts) {
        sherd__sheet *sheet = remote->parts;
        const sherd__sent_record sent = {.head = {.kind = SHERD__SENT_PART,
                                                  .lane = (uint32_t)call->group->lane,
                                                  .number = call->number},
                                         .left = sheet->at,
                                         .bytes = sheet->bytes};
        remote->parts = sheet->next;
        memcpy(sheet->memory, &sent, sizeof sent);
        if (sheet->data)
            sheet->held = call->task[0].source;
        else
            pack_part(call, sheet);
        sherd__sheet_send(remote, sheet);
    }
}

/* ---- what comes in --------------------------------------------------------------------------- */

/* Elements [from, to) of the packed box of a region into the result; `source` is as if all of the
 * box were there. */
static void unpack_box(const sherd__task *task, const sherd__region *region,
                       const sherd__source *source, int64_t from, int64_t to)
{
    int ndim = task->schedule->ndim;
    int64_t at[SHERD_MAX_DIMS];
    sherd__region part = *region;

    while (from < to) {
        sherd__source there = *source;
        int64_t n = sherd__box_stretch(ndim, region->size, from, to, at, part.size), skipped = 0;
        for (int d = 0; d < ndim; d++) {
            part.offset[d] = region->offset[d] + at[d];
            skipped += at[d] * source->stride[d];
        }
        sherd__region_lay(task->schedule, &part);
        there.data = (const void *)((uintptr_t)source->data +
                                    (uintptr_t)(skipped * (int64_t)task->element_bytes));
        sherd__region_run(task->schedule, &part, task->result_data, &there, task->element_bytes,
                          task->kernels);
        from += n;
    }
}

/* All that a part has of the regions of its rank. */
static void unpack(const sherd__call_state *call, int rank, const sherd__sheet *sheet)
{
    const sherd__task *task = &call->task[0];
    const sherd__schedule *schedule = task->schedule;
    const sherd__sends *sends = sherd__sends_of(task->plan, task->step);
    int64_t begin = (int64_t)(sheet->at / task->element_bytes);
    int64_t end = begin + (int64_t)(sheet->bytes / task->element_bytes);

    for (int i = 0; i < schedule->regions; i++) {
        const sherd__region *region = &schedule->region[i];
        const sherd__pull *pull = &schedule->pull[region->first];
        if (!region->count || pull->rank != rank)
            continue;
        int64_t place = sends->place[region->first], n = 1;
        for (int d = 0; d < schedule->ndim; d++)
            n *= region->size[d];
        int64_t from = begin > place ? begin - place : 0, to = sherd__min(end - place, n);
        sherd__source source = sherd__packed_source(task, region, pull, sheet->data, place - begin);
        unpack_box(task, region, &source, from, to);
    }
}

bool sherd__take_part(sherd_world *world, int from, const sherd_message *m)
{
    sherd__sent_record sent;
    sherd__sheet *sheet;

    if (!sherd__take_in(&sheet, &sent, world, from, m))
        return false;
    if (sheet)
        sheet->at = sent.left;
    return true;
}

/* One part; false: it makes no sense, and that has been said. */
static bool take_out(sherd_world *world, const sherd__call_state *call, int rank,
                     sherd__sheet *whole, const sherd__sheet *sheet)
{
    size_t element = call->task[0].element_bytes;

    if (sheet->bytes > whole->lacks || sheet->at > whole->bytes - sheet->bytes ||
        sheet->at % element || sheet->bytes % element) {
        sherd__remote_fail(world, SHERD_EINVAL, "a part of rank %d lies beyond what it sends",
                           rank);
        return false;
    }
    unpack(call, rank, sheet);
    whole->lacks -= sheet->bytes;
    return true;
}

bool sherd__parts_unpack(sherd_world *world, const sherd__call_state *call, int rank,
                         sherd__sheet *whole)
{
    sherd__sheet **at = sherd__pile_of(world, call, rank, SHERD__SENT_PART), *pile = *at;
    bool good = true;

    if (!pile)
        return whole->lacks == 0;
    *at = pile->next;
    pile->next = pile->more;
    pile->more = NULL;
    for (const sherd__sheet *sheet = pile; sheet && good; sheet = sheet->next)
        good = take_out(world, call, rank, whole, sheet);
    sherd__sheets_give(world->remote, &pile);
    return good && whole->lacks == 0;
}
