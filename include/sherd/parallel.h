/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles: recipes that make a module tensor-parallel along one mesh axis. A style is a plain value,
 * which sherd_parallelize applies to the modules that a path names. It decides how the module's
 * parameters are sharded, and how its inputs and outputs are moved; all other axes of the mesh stay
 * as they are. Between styles, tensors stay distributed, unless to_local is set.
 *
 *     const sherd_parallel_entry plan[] = {{"blocks.*.mlp.up", sherd_colwise()},
 *                                          {"blocks.*.mlp.down", sherd_rowwise()}};
 *     if (sherd_parallelize(model, mesh, "tp", plan, 2))
 *         return 1;
 *
 * A style handles the first positional argument; a Prepare style with slots handles every tensor
 * that has a slot. If such an argument is plain, it becomes distributed:
 * - one that came out of sherd_to_local gets its layout back;
 * - one that does not vary is the whole tensor, and becomes replicated, even if the style expects a
 *   shard;
 * - any other is this rank's piece, with the placement in the style's `input` (unset = the default
 *   of the style) or in the slot's `lies` (unset = an error). It must not vary over the other axes
 *   of the mesh. If it is replicated, data of the program's own is believed to be equal, as by
 *   sherd_from_local (SHERD_VERIFY=1 compares it); what was computed and varies over the style's
 *   axis is refused.
 *
 * All outputs are moved to the style's `output`, or each to what its slot says.
 */
#ifndef SHERD_PARALLEL_H
#define SHERD_PARALLEL_H

#include <stdio.h>

#include "module.h"

SHERD_BEGIN

typedef struct sherd_style sherd_style;

/*
 * What is done to one tensor on its way into or out of a module. All zero = nothing, whatever it
 * is, even NULL.
 */
typedef struct sherd_slot {
    const char *name; /* of a keyword input; NULL = the next positional input, or next output */
    /* the placement that a plain tensor has, and that a distributed one must have; unset = any */
    sherd_placement lies;
    sherd_placement desired; /* what it is moved to; unset = it is not moved */
} sherd_slot;

/*
 * For user-defined styles: what a style does to a module along an axis of a mesh. Local: ranks
 * compare their statuses after the whole plan has been applied. A return value that is not a
 * sherd_status counts as EINVAL.
 */
typedef sherd_status (*sherd_style_apply)(const sherd_style *style, sherd_module *module,
                                          const sherd_mesh *mesh, int axis);

struct sherd_style {
    sherd_style_apply apply;
    const char *name; /* for messages */
    /*
     * The placement that the argument has: a distributed one with another placement is an error;
     * unset = any. A plain argument that does not vary is the whole tensor, of which a shard is
     * taken if this is a shard.
     */
    sherd_placement input;
    sherd_placement desired; /* what the argument is moved to; unset = the style's default */
    sherd_placement output;  /* what outputs are moved to; unset = the style's default */
    bool to_local;           /* outputs leave as plain tensors */
    int64_t granule;         /* cut only at multiples of this (heads stay whole); 0 = 1 */
    int sequence_dim;        /* of sherd_sequence_parallel, which sets 1; may be negative */
    const void *payload;     /* for user-defined styles */
    /*
     * For Prepare styles. `inputs`: one slot for each positional input, in order, then slots for
     * keyword inputs; in their place `input` and `desired` are ignored. `outputs`: one slot for
     * each output; in their place `output` is ignored. The numbers of positional inputs and of
     * outputs must be those of the slots. A keyword input that has a slot must be among the
     * arguments (its tensor may be NULL); others are left alone.
     */
    const sherd_slot *inputs, *outputs;
    int input_count, output_count; /* 0 = no slots; at most SHERD_MAX_ARGS */
    bool local_input; /* the forward gets the inputs that the style handles as plain tensors */
    /* keep inputs that the style has gathered for backward; otherwise they are gathered again */
    bool keep_gathered;
};

/**
 * For Linear: weight and bias sharded by output feature; for Embedding: by width. Input R, output
 * S(-1).
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_colwise(void);

/**
 * For Linear: weight sharded by input feature, bias replicated and added once; input S(-1), output
 * R. For Embedding: sharded by entry; input R, output R.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_rowwise(void);

/**
 * For norms and Dropout: parameters replicated; input and output S(sequence_dim), by default S(1).
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_sequence_parallel(void);

/**
 * For any module: its first positional argument is moved from `input` to `desired` (R if unset), or
 * each input as its slot in `inputs` says.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_prepare_input(void);

/**
 * For any module: all outputs are moved to `output`, or each as its slot in `outputs` says; inputs
 * are left alone.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_prepare_output(void);

/** For any module: sherd_prepare_input and sherd_prepare_output in one. @local @errors none */
SHERD_API sherd_style sherd_prepare_input_output(void);

