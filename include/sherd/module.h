/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules: a forward function with named parameters, buffers and children, and hooks around it. A
 * module's path is the names from the root, joined by dots ("blocks.0.attn.wq"). It names the
 * module's generator, so random numbers do not depend on how the model is parallelised.
 *
 * A call opens a scope and keeps only its outputs.
 */
#ifndef SHERD_MODULE_H
#define SHERD_MODULE_H

#include "autograd.h"
#include "random.h"

SHERD_BEGIN

typedef struct sherd_module sherd_module;

enum { SHERD_MAX_ARGS = 8 };

/* Positional tensors first (name NULL), then keyword tensors. A plain value. */
typedef struct sherd_args {
    int count;
    sherd_tensor *value[SHERD_MAX_ARGS]; /* may be NULL */
    const char *name[SHERD_MAX_ARGS];
} sherd_args;

/**
 * The value of a keyword argument; NULL if there is none.
 *
 * @local   @owns borrowed from `args`   @errors none
 */
SHERD_API sherd_tensor *sherd_args_find(const sherd_args *args, const char *name);

/* What kind of layer a module is, so that styles know how to treat it. */
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

/*
 * Compute `out` (its count starts at 0) from `in`. Failures go through the world's alarm. NULL = a
 * container, which cannot be called.
 */
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
 * @owns   the caller destroys *out, unless it becomes a child; on failure *out is NULL and
 *         `payload` stays the caller's
 * @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_create(sherd_module **out, sherd_world *world,
                                            sherd_forward forward,
                                            const sherd_module_options *options);

/**
 * Destroy a root module with its children, parameters and hooks; a no-op for NULL or a child.
 *
 * @local
 * @errors EINVAL, by the alarm, during a call of it or of a module below it, while it is destroyed,
 *         and in a hook or an operator's backward while the backward may still need it: then
 *         nothing is destroyed
 */
SHERD_API void sherd_module_destroy(sherd_module *module);

/**
 * Add a child to a module.
 *
 * @local
 * @owns   the module takes `child`, also on failure (then it is destroyed, unless it has a parent
 *         or is the root of this tree); `child` NULL is ENOMEM, so that a failed create can be
 *         passed on
 * @errors EINVAL a name that is empty, contains a dot or is taken; `child` has a parent, is the
 *         root of this tree, or is of another world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add(sherd_module *module, const char *name,
                                         sherd_module *child);

/**
 * Add a parameter to a module: a leaf, which from now on requires a gradient (sherd_require_grad
 * can freeze it). A deferred one (sherd_random_later, sherd_constant_later) takes memory only when
 * it is placed or used.
 *
 * @local
 * @owns   the module retains `t`
 * @errors EINVAL a name that is empty, contains a dot or is taken; `t` has failed, is not a leaf,
 *         is not floating-point or is of another world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add_parameter(sherd_module *module, const char *name,
                                                   sherd_tensor *t);

/**
 * Replace a parameter by another tensor: a leaf, which requires a gradient from now on if the old
 * one does. An optimizer that exists keeps the old one.
 *
 * @local
 * @owns   the module retains `t` and releases the old one
 * @errors EINVAL no such parameter, `t` has failed, is not a leaf or is of another world, another
 *         shape or dtype, a plain `t` for one that is fully sharded (sherd_fully_shard)
 */
SHERD_CALL sherd_status sherd_module_set_parameter(sherd_module *module, const char *name,
                                                   sherd_tensor *t);

/**
 * Add a buffer to a module: a tensor of any dtype that is part of its state, but requires no
 * gradient and is not changed by optimizers (running statistics, tables that are computed once).
 * sherd_parallelize replicates it.
 *
 * @local
 * @owns   the module retains `t`
 * @errors EINVAL a name that is empty, contains a dot or is taken; `t` has failed, requires a
 *         gradient, is the result of a recorded operator or is of another world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add_buffer(sherd_module *module, const char *name,
                                                sherd_tensor *t);

/**
 * Replace a buffer by another tensor.
 *
 * @local
 * @owns   the module retains `t` and releases the old one
 * @errors EINVAL no such buffer, as sherd_module_add_buffer, another shape or dtype
 */
SHERD_CALL sherd_status sherd_module_set_buffer(sherd_module *module, const char *name,
                                                sherd_tensor *t);

