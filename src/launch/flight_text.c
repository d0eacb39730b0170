/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight record for people, on a screen however many ranks there are: those that say the same,
 * but for how long they wait, share two lines; those that others wait for come first.
 */
#include "flight.h"
#include "world/inside.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { MOST_GROUPS = 10, WHO_ROOM = 40, LINE_ROOM = 512 };

/* Ranks that say the same. */
typedef struct crowd {
    sherd__ranks ranks;
    char says[LINE_ROOM], before[LINE_ROOM];
    double least, most; /* seconds; most < 0: they do not wait */
} crowd;

/* Ranks of a set, "0-3,5", into out[room], cut with "..." where it is too short. Returns out. */
static const char *ranks_text(const sherd__ranks *ranks, char *out, size_t room)
{
    sherd__writer w = {out, room, 0};

    out[0] = '\0';
    for (int first, last = -1; (first = sherd__ranks_next(ranks, last + 1)) >= 0;) {
        for (last = first; sherd__ranks_has(ranks, last + 1);)
            last++;
        sherd__write(&w, "%s%d", w.length ? "," : "", first);
        if (last > first)
            sherd__write(&w, "%c%d", last > first + 1 ? '-' : ',', last);
    }
    if (w.length >= room && room > 3)
        strcpy(out + room - 4, "...");
    return out;
}

static bool is_one(const sherd__ranks *ranks)
{
    return sherd__ranks_next(ranks, sherd__ranks_next(ranks, 0) + 1) < 0;
}

static const char *who_text(const sherd__ranks *ranks, char *out, size_t room)
{
    int at = snprintf(out, room, is_one(ranks) ? "rank " : "ranks ");

    ranks_text(ranks, out + at, room - (size_t)at);
    return out;
}

/* ---- what a rank says ------------------------------------------------------------------------ */

/* A label without what begins all names of the library. */
static const char *short_label(const sherd__flight_call *call)
{
    return strncmp(call->label, "sherd_", 6) == 0 ? call->label + 6 : call->label;
}

static void write_call(sherd__writer *w, const sherd__flight_call *call)
{
    char group[WHO_ROOM];

    sherd__write(w, "call %llu of ranks %s", (unsigned long long)call->number,
                 ranks_text(&call->group, group, sizeof group));
    if (call->label[0])
        sherd__write(w, ": %s", short_label(call));
}

static void write_wait(sherd__writer *w, const sherd__flight_rank *rank)
{
    char who[WHO_ROOM];
    bool any = !sherd__ranks_none(&rank->awaited);

    if (any)
        sherd__write(w, " for %s", who_text(&rank->awaited, who, sizeof who));
    if (rank->meeting[0]) {
        sherd__write(w, "%s%s", any ? " to come to " : " in ", rank->meeting);
    } else if (rank->call.number) {
        sherd__write(w, rank->to_finish ? " to finish " : " to make ");
        write_call(w, &rank->call);
    }
}

static void write_end(sherd__writer *w, const sherd__flight_rank *rank)
{
    if (rank->code < 0)
        sherd__write(w, "has ended");
    else if (rank->signal)
        sherd__write(w, "was killed by signal %d (%s)", rank->signal,
                     sherd__signal_name(rank->signal));
    else
        sherd__write(w, "has exited with status %d", rank->code);
}

static void write_doing(sherd__writer *w, const sherd__flight_rank *rank)
{
    switch (rank->doing) {
    case SHERD__IS_ABSENT:
        sherd__write(w, "has not opened its world");
        return;
    case SHERD__RUNS:
        sherd__write(w, "runs, and waits for nobody");
        return;
    case SHERD__WAITS:
    case SHERD__WAITED:
        write_wait(w, rank);
        return;
    case SHERD__IS_STOPPED:
        sherd__write(w, "is stopped");
        return;
    case SHERD__HAS_CLOSED:
        sherd__write(w, "has closed its world");
        return;
    case SHERD__HAS_ENDED:
        write_end(w, rank);
        return;
    }
}

static void write_before(sherd__writer *w, const sherd__flight_rank *rank)
{
    char group[WHO_ROOM];

    /* The newest in full, the others by name; the group where it changes. */
    for (int i = 0; i < rank->count; i++) {
        const sherd__flight_call *call = &rank->last[i];
        const char *label = short_label(call);
        int length = (int)(i ? strcspn(label, " ") : strlen(label));
        sherd__write(w, "%s%llu %.*s%s", i ? "; " : "", (unsigned long long)call->number, length,
                     label, call->done ? "" : " (open)");
        if (i == 0 || !sherd__ranks_equal(&rank->last[i - 1].group, &call->group))
            sherd__write(w, " of ranks %s", ranks_text(&call->group, group, sizeof group));
    }
    if (rank->count == 0)
        sherd__write(w, "no calls yet");
}

