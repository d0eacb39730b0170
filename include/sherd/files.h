/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on disk in the safetensors format: a JSON header, then the elements of each tensor,
 * row-major and little-endian, without gaps. A file has no layouts: it is written on one mesh and
 * read on any other, or by PyTorch.
 *
 * All ranks must see the same file system. No rank ever holds more of a tensor than its share: on
 * its way to or from the file, a tensor is redistributed so that each rank of its mesh has some
 * whole rows (dim 0 sharded as in its layout, and then over all other axes). So every byte is
 * written once and read once in the whole job, in one contiguous piece per rank.
 *
 * In a dry world (dry.h) headers are read, arguments checked and tensors moved, but elements are
 * neither read nor written: no file is made or changed.
 */
#ifndef SHERD_FILES_H
#define SHERD_FILES_H

#include "optimizer.h"

SHERD_BEGIN

/* A tensor to write, and its name in the file. */
typedef struct sherd_named_tensor {
    const char *name;
    sherd_tensor *tensor;
} sherd_named_tensor;

/* A line of text in the file beside the tensors ("__metadata__" in the format). */
typedef struct sherd_file_note {
    const char *key, *text;
} sherd_file_note;

/**
 * Write tensors to a file. The file is written as PATH.part and renamed to PATH when it is
 * complete: until then, and after a failure, the old file stays. Only a job that is killed leaves a
 * PATH.part, which the next job takes over. A link at PATH is replaced; its target stays as it is.
 * If two jobs write the same PATH at once, the second is refused, unless the file system has no
 * locks.
 *
 * @collective the world; ranks outside a tensor's mesh pass their own handle of it
 * @shapes     tensors: [count], each distributed, or plain and equal on all ranks; notes:
 *             [note_count]
 * @numerics   bit for bit; a pending reduction is added in rank order
 * @owns       everything is only read; while a tensor is written, its share exists a second time as
 *             rows
 * @errors     EINVAL a NULL, a negative count, a name or key that is repeated or not UTF-8,
 *             "__metadata__" as a name, a tensor that varies or has failed, another job that writes
 *             this file, a PATH or PATH.part that exists and is not a file, a system error; ELIMIT
 *             names and notes of more than 100 MiB, or tensors of 2^62 bytes; ENOTSUP built without
 *             jansson; EDIFFER ranks have other paths, tensors or notes; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_file_write(sherd_world *world, const char *path,
                                         const sherd_named_tensor *tensors, int count,
                                         const sherd_file_note *notes, int note_count);

/*
 * A file whose header has been read. The file itself is not kept open: once it has changed, or
 * another file has taken its name, nothing is read from it.
 */
typedef struct sherd_file sherd_file;

/* One tensor of a file. */
typedef struct sherd_file_entry {
    const char *name;
    sherd_dtype dtype; /* SHERD_DTYPE_NONE: one that sherd does not have; it cannot be read */
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    int64_t offset, bytes; /* in the file */
} sherd_file_entry;

/**
 * Read the header of a file and check it: every tensor has as many bytes as its shape needs, and
 * together they fill the file.
 *
 * Ranks of several machines may each have the file on their own disk. They compare the headers and
 * 64 KB of what follows, spread over the file: copies that differ in a few other places only are
 * not noticed.
 *
 * @collective the world: all ranks read it, and must find the same
 * @owns       the caller destroys *out, before the world closes; NULL on failure
 * @errors     EINVAL a NULL, a system error of the file, or what is wrong with its contents; ELIMIT
 *             a tensor of more than 8 dims; ENOTSUP built without jansson; EDIFFER ranks found
 *             different files; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_file_open(sherd_file **out, sherd_world *world, const char *path);

/** Free it; NULL is a no-op. @local @errors none */
SHERD_API void sherd_file_destroy(sherd_file *file);
/** How many tensors it holds. @local @errors none */
SHERD_API int sherd_file_entries(const sherd_file *file);

