/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a call and bringing it to its end: src/world/call.c, record.c, progress.c, and what
 * ticket.c notes. Data are real: a copy reads a word that its owner may be writing, and what it
 * reads is compared with what the source held when the call was made.
 */
#include "ranks.h"

#include <string.h>

/* ---- what is open -------------------------------------------------------------------------- */

static const model_op *made_by(const machine *x, int rank, const model_call *c)
{
    return &x->program->op[rank][c->op];
}

model_call *open_call(model_self *s, const machine *x, int rank, int group, int number)
{
    for (int i = 0; i < OPEN; i++)
        if (s->open[i].number == number && number && made_by(x, rank, &s->open[i])->group == group)
            return &s->open[i];
    return NULL;
}

bool is_filling(const machine *x, const model_self *s, int rank, int block)
{
    for (int i = 0; i < OPEN; i++)
        if (s->open[i].number && made_by(x, rank, &s->open[i])->result == block)
            return true;
    return false;
}

bool is_reading(const machine *x, const model_self *s, int rank, int block)
{
    for (int i = 0; i < OPEN; i++)
        if (s->open[i].number && !s->open[i].finished &&
            made_by(x, rank, &s->open[i])->source == block)
            return true;
    return false;
}

/* ticket.c: sherd__ticket_add. What an earlier epoch has left does not count. */
static void add_ticket(machine *x, int block, int group, int number, int readers)
{
    if (block == NONE || !readers)
        return;
    model_entry *ticket = &me(x)->ticket[block][group];
    bool fresh = ticket->number <= me(x)->base || !keeps(x, RULE_UNION);

    ticket->readers = (uint8_t)((fresh ? 0 : ticket->readers) | readers);
    ticket->number = (uint8_t)number;
}

/* ---- publishing ---------------------------------------------------------------------------- */

static int others(machine *x, int group)
{
    return x->program->member[group] & ~bit(x->rank);
}

static int readers_of(machine *x, const model_op *op)
{
    return op->verb == ALL ? others(x, op->group) : op->to;
}

static void put_number(machine *x, model_slot *slot, int number)
{
    if (keeps(x, RULE_RELEASE_NUMBER))
        put_last(x, &slot->number, (word)number);
    else
        put(x, &slot->number, (word)number);
}

/* record.c: sherd__record_publish. */
static void publish(machine *x, const model_op *op, int number, int status, int history, word body)
{
    model_slot *slot = slot_of(x, x->rank, op->group, number);

    if (!keeps(x, RULE_NUMBER_LAST))
        put_number(x, slot, number);
    put(x, &slot->said, (word)(status << 8 | history));
    put(x, &slot->body, body);
    if (keeps(x, RULE_NUMBER_LAST))
        put_number(x, slot, number);
    put_last(x, &lane_of(x, x->rank, op->group)->made, (word)(history << 8 | number));
    me(x)->sequence[op->group]++;
}

/* call.c: fingerprint_of, and the history of a group. */
static int history_with(machine *x, const model_op *op)
{
    int print = 1 + op->what * 2 + (op->verb == ALL);

    return keeps(x, RULE_HISTORY) ? (me(x)->history[op->group] * 31 + print) % 251 : print;
}

static void remember(machine *x, int group, int number, int source)
{
    if (source != NONE)
        x->now->ghost[x->rank][group][number % GHOSTS] =
            (model_ghost){(word)number, me(x)->holds[source]};
}

static word remembered(machine *x, int rank, int group, int number)
{
    const model_ghost *ghost = &x->now->ghost[rank][group][number % GHOSTS];

    if (ghost->number != number)
        wrong(x, "a rank reads for a call that was over long ago");
    return ghost->source;
}

