/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scopes. A scope costs two numbers, a tensor in it one pointer, a layout one; passing a tensor out
 * swaps it to the front of its scope and moves the boundary over it.
 */
#include "tensor/state.h"

#include "world/doing.h"

enum { FIRST_ROOM = 64 };

/* Leave out what was released early; the others stay in their order. */
static void squeeze(sherd__tensors *s)
{
    int kept = sherd__scope_start(s);

    for (int i = kept; i < s->listed; i++) {
        sherd_tensor *t = s->list[i];
        if (!t)
            continue;
        t->scope = kept;
        s->list[kept++] = t;
    }
    s->listed = kept;
}

/* A full list grows only if it stays more than half full without what was released early: so each
 * look through it is for as many new tensors. */
static sherd_tensor **make_room(sherd__tensors *s)
{
    if (s->listed < s->list_room)
        return s->list;
    squeeze(s);
    if (2 * (int64_t)s->listed < s->list_room)
        return s->list;
    return sherd__double(sherd__world_heap(s->world), s->list, &s->list_room, FIRST_ROOM,
                         sizeof *s->list);
}

bool sherd__scope_add(sherd_tensor *t)
{
    sherd__tensors *s = sherd__tensors_of(t->world);
    sherd_tensor **list = make_room(s);

    if (!list) {
        bool distributed = t->layout != NULL;
        sherd_tensor_release(t);
        sherd__fail_doing(s->world, distributed, SHERD_ENOMEM, "out of memory for a scope");
        return false;
    }
    s->list = list;
    t->scope = s->listed;
    s->list[s->listed++] = t;
    return true;
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
    /* Copied: what is released may call functions of the program, which may begin scopes. */
    const sherd__scope start = s->start[--s->scopes];
    end(s, start.tensors);
    sherd__layouts_cut(sherd__world_space(world), start.layouts);
}

int sherd_scope_depth(const sherd_world *world)
{
    const sherd__tensors *s = world ? sherd__world_state(world, SHERD__ROOM_TENSOR) : NULL;

    return s ? s->scopes + s->unopened : 0;
}

void sherd_scope_end_to(sherd_world *world, int depth)
{
    for (int open = sherd_scope_depth(world); open > depth && open > 0; open--)
        sherd_scope_end(world);
}

int sherd__scope_fence(sherd_world *world)
{
    sherd__tensors *s = sherd__tensors_of(world);
    int before = s->floor;

    s->floor = s->scopes + s->unopened;
    s->called_back++;
    return before;
}

int sherd__scope_enter(sherd_world *world)
{
    sherd_scope_begin(world);
    return sherd__scope_fence(world);
}

void sherd__scope_leave(sherd_world *world, int before)
{
    sherd__tensors *s = sherd__tensors_of(world);
    int left = s->scopes + s->unopened - s->floor,
        unopened = left < s->unopened ? left : s->unopened;

    s->unopened -= unopened;
    s->scopes -= left - unopened;
    s->floor = before;
    s->called_back--;
}

void sherd__give_back(sherd_world *world, void *payload, void (*taker)(void *payload))
{
    if (!taker)
        return;
    int floor = sherd__scope_fence(world);
    taker(payload);
    sherd__scope_leave(world, floor);
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

static bool has_contents(const sherd__tensors *s)
{
    const sherd_tensor *t = s->all;

    while (t && !t->storage)
        t = t->next;
    return t != NULL;
}

/*
 * Retained tensors may refer to each other in any way, so first every one is pinned, then all are
 * stripped. Their structs are freed with this room's state. What is stripped may call functions of
 * the program, which may make tensors: these are in turn, as long as that comes to an end.
 */
void sherd__tensors_empty(sherd_world *world)
{
    enum { MOST_TURNS = 1000 };
    sherd__tensors *s = sherd__tensors_of(world);

    for (int turn = 0; turn == 0 || (turn < MOST_TURNS && has_contents(s)); turn++) {
        s->scopes = s->floor = 0;
        end(s, 0);
        for (sherd_tensor *t = s->all; t; t = t->next)
            t->refs++;
        for (sherd_tensor *t = s->all; t; t = t->next)
            sherd__tensor_strip(s, t);
    }
}
