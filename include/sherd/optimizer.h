/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers. They update sharded parameters in place: a step settles all gradients in one round of
 * communication (one call per group of ranks); then each rank updates the elements that it holds
 * (Muon: the matrices that are its share). The state has the layout of its parameter.
 *
 *     sherd_optimizer *adam;
 *     const sherd_adamw_options options = {.weight_decay = 0.1};
 *     if (sherd_adamw_create(&adam, model, &options)) // after sherd_parallelize
 *         return 1;
 *     sherd_backward(loss);
 *     sherd_optimizer_clip(adam, 1.0);
 *     sherd_optimizer_step(adam, 3e-4 * sherd_schedule_warmup(step, 100), 1);
 *     sherd_optimizer_clear(adam);
 *
 * Weight decay applies only to parameters of two or more dims, unless decay_all is set. Groups give
 * some parameters another learning rate or decay.
 *
 * The state of a bf16 or f16 parameter is f32 and includes an exact f32 copy of the parameter:
 * steps update the copy, and the parameter is the copy rounded. If the program writes the parameter
 * between steps, the copy is made anew.
 *
 * A parameter that is frozen (requires no gradient) when the optimizer is made gets no state until
 * a step in which it has a gradient. So freeze parameters first (sherd_module_require_grad), for
 * example to train small adapters of a large model.
 */
#ifndef SHERD_OPTIMIZER_H
#define SHERD_OPTIMIZER_H

#include "module.h"
#include "schedule.h"

SHERD_BEGIN

typedef struct sherd_optimizer sherd_optimizer;

/*
 * Settings for some of the parameters. A parameter belongs to the first group whose pattern matches
 * its path; later groups do not add to it. A parameter in no group has rate 1 and the optimizer's
 * decay. A member that is zero takes the default in brackets.
 *
 *     const sherd_optimizer_group groups[] = {{.pattern = "embed.weight", .rate = 0.1},
 *                                             {.pattern = "blocks.*.attn.**", .no_decay = true}};
 */
typedef struct sherd_optimizer_group {
    /*
     * names from the module down to the parameter, joined by dots; shell wildcards (* ? [..]) match
     * within one name, and ** any number of names, also none: "**.bias", "blocks.**"
     */
    const char *pattern;
    double rate;         /* [1] multiplies the learning rate of each step */
    double weight_decay; /* [that of the optimizer's options] */
    bool no_rate;        /* rate 0: values stay, state is updated (which freezing would save) */
    bool no_decay;       /* weight_decay 0 */
    bool decay_all;      /* [that of the options] parameters of fewer than two dims decay too */
    bool adamw;          /* sherd_muon_create: matrices too are updated as AdamW does */
} sherd_optimizer_group;

/* A member that is zero takes the default in brackets. */
typedef struct sherd_adamw_options {
    double beta1;        /* [0.9] */
    double beta2;        /* [0.999] */
    double eps;          /* [1e-8] */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */
    bool amsgrad;        /* use vmax, the largest v so far, in place of v; computed on the CPU */

    const sherd_optimizer_group *groups; /* [group_count]; read by the create function only */
    int group_count;
} sherd_adamw_options;

/**
 * AdamW over all parameters of a module, as they are now (so call sherd_parallelize first).
 *
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) +
 * decay p), where g is the gradient, p the parameter, lr the learning rate of the step, and t
 * counts the steps in which this parameter had a gradient.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL betas outside [0, 1), eps or weight_decay negative, parameters on two meshes; a
 *         group whose pattern matches no parameter (similar paths are listed) or only those of
 *         earlier groups, or whose rate or decay is negative, not finite, or given twice; ENOMEM
 */
SHERD_CALL sherd_status sherd_adamw_create(sherd_optimizer **out, sherd_module *module,
                                           const sherd_adamw_options *options);

/**
 * Adam over all parameters of a module: as sherd_adamw_create, but the decay is added to the
 * gradient, g + decay p, and so enters m and v.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors as sherd_adamw_create
 */
SHERD_CALL sherd_status sherd_adam_create(sherd_optimizer **out, sherd_module *module,
                                          const sherd_adamw_options *options);

