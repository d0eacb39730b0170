/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The state of this room and its scopes. A scope costs two numbers, a tensor in it one pointer, a
 * layout one; passing a tensor out swaps it to the front of its scope and moves the boundary over
 * it.
 */
#include "tensor/state.h"

static void destroy(sherd_world *world, void *memory)
{
    sherd__tensors *s = memory;
    sherd__heap *heap = sherd__world_heap(world);

    sherd__tensors_empty(world);
    while (s->all) {
        sherd_tensor *t = s->all;
        s->all = t->next;
        sherd__free(heap, t);
    }
    sherd__stock_clear(&s->structs);
    sherd__stock_clear(&s->storages);
    sherd__free(heap, s->failed.text);
    sherd__free(heap, s->list);
    sherd__free(heap, s->start);
}

sherd__tensors *sherd__tensors_of(sherd_world *world)
{
    sherd__tensors *s = sherd__world_state(world, SHERD__ROOM_TENSOR);

    if (s)
        return s;
    s = sherd__world_reserve(world);
    s->world = world;
    s->failed.world = world;
    s->failed.refs = 1;
    s->failed.scope = -1;
    sherd__world_set_state(world, SHERD__ROOM_TENSOR, s, destroy);
    sherd__watch_checks(world);
    return s;
}

uint64_t sherd__walk_number(sherd_world *world)
{
    return ++sherd__tensors_of(world)->walks;
}

void *sherd__spare(sherd_world *world)
{
    return (char *)sherd__world_reserve(world) + SHERD__TENSORS_BYTES;
}

enum { FIRST_ROOM = 64 };

bool sherd__scope_add(sherd_tensor *t)
{
    sherd__tensors *s = sherd__tensors_of(t->world);
    sherd_tensor **list = sherd__reserve(sherd__world_heap(s->world), s->list, s->listed,
                                         &s->list_room, FIRST_ROOM, sizeof *list);

    if (!list) {
        bool distributed = t->layout != NULL;
        sherd_tensor_release(t);
        sherd__fail_tensor(s->world, distributed, SHERD_ENOMEM, "out of memory for a scope");
        return false;
    }
    s->list = list;
    t->scope = s->listed;
    s->list[s->listed++] = t;
    return true;
}

void sherd__scope_forget(sherd_tensor *t)
{
    if (t->scope < 0)
        return;
    sherd__tensors_of(t->world)->list[t->scope] = NULL;
    t->scope = -1;
}

/* Release the newest first: results before their operands. */
static void end(sherd__tensors *s, int start)
{
    while (s->listed > start) {
        sherd_tensor *t = s->list[--s->listed];
        if (!t)
            continue;
        t->scope = -1;
        sherd_tensor_release(t);
    }
}

void sherd_scope_begin(sherd_world *world)
{
    if (!world)
        return;

    sherd__tensors *s = sherd__tensors_of(world);
    sherd__scope *start = s->unopened > 0
                              ? NULL
                              : sherd__reserve(sherd__world_heap(world), s->start, s->scopes,
                                               &s->start_room, FIRST_ROOM, sizeof *start);

    if (!start) {
        if (s->unopened++ == 0)
            sherd__raise(world, SHERD_ENOMEM, "sherd_scope_begin: out of memory");
        return;
    }
    s->start = start;
    s->start[s->scopes++] =
        (sherd__scope){s->listed, sherd__layouts_mark(sherd__world_space(world))};
}

void sherd_scope_end(sherd_world *world)
{
    if (!world)
        return;

    sherd__tensors *s = sherd__tensors_of(world);
    if (s->scopes + s->unopened <= s->floor)
        return;
    if (s->unopened > 0) {
        s->unopened--;
        return;
    }
    const sherd__scope *start = &s->start[--s->scopes];
    end(s, start->tensors);
    sherd__layouts_cut(sherd__world_space(world), start->layouts);
}

int sherd__scope_enter(sherd_world *world)
{
    sherd__tensors *s = sherd__tensors_of(world);
    int before = s->floor;

    sherd_scope_begin(world);
    s->floor = s->scopes + s->unopened;
    return before;
}

void sherd__scope_leave(sherd_world *world, int before)
{
    sherd__tensors *s = sherd__tensors_of(world);
    int left = s->scopes + s->unopened - s->floor,
        unopened = left < s->unopened ? left : s->unopened;

    s->unopened -= unopened;
    s->scopes -= left - unopened;
    s->floor = before;
}

sherd_tensor *sherd_scope_pass(sherd_tensor *t)
{
    if (!t)
        return NULL;

    sherd__tensors *s = sherd__tensors_of(t->world);
    if (t->scope < 0 || s->unopened > 0 || s->scopes == 0)
        return t;

    int *start = &s->start[s->scopes - 1].tensors;
    if (t->scope < *start)
        return t;
    sherd_tensor *first = s->list[*start];
    s->list[t->scope] = first;
    if (first)
        first->scope = t->scope;
    s->list[*start] = t;
    t->scope = (*start)++;
    return t;
}

/*
 * Retained tensors may refer to each other in any way, so first every one is pinned, then all are
 * stripped. Their structs are freed with this room's state.
 */
void sherd__tensors_empty(sherd_world *world)
{
    sherd__tensors *s = sherd__tensors_of(world);

    s->scopes = s->floor = 0;
    end(s, 0);
    for (sherd_tensor *t = s->all; t; t = t->next)
        t->refs++;
    for (sherd_tensor *t = s->all; t; t = t->next)
        sherd__tensor_strip(s, t);
}
