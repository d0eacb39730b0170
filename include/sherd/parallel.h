/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles: recipes that make a module tensor-parallel along one mesh axis. A style is a plain value that
 * nobody changes. Tensors stay distributed between styles, unless to_local is set. Styles leave all other
 * axes of the mesh as they are.
 *
 * A style looks at the first positional argument, or (the Prepare styles) at every tensor that has a slot. A plain
 * tensor becomes distributed: one that came out of sherd_to_local gets back its layout; one that does not vary is the
 * whole, and replicated, though a shard is expected; any other is taken for what the style's `input`, or the slot's
 * `lies`, says (unset: the style's own input; in a slot an error). It must not vary over the other axes of the mesh, and
 * one that is known to vary over the style's axis is not taken for replicated. All outputs are moved to `output`, or each
 * as its slot says.
 */
#ifndef SHERD_PARALLEL_H
#define SHERD_PARALLEL_H

#include <stdio.h>

#include "module.h"

SHERD_BEGIN

typedef struct sherd_style sherd_style;

/* One tensor on its way into a module or out of it. All zero: it is left alone, whatever it is, also NULL. */
typedef struct sherd_slot {
    const char *name; /* of a keyword input; NULL = the next positional one, or the next output */
    sherd_placement
        lies; /* how a plain tensor is taken, and a distributed one must lie; unset = whatever */
    sherd_placement desired; /* what it is moved to; unset = it stays where it is */
} sherd_slot;

/*
 * What a style does to a module along (mesh, axis); for styles of one's own. Local: ranks agree when all
 * of the plan has been applied. A number that is no status counts as EINVAL.
 */
typedef sherd_status (*sherd_style_apply)(const sherd_style *style, sherd_module *module,
                                          const sherd_mesh *mesh, int axis);

struct sherd_style {
    sherd_style_apply apply;
    const char *name; /* for messages */
    /* what arrives; a distributed tensor that lies otherwise is an error; unset = whatever arrives. A plain tensor that
     * does not vary has no pieces: where a shard is declared it is cut */
    sherd_placement input;
    sherd_placement desired; /* what the forward shall get; unset = the style's own */
    sherd_placement output;  /* what leaves; unset = the style's own */
    bool to_local;           /* outputs leave as plain tensors */
    int64_t granule;         /* neighbours of the sharded dim that stay together; 0 = 1 */
    int sequence_dim; /* SequenceParallel; sherd_sequence_parallel says 1; negative counts from the end */
    const void *payload; /* for styles of one's own */
    /*
     * The Prepare styles: one slot a positional input, then named ones; one slot an output. Then `input`, `desired` or
     * `output` is not looked at. As many positional inputs and outputs must come as there are slots; a named input that has
     * a slot must be among the arguments (its tensor may be NULL), others are left alone.
     */
    const sherd_slot *inputs, *outputs;
    int input_count, output_count; /* 0 = no slots; at most SHERD_MAX_ARGS */
    bool local_input; /* inputs that are not left alone reach the forward as plain tensors */
    /* inputs that the style gathers are kept for backward; else they are gathered again: less memory, more calls */
    bool keep_gathered;
};

/** Linear: weight and bias by output feature; Embedding: by width. Input R, output S(-1). @local @errors none */
SHERD_API sherd_style sherd_colwise(void);

/** Linear: weight by input feature, bias replicated and added once; Embedding: by entry. Input S(-1) (Embedding R), output R. @local @errors none */
SHERD_API sherd_style sherd_rowwise(void);

/** LayerNorm, Dropout: parameters replicated, input and output S(sequence_dim), which is 1 here. @local @errors none */
SHERD_API sherd_style sherd_sequence_parallel(void);

/** Any module: moves its first positional argument from `input` to `desired` (R if unset), or what `inputs` says. @local @errors none */
SHERD_API sherd_style sherd_prepare_input(void);

/** Any module: moves all outputs to `output`, or what `outputs` says; nothing happens to inputs. @local @errors none */
SHERD_API sherd_style sherd_prepare_output(void);

/** Any module: sherd_prepare_input and sherd_prepare_output in one. @local @errors none */
SHERD_API sherd_style sherd_prepare_input_output(void);

/**
 * For a style of one's own: put a parameter or buffer on the mesh, `placement` on the axis and replicated on all others. What
 * the built-in styles use. For moving tensors such a style calls another one: `s = sherd_prepare_input_output()`, its slots,
 * then `s.apply(&s, module, mesh, axis)`.
 *
 * @local
 * @shapes   placement: replicated, or a shard of a dim (negative counts from the end); granule: neighbours of that dim that
 *           stay together, 0 = 1
 * @numerics every rank keeps its part of what is equal everywhere, or draws it where it was left for later; nothing travels
 * @owns     the module keeps the new tensor in place of the old one, also where that is tied
 * @errors   EINVAL no such axis, parameter, buffer or dim, a pending placement, a negative granule, a mesh of another world,
 *           one that varies, or that was placed before in another way; ENOMEM
 */
SHERD_CALL sherd_status sherd_style_place_parameter(sherd_module *module, const char *name,
                                                    const sherd_mesh *mesh, int axis,
                                                    sherd_placement placement, int64_t granule);

typedef struct sherd_parallel_entry {
    /* names joined by dots, each with shell wildcards (* ? [..]) that match one level; "" is the root */
    const char *path;
    sherd_style style;
} sherd_parallel_entry;

/**
 * Make a module parallel: apply each entry's style to every module that its path matches, then replicate on
 * the mesh whatever parameters and buffers no style has placed.
 *
 * All paths are matched before anything changes. Tied parameters stay tied. Parameters must be equal on all ranks: see
 * sherd_module_equalize.
 *
 * @collective the world; ranks outside of the mesh only agree
 * @shapes     mesh, axis: a mesh or sub-mesh, and the name of the axis along which styles work; plan: [count]
 * @numerics   every rank keeps its part of parameters that are equal everywhere, or draws it where they were left for
 *             later: the same values either way; nothing travels
 * @owns       `plan` is only read; the module keeps copies of the styles, their slots too
 * @errors     EINVAL no such axis, a path that matches nothing (the near names are listed), a style that does not
 *             fit the module, a parameter that varies or is placed twice; ENOMEM; EDIFFER; the module is then partly changed
 */
SHERD_CALL sherd_status sherd_parallelize(sherd_module *module, const sherd_mesh *mesh,
                                          const char *axis, const sherd_parallel_entry *plan,
                                          int count);

/*
 * Places some parameters of one module (sherd_style_place_parameter), or none. Called for the module and all below it,
 * parents first. A number that is no status counts as EINVAL.
 */
typedef sherd_status (*sherd_partition)(sherd_module *module, const sherd_mesh *mesh,
                                        void *payload);

/**
 * Spread a module by functions of one's own: `partition` for each module of the tree, then what it has not placed is
 * replicated; `input` and `output` become hooks of `module`, which may redistribute what goes in and comes out.
 *
 * @collective the world; ranks outside of the mesh only agree
 * @shapes     partition, input, output: each may be NULL
 * @numerics   as sherd_parallelize
 * @owns       `payload` goes to all three functions, and must live as long as the module
 * @errors     EINVAL the module has been distributed before, the mesh is not of its world, a parameter that varies, what
 *             `partition` returns; ENOMEM; EDIFFER; the module is then partly changed
 */
SHERD_CALL sherd_status sherd_distribute_module(sherd_module *module, const sherd_mesh *mesh,
                                                sherd_partition partition, sherd_pre_hook input,
                                                sherd_hook output, void *payload);

/**
 * What became of a module, as a table with a row for each module that has styles, parameters or buffers: its path, the
 * styles with their axes, and its parameters with their layouts.
 *
 * @local
 * @shapes out: char[room], gets as much as fits and an end; NULL only where room is 0
 * @errors none; returns the length of the whole text
 */
SHERD_API size_t sherd_parallel_text(const sherd_module *module, char *out, size_t room);

/** Print sherd_parallel_text on one rank. @local @errors EINVAL no such rank; ENOMEM */
SHERD_CALL sherd_status sherd_parallel_print(const sherd_module *module, FILE *file, int rank);

/* All zero = every parameter, and gathers begun ahead. */
typedef struct sherd_shard_options {
    int64_t min_elements; /* smaller parameters stay replicated over the axis */
    bool
        no_prefetch; /* gather a module's parameters when it is called, not while the one before it computes */
} sherd_shard_options;

/**
 * Shard the parameters of a module, and of all below it, over an axis: usually the one that shards the batch. Each
 * rank then holds its part (uneven where it does not divide) of every parameter, of its gradient, and of what an optimizer
 * made afterwards keeps. A module's own parameters are gathered when it is called, and for its backward again, and are
 * freed as soon as it has computed; gradients are reduce-scattered as they come. Forward functions see whole parameters
 * (as far as other axes leave them whole) by sherd_module_parameter, of the running module only.
 *
 * After sherd_parallelize, which shards over another axis; or alone: what it leaves is replicated then. While a module
 * computes, the gather for the one that came next in the last call is begun, so two modules' parameters are whole at once.
 *
 * @collective the world; ranks outside of the mesh only agree
 * @shapes     mesh, axis: a mesh or sub-mesh, and the name of the axis; options: NULL = all zero
 * @numerics   values are copied bit for bit; the sums of gradients are added in rank order
 * @owns       the module keeps the hooks until it is destroyed; tied parameters stay tied
 * @errors     EINVAL no such axis, min_elements negative, a parameter that varies, lies on another mesh, or is sharded over
 *             the axis already; ENOMEM; EDIFFER; the module is then partly changed
 */
SHERD_CALL sherd_status sherd_fully_shard(sherd_module *module, const sherd_mesh *mesh,
                                          const char *axis, const sherd_shard_options *options);

/**
 * Keep activations that are equal on all ranks of an axis as shards of `dim` between forward and backward.
 *
 * What pack did is recorded with the saved tensor, so that unpack undoes exactly that. Tensors that are
 * sharded already, or smaller than the axis, or (plain ones) that vary over it are left alone, and so are
 * indices and masks. Losses and gradients are bit-equal with and without. A tensor that lacks the dim, or
 * has size 1 there, is left alone.
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
