/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a program that starts its ranks itself, as a thread (spawn.c) or a process
 * (process.c): it opens its world, runs the body and closes the world. And what became of all.
 */
#include "launch.h"
#include "world/inside.h"

#include <string.h>

int sherd__run_rank(const sherd__launch_plan *plan, int rank, sherd_status *opened,
                    sherd__diag *diag)
{
    sherd_world *world;

    (void)sherd__pin(&plan->arena.control->post[rank]);
    *opened = sherd__world_join(&world, &plan->arena, false, rank, plan->options, diag);
    if (*opened)
        return 0;
    world->lent = true;
    int value = plan->body(world, plan->payload);
    if (sherd__is_stranger(world)) /* the body has forked, and returns in both */
        return value;
    atomic_store(&plan->arena.control->post[rank].value, 1 + (uint64_t)sherd__exit_code(value));
    (void)sherd__world_close(world, NULL); /* why it failed is in the arena */
    return value;
}

sherd_status sherd__outcome(const sherd__arena *arena, int ranks, sherd__diag *diag)
{
    uint64_t word = sherd__look(&arena->control->death);

    if (word) {
        diag->status = sherd__status_in(word);
        sherd__end_text(arena->control, word, diag->text, sizeof diag->text);
        return diag->status;
    }
    for (int r = 0; r < ranks; r++)
        if (arena->control->post[r].last_status) {
            diag->status = arena->control->post[r].last_status;
            memcpy(diag->text, arena->control->post[r].last_text, sizeof diag->text);
            return diag->status;
        }
    return SHERD_OK;
}
