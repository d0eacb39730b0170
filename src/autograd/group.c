/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of what was gathered in one call, so that backward gathers it in one call again
 * (restored.c): made when the call is recorded, and freed with the last member.
 */
#include "autograd/group.h"
#include "autograd/together.h"

static void release(sherd__regathered *g)
{
    sherd__heap *heap = sherd__world_heap(g->world);

    if (--g->refs > 0)
        return;
    for (int i = 0; i < g->count; i++) {
        sherd__layout_set(&g->member[i].layout, NULL);
        sherd__refcounted_release(&g->member[i].base->head);
    }
    sherd__free(heap, g->member);
    sherd__free(heap, g);
}

void sherd__group_leave(sherd__kept *k)
{
    sherd__regathered *g = k->group;

    if (!g)
        return;
    k->group = NULL;
    for (int i = 0; i < g->count; i++)
        if (g->member[i].kept == k)
            g->member[i].kept = NULL;
    release(g);
}

/* What the tape has saved of the i-th tensor, if it is to be moved again. */
static sherd__kept *moved_again(const sherd__gathering *g, int i)
{
    sherd__kept *k = (sherd__kept *)g->whole[i]->autograd.saved;

    return k && k->base && !k->group && g->whole[i] != g->pieces[i] ? k : NULL;
}

static sherd__regathered *new_group(sherd_world *world, int room)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd__regathered *g = sherd__alloc(heap, 1, sizeof *g);
    sherd__group_member *list = g ? sherd__alloc(heap, (size_t)room, sizeof *list) : NULL;

    if (!list) {
        sherd__raise(world, SHERD_ENOMEM, "sherd_fully_shard: out of memory");
        sherd__free(heap, g);
        return NULL;
    }
    *g = (sherd__regathered){.world = world, .member = list, .call = sherd__tape_of(world)->order};
    return g;
}

void sherd__restore_together(const sherd__gathering *call)
{
    int n = 0;

    for (int i = 0; i < call->count; i++)
        n += moved_again(call, i) != NULL;
    sherd__regathered *g = n > !call->ahead ? new_group(call->whole[0]->world, n) : NULL;
    if (g)
        g->ahead = call->ahead;
    for (int i = 0; i < call->count && g; i++) {
        sherd__kept *k = moved_again(call, i);
        if (!k)
            continue;
        sherd__group_member *m = &g->member[g->count++];
        *m = (sherd__group_member){.kept = k, .base = k->base, .dtype = k->dtype};
        k->base->head.refs++;
        sherd__layout_set(&m->layout, k->layout);
        k->group = g;
        g->refs++;
    }
}
