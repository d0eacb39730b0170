/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape. Operators on tensors that require gradients are recorded; sherd_backward walks the record.
 * The backward of an operator is made of operators, so gradients have layouts. Before a gradient enters
 * the backward of the operator that made its tensor, its pending sums are settled (once, however many
 * uses were added up). A leaf's gradient stays as it came until somebody uses it, unless it takes more memory
 * than the leaf: then it is settled as it comes.
 *
 * Backward itself is not recorded: there are no gradients of gradients (PyTorch's create_graph).
 */
#ifndef SHERD_AUTOGRAD_H
#define SHERD_AUTOGRAD_H

#include "tensor.h"

SHERD_BEGIN

/**
 * Say whether a leaf wants a gradient. Returns the tensor.
 *
 * @local
 * @owns   `t` itself, which stays where it belongs
 * @errors EINVAL the result of a recorded operator, or a dtype without fractions
 */
SHERD_API sherd_tensor *sherd_require_grad(sherd_tensor *t, bool wanted);

/** Whether gradients flow into this tensor. @local @errors none */
SHERD_API bool sherd_requires_grad(const sherd_tensor *t);

/**
 * Stop or go on recording on this world; returns what was before.
 *
 * @local   @errors none
 */
SHERD_API bool sherd_set_recording(sherd_world *world, bool on);

/**
 * Add d(loss)/d(leaf) to the gradient of every leaf that `loss` depends on. What the tape held for it is
 * released on the way; a second backward through the same part is an error (sherd_backward_with retains it). After a failure gradients of
 * leaves may be incomplete: clear them.
 *
 * @collective the meshes of the tensors on the way
 * @errors     EINVAL `loss` has not one element, or depends on no leaf that wants a gradient, or a saved tensor was
 *             written since; EDIFFER; ENOMEM; EPEER; all by the alarm
 */
SHERD_API void sherd_backward(sherd_tensor *loss);

typedef struct sherd_backward_options {
    /* keep what the tape saved, so that backward may go through it again; what the last one saved goes without this */
    bool retain;
    /* gradients of leaves that an output depends on are cleared first; else what comes is added to them */
    bool replace;
} sherd_backward_options;

/**
 * Backward from several outputs at once, with gradients that are given: each leaf gets the sum over all outputs of gradient times
 * d(output)/d(leaf).
 *
 * A gradient may lie in another layout than its output and may be a pending sum; it is moved as the tape moves gradients, where
 * an operator needs it settled. A plain gradient of a distributed output must not vary.
 *
 * @collective the meshes of the tensors on the way
 * @shapes     outputs: [count], of any shape, 0 or less = nothing to do; gradients: [count], of the outputs' shapes and dtypes; NULL, all or one of them: one,
 *             for an output of one element; options: NULL = all zero
 * @owns       gradients are only read, but those of leaves may share their storage
 * @errors     EINVAL an output that depends on no leaf that wants a gradient, or has not one element and no gradient, a
 *             gradient that does not fit or varies, a saved tensor was written since, a part that has run and was not
 *             retained, or is in a backward under way (called in a hook); EDIFFER; ENOMEM; EPEER; all by the alarm
 */
SHERD_API void sherd_backward_with(sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                                   int count, const sherd_backward_options *options);

typedef struct sherd_gradients_options {
    sherd_tensor *const *gradients; /* of the outputs, as in sherd_backward_with */
    bool retain;                    /* as there */
    bool
        unused; /* an input on which no output depends has no gradient: NULL; else that is an error */
} sherd_gradients_options;

/**
 * Gradients of given tensors, leaves or not, each in its input's own layout. No leaf's gradient changes, and what does not
 * lead to an input is not computed. Hooks on tensors on the way run.
 *
 * @collective the meshes of the tensors on the way
 * @shapes     out, inputs: [n], two arrays; outputs: [count]; 0 or less of either = nothing to do; options: NULL = all zero
 * @owns       results belong to the scope
 * @errors     EINVAL as sherd_backward_with, an input that wants no gradient, or one on which no output depends; EDIFFER; ENOMEM;
 *             EPEER; all by the alarm, and then each out[i] is the failed tensor
 */
SHERD_API void sherd_gradients(sherd_tensor **out, sherd_tensor *const *inputs, int n,
                               sherd_tensor *const *outputs, int count,
                               const sherd_gradients_options *options);

/**
 * The gradient of a leaf, or of what sherd_retain_grad was said of, in the tensor's own layout: what was pending is settled
 * here. NULL if there is none.
 *
 * @collective the tensor's mesh, if its gradient is not yet settled
 * @owns       borrowed from the tensor, until the next backward, clear or optimizer step
 * @errors     EDIFFER; ENOMEM; EPEER; the failed tensor is returned
 */
SHERD_API sherd_tensor *sherd_grad(sherd_tensor *t);

/** Forget the gradient of a tensor. @local @errors none */
SHERD_API void sherd_clear_grad(sherd_tensor *t);

/**
 * Let backward keep the gradient of what is no leaf, for sherd_grad; as with leaves it adds up. Returns the tensor.
 *
 * @local
 * @owns   `t` itself, which stays where it belongs; its gradient lives as long as the record of the operator that made it
 * @errors EINVAL no gradient flows into it; ENOMEM
 */
SHERD_API sherd_tensor *sherd_retain_grad(sherd_tensor *t);

/*
 * A hook on the gradient of a tensor. It runs in each backward that reaches the tensor, once, when all uses have
 * been added up, and sees the gradient in the tensor's own layout with nothing pending: what it computes is right under any
 * layout. It may return another one, of this shape and dtype, which then takes its place; NULL: it stays. What is
 * made in it is not recorded and goes with it. All ranks call it at the same point of backward, so it may communicate.
 */
typedef sherd_tensor *(*sherd_grad_hook)(sherd_tensor *grad, void *payload);

/**
 * Let a hook see, and replace, the gradient of a tensor, a leaf or not. Hooks run in the order of registration. What a hook on a
 * leaf sees is the gradient of this backward, before it is added to what is there.
 *
 * @local
 * @shapes id: names it for removal, 0 on failure; may be NULL. destroy: called once with the removal; may be NULL
 * @owns   `payload` is the tensor's from here on, also on failure: then it is destroyed. On what is no leaf a hook lives as long as
 *         the record of the operator that made it
 * @errors EINVAL no gradient flows into `t`, or it has failed; ENOMEM
 */
SHERD_CALL sherd_status sherd_tensor_hook(int *id, sherd_tensor *t, sherd_grad_hook hook,
                                          void *payload, void (*destroy)(void *payload));

/** Remove a hook. @local @errors none; a no-op if there is no such hook */
SHERD_API void sherd_tensor_unhook(sherd_tensor *t, int id);

/* A function to check: one f64 tensor of any shape, made of `inputs`. It is called often, and must compute the same each time. */
typedef sherd_tensor *(*sherd_differentiable)(sherd_tensor *const *inputs, int count,
                                              void *payload);

typedef struct sherd_check_options {
    double step;               /* of the differences; 0 = 1e-6 */
    double absolute, relative; /* they may be so far from what backward says; 0 = 1e-7, 1e-5 */
    void *payload;             /* for the function */
} sherd_check_options;

/**
 * Compare what backward says of a function with central differences, for each element of each input that wants a gradient. Two calls
 * of the function an element: for small tensors. Ends with a check of the world, so that all ranks get the same answer.
 *
 * The function gets copies of those inputs, in their layouts. A result with a pending sum counts as its sum, and
 * an input with one is changed in its first addend.
 *
 * @collective the world
 * @shapes     inputs: [count], 1 to 32 of them; options: NULL = all zero
 * @numerics   differences of a weighted sum of the result's elements, weights in [0.5, 1.5)
 * @owns       inputs are only read; their gradients stay as they are
 * @errors     EINVAL the first element that is wrong, with both values; an input or a result that is not f64, an input on which the
 *             result does not depend, no inputs; ELIMIT too many; what the function does wrong; as sherd_world_check
 */
SHERD_CALL sherd_status sherd_check_gradients(sherd_differentiable function,
                                              sherd_tensor *const *inputs, int count,
                                              const sherd_check_options *options);

/*
 * What happens to a tensor that an operator saves for its backward. `pack` gets the tensor and returns
 * what to keep instead (or the tensor itself); `unpack` gets what was kept, and the payload that pack
 * filled in, and returns a tensor equal to the original. Both run without recording.
 */
typedef struct sherd_saved_hooks {
    sherd_tensor *(*pack)(sherd_tensor *t, void *context, const void **undo);
    sherd_tensor *(*unpack)(sherd_tensor *kept, void *context, const void *undo);
    void *context;
} sherd_saved_hooks;

/**
 * Let these hooks see every tensor saved from now on. A tensor saved by several operators is packed once.
 * Inner hooks (pushed later) replace outer ones.
 *
 * @local
 * @shapes hooks: pack NULL = tensors are kept as they are
 * @owns   copied; `context` and what `undo` points to must live as long as any tensor packed with them
 * @errors EINVAL hooks NULL, pack without unpack: then tensors are kept as they are until the pop; ENOMEM; by the alarm
 */
SHERD_API void sherd_saved_hooks_push(sherd_world *world, const sherd_saved_hooks *hooks);

/** Take the innermost hooks away. @local @errors none; a no-op if there are none */
SHERD_API void sherd_saved_hooks_pop(sherd_world *world);

/**
 * Bytes of tensor storage that the tape holds for backward on this rank; each storage counted once, leaves not.
 *
 * @local   @errors none
 */
SHERD_API int64_t sherd_saved_bytes(const sherd_world *world);

/** Whether this is a forward that backward runs again (sherd_module_checkpoint). @local @errors none */
SHERD_API bool sherd_is_recomputing(const sherd_world *world);

SHERD_END

#endif
