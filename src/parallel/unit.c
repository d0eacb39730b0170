/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units of sharded parameters. A parameter is sharded over one axis; the shard is the leaf, so its
 * gradient and the optimizer's state are sharded too. Hooks gather the parameters of a module
 * before its forward, put the gathered tensors in place of the sharded ones, and take them out
 * again afterwards. The rest follows from what the tape does with any move: it saves the source of
 * a gather, not its result (decision 002), so a gathered parameter is freed after the forward and
 * gathered again in backward; and a leaf keeps no gradient larger than itself (decision 015), so
 * gradients are reduce-scattered as they arrive. Both happen once for all parameters of a unit
 * (autograd/together.c).
 *
 * While a module computes, the gather for the unit that came next in the last call is begun: at
 * most one is ahead. In backward the tape does that, of what it has saved; of units that are run
 * again it is done here, for the one that was called before. The order is learned anew after a
 * failed check, because in a call that fails some ranks call modules that others, which have seen
 * the failure, do not call; and after a module has been destroyed, which may have been part of it.
 */
#include "parallel/hold.h"

#include "apply/operator.h"
#include "autograd/together.h"

/* ---- gathering ------------------------------------------------------------------------------ */

static bool casts(sherd_dtype dtype, const sherd_tensor *t)
{
    return dtype != SHERD_DTYPE_NONE && dtype != t->dtype && sherd__has_fractions(t->dtype);
}

static sherd_tensor *cast(sherd_tensor *t, sherd_dtype dtype)
{
    return casts(dtype, t) ? sherd__cast_unrecorded(t, dtype) : t;
}

/*
 * One call for all pieces. What another axis' unit has gathered together with its own axis is left
 * as it is.
 */
static void gather(sherd__unit *u, bool begin)
{
    for (int i = 0; i < u->count; i++) {
        sherd_tensor *piece = u->pieces[i];
        bool whole = piece->layout && !(piece->layout->shard_axes & u->all->axes);
        u->aim[i] = whole ? piece->layout : u->to[i];
        u->from[i] = whole ? piece : cast(piece, u->dtype);
    }
    sherd__move_list(u->whole, u->from, u->aim, u->count, begin);
    for (int i = 0; i < u->count; i++) {
        sherd_tensor *whole = sherd_tensor_retain(u->whole[i]);
        if (u->from[i] == u->pieces[i] || !whole->storage || !u->pieces[i]->storage)
            continue;
        whole->autograd.moved_version = u->pieces[i]->storage->version;
        whole->autograd.moved_as = whole->storage->version;
    }
    u->gathered = true;
}

static void take_pieces(sherd__unit *u)
{
    for (int i = 0; i < u->count; i++)
        u->pieces[i] = sherd__unit_parameter(u, i)->tensor;
}

/*
 * Whether the module is run again, but not all that had gathered its parameters around it the first
 * time.
 */
static bool lies_apart(sherd__unit *u)
{
    bool apart = false;

    for (int i = 0; i < u->count; i++) {
        const sherd_tensor *t = sherd__unit_parameter(u, i)->tensor;
        u->slot[i].found = sherd__replay_find(u->all->world, t);
        apart |= u->slot[i].found.layout != t->layout || u->slot[i].found.dtype != t->dtype;
    }
    return apart;
}

/* Then the parameters are brought there without a record: that is outside of what is run again. */
static void stand_in(sherd__unit *u)
{
    for (int i = 0; i < u->count; i++) {
        sherd_tensor *t = u->home[i] = sherd__unit_parameter(u, i)->tensor;
        u->aim[i] = u->slot[i].found.layout;
        u->from[i] = cast(t, u->slot[i].found.dtype);
    }
    sherd__move_list(u->pieces, u->from, u->aim, u->count, false);
    sherd__stand_in(u->home, u->pieces, u->count);
}

static void drop(sherd__unit *u)
{
    u->gathered = false;
    for (int i = 0; i < u->count; i++) {
        sherd_tensor *whole = u->whole[i];
        u->whole[i] = NULL;
        sherd_tensor_release(whole);
    }
}

/*
 * Whether a parameter was written or replaced since its gather was begun, as by a forward that
 * moves the parameters of another module before it calls that.
 */
static bool is_stale(const sherd__unit *u)
{
    bool stale = false;

    for (int i = 0; i < u->count; i++) {
        const sherd_tensor *now = sherd__unit_parameter(u, i)->tensor;
        const sherd_tensor *whole = u->whole[i];
        stale |= now != u->pieces[i];
        if (!stale && whole != now && now->storage && whole->storage)
            stale = whole->autograd.moved_version != now->storage->version;
    }
    return stale;
}

/* Drop what was gathered ahead for a call that did not come. */
static void drop_ahead(sherd__sharding *all)
{
    sherd__unit *u = all->ahead;

    all->ahead = NULL;
    if (!u)
        return;
    u->again = 0;
    if (!u->in) /* it may be arriving, and must not take what a failed step has gathered */
        drop(u);
}

