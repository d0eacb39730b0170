/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules: a forward function with named parameters, buffers and children, and hooks around it. A module's path is
 * the names from the root, joined by dots ("blocks.0.attn.wq"); it names the module's generator, so random
 * numbers do not depend on how the model is parallelised.
 *
 * A call opens a scope and keeps only its outputs.
 */
#ifndef SHERD_MODULE_H
#define SHERD_MODULE_H

#include "autograd.h"

SHERD_BEGIN

typedef struct sherd_module sherd_module;

enum { SHERD_MAX_ARGS = 8 };

/* Positional tensors first (name NULL), then keyword tensors. A plain value. */
typedef struct sherd_args {
    int count;
    sherd_tensor *value[SHERD_MAX_ARGS]; /* may be NULL */
    const char *name[SHERD_MAX_ARGS];
} sherd_args;

/** The value of a keyword argument; NULL if there is none. @local @owns borrowed from `args` @errors none */
SHERD_API sherd_tensor *sherd_args_find(const sherd_args *args, const char *name);

/* What kind of layer a module is, so that styles know what they may do with it. */
typedef enum sherd_module_kind {
    SHERD_MODULE_OTHER = 0,
    SHERD_MODULE_LINEAR,
    SHERD_MODULE_EMBEDDING,
    SHERD_MODULE_LAYER_NORM,
    SHERD_MODULE_DROPOUT,
    SHERD_MODULE_RMS_NORM,
    SHERD_MODULE_GROUP_NORM,
    SHERD_MODULE_BATCH_NORM,
    SHERD_MODULE_INSTANCE_NORM,
    SHERD_MODULE_CONV,
    SHERD_MODULE_CONV_TRANSPOSED
} sherd_module_kind;

/* Compute `out` (its count starts at 0) from `in`. Failures go through the world's alarm. NULL = a container, not to be called. */
typedef void (*sherd_forward)(sherd_module *self, const sherd_args *in, sherd_args *out);

typedef struct sherd_module_options {
    sherd_module_kind kind;
    void *payload;                  /* the module's own data */
    void (*destroy)(void *payload); /* called once when the module is destroyed; may be NULL */
} sherd_module_options;

/**
 * Make a module.
 *
 * @local
 * @shapes options: NULL = all zero
 * @owns   the caller destroys *out, unless it becomes a child; NULL on failure, then `payload` stays the caller's
 * @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_create(sherd_module **out, sherd_world *world,
                                            sherd_forward forward,
                                            const sherd_module_options *options);

/**
 * Destroy a root module with its children, parameters and hooks; NULL or a child is a no-op.
 *
 * @local   @errors EINVAL in a call of it or of a module below: then it stays; by the alarm
 */
SHERD_API void sherd_module_destroy(sherd_module *module);

/**
 * Give a module a child.
 *
 * @local
 * @owns   the module takes `child`, also on failure (then it is destroyed, unless it has a parent or is the root of this
 *         tree); `child` NULL passes a failure on as ENOMEM
 * @errors EINVAL a name that is empty, has a dot or is taken; `child` has a parent, is the root of this tree, or is of another
 *         world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add(sherd_module *module, const char *name,
                                         sherd_module *child);

/**
 * Give a module a parameter: a leaf, which from now on wants a gradient (sherd_require_grad freezes it again). One of
 * sherd_random_later or sherd_constant_later takes memory only where it is placed or used.
 *
 * @local
 * @owns   the module retains `t`
 * @errors EINVAL a name that is empty, has a dot or is taken; `t` failed, is no leaf, has no fractions or is of another
 *         world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add_parameter(sherd_module *module, const char *name,
                                                   sherd_tensor *t);

/**
 * Put another tensor in the place of a parameter.
 *
 * @local   @owns the module retains `t` and releases the old one   @errors EINVAL no such parameter, `t` failed, another shape or dtype
 */
SHERD_CALL sherd_status sherd_module_set_parameter(sherd_module *module, const char *name,
                                                   sherd_tensor *t);

/**
 * Give a module a buffer: a tensor of any dtype that belongs to its state, but wants no gradient and that no optimizer
 * changes (running statistics, tables that are computed once). sherd_parallelize replicates it.
 *
 * @local
 * @owns   the module retains `t`
 * @errors EINVAL a name that is empty, has a dot or is taken; `t` failed, wants a gradient, is the result of a recorded
 *         operator or is of another world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add_buffer(sherd_module *module, const char *name,
                                                sherd_tensor *t);

/**
 * Put another tensor in the place of a buffer.
 *
 * @local   @owns the module retains `t` and releases the old one   @errors EINVAL no such buffer, as sherd_module_add_buffer,
 * another shape or dtype
 */