/* call.c: attach_task, open_call. */
static model_call *open_it(machine *x, const model_op *op, int number, int history)
{
    model_self *s = me(x);
    int i = 0, all = others(x, op->group);
    word held = 0; /* by the result, where nothing is pulled into it */

    if (op->result != NONE)
        held = s->spoiled >> op->result & 1 ? peek(x, &x->now->shared.block[x->rank][op->result])
                                            : s->holds[op->result];
    if (op->result != NONE)
        s->spoiled &= (uint8_t)~bit(op->result);

    while (s->open[i].number)
        if (++i == OPEN)
            wrong(x, "a program has too many calls open");
    s->open[i] = (model_call){
        .number = (uint8_t)number,
        .op = s->op,
        .history = (uint8_t)history,
        .own = op->from != 0,
        .waited = !op->begun,
        .awaited = (uint8_t)(op->verb == ALL ? all : op->from),
        .sharers = (uint8_t)(op->verb == ALL && keeps(x, RULE_ALL_WROTE) ? all : 0),
        .result = held,
    };
    if (!op->carried || !keeps(x, RULE_CARRIED))
        add_ticket(x, op->source, op->group, number, readers_of(x, op));
    if (op->verb == ALL)
        add_ticket(x, op->result, op->group, number, all);
    s->entry[op->group][number % DEPTH] =
        (model_entry){(uint8_t)number, (uint8_t)readers_of(x, op)};
    return &s->open[i];
}

static bool is_alone(machine *x)
{
    return me(x)->open[1].number == 0;
}

/* call.c: follow_record. What sleeps does not matter where ranks see at once what they wait for. */
static void follow_record(machine *x, const model_op *op, model_call *c)
{
    int readers = readers_of(x, op);

    if (!x->program->sleeps)
        return;
    bool is_short = choose(x, 2);
    if (c->waited && is_short && is_alone(x) && !(look(x, &x->now->shared.sleepers) & readers)) {
        if (c->own)
            copy_own(x, c);
        for (int q = 0; q < x->program->ranks; q++)
            if (c->awaited >> q & 1)
                take_record(x, c, q);
        finish_if_all(x, c);
        if (c->finished && end_if_left(x, c))
            return;
    }
    if (!c->finished)
        wake(x, readers, RULE_RING_RECORD);
}

/* call.c: sherd__arena_call, once operands and slot are free. */
static void make_call(machine *x, const model_op *op)
{
    model_self *s = me(x);
    int number = s->base + s->sequence[op->group] + 1, history = history_with(x, op);
    word body = (word)(op->source | op->result << 4);

    if (op->verb == CALL && !op->from && !op->to && !keeps(x, RULE_DATALESS)) {
        s->sequence[op->group]++;
        next_op(x);
        return;
    }
    if (op->carried)
        body = s->holds[op->source];
    remember(x, op->group, number, op->source);
    publish(x, op, number, OK, history, body);
    s->history[op->group] = (uint8_t)history;
    model_call *c = open_it(x, op, number, history);
    x->what = "publishes";
    follow_record(x, op, c);
    if (op->begun)
        next_op(x);
    else
        next_phase(x);
}

/* call.c: fail_call. */
static void fail_call(machine *x, const model_op *op)
{
    model_self *s = me(x);
    int number = s->base + s->sequence[op->group] + 1;
    model_entry before = s->entry[op->group][number % DEPTH];
    bool free = true;

    spend(x, &x->now->failures);
    x->now->failed |= bit(s->statuses);
    raise_alarm(x, FAILED);
    for (int q = 0; q < x->program->ranks && before.number > s->base; q++)
        if (before.readers >> q & 1)
            free = free && has_left(x, q, op->group, before.number);
    if (free) {
        publish(x, op, number, FAILED, s->history[op->group], 0);
        s->entry[op->group][number % DEPTH] = (model_entry){(uint8_t)number, 0};
    }
    x->what = "fails before it publishes";
    next_op(x);
}

