/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meetings: where all ranks of a world get one status. A check, the agreement of a collective
 * function and the close of the world are the same round: each rank arrives with what it brings
 * (and raises nothing and calls nothing from then on), the last one decides, all take the verdict.
 * A death swaps its own verdict in while there is none. A verdict that starts a new epoch is left
 * only when all ranks have dropped their open calls, so that no copy of the old epoch reaches into
 * the memory of the new one.
 */
#include "inside.h"
#include "oneway.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    NEW_EPOCH = 1, /* open calls are dropped, tickets settled, the alarm is down */
    CLOSED = 2,    /* the text is that of the end word */
    REVIEW = 4,    /* no new epoch, but ranks may have done different things before they failed */
    STAY = 8,      /* who came to check has not been told: it comes again */
    FINISHED = 16, /* what ranks had opened for writing by pointers is written on all of them */
    ALIKE = 32     /* an agreement that passed: all had done the same */
};

static uint64_t verdict_word(uint64_t round, int flags, sherd_status status)
{
    return round << 16 | (uint64_t)(uint32_t)flags << 8 | (uint64_t)(uint32_t)-status;
}

static sherd__verdict *verdict_of(const sherd_world *world, uint64_t round)
{
    return &world->arena.control->verdict[round & 1];
}

static bool is_decided(const sherd_world *world, uint64_t round)
{
    return sherd__look(&verdict_of(world, round)->word) >> 16 == round;
}

/* Put a verdict in unless there is one for this round. */
static void decide(sherd_world *world, uint64_t round, uint64_t word)
{
    sherd__verdict *verdict = verdict_of(world, round);
    uint64_t before = sherd__look(&verdict->word);

    while (before >> 16 != round && !atomic_compare_exchange_weak(&verdict->word, &before, word))
        ;
    sherd__ring_all(&world->arena);
}

/* ---- what the last to arrive finds ----------------------------------------------------------- */

static const sherd__post *post_of(const sherd_world *world, int rank)
{
    return &world->arena.control->post[rank];
}

static const char *kind_text(const sherd__post *post)
{
    return post->kind == SHERD__CLOSE ? "closed its world" : post->name;
}

/*
 * Two names of meetings that differ. "function: arguments" differ in what was passed if both begin
 * with the same function.
 */
static void say_names(int q, const char *first, const char *theirs, char *text, size_t room)
{
    const char *end = strstr(first, ": ");
    size_t length = end ? (size_t)(end - first) + 2 : 0;

    if (end && strncmp(first, theirs, length) == 0)
        snprintf(text, room, "rank 0: %.*srank 0 passed %s, rank %d %s", (int)length, first,
                 first + length, q, theirs + length);
    else
        snprintf(text, room, "rank 0: ranks do different things: rank 0 is in %s, rank %d in %s",
                 first, q, theirs);
}

/* Ranks that came to different meetings, or to the same with different arguments. */
static sherd_status compare_arrivals(const sherd_world *world, bool *mixed, char *text, size_t room)
{
    const sherd__post *first = post_of(world, 0);

    *mixed = false;
    for (int q = 1; q < world->ranks; q++) {
        const sherd__post *post = post_of(world, q);
        if (post->kind == first->kind)
            continue;
        *mixed = true;
        snprintf(text, room, "rank 0: ranks do different things: rank 0 %s%s, rank %d %s%s",
                 first->kind == SHERD__CLOSE ? "" : "is in ", kind_text(first), q,
                 post->kind == SHERD__CLOSE ? "" : "is in ", kind_text(post));
        return SHERD_EDIFFER;
    }
    for (int q = 0; q < world->ranks; q++) {
        const sherd__post *post = post_of(world, q);
        if (!post->status)
            continue;
        snprintf(text, room, "%s", post->text);
        return post->status;
    }
    for (int q = 1; q < world->ranks; q++) {
        const sherd__post *post = post_of(world, q);
        if (post->arguments == first->arguments && strcmp(post->name, first->name) == 0)
            continue;
        if (strcmp(post->name, first->name) != 0)
            say_names(q, first->name, post->name, text, room);
        else
            snprintf(text, room, "rank 0: %s: rank 0 and rank %d passed different arguments",
                     first->name, q);
        return SHERD_EDIFFER;
    }
    return SHERD_OK;
}

