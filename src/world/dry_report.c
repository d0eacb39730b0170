/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a dry world, when it closes: one line of JSON, appended to a file, which `sherd
 * dry` reads. docs/dry_runs.md lists the keys.
 */
#include "dry.h"

#include "inside.h"

#include "base/file_limit.h"
#include "base/open.h"
#include "base/text.h"
#include "base/variable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char report_name[] = "SHERD_DRY_REPORT";

static void write_real(sherd__writer *w, const char *key, int digits, double value)
{
    sherd__write(w, ",\"%s\":", key);
    sherd__write_number(w, digits, value);
}

static void write_memory(sherd__writer *w, const sherd_world *world)
{
    static const char *const names[SHERD_MEMORY_USES] = {
        [SHERD_MEMORY_OTHER] = "other",           [SHERD_MEMORY_SAVED] = "saved",
        [SHERD_MEMORY_OPTIMIZERS] = "optimizers", [SHERD_MEMORY_GRADIENTS] = "gradients",
        [SHERD_MEMORY_PARAMETERS] = "parameters",
    };
    const sherd_memory *m = &world->store.memory;

    sherd__write(w, ",\"memory\":{\"live_bytes\":%" PRId64 ",\"peak_bytes\":%" PRId64 ",\"peak\":{",
                 m->live_bytes, m->peak_bytes);
    for (int use = 0; use < SHERD_MEMORY_USES; use++)
        sherd__write(w, "%s\"%s\":%" PRId64, use ? "," : "", names[use], m->peak_for[use]);
    sherd__write(w, "}}");
}

static void write_calls(sherd__writer *w, const sherd__tally *call, int calls)
{
    const char *comma = "";

    sherd__write(w, ",\"calls\":[");
    for (int i = 0; i < calls; i++) {
        if (call[i].calls == 0)
            continue;
        sherd__write(w,
                     "%s{\"kind\":\"%s\",\"axes\":\"%s\",\"calls\":%" PRId64
                     ",\"received_bytes\":%" PRId64,
                     comma, call[i].op, call[i].axes, call[i].calls, call[i].bytes);
        write_real(w, "seconds", 9, 1e-9 * (double)call[i].nanoseconds);
        sherd__write(w, "}");
        comma = ",";
    }
    sherd__write(w, "]");
}

static void write_work(sherd__writer *w, const sherd_dry_work *work, int works)
{
    const char *comma = "";

    sherd__write(w, ",\"work\":[");
    for (int i = 0; i < works; i++) {
        if (work[i].calls == 0)
            continue;
        sherd__write(w, "%s{\"name\":", comma);
        sherd__write_quoted(w, work[i].name);
        sherd__write(w, ",\"calls\":%" PRId64, work[i].calls);
        write_real(w, "operations", 17, work[i].operations);
        sherd__write(w, ",\"bytes\":%" PRId64, work[i].bytes);
        write_real(w, "seconds", 9, 1e-12 * (double)work[i].picoseconds);
        sherd__write(w, "}");
        comma = ",";
    }
    sherd__write(w, "]");
}

static void write_counts(sherd__writer *w, const sherd__dry_counts *c)
{
    sherd__write(w, "{\"seconds\":");
    sherd__write_number(w, 9, 1e-12 * (double)c->picoseconds);
    write_calls(w, c->call, c->calls);
    write_work(w, c->work, c->works);
    sherd__write(w, "}");
}

static void write_all(sherd__writer *w, const sherd_world *world, const sherd__dry_counts *step)
{
    const sherd__dry *dry = world->dry;
    sherd__dry_counts all = dry->now;

    all.call = world->tally;
    all.calls = world->tallies;
    sherd__write(w, "{\"rank\":%d,\"ranks\":%d,\"rates\":{\"f32\":", world->rank, world->ranks);
    sherd__write_number(w, 9, dry->rates.f32);
    write_real(w, "f64", 9, dry->rates.f64);
    write_real(w, "half", 9, dry->rates.half);
    write_real(w, "memory", 9, dry->rates.memory);
    sherd__write(w, "}");
    write_memory(w, world);
    sherd__write(w, ",\"all\":");
    write_counts(w, &all);
    sherd__write(w, ",\"steps\":%" PRId64 ",\"step\":", dry->steps);
    if (step)
        write_counts(w, step);
    else
        sherd__write(w, "null");
    sherd__write(w, ",\"failure\":");
    if (*world->post->alarm)
        sherd__write_quoted(w, world->post->alarm);
    else
        sherd__write(w, "null");
    sherd__write(w, "}\n");
}

/* Append a text; 0, or errno. */
static int append(const char *path, const char *text, size_t length)
{
    sherd__file_signal limit;
    int file = sherd__open_file(path, O_WRONLY | O_APPEND | O_CREAT), error = file < 0 ? errno : 0;

    if (file < 0)
        return error;
    sherd__file_signal_hold(&limit);
    ssize_t n = write(file, text, length);
    error = n == (ssize_t)length ? 0 : n < 0 ? errno : ENOSPC;
    sherd__file_signal_drop(&limit);
    return close(file) && !error ? errno : error;
}

static void tell(const char *path, const char *why)
{
    sherd__diag diag = {.rank = -1};

    sherd__fail(&diag, SHERD_EINVAL, "sherd: %s=%.300s: can not write it: %.100s\n", report_name,
                path, why);
    ssize_t said = write(2, diag.text, strlen(diag.text));
    (void)said; /* nobody can be told */
}

/* The file; NULL: none is asked for. */
static const char *asked_path(void)
{
    return sherd__variable(report_name);
}

bool sherd__dry_report_is_asked(void)
{
    return asked_path() != NULL;
}

void sherd__dry_report(sherd_world *world)
{
    const char *path = asked_path();
    sherd__writer w = {NULL, 0, 0};
    sherd__dry_counts step;

    if (!world->dry || !path)
        return;
    bool stepped = sherd__dry_last_step(world, &step);
    write_all(&w, world, stepped ? &step : NULL);
    char *text = sherd__alloc(&world->heap, w.length + 1, 1);
    if (!text) {
        tell(path, "out of memory");
        return;
    }
    w = (sherd__writer){text, w.length + 1, 0};
    write_all(&w, world, stepped ? &step : NULL);
    int error = append(path, text, w.length);
    if (error)
        tell(path, strerror(error));
    sherd__free(&world->heap, text);
}
