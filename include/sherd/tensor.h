/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors. A plain tensor has no layout: it is this rank's own. A distributed tensor has one: its shape is
 * the global shape, its storage holds this rank's box.
 *
 * Functions that return a tensor are expressions: on failure they raise the world's alarm and return the
 * world's failed tensor, which every later expression passes on (see world.h); NULL only where no argument leads to
 * a world. Their @errors are what sherd_world_check() then returns. A tensor returned by an expression belongs to the current
 * *scope* of its world; ending the scope releases it. So does a layout that is made. The outermost scope ends with the
 * world.
 *
 * A plain tensor carries the set of mesh axes over which it *varies*, as far as sherd knows: data of
 * unknown origin varies over all, fills and what comes out of a replicated layout over none, and
 * operators pass the union on. Only a tensor that does not vary may be taken for replicated.
 */
#ifndef SHERD_TENSOR_H
#define SHERD_TENSOR_H

#include "dtype.h"
#include "layout.h"
#include "plan.h"

SHERD_BEGIN

typedef struct sherd_tensor sherd_tensor;

/* ---- scopes and counting -------------------------------------------------------------------- */

/** Open a scope: tensors and layouts made from now on belong to it. @local @errors ENOMEM raises the alarm */
SHERD_API void sherd_scope_begin(sherd_world *world);

/**
 * End the innermost scope and release what was made in it. A forward or a hook ends only scopes that it began; those that it
 * does not end are joined to that of the module's call.
 *
 * @local   @errors none; a no-op on the outermost
 */
SHERD_API void sherd_scope_end(sherd_world *world);

/**
 * Pass a tensor out: it will belong to the scope around the innermost one. Returns the tensor.
 *
 * @local   @owns `t` itself, then of the scope around
 * @errors none; a tensor that is not in the innermost scope stays where it is
 */
SHERD_API sherd_tensor *sherd_scope_pass(sherd_tensor *t);

/** Keep a tensor beyond its scope; each retain needs one release. Returns the tensor. @local @owns the caller too @errors none */
SHERD_API sherd_tensor *sherd_tensor_retain(sherd_tensor *t);

/** Give up a retained tensor; NULL is a no-op. @local @errors none */
SHERD_API void sherd_tensor_release(sherd_tensor *t);

/* ---- making tensors ------------------------------------------------------------------------- */

/**
 * A plain tensor with a copy of `data`; it varies over all axes (see sherd_mark_equal).
 *
 * @local   @shapes shape: int64_t[ndim]; data: row-major, product of shape elements of `dtype`
 * @owns   the result belongs to the scope; `data` is only read
 * @errors EINVAL a negative size, a dtype that is none, data NULL; ELIMIT; ENOMEM
 */
SHERD_API sherd_tensor *sherd_from_data(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                        int ndim, const void *data);

/**
 * A plain tensor filled with one value; it does not vary.
 *
 * @local   @shapes shape: int64_t[ndim]   @owns the result belongs to the scope
 * @errors EINVAL a negative size; ELIMIT; ENOMEM
 */
SHERD_API sherd_tensor *sherd_constant(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                       int ndim, double value);

/**
 * As sherd_constant, but memory is taken when the data is first needed (see sherd_random_later).
 *
 * @local   @shapes shape: int64_t[ndim]   @owns the result belongs to the scope
 * @errors EINVAL a negative size; ELIMIT; ENOMEM. NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_constant_later(sherd_world *world, sherd_dtype dtype,
                                             const int64_t *shape, int ndim, double value);

/**
 * A distributed tensor filled with one value. On an axis with a pending sum the first coordinate holds
 * the value and the others 0.
 *
 * @local   @owns the result belongs to the scope   @errors EINVAL a dtype that is none; ENOTSUP a pending reduction other than sum;
 * ENOMEM
 */
SHERD_API sherd_tensor *sherd_constant_on(const sherd_layout *layout, sherd_dtype dtype,
                                          double value);

