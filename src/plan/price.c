/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which one step a move is, and its price on the arena, in integers: all ranks of a world come to
 * the same numbers whatever machine they run on.
 *
 * A rank's time is the memory traffic of what it copies or adds (each byte read once and written
 * once), plus a wait per round; the busiest rank decides. There is no term per peer: a peer's
 * memory is read in place.
 */
#include "inside.h"
#include "base/num.h"

#include <string.h>

enum {
    SLICE_GRAIN = 16,            /* elements: a slice begins on a cache line, for 4-byte elements */
    ALL_REDUCE_BYTES = 16 * 1024 /* up to here everyone adds everything: one round instead of two */
};

/* The arena's constants. Measured: a copy runs at 59 GB/s of payload within 1 MiB and at 20 GB/s from memory; each
 * payload byte is a byte read and a byte written. A round is a barrier of four ranks on two cores
 * and half of it. */
static const struct {
    int64_t cache_bytes;         /* of traffic */
    int64_t cache_ps, memory_ps; /* per byte of traffic, within cache_bytes and beyond */
    int64_t round_ps;
} arena = {2 << 20, 8, 25, 1000000};

static int64_t traffic_ps(int64_t bytes)
{
    int64_t near = sherd__min(bytes, arena.cache_bytes);

    return sherd__add_cut(near * arena.cache_ps, sherd__mul_cut(bytes - near, arena.memory_ps));
}

void sherd__slice_of(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t grains = sherd__ceil_div(n, SLICE_GRAIN);
    int64_t slice = sherd__ceil_div(grains, p) * SLICE_GRAIN;

    *lo = sherd__min(sherd__mul_cut(slice, i), n);
    *hi = sherd__min(*lo + slice, n);
}

static sherd_step_kind choose_kind(const sherd__change *change, const sherd__amounts *amounts,
                                   size_t element_bytes)
{
    if (amounts->receive_max == 0)
        return SHERD_STEP_SLICE;
    if (change->reduced == 0)
        return SHERD_STEP_EXCHANGE;
    int64_t bytes = sherd__mul_cut(amounts->target_max, (int64_t)element_bytes);
    bool boxes_stay = change->gathered == 0 && change->cut == 0;
    return boxes_stay && bytes > ALL_REDUCE_BYTES ? SHERD_STEP_ALL_REDUCE
                                                  : SHERD_STEP_REDUCE_EXCHANGE;
}

/* Elements of traffic of the busiest rank. */
static int64_t traffic_of(sherd_step_kind kind, const sherd__change *change,
                          const sherd__amounts *amounts)
{
    int64_t k = change->addends, lo, hi;

    switch (kind) {
    case SHERD_STEP_SLICE: /* where no box changes the storage is shared */
        return change->gathered == 0 && change->cut == 0 ? 0
                                                         : sherd__mul_cut(amounts->target_max, 2);
    case SHERD_STEP_EXCHANGE:
        return sherd__mul_cut(amounts->target_max, 2);
    case SHERD_STEP_REDUCE_EXCHANGE:
        return sherd__mul_cut(amounts->target_max, k + 1);
    case SHERD_STEP_ALL_REDUCE:
        sherd__slice_of(amounts->target_max, k, 0, &lo, &hi);
        return sherd__mul_cut(hi - lo, 2 * k);
    }
    return 0;
}

/*
 * An all-reduce receives k - 1 addends of its slice, and the other slices done; it sends as much.
 * The first slice of the largest box is the largest, and for k = 2 any slice is the same.
 */
static void all_reduce_bytes(sherd_plan_price *price, const sherd__change *change,
                             const sherd__amounts *amounts, int64_t element_bytes)
{
    int64_t k = change->addends, n = amounts->target_max, lo, hi;

    sherd__slice_of(n, k, 0, &lo, &hi);
    price->recv_max_bytes =
        sherd__mul_cut(sherd__add_cut(n, sherd__mul_cut(hi - lo, k - 2)), element_bytes);
    price->send_max_bytes = price->recv_max_bytes;
    price->recv_total_bytes =
        sherd__mul_cut(sherd__mul_cut(amounts->target_total / k, 2 * (k - 1)), element_bytes);
}

void sherd__step_choose(sherd_step *step, sherd_plan_price *price, const sherd__change *change,
                        const sherd__amounts *amounts, size_t element_bytes)
{
    int64_t bytes = (int64_t)element_bytes;
    sherd_step_kind kind = choose_kind(change, amounts, element_bytes);
    bool shares = kind == SHERD_STEP_SLICE && change->gathered == 0 && change->cut == 0;

    memset(price, 0, sizeof *price);
    price->rounds = kind == SHERD_STEP_SLICE ? 0 : kind == SHERD_STEP_ALL_REDUCE ? 2 : 1;
    price->recv_max_bytes = sherd__mul_cut(amounts->receive_max, bytes);
    price->recv_total_bytes = sherd__mul_cut(amounts->receive_total, bytes);
    price->send_max_bytes = sherd__mul_cut(amounts->send_max, bytes);
    price->bound_max_bytes = change->reduced ? -1 : price->recv_max_bytes;
    price->bound_total_bytes = sherd__mul_cut(amounts->bound_total, bytes);
    price->peak_bytes = sherd__mul_cut(shares ? amounts->source_max : amounts->both_max, bytes);
    if (kind == SHERD_STEP_ALL_REDUCE)
        all_reduce_bytes(price, change, amounts, bytes);
    int64_t traffic = sherd__mul_cut(traffic_of(kind, change, amounts), bytes);
    price->picoseconds = sherd__add_cut(traffic_ps(traffic), price->rounds * arena.round_ps);

    step->kind = kind;
    step->axes = kind == SHERD_STEP_SLICE ? 0 : change->gathered | change->reduced;
    step->recv_max_bytes = price->recv_max_bytes;
    step->recv_total_bytes = price->recv_total_bytes;
    step->picoseconds = price->picoseconds;
}
