/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of ranks that a carrier brings together. They tell each other where they are; rank 0 makes the arena of those of
 * one machine, and the others find it in its list of files, as ranks behind a wrapper find that of `sherd run`. From then on
 * all is as there: same speed, same protocol, same errors. All ranks get the same status. A few hundred microseconds.
 */
#include "inside.h"
#include "carried.h"
#include "watch.h"

#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t build =
    UINT64_C(0x7368657264303430) ^ sizeof(sherd__control) << 16 ^ sizeof(sherd__lane);

/* What ranks tell each other. */
typedef struct hello {
    uint64_t region_bytes;
    uint64_t machine, space; /* hash of what names the machine; its pid namespace */
    char host[64];
    int pid, fd;
    bool no_pin;
    cpu_set_t cores;     /* that it may use */
    sherd_status status; /* second round: how it went so far */
    char text[SHERD_ERROR_BYTES];
} hello;

/* ---- telling --------------------------------------------------------------------------------------- */

/* The machine's name for this start of it; what its hosts file says may be the same everywhere. */
static void name_machine(hello *out)
{
    const char *given = getenv("SHERD_HOST");
    char boot[64];

    if (given)
        snprintf(out->host, sizeof out->host, "%s", given);
    else if (gethostname(out->host, sizeof out->host - 1))
        snprintf(out->host, sizeof out->host, "?");
    (void)sherd__read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    out->machine = sherd__hash_text(given ? sherd__hash_text(6, given) : 5, boot);
    out->space = sherd__pid_space();
}

static hello introduce(const sherd_world_options *options)
{
    hello mine = {.region_bytes = options->region_bytes,
                  .pid = (int)getpid(),
                  .fd = -1,
                  .no_pin = options->no_pin};

    name_machine(&mine);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores))
        CPU_ZERO(&mine.cores);
    return mine;
}

/* Bring `mine`, get all; then the first failure is everybody's. */
static sherd_status exchange(const sherd_carrier *carrier, const hello *mine, hello *all,
                             sherd__diag *diag)
{
    if (!carrier->gather(carrier->self, mine, sizeof *mine, all))
        return sherd__fail(diag, SHERD_EPEER, "rank %d: %s: ranks do not reach each other",
                           carrier->rank, carrier->name);
    for (int r = 0; r < carrier->ranks; r++)
        if (all[r].status)
            return sherd__fail(diag, all[r].status, "%.*s", SHERD_ERROR_BYTES - 1, all[r].text);
    return SHERD_OK;
}

/* Before anything else: what others tell later is of that size then. */
static sherd_status compare_builds(const sherd_carrier *carrier, sherd__diag *diag)
{
    uint64_t all[SHERD_MAX_RANKS];

    if (!carrier->gather(carrier->self, &build, sizeof build, all))
        return sherd__fail(diag, SHERD_EPEER, "rank %d: %s: ranks do not reach each other",
                           carrier->rank, carrier->name);
    for (int r = 1; r < carrier->ranks; r++)
        if (all[r] != all[0])
            return sherd__fail(diag, SHERD_EINVAL, "ranks 0 and %d run different versions of sherd",
                               r);
    return SHERD_OK;
}

static sherd_status compare_machines(const sherd_carrier *carrier, const hello *all,
                                     sherd__diag *diag)
{
    for (int r = 1; r < carrier->ranks; r++)
        if (all[r].machine != all[0].machine || all[r].space != all[0].space)
            return sherd__fail(diag, SHERD_ENOTSUP,
                               "rank 0 is on host %.60s and rank %d on host %.60s: ranks of one "
                               "world share the memory of one machine (and one pid namespace)",
                               all[0].host, r, all[r].host);
    return SHERD_OK;
}

/* ---- the arena of one machine --------------------------------------------------------------------- */

static void note_failure(hello *mine, const sherd__diag *diag, int rank)
{
    mine->status = diag->status;
    if (diag->status)
        snprintf(mine->text, sizeof mine->text, "rank %d: %.*s", rank, SHERD_ERROR_BYTES - 16,
                 diag->text);
}

/* Map the arena of rank 0, whose process has it open as this descriptor. */
static void map_of(sherd__arena *out, const hello *first, sherd__diag *diag)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", first->pid, first->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        sherd__fail(diag, SHERD_ENOTSUP,
                    "can not open the memory of rank 0 (%s): %s; ranks of one machine must be of "
                    "one user and see each other's processes",
                    path, strerror(errno));
        return;
    }
    (void)sherd__arena_map(out, fd, diag);
    close(fd);
}

/* Whose cores: those of all ranks together; *bound: the launcher has given them different ones. */
static int cores_of(const sherd_carrier *carrier, const hello *all, bool *bound)
{
    cpu_set_t sum = all[0].cores;

    *bound = all[0].no_pin;
    for (int r = 1; r < carrier->ranks; r++) {
        *bound |= all[r].no_pin || !CPU_EQUAL(&all[0].cores, &all[r].cores);
        CPU_OR(&sum, &sum, &all[r].cores);
    }
    return CPU_COUNT(&sum);
}

