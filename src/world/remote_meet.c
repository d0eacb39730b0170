/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meetings of ranks that share no memory. Each tells all that it has come, and rank 0 also what it
 * brings: its lanes, and what it has done on its meshes, where that is new. Rank 0 decides, as the
 * last to come does in an arena, and tells all the verdict; after a failure also what is left of
 * what was done on each mesh, so that all keep the same. Two messages for each rank where nothing
 * failed, and then one more for some hundred meshes.
 */
#include "remote.h"

#include <stdio.h>
#include <string.h>

typedef struct sent_arrival {
    sherd__head head; /* number: the meeting */
    int32_t kind, status;
    uint64_t arguments;
    sherd__lane_set used;
    char name[SHERD__MEETING_NAME];
    char text[SHERD_ERROR_BYTES];
} sent_arrival;

typedef struct sent_opened {
    sherd__head head;
    sherd__opened opened;
} sent_opened;
_Static_assert(sizeof(sent_opened) <= SHERD_HEAD_BYTES, "it is the head of a message");

typedef struct sent_work {
    sherd__head head;
    sherd__work work;
} sent_work;
_Static_assert(sizeof(sent_work) <= SHERD_HEAD_BYTES, "it is the head of a message");

/*
 * Of one mesh after the other: its lane, how many flights and sets there are, the other words of
 * the remains, the flights, the sets, and of the last set, the larger one, what there is of it.
 */
typedef struct sent_remains {
    sherd__head head; /* number: words */
    uint64_t word[sizeof(sherd__work) / sizeof(uint64_t)];
} sent_remains;

enum {
    REMAINS_HEAD = 6, /* words */
    SET_WORDS = sizeof(sherd__marks) / sizeof(uint64_t),
    SINCE_WORDS = sizeof(sherd__many_marks) / sizeof(uint64_t),
    REMAINS_MOST = REMAINS_HEAD + SHERD__LOST_FLIGHTS + SHERD__DEEDS * SET_WORDS + SINCE_WORDS
};
_Static_assert(REMAINS_MOST <= sizeof(sherd__work) / sizeof(uint64_t), "one fits");

typedef struct sent_verdict {
    sherd__head head; /* number: the word */
    uint64_t round, base, lowered;
    sherd__difference difference;
    char text[SHERD_ERROR_BYTES];
} sent_verdict;

/* The head alone, where nothing is said. */
typedef struct sent_taken {
    sherd__head head;
    char deed[SHERD__DEED_TEXT];
} sent_taken;

/* ---- meshes ---------------------------------------------------------------------------------- */

/* Of the ranks that differ from this one in some axes of a mesh only, the place of the first; -1:
 * it is not in the mesh. */
static int64_t first_place(const sherd_mesh *mesh, int rank, unsigned axes)
{
    int64_t at[SHERD_MAX_AXES];

    if (!sherd_mesh_coordinate(mesh, rank, at))
        return -1;
    for (int a = 0; a < mesh->axes; a++)
        at[a] = axes >> a & 1 ? 0 : at[a];
    return sherd__mesh_place(mesh, at);
}

/* Who leads the groups of some axes: in each the lowest rank. */
static void mirror_leaders(sherd_world *world, const sherd_mesh *mesh, unsigned axes, int lane)
{
    int16_t leader[SHERD_MAX_RANKS] = {0}; /* 1 + a rank, by the group's first place */

    for (int q = 0; q < world->ranks; q++) {
        int64_t first = first_place(mesh, q, axes);
        if (first >= 0 && !leader[first])
            leader[first] = (int16_t)(q + 1);
        if (sherd__is_near(world, q))
            continue;
        sherd__lane_of(world, q, lane)->opened.count = 0;
        atomic_store(&sherd__lane_of(world, q, lane)->leader, first < 0 ? 0 : leader[first]);
    }
}

void sherd__remote_mesh(sherd_world *world, const sherd__member *member)
{
    for (unsigned bits = 0; bits < 1u << SHERD_MAX_AXES; bits++)
        if (member->index[bits] >= 0)
            mirror_leaders(world, member->mesh, bits, member->first + member->index[bits]);
    /* Mirrors may hold what a former world has left in its lanes: it is told anew. */
    for (int lane = 0; lane < member->lanes; lane++)
        sherd__lane_set_add(&world->used, member->first + lane);
}

/* The lane of all axes of a mesh. */
static int widest_lane(const sherd__member *member)
{
    return member->first + member->lanes - 1;
}

/* ---- arriving -------------------------------------------------------------------------------- */