SHERD_CALL sherd_status sherd_module_set_buffer(sherd_module *module, const char *name,
                                                sherd_tensor *t);

/**
 * Call a module: pre-forward hooks, forward, forward hooks.
 *
 * @collective what its operators need
 * @shapes     out: at least one output; every slot is the failed tensor after a failure
 * @owns       outputs belong to the scope of the caller
 * @errors     those of its operators; EINVAL no output, a NULL among them, or a container without forward
 */
SHERD_API void sherd_module_run(sherd_module *module, const sherd_args *in, sherd_args *out);

/** Call a module with one positional tensor; its first output. @collective as sherd_module_run @owns scope @errors as sherd_module_run */
SHERD_API sherd_tensor *sherd_module_call(sherd_module *module, sherd_tensor *x);

/** The world it was made on. @local @owns borrowed @errors none */
SHERD_API sherd_world *sherd_module_world(const sherd_module *module);
/** What was given at creation. @local @owns borrowed from the module @errors none */
SHERD_API void *sherd_module_payload(const sherd_module *module);
/** What kind of layer it was made as. @local @errors none */
SHERD_API sherd_module_kind sherd_module_kind_of(const sherd_module *module);
/** "" of a root. @local @owns borrowed, until the module or one above it gets a parent @errors none */
SHERD_API const char *sherd_module_path(const sherd_module *module);
/** Direct children. @local @errors none */
SHERD_API int sherd_module_children(const sherd_module *module);
/** The i-th child; NULL if there is none. @local @owns borrowed from the module @errors none */
SHERD_API sherd_module *sherd_module_child(const sherd_module *module, int i);
/** The name of the i-th child. @local @owns borrowed @errors none */
SHERD_API const char *sherd_module_child_name(const sherd_module *module, int i);
/** The module at a dotted path below this one ("" is itself); NULL if there is none. @local @owns borrowed @errors none */
SHERD_API sherd_module *sherd_module_find(sherd_module *module, const char *path);
/** A parameter by name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API sherd_tensor *sherd_module_parameter(const sherd_module *module, const char *name);
/** Own parameters, without those of children. @local @errors none */
SHERD_API int sherd_module_parameters(const sherd_module *module);
/** The name of the i-th own parameter; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const char *sherd_module_parameter_name(const sherd_module *module, int i);
/** A buffer by name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API sherd_tensor *sherd_module_buffer(const sherd_module *module, const char *name);
/** Own buffers, without those of children. @local @errors none */
SHERD_API int sherd_module_buffers(const sherd_module *module);
/** The name of the i-th own buffer; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const char *sherd_module_buffer_name(const sherd_module *module, int i);
/** Training (the default) or not, for this module and all below: dropout does nothing when not training. @local @errors none */
SHERD_API void sherd_module_train(sherd_module *module, bool training);
/** Whether it is training. @local @errors none */
SHERD_API bool sherd_module_is_training(const sherd_module *module);
/** The module's own generator, named by its path. @local @owns borrowed @errors none */
SHERD_API sherd_generator *sherd_module_generator(sherd_module *module);

/* One entry of a walk over all parameters. */
typedef struct sherd_named_parameter {
    const char *path; /* of the module */
    const char *name; /* in the module */
    sherd_tensor *tensor;
} sherd_named_parameter;

/**
 * All parameters of a module and its children, depth first, each tensor once.
 *
 * @local
 * @shapes out: sherd_named_parameter[room], or NULL to count only
 * @owns   entries are borrowed
 * @errors none; returns how many there are, also if `room` is smaller
 */
SHERD_API int sherd_module_all_parameters(const sherd_module *module, sherd_named_parameter *out,
                                          int room);

/* ---- state ---------------------------------------------------------------------------------- */

/* One entry of the state: what to save of a module, and to load. */
typedef struct sherd_named_state {
    const char *path; /* of its module, below the one that was asked; "" is that one itself */
    const char *name; /* in its module */
    sherd_tensor *tensor;
    bool buffer; /* else a parameter */
} sherd_named_state;

/**
 * All parameters and buffers of a module and its children, depth first, each tensor once.
 *
 * @local
 * @shapes out: sherd_named_state[room], or NULL to count only
 * @owns   entries are borrowed
 * @errors none; returns how many there are, also if `room` is smaller
 */
SHERD_API int sherd_module_state(const sherd_module *module, sherd_named_state *out, int room);

/**
 * The name of an entry with dots, "blocks.0.attn.wq.weight", as sherd_module_load takes it.
 *
 * @local
 * @shapes out: char[room], gets as much as fits and an end; NULL only where room is 0
 * @errors none; returns the length of the whole name
 */
