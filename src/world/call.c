/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a call: wait until operands and a slot are free, publish, tell the tickets, and (unless it is only
 * begun) wait for the end. What can fail does so before anything is published. Nothing is allocated once a
 * call of this many tensors has been made before.
 */
#include "inside.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

/* ---- a slot in the ring ----------------------------------------------------------------------- */

typedef struct slot_wait {
    const sherd__group *group;
    uint64_t number; /* of the call that is in the slot */
    uint64_t readers;
} slot_wait;

static bool slot_is_free(sherd_world *world, void *what)
{
    slot_wait *slot = what;
    uint64_t rest = slot->readers;

    while (rest) {
        int q = sherd__next_rank(&rest);
        if (sherd__look(&sherd__lane_of(world, q, slot->group->lane)->left) > slot->number)
            slot->readers &= ~sherd__bit(q);
    }
    return slot->readers == 0;
}

static void slot_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    const slot_wait *slot = what;
    sherd__need_add(world, needs, slot->group->lane, SHERD__LEFT, slot->number, slot->readers);
}

static slot_wait slot_of(const sherd_world *world, const sherd__group *group, uint64_t number)
{
    const sherd__record *record = sherd__record_of(world, world->rank, group->lane, number);
    slot_wait slot = {group, sherd__peek(&record->number), sherd__peek(&record->readers)};

    if (slot.number <= world->base)
        slot.readers = 0; /* none, or of an epoch that is over */
    return slot;
}

void sherd__group_refresh(sherd_world *world, sherd__group *group)
{
    if (group->base == world->base)
        return;
    group->base = world->base;
    group->sequence = 0;
    group->history = 0;
}

/* ---- publishing ------------------------------------------------------------------------------- */

/* Fill the record of `call`, except for parcels. */
static sherd__record *fill_record(sherd_world *world, const sherd__call_state *call,
                                  const char *name, const char *what, uint64_t readers, int status)
{
    sherd__group *group = call->group;
    sherd__record *record = sherd__record_of(world, world->rank, group->lane, call->number);

    if (sherd__peek(&record->fingerprint) != call->fingerprint || sherd__peek(&record->number) == 0)
        sherd__record_label(record, name, what);
    sherd__put(&record->fingerprint, call->fingerprint);
    sherd__put(&record->history, call->history);
    sherd__put(&record->readers, readers);
    atomic_store_explicit(&record->status, status, memory_order_relaxed);
    atomic_store_explicit(&record->count, call->count, memory_order_relaxed);
    return record;
}

/* Where the parcels of a record go: into it for one, else into a block of this slot. NULL: no memory. */
static sherd__parcel *parcel_room(sherd_world *world, sherd__group *group, sherd__record *record,
                                  uint64_t number, int count)
{
    sherd__block **block = &group->parcels[number % SHERD__DEPTH];
    int64_t bytes = (int64_t)((size_t)count * sizeof(sherd__parcel));

    if (count == 1)
        return &record->one;
    if (!*block || (*block)->room < (size_t)bytes) {
        sherd__block *larger = sherd__take_quietly(world, bytes);
        if (!larger)
            return NULL;
        if (*block)
            sherd__give_quietly(world, *block);
        *block = larger;
    }
    return (sherd__parcel *)(void *)(*block)->data;
}

static uint64_t offset_of(const sherd_world *world, const void *data)
{
    return data ? (uint64_t)((const unsigned char *)data - world->arena.base) : 0;
}

static void publish(sherd_world *world, sherd__call_state *call, sherd__record *record,
                    const sherd__parcel *parcels)
{
    sherd__call_state **last = &world->open;

    sherd__put(&record->parcels, offset_of(world, parcels));
    while (*last)
        last = &(*last)->next;
    *last = call;
    world->opens++;
    sherd__record_publish(world, call->group, record, call->number, call->history);
    if (world->remote)
        sherd__remote_publish(world, call);
}

/* A rank that fails before it could publish publishes that, if its slot is free: the alarm is up already. */
static bool fail_call(sherd_world *world, sherd__call_state *call, sherd__group *group,
                      const char *name, sherd_status status, const char *why)
{
    sherd__call_state empty = {.group = group};
    uint64_t number = sherd__number(world->base, group->sequence + 1);
    slot_wait slot = slot_of(world, group, number);

    sherd__raise(world, status, "%s: %s", name, why);
    if (call)
        sherd__call_give(world, call);
    if (!slot_is_free(world, &slot))
        return false;
    empty.number = number;
    empty.history = group->history;
    sherd__record *record = fill_record(world, &empty, name, "(failed)", 0, status);
    sherd__record_publish(world, group, record, number, empty.history);
    return false;
}

