/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a file of tensors: rank 0 creates it, with its header and its full length; each tensor is
 * moved to rows, which each rank writes at their offset; rank 0 renames the file. Ranks agree after
 * each of these steps. Rank 0 holds a lock on the file until then, so that no two jobs write into
 * it. Costs a move and a write of all bytes, and memory for one tensor's rows at a time.
 */
#include "io/file.h"
#include "io/rows.h"

#include "base/file_limit.h"
#include "base/hash.h"
#include "base/open.h"
#include "base/num.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct writing {
    const char *function;
    sherd_world *world;
    const char *path;
    char *part;                     /* the name it has until it is complete */
    const sherd_named_tensor *list; /* [header.entries] */
    sherd__header header;
    int64_t bytes; /* of all tensors */
    int fd;        /* -1 = could not be opened */
    bool made;     /* by this rank: PATH.part is this job's, and is there */
    sherd_status status;
} writing;

/* ---- what is to be written ------------------------------------------------------------------- */

static sherd_status refuse(const writing *w, int i, const char *why)
{
    const char *name = w->list[i].name;

    return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL, "%s: tensor %d, \"%.120s\", %s",
                       w->function, i, name ? name : "(NULL)", why);
}

static const char *fault_of(const writing *w, const sherd_named_tensor *n)
{
    const sherd_tensor *t = n->tensor;

    if (!n->name || !t)
        return "has a name or a tensor that is NULL";
    if (strcmp(n->name, "__metadata__") == 0)
        return "has the name that the format keeps for notes";
    if (t->world != w->world)
        return "is of another world";
    if (sherd__is_failed(t))
        return "has failed";
    return !t->layout && t->varies ? "varies between ranks: distribute it, or mark it equal" : NULL;
}

static sherd_status no_memory(const writing *w)
{
    return sherd__no_memory(sherd__world_diag(w->world), w->function);
}

/* The i-th entry of the header; its offset is set later. */
static sherd_status list_tensor(writing *w, int i)
{
    const sherd_named_tensor *n = &w->list[i];
    sherd_file_entry *e = &w->header.entry[i];
    const char *fault = fault_of(w, n);

    if (fault)
        return refuse(w, i, fault);
    e->dtype = n->tensor->dtype;
    e->ndim = n->tensor->ndim;
    memcpy(e->shape, n->tensor->shape, (size_t)e->ndim * sizeof *e->shape);
    if (!sherd__mul(sherd_tensor_count(n->tensor), (int64_t)sherd_dtype_bytes(e->dtype),
                    &e->bytes) ||
        !sherd__add(w->bytes, e->bytes, &w->bytes))
        return sherd__fail(sherd__world_diag(w->world), SHERD_ELIMIT,
                           "%s: with tensor %d, \"%.120s\", the file has 2^62 bytes or more",
                           w->function, i, n->name);
    w->header.entries = i + 1;
    e->name = sherd__copy_text(w->header.heap, n->name);
    return e->name ? SHERD_OK : no_memory(w);
}

static sherd_status list_note(writing *w, int i, const sherd_file_note *note)
{
    sherd_file_note *n = &w->header.note[i];

    if (!note->key || !note->text)
        return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                           "%s: note %d has no key or no text", w->function, i);
    w->header.notes = i + 1;
    n->key = sherd__copy_text(w->header.heap, note->key);
    n->text = sherd__copy_text(w->header.heap, note->text);
    return n->key && n->text ? SHERD_OK : no_memory(w);
}

static sherd_status list_all(writing *w, const sherd__to_write *what)
{
    int count = what->count, notes = what->note_count;
    sherd__header *h = &w->header;
    sherd_status status = SHERD_OK;

    if (count < 0 || notes < 0)
        return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL, "%s: %d tensors, %d notes",
                           w->function, count, notes);
    h->entry = sherd__alloc(h->heap, (size_t)count + 1, sizeof *h->entry);
    h->note = sherd__alloc(h->heap, (size_t)notes + 1, sizeof *h->note);
    w->part = sherd__alloc(h->heap, strlen(w->path) + sizeof ".part", 1);
    if (!h->entry || !h->note || !w->part)
        return no_memory(w);
    sprintf(w->part, "%s.part", w->path);
    for (int i = 0; !status && i < count; i++)
        status = list_tensor(w, i);
    for (int i = 0; !status && i < notes; i++)
        status = list_note(w, i, &what->notes[i]);
    return status;
}

/* ---- writing it ------------------------------------------------------------------------------ */

static void fail(writing *w)
{
    w->status = sherd__file_fault(w->world, w->function, w->part);
}

/* All ranks go on, or none. */
static bool agree(writing *w, uint64_t arguments)
{
    w->status = sherd__agree(w->world, w->status, arguments, w->function);
    return w->status == SHERD_OK;
}

