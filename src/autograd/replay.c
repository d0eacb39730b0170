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

#include <string.h>

static const sherd_op keeper_op = {.name = "sherd_module_checkpoint"};

static const char *name_of(const sherd__replay *r)
{
    return r->what.name(r->what.self);
}

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

/* Release the arguments when no node needs them any more; likewise those of parts around. */
static void let_go(sherd__replay *r)
{
    while (r && r->state == SHERD__REPLAY_WAITS && r->undone == 0 && !r->keeper->done) {
        sherd_node *keeper = r->keeper;
        sherd__node_clear(keeper);
        keeper->done = true;
        r = keeper->replay;
        if (r && !keeper->again)
            r->undone--;
    }
}

void sherd__replay_done(sherd_node *node)
{
    if (!node->replay || node->again)
        return;
    node->replay->undone--;
    let_go(node->replay);
}

/* ---- what must be the same ------------------------------------------------------------------ */

/* What failed on this rank, as for lack of memory, may be why: then that is the error. */
static bool differ(sherd__replay *r, const char *what, const char *before)
{
    sherd__raise_local(r->world);
    if (!sherd__alarmed(r->world))
        sherd__raise(r->world, SHERD_EINVAL,
                     "sherd_module_checkpoint: module \"%s\" did something else when it was run "
                     "again in backward: %s where it was %s: it must depend on its arguments and "
                     "parameters alone",
                     name_of(r), what, before);
    return false;
}

static bool same_operand(const sherd__edge *a, const sherd__edge *b)
{
    return a->wanted == b->wanted && a->layout == b->layout && a->dtype == b->dtype &&
           a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/*
 * Whether a tensor that a node uses was written since the first run. That it is another tensor is
 * no fault: the module may have made it anew, with the same values.
 */
static bool was_written(sherd__replay *r, const sherd__edge *a, const sherd__edge *b)
{
    char text[SHERD_ERROR_BYTES];

    if (!sherd__origin_changed(&a->origin, &b->origin))
        return false;
    if (b->layout)
        sherd__layout_describe(b->layout, b->dtype, text, sizeof text);
    else
        sherd__shape_describe(b->ndim, b->shape, b->dtype, text, sizeof text);
    sherd__raise(r->world, SHERD_EINVAL,
                 "sherd_module_checkpoint: module \"%s\" is run again in backward, but %.300s, "
                 "which it uses, was written since: write it after backward",
                 name_of(r), text);
    return true;
}

/* Whether a node is the same as the first time. */
static bool is_same(sherd__replay *r, const sherd_node *old, const sherd_node *node)
{
    if (old->op != node->op || old->ins != node->ins || old->outs != node->outs)
        return differ(r, node->op->name, old->op->name);
    if (old->done)
        return true; /* its backward has run: it needs nothing, and its operands are forgotten */
    for (int i = 0; i < node->ins; i++) {
        if (was_written(r, &old->in[i], &node->in[i]))
            return false;
        if (!same_operand(&old->in[i], &node->in[i]))
            return differ(r, "with another operand", node->op->name);
    }
    return sherd__same_fields(node->op, old->attributes, node->attributes) ||
           differ(r, "with other attributes", node->op->name);
}

/* The arguments of a part inside of r, when r is run again. */
static void compare_kept(const sherd_node *keeper, int i)
{
    sherd__replay *r = keeper->again ? keeper->replay : NULL;
    const sherd_node *old = r && keeper->member < r->nodes ? r->node[keeper->member] : NULL;

    if (old && !old->done && old->op == keeper->op && i < old->ins)
        (void)was_written(r, &old->in[i], &keeper->in[i]);
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
    compare_kept(r->keeper, i);
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
    let_go(r);
    sherd__refcounted_release(&r->head);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static bool append(sherd__replay *r, sherd_node *node)
{
    sherd_node **list =
        sherd__reserve(sherd__world_heap(r->world), r->node, r->nodes, &r->room, 16, sizeof *list);

    if (!list) {
        sherd__raise(r->world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        return false;
    }
    r->node = list;
    r->node[r->nodes++] = node;
    return true;
}

void sherd__replay_join(sherd_node *node)
{
    sherd__replay *r = sherd__tape_of(node->world)->replay;

    if (!r)
        return;
    if (r->state == SHERD__REPLAY_RECORDS) {
        if (!append(r, node))
            return;
        node->member = r->nodes - 1;
        r->undone++;
    } else {
        node->member = r->at++;
        node->again = true;
        if (node->member >= r->nodes)
            (void)differ(r, node->op->name, "at its end");
        else if (r->node[node->member])
            (void)is_same(r, r->node[node->member], node);
    }
    node->replay = r;
    r->head.refs++;
}

void sherd__replay_part(sherd_node *node)
{
    sherd__replay *r = node->replay;

    if (!r)
        return;
    node->replay = NULL;
    if (!node->again) {
        r->node[node->member] = NULL;
        r->undone -= !node->done;
        let_go(r);
    }
    sherd__refcounted_release(&r->head);
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* The old node that corresponds to a recomputed one, if it can still need something. */
static sherd_node *old_of(const sherd_node *node)
{
    const sherd__replay *r = node->replay;
    sherd_node *old = node->member < r->nodes ? r->node[node->member] : NULL;

    return old && !old->done && old->slots == node->slots ? old : NULL;
}

bool sherd__replay_save(sherd_node *node, int slot, sherd_tensor *t)
{
    if (!node->replay || !t->storage)
        return false;
    if (!node->again) {
        bool keeps = sherd__keeps_free(t);
        node->lacks |= !keeps;
        return !keeps;
    }
    sherd_node *old = old_of(node);
    if (old && old->lacks && !old->slot[slot]) {
        old->slot[slot] = sherd__keep(t);
        old->filled |= UINT64_C(1) << slot;
    } else if (old && old->slot[slot] && !t->autograd.moved_from) {
        sherd__saved_again(old->slot[slot], t);
    }
    return true;
}

void sherd__replay_empty(sherd_node *node)
{
    for (int i = 0; node->filled && i < node->slots; i++) {
        sherd__kept *kept = node->slot[i];
        if (!(node->filled >> i & 1))
            continue;
        node->slot[i] = NULL;
        if (kept)
            sherd__refcounted_release(&kept->head);
    }
    node->lacks |= node->filled != 0;
    node->filled = 0;
}

/* ---- results that are kept ------------------------------------------------------------------- */

/* A handler that replaces the operator may have left less. */
void sherd__keep_results(sherd_node *node, sherd_tensor *const *out, int count)
{
    const sherd__replay *r = node->replay;

    if (!r || node->again || !r->what.keeps(r->what.self, node->op))
        return;
    for (int j = 0; j < count; j++) {
        sherd__kept **slot = &node->slot[node->ins + j];
        if (out[j] && out[j]->storage && !*slot && !(*slot = sherd__keep(out[j])))
            node->broken = true;
    }
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
            (void)differ(r, "its end", "another operator");
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
        (void)differ(r, "with other random numbers", "something else");
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
    let_go(r);
    sherd__refcounted_release(&r->head);
}

/* What such a module saves is not kept while it runs, so nothing in it can run backward yet. */
static bool refuse_inside(const sherd__replay *r)
{
    sherd__raise(r->world, SHERD_EINVAL,
                 "sherd_module_checkpoint: module \"%s\" asks for gradients of what it computes "
                 "while it runs: do not checkpoint it",
                 name_of(r));
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
