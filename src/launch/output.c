/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of ranks on its way through the launcher. Lines stay whole, and those of a rank in
 * their order; a last line without an end gets one. Buffers are made at the start and never grow:
 * when the reader of the launcher is slow, ranks wait as they would for any pipe, but the launcher
 * itself never does, and goes on watching. A line longer than LINE bytes goes on in pieces. A
 * reader that is gone is gone for the ranks too, who get what they would get from a pipe. What can
 * not be written for another reason, as on a full disk, is lost, and the ranks go on.
 */
#include "output.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 1 << 16, QUEUE = 1 << 18 };

/* ---- making ---------------------------------------------------------------------------------- */

/*
 * Prepare writing to a descriptor without blocking. Pipes and terminals are opened a second time
 * for that, so that the descriptor itself, which others share, stays as it is.
 */
static void open_sink(sherd__sink *sink, int fd)
{
    struct stat kind;
    char path[64];

    sink->fd = fd;
    sink->polled = -1;
    /*
     * Regular files do not block. A descriptor that was closed has been filled by the launcher, for
     * reading only: writing to it fails, and is reported.
     */
    if (fstat(fd, &kind) || S_ISREG(kind.st_mode) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return;
    sink->socket = S_ISSOCK(kind.st_mode);
    if (sink->socket)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int anew = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    sink->own = anew >= 0;
    sink->waits = anew < 0;
    sink->fd = anew >= 0 ? anew : fd;
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static sherd_status open_log(sherd__stream *s, const char *folder, const char *end,
                             sherd__diag *diag)
{
    char path[PATH_MAX];

    errno = ENAMETOOLONG;
    if (snprintf(path, sizeof path, "%s/rank-%d.%s", folder, s->rank, end) < (int)sizeof path)
        s->log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (s->log < 0)
        return sherd__fail(diag, SHERD_EINVAL, "can not write %.200s: %s", path, strerror(errno));
    return SHERD_OK;
}

static sherd_status open_pipe(sherd__stream *s, sherd__heap *heap, sherd__diag *diag)
{
    int ends[2];

    if (!(s->text = sherd__alloc(heap, LINE, 1)))
        return sherd__no_memory(diag, "sherd run");
    if (pipe2(ends, O_CLOEXEC))
        return sherd__fail(diag, SHERD_ENOMEM, "no pipe: %s (more ranks need a higher `ulimit -n`)",
                           strerror(errno));
    s->in = ends[0];
    s->out = ends[1];
    fcntl(s->in, F_SETFL, O_NONBLOCK); /* this end only: a rank waits as it is used to */
    return SHERD_OK;
}

static sherd_status open_stream(sherd__output *out, int i, bool prefix, const char *folder,
                                sherd__diag *diag)
{
    sherd__stream *s = &out->stream[i];
    sherd_status status = SHERD_OK;

    *s = (sherd__stream){.rank = i / 2, .in = -1, .out = -1, .log = -1, .polled = -1};
    s->to = &out->sink[out->sinks == 1 ? 0 : i % 2];
    if (folder)
        status = open_log(s, folder, i % 2 ? "err" : "out", diag);
    if (!status && prefix)
        status = open_pipe(s, &out->heap, diag);
    if (!prefix) {
        s->out = s->log;
        s->log = -1;
    }
    return status;
}

static sherd_status open_sinks(sherd__output *out, sherd__diag *diag)
{
    out->sinks = same_file(1, 2) ? 1 : 2;
    for (int i = 0; i < out->sinks; i++) {
        open_sink(&out->sink[i], i + 1);
        if (!(out->sink[i].text = sherd__alloc(&out->heap, QUEUE, 1)))
            return sherd__no_memory(diag, "sherd run");
    }
    return SHERD_OK;
}

sherd_status sherd__output_open(sherd__output *out, int ranks, bool prefix, const char *folder,
                                sherd__diag *diag)
{
    sherd_status status = SHERD_OK;

    memset(out, 0, sizeof *out);
    if (!prefix && !folder)
        return SHERD_OK;
    if (folder && mkdir(folder, 0777) && errno != EEXIST)
        return sherd__fail(diag, SHERD_EINVAL, "can not make the folder %.200s: %s", folder,
                           strerror(errno));
    for (int most = ranks - 1; most >= 10; most /= 10)
        out->width++;
    if (prefix && (status = open_sinks(out, diag)))
        return status;
    if (!(out->stream = sherd__alloc(&out->heap, 2 * (size_t)ranks, sizeof *out->stream)))
        return sherd__no_memory(diag, "sherd run");
    for (; out->streams < 2 * ranks && !status; out->streams++)
        status = open_stream(out, out->streams, prefix, folder, diag);
    return status;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void sherd__output_close(sherd__output *out)
{
    for (int i = 0; i < out->streams; i++) {
        close_one(&out->stream[i].in);
        close_one(&out->stream[i].out);
        close_one(&out->stream[i].log);
        sherd__free(&out->heap, out->stream[i].text);
    }
    for (int i = 0; i < out->sinks; i++) {
        if (out->sink[i].own)
            close_one(&out->sink[i].fd);
        sherd__free(&out->heap, out->sink[i].text);
    }
    sherd__free(&out->heap, out->stream);
    out->streams = out->sinks = 0;
    out->stream = NULL;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

bool sherd__output_enter(const sherd__output *out, int rank)
{
    if (rank > 0) {
        int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (nothing < 0 || dup2(nothing, 0) < 0)
            return false;
    }
    for (int i = 0; i < 2 && out->streams; i++)
        if (dup2(out->stream[2 * rank + i].out, 1 + i) < 0)
            return false;
    return true;
}

void sherd__output_begin(sherd__output *out)
{
    for (int i = 0; i < out->streams; i++)
        close_one(&out->stream[i].out);
}

/* ---- from ranks to here ---------------------------------------------------------------------- */

static bool write_whole(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            text += n;
            length -= (size_t)n;
        }
    }
    return true;
}

/* Put a line into the queue, with its rank in front and an end behind it. False: it does not fit
 * now. */
static bool queue_line(const sherd__output *out, const sherd__stream *s, const char *line,
                       size_t length)
{
    sherd__sink *sink = s->to;
    char mark[16];
    size_t marked = (size_t)snprintf(mark, sizeof mark, "[%*d] ", 1 + out->width, s->rank);

    if (sink->length + marked + length + 1 > QUEUE)
        return false;
    memcpy(sink->text + sink->length, mark, marked);
    memcpy(sink->text + sink->length + marked, line, length);
    sink->length += marked + length;
    sink->text[sink->length++] = '\n';
    return true;
}

/* Pass on all whole lines, and what can not become one. */
static void pass_lines(const sherd__output *out, sherd__stream *s)
{
    size_t at = 0;

    while (at < s->length && !s->to->gone) {
        const char *line = s->text + at, *end = memchr(line, '\n', s->length - at);
        size_t length = end ? (size_t)(end - line) : s->length - at;
        if ((!end && length < LINE && s->in >= 0) || !queue_line(out, s, line, length))
            break;
        at += length + (end != NULL);
    }
    s->length -= at;
    if (at > 0)
        memmove(s->text, s->text + at, s->length);
}

/* Take what a rank has written, as far as there is room. */
static void take(sherd__output *out, sherd__stream *s)
{
    while (s->in >= 0 && s->length < LINE) {
        ssize_t n = read(s->in, s->text + s->length, LINE - s->length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN && !out->last)
            break;
        if (n <= 0) {
            close_one(&s->in);
            break;
        }
        if (s->log >= 0 && !write_whole(s->log, s->text + s->length, (size_t)n)) {
            out->failed = errno;
            close_one(&s->log);
        }
        s->length += (size_t)n;
        pass_lines(out, s);
    }
    pass_lines(out, s);
    if (s->to->gone) {
        close_one(&s->in); /* the rank gets what a pipe without a reader gives */
        s->length = 0;
    }
}

/* ---- from here on ---------------------------------------------------------------------------- */

/* Write what goes without waiting; negative with errno EAGAIN if nothing does. */
static ssize_t push(const sherd__sink *sink)
{
    struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};

    if (sink->socket)
        return send(sink->fd, sink->text, sink->length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!sink->waits)
        return write(sink->fd, sink->text, sink->length);
    if (poll(&ready, 1, 0) <= 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(sink->fd, sink->text, sink->length < PIPE_BUF ? sink->length : PIPE_BUF);
}

/*
 * Write nothing more to a sink. Ranks notice if its reader is gone; other errors are only kept in
 * `failed`.
 */
static void give_up(sherd__output *out, sherd__sink *sink, int error)
{
    out->failed = error;
    sink->gone = error == EPIPE;
    sink->lost = error != EPIPE;
    sink->length = 0;
}

static void drain(sherd__output *out, sherd__sink *sink)
{
    if (sink->lost)
        sink->length = 0;
    while (sink->length > 0) {
        ssize_t n = push(sink);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            give_up(out, sink, errno);
            return;
        }
        sink->length -= (size_t)n;
        memmove(sink->text, sink->text + n, sink->length);
    }
}

/* ---- in the loop of the launcher ------------------------------------------------------------- */

int sherd__output_poll(sherd__output *out, struct pollfd *fds)
{
    int count = 0;

    for (int i = 0; i < out->streams; i++) {
        sherd__stream *s = &out->stream[i];
        if (s->to->gone) /* since the last move; a full stream would not be polled */
            take(out, s);
        s->polled = s->in >= 0 && s->length < LINE ? count++ : -1;
        if (s->polled >= 0)
            fds[s->polled] = (struct pollfd){.fd = s->in, .events = POLLIN};
    }
    for (int i = 0; i < out->sinks; i++) {
        sherd__sink *sink = &out->sink[i];
        sink->polled = sink->length > 0 ? count++ : -1;
        if (sink->polled >= 0)
            fds[sink->polled] = (struct pollfd){.fd = sink->fd, .events = POLLOUT};
    }
    return count;
}

void sherd__output_move(sherd__output *out, const struct pollfd *fds)
{
    bool room = false;

    for (int i = 0; i < out->sinks; i++) {
        sherd__sink *sink = &out->sink[i];
        if (sink->polled < 0 || !fds[sink->polled].revents)
            continue;
        drain(out, sink);
        room = true;
    }
    for (int i = 0; i < out->streams; i++) {
        sherd__stream *s = &out->stream[i];
        if ((s->polled >= 0 && fds[s->polled].revents) || (room && s->length > 0) || s->to->gone)
            take(out, s);
    }
    for (int i = 0; i < out->sinks; i++)
        drain(out, &out->sink[i]);
}

bool sherd__output_remains(sherd__output *out)
{
    bool remains = false;

    out->last = true;
    for (int i = 0; i < out->streams; i++)
        take(out, &out->stream[i]);
    for (int i = 0; i < out->sinks; i++)
        drain(out, &out->sink[i]);
    for (int i = 0; i < out->streams; i++)
        remains |= out->stream[i].in >= 0 || out->stream[i].length > 0;
    for (int i = 0; i < out->sinks; i++)
        remains |= out->sink[i].length > 0;
    return remains;
}

bool sherd__output_say(sherd__output *out, const char *text)
{
    sherd__sink *sink = &out->sink[out->sinks == 2]; /* the last */
    size_t length = strlen(text);

    if (out->sinks == 0 || sink->gone || sink->lost || sink->length + length > QUEUE)
        return false;
    memcpy(sink->text + sink->length, text, length);
    sink->length += length;
    drain(out, sink);
    return true;
}

void sherd__output_finish(sherd__output *out, int64_t patience)
{
    for (int i = 0; i < out->sinks; i++) {
        sherd__sink *sink = &out->sink[i];
        int64_t end = sherd__now() + patience;
        while (sink->length > 0) {
            struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
            int64_t left = end - sherd__now();
            size_t before = sink->length;
            if (left <= 0)
                break;
            (void)poll(&ready, 1, (int)(left / 1000000) + 1);
            drain(out, sink);
            if (sink->length < before)
                end = sherd__now() + patience;
        }
    }
}
