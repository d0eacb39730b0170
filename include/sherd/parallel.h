/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles: recipes that make a module tensor-parallel along one mesh axis. A style is a plain value
 * and is never changed. Tensors stay distributed between styles, unless to_local is set. Styles
 * leave all other axes of the mesh as they are.
 *
 * A style handles the first positional argument, or, for the Prepare styles with slots, every
 * tensor that has a slot. A plain tensor becomes distributed:
 * - one that came out of sherd_to_local gets back its layout;
 * - one that does not vary is the whole tensor, and so replicated, even if the style expects a
 *   shard;
 * - any other has the placement that the style's `input`, or the slot's `lies`, says (if unset: the
 *   style's own input; for a slot it is an error). It must not vary over the other axes of the
 *   mesh, and one that is known to vary over the style's axis cannot be replicated.
 *
 * All outputs are moved to `output`, or each as its slot says.
 */
#ifndef SHERD_PARALLEL_H
#define SHERD_PARALLEL_H

#include <stdio.h>

#include "module.h"

SHERD_BEGIN

typedef struct sherd_style sherd_style;

/*
 * One tensor on its way into or out of a module. All zero: it is left alone, whatever it is, even
 * NULL.
 */
typedef struct sherd_slot {
    const char *name; /* of a keyword input; NULL = the next positional one, or the next output */
    /* the placement that a plain tensor has, and that a distributed one must have; unset = any */
    sherd_placement lies;
    sherd_placement desired; /* what it is moved to; unset = it is not moved */
} sherd_slot;

/*
 * What a style does to a module along (mesh, axis); for user-defined styles. Local: ranks agree
 * after the whole plan has been applied. A return value that is not a status counts as EINVAL.
 */
typedef sherd_status (*sherd_style_apply)(const sherd_style *style, sherd_module *module,
                                          const sherd_mesh *mesh, int axis);

struct sherd_style {
    sherd_style_apply apply;
    const char *name; /* for messages */
    /*
     * The placement of the argument; a distributed tensor with another one is an error; unset =
     * any. A plain tensor that does not vary is the whole: if a shard is declared, it is cut.
     */
    sherd_placement input;
    sherd_placement desired; /* what the forward gets; unset = the style's own */
    sherd_placement output;  /* what outputs are moved to; unset = the style's own */
    bool to_local;           /* outputs leave as plain tensors */
    int64_t granule;         /* neighbours of the sharded dim that stay on one rank; 0 = 1 */
    int sequence_dim;        /* of sherd_sequence_parallel, which sets 1; may be negative */
    const void *payload;     /* for user-defined styles */
    /*
     * Prepare styles: one slot for each positional input, then slots for named inputs; one slot for
     * each output. With slots, `input`, `desired` or `output` is ignored. There must be as many
     * positional inputs, and outputs, as slots. A named input that has a slot must be among the
     * arguments (its tensor may be NULL); other named inputs are left alone.
     */
    const sherd_slot *inputs, *outputs;
    int input_count, output_count; /* 0 = no slots; at most SHERD_MAX_ARGS */
    bool local_input; /* inputs that are not left alone reach the forward as plain tensors */
    /* keep inputs that the style gathers for backward; otherwise backward gathers them again */
    bool keep_gathered;
};

/**
 * Linear: weight and bias sharded by output feature; Embedding: by width. Input R, output S(-1).
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_colwise(void);

/**
 * Linear: weight sharded by input feature, bias replicated and added once; Embedding: sharded by
 * entry. Input S(-1) (Embedding: R), output R.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_rowwise(void);

/**
 * Norms, Dropout: parameters replicated, input and output S(sequence_dim), by default dim 1.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_sequence_parallel(void);

/**
 * Any module: its first positional argument is moved from `input` to `desired` (R if unset), or all
 * inputs as `inputs` says.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_prepare_input(void);

/**
 * Any module: all outputs are moved to `output`, or as `outputs` says; inputs are left alone.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_prepare_output(void);

/** Any module: sherd_prepare_input and sherd_prepare_output in one. @local @errors none */
SHERD_API sherd_style sherd_prepare_input_output(void);

/**
 * sherd_experts_create, or a module of one's own: those of its parameters that have three dims are
 * sharded by the first, the experts. Tensors are left as they are: rows go where their experts are.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_expert_parallel(void);

/**
 * sherd_experts_create: each rank computes some of the hidden features of every expert that it has
 * (w1 and w3 are sharded by dim 1, w2 by dim 2). Input R, output R; the balance is left as it is.
 * Along another axis than sherd_expert_parallel, or without it.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_expert_tensor_parallel(void);

/**
 * For user-defined styles: put a parameter or buffer on the mesh, with `placement` on the axis; a
 * plain one is replicated on all others. The built-in styles use it too. To move tensors, a style
 * calls another one: `s = sherd_prepare_input_output()`, set its slots, then `s.apply(&s, module,
 * mesh, axis)`.
 *
 * @local
 * @shapes   placement: replicated, or a shard of a dim (negative counts from the end); granule: how
 *           many neighbouring elements of that dim stay on one rank, 0 = 1
 * @numerics every rank keeps its part of a tensor that is equal everywhere, or draws it if it is
 *           deferred; nothing is sent
 * @owns     the module keeps the new tensor in place of the old one, wherever that is tied
 * @errors   EINVAL no such axis, parameter, buffer or dim, a pending placement, a negative granule,
 *           a granule of a dim that other axes shard already, a mesh of another world, a tensor
 *           that varies, or that was placed on this axis before; ENOMEM
 */
SHERD_CALL sherd_status sherd_style_place_parameter(sherd_module *module, const char *name,
                                                    const sherd_mesh *mesh, int axis,
                                                    sherd_placement placement, int64_t granule);

typedef struct sherd_parallel_entry {
    /* names joined by dots, with shell wildcards (* ? [..]) that match one level; "" is the root */
    const char *path;
    sherd_style style;
} sherd_parallel_entry;

/**
 * Make a module parallel: apply each entry's style to every module that its path matches, then
 * replicate on the mesh all parameters and buffers that no style has placed.
 *
 * All paths are matched before anything changes. Tied parameters stay tied. Parameters must be
 * equal on all ranks: see sherd_module_equalize. A module may be made parallel along several axes
 * of a mesh, by one call for each: what an earlier call has replicated, or sharded by other axes,
 * is sharded further.
 *
 * On ranks outside the mesh the module stays as it is, with plain parameters: they must not call it
 * with tensors of the mesh, as its outputs would have other layouts there. The stages of a pipeline
 * meet at a tensor that moves from one mesh to another, which all ranks call. A rank outside the
 * source's mesh moves sherd_constant_on of the source's layout, which requires a gradient; and one
 * outside the target's mesh begins sherd_backward_with from sherd_constant_on of the target's.
 *
 * @collective the world; ranks outside the mesh only agree
 * @shapes     mesh, axis: a mesh or sub-mesh, and the name of the axis that the styles use; plan:
 *             [count]
 * @numerics   every rank keeps its part of parameters that are equal everywhere, or draws it if
 *             they are deferred, with the same values; nothing is sent
 * @owns       `plan` is only read; the module keeps copies of the styles and their slots
 * @errors     EINVAL no such axis, a path that matches nothing (similar names are listed), a style
 *             that does not fit the module, a parameter that varies or is placed twice; ENOMEM;
 *             EDIFFER; after an error the module is partly changed
 */
SHERD_CALL sherd_status sherd_parallelize(sherd_module *module, const sherd_mesh *mesh,
                                          const char *axis, const sherd_parallel_entry *plan,
                                          int count);

/*
 * Places some parameters of one module (sherd_style_place_parameter), or none. Called for the
 * module and all below it, parents first. A return value that is not a status counts as EINVAL.
 */
typedef sherd_status (*sherd_partition)(sherd_module *module, const sherd_mesh *mesh,
                                        void *payload);

/**
 * Distribute a module by user-defined functions: `partition` is called for each module of the tree;
 * what it has not placed is replicated; `input` and `output` become hooks of `module`, which may
 * redistribute arguments and outputs.
 *
 * @collective the world; ranks outside the mesh only agree
 * @shapes     partition, input, output: each may be NULL
 * @numerics   as sherd_parallelize
 * @owns       `payload` is passed to all three functions, and must live as long as the module
 * @errors     EINVAL the module has been distributed before, a mesh of another world, a parameter
 *             that varies, what `partition` returns; ENOMEM; EDIFFER; after an error the module is
 *             partly changed
 */
SHERD_CALL sherd_status sherd_distribute_module(sherd_module *module, const sherd_mesh *mesh,
                                                sherd_partition partition, sherd_pre_hook input,
                                                sherd_hook output, void *payload);

/**
 * A table of a module after sherd_parallelize, with a row for each module that has styles,
 * parameters or buffers: its path, its styles with their axes, and its parameters with their
 * layouts.
 *
 * @local
 * @shapes out: char[room], truncated if too small, always zero-terminated; NULL only if room is 0
 * @errors none; returns the length of the whole text
 */
SHERD_API size_t sherd_parallel_text(const sherd_module *module, char *out, size_t room);

/** Print sherd_parallel_text on one rank. @local @errors EINVAL no such rank; ENOMEM */
SHERD_CALL sherd_status sherd_parallel_print(const sherd_module *module, FILE *file, int rank);

/* All zero = shard every parameter, prefetch, and gather again in backward. */
typedef struct sherd_shard_options {
    int64_t min_elements; /* smaller parameters stay replicated over the axis */
    bool no_prefetch;     /* gather a module's parameters when it is called, not ahead of that */
    /* keep what backward needs of the gathered parameters, instead of gathering it again */
    bool keep_gathered;
    /* leave parameters that the axis shards already as they are, such as experts over its ranks;
     * otherwise they are an error */
    bool skip_sharded;
} sherd_shard_options;

/**
 * Shard the parameters of a module, and of all modules below it, over an axis, usually the one that
 * shards the batch (FSDP). Each rank then holds its part (uneven if the axis does not divide it) of
 * every parameter, of its gradient, and of the state of an optimizer that is made afterwards. A
 * module's own parameters are gathered when it is called, and again for its backward (unless
 * keep_gathered), and freed as soon as it has computed; gradients are reduce-scattered as they
 * arrive. Forward functions see whole parameters (as far as other axes leave them whole) by
 * sherd_module_parameter, of the running module only.
 *
 * Use it after sherd_parallelize on another axis, or alone: then parameters that it does not shard
 * are replicated. While a module computes, the gather for the module that followed it in the last
 * call is under way, so the parameters of two modules are whole at once.
 *
 * @collective the world; ranks outside the mesh only agree
 * @shapes     mesh, axis: a mesh or sub-mesh, and the name of the axis; options: NULL = all zero
 * @numerics   values are copied bit for bit; the sums of gradients are added in rank order
 * @owns       the module keeps the hooks until it is destroyed; tied parameters stay tied
 * @errors     EINVAL no such axis, min_elements negative, a parameter that varies, is on another
 *             mesh, or is sharded over the axis already (skip_sharded allows it); ENOMEM; EDIFFER;
 *             after an error the module is partly changed
 */
SHERD_CALL sherd_status sherd_fully_shard(sherd_module *module, const sherd_mesh *mesh,
                                          const char *axis, const sherd_shard_options *options);

/**
 * Store activations that are equal on all ranks of an axis as shards of `dim` between forward and
 * backward.
 *
 * What was done is recorded with each saved tensor, so that backward undoes exactly that. Left
 * alone are tensors that are sharded already, that are smaller than the axis, that lack the dim or
 * have size 1 there, plain tensors that vary over the axis, indices and masks. Losses and gradients
 * are bit-equal with and without it.
 *
 * @collective the world; in backward the restored tensors' groups
 * @shapes     dim: of the saved tensors; negative counts from the end
 * @owns       the module keeps the hooks until it is destroyed
 * @errors     EINVAL no such axis; ENOMEM; EDIFFER
 */
SHERD_CALL sherd_status sherd_input_reshard(sherd_module *module, const sherd_mesh *mesh,
                                            const char *axis, int dim);

SHERD_END

#endif
