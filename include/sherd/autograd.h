/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape. Operators on tensors that require gradients are recorded; sherd_backward walks the record.
 * The backward of an operator is made of operators, so gradients have layouts. Before a gradient enters
 * the backward of the operator that made its tensor, its pending sums are settled (once, however many
 * uses were added up). A leaf's gradient stays as it came until somebody uses it, unless it takes more memory
 * than the leaf: then it is settled as it comes.
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
 * released on the way; a second backward through the same part is an error. After a failure gradients of
 * leaves may be incomplete: clear them.
 *
 * @collective the meshes of the tensors on the way
 * @errors     EINVAL `loss` has not one element, or depends on no leaf that wants a gradient, or a saved tensor was
 *             written since; EDIFFER; ENOMEM; EPEER; all by the alarm
 */
SHERD_API void sherd_backward(sherd_tensor *loss);

/**
 * The gradient of a leaf, in the leaf's own layout: what was pending is settled here. NULL if there is none.
 *
 * @collective the leaf's mesh, if its gradient is not yet settled
 * @owns       borrowed from the leaf, until the next backward, clear or optimizer step
 * @errors     EDIFFER; ENOMEM; EPEER; the failed tensor is returned
 */
SHERD_API sherd_tensor *sherd_grad(sherd_tensor *leaf);

/** Forget the gradient of a leaf. @local @errors none */
SHERD_API void sherd_clear_grad(sherd_tensor *leaf);

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

SHERD_END

#endif
