/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules with parameters. The parameters of a new layer are plain, and equal on all ranks:
 * random values depend only on the world's seed and on `name`. They are deferred until their data
 * is first needed (see sherd_random_later); so after sherd_parallelize each rank draws only its
 * part, and no rank needs memory for all of them. Dtypes are floating-point. A layer that is called
 * with tensors that it does not take, positional or keyword, fails (EINVAL).
 *
 *     sherd_module *up; // a Linear with 1024 inputs and 4096 outputs
 *     const sherd_layer_options options = {.name = "blocks.0.up", .bias = true};
 *     if (sherd_linear_create(&up, world, 1024, 4096, &options) ||
 *         sherd_module_add(model, "up", up))
 *         return 1;
 */
#ifndef SHERD_LAYERS_H
#define SHERD_LAYERS_H

#include "module.h"
#include "ops.h"
#include "ops_layers.h"
#include "ops_stencil.h"

SHERD_BEGIN

/* Whether a norm has an optional part. */
typedef enum sherd_norm_part {
    SHERD_NORM_USUAL = 0, /* PyTorch's default */
    SHERD_NORM_WITH,
    SHERD_NORM_WITHOUT
} sherd_norm_part;

/* All zero = f32, standard deviation 0.02, no bias. */
typedef struct sherd_layer_options {
    /*
     * names the generator of the initial values: pass the path that the layer will have. Layers of
     * one shape that have the same name, or none, begin with the same values
     */
    const char *name;
    sherd_dtype dtype;  /* f32, f64, bf16 or f16; SHERD_DTYPE_NONE = f32 */
    double deviation;   /* of the weights; 0 = 0.02 */
    bool bias;          /* Linear, convolutions: have a bias, initially zero */
    bool zero;          /* weights are zero, not random: for models that are read from a file */
    bool low;           /* layer and RMS norms: under autocast the result has the 16-bit dtype */
    int64_t kv_heads;   /* attention: heads of keys and values; 0 = as many as of queries */
    int64_t head_width; /* attention: width of each head; 0 = width / heads */
    bool norm_heads;    /* attention: RMS norms of each head of queries and keys, before rotary */
    const sherd_rotary_options *rotary; /* attention: rotate queries and keys; NULL = no; copied */
    double eps; /* layer norms: 0 = 1e-5; norms of heads: as that of sherd_rms_norm_create */
    sherd_norm_part affine; /* layer and RMS norms: SHERD_NORM_WITHOUT = no weight and no bias */
    bool no_bias;           /* layer norms: a weight only */
} sherd_layer_options;

/**
 * Linear: y = x W^T + b. Parameters: weight [features, in] and, with options->bias, bias
 * [features].
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_linear_create(sherd_module **out, sherd_world *world, int64_t in,
                                            int64_t features, const sherd_layer_options *options);

/**
 * Change all Linears and experts of a module, those below it included, in place: their weights
 * become numbers of 8 or 4 bits with a scale for each row, or with a group for each `group` columns
 * of a row (see ops_quantized.h). The parameter "weight" (of experts "w1", "w2", "w3") becomes a
 * buffer "weight" of i8, or of u8 with half as many columns, beside a buffer "weight_scale" of f32,
 * both in the layout that it had; so styles, hooks and files take them by the paths of before.
 * Without a gradient; that of the input, and of the bias, is as it was. A weight that others have
 * too, as where it is tied to an embedding, stays theirs. Optimizers are made afterwards: a step of
 * one that has such a weight is refused.
 *
 * Load first, then quantize. To load a file that was saved afterwards, make the modules with
 * options->zero, quantize, and load. sherd_module_write notes bits and group of each, and
 * sherd_module_read refuses a file that notes others. sherd_module_cast leaves scales as they are.
 *
 * @collective the world, if any weight is distributed; otherwise local
 * @shapes     bits: 8 or 4; group: columns, 0 = all of a row
 * @errors     EINVAL `module` is NULL or has no such weight, other bits, a negative group, a weight
 *             that has a gradient, was lost or is fully sharded, of 4 bits an odd group, an odd
 *             number of columns or a weight whose columns are cut at an odd one, the module or one
 *             below or above it is being called, or backward may run it again; EDIFFER; ENOMEM,
 *             EPEER: then only some weights are changed
 */