/**
 * For a module of sherd_experts_create, or one of your own: parameters with three dims are sharded
 * by the first one, the experts; so are weights of 8 or 4 bits of the former (layers.h), with their
 * scales. Inputs and outputs are left as they are: rows go where their experts are.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_expert_parallel(void);

/**
 * For a module of sherd_experts_create: each rank computes some of the hidden features of every
 * expert that it has (w1 and w3 are sharded by dim 1, w2 by dim 2). Input R, output R; the balance
 * loss is left as it is. Can be combined with sherd_expert_parallel along another axis. Of weights
 * of 4 bits a granule must be even.
 *
 * @local   @errors none
 */
SHERD_API sherd_style sherd_expert_tensor_parallel(void);

/**
 * For user-defined styles, and used by the built-in ones: distribute a parameter or buffer over the
 * mesh, with `placement` on the axis; a plain one is replicated over all other axes. To move inputs
 * or outputs, a style can apply another one:
 *
 *     sherd_style move = sherd_prepare_input_output();
 *     move.output = sherd_replicate();
 *     if (move.apply(&move, model, mesh, 0))
 *         return 1;
 *
 * @local
 * @shapes   placement: replicated, or a shard of a dim (a negative one counts from the end);
 *           granule: the dim is cut only at multiples of this, 0 = 1
 * @numerics each rank keeps its part of a tensor that is equal on all ranks, or draws it if it is
 *           deferred; nothing is sent
 * @owns     the module keeps the new tensor in place of the old one, and so do modules with which
 *           it is tied
 * @errors   EINVAL no such axis, parameter, buffer or dim, a pending placement, a negative granule,
 *           a granule of a dim that other axes shard already, a mesh of another world, a tensor
 *           that varies, or that was placed on this axis before; ENOMEM
 */
SHERD_CALL sherd_status sherd_style_place_parameter(sherd_module *module, const char *name,
                                                    const sherd_mesh *mesh, int axis,
                                                    sherd_placement placement, int64_t granule);

typedef struct sherd_parallel_entry {
    /* names joined by dots; shell wildcards (* ? [..]) match within one name; "" is the root */
    const char *path;
    sherd_style style;
} sherd_parallel_entry;

/**
 * Make a module parallel: apply each entry's style to every module that its path matches, then
 * replicate on the mesh all parameters and buffers that no style has placed.
 *
 * All paths are matched before anything changes. Tied parameters (one tensor of several modules, of
 * this tree or of one that was made parallel before) stay tied. Plain parameters must be equal on
 * all ranks: see sherd_module_equalize. To make a module parallel along several axes of a mesh,
 * call this once for each axis: a later call shards what earlier calls have replicated, or sharded
 * over other axes, further. Make optimizers afterwards.
 *
 * On ranks outside the mesh the module stays as it is, with plain parameters: these ranks must not
 * call it with tensors of the mesh, because its outputs would have other layouts there.
 *
 * For stages on different meshes use sherd/pipeline.h. Without it, all ranks move the tensor
 * between two stages by sherd_redistribute. Ranks outside the source's mesh pass a
 * sherd_constant_on with its layout that requires a gradient, and ranks outside the target's mesh
 * begin their backward by sherd_backward_with from a sherd_constant_on with the target's layout.
 *
 * @collective the world, with ranks outside the mesh, on which nothing changes
 * @shapes     mesh, axis: a mesh or sub-mesh, and the name of the axis that the styles use; plan:
 *             [count]
 * @numerics   each rank keeps its part of parameters that are equal on all ranks, or, if they are
 *             deferred, draws the same values; nothing is sent
 * @owns       `plan` is only read; the module keeps copies of the styles and their slots
 * @errors     EINVAL no such axis, a path that matches nothing (similar names are listed), a style
 *             that does not fit the module, a parameter that varies or is placed twice; ENOMEM;
 *             EDIFFER; after an error the module is partly changed
 */
SHERD_CALL sherd_status sherd_parallelize(sherd_module *module, const sherd_mesh *mesh,
                                          const char *axis, const sherd_parallel_entry *plan,
                                          int count);

/*
 * Distributes some parameters of one module (sherd_style_place_parameter), or none. Called for the
 * module and all modules below it, parents first. A return value that is not a sherd_status counts
 * as EINVAL.
 */
typedef sherd_status (*sherd_partition)(sherd_module *module, const sherd_mesh *mesh,
                                        void *payload);

