/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a flight record is taken, and when it is told. When a rank dies, it is taken before the
 * others learn of it, while they still wait. After a timeout, or if ranks differ, which the ranks
 * find themselves, it is taken as soon as the launcher sees that, from what the interrupted waits
 * have left; ranks that differ may recover, so it is told only if the job then fails. On SIGUSR1 it
 * is taken and told at once.
 */
#include "flight.h"
#include "world/inside.h"

#include <stdio.h>

static void take(sherd__rank_watch *w, const char *why, bool failed)
{
    if (!w->flight || w->taken || w->signal)
        return;
    sherd__flight_take(w->flight, w, why, failed);
    w->taken = true;
    w->differs = false;
}

/* Whether a rank leaves because a check has failed that all know of: there is nothing to find
 * out. */
static bool is_known(const sherd__rank_watch *w, uint64_t word)
{
    int rank = sherd__rank_in(word);
    char text[SHERD_ERROR_BYTES];
    sherd_status told = sherd__read_told(&w->arena->control->post[rank], text, sizeof text);

    return sherd__end_in(word) == SHERD__END_EXITED && told && told != SHERD_EDIFFER;
}

static bool anybody_in(const sherd__rank_watch *w)
{
    bool in = false;

    for (int r = 0; r < w->ranks; r++)
        in |= atomic_load(&w->arena->control->post[r].presence) == SHERD__PRESENT;
    return in;
}

void sherd__recorder_lose(sherd__rank_watch *w, uint64_t word)
{
    char text[SHERD_ERROR_BYTES];

    if (!w->flight || w->taken || !anybody_in(w) || is_known(w, word))
        return;
    sherd__end_text(w->arena->control, word, text, sizeof text);
    take(w, text, false);
}

/* The first rank that has been told of a difference and has not dealt with it. */
static bool read_difference(const sherd__rank_watch *w, char *text, size_t room)
{
    for (int r = 0; r < w->ranks; r++)
        if (sherd__read_told(&w->arena->control->post[r], text, room) == SHERD_EDIFFER)
            return true;
    return false;
}

void sherd__recorder_look(sherd__rank_watch *w)
{
    uint64_t word = sherd__look(&w->arena->control->death);
    char text[SHERD_ERROR_BYTES];
    bool differs;

    if (!w->flight)
        return;
    if (word && sherd__is_lost(sherd__status_in(word)) && !w->taken && !is_known(w, word)) {
        sherd__end_text(w->arena->control, word, text, sizeof text);
        take(w, text, true);
    }
    differs = (!w->taken || w->differs) && read_difference(w, text, sizeof text);
    if (w->differs && !differs && !word)
        w->taken = w->differs = false; /* a good check since then */
    if (differs && !w->taken) {
        take(w, text, true);
        w->differs = w->taken;
    }
}

static void tell(const sherd__rank_watch *w, const sherd__flight *flight)
{
    char text[SHERD__FLIGHT_ROOM];

    sherd__flight_text(flight, text);
    if (!w->output || !sherd__output_say(w->output, text))
        fputs(text, stderr);
    if (w->recorded)
        w->recorded(flight, w->payload);
}

void sherd__recorder_tell(const sherd__rank_watch *w)
{
    if (w->taken)
        tell(w, w->flight);
}

void sherd__recorder_asked(const sherd__rank_watch *w)
{
    sherd__heap heap = {0};
    sherd__flight *flight = sherd__alloc(&heap, 1, sizeof *flight);

    if (!flight)
        return;
    sherd__flight_take(flight, w, "asked for with SIGUSR1", w->taken);
    tell(w, flight);
    sherd__free(&heap, flight);
}
