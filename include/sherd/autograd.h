/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Automatic differentiation. Operators on tensors that require gradients are recorded on the
 * *tape*; sherd_backward walks it. The backward of an operator is made of operators, so gradients
 * have layouts. Before a gradient enters the backward of the operator that produced its tensor, its
 * pending sums are settled, once, after the gradients of all uses have been added. The gradient of
 * a leaf stays pending until it is used, unless that takes more memory than the leaf: then it is
 * settled as soon as it arrives.
 *
 * Backward itself is recorded only if sherd_gradients is asked to (create_graph).
 */
#ifndef SHERD_AUTOGRAD_H
#define SHERD_AUTOGRAD_H

#include "tensor.h"

SHERD_BEGIN

/**
 * Set whether a leaf requires a gradient. Returns the tensor. One that no longer does gets none,
 * also from what has been computed with it before.
 *
 * @local
 * @owns   `t` itself, in its own scope
 * @errors EINVAL the result of a recorded operator, or a dtype that is not floating-point
 */
SHERD_API sherd_tensor *sherd_require_grad(sherd_tensor *t, bool wanted);

/** Whether gradients flow into this tensor. @local @errors none */
SHERD_API bool sherd_requires_grad(const sherd_tensor *t);

/** Turn recording on this world on or off; returns the previous setting. @local @errors none */
SHERD_API bool sherd_set_recording(sherd_world *world, bool on);

/**
 * Add d(loss)/d(leaf) to the gradient of every leaf that `loss` depends on. What the tape has saved
 * is released on the way, so a second backward through the same part is an error
 * (sherd_backward_with can retain it). After a failure the gradients of leaves may be incomplete:
 * clear them.
 *
 * @collective the meshes of all tensors that gradients pass through
 * @errors     EINVAL `loss` does not have exactly one element, depends on no leaf that requires a
 *             gradient, or a saved tensor was written since; EDIFFER; ENOMEM; EPEER; all by the
 *             alarm
 */
SHERD_API void sherd_backward(sherd_tensor *loss);

typedef struct sherd_backward_options {
    /* keep what the tape has saved, so that another backward can run through it */
    bool retain;
    /* replace the gradients of the leaves that the outputs depend on, instead of adding to them */
    bool replace;
} sherd_backward_options;

/**
 * Backward from several outputs at once, with given gradients: each leaf gets the sum over all
 * outputs of gradient times d(output)/d(leaf).
 *
 * A gradient may have another layout than its output, and may be a pending sum; it is moved or
 * settled when an operator needs that. A plain gradient of a distributed output must not vary; that
 * of a plain output is plain.
 *
 * @collective the meshes of all tensors that gradients pass through
 * @shapes     outputs: [count], of any shape, 0 or less = nothing to do; gradients: [count], of the
 *             outputs' shapes and dtypes; `gradients` or an entry of it may be NULL for outputs of
 *             one element: their gradient is 1; options: NULL = all zero
 * @owns       gradients are only read, and may be written anew right after: a gradient that would
 *             share its storage with one of them is kept as a copy
 * @errors     EINVAL an output that depends on no leaf that requires a gradient, an output of other
 *             than one element without a gradient, a gradient that does not fit or varies, a saved
 *             tensor that was written since, a part of the graph that has run and was not retained,
 *             or that a backward is running through now (when called from a hook); EDIFFER; ENOMEM;
 *             EPEER; all by the alarm
 */
SHERD_API void sherd_backward_with(sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                                   int count, const sherd_backward_options *options);

typedef struct sherd_gradients_options {
    sherd_tensor *const *gradients; /* of the outputs, as in sherd_backward_with */
    bool retain;                    /* as in sherd_backward_options */
    /* out[i] is NULL for an input that no output depends on; otherwise such an input is an error */
    bool unused;
    /*
     * Record how the gradients are computed, whether recording is on or not: so they require
     * gradients themselves, where they depend on something that does. Implies `retain`.
     */
    bool create_graph;
} sherd_gradients_options;

