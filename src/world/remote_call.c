/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls between ranks that share no memory: the record travels with all that its reader pulls, packed in the order in which
 * the reader's schedule names it, or, where that is one large piece, from where it lies. What can fail for lack of memory
 * does so before anything is published. What comes lies in the inbox until the call has read it. A slice of an all-reduce,
 * once reduced, is a second message to each of the sharers.
 */
#include "remote.h"
#include "base/num.h"
#include "plan/sends.h"

#include <string.h>

enum {
    DIRECT_BYTES =
        32
        << 10, /* from here on one piece is sent from where it lies: a copy costs more than a second message */
    ALIGNED = 64
};

enum { HEAD_BYTES = (sizeof(sherd__sent_record) + ALIGNED - 1) / ALIGNED * ALIGNED };

/* ---- what goes out --------------------------------------------------------------------------------------- */

static const sherd__sends *sends_of(const sherd__task *task)
{
    return sherd__sends_of(task->plan, task->step);
}

/* Where the tasks' parts begin is told only where there are several. */
static size_t table_bytes(int count)
{
    return count > 1 ? sherd__round_up((size_t)count * sizeof(uint64_t), ALIGNED) : 0;
}

/* Bytes for one rank, the table included. */
static size_t bytes_for(const sherd__call_state *call, int to)
{
    size_t bytes = table_bytes(call->count);

    for (int i = 0; i < call->count; i++) {
        const sherd__parcel_list *list = sherd__sends_out(sends_of(&call->task[i]), to);
        size_t part = list ? (size_t)list->elements * call->task[i].element_bytes : 0;
        bytes += call->count > 1 ? sherd__round_up(part, ALIGNED) : part;
    }
    return bytes;
}

static sherd__source own_source(const sherd__task *task)
{
    sherd__source source = {task->source_data, {0}};

    memcpy(source.stride, task->stride, (size_t)task->schedule->ndim * sizeof *task->stride);
    return source;
}

static void pack(const sherd__call_state *call, int to, unsigned char *out)
{
    size_t at = table_bytes(call->count);

    for (int i = 0; i < call->count; i++) {
        const sherd__task *task = &call->task[i];
        const sherd__sends *sends = sends_of(task);
        const sherd__parcel_list *list = sherd__sends_out(sends, to);
        sherd__source source = own_source(task);
        uint64_t start = at;
        if (call->count > 1)
            memcpy(out + (size_t)i * sizeof start, &start, sizeof start);
        if (!list)
            continue;
        sherd__sends_pack(sends, list, task->schedule->ndim, task->element_bytes, out + at,
                          &source);
        at += sherd__round_up((size_t)list->elements * task->element_bytes, ALIGNED);
    }
}

/* The data of a call for one rank if it is one large piece as it lies. */
static const void *direct(const sherd__call_state *call, int to, size_t bytes)
{
    const sherd__task *task = &call->task[0];
    const sherd__parcel_list *list;

    if (call->count != 1 || bytes < DIRECT_BYTES || !(list = sherd__sends_out(sends_of(task), to)))
        return NULL;
    sherd__source source = own_source(task);
    return sherd__sends_direct(sends_of(task), list, task->schedule->ndim, task->element_bytes,
                               &source);
}

/* A sheet with room for a record and data, which lie behind each other if that is short. */
static sherd__sheet *make_sheet(sherd__remote *remote, int to, size_t bytes, unsigned char **data)
{
    sherd__sheet *sheet = sherd__sheet_take(remote, HEAD_BYTES + bytes);

    if (!sheet)
        return NULL;
    sheet->to = to;
    *data = sheet->memory + HEAD_BYTES;
    sheet->bytes = bytes;
    sheet->message = HEAD_BYTES + bytes <= SHERD_HEAD_BYTES
                         ? (sherd_message){sheet->memory, HEAD_BYTES + bytes, NULL, 0}
                         : (sherd_message){sheet->memory, HEAD_BYTES, *data, bytes};
    sheet->next = remote->ready;
    remote->ready = sheet;
    return sheet;
}

static bool pack_for(sherd__remote *remote, sherd__call_state *call, int to)
{
    size_t bytes = bytes_for(call, to);
    const void *from = direct(call, to, bytes);
    unsigned char *data;
    sherd__sheet *sheet = make_sheet(remote, to, from ? 0 : bytes, &data);

    if (!sheet)
        return false;
    if (from) {
        sheet->bytes = bytes;
        sheet->held = call->task[0].source;
        sheet->message.body = (void *)(uintptr_t)from;
        sheet->message.body_bytes = bytes;
    } else {
        pack(call, to, data);
    }
    return true;
}

