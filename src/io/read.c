/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a file of tensors. All ranks read its header and a sample of its elements and check that
 * they have found the same; of a tensor each rank reads its rows, which are then moved to the
 * wanted layout. Costs one read of all bytes and one move. The file is opened for each tensor anew:
 * nothing is held in between, and each rank checks that it is still the file whose header it has
 * read.
 */
#include "io/file.h"
#include "io/rows.h"

#include "base/near.h"
#include "base/num.h"
#include "base/text.h"
#include "world/doing.h"
#include "layout/shape.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOKS = 16, LOOK_BYTES = 4096 }; /* of a sample */

/* ---- the header ------------------------------------------------------------------------------ */

static sherd_status fault(const sherd_file *file, const char *function, const char *why)
{
    return sherd__fail(sherd__world_diag(file->world), SHERD_EINVAL, "%s: \"%.180s\": %s", function,
                       file->path, why);
}

/* -1 with the text in the world's diag. A pipe is refused, and its writer not waited for. */
static int open_file(const sherd_file *file, struct stat *about, const char *function)
{
    int fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, about) == 0 && S_ISREG(about->st_mode))
        return fd;
    if (fd >= 0 && !S_ISREG(about->st_mode))
        (void)fault(file, function, "is not a regular file");
    else
        (void)sherd__file_fault(file->world, function, file->path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static sherd__file_mark mark_of(const struct stat *about)
{
    return (sherd__file_mark){(uint64_t)about->st_dev, (uint64_t)about->st_ino, about->st_size,
                              about->st_mtim.tv_sec, about->st_mtim.tv_nsec};
}

static bool is_same(sherd__file_mark a, sherd__file_mark b)
{
    return a.device == b.device && a.number == b.number && a.bytes == b.bytes &&
           a.seconds == b.seconds && a.nanoseconds == b.nanoseconds;
}

/*
 * Read the length and text of the header into *out (the caller frees it); its hash is stored in the
 * file.
 */
static sherd_status read_header(sherd_file *file, int fd, const char *function, char **out,
                                size_t *bytes)
{
    const int64_t file_bytes = file->mark.bytes;
    unsigned char length[SHERD__HEADER_LENGTH];
    uint64_t n = 0;

    if (!sherd__read_at(fd, length, sizeof length, 0))
        return sherd__file_fault(file->world, function, file->path);
    for (int i = SHERD__HEADER_LENGTH - 1; i >= 0; i--)
        n = n << 8 | length[i];
    if (n > SHERD__MOST_HEADER)
        return fault(file, function,
                     "is no safetensors file: its first 8 bytes are not the length of a header");
    if ((int64_t)n > file_bytes - SHERD__HEADER_LENGTH)
        return sherd__fail(sherd__world_diag(file->world), SHERD_EINVAL,
                           "%s: \"%.180s\": ends within its header: that has %lld bytes behind the "
                           "first 8, the file %lld",
                           function, file->path, (long long)n,
                           (long long)file_bytes - SHERD__HEADER_LENGTH);
    *bytes = (size_t)n;
    *out = sherd__alloc(file->header.heap, *bytes + 1, 1);
    if (!*out)
        return sherd__no_memory(sherd__world_diag(file->world), function);
    if (!sherd__read_at(fd, *out, (int64_t)*bytes, SHERD__HEADER_LENGTH))
        return sherd__file_fault(file->world, function, file->path);
    file->identity = sherd__hash_bytes((uint64_t)file_bytes, *out, *bytes);
    return SHERD_OK;
}

/*
 * Hash a sample of the elements, and all of few. Two checkpoints of one model have equal headers,
 * and each machine may have another one on its disk: who reads rows of both gets numbers that never
 * were together. They differ almost everywhere; what differs in a few places only is not found.
 */
static bool hash_sample(uint64_t *hash, int fd, int64_t at, int64_t end)
{
    unsigned char bytes[LOOK_BYTES];
    int64_t step = sherd__max(LOOK_BYTES, (end - at) / LOOKS);

    for (; at < end; at += step) {
        int64_t n = sherd__min(LOOK_BYTES, end - at);
        if (!sherd__read_at(fd, bytes, n, at))
            return false;
        *hash = sherd__hash_bytes(*hash, bytes, (size_t)n);
    }
    return true;
}

static sherd_status look(sherd_file *file, const char *function)
{
    sherd__heap *heap = file->header.heap;
    struct stat about = {0};
    size_t bytes = 0;
    char *text = NULL;
    int fd = open_file(file, &about, function);

    if (fd < 0)
        return sherd__world_diag(file->world)->status;
    file->mark = mark_of(&about);
    sherd_status status = read_header(file, fd, function, &text, &bytes);
    if (!status)
        status = sherd__header_parse(&file->header, text, bytes,
                                     &(sherd__header_of){heap, sherd__world_diag(file->world),
                                                         function, file->path, file->mark.bytes});
    if (!status &&
        !hash_sample(&file->identity, fd, SHERD__HEADER_LENGTH + (int64_t)bytes, file->mark.bytes))
        status = sherd__file_fault(file->world, function, file->path);
    sherd__free(heap, text);
    close(fd);
    return status;
}

sherd_status sherd__file_open(sherd_file **out, sherd_world *world, const char *path,
                              const char *function)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd_file *file = sherd__alloc(heap, 1, sizeof *file);
    sherd_status status = SHERD_OK;

    if (file)
        *file = (sherd_file){.world = world, .header.heap = heap};
    if (!file || !(file->path = sherd__copy_text(heap, path)))
        status = sherd__no_memory(sherd__world_diag(world), function);
    if (!status)
        status = look(file, function);
    status = sherd__agree(world, status, file ? file->identity : 0, function);
    if (status) {
        sherd_file_destroy(file);
        file = NULL;
    }
    *out = file;
    return status;
}