/* All zero = p -= lr g, without state. */
typedef struct sherd_sgd_options {
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov;
    bool decay_all; /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_sgd_options;

/**
 * SGD over all parameters of a module, as they are now (so call sherd_parallelize first).
 *
 * g += decay p; m = momentum m + (1 - dampening) g, but m = g in the parameter's first step; p -=
 * lr m, or p -= lr (g + momentum m) with nesterov; without momentum p -= lr g.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL momentum outside [0, 1), dampening outside [0, 1], weight_decay negative, nesterov
 *         without momentum or with dampening, parameters on two meshes; a group as in
 *         sherd_adamw_create; ENOMEM
 */
SHERD_CALL sherd_status sherd_sgd_create(sherd_optimizer **out, sherd_module *module,
                                         const sherd_sgd_options *options);

/* A member that is zero takes the default in brackets. */
typedef struct sherd_rmsprop_options {
    double alpha;        /* [0.99] */
    double eps;          /* [1e-8] */
    double momentum;     /* [0] */
    double weight_decay; /* [0] */
    bool centered;       /* divide by the standard deviation of g, not by its root mean square */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_rmsprop_options;

/**
 * RMSprop over all parameters of a module, as they are now (so call sherd_parallelize first).
 *
 * g += decay p; v = alpha v + (1-alpha) g^2; d = g / (sqrt(v) + eps); p -= lr d, or with a momentum
 * m = momentum m + d; p -= lr m. If centered, mean = alpha mean + (1-alpha) g, and v - mean^2 (not
 * below 0) is in the place of v. As torch.optim.RMSprop. On GPUs a step is computed by the CPU.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL alpha or momentum outside [0, 1), eps or weight_decay negative, parameters on two
 *         meshes; a group as in sherd_adamw_create; ENOMEM
 */
SHERD_CALL sherd_status sherd_rmsprop_create(sherd_optimizer **out, sherd_module *module,
                                             const sherd_rmsprop_options *options);

/* A member that is zero takes the default in brackets. */
typedef struct sherd_adagrad_options {
    double rate_decay;   /* [0] how fast the rate falls: see the formula below */
    double initial;      /* [0] the first value of `sum` */
    double eps;          /* [1e-10] */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_adagrad_options;

/**
 * Adagrad over all parameters of a module, as they are now (so call sherd_parallelize first).
 *
 * g += decay p; sum += g^2; p -= lr / (1 + (t-1) rate_decay) g / (sqrt(sum) + eps), where t counts
 * the steps in which this parameter had a gradient. As torch.optim.Adagrad. On GPUs a step is
 * computed by the CPU.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL rate_decay, initial, eps or weight_decay negative, parameters on two meshes; a
 *         group as in sherd_adamw_create; ENOMEM
 */
SHERD_CALL sherd_status sherd_adagrad_create(sherd_optimizer **out, sherd_module *module,
                                             const sherd_adagrad_options *options);

/* A member that is zero takes the default in brackets. */
typedef struct sherd_lion_options {
    double beta1;        /* [0.9] weight of m in the update */
    double beta2;        /* [0.99] weight of m in the next m */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_lion_options;

/**
 * Lion over all parameters of a module, as they are now (so call sherd_parallelize first). Useful
 * learning rates are three to ten times smaller than AdamW's, and decays larger by the same factor.
 *
 * p -= lr (sign(b1 m + (1-b1) g) + decay p); m = b2 m + (1-b2) g. On GPUs a step is computed by the
 * CPU.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL betas outside [0, 1), weight_decay negative, parameters on two meshes; a group as
 *         in sherd_adamw_create; ENOMEM
 */
SHERD_CALL sherd_status sherd_lion_create(sherd_optimizer **out, sherd_module *module,
                                          const sherd_lion_options *options);

/* A member that is zero takes the default in brackets. */
typedef struct sherd_muon_options {
    double momentum;     /* [0.95] */
    double eps;          /* [1e-7] lower limit of |D| when D is divided by it */
    int steps;           /* [5] iterations of X */
    bool plain;          /* without Nesterov's momentum */
    bool match_adamw;    /* scale steps as AdamW's, so that the same learning rate suits both */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */
    /* of the iteration: SHERD_BF16, as in PyTorch; [f32, for f64 parameters f64] */
    sherd_dtype dtype;

    double beta1, beta2, adamw_eps; /* [0.9, 0.999, 1e-8] of AdamW, for the other parameters */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_muon_options;

/**
 * Muon over all matrices (parameters of two dims) of a module, and AdamW over its other parameters.
 * Embeddings and the last layer are usually updated by AdamW too, with a group:
 *
 *     const sherd_optimizer_group group = {.pattern = "embed.weight", .adamw = true, .rate = 0.1};
 *
 * M = mu M + (1-mu) G; D = mu M + (1-mu) G, or D = M if `plain`; p -= lr (s f(D) + decay p). f
 * makes D orthogonal: X = D / |D|, then `steps` times X = a X + b (X X^T) X + c (X X^T)^2 X. s is
 * sqrt(max(1, rows / columns)), with match_adamw 0.2 sqrt(max(rows, columns)). As torch.optim.Muon.
 *
 * Whatever its layout, each matrix is computed as a whole by one rank; ranks share the matrices by
 * size. So a step has two moves, of all matrices together, to these ranks and back. Results do not
 * depend on the mesh, except for the rounding of gradients.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL momentum outside [0, 1), eps or weight_decay negative, steps outside [0, 100],
 *         another dtype; otherwise as sherd_adamw_create
 */
SHERD_CALL sherd_status sherd_muon_create(sherd_optimizer **out, sherd_module *module,
                                          const sherd_muon_options *options);

/**
 * Replace all groups of an optimizer, from its next step on: for example to hold or warm up a part
 * of a model for some steps. A parameter that is in none of the new groups has rate 1 and the
 * optimizer's decay again. State does not change. All ranks pass the same groups.
 *
 *     const sherd_optimizer_group groups[] = {{.pattern = "backbone.**", .no_rate = step < 500},
 *                                             {.pattern = "head.**", .rate = 10}};
 *     if (sherd_optimizer_groups(optimizer, groups, 2))
 *         return 1;
 *
 * For a rate of 0 set `no_rate`, because a `rate` of 0 means the default.
 *
 * @local
 * @shapes groups: [count], read in the call only; may be NULL if count is 0
 * @errors EINVAL `optimizer` is NULL, a group as in sherd_adamw_create, or one that changes whether
 *         Muon or AdamW updates a matrix; ENOMEM. On failure the old groups stay. If ranks pass
 *         different groups, the check after the next step returns EDIFFER
 */
SHERD_CALL sherd_status sherd_optimizer_groups(sherd_optimizer *optimizer,
                                               const sherd_optimizer_group *groups, int count);

/**
 * Change the momentum of SGD, RMSprop or Muon from the next step on, as a schedule may do along
 * with the learning rate. State does not change. With 0 (not a default here) SGD and Muon go on to
 * update theirs, and SGD takes (1 - dampening) g, where one made without momentum takes g; RMSprop
 * leaves its buffer as it is meanwhile. All ranks pass the same number.
 *
 * @local
 * @errors EINVAL `optimizer` is NULL or of another kind, a momentum outside [0, 1); SGD or RMSprop
 *         that was made without momentum, and so has no state for it. If ranks pass different
 *         numbers, the check after the next step returns EDIFFER
 */
SHERD_CALL sherd_status sherd_optimizer_momentum(sherd_optimizer *optimizer, double momentum);

/**
 * As sherd_optimizer_momentum, the betas of Adam and its kin and of Lion, and of Muon's AdamW.
 *
 * @local   @errors EINVAL `optimizer` is NULL or of another kind, a beta outside [0, 1); as there
 */
SHERD_CALL sherd_status sherd_optimizer_betas(sherd_optimizer *optimizer, double beta1,
                                              double beta2);

/**
 * Shard the state of parameters that are replicated over an axis of their mesh, over that axis
 * (PyTorch: ZeroRedundancyOptimizer, ZeRO-1): each rank keeps the state of some of a parameter's
 * rows, or, of one with fewer rows than the axis has ranks, of its largest dim. A step then
 * reduce-scatters gradients that are pending over the axis, updates a slice of each parameter, and
 * gathers the slices: together as many bytes as the all-reduce without. Until the next backward,
 * gradients have that layout too; sherd_grad gathers.
 *
 * Not so: parameters that are sharded over the axis, scalars, plain ones, and matrices of Muon,
 * which are updated whole on one rank each. Nor all of Adafactor's: of an m x n matrix its state is
 * m + n numbers, of which there is nothing to gain, and sums over slices would take more rounds in
 * each step. State that there is already is kept, so this may come at any time between steps; but
 * all of it is in memory until then. Several axes: one call for each.
 *
 * @local    all ranks of the mesh call it, between the same steps; on ranks outside, whose
 *           parameters sherd_parallelize or sherd_fully_shard have left plain, nothing changes
 * @numerics the same bits as without; norms of gradients are added in another order
 * @errors   EINVAL a NULL, no such axis, no distributed parameters; ENOTSUP on GPUs; ENOMEM (the
 *           optimizer can then only be destroyed)
 */
SHERD_CALL sherd_status sherd_optimizer_shard(sherd_optimizer *optimizer, const char *axis);

/**
 * Free an optimizer; NULL is a no-op.
 *
 * @local
 * @errors EINVAL, by the alarm, and nothing is freed: inside a function that the library calls (a
 *         forward, a hook, a handler), unless the optimizer was made there
 */
SHERD_API void sherd_optimizer_destroy(sherd_optimizer *optimizer);

/**
 * Settle all pending gradients in one round. All functions below that need settled gradients do
 * this themselves.
 *
 * @collective the parameters' mesh   @errors EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_settle(sherd_optimizer *optimizer);

/**
 * The 2-norm of all gradients together, where each global element counts once. Equal on all ranks;
 * NaN while the alarm is raised.
 *
 * @collective the parameters' mesh
 * @numerics   squares are added in f64
 * @errors     EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API double sherd_optimizer_grad_norm(sherd_optimizer *optimizer);

/**
 * Scale all gradients so that their 2-norm is at most `most` (torch.nn.utils.clip_grad_norm_).
 * Returns the norm before scaling; if that is not finite, nothing is scaled. sherd_optimizer_step
 * can scale without another pass over the gradients: see its grad_scale.
 *
 * @collective the parameters' mesh
 * @numerics   as sherd_optimizer_grad_norm
 * @errors     EINVAL `most` negative or NaN; EDIFFER; ENOMEM; EPEER; by the alarm, and NaN is
 *             returned
 */
SHERD_API double sherd_optimizer_clip(sherd_optimizer *optimizer, double most);

/**
 * The p-norm of all gradients, (sum of |g|^p)^(1/p), for p = INFINITY the largest |g|; otherwise as
 * sherd_optimizer_grad_norm. On GPUs, norms other than p = 2 are computed by the CPU.
 *
 * @collective the parameters' mesh
 * @numerics   powers are computed and added in f64; the norm is NaN if a gradient is
 * @errors     EINVAL p is not above 0; EDIFFER; ENOMEM; EPEER; by the alarm, and NaN is returned
 */
SHERD_API double sherd_optimizer_grad_norm_of(sherd_optimizer *optimizer, double p);

/**
 * As sherd_optimizer_clip, by the p-norm.
 *
 * @collective the parameters' mesh
 * @numerics   as sherd_optimizer_grad_norm_of
 * @errors     EINVAL `most` negative or NaN, p not above 0; EDIFFER; ENOMEM; EPEER; by the alarm,
 *             and NaN is returned
 */
SHERD_API double sherd_optimizer_clip_norm(sherd_optimizer *optimizer, double most, double p);

/**
 * Clamp every element of all gradients to [-most, most]. Pending sums are settled first.
 *
 * @collective the parameters' mesh, if gradients are not settled yet
 * @errors     EINVAL `most` negative or NaN; EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_clip_value(sherd_optimizer *optimizer, double most);

/*
 * Several optimizers whose gradients are clipped together: those of the stages of a pipeline, or of
 * a model and its adapters. No parameter belongs to two of them.
 */
typedef struct sherd_optimizers {
    const sherd_mesh *mesh;       /* one that has all ranks of the parameters' meshes */
    sherd_optimizer *const *list; /* [count]: this rank's, in the same order on all ranks */
    int count;                    /* may differ between ranks, and be 0 */
} sherd_optimizers;

/**
 * The 2-norm of the gradients of all these optimizers together, where each element counts once,
 * also those of tied parameters (sherd_pipeline_tie). Equal on all ranks; NaN while the alarm is
 * raised. Gradients are settled, one optimizer after the other; then ranks exchange two numbers. To
 * clip without another pass, pass grad_scale = most / norm to the step of each optimizer.
 *
 * @collective all->mesh, including ranks that have none of the optimizers
 * @numerics   squares are added in f64; the sums of ranks in rank order
 * @errors     EINVAL `all`, its mesh or an optimizer is NULL, a negative count, an optimizer of
 *             another world, parameters on ranks outside the mesh, a gradient that two optimizers
 *             have; EDIFFER gradients of plain parameters that are not equal on all ranks of the
 *             mesh; ENOMEM; EPEER; by the alarm, and NaN is returned
 */
SHERD_API double sherd_optimizers_grad_norm(const sherd_optimizers *all);

/**
 * sherd_optimizer_clip for the gradients of all these optimizers together.
 *
 * @collective all->mesh, as sherd_optimizers_grad_norm
 * @numerics   as sherd_optimizers_grad_norm
 * @errors     EINVAL `most` negative or NaN; otherwise as sherd_optimizers_grad_norm
 */
SHERD_API double sherd_optimizers_clip(const sherd_optimizers *all, double most);

/**
 * The p-norm (sherd_optimizer_grad_norm_of) of the gradients of all these optimizers together,
 * counted as by sherd_optimizers_grad_norm.
 *
 * @collective all->mesh, as sherd_optimizers_grad_norm
 * @numerics   as sherd_optimizer_grad_norm_of; the sums of ranks in rank order
 * @errors     EINVAL p is not above 0; otherwise as sherd_optimizers_grad_norm
 */
SHERD_API double sherd_optimizers_grad_norm_of(const sherd_optimizers *all, double p);

/**
 * As sherd_optimizers_clip, by the p-norm.
 *
 * @collective all->mesh, as sherd_optimizers_grad_norm
 * @numerics   as sherd_optimizers_grad_norm_of
 * @errors     EINVAL `most` negative or NaN, p not above 0; otherwise as sherd_optimizers_grad_norm
 */
SHERD_API double sherd_optimizers_clip_norm(const sherd_optimizers *all, double most, double p);

/**
 * Update all parameters that have a gradient. Gradients are multiplied by `grad_scale` first: 1
 * leaves them as they are, max_norm / norm clips them, -1 maximises. The learning rate is
 * multiplied by the rate of the parameter's group. Gradients are kept: call sherd_optimizer_clear
 * before the next backward, or they add up.
 *
 * @collective the parameters' mesh, if gradients are not settled yet, or where memory is taken: in
 *             the first step of a parameter that was frozen, or on GPUs
 * @errors     EINVAL a learning rate that is negative or not finite, or a grad_scale that is not
 *             finite (nothing changes then); state that was lost in an earlier step that failed;
 *             a count of steps that was loaded and is none; EDIFFER; ENOMEM; EPEER; all by the
 *             alarm
 */
SHERD_API void sherd_optimizer_step(sherd_optimizer *optimizer, double learning_rate,
                                    double grad_scale);

/** Drop the gradients of all its parameters. @local @errors none */
SHERD_API void sherd_optimizer_clear(sherd_optimizer *optimizer);

/**
 * All tensors of the optimizer's state, to save beside those of the module (sherd_module_state).
 * Their names are the parameter's with one more level, as in "blocks.0.attn.wq.weight.m":
 * - m and v for Adam, AdamW, NAdam and RAdam, and vmax with amsgrad;
 * - row and col for Adafactor, v of fewer than two dims;
 * - m for Lion, and for a matrix of Muon;
 * - v for RMSprop, and mean and momentum if its options need them;
 * - sum for Adagrad; momentum for SGD;
 * - exact for a 16-bit parameter: its f32 copy;
 * - steps: an i64 scalar, in how many steps the parameter had a gradient.
 *
 * They have the layout of the parameter (row lacks its last dim, col the one before), or a shard of
 * it (sherd_optimizer_shard); steps is replicated over its mesh. Frozen parameters have
 * none yet; thawed ones have it since their first step, on ranks outside their mesh since a
 * sherd_module_write or sherd_module_read. Groups are not part of the state.
 *
 * @local  may block until other ranks have finished reading an exact copy
 * @shapes out: gets at most `room` entries; NULL = only count
 * @owns   entries are borrowed, until the optimizer is destroyed
 * @errors none; returns how many there are, even if `room` is smaller
 */
SHERD_API int sherd_optimizer_state(sherd_optimizer *optimizer, sherd_named_state *out, int room);

/**
 * Set one tensor of the state to the values of another tensor, which is moved to its layout, to
 * resume a run on any number of ranks and with any layouts. Load the module first, because writing
 * a 16-bit parameter afterwards replaces its exact copy.
 *
 * @collective as sherd_module_load
 * @shapes     name: as sherd_state_name writes it; root: as in sherd_module_load
 * @numerics   values are copied bit for bit
 * @owns       `t` is only read
 * @errors     EINVAL no such state; otherwise as sherd_module_load. On failure the old values stay
 */
SHERD_CALL sherd_status sherd_optimizer_load(sherd_optimizer *optimizer, const char *name,
                                             sherd_tensor *t, int root);

SHERD_END

#endif
