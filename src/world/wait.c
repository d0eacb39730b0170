/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way of waiting. Every round of every wait progresses the calls that this rank has open,
 * and looks at the alarm and at the end of the world. Rounds spin first, then yield, then sleep on
 * the rank's bell; slow rounds also ask whether what is awaited can come at all: a peer at a
 * meeting makes no more calls, and a ring of waiting ranks never ends. Measured: a flag from
 * another core takes 0.1 to 0.3 us, a wake-up from sleep 22 us, a yield 0.4 us; with more ranks
 * than cores a long spin costs milliseconds.
 */
#include "inside.h"

#include "base/num.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SPINS = 2000, FEWEST_SPINS = 2, YIELDS = 64 };
/* Rounds without a pause: on some CPUs it takes as long as half the way of a line. */
enum { EAGER = 64 };
/*
 * Where each round asks MPI it takes up to microseconds, and 2,000 of them milliseconds: ranks that
 * share a core and do not know it (hosts that see all cores of one machine) waited for their end.
 * There the clock is looked at each so many rounds, and what is left of them is yielded.
 */
enum { ASKS = 16, SPIN_NS = 50 * 1000 };
enum {
    /* a yield of this length went to a stranger: ranks that share a core pass it on sooner */
    ROBBED_NS = 1000 * 1000,
    CALM = 32 /* waits without such a one, before yielding is tried again, and doubled */
};

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void sleep_until_rung(sherd_world *world, uint32_t bell)
{
    if (world->remote) {
        sherd__remote_nap(world);
        return;
    }
    const struct timespec most = {world->patience.sleep_ns / 1000000000,
                                  world->patience.sleep_ns % 1000000000};
    syscall(SYS_futex, &world->post->bell, FUTEX_WAIT, bell, &most, NULL, 0);
}

/* Whether the wait is over, for good or ill. Progresses open calls; *moved: something was done. */
static bool is_over(sherd_world *world, const sherd__wait *wait, bool *good, bool *moved)
{
    bool come = world->remote && sherd__remote_poll(world);
    bool dead = sherd__look(world->death) != 0, alarmed = dead || sherd__look(world->alarm);

    *good = false;
    *moved = false;
    world->quiet |= alarmed;
    /* A rank that has seen the alarm stores no `left`, also when a check is just lowering it. */
    if (!world->quiet)
        *moved = sherd__progress(world);
    *moved |= come;
    if (wait->done(world, wait->what)) {
        *good = true;
        return true;
    }
    return dead || (alarmed && !world->arrived);
}

/*
 * One slow round: look at everything once more, then sleep if nothing has moved. True if the wait
 * is over. `traced`: the wait in the trace, where the sleep is for whom this look finds, NULL if
 * there is none.
 */
static bool slow_round(sherd_world *world, const sherd__wait *wait, sherd__waiting *traced,
                       bool *good)
{
    sherd__word *sleepers = &world->arena.control->sleepers.word[world->rank / 64];
    uint64_t self = UINT64_C(1) << world->rank % 64;
    bool moved;

    if (world->remote)
        sherd__remote_flush(world);
    /*
     * The order matters: mark this rank asleep, read the bell, then look at records, `left`,
     * arrivals and the alarm. A store that the look misses comes after the mark, so its rank rings.
     * Announcing is such a look too: it may be the only one that sees a record that misfits.
     */
    atomic_fetch_or(sleepers, self);
    uint32_t bell = atomic_load(&world->post->bell);
    sherd__post_announce(world, wait);
    if (traced)
        sherd__trace_waiting(world, wait, traced, false);
    if (!world->arrived)
        sherd__look_for_the_impossible(world);
    bool over = is_over(world, wait, good, &moved);
    if (!over && !moved)
        sleep_until_rung(world, bell);
    atomic_fetch_and(sleepers, ~self);
    return over;
}

/* The rank that a meeting waits for: to arrive, or, after the verdict, to act upon it. */
static int awaited_at_meeting(const sherd_world *world)
{
    const sherd__post *post = world->arena.control->post;
    bool taken = sherd__look(&world->post->arrived) == world->round;
    int q = 0;

    while (q + 1 < world->ranks && (taken ? sherd__look(&post[q].taken) >= world->round
                                          : sherd__look(&post[q].arrived) > world->round))
        q++;
    return q;
}

