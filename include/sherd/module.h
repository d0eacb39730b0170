/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules: a forward function with named parameters, buffers and children, and hooks around it. The
 * *path* of a module is the names from the root to it, joined by dots ("blocks.0.attn.wq"). It
 * names the module's random generator, so random numbers do not depend on how the model is
 * parallelised. layers.h has ready-made modules; examples/gpt builds a model of them.
 *
 * A call of a module opens a scope (tensor.h), at whose end only the outputs are kept.
 *
 *     sherd_module *block; // `scale` is the forward shown at sherd_forward below
 *     if (sherd_module_create(&block, world, scale, NULL) ||
 *         sherd_module_add_parameter(block, "gain", w) || sherd_module_add(model, "block", block))
 *         return 1;
 *     y = sherd_module_call(block, x);
 */
#ifndef SHERD_MODULE_H
#define SHERD_MODULE_H

#include "autograd.h"
#include "random.h"

SHERD_BEGIN

typedef struct sherd_module sherd_module;

enum { SHERD_MAX_ARGS = 8 };

/* Arguments or outputs: positional tensors (name NULL), then keyword tensors. A plain value. */
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

/* What kind of layer a module is, so that styles (parallel.h) know how to treat it. */
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
 * A forward: computes the outputs from the arguments, and appends them to `out`, whose count is 0
 * at first. It reports failures by the world's alarm (sherd_world_fail). A module whose forward is
 * NULL is a container, which cannot be called.
 *
 *     y = sherd_mul(in->value[0], sherd_module_parameter(self, "gain"));
 *     out->value[out->count++] = y;
 */
typedef void (*sherd_forward)(sherd_module *self, const sherd_args *in, sherd_args *out);

typedef struct sherd_module_options {
    sherd_module_kind kind;
    void *payload;                  /* data of the forward, for sherd_module_payload */
    void (*destroy)(void *payload); /* called once, when the module is destroyed; may be NULL */
} sherd_module_options;

/**
 * Make a module.
 *
 * @local
 * @shapes options: NULL = all zero
 * @owns   the caller destroys *out, unless it becomes a child; on failure *out is NULL, and
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
 * @errors EINVAL, by the alarm, and nothing is destroyed: while it or a module below it is being
 *         called or destroyed; in a hook on a gradient, or an operator's backward, if that backward
 *         may still need the module
 */
SHERD_API void sherd_module_destroy(sherd_module *module);

/**
 * Add a child to a module.
 *
 * @local
 * @owns   the module owns `child`; on failure `child` is destroyed, unless it has a parent or is
 *         the root of this tree. `child` may be NULL, the result of a failed create: then ENOMEM is
 *         returned
 * @errors EINVAL a name that is empty, contains a dot or is taken; `child` has a parent, is the
 *         root of this tree, or is of another world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add(sherd_module *module, const char *name,
                                         sherd_module *child);

/**
 * Take a child out of its parent: it becomes a root of its own, whose paths and generators begin
 * anew, with its parameters, layouts, styles and hooks. Optimizers that were made before keep its
 * parameters, but no longer list their state. Tied parameters stay tied.
 *
 * @local  all ranks must do the same
 * @shapes out: gets the child; NULL = it is destroyed
 * @owns   the caller destroys *out or adds it to a module; on failure *out is NULL and the child
 *         stays where it is
 * @errors EINVAL no child of this name; `module` is a layer that needs its children (replace them);
 *         the child, a module below it or one above it is being called or destroyed, or one above
 *         it is a unit of sherd_fully_shard, whose parameters are gathered together; *out is wanted
 *         and backward may still run the child again (sherd_module_checkpoint); it would be
 *         destroyed in a backward that may still need it; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_remove(sherd_module **out, sherd_module *module,
                                            const char *name);

/**
 * Put another module in the place of a child, under its name: a new head, or an adapter around the
 * old child, which can then be added to it.
 *
 *     sherd_module *adapter, *old;
 *     if (sherd_module_create(&adapter, world, scale, NULL) ||
 *         sherd_module_replace(&old, model, "head", adapter) ||
 *         sherd_module_add(adapter, "base", old))
 *         return 1;
 *
 * The old child becomes a root, as in sherd_module_remove. The new one brings its own layouts,
 * styles and hooks: those of the old one stay with that, so make the new one parallel
 * (sherd_parallelize; sherd_fully_shard, with options.skip_sharded if what is around is sharded).
 * Optimizers that were made before do not have its parameters: make them afterwards.
 *
 * @local  all ranks must do the same
 * @shapes out: gets the old child; NULL = it is destroyed
 * @owns   the module owns `child`, also on failure, as in sherd_module_add; the caller destroys
 *         *out or adds it to a module, NULL on failure
 * @errors EINVAL `child` as in sherd_module_add, the old one as in sherd_module_remove, but that of
 *         a layer can be replaced; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_replace(sherd_module **out, sherd_module *module,
                                             const char *name, sherd_module *child);

/**
 * Add a parameter to a module: a leaf (autograd.h), which requires a gradient from now on; to
 * freeze it, call sherd_require_grad afterwards. A deferred tensor (sherd_random_later,
 * sherd_constant_later) takes memory only when it is placed on a mesh or used.
 *
 * @local
 * @owns   the module retains `t`
 * @errors EINVAL a name that is empty, contains a dot or is taken; `t` has failed, is not a leaf,
 *         is not floating-point or is of another world; ENOMEM
 */