/* A message for each slice that this rank will have reduced, and each rank that gets it. */
static bool prepare_slices(sherd__remote *remote, sherd__call_state *call)
{
    for (int i = 0; i < call->count; i++) {
        const sherd__schedule *schedule = call->task[i].schedule;
        for (int k = 0; call->task[i].sliced && k < schedule->sharers; k++) {
            sherd__sheet *sheet = sherd__sheet_take(remote, sizeof(sherd__sent_record));
            if (!sheet)
                return false;
            sheet->to = schedule->sharer[k];
            sheet->task = i;
            sheet->next = call->slices;
            call->slices = sheet;
        }
    }
    return true;
}

static uint64_t readers_of(const sherd__call_state *call)
{
    uint64_t ranks = 0;

    for (int i = 0; i < call->count; i++) {
        const sherd__schedule *schedule = call->task[i].schedule;
        for (int k = 0; k < schedule->readers; k++)
            ranks |= sherd__bit(schedule->reader[k]);
        for (int k = 0; call->task[i].sliced && k < schedule->sharers; k++)
            ranks |= sherd__bit(schedule->sharer[k]);
    }
    return ranks;
}

/* Words of a share go to all. */
static bool pack_words(sherd_world *world, sherd__call_state *call)
{
    uint64_t rest = call->group->members & ~world->near;
    size_t bytes = (size_t)call->numbers->words * sizeof *call->numbers->mine;
    unsigned char *data;

    while (rest) {
        if (!make_sheet(world->remote, sherd__next_rank(&rest), bytes, &data))
            return false;
        memcpy(data, call->numbers->mine, bytes);
    }
    return true;
}

bool sherd__remote_pack(sherd_world *world, sherd__call_state *call)
{
    uint64_t rest = readers_of(call) & ~world->near;
    bool good = true;

    for (int i = 0; i < call->count && good; i++)
        good = sends_of(&call->task[i]) != NULL;
    if (good && call->numbers)
        good = pack_words(world, call);
    while (rest && good)
        good = pack_for(world->remote, call, sherd__next_rank(&rest));
    good = good && prepare_slices(world->remote, call);
    if (good)
        return true;
    sherd__sheets_give(world->remote, &world->remote->ready);
    sherd__remote_drop(world, call);
    return false;
}

void sherd__remote_publish(sherd_world *world, const sherd__call_state *call)
{
    sherd__remote *remote = world->remote;
    int lane = call->group->lane;
    const sherd__record *record = sherd__record_of(world, world->rank, lane, call->number);

    while (remote->ready) {
        sherd__sheet *sheet = remote->ready;
        sherd__lane *theirs = sherd__lane_of(world, sheet->to, lane);
        sherd__sent_record *sent = (sherd__sent_record *)(void *)sheet->memory;
        remote->ready = sheet->next;
        sherd__tell_records(world, sheet->to, lane, call->number - 1);
        *sent = (sherd__sent_record){
            .head = {.kind = SHERD__SENT_CALL, .lane = (uint32_t)lane, .number = call->number},
            .fingerprint = call->fingerprint,
            .history = call->history,
            .left = sherd__peek(&call->group->own->left),
            .bytes = sheet->bytes};
        for (int i = 0; i < SHERD__LABEL_WORDS; i++)
            sent->label[i] = sherd__peek(&record->label[i]);
        theirs->told = call->number;
        theirs->told_left = sent->left;
        sherd__sheet_send(remote, sheet);
    }
}

/* ---- what comes in --------------------------------------------------------------------------------------- */

static sherd__sheet *sheet_of_body(void *body)
{
    return (sherd__sheet *)(void *)((unsigned char *)body - offsetof(sherd__sheet, memory));
}

