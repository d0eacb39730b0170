/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of ranks that a carrier connects. They exchange where they are. If all are on one
 * machine, rank 0 makes their arena, and the others find it in its list of open files, as ranks
 * behind a wrapper find that of `sherd run`. From then on everything is as under `sherd run`: same
 * speed, same protocol, same errors. Otherwise each machine has an arena, each rank has one for
 * itself, and ranks of different machines send each other messages (remote.h). All ranks get the
 * same status. A few hundred microseconds.
 */
#include "carried.h"
#include "clocks.h"
#include "hello.h"
#include "watch.h"
#include "world/dry.h"
#include "world/inside.h"
#include "world/priced.h"
#include "world/remote.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the arena of one machine ---------------------------------------------------------------- */

/* Map the arena of the first rank here, whose process has it open as this descriptor. */
static void map_of(sherd__arena *out, const sherd__hello *first, const char *function,
                   sherd__diag *diag)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", first->pid, first->fd);
    int fd = sherd__open_file(path, O_RDWR);
    if (fd < 0) {
        sherd__fail(diag, SHERD_ENOTSUP,
                    "can not open the memory of the first rank here (%s): %s; ranks of one machine "
                    "must be of "
                    "one user and see each other's processes",
                    path, strerror(errno));
        return;
    }
    (void)sherd__arena_map(out, fd, function, diag);
    close(fd);
}

/*
 * How many cores the ranks have together. *bound: sherd must not pin them, since a rank asks for
 * that, or the launcher has given ranks different cores.
 */
static int cores_of(const sherd_carrier *carrier, const sherd__hello *all, bool *bound)
{
    cpu_set_t sum = all[0].cores;

    *bound = all[0].no_pin;
    for (int r = 1; r < carrier->ranks; r++) {
        *bound |= all[r].no_pin || !CPU_EQUAL(&all[0].cores, &all[r].cores);
        CPU_OR(&sum, &sum, &all[r].cores);
    }
    return CPU_COUNT(&sum);
}

/* The lowest of the ranks that are where `mine` is. */
static int leader_of(const sherd_carrier *carrier, const sherd__hello *mine,
                     const sherd__hello *all)
{
    int r = 0;

    while (r + 1 < carrier->ranks && !sherd__is_here(mine, &all[r]))
        r++;
    return r;
}

/*
 * The arena of the ranks of each machine, mapped on all, or on none. `alone`: it is the only one.
 */
static sherd_status share_arena(sherd__arena *out, sherd__carried *carried, bool alone,
                                sherd__hello *mine, sherd__hello *all, sherd__diag *diag)
{
    const sherd_carrier *carrier = &carried->carrier;
    int leader = leader_of(carrier, mine, all);
    bool bound;
    int cores = cores_of(carrier, all, &bound);

    memset(out, 0, sizeof *out);
    if (carrier->rank == leader &&
        !sherd__arena_create(out, carrier->ranks, (size_t)mine->region_bytes, &mine->fd, diag) &&
        alone && !bound)
        sherd__cores_take(&carried->cores, out->control);
    sherd__note_failure(mine, diag, carrier->rank);
    sherd_status status = sherd__hellos_exchange(carrier, mine, all, diag);
    if (!status) {
        if (carrier->rank != leader)
            map_of(out, &all[leader], carried->function, diag);
        if (!diag->status)
            sherd__post_process(&out->control->post[carrier->rank]);
        sherd__note_failure(mine, diag, carrier->rank);
        status = sherd__hellos_exchange(carrier, mine, all, diag);
    }
    if (mine->fd >= 0)
        close(mine->fd);
    if (status)
        sherd__arena_unmap(out);
    out->cores = cores;
    return status;
}

/* ---- no arena -------------------------------------------------------------------------------- */

/*
 * How many cores to tell the world: one for each rank if the ranks of this machine have one each,
 * else 1. *here: how many ranks are on this machine.
 */
static int cores_to_tell(const sherd_carrier *carrier, const sherd__hello *mine,
                         const sherd__hello *all, int *here)
{
    cpu_set_t sum = mine->cores;

    *here = 0;
    for (int r = 0; r < carrier->ranks; r++)
        if (sherd__is_here(mine, &all[r])) {
            CPU_OR(&sum, &sum, &all[r].cores);
            ++*here;
        }
    return CPU_COUNT(&sum) >= *here ? carrier->ranks : 1;
}

