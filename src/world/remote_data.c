/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of a call between ranks that share no memory: how much goes to whom and where it lies,
 * and the inbox in which it waits until the call has read it. What whole calls, their parts and
 * their slices have in common (remote_call.c, remote_parts.c, remote_slices.c). An inbox is a list
 * of as many piles as there are calls; to look into it costs a step for each.
 */
#include "remote.h"
#include "base/num.h"
#include "plan/sends.h"

#include <string.h>

enum {
    /* from here on one piece is sent from where it lies: a copy costs more than a second message */
    DIRECT_BYTES = 32 << 10,
    ALIGNED = SHERD__ALIGNED,
    HEAD_BYTES = SHERD__RECORD_BYTES
};

/* ---- what goes out --------------------------------------------------------------------------- */

/* Where the tasks' parts begin is told only where there are several. */
size_t sherd__table_bytes(int count)
{
    return count > 1 ? sherd__round_up((size_t)count * sizeof(uint64_t), ALIGNED) : 0;
}

size_t sherd__bytes_for(const sherd__call_state *call, int to)
{
    size_t bytes = sherd__table_bytes(call->count);

    for (int i = 0; i < call->count; i++) {
        const sherd__task *task = &call->task[i];
        const sherd__parcel_list *list =
            sherd__sends_out(sherd__sends_of(task->plan, task->step), to);
        size_t part = list ? (size_t)list->elements * task->element_bytes : 0;
        bytes += call->count > 1 ? sherd__round_up(part, ALIGNED) : part;
    }
    return bytes;
}

sherd__source sherd__own_source(const sherd__task *task)
{
    sherd__source source = {task->source_data, {0}};

    memcpy(source.stride, task->stride, (size_t)task->schedule->ndim * sizeof *task->stride);
    return source;
}

const void *sherd__direct(const sherd__call_state *call, int to, size_t bytes)
{
    const sherd__task *task = &call->task[0];

    if (call->count != 1 || bytes < DIRECT_BYTES)
        return NULL;
    const sherd__sends *sends = sherd__sends_of(task->plan, task->step);
    const sherd__parcel_list *list = sherd__sends_out(sends, to);
    if (!list)
        return NULL;
    sherd__source source = sherd__own_source(task);
    return sherd__sends_direct(sends, list, task->schedule->ndim, task->element_bytes, &source);
}

void sherd__sheet_fill(sherd__sheet *sheet, int to, size_t bytes)
{
    unsigned char *data = sheet->memory + HEAD_BYTES;

    sheet->to = to;
    sheet->bytes = bytes;
    sheet->parts = false;
    sheet->message = HEAD_BYTES + bytes <= SHERD_HEAD_BYTES
                         ? (sherd_message){sheet->memory, HEAD_BYTES + bytes, NULL, 0}
                         : (sherd_message){sheet->memory, HEAD_BYTES, data, bytes};
}

/* ---- what comes in --------------------------------------------------------------------------- */

static bool comes_in_parts(const sherd__sent_record *sent)
{
    return sent->head.kind == SHERD__SENT_CALL && sent->task == 1;
}

static sherd__sheet **find_pile(sherd__sheet **at, int kind, int lane, uint64_t number)
{
    while (*at && ((*at)->kind != kind || (*at)->lane != lane || (*at)->number != number))
        at = &(*at)->next;
    return at;
}

sherd__sheet **sherd__pile_of(const sherd_world *world, const sherd__call_state *call, int rank,
                              int kind)
{
    return find_pile(&world->remote->inbox[rank], kind, call->group->lane, call->number);
}

/*
 * Slices and parts come by thousands for one call, and are looked for each time that one has come:
 * those of a call are a pile, so that a list is no longer than there are calls.
 */
static void put_on_pile(sherd__sheet **inbox, sherd__sheet *sheet)
{
    sherd__sheet *pile = *find_pile(inbox, sheet->kind, sheet->lane, sheet->number);
    sherd__sheet **list = pile ? &pile->more : inbox;

    sheet->count = 1;
    sheet->awaited = 0;
    sheet->next = *list;
    *list = sheet;
    if (pile)
        pile->count++;
}

/* Put the data of a message into the inbox; NULL: there is no room, and that has been said. */
static sherd__sheet *keep(sherd_world *world, int from, const sherd_message *m,
                          const sherd__sent_record *sent)
{
    sherd__remote *remote = world->remote;
    size_t bytes = comes_in_parts(sent) ? 0 : sent->bytes;
    sherd__sheet *sheet = m->body_bytes ? (m->body ? sherd__sheet_of(m->body) : NULL)
                                        : sherd__sheet_take(remote, bytes);

    if (!sheet) {
        sherd__remote_fail(world, SHERD_ENOMEM, "out of memory for %zu bytes of rank %d", bytes,
                           from);
        return NULL;
    }
    if (!m->body_bytes && bytes)
        memcpy(sheet->memory, (const unsigned char *)m->head + HEAD_BYTES, bytes);
    sheet->data = sheet->memory;
    sheet->bytes = sent->bytes;
    sheet->lacks = sent->bytes - bytes;
    sheet->parts = comes_in_parts(sent);
    sheet->kind = (int)sent->head.kind;
    sheet->lane = (int)sent->head.lane;
    sheet->number = sent->head.number;
    put_on_pile(&remote->inbox[from], sheet);
    return sheet;
}

bool sherd__take_in(sherd__sheet **sheet, sherd__sent_record *sent, sherd_world *world, int from,
                    const sherd_message *m)
{
    if (m->head_bytes < HEAD_BYTES)
        return false;
    memcpy(sent, m->head, sizeof *sent);
    if ((m->body_bytes ? m->body_bytes : m->head_bytes - HEAD_BYTES) !=
        (comes_in_parts(sent) ? 0 : sent->bytes))
        return false;
    *sheet = NULL;
    if (sent->head.number > world->base)
        *sheet = keep(world, from, m, sent);
    else if (m->body) /* of an epoch that is over: nobody reads it */
        sherd__sheet_give(world->remote, sherd__sheet_of(m->body));
    return true;
}

/* The pull's offset is taken off, as it will be added again. */
sherd__source sherd__packed_source(const sherd__task *task, const sherd__region *region,
                                   const sherd__pull *pull, const void *data, int64_t at)
{
    sherd__source source = {NULL, {0}};

    sherd__row_major(task->schedule->ndim, region->size, source.stride);
    for (int d = 0; d < task->schedule->ndim; d++)
        at -= pull->offset[d] * source.stride[d];
    source.data = (const void *)((uintptr_t)data + (uintptr_t)(at * (int64_t)task->element_bytes));
    return source;
}

bool sherd__inbox_let_go(sherd_world *world, const sherd__call_state *call, int rank, bool slices)
{
    sherd__sheet **at = &world->remote->inbox[rank];
    bool any = false;

    while (*at) {
        sherd__sheet *sheet = *at;
        if ((sheet->kind == SHERD__SENT_SLICE) != slices || sheet->lane != call->group->lane ||
            sheet->number != call->number) {
            at = &sheet->next;
            continue;
        }
        *at = sheet->next;
        sheet->next = NULL;
        sherd__sheets_give(world->remote, &sheet);
        any = true;
    }
    return any;
}
