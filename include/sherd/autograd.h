/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Automatic differentiation. Operators on tensors that require gradients are recorded on the
 * *tape*; sherd_backward walks it in reverse. A *leaf* is a tensor that requires a gradient and is
 * not the result of a recorded operator, such as a parameter; backward adds gradients to leaves
 * only.
 *
 * The backward of an operator is made of operators, so gradients have layouts, and may be pending
 * sums. The gradients of all uses of a tensor are added first; the result is settled, once, before
 * it enters the backward of the operator that produced the tensor. The gradient of a leaf stays
 * pending until it is used (sherd_grad, an optimizer), unless it would take more memory than the
 * leaf: then it is settled as soon as it arrives (but see sherd_set_gradient_sync).
 *
 *     sherd_require_grad(w, true);
 *     sherd_backward(sherd_mean(sherd_matmul(x, w)));
 *     sherd_tensor *g = sherd_grad(w); // in the layout of w
 *
 * Backward itself is not recorded, except by sherd_gradients with create_graph.
 */
#ifndef SHERD_AUTOGRAD_H
#define SHERD_AUTOGRAD_H

#include "tensor.h"

SHERD_BEGIN

/**
 * Set whether a tensor requires a gradient, which makes it a leaf. Returns the tensor. After
 * `wanted` = false it gets no gradient, not even from results that were computed with it before.
 *
 * @local
 * @owns   `t` itself, in its own scope
 * @errors EINVAL the result of a recorded operator, or a dtype that is not floating-point
 */
SHERD_API sherd_tensor *sherd_require_grad(sherd_tensor *t, bool wanted);

/** Whether gradients flow into this tensor. @local @errors none */
SHERD_API bool sherd_requires_grad(const sherd_tensor *t);

/** Turn the recording of operators on or off; returns the last setting. @local @errors none */
SHERD_API bool sherd_set_recording(sherd_world *world, bool on);

/**
 * Turn off, or on again, that gradients larger than their leaf are settled as they arrive; returns
 * the last setting (PyTorch: set_requires_gradient_sync). For microbatches with sharded parameters:
 *
 *     for (int i = 0; i < 8; i++) {
 *         sherd_set_gradient_sync(world, i == 7);
 *         sherd_backward(loss_of(sherd_module_call(model, x)));
 *     }
 *     sherd_optimizer_step(optimizer, rate, 1);
 *
 * While it is off, the gradient of a sharded leaf that arrives as a pending sum stays one, and
 * those of later backwards are added to it without communication. It takes the memory of the
 * gathered leaf, on every rank: for a module of sherd_fully_shard that of all its parameters. The
 * sum is settled, in one reduce-scatter, by the first backward that adds to it while this is on, by
 * sherd_grad, or by whatever an optimizer does with gradients (then all leaves in one round). So
 * results are right whether it is turned on again or not.
 *
 * A gradient that is settled already, and one that a hook on the leaf sees (sherd_tensor_hook),
 * does not wait: what is added to it is settled first. Gradients of replicated leaves wait anyway.
 *
 * @local      all ranks pass the same value, or the next call that the ranks make ends in EDIFFER
 * @numerics   first each rank adds up its own addends, then they are added in rank order; so sums
 *             may differ in rounding from those of gradients that are settled one by one
 * @errors     none; false for a world NULL
 */
SHERD_API bool sherd_set_gradient_sync(sherd_world *world, bool on);

/**
 * Add d(loss)/d(leaf) to the gradient of every leaf that `loss` depends on. The tensors that the
 * tape has saved are released on the way, so a second backward through the same part of the tape is
 * an error (see sherd_backward_options.retain). After a failure the gradients of leaves may be
 * incomplete: clear them (sherd_clear_grad, sherd_optimizer_clear).
 *
 * @collective the meshes of all tensors that gradients pass through
 * @errors     EINVAL `loss` does not have exactly one element, or depends on no leaf; a saved
 *             tensor was written in place since; EDIFFER; ENOMEM; EPEER; all by the alarm
 */
SHERD_API void sherd_backward(sherd_tensor *loss);

typedef struct sherd_backward_options {
    /* keep the tensors that the tape has saved, so that another backward can use them */
    bool retain;
    /* replace the gradients of the leaves that the outputs depend on, instead of adding to them */
    bool replace;
} sherd_backward_options;