/*
 * What is gathered when the unit's own module is run again is kept for its backward, which comes
 * next: it would only be gathered once more.
 */
static sherd__gathering gathering_of(const sherd__unit *u)
{
    bool again = u->module->checkpointed && sherd__is_replayed(u->all->world);
    sherd_dtype reduce = u->reduce == SHERD_DTYPE_NONE ? u->dtype : u->reduce;

    return (sherd__gathering){.pieces = u->pieces,
                              .whole = u->whole,
                              .count = u->count,
                              .keep = u->keeps || u->holds || again,
                              .reduce = reduce,
                              .ahead = u->prefetches};
}

/*
 * The forward sees the gathered tensors. They are recorded here and not where their gather was
 * begun: what is on the tape must not depend on what ran before, or a recomputed module would
 * record something else.
 */
static void put_in(sherd__unit *u)
{
    const sherd__gathering call = gathering_of(u);

    sherd__record_gather(&call);
    u->in = true;
    u->acts = false;
    for (int i = 0; i < u->count; i++) {
        u->home[i] = sherd__unit_parameter(u, i)->tensor;
        sherd__unit_parameter(u, i)->tensor = sherd_tensor_retain(u->whole[i]);
        u->acts |= u->whole[i] != u->pieces[i];
    }
}

/* Unless the forward has replaced it. */
static void take_out(sherd__unit *u)
{
    for (int i = 0; i < u->count; i++) {
        sherd__named_tensor *p = sherd__unit_parameter(u, i);
        sherd_tensor *home = u->home[i], *now = p->tensor;
        u->home[i] = NULL;
        if (now == u->whole[i]) {
            p->tensor = home;
            sherd_tensor_release(now);
        } else {
            sherd_tensor_release(home);
        }
    }
}

/* ---- hooks ---------------------------------------------------------------------------------- */

/* Which unit is to be gathered while u computes; NULL: none is known. */
static sherd__unit *follower_of(const sherd__sharding *all, const sherd__unit *u)
{
    sherd__unit *prior = u->came == all->order ? u->prior : NULL;

    if (u->module->checkpointed && sherd__is_replayed(all->world)) /* in backward */
        return prior && prior->again == all->order && prior->module->checkpointed ? prior : NULL;
    return all->running && u->order == all->order ? u->next : NULL;
}

/*
 * Whether what a unit gathers from will be there when its module is called: not if the unit of
 * another axis gathers that first, which is the case if its parameters are cut further than theirs
 * will be.
 */
static bool can_gather_ahead(const sherd__unit *u)
{
    bool can = true;

    for (int i = 0; i < u->count; i++) {
        const sherd_layout *now = sherd__unit_parameter(u, i)->tensor->layout;
        can &= !now || !(now->shard_axes & ~(u->all->axes | u->to[i]->shard_axes));
    }
    return can;
}

static void begin_next(sherd__sharding *all, sherd__unit *u)
{
    sherd__unit *next = u->prefetches ? follower_of(all, u) : NULL;

    if (sherd__is_replayed(all->world))
        u->again = all->order;
    if (!next || next->gathered || next->depth > 0 || (next->outer && next->outer->in) ||
        sherd__is_held(next) || !can_gather_ahead(next))
        return;
    take_pieces(next);
    gather(next, true);
    all->ahead = next;
}

/* Forget the order of calls, if a check has failed since. */
static void renew(sherd__sharding *all)
{
    uint64_t failed = sherd__failed_checks(all->world);

    if (all->failed == failed)
        return;
    drop_ahead(all);
    all->last = NULL;
    all->failed = failed;
    all->order++;
}

/* What comes into the module, or out of it, in the dtype that the options say. */
static void cast_all(sherd_args *args, sherd_dtype dtype)
{
    for (int i = 0; i < args->count && i < SHERD_MAX_ARGS; i++)
        if (args->value[i] && casts(dtype, args->value[i]))
            args->value[i] = sherd_cast(args->value[i], dtype);
}

/* Put the gathered parameters of this call in their places. */
static void enter(sherd__unit *u)
{
    bool apart = lies_apart(u);

    if (u->gathered && (apart || is_stale(u)))
        drop(u);
    if (!u->gathered && apart)
        stand_in(u);
    else if (!u->gathered)
        take_pieces(u);
    if (!u->gathered && !apart && sherd__is_held(u)) {
        sherd__held_take(u);
        u->gathered = true;
    } else {
        if (!u->gathered)
            gather(u, false);
        if (u->holds && !apart)
            sherd__held_keep(u);
    }
    put_in(u);
}

static void arrive(sherd_module *self, sherd_args *in, void *payload)
{
    sherd__unit *u = payload;
    sherd__sharding *all = u->all;

    (void)self;
    if (u->depth++ > 0)
        return;
    if (u->outer && u->outer->in) {
        (void)lies_apart(u); /* for when it is run again without the outer one */
        return;
    }
    renew(all);
    if (all->ahead != u)
        drop_ahead(all);
    all->ahead = NULL;
    enter(u);
    if (u->acts && !u->leaves_inputs)
        cast_all(in, u->dtype);
    if (all->running) {
        u->prior = all->last;
        u->came = all->order;
    }
    if (all->running && all->last) {
        all->last->next = u;
        all->last->order = all->order;
    }
    all->last = u;
    begin_next(all, u);
}