/* Ranks of one group whose counts or histories differ, in any lane that has been used. */
static sherd_status compare_histories(const sherd_world *world, char *text, size_t room)
{
    for (int lane = -1;
         (lane = sherd__lane_set_next(&world->touched, lane + 1, world->lanes)) >= 0;) {
        const sherd__member *member = sherd__member_at(world, lane);
        if (member && member->senders && lane == member->first) {
            if (sherd__one_way_differs(world, member, text, room))
                return SHERD_EDIFFER;
            continue;
        }
        for (int q = 1; q < world->ranks; q++) {
            const sherd__lane *theirs = sherd__lane_of(world, q, lane);
            int leader = sherd__leader_of(world, q, lane);
            if (leader < 0 || leader == q)
                continue;
            const sherd__lane *leads = sherd__lane_of(world, leader, lane);
            uint64_t made = sherd__calls_in(sherd__look(&theirs->made), world->base);
            if (made == sherd__calls_in(sherd__look(&leads->made), world->base) &&
                (made == 0 || sherd__look(&theirs->history) == sherd__look(&leads->history)))
                continue;
            size_t at = (size_t)snprintf(text, room, "rank %d: ", leader);
            sherd__record_difference(world, lane, leader, q, text + at, room - at);
            return SHERD_EDIFFER;
        }
    }
    return SHERD_OK;
}

/*
 * Compare what was done, and calls. A difference in what was done without communicating comes
 * first: calls may differ because of it.
 */
static sherd_status compare_work(const sherd_world *world, sherd__finding *out)
{
    if (sherd__ledgers_differ(world, true, out))
        return SHERD_EDIFFER;
    sherd_status status = compare_histories(world, out->text, sizeof out->text);
    if (!status && sherd__ledgers_differ(world, false, out))
        status = SHERD_EDIFFER;
    return status;
}

/* The alarm's text; if calls differ because of what was done before them, the text says that. */
static sherd_status alarm_status(const sherd_world *world, sherd__finding *out)
{
    sherd__finding deeper = {.text = ""};
    sherd_status status = sherd__alarm_read(world, out->text, sizeof out->text);

    if (status == SHERD_EDIFFER && sherd__ledgers_differ(world, true, &deeper))
        *out = deeper;
    return status;
}

/* The first rank that closes; -1: none does. */
static int first_that_closes(const sherd_world *world)
{
    for (int q = 0; q < world->ranks; q++)
        if (post_of(world, q)->kind == SHERD__CLOSE)
            return q;
    return -1;
}

/* End the world if some, and not all, came to close it: the others cannot go on without them. */
static void end_if_left(sherd_world *world)
{
    char text[96];
    int q = first_that_closes(world);

    if (q < 0)
        return;
    snprintf(text, sizeof text, "rank %d closed its world while others went on", q);
    sherd__end_told(world, SHERD_EPEER, text);
}

/* The highest number of a call in any group: the next epoch begins after it. */
static uint64_t highest_number(const sherd_world *world)
{
    uint64_t most = world->base;

    for (int q = 0; q < world->ranks; q++)
        for (int lane = 0; lane < world->lanes; lane++) {
            uint64_t made = sherd__look(&sherd__lane_of(world, q, lane)->made);
            most = made > most ? made : most;
        }
    return most;
}

/*
 * Whether all came to one function and none of them by an alarm. So each has left the code before
 * it, where tensors were written by pointers.
 */
static bool all_finished(const sherd_world *world)
{
    const sherd__post *first = post_of(world, 0);

    for (int q = 0; q < world->ranks; q++)
        if (post_of(world, q)->kind != SHERD__AGREE ||
            strcmp(post_of(world, q)->name, first->name) != 0)
            return false;
    return !sherd__look(world->alarm);
}

