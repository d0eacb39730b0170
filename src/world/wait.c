/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way of waiting. Every round of every wait progresses the calls that this rank has open, and looks
 * at the alarm and at the end of the world. Rounds spin first, then yield, then sleep on the rank's bell;
 * slow rounds also ask whether what is awaited can come at all: a peer at a meeting makes no more calls, and
 * a ring of waiting ranks never ends. Measured: a flag from another core takes 0.1 to 0.3 us, a wake-up
 * from sleep 22 us, a yield 0.4 us; with more ranks than cores a long spin costs milliseconds.
 */
#include "inside.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SPINS = 2000, FEWEST_SPINS = 10, YIELDS = 64 };
enum {
    ROBBED_NS =
        1000 *
        1000, /* a yield of this length went to a stranger: ranks that share a core pass it on sooner */
    CALM = 32 /* waits without such a one, before yielding is tried again, and doubled */
};

int64_t sherd__now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- what is awaited -------------------------------------------------------------------------- */

/* The ranks of a set that have not made (left: not left) a call. */
static uint64_t missing(const sherd_world *world, int lane, bool left, uint64_t number,
                        uint64_t ranks)
{
    uint64_t rest = ranks, out = 0;

    while (rest) {
        int q = sherd__next_rank(&rest);
        const sherd__lane *theirs = sherd__lane_of(world, q, lane);
        bool there =
            left ? sherd__look(&theirs->left) > number : sherd__look(&theirs->made) >= number;
        out |= there ? 0 : sherd__bit(q);
    }
    return out;
}

void sherd__need_add(const sherd_world *world, sherd__needs *needs, int lane, bool left,
                     uint64_t number, uint64_t ranks)
{
    ranks = missing(world, lane, left, number, ranks);
    if (!ranks || needs->count == SHERD__NEEDS)
        return;
    needs->at[needs->count].lane = lane;
    needs->at[needs->count].left = left;
    needs->at[needs->count].number = number;
    needs->at[needs->count++].ranks = ranks;
}

void sherd__need_call(const sherd_world *world, sherd__needs *needs, const sherd__call_state *call)
{
    if (!call->finished)
        sherd__need_add(world, needs, call->group->lane, false, call->number, call->awaited);
    sherd__need_add(world, needs, call->group->lane, true, call->number, call->sharers);
}

/* All that this rank lacks: for its wait, then for its open calls. */
static uint32_t gather(sherd_world *world, const sherd__wait *wait, sherd__needs *needs)
{
    needs->count = 0;
    if (wait->needs)
        wait->needs(world, wait->what, needs);
    uint32_t waits = (uint32_t)needs->count;
    for (const sherd__call_state *call = world->open; call; call = call->next)
        if (!call->finished)
            sherd__need_add(world, needs, call->group->lane, false, call->number, call->awaited);
    return waits;
}

/* ---- what a sleeping rank says ---------------------------------------------------------------- */

static bool already_said(const sherd__post *post, const sherd__needs *needs, uint32_t waits)
{
    if (atomic_load(&post->waits) != waits || atomic_load(&post->needs) != (uint32_t)needs->count)
        return false;
    for (int i = 0; i < needs->count; i++) {
        const sherd__need *said = &post->need[i];
        uint64_t key = (uint64_t)needs->at[i].lane << 1 | needs->at[i].left;
        if (sherd__look(&said->key) != key || sherd__look(&said->number) != needs->at[i].number ||
            sherd__look(&said->ranks) != needs->at[i].ranks)
            return false;
    }
    return true;
}

/* Say on the post what this rank waits for. `version` is odd while that is valid. */
static void announce(sherd_world *world, const sherd__needs *needs, uint32_t waits)
{
    sherd__post *post = world->post;

    if (world->announced && already_said(post, needs, waits))
        return;
    if (world->announced)
        atomic_fetch_add(&post->version, 1);
    else
        sherd__post_since(world);
    atomic_store(&post->waits, waits);
    atomic_store(&post->needs, (uint32_t)needs->count);
    for (int i = 0; i < needs->count; i++) {
        atomic_store(&post->need[i].key, (uint64_t)needs->at[i].lane << 1 | needs->at[i].left);
        atomic_store(&post->need[i].number, needs->at[i].number);
        atomic_store(&post->need[i].ranks, needs->at[i].ranks);
    }
    atomic_fetch_add(&post->version, 1);
    world->announced = true;
}

