/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world: opening and closing it, and the small questions. All state hangs here. What is shared
 * with other ranks is in the arena; all else is this rank's own, from its own heap.
 */
#include "inside.h"
#include "devices.h"
#include "dry.h"
#include "pin.h"
#include "priced.h"

#include "base/variable.h"
#include "search/plans.h"
#include "vector/choose.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_SECONDS = 600, FEWEST_SOURCES = 64 };

/* ---- opening --------------------------------------------------------------------------------- */

static sherd_status read_patience(sherd_world *world)
{
    const char *text = sherd__variable("SHERD_TIMEOUT");
    long seconds = TIMEOUT_SECONDS;

    if (text && strcmp(text, "none") == 0)
        seconds = 0;
    else if (text && !sherd__read_seconds(&seconds, text))
        return sherd__fail(&world->diag, SHERD_EINVAL,
                           "SHERD_TIMEOUT=%.40s: expected seconds, 1 to 1000000, or 0 or none "
                           "for no limit",
                           text);
    sherd__patience_init(&world->patience, world->ranks > world->arena.cores,
                         seconds ? (int64_t)seconds * 1000000000 : INT64_MAX);
    return SHERD_OK;
}

/*
 * A name that no kernels have is allowed by none of them, which would leave the plain ones: right,
 * but many times slower, and nobody would know of the typing error.
 */
static sherd_status check_kernels(sherd_world *world)
{
    static const struct {
        const char *variable, *name[7];
    } choices[] = {
        {"SHERD_KERNELS", {"reference", "simd128", "avx2", "avx512", "avx512_bf16", "amx"}},
        {"SHERD_GEMM", {"reference", "tiles", "onednn"}}};

    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const char *text = sherd__variable(choices[i].variable), *const *name = choices[i].name;
        bool known = !text;
        for (; !known && *name; name++)
            known = strcmp(text, *name) == 0;
        if (!known)
            return sherd__fail(&world->diag, SHERD_EINVAL, "%s=%.40s: expected %s",
                               choices[i].variable, text,
                               i == 0 ? "reference, simd128, avx2, avx512, avx512_bf16 or amx"
                                      : "reference, tiles or onednn");
    }
    return SHERD_OK;
}

/* A world that has nothing yet but its heap. */
static sherd_world *create(int ranks, int rank, const sherd_world_options *options)
{
    sherd__heap heap = {0};
    sherd_world *world = sherd__alloc(&heap, 1, sizeof *world);

    if (!world)
        return NULL;
    world->heap = heap;
    world->rank = rank;
    world->ranks = world->slots = ranks;
    world->slot = rank;
    world->diag.rank = world->local.rank = rank;
    world->seed = options ? options->seed : 0;
    world->process = (int)getpid();
    sherd__own_nothing(world);
    world->alarm = &world->own_alarm;
    world->death = &world->own_death;
    sherd__space_init(&world->space, &world->heap, &world->diag, ranks, rank);
    world->space.owner = world;
#if defined(__SANITIZE_ADDRESS__)
    world->space.most_idle = 0; /* who uses a layout after its time is to be seen */
#endif
    return world;
}

/*
 * The rooms' states, the highest first. Functions of the program's that run meanwhile may use any
 * room, which then has a state again: so each time it is looked for from the top.
 */
static void destroy_rooms(sherd_world *world)
{
    for (int room = SHERD__ROOMS - 1; room >= 0; room--) {
        void (*destroy_room)(sherd_world * world, void *state) = world->destroy[room];
        if (!destroy_room)
            continue;
        world->destroy[room] = NULL;
        destroy_room(world, world->state[room]);
        world->state[room] = NULL;
        room = SHERD__ROOMS;
    }
}

