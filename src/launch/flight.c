/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking the flight record. Everything read here may be written at the same time, or may have been
 * left half written by a rank that died: indices are checked, texts bounded, and what does not fit
 * together is left out. Some microseconds a rank.
 */
#include "flight.h"
#include "world/inside.h"

#include <string.h>

static const sherd__post *post_of(const sherd__rank_watch *w, int rank)
{
    return &w->arena->control->post[rank];
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The ranks that are in the group of a rank in a lane. */
static void read_group(const sherd__rank_watch *w, int rank, int lane, sherd__ranks *out)
{
    int leader = atomic_load(&sherd__arena_lane(w->arena, rank, lane)->leader);

    for (int q = 0; leader && q < w->ranks; q++)
        if (atomic_load(&sherd__arena_lane(w->arena, q, lane)->leader) == leader)
            sherd__ranks_add(out, q);
}

/* Which call of its group and epoch a number is; 0 = of an epoch long ago. */
static uint64_t count_of(const sherd__post *post, uint64_t number)
{
    uint64_t base = sherd__look(&post->numbers);

    return sherd__calls_in(number, number > base ? base : sherd__look(&post->numbers_before));
}

static void read_call(const sherd__rank_watch *w, int rank, int lane, uint64_t number,
                      sherd__flight_call *out)
{
    const sherd__lane *own = sherd__arena_lane(w->arena, rank, lane);
    char label[sizeof out->label];

    memset(out, 0, sizeof *out);
    out->number = count_of(post_of(w, rank), number);
    read_group(w, rank, lane, &out->group);
    out->done = sherd__look(&own->left) > number;
    if (sherd__label_text(&own->ring[sherd__slot_of(number)], number, label, sizeof label))
        sherd__read_text(out->label, sizeof out->label, label, sizeof label);
}

static void read_last(const sherd__rank_watch *w, int rank, sherd__flight_rank *out)
{
    const sherd__post *post = post_of(w, rank);
    uint64_t calls = sherd__look(&post->calls);

    out->calls = calls;
    for (int i = 0; i < SHERD__FLIGHT_CALLS && (uint64_t)i < calls; i++) {
        const sherd__mark *mark = &post->trail[(calls - 1 - (uint64_t)i) % SHERD__TRAIL];
        uint64_t lane = sherd__peek(&mark->lane), number = sherd__peek(&mark->number);
        if (lane < SHERD__LANES && number)
            read_call(w, rank, (int)lane, number, &out->last[out->count++]);
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Leave out the ranks that have made a call (or, if `left`, have left it). */
static void keep_lacking(const sherd__rank_watch *w, int lane, bool left, uint64_t number,
                         sherd__ranks *ranks)
{
    for (int q = -1; (q = sherd__ranks_next(ranks, q + 1)) >= 0;) {
        const sherd__lane *theirs = sherd__arena_lane(w->arena, q, lane);
        if (left ? sherd__look(&theirs->left) > number : sherd__look(&theirs->made) >= number)
            sherd__ranks_drop(ranks, q);
    }
}

static void read_meeting(const sherd__post *post, sherd__flight_rank *out)
{
    sherd__read_text(out->meeting, sizeof out->meeting, post->name, sizeof post->name);
    if (!out->meeting[0])
        strcpy(out->meeting, "a meeting");
}

/* One thing that a rank waits for; `cut`: as it was when the wait was cut short. */
static void add_need(const sherd__rank_watch *w, int rank, const sherd__need *need, bool cut,
                     sherd__flight_rank *out)
{
    uint64_t key = sherd__look(&need->key), number = sherd__look(&need->number);
    int lane = (int)(key >> 2 & 0xFFFF);
    bool left = (key & 3) == SHERD__LEFT;
    sherd__ranks ranks;

    if (lane >= SHERD__LANES || !number)
        return;
    sherd__ranks_load(&ranks, &need->ranks, w->ranks);
    if (!cut)
        keep_lacking(w, lane, left, number, &ranks);
    if (!sherd__ranks_none(&ranks) && sherd__ranks_none(&out->awaited)) {
        out->to_finish = left;
        read_call(w, rank, lane, number, &out->call);
    }
    sherd__ranks_join(&out->awaited, &ranks);
}

/* Read what a sleeping rank waits for. False: it does not sleep. */
static bool read_wait(const sherd__rank_watch *w, int rank, int64_t now, sherd__flight_rank *out)
{
    const sherd__post *post = post_of(w, rank);
    uint64_t version = sherd__look(&post->version);
    uint32_t waits = atomic_load(&post->waits);

    if (version % 2 == 0 || waits > SHERD__NEEDS)
        return false;
    out->doing = SHERD__WAITS;
    out->waited_ns = now - (int64_t)sherd__look(&post->since);
    for (uint32_t i = 0; i < waits; i++)
        add_need(w, rank, sherd__arena_needs(w->arena, rank) + i, false, out);
    if (waits == 0) {
        read_meeting(post, out);
        sherd__not_arrived(w->arena->control, sherd__look(&post->arrived), &out->awaited);
    }
    return true;
}

/* The wait that the failure of the world has cut short, unless it was an earlier failure. */
static void read_cut(const sherd__rank_watch *w, int rank, sherd__flight_rank *out)
{
    const sherd__post *post = post_of(w, rank);
    uint64_t key = sherd__look(&post->cut.key), number = sherd__look(&post->cut.number);
    uint64_t since = sherd__look(&post->cut_since), until = sherd__look(&post->cut_until);
    int lane = (int)(key >> 2 & 0xFFFF);
    bool meeting = key == SHERD__AT_MEETING;

    if (!until || (!meeting && lane >= SHERD__LANES))
        return;
    if (meeting ? number != sherd__look(&post->arrived) : number <= sherd__look(&post->numbers))
        return;
    out->doing = SHERD__WAITED;
    out->waited_ns = (int64_t)(until - since);
    if (meeting) {
        read_meeting(post, out);
        sherd__ranks_load(&out->awaited, &post->cut.ranks, w->ranks);
    } else {
        add_need(w, rank, &post->cut, true, out);
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void read_rank(const sherd__rank_watch *w, int rank, int64_t now, bool failed,
                      sherd__flight_rank *out)
{
    const sherd__child *child = &w->child[rank];
    unsigned presence = atomic_load(&post_of(w, rank)->presence);

    out->process = child->inner.pid ? child->inner.pid : child->pid;
    out->doing = presence == SHERD__ABSENT ? SHERD__IS_ABSENT
                 : presence == SHERD__GONE ? SHERD__HAS_CLOSED
                                           : SHERD__RUNS;
    if (failed)
        read_cut(w, rank, out);
    if (presence == SHERD__PRESENT && read_wait(w, rank, now, out) && out->waited_ns < 0)
        out->waited_ns = 0; /* a clock of another time namespace */
    if (child->stopped_since || child->inner.stopped_since)
        out->doing = SHERD__IS_STOPPED;
    bool vanished = child->inner.pid && !child->inner.lives;
    if (vanished || child->ended) {
        out->code = vanished ? -1 : child->code;
        out->signal = vanished ? 0 : child->signal;
        if (out->doing != SHERD__WAITED && !child->inner.lives)
            out->doing = SHERD__HAS_ENDED;
    }
    read_last(w, rank, out);
}

/* Whether a rank is gone, or as good as gone, without having closed its world. */
static bool is_lost(const sherd__rank_watch *w, int rank)
{
    const sherd__child *child = &w->child[rank];
    bool gone = child->inner.pid ? !child->inner.lives : child->ended;

    return (gone || child->stopped_since || child->inner.stopped_since) &&
           atomic_load(&post_of(w, rank)->presence) != SHERD__GONE;
}

void sherd__flight_take(sherd__flight *out, const sherd__rank_watch *w, const char *why,
                        bool failed)
{
    int64_t now = sherd__now();
    sherd__ranks waiting = {0};

    memset(out, 0, sizeof *out);
    out->ranks = w->ranks;
    sherd__read_text(out->why, sizeof out->why, why, sizeof out->why);
    for (int r = 0; r < w->ranks; r++) {
        read_rank(w, r, now, failed, &out->rank[r]);
        sherd__ranks_join(&out->missing, &out->rank[r].awaited);
        if (out->rank[r].doing == SHERD__WAITS || out->rank[r].doing == SHERD__WAITED)
            sherd__ranks_add(&waiting, r);
        if (is_lost(w, r))
            sherd__ranks_add(&out->missing, r);
    }
    sherd__ranks_less(&out->missing, &waiting);
}
