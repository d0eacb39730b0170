/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recomputation. The first time the graph is recorded as usual, but its nodes save nothing. When
 * backward reaches a node that lacks what it needs, the whole part is run again, and the tensors
 * that the new nodes save are given to the old ones, which are the same in number and order. Then
 * the new nodes are freed; gradients, hooks and leaves are those of the old graph, so gradients are
 * bit for bit what they would have been. It costs one more forward, and a pointer for each node in
 * between.
 *
 * Parts may be nested. The arguments of an inner part are saved by a node of their own, its keeper,
 * which belongs to the outer part: recomputing the outer part restores them, and nothing of what is
 * inside the inner one.
 */
#include "autograd/replaying.h"

static const sherd_op keeper_op = {.name = "sherd_module_checkpoint"};

static void replay_destroy(sherd__refcounted *head)
{
    sherd__replay *r = (sherd__replay *)head;

    if (r->keeper)
        sherd__refcounted_release(&r->keeper->head);
    r->what.destroy(r->what.self);
    sherd__draws_clear(&r->draws);
    for (int i = 0; i < r->founds; i++)
        sherd__layout_set(&r->found[i].layout, NULL);
    sherd__free(sherd__world_heap(r->world), r->found);
    sherd__free(sherd__world_heap(r->world), r->node);
    sherd__free(sherd__world_heap(r->world), r);
}

/* ---- the first time ------------------------------------------------------------------------- */

