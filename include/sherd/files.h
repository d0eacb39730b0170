/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on disk in the safetensors format: a JSON header, then the elements of each tensor,
 * row-major and little-endian, without gaps. A file knows nothing of layouts: it can be written on
 * one mesh and read on any other, or by PyTorch.
 *
 * All ranks must see the same file system. No rank ever holds more of a tensor than its share: on
 * its way to or from the file, a tensor is redistributed so that each rank of its mesh has some
 * whole rows (dim 0 is sharded as in its layout, and then over all other axes). So each byte is
 * written or read once in the whole job, and each rank reads or writes one contiguous piece.
 *
 *     if (sherd_module_write(model, optimizer, "step-1000.safetensors"))
 *         return 1; // the same on all ranks
 *     if (sherd_module_read(model, optimizer, "step-1000.safetensors", NULL)) // on any mesh
 *         return 1;
 *
 * So that a training does not wait for the disk, a write can be begun in one step and ended in a
 * later one:
 *
 *     sherd_writing *writing;
 *     if (sherd_module_write_begin(&writing, model, optimizer, "step-1000.safetensors", NULL))
 *         return 1;
 *     // ... more steps, which may change everything ...
 *     if (sherd_writing_end(writing)) // waits for what is not yet on disk; then the file is there
 *         return 1;
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
 * Write tensors to a file. It is written as PATH.part, and renamed to PATH when it is complete:
 * until then, and after a failure, an old file at PATH stays. A job that is killed leaves its
 * PATH.part, which the next write to PATH overwrites. If PATH is a link, the link is replaced, not
 * its target. If two jobs write the same PATH at once, the second is refused, unless the file
 * system has no locks.
 *
 * @collective the world; ranks outside a tensor's mesh pass their own handle of it. Whether ranks
 *             have passed the same tensor on a mesh of some ranks is compared by the next check
 *             (sherd_world_check), not by this function, which may return SHERD_OK before
 * @shapes     tensors: [count], each distributed, or plain and equal on all ranks
 *             (sherd_mark_equal); notes: [note_count]
 * @numerics   bit for bit; a pending reduction is added in rank order
 * @owns       all arguments are only read; while a tensor is written, each rank's share of it is in
 *             memory twice
 * @errors     EINVAL a NULL, a negative count, a name or key that is repeated or not UTF-8,
 *             "__metadata__" as a name, a tensor that varies or has failed, another job that is
 *             writing this file, a PATH or PATH.part that exists and is not a file, a system error
 *             (the text has it); ELIMIT names and notes of more than 100 MiB, or tensors of 2^62
 *             bytes; ENOTSUP sherd was built without jansson; EDIFFER ranks passed different paths,
 *             tensors or notes (at the next check, if they are on a mesh of some ranks only);
 *             ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_file_write(sherd_world *world, const char *path,
                                         const sherd_named_tensor *tensors, int count,
                                         const sherd_file_note *notes, int note_count);

/*
 * A file whose header has been read. The file itself is not kept open; if it has changed since, or
 * another file has its name now, reading from it fails.
 */
typedef struct sherd_file sherd_file;

/* One tensor of a file. */
typedef struct sherd_file_entry {
    const char *name;
    sherd_dtype dtype; /* SHERD_DTYPE_NONE: a dtype that sherd does not have and cannot read */
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    int64_t offset, bytes; /* where its elements are in the file, and how many bytes they take */
} sherd_file_entry;

/**
 * Read the header of a file, and check that each tensor has as many bytes as its shape needs, and
 * that all of them together fill the file.
 *
 * Ranks of several machines may have copies of the file on their own disks. They compare the
 * headers, and 64 KB of the rest, spread over the file; copies that differ only in a few other
 * places are not noticed.
 *
 * @collective the world; all ranks read the file, and must find the same
 * @owns       the caller destroys *out with sherd_file_destroy, before the world closes; NULL on
 *             failure
 * @errors     EINVAL a NULL, a system error, faulty contents (the text says what is wrong); ELIMIT
 *             a tensor of more than 8 dims; ENOTSUP sherd was built without jansson; EDIFFER ranks
 *             found different files; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_file_open(sherd_file **out, sherd_world *world, const char *path);

/** Free a sherd_file; NULL is a no-op. @local @errors none */
SHERD_API void sherd_file_destroy(sherd_file *file);
/** How many tensors a file has. @local @errors none */
SHERD_API int sherd_file_entries(const sherd_file *file);