sherd_status sherd_file_open(sherd_file **out, sherd_world *world, const char *path)
{
    const sherd__argument need[] = {{"out", out}, {"world", world}, {"path", path}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), "sherd_file_open", need);

    if (out)
        *out = NULL;
    if (!world)
        return status;
    if (status) /* the others are told */
        return sherd__agree(world, status, 0, "sherd_file_open");
    return sherd__file_open(out, world, path, "sherd_file_open");
}

void sherd_file_destroy(sherd_file *file)
{
    if (!file)
        return;
    sherd__heap *heap = sherd__world_heap(file->world);
    sherd__header_clear(&file->header);
    sherd__free(heap, file->path);
    sherd__free(heap, file);
}

/* ---- what is in it --------------------------------------------------------------------------- */

int sherd_file_entries(const sherd_file *file)
{
    return file ? file->header.entries : 0;
}

const sherd_file_entry *sherd_file_entry_at(const sherd_file *file, int i)
{
    return i >= 0 && i < sherd_file_entries(file) ? &file->header.entry[i] : NULL;
}

const sherd_file_entry *sherd_file_find(const sherd_file *file, const char *name)
{
    return file && name ? sherd_file_entry_at(file, sherd__header_find(&file->header, name)) : NULL;
}

const char *sherd_file_text(const sherd_file *file, const char *key)
{
    for (int i = 0; file && key && i < file->header.notes; i++)
        if (strcmp(file->header.note[i].key, key) == 0)
            return file->header.note[i].text;
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Files are opened one after the other; the one that is open stays so for the next piece. */
typedef struct reader {
    const sherd_file *file; /* NULL: none is open */
    int fd;
    const char *function;
} reader;

static const char changed[] = "has changed since it was opened";

/* Close it, and check that it did not change while it was read, unless something has failed. */
static sherd_status stop(reader *r, sherd_status status)
{
    const sherd_file *file = r->file;
    struct stat about;

    if (!file)
        return status;
    if (!status && (fstat(r->fd, &about) || !is_same(mark_of(&about), file->mark)))
        status = fault(file, r->function, changed);
    close(r->fd);
    r->file = NULL;
    return status;
}

static sherd_status turn_to(reader *r, const sherd_file *file)
{
    struct stat about = {0};

    if (r->file == file)
        return SHERD_OK;
    if (stop(r, SHERD_OK))
        return SHERD_EINVAL;
    r->fd = open_file(file, &about, r->function);
    if (r->fd < 0)
        return sherd__world_diag(file->world)->status;
    r->file = file;
    return is_same(mark_of(&about), file->mark) ? SHERD_OK : fault(file, r->function, changed);
}

/* Where a part of an entry begins in it; 0 for all of it. In a file that fits. */
static int64_t begin_of(const sherd__file_source *source)
{
    const sherd_file_entry *e = source->piece->entry;
    int64_t bytes = source->first * (int64_t)sherd_dtype_bytes(e->dtype);

    for (int d = 1; d < e->ndim && source->part; d++)
        bytes *= e->shape[d];
    return source->part ? bytes : 0;
}

/* These bytes of a piece. */
static sherd_status read_piece(reader *r, const sherd__file_piece *p, void *data,
                               sherd__stored_rows rows)
{
    sherd_status status = turn_to(r, p->file);

    if (!status && sherd__left_out(p->file->world, "read", p->entry->dtype, 0, rows.bytes))
        return SHERD_OK;
    if (!status && !sherd__read_at(r->fd, data, rows.bytes, p->entry->offset + rows.at))
        status = sherd__file_fault(p->file->world, r->function, p->file->path);
    return status;
}

static sherd_status read_rows(const sherd__file_source *source, sherd_tensor *t,
                              const char *function)
{
    sherd__stored_rows rows = sherd__rows_here(t);
    int64_t one = source->stacked && rows.bytes ? rows.bytes / t->local[0] : rows.bytes;
    int64_t begin = rows.bytes ? begin_of(source) : 0;
    char *data = rows.bytes ? sherd__fresh(t) : NULL;
    reader r = {.function = function};
    sherd_status status = SHERD_OK;

    if (rows.bytes && !source->stacked)
        status =
            read_piece(&r, source->piece, data, (sherd__stored_rows){begin + rows.at, rows.bytes});
    for (int64_t done = 0; source->stacked && done < rows.bytes && !status; done += one)
        status = read_piece(&r, &source->piece[(rows.at + done) / one], data + done,
                            (sherd__stored_rows){begin, one});
    return stop(&r, status);
}

static sherd_tensor *new_rows(const sherd__file_source *source, const sherd_layout *layout)
{
    const sherd_file_entry *e = source->piece->entry;
    int64_t shape[SHERD_MAX_DIMS] = {source->count};
    int more = source->stacked ? 1 : 0;
    sherd_world *world = source->piece->file->world;
    const sherd_layout *rows;

    if (layout && sherd__file_layout(&rows, layout))
        return sherd__fail_diag(world, true);
    if (layout)
        return sherd__new_on(rows, e->dtype);
    memcpy(shape + more, e->shape, (size_t)e->ndim * sizeof *shape);
    if (source->part)
        shape[more] = source->rows;
    return sherd__new_plain(world, e->dtype, e->ndim + more, shape, 0);
}

sherd_tensor *sherd__file_rows(const sherd__file_source *source, const sherd_layout *layout,
                               const char *function)
{
    sherd_world *world = source->piece->file->world;
    sherd_tensor *t = new_rows(source, layout);
    uint64_t hash = 0;

    if (sherd__is_failed(t))
        return t;
    if (read_rows(source, t, function))
        return sherd__fail_diag(world, layout != NULL);
    for (int64_t i = 0; i < (source->stacked ? source->count : 1); i++) {
        const sherd__file_piece *p = &source->piece[i];
        hash = sherd__attribute(hash + p->file->identity,
                                (uint64_t)p->entry->offset + (uint64_t)source->first);
    }
    sherd__note_one("sherd_file_read", NULL, hash, t);
    return t;
}

enum { WHY = 160 };

/* The layout is of another shape: both. */
static const char *two_shapes(char why[WHY], const sherd_file_entry *e, const sherd_layout *layout)
{
    sherd__writer w = {why, WHY, 0};

    sherd__write(&w, "it is %s[", sherd_dtype_name(e->dtype));
    for (int d = 0; d < e->ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)e->shape[d]);
    sherd__write(&w, "], the layout %s", sherd_layout_text(layout));
    return why;
}

