/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets: when a block may be read, written and recycled. A ticket is, for one group, the last call that
 * published the block and all ranks that have read it so far; it is settled when they have left that call.
 * A result in flight is readable when its call has ended. The owner looks; nobody waits inside a call.
 */
#include "inside.h"

#include <string.h>

/* Take those ranks out of a ticket that have left its call; true if none is left over. */
static bool ticket_settled(const sherd_world *world, sherd__ticket *ticket)
{
    uint64_t ranks = ticket->ranks;

    if (ticket->number <= world->base)
        return true; /* a failed check has settled it */
    while (ranks) {
        int q = sherd__next_rank(&ranks);
        if (sherd__has_left(world, ticket->lane, q, ticket->number))
            ticket->ranks &= ~sherd__bit(q);
    }
    return ticket->ranks == 0;
}

static bool tickets_settled(const sherd_world *world, sherd__block *block)
{
    for (int i = 0; i < block->tickets;) {
        if (ticket_settled(world, &block->ticket[i]))
            block->ticket[i] = block->ticket[--block->tickets];
        else
            i++;
    }
    return block->tickets == 0;
}

void sherd__ticket_add(sherd_world *world, sherd__block *block, const sherd__group *group,
                       uint64_t number, uint64_t ranks)
{
    if (!block || !ranks)
        return;
    for (int i = 0; i < block->tickets; i++) {
        sherd__ticket *ticket = &block->ticket[i];
        if (ticket->lane != group->lane)
            continue;
        /* Readers of earlier calls stay in: they have not left this one either. */
        if (ticket->number <= world->base)
            ticket->ranks = 0;
        ticket->ranks |= ranks;
        ticket->number = number;
        return;
    }
    sherd__assert(world->rank, block->tickets < SHERD__TICKETS);
    block->ticket[block->tickets++] = (sherd__ticket){group->lane, number, ranks};
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
    return block->reading == 0 && block->filling == 0 && tickets_settled(world, block);
}

/* ---- waiting for a block ---------------------------------------------------------------------- */

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
    const sherd__block *block = what;

    for (int i = 0; i < block->tickets; i++)
        sherd__need_add(world, needs, block->ticket[i].lane, SHERD__LEFT, block->ticket[i].number,
                        block->ticket[i].ranks);
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

/* Waiting for a result in flight counts as time of its call. */
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

/* A rank that has seen the alarm stores no `left` any more: it is quiet from then on, as in a wait. */
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