/* `done`: it has an arena, and all ranks have come to its end. */
static void destroy(sherd_world *world, bool done)
{
    sherd__arena arena = world->arena;
    sherd__post *post = world->post;
    bool owns = world->owns_arena;

    sherd__trace_close(world);
    sherd__drop_calls(world);
    if (world->remote)
        sherd__remote_leave(world);
    destroy_rooms(world);
    sherd__moves_clear(world);
    sherd__plans_clear(&world->space);
    sherd__space_clear(&world->space);
    sherd__groups_clear(world);
    sherd__log_clear(world);
    sherd__dry_end(world);
    sherd__free(&world->heap, world->seen);
    sherd__free(&world->heap, world->sources);
    sherd__free(&world->heap, world->picture);
    sherd__store_close(world, done);
    while (world->spare) {
        sherd__call_state *call = world->spare;
        world->spare = call->next;
        sherd__free(&world->heap, call->task);
        sherd__free(&world->heap, call);
    }
    sherd__own_close(world);
    sherd__unpin(&world->pinning);
    sherd__device_sent_all(world);
    sherd__device_close(world->device);
    sherd__free(&world->heap, world->devices.word);
    sherd__free(&world->heap, world->devices.reads);
    sherd__heap heap = world->heap;
    sherd__free(&heap, world);
    if (post)
        atomic_store(&post->claimed, 0);
    if (owns)
        sherd__arena_unmap(&arena);
}

/*
 * The group of all ranks has lane 0; lanes of a former world are given up, and no others touched:
 * each has pages of its own, which looking at them would fill. False for lack of memory.
 */
static bool start_lanes(sherd_world *world)
{
    sherd__group *whole = &world->whole;

    for (int lane = 1; lane < world->post->lanes; lane++)
        atomic_store(&sherd__own_lane(world, lane)->leader, 0);
    world->lanes = 1;
    if (!sherd__seen_reserve(world, 1))
        return false;
    sherd__ranks_fill(&whole->members, world->slots);
    whole->count = world->ranks;
    whole->own = sherd__own_lane(world, 0);
    atomic_store(&whole->own->leader, 1);
    snprintf(whole->name, sizeof whole->name, "world");
    return sherd__log_add(world, whole);
}

/* What calls and slow rounds write into. False for lack of memory. */
static bool open_scratch(sherd_world *world)
{
    world->source_room = world->slots > FEWEST_SOURCES ? world->slots : FEWEST_SOURCES;
    world->sources = sherd__alloc(&world->heap, (size_t)world->source_room, sizeof *world->sources);
    return world->sources && sherd__picture_open(world);
}

sherd_status sherd_world_ended(const sherd_world *world)
{
    if (!world || sherd__is_forked(world))
        return SHERD_EINVAL;
    return sherd__status_in(sherd__look(world->death));
}

static bool has_ended(const void *world)
{
    return sherd__look(((const sherd_world *)world)->death) != 0;
}

static sherd_status check_options(sherd_world *world, const char *function,
                                  const sherd_world_options *options)
{
    const uint64_t least = UINT64_C(1) << 21, most = UINT64_C(1) << 46;
    uint64_t bytes = options ? options->region_bytes : 0;

    if (bytes == 0 || (bytes >= least && bytes <= most))
        return SHERD_OK;
    return sherd__fail(
        &world->diag, SHERD_EINVAL, "%s: region_bytes is %llu: expected 0, or %llu to %llu",
        function, (unsigned long long)bytes, (unsigned long long)least, (unsigned long long)most);
}

/* All ranks have the same options; what differs is seen in the names of the meetings. */
static sherd_status agree_on_options(sherd_world *world, const char *function,
                                     const sherd_world_options *options)
{
    char name[SHERD__MEETING_NAME];

    snprintf(name, sizeof name, "%s: seed %llu, SHERD_VERIFY=%d, %s, region %llu", function,
             (unsigned long long)world->seed, world->verify, world->device ? "cuda" : "cpu",
             (unsigned long long)(options ? options->region_bytes : 0));
    sherd_status status = sherd__agree(world, SHERD_OK, 3, name);
    if (!status && world->device)
        status = sherd__agree(world, sherd__world_device_meet(world), 0, function);
    return status;
}