/**
 * Distribute a module by user-defined functions: `partition` is called for each module of the tree,
 * and parameters that it has not distributed are replicated. `input` and `output` become hooks of
 * `module` (sherd_module_hook_before, _after), which may redistribute arguments and outputs.
 *
 * @collective the world, with ranks outside the mesh, on which nothing changes
 * @shapes     partition, input, output: each may be NULL
 * @numerics   as sherd_parallelize
 * @owns       `payload` is passed to all three functions, and must live as long as the module
 * @errors     EINVAL the module was distributed before, a mesh of another world, a parameter that
 *             varies; the statuses that `partition` returns; ENOMEM; EDIFFER; after an error the
 *             module is partly changed
 */
SHERD_CALL sherd_status sherd_distribute_module(sherd_module *module, const sherd_mesh *mesh,
                                                sherd_partition partition, sherd_pre_hook input,
                                                sherd_hook output, void *payload);

/**
 * Describe a module after sherd_parallelize as a table, with a row for each module that has styles,
 * parameters or buffers: its path, its styles and their axes, its parameters and their layouts.
 *
 * @local
 * @shapes out: gets the text, truncated to `room` bytes with the terminating zero; NULL only if
 *         room is 0
 * @errors none; returns the length of the whole text, without the terminating zero
 */
SHERD_API size_t sherd_parallel_text(const sherd_module *module, char *out, size_t room);

/** Print sherd_parallel_text to a file on one rank. @local @errors EINVAL no such rank; ENOMEM */
SHERD_CALL sherd_status sherd_parallel_print(const sherd_module *module, FILE *file, int rank);

/* All zero = shard every parameter, each module on its own, prefetch, gather again in backward. */
typedef struct sherd_shard_options {
    int64_t min_elements; /* smaller parameters stay replicated over the axis */
    bool no_prefetch;     /* gather and reduce-scatter only when the program waits for it */
    bool keep_gathered;   /* keep gathered parameters for backward, instead of gathering again */
    bool skip_sharded;    /* leave what is sharded over an axis of these already; else EINVAL */
    /*
     * The path of modules whose parameters are gathered together with those of all modules below
     * them ("layers.*"; as in sherd_parallelize, "" is the module itself). NULL = of each module
     * only its own.
     */
    const char *unit;
    /*
     * [ignored_count], of parameters that stay replicated over the axis: "layers.*.norm.weight".
     * All names may have wildcards.
     */
    const char *const *ignored;
    int ignored_count;
    /*
     * the dim by which a parameter is sharded; -1 = as without; NULL = all. Pure, alike everywhere
     */
    int (*dim)(const sherd_module *module, const char *name, void *payload);
    void *payload; /* of `dim` */
    /*
     * Mixed precision (PyTorch: MixedPrecisionPolicy): SHERD_BF16 halves the bytes of gathers.
     * Parameters that are cast to it before they are gathered, and inputs of a module or unit that
     * gathers its parameters. SHERD_DTYPE_NONE = they stay as they are.
     */
    sherd_dtype param_dtype;
    /* in which gradients are reduce-scattered; SHERD_DTYPE_NONE = param_dtype, or their own */
    sherd_dtype reduce_dtype;
    sherd_dtype output_dtype; /* of outputs of a module or unit; SHERD_DTYPE_NONE = as they are */
    bool keep_inputs;         /* inputs are not cast, as for sherd_set_autocast */
} sherd_shard_options;

