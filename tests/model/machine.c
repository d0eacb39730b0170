/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that are run again from a log, and buffers of stores: see machine.h. Costs some hundred
 * nanoseconds an action.
 */
#include "machine.h"

#include "ranks.h"

#include <string.h>

enum { PAUSED = 1, DISABLED, EXHAUSTED, FAULTY };

static word *words_of(state *s)
{
    return (word *)(void *)&s->shared;
}

static model_buffer *own_buffer(machine *x)
{
    return &x->now->buffer[x->rank];
}

/* The rank waits for its own stores: what it has done until here counts. */
static _Noreturn void stop(machine *x)
{
    longjmp(x->out, x->acted || x->stored ? PAUSED : DISABLED);
}

_Noreturn void nothing(machine *x)
{
    if (x->stored)
        wrong(x, "a step of the model stores before it waits");
    longjmp(x->out, DISABLED);
}

_Noreturn void wrong(machine *x, const char *what)
{
    x->fault = what;
    longjmp(x->out, FAULTY);
}

/* ---- the log ------------------------------------------------------------------------------- */

/* Whether the rank was here before; then what it saw. */
static bool is_replay(machine *x, word *value)
{
    const model_log *log = &x->now->log[x->rank];

    if (x->replayed >= log->count)
        return false;
    *value = log->value[x->replayed++];
    return true;
}

static word note(machine *x, word value)
{
    model_log *log = &x->now->log[x->rank];

    if (log->count == LOG)
        wrong(x, "the model's log is full");
    log->value[log->count++] = value;
    x->replayed = log->count;
    return value;
}

static void clear_log(model_log *log)
{
    memset(log->value, 0, log->count * sizeof *log->value);
    log->count = 0;
}

/* A new action that others can see: one for each time that the rank goes on. */
static void act(machine *x)
{
    if (x->acted)
        longjmp(x->out, PAUSED);
    x->acted = true;
}

/* The same, once all that the rank has stored is there for all. */
static void act_behind(machine *x)
{
    if (own_buffer(x)->count)
        stop(x);
    act(x);
}

/* ---- words --------------------------------------------------------------------------------- */

/* A word as a rank sees it: its own stores count already. */
static word seen(machine *x, const word *at)
{
    const model_buffer *own = own_buffer(x);
    word value = *at;

    for (int i = 0; i < own->count; i++)
        if (words_of(x->now) + own->store[i].at == at)
            value = (word)((value & ~own->store[i].mask) | own->store[i].value);
    return value;
}

word peek(machine *x, const word *at)
{
    word value;

    return is_replay(x, &value) ? value : note(x, seen(x, at));
}

word look(machine *x, const word *at)
{
    word value;

    if (is_replay(x, &value))
        return value;
    act(x);
    return note(x, seen(x, at));
}

word sight(machine *x, const word *at)
{
    return x->at_once ? seen(x, at) : look(x, at);
}

word listen(machine *x, word *at)
{
    word value;

    if (is_replay(x, &value))
        return value;
    act(x);
    value = *at;
    *at = 0;
    return note(x, value);
}

bool judge_at_once(machine *x, bool (*judge)(machine *x))
{
    word found;

    if (is_replay(x, &found))
        return found;
    x->at_once = true;
    found = judge(x);
    x->at_once = false;
    return note(x, found);
}

static void put_in(machine *x, word *at, word mask, word value, bool last)
{
    model_buffer *own = own_buffer(x);
    word before;

    if (is_replay(x, &before))
        return;
    if (x->order == IN_ORDER) {
        act(x);
        *at = (word)((*at & ~mask) | value);
    } else {
        if (own->count == BUFFER)
            stop(x);
        own->store[own->count++] =
            (model_store){(uint8_t)(at - words_of(x->now)), last, mask, value};
        x->stored = true;
    }
    note(x, 0);
}

void put(machine *x, word *at, word value)
{
    put_in(x, at, 0xFFFF, value, false);
}

void put_last(machine *x, word *at, word value)
{
    put_in(x, at, 0xFFFF, value, true);
}

