/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting: src/world/wait.c. A rank that spins is modelled as one that does the next thing as soon
 * as it is there to be done: a look that finds nothing changes nothing. A rank that sleeps goes
 * through the slow round, look by look. What a wait is for follows from the op and its phase, so
 * that others can see it too.
 */
#include "ranks.h"

enum { THINGS = 16 };

/* One thing that a round of waiting looks at. */
typedef enum model_kind { OWN_PART, RECORD, LEFT, READER, IN_SLOT, VERDICT, TAKEN } model_kind;

typedef struct model_thing {
    model_kind kind;
    int call, rank, group;
} model_thing;

typedef struct model_things {
    int count;
    model_thing thing[THINGS];
} model_things;

model_wait wait_of(const machine *x, const model_self *s, int rank)
{
    const model_op *op = op_of(x, s, rank);
    int phase = s->phase;

    switch (op->verb) {
    case CALL:
    case ALL:
        if (phase == 1 && keeps(x, RULE_SOURCE_FILLED))
            return (model_wait){FOR_FILLED, op->source, 0, 0};
        if (phase == 2 && keeps(x, RULE_RESULT_SETTLED))
            return (model_wait){FOR_SETTLED, op->result, 0, 0};
        if (phase == 3)
            return (model_wait){FOR_SLOT, 0, op->group, s->base + s->sequence[op->group] + 1};
        if (phase == 5)
            return (model_wait){FOR_END, 0, op->group, s->base + s->sequence[op->group]};
        break;
    case END:
    case READ:
        if (phase == 0)
            return (model_wait){FOR_FILLED, op->source, 0, 0};
        break;
    case WRITE:
        if (phase == 0)
            return (model_wait){FOR_SETTLED, op->source, 0, 0};
        break;
    case CHECK:
    case AGREE:
        if (phase == 2)
            return (model_wait){FOR_VERDICT, 0, 0, 0};
        if (phase == 4)
            return (model_wait){FOR_TAKEN, 0, 0, 0};
        break;
    default:
        break;
    }
    return (model_wait){FOR_NOTHING, 0, 0, 0};
}

/* ---- what there is to look at -------------------------------------------------------------- */

static void add(model_things *t, model_thing thing)
{
    t->thing[t->count++] = thing;
}

static void add_ranks(machine *x, model_things *t, model_thing thing, int ranks)
{
    for (thing.rank = 0; thing.rank < x->program->ranks; thing.rank++)
        if (ranks >> thing.rank & 1)
            add(t, thing);
}

/* progress.c: sherd__progress. A rank's own part comes first. */
static void add_open_calls(machine *x, const model_wait *w, model_things *t)
{
    model_self *s = me(x);

    if (s->quiet || (s->arrived && !keeps(x, RULE_IN_MEETING)))
        return;
    for (int i = 0; i < OPEN && s->open[i].number; i++) {
        const model_call *c = &s->open[i];
        bool mine = w->kind == FOR_END ? c->number == w->number : w->kind != FOR_SLOT;
        if (!mine && !keeps(x, RULE_PROGRESS))
            continue;
        if (c->own)
            add(t, (model_thing){OWN_PART, i, 0, 0});
        else if (c->awaited)
            add_ranks(x, t, (model_thing){RECORD, i, 0, 0}, c->awaited);
        else if (!c->finished)
            add(t, (model_thing){RECORD, i, x->rank, 0});
        else
            add_ranks(x, t, (model_thing){LEFT, i, 0, 0}, c->sharers);
    }
}

static model_entry slot_entry(const model_self *s, const model_wait *w)
{
    return s->entry[w->group][w->number % DEPTH];
}