static const char *name_at(void *of, int i)
{
    const sherd_file_entry *e = sherd_file_entry_at(of, i);

    return e ? e->name : NULL;
}

/* There is no such tensor: which there are. */
static const char *other_names(char why[WHY], const sherd_file *file, const char *name)
{
    static const char before[] = "there is no such tensor; there are ";

    memcpy(why, before, sizeof before);
    sherd__near_names(why + sizeof before - 1, WHY - sizeof before + 1, name_at, (void *)file,
                      name);
    return why[sizeof before - 1] ? why : "there is no such tensor";
}

static const char *fault_of(char why[WHY], const sherd_file_entry *e, const sherd_layout *layout)
{
    if (!layout)
        return NULL;
    if (!sherd__same_shape(sherd_layout_ndim(layout), sherd_layout_shape(layout), e->ndim,
                           e->shape))
        return two_shapes(why, e, layout);
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(layout)); a++)
        if (sherd_layout_placement(layout, a).kind == SHERD_PARTIAL)
            return "the layout is pending";
    return NULL;
}

sherd_tensor *sherd_file_read(const sherd_file *file, const char *name, const sherd_layout *layout)
{
    const sherd__argument need[] = {{"file", file}, {"name", name}, {NULL, NULL}};
    sherd_world *world = file ? file->world : NULL;
    const char *function = "sherd_file_read";
    sherd_tensor *failed;

    if (!sherd__given(world, function, need, &failed))
        return failed;
    const sherd_file_entry *e = sherd_file_find(file, name);
    char text[WHY];
    const char *why = e ? fault_of(text, e, layout) : other_names(text, file, name);
    if (!why && layout && sherd__space_world(layout->space) != world)
        why = "the layout is of another world";
    if (why)
        return sherd__fail_tensor(world, layout != NULL, SHERD_EINVAL,
                                  "%s: \"%.120s\" of \"%.180s\": %s", function, name, file->path,
                                  why);
    if (e->dtype == SHERD_DTYPE_NONE)
        return sherd__fail_tensor(
            world, layout != NULL, SHERD_ENOTSUP,
            "%s: \"%.120s\" of \"%.180s\" has a dtype that sherd does not have", function, name,
            file->path);
    if (layout && sherd__alarmed(world))
        return sherd__failed(world);
    const sherd__file_piece piece = {file, e};
    bool begun = sherd__doing_begin(world, function);
    sherd_tensor *t = sherd__file_rows(&(sherd__file_source){.piece = &piece}, layout, function);
    if (layout && !sherd__is_failed(t))
        t = sherd__move_to(t, layout, false);
    sherd__doing_end(world, begun);
    return t;
}
