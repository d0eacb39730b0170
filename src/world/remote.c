/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between ranks that share no memory, and the memory for them: sheets for a record and a
 * power of two of data, which are used again and again. Nothing here blocks for another rank but
 * saying goodbye. What comes is looked at in each round of each wait.
 */
#include "doing.h"
#include "remote.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SMALLEST_LOG2 = 10,
    IDLE_MOST = 256 << 20,  /* bytes of idle sheets; what is beyond goes back */
    RESERVE = 8,            /* sheets for short messages, beyond one for each rank */
    PART_BYTES = 256 << 10, /* packed and unpacked in the cache, and long enough for MPI */
    GOODBYE_NAP_NS = 20 * 1000
};
static const int64_t goodbye_ns = INT64_C(5) * 1000 * 1000 * 1000; /* in which nothing comes */

/* ---- sheets ---------------------------------------------------------------------------------- */

/* Data is often a power of two long, and a record lies before it. */
static size_t room_of(int class)
{
    return ((size_t)1 << (SMALLEST_LOG2 + class)) + SHERD__RECORD_BYTES;
}

static int class_of(size_t bytes)
{
    int class = 0;

    while (class < SHERD__SHEET_CLASSES && room_of(class) < bytes)
        class ++;
    return class;
}

static sherd__sheet *make(sherd__remote *remote, int class)
{
    size_t room = room_of(class);
    sherd__sheet *sheet;

    if (remote->counts && !sherd__may_allocate(remote->counts))
        return NULL;
    if ((sheet = sherd__alloc(&remote->heap, 1, sizeof *sheet + room)))
        sheet->room = room;
    return sheet;
}

sherd__sheet *sherd__sheet_take(sherd__remote *remote, size_t bytes)
{
    int class = class_of(bytes);
    sherd__sheet *sheet = class < SHERD__SHEET_CLASSES ? remote->idle[class] : NULL;

    if (!sheet)
        return class < SHERD__SHEET_CLASSES ? make(remote, class) : NULL;
    remote->idle[class] = sheet->next;
    remote->idle_bytes -= sheet->room;
    sheet->next = NULL;
    sheet->held = NULL;
    return sheet;
}

void sherd__sheet_give(sherd__remote *remote, sherd__sheet *sheet)
{
    int class = class_of(sheet->room);

    if (class > 2 && remote->idle_bytes + sheet->room > (size_t)IDLE_MOST) {
        sherd__free(&remote->heap, sheet);
        return;
    }
    sheet->next = remote->idle[class];
    remote->idle[class] = sheet;
    remote->idle_bytes += sheet->room;
}

void sherd__sheets_give(sherd__remote *remote, sherd__sheet **list)
{
    while (*list) {
        sherd__sheet *sheet = *list;
        *list = sheet->next;
        while (sheet->more) {
            sherd__sheet *more = sheet->more;
            sheet->more = more->next;
            sherd__sheet_give(remote, more);
        }
        sherd__sheet_give(remote, sheet);
    }
}