/**
 * Call a module: pre-forward hooks, forward, forward hooks.
 *
 * @collective as its operators
 * @shapes     out: at least one output; after a failure every output is the failed tensor
 * @owns       outputs belong to the scope of the caller
 * @errors     those of its operators; EINVAL no output, a NULL among them, or a container without
 *             forward
 */
SHERD_API void sherd_module_run(sherd_module *module, const sherd_args *in, sherd_args *out);

/**
 * Call a module with one positional tensor; returns its first output.
 *
 * @collective as sherd_module_run   @owns scope   @errors as sherd_module_run
 */
SHERD_API sherd_tensor *sherd_module_call(sherd_module *module, sherd_tensor *x);

/** The world it was made on. @local @owns borrowed @errors none */
SHERD_API sherd_world *sherd_module_world(const sherd_module *module);
/** The payload given at creation. @local @owns borrowed from the module @errors none */
SHERD_API void *sherd_module_payload(const sherd_module *module);
/** The kind given at creation. @local @errors none */
SHERD_API sherd_module_kind sherd_module_kind_of(const sherd_module *module);

/**
 * The module's path; "" for a root.
 *
 * @local   @owns borrowed, until the module or one above it gets a parent   @errors none
 */
SHERD_API const char *sherd_module_path(const sherd_module *module);

/** How many direct children. @local @errors none */
SHERD_API int sherd_module_children(const sherd_module *module);
/** The i-th child; NULL if there is none. @local @owns borrowed from the module @errors none */
SHERD_API sherd_module *sherd_module_child(const sherd_module *module, int i);
/** The name of the i-th child; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API const char *sherd_module_child_name(const sherd_module *module, int i);

/**
 * The module at a dotted path below this one ("" is the module itself); NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API sherd_module *sherd_module_find(sherd_module *module, const char *path);

/** A parameter by name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API sherd_tensor *sherd_module_parameter(const sherd_module *module, const char *name);
/** How many parameters of its own, without those of children. @local @errors none */
SHERD_API int sherd_module_parameters(const sherd_module *module);

/**
 * The name of the i-th parameter of its own; NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API const char *sherd_module_parameter_name(const sherd_module *module, int i);

/** A buffer by name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API sherd_tensor *sherd_module_buffer(const sherd_module *module, const char *name);
/** How many buffers of its own, without those of children. @local @errors none */
SHERD_API int sherd_module_buffers(const sherd_module *module);

/**
 * The name of the i-th buffer of its own; NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API const char *sherd_module_buffer_name(const sherd_module *module, int i);

/**
 * Set training mode (the default) or evaluation mode, for this module and all below it. In
 * evaluation mode dropout does nothing.
 *
 * @local   @errors none
 */
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

/* ---- state ----------------------------------------------------------------------------------- */

