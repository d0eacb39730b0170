/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A carrier of threads: three ranks (or POST_RANKS) that share nothing but letters. A test may
 * spoil a letter before it is put into a box, or keep it there for a while; those of one rank stay
 * in their order.
 */
#ifndef SHERD_POST_OFFICE_H
#define SHERD_POST_OFFICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sherd/carrier.h"

#ifndef POST_RANKS
#define POST_RANKS 3
#endif
enum { RANKS = POST_RANKS };

typedef struct letter {
    struct letter *next;
    int from;
    size_t head_bytes, body_bytes;
    unsigned char *body;
    unsigned char head[SHERD_HEAD_BYTES];
} letter;

typedef struct post_office {
    pthread_mutex_t mutex;
    pthread_barrier_t barrier;
    letter *first[RANKS];
    unsigned char gathered[RANKS][4096];
    int sent[RANKS];
    int breaks, at; /* where `at` is not 0: that letter of this rank is not sent, and none comes to
                       it any more */
    /* Hooks, or NULL: of a letter that is sent; whether one stays in its box; whether there is no
     * room for the body of one that has come; of what a rank has brought to its n-th gathering. The
     * first two have the mutex. */
    void (*sends)(struct post_office *o, int from, int to, letter *l);
    bool (*keeps)(const struct post_office *o, int to, const letter *l);
    bool (*refuses)(const struct post_office *o, int to, const letter *l);
    void (*brings)(struct post_office *o, int rank, int gathering);
} post_office;

typedef struct seat {
    post_office *office;
    int rank, gathers;
    letter *held; /* whose head is in use */
    bool broken;
} seat;

static inline bool put_letter(void *self, int to, const sherd_message *m, sherd_sending *sending)
{
    seat *s = self;
    post_office *o = s->office;
    letter *l, **at;

    (void)sending;
    if (o->at && s->rank == o->breaks && o->sent[s->rank] == o->at && !s->broken) {
        s->broken = true;
        return false;
    }
    l = calloc(1, sizeof *l);
    l->from = s->rank;
    l->head_bytes = m->head_bytes;
    l->body_bytes = m->body_bytes;
    l->body = calloc(1, m->body_bytes + 64);
    memcpy(l->head, m->head, m->head_bytes);
    if (m->body_bytes)
        memcpy(l->body, m->body, m->body_bytes);
    pthread_mutex_lock(&o->mutex);
    if (o->sends)
        o->sends(o, s->rank, to, l);
    o->sent[s->rank]++;
    for (at = &o->first[to]; *at; at = &(*at)->next)
        ;
    *at = l;
    pthread_mutex_unlock(&o->mutex);
    return true;
}

static inline bool is_sent(void *self, sherd_sending *sending)
{
    (void)self;
    (void)sending;
    return true;
}

static inline void drop_letter(letter *l)
{
    if (l)
        free(l->body);
    free(l);
}

static inline bool take_letter(void *self, int *from, sherd_message *out, const sherd_room *room)
{
    seat *s = self;
    post_office *o = s->office;

    if (s->broken)
        return false;
    pthread_mutex_lock(&o->mutex);
    letter **at = &o->first[s->rank];
    while (*at && o->keeps && o->keeps(o, s->rank, *at))
        at = &(*at)->next;
    letter *l = *at;
    if (l)
        *at = l->next;
    pthread_mutex_unlock(&o->mutex);
    if (!l)
        return false;
    drop_letter(s->held);
    s->held = l;
    *from = l->from;
    *out = (sherd_message){l->head, l->head_bytes, NULL, l->body_bytes};
    /* Nobody has room for so much. */
    size_t asked = o->refuses && o->refuses(o, s->rank, l) ? SIZE_MAX / 2 : l->body_bytes;
    if (l->body_bytes && (out->body = room->give(room->owner, l->from, asked)))
        memcpy(out->body, l->body, l->body_bytes);
    return true;
}

static inline bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    seat *s = self;
    post_office *o = s->office;

    memcpy(o->gathered[s->rank], mine, bytes);
    if (o->brings)
        o->brings(o, s->rank, s->gathers);
    s->gathers++;
    pthread_barrier_wait(&o->barrier);
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)all + (size_t)r * bytes, o->gathered[r], bytes);
    pthread_barrier_wait(&o->barrier);
    return true;
}

/* In more than one line, as MPICH does, and more than UTF-8. */
static inline bool is_broken(void *self, char *text, size_t room)
{
    const seat *s = self;

    if (s->broken)
        snprintf(text, room, "the letter is lost:\nwho knows\xC3");
    return s->broken;
}

static inline void leave(void *self, bool well)
{
    seat *s = self;

    (void)well;
    drop_letter(s->held);
    s->held = NULL;
}

static inline sherd_carrier carrier_of(seat *s)
{
    return (sherd_carrier){.version = SHERD_CARRIER_VERSION,
                           .name = "threads of a test",
                           .rank = s->rank,
                           .ranks = RANKS,
                           .self = s,
                           .gather = gather,
                           .send = put_letter,
                           .sent = is_sent,
                           .receive = take_letter,
                           .has_failed = is_broken,
                           .close = leave};
}

/* Run `play` on all ranks, each with its own of `stride` bytes at `ends`. */
static inline void play_at(post_office *o, void *(*play)(void *), void *ends, size_t stride)
{
    pthread_t thread[RANKS];

    pthread_mutex_init(&o->mutex, NULL);
    pthread_barrier_init(&o->barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++)
        pthread_create(&thread[r], NULL, play, (char *)ends + (size_t)r * stride);
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++)
        for (letter *l = o->first[r], *next; l; l = next) {
            next = l->next;
            drop_letter(l);
        }
    pthread_barrier_destroy(&o->barrier);
    pthread_mutex_destroy(&o->mutex);
}

#endif