/**
 * The entry of the i-th tensor, in the order of the header; NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API const sherd_file_entry *sherd_file_entry_at(const sherd_file *file, int i);

/** The entry with this name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const sherd_file_entry *sherd_file_find(const sherd_file *file, const char *name);
/** The text of the note with this key; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const char *sherd_file_text(const sherd_file *file, const char *key);

/**
 * Read a tensor of a file: distributed if `layout` is given, otherwise plain, whole on each rank
 * that calls.
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
 * "optimizer.". A parameter that has been frozen in all steps has no state in the file. What was
 * thawed later has, and ranks outside its mesh make theirs now.
 *
 * Notes keep how often the modules' own generators (sherd_module_generator) have been used, so that
 * a resumed run with dropout draws the same numbers as one that was not interrupted: "generators"
 * is how many have been used, and "generator.PATH" how often each (where ranks differ, the largest
 * number). The program's own generators, loss scalers and the number of the step are not written:
 * see sherd_module_write_with. Of weights of 8 or 4 bits that are written "quantized.PATH" notes
 * what sherd_module_quantize was called with: "4 bits, group 32".
 *
 * @collective the world   @shapes optimizer: NULL = none
 * @errors as sherd_file_write; EDIFFER ranks have different modules
 */
SHERD_CALL sherd_status sherd_module_write(sherd_module *module, sherd_optimizer *optimizer,
                                           const char *path);

/* A part of a module's parameters and buffers; the state of an optimizer goes with parameters. */
typedef enum sherd_file_part {
    SHERD_FILE_ALL = 0,
    SHERD_FILE_TRAINED, /* parameters that require a gradient, such as adapters (LoRA) */
    SHERD_FILE_FROZEN   /* all others, and buffers */
} sherd_file_part;

/*
 * What a program writes beside a module: the number of the step, its place in the data, ..; and
 * how much of the module.
 *
 *     const sherd_write_options adapters = {.part = SHERD_FILE_TRAINED};
 */
typedef struct sherd_write_options {
    const sherd_named_tensor *tensors; /* [tensor_count], each as in sherd_file_write */
    int tensor_count;
    const sherd_file_note *notes; /* [note_count], with keys that sherd_module_write does not use */
    int note_count;
    sherd_file_part part; /* write only these; */
    /*
     * [only_count]: of these, only parameters and buffers that one of the patterns matches, as in
     * sherd_optimizer_group; NULL = all
     */
    const char *const *only;
    int only_count;
    /*
     * [optimizer_count]: more optimizers, such as one for each mesh, or Muon and AdamW; the state
     * of the i-th is under its names with the prefix "optimizers.i."
     */
    sherd_optimizer *const *optimizers;
    int optimizer_count;
} sherd_write_options;

/**
 * As sherd_module_write, of a part of the module if the options say so, and with more tensors and
 * notes in the same file, under the names given here. To get these back:
 * sherd_read_options.tensors for the tensors, sherd_file_open and sherd_file_text for the notes.
 *
 * @collective the world
 * @shapes     optimizer: NULL = none; options: NULL = all zero
 * @owns       everything is only read
 * @errors     as sherd_module_write; EINVAL a tensor with a name that the module or an optimizer
 *             writes, a note whose key is "generators" or begins with "generator." or "quantized.",
 *             a pattern that matches nothing, no parameter or buffer that is chosen, an optimizer
 *             of the options that is NULL or of another world; EDIFFER also if ranks have frozen
 *             other parameters, with a `part`
 */
SHERD_CALL sherd_status sherd_module_write_with(sherd_module *module, sherd_optimizer *optimizer,
                                                const char *path,
                                                const sherd_write_options *options);

