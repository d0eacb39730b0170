/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step with its name, bytes and price, and the price of the arena, in integers: all ranks of a
 * world compute the same numbers on any machine.
 *
 * On the arena a rank's time is the memory traffic of what it copies or adds (each byte read once
 * and written once), plus a wait per round; the busiest rank decides. There is no cost per peer: a
 * peer's memory is read in place. bench/price compares the constants with measurements.
 */
#include "price.h"
#include "base/num.h"

#include <string.h>

/*
 * The arena's constants, measured with bench/price and bench/moves on two cores that share 32 MiB
 * of cache, buffers rotating: 19 to 28 ps per byte of traffic up to 4 MiB a rank, 45 (copies) to 70
 * (sums) beyond; a call of two ranks 0.7 us, of four ranks on the two cores 5.5 us; the second
 * round of a sliced all-reduce 0.1 to 0.3 us for both.
 */
static const struct {
    int64_t cache_bytes;         /* of traffic */
    int64_t cache_ps, memory_ps; /* per byte of traffic, within cache_bytes and beyond */
    int64_t call_ps, again_ps;   /* the first round of a step, and each further one */
} arena = {4 << 20, 20, 50, 1000000, 250000};

/* ---- the arena ------------------------------------------------------------------------------ */

static int64_t traffic_ps(int64_t bytes)
{
    int64_t near = sherd__min(bytes, arena.cache_bytes);

    return sherd__add_cut(near * arena.cache_ps, sherd__mul_cut(bytes - near, arena.memory_ps));
}

/* Traffic of a slice of one of k sharers that adds it up and writes it to all. */
static int64_t sliced_traffic(int64_t n, int64_t k)
{
    int64_t lo, hi;

    sherd__slice_of(n, k, 0, &lo, &hi);
    return sherd__mul_cut(hi - lo, 2 * k);
}

static int64_t time_of(int64_t elements, int64_t element_bytes, int rounds)
{
    int64_t waits = rounds ? arena.call_ps + (rounds - 1) * arena.again_ps : 0;

    return sherd__add_cut(traffic_ps(sherd__mul_cut(elements, element_bytes)), waits);
}

int64_t sherd__call_time(void)
{
    return arena.call_ps;
}

int64_t sherd__arena_time(bool *sliced, sherd_step_kind kind, bool boxes_stay, int64_t target_max,
                          int64_t addends, int64_t element_bytes)
{
    int64_t once = sherd__mul_cut(target_max, addends + 1), one, two;

    *sliced = false;
    switch (kind) {
    case SHERD_STEP_SLICE: /* where no box changes the storage is shared */
    case SHERD_STEP_PARTITION:
        return boxes_stay ? 0 : time_of(sherd__mul_cut(target_max, 2), element_bytes, 0);
    case SHERD_STEP_EXCHANGE:
    case SHERD_STEP_ALL_GATHER:
    case SHERD_STEP_ALL_TO_ALL:
        return time_of(sherd__mul_cut(target_max, 2), element_bytes, 1);
    case SHERD_STEP_REDUCE_SCATTER:
    case SHERD_STEP_REDUCE_EXCHANGE:
        return time_of(once, element_bytes, 1);
    case SHERD_STEP_ALL_REDUCE:
        one = time_of(once, element_bytes, 1);
        two = time_of(sliced_traffic(target_max, addends), element_bytes, 2);
        *sliced = two < one;
        return sherd__min(one, two);
    }
    return 0;
}

static void price_arena(sherd__priced *p, const sherd__problem *problem)
{
    bool local = p->step.kind == SHERD_STEP_SLICE || p->step.kind == SHERD_STEP_PARTITION;

    p->step.picoseconds = sherd__arena_time(&p->step.sliced, p->step.kind,
                                            sherd__boxes_stay(&p->change), p->amounts.target_max,
                                            p->change.addends, (int64_t)problem->element_bytes);
    p->rounds = local ? 0 : p->step.sliced ? 2 : 1;
}

/* Each byte of the target is written and each addend of it read, but for a sliced all-reduce. */
static int64_t floor_arena(const sherd__problem *problem, int64_t target_max, int64_t addends)
{
    bool sliced;

    return sherd__arena_time(&sliced, addends > 1 ? SHERD_STEP_ALL_REDUCE : SHERD_STEP_EXCHANGE,
                             true, target_max, addends, (int64_t)problem->element_bytes);
}

const sherd__price_model sherd__price_arena = {"arena", price_arena, floor_arena, NULL, true};

const sherd__price_model *sherd__price_model_of(sherd_price_kind kind)
{
    static const sherd__price_model *const models[] = {&sherd__price_arena, &sherd__price_links,
                                                       &sherd__price_torch};
    return models[kind];
}

/* ---- steps ---------------------------------------------------------------------------------- */

/*
 * A sliced all-reduce receives k - 1 addends of its slice, and the other slices done; it sends as
 * much. The first slice of the largest box is the largest, and for k = 2 any slice is the same.
 */
static void sliced_bytes(sherd__priced *p, int64_t element_bytes)
{
    int64_t k = p->change.addends, n = p->amounts.target_max, lo, hi;

    sherd__slice_of(n, k, 0, &lo, &hi);
    p->step.recv_max_bytes =
        sherd__mul_cut(sherd__add_cut(n, sherd__mul_cut(hi - lo, k - 2)), element_bytes);
    p->send_max_bytes = p->step.recv_max_bytes;
    p->step.recv_total_bytes =
        sherd__mul_cut(sherd__mul_cut(p->amounts.target_total / k, 2 * (k - 1)), element_bytes);
}

void sherd__step_bytes(sherd__priced *p, size_t element_bytes)
{
    int64_t bytes = (int64_t)element_bytes;

    if (p->step.sliced) {
        sliced_bytes(p, bytes);
        return;
    }
    p->step.recv_max_bytes = sherd__mul_cut(p->amounts.receive_max, bytes);
    p->step.recv_total_bytes = sherd__mul_cut(p->amounts.receive_total, bytes);
    p->send_max_bytes = sherd__mul_cut(p->amounts.send_max, bytes);
}

void sherd__step_name(sherd__priced *p)
{
    p->step.kind = sherd__step_kind(&p->change, &p->amounts);
    p->step.axes = 0;
    if (p->step.kind != SHERD_STEP_SLICE && p->step.kind != SHERD_STEP_PARTITION &&
        !p->change.across)
        p->step.axes = p->change.gathered | p->change.reduced;
}

sherd_status sherd__step_price_of(sherd__priced *out, const sherd__problem *problem,
                                  const sherd_layout *from, const sherd_layout *to, bool some)
{
    memset(out, 0, sizeof *out);
    out->some = some;
    if (from->spec.mesh != to->spec.mesh) {
        sherd_status status =
            sherd__across_find(&out->change, &out->amounts, problem->space, from, to);
        if (status != SHERD_OK)
            return status;
    } else {
        sherd__change_find(&out->change, from, to);
        sherd__amounts_find(&out->amounts, &out->change, from->spec.shape);
    }
    out->step.from = from;
    out->step.to = to;
    sherd__step_name(out);
    sherd__price_model_of(problem->request->price.kind)->price(out, problem);
    sherd__step_bytes(out, problem->element_bytes);
    return SHERD_OK;
}

sherd_status sherd__step_price(sherd__priced *out, const sherd__problem *problem,
                               const sherd_layout *from, const sherd_layout *to)
{
    return sherd__step_price_of(out, problem, from, to, false);
}
