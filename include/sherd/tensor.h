/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors. A *plain* tensor has no layout: it is local to this rank. A *distributed* tensor has a
 * layout: its shape is the global shape, and its storage holds this rank's box.
 *
 * Functions that return a tensor are *expressions*: if one fails, it raises the world's alarm and
 * returns the world's failed tensor, which every later expression passes on (see world.h). They
 * return NULL only if no argument belongs to a world. The statuses under "errors" below are what
 * the next sherd_world_check() returns.
 *
 *     sherd_scope_begin(world);
 *     sherd_tensor *x = sherd_distribute_as(plain, mesh, "S(0)R", 0); // the values of rank 0
 *     double sum = sherd_item(sherd_sum(sherd_mul(x, x)));            // equal on all ranks
 *     sherd_scope_end(world);                                         // releases x and the others
 *     if (sherd_world_check(world))
 *         fprintf(stderr, "%s\n", sherd_world_error(world));
 *
 * The tensor that an expression returns belongs to the current *scope* of its world ("scope" under
 * "owns"), and so does a layout that is created: see scope.h.
 *
 * A plain tensor carries the set of mesh axes over which it *varies*, that is, along which ranks
 * may hold different values. Data of the program's own varies over all axes; constants, random
 * tensors and the local piece of a replicated tensor over none; the result of an operator over
 * those of any operand. In an operator with distributed operands, a plain tensor that does not vary
 * counts as replicated, and one that varies is refused; if you know that yours is equal on all
 * ranks, say so with sherd_mark_equal or sherd_from_local.
 */
#ifndef SHERD_TENSOR_H
#define SHERD_TENSOR_H

#include "dtype.h"
#include "layout.h"
#include "plan.h"
#include "scope.h"

SHERD_BEGIN

/* ---- making tensors ------------------------------------------------------------------------- */

/**
 * A plain tensor with a copy of `data`. It varies over all axes (see sherd_mark_equal). For a
 * distributed tensor, and on doing without the copy, see sherd_from_data_on (values.h).
 *
 * @local
 * @shapes shape: int64_t[ndim]; data: row-major, of `dtype`; NULL if the shape has no elements
 * @owns   the result belongs to the scope; `data` is only read
 * @errors EINVAL a negative size, an unknown dtype, data NULL; ELIMIT; ENOMEM
 */
SHERD_API sherd_tensor *sherd_from_data(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                        int ndim, const void *data);

/**
 * A plain tensor filled with one value; it does not vary.
 *
 * @local   @shapes shape: int64_t[ndim]   @owns the result belongs to the scope
 * @errors EINVAL a negative size, an unknown dtype, a value that it cannot hold; ELIMIT; ENOMEM
 */
SHERD_API sherd_tensor *sherd_constant(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                       int ndim, double value);

/**
 * As sherd_constant, but memory is allocated when it is first needed (see sherd_random_later).
 *
 * @local   @shapes shape: int64_t[ndim]   @owns the result belongs to the scope
 * @errors EINVAL a negative size, an unknown dtype, a value that it cannot hold; ELIMIT; ENOMEM.
 *         NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_constant_later(sherd_world *world, sherd_dtype dtype,
                                             const int64_t *shape, int ndim, double value);

/**
 * A distributed tensor filled with one value. On an axis with a pending sum, coordinate 0 holds the
 * value and all others hold 0.
 *
 * @local
 * @owns   the result belongs to the scope
 * @errors EINVAL an unknown dtype, a value that it cannot hold; ENOTSUP a pending reduction other
 *         than sum; ENOMEM
 */
SHERD_API sherd_tensor *sherd_constant_on(const sherd_layout *layout, sherd_dtype dtype,
                                          double value);

/* ---- what a tensor is ----------------------------------------------------------------------- */

/** The world. @local @owns borrowed @errors none */
SHERD_API sherd_world *sherd_tensor_world(const sherd_tensor *t);
/** The element type. @local @errors none */
SHERD_API sherd_dtype sherd_tensor_dtype(const sherd_tensor *t);
/** How many dims. @local @errors none */
SHERD_API int sherd_tensor_ndim(const sherd_tensor *t);
/** Global shape, int64_t[ndim]. @local @owns borrowed from the tensor @errors none */
SHERD_API const int64_t *sherd_tensor_shape(const sherd_tensor *t);
/** Global number of elements. @local @errors none */
SHERD_API int64_t sherd_tensor_count(const sherd_tensor *t);
/** The layout; NULL for a plain tensor. @local @owns borrowed from the tensor @errors none */
SHERD_API const sherd_layout *sherd_tensor_layout(const sherd_tensor *t);