/* dispatch.c: may_publish; sherd__group_refresh. */
static void begin_call(machine *x, const model_op *op)
{
    model_self *s = me(x);

    switch (choose(x, x->now->failures ? 3 : 2)) {
    case 0:
        if (s->epoch[op->group] != s->base) {
            s->epoch[op->group] = s->base;
            s->sequence[op->group] = s->history[op->group] = 0;
        }
        next_phase(x);
        return;
    case 1:
        if (!look(x, &x->now->shared.alarm) && !peek(x, &x->now->shared.death))
            nothing(x);
        s->quiet = true;
        x->what = "has seen the alarm";
        next_op(x);
        return;
    default:
        fail_call(x, op);
    }
}

/* Phases: 0 begin; 1 source; 2 result; 3 slot; 4 publish; 5 end. */
void call_step(machine *x)
{
    const model_op *op = my_op(x);
    model_wait w = wait_of(x, me(x), x->rank);

    if (me(x)->phase == 0)
        begin_call(x, op);
    else if (me(x)->phase == 4)
        make_call(x, op);
    else
        wait_step(x, &w);
}

/* ---- open calls: progress.c ---------------------------------------------------------------- */

bool has_left(machine *x, int rank, int group, int number)
{
    return look(x, &lane_of(x, rank, group)->left) > number;
}

static void store_left(machine *x, const model_op *op, const model_call *just)
{
    model_self *s = me(x);
    int left = s->base + s->sequence[op->group] + 1;
    word *at = &lane_of(x, x->rank, op->group)->left;

    for (int i = 0; i < OPEN; i++) {
        const model_call *c = &s->open[i];
        if (c->number && !c->finished && c->number < left &&
            made_by(x, x->rank, c)->group == op->group)
            left = c->number;
    }
    if (!keeps(x, RULE_EARLIEST))
        left = just->number + 1;
    if (keeps(x, RULE_RELEASE_LEFT))
        put_last(x, at, (word)left);
    else
        put(x, at, (word)left);
}

/* My part of a block of some rank, for a call that it has made. */
static int copy_part(machine *x, int rank, const model_op *mine, int number, int rank_of_part)
{
    word body = look(x, &slot_of(x, rank, mine->group, number)->body);
    word was = remembered(x, rank, mine->group, number);
    word is = mine->carried ? body : look(x, &x->now->shared.block[rank][body % 16 % BLOCKS]);

    if ((is ^ was) & part(rank_of_part))
        wrong(x, "a copy takes what was not in the source when the call was made");
    return was & part(rank_of_part);
}

static void fill(machine *x, model_call *c, int block, word parts, word value)
{
    c->result = (word)((c->result & ~parts) | (value & parts));
    if (block != NONE)
        put_part(x, &x->now->shared.block[x->rank][block], parts, value);
}

/* The part that a rank has of rank q's source comes to part q of its result. */
static word at_part(int value, int from, int to)
{
    return (word)((value >> 4 * from & 0xF) << 4 * to);
}

bool copy_own(machine *x, model_call *c)
{
    const model_op *op = made_by(x, x->rank, c);
    word was = remembered(x, x->rank, op->group, c->number);
    word is = peek(x, &x->now->shared.block[x->rank][op->source]);

    if ((is ^ was) & part(x->rank))
        wrong(x, "the own part is overwritten before it is copied");
    fill(x, c, op->result, part(x->rank), was);
    c->own = false;
    x->what = "copies its own part";
    return true;
}

