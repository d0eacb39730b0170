/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight record of `sherd run` as a JSON file. The file is replaced as a whole, so that nobody
 * reads half of one; a device, a pipe, or what a link leads to, is written directly.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"

/* ---- what it says ---------------------------------------------------------------------------- */

static json_t *ranks_of(const sherd__ranks *ranks)
{
    json_t *array = json_array();
    bool good = array != NULL;

    for (int r = -1; good && (r = sherd__ranks_next(ranks, r + 1)) >= 0;)
        cli_append(&good, array, json_integer(r));
    return cli_whole(good, array);
}

static json_t *call_of(const sherd__flight_call *call)
{
    json_t *out;
    bool good;

    if (!call->number)
        return json_null();
    good = (out = json_object()) != NULL;
    cli_put(&good, out, "number", json_integer((json_int_t)call->number));
    cli_put(&good, out, "group", ranks_of(&call->group));
    cli_put(&good, out, "label", call->label[0] ? cli_string(call->label) : json_null());
    cli_put(&good, out, "done", json_boolean(call->done));
    return cli_whole(good, out);
}

static json_t *calls_of(const sherd__flight_rank *rank)
{
    json_t *array = json_array();
    bool good = array != NULL;

    for (int i = 0; i < rank->count; i++)
        cli_append(&good, array, call_of(&rank->last[i]));
    return cli_whole(good, array);
}

static const char *doing_name(sherd__doing doing)
{
    static const char *const names[] = {
        [SHERD__IS_ABSENT] = "absent",   [SHERD__RUNS] = "runs",
        [SHERD__WAITS] = "waits",        [SHERD__WAITED] = "waited",
        [SHERD__IS_STOPPED] = "stopped", [SHERD__HAS_CLOSED] = "closed",
        [SHERD__HAS_ENDED] = "ended",
    };
    return names[doing];
}

static json_t *wait_of(const sherd__flight_rank *rank)
{
    json_t *out;
    bool good;

    if (rank->doing != SHERD__WAITS && rank->doing != SHERD__WAITED)
        return json_null();
    good = (out = json_object()) != NULL;
    cli_put(&good, out, "seconds", json_real(1e-9 * (double)rank->waited_ns));
    cli_put(&good, out, "for", ranks_of(&rank->awaited));
    cli_put(&good, out, "to",
            json_string(rank->meeting[0]  ? "come"
                        : rank->to_finish ? "finish"
                                          : "make"));
    cli_put(&good, out, "meeting", rank->meeting[0] ? cli_string(rank->meeting) : json_null());
    cli_put(&good, out, "call", call_of(&rank->call));
    return cli_whole(good, out);
}

static json_t *rank_of(const sherd__flight_rank *rank, int number)
{
    json_t *out = json_object();
    bool good = out != NULL, ended = rank->doing == SHERD__HAS_ENDED;

    cli_put(&good, out, "rank", json_integer(number));
    cli_put(&good, out, "process", json_integer(rank->process));
    cli_put(&good, out, "doing", json_string(doing_name(rank->doing)));
    cli_put(&good, out, "status",
            ended && rank->code >= 0 ? json_integer(rank->code) : json_null());
    cli_put(&good, out, "wait", wait_of(rank));
    cli_put(&good, out, "calls", json_integer((json_int_t)rank->calls));
    cli_put(&good, out, "last", calls_of(rank));
    return cli_whole(good, out);
}

static json_t *record_of(const sherd__flight *flight)
{
    json_t *out = json_object(), *ranks = json_array();
    bool good = out && ranks;

    for (int r = 0; r < flight->ranks; r++)
        cli_append(&good, ranks, rank_of(&flight->rank[r], r));
    cli_put(&good, out, "why", cli_string(flight->why));
    cli_put(&good, out, "missing", ranks_of(&flight->missing));
    cli_put(&good, out, "ranks", ranks);
    return cli_whole(good, out);
}

/* ---- where it goes --------------------------------------------------------------------------- */

/* Whether a file of this name is replaced, rather than written to. */
static bool is_replaced(const char *path)
{
    struct stat file;

    return lstat(path, &file) ? errno == ENOENT : S_ISREG(file.st_mode);
}

static bool write_whole(int fd, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            text += n;
            left -= (size_t)n;
        }
    }
    return true;
}

static bool replace(const char *path, const char *text)
{
    char temporary[PATH_MAX];
    mode_t mask = umask(0);

    umask(mask);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    if (fd < 0)
        return false;
    bool good = fchmod(fd, 0666 & ~mask) == 0 && write_whole(fd, text);
    good = close(fd) == 0 && good && rename(temporary, path) == 0;
    int cause = errno;
    if (!good)
        unlink(temporary);
    errno = cause;
    return good;
}

/* Prepare to write to an open file: what it had, a longer record or anything else, goes. Where it
 * is what this program prints to, that stays, and the record comes behind it. The descriptor to
 * use; -1 = not possible. */
static int prepare(int fd)
{
    struct stat file, own;

    if (fstat(fd, &file))
        return -1;
    if (!S_ISREG(file.st_mode))
        return fd;
    for (int out = STDOUT_FILENO; out <= STDERR_FILENO; out++)
        if (fstat(out, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino)
            return out;
    return ftruncate(fd, 0) ? -1 : fd;
}

static bool write_to(const char *path, const char *text)
{
    if (is_replaced(path))
        return replace(path, text);
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    int to = prepare(fd);
    bool whole = to >= 0 && write_whole(to, text);
    return close(fd) == 0 && whole;
}

bool cli_record_possible(const char *path)
{
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    struct stat file;

    bool is_folder = stat(path, &file) == 0 && S_ISDIR(file.st_mode);
    if (is_folder || !*path) { /* "" is no name, though its folder could be written to */
        errno = is_folder ? EISDIR : ENOENT;
        return false;
    }
    if (!is_replaced(path))
        return access(path, W_OK) == 0;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return access(folder, W_OK) == 0;
}

void cli_record_write(const sherd__flight *flight, void *path)
{
    json_t *record = record_of(flight);
    char *text = record ? json_dumps(record, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;

    errno = ENOMEM;
    if (!text || !write_to(path, text))
        fprintf(stderr, "sherd run: --record: can not write %.200s: %s\n", (const char *)path,
                strerror(errno));
    free(text);
    json_decref(record);
}