static void leave(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    sherd__unit *u = payload;

    (void)self, (void)in;
    if (--u->depth > 0 || !u->in)
        return;
    const sherd__gathering call = gathering_of(u);
    sherd__restore_together(&call);
    u->in = false;
    take_out(u);
    drop(u);
    if (u->acts)
        cast_all(out, u->output);
}

static void enter_root(sherd_module *self, sherd_args *in, void *payload)
{
    sherd__sharding *all = payload;

    (void)self, (void)in;
    if (all->running++ == 0)
        all->last = NULL;
}

static void leave_root(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    sherd__sharding *all = payload;

    (void)self, (void)in, (void)out;
    if (--all->running == 0) {
        all->last = NULL;
        drop_ahead(all);
    }
}

/* ---- what hooks own ------------------------------------------------------------------------- */

void sherd__sharding_release(sherd__sharding *all)
{
    if (--all->refs == 0)
        sherd__free(sherd__world_heap(all->world), all);
}

/* Other units may still point here. */
void sherd__unit_release(sherd__unit *u)
{
    sherd__heap *heap = sherd__world_heap(u->all->world);

    if (--u->refs > 0)
        return;
    for (int i = 0; i < u->count; i++)
        sherd__layout_set(&u->to[i], NULL);
    if (u->gathered)
        drop(u);
    sherd__held_drop(u);
    if (u->all->ahead == u)
        u->all->ahead = NULL;
    if (u->all->last == u)
        u->all->last = NULL;
    u->all->order++;
    sherd__sharding_release(u->all);
    sherd__free(heap, u->slot);
    sherd__free(heap, u->to);
    sherd__free(heap, u->home);
    sherd__free(heap, u);
}

static void unit_done(void *payload)
{
    sherd__unit_release(payload);
}

static void sharding_done(void *payload)
{
    sherd__sharding_release(payload);
}

/* ---- for sherd_fully_shard ------------------------------------------------------------------ */

sherd__unit *sherd__unit_create(sherd__sharding *all, sherd_module *m, int n)
{
    sherd__heap *heap = sherd__world_heap(all->world);
    sherd__unit *u = sherd__alloc(heap, 1, sizeof *u);
    size_t room = (size_t)n;

    if (!u)
        return NULL;
    *u = (sherd__unit){.all = all, .module = m, .refs = 1};
    all->refs++;
    u->slot = sherd__alloc(heap, room, sizeof *u->slot);
    u->to = sherd__alloc(heap, 2 * room, sizeof(sherd_layout *));
    u->home = sherd__alloc(heap, 6 * room, sizeof(sherd_tensor *));
    u->aim = u->to ? u->to + room : NULL;
    u->pieces = u->home ? u->home + room : NULL;
    u->from = u->home ? u->pieces + room : NULL;
    u->whole = u->home ? u->from + room : NULL;
    u->held = u->home ? u->whole + room : NULL;
    u->held_of = u->home ? u->held + room : NULL;
    if (u->slot && u->to && u->home)
        return u;
    sherd__unit_release(u);
    return NULL;
}

sherd_status sherd__unit_hook(sherd__unit *u)
{
    sherd_hook_options options = {.prepend = true, .payload = u, .destroy = unit_done};
    sherd_status status;

    u->refs++;
    status = sherd_module_hook_before(NULL, u->module, arrive, &options);
    if (status)
        return status;
    u->refs++;
    options.prepend = false;
    return sherd_module_hook_after(NULL, u->module, leave, &options);
}

sherd__unit *sherd__unit_of(const sherd_module *m, unsigned axes, int *i)
{
    int at = 0;

    for (const sherd__hook_entry *h = m->before; h; h = h->next, at++) {
        sherd__unit *u = h->id && h->before == arrive ? h->payload : NULL;
        if (at < *i || !u || (axes && u->all->axes != axes))
            continue;
        *i = at + 1;
        return u;
    }
    return NULL;
}

void sherd__unit_join(sherd__unit *u, sherd__sharding *all)
{
    if (u->all == all)
        return;
    drop_ahead(u->all);
    u->all->last = NULL;
    sherd__sharding_release(u->all);
    u->all = all;
    u->next = u->prior = NULL;
    u->again = 0;
    all->refs++;
}

sherd_status sherd__sharding_hook(sherd__sharding *all, sherd_module *root)
{
    sherd_hook_options options = {.prepend = true, .payload = all, .destroy = sharding_done};
    sherd_status status;

    all->refs++;
    status = sherd_module_hook_before(NULL, root, enter_root, &options);
    if (status)
        return status;
    all->refs++;
    options.prepend = false;
    return sherd_module_hook_after(NULL, root, leave_root, &options);
}
