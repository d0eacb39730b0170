/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules with parameters. A layer is made with plain parameters, equal on all ranks and drawn from
 * (the world's seed, `name`) when their data is first needed (see sherd_random_later): sherd_parallelize draws
 * each rank's part, and no rank has to have room for all of it. Dtypes have fractions.
 */
#ifndef SHERD_LAYERS_H
#define SHERD_LAYERS_H

#include "module.h"
#include "ops.h"
#include "ops_stencil.h"

SHERD_BEGIN

/* All zero = f32, standard deviation 0.02, no bias. */
typedef struct sherd_layer_options {
    /* names the generator of the first values; give the path that the layer will have */
    const char *name;
    sherd_dtype dtype; /* f32, f64, bf16 or f16; SHERD_DTYPE_NONE = f32 */
    double deviation;  /* of the weights; 0 = 0.02 */
    bool bias;         /* Linear, convolutions: with a bias, zero at first */
    bool
        low; /* layer and RMS norms: while autocast is on, the norm has its dtype; for norms that products read */
} sherd_layer_options;

/**
 * y = x W^T + b. Parameters: weight [out, in], bias [out].
 *
 * @local   @owns the caller destroys *out or adds it to a module; NULL on failure   @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_linear_create(sherd_module **out, sherd_world *world, int64_t in,
                                            int64_t features, const sherd_layer_options *options);

/**
 * Rows of a table. Parameter: weight [entries, width].
 *
 * @local   @owns the caller destroys *out or adds it to a module; NULL on failure   @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_embedding_create(sherd_module **out, sherd_world *world,
                                               int64_t entries, int64_t width,
                                               const sherd_layer_options *options);

/**
 * Normalise the last dim, eps 1e-5. Parameters: weight (ones), bias (zeros), both [width].
 *
 * Called with two positional tensors, x and delta, it gives two results by sherd_add_layer_norm: the norm of x + delta, and x + delta.
 * Styles look at x; a delta that lies otherwise is brought together with it as operands of operators are.
 *
 * @local   @owns the caller destroys *out or adds it to a module; NULL on failure   @errors EINVAL a size < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_layer_norm_create(sherd_module **out, sherd_world *world,
                                                int64_t width, const sherd_layer_options *options);

/**
 * Dropout with probability p while training; draws from the module's own generator.
 *
 * @local   @owns the caller destroys *out or adds it to a module; NULL on failure   @errors EINVAL p outside of [0, 1); ENOMEM
 */
SHERD_CALL sherd_status sherd_dropout_create(sherd_module **out, sherd_world *world, double p);

/**
 * Multi-head attention: children "wq", "wk", "wv" and "wo", each a Linear [width, width]; x [batch, positions, width] -> as
 * x. Keys and values come from the keyword tensor "memory" [batch, t, width] if there is one, else from x. By heads it is
 * split with Colwise on w[qkv] and Rowwise on wo, granule width / heads.
 *
 * @local
 * @shapes how, options: NULL = all zero; options->name is that of the module, and names those of the children
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, a width that is no multiple of the heads; ENOMEM
 */
SHERD_CALL sherd_status sherd_attention_create(sherd_module **out, sherd_world *world,
                                               int64_t width, int64_t heads,
                                               const sherd_attention_options *how,
                                               const sherd_layer_options *options);

/**
 * Normalise the last dim by the root of the mean of its squares (sherd_rms_norm). Parameter: weight (ones) [width]. Of x and delta as
 * there, by sherd_add_rms_norm.
 *
 * @local
 * @shapes eps: 0 = as PyTorch: the distance from 1 to the next f32, of f64 to the next f64
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, an eps that is negative or NaN; ENOMEM
 */
SHERD_CALL sherd_status sherd_rms_norm_create(sherd_module **out, sherd_world *world, int64_t width,
                                              double eps, const sherd_layer_options *options);

/* Whether a norm has something that it may have. */
typedef enum sherd_norm_part {
    SHERD_NORM_USUAL = 0, /* as PyTorch's has it by default */
    SHERD_NORM_WITH,
    SHERD_NORM_WITHOUT
} sherd_norm_part;

/* All zero = PyTorch's defaults. */
typedef struct sherd_norm_options {
    double eps;      /* 0 = 1e-5 */
    double momentum; /* of running averages: the part that the last batch has; 0 = 0.1 */
    bool cumulative; /* in the place of momentum: all batches have an equal part (momentum None) */
    sherd_norm_part affine;   /* weight (ones) and bias (zeros), [channels] */
    sherd_norm_part averages; /* running averages (track_running_stats) */
} sherd_norm_options;

/**
 * Normalise groups of channels of each item of [items, channels, ...] (sherd_group_norm). Parameters, usually: weight, bias.
 *
 * @local
 * @shapes how, options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, channels that are no multiple of groups, an eps that is negative or NaN, averages; ENOMEM
 */
SHERD_CALL sherd_status sherd_group_norm_create(sherd_module **out, sherd_world *world,
                                                int64_t channels, int64_t groups,
                                                const sherd_norm_options *how,
                                                const sherd_layer_options *options);

/**
 * Normalise channels of [items, channels, ...] over the whole batch, however it is sharded (sherd_batch_norm). Parameters,
 * usually: weight, bias. Buffers, usually: running_mean (zeros), running_var (ones), [channels], f32 of 16 bits, and
 * num_batches_tracked, i64. They are written while training, once for a call that is checkpointed; else the module
 * normalises by them. Without them it always takes the moments of its argument.
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
 * Normalise each channel of each item of [items, channels, ...] (sherd_instance_norm). As sherd_batch_norm_create, but it
 * usually has neither parameters nor buffers. It counts num_batches_tracked (PyTorch's stays 0).
 *
 * @local   @shapes how, options: NULL = all zero   @owns as there   @errors as there
 */
SHERD_CALL sherd_status sherd_instance_norm_create(sherd_module **out, sherd_world *world,
                                                   int64_t channels, const sherd_norm_options *how,
                                                   const sherd_layer_options *options);

/**
 * Convolution of [items, in, ...] with `dims` dims of space (sherd_conv). Parameters: weight [features, in / groups, kernel ...], uniform
 * within 1 / sqrt(in / groups * elements of the kernel) on both sides of 0 unless options->deviation says a normal one, and
 * bias [features], zero at first.
 *
 * @local
 * @shapes kernel: int64_t[dims]; how, options: NULL = all zero
 * @owns   the caller destroys *out or adds it to a module; NULL on failure
 * @errors EINVAL a size < 1, dims outside of 1 to 3, channels that are no multiple of the groups; ENOMEM. What else is wrong
 *         with `how` is said when it runs
 */
SHERD_CALL sherd_status sherd_conv_create(sherd_module **out, sherd_world *world, int64_t in,
                                          int64_t features, int dims, const int64_t *kernel,
                                          const sherd_conv_options *how,
                                          const sherd_layer_options *options);

/**
 * Transposed convolution (sherd_conv_transposed). Parameters: weight [in, features / groups, kernel ...], first values as
 * sherd_conv_create with features / groups in the place of in / groups, and bias.
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
