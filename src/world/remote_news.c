/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks that share no memory tell each other besides data: records that nobody pulls from, the
 * last call that they have made in a lane, how far they have left their calls, the alarm, and the
 * end. Records and `left` are told late: with the next call that goes to a rank anyhow, and at the
 * latest when this one sleeps or meets. Nobody needs them before.
 */
#include "remote.h"

#include <stdio.h>
#include <string.h>

typedef struct sent_alarm {
    sherd__head head; /* number: how often alarms had been lowered where it was raised */
    int32_t status;
    char text[SHERD_ERROR_BYTES];
} sent_alarm;

/* Also of the end: number is the word. */

typedef struct sent_lane {
    sherd__head head; /* number: the last call made */
    uint64_t history;
} sent_lane;

/* ---- records --------------------------------------------------------------------------------- */

void sherd__mirror_record(sherd_world *world, int from, const sherd__sent_record *sent)
{
    int lane = (int)sent->head.lane;
    uint64_t number = sent->head.number;
    sherd__lane *theirs = sherd__lane_of(world, from, lane);
    sherd__record *record = sherd__record_of(world, from, lane, number);

    sherd__put(&record->fingerprint, sent->fingerprint);
    sherd__put(&record->history, sent->history);
    atomic_store_explicit(&record->status, sent->status, memory_order_relaxed);
    atomic_store_explicit(&record->carried, 0, memory_order_relaxed);
    for (int i = 0; i < SHERD__LABEL_WORDS; i++)
        sherd__put(&record->label[i], sent->label[i]);
    atomic_store(&record->number, number);
    if (number > sherd__peek(&theirs->made)) {
        sherd__put(&theirs->history, sent->history);
        atomic_store(&theirs->made, number);
    }
    if (sent->left > sherd__peek(&theirs->left))
        atomic_store(&theirs->left, sent->left);
}

void sherd__tell_records(sherd_world *world, int to, int lane, uint64_t number)
{
    sherd__lane *own = sherd__lane_of(world, world->rank, lane);
    sherd__lane *theirs = sherd__lane_of(world, to, lane);
    uint64_t from = theirs->told > world->base ? theirs->told + 1 : world->base + 1;

    if (number >= SHERD__DEPTH && from < number - SHERD__DEPTH + 1)
        from = number - SHERD__DEPTH + 1; /* what is older is not there any more */
    for (uint64_t k = from; k <= number; k++) {
        const sherd__record *record = sherd__record_of(world, world->rank, lane, k);
        sherd__sent_record sent = {
            .head = {.kind = SHERD__SENT_RECORD, .lane = (uint32_t)lane, .number = k},
            .fingerprint = sherd__peek(&record->fingerprint),
            .history = sherd__peek(&record->history),
            .left = sherd__peek(&own->left),
            .status = atomic_load_explicit(&record->status, memory_order_relaxed)};
        if (sherd__peek(&record->number) != k)
            continue;
        for (int i = 0; i < SHERD__LABEL_WORDS; i++)
            sent.label[i] = sherd__peek(&record->label[i]);
        sherd__tell(world->remote, to, &sent, sizeof sent);
        theirs->told_left = sent.left;
    }
    if (number > theirs->told)
        theirs->told = number;
}

void sherd__tell_lane(sherd_world *world, int to, const sherd__group *group)
{
    const sent_lane sent = {.head = {.kind = SHERD__SENT_LANE,
                                     .lane = (uint32_t)group->lane,
                                     .number = sherd__peek(&group->own->made)},
                            .history = sherd__peek(&group->own->history)};

    if (sherd__is_near(world, to) ||
        sherd__lane_of(world, to, group->lane)->told == sent.head.number)
        return; /* it reads that itself, or the records have told it */
    sherd__tell_records(world, to, group->lane, sent.head.number);
    sherd__tell(world->remote, to, &sent, sizeof sent);
}

static void flush_group(sherd_world *world, const sherd__group *group)
{
    uint64_t made = sherd__peek(&group->own->made), left = sherd__peek(&group->own->left);

    for (int q = -1; (q = sherd__next_far(world, group, q)) >= 0;) {
        sherd__lane *theirs = sherd__lane_of(world, q, group->lane);
        if (theirs->told < made && made > world->base)
            sherd__tell_records(world, q, group->lane, made);
        if (!theirs->owed || left <= theirs->told_left)
            continue;
        const sherd__head head = {
            .kind = SHERD__SENT_LEFT, .lane = (uint32_t)group->lane, .number = left};
        sherd__tell(world->remote, q, &head, sizeof head);
        theirs->told_left = left;
    }
}

void sherd__remote_flush(sherd_world *world)
{
    flush_group(world, &world->whole);
    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
            flush_group(world, &world->mesh[i].group[g]);
}