/* ---- what a call is made of ------------------------------------------------------------------- */

static uint64_t ranks_in(const int *rank, int count)
{
    uint64_t ranks = 0;

    for (int i = 0; i < count; i++)
        ranks |= sherd__bit(rank[i]);
    return ranks;
}

void sherd__task_fill(sherd_world *world, sherd__task *task, const sherd__move *move)
{
    size_t bytes = move->plan->element_bytes;

    memset(task, 0, sizeof *task);
    task->plan = move->plan;
    task->step = move->step;
    task->schedule = move->plan->mine[move->step];
    task->kind = move->plan->step[move->step].kind;
    task->sliced = move->plan->step[move->step].sliced;
    task->reduces = sherd__step_reduces(&move->plan->step[move->step]);
    task->element_bytes = bytes;
    task->kernels = sherd__kernels_to_reduce(&world->kernels, move->dtype, task->schedule->op);
    task->source = move->source;
    task->result = move->result;
    if (move->source)
        task->source_data = move->source->data + (size_t)move->source_offset * bytes;
    if (move->result)
        task->result_data = move->result->data + (size_t)move->result_offset * bytes;
    if (task->sliced)
        task->stride[0] = 1;
    else if (move->source_stride)
        memcpy(task->stride, move->source_stride,
               (size_t)task->schedule->ndim * sizeof *task->stride);
}

static uint64_t fingerprint_of(const char *name, const sherd__move *moves, int count)
{
    uint64_t hash = sherd__hash_text(1, name);

    hash = sherd__hash_word(hash, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        hash = sherd__hash_word(hash, moves[i].plan->fingerprint);
        hash =
            sherd__hash_word(hash, (uint64_t)moves[i].step << 32 | (uint64_t)moves[i].dtype << 8 |
                                       (uint64_t)moves[i].plan->step[moves[i].step].kind);
    }
    return hash;
}

/* Settle what a call reads and writes. False: ended by the alarm. */
static bool settle_operands(sherd_world *world, const sherd__group *group, const sherd__move *moves,
                            int count)
{
    for (int i = 0; i < count; i++) {
        const sherd__move *move = &moves[i];
        if (!sherd__block_readable(world, move->source) ||
            (move->result && !sherd__settle(world, move->result)) ||
            !sherd__ticket_make_room(world, move->source, group) ||
            !sherd__ticket_make_room(world, move->result, group))
            return false;
    }
    return true;
}

/* From here on the operands carry the call; the record follows. */
static uint64_t attach_task(sherd_world *world, sherd__call_state *call, sherd__task *task)
{
    const sherd__schedule *schedule = task->schedule;
    uint64_t sources = ranks_in(schedule->source, schedule->sources);
    uint64_t readers = ranks_in(schedule->reader, schedule->readers);
    uint64_t sharers = task->sliced ? ranks_in(schedule->sharer, schedule->sharers) : 0;

    sherd__plan_retain(task->plan);
    call->awaited |= sources | sharers;
    call->sharers |= sharers;
    sherd__ticket_add(world, task->source, call->group, call->number,
                      (readers | sharers) & world->near);
    sherd__ticket_add(world, task->result, call->group, call->number, sharers & world->near);
    if (task->source)
        task->source->reading++;
    if (task->result) {
        task->result->filling++;
        task->result->spoiled = false;
    }
    return readers | sharers;
}

/* Whole numbers have no average: which move asks for one. */
static const sherd__move *without_average(const sherd__call_state *call, const sherd__move *moves)
{
    for (int i = 0; i < call->count; i++)
        if (call->task[i].reduces && !call->task[i].kernels)
            return &moves[i];
    return NULL;
}

static bool refuse_average(sherd_world *world, sherd__call_state *call, sherd__group *group,
                           const char *name, const sherd__move *move)
{
    char why[256];

    snprintf(why, sizeof why, "%.150s: %s has no average: cast it to a dtype with fractions first",
             move->plan->what, sherd_dtype_name(move->dtype));
    return fail_call(world, call, group, name, SHERD_ENOTSUP, why);
}

/* ---- waiting for the end ---------------------------------------------------------------------- */

