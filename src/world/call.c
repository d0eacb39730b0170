/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a call: wait until operands and a slot are free, publish, tell the tickets, and (unless it
 * is only begun) wait for the end. What can fail does so before anything is published. Nothing is
 * allocated once a call of this many tensors has been made before.
 */
#include "devices.h"
#include "doing.h"

#include "base/hash.h"
#include "search/plans.h"
#include "vector/choose.h"

#include <stdio.h>
#include <string.h>

enum { SHORT = 256 << 10 }; /* bytes that are copied before a sleeper would be awake */

/* ---- a slot in the ring ---------------------------------------------------------------------- */

typedef struct slot_wait {
    const sherd__group *group;
    uint64_t number;      /* of the call that is in the slot */
    sherd__ranks readers; /* of its record, who have not left it yet */
} slot_wait;

static bool slot_is_free(sherd_world *world, void *what)
{
    slot_wait *slot = what;
    sherd__ranks *readers = &slot->readers;
    bool none = true;

    for (int q = -1; (q = sherd__ranks_next(readers, q + 1)) >= 0;) {
        if (sherd__has_left(world, slot->group->lane, q, slot->number))
            sherd__ranks_drop(readers, q);
        else
            none = false;
    }
    return none;
}

static void slot_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    const slot_wait *slot = what;
    sherd__need_add(world, needs, slot->group->lane, SHERD__LEFT, slot->number, &slot->readers);
}

static sherd__entry *entry_of(sherd__group *group, uint64_t number)
{
    return &group->entry[number % SHERD__DEPTH];
}

/* Whose record is in the slot of a call that is to be made, and who still reads it. */
static void look_at_slot(const sherd_world *world, sherd__group *group, uint64_t number,
                         slot_wait *out)
{
    const sherd__entry *entry = entry_of(group, number);

    out->group = group;
    out->number = entry->number;
    sherd__ranks_copy(&out->readers, &entry->readers);
    if (out->number <= world->base)
        sherd__ranks_clear(&out->readers); /* none, or of an epoch that is over */
}

void sherd__group_refresh(sherd_world *world, sherd__group *group)
{
    if (group->base == world->base)
        return;
    group->base = world->base;
    group->sequence = 0;
    group->history = 0;
}

/* ---- publishing ------------------------------------------------------------------------------ */

/*
 * Fill what peers read only if something is wrong, and note which call is in the slot now; its
 * readers are noted later.
 */
static void fill_record(const sherd__call_state *call, const char *name, const char *what)
{
    sherd__record *record = call->record;
    sherd__entry *entry = entry_of(call->group, call->number);

    if (entry->fingerprint != call->fingerprint || entry->number == 0) {
        sherd__record_label(record, name, what);
        sherd__put(&record->fingerprint, call->fingerprint);
    }
    entry->number = call->number;
    entry->fingerprint = call->fingerprint;
    sherd__ranks_clear(&entry->readers);
}

/*
 * Whether the copy takes no longer than waking a sleeper does, so that sleepers may be woken after
 * it.
 */
static bool is_short(const sherd__call_state *call)
{
    int64_t bytes = 0;

    for (int i = 0; i < call->count; i++)
        bytes += call->task[i].schedule->recv_bytes;
    return bytes < SHORT;
}