/**
 * Backward from several outputs at once, with given gradients: each leaf gets the sum over all
 * outputs of gradient times d(output)/d(leaf).
 *
 * A gradient may have another layout than its output, and may be a pending sum; it is moved or
 * settled when an operator needs that. For a distributed output it may be plain, if it does not
 * vary; for a plain output it must be plain.
 *
 * @collective the meshes of all tensors that gradients pass through
 * @shapes     outputs: [count], of any shape; count 0 or less = nothing to do; gradients: [count],
 *             of the outputs' shapes and dtypes; an entry may be NULL if its output has one
 *             element, and `gradients` if all have: the gradient is 1 then; options: NULL = all
 *             zero
 * @owns       gradients are only read, and may be written in place after the call: leaves do not
 *             share their storage
 * @errors     EINVAL an output that depends on no leaf; an output without a gradient that does not
 *             have exactly one element; a gradient that does not fit or varies; a saved tensor that
 *             was written in place since; a part of the tape that a backward has already used
 *             without `retain`, or is using now (in a call from a hook); EDIFFER; ENOMEM; EPEER;
 *             all by the alarm
 */
SHERD_API void sherd_backward_with(sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                                   int count, const sherd_backward_options *options);

typedef struct sherd_gradients_options {
    sherd_tensor *const *gradients; /* of the outputs, as in sherd_backward_with */
    bool retain;                    /* as in sherd_backward_options */
    /* out[i] is NULL for an input that no output depends on; otherwise such an input is an error */
    bool unused;
    /*
     * Record the operators of backward, whether recording is on or not: so the gradients can be
     * differentiated again. Implies `retain`.
     */
    bool create_graph;
} sherd_gradients_options;

/**
 * The gradients of outputs by inputs, which may be leaves or not, each in its input's own layout
 * (torch.autograd.grad). The stored gradients of leaves do not change, and only what leads to an
 * input is computed. Hooks on the inputs, and on tensors between them and the outputs, run.
 *
 * With `create_graph` the results can be differentiated again, to any order: for a gradient
 * penalty, a Hessian times a vector, a differential equation in a loss.
 *
 *     const sherd_gradients_options recorded = {.create_graph = true};
 *     sherd_tensor *slope; // dy/dx, for a penalty on its square
 *     sherd_gradients(&slope, &x, 1, &y, 1, &recorded);
 *     sherd_backward(sherd_add(loss, sherd_mean(sherd_square(slope))));
 *
 * All operators can be differentiated again, except sherd_neighbourhood_attention, attention with
 * dropout, and user-defined operators whose backward uses operators that are not recorded: a second
 * backward that reaches one of these is an error (pass their results through sherd_detach, or do
 * not drop). Norms, softmax, attention and cross-entropy are then differentiated by their formulas,
 * which needs more memory: attention keeps all scores. Hooks are recorded, too.
 *
 * @collective the meshes of all tensors that gradients pass through
 * @shapes     out, inputs: [n], two different arrays; outputs: [count]; 0 or less of either =
 *             nothing to do; options: NULL = all zero
 * @owns       results belong to the scope; they may share their storage with each other and with
 *             the gradients passed, so copy them (sherd_clone) before writing in place
 * @errors     EINVAL as sherd_backward_with; an input that requires no gradient; one that no output
 *             depends on (see `unused`); with create_graph, a plain gradient of a distributed
 *             output, if it requires a gradient itself; EDIFFER; ENOMEM; EPEER; all by the alarm,
 *             and then each out[i] is the failed tensor
 */
SHERD_API void sherd_gradients(sherd_tensor **out, sherd_tensor *const *inputs, int n,
                               sherd_tensor *const *outputs, int count,
                               const sherd_gradients_options *options);

/**
 * The gradient of a leaf, or of a tensor that was passed to sherd_retain_grad, in the tensor's own
 * layout; NULL if it has none. A pending sum is settled here. The result may be written in place:
 * no other gradient shares its storage.
 *
 * @collective the tensor's mesh, if its gradient is not settled yet
 * @owns       borrowed from the tensor, until the next backward, sherd_clear_grad or optimizer
 *             step. The first call makes a copy if the gradient shares its storage with others, or
 *             is an expanded view
 * @errors     EDIFFER; ENOMEM; EPEER; by the alarm, and the failed tensor is returned
 */
SHERD_API sherd_tensor *sherd_grad(sherd_tensor *t);

/** Drop the gradient of a tensor. @local @errors none */
SHERD_API void sherd_clear_grad(sherd_tensor *t);

/**
 * Make backward keep the gradient of a tensor that is not a leaf, for sherd_grad. Gradients of
 * several backwards add up, as those of leaves. Returns the tensor.
 *
 * @local
 * @owns   `t` itself, in its own scope; its gradient lives as long as the record of the operator
 *         that produced it
 * @errors EINVAL `t` does not require a gradient; ENOMEM
 */
SHERD_API sherd_tensor *sherd_retain_grad(sherd_tensor *t);

