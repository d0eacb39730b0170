/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on disk, as safetensors: a header in JSON, then the elements of each tensor, row-major and little-endian, without
 * gaps. What a file holds has no layout: it is written on one mesh and read on any other, by PyTorch too.
 *
 * All ranks must see the same file system. No rank ever holds more of a tensor than its share: a tensor goes to disk, and comes
 * from there, in rows, of which each rank of its mesh has some (the dim 0 of its layout, cut further over all other axes), and is moved
 * between those and where it lies. So every byte is written once and read once in the whole job, in one piece a rank.
 */
#ifndef SHERD_FILES_H
#define SHERD_FILES_H

#include "optimizer.h"

SHERD_BEGIN

/* What is written: a tensor and its name in the file. */
typedef struct sherd_named_tensor {
    const char *name;
    sherd_tensor *tensor;
} sherd_named_tensor;

/* A line of text that a file carries beside the tensors ("__metadata__" of the format). */
typedef struct sherd_file_note {
    const char *key, *text;
} sherd_file_note;

/**
 * Write tensors to a file. It is made as PATH.part and takes the place of PATH once it is complete: what was there before stays
 * until then, and after a failure; only a job that is killed leaves a PATH.part.
 *
 * @collective the world; ranks outside of a tensor's mesh give what they have in its place
 * @shapes     tensors: [count], each distributed, or plain and equal on all ranks; notes: [note_count]
 * @numerics   bit for bit; a pending reduction is added in rank order
 * @owns       all is only read; a tensor is held once more in rows while it is written
 * @errors     EINVAL a NULL, a name twice or no UTF-8, "__metadata__" as a name, a tensor that varies or has failed, or what the system
 *             says of the file; ENOTSUP built without jansson; EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_file_write(sherd_world *world, const char *path,
                                         const sherd_named_tensor *tensors, int count,
                                         const sherd_file_note *notes, int note_count);

/* A file whose header has been read. It is not kept open. */
typedef struct sherd_file sherd_file;

/* One tensor of a file. */
typedef struct sherd_file_entry {
    const char *name;
    sherd_dtype dtype; /* SHERD_DTYPE_NONE: one that sherd has not; it can not be read */
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    int64_t offset, bytes; /* in the file */
} sherd_file_entry;

/**
 * Read the header of a file and check it: every tensor has the bytes that its shape needs, and all together are the file.
 *
 * @collective the world: all ranks read it, and must find the same
 * @owns       the caller destroys *out, before the world closes; NULL on failure
 * @errors     EINVAL a NULL, what the system says of the file, or what is wrong with it; ELIMIT a tensor of more than 8 dims;
 *             ENOTSUP built without jansson; EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_file_open(sherd_file **out, sherd_world *world, const char *path);

/** Free it; NULL is a no-op. @local @errors none */
SHERD_API void sherd_file_destroy(sherd_file *file);
/** How many tensors it holds. @local @errors none */
SHERD_API int sherd_file_entries(const sherd_file *file);
/** The i-th tensor, in the order of the header; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const sherd_file_entry *sherd_file_entry_at(const sherd_file *file, int i);
/** The tensor of a name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const sherd_file_entry *sherd_file_find(const sherd_file *file, const char *name);
/** The text of a note; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const char *sherd_file_text(const sherd_file *file, const char *key);

/**
 * A tensor of a file, where a layout says; or plain and whole on each rank.
 *
 * @collective the layout's mesh; local without a layout
 * @shapes     layout: of the tensor's shape, without a pending reduction; NULL = plain
 * @numerics   bit for bit
 * @owns       the result belongs to the scope
 * @errors     EINVAL no such name, another shape, a pending layout, or what the system says of the file; ENOTSUP a dtype that sherd
 *             has not; EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API sherd_tensor *sherd_file_read(const sherd_file *file, const char *name,
                                        const sherd_layout *layout);

/**
 * Write the parameters and buffers of a module by their names with dots ("blocks.0.attn.wq.weight"), and the state of an
 * optimizer by its names behind "optimizer.".
 *
 * @collective the world
 * @shapes     optimizer: NULL = none
 * @errors     as sherd_file_write
 */
SHERD_CALL sherd_status sherd_module_write(sherd_module *module, sherd_optimizer *optimizer,
                                           const char *path);

typedef struct sherd_read_options {
    bool
        partial; /* names that the file lacks are left as they are, and those that the module lacks are left out; else EINVAL */
    bool cast;   /* another dtype is cast, both being fractions; else EINVAL */
} sherd_read_options;

/**
 * Give the parameters and buffers of a module, and the state of an optimizer, what a file holds by their names, as
 * sherd_module_write has written it, or PyTorch the parameters. On any mesh: each rank reads some rows of each.
 *
 * @collective the world
 * @shapes     optimizer: NULL = none, and what is of one in the file is left out; options: NULL = all zero
 * @owns       parameters stay the same tensors, with new values
 * @errors     EINVAL before anything is read: names that are missing, shapes or dtypes that differ; otherwise as sherd_file_open,
 *             sherd_file_read and sherd_module_load; after those some may have been read and others not
 */
SHERD_CALL sherd_status sherd_module_read(sherd_module *module, sherd_optimizer *optimizer,
                                          const char *path, const sherd_read_options *options);

SHERD_END

#endif