/**
 * Shard the parameters of a module, and of all modules below it, over an axis, usually the one that
 * shards the batch, or over several (PyTorch: FSDP). Each rank then holds its part of every
 * parameter, of its gradient, and of the state of an optimizer that is made afterwards; parts are
 * uneven if the number of ranks does not divide the size.
 *
 * The dim that is cut is the one whose largest part is the smallest fraction of it; of equal ones
 * the first. So a weight [13,7] is cut in dim 0 by 2 ranks (7/13 is less than 4/7), and in dim 1 by
 * 4 (2/7 is less than 4/13). What other axes shard already is cut further: the largest of their
 * parts counts. options.dim chooses other dims.
 *
 * A module's own parameters are gathered when it is called, in one call, freed as soon as it has
 * computed, and gathered again for its backward (unless keep_gathered is set). Their gradients are
 * reduce-scattered in one call when all have arrived, or later: see sherd_set_gradient_sync. While
 * a forward runs, sherd_module_parameter of the running module returns the gathered parameter,
 * which is whole unless other axes shard it.
 *
 * Units make fewer and larger calls: all parameters below a unit are gathered at once, ahead of its
 * forward, and again when its backward needs the first of them; their gradients wait for each
 * other. That takes the memory of a unit's parameters, and in backward of its gradients; of two
 * units, while one is prefetched (see below). Units may also be made by calls of their own, as in
 * PyTorch; what earlier calls have sharded over the axis is left to them:
 *
 *     const sherd_shard_options whole = {.unit = ""};
 *     for (int i = 0; i < sherd_module_children(model); i++)
 *         if (sherd_fully_shard(sherd_module_child(model, i), mesh, "dp", &whole))
 *             return 1;
 *     if (sherd_fully_shard(model, mesh, "dp", &whole))
 *         return 1;
 *
 * "dp,cp" shards over two axes at once, as over one of all their ranks: units are gathered in one
 * call, and gradients reduce-scattered in one (torchtitan: fully_shard on dp_shard_cp).
 *
 * Two calls shard over two axes one after the other, each with units of its own. The axis of the
 * later call is gathered first. If keep_gathered is set for it alone, parameters lie on the ranks
 * of the other axis between forward and backward (PyTorch: reshard_after_forward=int).
 *
 * Over an axis that no call shards over, parameters are replicated (PyTorch: HSDP). Gradients are
 * then settled over both by one plan: as many bytes as a reduce-scatter over the axis that shards
 * and an all-reduce of each rank's part over the other, or, of small ones, fewer calls; what prices
 * say about the links of axes decides the order.
 *
 * With param_dtype what is gathered, and saved for backward, has that dtype. Parameters, gradients
 * and the optimizer's state keep theirs: each shard is cast before its gather, and each gradient
 * after its reduce-scatter. With reduce_dtype f32, products of 16-bit operands give gradients that
 * are not rounded before they are added up. Gradients that wait (sherd_set_gradient_sync) are added
 * up in the parameter's dtype, and are settled in it if an optimizer or sherd_grad asks before the
 * next backward does.
 *
 * Use it after sherd_parallelize on another axis, or alone; parameters that it does not shard are
 * replicated then. While a module computes, the parameters of the module or unit that came next in
 * the last call are being gathered (unless no_prefetch is set), so those of two are in memory at
 * once. While its backward computes, those of the one whose backward comes next are, and gradients
 * of the one before are being reduce-scattered: two at once of each. All are complete when backward
 * returns. Modules in a unit that are called alone gather their own.
 *
 * @collective the world, with ranks outside the mesh, on which nothing changes
 * @shapes     mesh, axis: a mesh or sub-mesh, and the name of an axis, or several with commas
 *             between; options: NULL = all zero
 * @numerics   values are copied bit for bit, or cast once; the sums of gradients are added in rank
 *             order, in 16 bits too with one rounding
 * @owns       the module keeps hooks until it is destroyed; tied parameters stay tied; options are
 *             only read during the call
 * @errors     EINVAL no such axis, one named twice, min_elements negative, a dtype without
 *             fractions, a pattern that is NULL or matches nothing, a dim that a parameter lacks, a
 *             parameter that varies or is on another mesh; without skip_sharded, one that a style
 *             has sharded over one of the axes, and a module that was sharded over one before, or
 *             is below such a one; ENOMEM; EDIFFER; after an error the module is partly changed
 */
SHERD_CALL sherd_status sherd_fully_shard(sherd_module *module, const sherd_mesh *mesh,
                                          const char *axis, const sherd_shard_options *options);

/**
 * From now on modules and units that sherd_fully_shard has made of a module, or of those below it,
 * keep what they gather from call to call, until this is turned off (PyTorch: unshard and reshard,
 * set_reshard_after_backward). A program that generates text, or computes several microbatches,
 * then gathers each parameter once, and backward gathers nothing; that takes the memory of the
 * gathered model. Parameters that have been written, as by an optimizer, or replaced are gathered
 * anew when they are needed next.
 *
 * @local
 * @errors none; a NULL module, or one of which nothing is sharded, is left as it is. If other ranks
 *         hold other modules, a call of these ends in EDIFFER
 */
SHERD_API void sherd_module_hold_gathered(sherd_module *module, bool on);

/**
 * Save memory: between forward and backward, store saved activations that are equal on all ranks of
 * an axis as shards of `dim`. Backward gathers them when it needs them.
 *
 * Not changed are tensors that are sharded already, that have fewer elements than the axis has
 * ranks, that do not have the dim or have size 1 there, plain tensors that vary over the axis,
 * indices and masks. Losses and gradients have the same bits as without.
 *
 * @collective the world; in backward, the groups of ranks that restored tensors are gathered on
 * @shapes     dim: of the saved tensors; negative counts from the end
 * @owns       the module keeps the hooks until it is destroyed
 * @errors     EINVAL no such axis; ENOMEM; EDIFFER
 */
SHERD_CALL sherd_status sherd_input_reshard(sherd_module *module, const sherd_mesh *mesh,
                                            const char *axis, int dim);

SHERD_END

#endif