/* Room for several parcels of a record, in a block of its slot. NULL: no memory. */
static sherd__parcel *parcel_room(sherd_world *world, sherd__group *group, uint64_t number,
                                  int count)
{
    sherd__block **block = &group->parcels[number % SHERD__DEPTH];
    int64_t bytes = (int64_t)((size_t)count * sizeof(sherd__parcel));

    if (!*block || (*block)->bytes < bytes) {
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

static void fill_parcel(const sherd_world *world, sherd__parcel *parcel, const sherd__task *task)
{
    parcel->source = offset_of(world, task->source_data);
    parcel->result = offset_of(world, task->result_data);
    for (int d = 0; d < task->schedule->ndim; d++)
        parcel->stride[d] = task->stride[d];
}

static void open_call(sherd_world *world, sherd__call_state *call)
{
    sherd__call_state **last = &world->open;

    while (*last)
        last = &(*last)->next;
    *last = call;
    world->opens++;
}

/* Show the record to all that read it, near and far; nobody is woken yet. */
static void publish(sherd_world *world, sherd__call_state *call, const sherd__shown *shown)
{
    sherd__record_publish(world, call->group, call->record, shown);
    if (world->remote)
        sherd__remote_publish(world, call);
}

/*
 * After the record is published: open the call and wake its readers. If the call is short, no other
 * is open, and nobody seems to sleep, try to end it first: storing `left` then wakes sleepers for
 * both, and peers' records are read while the own one is still on its way.
 */
static void follow_record(sherd_world *world, sherd__call_state *call)
{
    const sherd__ranks *readers = &entry_of(call->group, call->number)->readers;
    if (call->waited && !world->open && is_short(call) &&
        !sherd__seems_asleep(&world->arena, readers) && sherd__end_at_once(world, call))
        return;
    if (!call->finished)
        sherd__wake(world, readers);
    open_call(world, call);
}

/*
 * Fail a call before it is published: raise the alarm, and publish the failure in place of the call
 * if its slot is free.
 */
static bool fail_call(sherd_world *world, sherd__call_state *call, sherd__group *group,
                      const char *name, sherd_status status, const char *why)
{
    const char *outer = sherd__doing_around(world, name);
    sherd__call_state empty = {.group = group};
    uint64_t number = sherd__number(world->base, group->sequence + 1);
    slot_wait slot;

    look_at_slot(world, group, number, &slot);
    sherd__raise(world, status, "%s%s%s: %s", outer, *outer ? ": " : "", name, why);
    if (call)
        sherd__call_give(world, call);
    if (!slot_is_free(world, &slot))
        return false;
    empty.number = number;
    empty.record = sherd__record_of(world, world->rank, group->lane, number);
    fill_record(&empty, name, "(failed)"); /* nobody reads it */
    sherd__record_publish(
        world, group, empty.record,
        &(sherd__shown){.number = number, .history = group->history, .status = status});
    return false;
}

/* ---- what a call is made of ------------------------------------------------------------------ */

void sherd__task_fill(sherd_world *world, sherd__task *task, const sherd__move *move)
{
    const sherd_step *step = &move->plan->step[move->step];
    const sherd__schedule *schedule = move->plan->mine[move->step];
    size_t bytes = move->plan->element_bytes;

    task->plan = move->plan;
    task->step = move->step;
    task->schedule = schedule;
    task->kind = step->kind;
    task->sliced = step->sliced;
    task->reduces = sherd__step_reduces(step);
    task->element_bytes = bytes;
    task->kernels = task->reduces || !schedule->copies
                        ? sherd__kernels_to_reduce(&world->kernels, move->dtype, schedule->op)
                        : &world->kernels.f32; /* which copies elements of any dtype */
    task->source = move->source;
    task->result = move->result;
    task->source_data =
        move->source ? move->source->data + (size_t)move->source_offset * bytes : NULL;
    task->result_data =
        move->result ? move->result->data + (size_t)move->result_offset * bytes : NULL;
    for (int d = 0; d < schedule->ndim; d++)
        task->stride[d] = step->sliced ? 1 : move->source_stride ? move->source_stride[d] : 0;
}

uint64_t sherd__moves_fingerprint(sherd_world *world, const char *name, const sherd__move *moves,
                                  int count)
{
    if (world->called != name) {
        world->called = name;
        world->called_hash = sherd__hash_text(1, name);
    }
    uint64_t hash = sherd__hash_word(world->called_hash, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        uint64_t how = (uint64_t)moves[i].step << 32 | (uint64_t)moves[i].dtype << 8 |
                       (uint64_t)moves[i].plan->step[moves[i].step].kind;
        hash = sherd__hash_word(hash + how, moves[i].plan->fingerprint);
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

/* Bytes of the source that go into the record: if they are few, and lie as they are read. 0 = peers
 * read it in place. */
static size_t carried_bytes(const sherd__task *task)
{
    const sherd__schedule *schedule = task->schedule;
    int64_t n = schedule->ndim ? schedule->source_size[0] : 1;

    if (!task->source_data || task->sliced || schedule->ndim > 1 || n < 1 || n > SHERD__FEW ||
        (n > 1 && task->stride[0] != 1))
        return 0;
    size_t bytes = (size_t)n * task->element_bytes;
    return bytes <= SHERD__FEW ? bytes : 0;
}

/* Note on a block which of some ranks read or write it in this call; those that are far do it by
 * messages. */
static void add_ticket(sherd_world *world, const sherd__call_state *call, sherd__block *block,
                       sherd__ranks *ranks)
{
    if (world->remote)
        sherd__ranks_meet(ranks, &world->near);
    sherd__ticket_add(world, block, call->group, call->number, ranks);
}

/* From here on the operands carry the call, whose record is out. *readers: also those of this
 * task. */
static void attach_task(sherd_world *world, sherd__call_state *call, sherd__task *task,
                        bool in_place, sherd__ranks *readers)
{
    const sherd__schedule *schedule = task->schedule;
    sherd__ranks sharers, all;

    sherd__plan_retain(task->plan);
    sherd__ranks_clear(&all);
    sherd__ranks_add_list(&all, schedule->reader, schedule->readers);
    sherd__ranks_add_list(&call->awaited, schedule->source, schedule->sources);
    if (task->sliced) {
        sherd__ranks_clear(&sharers);
        sherd__ranks_add_list(&sharers, schedule->sharer, schedule->sharers);
        sherd__ranks_join(&all, &sharers);
        sherd__ranks_join(&call->awaited, &sharers);
        sherd__ranks_join(&call->sharers, &sharers);
        add_ticket(world, call, task->result, &sharers);
    }
    sherd__ranks_join(readers, &all);
    if (in_place)
        add_ticket(world, call, task->source, &all);
    if (task->source)
        task->source->reading++;
    if (task->result) {
        task->result->filling++;
        task->result->spoiled = false;
    }
}

/* The move that asks for an average of integers, which does not exist; NULL: none does. */
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

/* ---- waiting for the end --------------------------------------------------------------------- */

static bool has_ended(sherd_world *world, void *what)
{
    (void)world;
    return ((const sherd__call_state *)what)->ended;
}

static void call_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    sherd__need_call(world, needs, what);
}

static bool wait_call(sherd_world *world, sherd__call_state *call)
{
    return sherd__wait_for(world, &(sherd__wait){has_ended, call_needs, call});
}

/* After an alarm the call stays among the open ones, until a check drops it. */
static bool wait_end(sherd_world *world, sherd__call_state *call)
{
    bool good = call->ended || wait_call(world, call);

    call->waited = false;
    if (world->remote)
        sherd__remote_linger(world);
    if (call->ended)
        sherd__call_give(world, call);
    return good;
}

/* A call object in its group, with number, fingerprint and history; its slot is free. NULL: failed
 * or ended by the alarm. */
static sherd__call_state *start_call(sherd_world *world, sherd__group *group, const char *name,
                                     uint64_t fingerprint, int count)
{
    bool full = world->opens >= SHERD__OPEN;
#if defined(__x86_64__)
    /* Streamed stores to tensors must be seen before the record; nothing else waits here. */
    __builtin_ia32_sfence();
#endif
    sherd__call_state *call = full ? NULL : sherd__call_take(world, count);

    if (!call) {
        fail_call(world, NULL, group, name, full ? SHERD_ELIMIT : SHERD_ENOMEM,
                  full ? "4000 calls are open: read the results of those begun first"
                       : "out of memory");
        return NULL;
    }
    call->group = group;
    call->number = sherd__number(world->base, group->sequence + 1);
    call->record = sherd__record_of(world, world->rank, group->lane, call->number);
    call->fingerprint = fingerprint;
    call->history = sherd__hash_word(fingerprint, group->history);
    if (group->mesh)
        call->history = sherd__hash_word(call->history, group->mesh->ledger->hash);
    call->own = true;
    slot_wait slot;
    look_at_slot(world, group, call->number, &slot);
    if (!slot_is_free(world, &slot) &&
        !sherd__wait_for(world, &(sherd__wait){slot_is_free, slot_needs, &slot})) {
        sherd__call_give(world, call);
        return NULL;
    }
    return call;
}

bool sherd__arena_call(sherd_world *world, sherd__group *group, const char *name,
                       const sherd__move *moves, int count, bool begin)
{
    sherd__group_refresh(world, group);
    if (!settle_operands(world, group, moves, count))
        return false;
    sherd__call_state *call =
        start_call(world, group, name, sherd__moves_fingerprint(world, name, moves, count), count);
    if (!call)
        return false;
    /*
     * A single parcel is written into the record itself: copying it there would read words that
     * were just stored in pairs, which has to wait for the stores.
     */
    sherd__parcel *parcels = &call->record->one;
    if (count > 1 && !(parcels = parcel_room(world, group, call->number, count)))
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    for (int i = 0; i < count; i++)
        sherd__task_fill(world, &call->task[i], &moves[i]);
    call->count = count;
    const sherd__move *refused = without_average(call, moves);
    if (refused)
        return refuse_average(world, call, group, name, refused);
    if (world->remote && !sherd__remote_pack(world, call))
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    size_t carried = count == 1 ? carried_bytes(&call->task[0]) : 0;
    fill_record(call, name, moves[0].plan->what);
    for (int i = 0; i < count && !carried; i++)
        fill_parcel(world, &parcels[i], &call->task[i]);
    publish(world, call,
            &(sherd__shown){.number = call->number,
                            .history = call->history,
                            .parcels = offset_of(world, parcels),
                            .carried = carried,
                            .few = call->task[0].source_data});
    /* What only this rank reads is written while the record is on its way. */
    for (int i = 0; i < count; i++)
        attach_task(world, call, &call->task[i], carried == 0,
                    &entry_of(group, call->number)->readers);
    call->waited = !begin;
    follow_record(world, call);
    return begin || wait_end(world, call);
}

bool sherd__arena_share(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__sharing *numbers)
{
    size_t bytes = (size_t)numbers->words * sizeof *numbers->mine;
    uint64_t fingerprint =
        sherd__hash_word(sherd__hash_text(2, name) + numbers->what, (uint64_t)numbers->words);

    sherd__group_refresh(world, group);
    sherd__call_state *call = start_call(world, group, name, fingerprint, 0);
    if (!call)
        return false;
    sherd__block *block = NULL;
    if (bytes > SHERD__FEW && !(block = sherd__take_quietly(world, (int64_t)bytes)))
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    call->numbers = numbers;
    if (world->remote && !sherd__remote_pack(world, call)) {
        if (block)
            sherd__give_quietly(world, block);
        return fail_call(world, call, group, name, SHERD_ENOMEM, "out of memory");
    }
    sherd__ranks others;
    sherd__ranks_copy(&others, &group->members);
    sherd__ranks_drop(&others, world->rank);
    sherd__ranks_copy(&call->awaited, numbers->from ? numbers->from : &others);
    if (numbers->to)
        sherd__ranks_copy(&others, numbers->to);
    call->waited = true;
    fill_record(call, name, numbers->text ? numbers->text : "");
    if (block) {
        sherd__ranks readers;
        sherd__ranks_copy(&readers, &others);
        memcpy(block->data, numbers->mine, bytes);
        call->record->one.source = offset_of(world, block->data);
        add_ticket(world, call, block, &readers);
    }
    sherd__ranks_copy(&entry_of(group, call->number)->readers, &others);
    publish(world, call,
            &(sherd__shown){.number = call->number,
                            .history = call->history,
                            .parcels = offset_of(world, &call->record->one),
                            .carried = block ? 0 : bytes,
                            .few = numbers->mine});
    follow_record(world, call);
    bool good = wait_end(world, call);
    if (block)
        sherd__give_quietly(world, block);
    return good;
}