SHERD_CALL sherd_status sherd_module_add_parameter(sherd_module *module, const char *name,
                                                   sherd_tensor *t);

/**
 * Replace a parameter by another leaf, which requires a gradient from now on if the old one does.
 * Existing optimizers keep updating the old tensor.
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
 * gradient and is not changed by optimizers, such as running averages or tables. sherd_parallelize
 * replicates it.
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
 * @errors EINVAL no such buffer, another shape or dtype; otherwise as sherd_module_add_buffer
 */
SHERD_CALL sherd_status sherd_module_set_buffer(sherd_module *module, const char *name,
                                                sherd_tensor *t);

/**
 * Call a module: pre-forward hooks, forward, forward hooks.
 *
 * @collective as its operators
 * @shapes     in: the arguments; out: gets at least one output; after a failure every output is the
 *             failed tensor
 * @owns       outputs belong to the scope of the caller
 * @errors     those of its operators; EINVAL a container, no output, or one that is NULL; ELIMIT
 *             1000 functions of the program are running, each called by the one before; all by the
 *             alarm
 */
SHERD_API void sherd_module_run(sherd_module *module, const sherd_args *in, sherd_args *out);

/**
 * Call a module with one positional tensor; returns its first output.
 *
 * @collective as sherd_module_run   @owns scope   @errors as sherd_module_run
 */
SHERD_API sherd_tensor *sherd_module_call(sherd_module *module, sherd_tensor *x);

/** The world of a module. @local @owns borrowed @errors none */
SHERD_API sherd_world *sherd_module_world(const sherd_module *module);
/** The payload, as given at creation or since. @local @owns borrowed from it @errors none */
SHERD_API void *sherd_module_payload(const sherd_module *module);

/**
 * Give a module another payload. The one before is destroyed, as its `destroy` says, unless it is
 * the same pointer. A checkpointed module that backward runs again gets the new one.
 *
 * @local
 * @shapes destroy: called once with `payload`, when the module is destroyed or gets another one;
 *         NULL = nothing to free
 * @owns   the module owns `payload`; on failure it stays the caller's
 * @errors EINVAL `module` is NULL, is being called, or is a layer that has a payload of its own
 */
SHERD_CALL sherd_status sherd_module_set_payload(sherd_module *module, void *payload,
                                                 void (*destroy)(void *payload));
/** The kind given at creation. @local @errors none */
SHERD_API sherd_module_kind sherd_module_kind_of(const sherd_module *module);

/**
 * The module's path; "" for a root.
 *
 * @local   @errors none
 * @owns    borrowed; valid until the module, or one above it, gets a parent or loses it
 */
SHERD_API const char *sherd_module_path(const sherd_module *module);

/** How many children a module has, without theirs. @local @errors none */
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
/** How many parameters a module has, without those of children. @local @errors none */
SHERD_API int sherd_module_parameters(const sherd_module *module);

/**
 * The name of the module's i-th parameter; NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API const char *sherd_module_parameter_name(const sherd_module *module, int i);

/** A buffer by name; NULL if there is none. @local @owns borrowed @errors none */
SHERD_API sherd_tensor *sherd_module_buffer(const sherd_module *module, const char *name);
/** How many buffers a module has, without those of children. @local @errors none */
SHERD_API int sherd_module_buffers(const sherd_module *module);

/**
 * The name of the module's i-th buffer; NULL if there is none.
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

/** Whether a module is in training mode. @local @errors none */
SHERD_API bool sherd_module_is_training(const sherd_module *module);