/* Put the data of a message into the inbox; NULL: there is no room, and that has been said. */
static sherd__sheet *keep(sherd_world *world, int from, const sherd_message *m,
                          const sherd__sent_record *sent)
{
    sherd__remote *remote = world->remote;
    size_t bytes = sent->bytes;
    sherd__sheet *sheet = m->body_bytes ? (m->body ? sheet_of_body(m->body) : NULL)
                                        : sherd__sheet_take(remote, bytes);

    if (!sheet) {
        sherd__remote_fail(world, SHERD_ENOMEM, "out of memory for %zu bytes of rank %d", bytes,
                           from);
        return NULL;
    }
    if (!m->body_bytes && bytes)
        memcpy(sheet->memory, (const unsigned char *)m->head + HEAD_BYTES, bytes);
    sheet->data = sheet->memory;
    sheet->bytes = bytes;
    sheet->lane = (int)sent->head.lane;
    sheet->number = sent->head.number;
    sheet->next = remote->inbox[from];
    remote->inbox[from] = sheet;
    return sheet;
}

/* The record at the head of a message, and its data in the inbox: as in keep. False: it makes no sense. */
static bool take_in(sherd__sheet **sheet, sherd__sent_record *sent, sherd_world *world, int from,
                    const sherd_message *m)
{
    if (m->head_bytes < HEAD_BYTES)
        return false;
    memcpy(sent, m->head, sizeof *sent);
    if ((m->body_bytes ? m->body_bytes : m->head_bytes - HEAD_BYTES) != sent->bytes)
        return false;
    *sheet = keep(world, from, m, sent);
    return true;
}

bool sherd__take_call(sherd_world *world, int from, const sherd_message *m)
{
    sherd__sent_record sent;
    sherd__sheet *sheet;

    if (!take_in(&sheet, &sent, world, from, m))
        return false;
    if (sheet) {
        sheet->slice = false;
        sherd__mirror_record(world, from, &sent);
    }
    return true;
}

/* Slices use the record's `left` for where they begin. */
bool sherd__take_slice(sherd_world *world, int from, const sherd_message *m)
{
    sherd__sent_record sent;
    sherd__sheet *sheet;

    if (!take_in(&sheet, &sent, world, from, m))
        return false;
    if (sheet) {
        sheet->slice = true;
        sheet->task = sent.task;
        sheet->at = sent.left;
    }
    return true;
}

static const sherd__sheet *find(const sherd_world *world, const sherd__call_state *call, int rank)
{
    const sherd__sheet *sheet = world->remote->inbox[rank];

    while (sheet &&
           (sheet->slice || sheet->lane != call->group->lane || sheet->number != call->number))
        sheet = sheet->next;
    return sheet;
}

/* Where the data of the i-th tensor begins. */
static size_t start_of(const sherd__call_state *call, const sherd__sheet *sheet, int i)
{
    uint64_t start = 0;

    if (call->count > 1)
        memcpy(&start, sheet->data + (size_t)i * sizeof start, sizeof start);
    return (size_t)start;
}

static bool is_whole(const sherd__call_state *call, const sherd__sheet *sheet, int rank)
{
    if (call->numbers)
        return sheet->bytes == (size_t)call->numbers->words * sizeof *call->numbers->all;
    if (sheet->bytes < table_bytes(call->count))
        return false;
    for (int i = 0; i < call->count; i++) {
        size_t part =
            (size_t)sherd__sends_in(sends_of(&call->task[i]), rank) * call->task[i].element_bytes;
        size_t start = start_of(call, sheet, i);
        if (start > sheet->bytes || part > sheet->bytes - start)
            return false;
    }
    return true;
}

bool sherd__remote_fits(sherd_world *world, const sherd__call_state *call, int rank)
{
    const sherd__sheet *sheet = find(world, call, rank);

    if (sheet && is_whole(call, sheet, rank))
        return true;
    sherd__remote_fail(world, SHERD_EINVAL,
                       "what rank %d sent for call %llu of group %s is not what this rank reads",
                       rank, (unsigned long long)sherd__calls_in(call->number, world->base),
                       call->group->name);
    return false;
}

/* As if the packed box lay where it does in the source of its rank: the pull's offset is taken off again. */
sherd__source sherd__remote_source(const sherd_world *world, const sherd__call_state *call,
                                   const sherd__region *region, const sherd__pull *pull, int i)
{
    const sherd__task *task = &call->task[i];
    const sherd__sheet *sheet = find(world, call, pull->rank);
    int64_t at = sends_of(task)->place[pull - task->schedule->pull];
    sherd__source source = {NULL, {0}};

    sherd__row_major(task->schedule->ndim, region->size, source.stride);
    for (int d = 0; d < task->schedule->ndim; d++)
        at -= pull->offset[d] * source.stride[d];
    source.data = (const void *)((uintptr_t)sheet->data + start_of(call, sheet, i) +
                                 (uintptr_t)(at * (int64_t)task->element_bytes));
    return source;
}

