/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank runs a program: operation after operation, noise between them, faults where it has some,
 * until a meeting is not good. Then it gives up what the program held. Memory must be back to what
 * it was, however the program ended.
 */
#include "run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void runner_open(runner *u, sherd_world *world, const scene *s, board *b, uint64_t seed)
{
    memset(u, 0, sizeof *u);
    u->world = world;
    u->rank = sherd_world_rank(world);
    u->s = s;
    u->board = b;
    u->me = &b->rank[u->rank];
    u->noise.state = mix(seed + (uint64_t)u->rank);
    u->pace = one_in(&u->noise, 4) ? SLOW : one_in(&u->noise, 4) ? HASTY : STEADY;
    atomic_store(&u->me->pid, (int)getpid());
}

void log_word(runner *u, int word)
{
    if (u->me->logged < LOG)
        u->me->log[u->me->logged++] = (int8_t)word;
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool met(runner *u, sherd_status status)
{
    int_fast64_t never = 0;

    log_word(u, status);
    atomic_fetch_add(&u->me->steps, 1);
    if (status == SHERD_OK)
        return true;
    u->verdict = status;
    snprintf(u->me->error, sizeof u->me->error, "%s", sherd_world_error(u->world));
    if (status == SHERD_EPEER)
        atomic_compare_exchange_strong(&u->me->closed_at, &never, now_ns());
    return false;
}

bool is_closed(sherd_status status)
{
    return status == SHERD_EPEER || status == SHERD_ETIMEDOUT;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static const fault *fault_here(const runner *u, int at)
{
    for (int i = 0; i < u->t->faults; i++) {
        const fault *f = &u->t->fault[i];
        if ((f->ranks >> u->rank & 1) &&
            (f->at == at || (f->kind == FAULT_SWAPPED && f->other == at)))
            return f;
    }
    return NULL;
}

/* Returns whether the operation itself is done as well. */
static bool err(runner *u, const fault *f)
{
    switch (f->kind) {
    case FAULT_EXTRA:
    case FAULT_CHECK_EXTRA:
        act(u, &f->alt);
        return u->verdict == SHERD_OK;
    case FAULT_MISSING:
    case FAULT_CHECK_MISSING:
        return false;
    case FAULT_SWAPPED:
        act(u, &u->p->op[u->at == f->at ? f->other : f->at]);
        return false;
    case FAULT_RAISED:
        sherd_world_fail(u->world, (sherd_status)f->status, "told to fail");
        u->must_fail = true;
        return true;
    case FAULT_LEFT:
        u->left = true;
        return false;
    default:
        act(u, &f->alt);
        return false;
    }
}

static void note_faults(runner *u, int at)
{
    for (int i = 0; i < u->t->faults; i++)
        u->blind |= u->t->fault[i].at <= at;
}

/* ---- a program ------------------------------------------------------------------------------- */

static void begin(runner *u, const turn *t)
{
    u->t = t;
    u->p = t->p;
    u->at = 0;
    u->good_at = -1;
    u->blind = u->must_fail = false;
    u->verdict = SHERD_OK;
    memset(u->layout, 0, sizeof u->layout);
    memset(u->slot, 0, sizeof u->slot);
    memset(u->own, 0, sizeof u->own);
    memset(u->born, -1, sizeof u->born);
    log_word(u, MARK);
    u->scopes = 1;
    sherd_scope_begin(u->world);
    if (t->starved == u->rank)
        sherd_world_fail_allocation(u->world, t->allocation);
}

static void give_back(runner *u)
{
    for (int i = 0; i < SLOTS; i++)
        if (u->own[i])
            sherd_tensor_release(u->slot[i]);
    memset(u->slot, 0, sizeof u->slot);
    memset(u->own, 0, sizeof u->own);
    for (int i = 0; i < LAYOUTS; i++)
        sherd_layout_release(u->layout[i]);
    memset(u->layout, 0, sizeof u->layout);
    for (; u->scopes > 0; u->scopes--)
        sherd_scope_end(u->world);
}

static void run_ops(runner *u)
{
    for (; u->at < u->p->ops && !u->verdict && !u->left; u->at++) {
        const fault *f = fault_here(u, u->at);
        note_faults(u, u->at);
        atomic_store_explicit(&u->me->at, u->at, memory_order_relaxed);
        atomic_fetch_add_explicit(&u->me->steps, 1, memory_order_relaxed);
        make_noise(u);
        if (!f || err(u, f))
            act(u, &u->p->op[u->at]);
        if (u->verdict)
            return; /* `at` stays where the program was given up */
    }
}

sherd_status run_turn(runner *u, const turn *t)
{
    int64_t before = sherd_world_memory(u->world).live_bytes;

    begin(u, t);
    run_ops(u);
    if (t->starved == u->rank)
        sherd_world_fail_allocation(u->world, 0);
    if (u->left)
        return SHERD_OK;
    sherd_status verdict = u->verdict;
    if (verdict && !is_closed(verdict) && !t->verified)
        survey(u);
    give_back(u);
    /* Not all ranks may have made the last writes: equal tensors may differ, which SHERD_VERIFY
     * does not let pass. */
    if (verdict && !is_closed(verdict) && t->verified)
        settle(u);
    int64_t after = sherd_world_memory(u->world).live_bytes;
    if (after != before)
        say_wrong(u, "%lld bytes of tensors are alive after the program, %lld before it",
                  (long long)after, (long long)before);
    if (sherd_saved_bytes(u->world) != 0)
        say_wrong(u, "the tape still holds %lld bytes", (long long)sherd_saved_bytes(u->world));
    if (!is_closed(u->verdict))
        look_inside(u);
    return is_closed(u->verdict) ? u->verdict : verdict;
}