/*
 * Check that all ranks have passed the same thing: `kind` names it, `text` describes it. If not,
 * the error shows both texts, shortened.
 */
static bool agree_on(writing *w, uint64_t hash, const char *kind, const char *text)
{
    char shown[48], name[160];

    sherd__fit_text(shown, sizeof shown, text);
    snprintf(name, sizeof name, "%s: %s \"%s\"", w->function, kind, shown);
    w->status = sherd__agree(w->world, w->status, sherd__hash_text(hash, text), name);
    return w->status == SHERD_OK;
}

/* "tensor 1, f32[2,3],", of the header. */
static void describe_tensor(const sherd_file_entry *e, int i, char *text, size_t room)
{
    sherd__writer w = {text, room, 0};

    sherd__write(&w, "tensor %d, %s[", i, sherd_dtype_name(e->dtype));
    for (int d = 0; d < e->ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)e->shape[d]);
    sherd__write(&w, "],");
}

/* All headers are equal. The error is of the first tensor or note that is not. */
static bool agree_on_header(writing *w, const char *text, size_t bytes)
{
    const sherd__header *h = &w->header;
    char kind[96];

    if (agree(w, text ? sherd__hash_bytes(1, text, bytes) : 0) || w->status != SHERD_EDIFFER)
        return w->status == SHERD_OK;
    w->status = SHERD_OK;
    snprintf(kind, sizeof kind, "%d tensors and %d notes for", h->entries, h->notes);
    bool same = agree_on(w, 0, kind, w->path);
    for (int i = 0; same && i < h->entries; i++) {
        describe_tensor(&h->entry[i], i, kind, sizeof kind);
        same = agree_on(w, 0, kind, h->entry[i].name);
    }
    for (int i = 0; same && i < h->notes; i++) {
        snprintf(kind, sizeof kind, "note %d,", i);
        same = agree_on(w, 0, kind, h->note[i].key);
        snprintf(kind, sizeof kind, "note \"%.24s\",", h->note[i].key);
        same = same && agree_on(w, 1, kind, h->note[i].text);
    }
    w->status = w->status ? w->status : SHERD_EDIFFER;
    return false;
}

/* Open PATH.part if it is a file. A link may lead to the file of somebody else; a pipe would
 * block. */
static int open_part(const char *part, int flags)
{
    struct stat about;
    int fd = sherd__open_file(part, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | flags);

    if (fd < 0 || (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/*
 * Create or take over PATH.part for this job alone: -1 with errno, EWOULDBLOCK if another job has
 * it. The other job renames or removes the file in the end; if it has just done so, the file is
 * created again. Where a file system has no locks, or no stable inode numbers, nobody is kept out.
 */
static int take_part(const char *part)
{
    enum { TRIES = 100 };

    for (int i = 1;; i++) {
        struct stat mine, named;
        int fd = open_part(part, O_CREAT);
        if (fd < 0)
            return -1;
        bool taken = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        bool is_named = !fstat(fd, &mine) && !lstat(part, &named) && mine.st_ino == named.st_ino &&
                        mine.st_dev == named.st_dev;
        if (!taken && (is_named || i == TRIES))
            return fd;
        close(fd);
        errno = EWOULDBLOCK;
        if (taken)
            return -1;
    }
}

/* What is not a file is not replaced: the rename would put a file in the place of a device. */
static bool is_taken(const char *path)
{
    struct stat about;

    return !lstat(path, &about) && !S_ISREG(about.st_mode) && !S_ISLNK(about.st_mode);
}

static void make(writing *w, const char *header, size_t bytes)
{
    if (is_taken(w->path)) {
        w->status = sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                                "%s: \"%.180s\": is not a regular file", w->function, w->path);
        return;
    }
    if (sherd__is_dry(w->world))
        return;
    w->fd = take_part(w->part);
    w->made = w->fd >= 0;
    if (!w->made && errno == EWOULDBLOCK)
        w->status = sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                                "%s: \"%.180s\": another job is writing it", w->function, w->part);
    else if (!w->made || ftruncate(w->fd, 0) ||
             !sherd__write_at(w->fd, header, (int64_t)bytes, 0) ||
             ftruncate(w->fd, (int64_t)bytes + w->bytes))
        fail(w);
}

/* Rows belong to one rank; a scalar is on each rank, and the first of its mesh writes it. */
static bool is_ours(const sherd_tensor *t)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (t->ndim > 0 || !t->layout)
        return true;
    if (!sherd__coordinate(t, coordinate))
        return false;
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(t->layout)); a++)
        if (coordinate[a] != 0)
            return false;
    return true;
}

