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
 * most one is ahead. The order is learned anew after a failed check, because in a call that fails
 * some ranks call modules that others, which have seen the failure, do not call; and after a module
 * has been destroyed, which may have been a part of it.
 */
#include "parallel/unit.h"

#include "autograd/together.h"

/* ---- gathering ------------------------------------------------------------------------------ */

static sherd__named_tensor *parameter(const sherd__unit *u, int i)
{
    return &u->slot[i].module->parameter[u->slot[i].parameter];
}

/* One call for all parameters. */
static void gather(sherd__unit *u, bool begin)
{
    for (int i = 0; i < u->count; i++)
        u->pieces[i] = parameter(u, i)->tensor;
    sherd__move_list(u->whole, u->pieces, u->to, u->count, begin);
    for (int i = 0; i < u->count; i++)
        sherd_tensor_retain(u->whole[i]);
    u->gathered = true;
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
        const sherd_tensor *now = parameter(u, i)->tensor;
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
    if (u && u->depth == 0)
        drop(u);
}

/*
 * Whether the module is run again as a part of what its outer unit gathered for: then the record of
 * the gather is outside.
 */
static bool was_in_outer(const sherd__unit *u)
{
    return u->outer && sherd_is_recomputing(u->all->world) &&
           !sherd__gather_comes(u->pieces, u->count);
}

/*
 * The forward sees the gathered tensors. They are recorded here and not where their gather was
 * begun: what is on the tape must not depend on what ran before, or a recomputed module would
 * record something else.
 */
static void put_in(sherd__unit *u)
{
    for (int i = 0; i < u->count; i++)
        u->pieces[i] = parameter(u, i)->tensor;
    if (was_in_outer(u))
        sherd__stand_in(u->pieces, u->whole, u->count);
    else
        sherd__record_gather(u->pieces, u->whole, u->count, u->keeps);
    for (int i = 0; i < u->count; i++) {
        u->slot[i].home = u->pieces[i];
        parameter(u, i)->tensor = sherd_tensor_retain(u->whole[i]);
    }
}

/* Unless the forward has replaced it. */
static void take_out(sherd__unit *u)
{
    for (int i = 0; i < u->count; i++) {
        sherd__named_tensor *p = parameter(u, i);
        sherd_tensor *home = u->slot[i].home, *now = p->tensor;
        u->slot[i].home = NULL;
        if (now == u->whole[i]) {
            p->tensor = home;
            sherd_tensor_release(now);
        } else {
            sherd_tensor_release(home);
        }
    }
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static void begin_next(sherd__sharding *all, sherd__unit *u)
{
    sherd__unit *next = u->order == all->order ? u->next : NULL;

    if (!u->prefetches || !all->running || !next || next->gathered || next->depth > 0 ||
        (next->outer && next->outer->in))
        return;
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

static void arrive(sherd_module *self, sherd_args *in, void *payload)
{
    sherd__unit *u = payload;
    sherd__sharding *all = u->all;

    (void)self, (void)in;
    if (u->depth++ > 0 || (u->outer && u->outer->in))
        return;
    renew(all);
    if (all->ahead != u)
        drop_ahead(all);
    all->ahead = NULL;
    if (u->gathered && is_stale(u))
        drop(u);
    if (!u->gathered)
        gather(u, false);
    put_in(u);
    u->in = true;
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

    (void)self, (void)in, (void)out;
    if (--u->depth > 0 || !u->in)
        return;
    sherd__restore_together(u->whole, u->count);
    u->in = false;
    take_out(u);
    drop(u);
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
    if (u->all->ahead == u)
        u->all->ahead = NULL;
    if (u->all->last == u)
        u->all->last = NULL;
    u->all->order++;
    sherd__sharding_release(u->all);
    sherd__free(heap, u->slot);
    sherd__free(heap, u->to);
    sherd__free(heap, u->pieces);
    sherd__free(heap, u->whole);
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
    u->to = sherd__alloc(heap, room, sizeof *u->to);
    u->pieces = sherd__alloc(heap, room, sizeof *u->pieces);
    u->whole = sherd__alloc(heap, room, sizeof *u->whole);
    if (u->slot && u->to && u->pieces && u->whole)
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

sherd__unit *sherd__unit_of(const sherd_module *m, int axis, int *i)
{
    int at = 0;

    for (const sherd__hook_entry *h = m->before; h; h = h->next, at++) {
        sherd__unit *u = h->id && h->before == arrive ? h->payload : NULL;
        if (at < *i || !u || u->all->axis != axis)
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
    u->next = NULL;
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