/*
 * A hook on the gradient of a tensor. It runs once in each backward that reaches the tensor, after
 * the gradients of all uses have been added, and gets the gradient settled and in the tensor's own
 * layout; so what it computes is right under any layout. It returns NULL to leave the gradient as
 * it is, or another of the same shape and dtype, which replaces it. It must not write its argument
 * in place, because other gradients may share the storage.
 *
 * Tensors made in a hook are not recorded (except under create_graph) and belong to a scope of the
 * hook's call. All ranks call a hook at the same point of backward, so it may communicate. A hook
 * that a hook registers runs in later backwards.
 */
typedef sherd_tensor *(*sherd_grad_hook)(sherd_tensor *grad, void *payload);

/**
 * Register a hook that sees, and may replace, the gradient of a tensor, leaf or not. Hooks run in
 * the order of registration. A hook on a leaf gets the gradient of this backward, before it is
 * added to the stored one.
 *
 * It is on this tensor alone. What the tensor is moved to is another one: so a hook on a module's
 * result that parallelize moves misses what a second backward (create_graph) gives to the tensor
 * before the move, as with a hook on y + 0 instead of y.
 *
 * @local
 * @shapes id: gets the hook's number for sherd_tensor_unhook, 0 on failure; NULL = not wanted;
 *         destroy: called once with `payload` when the hook is removed; NULL = nothing to free
 * @owns   the tensor owns `payload`; on failure it is destroyed before the function returns. A hook
 *         on a leaf lives as long as the tensor, any other as long as the tape's record of the
 *         operator that produced it
 * @errors EINVAL `t` does not require a gradient, or has failed; ENOMEM
 */
SHERD_CALL sherd_status sherd_tensor_hook(int *id, sherd_tensor *t, sherd_grad_hook hook,
                                          void *payload, void (*destroy)(void *payload));

/** Remove a hook. @local @errors none; a no-op if there is no such hook */
SHERD_API void sherd_tensor_unhook(sherd_tensor *t, int id);

/*
 * A function to check: computes one f64 tensor of any shape from `inputs`. It is called many times,
 * and must return the same values for the same inputs.
 */
typedef sherd_tensor *(*sherd_differentiable)(sherd_tensor *const *inputs, int count,
                                              void *payload);

typedef struct sherd_check_options {
    double step;               /* how far an element is changed either way; 0 = 1e-6 */
    double absolute, relative; /* tolerances; 0 = 1e-7 and 1e-5 */
    void *payload;             /* passed to the function */
} sherd_check_options;

/**
 * Compare the gradients of a function with central differences. The function is called twice for
 * each element of each input that requires a gradient, so this is for small tensors. Ends with a
 * sherd_world_check.
 *
 * The function gets copies of those inputs, in the same layouts. If its result is a pending sum,
 * the sum counts. In an input that is a pending sum or average, only the first addend is changed. A
 * plain input is changed on all ranks at once; so a function that makes its pieces addends of a
 * pending reduction (sherd_from_local) is reported as wrong.
 *
 * @collective the world
 * @shapes     inputs: [count], 1 to 32 of them; options: NULL = all zero
 * @numerics   differences of a weighted sum of the result's elements, with weights in [0.5, 1.5)
 * @owns       inputs are only read; their gradients do not change
 * @errors     EINVAL a wrong gradient: the text names the first wrong element, with both values; an
 *             input or a result that is not f64, an input that the result does not depend on, no
 *             inputs; ELIMIT too many inputs; those of the function; those of sherd_world_check
 */
SHERD_CALL sherd_status sherd_check_gradients(sherd_differentiable function,
                                              sherd_tensor *const *inputs, int count,
                                              const sherd_check_options *options);

/*
 * Hooks on the tensors that operators save for backward, for storing them in another way. `pack`
 * gets such a tensor and returns the tensor to keep instead (or the same one); it may set *undo.
 * When backward needs the tensor, `unpack` gets the kept one and the value of *undo, and returns a
 * tensor equal to the original. Neither is recorded.
 */
typedef struct sherd_saved_hooks {
    sherd_tensor *(*pack)(sherd_tensor *t, void *context, const void **undo);
    sherd_tensor *(*unpack)(sherd_tensor *kept, void *context, const void *undo);
    void *context;
} sherd_saved_hooks;

/**
 * Apply these hooks to every tensor that is saved from now on. A tensor that several operators save
 * is packed once. Only the hooks that were pushed last are in force, until they are popped.
 *
 * @local
 * @shapes hooks: `pack` NULL = keep tensors as they are
 * @owns   `hooks` is copied; `context`, and what `undo` points to, must live as long as any tensor
 *         that was packed with them
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
 * Whether backward is running a checkpointed module's forward again (sherd_module_checkpoint).
 *
 * @local   @errors none
 */
SHERD_API bool sherd_is_recomputing(const sherd_world *world);

SHERD_END

#endif