/** The global indices that this rank holds; of a plain tensor all. @local @errors none */
SHERD_API sherd_box sherd_tensor_box(const sherd_tensor *t);

/** Where this rank's box begins in a dim, by global index; 0: no such dim. @local @errors none */
SHERD_API int64_t sherd_tensor_offset(const sherd_tensor *t, int dim);
/** How many elements this rank's box has; 0 for the failed tensor and NULL. @local @errors none */
SHERD_API int64_t sherd_tensor_local_count(const sherd_tensor *t);
/** The size of this rank's box in a dim; 0 if there is no such dim. @local @errors none */
SHERD_API int64_t sherd_tensor_size(const sherd_tensor *t, int dim);

/**
 * Whether this is the failed tensor, or NULL, or was lost in a failed step. A local observation: at
 * the same line of a program ranks may get different answers, so never make a collective call
 * depend on it; branch on the status of sherd_world_check instead (see world.h). Only right after a
 * check, of a tensor that was there before the step, all ranks of its mesh get the same answer.
 *
 * @local   @errors none
 */
SHERD_API bool sherd_tensor_failed(const sherd_tensor *t);

/**
 * Make a lost tensor valid again, with the elements that it has now. A tensor is *lost*, with all
 * views of its storage, if a step failed after some ranks had written it in place and others had
 * not: after the check, using it is EINVAL on all ranks. Elements that the step wrote, or would
 * have written, are undefined, and may differ between replicas; all others keep their values. So a
 * cache of keys and values can go on after a request has failed, if the rows of that step are
 * written again. Not needed before functions that write all elements: sherd_fill, sherd_copy_from
 * of the whole tensor, sherd_module_load, sherd_module_read.
 *
 * @collective on the mesh of `t`
 * @owns       `t` itself; the failed tensor if only some ranks have made `t`
 * @errors     EINVAL only some ranks have made `t`. A plain `t`, or one that is not lost, does not
 *             change
 */
SHERD_API sherd_tensor *sherd_tensor_revive(sherd_tensor *t);

/**
 * sherd_tensor_revive for all lost tensors of a world. Returns how many, views included, this rank
 * had lost: ranks that got further in the step may have released some, such as gradients.
 *
 * @collective the world   @errors as sherd_tensor_revive; 0 for NULL
 */
SHERD_API int64_t sherd_tensor_revive_all(sherd_world *world);

/**
 * The tensor's dtype and layout as text: "f32[8(x),4] on (x=2)"; "f32[8,4]" if it is plain; "the
 * failed tensor". If memory runs out, the dtype alone.
 *
 * @local   @owns borrowed from the tensor, as long as it lives   @errors none
 */
SHERD_API const char *sherd_tensor_text(sherd_tensor *t);

/**
 * Declare that a plain tensor is equal on all ranks, so that it may stand for a replicated one. It
 * is believed, and compared only with SHERD_VERIFY=1. Returns `t`.
 *
 * @local   @owns `t` itself, in its own scope   @errors EINVAL `t` is distributed
 */
SHERD_API sherd_tensor *sherd_mark_equal(sherd_tensor *t);

/* ---- data ----------------------------------------------------------------------------------- */

/**
 * The local elements to read, row-major and contiguous; NULL also if another rank has failed.
 *
 * @local  blocks while the tensor is the result of a call in flight
 * @shapes as many elements as this rank's box has (sherd_tensor_box)
 * @owns   borrowed from the tensor; valid until the tensor is written or released
 * @errors NULL for the failed tensor, and for a distributed one while the alarm is up, as it may
 *         be soon after a check: a sherd_to_local taken before that is read all the same. NULL, by
 *         the alarm: EINVAL a lost tensor (sherd_tensor_revive); ENOMEM a strided view cannot be
 *         copied, or a deferred tensor (sherd_random_later) not be made
 */
SHERD_API const void *sherd_tensor_read(sherd_tensor *t);

/**
 * The local elements for writing, row-major and contiguous. The call counts as an in-place write:
 * of a distributed tensor all ranks make it, also those whose piece is empty or stays as it is; a
 * plain tensor varies over all axes from then on (see sherd_mark_equal). All ranks that hold the
 * same elements must make it, once or more, between the same two operators on the mesh: otherwise
 * the next check, or the next call of these ranks alone, is EDIFFER, and the tensor is lost. So it
 * is if some ranks do not complete the next call on the mesh after a write (sherd_tensor_revive).
 *
 * @local  blocks until all ranks that read this storage in earlier calls have finished
 * @shapes as many elements as this rank's box has (sherd_tensor_box)
 * @owns   borrowed from the tensor; valid until the tensor is used in a call or released
 * @errors NULL for the failed tensor, and for a distributed one while the alarm is raised. NULL, by
 *         the alarm: EINVAL a strided view, a lost tensor; ENOMEM a deferred tensor
 */
