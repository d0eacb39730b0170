/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace: what each rank does and waits for, as events in Chrome's JSON format, for Perfetto and
 * chrome://tracing. Every rank appends whole lines to one file, when a buffer is full and at
 * checks, so nothing has to be merged at the end, and after a crash the file is complete up to the
 * last check; the format allows its list to be left open. Clocks are rank 0's: those of other
 * machines are compared with it when the world opens (clocks.c). An event costs about a
 * microsecond; without a trace it costs a branch.
 *
 * The process that starts the ranks (the launcher, sherd_spawn, or a program that is its only rank)
 * empties the file, once: that is noted in the environment, so that later worlds of the same job
 * append to it.
 */
#include "trace.h"
#include "inside.h"

#include "base/file_limit.h"
#include "base/open.h"
#include "base/text.h"
#include "base/variable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 64 << 10, LONGEST = 8 << 10 /* of an event */, WHOM = 1 << 10 };
static const int64_t most_bytes = INT64_C(1) << 30; /* that a rank writes */

static const char asked_name[] = "SHERD_TRACE", begun_name[] = "SHERD_TRACE_BEGUN";

struct sherd__trace {
    int file;
    int64_t written;
    size_t used;
    char text[BUFFER];
};

/* ---- the file -------------------------------------------------------------------------------- */

static const char *asked_path(void)
{
    return sherd__variable(asked_name);
}

bool sherd__trace_is_asked(void)
{
    return asked_path() != NULL;
}

static sherd_status can_not(sherd__diag *diag, const char *path)
{
    return sherd__fail(diag, SHERD_EINVAL, "%s=%.300s: can not write it: %s", asked_name, path,
                       strerror(errno));
}

sherd_status sherd__trace_begin(sherd__diag *diag)
{
    const char *path = asked_path(), *begun = getenv(begun_name);
    sherd__file_signal limit;

    if (!path || (begun && strcmp(begun, path) == 0))
        return SHERD_OK;
    int file = sherd__open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    sherd__file_signal_hold(&limit);
    bool good = file >= 0 && write(file, "[\n", 2) == 2;
    int error = errno;
    sherd__file_signal_drop(&limit);
    if (file >= 0)
        close(file);
    errno = error;
    if (!good)
        return can_not(diag, path);
    return setenv(begun_name, path, 1) ? sherd__no_memory(diag, "SHERD_TRACE") : SHERD_OK;
}

/* A trace that can not go on says so, once, and ends: it is no reason to stop the program. */
static void end_trace(sherd_world *world, const char *why)
{
    char line[128];
    int n = snprintf(line, sizeof line, "sherd: rank %d: the trace ends here: %.60s\n", world->rank,
                     why);

    ssize_t said = write(2, line, (size_t)n);
    (void)said; /* it ends also where nobody can be told */
    close(world->trace->file);
    world->trace->file = -1;
}