/*
 * Join the two arenas of this rank: tensors and lanes stay in the one that it shares, all else is
 * in its own.
 */
static void graft(sherd__arena *shared, const sherd__arena *own, sherd__diag *diag)
{
    if (shared->control->regions != own->control->regions ||
        shared->control->region_bytes != own->control->region_bytes)
        sherd__fail(diag, SHERD_ENOMEM, "no address space for %zu MB twice: raise `ulimit -v`",
                    shared->bytes >> 20);
    shared->control = own->control;
    shared->own_bytes = own->bytes;
    shared->remote = own->remote;
}

/* Tell the carrier who is on this machine; if memory is `shared` here they are near. */
static void tell_near(const sherd_carrier *carrier, sherd__remote *remote, bool shared,
                      const sherd__hello *mine, const sherd__hello *all)
{
    bool here[SHERD_MAX_RANKS];

    for (int r = 0; r < carrier->ranks; r++) {
        here[r] = sherd__is_here(mine, &all[r]);
        if (shared && here[r])
            sherd__ranks_add(&remote->near, r);
    }
    if (carrier->near)
        carrier->near(carrier->self, here);
}

/*
 * An arena of this rank alone, and messages; `shared`: *out is one that it shares with others of
 * this machine.
 */
static sherd_status keep_apart(sherd__arena *out, sherd__carried *carried, bool shared,
                               sherd__hello *mine, sherd__hello *all, sherd__diag *diag)
{
    const sherd_carrier *carrier = &carried->carrier;
    size_t region = shared ? (size_t)out->control->region_bytes : (size_t)mine->region_bytes;
    int here, cores = cores_to_tell(carrier, mine, all, &here);

    if (!carrier->send || !carrier->sent || !carrier->receive) {
        sherd__fail(diag, SHERD_ENOTSUP,
                    "ranks share no memory (rank 0 is on host %.64s), and %s sends no messages",
                    all[0].host, carrier->name);
    } else if (!sherd__remote_open(&carried->remote, carrier, region, diag)) {
        tell_near(carrier, carried->remote, shared, mine, all);
        carried->remote->here = here;
        if (shared)
            graft(out, &carried->remote->arena, diag);
        else
            *out = carried->remote->arena;
    }
    sherd__note_failure(mine, diag, carrier->rank);
    sherd_status status = sherd__hellos_exchange(carrier, mine, all, diag);
    if (status) {
        sherd__arena_unmap(out);
        if (carried->remote)
            memset(&carried->remote->arena, 0, sizeof carried->remote->arena);
    }
    out->cores = cores;
    return status;
}

/* Whether some ranks of a machine share an arena, though not all of the world do. */
static bool is_mixed(const sherd_carrier *carrier, const sherd__hello *all)
{
    bool some = false;

    for (int r = 0; r < carrier->ranks; r++) {
        if (all[r].messages)
            return false;
        some |= leader_of(carrier, &all[r], all) != r;
    }
    return some;
}

/* Rank 0's price to all. The size is the same everywhere, so nobody fails alone. */
static sherd_status hand_out_price(sherd__carried *carried, sherd_price *all, sherd__diag *diag)
{
    sherd_status status =
        sherd__hellos_gather(&carried->carrier, &carried->price, sizeof *all, all, diag);

    if (!status)
        carried->price = all[0];
    return status;
}

