/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: what ranks show each other of their calls. Waiting for a peer and making sure that it
 * makes the same call is one read of one cache line. The ring of the last 16 records is also what
 * messages quote.
 */
#include "inside.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/prefetch.h"
#include "base/text.h"

/* What a peer reads of a small call is one line, or a pair. */
_Static_assert(offsetof(sherd__record, one.stride[2]) <= 64, "two dims in the first line");
_Static_assert(offsetof(sherd__record, few) + SHERD__FEW <= 128, "what is few in the first pair");

enum { NAME_WORDS = 4, NAME_BYTES = 32, WHAT_BYTES = 96 };

/* ---- labels ---------------------------------------------------------------------------------- */

static void put_text(sherd__word *words, int count, const char *text)
{
    uint64_t packed[SHERD__LABEL_WORDS] = {0};

    sherd__fit_text((char *)packed, (size_t)count * 8, text);
    for (int i = 0; i < count; i++)
        sherd__put(&words[i], packed[i]);
}

static void get_text(const sherd__word *words, int count, char *out)
{
    for (int i = 0; i < count; i++) {
        uint64_t word = sherd__peek(&words[i]);
        memcpy(out + (size_t)i * 8, &word, 8);
    }
    out[(size_t)count * 8 - 1] = '\0';
}

void sherd__record_label(sherd__record *record, const char *name, const char *what)
{
    put_text(record->label, NAME_WORDS, name);
    put_text(record->label + NAME_WORDS, SHERD__LABEL_WORDS - NAME_WORDS, what);
}

bool sherd__label_text(const sherd__record *record, uint64_t number, char *out, size_t room)
{
    char name[NAME_BYTES], what[WHAT_BYTES];

    get_text(record->label, NAME_WORDS, name);
    get_text(record->label + NAME_WORDS, SHERD__LABEL_WORDS - NAME_WORDS, what);
    if (sherd__look(&record->number) != number)
        return false;
    snprintf(out, room, "%s%s%s", name, what[0] ? " " : "", what);
    return true;
}