static bool take_lane(sherd_world *world, int from, const sherd_message *m)
{
    sent_lane sent;

    if (m->head_bytes != sizeof sent)
        return false;
    memcpy(&sent, m->head, sizeof sent);
    sherd__lane *theirs = sherd__lane_of(world, from, (int)sent.head.lane);
    sherd__put(&theirs->history, sent.history);
    atomic_store(&theirs->made, sent.head.number);
    return true;
}

/* ---- the alarm and the end ------------------------------------------------------------------- */

void sherd__remote_alarm(sherd_world *world, sherd_status status, const char *text)
{
    sent_alarm sent = {.head = {.kind = SHERD__SENT_ALARM, .number = world->remote->lowered},
                       .status = status};

    snprintf(sent.text, sizeof sent.text, "%s", text);
    sherd__tell_all(world->remote, &sent, sizeof sent);
}

void sherd__remote_end(sherd__arena *arena, uint64_t word)
{
    sent_alarm sent = {.head = {.kind = SHERD__SENT_END, .number = word}};

    snprintf(sent.text, sizeof sent.text, "%s",
             arena->control->post[arena->remote->carrier.rank].ending);
    sherd__tell_all(arena->remote, &sent, sizeof sent);
}

static bool is_failure(int32_t status)
{
    return status < 0 && strcmp(sherd_status_name((sherd_status)status), "unknown") != 0;
}

static bool is_end(const sherd_world *world, uint64_t word)
{
    sherd__end end = sherd__end_in(word);

    return end >= SHERD__END_KILLED && end <= SHERD__END_VANISHED &&
           sherd__rank_in(word) < world->ranks && is_failure(sherd__status_in(word));
}

/* The alarm of another rank is up here, too, unless one is. */
static void put_alarm(sherd_world *world, int from, sherd_status status, const char *text)
{
    sherd__post *post = &world->arena.control->post[from];

    if (sherd__look(world->alarm))
        return;
    snprintf(post->alarm, sizeof post->alarm, "%s", text);
    atomic_store(world->alarm, sherd__alarm_word(from, status));
}

static void take_alarm(sherd_world *world, int from, const sent_alarm *sent)
{
    sherd__remote *remote = world->remote;

    if (sent->head.number < remote->lowered)
        return; /* that was dealt with at a meeting */
    if (sent->head.number == remote->lowered) {
        put_alarm(world, from, (sherd_status)sent->status, sent->text);
        return;
    }
    if (remote->early.status)
        return;
    remote->early.lowered = sent->head.number;
    remote->early.rank = from;
    remote->early.status = (sherd_status)sent->status;
    memcpy(remote->early.text, sent->text, sizeof remote->early.text);
}

void sherd__remote_lowered(sherd_world *world)
{
    sherd__remote *remote = world->remote;

    remote->lowered++;
    atomic_store(world->alarm, 0);
    if (remote->early.status && remote->early.lowered <= remote->lowered) {
        if (remote->early.lowered == remote->lowered)
            put_alarm(world, remote->early.rank, remote->early.status, remote->early.text);
        remote->early.status = SHERD_OK;
    }
}

static void take_end(sherd_world *world, int from, const sent_alarm *sent)
{
    sherd__arena quiet = world->arena;

    if (sherd__look(world->death))
        return;
    snprintf(world->arena.control->post[from].ending,
             sizeof world->arena.control->post[from].ending, "%s", sent->text);
    quiet.remote = NULL; /* who has sent it has told all */
    sherd__end_world(&quiet, sent->head.number);
}

bool sherd__take_news(sherd_world *world, int from, const sherd_message *m)
{
    sherd__sent_record record;
    sent_alarm alarm;
    sherd__head head;

    memcpy(&head, m->head, sizeof head);
    switch ((sherd__message_kind)head.kind) {
    case SHERD__SENT_RECORD:
        if (m->head_bytes != sizeof record)
            return false;
        memcpy(&record, m->head, sizeof record);
        sherd__mirror_record(world, from, &record);
        return true;
    case SHERD__SENT_LEFT:
        if (head.number > sherd__peek(&sherd__lane_of(world, from, (int)head.lane)->left))
            atomic_store(&sherd__lane_of(world, from, (int)head.lane)->left, head.number);
        return m->head_bytes == sizeof head;
    case SHERD__SENT_LANE:
        return take_lane(world, from, m);
    default:
        if (m->head_bytes != sizeof alarm)
            return false;
        memcpy(&alarm, m->head, sizeof alarm);
        alarm.text[sizeof alarm.text - 1] = '\0';
        if (head.kind == SHERD__SENT_END ? !is_end(world, head.number) : !is_failure(alarm.status))
            return false;
        if (head.kind == SHERD__SENT_END)
            take_end(world, from, &alarm);
        else
            take_alarm(world, from, &alarm);
        return true;
    }
}