static sherd_status attach(sherd_world *world, const sherd__arena *arena,
                           const sherd_world_options *options)
{
    sherd__control *control = arena->control;
    const char *function = arena->opened_by ? arena->opened_by : "sherd_world_open";

    world->arena = *arena;
    world->remote = arena->remote;
    world->slots = control->ranks;
    world->slot = arena->dry ? 0 : world->rank;
    sherd__ranks_fill(&world->near, world->slots);
    world->transport = arena->dry ? &sherd__dry_transport : &sherd__arena_transport;
    world->alarm = &control->alarm;
    world->death = &control->death;
    world->post = &control->post[world->slot];
    world->round = sherd__look(&world->post->arrived);
    world->base = world->post->base;
    sherd__put(&world->post->numbers, world->base);
    const char *verify = sherd__variable("SHERD_VERIFY");
    world->verify = verify && strcmp(verify, "0") != 0;
    unsigned char *region =
        arena->base + control->regions + (size_t)world->slot * (size_t)control->region_step;
    sherd_status status = check_options(world, function, options);
    if (!status)
        status = read_patience(world);
    if (!status)
        status = check_kernels(world);
    if (!status)
        status = sherd__trace_open(world);
    if (!status)
        status = sherd__dry_begin(world);
    if (!status)
        status = sherd__limit_join(world);
    if (!status)
        status = sherd__price_bring(world, options);
    if (!status && !arena->dry)
        status = sherd__world_device_open(world, options);
    if (status)
        return status;
    if (world->device)
        sherd__device_watch(world->device, has_ended, world);
    if (!sherd__own_open(world) ||
        !sherd__store_open(world, region, (size_t)control->region_bytes) || !start_lanes(world) ||
        !open_scratch(world))
        return sherd__no_memory(&world->diag, function);
    if (world->remote) {
        sherd__remote_begin(world);
        world->transport = &sherd__mpi_transport;
    }
    sherd__kernels_choose(&world->kernels);
    atomic_store(&world->post->presence, SHERD__PRESENT);
    status = agree_on_options(world, function, options);
    sherd__price_take(world);
    return status;
}

sherd_status sherd__world_join(sherd_world **out, const sherd__arena *arena, bool owns, int rank,
                               const sherd_world_options *options, sherd__diag *diag)
{
    const char *function = arena->opened_by ? arena->opened_by : "sherd_world_open";
    const sherd__argument need[] = {{"out", out}, {NULL, NULL}};
    sherd__post *post = &arena->control->post[rank];
    sherd_world *world = NULL;

    diag->rank = rank;
    sherd_status status = sherd__require(diag, function, need);
    if (!status) {
        *out = NULL;
        world = arena->dry ? create(arena->dry->ranks, arena->dry->rank, options)
                           : create(arena->control->ranks, rank, options);
        if (!world)
            status = sherd__no_memory(diag, function);
    }
    if (world) {
        status = attach(world, arena, options);
        if (!status) {
            world->owns_arena = owns;
            *out = world;
            return SHERD_OK;
        }
        *diag = world->diag;
        destroy(world, false);
    }
    /* The others must not wait for a rank that never came. */
    if (!sherd__look(&arena->control->death)) {
        snprintf(post->ending, sizeof post->ending, "%s", diag->text);
        sherd__arena all = *arena;
        sherd__end_world(&all, sherd__end_word(SHERD__END_TOLD, rank, 0, status));
    }
    return status;
}

static sherd_status tell(const sherd_world_options *options, const sherd__diag *diag)
{
    sherd__tell_why(options ? options->error : NULL, diag);
    return diag->status;
}

sherd_status sherd_world_alone(sherd_world **out, const sherd_world_options *options)
{
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;

    if (sherd__require(&diag, "sherd_world_alone", (sherd__argument[]){{"out", out}, {NULL, NULL}}))
        return tell(options, &diag);
    *out = NULL;
    if (sherd__trace_begin(&diag) ||
        sherd__arena_create(&arena, 1, options ? options->region_bytes : 0, NULL, &diag))
        return tell(options, &diag);
    arena.cores = 1;
    if (!sherd__world_join(out, &arena, true, 0, options, &diag))
        return SHERD_OK;
    sherd__arena_unmap(&arena);
    return tell(options, &diag);
}

/* ---- closing --------------------------------------------------------------------------------- */

sherd_status sherd_world_close(sherd_world *world)
{
    if (!world)
        return SHERD_OK;
    if (world->lent && !sherd__is_stranger(world))
        return sherd__fail(
            &world->diag, SHERD_EINVAL,
            "sherd_world_close: sherd_spawn closes this world when its body returns");
    if (world->watcher.calls_back && !sherd__is_stranger(world) && world->watcher.calls_back(world))
        return sherd__fail(&world->diag, SHERD_EINVAL,
                           "sherd_world_close: an operator, a module, a handler or a hook is "
                           "running in this world: close it when that has returned");
    return sherd__world_close(world, NULL);
}

