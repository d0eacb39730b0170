/* SPDX-License-Identifier: Apache-2.0 */
/* The alarm, and meetings: src/world/alarm.c, meet.c. */
#include "ranks.h"

#include <string.h>

enum { NEW_EPOCH = 1, CLOSED = 2, REVIEW = 4, STAY = 8, EVERYBODY = (1 << RANKS) - 1 };

/* alarm.c: sherd__arena_raise. */
void raise_alarm(machine *x, int status)
{
    if (status == DIFFER && !x->program->wrong && x->now->failed == 0 &&
        x->now->deaths == x->program->deaths)
        wrong(x, "a program that is right is told that its ranks do different things");
    x->now->failed |= bit(me(x)->statuses);
    me(x)->quiet = true;
    if (look(x, &x->now->shared.alarm))
        return;
    if (compare_swap(x, &x->now->shared.alarm, 0, (word)status))
        wake(x, EVERYBODY, RULE_RING_ALARM);
}

/* ---- arriving ------------------------------------------------------------------------------ */

/* meet.c: arrive. Where a rank has died nobody comes any more. */
static void arrive(machine *x, const model_op *op)
{
    model_self *s = me(x);
    model_post *own = post_of(x, x->rank);
    int callers = 0;

    if (look(x, &x->now->shared.death)) {
        s->phase = 2;
        return;
    }
    put(x, &own->brings, (word)((int)op->verb << 8 | op->what));
    s->arrived = true;
    put_now(x, &own->arrived, (word)(s->round + 1));
    word before = fetch_add(x, &x->now->shared.arrivals, 1);
    if (x->program->sleeps)
        for (int q = 0; q < x->program->ranks; q++)
            callers |= look(x, &post_of(x, q)->arrived) > s->round ? 0 : bit(q);
    wake(x, callers, RULE_RING_ARRIVAL);
    s->phase = (before + 1) % x->program->ranks == 0 ? 1 : 2;
    x->what = "arrives";
}

/* ---- deciding ------------------------------------------------------------------------------ */

static word verdict_word(int round, int flags, int status)
{
    return (word)(round << 8 | flags << 4 | status);
}

static void decide(machine *x, int round, word word_)
{
    word *verdict = &x->now->shared.verdict[round & 1];
    word before = look(x, verdict);

    if (!keeps(x, RULE_ONE_SWAP))
        put_now(x, verdict, word_);
    else if (before >> 8 != round)
        compare_swap(x, verdict, before, word_);
    wake(x, EVERYBODY, RULE_RING_VERDICT);
}

/* Whether some came to agree, and others to check: these stay there until all are. */
static bool mixed(machine *x)
{
    bool mixed = false;

    for (int q = 1; q < x->program->ranks; q++)
        mixed |= peek(x, &post_of(x, q)->brings) >> 8 != peek(x, &post_of(x, 0)->brings) >> 8;
    return mixed;
}

/* meet.c: compare_arrivals, compare_histories. All have arrived: what they have brought stays. */
static bool differ(machine *x)
{
    word first = peek(x, &post_of(x, 0)->brings);
    bool differ = false;

    for (int q = 1; q < x->program->ranks; q++)
        differ |= peek(x, &post_of(x, q)->brings) != first;
    for (int g = 0; g < GROUPS && first >> 8 == CHECK && keeps(x, RULE_COMPARED); g++) {
        int leader = -1;
        for (int q = 0; q < x->program->ranks; q++) {
            if (!(x->program->member[g] >> q & 1))
                continue;
            leader = leader < 0 ? q : leader;
            word theirs = peek(x, &lane_of(x, q, g)->made);
            word leads = peek(x, &lane_of(x, leader, g)->made);
            bool counts = number_of(theirs) > me(x)->base || number_of(leads) > me(x)->base;
            differ |= counts && (number_of(theirs) != number_of(leads) ||
                                 (keeps(x, RULE_HISTORY) && theirs != leads));
        }
    }
    return differ;
}

static int highest_number(machine *x)
{
    int most = me(x)->base;

    for (int q = 0; q < x->program->ranks; q++)
        for (int g = 0; g < GROUPS; g++) {
            int made = number_of(peek(x, &lane_of(x, q, g)->made));
            most = made > most ? made : most;
        }
    return most;
}

/*
 * meet.c: decide_round. Read what all have brought, lower the alarm, and only then give the
 * verdict.
 */
