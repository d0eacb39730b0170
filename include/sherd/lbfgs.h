/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L-BFGS: minimises a loss that is the same function each time it is asked (physics-informed
 * networks, inverse problems, fits), of up to some million parameters, with far fewer evaluations
 * than first-order optimizers need. It asks for the loss itself:
 *
 *     sherd_lbfgs *fit;
 *     if (sherd_lbfgs_create(&fit, model, NULL)) // after sherd_parallelize
 *         return 1;
 *     for (int i = 0; i < 100; i++) // residual: the loss, after sherd_backward of it
 *         least = sherd_lbfgs_step(fit, 1, residual, NULL, NULL);
 *     sherd_lbfgs_destroy(fit);
 *
 * Each rank computes with the elements of the parameters that it holds. All that ranks exchange
 * are numbers: some for each evaluation, and for each iteration two for each pair of the history,
 * which are as many small exchanges. They are added up in the order of the ranks, so all ranks take
 * the same way.
 */
#ifndef SHERD_LBFGS_H
#define SHERD_LBFGS_H

#include "module.h"

SHERD_BEGIN

typedef struct sherd_lbfgs sherd_lbfgs;

/* A member that is zero takes the default in brackets. */
typedef struct sherd_lbfgs_options {
    int history;             /* [10] changes of parameters and gradients that are remembered */
    int iterations;          /* [20] of a step, at most */
    int evaluations;         /* [5/4 of the iterations] after which a step begins no iteration */
    double tolerance_grad;   /* [1e-7] a step ends if no element of the gradient is larger */
    double tolerance_change; /* [1e-9] or if neither loss nor any parameter changes by more */
    /*
     * no line search: each iteration goes as far as the learning rate says, and asks for the loss
     * once; as torch.optim.LBFGS does unless it is told "strong_wolfe"
     */
    bool fixed;
} sherd_lbfgs_options;

/* How a step went. */
typedef struct sherd_lbfgs_report {
    double loss;     /* at the parameters as they are now */
    double gradient; /* its largest element there */
    int iterations, evaluations;
} sherd_lbfgs_report;

/*
 * Computes the loss, one element, and its gradients by sherd_backward; returns the loss. Gradients
 * are cleared before it is called, and its tensors are destroyed afterwards (it runs in a scope).
 * All ranks of the parameters' mesh call it equally often. NULL counts as a failure.
 */
typedef sherd_tensor *(*sherd_lbfgs_loss)(void *payload);

/**
 * L-BFGS over all parameters of a module, as they are now: all of them distributed on one mesh, or
 * all plain; f32 or f64. What it computes itself is f64. It holds 2 history + 6 numbers for each
 * element of the parameters on this rank. Its state is not among that of sherd_optimizer_state: a
 * run that is continued from a file begins with an empty history.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL a negative option, or one that is no number; a parameter of another dtype, plain
 *         ones beside distributed ones, parameters on two meshes; ENOMEM
 */
SHERD_CALL sherd_status sherd_lbfgs_create(sherd_lbfgs **out, sherd_module *module,
                                           const sherd_lbfgs_options *options);

/**
 * Some iterations: a direction from the history (the first is that of steepest descent), and a step
 * along it, of the length `learning_rate` (mostly 1) if that meets the strong Wolfe conditions
 * (c1 = 1e-4, c2 = 0.9), else of one that a search by cubic interpolation finds. The very first
 * step is shorter by the sum of the gradient's absolute values, if that is larger than 1. Nocedal
 * and Wright, Numerical Optimization, algorithms 7.4, 3.5 and 3.6.
 *
 * The parameters are those with the least loss that was found. A loss or a slope that is no number
 * counts as too far; a gradient that is infinite or NaN ends the step. In a dry run the loss is
 * asked for once.
 *
 * @collective of the parameters' mesh; a rank outside of it returns at once
 * @shapes     payload: handed to `loss`; report: how it went, NULL = nobody asks
 * @errors     by the alarm, then NAN: EINVAL a learning rate that is not positive, a loss that is
 *             NULL, has not one element, or is infinite or NaN at the beginning; EDIFFER ranks have
 *             other losses (a plain loss that is not the same on all); what `loss` does wrong;
 *             ENOMEM
 * @returns    the loss at the parameters as they are now
 */
SHERD_API double sherd_lbfgs_step(sherd_lbfgs *lbfgs, double learning_rate, sherd_lbfgs_loss loss,
                                  void *payload, sherd_lbfgs_report *report);

/**
 * Forget the history, so that the next step begins with steepest descent: after the loss became
 * another function, or the program has written the parameters. All ranks must.
 *
 * @local   @errors none; NULL is a no-op
 */
SHERD_API void sherd_lbfgs_forget(sherd_lbfgs *lbfgs);

/**
 * Free one; NULL is a no-op.
 *
 * @local
 * @errors EINVAL, by the alarm, and nothing is freed: inside a function that the library calls (the
 *         one of the loss, a forward, a hook), unless it was made there
 */
SHERD_API void sherd_lbfgs_destroy(sherd_lbfgs *lbfgs);

SHERD_END

#endif
