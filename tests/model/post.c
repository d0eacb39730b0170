/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks say that they lack, and waking: src/world/post.c, arena.c. Where ranks sleep, posts
 * are words that are written and read one by one; else others see at once what a rank lacks.
 */
#include "ranks.h"

#include <string.h>

enum { VERSIONS = 8 };

void wake(machine *x, int ranks, model_rule why)
{
    shared *all = &x->now->shared;

    if (!x->program->sleeps || !keeps(x, why))
        return;
    if (keeps(x, RULE_FENCE))
        fence(x);
    int asleep = look(x, &all->sleepers) & ranks & ~bit(x->rank);
    for (int q = 0; q < x->program->ranks; q++)
        if (asleep >> q & 1)
            fetch_or(x, &post_of(x, q)->bell, 1);
}

/* ---- what a rank lacks --------------------------------------------------------------------- */

static void add_need(model_needs *out, int group, model_lack lack, int number, int ranks)
{
    if (ranks && out->count < NEEDS)
        out->need[out->count++] = (model_need){group, number, lack, ranks};
}

/* post.c: sherd__need_add. */
static void need(machine *x, model_needs *out, int group, model_lack lack, int number, int ranks)
{
    int missing = 0;

    for (int q = 0; q < x->program->ranks; q++) {
        if (!(ranks >> q & 1))
            continue;
        const model_lane *lane = lane_of(x, q, group);
        bool there = lack == LACKS_LEFT ? sight(x, &lane->left) > number
                                        : number_of(sight(x, &lane->made)) >= number;
        missing |= there ? 0 : bit(q);
    }
    add_need(out, group, lack, number, missing);
}

static void need_call(machine *x, model_needs *out, const model_op *op, const model_call *c)
{
    if (!c->finished)
        need(x, out, op->group, LACKS_RECORD, c->number, c->awaited);
    need(x, out, op->group, LACKS_LEFT, c->number, c->sharers);
}

/* post.c: find_misfits. */
static int misfits(machine *x, const model_op *op, const model_call *c)
{
    int found = 0;

    for (int q = 0; q < x->program->ranks; q++) {
        if (!(c->awaited >> q & 1))
            continue;
        const model_slot *slot = slot_of(x, q, op->group, c->number);
        word number = sight(x, &slot->number);
        if (number > c->number || (number == c->number && sight(x, &slot->said) != c->history))
            found |= bit(q);
    }
    return found;
}

static void need_wait(machine *x, int rank, const model_wait *w, model_needs *out)
{
    const model_self *s = &x->now->self[rank];

    for (int i = 0; i < OPEN && s->open[i].number; i++) {
        const model_call *c = &s->open[i];
        const model_op *op = &x->program->op[rank][c->op];
        bool fills = op->result == w->block, reads = op->source == w->block;
        if ((w->kind == FOR_FILLED && fills) || (w->kind == FOR_SETTLED && (fills || reads)) ||
            (w->kind == FOR_END && op->group == w->group && c->number == w->number))
            need_call(x, out, op, c);
    }
    if (w->kind == FOR_SETTLED)
        for (int g = 0; g < GROUPS; g++)
            if (s->ticket[w->block][g].number > s->base)
                need(x, out, g, LACKS_LEFT, s->ticket[w->block][g].number,
                     s->ticket[w->block][g].readers);
    if (w->kind == FOR_SLOT) {
        model_entry entry = s->entry[w->group][w->number % DEPTH];
        need(x, out, w->group, LACKS_LEFT, entry.number, entry.readers);
    }
}

void gather(machine *x, int rank, const model_wait *w, model_needs *out)
{
    const model_self *s = &x->now->self[rank];

    memset(out, 0, sizeof *out);
    need_wait(x, rank, w, out);
    out->waits = out->count;
    for (int i = 0; i < OPEN && s->open[i].number; i++) {
        const model_call *c = &s->open[i];
        const model_op *op = &x->program->op[rank][c->op];
        if (c->finished)
            continue;
        need(x, out, op->group, LACKS_RECORD, c->number, c->awaited);
        if (keeps(x, RULE_MISFIT))
            add_need(out, op->group, LACKS_FIT, c->number, misfits(x, op, c));
    }
}

/* ---- posts --------------------------------------------------------------------------------- */

static word pack(const model_need *n)
{
    return (word)(n->ranks | (int)n->lack << 3 | n->group << 5 | n->number << 7);
}

static model_need unpack(word w)
{
    return (model_need){w >> 5 & 3, w >> 7, (model_lack)(w >> 3 & 3), w & 7};
}

static void next_version(machine *x, word *version)
{
    fetch_add(x, version, *version == VERSIONS - 1 ? (word)(1 - VERSIONS) : 1);
}

void be_silent(machine *x)
{
    word *version = &post_of(x, x->rank)->version;

    if (peek(x, version) % 2)
        next_version(x, version);
}

/* Nothing is written that stands there already. */
void announce(machine *x, const model_wait *w)
{
    model_post *own = post_of(x, x->rank);
    bool same = peek(x, &own->version) % 2;
    model_needs n;

    gather(x, x->rank, w, &n);
    word counts = (word)(n.waits << 8 | n.count);
    same = same && peek(x, &own->counts) == counts;
    for (int i = 0; i < n.count && same; i++)
        same = peek(x, &own->need[i]) == pack(&n.need[i]);
    if (same)
        return;
    be_silent(x);
    for (int i = 0; i < n.count; i++)
        if (peek(x, &own->need[i]) != pack(&n.need[i]))
            put_now(x, &own->need[i], pack(&n.need[i]));
    if (peek(x, &own->counts) != counts)
        put_now(x, &own->counts, counts);
    next_version(x, &own->version);
    if (me(x)->arrived && n.count)
        wake(x, ~bit(x->rank), RULE_RING_SAID);
}

void hear(machine *x, int rank, model_needs *out)
{
    const model_self *s = &x->now->self[rank];
    const model_post *post = post_of(x, rank);

    memset(out, 0, sizeof *out);
    if (!x->program->sleeps) {
        model_wait w = wait_of(x, s, rank);
        bool waits = rank == x->rank || x->now->log[rank].count == 0;
        if (w.kind != FOR_NOTHING && !s->done && waits && !x->now->buffer[rank].count)
            gather(x, rank, &w, out);
        return;
    }
    out->version = look(x, &post->version);
    word counts = look(x, &post->counts);
    if (out->version % 2 == 0)
        return;
    out->waits = counts >> 8;
    out->count = counts & 0xFF;
    for (int i = 0; i < out->count; i++)
        out->need[i] = unpack(look(x, &post->need[i]));
}

bool still_says(machine *x, int rank, const model_needs *heard)
{
    if (!x->program->sleeps)
        return true;
    return heard->version % 2 && look(x, &post_of(x, rank)->version) == heard->version;
}