SHERD_API void *sherd_tensor_write(sherd_tensor *t);

/**
 * Whether the result of a call that was begun (sherd_redistribute_options.begin) is complete, so
 * that sherd_tensor_read would not wait. Advances the calls in flight as far as possible without
 * blocking. Data moves only inside functions of sherd, so a loop around this function ends.
 *
 * @local  never blocks
 * @errors none; true for the failed tensor and while the alarm is raised; false for NULL
 */
SHERD_API bool sherd_is_ready(sherd_tensor *t);

/**
 * Wait until the result of a call that was begun is complete. Returns the tensor.
 *
 * @local  blocks while the tensor is the result of a call in flight
 * @owns   `t` itself, in its own scope; the failed tensor after a failure
 * @errors those of the call that was begun; EPEER
 */
SHERD_API sherd_tensor *sherd_wait(sherd_tensor *t);

/**
 * The value of a tensor of one element; NaN while the alarm is raised, for NULL, and on ranks
 * outside the tensor's mesh.
 *
 * @collective the tensor's mesh, if it is distributed and not replicated on all axes
 * @errors     EINVAL not one element; EDIFFER; EPEER
 */
SHERD_API double sherd_item(sherd_tensor *t);

/* ---- between local and global --------------------------------------------------------------- */

typedef enum sherd_from_local_mode {
    /* the global shape and the cuts are given, and each rank's piece must fit them */
    SHERD_FROM_CHUNK = 0,
    /* both follow from the pieces, whose sizes the ranks exchange; `shape` and `sizes` are NULL */
    SHERD_FROM_INFER = 1
} sherd_from_local_mode;

typedef struct sherd_from_local_options {
    sherd_from_local_mode mode;
    /* CHUNK: global shape, int64_t[ndim]; NULL only if no dim is sharded */
    const int64_t *shape;
    /* CHUNK: explicit sizes as in sherd_layout_options; NULL = default cuts */
    const int64_t *const *sizes;
    const int *order; /* as in sherd_layout_options */
    /*
     * Placements of the gradient of `local`, sherd_placement[axes of the mesh]; NULL = those of the
     * result, with pending sums replicated. On an axis that shards the result it must be the same
     * shard; on any other axis replicated (all ranks get the same gradient) or a pending sum (each
     * rank gets an addend of the gradient).
     */
    const sherd_placement *gradient;
} sherd_from_local_options;

/**
 * A distributed tensor made of each rank's own piece. No element moves; the result shares the
 * storage of `local`.
 *
 * `placements` are believed, also for a `local` that varies. Where they say replicated, values must
 * be equal; only SHERD_VERIFY=1 compares them, at the next check. Otherwise each rank goes on with
 * its own.
 *
 * Gradient: `local` gets this rank's part of the gradient of the result; an addend of a pending sum
 * gets all of it, one of n addends of a pending average 1/n of it (but see options->gradient). For
 * addends of a pending maximum, minimum or product backward fails with EINVAL: make the pieces
 * shards of one dim more, and reduce over that dim.
 *
 * @collective the mesh
 * @shapes     placements: sherd_placement[axes of mesh]; options: NULL = CHUNK without shape
 * @owns       the result belongs to the scope
 * @errors     EINVAL pieces that do not fit the layout, replicas of different shapes; EDIFFER;
 *             ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_from_local(sherd_tensor *local, const sherd_mesh *mesh,
                                         const sherd_placement *placements,
                                         const sherd_from_local_options *options);

/**
 * As sherd_from_local, for a layout that exists already: `local` must have the shape of this rank's
 * box.
 *
 * @collective the mesh of `layout`
 * @owns       the result belongs to the scope
 * @errors     as sherd_from_local
 */
SHERD_API sherd_tensor *sherd_from_local_as(sherd_tensor *local, const sherd_layout *layout);

/**
 * This rank's piece as a plain tensor, which shares the storage.
 *
 * Gradient: the gradients of the pieces form one of the layout of `t`, with pending reductions
 * replicated: where pieces are equal, their gradients must be. The n addends of a pending average
 * change together, so its gradient is n times theirs; through those of a pending maximum, minimum
 * or product backward fails (EINVAL). A rank that has nothing to compute must use its piece all the
 * same, as in y + 0 sum(piece): EDIFFER if only some ranks have a gradient.
 *
 * @local   @owns the result belongs to the scope   @errors EINVAL `t` is plain
 */