/* Where any rank writes a trace: how far the clock of this machine is ahead of rank 0's. */
static sherd_status compare_clocks(sherd__arena *arena, const sherd_carrier *carrier,
                                   const sherd__hello *all, sherd__diag *diag)
{
    bool traced = false;

    for (int r = 0; r < carrier->ranks; r++)
        traced |= all[r].traced;
    if (traced && !sherd__clocks_compare(&arena->clock_ahead, carrier))
        return sherd__unreached(carrier, diag);
    if (sherd__is_here(&all[0], &all[carrier->rank]))
        arena->clock_ahead = 0;
    return SHERD_OK;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* False: memory of the world's arena is still read. */
static bool close_carried(sherd__carried *carried, bool well)
{
    sherd__guard_dismiss(carried->guard);
    sherd__cores_give(&carried->cores);
    if (carried->launched)
        (void)sherd__say_joined(false);
    if (carried->remote)
        return sherd__remote_close(carried->remote, well);
    if (carried->carrier.version == SHERD_CARRIER_VERSION && carried->carrier.close)
        carried->carrier.close(carried->carrier.self, well);
    return true;
}

/* The world is closed; `well`: by all ranks. */
static void leave(sherd_world *world, bool well)
{
    sherd__carried *carried = world->carried;
    sherd__heap heap = {.live = 1}; /* it is older than the world's */

    world->carried = NULL;
    sherd__drop_calls(world);
    if (world->remote)
        sherd__remote_leave(world);
    world->owns_arena &= close_carried(carried, well);
    sherd__free(&heap, carried);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* `job`: the same on all ranks. */
static sherd_status join(sherd_world **out, sherd__carried *carried, uint64_t job,
                         const sherd__arena *arena, const sherd_world_options *options,
                         sherd__diag *diag)
{
    int rank = carried->carrier.rank;
    sherd__pinning before = {.pinned = false};

    if (carried->carrier.ranks > 1)
        carried->guard = sherd__guard_post(arena, rank, job);
    if (!options->no_pin)
        before = sherd__pin(&arena->control->post[rank]);
    sherd_status status = sherd__world_join(out, arena, true, rank, options, diag);
    if (status) {
        sherd__unpin(&before);
        return status;
    }
    (*out)->pinning = before;
    (*out)->carried = carried;
    (*out)->leave = leave;
    return SHERD_OK;
}

/*
 * The arenas of a world, mapped on all ranks, or on none; all[ranks], prices[ranks]: room for what
 * they tell.
 */
static sherd_status find_arena(sherd__arena *arena, sherd__carried *carried, sherd__hello *mine,
                               sherd__hello *all, sherd_price *prices, sherd__diag *diag)
{
    const sherd_carrier *carrier = &carried->carrier;

    sherd_status status = sherd__builds_compare(carrier, all && prices, diag);
    if (!status)
        status = sherd__hellos_exchange(carrier, mine, all, diag);
    if (!status && all[0].priced)
        status = hand_out_price(carried, prices, diag);
    bool apart = !status && sherd__by_messages(carrier, all);
    bool shared = !status && (!apart || is_mixed(carrier, all));
    if (shared)
        status = share_arena(arena, carried, !apart, mine, all, diag);
    if (apart && !status)
        status = keep_apart(arena, carried, shared, mine, all, diag);
    if (apart && !status)
        status = compare_clocks(arena, carrier, all, diag);
    arena->price = &carried->price;
    arena->opened_by = carried->function;
    return status;
}

/*
 * `mine` may carry a failure already: then nobody opens anything. *arena is for the caller to
 * unmap, if it is any.
 */
static sherd_status meet(sherd_world **out, sherd__carried *carried, sherd__arena *arena,
                         sherd__hello *mine, const sherd_world_options *options, sherd__diag *diag)
{
    sherd__heap heap = {0};
    size_t ranks = (size_t)carried->carrier.ranks;
    sherd__hello *all = sherd__alloc(&heap, ranks, sizeof *all);
    sherd_price *prices = sherd__alloc(&heap, ranks, sizeof *prices);

    sherd_status status = find_arena(arena, carried, mine, all, prices, diag);
    if (!status)
        status = join(out, carried, sherd__job_of(&all[0]), arena, options, diag);
    sherd__free(&heap, prices);
    sherd__free(&heap, all);
    return status;
}

/*
 * Refuse a carrier that sherd cannot use. All ranks find the same faults, so none needs to be told.
 */
static sherd_status refuse(const sherd_carrier *carrier, sherd__diag *diag)
{
    if (carrier->version != SHERD_CARRIER_VERSION)
        return sherd__fail(diag, SHERD_EINVAL, "a carrier of version %d, but this sherd has %d",
                           carrier->version, SHERD_CARRIER_VERSION);
    if (!carrier->gather || !carrier->close || carrier->rank < 0 || carrier->rank >= carrier->ranks)
        return sherd__fail(diag, SHERD_EINVAL, "a carrier of rank %d of %d, or without a function",
                           carrier->rank, carrier->ranks);
    if (carrier->ranks > SHERD_MAX_RANKS)
        return sherd__fail(diag, SHERD_ELIMIT, "%s brings %d ranks, but a world takes %d",
                           carrier->name, carrier->ranks, SHERD_MAX_RANKS);
    return SHERD_OK;
}

static sherd_status open_with(sherd_world **out, const sherd_carrier *carrier, bool launched,
                              const sherd_world_options *options, sherd__diag *diag)
{
    static const sherd_world_options none;
    sherd__heap heap = {0};
    sherd__carried unkept = {.carrier = *carrier,
                             .launched = launched,
                             .function = launched ? "sherd_world_open" : "sherd_world_open_with"};
    sherd__carried *carried = NULL;
    sherd__arena arena = {.base = NULL};
    const sherd__argument need[] = {{"out", out}, {NULL, NULL}};
    const char *transport;

    sherd_status status = refuse(carrier, diag);
    if (!status) {
        sherd__hello mine = sherd__introduce(options ? options : &none);
        carried = sherd__alloc(&heap, 1, sizeof *carried);
        if (!carried ||
            !(launched ? sherd__say_joined(true) : (sherd__leave_launch() && sherd__leave_job())))
            (void)sherd__no_memory(diag, unkept.function);
        else if (!sherd__require(diag, unkept.function, need) &&
                 !sherd__transport_asked(&transport, diag) &&
                 !sherd__trace_begin(diag) /* all may: nobody writes before all have met */ &&
                 carrier->rank == 0)
            (void)sherd__price_find(&unkept.price, &heap, options, diag);
        mine.traced = sherd__trace_is_asked();
        mine.priced = unkept.price.kind == SHERD_PRICE_LINKS;
        sherd__note_failure(&mine, diag, carrier->rank);
        if (carried)
            *carried = unkept;
        status =
            meet(out, carried ? carried : &unkept, &arena, &mine, options ? options : &none, diag);
    }
    if (!status)
        return SHERD_OK;
    diag->told = carrier->rank > 0 && !sherd__is_lost(status); /* all ranks have the same text */
    (void)close_carried(carried ? carried : &unkept, !sherd__is_lost(status));
    sherd__arena_unmap(&arena);
    sherd__free(&heap, carried);
    return status;
}

sherd_status sherd__carried_open(sherd_world **out, const sherd_world_options *options,
                                 sherd__diag *diag)
{
    sherd_carrier carrier;

    if (sherd__has_joined())
        return sherd__fail(diag, SHERD_EINVAL, "this process has joined its world already");
    if (sherd__carrier_find(&carrier, diag))
        return diag->status;
    return open_with(out, &carrier, true, options, diag);
}

/* The world that `sherd dry` asks for, whatever the carrier has brought together. */
static sherd_status open_dry(sherd_world **out, const sherd_carrier *carrier,
                             const sherd_world_options *options, sherd__diag *diag)
{
    const sherd__argument need[] = {{"out", out}, {NULL, NULL}};

    if (!refuse(carrier, diag) && !sherd__require(diag, "sherd_world_open_with", need))
        (void)sherd__dry_open(out, 0, options, diag);
    if (carrier->version == SHERD_CARRIER_VERSION && carrier->close)
        carrier->close(carrier->self, true);
    return diag->status;
}

sherd_status sherd_world_open_with(sherd_world **out, const sherd_carrier *carrier,
                                   const sherd_world_options *options)
{
    sherd__diag diag = {.rank = -1};
    const sherd__argument list[] = {{"carrier", carrier}, {NULL, NULL}};

    if (out)
        *out = NULL;
    sherd_status status = sherd__require(&diag, "sherd_world_open_with", list);
    if (!status)
        status = sherd__dry_is_asked() ? open_dry(out, carrier, options, &diag)
                                       : open_with(out, carrier, false, options, &diag);
    if (status)
        sherd__tell_why(options ? options->error : NULL, &diag);
    return status;
}

sherd_status sherd__spawn_carried(bool *here, int *exit_status, const sherd__launch_plan *plan,
                                  sherd__diag *diag)
{
    sherd_world *world;

    *here = !sherd__has_joined();
    if (!*here)
        return SHERD_OK;
    sherd_status status = sherd__carried_open(&world, plan->options, diag);
    if (status)
        return status;
    world->lent = true;
    *exit_status = plan->body(world, plan->payload);
    diag->told = world->rank > 0;
    diag->status = sherd__world_close(world, diag->text);
    diag->told |= sherd__is_lost(diag->status);
    return diag->status;
}