/*
 * A source of random numbers. Philox keyed by (world's seed, name, number of the call, global index of the
 * element): the same values under every layout and rank count. Plain; make one with sherd_generator_named.
 */
typedef struct sherd_generator {
    uint64_t name;  /* hash of the name */
    uint64_t calls; /* counts up with every use */
} sherd_generator;

/** A generator at its first call; NULL is "". @local @errors none */
SHERD_API sherd_generator sherd_generator_named(const char *name);

typedef enum sherd_draw {
    SHERD_DRAW_UNIFORM = 0, /* [a, b) */
    SHERD_DRAW_NORMAL,      /* mean a, standard deviation b */
    SHERD_DRAW_TRUNCATED,   /* the same within [low, high] */
    SHERD_DRAW_INTEGERS,    /* a, a + 1, ... below b */
    SHERD_DRAW_BERNOULLI    /* 1 with probability a, else 0 */
} sherd_draw;

/* What to draw. A plain value; make one with the functions below, or with those of values.h. */
typedef struct sherd_distribution {
    sherd_draw kind;
    double a, b;
    double low, high; /* of SHERD_DRAW_TRUNCATED */
} sherd_distribution;

/** Normal numbers. @local @errors none */
static inline sherd_distribution sherd_normal(double mean, double deviation)
{
    sherd_distribution d = {SHERD_DRAW_NORMAL, mean, deviation, 0, 0};
    return d;
}

/** Uniform numbers in [low, high). @local @errors none */
static inline sherd_distribution sherd_uniform(double low, double high)
{
    sherd_distribution d = {SHERD_DRAW_UNIFORM, low, high, 0, 0};
    return d;
}

/** Normal numbers of which those outside of [low, high] are drawn again. @local @errors none */
static inline sherd_distribution sherd_truncated_normal(double mean, double deviation, double low,
                                                        double high)
{
    sherd_distribution d = {SHERD_DRAW_TRUNCATED, mean, deviation, low, high};
    return d;
}

/** Integers in [low, high), at most 2^32 of them; for any dtype that holds them. @local @errors none */
static inline sherd_distribution sherd_integers(int64_t low, int64_t high)
{
    sherd_distribution d = {SHERD_DRAW_INTEGERS, (double)low, (double)high, 0, 0};
    return d;
}

/** 1 with probability p, else 0; for any dtype. @local @errors none */
static inline sherd_distribution sherd_bernoulli(double p)
{
    sherd_distribution d = {SHERD_DRAW_BERNOULLI, p, 0, 0, 0};
    return d;
}

/**
 * A plain tensor of random numbers; it does not vary. Counts as one call of the generator, also where it fails.
 *
 * @local   @shapes shape: int64_t[ndim]
 * @numerics the same 24 or 32 random bits for every dtype; normal numbers by Box-Muller, truncated ones by the inverse of
 *           their distribution; rounded to nearest, so that in 16 bits a uniform number may be the upper end of its range
 * @owns     the result belongs to the scope
 * @errors   EINVAL a dtype that can not hold what is drawn (fractions, unless integers or bernoulli are), a distribution that is
 *           none, a negative size, no generator; ELIMIT; ENOMEM
 */
SHERD_API sherd_tensor *sherd_random(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                     int ndim, sherd_distribution distribution,
                                     sherd_generator *generator);

/**
 * As sherd_random, the same numbers, but they are drawn when the data is first needed; memory is taken then, and
 * ENOMEM raised if there is none. What the tensor says of itself is known at once. Spreading it over a mesh
 * (sherd_distribute from all ranks, and so sherd_parallelize) draws each rank's part and nothing else: for
 * parameters that no rank could hold whole.
 *
 * @local   @shapes shape: int64_t[ndim]   @numerics as sherd_random   @owns the result belongs to the scope
 * @errors   as sherd_random. NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_random_later(sherd_world *world, sherd_dtype dtype,
                                           const int64_t *shape, int ndim,
                                           sherd_distribution distribution,
                                           sherd_generator *generator);

/**
 * A distributed tensor of random numbers, the same as sherd_random draws for its global shape. Nothing travels.
 *
 * @local   @numerics as sherd_random   @owns the result belongs to the scope
 * @errors   as sherd_random; EINVAL a pending reduction
 */
