/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activation checkpointing: modules that save only their arguments for backward, and are called
 * again there. What is dear to compute again can be kept all the same:
 *
 *     const char *const products[] = {"sherd_linear", "sherd_matmul", "sherd_attention"};
 *     sherd_module_checkpoint(model, true);
 *     if (sherd_module_checkpoint_keep(model, products, 3))
 *         return 1;
 */
#ifndef SHERD_CHECKPOINT_H
#define SHERD_CHECKPOINT_H

#include "module.h"

SHERD_BEGIN

/**
 * Turn activation checkpointing of a module on or off. A checkpointed call saves only its arguments
 * for backward. When backward reaches it, the module is called again, with its hooks, to compute
 * what was not saved; this costs one more forward, with its communication. Gradients and random
 * numbers have the same bits as without. Modules inside it may be checkpointed too. Hooks on saved
 * tensors (sherd_saved_hooks_push, sherd_input_reshard) that are in force when the forward begins
 * are applied to the arguments.
 *
 * The forward must depend only on its arguments, parameters and generators, so that it does the
 * same again. A forward or hook that counts its calls can ask sherd_is_recomputing. Backward fails
 * with EINVAL where it finds
 * - that other operators run than the first time;
 * - that a parameter, a buffer or another tensor that gradients depend on was written since
 *   (tensors that the forward writes before it reads them may be);
 * - that the module no longer exists;
 * - that a parameter requires a gradient which did not the first time (one that no longer does just
 *   gets none).
 *
 * A forward that itself asks for gradients of what it has computed (sherd_gradients) cannot be
 * checkpointed: that call fails with EINVAL.
 *
 * @local   @errors none
 */
SHERD_API void sherd_module_checkpoint(sherd_module *module, bool on);

/** Whether calls of a module are checkpointed. @local @errors none */
SHERD_API bool sherd_module_is_checkpointed(const sherd_module *module);

/**
 * Name operators whose results a checkpointed module keeps from its first run. When it is run again
 * they are not computed, but given back; all others are computed, also those that a module inside
 * calls which is checkpointed itself (it keeps what was named for it). Operands are still moved to
 * where the operator wants them. What is kept counts in sherd_saved_bytes, goes through hooks on
 * saved tensors, and is released when the backward of its operator has run. A result that was
 * written in place since is computed again.
 *
 * @local   all ranks must name the same
 * @shapes  operators: [count] names as in sherd_op_find; 0: none, as before the first call
 * @owns    the names are read before it returns
 * @errors  EINVAL a NULL, a negative count, a name that no operator has, an operator that is made
 *          of others (the result of sherd_op_find has `compose`: name those), or whose result is a
 *          view; ENOMEM; after an error nothing has changed
 */
SHERD_CALL sherd_status sherd_module_checkpoint_keep(sherd_module *module,
                                                     const char *const *operators, int count);

SHERD_END

#endif