void sherd__record_text(const sherd_world *world, int rank, int lane, uint64_t number, char *out,
                        size_t room)
{
    if (!sherd__label_text(sherd__record_of(world, rank, lane, number), number, out, room))
        snprintf(out, room, "a call");
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* The stores to the first line follow each other: a peer that waits takes the line away after each
 * that it sees. */
void sherd__record_publish(sherd_world *world, sherd__group *group, sherd__record *record,
                           const sherd__shown *shown)
{
    uint64_t number = shown->number, history = shown->history;

    if (shown->carried)
        memcpy(record->few, shown->few, shown->carried);
    sherd__put(&record->history, history);
    sherd__put(&record->parcels, shown->parcels);
    atomic_store_explicit(&record->status, shown->status, memory_order_relaxed);
    atomic_store_explicit(&record->carried, (uint32_t)shown->carried, memory_order_relaxed);
    atomic_store_explicit(&record->number, number, memory_order_release);
    /* Peers have the lines that they have read: they are to be here when they are written next. */
    sherd__own_soon(&group->own->left);
    sherd__lane_set_add(&world->used, group->lane);
    sherd__put(&group->own->history, history);
    atomic_store_explicit(&group->own->made, number, memory_order_release);
    group->sequence = sherd__calls_in(number, world->base);
    group->history = history;
    sherd__post_call(world, group->lane, number);
    sherd__own_soon(&sherd__record_of(world, world->rank, group->lane, number + 1)->number);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* What two ranks did differently in a lane, as far as their rings still tell. */
void sherd__record_difference(const sherd_world *world, int lane, int a, int b, char *out,
                              size_t room)
{
    uint64_t base = world->base;
    uint64_t na = sherd__calls_in(sherd__look(&sherd__lane_of(world, a, lane)->made), base);
    uint64_t nb = sherd__calls_in(sherd__look(&sherd__lane_of(world, b, lane)->made), base);
    uint64_t most = na > nb ? na : nb, least = na > nb ? nb : na;
    char left[160], right[160], group[96];

    sherd__lane_text(world, lane, a, group, sizeof group);
    for (uint64_t k = most > SHERD__DEPTH ? most - SHERD__DEPTH + 1 : 1; k <= least; k++) {
        uint64_t number = sherd__number(base, k);
        if (sherd__look(&sherd__record_of(world, a, lane, number)->fingerprint) ==
            sherd__look(&sherd__record_of(world, b, lane, number)->fingerprint))
            continue;
        sherd__record_text(world, a, lane, number, left, sizeof left);
        sherd__record_text(world, b, lane, number, right, sizeof right);
        if (strcmp(left, right) == 0) /* what differs is not in the text */
            snprintf(out, room,
                     "call %llu of group %s is %s on ranks %d and %d, but with other arguments",
                     (unsigned long long)k, group, left, a, b);
        else
            snprintf(out, room, "call %llu of group %s is %s on rank %d, and %s on rank %d",
                     (unsigned long long)k, group, left, a, right, b);
        return;
    }
    if (na == nb) {
        sherd__record_text(world, a, lane, sherd__number(base, most), left, sizeof left);
        snprintf(out, room,
                 "ranks %d and %d both made call %llu of group %s, %s, but did different things "
                 "before it",
                 a, b, (unsigned long long)most, group, left);
        return;
    }
    int more = na > nb ? a : b, fewer = na > nb ? b : a;
    sherd__record_text(world, more, lane, sherd__number(base, least + 1), left, sizeof left);
    snprintf(out, room,
             "rank %d made %llu calls in group %s, rank %d only %llu: it did not make %s", more,
             (unsigned long long)most, group, fewer, (unsigned long long)least, left);
}

static void raise_newer(sherd_world *world, const sherd__call_state *call, int rank,
                        uint64_t number)
{
    char group[96], mine[160], theirs[160];

    sherd__lane_text(world, call->group->lane, world->rank, group, sizeof group);
    sherd__record_text(world, world->rank, call->group->lane, call->number, mine, sizeof mine);
    sherd__record_text(world, rank, call->group->lane, number, theirs, sizeof theirs);
    sherd__raise(world, SHERD_EDIFFER,
                 "call %llu of group %s is %s here, but rank %d went on to call %llu, %s, without "
                 "waiting for this rank: it makes other calls",
                 (unsigned long long)sherd__calls_in(call->number, world->base), group, mine, rank,
                 (unsigned long long)sherd__calls_in(number, world->base), theirs);
}

static void raise_different(sherd_world *world, const sherd__call_state *call, int rank)
{
    char text[SHERD_ERROR_BYTES];
    int lane = call->group->lane;

    sherd__record_difference(world, lane, world->rank, rank, text, sizeof text);
    sherd__raise(world, SHERD_EDIFFER, "%s", text);
}

/* The history includes the fingerprint, and lies on the line that is read anyway. */
static bool is_same(const sherd__record *record, const sherd__call_state *call)
{
    return sherd__peek(&record->history) == call->history;
}

bool sherd__record_misfits(const sherd_world *world, const sherd__call_state *call, int rank)
{
    const sherd__record *record = sherd__record_of(world, rank, call->group->lane, call->number);
    uint64_t number = sherd__look(&record->number);

    return number > call->number ||
           (number == call->number &&
            (atomic_load_explicit(&record->status, memory_order_relaxed) != 0 ||
             !is_same(record, call)));
}

bool sherd__record_there(sherd_world *world, const sherd__call_state *call, int rank)
{
    const sherd__record *record = sherd__record_of(world, rank, call->group->lane, call->number);
    uint64_t number = sherd__look(&record->number);

    if (number != call->number) {
        if (number > call->number && !world->arrived)
            raise_newer(world, call, rank, number);
        return false;
    }
    int status = atomic_load_explicit(&record->status, memory_order_relaxed);
    if (status == 0 && is_same(record, call))
        return sherd__is_near(world, rank) || sherd__remote_fits(world, call, rank);
    if (world->arrived || (status && world->remote))
        return false; /* at a meeting, or the alarm that tells why is on its way */
    if (status)
        sherd__raise(world, (sherd_status)status, "rank %d failed before call %llu", rank,
                     (unsigned long long)sherd__calls_in(call->number, world->base));
    else
        raise_different(world, call, rank);
    return false;
}