/* What rank 0 has of this rank's work on a mesh already is not told again. */
static void bring_work(sherd_world *world, int lane)
{
    const sherd__work *work = sherd__work_of(world, world->rank, lane);
    sent_work sent = {.head = {.kind = SHERD__SENT_WORK, .lane = (uint32_t)lane}};
    uint64_t *told = &sherd__lane_of(world, 0, lane)->told_work;
    uint64_t now =
        sherd__hash_word(sherd__hash_word(work->hash, work->count), work->good + work->alike);

    for (int i = 0; i < work->flights && i < SHERD__FLIGHTS; i++)
        now = sherd__hash_word(now, work->flight[i]);
    now = sherd__hash_word(now, (uint64_t)work->flights);
    now = sherd__hash_bytes(now, &work->wrote, sizeof work->wrote);
    now = sherd__hash_bytes(now, &work->since, sizeof work->since);
    if (sherd__is_near(world, 0))
        return; /* it reads that itself */
    if (now == *told)
        return;
    sent.work = *work;
    sherd__tell(world->remote, 0, &sent, sizeof sent);
    *told = now;
}

static void bring_opened(sherd_world *world, sherd__group *group)
{
    sent_opened sent = {.head = {.kind = SHERD__SENT_OPENED, .lane = (uint32_t)group->lane}};

    if (!group->opens_far || sherd__is_near(world, 0))
        return;
    sent.opened = group->own->opened;
    sherd__tell(world->remote, 0, &sent, sizeof sent);
    group->opens_far = false;
}

/* All that rank 0 needs to decide. */
static void bring(sherd_world *world)
{
    sherd__tell_lane(world, 0, &world->whole);
    for (int lane = 0; (lane = sherd__lane_set_next(&world->used, lane + 1, world->lanes)) >= 0;) {
        const sherd__member *member = sherd__member_at(world, lane);
        if (!member->group)
            continue;
        sherd__tell_lane(world, 0, &member->group[lane - member->first]);
        bring_opened(world, &member->group[lane - member->first]);
        if (lane == widest_lane(member))
            bring_work(world, lane);
    }
}

static bool all_have_come(sherd_world *world, void *what)
{
    for (int q = 0; q < world->ranks; q++)
        if (sherd__look(&world->arena.control->post[q].arrived) < *(const uint64_t *)what)
            return false;
    return true;
}

/*
 * A rank that has heard an alarm makes no more calls and comes to the meeting without them. Who
 * waits for one of those, and has not heard it yet, would take that for what went wrong first: it
 * hears the alarm from this rank, before the arrival. One message more to each where something
 * failed.
 */
static void pass_alarm_on(sherd_world *world)
{
    uint64_t word = sherd__look(world->alarm);
    char text[SHERD_ERROR_BYTES];

    if (word && sherd__rank_in(word) != world->rank)
        sherd__remote_alarm(world, sherd__alarm_read(world, text, sizeof text), text);
}