/* How much of it is written. A signal may end the wait for a pipe, or a part of what it takes. */
static size_t write_text(const sherd__trace *t)
{
    size_t done = 0;

    while (done < t->used) {
        ssize_t n = write(t->file, t->text + done, t->used - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    return done;
}

void sherd__trace_flush(sherd_world *world)
{
    sherd__trace *t = world->trace;
    sherd__file_signal limit;

    if (t && sherd__is_forked(world))
        t->used = 0; /* the rank writes it */
    if (!t || t->file < 0 || t->used == 0)
        return;
    /* In one go, so that lines of other ranks come before or behind, and not between. */
    sherd__file_signal_hold(&limit);
    size_t done = write_text(t);
    const char *why =
        done > 0 ? "the disk is full, or the file as large as it may be" : strerror(errno);
    if (done < t->used)
        end_trace(world, why);
    sherd__file_signal_drop(&limit);
    t->written += (int64_t)t->used;
    t->used = 0;
    if (t->file >= 0 && t->written > most_bytes)
        end_trace(world, "this rank has written a gigabyte");
}

sherd_status sherd__trace_open(sherd_world *world)
{
    const char *path = asked_path();

    if (!path)
        return SHERD_OK;
    sherd__trace *t = sherd__alloc(&world->heap, 1, sizeof *t);
    if (!t)
        return sherd__no_memory(&world->diag, "sherd_world_open");
    t->file = sherd__open_file(path, O_WRONLY | O_APPEND | O_CREAT);
    if (t->file < 0) {
        sherd__free(&world->heap, t);
        return can_not(&world->diag, path);
    }
    world->trace = t;
    int n = snprintf(
        t->text, BUFFER,
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{"
        "\"name\":\"rank %d\"}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,"
        "\"tid\":0,\"args\":{\"sort_index\":%d}},\n",
        world->rank, world->rank, world->rank, world->rank);
    t->used = (size_t)n;
    return SHERD_OK;
}

void sherd__trace_close(sherd_world *world)
{
    sherd__trace *t = world->trace;

    if (!t)
        return;
    if (world->process == (int)getpid())
        sherd__trace_flush(world);
    if (t->file >= 0)
        close(t->file);
    sherd__free(&world->heap, t);
    world->trace = NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void write_words(sherd__writer *w, const sherd_world *world, const sherd__event *e)
{
    const char *module = sherd__place_path(world, world->counts.now);

    for (int i = 0; i < SHERD__EVENT_WORDS && e->word[i].key; i++) {
        sherd__write(w, "\"%s\":", e->word[i].key);
        if (e->word[i].text)
            sherd__write_quoted(w, e->word[i].text);
        else
            sherd__write(w, "%" PRId64, e->word[i].number);
        sherd__write(w, ",");
    }
    sherd__write(
        w, "\"backward\":%s,\"module\":", world->counts.now & SHERD__BACKWARD ? "true" : "false");
    sherd__write_quoted(w, module ? module : "");
}

void sherd__trace_add(sherd_world *world, const sherd__event *e)
{
    sherd__trace *t = world->trace;
    int64_t start = e->start - world->arena.clock_ahead, took = sherd__clock(world) - e->start;

    if (!t || t->file < 0)
        return;
    if (BUFFER - t->used < LONGEST)
        sherd__trace_flush(world);
    sherd__writer w = {t->text + t->used, BUFFER - t->used, 0};
    sherd__write(&w, "{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"cat\":\"%s\",\"name\":", world->rank,
                 e->kind);
    sherd__write_quoted(&w, e->name);
    sherd__write(&w, ",\"ts\":%" PRId64 ".%03d,\"dur\":%" PRId64 ".%03d,\"args\":{", start / 1000,
                 (int)(start % 1000), took / 1000, (int)(took % 1000));
    write_words(&w, world, e);
    sherd__write(&w, "}},\n");
    if (w.length < BUFFER - t->used)
        t->used += w.length;
}

int64_t sherd__trace_start(const sherd_world *world)
{
    return world->trace ? sherd__clock(world) : 0;
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Ranks of a set as "0,3". */
static void ranks_text(const sherd__ranks *ranks, char *out, size_t room)
{
    sherd__writer w = {out, room, 0};

    for (int q = -1; (q = sherd__ranks_next(ranks, q + 1)) >= 0;)
        sherd__write(&w, "%s%d", w.length ? "," : "", q);
    if (w.length >= room)
        strcpy(out + room - 4, "...");
}

/* For these ranks from now on. What it was for longest stays. */
static void wait_for_ranks(sherd__waiting *w, const sherd__ranks *ranks)
{
    int64_t now = sherd__now();

    if (now - w->since > w->longest) {
        w->longest = now - w->since;
        sherd__ranks_copy(&w->whom, &w->now);
    }
    w->since = now;
    sherd__ranks_copy(&w->now, ranks);
}

void sherd__trace_waiting(sherd_world *world, const sherd__wait *wait, sherd__waiting *w,
                          bool begins)
{
    uint32_t waits, needs;
    char label[160];
    sherd__said said = {0};

    if (begins) {
        w->start = w->since = sherd__now();
        sherd__ranks_clear(&w->now);
        sherd__ranks_clear(&w->whom);
        w->longest = 0;
        snprintf(w->name, sizeof w->name, "wait%s%s", world->arrived ? " in " : "",
                 world->arrived ? world->post->name : "");
    }
    if (world->arrived) {
        sherd__not_arrived(world->arena.control, world->round + 1, &said.ranks);
        wait_for_ranks(w, &said.ranks);
        return;
    }
    sherd__post_announce(world, wait);
    sherd__post_counts(world, world->rank, &waits, &needs);
    if (waits)
        said = sherd__post_read(world, world->rank, 0);
    wait_for_ranks(w, &said.ranks);
    if (!waits || strcmp(w->name, "wait") != 0) /* what it is for may not be known at its begin */
        return;
    sherd__record_text(world, world->rank, said.lane, said.number, label, sizeof label);
    snprintf(w->name, sizeof w->name, "wait %s %.150s",
             said.lack == SHERD__LEFT ? "for the end of" : "for", label);
}

void sherd__trace_waited(sherd_world *world, sherd__waiting *w)
{
    char ranks[WHOM] = "";

    wait_for_ranks(w, &w->now);
    ranks_text(&w->whom, ranks, sizeof ranks);
    sherd__trace_add(
        world, &(sherd__event){"wait", w->name, w->start, {{.key = "for ranks", .text = ranks}}});
}
