/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls between ranks that share no memory: the record travels with all that its reader pulls,
 * packed in the order in which the reader's schedule names it, or, where that is one large piece,
 * from where it lies. What can fail for lack of memory does so before anything is published. What
 * comes lies in the inbox until the call has read it.
 */
#include "remote.h"
#include "base/num.h"
#include "plan/sends.h"

#include <string.h>

enum { ALIGNED = SHERD__ALIGNED, HEAD_BYTES = SHERD__RECORD_BYTES, LINGER_NS = 300 * 1000 };

/* ---- what goes out --------------------------------------------------------------------------- */

static const sherd__sends *sends_of(const sherd__task *task)
{
    return sherd__sends_of(task->plan, task->step);
}

static void pack(const sherd__call_state *call, int to, unsigned char *out)
{
    size_t at = sherd__table_bytes(call->count);

    for (int i = 0; i < call->count; i++) {
        const sherd__task *task = &call->task[i];
        const sherd__sends *sends = sends_of(task);
        const sherd__parcel_list *list = sherd__sends_out(sends, to);
        sherd__source source = sherd__own_source(task);
        const sherd__packing what = {sends, list, task->schedule->ndim, task->element_bytes,
                                     &source};
        uint64_t start = at;
        if (call->count > 1)
            memcpy(out + (size_t)i * sizeof start, &start, sizeof start);
        if (!list)
            continue;
        sherd__sends_pack(&what, 0, list->elements, out + at);
        at += sherd__round_up((size_t)list->elements * task->element_bytes, ALIGNED);
    }
}

/* A sheet with room for a record and data, which lie behind each other if that is short. */
static sherd__sheet *make_sheet(sherd__remote *remote, int to, size_t bytes, unsigned char **data)
{
    sherd__sheet *sheet = sherd__sheet_take(remote, HEAD_BYTES + bytes);

    if (!sheet)
        return NULL;
    sherd__sheet_fill(sheet, to, bytes);
    *data = sheet->memory + HEAD_BYTES;
    sheet->next = remote->ready;
    remote->ready = sheet;
    return sheet;
}

/* *parted: ranks whose data goes in parts, behind this message. */
static bool pack_for(sherd__remote *remote, sherd__call_state *call, int to, sherd__ranks *parted)
{
    size_t bytes = sherd__bytes_for(call, to);
    bool parts = bytes > remote->part_bytes && sherd__can_part(call);
    const void *from = parts ? NULL : sherd__direct(call, to, bytes);
    unsigned char *data;
    sherd__sheet *sheet = make_sheet(remote, to, from || parts ? 0 : bytes, &data);

    if (!sheet)
        return false;
    if (parts) {
        sheet->bytes = bytes;
        sheet->parts = true;
        sherd__ranks_add(parted, to);
    } else if (from) {
        sheet->bytes = bytes;
        sheet->held = call->task[0].source;
        sheet->message.body = (void *)(uintptr_t)from;
        sheet->message.body_bytes = bytes;
    } else {
        pack(call, to, data);
    }
    return true;
}

/* The ranks that read this one's part of a call, and are far. */
static void find_far_readers(const sherd_world *world, const sherd__call_state *call,
                             sherd__ranks *out)
{
    sherd__ranks_clear(out);
    for (int i = 0; i < call->count; i++) {
        const sherd__schedule *schedule = call->task[i].schedule;
        sherd__ranks_add_list(out, schedule->reader, schedule->readers);
        if (call->task[i].sliced)
            sherd__ranks_add_list(out, schedule->sharer, schedule->sharers);
    }
    sherd__ranks_less(out, &world->near);
}

/* Words of a share go to all. */
static bool pack_words(sherd_world *world, sherd__call_state *call)
{
    size_t bytes = (size_t)call->numbers->words * sizeof *call->numbers->mine;
    unsigned char *data;

    for (int q = -1; (q = sherd__next_far(world, call->group, q)) >= 0;) {
        if (!make_sheet(world->remote, q, bytes, &data))
            return false;
        memcpy(data, call->numbers->mine, bytes);
    }
    return true;
}

bool sherd__remote_pack(sherd_world *world, sherd__call_state *call)
{
    sherd__ranks readers, parted = {0};
    bool good = true;

    find_far_readers(world, call, &readers);

    for (int i = 0; i < call->count && good; i++)
        good = sends_of(&call->task[i]) != NULL;
    if (good && call->numbers)
        good = pack_words(world, call);
    for (int q = -1; good && (q = sherd__ranks_next(&readers, q + 1)) >= 0;)
        good = pack_for(world->remote, call, q, &parted);
    good = good && sherd__parts_prepare(world->remote, call, &parted) &&
           sherd__slices_prepare(world->remote, call);
    if (good)
        return true;
    sherd__sheets_give(world->remote, &world->remote->ready);
    sherd__sheets_give(world->remote, &world->remote->parts);
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
            .task = sheet->parts,
            .bytes = sheet->bytes};
        for (int i = 0; i < SHERD__LABEL_WORDS; i++)
            sent->label[i] = sherd__peek(&record->label[i]);
        theirs->told = call->number;
        theirs->told_left = sent->left;
        sherd__sheet_send(remote, sheet);
    }
    sherd__parts_send(remote, call);
}