/**
 * Gradients of the given tensors, leaves or not, each in its input's own layout
 * (torch.autograd.grad). The stored gradients of leaves do not change, and only what leads to an
 * input is computed. Hooks on the tensors passed run.
 *
 * With `create_graph` the results can be differentiated again, to any order: a gradient penalty, a
 * Hessian times a vector, a differential equation in a loss. All operators take part, but for
 * sherd_neighbourhood_attention and attention with dropout (a second backward that reaches one of
 * these is an error: detach its result, or drop nothing), and user-defined ones whose backward is
 * made of recorded operators. Norms, softmax, attention and cross-entropy are then differentiated
 * by their formulas, which need more memory: attention keeps all scores. Hooks are recorded, too.
 *
 * @collective the meshes of all tensors that gradients pass through
 * @shapes     out, inputs: [n], two different arrays; outputs: [count]; 0 or less of either =
 *             nothing to do; options: NULL = all zero
 * @owns       results belong to the scope; they may share their storage with each other and with
 *             the gradients passed, so they are not for writing in place (sherd_clone)
 * @errors     EINVAL as sherd_backward_with, an input that requires no gradient, or one that no
 *             output depends on; with create_graph a plain gradient of a distributed output that
 *             requires a gradient itself; EDIFFER; ENOMEM; EPEER; all by the alarm, and then each
 *             out[i] is the failed tensor
 */
SHERD_API void sherd_gradients(sherd_tensor **out, sherd_tensor *const *inputs, int n,
                               sherd_tensor *const *outputs, int count,
                               const sherd_gradients_options *options);

/**
 * The gradient of a leaf, or of a tensor passed to sherd_retain_grad, in the tensor's own layout;
 * pending sums are settled here. NULL if there is none. It may be written in place: no gradient of
 * another tensor changes with it.
 *
 * @collective the tensor's mesh, if its gradient is not settled yet
 * @owns       borrowed from the tensor, until the next backward, clear or optimizer step. The first
 *             call copies one that shares its storage with others, or that is a stretched view
 * @errors     EDIFFER; ENOMEM; EPEER; then the failed tensor is returned
 */
SHERD_API sherd_tensor *sherd_grad(sherd_tensor *t);

/** Drop the gradient of a tensor. @local @errors none */
SHERD_API void sherd_clear_grad(sherd_tensor *t);

/**
 * Make backward keep the gradient of a tensor that is not a leaf, for sherd_grad; it accumulates,
 * as with leaves. Returns the tensor.
 *
 * @local
 * @owns   `t` itself, in its own scope; its gradient lives as long as the record of the operator
 *         that produced it
 * @errors EINVAL `t` does not require a gradient; ENOMEM
 */
SHERD_API sherd_tensor *sherd_retain_grad(sherd_tensor *t);

/*
 * A hook on the gradient of a tensor. It runs once in each backward that reaches the tensor, after
 * the gradients of all uses have been added, and gets the gradient in the tensor's own layout with
 * nothing pending; so what it computes is right under any layout. It may return another gradient of
 * the same shape and dtype, which replaces the first, or NULL to leave it as it is. It does not
 * write its argument in place: other gradients may share the storage. Tensors made in a hook are
 * not recorded (but for create_graph) and belong to a scope of the hook's call. All ranks call it
 * at the same point of backward, so it may communicate. A hook that it adds runs in later ones.
 */
typedef sherd_tensor *(*sherd_grad_hook)(sherd_tensor *grad, void *payload);

/**
 * Register a hook that sees, and may replace, the gradient of a tensor, leaf or not. Hooks run in
 * the order of registration. A hook on a leaf gets the gradient of this backward, before it is
 * added to the stored one.
 *
 * @local
 * @shapes id: gets the number for sherd_tensor_unhook, 0 on failure; may be NULL; destroy: called
 *         once, when the hook is removed; may be NULL
 * @owns   the tensor takes `payload`, also on failure: then it is destroyed. On a tensor that is
 *         not a leaf, a hook lives as long as the record of the operator that produced it
 * @errors EINVAL `t` does not require a gradient, or has failed; ENOMEM
 */