static void be_silent(sherd_world *world)
{
    if (world->announced)
        atomic_fetch_add(&world->post->version, 1);
    world->announced = false;
}

/* ---- waits that cannot end -------------------------------------------------------------------- */

/* A rank that is at the next meeting without having made a call that I wait for; -1 if there is none. */
static int find_missed(const sherd_world *world, const sherd__needs *needs, uint32_t waits,
                       uint32_t *which)
{
    for (uint32_t i = 0; i < waits; i++) {
        uint64_t ranks = needs->at[i].ranks;
        while (ranks) {
            int q = sherd__next_rank(&ranks);
            if (sherd__look(&world->arena.control->post[q].arrived) <= world->round)
                continue;
            if (sherd__look(&sherd__lane_of(world, q, needs->at[i].lane)->made) >=
                needs->at[i].number)
                continue;
            *which = i;
            return q;
        }
    }
    return -1;
}

/* Raises the alarm if a peer went to a meeting without a call that is awaited. */
static void check_meetings(sherd_world *world, const sherd__needs *needs, uint32_t waits)
{
    char group[96], label[160];
    uint32_t which = 0;
    int q = find_missed(world, needs, waits, &which);

    if (q < 0)
        return;
    int lane = needs->at[which].lane;
    uint64_t number = needs->at[which].number;
    const sherd__post *post = &world->arena.control->post[q];
    uint64_t made =
        sherd__calls_in(sherd__look(&sherd__lane_of(world, q, lane)->made), world->epoch);
    sherd__lane_text(world, lane, world->rank, group, sizeof group);
    sherd__record_text(world, world->rank, lane, number, label, sizeof label);
    sherd__raise(
        world, SHERD_EDIFFER,
        "%s is call %llu of group %s here, but rank %d is in %.40s after %llu call%s there", label,
        (unsigned long long)(number & 0xFFFFFFFFu), group, q, post->name, (unsigned long long)made,
        made == 1 ? "" : "s");
}

/* ---- rounds ----------------------------------------------------------------------------------- */

static void sleep_until_rung(sherd_world *world, uint32_t bell)
{
    const struct timespec most = {world->patience.sleep_ns / 1000000000,
                                  world->patience.sleep_ns % 1000000000};
    syscall(SYS_futex, &world->post->bell, FUTEX_WAIT, bell, &most, NULL, 0);
}

/* Whether the wait is over, for good or ill. Progresses open calls; *moved: something was done. */
static bool is_over(sherd_world *world, const sherd__wait *wait, bool *good, bool *moved)
{
    bool dead = sherd__look(world->death) != 0, alarmed = dead || sherd__look(world->alarm);

    *good = false;
    *moved = false;
    world->quiet |= alarmed;
    /* A rank that has seen the alarm stores no `left`, also when a check is just lowering it. */
    if (!world->quiet)
        *moved = sherd__progress(world);
    if (wait->done(world, wait->what)) {
        *good = true;
        return true;
    }
    return dead || (alarmed && !world->arrived);
}

/* Raise the alarm if what is awaited can not come. */
static void look_for_the_impossible(sherd_world *world, const sherd__needs *needs, uint32_t waits)
{
    char text[SHERD_ERROR_BYTES];

    check_meetings(world, needs, waits);
    if (sherd__in_ring(world, text, sizeof text))
        sherd__raise(world, SHERD_EDIFFER, "%s", text);
}

/* One slow round: look at everything once more, then sleep if nothing has moved. True if the wait is over. */
static bool slow_round(sherd_world *world, const sherd__wait *wait, bool *good)
{
    sherd__needs needs;
    sherd__word *sleepers = &world->arena.control->sleepers;
    bool moved;

    uint32_t waits = gather(world, wait, &needs);
    announce(world, &needs, waits);
    /* First asleep, then the bell, then the look at records, `left`, arrivals and the alarm: a store that the look
     * misses finds this rank asleep and rings. */
    atomic_fetch_or(sleepers, sherd__bit(world->rank));
    uint32_t bell = atomic_load(&world->post->bell);
    if (!world->arrived)
        look_for_the_impossible(world, &needs, waits);
    bool over = is_over(world, wait, good, &moved);
    if (!over && !moved)
        sleep_until_rung(world, bell);
    atomic_fetch_and(sleepers, ~sherd__bit(world->rank));
    return over;
}