SHERD_API int sherd_state_name(const sherd_named_state *entry, char *out, size_t room);

/**
 * Give a parameter or buffer the values of a tensor, which is moved to where that lies; it stays the same tensor, so
 * optimizers and ties go on. A plain tensor is the whole.
 *
 * @collective the world, if `t` or anything of the module is distributed, or was on some ranks; else local
 * @shapes     name: with dots, of any module below; root: the world rank whose plain tensor counts (of what is distributed;
 *             `t` may be NULL on the others then), or -1: all ranks hold the same
 * @numerics   values are copied bit for bit
 * @owns       `t` is only read
 * @errors     EINVAL no such parameter or buffer, another shape or dtype, a plain tensor that varies and no root; EDIFFER;
 *             ENOMEM; EPEER. What was there stays there then
 */
SHERD_CALL sherd_status sherd_module_load(sherd_module *module, const char *name, sherd_tensor *t,
                                          int root);

/**
 * Make plain parameters and buffers that may differ between ranks equal: all ranks of a mesh get those of one of them, in
 * one round for all. Those that are known to be equal stay, and need not travel. For parameters that only one rank has
 * read, or that each has drawn for itself; before sherd_parallelize. With SHERD_VERIFY=1 all plain ones are compared then,
 * those that were known to be equal too.
 *
 * @collective the world; ranks outside of the mesh only agree
 * @shapes     axis: the name of one axis, along which the ranks of each line get the parameters of the one at coordinate
 *             `rank`; or NULL: all get those of the rank with that number in the order of the whole mesh
 * @numerics   values are copied bit for bit
 * @owns       the module keeps its tensors; they get new values
 * @errors     EINVAL no such axis or rank, the mesh is not of the module's world; EDIFFER also names, dtypes or shapes that
 *             differ, or what was said to be equal and is not (SHERD_VERIFY=1); ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_module_equalize(sherd_module *module, const sherd_mesh *mesh,
                                              const char *axis, int64_t rank);

/*
 * Hooks see and may replace tensors, positional and keyword ones. A pre-forward hook gets the arguments; a forward
 * hook the arguments, as the pre-forward hooks left them, and the outputs. They run in the order of registration; with
 * `prepend` before those already there. All of them run in every call, also when an argument or the forward has
 * failed: then `out` may be empty or hold the failed tensor. A hook may add and remove hooks.
 */
typedef void (*sherd_pre_hook)(sherd_module *self, sherd_args *in, void *payload);
typedef void (*sherd_hook)(sherd_module *self, const sherd_args *in, sherd_args *out,
                           void *payload);

typedef struct sherd_hook_options {
    bool prepend;
    void *payload;
    void (*destroy)(void *payload); /* called once with the hook's removal; may be NULL */
} sherd_hook_options;

/**
 * Register a hook before the forward; *id (may be NULL) names it for removal, 0 on failure.
 *
 * @local   @owns `payload` is the module's from here on, also on failure: then it is destroyed   @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_hook_before(int *id, sherd_module *module, sherd_pre_hook hook,
                                                 const sherd_hook_options *options);

/** Register a hook after the forward; otherwise as sherd_module_hook_before. @local @owns as there @errors ENOMEM */
SHERD_CALL sherd_status sherd_module_hook_after(int *id, sherd_module *module, sherd_hook hook,
                                                const sherd_hook_options *options);

/** Remove a hook. @local @errors none; a no-op if there is no such hook */
SHERD_API void sherd_module_unhook(sherd_module *module, int id);

/**
 * Checkpoint a module or stop to: calls of it from now on save nothing for backward but their arguments. Backward calls it again,
 * with its hooks, when it comes to it, and then has what it needs; that costs one more forward, and
 * the calls that are in it. Gradients are the same, bit for bit, and so are random numbers, whatever generators it uses. A
 * module inside of it may be checkpointed too. Hooks on saved tensors (sherd_input_reshard) that stand when its forward begins see the
 * arguments.
 *
 * What it does must depend on its arguments, parameters and generators alone. Else backward fails where it can tell: EINVAL if
 * other operators run than the first time, a parameter was written since, or the module is gone. A forward or hook that counts its
 * calls asks sherd_is_recomputing.
 *
 * @local
 * @errors none
 */
SHERD_API void sherd_module_checkpoint(sherd_module *module, bool on);

/** Whether calls of it are checkpointed. @local @errors none */
SHERD_API bool sherd_module_is_checkpointed(const sherd_module *module);

SHERD_END

#endif
