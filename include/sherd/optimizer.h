/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers for sharded parameters. All gradients are settled in one round of communication (one
 * call per group); then every rank updates only what it holds (Muon: its part of the matrices). The
 * state has the layout of its parameter.
 *
 * Weight decay applies to parameters of two or more dims only, unless decay_all is set. Groups give
 * some parameters another rate or decay, and may change between steps.
 *
 * For a bf16 or f16 parameter the state is f32 and includes an exact f32 copy, and the parameter is
 * that copy rounded. If the program writes the parameter between steps, the copy is replaced too.
 *
 * A parameter that requires no gradient when the optimizer is made has no state, until a step in
 * which it has a gradient. So freeze first, as when small adapters of a large model are trained.
 */
#ifndef SHERD_OPTIMIZER_H
#define SHERD_OPTIMIZER_H

#include "module.h"

SHERD_BEGIN

typedef struct sherd_optimizer sherd_optimizer;

/*
 * Parameters that differ from the others in rate or weight decay. A parameter belongs to the first
 * group with a pattern that matches its path, or none; settings of later groups do not add to it. A
 * zero member takes the default in brackets.
 *
 *     {.pattern = "embed.weight", .rate = 0.1}, {.pattern = "blocks.*.attn.**", .no_decay = true}
 */
typedef struct sherd_optimizer_group {
    /*
     * names from the module on, joined by dots, the last one the parameter's, with shell wildcards
     * (* ? [..]) that match one level; ** stands for any number of levels, also none: "**.bias",
     * "blocks.**"
     */
    const char *pattern;
    double rate;         /* [1] multiplies the learning rate of each step */
    double weight_decay; /* [that of the optimizer's options] */
    bool no_rate;        /* a rate of 0: values stay, but state goes on; freezing saves that too */
    bool no_decay;       /* a weight_decay of 0 */
    bool decay_all;      /* [that of the options] parameters of fewer than two dims decay too */
    bool adamw;          /* sherd_muon_create: matrices too are updated as AdamW does */
} sherd_optimizer_group;

/* A zero member takes the default in brackets. */
typedef struct sherd_adamw_options {
    double beta1;        /* [0.9] */
    double beta2;        /* [0.999] */
    double eps;          /* [1e-8] */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */
    bool amsgrad;        /* divide by the largest v so far, vmax, in the place of v; on the CPU */

    const sherd_optimizer_group *groups; /* [group_count]; only read while the optimizer is made */
    int group_count;
} sherd_adamw_options;

