/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets: when a block may be read, written and recycled. A ticket is, for one group, the last
 * call that published the block and all ranks that have read it so far; it is settled when they
 * have left that call. A result in flight is readable when its call has ended. The owner looks;
 * nobody waits inside a call.
 */
#include "inside.h"

#include <string.h>

/* The bits of the ranks that a ticket waits for. */
static uint64_t *readers_of(const sherd_world *world, sherd__block *block, int ticket)
{
    return block->reader + (size_t)ticket * (size_t)sherd__rank_words(world->ranks);
}

/* Drop the ranks that have left the call from its ticket; true if none remains. */
static bool ticket_settled(const sherd_world *world, sherd__block *block, int i)
{
    const sherd__ticket *ticket = &block->ticket[i];
    uint64_t *reader = readers_of(world, block, i), left_over = 0;

    if (ticket->number <= world->base)
        return true; /* a failed check has settled it */
    for (int w = 0; w < sherd__rank_words(world->ranks); w++) {
        for (uint64_t rest = reader[w]; rest; rest &= rest - 1)
            if (sherd__has_left(world, ticket->lane, w * 64 + __builtin_ctzll(rest),
                                ticket->number))
                reader[w] &= ~(rest & -rest);
        left_over |= reader[w];
    }
    return left_over == 0;
}

static bool tickets_settled(const sherd_world *world, sherd__block *block)
{
    size_t bytes = (size_t)sherd__rank_words(world->ranks) * sizeof *block->reader;

    for (int i = 0; i < block->tickets;) {
        if (!ticket_settled(world, block, i)) {
            i++;
            continue;
        }
        int last = --block->tickets;
        block->ticket[i] = block->ticket[last];
        if (i != last)
            memcpy(readers_of(world, block, i), readers_of(world, block, last), bytes);
    }
    return block->tickets == 0;
}

/* The ticket of a lane, which has no readers yet if it is a new one. */
static int ticket_for(const sherd_world *world, sherd__block *block, int lane)
{
    int i = 0;

    while (i < block->tickets && block->ticket[i].lane != lane)
        i++;
    if (i == block->tickets) {
        sherd__assert(world->rank, i < SHERD__TICKETS);
        block->ticket[block->tickets++] = (sherd__ticket){lane, 0};
    }
    return i;
}

void sherd__ticket_add(sherd_world *world, sherd__block *block, const sherd__group *group,
                       uint64_t number, const sherd__ranks *ranks)
{
    if (!block || sherd__ranks_none(ranks))
        return;
    int i = ticket_for(world, block, group->lane);
    uint64_t *reader = readers_of(world, block, i);
    /* Readers of earlier calls stay in it: who has not left those has not left this one. */
    bool fresh = block->ticket[i].number <= world->base;

    for (int w = 0; w < sherd__rank_words(world->ranks); w++)
        reader[w] = (fresh ? 0 : reader[w]) | (w < ranks->words ? ranks->word[w] : 0);
    block->ticket[i].number = number;
}

static bool has_place(const sherd__block *block, const sherd__group *group)
{
    for (int i = 0; i < block->tickets; i++)
        if (block->ticket[i].lane == group->lane)
            return true;
    return block->tickets < SHERD__TICKETS;
}

bool sherd__settled(sherd_world *world, sherd__block *block)
{
    return block->reading == 0 && block->filling == 0 &&
           (block->tickets == 0 || tickets_settled(world, block));
}

/* ---- waiting for a block --------------------------------------------------------------------- */

static bool is_settled(sherd_world *world, void *what)
{
    return sherd__settled(world, what);
}

static bool is_filled(sherd_world *world, void *what)
{
    (void)world;
    return ((const sherd__block *)what)->filling == 0;
}

static bool are_settled(sherd_world *world, void *what)
{
    return tickets_settled(world, what);
}

/* Whether a call reads or fills a block. */
static bool touches(const sherd__call_state *call, const sherd__block *block, bool reads)
{
    for (int i = 0; i < call->count; i++)
        if (call->task[i].result == block || (reads && call->task[i].source == block))
            return true;
    return false;
}

static void need_calls(sherd_world *world, const sherd__block *block, bool reads,
                       sherd__needs *needs)
{
    for (const sherd__call_state *call = world->open; call; call = call->next)
        if (touches(call, block, reads))
            sherd__need_call(world, needs, call);
}

static void filled_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    need_calls(world, what, false, needs);
}

static void ticket_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    sherd__block *block = what;
    sherd__ranks readers;

    for (int i = 0; i < block->tickets; i++) {
        readers.words = sherd__rank_words(world->ranks);
        memcpy(readers.word, readers_of(world, block, i), (size_t)readers.words * sizeof(uint64_t));
        sherd__need_add(world, needs, block->ticket[i].lane, SHERD__LEFT, block->ticket[i].number,
                        &readers);
    }
}

static void settled_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    need_calls(world, what, true, needs);
    ticket_needs(world, what, needs);
}

bool sherd__settle(sherd_world *world, sherd__block *block)
{
    return sherd__settled(world, block) ||
           sherd__wait_for(world, &(sherd__wait){is_settled, settled_needs, block});
}

bool sherd__ticket_make_room(sherd_world *world, sherd__block *block, const sherd__group *group)
{
    return !block || has_place(block, group) ||
           sherd__wait_for(world, &(sherd__wait){are_settled, ticket_needs, block});
}

/* Wait for a result in flight, and count the time as that of its call. */
static bool wait_filled(sherd_world *world, sherd__block *block)
{
    sherd__tally *tally = NULL;
    int64_t start = sherd__now();

    for (const sherd__call_state *call = world->open; call && !tally; call = call->next)
        if (touches(call, block, false))
            tally = sherd__log_row(world, call->group, (int)call->task[0].kind);
    bool good = sherd__wait_for(world, &(sherd__wait){is_filled, filled_needs, block});
    if (tally)
        tally->nanoseconds += sherd__now() - start;
    return good;
}

static bool not_spoiled(sherd_world *world, const sherd__block *block)
{
    if (!block->spoiled)
        return true;
    sherd__raise(world, SHERD_EINVAL,
                 "a tensor is used whose data never came: a failed check dropped the call that was "
                 "to bring it; make it anew");
    return false;
}

bool sherd__arena_readable(sherd_world *world, sherd__block *block)
{
    if (block->filling && !wait_filled(world, block))
        return false;
    return not_spoiled(world, block);
}

bool sherd__arena_writable(sherd_world *world, sherd__block *block)
{
    if (block->filling && !wait_filled(world, block))
        return false;
    if (!sherd__settle(world, block))
        return false;
    return not_spoiled(world, block);
}

/* As in a wait, a rank that sees the alarm is quiet from then on: it stores no `left`. */
bool sherd__arena_ready(sherd_world *world, sherd__block *block)
{
    if (world->remote)
        sherd__remote_poll(world);
    if (block->filling && !sherd__alarmed(world))
        sherd__progress(world);
    if (sherd__alarmed(world))
        world->quiet = true;
    return world->quiet || block->filling == 0;
}