static void decide_round(machine *x, const model_op *op)
{
    shared *all = &x->now->shared;
    int round = me(x)->round + 1, status = differ(x) ? DIFFER : OK;
    bool found = status != OK, stay = mixed(x) && keeps(x, RULE_STAYS);
    bool lower = !stay && (mixed(x) || op->verb == CHECK);
    word alarm = look(x, &all->alarm);

    status = alarm ? alarm : status;
    me(x)->phase = 2;
    x->what = "decides";
    if (look(x, &all->death))
        return;
    if (found)
        x->now->failed |= bit(me(x)->statuses);
    if (stay)
        me(x)->quiet = true;
    if (stay && !alarm)
        put_now(x, &all->alarm, (word)status);
    if (lower && keeps(x, RULE_NUMBERS))
        put(x, &all->base[round & 1], (word)highest_number(x));
    if (lower && keeps(x, RULE_LOWERED_FIRST))
        put_now(x, &all->alarm, 0);
    int flags = lower ? NEW_EPOCH : stay ? REVIEW | STAY : REVIEW;
    decide(x, round, verdict_word(round, status ? flags : 0, status));
    if (lower && !keeps(x, RULE_LOWERED_FIRST))
        put_now(x, &all->alarm, 0);
}

/* ---- leaving ------------------------------------------------------------------------------- */

static void begin_epoch(machine *x, int base)
{
    model_self *s = me(x);

    if (keeps(x, RULE_DROPPED))
        drop_calls(x);
    s->base = (uint8_t)base;
    s->quiet = false;
    if (keeps(x, RULE_NUMBERS))
        return;
    memset(s->ticket, 0, sizeof s->ticket);
    memset(s->entry, 0, sizeof s->entry);
    memset(s->sequence, 0, sizeof s->sequence);
    memset(s->history, 0, sizeof s->history);
}

/* meet.c: take_verdict, leave_together. */
static void take_verdict(machine *x, word verdict)
{
    model_self *s = me(x);
    shared *all = &x->now->shared;
    int flags = verdict >> 4 & 0xF, round = s->round + 1;

    if (!(flags & STAY)) /* one of those that agree fails, and others hear of it at the check */
        s->status[s->statuses++] = verdict & 0xF;
    s->stays = flags & STAY && my_op(x)->verb == CHECK;
    s->round++;
    x->what = "takes the verdict";
    if (flags & CLOSED) {
        s->done = true;
        return;
    }
    if (!flags) {
        s->arrived = false;
        next_op(x);
        return;
    }
    if (flags & NEW_EPOCH)
        begin_epoch(x, peek(x, &all->base[round & 1]));
    put_now(x, &post_of(x, x->rank)->taken, (word)round);
    wake(x, EVERYBODY, RULE_RING_TAKEN);
    s->phase = keeps(x, RULE_TOGETHER) ? 4 : 5;
}

/*
 * The wait for the verdict is over: there is one, or a rank has died; without CALM, or the alarm is
 * up.
 */
static void end_meeting(machine *x)
{
    int round = me(x)->round + 1;
    word *at = &x->now->shared.verdict[round & 1], verdict = look(x, at);

    if (verdict >> 8 != round && look(x, &x->now->shared.death)) {
        decide(x, round, verdict_word(round, CLOSED, DIED));
        verdict = keeps(x, RULE_ONE_SWAP) ? look(x, at) : verdict_word(round, CLOSED, DIED);
    } else if (verdict >> 8 != round) {
        verdict = verdict_word(round, NEW_EPOCH, look(x, &x->now->shared.alarm));
    }
    take_verdict(x, verdict);
}

/*
 * Phases: 0 arrive; 1 decide; 2 wait for the verdict; 3 take it; 4 wait until all have; 5 go on, or
 * come again.
 */
void meet_step(machine *x)
{
    const model_op *op = my_op(x);
    model_wait w = wait_of(x, me(x), x->rank);

    switch (me(x)->phase) {
    case 0:
        arrive(x, op);
        return;
    case 1:
        decide_round(x, op);
        return;
    case 3:
        end_meeting(x);
        return;
    case 5:
        me(x)->arrived = false;
        if (me(x)->stays)
            me(x)->phase = 0;
        else
            next_op(x);
        return;
    default:
        wait_step(x, &w);
    }
}
