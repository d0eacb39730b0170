/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report. Its keys are fixed; numbers are written with all their digits. Regular files appear
 * at once and whole: a temporary file beside them is renamed. A pipe or a device is written to as
 * it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

/* ---- what is in it -------------------------------------------------------------------------- */

/* JSON has no NaN and no infinity: null stands for them. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *numbers(const double *values, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(array, number(values[i]));
    return array;
}

static json_t *comm(const figures *f)
{
    json_t *array = json_array();
    for (int i = 0; i < f->comms; i++) {
        const comm_figures *c = &f->comm[i];
        json_t *one = json_object();
        json_object_set_new(one, "op", json_string(c->op));
        json_object_set_new(one, "axes", json_string(c->axes));
        json_object_set_new(one, "calls", number(c->calls));
        json_object_set_new(one, "bytes", number(c->bytes));
        json_object_set_new(one, "seconds", number(c->seconds));
        json_array_append_new(array, one);
    }
    return array;
}

static json_t *report(const trainer *t, const figures *f)
{
    const gpt_options *o = t->options;
    json_t *root = json_object();

    json_object_set_new(root, "ranks", json_integer(sherd_world_ranks(t->world)));
    json_object_set_new(root, "mesh", json_string(sherd_mesh_text(t->mesh)));
    json_object_set_new(root, "transport", json_string(sherd_world_transport(t->world)));
    json_object_set_new(root, "dtype", json_string(o->dtype));
    json_object_set_new(root, "steps", json_integer(f->steps));
    json_object_set_new(root, "seed", json_integer(o->seed));
    json_object_set_new(root, "losses", numbers(f->loss, f->steps));
    json_object_set_new(root, "grad_norms", numbers(f->norm, f->steps));
    json_object_set_new(root, "tokens_per_s",
                        number((double)(o->batch * o->context) / f->step_seconds));
    json_object_set_new(root, "params_total", json_integer(f->params_total));
    json_object_set_new(root, "params_local", json_integer(f->params_local));
    json_object_set_new(root, "peak_bytes", json_integer(f->peak_bytes));
    json_object_set_new(root, "saved_bytes", json_integer(f->saved_bytes));
    json_object_set_new(root, "comm", comm(f));
    json_object_set_new(root, "max_rel_diff_vs_1_rank", number(f->worst_difference));
    return root;
}

/* ---- how it gets there ---------------------------------------------------------------------- */

/* A file that is being written. */
typedef struct target {
    int fd;
    bool temporary;
    char place[PATH_MAX]; /* where the report is to be, links resolved */
    char path[PATH_MAX];  /* what is open: the same, or the temporary file beside it */
} target;

static bool complain(char *error, const char *path, const char *what)
{
    snprintf(error, LINE_BYTES, "--json \"%.300s\": %s", path, what);
    return false;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/*
 * Whether a file may be replaced by another one: it is regular, or not there yet. Not what stands
 * for a file that is open already, as /dev/stdout does: a link into /proc.
 */
static bool is_replaceable(const char *path)
{
    char link[PATH_MAX] = "";
    struct stat info;

    if (readlink(path, link, sizeof link - 1) < 0)
        link[0] = 0;
    if (begins(link, "/proc/") || begins(path, "/proc/") || begins(path, "/dev/fd/"))
        return false;
    return stat(path, &info) != 0 || S_ISREG(info.st_mode);
}

/* Decide where to write; false: `path` is too long. */
static bool target_name(target *out, const char *path)
{
    int n;

    out->temporary = is_replaceable(path);
    if (!out->temporary || !realpath(path, out->place))
        snprintf(out->place, sizeof out->place, "%s", path);
    n = snprintf(out->path, sizeof out->path, out->temporary ? "%s.tmp%ld" : "%s", out->place,
                 (long)getpid());
    return n < (int)sizeof out->path && strlen(path) < sizeof out->place;
}

static bool target_open(target *out, const char *path, char *error)
{
    const int fresh = O_CREAT | O_EXCL;

    *out = (target){.fd = -1};
    if (!target_name(out, path))
        return complain(error, path, strerror(ENAMETOOLONG));
    out->fd = open(out->path, O_WRONLY | O_CLOEXEC | (out->temporary ? fresh : O_APPEND), 0666);
    return out->fd >= 0 ? true : complain(error, path, strerror(errno));
}

static void target_drop(target *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    if (t->temporary)
        unlink(t->path);
}

static bool write_all(int fd, const char *text, size_t left)
{
    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        left -= (size_t)n;
    }
    return true;
}

/* Closing tells of a full disk too, on some file systems. */
static bool target_finish(target *t, const char *text)
{
    bool good = write_all(t->fd, text, strlen(text));
    int cause = errno, fd = t->fd;

    t->fd = -1;
    if (close(fd) != 0 && good) {
        cause = errno;
        good = false;
    }
    if (good && t->temporary && rename(t->path, t->place) != 0) {
        cause = errno;
        good = false;
    }
    errno = cause;
    return good;
}

bool report_check(const char *path, char *error)
{
    struct stat info;
    target t;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return complain(error, path, strerror(EISDIR));
    /*
     * A pipe or a device is opened once, when there is something to say: its reader may see each
     * opening.
     */
    if (!is_replaceable(path))
        return access(path, W_OK) == 0 ? true : complain(error, path, strerror(errno));
    if (!target_open(&t, path, error))
        return false;
    target_drop(&t);
    return true;
}

bool report_write(const char *path, const trainer *t, const figures *f, char *error)
{
    json_t *root = report(t, f);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    target to;
    bool good = text ? true : complain(error, path, "there is no memory for the report");

    json_decref(root);
    fflush(stdout); /* it may be the same file */
    if (good && !target_open(&to, path, error))
        good = false;
    else if (good && !target_finish(&to, text)) {
        good = complain(error, path, strerror(errno));
        target_drop(&to);
    }
    free(text);
    return good;
}