/* What any rank has used since the last good check. */
static void find_touched(sherd_world *world)
{
    world->touched = (sherd__lane_set){{0}};
    for (int q = 0; q < world->ranks; q++)
        for (int w = 0; w < SHERD__LANES / 64; w++)
            world->touched.word[w] |= post_of(world, q)->used.word[w];
}

/*
 * Decide a round: read what all have brought, lower the alarm, and only then give the verdict:
 *
 *     all came to       what is compared                             the alarm   if it fails
 *     check             arrivals, deeds, calls; the alarm if it is   falls       new epoch
 *     close             the same                                     falls       new epoch
 *     agree             arrivals; the alarm                          stays       review
 *     agree and check   arrivals, which differ                       goes up     review, stay
 *     some to close     arrivals, which differ                       falls       new epoch, the end
 *
 * After a failure, what not all ranks have done is undone. A new epoch also drops open calls; the
 * alarm is lowered then, or if a check passes.
 */
static void decide_round(sherd_world *world, uint64_t round)
{
    sherd__verdict *verdict = verdict_of(world, round);
    sherd__finding found = {.text = ""};
    bool mixed, stay, agree = world->post->kind == SHERD__AGREE;

    find_touched(world);
    sherd_status status = compare_arrivals(world, &mixed, found.text, sizeof found.text);
    stay = mixed && first_that_closes(world) < 0;
    bool lower = !stay && (mixed || !agree);
    if (sherd__look(world->alarm)) /* what went wrong first says most */
        status = alarm_status(world, &found);
    else if (!status && !agree)
        status = compare_work(world, &found);
    if (!status && !agree && world->remote)
        status = sherd__remote_lacks(world, found.text, sizeof found.text);
    if (status == SHERD_EDIFFER)
        sherd__refusals_add(world, found.text, sizeof found.text);
    if (sherd__look(world->death))
        return; /* whoever waits swaps that verdict in */
    memcpy(verdict->text, found.text, sizeof found.text);
    verdict->difference = found.difference;
    if (stay)
        sherd__alarm_at_meeting(world, status, found.text);
    verdict->base =
        status || world->post->kind == SHERD__CLOSE ? highest_number(world) : world->base;
    if (lower)
        atomic_store(world->alarm, 0);
    bool finished = status && !lower && !stay && all_finished(world);
    int flags = lower ? NEW_EPOCH : stay ? REVIEW | STAY : finished ? REVIEW | FINISHED : REVIEW;
    if (!status)
        flags = agree && sherd__ledgers_alike(world) ? ALIKE : 0;
    decide(world, round, verdict_word(round, flags, status));
    if (world->remote)
        sherd__remote_verdict(world, round, status != SHERD_OK, lower, finished);
    if (mixed)
        end_if_left(world);
}

/* ---- arriving and leaving -------------------------------------------------------------------- */

static bool has_verdict(sherd_world *world, void *what)
{
    return is_decided(world, *(const uint64_t *)what);
}

static bool all_have_taken(sherd_world *world, void *what)
{
    for (int q = 0; q < world->ranks; q++)
        if (sherd__look(&post_of(world, q)->taken) < *(const uint64_t *)what)
            return false;
    return true;
}

/*
 * Wake the ranks that are not at the meeting: they may wait for a call that this rank will not make
 * any more. Those at the meeting wait for the verdict.
 */
static void ring_callers(sherd_world *world)
{
    sherd__ranks callers;

    sherd__not_arrived(world->arena.control, world->round + 1, &callers);
    sherd__ring(&world->arena, &callers);
}

/*
 * Write what this rank brings to its post, and count it; true if it is the last to come. If a rank
 * has died nothing is written: this rank may have left the last meeting early, and others may still
 * be reading its post.
 */