SHERD_API sherd_tensor *sherd_random_on(const sherd_layout *layout, sherd_dtype dtype,
                                        sherd_distribution distribution,
                                        sherd_generator *generator);

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
/** Layout, or NULL of a plain tensor. @local @owns borrowed from the tensor @errors none */
SHERD_API const sherd_layout *sherd_tensor_layout(const sherd_tensor *t);
/** The box of global indices that this rank holds; the whole shape of a plain tensor. @local @errors none */
SHERD_API sherd_box sherd_tensor_box(const sherd_tensor *t);
/** Where this rank's box begins in a dim; 0 if there is no such dim. @local @errors none */
SHERD_API int64_t sherd_tensor_offset(const sherd_tensor *t, int dim);
/** The size of this rank's box in a dim; 0 if there is no such dim. @local @errors none */
SHERD_API int64_t sherd_tensor_size(const sherd_tensor *t, int dim);
/**
 * Whether this is the failed tensor, or NULL. For what stays on this rank only: ranks may differ here, at one line, so
 * never put a collective call behind it; decide on the status of sherd_world_check (see world.h).
 *
 * @local   @errors none
 */
SHERD_API bool sherd_tensor_failed(const sherd_tensor *t);
/**
 * "f32[8(x),4] on (x=2)", or "f32[8,4]" if plain; "the failed tensor". Written when it is first asked for (only the dtype
 * for lack of memory); the same pointer from then on.
 *
 * @local   @owns borrowed from the tensor, as long as it lives   @errors none
 */
SHERD_API const char *sherd_tensor_text(sherd_tensor *t);

/**
 * Say that a plain tensor is equal on all ranks, so that it may be taken for replicated. Returns it.
 *
 * @local   @owns `t` itself, which stays where it belongs   @errors EINVAL `t` is distributed
 */
SHERD_API sherd_tensor *sherd_mark_equal(sherd_tensor *t);

/* ---- data ----------------------------------------------------------------------------------- */

/**
 * The local elements, row-major and contiguous, to read. Waits for a result in flight.
 *
 * @local   blocks while the tensor is the result of a call in flight
 * @shapes  product of sherd_tensor_box sizes, elements
 * @owns    borrowed from the tensor; valid until it is written or released
 * @errors  NULL for a failed tensor, after the alarm, and (ENOMEM raised) where a strided view can't be compacted or
 *          a tensor that was left for later can't be made
 */
SHERD_API const void *sherd_tensor_read(sherd_tensor *t);

/**
 * The local elements, row-major and contiguous, to write. Waits until every peer has read what was
 * published of this storage, then counts as an in-place write.
 *
 * @local   blocks until the readers of earlier calls have finished
 * @shapes  product of sherd_tensor_box sizes, elements
 * @owns    borrowed from the tensor; valid until the tensor is used in a call or released
 * @errors  NULL for a failed tensor, after the alarm, (EINVAL raised) for a strided view, and (ENOMEM raised) where a
 *          tensor that was left for later can't be made
 */
SHERD_API void *sherd_tensor_write(sherd_tensor *t);

/**
 * Whether the data is there: sherd_tensor_read would not wait for a call that was begun (sherd_redistribute_options). Goes on
 * with calls in flight as far as it can, so asking again comes to an end; data moves on the CPU only in calls of sherd.
 *
 * @local   never blocks
 * @errors  none; true for the failed tensor and after the alarm, where there is nothing to wait for; false for NULL
 */
SHERD_API bool sherd_is_ready(sherd_tensor *t);