/*
 * A write that has begun. A thread of each rank writes this rank's part of the file to PATH.part
 * and syncs it to disk, while the rank goes on; threads of different ranks do not wait for each
 * other. It has copies of what it writes, made when it was begun: on each rank as many bytes as its
 * rows take, all ranks together as many as the file has. They lie in the arena, count under its
 * limit (SHERD_ARENA_BYTES), and are given back at the end.
 *
 * Writes to several paths may be going on at once, and end in any order that is the same on all
 * ranks. The threads take no signals. Where the system gives no thread, the rank writes its part
 * before `begin` returns. In a process that a rank forks, the write goes on in the rank alone.
 */
typedef struct sherd_writing sherd_writing;

/**
 * Begin to write a module, its optimizers and more, as sherd_module_write_with does. Returns when
 * all is copied; the file has its name when sherd_writing_end has returned, until then an old file
 * at PATH stays.
 *
 * @collective the world
 * @shapes     optimizer: NULL = none; options: NULL = all zero
 * @owns       the arguments are only read, and may change afterwards; *out is to be given to
 *             sherd_writing_end before the world closes: closing stops the write and removes what
 *             has been written; NULL on failure
 * @errors     as sherd_module_write_with; EINVAL a write to this path has begun; ENOMEM also if
 *             there is no memory for the copies
 */
SHERD_CALL sherd_status sherd_module_write_begin(sherd_writing **out, sherd_module *module,
                                                 sherd_optimizer *optimizer, const char *path,
                                                 const sherd_write_options *options);

/**
 * Begin to write the tensors and notes of the options, as sherd_file_write does; otherwise as
 * sherd_module_write_begin.
 *
 * @collective the world
 * @shapes     options: NULL = all zero, a file without tensors
 * @owns       as there
 * @errors     as sherd_file_write; EINVAL a write to this path has begun, options that are for
 *             modules; ENOMEM also if there is no memory for the copies
 */
SHERD_CALL sherd_status sherd_file_write_begin(sherd_writing **out, sherd_world *world,
                                               const char *path,
                                               const sherd_write_options *options);

/**
 * Whether the threads of all ranks have finished, so that sherd_writing_end does not wait for the
 * disk; also when one has failed.
 *
 * @collective the world; costs a few small exchanges, and does not wait for the threads
 * @shapes     *ready: the same on all ranks; false on failure
 * @errors     EINVAL a NULL; EDIFFER ranks asked for different writes; EPEER; by the alarm
 */
SHERD_CALL sherd_status sherd_writing_ready(bool *ready, sherd_writing *writing);

/**
 * Wait until all ranks have written their parts, and give the file its name. After a failure on
 * any rank PATH.part is removed, and an old file at PATH stays. A failed step of the program is to
 * be checked (sherd_world_check) before: a raised alarm ends the write too.
 *
 * @collective the world; blocks until all parts are on disk
 * @owns       `writing` is freed, whatever the status (except in a process that a rank has forked)
 * @errors     EINVAL NULL, a system error of any rank (the text has it: no space, a folder that was
 *             removed), a process that a rank has forked; EDIFFER ranks ended different writes;
 *             EPEER; by the alarm
 */
SHERD_CALL sherd_status sherd_writing_end(sherd_writing *writing);

/*
 * A rule for parameters or buffers that have another name in the file. `here` is the name in the
 * module; each "*" in it matches one level (the text between two dots). `there` is the name in the
 * file; its n-th "*" stands for what the n-th "*" of `here` has matched. A "#" in `there` means
 * that the parameter is stacked from several tensors: its part i along dim 0 is the tensor with the
 * number i in place of "#". "[96:]" at the end of `there` means that the parameter is a part of the
 * tensor: the rows from 96 on, as many as the parameter has. So a model whose projections are apart
 * reads one in which they are fused, and no rank reads more than its share.
 *
 *     const sherd_file_name rules[] = {
 *         {"layers.*.mlp.w1", "layers.*.mlp.experts.#.gate.weight"},
 *         {"layers.*.attn.q.weight", "layers.*.attn.qkv.weight[0:]"}, // 96 rows
 *         {"layers.*.attn.k.weight", "layers.*.attn.qkv.weight[96:]"}};
 */
