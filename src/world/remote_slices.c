/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second half of an all-reduce between ranks that share no memory: a slice, once reduced, is a
 * message to each of the sharers that are far, from where it lies in the result. Its room is found
 * before the call is published.
 */
#include "remote.h"

#include <string.h>

/* ---- what goes out --------------------------------------------------------------------------- */

bool sherd__slices_prepare(sherd__remote *remote, sherd__call_state *call)
{
    for (int i = 0; i < call->count; i++) {
        const sherd__schedule *schedule = call->task[i].schedule;
        for (int k = 0; call->task[i].sliced && k < schedule->sharers; k++) {
            if (sherd__ranks_has(&remote->near, schedule->sharer[k]))
                continue; /* it is written to where it lies */
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

void sherd__slices_send(sherd_world *world, sherd__call_state *call)
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
        sheet->message =
            (sherd_message){sheet->memory, SHERD__RECORD_BYTES, task->result_data + at, bytes};
        sheet->held = bytes ? task->result : NULL;
        sherd__sheet_send(world->remote, sheet);
    }
}

/* ---- what comes in --------------------------------------------------------------------------- */

/* Slices use the record's `left` for where they begin. */
bool sherd__take_slice(sherd_world *world, int from, const sherd_message *m)
{
    sherd__sent_record sent;
    sherd__sheet *sheet;

    if (!sherd__take_in(&sheet, &sent, world, from, m))
        return false;
    if (sheet) {
        sheet->task = sent.task;
        sheet->at = sent.left;
    }
    return true;
}

/* Slices that a rank sends in a call: none of a tensor of which the two have no part. */
static int slices_from(const sherd__call_state *call, int rank)
{
    int count = 0;

    for (int i = 0; i < call->count; i++) {
        const sherd__schedule *schedule = call->task[i].schedule;
        for (int k = 0; call->task[i].sliced && k < schedule->sharers; k++)
            count += schedule->sharer[k] == rank;
    }
    return count;
}

/* Into the result; false: it makes no sense, and that has been said. */
static bool place(sherd_world *world, const sherd__call_state *call, int rank,
                  const sherd__sheet *sheet)
{
    const sherd__task *task =
        sheet->task >= 0 && sheet->task < call->count ? &call->task[sheet->task] : NULL;
    size_t room =
        task && task->sliced ? (size_t)task->schedule->target_size[0] * task->element_bytes : 0;

    if (room == 0 ? sheet->at || sheet->bytes
                  : sheet->at > room || sheet->bytes > room - sheet->at) {
        sherd__remote_fail(world, SHERD_EINVAL, "a slice of rank %d lies beyond its tensor", rank);
        return false;
    }
    if (sheet->bytes)
        memcpy(task->result_data + sheet->at, sheet->data, sheet->bytes);
    return true;
}

bool sherd__remote_slices(sherd_world *world, const sherd__call_state *call, int rank)
{
    sherd__sheet *pile = *sherd__pile_of(world, call, rank, SHERD__SENT_SLICE);

    if (!pile)
        return false; /* a sharer has one at least */
    if (!pile->awaited)
        pile->awaited = slices_from(call, rank);
    if (pile->count < pile->awaited || !place(world, call, rank, pile))
        return false;
    for (const sherd__sheet *sheet = pile->more; sheet; sheet = sheet->next)
        if (!place(world, call, rank, sheet))
            return false;
    (void)sherd__inbox_let_go(world, call, rank, true);
    return true;
}