sherd_status sherd__world_close(sherd_world *world, char *text)
{
    if (sherd__is_stranger(world)) {
        if (text)
            snprintf(text, SHERD_ERROR_BYTES, "%s", world->diag.text);
        return SHERD_EINVAL; /* what it holds here is a copy, and ends with this process */
    }
    sherd_status status = sherd__check(world, SHERD__CLOSE, "sherd_world_close");
    if (world->post) {
        world->post->base = world->base;
        world->post->lanes = world->lanes;
        snprintf(world->post->last_text, sizeof world->post->last_text, "%s",
                 status ? world->diag.text : "");
        world->post->last_status = status;
        atomic_store(&world->post->presence, SHERD__GONE);
    }
    if (text)
        snprintf(text, SHERD_ERROR_BYTES, "%s", status ? world->diag.text : "");
    sherd__dry_report(world);
    if (world->leave)
        world->leave(world, !sherd__is_lost(status));
    /* The launcher's mapping keeps what is left in a region, until the whole job ends. Where a rank
     * was lost others may still read in it, to save what they have. */
    destroy(world, world->post && !sherd__is_lost(status));
    return status;
}

/* ---- a paper world --------------------------------------------------------------------------- */

static void paper_raise(sherd_world *world, sherd_status status, const char *text)
{
    if (sherd__look(world->alarm))
        return;
    atomic_store(world->alarm, (uint64_t)(uint32_t)-status);
    snprintf(world->closed.text, sizeof world->closed.text, "%s", text);
}

const sherd__transport sherd__paper_transport = {.name = "paper", .raise = paper_raise};

sherd_status sherd_world_paper(sherd_world **out, int ranks)
{
    if (out)
        *out = NULL;
    if (!out || ranks < 1)
        return SHERD_EINVAL;
    sherd_world *world = create(ranks, -1, NULL);
    if (!world)
        return SHERD_ENOMEM;
    world->transport = &sherd__paper_transport;
    sherd__kernels_choose(&world->kernels); /* a tensor without elements is one also on paper */
    *out = world;
    return SHERD_OK;
}

/* ---- questions ------------------------------------------------------------------------------- */

int sherd_world_rank(const sherd_world *world)
{
    return world ? world->rank : -1;
}

int sherd_world_ranks(const sherd_world *world)
{
    return world ? world->ranks : 0;
}

const char *sherd_world_device(const sherd_world *world)
{
    return !world ? "" : world->device ? sherd__device_name(world->device) : "cpu";
}

const char *sherd_world_transport(const sherd_world *world)
{
    if (!world)
        return "";
    return world->arena.threads ? "threads" : world->transport->name;
}

uint64_t sherd_world_seed(const sherd_world *world)
{
    return world ? world->seed : 0;
}

void sherd_world_fail_allocation(sherd_world *world, int64_t n)
{
    if (!world)
        return;
    world->heap.allocations = 0;
    world->heap.fail_at = n;
}

int64_t sherd_world_allocations(const sherd_world *world)
{
    return world ? world->heap.allocations : 0;
}

/* ---- what the rooms above see ---------------------------------------------------------------- */

sherd__space *sherd__world_space(sherd_world *world)
{
    return &world->space;
}

sherd__diag *sherd__world_diag(sherd_world *world)
{
    return world ? &world->diag : NULL;
}

const sherd__kernel_set *sherd__world_kernels(const sherd_world *world)
{
    return &world->kernels;
}

sherd_world *sherd__space_world(const sherd__space *space)
{
    return space->owner;
}

void sherd__world_set_state(sherd_world *world, sherd__room room, void *state,
                            void (*state_destroy)(sherd_world *world, void *state))
{
    sherd__assert(world->rank, !world->state[room]);
    world->state[room] = state;
    world->destroy[room] = state_destroy;
}

void *sherd__world_reserve(sherd_world *world)
{
    uintptr_t at = (uintptr_t)world->reserve;
    return (void *)((at + 63) & ~(uintptr_t)63);
}