/**
 * Wait until the data is there. Returns the tensor.
 *
 * @local   blocks while the tensor is the result of a call in flight
 * @owns    `t` itself, which stays where it belongs; the failed tensor after a failure
 * @errors  those of the call that was begun; EPEER
 */
SHERD_API sherd_tensor *sherd_wait(sherd_tensor *t);

/**
 * The value of a tensor of one element. NaN after the alarm, of NULL, and on ranks outside of the tensor's mesh.
 *
 * @collective the tensor's mesh, if it is distributed and not replicated everywhere
 * @errors     EINVAL not one element; EDIFFER; EPEER
 */
SHERD_API double sherd_item(sherd_tensor *t);

/* ---- between local and global --------------------------------------------------------------- */

typedef enum sherd_from_local_mode {
    /* `shape` and the layout's cuts are given and must fit what each rank has */
    SHERD_FROM_CHUNK = 0,
    /* global shape and cuts follow from what the ranks have (they tell each other) */
    SHERD_FROM_INFER = 1
} sherd_from_local_mode;

typedef struct sherd_from_local_options {
    sherd_from_local_mode mode;
    /* CHUNK: global shape, int64_t[ndim]; NULL only where no dim is sharded */
    const int64_t *shape;
    /* CHUNK: explicit sizes as in sherd_layout_options; NULL = default cuts */
    const int64_t *const *sizes;
    const int *order; /* as in sherd_layout_options */
    /*
     * How the gradient that comes out lies, sherd_placement[axes of the mesh]; NULL = as the tensor does, a pending sum replicated.
     * Each is the tensor's own, or where that is not sharded replicated or a pending sum: then what the ranks get adds up to
     * the gradient.
     */
    const sherd_placement *gradient;
} sherd_from_local_options;

/**
 * A distributed tensor out of each rank's own piece. No element moves; the storage is shared with `local`.
 *
 * Gradient: the placements of the forward, a pending sum becomes replicated; or as options->gradient says.
 *
 * @collective the mesh
 * @shapes     placements: sherd_placement[axes of mesh]; options: NULL = CHUNK without shape
 * @owns       the result belongs to the scope
 * @errors     EINVAL pieces that do not fit the layout, replicas of different shape; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_from_local(sherd_tensor *local, const sherd_mesh *mesh,
                                         const sherd_placement *placements,
                                         const sherd_from_local_options *options);

/**
 * A distributed tensor of this layout out of each rank's own piece, which must be its box: sherd_from_local where shape,
 * placements, order and cuts are those of a layout that is there already.
 *
 * @collective the mesh of `layout`   @owns the result belongs to the scope
 * @errors     as sherd_from_local
 */
SHERD_API sherd_tensor *sherd_from_local_as(sherd_tensor *local, const sherd_layout *layout);

/**
 * This rank's piece as a plain tensor that shares the storage and remembers its layout.
 *
 * Gradient: taken in the layout of the forward; where that has a pending sum, replicated.
 *
 * @local   @owns the result belongs to the scope   @errors EINVAL `t` is plain
 */
SHERD_API sherd_tensor *sherd_to_local(sherd_tensor *t);

/**
 * As sherd_to_local, where `gradient` says how the gradients lie that the ranks get for their pieces. On an axis where that is a
 * pending sum the ranks may make different things of what they all have: the gradient of `t` is the sum of theirs. On
 * one where it is replicated they must all get the same.
 *
 * @local
 * @shapes gradient: sherd_placement[axes of the (root) mesh of `t`], each that of `t`, or where that is not sharded replicated or a
 *         pending sum (unset: as sherd_to_local takes it); NULL = as sherd_to_local
 * @owns   the result belongs to the scope
 * @errors EINVAL `t` is plain, a gradient that does not fit
 */
SHERD_API sherd_tensor *sherd_to_local_with(sherd_tensor *t, const sherd_placement *gradient);

