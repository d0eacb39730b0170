/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifetimes. The tensor that an expression returns belongs to the current *scope* of its world, and
 * so does a layout that is created. Ending the scope releases them. The outermost scope ends with
 * the world. What must live longer is passed to the enclosing scope, or retained.
 *
 * A rank that has failed and skips the rest of its step (see world.h) also skips ends of scopes:
 *
 *     int depth = sherd_scope_depth(world);
 *     for (step = 0; step < stop; step++) {
 *         take_step(world, step);           // may return anywhere, after sherd_world_fail
 *         sherd_scope_end_to(world, depth); // ends what the step has left open
 *         if (sherd_world_check(world))
 *             fprintf(stderr, "%s\n", sherd_world_error(world));
 *     }
 */
#ifndef SHERD_SCOPE_H
#define SHERD_SCOPE_H

#include "world.h"

SHERD_BEGIN

typedef struct sherd_tensor sherd_tensor;

/**
 * Open a scope: tensors and layouts created from now on belong to it.
 *
 * @local   @errors ENOMEM raises the alarm
 */
SHERD_API void sherd_scope_begin(sherd_world *world);

/**
 * End the innermost scope and release what was created in it. A forward or a hook may end only
 * scopes that it has begun itself; those that it leaves open are merged into the scope of the
 * module's call.
 *
 * @local   @errors none; a no-op on the outermost scope
 */
SHERD_API void sherd_scope_end(sherd_world *world);

/** How many scopes are open besides the outermost one; 0 for NULL. @local @errors none */
SHERD_API int sherd_scope_depth(const sherd_world *world);

/**
 * End scopes, innermost first, until so many are open besides the outermost one. In a forward or a
 * hook, only those that it has begun.
 *
 * @local   @errors none; a no-op if no more are open
 */
SHERD_API void sherd_scope_end_to(sherd_world *world, int depth);

/**
 * Pass a tensor to the enclosing scope, so that it survives the innermost one. Returns the tensor.
 *
 * @local
 * @owns   `t` itself, which then belongs to the enclosing scope
 * @errors none; a tensor that does not belong to the innermost scope stays where it is
 */
SHERD_API sherd_tensor *sherd_scope_pass(sherd_tensor *t);

/**
 * Keep a tensor beyond its scope; each retain needs one release. Returns the tensor.
 *
 * @local   @owns one more reference   @errors none
 */
SHERD_API sherd_tensor *sherd_tensor_retain(sherd_tensor *t);

/** Release a retained tensor; NULL is a no-op. @local @errors none */
SHERD_API void sherd_tensor_release(sherd_tensor *t);

SHERD_END

#endif