/* ---- what comes in --------------------------------------------------------------------------- */

bool sherd__take_call(sherd_world *world, int from, const sherd_message *m)
{
    sherd__sent_record sent;
    sherd__sheet *sheet;

    if (!sherd__take_in(&sheet, &sent, world, from, m))
        return false;
    if (sheet)
        sherd__mirror_record(world, from, &sent);
    return true;
}

static sherd__sheet *find(const sherd_world *world, const sherd__call_state *call, int rank)
{
    return *sherd__pile_of(world, call, rank, SHERD__SENT_CALL);
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
    if (sheet->parts && (!sherd__can_part(call) ||
                         sheet->bytes != (size_t)sherd__sends_in(sends_of(&call->task[0]), rank) *
                                             call->task[0].element_bytes))
        return false;
    if (sheet->bytes < sherd__table_bytes(call->count))
        return false;
    for (int i = 0; i < call->count; i++) {
        size_t part =
            (size_t)sherd__sends_in(sends_of(&call->task[i]), rank) * call->task[i].element_bytes;
        size_t start = start_of(call, sheet, i);
        if (start % ALIGNED || start > sheet->bytes || part > sheet->bytes - start)
            return false;
    }
    return true;
}

bool sherd__remote_fits(sherd_world *world, const sherd__call_state *call, int rank)
{
    sherd__sheet *sheet = find(world, call, rank);

    if (sheet && is_whole(call, sheet, rank))
        return !sheet->parts || sherd__parts_unpack(world, call, rank, sheet);
    sherd__remote_fail(world, SHERD_EINVAL,
                       "what rank %d sent for call %llu of group %s is not what this rank reads",
                       rank, (unsigned long long)sherd__calls_in(call->number, world->base),
                       call->group->name);
    return false;
}

bool sherd__remote_in_parts(const sherd_world *world, const sherd__call_state *call, int rank)
{
    const sherd__sheet *sheet = sherd__is_near(world, rank) ? NULL : find(world, call, rank);

    return sheet && sheet->parts;
}

sherd__source sherd__remote_source(const sherd_world *world, const sherd__call_state *call,
                                   const sherd__region *region, const sherd__pull *pull, int i)
{
    const sherd__task *task = &call->task[i];
    const sherd__sheet *sheet = find(world, call, pull->rank);
    int64_t at = sends_of(task)->place[pull - task->schedule->pull];

    return sherd__packed_source(task, region, pull, sheet->data + start_of(call, sheet, i), at);
}

const void *sherd__remote_words(const sherd_world *world, const sherd__call_state *call, int rank)
{
    return find(world, call, rank)->data;
}

/* ---- the end of a call ----------------------------------------------------------------------- */

void sherd__remote_finish(sherd_world *world, sherd__call_state *call)
{
    sherd__slices_send(world, call);
    uint64_t left = sherd__peek(&call->group->own->left);
    for (int q = -1; (q = sherd__next_far(world, call->group, q)) >= 0;) {
        sherd__lane *theirs = sherd__lane_of(world, q, call->group->lane);
        theirs->owed |= sherd__inbox_let_go(world, call, q, false);
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

/* What there is of messages that are on their way out, as a number that changes when anything of
 * them has gone: each rank's first does before the others. */
static uint64_t trace_of(const sherd__remote *remote)
{
    uint64_t hash = remote->gone;

    for (int q = -1; (q = sherd__ranks_next(&remote->busy, q + 1)) >= 0;) {
        const sherd_sending *sending = &remote->flight[q].first->sending;
        for (size_t i = 0; i < sizeof sending->note / sizeof *sending->note; i++)
            hash = sherd__hash_word(hash, sending->note[i]);
    }
    return hash;
}

void sherd__remote_linger(sherd_world *world)
{
    const sherd__ranks *busy = &world->remote->busy;
    int64_t since = sherd__ranks_none(busy) ? 0 : sherd__now();
    uint64_t before = 0;

    while (!sherd__ranks_none(busy) && sherd__now() - since < LINGER_NS) {
        uint64_t now = trace_of(world->remote);
        if (now != before)
            since = sherd__now();
        before = now;
        sherd__remote_poll(world);
    }
}
