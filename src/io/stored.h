/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tensors of a module are in the files that it is read from. */
#ifndef SHERD__IO_STORED_H
#define SHERD__IO_STORED_H

#include "io/file.h"

/* The files of a read; a name is looked for in all of them. */
typedef struct sherd__files {
    sherd_file **file; /* [count] */
    int count;
} sherd__files;

typedef struct sherd__stored {
    sherd__file_source rows;
    sherd__file_piece *piece; /* of `rows` */
    int64_t count;            /* of pieces; 0: the files have none */
    bool anew;                /* state that had not begun: zeros, without pieces */
    bool missing;             /* the files have nothing of it, and should */
} sherd__stored;

/* A tensor that is looked for. */
typedef struct sherd__wanted {
    const char *function;
    sherd__diag *diag;
    sherd__heap *heap;
    const char *name;
    sherd_tensor *tensor;
    const sherd_read_options *options;
    bool renamed; /* options->names may have another name for it */
} sherd__wanted;

/*
 * Find it, and mark the entries that it is read from: known[file][entry]. EINVAL: it is not there,
 * or cannot be loaded; ENOMEM.
 */
sherd_status sherd__find_stored(sherd__stored *out, const sherd__files *files,
                                const sherd__wanted *want, bool *const *known);

/* Its name in the files, of the first piece; NULL for lack of memory. The caller frees it. */
char *sherd__stored_name(const sherd__wanted *want);
/* Whether the files have all of it, or its first piece; true if there is no memory to find out. */
bool sherd__is_stored(const sherd__files *files, const sherd__wanted *want);
/* EINVAL: "FUNCTION: "PATH": "NAME", f32[4]: why", the path of file number `file`. */
sherd_status sherd__refuse_stored(const sherd__wanted *want, const sherd__files *f, int file,
                                  const char *name, const char *why);
void sherd__stored_clear(sherd__heap *heap, sherd__stored *source);

#endif