static void add_own_things(machine *x, const model_wait *w, model_things *t)
{
    const model_self *s = me(x);

    if (w->kind == FOR_SETTLED)
        for (int g = 0; g < GROUPS; g++)
            if (s->ticket[w->block][g].number > s->base)
                add_ranks(x, t, (model_thing){READER, 0, 0, g}, s->ticket[w->block][g].readers);
    if (w->kind == FOR_SLOT && slot_entry(s, w).number > s->base)
        add_ranks(x, t, (model_thing){IN_SLOT, 0, 0, w->group}, slot_entry(s, w).readers);
    if (w->kind == FOR_VERDICT)
        add(t, (model_thing){VERDICT, 0, 0, 0});
    if (w->kind == FOR_TAKEN)
        add(t, (model_thing){TAKEN, 0, 0, 0});
}

/* ---- doing it ------------------------------------------------------------------------------ */

static bool drop_reader(machine *x, model_entry *entry, const model_thing *thing)
{
    if (!has_left(x, thing->rank, thing->group, entry->number))
        return false;
    entry->readers &= (uint8_t)~bit(thing->rank);
    x->what = "sees that a reader has left";
    return true;
}

static bool is_decided(machine *x)
{
    int round = me(x)->round + 1;

    return look(x, &x->now->shared.verdict[round & 1]) >> 8 == round;
}

static bool have_taken(machine *x)
{
    for (int q = 0; q < x->program->ranks; q++) {
        const word *taken = &post_of(x, q)->taken;
        if ((q == 0 || x->program->sleeps ? look(x, taken) : peek(x, taken)) < me(x)->round)
            return false;
    }
    return true;
}

/* Whether the thing was there, and is done. */
static bool take(machine *x, const model_wait *w, const model_thing *thing)
{
    model_self *s = me(x);
    model_call *c = &s->open[thing->call];
    bool come = true;

    switch (thing->kind) {
    case OWN_PART:
        copy_own(x, c);
        break;
    case RECORD:
        if (thing->rank != x->rank)
            come = take_record(x, c, thing->rank);
        break;
    case LEFT:
        come = take_left(x, c, thing->rank);
        break;
    case READER:
        return drop_reader(x, &s->ticket[w->block][thing->group], thing);
    case IN_SLOT:
        return drop_reader(x, &s->entry[w->group][w->number % DEPTH], thing);
    case VERDICT:
        return is_decided(x);
    case TAKEN:
        return have_taken(x);
    }
    if (come && !s->quiet)
        finish_if_all(x, c);
    return come;
}

static bool is_block_settled(machine *x, int block)
{
    const model_self *s = me(x);

    if (block == NONE)
        return true;
    for (int g = 0; g < GROUPS; g++)
        if (s->ticket[block][g].number > s->base && s->ticket[block][g].readers)
            return false;
    return !keeps(x, RULE_OWN_CALLS) ||
           (!is_filling(x, s, x->rank, block) && !is_reading(x, s, x->rank, block));
}

/* What has come already, or needs no look. */
static bool is_there(machine *x, const model_wait *w)
{
    const model_self *s = me(x);

    switch (w->kind) {
    case FOR_FILLED:
        return w->block == NONE || !is_filling(x, s, x->rank, w->block);
    case FOR_SETTLED:
        return is_block_settled(x, w->block);
    case FOR_SLOT:
        return !keeps(x, RULE_SLOT) || slot_entry(s, w).number <= s->base ||
               slot_entry(s, w).readers == 0;
    case FOR_END:
        return !open_call(me(x), x, x->rank, w->group, w->number);
    case FOR_NOTHING:
        return true;
    default:
        return false;
    }
}

/* The ends of open calls that need no look. */
static void end_calls(machine *x)
{
    model_self *s = me(x);

    if (s->quiet)
        return;
    for (int i = 0; i < OPEN;)
        if (!s->open[i].number || !end_if_left(x, &s->open[i]))
            i++;
}

/* The alarm, or the end of the world, has ended a wait. */
static void give_up(machine *x, bool dead)
{
    const model_op *op = my_op(x);

    me(x)->quiet = true;
    x->what = dead ? "sees that a rank has died" : "is stopped by the alarm";
    if (me(x)->arrived && (dead || keeps(x, RULE_CALM))) {
        if (dead)
            next_phase(x);
        return;
    }
    if (op->verb == WRITE && !keeps(x, RULE_UNSETTLED)) {
        next_phase(x);
        return;
    }
    if ((op->verb == CALL || op->verb == ALL) && op->result != NONE && me(x)->phase < 5)
        me(x)->spoiled |= bit(op->result);
    next_op(x);
}