typedef struct sherd_file_name {
    const char *here, *there;
} sherd_file_name;

typedef struct sherd_read_options {
    bool partial; /* ignore names that only the file or only the module has; otherwise EINVAL */
    bool more;    /* ignore names that only the file has; otherwise EINVAL */
    bool cast;    /* cast between floating-point dtypes; otherwise another dtype is EINVAL */
    /* [name_count]: rules; the first one whose `here` matches a name counts */
    const sherd_file_name *names;
    int name_count;
    /*
     * [tensor_count]: tensors of the program's own, which get the values with these names and keep
     * their layouts, as parameters do; `names` does not apply to them.
     */
    const sherd_named_tensor *tensors;
    int tensor_count;
    /*
     * Read only these, as in sherd_write_options. The file must have all of them, and without
     * `more` nothing else; what is not chosen stays as it is.
     */
    sherd_file_part part;
    const char *const *only; /* [only_count] patterns; NULL = all */
    int only_count;
    sherd_optimizer *const *optimizers; /* [optimizer_count], in the order of sherd_write_options */
    int optimizer_count;
} sherd_read_options;

/**
 * Read the parameters and buffers of a module, and the state of an optimizer, from a file of
 * sherd_module_write; or parameters and buffers from a file of another program, such as PyTorch.
 * Works on any mesh: each rank reads some rows of each tensor. Where the file has optimizer state,
 * but none of one parameter, that was frozen until then: its state becomes that before the first
 * step, zeros (with `partial` it stays as it is). Where the file has state of a parameter that was
 * frozen when the optimizer was made, that state begins now. The modules' own generators are set as
 * the file's notes say (with `partial`, those that no file names stay as they are; of several files
 * the largest number counts); without such notes they do not change.
 *
 * @collective the world
 * @shapes     optimizer: NULL = none; options: NULL = all zero; with neither it nor
 *             options->optimizers, optimizer state in the file is ignored; otherwise the file must
 *             have that of all, and no other
 * @owns       parameters, and the tensors of the options, stay the same tensors; they get new
 *             values
 * @errors     EINVAL, before anything is read: names that are missing, or that only the file has
 *             (the text lists them), shapes or dtypes that differ, weights of 8 or 4 bits that are
 *             read, and of which the file notes other bits or another group (not looked at with
 *             `names`), a pattern that matches nothing, no parameter or buffer that is chosen, a
 *             rule with more "*" in `there` than in `here` or with two "#", a part that the tensor
 *             does not have, a tensor of the options that is NULL, has no name, is of another world
 *             or has failed, an optimizer as in sherd_module_write_with; as sherd_file_open, and
 *             nothing is read; as sherd_file_read and sherd_module_load, and some tensors may have
 *             been read and others not
 */
SHERD_CALL sherd_status sherd_module_read(sherd_module *module, sherd_optimizer *optimizer,
                                          const char *path, const sherd_read_options *options);

/**
 * sherd_module_read without its optimizer, from several files that together have all parameters and
 * buffers, such as the parts of a large model. A name that is in several files is read from the
 * first of them. A path that ends in ".index.json" stands for the files beside it that it names, as
 * Hugging Face's libraries write it (here and in sherd_module_read):
 *
 *     const char *path = "llama/model.safetensors.index.json";
 *     if (sherd_module_read_files(model, &path, 1, NULL))
 *         return 1;
 *
 * @collective the world
 * @shapes     paths: [count]; options: NULL = all zero
 * @owns       parameters stay the same tensors, with new values
 * @errors     as sherd_module_read; EINVAL count < 1, a path NULL, an index that names no files
 */
SHERD_CALL sherd_status sherd_module_read_files(sherd_module *module, const char *const *paths,
                                                int count, const sherd_read_options *options);

SHERD_END

#endif