/* The arena of all ranks, mapped on each, or on none. */
static sherd_status share_arena(sherd__arena *out, sherd__carried *carried, hello *mine, hello *all,
                                sherd__diag *diag)
{
    const sherd_carrier *carrier = &carried->carrier;
    bool bound;
    int cores = cores_of(carrier, all, &bound);

    memset(out, 0, sizeof *out);
    if (carrier->rank == 0 &&
        !sherd__arena_create(out, carrier->ranks, (size_t)mine->region_bytes, &mine->fd, diag) &&
        !bound)
        sherd__cores_take(&carried->cores, out->control);
    note_failure(mine, diag, carrier->rank);
    sherd_status status = exchange(carrier, mine, all, diag);
    if (!status) {
        if (carrier->rank != 0)
            map_of(out, &all[0], diag);
        if (!diag->status)
            sherd__post_process(&out->control->post[carrier->rank]);
        note_failure(mine, diag, carrier->rank);
        status = exchange(carrier, mine, all, diag);
    }
    if (mine->fd >= 0)
        close(mine->fd);
    if (status)
        sherd__arena_unmap(out);
    out->cores = cores;
    return status;
}

/* ---- opening ---------------------------------------------------------------------------------------- */

static sherd_status join(sherd_world **out, sherd__carried *carried, const sherd__arena *arena,
                         const sherd_world_options *options, sherd__diag *diag)
{
    int rank = carried->carrier.rank;
    sherd__pinning before = {.pinned = false};

    if (rank == 0 && carried->carrier.ranks > 1)
        carried->guard = sherd__guard(arena); /* nobody has joined before rank 0 has */
    if (!options->no_pin)
        before = sherd__pin(&arena->control->post[rank]);
    sherd_status status = sherd__world_join(out, arena, true, rank, options, diag);
    if (status) {
        sherd__unpin(&before);
        return status;
    }
    (*out)->pinning = before;
    (*out)->carried = carried;
    return SHERD_OK;
}

/* `mine` may carry a failure already: then nobody opens anything. */
static sherd_status meet(sherd_world **out, sherd__carried *carried, hello *mine,
                         const sherd_world_options *options, sherd__diag *diag)
{
    const sherd_carrier *carrier = &carried->carrier;
    hello all[SHERD_MAX_RANKS];
    sherd__arena arena;

    sherd_status status = compare_builds(carrier, diag);
    if (!status)
        status = exchange(carrier, mine, all, diag);
    if (!status)
        status = compare_machines(carrier, all, diag);
    if (!status)
        status = share_arena(&arena, carried, mine, all, diag);
    if (status)
        return status;
    status = join(out, carried, &arena, options, diag);
    if (status)
        sherd__arena_unmap(&arena);
    return status;
}

/* What is the same on all ranks. */
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

static void close_carried(sherd__carried *carried, bool well)
{
    if (carried->guard >= 0)
        close(carried->guard);
    sherd__cores_give(&carried->cores);
    if (carried->launched)
        (void)sherd__say_joined(false);
    if (carried->carrier.version == SHERD_CARRIER_VERSION && carried->carrier.close)
        carried->carrier.close(carried->carrier.self, well);
}

static sherd_status open_with(sherd_world **out, const sherd_carrier *carrier, bool launched,
                              const sherd_world_options *options, sherd__diag *diag)
{
    static const sherd_world_options none;
    sherd__heap heap = {0};
    sherd__carried unkept = {.carrier = *carrier, .guard = -1, .launched = launched};
    sherd__carried *carried = NULL;

    sherd_status status = refuse(carrier, diag);
    if (!status) {
        hello mine = introduce(options ? options : &none);
        carried = sherd__alloc(&heap, 1, sizeof *carried);
        if (!carried || (launched && !sherd__say_joined(true)))
            (void)sherd__no_memory(diag, "sherd_world_open");
        note_failure(&mine, diag, carrier->rank);
        if (carried)
            *carried = unkept;
        status = meet(out, carried ? carried : &unkept, &mine, options ? options : &none, diag);
    }
    if (!status)
        return SHERD_OK;
    close_carried(carried ? carried : &unkept, !sherd__is_lost(status));
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

sherd_status sherd_world_open_with(sherd_world **out, const sherd_carrier *carrier,
                                   const sherd_world_options *options)
{
    sherd__diag diag = {.rank = -1};
    const sherd__argument list[] = {{"out", out}, {"carrier", carrier}, {NULL, NULL}};

    if (out)
        *out = NULL;
    sherd_status status = sherd__require(&diag, "sherd_world_open_with", list);
    if (!status)
        status = open_with(out, carrier, false, options, &diag);
    else if (carrier && carrier->version == SHERD_CARRIER_VERSION && carrier->close)
        carrier->close(carrier->self, true);
    if (status && options && options->error)
        snprintf(options->error, SHERD_ERROR_BYTES, "%s", diag.text);
    return status;
}

void sherd__carried_close(sherd_world *world, bool well)
{
    sherd__carried *carried = world->carried;
    sherd__heap heap = {.live = 1}; /* it is older than the world's */

    if (!carried)
        return;
    world->carried = NULL;
    close_carried(carried, well);
    sherd__free(&heap, carried);
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
    sherd__arena arena = world->arena;
    world->owns_arena = false; /* what the close says is read from it */
    int rank = world->rank;
    diag->status = sherd__world_close(world);
    memcpy(diag->text, arena.control->post[rank].last_text, sizeof diag->text);
    sherd__arena_unmap(&arena);
    return diag->status;
}