const void *sherd__remote_words(const sherd_world *world, const sherd__call_state *call, int rank)
{
    return find(world, call, rank)->data;
}

/* ---- the end of a call ------------------------------------------------------------------------------------ */

static void send_slices(sherd_world *world, sherd__call_state *call)
{
    while (call->slices) {
        sherd__sheet *sheet = call->slices;
        const sherd__task *task = &call->task[sheet->task];
        const sherd__region *region = task->schedule->regions ? task->schedule->region : NULL;
        size_t at = region ? (size_t)region->offset[0] * task->element_bytes : 0;
        size_t bytes = region ? (size_t)region->size[0] * task->element_bytes : 0;
        call->slices = sheet->next;
        sherd__sent_record sent = {.head = {.kind = SHERD__SENT_SLICE,
                                            .lane = (uint32_t)call->group->lane,
                                            .number = call->number},
                                   .left = at,
                                   .task = sheet->task,
                                   .bytes = bytes};
        memcpy(sheet->memory, &sent, sizeof sent);
        sheet->message = (sherd_message){sheet->memory, HEAD_BYTES, task->result_data + at, bytes};
        sheet->held = bytes ? task->result : NULL;
        sherd__sheet_send(world->remote, sheet);
    }
}

/* Take what belongs to a call out of the inbox of a rank; whether there was anything. */
static bool let_go(sherd_world *world, const sherd__call_state *call, int rank, bool slices)
{
    sherd__sheet **at = &world->remote->inbox[rank];
    bool any = false;

    while (*at) {
        sherd__sheet *sheet = *at;
        if (sheet->slice != slices || sheet->lane != call->group->lane ||
            sheet->number != call->number) {
            at = &sheet->next;
            continue;
        }
        *at = sheet->next;
        sherd__sheet_give(world->remote, sheet);
        any = true;
    }
    return any;
}

void sherd__remote_finish(sherd_world *world, sherd__call_state *call)
{
    uint64_t rest = call->group->members & ~world->near, left;

    send_slices(world, call);
    left = sherd__peek(&call->group->own->left);
    while (rest) {
        int q = sherd__next_rank(&rest);
        sherd__lane *theirs = sherd__lane_of(world, q, call->group->lane);
        theirs->owed |= let_go(world, call, q, false);
        if (!theirs->owed || left < theirs->told_left + SHERD__DEPTH / 4)
            continue;
        const sherd__head head = {
            .kind = SHERD__SENT_LEFT, .lane = (uint32_t)call->group->lane, .number = left};
        sherd__tell(world->remote, q, &head, sizeof head);
        theirs->told_left = left;
    }
}

void sherd__remote_drop(sherd_world *world, sherd__call_state *call)
{
    sherd__sheets_give(world->remote, &call->slices);
}

static int slices_of(const sherd__call_state *call)
{
    int count = 0;

    for (int i = 0; i < call->count; i++)
        count += call->task[i].sliced;
    return count;
}

bool sherd__remote_slices(sherd_world *world, const sherd__call_state *call, int rank)
{
    const sherd__sheet *sheet;
    int count = 0;

    for (sheet = world->remote->inbox[rank]; sheet; sheet = sheet->next)
        count += sheet->slice && sheet->lane == call->group->lane && sheet->number == call->number;
    if (count < slices_of(call))
        return false;
    for (sheet = world->remote->inbox[rank]; sheet; sheet = sheet->next) {
        if (!sheet->slice || sheet->lane != call->group->lane || sheet->number != call->number)
            continue;
        const sherd__task *task =
            sheet->task >= 0 && sheet->task < call->count ? &call->task[sheet->task] : NULL;
        size_t room = task ? (size_t)task->schedule->target_size[0] * task->element_bytes : 0;
        if (sheet->at > room || sheet->bytes > room - sheet->at) {
            sherd__remote_fail(world, SHERD_EINVAL, "a slice of rank %d lies beyond its tensor",
                               rank);
            return false;
        }
        memcpy(task->result_data + sheet->at, sheet->data, sheet->bytes);
    }
    (void)let_go(world, call, rank, true);
    return true;
}