void put_part(machine *x, word *at, word mask, word value)
{
    put_in(x, at, mask, value & mask, false);
}

void put_now(machine *x, word *at, word value)
{
    word before;

    if (is_replay(x, &before))
        return;
    act_behind(x);
    *at = value;
    note(x, 0);
}

word fetch_add(machine *x, word *at, word value)
{
    word before;

    if (is_replay(x, &before))
        return before;
    act_behind(x);
    before = *at;
    *at = (word)(before + value);
    return note(x, before);
}

word fetch_or(machine *x, word *at, word value)
{
    word before;

    if (is_replay(x, &before))
        return before;
    act_behind(x);
    before = *at;
    *at |= value;
    return note(x, before);
}

word fetch_and(machine *x, word *at, word value)
{
    word before;

    if (is_replay(x, &before))
        return before;
    act_behind(x);
    before = *at;
    *at &= value;
    return note(x, before);
}

bool compare_swap(machine *x, word *at, word expected, word value)
{
    word same;

    if (is_replay(x, &same))
        return same;
    act_behind(x);
    same = *at == expected;
    if (same)
        *at = value;
    return note(x, same);
}

void fence(machine *x)
{
    word before;

    if (x->order == IN_ORDER || is_replay(x, &before))
        return;
    if (own_buffer(x)->count)
        stop(x);
    note(x, 0);
}

int choose(machine *x, int n)
{
    word choice;

    if (is_replay(x, &choice))
        return choice;
    if (x->chosen)
        longjmp(x->out, PAUSED);
    if (x->alternative >= n)
        longjmp(x->out, EXHAUSTED);
    x->chosen = true;
    return note(x, (word)x->alternative);
}

void spend(machine *x, uint8_t *budget)
{
    word before;

    if (is_replay(x, &before))
        return;
    --*budget;
    note(x, 0);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Steps that nobody sees are done with the first that somebody can. */
static void go_on(machine *x)
{
    do {
        x->start = *me(x);
        x->stored = false;
        rank_step(x);
        clear_log(&x->now->log[x->rank]);
        x->replayed = 0;
        x->steps++;
    } while (!x->acted && !me(x)->done);
    x->start = *me(x);
}

model_outcome machine_step(machine *x, const state *now, int rank, int alternative, state *next)
{
    *next = *now;
    x->now = next;
    x->rank = rank;
    x->replayed = x->steps = 0;
    x->acted = x->stored = x->chosen = x->at_once = false;
    x->alternative = alternative;
    x->what = "goes on";
    switch (setjmp(x->out)) {
    case 0:
        go_on(x);
        break;
    case PAUSED: /* the step is not over: it begins again from where it began */
        next->self[rank] = x->start;
        break;
    case DISABLED:
        if (x->steps == 0)
            return NOTHING;
        next->self[rank] = x->start; /* the steps before it are done */
        clear_log(&next->log[rank]);
        break;
    case EXHAUSTED:
        return NO_MORE;
    default:
        return WRONG;
    }
    return DONE;
}

/* Whether a store may arrive before those that the rank did before it. */
static bool may_overtake(const machine *x, const model_buffer *own, int i)
{
    if (i > 0 && (x->order == TSO || own->store[i].last))
        return false;
    for (int k = 0; k < i; k++)
        if (own->store[k].at == own->store[i].at)
            return false;
    return true;
}

model_outcome machine_arrive(machine *x, const state *now, int rank, int i, state *next)
{
    const model_buffer *before = &now->buffer[rank];

    if (i >= before->count)
        return NO_MORE;
    if (!may_overtake(x, before, i))
        return NOTHING;
    *next = *now;
    model_buffer *own = &next->buffer[rank];
    model_store first = own->store[i];
    word *at = words_of(next) + first.at;
    *at = (word)((*at & ~first.mask) | first.value);
    memmove(&own->store[i], &own->store[i + 1], sizeof(model_store) * (size_t)(own->count - i - 1));
    memset(&own->store[--own->count], 0, sizeof(model_store));
    x->what = "a store arrives";
    return DONE;
}