/* If this rank cannot write, it moves the tensor all the same: the others wait for its part. */
static void put(writing *w, int i)
{
    sherd_tensor *t = w->list[i].tensor;
    const sherd_layout *rows;

    if (t->layout) {
        sherd_status status = sherd__file_layout(&rows, t->layout);
        t = status ? sherd__fail_diag(w->world, true) : sherd__move_to(t, rows, false);
    }
    t = sherd__contiguous(t);
    if (sherd__is_failed(t)) {
        w->status = w->status ? w->status : sherd__world_diag(w->world)->status;
        w->status = w->status ? w->status : SHERD_EPEER;
        return;
    }
    sherd__rows here = sherd__rows_here(t);
    const void *data = here.bytes ? sherd__data(t) : NULL;
    if (w->status || !here.bytes || !is_ours(t))
        return;
    if (!data)
        w->status = SHERD_EPEER;
    else if (!sherd__left_out(w->world, "write", t->dtype, 0, here.bytes) &&
             !sherd__write_at(w->fd, data, here.bytes, w->header.entry[i].offset + here.at))
        fail(w);
}

/* Write all tensors with a layout, or all without one. */
static void put_all(writing *w, bool distributed)
{
    for (int i = 0; i < w->header.entries; i++) {
        const sherd_tensor *t = w->list[i].tensor;
        if (!t->layout == distributed || sherd__is_elsewhere(t))
            continue;
        sherd_scope_begin(w->world);
        put(w, i);
        sherd_scope_end(w->world);
    }
}

static void leave(writing *w)
{
    if (w->fd >= 0 && close(w->fd) && !w->status)
        fail(w);
    w->fd = -1;
}

/*
 * The new name must be as durable as the data: the folder is synced too, if the system supports it.
 */
static void rename_it(writing *w)
{
    char *slash = strrchr(w->part, '/');

    if (rename(w->part, w->path)) {
        w->status = sherd__file_fault(w->world, w->function, w->path);
        return;
    }
    w->made = false;
    if (slash)
        slash[slash == w->part] = 0;
    int folder = open(slash ? w->part : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)fsync(folder);
        close(folder);
    }
}

/*
 * Plain tensors are written by rank 0, and first: a rank outside a mesh may have a plain tensor
 * where the ranks of the mesh have a distributed one, which then overwrites it. If it is deferred,
 * it stays so.
 */
static void write_all(writing *w, const char *header, size_t bytes)
{
    bool first = sherd_world_rank(w->world) == 0, dry = sherd__is_dry(w->world);

    if (first || dry)
        make(w, header, bytes);
    if (first && !w->status)
        put_all(w, false);
    if (!agree(w, 1))
        return;
    if (!first && !dry && (w->fd = open_part(w->part, 0)) < 0)
        fail(w);
    put_all(w, true);
    if (!w->status && !dry && fsync(w->fd))
        fail(w);
    if (!first) /* rank 0's lock stays until the name is gone */
        leave(w);
    if (agree(w, 2) && first && !dry)
        rename_it(w);
    agree(w, 3);
}

sherd_status sherd__file_write(const sherd__to_write *what, const char *function)
{
    sherd_world *world = what->world;
    const sherd__argument need[] = {
        {"world", world},
        {"path", what->path},
        {"tensors", what->count > 0 ? (const void *)what->tensors : ""},
        {"notes", what->note_count > 0 ? (const void *)what->notes : ""},
        {NULL, NULL}};
    sherd__diag *diag = sherd__world_diag(world);
    writing w = {
        .function = function, .world = world, .path = what->path, .list = what->tensors, .fd = -1};
    sherd__file_signal limit;
    size_t bytes = 0;
    char *header = NULL;

    w.status = sherd__require(diag, function, need);
    if (!world)
        return w.status;
    w.header.heap = sherd__world_heap(world);
    if (!w.status)
        w.status = list_all(&w, what);
    if (!w.status)
        w.status = sherd__header_text(&header, &bytes, &w.header, diag, function);
    if (agree_on(&w, 0, "to", w.path ? w.path : "") && agree_on_header(&w, header, bytes)) {
        sherd__file_signal_hold(&limit);
        write_all(&w, header, bytes);
        if (w.made)
            (void)unlink(w.part);
        sherd__file_signal_drop(&limit);
    }
    leave(&w);
    sherd__free(w.header.heap, header);
    sherd__free(w.header.heap, w.part);
    sherd__header_clear(&w.header);
    return w.status;
}

sherd_status sherd_file_write(sherd_world *world, const char *path,
                              const sherd_named_tensor *tensors, int count,
                              const sherd_file_note *notes, int note_count)
{
    const sherd__to_write what = {world, path, tensors, count, notes, note_count};

    return sherd__file_write(&what, "sherd_file_write");
}