/**
 * Spread a plain tensor. Every rank passes a tensor of the same shape and dtype. Of a leaf that wants a gradient it makes
 * another one that does.
 *
 * @collective the mesh of `layout`
 * @shapes     root: the world rank whose data counts (it sends each rank only its box), or -1: all ranks hold the same
 *             data and each keeps its box, nothing travels
 * @numerics   values are copied bit for bit
 * @owns       the result belongs to the scope; `t` is only read
 * @errors     EINVAL `t` is distributed, or computed from what wants a gradient (which would get none), shapes differ, a pending
 *             reduction, no such rank; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_distribute(sherd_tensor *t, const sherd_layout *layout, int root);

/**
 * Spread a plain tensor over a mesh as a text says: the texts of sherd_redistribute_to, for the rest as sherd_distribute.
 *
 * @collective the mesh
 * @shapes     mesh: also a sub-mesh, then the text is of its axes; root: as in sherd_distribute
 * @numerics   values are copied bit for bit
 * @owns       the result belongs to the scope; `t` and `text` are only read
 * @errors     EINVAL with the text, the column and what was expected; otherwise as sherd_distribute
 */
SHERD_API sherd_tensor *sherd_distribute_as(sherd_tensor *t, const sherd_mesh *mesh,
                                            const char *text, int root);

/**
 * Spread a plain tensor that only one rank has: the others pass NULL, and need to know neither its shape nor its dtype.
 * Each rank gets only its box.
 *
 * @collective the mesh; one small exchange more than sherd_distribute
 * @shapes     t: on the root; elsewhere it is not looked at. mesh, text, root: as sherd_distribute_as, root at least 0
 * @numerics   values are copied bit for bit
 * @owns       the result belongs to the scope; `t` and `text` are only read. Of a leaf that wants a gradient it makes one that
 *             does
 * @errors     EINVAL no such root, no `t` there, or it is distributed; EDIFFER other texts or roots; otherwise as
 *             sherd_distribute_as
 */
SHERD_API sherd_tensor *sherd_distribute_from(sherd_tensor *t, const sherd_mesh *mesh,
                                              const char *text, int root);

typedef struct sherd_redistribute_options {
    /* return at once; the data is complete when it is first read (a CPU arena moves it then), or sherd_wait returns */
    bool begin;
    /* the tensor is cast to this before it moves, and so is the result; SHERD_DTYPE_NONE = its own */
    sherd_dtype forward_dtype;
    /* the gradient is cast to this before it moves back, then to the dtype of `t`; SHERD_DTYPE_NONE = that of `t` */
    sherd_dtype backward_dtype;
    /* what needs the result in backward keeps it; else `t` is kept where that is smaller, and moved again: less memory, more calls */
    bool keep;
    const sherd_plan_options *plan; /* NULL = exact, arena price */
} sherd_redistribute_options;