/* One entry of a module's state. */
typedef struct sherd_named_state {
    const char *path; /* of its module, relative to the module that was asked; "" is that one */
    const char *name; /* in its module */
    sherd_tensor *tensor;
    bool buffer; /* true = a buffer, false = a parameter */
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
 * The dotted name of an entry, "blocks.0.attn.wq.weight", as sherd_module_load takes it.
 *
 * @local
 * @shapes out: char[room], truncated if too small, always zero-terminated; NULL only if room is 0
 * @errors none; returns the length of the whole name
 */
SHERD_API int sherd_state_name(const sherd_named_state *entry, char *out, size_t room);

/**
 * Set the values of a parameter or buffer to those of a tensor, which is moved to the layout of the
 * former. The parameter stays the same tensor, so optimizers and ties still hold. A plain tensor is
 * the whole value. A parameter that only some ranks had written before a check failed, and that has
 * failed since, is valid again.
 *
 * @collective the world, if `t` or anything of the module is distributed, or was on some ranks;
 *             otherwise local
 * @shapes     name: dotted, of any module below; root: the world rank whose plain tensor is used if
 *             the parameter is distributed (`t` may be NULL on the others), or -1: all ranks hold
 *             the same
 * @numerics   values are copied bit for bit
 * @owns       `t` is only read
 * @errors     EINVAL no such parameter or buffer, another shape or dtype, a plain tensor that
 *             varies without a root; EDIFFER; ENOMEM; EPEER. On failure the old values stay
 */
SHERD_CALL sherd_status sherd_module_load(sherd_module *module, const char *name, sherd_tensor *t,
                                          int root);

/**
 * Make plain parameters and buffers that may differ between ranks equal: all ranks of a mesh get
 * the values of one rank, in one round for all tensors. Those that are known to be equal are not
 * sent. For parameters that only one rank has read, or that each rank has drawn for itself; call it
 * before sherd_parallelize. With SHERD_VERIFY=1 all plain ones are then compared, including those
 * that were known to be equal.
 *
 * @collective the world; ranks outside the mesh only agree
 * @shapes     axis: the name of an axis: in each line of ranks along it, all get the parameters of
 *             the one at coordinate `rank`; or NULL: all ranks get those of the rank at position
 *             `rank` of the whole mesh
 * @numerics   values are copied bit for bit
 * @owns       the module keeps its tensors; they get new values
 * @errors     EINVAL no such axis or rank, a mesh of another world; EDIFFER also if names, dtypes
 *             or shapes differ, or if values that should be equal are not (SHERD_VERIFY=1); ENOMEM;
 *             EPEER
 */
SHERD_CALL sherd_status sherd_module_equalize(sherd_module *module, const sherd_mesh *mesh,
                                              const char *axis, int64_t rank);

/*
 * Hooks may inspect and replace positional and keyword tensors. A pre-forward hook gets the
 * arguments; a forward hook gets the arguments, as the pre-forward hooks left them, and the
 * outputs. They run in the order of registration; one registered with `prepend` runs before those
 * already there. All of them run in every call, even if an argument or the forward has failed: then
 * `out` may be empty or hold the failed tensor. A hook may add and remove hooks; one
 * of its own kind that it adds runs from the next call on.
 */
typedef void (*sherd_pre_hook)(sherd_module *self, sherd_args *in, void *payload);
typedef void (*sherd_hook)(sherd_module *self, const sherd_args *in, sherd_args *out,
                           void *payload);

typedef struct sherd_hook_options {
    bool prepend;
    void *payload;
    void (*destroy)(void *payload); /* called once, when the hook is removed; may be NULL */
} sherd_hook_options;

/**
 * Register a hook before the forward. *id (may be NULL) gets the number for sherd_module_unhook, 0
 * on failure.
 *
 * @local   @owns the module takes `payload`, also on failure: then it is destroyed   @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_hook_before(int *id, sherd_module *module, sherd_pre_hook hook,
                                                 const sherd_hook_options *options);

/**
 * Register a hook after the forward; otherwise as sherd_module_hook_before.
 *
 * @local   @owns as there   @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_hook_after(int *id, sherd_module *module, sherd_hook hook,
                                                const sherd_hook_options *options);

/** Remove a hook. @local @errors none; a no-op if there is no such hook */
SHERD_API void sherd_module_unhook(sherd_module *module, int id);

/**
 * Turn activation checkpointing of a module on or off. A checkpointed call saves only its arguments
 * for backward. When backward reaches it, the module is called again, with its hooks, to compute
 * what was not saved; this costs one more forward, with its communication. Gradients are the same,
 * bit for bit, and so are random numbers, whatever generators it uses. Modules inside it may be
 * checkpointed too. Hooks on saved tensors (sherd_input_reshard) that are in force when its forward
 * begins are applied to the arguments.
 *
 * The forward must depend on its arguments, parameters and generators alone. Otherwise backward
 * fails with EINVAL where that can be detected: other operators run than the first time, a
 * parameter, a buffer or another tensor that gradients depend on was written since, or the module
 * no longer exists. What the forward itself writes before it reads it may be written. A forward or
 * hook that counts its calls can ask sherd_is_recomputing. A forward that asks for gradients of
 * what it has computed (sherd_gradients) cannot be checkpointed: EINVAL. A parameter that is frozen
 * in between gets no gradient, as without a checkpoint; one that is made to want one: EINVAL.
 *
 * @local   @errors none
 */
SHERD_API void sherd_module_checkpoint(sherd_module *module, bool on);

/** Whether its calls are checkpointed. @local @errors none */
SHERD_API bool sherd_module_is_checkpointed(const sherd_module *module);

SHERD_END

#endif
