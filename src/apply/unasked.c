/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator does to its operands unasked: it takes plain ones for replicated, and moves
 * those that do not fit its rule. A program may have that told, or refused. Two comparisons for
 * each operand that is promoted or moved, as long as nothing is asked for.
 */
#include "door.h"

#include <stdio.h>

#include "search/plans.h"
#include "world/doing.h"

/* ---- what is asked for ----------------------------------------------------------------------- */

/* How moves, or promotions, are to be taken by the operators of a world. */
static sherd_status choose(sherd_world *world, bool moves, unsigned how)
{
    const char *function = moves ? "sherd_op_move" : "sherd_op_promote";
    const unsigned count = moves ? SHERD_MOVES_NEVER + 1 : SHERD_PROMOTE_NEVER + 1;
    const sherd__argument need[] = {{"world", world}, {NULL, NULL}};
    sherd__diag *diag = sherd__world_diag(world);

    if (sherd__require(diag, function, need))
        return SHERD_EINVAL;
    if (how >= count)
        return sherd__fail(diag, SHERD_EINVAL, "%s: there is no %s %d", function,
                           moves ? "way to move" : "promotion", (int)how);
    sherd__ops *ops = sherd__ops_of(world);
    if (ops && moves)
        ops->moving = (sherd_moving)how;
    else if (ops)
        ops->promotion = (sherd_promotion)how;
    return ops ? SHERD_OK : SHERD_ENOMEM;
}

sherd_status sherd_op_promote(sherd_world *world, sherd_promotion how)
{
    return choose(world, false, (unsigned)how);
}

sherd_status sherd_op_move(sherd_world *world, sherd_moving how)
{
    return choose(world, true, (unsigned)how);
}

/* ---- telling --------------------------------------------------------------------------------- */

/* Whether to tell of an operator: once; if memory runs out, possibly again. Only rank 0 does. */
static bool tells(sherd_world *world, sherd__ops *ops, const sherd_op *op, bool moves)
{
    for (int i = 0; i < ops->warnings; i++)
        if (ops->warned[i].op == op && ops->warned[i].moves == moves)
            return false;
    sherd__warned *list = sherd__reserve(sherd__world_heap(world), ops->warned, ops->warnings,
                                         &ops->warn_room, SHERD__FIRST_WARNINGS, sizeof *list);
    if (list) {
        ops->warned = list;
        ops->warned[ops->warnings++] = (sherd__warned){op, moves};
    }
    return sherd_world_rank(world) == 0;
}

bool sherd__may_promote(const sherd__run *run, sherd_tensor *t)
{
    sherd_world *world = run->call.world;
    sherd__ops *ops = sherd__ops_of(world);
    const char *name = run->call.op->name;

    if (!ops || ops->promotion == SHERD_PROMOTE_SILENTLY)
        return true;
    if (ops->promotion == SHERD_PROMOTE_WARNING) {
        if (tells(world, ops, run->call.op, false))
            fprintf(stderr,
                    "sherd: %s: %s is plain beside distributed operands: taken for replicated\n",
                    name, sherd_tensor_text(t));
        return true;
    }
    const char *outer = sherd__doing_around(world, name);
    sherd__raise(world, SHERD_EINVAL,
                 "%s%s%s: %s is plain beside distributed operands, and sherd_op_promote says "
                 "never: spread it with sherd_distribute",
                 outer, *outer ? ": " : "", name, sherd_tensor_text(t));
    return false;
}

/* What all ranks receive in a move; a function of the layouts, so that all ranks do the same. */
static bool is_received(const sherd_tensor *t, const sherd_layout *to, int64_t *bytes)
{
    const sherd_plan *plan;

    /* what fails will be told by the move itself */
    if (sherd__plan_find(&plan, t->layout, to, sherd_dtype_bytes(t->dtype), NULL) != SHERD_OK)
        return false;
    *bytes = plan->price.recv_total_bytes;
    return *bytes > 0;
}

bool sherd__may_move(const sherd__run *run, sherd_tensor *t, const sherd_layout *to)
{
    sherd_world *world = run->call.world;
    sherd__ops *ops = sherd__ops_of(world);
    const char *name = run->call.op->name;
    int64_t bytes;

    if (!ops || ops->moving == SHERD_MOVES_SILENTLY || !is_received(t, to, &bytes))
        return true;
    if (ops->moving == SHERD_MOVES_WARNING) {
        if (tells(world, ops, run->call.op, true))
            fprintf(stderr, "sherd: %s: %s is moved to %s: %lld bytes in all\n", name,
                    sherd_tensor_text(t), sherd_layout_text(to), (long long)bytes);
        return true;
    }
    const char *outer = sherd__doing_around(world, name);
    sherd__raise(world, SHERD_EINVAL,
                 "%s%s%s: %s would be moved to %s (%lld bytes in all), and sherd_op_move says "
                 "never: redistribute it before",
                 outer, *outer ? ": " : "", name, sherd_tensor_text(t), sherd_layout_text(to),
                 (long long)bytes);
    return false;
}