SHERD_API sherd_tensor *sherd_to_local(sherd_tensor *t);

/**
 * As sherd_to_local, where `gradient` says how the gradients of the pieces form that of `t`. On an
 * axis with a pending sum, ranks may compute different things from the same piece, and their
 * gradients are added. On an axis that is replicated, all ranks must get the same gradient.
 *
 * @local
 * @shapes gradient: sherd_placement[axes of the (root) mesh of `t`], each the placement of `t`, or,
 *         if `t` is not sharded there, replicated or a pending sum (unset: as in sherd_to_local);
 *         NULL = as sherd_to_local
 * @owns   the result belongs to the scope
 * @errors EINVAL `t` is plain, or a gradient that does not fit
 */
SHERD_API sherd_tensor *sherd_to_local_with(sherd_tensor *t, const sherd_placement *gradient);

/**
 * Distribute a plain tensor; every rank passes one of the same shape and dtype. If `t` is a leaf
 * that requires a gradient, the result is a new leaf that does.
 *
 * @collective the mesh of `layout`
 * @shapes     root: the world rank whose data is used (it sends each rank only its box); or -1 =
 *             all ranks hold the same data: each keeps its box, nothing is sent, and `t` must not
 *             vary (call sherd_mark_equal first for data of the program's own)
 * @numerics   values are copied bit for bit
 * @owns       the result belongs to the scope; `t` is only read
 * @errors     EINVAL `t` is distributed, varies without a root, or was computed from a leaf that
 *             requires a gradient (which would get none), shapes differ, a pending reduction, no
 *             such rank; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_distribute(sherd_tensor *t, const sherd_layout *layout, int root);

/**
 * Distribute a plain tensor over a mesh with a layout given as text, in the forms that
 * sherd_redistribute_to takes. Otherwise as sherd_distribute.
 *
 * @collective the mesh
 * @shapes     mesh: may be a sub-mesh, then the text names its axes; root: as in sherd_distribute
 * @numerics   values are copied bit for bit
 * @owns       the result belongs to the scope; `t` and `text` are only read
 * @errors     EINVAL with the text, the column and what was expected; otherwise as sherd_distribute
 */
SHERD_API sherd_tensor *sherd_distribute_as(sherd_tensor *t, const sherd_mesh *mesh,
                                            const char *text, int root);

/**
 * Distribute a plain tensor that only one rank has. The other ranks pass NULL and need not know its
 * shape or dtype. Each rank gets only its box. If `t` is a leaf that requires a gradient, the
 * result is a new leaf that does.
 *
 * @collective the mesh; one small exchange more than sherd_distribute
 * @shapes     t: read on the root only; mesh, text, root: as in sherd_distribute_as, with root >= 0
 * @numerics   values are copied bit for bit
 * @owns       the result belongs to the scope; `t` and `text` are only read
 * @errors     EINVAL no such root, `t` is NULL, distributed or of another world there; EDIFFER
 *             ranks passed different texts or roots; ENOTSUP in a dry world that is not the root;
 *             otherwise as sherd_distribute_as
 */
SHERD_API sherd_tensor *sherd_distribute_from(sherd_tensor *t, const sherd_mesh *mesh,
                                              const char *text, int root);

typedef struct sherd_redistribute_options {
    bool begin; /* return at once; the data is complete after sherd_wait or the first read */
    /* cast `t` to this dtype before it moves: that of the result. SHERD_DTYPE_NONE = no cast */
    sherd_dtype forward_dtype;
    /* cast the gradient to this dtype while it moves back. SHERD_DTYPE_NONE = the dtype of `t` */
    sherd_dtype backward_dtype;
    /* keep the result for backward; otherwise backward moves `t` again if `t` is smaller */
    bool keep;
    const sherd_plan_options *plan; /* NULL = exact planner, the world's price */
    /*
     * Read if `to` is on another mesh: a mesh with all ranks of both, whose ranks make the call,
     * and that of the gradient, instead of all ranks of the world. NULL = the world.
     */
    const sherd_mesh *among;
} sherd_redistribute_options;