bool sherd__remote_arrive(sherd_world *world, uint64_t round)
{
    const sherd__post *post = world->post;
    sent_arrival sent = {.head = {.kind = SHERD__SENT_ARRIVAL, .number = round},
                         .kind = (int32_t)post->kind,
                         .status = post->status,
                         .arguments = post->arguments};

    if (sherd__look(world->death))
        return false;
    sent.used = post->used;
    memcpy(sent.name, post->name, sizeof sent.name);
    memcpy(sent.text, post->text, sizeof sent.text);
    pass_alarm_on(world);
    sherd__remote_flush(world); /* who arrives without a call must not seem to have made it late */
    if (world->rank != 0)
        bring(world);
    sherd__tell_all(world->remote, &sent, sizeof sent);
    return world->rank == 0 && sherd__wait_for(world, &(sherd__wait){all_have_come, NULL, &round});
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void send_remains(sherd_world *world, sent_remains *sent)
{
    sherd__tell_all(world->remote, sent,
                    sizeof sent->head + sent->head.number * sizeof *sent->word);
    sent->head.number = 0;
}

static size_t since_words(const uint64_t *set)
{
    return set[0] > SHERD__MANY_MARKS ? SINCE_WORDS : 1 + (size_t)set[0];
}

static void add_remains(sent_remains *sent, int lane, const sherd__remains *remains)
{
    const uint64_t head[REMAINS_HEAD] = {(uint64_t)lane,          (uint64_t)remains->flights,
                                         (uint64_t)remains->sets, remains->kept,
                                         remains->most,           remains->from};
    uint64_t *to = sent->word + sent->head.number;

    memcpy(to, head, sizeof head);
    to += REMAINS_HEAD;
    memcpy(to, remains->flight, (size_t)remains->flights * sizeof *remains->flight);
    to += remains->flights;
    memcpy(to, remains->lost, (size_t)remains->sets * sizeof *remains->lost);
    to += remains->sets * SET_WORDS;
    memcpy(to, remains->lost_since.word, since_words(remains->lost_since.word) * sizeof *to);
    to += since_words(remains->lost_since.word);
    sent->head.number = (uint64_t)(to - sent->word);
}

/* What is left of what was done on each mesh: the same to all, as all have to go by the same. */
static void tell_what_is_left(sherd_world *world, bool finished)
{
    sent_remains sent = {.head = {.kind = SHERD__SENT_REMAINS}};
    sherd__remains remains;

    for (int i = 0; i < world->meshes; i++) {
        const sherd__member *member = &world->mesh[i];
        if (!member->lanes)
            continue;
        sherd__remains_find(world, widest_lane(member), finished, &remains);
        if (member->widest)
            member->mesh->ledger->remains = remains;
        if (sent.head.number + REMAINS_MOST > sizeof sent.word / sizeof *sent.word)
            send_remains(world, &sent);
        add_remains(&sent, widest_lane(member), &remains);
    }
    if (sent.head.number)
        send_remains(world, &sent);
}

/* Claims that there was no room for have not been compared. */
sherd_status sherd__remote_lacks(sherd_world *world, char *text, size_t room)
{
    sherd__remote *remote = world->remote;
    sherd_status status = remote->kept_status;

    if (status)
        snprintf(text, room, "rank %d: %s", world->rank, remote->kept_text);
    remote->kept_status = SHERD_OK;
    return status;
}

void sherd__remote_verdict(sherd_world *world, uint64_t round, bool failed, bool lower,
                           bool finished)
{
    const sherd__verdict *verdict = &world->arena.control->verdict[round & 1];
    sent_verdict sent = {
        .head = {.kind = SHERD__SENT_VERDICT, .number = sherd__look(&verdict->word)},
        .round = round,
        .base = verdict->base,
        .difference = verdict->difference};

    memcpy(sent.text, verdict->text, sizeof sent.text);
    if (failed)
        tell_what_is_left(world, finished);
    if (lower)
        sherd__remote_lowered(world);
    sent.lowered = world->remote->lowered;
    sherd__claims_drop(world);
    sherd__tell_all(world->remote, &sent, sizeof sent);
}

void sherd__remote_taken(sherd_world *world, uint64_t round, bool new_epoch)
{
    sent_taken sent = {.head = {.kind = SHERD__SENT_TAKEN, .number = round}};
    sherd__remote *remote = world->remote;

    memcpy(sent.deed, world->post->deed, sizeof sent.deed);
    sherd__tell_all(remote, &sent, sent.deed[0] ? sizeof sent : sizeof sent.head);
    sherd__forget_posts(world);
    if (new_epoch) /* it was about calls that are over */
        remote->kept_status = SHERD_OK;
    for (int q = 0; q < world->ranks; q++)
        for (sherd__sheet **at = &remote->inbox[q]; *at;) {
            sherd__sheet *sheet = *at;
            if (sheet->number > world->base) {
                at = &sheet->next;
                continue;
            }
            *at = sheet->next;
            sheet->next = NULL;
            sherd__sheets_give(remote, &sheet);
        }
}

/* ---- what comes ------------------------------------------------------------------------------ */

static bool take_arrival(sherd_world *world, int from, const sherd_message *m)
{
    sherd__post *post = &world->arena.control->post[from];
    sent_arrival sent;

    if (m->head_bytes != sizeof sent)
        return false;
    memcpy(&sent, m->head, sizeof sent);
    if (sent.head.number != sherd__look(&post->arrived) + 1 || sent.kind < SHERD__CHECK ||
        sent.kind > SHERD__CLOSE ||
        strcmp(sherd_status_name((sherd_status)sent.status), "unknown") == 0)
        return false;
    post->kind = (sherd__meeting)sent.kind;
    post->status = (sherd_status)sent.status;
    post->arguments = sent.arguments;
    post->used = sent.used;
    snprintf(post->name, sizeof post->name, "%.*s", (int)sizeof sent.name - 1, sent.name);
    snprintf(post->text, sizeof post->text, "%.*s", (int)sizeof sent.text - 1, sent.text);
    atomic_store(&post->arrived, sent.head.number);
    return true;
}

static bool take_work(sherd_world *world, int from, const sherd_message *m)
{
    sent_work sent;

    if (m->head_bytes != sizeof sent || sherd__is_near(world, from))
        return false;
    memcpy(&sent, m->head, sizeof sent);
    for (int i = 0; i < SHERD__DEEDS; i++)
        sent.work.last[i].name[SHERD__DEED_NAME - 1] = '\0';
    sherd__lane_of(world, from, (int)sent.head.lane)->work = sent.work;
    return true;
}

static bool take_opened(sherd_world *world, int from, const sherd_message *m)
{
    sent_opened sent;

    if (m->head_bytes != sizeof sent || sherd__is_near(world, from))
        return false;
    memcpy(&sent, m->head, sizeof sent);
    for (int i = 0; i < SHERD__OPENED; i++)
        sent.opened.first[i].text[SHERD__OPENED_TEXT - 1] = '\0';
    sherd__lane_of(world, from, (int)sent.head.lane)->opened = sent.opened;
    return true;
}

/* The remains at `word`, of which there are `words` at most, into a ledger or, if this rank is not
 * in the mesh, nowhere. Returns its length; 0: it makes no sense. */
static size_t take_remains(sherd_world *world, const uint64_t *word, size_t words)
{
    const uint64_t *flight = word + REMAINS_HEAD;

    if (words < REMAINS_HEAD || word[0] >= (uint64_t)world->lanes ||
        word[1] > SHERD__LOST_FLIGHTS || word[2] > SHERD__DEEDS)
        return 0;
    size_t before = REMAINS_HEAD + (size_t)word[1] + (size_t)word[2] * SET_WORDS;
    if (before >= words || before + since_words(word + before) > words)
        return 0;
    const sherd__member *member = sherd__member_at(world, (int)word[0]);
    if (!member || widest_lane(member) != (int)word[0])
        return 0;
    if (member->widest) {
        sherd__remains *to = &member->mesh->ledger->remains;
        *to = (sherd__remains){.flights = (int)word[1],
                               .sets = (int)word[2],
                               .kept = word[3],
                               .most = word[4],
                               .from = word[5]};
        memcpy(to->flight, flight, word[1] * sizeof *flight);
        memcpy(to->lost, flight + word[1], word[2] * sizeof *to->lost);
        memcpy(to->lost_since.word, word + before, since_words(word + before) * sizeof *word);
    }
    return before + since_words(word + before);
}

static bool take_all_remains(sherd_world *world, const sherd_message *m)
{
    sent_remains sent;
    size_t at = 0, length = 1;

    if (m->head_bytes < sizeof sent.head || m->head_bytes > sizeof sent || !world->arrived)
        return false;
    memcpy(&sent, m->head, m->head_bytes);
    if (sent.head.number != (m->head_bytes - sizeof sent.head) / sizeof *sent.word)
        return false;
    for (; length && at < sent.head.number; at += length)
        length = take_remains(world, sent.word + at, sent.head.number - at);
    return length > 0;
}

static bool take_verdict(sherd_world *world, const sherd_message *m)
{
    sent_verdict sent;

    if (m->head_bytes != sizeof sent)
        return false;
    memcpy(&sent, m->head, sizeof sent);
    if (!world->arrived || sent.round != world->round + 1 || sent.head.number >> 16 != sent.round)
        return false;
    sherd__verdict *verdict = &world->arena.control->verdict[sent.round & 1];
    snprintf(verdict->text, sizeof verdict->text, "%.*s", (int)sizeof sent.text - 1, sent.text);
    verdict->base = sent.base;
    verdict->difference = sent.difference;
    if (sent.lowered > world->remote->lowered)
        sherd__remote_lowered(world);
    atomic_store(&verdict->word, sent.head.number);
    return true;
}

static bool take_taken(sherd_world *world, int from, const sherd_message *m)
{
    sherd__post *post = &world->arena.control->post[from];
    sent_taken sent = {.deed = ""};

    if (m->head_bytes != sizeof sent.head && m->head_bytes != sizeof sent)
        return false;
    memcpy(&sent, m->head, m->head_bytes);
    snprintf(post->deed, sizeof post->deed, "%.*s", (int)sizeof sent.deed - 1, sent.deed);
    atomic_store(&post->taken, sent.head.number);
    return true;
}

bool sherd__take_meeting(sherd_world *world, int from, const sherd_message *m)
{
    sherd__head head;

    memcpy(&head, m->head, sizeof head);
    switch ((sherd__message_kind)head.kind) {
    case SHERD__SENT_ARRIVAL:
        return take_arrival(world, from, m);
    case SHERD__SENT_WORK:
        return take_work(world, from, m);
    case SHERD__SENT_OPENED:
        return take_opened(world, from, m);
    case SHERD__SENT_REMAINS:
        return from == 0 && take_all_remains(world, m);
    case SHERD__SENT_VERDICT:
        return from == 0 && take_verdict(world, m);
    default:
        return take_taken(world, from, m);
    }
}
