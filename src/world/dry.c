/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of a dry world, where this rank is alone, and what is left out there: counted by
 * name, and with the time that it would take. Blocks are those of an arena, and nobody writes into
 * them, so that the kernel gives no pages for them. Costs some tens of nanoseconds for each
 * operator.
 */
#include "dry.h"

#include "inside.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

enum { PICO = 1000 };

/* ---- time ------------------------------------------------------------------------------------ */

bool sherd__is_dry(const sherd_world *world)
{
    return world->dry != NULL;
}

int64_t sherd__clock(const sherd_world *world)
{
    return world->dry ? world->dry->picoseconds / PICO : sherd__now();
}

/* Of one rate; what takes for ever is the rate's fault, and cut. */
static double picoseconds_of(double amount, double rate)
{
    return rate > 0 ? fmin(amount / rate * 1e12, 0x1p60) : 0;
}

static double rate_of(const sherd_rates *rates, sherd_dtype dtype)
{
    return dtype == SHERD_F64          ? rates->f64
           : sherd__is_half(dtype)     ? rates->half
                                       : rates->f32;
}

/* Clocks and counts stay at the largest number that there is. */
static void add(int64_t *to, int64_t more)
{
    if (__builtin_add_overflow(*to, more, to))
        *to = INT64_MAX;
}

static void pass(sherd__dry *dry, int64_t picoseconds)
{
    add(&dry->picoseconds, picoseconds);
}

/* ---- what is left out ------------------------------------------------------------------------ */

/* The row of a name; NULL for lack of memory: then only the clock goes on. */
static sherd_dry_work *row_of(sherd_world *world, const char *name)
{
    sherd__dry *dry = world->dry;

    for (int i = 0; i < dry->count; i++)
        if (dry->work[i].name == name || strcmp(dry->work[i].name, name) == 0)
            return &dry->work[i];
    if (dry->count == dry->room) {
        sherd_dry_work *grown = sherd__grow(&world->heap, dry->work, (size_t)dry->room,
                                            (size_t)dry->room + 64, sizeof *grown);
        if (!grown)
            return NULL;
        dry->work = grown;
        dry->room += 64;
    }
    dry->work[dry->count] = (sherd_dry_work){.name = name};
    return &dry->work[dry->count++];
}

bool sherd__left_out(sherd_world *world, const char *name, sherd_dtype dtype, double operations,
                     int64_t bytes)
{
    sherd__dry *dry = world->dry;

    if (!dry)
        return false;
    double computing = picoseconds_of(operations, rate_of(&dry->rates, dtype));
    int64_t time = (int64_t)fmax(computing, picoseconds_of((double)bytes, dry->rates.memory));
    sherd_dry_work *row = row_of(world, name);
    if (row) {
        row->calls++;
        row->operations += operations;
        add(&row->bytes, bytes);
        add(&row->picoseconds, time);
    }
    pass(dry, time);
    return true;
}

sherd_status sherd__dry_begin(sherd_world *world, const sherd_rates *rates)
{
    world->dry = sherd__alloc(&world->heap, 1, sizeof *world->dry);
    if (!world->dry)
        return sherd__no_memory(&world->diag, "sherd_world_dry");
    if (rates)
        world->dry->rates = *rates;
    pass(world->dry, PICO); /* a clock that says 0 is none */
    return SHERD_OK;
}

void sherd__dry_end(sherd_world *world)
{
    if (world->dry)
        sherd__free(&world->heap, world->dry->work);
    sherd__free(&world->heap, world->dry);
    world->dry = NULL;
}

/* ---- the transport --------------------------------------------------------------------------- */

static bool is_settled(sherd_world *world, sherd__block *block)
{
    (void)world;
    (void)block;
    return true;
}

/* It takes as long as the busiest rank by the plan's price. */
static bool call(sherd_world *world, sherd__group *group, const char *name,
                 const sherd__move *moves, int count, bool begin)
{
    (void)group;
    (void)name;
    (void)begin;
    for (int i = 0; i < count; i++)
        pass(world->dry, moves[i].plan->step[moves[i].step].picoseconds);
    return true;
}

/* All tell what this rank tells. */
static bool share(sherd_world *world, sherd__group *group, const char *name,
                  const sherd__sharing *numbers)
{
    size_t words = (size_t)numbers->words;

    (void)name;
    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        memcpy(numbers->all + (size_t)numbers->place[q] * words, numbers->mine,
               words * sizeof *numbers->mine);
    pass(world->dry, sherd__call_time());
    return true;
}

/* There is nobody to differ from. */
static sherd_status meet(sherd_world *world, int kind, sherd_status mine, uint64_t arguments,
                         const char *name)
{
    (void)arguments;
    (void)name;
    if (kind == SHERD__AGREE)
        return mine;
    sherd_status status = sherd__alarm_read(world, world->diag.text, sizeof world->diag.text);
    world->diag.status = status;
    atomic_store(world->alarm, 0);
    world->quiet = false;
    world->local.status = SHERD_OK;
    if (!status)
        sherd__ledgers_passed(world);
    return status;
}

const sherd__transport sherd__dry_transport = {
    .name = "dry",
    .reads_in_place = true,
    .raise = sherd__arena_raise,
    .take = sherd__arena_take,
    .give = sherd__arena_give,
    .readable = is_settled,
    .writable = is_settled,
    .ready = is_settled,
    .call = call,
    .share = share,
    .meet = meet,
};

/* ---- questions ------------------------------------------------------------------------------- */

bool sherd_world_is_dry(const sherd_world *world)
{
    return world && world->dry;
}

int64_t sherd_dry_time(const sherd_world *world)
{
    return sherd_world_is_dry(world) ? world->dry->picoseconds / PICO : 0;
}

sherd_dry_work sherd_dry_work_at(const sherd_world *world, int i)
{
    if (!sherd_world_is_dry(world) || i < 0 || i >= world->dry->count)
        return (sherd_dry_work){0};
    return world->dry->work[i];
}