/**
 * Move a tensor to another layout.
 *
 * The plan is cached. Equal layouts (and dtypes) return `t` itself. Gradient: moved back to the layout of `t`, where an
 * axis with a pending sum becomes replicated.
 *
 * `to` may be on another mesh. Then all ranks of the world call, and a rank in neither mesh gets a tensor without data; each
 * waits only for the ranks that it takes from.
 *
 * @collective the mesh axes that the plan needs (see sherd_plan_step); the world, where `to` is on another mesh; complete on
 *             return unless options->begin
 * @shapes     to: layout of the same global shape, of the same world; options: NULL = all zero
 * @numerics   values are copied bit for bit; a pending reduction is added in rank order
 * @owns       the result belongs to the scope; `t` is only read; where a rank's box stays the same, the result shares
 *             the storage of `t`, so that writing one in place writes both
 * @errors     EINVAL `t` is plain, shapes differ, `to` has a pending reduction that `t` has not, a dtype without fractions
 *             where `t` wants a gradient; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_redistribute(sherd_tensor *t, const sherd_layout *to,
                                           const sherd_redistribute_options *options);

/**
 * Move a tensor to where a text says, on its own mesh; for the rest as sherd_redistribute.
 *
 *     sherd_redistribute_to(t, "S(0)R", NULL)             placements, one per axis of the (root) mesh. A dim that the same axes
 *                                                         shard in the same order as before keeps its cuts
 *     sherd_redistribute_to(t, "S(0)[1]S(0)[0]", NULL)    with a shard order
 *     sherd_redistribute_to(t, "S(0)R 0:4,6", NULL)       with cuts: then all other dims have the default ones
 *     sherd_redistribute_to(t, "[10(x:4,6),8]", NULL)     dims, as in the text of a layout; a dtype before them and the mesh
 *                                                         behind, if they are there, must be those of the tensor
 *
 * @collective as sherd_redistribute
 * @shapes     options: NULL = all zero
 * @numerics   as sherd_redistribute
 * @owns       as sherd_redistribute; `text` is only read
 * @errors     EINVAL with the text, the column and what was expected; ENOTSUP a _S(dim,factor) that is no shard order;
 *             otherwise as sherd_redistribute
 */
SHERD_API sherd_tensor *sherd_redistribute_to(sherd_tensor *t, const char *text,
                                              const sherd_redistribute_options *options);

/**
 * Move many tensors at once: one call per group and step, however many tensors. Not recorded.
 *
 * @collective all meshes that tensors are on or go to, with one and the same list; the world, where one goes to another mesh
 * @shapes     out, t, to: [count], 0 or less = nothing to move; out[i] is t[i] where the layouts are equal
 * @owns       the results belong to the scope
 * @errors     as sherd_redistribute; then every out[i] is the failed tensor
 */
SHERD_API void sherd_redistribute_many(sherd_tensor **out, sherd_tensor *const *t,
                                       const sherd_layout *const *to, int count);

/**
 * The whole tensor on every rank, as a plain tensor that does not vary. Gradient: taken as replicated.
 *
 * @collective the tensor's mesh
 * @owns       the result belongs to the scope; a plain `t` is returned itself
 * @errors     EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_full(sherd_tensor *t);

/**
 * As sherd_full; `gradient` says how the gradients of what the ranks make of it lie.
 *
 * @collective the tensor's mesh
 * @shapes     gradient: sherd_placement[axes of the (root) mesh], each replicated, a pending sum (the gradient is then the sum of all
 *             ranks'), or unset; NULL = replicated
 * @owns       the result belongs to the scope; a plain `t` is returned itself
 * @errors     EINVAL a gradient that does not fit; EDIFFER; ENOMEM; EPEER
 */
SHERD_API sherd_tensor *sherd_full_with(sherd_tensor *t, const sherd_placement *gradient);

/**
 * Copy the values of the whole tensor, row-major, into memory of the caller's, on every rank or on one.
 *
 * Whether they are there: true on the ranks that were asked, false on the others, on ranks outside of the mesh, and after a
 * failure. As with sherd_tensor_failed, ranks differ here: decide on the status of sherd_world_check.
 *
 * @collective the tensor's mesh; local for a plain tensor
 * @shapes     out: all elements of `dtype`, `bytes` of room; looked at only where values go. dtype: SHERD_DTYPE_NONE = the
 *             tensor's own. rank: the world rank that gets the values, or -1: each one. Of a plain tensor they are its own
 * @numerics   a pending reduction is added in rank order; another dtype as sherd_cast
 * @owns       `out` stays the caller's; while it runs, a rank that gets the values holds them in tensor storage too
 * @errors     EINVAL `out` NULL or too small, a dtype or a rank that is none, a rank outside of the mesh; EDIFFER; ENOMEM; EPEER
 */
SHERD_API bool sherd_full_read(void *out, size_t bytes, sherd_tensor *t, sherd_dtype dtype,
                               int rank);

SHERD_END

#endif