/**
 * Move a tensor to another layout.
 *
 * If layout and dtype do not change, the result is `t` itself. Gradient: moved back to the layout
 * of `t`, with pending sums replicated.
 *
 * `to` may be on another mesh. Then all ranks of the world make the call, or those of
 * options->among. A rank waits only for those that it receives from; one outside the new mesh gets
 * a tensor without data. If sender and receiver do not know each other's layouts, see pipeline.h.
 *
 * @collective the mesh axes that the plan needs (see sherd_plan_step); if `to` is on another mesh,
 *             options->among or the world; complete on return unless options->begin is set
 * @shapes     to: a layout of the same global shape, of the same world; options: NULL = all zero
 * @numerics   values are copied bit for bit; each step of the plan adds in rank order
 * @owns       the result belongs to the scope; `t` is only read. On the mesh of `t`, if no rank has
 *             other elements, the result shares the storage: an in-place write changes both
 * @errors     EINVAL `t` is plain, shapes differ, `to` has a pending reduction that `t` has not, a
 *             dtype that is not floating-point while `t` requires a gradient, an `among` that lacks
 *             a rank of a mesh or this one; ENOTSUP an average of integers; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_redistribute(sherd_tensor *t, const sherd_layout *to,
                                           const sherd_redistribute_options *options);

/**
 * Move a tensor to a layout given as text, on its own mesh; otherwise as sherd_redistribute.
 *
 *     "S(0)R"           placements, one for each axis of the (root) mesh; a dim keeps its cuts if
 *                       the same axes shard it in the same order as before
 *     "S(0)[1]S(0)[0]"  the same with a shard order
 *     "S(0)R 0:4,6"     the same with cuts of dim 0; all other dims get default cuts
 *     "[10(x:4,6),8]"   the dims of a layout's text; a dtype or mesh in it must be the tensor's
 *
 * @collective as sherd_redistribute
 * @shapes     options: NULL = all zero
 * @numerics   as sherd_redistribute
 * @owns       as sherd_redistribute; `text` is only read
 * @errors     EINVAL with the text, the column and what was expected; ENOTSUP a _S(dim,factor) that
 *             is not a shard order; otherwise as sherd_redistribute
 */
SHERD_API sherd_tensor *sherd_redistribute_to(sherd_tensor *t, const char *text,
                                              const sherd_redistribute_options *options);

/**
 * Move many tensors at once: each step is one call, however many tensors take part. Not recorded
 * for backward.
 *
 * @collective all meshes that tensors are on or go to, each with the same list; the world if a
 *             tensor goes to another mesh
 * @shapes     out, t, to: [count]; out[i] is t[i] if its layout does not change; count 0 or less:
 *             nothing to do
 * @owns       the results belong to the scope
 * @errors     as sherd_redistribute; then every out[i] is the failed tensor
 */
SHERD_API void sherd_redistribute_many(sherd_tensor **out, sherd_tensor *const *t,
                                       const sherd_layout *const *to, int count);

/**
 * The whole tensor on every rank, as a plain tensor that does not vary. All ranks must compute the
 * same gradient for it (otherwise sherd_full_with). The failed tensor if another rank has failed.
 *
 * @collective the tensor's mesh
 * @owns       the result belongs to the scope; if `t` is plain, `t` itself is returned
 * @errors     EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_full(sherd_tensor *t);

/**
 * As sherd_full, where `gradient` says how the gradients that ranks compute form that of `t`.
 *
 * @collective the tensor's mesh
 * @shapes     gradient: sherd_placement[axes of the (root) mesh]: replicated or unset (they are
 *             equal), or a pending sum (they are added); NULL = all replicated
 * @owns       the result belongs to the scope; if `t` is plain, `t` itself is returned
 * @errors     EINVAL a gradient that does not fit; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_full_with(sherd_tensor *t, const sherd_placement *gradient);

/**
 * Copy the whole tensor, row-major, into the caller's memory, on every rank or on one.
 *
 * Returns whether the values are in `out`: true on ranks that asked for them, but for failures and
 * ranks outside the mesh. Ranks get different answers: branch on the status of sherd_world_check.
 *
 * @collective the tensor's mesh; local for a plain tensor
 * @shapes     out: room for `bytes`, at least all elements of `dtype`; used only on ranks that get
 *             the values; dtype: SHERD_DTYPE_NONE = the tensor's own; rank: the world rank that
 *             gets the values, or -1 = all ranks; from a plain tensor each rank reads its own
 *             values
 * @numerics   a pending reduction is added as by sherd_redistribute; another dtype as sherd_cast
 * @owns       `out` is only written; during the call a rank that gets the values also holds them in
 *             tensor storage
 * @errors     EINVAL `out` NULL or too small, an unknown dtype, no such rank, a rank outside the
 *             mesh; EDIFFER; ENOMEM; EPEER
 */
SHERD_API bool sherd_full_read(void *out, size_t bytes, sherd_tensor *t, sherd_dtype dtype,
                               int rank);

SHERD_END

#endif