/**
 * The i-th tensor, in the order of the header; NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API const sherd_file_entry *sherd_file_entry_at(const sherd_file *file, int i);

/** The tensor with this name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const sherd_file_entry *sherd_file_find(const sherd_file *file, const char *name);
/** The text of the note with this key; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const char *sherd_file_text(const sherd_file *file, const char *key);

/**
 * Read a tensor of a file into a layout; or, without a layout, as a plain tensor, whole on each
 * rank.
 *
 * @collective the layout's mesh; local without a layout
 * @shapes     layout: of the tensor's shape, without pending reductions; NULL = plain
 * @numerics   bit for bit
 * @owns       the result belongs to the scope
 * @errors     EINVAL no such name, another shape, a pending reduction, a file that has changed
 *             since it was opened, a system error of the file; ENOTSUP a dtype that sherd does not
 *             have; EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API sherd_tensor *sherd_file_read(const sherd_file *file, const char *name,
                                        const sherd_layout *layout);

/**
 * Write the parameters and buffers of a module under their dotted names
 * ("blocks.0.attn.wq.weight"), and the state of an optimizer under its names with the prefix
 * "optimizer.". Notes say where the modules' own generators stand (sherd_module_generator), so that
 * a run with dropout goes on with the numbers that it would have drawn: "generators" how many have
 * been called, and "generator.PATH" how often each; of ranks that differ, the most. Generators of
 * the program, loss scalers and the number of the step are the program's to keep: see
 * sherd_module_write_with.
 *
 * @collective the world   @shapes optimizer: NULL = none
 * @errors     as sherd_file_write; EDIFFER ranks have other modules
 */
SHERD_CALL sherd_status sherd_module_write(sherd_module *module, sherd_optimizer *optimizer,
                                           const char *path);

/* What a program keeps beside a module: the number of the step, where its data stands. */
typedef struct sherd_write_options {
    const sherd_named_tensor *tensors; /* [tensor_count] each as in sherd_file_write */
    int tensor_count;
    const sherd_file_note *notes; /* [note_count] with keys that sherd_module_write does not use */
    int note_count;
} sherd_write_options;

/**
 * As sherd_module_write, with more tensors and notes in the same file, under the names that they
 * have here. sherd_module_read reads the tensors into those of its options; sherd_file_text has the
 * notes.
 *
 * @collective the world
 * @shapes     optimizer: NULL = none; options: NULL = all zero
 * @owns       everything is only read
 * @errors     as sherd_module_write; EINVAL a tensor with a name that the module or the optimizer
 *             writes, a note whose key is "generators" or begins with "generator."
 */
SHERD_CALL sherd_status sherd_module_write_with(sherd_module *module, sherd_optimizer *optimizer,
                                                const char *path,
                                                const sherd_write_options *options);

/*
 * What parameters of a module are called in a file, where that differs. "*" as a level of `here`
 * matches one level, and a "*" in `there` stands for what the next of them has matched. A "#" in
 * `there`: the parameter is a stack, and its i-th part is the tensor with i in the place of "#":
 *
 *     {"layers.*.mlp.w1", "layers.*.mlp.experts.#.gate_proj.weight"}
 */
typedef struct sherd_file_name {
    const char *here, *there;
} sherd_file_name;

typedef struct sherd_read_options {
    bool partial; /* ignore names that only the file or only the module has; otherwise EINVAL */
    bool more;    /* ignore names that only the file has */
    bool cast;    /* cast between floating-point dtypes; otherwise another dtype is EINVAL */
    /* [name_count]: the first that matches a parameter or buffer says its name in the file */
    const sherd_file_name *names;
    int name_count;
    /* [tensor_count]: tensors of the program that get the values with their names, as parameters
     * do, in the layouts that they have; `names` does not rename them */
    const sherd_named_tensor *tensors;
    int tensor_count;
} sherd_read_options;

/**
 * Read the parameters and buffers of a module, and the state of an optimizer, from a file that
 * sherd_module_write has written, or (parameters and buffers only) PyTorch. Works on any mesh: each
 * rank reads some rows of each tensor. The modules' own generators then stand where the file says;
 * one without such notes leaves them as they are.
 *
 * @collective the world
 * @shapes     optimizer: NULL = none, and any optimizer state in the file is ignored; options: NULL
 *             = all zero
 * @owns       parameters, and tensors of the options, stay the same tensors, with new values
 * @errors     EINVAL, before anything is read: missing names, shapes or dtypes that differ, a name
 *             with more "*" in the file than in the module, or with two "#", a tensor of the
 *             options that is NULL, without a name, of another world or has failed;
 *             otherwise as sherd_file_open, sherd_file_read and sherd_module_load, and then some
 *             tensors may have been read and others not
 */
SHERD_CALL sherd_status sherd_module_read(sherd_module *module, sherd_optimizer *optimizer,
                                          const char *path, const sherd_read_options *options);

/**
 * Read the parameters and buffers of a module from several files that hold them together, such as
 * the parts of a large model; a name that is in several is read from the first. Otherwise as
 * sherd_module_read.
 *
 * @collective the world
 * @shapes     paths: [count]; options: NULL = all zero
 * @owns       parameters stay the same tensors, with new values
 * @errors     as sherd_module_read; EINVAL count < 1, a path NULL
 */
SHERD_CALL sherd_status sherd_module_read_files(sherd_module *module, const char *const *paths,
                                                int count, const sherd_read_options *options);

SHERD_END

#endif