static bool arrive(sherd_world *world, sherd__meeting kind, sherd_status mine, uint64_t arguments,
                   const char *name)
{
    sherd__post *post = world->post;

    if (sherd__look(world->death))
        return false;
    sherd__ledgers_tell(world);
    post->kind = kind;
    post->status = mine;
    post->arguments = arguments;
    sherd__fit_text(post->name, sizeof post->name, name);
    sherd__refusal_keep(world);
    snprintf(post->text, sizeof post->text, "%s", mine ? world->diag.text : world->refused);
    world->arrived = true;
    atomic_store(&post->arrived, world->round + 1);
    uint64_t before = atomic_fetch_add(&world->arena.control->arrivals, 1);
    ring_callers(world);
    return (before + 1) % (uint64_t)world->ranks == 0;
}

/*
 * After a failure: undo what not all ranks have done, as told at the meeting, and wait until all
 * have read that. When this returns after a new epoch, nothing of the old one runs on, here or at a
 * peer.
 */
static void leave_together(sherd_world *world, uint64_t round, int flags)
{
    const sherd__verdict *verdict = verdict_of(world, round);
    uint64_t base = verdict->base;
    bool new_epoch = flags & NEW_EPOCH;

    sherd__difference_tell(world, &verdict->difference);
    if (new_epoch)
        sherd__drop_calls(world);
    sherd__ledgers_failed(world, new_epoch, flags & FINISHED);
    if (new_epoch) {
        if (base != world->base)
            sherd__put(&world->post->numbers_before, world->base);
        world->base = base;
        sherd__put(&world->post->numbers, base);
        world->quiet = false;
        world->local.status = SHERD_OK;
    }
    atomic_store(&world->post->taken, round);
    if (world->remote)
        sherd__remote_taken(world, round, new_epoch);
    sherd__ring_all(&world->arena);
    if (sherd__wait_for(world, &(sherd__wait){all_have_taken, NULL, &round}))
        sherd__difference_add(world, &verdict->difference);
}

static sherd_status take_verdict(sherd_world *world, uint64_t round, bool *stay)
{
    const sherd__verdict *verdict = verdict_of(world, round);
    uint64_t word = sherd__look(&verdict->word);
    int flags = (int)(word >> 8 & 0xFF);
    sherd_status status = sherd__status_in(word);

    world->round = round;
    *stay = flags & STAY && world->post->kind == SHERD__CHECK;
    if (flags & CLOSED) {
        world->closed.rank = -1;
        world->closed.status = status;
        sherd__end_text(world->arena.control, sherd__look(world->death), world->closed.text,
                        sizeof world->closed.text);
        world->diag.status = status;
        memcpy(world->diag.text, world->closed.text, sizeof world->diag.text);
    } else if (status) {
        world->diag.status = status;
        memcpy(world->diag.text, verdict->text, sizeof world->diag.text);
    }
    if (!status && world->post->kind != SHERD__AGREE)
        sherd__ledgers_passed(world);
    if (flags & ALIKE)
        sherd__ledgers_agreed(world);
    if (status || world->post->kind != SHERD__AGREE)
        sherd__refusal_forget(world, status == SHERD_OK);
    if (flags & (NEW_EPOCH | REVIEW))
        leave_together(world, round, flags);
    else if (world->post->kind == SHERD__CLOSE && !(flags & CLOSED))
        world->base = verdict->base;
    world->arrived = false;
    return status;
}

/* One round. *stay: this rank has to come again with the same. */
static sherd_status meet_once(sherd_world *world, sherd__meeting kind, sherd_status mine,
                              uint64_t arguments, const char *name, bool *stay)
{
    uint64_t round = world->round + 1;

    bool last = arrive(world, kind, mine, arguments, name);
    if (world->remote ? sherd__remote_arrive(world, round) : last)
        decide_round(world, round);
    if (!sherd__wait_for(world, &(sherd__wait){has_verdict, NULL, &round}))
        decide(world, round,
               verdict_word(round, CLOSED, sherd__status_in(sherd__look(world->death))));
    return take_verdict(world, round, stay);
}

sherd_status sherd__arena_meet(sherd_world *world, int kind, sherd_status mine, uint64_t arguments,
                               const char *name)
{
    bool stay = true;
    sherd_status status = SHERD_OK;

    while (stay)
        status = meet_once(world, (sherd__meeting)kind, mine, arguments, name, &stay);
    return status;
}