static void time_out(sherd_world *world, const sherd__wait *wait)
{
    char text[SHERD_ERROR_BYTES], group[96];
    sherd__needs needs;
    int seconds = (int)(world->patience.deadline_ns / 1000000000);

    gather(world, wait, &needs);
    if (needs.count) {
        uint64_t ranks = needs.at[0].ranks;
        sherd__lane_text(world, needs.at[0].lane, world->rank, group, sizeof group);
        snprintf(text, sizeof text,
                 "rank %d: waited %d s (SHERD_TIMEOUT) for rank %d to %s call %llu of group %s",
                 world->rank, seconds, sherd__next_rank(&ranks),
                 needs.at[0].left ? "finish" : "make",
                 (unsigned long long)(needs.at[0].number & 0xFFFFFFFFu), group);
    } else {
        int q = 0;
        while (q + 1 < world->ranks &&
               sherd__look(&world->arena.control->post[q].arrived) > world->round)
            q++;
        snprintf(text, sizeof text, "rank %d: waited %d s (SHERD_TIMEOUT) for rank %d in %s",
                 world->rank, seconds, q, world->post->name);
    }
    sherd__end_told(world, SHERD_ETIMEDOUT, text);
}

/*
 * Spinning is right where the awaited rank runs on another core, and wrong where it waits for this one: a wait that ended
 * only when this rank began to yield halves the next one's spinning, one that ended before doubles it. The time
 * until a rank sleeps stays the same: what is not spun is yielded (a yield takes as long as some 16 pauses). But where
 * a stranger takes the core at a yield, for milliseconds, the next waits do not yield at all: a sleeper is woken at once.
 */
static void learn(sherd__patience *patience, int round, int yields, bool robbed)
{
    if (round == 0)
        return; /* it had come already */
    if (round <= patience->spins)
        patience->spins =
            patience->spins < patience->most_spins / 2 ? patience->spins * 2 : patience->most_spins;
    else if (round <= patience->spins + yields && patience->spins >= 2 * FEWEST_SPINS)
        patience->spins /= 2;
    if (robbed) {
        patience->yields = patience->calm = 0;
    } else if (patience->yields < patience->most_yields && ++patience->calm == CALM) {
        patience->yields = patience->yields ? patience->yields * 2 : 1;
        patience->calm = 0;
    }
}

/* How many yields this wait may take. */
static int yields_of(const sherd__patience *patience)
{
    int unspun = (patience->most_spins - patience->spins) / 16;
    return patience->yields == patience->most_yields ? patience->yields + unspun : patience->yields;
}

bool sherd__wait_for(sherd_world *world, const sherd__wait *wait)
{
    sherd__patience *patience = &world->patience;
    int64_t start = 0;
    bool good = true, moved, robbed = false;
    int round = 0, longest = 0, yields = yields_of(patience);

    if (wait->done(world, wait->what))
        return true;
    while (!is_over(world, wait, &good, &moved)) {
        if (moved) {
            round = 0;
            continue;
        }
        if (++round > longest)
            longest = round;
        if (round <= patience->spins) {
            pause_core();
            continue;
        }
        int64_t now = sherd__now();
        start = start ? start : now;
        if (round <= patience->spins + yields && !robbed) {
            sched_yield();
            robbed = sherd__now() - now > ROBBED_NS;
            continue;
        }
        if (now - start > patience->deadline_ns)
            time_out(world, wait);
        if (slow_round(world, wait, &good))
            break;
    }
    learn(patience, longest, yields, robbed);
    if (!good)
        sherd__post_cut(world);
    be_silent(world);
    return good;
}

void sherd__patience_init(sherd__patience *patience, bool crowded, int64_t deadline_ns)
{
    patience->most_spins = patience->spins = crowded ? FEWEST_SPINS : MOST_SPINS;
    patience->most_yields = patience->yields = YIELDS;
    patience->sleep_ns = 100 * 1000 * 1000;
    patience->deadline_ns = deadline_ns;
}