SHERD_CALL sherd_status sherd_module_quantize(sherd_module *module, int bits, int64_t group);

/**
 * Embedding: the rows of a table (sherd_embedding). Parameter: weight [entries, width].
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_embedding_create(sherd_module **out, sherd_world *world,
                                               int64_t entries, int64_t width,
                                               const sherd_layer_options *options);

/**
 * LayerNorm: normalise the last dim, with options->eps. Parameters: weight (ones), bias (zeros),
 * [width], if options->affine and no_bias do not leave them out.
 *
 * If the module is called with two positional tensors, x and delta, it has the two outputs of
 * sherd_add_layer_norm: the norm of x + delta, and x + delta. Styles apply to x; delta is moved to
 * match it, as an operand of an operator.
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, an eps that is negative or NaN; ENOMEM
 */
SHERD_CALL sherd_status sherd_layer_norm_create(sherd_module **out, sherd_world *world,
                                                int64_t width, const sherd_layer_options *options);

/**
 * Dropout with probability p in training mode, nothing in evaluation mode. Random numbers come from
 * the module's own generator.
 *
 * @local
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL p outside [0, 1); ENOMEM
 */
SHERD_CALL sherd_status sherd_dropout_create(sherd_module **out, sherd_world *world, double p);

/**
 * Multi-head attention with the children "wq", "wk", "wv" and "wo", each a Linear [width, width]; x
 * [batch, positions, width] -> shape of x. Keys and values are computed from the keyword tensor
 * "memory" [batch, t, width] if there is one, otherwise from x. Keyword tensors "mask" and "spans"
 * replace those of `how` in this call. In evaluation mode nothing is dropped. To shard it by heads,
 * use sherd_colwise on wq, wk and wv and sherd_rowwise on wo, all with granule width / heads.
 *
 * With options->kv_heads, each head of keys and values is shared by heads / kv_heads neighbouring
 * heads of queries, and wk and wv are Linears from width to kv_heads * width / heads. So that heads
 * that share one stay on one rank, the granule of wq and wo is then width / kv_heads; that of wk
 * and wv is width / heads as before. With options->head_width, all heads together are not as wide
 * as x: read heads * head_width for width there, and wo is a Linear from that to width.
 *
 * With options->norm_heads, the children "q_norm" and "k_norm", RMSNorms [head_width], normalise
 * each head of queries and keys. With options->rotary these are then rotated (sherd_rotary); there
 * is no "memory" then, but a keyword tensor "positions" may give the positions of x; by default
 * they are counted, in the order of how->zigzag if that is set.
 *
 * @local
 * @shapes how: options of its sherd_attention; without a generator there, numbers for dropout come
 *         from the module's own; options->name: names the module, and is the prefix of its
 *         children's names; NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure. The module holds the
 *         mask and the spans of `how`, and the frequencies of options->rotary; the generator of
 *         `how` must live as long as the module
 * @errors EINVAL a size < 1, a width that is not a multiple of `heads` without a head_width,
 *         `heads` that is not a multiple of kv_heads, an eps that is negative or NaN; ENOMEM.
 *         Errors in options->rotary are found when the module is called
 */
SHERD_CALL sherd_status sherd_attention_create(sherd_module **out, sherd_world *world,
                                               int64_t width, int64_t heads,
                                               const sherd_attention_options *how,
                                               const sherd_layer_options *options);

typedef struct sherd_experts_options {
    int64_t experts, k; /* how many experts there are, and how many each token goes through */
    int64_t hidden;     /* width inside an expert */
    bool whole_scores;  /* scores are the softmax over all experts, not only over the chosen ones */
    bool balance;       /* add a second output: a loss that is least if experts are used evenly */
} sherd_experts_options;