SHERD_CALL sherd_status sherd_tensor_hook(int *id, sherd_tensor *t, sherd_grad_hook hook,
                                          void *payload, void (*destroy)(void *payload));

/** Remove a hook. @local @errors none; a no-op if there is no such hook */
SHERD_API void sherd_tensor_unhook(sherd_tensor *t, int id);

/*
 * A function to check: it computes one f64 tensor of any shape from `inputs`. It is called many
 * times and must return the same each time.
 */
typedef sherd_tensor *(*sherd_differentiable)(sherd_tensor *const *inputs, int count,
                                              void *payload);

typedef struct sherd_check_options {
    double step;               /* of the differences; 0 = 1e-6 */
    double absolute, relative; /* tolerated errors; 0 = 1e-7 and 1e-5 */
    void *payload;             /* for the function */
} sherd_check_options;

/**
 * Compare the gradients of a function with central differences: two calls for each element of each
 * input that requires a gradient, so it is for small tensors. It ends with a check of the world.
 *
 * The function gets copies of those inputs, in their layouts. A result with a pending sum counts as
 * that sum; of an input with a pending sum or average the first addend is changed. A plain input is
 * changed on all ranks at once; if sherd_from_local makes addends of it, it is found wrong.
 *
 * @collective the world
 * @shapes     inputs: [count], 1 to 32 of them; options: NULL = all zero
 * @numerics   differences of a weighted sum of the result's elements, with weights in [0.5, 1.5)
 * @owns       inputs are only read; their gradients do not change
 * @errors     EINVAL the first element that is wrong, with both values; an input or a result that
 *             is not f64, an input that the result does not depend on, no inputs; ELIMIT too many
 *             inputs; errors of the function; as sherd_world_check
 */
SHERD_CALL sherd_status sherd_check_gradients(sherd_differentiable function,
                                              sherd_tensor *const *inputs, int count,
                                              const sherd_check_options *options);

/*
 * Hooks on the tensors that operators save for backward. `pack` gets such a tensor and returns what
 * to keep instead (or the tensor itself); it may set *undo. `unpack` gets what was kept, and the
 * value of *undo, and returns a tensor equal to the original. Neither is recorded.
 */
typedef struct sherd_saved_hooks {
    sherd_tensor *(*pack)(sherd_tensor *t, void *context, const void **undo);
    sherd_tensor *(*unpack)(sherd_tensor *kept, void *context, const void *undo);
    void *context;
} sherd_saved_hooks;

/**
 * Apply these hooks to every tensor that is saved from now on. A tensor saved by several operators
 * is packed once. Hooks pushed later replace earlier ones until they are popped.
 *
 * @local
 * @shapes hooks: with pack NULL, tensors are kept as they are
 * @owns   copied; `context` and what `undo` points to must live as long as any tensor packed with
 *         them
 * @errors EINVAL hooks NULL, or pack without unpack: then tensors are kept as they are until the
 *         pop; ENOMEM; by the alarm
 */
SHERD_API void sherd_saved_hooks_push(sherd_world *world, const sherd_saved_hooks *hooks);

/** Remove the hooks that were pushed last. @local @errors none; a no-op if there are none */
SHERD_API void sherd_saved_hooks_pop(sherd_world *world);

/**
 * Bytes of tensor storage that the tape holds for backward on this rank. Each storage counts once;
 * leaves do not count.
 *
 * @local   @errors none
 */
SHERD_API int64_t sherd_saved_bytes(const sherd_world *world);

/**
 * Whether this is a forward that backward runs again (sherd_module_checkpoint).
 *
 * @local   @errors none
 */
SHERD_API bool sherd_is_recomputing(const sherd_world *world);

SHERD_END

#endif