/* ---- crowds ---------------------------------------------------------------------------------- */

static void describe(const sherd__flight_rank *rank, crowd *out)
{
    sherd__writer says = {out->says, sizeof out->says, 0},
                  before = {out->before, sizeof out->before, 0};
    bool waits = rank->doing == SHERD__WAITS || rank->doing == SHERD__WAITED;

    if (waits)
        sherd__write(&says, rank->doing == SHERD__WAITS ? "waits" : "waited");
    write_doing(&says, rank);
    write_before(&before, rank);
    out->least = out->most = waits ? 1e-9 * (double)rank->waited_ns : -1;
}

/* Add a rank to the ones that say the same, or alone. */
static void join_crowd(crowd *all, int *count, const crowd *one)
{
    for (int i = 0; i < *count; i++) {
        crowd *c = &all[i];
        if (strcmp(c->says, one->says) != 0 || strcmp(c->before, one->before) != 0)
            continue;
        sherd__ranks_join(&c->ranks, &one->ranks);
        c->least = one->least < c->least ? one->least : c->least;
        c->most = one->most > c->most ? one->most : c->most;
        return;
    }
    if (*count < MOST_GROUPS)
        all[(*count)++] = *one;
}

/* ---- the page -------------------------------------------------------------------------------- */

/* One line of at most FLIGHT_COLUMNS, what is longer is cut. */
static void put_line(sherd__writer *page, const char *text)
{
    size_t length = strlen(text);
    bool cut = length > SHERD__FLIGHT_COLUMNS;

    sherd__write(page, "%.*s%s\n", cut ? SHERD__FLIGHT_COLUMNS - 3 : (int)length, text,
                 cut ? "..." : "");
}

static void put_crowd(sherd__writer *page, const sherd__flight *flight, const crowd *c)
{
    char line[3 * LINE_ROOM] = "", who[WHO_ROOM], time[48] = "";
    sherd__writer w = {line, sizeof line, 0};
    size_t verb = strcspn(c->says, " ");
    int first = sherd__ranks_next(&c->ranks, 0);

    sherd__write(&w, "  %s: ", who_text(&c->ranks, who, sizeof who));
    if (c->most >= 0) {
        bool same = c->most - c->least < 0.1;
        snprintf(time, sizeof time, same ? " %.1f s" : " %.1f-%.1f s", same ? c->most : c->least,
                 c->most);
        sherd__write(&w, "%.*s%s%s", (int)verb, c->says, time, c->says + verb);
    } else {
        sherd__write(&w, "%s", c->says);
    }
    if (is_one(&c->ranks) && flight->rank[first].doing != SHERD__HAS_ENDED &&
        flight->rank[first].process)
        sherd__write(&w, " (process %d)", flight->rank[first].process);
    put_line(page, line);
    snprintf(line, sizeof line, "      last: %s", c->before);
    put_line(page, line);
}

static void put_missing(sherd__writer *page, const sherd__flight *flight)
{
    char line[LINE_ROOM], who[WHO_ROOM];
    bool waits = false;

    for (int r = 0; r < flight->ranks; r++)
        waits |= !sherd__ranks_none(&flight->rank[r].awaited);
    if (!sherd__ranks_none(&flight->missing))
        snprintf(line, sizeof line, "  missing: %s", who_text(&flight->missing, who, sizeof who));
    else if (waits)
        snprintf(line, sizeof line, "  missing: nobody; ranks wait for each other");
    else
        return;
    put_line(page, line);
}

void sherd__flight_text(const sherd__flight *flight, char out[SHERD__FLIGHT_ROOM])
{
    crowd all[MOST_GROUPS], c;
    sherd__ranks rest;
    int count = 0;
    char line[2 * SHERD_ERROR_BYTES], who[WHO_ROOM];
    sherd__writer page = {out, SHERD__FLIGHT_ROOM, 0};

    snprintf(line, sizeof line, "flight record: %s", flight->why);
    put_line(&page, line);
    put_missing(&page, flight);
    for (int missing = 1; missing >= 0; missing--)
        for (int r = 0; r < flight->ranks; r++) {
            if (sherd__ranks_has(&flight->missing, r) != (missing == 1))
                continue;
            sherd__ranks_clear(&c.ranks);
            sherd__ranks_add(&c.ranks, r);
            describe(&flight->rank[r], &c);
            join_crowd(all, &count, &c);
        }
    sherd__ranks_fill(&rest, flight->ranks);
    for (int i = 0; i < count; i++) {
        put_crowd(&page, flight, &all[i]);
        sherd__ranks_less(&rest, &all[i].ranks);
    }
    if (!sherd__ranks_none(&rest)) {
        snprintf(line, sizeof line, "  and %s", who_text(&rest, who, sizeof who));
        put_line(&page, line);
    }
}
