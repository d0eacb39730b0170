/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose header has been read. */
#ifndef SHERD__IO_FILE_H
#define SHERD__IO_FILE_H

#include "io/header.h"

/* What identifies a file: another file, or the same one after a write, has another mark. */
typedef struct sherd__file_mark {
    uint64_t device, number;
    int64_t bytes, seconds, nanoseconds; /* when it was written */
} sherd__file_mark;

struct sherd_file {
    sherd_world *world;
    char *path;
    sherd__file_mark mark; /* as this rank has opened it */
    uint64_t identity;     /* hash of the header and a sample: what is read is noted by it */
    sherd__header header;
};

/* The arguments of sherd_file_write. */
typedef struct sherd__to_write {
    sherd_world *world;
    const char *path;
    const sherd_named_tensor *tensors;
    int count;
    const sherd_file_note *notes;
    int note_count;
    bool later; /* begin to write it, and set *out; which is NULL until then */
    sherd_writing **out;
    const char *refused; /* what else is wrong with the arguments, or NULL */
} sherd__to_write;

/*
 * As sherd_file_write, or sherd_file_write_begin, and sherd_file_open, with `function` in error
 * texts.
 */
sherd_status sherd__file_write(const sherd__to_write *what, const char *function);
sherd_status sherd__file_open(sherd_file **out, sherd_world *world, const char *path,
                              const char *function);

/* An entry and its file. */
typedef struct sherd__file_piece {
    const sherd_file *file;
    const sherd_file_entry *entry;
} sherd__file_piece;

/*
 * A tensor in files: one entry, or, if it is stacked, an entry for each index of its first dim. If
 * it is a part, of each entry `rows` rows from `first` on.
 */
typedef struct sherd__file_source {
    const sherd__file_piece *piece; /* [stacked ? count : 1] */
    int64_t count;
    bool stacked, part;
    int64_t first, rows;
} sherd__file_source;

/*
 * This rank's rows of a tensor, for the row layout of `layout` (io/rows.h); with NULL all of it,
 * plain. The failed tensor, raised, after a failure.
 */
sherd_tensor *sherd__file_rows(const sherd__file_source *source, const sherd_layout *layout,
                               const char *function);

#endif