sherd__replay *sherd__replay_begin(sherd_world *world, int count, const sherd__replayed *what)
{
    sherd__tape *tape = sherd__tape_of(world);
    sherd__replay *r = tape->paused ? NULL : sherd__alloc(sherd__world_heap(world), 1, sizeof *r);
    sherd_node *keeper = r ? sherd__node_create(world, count, 0, 0) : NULL;

    if (!keeper) {
        if (!tape->paused)
            sherd__raise(world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        sherd__free(sherd__world_heap(world), r);
        what->destroy(what->self);
        return NULL;
    }
    keeper->op = &keeper_op;
    r->head.refs = 1;
    r->head.destroy = replay_destroy;
    r->world = world;
    r->what = *what;
    r->keeper = keeper;
    r->draws.world = world;
    r->low = tape->low;
    sherd__replay_join(keeper); /* of the one around */
    r->outer = tape->replay;
    tape->replay = r;
    sherd__draws_enter(&r->draws, false);
    r->origins = sherd__origins_enter(world, false);
    return r;
}

void sherd__replay_keep(sherd__replay *r, int i, sherd_tensor *t)
{
    if (!r || !t)
        return;
    if (t->autograd.requires_grad)
        r->wanting |= UINT64_C(1) << i;
    r->keeper->in[i].origin = sherd__origin_of(t);
    sherd__replay_compare(r->keeper, i);
    sherd__save(r->keeper, i, t);
}

void sherd__replay_end(sherd__replay *r)
{
    if (!r)
        return;
    (void)sherd__draws_leave(&r->draws);
    sherd__origins_leave(r->world, r->origins);
    sherd__tape_of(r->world)->replay = r->outer;
    r->outer = NULL;
    r->state = SHERD__REPLAY_WAITS;
    sherd__replay_let_go(r);
    sherd__refcounted_release(&r->head);
}

/* ---- running again -------------------------------------------------------------------------- */

/* A kept tensor as it was passed in; recording stops there. */
static sherd_tensor *argument(sherd__replay *r, int i)
{
    sherd_tensor *t = sherd__saved(r->keeper, i);

    if (!t)
        return NULL;
    if (t->storage)
        t = sherd__new_view(t);
    if (t->storage)
        t->autograd.requires_grad = r->wanting >> i & 1;
    /* As it was the first time: it may have been moved or unpacked into other storage. */
    if (r->keeper->in[i].origin.made.who || r->keeper->in[i].origin.found.who)
        sherd__origin_set(t, r->keeper->in[i].origin);
    return t;
}

/* Leaves that wanted a gradient the first time and do not now: they do while it runs again. */
typedef struct thawed {
    sherd_tensor **leaf; /* [count], counted */
    int count, room;
} thawed;

static bool thaw_one(sherd__replay *r, thawed *t, sherd_tensor *leaf)
{
    sherd_tensor **list =
        sherd__reserve(sherd__world_heap(r->world), t->leaf, t->count, &t->room, 4, sizeof *list);

    if (!list) {
        sherd__raise(r->world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        return false;
    }
    t->leaf = list;
    t->leaf[t->count++] = sherd_tensor_retain(leaf);
    leaf->autograd.requires_grad = true;
    return true;
}

static bool thaw(sherd__replay *r, thawed *t)
{
    for (int k = 0; k < r->nodes; k++)
        for (int i = 0; r->node[k] && i < r->node[k]->ins; i++) {
            sherd_tensor *leaf = r->node[k]->in[i].leaf;
            if (leaf && !leaf->autograd.requires_grad && !thaw_one(r, t, leaf))
                return false;
        }
    return true;
}

static void freeze_again(sherd__replay *r, thawed *t)
{
    for (int i = 0; i < t->count; i++) {
        t->leaf[i]->autograd.requires_grad = false;
        sherd_tensor_release(t->leaf[i]);
    }
    sherd__free(sherd__world_heap(r->world), t->leaf);
}

static void run_again(sherd__replay *r)
{
    sherd_tensor *tensors[64];
    thawed leaves = {NULL, 0, 0};

    for (int i = 0; i < r->keeper->ins; i++)
        tensors[i] = argument(r, i);
    if (sherd__alarmed(r->world))
        return;
    if (thaw(r, &leaves)) {
        r->what.run(r->what.self, tensors, r->keeper->ins);
        if (r->at < r->nodes)
            (void)sherd__replay_differs(r, "its end", "another operator");
    }
    freeze_again(r, &leaves);
}

static void have_all(sherd__replay *r)
{
    for (int k = 0; k < r->nodes; k++)
        if (r->node[k])
            r->node[k]->lacks = false;
}

/* The saved-tensor hooks in force now are not those of the first time, so none are used. */
static void fill(sherd__replay *r)
{
    static const sherd_saved_hooks none;
    sherd_world *world = r->world;
    sherd__tape *tape = sherd__tape_of(world);
    sherd__where before = sherd__where_now(world);
    bool recording = sherd_set_recording(world, true), graph = tape->graph;
    int floor = sherd__scope_enter(world), hooked = tape->hooked, unpushed = tape->unpushed;

    sherd_saved_hooks_push(world, &none);
    r->head.refs++;
    r->outer = tape->replay;
    r->state = SHERD__REPLAY_AGAIN;
    r->at = r->found_at = 0;
    tape->replay = r;
    tape->graph = false;
    tape->again++;
    r->origins = sherd__origins_enter(world, true);
    sherd_dtype low = sherd__set_low(world, r->low);
    sherd__draws_enter(&r->draws, true);
    run_again(r);
    if (!sherd__draws_leave(&r->draws))
        (void)sherd__replay_differs(r, "with other random numbers", "something else");
    tape->again--;
    sherd__origins_leave(world, r->origins);
    sherd__set_low(world, low);
    tape->replay = r->outer;
    tape->graph = graph;
    r->state = SHERD__REPLAY_WAITS;
    tape->hooked = hooked;
    tape->unpushed = unpushed;
    sherd__scope_leave(world, floor);
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    sherd__where_set(world, before);
    if (!sherd__alarmed(world))
        have_all(r);
    sherd__replay_let_go(r);
    sherd__refcounted_release(&r->head);
}

/* What such a module saves is not kept while it runs, so nothing in it can run backward yet. */
static bool refuse_inside(const sherd__replay *r)
{
    sherd__raise(r->world, SHERD_EINVAL,
                 "sherd_module_checkpoint: module \"%s\" asks for gradients of what it computes "
                 "while it runs: do not checkpoint it",
                 sherd__replay_name(r));
    return false;
}

bool sherd__replay_fill(sherd_node *node)
{
    if (node->replay && node->replay->state != SHERD__REPLAY_WAITS)
        return refuse_inside(node->replay);
    if (!node->lacks || !node->replay)
        return true;
    if (!sherd__replay_fill(node->replay->keeper))
        return false;
    fill(node->replay);
    sherd__replay_empty(node->replay->keeper);
    return !sherd__alarmed(node->world);
}

bool sherd_is_recomputing(const sherd_world *world)
{
    const sherd__tape *tape = world ? sherd__world_state(world, SHERD__ROOM_AUTOGRAD) : NULL;
    return tape && tape->again > 0;
}
