/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank waits for, told to those that can not read it on its post: once it has slept for a
 * while, with what it has made in each group. Then stuck.c and ring.c find in the mirrors what can
 * never end. That is exact, however old a post is: of ranks that wait in a ring, as their posts
 * say, the first to go on would have needed a call that the next has made after its own post, so
 * that one would have gone on before. What is left over of an epoch that has failed is not looked
 * at.
 */
#include "remote.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum {
    ROOM = 240,                  /* words of needs in a message */
    SLEPT_NS = 10 * 1000 * 1000, /* before others are told, */
    SLEPT_EACH_NS = 200 * 1000,  /* and so much for each of them: in a large world it costs more */
    LEAST_NAP_NS = 20 * 1000,
    MOST_NAP_NS = 500 * 1000
};

typedef struct sent_post {
    sherd__head head; /* number: the version; even: it waits no longer */
    uint32_t waits, needs, first, count;
    uint64_t word[ROOM]; /* of each need its key, its number, and its ranks */
} sent_post;

/* Words of one need. */
static uint32_t words_of(const sherd_world *world)
{
    return 2 + (uint32_t)sherd__rank_words(world->ranks);
}

static size_t bytes_of(const sherd_world *world, const sent_post *sent)
{
    return offsetof(sent_post, word) + sent->count * words_of(world) * sizeof *sent->word;
}

static void tell_lanes(sherd_world *world)
{
    for (int q = 0; q < world->ranks; q++) {
        if (sherd__is_near(world, q))
            continue;
        sherd__tell_lane(world, q, &world->whole);
        for (int i = 0; i < world->meshes; i++)
            for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
                sherd__tell_lane(world, q, &world->mesh[i].group[g]);
    }
}

static void tell_needs(sherd_world *world)
{
    const sherd__need *need = sherd__arena_needs(&world->arena, world->rank);
    uint32_t words = words_of(world);
    sent_post sent = {
        .head = {.kind = SHERD__SENT_POST, .number = sherd__look(&world->post->version)},
        .waits = sherd__peek_count(&world->post->waits),
        .needs = sherd__peek_count(&world->post->needs)};

    do {
        uint64_t *to = sent.word;
        sent.count = 0;
        for (; sent.count < ROOM / words && sent.first + sent.count < sent.needs; sent.count++) {
            const sherd__need *from = &need[sent.first + sent.count];
            *to++ = sherd__peek(&from->key);
            *to++ = sherd__peek(&from->number);
            for (uint32_t w = 0; w < words - 2; w++)
                *to++ = sherd__peek(&from->ranks.word[w]);
        }
        sherd__tell_all(world->remote, &sent, bytes_of(world, &sent));
        sent.first += sent.count;
    } while (sent.first < sent.needs);
}

/* It has slept for a while: say what it waits for. */
static void say_needs(sherd_world *world)
{
    uint64_t version = sherd__look(&world->post->version);

    if (!world->announced || version == world->remote->told_version ||
        sherd__now() - (int64_t)sherd__peek(&world->post->since) <
            SLEPT_NS + world->ranks * SLEPT_EACH_NS)
        return;
    tell_lanes(world);
    tell_needs(world);
    world->remote->told_version = version;
}

void sherd__remote_wakes(sherd_world *world)
{
    const sherd__head head = {.kind = SHERD__SENT_POST};

    if (!world->remote->told_version)
        return;
    world->remote->told_version = 0;
    sherd__tell_all(world->remote, &head, sizeof head);
}

void sherd__remote_nap(sherd_world *world)
{
    int64_t *nap = &world->remote->nap_ns;

    sherd__carrier_check(world->remote);
    *nap = *nap < LEAST_NAP_NS ? LEAST_NAP_NS : *nap < MOST_NAP_NS ? 2 * *nap : MOST_NAP_NS;
    if (!sherd__ranks_none(&world->remote->busy) || world->remote->bodies) {
        sched_yield(); /* MPI brings on what is on its way only while it is asked */
        return;
    }
    say_needs(world);
    nanosleep(&(struct timespec){0, *nap}, NULL);
}

/* What is of an epoch that is over can not be waited for. */
static bool is_old(const sherd_world *world, const sent_post *sent)
{
    for (uint32_t i = 0; i < sent->count; i++)
        if (sent->word[i * words_of(world) + 1] <= world->base)
            return true;
    return false;
}

static void mirror_need(sherd__need *need, const uint64_t *word, uint32_t words)
{
    atomic_store(&need->key, word[0]);
    atomic_store(&need->number, word[1]);
    for (uint32_t w = 2; w < words; w++)
        atomic_store(&need->ranks.word[w - 2], word[w]);
}

bool sherd__take_post(sherd_world *world, int from, const sherd_message *m)
{
    sherd__post *post = &world->arena.control->post[from];
    sherd__need *need = sherd__arena_needs(&world->arena, from);
    uint32_t words = words_of(world);
    sent_post sent = {.count = 0};

    if (m->head_bytes > sizeof sent)
        return false;
    memcpy(&sent, m->head, m->head_bytes);
    if (sent.count > ROOM / words)
        return false;
    if (sherd__look(&post->version) % 2)
        atomic_fetch_add(&post->version, 1);
    if (sent.head.number % 2 == 0 || is_old(world, &sent))
        return true;
    if (m->head_bytes != bytes_of(world, &sent) || sent.needs > SHERD__NEEDS ||
        sent.waits > sent.needs || sent.first > sent.needs || sent.count > sent.needs - sent.first)
        return false;
    for (uint32_t i = 0; i < sent.count; i++)
        mirror_need(&need[sent.first + i], &sent.word[i * words], words);
    atomic_store(&post->waits, sent.waits);
    atomic_store(&post->needs, sent.needs);
    if (sent.first + sent.count == sent.needs) /* all of it is there */
        atomic_fetch_add(&post->version, 1);
    return true;
}

void sherd__forget_posts(sherd_world *world)
{
    for (int q = 0; q < world->ranks; q++)
        if (!sherd__is_near(world, q) && sherd__look(&world->arena.control->post[q].version) % 2)
            atomic_fetch_add(&world->arena.control->post[q].version, 1);
}