/**
 * AdamW over all parameters of a module, as they are now (parallelize first).
 *
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) +
 * decay p) where t counts the steps in which this parameter had a gradient.
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
 * @errors EINVAL betas outside [0, 1), eps or weight_decay negative, parameters on two meshes; a
 *         group whose pattern matches no parameter (similar paths are listed) or only those of
 *         earlier groups, or whose rate or decay is negative, not finite, or given twice; ENOMEM
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
 * SGD over all parameters of a module, as they are now (parallelize first).
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

/* A zero member takes the default in brackets. */
typedef struct sherd_rmsprop_options {
    double alpha;        /* [0.99] */
    double eps;          /* [1e-8] */
    double momentum;     /* [0] */
    double weight_decay; /* [0] */
    bool centered;       /* divide by the deviation from the mean, not by the root of squares */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_rmsprop_options;

/**
 * RMSprop over all parameters of a module, as they are now (parallelize first).
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

/* A zero member takes the default in brackets. */
typedef struct sherd_adagrad_options {
    double rate_decay;   /* [0] of the rate with the parameter's steps */
    double initial;      /* [0] what sum begins with: added to it in the parameter's first step */
    double eps;          /* [1e-10] */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_adagrad_options;

/**
 * Adagrad over all parameters of a module, as they are now (parallelize first).
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

/* A zero member takes the default in brackets. */
typedef struct sherd_lion_options {
    double beta1;        /* [0.9] of what a step's sign is taken */
    double beta2;        /* [0.99] of m */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_lion_options;

/**
 * Lion over all parameters of a module, as they are now (parallelize first). Rates are three to ten
 * times smaller than AdamW's, and decays as much larger.
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

/* A zero member takes the default in brackets. */
typedef struct sherd_muon_options {
    double momentum;     /* [0.95] */
    double eps;          /* [1e-7] the least 2-norm by which a matrix is divided */
    int steps;           /* [5] of the iteration */
    bool plain;          /* without Nesterov's look ahead */
    bool match_adamw;    /* steps as large as AdamW's: the same learning rate suits both */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */
    /* SHERD_BF16: the iteration in bf16, as PyTorch has it; [f32, and f64 for parameters of f64] */
    sherd_dtype dtype;

    double beta1, beta2, adamw_eps; /* of AdamW, for the others: [0.9, 0.999, 1e-8] */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_muon_options;

/**
 * Muon over all matrices (parameters of two dims) of a module, and AdamW over its other parameters.
 * Embeddings and the last layer are usually left to AdamW too, by a group that says so:
 *
 *     {.pattern = "embed.weight", .adamw = true, .rate = 0.1}
 *
 * M = mu M + (1-mu) G; D = mu M + (1-mu) G, or M if plain; p -= lr (f(D) s + decay p). f makes D
 * orthogonal: X = D / |D|, then a few times X = a X + b (X X^T) X + c (X X^T)^2 X. s is
 * sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)) with match_adamw. As
 * torch.optim.Muon.
 *
 * Each matrix is computed whole by one rank, whatever its layout: a step has two moves, of all
 * matrices together, and ranks share the work by size. Results do not depend on the mesh but for
 * the rounding of gradients.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL momentum outside [0, 1), eps or weight_decay negative, steps outside [0, 100],
 *         another dtype; otherwise as sherd_adamw_create
 */
SHERD_CALL sherd_status sherd_muon_create(sherd_optimizer **out, sherd_module *module,
                                          const sherd_muon_options *options);

/**
 * Give an optimizer other groups, from its next step on: to freeze a part of a model for some
 * steps, or to warm it up. They replace all that it had, by the rules of sherd_adamw_create; a
 * parameter in none has rate 1 and the decay of the options again. State stays. All ranks pass the
 * same groups.
 *
 *     {.pattern = "backbone.**", .no_rate = step < 500}, {.pattern = "head.**", .rate = 10}
 *
 * A rate that falls to 0 is `no_rate`, since a member of 0 is the default.
 *
 * @local
 * @shapes groups: [count], read in the call only; NULL = none, with a count of 0
 * @errors EINVAL the optimizer is NULL; a group as in sherd_adamw_create, or by which a matrix of
 *         Muon's would be AdamW's, or the other way round; ENOMEM. Then the old groups stay. If
 *         ranks pass other groups, EDIFFER is found after the next step
 */
SHERD_CALL sherd_status sherd_optimizer_groups(sherd_optimizer *optimizer,
                                               const sherd_optimizer_group *groups, int count);

/**
 * Free an optimizer; NULL is a no-op.
 *
 * @local
 * @errors EINVAL, by the alarm, in a function that the library calls (a forward, a hook, a
 *         handler), unless such a one has made it: then nothing is freed
 */
SHERD_API void sherd_optimizer_destroy(sherd_optimizer *optimizer);

/**
 * Settle all pending gradients in one round. Step and norm do it themselves if it was not done.
 *
 * @collective the parameters' mesh   @errors EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_settle(sherd_optimizer *optimizer);

/**
 * The 2-norm of all gradients, each element counted once, equal on all ranks; NaN after the alarm.
 *
 * @collective the parameters' mesh
 * @numerics   squares are added in f64
 * @errors     EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API double sherd_optimizer_grad_norm(sherd_optimizer *optimizer);

/**
 * Scale all gradients so that their 2-norm is at most `most`. Returns the norm before scaling; if
 * it is not finite, nothing is scaled. sherd_optimizer_step can do the same without another pass
 * over the gradients: see its grad_scale.
 *
 * @collective the parameters' mesh
 * @numerics   as sherd_optimizer_grad_norm
 * @errors     EINVAL `most` negative or NaN; EDIFFER; ENOMEM; EPEER; by the alarm, and NaN is
 *             returned
 */
SHERD_API double sherd_optimizer_clip(sherd_optimizer *optimizer, double most);

/**
 * The p-norm of all gradients: (sum of |g|^p)^(1/p), or of p = INFINITY the largest |g|. Otherwise
 * as sherd_optimizer_grad_norm. On GPUs another norm than p = 2 is computed by the CPU.
 *
 * @collective the parameters' mesh
 * @numerics   powers are taken and added in f64; a NaN stays
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
 * Clamp every element of all gradients to [-most, most]. They are settled first, so that sums are
 * clamped and not addends.
 *
 * @collective the parameters' mesh, if gradients are not settled yet
 * @errors     EINVAL `most` negative or NaN; EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_clip_value(sherd_optimizer *optimizer, double most);

/*
 * Several optimizers that are clipped as one: of the stages of a pipeline, or of a model and its
 * adapters. A gradient belongs to one of them only.
 */
typedef struct sherd_optimizers {
    const sherd_mesh *mesh; /* with all ranks of their parameters' meshes; may be one of them */
    sherd_optimizer *const *list; /* [count] those that this rank has, in one order everywhere */
    int count;                    /* may differ between ranks, and be 0 */
} sherd_optimizers;

/**
 * The 2-norm of the gradients of all these optimizers, each element counted once, tied parameters
 * too (sherd_pipeline_tie); equal on all ranks; NaN after the alarm. They are settled one after the
 * other; then ranks exchange two numbers. A grad_scale of most / norm in the step of each clips
 * them without another pass.
 *
 * @collective all->mesh, also its ranks that have no parameter in any of them
 * @numerics   squares are added in f64; the sums of ranks in rank order
 * @errors     EINVAL `all`, its mesh or an optimizer is NULL, a negative count, an optimizer of
 *             another world, or with parameters on ranks outside the mesh, or gradients that
 *             another one has too;
 *             EDIFFER gradients of plain parameters are not equal on all ranks of the mesh; ENOMEM;
 *             EPEER; by the alarm, and NaN is returned
 */
SHERD_API double sherd_optimizers_grad_norm(const sherd_optimizers *all);

/**
 * Scale all gradients of these optimizers so that their 2-norm together is at most `most`, as
 * sherd_optimizer_clip. Returns the norm before scaling; if it is not finite, nothing is scaled.
 *
 * @collective all->mesh, as sherd_optimizers_grad_norm
 * @numerics   as sherd_optimizers_grad_norm
 * @errors     EINVAL `most` negative or NaN; otherwise as sherd_optimizers_grad_norm
 */
SHERD_API double sherd_optimizers_clip(const sherd_optimizers *all, double most);

/**
 * The p-norm of the gradients of all these optimizers: of theirs as sherd_optimizer_grad_norm_of,
 * counted as sherd_optimizers_grad_norm counts them.
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
 * One step. Gradients are multiplied by `grad_scale` (1 = unchanged; max_norm / norm clips them; -1
 * climbs, as PyTorch's `maximize`), the learning rate by that of a group. Parameters without a
 * gradient do not change. Gradients are kept; see sherd_optimizer_clear.
 *
 * @collective the parameters' mesh, if gradients are not settled yet, or where memory is taken: in
 *             the first step of a parameter that was frozen, or on GPUs
 * @errors     EINVAL a learning rate that is negative or not finite, a grad_scale that is not
 *             finite, and nothing changes; state that an earlier step lost when it failed; EDIFFER;
 *             ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_step(sherd_optimizer *optimizer, double learning_rate,
                                    double grad_scale);

/** Drop all gradients. @local @errors none */
SHERD_API void sherd_optimizer_clear(sherd_optimizer *optimizer);

/**
 * All tensors of the optimizer's state, to save beside those of the module (sherd_module_state).
 * Their names begin with the parameter's, as in "blocks.0.attn.wq.weight.m": m and v for Adam and
 * AdamW, and vmax with amsgrad; m for Lion and for a matrix of Muon; v, and mean and momentum if
 * its options want them, for RMSprop; sum for Adagrad; momentum for SGD; exact for a 16-bit
 * parameter (its f32 copy), and steps (i64 []: how many steps had a gradient). They have the layout
 * of the parameter; steps is on all its ranks. Those of frozen parameters are not there yet. Groups
 * are not part of it.
 *
 * @local  may wait until peers have read an exact copy
 * @shapes out: sherd_named_state[room], or NULL to count only
 * @owns   entries are borrowed, until the optimizer is destroyed
 * @errors none; returns how many there are, even if `room` is smaller
 */
SHERD_API int sherd_optimizer_state(sherd_optimizer *optimizer, sherd_named_state *out, int room);

/**
 * Set a tensor of state to the values of another tensor, which is moved to its layout: for resuming
 * a run, on any ranks and layouts. Load the module first: writing a 16-bit parameter afterwards
 * makes its exact copy anew.
 *
 * @collective as sherd_module_load
 * @shapes     name: as sherd_state_name writes it; root: as in sherd_module_load
 * @numerics   values are copied bit for bit
 * @owns       `t` is only read
 * @errors     EINVAL no such state; otherwise as sherd_module_load. On failure the old values stay
 */
SHERD_CALL sherd_status sherd_optimizer_load(sherd_optimizer *optimizer, const char *name,
                                             sherd_tensor *t, int root);

/*
 * Learning-rate schedules: factors for the rate, each a pure function of the step (from 0), so a
 * resumed run continues as it would have. They can be multiplied:
 * rate = 3e-4 * sherd_schedule_warmup(step, 100) * sherd_schedule_cosine(step, 10000, 0.1).
 */

/** `factor` in the first `steps` steps, then 1. @local @errors none */
SHERD_API double sherd_schedule_constant(int64_t step, int64_t steps, double factor);
/** (step + 1) / steps, at most 1. @local @errors none */
SHERD_API double sherd_schedule_warmup(int64_t step, int64_t steps);

/**
 * A line from `first` at step 0 to `last` at `steps`, constant from there on.
 *
 * @local   @errors none
 */
SHERD_API double sherd_schedule_linear(int64_t step, int64_t steps, double first, double last);

/**
 * Half a cosine from 1 at step 0 to `last` at `steps`, constant from there on.
 *
 * @local   @errors none
 */
SHERD_API double sherd_schedule_cosine(int64_t step, int64_t steps, double last);

/** `factor` to the power of floor(step / every). @local @errors none; 1 if `every` < 1 */
SHERD_API double sherd_schedule_step(int64_t step, int64_t every, double factor);
/** `factor` to the power of the step. @local @errors none */
SHERD_API double sherd_schedule_exponential(int64_t step, double factor);

SHERD_END

#endif
