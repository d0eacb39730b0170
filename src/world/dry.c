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
#include "price/price.h"

#include <math.h>
#include <string.h>

enum { PICO = 1000 };

/* ---- time ------------------------------------------------------------------------------------ */

/* The time at a rate; cut where a tiny rate makes it overflow. */
static double picoseconds_of(double amount, double rate)
{
    return rate > 0 ? fmin(amount / rate * 1e12, 0x1p60) : 0;
}

static double rate_of(const sherd_rates *rates, sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? rates->f64 : sherd__is_half(dtype) ? rates->half : rates->f32;
}

/* Clocks and counts stay at the largest number that there is. */
static void add(int64_t *to, int64_t more)
{
    if (__builtin_add_overflow(*to, more, to))
        *to = INT64_MAX;
}

static void pass(sherd__dry *dry, int64_t picoseconds)
{
    add(&dry->now.picoseconds, picoseconds);
}

/* ---- what is left out ------------------------------------------------------------------------ */

/* The row of a name; NULL for lack of memory: then only the clock goes on. */
static sherd_dry_work *row_of(sherd_world *world, const char *name)
{
    sherd__dry_counts *now = &world->dry->now;

    for (int i = 0; i < now->works; i++)
        if (now->work[i].name == name || strcmp(now->work[i].name, name) == 0)
            return &now->work[i];
    sherd_dry_work *list =
        sherd__reserve(&world->heap, now->work, now->works, &now->work_room, 64, sizeof *list);
    if (!list)
        return NULL;
    now->work = list;
    now->work[now->works] = (sherd_dry_work){.name = name};
    return &now->work[now->works++];
}

bool sherd__left_out(sherd_world *world, const char *name, sherd_dtype dtype, double operations,
                     int64_t bytes)
{
    sherd__dry *dry = world->dry;

    if (!dry)
        return false;
    dry->went_back |= world->counts.now & SHERD__BACKWARD;
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

sherd_status sherd__dry_begin(sherd_world *world)
{
    if (!world->arena.dry)
        return SHERD_OK;
    world->dry = sherd__alloc(&world->heap, 1, sizeof *world->dry);
    if (!world->dry)
        return sherd__no_memory(&world->diag, "sherd_world_dry");
    world->dry->rates = world->arena.dry->rates;
    pass(world->dry, PICO); /* a clock that says 0 is none */
    return SHERD_OK;
}

static void clear_counts(sherd_world *world, sherd__dry_counts *counts)
{
    sherd__free(&world->heap, counts->work);
    sherd__free(&world->heap, counts->call);
}

void sherd__dry_end(sherd_world *world)
{
    if (world->dry) {
        clear_counts(world, &world->dry->now);
        clear_counts(world, &world->dry->before);
        clear_counts(world, &world->dry->last);
    }
    sherd__free(&world->heap, world->dry);
    world->dry = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Room for what is counted now; false for lack of memory. */
static bool make_room(sherd_world *world, sherd__dry_counts *out)
{
    const sherd__dry_counts *now = &world->dry->now;

    if (out->work_room < now->work_room) {
        sherd__free(&world->heap, out->work);
        out->work = sherd__alloc(&world->heap, (size_t)now->work_room, sizeof *out->work);
        out->work_room = out->work ? now->work_room : 0;
    }
    if (out->call_room < world->tallies) {
        sherd__free(&world->heap, out->call);
        out->call = sherd__alloc(&world->heap, (size_t)world->tallies, sizeof *out->call);
        out->call_room = out->call ? world->tallies : 0;
    }
    return out->work_room >= now->works && out->call_room >= world->tallies;
}

/* All that was counted so far. Without memory nothing of it, as if it had not begun. */
static void take_counts(sherd_world *world, sherd__dry_counts *out)
{
    const sherd__dry_counts *now = &world->dry->now;

    out->picoseconds = out->works = out->calls = 0;
    if (!make_room(world, out))
        return;
    out->picoseconds = now->picoseconds;
    for (; out->works < now->works; out->works++)
        out->work[out->works] = now->work[out->works];
    for (; out->calls < world->tallies; out->calls++)
        out->call[out->calls] = world->tally[out->calls];
}

void sherd__dry_step(sherd_world *world)
{
    sherd__dry *dry = world->dry;

    if (!dry || !dry->went_back)
        return;
    sherd__dry_counts spare = dry->before;
    dry->before = dry->last;
    dry->last = spare;
    take_counts(world, &dry->last);
    dry->went_back = false;
    dry->steps++;
}

/* The log may have been cleared meanwhile: then it counts from there. */
static void subtract(int64_t *from, int64_t before)
{
    *from -= before <= *from ? before : 0;
}

bool sherd__dry_last_step(const sherd_world *world, sherd__dry_counts *out)
{
    const sherd__dry_counts *before = &world->dry->before;

    *out = world->dry->last;
    out->picoseconds -= before->picoseconds;
    for (int i = 0; i < before->works && i < out->works; i++) {
        out->work[i].calls -= before->work[i].calls;
        out->work[i].operations -= before->work[i].operations;
        out->work[i].bytes -= before->work[i].bytes;
        out->work[i].picoseconds -= before->work[i].picoseconds;
    }
    for (int i = 0; i < before->calls && i < out->calls; i++) {
        subtract(&out->call[i].calls, before->call[i].calls);
        subtract(&out->call[i].bytes, before->call[i].bytes);
        subtract(&out->call[i].nanoseconds, before->call[i].nanoseconds);
    }
    return world->dry->steps > 0;
}

/* ---- the transport --------------------------------------------------------------------------- */

/*
 * Small blocks are zeroed, since results are not computed: a loss or norm must be 0, not what the
 * block held before. Nobody reads large ones element by element.
 */
static sherd__block *take(sherd_world *world, int64_t bytes, bool *stopped)
{
    enum { FEW = 4096 };
    sherd__block *block = sherd__arena_take(world, bytes, stopped);

    if (block && bytes > 0 && bytes <= FEW)
        memset(block->data, 0, (size_t)bytes);
    return block;
}

static bool is_settled(sherd_world *world, sherd__block *block)
{
    (void)world;
    (void)block;
    return true;
}

/* Advance the clock by the price of the plan's steps. */
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

/* All ranks share what this one does. */
static bool share(sherd_world *world, sherd__group *group, const char *name,
                  const sherd__sharing *numbers)
{
    size_t words = (size_t)numbers->words;

    (void)name;
    for (size_t i = 0; i < (size_t)group->count; i++)
        memcpy(numbers->all + i * words, numbers->mine, words * sizeof *numbers->mine);
    pass(world->dry, sherd__call_time());
    return true;
}

/* No other rank can differ; only a failure of this rank is reported. */
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
    .take = take,
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
    return sherd_world_is_dry(world) ? world->dry->now.picoseconds / PICO : 0;
}

sherd_dry_work sherd_dry_work_at(const sherd_world *world, int i)
{
    if (!sherd_world_is_dry(world) || i < 0 || i >= world->dry->now.works)
        return (sherd_dry_work){0};
    return world->dry->now.work[i];
}
