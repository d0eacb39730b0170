/* SPDX-License-Identifier: Apache-2.0 */
/* A rank goes through its program. */
#include "ranks.h"

void next_phase(machine *x)
{
    me(x)->phase++;
}

void next_op(machine *x)
{
    me(x)->op++;
    me(x)->phase = 0;
}

/* In place, or new memory: both wait until nobody reads it (ticket.c: sherd__settle). */
static void write_block(machine *x, int block)
{
    model_self *s = me(x);
    word value = 0;

    for (int r = 0; r < x->program->ranks; r++)
        value |= (word)(((s->holds[block] >> 4 * r) + 1 + r) % 16 << 4 * r);
    s->holds[block] = value;
    s->spoiled &= (uint8_t)~bit(block);
    put(x, &x->now->shared.block[x->rank][block], value);
    x->what = "writes";
    next_op(x);
}

static void read_block(machine *x, int block)
{
    if (!(me(x)->spoiled >> block & 1) &&
        look(x, &x->now->shared.block[x->rank][block]) != me(x)->holds[block])
        wrong(x, "a block does not hold what was put into it");
    x->what = "reads";
    next_op(x);
}

static void use_block(machine *x, const model_op *op)
{
    model_wait w = wait_of(x, me(x), x->rank);

    if (me(x)->phase == 0)
        wait_step(x, &w);
    else if (op->verb == WRITE)
        write_block(x, op->source);
    else if (op->verb == READ)
        read_block(x, op->source);
    else
        next_op(x);
}

void rank_step(machine *x)
{
    const model_op *op = my_op(x);
    bool meets = op->verb == CHECK || op->verb == AGREE;

    if (op->verb == STOP) {
        me(x)->done = true;
        return;
    }
    if (meets) {
        meet_step(x);
        return;
    }
    if (me(x)->quiet && me(x)->phase == 0) {
        if ((op->verb == CALL || op->verb == ALL) && op->result != NONE)
            me(x)->spoiled |= bit(op->result);
        next_op(x);
        return;
    }
    switch (op->verb) {
    case CALL:
    case ALL:
        if (me(x)->phase > 5)
            next_op(x);
        else
            call_step(x);
        return;
    case FAIL:
        raise_alarm(x, FAILED);
        x->what = "fails";
        next_op(x);
        return;
    default:
        use_block(x, op);
    }
}