/**
 * The module's own generator, named by its path. If a sherd_world_check fails, it is put back to
 * where it stood at the last good one, and what was drawn since is drawn again.
 *
 * @local   @owns borrowed from the module   @errors none
 */
SHERD_API sherd_generator *sherd_module_generator(sherd_module *module);

/* A parameter, as sherd_module_all_parameters lists it. */
typedef struct sherd_named_parameter {
    const char *path; /* of its module; "" for a root */
    const char *name; /* in its module */
    sherd_tensor *tensor;
} sherd_named_parameter;

/**
 * All parameters of a module and its children, depth first, each tensor once.
 *
 * @local
 * @shapes out: gets at most `room` entries; NULL = only count
 * @owns   entries are borrowed from the modules
 * @errors none; returns how many there are, even if `room` is smaller
 */
SHERD_API int sherd_module_all_parameters(const sherd_module *module, sherd_named_parameter *out,
                                          int room);

/**
 * Freeze (`wanted` false) or thaw the parameters whose path below the module matches a pattern, by
 * sherd_require_grad; returns how many match, each tensor once. A parameter that has several names
 * (tied weights) matches by any of them.
 *
 *     if (sherd_module_require_grad(model, "**", false) == 0 ||
 *         sherd_module_require_grad(model, "layers.*.attention.**", true) == 0)
 *         return 1; // a pattern that matches nothing
 *
 * A frozen parameter gets no gradient, not even from a loss that was computed before. A gradient
 * that it already has stays, and a step uses it: sherd_optimizer_clear drops it. Optimizers leave
 * the parameter, and what state they have for it, as they are; if it is thawed, the state goes on
 * from there. In a pipeline, a tied parameter must be frozen or thawed in both stages
 * (sherd_pipeline_tie).
 *
 * @local   all ranks that have the parameters must do the same; ranks whose module has other
 *          parameters, as in a pipeline, may count others
 * @shapes  pattern: as that of sherd_optimizer_group
 * @errors  EINVAL `pattern` is NULL, or a parameter that is gathered at the moment, because its
 *          module, which is fully sharded, is being called; ENOMEM; by the alarm. Returns 0 then,
 *          and if `module` is NULL
 */
SHERD_CALL int sherd_module_require_grad(sherd_module *module, const char *pattern, bool wanted);

/**
 * Cast the parameters and the floating-point buffers of a module, and of all below it, to another
 * dtype (PyTorch's module.to(dtype)). Running averages of batch and instance norms become f32 for a
 * 16-bit dtype. Tied parameters stay tied, in the whole tree; shards are cast where they are, and
 * what is frozen or deferred stays so. A deferred parameter is drawn in the new dtype: in 16 bits
 * the rounded numbers of f32; in f64 with more digits than f32 has. Attention's mask and what
 * payloads hold stays as it is.
 *
 * The parameters become other tensors. So cast before optimizers are made, and before a pipeline
 * ties them: a step, or a run, with an old one is refused (EINVAL). Hooks on gradients stay with
 * the old ones.
 *
 * @collective the world, if any tensor of the module is or was distributed on any rank;
 *             otherwise local
 * @shapes     dtype: f32, f64, bf16 or f16
 * @numerics   rounded to nearest, ties to even
 * @errors     EINVAL `module` is NULL, a dtype without fractions, a tensor that has a gradient or
 *             was lost, the module or one below or above it is being called, or backward may run it
 *             again (checkpointing); EDIFFER; ENOMEM, EPEER: then only some tensors are cast
 */
SHERD_CALL sherd_status sherd_module_cast(sherd_module *module, sherd_dtype dtype);

/* ---- state ----------------------------------------------------------------------------------- */

/* One entry of a module's state. */
typedef struct sherd_named_state {
    const char *path; /* of its module, from the module that was asked; "" is that module */
    const char *name; /* in its module */
    sherd_tensor *tensor;
    bool buffer; /* true = a buffer, false = a parameter */
} sherd_named_state;

/**
 * All parameters and buffers of a module and its children, depth first, each tensor once.
 *
 * @local
 * @shapes out: gets at most `room` entries; NULL = only count
 * @owns   entries are borrowed from the modules
 * @errors none; returns how many there are, even if `room` is smaller
 */
SHERD_API int sherd_module_state(const sherd_module *module, sherd_named_state *out, int room);

/**
 * The dotted name of an entry, "blocks.0.attn.wq.weight", as sherd_module_load takes it.
 *
 * @local
 * @shapes out: gets the text, truncated to `room` bytes with the terminating zero; NULL only if
 *         room is 0
 * @errors none; returns the length of the whole name, without the terminating zero
 */