/* ---- spinning ------------------------------------------------------------------------------ */

static void spin(machine *x, const model_wait *w, const model_things *t)
{
    int way = choose(x, t->count + 3);

    if (way < t->count) {
        if (!take(x, w, &t->thing[way]))
            nothing(x);
        if (t->thing[way].kind == VERDICT || t->thing[way].kind == TAKEN)
            next_phase(x);
        return;
    }
    if (way == t->count && !look(x, &x->now->shared.alarm))
        nothing(x);
    if (way == t->count + 1 && !look(x, &x->now->shared.death))
        nothing(x);
    if (way < t->count + 2) {
        give_up(x, way == t->count + 1);
        return;
    }
    if ((me(x)->arrived && keeps(x, RULE_NO_LATE_ALARM)) || !judge_at_once(x, is_impossible))
        nothing(x);
    raise_alarm(x, DIFFER);
    x->what = "sees that it waits for ever";
}

/* ---- sleeping ------------------------------------------------------------------------------ */

/* is_over: whether the wait is over, for good or ill; *moved: something was done. */
static bool is_over(machine *x, const model_wait *w, bool *good, bool *dead, bool *moved)
{
    model_things t = {.count = 0};

    *dead = look(x, &x->now->shared.death) != 0;
    bool alarmed = *dead || look(x, &x->now->shared.alarm);
    me(x)->quiet |= alarmed;
    add_open_calls(x, w, &t);
    for (int i = 0; i < t.count; i++)
        *moved |= take(x, w, &t.thing[i]);
    t.count = 0;
    add_own_things(x, w, &t);
    bool all = t.count > 0;
    for (int i = 0; i < t.count; i++)
        all &= take(x, w, &t.thing[i]);
    end_calls(x);
    *good = is_there(x, w) || (all && (w->kind == FOR_VERDICT || w->kind == FOR_TAKEN));
    return *good || *dead || (alarmed && (!me(x)->arrived || !keeps(x, RULE_CALM)));
}

static void slow_round(machine *x, const model_wait *w)
{
    shared *all = &x->now->shared;
    /*
     * The code counts, and sleeps while the count is what was read; here the bell says whether it
     * was rung since.
     */
    word *own_bell = &post_of(x, x->rank)->bell;
    bool good = false, dead = false, moved = false;

    if (!keeps(x, RULE_JOIN_THEN_SAY))
        announce(x, w);
    if (keeps(x, RULE_JOIN_FIRST))
        fetch_or(x, &all->sleepers, bit(x->rank));
    if (keeps(x, RULE_BELL_FIRST))
        listen(x, own_bell);
    if (keeps(x, RULE_JOIN_THEN_SAY))
        announce(x, w);
    if (!me(x)->arrived && is_impossible(x))
        raise_alarm(x, DIFFER);
    bool over = is_over(x, w, &good, &dead, &moved);
    if (!keeps(x, RULE_JOIN_FIRST))
        fetch_or(x, &all->sleepers, bit(x->rank));
    if (!keeps(x, RULE_BELL_FIRST))
        listen(x, own_bell);
    if (!over && !moved && !look(x, own_bell)) {
        x->what = "sleeps";
        nothing(x);
    }
    fetch_and(x, &all->sleepers, (word)~bit(x->rank));
    if (over)
        be_silent(x);
    if (good)
        next_phase(x);
    else if (over)
        give_up(x, dead);
}

void wait_step(machine *x, const model_wait *w)
{
    model_things t = {.count = 0};

    end_calls(x);
    if (is_there(x, w)) {
        next_phase(x);
        return;
    }
    if (x->program->sleeps) {
        slow_round(x, w);
        return;
    }
    add_open_calls(x, w, &t);
    add_own_things(x, w, &t);
    spin(x, w, &t);
}