static void time_out(sherd_world *world, const sherd__wait *wait)
{
    char text[SHERD_ERROR_BYTES], group[96];
    int seconds = (int)(world->patience.deadline_ns / 1000000000);

    sherd__post_announce(world, wait);
    if (sherd__peek_count(&world->post->needs)) {
        sherd__said first = sherd__post_read(world, world->rank, 0);
        sherd__lane_text(world, first.lane, world->rank, group, sizeof group);
        snprintf(text, sizeof text,
                 "rank %d: waited %d s (SHERD_TIMEOUT) for rank %d to %s call %llu of group %s",
                 world->rank, seconds, sherd__ranks_next(&first.ranks, 0),
                 first.lack == SHERD__LEFT ? "finish" : "make",
                 (unsigned long long)sherd__calls_in(first.number, world->base), group);
    } else {
        snprintf(text, sizeof text, "rank %d: waited %d s (SHERD_TIMEOUT) for rank %d in %s",
                 world->rank, seconds, awaited_at_meeting(world), world->post->name);
    }
    sherd__end_told(world, SHERD_ETIMEDOUT, text);
}

/*
 * Learn from a wait how long to spin in the next one. Spinning is right if the awaited rank runs on
 * another core, and wrong if it waits for this core: a wait that ended only when this rank yielded
 * halves the spinning, one that ended before doubles it. The time until a rank sleeps stays the
 * same: what is not spun is yielded (a yield takes as long as some 16 pauses). But if another
 * process took the core at a yield, for milliseconds (`robbed`), the next waits do not yield at
 * all, since a sleeper is woken at once.
 */
static void learn(sherd__patience *patience, int round, int spins, int yields, bool robbed)
{
    if (round == 0)
        return; /* it had come already */
    if (round <= spins)
        patience->spins =
            patience->spins < patience->most_spins / 2 ? patience->spins * 2 : patience->most_spins;
    else if (round <= spins + yields && patience->spins >= 2 * FEWEST_SPINS)
        patience->spins /= 2;
    if (robbed) {
        patience->yields = patience->calm = 0;
    } else if (patience->yields < patience->most_yields && ++patience->calm == CALM) {
        patience->yields = patience->yields ? patience->yields * 2 : 1;
        patience->calm = 0;
    }
}

/* How many yields a wait may take that has spun so often; a round that asks MPI takes as long. */
static int yields_of(const sherd_world *world, int spins)
{
    const sherd__patience *patience = &world->patience;
    int unspun = (patience->most_spins - spins) / (world->remote ? 1 : 16);
    return patience->yields == patience->most_yields ? patience->yields + unspun : patience->yields;
}

/* Whether a wait that asks MPI has spun long enough; *since: when first asked, 0 = not yet. */
static bool has_spun(const sherd_world *world, int round, int64_t *since)
{
    if (!world->remote || round % ASKS)
        return false;
    int64_t now = sherd__now();
    *since = *since ? *since : now;
    return now - *since > SPIN_NS;
}

/*
 * Wait, and give up after the deadline. A round counts as at most one sleep: if the whole job was
 * stopped in it (Ctrl-Z, a debugger), this rank has not waited for another that long.
 */
static bool wait_in_rounds(sherd_world *world, const sherd__wait *wait)
{
    sherd__patience *patience = &world->patience;
    int64_t first = 0, last = 0, waited = 0, since = 0;
    bool good = true, moved, robbed = false;
    int round = 0, longest = 0, spins = patience->spins, yields = yields_of(world, spins);
    sherd__waiting slow;

    while (!is_over(world, wait, &good, &moved)) {
        if (moved) {
            round = 0;
            since = 0;
            continue;
        }
        round += round < INT_MAX; /* a wait of hours that asks MPI has so many */
        if (round > longest)
            longest = round;
        if (round <= spins) {
            if (round > EAGER)
                pause_core();
            if (has_spun(world, round, &since))
                yields = yields_of(world, spins = round);
            continue;
        }
        int64_t now = sherd__now();
        if (world->trace)
            sherd__trace_waiting(world, wait, &slow, !first);
        first = first ? first : now;
        waited += last ? sherd__min(now - last, patience->sleep_ns) : 0;
        last = now;
        if (round <= spins + yields && !robbed) {
            sched_yield();
            robbed = sherd__now() - now > ROBBED_NS;
            continue;
        }
        if (waited > patience->deadline_ns)
            time_out(world, wait);
        if (slow_round(world, wait, world->trace ? &slow : NULL, &good))
            break;
    }
    if (first)
        world->waited += sherd__now() - first;
    if (first && world->trace)
        sherd__trace_waited(world, &slow);
    learn(patience, longest, spins, yields, robbed);
    if (!good)
        sherd__post_cut(world);
    sherd__post_be_silent(world);
    return good;
}

bool sherd__wait_for(sherd_world *world, const sherd__wait *wait)
{
    return wait->done(world, wait->what) || wait_in_rounds(world, wait);
}

void sherd__patience_init(sherd__patience *patience, bool crowded, int64_t deadline_ns)
{
    patience->most_spins = patience->spins = crowded ? FEWEST_SPINS : MOST_SPINS;
    patience->most_yields = patience->yields = YIELDS;
    patience->sleep_ns = 100 * 1000 * 1000;
    patience->deadline_ns = deadline_ns;
}
