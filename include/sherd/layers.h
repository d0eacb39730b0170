/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules with parameters. A new layer has plain parameters, equal on all ranks. Random
 * ones are drawn from (the world's seed, `name`), and deferred until their data is first needed
 * (see sherd_random_later): so sherd_parallelize draws each rank's part, and no rank needs room for
 * all of it. Dtypes are floating-point.
 */
#ifndef SHERD_LAYERS_H
#define SHERD_LAYERS_H

#include "module.h"
#include "ops.h"
#include "ops_stencil.h"

SHERD_BEGIN

/* All zero = f32, standard deviation 0.02, no bias. */
typedef struct sherd_layer_options {
    /* names the generator of the initial values; give the path that the layer will have */
    const char *name;
    sherd_dtype dtype; /* f32, f64, bf16 or f16; SHERD_DTYPE_NONE = f32 */
    double deviation;  /* of the weights; 0 = 0.02 */
    bool bias;         /* Linear, convolutions: have a bias, initially zero */
    bool zero;         /* weights are zero, not drawn: for those that are read from a file */
    bool low;          /* layer and RMS norms: under autocast the norm has its 16-bit dtype */
    int64_t kv_heads;  /* attention: heads of keys and values; 0 = as many as there are heads */
} sherd_layer_options;

/**
 * y = x W^T + b. Parameters: weight [out, in], bias [out].
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_linear_create(sherd_module **out, sherd_world *world, int64_t in,
                                            int64_t features, const sherd_layer_options *options);

/**
 * Rows of a table. Parameter: weight [entries, width].
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_embedding_create(sherd_module **out, sherd_world *world,
                                               int64_t entries, int64_t width,
                                               const sherd_layer_options *options);

/**
 * Normalise the last dim, with eps 1e-5. Parameters: weight (ones), bias (zeros), both [width].
 *
 * Called with two positional tensors, x and delta, it returns two results of sherd_add_layer_norm:
 * the norm of x + delta, and x + delta. Styles apply to x; delta is moved to match it, as operands
 * of operators are.
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_layer_norm_create(sherd_module **out, sherd_world *world,
                                                int64_t width, const sherd_layer_options *options);

/**
 * Dropout with probability p in training mode; it draws from the module's own generator.
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL p outside [0, 1); ENOMEM
 */
SHERD_CALL sherd_status sherd_dropout_create(sherd_module **out, sherd_world *world, double p);

/**
 * Multi-head attention with the children "wq", "wk", "wv" and "wo", each a Linear [width, width]; x
 * [batch, positions, width] -> shape of x. Keys and values are computed from the keyword tensor
 * "memory" [batch, t, width] if there is one, otherwise from x. To split it by heads, use Colwise
 * on wq, wk and wv and Rowwise on wo, with granule width / heads.
 *
 * With options->kv_heads, neighbouring heads share those of keys and values, heads / kv_heads each:
 * wk and wv are Linears from width to kv_heads * width / heads. To split it so that nothing travels
 * between heads, the granule of wq and wo is then all heads that share one, width / kv_heads, and
 * that of wk and wv remains width / heads.
 *
 * @local
 * @shapes how, options: NULL = all zero; options->name is the module's, and the prefix of the
 *         children's
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, a width that is not a multiple of the heads, heads that are not one of
 *         kv_heads; ENOMEM
 */
SHERD_CALL sherd_status sherd_attention_create(sherd_module **out, sherd_world *world,
                                               int64_t width, int64_t heads,
                                               const sherd_attention_options *how,
                                               const sherd_layer_options *options);

typedef struct sherd_experts_options {
    int64_t experts, k; /* how many there are, and how many of them a token goes through */
    int64_t hidden;     /* width inside an expert */
    /* scores are the softmax over all experts, not over those that were chosen */
    bool whole_scores;
    bool balance; /* a second output: the loss that is least if all experts have as much to do */
} sherd_experts_options;

/**
 * A mixture of experts: each token goes through the k experts for which its row of the child
 * "router" (a Linear [experts, width] without bias) is largest, and the results, times their
 * scores, are added. An expert is w2 (silu(w1 x) * (w3 x)). x [..., width] -> shape of x.
 * Parameters: w1 and w3 [experts, hidden, width], w2 [experts, width, hidden].
 *
 * With sherd_expert_parallel the experts are sharded, and rows go to them (ops_groups.h): no token
 * is left out and none is padded. Tokens [batch, positions] may be sharded by either dim; if both
 * are, positions are gathered.
 *
 * The balance is experts * sum over e of (choices of e / tokens) * (mean of the softmax of e): k if
 * choices are even. It is a scalar, of f32 if the router has 16 bits; only the softmax has a
 * gradient.
 *
 * @local
 * @shapes how: must be given; options: NULL = all zero; options->name is the module's, and the
 *         prefix of its parameters'
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, k above the number of experts, a bias; ENOMEM
 */
SHERD_CALL sherd_status sherd_experts_create(sherd_module **out, sherd_world *world, int64_t width,
                                             const sherd_experts_options *how,
                                             const sherd_layer_options *options);

/**
 * Normalise the last dim by the root of the mean of its squares (sherd_rms_norm). Parameter: weight
 * (ones) [width]. Called with x and delta it works as sherd_layer_norm_create, with
 * sherd_add_rms_norm.
 *
 * @local
 * @shapes eps: 0 = as PyTorch, the distance from 1 to the next f32 (for f64, the next f64)
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, an eps that is negative or NaN; ENOMEM
 */
SHERD_CALL sherd_status sherd_rms_norm_create(sherd_module **out, sherd_world *world, int64_t width,
                                              double eps, const sherd_layer_options *options);

/* Whether a norm has an optional part. */
typedef enum sherd_norm_part {
    SHERD_NORM_USUAL = 0, /* PyTorch's default */
    SHERD_NORM_WITH,
    SHERD_NORM_WITHOUT
} sherd_norm_part;

/* All zero = PyTorch's defaults. */
typedef struct sherd_norm_options {
    double eps;               /* 0 = 1e-5 */
    double momentum;          /* of running averages: the weight of the newest batch; 0 = 0.1 */
    bool cumulative;          /* instead of momentum: all batches weigh the same (momentum None) */
    sherd_norm_part affine;   /* weight (ones) and bias (zeros), [channels] */
    sherd_norm_part averages; /* running averages (track_running_stats) */
} sherd_norm_options;

/**
 * Normalise groups of channels of each item of [items, channels, ...] (sherd_group_norm).
 * Parameters by default: weight, bias.
 *
 * @local
 * @shapes how, options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, channels that are not a multiple of groups, an eps that is negative or
 *         NaN, running averages; ENOMEM
 */
SHERD_CALL sherd_status sherd_group_norm_create(sherd_module **out, sherd_world *world,
                                                int64_t channels, int64_t groups,
                                                const sherd_norm_options *how,
                                                const sherd_layer_options *options);

/**
 * Normalise channels of [items, channels, ...] over the whole batch, however it is sharded
 * (sherd_batch_norm). Parameters by default: weight, bias. Buffers by default: running_mean (zeros)
 * and running_var (ones), [channels], in f32 for 16-bit dtypes, and num_batches_tracked, i64. In
 * training mode they are updated, once per call even if it is checkpointed; in evaluation mode the
 * module normalises by them. Without them it always uses the moments of its argument.
 *
 * @local
 * @shapes how, options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, an eps or momentum that is negative or NaN; ENOMEM
 */
SHERD_CALL sherd_status sherd_batch_norm_create(sherd_module **out, sherd_world *world,
                                                int64_t channels, const sherd_norm_options *how,
                                                const sherd_layer_options *options);

/**
 * Normalise each channel of each item of [items, channels, ...] (sherd_instance_norm). As
 * sherd_batch_norm_create, but by default it has neither parameters nor buffers. It updates
 * num_batches_tracked (PyTorch's stays 0).
 *
 * @local   @shapes how, options: NULL = all zero   @owns as there   @errors as there
 */
SHERD_CALL sherd_status sherd_instance_norm_create(sherd_module **out, sherd_world *world,
                                                   int64_t channels, const sherd_norm_options *how,
                                                   const sherd_layer_options *options);

/**
 * Convolution of [items, in, ...] with `dims` spatial dims (sherd_conv). Parameters: weight
 * [features, in / groups, kernel ...], drawn uniformly within +-1 / sqrt(in / groups * elements of
 * the kernel), or normally if options->deviation is set; and bias [features], zeros.
 *
 * @local
 * @shapes kernel: int64_t[dims]; how, options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, dims not 1 to 3, channels that are not a multiple of the groups;
 *         ENOMEM. Other errors in `how` are found when it is called
 */
SHERD_CALL sherd_status sherd_conv_create(sherd_module **out, sherd_world *world, int64_t in,
                                          int64_t features, int dims, const int64_t *kernel,
                                          const sherd_conv_options *how,
                                          const sherd_layer_options *options);

/**
 * Transposed convolution (sherd_conv_transposed). Parameters: weight [in, features / groups, kernel
 * ...], initialised as in sherd_conv_create with features / groups in place of in / groups, and
 * bias.
 *
 * @local   @shapes as sherd_conv_create   @owns as there   @errors as there
 */
SHERD_CALL sherd_status sherd_conv_transposed_create(sherd_module **out, sherd_world *world,
                                                     int64_t in, int64_t features, int dims,
                                                     const int64_t *kernel,
                                                     const sherd_conv_options *how,
                                                     const sherd_layer_options *options);

SHERD_END

#endif