static bool has_ended(sherd_world *world, void *what)
{
    (void)world;
    return ((const sherd__call_state *)what)->ended;
}

static void call_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    sherd__need_call(world, needs, what);
}

/* After an alarm the call stays among the open ones, until a check drops it. */
static bool wait_end(sherd_world *world, sherd__call_state *call)
{
    bool good = sherd__wait_for(world, &(sherd__wait){has_ended, call_needs, call});

    call->waited = false;
    if (world->remote)
        sherd__remote_linger(world);
    if (call->ended)
        sherd__call_give(world, call);
    return good;
}

/* A call object in its group, with number, fingerprint and history; its slot is free. NULL: failed or ended by the alarm. */
static sherd__call_state *start_call(sherd_world *world, sherd__group *group, const char *name,
                                     uint64_t fingerprint, int count)
{
    bool full = world->opens >= SHERD__OPEN;
    sherd__call_state *call = full ? NULL : sherd__call_take(world, count);

    if (!call) {
        fail_call(world, NULL, group, name, full ? SHERD_ELIMIT : SHERD_ENOMEM,
                  full ? "4000 calls are open: read the results of those begun first"
                       : "out of memory");
        return NULL;
    }
    call->group = group;
    call->number = sherd__number(world->base, group->sequence + 1);
    call->fingerprint = fingerprint;
    call->history = sherd__hash_word(fingerprint, group->history);
    if (group->mesh)
        call->history = sherd__hash_word(call->history, group->mesh->ledger->hash);
    call->own = true;
    slot_wait slot = slot_of(world, group, call->number);
    if (!sherd__wait_for(world, &(sherd__wait){slot_is_free, slot_needs, &slot})) {
        sherd__call_give(world, call);
        return NULL;
    }
    return call;
}

bool sherd__arena_call(sherd_world *world, sherd__group *group, const char *name,
                       const sherd__move *moves, int count, bool begin)
{
    uint64_t readers = 0;

    sherd__group_refresh(world, group);
    if (!settle_operands(world, group, moves, count))
        return false;
    sherd__call_state *call =
        start_call(world, group, name, fingerprint_of(name, moves, count), count);
    if (!call)
        return false;
    sherd__record *record = sherd__record_of(world, world->rank, group->lane, call->number);
    sherd__parcel *parcels = parcel_room(world, group, record, call->number, count);
    if (!parcels)
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    for (int i = 0; i < count; i++)
        sherd__task_fill(world, &call->task[i], &moves[i]);
    call->count = count;
    const sherd__move *whole = without_average(call, moves);
    if (whole)
        return refuse_average(world, call, group, name, whole);
    if (world->remote && !sherd__remote_pack(world, call))
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    for (int i = 0; i < count; i++) {
        readers |= attach_task(world, call, &call->task[i]);
        parcels[i].source = offset_of(world, call->task[i].source_data);
        parcels[i].result = offset_of(world, call->task[i].result_data);
        memcpy(parcels[i].stride, call->task[i].stride, sizeof parcels[i].stride);
    }
    fill_record(world, call, name, moves[0].plan->what, readers, 0);
    call->waited = !begin;
    publish(world, call, record, parcels);
    return begin || wait_end(world, call);
}

bool sherd__arena_share(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__sharing *numbers)
{
    size_t bytes = (size_t)numbers->words * sizeof *numbers->mine;
    uint64_t others = group->members & ~sherd__bit(world->rank);
    uint64_t fingerprint = sherd__hash_word(sherd__hash_text(2, name), (uint64_t)numbers->words);

    sherd__group_refresh(world, group);
    sherd__call_state *call = start_call(world, group, name, fingerprint, 0);
    if (!call)
        return false;
    sherd__block *block = sherd__take_quietly(world, (int64_t)bytes);
    if (!block)
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    memcpy(block->data, numbers->mine, bytes);
    call->numbers = numbers;
    if (world->remote && !sherd__remote_pack(world, call)) {
        sherd__give_quietly(world, block);
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    }
    call->words_block = block;
    call->awaited = others;
    call->waited = true;
    sherd__record *record = fill_record(world, call, name, "", others, 0);
    record->one.source = offset_of(world, block->data);
    sherd__ticket_add(world, block, group, call->number, others & world->near);
    publish(world, call, record, &record->one);
    bool good = wait_end(world, call);
    sherd__give_quietly(world, block);
    return good;
}