/**
 * A mixture of experts. The child "router" (a Linear [experts, width] without bias) gives each
 * token a logit for every expert; the token goes through the k experts with the largest logits, and
 * their results, times their scores, are added. Scores are the softmax over the logits of these k
 * experts (see whole_scores). An expert computes w2 (silu(w1 x) * (w3 x)). x [..., width] -> shape
 * of x. Parameters: w1 and w3 [experts, hidden, width], w2 [experts, width, hidden].
 *
 * With sherd_expert_parallel the experts are sharded, and rows go where their experts are
 * (ops_groups.h): no token is dropped and none is padded. Tokens [batch, positions] may be sharded
 * by either dim; if both are, positions are gathered.
 *
 * The balance loss is experts * sum over e of (how often e was chosen / tokens) * (mean over tokens
 * of the softmax over all logits at e), which is k if experts are used evenly. It is a scalar, f32
 * if the router has a 16-bit dtype. Its gradient flows through the softmax only.
 *
 * @local
 * @shapes how: not NULL; options->name: names the module, and is the prefix of its parameters'
 *         names; options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, k above the number of experts, a bias; ENOMEM
 */
SHERD_CALL sherd_status sherd_experts_create(sherd_module **out, sherd_world *world, int64_t width,
                                             const sherd_experts_options *how,
                                             const sherd_layer_options *options);

/**
 * RMSNorm: divide by the root of the mean of squares over the last dim (sherd_rms_norm). Parameter:
 * weight (ones), [width], unless options->affine leaves it out. Two positional tensors as in
 * sherd_layer_norm_create, with sherd_add_rms_norm.
 *
 * @local
 * @shapes eps: 0 = PyTorch's default, the machine epsilon of f32, for f64 that of f64
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, an eps that is negative or NaN; ENOMEM
 */
SHERD_CALL sherd_status sherd_rms_norm_create(sherd_module **out, sherd_world *world, int64_t width,
                                              double eps, const sherd_layer_options *options);

/* All zero = PyTorch's defaults. */
typedef struct sherd_norm_options {
    double eps;               /* 0 = 1e-5 */
    double momentum;          /* weight of the newest batch in running averages; 0 = 0.1 */
    bool cumulative;          /* instead: all batches have the same weight (momentum=None) */
    sherd_norm_part affine;   /* whether it has weight (ones) and bias (zeros), [channels] */
    sherd_norm_part averages; /* whether it has running averages (track_running_stats) */
} sherd_norm_options;

/**
 * GroupNorm: normalise groups of channels of each item of [items, channels, ...]
 * (sherd_group_norm). Parameters by default: weight, bias.
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
 * BatchNorm: normalise channels of [items, channels, ...] over the whole batch, however it is
 * sharded (sherd_batch_norm). Parameters by default: weight, bias. Buffers by default: running_mean
 * (zeros) and running_var (ones), [channels], f32 for 16-bit dtypes, and num_batches_tracked, i64.
 * In training mode the buffers are updated, once per call even if the module is checkpointed; in
 * evaluation mode the module normalises by them. Without buffers it always uses the moments of its
 * argument.
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
 * InstanceNorm: normalise each channel of each item of [items, channels, ...]
 * (sherd_instance_norm). As sherd_batch_norm_create, but by default it has neither parameters nor
 * buffers. It counts num_batches_tracked (PyTorch's stays 0).
 *
 * @local   @shapes how, options: NULL = all zero   @owns as there   @errors as there
 */
SHERD_CALL sherd_status sherd_instance_norm_create(sherd_module **out, sherd_world *world,
                                                   int64_t channels, const sherd_norm_options *how,
                                                   const sherd_layer_options *options);

/**
 * Convolution of [items, in, ...] with `dims` spatial dims (sherd_conv). Parameters: weight
 * [features, in / groups, kernel ...], drawn uniformly within +-1 / sqrt(in / groups * elements of
 * the kernel), or from a normal distribution if options->deviation is set; and with options->bias,
 * bias [features], zeros.
 *
 * @local
 * @shapes kernel: int64_t[dims]; how, options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, dims not 1 to 3, channels that are not a multiple of the groups;
 *         ENOMEM. Other errors in `how` are found when the module is called
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