SHERD_API int sherd_state_name(const sherd_named_state *entry, char *out, size_t room);

/**
 * Set the values of a parameter or buffer to those of another tensor. If the parameter is
 * distributed, `t` may have any layout, which is moved to the parameter's, or be plain, with all
 * values. The parameter stays the same tensor, so optimizers and ties still hold. One that was lost
 * in a failed step (sherd_tensor_failed) is valid again. The root may be outside the parameter's
 * mesh; the plain parameters of ranks outside get the `t` that they pass, or stay.
 *
 * @collective the world, if `t`, or any tensor of the module, is or was distributed on any rank;
 *             otherwise local
 * @shapes     name: as sherd_state_name writes it; root: the world rank whose plain `t` is used, if
 *             the parameter is distributed (`t` may be NULL on other ranks); -1 = `t` is equal on
 *             all ranks
 * @numerics   values are copied bit for bit
 * @owns       `t` is only read
 * @errors     EINVAL no such parameter or buffer, another shape or dtype, no such root, root -1 and
 *             a plain `t` that varies (sherd_mark_equal); EDIFFER; ENOMEM; EPEER. On failure the
 *             old values stay
 */
SHERD_CALL sherd_status sherd_module_load(sherd_module *module, const char *name, sherd_tensor *t,
                                          int root);

/**
 * Make plain parameters and buffers equal on all ranks of a mesh: they get the values of one rank,
 * in one round for all tensors. For parameters that only one rank has read from a file, or that
 * each rank has drawn for itself; call it before sherd_parallelize. Tensors that are known to be
 * equal (they do not vary) are not sent; with SHERD_VERIFY=1 they are compared.
 *
 * Distributed tensors, as all are after sherd_parallelize or sherd_fully_shard, stay as they are:
 * ranks that their layout gives the same elements have the same, which each check compares with
 * SHERD_VERIFY=1. To spread what one rank has read to sharded parameters use sherd_module_load.
 *
 * @collective the world, with ranks outside the mesh, on which nothing changes
 * @shapes     axis, rank: each group of ranks that differ only on the named axis gets the values of
 *             its rank at coordinate `rank`; axis NULL: all ranks get those of the rank at
 *             row-major position `rank` of the mesh
 * @numerics   values are copied bit for bit
 * @owns       the module keeps its tensors; they get new values
 * @errors     EINVAL no such axis or rank, a mesh of another world; EDIFFER also if names, dtypes
 *             or shapes differ, or if values that should be equal are not (SHERD_VERIFY=1); ENOMEM;
 *             EPEER
 */
SHERD_CALL sherd_status sherd_module_equalize(sherd_module *module, const sherd_mesh *mesh,
                                              const char *axis, int64_t rank);

/*
 * Hooks on the calls of a module may look at tensors and replace them. A pre-forward hook gets the
 * arguments; a forward hook gets the arguments, as the pre-forward hooks have left them, and the
 * outputs. They run in the order of registration, those registered with `prepend` before the ones
 * already there. All of them run in every call, even if an argument or the forward has failed: then
 * `out` may be empty or hold the failed tensor. A hook may add and remove hooks; one of its own
 * kind that it adds runs from the next call on.
 */
typedef void (*sherd_pre_hook)(sherd_module *self, sherd_args *in, void *payload);
typedef void (*sherd_hook)(sherd_module *self, const sherd_args *in, sherd_args *out,
                           void *payload);

typedef struct sherd_hook_options {
    bool prepend; /* run before the hooks that are already there */
    void *payload;
    void (*destroy)(void *payload); /* called once, when the hook is removed; may be NULL */
} sherd_hook_options;

/**
 * Register a hook that runs before the forward. *id gets its number for sherd_module_unhook, 0 on
 * failure; `id` may be NULL.
 *
 * @local   @owns the module owns `payload`; on failure it is destroyed   @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_hook_before(int *id, sherd_module *module, sherd_pre_hook hook,
                                                 const sherd_hook_options *options);

/**
 * Register a hook that runs after the forward; otherwise as sherd_module_hook_before.
 *
 * @local   @owns as there   @errors ENOMEM
 */
SHERD_CALL sherd_status sherd_module_hook_after(int *id, sherd_module *module, sherd_hook hook,
                                                const sherd_hook_options *options);

/** Remove a hook. @local @errors none; a no-op if there is no such hook */
SHERD_API void sherd_module_unhook(sherd_module *module, int id);

SHERD_END

#endif