bool sherd__sheets_reserve(sherd__remote *remote, int count)
{
    sherd__sheet *list = NULL;
    int some = 0;

    for (sherd__sheet *sheet; some < count && (sheet = sherd__sheet_take(remote, 0)); some++) {
        sheet->next = list;
        list = sheet;
    }
    sherd__sheets_give(remote, &list);
    return some == count;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Give back what has been sent; what goes to one rank goes in its order. */
static void retire_sent(sherd__remote *remote)
{
    for (int q = -1; (q = sherd__ranks_next(&remote->busy, q + 1)) >= 0;) {
        sherd__queue *queue = &remote->flight[q];
        sherd__sheet *sheet;
        while ((sheet = queue->first) &&
               remote->carrier.sent(remote->carrier.self, &sheet->sending)) {
            queue->first = sheet->next;
            remote->gone++;
            if (sheet->held)
                sheet->held->reading--;
            sherd__sheet_give(remote, sheet);
        }
        if (!queue->first)
            sherd__ranks_drop(&remote->busy, q);
    }
}

/* The world ends; the others are told as far as that goes. to: who was not reached; -1: unknown. */
static void carrier_fails(sherd__remote *remote, int to)
{
    const sherd_carrier *carrier = &remote->carrier;
    sherd__post *post = &remote->arena.control->post[carrier->rank];
    char why[SHERD_ERROR_BYTES / 2] = "";

    if (sherd__look(&remote->arena.control->death))
        return;
    if (!carrier->has_failed || !carrier->has_failed(carrier->self, why, sizeof why))
        snprintf(why, sizeof why, "%s", carrier->name);
    if (to < 0)
        snprintf(post->ending, sizeof post->ending, "rank %d: %s", carrier->rank, why);
    else
        snprintf(post->ending, sizeof post->ending, "rank %d: does not send to rank %d: %s",
                 carrier->rank, to, why);
    sherd__one_line(post->ending); /* whatever the carrier says */
    sherd__end_world(&remote->arena,
                     sherd__end_word(SHERD__END_TOLD, carrier->rank, 0, SHERD_EPEER));
}

void sherd__sheet_send(sherd__remote *remote, sherd__sheet *sheet)
{
    sherd__queue *queue = &remote->flight[sheet->to];

    if (!remote->carrier.send(remote->carrier.self, sheet->to, &sheet->message, &sheet->sending))
        carrier_fails(remote, sheet->to);
    /* What is short has mostly gone already. */
    if (remote->carrier.sent(remote->carrier.self, &sheet->sending)) {
        sherd__sheet_give(remote, sheet);
        return;
    }
    if (sheet->held)
        sheet->held->reading++;
    sheet->next = NULL;
    *(queue->first ? &queue->last->next : &queue->first) = sheet;
    queue->last = sheet;
    sherd__ranks_add(&remote->busy, sheet->to);
}

static bool has_failed(const sherd__remote *remote)
{
    char why[SHERD_ERROR_BYTES];

    return remote->carrier.has_failed &&
           remote->carrier.has_failed(remote->carrier.self, why, sizeof why);
}

void sherd__carrier_check(sherd__remote *remote)
{
    if (has_failed(remote))
        carrier_fails(remote, -1);
}

/* There is a reserve, and what is short is soon on its way. NULL: nothing is any more. */
static sherd__sheet *take_for_telling(sherd__remote *remote)
{
    sherd__sheet *sheet = sherd__sheet_take(remote, sizeof(sherd__work) + sizeof(sherd__head));

    while (!sheet && !has_failed(remote)) {
        retire_sent(remote);
        sheet = remote->idle[class_of(sizeof(sherd__work) + sizeof(sherd__head))];
        if (sheet)
            sheet = sherd__sheet_take(remote, sheet->room);
    }
    return sheet;
}

void sherd__tell(sherd__remote *remote, int to, const void *head, size_t bytes)
{
    sherd__sheet *sheet = take_for_telling(remote);

    if (!sheet)
        return;
    sherd__assert(remote->carrier.rank, bytes <= sheet->room);
    memcpy(sheet->memory, head, bytes);
    sheet->to = to;
    sheet->message = (sherd_message){sheet->memory, bytes, NULL, 0};
    sherd__sheet_send(remote, sheet);
}

void sherd__tell_all(sherd__remote *remote, const void *head, size_t bytes)
{
    for (int q = 0; q < remote->carrier.ranks; q++)
        if (q != remote->carrier.rank)
            sherd__tell(remote, q, head, bytes);
}

/* ---- receiving ------------------------------------------------------------------------------- */

void sherd__remote_fail(sherd_world *world, sherd_status status, const char *format, ...)
{
    sherd__remote *remote = world->remote;
    char text[SHERD_ERROR_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!world->arrived) {
        sherd__fail_doing(world, true, status, "%s", text);
        return;
    }
    remote->kept_status = status;
    snprintf(remote->kept_text, sizeof remote->kept_text, "%s", text);
}

static void *give_room(void *owner, int from, size_t bytes)
{
    sherd__remote *remote = owner;
    sherd__sheet *sheet = sherd__sheet_take(remote, bytes);

    (void)from;
    remote->bodies += sheet != NULL;
    return sheet ? sheet->memory : NULL;
}

/*
 * Behind a message that is refused there may be the end of the world, which the others go by then.
 * All else that has come is dropped, but goodbyes, as this rank goes no further.
 */
static void look_for_end(sherd_world *world)
{
    sherd__remote *remote = world->remote;
    const sherd_room room = {give_room, remote};
    sherd__head head;
    sherd_message m;
    int from;

    while (!sherd__look(world->death) &&
           remote->carrier.receive(remote->carrier.self, &from, &m, &room)) {
        head.kind = 0;
        if (m.head_bytes >= sizeof head)
            memcpy(&head, m.head, sizeof head);
        if (head.kind == SHERD__SENT_END || head.kind == SHERD__SENT_BYE)
            (void)sherd__remote_own_hooks.take(world, from, &m);
        remote->bodies -= m.body != NULL;
        if (m.body)
            sherd__sheet_give(remote, sherd__sheet_of(m.body));
    }
}

/* What it said is lost, also if a meeting waits for it: there is no going on with such a rank. */
static void refuse(sherd_world *world, int from, const sherd_message *m)
{
    char text[SHERD_ERROR_BYTES];

    snprintf(text, sizeof text,
             "rank %d: rank %d sent a message of %zu and %zu bytes that sherd does not understand: "
             "do all ranks run the same build?",
             world->rank, from, m->head_bytes, m->body_bytes);
    if (m->body)
        sherd__sheet_give(world->remote, sherd__sheet_of(m->body));
    look_for_end(world);
    sherd__end_told(world, SHERD_EPEER, text);
}

/* One message: asking for another that is not there lets MPI yield the core, when this rank may
 * have what it waits for. */
bool sherd__remote_poll(sherd_world *world)
{
    sherd__remote *remote = world->remote;
    const sherd_room room = {give_room, remote};
    sherd_message m;
    int from;

    if (remote->kept_status && !world->arrived) {
        sherd__raise(world, remote->kept_status, "%s", remote->kept_text);
        remote->kept_status = SHERD_OK;
    }
    bool come = remote->carrier.receive(remote->carrier.self, &from, &m, &room);
    if (come) {
        remote->bodies -= m.body != NULL;
        if (!sherd__remote_own_hooks.take(world, from, &m))
            refuse(world, from, &m);
    }
    retire_sent(remote);
    if (come)
        remote->nap_ns = 0;
    return come;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* `sent`: also what is on its way; MPI may still read that otherwise. */
static void give_all(sherd__remote *remote, bool sent)
{
    sherd__heap heap = {.live = 3};

    sherd__sheets_give(remote, &remote->ready);
    sherd__sheets_give(remote, &remote->claims);
    for (int q = 0; q < remote->carrier.ranks; q++) {
        sherd__sheets_give(remote, &remote->inbox[q]);
        if (sent)
            sherd__sheets_give(remote, &remote->flight[q].first);
    }
    for (int c = 0; c < SHERD__SHEET_CLASSES; c++)
        while (remote->idle[c]) {
            sherd__sheet *sheet = remote->idle[c];
            remote->idle[c] = sheet->next;
            sherd__free(&remote->heap, sheet);
        }
    sherd__free(&heap, remote->inbox);
    sherd__free(&heap, remote->flight);
    sherd__free(&heap, remote);
}

/* What is longer goes in parts of this length. SHERD_PART is for tests: tensors that are small then
 * go in parts, too. */
static size_t part_bytes(void)
{
    const char *text = getenv("SHERD_PART");
    size_t bytes = text ? (size_t)strtoul(text, NULL, 10) : 0;

    return bytes ? bytes : (size_t)PART_BYTES;
}

sherd_status sherd__remote_open(sherd__remote **out, const sherd_carrier *carrier,
                                size_t region_bytes, sherd__diag *diag)
{
    sherd__heap heap = {0};
    sherd__remote *remote = sherd__alloc(&heap, 1, sizeof *remote);

    *out = NULL;
    if (!remote)
        return sherd__no_memory(diag, "sherd_world_open");
    remote->carrier = *carrier;
    remote->part_bytes = part_bytes();
    remote->inbox = sherd__alloc(&heap, (size_t)carrier->ranks, sizeof(sherd__sheet *));
    remote->flight = sherd__alloc(&heap, (size_t)carrier->ranks, sizeof(sherd__queue));
    bool room = remote->inbox && remote->flight;
    if (!room)
        sherd__no_memory(diag, "sherd_world_open");
    if (!room || sherd__arena_create(&remote->arena, carrier->ranks, region_bytes, NULL, diag)) {
        sherd__free(&heap, remote->inbox);
        sherd__free(&heap, remote->flight);
        sherd__free(&heap, remote);
        return diag->status;
    }
    remote->arena.remote = remote;
    sherd__ranks_add(&remote->near, carrier->rank);
    remote->here = 1;
    for (int i = 0; i < carrier->ranks + RESERVE; i++) {
        sherd__sheet *sheet = make(remote, class_of(sizeof(sherd__work) + sizeof(sherd__head)));
        if (!sheet) {
            sherd__arena_unmap(&remote->arena);
            give_all(remote, true);
            return sherd__no_memory(diag, "sherd_world_open");
        }
        sherd__sheet_give(remote, sheet);
    }
    *out = remote;
    return SHERD_OK;
}

void sherd__remote_begin(sherd_world *world)
{
    world->remote->counts = &world->heap;
    sherd__ranks_copy(&world->near, &world->remote->near);
    world->mirrors = &world->remote->arena;
    for (int q = 0; q < world->ranks; q++)
        if (!sherd__is_near(world, q))
            atomic_store(&sherd__lane_of(world, q, 0)->leader, 1);
}

void sherd__remote_leave(sherd_world *world)
{
    sherd__remote *remote = world->remote;

    remote->counts = NULL;
    for (int q = -1; (q = sherd__ranks_next(&remote->busy, q + 1)) >= 0;)
        for (sherd__sheet *sheet = remote->flight[q].first; sheet; sheet = sheet->next)
            sheet->held = NULL; /* the block goes with its world */
    world->remote = NULL;
}

/* All that comes is dropped; who waits for it has been told why. True: something has come. */
static bool drain(sherd__remote *remote)
{
    const sherd_room room = {give_room, remote};
    sherd__head head;
    sherd_message m;
    int from;
    bool any = false;

    retire_sent(remote);
    while (remote->carrier.receive(remote->carrier.self, &from, &m, &room)) {
        any = true;
        memset(&head, 0, sizeof head);
        memcpy(&head, m.head, m.head_bytes < sizeof head ? m.head_bytes : sizeof head);
        if (head.kind == SHERD__SENT_BYE)
            sherd__ranks_add(&remote->byes, from);
        if (m.body)
            sherd__sheet_give(remote, sherd__sheet_of(m.body));
    }
    return any;
}

/* Until all have said that they send nothing more, so that no message is left over. */
static bool say_goodbye(sherd__remote *remote, bool well)
{
    const sherd__head bye = {.kind = SHERD__SENT_BYE};
    sherd__ranks all;
    int64_t end = sherd__now() + goodbye_ns;

    sherd__ranks_fill(&all, remote->carrier.ranks);

    sherd__tell_all(remote, &bye, sizeof bye);
    sherd__ranks_add(&remote->byes, remote->carrier.rank);
    do {
        if (drain(remote))
            end = sherd__now() + goodbye_ns;
        if (sherd__ranks_equal(&remote->byes, &all) && sherd__ranks_none(&remote->busy))
            return true;
        nanosleep(&(struct timespec){0, GOODBYE_NAP_NS}, NULL);
    } while (well && sherd__now() < end);
    return false;
}

/* Whether something is being sent from where it lies. */
static bool is_read(const sherd__remote *remote)
{
    for (int q = -1; (q = sherd__ranks_next(&remote->busy, q + 1)) >= 0;)
        for (const sherd__sheet *sheet = remote->flight[q].first; sheet; sheet = sheet->next) {
            uintptr_t body = (uintptr_t)sheet->message.body, own = (uintptr_t)sheet->memory;
            if (body && (body < own || body - own > sheet->room))
                return true;
        }
    return false;
}

bool sherd__remote_close(sherd__remote *remote, bool well)
{
    well = remote->arena.control && say_goodbye(remote, well);
    remote->carrier.close(remote->carrier.self, well);
    bool quiet = !is_read(remote);
    give_all(remote, well);
    return quiet;
}