/* record.c: sherd__record_there; then the copy. */
bool take_record(machine *x, model_call *c, int rank)
{
    const model_op *op = made_by(x, x->rank, c);
    const model_slot *slot = slot_of(x, rank, op->group, c->number);
    word number = look(x, &slot->number);

    x->what = "finds a record";
    if (number != c->number) {
        bool late = me(x)->arrived && keeps(x, RULE_NO_LATE_ALARM);
        if (number < c->number || late || !keeps(x, RULE_NEWER))
            return false;
        raise_alarm(x, DIFFER);
        return true;
    }
    word said = x->order == IN_ORDER ? peek(x, &slot->said) : look(x, &slot->said);
    if (said != c->history) {
        if (me(x)->arrived && keeps(x, RULE_NO_LATE_ALARM))
            return !x->program->sleeps; /* a step that looks twice is over, for nothing */
        raise_alarm(x, said >> 8 ? said >> 8 : DIFFER);
        return true;
    }
    c->awaited &= (uint8_t)~bit(rank);
    if (op->verb == CALL) {
        if (!c->awaited && !keeps(x, RULE_LEFT_LAST)) {
            c->finished = true;
            store_left(x, op, c);
        }
        int value = copy_part(x, rank, op, c->number, x->rank);
        fill(x, c, op->result, part(rank), at_part(value, x->rank, rank));
    }
    return true;
}

/* My part of the sum, into all results. */
static void reduce_and_write(machine *x, model_call *c, const model_op *op)
{
    int members = x->program->member[op->group], sum = 0;
    word body[RANKS] = {0};

    for (int q = 0; q < x->program->ranks; q++)
        if (members >> q & 1) {
            sum += copy_part(x, q, op, c->number, x->rank) >> 4 * x->rank;
            body[q] = peek(x, &slot_of(x, q, op->group, c->number)->body);
        }
    for (int q = 0; q < x->program->ranks; q++)
        if (members >> q & 1)
            put_part(x, &x->now->shared.block[q][body[q] >> 4], part(x->rank),
                     (word)((sum & 0xF) << 4 * x->rank));
    /* What all together will have written. */
    for (int p = 0; p < x->program->ranks; p++) {
        int total = 0;
        for (int q = 0; q < x->program->ranks; q++)
            if (members >> q & 1)
                total += remembered(x, q, op->group, c->number) >> 4 * p & 0xF;
        if (members >> p & 1)
            c->result = (word)((c->result & ~part(p)) | (total & 0xF) << 4 * p);
    }
}

/* progress.c: the end of advance, finish, left_by_all. */
void finish_if_all(machine *x, model_call *c)
{
    const model_op *op = made_by(x, x->rank, c);
    bool early = !keeps(x, RULE_LEFT_LAST);

    if (c->own || c->awaited || (c->finished && !(early && op->verb == CALL)))
        return;
    if (op->verb == ALL && early)
        store_left(x, op, c);
    if (op->verb == ALL)
        reduce_and_write(x, c, op);
    c->finished = true;
    if (!early)
        store_left(x, op, c);
    x->what = "leaves a call";
    if (!x->program->sleeps)
        return;
    for (int q = 0; q < x->program->ranks; q++)
        if (c->sharers >> q & 1)
            take_left(x, c, q);
    wake(x, x->program->member[op->group], RULE_RING_LEFT);
}

bool take_left(machine *x, model_call *c, int rank)
{
    if (!has_left(x, rank, made_by(x, x->rank, c)->group, c->number))
        return false;
    c->sharers &= (uint8_t)~bit(rank);
    x->what = "sees that a peer has left";
    return true;
}

static void unlink_call(model_self *s, model_call *c)
{
    long i = c - s->open;

    memmove(c, c + 1, sizeof *c * (size_t)(OPEN - 1 - i));
    memset(&s->open[OPEN - 1], 0, sizeof *c);
}

bool end_if_left(machine *x, model_call *c)
{
    int block = made_by(x, x->rank, c)->result;

    if (!c->finished || c->sharers)
        return false;
    if (block != NONE) {
        if (peek(x, &x->now->shared.block[x->rank][block]) != c->result)
            wrong(x, "a result is not complete when its call has ended");
        me(x)->holds[block] = c->result;
    }
    unlink_call(me(x), c);
    return true;
}

void drop_calls(machine *x)
{
    model_self *s = me(x);

    while (s->open[0].number) {
        int block = made_by(x, x->rank, &s->open[0])->result;
        if (block != NONE)
            s->spoiled |= bit(block);
        unlink_call(s, &s->open[0]);
    }
}
